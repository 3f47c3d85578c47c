/* Arrays, and what other libraries are handed and hand in (DLPack): layout, bad input, who frees what and when, threads,
 * forks, the end of the library. Usage: test_array [alone]: without what valgrind takes for leaks (OpenCL's drivers, a fork).
 * C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "far.h"
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static dtl_backend_t host;

static uint64_t live_count(dtl_backend_t backend) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(backend, &stats));
    return stats.live_count;
}

static dtl_array_info_t info_of(dtl_array_t array) {
    dtl_array_info_t info = DTL_ARRAY_INFO_INIT;
    CHECK_OK(dtl_array_info(array, &info));
    return info;
}

/* The numbers that dlpack.h 1.x gives on 64 bits; test_dlpack_layout compares with the file itself. */
static void test_sizes(void) {
    CHECK(sizeof(dtl_dlpack_tensor_t) == 48 && sizeof(dtl_dlpack_managed_t) == 64 && sizeof(dtl_dlpack_versioned_t) == 80);
    CHECK(offsetof(dtl_dlpack_versioned_t, deleter) == 16 && offsetof(dtl_dlpack_versioned_t, flags) == 24);
    CHECK(offsetof(dtl_dlpack_versioned_t, tensor) == 32 && offsetof(dtl_dlpack_tensor_t, byte_offset) == 40);
}

static void test_alloc(void) {
    const int64_t shape[3] = {2, 3, 4}, none[3] = {2, 0, 4};
    const uint64_t before = live_count(host);
    dtl_mem_info_t where = DTL_MEM_INFO_INIT;
    dtl_dlpack_tensor_t view;
    dtl_array_t array = DTL_ARRAY_NULL;
    dtl_array_info_t info;
    size_t i;
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 3, DTL_DTYPE_FLOAT32, DTL_ARRAY_ZERO, &array));
    CHECK(live_count(host) == before + 1);
    info = info_of(array);
    CHECK(info.ndim == 3 && info.backend.id == host.id && info.device == 0 && info.dtype == DTL_DTYPE_FLOAT32);
    CHECK(info.kind == DTL_MEMORY_HOST && info.flags == DTL_ARRAY_CONTIGUOUS && info.export_count == 0);
    CHECK(info.shape[0] == 2 && info.shape[1] == 3 && info.shape[2] == 4);
    CHECK(info.strides[0] == 12 && info.strides[1] == 4 && info.strides[2] == 1);
    CHECK(info.count == 24 && info.size_bytes == 96 && (uintptr_t)info.data % 256 == 0);
    for (i = 0; i < 24; i++) CHECK(((float*)info.data)[i] == 0);
    CHECK_OK(dtl_mem_query((float*)info.data + 23, &where));
    CHECK(where.base == info.data && where.size_bytes == 96 && where.backend.id == host.id);
    CHECK_OK(dtl_array_view(array, &view));
    CHECK(view.data == info.data && view.ndim == 3 && view.shape == info.shape && view.strides == info.strides);
    CHECK(view.device.device_type == 1 && view.dtype.code == 2 && view.dtype.bits == 32 && view.dtype.lanes == 1);
    CHECK_OK(dtl_array_destroy(array));
    CHECK(live_count(host) == before);
    CHECK_STATUS(dtl_array_destroy(array), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("array handle");

    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_PINNED, NULL, 0, DTL_DTYPE_INT64, 0, &array)); /* one element */
    info = info_of(array);
    CHECK(info.count == 1 && info.size_bytes == 8 && info.data != NULL);
    CHECK_OK(dtl_array_destroy(array));
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, none, 3, DTL_DTYPE_INT64, DTL_ARRAY_ZERO, &array)); /* none */
    info = info_of(array);
    CHECK(info.count == 0 && info.size_bytes == 0 && info.data == NULL && info.strides[0] == 4);
    CHECK_OK(dtl_array_destroy(array));
    CHECK(live_count(host) == before);
}

