// What one-sided operations cost beside MPI's own: 8 bytes and a flush, by MPI's window and by ours (of kind
// "mpi", or of that in DTL_COMM), batch by batch in turn in one process. Rank 1 waits in a barrier of MPI's
// meanwhile, so it serves all the time.
//
//     mpicc -O2 benches/window_mpi.c $(pkg-config --cflags --libs libdtl) -o window_mpi
//     mpirun -n 2 ./window_mpi               of memory that MPI allocates
//     mpirun -n 2 ./window_mpi create        of memory that the program has
//     DTL_COMM=shm mpirun -n 2 ./window_mpi  of memory that ranks share, without MPI
//
// Prints nanoseconds: the 10th percentile over many short batches.
#define _GNU_SOURCE
#include "measure.h"
#include <mpi.h>
#include <string.h>

enum { BATCHES = 300, CALLS = 50, BYTES = 4096, TARGET = 1 };

// The two windows, MPI's and the library's, each with memory of its own.
static MPI_Win theirs;
static dtl_win_t ours;
static int64_t one = 1, got;

static void put_theirs(void)
{
    MPI_Put(&one, 8, MPI_BYTE, TARGET, 0, 8, MPI_BYTE, theirs);
    MPI_Win_flush(TARGET, theirs);
}

static void put_ours(void)
{
    OK(dtl_win_put(ours, &one, 8, DTL_DTYPE_BYTE, TARGET, 0));
    OK(dtl_win_flush(ours, TARGET));
}

static void get_theirs(void)
{
    MPI_Get(&got, 8, MPI_BYTE, TARGET, 0, 8, MPI_BYTE, theirs);
    MPI_Win_flush(TARGET, theirs);
}

static void get_ours(void)
{
    OK(dtl_win_get(ours, &got, 8, DTL_DTYPE_BYTE, TARGET, 0));
    OK(dtl_win_flush(ours, TARGET));
}

static void fetch_op_theirs(void)
{
    MPI_Fetch_and_op(&one, &got, MPI_INT64_T, TARGET, 8, MPI_SUM, theirs);
    MPI_Win_flush(TARGET, theirs);
}

static void fetch_op_ours(void)
{
    OK(dtl_win_fetch_op(ours, &one, &got, DTL_DTYPE_INT64, TARGET, 8, DTL_OP_SUM));
    OK(dtl_win_flush(ours, TARGET));
}

static const struct {
    const char *name;
    void (*theirs)(void), (*ours)(void);
} ROWS[] = {
    {"put, flush", put_theirs, put_ours},
    {"get, flush", get_theirs, get_ours},
    {"fetch_op, flush", fetch_op_theirs, fetch_op_ours},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

static double batch(void (*call)(void))
{
    const double begin = now_ns();
    for (int i = 0; i < CALLS; i++) call();
    return (now_ns() - begin) / CALLS;
}

static void measure(const char *memory)
{
    static double times[ROW_COUNT][2][BATCHES];
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    for (int b = 0; b < BATCHES; b++) {
        for (int row = 0; row < ROW_COUNT; row++) {
            times[row][0][b] = batch(ROWS[row].theirs);
            times[row][1][b] = batch(ROWS[row].ours);
        }
    }
    OK(dtl_win_info(ours, 0, &info));
    for (int row = 0; row < ROW_COUNT; row++) {
        for (int which = 0; which < 2; which++) qsort(times[row][which], BATCHES, sizeof(double), ascending);
        printf("%-16s MPI %.0f dtl %.0f (%s, %s)\n", ROWS[row].name, times[row][0][BATCHES / 10],
               times[row][1][BATCHES / 10], info.way, memory);
    }
}

static void make_windows(dtl_comm_t comm, int is_given)
{
    void *theirs_at, *ours_at;
    if (is_given) {
        theirs_at = aligned_alloc(64, BYTES), ours_at = aligned_alloc(64, BYTES);
        MPI_Win_create(theirs_at, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &theirs);
        OK(dtl_win_create(comm, ours_at, BYTES, 1, &ours));
    } else {
        MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &theirs_at, &theirs);
        OK(dtl_win_allocate(comm, BYTES, 1, &ours_at, &ours));
    }
    memset(theirs_at, 0, BYTES);
    memset(ours_at, 0, BYTES);
}

int main(int argc, char **argv)
{
    const int is_given = argc > 1 && argv[1][0] == 'c';
    int level, me;
    dtl_comm_t comm;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    OK(dtl_init(NULL));
    desc.kind = getenv("DTL_COMM") ? getenv("DTL_COMM") : "mpi";
    OK(dtl_comm_open(&desc, &comm));
    make_windows(comm, is_given);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, theirs);
    OK(dtl_win_lock_all(ours));
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) measure(is_given ? "given" : "allocated");
    MPI_Barrier(MPI_COMM_WORLD);
    OK(dtl_win_unlock_all(ours));
    MPI_Win_unlock_all(theirs);
    OK(dtl_win_destroy(ours));
    MPI_Win_free(&theirs);
    OK(dtl_comm_destroy(comm));
    OK(dtl_finalize());
    MPI_Finalize();
    return 0;
}
