/* Dynamic selection: policies over generic and inline resources, what they refuse, what tasks may do, adapters. What is learnt of
 * tasks: test_policy_tune; streams and a program's own resources: test_policy_backend. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <unistd.h>
#include <string.h>

enum { N = 4, THREADS = 4, SUBMITS = 20000 };
static const dtl_task_key_t no_key = {0, 0};

static int number[N];
static dtl_resource_t list[N];

static void check_text(const char* part) {
    if (strstr(dtl_last_error(), part) == NULL) {
        fprintf(stderr, "\"%s\" does not say \"%s\"\n", dtl_last_error(), part);
        exit(1);
    }
}

static dtl_policy_t policy_of(const char* name, uint32_t kind) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    opts.kind = kind;
    CHECK_OK(dtl_policy_create(name, list, N, &opts, &policy));
    return policy;
}

/* Writes down which resource it ran on. */
static dtl_status_t note(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)wait;
    CHECK(resource->user == &number[resource->value]);
    *(uint64_t*)arg = resource->value;
    return DTL_SUCCESS;
}

static dtl_status_t fails(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource, (void)arg, (void)wait;
    return DTL_ERROR_TYPE;
}

static void test_fixed(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy, untouched = {77};
    dtl_submission_t submission;
    dtl_resource_t resource;
    uint64_t ran = 99;
    int i;
    opts.fixed_index = 2;
    CHECK_OK(dtl_policy_create("fixed", list, N, &opts, &policy));
    for (i = 0; i < 5; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, note, &ran, 0, &submission));
        CHECK(ran == 2 && submission.resource == 2 && submission.ticket == 0 && submission.status == DTL_SUCCESS);
        CHECK_OK(dtl_submission_wait(&submission, 0)); /* a value: as often as one likes */
        CHECK_OK(dtl_submission_wait(&submission, 0));
        CHECK_OK(dtl_submission_resource(&submission, &resource));
        CHECK(resource.value == 2 && resource.user == &number[2]);
    }
    CHECK_OK(dtl_policy_release(policy));
    opts.fixed_index = N;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &untouched), DTL_ERROR_INVALID_ARGUMENT);
    check_text("fixed_index is 4");
    CHECK(untouched.id == 77);
}

static void test_round_robin(void) {
    const dtl_policy_t policy = policy_of("round_robin", 0);
    uint64_t first, ran;
    int i;
    CHECK_OK(dtl_policy_submit(policy, no_key, note, &first, 0, NULL));
    for (i = 1; i < 3 * N; i++) {
        CHECK_OK(dtl_policy_try_submit(policy, no_key, note, &ran, NULL));
        CHECK(ran == (first + (uint64_t)i) % N);
    }
    CHECK_OK(dtl_policy_release(policy));
}

static dtl_policy_t shared_policy;
static void* submits(void* unused) {
    uint64_t ran;
    int i;
    for (i = 0; i < SUBMITS; i++) CHECK_OK(dtl_policy_submit(shared_policy, no_key, note, &ran, 0, NULL));
    return unused;
}

/* Nothing is lost or counted twice when threads submit at the same time. */
static void test_threads(const char* name, uint32_t kind, int is_equal) {
    pthread_t threads[THREADS];
    dtl_policy_stats_t stats[N];
    uint64_t count, sum = 0;
    int i;
    shared_policy = policy_of(name, kind);
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, submits, NULL) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, &count));
    CHECK(count == N);
    for (i = 0; i < N; i++) {
        CHECK(!is_equal || stats[i].submitted == (uint64_t)THREADS * SUBMITS / N);
        CHECK(stats[i].failed == 0 && stats[i].load == 0);
        sum += stats[i].submitted;
    }
    CHECK(sum == (uint64_t)THREADS * SUBMITS);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* More threads than there are rows of counts: the rest share one. */
