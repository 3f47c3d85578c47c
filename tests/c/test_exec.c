/* Streams, events, executors and kernels as a C program sees them. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#endif
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
#define LINKAGE extern "C"
#else
#define LINKAGE
#endif

static dtl_backend_t host, null_backend;

/* Shared words go through these, so that C11 and C++17 read the same. */
static void put(int* word, int value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static int get(int* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static int add(int* word, int value) { return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL); }

static void pause_ns(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

static dtl_stream_t new_stream(void) {
    dtl_stream_t stream = DTL_STREAM_NULL;
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK(stream.id != 0);
    return stream;
}

static dtl_event_t new_event(dtl_backend_t backend) {
    dtl_event_t event = DTL_EVENT_NULL;
    CHECK_OK(dtl_event_create(backend, 0, &event));
    return event;
}

/* Keeps a stream busy until the word is set. */
LINKAGE dtl_status_t hold(void* user) {
    while (!get((int*)user)) pause_ns(100000);
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t count_up(void* user) {
    add((int*)user, 1);
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t fail_with(void* user) { return *(dtl_status_t*)user; }

static dtl_status_t memory_failure = DTL_ERROR_MEMORY;

static void test_streams(void) {
    dtl_stream_t stream = new_stream(), same, again;
    int open = 0, count = 0, done = -1;
    void* native = NULL;
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 1);
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_stream_host_callback(stream, count_up, &count));
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 0 && get(&count) == 0);
    put(&open, 1);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(get(&count) == 1);
    CHECK_OK(dtl_stream_host_callback(stream, count_up, &count));
    CHECK_OK(dtl_stream_destroy(stream)); /* finishes its work */
    CHECK(get(&count) == 2);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_stream_destroy(stream), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_stream_destroy(DTL_STREAM_NULL));

    CHECK_STATUS(dtl_stream_create(host, 0, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_stream_create(host, 7, 0, &same), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(host, -1, 0, &same), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(host, 0, 1, &same), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_stream_wrap(host, &count, &same), DTL_ERROR_NOT_SUPPORTED);

    CHECK_OK(dtl_stream_default(host, 0, &same));
    CHECK_OK(dtl_stream_default(host, 0, &again));
    CHECK(same.id == again.id);
    CHECK_OK(dtl_stream_destroy(same)); /* stays */
    CHECK_OK(dtl_stream_host_callback(same, count_up, &count));
    CHECK_OK(dtl_device_wait(host, 0, DTL_TIMEOUT_INFINITE));
    CHECK(get(&count) == 3);
    CHECK_STATUS(dtl_stream_default(host, 3, &again), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_device_wait(host, 3, DTL_TIMEOUT_INFINITE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_stream_host_callback(DTL_STREAM_NULL, count_up, &count));
    CHECK_OK(dtl_stream_wait(DTL_STREAM_NULL, DTL_TIMEOUT_INFINITE));
    CHECK(get(&count) == 4);
    CHECK_STATUS(dtl_stream_native(same, &native), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_stream_host_callback(same, NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_stream_query(same, NULL), DTL_ERROR_NULL_POINTER);

    CHECK_OK(dtl_stream_wrap(null_backend, &count, &stream));
    CHECK_OK(dtl_stream_native(stream, &native));
    CHECK(native == &count);
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_failures(void) {
    dtl_stream_t stream = new_stream(), other = new_stream();
    dtl_event_t before = new_event(host), after = new_event(host), late = new_event(host);
    int open = 0, count = 0, state = -1, done;
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_event_record(before, stream));
    CHECK_OK(dtl_stream_host_callback(stream, fail_with, &memory_failure));
    CHECK_OK(dtl_stream_host_callback(stream, count_up, &count));
    CHECK_OK(dtl_event_record(after, stream));
    CHECK_OK(dtl_stream_wait_event(other, after));
    CHECK_OK(dtl_event_query(after, &state));
    CHECK(state == 0);
    put(&open, 1);
    CHECK_OK(dtl_event_wait(before, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_event_wait(after, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK(strstr(dtl_last_error(), "DTL_ERROR_MEMORY") != NULL);
    CHECK(get(&count) == 1); /* work behind a failure still runs */
    CHECK_OK(dtl_event_record(late, stream));
    CHECK_STATUS(dtl_event_query(late, &state), DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE)); /* reported once */
    CHECK_STATUS(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_event_record(after, stream));
    CHECK_OK(dtl_event_wait(after, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(before));
    CHECK_OK(dtl_event_destroy(after));
    CHECK_OK(dtl_event_destroy(late));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(other));
}

struct waiter {
    dtl_event_t event;
    dtl_status_t status;
};

LINKAGE void* wait_for_event(void* user) {
    struct waiter* waiter = (struct waiter*)user;
    waiter->status = dtl_event_wait(waiter->event, DTL_TIMEOUT_INFINITE);
    return NULL;
}

static void test_events(void) {
    dtl_stream_t stream = new_stream(), foreign, wrong_type;
    dtl_event_t start = new_event(host), stop = new_event(host), untimed, alien;
    struct waiter waiters[2];
    pthread_t threads[2];
    int open = 0, state = -1, i;
    uint64_t ns = 0;
    CHECK_OK(dtl_event_wait(start, DTL_TIMEOUT_INFINITE)); /* never recorded = done */
    CHECK_OK(dtl_event_query(start, &state));
    CHECK(state == 1);
    CHECK_STATUS(dtl_event_elapsed_ns(start, stop, &ns), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_event_create(host, DTL_EVENT_NO_TIMING, &untimed));
    CHECK_STATUS(dtl_event_elapsed_ns(start, untimed, &ns), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_event_create(host, 2, &alien), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_event_create(host, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_event_query(start, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_event_destroy(DTL_EVENT_NULL));
    CHECK_STATUS(dtl_event_wait(DTL_EVENT_NULL, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);

    CHECK_OK(dtl_event_record(start, stream));
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_event_record(stop, stream));
    CHECK_STATUS(dtl_event_wait(stop, 2000000), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_event_wait(stop, 0), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_event_elapsed_ns(start, stop, &ns), DTL_ERROR_INVALID_STATE);
    put(&open, 1);
    CHECK_OK(dtl_event_wait(stop, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_elapsed_ns(start, stop, &ns));
    CHECK(ns >= 2000000 && ns < 60000000000u);
    CHECK_STATUS(dtl_event_elapsed_ns(stop, start, &ns), DTL_ERROR_INVALID_ARGUMENT);

    /* Two threads wait while the event is destroyed. */
    put(&open, 0);
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_event_record(stop, stream));
    for (i = 0; i < 2; i++) {
        waiters[i].event = stop;
        CHECK(pthread_create(&threads[i], NULL, wait_for_event, &waiters[i]) == 0);
    }
    pause_ns(30000000);
    CHECK_OK(dtl_event_destroy(stop));
    for (i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(waiters[i].status == DTL_ERROR_CANCELED);
    }
    CHECK_STATUS(dtl_event_destroy(stop), DTL_ERROR_INVALID_HANDLE);
    put(&open, 1);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));

    /* Two backends. */
    CHECK_OK(dtl_stream_create(null_backend, 0, 0, &foreign));
    alien = new_event(null_backend);
    CHECK_OK(dtl_event_record(alien, foreign));
    CHECK_OK(dtl_stream_wait_event(stream, alien));
    CHECK_OK(dtl_stream_wait_event(foreign, start));
    CHECK_STATUS(dtl_event_record(alien, stream), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "'null'") != NULL && strstr(dtl_last_error(), "'host'") != NULL);
    CHECK_STATUS(dtl_event_elapsed_ns(start, alien, &ns), DTL_ERROR_INVALID_ARGUMENT);
    wrong_type.id = start.id;
    CHECK_STATUS(dtl_event_record(start, wrong_type), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_stream_destroy(foreign));
    CHECK_OK(dtl_event_destroy(alien));
    CHECK_OK(dtl_event_destroy(untimed));
    CHECK_OK(dtl_event_destroy(start));
    CHECK_OK(dtl_stream_destroy(stream));
}

LINKAGE dtl_status_t synchronize_self(void* user) { return dtl_stream_wait(*(dtl_stream_t*)user, DTL_TIMEOUT_INFINITE); }

LINKAGE dtl_status_t destroy_self(void* user) { return dtl_stream_destroy(*(dtl_stream_t*)user); }

static void test_streams_from_their_own_work(void) {
    static dtl_stream_t stream;
    dtl_event_t done = new_event(host);
    stream = new_stream();
    CHECK_OK(dtl_stream_host_callback(stream, synchronize_self, &stream));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_stream_host_callback(stream, destroy_self, &stream));
    while (dtl_event_record(done, stream) == DTL_SUCCESS) CHECK_OK(dtl_event_wait(done, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(done));
}

struct seen {
    int calls[96];
    int value_wrong, shared_wrong;
};

/* args: struct seen*, double, and an int that the caller changes after the launch. */
LINKAGE dtl_status_t visit(const dtl_kernel_context_t* context, const void* const* args) {
    struct seen* seen = *(struct seen* const*)args[0];
    const uint32_t *grid = context->grid, *block = context->block;
    const uint32_t *b = context->block_index, *t = context->thread_index;
    uint32_t block_rank = b[0] + grid[0] * (b[1] + grid[1] * b[2]);
    uint32_t thread_rank = t[0] + block[0] * (t[1] + block[1] * t[2]);
    uint32_t* shared = (uint32_t*)context->shared;
    if (*(const double*)args[1] != 2.5 || *(const int*)args[2] != 42) put(&seen->value_wrong, 1);
    if (context->user != (void*)&host) put(&seen->value_wrong, 1);
    /* The threads of a block run in order and count in zeroed memory of the block's own. */
    if (context->shared_bytes != 64 || shared[3] != thread_rank) put(&seen->shared_wrong, 1);
    shared[3]++;
    add(&seen->calls[block_rank * block[0] * block[1] * block[2] + thread_rank], 1);
    if (thread_rank == 0) pause_ns(50000); /* worth sharing among threads */
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t fail_in_block_2(const dtl_kernel_context_t* context, const void* const* args) {
    (void)args;
    add((int*)context->user, 1);
    return context->block_index[0] == 2 ? DTL_ERROR_BUSY : DTL_SUCCESS;
}

static void launch_and_check(dtl_stream_t stream, dtl_kernel_t kernel, dtl_launch_t launch, int calls) {
    static struct seen seen;
    struct seen* pointer = &seen;
    double value = 2.5;
    int number = 42, open = 0, i;
    const void* args[3];
    uint64_t sizes[3] = {sizeof pointer, sizeof value, sizeof number};
    args[0] = &pointer, args[1] = &value, args[2] = &number;
    memset(&seen, 0, sizeof seen);
    launch.shared_bytes = 64;
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 3));
    pointer = NULL, value = 0, number = 0; /* copied at the launch */
    put(&open, 1);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(!seen.value_wrong && !seen.shared_wrong);
    for (i = 0; i < 96; i++) CHECK(seen.calls[i] == (i < calls ? 1 : 0));
}

static void test_kernels(void) {
    dtl_stream_t stream = new_stream(), foreign;
    dtl_kernel_t kernel, failing, alien;
    dtl_launch_t launch = DTL_LAUNCH_INIT, bad;
    const void* no_args[1] = {NULL};
    uint64_t sizes[1] = {8};
    int calls = 0;
    CHECK_OK(dtl_kernel_from_function(host, visit, &host, &kernel));
    CHECK_STATUS(dtl_kernel_from_function(host, NULL, NULL, &alien), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_from_function(host, visit, NULL, NULL), DTL_ERROR_NULL_POINTER);
    launch.grid[0] = 4, launch.block[0] = 8;
    launch_and_check(stream, kernel, launch, 32);
    launch.grid[1] = 3, launch.block[0] = 2, launch.block[1] = 2, launch.block[2] = 2;
    launch_and_check(stream, kernel, launch, 96);

    bad = launch, bad.struct_size = 8;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "dtl_launch_t.struct_size is 8") != NULL);
    bad = launch, bad.shared_bytes = UINT32_MAX;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "shared_bytes of the launch is 4294967295") && strstr(dtl_last_error(), "at most 67108864"));
    bad = launch, bad.grid[2] = 0;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    bad = launch, bad.block[1] = 0;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    bad = launch, bad.block[0] = 1u << 30;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    bad = launch, bad.grid[0] = bad.grid[1] = bad.grid[2] = UINT32_MAX;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &bad, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, NULL, NULL, NULL, 0), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, NULL, sizes, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, no_args, NULL, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, no_args, sizes, 1), DTL_ERROR_NULL_POINTER);
    CHECK(strstr(dtl_last_error(), "argument 0") != NULL);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, no_args, sizes, 1000000), DTL_ERROR_LIMIT);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE)); /* nothing of this was queued */

    CHECK_OK(dtl_kernel_from_function(host, fail_in_block_2, &calls, &failing));
    launch.grid[0] = 1000, launch.grid[1] = 1;
    launch.block[0] = launch.block[1] = launch.block[2] = 1;
    CHECK_OK(dtl_kernel_launch(stream, failing, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_kernel_destroy(failing)); /* the launch goes on */
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_BUSY);
    CHECK(strstr(dtl_last_error(), "[2, 0, 0]") != NULL);
    CHECK(get(&calls) >= 1 && get(&calls) < 1000);

    CHECK_OK(dtl_stream_create(null_backend, 0, 0, &foreign));
    CHECK_STATUS(dtl_kernel_launch(foreign, kernel, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_kernel_launch(foreign, failing, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_kernel_destroy(DTL_KERNEL_NULL));
    CHECK_OK(dtl_stream_destroy(foreign));
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_asynchronous_copies(void) {
    dtl_stream_t stream = new_stream(), foreign;
    char from[64], to[64];
    void* memory = NULL;
    int open = 0, i;
    for (i = 0; i < 64; i++) from[i] = (char)i;
    memset(to, 0, sizeof to);
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory));
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_mem_copy_async(stream, memory, from, 64));
    CHECK_OK(dtl_mem_fill_async(stream, memory, 9, 8));
    CHECK_OK(dtl_mem_copy_async(stream, to, memory, 64));
    CHECK_OK(dtl_mem_copy_async(stream, NULL, NULL, 0));
    CHECK(to[63] == 0);
    put(&open, 1);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 64; i++) CHECK(to[i] == (i < 8 ? 9 : i));
    CHECK_STATUS(dtl_mem_copy_async(stream, memory, from, 65), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_fill_async(stream, memory, 0, 65), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy_async(stream, to, to + 1, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_async(stream, NULL, from, 8), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_fill_async(stream, NULL, 0, 8), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_stream_create(null_backend, 0, 0, &foreign)); /* a stream of another backend */
    CHECK_OK(dtl_mem_fill_async(foreign, memory, 5, 64));
    CHECK_OK(dtl_mem_copy_async(foreign, to, memory, 64));
    CHECK_OK(dtl_stream_wait(foreign, DTL_TIMEOUT_INFINITE));
    CHECK(to[0] == 5 && to[63] == 5);
    CHECK_OK(dtl_stream_destroy(foreign));
    CHECK_OK(dtl_mem_free(host, memory));
    CHECK_OK(dtl_stream_destroy(stream));
}

