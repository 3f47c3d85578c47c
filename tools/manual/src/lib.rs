//! Manual pages of the C interface, made from `include/dtl-api.json`: for `man`, for a terminal and
//! for the documentation site; and those of programs, made from their options.
//!
//! In reading order:
//! - `page`: contents of a page, without a format
//! - `words`: sentences for the facts of parameters and calls
//! - `roff`: pages in the format of `man`
//! - `plain`: pages as text
//! - `programs`: pages and shell completions of a program
//! - `markdown`: pages in the format of mdBook
//! - `reference`: chapters of the reference
//! - `site`: sources of the documentation site: the reference, and the pages of `docs`

#![allow(clippy::indexing_slicing, reason = "a member that a JSON value lacks reads as null")]

mod markdown;
mod page;
pub mod plain;
pub mod programs;
mod reference;
pub mod roff;
pub mod site;
#[cfg(test)]
mod tests;
#[path = "../../../src/runtime/settings/variables.rs"]
#[allow(dead_code, unreachable_pub, reason = "a file of the library, of which one table is used")]
mod variables;
mod words;

pub use self::page::{Block, Page};

use serde_json::Value;

/// Description of the interface that belongs to this version of the library.
const DESCRIPTION: &str = include_str!("../../../include/dtl-api.json");

/// The interface: all items by name, in the order of the headers, with the titles of their sections.
pub struct Api {
    description: Value,
}

/// Item of the interface, and the section of a header that it stands in.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// Title of the section.
    pub title: &'a str,
    /// Description of the item.
    pub item: &'a Value,
}

impl Api {
    /// Reads the description of the interface.
    ///
    /// # Errors
    /// The description is not JSON.
    pub fn read() -> Result<Api, String> {
        let description = serde_json::from_str(DESCRIPTION);
        Ok(Api { description: description.map_err(|error| format!("dtl-api.json: {error}"))? })
    }

    /// Returns the version of the library.
    pub fn version(&self) -> &str {
        self.description["version"].as_str().unwrap_or_default()
    }

    /// Returns all items in the order of the headers.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let sections = list(&self.description["sections"]);
        sections.flat_map(|section| {
            let title = section["title"].as_str().unwrap_or_default();
            list(&section["items"]).map(move |item| Item { title, item })
        })
    }

    /// Returns the item `name`. Case does not matter.
    pub fn find(&self, name: &str) -> Option<Item<'_>> {
        let all = || self.items();
        let exact = all().find(|one| one.name() == name);
        exact.or_else(|| all().find(|one| one.name().eq_ignore_ascii_case(name)))
    }

    /// Returns the statuses that any function may return.
    pub fn universal_statuses(&self) -> impl Iterator<Item = &str> {
        list(&self.description["universal_statuses"]).filter_map(Value::as_str)
    }

    /// Returns the status with a number.
    pub fn status(&self, number: i64) -> Option<Item<'_>> {
        let is_status = |one: &Item<'_>| one.item["type"] == "dtl_status_t";
        self.items().find(|one| is_status(one) && one.item["value"] == number)
    }

    /// Returns the names, of the interface and `others`, that are most like `name`: at most five.
    pub fn similar<'a>(
        &'a self,
        name: &str,
        others: impl Iterator<Item = &'a str>,
    ) -> Vec<&'a str> {
        let name = name.to_lowercase();
        let names = self.items().map(|one| one.name()).chain(others);
        let mut near: Vec<_> =
            names.map(|other| (distance(&name, &other.to_lowercase()), other)).collect();
        near.retain(|(distance, _)| *distance <= (name.len() / 3).min(4));
        near.sort();
        near.into_iter().map(|(_, name)| name).take(5).collect()
    }
}

impl<'a> Item<'a> {
    /// Returns the name of the item.
    pub fn name(&self) -> &'a str {
        self.item["name"].as_str().unwrap_or_default()
    }

    /// Returns the kind of the item: function, struct, handle, callback, integer or constant.
    pub fn kind(&self) -> &'a str {
        self.item["kind"].as_str().unwrap_or_default()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the number of characters to insert, remove or replace to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (place, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *place;
            left = replaced.min(left + 1).min(diagonal + 1);
            *place = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
