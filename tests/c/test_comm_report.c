/* Ranks that are not in the same collective: each failure names who is where, on every rank, soon. */
#include "comm_kinds.h"
#include <pthread.h>
#include <signal.h>

static dtl_comm_t meet;
static uint64_t limit;
static char report[8192];
static sigset_t done;

/* Whether this rank's text of the current case had everything in it. */
static int32_t fits = 1;

/* One case: rank 1 (or the last) does something else than the others. */
static void expect(const char *name, dtl_status_t status, const char *ours, const char *theirs) {
    const char *const text = dtl_last_error();
    if (status != DTL_ERROR_TIMEOUT && status != DTL_ERROR_INVALID_ARGUMENT) {
        fprintf(stderr, "%s, rank %d: %s: %s\n", name, me, dtl_status_name(status), text);
        exit(1);
    }
    /* It may have failed first and be on its way to the next call. */
    fits = strstr(text, ours) != NULL && strstr(text, theirs) != NULL &&
           (strstr(text, "rank 1 is in") != NULL || strstr(text, "last heard of in") != NULL || ranks == 2);
    if (!fits) printf("%s, rank %d: \"%s\" and \"%s\" are not both in: %s\n", name, me, ours, theirs, text);
}

/* A rank answers only while it has a processor: on a busy machine a case is repeated, by all ranks, until the
 * texts of all are complete. Never complete is a failure. */
