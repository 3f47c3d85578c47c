/* What mpi_matrix.sh runs under each MPI: communicators of kind "mpi", with and without time limits, in a program
 * that is linked with MPI (adopted: the world, a duplicate, a part of it) or, with -DPLAIN, in one that is not.
 * Prints on rank 0 which of them worked. */
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef PLAIN
#include <mpi.h>
/* The standard's binary interface has MPI_Comm_toint alone. */
#if MPI_VERSION >= 5
#define TO_INT MPI_Comm_toint
#else
#define TO_INT MPI_Comm_c2f
#endif
#endif

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: failed: %s; last error: %s\n", __FILE__, __LINE__,            \
                    #condition, dtl_last_error());                                                \
            abort();                                                                              \
        }                                                                                         \
    } while (0)
#define CHECK_OK(call) CHECK((call) == DTL_SUCCESS)

enum { COUNT = 30000 };

/* Messages to the next rank, small and large; collectives that wait and one that is started. */
static void use(dtl_comm_t comm)
{
    static double mine[COUNT], sums[COUNT];
    int32_t rank = -1, size = -1;
    dtl_request_t request;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    for (int i = 0; i < COUNT; i++) {
        mine[i] = rank + i;
    }
    for (uint64_t count = 1; count <= COUNT; count *= 10) {
        const int32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
        CHECK_OK(dtl_comm_sendrecv(comm, mine, count, next, 5, sums, count, previous, 5, DTL_DTYPE_FLOAT64, NULL));
        CHECK(sums[count - 1] == previous + (double)count - 1);
        CHECK_OK(dtl_comm_allreduce(comm, mine, sums, count, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
        CHECK(sums[count - 1] == size * (size - 1) / 2 + size * ((double)count - 1));
        CHECK_OK(dtl_comm_iallreduce(comm, mine, sums, count, DTL_DTYPE_FLOAT64, DTL_OP_MAX, &request));
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(sums[0] == size - 1);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* `mpi_comm`: NULL, or the address of MPI_Comm_c2f of a communicator. */
static void use_both_ways(const int32_t *mpi_comm)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    desc.kind = "mpi";
    desc.mpi_comm = mpi_comm;
    desc.timeout_ns = DTL_TIMEOUT_INFINITE;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    use(comm);
    desc.timeout_ns = 60000000000u;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    use(comm);
}

#ifdef PLAIN
int main(void)
{
    dtl_comm_t comm;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    int32_t rank = -1;
    use_both_ways(NULL);
    desc.kind = "mpi";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_finalize());
    if (rank == 0) {
        printf("yes\n");
    }
    return 0;
}
#else
static void adopt(const char *name, MPI_Comm from, int rank)
{
    dtl_comm_t comm;
    const int32_t number = (int32_t)TO_INT(from);
    CHECK_OK(dtl_comm_from_mpi_fint(number, &comm));
    use(comm);
    use_both_ways(&number);
    if (rank == 0) {
        printf("%s\n", name);
    }
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int level, rank, length;
    MPI_Comm made;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n")] = 0;
    if (rank == 0) {
        printf("version %s\n", version);
    }
    adopt("world", MPI_COMM_WORLD, rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    adopt("dup", made, rank);
    MPI_Comm_free(&made);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &made);
    adopt("split", made, rank);
    MPI_Comm_free(&made);
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
#endif
