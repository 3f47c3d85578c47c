/* Collectives against results computed here, over every kind of communicator (comm_kinds.h says how to
 * run it). */
#include "comm_kinds.h"
#include <pthread.h>

enum { LARGEST = 100003, TYPES = 12, OPS = 10 };
static const int type_sizes[TYPES] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1};
static dtl_comm_t comm;
static unsigned char *sent, *got, *expected, *other;

static int goes_together(int dtype, int op) {
    if (dtype == DTL_DTYPE_FLOAT32 || dtype == DTL_DTYPE_FLOAT64) return op <= DTL_OP_MAX;
    if (dtype == DTL_DTYPE_BYTE) return op == DTL_OP_BAND || op == DTL_OP_BOR || op == DTL_OP_BXOR;
    if (dtype == DTL_DTYPE_BOOL) return op == DTL_OP_LAND || op == DTL_OP_LOR || op == DTL_OP_LXOR;
    return 1;
}

static uint64_t scrambled(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The elements of a rank. Floats are small whole numbers, so that every order gives the same. */
static void make(unsigned char *to, int dtype, int op, uint64_t count, int rank) {
    uint64_t i;
    for (i = 0; i < count; i++) {
        const uint64_t bits = scrambled(i * 64 + (uint64_t)rank * 7 + (uint64_t)op);
        if (dtype == DTL_DTYPE_FLOAT32 || dtype == DTL_DTYPE_FLOAT64) {
            const double value = op == DTL_OP_PROD ? (bits & 1 ? 2 : -1) : (double)(bits % 7) - 3;
            const float narrow = (float)value;
            if (dtype == DTL_DTYPE_FLOAT32) memcpy(to + 4 * i, &narrow, 4);
            else memcpy(to + 8 * i, &value, 8);
        } else {
            /* Zeros often, for the logical ones. */
            const uint64_t value = bits & 256 ? 0 : bits >> 9;
            memcpy(to + (uint64_t)type_sizes[dtype] * i, &value, (size_t)type_sizes[dtype]);
        }
    }
}

#define FOLD_NUMBER(T, U)                                                             \
    case DTL_OP_SUM: r = (T)((U)a + (U)b); break;                                     \
    case DTL_OP_PROD: r = (T)((U)a * (U)b); break;                                    \
    case DTL_OP_MIN: r = a < b ? a : b; break;                                        \
    case DTL_OP_MAX: r = a > b ? a : b; break;
#define FOLD_INTEGER(T)                                                               \
    case DTL_OP_LAND: r = (T)(a && b); break;                                         \
    case DTL_OP_LOR: r = (T)(a || b); break;                                          \
    case DTL_OP_LXOR: r = (T)(!a != !b); break;                                       \
    case DTL_OP_BAND: r = (T)(a & b); break;                                          \
    case DTL_OP_BOR: r = (T)(a | b); break;                                           \
    case DTL_OP_BXOR: r = (T)(a ^ b); break;
#define FOLD(name, T, NUMBER, INTEGER)                                                \
    static void name(int op, void *into, const void *from, uint64_t count) {          \
        uint64_t i;                                                                   \
        for (i = 0; i < count; i++) {                                                 \
            T a, b, r = 0;                                                            \
            memcpy(&a, (char *)into + i * sizeof a, sizeof a);                        \
            memcpy(&b, (const char *)from + i * sizeof b, sizeof b);                  \
            switch (op) { NUMBER INTEGER default: CHECK(!"an operation"); }           \
            memcpy((char *)into + i * sizeof r, &r, sizeof r);                        \
        }                                                                             \
    }
FOLD(fold_i8, int8_t, FOLD_NUMBER(int8_t, uint32_t), FOLD_INTEGER(int8_t))
FOLD(fold_i16, int16_t, FOLD_NUMBER(int16_t, uint32_t), FOLD_INTEGER(int16_t))
FOLD(fold_i32, int32_t, FOLD_NUMBER(int32_t, uint32_t), FOLD_INTEGER(int32_t))
FOLD(fold_i64, int64_t, FOLD_NUMBER(int64_t, uint64_t), FOLD_INTEGER(int64_t))
FOLD(fold_u8, uint8_t, FOLD_NUMBER(uint8_t, uint32_t), FOLD_INTEGER(uint8_t))
FOLD(fold_u16, uint16_t, FOLD_NUMBER(uint16_t, uint32_t), FOLD_INTEGER(uint16_t))
FOLD(fold_u32, uint32_t, FOLD_NUMBER(uint32_t, uint32_t), FOLD_INTEGER(uint32_t))
FOLD(fold_u64, uint64_t, FOLD_NUMBER(uint64_t, uint64_t), FOLD_INTEGER(uint64_t))
FOLD(fold_f32, float, FOLD_NUMBER(float, float), )
FOLD(fold_f64, double, FOLD_NUMBER(double, double), )

static void (*const folds[TYPES])(int, void *, const void *, uint64_t) = {
    fold_i8, fold_i16, fold_i32, fold_i64, fold_u8, fold_u16, fold_u32, fold_u64, fold_f32, fold_f64, fold_u8, fold_u8};

static void expect_fold(int dtype, int op, uint64_t count) {
    int rank;
    make(expected, dtype, op, count, 0);
    for (rank = 1; rank < ranks; rank++) {
        make(other, dtype, op, count, rank);
        folds[dtype](op, expected, other, count);
    }
}

/* One allreduce, and a reduce to each root from `first` on. */
static void check_reductions(int dtype, int op, uint64_t count, int first) {
    const uint64_t size = count * (uint64_t)type_sizes[dtype];
    int root;
    expect_fold(dtype, op, count);
    make(sent, dtype, op, count, me);
    memset(got, 0xEE, size + 8);
    CHECK_OK(dtl_comm_allreduce(comm, sent, got, count, dtype, op));
    if (memcmp(got, expected, size) != 0) {
        fprintf(stderr, "rank %d of %d: allreduce of %d x dtype %d, op %d\n", me, ranks, (int)count, dtype, op);
        exit(1);
    }
    CHECK(is_all(got + size, 8, 0xEE));
    for (root = first; root < ranks; root++) {
        memset(got, 0xEE, size + 8);
        CHECK_OK(dtl_comm_reduce(comm, sent, me == root ? got : NULL, count, dtype, op, root));
        if (me == root ? memcmp(got, expected, size) != 0 : !is_all(got, size, 0xEE)) {
            fprintf(stderr, "rank %d of %d: reduce of %d x dtype %d, op %d, root %d\n", me, ranks, (int)count,
                    dtype, op, root);
            exit(1);
        }
        CHECK(is_all(got + size, 8, 0xEE));
    }
}

static void every_pair_of_type_and_operation(void) {
    const uint64_t counts[] = {0, 1, 2, 3, 7, 64, 1000};
    int dtype, op;
    size_t i;
    for (dtype = 0; dtype < TYPES; dtype++) {
        for (op = 0; op < OPS; op++) {
            if (!goes_together(dtype, op)) {
                CHECK_STATUS(dtl_comm_allreduce(comm, sent, got, 1, dtype, op), DTL_ERROR_TYPE);
                CHECK_STATUS(dtl_comm_reduce(comm, sent, got, 1, dtype, op, 0), DTL_ERROR_TYPE);
                continue;
            }
            for (i = 0; i < sizeof counts / sizeof *counts; i++) {
                check_reductions(dtype, op, counts[i], counts[i] == 7 ? ranks - 1 : ranks);
            }
        }
    }
    for (i = 0; i < sizeof counts / sizeof *counts; i++) check_reductions(DTL_DTYPE_INT32, DTL_OP_SUM, counts[i], 0);
    check_reductions(DTL_DTYPE_FLOAT64, DTL_OP_SUM, LARGEST, 0);
    check_reductions(DTL_DTYPE_INT8, DTL_OP_MAX, LARGEST, ranks - 1);
    check_reductions(DTL_DTYPE_UINT16, DTL_OP_BXOR, LARGEST, ranks - 1);
    check_reductions(DTL_DTYPE_INT64, DTL_OP_PROD, 4097, ranks - 1);
}

/* Blocks of bytes; block `number` of rank `rank` has pattern 16 * rank + number. */
static void moving_data(uint64_t count, int dtype) {
    const uint64_t block = count * (uint64_t)type_sizes[dtype], all = block * (uint64_t)ranks;
    int root, rank;
    for (root = 0; root < ranks; root++) {
        memset(got, 0xEE, all + 8);
        if (me == root) fill(got, block, root);
        CHECK_OK(dtl_comm_bcast(comm, got, count, dtype, root));
        CHECK(is_filled(got, block, root) && is_all(got + block, 8, 0xEE));

        fill(sent, block, 16 * me);
        memset(got, 0xEE, all + 8);
        CHECK_OK(dtl_comm_gather(comm, sent, count, me == root ? got : NULL, dtype, root));
        for (rank = 0; me == root && rank < ranks; rank++) {
            CHECK(is_filled(got + (uint64_t)rank * block, block, 16 * rank));
        }
        CHECK(is_all(got + (me == root ? all : 0), 8, 0xEE));

        for (rank = 0; rank < ranks; rank++) fill(sent + (uint64_t)rank * block, block, 16 * me + rank);
        memset(got, 0xEE, all + 8);
        CHECK_OK(dtl_comm_scatter(comm, me == root ? sent : NULL, count, got, dtype, root));
        CHECK(is_filled(got, block, 16 * root + me) && is_all(got + block, 8, 0xEE));
    }
    memset(got, 0xEE, all + 8);
    fill(sent, block, 16 * me);
    CHECK_OK(dtl_comm_allgather(comm, sent, count, got, dtype));
    for (rank = 0; rank < ranks; rank++) CHECK(is_filled(got + (uint64_t)rank * block, block, 16 * rank));
    CHECK(is_all(got + all, 8, 0xEE));

    for (rank = 0; rank < ranks; rank++) fill(sent + (uint64_t)rank * block, block, 16 * me + rank);
    memset(got, 0xEE, all + 8);
    CHECK_OK(dtl_comm_alltoall(comm, sent, count, got, dtype));
    for (rank = 0; rank < ranks; rank++) CHECK(is_filled(got + (uint64_t)rank * block, block, 16 * rank + me));
    CHECK(is_all(got + all, 8, 0xEE));
}

/* Numbers whose order of folding shows: NaNs of several kinds, zeros of both signs, roundings. */
static void identical_bits_everywhere(void) {
    const uint64_t specials[] = {UINT64_C(0x7FF8000000000001), UINT64_C(0xFFF8000000000002), 0,
                                 UINT64_C(0x8000000000000000), UINT64_C(0x7FF0000000000000),
                                 UINT64_C(0xFFF0000000000000), UINT64_C(0x3FF0000000000001)};
    const uint64_t counts[] = {64, 999, 5000};
    uint64_t i, k;
    int op, rank;
    for (k = 0; k < 3; k++) {
        const uint64_t count = counts[k];
        for (i = 0; i < count; i++) {
            const uint64_t bits = scrambled(i * 16 + (uint64_t)me);
            const double value = (double)(int64_t)bits * 1e-10;
            if (i % 3 == 0) memcpy(sent + 8 * i, &value, 8);
            else memcpy(sent + 8 * i, &specials[bits % 7], 8);
        }
        for (op = DTL_OP_SUM; op <= DTL_OP_MAX; op++) {
            CHECK_OK(dtl_comm_allreduce(comm, sent, got, count, DTL_DTYPE_FLOAT64, op));
            CHECK_OK(dtl_comm_allgather(comm, got, count, other, DTL_DTYPE_FLOAT64));
            for (rank = 0; rank < ranks; rank++) {
                if (memcmp(other + 8 * count * (uint64_t)rank, got, 8 * count) != 0) {
                    fprintf(stderr, "ranks %d and %d have other bits: op %d, count %d\n", me, rank, op, (int)count);
                    exit(1);
                }
            }
        }
    }
}

static void users_receive_takes_no_message_of_ours(void) {
    char buffer[8];
    int32_t value = me, sum;
    dtl_request_t request;
    dtl_recv_info_t info;
    int done = 0;
    CHECK_OK(dtl_comm_irecv(comm, buffer, 8, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, DTL_ANY_TAG, &request));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_allreduce(comm, &value, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK_OK(dtl_comm_bcast(comm, &value, 1, DTL_DTYPE_INT32, 0));
    moving_data(3, DTL_DTYPE_INT16);
    CHECK_OK(dtl_request_test(request, &done, NULL));
    CHECK(done == 0);
    CHECK_OK(dtl_comm_send(comm, "message", 8, DTL_DTYPE_BYTE, me, 0));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, &info));
    CHECK(strcmp(buffer, "message") == 0 && info.tag == 0 && info.source == me);
}

