/* The cases of mem_cases.h between the ranks of one kind of communicator, and that nothing is left afterwards.
 *     test_mem_shared self | shm | hier | mail RANKS | threads RANKS */
#include "comm_kinds.h"
#include "mem_cases.h"
#include <pthread.h>

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

int main(int argc, char **argv) {
    const int is_threads = argc > 2 && strcmp(argv[1], "threads") == 0;
    dtl_mem_stats_t left = DTL_MEM_STATS_INIT;
    if (is_threads) {
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
