/* matrix: a sparse matrix whose rows are spread over the ranks of a communicator.
 *
 * Each rank holds a contiguous block of rows, and the entries of a vector that go with them. The
 * vector to be multiplied has behind them the halo: the entries of other ranks that the rows touch.
 * Part of the example cg; see cg.c.
 */
#ifndef CG_MATRIX_H
#define CG_MATRIX_H

#include "mtx.h"

#include <dtl.h>

/* Entries that go to or come from one other rank, at `offset` of the buffer. */
typedef struct peer_t {
    int32_t rank, count, offset;
} peer_t;

typedef struct matrix_t {
    dtl_comm_t comm;
    int32_t rank, size;
    int32_t global_rows;
    int32_t *first_row; /* size + 1: rank r holds the rows first_row[r] … first_row[r + 1] - 1 */
    int32_t rows, halo;
    int64_t *row_start; /* rows + 1 */
    int32_t *column;    /* below rows: my entry; from rows on: an entry of the halo */
    double *value;
    double *diagonal;     /* rows */
    int32_t *halo_column; /* halo: the global columns of its entries */
    double *x;            /* rows + halo: what matrix_multiply multiplies */
    peer_t *sources, *targets;
    int32_t source_count, target_count;
    int32_t *send_index; /* which of my entries go to the targets, in their order */
    double *send_buffer;
    dtl_request_t *requests; /* one for each source and target */
} matrix_t;

/* Splits `whole` (read on rank 0 only) into blocks of rows with about the same number of nonzeros;
 * a block starts at a multiple of `alignment` rows. Collective. */
dtl_status_t matrix_distribute(dtl_comm_t comm, const mtx_t *whole, int32_t alignment, matrix_t *out);

/* y = A x, x being the first `rows` entries of matrix->x; the halo is fetched here. Collective. The
 * sum of a row runs over ascending columns, so it does not depend on the split. */
dtl_status_t matrix_multiply(matrix_t *matrix, double *y);

/* Call it after dtl_finalize: when a call failed, messages may still be under way in the buffers
 * until the communicator is closed. */
void matrix_free(matrix_t *matrix);

/* calloc that ends this rank with a message if there is no memory; the others notice. */
void *allocate(int64_t count, size_t size_bytes);

#endif
