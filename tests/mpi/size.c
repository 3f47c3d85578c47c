/* Prints how many ranks the job has: shows that an MPI's launcher and library belong together (find.cmake). C11. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank = 0, size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) printf("%d ranks\n", size);
    MPI_Finalize();
    return 0;
}
