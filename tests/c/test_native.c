/* Backends written in C: what their tables must have, what is made for slots that they leave out,
 * and what becomes of their failures. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#endif
#include "carried_cases.h"
#include "native_parts.h"
#include "said_cases.h"
#include <stddef.h>

static struct far far;

static void check_text(void* memory, const char* expected, uint64_t size) {
    CHECK(memcmp(far_real(memory), expected, (size_t)size) == 0);
}

/* Memory and nothing else: no device, no transfer, no kind_info. */
static void test_memory_only(void) {
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    dtl_mem_info_t found = DTL_MEM_INFO_INIT;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    char text[16] = "0123456789abcde";
    uint64_t free_bytes = 7, total = 7;
    int32_t count = 7;
    void* memory = NULL;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    tables.main.device = NULL, tables.main.transfer = NULL;
    CHECK_OK(dtl_backend_register("memory-only", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 16, 0, &memory));
    CHECK_OK(dtl_mem_query((char*)memory + 15, &found));
    CHECK(found.backend.id == backend.id && found.device == 0 && found.base == memory && found.size_bytes == 16);
    CHECK_OK(dtl_mem_stats(backend, &stats));
    CHECK(stats.live_count == 1 && stats.live_bytes == 16 && stats.total_count == 1);
    CHECK_OK(dtl_mem_kind_info(backend, DTL_MEMORY_HOST, &info));
    CHECK(info.properties == (DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE) && info.name[0] != 0);
    CHECK_OK(dtl_mem_kind_info(backend, DTL_MEMORY_DEVICE, &info));
    CHECK(info.properties == DTL_MEMORY_DEVICE_ACCESSIBLE && info.alignment >= 1);
    CHECK_STATUS(dtl_mem_kind_info(backend, DTL_MEMORY_PINNED, &info), DTL_ERROR_NOT_SUPPORTED);
    /* Nobody can reach this memory, and nothing is tried. */
    CHECK_STATUS(dtl_mem_copy(memory, text, 16), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_copy(text, memory, 16), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_fill(memory, 1, 16), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_copy_2d(memory, 4, text, 4, 4, 4), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("memory-only");
    CHECK_STATUS(dtl_backend_device_count(backend, &count), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_backend_set_device(backend, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_device_memory_info(backend, 0, &free_bytes, &total), DTL_ERROR_NOT_SUPPORTED);
    CHECK(count == 7 && free_bytes == 7 && total == 7);
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_STATUS(dtl_mem_to_device(backend, text, 16, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK(far.allocs == 2 && far.frees == 2); /* the second one was given back */
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);
}

static dtl_status_t tell_memory(void* self, uint64_t* out_free, uint64_t* out_total) {
    if (((struct far*)self)->allocs == 0) return DTL_ERROR_CUDA;
    *out_free = 1000, *out_total = 4096;
    return DTL_SUCCESS;
}

/* Memory that tells how much it is, and no device to ask: device 0 is all of it. */
static void test_memory_that_tells(void) {
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    uint64_t free_bytes = 7, total = 7;
    int32_t count = 7;
    void* memory = NULL;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    tables.main.device = NULL, tables.main.transfer = NULL;
    tables.memory.memory_info = tell_memory;
    CHECK_OK(dtl_backend_register("telling", &tables.main, &far, 0, &backend));
    CHECK_STATUS(dtl_device_memory_info(backend, 0, &free_bytes, &total), DTL_ERROR_CUDA); /* the slot's own */
    CHECK(free_bytes == 7 && total == 7);
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 16, 0, &memory));
    CHECK_OK(dtl_device_memory_info(backend, 0, &free_bytes, &total));
    CHECK(free_bytes == 1000 && total == 4096);
    CHECK_STATUS(dtl_device_memory_info(backend, 1, &free_bytes, &total), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_TEXT("device 1: backend telling has memory and no devices: 0 means all of it");
    CHECK_STATUS(dtl_device_memory_info(backend, -1, &free_bytes, &total), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_backend_device_count(backend, &count), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_OK(dtl_backend_unregister(backend));
}

static int32_t chosen;

static dtl_status_t choose(void* self, int32_t device) { return (void)self, chosen = device, DTL_SUCCESS; }

static dtl_status_t tell_of_chosen(void* self, uint64_t* out_free, uint64_t* out_total) {
    (void)self;
    *out_free = *out_total = 1000 + (uint64_t)chosen;
    return DTL_SUCCESS;
}

/* memory_info of the memory table describes the current device: that of the call is made current. */
static void test_memory_of_each_device(void) {
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    uint64_t free_bytes = 7, total = 7;
    memset(&far, 0, sizeof far);
    far.devices = 2;
    far_fill(&tables);
    tables.device.set = choose;
    tables.memory.memory_info = tell_of_chosen;
    CHECK_OK(dtl_backend_register("each", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_device_memory_info(backend, 1, &free_bytes, &total));
    CHECK(free_bytes == 1001 && total == 1001 && chosen == 0);
    CHECK_OK(dtl_device_memory_info(backend, 0, &free_bytes, &total));
    CHECK(free_bytes == 1000);
    CHECK_OK(dtl_backend_unregister(backend));
}

static void test_device_only(void) {
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    dtl_stream_t stream = DTL_STREAM_NULL;
    uint64_t free_bytes = 7, total = 7;
    int32_t type = 7, id = 7, device = 7;
    void* memory = NULL;
    memset(&far, 0, sizeof far);
    far.devices = 2;
    far_fill(&tables);
    tables.main.memory = NULL, tables.main.transfer = NULL;
    CHECK_OK(dtl_backend_register("device-only", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_device_info(backend, 1, &info));
    CHECK(info.numa_node == -1 && info.total_bytes == 0 && info.pci[0] == 0);
    CHECK(strstr(info.name, "device-only") != NULL); /* never nameless */
    CHECK_STATUS(dtl_device_info(backend, 2, &info), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_device_memory_info(backend, 0, &free_bytes, &total), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_backend_dlpack_device(backend, 0, &type, &id), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_backend_get_device(backend, &device));
    CHECK(device == 0);
    CHECK_OK(dtl_backend_set_device(backend, 1));
    CHECK_OK(dtl_backend_get_device(backend, &device));
    CHECK(device == 1);
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_stats(backend, &stats), DTL_ERROR_NOT_SUPPORTED);
    CHECK(type == 7 && id == 7 && free_bytes == 7 && memory == NULL);
    CHECK_OK(dtl_stream_create(backend, 1, 0, &stream)); /* the library's own */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_device_wait(backend, 1, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);
}

/* A required copy slot only: everything else of transfers is made from it. */
static void test_transfer(void) {
    struct far other_self;
    dtl_backend_t one, other;
    char host[64], back[64];
    void *memory = NULL, *there = NULL, *big = NULL, *bigger = NULL;
    const uint64_t large = (9u << 20) + 5;
    dtl_stream_t stream = DTL_STREAM_NULL;
    int i;
    memset(&far, 0, sizeof far), memset(&other_self, 0, sizeof other_self);
    for (i = 0; i < 64; i++) host[i] = (char)i;
    one = far_register("one", &far);
    other = far_register("other", &other_self);
    CHECK_OK(dtl_mem_to_device(one, host, 64, &memory));
    check_text(memory, host, 64);
    CHECK(far.copies == 1);
    CHECK_OK(dtl_mem_alloc(other, DTL_MEMORY_DEVICE, 64, 0, &there));
    CHECK_OK(dtl_mem_copy(there, memory, 64)); /* two foreign memories: through the host */
    check_text(there, host, 64);
    CHECK(far.copies == 2 && other_self.copies == 1);
    memset(back, 0, sizeof back);
    CHECK_OK(dtl_mem_to_host(other, there, back, 64));
    CHECK(memcmp(back, host, 64) == 0);
    CHECK_STATUS(dtl_mem_to_host(one, there, back, 64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_copy((char*)memory + 32, memory, 32)); /* within one allocation */
    check_text((char*)memory + 32, host, 32);
    CHECK_STATUS(dtl_mem_copy((char*)memory + 31, memory, 32), DTL_ERROR_INVALID_ARGUMENT);

    CHECK_OK(dtl_mem_fill((char*)memory + 1, 0xAB, 62)); /* copied from a filled buffer */
    CHECK(far_real(memory)[0] == 0 && (unsigned char)far_real(memory)[1] == 0xAB);
    CHECK((unsigned char)far_real(memory)[62] == 0xAB && far_real(memory)[63] == 31);

    far.copies = 0;
    CHECK_OK(dtl_mem_copy_2d(memory, 8, host, 16, 4, 4)); /* row by row */
    CHECK(far.copies == 4);
    for (i = 0; i < 4; i++) check_text((char*)memory + 8 * i, host + 16 * i, 4);
    CHECK((unsigned char)far_real(memory)[4] == 0xAB); /* not between the rows */
    CHECK_OK(dtl_mem_copy_2d(there, 16, memory, 8, 4, 4)); /* and between the two */
    for (i = 0; i < 4; i++) check_text((char*)there + 16 * i, host + 16 * i, 4);
    CHECK_OK(dtl_mem_copy_2d(back, 4, there, 16, 4, 4));
    for (i = 0; i < 4; i++) CHECK(memcmp(back + 4 * i, host + 16 * i, 4) == 0);
    CHECK_STATUS(dtl_mem_copy_2d(memory, 20, host, 16, 5, 4), DTL_ERROR_OUT_OF_BOUNDS); /* 65 bytes */
    CHECK_OK(dtl_mem_copy_2d(memory, 20, host, 16, 4, 4));

    CHECK_OK(dtl_mem_alloc(one, DTL_MEMORY_DEVICE, large, 0, &big)); /* more than one stage */
    CHECK_OK(dtl_mem_alloc(other, DTL_MEMORY_DEVICE, large, 0, &bigger));
    CHECK_OK(dtl_mem_fill(big, 3, large));
    far_real(big)[large - 1] = 77, far_real(big)[4 << 20] = 78;
    CHECK_OK(dtl_mem_copy(bigger, big, large));
    CHECK(memcmp(far_real(bigger), far_real(big), (size_t)large) == 0);

    CHECK_OK(dtl_stream_create(one, 0, 0, &stream)); /* in the order of the library's own stream */
    CHECK_OK(dtl_mem_fill_async(stream, memory, 1, 64));
    CHECK_OK(dtl_mem_copy_async(stream, there, memory, 64));
    CHECK_OK(dtl_mem_copy_async(stream, back, there, 64));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 64; i++) CHECK(back[i] == 1);
    CHECK_OK(dtl_stream_destroy(stream));

    CHECK_OK(dtl_mem_free(one, memory));
    CHECK_OK(dtl_mem_free(one, big));
    CHECK_OK(dtl_mem_free(other, bigger));
    CHECK_OK(dtl_mem_free(other, there));
    CHECK_OK(dtl_backend_unregister(one));
    CHECK_OK(dtl_backend_unregister(other));
    CHECK(far.destroyed == 1 && other_self.destroyed == 1);
}

static int calls;
static dtl_status_t count_call(void* user) { return (void)user, far_add(&calls), DTL_SUCCESS; }
static dtl_status_t fail_call(void* user) { return (void)user, DTL_ERROR_MEMORY; }
static dtl_status_t count_range(uint64_t begin, uint64_t end, void* user) {
    return __atomic_fetch_add((uint64_t*)user, end - begin, __ATOMIC_ACQ_REL), DTL_SUCCESS;
}
static dtl_status_t kernel(const dtl_kernel_context_t* context, const void* const* args) {
    CHECK(context->grid[0] == 3 && *(const int*)args[0] == 42);
    far_add(&calls);
    return DTL_SUCCESS;
}

static void test_exec(void) {
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_stream_t stream = DTL_STREAM_NULL, wrapped = DTL_STREAM_NULL;
    dtl_event_t event = DTL_EVENT_NULL, later = DTL_EVENT_NULL;
    dtl_kernel_t k = DTL_KERNEL_NULL;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    struct work_stream own = {0};
    const int argument = 42;
    const void* const args[1] = {&argument};
    const uint64_t sizes[1] = {sizeof argument};
    uint64_t ns = 7;
    int32_t done = 7, state = 7;
    void *native = NULL, *memory = NULL;
    char text[8] = "1234567";
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    exec_fill(&exec, 1, 1, 0);
    tables.main.exec = &exec;
    calls = 0;
    CHECK_OK(dtl_backend_register("exec", &tables.main, &far, 0, &backend));
    work_create_null = 1;
    CHECK_STATUS(dtl_stream_create(backend, 0, 0, &stream), DTL_ERROR_NATIVE_BACKEND); /* NULL is no stream */
    CHECK(stream.id == 0);
    work_create_null = 0;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_native(stream, &native));
    CHECK(native != NULL && work.streams == 1);
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_create(backend, 0, &later));
    CHECK_OK(dtl_event_query(event, &state)); /* never recorded */
    CHECK(state == 1);
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_event_query(event, &state));
    CHECK(state == 0);
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE)); /* polled */
    CHECK_OK(dtl_event_query(event, &state));
    CHECK(state == 1 && work.queries >= 3);
    CHECK_OK(dtl_event_record(later, stream));
    CHECK_STATUS(dtl_event_elapsed_ns(event, later, &ns), DTL_ERROR_NOT_SUPPORTED);
    CHECK(ns == 7);
    CHECK_OK(dtl_event_wait(later, UINT64_C(5000000000)));
    CHECK_OK(dtl_stream_query(stream, &done)); /* an event of the library's is recorded and asked */
    CHECK(done == 0);
    CHECK_OK(dtl_stream_wait_event(stream, event)); /* the caller waits */
    work.syncs = 0;
    CHECK_OK(dtl_stream_host_callback(stream, count_call, NULL)); /* waits, then calls */
    CHECK(far_get(&calls) == 1 && work.syncs >= 1);
    CHECK_OK(dtl_kernel_from_function(backend, kernel, NULL, &k));
    launch.grid[0] = 3;
    CHECK_OK(dtl_kernel_launch(stream, k, &launch, args, sizes, 1)); /* on the host, in its order */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(far_get(&calls) == 4);
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &memory));
    CHECK_OK(dtl_mem_copy_async(stream, memory, text, 8)); /* waits, then copies */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(memcmp(far_real(memory), text, 8) == 0);
    CHECK_OK(dtl_mem_free(backend, memory));
    work.failure = DTL_ERROR_MEMORY;
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_TEXT("stream_synchronize");
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);
    CHECK_OK(dtl_stream_wrap(backend, &own, &wrapped));
    CHECK_OK(dtl_event_record(event, wrapped));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(wrapped)); /* the backend is not told */
    CHECK(work.streams == 1);
    CHECK_OK(dtl_kernel_destroy(k));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_event_destroy(later));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(work.streams == 0 && work.events == 0 && far.destroyed == 1);
}

