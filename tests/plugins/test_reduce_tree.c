/* Collective slots of a registered communicator, with the example plugin "reduce_tree": what it supports is run by
 * its slots and is right for each dtype and operation, everything else by the library. Run by dtlrun. */
#define _GNU_SOURCE
#include "../c/check.h"
#include <string.h>
#include <time.h>

static int32_t rank, size_of_job;

static int explained(const char *text) {
    static char all[1 << 16];
    CHECK_OK(dtl_explain(all, sizeof all, NULL));
    return strstr(all, text) != NULL;
}

/* ---- a serial reference: elements as whole numbers, which every dtype and operation has exactly ---- */

enum { SIGNED, UNSIGNED, FLOATING, BYTES, BOOLEAN, COMPLEX, PAIR };

static const struct {
    dtl_dtype_t dtype;
    int what;
    dtl_dtype_t parts; /* type of both parts, or of the value of a pair */
    dtl_dtype_t index; /* of a pair */
} types[] = {
    {DTL_DTYPE_INT8, SIGNED, 0, 0},
    {DTL_DTYPE_INT16, SIGNED, 0, 0},
    {DTL_DTYPE_INT32, SIGNED, 0, 0},
    {DTL_DTYPE_INT64, SIGNED, 0, 0},
    {DTL_DTYPE_UINT8, UNSIGNED, 0, 0},
    {DTL_DTYPE_UINT16, UNSIGNED, 0, 0},
    {DTL_DTYPE_UINT32, UNSIGNED, 0, 0},
    {DTL_DTYPE_UINT64, UNSIGNED, 0, 0},
    {DTL_DTYPE_FLOAT32, FLOATING, 0, 0},
    {DTL_DTYPE_FLOAT64, FLOATING, 0, 0},
    {DTL_DTYPE_BYTE, BYTES, 0, 0},
    {DTL_DTYPE_BOOL, BOOLEAN, 0, 0},
    {DTL_DTYPE_FLOAT16, FLOATING, 0, 0},
    {DTL_DTYPE_BFLOAT16, FLOATING, 0, 0},
    {DTL_DTYPE_COMPLEX64, COMPLEX, DTL_DTYPE_FLOAT32, DTL_DTYPE_FLOAT32},
    {DTL_DTYPE_COMPLEX128, COMPLEX, DTL_DTYPE_FLOAT64, DTL_DTYPE_FLOAT64},
    {DTL_DTYPE_FLOAT32_INT32, PAIR, DTL_DTYPE_FLOAT32, DTL_DTYPE_INT32},
    {DTL_DTYPE_FLOAT64_INT32, PAIR, DTL_DTYPE_FLOAT64, DTL_DTYPE_INT32},
    {DTL_DTYPE_INT32_INT32, PAIR, DTL_DTYPE_INT32, DTL_DTYPE_INT32},
    {DTL_DTYPE_INT64_INT32, PAIR, DTL_DTYPE_INT64, DTL_DTYPE_INT32},
    {DTL_DTYPE_INT16_INT32, PAIR, DTL_DTYPE_INT16, DTL_DTYPE_INT32},
    {DTL_DTYPE_FLOAT64_INT64, PAIR, DTL_DTYPE_FLOAT64, DTL_DTYPE_INT64},
    {DTL_DTYPE_INT64_INT64, PAIR, DTL_DTYPE_INT64, DTL_DTYPE_INT64},
};
enum { TYPES = sizeof types / sizeof *types, OPS = DTL_OP_NO_OP + 1 };

/* An element: its value, or the two of its parts. */
typedef struct value_t {
    int64_t a, b;
} value_t;

static uint64_t size_of(dtl_dtype_t dtype) {
    uint64_t bytes;
    CHECK_OK(dtl_dtype_size(dtype, &bytes));
    return bytes;
}

/* A binary16 of a whole number up to 2048. */
static uint16_t half(int64_t value) {
    const uint64_t size = (uint64_t)(value < 0 ? -value : value);
    unsigned exponent = 0;
    if (value == 0) return 0;
    while (size >> (exponent + 1) != 0) exponent++;
    return (uint16_t)((value < 0 ? 0x8000u : 0u) | (exponent + 15) << 10 |
                      (unsigned)(((size << 10) >> exponent) & 0x3FF));
}

static int64_t of_half(uint16_t bits) {
    const unsigned exponent = bits >> 10 & 31;
    const int64_t size = exponent < 15 ? 0 : (int64_t)((UINT64_C(1024) | (bits & 0x3FFu)) << (exponent - 15) >> 10);
    return bits >> 15 ? -size : size;
}

