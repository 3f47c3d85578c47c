/* Collectives above 2 GiB over kind mpi without a time limit: counts that int cannot hold. Two ranks, 20 GiB of
 * memory, a minute: see mpi_large.sh.
 *
 *     mpiexec -n 2 mpi_large [moves | various | reductions]
 *
 * Prints what each took, and who did it: MPI's _c functions are counted in this program's own, which come before the
 * library's as those of a profiler do. Each word is a function of its rank and place, so one that lands elsewhere is
 * seen. */
#include "../c/check.h"
#include <mpi.h>
#include <string.h>

#define BYTES ((UINT64_C(2) << 30) + (UINT64_C(200) << 20) + 16)
#define WORDS (BYTES / 8)

static int calls_of_mpi;
#if MPI_VERSION >= 4
#define COUNTED(function, arguments, values) \
    int MPI_##function arguments {           \
        calls_of_mpi++;                      \
        return PMPI_##function values;       \
    }
#define IN const void *in_, MPI_Count n, MPI_Datatype type
#define OUT void *out_, MPI_Count m, MPI_Datatype kind
#define INS const void *in_, const MPI_Count *ns, const MPI_Aint *at, MPI_Datatype type
#define OUTS void *out_, const MPI_Count *ms, const MPI_Aint *gaps, MPI_Datatype kind
#define FOLD const void *in_, void *out_, MPI_Count n, MPI_Datatype type, MPI_Op op
#define LAST MPI_Comm last
COUNTED(Bcast_c, (OUT, int root, LAST), (out_, m, kind, root, last))
COUNTED(Ibcast_c, (OUT, int root, LAST, MPI_Request *r), (out_, m, kind, root, last, r))
COUNTED(Allgather_c, (IN, OUT, LAST), (in_, n, type, out_, m, kind, last))
COUNTED(Gather_c, (IN, OUT, int root, LAST), (in_, n, type, out_, m, kind, root, last))
COUNTED(Scatter_c, (IN, OUT, int root, LAST), (in_, n, type, out_, m, kind, root, last))
COUNTED(Alltoall_c, (IN, OUT, LAST), (in_, n, type, out_, m, kind, last))
COUNTED(Allgatherv_c, (IN, OUTS, LAST), (in_, n, type, out_, ms, gaps, kind, last))
COUNTED(Gatherv_c, (IN, OUTS, int root, LAST), (in_, n, type, out_, ms, gaps, kind, root, last))
COUNTED(Scatterv_c, (INS, OUT, int root, LAST), (in_, ns, at, type, out_, m, kind, root, last))
COUNTED(Alltoallv_c, (INS, OUTS, LAST), (in_, ns, at, type, out_, ms, gaps, kind, last))
COUNTED(Ialltoallv_c, (INS, OUTS, LAST, MPI_Request *r), (in_, ns, at, type, out_, ms, gaps, kind, last, r))
COUNTED(Reduce_c, (FOLD, int root, LAST), (in_, out_, n, type, op, root, last))
COUNTED(Allreduce_c, (FOLD, LAST), (in_, out_, n, type, op, last))
COUNTED(Iallreduce_c, (FOLD, LAST, MPI_Request *r), (in_, out_, n, type, op, last, r))
COUNTED(Scan_c, (FOLD, LAST), (in_, out_, n, type, op, last))
COUNTED(Exscan_c, (FOLD, LAST), (in_, out_, n, type, op, last))
COUNTED(Reduce_scatter_c, (const void *in_, void *out_, const MPI_Count *ns, MPI_Datatype type, MPI_Op op, LAST),
        (in_, out_, ns, type, op, last))
#endif

static int32_t me;
static dtl_comm_t comm;
static uint64_t *in, *out;

static uint64_t word(int32_t rank, uint64_t i) { return (i + 1) * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)rank; }

