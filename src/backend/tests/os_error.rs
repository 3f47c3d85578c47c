//! Tests of `os_error`.

use super::*;
use crate::abi::status::DTL_ERROR_OUT_OF_MEMORY;

#[test]
fn limits_are_no_missing_memory() {
    let of = |code| memory_error("x", &io::Error::from_raw_os_error(code));
    for (code, status, hint) in [
        (libc::ENOMEM, DTL_ERROR_OUT_OF_MEMORY, "free some"),
        (libc::ENOSPC, DTL_ERROR_OUT_OF_MEMORY, "memory.max"),
        (libc::EFBIG, DTL_ERROR_LIMIT, "ulimit -f"),
        (libc::EMFILE, DTL_ERROR_LIMIT, "ulimit -n"),
        (libc::ENFILE, DTL_ERROR_LIMIT, "fs.file-max"),
        (libc::EPERM, DTL_ERROR_BACKEND, "not permitted"),
    ] {
        let error = of(code);
        assert!(error.status() == status && error.text().contains(hint), "{code}: {error}");
        assert!(error.text().starts_with("x: "), "{error}");
    }
}