/* The memory of an array goes with the array alone: from the library's own allocator, and from a backend's. */
static void test_owner(void) {
    const dtl_enum_word_t kinds[2] = {DTL_MEMORY_HOST, DTL_MEMORY_PINNED};
    const int64_t shape[1] = {64};
    const uint64_t before = live_count(host);
    dtl_pool_t pool;
    size_t i;
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool));
    for (i = 0; i < 2; i++) {
        dtl_array_t array;
        void *data;
        CHECK_OK(dtl_array_alloc(host, kinds[i], shape, 1, DTL_DTYPE_INT8, 0, &array));
        data = info_of(array).data;
        CHECK_STATUS(dtl_mem_free(host, data), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("dtl_array_destroy");
        CHECK_STATUS(dtl_pool_free(pool, data), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("dtl_array_destroy");
        memset(data, 1, 64);
        CHECK_OK(dtl_array_destroy(array));
        CHECK(live_count(host) == before);
    }
    CHECK_OK(dtl_pool_destroy(pool));
}

static void test_bad_alloc(void) {
    const int64_t negative[2] = {2, -3}, huge[3] = {INT64_MAX, 2, 2}, bytes[2] = {INT64_MAX / 4, 1}, two[2] = {1, 1};
    const int64_t much[1] = {INT64_C(1) << 60}, hidden[3] = {0, INT64_MAX, 3};
    static int64_t many[DTL_ARRAY_MAX_NDIM + 1];
    const uint64_t before = live_count(host);
    dtl_array_t array = {77};
    size_t i;
    for (i = 0; i <= DTL_ARRAY_MAX_NDIM; i++) many[i] = 1;
#define REFUSED(status, words, ...) \
    CHECK_STATUS(dtl_array_alloc(__VA_ARGS__, &array), status); \
    CHECK_TEXT(words)
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "ndim -1", host, DTL_MEMORY_HOST, two, -1, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "ndim 65", host, DTL_MEMORY_HOST, many, 65, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_NULL_POINTER, "shape", host, DTL_MEMORY_HOST, NULL, 2, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "shape is not aligned", host, DTL_MEMORY_HOST,
        (const int64_t*)(const void*)((const char*)two + 1), 1, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "shape[1] is -3", host, DTL_MEMORY_HOST, negative, 2, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "more than memory", host, DTL_MEMORY_HOST, huge, 3, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "more than memory", host, DTL_MEMORY_HOST, hidden, 3, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "of 8 bytes", host, DTL_MEMORY_HOST, bytes, 2, DTL_DTYPE_INT64, 0);
    REFUSED(DTL_ERROR_OUT_OF_MEMORY, "1152921504606846976", host, DTL_MEMORY_HOST, much, 1, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "dtype 99", host, DTL_MEMORY_HOST, two, 2, 99, 0);
    REFUSED(DTL_ERROR_INVALID_ARGUMENT, "flags 0x2", host, DTL_MEMORY_HOST, two, 2, DTL_DTYPE_INT8, DTL_ARRAY_READ_ONLY);
    REFUSED(DTL_ERROR_NOT_SUPPORTED, "kind", host, DTL_DEVICE_CPU, two, 2, DTL_DTYPE_INT8, 0);
    REFUSED(DTL_ERROR_NOT_SUPPORTED, "kind", host, DTL_DEVICE_CPU, hidden, 1, DTL_DTYPE_INT8, 0); /* without elements, too */
    CHECK_STATUS(dtl_array_alloc(host, DTL_MEMORY_HOST, two, 2, DTL_DTYPE_INT8, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK(array.id == 77 && live_count(host) == before);
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, many, 64, DTL_DTYPE_INT8, 0, &array));
    CHECK_OK(dtl_array_destroy(array));
}

/* A tensor of somebody else's: memory, and how often it was given up. */
struct foreign {
    dtl_dlpack_versioned_t tensor;
    int64_t shape[3], strides[3];
    double elements[24];
    int deleted;
};

static void foreign_delete(void* self) {
    struct foreign* foreign = (struct foreign*)((dtl_dlpack_versioned_t*)self)->manager_ctx;
    CHECK(self == &foreign->tensor);
    __atomic_fetch_add(&foreign->deleted, 1, __ATOMIC_ACQ_REL);
}

