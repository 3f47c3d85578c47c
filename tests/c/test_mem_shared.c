/* The cases of mem_cases.h between the ranks of one kind of communicator, and that nothing is left afterwards.
 *     test_mem_shared self | shm | hier | mail RANKS | threads RANKS */
#include "comm_kinds.h"
#include "mem_cases.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static dtl_comm_t comms[MEM_MOST];

static void *run_thread(void *user) {
    const int rank = (int)(intptr_t)user;
    mem_cases(comms[rank], rank, ranks);
    CHECK_OK(dtl_comm_destroy(comms[rank]));
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[MEM_MOST];
    int i;
    CHECK(ranks <= MEM_MOST);
    CHECK_OK(dtl_comm_threads(ranks, MILLISECONDS(60000), comms));
    for (i = 0; i < ranks; i++) CHECK(pthread_create(&threads[i], NULL, run_thread, (void *)(intptr_t)i) == 0);
    for (i = 0; i < ranks; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* A program that closes what it did not open: the number is then its own file's, which no free closes. */
static void test_taken_descriptor(void) {
    dtl_mem_handle_t handle;
    struct stat before, after;
    void *block = NULL;
    char path[32], name[64];
    int number, own;
    ssize_t length = 0;
    CHECK_OK(dtl_mem_alloc(mem_host(), DTL_MEMORY_SHARED, 4096, 0, &block));
    for (number = 255; number > 2; number--) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        length = readlink(path, name, sizeof name - 1);
        if (length > 11 && memcmp(name, "/memfd:dtl-", 11) == 0) break;
    }
    CHECK(number > 2);
    own = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(own >= 0 && dup2(own, number) == number && close(own) == 0 && fstat(number, &before) == 0);
    CHECK_STATUS(dtl_mem_export(block, &handle), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_mem_free(mem_host(), block));
    CHECK(fstat(number, &after) == 0 && after.st_ino == before.st_ino && after.st_dev == before.st_dev);
    CHECK(close(number) == 0);
}

int main(int argc, char **argv) {
    const int is_threads = argc > 2 && strcmp(argv[1], "threads") == 0;
    dtl_mem_stats_t left = DTL_MEM_STATS_INIT;
    if (is_threads) {
        test_taken_descriptor();
        ranks = atoi(argv[2]);
        run_threads();
    } else {
        dtl_comm_t comm;
        start(argc, argv);
        comm = open_comm();
        mem_cases(comm, me, ranks);
        CHECK_OK(dtl_comm_destroy(comm));
    }
    CHECK_OK(dtl_mem_stats(mem_host(), &left));
    CHECK(left.live_count == 0 && left.live_bytes == 0);
    if (!is_threads) finish();
    return 0;
}
