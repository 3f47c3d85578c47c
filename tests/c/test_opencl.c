/* Backend opencl, on PoCL's CPU pretended to be two devices. Arguments:
 *     (none)   devices of two threads, memory, copies, streams, events, faults, counts
 *     absent   DTL_OPENCL_LIBRARY names no library
 *     wrong    … names a library that is no OpenCL
 *     empty    the loader finds no driver */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* usleep, barriers */
#endif
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((uint64_t)1 << 20)

static dtl_backend_t cl;

static void* take(dtl_enum_word_t kind, uint64_t size) {
    void* memory = NULL;
    CHECK_OK(dtl_mem_alloc(cl, kind, size, 0, &memory));
    return memory;
}

static dtl_stream_t new_stream(int32_t device) {
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(cl, device, 0, &stream));
    return stream;
}

static dtl_event_t new_event(void) {
    dtl_event_t event;
    CHECK_OK(dtl_event_create(cl, 0, &event));
    return event;
}

/* ---- not there ------------------------------------------------------------------------------ */

static void unavailable(const char* reason) {
    int32_t yes = 7, count = 7;
    char why[1000];
    void* memory = &yes;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    dtl_backend_t automatic, host;
    CHECK_OK(dtl_backend_is_available(cl, &yes, why, sizeof why, NULL));
    CHECK(yes == 0);
    if (strstr(why, reason) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", reason, why);
        exit(1);
    }
    CHECK_STATUS(dtl_backend_device_count(cl, &count), DTL_ERROR_UNAVAILABLE);
    CHECK(count == 7 && strstr(dtl_last_error(), reason) != NULL);
    CHECK_STATUS(dtl_backend_set_device(cl, 0), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_info(cl, 0, &info), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, 64, 0, &memory), DTL_ERROR_UNAVAILABLE);
    CHECK(memory == &yes && strstr(dtl_last_error(), reason) != NULL);
    CHECK_STATUS(dtl_stream_create(cl, 0, 0, &stream), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_event_create(cl, 0, &event), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_wait(cl, 0, DTL_TIMEOUT_INFINITE), DTL_ERROR_UNAVAILABLE);
    /* A choice by itself goes on to the next one. */
    CHECK_OK(dtl_backend_get("auto", &automatic));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK(automatic.id == host.id);
}

/* ---- devices -------------------------------------------------------------------------------- */

static pthread_barrier_t meeting;

