// share_array: one array, used by two libraries without a copy. The C++ twin of examples-c/share_array.c.
//
// Build: c++ -std=c++17 share_array.cpp $(pkg-config --cflags --libs libdtl) -o share_array
// Run:   ./share_array
// Prints both sums and "correct".
#include <dtl.hpp>

#include <cstdio>
#include <memory>
#include <numeric>
#include <type_traits>

// The other library knows DLPack and nothing of dtl. With dlpack.h its types would be DLManagedTensorVersioned*.
namespace other {

double sum(dtl::tensor lent)
{
    const dtl_dlpack_tensor_t &t = lent->tensor;
    const double *first = static_cast<const double *>(t.data) + t.byte_offset / sizeof(double);
    double sum = 0;
    for (int64_t i = 0; i < t.shape[0]; i++) {
        for (int64_t j = 0; j < t.shape[1]; j++) {
            sum += first[i * t.strides[0] + j * t.strides[1]];
        }
    }
    return sum; // gives the tensor up
}

struct array {
    dtl_dlpack_versioned_t tensor{};
    int64_t shape[1] = {3};
    double elements[3] = {1, 2, 4};
};

dtl::tensor make(uint64_t flags)
{
    auto made = std::make_unique<array>();
    made->tensor.version.major = 1;
    made->tensor.manager_ctx = made.get();
    made->tensor.deleter = [](void *self) {
        delete static_cast<array *>(static_cast<dtl_dlpack_versioned_t *>(self)->manager_ctx);
    };
    made->tensor.flags = flags;
    made->tensor.tensor.data = made->elements;
    made->tensor.tensor.device.device_type = 1; // the CPU
    made->tensor.tensor.ndim = 1;
    made->tensor.tensor.dtype = dtl_dlpack_dtype_t{2, 64, 1}; // double
    made->tensor.tensor.shape = made->shape;
    return dtl::tensor(&made.release()->tensor);
}

} // namespace other

// Arrays own their memory: they move and do not copy.
static_assert(std::is_nothrow_move_constructible_v<dtl::array<double>> && !std::is_copy_constructible_v<dtl::array<double>>);
static_assert(std::is_same_v<decltype(std::declval<dtl::array<const float>>().data()), const float *>);

int main()
{
    const dtl::library library;
    const dtl::backend_ref host("host");

    // An array goes out.
    dtl::array<double> ours({3, 4}, DTL_ARRAY_ZERO, DTL_MEMORY_HOST, host);
    std::iota(ours.data(), ours.data() + ours.size(), 0.0);
    dtl::tensor lent = ours.lend();
    ours = dtl::array<double>(); // the tensor still has the memory
    const double sum = other::sum(std::move(lent));
    std::printf("their sum of our array:  %g\n", sum);

    // One comes in. What must not be written is taken as const, and another element type is refused.
    dtl::tensor given = other::make(DTL_DLPACK_READ_ONLY);
    int refused = 0;
    try {
        dtl::array<double> writable(given, host);
    } catch (const dtl::error &failure) {
        refused += failure.status() == DTL_ERROR_INVALID_ARGUMENT;
    }
    try {
        dtl::array<const float> floats(given, host);
    } catch (const dtl::error &failure) {
        refused += failure.status() == DTL_ERROR_TYPE;
    }
    const dtl::array<const double> theirs(std::move(given), host);
    const double borrowed = std::accumulate(theirs.data(), theirs.data() + theirs.size(), 0.0);
    std::printf("our sum of their array:  %g\n", borrowed);

    if (sum != 66 || borrowed != 7 || refused != 2 || theirs.shape() != std::vector<int64_t>{3}) {
        return 1;
    }
    std::printf("correct\n");
    return 0;
}
