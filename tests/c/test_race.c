/* Destroy against use: one thread makes and destroys objects, another uses whatever is current.
 * The user may see nothing but DTL_SUCCESS, DTL_ERROR_INVALID_HANDLE and DTL_ERROR_CANCELED, and
 * DTL_ERROR_BUSY where the header says so.
 *     test_race               a million rounds with events, half a million over the other kinds
 *     test_race fewer         a twentieth of them
 *     test_race KIND ROUNDS   so many rounds with one kind, with progress; tests/full has them all
 * C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "entries.h"
#include <pthread.h>
#include <time.h>

static uint64_t current; /* the handle in play */
static int stop;
static uint64_t seen[4]; /* success, stale, canceled, busy */
static int begun;

static uint64_t now_playing(void) { return __atomic_load_n(&current, __ATOMIC_RELAXED); }

/* Shows a handle, and leaves it alive for a while that differs from round to round. */
static void play(uint64_t id) {
    static uint32_t turn;
    uint32_t pause = (turn = turn * 1664525u + 1013904223u) >> 22;
    __atomic_store_n(&current, id, __ATOMIC_RELAXED);
    while (pause-- > 0) now_playing();
}

static int allowed(dtl_status_t status, int may_be_busy) {
    const int which = status == DTL_SUCCESS ? 0 : status == DTL_ERROR_INVALID_HANDLE ? 1 :
                      status == DTL_ERROR_CANCELED ? 2 : status == DTL_ERROR_BUSY && may_be_busy ? 3 : -1;
    if (which < 0) return 0;
    __atomic_fetch_add(&seen[which], 1, __ATOMIC_RELAXED);
    return 1;
}

#define ALLOWED(call) CHECK(allowed(call, 0))
#define ALLOWED_OR_BUSY(call) CHECK(allowed(call, 1))

typedef void (*round_fn)(uint64_t round);

static dtl_backend_t host;
static struct far far;
static struct far_tables tables;

