//! Tests of `settings`.

use super::*;

fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_backend_comes_from_the_first_variable_that_is_set() {
    let all = [("DTL_BACKEND", "null"), ("STEPMESH_BACKEND", "GPU"), ("STEPMESH_BAKCEND", "CPU")];
    let name = |pairs: &[_]| from_environment(&environment(pairs)).unwrap().backend;
    assert_eq!(name(&all).as_deref(), Some("null"));
    assert_eq!(name(&all[1..]).as_deref(), Some("cuda"));
    assert_eq!(name(&all[2..]).as_deref(), Some("host"));
    assert_eq!(name(&[("DTL_BACKEND", "")]), None);
}

#[test]
fn bad_values_name_the_variable() {
    for pair in [
        ("DTL_TIMEOUT", "soon"),
        ("DTL_TIMEOUT", "-1s"),
        ("DTL_TIMEOUT", "0.1ns"),
        ("DTL_LOG", "loud"),
        ("DTL_STRICT", "maybe"),
    ] {
        let error = from_environment(&environment(&[pair])).unwrap_err();
        assert!(error.text().contains(pair.0) && error.text().contains(pair.1), "{error}");
    }
    assert_eq!(duration("x", "1.5s").unwrap(), 1_500_000_000);
    assert_eq!(duration("x", "20ms").unwrap(), 20_000_000);
}

#[test]
fn the_probe_is_a_switch_or_a_time() {
    let of = |text| from_environment(&environment(&[("DTL_PLUGIN_PROBE", text)]));
    let limit = |text| of(text).unwrap().plugin_probe_ns;
    assert_eq!((limit("0"), limit(""), limit("no")), (None, None, None));
    assert_eq!((limit("1"), limit("500ms")), (Some(10_000_000_000), Some(500_000_000)));
    for text in ["7", "-1s", "5 parsecs", "perhaps"] {
        let error = of(text).unwrap_err();
        assert!(error.text().contains(&format!("DTL_PLUGIN_PROBE={text}")), "{error}");
    }
}

#[test]
fn a_privileged_program_is_not_told_what_to_load() {
    let mut all = environment(&[
        ("DTL_PLUGIN_PATH", "/tmp/evil"),
        ("DTL_MPI_LIBRARY", "/tmp/evil.so"),
        ("DTL_OPENCL_LIBRARY", "/tmp/evil.so"),
        ("DTL_BACKEND", "null"),
    ]);
    assert!(withhold(&mut all, false).is_empty());
    assert_eq!(from_environment(&all).unwrap().plugin_path.as_deref(), Some("/tmp/evil"));
    assert_eq!(
        withhold(&mut all, true),
        [
            "DTL_PLUGIN_PATH is ignored: this program runs with raised privileges",
            "DTL_MPI_LIBRARY is ignored: this program runs with raised privileges",
            "DTL_OPENCL_LIBRARY is ignored: this program runs with raised privileges"
        ]
    );
    assert_eq!(from_environment(&all).unwrap().mpi_library, None);
    // A privileged program must not run another program for a plugin trial either.
    let mut probe = environment(&[("DTL_PLUGIN_PROBE", "1")]);
    assert_eq!((withhold(&mut probe, true).len(), probe.len()), (1, 0));
    let settings = from_environment(&all).unwrap();
    assert_eq!((settings.plugin_path, settings.backend.as_deref()), (None, Some("null")));
}

#[test]
fn an_unknown_variable_gets_a_suggestion() {
    let said = complaints(&environment(&[("DTL_BAKEND", "host"), ("DTL_LOG", "info")]));
    assert_eq!(said, ["unknown environment variable DTL_BAKEND: did you mean DTL_BACKEND?"]);
    assert_eq!(complaints(&environment(&[("STEPMESH_BAKCEND", "CPU")])).len(), 1);
    assert_eq!(distance("kitten", "sitting"), 3);
}
