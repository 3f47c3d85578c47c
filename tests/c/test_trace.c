/* Tracing: the file and who is told.
 *
 *     program                 one process: paths, contents, tools, threads, fork, limits
 *     program KIND            ranks: each writes a file by DTL_TRACE, and finds its messages in it */
#include "comm_kinds.h"
#include "entries.h"
#include "trace_file.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/dtl-trace-XXXXXX";
static char path[96];
static dtl_backend_t host;

static const char* in_folder(const char* name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A trace with this much in it is closed and gone. */
static trace stopped(void) {
    trace all;
    CHECK_OK(dtl_trace_stop());
    all = read_trace(path);
    check_whole(&all);
    CHECK(unlink(path) == 0);
    return all;
}

static void bad_paths(void) {
    char text[64] = "";
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_trace_start(NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_trace_start(""), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_trace_start(in_folder("%x.json")), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "%x") != NULL && strstr(dtl_last_error(), "%r") != NULL);
    CHECK_STATUS(dtl_trace_start(in_folder("no/such")), DTL_ERROR_NOT_FOUND);
    CHECK(strstr(dtl_last_error(), "no/such") != NULL);
    CHECK_STATUS(dtl_trace_start("/proc/self/status/x"), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_trace_start("/proc/x.json"), DTL_ERROR_UNAVAILABLE);
    CHECK(strstr(dtl_last_error(), "name another folder") != NULL);
    CHECK_STATUS(dtl_trace_start(folder), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_trace_start("/dev/null"), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "/dev/null") != NULL && strstr(dtl_last_error(), "remove") == NULL);
    CHECK_STATUS(dtl_trace_start(in_folder("new/")), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_trace_start(in_folder("\xff.json")), DTL_ERROR_INVALID_ARGUMENT);
    /* What is there stays as it is. */
    {
        FILE* file = fopen(in_folder("old.json"), "w");
        fputs("old", file);
        fclose(file);
        CHECK_STATUS(dtl_trace_start(path), DTL_ERROR_ALREADY_EXISTS);
        CHECK((file = fopen(path, "r")) != NULL && fread(text, 1, 9, file) == 3 && strcmp(text, "old") == 0);
        fclose(file);
        unlink(path);
    }
    CHECK_OK(dtl_trace_start(in_folder("one.json")));
    CHECK_STATUS(dtl_trace_start("/tmp/two.json"), DTL_ERROR_INVALID_STATE);
    CHECK(strstr(dtl_last_error(), "one.json") != NULL);
    {
        trace all = stopped();
        CHECK(all.count == 0); /* nor are calls about the trace itself in it */
        free_trace(&all);
    }
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
    snprintf(text, sizeof text, "%s/%ld-0.json", folder, (long)getpid());
    CHECK_OK(dtl_trace_start(in_folder("%p-%r.json")));
    CHECK_OK(dtl_trace_stop());
    CHECK(unlink(text) == 0);
}

static dtl_status_t touch(void* user) { return ++*(int*)user, DTL_SUCCESS; }

static dtl_status_t task(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    return (void)left, *(uint64_t*)arg += resource->value, DTL_SUCCESS;
}

static dtl_status_t handler(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    return (void)query, (void)event, ++*(int*)user, DTL_SUCCESS;
}

/* Which handler and which resource were chosen. */
static void choices(void) {
    const dtl_resource_t resources[2] = {{5, NULL}, {7, NULL}};
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_dispatch_handler_t made = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_dispatch_key_t key;
    dtl_dispatcher_t dispatcher;
    dtl_registration_t registration;
    dtl_policy_t policy;
    const dtl_task_key_t first = {0, 0};
    uint64_t sum = 0;
    int handled = 0;
    trace all;
    memset(&key, 0, sizeof key);
    key.operation = query.operation = DTL_OPERATION_COPY;
    made.name = "mover", made.invoke = handler, made.user = &handled;
    opts.fixed_index = 1;
    CHECK_OK(dtl_policy_create("fixed", resources, 2, &opts, &policy));
    CHECK_OK(dtl_dispatcher_create(0, &dispatcher));
    CHECK_OK(dtl_dispatch_register(dispatcher, &key, 1, &made, &registration));
    CHECK_OK(dtl_trace_start(in_folder("choices.json")));
    CHECK_OK(dtl_dispatch_invoke(dispatcher, &query, NULL));
    CHECK_OK(dtl_policy_submit(policy, first, task, &sum, 0, NULL));
    all = stopped();
    CHECK(handled == 1 && sum == 7);
    CHECK(says(nth(&all, "handler", 0), "what", "mover") && says(nth(&all, "handler", 0), "cat", "dispatch"));
    CHECK(is_within(nth(&all, "handler", 0), nth(&all, "dtl_dispatch_invoke", 0)));
    CHECK(says(nth(&all, "task", 0), "what", "fixed: resource 1") && says(nth(&all, "task", 0), "cat", "selection"));
    CHECK(is_within(nth(&all, "task", 0), nth(&all, "dtl_policy_submit", 0)));
    free_trace(&all);
    CHECK_OK(dtl_dispatcher_destroy(dispatcher));
    CHECK_OK(dtl_policy_release(policy));
}

