/* Queue pairs: their states, and posting to them. */
#include "fake_verbs.h"

static int place_qp(own_qp_t* qp, const struct ibv_qp_init_attr* init) {
    fabric_t* f = own.fabric;
    own_context_t* context = (own_context_t*)qp->ibv.context;
    if (f->contexts[context->index].is_fatal) return EIO;
    uint32_t first = context->device * MOST_QPS;
    for (uint32_t i = first + 2; i < first + MOST_QPS; i++) { /* 0 and 1 are the management's */
        qp_t* q = &f->qps[i];
        if (q->is_used) continue;
        uint32_t generation = q->generation % 0x3fff + 1;
        *q = (qp_t){.generation = generation,
                    .number = generation * MOST_QPS + (i - first),
                    .owner = own.me,
                    .device = context->device,
                    .context = context->index,
                    .pd = qp->ibv.pd->handle,
                    .send_cq = ((own_cq_t*)init->send_cq)->index,
                    .recv_cq = ((own_cq_t*)init->recv_cq)->index,
                    .sig_all = init->sq_sig_all != 0,
                    .state = IBV_QPS_RESET,
                    .to_device = -1,
                    .cap = init->cap,
                    .user = (uintptr_t)qp};
        q->cap.max_inline_data = settings.inline_bytes;
        atomic_signal_fence(memory_order_seq_cst);
        q->is_used = 1;
        qp->index = qp->ibv.handle = i;
        qp->ibv.qp_num = q->number;
        ((own_pd_t*)qp->ibv.pd)->users++;
        ((own_cq_t*)init->send_cq)->qps++;
        ((own_cq_t*)init->recv_cq)->qps++;
        return 0;
    }
    return ENOMEM;
}

static int check_init(const struct ibv_qp_init_attr* init) {
    const struct ibv_qp_cap* cap = &init->cap;
    if (init->qp_type != IBV_QPT_RC || init->srq) return EOPNOTSUPP;
    if (!init->send_cq || !init->recv_cq) return EINVAL;
    if (cap->max_send_wr > settings.most_wr || cap->max_recv_wr > settings.most_wr) return EINVAL;
    if (cap->max_send_sge > MOST_SGE || cap->max_recv_sge > MOST_SGE) return EINVAL;
    return 0;
}

API struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* init) {
    int code = fault("create_qp");
    if (!code) code = check_init(init);
    own_qp_t* qp = code ? NULL : calloc(1, sizeof *qp);
    if (!code && !qp) code = ENOMEM;
    if (!code) {
        qp->ibv.context = pd->context;
        qp->ibv.qp_context = init->qp_context;
        qp->ibv.pd = pd;
        qp->ibv.send_cq = init->send_cq;
        qp->ibv.recv_cq = init->recv_cq;
        qp->ibv.qp_type = init->qp_type;
        lock_fabric();
        code = place_qp(qp, init);
        unlock_fabric();
    }
    if (code) {
        free(qp);
        errno = code;
        return NULL;
    }
    init->cap.max_inline_data = settings.inline_bytes;
    pthread_mutex_init(&qp->ibv.mutex, NULL);
    pthread_cond_init(&qp->ibv.cond, NULL);
    counters.qps_ever++;
    grow(&counters.qps, &counters.qps_most, 1);
    return &qp->ibv;
}

API int ibv_destroy_qp(struct ibv_qp* ibv) {
    own_qp_t* qp = (own_qp_t*)ibv;
    int code = fault("destroy_qp");
    if (code) return code;
    lock_fabric();
    if (qp->events) {
        fprintf(stderr, "fake_verbs: destroy_qp: %u events are not acknowledged; the real one waits for ever\n", qp->events);
        unlock_fabric();
        return EBUSY;
    }
    qp_t* q = &own.fabric->qps[qp->index];
    if (settings.seed && chance(2)) { /* what was there may still be polled, by some hardware; nothing comes later */
        reveal(q->send_cq, own.fabric->cqs[q->send_cq].pushed);
        reveal(q->recv_cq, own.fabric->cqs[q->recv_cq].pushed);
    } else {
        forget_completions(q->send_cq, qp->index);
        forget_completions(q->recv_cq, qp->index);
    }
    q->is_used = 0;
    q->state = IBV_QPS_RESET;
    forget_events(ibv->context->async_fd, ((own_context_t*)ibv->context)->write_fd, (uintptr_t)qp);
    own.fabric->pending[qp->index / 64] &= ~(1ull << qp->index % 64);
    ((own_pd_t*)ibv->pd)->users--;
    ((own_cq_t*)ibv->send_cq)->qps--;
    ((own_cq_t*)ibv->recv_cq)->qps--;
    unlock_fabric();
    counters.qps--;
    free(qp);
    return 0;
}

/* What a change of state needs and may have besides (InfiniBand specification 11.2.5.2, as the kernel's ib_modify_qp_is_ok). */
static const struct transition {
    enum ibv_qp_state from, to;
    int needs, may;
} transitions[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
};