/* Streams without events: events are the library's, and recording waits. */
static void test_streams_only(void) {
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_stream_t stream = DTL_STREAM_NULL;
    dtl_event_t event = DTL_EVENT_NULL, second = DTL_EVENT_NULL;
    uint64_t ns = 0;
    int32_t done = 7;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    exec_fill(&exec, 1, 0, 0);
    tables.main.exec = &exec;
    calls = 0;
    CHECK_OK(dtl_backend_register("streams", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_create(backend, 0, &second));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK(work.syncs == 1);
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_query(stream, &done)); /* it waits, as the record did */
    CHECK(done == 1 && work.syncs == 2);
    CHECK_OK(dtl_event_record(second, stream));
    CHECK_OK(dtl_event_elapsed_ns(event, second, &ns));
    CHECK_OK(dtl_stream_wait_event(stream, event));
    work.failure = DTL_ERROR_BUSY;
    DTL_IGNORE(dtl_event_record(second, stream));
    CHECK_STATUS(dtl_event_wait(second, DTL_TIMEOUT_INFINITE), DTL_ERROR_BUSY); /* a failure travels with the event */
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_BUSY); /* and stays the stream's until that tells it */
    CHECK_OK(dtl_stream_host_callback(stream, fail_call, NULL));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_event_destroy(second));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(work.streams == 0);
}

