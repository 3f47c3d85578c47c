/* Memory that crosses to other processes and drivers, host memory that is registered, managed memory that moves; see fake_cuda.h. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NOT_FOUND_OR_GONE = 400, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, CANNOT = 801 };

/* A CUipcMemHandle. */
typedef struct handle {
    int process, fd, device;
    size_t size;
    char rest[64 - 3 * sizeof(int) - sizeof(int) - sizeof(size_t)];
} handle_t;

static int prefetches, prefetched_to;

/* For tests: how often managed memory was moved, and where to the last time. */
API int fake_cuda_prefetches(int* device);
API int fake_cuda_prefetches(int* device) {
    *device = prefetched_to;
    return prefetches;
}

static range_t* whole(ptr_t at) {
    range_t* range = fake_range((void*)(uintptr_t)at);
    return range != NULL && range->begin == (char*)(uintptr_t)at ? range : NULL;
}

API code_t cuIpcGetMemHandle(handle_t* out, ptr_t at) {
    code_t code = INVALID_VALUE;
    range_t* range;
    BEGIN(cuIpcGetMemHandle);
    LOCK();
    range = whole(at);
    if (range != NULL && range->kind == 'd') {
        memset(out, 0, sizeof *out);
        out->process = getpid(), out->fd = range->fd, out->device = range->device, out->size = range->size;
        code = SUCCESS;
    }
    UNLOCK();
    return code;
}

API code_t cuIpcOpenMemHandle_v2(ptr_t* out, handle_t handle, unsigned flags) {
    char name[64], *memory;
    int fd;
    BEGIN(cuIpcOpenMemHandle_v2);
    if (flags != 1) return INVALID_VALUE;
    if (handle.process == getpid()) return INVALID_CONTEXT;
    snprintf(name, sizeof name, "/proc/%d/fd/%d", handle.process, handle.fd);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) return NOT_FOUND_OR_GONE;
    memory = (char*)mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == (char*)MAP_FAILED) return close(fd), OUT_OF_MEMORY;
    LOCK();
    *out = (ptr_t)(uintptr_t)fake_list('o', memory, handle.size, fake_current()->device, fd)->begin;
    UNLOCK();
    return SUCCESS;
}

API code_t cuIpcCloseMemHandle(ptr_t at) {
    code_t code = INVALID_VALUE;
    range_t* range;
    BEGIN_RELEASE(cuIpcCloseMemHandle);
    LOCK();
    range = whole(at);
    if (range != NULL && range->kind == 'o') fake_release(range), code = SUCCESS;
    UNLOCK();
    return code;
}

API code_t cuMemHostRegister_v2(void* at, size_t size, unsigned flags) {
    code_t code = ALREADY_REGISTERED;
    BEGIN(cuMemHostRegister_v2);
    if (size == 0 || (flags != 1 && flags != 3)) return INVALID_VALUE;
    LOCK();
    if (fake_range(at) == NULL) fake_list('r', (char*)at, size, fake_current()->device, -1), code = SUCCESS;
    UNLOCK();
    return code;
}

API code_t cuMemHostUnregister(void* at) {
    code_t code = NOT_REGISTERED;
    range_t* range;
    BEGIN_RELEASE(cuMemHostUnregister);
    LOCK();
    range = whole((ptr_t)(uintptr_t)at);
    if (range != NULL && range->kind == 'r') {
        fake_drain(fake_current());
        fake_release(range);
        code = SUCCESS;
    }
    UNLOCK();
    return code;
}

API code_t cuMemPrefetchAsync(ptr_t at, size_t size, int device, void* stream) {
    code_t code = INVALID_VALUE;
    range_t* range;
    BEGIN(cuMemPrefetchAsync);
    (void)stream;
    LOCK();
    range = fake_range((void*)(uintptr_t)at);
    if (range != NULL && range->kind == 'm' && size <= range->size) prefetches++, prefetched_to = device, code = SUCCESS;
    UNLOCK();
    return code;
}

/* Of whole pages; the file's beginning is the range's. The real driver (580.159) refuses most ranges of a pool's memory,
 * with this code; cuMemAlloc's it gives. */
API code_t cuMemGetHandleForAddressRange(int* out, ptr_t at, size_t size, unsigned kind, unsigned long long flags) {
    range_t* range;
    code_t code = CANNOT;
    BEGIN(cuMemGetHandleForAddressRange);
    if (kind != 1 || flags != 0 || at % 4096 != 0 || size % 4096 != 0) return INVALID_VALUE;
    LOCK();
    range = whole(at);
    if (fake_range((void*)(uintptr_t)at) != NULL && fake_range((void*)(uintptr_t)at)->kind == 'p') code = INVALID_VALUE;
    if (range != NULL && range->kind == 'd') *out = dup(range->fd), code = *out >= 0 ? SUCCESS : OUT_OF_MEMORY;
    UNLOCK();
    return code;
}
