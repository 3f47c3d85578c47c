/* Small collectives in the orders that mailboxes of a few blocks could get wrong: many at once, asked for backwards;
 * roots far ahead of the others; communicators that come and go. Results of each form: test_comm_forms. */
#include "comm_kinds.h"

enum { MANY = 40, STREAM = 300, SIZES = 7 };
static dtl_comm_t comm;
static const uint64_t sizes[SIZES] = {0, 1, 48, 256, 1024, 2047, 2049};

static void nap(void) {
    const struct timespec while_ms = {0, 3000000};
    nanosleep(&while_ms, NULL);
}

/* All are begun before any is waited for; only the last is asked after until it is over. */
static void test_backwards(dtl_comm_t of, int size) {
    dtl_request_t requests[3 * MANY];
    int64_t mine[MANY], sums[MANY], given[MANY];
    int32_t done = 0, i, rank;
    CHECK_OK(dtl_comm_rank(of, &rank));
    for (i = 0; i < MANY; i++) {
        mine[i] = 100 * i + rank, sums[i] = -1, given[i] = rank == i % size ? 7 * i : -1;
        CHECK_OK(dtl_comm_iallreduce(of, &mine[i], &sums[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[3 * i]));
        CHECK_OK(dtl_comm_ibarrier(of, &requests[3 * i + 1]));
        CHECK_OK(dtl_comm_ibcast(of, &given[i], 1, DTL_DTYPE_INT64, i % size, &requests[3 * i + 2]));
        if (i == MANY / 2 && rank == 0) nap();
    }
    while (!done) CHECK_OK(dtl_request_test(requests[3 * MANY - 1], &done, NULL));
    for (i = 3 * MANY - 2; i >= 0; i--) CHECK_OK(dtl_request_wait(requests[i], MILLISECONDS(60000), NULL));
    for (i = 0; i < MANY; i++) CHECK(sums[i] == 100 * i * size + size * (size - 1) / 2 && given[i] == 7 * i);
}

/* A blocking one while others are begun. */
static void test_in_between(void) {
    dtl_request_t requests[MANY];
    int64_t mine = me, sums[MANY], sum = 0;
    int i;
    for (i = 0; i < MANY; i++)
        CHECK_OK(dtl_comm_iallreduce(comm, &mine, &sums[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[i]));
    if (me == ranks - 1) nap();
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_MAX));
    CHECK(sum == ranks - 1);
    CHECK_OK(dtl_request_wait_all(requests, MANY, MILLISECONDS(60000), NULL));
    for (i = 0; i < MANY; i++) CHECK(sums[i] == ranks * (ranks - 1) / 2);
}

/* So many that each must not cost a sleep: a blocking one behind them, and requests that are waited for while this rank
 * waits for something else. */
static void test_many_behind(void) {
    enum { LOT = 2000 };
    static dtl_request_t requests[LOT];
    const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int32_t sent = me, got = -1, i;
    for (i = 0; i < LOT; i++) CHECK_OK(dtl_comm_ibarrier(comm, &requests[i]));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_request_wait_all(requests, LOT, DTL_TIMEOUT_INFINITE, NULL));
    for (i = 0; i < LOT; i++) CHECK_OK(dtl_comm_ibarrier(comm, &requests[i]));
    CHECK_OK(dtl_comm_sendrecv(comm, &sent, 1, right, 1, &got, 1, left, 1, DTL_DTYPE_INT32, NULL));
    CHECK(got == left);
    for (i = LOT - 1; i >= 0; i--) CHECK_OK(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, NULL));
}

/* The root of a broadcast, and who only gives to a reduction, does not wait for the others. */
static void test_streams(int root) {
    static unsigned char data[4096];
    int64_t i, sum;
    for (i = 0; i < STREAM; i++) {
        const uint64_t size = sizes[i % SIZES];
        if (me == root) fill(data, size, (int)i);
        if (me != root && i % 100 == 50 + me) nap();
        CHECK_OK(dtl_comm_bcast(comm, data, size, DTL_DTYPE_BYTE, root));
        CHECK(is_filled(data, size, (int)i));
    }
    for (i = 0; i < STREAM; i++) {
        const int64_t mine = i * (me + 1);
        if (me == root && i % 100 == 50) nap();
        CHECK_OK(dtl_comm_reduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM, root));
        CHECK(me != root || sum == i * ranks * (ranks + 1) / 2);
    }
}

/* More communicators than there are slots for mailboxes, and many that come and go while other ranks may still
 * be in the last call on an earlier one. */
static void test_come_and_go(void) {
    dtl_comm_t kept[70], half;
    int32_t i, size, rank, value;
    for (i = 0; i < 70; i++) CHECK_OK(dtl_comm_dup(comm, &kept[i]));
    for (i = 0; i < 70; i++) {
        int32_t sum = 0;
        CHECK_OK(dtl_comm_allreduce(kept[i], &i, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
        CHECK(sum == i * ranks);
    }
    for (i = 0; i < 70; i++) CHECK_OK(dtl_comm_destroy(kept[i]));
    for (i = 0; i < 120; i++) {
        const int color = (me + i) % 3 == 0 ? 1 : 0;
        CHECK_OK(dtl_comm_split(comm, color, i % 2 ? -me : me, &half));
        CHECK_OK(dtl_comm_size(half, &size));
        CHECK_OK(dtl_comm_rank(half, &rank));
        value = rank == size - 1 ? i : -1;
        CHECK_OK(dtl_comm_bcast(half, &value, 1, DTL_DTYPE_INT32, size - 1));
        CHECK(value == i);
        if (i == 77) test_backwards(half, size);
        if (i % 50 == 10 * me) nap();
        CHECK_OK(dtl_comm_destroy(half));
    }
}

/* Everybody's blocks, and sums in place, of sizes with and without mailboxes. */
static void test_sizes(void) {
    static unsigned char all[16 * 4096], mine[4096];
    static int32_t numbers[1024];
    int i, rank;
    uint64_t at;
    for (i = 0; i < SIZES; i++) {
        fill(mine, sizes[i], me);
        CHECK_OK(dtl_comm_allgather(comm, mine, sizes[i], all, DTL_DTYPE_BYTE));
        for (rank = 0; rank < ranks; rank++) CHECK(is_filled(all + (uint64_t)rank * sizes[i], sizes[i], rank));
        for (at = 0; at < 1024; at++) numbers[at] = me * 1000 + (int32_t)at;
        CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, numbers, sizes[i] / 4, DTL_DTYPE_INT32, DTL_OP_SUM));
        for (at = 0; at < sizes[i] / 4; at++)
            CHECK(numbers[at] == ranks * (ranks - 1) / 2 * 1000 + (int32_t)at * ranks);
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    test_sizes();
    test_backwards(comm, ranks);
    test_in_between();
    test_many_behind();
    test_streams(0);
    test_streams(ranks - 1);
    test_come_and_go();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