/* What one thread does is told with what it is about, and nested. */
static void contents(void) {
    void *memory, *block, *part;
    int touched = 0;
    int64_t one = 1, sum = 0;
    dtl_stream_t stream;
    dtl_pool_t pool;
    dtl_request_t request;
    dtl_win_t win;
    trace all;
    const event* found;
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool));
    CHECK_OK(dtl_trace_start(in_folder("contents.json")));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 4096, 0, &memory));
    CHECK_OK(dtl_pool_alloc(pool, 100, 0, &block));
    CHECK_OK(dtl_mem_copy(memory, block, 100));
    CHECK_OK(dtl_mem_fill(memory, 0, 77));
    CHECK_STATUS(dtl_mem_copy(memory, memory, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_stream_host_callback(stream, touch, &touched));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_comm_isend(DTL_COMM_SELF, &one, 1, DTL_DTYPE_INT64, 0, 42, &request));
    CHECK_OK(dtl_comm_recv(DTL_COMM_SELF, &sum, 1, DTL_DTYPE_INT64, 0, 42, NULL));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_allreduce(DTL_COMM_SELF, &one, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK_OK(dtl_win_allocate(DTL_COMM_SELF, 64, 8, &part, &win));
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, &one, 1, DTL_DTYPE_INT64, 0, 3));
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_mem_free(host, memory));
    CHECK(touched == 1);
    all = stopped();
    CHECK_OK(dtl_pool_free(pool, block));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK_OK(dtl_stream_destroy(stream));

    found = nth(&all, "dtl_mem_alloc", 0);
    CHECK(argument(found, "bytes") == 4096 && says(found, "what", "Host of host") && says(found, "cat", "mem"));
    CHECK(found->pid == 0 && found->tid == getpid());
    CHECK(argument(nth(&all, "dtl_pool_alloc", 0), "bytes") == 100);
    CHECK(argument(nth(&all, "dtl_mem_copy", 0), "bytes") == 100);
    CHECK(says(nth(&all, "dtl_mem_copy", 0), "what", "Host to Host"));
    CHECK(says(nth(&all, "dtl_mem_copy", 1), "status", "DTL_ERROR_INVALID_ARGUMENT"));
    CHECK(argument(nth(&all, "dtl_mem_fill", 0), "bytes") == 77);
    /* The stream's work is in the stream's thread. */
    found = nth(&all, "host callback", 0);
    CHECK(says(found, "cat", "stream") && found->tid != getpid());
    CHECK(found->end_us <= nth(&all, "dtl_stream_wait", 0)->end_us);
    /* An operation goes on until its end is seen. */
    found = nth(&all, "send", 0);
    CHECK(found->phase == 'b' && says(found, "cat", "operation"));
    CHECK(argument(found, "bytes") == 8 && argument(found, "peer") == 0 && argument(found, "tag") == 42);
    CHECK(says(found, "dtype", "INT64") && says(found, "comm", "0x600001000000000"));
    CHECK(is_within(nth(&all, "recv", 0), nth(&all, "dtl_comm_recv", 0)));
    CHECK(argument(nth(&all, "dtl_comm_isend", 0), "tag") == 42); /* so is the call's own */
    CHECK(says(nth(&all, "allreduce", 0), "op", "SUM") && argument(nth(&all, "allreduce", 0), "bytes") == 8);
    CHECK(argument(nth(&all, "dtl_win_put", 0), "bytes") == 8 && argument(nth(&all, "dtl_win_put", 0), "peer") == 0);
    CHECK(count_of(&all, "dtl_win_fence") == 2 && count_of(&all, "dtl_mem_free") == 1);
    free_trace(&all);
}

