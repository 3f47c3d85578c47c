/* Parallel loops of pool executors as a C program sees them: every iteration once, whatever the sizes and
 * however many callers and threads; work that is unevenly spread; failures; no processor time when idle. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
#define LINKAGE extern "C"
#else
#define LINKAGE
#endif

enum { MOST = 5000 };

static dtl_backend_t host;

static int get(int* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static int add(int* word, int value) { return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL); }

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Waits until a word has a value. */
static void await(int* word, int value) {
    while (get(word) < value) pause_ms(0);
}

static dtl_executor_t new_pool(uint32_t threads) {
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    dtl_executor_t pool = DTL_EXECUTOR_NULL;
    desc.kind = DTL_EXECUTOR_POOL, desc.threads = threads;
    CHECK_OK(dtl_executor_create(host, &desc, &pool));
    return pool;
}

struct counts {
    uint64_t begin, length, grain;
    int wrong;
    int of[MOST];
};

LINKAGE dtl_status_t count(uint64_t begin, uint64_t end, void* user) {
    struct counts* counts = (struct counts*)user;
    const uint64_t stop = counts->begin + counts->length;
    if (begin >= end || begin < counts->begin || end > stop) add(&counts->wrong, 1);
    if (counts->grain != 0) {
        /* Pieces begin at multiples of the grain and are whole, save the last. */
        if ((begin - counts->begin) % counts->grain != 0) add(&counts->wrong, 1);
        if (end - begin != counts->grain && end != stop) add(&counts->wrong, 1);
    }
    for (; begin < end; begin++) add(&counts->of[begin - counts->begin], 1);
    return DTL_SUCCESS;
}

static void check_counts(dtl_executor_t pool, uint64_t begin, uint64_t length, uint64_t grain) {
    struct counts* counts = (struct counts*)calloc(1, sizeof *counts);
    uint64_t i;
    CHECK(counts != NULL);
    counts->begin = begin, counts->length = length, counts->grain = grain;
    CHECK_OK(dtl_executor_parallel_for(pool, begin, begin + length, grain, count, counts));
    CHECK(counts->wrong == 0);
    for (i = 0; i < length; i++) CHECK(counts->of[i] == 1);
    free(counts);
}

