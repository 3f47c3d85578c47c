/* Sends, receives and the completion queue. No call blocks. */
#define _GNU_SOURCE
#include "libfabric.h"

#include "../tcp/meet.h"

#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES = 32,         /* of the completion queue, read at once */
    POLLS_PER_LOOK = 16,  /* polls between two looks at the clock */
    LOOK_EVERY_MS = 1     /* at the control connections, a system call */
};

/* ---- operations ---- */

lf_op_t *lf_new_op(lf_comm_t *comm, lf_kind_t kind, int32_t peer)
{
    lf_op_t *op = comm->unused;
    if (op == NULL) {
        op = malloc(sizeof *op);
    } else {
        comm->unused = op->next;
    }
    if (op == NULL) {
        return NULL;
    }
    memset(op, 0, sizeof *op);
    op->kind = kind;
    op->peer = peer;
    op->lost = -1;
    op->link = comm->active_end;
    *comm->active_end = op;
    comm->active_end = &op->next;
    return op;
}

void lf_drop_op(lf_comm_t *comm, lf_op_t *op)
{
    *op->link = op->next;
    if (op->next != NULL) {
        op->next->link = op->link;
    } else {
        comm->active_end = op->link;
    }
    if (op->mr != NULL) {
        (void)fi_close(&op->mr->fid);
    }
    if (op->result_mr != NULL) {
        (void)fi_close(&op->result_mr->fid);
    }
    op->next = comm->unused;
    comm->unused = op;
}

void lf_finish(lf_op_t *op, dtl_status_t status)
{
    op->result.status = status;
    op->done = 1;
}

/* ---- completions ---- */

/* The provider has finished with the operation, whose result is set unless it was reported before. */
static void conclude(lf_comm_t *comm, lf_op_t *op)
{
    op->in_flight = 0;
    if (op->lost >= 0 && op->peer == DTL_ANY_SOURCE && op->result.status != DTL_ERROR_RANK_FAILURE) {
        comm->peers[op->lost].is_unreported = 1; /* a message came before fi_cancel: another receive reports the loss */
        comm->unreported++;
        lf_report_to_any_source(comm);
    }
    if (op->win != NULL) {
        lf_rma_done(comm, op);
    }
    if (op->is_orphan || (op->is_own && op->done)) {
        lf_drop_op(comm, op);
    }
}

