/* Opening and closing. The ranks connect over TCP (meet.h), exchange their addresses there, and each sends a
 * message to each over the fabric, so that every pair is connected when the communicator is open. The TCP
 * connections stay: they detect deaths. */
#define _GNU_SOURCE
#include "libfabric.h"

#include "../tcp/meet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { LEAVE_MS = 5000, STEP_MS = 1 };

/* What a rank sends to all others, over TCP, at each step of opening. No gaps: all bytes travel. */
typedef struct lf_record_t {
    uint64_t caps;
    uint64_t address_bytes;
    int32_t status; /* of the step on this rank */
    char text[236]; /* of a failure */
    char provider[LF_NAME_BYTES];
    unsigned char address[LF_ADDRESS_BYTES];
} lf_record_t;
_Static_assert(sizeof(lf_record_t) == 20 + 236 + LF_NAME_BYTES + LF_ADDRESS_BYTES, "lf_record_t has a gap");

/* ---- exchange of records ---- */

/* Appends a number to a list in a text. */
static void add_rank(char *text, size_t size, int32_t rank)
{
    const size_t used = strlen(text);
    if (used + 12 < size) {
        snprintf(text + used, size - used, "%s%d", used == 0 ? "" : ", ", (int)rank);
    }
}

/* Waits for a record; meanwhile messages over the fabric move on. Not before all addresses are in the table:
 * provider shm would give a rank whose message is there the next place in it, whatever its rank. */
static int get_record(lf_comm_t *comm, int32_t rank, lf_record_t *record, uint64_t deadline)
{
    dtl_status_t status = DTL_SUCCESS;
    int error;
    do {
        const uint64_t soon = net_now_ms() + STEP_MS;
        error = net_ready(comm->peers[rank].socket, POLLIN, soon < deadline ? soon : deadline);
        if (comm->has_addresses) {
            (void)lf_poll_queue(comm, &status);
        }
    } while (error == ETIMEDOUT && net_now_ms() < deadline && status == DTL_SUCCESS);
    return error == 0 ? net_get(comm->peers[rank].socket, record, sizeof *record, deadline) : error;
}

static int put_record(lf_comm_t *comm, int32_t rank, const lf_record_t *record, uint64_t deadline)
{
    return net_put(comm->peers[rank].socket, record, sizeof *record, deadline);
}

/* Turns the status of a step on this rank into a record. */
static void note(lf_record_t *record, dtl_status_t status)
{
    record->status = status;
    if (status != DTL_SUCCESS) {
        snprintf(record->text, sizeof record->text, "%.235s", lf_last_text());
    }
}

/* Exchanges the records of all ranks; fails on every rank if the step failed on one. `all` is NULL or has a place
 * for each rank. */
static dtl_status_t exchange(lf_comm_t *comm, const lf_record_t *mine, lf_record_t *all, uint64_t deadline,
                             const char *step)
{
    char missing[96] = "";
    dtl_status_t status = mine->status;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (rank != comm->rank) {
            (void)put_record(comm, rank, mine, deadline); /* a failure shows when its record does not come */
        }
    }
    for (int32_t rank = 0; rank < comm->size; rank++) {
        lf_record_t record = *mine;
        const int error = rank == comm->rank ? 0 : get_record(comm, rank, &record, deadline);
        if (error == ETIMEDOUT) {
            add_rank(missing, sizeof missing, rank);
        } else if (error != 0 && status == DTL_SUCCESS) {
            status = lf_fail(DTL_ERROR_RANK_FAILURE, "rank %d left while rank %d waited for its %s: %s", (int)rank,
                             (int)comm->rank, step, strerror(error));
        } else if (error == 0 && record.status != DTL_SUCCESS && status == DTL_SUCCESS) {
            record.text[sizeof record.text - 1] = '\0';
            status = lf_fail(record.status, "rank %d: %s", (int)rank, record.text);
        }
        if (all != NULL) {
            all[rank] = record;
        }
    }
    if (status == DTL_SUCCESS && missing[0] != '\0') {
        status = lf_fail(DTL_ERROR_TIMEOUT, "rank %d timed out waiting for the %s of rank(s) %s", (int)comm->rank, step,
                         missing);
    }
    return status;
}

