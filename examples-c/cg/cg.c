/* cg: solves A x = A·1 by conjugate gradients, the rows of A spread over the ranks.
 *
 * Shows point-to-point and collective communication at work: rank 0 reads a Matrix Market file and
 * sends each rank its rows; an alltoall and isend/irecv set up which entries of a vector each rank
 * needs from which other; every product fetches just those; dot products are one allreduce.
 *
 * Build: cc -O2 cg/cg.c cg/mtx.c cg/matrix.c cg/solver.c $(pkg-config --cflags --libs libdtl) -lm -o cg_solver
 * Run:   dtlrun -n 4 ./cg_solver data/bcsstk16.mtx        (or mpirun -n 4 …, or alone)
 *        --tolerance T        stop at the relative residual T (1e-8)
 *        --max-iterations N   give up after N (10000)
 *        --reproducible       iterations and x bitwise equal for every number of ranks; prints a
 *                             hash of x
 * Prints a table: iterations, residual, error, time, how even the split is, the communicator.
 * Exit status: 0 converged, 1 not converged or failed, 2 wrong arguments. The same on every rank.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime, isatty */

#include "solver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TAG_SOLUTION = 100, BLOCKS = 256, PROGRESS_LINES_EVERY = 50 };

typedef struct arguments_t {
    const char *path;
    double tolerance;
    int32_t max_iterations;
    bool reproducible;
} arguments_t;

/* What is to be freed once the library is closed. */
typedef struct state_t {
    dtl_comm_t comm;
    int32_t rank;
    mtx_t whole; /* on rank 0 only */
    matrix_t matrix;
    double *b, *x;
} state_t;

/* An argument that is wrong, and why. */
static int usage(int32_t rank, const char *argument, const char *why)
{
    if (rank == 0) {
        fprintf(stderr, "cg: %s: %s\n", argument, why);
        fprintf(stderr, "usage: cg FILE.mtx [--tolerance T] [--max-iterations N] [--reproducible]\n");
    }
    return 2;
}

/* NULL, or what is wrong with the argument in *out_argument. */
static const char *parse(int argc, char **argv, arguments_t *out, const char **out_argument)
{
    *out = (arguments_t){NULL, 1e-8, 10000, false};
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        *out_argument = argv[i];
        if (strcmp(argv[i], "--reproducible") == 0) {
            out->reproducible = true;
        } else if (strcmp(argv[i], "--tolerance") == 0) {
            out->tolerance = ++i < argc ? strtod(argv[i], &end) : 0;
            if (end == NULL || end == argv[i] || *end != '\0' ||
                !(out->tolerance > 0 && out->tolerance < 1)) {
                return "wants a number between 0 and 1";
            }
        } else if (strcmp(argv[i], "--max-iterations") == 0) {
            const long value = ++i < argc ? strtol(argv[i], &end, 10) : 0;
            if (end == NULL || end == argv[i] || *end != '\0' || value < 1 || value > INT32_MAX) {
                return "wants a number from 1 to 2147483647";
            }
            out->max_iterations = (int32_t)value;
        } else if (argv[i][0] == '-') {
            return "unknown option";
        } else if (out->path != NULL) {
            return "more than one file";
        } else {
            out->path = argv[i];
        }
    }
    *out_argument = "FILE.mtx";
    return out->path == NULL ? "no file given" : NULL;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* On a terminal one line that is rewritten, else a line now and then. */
static void show_progress(int32_t iteration, double residual, void *user)
{
    const int32_t rank = *(const int32_t *)user;
    if (rank != 0) {
        return;
    }
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\riteration %6d  residual %.3e", (int)iteration, residual);
    } else if (iteration % PROGRESS_LINES_EVERY == 0) {
        fprintf(stderr, "iteration %6d  residual %.3e\n", (int)iteration, residual);
    }
}

/* Rank 0 reads; all learn whether it went well, so that all leave together. */
static dtl_status_t read_on_root(state_t *s, const char *path, int32_t *out_good)
{
    *out_good = 0;
    if (s->rank == 0) {
        char error[4096];
        *out_good = mtx_read(path, &s->whole, error, sizeof error);
        if (!*out_good) {
            fprintf(stderr, "cg: %s\n", error);
        }
    }
    return dtl_comm_bcast(s->comm, out_good, 1, DTL_DTYPE_INT32, 0);
}

/* FNV-1a over the bits of x in the order of the rows, on rank 0. */
static dtl_status_t hash_solution(const state_t *s, uint64_t *out_hash)
{
    const matrix_t *m = &s->matrix;
    if (s->rank != 0) {
        return dtl_comm_send(s->comm, s->x, (uint64_t)m->rows, DTL_DTYPE_FLOAT64, 0, TAG_SOLUTION);
    }
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    double *part = allocate(m->global_rows, sizeof *part);
    dtl_status_t status = DTL_SUCCESS;
    for (int32_t rank = 0; rank < m->size && status == DTL_SUCCESS; rank++) {
        const uint64_t rows = (uint64_t)(m->first_row[rank + 1] - m->first_row[rank]);
        if (rank == 0) {
            memcpy(part, s->x, rows * sizeof *part);
        } else {
            status = dtl_comm_recv(s->comm, part, rows, DTL_DTYPE_FLOAT64, rank, TAG_SOLUTION, NULL);
        }
        const unsigned char *bytes = (const unsigned char *)part;
        for (uint64_t i = 0; i < rows * sizeof *part; i++) {
            hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
        }
    }
    free(part);
    *out_hash = hash;
    return status;
}