static void make_event(uint64_t round) {
    dtl_event_t event;
    (void)round;
    CHECK_OK(dtl_event_create(host, 0, &event));
    play(event.id);
    CHECK_OK(dtl_event_destroy(event));
}
static void use_event(uint64_t round) {
    const dtl_event_t event = {now_playing()};
    int32_t state = 0;
    if (round % 3 == 0) ALLOWED(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    else if (round % 3 == 1) ALLOWED(dtl_event_query(event, &state));
    else ALLOWED(dtl_event_record(event, DTL_STREAM_NULL));
}

static void make_stream(uint64_t round) {
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    play(stream.id);
    if (round % 512 == 0) CHECK(allowed(dtl_stream_host_callback(stream, e_task, NULL), 0));
    CHECK_OK(dtl_stream_destroy(stream));
}
static void use_stream(uint64_t round) {
    const dtl_stream_t stream = {now_playing()};
    int32_t done = 0;
    if (round % 1024 == 0) ALLOWED(dtl_stream_host_callback(stream, e_task, NULL));
    else if (round % 2 == 0) ALLOWED(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    else ALLOWED(dtl_stream_query(stream, &done));
}

static void make_executor(uint64_t round) {
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    dtl_executor_t executor;
    desc.kind = round % 256 == 0 ? DTL_EXECUTOR_POOL : DTL_EXECUTOR_INLINE;
    desc.threads = round % 256 == 0 ? 2 : 0;
    CHECK_OK(dtl_executor_create(host, &desc, &executor));
    play(executor.id);
    CHECK_OK(dtl_executor_destroy(executor));
}
static void use_executor(uint64_t round) {
    const dtl_executor_t executor = {now_playing()};
    dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
    if (round % 4 == 0) ALLOWED(dtl_executor_run(executor, e_task, NULL));
    else if (round % 4 == 1) ALLOWED(dtl_executor_parallel_for(executor, 0, 4, 1, e_range, NULL));
    else if (round % 4 == 2) ALLOWED(dtl_executor_run_async(executor, e_task, NULL, DTL_EVENT_NULL));
    else ALLOWED(dtl_executor_info(executor, &info));
}

static void make_comm(uint64_t round) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    (void)round;
    desc.kind = "self";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    play(comm.id);
    CHECK_OK(dtl_comm_destroy(comm));
}
static void use_comm(uint64_t round) {
    const dtl_comm_t comm = {now_playing()};
    dtl_request_t request;
    static char buffer[8];
    int32_t size = 0;
    if (round % 4 == 0) {
        ALLOWED(dtl_comm_barrier(comm));
    } else if (round % 4 == 1) {
        ALLOWED(dtl_comm_recv(comm, buffer, 8, DTL_DTYPE_BYTE, 0, 5, NULL)); /* ends by the destroy only */
    } else if (round % 4 == 2) {
        const dtl_status_t status = dtl_comm_irecv(comm, buffer, 8, DTL_DTYPE_BYTE, 0, 5, &request);
        CHECK(allowed(status, 0));
        if (status == DTL_SUCCESS) ALLOWED(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    } else {
        ALLOWED(dtl_comm_size(comm, &size));
    }
}

static void make_pool(uint64_t round) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    dtl_pool_t pool;
    dtl_status_t status;
    int i;
    CHECK_OK(dtl_pool_create(host, round % 2 ? DTL_MEMORY_PINNED : DTL_MEMORY_HOST, NULL, &pool));
    play(pool.id);
    for (i = 0; i < 10; i++) CHECK_OK(dtl_pool_stats(pool, &stats)); /* so that it is found alive now and then */
    do status = dtl_pool_destroy(pool); /* busy while the other thread has a block */
    while (status == DTL_ERROR_BUSY);
    CHECK_OK(status);
}
static void use_pool(uint64_t round) {
    const dtl_pool_t pool = {now_playing()};
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    void* memory = NULL;
    if (round % 4 != 0) {
        ALLOWED(dtl_pool_alloc(pool, 100, 0, &memory));
        /* A pool that goes while one allocates from it leaves the block to dtl_finalize. */
        if (memory != NULL) ALLOWED(dtl_pool_free(pool, memory));
    } else {
        ALLOWED(dtl_pool_stats(pool, &stats));
    }
}

static void make_kernel(uint64_t round) {
    dtl_kernel_t kernel;
    (void)round;
    CHECK_OK(dtl_kernel_from_function(host, e_kernel, NULL, &kernel));
    play(kernel.id);
    CHECK_OK(dtl_kernel_destroy(kernel));
}
static void use_kernel(uint64_t round) {
    const dtl_kernel_t kernel = {now_playing()};
    ALLOWED(dtl_kernel_launch(DTL_STREAM_NULL, kernel, &e_launch, NULL, NULL, 0));
    if (round % 1024 == 0) ALLOWED(dtl_stream_wait(DTL_STREAM_NULL, DTL_TIMEOUT_INFINITE)); /* so that the queue stays short */
}

/* A request ends for whoever asks first: the other one finds it stale. */
static void make_request(uint64_t round) {
    static char buffer[8];
    dtl_request_t request;
    (void)round;
    CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, buffer, 8, DTL_DTYPE_BYTE, 0, 6, &request));
    play(request.id);
    ALLOWED(dtl_request_cancel(request));
    ALLOWED(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
}
static void use_request(uint64_t round) {
    const dtl_request_t request = {now_playing()};
    int32_t done = 0;
    if (round % 8 == 0) ALLOWED(dtl_request_cancel(request));
    else if (round % 8 == 1) ALLOWED(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    else ALLOWED(dtl_request_test(request, &done, NULL));
}

static void make_backend(uint64_t round) {
    dtl_backend_t backend;
    dtl_status_t status;
    (void)round;
    CHECK_OK(dtl_backend_register("racer", &tables.main, &far, 0, &backend));
    play(backend.id);
    do status = dtl_backend_unregister(backend);
    while (allowed(status, 1) && status == DTL_ERROR_BUSY);
    CHECK(status == DTL_SUCCESS);
}
static void use_backend(uint64_t round) {
    const dtl_backend_t backend = {now_playing()};
    int32_t count = 0;
    if (round % 4 == 0) {
        void* memory = NULL;
        const dtl_status_t status = dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 16, 0, &memory);
        CHECK(allowed(status, 1));
        if (status == DTL_SUCCESS) { /* it keeps its backend */
            CHECK_OK(dtl_mem_fill(memory, 1, 16));
            CHECK_OK(dtl_mem_free(backend, memory));
        }
    } else if (round % 4 == 1) {
        dtl_event_t event;
        const dtl_status_t status = dtl_event_create(backend, 0, &event);
        CHECK(allowed(status, 1));
        if (status == DTL_SUCCESS) CHECK_OK(dtl_event_destroy(event));
    } else {
        ALLOWED(dtl_backend_device_count(backend, &count));
    }
}

