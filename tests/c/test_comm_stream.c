/* A stream of short messages between two ranks keeps no third one waiting: rank 2 waits for a large message of rank 0, which
 * does nothing but exchange short ones with rank 1 until rank 2 has it. */
#include "comm_kinds.h"

enum { LARGE = 3 << 20, SHORT = 1, STOP = 2, DATA = 3 };
static dtl_comm_t comm;

static void from_rank_0(unsigned char *large, int sends) {
    dtl_request_t request;
    int32_t goes_on = 1, number = 0;
    fill(large, LARGE, 7);
    CHECK_OK(dtl_comm_isend(comm, large, LARGE, DTL_DTYPE_BYTE, 2, DATA, &request));
    while (goes_on) {
        CHECK_OK(dtl_comm_recv(comm, &goes_on, 1, DTL_DTYPE_INT32, 1, SHORT, NULL));
        if (sends) CHECK_OK(dtl_comm_send(comm, &number, 1, DTL_DTYPE_INT32, 1, SHORT));
        number++;
    }
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
}

static void from_rank_1(int receives) {
    int32_t goes_on = 1, number, stop;
    while (goes_on) {
        CHECK_OK(dtl_comm_iprobe(comm, 2, STOP, &stop, NULL));
        goes_on = !stop;
        CHECK_OK(dtl_comm_send(comm, &goes_on, 1, DTL_DTYPE_INT32, 0, SHORT));
        if (receives) CHECK_OK(dtl_comm_recv(comm, &number, 1, DTL_DTYPE_INT32, 0, SHORT, NULL));
    }
    CHECK_OK(dtl_comm_recv(comm, NULL, 0, DTL_DTYPE_BYTE, 2, STOP, NULL));
}

static void to_rank_2(unsigned char *large) {
    memset(large, 0, LARGE);
    CHECK_OK(dtl_comm_recv(comm, large, LARGE, DTL_DTYPE_BYTE, 0, DATA, NULL));
    CHECK(is_filled(large, LARGE, 7));
    CHECK_OK(dtl_comm_send(comm, NULL, 0, DTL_DTYPE_BYTE, 1, STOP));
}

int main(int argc, char **argv) {
    unsigned char *large = (unsigned char *)malloc(LARGE);
    int round;
    start(argc, argv);
    comm = open_comm();
    CHECK(large != NULL && ranks >= 3);
    for (round = 0; round < 6; round++) {
        const int both_ways = round % 2;
        if (me == 0) from_rank_0(large, both_ways);
        if (me == 1) from_rank_1(both_ways);
        if (me == 2) to_rank_2(large);
        CHECK_OK(dtl_comm_barrier(comm));
    }
    free(large);
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
