/* The exec component, events: each has the fence of its last record. A wait keeps a reference to
 * that fence, because the event may be recorded again or destroyed meanwhile. */
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct event_t {
    pthread_mutex_t lock;
    vc_fence_t *fence; /* NULL: never recorded, which counts as complete */
} event_t;

static dtl_status_t event_create(void *self, uint64_t flags, void **out_event)
{
    event_t *event = calloc(1, sizeof *event);
    (void)self, (void)flags; /* the time costs nothing */
    if (event == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&event->lock, NULL);
    *out_event = event;
    return DTL_SUCCESS;
}

static dtl_status_t event_destroy(void *self, void *argument)
{
    event_t *event = argument;
    (void)self;
    vc_fence_release(event->fence);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return DTL_SUCCESS;
}

static vc_fence_t *fence_of(void *argument)
{
    event_t *event = argument;
    pthread_mutex_lock(&event->lock);
    vc_fence_t *fence = vc_fence_keep(event->fence);
    pthread_mutex_unlock(&event->lock);
    return fence;
}

static dtl_status_t event_record(void *self, void *argument, void *stream)
{
    event_t *event = argument;
    vc_fence_t *made = vc_fence_create(((sim_stream_t *)stream)->queue);
    (void)self;
    if (made == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&event->lock);
    vc_fence_t *before = event->fence;
    event->fence = made;
    pthread_mutex_unlock(&event->lock);
    vc_fence_release(before);
    return DTL_SUCCESS;
}

/* Releases the fence. */
static dtl_status_t reported(vc_fence_t *fence, dtl_status_t status)
{
    vc_fence_release(fence);
    return status == DTL_SUCCESS ? status : sim_fail(status, "a command before the event failed");
}

static dtl_status_t event_query(void *self, void *event, int32_t *out_done)
{
    vc_fence_t *fence = fence_of(event);
    (void)self;
    *out_done = fence == NULL || vc_fence_is_done(fence);
    return reported(fence, fence != NULL ? vc_fence_error(fence) : 0);
}

static dtl_status_t event_sync(void *self, void *event)
{
    vc_fence_t *fence = fence_of(event);
    (void)self;
    return reported(fence, fence != NULL ? vc_fence_wait(fence) : 0);
}

static dtl_status_t event_elapsed(void *self, void *start, void *stop, uint64_t *out_ns)
{
    vc_fence_t *from = fence_of(start), *to = fence_of(stop);
    const uint64_t begin =
        from != NULL ? vc_fence_time_ns(from) : 0, end = to != NULL ? vc_fence_time_ns(to) : 0;
    (void)self;
    vc_fence_release(from), vc_fence_release(to);
    if (begin == 0 || end == 0) return sim_fail(DTL_ERROR_INVALID_STATE,
                                                "an event is not recorded and complete");
    if (end < begin) return sim_fail(DTL_ERROR_INVALID_ARGUMENT,
                                     "`stop` was reached before `start`");
    *out_ns = end - begin;
    return DTL_SUCCESS;
}

typedef struct wait_t {
    sim_job_t job;
    vc_fence_t *fence;
} wait_t;

static dtl_status_t run_wait(sim_job_t *job)
{
    return vc_fence_wait(((wait_t *)job)->fence); /* the failure becomes one of this stream */
}

static void drop_wait(sim_job_t *job)
{
    vc_fence_release(((wait_t *)job)->fence);
    free(job);
}

static dtl_status_t stream_wait_event(void *self, void *stream, void *event)
{
    vc_fence_t *fence = fence_of(event);
    (void)self;
    if (fence == NULL) return DTL_SUCCESS;
    wait_t *wait = calloc(1, sizeof *wait);
    if (wait != NULL) wait->fence = fence;
    else vc_fence_release(fence);
    return sim_push(stream, wait, NULL, run_wait, drop_wait);
}

void sim_add_events(dtl_exec_vtable_t *exec)
{
    exec->event_create = event_create;
    exec->event_destroy = event_destroy;
    exec->event_record = event_record;
    exec->event_query = event_query;
    exec->event_sync = event_sync;
    exec->event_elapsed = event_elapsed;
    exec->stream_wait_event = stream_wait_event;
}
