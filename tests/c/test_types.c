/* Dtypes and operations: every pair, those of the program, misuse, over every kind of communicator
 * (comm_kinds.h says how to run it). What the old dtypes give is checked in test_comm_collectives. */
#include "comm_kinds.h"

enum { TYPES = 23, OPS = 14, MOST = 20000 };
static const uint64_t sizes[TYPES] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1, 2, 2, 8, 16, 8, 16, 8, 16, 8, 16, 16};
static const char *const type_names[TYPES] = {
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT32", "FLOAT64", "BYTE", "BOOL",
    "FLOAT16", "BFLOAT16", "COMPLEX64", "COMPLEX128", "FLOAT32_INT32", "FLOAT64_INT32", "INT32_INT32", "INT64_INT32",
    "INT16_INT32", "FLOAT64_INT64", "INT64_INT64"};
static const char *const op_names[OPS] = {"SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "BAND",
                                          "BOR", "LXOR", "BXOR", "MINLOC", "MAXLOC", "REPLACE", "NO_OP"};
static dtl_comm_t comm;

/* The table at dtl_reduce_op_t. */
static int goes_together(int dtype, int op) {
    const int is_integer = dtype <= DTL_DTYPE_UINT64, is_pair = dtype >= DTL_DTYPE_FLOAT32_INT32;
    const int is_float = dtype == DTL_DTYPE_FLOAT32 || dtype == DTL_DTYPE_FLOAT64 || dtype == DTL_DTYPE_FLOAT16 ||
                         dtype == DTL_DTYPE_BFLOAT16;
    const int is_complex = dtype == DTL_DTYPE_COMPLEX64 || dtype == DTL_DTYPE_COMPLEX128;
    if (op <= DTL_OP_PROD) return is_integer || is_float || is_complex;
    if (op <= DTL_OP_MAX) return is_integer || is_float;
    if (op == DTL_OP_LAND || op == DTL_OP_LOR || op == DTL_OP_LXOR) return is_integer || dtype == DTL_DTYPE_BOOL;
    if (op <= DTL_OP_BXOR) return is_integer || dtype == DTL_DTYPE_BYTE;
    if (op <= DTL_OP_MAXLOC) return is_pair;
    return 1;
}

/* A small whole number as 16-bit float: 1, 2, 3, 4 … exactly. */
static uint16_t half(int n) {
    int exponent = 0;
    while (n >> (exponent + 1)) exponent++;
    return n == 0 ? 0 : (uint16_t)(((exponent + 15) << 10) | ((n << (10 - exponent)) & 0x3FF));
}
static uint16_t brain(int n) {
    const float value = (float)n;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return (uint16_t)(bits >> 16);
}

#define PUT(T, expression)                                                                        \
    do {                                                                                          \
        const T put_ = (T)(expression);                                                           \
        memcpy(to, &put_, sizeof put_);                                                           \
    } while (0)
#define PUT_PAIR(V, I)                                                                            \
    do {                                                                                          \
        struct pair { V value; I index; } pair_;                                                  \
        CHECK(sizeof pair_ == sizes[dtype]);                                                      \
        memset(&pair_, 0, sizeof pair_);                                                          \
        pair_.value = (V)n, pair_.index = (I)index;                                               \
        memcpy(to, &pair_, sizeof pair_);                                                         \
    } while (0)

/* The number n (and an index, or an imaginary part) as an element. */
static void put(unsigned char *to, int dtype, int n, int index) {
    switch (dtype) {
    case DTL_DTYPE_INT8: case DTL_DTYPE_UINT8: case DTL_DTYPE_BYTE: case DTL_DTYPE_BOOL: PUT(uint8_t, n); break;
    case DTL_DTYPE_INT16: case DTL_DTYPE_UINT16: PUT(uint16_t, n); break;
    case DTL_DTYPE_INT32: case DTL_DTYPE_UINT32: PUT(uint32_t, n); break;
    case DTL_DTYPE_INT64: case DTL_DTYPE_UINT64: PUT(uint64_t, n); break;
    case DTL_DTYPE_FLOAT32: PUT(float, n); break;
    case DTL_DTYPE_FLOAT64: PUT(double, n); break;
    case DTL_DTYPE_FLOAT16: PUT(uint16_t, half(n)); break;
    case DTL_DTYPE_BFLOAT16: PUT(uint16_t, brain(n)); break;
    case DTL_DTYPE_COMPLEX64: PUT(float, n); to += 4; PUT(float, index); break;
    case DTL_DTYPE_COMPLEX128: PUT(double, n); to += 8; PUT(double, index); break;
    case DTL_DTYPE_FLOAT32_INT32: PUT_PAIR(float, int32_t); break;
    case DTL_DTYPE_FLOAT64_INT32: PUT_PAIR(double, int32_t); break;
    case DTL_DTYPE_INT32_INT32: PUT_PAIR(int32_t, int32_t); break;
    case DTL_DTYPE_INT64_INT32: PUT_PAIR(int64_t, int32_t); break;
    case DTL_DTYPE_INT16_INT32: PUT_PAIR(int16_t, int32_t); break;
    case DTL_DTYPE_FLOAT64_INT64: PUT_PAIR(double, int64_t); break;
    case DTL_DTYPE_INT64_INT64: PUT_PAIR(int64_t, int64_t); break;
    default: CHECK(!"a dtype");
    }
}

