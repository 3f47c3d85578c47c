/* Messages and collectives above 4 GiB: sizes that 32 bits cannot hold. Two ranks, 14 GiB of memory.
 *
 *     dtlrun -n 2 large          (shm: fetched by the kernel, or with DTL_SHM_COPY=cells through the rings)
 *     large threads              (two threads of one process)
 *
 * Each byte is a function of its place, so a piece that lands elsewhere is seen. */
#include "../c/check.h"
#include <pthread.h>
#include <string.h>

#define BYTES ((UINT64_C(4) << 30) + (UINT64_C(300) << 20) + 13)

static unsigned char value(uint64_t i) { return (unsigned char)(i * 7 + (i >> 20) + (i >> 32)); }

static unsigned char *filled(int with_values) {
    unsigned char *bytes = (unsigned char *)malloc(BYTES);
    uint64_t i;
    CHECK(bytes != NULL);
    if (with_values)
        for (i = 0; i < BYTES; i++) bytes[i] = value(i);
    else memset(bytes, 0xEE, BYTES);
    return bytes;
}

static void check(const unsigned char *bytes, uint64_t count, const char *what) {
    uint64_t i;
    for (i = 0; i < count; i++) {
        if (bytes[i] != value(i)) {
            fprintf(stderr, "%s: byte %llu is wrong\n", what, (unsigned long long)i);
            exit(1);
        }
    }
    printf("%s: right\n", what);
    fflush(stdout);
}

static void *rank(void *argument) {
    const dtl_comm_t comm = *(dtl_comm_t *)argument;
    unsigned char *bytes;
    dtl_recv_info_t info;
    int32_t me, size;
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &size));
    if (size != 2) SKIP("it wants two ranks");
    bytes = filled(me == 0);
    if (me == 0) {
        CHECK_OK(dtl_comm_send(comm, bytes, BYTES, DTL_DTYPE_BYTE, 1, 5));
    } else {
        CHECK_OK(dtl_comm_recv(comm, bytes, BYTES, DTL_DTYPE_BYTE, 0, 5, &info));
        CHECK(info.size_bytes == BYTES);
        check(bytes, BYTES, "send and receive");
        memset(bytes, 0xEE, BYTES);
    }
    /* Truncated: the true size needs more than 32 bits too. */
    if (me == 0) {
        CHECK_OK(dtl_comm_send(comm, bytes, BYTES, DTL_DTYPE_BYTE, 1, 6));
    } else {
        CHECK_STATUS(dtl_comm_recv(comm, bytes, BYTES - 1000, DTL_DTYPE_BYTE, 0, 6, &info), DTL_ERROR_TRUNCATED);
        CHECK(info.size_bytes == BYTES && bytes[BYTES - 1000] == 0xEE);
        memset(bytes, 0xEE, BYTES);
    }
    CHECK_OK(dtl_comm_bcast(comm, bytes, BYTES, DTL_DTYPE_BYTE, 0));
    if (me == 1) check(bytes, BYTES, "bcast");
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, bytes, BYTES, DTL_DTYPE_UINT8, DTL_OP_MAX));
    if (me == 1) check(bytes, BYTES, "allreduce in place");
    free(bytes);
    return NULL;
}

int main(int argc, char **argv) {
    dtl_comm_t comms[2];
    pthread_t other;
    if (argc > 1 && strcmp(argv[1], "threads") == 0) {
        CHECK_OK(dtl_comm_threads(2, 0, comms));
        CHECK(pthread_create(&other, NULL, rank, &comms[1]) == 0);
        rank(&comms[0]);
        CHECK(pthread_join(other, NULL) == 0);
        CHECK_OK(dtl_comm_destroy(comms[0]));
        CHECK_OK(dtl_comm_destroy(comms[1]));
    } else {
        CHECK_OK(dtl_comm_get_world(&comms[0]));
        rank(&comms[0]);
    }
    return 0;
}
