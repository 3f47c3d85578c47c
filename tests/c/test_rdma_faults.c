/* What goes wrong in each verb, in the network and in a peer: the call that is concerned has a named status and a text, nothing
 * hangs, what has arrived is right, and the process lives and opens another communicator. Over verbs that are none, which fail
 * as DTL_FAKE_VERBS_FAULT says (tests/rdma/fake_verbs.c).
 *
 * Without arguments: the driver. With arguments (the fault, a mark): one of two ranks; faults are rank 1's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 300000, ROUNDS = 4 };
static int me;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- a rank ---- */

/* Calls that failed; changes of elements that a connection took with it when it broke, which end nothing else. */
static int failures, lost;

/* Whether a call went well; else its status is one that such a failure may have, and its text tells something. */
static int went_well(dtl_status_t status, const char *call) {
    const dtl_status_t known[] = {
        DTL_ERROR_RANK_FAILURE, DTL_ERROR_DEVICE_LOST,   DTL_ERROR_VERBS,   DTL_ERROR_UNAVAILABLE,  DTL_ERROR_OUT_OF_MEMORY,
        DTL_ERROR_COMMUNICATION, DTL_ERROR_INVALID_STATE, DTL_ERROR_TIMEOUT, DTL_ERROR_CONNECTION_LOST, DTL_ERROR_LIMIT,
    };
    size_t i;
    if (status == DTL_SUCCESS) return 1;
    if (status == DTL_ERROR_CONNECTION_LOST && strstr(dtl_last_error(), "whether it was is not known")) {
        lost++;
        return 0;
    }
    failures++;
    for (i = 0; i < sizeof known / sizeof *known; i++) {
        if (status != known[i] || strlen(dtl_last_error()) < 10) continue;
        printf("rank %d: %s: %s: %s\n", me, call, dtl_status_name(status), dtl_last_error());
        fflush(stdout);
        return 0;
    }
    fprintf(stderr, "rank %d: %s: %s is no status for that: %s\n", me, call, dtl_status_name(status), dtl_last_error());
    exit(1);
}

static void pattern(unsigned char *bytes, size_t count, int seed) {
    size_t i;
    for (i = 0; i < count; i++) bytes[i] = (unsigned char)(i * 7 + (size_t)seed);
}

static int is_pattern(const unsigned char *bytes, size_t count, int seed) {
    size_t i;
    for (i = 0; i < count; i++) {
        if (bytes[i] != (unsigned char)(i * 7 + (size_t)seed)) return 0;
    }
    return 1;
}

/* Messages of all ways to and fro, in memory that is registered and in memory that is not. */
static void exchange(dtl_comm_t comm, unsigned char *out, unsigned char *in) {
    enum { SIZES = 4 };
    const uint64_t sizes[SIZES] = {8, 1, 5000, LARGE};
    int round, i;
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < SIZES; i++) {
            pattern(out, sizes[i], me + round);
            if (!went_well(dtl_comm_sendrecv(comm, out, sizes[i], 1 - me, i, in, sizes[i], 1 - me, i, DTL_DTYPE_BYTE, NULL),
                           "sendrecv")) {
                return;
            }
            CHECK(is_pattern(in, sizes[i], 1 - me + round));
        }
    }
}

static void one_sided(dtl_comm_t comm, unsigned char *bytes) {
    unsigned char *base;
    dtl_win_t window;
    void *memory;
    if (!went_well(dtl_win_allocate(comm, LARGE, 1, &memory, &window), "win_allocate")) return;
    base = (unsigned char *)memory;
    pattern(bytes, LARGE, 40 + me);
    if (went_well(dtl_win_fence(window), "fence") &&
        went_well(dtl_win_put(window, bytes, LARGE, DTL_DTYPE_BYTE, 1 - me, 0), "put") &&
        went_well(dtl_win_fence(window), "fence")) {
        CHECK(is_pattern(base, LARGE, 41 - me));
        if (went_well(dtl_win_get(window, bytes, LARGE / 2, DTL_DTYPE_BYTE, 1 - me, LARGE / 2), "get") &&
            went_well(dtl_win_fence(window), "fence")) {
            CHECK(is_pattern(bytes, 100, 40 + me + LARGE / 2 * 7));
        }
    }
    went_well(dtl_win_destroy(window), "win_destroy");
}