static void unaligned_buffers(void) {
    int32_t values[3] = {me, 1, -me}, sums[3];
    memcpy(sent + 1, values, sizeof values);
    CHECK_OK(dtl_comm_allreduce(comm, sent + 1, got + 3, 3, DTL_DTYPE_INT32, DTL_OP_SUM));
    memcpy(sums, got + 3, sizeof sums);
    CHECK(sums[0] == ranks * (ranks - 1) / 2 && sums[1] == ranks && sums[2] == -sums[0]);
}

static void wrong_arguments(void) {
    int32_t a[64] = {0}, b[64];
    CHECK_STATUS(dtl_comm_bcast(comm, a, 1, DTL_DTYPE_INT32, ranks), DTL_ERROR_INVALID_RANK);
    CHECK_TEXT("root");
    CHECK_STATUS(dtl_comm_bcast(comm, a, 1, DTL_DTYPE_INT32, -1), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_reduce(comm, a, b, 1, DTL_DTYPE_INT32, DTL_OP_SUM, ranks), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_gather(comm, a, 1, b, DTL_DTYPE_INT32, ranks), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_scatter(comm, a, 1, b, DTL_DTYPE_INT32, -3), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_allreduce(comm, a, b, 1, 99, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("99");
    CHECK_STATUS(dtl_comm_allreduce(comm, a, b, 1, DTL_DTYPE_INT32, 14), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("14");
    CHECK_STATUS(dtl_comm_allreduce(comm, a, b, 1, DTL_DTYPE_FLOAT64, DTL_OP_BAND), DTL_ERROR_TYPE);
    CHECK_TEXT("FLOAT64");
    CHECK_STATUS(dtl_comm_allreduce(comm, NULL, b, 1, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_allreduce(comm, a, NULL, 1, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("rbuf");
    CHECK_STATUS(dtl_comm_allreduce(comm, a, a + 1, 2, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("overlap");
    CHECK_STATUS(dtl_comm_allgather(comm, a, 1, a, DTL_DTYPE_INT32), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_alltoall(comm, a, 1, a, DTL_DTYPE_INT32), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_alltoall(comm, a, UINT64_MAX / 2, b, DTL_DTYPE_INT32), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_allgather(comm, a, UINT64_MAX, b, DTL_DTYPE_INT8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_barrier(DTL_COMM_NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_allreduce(comm, NULL, NULL, 0, DTL_DTYPE_INT32, DTL_OP_SUM));
    /* None of this puts the ranks out of step. */
    CHECK_OK(dtl_comm_barrier(comm));
}

/* Whether rank 0 has seen that the others' count differs; else they were too late for its time limit. */
static int disagree(dtl_comm_t doomed) {
    int32_t a[8] = {0}, b[8], is_late, any_is_late = 0;
    dtl_request_t both[2];
    dtl_status_t status;
    memset(b, 0xEE, sizeof b);
    status = dtl_comm_allreduce(doomed, a, b, me == 0 ? 3 : 4, DTL_DTYPE_INT32, DTL_OP_SUM);
    is_late = (me == 0 || ranks == 2) && status == DTL_ERROR_TIMEOUT;
    if (me == 0 || ranks == 2) {
        CHECK(is_late || status == DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("allreduce");
        CHECK(is_late || (strstr(dtl_last_error(), "count 3") != NULL && strstr(dtl_last_error(), "count 4") != NULL));
    } else {
        CHECK(status == DTL_ERROR_INVALID_ARGUMENT || status == DTL_ERROR_TIMEOUT);
    }
    CHECK_STATUS(dtl_comm_barrier(doomed), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("destroy");
    CHECK(is_all((unsigned char *)b + (me == 0 ? 12 : 16), 8, 0xEE));
    /* Point to point goes on; without the time limit of a blocking call, as a neighbour may be late. */
    CHECK_OK(dtl_comm_allreduce(comm, &is_late, &any_is_late, 1, DTL_DTYPE_INT32, DTL_OP_MAX));
    CHECK_OK(dtl_comm_irecv(doomed, b, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 0, &both[0]));
    CHECK_OK(dtl_comm_isend(doomed, a, 1, DTL_DTYPE_INT32, (me + 1) % ranks, 0, &both[1]));
    CHECK_OK(dtl_request_wait_all(both, 2, DTL_TIMEOUT_INFINITE, NULL));
    return !any_is_late;
}

static void ranks_that_disagree(void) {
    uint64_t limit = limit_here(comm, 500);
    int is_seen = ranks == 1;
    for (; !is_seen; limit *= 4) {
        const dtl_comm_t doomed = open_with(MILLISECONDS(limit));
        is_seen = disagree(doomed);
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_comm_destroy(doomed));
    }
}

static void a_rank_that_does_not_come(void) {
    const dtl_comm_t doomed = open_hasty(comm);
    if (ranks > 1) {
        if (me != ranks - 1) {
            CHECK_STATUS(dtl_comm_allreduce(doomed, sent, got, 20000, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_TIMEOUT);
            CHECK_STATUS(dtl_comm_barrier(doomed), DTL_ERROR_INVALID_STATE);
            memset(got, 0xEE, 80000);
        }
        CHECK_OK(dtl_comm_barrier(comm));
        if (me == ranks - 1) {
            CHECK_STATUS(dtl_comm_allreduce(doomed, sent, got, 20000, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_TIMEOUT);
            memset(got, 0xEE, 80000);
        }
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK(is_all(got, 80000, 0xEE)); /* nothing writes there afterwards */
    }
    CHECK_OK(dtl_comm_destroy(doomed));
}

/* The second thread is refused, and lets the others come to the barrier of the first. */
static void *one_barrier(void *status) {
    int rank;
    *(dtl_status_t *)status = dtl_comm_barrier(comm);
    for (rank = 1; rank < ranks && *(dtl_status_t *)status != DTL_SUCCESS; rank++) {
        CHECK_OK(dtl_comm_send(comm, &rank, 1, DTL_DTYPE_INT32, rank, 8));
    }
    return NULL;
}

static void two_threads_in_collectives(void) {
    pthread_t thread;
    dtl_status_t statuses[2] = {DTL_SUCCESS, DTL_SUCCESS};
    if (ranks == 1) return;
    if (me == 0) {
        CHECK(pthread_create(&thread, NULL, one_barrier, &statuses[0]) == 0);
        (void)one_barrier(&statuses[1]);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(statuses[0] + statuses[1] == DTL_ERROR_BUSY);
    } else {
        int32_t number;
        CHECK_OK(dtl_comm_recv(comm, &number, 1, DTL_DTYPE_INT32, 0, 8, NULL));
        CHECK_OK(dtl_comm_barrier(comm));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

int main(int argc, char **argv) {
    const uint64_t counts[] = {0, 1, 2, 3, 7, 64, 1000};
    size_t i;
    start(argc, argv);
    comm = open_comm();
    sent = (unsigned char *)calloc(1, LARGEST * 8 + 8);
    got = (unsigned char *)calloc(1, LARGEST * 8 + 8);
    expected = (unsigned char *)calloc(1, LARGEST * 8 + 8);
    other = (unsigned char *)calloc(1, LARGEST * 8 + 8);
    CHECK(sent != NULL && got != NULL && expected != NULL && other != NULL);
    for (i = 0; i < 20; i++) CHECK_OK(dtl_comm_barrier(comm));
    wrong_arguments();
    every_pair_of_type_and_operation();
    for (i = 0; i < sizeof counts / sizeof *counts; i++) {
        moving_data(counts[i], DTL_DTYPE_INT32);
        moving_data(counts[i], DTL_DTYPE_UINT8);
    }
    moving_data(LARGEST, DTL_DTYPE_BYTE);
    identical_bits_everywhere();
    users_receive_takes_no_message_of_ours();
    unaligned_buffers();
    ranks_that_disagree();
    a_rank_that_does_not_come();
    two_threads_in_collectives();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    free(sent);
    free(got);
    free(expected);
    free(other);
    return 0;
}
