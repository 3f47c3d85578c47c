/* Backend cuda, over a driver that is none (tests/cuda/fake_cuda.h), named by DTL_CUDA_LIBRARY. Arguments:
 *     (none)    two devices: threads, memory, copies, streams, events, native streams, counts
 *     optional  the same as far as it goes over a driver without pools and without words that a stream waits for
 *     faults    calls that fail, a device that is lost
 *     absent    no driver, and drivers that cannot be used: each says why
 *     device    what holds with any driver: for a real device (tests/gpu), of which there may be one */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* usleep, barriers */
#endif
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((uint64_t)1 << 20)

static dtl_backend_t cuda;
static void* driver; /* the fake, for what a program does with CUDA by itself */
static int any;      /* it may be a real one */
static int32_t second = 1; /* the other device; 0 where there is one */

#ifdef __cplusplus
extern "C" {
#endif
typedef unsigned (*driver_fn)(void*, ...);
#ifdef __cplusplus
}
#endif

/* A function of the driver's: first argument a pointer. */
static driver_fn function(const char* name) {
    driver_fn found;
    void* at = dlsym(driver, name);
    CHECK(at != NULL);
    memcpy(&found, &at, sizeof found);
    return found;
}

static void* current_context(void) {
    void* context = &context;
    CHECK(function("cuCtxGetCurrent")(&context) == 0);
    return context;
}

static void* take(dtl_enum_word_t kind, uint64_t size) {
    void* memory = NULL;
    CHECK_OK(dtl_mem_alloc(cuda, kind, size, 0, &memory));
    return memory;
}

static dtl_stream_t new_stream(int32_t device) {
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(cuda, device, 0, &stream));
    return stream;
}

static dtl_event_t new_event(void) {
    dtl_event_t event;
    CHECK_OK(dtl_event_create(cuda, 0, &event));
    return event;
}

static void begin(const char* library) {
    if (library != NULL) setenv("DTL_CUDA_LIBRARY", library, 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("cuda", &cuda));
}

static void says(const char* text, const char* reason) {
    if (strstr(text, reason) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", reason, text);
        exit(1);
    }
}

/* ---- not there -------------------------------------------------------------------------------- */

static void unavailable(const char* library, const char* reason) {
    int32_t yes = 7, count = 7;
    char why[1000];
    void* memory = &yes;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    dtl_mem_kind_info_t kind = DTL_MEM_KIND_INFO_INIT;
    dtl_backend_t automatic, host;
    begin(library);
    CHECK_OK(dtl_backend_is_available(cuda, &yes, why, sizeof why, NULL));
    CHECK(yes == 0);
    says(why, reason);
    CHECK_STATUS(dtl_backend_device_count(cuda, &count), DTL_ERROR_UNAVAILABLE);
    CHECK(count == 7);
    says(dtl_last_error(), reason);
    CHECK_STATUS(dtl_backend_set_device(cuda, 0), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_info(cuda, 0, &info), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_kind_info(cuda, DTL_MEMORY_DEVICE, &kind), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &memory), DTL_ERROR_UNAVAILABLE);
    CHECK(memory == &yes);
    CHECK_STATUS(dtl_stream_create(cuda, 0, 0, &stream), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_stream_wrap(cuda, NULL, &stream), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_event_create(cuda, 0, &event), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_wait(cuda, 0, DTL_TIMEOUT_INFINITE), DTL_ERROR_UNAVAILABLE);
    /* A choice by itself goes on to the next one. */
    CHECK_OK(dtl_backend_get("auto", &automatic));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK(automatic.id == host.id);
    CHECK_OK(dtl_finalize());
}

static void test_absent(const char* fake, const char* without) {
    unavailable("/no/such/libcuda.so.1", "DTL_CUDA_LIBRARY=/no/such/libcuda.so.1");
    unavailable("libc.so.6", "no function cuInit");
    unavailable(without, "no function cuCtxSynchronize"); /* a required one is missing */
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    unavailable(fake, "finds no device");
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("FAKE_CUDA_VERSION", "10020", 1);
    unavailable(fake, "CUDA 10.2");
    unsetenv("FAKE_CUDA_VERSION");
    setenv("FAKE_CUDA_FAIL", "cuInit:1:999", 1);
    unavailable(fake, "cuInit: CUDA says CUDA_ERROR_UNKNOWN (999), unknown error");
    setenv("FAKE_CUDA_FAIL", "cuInit:1:4711", 1);
    unavailable(fake, "a code that the driver has no name for (4711)");
}