static int is_complete(void) {
    static int tries;
    int32_t all = 0;
    CHECK_OK(dtl_comm_allreduce(meet, &fits, &all, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
    fits = 1;
    tries = all ? 0 : tries + 1;
    CHECK(tries < 20);
    return all;
}

/* All but the odd rank say so to rank 0, which then releases the odd one. */
static void release_odd(dtl_comm_t comm, int64_t *value) {
    int rank;
    for (rank = 2; me == 0 && rank < ranks; rank++) CHECK_OK(dtl_comm_recv(meet, value, 1, DTL_DTYPE_INT64, rank, 98, NULL));
    if (me == 0) CHECK_OK(dtl_comm_send(comm, value, 1, DTL_DTYPE_INT64, 1, 99));
    else CHECK_OK(dtl_comm_send(meet, value, 1, DTL_DTYPE_INT64, 0, 98));
}

/* A dtype whose number is another one on each rank, where that number is another dtype's on the next. */
static dtl_dtype_t make_pair(uint64_t size) {
    dtl_dtype_t dtype, pair = 0;
    int i;
    for (i = 0; i <= ranks; i++) CHECK_OK(dtl_dtype_create(i == me ? size : 3, i == me ? "pair" : "another", i == me ? &pair : &dtype));
    return pair;
}

static void mismatch(const char *what, uint64_t timeout_ns) {
    int64_t in[8] = {0}, out[8 * 8];
    const int odd = me == 1;
    dtl_comm_t comm;
    dtl_status_t status;
    CHECK_OK(dtl_comm_barrier(meet));
    comm = open_with(timeout_ns);
    CHECK_OK(dtl_comm_barrier(meet));
    if (strcmp(what, "collective") == 0) {
        if (odd) status = dtl_comm_bcast(comm, in, 8, DTL_DTYPE_INT64, 0);
        else status = dtl_comm_allreduce(comm, in, out, 8, DTL_DTYPE_INT64, DTL_OP_SUM);
        expect(what, status, "allreduce #0 (count 8, INT64, SUM)", "bcast #0 (count 8, INT64, root 0)");
    } else if (strcmp(what, "root") == 0) {
        status = dtl_comm_gather(comm, in, 2, out, DTL_DTYPE_INT64, odd ? 1 : 0);
        /* Who is no root has sent its part and may have gone on: it fails in its next collective. */
        if (me > 1 && status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
        expect(what, status, "root 0", "root 1");
    } else if (strcmp(what, "count") == 0) {
        status = dtl_comm_allreduce(comm, in, out, odd ? 5 : 4, DTL_DTYPE_INT64, DTL_OP_SUM);
        expect(what, status, "count 4", "count 5");
    } else if (strcmp(what, "dtype") == 0) {
        status = dtl_comm_allreduce(comm, in, out, 4, odd ? DTL_DTYPE_UINT64 : DTL_DTYPE_INT64, DTL_OP_MAX);
        expect(what, status, "(count 4, INT64, MAX)", "(count 4, UINT64, MAX)");
    } else if (strcmp(what, "operation") == 0) {
        status = dtl_comm_allreduce(comm, in, out, 4, DTL_DTYPE_INT64, odd ? DTL_OP_MIN : DTL_OP_MAX);
        expect(what, status, "MIN", "MAX");
    } else if (strcmp(what, "own dtype") == 0) {
        status = dtl_comm_bcast(comm, in, 2, make_pair(odd ? 12 : 8), 0);
        if (status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
        expect(what, status, "pair", odd ? "user-defined dtype of 8 bytes" : "user-defined dtype of 12 bytes");
        CHECK(strstr(dtl_last_error(), "another") == strstr(dtl_last_error(), "another collective"));
    } else { /* one is missing: it waits for another message meanwhile, so it answers */
        if (odd) {
            dtl_request_t request;
            CHECK_OK(dtl_comm_irecv(comm, in, 1, DTL_DTYPE_INT64, 0, 99, &request));
            CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        } else {
            status = dtl_comm_barrier(comm);
            expect(what, status, "barrier #0", "recv (count 1, INT64, from rank 0, tag 99)");
            release_odd(comm, in);
        }
    }
    CHECK_OK(dtl_comm_barrier(meet));
    if (strcmp(what, "missing") != 0) CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_comm_barrier(meet));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Waits as long as a wait does here; on a busy machine, where a rank may be silent so long, some times more. */
static dtl_status_t wait_told(dtl_request_t request, const char *theirs) {
    dtl_status_t status = DTL_ERROR_TIMEOUT;
    int i;
    for (i = 0; i < 8 && status == DTL_ERROR_TIMEOUT; i++) {
        status = dtl_request_wait(request, limit, NULL);
        if (strstr(dtl_last_error(), theirs) != NULL) break;
    }
    return status;
}

/* The same of requests: with a large one nothing is known before the time limit, a small one may fail at once. */
static void immediate(const char *name, uint64_t count, const char *ours, const char *theirs) {
    static int64_t in[512], out[512];
    dtl_comm_t comm;
    dtl_request_t request;
    dtl_status_t status;
    CHECK_OK(dtl_comm_barrier(meet));
    comm = open_with(MILLISECONDS(60000));
    CHECK_OK(dtl_comm_barrier(meet));
    if (me == 1) status = dtl_comm_ibcast(comm, in, count, DTL_DTYPE_INT64, 0, &request);
    else status = dtl_comm_iallreduce(comm, in, out, count, DTL_DTYPE_INT64, DTL_OP_SUM, &request);
    if (status == DTL_SUCCESS) status = wait_told(request, theirs);
    expect(name, status, ours, theirs);
    CHECK_OK(dtl_comm_barrier(meet));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Many in flight, one of which is another one on rank 1: that one is named. */
static void one_of_many(void) {
    enum { MANY = 30, ODD = 5 };
    int64_t in = 1, out[MANY];
    dtl_request_t requests[MANY];
    dtl_comm_t comm;
    dtl_status_t status = DTL_SUCCESS;
    int i;
    CHECK_OK(dtl_comm_barrier(meet));
    comm = open_with(MILLISECONDS(60000));
    CHECK_OK(dtl_comm_barrier(meet));
    for (i = 0; i < MANY && status == DTL_SUCCESS; i++) {
        if (me == 1 && i == ODD) status = dtl_comm_ibarrier(comm, &requests[i]);
        else status = dtl_comm_iallreduce(comm, &in, &out[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &requests[i]);
    }
    if (status == DTL_SUCCESS) status = dtl_request_wait_all(requests, MANY, limit, NULL);
    expect("one of many", status, "allreduce #5 (count 1, INT64, SUM)", "barrier #5");
    CHECK_OK(dtl_comm_barrier(meet));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* The root of a bcast gives more than the others, goes on at once, and is in another one when they see it. */
static void sizes_of_a_bcast(void) {
    static int64_t in[512];
    dtl_comm_t comm;
    dtl_status_t status;
    CHECK_OK(dtl_comm_barrier(meet));
    comm = open_with(limit);
    CHECK_OK(dtl_comm_barrier(meet));
    status = dtl_comm_bcast(comm, in, me == 1 ? 400 : 8, DTL_DTYPE_INT64, 1);
    if (status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
    expect("sizes", status, "bcast #0 (count 400, INT64, root 1)", "bcast #0 (count 8, INT64, root 1)");
    CHECK_OK(dtl_comm_barrier(meet));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* On a busy machine others may be silent, too, or this one has had no time to look. */
static void check_silent(void) {
    const char *const text = dtl_last_error();
    if (strstr(text, "rank 1 is silent") == NULL && strstr(text, " are silent") == NULL) fits = 0;
    if (!fits) printf("silent, rank %d: %s\n", me, text);
}

/* A rank that is not in the library at all is said to be silent, with what it did last. It stays away until
 * all others have seen that; no call ends before its limit. */
static void test_silent(void) {
    dtl_comm_t comm;
    dtl_win_t win;
    dtl_request_t request;
    int64_t process = getpid();
    union sigval none = {0};
    uint64_t began, least;
    int i, number;
    CHECK_OK(dtl_comm_barrier(meet));
    comm = open_with(limit);
    CHECK_OK(dtl_win_create(comm, NULL, 0, 1, &win));
    CHECK_OK(dtl_comm_bcast(meet, &process, 1, DTL_DTYPE_INT64, 1));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 1) {
        for (i = 1; i < ranks; i++) CHECK(sigwait(&done, &number) == 0);
    } else {
        began = now_ms();
        CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_TIMEOUT);
        check_silent();
        least = now_ms() - began;
        CHECK_OK(dtl_comm_ibarrier(comm, &request));
        began = now_ms();
        CHECK_STATUS(dtl_request_wait(request, limit, NULL), DTL_ERROR_TIMEOUT);
        check_silent();
        if (now_ms() - began < least) least = now_ms() - began;
        began = now_ms();
        CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_TIMEOUT);
        check_silent();
        if (now_ms() - began < least) least = now_ms() - began;
        CHECK(least >= limit / 1000000 - 1);
        CHECK(sigqueue((pid_t)process, SIGRTMIN, none) == 0);
    }
    CHECK_OK(dtl_comm_barrier(meet));
    DTL_IGNORE(dtl_win_destroy(win)); /* rank 1 may wait in vain for those whose fence has failed */
    CHECK_OK(dtl_comm_barrier(meet));
    CHECK_OK(dtl_comm_destroy(comm));
}

static void *look(void *comm) {
    uint64_t length = 0;
    do {
        usleep(200000);
        CHECK_OK(dtl_comm_dump(*(dtl_comm_t *)comm, report, sizeof report, &length));
        CHECK(length == strlen(report));
    } while (strstr(report, "rank 1 is in recv (") == NULL || (strstr(report, "in barrier #0") == NULL && ranks > 2));
    return NULL;
}

/* On request, from another thread, while everybody waits. */
static void test_dump(void) {
    int32_t value = 1, got;
    dtl_comm_t comm;
    pthread_t watchdog;
    CHECK_OK(dtl_comm_dup(meet, &comm));
    if (me == 0) CHECK(pthread_create(&watchdog, NULL, look, &comm) == 0);
    if (me == 1) {
        CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, 0, 7, NULL));
        CHECK_OK(dtl_comm_barrier(comm));
    } else if (me == 0) {
        CHECK(pthread_join(watchdog, NULL) == 0);
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 1, 7));
        CHECK(strstr(report, "rank 1 is in recv (count 1, INT32, from rank 0, tag 7)") != NULL);
        CHECK(strstr(report, "in barrier #0") != NULL || ranks == 2);
        CHECK(strstr(report, "last operations") != NULL);
        CHECK_STATUS(dtl_comm_dump(comm, report, 5, NULL), DTL_ERROR_BUFFER_TOO_SMALL);
        CHECK_OK(dtl_comm_barrier(comm));
    } else {
        CHECK_OK(dtl_comm_barrier(comm));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* What cannot be begun is over. */
static void test_not_begun(void) {
    dtl_comm_t comm;
    int32_t value = 1, got;
    uint64_t length;
    if (strcmp(kind, "mail") != 0) return;
    CHECK_OK(dtl_comm_dup(meet, &comm));
    mail_fails = me == 0;
    if (me == 0) {
        CHECK_STATUS(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, 1, 7, NULL), DTL_ERROR_BACKEND);
        CHECK_STATUS(dtl_comm_sendrecv(comm, &value, 1, 1, 7, &got, 1, 1, 7, DTL_DTYPE_INT32, NULL), DTL_ERROR_BACKEND);
        mail_fails = 0;
        CHECK_OK(dtl_comm_dump(comm, report, sizeof report, &length));
        CHECK(strstr(report, " recv (count 1, INT32, from rank 1, tag 7)") != NULL && strstr(report, " sendrecv (") != NULL);
        CHECK(strstr(report, "*recv") == NULL && strstr(report, "*sendrecv") == NULL);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

int main(int argc, char **argv) {
    static const char *const all[] = {"collective", "root", "count", "dtype", "operation", "own dtype", "missing"};
    size_t i;
    /* Before there are other threads: only sigwait takes it. */
    sigemptyset(&done);
    sigaddset(&done, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &done, NULL) == 0);
    start(argc, argv);
    if (ranks < 2) SKIP("it needs two ranks");
    meet = open_comm();
    limit = MILLISECONDS(limit_here(meet, 600));
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        do mismatch(all[i], limit); while (!is_complete());
    }
    /* Without a limit the ranks ask each other after a second. */
    do mismatch("collective", DTL_TIMEOUT_INFINITE); while (!is_complete());
    do mismatch("root", DTL_TIMEOUT_INFINITE); while (!is_complete());
    do immediate("large requests", 512, "allreduce #0 (count 512, INT64, SUM)", "bcast #0 (count 512, INT64, root 0)");
    while (!is_complete());
    do immediate("small requests", 8, "allreduce #0 (count 8, INT64, SUM)", "bcast #0 (count 8, INT64, root 0)");
    while (!is_complete());
    do one_of_many(); while (!is_complete());
    do sizes_of_a_bcast(); while (!is_complete());
    do test_silent(); while (!is_complete());
    test_dump();
    CHECK_OK(dtl_comm_barrier(meet));
    test_not_begun();
    CHECK_OK(dtl_comm_destroy(meet));
    finish();
    return 0;
}
