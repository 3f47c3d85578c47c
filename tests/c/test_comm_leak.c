/* Communicators that are made, shrunk or have failed, and are destroyed leave no memory behind: as much is allocated after many as
 * after half as many. Counted by the C library. */
#include "comm_kinds.h"
#include <malloc.h>

enum { ROUNDS = 1000 };
static dtl_comm_t comm;

static int64_t heap(void) {
    const struct mallinfo2 now = mallinfo2();
    return (int64_t)(now.uordblks + now.hblkhd);
}

static void shrink_one(void) {
    dtl_comm_t copy, left;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK_OK(dtl_comm_shrink(copy, &left));
    CHECK_OK(dtl_comm_destroy(left));
    CHECK_OK(dtl_comm_destroy(copy));
}

/* All ranks give up a collective, and say so. */
static void fail_one(void) {
    dtl_comm_t copy;
    int32_t one = 1, sum;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK(dtl_comm_allreduce(copy, &one, &sum, 1, DTL_DTYPE_INT32, me == 0 ? DTL_OP_SUM : DTL_OP_MAX) != DTL_SUCCESS);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(copy));
}

/* A rank leaves, and the others have need of it. */
static void leave_one(void) {
    dtl_comm_t copy;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    if (me == 1) CHECK_OK(dtl_comm_destroy(copy));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me != 1) {
        CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_comm_destroy(copy));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

static void run(const char *name, void (*one)(void), int rounds, int most) {
    int64_t half = 0;
    int i;
    for (i = 0; i < 2 * rounds; i++) {
        if (i == rounds) half = heap();
        one();
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (heap() - half > most) {
        fprintf(stderr, "%s: %lld bytes more after %d rounds\n", name, (long long)(heap() - half), rounds);
        exit(1);
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    CHECK(ranks >= 2);
    /* A few messages may wait to be received at any time. */
    run("dup and shrink", shrink_one, ROUNDS, ROUNDS * 32);
    if (!is_mail()) {
        run("leave", leave_one, ROUNDS / 10, ROUNDS * 32);
        run("fail", fail_one, ROUNDS / 10, ROUNDS * 32);
    }
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
