/* Device memory that the program allocated through the CUDA driver itself, as cudaMalloc, Kokkos and
 * PyTorch do. Copies, messages, collectives and queries recognise it. The driver is the fake one of
 * tests/cuda; the host faults when it accesses the addresses of its device memory.
 *
 * Arguments: DTL_CUDA_LIBRARY=PATH, and
 *     late   the program initialises CUDA after the library
 *     fails  the driver's queries fail */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE = 3 << 20, PIECE = 1 << 21 };

typedef unsigned long long number_t;
typedef unsigned (*driver_fn)(void*, ...);

static void *driver, *contexts[2];
static int32_t me, ranks;
static dtl_backend_t cuda;
static unsigned char *host, *back, global[64];

static driver_fn function(const char* name) {
    driver_fn found;
    void* at = dlsym(driver, name);
    CHECK(at != NULL);
    memcpy(&found, &at, sizeof found);
    return found;
}

static int queries(void) {
    int (*count)(void);
    void* at = dlsym(driver, "fake_cuda_queries");
    CHECK(at != NULL);
    memcpy(&count, &at, sizeof count);
    return count();
}

static void begin_cuda(const char* path) {
    int i;
    driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL && function("cuInit")(NULL) == 0);
    for (i = 0; i < 2; i++) CHECK(function("cuDevicePrimaryCtxRetain")(&contexts[i], i) == 0);
    CHECK(function("cuCtxPushCurrent_v2")(contexts[0]) == 0);
}

static void* pointer(number_t number) { return (void*)(uintptr_t)number; }

static unsigned char* device_memory(int device, size_t size) {
    number_t out = 0;
    void* popped;
    CHECK(function("cuCtxPushCurrent_v2")(contexts[device]) == 0);
    CHECK(function("cuMemAlloc_v2")(&out, size) == 0);
    CHECK(function("cuCtxPopCurrent_v2")(&popped) == 0);
    return (unsigned char*)pointer(out);
}

static unsigned char* pool_memory(size_t size) {
    number_t out = 0;
    CHECK(function("cuMemAllocAsync")(&out, size, (void*)NULL) == 0);
    return (unsigned char*)pointer(out);
}

/* Two adjacent mappings, like an expandable segment of PyTorch. */
static unsigned char* virtual_memory(void* wanted) {
    const unsigned properties[8] = {1, 0, 1, 0, 0, 0, 0, 0};
    number_t at = 0;
    int i;
    CHECK(function("cuMemAddressReserve")(&at, (size_t)2 * PIECE, (size_t)0, (number_t)(uintptr_t)wanted, (number_t)0) == 0);
    for (i = 0; i < 2; i++) {
        void* piece = NULL;
        CHECK(function("cuMemCreate")(&piece, (size_t)PIECE, properties, (number_t)0) == 0);
        CHECK(function("cuMemMap")(pointer(at + (number_t)i * PIECE), (size_t)PIECE, (size_t)0, piece, (number_t)0) == 0);
        CHECK(function("cuMemRelease")(piece) == 0);
    }
    return (unsigned char*)pointer(at);
}

static unsigned char pattern(size_t i, int seed) { return (unsigned char)(i * 7 + i / 251 + (size_t)seed * 31 + 1); }

static void fill(unsigned char* bytes, size_t size, int seed) {
    size_t i;
    for (i = 0; i < size; i++) bytes[i] = pattern(i, seed);
}

static int is_filled(const unsigned char* bytes, size_t size, int seed) {
    size_t i;
    for (i = 0; i < size; i++)
        if (bytes[i] != pattern(i, seed)) return 0;
    return 1;
}

static void described(const unsigned char* memory, size_t size, dtl_enum_word_t kind, int device) {
    const size_t offsets[3] = {0, size / 2, size - 1};
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    int i;
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_mem_query(memory + offsets[i], &info));
        CHECK(info.kind == kind && info.device == device && info.base == memory && info.size_bytes == size);
        CHECK(i != 0 || cuda.id == 0 || info.backend.id == cuda.id);
        cuda = info.backend;
    }
    CHECK_STATUS(dtl_mem_query(memory + size, &info), DTL_ERROR_NOT_FOUND);
}

