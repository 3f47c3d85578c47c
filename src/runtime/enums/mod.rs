//! Extensible enumerations: names for the 64-bit words that denote memory kinds, schedules and
//! similar values. All objects live until the process ends and never change, so they are read
//! without a lock. Locks are needed only to add a member, to find a member by name, and to list
//! members.
//!
//! In reading order:
//! - `builtin`: the library's own enumerations
//! - `attrs`: fields of templates, attributes of instances
//! - `instances`: one word per set of equal attributes
//! - `json`: conversion of words to and from JSON
//! - `schedule`: default memory kind and inner schedule of a schedule

pub mod attrs;
mod builtin;
mod instances;
pub mod json;
pub mod schedule;

pub use instances::{get, instance};

use super::append_only_table::{AppendOnlyTable, CHUNK};
use super::check_flags;
use crate::abi::enums::{DTL_ENUM_WITH_UNDEFINED, dtl_enum_t};
use crate::abi::word::{DTL_MEMORY_UNDEFINED, dtl_enum_word_t};
use crate::error::{Error, Result, fail, failure};
use crate::sys::sync::lock::RwLock;
use attrs::{Attr, Field};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Maximum length of a name in bytes.
const NAME_LIMIT: usize = 127;
/// Lowest explicit value that can be registered in a built-in enumeration. Also the number of the
/// first user-defined enumeration.
const FIRST_FREE: u32 = 256;
/// Value of the member Undefined in every enumeration that has this member.
const UNDEFINED: u32 = value_of(DTL_MEMORY_UNDEFINED);
/// Maximum number of user-defined enumerations.
const ENUM_LIMIT: usize = CHUNK;

/// Enumeration: its number, its name and its members.
pub(super) struct Enumeration {
    number: dtl_enum_t,
    name: &'static str,
    by_value: AppendOnlyTable<&'static Member, 256>,
    book: RwLock<Book>,
}

/// Lock-protected part of an enumeration: its members by name and in the order of registration.
#[derive(Default)]
struct Book {
    by_name: BTreeMap<&'static str, &'static Member>,
    listed: Vec<&'static Member>,
}

/// Member of an enumeration. A member with fields is a template, from which instances are created.
pub(super) struct Member {
    pub(super) word: dtl_enum_word_t,
    pub(super) name: &'static str,
    c_name: &'static CStr,
    /// Name of the enumeration to which the member belongs.
    pub(super) of: &'static str,
    pub(super) fields: Vec<Field>,
    /// Default memory kind and inner schedule (the schedule of nested code), if the member is a
    /// schedule.
    defaults: OnceLock<(dtl_enum_word_t, dtl_enum_word_t)>,
}

struct All {
    by_number: AppendOnlyTable<&'static Enumeration, 2>,
    numbers: RwLock<BTreeMap<&'static str, dtl_enum_t>>,
}

fn all() -> &'static All {
    static ALL: OnceLock<All> = OnceLock::new();
    ALL.get_or_init(builtin::all)
}

const fn value_of(word: dtl_enum_word_t) -> u32 {
    (word >> 32) as u32 & 0xFFFF
}

const fn word(number: dtl_enum_t, value: u32) -> dtl_enum_word_t {
    (number as u64) << 48 | (value as u64) << 32
}

/// Creates an enumeration and returns its number.
pub fn create(name: &str, flags: u64) -> Result<dtl_enum_t> {
    check_flags("flags", flags, DTL_ENUM_WITH_UNDEFINED, "DTL_ENUM_WITH_UNDEFINED")?;
    check_name(name)?;
    if name.contains('.') {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "enumeration name \"{name}\" has a '.', which stands between enumeration and member in \
             JSON: use '_'"
        );
    }
    let mut numbers = all().numbers.write();
    let made = numbers.len() - builtin::COUNT;
    if let Some(number) = numbers.get(name) {
        return fail!(
            DTL_ERROR_ALREADY_EXISTS,
            "enumeration \"{name}\" exists already, as number {number}: dtl_enum_find gives it"
        );
    }
    if made == ENUM_LIMIT {
        return fail!(
            DTL_ERROR_LIMIT,
            "this process has made {ENUM_LIMIT} enumerations, no more are possible: make them once \
             and keep them"
        );
    }
    let number = FIRST_FREE + made as dtl_enum_t;
    let enumeration = Enumeration::new(number, name)?;
    if flags & DTL_ENUM_WITH_UNDEFINED != 0 {
        enumeration.add(UNDEFINED, "Undefined", &[attrs::UNDEFINED])?;
    }
    let name = enumeration.name;
    if all().by_number.set(number as usize, enumeration).is_none() {
        return fail!(DTL_ERROR_INTERNAL, "number {number} of enumeration {name} is taken");
    }
    numbers.insert(name, number);
    Ok(number)
}

