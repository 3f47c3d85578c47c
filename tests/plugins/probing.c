/* A program that lets its plugins be probed (DTL_PLUGIN_PROBE) and makes it hard: threads, fork handlers, and
 * SIGCHLD ignored or handled. Usage: probing plain|ignore|reap CRASHING_PLUGIN. Not a test by itself. */
#include <dtl.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, dtl_last_error()); \
            return 1;                                                           \
        }                                                                       \
    } while (0)

static void reap(int number)
{
    const int saved = errno;
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    errno = saved;
}

static void forked(void) { _exit(99); }

static void* idle(void* nothing)
{
    for (;;) pause();
    return nothing;
}

int main(int argc, char** argv)
{
    dtl_backend_t good, other;
    void* memory = NULL;
    pthread_t thread;
    if (argc != 3) return 2;
    if (strcmp(argv[1], "ignore") == 0) signal(SIGCHLD, SIG_IGN);
    if (strcmp(argv[1], "reap") == 0) signal(SIGCHLD, reap);
    CHECK(pthread_atfork(forked, NULL, NULL) == 0);
    CHECK(pthread_create(&thread, NULL, idle, NULL) == 0);
    CHECK(dtl_backend_get("good", &good) == DTL_SUCCESS);
    CHECK(dtl_mem_alloc(good, DTL_MEMORY_HOST, 100, 64, &memory) == DTL_SUCCESS);
    CHECK(dtl_mem_free(good, memory) == DTL_SUCCESS);
    CHECK(dtl_backend_get("nothing", &other) == DTL_ERROR_NOT_FOUND);
    printf("%s\n", dtl_last_error());
    CHECK(dtl_backend_load(argv[2], &other) == DTL_ERROR_UNAVAILABLE);
    printf("%s\n", dtl_last_error());
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no zombie */
    return 0;
}
