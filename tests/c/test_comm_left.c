/* A rank destroys its handle of a communicator that was made from another, and nothing has failed. What the others
 * still need of it there ends with DTL_ERROR_RANK_FAILURE, and a shrink leaves it out. */
#include "comm_kinds.h"
#include <pthread.h>

enum { GONE = 1, LARGE = 100000 };
static dtl_comm_t comm;
static int64_t from[LARGE], into[LARGE];

typedef enum { DUP, SPLIT, GROUP, SHRUNK, HOWS } how_t;

static dtl_comm_t make(how_t how) {
    dtl_comm_t made = DTL_COMM_NULL, old;
    int32_t all[10], i;
    for (i = 0; i < ranks; i++) all[i] = (i + 1) % ranks;
    if (how == DUP) CHECK_OK(dtl_comm_dup(comm, &made));
    if (how == SPLIT) CHECK_OK(dtl_comm_split(comm, 0, -me, &made));
    if (how == GROUP) CHECK_OK(dtl_comm_group_create(comm, all, (uint64_t)ranks, &made));
    if (how == SHRUNK) {
        CHECK_OK(dtl_comm_dup(comm, &old));
        CHECK_OK(dtl_comm_shrink(old, &made));
        CHECK_OK(dtl_comm_destroy(old));
    }
    return made;
}

/* Of the rank that leaves. */
static int32_t gone_in(how_t how) {
    if (how == SPLIT) return ranks - 1 - GONE;
    return how == GROUP ? GONE - 1 : GONE;
}

static int32_t failed_in(dtl_comm_t of) {
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    CHECK_OK(dtl_comm_info(of, &info));
    return info.failed_count;
}

typedef void test_t(dtl_comm_t of, int32_t gone);

static void call_barrier(dtl_comm_t of, int32_t gone) {
    (void)gone;
    CHECK_STATUS(dtl_comm_barrier(of), DTL_ERROR_RANK_FAILURE);
    CHECK_TEXT("dtl_comm_shrink leaves");
}

