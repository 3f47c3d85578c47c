/* Dynamic selection by what is learnt of tasks: load and time. No allocation for inline tasks. Spinning tasks take
 * microseconds, so that whole milliseconds would tell nothing. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The process' allocations and looks at the clock, counted: these stand before the C library's. Not where a sanitizer
 * has functions of its own there. */
static uint64_t allocations, clock_reads;
#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define COUNTS 1
#ifdef __cplusplus
#define QUIET noexcept
extern "C" {
#else
#define QUIET
#endif
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
void* malloc(size_t size) QUIET {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) QUIET {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) QUIET {
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    return __libc_realloc(old, size);
}
int clock_gettime(clockid_t which, struct timespec* now) QUIET {
    __atomic_fetch_add(&clock_reads, 1, __ATOMIC_RELAXED);
    return (int)syscall(SYS_clock_gettime, which, now);
}
#ifdef __cplusplus
}
#endif
#else
#define COUNTS 0
#endif

enum { N = 4 };
static const dtl_task_key_t no_key = {0, 0}, sevens = {7, 7};
static dtl_resource_t list[N];
/* How long a task takes on each resource, and the first of each; microseconds. */
static uint64_t takes[N], first_takes[N];
static int ran[N];

static uint64_t now_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void spin(uint64_t microseconds) {
    const uint64_t end = now_ns() + microseconds * 1000;
    while (now_ns() < end) {
    }
}

static dtl_status_t spins(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)arg, (void)wait;
    spin(ran[resource->value]++ == 0 ? first_takes[resource->value] : takes[resource->value]);
    return DTL_SUCCESS;
}

static dtl_status_t nothing(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource, (void)arg, (void)wait;
    return DTL_SUCCESS;
}
static dtl_status_t nothing_else(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)arg, (void)wait;
    return resource->value < N ? DTL_SUCCESS : DTL_ERROR_INTERNAL;
}

static dtl_policy_t policy_of(const char* name, uint32_t samples, uint32_t warmups, uint64_t resample) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    opts.kind = DTL_RESOURCES_INLINE;
    opts.samples = samples, opts.warmups = warmups, opts.resample_submits = resample;
    CHECK_OK(dtl_policy_create(name, list, N, &opts, &policy));
    return policy;
}

static void set_times(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    takes[0] = first_takes[0] = a, takes[1] = first_takes[1] = b;
    takes[2] = first_takes[2] = c, takes[3] = first_takes[3] = d;
    memset(ran, 0, sizeof ran);
}

/* Which resource the task goes to now. */
static uint32_t goes_to(dtl_policy_t policy, dtl_task_key_t key, dtl_policy_task_fn_t task) {
    dtl_submission_t submission;
    CHECK_OK(dtl_policy_submit(policy, key, task, NULL, 0, &submission));
    CHECK(submission.ticket == 0 && submission.status == DTL_SUCCESS);
    return submission.resource;
}

static void submit_many(dtl_policy_t policy, int count) {
    while (count-- > 0) goes_to(policy, no_key, spins);
}

/* Each resource has its warm-ups and samples; then all goes to the fastest. */
static void test_tuning(void) {
    const dtl_policy_t policy = policy_of("auto_tune", 3, 1, 0);
    dtl_policy_stats_t stats[N];
    int i;
    set_times(120, 30, 60, 150);
    submit_many(policy, N * 4);
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    for (i = 0; i < N; i++) CHECK(stats[i].submitted == 4);
    for (i = 0; i < 20; i++) CHECK(goes_to(policy, no_key, spins) == 1);
    set_times(10, 500, 10, 10); /* it is not asked for again */
    for (i = 0; i < 20; i++) CHECK(goes_to(policy, no_key, spins) == 1);
    CHECK_OK(dtl_policy_release(policy));
}

/* The time of a warm-up does not count, however good it was; without warm-ups it does. */
static void test_warmups(void) {
    dtl_policy_t policy = policy_of("auto_tune", 2, 1, 0);
    set_times(100, 100, 40, 100);
    first_takes[3] = 0;
    submit_many(policy, N * 3);
    CHECK(goes_to(policy, no_key, spins) == 2);
    CHECK_OK(dtl_policy_release(policy));
    policy = policy_of("auto_tune", 2, UINT32_MAX, 0);
    set_times(100, 100, 40, 100);
    first_takes[3] = 0;
    submit_many(policy, N * 2);
    CHECK(goes_to(policy, no_key, spins) == 3);
    CHECK_OK(dtl_policy_release(policy));
}

