/* Every form of every collective with results that are computed here: blocks of various sizes, in
 * place, non-blocking and several at once. Random arguments are dtl-ctk's part; this is for reading. */
#include "comm_kinds.h"

enum { MOST_RANKS = 16, ROOM = 4096 };
static dtl_comm_t comm;
static int64_t in[ROOM], out[ROOM];
static uint64_t counts[MOST_RANKS], places[MOST_RANKS];

static int64_t value(int rank, uint64_t i) { return rank * 1000 + (int64_t)i; }

static void fill_in(uint64_t count) {
    uint64_t i;
    for (i = 0; i < count; i++) in[i] = value(me, i);
    for (i = 0; i < ROOM; i++) out[i] = -1;
}

/* Rank r's block has r + 1 elements, and the last one none; blocks lie backwards with gaps of one. */
static uint64_t uneven(void) {
    uint64_t end = 0;
    int rank;
    for (rank = ranks - 1; rank >= 0; rank--) {
        counts[rank] = rank == ranks - 1 && ranks > 1 ? 0 : (uint64_t)rank + 1;
        places[rank] = end;
        end += counts[rank] + 1;
    }
    return end;
}

static void check_blocks(void) {
    uint64_t i;
    int rank;
    for (rank = 0; rank < ranks; rank++)
        for (i = 0; i < counts[rank]; i++) CHECK(out[places[rank] + i] == value(rank, i));
}

static void wait_for(dtl_request_t request) { CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL)); }

