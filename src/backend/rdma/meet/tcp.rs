//! Meeting at an address.
use super::{Job, Meeting, Talk};
use crate::error::Result;
pub(super) fn meet(_host: &str, _port: u16, _job: &Job<'_>, _talk: &Talk) -> Result<Meeting> {
    crate::error::fail!(DTL_ERROR_INTERNAL, "not yet")
}