/* ---- devices ---------------------------------------------------------------------------------- */

static pthread_barrier_t meeting;

/* Two threads with a device each: each sees its own, and so does its memory. The thread's CUDA context stays. */
static void* user_of_device(void* argument) {
    const int32_t mine = *(const int32_t*)argument;
    int round;
    CHECK_OK(dtl_backend_set_device(cuda, mine));
    pthread_barrier_wait(&meeting);
    for (round = 0; round < 100; round++) {
        int32_t device = -1;
        dtl_mem_info_t info = DTL_MEM_INFO_INIT;
        unsigned char* memory = (unsigned char*)take(DTL_MEMORY_DEVICE, 4096);
        unsigned char back[4096];
        CHECK_OK(dtl_backend_get_device(cuda, &device));
        CHECK(device == mine);
        CHECK_OK(dtl_mem_query(memory + 100, &info));
        CHECK(info.device == mine && info.base == memory && info.size_bytes == 4096);
        CHECK_OK(dtl_mem_fill(memory, (uint8_t)(round + mine), 4096));
        CHECK_OK(dtl_mem_copy(back, memory, 4096));
        CHECK(back[0] == (uint8_t)(round + mine) && back[4095] == back[0]);
        CHECK_STATUS(dtl_backend_set_device(cuda, 1000), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_STATUS(dtl_backend_set_device(cuda, -1), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_OK(dtl_mem_free(cuda, memory));
    }
    CHECK(current_context() == NULL);
    return NULL;
}

static void test_devices(void) {
    int32_t count = 0, number[2] = {0, 1}, i;
    pthread_t threads[2];
    dtl_backend_t automatic;
    CHECK_OK(dtl_backend_get("auto", &automatic));
    CHECK(automatic.id == cuda.id);
    CHECK_OK(dtl_backend_device_count(cuda, &count));
    CHECK(any || count == 2);
    number[1] = second;
    for (i = 0; i < count; i++) {
        dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
        uint64_t free_bytes = 1, total = 0;
        CHECK_OK(dtl_device_info(cuda, i, &info));
        CHECK_OK(dtl_device_memory_info(cuda, i, &free_bytes, &total));
        CHECK(info.kind == DTL_DEVICE_GPU && info.compute_units > 0 && info.name[0] != 0 && info.max_block_threads >= 512);
        CHECK(total > 0 && free_bytes <= total);
        if (any) continue;
        CHECK(info.compute_units == 4 && info.max_block_threads == 1024);
        CHECK(info.max_block[2] == 64 && info.max_grid[2] == 65535 && strstr(info.name, "Fake GPU") != NULL);
        CHECK(strstr(info.pci, i == 0 ? ":00:" : ":01:") != NULL);
        CHECK(total == info.total_bytes && total == (uint64_t)1 << 30);
    }
    pthread_barrier_init(&meeting, NULL, 2);
    for (i = 0; i < 2; i++) pthread_create(&threads[i], NULL, user_of_device, &number[i]);
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* ---- memory and copies ------------------------------------------------------------------------ */

static void test_memory(void) {
    unsigned char *here = (unsigned char*)malloc(BYTES), *one, *other, *both, *pinned;
    void* out = &cuda;
    uint64_t i, align;
    for (i = 0; i < BYTES; i++) here[i] = (unsigned char)(i * 7 + i / 251);
    CHECK_OK(dtl_backend_set_device(cuda, 0));
    one = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    CHECK_OK(dtl_backend_set_device(cuda, second));
    other = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    both = (unsigned char*)take(DTL_MEMORY_MANAGED, BYTES);
    pinned = (unsigned char*)take(DTL_MEMORY_PINNED, BYTES);
    CHECK_OK(dtl_mem_copy(one, here, BYTES));
    CHECK_OK(dtl_mem_copy(other, one, BYTES)); /* from device to device */
    CHECK_OK(dtl_mem_copy(pinned, one, BYTES)); /* of another device than the pinned memory's */
    CHECK(memcmp(pinned, here, BYTES) == 0);
    CHECK_OK(dtl_mem_copy(both + 1, other + 1, BYTES - 2));
    CHECK(memcmp(both + 1, here + 1, BYTES - 2) == 0); /* the host reads it as it is */
    CHECK_OK(dtl_mem_copy_2d(one, 1000, here, 2000, 10, 100));
    CHECK_OK(dtl_mem_copy(both, one, BYTES));
    CHECK(memcmp(both + 99000, here + 198000, 10) == 0 && both[99010] == here[99010]);
    CHECK_OK(dtl_mem_copy_2d(other, 500, one, 1000, 10, 100)); /* rows between two devices */
    CHECK_OK(dtl_mem_copy(both, other, BYTES));
    CHECK(memcmp(both + 49500, here + 198000, 10) == 0 && both[49510] == here[49510]);
    for (align = 1; align <= 1 << 16; align *= 4) {
        void* memory = NULL;
        CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 333, align, &memory));
        CHECK((uintptr_t)memory % align == 0);
        CHECK_OK(dtl_mem_fill(memory, 5, 333));
        CHECK_OK(dtl_mem_free(cuda, memory));
    }
    /* What the pool keeps without use is given back when somebody needs it: 600 of 1024 MiB. */
    for (i = 0; i < 2 && !any; i++) {
        out = take(i == 0 ? DTL_MEMORY_DEVICE : DTL_MEMORY_MANAGED, (uint64_t)600 << 20);
        CHECK_OK(dtl_mem_free(cuda, out));
    }
    CHECK_OK(dtl_mem_trim(cuda));
    /* Faults: far too much, a kind that is another backend's, a range over the end. */
    out = &cuda;
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, (uint64_t)1 << 40, 0, &out), DTL_ERROR_OUT_OF_MEMORY);
    says(dtl_last_error(), "CUDA_ERROR_OUT_OF_MEMORY (2)");
    if (!any) says(dtl_last_error(), "of 1073741824 bytes");
    CHECK(out == &cuda);
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_HOST, 64, 0, &out), DTL_ERROR_NOT_SUPPORTED);
    says(dtl_last_error(), "PINNED");
    CHECK_STATUS(dtl_mem_copy(one + 1, here, BYTES), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_free(cuda, NULL));
    CHECK_OK(dtl_mem_free(cuda, one));
    CHECK_STATUS(dtl_mem_free(cuda, one), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(cuda, other));
    CHECK_OK(dtl_mem_free(cuda, both));
    CHECK_OK(dtl_mem_free(cuda, pinned));
    free(here);
}

