/* Ranks that are gone. The end of a control connection shows the death of a process: providers detect it late
 * or, if no operation needs the rank, not at all. */
#define _GNU_SOURCE
#include "libfabric.h"

#include "../tcp/meet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    EVENTS = 64,
    DRAIN_POLLS = 64, /* empty ones, after which nothing of a dead rank is left in the network */
    SWEEP_AFTER_MS = 200
};

int lf_is_loss(int error)
{
    switch (error) {
    case FI_EIO:
    case FI_ECANCELED: /* not by this plugin: the connection has ended */
    case FI_ECONNABORTED:
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_EHOSTDOWN:
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_ENOTCONN:
    case EPIPE:
    case FI_ESHUTDOWN:
    case FI_ETIMEDOUT:
    case ESRCH: /* of shm */
        return 1;
    default:
        return 0;
    }
}

/* Each death is reported to the library by one receive from any source: the oldest posted one, or the next one. */
void lf_report_to_any_source(lf_comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size && comm->unreported > 0; rank++) {
        lf_op_t *op = comm->peers[rank].is_unreported ? comm->active : NULL;
        while (op != NULL && (op->kind != LF_RECEIVE || op->peer != DTL_ANY_SOURCE || op->is_own || op->done ||
                              op->is_canceling)) {
            op = op->next;
        }
        if (op != NULL) {
            op->lost = rank;
            op->is_canceling = 1;
            comm->peers[rank].is_unreported = 0;
            comm->unreported--;
            (void)fi_cancel(&comm->ep->fid, &op->context);
        }
    }
}

/* Receives the messages that the rank had sent completely. */
static void drain(lf_comm_t *comm)
{
    dtl_status_t status = DTL_SUCCESS;
    for (int empty = 0; empty < DRAIN_POLLS && status == DTL_SUCCESS; empty++) {
        if (lf_poll_queue(comm, &status)) {
            empty = 0;
        }
    }
}

/* Provider shm leaves the segment of a killed process in /dev/shm. Its address is fi_shm://NAME, the segment /NAME. */
static void remove_segment(lf_comm_t *comm, int32_t rank)
{
    static const char scheme[] = "fi_shm://";
    char address[LF_ADDRESS_BYTES];
    char *name = address + sizeof scheme - 2; /* from its '/' */
    size_t bytes = sizeof address - 1;
    if (strcmp(comm->info->fabric_attr->prov_name, "shm") == 0 && !comm->peers[rank].has_left &&
        fi_av_lookup(comm->av, comm->peers[rank].address, address, &bytes) == 0 && bytes < sizeof address) {
        address[bytes] = '\0';
        if (strncmp(address, scheme, sizeof scheme - 1) == 0) {
            (void)shm_unlink(name);
        }
    }
}

void lf_lose(lf_comm_t *comm, int32_t rank, const char *why)
{
    lf_peer_t *peer = &comm->peers[rank];
    if (peer->is_gone) {
        return;
    }
    snprintf(peer->why, sizeof peer->why, "%s", why);
    peer->is_gone = peer->is_unreported = 1;
    comm->unreported++;
    comm->unswept++;
    if (peer->socket >= 0) {
        close(peer->socket); /* which takes it out of the epoll, too */
        peer->socket = -1;
    }
    drain(comm);
    remove_segment(comm, rank);
    peer->lost_at_ms = net_now_ms();
    for (lf_op_t *op = comm->active; op != NULL; op = op->next) {
        if (op->kind == LF_RECEIVE && op->peer == rank && !op->done && !op->is_canceling) {
            op->lost = rank;
            op->is_canceling = 1;
            (void)fi_cancel(&comm->ep->fid, &op->context);
        }
    }
    lf_report_to_any_source(comm);
}

/* Fails the operations that the provider has not completed some time after a death. The provider keeps them, but
 * cannot complete them any more: only the dead rank could move their bytes. */
void lf_sweep(lf_comm_t *comm)
{
    const uint64_t now = net_now_ms();
    for (int32_t rank = 0; rank < comm->size; rank++) {
        lf_peer_t *peer = &comm->peers[rank];
        if (!peer->is_gone || peer->is_swept || now - peer->lost_at_ms < SWEEP_AFTER_MS) {
            continue;
        }
        peer->is_swept = 1;
        comm->unswept--;
        for (lf_op_t *op = comm->active, *next; op != NULL; op = next) {
            next = op->next;
            if (op->peer == rank && !op->done) {
                op->result.source = rank;
                op->result.match_word = op->match_word;
                lf_finish(op, DTL_ERROR_RANK_FAILURE);
                if (comm->atomic == op) {
                    comm->atomic = NULL;
                }
            }
        }
    }
}

static const char silent[] = "it no longer responds";

/* Reads the confirmation of a rank. Returns the reason why the connection has ended, or NULL if it has not. */
static const char *read_control(lf_comm_t *comm, int32_t rank)
{
    char bytes[16];
    lf_peer_t *peer = &comm->peers[rank];
    const ssize_t got = recv(peer->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
        peer->has_all = 1;
    }
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
        return NULL;
    }
    if (got < 0 && errno != ECONNRESET) { /* by keepalive */
        return silent;
    }
    return peer->has_left ? "it has closed the communicator" : "its process has ended";
}

void lf_look_at_peers(lf_comm_t *comm, uint64_t now)
{
    struct epoll_event events[EVENTS];
    const int count = comm->size > 1 ? epoll_wait(comm->poll, events, EVENTS, 0) : 0;
    for (int i = 0; i < count; i++) {
        const int32_t rank = (int32_t)events[i].data.u32;
        const char *why = comm->peers[rank].is_gone ? NULL : read_control(comm, rank);
        if (why != NULL) {
            lf_lose(comm, rank, why);
        }
    }
    if (now - comm->looked_for_silence_ms >= NET_LOOK_MS) {
        comm->looked_for_silence_ms = now;
        for (int32_t rank = 0; rank < comm->size; rank++) {
            lf_peer_t *peer = &comm->peers[rank];
            if (peer->socket >= 0 && net_is_silent(peer->socket, &peer->silent_looks)) {
                lf_lose(comm, rank, silent);
            }
        }
    }
}