static void foreign_init(struct foreign* foreign) {
    size_t i;
    memset(foreign, 0, sizeof *foreign);
    for (i = 0; i < 24; i++) foreign->elements[i] = (double)i;
    foreign->shape[0] = 2, foreign->shape[1] = 3, foreign->shape[2] = 4;
    foreign->strides[0] = 12, foreign->strides[1] = 4, foreign->strides[2] = 1;
    foreign->tensor.version.major = 1, foreign->tensor.version.minor = 3;
    foreign->tensor.manager_ctx = foreign, foreign->tensor.deleter = foreign_delete;
    foreign->tensor.tensor.data = foreign->elements;
    foreign->tensor.tensor.device.device_type = 1;
    foreign->tensor.tensor.ndim = 3;
    foreign->tensor.tensor.dtype.code = 2, foreign->tensor.tensor.dtype.bits = 64, foreign->tensor.tensor.dtype.lanes = 1;
    foreign->tensor.tensor.shape = foreign->shape, foreign->tensor.tensor.strides = foreign->strides;
}

/* Every refusal names its reason, calls no deleter and leaves the tensor to its owner. */
static void test_refused_imports(void) {
    struct foreign foreign;
    dtl_dlpack_tensor_t* tensor = &foreign.tensor.tensor;
    dtl_array_t array = {77};
    dtl_dlpack_managed_t old;
#define REFUSE(change, status, words) \
    foreign_init(&foreign); \
    change; \
    CHECK_STATUS(dtl_array_import(host, &foreign.tensor, &array), status); \
    CHECK_TEXT(words); \
    CHECK(foreign.deleted == 0 && array.id == 77)
    CHECK_STATUS(dtl_array_import(host, NULL, &array), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_array_import_unversioned(host, NULL, &array), DTL_ERROR_NULL_POINTER);
    REFUSE(foreign.tensor.version.major = 2, DTL_ERROR_INCOMPATIBLE_ABI, "DLPack 2.3");
    REFUSE(foreign.tensor.version.major = 0, DTL_ERROR_INCOMPATIBLE_ABI, "DLPack 0.3");
    REFUSE(tensor->device.device_type = 2, DTL_ERROR_NOT_SUPPORTED, "kDLCUDA (2)");
    REFUSE(tensor->device.device_type = 3, DTL_ERROR_NOT_SUPPORTED, "kDLCUDAHost (3)");
    REFUSE(foreign.strides[1] = INT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "strides[1] is 9223372036854775807");
    REFUSE(foreign.strides[0] = INT64_MAX / 4, DTL_ERROR_INVALID_ARGUMENT, "strides[0] is ");
    REFUSE(tensor->device.device_type = 4, DTL_ERROR_NOT_SUPPORTED, "an object of its own");
    REFUSE(tensor->device.device_type = -7, DTL_ERROR_NOT_SUPPORTED, "device type -7");
    REFUSE(tensor->device.device_id = 1, DTL_ERROR_NOT_SUPPORTED, "id 1");
    REFUSE(tensor->dtype.lanes = 4, DTL_ERROR_NOT_SUPPORTED, "4 lanes");
    REFUSE(tensor->dtype.lanes = 0, DTL_ERROR_NOT_SUPPORTED, "0 lanes");
    REFUSE(tensor->dtype.code = 10, DTL_ERROR_NOT_SUPPORTED, "code 10");
    REFUSE(tensor->dtype.bits = 4, DTL_ERROR_NOT_SUPPORTED, "4 bits");
    REFUSE(tensor->ndim = -1, DTL_ERROR_INVALID_ARGUMENT, "ndim -1");
    REFUSE(tensor->ndim = 65, DTL_ERROR_INVALID_ARGUMENT, "ndim 65");
    REFUSE(tensor->shape = NULL, DTL_ERROR_NULL_POINTER, "shape");
    REFUSE(foreign.shape[2] = -4, DTL_ERROR_INVALID_ARGUMENT, "shape[2] is -4");
    REFUSE(foreign.shape[0] = INT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "more than memory");
    REFUSE(foreign.strides[1] = -4, DTL_ERROR_NOT_SUPPORTED, "strides[1] is -4");
    REFUSE(foreign.strides[0] = INT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "more than memory");
    REFUSE((foreign.strides[0] = INT64_MAX, foreign.strides[1] = INT64_MAX / 2), DTL_ERROR_INVALID_ARGUMENT, "more than memory");
    REFUSE(tensor->data = NULL, DTL_ERROR_NULL_POINTER, "data is NULL");
    REFUSE(tensor->byte_offset = UINT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "byte_offset 18446744073709551615");
    REFUSE(tensor->byte_offset = 4, DTL_ERROR_INVALID_ARGUMENT, "not aligned to 8 bytes");
    foreign_init(&foreign);
    old.tensor = *tensor, old.manager_ctx = NULL, old.deleter = NULL;
    old.tensor.dtype.lanes = 2;
    CHECK_STATUS(dtl_array_import_unversioned(host, &old, &array), DTL_ERROR_NOT_SUPPORTED);
    CHECK(array.id == 77);
}