static void test_host_execution(void) {
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_executor_t executor = DTL_EXECUTOR_NULL;
    dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
    uint64_t sum = 0;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    exec_fill(&exec, 0, 0, 1);
    tables.main.exec = &exec;
    calls = 0;
    CHECK_OK(dtl_backend_register("hosted", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_executor_create(backend, NULL, &executor));
    CHECK_OK(dtl_executor_info(executor, &info));
    CHECK(info.kind == DTL_EXECUTOR_BACKEND && info.max_parallelism == 6 && info.suggested_parallelism == 6);
    CHECK_OK(dtl_executor_run(executor, count_call, NULL));
    CHECK(work.executes == 1 && calls == 1);
    CHECK_STATUS(dtl_executor_run(executor, fail_call, NULL), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_executor_parallel_for(executor, 0, 1000, 7, count_range, &sum));
    CHECK(sum == 1000 && work.loops == 1);
    CHECK_OK(dtl_executor_parallel_for(executor, 0, 1000, 0, count_range, &sum));
    CHECK(sum == 2000 && work.loops == 2);
    CHECK_OK(dtl_executor_run_async(executor, count_call, NULL, DTL_EVENT_NULL));
    CHECK_OK(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE));
    CHECK(calls == 2);
    CHECK_OK(dtl_executor_destroy(executor));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);
}