/* Copies and fills at the start, in the middle and across the end. */
static void copied(unsigned char* memory, size_t size, int seed) {
    const int64_t shape[2] = {16, 8}, apart[2] = {64, 1}, close[2] = {8, 1};
    fill(host, size, seed);
    CHECK_OK(dtl_mem_copy(memory, host, size));
    memset(back, 0, size);
    CHECK_OK(dtl_mem_copy(back, memory, size));
    CHECK(is_filled(back, size, seed));
    CHECK_OK(dtl_mem_copy(back, memory + 1000, 50));
    CHECK(memcmp(back, host + 1000, 50) == 0);
    CHECK_OK(dtl_mem_fill(memory + 5, 0x77, 90));
    CHECK_OK(dtl_mem_copy(back, memory, 100));
    CHECK(memcmp(back, host, 5) == 0 && memcmp(back + 95, host + 95, 5) == 0 && back[5] == 0x77 && back[94] == 0x77);
    CHECK_OK(dtl_mem_copy_2d(memory, 64, host, 8, 8, 16));
    CHECK_OK(dtl_mem_copy_strided(back, close, memory, apart, shape, 2, 1));
    CHECK(memcmp(back, host, 128) == 0);
    CHECK_STATUS(dtl_mem_copy(back, memory + size - 10, 11), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_fill(memory + size - 10, 1, 11), DTL_ERROR_OUT_OF_BOUNDS);
}

/* The same memory as an imported array of another library: copies find its device in the array. */
static void imported(unsigned char* memory, size_t size, int device) {
    static int64_t shape[1];
    dtl_dlpack_managed_t tensor;
    dtl_array_t array;
    memset(&tensor, 0, sizeof tensor);
    shape[0] = (int64_t)size;
    tensor.tensor.data = memory, tensor.tensor.shape = shape, tensor.tensor.ndim = 1;
    tensor.tensor.device.device_type = 2, tensor.tensor.device.device_id = device; /* kDLCUDA */
    tensor.tensor.dtype.code = 1, tensor.tensor.dtype.bits = 8, tensor.tensor.dtype.lanes = 1;
    CHECK_OK(dtl_array_import_unversioned(cuda, &tensor, &array));
    fill(host, size, 9);
    CHECK_OK(dtl_mem_copy(memory, host, size));
    CHECK_OK(dtl_mem_fill(memory, 3, 10));
    CHECK_OK(dtl_mem_copy(back, memory, size));
    CHECK(back[9] == 3 && memcmp(back + 10, host + 10, size - 10) == 0);
    CHECK_OK(dtl_array_destroy(array));
}

/* Messages around a ring, and collectives. */
static void sent(unsigned char* out, unsigned char* in, uint64_t size) {
    const int32_t next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    dtl_request_t requests[2];
    uint32_t i, sum[4] = {0};
    fill(host, size, me);
    CHECK_OK(dtl_mem_copy(out, host, size));
    CHECK_OK(dtl_mem_fill(in, 0, size));
    CHECK_OK(dtl_comm_irecv(DTL_COMM_WORLD, in, size, DTL_DTYPE_UINT8, before, 1, &requests[0]));
    CHECK_OK(dtl_comm_isend(DTL_COMM_WORLD, out, size, DTL_DTYPE_UINT8, next, 1, &requests[1]));
    for (i = 0; i < 2; i++) CHECK_OK(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_mem_copy(back, in, size));
    CHECK(is_filled(back, size, before));
    CHECK_OK(dtl_mem_fill(in, 0, size));
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_WORLD, out, size, next, 2, in, size, before, 2, DTL_DTYPE_UINT8, NULL));
    CHECK_OK(dtl_mem_copy(back, in, size));
    CHECK(is_filled(back, size, before));
    if (ranks > 1 && me == 0) CHECK_OK(dtl_comm_send(DTL_COMM_WORLD, out, size, DTL_DTYPE_UINT8, 1, 3));
    if (ranks > 1 && me == 1) {
        CHECK_OK(dtl_comm_recv(DTL_COMM_WORLD, in, size, DTL_DTYPE_UINT8, 0, 3, NULL));
        CHECK_OK(dtl_mem_copy(back, in, size));
        CHECK(is_filled(back, size, 0));
    }
    CHECK_OK(dtl_comm_bcast(DTL_COMM_WORLD, out, size, DTL_DTYPE_UINT8, 0));
    CHECK_OK(dtl_mem_copy(back, out, size));
    CHECK(is_filled(back, size, 0));
    for (i = 0; i < 4; i++) sum[i] = i + (uint32_t)me;
    CHECK_OK(dtl_mem_copy(out, sum, sizeof sum));
    CHECK_OK(dtl_comm_allreduce(DTL_COMM_WORLD, out, in, 4, DTL_DTYPE_UINT32, DTL_OP_SUM));
    CHECK_OK(dtl_mem_copy(sum, in, sizeof sum));
    for (i = 0; i < 4; i++) CHECK(sum[i] == i * (uint32_t)ranks + (uint32_t)(ranks * (ranks - 1) / 2));
}

