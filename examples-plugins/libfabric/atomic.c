/* Windows: atomic operations, for integers. Floating-point types stay with the library: its results for NaN are
 * defined, those of providers are not. */
#define _GNU_SOURCE
#include "libfabric.h"

#include <string.h>

#define OPS(op) (1u << (op))
static const uint32_t any_ops = OPS(DTL_OP_REPLACE) | OPS(DTL_OP_NO_OP);
static const uint32_t logical_ops = OPS(DTL_OP_LAND) | OPS(DTL_OP_LOR) | OPS(DTL_OP_LXOR);
static const uint32_t bit_ops = OPS(DTL_OP_BAND) | OPS(DTL_OP_BOR) | OPS(DTL_OP_BXOR);
static const uint32_t number_ops = OPS(DTL_OP_SUM) | OPS(DTL_OP_PROD) | OPS(DTL_OP_MIN) | OPS(DTL_OP_MAX);

/* Type for the provider, size and operations of a dtype; 0 = it stays with the library. */
static uint32_t describe(dtl_dtype_t dtype, enum fi_datatype *type, uint64_t *bytes)
{
    static const enum fi_datatype integers[] = {FI_INT8,  FI_INT16,  FI_INT32,  FI_INT64,
                                                FI_UINT8, FI_UINT16, FI_UINT32, FI_UINT64};
    if (dtype >= DTL_DTYPE_INT8 && dtype <= DTL_DTYPE_UINT64) {
        *type = integers[dtype - DTL_DTYPE_INT8];
        *bytes = UINT64_C(1) << (dtype - DTL_DTYPE_INT8) % 4;
        return any_ops | logical_ops | bit_ops | number_ops;
    }
    *type = FI_UINT8;
    *bytes = 1;
    return dtype == DTL_DTYPE_BYTE ? any_ops | bit_ops : dtype == DTL_DTYPE_BOOL ? any_ops | logical_ops : 0;
}

static enum fi_op op_of(dtl_reduce_op_t op)
{
    switch (op) {
    case DTL_OP_SUM: return FI_SUM;
    case DTL_OP_PROD: return FI_PROD;
    case DTL_OP_MIN: return FI_MIN;
    case DTL_OP_MAX: return FI_MAX;
    case DTL_OP_LAND: return FI_LAND;
    case DTL_OP_LOR: return FI_LOR;
    case DTL_OP_LXOR: return FI_LXOR;
    case DTL_OP_BAND: return FI_BAND;
    case DTL_OP_BOR: return FI_BOR;
    case DTL_OP_BXOR: return FI_BXOR;
    case DTL_OP_REPLACE: return FI_ATOMIC_WRITE;
    default: return FI_ATOMIC_READ;
    }
}

/* Elements that the provider takes at once; 0 = it does not have the operation. */
static uint64_t most_of(lf_comm_t *comm, enum fi_datatype type, enum fi_op op)
{
    size_t count = 0;
    const int error = op == FI_CSWAP ? fi_compare_atomicvalid(comm->ep, type, op, &count)
                                     : fi_fetch_atomicvalid(comm->ep, type, op, &count);
    return error == 0 ? count : 0;
}

static dtl_status_t win_atomics(void *self, void *comm_, void *win, dtl_dtype_t dtype, int32_t *out_yes)
{
    lf_comm_t *comm = comm_;
    enum fi_datatype type;
    uint64_t bytes;
    const uint32_t ops = describe(dtype, &type, &bytes);
    (void)self, (void)win;
    *out_yes = ops != 0 && (comm->info->caps & FI_ATOMIC) != 0 && most_of(comm, type, FI_CSWAP) > 0;
    for (dtl_reduce_op_t op = 0; op <= DTL_OP_NO_OP && *out_yes; op++) {
        if ((ops & OPS(op)) != 0) {
            *out_yes = most_of(comm, type, op_of(op)) > 0;
        }
    }
    return DTL_SUCCESS;
}

static void *desc_of(const struct fid_mr *mr)
{
    return mr != NULL ? fi_mr_desc((struct fid_mr *)(uintptr_t)mr) : NULL;
}

/* Passes the next elements to the provider. All operations fetch: then their completion means that they are at the
 * target, as a flush needs. (Provider shm of libfabric 1.17 mixes up the data of those that do not fetch, if
 * FI_DELIVERY_COMPLETE is requested.) */
static int issue(lf_comm_t *comm, lf_op_t *op, uint64_t count)
{
    struct lf_rest_t *rest = &op->rest;
    void *desc = desc_of(op->mr), *result_desc = desc_of(op->result_mr);
    const struct fi_ioc from = {(void *)(uintptr_t)rest->buf, count};
    const struct fi_rma_ioc to = {rest->address, count, rest->key};
    const struct fi_msg_atomic message = {.msg_iov = &from, .desc = &desc, .iov_count = 1,
                                          .addr = comm->peers[op->peer].address, .rma_iov = &to, .rma_iov_count = 1,
                                          .datatype = rest->datatype, .op = rest->op, .context = op};
    struct fi_ioc result = {rest->into != NULL ? rest->into : comm->scratch, count};
    if (rest->op == FI_CSWAP) {
        const struct fi_ioc expected = {&rest->operands[1], 1};
        return (int)fi_compare_atomicmsg(comm->ep, &message, &expected, &desc, 1, &result, &result_desc, 1,
                                         FI_COMPLETION);
    }
    return (int)fi_fetch_atomicmsg(comm->ep, &message, &result, &result_desc, 1, FI_COMPLETION);
}