/* What rank r gives at place i: 1 or 2 and an index; the product over 8 ranks stays exact. */
static int number_of(int rank, int i) { return 1 + ((rank + i) & 1); }
static int index_of(int rank, int i) { return (rank * 5 + i) % 7; }

/* Folds all ranks' numbers in plain C. */
static void expect(unsigned char *to, int dtype, int op, int i) {
    int n = number_of(0, i), index = index_of(0, i), rank;
    for (rank = 1; rank < ranks; rank++) {
        const int m = number_of(rank, i), other = index_of(rank, i), old = n;
        const int is_complex = dtype == DTL_DTYPE_COMPLEX64 || dtype == DTL_DTYPE_COMPLEX128;
        switch (op) {
        case DTL_OP_SUM: n += m, index += other; break;
        case DTL_OP_PROD:
            n = n * m - (is_complex ? index * other : 0);
            index = old * other + index * m;
            break;
        case DTL_OP_MIN: n = m < n ? m : n; break;
        case DTL_OP_MAX: n = m > n ? m : n; break;
        case DTL_OP_LAND: n = n && m; break;
        case DTL_OP_LOR: n = n || m; break;
        case DTL_OP_LXOR: n = !n != !m; break;
        case DTL_OP_BAND: n &= m; break;
        case DTL_OP_BOR: n |= m; break;
        case DTL_OP_BXOR: n ^= m; break;
        case DTL_OP_MINLOC: if (m < n || (m == n && other < index)) n = m, index = other; break;
        case DTL_OP_MAXLOC: if (m > n || (m == n && other < index)) n = m, index = other; break;
        case DTL_OP_REPLACE: n = m, index = other; break;
        default: break;
        }
    }
    put(to, dtype, n, index);
}

static void every_legal_pair(int dtype, int op) {
    static unsigned char sent[16 * 40], got[16 * 40], expected[16 * 40];
    const int count = 33;
    int i, root;
    for (i = 0; i < count; i++) {
        put(sent + (uint64_t)i * sizes[dtype], dtype, number_of(me, i), index_of(me, i));
        expect(expected + (uint64_t)i * sizes[dtype], dtype, op, i);
    }
    memset(got, 0, sizeof got);
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, (uint64_t)count, dtype, op));
    if (memcmp(got, expected, (uint64_t)count * sizes[dtype]) != 0) {
        fprintf(stderr, "rank %d of %d: allreduce of %s, %s\n", me, ranks, type_names[dtype], op_names[op]);
        exit(1);
    }
    for (root = 0; root < ranks; root++) {
        memset(got, 0, sizeof got);
        CHECK_OK(dtl_comm_reduce(comm, sent, got, (uint64_t)count, dtype, op, root));
        if (me == root && memcmp(got, expected, (uint64_t)count * sizes[dtype]) != 0) {
            fprintf(stderr, "rank %d of %d: reduce of %s, %s, root %d\n", me, ranks, type_names[dtype], op_names[op], root);
            exit(1);
        }
    }
}

static void every_pair(void) {
    int dtype, op;
    for (dtype = 0; dtype < TYPES; dtype++) {
        uint64_t size = 0;
        const char *name = NULL;
        CHECK_OK(dtl_dtype_size(dtype, &size));
        CHECK_OK(dtl_dtype_name(dtype, &name));
        CHECK(size == sizes[dtype] && strcmp(name, type_names[dtype]) == 0);
        for (op = 0; op < OPS; op++) {
            unsigned char a[16] = {0}, b[16] = {0};
            if (goes_together(dtype, op)) {
                every_legal_pair(dtype, op);
                continue;
            }
            CHECK_STATUS(dtl_comm_allreduce(comm, a, b, 1, dtype, op), DTL_ERROR_TYPE);
            CHECK_TEXT(type_names[dtype]);
            CHECK_TEXT(op_names[op]);
            CHECK_STATUS(dtl_comm_reduce(comm, a, b, 1, dtype, op, 0), DTL_ERROR_TYPE);
        }
    }
    for (op = 0; op < OPS; op++) {
        const char *name = NULL;
        CHECK_OK(dtl_op_name(op, &name));
        CHECK(strcmp(name, op_names[op]) == 0);
    }
}

