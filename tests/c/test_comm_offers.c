/* Messages that nobody asks for yet never keep later ones from moving, however many they are: they are received in the
 * reverse order; and what was withdrawn leaves its place. */
#include "comm_kinds.h"

enum { MANY = 1000, LARGE = 300000, WITHDRAWN = 600 };
static dtl_comm_t comm;
static unsigned char large[LARGE];

/* Synchronous sends of a few bytes, and standard ones that are too long to be kept by the library. */
static void backwards(uint64_t size, int count, int synchronous) {
    dtl_request_t *requests = (dtl_request_t *)calloc((size_t)count, sizeof *requests);
    int32_t i;
    CHECK(requests != NULL);
    for (i = 0; i < count && me == 0; i++) {
        if (synchronous)
            CHECK_OK(dtl_comm_issend(comm, large, size, DTL_DTYPE_BYTE, 1, i, &requests[i]));
        else
            CHECK_OK(dtl_comm_isend(comm, large, size, DTL_DTYPE_BYTE, 1, i, &requests[i]));
    }
    for (i = count - 1; i >= 0 && me == 1; i--) {
        large[size - 1] = 0;
        CHECK_OK(dtl_comm_recv(comm, large, size, DTL_DTYPE_BYTE, 0, i, NULL));
        CHECK(large[size - 1] == 7);
    }
    if (me == 0) CHECK_OK(dtl_request_wait_all(requests, (uint64_t)count, DTL_TIMEOUT_INFINITE, NULL));
    free(requests);
}

/* Nobody asks for the tag of what was withdrawn; some are withdrawn at once, others together. */
static void withdrawn(void) {
    static dtl_request_t requests[WITHDRAWN];
    dtl_recv_info_t info;
    int i;
    for (i = 0; i < WITHDRAWN && me == 0; i++) {
        CHECK_OK(dtl_comm_issend(comm, large, 8, DTL_DTYPE_BYTE, 1, 5, &requests[i]));
        if (i % 2) continue;
        CHECK_OK(dtl_request_cancel(requests[i]));
        CHECK_STATUS(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, &info), DTL_ERROR_CANCELED);
    }
    for (i = 1; i < WITHDRAWN && me == 0; i += 2) {
        CHECK_OK(dtl_request_cancel(requests[i]));
        CHECK_STATUS(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, &info), DTL_ERROR_CANCELED);
    }
    if (me == 0) CHECK_OK(dtl_comm_send(comm, large, LARGE, DTL_DTYPE_BYTE, 1, 6));
    if (me == 1) CHECK_OK(dtl_comm_recv(comm, large, LARGE, DTL_DTYPE_BYTE, 0, 6, NULL));
}

int main(int argc, char **argv) {
    int round;
    start(argc, argv);
    comm = open_comm();
    memset(large, 7, LARGE);
    for (round = 0; round < 3; round++) withdrawn();
    backwards(8, MANY, 1);
    backwards(LARGE, MANY, 0);
    withdrawn();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