static void* two_submits(void* at) {
    uint64_t ran;
    pthread_barrier_wait((pthread_barrier_t*)at);
    CHECK_OK(dtl_policy_submit(shared_policy, no_key, note, &ran, 0, NULL));
    CHECK_OK(dtl_policy_submit(shared_policy, no_key, note, &ran, 0, NULL));
    pthread_barrier_wait((pthread_barrier_t*)at);
    return NULL;
}
static void test_many_threads(void) {
    enum { MANY = 100 };
    pthread_t threads[MANY];
    pthread_barrier_t together;
    dtl_policy_stats_t stats[N];
    uint64_t sum = 0;
    int i;
    shared_policy = policy_of("round_robin", 0);
    CHECK(pthread_barrier_init(&together, NULL, MANY) == 0);
    for (i = 0; i < MANY; i++) CHECK(pthread_create(&threads[i], NULL, two_submits, &together) == 0);
    for (i = 0; i < MANY; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 0; i < N; i++) {
        CHECK(stats[i].submitted >= 2 * MANY / N - N && stats[i].submitted <= 2 * MANY / N + N);
        sum += stats[i].submitted;
    }
    CHECK(sum == 2 * MANY);
    CHECK(pthread_barrier_destroy(&together) == 0);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* A task that fails has ended: its place is given back, the failure is heard of once. */
static void test_failures(const char* name, uint32_t kind) {
    const dtl_policy_t policy = policy_of(name, kind);
    dtl_policy_stats_t stats[N];
    dtl_submission_t submission;
    uint64_t failed = 0, ran;
    int i;
    for (i = 0; i < 2 * N; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, fails, NULL, 0, &submission));
        CHECK(submission.ticket == 0 && submission.status == DTL_ERROR_TYPE);
        CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_TYPE);
        check_text("a task ended with DTL_ERROR_TYPE");
    }
    CHECK_OK(dtl_policy_wait_all(policy, 0)); /* all heard of */
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, fails, NULL, 0), DTL_ERROR_TYPE);
    CHECK_OK(dtl_policy_wait_all(policy, 0));
    CHECK_OK(dtl_policy_submit(policy, no_key, fails, NULL, 0, NULL));
    CHECK_STATUS(dtl_policy_wait_all(policy, 0), DTL_ERROR_TYPE);
    CHECK_OK(dtl_policy_wait_all(policy, 0));
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    for (i = 0; i < N; i++) {
        CHECK(stats[i].load == 0);
        failed += stats[i].failed;
    }
    CHECK(failed == 2 * N + 2);
    CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, note, &ran, 0));
    CHECK_OK(dtl_policy_release(policy));
}

/* A task submits to its own policy, whose load it is itself a part of. */
static dtl_status_t nests(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    int* depth = (int*)arg;
    dtl_policy_stats_t stats[N];
    (void)wait;
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    CHECK(stats[resource->value].load == 1); /* nobody else was sent there */
    if (++*depth < N) CHECK_OK(dtl_policy_submit_and_wait(shared_policy, no_key, nests, depth, 0));
    return DTL_SUCCESS;
}
static void test_nested(void) {
    int depth = 0;
    shared_policy = policy_of("dynamic_load", DTL_RESOURCES_INLINE);
    CHECK_OK(dtl_policy_submit(shared_policy, no_key, nests, &depth, 0, NULL));
    CHECK(depth == N);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* Capacity: the fifth of tasks inside each other finds no place. */
static dtl_status_t fills(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    int* depth = (int*)arg;
    uint64_t ran = 99;
    (void)resource, (void)wait;
    if (++*depth < N) {
        CHECK_OK(dtl_policy_submit(shared_policy, no_key, fills, depth, 0, NULL));
        return DTL_SUCCESS;
    }
    CHECK_STATUS(dtl_policy_try_submit(shared_policy, no_key, note, &ran, NULL), DTL_ERROR_BUSY);
    check_text("no resource is free now");
    CHECK_STATUS(dtl_policy_submit(shared_policy, no_key, note, &ran, 2000000, NULL), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_policy_submit_and_wait(shared_policy, no_key, note, &ran, 0), DTL_ERROR_TIMEOUT);
    CHECK(ran == 99);
    return DTL_SUCCESS;
}
static void test_capacity(void) {
    uint64_t ran;
    int depth = 0;
    shared_policy = policy_of("capacity", DTL_RESOURCES_INLINE);
    CHECK_OK(dtl_policy_submit(shared_policy, no_key, fills, &depth, 0, NULL));
    CHECK(depth == N);
    CHECK_OK(dtl_policy_try_submit(shared_policy, no_key, note, &ran, NULL));
    CHECK_OK(dtl_policy_release(shared_policy));
}

static int turn;
static dtl_status_t waits_for_turn(void* number) {
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) <= (int)(intptr_t)number) usleep(50);
    return DTL_SUCCESS;
}
static dtl_status_t queues_turn(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    const dtl_stream_t stream = {resource->value};
    (void)wait;
    return dtl_stream_host_callback(stream, waits_for_turn, arg);
}

