/* One end of a connection, and what tests of the verbs provider that is none do with it. */
#ifndef VERBS_END_H
#define VERBS_END_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(is)                                                                                                              \
    do {                                                                                                                       \
        if (!(is)) {                                                                                                           \
            printf("%s:%d: not so: %s (errno %s)\n", __FILE__, __LINE__, #is, strerror(errno));                                \
            exit(1);                                                                                                           \
        }                                                                                                                      \
    } while (0)

enum { BYTES = 1 << 20, DEPTH = 64, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
enum {
    TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
    TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
    TO_RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC
};

/* What the other end has to know. */
typedef struct address {
    union ibv_gid gid;
    uint32_t number, rkey, psn;
    uint64_t memory;
} address_t;

typedef struct end {
    struct ibv_context* context;
    struct ibv_pd* pd;
    struct ibv_comp_channel* channel;
    struct ibv_cq* cq;
    struct ibv_qp* qp;
    struct ibv_mr* mr;
    char* bytes;
    address_t peer;
    unsigned rnr_retry, retry, reads, access;
} end_t;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void open_end(end_t* e, int device) {
    int count;
    struct ibv_device** list = ibv_get_device_list(&count);
    CHECK(list && count > device);
    memset(e, 0, sizeof *e);
    e->rnr_retry = e->retry = 7;
    e->reads = 4;
    e->access = ACCESS;
    CHECK((e->context = ibv_open_device(list[device])));
    ibv_free_device_list(list);
    CHECK((e->pd = ibv_alloc_pd(e->context)));
    CHECK((e->channel = ibv_create_comp_channel(e->context)));
    CHECK((e->cq = ibv_create_cq(e->context, 4 * DEPTH, e, e->channel, 0)));
    e->bytes = (char*)mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(e->bytes != MAP_FAILED && (e->mr = ibv_reg_mr(e->pd, e->bytes, BYTES, ACCESS)));
}

static void make_qp(end_t* e) {
    struct ibv_qp_init_attr init = {.send_cq = e->cq, .recv_cq = e->cq, .cap = {DEPTH, DEPTH, 4, 4, 64}, .qp_type = IBV_QPT_RC};
    CHECK((e->qp = ibv_create_qp(e->pd, &init)) && e->qp->qp_num > 1);
}

static address_t address_of(const end_t* e) {
    address_t a = {.number = e->qp->qp_num, .rkey = e->mr->rkey, .psn = e->qp->qp_num & 0xff, .memory = (uintptr_t)e->bytes};
    CHECK(ibv_query_gid(e->context, 1, 1, &a.gid) == 0);
    return a;
}

static struct ibv_qp_attr init_attr(const end_t* e) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .qp_access_flags = e->access, .port_num = 1};
}
static struct ibv_qp_attr rtr_attr(const end_t* e) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .rq_psn = e->peer.psn, .dest_qp_num = e->peer.number,
        .ah_attr = {.grh = {.dgid = e->peer.gid, .sgid_index = 1, .hop_limit = 64}, .is_global = 1, .port_num = 1},
        .max_dest_rd_atomic = (uint8_t)e->reads, .min_rnr_timer = 12};
}
static struct ibv_qp_attr rts_attr(const end_t* e) {
    return (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = e->qp->qp_num & 0xff, .max_rd_atomic = (uint8_t)e->reads,
        .timeout = 14, .retry_cnt = (uint8_t)e->retry, .rnr_retry = (uint8_t)e->rnr_retry};
}

static void connect_end(end_t* e, address_t peer) {
    e->peer = peer;
    struct ibv_qp_attr attr = init_attr(e);
    CHECK(ibv_modify_qp(e->qp, &attr, TO_INIT) == 0);
    attr = rtr_attr(e);
    CHECK(ibv_modify_qp(e->qp, &attr, TO_RTR) == 0);
    attr = rts_attr(e);
    CHECK(ibv_modify_qp(e->qp, &attr, TO_RTS) == 0 && e->qp->state == IBV_QPS_RTS);
}

/* New queue pairs of both, connected. */
static void meet(end_t* a, end_t* b) {
    struct ibv_wc wc;
    if (a->qp) CHECK(ibv_destroy_qp(a->qp) == 0);
    if (b->qp) CHECK(ibv_destroy_qp(b->qp) == 0);
    while (ibv_poll_cq(a->cq, 1, &wc) > 0 || ibv_poll_cq(b->cq, 1, &wc) > 0) continue;
    make_qp(a);
    make_qp(b);
    connect_end(a, address_of(b));
    connect_end(b, address_of(a));
}

static void close_end(end_t* e) {
    if (e->qp) CHECK(ibv_destroy_qp(e->qp) == 0);
    CHECK(ibv_destroy_cq(e->cq) == 0 && ibv_destroy_comp_channel(e->channel) == 0);
    CHECK(ibv_dereg_mr(e->mr) == 0 && ibv_dealloc_pd(e->pd) == 0 && ibv_close_device(e->context) == 0);
    munmap(e->bytes, BYTES);
}

/* The next completion of the end. */
static struct ibv_wc next(end_t* e) {
    struct ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(e->cq, 1, &wc)) == 0) sched_yield();
    CHECK(got == 1);
    return wc;
}

static bool is_quiet(end_t* e) {
    struct ibv_wc wc;
    for (int i = 0; i < 20; i++)
        if (ibv_poll_cq(e->cq, 1, &wc) != 0) return false;
    return true;
}

static int post_recv(end_t* e, uint64_t id, size_t at, uint32_t length) {
    struct ibv_sge sge = {(uintptr_t)e->bytes + at, length, e->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    return ibv_post_recv(e->qp, &wr, &bad);
}

/* A piece of work from `at` of the own memory to (or from) `there` of the peer's. */
typedef struct work {
    enum ibv_wr_opcode opcode;
    size_t at, there;
    uint32_t length;
    unsigned flags;
    uint64_t id, compare_add, swap;
    uint32_t imm, lkey, rkey; /* keys: 0: the right one */
} work_t;

static int post(end_t* e, work_t w) {
    struct ibv_sge sge = {(uintptr_t)e->bytes + w.at, w.length, w.lkey ? w.lkey : e->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = w.id, .sg_list = &sge, .num_sge = 1, .opcode = w.opcode, .send_flags = w.flags, .imm_data = w.imm}, *bad;
    uint32_t rkey = w.rkey ? w.rkey : e->peer.rkey;
    if (w.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = e->peer.memory + w.there;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = w.compare_add;
        wr.wr.atomic.swap = w.swap;
    } else {
        wr.wr.rdma.remote_addr = e->peer.memory + w.there;
        wr.wr.rdma.rkey = rkey;
    }
    return ibv_post_send(e->qp, &wr, &bad);
}

/* Posts it, signaled, and gives how it ended. */
static enum ibv_wc_status ends(end_t* e, work_t w) {
    w.flags |= IBV_SEND_SIGNALED;
    w.id = 4711;
    CHECK(post(e, w) == 0);
    struct ibv_wc wc = next(e);
    CHECK(wc.wr_id == 4711 && wc.qp_num == e->qp->qp_num);
    return wc.status;
}

#endif
