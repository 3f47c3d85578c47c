/* mtx: reads a sparse symmetric matrix from a Matrix Market file and trusts nothing in it.
 *
 * Accepted: coordinate, real or integer, general or symmetric, square, every diagonal entry
 * present and positive, equal on both sides of the diagonal. (Whether it is positive definite
 * shows only while solving.) Part of the example cg; see cg.c.
 */
#ifndef CG_MTX_H
#define CG_MTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compressed rows; the columns of a row ascend. Both triangles are stored. */
typedef struct mtx_t {
    int32_t rows;
    int64_t *row_start; /* rows + 1 */
    int32_t *column;    /* from 0 */
    double *value;
} mtx_t;

/* Reads the file. On failure: false, one line "FILE:LINE: what is wrong" (without a newline) in
 * `error`, and nothing to free. */
bool mtx_read(const char *path, mtx_t *out, char *error, size_t cap);

void mtx_free(mtx_t *matrix);

#endif
