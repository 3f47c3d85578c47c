//! Choices that the library has made automatically, for `dtl_explain`: each choice, its reason, and
//! the rejected alternatives.

use super::{log, settings};
use crate::error::{Result, fail};
use crate::sys::sync::lock::Mutex;

/// Recorded choices, one per topic: the topic, and the choice with its reason.
static CHOICES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Records and logs the automatic choice `what`, unless it is already recorded. The choice replaces
/// an earlier choice on the same topic.
pub fn chose(topic: &str, what: &str) {
    let mut choices = CHOICES.lock();
    match choices.iter_mut().find(|(known, _)| known == topic) {
        Some((_, known)) if known == what => return,
        Some((_, known)) => what.clone_into(known),
        None => choices.push((topic.to_owned(), what.to_owned())),
    }
    drop(choices);
    log::info!("{topic}: {what}");
}

/// Records a choice that is worse than the preferred one; fails if DTL_STRICT=1 is set.
pub fn degraded(topic: &str, what: &str) -> Result<()> {
    if settings::current().strict {
        return fail!(DTL_ERROR_NOT_SUPPORTED, "{topic}: {what} (refused because DTL_STRICT=1)");
    }
    chose(topic, &format!("{what} (degraded)"));
    Ok(())
}

/// Returns all recorded choices, one per line.
pub fn text() -> String {
    let choices = CHOICES.lock();
    choices.iter().map(|(topic, what)| format!("{topic}: {what}\n")).collect()
}

/// Removes all recorded choices. Called at finalize.
pub fn clear() {
    CHOICES.lock().clear();
}
