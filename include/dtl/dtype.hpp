// Element types and reduction operations of the C++ interface: those of the library, dtypes of
// structs, and operations made of callables. Part of dtl.hpp.
#ifndef DTL_DTYPE_HPP
#define DTL_DTYPE_HPP

#include "error.hpp"
#include "strong.hpp"

#include <atomic>
#include <complex>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace dtl {

/// A dtype. It converts to the number that C takes, and not to an operation.
class element_type {
  public:
    constexpr explicit element_type(dtl_dtype_t number) noexcept : number_(number) {}
    constexpr operator dtl_dtype_t() const noexcept { return number_; }

    /// Returns the size of an element in bytes, with padding.
    uint64_t size_bytes() const
    {
        uint64_t bytes = 0;
        check(dtl_dtype_size(number_, &bytes));
        return bytes;
    }

    /// Returns the name: "FLOAT64", or as passed when the dtype was created. The text stays valid
    /// until the process ends.
    std::string_view name() const
    {
        const char *text = nullptr;
        check(dtl_dtype_name(number_, &text));
        return text;
    }

  private:
    dtl_dtype_t number_;
};

/// An operation of a reduction: one of `ops`, a constant of dtl.h, one of dtl_op_create or a
/// dtl::user_op. A dtype does not convert to it.
class reduce_op {
  public:
    constexpr reduce_op(dtl_reduce_op_t number) noexcept : number_(number) {}
    reduce_op(element_type) = delete;
    constexpr operator dtl_reduce_op_t() const noexcept { return number_; }

    /// Returns the name: "SUM", or as passed when the operation was created. The text stays valid
    /// until the process ends.
    std::string_view name() const
    {
        const char *text = nullptr;
        check(dtl_op_name(number_, &text));
        return text;
    }

  private:
    dtl_reduce_op_t number_;
};

namespace ops {
inline constexpr reduce_op sum{DTL_OP_SUM}, prod{DTL_OP_PROD}, min{DTL_OP_MIN}, max{DTL_OP_MAX}, land{DTL_OP_LAND},
    lor{DTL_OP_LOR}, band{DTL_OP_BAND}, bor{DTL_OP_BOR}, lxor{DTL_OP_LXOR}, bxor{DTL_OP_BXOR},
    minloc{DTL_OP_MINLOC}, maxloc{DTL_OP_MAXLOC}, replace{DTL_OP_REPLACE}, no_op{DTL_OP_NO_OP};
}

/// Makes a struct an element type of messages, collectives, windows and arrays. Specialise it as
/// true, in the global namespace, for a trivially copyable type that contains no pointers:
///
///     template <> inline constexpr bool dtl::is_element<point> = true;
///
/// Elements are then sent as sizeof(point) bytes, padding included, so all ranks must lay the type
/// out alike. The dtype is created at its first use in the process (see dtl::dtype).
template <class T> inline constexpr bool is_element = false;

