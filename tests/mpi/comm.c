/* Communicators over MPI: messages, matching, limits and collectives, on MPI_COMM_WORLD, on a
 * duplicate and on a part of it, with the program's own traffic on the same communicator going on.
 * MPI itself is the oracle of the collectives.   comm LEVEL */
#include "mpi_check.h"

enum { BIG = 8 << 20 };

static unsigned random_state;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void check_messages(dtl_comm_t comm, int rank, int size)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    dtl_recv_info_t info;
    dtl_request_t sent;
    int32_t mine[3] = {rank, rank + 1, rank + 2}, got[3] = {-1, -1, -1};
    /* by tag, the other way round than sent; then of no bytes */
    dtl_request_t early, late, empty;
    CHECK_OK(dtl_comm_isend(comm, mine, 1, DTL_DTYPE_INT32, next, 1, &early));
    CHECK_OK(dtl_comm_isend(comm, mine + 1, 1, DTL_DTYPE_INT32, next, DTL_TAG_MAX, &late));
    CHECK_OK(dtl_comm_isend(comm, NULL, 0, DTL_DTYPE_INT32, next, 0, &empty));
    CHECK_OK(dtl_comm_recv(comm, got, 3, DTL_DTYPE_INT32, previous, DTL_TAG_MAX, &info));
    CHECK(got[0] == previous + 1 && got[1] == -1 && info.size_bytes == 4 && info.tag == DTL_TAG_MAX);
    CHECK_OK(dtl_comm_recv(comm, got, 3, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
    CHECK(got[0] == previous && info.source == previous && info.tag == 1);
    CHECK_OK(dtl_comm_recv(comm, NULL, 0, DTL_DTYPE_INT32, previous, DTL_ANY_TAG, &info));
    CHECK(info.size_bytes == 0 && info.tag == 0 && info.source == previous);
    CHECK_OK(dtl_request_wait(early, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_wait(late, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_wait(empty, DTL_TIMEOUT_INFINITE, NULL));
    /* truncation, small and large: the buffer is full, the rest untouched, the size is the true one */
    CHECK_OK(dtl_comm_isend(comm, mine, 3, DTL_DTYPE_INT32, next, 2, &sent));
    got[1] = -7;
    CHECK_STATUS(dtl_comm_recv(comm, got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 2, &info), DTL_ERROR_TRUNCATED);
    CHECK(got[0] == previous && got[1] == -7 && info.size_bytes == 12 && info.source == previous);
    CHECK_OK(dtl_request_wait(sent, DTL_TIMEOUT_INFINITE, NULL));
    char *big = malloc(BIG), *into = malloc(BIG + 1);
    CHECK(big != NULL && into != NULL);
    memset(big, rank + 1, BIG);
    for (int part = 1; part >= 0; part--) { /* half of it, then all */
        const uint64_t room = part ? BIG / 2 : BIG;
        memset(into, 0x55, BIG + 1);
        CHECK_OK(dtl_comm_isend(comm, big, BIG, DTL_DTYPE_BYTE, next, 3, &sent));
        CHECK_STATUS(dtl_comm_recv(comm, into, room, DTL_DTYPE_BYTE, previous, 3, &info),
                     part ? DTL_ERROR_TRUNCATED : DTL_SUCCESS);
        CHECK(info.size_bytes == BIG && info.tag == 3);
        CHECK_OK(dtl_request_wait(sent, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(into[0] == previous + 1 && into[room - 1] == previous + 1 && into[room] == 0x55);
    }
    memset(into, 0, BIG);
    CHECK_OK(dtl_comm_sendrecv(comm, big, BIG, previous, 4, into, BIG, next, 4, DTL_DTYPE_BYTE, NULL));
    CHECK(into[0] == next + 1 && into[BIG - 1] == next + 1);
    free(big);
    free(into);
}

/* One sender, many receives of one tag or of any: a message goes to the first receive that wants it. */
static void check_order(dtl_comm_t comm, int rank, int size)
{
    enum { COUNT = 300, TAGS = 3 };
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int32_t tags[COUNT], sent[COUNT], wanted[COUNT], got[COUNT], expected[COUNT];
    dtl_request_t sends[COUNT], receives[COUNT];
    for (int i = 0; i < COUNT; i++) { /* the same on all ranks */
        tags[i] = (int32_t)random_below(TAGS);
        wanted[i] = random_below(2) ? DTL_ANY_TAG : (int32_t)random_below(TAGS);
        sent[i] = i;
        got[i] = expected[i] = -1;
    }
    int32_t left[COUNT], left_count = 0;
    for (int message = 0; message < COUNT; message++) {
        int i = 0;
        while (i < COUNT && (expected[i] >= 0 || (wanted[i] != DTL_ANY_TAG && wanted[i] != tags[message]))) {
            i++;
        }
        if (i < COUNT) {
            expected[i] = message;
        } else {
            left[left_count++] = message;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        const int32_t source = i % 3 != 0 || size > 2 ? previous : DTL_ANY_SOURCE;
        CHECK_OK(dtl_comm_irecv(comm, &got[i], 1, DTL_DTYPE_INT32, source, wanted[i], &receives[i]));
        CHECK_OK(dtl_comm_isend(comm, &sent[i], 1, DTL_DTYPE_INT32, next, tags[i], &sends[i]));
        if (random_below(8) == 0) {
            int32_t done = 0;
            CHECK_OK(dtl_request_test(sends[i], &done, NULL)); /* progress in between */
            sends[i] = done ? DTL_REQUEST_NULL : sends[i];
        }
    }
    for (int i = 0; i < COUNT; i++) {
        if (expected[i] >= 0) {
            CHECK_OK(dtl_request_wait(receives[i], DTL_TIMEOUT_INFINITE, NULL));
            CHECK(got[i] == expected[i]);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        if (expected[i] < 0) {
            CHECK_OK(dtl_request_cancel(receives[i]));
            CHECK_STATUS(dtl_request_wait(receives[i], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        }
    }
    for (int i = 0; i < left_count; i++) {
        int32_t value = -1;
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, previous, DTL_ANY_TAG, NULL));
        CHECK(value == left[i]);
    }
    CHECK_OK(dtl_request_wait_all(sends, COUNT, DTL_TIMEOUT_INFINITE, NULL));
}

/* Small sends may be over as they begin: they can be waited for late and in any order, tell who asks, and a cancel comes too
 * late for them. (Where they are not over, it is refused, and changes nothing.) */
static void check_small_sends(MPI_Comm user, int rank, int size)
{
    enum { MANY = 300 };
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    dtl_comm_t comm;
    dtl_request_t sends[MANY];
    int64_t values[MANY];
    CHECK_OK(dtl_comm_from_mpi(user, &comm));
    for (int i = 0; i < MANY; i++) {
        values[i] = rank * 1000 + i;
        CHECK_OK(dtl_comm_isend(comm, &values[i], 1, DTL_DTYPE_INT64, next, i, &sends[i]));
    }
    const dtl_status_t cancelled = dtl_request_cancel(sends[0]);
    CHECK(cancelled == DTL_SUCCESS || cancelled == DTL_ERROR_NOT_SUPPORTED);
    for (int i = MANY - 1; i >= 0; i--) {
        int64_t value = -1;
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT64, previous, i, NULL));
        CHECK(value == previous * 1000 + i);
    }
    for (int i = 0; i < MANY; i += 2) {
        dtl_recv_info_t info;
        memset(&info, 0, sizeof info);
        CHECK_OK(dtl_request_wait(sends[i], DTL_TIMEOUT_INFINITE, i % 4 == 0 ? &info : NULL));
        CHECK(info.status == DTL_SUCCESS);
        CHECK_STATUS(dtl_request_wait(sends[i], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_INVALID_HANDLE);
        sends[i] = DTL_REQUEST_NULL;
    }
    CHECK_OK(dtl_request_wait_all(sends, MANY, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* A receive and a send that nobody answers end at the limit; the receive takes nothing afterwards. */
static void check_limits(MPI_Comm user, int rank, int size)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    int32_t value = 42, none = -1;
    desc.timeout_ns = 200000000;
    CHECK_OK(dtl_comm_open_mpi(user, &desc, &comm));
    CHECK_STATUS(dtl_comm_recv(comm, &none, 1, DTL_DTYPE_INT32, previous, 5, NULL), DTL_ERROR_TIMEOUT);
    MPI_Barrier(user);
    CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, next, 5));
    value = 0;
    MPI_Barrier(user);
    CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, previous, 5, NULL));
    CHECK(value == 42 && none == -1);
    /* Too large to leave without the receiver: it is withdrawn, and nobody gets it. */
    char *big = malloc(BIG);
    CHECK(big != NULL);
    memset(big, 1, BIG);
    MPI_Barrier(user);
    CHECK_STATUS(dtl_comm_send(comm, big, BIG, DTL_DTYPE_BYTE, next, 6), DTL_ERROR_TIMEOUT);
    memset(big, 2, BIG);
    MPI_Barrier(user);
    dtl_request_t request;
    CHECK_OK(dtl_comm_irecv(comm, big, BIG, DTL_DTYPE_BYTE, previous, 6, &request));
    CHECK_STATUS(dtl_request_wait(request, 100000000, NULL), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK(big[0] == 2 && big[BIG - 1] == 2);
    free(big);
    CHECK_OK(dtl_comm_destroy(comm));
}

static void check_collective(dtl_comm_t comm, MPI_Comm oracle, int rank, int size, int count)
{
    const size_t bytes = sizeof(double) * (size_t)(count * size + 1);
    double *in = malloc(bytes), *ours = calloc(1, bytes), *theirs = calloc(1, bytes);
    const uint64_t n = (uint64_t)count;
    CHECK(in != NULL && ours != NULL && theirs != NULL);
    for (int i = 0; i < count * size; i++) {
        in[i] = (double)((rank + 1) * 1000 + i % 977); /* sums of these are exact */
    }
#define SAME(elements) CHECK(memcmp(ours, theirs, sizeof(double) * (size_t)(elements)) == 0)
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_allreduce(comm, in, ours, n, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    MPI_Allreduce(in, theirs, count, MPI_DOUBLE, MPI_SUM, oracle);
    SAME(count);
    CHECK_OK(dtl_comm_allgather(comm, in, n, ours, DTL_DTYPE_FLOAT64));
    MPI_Allgather(in, count, MPI_DOUBLE, theirs, count, MPI_DOUBLE, oracle);
    SAME(count * size);
    CHECK_OK(dtl_comm_alltoall(comm, in, n, ours, DTL_DTYPE_FLOAT64));
    MPI_Alltoall(in, count, MPI_DOUBLE, theirs, count, MPI_DOUBLE, oracle);
    SAME(count * size);
    for (int root = 0; root < size; root++) {
        memcpy(ours, in, bytes - sizeof(double));
        memcpy(theirs, in, bytes - sizeof(double));
        CHECK_OK(dtl_comm_bcast(comm, ours, n, DTL_DTYPE_FLOAT64, root));
        MPI_Bcast(theirs, count, MPI_DOUBLE, root, oracle);
        SAME(count);
        CHECK_OK(dtl_comm_scatter(comm, in, n, ours, DTL_DTYPE_FLOAT64, root));
        MPI_Scatter(in, count, MPI_DOUBLE, theirs, count, MPI_DOUBLE, root, oracle);
        SAME(count);
        CHECK_OK(dtl_comm_reduce(comm, in, ours, n, DTL_DTYPE_FLOAT64, DTL_OP_MAX, root));
        MPI_Reduce(in, theirs, count, MPI_DOUBLE, MPI_MAX, root, oracle);
        CHECK_OK(dtl_comm_gather(comm, in, n, ours + (rank == root ? 0 : count), DTL_DTYPE_FLOAT64, root));
        MPI_Gather(in, count, MPI_DOUBLE, theirs, count, MPI_DOUBLE, root, oracle);
        SAME(rank == root ? count * size : 0);
    }
#undef SAME
    free(in);
    free(ours);
    free(theirs);
}

static void check_all(MPI_Comm user)
{
    int rank = 0, size = 0, mine = 0, got = -1;
    MPI_Request pending;
    MPI_Status status;
    MPI_Errhandler handler;
    dtl_comm_t comm;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    MPI_Comm_rank(user, &rank);
    MPI_Comm_size(user, &size);
    /* The program's own: a receive of anything is posted all the while, and comes at the end. */
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, user, &pending);
    CHECK_OK(dtl_comm_from_mpi(user, &comm));
    MPI_Comm_get_errhandler(user, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL);
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(info.rank == rank && info.size == size && strcmp(info.kind, DTL_MPI_KIND) == 0);
    check_messages(comm, rank, size);
    check_order(comm, rank, size);
    check_small_sends(user, rank, size);
    check_limits(user, rank, size);
    /* A duplicate: on one rank, MPICH 4.0's MPI_Alltoall hangs beside the posted receive. */
    MPI_Comm oracle;
    MPI_Comm_dup(user, &oracle);
    const int counts[] = {0, 1, 7, 1000, 70000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_collective(comm, oracle, rank, size, counts[i]);
    }
    MPI_Comm_free(&oracle);
    mine = 100 + rank;
    MPI_Send(&mine, 1, MPI_INT, (rank + 1) % size, 77, user);
    MPI_Wait(&pending, &status);
    CHECK(status.MPI_TAG == 77 && got == 100 + (rank + size - 1) % size);
    CHECK_OK(dtl_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    int rank = 0, size = 0;
    MPI_Comm copy, part, pair;
    dtl_comm_t comm;
    init_mpi(&argc, &argv, argc > 1 ? argv[1] : "multiple");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    check_all(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    check_all(copy);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part); /* ranks in the opposite order */
    check_all(part);

    /* The program's communicator may go first. */
    int64_t mine = rank, sum = -1;
    CHECK_OK(dtl_comm_from_mpi(copy, &comm));
    MPI_Comm_free(&copy);
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(sum == (int64_t)size * (size - 1) / 2);
    CHECK_OK(dtl_comm_destroy(comm));

    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_NULL, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_SAID("MPI_COMM_NULL");
    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, NULL), DTL_ERROR_NULL_POINTER);
    if (size > 1) {
        /* Rank 0 of each part is the last of its parity in the world. */
        const int even = size - 1 - (size - 1) % 2, odd = size - 1 - size % 2;
        MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank % 2 ? even : odd, 1, &pair);
        CHECK_STATUS(dtl_comm_from_mpi(pair, &comm), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_SAID("MPI_Intercomm_merge");
        MPI_Comm_free(&pair);
    }
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = DTL_MPI_KIND;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_SAID("dtl_comm_from_mpi");
    MPI_Comm_free(&part);
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