/* Every function of the interface is told under its own name. */
static const char *begun, *ended;
static dtl_status_t ended_with;
static int told, depth, is_nested;

static void on_begin(const dtl_trace_event_t* e, void* user) {
    CHECK(user == &told && e->struct_size == sizeof *e && e->id != 0 && e->what != NULL && e->time_ns != 0);
    if (e->kind != DTL_TRACE_CALL) return;
    begun = e->name;
    told++;
    is_nested |= depth++ > 0;
    CHECK(dtl_version_major() >= 0 && dtl_status_name(0) != NULL);
    /* What a tool calls is not traced, or this would not end. */
    CHECK_STATUS(dtl_mem_free(host, NULL), DTL_SUCCESS);
}

static void on_end(const dtl_trace_event_t* e, void* user) {
    CHECK(user == &told);
    if (e->kind != DTL_TRACE_CALL) return;
    ended = e->name;
    ended_with = e->status;
    depth--;
}


static void names(void) {
    dtl_trace_callbacks_t table = DTL_TRACE_CALLBACKS_INIT;
    struct handles handles;
    struct outputs outputs;
    size_t i, tried = 0;
    table.reserved = 1;
    CHECK_STATUS(dtl_trace_set_callbacks(&table), DTL_ERROR_INVALID_ARGUMENT);
    table.reserved = 0;
    CHECK_OK(dtl_trace_set_callbacks(&table)); /* no functions: nobody is called */
    CHECK_OK(dtl_mem_free(host, NULL));
    table.user = &told;
    table.begin = on_begin;
    table.end = on_end;
    CHECK_OK(dtl_trace_set_callbacks(&table));
    memset(&handles, 0xEE, sizeof handles); /* no such objects */
    for (i = 0; i < ENTRY_COUNT; i++) {
        dtl_status_t status;
        if (entries[i].noun == NONE) continue;
        poison(&outputs);
        memset(&outputs.requests, 0, sizeof outputs.requests);
        begun = ended = "nothing";
        told = 0;
        status = entries[i].call(&handles, &outputs);
        tried++;
        if (told != 1 || strcmp(begun, entries[i].name) != 0 || begun != ended || status != ended_with || depth != 0) {
            fprintf(stderr, "%s: told %d: %s, %s with %s (nothing told: see admit in src/ffi/guard.rs)\n", entries[i].name, told, begun, ended, dtl_status_name(ended_with));
            exit(1);
        }
    }
    CHECK(tried > 150 && !is_nested);
    CHECK_OK(dtl_trace_set_callbacks(NULL));
    told = 0;
    CHECK_OK(dtl_mem_free(host, NULL));
    CHECK(told == 0);
}

/* Threads, more events than a thread's journal holds, starts and stops meanwhile. */
enum { THREADS = 4, CALLS = 6000 };
static int stop_calls;

static void* calls(void* argument) {
    const int count = *(int*)argument;
    int i;
    for (i = 0; i < count || (count == 0 && !__atomic_load_n(&stop_calls, __ATOMIC_ACQUIRE)); i++) {
        void* memory;
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory));
        CHECK_OK(dtl_mem_free(host, memory));
    }
    return NULL;
}

static void threads(void) {
    pthread_t ids[THREADS];
    int i, round, count = CALLS;
    dtl_trace_callbacks_t none = DTL_TRACE_CALLBACKS_INIT;
    trace all;
    CHECK_OK(dtl_trace_start(in_folder("threads.json")));
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, calls, &count) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    all = stopped();
    CHECK(count_of(&all, "dtl_mem_alloc") == THREADS * CALLS && count_of(&all, "dtl_mem_free") == THREADS * CALLS);
    free_trace(&all);
    count = 0;
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, calls, &count) == 0);
    for (round = 0; round < 20; round++) {
        CHECK_OK(dtl_trace_start(in_folder("race.json")));
        if (round % 3 == 0) CHECK_OK(dtl_trace_set_callbacks(&none));
        usleep(500);
        if (round % 3 == 1) CHECK_OK(dtl_trace_set_callbacks(NULL));
        all = stopped();
        free_trace(&all);
    }
    __atomic_store_n(&stop_calls, 1, __ATOMIC_RELEASE);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

