//! Tests of `image`.

use super::*;

#[test]
fn what_was_cut_off_is_refused() {
    // The running test program is an ELF file too.
    let own = std::fs::read("/proc/self/exe").unwrap();
    let length = length_of_elf(&own).unwrap() as usize;
    assert!(length <= own.len() && check(&own).is_ok());
    for cut in [0, 5, 6, 63, 64, 1000, length / 2, length - 1] {
        assert!(check(own.get(..cut).unwrap()).is_err(), "{cut}");
    }
    let mut fatbin = [FATBIN, &[1, 0, 16, 0, 4, 0, 0, 0, 0, 0, 0, 0], b"code"].concat();
    assert!(check(&fatbin).is_ok());
    assert!(
        check(fatbin.get(..19).unwrap()).unwrap_err().text().contains("19 bytes of a binary of 20")
    );
    fatbin.truncate(10);
    assert!(check(&fatbin).unwrap_err().text().contains("too few"));
    assert!(check(b".version 8.0").is_err() && check(b"").is_err());
    assert!(
        check_text(b".version").is_ok()
            && check_text(b".ver\0").unwrap_err().text().contains("byte 4")
    );
}
