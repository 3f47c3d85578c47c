//! Extensible enumerations: members of programs, backends and plugins.
//! These functions work in every state of the library, also before dtl_init and after dtl_finalize.
//! They start nothing. They work in a forked child too, unless another thread was adding a member
//! at the moment of the fork.
//! dtl: header(dtl_select.h)

use crate::abi::enums::*;
use crate::abi::status::dtl_status_t;
use crate::abi::word::dtl_enum_word_t;
use crate::error::{Result, fail};
use crate::ffi::args::{self, Out};
use crate::ffi::guard::{Locks, always};
use crate::from_c::blank;
use crate::runtime::enums::attrs::{Attr, FIELD_LIMIT, Value, bits_of, check_count};
use crate::runtime::enums::{self, json, schedule};
use std::ffi::{CStr, c_char};

/// Creates an enumeration.
///
/// @param name   1 to 127 letters, digits and '_', not beginning with a digit. Copied. ('.' is not
///               allowed: in JSON it separates enumeration and member.)
/// @param flags  DTL_ENUM_WITH_UNDEFINED or 0.
/// @param out    Its number, at least 256, valid until the process ends. Numbers depend on the
///               order of creation, so look enumerations up by name.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken; dtl_enum_find returns its number.
///         DTL_ERROR_INVALID_ARGUMENT: `name` or `flags` is not allowed.
///         DTL_ERROR_LIMIT: 256 enumerations were created in this process. Threads: any.
/// dtl:flags flags(DTL_ENUM_WITH_UNDEFINED)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_create(
    name: *const c_char,
    flags: u64,
    out: *mut dtl_enum_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, |name| enums::create(name, flags)) }
}

/// Finds an enumeration by name, a built-in one ("Schedule") or another.
///
/// @return DTL_ERROR_NOT_FOUND: there is no such name. The text lists the existing ones.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_find(name: *const c_char, out: *mut dtl_enum_t) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, enums::find) }
}

/// Adds a member to an enumeration.
///
/// It is equivalent to a built-in member: a backend with memory of a registered kind, for example,
/// receives its word in dtl_memory_vtable_t.alloc. It exists until the process ends, across
/// dtl_finalize. A library that may be loaded twice uses dtl_enum_from_name if the name exists. Its
/// value is the lowest unused one that is at least the count of members + 1, so it depends on
/// earlier registrations. For words in files or other processes use dtl_enum_register_value or
/// names.
///
/// @param enumeration  DTL_ENUM_..., or a number from dtl_enum_create or dtl_enum_find.
/// @param name         1 to 127 letters, digits, '_' and '.', beginning with a letter or '_'.
///                     Copied.
/// @param out          The word of the member.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken.
///         DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration, or `name` is not allowed.
///         DTL_ERROR_LIMIT: no value above the count is free (at most 65534).
/// Threads: any. Equivalent: DaCe's register of an extensible_enum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_register(
    enumeration: dtl_enum_t,
    name: *const c_char,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, |name| enums::register(enumeration, name, None, &[])) }
}

/// Adds a member with a given value, so that its word is DTL_EV_WORD(enumeration, value) in every
/// process.
///
/// @param enumeration  DTL_ENUM_..., or a number from dtl_enum_create or dtl_enum_find.
/// @param name         1 to 127 letters, digits, '_' and '.', beginning with a letter or '_'.
///                     Copied.
/// @param value        1 to 65534; in a built-in enumeration at least 256.
/// @param out          The word of the member.
/// @return DTL_ERROR_ALREADY_EXISTS: the name or the value is taken. The text names the member that
///         has it.
///         DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration, or `name` or `value` is not
///         allowed. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_register_value(
    enumeration: dtl_enum_t,
    name: *const c_char,
    value: u32,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, |name| enums::register(enumeration, name, Some(value), &[])) }
}

/// Adds a template: a member whose instances have attributes, such as "a kernel of block size 128".
///
/// Its value is chosen as by dtl_enum_register.
///
/// @param enumeration  DTL_ENUM_..., or a number from dtl_enum_create or dtl_enum_find.
/// @param name         1 to 127 letters, digits, '_' and '.', beginning with a letter or '_'.
///                     Copied.
/// @param fields       The `n` fields, copied. An entry from dtl_attr_i64 and similar functions is
///                     a field with that default; one from dtl_attr_required is a field without a
///                     default.
/// @param n            1 to 16.
/// @param out          The word of the template. dtl_ev_match matches it with each of its
///                     instances.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken.
///         DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration; `name` is not allowed; `n` is
///         0; two fields have one name; or a field has an invalid name, kind, flags or default (a
///         word that does not exist).
///         DTL_ERROR_LIMIT: `n` is above 16, or no value above the count is free (at most 65534).
///         DTL_ERROR_NULL_POINTER: `fields`, or a name or text in it, is NULL. Threads: any.
/// dtl:fields len(n)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_register_template(
    enumeration: dtl_enum_t,
    name: *const c_char,
    fields: *const dtl_attr_t,
    n: u64,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    let register = |name: &str| {
        let mut room = [NO_ATTR; FIELD_LIMIT];
        // SAFETY: the caller's contract: `n` fields.
        let given = unsafe { take_attrs(fields, n, "fields", &mut room) }?;
        enums::register_template(enumeration, name, given)
    };
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, register) }
}

