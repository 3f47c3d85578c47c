/* Messages on their way: sending, receiving, ranks that are gone. Not here: which receive a message belongs to
 * (match.c), how ranks find each other (meet.c).
 *
 * No call waits but tcp_leave. All bytes move in tcp_test, except for those that fit into the socket when a
 * send starts. One thread at a time is in here, so there are no locks. */
#define _GNU_SOURCE
#include "meet.h"
#include "tcp.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
    INPUT_BYTES = 65536, /* read at once; a longer rest of a message is read straight into its place */
    READS_IN_A_ROW = 16, /* before it is another rank's turn */
    EVENTS = 64,
    LEAVE_MS = 5000
};

/* ---- ranks that are gone ---- */

/* The library wants to hear of each death from one receive from any source: one that is posted, or the
 * next one. */
static void tell_any_source(tcp_comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (!comm->peers[rank].is_unreported) {
            continue;
        }
        for (tcp_op_t **place = &comm->posted.first; *place != NULL; place = &(*place)->next) {
            if ((*place)->peer == DTL_ANY_SOURCE) {
                tcp_op_t *op = tcp_take(&comm->posted, place);
                tcp_finish(op, rank, &op->header, DTL_ERROR_RANK_FAILURE);
                comm->peers[rank].is_unreported = 0;
                break;
            }
        }
    }
}

/* Ends everything that needs this rank. What it had sent completely can still be received. */
static void lose(tcp_comm_t *comm, int32_t rank, const char *why)
{
    tcp_peer_t *peer = &comm->peers[rank];
    if (peer->is_gone) {
        return;
    }
    snprintf(peer->why, sizeof peer->why, "%s", why);
    peer->is_gone = peer->is_unreported = 1;
    close(peer->socket); /* which takes it out of the epoll, too */
    peer->socket = -1;
    while (peer->sends.first != NULL) {
        tcp_op_t *op = tcp_take(&peer->sends, &peer->sends.first);
        tcp_finish(op, rank, &op->header, DTL_ERROR_RANK_FAILURE);
    }
    if (peer->into != NULL) {
        tcp_finish(peer->into, rank, &peer->header, DTL_ERROR_RANK_FAILURE);
        peer->into = NULL;
    }
    free(peer->aside);
    peer->aside = NULL;
    for (tcp_op_t **place = &comm->posted.first; *place != NULL;) {
        if ((*place)->peer == rank) {
            tcp_op_t *op = tcp_take(&comm->posted, place);
            tcp_finish(op, rank, &op->header, DTL_ERROR_RANK_FAILURE);
        } else {
            place = &(*place)->next;
        }
    }
    tell_any_source(comm);
}

/* ---- receiving ---- */

/* The header is here: decides where the bytes go. */
static int begin_message(tcp_comm_t *comm, int32_t rank)
{
    tcp_peer_t *peer = &comm->peers[rank];
    peer->into = tcp_take_receive(comm, rank, peer->header.match_word);
    if (peer->into == NULL) {
        peer->aside = tcp_new_message(rank, &peer->header);
        if (peer->aside == NULL) {
            lose(comm, rank, "there was no memory for a message of it that nobody had asked for");
            return 0;
        }
    }
    return 1;
}

static void end_message(tcp_comm_t *comm, int32_t rank)
{
    tcp_peer_t *peer = &comm->peers[rank];
    if (peer->into != NULL) {
        const int is_short = peer->into->header.size_bytes < peer->header.size_bytes;
        tcp_finish(peer->into, rank, &peer->header, is_short ? DTL_ERROR_TRUNCATED : DTL_SUCCESS);
    } else {
        tcp_hand_over(comm, peer->aside);
    }
    peer->into = NULL;
    peer->aside = NULL;
    peer->arrived = 0;
}

/* Where byte `at` of the message belongs, and how many from there on have a place. */
static unsigned char *place_of(const tcp_peer_t *peer, uint64_t at, uint64_t *out_room)
{
    const uint64_t size = peer->header.size_bytes;
    const uint64_t end = peer->into != NULL && peer->into->header.size_bytes < size ? peer->into->header.size_bytes : size;
    unsigned char *first = peer->into != NULL ? peer->into->buf : peer->aside->bytes;
    *out_room = at < end ? end - at : 0;
    return *out_room > 0 ? first + at : NULL;
}

