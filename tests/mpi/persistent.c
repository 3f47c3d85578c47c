/* Persistent requests over MPI's own messages are MPI's own: made once, started, ended once. Counted in this
 * program's own MPI functions, which come before the library's as those of a profiler do.
 *     persistent CASE    see the table at the end */
#include "mpi_check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ROUNDS = 20, LONG = 4 << 20 };
#define SECONDS(n) (UINT64_C(1000000000) * (n))
#define FOREVER DTL_TIMEOUT_INFINITE

static atomic_int made, started, ended, ordinary;

#define COUNTED(counter, name, arguments, values) \
    int name arguments                            \
    {                                             \
        counter++;                                \
        return P##name values;                    \
    }
#define SEND (const void *at, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *out)
#define RECV (void *at, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request *out)
#define MESSAGE (at, n, type, peer, tag, comm, out)
COUNTED(made, MPI_Send_init, SEND, MESSAGE)
COUNTED(made, MPI_Recv_init, RECV, MESSAGE)
COUNTED(ordinary, MPI_Isend, SEND, MESSAGE)
COUNTED(ordinary, MPI_Irecv, RECV, MESSAGE)
COUNTED(started, MPI_Start, (MPI_Request *request), (request))
COUNTED(ended, MPI_Request_free, (MPI_Request *request), (request))

static int rank, size, next, before;
static dtl_comm_t comm;

static void begin(const char *level)
{
    init_mpi(NULL, NULL, level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* MPICH 4.0 asks it after a truncation */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    before = (rank + size - 1) % size;
}

static void open_comm(uint64_t timeout_ns)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    desc.timeout_ns = timeout_ns;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    made = started = ended = ordinary = 0;
}

static void end(void)
{
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

/* A ring of messages of these sizes, from a named rank and from any. */
static void ring(int32_t source)
{
    static const uint64_t counts[] = {0, 1, 3000, LONG / 8};
    int64_t *out = malloc(LONG), *in = malloc(LONG);
    CHECK(out != NULL && in != NULL);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint64_t n = counts[i];
        dtl_request_t pair[2];
        dtl_recv_info_t infos[2];
        CHECK_OK(dtl_comm_recv_init(comm, in, n, DTL_DTYPE_INT64, source, 60, &pair[0]));
        CHECK_OK(dtl_comm_send_init(comm, out, n, DTL_DTYPE_INT64, next, 60, &pair[1]));
        for (int round = 0; round < ROUNDS; round++) {
            for (uint64_t at = 0; at < n; at++) out[at] = (int64_t)at * 1000 + rank * 100 + round;
            CHECK_OK(dtl_request_start_all(pair, 2));
            CHECK_OK(dtl_request_wait_all(pair, 2, SECONDS(60), infos));
            CHECK(infos[0].source == before && infos[0].tag == 60 && infos[0].size_bytes == n * 8);
            for (uint64_t at = 0; at < n; at++) CHECK(in[at] == (int64_t)at * 1000 + before * 100 + round);
        }
        CHECK_OK(dtl_request_destroy(pair[0]));
        CHECK_OK(dtl_request_destroy(pair[1]));
    }
    free(out);
    free(in);
}

static void counted(void)
{
    enum { RINGS = 2, SIZES = 4, BOTH = 2 };
    begin("multiple");
    open_comm(0);
    ring(before);
    ring(DTL_ANY_SOURCE);
    CHECK(made == RINGS * SIZES * BOTH && ended == made && started == made * ROUNDS && ordinary == 0);
    CHECK_OK(dtl_comm_destroy(comm));
    /* With a time limit messages are the library's, and none of MPI's requests is persistent. */
    open_comm(SECONDS(60));
    ring(before);
    CHECK(made == 0 && started == 0 && (ordinary > 0 || size == 1));
    end();
}

