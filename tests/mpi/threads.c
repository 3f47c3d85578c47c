/* Calls from another thread than the one that initialised MPI, as the level in force allows; windows at each level.
 *     threads single | funneled | serialized | multiple */
#include "mpi_check.h"

#include <pthread.h>

enum { MESSAGES = 200 };

static int level, rank, size;

typedef struct job_t {
    dtl_comm_t comm;
    int32_t tag;
} job_t;

static void exchange(const job_t *job)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int64_t i = 0; i < MESSAGES; i++) {
        int64_t got = -1;
        CHECK_OK(dtl_comm_sendrecv(job->comm, &i, 1, next, job->tag, &got, 1, previous, job->tag,
                                   DTL_DTYPE_INT64, NULL));
        CHECK(got == i);
    }
}

static void *another_thread(void *argument)
{
    job_t *job = argument;
    dtl_comm_t refused;
    int64_t value = 0;
    if (level >= MPI_THREAD_SERIALIZED) {
        exchange(job);
        return NULL;
    }
    const char *name = level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
    CHECK_STATUS(dtl_comm_send(job->comm, &value, 1, DTL_DTYPE_INT64, (rank + 1) % size, 1), DTL_ERROR_NOT_SUPPORTED);
    CHECK_SAID(name);
    CHECK_STATUS(dtl_comm_recv(job->comm, &value, 1, DTL_DTYPE_INT64, rank, 1, NULL), DTL_ERROR_NOT_SUPPORTED);
    CHECK_SAID("MPI_THREAD_MULTIPLE");
    CHECK_STATUS(dtl_comm_from_mpi(MPI_COMM_WORLD, &refused), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_comm_destroy(job->comm)); /* its end is left to the thread that may */
    return NULL;
}

/* A collective that is refused has not begun: later ones of the thread that may call go on. */
static void *refused_thread(void *argument)
{
    const dtl_comm_t comm = *(const dtl_comm_t *)argument;
    int64_t one = 1, sum = 0;
    dtl_request_t request;
    dtl_comm_t copy;
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_NOT_SUPPORTED);
    CHECK_SAID("barrier");
    CHECK_STATUS(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_comm_ibarrier(comm, &request), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_comm_dup(comm, &copy), DTL_ERROR_NOT_SUPPORTED);
    return NULL;
}

static void refused_collectives(dtl_comm_t comm)
{
    pthread_t thread;
    int64_t one = 1, sum = 0;
    CHECK(pthread_create(&thread, NULL, refused_thread, &comm) == 0 && pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(sum == size);
}

/* A window while the program calls MPI itself, which it keeps apart from its calls of the library but cannot keep apart
 * from a thread of the library: there is one at MPI_THREAD_MULTIPLE only, and dtl_win_info says so. */
static void window_beside_own_calls(dtl_comm_t comm)
{
    static char mine[100000], theirs[100000];
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const int64_t one = 1;
    int64_t *base = NULL, was = -1;
    dtl_win_t win;
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    CHECK_OK(dtl_win_allocate(comm, 8, 8, (void **)&base, &win));
    CHECK_OK(dtl_win_info(win, rank, &info));
    CHECK((strstr(info.way, "served by the target's calls only") == NULL) == (level == MPI_THREAD_MULTIPLE));
    for (int i = 0; i < 100; i++) {
        CHECK_OK(dtl_win_fence(win));
        CHECK_OK(dtl_win_fetch_op(win, &one, &was, DTL_DTYPE_INT64, next, 0, DTL_OP_SUM));
        CHECK_OK(dtl_win_fence(win));
        CHECK(was == i);
        for (int k = 0; k < 20; k++) {
            MPI_Sendrecv(mine, k % 2 ? 8 : sizeof mine, MPI_BYTE, next, 1, theirs, sizeof theirs, MPI_BYTE, previous, 1,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    CHECK_OK(dtl_win_destroy(win));
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    job_t jobs[3];
    level = init_mpi(&argc, &argv, argc > 1 ? argv[1] : "multiple");
    MPI_Query_thread(&level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(dtl_comm_from_mpi(MPI_COMM_WORLD, &jobs[i].comm));
        jobs[i].tag = i;
    }
    /* Two threads and this one; two of them on one communicator if the level lets them. */
    if (level >= MPI_THREAD_SERIALIZED) {
        CHECK_OK(dtl_comm_destroy(jobs[1].comm));
        jobs[1].comm = jobs[0].comm;
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, another_thread, &jobs[i]) == 0);
    }
    exchange(&jobs[2]);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    if (level < MPI_THREAD_SERIALIZED) {
        dtl_comm_desc_t limited = DTL_COMM_DESC_INIT;
        CHECK_OK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &jobs[0].comm));
        refused_collectives(jobs[0].comm);
        CHECK_OK(dtl_comm_destroy(jobs[0].comm));
        limited.kind = "mpi";
        limited.timeout_ns = 60000000000;
        CHECK_OK(dtl_comm_open(&limited, &jobs[0].comm));
        refused_collectives(jobs[0].comm);
        CHECK_OK(dtl_comm_destroy(jobs[0].comm));
    }
    window_beside_own_calls(jobs[2].comm);
    CHECK_OK(dtl_comm_barrier(jobs[2].comm));
    CHECK_OK(dtl_comm_destroy(jobs[2].comm));
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