/* Puts bytes that were read where they belong. */
static void consume(tcp_comm_t *comm, int32_t rank, const unsigned char *bytes, uint64_t count)
{
    tcp_peer_t *peer = &comm->peers[rank];
    const uint64_t head = sizeof peer->header;
    while (count > 0) {
        uint64_t step;
        if (peer->arrived < head) {
            step = head - peer->arrived < count ? head - peer->arrived : count;
            memcpy((unsigned char *)&peer->header + peer->arrived, bytes, step);
            peer->arrived += step;
            if (peer->arrived == head && !begin_message(comm, rank)) {
                return;
            }
        } else {
            const uint64_t at = peer->arrived - head, rest = peer->header.size_bytes - at;
            uint64_t room;
            unsigned char *place = place_of(peer, at, &room);
            step = rest < count ? rest : count;
            if (room > 0) {
                memcpy(place, bytes, step < room ? step : room);
            }
            peer->arrived += step;
        }
        bytes += step;
        count -= step;
        if (peer->arrived >= head && peer->arrived - head == peer->header.size_bytes) {
            end_message(comm, rank);
        }
    }
}

/* Reads once. 1 = there may be more, 0 = there is no more now, or the rank is gone. */
static int read_once(tcp_comm_t *comm, int32_t rank)
{
    unsigned char input[INPUT_BYTES];
    tcp_peer_t *peer = &comm->peers[rank];
    void *place = input;
    uint64_t room = 0;
    if (peer->arrived >= sizeof peer->header) {
        place = place_of(peer, peer->arrived - sizeof peer->header, &room);
    }
    const int straight = room >= sizeof input;
    const uint64_t most = straight ? room : sizeof input;
    const ssize_t got = recv(peer->socket, straight ? place : input, most, 0);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR) {
            lose(comm, rank, strerror(errno));
        }
        return 0;
    }
    if (got == 0) {
        lose(comm, rank, "it has died or left");
        return 0;
    }
    if (straight) {
        peer->arrived += (uint64_t)got;
        if (peer->arrived - sizeof peer->header == peer->header.size_bytes) {
            end_message(comm, rank);
        }
    } else {
        consume(comm, rank, input, (uint64_t)got);
    }
    return !peer->is_gone && (uint64_t)got == most;
}

static void read_some(tcp_comm_t *comm, int32_t rank)
{
    for (int i = 0; i < READS_IN_A_ROW && read_once(comm, rank); i++) {
    }
}

/* ---- sending ---- */

/* Asks to be told when the socket has room again, or no longer. */
static void want_room(tcp_comm_t *comm, int32_t rank, int wants)
{
    tcp_peer_t *peer = &comm->peers[rank];
    struct epoll_event event = {.events = EPOLLIN | (wants ? (uint32_t)EPOLLOUT : 0)};
    event.data.u32 = (uint32_t)rank;
    if (peer->wants_room != wants && epoll_ctl(comm->poll, EPOLL_CTL_MOD, peer->socket, &event) == 0) {
        peer->wants_room = wants;
    }
}

/* Writes what fits of the sends to a rank. */
static void write_some(tcp_comm_t *comm, int32_t rank)
{
    tcp_peer_t *peer = &comm->peers[rank];
    while (peer->sends.first != NULL) {
        tcp_op_t *op = peer->sends.first;
        const uint64_t head = sizeof op->header, all = head + op->header.size_bytes;
        struct iovec parts[2] = {{(char *)&op->header + op->moved, 0}, {op->buf, op->header.size_bytes}};
        if (op->moved < head) {
            parts[0].iov_len = head - op->moved;
        } else {
            parts[1].iov_base = (char *)op->buf + (op->moved - head);
            parts[1].iov_len = all - op->moved;
        }
        struct msghdr message = {.msg_iov = op->moved < head ? parts : parts + 1,
                                 .msg_iovlen = op->moved < head ? 2 : 1};
        const ssize_t sent = sendmsg(peer->socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            want_room(comm, rank, 1);
            return;
        }
        if (sent < 0) { /* gone, but what it had sent may be here still */
            const int error = errno;
            while (read_once(comm, rank)) {
            }
            lose(comm, rank, strerror(error));
            return;
        }
        op->moved += (uint64_t)sent;
        if (op->moved < all) {
            want_room(comm, rank, 1);
            return;
        }
        (void)tcp_take(&peer->sends, &peer->sends.first);
        tcp_finish(op, rank, &op->header, DTL_SUCCESS);
    }
    want_room(comm, rank, 0);
}