static void test_import(void) {
    struct foreign foreign;
    dtl_dlpack_versioned_t *first = NULL, *second = NULL;
    dtl_dlpack_managed_t *unversioned = NULL, old;
    dtl_array_t array, again;
    dtl_array_info_t info;
    const uint64_t before = live_count(host);
    foreign_init(&foreign);
    foreign.tensor.flags = DTL_DLPACK_READ_ONLY | 2; /* … and copied */
    foreign.tensor.tensor.byte_offset = 8;
    foreign.shape[0] = 1, foreign.strides[0] = -99, foreign.strides[1] = 0; /* a stride of one index leads nowhere */
    CHECK_OK(dtl_array_import(host, &foreign.tensor, &array));
    info = info_of(array);
    CHECK(info.data == foreign.elements + 1 && info.count == 12 && info.size_bytes == 32 && info.strides[0] == 12);
    CHECK(info.flags == (DTL_ARRAY_READ_ONLY | DTL_ARRAY_IMPORTED) && info.dtype == DTL_DTYPE_FLOAT64);
    CHECK(live_count(host) == before);
    CHECK_STATUS(dtl_array_export_unversioned(array, &unversioned), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("read-only");
    CHECK_OK(dtl_array_export(array, &first));
    CHECK_OK(dtl_array_export(array, &second));
    CHECK(first->flags == DTL_DLPACK_READ_ONLY && first->tensor.strides[1] == 0 && info_of(array).export_count == 2);
    first->deleter(first);
    CHECK(foreign.deleted == 0 && info_of(array).export_count == 1);
    CHECK_OK(dtl_array_destroy(array));
    CHECK(foreign.deleted == 0 && second->tensor.data == foreign.elements + 1); /* the consumer still has it */
    second->deleter(second);
    CHECK(foreign.deleted == 1);

    /* No deleter, no strides, the old struct; and a tensor of the library's own comes back. */
    foreign_init(&foreign);
    old.tensor = foreign.tensor.tensor, old.manager_ctx = NULL, old.deleter = NULL;
    old.tensor.strides = NULL;
    CHECK_OK(dtl_array_import_unversioned(host, &old, &array));
    CHECK(info_of(array).flags == (DTL_ARRAY_CONTIGUOUS | DTL_ARRAY_IMPORTED) && info_of(array).strides[0] == 12);
    CHECK_OK(dtl_array_export_unversioned(array, &unversioned));
    CHECK_OK(dtl_array_import_unversioned(host, unversioned, &again));
    CHECK_OK(dtl_array_destroy(array));
    CHECK(((double*)info_of(again).data)[23] == 23.0);
    CHECK_OK(dtl_array_destroy(again));

    foreign_init(&foreign); /* without elements nothing is looked at */
    foreign.shape[1] = 0, foreign.tensor.tensor.data = NULL, foreign.strides[0] = -1;
    CHECK_OK(dtl_array_import(host, &foreign.tensor, &array));
    CHECK(info_of(array).count == 0 && info_of(array).data == NULL);
    CHECK_OK(dtl_array_destroy(array));
    CHECK(foreign.deleted == 1);
}

/* Every dtype that DLPack has a word for comes back as itself (BYTE as UINT8); the others are refused. */
static void test_dtypes(void) {
    const int64_t shape[1] = {5};
    dtl_dlpack_versioned_t* tensor = NULL;
    dtl_dtype_t dtype, own;
    dtl_array_t array, back;
    CHECK_OK(dtl_dtype_create(24, "triple", &own));
    for (dtype = 0; dtype <= DTL_DTYPE_COMPLEX128; dtype++) {
        CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, dtype, 0, &array));
        CHECK_OK(dtl_array_export(array, &tensor));
        CHECK_OK(dtl_array_import(host, tensor, &back));
        CHECK(info_of(back).dtype == (dtype == DTL_DTYPE_BYTE ? DTL_DTYPE_UINT8 : dtype));
        CHECK(info_of(back).size_bytes == info_of(array).size_bytes);
        CHECK_OK(dtl_array_destroy(array));
        CHECK_OK(dtl_array_destroy(back));
    }
    for (dtype = DTL_DTYPE_FLOAT32_INT32; dtype <= DTL_DTYPE_INT64_INT64; dtype++) {
        CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, dtype, 0, &array));
        CHECK_STATUS(dtl_array_export(array, &tensor), DTL_ERROR_NOT_SUPPORTED);
        CHECK_TEXT("DLPack has no word for DTL_DTYPE_");
        CHECK_OK(dtl_array_destroy(array));
    }
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, own, 0, &array));
    CHECK(info_of(array).size_bytes == 120);
    CHECK_STATUS(dtl_array_export(array, &tensor), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("triple");
    CHECK_OK(dtl_array_destroy(array));
    CHECK_OK(dtl_dtype_destroy(own));
}

