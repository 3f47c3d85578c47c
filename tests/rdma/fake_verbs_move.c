/* Executes one piece of work: checks what NICs check, moves the bytes, tells the receiver. */
#include "fake_verbs.h"

#include <sys/uio.h>

enum { HERE = MOST_PROCESSES }; /* bytes that lie in the fabric */

/* How a check ended. */
typedef struct verdict {
    stall_t stall;
    uint32_t status;      /* of the work */
    uint32_t recv_status; /* of the receive that it meets; 0: none */
    int event;            /* of the peer's queue pair, which goes into error; -1: stays */
} verdict_t;
static const verdict_t go = {.event = -1};

static const mr_t* region(uint32_t key, bool is_remote) {
    uint32_t index = (key & 0x7fffffff) >> 8;
    if (key >> 31 != is_remote || index >= MOST_MRS) return NULL;
    const mr_t* mr = &own.fabric->mrs[index];
    return mr->is_used && mr->generation == (key & 0xff) ? mr : NULL;
}

static bool may(const mr_t* mr, const qp_t* q, uint64_t at, uint64_t length, uint32_t access) {
    return mr && mr->owner == q->owner && mr->pd == q->pd && (mr->access & access) == access && at >= mr->iova && length <= mr->length &&
           at - mr->iova <= mr->length - length;
}

static bool may_all(const sge_t* sges, uint32_t count, const qp_t* q, uint32_t access) {
    for (uint32_t i = 0; i < count; i++)
        if (sges[i].length && !may(region(sges[i].lkey, false), q, sges[i].address, sges[i].length, access)) return false;
    return true;
}

/* `bytes` of the list behind the first `done`, as addresses of the process. */
static int as_iovec(const sge_t* sges, uint32_t count, uint64_t done, uint64_t bytes, struct iovec* out) {
    int made = 0;
    for (uint32_t i = 0; i < count && bytes; i++) {
        if (done >= sges[i].length) {
            done -= sges[i].length;
            continue;
        }
        const mr_t* mr = region(sges[i].lkey, false);
        uint64_t size = sges[i].length - done < bytes ? sges[i].length - done : bytes;
        out[made].iov_base = (void*)(uintptr_t)(mr->address + (sges[i].address - mr->iova) + done);
        out[made++].iov_len = size;
        bytes -= size;
        done = 0;
    }
    return made;
}

static bool is_cut(uint32_t process) {
    const process_t* p = &own.fabric->processes[process];
    return p->cut_at && (!p->heal_at || nanoseconds() < p->heal_at);
}

static bool is_down(uint32_t device) {
    const fabric_t* f = own.fabric;
    return f->port_down[device] && (!f->port_up_at[device] || nanoseconds() < f->port_up_at[device]);
}

/* The other end, if anything comes there; -1. */
static int reach(const qp_t* q) {
    if (q->to_device < 0) return -1;
    uint32_t index = (uint32_t)q->to_device * MOST_QPS + q->attr.dest_qp_num % MOST_QPS;
    const qp_t* p = &own.fabric->qps[index];
    if (!p->is_used || p->number != q->attr.dest_qp_num || (p->state != IBV_QPS_RTR && p->state != IBV_QPS_RTS)) return -1;
    if (p->to_device != (int)q->device || p->attr.dest_qp_num != q->number || p->attr.rq_psn != q->attr.sq_psn) return -1;
    if (gid_type(p->attr.ah_attr.grh.sgid_index) != gid_type(q->attr.ah_attr.grh.sgid_index)) return -1;
    if (p->attr.path_mtu != q->attr.path_mtu) return -1;
    if (is_cut(q->owner) || is_cut(p->owner) || is_down(q->device) || is_down(p->device)) return -1;
    return (int)index;
}

