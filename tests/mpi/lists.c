/* Lists of requests over MPI's own messages: waits for all, for some and for any, and tests of all. Of each list, some
 * requests are sends that are over at once, some are receives, some are null. */
#include "mpi_check.h"

enum { MANY = 70, ROUNDS = 20 };

static dtl_comm_t comm;
static int rank, other;
static int64_t out[MANY], in[MANY];
static dtl_request_t list[2 * MANY + 1];
static dtl_recv_info_t infos[2 * MANY + 1];

/* Receive k is request 2 k, send k is request 2 k + 1; the last request is null. */
static void begin(int round)
{
    for (int k = 0; k < MANY; k++) {
        out[k] = 1000 * rank + 10 * round + k;
        in[k] = -1;
        CHECK_OK(dtl_comm_irecv(comm, &in[k], 1, DTL_DTYPE_INT64, other, k, &list[2 * k]));
    }
    for (int k = 0; k < MANY; k++) {
        CHECK_OK(dtl_comm_isend(comm, &out[k], 1, DTL_DTYPE_INT64, other, k, &list[2 * k + 1]));
    }
    list[2 * MANY].id = 0;
    memset(infos, 0, sizeof infos);
}

static void check_info(int request, const dtl_recv_info_t *info)
{
    CHECK(info->status == DTL_SUCCESS);
    if (request % 2 == 0) CHECK(info->source == other && info->tag == request / 2 && info->size_bytes == sizeof *in);
}

static void ended(int round)
{
    for (int k = 0; k < MANY; k++) CHECK(in[k] == 1000 * other + 10 * round + k);
    for (int i = 0; i < 2 * MANY + 1; i++) CHECK(list[i].id == 0);
}

static void one_round(int round)
{
    const uint64_t count = 2 * MANY + 1;
    uint64_t left = 2 * MANY;
    begin(round);
    CHECK_OK(dtl_request_wait_all(list, count, DTL_TIMEOUT_INFINITE, NULL));
    ended(round);
    begin(round);
    CHECK_OK(dtl_request_wait_all(list, count, 10000000000u, infos));
    ended(round);
    for (int i = 0; i < 2 * MANY; i++) check_info(i, &infos[i]);
    begin(round);
    for (int32_t done = 0; !done;) CHECK_OK(dtl_request_test_all(list, count, &done, infos));
    ended(round);
    for (int i = 0; i < 2 * MANY; i++) check_info(i, &infos[i]);
    begin(round);
    while (left > 0) {
        uint64_t some = 0, index = 0, indices[2 * MANY + 1];
        CHECK_OK(dtl_request_wait_some(list, count, DTL_TIMEOUT_INFINITE, &some, indices, infos));
        for (uint64_t i = 0; i < some; i++) check_info((int)indices[i], &infos[i]);
        left -= some;
        if (left > 0) {
            CHECK_OK(dtl_request_wait_any(list, count, DTL_TIMEOUT_INFINITE, &index, infos));
            check_info((int)index, infos);
            left--;
        }
    }
    ended(round);
}

/* A list with a receive that nobody answers, and with one that is cancelled: those behind them end all the same. */
static void failures(void)
{
    int64_t never = 0, value[2] = {0, 0}, sent = 7;
    dtl_request_t some[4];
    for (int limit = 0; limit < 2; limit++) {
        CHECK_OK(dtl_comm_irecv(comm, &value[0], 1, DTL_DTYPE_INT64, rank, 1, &some[0]));
        CHECK_OK(dtl_comm_irecv(comm, &never, 1, DTL_DTYPE_INT64, rank, 2, &some[1]));
        CHECK_OK(dtl_comm_irecv(comm, &value[1], 1, DTL_DTYPE_INT64, rank, 3, &some[2]));
        CHECK_OK(dtl_comm_isend(comm, &sent, 1, DTL_DTYPE_INT64, rank, 1, &some[3]));
        CHECK_OK(dtl_comm_send(comm, &sent, 1, DTL_DTYPE_INT64, rank, 3));
        if (limit) {
            CHECK_STATUS(dtl_request_wait_all(some, 4, 20000000, infos), DTL_ERROR_TIMEOUT);
            CHECK_SAID("requests[1]");
            CHECK(some[0].id == 0 && some[1].id != 0 && some[2].id == 0 && some[3].id == 0);
            CHECK_OK(dtl_request_cancel(some[1]));
            CHECK_STATUS(dtl_request_wait_all(some, 4, DTL_TIMEOUT_INFINITE, infos), DTL_ERROR_CANCELED);
        } else {
            CHECK_OK(dtl_request_cancel(some[1]));
            CHECK_STATUS(dtl_request_wait_all(some, 4, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        }
        CHECK_SAID("requests[1]");
        CHECK(value[0] == sent && value[1] == sent && never == 0);
        for (int i = 0; i < 4; i++) CHECK(some[i].id == 0);
        value[0] = value[1] = 0;
    }
    /* The second of two equal handles is stale. */
    CHECK_OK(dtl_comm_irecv(comm, &value[0], 1, DTL_DTYPE_INT64, rank, 1, &some[0]));
    CHECK_OK(dtl_comm_send(comm, &sent, 1, DTL_DTYPE_INT64, rank, 1));
    some[1] = some[0];
    CHECK_STATUS(dtl_request_wait_all(some, 2, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_SAID("requests[1]");
    CHECK(value[0] == sent);
}

int main(int argc, char **argv)
{
    int size;
    init_mpi(&argc, &argv, argc > 1 ? argv[1] : "multiple");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    other = (rank + 1) % size;
    CHECK(size == 2);
    CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &comm));
    for (int round = 0; round < ROUNDS; round++) one_round(round);
    failures();
    CHECK_OK(dtl_comm_destroy(comm));
    MPI_Finalize();
    if (rank == 0) printf("lists: ok\n");
    return 0;
}
