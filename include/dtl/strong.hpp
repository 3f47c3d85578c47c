// Strong types of the C++ interface: ranks, tags, kinds and flags that do not convert into each
// other. Part of dtl.hpp.
#ifndef DTL_STRONG_HPP
#define DTL_STRONG_HPP

#include "../dtl.h"

#include <type_traits>

namespace dtl {

/// A number with a meaning: numbers of different meanings do not convert into each other, nor into
/// a plain integer. `Meaning` only tells the types apart.
template <class Meaning> class strong_int {
  public:
    constexpr explicit strong_int(int value) noexcept : value_(value) {}

    /// Returns the plain number.
    constexpr int get() const noexcept { return value_; }
    constexpr explicit operator int() const noexcept { return value_; }

    friend constexpr bool operator==(strong_int a,
                                     strong_int b) noexcept { return a.value_ == b.value_; }
    friend constexpr bool operator!=(strong_int a,
                                     strong_int b) noexcept { return a.value_ != b.value_; }

  private:
    int value_;
};

/// Rank in a communicator: `world.send(data, dtl::rank{1}, dtl::tag{7})`. Every function that takes
/// a rank takes this type or a plain int; a dtl::tag does not compile there.
using rank = strong_int<struct rank_meaning>;
/// Tag of a message; see dtl::rank.
using tag = strong_int<struct tag_meaning>;

/// DTL_ANY_SOURCE: receives from every rank.
inline constexpr rank any_source{DTL_ANY_SOURCE};
/// DTL_PROC_NULL: sends to it and receives from it complete at once and move nothing.
inline constexpr rank proc_null{DTL_PROC_NULL};
/// DTL_ANY_TAG: receives messages of every tag.
inline constexpr tag any_tag{DTL_ANY_TAG};

namespace detail {

/// Parameter that is a number of one meaning or a plain int. Numbers of other meanings do not
/// compile.
template <class Number> class number_or_int {
  public:
    constexpr number_or_int(Number value) noexcept : value_(value.get()) {}
    constexpr number_or_int(int value) noexcept : value_(value) {}
    template <class Other> number_or_int(strong_int<Other>) = delete;
    constexpr operator int() const noexcept { return value_; }

  private:
    int value_;
};

using rank_in = number_or_int<rank>;
using tag_in = number_or_int<tag>;

/// Parameter that is a member of an enum class or a plain constant of dtl.h. Members of other enum
/// classes do not compile.
template <class Enum> class enum_or_plain {
    using plain = std::underlying_type_t<Enum>;

  public:
    constexpr enum_or_plain(Enum value) noexcept : value_(static_cast<plain>(value)) {}
    constexpr enum_or_plain(plain value) noexcept : value_(value) {}
    constexpr operator plain() const noexcept { return value_; }

  private:
    plain value_;
};

/// True for the enum classes whose members are flags, which `|` combines.
template <class Enum> inline constexpr bool is_flags = false;

} // namespace detail

/// Combines flags of one kind. Flags of different kinds do not compile.
template <class Enum, class = std::enable_if_t<detail::is_flags<Enum>>>
constexpr Enum operator|(Enum a, Enum b) noexcept
{
    using plain = std::underlying_type_t<Enum>;
    return static_cast<Enum>(static_cast<plain>(a) | static_cast<plain>(b));
}

/// Kind of an executor.
enum class executor_kind : uint32_t {
    automatic = 0, ///< That of the backend if it has one, else a pool.
    inlined = DTL_EXECUTOR_INLINE,
    sequential = DTL_EXECUTOR_SEQUENTIAL,
    pool = DTL_EXECUTOR_POOL,
    backend = DTL_EXECUTOR_BACKEND,
};

/// Kind of the lock of a window.
enum class lock_type : int {
    shared = DTL_LOCK_SHARED,
    exclusive = DTL_LOCK_EXCLUSIVE,
};

/// Least important lines that a log receives.
enum class log_level : int {
    off = DTL_LOG_OFF,
    error = DTL_LOG_ERROR,
    warn = DTL_LOG_WARN,
    info = DTL_LOG_INFO,
    debug = DTL_LOG_DEBUG,
};

/// Flags of an event.
enum class event_flags : uint64_t {
    none = 0,
    no_timing = DTL_EVENT_NO_TIMING,
};
/// Flags of an array.
enum class array_flags : uint64_t {
    none = 0,
    zero = DTL_ARRAY_ZERO,
};
/// Flags of a communicator.
enum class comm_flags : uint64_t {
    none = 0,
    deterministic = DTL_COMM_DETERMINISTIC,
    no_dup = DTL_COMM_NO_DUP,
    stage = DTL_COMM_STAGE,
};
/// Flags of a reduction operation.
enum class op_flags : uint64_t {
    none = 0,
    commutes = DTL_OP_COMMUTES,
};
/// Flags of a handler in a dispatcher.
enum class dispatch_flags : uint64_t {
    none = 0,
    replace = DTL_DISPATCH_REPLACE,
    illegal = DTL_DISPATCH_ILLEGAL,
    fallback = DTL_DISPATCH_DEFAULT,
};
/// Flags of a dispatcher.
enum class dispatcher_flags : uint64_t {
    none = 0,
    strict_dace = DTL_DISPATCHER_STRICT_DACE,
};
/// Flags of a backend of the program.
enum class backend_flags : uint64_t {
    none = 0,
    no_compute = DTL_BACKEND_NO_COMPUTE,
};
/// Information on tasks that a policy needs or a kind of resources reports.
enum class task_info : uint64_t {
    none = 0,
    submission = DTL_INFO_TASK_SUBMISSION,
    completion = DTL_INFO_TASK_COMPLETION,
    time = DTL_INFO_TASK_TIME,
};
/// Kind of the resources of a policy.
enum class resource_kind : uint32_t {
    automatic = 0,
    generic = DTL_RESOURCES_GENERIC,
    inlined = DTL_RESOURCES_INLINE,
    streams = DTL_RESOURCES_STREAMS,
    custom = DTL_RESOURCES_CUSTOM,
};

namespace detail {
template <> inline constexpr bool is_flags<event_flags> = true;
template <> inline constexpr bool is_flags<array_flags> = true;
template <> inline constexpr bool is_flags<comm_flags> = true;
template <> inline constexpr bool is_flags<op_flags> = true;
template <> inline constexpr bool is_flags<dispatch_flags> = true;
template <> inline constexpr bool is_flags<dispatcher_flags> = true;
template <> inline constexpr bool is_flags<backend_flags> = true;
template <> inline constexpr bool is_flags<task_info> = true;
} // namespace detail

} // namespace dtl

#endif
