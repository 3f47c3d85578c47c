/* heat: the temperature of a square plate, on a grid of ranks that exchange their borders.
 *
 * Each rank owns a tile. In each step it sends its outermost rows and columns to its four neighbours and
 * gets theirs (neighbor_alltoallv), then every cell becomes the mean of its neighbours, until no cell
 * changes any more (an allreduce tells all). One side is hot, the others are cold. No step depends on the
 * number of ranks, so neither does any bit of the result: rank 0 solves the same alone, on DTL_COMM_SELF,
 * and compares.
 *
 * Build: cc heat.c $(pkg-config --cflags --libs libdtl) -lm -o heat
 * Run:   dtlrun -n 4 ./heat [cells on a side, default 64]
 */
#include <dtl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHECK_EVERY = 1600 };      /* steps */
static const double limit = 1e-7; /* of a cell's change in one step */

typedef struct result {
    int steps;
    double change, mean; /* the last step's largest change; of all cells */
    uint64_t checksum;
} result;
typedef struct tile {
    int rows, cols;               /* without the frame of neighbours' cells */
    double *now, *next;           /* (rows + 2) x (cols + 2) */
    double *out, *into;           /* borders: up, down, left, right */
    uint64_t counts[4], first[4]; /* of a side's cells in them: how many, from where */
} tile;

static int first_of(int count, int part, int parts) { return (int)((long long)count * part / parts); }
static double *cell(const tile *t, double *of, int i, int j) { return &of[(i + 1) * (t->cols + 2) + j + 1]; }

/* The cell of a side's border at `k`: outermost own one (depth 0) or the frame's (depth 1). */
static double *at_border(const tile *t, int side, int k, int depth)
{
    if (side < 2) return cell(t, t->now, side == 0 ? -depth : t->rows - 1 + depth, k);
    return cell(t, t->now, k, side == 2 ? -depth : t->cols - 1 + depth);
}

static double *zeros(size_t count)
{
    double *got = calloc(count, sizeof *got);
    if (got == NULL) perror("heat"), exit(1);
    return got;
}

/* One step; the largest change of a cell. */
static double step(tile *t, dtl_comm_t comm, const int32_t neighbours[4])
{
    double change = 0;
    for (int side = 0; side < 4; side++) {
        for (int k = 0; k < (int)t->counts[side]; k++) t->out[t->first[side] + k] = *at_border(t, side, k, 0);
    }
    DTL_CHECK(dtl_comm_neighbor_alltoallv(comm, neighbours, 4, t->out, t->counts, t->first, neighbours, 4,
                                          t->into, t->counts, t->first, DTL_DTYPE_FLOAT64));
    for (int side = 0; side < 4; side++) {
        for (int k = 0; neighbours[side] != DTL_PROC_NULL && k < (int)t->counts[side]; k++) {
            *at_border(t, side, k, 1) = t->into[t->first[side] + k];
        }
    }
    for (int i = 0; i < t->rows; i++) {
        for (int j = 0; j < t->cols; j++) {
            const double mean = 0.25 * (*cell(t, t->now, i - 1, j) + *cell(t, t->now, i + 1, j) +
                                        *cell(t, t->now, i, j - 1) + *cell(t, t->now, i, j + 1));
            change = fmax(change, fabs(mean - *cell(t, t->now, i, j)));
            *cell(t, t->next, i, j) = mean;
        }
    }
    return change;
}

