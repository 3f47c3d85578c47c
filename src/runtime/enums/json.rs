//! Conversion of enumeration words to and from JSON, for example "Sequential" or
//! {"type":"Schedule.MyAccelerator_Kernel","block_size":128}. A tolerant parse (DTL_EV_TOLERANT)
//! preserves unknown names as strings. The name of a word that is nested in another word is
//! prefixed with the name of its enumeration: "Memory.Host".

use super::attrs::{
    Attr, FIELD_LIMIT, Value as Attribute, bits_of, check_count, kind_name, unknown,
};
use super::{Enumeration, Member, enumeration, existing, instance, instances, undefined};
use crate::abi::enums::*;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail, failure};
use crate::runtime::check_flags;
use serde_json::{Map, Value};
use std::ffi::CString;

/// Converts a word to JSON.
pub fn to_text(word: dtl_enum_word_t) -> Result<String> {
    Ok(to_value(word, false)?.to_string())
}

fn to_value(word: dtl_enum_word_t, is_inside: bool) -> Result<Value> {
    let member = existing(word)?;
    let Some(instance) = instances::find(word) else {
        return Ok(match member.fields.is_empty() {
            true => named(member.of, member.name, is_inside),
            false => Value::Object(typed(member)),
        });
    };
    match instance.values.first() {
        Some(Attribute::Text(text)) if member.is_undefined() => {
            let text = text.to_string_lossy();
            Ok(object_of(member.of, &text).unwrap_or_else(|| named(member.of, &text, is_inside)))
        }
        values => object(member, values.map_or(&[], |_| &instance.values)),
    }
}

/// Returns the JSON object that a tolerant parse (DTL_EV_TOLERANT) has preserved as `text`, if the
/// object serializes to exactly this text.
fn object_of(of: &str, text: &str) -> Option<Value> {
    let object: Value = serde_json::from_str(text).ok()?;
    let name = object.get("type")?.as_str()?;
    let (is_of_it, again) =
        (name.strip_prefix(of).is_some_and(|rest| rest.starts_with('.')), object.to_string());
    (is_of_it && again == text).then_some(object)
}

fn named(of: &str, name: &str, is_inside: bool) -> Value {
    Value::String(if is_inside { format!("{of}.{name}") } else { name.to_owned() })
}

/// Returns a JSON object that contains only the type: `{"type":"Schedule.MyAccelerator_Kernel"}`.
fn typed(member: &Member) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), Value::String(member.full_name()))])
}

fn object(template: &Member, values: &[Attribute]) -> Result<Value> {
    let mut map = typed(template);
    for (field, value) in template.fields.iter().zip(values) {
        let value = match (field.kind, value) {
            (_, Attribute::Text(text)) => Value::String(text.to_string_lossy().into_owned()),
            (DTL_ATTR_BOOL, Attribute::Bits(bits)) => Value::Bool(*bits != 0),
            (DTL_ATTR_I64, Attribute::Bits(bits)) => (*bits as i64).into(),
            (DTL_ATTR_F64, Attribute::Bits(bits)) => real(f64::from_bits(*bits)),
            (DTL_ATTR_ENUM, Attribute::Bits(word)) => to_value(*word, true)?,
            (_, Attribute::Bits(bits)) => (*bits).into(),
        };
        map.insert(field.name.to_owned(), value);
    }
    Ok(Value::Object(map))
}

/// Converts a double to JSON; nonfinite values, which JSON lacks, become strings.
fn real(real: f64) -> Value {
    match real {
        _ if real.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ => real.into(),
    }
}

/// Returns the JSON text of an instance of `template` with the attribute values `values`. The text
/// contains all fields.
pub(super) fn of_instance(template: &Member, values: &[Attribute]) -> Result<CString> {
    let text = object(template, values)?.to_string();
    CString::new(text).map_err(|_| failure!(DTL_ERROR_INTERNAL, "JSON with a NUL"))
}

/// Returns the enumeration word that a JSON text denotes. A tolerant parse (DTL_EV_TOLERANT) maps
/// each unknown name to an instance of the predefined enumeration member Undefined.
pub fn from_text(number: dtl_enum_t, text: &str, flags: u64) -> Result<dtl_enum_word_t> {
    check_flags("flags", flags, DTL_EV_TOLERANT, "DTL_EV_TOLERANT")?;
    let enumeration = enumeration(number)?;
    match serde_json::from_str(text) {
        Ok(value) => from_value(enumeration, &value, flags & DTL_EV_TOLERANT != 0),
        Err(error) => fail!(DTL_ERROR_INVALID_ARGUMENT, "not JSON: {error}: {}", shortened(text)),
    }
}