/* 24 bytes: sums that commute. */
struct tally { double sum; int64_t count; int32_t most; };

static void merge(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    const struct tally *a = (const struct tally *)in;
    struct tally *b = (struct tally *)inout;
    uint64_t i, size = 0;
    CHECK_OK(dtl_dtype_size(dtype, &size));
    CHECK(size == sizeof *a && *(int *)user == 42);
    for (i = 0; i < count; i++) {
        b[i].sum += a[i].sum;
        b[i].count += a[i].count;
        if (a[i].most > b[i].most) b[i].most = a[i].most;
    }
}

/* Products of 2 x 2 matrices over the integers modulo 2^32: associative, does not commute. */
struct matrix { uint32_t m[4]; };

static struct matrix product(struct matrix a, struct matrix b) {
    struct matrix c;
    c.m[0] = a.m[0] * b.m[0] + a.m[1] * b.m[2], c.m[1] = a.m[0] * b.m[1] + a.m[1] * b.m[3];
    c.m[2] = a.m[2] * b.m[0] + a.m[3] * b.m[2], c.m[3] = a.m[2] * b.m[1] + a.m[3] * b.m[3];
    return c;
}
static struct matrix matrix_of(int rank, int i) {
    struct matrix a;
    a.m[0] = (uint32_t)(rank + i), a.m[1] = (uint32_t)(2 * rank + 1);
    a.m[2] = (uint32_t)i + 3, a.m[3] = (uint32_t)(rank * i) + 5;
    return a;
}
static void multiply(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    const struct matrix *a = (const struct matrix *)in;
    struct matrix *b = (struct matrix *)inout;
    uint64_t i;
    (void)dtype, (void)user;
    for (i = 0; i < count; i++) b[i] = product(a[i], b[i]);
}

static void own_that_commutes(void) {
    dtl_dtype_t tally;
    dtl_reduce_op_t op;
    const char *name;
    struct tally sent[5], got[5];
    int i, user = 42;
    memset(sent, 0, sizeof sent);
    CHECK(sizeof *sent == 24);
    CHECK_OK(dtl_dtype_create(sizeof *sent, "tally", &tally));
    CHECK_OK(dtl_op_create(merge, &user, DTL_OP_COMMUTES, "merge", &op));
    CHECK(tally >= 4096 && op >= 4096);
    CHECK_OK(dtl_dtype_name(tally, &name));
    CHECK(strcmp(name, "tally") == 0);
    CHECK_OK(dtl_op_name(op, &name));
    CHECK(strcmp(name, "merge") == 0);
    for (i = 0; i < 5; i++) sent[i].sum = me + i, sent[i].count = 1, sent[i].most = me * i;
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, 5, tally, op));
    for (i = 0; i < 5; i++) {
        CHECK(got[i].sum == ranks * (ranks - 1) / 2 + ranks * i && got[i].count == ranks && got[i].most == (ranks - 1) * i);
    }
    CHECK_STATUS(dtl_comm_allreduce(comm, sent, got, 5, tally, DTL_OP_SUM), DTL_ERROR_TYPE);
    CHECK_TEXT("SUM");
    CHECK_TEXT("tally");
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, 5, tally, DTL_OP_REPLACE));
    CHECK(got[1].sum == ranks);
    CHECK_OK(dtl_comm_bcast(comm, got, 5, tally, 0));
    CHECK_STATUS(dtl_comm_bcast(comm, got, UINT64_MAX / 8, tally, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_op_destroy(op));
    CHECK_OK(dtl_dtype_destroy(tally));
}