static uint64_t mine(uint64_t i) { return word(me, i); }
static uint64_t of_0(uint64_t i) { return word(0, i); }
static uint64_t of_1(uint64_t i) { return word(1, i); }
static uint64_t both(uint64_t i) { return word(0, i) ^ word(1, i); }
static uint64_t sum(uint64_t i) { return word(0, i) + word(1, i); }
static uint64_t halves(uint64_t i) { return word(i < WORDS / 2 ? 0 : 1, i % (WORDS / 2)); }
static uint64_t my_half(uint64_t i) { return both(i + (uint64_t)me * (WORDS / 2)); }
static uint64_t of_0_half(uint64_t i) { return word(0, i + (uint64_t)me * (WORDS / 2)); }
static uint64_t crossed(uint64_t i) { return word(i < WORDS / 2 ? 0 : 1, i % (WORDS / 2) + (uint64_t)me * (WORDS / 2)); }
static uint64_t untouched(uint64_t i) { return (void)i, UINT64_C(0xEEEEEEEEEEEEEEEE); }

static void fill(uint64_t *at, uint64_t count, uint64_t (*value)(uint64_t)) {
    uint64_t i;
    for (i = 0; i < count; i++) at[i] = value(i);
}

static double begun;
static const char *name;

static void begin(const char *what) {
    fill(in, WORDS, mine);
    memset(out, 0xEE, BYTES);
    name = what;
    CHECK_OK(dtl_comm_barrier(comm));
    calls_of_mpi = 0;
    begun = dtl_comm_wtime();
}

static void end(const uint64_t *at, uint64_t count, uint64_t (*value)(uint64_t)) {
    const double took = dtl_comm_wtime() - begun;
    uint64_t i;
    for (i = 0; i < count; i++) {
        if (at[i] != value(i)) {
            fprintf(stderr, "%s: rank %d: word %llu is wrong\n", name, (int)me, (unsigned long long)i);
            exit(1);
        }
    }
    printf("%d: %-34s %6.2f s%s\n", (int)me, name, took, calls_of_mpi > 0 ? ", by MPI's function of large counts" : "");
    fflush(stdout);
}

static void wait_for(dtl_request_t request) { CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL)); }

static void moves(void) {
    dtl_request_t request;
    const uint64_t half = BYTES / 2;
    begin("bcast");
    CHECK_OK(dtl_comm_bcast(comm, in, BYTES, DTL_DTYPE_BYTE, 1));
    end(in, WORDS, of_1);
    begin("bcast (as a request)");
    CHECK_OK(dtl_comm_ibcast(comm, in, BYTES, DTL_DTYPE_BYTE, 0, &request));
    wait_for(request);
    end(in, WORDS, of_0);
    begin("allgather");
    CHECK_OK(dtl_comm_allgather(comm, in, half, out, DTL_DTYPE_BYTE));
    end(out, WORDS, halves);
    begin("gather");
    CHECK_OK(dtl_comm_gather(comm, in, half, out, DTL_DTYPE_BYTE, 1));
    end(out, WORDS, me == 1 ? halves : untouched);
    begin("scatter");
    CHECK_OK(dtl_comm_scatter(comm, in, half, out, DTL_DTYPE_BYTE, 0));
    end(out, WORDS / 2, of_0_half);
    begin("alltoall");
    CHECK_OK(dtl_comm_alltoall(comm, in, half, out, DTL_DTYPE_BYTE));
    end(out, WORDS, crossed);
}

/* Blocks of other sizes on both ranks: all but a few bytes of rank 0's, and those of rank 1's. */
static uint64_t few(uint64_t i) { return i < WORDS - 2 ? word(0, i) : word(1, i - (WORDS - 2)); }
static uint64_t few_back(uint64_t i) {
    if (me == 0) return i < WORDS - 2 ? word(0, i) : word(1, i - (WORDS - 2));
    return i < 2 ? word(0, WORDS - 2 + i) : i < 4 ? word(1, i) : untouched(i);
}

static void various_moves(void) {
    dtl_request_t request;
    const uint64_t few_counts[2] = {BYTES - 16, 16};
    /* To rank 0: the many from rank 0, the few from rank 1; to rank 1: the few of both. */
    const uint64_t to[2][2] = {{BYTES - 16, 16}, {16, 16}}, from[2][2] = {{BYTES - 16, 16}, {16, 16}};
    begin("allgatherv");
    CHECK_OK(dtl_comm_allgatherv(comm, in, few_counts[me], out, few_counts, NULL, DTL_DTYPE_BYTE));
    end(out, WORDS, few);
    begin("gatherv");
    CHECK_OK(dtl_comm_gatherv(comm, in, few_counts[me], out, few_counts, NULL, DTL_DTYPE_BYTE, 1));
    end(out, WORDS, me == 1 ? few : untouched);
    begin("scatterv");
    CHECK_OK(dtl_comm_scatterv(comm, in, few_counts, NULL, out, few_counts[me], DTL_DTYPE_BYTE, 1));
    end(out, me == 0 ? WORDS - 2 : 0, of_1);
    begin("alltoallv");
    CHECK_OK(dtl_comm_alltoallv(comm, in, to[me], NULL, out, from[me], NULL, DTL_DTYPE_BYTE));
    end(out, WORDS, few_back);
    begin("alltoallv (as a request)");
    CHECK_OK(dtl_comm_ialltoallv(comm, in, to[me], NULL, out, from[me], NULL, DTL_DTYPE_BYTE, &request));
    wait_for(request);
    end(out, WORDS, few_back);
}