static void put_number(unsigned char *at, dtl_dtype_t dtype, int64_t value) {
    const float small = (float)value;
    const double large = (double)value;
    const uint16_t bits = half(value);
    if (dtype == DTL_DTYPE_FLOAT32) memcpy(at, &small, 4);
    else if (dtype == DTL_DTYPE_FLOAT64) memcpy(at, &large, 8);
    else if (dtype == DTL_DTYPE_FLOAT16) memcpy(at, &bits, 2);
    else if (dtype == DTL_DTYPE_BFLOAT16) memcpy(at, (const unsigned char *)&small + 2, 2);
    else memcpy(at, &value, size_of(dtype)); /* the low bytes come first */
}

static int64_t number_at(const unsigned char *at, dtl_dtype_t dtype) {
    unsigned char bytes[4] = {0, 0, 0, 0};
    float small;
    double large;
    uint16_t bits;
    int64_t value = 0;
    const uint64_t size = size_of(dtype);
    if (dtype == DTL_DTYPE_FLOAT32) return memcpy(&small, at, 4), (int64_t)small;
    if (dtype == DTL_DTYPE_FLOAT64) return memcpy(&large, at, 8), (int64_t)large;
    if (dtype == DTL_DTYPE_FLOAT16) return memcpy(&bits, at, 2), of_half(bits);
    if (dtype == DTL_DTYPE_BFLOAT16) {
        memcpy(bytes + 2, at, 2);
        memcpy(&small, bytes, 4);
        return (int64_t)small;
    }
    memcpy(&value, at, size);
    if (dtype <= DTL_DTYPE_INT64 && size < 8 && value >> (8 * size - 1) != 0) value -= INT64_C(1) << (8 * size);
    return value;
}

static void put(unsigned char *at, int type, value_t value) {
    const int has_parts = types[type].what >= COMPLEX;
    put_number(at, has_parts ? types[type].parts : types[type].dtype, value.a);
    if (has_parts) put_number(at + size_of(types[type].dtype) / 2, types[type].index, value.b);
}

static value_t value_at(const unsigned char *at, int type) {
    const int has_parts = types[type].what >= COMPLEX;
    value_t value = {0, 0};
    value.a = number_at(at, has_parts ? types[type].parts : types[type].dtype);
    if (has_parts) value.b = number_at(at + size_of(types[type].dtype) / 2, types[type].index);
    return value;
}

/* The table at dtl_reduce_op_t. */
static int is_defined(int what, dtl_reduce_op_t op) {
    const int is_integer = what == SIGNED || what == UNSIGNED;
    switch (op) {
    case DTL_OP_SUM:
    case DTL_OP_PROD: return is_integer || what == FLOATING || what == COMPLEX;
    case DTL_OP_MIN:
    case DTL_OP_MAX: return is_integer || what == FLOATING;
    case DTL_OP_LAND:
    case DTL_OP_LOR:
    case DTL_OP_LXOR: return is_integer || what == BOOLEAN;
    case DTL_OP_BAND:
    case DTL_OP_BOR:
    case DTL_OP_BXOR: return is_integer || what == BYTES;
    case DTL_OP_MINLOC:
    case DTL_OP_MAXLOC: return what == PAIR;
    default: return 1;
    }
}

/* Operands whose results 8 ranks do not make inexact in any dtype. */
static value_t input(int what, dtl_reduce_op_t op, int32_t of, uint64_t at) {
    const uint64_t random = ((uint64_t)of * 977 + at * 31 + 7) * UINT64_C(2654435761) >> 7;
    value_t value = {0, 0};
    if (what == COMPLEX || what == PAIR) {
        value.a = (int64_t)(random % 3) - 1;
        value.b = what == PAIR ? (int64_t)(random / 3 % 50) : (int64_t)(random / 3 % 3) - 1;
    } else if (op == DTL_OP_PROD) {
        value.a = (int64_t)(1 + random % 2) * (what != UNSIGNED && random / 2 % 2 ? -1 : 1);
    } else if (what == BOOLEAN) {
        value.a = (int64_t)(random % 2);
    } else if (op == DTL_OP_BAND || op == DTL_OP_BOR || op == DTL_OP_BXOR) {
        value.a = (int64_t)(random % 256) - (what == SIGNED ? 128 : 0);
    } else if (op == DTL_OP_LAND || op == DTL_OP_LOR || op == DTL_OP_LXOR) {
        value.a = (int64_t)(random % 3);
    } else {
        value.a = (int64_t)(random % 15) - (what == SIGNED || what == FLOATING ? 7 : 0);
    }
    return value;
}