static void* use_until_stopped(void* user) {
    const round_fn use = *(const round_fn*)user;
    uint64_t round;
    far_add(&begun);
    for (round = 0; !far_get(&stop); round++) use(round);
    return NULL;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

struct kind {
    const char* name;
    round_fn make, use;
    uint64_t rounds; /* unless the arguments say otherwise */
};

static const struct kind kinds[] = {
    {"events", make_event, use_event, 1000000},      {"streams", make_stream, use_stream, 20000}, /* the dearest */
    {"executors", make_executor, use_executor, 180000}, {"kernels", make_kernel, use_kernel, 100000},
    {"pools", make_pool, use_pool, 5000},
    {"requests", make_request, use_request, 100000}, {"communicators", make_comm, use_comm, 50000},
    {"backends", make_backend, use_backend, 50000}};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static void race(const struct kind* kind, uint64_t rounds, int tells_progress) {
    const double start = seconds();
    const uint64_t tenth = rounds / 10 + 1;
    pthread_t user;
    round_fn use = kind->use;
    uint64_t round;
    memset(seen, 0, sizeof seen);
    __atomic_store_n(&stop, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&begun, 0, __ATOMIC_RELEASE);
    play(UINT64_MAX);
    CHECK(pthread_create(&user, NULL, use_until_stopped, &use) == 0);
    while (!far_get(&begun)) {}
    for (round = 0; round < rounds; round++) {
        kind->make(round);
        if (tells_progress && round % tenth == tenth - 1) {
            printf("%s: %lu of %lu rounds after %.1f s\n", kind->name, (unsigned long)round + 1,
                   (unsigned long)rounds, seconds() - start);
            fflush(stdout);
        }
    }
    far_add(&stop);
    CHECK(pthread_join(user, NULL) == 0);
    printf("%s: %lu rounds in %.2f s; uses: %lu went well, %lu stale, %lu cancelled, %lu busy\n", kind->name,
           (unsigned long)rounds, seconds() - start, (unsigned long)seen[0], (unsigned long)seen[1],
           (unsigned long)seen[2], (unsigned long)seen[3]);
}

int main(int argc, char** argv) {
    uint64_t backends = 0;
    size_t i, chosen = 0;
    const int fewer = argc == 2 && strcmp(argv[1], "fewer") == 0, one = argc > 1 && !fewer;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    far_fill(&tables);
    for (i = 0; i < KIND_COUNT; i++) {
        const uint64_t all = fewer ? kinds[i].rounds / 20 : kinds[i].rounds;
        const uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : all;
        if (one && strcmp(argv[1], kinds[i].name) != 0) continue;
        chosen++;
        race(&kinds[i], rounds, one);
        if (kinds[i].make == make_backend) backends = rounds;
    }
    CHECK(chosen > 0); /* the kind's name is known */
    CHECK_OK(dtl_finalize());
    CHECK(far.allocs == far.frees && (uint64_t)far.destroyed == backends);
    printf("ok\n");
    return 0;
}
