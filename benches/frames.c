// Cost of what the library makes of a registered transport: a message through dtl_comm_isend and
// dtl_comm_irecv, and through the bare slots of the same table, interleaved. Two ranks in one thread;
// the transport is a list of receives and a list of messages for each rank, one memcpy per message.
//
//     cc -O2 benches/frames.c $(pkg-config --cflags --libs libdtl) -o frames && ./frames
//
// Prints nanoseconds per message: the 10th percentile over many short batches. With arguments
// "bare|dtl BYTES COUNT" it moves that many messages and prints nothing, to count instructions.
#define _GNU_SOURCE
#include "lists.h"
#include <stdio.h>
#include <time.h>

enum { CALLS = 200, BATCHES = 1000, LARGEST = 64 << 10 };

static char out[LARGEST], in[LARGEST];
static dtl_comm_t comms[2];

static void move_bare(uint64_t size, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t send, receive;
        int32_t done = 0;
        dtl_comm_done_t result;
        if (table.irecv(NULL, &ranks[1], in, size, 0, 1u << 26 | 1, 0, &receive) != DTL_SUCCESS ||
            table.isend(NULL, &ranks[0], out, size, 1, 1u << 26 | 1, &send) != DTL_SUCCESS)
            abort();
        while (!done) DTL_CHECK(table.test(NULL, &ranks[1], receive, &done, &result));
        for (done = 0; !done;) DTL_CHECK(table.test(NULL, &ranks[0], send, &done, &result));
    }
}

static void move_dtl(uint64_t size, int count)
{
    for (int i = 0; i < count; i++) {
        dtl_request_t send, receive;
        int sent = 0, received = 0;
        DTL_CHECK(dtl_comm_irecv(comms[1], in, size, DTL_DTYPE_BYTE, 0, 1, &receive));
        DTL_CHECK(dtl_comm_isend(comms[0], out, size, DTL_DTYPE_BYTE, 1, 1, &send));
        while (!sent || !received) {
            if (!received) DTL_CHECK(dtl_request_test(receive, &received, NULL));
            if (!sent) DTL_CHECK(dtl_request_test(send, &sent, NULL));
        }
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(uint64_t size)
{
    static double bare[BATCHES], dtl[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        const double begin = now();
        move_bare(size, CALLS);
        const double middle = now();
        move_dtl(size, CALLS);
        bare[i] = (middle - begin) / CALLS;
        dtl[i] = (now() - middle) / CALLS;
    }
    qsort(bare, BATCHES, sizeof *bare, ascending);
    qsort(dtl, BATCHES, sizeof *dtl, ascending);
    printf("%6d B  bare %8.1f ns  dtl %8.1f ns  ratio %.2f\n", (int)size, bare[BATCHES / 10], dtl[BATCHES / 10],
           dtl[BATCHES / 10] / bare[BATCHES / 10]);
}

int main(int argc, char **argv)
{
    open_lists(comms);
    if (argc == 4) {
        const uint64_t size = strtoull(argv[2], NULL, 10);
        if (size > LARGEST) return 2;
        (strcmp(argv[1], "bare") == 0 ? move_bare : move_dtl)(size, atoi(argv[3]));
    } else {
        compare(8);
        compare(4096);
        compare(LARGEST);
    }
    DTL_CHECK(dtl_finalize());
    return 0;
}
