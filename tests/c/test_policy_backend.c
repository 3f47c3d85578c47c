/* Dynamic selection over a program's own resources and over streams, by policies of the library and of the program.
 * C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../benches/idle.h"
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { N = 4, SCRATCH = 40, MOST = 2000 };
static const dtl_task_key_t no_key = {0, 0};
static int number[N];
static dtl_resource_t list[N];

static void check_text(const char* part) {
    if (strstr(dtl_last_error(), part) == NULL) {
        fprintf(stderr, "\"%s\" does not say \"%s\"\n", dtl_last_error(), part);
        exit(1);
    }
}

/* Resources of the program's own: tasks run at once, but their ends are told only when it is asked, or never. */
struct shop {
    pthread_mutex_t lock;
    dtl_selection_t open[MOST];
    dtl_status_t ended[MOST];
    int count, looks, submits, waits, destroyed;
    int at_once;          /* tells ends in submit */
    int mute;             /* never tells ends by itself */
    dtl_status_t refusal; /* submit answers this */
    uint64_t defaults;    /* number of default resources */
    uint64_t accepted;    /* bits of the resources that can be used */
    uint64_t wanted;      /* wanted_info of the last task */
};

static dtl_status_t shop_defaults(void* self, dtl_resource_t* out, uint64_t cap, uint64_t* out_n) {
    const struct shop* shop = (const struct shop*)self;
    uint64_t i;
    for (i = 0; i < shop->defaults && i < cap; i++) out[i].value = i % N, out[i].user = &number[i % N];
    *out_n = shop->defaults;
    return DTL_SUCCESS;
}

static const char* shop_reason; /* instead of its own */
static dtl_status_t shop_accept(void* self, uint64_t core, uint64_t info, int32_t* yes, char* why, uint64_t cap) {
    const struct shop* shop = (const struct shop*)self;
    *yes = (int32_t)(shop->accepted >> core & 1);
    if (!*yes) snprintf(why, (size_t)cap, "number %d cannot report %d", (int)core, (int)info);
    if (!*yes && shop_reason != NULL) snprintf(why, (size_t)cap, "%s", shop_reason);
    return DTL_SUCCESS;
}

static uint64_t shop_scratch(void* self, uint64_t info) { return (void)self, (void)info, SCRATCH; }

static dtl_status_t shop_submit(void* self, const dtl_selection_t* selection, dtl_policy_task_fn_t task, void* arg) {
    struct shop* shop = (struct shop*)self;
    dtl_waitable_t wait = {{0}, NULL, NULL};
    dtl_status_t status;
    if (shop->refusal != DTL_SUCCESS) return shop->refusal;
    CHECK(selection->resource.user == &number[selection->resource.value] && selection->reserved == 0);
    CHECK(selection->scratch != NULL && (uintptr_t)selection->scratch % 16 == 0);
    memset(selection->scratch, (int)(selection->ticket & 0xFF), SCRATCH);
    shop->wanted = selection->wanted_info;
    status = task(&selection->resource, arg, &wait);
    if (shop->at_once) return dtl_selection_end(selection, status, 1);
    CHECK(pthread_mutex_lock(&shop->lock) == 0);
    shop->submits++;
    CHECK(shop->count < MOST);
    shop->ended[shop->count] = status, shop->open[shop->count++] = *selection;
    CHECK(pthread_mutex_unlock(&shop->lock) == 0);
    return DTL_SUCCESS;
}

