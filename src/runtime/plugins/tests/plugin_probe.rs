//! Tests of `plugin_probe`.

use super::*;

#[test]
fn the_line_is_read() {
    let (file, program) = (Path::new("/a: b/x.so"), Path::new("/bin/dtl-info"));
    let judge = |line: &str| judge(file, program, line).map_err(|error| error.text().to_owned());
    assert_eq!(judge("ok       /a: b/x.so: x 1.0, ABI 1: x (memory)\n"), Ok(()));
    assert_eq!(judge("refused  /a: b/x.so: it is cut off\n"), Ok(()));
    let crash = judge("crashed  /a: b/x.so: killed by signal 11 (SIGSEGV), in its load\n");
    assert_eq!(
        crash.unwrap_err(),
        "the probe: crashed: killed by signal 11 (SIGSEGV), in its load"
    );
    for nothing in ["", "ok", "ok /other.so: fine", "who knows"] {
        assert!(judge(nothing).unwrap_err().contains("/bin/dtl-info gave no verdict"), "{nothing}");
    }
}

#[test]
fn without_dtl_info_it_says_where_it_should_be() {
    let error = find(Some(Path::new("/no/such/lib/libdtl.so"))).unwrap_err();
    let text = error.text();
    assert!(
        text.contains("/no/such/lib/../bin/dtl-info or /no/such/lib/../../bin/dtl-info"),
        "{text}"
    );
    assert!(text.contains("install dtl-info there, or unset DTL_PLUGIN_PROBE"), "{text}");
    assert!(explain::text().contains("plugins: not loaded"), "{}", explain::text());
}
