//! Formatting of enumeration words, dispatch keys and queries for error messages and reports.

use super::Query;
use super::bitmap_index::Slots;
use crate::abi::devices::dispatch::DTL_DISPATCH_ANY;
use crate::abi::word::dtl_enum_word_t;
use crate::runtime::enums::describe;

/// Formats an enumeration word of a key or query. All messages about such words use this function.
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
