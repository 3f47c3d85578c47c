/* Collectives of memory that the host cannot touch (far.h: a direct access ends the test) give what they give on the
 * host's; sends that wait for an event. */
#include "comm_kinds.h"
#include "far.h"
#include <pthread.h>

enum { COUNT = 40000, MOST = 8 };
static dtl_backend_t far_away, host_backend;
static dtl_comm_t comm;
static struct far far_self;
/* By `side`: 0 on the host, 1 far away. */
static int64_t *sent[2], *got[2];
static const uint64_t ROOM = (uint64_t)COUNT * MOST * 8;

static void fill_both(void) {
    uint64_t i;
    int64_t *back = (int64_t *)malloc(ROOM);
    CHECK(back != NULL);
    for (i = 0; i < (uint64_t)COUNT * MOST; i++) sent[0][i] = (int64_t)(i * 17 % 1001) + me * 3, got[0][i] = -(int64_t)i;
    memcpy(back, got[0], ROOM);
    CHECK_OK(dtl_mem_copy(sent[1], sent[0], ROOM));
    CHECK_OK(dtl_mem_copy(got[1], back, ROOM));
    free(back);
}

static void check_same(const char *what, int round, uint64_t elements) {
    int64_t *back = (int64_t *)malloc(ROOM);
    CHECK(back != NULL);
    CHECK_OK(dtl_mem_copy(back, got[1], ROOM));
    if (memcmp(back, got[0], elements * 8) != 0) {
        fprintf(stderr, "rank %d: %s (%d) differs\n", me, what, round);
        exit(1);
    }
    free(back);
}

#define TYPE DTL_DTYPE_INT64
#define SUM DTL_OP_SUM

/* Each on the host's memory, then far away; in some rounds only some ranks' memory is far away. */
#define BOTH(name, call) BOTH_OF((uint64_t)COUNT * MOST, name, call)
/* The same where only the first elements say something. */
#define BOTH_OF(elements, name, call)                           \
    do {                                                        \
        int side_;                                              \
        fill_both();                                            \
        for (side_ = 0; side_ < 2; side_++) {                   \
            int64_t *const s = sent[side_], *const r = got[side_]; \
            (void)s, (void)r;                                   \
            CHECK_OK(call);                                     \
        }                                                       \
        check_same(name, (int)n, elements);                            \
    } while (0)

static dtl_status_t waited(dtl_status_t begun, dtl_request_t *request) {
    return begun != DTL_SUCCESS ? begun : dtl_request_wait(*request, MILLISECONDS(60000), NULL);
}