namespace detail {

/// Name of a dtype: the type as the compiler spells it, at most 63 bytes.
template <class T> std::string type_name()
{
    std::string_view text = __PRETTY_FUNCTION__; // "... [with T = point; ...]" or "... [T = point]"
    const std::size_t first = text.find("T = ");
    text = first == text.npos ? "struct" : text.substr(first + 4);
    text = text.substr(0, text.find_first_of(";]"));
    return std::string(text.substr(0, 63));
}

/// Returns the dtype of a struct, which the first call in the process creates. dtl_finalize and
/// dtl_init_after_fork destroy all dtypes; the next call then creates another.
template <class T> dtl_dtype_t struct_dtype()
{
    static std::atomic<dtl_dtype_t> known{0}; // numbers of created dtypes begin at 4096
    dtl_dtype_t number = known.load(std::memory_order_acquire);
    uint64_t bytes = 0;
    if (number != 0 && dtl_dtype_size(number, &bytes) == DTL_SUCCESS) {
        return number;
    }
    dtl_dtype_t made = 0;
    check(dtl_dtype_create(sizeof(T), type_name<T>().c_str(), &made));
    if (known.compare_exchange_strong(number, made, std::memory_order_acq_rel)) {
        return made;
    }
    DTL_IGNORE(dtl_dtype_destroy(made)); // another thread was faster
    return number;
}

/// An owner of a number of the library: a dtype or an operation. Numbers of created ones begin at
/// 4096, so 0 is none.
template <class Number, dtl_status_t (*Destroy)(Number)> class owned_number {
  public:
    owned_number() noexcept = default;
    explicit owned_number(Number number) noexcept : number_(number) {}
    owned_number(owned_number &&other) noexcept : number_(other.release()) {}
    owned_number &operator=(owned_number &&other) noexcept
    {
        std::swap(number_, other.number_);
        return *this;
    }
    owned_number(const owned_number &) = delete;
    owned_number &operator=(const owned_number &) = delete;
    ~owned_number()
    {
        if (number_ != none) {
            DTL_IGNORE(Destroy(number_));
        }
    }

    Number get() const noexcept { return number_; }
    Number release() noexcept { return std::exchange(number_, none); }

  private:
    static constexpr Number none = -1; // no number of the library: 0 is a built-in one
    Number number_ = none;
};

} // namespace detail

/// Returns the number of an element type's dtype: dtype<double>() is DTL_DTYPE_FLOAT64. For a type
/// with dtl::is_element it is that of a dtype which the first call creates: call it while the
/// library is initialised. Numbers of different ranks may differ.
template <class T> constexpr dtl_dtype_t dtype()
{
    constexpr bool complex64 = std::is_same_v<T, std::complex<float>>;
    constexpr bool complex128 = std::is_same_v<T, std::complex<double>>;
    if constexpr (is_element<T>) {
        static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");
        return detail::struct_dtype<T>();
    } else {
        static_assert(std::is_arithmetic_v<T> || std::is_same_v<T,
                      std::byte> || complex64 || complex128,
                      "no dtype for this type: specialise dtl::is_element for it, send it as "
                      "bytes, or give count and dtype to the C function");
        static_assert(sizeof(T) <= 8 || complex128, "no dtype for this type");
        if constexpr (complex64 || complex128) {
            return complex64 ? DTL_DTYPE_COMPLEX64 : DTL_DTYPE_COMPLEX128;
        } else if constexpr (std::is_same_v<T, std::byte>) {
            return DTL_DTYPE_BYTE;
        } else if constexpr (std::is_same_v<T, bool>) {
            return DTL_DTYPE_BOOL;
        } else if constexpr (std::is_floating_point_v<T>) {
            return sizeof(T) == 4 ? DTL_DTYPE_FLOAT32 : DTL_DTYPE_FLOAT64;
        } else {
            // INT8, 16, 32, 64 are 0 … 3, their unsigned twins 4 … 7.
            constexpr dtl_dtype_t width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
            return (std::is_signed_v<T> ? DTL_DTYPE_INT8 : DTL_DTYPE_UINT8) + width;
        }
    }
}

/// The dtype of a built-in element type, as a constant; of others, see dtl::dtype.
template <class T> inline constexpr element_type dtype_of{dtype<T>()};

/// Returns the dtype of an element type, also of one with dtl::is_element, which the first call
/// creates: `dtl::make_dtype<point>().name()`.
template <class T> element_type make_dtype()
{
    return element_type(dtype<T>());
}

/// A dtype of a size that is known at run time only, for functions of dtl.h. For a type of the
/// program, dtl::is_element is simpler. Each rank creates its own, of the same size.
class user_dtype {
  public:
    /// @param size_bytes  Size of an element in bytes, with padding; at least 1.
    /// @param name  Name for texts, 1 to 63 bytes; copied.
    user_dtype(uint64_t size_bytes, const char *name)
    {
        dtl_dtype_t number = 0;
        check(dtl_dtype_create(size_bytes, name, &number));
        number_ = detail::owned_number<dtl_dtype_t, dtl_dtype_destroy>(number);
    }