static bool needs_recv(const send_work_t* w) {
    return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static uint32_t remote_access(const send_work_t* w) {
    return w->opcode == IBV_WR_RDMA_READ                                                  ? IBV_ACCESS_REMOTE_READ
           : w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM    ? IBV_ACCESS_REMOTE_WRITE
           : w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM                ? 0
                                                                                          : IBV_ACCESS_REMOTE_ATOMIC;
}

static verdict_t check_peer(const qp_t* q, const send_work_t* w, int peer) {
    const qp_t* p = &own.fabric->qps[peer];
    uint32_t access = remote_access(w);
    bool is_read = w->opcode >= IBV_WR_RDMA_READ;
    (void)q;
    if (access && ((p->attr.qp_access_flags & access) != access || (is_read && !p->attr.max_dest_rd_atomic)))
        return (verdict_t){.status = IBV_WC_REM_INV_REQ_ERR, .event = IBV_EVENT_QP_REQ_ERR};
    if (access && w->length && !may(region(w->rkey, true), p, w->remote, w->length, access))
        return (verdict_t){.status = IBV_WC_REM_ACCESS_ERR, .event = IBV_EVENT_QP_ACCESS_ERR};
    if (!needs_recv(w)) return go;
    if (p->taken == p->recvs) return (verdict_t){.stall = STALL_RNR, .event = -1};
    const recv_work_t* r = recv_at((uint32_t)peer, p->taken);
    if (access) return go;
    if (r->length < w->length) return (verdict_t){.status = IBV_WC_REM_INV_REQ_ERR, .recv_status = IBV_WC_LOC_LEN_ERR, .event = -1};
    if (!may_all(r->sge, r->sges, p, IBV_ACCESS_LOCAL_WRITE))
        return (verdict_t){.status = IBV_WC_REM_OP_ERR, .recv_status = IBV_WC_LOC_PROT_ERR, .event = -1};
    return go;
}

static verdict_t check(const qp_t* q, const send_work_t* w, int peer) {
    bool is_read = w->opcode >= IBV_WR_RDMA_READ;
    if (!w->is_inline && !may_all(w->sge, w->sges, q, is_read ? IBV_ACCESS_LOCAL_WRITE : 0))
        return (verdict_t){.status = IBV_WC_LOC_PROT_ERR, .event = -1};
    if (is_read && !q->attr.max_rd_atomic) return (verdict_t){.status = IBV_WC_LOC_QP_OP_ERR, .event = -1};
    if (peer < 0) return (verdict_t){.stall = STALL_UNREACHABLE, .event = -1};
    return check_peer(q, w, peer);
}

bool would_work(uint32_t index, const send_work_t* w) {
    const qp_t* q = &own.fabric->qps[index];
    int peer = reach(q);
    verdict_t v = check(q, w, peer);
    return peer >= 0 && v.stall == STALL_NONE && v.status == 0 && w->length <= AT_ONCE / 4;
}

/* How long it waits; then it has failed. */
static int stall(qp_t* q, stall_t kind, int peer) {
    uint64_t now = nanoseconds(), limit;
    if (q->stall != kind) {
        q->stall = kind;
        q->stalled_since = now;
    }
    if (kind == STALL_UNREACHABLE) {
        limit = (uint64_t)settings.retry_ms * 1000000 * (q->attr.retry_cnt + 1u) / 8;
        return q->attr.timeout && now - q->stalled_since >= limit ? IBV_WC_RETRY_EXC_ERR : STALLED;
    }
    if (peer >= 0 && now >= q->look_at) {
        uint32_t owner = own.fabric->qps[peer].owner;
        q->look_at = now + 1000000;
        if (!is_alive(owner)) reap(owner);
    }
    /* The receiver's timer, of which 0 is the longest; at most 2 ms. */
    unsigned code = peer < 0 ? 0 : own.fabric->qps[peer].attr.min_rnr_timer;
    uint64_t timer = code == 0 || code > 15 ? 2000000 : 10000u << code / 2;
    limit = timer * q->attr.rnr_retry;
    return q->attr.rnr_retry < 7 && now - q->stalled_since >= limit ? IBV_WC_RNR_RETRY_EXC_ERR : STALLED;
}

static bool can_read(uint32_t process, const struct iovec* list, int count) {
    for (int i = 0; i < count; i++) {
        for (size_t at = 0; at < list[i].iov_len; at += at + 4096 < list[i].iov_len ? 4096 : list[i].iov_len) {
            char byte;
            struct iovec here = {&byte, 1}, there = {(char*)list[i].iov_base + at, 1};
            if (process_vm_readv(own.fabric->processes[process].pid, &here, 1, &there, 1, 0) != 1) return false;
        }
    }
    return true;
}

/* Moves bytes; one of the two ends is this process. 0, ESRCH or EFAULT. */
static int move(uint32_t to, const struct iovec* into, int intos, uint32_t from, const struct iovec* out, int outs, size_t bytes) {
    const process_t* p = own.fabric->processes;
    bool is_writing = from == HERE || from == own.me;
    ssize_t moved = is_writing ? process_vm_writev(p[to].pid, out, (unsigned long)outs, into, (unsigned long)intos, 0)
                               : process_vm_readv(p[from].pid, into, (unsigned long)intos, out, (unsigned long)outs, 0);
    if (moved == (ssize_t)bytes) return 0;
    if (moved < 0 && errno == ESRCH) {
        reap(is_writing ? to : from);
        return ESRCH;
    }
    if (moved < 0 && errno != EFAULT) {
        fprintf(stderr, "fake_verbs: process_vm_%s: %s; ranks must be allowed to trace each other\n", is_writing ? "writev" : "readv",
                strerror(errno));
        abort();
    }
    return EFAULT;
}

/* Memory was registered and is not mapped any more (or not writable): real NICs would still write to the old pages. */
static int unmapped(const qp_t* q, const struct iovec* local, int count) {
    bool is_local = count && !can_read(q->owner, local, count);
    fprintf(stderr, "fake_verbs: registered memory of the %s is not mapped any more\n", is_local ? "requester" : "responder");
    return is_local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_OP_ERR;
}

static struct iovec remote_at(const send_work_t* w, uint64_t bytes) {
    const mr_t* mr = region(w->rkey, true);
    uint64_t address = mr ? mr->address + (w->remote - mr->iova) + w->done : 0;
    return (struct iovec){(void*)(uintptr_t)address, bytes};
}

static int move_message(qp_t* q, send_work_t* w, int peer, size_t* budget) {
    const qp_t* p = &own.fabric->qps[peer];
    struct iovec local[MOST_SGE], remote[MOST_SGE];
    while (w->done < w->length) {
        uint64_t bytes = w->length - w->done < *budget ? w->length - w->done : *budget;
        if (!bytes) return STALLED;
        int locals = 1, remotes = 1;
        if (w->is_inline) local[0] = (struct iovec){w->bytes + w->done, bytes};
        else locals = as_iovec(w->sge, w->sges, w->done, bytes, local);
        if (remote_access(w)) {
            remote[0] = remote_at(w, bytes);
        } else {
            const recv_work_t* r = recv_at((uint32_t)peer, p->taken);
            remotes = as_iovec(r->sge, r->sges, w->done, bytes, remote);
        }
        int code = w->opcode == IBV_WR_RDMA_READ ? move(q->owner, local, locals, p->owner, remote, remotes, bytes)
                                                 : move(p->owner, remote, remotes, w->is_inline ? HERE : q->owner, local, locals, bytes);
        if (code == ESRCH) return stall(q, STALL_UNREACHABLE, -1);
        if (code) return unmapped(q, local, w->is_inline ? 0 : locals);
        w->done += (uint32_t)bytes;
        *budget -= bytes;
    }
    /* Nothing was moved that would have told. */
    if (!w->length && !is_alive(p->owner)) {
        reap(p->owner);
        return stall(q, STALL_UNREACHABLE, -1);
    }
    return 0;
}

/* Atomic among themselves by the fabric's lock. */
static int do_atomic(qp_t* q, send_work_t* w, int peer) {
    uint32_t target = own.fabric->qps[peer].owner;
    uint64_t old, changed;
    struct iovec here = {&old, 8}, there = remote_at(w, 8), result[MOST_SGE];
    int results = as_iovec(w->sge, w->sges, 0, 8, result);
    int pid = own.fabric->processes[target].pid;
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    changed = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? old + w->compare_add : old == w->compare_add ? w->swap : old;
    if (got == 8 && !can_read(q->owner, result, results)) return unmapped(q, result, results);
    here.iov_base = &changed;
    if (got == 8) got = process_vm_writev(pid, &here, 1, &there, 1, 0);
    here.iov_base = &old;
    if (got == 8) got = process_vm_writev(own.fabric->processes[q->owner].pid, &here, 1, result, (unsigned long)results, 0);
    if (got == 8) return 0;
    if (errno != ESRCH) return unmapped(q, result, results);
    if (target != own.me) reap(target);
    return stall(q, STALL_UNREACHABLE, -1);
}

/* The status that a fault wants for it, or 0. */
static uint32_t completion_fault(uint32_t process, int kind) {
    completion_fault_t* f = &own.fabric->processes[process].faults[kind];
    if (!f->status) return 0;
    f->count++;
    bool is_now = f->count == f->at || (f->each && f->count > f->at) || (f->every && f->count % f->at == 0);
    return is_now ? f->status : 0;
}

static int kind_of(const send_work_t* w) {
    switch (w->opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM: return FAULT_SEND;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return FAULT_WRITE;
    case IBV_WR_RDMA_READ: return FAULT_READ;
    default: return FAULT_ATOMIC;
    }
}

static int receive(const qp_t* q, const send_work_t* w, uint32_t peer) {
    uint32_t status = completion_fault(own.fabric->qps[peer].owner, FAULT_RECV);
    complete_recv(peer, status, w, q->number);
    if (status) to_error(peer);
    return status ? IBV_WC_REM_OP_ERR : 0;
}

int execute(uint32_t index, send_work_t* w, size_t* budget) {
    qp_t* q = &own.fabric->qps[index];
    uint32_t wanted = w->has_begun ? 0 : completion_fault(q->owner, kind_of(w));
    w->has_begun = true;
    if (wanted) return (int)wanted;
    int peer = reach(q);
    verdict_t v = check(q, w, peer);
    if (v.stall != STALL_NONE) return stall(q, v.stall, peer);
    if (v.recv_status) complete_recv((uint32_t)peer, v.recv_status, w, 0);
    if (v.event >= 0) async_event(own.fabric->qps[peer].context, (enum ibv_event_type)v.event, (uint32_t)peer);
    if (v.recv_status || v.event >= 0) to_error((uint32_t)peer);
    if (v.status) return (int)v.status;
    q->stall = STALL_NONE;
    int code = kind_of(w) == FAULT_ATOMIC ? do_atomic(q, w, peer) : move_message(q, w, peer, budget);
    if (code == 0 && needs_recv(w)) code = receive(q, w, (uint32_t)peer);
    return code == 0 ? (int)completion_fault(q->owner, FAULT_ANSWER) : code;
}
