/* Operations, messages, and which belongs to which. Nothing here touches a socket. */
#include "tcp.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists and operations ---- */

void tcp_append(tcp_list_t *list, tcp_op_t *op)
{
    op->next = NULL;
    *list->end = op;
    list->end = &op->next;
}

/* Takes out the operation that *place points to. */
tcp_op_t *tcp_take(tcp_list_t *list, tcp_op_t **place)
{
    tcp_op_t *op = *place;
    *place = op->next;
    if (list->end == &op->next) {
        list->end = place;
    }
    return op;
}

tcp_op_t *tcp_new_op(tcp_comm_t *comm)
{
    tcp_op_t *op = comm->unused;
    if (op == NULL) {
        op = malloc(sizeof *op);
    } else {
        comm->unused = op->next;
    }
    if (op != NULL) {
        memset(op, 0, sizeof *op);
    }
    return op;
}

void tcp_finish(tcp_op_t *op, int32_t source, const tcp_header_t *header, dtl_status_t status)
{
    op->result.source = source;
    op->result.match_word = header->match_word;
    op->result.size_bytes = header->size_bytes; /* the true size, also when it did not fit */
    op->result.status = status;
    op->done = 1;
}

/* ---- matching ---- */

static int matches(const tcp_op_t *receive, int32_t source, uint64_t match_word)
{
    return (receive->peer == source || receive->peer == DTL_ANY_SOURCE) &&
           ((receive->header.match_word ^ match_word) & ~receive->ignore) == 0;
}

/* The oldest posted receive for a message, which is then no longer posted; or NULL. */
tcp_op_t *tcp_take_receive(tcp_comm_t *comm, int32_t source, uint64_t match_word)
{
    for (tcp_op_t **place = &comm->posted.first; *place != NULL; place = &(*place)->next) {
        if (matches(*place, source, match_word)) {
            return tcp_take(&comm->posted, place);
        }
    }
    return NULL;
}

static void deliver(tcp_op_t *receive, int32_t source, const tcp_header_t *header, const void *bytes)
{
    const uint64_t room = receive->header.size_bytes, size = header->size_bytes;
    if (room > 0 && size > 0) {
        memcpy(receive->buf, bytes, size < room ? size : room);
    }
    tcp_finish(receive, source, header, size > room ? DTL_ERROR_TRUNCATED : DTL_SUCCESS);
}

tcp_message_t *tcp_new_message(int32_t source, const tcp_header_t *header)
{
    /* The size comes from the other rank: the sum must not wrap around. */
    tcp_message_t *message =
        header->size_bytes > SIZE_MAX - sizeof *message ? NULL : malloc(sizeof *message + header->size_bytes);
    if (message != NULL) {
        message->next = NULL;
        message->header = *header;
        message->source = source;
    }
    return message;
}

/* A whole message: to the oldest receive that wants it, else it waits for one. */
void tcp_hand_over(tcp_comm_t *comm, tcp_message_t *message)
{
    tcp_op_t *receive = tcp_take_receive(comm, message->source, message->header.match_word);
    if (receive != NULL) {
        deliver(receive, message->source, &message->header, message->bytes);
        free(message);
    } else {
        *comm->unexpected_end = message;
        comm->unexpected_end = &message->next;
    }
}

int tcp_take_message(tcp_comm_t *comm, tcp_op_t *receive)
{
    for (tcp_message_t **place = &comm->unexpected; *place != NULL; place = &(*place)->next) {
        tcp_message_t *message = *place;
        if (matches(receive, message->source, message->header.match_word)) {
            *place = message->next;
            if (comm->unexpected_end == &message->next) {
                comm->unexpected_end = place;
            }
            deliver(receive, message->source, &message->header, message->bytes);
            free(message);
            return 1;
        }
    }
    return 0;
}
