/* New ranks of kind "mpi": MPI starts processes of this program, which join (dtl_comm_grow). The program is not linked with
 * any MPI. Started by mpirun of either family.
 *     grow CASE openmpi | mpich      see the table at the end; a new process gets the same arguments
 * An MPICH that starts no processes, as that of Debian 12, is a reason to skip, after the failure has been checked. */
#define _GNU_SOURCE
#include "../../c/check.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK_SAID(part) CHECK(strstr(dtl_last_error(), part) != NULL)
#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))

static dtl_comm_t comm;
static int32_t me, ranks;
static int is_open_mpi;
/* File that rank 0 creates when its call has failed. */
static char awaited[100];

/* Whether a call of dtl_comm_grow has started this process. */
static int is_new(void) { return getenv("DTL_JOB") != NULL && strncmp(getenv("DTL_JOB"), "grow-", 5) == 0; }

static int32_t sum_of(dtl_comm_t of)
{
    int32_t one = 1, sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

/* Adds ranks to a communicator, or ends the program if this MPI starts no processes. */
static dtl_comm_t grow(dtl_comm_t old, int32_t new_ranks)
{
    dtl_comm_t grown = DTL_COMM_NULL;
    const dtl_status_t status = dtl_comm_grow(old, new_ranks, 0, &grown);
    int32_t rank, at;
    CHECK_OK(dtl_comm_rank(old, &rank));
    if (status == DTL_ERROR_UNAVAILABLE && !is_open_mpi) {
        CHECK_SAID(rank == 0 ? "MPI has started no processes" : "see the error text of rank 0");
        if (rank == 0) printf("skipped: %s\n", dtl_last_error());
        CHECK_STATUS(dtl_comm_grow(old, new_ranks, 0, &grown), DTL_ERROR_UNAVAILABLE);
        CHECK(sum_of(comm) == ranks); /* the old one still works */
        CHECK_OK(dtl_finalize());
        exit(0);
    }
    CHECK_OK(status);
    CHECK_OK(dtl_comm_rank(grown, &at));
    CHECK(at == rank);
    return grown;
}

/* What all ranks of a grown communicator do, the new ones too. Rank 0 says what they get there. */
static void check_grown(dtl_comm_t grown, int32_t expected, int32_t state)
{
    int32_t rank, size, from, got = state;
    dtl_comm_t dup, half;
    CHECK_OK(dtl_comm_rank(grown, &rank));
    CHECK_OK(dtl_comm_size(grown, &size));
    CHECK(expected == 0 || size == expected);
    CHECK_OK(dtl_comm_bcast(grown, &got, 1, DTL_DTYPE_INT32, 0));
    CHECK(got == 42);
    CHECK(sum_of(grown) == size);
    CHECK_OK(dtl_comm_sendrecv(grown, &rank, 1, (rank + 1) % size, 4, &from, 1, (rank + size - 1) % size, 4,
                               DTL_DTYPE_INT32, NULL));
    CHECK(from == (rank + size - 1) % size);
    CHECK_OK(dtl_comm_dup(grown, &dup));
    CHECK_OK(dtl_comm_split(dup, rank % 2, -rank, &half));
    CHECK(sum_of(half) == (size + 1 - rank % 2) / 2);
    CHECK_OK(dtl_comm_destroy(half));
    CHECK_OK(dtl_comm_destroy(dup));
    CHECK_OK(dtl_comm_barrier(grown));
}

/* Two new ranks, then one more: the new ranks of the first time are old ones the second time. */
static void healthy(void)
{
    dtl_comm_t grown = is_new() ? comm : grow(comm, 2), more;
    int32_t size;
    check_grown(grown, 0, 42);
    CHECK_OK(dtl_comm_size(grown, &size));
    if (!is_new() || size == 4) { /* of 2 ranks: the second time there are 5 */
        more = grow(grown, 1);
        check_grown(more, 5, 42);
        CHECK_OK(dtl_comm_destroy(more));
        CHECK(sum_of(grown) == 4);
    }
    if (!is_new()) CHECK(sum_of(comm) == 2);
}

/* Ranks of a communicator that was made from others, in another order, get new ones; the others do not take part. */
static void part(void)
{
    dtl_comm_t some = DTL_COMM_NULL, grown = comm;
    int32_t rank;
    if (!is_new()) {
        CHECK_OK(dtl_comm_split(comm, me == 1 ? DTL_UNDEFINED : 0, -me, &some));
        if (me != 1) {
            CHECK_OK(dtl_comm_rank(some, &rank));
            CHECK(rank == (me == 0 ? 1 : 0));
            grown = grow(some, 1);
        }
    }
    if (is_new() || me != 1) check_grown(grown, 3, is_new() || me == 0 ? -1 : 42);
    if (!is_new()) CHECK(sum_of(comm) == 3);
}

/* The new process does not open in time: the old ranks do not wait for ever, nor does it. */
static void late(void)
{
    dtl_comm_t grown;
    const dtl_status_t status = dtl_comm_grow(comm, 1, 0, &grown);
    if (status == DTL_ERROR_UNAVAILABLE) grow(comm, 1);
    CHECK_STATUS(status, DTL_ERROR_TIMEOUT);
    if (me == 0) CHECK_SAID("new rank 2: has not opened the communicator in time");
    CHECK(sum_of(comm) == ranks);
}

/* The new process makes no call to MPI until the call has failed on rank 0, which does not wait for it. */
static void silent(void)
{
    if (me == 0) unlink(awaited);
    late();
    if (me == 0) CHECK(close(open(awaited, O_CREAT | O_WRONLY, 0600)) == 0);
}

/* This MPI has no MPI_Comm_spawn (lacks.sh). */
static void lacks(void)
{
    dtl_comm_t grown;
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_NOT_SUPPORTED);
    if (me == 0) CHECK_SAID("has no function MPI_Comm_spawn");
    CHECK(sum_of(comm) == ranks);
}