static value_t folded(int what, dtl_reduce_op_t op, value_t l, value_t r) {
    value_t value = l;
    switch (op) {
    case DTL_OP_SUM: value.a = l.a + r.a, value.b = l.b + r.b; break;
    case DTL_OP_PROD:
        value.a = l.a * r.a - (what == COMPLEX ? l.b * r.b : 0);
        value.b = l.a * r.b + l.b * r.a;
        break;
    case DTL_OP_MIN: value.a = r.a < l.a ? r.a : l.a; break;
    case DTL_OP_MAX: value.a = r.a > l.a ? r.a : l.a; break;
    case DTL_OP_LAND: value.a = l.a && r.a; break;
    case DTL_OP_LOR: value.a = l.a || r.a; break;
    case DTL_OP_LXOR: value.a = !l.a != !r.a; break;
    case DTL_OP_BAND: value.a = l.a & r.a; break;
    case DTL_OP_BOR: value.a = l.a | r.a; break;
    case DTL_OP_BXOR: value.a = l.a ^ r.a; break;
    case DTL_OP_MINLOC:
    case DTL_OP_MAXLOC: {
        const int64_t before = op == DTL_OP_MINLOC ? r.a - l.a : l.a - r.a;
        if (before < 0 || (before == 0 && r.b < l.b)) value = r;
        break;
    }
    case DTL_OP_REPLACE: value = r; break;
    default: break;
    }
    return value;
}

/* ---- allreduce and barrier against it ---- */

enum { ROOM = 1 << 14 };
static unsigned char mine[ROOM], got[ROOM + 1];

static void expect(int type, dtl_reduce_op_t op, uint64_t count) {
    const uint64_t size = size_of(types[type].dtype);
    unsigned char encoded[16];
    uint64_t i;
    for (i = 0; i < count; i++) {
        value_t is = value_at(got + i * size, type), should = input(types[type].what, op, 0, i);
        int32_t other;
        for (other = 1; other < size_of_job; other++) {
            should = folded(types[type].what, op, should, input(types[type].what, op, other, i));
        }
        put(encoded, type, should); /* integers wrap around */
        should = value_at(encoded, type);
        if (is.a != should.a || is.b != should.b) {
            const char *dtype_name, *op_name;
            CHECK_OK(dtl_dtype_name(types[type].dtype, &dtype_name));
            CHECK_OK(dtl_op_name(op, &op_name));
            fprintf(stderr, "%s by %s, element %u of %u: (%lld, %lld), expected (%lld, %lld)\n", dtype_name, op_name,
                    (unsigned)i, (unsigned)count, (long long)is.a, (long long)is.b, (long long)should.a,
                    (long long)should.b);
            exit(1);
        }
    }
    CHECK(got[count * size] == 0xAA);
}

static void allreduce(dtl_comm_t comm, int type, dtl_reduce_op_t op, uint64_t count, int in_all_forms) {
    const dtl_dtype_t dtype = types[type].dtype;
    const uint64_t size = size_of(dtype);
    dtl_request_t request;
    uint64_t i;
    CHECK(count * size <= ROOM);
    for (i = 0; i < count; i++) put(mine + i * size, type, input(types[type].what, op, rank, i));
    memset(got, 0xAA, sizeof got);
    CHECK_OK(dtl_comm_allreduce(comm, mine, got, count, dtype, op));
    expect(type, op, count);
    if (!in_all_forms) return;
    memcpy(got, mine, count * size);
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, got, count, dtype, op));
    expect(type, op, count);
    memset(got, 0xAA, sizeof got);
    CHECK_OK(dtl_comm_iallreduce(comm, mine, got, count, dtype, op, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    expect(type, op, count);
}

/* Every dtype with every operation, whether the switch has it or the library does it. */
static void every_pair(dtl_comm_t comm, int in_all_forms) {
    int type;
    dtl_reduce_op_t op;
    for (type = 0; type < TYPES; type++) {
        for (op = 0; op < OPS; op++) {
            if (is_defined(types[type].what, op)) {
                allreduce(comm, type, op, 5, in_all_forms);
                continue;
            }
            memset(got, 0xAA, sizeof got);
            CHECK_STATUS(dtl_comm_allreduce(comm, mine, got, 5, types[type].dtype, op), DTL_ERROR_TYPE);
            CHECK(got[0] == 0xAA);
        }
    }
}

/* No element, and sizes around the 4096 bytes that the switch takes. */
static void sizes(dtl_comm_t comm) {
    static const uint64_t counts[] = {0, 1, 512, 513, 1000};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int type;
        for (type = 0; type < TYPES; type++) {
            allreduce(comm, type, is_defined(types[type].what, DTL_OP_SUM) ? DTL_OP_SUM : DTL_OP_NO_OP, counts[c], 0);
        }
    }
}

