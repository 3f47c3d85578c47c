/* One send and one copy whose calls run.sh records under callgrind: those inside of walk_send and walk_copy,
 * after others that warm up. One thread drives both ends of a communicator. C11. */
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>

/* Larger than any struct of the library, and small enough that the C library copies it by loads and stores. */
enum { BYTES = 2000 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != DTL_SUCCESS) {                                                                                   \
            fprintf(stderr, "%s: %s\n", #call, dtl_last_error());                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static dtl_comm_t ends[2];
static unsigned char source[BYTES], target[BYTES];

__attribute__((noinline)) static void walk_send(void)
{
    CHECK(dtl_comm_send(ends[0], source, BYTES, DTL_DTYPE_UINT8, 1, 3));
}

__attribute__((noinline)) static void walk_copy(void)
{
    CHECK(dtl_mem_copy(target, source, BYTES));
}

int main(void)
{
    CHECK(dtl_comm_threads(2, DTL_TIMEOUT_INFINITE, ends));
    for (int i = 0; i < 3; i++) {
        dtl_request_t request;
        CHECK(dtl_comm_irecv(ends[1], target, BYTES, DTL_DTYPE_UINT8, 0, 3, &request));
        if (i < 2) {
            CHECK(dtl_comm_send(ends[0], source, BYTES, DTL_DTYPE_UINT8, 1, 3));
            CHECK(dtl_mem_copy(target, source, BYTES));
        } else {
            walk_send();
            walk_copy();
        }
        CHECK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    }
    for (int rank = 0; rank < 2; rank++) {
        CHECK(dtl_comm_destroy(ends[rank]));
    }
    return 0;
}
