/* A communicator whose two ranks are in this process, so that one thread drives both; or of one rank. It takes memory that the
 * host cannot touch (far.h) if it is registered, and refuses any other by ending the test. Not a test by itself. */
#ifndef DTL_TESTS_TWO_RANKS_H
#define DTL_TESTS_TWO_RANKS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "far.h"
#include <unistd.h>

enum { TWO_OPS = 256, TWO_REGS = 64, TWO_WIN_OP = TWO_OPS + 1 };

struct two_op {
    int is_used, is_receive, is_done, is_far, rank, peer;
    uint64_t word, size, serial;
    char* buf;
    dtl_comm_done_t result;
};

struct two_reg {
    int is_used, rank;
    dtl_mem_info_t info;
};

/* What the slots do, and what they have seen. */
static struct {
    int32_t use;                      /* answer of mem_supports */
    int32_t most;                     /* registrations for which there is room; 0 = no limit */
    int32_t far_ops;                  /* sends and receives of far memory */
    int32_t supports, registers, deregisters;
    int32_t frees_before;             /* far.frees at the last mem_deregister */
    int is_null, is_dead;             /* mem_register answers NULL; what is in flight in far memory ends with RANK_FAILURE */
    dtl_status_t supports_status, register_status, deregister_status;
    int32_t dmabuf;
    uint64_t dmabuf_offset;
    dtl_mem_info_t seen;
    int32_t coll_yes, coll_started, coll_done; /* collectives: accepts far memory; polls until one is done */
    dtl_status_t coll_status;                  /* of coll_supports for far memory */
    int register_ms, is_registering;           /* mem_register: how long it lasts, and that it was called */
    int win_waits, win_busy;                   /* operations on windows end, or begin, once it is 0 */
    dtl_coll_args_t coll_seen, coll_asked;
    dtl_coll_range_t coll_send, coll_recv;
} two;
static struct two_op two_ops[TWO_OPS];
static struct two_reg two_regs[TWO_REGS];
static uint64_t two_serial;
static struct far* two_far;

static int two_ranks[2] = {0, 1};

static dtl_status_t two_open(void* self, const dtl_comm_open_t* args, void** out, int32_t* out_rank, int32_t* out_size) {
    (void)self;
    *out = &two_ranks[args->rank], *out_rank = args->rank, *out_size = args->size;
    return DTL_SUCCESS;
}

static dtl_status_t two_close(void* self, void* comm) {
    int i;
    (void)self;
    for (i = 0; i < TWO_REGS; i++) CHECK(!two_regs[i].is_used || two_regs[i].rank != *(int*)comm);
    for (i = 0; i < TWO_OPS; i++) {
        if (two_ops[i].is_used && two_ops[i].rank == *(int*)comm) two_ops[i].is_used = 0;
    }
    return DTL_SUCCESS;
}

static int two_is_registered(const void* ptr, uint64_t size, int rank) {
    const uint64_t at = (uint64_t)(uintptr_t)ptr;
    int i;
    for (i = 0; i < TWO_REGS; i++) {
        const uint64_t base = (uint64_t)(uintptr_t)two_regs[i].info.base;
        if (two_regs[i].is_used && two_regs[i].rank == rank && at >= base && at + size <= base + two_regs[i].info.size_bytes) return 1;
    }
    return 0;
}

static dtl_status_t two_post(int rank, int is_receive, void* buf, uint64_t size, int32_t peer, uint64_t word, uint64_t* out) {
    int i = 0;
    while (i < TWO_OPS && two_ops[i].is_used) i++;
    CHECK(i < TWO_OPS);
    memset(&two_ops[i], 0, sizeof two_ops[i]);
    two_ops[i].is_used = 1, two_ops[i].is_receive = is_receive, two_ops[i].rank = rank, two_ops[i].peer = peer;
    two_ops[i].word = word, two_ops[i].size = size, two_ops[i].serial = two_serial++;
    if (size > 0 && far_is(buf)) {
        CHECK(two_is_registered(buf, size, rank) && word != 0); /* frames are host memory */
        two.far_ops++, two_ops[i].is_far = 1;
    }
    two_ops[i].buf = far_real(buf);
    *out = (uint64_t)i;
    return DTL_SUCCESS;
}

static dtl_status_t two_isend(void* self, void* comm, const void* buf, uint64_t size, int32_t dest, uint64_t word, uint64_t* out) {
    (void)self;
    return two_post(*(int*)comm, 0, (void*)(uintptr_t)buf, size, dest, word, out);
}

