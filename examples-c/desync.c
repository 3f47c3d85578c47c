/* desync: a program with the classic bug, and the report that names it.
 *
 * Rank 1 calls bcast where the others call allreduce. Most libraries hang here, or give wrong numbers.
 *
 * Build: cc desync.c $(pkg-config --cflags --libs libdtl) -o desync
 * Run:   dtlrun -n 4 ./desync
 * Prints, from each rank, what its failed call says, and from rank 0 the long report of dtl_comm_dump;
 * succeeds if they name the ranks and both calls.
 */
#include <dtl.h>

#include <stdio.h>
#include <string.h>

/* Nobody leaves before all have their reports: a rank that has left answers no questions. Collectives are
 * refused after the failure, point to point is not. */
static void leave_together(dtl_comm_t comm, int32_t rank, int32_t size)
{
    char word = 0;
    for (int32_t other = 1; other < size; other++) {
        if (rank == 0) DTL_CHECK(dtl_comm_recv(comm, &word, 1, DTL_DTYPE_BYTE, other, 0, NULL));
    }
    for (int32_t other = 1; other < size; other++) {
        if (rank == 0) DTL_CHECK(dtl_comm_send(comm, &word, 1, DTL_DTYPE_BYTE, other, 0));
    }
    if (rank != 0) {
        DTL_CHECK(dtl_comm_send(comm, &word, 1, DTL_DTYPE_BYTE, 0, 0));
        DTL_CHECK(dtl_comm_recv(comm, &word, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    }
}

int main(void)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    double mine[64] = {0}, sum[64];
    char text[1024], report[16384];
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
    snprintf(text, sizeof text, "%s", dtl_last_error()); /* until the next call that fails */
    printf("rank %d: %s\n  %s\n", (int)rank, dtl_status_name(status), text);
    DTL_CHECK(dtl_comm_dump(comm, report, sizeof report, NULL));
    if (rank == 0) printf("%s", report);
    leave_together(comm, rank, size);

    /* What a rank was in, the text says if that rank was still in it; else the report's last operations do. */
    const int names_bug = strstr(text, "bcast #1") != NULL || strstr(report, "bcast #1") != NULL;
    const int names_rest = strstr(text, "allreduce #1") != NULL || strstr(report, "allreduce #1") != NULL;
    DTL_CHECK(dtl_comm_destroy(comm));
    DTL_CHECK(dtl_finalize());
    return status != DTL_SUCCESS && strstr(report, "rank 1") != NULL && names_bug && names_rest ? 0 : 1;
}