/* What goes wrong in a slot. */
static void test_slot_failures(void) {
    dtl_backend_t backend;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    char text[8] = "1234567";
    void *memory = NULL, *poison = &far;
    memset(&far, 0, sizeof far);
    backend = far_register("faulty", &far);
    far.failure = 123456, far.text = "vendor code 77 (\"no flux\")";
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &poison), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("123456");
    CHECK_TEXT("faulty");
    CHECK_TEXT("memory.alloc");
    CHECK_TEXT("vendor code 77 (\"no flux\")");
    far.failure = -1, far.text = NULL;
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &poison), DTL_ERROR_NATIVE_BACKEND);
    CHECK(strstr(dtl_last_error(), "no flux") == NULL); /* a text is said once */
    far.failure = DTL_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &poison), DTL_ERROR_OUT_OF_MEMORY);
    far.failure = DTL_SUCCESS, far.alloc_null = 1;
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &poison), DTL_ERROR_NATIVE_BACKEND);
    far.alloc_null = 0, far.alloc_offset = 8;
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 16, &poison), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("aligned to 16");
    CHECK(far.allocs == 1 && far.frees == 1); /* given back */
    far.alloc_offset = 0;
    CHECK(poison == &far);
    CHECK_OK(dtl_mem_stats(backend, &stats));
    CHECK(stats.total_count == 0 && stats.live_bytes == 0);
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &memory));
    far.failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_mem_copy(memory, text, 8), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_mem_fill(memory, 0, 8), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_mem_free(backend, memory), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_mem_stats(backend, &stats));
    CHECK(stats.live_count == 1); /* a free that failed has freed nothing */
    far.failure = DTL_SUCCESS;
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_STATUS(dtl_mem_free(backend, memory), DTL_ERROR_INVALID_ARGUMENT);
    far.failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_mem_to_device(backend, text, 8, &poison), DTL_ERROR_BACKEND);
    far.failure = DTL_SUCCESS;
    CHECK(poison == &far);
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK_STATUS(dtl_backend_set_error(NULL), DTL_ERROR_NULL_POINTER);
    /* Replaced and cut, not refused. */
    char longest[5001];
    memset(longest, 'x', 5000);
    longest[5000] = 0;
    CHECK_OK(dtl_backend_set_error("caf\xe9"));
    CHECK_OK(dtl_backend_set_error(longest));
    CHECK_OK(dtl_backend_set_error("")); /* the text is for the next slot of this thread that fails */
}

