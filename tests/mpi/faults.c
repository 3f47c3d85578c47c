/* Errors of MPI become statuses with MPI's class and text. This program puts itself between dtl_mpi.c
 * and MPI (the profiling interface: MPI_X here calls PMPI_X) and makes calls fail. */
#include "mpi_check.h"

static int fail_isend, fail_improbe, fail_imrecv, fail_dup, fail_incl, fail_create, fail_commit;
static int comms_freed, comms_made, groups_freed, groups_made, types_freed, types_made;

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
    if (fail_dup) {
        return MPI_ERR_INTERN;
    }
    comms_made++;
    return PMPI_Comm_dup_with_info(comm, info, out);
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    comms_made++;
    return PMPI_Comm_dup(comm, out);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    comms_made++;
    return PMPI_Comm_split(comm, color, key, out);
}

int MPI_Comm_free(MPI_Comm *comm)
{
    comms_freed++;
    return PMPI_Comm_free(comm);
}

int MPI_Comm_group(MPI_Comm comm, MPI_Group *out)
{
    groups_made++;
    return PMPI_Comm_group(comm, out);
}

int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group *out)
{
    if (fail_incl) {
        return MPI_ERR_RANK;
    }
    groups_made++;
    return PMPI_Group_incl(group, n, ranks, out);
}

int MPI_Group_free(MPI_Group *group)
{
    groups_freed++;
    return PMPI_Group_free(group);
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out)
{
    return fail_create ? MPI_ERR_OTHER : PMPI_Comm_create_group(comm, group, tag, out);
}

int MPI_Type_contiguous(int count, MPI_Datatype old, MPI_Datatype *out)
{
    types_made++;
    return PMPI_Type_contiguous(count, old, out);
}

int MPI_Type_commit(MPI_Datatype *type)
{
    return fail_commit ? MPI_ERR_OTHER : PMPI_Type_commit(type);
}

int MPI_Type_free(MPI_Datatype *type)
{
    types_freed++;
    return PMPI_Type_free(type);
}

/* Kind "mpi" frees its MPI groups and datatypes, whichever call of MPI fails. */
static void check_nothing_is_left(int rank)
{
    int8_t one = 1, sum = 0;
    dtl_comm_t comm, dup, half = DTL_COMM_NULL;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_dup(comm, &dup));
    fail_incl = 1;
    CHECK_STATUS(dtl_comm_split(dup, rank, 0, &half), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Group_incl");
    fail_incl = 0;
    fail_create = 1;
    CHECK_STATUS(dtl_comm_split(dup, rank, 0, &half), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Comm_create_group");
    fail_create = 0;
    CHECK(half.id == 0 && groups_made == groups_freed && groups_made == 3);
    fail_commit = 1;
    CHECK_STATUS(dtl_comm_allreduce(dup, &one, &sum, 1, DTL_DTYPE_INT8, DTL_OP_SUM), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Type_commit");
    fail_commit = 0;
    CHECK(types_made == 1 && types_freed == 1);
    CHECK_OK(dtl_comm_destroy(dup));
    CHECK_OK(dtl_comm_destroy(comm));
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
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    fail_dup = 1;
    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &none), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Comm_dup_with_info: MPI error class");
    CHECK(none.id == 0 && comms_made == comms_freed);
    fail_dup = 0;
    CHECK_OK(dtl_comm_from_mpi(MPI_COMM_WORLD, &comm));
    CHECK(comms_made == comms_freed + 1);
    check_nothing_is_left(rank);
    fail_isend = 1;
    CHECK_STATUS(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, next, 1), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Isend: MPI error class");
    fail_isend = 0;
    /* A failed probe takes nothing: the message comes afterwards. */
    CHECK_OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, previous, 1, &request));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, next, 1));
    fail_improbe = 1;
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_SAID("MPI_Improbe");
    fail_improbe = 0;
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(got == 7);
    /* A message that MPI loses ends all operations, with MPI's text: nothing may arrive after it. */
    MPI_Barrier(MPI_COMM_WORLD);
    fail_imrecv = 1;
    CHECK_OK(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, next, 2));
    CHECK_STATUS(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, previous, 2, NULL), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Imrecv: MPI error class");
    CHECK_STATUS(dtl_comm_send(comm, &mine, 1, DTL_DTYPE_INT32, next, 3), DTL_ERROR_MPI);
    CHECK_SAID("MPI_Imrecv: MPI error class");
    fail_imrecv = 0;
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    CHECK(comms_made == comms_freed);
    MPI_Finalize();
    return 0;
}
