/* Init, finalize and everything that comes before, after and between: rounds, threads, forks,
 * exit. Usage: test_lifecycle CASE, or no case for all of them, each in a process of its own.
 * C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "entries.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int entries_of(const char* path) {
    DIR* directory = opendir(path);
    int count = 0;
    CHECK(directory != NULL);
    while (readdir(directory) != NULL) count++;
    closedir(directory);
    return count - 2;
}

static int thread_count(void) { return entries_of("/proc/self/task"); }
static int file_count(void) { return entries_of("/proc/self/fd"); }

static void pause_ms(long ms) { usleep((useconds_t)ms * 1000); }

/* Threads that have ended may take a moment to leave the list. */
static void expect_threads(int expected) {
    int i;
    for (i = 0; i < 500 && thread_count() != expected; i++) pause_ms(2);
    CHECK(thread_count() == expected);
}

static long resident_kib(void) {
    long pages = 0, ignored = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &ignored, &pages) == 2);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void works(void) {
    dtl_backend_t host;
    void* memory = NULL;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory));
    CHECK_OK(dtl_mem_free(host, memory));
}

static void static_answers(void) {
    CHECK(strcmp(dtl_version_string(), DTL_VERSION_STRING) == 0 && dtl_library_abi_version() == DTL_ABI_VERSION);
    CHECK(dtl_version_major() == DTL_VERSION_MAJOR && dtl_version_minor() == DTL_VERSION_MINOR);
    CHECK(dtl_version_patch() == DTL_VERSION_PATCH);
    CHECK(strcmp(dtl_status_name(DTL_SUCCESS), "DTL_SUCCESS") == 0 && dtl_status_message(0)[0] != 0);
    CHECK(dtl_last_error() != NULL);
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
}

/* Failures of a caller's own. */
static void own_failures(void) {
    CHECK_STATUS(dtl_error_set(DTL_ERROR_BUSY, "the mill is full"), DTL_ERROR_BUSY);
    CHECK(strcmp(dtl_last_error(), "the mill is full") == 0);
    CHECK_STATUS(dtl_error_set(DTL_SUCCESS, "all is well"), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "status 0") != NULL);
    CHECK_STATUS(dtl_error_set(99, "no such number"), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "status 99") != NULL);
    CHECK_STATUS(dtl_error_set(DTL_ERROR_BUSY, "\xff"), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "text") != NULL);
}

