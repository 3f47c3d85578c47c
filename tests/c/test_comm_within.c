/* What a reduction operation of the program's own may do while the library calls it in dtl_request_wait or dtl_request_test:
 * other objects are used and destroyed, by it or by a thread that it waits for. What is in the way of itself is
 * DTL_ERROR_BUSY: its own request, its own communicator.
 *
 *     program shm (under dtlrun) | mail RANKS */
#include "comm_kinds.h"
#include <pthread.h>
#include <semaphore.h>

enum { COUNT = 1000, GO = 7 };

static dtl_comm_t comm;
static dtl_reduce_op_t sum_op;
static dtl_request_t request;
/* What the operation does at its first call under a request. */
static void (*act)(void);
static int is_armed, has_acted;
static dtl_comm_t subject;
static sem_t is_wanted, is_done;

static void add(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    const int32_t *from = (const int32_t *)in;
    int32_t *into = (int32_t *)inout;
    uint64_t i;
    (void)dtype, (void)user;
    for (i = 0; i < count; i++) into[i] += from[i];
    if (is_armed && !has_acted) {
        has_acted = 1;
        act();
    }
}

/* Destroys a communicator and a window that have nothing to do with the collective. */
static void destroy_others(void) {
    dtl_comm_t copy;
    dtl_win_t window;
    void *memory;
    CHECK_OK(dtl_comm_dup(DTL_COMM_SELF, &copy));
    CHECK_OK(dtl_comm_barrier(copy));
    CHECK_OK(dtl_win_allocate(copy, 100, 1, &memory, &window));
    CHECK_OK(dtl_win_destroy(window));
    CHECK_OK(dtl_comm_destroy(copy));
}

static void *help(void *unused) {
    (void)unused;
    CHECK(sem_wait(&is_wanted) == 0);
    destroy_others();
    CHECK(sem_post(&is_done) == 0);
    return NULL;
}

static void wait_for_helper(void) {
    CHECK(sem_post(&is_wanted) == 0);
    CHECK(sem_wait(&is_done) == 0);
}

static void is_refused(dtl_status_t got) {
    CHECK_STATUS(got, DTL_ERROR_BUSY);
    CHECK_TEXT("further up this thread");
}

static void destroy_own(void) { is_refused(dtl_comm_destroy(subject)); }

static void end_own_request(void) {
    dtl_request_t list[1];
    uint64_t index = 0;
    int32_t done = 1;
    list[0] = request;
    CHECK_OK(dtl_request_test(request, &done, NULL));
    CHECK(done == 0);
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_request_wait_any(list, 1, DTL_TIMEOUT_INFINITE, &index, NULL), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_request_cancel(request), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_request_destroy(request), DTL_ERROR_BUSY);
    CHECK_TEXT("further up this thread");
}

/* Rank 0 begins, and the others when it has: so it is in a call on its request that it has something to add. */
static void within(dtl_comm_t on, void (*what)(void), int tests) {
    static int32_t ones[COUNT], sums[COUNT];
    int32_t go = 0, done = 0, i;
    act = what;
    has_acted = is_armed = 0;
    subject = on;
    for (i = 0; i < COUNT; i++) ones[i] = 1;
    if (me != 0) CHECK_OK(dtl_comm_recv(comm, &go, 1, DTL_DTYPE_INT32, 0, GO, NULL));
    CHECK_OK(dtl_comm_ireduce(on, ones, sums, COUNT, DTL_DTYPE_INT32, sum_op, 0, &request));
    is_armed = me == 0;
    for (i = 1; me == 0 && i < ranks; i++) CHECK_OK(dtl_comm_send(comm, &go, 1, DTL_DTYPE_INT32, i, GO));
    if (tests) {
        while (!done) CHECK_OK(dtl_request_test(request, &done, NULL));
    } else {
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    }
    CHECK(me != 0 || has_acted);
    for (i = 0; me == 0 && i < COUNT; i++) CHECK(sums[i] == ranks);
    is_armed = 0;
}

