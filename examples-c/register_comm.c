/* register_comm: a communicator of the program's own from five functions: open, close, isend,
 * irecv, test. The library makes send, recv and every collective out of them.
 *
 * The ranks are threads of this process; each has a mailbox with two lists, both in the order of
 * arrival: messages that nobody has asked for yet, and receives that nothing has come for yet.
 *
 * Build: cc register_comm.c $(pkg-config --cflags --libs libdtl) -pthread -o register_comm
 * Run:   ./register_comm
 * Prints a line for each operation that was checked on all ranks, then "correct".
 */
#include <dtl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

/* ---- the transport ---- */

typedef struct message_t {
    struct message_t *next;
    int32_t source;
    uint64_t match_word, size_bytes;
    char bytes[];
} message_t;

typedef struct operation_t { /* its address is the operation's word */
    struct operation_t *next;
    void *buf;
    uint64_t capacity;
    int32_t source;
    uint64_t match_word, ignore;
    int32_t done;
    dtl_comm_done_t result;
} operation_t;

typedef struct mailbox_t {
    pthread_mutex_t lock; /* held only to look through the lists and copy one message */
    int32_t rank;
    message_t *messages;
    operation_t *receives;
} mailbox_t;

typedef struct job_t { /* `self` of the slots */
    mailbox_t mailboxes[RANKS];
} job_t;

static int wants(const operation_t *receive, int32_t source, uint64_t match_word)
{
    return (receive->source == source || receive->source == DTL_ANY_SOURCE) &&
           ((receive->match_word ^ match_word) & ~receive->ignore) == 0;
}

static void deliver(operation_t *receive, int32_t source, uint64_t match_word, const void *bytes,
                    uint64_t size_bytes)
{
    const uint64_t fits = size_bytes < receive->capacity ? size_bytes : receive->capacity;
    if (fits > 0) {
        memcpy(receive->buf, bytes, fits);
    }
    receive->result.source = source;
    receive->result.match_word = match_word;
    receive->result.size_bytes = size_bytes; /* the true size, also when it did not fit */
    receive->result.status = fits < size_bytes ? DTL_ERROR_TRUNCATED : DTL_SUCCESS;
    receive->done = 1;
}

static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    job_t *job = self;
    if (args->size != RANKS || args->rank < 0 || args->rank >= RANKS) {
        DTL_IGNORE(dtl_backend_set_error("set rank and size of dtl_comm_desc_t: there are 4 ranks"));
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    *out_comm = &job->mailboxes[args->rank];
    *out_rank = args->rank;
    *out_size = RANKS;
    return DTL_SUCCESS;
}

static dtl_status_t comm_close(void *self, void *comm)
{
    (void)self, (void)comm; /* the mailboxes go with the job: others may still send here */
    return DTL_SUCCESS;
}

/* Into the oldest receive that wants it, else into the mailbox. Either way the send is then done:
 * its buffer has been read. */
static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)
{
    job_t *job = self;
    const int32_t source = ((const mailbox_t *)comm)->rank;
    mailbox_t *to = &job->mailboxes[dest];
    operation_t *send = calloc(1, sizeof *send);
    message_t *message = malloc(sizeof *message + size_bytes);
    if (send == NULL || message == NULL) {
        free(send);
        free(message);
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&to->lock);
    operation_t **receive = &to->receives;
    while (*receive != NULL && !wants(*receive, source, match_word)) {
        receive = &(*receive)->next;
    }
    if (*receive != NULL) {
        operation_t *found = *receive;
        *receive = found->next;
        deliver(found, source, match_word, buf, size_bytes);
        free(message);
    } else {
        message_t **last = &to->messages;
        while (*last != NULL) {
            last = &(*last)->next;
        }
        *message = (message_t){NULL, source, match_word, size_bytes};
        if (size_bytes > 0) {
            memcpy(message->bytes, buf, size_bytes);
        }
        *last = message;
    }
    pthread_mutex_unlock(&to->lock);
    send->done = 1; /* result: zero, DTL_SUCCESS */
    *out_op = (uint64_t)(uintptr_t)send;
    return DTL_SUCCESS;
}

/* Takes the oldest message that it wants, else waits in the mailbox. */
static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    mailbox_t *me = comm;
    operation_t *receive = calloc(1, sizeof *receive);
    (void)self;
    if (receive == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    *receive = (operation_t){
        .buf = buf, .capacity = size_bytes, .source = source, .match_word = match_word, .ignore = ignore};
    pthread_mutex_lock(&me->lock);
    message_t **message = &me->messages;
    while (*message != NULL && !wants(receive, (*message)->source, (*message)->match_word)) {
        message = &(*message)->next;
    }
    if (*message != NULL) {
        message_t *found = *message;
        *message = found->next;
        deliver(receive, found->source, found->match_word, found->bytes, found->size_bytes);
        free(found);
    } else {
        operation_t **last = &me->receives;
        while (*last != NULL) {
            last = &(*last)->next;
        }
        *last = receive;
    }
    pthread_mutex_unlock(&me->lock);
    *out_op = (uint64_t)(uintptr_t)receive;
    return DTL_SUCCESS;
}