/* A resource that got slow is left, one that got fast again is found: nothing of the time before counts. */
static void test_resampling(void) {
    const uint64_t again = 50;
    const dtl_policy_t policy = policy_of("auto_tune", 2, 1, again);
    set_times(100, 30, 60, 100);
    submit_many(policy, N * 3);
    CHECK(goes_to(policy, no_key, spins) == 1);
    set_times(100, 200, 40, 100);
    submit_many(policy, (int)again - 1); /* these are still tuned */
    CHECK(ran[1] == (int)again - 1);
    submit_many(policy, N * 3);
    CHECK(ran[0] == 3 && ran[2] == 3 && ran[3] == 3);
    CHECK(goes_to(policy, no_key, spins) == 2);
    set_times(20, 70, 120, 70);
    submit_many(policy, (int)again - 1 + N * 3);
    CHECK(goes_to(policy, no_key, spins) == 0);
    CHECK_OK(dtl_policy_release(policy));
}

static int broken = -1; /* the resource where tasks fail; N = all */
static dtl_status_t may_fail(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)arg, (void)wait;
    if (broken == N || (int)resource->value == broken) return DTL_ERROR_TYPE;
    spin(takes[resource->value]);
    return DTL_SUCCESS;
}

/* Failing is fast, and no reason to be chosen. */
static void test_failing_resource(void) {
    const dtl_policy_t policy = policy_of("auto_tune", 2, 1, 0);
    dtl_policy_stats_t stats[N];
    int i;
    set_times(50, 100, 100, 100);
    broken = 2;
    for (i = 0; i < N * 3; i++) CHECK_OK(dtl_policy_submit(policy, no_key, may_fail, NULL, 0, NULL));
    CHECK(goes_to(policy, no_key, may_fail) == 0);
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    CHECK(stats[2].failed == 3 && stats[2].submitted == 3);
    CHECK_STATUS(dtl_policy_wait_all(policy, 0), DTL_ERROR_TYPE);
    /* If all fail there is nothing to choose by: it goes on trying, and finds the first that works. */
    broken = N;
    for (i = 0; i < N * 3 * 5; i++) {
        CHECK_STATUS(dtl_policy_submit_and_wait(policy, sevens, may_fail, NULL, 0), DTL_ERROR_TYPE);
    }
    broken = -1;
    for (i = 0; i < N * 3; i++) CHECK_OK(dtl_policy_submit(policy, sevens, may_fail, NULL, 0, NULL));
    CHECK(goes_to(policy, sevens, may_fail) == 0);
    CHECK_OK(dtl_policy_release(policy));
}

/* Each key is tuned by itself; without one the function is the key. */
static void test_keys(void) {
    const dtl_policy_t policy = policy_of("auto_tune", 1, UINT32_MAX, 0);
    dtl_task_key_t key = {5, 0};
    dtl_policy_stats_t stats[N];
    dtl_submission_t submission = {policy, 77, 7, 7};
    uint64_t i;
    for (i = 0; i < N; i++) CHECK(goes_to(policy, no_key, nothing) == i);      /* tuning: one after another */
    for (i = 0; i < N; i++) CHECK(goes_to(policy, no_key, nothing_else) == i); /* another function */
    for (i = 0; i < N; i++) CHECK(goes_to(policy, key, nothing) == i);         /* a key of its own */
    key.variant = 1;
    for (i = 0; i < N; i++) CHECK(goes_to(policy, key, nothing) == i);
    {
        const uint32_t best = goes_to(policy, key, nothing);
        CHECK(goes_to(policy, key, nothing_else) == best); /* the same key, whatever the function */
    }
    for (i = 4; i < 1024; i++) {
        key.task = i * 64, key.variant = i;
        goes_to(policy, key, nothing);
    }
    key.task = 1;
    CHECK_STATUS(dtl_policy_submit(policy, key, nothing, NULL, 0, &submission), DTL_ERROR_LIMIT);
    CHECK(submission.ticket == 77 && strstr(dtl_last_error(), "1024 tasks") != NULL);
    key.task = 64 * 1000, key.variant = 1000;
    goes_to(policy, key, nothing); /* known ones go on */
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    CHECK_OK(dtl_policy_release(policy));
}

/* An inline submit allocates nothing, and a tuned task looks at no clock. */
static void test_costs(const char* name, int reads_clock) {
    const dtl_policy_t policy = policy_of(name, 1, 0, 0);
    dtl_submission_t submission;
    uint64_t had, looked;
    int i;
    for (i = 0; i < 2 * N; i++) goes_to(policy, no_key, nothing); /* tunes it */
    had = allocations, looked = clock_reads;
    for (i = 0; i < 1000; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, NULL));
        CHECK_OK(dtl_policy_try_submit(policy, no_key, nothing, NULL, &submission));
        CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, nothing, NULL, DTL_TIMEOUT_INFINITE));
    }
    CHECK(allocations == had);
    CHECK(reads_clock || clock_reads == looked);
    CHECK_OK(dtl_policy_release(policy));
}

