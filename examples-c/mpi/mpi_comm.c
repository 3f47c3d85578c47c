/* mpi_comm: a dtl communicator over an MPI communicator that the program already has.
 *
 * Build: find_package(dtl COMPONENTS MPI) and link dtl::mpi, or
 *        mpicc mpi_comm.c <prefix>/share/dtl/dtl_mpi.c $(pkg-config --cflags --libs libdtl) -o mpi_comm
 * Run:   mpirun -n 4 ./mpi_comm
 * Rank 0 prints the sum over the ranks as dtl and as MPI see it. Compiles as C and as C++.
 */
#include <dtl_mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv); /* gives MPI_THREAD_SINGLE: dtl is then called from this thread only */
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    dtl_comm_t comm;
    DTL_CHECK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));

    /* Both at once on the same ranks: neither sees the other's messages. */
    const int32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int32_t mine = rank, from_dtl = -1, from_mpi = -1;
    dtl_request_t receive;
    DTL_CHECK(dtl_comm_irecv(comm, &from_dtl, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &receive));
    MPI_Sendrecv(&mine, 1, MPI_INT32_T, previous, 5, &from_mpi, 1, MPI_INT32_T, next, 5, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    DTL_CHECK(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, next, 5));
    DTL_CHECK(dtl_request_wait(receive, DTL_TIMEOUT_INFINITE, NULL));

    int32_t sum = 0, mpi_sum = 0;
    DTL_CHECK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    MPI_Allreduce(&mine, &mpi_sum, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("mpi_comm: %d ranks, sum %d by dtl and %d by MPI\n", size, (int)sum, (int)mpi_sum);
    }

    DTL_CHECK(dtl_comm_destroy(comm)); /* dtl before MPI_Finalize: see dtl_mpi.h */
    DTL_CHECK(dtl_finalize());
    MPI_Finalize();
    return sum == mpi_sum && from_dtl == previous && from_mpi == next ? 0 : 1;
}
