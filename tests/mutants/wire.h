/* wire: what its files share. wire.c is the plugin and its operations, meeting.c how communicators are opened, window.c
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

/* window.c: adds the slots for windows. */
void add_windows(dtl_comm_vtable_t *table);
/* Whether this is the word of an operation on a window, which is over then. */
int window_test(uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result);

#endif
