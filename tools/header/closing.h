
/* -----------------------------------------------------------------------------------------------
 * Enumeration words and attributes, without a call. In C++ what is about words is constexpr.
 * -------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
#define DTL_CONSTEXPR constexpr
#else
#define DTL_CONSTEXPR
#endif

/// The word of the member with this value, as a constant: for a `case`, say.
#define DTL_EV_WORD(enumeration, value) ((uint64_t)(enumeration) << 48 | (uint64_t)(value) << 32)

/// The enumeration that a word belongs to.
static inline DTL_CONSTEXPR dtl_enum_t dtl_ev_enum(dtl_enum_word_t word)
{
    return (dtl_enum_t)(word >> 48);
}

/// The value of a member, which is a part of its word; of an instance, its template's. Of built-in members, too.
static inline DTL_CONSTEXPR uint32_t dtl_ev_value(dtl_enum_word_t word)
{
    return (uint32_t)(word >> 32) & 0xFFFFu;
}

/// The template of an instance; anything else is its own. What dtl_ev_match holds to be equal has the same one, so hash by
/// this, and `switch` over it. (Match is not transitive: two instances of a template do not match each other.)
static inline DTL_CONSTEXPR dtl_enum_word_t dtl_ev_template(dtl_enum_word_t word)
{
    return word & UINT64_C(0xFFFFFFFF00000000);
}

/// 1 if the words are equal or one is the template of the other; else 0.
static inline DTL_CONSTEXPR int32_t dtl_ev_match(dtl_enum_word_t a, dtl_enum_word_t b)
{
    return (a == b || a == dtl_ev_template(b) || b == dtl_ev_template(a)) ? 1 : 0;
}

/// A field without a default, for dtl_enum_register_template.
static inline dtl_attr_t dtl_attr_required(const char *name, uint32_t kind)
{
    const dtl_attr_t field = {name, kind, DTL_ATTR_REQUIRED, 0, 0.0, NULL, 0};
    return field;
}

/// A field with its default, or an attribute: 0 or 1.
static inline dtl_attr_t dtl_attr_bool(const char *name, int32_t value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_BOOL, 0, value != 0 ? 1u : 0u, 0.0, NULL, 0};
    return attr;
}

/// A field with its default, or an attribute: a signed integer.
static inline dtl_attr_t dtl_attr_i64(const char *name, int64_t value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_I64, 0, (uint64_t)value, 0.0, NULL, 0};
    return attr;
}

/// A field with its default, or an attribute: an unsigned integer.
static inline dtl_attr_t dtl_attr_u64(const char *name, uint64_t value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_U64, 0, value, 0.0, NULL, 0};
    return attr;
}

/// A field with its default, or an attribute: a double.
static inline dtl_attr_t dtl_attr_f64(const char *name, double value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_F64, 0, 0, value, NULL, 0};
    return attr;
}

/// A field with its default, or an attribute: a text.
static inline dtl_attr_t dtl_attr_str(const char *name, const char *value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_STR, 0, 0, 0.0, value, 0};
    return attr;
}

/// A field with its default, or an attribute: a word of any enumeration.
static inline dtl_attr_t dtl_attr_enum(const char *name, dtl_enum_word_t value)
{
    const dtl_attr_t attr = {name, DTL_ATTR_ENUM, 0, value, 0.0, NULL, 0};
    return attr;
}

#ifdef __cplusplus
} /* extern "C" */

/// Handles of one type compare with == and != in C++.
#define DTL_HANDLE_COMPARISON_(type)                                                              \
    constexpr bool operator==(type a, type b) noexcept { return a.id == b.id; }                   \
    constexpr bool operator!=(type a, type b) noexcept { return a.id != b.id; }
@HANDLE_COMPARISONS@#undef DTL_HANDLE_COMPARISON_
#endif

/* -----------------------------------------------------------------------------------------------
 * What to do with a status.
 * -------------------------------------------------------------------------------------------- */

#include <stdio.h>
#include <stdlib.h>

/// Calls; if that fails, prints what, why and where to standard error and aborts the program.
#define DTL_CHECK(call)                                                                           \
    do {                                                                                          \
        const dtl_status_t dtl_check_status_ = (call);                                            \
        if (dtl_check_status_ != DTL_SUCCESS) {                                                   \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call,                    \
                    dtl_last_error(), dtl_status_name(dtl_check_status_));                        \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

/// Calls; if that fails, returns the status from the calling function.
#define DTL_TRY(call)                                                                             \
    do {                                                                                          \
        const dtl_status_t dtl_try_status_ = (call);                                              \
        if (dtl_try_status_ != DTL_SUCCESS) {                                                     \
            return dtl_try_status_;                                                               \
        }                                                                                         \
    } while (0)

/// Calls and drops the status on purpose (when cleaning up, say). A cast to void is not enough for gcc.
#define DTL_IGNORE(call)                                                                          \
    do {                                                                                          \
        const dtl_status_t dtl_ignored_status_ = (call);                                          \
        (void)dtl_ignored_status_;                                                                \
    } while (0)

#endif /* DTL_DTL_H */
