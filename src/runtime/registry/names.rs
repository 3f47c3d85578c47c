//! The names that backends, plugins and environments may have.

use crate::error::{Result, fail};
use crate::runtime::settings;

/// The rule for names of backends and plugins.
pub fn check_name(noun: &str, name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if name.is_empty() || name.len() > 63 || !name.chars().all(good) || name == "auto" {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{noun} name \"{name}\": use 1 to 63 letters, digits, '_', '-' or '.', and not \"auto\""
        );
    }
    Ok(())
}

/// The rule for a backend to be added: a lookup of an alias leads to another backend, so no backend with
/// that name would ever be found.
pub(super) fn check_backend_name(name: &str) -> Result<()> {
    check_name("backend", name)?;
    let meant = settings::alias(name);
    if meant != name {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "backend name \"{name}\" is an alias of \"{meant}\" in dtl_backend_get: choose a name other than \"cpu\", \
             \"CPU\" and \"GPU\""
        );
    }
    Ok(())
}