static dtl_status_t comm_test(void *self, void *comm, uint64_t op, int32_t *out_done,
                              dtl_comm_done_t *out_result)
{
    mailbox_t *me = comm;
    operation_t *operation = (operation_t *)(uintptr_t)op;
    (void)self;
    pthread_mutex_lock(&me->lock); /* a sender may be completing it */
    *out_done = operation->done;
    pthread_mutex_unlock(&me->lock);
    if (*out_done) {
        *out_result = operation->result;
        free(operation);
    }
    return DTL_SUCCESS;
}

static void job_start(job_t *job)
{
    memset(job, 0, sizeof *job);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        job->mailboxes[rank].rank = rank;
        pthread_mutex_init(&job->mailboxes[rank].lock, NULL);
    }
}

static void job_destroy(void *self)
{ /* the table's `destroy` */
    job_t *job = self;
    for (int32_t rank = 0; rank < RANKS; rank++) {
        for (message_t *message = job->mailboxes[rank].messages; message != NULL;) {
            message_t *next = message->next;
            free(message);
            message = next;
        }
        pthread_mutex_destroy(&job->mailboxes[rank].lock);
    }
}

static dtl_backend_t register_mailboxes(job_t *job)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    comm.open = comm_open;
    comm.close = comm_close;
    comm.isend = comm_isend;
    comm.irecv = comm_irecv;
    comm.test = comm_test;
    table.comm = &comm;
    table.destroy = job_destroy;
    DTL_CHECK(dtl_backend_register("mailbox", &table, job, 0, &backend));
    return backend;
}

/* ---- what the library makes of it: each function runs on every rank and says whether it was right ---- */

static int check_send_recv(dtl_comm_t comm, int32_t rank)
{
    const int32_t next = (rank + 1) % RANKS, previous = (rank + RANKS - 1) % RANKS;
    double there = rank, back = -1;
    DTL_CHECK(dtl_comm_sendrecv(comm, &there, 1, next, 7, &back, 1, previous, 7, DTL_DTYPE_FLOAT64, NULL));
    return back == previous;
}

/* Rank 0 receives from anybody, first one tag and then the other: sent the other way round. */
static int check_any_source(dtl_comm_t comm, int32_t rank)
{
    int good = 1;
    if (rank != 0) {
        const int32_t early = 10 * rank, late = 100 * rank;
        DTL_CHECK(dtl_comm_send(comm, &early, 1, DTL_DTYPE_INT32, 0, 1));
        DTL_CHECK(dtl_comm_send(comm, &late, 1, DTL_DTYPE_INT32, 0, 2));
        return good;
    }
    for (int32_t tag = 2; tag >= 1; tag--) {
        for (int32_t i = 1; i < RANKS; i++) {
            int32_t value = 0;
            dtl_recv_info_t info;
            DTL_CHECK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, tag, &info));
            good &= value == (tag == 2 ? 100 : 10) * info.source && info.tag == tag;
        }
    }
    return good;
}

/* Messages of one sender under any tag come in the order sent; receives are served in the order posted. */
static int check_order(dtl_comm_t comm, int32_t rank)
{
    enum { MESSAGES = 8 };
    int32_t sent[MESSAGES], got[MESSAGES];
    dtl_request_t requests[2 * MESSAGES];
    dtl_recv_info_t infos[2 * MESSAGES];
    int good = 1;
    for (int32_t i = 0; i < MESSAGES; i++) {
        sent[i] = 1000 * rank + i;
        DTL_CHECK(
            dtl_comm_irecv(comm, &got[i], 1, DTL_DTYPE_INT32, RANKS - 1 - rank, DTL_ANY_TAG, &requests[i]));
    }
    for (int32_t i = 0; i < MESSAGES; i++) {
        DTL_CHECK(dtl_comm_isend(comm, &sent[i], 1, DTL_DTYPE_INT32, RANKS - 1 - rank, 50 + i,
                                 &requests[MESSAGES + i]));
    }
    DTL_CHECK(dtl_request_wait_all(requests, 2 * MESSAGES, DTL_TIMEOUT_INFINITE, infos));
    for (int32_t i = 0; i < MESSAGES; i++) {
        good &= got[i] == 1000 * (RANKS - 1 - rank) + i && infos[i].tag == 50 + i;
    }
    return good;
}

static int check_truncation(dtl_comm_t comm, int32_t rank)
{
    const int32_t pair[2] = {rank, rank + 1};
    int32_t one = -1;
    dtl_recv_info_t info;
    dtl_request_t send;
    DTL_CHECK(dtl_comm_isend(comm, pair, 2, DTL_DTYPE_INT32, rank, 3, &send));
    const dtl_status_t status = dtl_comm_recv(comm, &one, 1, DTL_DTYPE_INT32, rank, 3, &info);
    DTL_CHECK(dtl_request_wait(send, DTL_TIMEOUT_INFINITE, NULL));
    return status == DTL_ERROR_TRUNCATED && one == rank && info.size_bytes == sizeof pair;
}