/* A new process that initializes MPI, which ends MPI_Comm_spawn, and then opens too late. */
static int too_late(dtl_comm_desc_t *desc, int is_silent)
{
    const struct timespec pause = {3, 0}, moment = {0, 20000000};
    dtl_comm_desc_t own = DTL_COMM_DESC_INIT;
    dtl_status_t status;
    own.kind = "mpi";
    own.size = 1;
    CHECK_OK(dtl_comm_open(&own, &comm)); /* with rank and size: the new process alone */
    CHECK(sum_of(comm) == 1);
    if (!is_silent) nanosleep(&pause, NULL);
    while (is_silent && unlink(awaited) != 0) nanosleep(&moment, NULL);
    status = dtl_comm_open(desc, &comm);
    if (!is_silent || status != DTL_ERROR_TIMEOUT) { /* no reply arrives if rank 0 has finalized MPI */
        CHECK_STATUS(status, DTL_ERROR_INVALID_STATE);
        CHECK_SAID("the call of dtl_comm_grow that started this process has failed");
    }
    CHECK_OK(dtl_finalize());
    printf("too late\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; void (*run)(void); } cases[] = {
        {"healthy", healthy}, {"limited", healthy}, {"part", part}, {"late", late},
        {"silent", silent}, {"lacks", lacks}};
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    size_t i;
    CHECK(argc > 2);
    is_open_mpi = strcmp(argv[2], "openmpi") == 0;
    snprintf(awaited, sizeof awaited, "grow-silent-%.50s.awaited", argv[2]);
    desc.kind = "mpi";
    if (strcmp(argv[1], "limited") == 0) desc.timeout_ns = MILLISECONDS(60000);
    if (strcmp(argv[1], "late") == 0 || strcmp(argv[1], "silent") == 0) desc.timeout_ns = MILLISECONDS(4000);
    if (is_new() && strcmp(argv[1], "late") == 0) return too_late(&desc, 0);
    if (is_new() && strcmp(argv[1], "silent") == 0) return too_late(&desc, 1);
    if (is_new()) {
        comm = DTL_COMM_WORLD;
        CHECK(strcmp(getenv("DTL_COMM"), "mpi") == 0);
        if (desc.timeout_ns != 0) CHECK_OK(dtl_comm_open(&desc, &comm));
    } else {
        CHECK_OK(dtl_comm_open(&desc, &comm));
    }
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) cases[i].run();
    }
    CHECK_OK(dtl_finalize());
    printf("joined: %d\n", is_new());
    return 0;
}
