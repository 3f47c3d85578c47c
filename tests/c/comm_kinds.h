/* What the tests of communicators share: which kind a run is about, opening one, patterns of bytes.
 *
 *     program self | shm | nccl | mail, mail28, mailput or mailwin RANKS | the name of a plugin's kind
 *
 * Ranks of "shm" and of plugins come from dtlrun (or are one), those of "mail" are forked by the program. */
#ifndef DTL_TESTS_COMM_KINDS_H
#define DTL_TESTS_COMM_KINDS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "check.h"
#include "mail_comm.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *kind;
static int me, ranks;

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))

static inline int is_mail(void) { return strncmp(kind, "mail", 4) == 0; }

/// Whether dtlrun started the ranks.
static inline int is_launched(void) { return !is_mail() && strcmp(kind, "self") != 0; }

static inline uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline dtl_comm_t open_with(uint64_t timeout_ns) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    char job[40];
    desc.kind = kind;
    desc.timeout_ns = timeout_ns;
    if (strcmp(kind, "nccl") == 0) desc.flags = DTL_COMM_STAGE;
    if (is_launched() && ranks == 1) {
        snprintf(job, sizeof job, "alone-%ld", (long)getpid());
        desc.size = 1;
        desc.job = job;
    }
    CHECK_OK(dtl_comm_open(&desc, &comm));
    return comm;
}

/// A communicator whose calls fail rather than hang for ever.
static inline dtl_comm_t open_comm(void) { return open_with(MILLISECONDS(60000)); }

/// A time limit of `ms`, and more where the machine is so busy that opening takes long: the same on all
/// ranks, and each of them is sure to come in time.
static inline uint64_t limit_here(dtl_comm_t meet, uint64_t ms) {
    uint64_t mine, limit = 0;
    CHECK_OK(dtl_comm_barrier(meet));
    mine = now_ms();
    CHECK_OK(dtl_comm_destroy(open_comm()));
    mine = 20 * (now_ms() - mine);
    if (mine < ms) mine = ms;
    CHECK_OK(dtl_comm_allreduce(meet, &mine, &limit, 1, DTL_DTYPE_UINT64, DTL_OP_MAX));
    return limit;
}

static uint64_t hasty_ms;

/// One whose calls give up after half a second (`hasty_ms`, see limit_here). That goes for opening too,
/// so the ranks come together on another first.
static inline dtl_comm_t open_hasty(dtl_comm_t meet) {
    hasty_ms = limit_here(meet, 500);
    return open_with(MILLISECONDS(hasty_ms));
}

static inline void start(int argc, char **argv) {
    if (argc < 2) SKIP("it runs with arguments: a kind of communicator");
    kind = argv[1];
    ranks = argc > 2 ? atoi(argv[2]) : 1;
    if (is_mail()) {
        mail_start(ranks);
        mail_register();
        me = mail_rank;
    } else if (is_launched()) {
        CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
        CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &ranks));
    }
    if (strcmp(kind, "nccl") == 0) { /* a device for each rank */
        dtl_backend_t cuda;
        CHECK_OK(dtl_backend_get("cuda", &cuda));
        CHECK_OK(dtl_backend_set_device(cuda, me));
    }
}

static inline void finish(void) {
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_finalize());
    if (is_mail()) mail_finish();
}

/// Byte `index` of message `number`.
static inline unsigned char pattern(int number, uint64_t index) {
    return (unsigned char)((uint64_t)number * 131 + index * 7 + (index >> 8));
}

static inline void fill(void *bytes, uint64_t size, int number) {
    uint64_t i;
    for (i = 0; i < size; i++) ((unsigned char *)bytes)[i] = pattern(number, i);
}

static inline int is_filled(const void *bytes, uint64_t size, int number) {
    uint64_t i;
    for (i = 0; i < size; i++) {
        if (((const unsigned char *)bytes)[i] != pattern(number, i)) return 0;
    }
    return 1;
}

static inline int is_all(const void *bytes, uint64_t size, int value) {
    uint64_t i;
    for (i = 0; i < size; i++) {
        if (((const unsigned char *)bytes)[i] != (unsigned char)value) return 0;
    }
    return 1;
}

/// The last error's text has this in it.
#ifndef CHECK_TEXT
#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)
#endif

/* Rank 0's message gets on while it only looks for the answer: by a probe, a matched one, or the request of its receive. */
static inline void looks_move_on(dtl_comm_t comm, const void *out, void *into, uint64_t size) {
    int32_t reply = 0, is_there;
    int how;
    for (how = 0; how < 3; how++) {
        if (me == 0) {
            dtl_request_t sending, receiving;
            dtl_message_t message;
            CHECK_OK(dtl_comm_isend(comm, out, size, DTL_DTYPE_BYTE, 1, 1, &sending));
            if (how == 2) CHECK_OK(dtl_comm_irecv(comm, &reply, 1, DTL_DTYPE_INT32, 1, 2, &receiving));
            for (is_there = 0; !is_there; ) {
                if (how == 0) CHECK_OK(dtl_comm_iprobe(comm, 1, 2, &is_there, NULL));
                else if (how == 1) CHECK_OK(dtl_comm_improbe(comm, 1, 2, &is_there, &message, NULL));
                else CHECK_OK(dtl_request_test(receiving, &is_there, NULL));
            }
            if (how == 0) CHECK_OK(dtl_comm_recv(comm, &reply, 1, DTL_DTYPE_INT32, 1, 2, NULL));
            if (how == 1) CHECK_OK(dtl_comm_mrecv(message, &reply, 1, DTL_DTYPE_INT32, NULL));
            CHECK(reply == how + 1);
            CHECK_OK(dtl_request_wait(sending, DTL_TIMEOUT_INFINITE, NULL));
        } else if (me == 1) {
            CHECK_OK(dtl_comm_recv(comm, into, size, DTL_DTYPE_BYTE, 0, 1, NULL));
            reply = how + 1;
            CHECK_OK(dtl_comm_send(comm, &reply, 1, DTL_DTYPE_INT32, 0, 2));
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

#endif