/* Changes of elements by the network card, one work request each and in loops, on the other rank and on this one. */
static void change(dtl_comm_t comm) {
    enum { MANY = 100 };
    int64_t cells[4] = {0, 0, 0, 0}, old[MANY], one = 1;
    double half = 0.5, sum = 0;
    dtl_win_t window;
    int32_t all;
    int i;
    if (!went_well(dtl_win_create(comm, cells, sizeof cells, 8, &window), "win_create")) return;
    if (went_well(dtl_win_lock_all(window), "lock_all")) {
        for (i = 0; i < MANY && failures == 0; i++) {
            went_well(dtl_win_fetch_op(window, &one, &old[i], DTL_DTYPE_INT64, i % 2, 0, DTL_OP_SUM), "fetch_op");
            went_well(dtl_win_accumulate(window, &half, 1, DTL_DTYPE_FLOAT64, i % 2, 1, DTL_OP_SUM), "accumulate");
        }
        went_well(dtl_win_unlock_all(window), "unlock_all");
    }
    /* A rank may have lost the way to itself only: both go on alike. */
    all = failures;
    if (went_well(dtl_comm_allreduce(comm, DTL_IN_PLACE, &all, 1, DTL_DTYPE_INT32, DTL_OP_SUM), "allreduce") && all == 0) {
        all = lost;
        went_well(dtl_comm_allreduce(comm, DTL_IN_PLACE, &all, 1, DTL_DTYPE_INT32, DTL_OP_SUM), "allreduce");
        went_well(dtl_win_fence(window), "fence");
        memcpy(&sum, &cells[1], sizeof sum);
        /* What is lost was made once or not at all; what is not, once. */
        CHECK(cells[0] <= MANY && sum <= 0.5 * MANY && cells[2] == 0);
        if (all == 0) CHECK(cells[0] == MANY && sum == 0.5 * MANY);
        for (i = 2; i < MANY && all == 0; i++) CHECK(old[i] > old[i - 2]);
    }
    went_well(dtl_win_destroy(window), "win_destroy");
}

/* Looks for what does not come, long enough for the library to look around, and then computes. */
static void be_away(dtl_comm_t comm, unsigned ms) {
    const uint64_t end = now_ms() + 250;
    int32_t is_there;
    while (now_ms() < end) CHECK_OK(dtl_comm_iprobe(comm, 1 - me, 99, &is_there, NULL));
    CHECK(usleep(ms * 1000) == 0);
}

static int be_a_rank(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    static unsigned char plain[2][LARGE];
    unsigned char *out, *in;
    dtl_backend_t host;
    dtl_comm_t comm;
    CHECK(getenv("DTL_RANK") != NULL);
    me = atoi(getenv("DTL_RANK"));
    if (getenv("HIDDEN_FROM") != NULL && atoi(getenv("HIDDEN_FROM")) == me) setenv("DTL_FAKE_VERBS_DEVICES", "0", 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, LARGE, 0, (void **)&out));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, LARGE, 0, (void **)&in));
    desc.kind = "rdma";
    desc.timeout_ns = UINT64_C(1000000) * (getenv("LIMIT_MS") ? (uint64_t)atoi(getenv("LIMIT_MS")) : 3000);
    if (went_well(dtl_comm_open(&desc, &comm), "open")) {
        exchange(comm, out, in);
        if (getenv("AWAY_MS") != NULL) be_away(comm, (unsigned)atoi(getenv("AWAY_MS")));
        if (failures == 0) exchange(comm, plain[0], plain[1]);
        if (failures == 0) one_sided(comm, plain[0]);
        if (failures == 0) change(comm);
        if (failures == 0) exchange(comm, out, plain[0]);
        if (failures == 0) went_well(dtl_comm_barrier(comm), "barrier");
        went_well(dtl_comm_destroy(comm), "destroy");
    }
    CHECK_OK(dtl_mem_free(host, out));
    CHECK_OK(dtl_mem_free(host, in));
    /* The process is not the worse for it. */
    desc.kind = "self";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    printf("rank %d is well after %d failures, %d changes lost\n", me, failures, lost);
    return 0;
}

/* ---- the driver ---- */

/* What becomes of the ranks: everything goes well, or something fails on one of them at least, or either; rank 1 dies. A connection
 * that breaks is made anew: all goes well then, but changes of elements may be lost (MENDED) or are (LOSES). */
enum outcome { WELL, FAILS, EITHER, DIES, MENDED, LOSES };

