/* The sum over the ranks of the program's own MPI_COMM_WORLD, through dtl. */
#include <dtl_mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    dtl_comm_t comm;
    DTL_CHECK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));
    int64_t mine = rank + 1, sum = 0;
    DTL_CHECK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    DTL_CHECK(dtl_comm_destroy(comm));
    DTL_CHECK(dtl_finalize());
    MPI_Finalize();
    printf("consumer: rank %d of %d has the sum %lld\n", rank, size, (long long)sum);
    return sum == (int64_t)size * (size + 1) / 2 ? 0 : 1;
}