/// Returns the number of the enumeration with the name `name`.
pub fn find(name: &str) -> Result<dtl_enum_t> {
    let numbers = all().numbers.read();
    numbers.get(name).copied().ok_or_else(|| {
        let known = numbers.keys().copied().collect::<Vec<_>>().join(", ");
        failure!(DTL_ERROR_NOT_FOUND, "no enumeration \"{name}\"; there are {known}")
    })
}

fn enumeration(number: dtl_enum_t) -> Result<&'static Enumeration> {
    all().by_number.get(number as usize).copied().ok_or_else(|| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{number} is no enumeration: use DTL_ENUM_… or what dtl_enum_create or dtl_enum_find \
             gave"
        )
    })
}

/// Registers a member with the value `value` or, if `value` is `None`, with the lowest free value
/// that is greater than the number of members. A member with fields is a template.
pub fn register(
    number: dtl_enum_t,
    name: &str,
    value: Option<u32>,
    fields: &[Attr],
) -> Result<dtl_enum_word_t> {
    let enumeration = enumeration(number)?;
    check_name(name)?;
    if let Some(value) = value {
        let lowest = if number < FIRST_FREE { FIRST_FREE } else { 1 };
        if !(lowest..UNDEFINED).contains(&value) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "value {value} for {}.{name}: use {lowest} to {}",
                enumeration.name,
                UNDEFINED - 1
            );
        }
    }
    enumeration.register(name, value, fields)
}

/// Registers a template.
pub fn register_template(
    number: dtl_enum_t,
    name: &str,
    fields: &[Attr],
) -> Result<dtl_enum_word_t> {
    attrs::check_fields(fields)?;
    register(number, name, None, fields)
}

impl Enumeration {
    /// Allocates an enumeration. It is never freed, because there are only a few enumerations.
    fn new(number: dtl_enum_t, name: &str) -> Result<&'static Self> {
        let (_, name) = kept(name)?;
        let book = RwLock::new(Book::default());
        Ok(Box::leak(Box::new(Enumeration {
            number,
            name,
            by_value: AppendOnlyTable::new(),
            book,
        })))
    }

    fn register(&self, name: &str, value: Option<u32>, fields: &[Attr]) -> Result<dtl_enum_word_t> {
        let mut book = self.book.write();
        let taken = book.by_name.get(name).or_else(|| self.by_value.get(value? as usize));
        if let Some(member) = taken {
            return fail!(
                DTL_ERROR_ALREADY_EXISTS,
                "{}.{name}{}: there is {} of value {} already; dtl_enum_from_name gives it",
                self.name,
                value.map_or_else(String::new, |value| format!(" of value {value}")),
                member.full_name(),
                value_of(member.word)
            );
        }
        let mut free = book.listed.len() as u32 + 1..UNDEFINED;
        let Some(value) =
            value.or_else(|| free.find(|value| self.by_value.get(*value as usize).is_none()))
        else {
            return fail!(
                DTL_ERROR_LIMIT,
                "{} has {} members and no free value above that; at most {} are possible",
                self.name,
                book.listed.len(),
                UNDEFINED - 1
            );
        };
        self.enter(&mut book, value, name, fields)
    }

    /// Adds a member that is known not to conflict with another member.
    fn add(&self, value: u32, name: &str, fields: &[Attr]) -> Result<dtl_enum_word_t> {
        self.enter(&mut self.book.write(), value, name, fields)
    }

    fn enter(
        &self,
        book: &mut Book,
        value: u32,
        name: &str,
        fields: &[Attr],
    ) -> Result<dtl_enum_word_t> {
        let (c_name, name) = kept(name)?;
        let fields = attrs::fields(fields)?;
        let (word, defaults) = (word(self.number, value), OnceLock::new());
        // Never freed; an enumeration has at most 65535 members.
        let member: &'static Member =
            Box::leak(Box::new(Member { word, name, c_name, of: self.name, fields, defaults }));
        self.by_value.set(value as usize, member);
        book.by_name.insert(name, member);
        book.listed.push(member);
        Ok(word)
    }

    fn find(&self, name: &str) -> Option<&'static Member> {
        self.book.read().by_name.get(name).copied()
    }
}

impl Member {
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.of, self.name)
    }

    pub(super) fn is_undefined(&self) -> bool {
        value_of(self.word) == UNDEFINED
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    let is_part = |c: u8| is_start(c) || c.is_ascii_digit() || c == b'.';
    let good = name.bytes().next().is_some_and(is_start) && name.bytes().all(is_part);
    if good && name.len() <= NAME_LIMIT {
        return Ok(());
    }
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "name \"{name}\" of {} bytes: use 1 to {NAME_LIMIT} letters, digits, '_' and '.', a letter \
         or '_' first",
        name.len()
    )
}

/// Returns a copy of `text` that is never freed, as a C string and as a Rust string.
fn kept(text: &str) -> Result<(&'static CStr, &'static str)> {
    let Ok(c_text) = CString::new(text) else {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "text {text:?} has a NUL in it");
    };
    let kept = super::for_ever(&c_text);
    Ok((kept, kept.to_str().unwrap_or_default()))
}

