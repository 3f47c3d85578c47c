// What kind "mpi" costs over the MPI below it: the same messages by MPI_ and by dtl_ functions, in one
// process, over the same communicator, batch by batch in turn. Two ranks.
//
//     mpicc -O2 benches/mpi.c $(pkg-config --cflags --libs libdtl) -o mpi && mpirun -n 2 ./mpi
//
// Prints the 10th percentile over many short batches and the median of the differences of neighbouring batches.
#include <dtl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 2000, MOST = 1 << 20 };

static dtl_comm_t comm;
static int rank;
static char *out, *in;

static void check(dtl_status_t status, const char *what)
{
    if (status != DTL_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, dtl_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}
#define CHECK(call) check(call, #call)

/* One round trip, or one collective, each way. */
static void mpi_blocking(int n)
{
    if (rank == 0) {
        MPI_Send(out, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(in, n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, n, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}
static void dtl_blocking(int n)
{
    if (rank == 0) {
        CHECK(dtl_comm_send(comm, out, (uint64_t)n, DTL_DTYPE_BYTE, 1, 1));
        CHECK(dtl_comm_recv(comm, in, (uint64_t)n, DTL_DTYPE_BYTE, 1, 1, NULL));
    } else {
        CHECK(dtl_comm_recv(comm, in, (uint64_t)n, DTL_DTYPE_BYTE, 0, 1, NULL));
        CHECK(dtl_comm_send(comm, out, (uint64_t)n, DTL_DTYPE_BYTE, 0, 1));
    }
}
static void mpi_nonblocking(int n)
{
    MPI_Request r, s;
    MPI_Irecv(in, n, MPI_BYTE, !rank, 2, MPI_COMM_WORLD, &r);
    MPI_Isend(out, n, MPI_BYTE, !rank, 2, MPI_COMM_WORLD, &s);
    MPI_Wait(&s, MPI_STATUS_IGNORE);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
}
static void dtl_nonblocking(int n)
{
    dtl_request_t r, s;
    CHECK(dtl_comm_irecv(comm, in, (uint64_t)n, DTL_DTYPE_BYTE, !rank, 2, &r));
    CHECK(dtl_comm_isend(comm, out, (uint64_t)n, DTL_DTYPE_BYTE, !rank, 2, &s));
    CHECK(dtl_request_wait(s, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(dtl_request_wait(r, DTL_TIMEOUT_INFINITE, NULL));
}
/* To this rank itself: no other process, so that the calls alone are seen. */
static void mpi_self(int n)
{
    MPI_Request r;
    MPI_Irecv(in, n, MPI_BYTE, rank, 3, MPI_COMM_WORLD, &r);
    MPI_Send(out, n, MPI_BYTE, rank, 3, MPI_COMM_WORLD);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
}
static void dtl_self(int n)
{
    dtl_request_t r;
    CHECK(dtl_comm_irecv(comm, in, (uint64_t)n, DTL_DTYPE_BYTE, rank, 3, &r));
    CHECK(dtl_comm_send(comm, out, (uint64_t)n, DTL_DTYPE_BYTE, rank, 3));
    CHECK(dtl_request_wait(r, DTL_TIMEOUT_INFINITE, NULL));
}
static void mpi_allreduce(int n)
{
    MPI_Allreduce(out, in, n / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}
static void dtl_allreduce(int n)
{
    CHECK(dtl_comm_allreduce(comm, out, in, (uint64_t)n / 8, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double batch(void (*call)(int), int n, int calls)
{
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; i++) {
        call(n);
    }
    return (MPI_Wtime() - start) * 1e9 / calls;
}

/* `ops`: calls that a round consists of, for the difference per call. */
static void row(const char *name, void (*bare)(int), void (*ours)(int), int n, int ops)
{
    static double mpi[BATCHES], dtl[BATCHES], more[BATCHES];
    const int calls = n >= 1 << 16 ? 8 : 100, batches = n >= 1 << 16 ? BATCHES / 4 : BATCHES;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < batches; i++) {
        if (i % 2) {
            mpi[i] = batch(bare, n, calls);
            dtl[i] = batch(ours, n, calls);
        } else {
            dtl[i] = batch(ours, n, calls);
            mpi[i] = batch(bare, n, calls);
        }
        more[i] = (dtl[i] - mpi[i]) / ops;
    }
    qsort(mpi, (size_t)batches, sizeof *mpi, by_value);
    qsort(dtl, (size_t)batches, sizeof *dtl, by_value);
    qsort(more, (size_t)batches, sizeof *more, by_value);
    if (rank == 0) {
        const double m = mpi[batches / 10], d = dtl[batches / 10];
        printf("| %s | %d | %.0f | %.0f | %+.1f | %+.1f | %.3f |\n", name, n, m, d, (d - m) / ops, more[batches / 2],
               d / m);
    }
}

int main(int argc, char **argv)
{
    int level, size;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    const int wanted = argc > 1 && strcmp(argv[1], "single") == 0 ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fprintf(stderr, "two ranks are needed, not %d\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    out = calloc(1, MOST);
    in = calloc(1, MOST);
    CHECK(dtl_comm_from_mpi_fint((int32_t)MPI_Comm_c2f(MPI_COMM_WORLD), &comm));
    MPI_Get_library_version(text, &size);
    if (rank == 0) {
        printf("%.40s, thread level %d\n\n", text, level);
        printf("| call | bytes | MPI, ns a round | dtl, ns a round | more a call, ns (p10) | (median of pairs) | ratio |\n");
        printf("|---|--:|--:|--:|--:|--:|--:|\n");
    }
    row("send, recv (ping-pong)", mpi_blocking, dtl_blocking, 8, 4);
    row("isend, irecv, 2 waits (exchange)", mpi_nonblocking, dtl_nonblocking, 8, 4);
    row("irecv, send, wait (to itself)", mpi_self, dtl_self, 8, 3);
    row("allreduce", mpi_allreduce, dtl_allreduce, 8, 1);
    row("send, recv (ping-pong)", mpi_blocking, dtl_blocking, 1 << 16, 4);
    row("send, recv (ping-pong)", mpi_blocking, dtl_blocking, 1 << 20, 4);
    row("isend, irecv, 2 waits (exchange)", mpi_nonblocking, dtl_nonblocking, 1 << 16, 4);
    row("allreduce", mpi_allreduce, dtl_allreduce, 1 << 16, 1);
    CHECK(dtl_comm_destroy(comm));
    MPI_Finalize();
    return 0;
}