static dtl_status_t ext_number(void* self, int32_t device, int32_t* out_type, int32_t* out_id) {
    return (void)self, *out_type = 12, *out_id = 7 + device, DTL_SUCCESS;
}

static dtl_status_t cuda_number(void* self, int32_t device, int32_t* out_type, int32_t* out_id) {
    return (void)self, *out_type = 2, *out_id = device, DTL_SUCCESS;
}

static dtl_status_t any_kind(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    return (void)self, (void)kind, out->properties = DTL_MEMORY_DEVICE_ACCESSIBLE, DTL_SUCCESS;
}

/* Memory that the host cannot touch: made here and lent, and another library's, which copies then know. */
static void test_device_memory(void) {
    const int64_t shape[2] = {4, 2};
    struct far far, bare;
    struct far_tables tables;
    struct foreign foreign, part;
    double back[8] = {0};
    dtl_backend_t backend, without;
    dtl_array_t array, slice;
    dtl_dlpack_versioned_t* tensor = NULL;
    dtl_mem_info_t where = DTL_MEM_INFO_INIT;
    char* device;
    memset(&far, 0, sizeof far), memset(&bare, 0, sizeof bare);
    without = far_register("numberless", &bare);
    CHECK_OK(dtl_array_alloc(without, DTL_MEMORY_DEVICE, shape, 2, DTL_DTYPE_FLOAT64, DTL_ARRAY_ZERO, &array));
    CHECK_STATUS(dtl_array_export(array, &tensor), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("numberless provides no DLPack number");
    device = (char*)info_of(array).data;
    bare.failure = DTL_ERROR_BACKEND, bare.text = "stuck"; /* a free that fails: the array is gone, the memory an allocation */
    CHECK_STATUS(dtl_array_destroy(array), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_array_destroy(array), DTL_ERROR_INVALID_HANDLE);
    bare.failure = DTL_SUCCESS;
    CHECK_OK(dtl_mem_free(without, device));
    CHECK_OK(dtl_backend_unregister(without));

    far_fill(&tables);
    tables.device.dlpack = ext_number;
    far.devices = 2;
    CHECK_OK(dtl_backend_register("ext", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_array_alloc(backend, DTL_MEMORY_DEVICE, shape, 2, DTL_DTYPE_FLOAT64, DTL_ARRAY_ZERO, &array));
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK(tensor->tensor.device.device_type == 12 && tensor->tensor.device.device_id == 7);
    CHECK(far_is(tensor->tensor.data) && ((double*)(void*)far_real(tensor->tensor.data))[7] == 0);
    CHECK_OK(dtl_array_destroy(array));
    CHECK(far.frees == 0);
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);
    tensor->deleter(tensor);
    CHECK(far.frees == 1);

    foreign_init(&foreign), foreign_init(&part);
    device = (char*)((uintptr_t)foreign.elements | FAR_SHIFT);
    foreign.tensor.tensor.data = device, part.tensor.tensor.data = device + 16;
    foreign.tensor.tensor.device.device_type = part.tensor.tensor.device.device_type = 12;
    foreign.tensor.tensor.device.device_id = part.tensor.tensor.device.device_id = 8;
    part.tensor.tensor.ndim = 1, part.shape[0] = 2, part.strides[0] = 1;
    CHECK_OK(dtl_array_import(backend, &foreign.tensor, &array));
    CHECK_OK(dtl_array_import(backend, &part.tensor, &slice));
    CHECK(info_of(array).device == 1 && info_of(array).kind == DTL_MEMORY_DEVICE);
    CHECK_OK(dtl_mem_copy(back, device + 128, 64)); /* beyond the part, inside the whole */
    CHECK(back[0] == 16 && back[7] == 23);
    CHECK_OK(dtl_mem_query(device + 191, &where));
    CHECK(where.base == device && where.size_bytes == 192 && where.device == 1 && where.backend.id == backend.id);
    CHECK_STATUS(dtl_mem_copy(back, device + 136, 64), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_free(backend, device), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_array_destroy(array));
    CHECK_OK(dtl_mem_copy(back, device + 16, 16)); /* the part is still there */
    CHECK_STATUS(dtl_mem_query(device, &where), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_array_destroy(slice));
    CHECK_STATUS(dtl_mem_query(device + 16, &where), DTL_ERROR_NOT_FOUND);
    CHECK(foreign.deleted == 1 && part.deleted == 1);
    CHECK_OK(dtl_backend_unregister(backend));

    /* One that says CUDA: page-locked and managed memory have numbers of their own, of all devices. */
    tables.device.dlpack = cuda_number, tables.memory.kind_info = any_kind;
    CHECK_OK(dtl_backend_register("green", &tables.main, &far, 0, &backend));
    foreign_init(&foreign);
    foreign.tensor.tensor.device.device_type = 13, foreign.tensor.tensor.device.device_id = 0;
    CHECK_OK(dtl_array_import(backend, &foreign.tensor, &array));
    CHECK(info_of(array).kind == DTL_MEMORY_MANAGED);
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK(tensor->tensor.device.device_type == 13 && tensor->tensor.device.device_id == 0);
    tensor->deleter(tensor);
    CHECK_OK(dtl_array_destroy(array));
    foreign.tensor.tensor.device.device_type = 3;
    CHECK_OK(dtl_array_import(backend, &foreign.tensor, &array));
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK(info_of(array).kind == DTL_MEMORY_PINNED && tensor->tensor.device.device_type == 3);
    tensor->deleter(tensor);
    CHECK_OK(dtl_array_destroy(array));
    foreign.tensor.tensor.device.device_type = 1; /* no such device */
    CHECK_STATUS(dtl_array_import(backend, &foreign.tensor, &array), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("backend green has kDLCUDA (2) id 0, kDLCUDA (2) id 1");
    CHECK_OK(dtl_backend_unregister(backend));
}

/* OpenCL on a CPU: what the host reads goes out as the CPU's, the rest does not. */
static void test_opencl(void) {
    const int64_t shape[1] = {3};
    dtl_dlpack_versioned_t* tensor = NULL;
    int32_t yes = 0, type = 0, id = 0;
    dtl_backend_t opencl;
    dtl_array_t array;
    if (dtl_backend_get("opencl", &opencl) != DTL_SUCCESS) return;
    CHECK_OK(dtl_backend_is_available(opencl, &yes, NULL, 0, NULL));
    if (!yes) {
        printf("no OpenCL here\n");
        return;
    }
    CHECK_OK(dtl_backend_dlpack_device(opencl, 0, &type, &id));
    CHECK_OK(dtl_array_alloc(opencl, DTL_MEMORY_DEVICE, shape, 1, DTL_DTYPE_INT32, DTL_ARRAY_ZERO, &array));
    CHECK_STATUS(dtl_array_export(array, &tensor), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT(type == 1 ? "DTL_MEMORY_HOST_ACCESSIBLE" : "an object of its own");
    CHECK_OK(dtl_array_destroy(array));
    if (type != 1) return;
    CHECK_OK(dtl_array_alloc(opencl, DTL_MEMORY_MANAGED, shape, 1, DTL_DTYPE_INT32, DTL_ARRAY_ZERO, &array));
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK_OK(dtl_array_destroy(array));
    CHECK(tensor->tensor.device.device_type == 1 && ((int32_t*)tensor->tensor.data)[2] == 0);
    CHECK_STATUS(dtl_array_import(opencl, tensor, &array), DTL_ERROR_NOT_SUPPORTED); /* it is of a CPU, and plain memory is another's */
    CHECK_TEXT("the tensor is on DLPack's kDLCPU (1) id 0; backend opencl has no such memory: name the backend of that device");
    tensor->deleter(tensor);
}

#define ROUNDS 2000
static dtl_dlpack_versioned_t* handed[ROUNDS];
static dtl_array_t raced[ROUNDS];

static void* exporter(void* unused) {
    size_t i;
    for (i = 0; i < ROUNDS; i++) {
        dtl_dlpack_versioned_t* tensor = NULL;
        const dtl_status_t status = dtl_array_export(raced[i], &tensor);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_HANDLE);
        if (tensor != NULL) tensor->deleter(tensor);
        handed[i]->deleter(handed[i]);
    }
    return unused;
}

/* Exports, deleters and destroys at once: each foreign tensor is given up once, and nothing is left. */
static void test_threads(void) {
    static struct foreign foreign[ROUNDS];
    const int64_t shape[1] = {4};
    const uint64_t before = live_count(host);
    pthread_t thread;
    size_t i;
    for (i = 0; i < ROUNDS; i++) {
        foreign_init(&foreign[i]);
        if (i % 2 == 0)
            CHECK_OK(dtl_array_import(host, &foreign[i].tensor, &raced[i]));
        else
            CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, DTL_DTYPE_INT32, 0, &raced[i]));
        CHECK_OK(dtl_array_export(raced[i], &handed[i]));
    }
    CHECK(pthread_create(&thread, NULL, exporter, NULL) == 0);
    for (i = 0; i < ROUNDS; i++) CHECK_OK(dtl_array_destroy(raced[i]));
    CHECK(pthread_join(thread, NULL) == 0);
    for (i = 0; i < ROUNDS; i++) CHECK(foreign[i].deleted == (i % 2 == 0));
    CHECK(live_count(host) == before);
}