/// Finds a member by name. The name of a template finds the template.
///
/// @return DTL_ERROR_NOT_FOUND: there is no such member (the plugin that adds it may not be
///         loaded). DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_from_name(
    enumeration: dtl_enum_t,
    name: *const c_char,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, |name| enums::from_name(enumeration, name)) }
}

/// Finds a member by value. The result is DTL_EV_WORD(enumeration, value) if it is registered.
///
/// @return DTL_ERROR_NOT_FOUND: there is no such member (the plugin that adds it may not be
///         loaded). DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_from_value(
    enumeration: dtl_enum_t,
    value: u32,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::from_value(enumeration, value)))
}

/// Returns the number of members of an enumeration, including templates and Undefined, without
/// instances.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_count(
    enumeration: dtl_enum_t,
    out_count: *mut u64,
) -> dtl_status_t {
    always(Locks::Some, || {
        Out::new(out_count, "out_count")?.put(enums::count(enumeration).map(|count| count as u64))
    })
}

/// Returns the member with an index, in the order of registration. New members are only appended,
/// so a loop misses none.
///
/// @param index  0 to the count - 1.
/// @return DTL_ERROR_OUT_OF_BOUNDS: there is no such index.
///         DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_at(
    enumeration: dtl_enum_t,
    index: u64,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::at(enumeration, index)))
}

/// Returns the template Undefined of an enumeration, for example DTL_MEMORY_UNDEFINED for
/// DTL_ENUM_MEMORY. The field "text" of its instances holds the text that a tolerant
/// dtl_ev_from_json could not resolve.
///
/// @return DTL_ERROR_NOT_FOUND: the enumeration was created without DTL_ENUM_WITH_UNDEFINED.
///         DTL_ERROR_INVALID_ARGUMENT: there is no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_undefined(
    enumeration: dtl_enum_t,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::undefined(enumeration)))
}

/// Returns the word of a template's instance with the given attributes.
///
/// Instances are interned: equal attributes of one template give the same word, regardless of their
/// order, the thread, and whether a default is given or omitted. Instances of different templates
/// never share a word. So compare words instead of attributes. Doubles are compared by their bits,
/// with -0 as 0 and every NaN as the same one. An instance exists until the process ends, so use
/// attributes with few different values. A lookup of an existing instance takes no lock and
/// allocates nothing (about 100 ns).
///
/// @param tmpl   The word of the template.
/// @param attrs  The `n` attributes, from dtl_attr_i64 and similar functions; copied. Omitted
///               fields take their defaults.
/// @param n      0 to 16.
/// @param out    The instance. Its upper 32 bits are those of the template.
/// @return DTL_ERROR_TYPE: `tmpl` is not a template, or an attribute has another kind than its
///         field. DTL_ERROR_NOT_FOUND: there is no such field.
///         DTL_ERROR_INVALID_ARGUMENT: a field without a default is missing, an attribute is given
///         twice or has flags, or a word does not exist.
///         DTL_ERROR_NULL_POINTER: `attrs`, or a name or text in it, is NULL.
///         DTL_ERROR_LIMIT: `n` is above 16; 65536 instances were created in this process; or this
///         one is longer than 4000 bytes as JSON, or nests instances more than 16 deep.
/// Threads: any.
/// dtl:attrs len(n) opt(n==0)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_instance(
    tmpl: dtl_enum_word_t,
    attrs: *const dtl_attr_t,
    n: u64,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::None, || {
        let out = Out::new(out, "out")?;
        let mut room = [NO_ATTR; FIELD_LIMIT];
        // SAFETY: the caller's contract: `n` attributes.
        let given = unsafe { take_attrs(attrs, n, "attrs", &mut room) }?;
        out.put(enums::instance(tmpl, given))
    })
}

/// Returns an attribute of an instance.
///
/// @param name      The name of the field.
/// @param out_attr  Receives the whole attribute. Its texts are valid until the process ends.
/// @return DTL_ERROR_NOT_FOUND: there is no such field; a plain member has none.
///         DTL_ERROR_TYPE: `word` is the template itself.
///         DTL_ERROR_INVALID_ARGUMENT: `word` does not exist. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_get(
    word: dtl_enum_word_t,
    name: *const c_char,
    out_attr: *mut dtl_attr_t,
) -> dtl_status_t {
    always(Locks::None, || {
        let out = Out::new(out_attr, "out_attr")?;
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let name = unsafe { args::text(name, "name") }?;
        out.put(enums::get(word, name).map(give_attr))
    })
}