static void fold(const void *left, void *right, uint64_t count, dtl_dtype_t dtype, void *user) {
    const unsigned char *a = (const unsigned char *)left;
    unsigned char *b = (unsigned char *)right;
    const uint64_t bytes = dtype == DTL_DTYPE_UINT8 ? count : 8 * count;
    uint64_t i;
    (void)user;
    for (i = 0; i < bytes; i++) b[i] = (unsigned char)(a[i] ^ b[i]);
}

static void reductions(void) {
    dtl_request_t request;
    dtl_reduce_op_t own;
    begin("allreduce");
    CHECK_OK(dtl_comm_allreduce(comm, in, out, BYTES, DTL_DTYPE_UINT8, DTL_OP_BXOR));
    end(out, WORDS, both);
    begin("allreduce (in place, 8 byte words)");
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, in, WORDS, DTL_DTYPE_UINT64, DTL_OP_SUM));
    end(in, WORDS, sum);
    begin("allreduce (as a request)");
    CHECK_OK(dtl_comm_iallreduce(comm, in, out, BYTES, DTL_DTYPE_UINT8, DTL_OP_BXOR, &request));
    wait_for(request);
    end(out, WORDS, both);
    begin("reduce (in place)");
    CHECK_OK(dtl_comm_reduce(comm, me == 1 ? DTL_IN_PLACE : in, in, BYTES, DTL_DTYPE_UINT8, DTL_OP_BXOR, 1));
    end(in, WORDS, me == 1 ? both : mine);
    begin("scan");
    CHECK_OK(dtl_comm_scan(comm, in, out, BYTES, DTL_DTYPE_UINT8, DTL_OP_BXOR));
    end(out, WORDS, me == 1 ? both : mine);
    begin("exscan");
    CHECK_OK(dtl_comm_exscan(comm, in, out, BYTES, DTL_DTYPE_UINT8, DTL_OP_BXOR));
    end(out, WORDS, me == 1 ? of_0 : untouched);
    begin("reduce_scatter_block");
    CHECK_OK(dtl_comm_reduce_scatter_block(comm, in, out, BYTES / 2, DTL_DTYPE_UINT8, DTL_OP_BXOR));
    end(out, WORDS / 2, my_half);
    /* An operation of the program's: MPI counts in int what it hands to it. */
    CHECK_OK(dtl_op_create(fold, NULL, DTL_OP_COMMUTES, "xor", &own));
    begin("allreduce (own, 8 byte words)");
    CHECK_OK(dtl_comm_allreduce(comm, in, out, WORDS, DTL_DTYPE_UINT64, own));
    end(out, WORDS, both);
    begin("allreduce (own, bytes)");
    CHECK_OK(dtl_comm_allreduce(comm, in, out, BYTES, DTL_DTYPE_UINT8, own));
    end(out, WORDS, both);
    CHECK_OK(dtl_op_destroy(own));
}

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    desc.kind = "mpi";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_info(comm, &info));
    if (info.size != 2) SKIP("it wants two ranks");
    me = info.rank;
    in = (uint64_t *)malloc(BYTES);
    out = (uint64_t *)malloc(BYTES);
    CHECK(in != NULL && out != NULL);
    if (me == 0) printf("%s\n", info.transport);
    if (argc < 2 || strcmp(argv[1], "moves") == 0) moves();
    if (argc < 2 || strcmp(argv[1], "various") == 0) various_moves();
    if (argc < 2 || strcmp(argv[1], "reductions") == 0) reductions();
    free(in);
    free(out);
    CHECK_OK(dtl_finalize());
    return 0;
}