static int64_t size_of(const char* of) {
    struct stat found;
    return stat(of, &found) == 0 ? (int64_t)found.st_size : -1;
}

/* A child does not write into its parent's file, nor tell its parent's tool, and may have a file of its own. */
static void forks(void) {
    char own[96];
    trace all;
    int status;
    pid_t child;
    void* memory;
    CHECK_OK(dtl_trace_start(in_folder("fork.json")));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory)); /* in this thread's journal */
    snprintf(own, sizeof own, "%s/child.json", folder);
    child = fork();
    if (child == 0) {
        int i;
        CHECK_STATUS(dtl_mem_free(host, memory), DTL_ERROR_FORKED);
        CHECK_OK(dtl_init_after_fork());
        CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_backend_get("host", &host));
        CHECK_OK(dtl_trace_start(own));
        for (i = 0; i < CALLS; i++) CHECK_OK(dtl_mem_free(host, NULL));
        CHECK_OK(dtl_trace_stop());
        all = read_trace(own);
        check_whole(&all);
        CHECK(count_of(&all, "dtl_mem_free") == CALLS && count_of(&all, "dtl_mem_alloc") == 0);
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(dtl_mem_free(host, memory));
    all = stopped();
    CHECK(count_of(&all, "dtl_mem_alloc") == 1 && count_of(&all, "dtl_mem_free") == 1);
    free_trace(&all);
    unlink(own);
}

/* A fork while the library's own thread writes: the child finds no lock in the hands of a thread that it has not. */
static void forks_while_writing(void) {
    int round, i, status;
    CHECK_OK(dtl_trace_start(in_folder("busy.json")));
    for (round = 0; round < 100; round++) {
        pid_t child;
        for (i = 0; i < 520 + round * 37 % 200; i++) CHECK_OK(dtl_mem_free(host, NULL));
        child = fork();
        if (child == 0) {
            char own[96];
            alarm(20);
            snprintf(own, sizeof own, "%s/child.json", folder);
            CHECK_OK(dtl_init_after_fork());
            CHECK_OK(dtl_trace_start(own));
            CHECK_OK(dtl_mem_free(DTL_BACKEND_NULL, NULL));
            CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF)); /* a name that the parent has not used */
            CHECK_OK(dtl_trace_stop());
            CHECK(unlink(own) == 0);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK_OK(dtl_trace_stop());
    CHECK(unlink(path) == 0);
}

/* A signal that the program's threads block waits for them: no thread of the library's takes it and dies of it. */
static void signals(void) {
    sigset_t blocked, before;
    int i, got, touched = 0;
    dtl_stream_t stream;
    CHECK(sigemptyset(&blocked) == 0 && sigaddset(&blocked, SIGUSR1) == 0);
    CHECK_OK(dtl_trace_start(in_folder("signals.json")));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_stream_host_callback(stream, touch, &touched));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
    for (i = 0; i < 3; i++) CHECK(kill(getpid(), SIGUSR1) == 0 && sigwait(&blocked, &got) == 0 && got == SIGUSR1);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0 && sigismember(&before, SIGTERM) == 0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_trace_stop());
    CHECK(touched == 1 && unlink(path) == 0);
}

/* Where there is no memory for a thread's events the thread is not traced, and the program goes on. */
static void no_memory(void) {
    struct rlimit old, small;
    long pages;
    int i;
    FILE* file = fopen("/proc/self/statm", "r");
    static void* filler[4096];
    CHECK_OK(dtl_trace_start(in_folder("memory.json")));
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1 && getrlimit(RLIMIT_AS, &old) == 0);
    fclose(file);
    small = old;
    small.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE));
    CHECK(setrlimit(RLIMIT_AS, &small) == 0);
    for (i = 0; i < 4096 && (filler[i] = malloc(300000)) != NULL;) i++; /* what the heap has is too little */
    CHECK_OK(dtl_mem_free(host, NULL));
    CHECK(setrlimit(RLIMIT_AS, &old) == 0);
    while (i > 0) free(filler[--i]);
    CHECK_OK(dtl_mem_free(host, NULL));
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(dtl_last_error(), "memory.json") != NULL);
    {
        trace all = read_trace(path);
        check_whole(&all);
        free_trace(&all);
    }
    CHECK(unlink(path) == 0);
}

