//! Tests of `signature`.

use super::*;

#[test]
fn signatures_are_read() {
    let sizes = |text| parse(text).unwrap().iter().map(|one| one.size).collect::<Vec<_>>();
    assert_eq!(sizes("pbBhHiIlLefd"), [8, 1, 1, 2, 2, 4, 4, 8, 8, 2, 4, 8]);
    assert_eq!(sizes("f[24]p"), [4, 24, 8]);
    assert!(sizes("").is_empty());
    for wrong in ["x", "pq", "[", "[]", "[0]", "[-1]", "[4", "p f", "[1e3]", "[99999999999]", "ü"]
    {
        let error = parse(wrong).unwrap_err();
        assert!(error.text().contains(wrong) && error.text().contains("p (8)"), "{wrong}: {error}");
    }
}

#[test]
fn a_mismatch_names_the_argument() {
    let wanted = parse("pfi").unwrap();
    assert!(check("k", &wanted, &[8, 4, 4]).is_ok());
    let text = |sizes: &[u64]| check("k", &wanted, sizes).unwrap_err().text().to_owned();
    assert_eq!(
        text(&[8, 8, 4]),
        "argument 1 of kernel 'k' is passed with 8 bytes and has 4 bytes (f)"
    );
    let text_of_fit = fit("k", &wanted, &[8, 8, 4]).unwrap_err().text().to_owned();
    assert!(
        text_of_fit.starts_with("the signature says 4 bytes (f) for argument 1"),
        "{text_of_fit}"
    );
    assert!(fit("k", &wanted, &[8, 4, 4]).is_ok() && fit("k", &wanted, &[8]).is_err());
    assert_eq!(text(&[8]), "1 arguments for kernel 'k', which takes 3");
    assert!(fit("k", &wanted, &[0, 4, 0]).is_ok() && fit("k", &wanted, &[0, 8, 0]).is_err());
    assert!(
        check("k", &[Argument::of_size(0)], &[7]).is_ok()
            && check("k", &[Argument::of_size(0)], &[]).is_err()
    );
    assert_eq!(pointers("pf[8]pl").unwrap(), [true, false, false, true, false]);
    let plain = [Argument::of_size(2)];
    assert!(check("k", &plain, &[1]).unwrap_err().text().ends_with("and has 2 bytes"));
}
