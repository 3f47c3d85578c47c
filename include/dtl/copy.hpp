// Copies of the C++ interface between memories of any backend: contiguous, by rows, and strided.
// Part of dtl.hpp.
#ifndef DTL_COPY_HPP
#define DTL_COPY_HPP

#include "error.hpp"
#include "views.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace dtl {

/// Copies `count` elements, and blocks until that is done. The memory of each side is found from
/// its address. Throws DTL_ERROR_INVALID_ARGUMENT if the sides overlap.
template <class T> void copy(T *dst, const T *src, uint64_t count)
{
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    check(dtl_mem_copy(dst, src, detail::bytes_of<T>(count)));
}

/// Rows of elements that are a pitch apart, as cudaMallocPitch makes them.
template <class T> struct pitched {
    T *data;              ///< First element of the first row.
    uint64_t pitch_bytes; ///< Bytes from one row to the next, at least those of a row.
};

/// Copies `rows` rows of `columns` elements, and blocks until that is done:
///
///     dtl::copy_2d<float>({device, pitch}, {host, 100 * sizeof(float)}, 100, 50);
///
/// Throws DTL_ERROR_OUT_OF_BOUNDS if a side extends beyond its allocation,
/// DTL_ERROR_INVALID_ARGUMENT if the sides overlap or a pitch is less than a row.
template <class T> void copy_2d(pitched<T> dst, pitched<const T> src, uint64_t columns,
                                uint64_t rows)
{
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    check(dtl_mem_copy_2d(dst.data, dst.pitch_bytes, src.data, src.pitch_bytes,
                          detail::bytes_of<T>(columns), rows));
}

namespace detail {

/// The strides that C takes: null for none, else as many as the shape has.
inline const int64_t *strides_for(const std::vector<int64_t> &strides, std::size_t ndim,
                                  const char *name)
{
    if (strides.empty()) {
        return nullptr;
    }
    if (strides.size() != ndim) {
        throw error(DTL_ERROR_INVALID_ARGUMENT,
                    std::string(name) + " has " + std::to_string(strides.size()) +
                        " elements and shape has " + std::to_string(ndim) +
                        ": give one stride for each axis, or none for contiguous elements");
    }
    return strides.data();
}

/// The element type of an mdspan.
template <class View>
using mdspan_element =
    std::enable_if_t<(View::extents_type::rank() <= 8), typename View::element_type>;

} // namespace detail

/// Copies elements with strides: a part of a grid, a transposed matrix, a halo. Blocks until that
/// is done.
///
///     dtl::copy_strided(transposed, {1, 3}, matrix, {}, {3, 4}); // strides in elements
///
/// @param dst_strides  One distance for each axis, in elements; may be negative. Empty: contiguous
///                     elements, of which the last axis varies fastest.
/// @param src_strides  As `dst_strides`; 0 repeats an element.
/// @param shape  Number of elements on each axis, at most 8 axes.
///
/// Throws DTL_ERROR_INVALID_ARGUMENT if strides and shape differ in length or elements overlap, and
/// as dtl_mem_copy_strided.
template <class T>
void copy_strided(T *dst, const std::vector<int64_t> &dst_strides, const T *src,
                  const std::vector<int64_t> &src_strides, const std::vector<int64_t> &shape)
{
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    const int64_t *to = detail::strides_for(dst_strides, shape.size(), "dst_strides");
    const int64_t *from = detail::strides_for(src_strides, shape.size(), "src_strides");
    check(dtl_mem_copy_strided(dst, to, src, from, shape.data(), static_cast<int32_t>(shape.size()),
                               sizeof(T)));
}

/// Copies the elements of one std::mdspan to another of the same extents, and blocks until that is
/// done. The memory of each side may be on a device. Any type of the form of std::mdspan will do
/// (Kokkos); its accessor must be the default one, its mapping strided and its rank at most 8.
template <class Dst, class Src, class T = detail::mdspan_element<Dst>,
          class = detail::mdspan_element<Src>>
void copy(const Dst &dst, const Src &src)
{
    static_assert(std::is_same_v<T, std::remove_const_t<typename Src::element_type>>,
                  "elements of one type");
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
    constexpr std::size_t ndim = Dst::extents_type::rank();
    static_assert(ndim == Src::extents_type::rank(), "as many dimensions on both sides");
    std::array<int64_t, ndim + 1> shape{}, to{}, from{}; // + 1: rank 0 has no element
    for (std::size_t axis = 0; axis < ndim; axis++) {
        shape[axis] = static_cast<int64_t>(dst.extent(axis));
        to[axis] = static_cast<int64_t>(dst.stride(axis));
        from[axis] = static_cast<int64_t>(src.stride(axis));
        if (shape[axis] != static_cast<int64_t>(src.extent(axis))) {
            throw error(DTL_ERROR_INVALID_ARGUMENT,
                        "dimension " + std::to_string(axis) + " of dst has " +
                            std::to_string(shape[axis]) + " elements, that of src " +
                            std::to_string(src.extent(axis)) + ": they must agree");
        }
    }
    check(dtl_mem_copy_strided(dst.data_handle(), to.data(), src.data_handle(), from.data(),
                               shape.data(),
                               static_cast<int32_t>(ndim), sizeof(T)));
}

#ifdef __cpp_lib_span
/// Copies the elements of one std::span to another of the same length, and blocks until that is
/// done. The memory of each side may be on a device.
template <class T, std::size_t N, class U, std::size_t M>
void copy(std::span<T, N> dst, std::span<U, M> src)
{
    static_assert(std::is_same_v<T, std::remove_const_t<U>>, "elements of one type");
    if (dst.size() != src.size()) {
        throw error(DTL_ERROR_INVALID_ARGUMENT,
                    "dst has " + std::to_string(dst.size()) + " elements and src " +
                        std::to_string(src.size()) + ": they must agree");
    }
    copy(dst.data(), static_cast<const T *>(src.data()), dst.size());
}
#endif

} // namespace dtl

#endif
