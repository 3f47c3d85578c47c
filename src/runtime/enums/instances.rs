//! Instances of templates. Each instance has an enumeration word; equal attributes of one template
//! map to the same word. A lookup that hits takes no lock and allocates no memory: it probes a hash
//! table that only grows. After a miss the lookup is repeated under the lock, so that only one of
//! several threads with equal attributes adds the instance.

use super::attrs::{self, Attr, FIELD_LIMIT, Field, Value};
use super::{Member, existing, json, member, never_given};
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Error, Result, fail, failure};
use crate::runtime::append_only_table::{AppendOnlyTable, CHUNK};
use crate::runtime::open_state;
use crate::sys::{memory::buf::fnv1a, sync::lock::Mutex};
use std::ffi::CString;

/// Maximum number of instances during the life of the process.
const LIMIT: usize = 1 << 16;
/// Number of hash table slots; the table is at most half full, so probe sequences are short and
/// always end at a free slot.
const PLACES: usize = LIMIT * 2;
/// Maximum length of an instance's JSON text in bytes. The C interface has the same limit for all
/// strings that it reads.
const JSON_LIMIT: usize = 4000;
/// Maximum nesting depth of instances that are attributes of other instances.
const DEPTH_LIMIT: u32 = 16;

/// Instance of a template: its enumeration word and its attribute values.
pub(super) struct Instance {
    pub(super) word: dtl_enum_word_t,
    pub(super) template: &'static Member,
    /// Attribute values, in the order of the template's fields.
    pub(super) values: Vec<Value<'static>>,
    pub(super) json: CString,
    pub(super) depth: u32,
    hash: u64,
}

static BY_HASH: AppendOnlyTable<&'static Instance, { PLACES / CHUNK }> = AppendOnlyTable::new();
static BY_INDEX: AppendOnlyTable<&'static Instance, { LIMIT / CHUNK }> = AppendOnlyTable::new();
/// Number of instances. The lock is held while an instance is added.
static ADDING: Mutex<usize> = Mutex::new(0);

/// Returns the instance that the enumeration word denotes; `None` if it denotes no instance.
pub(super) fn find(word: dtl_enum_word_t) -> Option<&'static Instance> {
    let index = (word as u32).checked_sub(1)?;
    BY_INDEX.get(index as usize).copied().filter(|instance| instance.word == word)
}

/// Returns the enumeration word of the instance of `template` with the attributes `given`. Missing
/// attributes get their default values.
pub fn instance(template: dtl_enum_word_t, given: &[Attr]) -> Result<dtl_enum_word_t> {
    let found = member(template).filter(|member| template as u32 == 0 && !member.fields.is_empty());
    let Some(member) = found else { return Err(no_template(template)) };
    let mut row = [Value::Bits(0); FIELD_LIMIT];
    attrs::complete(member, given, &mut row)?;
    let values = row.get(..member.fields.len()).unwrap_or_default();
    let hash = hash_of(member, values);
    match look(member, values, hash) {
        Ok(known) => Ok(known.word),
        Err(_) => add(member, values, hash),
    }
}

#[cold]
fn no_template(word: dtl_enum_word_t) -> Error {
    let Ok(member) = existing(word) else { return never_given(word) };
    let advice =
        if member.fields.is_empty() { "" } else { " (dtl_ev_template gives its template)" };
    failure!(
        DTL_ERROR_TYPE,
        "{} is no template: it has no instances of its own{advice}",
        super::describe(word)
    )
}

#[inline]
fn hash_of(template: &Member, values: &[Value]) -> u64 {
    const FACTOR: u64 = 0x517C_C1B7_2722_0A95;
    let mix = |hash: u64, bits: u64| (hash.rotate_left(5) ^ bits).wrapping_mul(FACTOR);
    let hash = values.iter().fold(template.word, |hash, value| match value {
        Value::Bits(bits) => mix(hash, *bits),
        Value::Text(text) => mix(hash, fnv1a(text.to_bytes())),
    });
    // The upper bits of a product depend on all lower bits; those of a double may all be 0.
    mix(hash >> 32, hash)
}

/// Returns the instance of `template` with the attribute values `values` or, if there is no such
/// instance, the free slot of the hash table in which to insert it.
#[inline]
fn look(template: &Member, values: &[Value], hash: u64) -> Result<&'static Instance, usize> {
    let mut place = (hash >> (u64::BITS - PLACES.ilog2())) as usize;
    while let Some(known) = BY_HASH.get(place) {
        if known.hash == hash && std::ptr::eq(known.template, template) && known.values == values {
            return Ok(known);
        }
        place = (place + 1) % PLACES;
    }
    Err(place)
}

#[cold]
fn add(template: &'static Member, values: &[Value], hash: u64) -> Result<dtl_enum_word_t> {
    for value in values {
        if let Value::Text(text) = value {
            attrs::utf8(text)?;
        }
    }
    let json = json::of_instance(template, values)?;
    let depth = attrs::depth(template, values);
    if json.as_bytes().len() > JSON_LIMIT || depth > DEPTH_LIMIT {
        return fail!(
            DTL_ERROR_LIMIT,
            "an instance of {} of {} bytes as JSON, {depth} instances deep: at most {JSON_LIMIT} \
             and {DEPTH_LIMIT}",
            template.full_name(),
            json.as_bytes().len()
        );
    }
    let _aside = open_state::aside()?;
    let mut count = ADDING.lock();
    let place = match look(template, values, hash) {
        Ok(known) => return Ok(known.word),
        Err(place) => place,
    };
    if *count == LIMIT {
        return fail!(
            DTL_ERROR_LIMIT,
            "this process has made {LIMIT} instances of templates, no more are possible; they stay \
             for ever, so do not put into one what differs each time ({})",
            template.full_name()
        );
    }
    let values = values.iter().map(|value| attrs::stored(*value)).collect::<Result<Vec<_>>>()?;
    let word = template.word | (*count as u64 + 1);
    let made: &'static Instance =
        Box::leak(Box::new(Instance { word, template, values, json, depth, hash }));
    // Publish the lookup by word before the lookup by attributes, which returns the word.
    if BY_INDEX.set(*count, made).and_then(|()| BY_HASH.set(place, made)).is_none() {
        return fail!(DTL_ERROR_INTERNAL, "place {place} of instance {count} is taken");
    }
    *count += 1;
    Ok(word)
}

/// Returns the value of the attribute `name` of an instance, and the field of the instance's
/// template that describes the attribute.
pub fn get(word: dtl_enum_word_t, name: &str) -> Result<(&'static Field, Value<'static>)> {
    let Some(instance) = find(word) else {
        let member = existing(word)?;
        return match member.fields.iter().any(|field| field.name == name) {
            true => fail!(
                DTL_ERROR_TYPE,
                "{} is a template, its instances have values for \"{name}\"",
                member.full_name()
            ),
            false => Err(attrs::unknown(member, name)),
        };
    };
    let pairs = instance.template.fields.iter().zip(&instance.values);
    match pairs.into_iter().find(|(field, _)| field.name == name) {
        Some((field, value)) => Ok((field, *value)),
        None => Err(attrs::unknown(instance.template, name)),
    }
}