static void before_and_after(void) {
    struct handles handles;
    int i;
    static_answers();
    CHECK(dtl_last_error()[0] == 0);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE); /* nothing to end */
    CHECK_STATUS(dtl_init_after_fork(), DTL_ERROR_INVALID_STATE);
    own_failures();
    works(); /* the first use initialises */
    own_failures();
    make_handles(&handles);
    CHECK_STATUS(dtl_init_after_fork(), DTL_ERROR_INVALID_STATE);
    for (i = 0; i < 3; i++) CHECK_OK(dtl_init(NULL)); /* counted */
    for (i = 0; i < 2; i++) {
        CHECK_OK(dtl_finalize());
        CHECK_OK(dtl_event_wait(handles.event, DTL_TIMEOUT_INFINITE));
    }
    CHECK_OK(dtl_finalize());
    all_must_fail(&handles, DTL_ERROR_INVALID_STATE);
    static_answers();
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
    all_must_fail(&handles, DTL_ERROR_INVALID_STATE); /* that has not opened anything */
    CHECK_OK(dtl_init(NULL));
    works();
    CHECK_STATUS(dtl_event_wait(handles.event, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE); /* of the time before */
    CHECK_STATUS(dtl_comm_destroy(handles.comm), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
    all_must_fail(&handles, DTL_ERROR_INVALID_STATE);
}

/* One finalize is enough where use came before any dtl_init. */
static void implicit(void) {
    works();
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
}

static void no_thread(void) {
    struct handles handles;
    dtl_comm_t world;
    char buffer[8] = {0};
    CHECK_OK(dtl_init(NULL));
    works();
    make_handles(&handles); /* threads are made when there is work for them */
    CHECK_OK(dtl_event_record(handles.event, handles.stream));
    CHECK_OK(dtl_event_wait(handles.event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_executor_run(handles.executor, e_task, NULL));
    CHECK_OK(dtl_comm_get_world(&world));
    CHECK_OK(dtl_comm_barrier(world));
    CHECK_OK(dtl_comm_bcast(world, buffer, 8, DTL_DTYPE_BYTE, 0));
    CHECK(thread_count() == 1);
    CHECK_OK(dtl_finalize());
    CHECK(thread_count() == 1);
}

static void rounds(void) {
    struct far far;
    int i, files = 0;
    long memory = 0;
    memset(&far, 0, sizeof far);
    for (i = 0; i < 1000; i++) {
        struct handles handles;
        dtl_backend_t mine;
        dtl_stream_t stream;
        void *plain = NULL, *foreign = NULL;
        CHECK_OK(dtl_init(NULL));
        make_handles(&handles);
        mine = far_register("mine", &far);
        CHECK_OK(dtl_backend_set_device(mine, 0));
        CHECK_OK(dtl_mem_alloc(handles.backend, DTL_MEMORY_HOST, 10000, 0, &plain));
        CHECK_OK(dtl_mem_alloc(mine, DTL_MEMORY_DEVICE, 10000, 0, &foreign));
        CHECK_OK(dtl_stream_create(mine, 0, 0, &stream));
        CHECK_OK(dtl_stream_host_callback(stream, e_task, NULL));
        CHECK_OK(dtl_stream_host_callback(handles.stream, e_task, NULL));
        CHECK_OK(dtl_event_record(handles.event, handles.stream));
        CHECK_OK(dtl_executor_run_async(handles.executor, e_task, NULL, DTL_EVENT_NULL));
        CHECK_OK(dtl_executor_parallel_for(handles.executor, 0, 10, 1, e_range, NULL));
        CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF));
        CHECK_OK(dtl_finalize()); /* all of it alive */
        CHECK(far.destroyed == i + 1 && far.allocs == i + 1 && far.frees == i + 1);
        if (i == 100) files = file_count(), memory = resident_kib();
    }
    expect_threads(1);
    CHECK(file_count() == files);
    CHECK(KEEPS_FREED || resident_kib() < memory + 1024); /* 10 MB would have leaked with a round's objects */
}

static int inside, leave, rounds_worked, forked;

static dtl_status_t hold(void* user) {
    (void)user;
    far_add(&inside);
    while (!far_get(&leave)) pause_ms(1);
    return DTL_SUCCESS;
}

static void* run_hold(void* user) {
    CHECK_OK(dtl_executor_run(*(dtl_executor_t*)user, hold, NULL));
    return NULL;
}

static dtl_status_t finalize_inside(void* user) {
    *(dtl_status_t*)user = dtl_finalize();
    return DTL_SUCCESS;
}

static int answered;

/* The same on a thread of the library, which finalize would wait for; nobody else is inside. */
static dtl_status_t finalize_on_worker(void* user) {
    (void)finalize_inside(user);
    CHECK_TEXT("on a thread of the library");
    far_add(&answered);
    return DTL_SUCCESS;
}

