//! Fields of templates (enumeration members with parameters) and attributes of instances: checks,
//! and conversion to a canonical form in which equal values are identical.

use super::{Member, check_name, existing, instances, kept};
use crate::abi::enums::*;
use crate::error::{Error, Result, fail, failure};
use std::ffi::CStr;

/// Maximum number of fields of a template.
pub const FIELD_LIMIT: usize = 16;

/// Canonical value of an attribute. Values of all kinds except strings are stored as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Value of any kind except STR. BOOL is stored as 0 or 1, I64 and F64 as their bit patterns,
    /// U64 and ENUM unchanged.
    Bits(u64),
    /// Value of kind STR.
    Text(&'a CStr),
}

/// Attribute of an instance, or field of a new template, as the caller passed it: `kind` and
/// `flags` are unchecked.
#[derive(Debug, Clone, Copy)]
pub struct Attr<'a> {
    /// Name of the field. The name may be invalid UTF-8, as may a string in `value`. An invalid
    /// name matches no field.
    pub name: &'a CStr,
    /// DTL_ATTR_ constant.
    pub kind: u32,
    /// DTL_ATTR_REQUIRED or 0.
    pub flags: u64,
    /// Value of the attribute, or default value of the field. The type of the value is `kind`.
    pub value: Value<'a>,
}

/// Field of a template.
pub struct Field {
    /// Name of the field as a C string.
    pub c_name: &'static CStr,
    pub(super) name: &'static str,
    /// DTL_ATTR_ constant.
    pub kind: u32,
    default: Option<Value<'static>>,
}

/// Attribute values of an instance, in the order of the fields.
pub(super) type Row<'a> = [Value<'a>; FIELD_LIMIT];

/// Returns the canonical bits of a double: both zeros have the same bits, and all NaNs have the
/// same bits.
pub fn bits_of(real: f64) -> u64 {
    match real {
        0.0 => 0,
        _ if real.is_nan() => f64::NAN.to_bits(),
        _ => real.to_bits(),
    }
}

/// Field of the predefined enumeration member Undefined. A tolerant parse (DTL_EV_TOLERANT) stores
/// a name that it does not recognize in this field, as a string.
pub(super) const UNDEFINED: Attr<'static> =
    Attr { name: c"text", kind: DTL_ATTR_STR, flags: DTL_ATTR_REQUIRED, value: Value::Bits(0) };

/// Checks the fields of a new template.
pub(super) fn check_fields(given: &[Attr]) -> Result<()> {
    if given.is_empty() {
        return fail!(
            DTL_ERROR_INVALID_ARGUMENT,
            "a template of 0 fields: register a plain member with dtl_enum_register"
        );
    }
    for (index, attr) in given.iter().enumerate() {
        let Attr { kind, flags, .. } = attr;
        let name = utf8(attr.name)?;
        check_name(name)?;
        if name == "type" || given.iter().take(index).any(|before| before.name == attr.name) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "field \"{name}\": fields have different names, and none is \"type\" (JSON needs \
                 that)"
            );
        }
        if flags & !DTL_ATTR_REQUIRED != 0 {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "flags {flags:#x} of field \"{name}\": use DTL_ATTR_REQUIRED or 0"
            );
        }
        if !(DTL_ATTR_BOOL..=DTL_ATTR_ENUM).contains(kind) {
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "kind {kind} of field \"{name}\": use DTL_ATTR_BOOL to DTL_ATTR_ENUM"
            );
        }
        if *flags == 0 {
            if let Value::Text(text) = checked(attr)? {
                utf8(text)?;
            }
        }
    }
    Ok(())
}

/// Converts checked attributes to the fields of a new template. The strings of the fields are never
/// freed.
pub(super) fn fields(given: &[Attr]) -> Result<Vec<Field>> {
    let made = given.iter().map(|attr| {
        let (c_name, name) = kept(utf8(attr.name)?)?;
        let default = if attr.flags == 0 { Some(stored(attr.value)?) } else { None };
        Ok(Field { c_name, name, kind: attr.kind, default })
    });
    made.collect()
}

/// Fails if the number of fields or attributes exceeds the limit.
pub fn check_count(count: u64) -> Result<()> {
    if count > FIELD_LIMIT as u64 {
        return fail!(DTL_ERROR_LIMIT, "{count} fields: a template has at most {FIELD_LIMIT}");
    }
    Ok(())
}