/// Returns the name of a member; for an instance, the name of its template.
///
/// @param out_name  Receives the text, which is valid until the process ends. Do not free it.
/// @return DTL_ERROR_INVALID_ARGUMENT: `word` does not exist. Threads: any.
/// dtl:out_name lives(forever)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_name(
    word: dtl_enum_word_t,
    out_name: *mut *const c_char,
) -> dtl_status_t {
    always(Locks::None, || Out::new(out_name, "out_name")?.put(enums::name(word).map(CStr::as_ptr)))
}

/// Writes a word as JSON. dtl_ev_from_json reads it back into the same word.
///
///   plain member   "Sequential"
///   instance       {"type":"Schedule.MyKernel","block_size":128,"device":"Memory.Host"}
///   template       {"type":"Schedule.MyKernel"}
///   of Undefined   the text that it holds, as it was read, without blanks between the parts of an
///                  object
///
/// An instance lists all fields in the order of the template. Doubles that are not finite are
/// "NaN", "Infinity" and "-Infinity". (In JavaScript, integers above 2^53 lose digits.)
///
/// @param buf      Receives the text with its NUL, at most 4000 bytes. NULL with cap 0 queries the
///                 length only.
/// @param cap      Size of `buf` in bytes.
/// @param out_len  Receives the length without the NUL, even if `cap` is too small; may be NULL.
/// @return DTL_ERROR_INVALID_ARGUMENT: `word` does not exist.
///         DTL_ERROR_BUFFER_TOO_SMALL: `cap` is too small. Only *out_len was written. Threads: any.
/// dtl:buf out len(cap) opt(cap==0)
/// dtl:out_len opt
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_to_json(
    word: dtl_enum_word_t,
    buf: *mut c_char,
    cap: u64,
    out_len: *mut u64,
) -> dtl_status_t {
    // SAFETY: the caller's contract.
    always(Locks::Some, || unsafe { args::put_text(&json::to_text(word)?, buf, cap, out_len) })
}

/// Reads a word from JSON in one of the forms of dtl_ev_to_json. If an object has a key twice, the
/// last one counts.
///
/// @param enumeration  The enumeration of the word.
/// @param text         JSON, at most 4096 bytes.
/// @param flags        DTL_EV_TOLERANT or 0. With DTL_EV_TOLERANT, an unknown name (for example of
///                     a plugin that is not loaded) becomes an instance of Undefined. It holds the
///                     text, matches Undefined, and writes the text back (numbers digit by digit,
///                     exponents as e+5, without blanks in between). If a member of that name is
///                     registered later, the written text parses as that member.
/// @param out          The word.
/// @return DTL_ERROR_NOT_FOUND: there is no such member or field; with DTL_EV_TOLERANT, the
///         enumeration also has no Undefined.
///         DTL_ERROR_TYPE: a value has another kind than its field.
///         DTL_ERROR_INVALID_ARGUMENT: `text` is not JSON (the error text has the position), "type"
///         names another enumeration, a field without a default is missing, or `flags` is not
///         allowed.
///         DTL_ERROR_LIMIT: 65536 instances were created in this process; or this one is longer
///         than 4000 bytes as JSON, or nests instances more than 16 deep. Threads: any.
/// dtl:flags flags(DTL_EV_TOLERANT)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_from_json(
    enumeration: dtl_enum_t,
    text: *const c_char,
    flags: u64,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller's contract: NULL or a NUL-terminated text.
        let text = unsafe { args::text(text, "text") }?;
        out.put(json::from_text(enumeration, text, flags))
    })
}

/// Sets the defaults of a schedule: the kind of memory that is allocated inside it, and the
/// schedule of its inner scopes.
///
/// They can be set once; setting the same defaults again succeeds. Built-in schedules have theirs:
/// memory kinds Host, Host and Device, and Sequential as the inner schedule.
///
/// @param schedule             A schedule or a template of schedules, not an instance.
/// @param default_memory_kind  A member of DTL_ENUM_MEMORY.
/// @param inner_schedule       A member of DTL_ENUM_SCHEDULE.
/// @return DTL_ERROR_ALREADY_EXISTS: the schedule has other defaults.
///         DTL_ERROR_TYPE: a word belongs to another enumeration.
///         DTL_ERROR_INVALID_ARGUMENT: `schedule` is an instance, or a word does not exist.
/// Threads: any. Equivalent: DaCe's SCOPEDEFAULT_STORAGE and SCOPEDEFAULT_SCHEDULE.
/// dtl:schedule values(DTL_SCHEDULE_)
/// dtl:default_memory_kind values(DTL_MEMORY_)
/// dtl:inner_schedule values(DTL_SCHEDULE_)
#[unsafe(no_mangle)]
pub extern "C" fn dtl_schedule_set_defaults(
    schedule: dtl_enum_word_t,
    default_memory_kind: dtl_enum_word_t,
    inner_schedule: dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || schedule::set_defaults(schedule, default_memory_kind, inner_schedule))
}

