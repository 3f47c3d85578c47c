/* tcp: a communicator over TCP sockets, for one machine or several. What its files share.
 *
 * plugin.c makes it a plugin, meet.h brings the ranks together, progress.c moves messages, match.c
 * gives them to receives.
 *
 * Every rank has one connection to every other: only so does it hear of each death. On a connection,
 * a message is a header and its bytes; both directions are independent. */
#ifndef TCP_H
#define TCP_H

#include <dtl.h>

#include <stdint.h>

typedef struct tcp_header_t {
    uint64_t match_word;
    uint64_t size_bytes;
} tcp_header_t;

/* A send or a receive. Its address is the operation's word. */
typedef struct tcp_op_t {
    struct tcp_op_t *next; /* in a list of posted receives, of a rank's sends, or of unused ones */
    tcp_header_t header;   /* of a receive: what it matches */
    uint64_t ignore;       /* of a receive: bits of the match word that do not count */
    void *buf;             /* a receive writes it, a send only reads it */
    uint64_t moved;        /* of a send: bytes that are out, header included */
    int32_t peer;          /* the other rank, or DTL_ANY_SOURCE */
    int32_t done;
    dtl_comm_done_t result;
} tcp_op_t;

/* An unexpected message: no receive for it is posted yet. */
typedef struct tcp_message_t {
    struct tcp_message_t *next;
    tcp_header_t header;
    int32_t source;
    unsigned char bytes[];
} tcp_message_t;

typedef struct tcp_list_t { /* of operations, in order */
    tcp_op_t *first;
    tcp_op_t **end;
} tcp_list_t;

typedef struct tcp_peer_t {
    int socket; /* -1: this rank itself, or gone */
    int is_gone;
    int is_unreported;    /* gone, and no receive from any source has reported it yet */
    int wants_room;       /* sends wait for room in the socket */
    int silent_looks;     /* for net_is_silent */
    char why[96];         /* it is gone */
    tcp_list_t sends;     /* not all out yet */
    tcp_header_t header;  /* of the message that is arriving */
    uint64_t arrived;     /* bytes of it, header included */
    tcp_op_t *into;       /* where it goes: a receive */
    tcp_message_t *aside; /* or, if none was posted when it began, this; in no list yet */
} tcp_peer_t;

typedef struct tcp_comm_t {
    int32_t rank, size;
    int poll; /* epoll descriptor of all connections */
    uint64_t looked_at_ms; /* for silent ranks */
    tcp_peer_t *peers;
    tcp_list_t posted;           /* receives without a message */
    tcp_message_t *unexpected;   /* whole messages without a receive */
    tcp_message_t **unexpected_end;
    tcp_op_t *unused;
} tcp_comm_t;

/* Stores a text for dtl_last_error, as printf, and returns the status. */
dtl_status_t tcp_fail(dtl_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* match.c */
void tcp_append(tcp_list_t *list, tcp_op_t *op);
tcp_op_t *tcp_take(tcp_list_t *list, tcp_op_t **place); /* the operation that *place points to */
tcp_op_t *tcp_new_op(tcp_comm_t *comm);                 /* NULL = no memory */
void tcp_finish(tcp_op_t *op, int32_t source, const tcp_header_t *header, dtl_status_t status);
/* The oldest posted receive for a message, which is then no longer posted; or NULL. */
tcp_op_t *tcp_take_receive(tcp_comm_t *comm, int32_t source, uint64_t match_word);
tcp_message_t *tcp_new_message(int32_t source, const tcp_header_t *header); /* NULL = no memory */
/* A whole message: to the oldest receive that wants it, else it waits for one. */
void tcp_hand_over(tcp_comm_t *comm, tcp_message_t *message);
/* Ends a new receive with the oldest message that waits for it; whether there was one. */
int tcp_take_message(tcp_comm_t *comm, tcp_op_t *receive);

/* progress.c */
dtl_status_t tcp_comm_new(int32_t rank, int32_t size, tcp_comm_t **out_comm);
void tcp_comm_free(tcp_comm_t *comm);
dtl_status_t tcp_watch(tcp_comm_t *comm, int32_t rank); /* its socket is connected */
void tcp_leave(tcp_comm_t *comm);                       /* says goodbye, within 5 seconds */
dtl_status_t tcp_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                       uint64_t match_word, uint64_t *out_op);
dtl_status_t tcp_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                       uint64_t match_word, uint64_t ignore, uint64_t *out_op);
dtl_status_t tcp_test(void *self, void *comm, uint64_t op, int32_t *out_done, dtl_comm_done_t *out_result);
dtl_status_t tcp_cancel(void *self, void *comm, uint64_t op);

#endif
