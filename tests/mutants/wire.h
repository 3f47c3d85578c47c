/* wire: what its files share. wire.c is the plugin and its operations, meeting.c how communicators are opened. */
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

#endif