static bool is_transition(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
    mask &= ~IBV_QP_STATE;
    if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return mask == 0;
    for (size_t i = 0; i < sizeof transitions / sizeof *transitions; i++) {
        const struct transition* t = &transitions[i];
        if (t->from == from && t->to == to) return (mask & t->needs) == t->needs && (mask & ~(t->needs | t->may)) == 0;
    }
    return false;
}

static bool is_address(const struct ibv_ah_attr* ah) {
    if (ah->port_num != 1 || ah->sl > 15) return false;
    if (!ah->is_global) return settings.is_infiniband;
    return ah->grh.sgid_index < gid_count();
}

static bool are_values(const struct ibv_qp_attr* a, int mask) {
    if (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0) return false;
    if (mask & IBV_QP_PORT && a->port_num != 1) return false;
    if (mask & IBV_QP_AV && !is_address(&a->ah_attr)) return false;
    if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > (settings.is_infiniband ? IBV_MTU_4096 : IBV_MTU_1024))) return false;
    if (mask & IBV_QP_TIMEOUT && a->timeout > 31) return false;
    if (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) return false;
    if (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) return false;
    if (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31) return false;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > MOST_READS) return false;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > MOST_READS) return false;
    return !(mask & IBV_QP_DEST_QPN && a->dest_qp_num >> 24);
}

static void take_values(qp_t* q, const struct ibv_qp_attr* a, int mask) {
    struct ibv_qp_attr* to = &q->attr;
    if (mask & IBV_QP_PKEY_INDEX) to->pkey_index = a->pkey_index;
    if (mask & IBV_QP_PORT) to->port_num = a->port_num;
    if (mask & IBV_QP_ACCESS_FLAGS) to->qp_access_flags = a->qp_access_flags;
    if (mask & IBV_QP_PATH_MTU) to->path_mtu = a->path_mtu;
    if (mask & IBV_QP_DEST_QPN) to->dest_qp_num = a->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN) to->rq_psn = a->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN) to->sq_psn = a->sq_psn & 0xffffff;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) to->max_dest_rd_atomic = a->max_dest_rd_atomic;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) to->max_rd_atomic = a->max_rd_atomic;
    if (mask & IBV_QP_MIN_RNR_TIMER) to->min_rnr_timer = a->min_rnr_timer;
    if (mask & IBV_QP_TIMEOUT) to->timeout = a->timeout;
    if (mask & IBV_QP_RETRY_CNT) to->retry_cnt = a->retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) to->rnr_retry = a->rnr_retry;
    if (mask & IBV_QP_AV) {
        to->ah_attr = a->ah_attr;
        q->to_device = a->ah_attr.is_global ? device_of(&a->ah_attr.grh.dgid) : a->ah_attr.dlid - 0x10;
        if (q->to_device < 0 || q->to_device >= MOST_DEVICES) q->to_device = -1;
    }
}

static void reset(qp_t* q, uint32_t index) {
    forget_completions(q->send_cq, index);
    forget_completions(q->recv_cq, index);
    q->sent = q->retired = q->sent_free = q->recvs = q->taken = q->recv_free = 0;
    q->stall = STALL_NONE;
    q->stuck = 0;
    memset(&q->attr, 0, sizeof q->attr);
    q->to_device = -1;
    own.fabric->pending[index / 64] &= ~(1ull << index % 64);
}

API int ibv_modify_qp(struct ibv_qp* ibv, struct ibv_qp_attr* attr, int mask) {
    uint32_t index = ((own_qp_t*)ibv)->index;
    qp_t* q = &own.fabric->qps[index];
    int code = fault("modify_qp");
    if (code) return code;
    lock_fabric();
    enum ibv_qp_state from = (enum ibv_qp_state)q->state, to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if (own.fabric->contexts[q->context].is_fatal) code = to == IBV_QPS_ERR || to == IBV_QPS_RESET ? 0 : EIO;
    else if (!is_transition(from, to, mask) || !are_values(attr, mask)) code = EINVAL;
    else if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from) code = EINVAL;
    if (!code) {
        take_values(q, attr, mask);
        if (to == IBV_QPS_RESET) reset(q, index);
        if (to == IBV_QPS_ERR) to_error(index);
        q->state = to;
        ibv->state = to;
    }
    unlock_fabric();
    return code;
}

API int ibv_query_qp(struct ibv_qp* ibv, struct ibv_qp_attr* attr, int mask, struct ibv_qp_init_attr* init) {
    (void)mask;
    int code = fault("query_qp");
    if (code) return code;
    qp_t* q = &own.fabric->qps[((own_qp_t*)ibv)->index];
    lock_fabric();
    *attr = q->attr;
    attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)q->state;
    attr->cap = q->cap;
    uint32_t sig_all = q->sig_all;
    unlock_fabric();
    ibv->state = attr->qp_state;
    *init = (struct ibv_qp_init_attr){.qp_context = ibv->qp_context,
                                      .send_cq = ibv->send_cq,
                                      .recv_cq = ibv->recv_cq,
                                      .cap = attr->cap,
                                      .qp_type = ibv->qp_type,
                                      .sq_sig_all = (int)sig_all};
    return 0;
}