static void test_collectives(void) {
    const uint64_t sizes[] = {3, 2000, COUNT};
    const int last = ranks - 1;
    uint64_t counts[MOST], displs[MOST];
    const void *const in_place = DTL_IN_PLACE;
    dtl_request_t q;
    int i, k;
    for (k = 0; k < 3; k++) {
        const uint64_t n = sizes[k];
        for (i = 0; i < ranks; i++) counts[i] = n - (uint64_t)(i + k) % 3, displs[i] = (uint64_t)(ranks - 1 - i) * n;
        BOTH("bcast", dtl_comm_bcast(comm, r, n, TYPE, last));
        BOTH("reduce", dtl_comm_reduce(comm, s, r, n, TYPE, SUM, last));
        BOTH("allreduce", dtl_comm_allreduce(comm, s, r, n, TYPE, SUM));
        BOTH("allreduce in place", dtl_comm_allreduce(comm, in_place, r, n, TYPE, SUM));
        BOTH("iallreduce", waited(dtl_comm_iallreduce(comm, s, r, n, TYPE, DTL_OP_MAX, &q), &q));
        BOTH("reduce_scatter_block", dtl_comm_reduce_scatter_block(comm, s, r, n, TYPE, SUM));
        BOTH_OF(n, "reduce_scatter_block in place", dtl_comm_reduce_scatter_block(comm, in_place, r, n, TYPE, SUM));
        BOTH("reduce_scatter", dtl_comm_reduce_scatter(comm, s, r, counts, TYPE, SUM));
        BOTH("scan", dtl_comm_scan(comm, s, r, n, TYPE, SUM));
        BOTH("exscan", dtl_comm_exscan(comm, s, r, n, TYPE, SUM));
        BOTH("exscan in place", dtl_comm_exscan(comm, in_place, r, n, TYPE, SUM));
        BOTH("gather", dtl_comm_gather(comm, s, n, r, TYPE, 0));
        BOTH("gather in place", dtl_comm_gather(comm, me == 0 ? in_place : (const void *)s, n, r, TYPE, 0));
        BOTH("scatter", dtl_comm_scatter(comm, s, n, r, TYPE, last));
        BOTH("allgather", dtl_comm_allgather(comm, s, n, r, TYPE));
        BOTH("allgather in place", dtl_comm_allgather(comm, in_place, n, r, TYPE));
        BOTH("alltoall", dtl_comm_alltoall(comm, s, n, r, TYPE));
        BOTH("alltoall in place", dtl_comm_alltoall(comm, in_place, n, r, TYPE));
        BOTH("gatherv", dtl_comm_gatherv(comm, s, counts[me], r, counts, displs, TYPE, last));
        BOTH("scatterv", dtl_comm_scatterv(comm, s, counts, displs, r, counts[me], TYPE, 0));
        BOTH("allgatherv", dtl_comm_allgatherv(comm, s, counts[me], r, counts, displs, TYPE));
        BOTH("iallgatherv", waited(dtl_comm_iallgatherv(comm, in_place, counts[me], r, counts, displs, TYPE, &q), &q));
        for (i = 0; i < ranks; i++) counts[i] = n - 1;
        BOTH("alltoallv", dtl_comm_alltoallv(comm, s, counts, displs, r, counts, displs, TYPE));
        BOTH("alltoallv in place", dtl_comm_alltoallv(comm, in_place, NULL, NULL, r, counts, displs, TYPE));
    }
    /* Some ranks' memory only, and each rank's sbuf or rbuf. */
    fill_both();
    CHECK_OK(dtl_comm_allreduce(comm, sent[me % 2], got[(me + 1) % 2], COUNT, TYPE, SUM));
    CHECK_OK(dtl_comm_allreduce(comm, sent[(me + 1) % 2], got[me % 2], COUNT, TYPE, SUM));
    check_same("mixed", 0, COUNT);
    CHECK_STATUS(dtl_comm_allreduce(comm, sent[1], sent[1], 4, TYPE, SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("overlap");
    CHECK_STATUS(dtl_comm_bcast(comm, got[1], ROOM, TYPE, 0), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_comm_barrier(comm));
}

/* A copy that fails before a collective begins, or when it is over: that rank hears of it, and the next one goes well. */
static void test_failing_copies(void) {
    dtl_request_t request;
    int64_t sum = 0, one = 1;
    int good;
    for (good = 0; good < 2; good++) {
        far_self.failure = DTL_ERROR_MEMORY, far_self.good_copies = good;
        CHECK_STATUS(dtl_comm_allreduce(comm, sent[1], got[1], 4, TYPE, SUM), DTL_ERROR_MEMORY);
        far_self.good_copies = good;
        CHECK_STATUS(waited(dtl_comm_iallreduce(comm, sent[1], got[1], COUNT, TYPE, SUM, &request), &request), DTL_ERROR_MEMORY);
        far_self.failure = DTL_SUCCESS;
    }
    CHECK_OK(dtl_comm_allreduce(comm, &one, &sum, 1, TYPE, SUM));
    CHECK(sum == ranks);
}

/* ---- sends that wait for an event ---- */

#ifdef __cplusplus
extern "C" {
#endif
static dtl_status_t wait_for_go(void *go) {
    const struct timespec moment = {0, 200000};
    while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE)) nanosleep(&moment, NULL);
    return DTL_SUCCESS;
}
static dtl_status_t write_seven(void *word) { return *(int64_t *)word = 7, DTL_SUCCESS; }
static dtl_status_t fail(void *unused) { return (void)unused, DTL_ERROR_OUT_OF_BOUNDS; }
#ifdef __cplusplus
}
#endif