static void busy(void) {
    struct handles handles;
    pthread_t thread;
    dtl_status_t status = DTL_SUCCESS;
    CHECK_OK(dtl_init(NULL));
    make_handles(&handles);
    CHECK(pthread_create(&thread, NULL, run_hold, &handles.executor) == 0);
    while (!far_get(&inside)) pause_ms(1);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    works(); /* nothing has changed */
    CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE));
    far_add(&leave);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_executor_run(handles.executor, finalize_inside, &status)); /* from a callback */
    CHECK(status == DTL_ERROR_BUSY);
    status = DTL_SUCCESS;
    CHECK_OK(dtl_stream_host_callback(handles.stream, finalize_on_worker, &status));
    while (far_get(&answered) < 1) pause_ms(1);
    CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE));
    CHECK(status == DTL_ERROR_BUSY);
    status = DTL_SUCCESS;
    CHECK_OK(dtl_executor_run_async(handles.executor, finalize_on_worker, &status, DTL_EVENT_NULL));
    while (far_get(&answered) < 2) pause_ms(1);
    CHECK_OK(dtl_executor_wait(handles.executor, DTL_TIMEOUT_INFINITE));
    CHECK(status == DTL_ERROR_BUSY);
    CHECK_OK(dtl_finalize());
}

static int closing;

/* Work that finalize waits for: what would wait for finalize in turn must answer instead. */
static dtl_status_t init_while_closing(void* user) {
    dtl_backend_t host;
    int refused;
    (void)user;
    far_add(&inside);
    while (!far_get(&closing)) pause_ms(1);
    /* Until the door is closed for good: a finalize that finds somebody inside opens it again. */
    for (refused = 0; refused < 5; pause_ms(1)) {
        const dtl_status_t status = dtl_backend_get("host", &host);
        refused = status == DTL_SUCCESS ? 0 : refused + 1;
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_STATE);
    }
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_BUSY);
    CHECK_TEXT("dtl_finalize");
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    far_add(&leave);
    return DTL_SUCCESS;
}

static void init_in_work(void) {
    int i;
    for (i = 0; i < 20; i++) {
        struct handles handles;
        inside = closing = leave = 0;
        CHECK_OK(dtl_init(NULL));
        make_handles(&handles);
        CHECK_OK(dtl_stream_host_callback(handles.stream, init_while_closing, NULL));
        while (!far_get(&inside)) pause_ms(1);
        far_add(&closing);
        while (dtl_finalize() == DTL_ERROR_BUSY) {} /* the work may be inside a call */
        CHECK(far_get(&leave) == 1);
        CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_init(NULL)); /* when it is over, all is as ever */
        works();
        CHECK_OK(dtl_finalize());
    }
}

static int log_lines;

static void use_in_log(int32_t level, const char* text, void* user) {
    (void)level;
    if (strstr(text, "DTL_TIMEOUTT") == NULL) return;
    if (far_get(&log_lines) > 0) return;
    far_add(&log_lines);
    works();
    CHECK_OK(dtl_init(NULL)); /* counted */
    CHECK_STATUS(dtl_finalize(), *(const dtl_status_t*)user);
}

/* A log callback may use the library, also while that is being initialised. */
static void log_in_init(void) {
    dtl_status_t expected = DTL_SUCCESS;
    CHECK(setenv("DTL_TIMEOUTT", "1s", 1) == 0);
    CHECK_OK(dtl_log_set_callback(use_in_log, &expected, DTL_LOG_WARN));
    CHECK_OK(dtl_init(NULL));
    CHECK(far_get(&log_lines) == 1);
    works();
    CHECK_OK(dtl_finalize());
    log_lines = 0;
    CHECK_OK(dtl_init(NULL));
    CHECK(far_get(&log_lines) == 1);
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
}

static void log_in_first_use(void) {
    dtl_status_t expected = DTL_ERROR_BUSY; /* the first use is a call further up */
    CHECK(setenv("DTL_TIMEOUTT", "1s", 1) == 0);
    CHECK_OK(dtl_log_set_callback(use_in_log, &expected, DTL_LOG_WARN));
    works();
    CHECK(far_get(&log_lines) == 1);
}

static struct handles left;

static void at_exit(void) {
    all_must_fail(&left, DTL_ERROR_INVALID_STATE);
    static_answers();
    _exit(43); /* shows that this has run */
}

static void exit_after_finalize(void) {
    CHECK(atexit(at_exit) == 0);
    CHECK_OK(dtl_init(NULL));
    make_handles(&left);
    CHECK_OK(dtl_finalize());
    exit(0);
}