/* Two threads with a device each: each sees its own, and so does its memory. */
static void* user_of_device(void* argument) {
    const int32_t mine = *(const int32_t*)argument;
    int round;
    CHECK_OK(dtl_backend_set_device(cl, mine));
    pthread_barrier_wait(&meeting);
    for (round = 0; round < 200; round++) {
        int32_t device = -1;
        dtl_mem_info_t info = DTL_MEM_INFO_INIT;
        unsigned char* memory = (unsigned char*)take(DTL_MEMORY_DEVICE, 4096);
        unsigned char back[4096];
        CHECK_OK(dtl_backend_get_device(cl, &device));
        CHECK(device == mine);
        CHECK_OK(dtl_mem_query(memory + 100, &info));
        CHECK(info.device == mine && info.base == memory && info.size_bytes == 4096);
        CHECK_OK(dtl_mem_fill(memory, (uint8_t)(round + mine), 4096));
        CHECK_OK(dtl_mem_copy(back, memory, 4096));
        CHECK(back[0] == (uint8_t)(round + mine) && back[4095] == back[0]);
        CHECK_STATUS(dtl_backend_set_device(cl, 1000), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_STATUS(dtl_backend_set_device(cl, -1), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_OK(dtl_mem_free(cl, memory));
    }
    return NULL;
}

static void test_devices(void) {
    int32_t count = 0, number[2] = {0, 1}, i;
    pthread_t threads[2];
    CHECK_OK(dtl_backend_device_count(cl, &count));
    CHECK(count == 2);
    for (i = 0; i < count; i++) {
        dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
        uint64_t free_bytes = 1, total = 0;
        CHECK_OK(dtl_device_info(cl, i, &info));
        CHECK(info.kind == DTL_DEVICE_CPU && info.compute_units > 0 && info.max_block_threads > 0);
        CHECK(info.max_block[2] > 0 && info.max_grid[2] > 0 && strstr(info.name, "Portable") != NULL);
        CHECK_OK(dtl_device_memory_info(cl, i, &free_bytes, &total));
        CHECK(total == info.total_bytes && total > 0 && free_bytes <= total);
    }
    pthread_barrier_init(&meeting, NULL, 2);
    for (i = 0; i < 2; i++) pthread_create(&threads[i], NULL, user_of_device, &number[i]);
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

/* ---- memory and copies ---------------------------------------------------------------------- */

static void test_memory(void) {
    unsigned char *here = (unsigned char*)malloc(BYTES), *one, *other, *both;
    void* out = &cl;
    uint64_t i, align;
    for (i = 0; i < BYTES; i++) here[i] = (unsigned char)(i * 7 + i / 251);
    CHECK_OK(dtl_backend_set_device(cl, 0));
    one = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    CHECK_OK(dtl_backend_set_device(cl, 1));
    other = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    both = (unsigned char*)take(DTL_MEMORY_MANAGED, BYTES);
    CHECK_OK(dtl_mem_copy(one, here, BYTES));
    CHECK_OK(dtl_mem_copy(other, one, BYTES)); /* from device to device */
    CHECK_OK(dtl_mem_copy(both + 1, other + 1, BYTES - 2));
    CHECK(memcmp(both + 1, here + 1, BYTES - 2) == 0); /* the host reads it as it is */
    CHECK_OK(dtl_mem_copy_2d(one, 1000, here, 2000, 10, 100));
    CHECK_OK(dtl_mem_copy(both, one, BYTES));
    CHECK(memcmp(both + 99000, here + 198000, 10) == 0 && both[99010] == here[99010]);
    for (align = 1; align <= 1 << 16; align *= 4) {
        void* memory = NULL;
        CHECK_OK(dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, 333, align, &memory));
        CHECK((uintptr_t)memory % align == 0);
        CHECK_OK(dtl_mem_fill(memory, 5, 333));
        CHECK_OK(dtl_mem_free(cl, memory));
    }
    /* Faults: far too much, a kind that is another backend's, a range over the end. */
    CHECK_STATUS(dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, (uint64_t)1 << 50, 0, &out), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(out == &cl && strstr(dtl_last_error(), "CL_DEVICE_MAX_MEM_ALLOC_SIZE") != NULL);
    CHECK_STATUS(dtl_mem_alloc(cl, DTL_MEMORY_HOST, 64, 0, &out), DTL_ERROR_NOT_SUPPORTED);
    CHECK(strstr(dtl_last_error(), "MANAGED") != NULL);
    CHECK_STATUS(dtl_mem_copy(one + 1, here, BYTES), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_free(cl, one));
    CHECK_STATUS(dtl_mem_free(cl, one), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(cl, other));
    CHECK_OK(dtl_mem_free(cl, both));
    free(here);
}

/* Memory of the host's that the driver made: read and written as it is, and either side of every copy. */
static void test_pinned(void) {
    unsigned char *pinned, *other, *device;
    dtl_stream_t stream = new_stream(1);
    uint64_t align, i;
    CHECK_OK(dtl_backend_set_device(cl, 0));
    pinned = (unsigned char*)take(DTL_MEMORY_PINNED, BYTES);
    device = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES);
    CHECK_OK(dtl_backend_set_device(cl, 1));
    other = (unsigned char*)take(DTL_MEMORY_PINNED, BYTES);
    for (i = 0; i < BYTES; i++) pinned[i] = (unsigned char)(i * 11 + i / 253);
    CHECK_OK(dtl_mem_fill(other, 7, BYTES));
    CHECK(other[0] == 7 && other[BYTES - 1] == 7);
    CHECK_OK(dtl_mem_copy(device, pinned, BYTES));
    CHECK_OK(dtl_mem_copy_async(stream, other, device, BYTES));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(memcmp(other, pinned, BYTES) == 0);
    CHECK_OK(dtl_mem_fill(other, 0, BYTES));
    CHECK_OK(dtl_mem_copy(other + 1, pinned, BYTES - 1));
    CHECK(memcmp(other + 1, pinned, BYTES - 1) == 0 && other[0] == 0);
    CHECK_OK(dtl_mem_copy_async(stream, other, pinned, BYTES));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(memcmp(other, pinned, BYTES) == 0);
    /* Rows: with gaps on both sides, in more than one batch; without any; one that is the last byte of each. */
    CHECK_OK(dtl_mem_fill(device, 9, BYTES));
    CHECK_OK(dtl_mem_copy_2d(device + 3, 300, pinned + 5, 1000, 200, 1000));
    CHECK_OK(dtl_mem_copy(other, device, BYTES));
    for (i = 0; i < 1000; i++) {
        CHECK(memcmp(other + 3 + 300 * i, pinned + 5 + 1000 * i, 200) == 0);
        CHECK(other[2 + 300 * i] == 9 && other[203 + 300 * i] == 9);
    }
    CHECK_OK(dtl_mem_copy_2d(other, 100, device, 100, 100, 50));
    CHECK_OK(dtl_mem_copy_2d(other, 1, device + 5, 300, 1, 1000));
    for (i = 0; i < 1000; i++) CHECK(other[i] == pinned[7 + 1000 * i]);
    CHECK_STATUS(dtl_mem_copy_2d(device + 1, 1024, pinned, 1024, 1024, 1024), DTL_ERROR_OUT_OF_BOUNDS);
    for (align = 1; align <= 1 << 16; align *= 16) {
        void* memory = NULL;
        CHECK_OK(dtl_mem_alloc(cl, DTL_MEMORY_PINNED, 333, align, &memory));
        CHECK((uintptr_t)memory % align == 0);
        memset(memory, 1, 333);
        CHECK_OK(dtl_mem_free(cl, memory));
    }
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(cl, pinned));
    CHECK_OK(dtl_mem_free(cl, other));
    CHECK_OK(dtl_mem_free(cl, device));
}

