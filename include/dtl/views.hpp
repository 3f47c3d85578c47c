// Contiguous containers and views as parameters of the C++ interface: which of them may be
// temporary objects, and std::span and std::mdspan where the compiler has them. Part of dtl.hpp.
#ifndef DTL_VIEWS_HPP
#define DTL_VIEWS_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>
#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#ifdef __cpp_lib_span
#include <span>
#endif
#ifdef __cpp_lib_mdspan
#include <mdspan>
#endif

namespace dtl {
namespace detail {

/// The element type of a contiguous container; no C arrays, which already are pointers.
template <class C>
using element =
    std::enable_if_t<std::is_class_v<C>,
                     std::remove_pointer_t<decltype(std::data(std::declval<C &>()))>>;

/// True for types whose objects refer to elements of something else, so that a temporary one may be
/// passed where the elements are used after the call.
template <class C> inline constexpr bool is_view = false;
#ifdef __cpp_lib_span
template <class T, std::size_t Extent> inline constexpr bool is_view<std::span<T, Extent>> = true;
#endif

/// The element type of a container that a parameter `C &&` refers to: its elements outlive the
/// call. Temporary containers do not compile, temporary views do.
template <class C>
using lasting = std::enable_if_t<std::is_lvalue_reference_v<C> || is_view<std::remove_cv_t<C>>,
                                 element<std::remove_reference_t<C>>>;

/// Bytes of elements. A number that no memory can hold stays so, and the C function refuses it (on
/// all ranks, where it is collective).
template <class T> constexpr uint64_t bytes_of(uint64_t count) noexcept
{
    constexpr uint64_t most = std::numeric_limits<uint64_t>::max();
    return count > most / sizeof(T) ? most : count * sizeof(T);
}

} // namespace detail
} // namespace dtl

#endif