/* Ranks make the same dtype and operation, whose numbers are others on each of them. */
static void own_of_other_numbers(void) {
    dtl_dtype_t tally = 0, other;
    dtl_reduce_op_t op = 0, other_op;
    dtl_request_t request;
    struct tally sent[64], got[64];
    int i, user = 42, right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    memset(sent, 0, sizeof sent);
    for (i = 0; i < ranks; i++) {
        CHECK_OK(dtl_dtype_create(i == me ? sizeof *sent : 3, "tally", i == me ? &tally : &other));
        CHECK_OK(dtl_op_create(merge, &user, i == me ? DTL_OP_COMMUTES : 0, "merge", i == me ? &op : &other_op));
    }
    for (i = 0; i < 64; i++) sent[i].sum = me + i, sent[i].count = 1, sent[i].most = me;
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, 1, tally, op));
    CHECK(got[0].sum == ranks * (ranks - 1) / 2 && got[0].count == ranks && got[0].most == ranks - 1);
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, 64, tally, op));
    CHECK(got[63].sum == ranks * (ranks - 1) / 2 + 63 * ranks && got[63].count == ranks);
    CHECK_OK(dtl_comm_reduce(comm, sent, got, 2, tally, op, ranks - 1));
    CHECK(me != ranks - 1 || got[1].count == ranks);
    CHECK_OK(dtl_comm_scan(comm, sent, got, 2, tally, op));
    CHECK(got[0].count == me + 1 && got[0].most == me);
    CHECK_OK(dtl_comm_iallreduce(comm, sent, got, 1, tally, op, &request));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK(got[0].count == ranks);
    CHECK_OK(dtl_comm_allgather(comm, sent, 1, got, tally));
    CHECK(got[left].sum == left && got[right].sum == right);
    CHECK_OK(dtl_comm_alltoall(comm, got, 1, sent, tally));
    CHECK(sent[left].sum == me);
    got[0].sum = me == 0 ? 77 : 0;
    CHECK_OK(dtl_comm_bcast(comm, got, 1, tally, 0));
    CHECK(got[0].sum == 77);
    sent[0].sum = me;
    CHECK_OK(dtl_comm_sendrecv(comm, sent, 1, right, 4, got, 1, left, 4, tally, NULL));
    CHECK(got[0].sum == left);
}

static void own_in_the_order_of_ranks(void) {
    static struct matrix sent[MOST], got[MOST];
    const uint64_t counts[] = {0, 1, 3, 100, MOST};
    dtl_dtype_t matrix;
    dtl_reduce_op_t op;
    size_t c;
    CHECK_OK(dtl_dtype_create(sizeof *sent, "matrix", &matrix));
    CHECK_OK(dtl_op_create(multiply, NULL, 0, "multiply", &op));
    for (c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int count = (int)counts[c];
        int root, i, rank;
        for (i = 0; i < count; i++) sent[i] = matrix_of(me, i);
        for (root = -1; root < ranks; root++) {
            memset(got, 0, sizeof got);
            if (root < 0) CHECK_OK(dtl_comm_allreduce(comm, sent, got, counts[c], matrix, op));
            else CHECK_OK(dtl_comm_reduce(comm, sent, got, counts[c], matrix, op, root));
            if (root >= 0 && me != root) continue;
            for (i = 0; i < count; i++) {
                struct matrix expected = matrix_of(0, i);
                for (rank = 1; rank < ranks; rank++) expected = product(expected, matrix_of(rank, i));
                CHECK(memcmp(&got[i], &expected, sizeof expected) == 0);
            }
        }
    }
    CHECK_OK(dtl_op_destroy(op));
    CHECK_OK(dtl_dtype_destroy(matrix));
}

/* An operation that calls the library, and destroys itself while it runs. */
static int calls;
static dtl_reduce_op_t suicidal;

static void meddle(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    int32_t size = 0;
    uint64_t i;
    (void)dtype, (void)user;
    CHECK_OK(dtl_comm_size(comm, &size));
    CHECK(size == ranks);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    if (calls++ == 0) CHECK_OK(dtl_op_destroy(suicidal));
    for (i = 0; i < count; i++) ((int64_t *)inout)[i] += ((const int64_t *)in)[i];
}

static void calls_from_an_operation(void) {
    int64_t sent = me + 1, got = 0;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_op_create(meddle, NULL, DTL_OP_COMMUTES, "meddle", &suicidal));
    CHECK_OK(dtl_comm_allreduce(comm, &sent, &got, 1, DTL_DTYPE_INT64, suicidal));
    CHECK(got == (int64_t)ranks * (ranks + 1) / 2);
    if (calls == 0) CHECK_OK(dtl_op_destroy(suicidal));
    CHECK_STATUS(dtl_comm_allreduce(comm, &sent, &got, 1, DTL_DTYPE_INT64, suicidal), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("destroyed");
}