/* ---- opening ---- */

/* Rank 0 chooses the provider for all. */
static dtl_status_t agree(lf_comm_t *comm, lf_choice_t *choice, uint64_t deadline)
{
    lf_record_t record = {0};
    if (comm->rank == 0) {
        const dtl_status_t status = lf_choose(choice);
        note(&record, status);
        memcpy(record.provider, choice->provider, sizeof record.provider);
        record.caps = choice->caps;
        for (int32_t rank = 1; rank < comm->size; rank++) {
            (void)put_record(comm, rank, &record, deadline);
        }
        return status;
    }
    const int error = get_record(comm, 0, &record, deadline);
    if (error != 0) {
        return lf_fail(error == ETIMEDOUT ? DTL_ERROR_TIMEOUT : DTL_ERROR_RANK_FAILURE,
                       "rank %d waited for the choice of a provider by rank 0: %s", (int)comm->rank, strerror(error));
    }
    record.text[sizeof record.text - 1] = record.provider[sizeof record.provider - 1] = '\0';
    if (record.status != DTL_SUCCESS) {
        return lf_fail(record.status, "rank 0: %s", record.text);
    }
    memcpy(choice->provider, record.provider, sizeof choice->provider);
    choice->caps = record.caps;
    return DTL_SUCCESS;
}

static dtl_status_t insert_addresses(lf_comm_t *comm, const lf_record_t *all)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        const int count = fi_av_insert(comm->av, all[rank].address, 1, &comm->peers[rank].address, 0, NULL);
        if (count != 1) {
            return lf_fail(DTL_ERROR_COMMUNICATION, "rank %d cannot use the address of rank %d%s%s", (int)comm->rank,
                           (int)rank, count < 0 ? ": " : "", count < 0 ? lf_text(count) : "");
        }
    }
    comm->has_addresses = 1;
    return DTL_SUCCESS;
}

/* Opens the endpoint, and exchanges the addresses. */
static dtl_status_t open_endpoint(lf_comm_t *comm, uint64_t deadline)
{
    lf_choice_t choice = {0};
    lf_record_t mine = {0};
    size_t bytes = sizeof mine.address;
    const int socket = comm->size > 1 ? comm->peers[comm->rank == 0 ? 1 : 0].socket : -1;
    dtl_status_t status = agree(comm, &choice, deadline);
    if (status != DTL_SUCCESS) {
        return status;
    }
    lf_record_t *all = calloc((size_t)comm->size, sizeof *all);
    status = all == NULL ? DTL_ERROR_OUT_OF_MEMORY : lf_endpoint_open(comm, &choice, socket, mine.address, &bytes);
    note(&mine, status);
    mine.address_bytes = bytes;
    status = exchange(comm, &mine, all, deadline, "address");
    mine.status = DTL_SUCCESS;
    if (status == DTL_SUCCESS) {
        status = insert_addresses(comm, all);
    }
    free(all);
    return status;
}

static dtl_status_t own_message(lf_comm_t *comm, lf_kind_t kind, int32_t peer, uint64_t word, uint64_t deadline)
{
    dtl_status_t status = DTL_SUCCESS;
    lf_op_t *op = lf_new_op(comm, kind, peer);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->is_own = 1;
    op->match_word = word;
    for (;;) {
        const ssize_t error = kind == LF_SEND ? lf_post_send(comm, op, NULL, 0, LF_CONTROL)
                                              : lf_post_receive(comm, op, NULL, 0, LF_CONTROL);
        if (error == 0) {
            return DTL_SUCCESS;
        }
        if (error != -FI_EAGAIN || net_now_ms() >= deadline || status != DTL_SUCCESS ||
            (peer >= 0 && comm->peers[peer].is_gone)) {
            lf_drop_op(comm, op);
            return status != DTL_SUCCESS ? status
                                         : lf_fail(error == -FI_EAGAIN ? DTL_ERROR_TIMEOUT : DTL_ERROR_COMMUNICATION,
                                                   "rank %d cannot send to rank %d over the fabric: %s",
                                                   (int)comm->rank, (int)peer, lf_text((int)error));
        }
        if (!lf_poll_queue(comm, &status) && comm->poll >= 0) {
            lf_look_at_peers(comm, net_now_ms()); /* this rank may have left */
        }
    }
}