/* Tells of everything. A task on resource r takes (r ^ 2) + 1 microseconds: the third is fastest. */
static dtl_status_t shop_tell(struct shop* shop) {
    int i, k;
    CHECK(pthread_mutex_lock(&shop->lock) == 0);
    for (i = 0; i < shop->count; i++) {
        const dtl_selection_t* selection = &shop->open[i];
        for (k = 0; k < SCRATCH; k++) CHECK(((unsigned char*)selection->scratch)[k] == (selection->ticket & 0xFF));
        CHECK_OK(dtl_selection_end(selection, shop->ended[i], 1000 * ((selection->core ^ 2) + 1)));
        CHECK_STATUS(dtl_selection_end(selection, DTL_SUCCESS, 1), DTL_ERROR_INVALID_HANDLE); /* once */
    }
    shop->count = 0;
    CHECK(pthread_mutex_unlock(&shop->lock) == 0);
    return DTL_SUCCESS;
}
static dtl_status_t shop_look(void* self) {
    struct shop* shop = (struct shop*)self;
    __atomic_fetch_add(&shop->looks, 1, __ATOMIC_RELAXED);
    return shop->mute ? DTL_SUCCESS : shop_tell(shop);
}
static dtl_status_t shop_wait(void* self, uint64_t core) {
    CHECK(core < N);
    return ((struct shop*)self)->waits++, DTL_SUCCESS;
}
static void shop_destroy(void* self) { ((struct shop*)self)->destroyed++; }

static void shop_open(struct shop* shop, dtl_resource_ops_t* ops) {
    const dtl_resource_ops_t init = DTL_RESOURCE_OPS_INIT;
    memset(shop, 0, sizeof *shop);
    CHECK(pthread_mutex_init(&shop->lock, NULL) == 0);
    shop->accepted = 0xF, shop->defaults = N;
    *ops = init;
    ops->supported_info = DTL_INFO_TASK_COMPLETION | DTL_INFO_TASK_TIME;
    ops->default_resources = shop_defaults, ops->accept = shop_accept, ops->scratch_bytes = shop_scratch;
    ops->submit = shop_submit, ops->wait_resource = shop_wait, ops->lazy_report = shop_look;
    ops->destroy = shop_destroy;
}

static dtl_policy_t policy_in(struct shop* shop, const dtl_resource_ops_t* ops, const char* name) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    opts.ops = ops, opts.ops_self = shop;
    CHECK_OK(dtl_policy_create(name, NULL, 0, &opts, &policy));
    return policy;
}

static dtl_status_t nothing(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    (void)resource, (void)wait;
    return arg == NULL ? DTL_SUCCESS : *(dtl_status_t*)arg;
}

