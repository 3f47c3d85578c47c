//! The record of automatic choices: what was chosen, why, and what was given up for it.

use super::{log, settings};
use crate::error::{Result, fail};
use crate::sys::sync::lock::Mutex;

/// (topic, choice and reason): one entry a topic, in the order first made.
static CHOICES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Records an automatic choice.
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

/// Records a choice that is worse than what was hoped for; under DTL_STRICT it is an error.
pub fn degraded(topic: &str, what: &str) -> Result<()> {
    if settings::current().strict {
        return fail!(DTL_ERROR_NOT_SUPPORTED, "{topic}: {what} (refused because DTL_STRICT=1)");
    }
    chose(topic, &format!("{what} (degraded)"));
    Ok(())
}

/// The choice recorded under a topic, and its reason.
#[must_use]
pub fn of(topic: &str) -> Option<String> {
    CHOICES.lock().iter().find(|(known, _)| known == topic).map(|(_, what)| what.clone())
}

/// All choices so far, a line each.
#[must_use]
pub fn text() -> String {
    let choices = CHOICES.lock();
    choices.iter().map(|(topic, what)| format!("{topic}: {what}\n")).collect()
}

/// Forgets everything (at finalize).
pub fn clear() {
    CHOICES.lock().clear();
}