/* While it is tuned again and again, nothing is allocated either. */
static void test_tuning_costs(void) {
    const dtl_policy_t policy = policy_of("auto_tune", 1, 0, 1);
    uint64_t had;
    int i;
    for (i = 0; i < 4 * N; i++) goes_to(policy, no_key, nothing);
    had = allocations;
    for (i = 0; i < 1000; i++) CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, NULL));
    CHECK(allocations == had && (!COUNTS || clock_reads > 1000));
    CHECK_OK(dtl_policy_release(policy));
}

static dtl_policy_t shared_policy;
static void* tunes(void* unused) {
    int i;
    for (i = 0; i < 150; i++) {
        dtl_task_key_t key = {9, 0};
        key.variant = (uint64_t)i % 3;
        CHECK_OK(dtl_policy_submit(shared_policy, key, may_fail, NULL, 0, NULL));
    }
    return unused;
}

/* Threads tune the same tasks at once; afterwards all agree. */
static void test_threads(void) {
    pthread_t threads[4];
    uint64_t i, sum = 0;
    dtl_policy_stats_t stats[N];
    shared_policy = policy_of("auto_tune", 3, 1, 20);
    set_times(1, 400, 400, 400); /* more than the threads' switches on two processors blur */
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, tunes, NULL) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 0; i < N; i++) sum += stats[i].submitted;
    CHECK(sum == 600 && stats[0].submitted > stats[1].submitted);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* However many threads tune a task, each resource gets exactly its runs, once more in each tuning: all but the first one
 * fail here, so nothing else ever goes there. */
enum { KEYS = 200, AGAIN = 100, RUNS = 4 };
static dtl_status_t only_on_first(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)arg, (void)wait;
    return resource->value == 0 ? DTL_SUCCESS : DTL_ERROR_TYPE;
}
static void submit_key(uint64_t number, int count) {
    dtl_task_key_t key = {11, 0};
    key.variant = number;
    while (count-- > 0) CHECK_OK(dtl_policy_submit(shared_policy, key, only_on_first, NULL, 0, NULL));
}
static void check_runs(uint64_t tunings) {
    dtl_policy_stats_t stats[N];
    int i;
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 1; i < N; i++) CHECK(stats[i].submitted == tunings * KEYS * RUNS && stats[i].failed == stats[i].submitted);
}
static void* tunes_keys(void* unused) {
    uint64_t i;
    for (i = 0; i < KEYS; i++) submit_key(i, N * RUNS); /* enough for a tuning by one alone, too little for the next */
    return unused;
}
static void test_exact_runs(void) {
    pthread_t threads[4];
    uint64_t i;
    shared_policy = policy_of("auto_tune", RUNS - 1, 1, AGAIN);
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, tunes_keys, NULL) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    check_runs(1);
    for (i = 0; i < KEYS; i++) submit_key(i, AGAIN + N * RUNS); /* had one not ended, it would not begin anew */
    check_runs(2);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* dynamic_load: tasks keep away from where a long one runs, and from its place only until it ends. */
static int is_inside, may_leave;
static dtl_status_t stays(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)wait;
    *(uint64_t*)arg = resource->value;
    __atomic_store_n(&is_inside, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&may_leave, __ATOMIC_ACQUIRE)) {
        const struct timespec moment = {0, 100000};
        nanosleep(&moment, NULL);
    }
    return DTL_SUCCESS;
}
static void* submits_one(void* where) {
    CHECK_OK(dtl_policy_submit_and_wait(shared_policy, no_key, stays, where, 0));
    return NULL;
}
static void test_load(void) {
    dtl_policy_stats_t stats[N];
    pthread_t thread;
    uint64_t where = 99;
    int i;
    shared_policy = policy_of("dynamic_load", 0, 0, 0);
    CHECK(pthread_create(&thread, NULL, submits_one, &where) == 0);
    while (!__atomic_load_n(&is_inside, __ATOMIC_ACQUIRE)) {
    }
    for (i = 0; i < 100; i++) CHECK(goes_to(shared_policy, no_key, nothing) != where);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 0; i < N; i++) CHECK(stats[i].load == (uint64_t)(i == (int)where));
    __atomic_store_n(&may_leave, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 0; i < N; i++) CHECK(stats[i].load == 0);
    CHECK_OK(dtl_policy_release(shared_policy));
}

int main(void) {
    int i;
    for (i = 0; i < N; i++) list[i].value = (uint64_t)i, list[i].user = NULL;
    CHECK_OK(dtl_init(NULL));
    test_tuning();
    test_warmups();
    test_resampling();
    test_failing_resource();
    test_keys();
    test_costs("fixed", 0);
    test_costs("round_robin", 0);
    test_costs("dynamic_load", 0);
    test_costs("capacity", 0);
    test_costs("auto_tune", 0);
    test_tuning_costs();
    CHECK(!COUNTS || (allocations > 0 && clock_reads > 0)); /* they were counted at all */
    test_threads();
    test_exact_runs();
    test_load();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