/* Which of its tables' slots a policy calls, and with what. */
static struct shop shop;
static void test_table(void) {
    dtl_resource_ops_t ops;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_traits_t traits = DTL_POLICY_TRAITS_INIT;
    dtl_policy_t policy = {77};
    dtl_resource_t got[N];
    dtl_policy_stats_t stats[N];
    dtl_submission_t submission, other;
    dtl_status_t bad = DTL_ERROR_TRUNCATED;
    uint64_t count;
    int i;
    shop_open(&shop, &ops);
    policy = policy_in(&shop, &ops, "dynamic_load");
    CHECK_OK(dtl_policy_resources(policy, got, N, &count));
    CHECK(count == N && got[3].value == 3 && got[3].user == &number[3]);
    CHECK_OK(dtl_policy_traits(policy, &traits));
    CHECK(traits.kind == DTL_RESOURCES_CUSTOM && traits.has_wait_type == 1 && traits.lazy_report == 1);
    CHECK(traits.scratch_bytes == SCRATCH && (traits.needed_info & DTL_INFO_TASK_COMPLETION) != 0);
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission));
    CHECK(submission.ticket != 0 && shop.looks == 1 && (shop.wanted & DTL_INFO_TASK_COMPLETION) != 0);
    CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    CHECK(shop.looks > 1 && submission.ticket == 0);
    /* A task that fails has ended as well. */
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, &bad, 0, &submission));
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, &bad, 0, NULL));
    CHECK_STATUS(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE), bad);
    CHECK_STATUS(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE), bad);
    CHECK(shop.waits == N);
    /* One that is not taken leaves no load behind. */
    memset(&submission, 0x5A, sizeof submission);
    other = submission;
    shop.refusal = DTL_ERROR_BUSY;
    for (i = 0; i < 3 * N; i++) {
        CHECK_STATUS(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission), DTL_ERROR_BUSY);
        check_text("submit of the program's table");
    }
    CHECK(memcmp(&submission, &other, sizeof other) == 0);
    shop.refusal = DTL_SUCCESS;
    CHECK_OK(dtl_policy_stats(policy, stats, N, NULL));
    for (count = 0, i = 0; i < N; i++) {
        CHECK(stats[i].load == 0);
        count += stats[i].failed;
    }
    CHECK(count == 2 + 3 * N);
    /* Ended in submit: a value at once. */
    shop.at_once = 1;
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, &bad, 0, &submission));
    CHECK(submission.ticket == 0 && submission.status == bad);
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, nothing, &bad, 0), bad);
    CHECK_OK(dtl_policy_wait_all(policy, 0));
    CHECK(shop.destroyed == 0);
    CHECK_OK(dtl_policy_release(policy));
    CHECK(shop.destroyed == 1);
    /* Resources that cannot report are left out; if none is left, the reason. A failed create destroys nothing. */
    opts.ops = &ops, opts.ops_self = &shop;
    shop.accepted = 0xA;
    CHECK_OK(dtl_policy_create("dynamic_load", list, N, &opts, &policy));
    CHECK_OK(dtl_policy_resources(policy, got, N, &count));
    CHECK(count == 2 && got[0].value == 1 && got[1].value == 3);
    CHECK_OK(dtl_policy_release(policy));
    shop.accepted = 0, policy.id = 77;
    CHECK_STATUS(dtl_policy_create("dynamic_load", list, N, &opts, &policy), DTL_ERROR_UNAVAILABLE);
    check_text("number 2 cannot report 3");
    shop_reason = "\xff\xfe!"; /* no UTF-8: each such byte becomes U+FFFD */
    CHECK_STATUS(dtl_policy_create("round_robin", list, N, &opts, &policy), DTL_ERROR_UNAVAILABLE);
    check_text("no resource is left that can be used; resource 0: \xEF\xBF\xBD\xEF\xBF\xBD!; ");
    shop_reason = NULL;
    shop.accepted = 0xF, shop.defaults = 0;
    CHECK_STATUS(dtl_policy_create("round_robin", NULL, 0, &opts, &policy), DTL_ERROR_UNAVAILABLE);
    shop.defaults = 5000;
    CHECK_STATUS(dtl_policy_create("round_robin", NULL, 0, &opts, &policy), DTL_ERROR_LIMIT);
    ops.supported_info = DTL_INFO_TASK_COMPLETION;
    CHECK_STATUS(dtl_policy_create("auto_tune", list, N, &opts, &policy), DTL_ERROR_NOT_SUPPORTED);
    ops.supported_info = 64;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    ops.supported_info = 0, ops.reserved = 1;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    check_text("opts.ops->reserved is 1");
    ops.reserved = 0, ops.submit = NULL;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_NULL_POINTER);
    ops.submit = shop_submit, ops.default_resources = NULL;
    CHECK_STATUS(dtl_policy_create("fixed", NULL, 0, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(policy.id == 77 && shop.destroyed == 2);
    shop_open(&shop, &ops);
    shop.defaults = 200; /* more than are asked for first */
    policy = policy_in(&shop, &ops, "round_robin");
    CHECK_OK(dtl_policy_resources(policy, NULL, 0, &count));
    CHECK(count == 200);
    CHECK_OK(dtl_policy_release(policy));
}

/* fixed_index counts in the list that was given: nothing runs on another resource because some are left out. */
static void test_left_out(void) {
    dtl_resource_ops_t ops;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy = {77};
    dtl_submission_t submission;
    dtl_resource_t got;
    shop_open(&shop, &ops);
    shop.accepted = 0xA, shop.at_once = 1;
    opts.ops = &ops, opts.ops_self = &shop, opts.fixed_index = 2;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_UNAVAILABLE);
    check_text("opts.fixed_index is 2, and that resource cannot be used: number 2 cannot report 0");
    opts.fixed_index = N;
    CHECK_STATUS(dtl_policy_create("fixed", list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    check_text("there are 4 resources");
    opts.fixed_index = 3;
    CHECK(policy.id == 77 && shop.destroyed == 0);
    CHECK_OK(dtl_policy_create("fixed", list, N, &opts, &policy));
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission));
    CHECK_OK(dtl_submission_resource(&submission, &got));
    CHECK(submission.resource == 1 && got.value == 3); /* an index into dtl_policy_resources */
    CHECK_OK(dtl_policy_release(policy));
}

