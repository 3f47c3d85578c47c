//! Manual pages of the C interface, made from `include/dtl-api.json`: for `man`, for a terminal and
//! for the documentation site; and those of programs, made from their options.
//!
//! In reading order:
//! - `page`: contents of a page, without a format
//! - `noun`: the page of a noun, which lists its functions
//! - `overview`: the page of the library, and names of other interfaces
//! - `statuses`: reasons of statuses
//! - `words`: sentences for the facts of parameters and calls
//! - `roff`: pages in the format of `man`
//! - `plain`: pages as text
//! - `programs`: pages and shell completions of a program
//! - `markdown`: pages in the format of mdBook
//! - `reference`: chapters of the reference
//! - `site`: sources of the documentation site: the reference, and the pages of `docs`

#![allow(clippy::indexing_slicing, reason = "a member that a JSON value lacks reads as null")]

mod markdown;
pub mod noun;
pub mod overview;
mod page;
pub mod plain;
pub mod programs;
mod reference;
pub mod roff;
pub mod site;
mod statuses;
#[cfg(test)]
mod tests;
#[path = "../../../src/runtime/settings/variables.rs"]
#[allow(dead_code, unreachable_pub, reason = "a file of the library, of which one table is used")]
mod variables;
mod words;

pub use self::page::{Block, Page};

use serde_json::Value;
use std::collections::HashMap;

/// Description of the interface that belongs to this version of the library.
const DESCRIPTION: &str = include_str!("../../../include/dtl-api.json");

/// The interface: all items by name, in the order of the headers, with the titles of their sections.
pub struct Api {
    description: Value,
    /// Places of the items by name: section, and item in it.
    places: HashMap<String, (usize, usize)>,
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
        let description: Result<Value, _> = serde_json::from_str(DESCRIPTION);
        let description = description.map_err(|error| format!("dtl-api.json: {error}"))?;
        let mut places = HashMap::new();
        for (s, section) in list(&description["sections"]).enumerate() {
            for (i, item) in list(&section["items"]).enumerate() {
                places.insert(item["name"].as_str().unwrap_or_default().to_owned(), (s, i));
            }
        }
        Ok(Api { description, places })
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

    /// Returns the item that is named exactly so.
    pub(crate) fn get(&self, name: &str) -> Option<Item<'_>> {
        let (section, item) = self.places.get(name)?;
        let section = &self.description["sections"][section];
        let title = section["title"].as_str().unwrap_or_default();
        Some(Item { title, item: &section["items"][item] })
    }

    /// Returns the macros of null handles and of initial values, each with its type.
    pub fn type_macros(&self) -> impl Iterator<Item = (&str, Item<'_>)> {
        self.items().flat_map(|one| {
            [&one.item["null"], &one.item["init"]]
                .into_iter()
                .filter_map(move |name| Some((name.as_str()?, one)))
        })
    }

    /// Returns the item `name`, and the type of a macro of its null handle or initial value. Case
    /// does not matter.
    pub fn find(&self, name: &str) -> Option<Item<'_>> {
        let all = || self.items().map(|one| (one.name(), one)).chain(self.type_macros());
        let alike = || all().find(|(other, _)| other.eq_ignore_ascii_case(name));
        self.get(name).or_else(|| alike().map(|(_, one)| one))
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
        let macros = self.type_macros().map(|(name, _)| name);
        let names = self.items().map(|one| one.name()).chain(macros).chain(others);
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

    /// Returns the kind of the item: function, struct, handle, callback, integer, constant, macro or
    /// inline (function).
    pub fn kind(&self) -> &'a str {
        self.item["kind"].as_str().unwrap_or_default()
    }
}

/// Returns a text with the paths of documents as they are installed.
pub fn installed(text: &str) -> String {
    text.replace("docs/", "share/doc/dtl/")
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