    element_type get() const noexcept { return element_type(number_.get()); }
    operator element_type() const noexcept { return get(); }

  private:
    detail::owned_number<dtl_dtype_t, dtl_dtype_destroy> number_;
};

/// A reduction operation on elements of type T, made of a callable:
///
///     const auto less = [](const point &a, const point &b) { return a.r < b.r ? a : b; };
///     const dtl::user_op<point> nearest(less, "nearest", dtl::op_flags::commutes);
///     world.allreduce(&mine, &best, 1, nearest);
///
/// The callable is T(const T &lower, const T &upper), or void(const T *in, T *inout, uint64_t
/// count), which sets inout[i] = in[i] op inout[i]. `lower` and `in` are the operands of the lower
/// ranks. It must be associative. Every rank makes its own, of the same callable and flags. A
/// reduction of another type than T does not compile with it.
///
/// Threads: it is called in threads that are in calls on the communicator, several at once if
/// several reductions run. An exception that leaves it ends the program (std::terminate). What it
/// may call is said at dtl_op_fn_t. The object owns the callable: it must live until the last
/// reduction with it is complete.
template <class T> class user_op {
  public:
    /// @param function  The callable; a copy is kept.
    /// @param name  Name for texts, 1 to 63 bytes; copied.
    /// @param flags  op_flags::commutes if a op b = b op a; else operands are combined by rank.
    template <class F>
    explicit user_op(F function, const char *name = "user_op",
                     detail::enum_or_plain<op_flags> flags = op_flags::none)
        : function_(std::make_shared<F>(std::move(function)))
    {
        constexpr bool by_element = std::is_invocable_r_v<T, F &, const T &, const T &>;
        static_assert(by_element || std::is_invocable_v<F &, const T *, T *, uint64_t>,
                      "an operation is T(const T &, const T &) or void(const T *in, T *inout, "
                      "uint64_t count)");
        const dtl_op_fn_t call = [](const void *in, void *inout, uint64_t count, dtl_dtype_t,
                                    void *user) noexcept {
            F &body = *static_cast<F *>(user);
            const T *const lower = static_cast<const T *>(in);
            T *const upper = static_cast<T *>(inout);
            if constexpr (by_element) {
                for (uint64_t i = 0; i < count; i++) {
                    upper[i] = body(lower[i], upper[i]);
                }
            } else {
                body(lower, upper, count);
            }
        };
        dtl_reduce_op_t number = 0;
        check(dtl_op_create(call, function_.get(), flags, name, &number));
        number_ = detail::owned_number<dtl_reduce_op_t, dtl_op_destroy>(number);
    }

    reduce_op get() const noexcept { return reduce_op(number_.get()); }
    operator reduce_op() const noexcept { return get(); }

  private:
    std::shared_ptr<void> function_; // destroyed after the operation
    detail::owned_number<dtl_reduce_op_t, dtl_op_destroy> number_;
};

namespace detail {

/// Parameter that is an operation on elements of type T: a dtl::user_op of another type does not
/// compile.
template <class T> class op_on {
  public:
    constexpr op_on(reduce_op op) noexcept : op_(op) {}
    constexpr op_on(dtl_reduce_op_t op) noexcept : op_(op) {}
    op_on(element_type) = delete;
    op_on(const user_op<std::remove_const_t<T>> &op) noexcept : op_(op.get()) {}
    template <class Other> op_on(const user_op<Other> &) = delete;
    constexpr operator dtl_reduce_op_t() const noexcept { return op_; }

  private:
    reduce_op op_;
};
template <class T> struct op_of {
    using type = op_on<T>;
};
/// The same in a form from which T is not deduced.
template <class T> using op = typename op_of<T>::type;

} // namespace detail

} // namespace dtl

#endif