/* As long as no task ends, loads never differ by more than one, whichever threads select. */
static dtl_policy_t shared_policy;
static void* submits_250(void* unused) {
    int i;
    for (i = 0; i < 250; i++) CHECK_OK(dtl_policy_submit(shared_policy, no_key, nothing, NULL, 0, NULL));
    return unused;
}
static void test_even_loads(void) {
    dtl_resource_ops_t ops;
    dtl_policy_stats_t stats[N];
    pthread_t threads[4];
    int i;
    shop_open(&shop, &ops);
    shop.mute = 1;
    ops.lazy_report = NULL;
    shared_policy = policy_in(&shop, &ops, "dynamic_load");
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, submits_250, NULL) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_policy_stats(shared_policy, stats, N, NULL));
    for (i = 0; i < N; i++) CHECK(stats[i].load == 250 && stats[i].submitted == 250);
    CHECK_STATUS(dtl_policy_wait_all(shared_policy, 1000000), DTL_ERROR_TIMEOUT);
    check_text("1000 tasks have not ended");
    CHECK_OK(shop_tell(&shop));
    CHECK_OK(dtl_policy_wait_all(shared_policy, 0));
    CHECK_OK(dtl_policy_release(shared_policy));
}

static uint64_t resident_pages(void) {
    unsigned long all = 0, resident = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu %lu", &all, &resident) == 2 && fclose(file) == 0);
    return resident;
}

/* A million tasks whose ends are learnt by looking: nothing grows, also where no policy asks. */
static void test_memory_is_flat(const char* name, int rounds) {
    dtl_resource_ops_t ops;
    dtl_submission_t submission;
    dtl_policy_t policy;
    uint64_t before = 0;
    int i;
    shop_open(&shop, &ops);
    policy = policy_in(&shop, &ops, name);
    for (i = 0; i < rounds; i++) {
        if (i == rounds / 10) before = resident_pages();
        CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, i % 100 == 0 ? &submission : NULL));
        if (i % 100 == 0) CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    }
    CHECK(KEEPS_FREED || resident_pages() < before + 64);
    CHECK_OK(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_policy_release(policy));
}

/* Times that a table tells are what auto_tune goes by; once tuned it asks for none. */
static void test_told_times(void) {
    dtl_resource_ops_t ops;
    dtl_policy_t policy;
    dtl_submission_t submission;
    int i;
    shop_open(&shop, &ops);
    policy = policy_in(&shop, &ops, "auto_tune");
    for (i = 0; i < 16; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, NULL));
        CHECK((shop.wanted & DTL_INFO_TASK_TIME) != 0);
    }
    CHECK_OK(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 10; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission));
        CHECK(submission.resource == 2 && shop.wanted == 0);
        CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    }
    CHECK_OK(dtl_policy_release(policy));
}

/* Releasing a policy ends the waits of others; late ends of its tasks are refused. */
static void* waits(void* submission) {
    CHECK_STATUS(dtl_submission_wait((dtl_submission_t*)submission, DTL_TIMEOUT_INFINITE), DTL_ERROR_CANCELED);
    return NULL;
}
static void test_release_while_waiting(void) {
    dtl_resource_ops_t ops;
    dtl_submission_t submission;
    dtl_policy_t policy;
    pthread_t waiter;
    int looks;
    shop_open(&shop, &ops);
    shop.mute = 1;
    policy = policy_in(&shop, &ops, "round_robin");
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission));
    CHECK_STATUS(dtl_submission_wait(&submission, 1000000), DTL_ERROR_TIMEOUT);
    looks = shop.looks;
    CHECK(pthread_create(&waiter, NULL, waits, &submission) == 0);
    while (__atomic_load_n(&shop.looks, __ATOMIC_RELAXED) == looks) usleep(100); /* until it waits */
    CHECK_OK(dtl_policy_release(policy));
    CHECK(pthread_join(waiter, NULL) == 0);
    CHECK(shop.destroyed == 1);
    CHECK_STATUS(dtl_selection_end(&shop.open[0], DTL_SUCCESS, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_INVALID_HANDLE);
}