static dtl_status_t send_to_self(tcp_comm_t *comm, const tcp_op_t *send)
{
    tcp_message_t *message = tcp_new_message(comm->rank, &send->header);
    if (message == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    if (send->header.size_bytes > 0) {
        memcpy(message->bytes, send->buf, send->header.size_bytes);
    }
    tcp_hand_over(comm, message);
    return DTL_SUCCESS;
}

/* ---- the slots ---- */

dtl_status_t tcp_isend(void *self, void *comm_, const void *buf, uint64_t size_bytes, int32_t dest,
                       uint64_t match_word, uint64_t *out_op)
{
    tcp_comm_t *comm = comm_;
    tcp_peer_t *peer = &comm->peers[dest];
    (void)self;
    if (peer->is_gone) {
        return tcp_fail(DTL_ERROR_RANK_FAILURE, "tcp: rank %d is gone: %s", (int)dest, peer->why);
    }
    tcp_op_t *op = tcp_new_op(comm);
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->header.match_word = match_word;
    op->header.size_bytes = size_bytes;
    op->buf = (void *)(uintptr_t)buf;
    op->peer = dest;
    *out_op = (uint64_t)(uintptr_t)op;
    if (dest == comm->rank) {
        tcp_finish(op, dest, &op->header, send_to_self(comm, op));
        return DTL_SUCCESS;
    }
    tcp_append(&peer->sends, op);
    if (!peer->wants_room) {
        write_some(comm, dest);
    }
    return DTL_SUCCESS;
}

dtl_status_t tcp_irecv(void *self, void *comm_, void *buf, uint64_t size_bytes, int32_t source,
                       uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    tcp_comm_t *comm = comm_;
    tcp_op_t *op = tcp_new_op(comm);
    (void)self;
    if (op == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    op->header.match_word = match_word;
    op->header.size_bytes = size_bytes;
    op->ignore = ignore;
    op->buf = buf;
    op->peer = source;
    *out_op = (uint64_t)(uintptr_t)op;
    if (tcp_take_message(comm, op)) {
        return DTL_SUCCESS;
    }
    if (source != DTL_ANY_SOURCE && comm->peers[source].is_gone) {
        tcp_finish(op, source, &op->header, DTL_ERROR_RANK_FAILURE);
        return DTL_SUCCESS;
    }
    tcp_append(&comm->posted, op);
    tell_any_source(comm);
    return DTL_SUCCESS;
}

static void look_for_silence(tcp_comm_t *comm)
{
    const uint64_t now = net_now_ms();
    if (now - comm->looked_at_ms < NET_LOOK_MS) {
        return;
    }
    comm->looked_at_ms = now;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        tcp_peer_t *peer = &comm->peers[rank];
        if (peer->socket >= 0 && net_is_silent(peer->socket, &peer->silent_looks)) {
            lose(comm, rank, strerror(ETIMEDOUT));
        }
    }
}

static dtl_status_t progress(tcp_comm_t *comm)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(comm->poll, events, EVENTS, 0);
    if (count < 0 && errno != EINTR) {
        return tcp_fail(DTL_ERROR_COMMUNICATION, "tcp: epoll_wait: %s", strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        const int32_t rank = (int32_t)events[i].data.u32;
        if ((events[i].events & EPOLLOUT) != 0 && !comm->peers[rank].is_gone) {
            write_some(comm, rank);
        }
        if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0 && !comm->peers[rank].is_gone) {
            read_some(comm, rank);
        }
    }
    look_for_silence(comm);
    return DTL_SUCCESS;
}

dtl_status_t tcp_test(void *self, void *comm_, uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result)
{
    tcp_comm_t *comm = comm_;
    tcp_op_t *op = (tcp_op_t *)(uintptr_t)word;
    (void)self;
    if (!op->done) {
        const dtl_status_t status = progress(comm);
        if (status != DTL_SUCCESS) {
            return status;
        }
    }
    *out_done = op->done;
    if (op->done) {
        const int32_t rank = op->result.source;
        *out_result = op->result;
        if (op->result.status == DTL_ERROR_RANK_FAILURE) {
            (void)tcp_fail(DTL_SUCCESS, "tcp: rank %d is gone: %s", (int)rank, comm->peers[rank].why);
        }
        op->next = comm->unused;
        comm->unused = op;
    }
    return DTL_SUCCESS;
}