static int has(const char* of, const char* wanted) {
    static char text[1 << 14];
    FILE* file = fopen(of, "rb");
    size_t size = 0;
    if (file != NULL) {
        size = fread(text, 1, sizeof text - 1, file);
        fclose(file);
    }
    text[size] = '\0';
    return strstr(text, wanted) != NULL;
}

/* A rank that is killed in a call leaves what it did before, and what it was in. */
static void killed(void) {
    int status, tries;
    pid_t child;
    trace all;
    in_folder("killed.json");
    child = fork();
    if (child == 0) {
        int byte;
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_trace_start(path));
        CHECK_OK(dtl_mem_free(DTL_BACKEND_NULL, NULL));
        CHECK_OK(dtl_comm_recv(DTL_COMM_SELF, &byte, 1, DTL_DTYPE_BYTE, 0, 9, NULL)); /* never comes */
        _exit(1);
    }
    for (tries = 0; tries < 2000 && !has(path, "\"recv\""); tries++) usleep(5000);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    all = read_trace(path);
    CHECK(!all.has_end && count_of(&all, "dtl_mem_free") == 1 && nth(&all, "dtl_comm_recv", 0)->is_open);
    CHECK(nth(&all, "recv", 0)->is_open && argument(nth(&all, "recv", 0), "tag") == 9);
    free_trace(&all);
    CHECK(unlink(path) == 0);
}

static int logged;
static void on_log(int32_t level, const char* text, void* user) {
    (void)level, (void)user;
    if (strstr(text, folder) != NULL) __atomic_add_fetch(&logged, 1, __ATOMIC_RELAXED);
}

/* What a call takes at least, in nanoseconds. */
static double least_ns(void) {
    double least = 1e9;
    int round, i;
    for (round = 0; round < 50; round++) {
        struct timespec begin, end;
        double took;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &begin) == 0);
        for (i = 0; i < 500; i++) CHECK_OK(dtl_mem_free(host, NULL));
        CHECK(clock_gettime(CLOCK_MONOTONIC, &end) == 0);
        took = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
        if (took / 500 < least) least = took / 500;
    }
    return least;
}

/* A file that may not grow ends the trace with a warning, not the program by a signal; stopping says why. */
static void full(void) {
    struct rlimit old, small;
    const double untraced = least_ns();
    int i;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    small = old;
    small.rlim_cur = 100;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_STATUS(dtl_trace_start(in_folder("full.json")), DTL_ERROR_LIMIT);
    CHECK(size_of(path) < 0); /* nothing is left behind */
    small.rlim_cur = 20000;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_OK(dtl_log_set_callback(on_log, NULL, DTL_LOG_WARN));
    CHECK_OK(dtl_trace_start(in_folder("full.json")));
    for (i = 0; i < CALLS; i++) CHECK_OK(dtl_mem_free(host, NULL));
    for (i = 0; i < 500 && __atomic_load_n(&logged, __ATOMIC_RELAXED) == 0; i++) usleep(10000);
    CHECK(logged == 1);
    CHECK(least_ns() < 4 * untraced); /* not traced any more, and so not slower */
    CHECK(logged == 1);
    CHECK_STATUS(dtl_trace_start("/tmp/other.json"), DTL_ERROR_INVALID_STATE);
    CHECK(strstr(dtl_last_error(), "has ended") != NULL && strstr(dtl_last_error(), "full.json") != NULL);
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_LIMIT);
    CHECK(strstr(dtl_last_error(), "full.json") != NULL && size_of(path) <= 20000);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0 && unlink(path) == 0);
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN));
}

