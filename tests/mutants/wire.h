/* wire: what its files share. wire.c is the plugin and its operations, results.c how
 * they end, meeting.c how communicators are opened, window.c
 * one-sided communication. */
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
} wire_t;

enum { CALM = 64 }; /* operations before a fault that comes and goes begins, so that ranks can meet */

/* results.c: changes the result of a completed operation. */
void report(wire_t *wire, op_t *op, dtl_comm_done_t *result);
/* Operations that are over before the base says so. */
int is_over_early(wire_t *wire, op_t *op, dtl_comm_done_t *result);

/* window.c: adds the slots for windows. */
void add_windows(dtl_comm_vtable_t *table);
/* Whether this is the word of an operation on a window, which is over then. */
int window_test(uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result);

#endif