/* A child gives up what the parent lent: its memory stays, and the parent notices nothing. */
static void test_fork(void) {
    const int64_t shape[1] = {4};
    struct foreign foreign;
    dtl_dlpack_versioned_t *tensor = NULL, *other = NULL, *third = NULL;
    dtl_array_t array, taken;
    int status = 0;
    pid_t child;
    foreign_init(&foreign);
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, DTL_DTYPE_INT32, DTL_ARRAY_ZERO, &array));
    CHECK_OK(dtl_array_import(host, &foreign.tensor, &taken));
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK_OK(dtl_array_export(taken, &other));
    CHECK_OK(dtl_array_export(taken, &third));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        tensor->deleter(tensor);
        CHECK_OK(dtl_init_after_fork());
        CHECK_STATUS(dtl_array_destroy(taken), DTL_ERROR_INVALID_HANDLE);
        other->deleter(other);
        CHECK(foreign.deleted == 0);
        CHECK_OK(dtl_finalize()); /* nothing is lent here */
        third->deleter(third);
        CHECK(foreign.deleted == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(info_of(array).export_count == 1 && ((int32_t*)tensor->tensor.data)[3] == 0);
    CHECK_OK(dtl_array_destroy(array));
    CHECK_OK(dtl_array_destroy(taken));
    tensor->deleter(tensor), other->deleter(other), third->deleter(third);
    CHECK(foreign.deleted == 1);
}