struct loop {
    dtl_executor_t executor;
    int counts[1000];
    int total;
};

LINKAGE dtl_status_t mark(uint64_t begin, uint64_t end, void* user) {
    struct loop* loop = (struct loop*)user;
    for (; begin < end; begin++) add(&loop->counts[begin], 1);
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t add_length(uint64_t begin, uint64_t end, void* user) {
    add(&((struct loop*)user)->total, (int)(end - begin));
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t nest(uint64_t begin, uint64_t end, void* user) {
    return dtl_executor_parallel_for(((struct loop*)user)->executor, 0, (end - begin) * 10, 1, add_length, user);
}

LINKAGE dtl_status_t fail_at_7(uint64_t begin, uint64_t end, void* user) {
    (void)user;
    return begin <= 7 && 7 < end ? DTL_ERROR_BUSY : DTL_SUCCESS;
}

LINKAGE dtl_status_t sum_fold(uint64_t begin, uint64_t end, void* acc, void* user) {
    if (user != NULL && begin <= 7) return DTL_ERROR_BUSY;
    for (; begin < end; begin++) *(double*)acc += 1.0 / (double)(begin + 1);
    return DTL_SUCCESS;
}

LINKAGE void sum_combine(void* into, const void* from, void* user) {
    (void)user;
    *(double*)into += *(const double*)from;
}

LINKAGE void* two_users(void* user) {
    int i;
    for (i = 0; i < 20; i++)
        CHECK_OK(dtl_executor_parallel_for(((struct loop*)user)->executor, 0, 100, 3, nest, user));
    return NULL;
}

static void check_loops(dtl_executor_t executor) {
    static struct loop loop;
    pthread_t thread;
    int i;
    memset(&loop, 0, sizeof loop);
    loop.executor = executor;
    CHECK_OK(dtl_executor_parallel_for(executor, 0, 500, 7, mark, &loop));
    CHECK_OK(dtl_executor_parallel_for(executor, 500, 1000, 0, mark, &loop));
    for (i = 0; i < 1000; i++) CHECK(loop.counts[i] == 1);
    CHECK(pthread_create(&thread, NULL, two_users, &loop) == 0);
    two_users(&loop);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(get(&loop.total) == 2 * 20 * 1000);
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, UINT64_MAX, 1, fail_at_7, NULL), DTL_ERROR_BUSY);
    CHECK(strstr(dtl_last_error(), "7..8") != NULL);
    CHECK_OK(dtl_executor_parallel_for(executor, 5, 5, 1, fail_at_7, NULL));
    CHECK_STATUS(dtl_executor_parallel_for(executor, 6, 5, 1, mark, &loop), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, 5, 1, NULL, &loop), DTL_ERROR_NULL_POINTER);
}

