/* Windows: one-sided transfers. */
#define _GNU_SOURCE
#include "libfabric.h"

#include "../tcp/meet.h"

#include <stdlib.h>
#include <string.h>

enum { DESTROY_MS = 200 };

typedef struct lf_key_t { /* what other ranks need, as win_create writes it */
    uint64_t key, base;
} lf_key_t;

static void free_win(lf_win_t *win)
{
    if (win->mr != NULL) {
        (void)fi_close(&win->mr->fid);
    }
    free(win->remote);
    free(win->pending);
    free(win);
}

static dtl_status_t win_create(void *self, void *comm_, void *base, uint64_t size_bytes, void **out_win, void *key,
                               uint32_t *out_key_bytes)
{
    lf_comm_t *comm = comm_;
    lf_key_t mine = {0};
    (void)self;
    if ((comm->info->caps & FI_RMA) == 0) {
        return lf_fail(DTL_ERROR_NOT_SUPPORTED, "provider %s has no FI_RMA", comm->info->fabric_attr->prov_name);
    }
    lf_win_t *win = calloc(1, sizeof *win);
    if (win == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    win->remote = calloc((size_t)comm->size, sizeof *win->remote);
    win->pending = calloc((size_t)comm->size, sizeof *win->pending);
    int error = win->remote == NULL || win->pending == NULL ? -FI_ENOMEM : 0;
    if (error == 0 && size_bytes > 0) {
        error = lf_register(comm, base, size_bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, &win->mr);
    }
    if (error != 0) {
        free_win(win);
        return lf_fail(lf_code(error), "fi_mr_reg of %llu bytes: %s", (unsigned long long)size_bytes, lf_text(error));
    }
    if (win->mr != NULL) {
        const int is_virtual = (comm->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
        mine.key = fi_mr_key(win->mr);
        mine.base = is_virtual ? (uint64_t)(uintptr_t)base : 0;
    }
    memcpy(key, &mine, sizeof mine);
    *out_key_bytes = sizeof mine;
    *out_win = win;
    return DTL_SUCCESS;
}

static dtl_status_t win_attach(void *self, void *comm, void *win_, int32_t rank, const void *key, uint32_t key_bytes)
{
    lf_win_t *win = win_;
    lf_key_t its;
    (void)self, (void)comm;
    if (key_bytes != sizeof its) {
        return lf_fail(DTL_ERROR_INVALID_ARGUMENT, "a key of %u bytes from rank %d", (unsigned)key_bytes, (int)rank);
    }
    memcpy(&its, key, sizeof its);
    win->remote[rank].key = its.key;
    win->remote[rank].base = its.base;
    return DTL_SUCCESS;
}

/* Waits briefly for this rank's operations. The provider keeps those that remain; they are not tested again. */
static dtl_status_t win_destroy(void *self, void *comm_, void *win)
{
    lf_comm_t *comm = comm_;
    const uint64_t deadline = net_now_ms() + DESTROY_MS;
    dtl_status_t status = DTL_SUCCESS;
    int open;
    (void)self;
    do {
        open = 0;
        for (const lf_op_t *op = comm->active; op != NULL && !open; op = op->next) {
            open = op->win == win && op->in_flight;
        }
        if (open) {
            (void)lf_poll_queue(comm, &status);
        }
    } while (open && status == DTL_SUCCESS && net_now_ms() < deadline);
    for (lf_op_t *op = comm->active, *next; op != NULL; op = next) {
        next = op->next;
        if (op->win == win) {
            if (comm->atomic == op) {
                comm->atomic = NULL;
            }
            op->win = NULL;
            op->is_orphan = op->done = 1;
            if (!op->in_flight) {
                lf_drop_op(comm, op);
            }
        }
    }
    free_win(win);
    return DTL_SUCCESS;
}

static void end_flushes(lf_comm_t *comm, const lf_win_t *win, int32_t target)
{
    for (lf_op_t *op = comm->active; op != NULL; op = op->next) {
        if (op->kind == LF_FLUSH && op->win == win && op->peer == target && !op->done) {
            lf_finish(op, DTL_SUCCESS);
        }
    }
}

void lf_rma_done(lf_comm_t *comm, lf_op_t *op)
{
    if (comm->atomic == op) {
        comm->atomic = NULL;
    }
    if (--op->win->pending[op->peer] == 0) {
        end_flushes(comm, op->win, op->peer);
    }
}

/* Starts a write or a read. A write is complete when the bytes are in the target's memory, which makes a flush
 * a matter of counting. */
static dtl_status_t start(lf_comm_t *comm, lf_win_t *win, int is_write, void *buf, uint64_t size_bytes, int32_t target,
                          uint64_t offset, uint64_t *out_op)
{
    const lf_peer_t *peer = &comm->peers[target];
    if (peer->is_gone) {
        return lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d is gone: %s", (int)target, peer->why);
    }
    if (size_bytes > comm->info->ep_attr->max_msg_size) {
        return lf_fail(DTL_ERROR_LIMIT, "%llu bytes; transfers of provider %s have at most %llu",
                       (unsigned long long)size_bytes, comm->info->fabric_attr->prov_name,
                       (unsigned long long)comm->info->ep_attr->max_msg_size);
    }
    lf_op_t *op = lf_new_op(comm, LF_RMA, target);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    int error = lf_register(comm, buf, size_bytes, 0, &op->mr);
    if (error == 0) {
        void *desc = op->mr != NULL ? fi_mr_desc(op->mr) : NULL;
        const struct iovec from = {buf, size_bytes};
        const struct fi_rma_iov to = {win->remote[target].base + offset, size_bytes, win->remote[target].key};
        const struct fi_msg_rma message = {.msg_iov = &from, .desc = &desc, .iov_count = 1, .addr = peer->address,
                                           .rma_iov = &to, .rma_iov_count = 1, .context = op};
        error = is_write ? (int)fi_writemsg(comm->ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                         : (int)fi_readmsg(comm->ep, &message, FI_COMPLETION);
    }
    if (error != 0) {
        return lf_not_started(comm, op, error, is_write ? "fi_writemsg" : "fi_readmsg");
    }
    op->in_flight = 1;
    op->win = win;
    win->pending[target]++;
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

static dtl_status_t win_put(void *self, void *comm, void *win, const void *buf, uint64_t size_bytes, int32_t target,
                            uint64_t offset, uint64_t *out_op)
{
    (void)self;
    return start(comm, win, 1, (void *)(uintptr_t)buf, size_bytes, target, offset, out_op);
}

static dtl_status_t win_get(void *self, void *comm, void *win, void *buf, uint64_t size_bytes, int32_t target,
                            uint64_t offset, uint64_t *out_op)
{
    (void)self;
    return start(comm, win, 0, buf, size_bytes, target, offset, out_op);
}

static dtl_status_t win_flush(void *self, void *comm_, void *win_, int32_t target, uint64_t *out_op)
{
    lf_comm_t *comm = comm_;
    lf_win_t *win = win_;
    (void)self;
    if (comm->peers[target].is_gone) {
        return lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d is gone: %s", (int)target, comm->peers[target].why);
    }
    lf_op_t *op = lf_new_op(comm, LF_FLUSH, target);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->win = win;
    if (win->pending[target] == 0) {
        lf_finish(op, DTL_SUCCESS);
    }
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

void lf_add_windows(dtl_comm_vtable_t *table)
{
    table->win_create = win_create;
    table->win_attach = win_attach;
    table->win_destroy = win_destroy;
    table->win_put = win_put;
    table->win_get = win_get;
    table->win_flush = win_flush;
}