/* Windows take host memory only, also as origin buffers. */
static void refused_by_windows(unsigned char* memory) {
    dtl_win_t win;
    CHECK_STATUS(dtl_win_create(DTL_COMM_WORLD, memory, 64, 1, &win), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_win_create(DTL_COMM_WORLD, global, sizeof global, 1, &win));
    CHECK_OK(dtl_win_fence(win));
    CHECK_STATUS(dtl_win_put(win, memory, 8, DTL_DTYPE_UINT8, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_win_get(win, memory, 8, DTL_DTYPE_UINT8, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_destroy(win));
}

/* The driver is not queried about ranges that only hold host memory, nor about the library's memory. */
OWN_STACK static void not_queried(void) {
    unsigned char local[64], *small = (unsigned char*)malloc(64);
    unsigned char* buffers[3];
    void* ours = NULL;
    dtl_backend_t plain;
    int i, before;
    buffers[0] = local, buffers[1] = small, buffers[2] = global;
#ifdef __SANITIZE_ADDRESS__
    buffers[1] = global; /* its malloc takes mappings */
#endif
    CHECK_OK(dtl_backend_get("host", &plain));
    CHECK_OK(dtl_mem_alloc(plain, DTL_MEMORY_HOST, 64, 0, &ours));
    memset(local, 1, sizeof local), memset(small, 2, 64), memset(ours, 3, 64);
    for (i = 0; i < 2; i++) {
        int k;
        before = queries();
        for (k = 0; k < 3; k++) {
            CHECK_OK(dtl_comm_sendrecv(DTL_COMM_WORLD, buffers[k], 32, me, 9, buffers[k] + 32, 32, me, 9, DTL_DTYPE_UINT8, NULL));
            CHECK_OK(dtl_comm_bcast(DTL_COMM_WORLD, buffers[k], 64, DTL_DTYPE_UINT8, 0));
            CHECK_OK(dtl_mem_copy(ours, buffers[k], 64));
        }
    }
    CHECK(queries() == before);
    CHECK_OK(dtl_mem_free(plain, ours));
    free(small);
}

static void drop_virtual(unsigned char* pieces) {
    CHECK(function("cuMemUnmap")(pieces, (size_t)2 * PIECE) == 0);
    CHECK(function("cuMemAddressFree")(pieces, (size_t)2 * PIECE) == 0);
}

/* Device memory is mapped where host memory was, and the reverse: no stale result is used. */
static void reused(void) {
    const size_t all = 2 * PIECE;
    unsigned char *device, *old = (unsigned char*)mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int i;
    CHECK(old != (unsigned char*)MAP_FAILED);
    for (i = 0; i < 2; i++)
        CHECK_OK(dtl_comm_sendrecv(DTL_COMM_WORLD, old, 8, me, 5, old + 8, 8, me, 5, DTL_DTYPE_UINT8, NULL));
    CHECK(munmap(old, all) == 0);
    device = virtual_memory(old);
    CHECK(device == old);
    CHECK_OK(dtl_mem_copy(device, host, all));
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_WORLD, device, 8, me, 5, device + 8, 8, me, 5, DTL_DTYPE_UINT8, NULL));
    drop_virtual(device);
    old = (unsigned char*)mmap(old, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(old == device);
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_WORLD, old, 8, me, 5, old + 8, 8, me, 5, DTL_DTYPE_UINT8, NULL));
    CHECK(munmap(old, all) == 0);
}

/* Memory of the driver that the host can access. */
static void host_reached(void) {
    unsigned char *managed, *pinned = NULL, *registered;
    number_t out = 0;
    const size_t size = 1 << 16;
    CHECK(function("cuMemAllocManaged")(&out, size, 1u) == 0);
    managed = (unsigned char*)pointer(out);
    CHECK(function("cuMemHostAlloc")(&pinned, size, 0u) == 0);
    registered = (unsigned char*)mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(function("cuMemHostRegister_v2")(registered, size, 3u) == 0);
    described(managed, size, DTL_MEMORY_MANAGED, 0);
    described(pinned, size, DTL_MEMORY_PINNED, 0);
    described(registered, size, DTL_MEMORY_PINNED, 0);
    sent(managed, pinned, size), sent(pinned, managed, size), sent(registered, managed, 1000);
    /* Only the first half of this buffer is registered; the whole is usable host memory. */
    fill(registered, 2 * size, 8);
    CHECK_OK(dtl_mem_copy(back, registered, 2 * size));
    CHECK(is_filled(back, 2 * size, 8));
    CHECK_OK(dtl_mem_fill(registered, 0x11, 2 * size));
    CHECK(registered[0] == 0x11 && registered[2 * size - 1] == 0x11);
    CHECK(function("cuMemHostUnregister")(registered) == 0);
    CHECK(function("cuMemFreeHost")(pinned) == 0);
    CHECK(function("cuMemFree_v2")(managed) == 0);
    CHECK(munmap(registered, 2 * size) == 0);
}

