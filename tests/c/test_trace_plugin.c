/* What plugins record in traces: spans in a call, the work of devices, counters; bad values; threads; tracing that
 * stops in between; what a tool receives; an older host's table.
 * Usage: test_trace_plugin FOLDER. C11, and valid C++17. */
#include "plugins.h"
#include "trace_file.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define FIRST_PROCESS (1 << 30) /* process ids of groups begin here, those below are ranks */

static const dtl_host_api_t* host;
static dtl_backend_t traces;

static trace stopped(void) {
    trace all;
    CHECK_OK(dtl_trace_stop());
    all = read_trace(in(own, "trace.json"));
    check_whole(&all);
    CHECK(unlink(in(own, "trace.json")) == 0);
    return all;
}

static void start(void) { CHECK_OK(dtl_trace_start(in(own, "trace.json"))); }

static dtl_trace_span_t span_of(uint64_t track, const char* name, uint64_t begin_ns, uint64_t end_ns) {
    dtl_trace_span_t span = DTL_TRACE_SPAN_INIT;
    span.track = track, span.category = "kernel", span.name = name, span.begin_ns = begin_ns, span.end_ns = end_ns;
    return span;
}

static void load(void) {
    const dtl_host_api_t* const* found;
    void* module;
    CHECK_OK(dtl_backend_load(in(plugins, "traces.so"), &traces));
    module = dlopen(in(plugins, "traces.so"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(module != NULL);
    found = (const dtl_host_api_t* const*)dlsym(module, "test_host");
    CHECK(found != NULL && *found != NULL && dlclose(module) == 0);
    host = *found;
}

/* Without a trace nothing is checked, but the output is set. */
static void off(void) {
    const dtl_trace_span_t bad = span_of(99, NULL, 9, 1);
    uint64_t span = 77;
    void* memory;
    CHECK(host->trace_is_on() == 0);
    CHECK_OK(host->trace_begin(NULL, NULL, NULL, &span));
    CHECK(span == 0);
    CHECK_STATUS(host->trace_begin("a", "b", NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(host->trace_end(0));
    CHECK_OK(host->trace_span(&bad));
    CHECK_OK(host->trace_span(NULL));
    CHECK_OK(host->trace_counter(99, NULL, 0, NAN));
    CHECK_OK(dtl_mem_alloc(traces, DTL_MEMORY_HOST, 13, 0, &memory));
    CHECK_OK(dtl_mem_free(traces, memory));
}

/* Spans lie in the call whose slot records them; those that are left open end with it. */
static void within_calls(void) {
    static const uint64_t sizes[] = {100, 13, 26, 100};
    void* memory;
    trace all;
    int i;
    start();
    for (i = 0; i < 4; i++) {
        CHECK_OK(dtl_mem_alloc(traces, DTL_MEMORY_HOST, sizes[i], 0, &memory));
        CHECK_OK(dtl_mem_free(traces, memory));
    }
    all = stopped();
    CHECK(count_of(&all, "reserve") == 4 && count_of(&all, "inner") == 1 && count_of(&all, "dtl_mem_free") == 4);
    for (i = 0; i < 4; i++) {
        const event *call = nth(&all, "dtl_mem_alloc", i), *span = nth(&all, "reserve", i);
        CHECK(is_within(span, call) && says(span, "cat", "traces") && says(span, "what", "first fit"));
        CHECK(argument(call, "bytes") == (double)sizes[i] && span->phase == 'B' && span->pid == 0);
        CHECK(nth(&all, "dtl_mem_free", i)->begin_us >= span->end_us);
    }
    CHECK(is_within(nth(&all, "inner", 0), nth(&all, "reserve", 2)));
    free_trace(&all);
}

static dtl_status_t asked(void* self, const void* ptr, dtl_mem_info_t* out) {
    uint64_t span;
    (void)self, (void)ptr, (void)out;
    CHECK_OK(host->trace_begin("traces", "left open", "a pointer", &span));
    return DTL_ERROR_NOT_FOUND;
}

static dtl_status_t none(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out) {
    (void)self, (void)size, (void)alignment, (void)kind, (void)out;
    return DTL_ERROR_NOT_SUPPORTED;
}

static dtl_status_t no_free(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind) {
    (void)self, (void)ptr, (void)size, (void)alignment, (void)kind;
    return DTL_SUCCESS;
}

/* What the library records of its call is in the call's event, and not in a span that a slot has left open. */
static void arguments_stay_with_the_call(void) {
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    char* pages = (char*)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void* used;
    trace all;
    CHECK(pages != (char*)MAP_FAILED);
    memory.alloc = none, memory.free = no_free, memory.pointer_info = asked;
    table.memory = &memory;
    CHECK_OK(dtl_backend_register("asked", &table, NULL, 0, &backend));
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 1, 0, &used), DTL_ERROR_NOT_SUPPORTED); /* from its first use it is asked */
    start();
    CHECK_OK(dtl_mem_copy(pages, pages + 4096, 77));
    all = stopped();
    CHECK(count_of(&all, "left open") == 2 && argument(nth(&all, "dtl_mem_copy", 0), "bytes") == 77);
    CHECK(says(nth(&all, "left open", 1), "what", "a pointer"));
    free_trace(&all);
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(munmap(pages, 8192) == 0);
}

/* The work of two devices, in rows of their own with the times that were given. */
static void devices(void) {
    uint64_t tracks[3], again = 0, now;
    dtl_trace_span_t span;
    char name[64];
    const event* found;
    trace all;
    int life, pid;
    struct timespec clock;
    CHECK_OK(host->trace_track("sim: device 0", "stream 0", &tracks[0]));
    CHECK_OK(host->trace_track("sim: device 0", "stream 1", &tracks[1]));
    CHECK_OK(host->trace_track("sim: device \"1\"\n", "stream 0", &tracks[2]));
    CHECK(tracks[0] != 0 && tracks[1] != tracks[0] && tracks[2] != tracks[0] && tracks[2] != tracks[1]);
    CHECK_OK(host->trace_track("sim: device 0", "stream 1", &again));
    CHECK(again == tracks[1]);
    now = host->trace_now();
    CHECK(clock_gettime(CLOCK_MONOTONIC, &clock) == 0);
    CHECK((uint64_t)clock.tv_sec * 1000000000 + (uint64_t)clock.tv_nsec - now < 1000000000);
    /* Each trace has the names. */
    for (life = 0; life < 2; life++) {
        start();
        CHECK(host->trace_is_on() == 1);
        span = span_of(tracks[1], "axpy", now - 5000, now - 1999);
        span.bytes = 4096, span.what = "block 3, which has a text longer than is kept";
        CHECK_OK(host->trace_span(&span));
        span = span_of(tracks[2], "say \"hi\\\"\t\xc3\xa4", now - 700000, now - 600000);
        CHECK_OK(host->trace_span(&span));
        span = span_of(tracks[1], "empty", now, now);
        CHECK_OK(host->trace_span(&span));
        CHECK_OK(host->trace_counter(tracks[1], "memory", now - 5000, 1.5));
        CHECK_OK(host->trace_counter(0, "queue", 0, -3));
        all = stopped();
        found = nth(&all, "axpy", 0);
        CHECK(found->phase == 'X' && says(found, "cat", "kernel") && argument(found, "bytes") == 4096);
        CHECK(says(found, "what", "block 3, which has a text longe"));
        CHECK(fabs(found->begin_us * 1e3 - (double)(now - 5000)) < 1 && fabs(found->end_us - found->begin_us - 3.001) < 1e-3);
        pid = found->pid;
        CHECK(pid >= FIRST_PROCESS && pid < FIRST_PROCESS + (1 << 14));
        CHECK(named(&all, "process_name", pid, 0, name, sizeof name) == 1 && strcmp(name, "rank 0: sim: device 0") == 0);
        CHECK(named(&all, "thread_name", pid, found->tid, name, sizeof name) == 1 && strcmp(name, "stream 1") == 0);
        CHECK(nth(&all, "empty", 0)->tid == found->tid && nth(&all, "empty", 0)->pid == pid);
        CHECK(named(&all, "thread_name", pid, 0, name, sizeof name) == 1); /* stream 0 had no work */
        found = nth(&all, "say \\", 0);
        CHECK(strstr(found->first, "\"name\":\"say \\\"hi\\\\\\\"\\u0009\xc3\xa4\"") != NULL && found->pid != pid);
        CHECK(found->pid >= FIRST_PROCESS && named(&all, "process_name", found->pid, 0, name, sizeof name) == 1);
        found = nth(&all, "memory", 0);
        CHECK(found->phase == 'C' && found->pid == pid && argument(found, "value") == 1.5);
        CHECK(fabs(found->begin_us * 1e3 - (double)(now - 5000)) < 1);
        found = nth(&all, "queue", 0);
        CHECK(found->pid == 0 && argument(found, "value") == -3 && found->begin_us >= (double)now / 1e3);
        CHECK(all.count == 5);
        free_trace(&all);
    }
}

#define REFUSED(call, status, part)      \
    do {                                 \
        CHECK_STATUS(call, status);      \
        CHECK_TEXT(part);                \
    } while (0)

/* Nothing of what is refused is in the trace. */
static void refused(void) {
    static char longer[400];
    uint64_t track, span = 77, inner = 0;
    dtl_trace_span_t bad;
    char name[16];
    trace all;
    int i;
    CHECK_OK(host->trace_track("refused", "row", &track));
    REFUSED(host->trace_track(NULL, "row", &span), DTL_ERROR_NULL_POINTER, "group is NULL");
    REFUSED(host->trace_track("refused", NULL, &span), DTL_ERROR_NULL_POINTER, "name is NULL");
    REFUSED(host->trace_track("refused", "row", NULL), DTL_ERROR_NULL_POINTER, "out_track is NULL");
    REFUSED(host->trace_track("", "row", &span), DTL_ERROR_INVALID_ARGUMENT, "group is empty");
    REFUSED(host->trace_track("refused", "a\xff", &span), DTL_ERROR_INVALID_ARGUMENT, "name is not UTF-8 at byte 1");
    start();
    REFUSED(host->trace_begin(NULL, "b", NULL, &span), DTL_ERROR_NULL_POINTER, "category is NULL");
    REFUSED(host->trace_begin("a", NULL, NULL, &span), DTL_ERROR_NULL_POINTER, "name is NULL");
    REFUSED(host->trace_begin("a", "b", NULL, NULL), DTL_ERROR_NULL_POINTER, "out_span is NULL");
    REFUSED(host->trace_begin("a", "", NULL, &span), DTL_ERROR_INVALID_ARGUMENT, "name is empty");
    REFUSED(host->trace_begin("a", "b", "\x80", &span), DTL_ERROR_INVALID_ARGUMENT, "what is not UTF-8 at byte 0");
    REFUSED(host->trace_end(77), DTL_ERROR_INVALID_STATE, "span 0x4d is not the innermost");
    CHECK(span == 77);
    REFUSED(host->trace_span(NULL), DTL_ERROR_NULL_POINTER, "span is NULL");
    bad = span_of(track, "bad", 9, 8);
    REFUSED(host->trace_span(&bad), DTL_ERROR_INVALID_ARGUMENT, "span.begin_ns is 9 and span.end_ns 8");
    bad = span_of(track, "bad", 0, 8);
    REFUSED(host->trace_span(&bad), DTL_ERROR_INVALID_ARGUMENT, "span.begin_ns is 0");
    bad = span_of(0, "bad", 1, 2);
    REFUSED(host->trace_span(&bad), DTL_ERROR_INVALID_ARGUMENT, "track is 0");
    bad = span_of(UINT64_MAX, "bad", 1, 2);
    REFUSED(host->trace_span(&bad), DTL_ERROR_INVALID_ARGUMENT, "track is 18446744073709551615");
    bad = span_of(track, NULL, 1, 2);
    REFUSED(host->trace_span(&bad), DTL_ERROR_NULL_POINTER, "span.name is NULL");
    bad.name = "bad", bad.reserved = 4;
    REFUSED(host->trace_span(&bad), DTL_ERROR_INVALID_ARGUMENT, "span.reserved is 4");
    bad.reserved = 0, bad.struct_size = 12;
    REFUSED(host->trace_span(&bad), DTL_ERROR_INCOMPATIBLE_ABI, "dtl_trace_span_t.struct_size is 12");
    REFUSED(host->trace_counter(track + 4000, "c", 0, 1), DTL_ERROR_INVALID_ARGUMENT, "is no track");
    REFUSED(host->trace_counter(track, NULL, 0, 1), DTL_ERROR_NULL_POINTER, "name is NULL");
    REFUSED(host->trace_counter(track, "c", 0, (double)INFINITY), DTL_ERROR_INVALID_ARGUMENT, "value is inf");
    REFUSED(host->trace_counter(track, "c", 0, (double)NAN), DTL_ERROR_INVALID_ARGUMENT, "value is NaN");
    /* The last one first. */
    CHECK_OK(host->trace_begin("a", "outer", NULL, &span));
    CHECK_OK(host->trace_begin("a", "inner", NULL, &inner));
    REFUSED(host->trace_end(span), DTL_ERROR_INVALID_STATE, "the last one first");
    CHECK_OK(host->trace_end(inner));
    CHECK_OK(host->trace_end(span));
    CHECK_STATUS(host->trace_end(span), DTL_ERROR_INVALID_STATE);
    /* A name is cut between two characters. */
    memset(longer, 'x', sizeof longer - 1);
    memcpy(longer + 254, "\xc3\xa4", 2);
    CHECK_OK(host->trace_begin(longer, "cut", NULL, &span));
    CHECK_OK(host->trace_end(span));
    all = stopped();
    CHECK(all.count == 3 && count_of(&all, "bad") == 0 && count_of(&all, "cut") == 1);
    CHECK(strstr(nth(&all, "cut", 0)->first, "xxx\",\"name\":\"cut\"") != NULL);
    free_trace(&all);
    /* As many as a thread has room for. */
    start();
    for (i = 0; i < 1024; i++) CHECK_OK(host->trace_begin("a", "deep", NULL, &span));
    REFUSED(host->trace_begin("a", "deep", NULL, &inner), DTL_ERROR_LIMIT, "1024 calls and spans");
    for (i = 0; i < 1024; i++) CHECK_OK(host->trace_end(span--));
    /* Names: the calls of the library still have theirs. */
    for (i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        if (host->trace_counter(0, name, 0, i) != DTL_SUCCESS) break;
    }
    CHECK(i > 14000 && i < 14336);
    CHECK_TEXT("put what differs from event to event into what");
    CHECK_STATUS(host->trace_counter(0, name, 0, i), DTL_ERROR_LIMIT);
    CHECK_STATUS(host->trace_track("refused", name, &span), DTL_ERROR_LIMIT);
    CHECK_OK(host->trace_track("refused", "row", &span));
    CHECK(span == track);
    CHECK_OK(host->trace_counter(0, "n0", 0, i));
    CHECK_OK(dtl_mem_free(traces, NULL));
    CHECK_OK(dtl_trace_stop());
    all = read_trace(in(own, "trace.json"));
    CHECK(count_of(&all, "dtl_mem_free") == 1 && count_of(&all, "n0") == 2 && count_of(&all, "deep") == 1024);
    CHECK(count_of(&all, "?") == 0);
    free_trace(&all);
    CHECK(unlink(in(own, "trace.json")) == 0);
}

/* Threads of a plugin record what they do, and the work of the same stream. */
static uint64_t shared_track;

static void* work(void* arg) {
    char name[16];
    int i;
    snprintf(name, sizeof name, "worker %d", *(int*)arg);
    for (i = 0; i < 500; i++) {
        const uint64_t begin = host->trace_now();
        dtl_trace_span_t done;
        uint64_t span;
        CHECK_OK(host->trace_begin("traces", name, NULL, &span));
        CHECK_OK(host->trace_counter(shared_track, "done", 0, i));
        CHECK_OK(host->trace_end(span));
        done = span_of(shared_track, "work", begin, host->trace_now());
        CHECK_OK(host->trace_span(&done));
    }
    return NULL;
}

static void threads(void) {
    pthread_t thread[4];
    int numbers[4] = {0, 1, 2, 3}, i, round;
    char name[64];
    trace all;
    CHECK_OK(host->trace_track("shared", "queue", &shared_track));
    start();
    for (i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, work, &numbers[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
    all = stopped();
    CHECK(count_of(&all, "work") == 2000 && count_of(&all, "done") == 2000 && all.count == 6000);
    for (i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "worker %d", i);
        CHECK(count_of(&all, name) == 500);
    }
    CHECK(named(&all, "process_name", nth(&all, "work", 0)->pid, 0, name, sizeof name) == 1);
    free_trace(&all);
    /* Traces begin and stop while they record; each file is whole. */
    for (i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, work, &numbers[i]) == 0);
    for (round = 0; round < 20; round++) {
        start();
        all = stopped();
        free_trace(&all);
    }
    for (i = 0; i < 4; i++) CHECK(pthread_join(thread[i], NULL) == 0);
}

/* A span that began in one trace ends in none, and harms no later one. */
static void stopped_between(void) {
    uint64_t old = 0, next = 0;
    trace all;
    start();
    CHECK_OK(host->trace_begin("traces", "old", NULL, &old));
    all = stopped(); /* it is marked as unfinished */
    CHECK(count_of(&all, "old") == 1 && argument(nth(&all, "old", 0), "unfinished") == 1);
    free_trace(&all);
    CHECK(old != 0);
    start();
    CHECK_OK(host->trace_end(old));
    CHECK_OK(host->trace_begin("traces", "next", NULL, &next));
    CHECK_OK(host->trace_end(next));
    all = stopped();
    CHECK(count_of(&all, "old") == 0 && count_of(&all, "next") == 1);
    free_trace(&all);
}

/* A tool receives all of it: both ends of a device's work, with its times. */
static int begins[6], ends[6];
static uint64_t id, begin_ns, end_ns;
static double value;

static void on_begin(const dtl_trace_event_t* e, void* user) {
    uint64_t span = 77;
    CHECK(user == begins && e->struct_size == sizeof *e && e->kind >= 1 && e->kind <= 5);
    begins[e->kind]++;
    id = e->id;
    if (e->kind == DTL_TRACE_DEVICE || e->kind == DTL_TRACE_COUNTER) {
        CHECK(strcmp(e->group, "tool: device") == 0 && strcmp(e->track, "stream") == 0);
    } else {
        CHECK(e->group[0] == 0 && e->track[0] == 0 && e->value == 0);
    }
    if (e->kind == DTL_TRACE_DEVICE) {
        begin_ns = e->time_ns;
        CHECK(strcmp(e->category, "kernel") == 0 && strcmp(e->name, "axpy") == 0 && strcmp(e->what, "row 7") == 0);
        CHECK(e->has == (DTL_TRACE_HAS_BYTES | DTL_TRACE_HAS_WHAT) && e->bytes == 64);
    }
    if (e->kind == DTL_TRACE_COUNTER) value = e->value;
    /* What a tool does is not traced. */
    CHECK_OK(host->trace_begin("a", "b", NULL, &span));
    CHECK(span == 0);
}

static void on_end(const dtl_trace_event_t* e, void* user) {
    CHECK(user == begins && e->id == id);
    ends[e->kind]++;
    end_ns = e->time_ns;
}

static void tools(void) {
    dtl_trace_callbacks_t table = DTL_TRACE_CALLBACKS_INIT;
    const uint64_t now = host->trace_now();
    dtl_trace_span_t done;
    uint64_t track, span;
    CHECK_OK(host->trace_track("tool: device", "stream", &track));
    table.begin = on_begin, table.end = on_end, table.user = begins;
    CHECK_OK(dtl_trace_set_callbacks(&table));
    CHECK(host->trace_is_on() == 1);
    done = span_of(track, "axpy", now - 9, now - 2);
    done.what = "row 7", done.bytes = 64;
    CHECK_OK(host->trace_span(&done));
    CHECK(begins[DTL_TRACE_DEVICE] == 1 && ends[DTL_TRACE_DEVICE] == 1 && begin_ns == now - 9 && end_ns == now - 2);
    CHECK_OK(host->trace_counter(track, "load", now, 0.25));
    CHECK(begins[DTL_TRACE_COUNTER] == 1 && ends[DTL_TRACE_COUNTER] == 0 && value == 0.25);
    CHECK_OK(host->trace_begin("traces", "span", NULL, &span));
    CHECK(id == span);
    CHECK_OK(host->trace_end(span));
    CHECK(begins[DTL_TRACE_SPAN] == 1 && ends[DTL_TRACE_SPAN] == 1);
    CHECK_OK(dtl_trace_set_callbacks(NULL));
    CHECK(host->trace_is_on() == 0);
}

/* A forked child does not write into its parent's file. */
static void forked(void) {
    uint64_t span = 0;
    trace all;
    pid_t child;
    int status;
    start();
    CHECK_OK(host->trace_begin("traces", "parent", NULL, &span));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t own_span = 0;
        int i;
        CHECK_OK(host->trace_end(span));
        for (i = 0; i < 10000; i++) {
            CHECK_OK(host->trace_begin("traces", "child", NULL, &own_span));
            CHECK_OK(host->trace_end(own_span));
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(host->trace_end(span));
    all = stopped();
    CHECK(all.count == 1);
    free_trace(&all);
}

int main(int argc, char** argv) {
    plugins_begin(argc, argv);
    load();
    off();
    within_calls();
    arguments_stay_with_the_call();
    devices();
    threads();
    stopped_between();
    tools();
    forked();
    refused(); /* last: it takes all names */
    return 0;
}