/* ---- streams and events --------------------------------------------------------------------- */

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

static dtl_status_t wait_for_word(void* user) {
    const volatile int* word = (const volatile int*)user;
    int i;
    for (i = 0; i < 5000 && *word == 0; i++) usleep(1000);
    return *word ? DTL_SUCCESS : DTL_ERROR_TIMEOUT;
}

/* Queued, not waited for: the call returns while work before it still runs. */
static void test_fill_in_order(void) {
    dtl_stream_t stream = new_stream(0);
    unsigned char* device = (unsigned char*)take(DTL_MEMORY_DEVICE, 4096);
    unsigned char here[4096];
    volatile int word = 0;
    CHECK_OK(dtl_mem_fill(device, 1, 4096));
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_word, (void*)&word));
    CHECK_OK(dtl_mem_fill_async(stream, device + 1, 7, 4094));
    CHECK_OK(dtl_mem_copy_async(stream, here, device, 4096));
    word = 1;
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(here[0] == 1 && here[1] == 7 && here[4094] == 7 && here[4095] == 1);
    CHECK_OK(dtl_mem_free(cl, device));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A stream of one device waits for an event of the other; a failure travels with it. */
static void test_events(void) {
    dtl_stream_t first = new_stream(0), second = new_stream(1);
    dtl_event_t before = new_event(), after = new_event(), quick;
    unsigned char *device = (unsigned char*)take(DTL_MEMORY_DEVICE, BYTES), *here = (unsigned char*)malloc(BYTES);
    uint64_t ns = 0;
    int runs = 0, i;
    memset(here, 1, BYTES);
    CHECK_OK(dtl_event_record(before, first));
    CHECK_OK(dtl_stream_host_callback(first, sleep_then_count, &runs));
    CHECK_OK(dtl_mem_copy_async(first, device, here, BYTES));
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_stream_wait_event(second, after));
    CHECK_OK(dtl_mem_copy_async(second, here, device, BYTES));
    CHECK_OK(dtl_stream_wait(second, DTL_TIMEOUT_INFINITE));
    CHECK(runs == 1 && here[BYTES - 1] == 1);
    CHECK_OK(dtl_event_elapsed_ns(before, after, &ns));
    CHECK(ns >= 15000000 && ns < 10000000000u);
    CHECK_STATUS(dtl_event_elapsed_ns(after, before, &ns), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_event_record(before, second));
    CHECK_OK(dtl_event_wait(before, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_event_elapsed_ns(after, before, &ns), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "clocks") != NULL);
    CHECK_OK(dtl_event_create(cl, DTL_EVENT_NO_TIMING, &quick));
    CHECK_STATUS(dtl_event_elapsed_ns(quick, after, &ns), DTL_ERROR_INVALID_ARGUMENT);

    CHECK_OK(dtl_stream_host_callback(first, sleep_then_fail, &runs));
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_stream_wait_event(second, after));
    CHECK_OK(dtl_mem_copy_async(second, device, here, BYTES)); /* work behind a failure runs */
    CHECK_STATUS(dtl_event_wait(after, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_STATUS(dtl_stream_wait(second, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_stream_wait(second, DTL_TIMEOUT_INFINITE)); /* once */
    CHECK_STATUS(dtl_stream_wait(first, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_event_record(after, first));
    CHECK_OK(dtl_event_wait(after, DTL_TIMEOUT_INFINITE));

    /* Two streams that wait for each other's events in turn, without anybody who asks meanwhile. */
    for (i = 0; i < 2000; i++) {
        CHECK_OK(dtl_event_record(before, first));
        CHECK_OK(dtl_stream_wait_event(second, before));
        CHECK_OK(dtl_event_record(after, second));
        CHECK_OK(dtl_stream_wait_event(first, after));
    }
    CHECK_OK(dtl_stream_wait(first, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(before));
    CHECK_OK(dtl_event_destroy(after));
    CHECK_OK(dtl_event_destroy(quick));
    CHECK_OK(dtl_stream_destroy(first));
    CHECK_OK(dtl_stream_destroy(second));
    CHECK_OK(dtl_mem_free(cl, device));
    free(here);
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
    dtl_stream_t stream, wrapped;
    void* native = NULL;
    int runs = 0;
    shared = new_stream(0);
    pthread_create(&thread, NULL, use_shared, NULL);
    CHECK_OK(dtl_stream_host_callback(shared, sleep_then_count, &runs));
    pthread_barrier_wait(&meeting);
    CHECK_OK(dtl_stream_destroy(shared));
    CHECK(runs == 1); /* also while the other thread is still in its call */
    pthread_join(thread, NULL);
    /* A queue of the program's: only the handle goes. */
    stream = new_stream(1);
    CHECK_OK(dtl_stream_native(stream, &native));
    CHECK_OK(dtl_backend_set_device(cl, 1));
    CHECK_STATUS(dtl_stream_wrap(cl, NULL, &wrapped), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "NULL is no cl_command_queue") != NULL);
    CHECK_OK(dtl_device_wait(cl, 1, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_wrap(cl, native, &wrapped));
    CHECK_OK(dtl_stream_destroy(wrapped));
    CHECK_OK(dtl_stream_host_callback(stream, sleep_then_count, &runs));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK(runs == 2);
    CHECK_STATUS(dtl_stream_create(cl, 2, 0, &stream), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(cl, -1, 0, &stream), DTL_ERROR_OUT_OF_BOUNDS);
}

/* Shared virtual memory that the program allocated in the backend's context, and adopts. */
static void test_adopted(void) {
    void* (*alloc)(void*, uint64_t, size_t, unsigned);
    void (*give_back)(void*, void*);
    int32_t (*about)(void*, unsigned, size_t, void*, size_t*);
    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW), *found[3], *queue = NULL, *context = NULL;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_stream_t stream = new_stream(1);
    unsigned char host[1000], back[1000], *memory;
    size_t i;
    CHECK(loader != NULL);
    found[0] = dlsym(loader, "clSVMAlloc"), found[1] = dlsym(loader, "clSVMFree");
    found[2] = dlsym(loader, "clGetCommandQueueInfo");
    memcpy(&alloc, &found[0], sizeof alloc), memcpy(&give_back, &found[1], sizeof give_back);
    memcpy(&about, &found[2], sizeof about);
    CHECK_OK(dtl_stream_native(stream, &queue));
    CHECK(about(queue, 0x1090, sizeof context, &context, NULL) == 0);
    memory = (unsigned char*)alloc(context, 1, sizeof host, 0);
    CHECK(memory != NULL);
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_adopt(cl, 2, DTL_MEMORY_DEVICE, memory, sizeof host), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_adopt(cl, 1, DTL_MEMORY_SHARED, memory, sizeof host), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_mem_adopt(cl, 1, DTL_MEMORY_DEVICE, memory, sizeof host));
    CHECK_OK(dtl_mem_query(memory + 999, &info));
    CHECK(info.backend.id == cl.id && info.device == 1 && info.kind == DTL_MEMORY_DEVICE && info.base == memory);
    for (i = 0; i < sizeof host; i++) host[i] = (unsigned char)(i * 3);
    CHECK_OK(dtl_mem_copy(memory, host, sizeof host));
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_SELF, memory, 1000, 0, 1, back, 1000, 0, 1, DTL_DTYPE_UINT8, NULL));
    CHECK(memcmp(host, back, sizeof host) == 0);
    CHECK_OK(dtl_mem_fill(memory + 10, 9, 10));
    CHECK_OK(dtl_mem_fill_async(stream, memory + 20, 8, 10));
    CHECK_OK(dtl_mem_copy_async(stream, back, memory, sizeof back));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(back[9] == 27 && back[10] == 9 && back[19] == 9 && back[20] == 8 && back[29] == 8 && back[30] == 90);
    CHECK_STATUS(dtl_mem_copy(back, memory + 1, 1000), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_release(cl, memory));
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    give_back(context, memory);
    CHECK_OK(dtl_stream_destroy(stream));
}

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "";
    dtl_mem_stats_t before = DTL_MEM_STATS_INIT, after = DTL_MEM_STATS_INIT;
    int32_t yes = 0, round;
    char why[1000];
    if (strcmp(what, "absent") == 0) setenv("DTL_OPENCL_LIBRARY", "/no/such/libOpenCL.so.1", 1);
    if (strcmp(what, "wrong") == 0) setenv("DTL_OPENCL_LIBRARY", "libc.so.6", 1);
    if (strcmp(what, "empty") == 0) setenv("OCL_ICD_VENDORS", "/no/such/folder", 1);
    setenv("POCL_DEVICES", "pthread pthread", 1);
    for (round = 0; round < 2; round++) { /* and once more after finalize */
        CHECK_OK(dtl_init(NULL));
        CHECK_OK(dtl_backend_get("opencl", &cl));
        if (strcmp(what, "absent") == 0) unavailable("DTL_OPENCL_LIBRARY=/no/such/libOpenCL.so.1");
        if (strcmp(what, "wrong") == 0) unavailable("libc.so.6 is no OpenCL loader");
        CHECK_OK(dtl_backend_is_available(cl, &yes, why, sizeof why, NULL));
        if (strcmp(what, "empty") == 0) {
            if (strstr(why, "cannot open shared object") != NULL) SKIP("no OpenCL loader (libOpenCL.so.1)");
            unavailable("pocl-opencl-icd");
        }
        if (what[0] == '\0') {
            if (!yes) SKIP(why);
            CHECK_OK(dtl_mem_stats(cl, &before));
            test_devices();
            test_memory();
            test_pinned();
            test_fill_in_order();
            test_events();
            test_destroy();
            test_adopted();
            CHECK_OK(dtl_mem_stats(cl, &after));
            CHECK(after.live_count == before.live_count && after.live_bytes == before.live_bytes);
        }
        CHECK_OK(dtl_finalize());
    }
    return 0;
}