void lf_next_atomics(lf_comm_t *comm, lf_op_t *op)
{
    struct lf_rest_t *rest = &op->rest;
    const uint64_t count = rest->count < rest->most ? rest->count : rest->most;
    const int error = issue(comm, op, count);
    if (error == -FI_EAGAIN) {
        return; /* lf_progress tries again */
    }
    if (error != 0) {
        (void)lf_fail(DTL_SUCCESS, "an atomic operation: %s", lf_text(error));
        op->result.source = op->peer;
        lf_finish(op, lf_is_loss(-error) ? DTL_ERROR_RANK_FAILURE : lf_code(error));
        lf_rma_done(comm, op);
        op->win = NULL;
        return;
    }
    op->in_flight = 1;
    rest->count -= count;
    rest->address += count * rest->element_bytes;
    rest->buf += rest->buf != NULL ? count * rest->element_bytes : 0;
    rest->into += rest->into != NULL ? count * rest->element_bytes : 0;
}

/* Starts what `rest` describes, except for the target's address. */
static dtl_status_t start(lf_comm_t *comm, lf_win_t *win, const struct lf_rest_t *rest, int32_t target, uint64_t offset,
                          uint64_t *out_op)
{
    const lf_peer_t *peer = &comm->peers[target];
    dtl_status_t status = DTL_SUCCESS;
    if (peer->is_gone) {
        return lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d is gone: %s", (int)target, peer->why);
    }
    if (comm->atomic != NULL) {
        (void)lf_poll_queue(comm, &status);
        if (comm->atomic != NULL) {
            return status != DTL_SUCCESS ? status : DTL_ERROR_BUSY;
        }
    }
    lf_op_t *op = lf_new_op(comm, LF_ATOMIC, target);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->rest = *rest;
    op->rest.address = win->remote[target].base + offset;
    op->rest.key = win->remote[target].key;
    if (rest->op == FI_CSWAP) {
        op->rest.buf = (const unsigned char *)&op->rest.operands[0];
    }
    const uint64_t bytes = rest->count * rest->element_bytes;
    int error = lf_register(comm, op->rest.buf, rest->op == FI_CSWAP ? sizeof op->rest.operands : bytes, 0, &op->mr);
    if (error == 0) {
        error = lf_register(comm, rest->into != NULL ? rest->into : comm->scratch,
                            rest->into != NULL ? bytes : sizeof comm->scratch, 0, &op->result_mr);
    }
    if (error != 0) {
        return lf_not_started(comm, op, error, "fi_mr_reg");
    }
    op->win = win;
    win->pending[target]++;
    comm->atomic = op;
    lf_next_atomics(comm, op);
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

static dtl_status_t win_accumulate(void *self, void *comm_, void *win, const void *buf, void *result, uint64_t count,
                                   dtl_dtype_t dtype, int32_t target, uint64_t offset, dtl_reduce_op_t op,
                                   uint64_t *out_op)
{
    lf_comm_t *comm = comm_;
    struct lf_rest_t rest = {.buf = buf, .into = result, .count = count, .op = op_of(op)};
    (void)self;
    if (op == DTL_OP_NO_OP && result == NULL) {
        lf_op_t *nothing = lf_new_op(comm, LF_FLUSH, target);
        if (nothing == NULL) {
            return DTL_ERROR_OUT_OF_MEMORY;
        }
        lf_finish(nothing, DTL_SUCCESS);
        *out_op = (uint64_t)(uintptr_t)nothing;
        return DTL_SUCCESS;
    }
    (void)describe(dtype, &rest.datatype, &rest.element_bytes);
    rest.most = most_of(comm, rest.datatype, rest.op);
    if (result == NULL && rest.most > sizeof comm->scratch / rest.element_bytes) {
        rest.most = sizeof comm->scratch / rest.element_bytes;
    }
    if (op == DTL_OP_NO_OP) {
        rest.buf = result; /* not read, but a provider may require an address */
    }
    return start(comm, win, &rest, target, offset, out_op);
}

static dtl_status_t win_compare_and_swap(void *self, void *comm, void *win, const void *value, const void *expected,
                                         void *result, dtl_dtype_t dtype, int32_t target, uint64_t offset,
                                         uint64_t *out_op)
{
    struct lf_rest_t rest = {.into = result, .count = 1, .most = 1, .op = FI_CSWAP};
    (void)self;
    (void)describe(dtype, &rest.datatype, &rest.element_bytes);
    memcpy(&rest.operands[0], value, rest.element_bytes);
    memcpy(&rest.operands[1], expected, rest.element_bytes);
    return start(comm, win, &rest, target, offset, out_op);
}

void lf_add_atomics(dtl_comm_vtable_t *table)
{
    table->win_atomics = win_atomics;
    table->win_accumulate = win_accumulate;
    table->win_compare_and_swap = win_compare_and_swap;
}