/* By messages. */
static void call_allreduce(dtl_comm_t of, int32_t gone) {
    (void)gone;
    CHECK_STATUS(dtl_comm_allreduce(of, from, into, LARGE, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_RANK_FAILURE);
}

static void call_ibarrier(dtl_comm_t of, int32_t gone) {
    dtl_request_t request;
    (void)gone;
    CHECK_OK(dtl_comm_ibarrier(of, &request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
}

static void call_iallreduce(dtl_comm_t of, int32_t gone) {
    dtl_request_t request;
    (void)gone;
    CHECK_OK(dtl_comm_iallreduce(of, from, into, LARGE, DTL_DTYPE_INT64, DTL_OP_SUM, &request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
}

static void call_dup(dtl_comm_t of, int32_t gone) {
    dtl_comm_t copy;
    (void)gone;
    CHECK_STATUS(dtl_comm_dup(of, &copy), DTL_ERROR_RANK_FAILURE);
}

static void call_window(dtl_comm_t of, int32_t gone) {
    dtl_win_t window;
    void *memory;
    (void)gone;
    CHECK_STATUS(dtl_win_allocate(of, 64, 1, &memory, &window), DTL_ERROR_RANK_FAILURE);
}

static void call_recv(dtl_comm_t of, int32_t gone) {
    CHECK_STATUS(dtl_comm_recv(of, into, 1, DTL_DTYPE_INT64, gone, 3, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_STATUS(dtl_comm_probe(of, gone, 3, NULL), DTL_ERROR_RANK_FAILURE);
}

static void call_ssend(dtl_comm_t of, int32_t gone) {
    CHECK_STATUS(dtl_comm_ssend(of, from, 1, DTL_DTYPE_INT64, gone, 3), DTL_ERROR_RANK_FAILURE);
    CHECK_STATUS(dtl_comm_ssend(of, from, LARGE, DTL_DTYPE_INT64, gone, 3), DTL_ERROR_RANK_FAILURE);
}

static void call_requests(dtl_comm_t of, int32_t gone) {
    dtl_request_t requests[2], again;
    uint64_t index = 9;
    CHECK_OK(dtl_comm_irecv(of, into, 1, DTL_DTYPE_INT64, gone, 3, &requests[0]));
    CHECK_STATUS(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_irecv(of, into, 1, DTL_DTYPE_INT64, gone, 3, &requests[0]));
    CHECK_OK(dtl_comm_issend(of, from, 1, DTL_DTYPE_INT64, gone, 3, &requests[1]));
    CHECK_STATUS(dtl_request_wait_any(requests, 2, DTL_TIMEOUT_INFINITE, &index, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK(index < 2 && requests[index].id == 0);
    CHECK_STATUS(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_recv_init(of, into, 1, DTL_DTYPE_INT64, gone, 3, &again));
    CHECK_OK(dtl_request_start(again));
    CHECK_STATUS(dtl_request_wait(again, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_request_start(again)); /* it rested */
    CHECK_STATUS(dtl_request_wait(again, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_request_destroy(again));
}

static void call_shrink(dtl_comm_t of, int32_t gone) {
    dtl_comm_t left;
    int32_t size, one = 1, sum = 0;
    (void)gone;
    CHECK_OK(dtl_comm_shrink(of, &left));
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == ranks - 1);
    CHECK_OK(dtl_comm_allreduce(left, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(sum == size);
    CHECK_OK(dtl_comm_destroy(left));
}

/* `is_first`: the rank leaves before the others call something; else perhaps meanwhile. */
static void run(how_t how, int is_first, test_t *test) {
    dtl_comm_t made = make(how);
    if (me == GONE) CHECK_OK(dtl_comm_destroy(made));
    if (is_first) CHECK_OK(dtl_comm_barrier(comm));
    if (me != GONE) {
        test(made, gone_in(how));
        CHECK(failed_in(made) == 1);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me != GONE) CHECK_OK(dtl_comm_destroy(made));
}

static void test_needed(void) {
    static test_t *const tests[] = {call_barrier, call_allreduce, call_ibarrier, call_iallreduce, call_dup, call_window,
        call_recv, call_ssend, call_requests, call_shrink};
    size_t i;
    int how;
    for (i = 0; i < sizeof tests / sizeof *tests; i++) {
        for (how = 0; how < HOWS; how++) {
            run((how_t)how, 1, tests[i]);
            run((how_t)how, 0, tests[i]);
        }
    }
}

/* What a rank has done before it leaves counts: its part of collectives, and messages of all lengths. */
static void test_done_before(void) {
    int32_t round, i, root;
    for (round = 0; round < 50; round++) {
        dtl_comm_t made = make(round % 2 ? DUP : SHRUNK);
        CHECK_OK(dtl_comm_barrier(made));
        CHECK_OK(dtl_comm_allreduce(made, from, into, round % 3 ? 1 : LARGE, DTL_DTYPE_INT64, DTL_OP_SUM));
        for (root = 0; root < ranks; root++) CHECK_OK(dtl_comm_bcast(made, into, round % 3 ? LARGE : 1, DTL_DTYPE_INT64, root));
        if (me == GONE) {
            for (i = 0; i < 20; i++) CHECK_OK(dtl_comm_send(made, from, 1 + 40 * (uint64_t)i, DTL_DTYPE_INT64, 0, i));
            CHECK_OK(dtl_comm_destroy(made));
        }
        if (me == 0) {
            for (i = 0; i < 20; i++) CHECK_OK(dtl_comm_recv(made, into, LARGE, DTL_DTYPE_INT64, GONE, i, NULL));
            CHECK_STATUS(dtl_comm_recv(made, into, LARGE, DTL_DTYPE_INT64, GONE, 0, NULL), DTL_ERROR_RANK_FAILURE);
        }
        if (me != GONE) CHECK_OK(dtl_comm_destroy(made));
    }
}

/* A rank that has shrunk a communicator may destroy it before the others call dtl_comm_shrink. */
static void test_shrunk_before(void) {
    int round;
    for (round = 0; round < 20; round++) {
        dtl_comm_t made = make(DUP), left;
        int32_t size;
        if (round % 2) usleep((useconds_t)(me * 3000));
        CHECK_OK(dtl_comm_shrink(made, &left));
        CHECK_OK(dtl_comm_destroy(made));
        CHECK_OK(dtl_comm_size(left, &size));
        CHECK(size == ranks);
        CHECK_OK(dtl_comm_destroy(left));
    }
}

/* Those that go on wait for each other. */
static void test_others_go_on(void) {
    dtl_comm_t made = make(DUP);
    const int32_t last = ranks - 1;
    int64_t got = 0;
    if (me == GONE) CHECK_OK(dtl_comm_destroy(made));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == last) CHECK_OK(dtl_comm_send(made, from, 1, DTL_DTYPE_INT64, 0, 5));
    if (me == 0) CHECK_OK(dtl_comm_recv(made, &got, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 5, NULL));
    if (me != GONE) CHECK_OK(dtl_comm_destroy(made));
    CHECK_OK(dtl_comm_barrier(comm));
}

static dtl_comm_t between[2], copies[2];

static void *leave_copy(void *nothing) {
    CHECK_OK(dtl_comm_dup(between[GONE], &copies[GONE]));
    CHECK_OK(dtl_comm_destroy(copies[GONE]));
    return nothing;
}

/* Ranks that are threads: one waits, perhaps asleep, while the other leaves. */
static void test_threads(void) {
    int round;
    CHECK_OK(dtl_comm_threads(2, DTL_TIMEOUT_INFINITE, between));
    for (round = 0; round < 20; round++) {
        pthread_t other;
        CHECK(pthread_create(&other, NULL, leave_copy, NULL) == 0);
        CHECK_OK(dtl_comm_dup(between[0], &copies[0]));
        if (round % 3 == 0) CHECK_STATUS(dtl_comm_barrier(copies[0]), DTL_ERROR_RANK_FAILURE);
        if (round % 3 == 1) CHECK_STATUS(dtl_comm_ssend(copies[0], from, 1, DTL_DTYPE_INT64, GONE, 1), DTL_ERROR_RANK_FAILURE);
        if (round % 3 == 2) CHECK_STATUS(dtl_comm_allreduce(copies[0], from, into, LARGE, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_RANK_FAILURE);
        CHECK(pthread_join(other, NULL) == 0);
        CHECK_OK(dtl_comm_destroy(copies[0]));
    }
    CHECK_OK(dtl_comm_destroy(between[0]));
    CHECK_OK(dtl_comm_destroy(between[1]));
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    CHECK(ranks >= 3 && ranks < 10);
    test_needed();
    test_done_before();
    test_shrunk_before();
    test_others_go_on();
    if (me == 0) test_threads();
    CHECK(failed_in(comm) == 0);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
