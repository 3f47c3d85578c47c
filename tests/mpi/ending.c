/* A communicator over MPI's own messages ends while sends of it are on their way: MPI does not give them back, so
 * destroy refuses as long as one is, and no request is left behind.
 * And what ends a wait that has not been answered yet, and calls within another call's wait.
 *     ending completed | waited_for | started | withdrawn | within     see the table at the end */
#include "mpi_check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 60, MOST = 2000, REFUSALS = 50000, LONG = 1 << 20 };

static int rank, other;
static dtl_comm_t world;

/* What MPI has sent already is in nobody's way, though nobody has waited for
 * it. */
static void completed(void)
{
    dtl_comm_t comm;
    dtl_request_t request;
    const int64_t value = 5;
    int64_t got = 0;
    CHECK_OK(dtl_comm_dup(world, &comm));
    CHECK_OK(dtl_comm_isend(comm, &value, 1, DTL_DTYPE_INT64, other, 1, &request));
    CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT64, other, 1, NULL));
    CHECK(got == value);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_INVALID_HANDLE);
}

static dtl_request_t shared_request;
static atomic_int is_over;

/* Hears nothing but "not yet" while another thread tries to destroy the communicator. */
static void *waits(void *argument)
{
    (void)argument;
    while (!is_over) {
        CHECK_STATUS(dtl_request_wait(shared_request, 0, NULL), DTL_ERROR_TIMEOUT);
    }
    return NULL;
}

static void waited_for(void)
{
    static char bytes[LONG];
    dtl_comm_t comm;
    pthread_t thread;
    CHECK_OK(dtl_comm_dup(world, &comm));
    memset(bytes, rank == 0 ? 5 : 0, LONG);
    if (rank == 0) {
        CHECK_OK(dtl_comm_isend(comm, bytes, LONG, DTL_DTYPE_BYTE, other, 3, &shared_request));
        CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
        for (int i = 0; i < REFUSALS; i++) {
            CHECK_STATUS(dtl_comm_destroy(comm), DTL_ERROR_NOT_SUPPORTED);
        }
        is_over = 1;
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK_OK(dtl_comm_barrier(world));
    if (rank == 0) {
        CHECK_OK(dtl_request_wait(shared_request, DTL_TIMEOUT_INFINITE, NULL));
    } else {
        CHECK_OK(dtl_comm_recv(comm, bytes, LONG, DTL_DTYPE_BYTE, 0, 3, NULL));
        CHECK(bytes[0] == 5 && bytes[LONG - 1] == 5);
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

static dtl_comm_t raced;
static dtl_request_t handles[MOST];
static atomic_int count, may_go;

static void *starts(void *argument)
{
    static const char byte;
    (void)argument;
    may_go = 1;
    for (int i = 0; i < MOST; i++) {
        dtl_request_t request;
        const dtl_status_t status = dtl_comm_isend(raced, &byte, 1, DTL_DTYPE_BYTE, 0, 1, &request);
        if (status != DTL_SUCCESS) {
            CHECK(status == DTL_ERROR_CANCELED || status == DTL_ERROR_INVALID_HANDLE);
            break;
        }
        handles[count] = request;
        count++;
    }
    return NULL;
}

/* Sends are started while the communicator is destroyed: each of them is in the
 * way, or ends with it. */
static void started(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        count = 0;
        may_go = 0;
        CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_SELF), &raced));
        CHECK(pthread_create(&thread, NULL, starts, NULL) == 0);
        while (!may_go) {
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000L * round}, NULL);
        dtl_status_t status = dtl_comm_destroy(raced);
        CHECK(pthread_join(thread, NULL) == 0);
        if (status != DTL_SUCCESS) {
            CHECK(status == DTL_ERROR_NOT_SUPPORTED);
            char byte;
            for (int i = 0; i < count; i++) {
                CHECK_OK(dtl_comm_recv(raced, &byte, 1, DTL_DTYPE_BYTE, 0, 1, NULL));
            }
            CHECK_OK(dtl_comm_destroy(raced));
        }
        for (int i = 0; i < count; i++) {
            CHECK_STATUS(dtl_request_destroy(handles[i]), DTL_ERROR_INVALID_HANDLE);
        }
    }
}