/* A place is free with the end of its task, whatever is queued behind that. */
static void test_places_of_a_stream(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_resource_t place = {0, NULL};
    dtl_backend_t host;
    dtl_stream_t stream;
    dtl_policy_t policy;
    intptr_t i;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    place.value = stream.id, opts.kind = DTL_RESOURCES_STREAMS, opts.capacity = 4;
    CHECK_OK(dtl_policy_create("capacity", &place, 1, &opts, &policy));
    for (i = 0; i < 12; i++) {
        __atomic_store_n(&turn, (int)i - 3, __ATOMIC_RELEASE); /* all but the last three may end */
        CHECK_OK(dtl_policy_submit(policy, no_key, queues_turn, (void*)i, UINT64_C(5000000000), NULL));
        if (i >= 3) CHECK_STATUS(dtl_policy_try_submit(policy, no_key, queues_turn, (void*)i, NULL), DTL_ERROR_BUSY);
    }
    __atomic_store_n(&turn, 99, __ATOMIC_RELEASE);
    CHECK_OK(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_policy_release(policy));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A capacity of 1 is mutual exclusion, and who waits gets its turn. */
static uint64_t unprotected[2];
static dtl_status_t adds(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)arg, (void)wait;
    unprotected[resource->value]++;
    return DTL_SUCCESS;
}
static void* adds_often(void* unused) {
    int i;
    for (i = 0; i < 5000; i++) {
        CHECK_OK(dtl_policy_submit(shared_policy, no_key, adds, NULL, DTL_TIMEOUT_INFINITE, NULL));
    }
    return unused;
}
static void test_capacity_threads(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    pthread_t threads[THREADS];
    int i;
    opts.kind = DTL_RESOURCES_INLINE, opts.capacity = 1;
    CHECK_OK(dtl_policy_create("capacity", list, 2, &opts, &shared_policy));
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, adds_often, NULL) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(unprotected[0] + unprotected[1] == THREADS * 5000);
    CHECK_OK(dtl_policy_release(shared_policy));
}

