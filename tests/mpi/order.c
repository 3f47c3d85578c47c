/* What is answered before MPI_Init and after MPI_Finalize, and both orders of the two finalizes.
 *     order dtl-first | mpi-first | mpi-first-unclosed */
#include "mpi_check.h"

int main(int argc, char **argv)
{
    const char *order = argc > 1 ? argv[1] : "dtl-first";
    dtl_comm_t comm = DTL_COMM_NULL, other = DTL_COMM_NULL;
    dtl_backend_t backend;
    dtl_request_t receive, cancelled;
    int64_t mine = 1, sum = 0;
    int rank = 0, size = 0;
    CHECK_OK(dtl_mpi_register());
    CHECK_OK(dtl_mpi_register());
    CHECK_OK(dtl_backend_get(DTL_MPI_KIND, &backend));
    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("call MPI_Init first");

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK_OK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(sum == size);
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);

    if (strcmp(order, "dtl-first") == 0) {
        CHECK_OK(dtl_finalize()); /* closes the communicator */
        CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &other), DTL_ERROR_INVALID_STATE);
        CHECK_STATUS(dtl_mpi_register(), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_init(NULL)); /* and again from the beginning */
        CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_HANDLE);
        CHECK_OK(dtl_comm_from_mpi(MPI_COMM_WORLD, &other));
        CHECK_OK(dtl_comm_barrier(other));
        CHECK_OK(dtl_comm_destroy(other));
        CHECK_OK(dtl_finalize());
        MPI_Finalize();
        return 0;
    }
    CHECK_OK(dtl_comm_irecv(comm, &sum, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 9, &receive));
    CHECK_OK(dtl_comm_irecv(comm, &sum, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 9, &cancelled));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    CHECK_STATUS(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT64, (rank + 1) % size, 1),
                 DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is finalised");
    CHECK_STATUS(dtl_comm_recv(comm, &sum, 1, DTL_DTYPE_INT64, rank, 1, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &other), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_request_wait(receive, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_request_cancel(cancelled)); /* too late: MPI_Finalize has ended it */
    CHECK_STATUS(dtl_request_wait(cancelled, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_INVALID_STATE);
    if (size > 1) {
        CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    }
    if (strcmp(order, "mpi-first") == 0) {
        CHECK_OK(dtl_comm_destroy(comm));
    }
    CHECK_OK(dtl_finalize());
    return 0;
}
