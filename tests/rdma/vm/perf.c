/* Latency and bandwidth by the methods of perftest, over a kind of communicator, for compare.sh. Two ranks.
 *
 *     dtlrun -n 2 perf KIND lat:SIZE:ITERATIONS… bw:SIZE:ITERATIONS…
 *
 * Prints "lat SIZE microseconds" (half of a round trip, the median, as ib_send_lat's t_typical) and "bw SIZE MB/s" (of 2^20
 * bytes, the average, as ib_write_bw prints it): a stream of dtl_comm_isend from rank 0 to rank 1, WINDOW at a time. Buffers
 * are the library's, one on each side, used again for every message, as perftest's are. */
#define _GNU_SOURCE
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW = 64, WARM = 20 };

static dtl_comm_t comm;
static int me;
static char *buffer;

static void check(dtl_status_t status, const char *call)
{
    if (status == DTL_SUCCESS) return;
    fprintf(stderr, "rank %d: %s: %s: %s\n", me, call, dtl_status_name(status), dtl_last_error());
    exit(1);
}
#define CHECK(call) check(call, #call)

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void latency(uint64_t size, int iterations)
{
    double *const took = malloc((size_t)iterations * sizeof *took);
    if (took == NULL) exit(1);
    for (int i = -WARM; i < iterations; i++) {
        const double begin = now_us();
        if (me == 0) {
            CHECK(dtl_comm_send(comm, buffer, size, DTL_DTYPE_BYTE, 1, 1));
            CHECK(dtl_comm_recv(comm, buffer, size, DTL_DTYPE_BYTE, 1, 1, NULL));
        } else {
            CHECK(dtl_comm_recv(comm, buffer, size, DTL_DTYPE_BYTE, 0, 1, NULL));
            CHECK(dtl_comm_send(comm, buffer, size, DTL_DTYPE_BYTE, 0, 1));
        }
        if (i >= 0) took[i] = now_us() - begin;
    }
    qsort(took, (size_t)iterations, sizeof *took, ascending);
    if (me == 0) printf("lat %llu %.2f\n", (unsigned long long)size, took[iterations / 2] / 2);
    free(took);
}

/// `count` messages from rank 0 to rank 1, then an empty one back.
static void stream(uint64_t size, int count)
{
    dtl_request_t requests[WINDOW];
    for (int begun = 0, done = 0; done < count;) {
        dtl_request_t *const next = &requests[begun % WINDOW];
        if (begun == count || begun - done == WINDOW) CHECK(dtl_request_wait(requests[done++ % WINDOW], DTL_TIMEOUT_INFINITE, NULL));
        else if (me == 0) CHECK(dtl_comm_isend(comm, buffer, size, DTL_DTYPE_BYTE, 1, 2, next)), begun++;
        else CHECK(dtl_comm_irecv(comm, buffer, size, DTL_DTYPE_BYTE, 0, 2, next)), begun++;
    }
    if (me == 0) CHECK(dtl_comm_recv(comm, NULL, 0, DTL_DTYPE_BYTE, 1, 3, NULL));
    else CHECK(dtl_comm_send(comm, NULL, 0, DTL_DTYPE_BYTE, 0, 3));
}

static void bandwidth(uint64_t size, int iterations)
{
    stream(size, WARM < iterations ? WARM : iterations);
    CHECK(dtl_comm_barrier(comm));
    const double begin = now_us();
    stream(size, iterations);
    const double took = now_us() - begin;
    if (me == 0) printf("bw %llu %.2f\n", (unsigned long long)size, (double)size * iterations / 1048576 / (took / 1e6));
}

int main(int argc, char **argv)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_backend_t host;
    int ranks;
    if (argc < 3) return fprintf(stderr, "usage: perf KIND lat:SIZE:ITERATIONS… bw:SIZE:ITERATIONS…\n"), 2;
    desc.kind = argv[1];
    CHECK(dtl_comm_open(&desc, &comm));
    CHECK(dtl_comm_rank(comm, &me));
    CHECK(dtl_comm_size(comm, &ranks));
    if (ranks != 2) return fprintf(stderr, "perf: wants 2 ranks\n"), 2;
    CHECK(dtl_backend_get("host", &host));
    for (int i = 2; i < argc; i++) {
        char what[4];
        unsigned long long size;
        int iterations;
        void *memory;
        if (sscanf(argv[i], "%3[a-z]:%llu:%d", what, &size, &iterations) != 3 || size < 1 || iterations < 1) return fprintf(stderr, "perf: %s?\n", argv[i]), 2;
        CHECK(dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 4096, &memory));
        buffer = memory;
        memset(buffer, 1, size);
        if (strcmp(what, "lat") == 0) latency(size, iterations);
        else bandwidth(size, iterations);
        fflush(stdout);
        CHECK(dtl_comm_barrier(comm));
        CHECK(dtl_mem_free(host, memory));
    }
    CHECK(dtl_comm_destroy(comm));
    return 0;
}
