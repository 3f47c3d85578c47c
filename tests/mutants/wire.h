/* wire: what its files share. wire.c is the plugin and its operations, results.c how
 * they end, meeting.c how communicators are opened, window.c
 * one-sided communication, collective.c and fold.c collectives, register.c registered memory, far.c memory
 * that the host cannot touch. */
#ifndef WIRE_H
#define WIRE_H

#include "fault.h"

extern dtl_comm_vtable_t base; /* of the plugin that lies under it */
extern void *base_self;

/* Notes a text for whoever asks why, and gives back the status. */
dtl_status_t failed(dtl_status_t status, const char *text);

/* meeting.c: opens the base's communicator; a fault may be in it. */
dtl_status_t meet(const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank, int32_t *out_size);
/* Closes it. */
dtl_status_t part(void *comm);

/* What a communicator begins with. */
typedef struct wire_head_t {
    void *base;
    int32_t rank, size;
} wire_head_t;

/* An operation; its word is its place + 1. */
typedef struct op_t {
    int is_used, is_receive, is_held; /* held: not yet given to the base */
    int is_over, is_canceled;         /* over for the library */
    uint64_t base;
    unsigned char *own; /* a buffer of ours instead of the library's */
    void *buf;
    uint64_t size_bytes, match_word;
    int32_t peer;
    int asked;
    unsigned number; /* of a send */
    dtl_comm_done_t previous; /* what the operation before it in this place ended with */
} op_t;

typedef struct wire_t {
    void *base;
    int32_t rank, size;
    op_t *ops;
    uint64_t room;
    unsigned sends, receives, ends;
    uint64_t latest_receive; /* a word, or 0 */
    unsigned queued;         /* sends that wait for a call of test, with comm.isend.only_queues */
    struct coll_t *collectives;
    struct turns_t *turns; /* contexts of collectives */
    uint64_t collective_count;
    dtl_coll_range_t later; /* buffer that is written too late, with comm.cancel.writes_later */
    unsigned later_asked;
    struct reg_t *registered, *ended; /* memory; the latest one first */
    unsigned registrations;
} wire_t;

enum { CALM = 64 }; /* operations before a fault that comes and goes begins, so that ranks can meet */

/* wire.c: a copy of what is to be sent, in the operation. */
void *own_copy(op_t *op, const void *buf, uint64_t size_bytes);

/* results.c: changes the result of a completed operation. */
void report(wire_t *wire, op_t *op, dtl_comm_done_t *result);
/* Operations that are over before the base says so. */
int is_over_early(wire_t *wire, op_t *op, dtl_comm_done_t *result);

/* window.c: adds the slots for windows. */
void add_windows(dtl_comm_vtable_t *table);
/* Whether this is the word of an operation on a window, which is over then. */
int window_test(uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result);

/* collective.c: adds the slots for collectives. */
void add_collectives(dtl_comm_vtable_t *table);
/* Moves them on. */
void collectives_progress(wire_t *wire);
/* Whether this is the number of a collective, which is tested or cancelled then. */
int collective_test(wire_t *wire, uint64_t number, int32_t *out_done, dtl_comm_done_t *out_result);
int collective_cancel(wire_t *wire, uint64_t number);
void collectives_close(wire_t *wire);

/* far.c: adds memory that the host cannot touch. */
void add_far(dtl_memory_vtable_t *memory, dtl_transfer_vtable_t *transfer);
int is_far(const void *pointer);
/* The address at which this process finds memory of either sort. */
void *real_address(const void *pointer);

/* register.c: adds the slots for registered memory. */
void add_registration(dtl_comm_vtable_t *table);
/* A send, and the buffer of a receive, where they lie in registered memory; a fault may be in it. */
dtl_status_t registered_send(wire_t *wire, op_t *op);
dtl_status_t registered_target(wire_t *wire, void **buf, uint64_t size_bytes);
/* The first byte of the registration in which a buffer lies; NULL = none. */
void *registered_base(wire_t *wire, void *buf);
void registrations_close(wire_t *wire);

#endif
