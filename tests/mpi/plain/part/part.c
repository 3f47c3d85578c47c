/* A library that begins as an MPI does and has none of the rest, for session.c. */
int MPI_Comm_rank(void *comm, int *rank);

int MPI_Comm_rank(void *comm, int *rank)
{
    (void)comm;
    *rank = 0;
    return 0;
}
