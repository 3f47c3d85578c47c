/* Random sequences of collectives and messages, the same on all ranks, checked against what they must
 * give. The seed is printed by rank 0; DTL_TEST_SEED repeats a run, DTL_TEST_CASES makes it longer. */
#include "comm_kinds.h"

enum { MOST = 40000, IN_FLIGHT = 16 };
static dtl_comm_t comms[2];
static uint64_t state;
static unsigned char *sent, *got, *expected;

static uint64_t next_random(void) {
    uint64_t x = (state += UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int below(int limit) { return (int)(next_random() % (uint64_t)limit); }

/* Mostly small, sometimes at the borders between protocols. */
static uint64_t random_size(void) {
    const int edges[] = {0, 1, 8, 56, 4096, 8191, 8192, 8193, 16384, 32768, 32776};
    switch (below(4)) {
    case 0: return (uint64_t)edges[below((int)(sizeof edges / sizeof *edges))];
    case 1: return (uint64_t)below(MOST);
    default: return (uint64_t)below(200);
    }
}

/* Element i of a rank in case `number`: sums of them do not overflow. */
static int32_t element(int number, int rank, uint64_t i) {
    return (int32_t)(((uint64_t)number * 7919 + (uint64_t)rank * 104729 + i * 31) % 1000003) - 500000;
}

static void check(int holds, int number, const char *what) {
    if (holds) return;
    fprintf(stderr, "rank %d of %d: %s in case %d is wrong\n", me, ranks, what, number);
    exit(1);
}

static void random_reduction(dtl_comm_t comm, int number) {
    const int ops[] = {DTL_OP_SUM, DTL_OP_MIN, DTL_OP_MAX, DTL_OP_BXOR};
    const int op = ops[below(4)], root = below(ranks), to_all = below(2);
    const uint64_t count = random_size() / 4;
    int32_t *in = (int32_t *)(void *)sent, *out = (int32_t *)(void *)got, *want = (int32_t *)(void *)expected;
    uint64_t i;
    int rank;
    for (i = 0; i < count; i++) {
        in[i] = element(number, me, i);
        want[i] = element(number, 0, i);
        for (rank = 1; rank < ranks; rank++) {
            const int32_t value = element(number, rank, i);
            if (op == DTL_OP_SUM) want[i] += value;
            if (op == DTL_OP_MIN && value < want[i]) want[i] = value;
            if (op == DTL_OP_MAX && value > want[i]) want[i] = value;
            if (op == DTL_OP_BXOR) want[i] ^= value;
        }
    }
    if (to_all) CHECK_OK(dtl_comm_allreduce(comm, in, out, count, DTL_DTYPE_INT32, op));
    else CHECK_OK(dtl_comm_reduce(comm, in, out, count, DTL_DTYPE_INT32, op, root));
    if (to_all || me == root) check(memcmp(out, want, count * 4) == 0, number, to_all ? "allreduce" : "reduce");
}

static void random_move(dtl_comm_t comm, int number) {
    const int what = below(5), root = below(ranks);
    const uint64_t block = what == 0 ? random_size() : random_size() / 8;
    int rank;
    for (rank = 0; rank < ranks; rank++) {
        fill(sent + (uint64_t)rank * block, block, number + 16 * me + (what == 1 || what == 3 ? 0 : rank));
    }
    switch (what) {
    case 0:
        if (me == root) fill(got, block, number);
        CHECK_OK(dtl_comm_bcast(comm, got, block, DTL_DTYPE_BYTE, root));
        check(is_filled(got, block, number), number, "bcast");
        break;
    case 1:
        CHECK_OK(dtl_comm_gather(comm, sent, block, got, DTL_DTYPE_BYTE, root));
        for (rank = 0; me == root && rank < ranks; rank++) {
            check(is_filled(got + (uint64_t)rank * block, block, number + 16 * rank), number, "gather");
        }
        break;
    case 2:
        CHECK_OK(dtl_comm_scatter(comm, sent, block, got, DTL_DTYPE_BYTE, root));
        check(is_filled(got, block, number + 16 * root + me), number, "scatter");
        break;
    case 3:
        CHECK_OK(dtl_comm_allgather(comm, sent, block, got, DTL_DTYPE_BYTE));
        for (rank = 0; rank < ranks; rank++) {
            check(is_filled(got + (uint64_t)rank * block, block, number + 16 * rank), number, "allgather");
        }
        break;
    default:
        CHECK_OK(dtl_comm_alltoall(comm, sent, block, got, DTL_DTYPE_BYTE));
        for (rank = 0; rank < ranks; rank++) {
            check(is_filled(got + (uint64_t)rank * block, block, number + 16 * rank + me), number, "alltoall");
        }
    }
}

/* A set of messages between random pairs on both communicators; receives name source and tag, or take
 * any in order from the one sender there is. A collective runs while they are in flight. */
static void random_messages(int number) {
    static unsigned char outs[IN_FLIGHT][MOST], ins[IN_FLIGHT][MOST + 20];
    dtl_request_t requests[2 * IN_FLIGHT];
    dtl_recv_info_t infos[2 * IN_FLIGHT];
    uint64_t sizes[2 * IN_FLIGHT];
    int index[2 * IN_FLIGHT];
    const int count = 1 + below(IN_FLIGHT), with_collective = below(2);
    const int tag = number * IN_FLIGHT; /* another rank may be a case ahead */
    int used = 0, i;
    for (i = 0; i < count; i++) {
        const int from = below(ranks), to = below(ranks), on = below(2), receive_first = below(2), any = below(2);
        const uint64_t size = random_size(), room = size + (uint64_t)below(3) * 10;
        int part;
        for (part = 0; part < 2; part++) {
            const int receives = (part == 0) == (receive_first != 0);
            if (me != (receives ? to : from)) continue;
            index[used] = receives ? i : -1;
            sizes[used] = size;
            if (receives) {
                CHECK_OK(dtl_comm_irecv(comms[on], ins[i], room, DTL_DTYPE_BYTE,
                                        any ? DTL_ANY_SOURCE : from, tag + i, &requests[used]));
            } else {
                fill(outs[i], size, number + i);
                CHECK_OK(dtl_comm_isend(comms[on], outs[i], size, DTL_DTYPE_BYTE, to, tag + i, &requests[used]));
            }
            used += 1;
        }
    }
    if (with_collective) random_reduction(comms[below(2)], number);
    CHECK_OK(dtl_request_wait_all(requests, (uint64_t)used, DTL_TIMEOUT_INFINITE, infos));
    for (i = 0; i < used; i++) {
        if (index[i] < 0) continue;
        check(infos[i].size_bytes == sizes[i] && infos[i].tag == tag + index[i], number, "what a receive tells");
        check(is_filled(ins[index[i]], sizes[i], number + index[i]), number, "a message");
    }
}

int main(int argc, char **argv) {
    const char *seed_text = getenv("DTL_TEST_SEED"), *cases_text = getenv("DTL_TEST_CASES");
    uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 10) : now_ms();
    const int cases = cases_text != NULL ? atoi(cases_text) : 300;
    int number;
    start(argc, argv);
    comms[0] = open_comm();
    comms[1] = open_comm();
    CHECK_OK(dtl_comm_bcast(comms[0], &seed, 1, DTL_DTYPE_UINT64, 0));
    if (me == 0) {
        printf("DTL_TEST_SEED=%llu\n", (unsigned long long)seed);
        fflush(stdout);
    }
    state = seed;
    sent = (unsigned char *)malloc((size_t)MOST * 8);
    got = (unsigned char *)malloc((size_t)MOST * 8);
    expected = (unsigned char *)malloc((size_t)MOST * 8);
    CHECK(sent != NULL && got != NULL && expected != NULL);
    for (number = 0; number < cases; number++) {
        switch (below(4)) {
        case 0: random_reduction(comms[below(2)], number); break;
        case 1: random_move(comms[below(2)], number); break;
        case 2: random_messages(number); break;
        default: CHECK_OK(dtl_comm_barrier(comms[below(2)]));
        }
    }
    CHECK_OK(dtl_comm_barrier(comms[0]));
    CHECK_OK(dtl_comm_destroy(comms[0]));
    CHECK_OK(dtl_comm_destroy(comms[1]));
    finish();
    free(sent);
    free(got);
    free(expected);
    return 0;
}
