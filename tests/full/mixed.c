/* Mixed traffic for a long time: the memory of a process must stop growing. Each rank sends messages of all sizes,
 * starts collectives, makes communicators and windows, and allocates memory. Every tenth of the time it prints how much
 * memory it uses. Fails if the second half of the time added more than 2 % and 256 KiB to the memory in the middle.
 *
 *     dtlrun -n 4 mixed [SECONDS] [SEED]      C11; tests/full/mixed.sh compiles and runs it */
#define _GNU_SOURCE
#include <dtl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LARGEST = 1 << 20, PARTS = 10 };
static int32_t rank, size;
static uint64_t common; /* random numbers, equal on all ranks */
static dtl_backend_t host;

static uint64_t pick(uint64_t below) {
    common ^= common >> 12, common ^= common << 25, common ^= common >> 27;
    return (common * UINT64_C(2685821657736338717) >> 33) % below;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* KiB of a line of /proc/self/status. */
static long of(const char *name) {
    FILE *const file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0) kib = atol(line + strlen(name) + 1);
    fclose(file);
    return kib;
}

static long report(double at) {
    const struct mallinfo2 heap = mallinfo2();
    dtl_mem_stats_t own = DTL_MEM_STATS_INIT;
    const long all = of("VmRSS");
    DTL_CHECK(dtl_mem_stats(host, &own));
    if (rank == 0) {
        printf("%7.1f s: %ld KiB resident: %ld of its own, %ld of files, %ld shared; malloc: %zu KiB in use, %zu free; %llu blocks live\n",
               at, all, of("RssAnon"), of("RssFile"), of("RssShmem"), (heap.uordblks + heap.hblkhd) >> 10, heap.fordblks >> 10,
               (unsigned long long)own.live_count);
        fflush(stdout);
    }
    return all;
}

static uint64_t any_size(void) { return (UINT64_C(1) << pick(21)) - pick(2); }

static void messages(dtl_comm_t comm, char *out, char *in) {
    dtl_request_t requests[16];
    const int32_t count = (int32_t)pick(8) + 1, step = (int32_t)pick((uint64_t)size);
    int32_t i;
    for (i = 0; i < count; i++) {
        const uint64_t bytes = any_size() / (uint64_t)count;
        const int32_t to = (rank + step) % size, from = (rank + size - step) % size;
        DTL_CHECK(dtl_comm_irecv(comm, in + (uint64_t)i * LARGEST / 8, bytes, DTL_DTYPE_BYTE, from, i, &requests[2 * i]));
        DTL_CHECK(dtl_comm_isend(comm, out, bytes, DTL_DTYPE_BYTE, to, i, &requests[2 * i + 1]));
    }
    DTL_CHECK(dtl_request_wait_all(requests, (uint64_t)(2 * count), DTL_TIMEOUT_INFINITE, NULL));
}

static void collectives(dtl_comm_t comm, char *out, char *in) {
    const uint64_t bytes = any_size(), each = bytes / (uint64_t)size, root = pick((uint64_t)size);
    int64_t mine = rank, sum = 0;
    switch (pick(6)) {
    case 0: DTL_CHECK(dtl_comm_bcast(comm, out, bytes, DTL_DTYPE_BYTE, (int32_t)root)); break;
    case 1: DTL_CHECK(dtl_comm_allreduce(comm, out, in, bytes / 8, DTL_DTYPE_INT64, DTL_OP_BXOR)); break;
    case 2: DTL_CHECK(dtl_comm_alltoall(comm, out, each, in, DTL_DTYPE_BYTE)); break;
    case 3: DTL_CHECK(dtl_comm_allgather(comm, out, each, in, DTL_DTYPE_BYTE)); break;
    case 4: DTL_CHECK(dtl_comm_barrier(comm)); break;
    default:
        DTL_CHECK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
        if (sum != (int64_t)size * (size - 1) / 2) abort();
    }
}

static void windows(dtl_comm_t comm, char *out) {
    const uint64_t bytes = any_size();
    const int32_t right = (rank + 1) % size;
    void *base;
    dtl_win_t win;
    if (pick(2)) DTL_CHECK(dtl_win_allocate(comm, bytes, 1, &base, &win));
    else DTL_CHECK(dtl_win_create(comm, out, bytes, 1, &win));
    DTL_CHECK(dtl_win_fence(win));
    DTL_CHECK(dtl_win_put(win, &right, bytes < 4 ? 0 : 1, DTL_DTYPE_INT32, right, 0));
    DTL_CHECK(dtl_win_fence(win));
    DTL_CHECK(dtl_win_destroy(win));
}

static void communicators(char *out, char *in) {
    dtl_comm_t comm;
    DTL_CHECK(dtl_comm_split(DTL_COMM_WORLD, 0, pick(2) ? rank : size - rank, &comm));
    DTL_CHECK(dtl_comm_allreduce(comm, out, in, 1 + pick(1000), DTL_DTYPE_INT64, DTL_OP_BXOR));
    DTL_CHECK(dtl_comm_destroy(comm));
}

static void memory(void) {
    void *blocks[32];
    int i;
    for (i = 0; i < 32; i++) DTL_CHECK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 1 + pick(200000), 0, &blocks[i]));
    for (i = 31; i >= 0; i--) DTL_CHECK(dtl_mem_free(host, blocks[i]));
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 300, began = now();
    char *const out = malloc(LARGEST), *const in = malloc(LARGEST + 64);
    long middle = 0, last = 0;
    int part = 0;
    common = (argc > 2 ? (uint64_t)atoll(argv[2]) : 1) * UINT64_C(0x9E3779B97F4A7C15);
    if (out == NULL || in == NULL) abort();
    memset(out, 1, LARGEST), memset(in, 2, LARGEST);
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    DTL_CHECK(dtl_backend_get("host", &host));
    while (part <= PARTS) {
        double at = now() - began;
        int i;
        DTL_CHECK(dtl_comm_bcast(DTL_COMM_WORLD, &at, 1, DTL_DTYPE_FLOAT64, 0));
        if (at >= seconds * part / PARTS) {
            last = report(at);
            if (part++ == PARTS / 2) middle = last;
        }
        for (i = 0; i < 100; i++) {
            const uint64_t what = pick(100);
            if (what < 45) messages(DTL_COMM_WORLD, out, in);
            else if (what < 85) collectives(DTL_COMM_WORLD, out, in);
            else if (what < 90) windows(DTL_COMM_WORLD, out);
            else if (what < 95) communicators(out, in);
            else memory();
        }
    }
    if (last > middle + middle / 50 + 256) {
        fprintf(stderr, "rank %d: %ld KiB in the middle, %ld KiB at the end: it grows\n", rank, middle, last);
        return 1;
    }
    DTL_CHECK(dtl_finalize());
    return 0;
}