static int total(const struct ibv_sge* list, int count, uint32_t most_sge, uint32_t* length) {
    uint64_t sum = 0;
    if (count < 0 || (uint32_t)count > most_sge) return EINVAL;
    for (int i = 0; i < count; i++) sum += list[i].length;
    if (sum > 1u << 30) return EINVAL;
    *length = (uint32_t)sum;
    return 0;
}

static int check_send(const qp_t* q, const struct ibv_send_wr* wr, uint32_t* length) {
    bool is_atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_ERR) return EINVAL;
    if (wr->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD) return EINVAL;
    int code = total(wr->sg_list, wr->num_sge, q->cap.max_send_sge, length);
    if (code) return code;
    if (is_atomic && (settings.has_no_atomics || *length != 8 || wr->wr.atomic.remote_addr % 8)) return EINVAL;
    if (wr->send_flags & IBV_SEND_INLINE && (*length > q->cap.max_inline_data || is_atomic || wr->opcode == IBV_WR_RDMA_READ)) return EINVAL;
    return q->sent - q->sent_free >= q->cap.max_send_wr ? ENOMEM : 0;
}

static void copy_work(send_work_t* work, const struct ibv_send_wr* wr, uint32_t length) {
    bool is_atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    work->wr_id = wr->wr_id;
    work->opcode = wr->opcode;
    work->flags = wr->send_flags;
    work->imm = wr->imm_data;
    work->remote = is_atomic ? wr->wr.atomic.remote_addr : wr->wr.rdma.remote_addr;
    work->rkey = is_atomic ? wr->wr.atomic.rkey : wr->wr.rdma.rkey;
    work->compare_add = wr->wr.atomic.compare_add;
    work->swap = wr->wr.atomic.swap;
    work->length = length;
    work->done = 0;
    work->is_inline = wr->send_flags & IBV_SEND_INLINE;
    work->has_begun = work->is_executed = false;
    work->sges = (uint16_t)wr->num_sge;
    unsigned char* at = work->bytes;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge* s = &wr->sg_list[i];
        if (work->is_inline) at = (unsigned char*)memcpy(at, (void*)(uintptr_t)s->addr, s->length) + s->length;
        else work->sge[i] = (sge_t){s->addr, s->length, s->lkey};
    }
}

static void count_send(const struct ibv_send_wr* wr, uint32_t length) {
    counters.post_send++;
    counters.sent_bytes += length;
    if (wr->send_flags & IBV_SEND_INLINE) counters.inlined++;
    if (!(wr->send_flags & IBV_SEND_SIGNALED)) counters.unsignaled++;
    switch (wr->opcode) {
    case IBV_WR_SEND: counters.send++; break;
    case IBV_WR_SEND_WITH_IMM: counters.send_imm++; break;
    case IBV_WR_RDMA_WRITE: counters.write++; break;
    case IBV_WR_RDMA_WRITE_WITH_IMM: counters.write_imm++; break;
    case IBV_WR_RDMA_READ: counters.read++; break;
    default: counters.atomic++;
    }
}

int fake_post_send(struct ibv_qp* ibv, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
    uint32_t index = ((own_qp_t*)ibv)->index, length = 0;
    qp_t* q = &own.fabric->qps[index];
    int code = 0;
    for (; wr && !code; wr = wr->next) {
        *bad = wr;
        code = fault("post_send");
        if (code) break;
        work_requested(index);
        lock_fabric();
        code = own.has_left ? EIO : check_send(q, wr, &length);
        if (!code) {
            copy_work(send_at(index, q->sent), wr, length);
            count_send(wr, length);
            atomic_signal_fence(memory_order_seq_cst);
            if (++q->sent > q->stuck) q->stuck = 0;
            if (q->state == IBV_QPS_ERR) {
                flush(index);
            } else {
                mark_pending(index);
                run_qp(index);
            }
        }
        unlock_fabric();
    }
    return code;
}

int fake_post_recv(struct ibv_qp* ibv, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad) {
    uint32_t index = ((own_qp_t*)ibv)->index;
    qp_t* q = &own.fabric->qps[index];
    int code = 0;
    for (; wr && !code; wr = wr->next) {
        uint32_t length = 0;
        *bad = wr;
        code = fault("post_recv");
        if (code) break;
        lock_fabric();
        if (own.has_left) code = EIO;
        else if (q->state == IBV_QPS_RESET) code = EINVAL;
        if (!code) code = total(wr->sg_list, wr->num_sge, q->cap.max_recv_sge, &length);
        if (!code && q->recvs - q->recv_free >= q->cap.max_recv_wr) code = ENOMEM;
        if (!code) {
            recv_work_t* work = recv_at(index, q->recvs);
            *work = (recv_work_t){.wr_id = wr->wr_id, .sges = (uint32_t)wr->num_sge, .length = length};
            for (int i = 0; i < wr->num_sge; i++) work->sge[i] = (sge_t){wr->sg_list[i].addr, wr->sg_list[i].length, wr->sg_list[i].lkey};
            atomic_signal_fence(memory_order_seq_cst);
            q->recvs++;
            counters.post_recv++;
            if (q->state == IBV_QPS_ERR) flush(index);
        }
        unlock_fabric();
    }
    return code;
}