static void at_exit_open(void) {
    works();
    CHECK_OK(dtl_stream_host_callback(left.stream, e_task, NULL));
    CHECK_OK(dtl_stream_wait(left.stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_finalize());
    all_must_fail(&left, DTL_ERROR_INVALID_STATE);
    CHECK(strstr(dtl_last_error(), "finalized") != NULL); /* though the thread's own place for it is gone */
    _exit(43);
}

static void exit_while_open(void) {
    CHECK(atexit(at_exit_open) == 0);
    CHECK_OK(dtl_init(NULL));
    make_handles(&left);
    CHECK_OK(dtl_stream_host_callback(left.stream, e_task, NULL));
    exit(0);
}

/* Leaves everything alive: no crash, no hang. */
static void exit_untidy(void) {
    CHECK_OK(dtl_init(NULL));
    make_handles(&left);
    CHECK_OK(dtl_stream_host_callback(left.stream, e_task, NULL));
    CHECK_OK(dtl_executor_parallel_for(left.executor, 0, 10, 1, e_range, NULL));
    exit(43);
}

static pthread_key_t key;
static int destructor_runs;

/* Runs after the thread's own destructors of thread-local data: the library's are gone. */
static void in_key_destructor(void* user) {
    const int round = far_get(&destructor_runs);
    void* memory = NULL;
    dtl_backend_t host;
    int32_t device = -1;
    dtl_event_t event;
    works();
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_backend_get_device(host, &device));
    CHECK_STATUS(dtl_mem_alloc(host, 1, 1, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK(dtl_last_error() != NULL);
    CHECK_OK(dtl_event_create(host, 0, &event));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_wait(DTL_STREAM_NULL, DTL_TIMEOUT_INFINITE));
    far_add(&destructor_runs);
    if (round % 3 != 2) CHECK(pthread_setspecific(key, user) == 0); /* and once more */
}

static void* with_key(void* user) {
    CHECK(pthread_setspecific(key, user) == 0);
    works();
    return NULL;
}

static void key_destructor(void) {
    pthread_t thread;
    int i;
    CHECK(pthread_key_create(&key, in_key_destructor) == 0);
    CHECK_OK(dtl_init(NULL));
    for (i = 0; i < 3; i++) {
        CHECK(pthread_create(&thread, NULL, with_key, &inside) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(destructor_runs == 9);
    CHECK_OK(dtl_finalize()); /* nobody is thought to be inside */
}

static int wait_for(pid_t child) {
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void child_of_fork(const struct handles* handles) {
    struct handles fresh;
    alarm(30); /* a fork does not inherit its parent's */
    all_must_fail(handles, DTL_ERROR_FORKED);
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_FORKED);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_FORKED);
    static_answers();
    CHECK_OK(dtl_init_after_fork());
    CHECK_STATUS(dtl_init_after_fork(), DTL_ERROR_INVALID_STATE);
    works();
    CHECK_STATUS(dtl_stream_wait(handles->stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_executor_run(handles->executor, e_task, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_comm_barrier(handles->comm), DTL_ERROR_INVALID_HANDLE);
    make_handles(&fresh);
    CHECK_OK(dtl_stream_host_callback(fresh.stream, e_task, NULL));
    CHECK_OK(dtl_stream_wait(fresh.stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_executor_parallel_for(fresh.executor, 0, 100, 1, e_range, NULL));
    CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF));
    destroy_handles(&fresh);
    CHECK_OK(dtl_finalize());
    all_must_fail(handles, DTL_ERROR_INVALID_STATE);
    _exit(0);
}

static void forks(void) {
    struct handles handles;
    struct far far;
    dtl_backend_t mine;
    void* memory = NULL;
    pid_t child;
    int i;
    memset(&far, 0, sizeof far);
    CHECK_OK(dtl_init(NULL));
    make_handles(&handles);
    mine = far_register("mine", &far);
    CHECK_OK(dtl_mem_alloc(mine, DTL_MEMORY_DEVICE, 64, 0, &memory));
    CHECK_OK(dtl_stream_host_callback(handles.stream, e_task, NULL)); /* threads that the child has not */
    CHECK_OK(dtl_executor_parallel_for(handles.executor, 0, 100, 1, e_range, NULL));
    CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF));
    CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE)); /* a stream at work counts as a thread inside */
    for (i = 0; i < 20; i++) {
        child = fork();
        if (child == 0) child_of_fork(&handles);
        CHECK(wait_for(child) == 0);
        CHECK_OK(dtl_stream_host_callback(handles.stream, e_task, NULL)); /* the parent notices nothing */
        CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE));
        CHECK_OK(dtl_executor_parallel_for(handles.executor, 0, 100, 1, e_range, NULL));
        CHECK_OK(dtl_mem_fill(memory, (uint8_t)i, 64));
        CHECK(far_real(memory)[63] == i);
    }
    child = fork(); /* a child that never calls may leave as it likes */
    if (child == 0) exit(0);
    CHECK(wait_for(child) == 0);
    CHECK(far.frees == 0 && far.destroyed == 0);
    CHECK_OK(dtl_finalize());
    CHECK(far.frees == 1 && far.destroyed == 1);
    child = fork(); /* of a finalized parent: it may begin anew in either way */
    if (child == 0) {
        const dtl_status_t status = dtl_init(NULL);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_FORKED);
        if (status == DTL_ERROR_FORKED) CHECK_OK(dtl_init_after_fork());
        works();
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
}

