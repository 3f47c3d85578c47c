/* solver: the iteration and its dot products (see solver.h). */
#include "solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct dots_t {
    matrix_t *matrix;
    int32_t block_rows, blocks;
    double *mine, *all; /* room for two dot products of `blocks` each */
} dots_t;

static double dot_range(const double *a, const double *b, int32_t begin, int32_t end)
{
    double sum = 0;
    for (int32_t i = begin; i < end; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Sums of the blocks that this rank holds, at their place among all blocks. */
static void sum_blocks(const dots_t *d, const double *a, const double *b, double *sums)
{
    const int32_t rows = d->matrix->rows;
    const int32_t first_block = d->matrix->first_row[d->matrix->rank] / d->block_rows;
    int32_t block = first_block;
    for (int32_t begin = 0; begin < rows; begin += d->block_rows) {
        const int32_t end = rows - begin > d->block_rows ? begin + d->block_rows : rows;
        sums[block++] = dot_range(a, b, begin, end);
    }
}

/* Two dot products in one allreduce: a·b and c·b. Reproducible: a block's sum comes from one rank
 * and all others add 0 to it, which is exact, so the order in which ranks are added up does not
 * matter; the blocks are then added in their own order. */
static dtl_status_t dot_pair(const dots_t *d, const double *a, const double *b, const double *c,
                             double out[2])
{
    matrix_t *m = d->matrix;
    if (d->block_rows == 0) {
        const double mine[2] = {dot_range(a, b, 0, m->rows), dot_range(c, b, 0, m->rows)};
        return dtl_comm_allreduce(m->comm, mine, out, 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM);
    }
    memset(d->mine, 0, 2 * (size_t)d->blocks * sizeof *d->mine);
    sum_blocks(d, a, b, d->mine);
    sum_blocks(d, c, b, d->mine + d->blocks);
    DTL_TRY(
        dtl_comm_allreduce(m->comm, d->mine, d->all, 2 * (uint64_t)d->blocks, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    out[0] = out[1] = 0;
    for (int32_t block = 0; block < d->blocks; block++) {
        out[0] += d->all[block];
        out[1] += d->all[d->blocks + block];
    }
    return DTL_SUCCESS;
}

/* r: residual, z: preconditioned residual, p: search direction (matrix->x), q = A p. */
typedef struct vectors_t {
    double *r, *z, *p, *q;
} vectors_t;

static void precondition(const matrix_t *m, const double *r, double *z)
{
    for (int32_t i = 0; i < m->rows; i++) {
        z[i] = r[i] / m->diagonal[i];
    }
}

static dtl_status_t iterate(const dots_t *d, vectors_t v, double *x, const cg_options_t *options,
                            cg_result_t *out)
{
    matrix_t *m = d->matrix;
    double dots[2]; /* z·r, r·r */
    double curvature[2];
    precondition(m, v.r, v.z);
    memcpy(v.p, v.z, (size_t)m->rows * sizeof *v.p);
    DTL_TRY(dot_pair(d, v.z, v.r, v.r, dots));
    const double norm_b = sqrt(dots[1]); /* x = 0, so r = b */
    out->residual = norm_b > 0 ? 1 : 0;
    out->converged = out->residual <= options->tolerance;
    while (!out->converged && out->iterations < options->max_iterations) {
        DTL_TRY(matrix_multiply(m, v.q));
        DTL_TRY(dot_pair(d, v.p, v.q, v.p, curvature));
        if (!(curvature[0] > 0) || !isfinite(curvature[0])) {
            out->indefinite = true;
            return DTL_SUCCESS;
        }
        const double alpha = dots[0] / curvature[0];
        for (int32_t i = 0; i < m->rows; i++) {
            x[i] += alpha * v.p[i];
            v.r[i] -= alpha * v.q[i];
        }
        precondition(m, v.r, v.z);
        const double before = dots[0];
        DTL_TRY(dot_pair(d, v.z, v.r, v.r, dots));
        const double beta = dots[0] / before;
        for (int32_t i = 0; i < m->rows; i++) {
            v.p[i] = v.z[i] + beta * v.p[i];
        }
        out->iterations++;
        out->residual = sqrt(dots[1]) / norm_b;
        out->converged = out->residual <= options->tolerance;
        if (options->progress != NULL) {
            options->progress(out->iterations, out->residual, options->user);
        }
    }
    return DTL_SUCCESS;
}

dtl_status_t cg_solve(matrix_t *m, const double *b, double *x, const cg_options_t *options, cg_result_t *out)
{
    dots_t d = {.matrix = m, .block_rows = options->block_rows};
    if (d.block_rows > 0) {
        d.blocks = (m->global_rows - 1) / d.block_rows + 1;
        d.mine = allocate(2 * (int64_t)d.blocks, sizeof *d.mine);
        d.all = allocate(2 * (int64_t)d.blocks, sizeof *d.all);
    }
    double *memory = allocate(3 * (int64_t)m->rows, sizeof *memory);
    const vectors_t v = {memory, memory + m->rows, m->x, memory + 2 * (int64_t)m->rows};
    memcpy(v.r, b, (size_t)m->rows * sizeof *b);
    memset(x, 0, (size_t)m->rows * sizeof *x);
    memset(out, 0, sizeof *out);
    const dtl_status_t status = iterate(&d, v, x, options, out);
    free(memory);
    free(d.mine);
    free(d.all);
    return status;
}