/* The sum's bits, which must not depend on the executor. */
static void check_reductions(dtl_executor_t executor, double* expected) {
    double zero = 0, sum = -1, whole = -1;
    int dummy;
    CHECK_OK(dtl_executor_parallel_reduce(executor, 0, 100000, 17, sizeof sum, &zero, sum_fold, sum_combine, NULL, &sum));
    CHECK_OK(dtl_executor_parallel_reduce(executor, 0, 100000, 0, sizeof whole, &zero, sum_fold, sum_combine, NULL, &whole));
    if (expected[0] == 0) expected[0] = sum, expected[1] = whole;
    CHECK(memcmp(&sum, &expected[0], sizeof sum) == 0 && memcmp(&whole, &expected[1], sizeof whole) == 0);
    CHECK(sum > 12.09 && sum < 12.1);
    CHECK_OK(dtl_executor_parallel_reduce(executor, 4, 4, 0, sizeof sum, &zero, sum_fold, sum_combine, NULL, &sum));
    CHECK(sum == 0);
    sum = -1;
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 100, 1, sizeof sum, &zero, sum_fold, sum_combine, &dummy, &sum), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 1, 0, 0, sizeof sum, &zero, sum_fold, sum_combine, NULL, &sum), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 1, 0, 0, &zero, sum_fold, sum_combine, NULL, &sum), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 1, 0, sizeof sum, NULL, sum_fold, sum_combine, NULL, &sum), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 1, 0, sizeof sum, &zero, NULL, sum_combine, NULL, &sum), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 1, 0, sizeof sum, &zero, sum_fold, NULL, NULL, &sum), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_executor_parallel_reduce(executor, 0, 1, 0, sizeof sum, &zero, sum_fold, sum_combine, NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK(sum == -1); /* failed calls write nothing */
}

