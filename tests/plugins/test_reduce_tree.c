/* Collective slots of a registered communicator, with the example plugin "reduce_tree": what it supports is run by
 * its slots and is right for each dtype and operation, everything else by the library. Run by dtlrun. */
#define _GNU_SOURCE
#include "../c/check.h"
#include <string.h>

static int32_t rank, size;

static int explained(const char *text) {
    static char all[1 << 16];
    CHECK_OK(dtl_explain(all, sizeof all, NULL));
    return strstr(all, text) != NULL;
}

/* The operations are exact on these values. */
static void fill(void *into, uint64_t count, dtl_dtype_t dtype, int32_t of) {
    uint64_t i;
    for (i = 0; i < count; i++) {
        const int64_t value = (int64_t)((of * 7 + (int64_t)i * 3) % 23);
        switch (dtype) {
        case DTL_DTYPE_INT32: ((int32_t *)into)[i] = (int32_t)value - 11; break;
        case DTL_DTYPE_UINT32: ((uint32_t *)into)[i] = (uint32_t)value; break;
        case DTL_DTYPE_INT64: ((int64_t *)into)[i] = value - 11; break;
        case DTL_DTYPE_UINT64: ((uint64_t *)into)[i] = (uint64_t)value; break;
        case DTL_DTYPE_FLOAT32: ((float *)into)[i] = (float)value - 11; break;
        default: ((double *)into)[i] = (double)value - 11; break;
        }
    }
}

/* Compares an allreduce with that of a communicator without slots. */
static void compare(dtl_comm_t comm, dtl_comm_t plain, uint64_t count, dtl_dtype_t dtype, dtl_reduce_op_t op) {
    static unsigned char mine[1 << 15], got[1 << 15], expected[1 << 15];
    dtl_request_t request;
    uint64_t bytes;
    CHECK_OK(dtl_dtype_size(dtype, &bytes));
    bytes *= count;
    CHECK(bytes <= sizeof mine);
    fill(mine, count, dtype, rank);
    CHECK_OK(dtl_comm_allreduce(plain, mine, expected, count, dtype, op));
    memset(got, 0xAA, sizeof got);
    CHECK_OK(dtl_comm_allreduce(comm, mine, got, count, dtype, op));
    CHECK(memcmp(got, expected, bytes) == 0 && got[bytes] == 0xAA);
    memcpy(got, mine, bytes);
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, got, count, dtype, op));
    CHECK(memcmp(got, expected, bytes) == 0);
    memset(got, 0xAA, sizeof got);
    CHECK_OK(dtl_comm_iallreduce(comm, mine, got, count, dtype, op, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(memcmp(got, expected, bytes) == 0);
}

static void add(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    uint64_t i;
    (void)dtype, (void)user;
    for (i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
}

int main(void) {
    static const dtl_dtype_t dtypes[] = {DTL_DTYPE_INT32, DTL_DTYPE_UINT32, DTL_DTYPE_INT64, DTL_DTYPE_UINT64,
                                         DTL_DTYPE_FLOAT32, DTL_DTYPE_FLOAT64};
    static const dtl_reduce_op_t ops[] = {DTL_OP_SUM, DTL_OP_MIN, DTL_OP_MAX, DTL_OP_PROD};
    static const uint64_t counts[] = {0, 1, 5, 512, 3000};
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm, plain, limited, half;
    dtl_request_t requests[8];
    int32_t in[8], out[8], i;
    dtl_reduce_op_t own;
    CHECK_OK(dtl_init(NULL));
    desc.kind = "reduce_tree";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    CHECK(!explained("barrier by"));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(explained("barrier by reduce_tree: executed by the backend itself"));
    /* A duplicate has another context, which this backend does not support. */
    CHECK_OK(dtl_comm_dup(comm, &plain));
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) compare(comm, plain, counts[c], dtypes[d], ops[o]);
        }
    }
    CHECK(explained("allreduce by reduce_tree: executed by the backend itself"));
    /* Several in flight, by slot and by messages. */
    for (i = 0; i < 8; i++) {
        in[i] = rank + i;
        CHECK_OK(dtl_comm_iallreduce(comm, &in[i], &out[i], 1, DTL_DTYPE_INT32, i % 2 ? DTL_OP_SUM : DTL_OP_PROD,
                                     &requests[i]));
    }
    CHECK_OK(dtl_request_wait_all(requests, 8, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(out[1] == size * (size - 1) / 2 + size);
    /* An operation of the program's own, and some of the ranks: the library's. */
    CHECK_OK(dtl_op_create(add, NULL, DTL_OP_COMMUTES, "add", &own));
    CHECK_OK(dtl_comm_allreduce(comm, &rank, &out[0], 1, DTL_DTYPE_INT32, own));
    CHECK(out[0] == size * (size - 1) / 2);
    CHECK_OK(dtl_op_destroy(own));
    CHECK_OK(dtl_comm_split(comm, rank % 2, -rank, &half));
    CHECK_OK(dtl_comm_allreduce(half, &rank, &out[0], 1, DTL_DTYPE_INT32, DTL_OP_MAX));
    CHECK(out[0] == (size - 1) - ((size - 1) % 2 != rank % 2));
    CHECK_OK(dtl_comm_destroy(half));
    /* A time limit ends a collective that not all ranks call; the buffers are free then. */
    desc.timeout_ns = UINT64_C(3000000000); /* also for the opening */
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_open(&desc, &limited));
    if (rank == 0 && size > 1) {
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