/* Withdrawn, cut, given up: it rests, and can be started again. */
static void again(void)
{
    int64_t word = -1, sent[2], other = -1;
    dtl_request_t receive, plain, nobody;
    dtl_recv_info_t info;
    begin("multiple");
    sent[0] = rank;
    sent[1] = -1;
    open_comm(0);
    CHECK_OK(dtl_comm_recv_init(comm, &word, 1, DTL_DTYPE_INT64, before, 5, &receive));
    CHECK_STATUS(dtl_request_cancel(receive), DTL_ERROR_INVALID_STATE);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK_OK(dtl_request_start(receive));
        CHECK_STATUS(dtl_request_start(receive), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_request_cancel(receive));
        CHECK_OK(dtl_request_cancel(receive));
        CHECK_STATUS(dtl_request_wait(receive, SECONDS(60), NULL), DTL_ERROR_CANCELED);
        /* Too long a message fails; neither it nor the next is lost. */
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_request_start(receive));
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_comm_send(comm, sent, 2, DTL_DTYPE_INT64, next, 5));
        CHECK_STATUS(dtl_request_wait(receive, SECONDS(60), &info), DTL_ERROR_TRUNCATED);
        CHECK_OK(dtl_request_start(receive));
        CHECK_OK(dtl_comm_send(comm, sent, 1, DTL_DTYPE_INT64, next, 5));
        CHECK_OK(dtl_request_wait(receive, SECONDS(60), &info));
        CHECK(word == before && info.size_bytes == sizeof word);
    }
    /* Open MPI frees one that has failed, so that is made anew. */
    CHECK(made <= 1 + ROUNDS && started == 3 * ROUNDS && ended <= ROUNDS);
    made = ended = 0;
    /* One that is active is withdrawn with its request: the message goes to another receive. */
    CHECK_OK(dtl_request_start(receive));
    CHECK_OK(dtl_request_destroy(receive));
    CHECK(ended == 1);
    CHECK_OK(dtl_comm_barrier(comm)); /* or a quick neighbour's message is taken before */
    CHECK_STATUS(dtl_request_start(receive), DTL_ERROR_INVALID_HANDLE);
    word = -1;
    CHECK_OK(dtl_comm_irecv(comm, &other, 1, DTL_DTYPE_INT64, before, 5, &plain));
    CHECK_OK(dtl_comm_send(comm, sent, 1, DTL_DTYPE_INT64, next, 5));
    CHECK_OK(dtl_request_wait(plain, SECONDS(60), NULL));
    CHECK(other == before && word == -1);
    /* Nobody. */
    made = started = 0;
    CHECK_OK(dtl_comm_send_init(comm, sent, 1, DTL_DTYPE_INT64, DTL_PROC_NULL, 5, &nobody));
    CHECK_OK(dtl_request_start(nobody));
    CHECK_OK(dtl_request_wait(nobody, FOREVER, &info));
    CHECK(info.source == DTL_PROC_NULL && made == 0 && started == 0);
    CHECK_OK(dtl_request_destroy(nobody));
    end();
}

/* A send that MPI has begun is not given back. */
static void begun(void)
{
    char *out = calloc(1, LONG), *in = calloc(1, LONG);
    dtl_request_t send, resting, active;
    int32_t done = 1;
    CHECK(out != NULL && in != NULL);
    begin("multiple");
    open_comm(0);
    memset(out, rank + 1, LONG);
    CHECK_OK(dtl_comm_send_init(comm, out, LONG, DTL_DTYPE_BYTE, next, 6, &send));
    CHECK_OK(dtl_request_start(send));
    CHECK_OK(dtl_request_test(send, &done, NULL));
    CHECK(!done);
    CHECK_STATUS(dtl_request_cancel(send), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_request_destroy(send), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_comm_destroy(comm), DTL_ERROR_NOT_SUPPORTED);
    CHECK(ended == 0);
    /* A rank that received earlier would complete the send of a slow neighbour, whose calls above would succeed. */
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK_OK(dtl_comm_recv(comm, in, LONG, DTL_DTYPE_BYTE, before, 6, NULL));
    CHECK(in[0] == before + 1 && in[LONG - 1] == before + 1);
    CHECK_OK(dtl_request_wait(send, SECONDS(60), NULL));
    /* A communicator ends with its requests. */
    CHECK_OK(dtl_comm_recv_init(comm, in, 1, DTL_DTYPE_BYTE, before, 7, &resting));
    CHECK_OK(dtl_comm_recv_init(comm, in, 1, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 8, &active));
    CHECK_OK(dtl_request_start(active));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(made == 3 && ended == 3);
    CHECK_STATUS(dtl_request_start(resting), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_wait(active, FOREVER, NULL), DTL_ERROR_INVALID_HANDLE);
    free(out);
    free(in);
    end();
}