/* A policy of the program's own. */
struct chooser {
    uint64_t count, reports[5];
    uint32_t next;
    dtl_status_t answer;
    int64_t completion, time;
    dtl_task_key_t key;
    int destroyed;
};
static dtl_status_t chooser_initialize(void* self, const dtl_resource_t* resources, uint64_t count) {
    CHECK(memcmp(resources, list, sizeof list) == 0);
    return ((struct chooser*)self)->count = count, ((struct chooser*)self)->answer;
}
static dtl_status_t chooser_select(void* self, dtl_task_key_t key, uint32_t* out_index) {
    struct chooser* chooser = (struct chooser*)self;
    chooser->key = key;
    if (chooser->answer == DTL_SUCCESS) *out_index = chooser->next;
    return chooser->answer;
}
static void chooser_report(void* self, uint32_t index, dtl_task_key_t key, uint64_t info, int64_t value) {
    struct chooser* chooser = (struct chooser*)self;
    CHECK(index == chooser->next && key.task == chooser->key.task && info <= 4);
    chooser->reports[info]++;
    if (info == DTL_INFO_TASK_COMPLETION) chooser->completion = value;
    if (info == DTL_INFO_TASK_TIME) chooser->time = value;
}
static void chooser_destroy(void* self) { ((struct chooser*)self)->destroyed++; }

static void test_custom_policy(void) {
    dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    struct chooser chooser;
    const dtl_task_key_t key = {11, 12};
    dtl_status_t bad = DTL_ERROR_TYPE;
    dtl_submission_t submission;
    dtl_policy_t policy = {77};
    memset(&chooser, 0, sizeof chooser);
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_STATUS(dtl_policy_create_custom(NULL, &chooser, list, N, &opts, &policy), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy), DTL_ERROR_NULL_POINTER);
    ops.select = chooser_select, ops.needed_info = 7, ops.destroy = chooser_destroy;
    CHECK_STATUS(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy), DTL_ERROR_NULL_POINTER);
    check_text("report");
    ops.report = chooser_report, ops.initialize = chooser_initialize, ops.reserved = 1;
    CHECK_STATUS(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy), DTL_ERROR_INVALID_ARGUMENT);
    check_text("ops.reserved is 1");
    ops.reserved = 0;
    chooser.answer = DTL_ERROR_LIMIT;
    CHECK_STATUS(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy), DTL_ERROR_LIMIT);
    CHECK(chooser.destroyed == 0 && policy.id == 77);
    chooser.answer = DTL_SUCCESS;
    opts.kind = DTL_RESOURCES_GENERIC;
    CHECK_STATUS(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy), DTL_ERROR_NOT_SUPPORTED);
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_OK(dtl_policy_create_custom(&ops, &chooser, list, N, &opts, &policy));
    chooser.next = 3;
    CHECK_OK(dtl_policy_submit(policy, key, nothing, NULL, 0, &submission));
    CHECK(chooser.count == N && submission.resource == 3 && chooser.key.variant == 12);
    CHECK(chooser.reports[1] == 1 && chooser.reports[2] == 1 && chooser.reports[4] == 1 && chooser.time >= 0);
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, key, nothing, &bad, 0), bad);
    CHECK(chooser.completion == bad && chooser.time == -1 && chooser.reports[2] == 2);
    chooser.answer = DTL_ERROR_BUSY;
    CHECK_STATUS(dtl_policy_try_submit(policy, key, nothing, NULL, NULL), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_policy_submit(policy, key, nothing, NULL, 1000000, NULL), DTL_ERROR_TIMEOUT);
    chooser.answer = DTL_ERROR_TRUNCATED;
    CHECK_STATUS(dtl_policy_submit(policy, key, nothing, NULL, 0, NULL), DTL_ERROR_TRUNCATED);
    check_text("select of the program's table");
    chooser.answer = DTL_SUCCESS, chooser.next = N;
    CHECK_STATUS(dtl_policy_submit(policy, key, nothing, NULL, 0, NULL), DTL_ERROR_OUT_OF_BOUNDS);
    check_text("resource 4");
    CHECK(chooser.reports[1] == 2);
    CHECK_OK(dtl_policy_release(policy));
    CHECK(chooser.destroyed == 1);
}

