//! Meeting in a folder.
use super::{Job, Meeting, Talk};
use crate::error::Result;
use std::path::Path;
pub(super) fn meet(_path: &Path, _job: &Job<'_>, _talk: &Talk) -> Result<Meeting> {
    crate::error::fail!(DTL_ERROR_INTERNAL, "not yet")
}