static void let_go(int *go) { __atomic_store_n(go, 1, __ATOMIC_RELEASE); }

/* To this rank itself, or to rank 1. */
static void test_gated(void) {
    const int to = ranks > 1 ? 1 : 0;
    dtl_stream_t stream;
    dtl_event_t event, never, of_far;
    dtl_request_t send, receive;
    int64_t word = 0, into = 0;
    int go = 0, done = 1, round;
    CHECK_OK(dtl_stream_create(host_backend, 0, 0, &stream));
    CHECK_OK(dtl_event_create(host_backend, 0, &event));
    CHECK_OK(dtl_event_create(host_backend, 0, &never));
    CHECK_OK(dtl_event_create(far_away, 0, &of_far));
    CHECK_OK(dtl_mem_copy(sent[1], &word, 8));
    for (round = 0; round < 2; round++) { /* the event lives or is destroyed */
        into = 0, word = 0, go = 0;
        if (me == to) CHECK_OK(dtl_comm_irecv(comm, &into, 1, TYPE, 0, 5, &receive));
        if (me == 0) {
            CHECK_OK(dtl_stream_host_callback(stream, wait_for_go, &go));
            CHECK_OK(dtl_stream_host_callback(stream, write_seven, &word));
            CHECK_OK(dtl_event_record(event, stream));
            CHECK_OK(dtl_comm_isend_on(comm, &word, 1, TYPE, to, 5, event, &send));
            CHECK_STATUS(dtl_request_wait(send, MILLISECONDS(20), NULL), DTL_ERROR_TIMEOUT);
            CHECK_OK(dtl_request_test(send, &done, NULL));
            CHECK(!done);
            if (to == 0) CHECK_STATUS(dtl_request_wait(receive, MILLISECONDS(5), NULL), DTL_ERROR_TIMEOUT);
            if (round == 1) CHECK_OK(dtl_event_destroy(event));
            let_go(&go);
        }
        /* Who waits for the receive looks after the send. */
        if (me == to) CHECK_OK(dtl_request_wait(receive, MILLISECONDS(60000), NULL));
        if (me == to) CHECK(into == 7);
        if (me == 0) CHECK_OK(dtl_request_wait(send, MILLISECONDS(60000), NULL));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me != 0) goto end;
    /* The stream's failure is the request's; nothing is sent. */
    CHECK_OK(dtl_event_create(host_backend, 0, &event));
    CHECK_OK(dtl_stream_host_callback(stream, fail, NULL));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, event, &send));
    CHECK_STATUS(dtl_request_wait(send, MILLISECONDS(60000), NULL), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_TEXT("the event that it waits for");
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_OUT_OF_BOUNDS);
    /* Before it begins it is withdrawn by cancel, by destroy, with its communicator. */
    go = 0;
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_go, &go));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, event, &send));
    CHECK_OK(dtl_request_cancel(send));
    CHECK_STATUS(dtl_request_wait(send, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, event, &send));
    CHECK_OK(dtl_request_destroy(send));
    CHECK_STATUS(dtl_request_wait(send, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    let_go(&go);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_comm_iprobe(comm, 0, 6, &done, NULL));
    CHECK(!done);
    /* Never recorded: it begins. Far memory too, by an event of its own backend. */
    CHECK_OK(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, never, &send));
    CHECK_OK(dtl_comm_recv(comm, &into, 1, TYPE, 0, 6, NULL));
    CHECK_OK(dtl_request_wait(send, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_mem_copy(sent[1], &word, 8));
    into = 0;
    CHECK_OK(dtl_comm_isend_on(comm, sent[1], 1, TYPE, 0, 6, of_far, &send));
    CHECK_OK(dtl_comm_recv(comm, &into, 1, TYPE, 0, 6, NULL));
    CHECK(into == 7);
    CHECK_OK(dtl_request_wait(send, MILLISECONDS(60000), NULL));
    CHECK_STATUS(dtl_comm_isend_on(comm, sent[1], 1, TYPE, 0, 6, never, &send), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("of another one");
    CHECK_OK(dtl_event_destroy(event));
    CHECK_STATUS(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, event, &send), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_comm_isend_on(comm, &word, 1, TYPE, ranks, 6, never, &send), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_isend_on(comm, &word, 1, TYPE, 0, 6, never, NULL), DTL_ERROR_NULL_POINTER);
end:
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_event_destroy(never));
    CHECK_OK(dtl_event_destroy(of_far));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A communicator goes while one of its sends waits for an event. */
