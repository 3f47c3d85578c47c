/* Operands of an operation of the program's are aligned like its buffers, or to 64 bytes (dtl_op_fn_t), for all sizes and
 * algorithms of reductions. Without arguments: ranks that are threads. C11, and valid C++17. Argument: a kind of
 * communicator, for ranks that are processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 5, MOST = 3000, LINE = 64 };

typedef struct {
    uint64_t bytes; /* of an element, and its alignment */
    int wrong;
} element_t;

static void add(const void* in, void* inout, uint64_t count, dtl_dtype_t dtype, void* user) {
    element_t* element = (element_t*)user;
    const char* from = (const char*)in;
    char* into = (char*)inout;
    uint64_t i;
    (void)dtype;
    if ((uintptr_t)in % element->bytes != 0 || (uintptr_t)inout % element->bytes != 0) {
        __atomic_store_n(&element->wrong, 1, __ATOMIC_RELAXED);
    }
    for (i = 0; i < count; i++) {
        double a, b;
        memcpy(&a, from + i * element->bytes, sizeof a);
        memcpy(&b, into + i * element->bytes, sizeof b);
        b += a;
        memcpy(into + i * element->bytes, &b, sizeof b);
    }
}

static void reductions(dtl_comm_t comm, element_t* element, dtl_dtype_t dtype, dtl_reduce_op_t op) {
    static const uint64_t counts[] = {1, 3, 20, MOST};
    int32_t rank, size;
    size_t c;
    double sum;
    char *from, *into;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    CHECK(posix_memalign((void**)&from, LINE, MOST * element->bytes) == 0);
    CHECK(posix_memalign((void**)&into, LINE, MOST * element->bytes) == 0);
    for (c = 0; c < sizeof counts / sizeof *counts; c++) {
        const uint64_t count = counts[c], last = (count - 1) * element->bytes;
        const double mine = rank + 1;
        uint64_t i;
        memset(from, 0, count * element->bytes);
        for (i = 0; i < count; i++) memcpy(from + i * element->bytes, &mine, sizeof mine);
        memset(into, 0, count * element->bytes);
        CHECK_OK(dtl_comm_allreduce(comm, from, into, count, dtype, op));
        memcpy(&sum, into + last, sizeof sum);
        CHECK(sum == size * (size + 1) / 2);
        CHECK_OK(dtl_comm_reduce(comm, from, into, count, dtype, op, size - 1));
        CHECK_OK(dtl_comm_scan(comm, from, into, count, dtype, op));
        memcpy(&sum, into + last, sizeof sum);
        CHECK(sum == (rank + 1) * (rank + 2) / 2);
        CHECK_OK(dtl_comm_exscan(comm, from, into, count, dtype, op));
    }
    free(from);
    free(into);
}

static element_t elements[] = {{16, 0}, {32, 0}, {64, 0}};
static dtl_dtype_t dtypes[3];
static dtl_reduce_op_t ops[3][2]; /* that commute, and that do not */

static void all(dtl_comm_t comm) {
    int i, j;
    for (i = 0; i < 3; i++) {
        for (j = 0; j < 2; j++) reductions(comm, &elements[i], dtypes[i], ops[i][j]);
    }
}

static void* of_thread(void* comm) {
    all(*(dtl_comm_t*)comm);
    return NULL;
}

int main(int argc, char** argv) {
    int i;
    CHECK_OK(dtl_init(NULL));
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_dtype_create(elements[i].bytes, "element", &dtypes[i]));
        CHECK_OK(dtl_op_create(add, &elements[i], DTL_OP_COMMUTES, "add", &ops[i][0]));
        CHECK_OK(dtl_op_create(add, &elements[i], 0, "add in order", &ops[i][1]));
    }
    if (argc > 1) {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        dtl_comm_t comm;
        desc.kind = argv[1];
        CHECK_OK(dtl_comm_open(&desc, &comm));
        all(comm);
        CHECK_OK(dtl_comm_destroy(comm));
    } else {
        int size;
        for (size = 2; size <= MOST_RANKS; size++) {
            dtl_comm_t comms[MOST_RANKS];
            pthread_t threads[MOST_RANKS];
            CHECK_OK(dtl_comm_threads(size, DTL_TIMEOUT_INFINITE, comms));
            for (i = 0; i < size; i++) CHECK(pthread_create(&threads[i], NULL, of_thread, &comms[i]) == 0);
            for (i = 0; i < size; i++) CHECK(pthread_join(threads[i], NULL) == 0);
            for (i = 0; i < size; i++) CHECK_OK(dtl_comm_destroy(comms[i]));
        }
    }
    for (i = 0; i < 3; i++) CHECK(!elements[i].wrong);
    CHECK_OK(dtl_finalize());
    puts("ok");
    return 0;
}