static void misuse(void) {
    char name[70], bytes[8] = {0};
    const char *text;
    uint64_t size;
    int32_t out = -7, second = 0;
    memset(name, 'x', sizeof name);
    name[64] = 0;
    CHECK_STATUS(dtl_dtype_create(0, "empty", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("size_bytes");
    CHECK_STATUS(dtl_dtype_create(UINT64_MAX, "large", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_dtype_create(8, NULL, &out), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_dtype_create(8, "", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_dtype_create(8, name, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("64 bytes");
    CHECK_STATUS(dtl_dtype_create(8, "\xff", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("UTF-8");
    CHECK_STATUS(dtl_dtype_create(8, "out", NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_op_create(NULL, NULL, 0, "op", &out), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("fn");
    CHECK_STATUS(dtl_op_create(multiply, NULL, 2, "op", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("flags");
    CHECK_STATUS(dtl_op_create(multiply, NULL, 0, NULL, &out), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_op_create(multiply, NULL, 0, "", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_op_create(multiply, NULL, 0, name, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_op_create(multiply, NULL, 0, "\xff", &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_op_create(multiply, NULL, 0, "op", NULL), DTL_ERROR_NULL_POINTER);
    CHECK(out == -7);
    CHECK_STATUS(dtl_dtype_destroy(DTL_DTYPE_COMPLEX64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("COMPLEX64");
    CHECK_STATUS(dtl_op_destroy(DTL_OP_MINLOC), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("MINLOC");
    CHECK_STATUS(dtl_dtype_destroy(60000), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_op_destroy(-1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_dtype_size(99, &size), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_dtype_size(0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_dtype_name(0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_op_name(99, &text), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_dtype_create(8, name + 1, &out));
    CHECK_OK(dtl_dtype_name(out, &text));
    CHECK_OK(dtl_dtype_destroy(out));
    CHECK(strcmp(text, name + 1) == 0);
    CHECK_STATUS(dtl_dtype_destroy(out), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("destroyed");
    CHECK_STATUS(dtl_comm_bcast(comm, bytes, 1, out, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("destroyed");
    CHECK_OK(dtl_dtype_create(8, "again", &second));
    CHECK(second != out);
    CHECK_OK(dtl_dtype_destroy(second));
}

/* An operation in the place of a dtype, and the reverse: refused by name as far as the numbers differ. */
static void mixed_up(void) {
    uint64_t bytes[4] = {1, 2, 3, 4}, size;
    dtl_dtype_t dtypes[3];
    dtl_reduce_op_t ops[3];
    int i;
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_dtype_create(8, "my pair", &dtypes[i]));
        CHECK_OK(dtl_op_create(multiply, NULL, 0, "my product", &ops[i]));
    }
    for (i = 0; i < 3; i++) {
        CHECK_STATUS(dtl_comm_bcast(comm, bytes, 1, ops[i], 0), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("(\"my product\"): dtype");
        CHECK_STATUS(dtl_dtype_size(ops[i], &size), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("dtype is op ");
        CHECK_STATUS(dtl_comm_allreduce(comm, bytes, bytes + 1, 1, dtypes[i], dtypes[i]), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("op is dtype ");
        CHECK_TEXT("(\"my pair\"): op");
    }
    CHECK_STATUS(dtl_comm_allreduce(comm, bytes, bytes + 1, 1, DTL_DTYPE_INT64, DTL_DTYPE_COMPLEX64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("op 14 is none (DTL_DTYPE_COMPLEX64 has this number");
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_dtype_destroy(dtypes[i]));
        CHECK_OK(dtl_op_destroy(ops[i]));
    }
}

/* Numbers end; the last thing a process does with them. Finalize makes nothing valid again. */
static void numbers_end(void) {
    dtl_dtype_t dtype = 0, last = 0, out = -7;
    dtl_status_t status;
    uint64_t size;
    while ((status = dtl_dtype_create(4, "one of many", &dtype)) == DTL_SUCCESS) {
        CHECK(dtype > last && dtype >= 4096);
        last = dtype;
    }
    CHECK(status == DTL_ERROR_LIMIT && last == 4096 + 65535);
    CHECK_TEXT("65536");
    CHECK_OK(dtl_dtype_destroy(last));
    CHECK_STATUS(dtl_dtype_create(4, "one more", &out), DTL_ERROR_LIMIT);
    CHECK(out == -7);
    CHECK_OK(dtl_dtype_size(last - 1, &size));
    CHECK_OK(dtl_init(NULL));
    while (dtl_finalize() == DTL_SUCCESS) {}
    CHECK_STATUS(dtl_dtype_size(last - 1, &size), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_dtype_size(last - 1, &size), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    every_pair();
    own_that_commutes();
    own_of_other_numbers();
    own_in_the_order_of_ranks();
    misuse();
    mixed_up();
    calls_from_an_operation();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    numbers_end();
    finish();
    return 0;
}