/* A retained handle is the same policy with the same state, until the last release. */
static void test_retain(void) {
    const dtl_policy_t policy = policy_of("round_robin", 0);
    dtl_policy_stats_t stats[N];
    dtl_submission_t submission;
    uint64_t ran;
    CHECK_OK(dtl_policy_retain(policy));
    CHECK_OK(dtl_policy_submit(policy, no_key, note, &ran, 0, &submission));
    CHECK_OK(dtl_policy_release(policy));
    CHECK_OK(dtl_policy_submit(policy, no_key, note, &ran, 0, NULL));
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    CHECK(stats[ran].submitted == 1 && stats[(ran + N - 1) % N].submitted == 1);
    CHECK_OK(dtl_policy_release(policy));
    CHECK_STATUS(dtl_policy_submit(policy, no_key, note, &ran, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_policy_retain(policy), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_submission_wait(&submission, 0)); /* complete: a value that outlives its policy */
}

/* A task may release the policy that it was submitted to. */
static dtl_status_t releases(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource, (void)wait;
    CHECK_OK(dtl_policy_release(*(dtl_policy_t*)arg));
    return DTL_SUCCESS;
}
static void test_release_inside(const char* name, uint32_t kind) {
    dtl_policy_t policy = policy_of(name, kind);
    dtl_submission_t submission;
    CHECK_OK(dtl_policy_submit(policy, no_key, releases, &policy, 0, &submission));
    CHECK(submission.ticket == 0 && submission.status == DTL_SUCCESS);
    CHECK_STATUS(dtl_policy_wait_all(policy, 0), DTL_ERROR_INVALID_HANDLE);
}

static void test_deferred(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_traits_t traits = DTL_POLICY_TRAITS_INIT;
    dtl_policy_t policy;
    dtl_resource_t got[N];
    dtl_policy_stats_t stats[N];
    uint64_t ran = 99, count = 99;
    opts.flags = DTL_POLICY_DEFER, opts.kind = DTL_RESOURCES_INLINE, opts.fixed_index = 3;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    opts.kind = 0; /* before the list there is no telling */
    CHECK_STATUS(dtl_policy_create("fixed", NULL, 0, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    check_text("opts.kind is 0 with DTL_POLICY_DEFER");
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_OK(dtl_policy_create("fixed", NULL, 0, &opts, &policy));
    CHECK_STATUS(dtl_policy_submit(policy, no_key, note, &ran, 0, NULL), DTL_ERROR_INVALID_STATE);
    check_text("dtl_policy_initialize");
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, note, &ran, 0), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_policy_wait_all(policy, 0), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_policy_resources(policy, got, N, &count), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_policy_stats(policy, NULL, 0, &count), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_policy_traits(policy, &traits));
    CHECK(traits.resource_count == 0 && count == 99 && ran == 99);
    CHECK_STATUS(dtl_policy_initialize(policy, list, 3, NULL), DTL_ERROR_INVALID_ARGUMENT); /* no index 3 */
    CHECK_STATUS(dtl_policy_initialize(policy, list, 0, NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_policy_initialize(policy, list, N, NULL));
    CHECK_STATUS(dtl_policy_initialize(policy, list, N, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_policy_submit(policy, no_key, note, &ran, 0, NULL));
    CHECK(ran == 3);
    CHECK_OK(dtl_policy_resources(policy, NULL, 0, &count));
    CHECK(count == N);
    count = 99, memset(got, 0x5A, sizeof got), got[0] = got[1];
    CHECK_STATUS(dtl_policy_resources(policy, got, N - 1, &count), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK(count == N && memcmp(&got[0], &got[1], sizeof got[0]) == 0); /* only the length */
    count = 99;
    CHECK_STATUS(dtl_policy_stats(policy, stats, N - 1, &count), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK(count == N);
    CHECK_STATUS(dtl_policy_stats(policy, NULL, 1, &count), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_policy_resources(policy, got, N, NULL));
    CHECK(memcmp(got, list, sizeof list) == 0);
    CHECK_OK(dtl_policy_traits(policy, &traits));
    CHECK(traits.resource_count == N && traits.kind == DTL_RESOURCES_INLINE && traits.has_wait_type == 0);
    CHECK(traits.needed_info == 0 && traits.scratch_bytes == 0 && traits.lazy_report == 0);
    CHECK(traits.supported_info == (DTL_INFO_TASK_SUBMISSION | DTL_INFO_TASK_COMPLETION | DTL_INFO_TASK_TIME));
    CHECK_OK(dtl_policy_release(policy));
}

static void test_refusals(void) {
    static dtl_resource_t many[5000];
    const char* const informed[3] = {"dynamic_load", "auto_tune", "capacity"};
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy = {77};
    dtl_submission_t submission;
    uint64_t ran = 99;
    int i;
    memset(&submission, 0x5A, sizeof submission);
    CHECK_STATUS(dtl_policy_create("best", list, N, NULL, &policy), DTL_ERROR_NOT_FOUND);
    check_text("\"best\"");
    /* An empty list, where oneDPL divides by its length. */
    for (i = 0; i < 3; i++) CHECK_STATUS(dtl_policy_create(informed[i], list, 0, NULL, &policy), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_policy_create("round_robin", list, 0, NULL, &policy), DTL_ERROR_INVALID_ARGUMENT);
    check_text("count is 0");
    CHECK_STATUS(dtl_policy_create("round_robin", NULL, 2, NULL, &policy), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_policy_create("round_robin", many, 5000, NULL, &policy), DTL_ERROR_LIMIT);
    CHECK_STATUS(dtl_policy_create(NULL, list, N, NULL, &policy), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_policy_create("fixed", list, N, NULL, NULL), DTL_ERROR_NULL_POINTER);
    for (i = 0; i < 3; i++) { /* nothing is reported of generic resources */
        CHECK_STATUS(dtl_policy_create(informed[i], list, N, NULL, &policy), DTL_ERROR_NOT_SUPPORTED);
        check_text(i == 1 ? "TASK_TIME" : "TASK_COMPLETION");
    }
    opts.kind = DTL_RESOURCES_GENERIC;
    CHECK_STATUS(dtl_policy_create("fixed", NULL, 0, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    opts.kind = DTL_RESOURCES_CUSTOM;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_NULL_POINTER);
    opts.kind = 9;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    opts.kind = 0, opts.flags = 8;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(policy.id == 77);
    policy = policy_of("round_robin", 0);
    CHECK_STATUS(dtl_policy_submit(policy, no_key, NULL, &ran, 0, &submission), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, NULL, &ran, 0), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_policy_submit(policy, no_key, note, &ran, 0, (dtl_submission_t*)((char*)&submission + 1)),
                 DTL_ERROR_INVALID_ARGUMENT);
    CHECK(ran == 99 && submission.ticket == UINT64_C(0x5A5A5A5A5A5A5A5A));
    submission.policy = policy, submission.ticket = 12345;
    CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_submission_release(&submission), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_submission_wait(NULL, 0), DTL_ERROR_NULL_POINTER);
    submission.resource = N;
    CHECK_STATUS(dtl_submission_resource(&submission, many), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_policy_release(policy));
}

/* What a task leaves running: a waitable that ends at its third look, or fails. */
static int looks, is_done;
static dtl_status_t look(void* object, uint64_t timeout_ns) {
    (void)timeout_ns;
    CHECK(!is_done); /* never again after the end */
    if (++looks < 3) return DTL_ERROR_TIMEOUT;
    is_done = 1;
    return *(dtl_status_t*)object;
}
static dtl_status_t leaves(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource;
    CHECK(wait->wait == NULL && wait->event.id == 0 && wait->object == NULL);
    wait->wait = look, wait->object = arg;
    looks = is_done = 0;
    return DTL_SUCCESS;
}
static void test_waitables(void) {
    const dtl_policy_t generic = policy_of("round_robin", 0), host = policy_of("dynamic_load", DTL_RESOURCES_INLINE);
    dtl_status_t good = DTL_SUCCESS, bad = DTL_ERROR_TRUNCATED;
    dtl_submission_t submission, copy;
    dtl_policy_stats_t stats[N];
    int i;
    CHECK_OK(dtl_policy_submit(generic, no_key, leaves, &good, 0, &submission));
    CHECK(submission.ticket != 0);
    copy = submission;
    CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_TIMEOUT);
    CHECK(submission.ticket == copy.ticket && looks == 1);
    CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    CHECK(submission.ticket == 0 && looks == 3);
    CHECK_STATUS(dtl_submission_wait(&copy, 0), DTL_ERROR_INVALID_HANDLE);
    check_text("waited for or released before");
    CHECK_OK(dtl_policy_submit(generic, no_key, leaves, &bad, 0, &submission));
    CHECK_STATUS(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE), DTL_ERROR_TRUNCATED);
    CHECK(submission.status == DTL_ERROR_TRUNCATED);
    CHECK_STATUS(dtl_policy_submit_and_wait(generic, no_key, leaves, &bad, DTL_TIMEOUT_INFINITE), DTL_ERROR_TRUNCATED);
    CHECK_STATUS(dtl_policy_submit_and_wait(generic, no_key, leaves, &bad, 0), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_policy_wait_all(generic, DTL_TIMEOUT_INFINITE), DTL_ERROR_TRUNCATED); /* nobody waited */
    CHECK_OK(dtl_policy_submit(generic, no_key, leaves, &good, 0, &submission));
    CHECK_OK(dtl_submission_release(&submission));
    CHECK(submission.ticket == 0);
    CHECK_STATUS(dtl_policy_wait_all(generic, 0), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_policy_wait_all(generic, DTL_TIMEOUT_INFINITE));
    /* Inline: submit waits, and the resource has the task for so long. */
    CHECK_OK(dtl_policy_submit(host, no_key, leaves, &bad, 0, &submission));
    CHECK(submission.ticket == 0 && submission.status == DTL_ERROR_TRUNCATED && is_done);
    CHECK_OK(dtl_policy_submit_and_wait(host, no_key, leaves, &good, 0));
    CHECK_OK(dtl_policy_stats(host, stats, N, NULL));
    for (i = 0; i < N; i++) CHECK(stats[i].load == 0);
    CHECK_OK(dtl_policy_release(generic));
    CHECK_OK(dtl_policy_release(host));
}

/* The list holds wrappers; the table deals with what is in them, the task with the wrapper. */
static uint64_t unwrap(void* user, const dtl_resource_t* resource) {
    return *(uint64_t*)(uintptr_t)resource->value + *(uint64_t*)user;
}
static dtl_status_t sees_wrapper(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)wait;
    *(uint64_t*)arg = *(uint64_t*)(uintptr_t)resource->value;
    return DTL_SUCCESS;
}
static dtl_status_t core_submit(void* self, const dtl_selection_t* selection, dtl_policy_task_fn_t task, void* arg) {
    dtl_waitable_t wait = {{0}, NULL, NULL};
    *(uint64_t*)self = selection->core;
    return dtl_selection_end(selection, task(&selection->resource, arg, &wait), 0);
}
static void test_adapter(void) {
    dtl_resource_ops_t ops = DTL_RESOURCE_OPS_INIT;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    uint64_t wrapped[2] = {40, 50}, more = 5, core = 0, seen = 0;
    dtl_resource_t wrappers[2];
    dtl_policy_t policy;
    int i;
    for (i = 0; i < 2; i++) wrappers[i].value = (uint64_t)(uintptr_t)&wrapped[i], wrappers[i].user = NULL;
    ops.submit = core_submit;
    opts.ops = &ops, opts.ops_self = &core, opts.adapter = unwrap, opts.adapter_user = &more, opts.fixed_index = 1;
    CHECK_OK(dtl_policy_create("fixed", wrappers, 2, &opts, &policy));
    CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, sees_wrapper, &seen, 0));
    CHECK(core == 55 && seen == 50);
    CHECK_OK(dtl_policy_release(policy));
    /* Resources that come later: its adapter stays, unless they bring one. */
    opts.flags = DTL_POLICY_DEFER;
    for (i = 0; i < 2; i++) {
        uint64_t others = 7;
        dtl_policy_opts_t later = DTL_POLICY_OPTS_INIT;
        if (i == 1) later.adapter = unwrap, later.adapter_user = &others;
        CHECK_OK(dtl_policy_create("fixed", NULL, 0, &opts, &policy));
        CHECK_OK(dtl_policy_initialize(policy, wrappers, 2, i == 0 ? NULL : &later));
        CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, sees_wrapper, &seen, 0));
        CHECK(core == (i == 0 ? 55u : 57u) && seen == 50);
        CHECK_OK(dtl_policy_release(policy));
    }
}

