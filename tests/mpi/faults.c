/* Errors of MPI become statuses with MPI's class and text. This program puts itself between dtl_mpi.c
 * and MPI (the profiling interface: MPI_X here calls PMPI_X) and makes calls fail. */
#include "mpi_check.h"

static int fail_isend, fail_improbe, fail_imrecv, fail_dup_after = -1, comms_freed, comms_made;

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *out)
{
    return fail_isend ? MPI_ERR_OTHER : PMPI_Isend(buf, count, type, dest, tag, comm, out);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *found, MPI_Message *message, MPI_Status *status)
{
    return fail_improbe ? MPI_ERR_NO_MEM : PMPI_Improbe(source, tag, comm, found, message, status);
}

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Request *out)
{
    const int code = PMPI_Imrecv(buf, count, type, message, out);
    if (!fail_imrecv) {
        return code;
    }
    PMPI_Wait(out, MPI_STATUS_IGNORE);
    return MPI_ERR_OTHER;
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *out)
{
    if (fail_dup_after >= 0 && fail_dup_after-- == 0) {
        return MPI_ERR_INTERN;
    }
    comms_made++;
    return PMPI_Comm_dup_with_info(comm, info, out);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    comms_freed++;
    return PMPI_Comm_free(comm);
}

int main(int argc, char **argv)
{
    int rank = 0, size = 0;
    int32_t mine = 7, got = 0;
    dtl_comm_t comm, none = DTL_COMM_NULL;
    dtl_request_t request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* The second duplicate fails: the first is given back. */
    for (int after = 0; after < 2; after++) {
        fail_dup_after = after;
        CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &none), DTL_ERROR_MPI);
        CHECK_SAID("MPI_Comm_dup_with_info: MPI error class");
        CHECK(none.id == 0 && comms_made == comms_freed);
    }
    CHECK_OK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));
    CHECK(comms_made == comms_freed + 2);
    fail_isend = 1;
    CHECK_STATUS(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, rank, 1), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Isend: MPI error class");
    fail_isend = 0;
    /* A failed probe takes nothing: the message comes afterwards. */
    CHECK_OK(dtl_comm_isend(comm, &mine, 1, DTL_DTYPE_INT32, rank, 1, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, rank, 1, &request));
    fail_improbe = 1;
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_SAID("MPI_Improbe");
    fail_improbe = 0;
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(got == 7);
    /* A receive that fails once it has its message is over, with MPI's text. */
    CHECK_OK(dtl_comm_isend(comm, &mine, 1, DTL_DTYPE_INT32, rank, 2, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    fail_imrecv = 1;
    CHECK_STATUS(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, rank, 2, NULL), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Imrecv: MPI error class");
    fail_imrecv = 0;
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    CHECK(comms_made == comms_freed);
    MPI_Finalize();
    return 0;
}