/* Streams of the host: a task queues work on the one that it is given. */
static int works;
static dtl_status_t works_once(void* status) {
    __atomic_fetch_add(&works, 1, __ATOMIC_RELAXED);
    return status == NULL ? DTL_SUCCESS : *(dtl_status_t*)status;
}
static dtl_status_t sleeps(void* time) { return usleep(*(useconds_t*)time), DTL_SUCCESS; }
static dtl_status_t queues(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    const dtl_stream_t stream = {resource->value};
    (void)wait;
    return dtl_stream_host_callback(stream, works_once, arg);
}
/* On the first stream its work takes 2 ms, elsewhere none. */
static uint64_t slow_stream;
static dtl_status_t queues_slow(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    static useconds_t time = 2000;
    const dtl_stream_t stream = {resource->value};
    (void)wait;
    return dtl_stream_host_callback(stream, resource->value == slow_stream ? sleeps : works_once,
                                    resource->value == slow_stream ? (void*)&time : arg);
}
/* Its work is elsewhere, and the event of that is what it leaves running. */
static dtl_stream_t elsewhere;
static dtl_status_t queues_elsewhere(const dtl_resource_t* resource, void* arg, dtl_waitable_t* wait) {
    static useconds_t time = 3000;
    (void)resource;
    CHECK_OK(dtl_stream_host_callback(elsewhere, sleeps, &time));
    CHECK_OK(dtl_stream_host_callback(elsewhere, works_once, NULL));
    wait->event = *(dtl_event_t*)arg;
    return dtl_event_record(wait->event, elsewhere);
}