/* ---- streams and events ----------------------------------------------------------------------- */

static dtl_status_t sleep_then_fail(void* user) {
    usleep(20000);
    ++*(int*)user;
    return DTL_ERROR_CANCELED;
}

static dtl_status_t sleep_then_count(void* user) {
    usleep(20000);
    ++*(int*)user;
    return DTL_SUCCESS;
}

/* A stream of one device waits for an event of the other; a failure travels with it. */
static void test_events(void) {
    dtl_stream_t first = new_stream(0), next = new_stream(second);
    dtl_event_t before = new_event(), after = new_event(), quick;
    unsigned char *device, *here = (unsigned char*)take(DTL_MEMORY_PINNED, BYTES); /* others may be waited for */
    uint64_t ns = 0;
    int32_t state = 7;
    int runs = 0, i;
    memset(here, 1, BYTES);
    CHECK_OK(dtl_backend_set_device(cuda, 0));
    device = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    CHECK_OK(dtl_event_wait(after, DTL_TIMEOUT_INFINITE)); /* never recorded */
    CHECK_OK(dtl_event_record(before, first));
    CHECK_OK(dtl_stream_host_callback(first, sleep_then_count, &runs));
    CHECK_OK(dtl_mem_copy_async(first, device, here, BYTES));
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_event_query(after, &state));
    CHECK(state == 0);
    CHECK_STATUS(dtl_event_wait(after, 1000000), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_event_elapsed_ns(before, after, &ns), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_stream_wait_event(next, after));
    CHECK_OK(dtl_mem_fill_async(next, device + 1, 9, 1));
    CHECK_OK(dtl_mem_copy_async(next, here, device, BYTES));
    CHECK_OK(dtl_stream_wait(next, DTL_TIMEOUT_INFINITE));
    CHECK(runs == 1 && here[0] == 1 && here[1] == 9 && here[BYTES - 1] == 1);
    CHECK_OK(dtl_event_elapsed_ns(before, after, &ns));
    CHECK(ns >= 15000000 && ns < 10000000000u);
    CHECK_STATUS(dtl_event_elapsed_ns(after, before, &ns), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_event_record(before, next));
    CHECK_OK(dtl_event_wait(before, DTL_TIMEOUT_INFINITE));
    if (second != 0) {
        CHECK_STATUS(dtl_event_elapsed_ns(after, before, &ns), DTL_ERROR_INVALID_ARGUMENT);
        says(dtl_last_error(), "clocks");
    }
    CHECK_OK(dtl_event_create(cuda, DTL_EVENT_NO_TIMING, &quick));
    CHECK_STATUS(dtl_event_elapsed_ns(quick, after, &ns), DTL_ERROR_INVALID_ARGUMENT);

    CHECK_OK(dtl_stream_host_callback(first, sleep_then_fail, &runs));
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_stream_wait_event(next, after));
    CHECK_OK(dtl_mem_copy_async(next, device, here, BYTES)); /* work behind a failure runs */
    CHECK_STATUS(dtl_event_wait(after, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_STATUS(dtl_stream_wait(next, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_stream_wait(next, DTL_TIMEOUT_INFINITE)); /* once */
    CHECK_STATUS(dtl_stream_wait(first, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_event_wait(after, DTL_TIMEOUT_INFINITE));

    /* Two streams that wait for each other's events in turn, without anybody who asks meanwhile. */
    for (i = 0; i < 1000; i++) {
        CHECK_OK(dtl_event_record(before, first));
        CHECK_OK(dtl_stream_wait_event(next, before));
        CHECK_OK(dtl_event_record(after, next));
        CHECK_OK(dtl_stream_wait_event(first, after));
    }
    CHECK_OK(dtl_stream_wait(first, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(before));
    CHECK_OK(dtl_event_destroy(after));
    CHECK_OK(dtl_event_destroy(quick));
    CHECK_OK(dtl_stream_destroy(first));
    CHECK_OK(dtl_stream_destroy(next));
    CHECK_OK(dtl_mem_free(cuda, device));
    CHECK_OK(dtl_mem_free(cuda, here));
}

static int go; /* what wait_for_go waits for */

static dtl_status_t wait_for_go(void* runs) {
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) usleep(1000);
    ++*(int*)runs;
    return DTL_SUCCESS;
}

static void* free_pinned(void* memory) {
    pthread_barrier_wait(&meeting);
    CHECK_OK(dtl_mem_free(cuda, memory));
    return NULL;
}

/* The driver waits for all streams while page-locked memory is freed, and most of its calls wait for that. Callbacks that
 * are queued run all the same. */
static void test_callbacks_while_freeing(void) {
    dtl_stream_t held = new_stream(0), other = new_stream(0);
    void* memory = take(DTL_MEMORY_PINNED, BYTES);
    pthread_t thread;
    int runs = 0, others = 0, i;
    go = 0;
    CHECK_OK(dtl_stream_host_callback(other, sleep_then_count, &others));
    CHECK_OK(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 3; i++) CHECK_OK(dtl_stream_host_callback(held, wait_for_go, &runs));
    CHECK_OK(dtl_stream_destroy(other)); /* does not wait for the other stream */
    CHECK(runs == 0 && others == 1);
    pthread_create(&thread, NULL, free_pinned, memory);
    pthread_barrier_wait(&meeting);
    usleep(50000);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    CHECK_OK(dtl_stream_wait(held, DTL_TIMEOUT_INFINITE));
    CHECK(runs == 3);
    pthread_join(thread, NULL);
    CHECK_OK(dtl_stream_destroy(held));
}

/* Messages of device memory are staged through page-locked memory, which is used again; very large ones are not. */
static void test_messages(void) {
    static const uint64_t sizes[] = {8, 100000, 3 << 20, 3 << 20, (16 << 20) + 1};
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    dtl_request_t request;
    unsigned char last = 0;
    int (*pageable)(void);
    void* at = dlsym(driver, "fake_cuda_pageable");
    size_t i;
    desc.kind = "self";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    if (at != NULL) memcpy(&pageable, &at, sizeof pageable);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        unsigned char *from = (unsigned char*)take(DTL_MEMORY_DEVICE, sizes[i]), *to = (unsigned char*)take(DTL_MEMORY_DEVICE, sizes[i]);
        int before;
        CHECK_OK(dtl_mem_fill(from, (uint8_t)(i + 1), sizes[i]));
        CHECK_OK(dtl_mem_fill(to, 0, sizes[i]));
        before = at != NULL ? pageable() : 0;
        CHECK_OK(dtl_comm_isend(comm, from, sizes[i], DTL_DTYPE_UINT8, 0, 3, &request));
        CHECK_OK(dtl_comm_recv(comm, to, sizes[i], DTL_DTYPE_UINT8, 0, 3, NULL));
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(at == NULL || (pageable() == before) == (sizes[i] <= 16 << 20));
        CHECK_OK(dtl_mem_copy(&last, to + sizes[i] - 1, 1));
        CHECK(last == i + 1);
        CHECK_OK(dtl_mem_free(cuda, from));
        CHECK_OK(dtl_mem_free(cuda, to));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

static dtl_stream_t shared;

static void* use_shared(void* unused) {
    dtl_status_t status = DTL_SUCCESS;
    pthread_barrier_wait(&meeting);
    while (status == DTL_SUCCESS) status = dtl_stream_wait(shared, DTL_TIMEOUT_INFINITE);
    CHECK(status == DTL_ERROR_INVALID_HANDLE || status == DTL_ERROR_CANCELED);
    return unused;
}

/* A stream is destroyed while another thread uses it; its work is done nonetheless. */
static void test_destroy(void) {
    pthread_t thread;
    dtl_stream_t stream;
    int runs = 0;
    shared = new_stream(0);
    pthread_create(&thread, NULL, use_shared, NULL);
    CHECK_OK(dtl_stream_host_callback(shared, sleep_then_count, &runs));
    pthread_barrier_wait(&meeting);
    CHECK_OK(dtl_stream_destroy(shared));
    pthread_join(thread, NULL);
    CHECK(runs == 1);
    CHECK_STATUS(dtl_stream_create(cuda, any ? 1000 : 2, 0, &stream), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(cuda, -1, 0, &stream), DTL_ERROR_OUT_OF_BOUNDS);
}

/* Streams of the program's: the default ones, one of the primary context, one of a context of its own. Each call leaves
 * the program's context current. */
static void* user_of_context(void* unused) {
    void* context = NULL;
    int32_t device = 7;
    CHECK(function("cuCtxCreate_v2")(&context, 0, second) == 0);
    CHECK_OK(dtl_backend_get_device(cuda, &device));
    CHECK(device == second && current_context() == context);
    CHECK(function("cuCtxDestroy_v2")(context) == 0);
    CHECK_OK(dtl_backend_get_device(cuda, &device));
    CHECK(device == 0);
    return unused;
}

static void test_native(void) {
    pthread_t thread;
    void *sentinels[] = {NULL, (void*)1, (void*)2}, *own = NULL, *context = NULL, *native = &own;
    void* memory = NULL;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_stream_t stream, wrapped;
    dtl_event_t event = new_event();
    unsigned char* device;
    unsigned char back[64];
    int32_t current = 7;
    int runs = 0, i;
    /* A thread that chose no device here has that of its CUDA context. */
    pthread_create(&thread, NULL, user_of_context, NULL);
    pthread_join(thread, NULL);
    CHECK(function("cuCtxCreate_v2")(&context, 0, second) == 0);
    CHECK_OK(dtl_backend_set_device(cuda, second));
    device = (unsigned char*)take(DTL_MEMORY_DEVICE, 64);
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_stream_wrap(cuda, sentinels[i], &wrapped));
        CHECK_OK(dtl_stream_native(wrapped, &native));
        CHECK(native == sentinels[i]);
        CHECK_OK(dtl_stream_host_callback(wrapped, sleep_then_count, &runs));
        CHECK_OK(dtl_mem_fill_async(wrapped, device, (uint8_t)(i + 1), 64));
        CHECK_OK(dtl_event_record(event, wrapped));
        CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
        CHECK_OK(dtl_mem_copy(back, device, 64));
        CHECK(runs == i + 1 && back[63] == i + 1);
        CHECK_OK(dtl_stream_destroy(wrapped));
    }
    /* Memory of the program's. */
    CHECK(function("cuMemAlloc_v2")(&memory, 5000) == 0);
    CHECK_OK(dtl_mem_query((char*)memory + 4999, &info));
    CHECK(info.backend.id == cuda.id && info.device == second && info.kind == DTL_MEMORY_DEVICE);
    CHECK(info.base == memory && info.size_bytes >= 5000);
    CHECK_OK(dtl_mem_copy(device, memory, 64)); /* one side is the library's */
    CHECK(function("cuMemFree_v2")(memory) == 0);
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_query(back, &info), DTL_ERROR_NOT_FOUND);
    CHECK(function("cuStreamCreate")(&own, 1) == 0); /* of the program's context */
    CHECK_OK(dtl_stream_wrap(cuda, own, &wrapped));
    CHECK_OK(dtl_mem_fill_async(wrapped, device, 77, 64));
    CHECK_OK(dtl_event_record(event, wrapped));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_wait(wrapped, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(wrapped));
    if (second != 0) {
        CHECK_OK(dtl_backend_set_device(cuda, 0));
        CHECK_STATUS(dtl_stream_wrap(cuda, own, &wrapped), DTL_ERROR_INVALID_ARGUMENT); /* of another device */
    }
    CHECK(current_context() == context);
    stream = new_stream(second); /* only the handle goes */
    CHECK_OK(dtl_stream_native(stream, &native));
    CHECK_OK(dtl_backend_set_device(cuda, second));
    CHECK_OK(dtl_stream_wrap(cuda, native, &wrapped));
    CHECK_OK(dtl_stream_destroy(wrapped));
    CHECK_OK(dtl_stream_host_callback(stream, sleep_then_count, &runs));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK(runs == 4);
    CHECK_OK(dtl_event_destroy(event)); /* before its context */
    CHECK_OK(dtl_mem_free(cuda, device));
    CHECK_OK(dtl_backend_get_device(cuda, &current));
    CHECK(current == second && current_context() == context);
    CHECK(function("cuStreamDestroy_v2")(own) == 0);
    usleep(10000);
    CHECK(function("cuCtxDestroy_v2")(context) == 0);
}

/* What is done where a driver cannot hold a stream for the host. */
static void test_without_holding(void) {
    dtl_stream_t stream = new_stream(0);
    int runs = 0;
    CHECK_OK(dtl_stream_host_callback(stream, sleep_then_count, &runs));
    CHECK(runs == 1);
    CHECK_OK(dtl_stream_destroy(stream));
}

/* ---- faults ------------------------------------------------------------------------------------ */

/* A call that fails once: its status, the driver's code and text, and no harm to what comes later. */
static void test_failing(const char* fake) {
    void* memory = NULL;
    dtl_stream_t stream = DTL_STREAM_NULL;
    unsigned char back[64] = {0};
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    setenv("FAKE_CUDA_FAIL", "cuMemcpyAsync:1:999,cuMemcpyAsync:1:4711,cuStreamCreate:3:2,cuMemAllocFromPoolAsync:2:1", 1);
    begin(fake);
    memory = take(DTL_MEMORY_DEVICE, 64);
    CHECK_STATUS(dtl_mem_copy(back, memory, 64), DTL_ERROR_CUDA);
    says(dtl_last_error(), "CUDA_ERROR_UNKNOWN (999), unknown error");
    CHECK_STATUS(dtl_mem_copy(back, memory, 64), DTL_ERROR_CUDA);
    says(dtl_last_error(), "(4711)");
    CHECK_OK(dtl_mem_copy(back, memory, 64));
    CHECK_STATUS(dtl_stream_create(cuda, 0, 0, &stream), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(stream.id == 0);
    stream = new_stream(0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &memory), DTL_ERROR_CUDA);
    CHECK_OK(dtl_mem_stats(cuda, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
    CHECK_OK(dtl_finalize());
    unsetenv("FAKE_CUDA_FAIL");
}

/* A copy faults on the device: events, streams and calls say so, the other device goes on, everything can be freed. */
static void test_lost(const char* fake) {
    unsigned char *one, *other, *pinned, back[4096] = {0};
    dtl_stream_t stream, waiting;
    dtl_event_t event, earlier;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    void* out = &one;
    int32_t state = 7;
    int runs = 0;
    setenv("FAKE_CUDA_FAULT", "2:700", 1);
    begin(fake);
    CHECK_OK(dtl_backend_set_device(cuda, 0));
    one = (unsigned char*)take(DTL_MEMORY_DEVICE, 4096);
    pinned = (unsigned char*)take(DTL_MEMORY_PINNED, 4096); /* a copy to other host memory would be waited for */
    stream = new_stream(0);
    waiting = new_stream(0);
    event = new_event();
    earlier = new_event();
    CHECK_OK(dtl_mem_copy_async(stream, one, back, 4096));
    CHECK_OK(dtl_event_record(earlier, stream));
    CHECK_OK(dtl_event_wait(earlier, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_host_callback(stream, sleep_then_count, &runs));
    CHECK_OK(dtl_mem_copy_async(stream, pinned, one, 4096)); /* this one */
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_stream_host_callback(stream, sleep_then_count, &runs));
    CHECK_OK(dtl_stream_wait_event(waiting, event));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    says(dtl_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access");
    CHECK_STATUS(dtl_event_query(event, &state), DTL_ERROR_DEVICE_LOST);
    CHECK(state == 7);
    CHECK_STATUS(dtl_event_wait(event, 1000000), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_stream_wait(waiting, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_device_wait(cuda, 0, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_mem_copy(back, one, 4096), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_mem_copy_async(stream, back, one, 4096), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &out), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_stream_host_callback(stream, sleep_then_count, &runs), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_event_record(event, stream), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST); /* still that of the earlier record */
    CHECK(out == &one);
    /* The other device. */
    CHECK_OK(dtl_backend_set_device(cuda, 1));
    other = (unsigned char*)take(DTL_MEMORY_DEVICE, 4096);
    CHECK_OK(dtl_mem_fill(other, 3, 4096));
    CHECK_OK(dtl_mem_copy(back, other, 4096));
    CHECK(back[4095] == 3);
    CHECK_OK(dtl_mem_free(cuda, other));
    CHECK_OK(dtl_mem_free(cuda, one));
    CHECK_OK(dtl_mem_free(cuda, pinned));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_event_destroy(earlier));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(waiting));
    CHECK(runs == 2); /* callbacks are called all the same */
    CHECK_OK(dtl_mem_stats(cuda, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
    CHECK_OK(dtl_finalize());
    unsetenv("FAKE_CUDA_FAULT");
}

/* The driver has nothing left that was made by the library. */
static void check_live(void) {
    int (*live)(void);
    void* at = dlsym(driver, "fake_cuda_live");
    int round;
    if (any && at == NULL) return;
    CHECK(at != NULL);
    memcpy(&live, &at, sizeof live);
    for (round = 0; round < 100 && live() != 0; round++) usleep(10000); /* what is freed in a stream's order */
    if (live() != 0) fprintf(stderr, "%d objects of the driver are left\n", live());
    CHECK(live() == 0);
}

/* With whatever driver there is. */
static void any_devices(void) {
    char why[1000];
    int32_t count = 0, there = 0;
    begin(NULL);
    CHECK_OK(dtl_backend_is_available(cuda, &there, why, sizeof why, NULL));
    if (!there) SKIP(why);
    CHECK_OK(dtl_backend_device_count(cuda, &count));
    CHECK_OK(dtl_finalize());
    any = 1;
    second = count > 1;
}

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "";
    const char* fake = getenv("DTL_CUDA_LIBRARY");
    char variant[1000];
    dtl_mem_stats_t after = DTL_MEM_STATS_INIT;
    int round;
    if (strcmp(what, "device") == 0) any_devices();
    CHECK(fake != NULL || any);
    if (fake == NULL) fake = "libcuda.so.1";
    snprintf(variant, sizeof variant, "%.900s.%s", fake, what[0] == 'o' ? "optional" : "required");
    if (strcmp(what, "absent") == 0) {
        char* copy = strdup(fake);
        test_absent(copy, variant);
        free(copy);
        return 0;
    }
    if (strcmp(what, "optional") == 0) {
        setenv("DTL_CUDA_LIBRARY", variant, 1);
        fake = variant;
    }
    driver = dlopen(fake, RTLD_NOW);
    CHECK(driver != NULL);
    if (strcmp(what, "faults") == 0) {
        char* copy = strdup(fake);
        test_failing(copy);
        test_lost(copy);
        check_live();
        free(copy);
        return 0;
    }
    for (round = 0; round < 2; round++) { /* and once more after finalize */
        begin(NULL);
        test_devices();
        test_memory();
        if (strcmp(what, "optional") == 0) {
            test_without_holding();
        } else {
            test_events();
            test_callbacks_while_freeing();
            test_messages();
            test_destroy();
            test_native();
        }
        CHECK_OK(dtl_mem_stats(cuda, &after));
        CHECK(after.live_count == 0 && after.live_bytes == 0);
        CHECK_OK(dtl_finalize());
        check_live();
    }
    return 0;
}
