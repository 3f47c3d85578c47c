/* shrink: a rank is killed in the middle of the work, and the others finish it.
 *
 * Adds up the integral of 4 / (1 + x^2) from 0 to 1 (that is pi) in steps: in each, every rank does its
 * share of the points and an allreduce adds them. In step 5 rank 1 kills itself. The others get
 * DTL_ERROR_RANK_FAILURE, make a communicator of those who are left, and go on with new shares.
 *
 * Build: cc shrink.c $(pkg-config --cflags --libs libdtl) -lm -o shrink
 * Run:   dtlrun -n 4 --on-failure=continue ./shrink      (mpirun would end the others as well)
 * Prints, from the first rank that is left, what happened and pi. dtlrun itself exits with 137: a rank
 * was killed by signal 9.
 */
#define _POSIX_C_SOURCE 200809L
#include <dtl.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { STEPS = 20, POINTS = 100000, VICTIM = 1, FATAL_STEP = 5 };

/* What the ranks have to agree on after a loss. */
typedef struct work {
    dtl_comm_t comm;
    int32_t rank, size;
    int32_t step;      /* the next one */
    int32_t losses;    /* failures so far */
    double sum[STEPS]; /* of each step that is done, the same on all ranks */
} work;

/* This rank's share of a step. It depends on how many ranks there are, so a step that was lost is
 * computed anew. */
static double share(const work *w)
{
    double sum = 0;
    for (int i = w->rank; i < POINTS; i += w->size) {
        const double x = (w->step + (i + 0.5) / POINTS) / STEPS;
        sum += 4 / (1 + x * x);
    }
    return sum / POINTS / STEPS;
}

static dtl_status_t do_step(work *w)
{
    const double part = share(w);
    if (w->rank == VICTIM && w->step == FATAL_STEP && w->losses == 0) {
        kill(getpid(), SIGKILL); /* power loss, out of memory, a bug: it says goodbye to nobody */
    }
    DTL_TRY(dtl_comm_allreduce(w->comm, &part, &w->sum[w->step], 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    w->step++;
    return DTL_SUCCESS;
}

/* After a failure: go on among those who are left. Ranks are renumbered from 0. */
static dtl_status_t recover(work *w)
{
    const dtl_comm_t broken = w->comm;
    const int32_t mine = w->step;
    DTL_TRY(dtl_comm_shrink(broken, &w->comm));
    DTL_TRY(dtl_comm_destroy(broken)); /* of DTL_COMM_WORLD: nothing happens */
    DTL_TRY(dtl_comm_rank(w->comm, &w->rank));
    DTL_TRY(dtl_comm_size(w->comm, &w->size));
    /* An allreduce that fails on one rank may have succeeded on another, which then failed in the next.
     * So all take up the work where the last of them stands. This is why sums are kept by step. */
    return dtl_comm_allreduce(w->comm, &mine, &w->step, 1, DTL_DTYPE_INT32, DTL_OP_MIN);
}

int main(void)
{
    work w = {.comm = DTL_COMM_WORLD};
    int32_t before = 0;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(w.comm, &w.rank));
    DTL_CHECK(dtl_comm_size(w.comm, &w.size));
    before = w.size;

    while (w.step < STEPS) {
        const dtl_status_t status = do_step(&w);
        if (status == DTL_ERROR_RANK_FAILURE) {
            fprintf(stderr, "rank %d, step %d: %s\n", (int)w.rank, (int)w.step, dtl_last_error());
            w.losses++;
            DTL_CHECK(recover(&w));
        } else {
            DTL_CHECK(status); /* anything else is a bug */
        }
    }

    double pi = 0;
    for (int step = 0; step < STEPS; step++) pi += w.sum[step];
    const int expected_left = before > VICTIM ? before - 1 : before;
    const int good = fabs(pi - 3.14159265358979323846) < 1e-10 && w.size == expected_left;
    if (w.rank == 0) {
        printf("%d of %d ranks finished: pi is about %.10f: %s\n", (int)w.size, (int)before, pi,
               good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_comm_destroy(w.comm));
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