static void check_tasks(dtl_executor_t executor) {
    dtl_event_t event = new_event(host), alien = new_event(null_backend);
    int count = 0, i;
    CHECK_OK(dtl_executor_run(executor, count_up, &count));
    CHECK(get(&count) == 1);
    CHECK_STATUS(dtl_executor_run(executor, fail_with, &memory_failure), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_executor_run_async(executor, count_up, &count, event));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK(get(&count) == 2);
    CHECK_OK(dtl_executor_run_async(executor, fail_with, &memory_failure, event));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    for (i = 0; i < 100; i++) CHECK_OK(dtl_executor_run_async(executor, count_up, &count, DTL_EVENT_NULL));
    CHECK_STATUS(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK(get(&count) == 102);
    CHECK_OK(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_executor_run_async(executor, count_up, &count, alien), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_executor_run(executor, NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_executor_run_async(executor, NULL, NULL, event), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_event_destroy(alien));
}

static dtl_status_t wait_within_task(void *user) {
    dtl_status_t status = dtl_executor_wait(*(dtl_executor_t *)user, DTL_TIMEOUT_INFINITE);
    if (status != DTL_SUCCESS) CHECK(strstr(dtl_last_error(), "an executor cannot be waited for") != NULL);
    return status;
}

static dtl_status_t wait_within_loop(uint64_t begin, uint64_t end, void *user) {
    (void)begin, (void)end;
    return wait_within_task(user);
}

static dtl_status_t wait_limited_within_task(void *user) {
    const dtl_status_t status = dtl_executor_wait(*(dtl_executor_t *)user, UINT64_C(60000000000));
    return status == DTL_ERROR_INVALID_STATE ? DTL_SUCCESS : DTL_ERROR_INTERNAL;
}

static dtl_status_t wait_for_own_stream(void *user) {
    const dtl_status_t status = dtl_stream_wait(*(dtl_stream_t *)user, UINT64_C(60000000000));
    return status == DTL_ERROR_INVALID_STATE ? DTL_SUCCESS : DTL_ERROR_INTERNAL;
}

/* Limits that pass leave the work as it is; a wait by the work itself fails at once. */
static void test_limited_waits(void) {
    const uint32_t kinds[2] = {DTL_EXECUTOR_SEQUENTIAL, DTL_EXECUTOR_POOL};
    dtl_stream_t stream = new_stream();
    int open = 0, i;
    CHECK_OK(dtl_stream_wait(stream, 0)); /* nothing queued */
    CHECK_OK(dtl_stream_host_callback(stream, hold, &open));
    CHECK_OK(dtl_stream_host_callback(stream, fail_with, &memory_failure));
    CHECK_STATUS(dtl_stream_wait(stream, 0), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_stream_wait(stream, 2000000), DTL_ERROR_TIMEOUT);
    CHECK(strstr(dtl_last_error(), "a stream was not done in time") != NULL);
    CHECK_STATUS(dtl_device_wait(host, 0, 0), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_device_wait(host, 0, 2000000), DTL_ERROR_TIMEOUT);
    put(&open, 1);
    CHECK_STATUS(dtl_device_wait(host, 0, UINT64_C(60000000000)), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_stream_wait(stream, UINT64_C(60000000000))); /* reported once */
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_own_stream, &stream));
    CHECK_OK(dtl_stream_wait(stream, UINT64_C(60000000000)));
    CHECK_OK(dtl_stream_destroy(stream));
    for (i = 0; i < 2; i++) {
        dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
        dtl_executor_t executor = DTL_EXECUTOR_NULL;
        desc.kind = kinds[i], desc.threads = i == 0 ? 0 : 2;
        CHECK_OK(dtl_executor_create(host, &desc, &executor));
        CHECK_OK(dtl_executor_wait(executor, 0));
        put(&open, 0);
        CHECK_OK(dtl_executor_run_async(executor, hold, &open, DTL_EVENT_NULL));
        CHECK_STATUS(dtl_executor_wait(executor, 0), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_executor_wait(executor, 2000000), DTL_ERROR_TIMEOUT);
        CHECK(strstr(dtl_last_error(), "an executor was not done in time") != NULL);
        put(&open, 1);
        CHECK_OK(dtl_executor_wait(executor, UINT64_C(60000000000)));
        CHECK_OK(dtl_executor_run_async(executor, wait_limited_within_task, &executor, DTL_EVENT_NULL));
        CHECK_OK(dtl_executor_wait(executor, UINT64_C(60000000000)));
        CHECK_OK(dtl_executor_destroy(executor));
    }
}