static uint64_t next_random(uint64_t* state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

static void test_every_iteration_once(void) {
    const uint32_t sizes[5] = {1, 2, 3, 8, 17};
    uint64_t state = 88172645463325252u;
    int size, round;
    for (size = 0; size < 5; size++) {
        dtl_executor_t pool = new_pool(sizes[size]);
        for (round = 0; round < 150; round++) {
            const uint64_t length = next_random(&state) % (round % 3 == 0 ? 40 : MOST);
            const uint64_t grain = round % 4 == 0 ? 0 : 1 + next_random(&state) % (round % 4 == 1 ? 8 : 900);
            const uint64_t begin = round % 5 == 0 ? UINT64_MAX - length : next_random(&state) >> 20;
            check_counts(pool, begin, length, grain);
        }
        CHECK_OK(dtl_executor_destroy(pool));
    }
}

struct uneven {
    int done;
};

/* The first iteration waits for all others: the rest of its thread's share must be taken by another one. */
LINKAGE dtl_status_t first_is_last(uint64_t begin, uint64_t end, void* user) {
    struct uneven* uneven = (struct uneven*)user;
    if (begin == 0) await(&uneven->done, 99);
    add(&uneven->done, (int)(end - begin));
    return DTL_SUCCESS;
}

static void test_uneven_work(void) {
    uint32_t threads;
    for (threads = 2; threads <= 8; threads += 3) {
        dtl_executor_t pool = new_pool(threads);
        int round;
        for (round = 0; round < 20; round++) {
            struct uneven uneven = {0};
            CHECK_OK(dtl_executor_parallel_for(pool, 0, 100, 1, first_is_last, &uneven));
            CHECK(get(&uneven.done) == 100);
        }
        CHECK_OK(dtl_executor_destroy(pool));
    }
}

struct nest {
    dtl_executor_t outer, inner;
    int total;
};

LINKAGE dtl_status_t leaf(uint64_t begin, uint64_t end, void* user) {
    add(&((struct nest*)user)->total, (int)(end - begin));
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t middle(uint64_t begin, uint64_t end, void* user) {
    struct nest* nest = (struct nest*)user;
    for (; begin < end; begin++) DTL_TRY(dtl_executor_parallel_for(nest->outer, 0, 10, 1, leaf, nest));
    return DTL_SUCCESS;
}

LINKAGE dtl_status_t top(uint64_t begin, uint64_t end, void* user) {
    struct nest* nest = (struct nest*)user;
    for (; begin < end; begin++) {
        DTL_TRY(dtl_executor_parallel_for(nest->outer, 0, 8, 1, middle, nest));
        DTL_TRY(dtl_executor_parallel_for(nest->inner, 0, 8, 3, middle, nest));
    }
    return DTL_SUCCESS;
}

static void test_nested(void) {
    struct nest nest = {new_pool(3), new_pool(2), 0};
    int round;
    for (round = 0; round < 10; round++)
        CHECK_OK(dtl_executor_parallel_for(nest.outer, 0, 10, 1, top, &nest));
    CHECK(get(&nest.total) == 10 * 10 * (80 + 80));
    CHECK_OK(dtl_executor_destroy(nest.outer));
    CHECK_OK(dtl_executor_destroy(nest.inner));
}

LINKAGE void* call_often(void* user) {
    dtl_executor_t pool = *(dtl_executor_t*)user;
    int round;
    for (round = 0; round < 60; round++) check_counts(pool, 7, 1 + (uint64_t)round * 13, 3);
    return NULL;
}

/* More callers than loops that the workers can be shown at once; more threads than processors. */
static void test_callers_at_once(void) {
    const uint32_t sizes[2] = {2, 8};
    pthread_t callers[10];
    int size, i;
    for (size = 0; size < 2; size++) {
        dtl_executor_t pool = new_pool(sizes[size]);
        for (i = 0; i < 10; i++) CHECK(pthread_create(&callers[i], NULL, call_often, &pool) == 0);
        for (i = 0; i < 10; i++) CHECK(pthread_join(callers[i], NULL) == 0);
        CHECK_OK(dtl_executor_destroy(pool));
    }
}

struct meeting {
    int arrived, threads;
};

LINKAGE dtl_status_t meet(uint64_t begin, uint64_t end, void* user) {
    struct meeting* meeting = (struct meeting*)user;
    (void)begin, (void)end;
    add(&meeting->arrived, 1);
    await(&meeting->arrived, meeting->threads);
    return DTL_SUCCESS;
}

/* As many pieces as threads run at once, also after the workers have gone to sleep. */
static void test_all_threads_come(void) {
    const int sizes[3] = {2, 5, 16};
    int size, round;
    for (size = 0; size < 3; size++) {
        dtl_executor_t pool = new_pool((uint32_t)sizes[size]);
        for (round = 0; round < 6; round++) {
            struct meeting meeting = {0, sizes[size]};
            if (round % 2 == 1) pause_ms(5);
            CHECK_OK(dtl_executor_parallel_for(pool, 0, (uint64_t)sizes[size], 1, meet, &meeting));
        }
        CHECK_OK(dtl_executor_destroy(pool));
    }
}

struct failing {
    int begun;
    uint64_t at;
};

LINKAGE dtl_status_t fail_at(uint64_t begin, uint64_t end, void* user) {
    struct failing* failing = (struct failing*)user;
    (void)end;
    add(&failing->begun, 1);
    if (begin == failing->at) return DTL_ERROR_BUSY;
    pause_ms(1);
    return DTL_SUCCESS;
}

static void test_failures(void) {
    const uint64_t at[3] = {0, 60, 599};
    dtl_executor_t pool = new_pool(4);
    int i;
    for (i = 0; i < 3; i++) {
        struct failing failing = {0, at[i]};
        char text[32];
        CHECK_STATUS(dtl_executor_parallel_for(pool, 0, 2000, 1, fail_at, &failing), DTL_ERROR_BUSY);
        snprintf(text, sizeof text, "%u..%u", (unsigned)at[i], (unsigned)at[i] + 1);
        CHECK(strstr(dtl_last_error(), text) != NULL);
        CHECK(get(&failing.begun) < 2000); /* what had not begun was left out */
        check_counts(pool, 0, 1000, 7);
    }
    CHECK_OK(dtl_executor_destroy(pool));
}

LINKAGE dtl_status_t bump(void* user) {
    add((int*)user, 1);
    return DTL_SUCCESS;
}

struct calling {
    dtl_executor_t pool;
    int tasks;
};

/* A body that uses the library, also the executor that it runs on. */
LINKAGE dtl_status_t call_back(uint64_t begin, uint64_t end, void* user) {
    struct calling* calling = (struct calling*)user;
    for (; begin < end; begin++) {
        void* memory = NULL;
        DTL_TRY(dtl_mem_alloc(host, DTL_MEMORY_HOST, 100 + begin, 0, &memory));
        DTL_TRY(dtl_executor_run_async(calling->pool, bump, &calling->tasks, DTL_EVENT_NULL));
        DTL_TRY(dtl_executor_run(calling->pool, bump, &calling->tasks));
        DTL_TRY(dtl_mem_free(host, memory));
    }
    return DTL_SUCCESS;
}

static void test_calls_back(void) {
    struct calling calling = {new_pool(3), 0};
    CHECK_OK(dtl_executor_parallel_for(calling.pool, 0, 500, 5, call_back, &calling));
    CHECK_OK(dtl_executor_wait(calling.pool, DTL_TIMEOUT_INFINITE));
    CHECK(get(&calling.tasks) == 1000);
    CHECK_OK(dtl_executor_destroy(calling.pool));
}

struct destroyed {
    dtl_executor_t pool;
    int begun, done;
};

LINKAGE dtl_status_t slow(uint64_t begin, uint64_t end, void* user) {
    struct destroyed* destroyed = (struct destroyed*)user;
    add(&destroyed->begun, 1);
    pause_ms(1);
    add(&destroyed->done, (int)(end - begin));
    return DTL_SUCCESS;
}

LINKAGE void* loop_slowly(void* user) {
    struct destroyed* destroyed = (struct destroyed*)user;
    CHECK_OK(dtl_executor_parallel_for(destroyed->pool, 0, 60, 1, slow, destroyed));
    CHECK(get(&destroyed->done) == 60);
    return NULL;
}

/* A loop in progress is finished when its executor is destroyed. */
static void test_destroyed_in_between(void) {
    struct destroyed destroyed = {new_pool(3), 0, 0};
    pthread_t caller;
    CHECK(pthread_create(&caller, NULL, loop_slowly, &destroyed) == 0);
    await(&destroyed.begun, 5);
    CHECK_OK(dtl_executor_destroy(destroyed.pool));
    CHECK(pthread_join(caller, NULL) == 0);
}

static sem_t other_began;

LINKAGE dtl_status_t sleep_in_others(uint64_t begin, uint64_t end, void* user) {
    (void)end;
    if (begin == 0) {
        CHECK(sem_wait(&other_began) == 0);
    } else {
        CHECK(sem_post(&other_began) == 0);
        pause_ms(200);
    }
    (void)user;
    return DTL_SUCCESS;
}

/* Threads without work use no processor time: not after loops, not while they wait for others. */
static void test_idle(void) {
    const uint32_t sizes[2] = {2, 8};
    int size, round;
    CHECK(sem_init(&other_began, 0, 0) == 0);
    for (size = 0; size < 2; size++) {
        dtl_executor_t pool = new_pool(sizes[size]);
        double used;
        for (round = 0; round < 300; round++) check_counts(pool, 0, 500, 1);
        do { /* on a busy machine it takes a while until all have gone to sleep */
            used = seconds(CLOCK_PROCESS_CPUTIME_ID);
            pause_ms(200);
            used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        } while (used >= 0.005);
        used = seconds(CLOCK_PROCESS_CPUTIME_ID);
        CHECK_OK(dtl_executor_parallel_for(pool, 0, 2, 1, sleep_in_others, NULL));
        used = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
        CHECK(used < 0.050); /* the caller polled for the start of the other, then slept */
        CHECK_OK(dtl_executor_destroy(pool));
    }
}

static void in_child(dtl_executor_t parents) {
    dtl_executor_t pool;
    CHECK_STATUS(dtl_executor_parallel_for(parents, 0, 10, 1, leaf, NULL), DTL_ERROR_FORKED);
    CHECK_OK(dtl_init_after_fork());
    CHECK_STATUS(dtl_executor_parallel_for(parents, 0, 10, 1, leaf, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_backend_get("host", &host));
    pool = new_pool(3);
    check_counts(pool, 0, 1000, 7);
    CHECK_OK(dtl_executor_destroy(pool));
    _exit(0);
}

/* A forked child has none of the parent's workers: it makes executors of its own. */
static void test_forked(void) {
    dtl_executor_t pool = new_pool(3);
    pid_t child;
    int status = -1;
    check_counts(pool, 0, 1000, 7);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) in_child(pool);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    check_counts(pool, 0, 1000, 7);
    CHECK_OK(dtl_executor_destroy(pool));
}

int main(void) {
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    test_every_iteration_once();
    test_uneven_work();
    test_nested();
    test_callers_at_once();
    test_all_threads_come();
    test_failures();
    test_calls_back();
    test_destroyed_in_between();
    test_idle();
    test_forked();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