#define BRIEF "DTL_RDMA_RECONNECT_MS=100"
static const struct {
    const char *fault;
    enum outcome outcome;
    const char *with, *says; /* variables, and what is in the output */
} cases[] = {
    {"none", WELL, NULL, NULL},
    /* opening */
    {"open_device:0@1", FAILS, NULL, NULL},
    {"query_device:0@1", FAILS, NULL, NULL},
    {"query_port:0@1", FAILS, NULL, NULL},
    {"query_port:3@1", EITHER, NULL, NULL},
    {"query_gid:1@1", EITHER, NULL, NULL},
    {"alloc_pd:1@1", FAILS, NULL, NULL},
    {"none", FAILS, "HIDDEN_FROM=1",
     "rank 0: open: DTL_ERROR_UNAVAILABLE: meeting over kind \"shm\": rank 1 could not prepare its part (DTL_ERROR_UNAVAILABLE: "
     "backend rdma cannot run here: no RDMA device"},
    /* connecting */
    {"create_cq:1@1", FAILS, NULL, NULL},
    {"create_qp:0@1", FAILS, NULL, NULL},
    {"create_qp:1@1", WELL, NULL, NULL}, /* it is made with less inline then */
    {"reg_mr:1@1", FAILS, NULL, NULL},
    {"modify_qp:1@1", FAILS, NULL, NULL},
    {"modify_qp:2@1", WELL, NULL, NULL}, /* tried again */
    {"modify_qp:3@1", FAILS, BRIEF, "(died, left or cut off): rank 0: on this rank: fake"},
    {"post_recv:3@1", FAILS, NULL, NULL},
    {"none", FAILS, "DTL_FAKE_VERBS_MEMLOCK=100000", "(ulimit -l); these are the slots of one peer: fewer with a lower DTL_RDMA_DEPTH"},
    /* messages */
    {"reg_mr:2@1", WELL, NULL, NULL}, /* what cannot be registered goes through slots */
    {"post_recv:30@1", FAILS, NULL, "rank 1: it has given up the connection to this rank; it says: on this rank: fake"},
    {"post_send:1@1", FAILS, NULL, NULL},
    {"post_send:12@1", FAILS, NULL, NULL},
    {"post_send:12:12@1", EITHER, NULL, NULL}, /* ENOMEM: no room now */
    {"poll_cq:50@1", FAILS, NULL, NULL},
    {"send:3@1", WELL, NULL, NULL},
    {"send:9:RETRY_EXC_ERR@1", WELL, NULL, NULL},
    {"send:9:RNR_RETRY_EXC_ERR@0", WELL, NULL, NULL},
    {"write:1@1", WELL, NULL, NULL},
    {"write:2:REM_ACCESS_ERR@1", FAILS, NULL, NULL},
    {"recv:7@1", WELL, NULL, NULL},
    {"recv:20:LOC_LEN_ERR@0", FAILS, NULL, NULL},
    {"read:1@1", WELL, NULL, NULL},
    {"atomic:1@1", LOSES, NULL, NULL},
    {"atomic:2:REM_ACCESS_ERR@0", FAILS, NULL, NULL},
    {"atomic:90@1", LOSES, NULL, NULL},
    {"atomic:90:RETRY_EXC_ERR@0", LOSES, NULL, NULL},
    /* the network, the device, the peer */
    {"cut:5@1", FAILS, BRIEF, NULL},
    {"cut:30@1", FAILS, BRIEF, NULL},
    {"port_down:20@1", FAILS, BRIEF, NULL},
    {"device_fatal:25@1", FAILS, NULL, NULL},
    {"qp_fatal:10@1", WELL, NULL, NULL},
    {"stuck:6@1;stuck:11@1;stuck:18@1;stuck:24@1;stuck:30@1", WELL, "DTL_RDMA_RECONNECT_MS=0", NULL},
    {"stuck:6@1;stuck:11@1;stuck:12@1;stuck:18@1", WELL, "DTL_RDMA_COMPLETION=event DTL_RDMA_RECONNECT_MS=0", NULL},
    {"stuck:6@1;stuck:7@1", WELL, "DTL_RDMA_RECONNECT_MS=0", NULL}, /* so is the request that is to wake it */
    {"stuck:20:1@1", WELL, "DTL_RDMA_TIMEOUT=10 DTL_RDMA_RETRIES=1 DTL_LOG=warning", "neither done nor given up anything for 1033 ms"},
    {"stuck:20:1@1", FAILS, "DTL_RDMA_TIMEOUT=10 DTL_RDMA_RETRIES=1 DTL_RDMA_RECONNECT_MS=0", "neither done nor given up anything"},
    /* Who was away for longer than a device may take finds nothing amiss. */
    {"none", WELL, "AWAY_MS=1300 DTL_RDMA_TIMEOUT=10 DTL_RDMA_RETRIES=1 DTL_RDMA_RECONNECT_MS=0", NULL},
    {"death:20@1", DIES, NULL, NULL},
    {"death_locked:30@1", DIES, NULL, NULL},
    /* a connection that breaks and is made anew */
    {"answer:3@1", WELL, NULL, NULL},
    {"answer:17%", MENDED, NULL, NULL},
    {"send:11%:RETRY_EXC_ERR;write:3%:RETRY_EXC_ERR;read:4%@1", MENDED, NULL, NULL},
    {"recv:13%;atomic:40%@0", MENDED, NULL, NULL},
    {"qp_fatal:19%", MENDED, NULL, NULL},
    {"cut:40:100@1", MENDED, NULL, NULL},
    {"create_qp:2+:12@1;qp_fatal:10@1", FAILS, NULL, NULL},
    {"modify_qp:4@1;qp_fatal:10@1", FAILS, NULL, NULL},
    {"modify_qp:6@1;qp_fatal:10@1", WELL, NULL, NULL},
    {"send:5+:RETRY_EXC_ERR@1", FAILS, BRIEF, "for 100 ms (DTL_RDMA_RECONNECT_MS) nothing has come through"},
    {"qp_fatal:20;death:21@1", DIES, NULL, NULL},
    {"cut:2:700@1", FAILS, "LIMIT_MS=300 DTL_RDMA_RECONNECT_MS=5000", "DTL_ERROR_TIMEOUT"},
    {"cut:30:700@1", FAILS, "DTL_RDMA_RECONNECT_MS=0", "DTL_ERROR_RANK_FAILURE"},
    /* leaving */
    {"dereg_mr:1@1", WELL, NULL, NULL},
    {"destroy_qp:1@1", WELL, NULL, NULL},
    {"destroy_cq:1@1", WELL, NULL, NULL},
    {"dealloc_pd:1@1", WELL, NULL, NULL},
    {"close_device:1@1", WELL, NULL, NULL},
};
enum { CASES = sizeof cases / sizeof *cases };

