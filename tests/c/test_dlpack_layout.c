/* The structs of arrays against dlpack.h itself, where a version of it is installed. C11, and valid C++17. */
#include "check.h"
#include <stddef.h>

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#define HAS_DLPACK
#endif
#endif

#ifndef HAS_DLPACK
int main(void) { SKIP("dlpack/dlpack.h is not installed (libdlpack-dev)"); }
#else
#include <dlpack/dlpack.h>

/* Size of a struct, and place and size of a field. */
#define SAME(ours, theirs) CHECK(sizeof(ours) == sizeof(theirs))
#define FIELD(ours, field, theirs, their_field)                                                   \
    CHECK(offsetof(ours, field) == offsetof(theirs, their_field));                                \
    CHECK(sizeof((ours*)0)->field == sizeof((theirs*)0)->their_field)

int main(void) {
    SAME(dtl_dlpack_device_t, DLDevice);
    FIELD(dtl_dlpack_device_t, device_type, DLDevice, device_type);
    FIELD(dtl_dlpack_device_t, device_id, DLDevice, device_id);
    SAME(dtl_dlpack_dtype_t, DLDataType);
    FIELD(dtl_dlpack_dtype_t, code, DLDataType, code);
    FIELD(dtl_dlpack_dtype_t, bits, DLDataType, bits);
    FIELD(dtl_dlpack_dtype_t, lanes, DLDataType, lanes);
    SAME(dtl_dlpack_tensor_t, DLTensor);
    FIELD(dtl_dlpack_tensor_t, data, DLTensor, data);
    FIELD(dtl_dlpack_tensor_t, device, DLTensor, device);
    FIELD(dtl_dlpack_tensor_t, ndim, DLTensor, ndim);
    FIELD(dtl_dlpack_tensor_t, dtype, DLTensor, dtype);
    FIELD(dtl_dlpack_tensor_t, shape, DLTensor, shape);
    FIELD(dtl_dlpack_tensor_t, strides, DLTensor, strides);
    FIELD(dtl_dlpack_tensor_t, byte_offset, DLTensor, byte_offset);
    SAME(dtl_dlpack_managed_t, DLManagedTensor);
    FIELD(dtl_dlpack_managed_t, tensor, DLManagedTensor, dl_tensor);
    FIELD(dtl_dlpack_managed_t, manager_ctx, DLManagedTensor, manager_ctx);
    FIELD(dtl_dlpack_managed_t, deleter, DLManagedTensor, deleter);
    CHECK(kDLCPU == 1 && kDLCUDA == 2 && kDLCUDAHost == 3 && kDLOpenCL == 4 && kDLROCM == 10 && kDLROCMHost == 11);
    CHECK(kDLExtDev == 12 && kDLCUDAManaged == 13);
    CHECK(kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4 && kDLComplex == 5);
#ifdef DLPACK_MAJOR_VERSION
    CHECK(DLPACK_MAJOR_VERSION == DTL_DLPACK_MAJOR && kDLBool == 6);
    CHECK(DLPACK_FLAG_BITMASK_READ_ONLY == DTL_DLPACK_READ_ONLY);
    SAME(dtl_dlpack_version_t, DLPackVersion);
    /* `struct`: DLPack 1.0 has no typedef for it in C. */
    SAME(dtl_dlpack_versioned_t, struct DLManagedTensorVersioned);
    FIELD(dtl_dlpack_versioned_t, version, struct DLManagedTensorVersioned, version);
    FIELD(dtl_dlpack_versioned_t, manager_ctx, struct DLManagedTensorVersioned, manager_ctx);
    FIELD(dtl_dlpack_versioned_t, deleter, struct DLManagedTensorVersioned, deleter);
    FIELD(dtl_dlpack_versioned_t, flags, struct DLManagedTensorVersioned, flags);
    FIELD(dtl_dlpack_versioned_t, tensor, struct DLManagedTensorVersioned, dl_tensor);
    printf("ok: DLPack %d.%d\n", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
#else
    printf("ok: of a dlpack.h before 1.0, which has no DLManagedTensorVersioned\n");
#endif
    return 0;
}
#endif