/* DTL_IN_PLACE where a call does not take it, also where nothing would be moved. */
static void test_misplaced(void) {
    int64_t b[4 * MOST_RANKS] = {0}, r[4 * MOST_RANKS];
    uint64_t counts[MOST_RANKS];
    int32_t neighbour = me, i;
    void *const x = DTL_IN_PLACE;
    dtl_request_t request;
    for (i = 0; i < ranks; i++) counts[i] = 1;
#define REFUSED(call)                                \
    do {                                             \
        CHECK_STATUS(call, DTL_ERROR_INVALID_ARGUMENT); \
        CHECK_TEXT("DTL_IN_PLACE");                  \
    } while (0)
    REFUSED(dtl_comm_send(comm, x, 1, DTL_DTYPE_INT64, me, 0));
    REFUSED(dtl_comm_recv(comm, x, 1, DTL_DTYPE_INT64, me, 0, NULL));
    REFUSED(dtl_comm_recv(comm, x, 0, DTL_DTYPE_INT64, me, 0, NULL));
    REFUSED(dtl_comm_recv_init(comm, x, 1, DTL_DTYPE_INT64, me, 0, &request));
    REFUSED(dtl_comm_sendrecv_replace(comm, x, 1, DTL_DTYPE_INT64, me, 0, me, 0, NULL));
    REFUSED(dtl_comm_bcast(comm, x, 1, DTL_DTYPE_INT64, 0));
    REFUSED(dtl_comm_ibcast(comm, x, 1, DTL_DTYPE_INT64, 0, &request));
    REFUSED(dtl_comm_allreduce(comm, b, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_allreduce(comm, x, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_scan(comm, b, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_exscan(comm, b, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_reduce(comm, b, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM, me));
    REFUSED(dtl_comm_reduce_scatter(comm, b, x, counts, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_reduce_scatter_block(comm, b, x, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    REFUSED(dtl_comm_gather(comm, b, 1, x, DTL_DTYPE_INT64, me));
    REFUSED(dtl_comm_gatherv(comm, b, 1, x, counts, NULL, DTL_DTYPE_INT64, me));
    REFUSED(dtl_comm_scatter(comm, x, 1, r, DTL_DTYPE_INT64, me));
    REFUSED(dtl_comm_scatterv(comm, x, counts, NULL, r, 1, DTL_DTYPE_INT64, me));
    REFUSED(dtl_comm_allgather(comm, b, 1, x, DTL_DTYPE_INT64));
    REFUSED(dtl_comm_allgatherv(comm, b, 1, x, counts, NULL, DTL_DTYPE_INT64));
    REFUSED(dtl_comm_alltoall(comm, b, 1, x, DTL_DTYPE_INT64));
    REFUSED(dtl_comm_alltoallv(comm, b, counts, NULL, x, counts, NULL, DTL_DTYPE_INT64));
    REFUSED(dtl_comm_neighbor_alltoallv(comm, &neighbour, 1, x, counts, NULL, &neighbour, 1, r, counts, NULL,
                                        DTL_DTYPE_INT64));
#undef REFUSED
    CHECK_STATUS(dtl_comm_reduce_scatter(comm, b, r, NULL, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("rcounts");
    /* The ranks are still in step. */
    CHECK_OK(dtl_comm_barrier(comm));
}

static void test_gatherv_scatterv(int root, int start, int in_place) {
    dtl_request_t request;
    uint64_t i;
    uneven();
    fill_in(counts[me]);
    if (in_place && me == root)
        for (i = 0; i < counts[me]; i++) out[places[me] + i] = in[i];
    {
        const void *from = in_place && me == root ? DTL_IN_PLACE : in;
        if (start) {
            CHECK_OK(dtl_comm_igatherv(comm, from, counts[me], out, counts, places, DTL_DTYPE_INT64, root, &request));
            wait_for(request);
        } else {
            CHECK_OK(dtl_comm_gatherv(comm, from, counts[me], out, counts, places, DTL_DTYPE_INT64, root));
        }
    }
    if (me == root) check_blocks();
    for (i = 0; i < ROOM; i++) in[i] = -5;
    {
        void *to = in_place && me == root ? DTL_IN_PLACE : in;
        if (start) {
            CHECK_OK(dtl_comm_iscatterv(comm, out, counts, places, to, counts[me], DTL_DTYPE_INT64, root, &request));
            wait_for(request);
        } else {
            CHECK_OK(dtl_comm_scatterv(comm, out, counts, places, to, counts[me], DTL_DTYPE_INT64, root));
        }
    }
    /* In place the root's block stays where it was. */
    for (i = 0; i < counts[me] && !(in_place && me == root); i++) CHECK(in[i] == value(me, i));
}

static void test_allgatherv(int start, int in_place) {
    dtl_request_t request;
    uint64_t i, total = 0;
    int rank;
    uneven();
    fill_in(counts[me]);
    if (in_place)
        for (i = 0; i < counts[me]; i++) out[places[me] + i] = in[i];
    if (start) {
        CHECK_OK(dtl_comm_iallgatherv(comm, in_place ? DTL_IN_PLACE : in, counts[me], out, counts, places,
            DTL_DTYPE_INT64, &request));
        wait_for(request);
    } else {
        CHECK_OK(dtl_comm_allgatherv(comm, in_place ? DTL_IN_PLACE : in, counts[me], out, counts, places,
            DTL_DTYPE_INT64));
    }
    check_blocks();
    /* Without places: one block after the other. */
    fill_in(counts[me]);
    CHECK_OK(dtl_comm_allgatherv(comm, in, counts[me], out, counts, NULL, DTL_DTYPE_INT64));
    for (rank = 0; rank < ranks; rank++)
        for (i = 0; i < counts[rank]; i++) CHECK(out[total++] == value(rank, i));
    CHECK(out[total] == -1);
}

/* Rank a sends (a + b) % 3 elements to rank b. */
static void test_alltoallv(int start, int in_place) {
    uint64_t scounts[MOST_RANKS], rcounts[MOST_RANKS], sdispls[MOST_RANKS], rdispls[MOST_RANKS];
    uint64_t send = 0, recv = 0, i;
    dtl_request_t request;
    int rank;
    fill_in(0);
    for (rank = 0; rank < ranks; rank++) {
        scounts[rank] = rcounts[rank] = (uint64_t)(me + rank) % 3;
        sdispls[rank] = send;
        rdispls[rank] = recv;
        for (i = 0; i < scounts[rank]; i++) {
            in[send + i] = me * 100 + rank * 10 + (int64_t)i;
            if (in_place) out[recv + i] = in[send + i];
        }
        send += scounts[rank];
        recv += rcounts[rank] + 1;
    }
    if (in_place && start) {
        CHECK_OK(dtl_comm_ialltoallv(comm, DTL_IN_PLACE, NULL, NULL, out, rcounts, rdispls, DTL_DTYPE_INT64, &request));
    } else if (start) {
        CHECK_OK(dtl_comm_ialltoallv(comm, in, scounts, NULL, out, rcounts, rdispls, DTL_DTYPE_INT64, &request));
    } else if (in_place) {
        CHECK_OK(dtl_comm_alltoallv(comm, DTL_IN_PLACE, NULL, NULL, out, rcounts, rdispls, DTL_DTYPE_INT64));
    } else {
        CHECK_OK(dtl_comm_alltoallv(comm, in, scounts, sdispls, out, rcounts, rdispls, DTL_DTYPE_INT64));
    }
    if (start) wait_for(request);
    for (rank = 0; rank < ranks; rank++) {
        for (i = 0; i < rcounts[rank]; i++) CHECK(out[rdispls[rank] + i] == rank * 100 + me * 10 + (int64_t)i);
        CHECK(out[rdispls[rank] + rcounts[rank]] == -1);
    }
}

/* A line of ranks with open ends: to the right and from the left, to the left and from the right. */
static void test_neighbors(int start) {
    const int32_t left = me > 0 ? me - 1 : DTL_PROC_NULL, right = me + 1 < ranks ? me + 1 : DTL_PROC_NULL;
    const int32_t dests[3] = {right, left, me}, sources[3] = {left, right, me};
    const uint64_t two[3] = {2, 2, 2};
    dtl_request_t request;
    fill_in(6);
    if (start) {
        CHECK_OK(dtl_comm_ineighbor_alltoallv(comm, dests, 3, in, two, NULL, sources, 3, out, two, NULL,
            DTL_DTYPE_INT64, &request));
        wait_for(request);
    } else {
        CHECK_OK(dtl_comm_neighbor_alltoallv(comm, dests, 3, in, two, NULL, sources, 3, out, two, NULL,
            DTL_DTYPE_INT64));
    }
    CHECK(out[0] == (me > 0 ? value(me - 1, 0) : -1) && out[1] == (me > 0 ? value(me - 1, 1) : -1));
    CHECK(out[2] == (me + 1 < ranks ? value(me + 1, 2) : -1));
    CHECK(out[4] == value(me, 4) && out[5] == value(me, 5));
}

/* The sum over ranks 0 … last - 1 of value(rank, i). */
static int64_t sum(int last, uint64_t i) {
    int64_t total = 0;
    int rank;
    for (rank = 0; rank < last; rank++) total += value(rank, i);
    return total;
}

static void test_reductions(int start, int in_place) {
    const uint64_t each = 5, all = 5 * (uint64_t)ranks;
    uint64_t i, first = 0;
    dtl_request_t request;
    const void *from = in_place ? DTL_IN_PLACE : in;
    int rank;
#define RUN(name, count)                                                                          \
    fill_in(all);                                                                                 \
    if (in_place)                                                                                 \
        for (i = 0; i < all; i++) out[i] = in[i];                                                 \
    if (start) {                                                                                  \
        CHECK_OK(dtl_comm_i##name(comm, from, out, count, DTL_DTYPE_INT64, DTL_OP_SUM, &request)); \
        wait_for(request);                                                                        \
    } else {                                                                                      \
        CHECK_OK(dtl_comm_##name(comm, from, out, count, DTL_DTYPE_INT64, DTL_OP_SUM));           \
    }
    RUN(allreduce, all)
    for (i = 0; i < all; i++) CHECK(out[i] == sum(ranks, i));
    RUN(scan, all)
    for (i = 0; i < all; i++) CHECK(out[i] == sum(me + 1, i));
    RUN(exscan, all)
    for (i = 0; i < all; i++) CHECK(out[i] == (me > 0 ? sum(me, i) : in_place ? in[i] : -1));
    RUN(reduce_scatter_block, each)
    for (i = 0; i < each; i++) CHECK(out[i] == sum(ranks, (uint64_t)me * each + i));
    for (rank = 0; rank < ranks; rank++) {
        counts[rank] = (uint64_t)(rank * 3 % 5);
        if (rank < me) first += counts[rank];
    }
    RUN(reduce_scatter, counts)
    for (i = 0; i < counts[me]; i++) CHECK(out[i] == sum(ranks, first + i));
}

/* Several collectives of one communicator in flight, waited for in another order; a message between
 * two ranks that depends on a collective that its sender has only begun. */
static void test_many_at_once(void) {
    enum { MANY = 12 };
    static int64_t mine[MANY], results[MANY];
    dtl_request_t requests[MANY];
    int64_t token = me;
    int i;
    for (i = 0; i < MANY; i++) {
        mine[i] = me + i;
        if (i % 3 == 0) {
            CHECK_OK(dtl_comm_iallreduce(comm, &mine[i], &results[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[i]));
        } else if (i % 3 == 1) {
            results[i] = me == i % ranks ? 77 + i : -1;
            CHECK_OK(dtl_comm_ibcast(comm, &results[i], 1, DTL_DTYPE_INT64, i % ranks, &requests[i]));
        } else {
            CHECK_OK(dtl_comm_ibarrier(comm, &requests[i]));
        }
    }
    if (ranks > 1) {
        /* Rank 0 finishes the collectives first and only then sends: rank 1's receive moves them on. */
        if (me == 0) {
            CHECK_OK(dtl_request_wait_all(requests, MANY, MILLISECONDS(60000), NULL));
            CHECK_OK(dtl_comm_send(comm, &token, 1, DTL_DTYPE_INT64, 1, 3));
        } else if (me == 1) {
            CHECK_OK(dtl_comm_recv(comm, &token, 1, DTL_DTYPE_INT64, 0, DTL_ANY_TAG, NULL));
            CHECK(token == 0);
        }
    }
    for (i = MANY - 1; i >= 0; i--)
        if (requests[i].id != 0) wait_for(requests[i]);
    for (i = 0; i < MANY; i++) {
        if (i % 3 == 0) CHECK(results[i] == (int64_t)ranks * (ranks - 1) / 2 + (int64_t)ranks * i);
        if (i % 3 == 1) CHECK(results[i] == 77 + i);
    }
}

static void test_bad_arguments(void) {
    uint64_t overlap[MOST_RANKS] = {0}, huge[MOST_RANKS];
    int rank;
    for (rank = 0; rank < MOST_RANKS; rank++) counts[rank] = 2, huge[rank] = UINT64_MAX;
    if (ranks > 1) {
        CHECK_STATUS(dtl_comm_allgatherv(comm, in, 2, out, counts, overlap, DTL_DTYPE_INT64), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("overlap");
        CHECK_STATUS(dtl_comm_alltoallv(comm, in, counts, NULL, out, counts, overlap, DTL_DTYPE_INT64),
            DTL_ERROR_INVALID_ARGUMENT);
        if (ranks > 2) { /* an empty block between two hides nothing */
            counts[1] = 0;
            CHECK_STATUS(dtl_comm_allgatherv(comm, in, counts[me], out, counts, overlap, DTL_DTYPE_INT64),
                DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT("overlap");
            counts[1] = 2;
        }
        if (me != 0) {
            CHECK_STATUS(dtl_comm_reduce(comm, DTL_IN_PLACE, out, 2, DTL_DTYPE_INT64, DTL_OP_SUM, 0),
                DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT("root");
            CHECK_STATUS(dtl_comm_gatherv(comm, DTL_IN_PLACE, UINT64_MAX, out, counts, NULL, DTL_DTYPE_INT8, 0),
                DTL_ERROR_INVALID_ARGUMENT);
            CHECK_TEXT("root");
        }
    }
    CHECK_STATUS(dtl_comm_allgatherv(comm, in, 2, out, huge, NULL, DTL_DTYPE_INT64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_allgatherv(comm, in, 2, out, NULL, NULL, DTL_DTYPE_INT64), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_allgatherv(comm, in, 1, out, counts, NULL, DTL_DTYPE_INT64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_alltoallv(comm, out, counts, NULL, out, counts, NULL, DTL_DTYPE_INT64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_allreduce(comm, in, in, 2, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("DTL_IN_PLACE");
    CHECK_STATUS(dtl_comm_gatherv(comm, in, 2, out, counts, NULL, DTL_DTYPE_INT64, ranks), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_scan(comm, in, out, 1, DTL_DTYPE_FLOAT64, DTL_OP_BAND), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_comm_neighbor_alltoallv(comm, NULL, UINT64_C(1) << 40, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL,
        DTL_DTYPE_INT64), DTL_ERROR_LIMIT);
    CHECK_TEXT("dest_count is 1099511627776: at most 1048576 neighbors");
    {
        const int32_t nobody[1] = {9999};
        CHECK_STATUS(dtl_comm_neighbor_alltoallv(comm, nobody, 1, in, counts, NULL, NULL, 0, NULL, NULL, NULL,
            DTL_DTYPE_INT64), DTL_ERROR_INVALID_RANK);
    }
}

int main(int argc, char **argv) {
    int start_it, in_place, root;
    start(argc, argv);
    comm = open_comm();
    for (start_it = 0; start_it < 2; start_it++) {
        for (in_place = 0; in_place < 2; in_place++) {
            for (root = 0; root < ranks; root++) test_gatherv_scatterv(root, start_it, in_place);
            test_allgatherv(start_it, in_place);
            test_alltoallv(start_it, in_place);
            test_reductions(start_it, in_place);
        }
        test_neighbors(start_it);
    }
    test_many_at_once();
    test_bad_arguments();
    test_misplaced();
    CHECK_OK(dtl_comm_barrier(comm)); /* nothing of all that has put the ranks out of step */
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
