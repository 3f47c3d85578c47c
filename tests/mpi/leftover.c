/* A message that nobody received before its communicator was destroyed does not come on a later one, to which MPI gives the
 * same context.   leftover LEVEL */
#include "mpi_check.h"

enum { ROUNDS = 24 };

static dtl_comm_t next_one(dtl_comm_t all, int round, int rank)
{
    dtl_comm_t made;
    dtl_comm_desc_t limited = DTL_COMM_DESC_INIT;
    switch (round % 3) {
    case 0:
        CHECK_OK(dtl_comm_dup(all, &made));
        break;
    case 1:
        CHECK_OK(dtl_comm_split(all, 0, rank, &made));
        break;
    default: /* the library's messages over MPI's */
        limited.kind = "mpi";
        limited.timeout_ns = 20000000000;
        CHECK_OK(dtl_comm_open(&limited, &made));
    }
    return made;
}

int main(int argc, char **argv)
{
    int rank;
    dtl_comm_t all, gone, next;
    CHECK(argc == 2);
    init_mpi(&argc, &argv, argv[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &all));
    for (int round = 0; round < ROUNDS; round++) {
        const int32_t old = 1000 + round, new = 2000 + round;
        int32_t got = 0, found = 0;
        CHECK_OK(dtl_comm_dup(all, &gone));
        if (rank == 0) {
            CHECK_OK(dtl_comm_send(gone, &old, 1, DTL_DTYPE_INT32, 1, 5));
        }
        CHECK_OK(dtl_comm_barrier(all));
        for (int i = 0; i < 100; i++) { /* MPI takes the message in; MPICH 4.1 refuses to free its communicator then */
            CHECK_OK(dtl_comm_iprobe(all, DTL_ANY_SOURCE, DTL_ANY_TAG, &found, NULL));
        }
        CHECK_OK(dtl_comm_destroy(gone));
        next = next_one(all, round, rank);
        CHECK_OK(dtl_comm_iprobe(next, DTL_ANY_SOURCE, DTL_ANY_TAG, &found, NULL));
        CHECK(!found);
        CHECK_OK(dtl_comm_barrier(next));
        if (rank == 0) {
            CHECK_OK(dtl_comm_send(next, &new, 1, DTL_DTYPE_INT32, 1, 5));
        } else if (rank == 1) {
            CHECK_OK(dtl_comm_recv(next, &got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 5, NULL));
            CHECK(got == new);
        }
        CHECK_OK(dtl_comm_destroy(next));
    }
    CHECK_OK(dtl_comm_destroy(all));
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
