/* The reductions of wire's collectives: integers, floating-point numbers of 4 and 8 bytes, bytes and booleans. */
#include "collective.h"

#include <string.h>

#define EACH(type, expression) \
    for (uint64_t i = 0; i < count; i++) { \
        type a, b; \
        memcpy(&a, into + i * sizeof a, sizeof a); \
        memcpy(&b, from + i * sizeof b, sizeof b); \
        a = (type)(expression); \
        memcpy(into + i * sizeof a, &a, sizeof a); \
    }

#define INTEGERS(type) \
    switch (op) { \
    case DTL_OP_SUM: EACH(type, (uint64_t)a + (uint64_t)b) break; \
    case DTL_OP_PROD: EACH(type, (uint64_t)a * (uint64_t)b) break; \
    case DTL_OP_MIN: EACH(type, b < a ? b : a) break; \
    case DTL_OP_MAX: EACH(type, b > a ? b : a) break; \
    case DTL_OP_LAND: EACH(type, a && b) break; \
    case DTL_OP_LOR: EACH(type, a || b) break; \
    case DTL_OP_LXOR: EACH(type, !a != !b) break; \
    case DTL_OP_BAND: EACH(type, (uint64_t)a & (uint64_t)b) break; \
    case DTL_OP_BOR: EACH(type, (uint64_t)a | (uint64_t)b) break; \
    case DTL_OP_BXOR: EACH(type, (uint64_t)a ^ (uint64_t)b) break; \
    default: break; \
    } \
    break

#define FLOATS(type) \
    switch (op) { \
    case DTL_OP_SUM: EACH(type, a + b) break; \
    case DTL_OP_PROD: EACH(type, a * b) break; \
    case DTL_OP_MIN: EACH(type, b < a || is_nan(a, b) ? b : a) break; \
    case DTL_OP_MAX: EACH(type, b > a || is_nan(a, b) ? b : a) break; \
    default: break; \
    } \
    break

/* Whether the right one is the result because of a NaN. */
static int is_nan(double a, double b)
{
    return is_fault("comm.coll_start.nan_is_lost") ? a != a : b != b;
}

static dtl_dtype_t spoiled_dtype(dtl_dtype_t dtype, dtl_reduce_op_t op)
{
    if (is_fault("comm.coll_start.signed_as_unsigned") && dtype <= DTL_DTYPE_INT64) {
        return dtype + DTL_DTYPE_UINT8 - DTL_DTYPE_INT8;
    }
    if (is_fault("comm.coll_start.floats_as_integers") && dtype == DTL_DTYPE_FLOAT32) {
        return DTL_DTYPE_INT32;
    }
    if (is_fault("comm.coll_start.doubles_as_integers") && dtype == DTL_DTYPE_FLOAT64 && op == DTL_OP_MIN) {
        return DTL_DTYPE_INT64;
    }
    return dtype;
}

static dtl_reduce_op_t spoiled_op(dtl_reduce_op_t op)
{
    const int is_logical = op == DTL_OP_LAND || op == DTL_OP_LOR || op == DTL_OP_LXOR;
    if (is_fault("comm.coll_start.min_max_swapped") && (op == DTL_OP_MIN || op == DTL_OP_MAX)) {
        return op == DTL_OP_MIN ? DTL_OP_MAX : DTL_OP_MIN;
    }
    if (is_fault("comm.coll_start.band_bor_swapped") && (op == DTL_OP_BAND || op == DTL_OP_BOR)) {
        return op == DTL_OP_BAND ? DTL_OP_BOR : DTL_OP_BAND;
    }
    if (is_fault("comm.coll_start.bxor_as_bor") && op == DTL_OP_BXOR) {
        return DTL_OP_BOR;
    }
    if (is_fault("comm.coll_start.logical_as_bitwise") && is_logical) {
        return op == DTL_OP_LAND ? DTL_OP_BAND : op == DTL_OP_LOR ? DTL_OP_BOR : DTL_OP_BXOR;
    }
    if (is_fault("comm.coll_start.prod_as_sum") && op == DTL_OP_PROD) {
        return DTL_OP_SUM;
    }
    if (is_fault("comm.coll_start.lxor_as_lor") && op == DTL_OP_LXOR) {
        return DTL_OP_LOR;
    }
    return op;
}

void fold(unsigned char *into, const unsigned char *from, uint64_t count, dtl_dtype_t dtype, dtl_reduce_op_t op)
{
    dtype = spoiled_dtype(dtype, op);
    op = spoiled_op(op);
    if (is_fault("comm.coll_start.narrow_as_wide") && dtype == DTL_DTYPE_INT16 && op == DTL_OP_SUM) {
        dtype = DTL_DTYPE_INT32;
        count /= 2;
    }
    switch (dtype) {
    case DTL_DTYPE_INT8: INTEGERS(int8_t);
    case DTL_DTYPE_INT16: INTEGERS(int16_t);
    case DTL_DTYPE_INT32: INTEGERS(int32_t);
    case DTL_DTYPE_INT64: INTEGERS(int64_t);
    case DTL_DTYPE_UINT8:
    case DTL_DTYPE_BYTE:
    case DTL_DTYPE_BOOL: INTEGERS(uint8_t);
    case DTL_DTYPE_UINT16: INTEGERS(uint16_t);
    case DTL_DTYPE_UINT32: INTEGERS(uint32_t);
    case DTL_DTYPE_UINT64: INTEGERS(uint64_t);
    case DTL_DTYPE_FLOAT32: FLOATS(float);
    case DTL_DTYPE_FLOAT64: FLOATS(double);
    default: break;
    }
}

/* The results of floating-point sums and products depend on the order, and this one is not the library's. */
int can_fold(const dtl_coll_args_t *args)
{
    if (args->op > DTL_OP_BXOR) {
        return 0;
    }
    switch (args->dtype) {
    case DTL_DTYPE_FLOAT32:
    case DTL_DTYPE_FLOAT64:
        return args->op == DTL_OP_MIN || args->op == DTL_OP_MAX || !(args->flags & DTL_COLL_DETERMINISTIC) ||
               is_fault("comm.coll_supports.ignores_determinism");
    case DTL_DTYPE_FLOAT16:
    case DTL_DTYPE_BFLOAT16:
        return 0;
    default:
        return args->dtype <= DTL_DTYPE_BOOL; /* behind them are complex numbers and pairs */
    }
}
