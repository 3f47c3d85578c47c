//! Tests of `manifest`.

use super::*;

#[test]
fn reads_what_is_there() {
    let all = parse(
        "name = \"mine\"\nfile = \"libmine.so\"\nentry = \"dtl_plugin_entry_v1\"\nabi = [1, \
         2]\ncomponents = [\"memory\", \"comm\"]\nenvironments = [\"openblas\"]\ndescription = \
         \"d\"\nfuture = 1\n",
    );
    let all = all.expect("a good manifest");
    assert_eq!((all.name.as_str(), all.abi), ("mine", Some((1, 2))));
    assert_eq!((all.components.join("+"), all.environments.len()), ("memory+comm".into(), 1));
    assert!(all.fault(Path::new("/x/libmine.so")).is_none());
    assert!(all.fault(Path::new("/x/libother.so")).is_some_and(|text| text.contains("libmine.so")));
    assert_eq!(path_of(Path::new("/x/libmine.so")), Path::new("/x/libmine.dtl.toml"));
}

#[test]
fn says_what_is_wrong() {
    let fault = |text: &str| parse(text).expect_err("a bad manifest");
    assert!(fault("name = ").contains("line 1"), "{}", fault("name = "));
    assert!(fault("").contains("no name") && fault("name = 3").contains("name is a integer"));
    assert!(fault("name = \"x\"\nabi = [2, 1]").contains("abi"));
    assert!(fault("name = \"x\"\ncomponents = \"memory\"").contains("components"));
    let far = parse("name = \"x\"\nabi = [7, 9]").expect("readable");
    assert!(far.fault(Path::new("x.so")).is_some_and(|text| text.contains("7 to 9")));
}