/* MPI ends first: nothing of it is called any more. */
static void mpi_ends_first(void)
{
    int64_t word = 0;
    dtl_request_t resting, active;
    begin("multiple");
    open_comm(0);
    CHECK_OK(dtl_comm_send_init(comm, &word, 1, DTL_DTYPE_INT64, next, 1, &resting));
    CHECK_OK(dtl_comm_recv_init(comm, &word, 1, DTL_DTYPE_INT64, before, 1, &active));
    CHECK_OK(dtl_request_start(active));
    CHECK_OK(dtl_comm_barrier(comm));
    MPI_Finalize();
    CHECK_STATUS(dtl_request_start(resting), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is finalised");
    CHECK_STATUS(dtl_request_wait(active, FOREVER, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_request_destroy(active));
    CHECK_OK(dtl_request_destroy(resting));
    CHECK_STATUS(dtl_comm_send_init(comm, &word, 1, DTL_DTYPE_INT64, next, 1, &resting), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
    CHECK(made == 2 && started == 1 && ended == 0);
}

static void *end_it(void *request)
{
    CHECK_STATUS(dtl_request_start(*(dtl_request_t *)request), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_request_destroy(*(dtl_request_t *)request));
    return NULL;
}

/* A thread that may not call MPI has done with one: the one that may ends it. */
static void funneled(void)
{
    int64_t word = 0;
    dtl_request_t request;
    pthread_t thread;
    int level;
    begin("funneled");
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_FUNNELED) {
        printf("skipped: this MPI gives a higher thread level than it was asked for\n");
        MPI_Finalize();
        return;
    }
    open_comm(0);
    CHECK_OK(dtl_comm_recv_init(comm, &word, 1, DTL_DTYPE_INT64, before, 1, &request));
    CHECK(pthread_create(&thread, NULL, end_it, &request) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(ended == 0);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(ended == 1);
    end();
}

static void *exchange(void *number)
{
    const int32_t tag = *(int32_t *)number;
    dtl_request_t pair[2], unmatched;
    int64_t out = 0, in = -1;
    CHECK_OK(dtl_comm_recv_init(comm, &in, 1, DTL_DTYPE_INT64, before, tag, &pair[0]));
    CHECK_OK(dtl_comm_send_init(comm, &out, 1, DTL_DTYPE_INT64, next, tag, &pair[1]));
    CHECK_OK(dtl_comm_recv_init(comm, &in, 1, DTL_DTYPE_INT64, before, 9, &unmatched));
    for (int round = 0; round < 10 * ROUNDS; round++) {
        out = round * 10 + tag;
        CHECK_OK(dtl_request_start_all(pair, 2));
        CHECK_OK(dtl_request_wait_all(pair, 2, SECONDS(60), NULL));
        CHECK(in == out);
        if (round % ROUNDS == 0) { /* and one that is withdrawn, between those of the others */
            CHECK_OK(dtl_request_start(unmatched));
            CHECK_OK(dtl_request_cancel(unmatched));
            CHECK_STATUS(dtl_request_wait(unmatched, SECONDS(60), NULL), DTL_ERROR_CANCELED);
        }
    }
    CHECK_OK(dtl_request_destroy(pair[0]));
    CHECK_OK(dtl_request_destroy(pair[1]));
    CHECK_OK(dtl_request_destroy(unmatched));
    return NULL;
}

static void threads(void)
{
    int32_t tags[2] = {1, 2};
    pthread_t thread;
    begin("multiple");
    open_comm(0);
    CHECK(pthread_create(&thread, NULL, exchange, &tags[0]) == 0);
    exchange(&tags[1]);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(made == 6 && ended == 6);
    end();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"counted", counted},   {"again", again},       {"begun", begun}, {"mpi-ends-first", mpi_ends_first},
                 {"funneled", funneled}, {"threads", threads}};
    CHECK(argc == 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 1;
}
