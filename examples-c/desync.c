/* desync: a program with the classic bug, and the report that names it.
 *
 * Rank 1 calls bcast where the others call allreduce. Most libraries hang here, or give wrong numbers.
 *
 * Build: cc desync.c $(pkg-config --cflags --libs libdtl) -o desync
 * Run:   dtlrun -n 4 ./desync
 * Prints, from each rank, what its failed call says; succeeds if it names the ranks and both calls.
 */
#include <dtl.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    double mine[64] = {0}, sum[64];
    int32_t rank = 0, size = 0;
    dtl_status_t status;

    desc.timeout_ns = UINT64_C(1000000000); /* no call waits longer than a second */
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_open(&desc, &comm));
    DTL_CHECK(dtl_comm_rank(comm, &rank));
    DTL_CHECK(dtl_comm_size(comm, &size));
    if (size == 1) {
        printf("desync: one rank cannot disagree with itself; use dtlrun -n 4\n");
        return 0;
    }

    DTL_CHECK(dtl_comm_barrier(comm)); /* so far all is well */
    if (rank == 1) {
        status = dtl_comm_bcast(comm, mine, 64, DTL_DTYPE_FLOAT64, 0); /* the bug */
    } else {
        status = dtl_comm_allreduce(comm, mine, sum, 64, DTL_DTYPE_FLOAT64, DTL_OP_SUM);
    }

    const char *text = dtl_last_error();
    printf("rank %d: %s\n  %s\n", (int)rank, dtl_status_name(status), text);
    const int found = status != DTL_SUCCESS && strstr(text, "bcast #1") != NULL &&
                      strstr(text, "allreduce #1") != NULL && strstr(text, "rank 1 is in bcast") != NULL;
    DTL_CHECK(dtl_comm_destroy(comm));
    DTL_CHECK(dtl_finalize());
    return found ? 0 : 1;
}