/* The last finalize completes the file; the next period has none unless it is asked for. */
static void finalized(void) {
    trace all;
    int life, i;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_trace_start(in_folder("end.json")));
    CHECK_OK(dtl_mem_free(host, NULL));
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
    all = read_trace(path);
    check_whole(&all);
    CHECK(count_of(&all, "dtl_mem_free") == 1);
    free_trace(&all);
    /* By the environment; a file that is there is a warning. */
    CHECK(setenv("DTL_TRACE", path, 1) == 0);
    CHECK_OK(dtl_log_set_callback(on_log, NULL, DTL_LOG_WARN));
    logged = 0;
    CHECK_OK(dtl_init(NULL));
    CHECK(logged == 1);
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
    CHECK(unlink(path) == 0);
    /* So is a path that is no text. */
    CHECK(setenv("DTL_TRACE", in_folder("\xff.json"), 1) == 0);
    CHECK_OK(dtl_init(NULL));
    CHECK(logged == 2 && size_of(path) < 0);
    CHECK_OK(dtl_finalize());
    CHECK(setenv("DTL_TRACE", in_folder("end.json"), 1) == 0);
    /* Each life of the library has a file. */
    for (life = 1; life <= 3; life++) {
        CHECK_OK(dtl_init(NULL));
        for (i = 0; i < life; i++) CHECK_OK(dtl_mem_free(DTL_BACKEND_NULL, NULL));
        CHECK_OK(dtl_finalize());
    }
    CHECK(logged == 2);
    for (life = 1; life <= 3; life++) {
        all = read_trace(in_folder(life == 1 ? "end.json" : life == 2 ? "end-2.json" : "end-3.json"));
        check_whole(&all);
        CHECK(count_of(&all, "dtl_mem_free") == life && unlink(path) == 0);
        free_trace(&all);
    }
    CHECK(setenv("DTL_TRACE", in_folder("other"), 1) == 0);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_finalize());
    CHECK(unlink(path) == 0 && logged == 2);
}

/* Ranks: each file has the rank's own messages, all on one clock. */
static void ranked(void) {
    char own[128];
    int32_t out[256] = {0}, in[256];
    double sent_us, their_us;
    const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    dtl_request_t requests[2];
    dtl_comm_t comm = open_comm();
    const event* received;
    trace all;
    CHECK_OK(dtl_comm_isend(comm, out, 256, DTL_DTYPE_INT32, next, 5, &requests[0]));
    CHECK_OK(dtl_comm_irecv(comm, in, 256, DTL_DTYPE_INT32, before, 5, &requests[1]));
    CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_bcast(comm, out, 3, DTL_DTYPE_INT32, ranks - 1));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_trace_stop());
    snprintf(own, sizeof own, "/tmp/dtl-trace-%s.%d.json", getenv("DTL_JOB"), me);
    all = read_trace(own);
    CHECK(unlink(own) == 0);
    check_whole(&all);
    CHECK(nth(&all, "send", 0)->pid == me && argument(nth(&all, "send", 0), "bytes") == 1024);
    received = nth(&all, "recv", 0);
    CHECK(argument(nth(&all, "send", 0), "peer") == next && argument(received, "peer") == before);
    CHECK(argument(nth(&all, "bcast", 0), "bytes") == 12 && argument(nth(&all, "bcast", 0), "peer") == ranks - 1);
    CHECK(count_of(&all, "dtl_request_wait_all") == 1 && count_of(&all, "barrier") == 1);
    /* What I have received was sent before, by the clock of both. */
    sent_us = nth(&all, "send", 0)->begin_us;
    CHECK_OK(dtl_comm_sendrecv(comm, &sent_us, 1, next, 0, &their_us, 1, before, 0, DTL_DTYPE_FLOAT64, NULL));
    CHECK(their_us < received->end_us);
    free_trace(&all);
    CHECK_OK(dtl_comm_destroy(comm));
}

int main(int argc, char** argv) {
    if (argc > 1) {
        snprintf(path, sizeof path, "/tmp/dtl-trace-%s.json", getenv("DTL_JOB"));
        CHECK(setenv("DTL_TRACE", path, 1) == 0);
        start(argc, argv);
        ranked();
        finish();
        return 0;
    }
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(dtl_backend_get("host", &host));
    bad_paths();
    contents();
    choices();
    names();
    threads();
    forks();
    forks_while_writing();
    signals();
#ifndef __SANITIZE_ADDRESS__ /* which maps memory for each new thread */
    no_memory();
#else
    (void)no_memory;
#endif
    killed();
    full();
    finalized();
    CHECK(rmdir(folder) == 0);
    return 0;
}
