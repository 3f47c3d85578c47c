//! Compares dtl-sys with the C headers. `build.rs` generates the comparisons.

#![cfg(test)]

/// Values: a C compiler states sizes, alignments, offsets, constants and initial values, and the
/// test compares them with those of dtl-sys.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "written by ctest")]
mod values {
    use dtl_sys::*;

    include!(concat!(env!("OUT_DIR"), "/values.rs"));

    #[test]
    fn values_are_those_of_the_headers() {
        main();
    }
}

/// Types: functions, fields and typedefs of dtl-sys have the types that clang reads in the headers.
/// That this compiles is the comparison.
#[allow(clippy::all, clippy::pedantic, reason = "written by build.rs in one line")]
mod signatures {
    use dtl_sys::*;

    include!(concat!(env!("OUT_DIR"), "/signatures.rs"));

    #[test]
    fn all_declarations_are_compared() {
        functions();
        structs();
        aliases();
        assert!(READ.iter().all(|&count| count > 0), "{READ:?}");
        assert_eq!(READ, DECLARED);
    }

    #[test]
    fn values_without_a_c_type_are_those_of_the_headers() {
        let (major, minor, patch) = (DTL_VERSION_MAJOR, DTL_VERSION_MINOR, DTL_VERSION_PATCH);
        assert_eq!(DTL_VERSION_STRING.to_str(), Ok(&*format!("{major}.{minor}.{patch}")));
        assert_eq!(DTL_IN_PLACE.addr(), usize::MAX);
    }
}