dtl_status_t tcp_cancel(void *self, void *comm_, uint64_t word)
{
    tcp_comm_t *comm = comm_;
    tcp_op_t *op = (tcp_op_t *)(uintptr_t)word;
    (void)self;
    for (tcp_op_t **place = &comm->posted.first; *place != NULL; place = &(*place)->next) {
        if (*place == op) {
            (void)tcp_take(&comm->posted, place);
            tcp_finish(op, comm->rank, &op->header, DTL_ERROR_CANCELED);
            break;
        }
    }
    return DTL_SUCCESS;
}

/* ---- beginning and end ---- */

dtl_status_t tcp_comm_new(int32_t rank, int32_t size, tcp_comm_t **out_comm)
{
    tcp_comm_t *comm = calloc(1, sizeof *comm);
    if (comm == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    comm->poll = epoll_create1(EPOLL_CLOEXEC);
    comm->peers = calloc((size_t)size, sizeof *comm->peers);
    if (comm->poll < 0 || comm->peers == NULL) {
        const int error = comm->poll < 0 ? errno : ENOMEM;
        tcp_comm_free(comm);
        return tcp_fail(DTL_ERROR_COMMUNICATION, "tcp: a communicator of %d ranks: %s", (int)size, strerror(error));
    }
    comm->rank = rank;
    comm->size = size;
    comm->posted.end = &comm->posted.first;
    comm->unexpected_end = &comm->unexpected;
    for (int32_t i = 0; i < size; i++) {
        comm->peers[i].socket = -1;
        comm->peers[i].sends.end = &comm->peers[i].sends.first;
    }
    *out_comm = comm;
    return DTL_SUCCESS;
}

dtl_status_t tcp_watch(tcp_comm_t *comm, int32_t rank)
{
    struct epoll_event event = {.events = EPOLLIN};
    event.data.u32 = (uint32_t)rank;
    if (epoll_ctl(comm->poll, EPOLL_CTL_ADD, comm->peers[rank].socket, &event) != 0) {
        return tcp_fail(DTL_ERROR_COMMUNICATION, "tcp: epoll_ctl: %s", strerror(errno));
    }
    return DTL_SUCCESS;
}

/* Whether a rank has everything that was sent to it. Reads and drops what comes from it: if there were
 * unread bytes at close, the kernel would tell the other side "reset" in place of "end". */
static int is_settled(tcp_peer_t *peer)
{
    unsigned char dropped[4096];
    int unsent = 0;
    ssize_t got;
    do {
        got = recv(peer->socket, dropped, sizeof dropped, 0);
    } while (got > 0);
    const int is_over = got == 0 || (errno != EAGAIN && errno != EINTR);
    return is_over || ioctl(peer->socket, SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

void tcp_leave(tcp_comm_t *comm)
{
    const struct timespec moment = {0, 1000000};
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (comm->peers[rank].socket >= 0) {
            shutdown(comm->peers[rank].socket, SHUT_WR);
        }
    }
    for (int waited = 0; waited < LEAVE_MS; waited++) {
        int open = 0;
        for (int32_t rank = 0; rank < comm->size; rank++) {
            open += comm->peers[rank].socket >= 0 && !is_settled(&comm->peers[rank]);
        }
        if (open == 0) {
            break;
        }
        nanosleep(&moment, NULL);
    }
}

static void free_ops(tcp_op_t *op)
{
    while (op != NULL) {
        tcp_op_t *next = op->next;
        free(op);
        op = next;
    }
}

void tcp_comm_free(tcp_comm_t *comm)
{
    for (int32_t rank = 0; rank < comm->size; rank++) {
        tcp_peer_t *peer = &comm->peers[rank];
        if (peer->socket >= 0) {
            close(peer->socket);
        }
        free_ops(peer->sends.first);
        free(peer->into);
        free(peer->aside);
    }
    while (comm->unexpected != NULL) {
        tcp_message_t *message = comm->unexpected;
        comm->unexpected = message->next;
        free(message);
    }
    free_ops(comm->posted.first);
    free_ops(comm->unused);
    if (comm->poll >= 0) {
        close(comm->poll);
    }
    free(comm->peers);
    free(comm);
}