/* The whole plate's checksum, the same in any order because it is of integers, and its mean. */
static void sum_up(const tile *t, dtl_comm_t comm, int row0, int col0, int side_cells, result *r)
{
    uint64_t checksum = 0;
    double sum = 0;
    for (int i = 0; i < t->rows; i++) {
        for (int j = 0; j < t->cols; j++) {
            union { double value; uint64_t bits; } c = {*cell(t, t->now, i, j)};
            checksum += c.bits * (uint64_t)((row0 + i) * side_cells + col0 + j + 1);
            sum += c.value / side_cells / side_cells;
        }
    }
    DTL_CHECK(dtl_comm_allreduce(comm, &checksum, &r->checksum, 1, DTL_DTYPE_UINT64, DTL_OP_SUM));
    DTL_CHECK(dtl_comm_allreduce(comm, &sum, &r->mean, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
}

static result solve(dtl_comm_t comm, int side_cells, int32_t dims[2])
{
    tile t = {0};
    result r = {.change = 1};
    int32_t rank, size, place[2], neighbours[4];
    DTL_CHECK(dtl_comm_rank(comm, &rank));
    DTL_CHECK(dtl_comm_size(comm, &size));
    DTL_CHECK(dtl_cart_dims(size, dims, 2));
    DTL_CHECK(dtl_cart_coords(dims, 2, rank, place));
    DTL_CHECK(dtl_cart_shift(dims, NULL, 2, rank, 0, 1, &neighbours[0], &neighbours[1]));
    DTL_CHECK(dtl_cart_shift(dims, NULL, 2, rank, 1, 1, &neighbours[2], &neighbours[3]));
    const int row0 = first_of(side_cells, place[0], dims[0]), col0 = first_of(side_cells, place[1], dims[1]);
    t.rows = first_of(side_cells, place[0] + 1, dims[0]) - row0;
    t.cols = first_of(side_cells, place[1] + 1, dims[1]) - col0;
    t.now = zeros((size_t)(t.rows + 2) * (size_t)(t.cols + 2));
    t.next = zeros((size_t)(t.rows + 2) * (size_t)(t.cols + 2));
    /* The hot side is the frame above the first row. */
    for (int j = 0; place[0] == 0 && j < t.cols; j++) *cell(&t, t.now, -1, j) = *cell(&t, t.next, -1, j) = 100;
    for (int side = 0; side < 4; side++) {
        t.counts[side] = (uint64_t)(side < 2 ? t.cols : t.rows);
        t.first[side] = side == 0 ? 0 : t.first[side - 1] + t.counts[side - 1];
    }
    t.out = zeros(t.first[3] + t.counts[3]);
    t.into = zeros(t.first[3] + t.counts[3]);
    while (r.change > limit) {
        const double mine = step(&t, comm, neighbours);
        double *const old = t.now;
        t.now = t.next, t.next = old;
        if (++r.steps % CHECK_EVERY == 0) {
            DTL_CHECK(dtl_comm_allreduce(comm, &mine, &r.change, 1, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
            if (rank == 0) fprintf(stderr, "%d rank(s), step %d: change %.1e\n", (int)size, r.steps, r.change);
        }
    }
    sum_up(&t, comm, row0, col0, side_cells, &r);
    free(t.out), free(t.into), free(t.now), free(t.next);
    return r;
}

int main(int argc, char **argv)
{
    const int side_cells = argc > 1 ? atoi(argv[1]) : 64;
    int32_t rank = 0, size = 0, good = 1, dims[2] = {0, 0}, alone[2] = {0, 0};
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    if (side_cells < size) fprintf(stderr, "heat: use at least %d cells on a side\n", (int)size), exit(2);
    const result all = solve(DTL_COMM_WORLD, side_cells, dims);
    if (rank == 0) {
        const result one = solve(DTL_COMM_SELF, side_cells, alone);
        /* Four plates, each with another hot side, add up to 100 everywhere: the mean is a quarter. */
        good = all.checksum == one.checksum && all.steps == one.steps && all.change == one.change &&
               fabs(all.mean - 25) < 0.01;
        printf("%d x %d cells on %d x %d ranks: %d steps, change %.3e, mean %.5f, checksum %016llx: %s\n",
               side_cells, side_cells, (int)dims[0], (int)dims[1], all.steps, all.change, all.mean,
               (unsigned long long)all.checksum, good ? "as on one rank, correct" : "WRONG");
    }
    DTL_CHECK(dtl_comm_bcast(DTL_COMM_WORLD, &good, 1, DTL_DTYPE_INT32, 0));
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