/* The library refuses what a task left running: the text names it, and the task has failed. */
static dtl_status_t leaves_nonsense(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource, (void)arg;
    wait->event.id = 0x1234567;
    return DTL_SUCCESS;
}
static void test_refused_event(const char* name, uint32_t kind) {
    const dtl_policy_t policy = policy_of(name, kind);
    dtl_policy_stats_t stats[N];
    dtl_submission_t submission;
    uint64_t i, failed = 0;
    submission.ticket = 77;
    CHECK_STATUS(dtl_policy_submit(policy, no_key, leaves_nonsense, NULL, 0, &submission), DTL_ERROR_INVALID_HANDLE);
    check_text("the task has run, and what it left in out_wait->event is refused");
    check_text("0x1234567");
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, leaves_nonsense, NULL, 0), DTL_ERROR_INVALID_HANDLE);
    check_text("0x1234567");
    CHECK_OK(dtl_policy_wait_all(policy, 0)); /* it was heard of */
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    for (i = 0; i < N; i++) failed += stats[i].failed + stats[i].load;
    CHECK(failed == 2 && submission.ticket == 77);
    CHECK_OK(dtl_policy_release(policy));
}

/* One thread makes and releases policies, another submits to whatever is there. */
static uint64_t current;
static int stop;
static void* uses(void* unused) {
    uint64_t ran;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        const dtl_policy_t policy = {__atomic_load_n(&current, __ATOMIC_RELAXED)};
        const dtl_status_t status = dtl_policy_submit(policy, no_key, note, &ran, 0, NULL);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_HANDLE);
    }
    return unused;
}
static void test_release_races_use(void) {
    pthread_t user;
    int round;
    CHECK(pthread_create(&user, NULL, uses, NULL) == 0);
    for (round = 0; round < 2000; round++) {
        const dtl_policy_t policy = policy_of(round % 2 ? "dynamic_load" : "round_robin", DTL_RESOURCES_INLINE);
        __atomic_store_n(&current, policy.id, __ATOMIC_RELAXED);
        CHECK_OK(dtl_policy_release(policy));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(user, NULL) == 0);
}

