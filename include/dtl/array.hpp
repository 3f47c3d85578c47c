// Arrays of the C++ interface, and tensors that libraries hand each other (DLPack). Part of dtl.hpp.
#ifndef DTL_ARRAY_HPP
#define DTL_ARRAY_HPP

#include "backend.hpp"
#include "dtype.hpp"
#include "memory.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

namespace dtl {

namespace detail {
// dlpack.h's layout on 64 bits; where that file was included before, compared with itself.
static_assert(sizeof(void *) != 8 || (sizeof(dtl_dlpack_tensor_t) == 48 && sizeof(dtl_dlpack_managed_t) == 64 &&
                                      sizeof(dtl_dlpack_versioned_t) == 80 &&
                                      offsetof(dtl_dlpack_tensor_t, byte_offset) == 40 &&
                                      offsetof(dtl_dlpack_versioned_t, deleter) == 16 &&
                                      offsetof(dtl_dlpack_versioned_t, tensor) == 32),
              "the structs of DLPack 1");
#ifdef DLPACK_MAJOR_VERSION
static_assert(DLPACK_MAJOR_VERSION == DTL_DLPACK_MAJOR, "the DLPack that dtl.h speaks");
static_assert(sizeof(DLManagedTensorVersioned) == sizeof(dtl_dlpack_versioned_t) &&
                  offsetof(DLManagedTensorVersioned, dl_tensor) == offsetof(dtl_dlpack_versioned_t, tensor),
              "dlpack.h and dtl.h mean the same struct");
#endif

/// Gives a tensor up.
struct give_up {
    template <class Tensor> void operator()(Tensor *tensor) const noexcept
    {
        if (tensor->deleter != nullptr) {
            tensor->deleter(tensor);
        }
    }
};
} // namespace detail

/// A DLPack tensor that this program has to give up: `release()` hands it to a consumer, who then does.
using tensor = std::unique_ptr<dtl_dlpack_versioned_t, detail::give_up>;
/// A tensor in the form before DLPack 1.0 (a capsule named "dltensor" in Python); see dtl::tensor.
using unversioned_tensor = std::unique_ptr<dtl_dlpack_managed_t, detail::give_up>;

/// An array of elements of type T on a backend's current device. `const T` for one that must not be written.
template <class T> class array {
    using element = std::remove_const_t<T>; // one of DTL_DTYPE_…, or with dtl::is_element

  public:
    array() noexcept = default;

    /// Allocates; the elements are zero only with DTL_ARRAY_ZERO.
    explicit array(const std::vector<int64_t> &shape,
                   detail::enum_or_plain<array_flags> flags = array_flags::none,
                   detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST,
                   backend_ref backend = {})
    {
        dtl_array_t made;
        check(dtl_array_alloc(backend.get(), kind, shape.data(), static_cast<int32_t>(shape.size()),
                              dtype<element>(), flags, &made));
        own(made);
    }
    explicit array(std::initializer_list<int64_t> shape,
                   detail::enum_or_plain<array_flags> flags = array_flags::none,
                   detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST,
                   backend_ref backend = {})
        : array(std::vector<int64_t>(shape), flags, kind, backend)
    {
    }

    /// Returns a contiguous copy in C order (dtl_array_copy).
    array<element> copy(detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST, backend_ref backend = {}) const
    {
        dtl_array_t made;
        check(dtl_array_copy(handle_.get(), backend.get(), kind, &made));
        array<element> result;
        result.own(made);
        return result;
    }

    /// Another library's memory, without a copy. If that fails (another dtype than T's, too, and a read-only tensor for a T
    /// that is not const), `given` still has the tensor.
    explicit array(tensor &given, backend_ref backend = {})
    {
        if (!std::is_const_v<T> && given != nullptr && (given->flags & DTL_DLPACK_READ_ONLY) != 0) {
            throw error(DTL_ERROR_INVALID_ARGUMENT, "the tensor is read-only: take it as an array<const T>");
        }
        if (given != nullptr && given->version.major == DTL_DLPACK_MAJOR && !is_of(given->tensor.dtype)) {
            throw error(DTL_ERROR_TYPE, "the tensor's elements are of another type than the array's");
        }
        dtl_array_t made;
        check(dtl_array_import(backend.get(), given.get(), &made));
        (void)given.release(); // the library's now
        own(made);
    }
    explicit array(tensor &&given, backend_ref backend = {}) : array(given, backend) {}

    /// The same of a tensor from before DLPack 1.0, which cannot say that it is read-only. After a
    /// failure, `given` still has the tensor.
    explicit array(unversioned_tensor &given, backend_ref backend = {})
    {
        if (given != nullptr && !is_of(given->tensor.dtype)) {
            throw error(DTL_ERROR_TYPE,
                        "the tensor's elements are of another type than the array's");
        }
        dtl_array_t made;
        check(dtl_array_import_unversioned(backend.get(), given.get(), &made));
        (void)given.release(); // the library's now
        own(made);
    }
    explicit array(unversioned_tensor &&given, backend_ref backend = {}) : array(given, backend) {}

    dtl_array_t get() const noexcept { return handle_.get(); }

    /// Hands it to another library, without a copy. The memory stays until both have given it up.
    [[nodiscard]] tensor lend() const
    {
        dtl_dlpack_versioned_t *lent = nullptr;
        check(dtl_array_export(get(), &lent));
        return tensor(lent);
    }

    /// Hands it to a library that predates DLPack 1.0 (NumPy before 2.1). Throws
    /// DTL_ERROR_NOT_SUPPORTED for a read-only array, which that form cannot express.
    [[nodiscard]] unversioned_tensor lend_unversioned() const
    {
        dtl_dlpack_managed_t *lent = nullptr;
        check(dtl_array_export_unversioned(get(), &lent));
        return unversioned_tensor(lent);
    }

    /// Returns a view for functions that take a DLTensor, whose address may be cast to that. Valid
    /// as long as this array.
    dtl_dlpack_tensor_t view() const
    {
        dtl_dlpack_tensor_t seen{};
        check(dtl_array_view(get(), &seen));
        return seen;
    }

    dtl_array_info_t info() const
    {
        dtl_array_info_t info = DTL_ARRAY_INFO_INIT;
        check(dtl_array_info(get(), &info));
        return info;
    }

    T *data() const noexcept { return data_; }
    /// Number of elements.
    std::size_t size() const noexcept { return size_; }

    /// Returns a view of the shape and strides: a std::mdspan with std::layout_stride, or another
    /// type of its form (Kokkos). Valid as long as this array; host code may touch the elements
    /// only if their memory is accessible to the host. Throws DTL_ERROR_INVALID_ARGUMENT if the
    /// number of dimensions, or one that is fixed at compile time, differs.
    template <class Mdspan> Mdspan as() const
    {
        using extents = typename Mdspan::extents_type;
        using index = typename extents::index_type;
        constexpr std::size_t ndim = extents::rank();
        const dtl_array_info_t now = info();
        if (static_cast<std::size_t>(now.ndim) != ndim) {
            throw error(DTL_ERROR_INVALID_ARGUMENT,
                        "the array has " + std::to_string(now.ndim) + " dimensions, the view " +
                            std::to_string(ndim) + ": name a view of as many");
        }
        std::array<index, ndim> sizes{}, steps{};
        for (std::size_t axis = 0; axis < ndim; axis++) {
            const int64_t size = now.shape[axis];
            const std::size_t fixed = extents::static_extent(axis);
            if (fixed != dynamic && fixed != static_cast<std::size_t>(size)) {
                throw error(DTL_ERROR_INVALID_ARGUMENT,
                            "dimension " + std::to_string(axis) + " of the array has " +
                                std::to_string(size) + " elements, that of the view " +
                                std::to_string(fixed));
            }
            sizes[axis] = static_cast<index>(size);
            steps[axis] = static_cast<index>(now.strides[axis]);
        }
        return Mdspan(data_, typename Mdspan::mapping_type(extents(sizes), steps));
    }

#ifdef __cpp_lib_mdspan
    /// Returns a std::mdspan of the array; see `as`. `const auto grid = array.mdspan<2>();`
    template <std::size_t Rank> auto mdspan() const
    {
        return as<std::mdspan<T, std::dextents<int64_t, Rank>, std::layout_stride>>();
    }
#endif

    std::vector<int64_t> shape() const
    {
        const dtl_array_info_t now = info();
        return std::vector<int64_t>(now.shape, now.shape + now.ndim);
    }
    /// In elements.
    std::vector<int64_t> strides() const
    {
        const dtl_array_info_t now = info();
        return std::vector<int64_t>(now.strides, now.strides + now.ndim);
    }

  private:
    static constexpr std::size_t dynamic = static_cast<std::size_t>(-1); // std::dynamic_extent

    static bool is_of(dtl_dlpack_dtype_t type) noexcept
    {
        if (is_element<element>) {
            return false; // DLPack has no structs
        }
        constexpr bool is_bool = std::is_same_v<element, bool>;
        constexpr bool is_complex = std::is_same_v<element, std::complex<float>> ||
                                    std::is_same_v<element, std::complex<double>>;
        constexpr int code = is_bool                            ? 6
                             : is_complex                       ? 5
                             : std::is_floating_point_v<element> ? 2
                             : std::is_signed_v<element>         ? 0
                                                                 : 1;
        return type.code == code && type.bits == 8 * sizeof(element) && type.lanes == 1;
    }

    void own(dtl_array_t made)
    {
        handle_.reset(made);
        const dtl_array_info_t now = info();
        data_ = static_cast<T *>(now.data);
        size_ = static_cast<std::size_t>(now.count);
    }

    template <class> friend class array; // copy() of an array<const T>

    detail::owned<dtl_array_t, dtl_array_destroy> handle_;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace dtl

#endif