static int warnings_of_destroy;

static dtl_status_t failing_event_destroy(void* self, void* event) {
    CHECK_OK(w_event_destroy(self, event));
    DTL_IGNORE(dtl_backend_set_error("the event would not go"));
    return DTL_ERROR_BACKEND;
}
static dtl_status_t failing_stream_destroy(void* self, void* stream) {
    CHECK_OK(w_stream_destroy(self, stream));
    return DTL_ERROR_TIMEOUT;
}
static void count_warning(int32_t level, const char* text, void* user) {
    const int is_event = strstr(text, "event_destroy") != NULL && strstr(text, "the event would not go") != NULL;
    CHECK(user == &far && level == DTL_LOG_WARN && strstr(text, "undying") != NULL);
    CHECK(is_event || strstr(text, "stream_destroy") != NULL);
    warnings_of_destroy++;
}

/* Failures of destroy slots have no caller left who could be told: the log is. */
static void test_failing_destroy(void) {
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend;
    dtl_stream_t stream;
    dtl_event_t event;
    int32_t done = 0;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    exec_fill(&exec, 1, 1, 1);
    exec.event_destroy = failing_event_destroy, exec.stream_destroy = failing_stream_destroy;
    tables.main.exec = &exec;
    CHECK_OK(dtl_log_set_callback(count_warning, &far, DTL_LOG_WARN));
    CHECK_OK(dtl_backend_register("undying", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_destroy(event));
    CHECK(warnings_of_destroy == 1);
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_query(stream, &done)); /* makes an event of the stream's own */
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK(warnings_of_destroy == 3 && work.events == 0 && work.streams == 0);
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN));
}