static dtl_status_t two_irecv(void* self, void* comm, void* buf, uint64_t size, int32_t source, uint64_t word, uint64_t ignore, uint64_t* out) {
    (void)self;
    CHECK(ignore == 0);
    return two_post(*(int*)comm, 1, buf, size, source, word, out);
}

/* The oldest of those operations that fit `fits`: the sends to `rank` from `peer` or the receives there. */
static struct two_op* two_oldest(int is_receive, int rank, int peer, uint64_t word) {
    struct two_op* oldest = NULL;
    int i;
    for (i = 0; i < TWO_OPS; i++) {
        struct two_op* op = &two_ops[i];
        if (!op->is_used || op->is_done || op->is_receive != is_receive || op->rank != rank || op->word != word) continue;
        if (op->peer != peer && !(is_receive && op->peer == DTL_ANY_SOURCE)) continue;
        if (oldest == NULL || op->serial < oldest->serial) oldest = op;
    }
    return oldest;
}

static void two_deliver(struct two_op* receive, struct two_op* send) {
    const int fits = send->size <= receive->size;
    if (send->size > 0) memcpy(receive->buf, send->buf, (size_t)(fits ? send->size : receive->size));
    send->is_done = receive->is_done = 1;
    receive->result.source = send->rank, receive->result.match_word = send->word, receive->result.size_bytes = send->size;
    receive->result.status = fits ? DTL_SUCCESS : DTL_ERROR_TRUNCATED;
}

static dtl_status_t two_test(void* self, void* comm, uint64_t op, int32_t* out_done, dtl_comm_done_t* out_result) {
    int i;
    (void)self, (void)comm;
    if (op == TWO_WIN_OP) return *out_done = !two.win_waits, out_result->status = DTL_SUCCESS, DTL_SUCCESS;
    if (op >= TWO_OPS) { /* a collective */
        *out_done = two.coll_done-- <= 0, out_result->status = DTL_SUCCESS;
        if (*out_done && two.coll_recv.size_bytes > 0 && two.coll_send.size_bytes > 0 && two.coll_recv.ptr != two.coll_send.ptr) {
            memcpy(far_real(two.coll_recv.ptr), far_real(two.coll_send.ptr), (size_t)two.coll_recv.size_bytes);
        }
        return DTL_SUCCESS;
    }
    for (i = 0; i < TWO_OPS; i++) {
        struct two_op *send = &two_ops[i], *receive;
        if (!send->is_used || send->is_done || send->is_receive || send != two_oldest(0, send->rank, send->peer, send->word)) continue;
        receive = two_oldest(1, send->peer, send->rank, send->word);
        if (receive != NULL) two_deliver(receive, send);
    }
    if (two.is_dead && two_ops[op].is_far) {
        two_ops[op].is_done = 1, two_ops[op].result.status = DTL_ERROR_RANK_FAILURE, two_ops[op].result.source = two_ops[op].peer;
    }
    *out_done = two_ops[op].is_done;
    if (*out_done) *out_result = two_ops[op].result, two_ops[op].is_used = 0;
    return DTL_SUCCESS;
}

static dtl_status_t two_cancel(void* self, void* comm, uint64_t op) {
    (void)self, (void)comm;
    if (op < TWO_OPS && !two_ops[op].is_done) two_ops[op].is_done = 1, two_ops[op].result.status = DTL_ERROR_CANCELED;
    return DTL_SUCCESS;
}

static dtl_status_t two_supports(void* self, void* comm, const dtl_mem_info_t* info, int32_t* out_use) {
    (void)self, (void)comm;
    CHECK(info->struct_size == sizeof *info);
    two.supports++, two.seen = *info, *out_use = two.use;
    return two.supports_status;
}

