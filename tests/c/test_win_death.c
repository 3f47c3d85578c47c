/* What the other ranks see of a window when a target is killed: real processes, real SIGKILL.
 *
 * Without arguments: the driver, which starts the ranks with dtlrun (DTL_TEST_DTLRUN names it). With one: a rank. Rank 1
 * is the victim; it holds a lock of rank 0 when it goes. */
#include "comm_kinds.h"

enum { VICTIM = 1, CELLS = 4096 };

static void be_the_victim(dtl_comm_t comm, dtl_win_t win) {
    char ready = 0;
    int i;
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    for (i = 0; i < ranks; i++)
        if (i != VICTIM) CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, i, 1));
    /* All have asked for something that only its death ends. */
    for (i = 0; i < ranks; i++)
        if (i != VICTIM) CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, i, 2, NULL));
    kill(getpid(), SIGKILL);
}

static void fails(dtl_status_t status) {
    CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
    CHECK(strchr(dtl_last_error(), '0' + VICTIM) != NULL);
}

static void see_it_die(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    const int other = me == 0 ? 2 : 0;
    int64_t value = me, got[CELLS];
    dtl_request_t request;
    dtl_status_t status;
    char ready = 0;
    CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 1, NULL));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, VICTIM));
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 2));
    /* Fetches end, in the end with what the status says, and requests too. */
    do {
        status = dtl_win_get(win, got, CELLS, DTL_DTYPE_INT64, VICTIM, 0);
        if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    } while (status == DTL_SUCCESS);
    fails(status);
    status = dtl_win_rget(win, got, CELLS, DTL_DTYPE_INT64, VICTIM, 0, &request);
    if (status == DTL_SUCCESS) status = dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
    fails(status);
    status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0);
    if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    fails(status);
    status = dtl_win_unlock(win, VICTIM);
    if (status != DTL_SUCCESS) fails(status);
    fails(dtl_win_lock(win, DTL_LOCK_SHARED, VICTIM));
    /* The lock that the victim held is free, and the living reach each other. */
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    CHECK_OK(dtl_win_fetch_op(win, &value, got, DTL_DTYPE_INT64, 0, 7, DTL_OP_SUM));
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, other));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, other, (uint64_t)me));
    CHECK_OK(dtl_win_unlock(win, other));
    fails(dtl_win_fence(win));
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, other, 3));
    CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, other, 3, NULL));
    CHECK(base[other] == other);
    if (me == 0) CHECK(base[7] == 2); /* 0 + 2 */
    CHECK_OK(dtl_win_destroy(win)); /* without the dead */
    printf("rank %d is well\n", me);
}

static int be_a_rank(void) {
    int64_t *base = NULL;
    dtl_comm_t comm;
    dtl_win_t win;
    kind = "shm";
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &ranks));
    CHECK(ranks == 3);
    comm = open_with(MILLISECONDS(20000));
    CHECK_OK(dtl_win_allocate(comm, CELLS * 8, 8, (void **)&base, &win));
    if (me == VICTIM) be_the_victim(comm, win);
    see_it_die(comm, win, base);
    return 0;
}

int main(int argc, char **argv) {
    char command[1024], output[8192];
    size_t got;
    FILE *pipe;
    int status;
    if (argc > 1) return be_a_rank();
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not say where dtlrun is");
    snprintf(command, sizeof command, "'%s' -n 3 --on-failure=continue '%s' rank 2>&1", getenv("DTL_TEST_DTLRUN"), argv[0]);
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    status = pclose(pipe);
    if (strstr(output, "rank 0 is well") == NULL || strstr(output, "rank 2 is well") == NULL) {
        fprintf(stderr, "%s\n", output);
        return 1;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    return 0;
}
