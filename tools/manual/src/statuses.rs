//! Statuses of a function, each with the reason that the text of the function gives.

use crate::page::{brief, capital};
use crate::{Api, list};
use serde_json::Value;

/// Sentences that begin so are about all statuses, not about the one before.
const GENERAL: [&str; 3] = ["Otherwise", "The request returns", "There is no other return"];

/// Text after `@return`, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// What precedes the statuses.
    pub(crate) before: String,
    /// Statuses, or a phrase for several of them, with their reasons.
    pub(crate) reasons: Vec<(String, String)>,
    /// What is about all of them.
    pub(crate) after: String,
}

impl Returns {
    /// Takes a text apart: "DTL_ERROR_A, DTL_ERROR_B: reason. Further sentences of the reason."
    pub(crate) fn read(text: &str) -> Returns {
        let mut returns = Returns::default();
        let mut is_after = false;
        for sentence in sentences(text) {
            let head = sentence.starts_with("DTL_ERROR_").then(|| sentence.split_once(": "));
            if let Some((head, reason)) = head.flatten() {
                is_after = false;
                for part in head.split(", ") {
                    // "DTL_ERROR_A or the status of a probe or init"
                    let (status, phrase) = match part.split_once(" or ") {
                        Some((status, phrase)) if status.starts_with("DTL_") => (status, phrase),
                        _ => (part.trim_start_matches("or "), ""),
                    };
                    for one in [status, phrase].iter().filter(|one| !one.is_empty()) {
                        returns.add(&capital(one), reason);
                    }
                }
                continue;
            }
            is_after |= GENERAL.iter().any(|start| sentence.starts_with(start));
            let place = match returns.reasons.last_mut() {
                None => &mut returns.before,
                Some(_) if is_after => &mut returns.after,
                Some((_, reason)) => reason,
            };
            let sentence = sentence.replace("The last is also returned", "Also returned");
            place.push_str(if place.is_empty() { "" } else { " " });
            place.push_str(&sentence);
        }
        returns
    }

    fn add(&mut self, status: &str, reason: &str) {
        match self.reasons.iter_mut().find(|(other, _)| other == status) {
            Some((_, text)) => text.push_str(&format!(" {}", capital(reason))),
            None => self.reasons.push((status.to_owned(), reason.to_owned())),
        }
    }

    /// Completes the reasons of a function: "see dtl_X" is preceded by the first sentence of the
    /// reason there, if all parameters that it names are parameters of this function too. Adds the
    /// other statuses of the function.
    pub(crate) fn complete(&mut self, api: &Api, function: &Value) {
        for (status, reason) in &mut self.reasons {
            if let Some(names) = reason.strip_prefix("see ") {
                let names = names.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let mut found = names.filter_map(|name| first_reason(api, name, status, 4));
                let fits = |text: &String| {
                    let mut named = text.split('`').skip(1).step_by(2);
                    named.all(|name| list(&function["parameters"]).any(|one| one["name"] == name))
                };
                let text = found.next().filter(fits).or_else(|| meaning(api, status));
                *reason = format!("{} {}", text.unwrap_or_default(), capital(reason));
            }
            *reason = capital(reason.trim());
        }
        let text = format!("{}{}", self.before, self.after);
        for status in list(&function["statuses"]).filter_map(Value::as_str) {
            let is_named = self.reasons.iter().any(|(name, _)| name == status);
            if !is_named && !text.contains(status) {
                self.reasons.push((status.to_owned(), meaning(api, status).unwrap_or_default()));
            }
        }
    }
}

/// Returns the general meaning of a status.
fn meaning(api: &Api, status: &str) -> Option<String> {
    api.get(status).map(|item| brief(item.item) + ".")
}

/// Returns the first sentence of the reason for a status in the text of another function. `depth`
/// ends circles.
fn first_reason(api: &Api, function: &str, status: &str, depth: u32) -> Option<String> {
    let item = api.get(function).filter(|item| item.kind() == "function" && depth > 0)?;
    let returns = Returns::read(item.item["returns"]["text"].as_str()?);
    let (_, reason) = returns.reasons.into_iter().find(|(name, _)| name == status)?;
    let first = sentences(&reason).into_iter().next()?;
    match first.strip_prefix("see ") {
        Some(other) => first_reason(api, other.split(['.', ' ']).next()?, status, depth - 1),
        None => Some(capital(first)),
    }
}

/// Splits a text after each full stop that a capital letter or a mark of code follows.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|text| text.find(". ")) {
        let (sentence, next) = rest.split_at(from + at + 1);
        let next = next.trim_start();
        let is_end = next.starts_with(|c: char| c.is_ascii_uppercase() || c == '`')
            && !sentence.ends_with("..");
        if is_end {
            found.push(sentence);
            (rest, from) = (next, 0);
        } else {
            from += at + 1;
        }
    }
    found.extend((!rest.is_empty()).then_some(rest));
    found
}