static void test_streams(dtl_backend_t host) {
    const char* const names[5] = {"fixed", "round_robin", "dynamic_load", "auto_tune", "capacity"};
    dtl_resource_t streams[2];
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_stream_t stream;
    dtl_policy_t policy = {77};
    dtl_submission_t submission;
    dtl_policy_stats_t stats[2];
    dtl_status_t bad = DTL_ERROR_TRUNCATED;
    dtl_event_t event;
    int i, k;
    opts.kind = DTL_RESOURCES_STREAMS;
    for (i = 0; i < 2; i++) {
        CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
        streams[i].value = stream.id, streams[i].user = NULL;
    }
    for (k = 0; k < 5; k++) {
        CHECK_OK(dtl_policy_create(names[k], streams, 2, &opts, &policy));
        works = 0;
        for (i = 0; i < 40; i++) {
            CHECK_OK(dtl_policy_submit(policy, no_key, queues, NULL, DTL_TIMEOUT_INFINITE, i % 2 ? &submission : NULL));
            if (i % 4 == 1) CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
            if (i % 4 == 3) CHECK_OK(dtl_submission_release(&submission));
        }
        CHECK_OK(dtl_policy_wait_all(policy, k % 2 ? DTL_TIMEOUT_INFINITE : UINT64_C(10000000000)));
        CHECK(works == 40);
        CHECK_OK(dtl_policy_stats(policy, stats, 2, NULL));
        CHECK(stats[0].load + stats[1].load == 0 && stats[0].submitted + stats[1].submitted == 40);
        /* Work that fails after the task's function has returned. */
        CHECK_OK(dtl_policy_submit(policy, no_key, queues, &bad, DTL_TIMEOUT_INFINITE, &submission));
        CHECK_STATUS(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE), bad);
        CHECK_STATUS(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE), bad); /* the stream's */
        CHECK_OK(dtl_policy_wait_all(policy, DTL_TIMEOUT_INFINITE));
        CHECK_OK(dtl_policy_release(policy));
    }
    /* Times are those of the work, not of the function that queues it. */
    slow_stream = streams[0].value;
    CHECK_OK(dtl_policy_create("auto_tune", streams, 2, &opts, &policy));
    for (i = 0; i < 8; i++) CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, queues_slow, NULL, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 5; i++) {
        CHECK_OK(dtl_policy_submit(policy, no_key, queues_slow, NULL, 0, &submission));
        CHECK(submission.resource == 1);
        CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    }
    CHECK_OK(dtl_policy_release(policy));
    /* An event as what a task leaves running, on streams and on generic resources. */
    CHECK_OK(dtl_stream_create(host, 0, 0, &elsewhere));
    CHECK_OK(dtl_event_create(host, 0, &event));
    for (i = 0; i < 2; i++) {
        opts.kind = i == 0 ? DTL_RESOURCES_STREAMS : DTL_RESOURCES_GENERIC;
        CHECK_OK(dtl_policy_create("round_robin", streams, 2, &opts, &policy));
        works = 0;
        CHECK_OK(dtl_policy_submit(policy, no_key, queues_elsewhere, &event, 0, &submission));
        CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
        CHECK(works == 1);
        CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, queues_elsewhere, &event, DTL_TIMEOUT_INFINITE));
        CHECK(works == 2);
        CHECK_OK(dtl_policy_release(policy));
    }
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(elsewhere));
    /* Elements that are no streams. */
    opts.kind = DTL_RESOURCES_STREAMS, policy.id = 77;
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_STATUS(dtl_policy_create("round_robin", streams, 2, &opts, &policy), DTL_ERROR_INVALID_HANDLE);
    check_text("resource 1: stream handle");
    CHECK(policy.id == 77);
    stream.id = streams[0].value;
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A backend that does not time: no tuning, with the reason; all else works. */
static void test_without_times(void) {
    static int self;
    const dtl_backend_t idle = idle_backend(&self);
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_submission_t submission;
    dtl_policy_t policy = {77};
    uint64_t count;
    opts.backend = idle;
    CHECK_STATUS(dtl_policy_create("auto_tune", NULL, 0, &opts, &policy), DTL_ERROR_UNAVAILABLE);
    check_text("does not time its events");
    CHECK_OK(dtl_policy_create("dynamic_load", NULL, 0, &opts, &policy));
    CHECK_OK(dtl_policy_resources(policy, NULL, 0, &count));
    CHECK(count == 1);
    CHECK_OK(dtl_policy_submit(policy, no_key, nothing, NULL, 0, &submission));
    CHECK_OK(dtl_submission_wait(&submission, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_backend_unregister(idle), DTL_ERROR_BUSY); /* the policy's streams are on it */
    CHECK_OK(dtl_policy_release(policy));
    CHECK_OK(dtl_backend_unregister(idle));
}

/* NULL = all devices found: at least the host's. */
static void test_defaults(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_traits_t traits = DTL_POLICY_TRAITS_INIT;
    dtl_policy_t policy;
    works = 0;
    CHECK_OK(dtl_policy_create("round_robin", NULL, 0, NULL, &policy));
    CHECK_OK(dtl_policy_traits(policy, &traits));
    CHECK(traits.kind == DTL_RESOURCES_STREAMS && traits.resource_count >= 1 && traits.has_wait_type == 1);
    CHECK_OK(dtl_policy_release(policy));
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_OK(dtl_policy_create("auto_tune", NULL, 0, &opts, &policy));
    CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, nothing, NULL, 0));
    CHECK_OK(dtl_policy_release(policy));
}

int main(void) {
    dtl_backend_t host;
    int i;
    for (i = 0; i < N; i++) list[i].value = (uint64_t)i, list[i].user = &number[i];
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    test_table();
    test_left_out();
    test_even_loads();
    test_memory_is_flat("dynamic_load", 500000);
    test_memory_is_flat("round_robin", 1000000);
    test_told_times();
    test_release_while_waiting();
    test_custom_policy();
    test_streams(host);
    test_without_times();
    test_defaults();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
