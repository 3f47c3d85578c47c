/* Device memory over an MPI that takes it: messages pass the pointers on, all else is staged. No MPI here does,
 * so this program puts itself before MPI: it answers for it, counts the device pointers that reach it (memory of the CUDA driver
 * that is none, which nobody can read at its addresses), and gives MPI the host's that is behind them.
 * And what goes on while a call waits inside MPI.
 *     aware says DRIVER    MPI says that it takes device memory
 *     aware own DRIVER     MPI says what it says by itself: it does not */
#include "mpi_check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int says_aware, direct;
static void *driver;

static void *found(void *where, const char *name)
{
    void *at = dlsym(where, name);
    CHECK(at != NULL);
    return at;
}

int MPIX_Query_cuda_support(void)
{
    int (*ask)(void);
    void *at;
    if (says_aware) {
        return 1;
    }
    at = found(RTLD_NEXT, "MPIX_Query_cuda_support");
    memcpy(&ask, &at, sizeof ask);
    return ask();
}

/* What MPI can work with. */
static void *behind(const void *at, int count)
{
    char *(*ask)(const void *, size_t);
    void *function;
    char *bytes;
    if (driver == NULL) {
        return (void *)(uintptr_t)at;
    }
    function = found(driver, "fake_cuda_bytes");
    memcpy(&ask, &function, sizeof ask);
    bytes = ask(at, (size_t)count);
    direct += bytes != at;
    return bytes;
}

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return PMPI_Send(behind(buf, count), count, type, dest, tag, comm);
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
{
    return PMPI_Ssend(behind(buf, count), count, type, dest, tag, comm);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *out)
{
    return PMPI_Isend(behind(buf, count), count, type, dest, tag, comm, out);
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request *out)
{
    return PMPI_Send_init(behind(buf, count), count, type, dest, tag, comm, out);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    return PMPI_Recv(behind(buf, count), count, type, source, tag, comm, status);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *out)
{
    return PMPI_Irecv(behind(buf, count), count, type, source, tag, comm, out);
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request *out)
{
    return PMPI_Recv_init(behind(buf, count), count, type, source, tag, comm, out);
}

enum { SIZE = 100000, ROOM = SIZE + 8 };

static dtl_backend_t cuda;
static dtl_comm_t comm;
static int32_t me, ranks;
static unsigned char *host, *out, *in;

static unsigned char byte_of(int number, int at) { return (unsigned char)(number * 131 + at * 7 + at / 251); }

/* What this rank sends next. */
static void put(int number)
{
    int i;
    for (i = 0; i < SIZE; i++) host[i] = byte_of(number * 8 + me, i);
    CHECK_OK(dtl_mem_copy(out, host, SIZE));
    memset(host, 0x5A, ROOM);
    CHECK_OK(dtl_mem_copy(in, host, ROOM));
}

/* What the rank before this one sent has come, and nothing else has changed; so many pointers reached MPI. */
static void got(int number, int pointers)
{
    const int from = (me + ranks - 1) % ranks;
    int i;
    memset(host, 0, ROOM);
    CHECK_OK(dtl_mem_copy(host, in, ROOM));
    for (i = 0; i < SIZE; i++) CHECK(host[i] == byte_of(number * 8 + from, i));
    for (; i < ROOM; i++) CHECK(host[i] == 0x5A);
    if (direct != pointers) fprintf(stderr, "messages %d: %d device pointers reached MPI, not %d\n", number, direct, pointers);
    CHECK(direct == pointers);
    direct = 0;
}

static dtl_status_t a_while(void *unused) { return (void)unused, usleep(20000), DTL_SUCCESS; }

static void complete(dtl_request_t request) { CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL)); }

