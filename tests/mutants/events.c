/* Events: each points to the fence of its latest record. */
#include "streams.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS = 4096 }; /* alive at most, as devices have such limits */

static event_t events[EVENTS];

static dtl_status_t whole_event_create(void *self, uint64_t flags, void **out_event)
{
    event_t *event = NULL;
    (void)self;
    (void)flags;
    if (is_fault("exec.event_create.null")) {
        *out_event = NULL;
        return DTL_SUCCESS;
    }
    pthread_mutex_lock(&exec_lock);
    if (is_fault("exec.event_create.same_twice") && events[0].is_taken) {
        event = &events[0];
    }
    for (int i = 0; i < EVENTS && event == NULL; i++) {
        event = events[i].is_taken ? NULL : &events[i];
    }
    if (event != NULL) {
        event->is_taken = 1;
    }
    pthread_mutex_unlock(&exec_lock);
    if (event == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "there are too many events");
    }
    *out_event = event;
    return DTL_SUCCESS;
}

static dtl_status_t whole_event_destroy(void *self, void *pointer)
{
    event_t *event = pointer;
    (void)self;
    if (is_fault("exec.event_destroy.leak")) {
        return DTL_SUCCESS;
    }
    pthread_mutex_lock(&exec_lock);
    if (is_fault("exec.event_destroy.ends_waits") && event->fence != NULL) {
        event->fence->is_done = 1;
        pthread_cond_broadcast(&exec_changed);
    }
    if (!is_fault("exec.event_destroy.keeps_record")) {
        fence_unref(event->fence);
        event->fence = NULL;
    }
    event->is_taken = 0;
    pthread_mutex_unlock(&exec_lock);
    return DTL_SUCCESS;
}

/* The fence of a record that begins now, with a share for the stream. */
static fence_t *begin_record(event_t *event)
{
    fence_t *fence = calloc(1, sizeof *fence);
    if (fence == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&exec_lock);
    fence->references = 2;
    if (is_fault("exec.event_record.lengthens_waits") && event->fence != NULL) {
        event->fence->is_done = 0; /* the old record is not done any more */
    }
    fence_unref(event->fence);
    event->fence = fence;
    pthread_mutex_unlock(&exec_lock);
    return fence;
}

static dtl_status_t whole_event_record(void *self, void *pointer, void *stream)
{
    event_t *event = pointer;
    (void)self;
    if (is_fault("exec.event_record.ignored")) {
        return DTL_SUCCESS;
    }
    if (is_fault("exec.event_record.keeps_first") && event->fence != NULL) {
        return DTL_SUCCESS;
    }
    fence_t *fence = begin_record(event);
    if (fence == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a record");
    }
    if (is_fault("exec.event_record.completes_early")) {
        pthread_mutex_lock(&exec_lock);
        fence->is_done = 1;
        pthread_mutex_unlock(&exec_lock);
    }
    if (is_fault("exec.event_record.never_completes")) {
        return DTL_SUCCESS;
    }
    return stream_push_record(is_fault("exec.event_record.wrong_stream") ? stream_of_nobody() : stream, fence);
}

/* What the latest record says. */
static dtl_status_t look(const event_t *event, int *out_done)
{
    const fence_t *fence = event->fence;
    *out_done = fence == NULL || fence->is_done;
    return fence != NULL && fence->is_done ? fence->status : DTL_SUCCESS;
}