static int failures_of(const char *output, int rank, int *lost_changes) {
    char well[60];
    const char *at;
    int failed = -1;
    snprintf(well, sizeof well, "rank %d is well after ", rank);
    at = strstr(output, well);
    if (at != NULL) sscanf(at + strlen(well), "%d failures, %d", &failed, lost_changes);
    return failed;
}

static int is_as_expected(enum outcome outcome, int failed, int changes) {
    switch (outcome) {
    case WELL: return failed + changes == 0;
    case MENDED: return failed == 0;
    case LOSES: return failed == 0 && changes > 0;
    case EITHER: return 1;
    default: return failed + changes > 0;
    }
}

static void drive(const char *program, const char *fault, enum outcome outcome, const char *with,
                  const char *says) {
    const uint64_t started = now_ms();
    char command[2048], output[16384];
    int status, first, second, changes[2] = {0, 0};
    size_t got;
    FILE *pipe;
    snprintf(command, sizeof command, "DTL_LOG=error DTL_RDMA_RECONNECT_MS=2000 %s DTL_FAKE_VERBS_FAULT='%s' '%s' -n 2 --on-failure=continue '%s' '%s' 2>&1",
             with == NULL ? "" : with, strcmp(fault, "none") == 0 ? "" : fault, getenv("DTL_TEST_DTLRUN"), program, fault);
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    status = pclose(pipe);
    first = failures_of(output, 0, &changes[0]), second = failures_of(output, 1, &changes[1]);
    printf("%s: %d and %d failures, %d and %d changes lost, %d ms\n", fault, first, second, changes[0], changes[1],
           (int)(now_ms() - started));
    fflush(stdout);
    if (first >= 0 && (second >= 0 || outcome == DIES) && WIFEXITED(status) &&
        WEXITSTATUS(status) == (outcome == DIES ? 128 + SIGKILL : 0) &&
        (says == NULL || strstr(output, says) != NULL) && is_as_expected(outcome, first + (second > 0 ? second : 0), changes[0] + changes[1])) {
        return;
    }
    fprintf(stderr, "%s: status %#x:\n%s\n", fault, (unsigned)status, output);
    exit(1);
}

int main(int argc, char **argv) {
    int i;
    if (argc > 1) return be_a_rank();
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not say where dtlrun is");
    if (getenv("DTL_RDMA_LIBRARY") == NULL) SKIP("DTL_RDMA_LIBRARY does not name the verbs that are none");
    for (i = 0; i < CASES; i++) drive(argv[0], cases[i].fault, cases[i].outcome, cases[i].with, cases[i].says);
    return 0;
}