static dtl_status_t print_table(const state_t *s, const arguments_t *arguments, const cg_result_t *result,
                                double elapsed)
{
    const matrix_t *m = &s->matrix;
    const double nonzeros = (double)m->row_start[m->rows];
    double mine[5] = {0, m->rows, -(double)m->rows, nonzeros, -nonzeros}, most[5];
    double total = 0;
    uint64_t hash = 0;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    for (int32_t i = 0; i < m->rows; i++) {
        mine[0] = fmax(mine[0], fabs(s->x[i] - 1));
    }
    DTL_TRY(dtl_comm_allreduce(s->comm, mine, most, 5, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
    DTL_TRY(dtl_comm_reduce(s->comm, &nonzeros, &total, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM, 0));
    DTL_TRY(dtl_comm_info(s->comm, &info));
    if (arguments->reproducible) {
        DTL_TRY(hash_solution(s, &hash));
    }
    if (s->rank != 0) {
        return DTL_SUCCESS;
    }
    printf("matrix             %s\n", arguments->path);
    printf("rows, nonzeros     %d, %.0f\n", (int)m->global_rows, total);
    printf("iterations         %d%s\n", (int)result->iterations, result->converged ? "" : " (not converged)");
    printf("relative residual  %.3e\n", result->residual);
    printf("max |x - 1|        %.3e\n", most[0]);
    printf("time               %.3f s, %.1f us per iteration\n", elapsed,
           1e6 * elapsed / (result->iterations > 0 ? result->iterations : 1));
    printf("rows per rank      %.0f to %.0f\n", -most[2], most[1]);
    printf("nonzeros per rank  %.0f to %.0f\n", -most[4], most[3]);
    printf("communicator       %s, %d ranks: %s\n", info.kind, (int)m->size, info.transport);
    if (arguments->reproducible) {
        printf("hash of x          %016" PRIx64 "\n", hash);
    }
    return DTL_SUCCESS;
}

/* `*out_exit` is the exit status if the communication succeeds. */
static dtl_status_t run(state_t *s, const arguments_t *arguments, int *out_exit)
{
    int32_t good = 0;
    cg_result_t result;
    *out_exit = EXIT_FAILURE;
    DTL_TRY(read_on_root(s, arguments->path, &good));
    if (!good) {
        return DTL_SUCCESS;
    }
    /* Reproducible: blocks that depend on the matrix alone, and no rank starts inside one. */
    int32_t rows = s->whole.rows;
    DTL_TRY(dtl_comm_bcast(s->comm, &rows, 1, DTL_DTYPE_INT32, 0));
    const int32_t block_rows = arguments->reproducible ? (rows - 1) / BLOCKS + 1 : 0;
    DTL_TRY(matrix_distribute(s->comm, &s->whole, block_rows > 0 ? block_rows : 1, &s->matrix));
    mtx_free(&s->whole);
    matrix_t *m = &s->matrix;
    s->b = allocate(m->rows, sizeof *s->b);
    s->x = allocate(m->rows, sizeof *s->x);
    for (int32_t i = 0; i < m->rows; i++) {
        m->x[i] = 1;
    }
    DTL_TRY(matrix_multiply(m, s->b));

    const cg_options_t options = {arguments->tolerance, arguments->max_iterations, block_rows, show_progress,
                                  &s->rank};
    DTL_TRY(dtl_comm_barrier(s->comm));
    const double start = seconds();
    DTL_TRY(cg_solve(m, s->b, s->x, &options, &result));
    const double elapsed = seconds() - start;
    if (s->rank == 0 && isatty(STDERR_FILENO)) {
        fprintf(stderr, "\n");
    }
    DTL_TRY(print_table(s, arguments, &result, elapsed));
    if (result.indefinite && s->rank == 0) {
        fprintf(stderr, "cg: %s: the matrix is not positive definite (found in iteration %d)\n",
                arguments->path, (int)result.iterations + 1);
    }
    *out_exit = result.converged ? EXIT_SUCCESS : EXIT_FAILURE;
    /* Launchers kill a job at its first exit status but 0: rank 0 must have printed by then. */
    fflush(stdout);
    return dtl_comm_barrier(s->comm);
}

int main(int argc, char **argv)
{
    state_t state = {.comm = DTL_COMM_WORLD};
    arguments_t arguments;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(state.comm, &state.rank));
    int exit_status = EXIT_FAILURE;
    const char *argument = NULL;
    const char *wrong = parse(argc, argv, &arguments, &argument);
    if (wrong != NULL) {
        exit_status = usage(state.rank, argument, wrong);
    } else if (run(&state, &arguments, &exit_status) != DTL_SUCCESS) {
        fprintf(stderr, "cg: rank %d: %s\n", (int)state.rank, dtl_last_error());
        exit_status = EXIT_FAILURE;
    }
    if (dtl_finalize() != DTL_SUCCESS) {
        fprintf(stderr, "cg: rank %d: %s\n", (int)state.rank, dtl_last_error());
        exit_status = EXIT_FAILURE;
    }
    mtx_free(&state.whole);
    matrix_free(&state.matrix);
    free(state.b);
    free(state.x);
    return exit_status;
}