fn from_value(enumeration: &Enumeration, value: &Value, tolerant: bool) -> Result<dtl_enum_word_t> {
    match value {
        Value::String(name) => match enumeration.find(name) {
            Some(member) => Ok(member.word),
            None if tolerant => unknown_text(enumeration, name),
            None => Err(enumeration.no_member(name)),
        },
        Value::Object(map) => from_object(enumeration, map, tolerant),
        other => fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "{}: write a member as \"Name\" or {{\"type\":\"{}.Name\", …}}, not as {}",
            enumeration.name,
            enumeration.name,
            shortened(&other.to_string())
        ),
    }
}

fn unknown_text(enumeration: &Enumeration, text: &str) -> Result<dtl_enum_word_t> {
    let owned = terminated("text", text)?;
    let attr = Attr { name: c"text", kind: DTL_ATTR_STR, flags: 0, value: Attribute::Text(&owned) };
    instance(undefined(enumeration.number)?, &[attr])
}

fn from_object(
    enumeration: &Enumeration,
    map: &Map<String, Value>,
    tolerant: bool,
) -> Result<dtl_enum_word_t> {
    let of = enumeration.name;
    let given = map.get("type").and_then(Value::as_str);
    let Some(name) = given.and_then(|given| given.strip_prefix(of)?.strip_prefix('.')) else {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "\"type\" is {}: use \"{of}.\" and the name of a member",
            given.map_or_else(|| "not there, or no text".into(), |given| format!("\"{given}\""))
        );
    };
    let member = match enumeration.find(name) {
        Some(member) => member,
        None if tolerant => {
            return unknown_text(enumeration, &Value::Object(map.clone()).to_string());
        }
        None => return Err(enumeration.no_member(name)),
    };
    if map.len() == 1 {
        return Ok(member.word);
    }
    check_count(map.len() as u64 - 1)?;
    let mut owned = Vec::with_capacity(FIELD_LIMIT);
    for (name, value) in map.iter().filter(|(name, _)| *name != "type") {
        let Some(field) = member.fields.iter().find(|field| field.name == name) else {
            return Err(unknown(member, name));
        };
        owned.push((field.c_name, field.kind, attribute(field.name, field.kind, value, tolerant)?));
    }
    let attrs: Vec<Attr> = owned
        .iter()
        .map(|(name, kind, value)| Attr { name, kind: *kind, flags: 0, value: value.borrowed() })
        .collect();
    instance(member.word, &attrs)
}

/// Attribute value that was parsed from JSON.
enum Owned {
    Bits(u64),
    Text(CString),
}

impl Owned {
    fn borrowed(&self) -> Attribute<'_> {
        match self {
            Owned::Bits(bits) => Attribute::Bits(*bits),
            Owned::Text(text) => Attribute::Text(text),
        }
    }
}

fn attribute(name: &str, kind: u32, value: &Value, tolerant: bool) -> Result<Owned> {
    let bits = match (kind, value) {
        (DTL_ATTR_STR, Value::String(text)) => return terminated(name, text).map(Owned::Text),
        (DTL_ATTR_ENUM, value) => {
            let word = inner(value, tolerant).map_err(|error| error.within(name))?;
            return Ok(Owned::Bits(word));
        }
        (DTL_ATTR_BOOL, Value::Bool(value)) => Some(u64::from(*value)),
        (DTL_ATTR_I64, value) => value.as_i64().map(|value| value as u64),
        (DTL_ATTR_U64, value) => value.as_u64(),
        (DTL_ATTR_F64, Value::String(text)) => match text.as_str() {
            "NaN" => Some(bits_of(f64::NAN)),
            "Infinity" => Some(bits_of(f64::INFINITY)),
            "-Infinity" => Some(bits_of(f64::NEG_INFINITY)),
            _ => None,
        },
        (DTL_ATTR_F64, value) => value.as_f64().map(bits_of),
        _ => None,
    };
    bits.map(Owned::Bits).ok_or_else(|| {
        failure!(
            DTL_ERROR_TYPE,
            "field \"{name}\" is {}, which {} is not",
            kind_name(kind),
            shortened(&value.to_string())
        )
    })
}

/// Parses an enumeration word that is nested in another word: "Memory.Host", or an object whose
/// type begins with the name of the enumeration.
fn inner(value: &Value, tolerant: bool) -> Result<dtl_enum_word_t> {
    let full = value.as_str().or_else(|| value.get("type")?.as_str()).unwrap_or_default();
    let Some((of, name)) = full.split_once('.') else {
        return fail!(
            DTL_ERROR_TYPE,
            "{}: a word of an enumeration is \"Enumeration.Name\" or \
             {{\"type\":\"Enumeration.Name\", …}}",
            shortened(&value.to_string())
        );
    };
    let enumeration = enumeration(super::find(of)?)?;
    match value {
        Value::String(_) => from_value(enumeration, &Value::String(name.to_owned()), tolerant),
        _ => from_value(enumeration, value, tolerant),
    }
}

fn terminated(name: &str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| failure!(DTL_ERROR_INVALID_ARGUMENT, "\"{name}\" has a NUL in its text"))
}

/// Returns the first `MOST` characters of a string, for error messages.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some(_) => text.chars().take(MOST).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
