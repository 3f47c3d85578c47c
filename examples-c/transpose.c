/* transpose: a matrix whose rows are spread over the ranks, transposed by one alltoallv.
 *
 * Each rank owns some rows of A (ROWS x COLS, neither divisible by the ranks) and gets some rows of its
 * transpose. The block that rank s has for rank r is packed column by column, so it arrives in place.
 *
 * Build: cc transpose.c $(pkg-config --cflags --libs libdtl) -o transpose
 * Run:   dtlrun -n 4 ./transpose
 * Prints, from rank 0, how much was moved and how fast; every element is checked.
 */
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1031, COLS = 773, ROUNDS = 10 };

static double value(int row, int col) { return row * 10000.0 + col; }

/* The first of `count` lines that rank owns, when they are dealt out evenly. */
static int first_of(int count, int rank, int size) { return (int)((long long)count * rank / size); }

static void *memory(size_t bytes)
{
    void *got = malloc(bytes > 0 ? bytes : 1);
    if (got == NULL) {
        fprintf(stderr, "transpose: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return got;
}

int main(void)
{
    int32_t rank = 0, size = 0;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));

    const int row0 = first_of(ROWS, rank, size), rows = first_of(ROWS, rank + 1, size) - row0;
    const int col0 = first_of(COLS, rank, size), cols = first_of(COLS, rank + 1, size) - col0;
    double *a = memory(sizeof *a * rows * COLS);           /* my rows of A */
    double *packed = memory(sizeof *packed * rows * COLS); /* the same, a block for each rank */
    double *arrived = memory(sizeof *arrived * cols * ROWS);
    double *t = memory(sizeof *t * cols * ROWS); /* my rows of the transpose */
    uint64_t *scounts = memory(sizeof *scounts * size), *rcounts = memory(sizeof *rcounts * size);

    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < COLS; j++) a[i * COLS + j] = value(row0 + i, j);
    }
    const double start = dtl_comm_wtime();
    for (int round = 0; round < ROUNDS; round++) {
        double *next = packed;
        for (int r = 0; r < size; r++) {
            const int begin = first_of(COLS, r, size), end = first_of(COLS, r + 1, size);
            for (int j = begin; j < end; j++) {
                for (int i = 0; i < rows; i++) *next++ = a[i * COLS + j];
            }
            scounts[r] = (uint64_t)(end - begin) * (uint64_t)rows;
            rcounts[r] = (uint64_t)cols * (uint64_t)(first_of(ROWS, r + 1, size) - first_of(ROWS, r, size));
        }
        /* NULL places: the blocks lie one after the other. */
        DTL_CHECK(dtl_comm_alltoallv(DTL_COMM_WORLD, packed, scounts, NULL, arrived, rcounts, NULL, DTL_DTYPE_FLOAT64));
        const double *block = arrived;
        for (int s = 0; s < size; s++) {
            const int begin = first_of(ROWS, s, size), count = first_of(ROWS, s + 1, size) - begin;
            for (int j = 0; j < cols; j++) {
                for (int i = 0; i < count; i++) t[j * ROWS + begin + i] = *block++;
            }
        }
    }
    const double seconds = dtl_comm_wtime() - start;

    int32_t good = 1, all_good = 0;
    for (int j = 0; j < cols; j++) {
        for (int i = 0; i < ROWS; i++) good = good && t[j * ROWS + i] == value(i, col0 + j);
    }
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &good, &all_good, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
    if (rank == 0) {
        printf("%d x %d on %d ranks: %.2f ms a transpose, %.2f GB/s, %s\n", ROWS, COLS, (int)size,
               1e3 * seconds / ROUNDS, 1e-9 * ROWS * COLS * sizeof(double) * ROUNDS / seconds,
               all_good ? "correct" : "WRONG");
    }
    free(a), free(packed), free(arrived), free(t), free(scounts), free(rcounts);
    DTL_CHECK(dtl_finalize());
    return all_good ? 0 : 1;
}