/* A failed query says nothing about the address, so nothing is copied. Device memory is gone with its context. */
static void failed_queries(const char* path) {
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    unsigned char *device, local[8];
    CHECK(setenv("FAKE_CUDA_FAIL",
                 "cuPointerGetAttributes:1:999,cuPointerGetAttributes:1:999,cuPointerGetAttributes:1:1,"
                 "cuPointerGetAttributes:1:709", 1) == 0);
    begin_cuda(path);
    CHECK_OK(dtl_init(NULL));
    device = device_memory(0, SIZE);
    CHECK_STATUS(dtl_mem_query(device, &info), DTL_ERROR_CUDA);
    CHECK(strstr(dtl_last_error(), "cuPointerGetAttributes") != NULL);
    CHECK_STATUS(dtl_mem_copy(local, device, sizeof local), DTL_ERROR_CUDA);
    CHECK_STATUS(dtl_mem_query(device, &info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_query(device, &info), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_query(device, &info));
    CHECK_OK(dtl_mem_copy(local, device, sizeof local));
    CHECK(function("cuMemFree_v2")(device) == 0);
    CHECK_OK(dtl_finalize());
}

int main(int argc, char** argv) {
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    unsigned char *one, *other, *pooled, *pieces;
    const char* path = NULL;
    int i, late = 0;
    for (i = 1; i < argc; i++) late |= strcmp(argv[i], "late") == 0;
    path = getenv("DTL_CUDA_LIBRARY");
    if (path == NULL) SKIP("DTL_CUDA_LIBRARY names no driver");
    if (argc > 1 && strcmp(argv[argc - 1], "fails") == 0) return failed_queries(path), printf("ok\n"), 0;
    if (!late) begin_cuda(path);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &ranks));
    if (late) {
        int32_t there = 0;
        begin_cuda(path);
        CHECK_OK(dtl_backend_get("cuda", &cuda));
        CHECK_OK(dtl_backend_is_available(cuda, &there, NULL, 0, NULL));
        CHECK(there);
    }
    host = (unsigned char*)malloc(2 * PIECE), back = (unsigned char*)malloc(2 * PIECE);
    CHECK(host != NULL && back != NULL);
    one = device_memory(0, SIZE), other = device_memory(1, SIZE), pooled = pool_memory(SIZE), pieces = virtual_memory(NULL);
    described(one, SIZE, DTL_MEMORY_DEVICE, 0);
    described(other, SIZE, DTL_MEMORY_DEVICE, 1);
    described(pooled, SIZE, DTL_MEMORY_DEVICE, 0);
    copied(one, SIZE, 1), copied(other, SIZE, 2), copied(pooled, SIZE, 3), copied(pieces, 2 * PIECE, 4);
    fill(host, SIZE, 6); /* between devices; no side is an allocation of the library */
    CHECK_OK(dtl_mem_copy(one, host, SIZE));
    CHECK_OK(dtl_mem_copy(other, one, SIZE));
    CHECK_OK(dtl_mem_copy(pooled, other, SIZE));
    CHECK_OK(dtl_mem_copy(pieces, pooled, SIZE));
    CHECK_OK(dtl_mem_copy(back, pieces, SIZE));
    CHECK(is_filled(back, SIZE, 6));
    sent(one, other, 8), sent(one, pooled, SIZE), sent(pieces, one, SIZE), sent(host + PIECE, other, 100);
    imported(one, SIZE, 0), imported(other, SIZE, 1);
    CHECK_STATUS(dtl_comm_isend(DTL_COMM_WORLD, one + SIZE - 4, 5, DTL_DTYPE_UINT8, me, 1, (dtl_request_t*)&info.base),
                 DTL_ERROR_OUT_OF_BOUNDS);
    refused_by_windows(one);
    host_reached();
    not_queried();
    reused();
    CHECK(function("cuMemFree_v2")(one) == 0 && function("cuMemFree_v2")(other) == 0);
    CHECK_STATUS(dtl_mem_query(one, &info), DTL_ERROR_NOT_FOUND);
    CHECK(function("cuMemFreeAsync")(pooled, (void*)NULL) == 0);
    CHECK(function("cuStreamSynchronize")(NULL) == 0);
    CHECK_STATUS(dtl_mem_query(pooled, &info), DTL_ERROR_NOT_FOUND);
    drop_virtual(pieces);
    CHECK_OK(dtl_finalize());
    free(host), free(back);
    printf("ok\n");
    return 0;
}