static void* run_works(void* user) {
    (void)user;
    while (!far_get(&leave)) {
        works();
        far_add(&rounds_worked);
    }
    return NULL;
}

/* A finalize that is refused changes nothing for the calls of others meanwhile. */
static void busy_beside_work(void) {
    struct handles handles;
    pthread_t holder, worker;
    int i;
    CHECK_OK(dtl_init(NULL));
    make_handles(&handles);
    CHECK(pthread_create(&holder, NULL, run_hold, &handles.executor) == 0);
    CHECK(pthread_create(&worker, NULL, run_works, NULL) == 0);
    while (!far_get(&inside)) pause_ms(1);
    for (i = 0; i < 20000 || far_get(&rounds_worked) < 200000; i++) CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    CHECK_OK(dtl_stream_wait(handles.stream, DTL_TIMEOUT_INFINITE));
    far_add(&leave);
    CHECK(pthread_join(holder, NULL) == 0 && pthread_join(worker, NULL) == 0);
    CHECK_OK(dtl_finalize());
}

static void* busy_thread(void* user) {
    struct handles* handles = (struct handles*)user;
    while (!far_get(&leave)) {
        CHECK_OK(dtl_stream_host_callback(handles->stream, e_task, NULL));
        CHECK_OK(dtl_stream_wait(handles->stream, DTL_TIMEOUT_INFINITE));
        far_add(&inside);
        while (far_get(&forked) < far_get(&inside) && !far_get(&leave)) pause_ms(1); /* outside, as the rule wants */
    }
    return NULL;
}

static void forks_of_threads(void) {
    struct handles handles;
    pthread_t thread;
    pid_t child;
    int i;
    CHECK_OK(dtl_init(NULL));
    make_handles(&handles);
    CHECK(pthread_create(&thread, NULL, busy_thread, &handles) == 0);
    for (i = 0; i < 10; i++) {
        while (far_get(&inside) == i) pause_ms(1);
        child = fork();
        if (child == 0) child_of_fork(&handles);
        CHECK(wait_for(child) == 0);
        far_add(&forked);
    }
    far_add(&leave);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_finalize());
}