/* Collectives on the communicator whose collective calls the operation. None of them changes it. */
static void call_collectives(void) {
    dtl_comm_t made = DTL_COMM_NULL;
    dtl_win_t window;
    dtl_request_t started = DTL_REQUEST_NULL;
    int32_t ones[16] = {1}, sums[16] = {0};
    void *memory = NULL;
    is_refused(dtl_comm_shrink(subject, &made));
    is_refused(dtl_comm_dup(subject, &made));
    is_refused(dtl_comm_split(subject, 0, 0, &made));
    is_refused(dtl_comm_split_node(subject, 0, &made));
    is_refused(dtl_comm_group_create(subject, &me, 1, &made));
    CHECK(made.id == 0);
    is_refused(dtl_comm_barrier(subject));
    is_refused(dtl_comm_ibarrier(subject, &started));
    is_refused(dtl_comm_allreduce(subject, ones, sums, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    is_refused(dtl_comm_alltoall(subject, ones, 1, sums, DTL_DTYPE_INT32));
    is_refused(dtl_win_create(subject, sums, sizeof sums, 1, &window));
    is_refused(dtl_win_allocate(subject, 64, 1, &memory, &window));
    CHECK(started.id == 0 && memory == NULL);
    is_refused(dtl_comm_destroy(subject));
}

/* In a blocking collective, which any rank may be in first. */
static void within_blocking(dtl_comm_t on, void (*what)(void)) {
    int32_t ones[COUNT], sums[COUNT], i;
    for (i = 0; i < COUNT; i++) ones[i] = 1;
    act = what;
    subject = on;
    is_armed = 1;
    has_acted = 0;
    CHECK_OK(dtl_comm_allreduce(on, ones, sums, COUNT, DTL_DTYPE_INT32, sum_op));
    CHECK(sums[0] == ranks && sums[COUNT - 1] == ranks);
    is_armed = 0;
    CHECK_OK(dtl_comm_barrier(on));
}

static void *shrink_beside(void *unused) {
    dtl_comm_t left;
    int32_t size;
    (void)unused;
    CHECK(sem_wait(&is_wanted) == 0);
    CHECK_OK(dtl_comm_shrink(subject, &left));
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == ranks);
    CHECK_OK(dtl_comm_destroy(left));
    CHECK(sem_post(&is_done) == 0);
    return NULL;
}

/* Another thread shrinks the communicator while a collective on it is in its operation, which waits for that. The collective
 * ends in time on who has all parts, and else because of the shrink. */
static void shrunk_beside(dtl_comm_t on) {
    int32_t ones[COUNT], sums[COUNT], i;
    pthread_t helper;
    dtl_status_t got;
    for (i = 0; i < COUNT; i++) ones[i] = 1;
    act = wait_for_helper;
    subject = on;
    has_acted = 0;
    is_armed = 1;
    CHECK(pthread_create(&helper, NULL, shrink_beside, NULL) == 0);
    got = dtl_comm_allreduce(on, ones, sums, COUNT, DTL_DTYPE_INT32, sum_op);
    CHECK(got == DTL_SUCCESS || got == DTL_ERROR_RANK_FAILURE);
    is_armed = 0;
    if (!has_acted) wait_for_helper();
    CHECK(pthread_join(helper, NULL) == 0);
}

int main(int argc, char **argv) {
    dtl_comm_t copy;
    pthread_t helper;
    start(argc, argv);
    comm = open_comm();
    CHECK(ranks >= 2);
    CHECK(sem_init(&is_wanted, 0, 0) == 0 && sem_init(&is_done, 0, 0) == 0);
    CHECK_OK(dtl_op_create(add, NULL, DTL_OP_COMMUTES, "add", &sum_op));
    CHECK_OK(dtl_comm_dup(comm, &copy));
    within(copy, destroy_others, 0);
    within(copy, destroy_others, 1);
    CHECK(pthread_create(&helper, NULL, help, NULL) == 0);
    if (me != 0) CHECK(sem_post(&is_wanted) == 0);
    within(copy, wait_for_helper, 0);
    CHECK(pthread_join(helper, NULL) == 0);
    within(copy, end_own_request, 0);
    within(copy, destroy_own, 0);
    within_blocking(copy, destroy_own);
    within_blocking(copy, call_collectives);
    shrunk_beside(copy);
    CHECK_OK(dtl_comm_destroy(copy));
    CHECK_OK(dtl_op_destroy(sum_op));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
