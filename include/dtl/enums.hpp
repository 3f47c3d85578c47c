// Extensible enumerations of the C++ interface: typed words that work in `switch`, and their registration. Part of dtl.hpp.
#ifndef DTL_ENUMS_HPP
#define DTL_ENUMS_HPP

#include "error.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dtl {

/// A field of a template with its default, or an attribute of an instance: BOOL of a bool, I64 and U64 of signed and
/// unsigned integers (nothing is converted: a U64 field wants `4u`), F64 of a float or double, STR of a text (not copied
/// here: it lives until the call is over).
template <class T> dtl_attr_t attr(const char *name, const T &value)
{
    if constexpr (std::is_same_v<T, bool>) {
        return dtl_attr_bool(name, value ? 1 : 0);
    } else if constexpr (std::is_floating_point_v<T>) {
        return dtl_attr_f64(name, static_cast<double>(value));
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
        return dtl_attr_i64(name, value);
    } else if constexpr (std::is_integral_v<T>) {
        return dtl_attr_u64(name, value);
    } else if constexpr (std::is_convertible_v<const T &, const char *>) {
        return dtl_attr_str(name, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        return dtl_attr_str(name, value.c_str());
    } else {
        return dtl_attr_enum(name, value); // of a dtl::ev
    }
}

/// An enumeration, which stays as long as the process.
class enumeration {
  public:
    constexpr explicit enumeration(dtl_enum_t number) noexcept : number_(number) {}

    static enumeration create(const char *name, bool with_undefined = true)
    {
        dtl_enum_t number = 0;
        check(dtl_enum_create(name, with_undefined ? DTL_ENUM_WITH_UNDEFINED : 0, &number));
        return enumeration(number);
    }

    static enumeration find(const char *name)
    {
        dtl_enum_t number = 0;
        check(dtl_enum_find(name, &number));
        return enumeration(number);
    }

    constexpr dtl_enum_t get() const noexcept { return number_; }

    /// A plain member.
    dtl_enum_word_t add(const char *name) const
    {
        return made([&](dtl_enum_word_t *out) { return dtl_enum_register(number_, name, out); });
    }
    /// One whose word is DTL_EV_WORD(number, value) in every process.
    dtl_enum_word_t add(const char *name, uint32_t value) const
    {
        return made([&](dtl_enum_word_t *out) { return dtl_enum_register_value(number_, name, value, out); });
    }
    /// A template: `add("Kernel", {dtl::attr("block_size", 128), dtl_attr_required("streams", DTL_ATTR_U64)})`.
    dtl_enum_word_t add(const char *name, std::initializer_list<dtl_attr_t> fields) const
    {
        return made([&](dtl_enum_word_t *out) {
            return dtl_enum_register_template(number_, name, fields.begin(), fields.size(), out);
        });
    }

    dtl_enum_word_t from_name(const char *name) const
    {
        return made([&](dtl_enum_word_t *out) { return dtl_enum_from_name(number_, name, out); });
    }
    dtl_enum_word_t from_value(uint32_t value) const
    {
        return made([&](dtl_enum_word_t *out) { return dtl_enum_from_value(number_, value, out); });
    }
    /// @param tolerant  what is not known becomes an instance of Undefined, which keeps the text.
    dtl_enum_word_t from_json(const char *text, bool tolerant = false) const
    {
        const uint32_t flags = tolerant ? DTL_EV_TOLERANT : 0;
        return made([&](dtl_enum_word_t *out) { return dtl_ev_from_json(number_, text, flags, out); });
    }
    dtl_enum_word_t undefined() const
    {
        return made([&](dtl_enum_word_t *out) { return dtl_enum_undefined(number_, out); });
    }

    /// The members there are now, in the order of registration.
    std::vector<dtl_enum_word_t> members() const
    {
        uint64_t count = 0;
        check(dtl_enum_count(number_, &count));
        std::vector<dtl_enum_word_t> found;
        for (uint64_t at = 0; at < count; at++) {
            found.push_back(made([&](dtl_enum_word_t *out) { return dtl_enum_at(number_, at, out); }));
        }
        return found;
    }

  private:
    template <class F> static dtl_enum_word_t made(F &&call)
    {
        dtl_enum_word_t word = 0;
        check(call(&word));
        return word;
    }

    dtl_enum_t number_;
};

/// A word of one enumeration: a member, a template, or an instance with attributes. It converts to the word, so it goes
/// wherever C takes one, and into `switch (schedule.tmpl()) { case dtl::schedules::device: … }`.
template <dtl_enum_t Enumeration> class ev {
  public:
    static constexpr enumeration of{Enumeration};

    /// None.
    constexpr ev() noexcept = default;
    constexpr explicit ev(dtl_enum_word_t word) noexcept : word_(word) {}
    /// A word of another enumeration is none of this one.
    template <dtl_enum_t Other> ev(ev<Other>) = delete;

    static ev from_name(const char *name) { return ev(of.from_name(name)); }
    static ev from_json(const char *text, bool tolerant = false) { return ev(of.from_json(text, tolerant)); }
    static ev add(const char *name) { return ev(of.add(name)); }
    static ev add(const char *name, uint32_t value) { return ev(of.add(name, value)); }
    static ev add(const char *name, std::initializer_list<dtl_attr_t> fields) { return ev(of.add(name, fields)); }

    constexpr operator dtl_enum_word_t() const noexcept { return word_; }
    constexpr uint32_t value() const noexcept { return dtl_ev_value(word_); }
    /// The template of an instance; else itself.
    constexpr ev tmpl() const noexcept { return ev(dtl_ev_template(word_)); }
    /// Equal, or one is the template of the other.
    constexpr bool matches(ev other) const noexcept { return dtl_ev_match(word_, other.word_) != 0; }

    std::string_view name() const
    {
        const char *text = nullptr;
        check(dtl_ev_name(word_, &text));
        return text;
    }

    std::string json() const
    {
        return detail::text_of(
            [&](char *buf, uint64_t cap, uint64_t *length) { return dtl_ev_to_json(word_, buf, cap, length); });
    }

    /// The one instance of this template with these attributes; what is left out takes its default.
    ev instance(std::initializer_list<dtl_attr_t> attrs) const
    {
        dtl_enum_word_t word = 0;
        check(dtl_ev_instance(word_, attrs.begin(), attrs.size(), &word));
        return ev(word);
    }

    /// An attribute of an instance: bool, int64_t, uint64_t (U64 and ENUM), double or std::string_view, as its kind is.
    template <class T> T get(const char *name) const
    {
        dtl_attr_t found;
        check(dtl_ev_get(word_, name, &found));
        const auto want = [&](bool is_kind) {
            if (!is_kind) {
                throw error(DTL_ERROR_TYPE, std::string("attribute \"") + name + "\" is of another type");
            }
        };
        if constexpr (std::is_same_v<T, bool>) {
            want(found.kind == DTL_ATTR_BOOL);
            return found.integer != 0;
        } else if constexpr (std::is_same_v<T, int64_t>) {
            want(found.kind == DTL_ATTR_I64);
            return static_cast<int64_t>(found.integer);
        } else if constexpr (std::is_same_v<T, uint64_t>) {
            want(found.kind == DTL_ATTR_U64 || found.kind == DTL_ATTR_ENUM);
            return found.integer;
        } else if constexpr (std::is_same_v<T, double>) {
            want(found.kind == DTL_ATTR_F64);
            return found.real;
        } else {
            static_assert(std::is_same_v<T, std::string_view>, "bool, int64_t, uint64_t, double or std::string_view");
            want(found.kind == DTL_ATTR_STR);
            return found.text;
        }
    }

  private:
    dtl_enum_word_t word_ = 0;
};

namespace detail {
/// Parameter that is a word of one enumeration: typed, or a constant of dtl.h. Words of other enumerations do not compile.
template <dtl_enum_t Enumeration> class word_of {
  public:
    constexpr word_of(ev<Enumeration> word) noexcept : word_(word) {}
    constexpr word_of(dtl_enum_word_t word) noexcept : word_(word) {}
    template <dtl_enum_t Other> word_of(ev<Other>) = delete;
    constexpr operator dtl_enum_word_t() const noexcept { return word_; }

  private:
    dtl_enum_word_t word_;
};
} // namespace detail

using memory_kind = ev<DTL_ENUM_MEMORY>;
using device_kind = ev<DTL_ENUM_DEVICE>;
using schedule = ev<DTL_ENUM_SCHEDULE>;
using language = ev<DTL_ENUM_LANGUAGE>;
using instrumentation = ev<DTL_ENUM_INSTRUMENTATION>;
using operation = ev<DTL_ENUM_OPERATION>;
using feature = ev<DTL_ENUM_FEATURE>;
using data_instrumentation = ev<DTL_ENUM_DATA_INSTRUMENTATION>;

/// Properties of a memory kind (dtl_mem_kind_info_t.properties), which are no kinds: `has(info, memory_property::unified)`.
enum class memory_property : uint64_t {
    host_accessible = DTL_MEMORY_HOST_ACCESSIBLE,
    device_accessible = DTL_MEMORY_DEVICE_ACCESSIBLE,
    unified = DTL_MEMORY_UNIFIED,
    atomics = DTL_MEMORY_ATOMICS,
    pageable = DTL_MEMORY_PAGEABLE,
    thread_safe = DTL_MEMORY_THREAD_SAFE,
    exportable = DTL_MEMORY_EXPORTABLE,
};

constexpr bool has(const dtl_mem_kind_info_t &info, memory_property property) noexcept
{
    return (info.properties & static_cast<uint64_t>(property)) != 0;
}

namespace memory_kinds {
inline constexpr memory_kind host{DTL_MEMORY_HOST}, device{DTL_MEMORY_DEVICE}, pinned{DTL_MEMORY_PINNED},
    managed{DTL_MEMORY_MANAGED}, shared{DTL_MEMORY_SHARED}, undefined{DTL_MEMORY_UNDEFINED};
}
namespace device_kinds {
inline constexpr device_kind cpu{DTL_DEVICE_CPU}, gpu{DTL_DEVICE_GPU}, accelerator{DTL_DEVICE_ACCELERATOR},
    none{DTL_DEVICE_NONE}, undefined{DTL_DEVICE_UNDEFINED};
}
namespace schedules {
inline constexpr schedule sequential{DTL_SCHEDULE_SEQUENTIAL}, multicore{DTL_SCHEDULE_MULTICORE},
    device{DTL_SCHEDULE_DEVICE}, undefined{DTL_SCHEDULE_UNDEFINED};
}
namespace languages {
inline constexpr language c{DTL_LANGUAGE_C}, cuda{DTL_LANGUAGE_CUDA}, opencl{DTL_LANGUAGE_OPENCL},
    ptx{DTL_LANGUAGE_PTX}, spirv{DTL_LANGUAGE_SPIRV}, binary{DTL_LANGUAGE_BINARY}, undefined{DTL_LANGUAGE_UNDEFINED};
}
namespace instrumentations {
inline constexpr instrumentation none{DTL_INSTRUMENTATION_NONE}, timer{DTL_INSTRUMENTATION_TIMER},
    events{DTL_INSTRUMENTATION_EVENTS}, counters{DTL_INSTRUMENTATION_COUNTERS}, spans{DTL_INSTRUMENTATION_SPANS},
    undefined{DTL_INSTRUMENTATION_UNDEFINED};
}
namespace data_instrumentations {
inline constexpr data_instrumentation none{DTL_DATA_INSTRUMENTATION_NONE}, save{DTL_DATA_INSTRUMENTATION_SAVE},
    restore{DTL_DATA_INSTRUMENTATION_RESTORE}, undefined{DTL_DATA_INSTRUMENTATION_UNDEFINED};
}
namespace operations {
inline constexpr operation alloc{DTL_OPERATION_ALLOC}, copy{DTL_OPERATION_COPY}, launch{DTL_OPERATION_LAUNCH},
    compile{DTL_OPERATION_COMPILE}, free{DTL_OPERATION_FREE}, instrument{DTL_OPERATION_INSTRUMENT},
    instrument_data{DTL_OPERATION_INSTRUMENT_DATA}, undefined{DTL_OPERATION_UNDEFINED};
}
namespace features {
inline constexpr feature device{DTL_FEATURE_DEVICE}, memory{DTL_FEATURE_MEMORY}, transfer{DTL_FEATURE_TRANSFER},
    exec{DTL_FEATURE_EXEC}, modules{DTL_FEATURE_MODULES}, comm{DTL_FEATURE_COMM}, streams{DTL_FEATURE_STREAMS},
    async{DTL_FEATURE_ASYNC}, shared_memory{DTL_FEATURE_SHARED_MEMORY}, undefined{DTL_FEATURE_UNDEFINED};
}

/// What goes with a schedule.
struct schedule_defaults {
    memory_kind memory;
    schedule inner;
};

inline schedule_defaults defaults_of(schedule of)
{
    dtl_enum_word_t memory = 0, inner = 0;
    check(dtl_schedule_defaults(of, &memory, &inner));
    return {memory_kind(memory), schedule(inner)};
}

/// Once for each schedule; the same again is no error.
inline void set_defaults(schedule of, memory_kind memory, schedule inner)
{
    check(dtl_schedule_set_defaults(of, memory, inner));
}

} // namespace dtl

#endif
