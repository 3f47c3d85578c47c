/* heat: the temperature of a square plate, on a grid of ranks that exchange their borders.
 *
 * Each rank owns a tile. In each step it sends its outermost rows and columns to its four neighbours and
 * gets theirs (persistent requests: set up once, started each step), then every cell becomes the mean of
 * its neighbours. One side is hot, the others are cold. The steps are the same on any number of ranks, so
 * the result is too, bit by bit: rank 0 prints a checksum that does not depend on the ranks.
 *
 * Build: cc heat.c $(pkg-config --cflags --libs libdtl) -lm -o heat
 * Run:   dtlrun -n 4 ./heat [cells on a side, default 96] [steps, default 2000]
 */
#include <dtl.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct tile {
    int rows, cols;           /* without the frame of neighbours' cells */
    double *now, *next;       /* (rows + 2) x (cols + 2) */
    double *out[4], *into[4]; /* borders: up, down, left, right */
    dtl_request_t requests[8];
} tile;

static int first_of(int count, int part, int parts) { return (int)((long long)count * part / parts); }
static double *cell(const tile *t, double *of, int i, int j) { return &of[(i + 1) * (t->cols + 2) + j + 1]; }
static int length(const tile *t, int side) { return side < 2 ? t->cols : t->rows; }

/* The cell of a side's border at `k`: outermost own one (depth 0) or the frame's (depth 1). */
static double *at_border(const tile *t, int side, int k, int depth)
{
    switch (side) {
    case 0: return cell(t, t->now, -depth, k);
    case 1: return cell(t, t->now, t->rows - 1 + depth, k);
    case 2: return cell(t, t->now, k, -depth);
    default: return cell(t, t->now, k, t->cols - 1 + depth);
    }
}

static double *zeros(size_t count)
{
    double *got = calloc(count > 0 ? count : 1, sizeof *got);
    if (got == NULL) {
        fprintf(stderr, "heat: no memory\n");
        exit(1);
    }
    return got;
}

/* A message that leaves by one side arrives at the opposite one: tags are the sender's sides. */
static void set_up(tile *t, const int32_t neighbours[4])
{
    for (int side = 0; side < 4; side++) {
        const uint64_t count = (uint64_t)length(t, side);
        t->out[side] = zeros(count);
        t->into[side] = zeros(count);
        DTL_CHECK(dtl_comm_send_init(DTL_COMM_WORLD, t->out[side], count, DTL_DTYPE_FLOAT64, neighbours[side], side,
                                     &t->requests[side]));
        DTL_CHECK(dtl_comm_recv_init(DTL_COMM_WORLD, t->into[side], count, DTL_DTYPE_FLOAT64, neighbours[side],
                                     side ^ 1, &t->requests[4 + side]));
    }
}

/* One step; the largest change of a cell. */
static double step(tile *t, const int32_t neighbours[4])
{
    double change = 0;
    for (int side = 0; side < 4; side++) {
        for (int k = 0; k < length(t, side); k++) t->out[side][k] = *at_border(t, side, k, 0);
    }
    DTL_CHECK(dtl_request_start_all(8, t->requests));
    DTL_CHECK(dtl_request_wait_all(8, t->requests, DTL_TIMEOUT_INFINITE, NULL));
    for (int side = 0; side < 4; side++) {
        for (int k = 0; neighbours[side] != DTL_PROC_NULL && k < length(t, side); k++) {
            *at_border(t, side, k, 1) = t->into[side][k];
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

/* The hot side: the frame above the first row of ranks, in both arrays. */
static void heat_top(tile *t, int is_top)
{
    for (int j = 0; is_top && j < t->cols; j++) *cell(t, t->now, -1, j) = *cell(t, t->next, -1, j) = 100;
}

int main(int argc, char **argv)
{
    const int side_cells = argc > 1 ? atoi(argv[1]) : 96, steps = argc > 2 ? atoi(argv[2]) : 2000;
    int32_t rank = 0, size = 0, dims[2] = {0, 0}, place[2], neighbours[4];
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    DTL_CHECK(dtl_cart_dims(size, 2, dims));
    DTL_CHECK(dtl_cart_coords(2, dims, rank, place));
    DTL_CHECK(dtl_cart_shift(2, dims, NULL, rank, 0, 1, &neighbours[0], &neighbours[1]));
    DTL_CHECK(dtl_cart_shift(2, dims, NULL, rank, 1, 1, &neighbours[2], &neighbours[3]));
    if (side_cells < dims[0] || side_cells < dims[1] || steps < 1) {
        fprintf(stderr, "heat: use at least %d cells on a side and one step\n", (int)size);
        return 2;
    }

    tile t = {0};
    const int row0 = first_of(side_cells, place[0], dims[0]), col0 = first_of(side_cells, place[1], dims[1]);
    t.rows = first_of(side_cells, place[0] + 1, dims[0]) - row0;
    t.cols = first_of(side_cells, place[1] + 1, dims[1]) - col0;
    t.now = zeros((size_t)(t.rows + 2) * (size_t)(t.cols + 2));
    t.next = zeros((size_t)(t.rows + 2) * (size_t)(t.cols + 2));
    heat_top(&t, place[0] == 0);
    set_up(&t, neighbours);

    double change = 0;
    for (int n = 1; n <= steps; n++) {
        const double mine = step(&t, neighbours);
        double *old = t.now;
        t.now = t.next, t.next = old;
        if (n % 500 == 0 || n == steps) {
            DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &mine, &change, 1, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
            if (rank == 0) fprintf(stderr, "step %d of %d: largest change %.3e\n", n, steps, change);
        }
    }

    /* Integers add up to the same in any order: the checksum is of the cells' bits. */
    uint64_t mine = 0, sum = 0;
    for (int i = 0; i < t.rows; i++) {
        for (int j = 0; j < t.cols; j++) {
            union { double value; uint64_t bits; } c = {*cell(&t, t.now, i, j)};
            mine += c.bits * (uint64_t)((row0 + i) * side_cells + col0 + j + 1);
        }
    }
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &mine, &sum, 1, DTL_DTYPE_UINT64, DTL_OP_SUM));
    /* By symmetry the middle of a finished plate would have a quarter of the hot side's 100. */
    if (rank == 0) {
        printf("%d x %d cells on %d x %d ranks, %d steps: checksum %016llx\n", side_cells, side_cells, (int)dims[0],
               (int)dims[1], steps, (unsigned long long)sum);
    }
    for (int k = 0; k < 8; k++) DTL_CHECK(dtl_request_destroy(t.requests[k]));
    for (int side = 0; side < 4; side++) free(t.out[side]), free(t.into[side]);
    free(t.now), free(t.next);
    DTL_CHECK(dtl_finalize());
    return change < 1 ? 0 : 1;
}