static int check_bcast(dtl_comm_t comm, int32_t rank)
{
    int64_t values[3] = {0, 0, 0};
    if (rank == 2) {
        values[0] = 3, values[1] = 1, values[2] = 4;
    }
    DTL_CHECK(dtl_comm_barrier(comm));
    DTL_CHECK(dtl_comm_bcast(comm, values, 3, DTL_DTYPE_INT64, 2));
    return values[0] == 3 && values[1] == 1 && values[2] == 4;
}

static int check_reduce(dtl_comm_t comm, int32_t rank)
{
    const double mine[2] = {rank, -rank};
    double sum[2] = {0, 0}, most[2] = {0, 0};
    DTL_CHECK(dtl_comm_reduce(comm, mine, sum, 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM, 1));
    DTL_CHECK(dtl_comm_allreduce(comm, mine, most, 2, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
    const double total = RANKS * (RANKS - 1) / 2.0;
    return (rank != 1 || (sum[0] == total && sum[1] == -total)) && most[0] == RANKS - 1 && most[1] == 0;
}

static int check_gather_scatter(dtl_comm_t comm, int32_t rank)
{
    const int32_t mine[2] = {rank, rank * rank};
    int32_t all[2 * RANKS] = {0}, back[2] = {-1, -1}, everywhere[2 * RANKS] = {0};
    int good = 1;
    DTL_CHECK(dtl_comm_gather(comm, mine, 2, all, DTL_DTYPE_INT32, 3));
    DTL_CHECK(dtl_comm_scatter(comm, all, 2, back, DTL_DTYPE_INT32, 3));
    DTL_CHECK(dtl_comm_allgather(comm, mine, 2, everywhere, DTL_DTYPE_INT32));
    for (int32_t i = 0; i < RANKS; i++) {
        good &= everywhere[2 * i] == i && everywhere[2 * i + 1] == i * i;
        good &= rank != 3 || (all[2 * i] == i && all[2 * i + 1] == i * i);
    }
    return good && back[0] == mine[0] && back[1] == mine[1];
}

static int check_alltoall(dtl_comm_t comm, int32_t rank)
{
    int32_t there[RANKS], back[RANKS];
    int good = 1;
    for (int32_t i = 0; i < RANKS; i++) {
        there[i] = 10 * rank + i;
        back[i] = -1;
    }
    DTL_CHECK(dtl_comm_alltoall(comm, there, 1, back, DTL_DTYPE_INT32));
    for (int32_t i = 0; i < RANKS; i++) {
        good &= back[i] == 10 * i + rank;
    }
    return good;
}

static const struct {
    const char *name;
    int (*check)(dtl_comm_t comm, int32_t rank);
} checks[] = {
    {"sendrecv", check_send_recv},
    {"recv from any source", check_any_source},
    {"isend, irecv, wait_all in order", check_order},
    {"truncation", check_truncation},
    {"barrier, bcast", check_bcast},
    {"reduce, allreduce", check_reduce},
    {"gather, scatter, allgather", check_gather_scatter},
    {"alltoall", check_alltoall},
};

/* One thread: its rank is its argument, its result whether everything was right on all ranks. */
static void *rank_main(void *argument)
{
    int32_t *rank = argument;
    int32_t all_good = 1;
    dtl_comm_t comm;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mailbox";
    desc.rank = *rank;
    desc.size = RANKS;
    DTL_CHECK(dtl_comm_open(&desc, &comm));
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const int32_t good = checks[i].check(comm, *rank);
        int32_t together = 0;
        DTL_CHECK(dtl_comm_allreduce(comm, &good, &together, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
        all_good &= together;
        if (*rank == 0) {
            printf("%-32s %s\n", checks[i].name, together ? "right" : "WRONG");
        }
    }
    DTL_CHECK(dtl_comm_destroy(comm));
    *rank = all_good;
    return NULL;
}

int main(void)
{
    job_t job;
    pthread_t threads[RANKS];
    int32_t ranks[RANKS]; /* in: the rank; out: whether all was right */
    int good = 1;
    job_start(&job);
    DTL_CHECK(dtl_init(NULL));
    const dtl_backend_t backend = register_mailboxes(&job);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        ranks[rank] = rank;
        if (pthread_create(&threads[rank], NULL, rank_main, &ranks[rank]) != 0) {
            fprintf(stderr, "register_comm: no thread for rank %d\n", (int)rank);
            return 1;
        }
    }
    for (int32_t rank = 0; rank < RANKS; rank++) {
        good &= pthread_join(threads[rank], NULL) == 0 && ranks[rank];
    }
    DTL_CHECK(dtl_backend_unregister(backend));
    DTL_CHECK(dtl_finalize());
    if (good) {
        printf("correct\n");
    }
    return good ? 0 : 1;
}