static void test_comm_open(void) {
    static const int answers[5][2] = {{2, 2}, {-1, 2}, {0, 0}, {0, -1}, {1, 2}};
    dtl_backend_vtable_t main = DTL_BACKEND_VTABLE_INIT;
    dtl_comm_vtable_t comm;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_comm_t opened = DTL_COMM_NULL;
    int32_t rank = -1;
    int i;
    comm_fill(&comm);
    main.comm = &comm;
    CHECK_OK(dtl_backend_register("messages", &main, NULL, 0, &backend));
    desc.kind = "messages";
    for (i = 0; i < 5; i++) {
        rank_answer = answers[i][0], size_answer = answers[i][1];
        if (i < 4) {
            CHECK_STATUS(dtl_comm_open(&desc, &opened), DTL_ERROR_NATIVE_BACKEND);
            CHECK(opened.id == 0 && closed == i + 1); /* what it opened is closed */
        }
    }
    /* Several ranks need a transport that works; one alone does not use it. */
    CHECK_STATUS(dtl_comm_open(&desc, &opened), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("comm.irecv");
    CHECK(opened.id == 0 && closed == 5);
    rank_answer = 0, size_answer = 1;
    CHECK_OK(dtl_comm_open(&desc, &opened));
    CHECK_OK(dtl_comm_rank(opened, &rank));
    CHECK(rank == 0);
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);
    CHECK_OK(dtl_comm_destroy(opened));
    CHECK(closed == 6);
    CHECK_OK(dtl_backend_unregister(backend));
}

int main(void) {
    test_memory_only();
    test_memory_that_tells();
    test_memory_of_each_device();
    test_device_only();
    test_transfer();
    test_exec();
    test_carried();
    test_streams_only();
    test_host_execution();
    test_slot_failures();
    test_said(&far);
    test_failing_destroy();
    test_comm_open();
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