/* Each call that takes a message's buffer, round the ring; `is_direct`: their pointers are MPI's. */
static void messages(int is_direct)
{
    const int32_t to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    const int both = 2 * is_direct;
    dtl_message_t message;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_request_t sending, receiving;
    dtl_recv_info_t info;
    int32_t number = 100 + me, other = 0;
    int turn;

    put(1); /* MPI_Irecv, MPI_Isend */
    CHECK_OK(dtl_comm_sendrecv(comm, out, SIZE, to, 1, in, SIZE, from, 1, DTL_DTYPE_BYTE, &info));
    got(1, both);

    put(2); /* MPI_Ssend on one side, MPI_Recv on the other */
    if (me % 2 == 0) CHECK_OK(dtl_comm_ssend(comm, out, SIZE, DTL_DTYPE_BYTE, to, 2));
    CHECK_OK(dtl_comm_recv(comm, in, ROOM, DTL_DTYPE_BYTE, from, 2, &info));
    if (me % 2 != 0) CHECK_OK(dtl_comm_send(comm, out, SIZE, DTL_DTYPE_BYTE, to, 2));
    CHECK(info.size_bytes == SIZE);
    got(2, both);

    put(3);
    CHECK_OK(dtl_comm_irecv(comm, in, ROOM, DTL_DTYPE_BYTE, from, 3, &receiving));
    CHECK_OK(dtl_comm_isend(comm, out, SIZE, DTL_DTYPE_BYTE, to, 3, &sending));
    complete(sending), complete(receiving);
    got(3, both);

    /* MPI_Send_init and MPI_Recv_init see the pointers once. */
    CHECK_OK(dtl_comm_send_init(comm, out, SIZE, DTL_DTYPE_BYTE, to, 4, &sending));
    CHECK_OK(dtl_comm_recv_init(comm, in, ROOM, DTL_DTYPE_BYTE, from, 4, &receiving));
    for (turn = 0; turn < 2; turn++) {
        put(4 + turn);
        CHECK_OK(dtl_request_start(receiving));
        CHECK_OK(dtl_request_start(sending));
        complete(sending), complete(receiving);
        got(4 + turn, turn == 0 ? both : 0);
    }
    CHECK_OK(dtl_request_destroy(sending));
    CHECK_OK(dtl_request_destroy(receiving));

    put(6); /* begins when an event is there */
    CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
    CHECK_OK(dtl_event_create(cuda, 0, &event));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_comm_isend_on(comm, out, SIZE, DTL_DTYPE_BYTE, to, 6, event, &sending));
    CHECK_OK(dtl_comm_recv(comm, in, ROOM, DTL_DTYPE_BYTE, from, 6, &info));
    complete(sending);
    /* The host's memory, too: a receive that would wait inside MPI moves on what only calls begin. */
    CHECK_OK(dtl_comm_isend_on(comm, &number, 1, DTL_DTYPE_INT32, to, 6, event, &sending));
    CHECK_OK(dtl_comm_recv(comm, &other, 1, DTL_DTYPE_INT32, from, 6, &info));
    complete(sending);
    CHECK(other == 100 + from);
    CHECK_OK(dtl_stream_host_callback(stream, a_while, NULL));
    CHECK_OK(dtl_event_record(event, stream));
    if (me == 0) CHECK_OK(dtl_comm_isend_on(comm, &other, 1, DTL_DTYPE_INT32, to, 7, event, &sending));
    if (me == 1) CHECK_OK(dtl_comm_recv(comm, &number, 1, DTL_DTYPE_INT32, 0, 7, &info));
    CHECK_OK(dtl_comm_barrier(comm)); /* and so does a collective */
    if (me == 0) complete(sending);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    got(6, both);

    /* The library itself has to do with the bytes of a message that was probed, and may be cut, ... */
    put(7);
    CHECK_OK(dtl_comm_isend(comm, out, SIZE, DTL_DTYPE_BYTE, to, 7, &sending));
    CHECK_OK(dtl_comm_mprobe(comm, from, 7, &message, &info));
    CHECK_OK(dtl_comm_mrecv(message, in, SIZE, DTL_DTYPE_BYTE, &info));
    complete(sending);
    got(7, is_direct);
    put(8);
    CHECK_OK(dtl_comm_isend(comm, out, SIZE, DTL_DTYPE_BYTE, to, 8, &sending));
    CHECK_OK(dtl_comm_mprobe(comm, from, 8, &message, &info));
    CHECK_STATUS(dtl_comm_mrecv(message, in, SIZE - 9, DTL_DTYPE_BYTE, &info), DTL_ERROR_TRUNCATED);
    complete(sending);
    direct = 0;

    /* ... of one that replaces another, and of collectives. */
    put(9);
    CHECK_OK(dtl_mem_copy(in, out, SIZE));
    CHECK_OK(dtl_comm_sendrecv_replace(comm, in, SIZE, DTL_DTYPE_BYTE, to, 9, from, 9, &info));
    got(9, is_direct);
    put(10);
    CHECK_OK(dtl_comm_bcast(comm, me == 0 ? out : in, SIZE, DTL_DTYPE_BYTE, 0));
    CHECK(direct == 0);
}

static pthread_t program;