static void received_own(lf_comm_t *comm, lf_op_t *op, int32_t source)
{
    lf_peer_t *peer = &comm->peers[source];
    if (op->match_word == LF_HELLO) {
        peer->has_all = 1; /* while opening: its hello is here */
    } else {
        const char byte = 'A';
        peer->has_left = 1;
        if (peer->socket >= 0) {
            (void)!send(peer->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        /* The next rank's last message. */
        lf_op_t *next = lf_new_op(comm, LF_RECEIVE, DTL_ANY_SOURCE);
        if (next != NULL) {
            next->is_own = 1;
            next->match_word = LF_BYE;
            if (lf_post_receive(comm, next, NULL, 0, LF_CONTROL) != 0) {
                lf_drop_op(comm, next);
            }
        }
    }
    lf_finish(op, DTL_SUCCESS);
}

static void succeeded(lf_comm_t *comm, const struct fi_cq_tagged_entry *entry)
{
    lf_op_t *op = entry->op_context;
    if (op == NULL) {
        return;
    }
    if (op->kind == LF_RECEIVE && op->is_own) {
        received_own(comm, op, (int32_t)entry->data);
    } else if (!op->is_orphan) {
        if (op->kind == LF_RECEIVE) {
            op->result.source = (int32_t)entry->data;
            op->result.match_word = op->match_word;
            op->result.size_bytes = entry->len;
            lf_finish(op, DTL_SUCCESS);
        } else if (op->kind == LF_ATOMIC && op->rest.count > 0 && !op->done) {
            op->in_flight = 0;
            lf_next_atomics(comm, op);
            return;
        } else {
            lf_finish(op, DTL_SUCCESS);
        }
    }
    conclude(comm, op);
}

static void failed(lf_comm_t *comm, const struct fi_cq_err_entry *entry)
{
    lf_op_t *op = entry->op_context;
    if (op == NULL) {
        return;
    }
    op->result.source = op->peer != DTL_ANY_SOURCE ? op->peer : comm->rank;
    op->result.match_word = op->match_word;
    if (op->is_orphan || op->is_own) {
        lf_finish(op, DTL_ERROR_COMMUNICATION);
    } else if (entry->err == FI_ECANCELED && op->is_canceling) {
        if (op->lost >= 0) {
            op->result.source = op->lost;
        }
        lf_finish(op, op->lost >= 0 ? DTL_ERROR_RANK_FAILURE : DTL_ERROR_CANCELED);
    } else if (entry->err == FI_ETRUNC) {
        if (op->peer == DTL_ANY_SOURCE) {
            op->result.source = (int32_t)entry->data;
        }
        op->result.size_bytes = entry->len + entry->olen;
        lf_finish(op, DTL_ERROR_TRUNCATED);
    } else if (op->peer != DTL_ANY_SOURCE && lf_is_loss(entry->err)) {
        lf_finish(op, DTL_ERROR_RANK_FAILURE);
        lf_lose(comm, op->peer, lf_text(entry->err));
    } else {
        (void)lf_fail(DTL_SUCCESS, "an operation with rank %d failed: %s", (int)op->peer, lf_text(entry->err));
        lf_finish(op, lf_code(entry->err));
    }
    conclude(comm, op);
}

int lf_poll_queue(lf_comm_t *comm, dtl_status_t *status)
{
    struct fi_cq_tagged_entry entries[ENTRIES];
    struct fi_cq_err_entry error = {0};
    const ssize_t count = fi_cq_read(comm->cq, entries, ENTRIES);
    for (ssize_t i = 0; i < count; i++) {
        succeeded(comm, &entries[i]);
    }
    if (count >= 0 || count == -FI_EAGAIN) {
        return count > 0;
    }
    if (count == -FI_EAVAIL && fi_cq_readerr(comm->cq, &error, 0) > 0) {
        failed(comm, &error);
        return 1;
    }
    if (count != -FI_EAVAIL) {
        *status = lf_fail(DTL_ERROR_COMMUNICATION, "fi_cq_read: %s", lf_text((int)count));
    }
    return 0;
}

dtl_status_t lf_progress(lf_comm_t *comm)
{
    dtl_status_t status = DTL_SUCCESS;
    if (comm->atomic != NULL && !comm->atomic->in_flight) {
        lf_next_atomics(comm, comm->atomic);
    }
    (void)lf_poll_queue(comm, &status);
    if (++comm->polls % POLLS_PER_LOOK == 0) {
        const uint64_t now = net_now_ms();
        if (now - comm->looked_at_ms >= LOOK_EVERY_MS) {
            comm->looked_at_ms = now;
            lf_look_at_peers(comm, now);
        }
    }
    if (comm->unswept > 0) {
        lf_sweep(comm);
    }
    return status;
}

/* ---- the slots ---- */

ssize_t lf_post_send(lf_comm_t *comm, lf_op_t *op, const void *buf, uint64_t size_bytes, uint64_t control)
{
    const fi_addr_t to = comm->peers[op->peer].address;
    int error = lf_register(comm, buf, size_bytes, 0, &op->mr);
    if (error == 0) {
        error = (int)fi_tsenddata(comm->ep, buf, size_bytes, op->mr != NULL ? fi_mr_desc(op->mr) : NULL,
                                  (uint64_t)comm->rank, to, op->match_word | control, op);
    }
    op->in_flight = error == 0;
    return error;
}

ssize_t lf_post_receive(lf_comm_t *comm, lf_op_t *op, void *buf, uint64_t size_bytes, uint64_t control)
{
    const fi_addr_t from = op->peer == DTL_ANY_SOURCE ? FI_ADDR_UNSPEC : comm->peers[op->peer].address;
    int error = lf_register(comm, buf, size_bytes, 0, &op->mr);
    if (error == 0) {
        error = (int)fi_trecv(comm->ep, buf, size_bytes, op->mr != NULL ? fi_mr_desc(op->mr) : NULL, from,
                              op->match_word | control, 0, op);
    }
    op->in_flight = error == 0;
    return error;
}

dtl_status_t lf_not_started(lf_comm_t *comm, lf_op_t *op, int error, const char *what)
{
    dtl_status_t status = DTL_SUCCESS;
    const int32_t peer = op->peer;
    lf_drop_op(comm, op);
    if (error == -FI_EAGAIN) {
        (void)lf_poll_queue(comm, &status); /* which makes room */
        return status != DTL_SUCCESS ? status : DTL_ERROR_BUSY;
    }
    if (peer != DTL_ANY_SOURCE && lf_is_loss(-error)) {
        lf_lose(comm, peer, lf_text(error));
        return lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d is gone: %s", (int)peer, lf_text(error));
    }
    return lf_fail(lf_code(error), "%s: %s", what, lf_text(error));
}

static dtl_status_t size_error(const lf_comm_t *comm, uint64_t size_bytes)
{
    return lf_fail(DTL_ERROR_LIMIT, "%llu bytes; messages of provider %s have at most %llu",
                   (unsigned long long)size_bytes, comm->info->fabric_attr->prov_name,
                   (unsigned long long)comm->info->ep_attr->max_msg_size);
}

dtl_status_t lf_isend(void *self, void *comm_, const void *buf, uint64_t size_bytes, int32_t dest, uint64_t match_word,
                      uint64_t *out_op)
{
    lf_comm_t *comm = comm_;
    const lf_peer_t *peer = &comm->peers[dest];
    (void)self;
    if (peer->is_gone) {
        return lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d is gone: %s", (int)dest, peer->why);
    }
    if (size_bytes > comm->info->ep_attr->max_msg_size) {
        return size_error(comm, size_bytes);
    }
    lf_op_t *op = lf_new_op(comm, LF_SEND, dest);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->match_word = match_word;
    int error;
    if (size_bytes <= comm->info->tx_attr->inject_size) {
        error = (int)fi_tinjectdata(comm->ep, buf, size_bytes, (uint64_t)comm->rank, peer->address, match_word);
        lf_finish(op, DTL_SUCCESS); /* there will be no completion */
    } else {
        error = (int)lf_post_send(comm, op, buf, size_bytes, 0);
    }
    if (error != 0) {
        return lf_not_started(comm, op, error, "fi_tsenddata");
    }
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

dtl_status_t lf_irecv(void *self, void *comm_, void *buf, uint64_t size_bytes, int32_t source, uint64_t match_word,
                      uint64_t ignore, uint64_t *out_op)
{
    lf_comm_t *comm = comm_;
    lf_op_t *op = lf_new_op(comm, LF_RECEIVE, source);
    (void)self, (void)ignore;
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->match_word = match_word;
    const int error = (int)lf_post_receive(comm, op, buf, size_bytes, 0);
    if (error != 0) {
        return lf_not_started(comm, op, error, "fi_trecv");
    }
    *out_op = (uint64_t)(uintptr_t)op;
    if (source != DTL_ANY_SOURCE && comm->peers[source].is_gone) {
        lf_peer_t *peer = &comm->peers[source];
        op->lost = source; /* unless its message is here already */
        op->is_canceling = 1;
        (void)fi_cancel(&comm->ep->fid, &op->context);
        comm->unswept += peer->is_swept;
        peer->is_swept = 0;
        peer->lost_at_ms = net_now_ms();
    } else if (comm->unreported > 0) {
        lf_report_to_any_source(comm);
    }
    return DTL_SUCCESS;
}

dtl_status_t lf_test(void *self, void *comm_, uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result)
{
    lf_comm_t *comm = comm_;
    lf_op_t *op = (lf_op_t *)(uintptr_t)word;
    (void)self;
    if (!op->done) {
        const dtl_status_t status = lf_progress(comm);
        if (status != DTL_SUCCESS) {
            return status;
        }
    }
    *out_done = op->done;
    if (op->done) {
        *out_result = op->result;
        if (op->result.status == DTL_ERROR_RANK_FAILURE) {
            (void)lf_fail(DTL_SUCCESS, "rank %d is gone: %s", (int)op->result.source,
                          comm->peers[op->result.source].why);
        }
        if (op->in_flight) {
            op->is_orphan = 1;
        } else {
            lf_drop_op(comm, op);
        }
    }
    return DTL_SUCCESS;
}

dtl_status_t lf_cancel(void *self, void *comm_, uint64_t word)
{
    lf_comm_t *comm = comm_;
    lf_op_t *op = (lf_op_t *)(uintptr_t)word;
    (void)self;
    if (op->kind == LF_RECEIVE && op->in_flight && !op->is_canceling) {
        op->is_canceling = 1;
        (void)fi_cancel(&comm->ep->fid, &op->context);
    }
    return DTL_SUCCESS;
}
