/* solver: conjugate gradients with the diagonal as preconditioner (Jacobi), on distributed rows.
 *
 * Part of the example cg; see cg.c.
 */
#ifndef CG_SOLVER_H
#define CG_SOLVER_H

#include "matrix.h"

/* Called on every rank after each iteration. */
typedef void (*cg_progress_t)(int32_t iteration, double residual, void *user);

typedef struct cg_options_t {
    double tolerance;       /* relative residual at which to stop */
    int32_t max_iterations; /* at most that many */
    int32_t block_rows;     /* dot products: rows of a block, 0 = one block for each rank (faster) */
    cg_progress_t progress;
    void *user;
} cg_options_t;

typedef struct cg_result_t {
    int32_t iterations;
    double residual; /* |r| / |b| */
    bool converged;
    bool indefinite; /* gave up: the matrix is not positive definite */
} cg_result_t;

/* Solves A x = b from x = 0. `b` and `x` have matrix->rows entries. Collective; the result is the
 * same on every rank. With block_rows set (and the rows split at multiples of it) iterations and x
 * are bitwise the same for every number of ranks. */
dtl_status_t cg_solve(matrix_t *matrix, const double *b, double *x, const cg_options_t *options,
                      cg_result_t *out);

#endif
