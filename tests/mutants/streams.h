/* Streams and events: what their files share. One lock guards all of it; no user function runs under it. */
#ifndef STREAMS_H
#define STREAMS_H

#include "whole.h"

#include <pthread.h>

extern pthread_mutex_t exec_lock;
extern pthread_cond_t exec_changed; /* work or a record was finished */

/* A record of an event; shared by the event, the work that completes it and the work that waits for it. */
typedef struct fence_t {
    int references, is_done;
    dtl_status_t status;
    uint64_t time_ns;
} fence_t;

void fence_unref(fence_t *fence); /* with the lock; NULL is nothing */

typedef struct event_t {
    int is_taken;
    fence_t *fence; /* of the latest record; NULL = never recorded */
} event_t;

/* A piece of work that completes a fence when all before it has ended; with its share of the fence. */
dtl_status_t stream_push_record(void *stream, fence_t *fence);

/* queued.c */
dtl_status_t whole_stream_wait_event(void *self, void *stream, void *event);
dtl_status_t whole_stream_host_callback(void *self, void *stream, dtl_task_fn_t function, void *user);

/* events.c */
void add_events(dtl_exec_vtable_t *table);

#endif
