/* recover: a rank is killed in the middle of the work, a new process takes its place, and all finish.
 *
 * Adds up the integral of 4 / (1 + x^2) from 0 to 1 (that is pi) in steps, as shrink.c does. In step 5 rank 1
 * kills itself. The others make a communicator of those who are left, and let it grow by the number of ranks
 * that were lost: the launcher starts new processes of this program. Their DTL_COMM_WORLD is the grown
 * communicator. Whoever has a new communicator, at the start too, gets the state of the work from rank 0.
 *
 * Build: cc recover.c $(pkg-config --cflags --libs libdtl) -lm -o recover
 * Run:   dtlrun -n 4 --on-failure=continue ./recover
 * Prints, from rank 0, what happened and pi. dtlrun itself exits with 137: a rank was killed by signal 9.
 */
#define _POSIX_C_SOURCE 200809L
#include <dtl.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 20, POINTS = 100000, VICTIM = 1, FATAL_STEP = 5 };

/* What all ranks have in common. A new rank gets it from rank 0, which is never a new one. */
typedef struct state {
    double step;       /* the next one */
    double lost;       /* ranks that were replaced so far */
    double sum[STEPS]; /* of each step that is done */
} state;

typedef struct work {
    dtl_comm_t comm;
    int32_t rank, size;
    state state;
} work;

/* Begins work on a communicator: its old and its new ranks call this. */
static dtl_status_t join(work *w)
{
    DTL_TRY(dtl_comm_rank(w->comm, &w->rank));
    DTL_TRY(dtl_comm_size(w->comm, &w->size));
    return dtl_comm_bcast(w->comm, &w->state, sizeof w->state / sizeof(double), DTL_DTYPE_FLOAT64, 0);
}

static dtl_status_t do_step(work *w)
{
    const int step = (int)w->state.step;
    double part = 0;
    if (w->rank == VICTIM && step == FATAL_STEP && w->state.lost == 0) {
        kill(getpid(), SIGKILL);
    }
    for (int i = w->rank; i < POINTS; i += w->size) {
        const double x = (step + (i + 0.5) / POINTS) / STEPS;
        part += 4 / (1 + x * x) / POINTS / STEPS;
    }
    DTL_TRY(dtl_comm_allreduce(w->comm, &part, &w->state.sum[step], 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    w->state.step++;
    return DTL_SUCCESS;
}

/* After a failure: the ranks that are left, then as many as before. */
static dtl_status_t recover(work *w)
{
    const dtl_comm_t broken = w->comm;
    const double mine = w->state.step;
    dtl_comm_t left;
    int32_t size;
    DTL_TRY(dtl_comm_shrink(broken, &left));
    DTL_TRY(dtl_comm_destroy(broken)); /* of DTL_COMM_WORLD: nothing happens */
    DTL_TRY(dtl_comm_size(left, &size));
    /* An allreduce that fails on one rank may have succeeded on another: all continue where the last one is. */
    DTL_TRY(dtl_comm_allreduce(left, &mine, &w->state.step, 1, DTL_DTYPE_FLOAT64, DTL_OP_MIN));
    w->state.lost += w->size - size;
    DTL_TRY(dtl_comm_grow(left, w->size - size, 0, &w->comm));
    DTL_TRY(dtl_comm_destroy(left));
    return join(w);
}

int main(void)
{
    work w = {.comm = DTL_COMM_WORLD};
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(join(&w));
    while (w.state.step < STEPS) {
        const dtl_status_t status = do_step(&w);
        if (status == DTL_ERROR_RANK_FAILURE) {
            fprintf(stderr, "rank %d, step %d: %s\n", (int)w.rank, (int)w.state.step, dtl_last_error());
            DTL_CHECK(recover(&w));
        } else {
            DTL_CHECK(status); /* anything else is a bug */
        }
    }

    double pi = 0;
    for (int step = 0; step < STEPS; step++) pi += w.state.sum[step];
    const int good = fabs(pi - 3.14159265358979323846) < 1e-10 && w.state.lost == (w.size > VICTIM);
    if (w.rank == 0) {
        printf("%d ranks finished, %d of them new: pi is about %.10f: %s\n", (int)w.size, (int)w.state.lost, pi,
               good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_comm_destroy(w.comm));
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