/// Returns the member that an enumeration word denotes or, for an instance, the member that is its
/// template. Does not check that the instance exists.
#[inline]
fn member(word: dtl_enum_word_t) -> Option<&'static Member> {
    let enumeration = all().by_number.get((word >> 48) as usize)?;
    enumeration.by_value.get(value_of(word) as usize).copied()
}

/// Returns the member that an enumeration word denotes or, for an instance, the member that is its
/// template. Fails if the word was never assigned to a member or an instance.
fn existing(word: dtl_enum_word_t) -> Result<&'static Member> {
    let found = member(word);
    found
        .filter(|_| word as u32 == 0 || instances::find(word).is_some())
        .ok_or_else(|| never_given(word))
}

#[cold]
fn never_given(word: dtl_enum_word_t) -> Error {
    let text = match word {
        0 => "the enumeration word is 0".to_owned(),
        _ => format!("{word:#018x} is no enumeration word that was given out in this process"),
    };
    failure!(DTL_ERROR_INVALID_ARGUMENT, "{text}")
}

/// Fails unless an enumeration word was assigned to a member or an instance.
pub fn check_given(word: dtl_enum_word_t) -> Result<()> {
    existing(word).map(drop)
}

/// Fails unless an enumeration word was assigned to a member or an instance and belongs to the
/// enumeration `number`.
pub fn check(word: dtl_enum_word_t, number: dtl_enum_t) -> Result<()> {
    let member = existing(word)?;
    if member.word >> 48 != u64::from(number) {
        let wanted =
            all().by_number.get(number as usize).map_or("?", |enumeration| enumeration.name);
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{} is of enumeration {}, not of {wanted}",
            describe(word),
            member.of
        );
    }
    Ok(())
}

/// Returns the name of a member or, for an instance, the name of its template. The string is never
/// freed.
pub fn name(word: dtl_enum_word_t) -> Result<&'static CStr> {
    Ok(existing(word)?.c_name)
}

/// Returns a string that describes an enumeration word: the name of a member, the JSON text of an
/// instance, or the hexadecimal value of a word that was never assigned.
pub fn describe(word: dtl_enum_word_t) -> String {
    let text = match member(word) {
        Some(member) if word as u32 == 0 => Some(member.name.to_owned()),
        _ => instances::find(word).map(|instance| instance.json.to_string_lossy().into_owned()),
    };
    text.unwrap_or_else(|| format!("{word:#x}"))
}

/// Returns the word of the member with the name `name`.
pub fn from_name(number: dtl_enum_t, name: &str) -> Result<dtl_enum_word_t> {
    let enumeration = enumeration(number)?;
    enumeration.find(name).map(|member| member.word).ok_or_else(|| enumeration.no_member(name))
}

impl Enumeration {
    #[cold]
    fn no_member(&self, name: &str) -> Error {
        let (of, names) = (self.name, self.some_names());
        failure!(
            DTL_ERROR_NOT_FOUND,
            "{of} has no member \"{name}\": is what registers it loaded? There are {names}"
        )
    }

    /// Returns the names of at most `MOST` members, for an error message.
    fn some_names(&self) -> String {
        const MOST: usize = 16;
        let book = self.book.read();
        let names: Vec<&str> = book.listed.iter().take(MOST).map(|member| member.name).collect();
        let more = if book.listed.len() > MOST { ", …" } else { "" };
        names.join(", ") + more
    }
}

/// Returns the enumeration word of the member that has the value `value`.
pub fn from_value(number: dtl_enum_t, value: u32) -> Result<dtl_enum_word_t> {
    let enumeration = enumeration(number)?;
    enumeration.by_value.get(value as usize).map(|member| member.word).ok_or_else(|| {
        failure!(DTL_ERROR_NOT_FOUND, "{} has no member of value {value}", enumeration.name)
    })
}

/// Returns the number of members, including templates and excluding instances.
pub fn count(number: dtl_enum_t) -> Result<usize> {
    Ok(enumeration(number)?.book.read().listed.len())
}

/// Returns the word of the member at an index, in registration order.
pub fn at(number: dtl_enum_t, index: u64) -> Result<dtl_enum_word_t> {
    let enumeration = enumeration(number)?;
    let book = enumeration.book.read();
    match usize::try_from(index).ok().and_then(|index| book.listed.get(index)) {
        Some(member) => Ok(member.word),
        None => fail!(
            DTL_ERROR_OUT_OF_BOUNDS,
            "{} has {} members, index {index} is none",
            enumeration.name,
            book.listed.len()
        ),
    }
}

/// Returns the enumeration word of the member Undefined, which represents names that are not in the
/// enumeration.
pub fn undefined(number: dtl_enum_t) -> Result<dtl_enum_word_t> {
    let enumeration = enumeration(number)?;
    enumeration.by_value.get(UNDEFINED as usize).map(|member| member.word).ok_or_else(|| {
        failure!(
            DTL_ERROR_NOT_FOUND,
            "{} has no Undefined: create it with DTL_ENUM_WITH_UNDEFINED",
            enumeration.name
        )
    })
}