static _Atomic uint64_t waited;

static void *withdraws(void *argument)
{
    unsigned moment = 0;
    (void)argument;
    while (!is_over) {
        const dtl_request_t request = {waited};
        if (request.id == 0) {
            sched_yield(); /* both threads may be bound to one processor */
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 500L * (moment++ % 80)}, NULL);
            CHECK_OK(dtl_request_cancel(request));
            waited = 0;
        }
    }
    return NULL;
}

/* Another thread withdraws a receive at any moment of a wait without a limit. Short limits pass. */
static void withdrawn(void)
{
    pthread_t thread;
    dtl_request_t request;
    int64_t value = 0;
    CHECK(pthread_create(&thread, NULL, withdraws, NULL) == 0);
    for (int i = 0; i < MOST; i++) {
        CHECK_OK(dtl_comm_irecv(world, &value, 1, DTL_DTYPE_INT64, rank, 4, &request));
        waited = request.id;
        if (i % 2 == 0) {
            CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        } else {
            CHECK_STATUS(dtl_request_wait_all(&request, 1, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
            CHECK(request.id == 0);
        }
        while (waited != 0) sched_yield();
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    const int64_t sent = 6;
    const uint64_t limits[] = {0, 1000, 99999, 100000, 1000000};
    CHECK_OK(dtl_comm_irecv(world, &value, 1, DTL_DTYPE_INT64, rank, 4, &request));
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        CHECK_STATUS(dtl_request_wait(request, limits[i], NULL), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_request_wait_all(&request, 1, limits[i], NULL), DTL_ERROR_TIMEOUT);
    }
    CHECK_OK(dtl_comm_send(world, &sent, 1, DTL_DTYPE_INT64, rank, 4));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(value == sent);
}

static dtl_comm_t alone;
static int folded;

/* An operation that sends, receives and sums by itself. */
static void adds(const void *left, void *right, uint64_t elements, dtl_dtype_t dtype, void *user)
{
    const int64_t *from = (const int64_t *)left, one = 1;
    int64_t *into = (int64_t *)right, got = 0, sum = 0;
    dtl_request_t request;
    (void)dtype;
    (void)user;
    CHECK_OK(dtl_comm_irecv(alone, &got, 1, DTL_DTYPE_INT64, 0, 1, &request));
    CHECK_OK(dtl_comm_send(alone, &one, 1, DTL_DTYPE_INT64, 0, 1));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_allreduce(alone, &got, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    for (uint64_t i = 0; i < elements; i++) into[i] += from[i] * sum;
    folded++;
}

/* A collective whose operation makes calls of its own, on another communicator. */
static void within(void)
{
    dtl_reduce_op_t op;
    const int64_t mine = rank + 1;
    CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_SELF), &alone));
    CHECK_OK(dtl_op_create(adds, NULL, DTL_OP_COMMUTES, "adds", &op));
    for (int i = 0; i < ROUNDS; i++) {
        int64_t sum = 0;
        CHECK_OK(dtl_comm_allreduce(world, &mine, &sum, 1, DTL_DTYPE_INT64, op));
        CHECK(sum == 3);
    }
    int64_t calls = folded, all = 0;
    CHECK_OK(dtl_comm_allreduce(world, &calls, &all, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(all >= ROUNDS);
    CHECK_OK(dtl_op_destroy(op));
    CHECK_OK(dtl_comm_destroy(alone));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"completed", completed}, {"waited_for", waited_for}, {"started", started}, {"withdrawn", withdrawn}, {"within", within}};
    int size;
    CHECK(init_mpi(&argc, &argv, "multiple") == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == 2 && argc == 2);
    other = 1 - rank;
    CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &world));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(argv[1], cases[i].name) == 0) cases[i].run();
    }
    CHECK_OK(dtl_comm_destroy(world));
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