static void refused_here(void) {
    CHECK_STATUS(dtl_init_after_fork(), DTL_ERROR_INVALID_STATE);
    CHECK(strstr(dtl_last_error(), "at the fork") != NULL);
    CHECK_STATUS(dtl_comm_barrier(DTL_COMM_SELF), DTL_ERROR_FORKED); /* nothing has changed */
}

static void* registers(void* user) {
    static struct far far;
    while (!far_get(&leave)) {
        CHECK_OK(dtl_backend_unregister(far_register("fleeting", &far)));
        far_add((int*)user);
    }
    return NULL;
}

static void* inits(void* user) {
    while (!far_get(&leave)) {
        CHECK_OK(dtl_init(NULL));
        CHECK_OK(dtl_finalize());
        far_add((int*)user);
    }
    return NULL;
}

/* A thread that is in a call at the fork is a status for the child, never a wait for locks that nobody gives back. */
static void forks_of_calls(void) {
    static int turns[2];
    struct handles handles;
    pthread_t holder, threads[2];
    pid_t child;
    int i, refused = 0, status;
    CHECK_OK(dtl_init(NULL));
    make_handles(&handles);
    CHECK(pthread_create(&holder, NULL, run_hold, &handles.executor) == 0);
    while (!far_get(&inside)) pause_ms(1);
    child = fork();
    if (child == 0) {
        alarm(30);
        refused_here();
        refused_here();
        _exit(0);
    }
    CHECK(wait_for(child) == 0);
    CHECK((far_add(&leave), pthread_join(holder, NULL)) == 0);
    __atomic_store_n(&leave, 0, __ATOMIC_RELEASE);
    CHECK(pthread_create(&threads[0], NULL, registers, &turns[0]) == 0 &&
          pthread_create(&threads[1], NULL, inits, &turns[1]) == 0);
    for (i = 0; i < 60; i++) {
        child = fork();
        if (child == 0) {
            alarm(30);
            status = dtl_init_after_fork();
            if (status == DTL_SUCCESS) works();
            else refused_here();
            _exit(status == DTL_SUCCESS ? 0 : status == DTL_ERROR_INVALID_STATE ? 7 : 1);
        }
        status = wait_for(child);
        CHECK(status == 0 || status == 7);
        refused += status == 7;
    }
    far_add(&leave);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    CHECK(refused > 0 && far_get(&turns[0]) > 0 && far_get(&turns[1]) > 0);
    CHECK_OK(dtl_finalize());
}

struct test_case {
    const char* name;
    void (*run)(void);
    int expected;
};

static const struct test_case cases[] = {
    {"before_and_after", before_and_after, 0}, {"implicit", implicit, 0}, {"no_thread", no_thread, 0},
    {"rounds", rounds, 0}, {"busy", busy, 0}, {"busy_beside_work", busy_beside_work, 0}, {"init_in_work", init_in_work, 0},
    {"log_in_init", log_in_init, 0}, {"log_in_first_use", log_in_first_use, 0}, {"exit_untidy", exit_untidy, 43},
    {"exit_after_finalize", exit_after_finalize, 43}, {"exit_while_open", exit_while_open, 43},
    {"key_destructor", key_destructor, 0}, {"forks", forks, 0}, {"forks_of_threads", forks_of_threads, 0},
    {"forks_of_calls", forks_of_calls, 0}};
#define CASE_COUNT (sizeof cases / sizeof cases[0])

int main(int argc, char** argv) {
    size_t i;
    int failures = 0;
    for (i = 0; i < CASE_COUNT; i++) {
        if (argc > 1) {
            if (strcmp(argv[1], cases[i].name) != 0) continue;
            cases[i].run();
            return 0;
        } else { /* the library is not used in this process: forks of it are fresh */
            const pid_t child = fork();
            int got;
            if (child == 0) {
                alarm(60);
                cases[i].run();
                exit(0);
            }
            got = wait_for(child);
            if (got != cases[i].expected) printf("%s: ended with %d instead of %d\n", cases[i].name, got, cases[i].expected), failures++;
        }
    }
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