/* A sum that is a NaN has the same bits as the library's: positive, quiet, no payload. */
static void one_nan(dtl_comm_t comm) {
    const uint32_t small_in = 0xFFC00001u;
    const uint64_t large_in = UINT64_C(0xFFF8000000000001);
    uint32_t small = 0;
    uint64_t large = 0;
    if (size_of_job == 1) return;
    CHECK_OK(dtl_comm_allreduce(comm, &small_in, &small, 1, DTL_DTYPE_FLOAT32, DTL_OP_SUM));
    CHECK_OK(dtl_comm_allreduce(comm, &large_in, &large, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    CHECK(small == 0x7FC00000u && large == UINT64_C(0x7FF8000000000000));
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nobody leaves before the last one has come, whoever that is. */
static void barrier_waits_for_all(dtl_comm_t comm, dtl_comm_t plain) {
    const struct timespec late = {0, 20000000};
    int32_t last;
    for (last = 0; last < size_of_job; last++) {
        const uint64_t begin = now_ns();
        CHECK_OK(dtl_comm_barrier(plain)); /* so before the last one goes to sleep */
        if (rank == last) nanosleep(&late, NULL);
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK(now_ns() - begin >= 20000000);
    }
}

static void add(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    uint64_t i;
    (void)dtype, (void)user;
    for (i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
}

int main(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm, plain, limited, half;
    dtl_request_t requests[8];
    int32_t in[8], out[8], i;
    dtl_reduce_op_t own;
    CHECK_OK(dtl_init(NULL));
    desc.kind = "reduce_tree";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size_of_job));
    CHECK(!explained("barrier by"));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(explained("barrier by reduce_tree: executed by the backend itself"));
    /* A duplicate has another context, which this backend does not support. */
    CHECK_OK(dtl_comm_dup(comm, &plain));
    barrier_waits_for_all(comm, plain);
    CHECK(!explained("allreduce by reduce_tree"));
    every_pair(plain, 0);
    CHECK(!explained("allreduce by reduce_tree"));
    every_pair(comm, 1);
    sizes(comm);
    one_nan(comm);
    one_nan(plain);
    CHECK(explained("allreduce by reduce_tree: executed by the backend itself"));
    /* Several in flight, by slot and by messages. */
    for (i = 0; i < 8; i++) {
        in[i] = rank + i;
        CHECK_OK(dtl_comm_iallreduce(comm, &in[i], &out[i], 1, DTL_DTYPE_INT32, i % 2 ? DTL_OP_SUM : DTL_OP_LAND,
                                     &requests[i]));
    }
    CHECK_OK(dtl_request_wait_all(requests, 8, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(out[1] == size_of_job * (size_of_job - 1) / 2 + size_of_job);
    /* An operation of the program's own, and some of the ranks: the library's. */
    CHECK_OK(dtl_op_create(add, NULL, DTL_OP_COMMUTES, "add", &own));
    CHECK_OK(dtl_comm_allreduce(comm, &rank, &out[0], 1, DTL_DTYPE_INT32, own));
    CHECK(out[0] == size_of_job * (size_of_job - 1) / 2);
    CHECK_OK(dtl_op_destroy(own));
    CHECK_OK(dtl_comm_split(comm, rank % 2, -rank, &half));
    CHECK_OK(dtl_comm_allreduce(half, &rank, &out[0], 1, DTL_DTYPE_INT32, DTL_OP_MAX));
    CHECK(out[0] == (size_of_job - 1) - ((size_of_job - 1) % 2 != rank % 2));
    CHECK_OK(dtl_comm_destroy(half));
    /* A time limit ends a collective that not all ranks call; the buffers are free then. */
    desc.timeout_ns = UINT64_C(3000000000); /* also for the opening */
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_open(&desc, &limited));
    if (rank == 0 && size_of_job > 1) {
        CHECK_STATUS(dtl_comm_allreduce(limited, &rank, &out[0], 1, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_TIMEOUT);
        CHECK(strstr(dtl_last_error(), "allreduce #") != NULL);
        CHECK_STATUS(dtl_comm_barrier(limited), DTL_ERROR_INVALID_STATE);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(limited));
    CHECK_OK(dtl_comm_destroy(plain));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
