/* matrix: distribution, the pattern of the halo exchange, and the product (see matrix.h). */
#include "matrix.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_ROWS = 1, TAG_COLUMNS, TAG_VALUES, TAG_WANTED, TAG_HALO };

void *allocate(int64_t count, size_t size_bytes)
{
    void *memory = calloc(count > 0 ? (size_t)count : 1, size_bytes);
    if (memory == NULL) {
        fprintf(stderr, "cg: no memory for %" PRId64 " elements of %zu bytes\n", count, size_bytes);
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* Chooses where each rank's block starts: as near as the alignment allows to its share. */
static void partition(const mtx_t *whole, int32_t size, int32_t alignment, int32_t *first_row)
{
    const int64_t nonzeros = whole->row_start[whole->rows];
    int32_t row = 0;
    first_row[0] = 0;
    for (int32_t rank = 1; rank < size; rank++) {
        const int64_t share = nonzeros / size * rank + nonzeros % size * rank / size;
        int32_t next = row;
        while (whole->row_start[next] < share) {
            row = next;
            next = whole->rows - row > alignment ? row + alignment : whole->rows;
        }
        if (share - whole->row_start[row] > whole->row_start[next] - share) {
            row = next;
        }
        first_row[rank] = row;
    }
    first_row[size] = whole->rows;
}

/* Rank 0: sends a rank its rows; they are slices of the whole. */
static dtl_status_t send_rows(dtl_comm_t comm, const mtx_t *whole, int32_t first, int32_t rows, int32_t to)
{
    const int64_t *start = whole->row_start + first;
    const uint64_t nonzeros = (uint64_t)(start[rows] - start[0]);
    DTL_TRY(dtl_comm_send(comm, start, (uint64_t)rows + 1, DTL_DTYPE_INT64, to, TAG_ROWS));
    DTL_TRY(dtl_comm_send(comm, whole->column + start[0], nonzeros, DTL_DTYPE_INT32, to, TAG_COLUMNS));
    return dtl_comm_send(comm, whole->value + start[0], nonzeros, DTL_DTYPE_FLOAT64, to, TAG_VALUES);
}

static dtl_status_t receive_rows(matrix_t *m)
{
    DTL_TRY(dtl_comm_recv(m->comm, m->row_start, (uint64_t)m->rows + 1, DTL_DTYPE_INT64, 0, TAG_ROWS, NULL));
    for (int32_t row = m->rows; row >= 0; row--) {
        m->row_start[row] -= m->row_start[0];
    }
    const uint64_t nonzeros = (uint64_t)m->row_start[m->rows];
    m->column = allocate((int64_t)nonzeros, sizeof *m->column);
    m->value = allocate((int64_t)nonzeros, sizeof *m->value);
    DTL_TRY(dtl_comm_recv(m->comm, m->column, nonzeros, DTL_DTYPE_INT32, 0, TAG_COLUMNS, NULL));
    return dtl_comm_recv(m->comm, m->value, nonzeros, DTL_DTYPE_FLOAT64, 0, TAG_VALUES, NULL);
}

static void copy_rows(const mtx_t *whole, matrix_t *m)
{
    const int64_t nonzeros = whole->row_start[m->rows];
    m->column = allocate(nonzeros, sizeof *m->column);
    m->value = allocate(nonzeros, sizeof *m->value);
    memcpy(m->row_start, whole->row_start, ((size_t)m->rows + 1) * sizeof *m->row_start);
    memcpy(m->column, whole->column, (size_t)nonzeros * sizeof *m->column);
    memcpy(m->value, whole->value, (size_t)nonzeros * sizeof *m->value);
}

static dtl_status_t spread_rows(const mtx_t *whole, int32_t alignment, matrix_t *m)
{
    m->first_row = allocate((int64_t)m->size + 1, sizeof *m->first_row);
    if (m->rank == 0) {
        partition(whole, m->size, alignment, m->first_row);
    }
    DTL_TRY(dtl_comm_bcast(m->comm, m->first_row, (uint64_t)m->size + 1, DTL_DTYPE_INT32, 0));
    m->global_rows = m->first_row[m->size];
    m->rows = m->first_row[m->rank + 1] - m->first_row[m->rank];
    m->row_start = allocate((int64_t)m->rows + 1, sizeof *m->row_start);
    if (m->rank != 0) {
        return receive_rows(m);
    }
    copy_rows(whole, m);
    for (int32_t to = 1; to < m->size; to++) {
        DTL_TRY(send_rows(m->comm, whole, m->first_row[to], m->first_row[to + 1] - m->first_row[to], to));
    }
    return DTL_SUCCESS;
}

static int ascending(const void *left, const void *right)
{
    const int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Lists the columns of other ranks that my rows touch, ascending, each once. The owners ascend with
 * them, so the list is also sorted by owner. */
static void list_halo(matrix_t *m)
{
    const int32_t first = m->first_row[m->rank], end = m->first_row[m->rank + 1];
    const int64_t nonzeros = m->row_start[m->rows];
    int32_t *wanted = allocate(nonzeros, sizeof *wanted);
    size_t count = 0;
    for (int64_t i = 0; i < nonzeros; i++) {
        if (m->column[i] < first || m->column[i] >= end) {
            wanted[count++] = m->column[i];
        }
    }
    qsort(wanted, count, sizeof *wanted, ascending);
    for (size_t i = 0; i < count; i++) {
        if (m->halo == 0 || wanted[m->halo - 1] != wanted[i]) {
            wanted[m->halo++] = wanted[i];
        }
    }
    m->halo_column = wanted;
}

/* From global columns to places in a vector, and the diagonal on the way. */
static void renumber(matrix_t *m)
{
    const int32_t first = m->first_row[m->rank], end = m->first_row[m->rank + 1];
    m->diagonal = allocate(m->rows, sizeof *m->diagonal);
    for (int32_t row = 0; row < m->rows; row++) {
        for (int64_t i = m->row_start[row]; i < m->row_start[row + 1]; i++) {
            int32_t *column = &m->column[i];
            if (*column >= first && *column < end) {
                *column -= first;
            } else {
                const int32_t *place =
                    bsearch(column, m->halo_column, (size_t)m->halo, sizeof *column, ascending);
                *column = m->rows + (int32_t)(place - m->halo_column);
            }
            if (*column == row) {
                m->diagonal[row] = m->value[i];
            }
        }
    }
}

/* The ranks with a count above 0, their offsets adding up. */
static peer_t *list_peers(const int32_t *counts, int32_t size, int32_t *out_count, int32_t *out_total)
{
    peer_t *peers = allocate(size, sizeof *peers);
    for (int32_t rank = 0; rank < size; rank++) {
        if (counts[rank] > 0) {
            peers[(*out_count)++] = (peer_t){rank, counts[rank], *out_total};
            *out_total += counts[rank];
        }
    }
    return peers;
}

/* Tells each owner which of its entries this rank wants, and learns what the others want. */
static dtl_status_t exchange_wishes(matrix_t *m)
{
    uint64_t pending = 0;
    for (int32_t i = 0; i < m->target_count; i++) {
        const peer_t *p = &m->targets[i];
        DTL_TRY(dtl_comm_irecv(m->comm, m->send_index + p->offset, (uint64_t)p->count, DTL_DTYPE_INT32,
                               p->rank, TAG_WANTED, &m->requests[pending++]));
    }
    for (int32_t i = 0; i < m->source_count; i++) {
        const peer_t *p = &m->sources[i];
        DTL_TRY(dtl_comm_isend(m->comm, m->halo_column + p->offset, (uint64_t)p->count, DTL_DTYPE_INT32,
                               p->rank, TAG_WANTED, &m->requests[pending++]));
    }
    return dtl_request_wait_all(m->requests, pending, DTL_TIMEOUT_INFINITE, NULL);
}

static dtl_status_t plan_exchange(matrix_t *m, int32_t *counts_in, int32_t *counts_out)
{
    int32_t owner = 0, incoming = 0, outgoing = 0;
    for (int32_t i = 0; i < m->halo; i++) {
        while (m->halo_column[i] >= m->first_row[owner + 1]) {
            owner++;
        }
        counts_in[owner]++;
    }
    DTL_TRY(dtl_comm_alltoall(m->comm, counts_in, 1, counts_out, DTL_DTYPE_INT32));
    m->sources = list_peers(counts_in, m->size, &m->source_count, &incoming);
    m->targets = list_peers(counts_out, m->size, &m->target_count, &outgoing);
    m->requests = allocate((int64_t)m->source_count + m->target_count, sizeof *m->requests);
    m->send_index = allocate(outgoing, sizeof *m->send_index);
    m->send_buffer = allocate(outgoing, sizeof *m->send_buffer);
    DTL_TRY(exchange_wishes(m));
    for (int32_t i = 0; i < outgoing; i++) {
        m->send_index[i] -= m->first_row[m->rank];
    }
    return DTL_SUCCESS;
}

dtl_status_t matrix_distribute(dtl_comm_t comm, const mtx_t *whole, int32_t alignment, matrix_t *out)
{
    memset(out, 0, sizeof *out);
    out->comm = comm;
    DTL_TRY(dtl_comm_rank(comm, &out->rank));
    DTL_TRY(dtl_comm_size(comm, &out->size));
    DTL_TRY(spread_rows(whole, alignment, out));
    list_halo(out);
    renumber(out);
    out->x = allocate((int64_t)out->rows + out->halo, sizeof *out->x);
    int32_t *counts = allocate(2 * (int64_t)out->size, sizeof *counts);
    const dtl_status_t status = plan_exchange(out, counts, counts + out->size);
    free(counts);
    return status;
}

static dtl_status_t fetch_halo(matrix_t *m)
{
    uint64_t pending = 0;
    for (int32_t i = 0; i < m->source_count; i++) {
        const peer_t *p = &m->sources[i];
        DTL_TRY(dtl_comm_irecv(m->comm, m->x + m->rows + p->offset, (uint64_t)p->count, DTL_DTYPE_FLOAT64,
                               p->rank, TAG_HALO, &m->requests[pending++]));
    }
    for (int32_t i = 0; i < m->target_count; i++) {
        const peer_t *p = &m->targets[i];
        for (int32_t k = p->offset; k < p->offset + p->count; k++) {
            m->send_buffer[k] = m->x[m->send_index[k]];
        }
        DTL_TRY(dtl_comm_isend(m->comm, m->send_buffer + p->offset, (uint64_t)p->count, DTL_DTYPE_FLOAT64,
                               p->rank, TAG_HALO, &m->requests[pending++]));
    }
    return dtl_request_wait_all(m->requests, pending, DTL_TIMEOUT_INFINITE, NULL);
}

dtl_status_t matrix_multiply(matrix_t *m, double *y)
{
    DTL_TRY(fetch_halo(m));
    for (int32_t row = 0; row < m->rows; row++) {
        double sum = 0;
        for (int64_t i = m->row_start[row]; i < m->row_start[row + 1]; i++) {
            sum += m->value[i] * m->x[m->column[i]];
        }
        y[row] = sum;
    }
    return DTL_SUCCESS;
}

void matrix_free(matrix_t *m)
{
    free(m->first_row);
    free(m->row_start);
    free(m->column);
    free(m->value);
    free(m->diagonal);
    free(m->halo_column);
    free(m->x);
    free(m->sources);
    free(m->targets);
    free(m->send_index);
    free(m->send_buffer);
    free(m->requests);
    memset(m, 0, sizeof *m);
}
