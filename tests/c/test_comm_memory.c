/* What ranks cost each other: a rank that is silent costs its entry in tables (16 bytes), one that was
 * talked to and is idle at most 4 KiB beyond its ring. Counted by the C library: what is allocated. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <malloc.h>
#include <unistd.h>

/* Bytes allocated in this process. */
static int64_t heap(void) {
    const struct mallinfo2 now = mallinfo2();
    return (int64_t)(now.uordblks + now.hblkhd);
}

/* ---- shm: of some ranks in two communicators ---- */

static dtl_comm_t open_as(const char *name, int32_t rank, int32_t size, int64_t *out_bytes) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    char job[64];
    const char *const pid = getenv("DTL_JOB");
    int64_t before;
    snprintf(job, sizeof job, "%.40s-%s", pid == NULL ? "alone" : pid, name);
    desc.kind = "shm";
    desc.rank = rank;
    desc.size = size;
    desc.job = job;
    desc.timeout_ns = UINT64_C(60000000000);
    before = heap();
    CHECK_OK(dtl_comm_open(&desc, &comm));
    *out_bytes = heap() - before;
    return comm;
}

/* Rank 0 exchanges a message with each other rank, all others with rank 0 only. */
static void talk(dtl_comm_t comm, int32_t rank, int32_t size) {
    int32_t other, value = rank;
    for (other = rank == 0 ? 1 : 0; other < (rank == 0 ? size : 1); other++) {
        CHECK_OK(dtl_comm_sendrecv(comm, &rank, 1, other, 5, &value, 1, other, 5, DTL_DTYPE_INT32, NULL));
        CHECK(value == other);
    }
}

static void test_shm(int32_t rank, int32_t size) {
    dtl_comm_t comm;
    int64_t two = 0, all = 0, talked;
    if (rank < 2) {
        /* The first one also makes what the process has once. */
        CHECK_OK(dtl_comm_destroy(open_as("first", rank, 2, &two)));
        CHECK_OK(dtl_comm_destroy(open_as("two", rank, 2, &two)));
    }
    comm = open_as("all", rank, size, &all);
    talked = heap();
    talk(comm, rank, size);
    talked = heap() - talked;
    if (rank == 0) {
        printf("shm: open with 2 ranks %lld bytes, with %d ranks %lld; %d idle connections %lld\n", (long long)two,
               (int)size, (long long)all, (int)size - 1, (long long)talked);
        CHECK(all - two <= 16 * (size - 2) + 64); /* malloc rounds up */
        CHECK(talked <= 4096 * (size - 1));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- threads: all ranks in this process ---- */

enum { MANY = 512 };

/* Bytes of a communicator, and how much they grow when rank 0 talks to all. */
static int64_t of_threads(int32_t size, int64_t *out_talked) {
    static dtl_comm_t comms[MANY];
    dtl_request_t requests[2];
    int32_t rank, value[2] = {0, 0};
    int64_t before = heap(), bytes;
    CHECK_OK(dtl_comm_threads(size, UINT64_C(60000000000), comms));
    bytes = heap() - before;
    before = heap();
    for (rank = 1; rank < size; rank++) {
        CHECK_OK(dtl_comm_isend(comms[0], &rank, 1, DTL_DTYPE_INT32, rank, 1, &requests[0]));
        CHECK_OK(dtl_comm_recv(comms[rank], &value[0], 1, DTL_DTYPE_INT32, 0, 1, NULL));
        CHECK_OK(dtl_comm_isend(comms[rank], &rank, 1, DTL_DTYPE_INT32, 0, 1, &requests[1]));
        CHECK_OK(dtl_comm_recv(comms[0], &value[1], 1, DTL_DTYPE_INT32, rank, 1, NULL));
        CHECK(value[0] == rank && value[1] == rank);
        CHECK_OK(dtl_request_wait_all(2, requests, DTL_TIMEOUT_INFINITE, NULL));
    }
    *out_talked = heap() - before;
    for (rank = 0; rank < size; rank++) CHECK_OK(dtl_comm_destroy(comms[rank]));
    return bytes;
}

static void test_threads(void) {
    const int64_t few = MANY / 2, many = MANY;
    int64_t talked, of_few, of_many;
    (void)of_threads(MANY, &talked); /* makes what the process has once */
    of_few = of_threads((int32_t)few, &talked);
    of_many = of_threads((int32_t)many, &talked);
    printf("threads: %d ranks %lld bytes, %d ranks %lld; %d idle connections %lld\n", (int)few, (long long)of_few,
           (int)many, (long long)of_many, (int)many - 1, (long long)talked);
    /* Without what each rank costs alone: twice as many ranks, four times as many pairs. */
    CHECK(of_many - 2 * of_few <= 16 * (many * many - 2 * few * few));
    CHECK(talked <= 2 * 4096 * (many - 1)); /* both ends are in this process */
}

int main(int argc, char **argv) {
    int32_t rank = 0, size = 1;
    /* The C library counts what a thread keeps for its next malloc as allocated: not here. */
    if (getenv("GLIBC_TUNABLES") == NULL) {
        CHECK(setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1) == 0);
        execv("/proc/self/exe", argv);
        CHECK(!"execv");
    }
    if (argc < 2) {
        test_threads();
        puts("ok");
        return 0;
    }
    rank = atoi(getenv("DTL_RANK") ? getenv("DTL_RANK") : "0");
    size = atoi(getenv("DTL_SIZE") ? getenv("DTL_SIZE") : "1");
    test_shm(rank, size);
    if (rank == 0) puts("ok");
    return 0;
}