static void fold(const void *left, void *right, uint64_t count, dtl_dtype_t dtype, void *user)
{
    uint64_t i;
    (void)dtype, (void)user;
    CHECK(pthread_equal(pthread_self(), program));
    for (i = 0; i < count; i++) ((int32_t *)right)[i] += ((const int32_t *)left)[i];
}

/* A collective on another communicator goes on while this rank waits inside MPI for one who needs it; but not with an operation of
 * the program's, which runs in no thread of the library's. */
static void reductions(void)
{
    static int32_t mine[SIZE], sum[SIZE];
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t near;
    dtl_reduce_op_t own;
    dtl_request_t request;
    int i, is_own;
    desc.kind = "shm";
    CHECK_OK(dtl_comm_open(&desc, &near));
    program = pthread_self();
    CHECK_OK(dtl_op_create(fold, NULL, DTL_OP_COMMUTES, "fold", &own));
    for (is_own = 0; is_own < 2; is_own++) {
        for (i = 0; i < SIZE; i++) mine[i] = me + i;
        CHECK_OK(dtl_comm_barrier(comm));
        if (me == 1) usleep(20000); /* the other one waits inside MPI by then */
        CHECK_OK(dtl_comm_iallreduce(near, mine, sum, SIZE, DTL_DTYPE_INT32, is_own ? own : DTL_OP_SUM, &request));
        if (me == 1 && !is_own) complete(request);
        CHECK_OK(dtl_comm_barrier(comm));
        if (me == 0 || is_own) complete(request);
        for (i = 0; i < SIZE; i++) CHECK(sum[i] == 1 + 2 * i);
    }
    CHECK_OK(dtl_op_destroy(own));
    CHECK_OK(dtl_comm_destroy(near));
}

static void begin(uint64_t kind)
{
    CHECK_OK(dtl_mem_alloc(cuda, kind, ROOM, 0, (void **)&out));
    CHECK_OK(dtl_mem_alloc(cuda, kind, ROOM, 0, (void **)&in));
}

static void end(void)
{
    CHECK_OK(dtl_mem_free(cuda, out));
    CHECK_OK(dtl_mem_free(cuda, in));
}

static void check_explained(const char *said)
{
    static char text[1 << 16];
    uint64_t len;
    CHECK_OK(dtl_explain(text, sizeof text, &len));
    if (strstr(text, said) == NULL) fprintf(stderr, "not \"%s\" in:\n%s\n", said, text);
    CHECK(strstr(text, said) != NULL);
}

int main(int argc, char **argv)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t half;
    unsigned char *first;
    CHECK(argc == 3 && setenv("DTL_CUDA_LIBRARY", argv[2], 1) == 0);
    says_aware = strcmp(argv[1], "says") == 0;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK((host = (unsigned char *)malloc(ROOM)) != NULL);
    desc.kind = "mpi";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_SHARED, 1, 0, (void **)&first)); /* the driver is loaded */
    CHECK((driver = dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD)) != NULL);

    begin(DTL_MEMORY_DEVICE); /* of a pool, which MPIs' processes do not open for each other */
    messages(0);
    end();
    check_explained(says_aware ? "each message as a whole: only memory of kind SHARED that was allocated here goes directly"
                               : "each message as a whole: this kind cannot send one in parts");
    begin(DTL_MEMORY_SHARED);
    messages(says_aware);
    if (says_aware) check_explained("takes memory of CUDA's devices; collectives are staged");

    reductions();

    /* Communicators that are made of it do the same. */
    {
        const dtl_comm_t whole = comm;
        CHECK_OK(dtl_comm_split(whole, me / 2, 0, &half));
        comm = half;
        CHECK_OK(dtl_comm_rank(comm, &me));
        CHECK_OK(dtl_comm_size(comm, &ranks));
        messages(says_aware);
        CHECK_OK(dtl_comm_destroy(half));
        CHECK_OK(dtl_comm_destroy(whole));
    }

    /* Whoever opens it can have all staged; with a time limit messages are the library's own, and so they are. */
    desc.flags = DTL_COMM_STAGE;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    messages(0);
    CHECK_OK(dtl_comm_destroy(comm));
    desc.flags = 0, desc.timeout_ns = UINT64_C(30000000000);
    CHECK_OK(dtl_comm_open(&desc, &comm));
    messages(0);
    CHECK_OK(dtl_comm_destroy(comm));

    end();
    CHECK_OK(dtl_mem_free(cuda, first));
    free(host);
    CHECK_OK(dtl_finalize());
    return 0;
}