/* What its own work gets that waits for the executor. */
static void check_waits_within(dtl_executor_t executor, uint32_t kind) {
    const dtl_status_t of_task = kind == DTL_EXECUTOR_INLINE ? DTL_SUCCESS : DTL_ERROR_INVALID_STATE;
    const dtl_status_t of_loop = kind == DTL_EXECUTOR_SEQUENTIAL ? DTL_ERROR_INVALID_STATE : DTL_SUCCESS;
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, 8, 1, wait_within_loop, &executor), of_loop);
    CHECK_OK(dtl_executor_run_async(executor, wait_within_task, &executor, DTL_EVENT_NULL));
    CHECK_STATUS(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE), of_task);
}

static void test_executors(void) {
    const uint32_t kinds[5] = {DTL_EXECUTOR_INLINE, DTL_EXECUTOR_SEQUENTIAL, DTL_EXECUTOR_POOL, DTL_EXECUTOR_POOL, 0};
    const uint32_t sizes[5] = {0, 0, 1, 4, 0};
    double expected[2] = {0, 0};
    dtl_executor_t executor = DTL_EXECUTOR_NULL;
    int i, count = 0;
    for (i = 0; i < 5; i++) {
        dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
        dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
        desc.kind = kinds[i], desc.threads = sizes[i];
        CHECK_OK(dtl_executor_create(host, i == 4 ? NULL : &desc, &executor));
        CHECK_OK(dtl_executor_info(executor, &info));
        CHECK(info.kind == (i == 4 ? (uint32_t)DTL_EXECUTOR_POOL : kinds[i]));
        CHECK(info.max_parallelism == (i == 3 ? 4u : 1u) || i == 4);
        CHECK(info.suggested_parallelism >= 1);
        check_loops(executor);
        check_reductions(executor, expected);
        check_tasks(executor);
        check_waits_within(executor, info.kind);
        CHECK_OK(dtl_executor_run_async(executor, count_up, &count, DTL_EVENT_NULL));
        CHECK_OK(dtl_executor_destroy(executor)); /* what was started has run */
        CHECK(get(&count) == i + 1);
        CHECK_STATUS(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
        CHECK_STATUS(dtl_executor_info(executor, &info), DTL_ERROR_INVALID_HANDLE);
    }
    CHECK_OK(dtl_executor_destroy(DTL_EXECUTOR_NULL));
}

static void test_bad_descriptions(void) {
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    dtl_executor_t executor = DTL_EXECUTOR_NULL;
    CHECK_STATUS(dtl_executor_create(host, NULL, NULL), DTL_ERROR_NULL_POINTER);
    desc.kind = 77;
    CHECK_STATUS(dtl_executor_create(host, &desc, &executor), DTL_ERROR_INVALID_ARGUMENT);
    desc.kind = DTL_EXECUTOR_BACKEND;
    CHECK_STATUS(dtl_executor_create(host, &desc, &executor), DTL_ERROR_NOT_SUPPORTED);
    desc.kind = DTL_EXECUTOR_POOL, desc.threads = 1000000;
    CHECK_STATUS(dtl_executor_create(host, &desc, &executor), DTL_ERROR_INVALID_ARGUMENT);
    desc.threads = 0, desc.reserved = 1;
    CHECK_STATUS(dtl_executor_create(host, &desc, &executor), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(executor.id == 0);
    CHECK_STATUS(dtl_executor_run(executor, count_up, NULL), DTL_ERROR_INVALID_HANDLE);
}

/* What is alive at the end is ended by dtl_finalize, work included. */
static void test_finalize(void) {
    dtl_stream_t stream = new_stream();
    dtl_event_t event = new_event(host);
    dtl_executor_t executor = DTL_EXECUTOR_NULL;
    int count = 0;
    CHECK_OK(dtl_executor_create(host, NULL, &executor));
    CHECK_OK(dtl_executor_run_async(executor, count_up, &count, DTL_EVENT_NULL));
    CHECK_OK(dtl_stream_host_callback(stream, count_up, &count));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_finalize());
    CHECK(get(&count) == 2);
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_executor_wait(executor, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
}

int main(void) {
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_backend_get("null", &null_backend));
    test_streams();
    test_failures();
    test_events();
    test_streams_from_their_own_work();
    test_kernels();
    test_asynchronous_copies();
    test_executors();
    test_limited_waits();
    test_bad_descriptions();
    test_finalize();
    printf("ok\n");
    return 0;
}
