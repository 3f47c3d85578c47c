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

/// Makes an enumeration of the program's own.
///
/// @param name   1 to 127 letters, digits and '_', not a digit first; copied. (No '.': in JSON that
///               stands between enumeration and member.)
/// @param flags  DTL_ENUM_WITH_UNDEFINED, or 0.
/// @param out    its number, at least 256. It stays for ever. Numbers depend on the order of
///               creation: look it up by name.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken; dtl_enum_find gives it.
///         DTL_ERROR_INVALID_ARGUMENT: name or flags.
///         DTL_ERROR_LIMIT: 256 were made in this process' life. Threads: any.
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

/// The number of an enumeration, built-in ("Schedule") or not.
///
/// @return DTL_ERROR_NOT_FOUND: no such name; the text lists what there is. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_find(name: *const c_char, out: *mut dtl_enum_t) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, enums::find) }
}

/// Adds a member to an enumeration. It is then as good as a built-in one: a backend that has memory
/// of a registered kind, say, finds its word in dtl_memory_vtable_t.alloc. It stays for ever, over
/// dtl_finalize too: who may be loaded twice takes what dtl_enum_from_name gives when the name
/// exists. Its value is the lowest unused one that is at least the count of members + 1, so it
/// depends on what was registered before: where words go to files or other processes, use
/// dtl_enum_register_value or names.
///
/// @param enumeration  DTL_ENUM_..., or of dtl_enum_create or dtl_enum_find.
/// @param name         1 to 127 letters, digits, '_' and '.', a letter or '_' first; copied.
/// @param out          the word of the member.
/// @return DTL_ERROR_ALREADY_EXISTS: the name is taken. DTL_ERROR_INVALID_ARGUMENT: enumeration or
///         name.
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

/// Adds a member with a value of the caller's choice: its word is DTL_EV_WORD(enumeration, value)
/// in every process.
///
/// @param value  1 to 65534; in a built-in enumeration at least 256.
/// @param out    the word of the member.
/// @return as dtl_enum_register. DTL_ERROR_ALREADY_EXISTS: name or value is taken; the text names
///         the member that has it. DTL_ERROR_INVALID_ARGUMENT: the value, too. Threads: any.
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

/// Adds a template: a member whose instances have attributes, "a kernel of block size 128". Value
/// as with dtl_enum_register.
///
/// @param fields  `n` of them; copied. An entry of dtl_attr_i64 and its like is a field with that
///                default, one of dtl_attr_required has none.
/// @param n       1 to 16.
/// @param out     the word of the template, which dtl_ev_match holds equal to each of its
///                instances.
/// @return as dtl_enum_register. DTL_ERROR_INVALID_ARGUMENT: a field's name, kind, flags or default
///         (a word that was never given out), a name twice, no fields. DTL_ERROR_LIMIT: more than
///         16. DTL_ERROR_NULL_POINTER: fields, or a name or text in them. Threads: any.
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

/// The member of this name; of a template's name, the template.
///
/// @return DTL_ERROR_NOT_FOUND: no such member (its plugin may not be loaded).
///         DTL_ERROR_INVALID_ARGUMENT: no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_from_name(
    enumeration: dtl_enum_t,
    name: *const c_char,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    // SAFETY: the caller's contract: NULL or a NUL-terminated text.
    unsafe { by_name(name, out, |name| enums::from_name(enumeration, name)) }
}

/// The member of this value: DTL_EV_WORD(enumeration, value) if that is registered.
///
/// @return as dtl_enum_from_name. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_from_value(
    enumeration: dtl_enum_t,
    value: u32,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::from_value(enumeration, value)))
}

/// How many members an enumeration has: templates count, Undefined too, instances do not.
///
/// @return DTL_ERROR_INVALID_ARGUMENT: no such enumeration. Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_count(
    enumeration: dtl_enum_t,
    out_count: *mut u64,
) -> dtl_status_t {
    always(Locks::Some, || {
        Out::new(out_count, "out_count")?.put(enums::count(enumeration).map(|count| count as u64))
    })
}

/// A member by its index, in the order of registration. Members only ever come behind, so a loop
/// misses none.
///
/// @param index  0 to the count - 1.
/// @return DTL_ERROR_OUT_OF_BOUNDS: index. DTL_ERROR_INVALID_ARGUMENT: no such enumeration.
///         Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_at(
    enumeration: dtl_enum_t,
    index: u64,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::at(enumeration, index)))
}

/// The template Undefined of an enumeration: DTL_MEMORY_UNDEFINED of DTL_ENUM_MEMORY. Its instances
/// keep, in field "text", what a tolerant dtl_ev_from_json did not know.
///
/// @return DTL_ERROR_NOT_FOUND: made without DTL_ENUM_WITH_UNDEFINED. DTL_ERROR_INVALID_ARGUMENT:
///         no such enumeration.
/// Threads: any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_enum_undefined(
    enumeration: dtl_enum_t,
    out: *mut dtl_enum_word_t,
) -> dtl_status_t {
    always(Locks::Some, || Out::new(out, "out")?.put(enums::undefined(enumeration)))
}