static int has_own_messages(const lf_comm_t *comm)
{
    for (const lf_op_t *op = comm->active; op != NULL; op = op->next) {
        if (op->is_own) {
            return 1;
        }
    }
    return 0;
}

static void pause_shortly(void)
{
    const struct timespec moment = {0, 20000};
    nanosleep(&moment, NULL);
}

/* A message from each rank to each. `has_all` of a rank is set when its message is here. */
static dtl_status_t connect_fabric(lf_comm_t *comm, uint64_t deadline)
{
    dtl_status_t status = DTL_SUCCESS;
    char missing[96] = "";
    for (int32_t rank = 0; rank < comm->size && status == DTL_SUCCESS; rank++) {
        status = own_message(comm, LF_RECEIVE, rank, LF_HELLO, deadline);
    }
    for (int32_t i = 0; i < comm->size && status == DTL_SUCCESS; i++) {
        status = own_message(comm, LF_SEND, (comm->rank + i) % comm->size, LF_HELLO, deadline);
    }
    while (status == DTL_SUCCESS && has_own_messages(comm) && net_now_ms() < deadline) {
        if (!lf_poll_queue(comm, &status)) {
            pause_shortly();
        }
    }
    for (int32_t rank = 0; rank < comm->size && status == DTL_SUCCESS; rank++) {
        if (!comm->peers[rank].has_all) {
            add_rank(missing, sizeof missing, rank);
        }
        comm->peers[rank].has_all = 0;
    }
    if (status == DTL_SUCCESS && missing[0] != '\0') {
        const char *provider = comm->info->fabric_attr->prov_name;
        status = lf_fail(DTL_ERROR_TIMEOUT, "rank %d received nothing over provider %s from rank(s) %s; does a firewall "
                         "or a wrong interface separate them?", (int)comm->rank, provider, missing);
    }
    return status;
}

static dtl_status_t watch_peers(lf_comm_t *comm)
{
    comm->poll = epoll_create1(EPOLL_CLOEXEC);
    if (comm->poll < 0) {
        return lf_fail(DTL_ERROR_COMMUNICATION, "epoll_create1: %s", strerror(errno));
    }
    for (int32_t rank = 0; rank < comm->size; rank++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.u32 = (uint32_t)rank;
        if (rank != comm->rank && epoll_ctl(comm->poll, EPOLL_CTL_ADD, comm->peers[rank].socket, &event) != 0) {
            return lf_fail(DTL_ERROR_COMMUNICATION, "epoll_ctl: %s", strerror(errno));
        }
    }
    return DTL_SUCCESS;
}

static dtl_status_t failed_to_meet(dtl_status_t status, const char *text)
{
    return lf_fail(status, "%s", text);
}