/// Returns the value of an attribute. Fails if the value is an enumeration word that was never
/// assigned to a member or an instance.
fn checked<'a>(attr: &Attr<'a>) -> Result<Value<'a>> {
    if let (DTL_ATTR_ENUM, Value::Bits(word)) = (attr.kind, attr.value) {
        existing(word).map_err(|error| error.within(&attr.name.to_string_lossy()))?;
    }
    Ok(attr.value)
}

/// Copies a value into memory that is never freed.
pub(super) fn stored(value: Value) -> Result<Value<'static>> {
    Ok(match value {
        Value::Bits(bits) => Value::Bits(bits),
        Value::Text(text) => Value::Text(kept(utf8(text)?)?.0),
    })
}

pub(super) fn utf8(text: &CStr) -> Result<&str> {
    text.to_str().map_err(|error| {
        failure!(
            DTL_ERROR_INVALID_ARGUMENT,
            "a name or text of an attribute is not UTF-8 at byte {}: {}",
            error.valid_up_to(),
            text.to_string_lossy()
        )
    })
}

/// Fills `row` with the values of all fields of an instance: the values that the caller passed, and
/// the default values of the other fields.
#[inline]
pub(super) fn complete<'a>(
    template: &'static Member,
    given: &[Attr<'a>],
    row: &mut Row<'a>,
) -> Result<()> {
    let mut there = 0_u32;
    for attr in given {
        let at = template.fields.iter().position(|field| field.c_name == attr.name);
        let found = at.and_then(|at| Some((1 << at, template.fields.get(at)?, row.get_mut(at)?)));
        let Some((bit, field, place)) = found else {
            return Err(unknown(template, &attr.name.to_string_lossy()));
        };
        if field.kind != attr.kind || attr.flags != 0 || there & bit != 0 {
            return Err(refused(template, field, attr, there & bit != 0));
        }
        *place = checked(attr)?;
        there |= bit;
    }
    for (at, (field, place)) in template.fields.iter().zip(row).enumerate() {
        if there & 1 << at == 0 {
            *place = field.default.ok_or_else(|| missing(template, field))?;
        }
    }
    Ok(())
}

/// Creates the error for an attribute that is set or queried although the template has no such
/// field.
#[cold]
pub(super) fn unknown(template: &Member, name: &str) -> Error {
    let names: Vec<&str> = template.fields.iter().map(|field| field.name).collect();
    let of = template.full_name();
    if names.is_empty() {
        return failure!(
            DTL_ERROR_NOT_FOUND,
            "{of} is a plain member: it has no attribute \"{name}\""
        );
    }
    failure!(DTL_ERROR_NOT_FOUND, "{of} has no field \"{name}\"; it has {}", names.join(", "))
}

#[cold]
fn missing(template: &Member, field: &Field) -> Error {
    let (of, name) = (template.full_name(), field.name);
    failure!(DTL_ERROR_INVALID_ARGUMENT, "{of}: field \"{name}\" has no default: give it a value")
}

#[cold]
fn refused(template: &Member, field: &Field, attr: &Attr, twice: bool) -> Error {
    let of = template.full_name();
    let Field { name, kind, .. } = field;
    if *kind != attr.kind {
        let (is, given) = (kind_name(*kind), kind_name(attr.kind));
        return failure!(DTL_ERROR_TYPE, "{of}: field \"{name}\" is {is}, not {given}");
    }
    let what =
        if twice { "is given twice".into() } else { format!("has flags {:#x}: use 0", attr.flags) };
    failure!(DTL_ERROR_INVALID_ARGUMENT, "{of}: attribute \"{name}\" {what}")
}

/// Returns the name of an attribute kind (DTL_ATTR_ constant), for error messages.
pub(super) fn kind_name(kind: u32) -> String {
    match kind {
        DTL_ATTR_BOOL => "BOOL".into(),
        DTL_ATTR_I64 => "I64".into(),
        DTL_ATTR_U64 => "U64".into(),
        DTL_ATTR_F64 => "F64".into(),
        DTL_ATTR_STR => "STR".into(),
        DTL_ATTR_ENUM => "ENUM".into(),
        _ => format!("kind {kind} (which is none)"),
    }
}

/// Returns the nesting depth of instances in these attributes: 0 if no attribute is an instance.
pub(super) fn depth(template: &Member, values: &[Value]) -> u32 {
    let depths =
        template.fields.iter().zip(values).map(|(field, value)| match (field.kind, value) {
            (DTL_ATTR_ENUM, Value::Bits(word)) => {
                instances::find(*word).map_or(0, |inner| inner.depth + 1)
            }
            _ => 0,
        });
    depths.max().unwrap_or(0)
}
