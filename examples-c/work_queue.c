/* work_queue: ranks draw tasks from a counter that they share, until none is left.
 *
 * The tasks are rows of the Mandelbrot set, and some take a hundred times as long as others: equal shares would leave most
 * ranks waiting for one. Here nobody hands tasks out. A counter in rank 0's memory says which row is next, and who is
 * free takes the next few by one atomic addition (fetch_op), without a call of rank 0, which works as well.
 *
 * Build: cc work_queue.c $(pkg-config --cflags --libs libdtl) -o work_queue
 * Run:   dtlrun -n 4 ./work_queue [rows, default 256] [rows per draw, default 4]
 * Prints, from rank 0, what each rank did; then it computes all rows alone, and compares.
 */
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST_STEPS = 500 };

/* Rank 0 has the counter, the others have no memory in the window. */
typedef struct queue {
    dtl_win_t counter;
    int64_t tasks, per_draw;
} queue;

/* What one rank did. */
typedef struct work {
    int64_t rows, draws, steps;
    int64_t *times, *found; /* by row: how often it was done, and its result; one behind the other in memory */
} work;

/* One task: the steps of all points of a row until they leave the circle. */
static int64_t do_row(int64_t row, int64_t rows)
{
    const double y = -1.25 + 2.5 * (double)row / (double)rows;
    int64_t steps = 0;
    for (int64_t column = 0; column < rows; column++) {
        const double x = -2 + 2.5 * (double)column / (double)rows;
        double re = 0, im = 0;
        for (int step = 0; step < MOST_STEPS && re * re + im * im < 4; step++, steps++) {
            const double next = re * re - im * im + x;
            im = 2 * re * im + y;
            re = next;
        }
    }
    return steps;
}

/* Takes the next tasks and returns the first of them; if that is `tasks` or more, none is left. */
static int64_t draw(const queue *q)
{
    int64_t first = 0;
    /* Reads the counter and adds to it in one step, so no two ranks get the same tasks. */
    DTL_CHECK(dtl_win_fetch_op(q->counter, &q->per_draw, &first, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
    /* `first` is there after a flush. The local one will do: it waits until our buffers are our own again, and a
     * result that is here has been to the target anyway. dtl_win_flush is for what others will look at. */
    DTL_CHECK(dtl_win_flush_local(q->counter, 0));
    return first;
}

static void do_all(const queue *q, work *mine)
{
    /* An epoch for all the draws: it lets this rank reach the counter. The lock is a shared one, which does not keep
     * the others out; the additions are atomic without it. */
    DTL_CHECK(dtl_win_lock(q->counter, DTL_LOCK_SHARED, 0));
    for (int64_t first; (first = draw(q)) < q->tasks; mine->draws++) {
        for (int64_t row = first; row < first + q->per_draw && row < q->tasks; row++) {
            mine->found[row] = do_row(row, q->tasks);
            mine->steps += mine->found[row];
            mine->times[row]++;
            mine->rows++;
        }
    }
    DTL_CHECK(dtl_win_unlock(q->counter, 0));
}

/* Every row exactly once, and each with the result of doing it alone. */
static int is_right(const work *all, int64_t rows)
{
    for (int64_t row = 0; row < rows; row++) {
        const int64_t alone = do_row(row, rows);
        if (all->times[row] != 1 || all->found[row] != alone) {
            fprintf(stderr, "work_queue: row %lld was done %lld times, result %lld instead of %lld\n", (long long)row,
                    (long long)all->times[row], (long long)all->found[row], (long long)alone);
            return 0;
        }
    }
    return 1;
}

static int64_t *zeros(int64_t count)
{
    int64_t *got = calloc((size_t)count, sizeof *got);
    if (got == NULL) perror("work_queue"), exit(1);
    return got;
}

/* Adds up what the ranks have done, and prints it from rank 0; there, whether it is right. */
static int report(const work *mine, int64_t rows, int32_t rank, int32_t size)
{
    const int64_t own[3] = {mine->rows, mine->draws, mine->steps};
    int64_t *told = zeros(3 * size), *sums = zeros(2 * rows), steps = 0;
    const work all = {.times = sums, .found = sums + rows};
    int good = 1;
    DTL_CHECK(dtl_comm_gather(DTL_COMM_WORLD, own, 3, told, DTL_DTYPE_INT64, 0));
    DTL_CHECK(dtl_comm_reduce(DTL_COMM_WORLD, mine->times, sums, 2 * (uint64_t)rows, DTL_DTYPE_INT64, DTL_OP_SUM, 0));
    if (rank == 0) {
        for (int32_t other = 0; other < size; other++) steps += told[3 * other + 2];
        for (int32_t other = 0; other < size; other++) {
            const int64_t *its = &told[3 * other];
            printf("rank %d: %lld rows in %lld draws, %.0f %% of the work\n", (int)other, (long long)its[0],
                   (long long)its[1], 100.0 * (double)its[2] / (double)steps);
        }
        good = is_right(&all, rows);
        printf("%d ranks, %lld rows, each done once: %s\n", (int)size, (long long)rows, good ? "correct" : "WRONG");
    }
    free(told);
    free(sums);
    return good;
}

int main(int argc, char **argv)
{
    queue q = {.tasks = argc > 1 ? atoll(argv[1]) : 256, .per_draw = argc > 2 ? atoll(argv[2]) : 4};
    work mine = {0};
    int32_t rank = 0, size = 0;
    void *base = NULL;
    if (argc > 3 || q.tasks < 1 || q.tasks > 100000 || q.per_draw < 1) {
        fprintf(stderr, "usage: work_queue [rows, 1 to 100000] [rows per draw, at least 1]\n");
        return 2;
    }
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    mine.times = zeros(2 * q.tasks);
    mine.found = mine.times + q.tasks;

    /* Memory of the library's: zeroed, so the counter begins at row 0, and on one node within everybody's reach. All
     * ranks call, and when the call returns the counter is there. */
    DTL_CHECK(dtl_win_allocate(DTL_COMM_WORLD, rank == 0 ? sizeof(int64_t) : 0, sizeof(int64_t), &base, &q.counter));
    do_all(&q, &mine);
    DTL_CHECK(dtl_win_destroy(q.counter)); /* waits for all: nobody needs the counter any more */

    const int good = report(&mine, q.tasks, rank, size);
    free(mine.times);
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