/// Returns the defaults of a schedule; for an instance, those of its template.
///
/// @param schedule            A schedule, a template of schedules, or an instance.
/// @param out_memory_kind     Receives the kind of memory.
/// @param out_inner_schedule  Receives the inner schedule.
/// @return DTL_ERROR_NOT_FOUND: dtl_schedule_set_defaults was not called for it.
///         DTL_ERROR_TYPE: `schedule` is not a schedule.
///         DTL_ERROR_INVALID_ARGUMENT: `schedule` does not exist. Threads: any.
/// dtl:schedule values(DTL_SCHEDULE_)
/// dtl:out_memory_kind values(DTL_MEMORY_)
/// dtl:out_inner_schedule values(DTL_SCHEDULE_)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_schedule_defaults(
    schedule: dtl_enum_word_t,
    out_memory_kind: *mut dtl_enum_word_t,
    out_inner_schedule: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || {
        let kind = Out::new(out_memory_kind, "out_memory_kind")?;
        let inner = Out::new(out_inner_schedule, "out_inner_schedule")?;
        args::put_both((kind, inner), schedule::defaults(schedule))
    })
}

/// Runs an entry that writes the result of `body`, which receives a name.
///
/// # Safety
/// `name` is null or a NUL-terminated text that does not change during the call.
unsafe fn by_name<T>(
    name: *const c_char,
    out: *mut T,
    body: impl FnOnce(&str) -> Result<T>,
) -> dtl_status_t {
    always(Locks::Some, || {
        let out = Out::new(out, "out")?;
        // SAFETY: the caller guarantees that `name` is null or an unchanging NUL-terminated text.
        let name = unsafe { args::text(name, "name") }?;
        out.put(body(name))
    })
}

/// An attribute that is not there.
const NO_ATTR: Attr<'static> = Attr { name: c"", kind: 0, flags: 0, value: Value::Bits(0) };

/// Takes over an array of the caller's, without taking memory.
///
/// # Safety
/// `pointer` is null or has `count` elements, whose names and texts are null or NUL-terminated and
/// stay during `'a`.
unsafe fn take_attrs<'a, 'r>(
    pointer: *const dtl_attr_t,
    count: u64,
    name: &str,
    room: &'r mut [Attr<'a>; FIELD_LIMIT],
) -> Result<&'r [Attr<'a>]> {
    check_count(count)?;
    let count = count as usize;
    for (index, place) in room.iter_mut().take(count).enumerate() {
        // SAFETY: null, misaligned or in the array, by the contract. Null ends the loop at index 0.
        let given = unsafe { args::read(pointer.wrapping_add(index), name) }?;
        // SAFETY: by the contract.
        *place = unsafe { take_attr(&given) }?;
    }
    Ok(room.get(..count).unwrap_or_default())
}

/// # Safety
/// Names and texts are null or NUL-terminated and stay during `'a`.
unsafe fn take_attr<'a>(given: &dtl_attr_t) -> Result<Attr<'a>> {
    // SAFETY: by the contract.
    let name = unsafe { args::c_text(given.name, || "an attribute's name".into()) }?;
    if given.reserved != 0 {
        return fail!(DTL_ERROR_INVALID_ARGUMENT, "attribute {name:?}: reserved is not 0");
    }
    let has_value = given.flags & DTL_ATTR_REQUIRED == 0;
    let value = match given.kind {
        DTL_ATTR_BOOL => Value::Bits(u64::from(given.integer != 0)),
        DTL_ATTR_F64 => Value::Bits(bits_of(given.real)),
        DTL_ATTR_STR if has_value => {
            let what = || name.to_string_lossy();
            // SAFETY: by the contract.
            Value::Text(unsafe { args::c_text(given.text, what) }?)
        }
        _ => Value::Bits(given.integer),
    };
    Ok(Attr { name, kind: given.kind, flags: given.flags, value })
}

fn give_attr((field, value): (&enums::attrs::Field, Value<'static>)) -> dtl_attr_t {
    let mut attr = dtl_attr_t { name: field.c_name.as_ptr(), kind: field.kind, ..blank() };
    match value {
        Value::Text(text) => attr.text = text.as_ptr(),
        Value::Bits(bits) if field.kind == DTL_ATTR_F64 => attr.real = f64::from_bits(bits),
        Value::Bits(bits) => attr.integer = bits,
    }
    attr
}
