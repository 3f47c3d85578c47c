//! Tests of `module_load`.

use super::*;

#[test]
fn options_are_those_of_the_driver() {
    let read = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| CString::new(*word).unwrap()).collect();
        options(&words)
    };
    let all = read(&["--maxrregcount=32", "-O2", "-g", "-lineinfo"]).unwrap();
    assert_eq!(all.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [32, 2, 1, 1]);
    for wrong in ["-arch=sm_90", "-O", "--maxrregcount=x", ""] {
        assert!(read(&[wrong]).unwrap_err().text().contains(wrong));
    }
}