/* The library does not end while somebody has its memory; what is left of its own goes with it. */
static void test_end(void) {
    const int64_t shape[1] = {4};
    struct foreign foreign;
    dtl_dlpack_versioned_t* tensor = NULL;
    dtl_array_t array, taken, looped;
    foreign_init(&foreign);
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 1, DTL_DTYPE_INT32, DTL_ARRAY_ZERO, &array));
    CHECK_OK(dtl_array_import(host, &foreign.tensor, &taken));
    CHECK_OK(dtl_array_export(array, &tensor));
    CHECK_OK(dtl_array_destroy(array));
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    CHECK_TEXT("1 tensors of dtl_array_export");
    CHECK(((int32_t*)tensor->tensor.data)[3] == 0 && foreign.deleted == 0 && info_of(taken).count == 24);
    CHECK_OK(dtl_array_import(host, tensor, &looped)); /* back in the library: nobody else's any more */
    CHECK_OK(dtl_finalize());
    CHECK(foreign.deleted == 1);
    CHECK_STATUS(dtl_array_destroy(taken), DTL_ERROR_INVALID_STATE);
}

int main(int argc, char** argv) {
    (void)argv;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    test_sizes();
    test_alloc();
    test_owner();
    test_bad_alloc();
    test_refused_imports();
    test_import();
    test_dtypes();
    test_device_memory();
    if (argc == 1) test_opencl();
    test_threads();
    if (argc == 1) test_fork();
    test_end();
    printf("ok\n");
    return 0;
}