/// The word for a template with these attributes. Instances are interned: equal attributes of one
/// template give one word, in whatever order, thread and way (a default that is given or left out);
/// those of another template never give it. So words are compared in place of attributes. Doubles
/// are compared by their bits, -0 as 0, all NaN as one. An instance stays for ever, so put into
/// attributes what there are few different ones of. Asking again for one that is there takes no
/// lock and no memory (about 100 ns).
///
/// @param tmpl   the template's word.
/// @param attrs  `n` of them, from dtl_attr_i64 and its like; what is left out takes its default.
///               Copied.
/// @param n      0 to 16.
/// @param out    the instance; its upper 32 bits are the template's.
/// @return DTL_ERROR_TYPE: `tmpl` is no template, or an attribute has another kind than its field.
///         DTL_ERROR_NOT_FOUND: no such field. DTL_ERROR_INVALID_ARGUMENT: a field without a
///         default is missing, an attribute is there twice or has flags, a word was never given
///         out. DTL_ERROR_NULL_POINTER: attrs, or a name or text in them. DTL_ERROR_LIMIT: 65536
///         instances were made in this process' life, or this one is longer than 4000 bytes as
///         JSON, or has instances in instances more than 16 deep. Threads: any.
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

/// An attribute of an instance.
///
/// @param name      the field's name.
/// @param out_attr  receives all of it; its texts live for ever.
/// @return DTL_ERROR_NOT_FOUND: no such field; a plain member has none. DTL_ERROR_TYPE: `word` is
///         the template itself.
///         DTL_ERROR_INVALID_ARGUMENT: the word was never given out. Threads: any.
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

/// The name of a member; of an instance, that of its template.
///
/// @param out_name  receives the text, which stays valid until the process ends; do not free it.
/// @return DTL_ERROR_INVALID_ARGUMENT: the word was never given out. Threads: any.
/// dtl:out_name lives(forever)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dtl_ev_name(
    word: dtl_enum_word_t,
    out_name: *mut *const c_char,
) -> dtl_status_t {
    always(Locks::None, || Out::new(out_name, "out_name")?.put(enums::name(word).map(CStr::as_ptr)))
}

/// A word as JSON, which dtl_ev_from_json reads back into the same word:
///
///   a plain member   "Sequential"
///   an instance
///                {"type":"Schedule.MyAccelerator_Kernel","block_size":128,"device":"Memory.Host"}
///   a template       {"type":"Schedule.MyAccelerator_Kernel"}
///   of Undefined     the text that it keeps, as it was read, without blanks between what is in an
///                    object
///
/// with all fields in the template's order. Doubles that are not finite are "NaN", "Infinity",
/// "-Infinity". (In JavaScript integers above 2^53 lose digits.)
///
/// @param buf      receives the text with NUL; NULL with cap 0 asks for the length. At most 4000
///                 bytes.
/// @param cap      bytes in buf.
/// @param out_len  receives the length without NUL; may be NULL. Also written if the buffer is too
///                 small.
/// @return DTL_ERROR_INVALID_ARGUMENT: the word was never given out. DTL_ERROR_BUFFER_TOO_SMALL:
///         cap. Threads: any.
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

/// The word that a JSON text means; its forms are at dtl_ev_to_json.
///
/// @param enumeration  which one it is of.
/// @param text         JSON, at most 4096 bytes.
/// @param flags        DTL_EV_TOLERANT: an unknown name (of a plugin that is not there) becomes an
///                     instance of Undefined that keeps the text, matches Undefined and writes the
///                     text back (numbers digit by digit, exponents as e+5, without blanks
///                     between). Once there is a member of that name, what is written reads as that
///                     member. Or 0. If an object has a key twice, the last one counts.
/// @param out          the word.
/// @return DTL_ERROR_NOT_FOUND: no such member or field, or tolerant in an enumeration without
///         Undefined.
///         DTL_ERROR_TYPE: a field has another kind. DTL_ERROR_INVALID_ARGUMENT: no JSON (the text
///         gives the position), "type" is of another enumeration, a field without a default is
///         missing, flags. DTL_ERROR_LIMIT: as dtl_ev_instance.
/// Threads: any.
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

/// Says what goes with a schedule: of what kind memory is that is allocated in it, and how what is
/// inside it runs. Once: the same again succeeds. Built-in schedules have theirs: Host, Host and
/// Device memory, and Sequential inside.
///
/// @param schedule  a schedule or template of schedules, no instance.
/// @return DTL_ERROR_ALREADY_EXISTS: it has other defaults. DTL_ERROR_TYPE: a word of another
///         enumeration.
///         DTL_ERROR_INVALID_ARGUMENT: an instance, or never given out. Threads: any.
/// Equivalent: DaCe's SCOPEDEFAULT_STORAGE and SCOPEDEFAULT_SCHEDULE.
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

/// What goes with a schedule; with an instance, what goes with its template.
///
/// @param out_memory_kind     receives the kind of memory.
/// @param out_inner_schedule  receives the schedule inside.
/// @return DTL_ERROR_NOT_FOUND: dtl_schedule_set_defaults was not called for it. DTL_ERROR_TYPE: no
///         schedule.
///         DTL_ERROR_INVALID_ARGUMENT: never given out. Threads: any.
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