int main(void) {
    dtl_policy_t left;
    int i;
    for (i = 0; i < N; i++) list[i].value = (uint64_t)i, list[i].user = &number[i];
    CHECK_OK(dtl_init(NULL));
    test_fixed();
    test_round_robin();
    test_threads("round_robin", 0, 1);
    test_threads("round_robin", DTL_RESOURCES_INLINE, 1);
    test_threads("dynamic_load", DTL_RESOURCES_INLINE, 0);
    test_threads("auto_tune", DTL_RESOURCES_INLINE, 0);
    test_many_threads();
    test_failures("fixed", 0);
    test_failures("dynamic_load", DTL_RESOURCES_INLINE);
    test_failures("auto_tune", DTL_RESOURCES_INLINE);
    test_failures("capacity", DTL_RESOURCES_INLINE);
    test_nested();
    test_capacity();
    test_places_of_a_stream();
    test_capacity_threads();
    test_retain();
    test_release_inside("round_robin", 0);
    test_release_inside("dynamic_load", DTL_RESOURCES_INLINE);
    test_deferred();
    test_refusals();
    test_waitables();
    test_adapter();
    test_refused_event("round_robin", 0);
    test_refused_event("dynamic_load", DTL_RESOURCES_INLINE);
    test_release_races_use();
    left = policy_of("round_robin", 0); /* finalize destroys it */
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_policy_release(left), DTL_ERROR_INVALID_STATE);
    printf("ok\n");
    return 0;
}