static dtl_status_t whole_event_query(void *self, void *pointer, int32_t *out_done)
{
    const event_t *event = pointer;
    int is_done;
    (void)self;
    pthread_mutex_lock(&exec_lock);
    dtl_status_t status = look(event, &is_done);
    if (is_fault("exec.event_query.unrecorded_not_done") && event->fence == NULL) {
        is_done = 0;
    }
    if (is_fault("exec.event_query.waits")) {
        while (event->fence != NULL && !event->fence->is_done) {
            pthread_cond_wait(&exec_changed, &exec_lock);
        }
        status = look(event, &is_done);
    }
    if (is_fault("exec.event_query.done_once") && is_done && event->fence != NULL) {
        event->fence->is_done = 0; /* whoever asks again is told that it is not */
    }
    pthread_mutex_unlock(&exec_lock);
    *out_done = is_done;
    if (is_fault("exec.event_query.odd_boolean")) {
        *out_done *= -1;
    }
    if (is_fault("exec.event_query.always_done")) {
        *out_done = 1;
    }
    if (is_fault("exec.event_query.never_done")) {
        *out_done = 0;
    }
    if (is_fault("exec.event_query.hides_failure") || status == DTL_SUCCESS) {
        return DTL_SUCCESS;
    }
    return failed(status, "work before the event failed");
}

static dtl_status_t whole_event_sync(void *self, void *pointer)
{
    const event_t *event = pointer;
    int is_done;
    (void)self;
    pthread_mutex_lock(&exec_lock);
    dtl_status_t status = look(event, &is_done);
    while (!is_done && !is_fault("exec.event_sync.early")) {
        pthread_cond_wait(&exec_changed, &exec_lock);
        status = look(event, &is_done);
    }
    pthread_mutex_unlock(&exec_lock);
    if (is_fault("exec.event_sync.hides_failure") || status == DTL_SUCCESS) {
        return DTL_SUCCESS;
    }
    return failed(status, "work before the event failed");
}

/* When an event's record was reached; 0 = not yet. */
static uint64_t time_of(const event_t *event)
{
    pthread_mutex_lock(&exec_lock);
    const uint64_t time_ns = event->fence != NULL && event->fence->is_done ? event->fence->time_ns : 0;
    pthread_mutex_unlock(&exec_lock);
    return time_ns;
}

static dtl_status_t whole_event_elapsed(void *self, void *start, void *stop, uint64_t *out_ns)
{
    uint64_t begin = time_of(start), end = time_of(stop);
    (void)self;
    if (begin == 0 || end == 0) {
        return failed(DTL_ERROR_INVALID_STATE, "an event without a record that was reached");
    }
    if (is_fault("exec.event_elapsed.swapped")) {
        const uint64_t earlier = begin;
        begin = end;
        end = earlier;
    }
    if (is_fault("exec.event_elapsed.absolute") && end < begin) {
        *out_ns = begin - end;
        return DTL_SUCCESS;
    }
    if (is_fault("exec.event_elapsed.wraps") || end >= begin) {
        *out_ns = end - begin;
    } else {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "the stop event came before the start");
    }
    if (is_fault("exec.event_elapsed.zero")) {
        *out_ns = 0;
    }
    if (is_fault("exec.event_elapsed.microseconds")) {
        *out_ns /= 1000;
    }
    if (is_fault("exec.event_elapsed.twice_as_long")) {
        *out_ns *= 2;
    }
    if (is_fault("exec.event_elapsed.adds_a_tick")) {
        *out_ns += 10000;
    }
    return DTL_SUCCESS;
}

SLOT(exec, event_create, whole_event_create, (void *self, uint64_t flags, void **out_event), (self, flags, out_event))
SLOT(exec, event_destroy, whole_event_destroy, (void *self, void *event), (self, event))
SLOT(exec, event_record, whole_event_record, (void *self, void *event, void *stream), (self, event, stream))
SLOT(exec, event_query, whole_event_query, (void *self, void *event, int32_t *out_done), (self, event, out_done))
SLOT(exec, event_sync, whole_event_sync, (void *self, void *event), (self, event))
SLOT(exec, event_elapsed, whole_event_elapsed, (void *self, void *start, void *stop, uint64_t *out_ns),
     (self, start, stop, out_ns))

void add_events(dtl_exec_vtable_t *table)
{
    table->event_create = slot_event_create;
    table->event_destroy = slot_event_destroy;
    table->event_record = slot_event_record;
    table->event_query = slot_event_query;
    table->event_sync = slot_event_sync;
    table->event_elapsed = slot_event_elapsed;
}