/* Device memory that is freed before its message begins is not read as the host's. */
static void test_freed(void) {
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_request_t send;
    void *freed;
    int go = 0;
    CHECK_OK(dtl_stream_create(far_away, 0, 0, &stream));
    CHECK_OK(dtl_event_create(far_away, 0, &event));
    CHECK_OK(dtl_mem_alloc(far_away, DTL_MEMORY_DEVICE, 64, 0, &freed));
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_go, &go));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_comm_isend_on(comm, freed, 8, TYPE, me, 6, event, &send));
    CHECK_OK(dtl_mem_free(far_away, freed));
    let_go(&go);
    CHECK_STATUS(dtl_request_wait(send, MILLISECONDS(60000), NULL), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("freed before");
    CHECK_OK(dtl_mem_alloc(far_away, DTL_MEMORY_DEVICE, 64, 0, &freed));
    CHECK_OK(dtl_comm_send_init(comm, freed, 8, TYPE, me, 6, &send));
    CHECK_OK(dtl_mem_free(far_away, freed));
    CHECK_STATUS(dtl_request_start(send), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("freed before");
    CHECK_OK(dtl_request_destroy(send));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_ended(void) {
    dtl_comm_t dup;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_request_t send;
    int64_t word = 0;
    int go = 0;
    CHECK_OK(dtl_comm_dup(comm, &dup));
    CHECK_OK(dtl_stream_create(host_backend, 0, 0, &stream));
    CHECK_OK(dtl_event_create(host_backend, 0, &event));
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_go, &go));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_comm_isend_on(dup, &word, 1, TYPE, me, 6, event, &send));
    CHECK_OK(dtl_comm_destroy(dup));
    CHECK_STATUS(dtl_request_wait(send, MILLISECONDS(60000), NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_event_destroy(event));
    let_go(&go);
    CHECK_OK(dtl_stream_destroy(stream));
}

int main(int argc, char **argv) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    start(argc, argv);
    CHECK_OK(dtl_backend_get("host", &host_backend));
    far_away = far_register("far", &far_self);
    sent[0] = (int64_t *)malloc(ROOM), got[0] = (int64_t *)malloc(ROOM);
    CHECK(sent[0] != NULL && got[0] != NULL && ranks <= MOST);
    CHECK_OK(dtl_mem_alloc(far_away, DTL_MEMORY_DEVICE, ROOM, 0, (void **)&sent[1]));
    CHECK_OK(dtl_mem_alloc(far_away, DTL_MEMORY_DEVICE, ROOM, 0, (void **)&got[1]));
    /* Over MPI without a time limit: then its own messages and collectives are used. */
    comm = strcmp(kind, "mpi") == 0 ? open_with(DTL_TIMEOUT_INFINITE) : open_comm();
    test_collectives();
    test_failing_copies();
    test_gated();
    test_freed();
    test_ended();
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_mem_free(far_away, sent[1]));
    CHECK_OK(dtl_mem_free(far_away, got[1]));
    CHECK_OK(dtl_mem_stats(far_away, &stats));
    CHECK(stats.live_count == 0);
    free(sent[0]), free(got[0]);
    CHECK_OK(dtl_backend_unregister(far_away));
    finish();
    return 0;
}
