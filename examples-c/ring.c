/* ring: messages round a ring of ranks, blocking and non-blocking.
 *
 * Build: cc ring.c $(pkg-config --cflags --libs libdtl) -o ring
 * Run:   dtlrun -n 4 ./ring           (or mpirun -n 4 ./ring, or ./ring alone)
 * Prints, from rank 0, the token after its round and the sum that everybody got.
 */
#include <dtl.h>

#include <stdio.h>

enum { TAG_TOKEN = 1, TAG_SHIFT = 2 };

/* One token visits every rank in turn, and each adds its number. */
static int64_t pass_token(dtl_comm_t comm, int32_t rank, int32_t size)
{
    const int32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int64_t token = 0;
    if (size == 1) {
        return token; /* nobody to send to: a blocking send to oneself would wait for ever */
    }
    if (rank != 0) {
        DTL_CHECK(dtl_comm_recv(comm, &token, 1, DTL_DTYPE_INT64, previous, TAG_TOKEN, NULL));
        token += rank;
    }
    DTL_CHECK(dtl_comm_send(comm, &token, 1, DTL_DTYPE_INT64, next, TAG_TOKEN));
    if (rank == 0) {
        DTL_CHECK(dtl_comm_recv(comm, &token, 1, DTL_DTYPE_INT64, previous, TAG_TOKEN, NULL));
    }
    return token;
}

/* Everybody sends at the same time: after size-1 shifts each rank has seen every number. */
static int64_t shift_all(dtl_comm_t comm, int32_t rank, int32_t size)
{
    const int32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int64_t mine = rank, sum = rank;
    for (int32_t step = 1; step < size; step++) {
        int64_t received = -1;
        dtl_request_t requests[2];
        dtl_recv_info_t infos[2];
        DTL_CHECK(dtl_comm_irecv(comm, &received, 1, DTL_DTYPE_INT64, previous, TAG_SHIFT, &requests[0]));
        DTL_CHECK(dtl_comm_isend(comm, &mine, 1, DTL_DTYPE_INT64, next, TAG_SHIFT, &requests[1]));
        DTL_CHECK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, infos));
        if (infos[0].source != previous || infos[0].size_bytes != sizeof received) {
            fprintf(stderr, "ring: rank %d got %llu bytes from %d\n", (int)rank,
                    (unsigned long long)infos[0].size_bytes, (int)infos[0].source);
            return -1;
        }
        mine = received;
        sum += received;
    }
    return sum;
}

int main(void)
{
    int32_t rank = 0, size = 0;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    const int64_t expected = (int64_t)size * (size - 1) / 2;

    const int64_t token = pass_token(DTL_COMM_WORLD, rank, size);
    const int64_t sum = shift_all(DTL_COMM_WORLD, rank, size);
    const int32_t good = sum == expected && (rank != 0 || token == expected);
    int32_t all_good = 0;
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &good, &all_good, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
    if (rank == 0) {
        printf("%d ranks: the token came back as %lld, every shift sum is %lld: %s\n", (int)size,
               (long long)token, (long long)sum, all_good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_finalize());
    return all_good ? 0 : 1;
}