static dtl_status_t two_register(void* self, void* comm, const dtl_mem_info_t* info, int32_t dmabuf, uint64_t offset, void** out_reg) {
    int i = 0, live = 0, at;
    (void)self;
    for (at = 0; at < TWO_REGS; at++) live += two_regs[at].is_used;
    __atomic_store_n(&two.is_registering, 1, __ATOMIC_RELEASE);
    if (two.register_ms > 0) usleep((useconds_t)two.register_ms * 1000);
    __atomic_store_n(&two.is_registering, 0, __ATOMIC_RELEASE);
    if (two.most > 0 && live >= two.most) return DTL_ERROR_LIMIT;
    if (two.register_status != DTL_SUCCESS) {
        DTL_IGNORE(dtl_backend_set_error("the card does not like it"));
        return two.register_status;
    }
    if (two.is_null) return *out_reg = NULL, DTL_SUCCESS;
    while (i < TWO_REGS && two_regs[i].is_used) i++;
    CHECK(i < TWO_REGS);
    two_regs[i].is_used = 1, two_regs[i].info = *info, two_regs[i].rank = *(int*)comm;
    two.registers++, two.dmabuf = dmabuf, two.dmabuf_offset = offset;
    *out_reg = &two_regs[i];
    return DTL_SUCCESS;
}

static dtl_status_t two_deregister(void* self, void* comm, void* reg) {
    struct two_reg* it = (struct two_reg*)reg;
    (void)self;
    CHECK(it->is_used && it->rank == *(int*)comm);
    it->is_used = 0;
    two.deregisters++, two.frees_before = two_far->frees;
    return two.deregister_status;
}

static dtl_status_t two_coll_supports(void* self, void* comm, const dtl_coll_args_t* args, int32_t* out_yes) {
    (void)self, (void)comm;
    two.coll_asked = *args;
    *out_yes = args->memory_backend.id == 0 || two.coll_yes;
    return args->memory_backend.id == 0 ? DTL_SUCCESS : two.coll_status;
}

static dtl_status_t two_coll_start(void* self, void* comm, const dtl_coll_args_t* args, uint64_t* out_op) {
    (void)self;
    two.coll_seen = *args, two.coll_send = args->send[0], two.coll_recv = args->recv[0], two.coll_started++;
    if (args->memory_backend.id != 0) CHECK(two_is_registered(args->recv[0].ptr, args->recv[0].size_bytes, *(int*)comm));
    else CHECK(!far_is(args->recv[0].ptr) && !far_is(args->send[0].ptr));
    *out_op = TWO_OPS;
    return DTL_SUCCESS;
}

/* Windows whose operations move nothing. */
static dtl_status_t two_win_create(void* self, void* comm, void* base, uint64_t size, void** out_win, void* key, uint32_t* out_key) {
    (void)self, (void)base, (void)size, (void)key;
    *out_win = comm, *out_key = 0;
    return DTL_SUCCESS;
}

static dtl_status_t two_win_attach(void* self, void* comm, void* win, int32_t rank, const void* key, uint32_t bytes) {
    (void)self, (void)comm, (void)win, (void)rank, (void)key, (void)bytes;
    return DTL_SUCCESS;
}

static dtl_status_t two_win_destroy(void* self, void* comm, void* win) {
    (void)self, (void)comm, (void)win;
    return DTL_SUCCESS;
}

static dtl_status_t two_win_put(void* self, void* comm, void* win, const void* buf, uint64_t size, int32_t rank, uint64_t at, uint64_t* out) {
    (void)self, (void)comm, (void)win, (void)buf, (void)size, (void)rank, (void)at;
    *out = TWO_WIN_OP;
    return two.win_busy ? DTL_ERROR_BUSY : DTL_SUCCESS;
}

static dtl_status_t two_win_get(void* self, void* comm, void* win, void* buf, uint64_t size, int32_t rank, uint64_t at, uint64_t* out) {
    return two_win_put(self, comm, win, buf, size, rank, at, out);
}

static dtl_status_t two_win_flush(void* self, void* comm, void* win, int32_t rank, uint64_t* out) {
    return two_win_put(self, comm, win, NULL, 0, rank, 0, out);
}

static dtl_comm_vtable_t two_table(void) {
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    comm.open = two_open, comm.close = two_close, comm.isend = two_isend, comm.irecv = two_irecv, comm.test = two_test;
    comm.cancel = two_cancel;
    comm.mem_supports = two_supports, comm.mem_register = two_register, comm.mem_deregister = two_deregister;
    comm.win_create = two_win_create, comm.win_attach = two_win_attach, comm.win_destroy = two_win_destroy;
    comm.win_put = two_win_put, comm.win_get = two_win_get, comm.win_flush = two_win_flush;
    return comm;
}

static dtl_comm_t two_opened(const char* kind, int32_t rank, int32_t size, uint64_t flags) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    desc.kind = kind, desc.rank = rank, desc.size = size, desc.job = "two", desc.flags = flags;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    return comm;
}

#endif
