/* The switch: barriers and small allreduces of all ranks, in the memory that they share. A real one
 * is a piece of the network (SHARP, a tree of NICs); the slots are the same. */
#include "reduce_tree.h"
#include <math.h>
#include <string.h>

/* What this switch can reduce. Sums of floating-point numbers depend on the order, and it has one of
 * its own: so it leaves them to the library if the program has asked for the library's order. */
static bool can_reduce(const dtl_coll_args_t *args)
{
    switch (args->dtype) {
    case DTL_DTYPE_FLOAT32:
    case DTL_DTYPE_FLOAT64:
        return args->op == DTL_OP_SUM && !(args->flags & DTL_COLL_DETERMINISTIC);
    case DTL_DTYPE_INT8:
    case DTL_DTYPE_INT16:
    case DTL_DTYPE_INT32:
    case DTL_DTYPE_INT64:
    case DTL_DTYPE_UINT8:
    case DTL_DTYPE_UINT16:
    case DTL_DTYPE_UINT32:
    case DTL_DTYPE_UINT64:
        return args->op == DTL_OP_SUM || args->op == DTL_OP_PROD || args->op == DTL_OP_MIN ||
               args->op == DTL_OP_MAX || args->op == DTL_OP_BAND || args->op == DTL_OP_BOR ||
               args->op == DTL_OP_BXOR;
    default:
        return false;
    }
}

static dtl_status_t coll_supports(void *self, void *comm, const dtl_coll_args_t *args, int32_t *out_yes)
{
    const bool is_small = args->count * args->element_bytes <= BOARD_BYTES;
    (void)self, (void)comm;
    *out_yes = 0;
    if (args->context != 0) return DTL_SUCCESS; /* duplicates: the library's messages */
    if (args->collective == DTL_COLLECTIVE_BARRIER) *out_yes = 1;
    if (args->collective == DTL_COLLECTIVE_ALLREDUCE) *out_yes = is_small && can_reduce(args);
    return DTL_SUCCESS;
}

static dtl_status_t coll_start(void *self, void *comm, const dtl_coll_args_t *args, uint64_t *out_op)
{
    comm_t *c = comm;
    op_t *op = new_op(COLLECTIVE);
    (void)self;
    if (op == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    op->args = *args;
    op->from = args->send[0].ptr;
    op->into = args->recv[0].ptr;
    op->size_bytes = args->count * args->element_bytes;
    append(&c->collectives, op);
    move_collectives(c);
    *out_op = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

#define FOLD(type, expression)                         \
    for (i = 0; i < count; i++) {                      \
        type a, b;                                     \
        memcpy(&a, into + i * sizeof a, sizeof a);     \
        memcpy(&b, from + i * sizeof b, sizeof b);     \
        a = (type)(expression);                        \
        memcpy(into + i * sizeof a, &a, sizeof a);     \
    }
/* Sums and products wrap around, as the library's do. */
#define FOLD_INTEGERS(type)                                              \
    if (op == DTL_OP_SUM) FOLD(type, (uint64_t)a + (uint64_t)b)          \
    if (op == DTL_OP_PROD) FOLD(type, (uint64_t)a * (uint64_t)b)         \
    if (op == DTL_OP_MIN) FOLD(type, b < a ? b : a)                      \
    if (op == DTL_OP_MAX) FOLD(type, b > a ? b : a)                      \
    if (op == DTL_OP_BAND) FOLD(type, a & b)                             \
    if (op == DTL_OP_BOR) FOLD(type, a | b)                              \
    if (op == DTL_OP_BXOR) FOLD(type, a ^ b)                             \
    break

/* Replaces every NaN by the same one, so that all ranks get the same bits, as with the library's algorithms. */
static double one_nan(double value)
{
    return value == value ? value : (double)NAN;
}

static void fold(unsigned char *into, const unsigned char *from, uint64_t count, dtl_dtype_t dtype,
                 dtl_reduce_op_t op)
{
    uint64_t i;
    switch (dtype) {
    case DTL_DTYPE_FLOAT32: FOLD(float, one_nan(a + b)) break;
    case DTL_DTYPE_FLOAT64: FOLD(double, one_nan(a + b)) break;
    case DTL_DTYPE_INT8: FOLD_INTEGERS(int8_t);
    case DTL_DTYPE_INT16: FOLD_INTEGERS(int16_t);
    case DTL_DTYPE_INT32: FOLD_INTEGERS(int32_t);
    case DTL_DTYPE_INT64: FOLD_INTEGERS(int64_t);
    case DTL_DTYPE_UINT8: FOLD_INTEGERS(uint8_t);
    case DTL_DTYPE_UINT16: FOLD_INTEGERS(uint16_t);
    case DTL_DTYPE_UINT32: FOLD_INTEGERS(uint32_t);
    case DTL_DTYPE_UINT64: FOLD_INTEGERS(uint64_t);
    default: break;
    }
}

/* Moves the first collective of the list on, and those behind it. */
void move_collectives(comm_t *c)
{
    board_t *board = &c->shared->board;
    op_t *op;
    while ((op = c->collectives) != NULL) {
        const uint64_t side = c->collective % 2;
        if (!op->has_arrived) {
            if (op->size_bytes > 0) memcpy(board->part[side][c->rank], op->from, op->size_bytes);
            op->has_arrived = true;
            if (atomic_fetch_add(&board->arrived[side], 1) == c->size - 1) {
                /* The last one plays the switch: it reduces in the order of the ranks. */
                memcpy(board->result[side], board->part[side][0], op->size_bytes);
                for (int32_t rank = 1; rank < c->size; rank++) {
                    fold(board->result[side], board->part[side][rank], op->args.count, op->args.dtype, op->args.op);
                }
                atomic_store(&board->arrived[side], 0);
                atomic_store(&board->complete, c->collective + 1);
            }
        }
        if (atomic_load(&board->complete) <= c->collective) return;
        if (op->size_bytes > 0) memcpy(op->into, board->result[side], op->size_bytes);
        op->is_done = true;
        drop(&c->collectives, op);
        c->collective++;
    }
}

void add_collectives(dtl_comm_vtable_t *table)
{
    table->coll_supports = coll_supports;
    table->coll_start = coll_start;
}
