/* Forks while other threads use the library in every way that may hold a lock: calls and their errands,
 * functions that work in every state, threads that end, streams at work. In each child dtl_init_after_fork
 * succeeds, and everything works, or returns INVALID_STATE; it never waits for a lock that a thread of the
 * parent has. An alarm ends a child that waits. Usage: test_fork_inside [FORKS]. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "far.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int leave;

/* What is created in one call and freed by whichever thread leaves last. */
static void* create_events(void* user) {
    while (!far_get(&leave)) {
        dtl_event_t event;
        CHECK_OK(dtl_event_create(DTL_BACKEND_NULL, 0, &event));
        CHECK_OK(dtl_event_destroy(event));
        if (user != NULL) usleep(1);
    }
    return NULL;
}

/* Takes the locks of an enumeration and of the log; these functions work in every state. */
static dtl_status_t use_enumerations(const char* name) {
    dtl_enum_word_t word;
    DTL_IGNORE(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    return dtl_enum_register(DTL_ENUM_MEMORY, name, &word);
}

static void* enumerate(void* user) {
    while (!far_get(&leave)) CHECK_STATUS(use_enumerations("Known"), DTL_ERROR_ALREADY_EXISTS);
    return user;
}

static void use_memory(void) {
    dtl_backend_t host;
    void* block;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 100000, 0, &block));
    CHECK_OK(dtl_mem_free(host, block));
}

static void* use_memory_and_end(void* user) {
    use_memory();
    return user;
}

/* Threads that end: their last destructors give their memory away. */
static void* make_threads(void* user) {
    while (!far_get(&leave)) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_memory_and_end, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    return user;
}

static dtl_status_t allocate_in_stream(void* user) {
    (void)user;
    use_memory();
    return DTL_SUCCESS;
}

static void* use_stream(void* user) {
    dtl_backend_t host;
    dtl_stream_t stream;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    while (!far_get(&leave)) {
        CHECK_OK(dtl_stream_host_callback(stream, allocate_in_stream, NULL));
        CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
        usleep(50);
    }
    CHECK_OK(dtl_stream_destroy(stream));
    return user;
}

static int child(void) {
    dtl_status_t status;
    alarm(60);
    status = use_enumerations("Early");
    CHECK(status == DTL_SUCCESS || (status == DTL_ERROR_INVALID_STATE && strstr(dtl_last_error(), "at the fork") != NULL));
    status = dtl_init_after_fork();
    if (status == DTL_ERROR_INVALID_STATE) {
        CHECK(strstr(dtl_last_error(), "at the fork") != NULL);
        return 1;
    }
    CHECK_OK(status);
    use_memory();
    CHECK_OK(use_enumerations("Late"));
    leave = 1;
    CHECK_OK(dtl_finalize());
    return 0;
}

static void round_of(void* (*work)(void*), void* user, int forks) {
    pthread_t threads[2];
    int i, count[2] = {0, 0};
    __atomic_store_n(&leave, 0, __ATOMIC_RELEASE);
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, work, i == 0 ? NULL : user) == 0);
    for (i = 0; i < forks; i++) {
        int status = 0;
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) _exit(child());
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(!(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
        count[WEXITSTATUS(status)]++;
    }
    far_add(&leave);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("%d usable, %d refused\n", count[0], count[1]);
}

int main(int argc, char** argv) {
    const int forks = argc > 1 ? atoi(argv[1]) : 250;
    static int other;
    CHECK_OK(dtl_init(NULL));
    round_of(create_events, &other, forks);
    round_of(make_threads, NULL, forks);
    round_of(use_stream, NULL, forks);
    CHECK_OK(use_enumerations("Known"));
    round_of(enumerate, NULL, forks);
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
