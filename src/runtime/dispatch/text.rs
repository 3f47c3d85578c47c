//! Formatting of keys, queries and choices for error texts and reports.

use super::bitmap_index::{self, Slots};
use super::snapshot::{ChainEntry, OperationHandlers};
use super::{
    Action, Dispatcher, Query, REGISTRATIONS, Registration, builtin_rules, slots, template,
};
use crate::abi::devices::dispatch::DTL_DISPATCH_ANY;
use crate::abi::word::dtl_enum_word_t;
use crate::runtime::enums::describe;
use crate::runtime::registry::Backend;
use crate::sys::handles::epoch::Guard;
use std::fmt::Write;
use std::sync::Arc;

/// Formats a word. All texts about dispatch words use this function.
pub fn word(word: dtl_enum_word_t) -> String {
    if word == DTL_DISPATCH_ANY { "any".to_owned() } else { describe(word) }
}

/// Formats the slots of a key.
pub fn of_key([source, destination, schedule]: &Slots) -> String {
    format!("({}, {}, {})", word(*source), word(*destination), word(*schedule))
}

/// Formats a query.
pub fn of_query(query: &Query) -> String {
    format!(
        "operation {}, source {}, destination {}, schedule {}",
        word(query.operation),
        word(query.source),
        word(query.destination),
        word(query.schedule)
    )
}

/// Returns the name of a handler whose effect is to run operations on `backend`, if there is one.
#[must_use]
pub fn handler_of(inside: &Guard, backend: &Arc<Backend>) -> Option<String> {
    let all = REGISTRATIONS.handles();
    let mut found = all.iter().filter_map(|id| REGISTRATIONS.get(inside, *id));
    let has_it = |known: &&Registration| {
        matches!(&known.action, Action::Backend(its)
        if Arc::ptr_eq(its, backend))
    };
    found.find(has_it).map(|known| known.name.clone())
}

/// Describes the selection for a query: one line for each handler whose key matches, and the
/// choice. Calls the predicates of all these handlers.
#[must_use]
pub fn explain(dispatcher: &Dispatcher, inside: &Guard, query: &Query) -> String {
    let mut text = format!("{}\n", of_query(query));
    if let Some(operation) = dispatcher.tables.get(inside).of(template(query.operation)) {
        walk(&mut text, operation, query);
    }
    let choice = match dispatcher.choose(inside, query) {
        Ok(chosen) => format!("chosen: \"{}\"", chosen.name),
        Err(error) => format!("refused: {error}"),
    };
    text + &choice + "\n"
}

fn walk(text: &mut String, operation: &OperationHandlers, query: &Query) {
    let queried = slots(query);
    for (_, entry) in operation.predicated.fitting(&queried) {
        let of = &entry.registration;
        let verdict = match of.accepts(query) {
            Ok(true) => "its predicate is true".to_owned(),
            Ok(false) => "its predicate is false".to_owned(),
            Err(error) => format!("its predicate fails ({error})"),
        };
        line(text, entry, &format!("priority {}, {verdict}", of.priority));
    }
    for (_, entry) in operation.plain.fitting(&queried) {
        line(text, entry, "no predicate");
    }
    if let Some(default) = &operation.default {
        let _ = writeln!(text, "default: \"{}\"{}", default.name, what(default));
        if matches!(default.action, Action::Own) {
            builtin_rules::ways(query).iter().for_each(|(key, how)| {
                let _ = writeln!(text, "  {} {how}", of_key(key));
            });
        }
    }
    // Handlers that could match if the open slots of the query had values.
    for chain in [&operation.predicated, &operation.plain] {
        for entry in chain.entries().filter(|entry| bitmap_index::may_fit(&entry.key, &queried)) {
            if !bitmap_index::fits(&entry.key, &queried) {
                let of = &entry.registration;
                let _ =
                    writeln!(text, "elsewhere: {} \"{}\"{}", of_key(&entry.key), of.name, what(of));
            }
        }
    }
}

fn line(text: &mut String, entry: &ChainEntry, why: &str) {
    let of = &entry.registration;
    let _ = writeln!(text, "{} \"{}\": {why}{}", of_key(&entry.key), of.name, what(of));
}

/// Describes the effect of choosing the handler, unless it is a call of the handler's function.
fn what(registration: &Registration) -> String {
    match &registration.action {
        Action::Function => String::new(),
        Action::Own => {
            ", which goes by the backend that is asked, or whose memory or stream it is".to_owned()
        }
        Action::Backend(backend) => format!(", done by backend {}", backend.name()),
        Action::Illegal(reason) => format!(", illegal: {reason}"),
    }
}