static dtl_status_t meet_others(lf_comm_t *comm, const dtl_comm_open_t *args)
{
    meet_t with = {"DTL_BACKEND_LIBFABRIC_ROOT", args->job, comm->rank, comm->size, args->timeout_ns, NULL,
                   failed_to_meet};
    if (comm->size > 1 && args->job[0] == '\0' && getenv(with.variable) == NULL) {
        return lf_fail(DTL_ERROR_INVALID_ARGUMENT, "%d ranks need a job name (start them with dtlrun, or set desc.job) "
                       "or %s=host:port", (int)comm->size, with.variable);
    }
    with.sockets = malloc((size_t)comm->size * sizeof *with.sockets);
    if (with.sockets == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    const dtl_status_t status = meet(&with);
    for (int32_t rank = 0; rank < comm->size && status == DTL_SUCCESS; rank++) {
        comm->peers[rank].socket = with.sockets[rank];
    }
    free(with.sockets);
    return status;
}

static dtl_status_t open_comm(lf_comm_t *comm, const dtl_comm_open_t *args)
{
    const uint64_t deadline = net_now_ms() + args->timeout_ns / 1000000 + 1;
    lf_record_t mine = {0};
    dtl_status_t status = meet_others(comm, args);
    if (status != DTL_SUCCESS) {
        return status;
    }
    status = open_endpoint(comm, deadline);
    if (status != DTL_SUCCESS) {
        return status;
    }
    status = connect_fabric(comm, deadline);
    if (status == DTL_SUCCESS) {
        status = own_message(comm, LF_RECEIVE, DTL_ANY_SOURCE, LF_BYE, deadline);
    }
    if (status == DTL_SUCCESS) {
        status = watch_peers(comm);
    }
    note(&mine, status);
    return exchange(comm, &mine, NULL, deadline + LEAVE_MS, "confirmation");
}

static void free_ops(lf_op_t *op)
{
    while (op != NULL) {
        lf_op_t *next = op->next;
        free(op);
        op = next;
    }
}

static void free_comm(lf_comm_t *comm)
{
    lf_endpoint_close(comm);
    for (int32_t rank = 0; rank < comm->size && comm->peers != NULL; rank++) {
        if (comm->peers[rank].socket >= 0) {
            close(comm->peers[rank].socket);
        }
    }
    if (comm->poll >= 0) {
        close(comm->poll);
    }
    free_ops(comm->active); /* the endpoint that had them is closed */
    free_ops(comm->unused);
    free(comm->peers);
    free(comm);
}

dtl_status_t lf_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank, int32_t *out_size)
{
    lf_comm_t *comm = calloc(1, sizeof *comm);
    (void)self;
    if (comm == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    comm->rank = args->size > 0 ? args->rank : 0; /* without a launcher this process is the only rank */
    comm->size = args->size > 0 ? args->size : 1;
    comm->poll = -1;
    comm->active_end = &comm->active;
    comm->peers = calloc((size_t)comm->size, sizeof *comm->peers);
    for (int32_t rank = 0; rank < comm->size && comm->peers != NULL; rank++) {
        comm->peers[rank].socket = -1;
    }
    const dtl_status_t status = comm->peers == NULL ? DTL_ERROR_OUT_OF_MEMORY : open_comm(comm, args);
    if (status != DTL_SUCCESS) {
        free_comm(comm);
        return status;
    }
    *out_comm = comm;
    *out_rank = comm->rank;
    *out_size = comm->size;
    return DTL_SUCCESS;
}

/* ---- closing ---- */

/* Whether every rank has received the messages of this one, or is gone. */
static int is_settled(const lf_comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (rank != comm->rank && !comm->peers[rank].is_gone && !comm->peers[rank].has_all) {
            return 0;
        }
    }
    return 1;
}

/* Sends a last message to every rank: messages are ordered, so a rank that confirms it has all earlier ones. */
dtl_status_t lf_close(void *self, void *comm_)
{
    lf_comm_t *comm = comm_;
    const uint64_t deadline = net_now_ms() + LEAVE_MS;
    (void)self;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (rank != comm->rank && !comm->peers[rank].is_gone) {
            (void)own_message(comm, LF_SEND, rank, LF_BYE, deadline);
        }
    }
    while (!is_settled(comm) && net_now_ms() < deadline) {
        dtl_status_t status = DTL_SUCCESS;
        if (!lf_poll_queue(comm, &status)) {
            lf_look_at_peers(comm, net_now_ms());
            pause_shortly();
        }
        if (status != DTL_SUCCESS) {
            break;
        }
    }
    free_comm(comm);
    return DTL_SUCCESS;
}
