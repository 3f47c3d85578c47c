/* @NAME@, the exec component: streams and events; kernels are in kernels.@ENDING@. It works as it
 * stands, on threads of this process: each stream is a queue of exec_queue.h. Replace the queues,
 * fences and binaries of exec_queue.h and exec_binary.h by those of your driver.
 *
 * All slots are called by several threads at once. The library has checked that a stream or an
 * event is alive during a call. */
#include "@HEADER@"
#include "exec_queue.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- streams: stream_create, stream_destroy and stream_synchronize are required together ---- */

/* Creates a stream on a device. Work runs in the order in which it was queued. */
static dtl_status_t stream_create(void *self, int32_t device, uint64_t flags,
                                  void **out_stream)@NOTHROW@
{
    (void)device, (void)flags;
    *out_stream = @ID@_queue_create();
    if (*out_stream != NULL) return DTL_SUCCESS;
    return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory or thread for another stream");
}

/* Destroys a stream. Work that is queued must still run: the slot may wait for it, or let it end
 * later. */
static dtl_status_t stream_destroy(void *self, void *stream)@NOTHROW@
{
    (void)self;
    @ID@_queue_destroy((@ID@_queue_t *)stream);
    return DTL_SUCCESS;
}

/* Waits for all work in the stream. If work failed, returns the first failure, once. A job returns
 * only a number: keep the cause in the queue as well (the driver's code and message), and pass it
 * to @ID@_fail here. Users see no other description of the failure. */
static dtl_status_t stream_synchronize(void *self, void *stream)@NOTHROW@
{
    @ID@_queue_t *queue = (@ID@_queue_t *)stream;
    @ID@_fence_t *end = @ID@_fence_create(queue);
    if (end == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a fence");
    (void)@ID@_fence_wait(end);
    @ID@_fence_release(end);
    const dtl_status_t status = @ID@_queue_error(queue, 1);
    return status == DTL_SUCCESS ? status : @ID@_fail(self, status, "work in the stream failed");
}

/* Optional. Writes 1 if all work in the stream is done, otherwise 0; must not wait.
 * NULL: the library records and queries an event. */
static dtl_status_t stream_query(void *self, void *stream, int32_t *out_done)@NOTHROW@
{
    @ID@_queue_t *queue = (@ID@_queue_t *)stream;
    *out_done = @ID@_queue_is_idle(queue);
    const dtl_status_t status = *out_done ? @ID@_queue_error(queue, 0) : DTL_SUCCESS;
    return status == DTL_SUCCESS ? status : @ID@_fail(self, status, "work in the stream failed");
}

typedef struct call_t {
    dtl_task_fn_t function;
    void *user;
} call_t;

static int run_call(void *argument)
{
    call_t *call = (call_t *)argument;
    DTL_IGNORE(call->function(call->user)); /* the library records its status itself */
    free(call);
    return DTL_SUCCESS;
}

/* Optional. Queues a call of function(user) on a host thread, after the work queued before.
 * NULL: the calling thread waits for the stream, then calls the function. */
static dtl_status_t stream_host_callback(void *self, void *stream, dtl_task_fn_t function,
                                         void *user)@NOTHROW@
{
    call_t *call = (call_t *)malloc(sizeof *call);
    if (call != NULL) {
        call->function = function;
        call->user = user;
        if (@ID@_queue_push((@ID@_queue_t *)stream, run_call, call) == 0) return DTL_SUCCESS;
        free(call);
    }
    return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a callback");
}

/* ---- events: event_create, event_destroy, event_record and event_query, or none of them ---- */

/* An event has the fence of its last record. A wait keeps a reference to that fence, because the
 * event may be recorded again or destroyed meanwhile. */
typedef struct event_t {
    pthread_mutex_t lock;
    @ID@_fence_t *fence; /* NULL: never recorded, which counts as complete */
} event_t;

/* Creates an event. `flags` may have DTL_EVENT_NO_TIMING. */
static dtl_status_t event_create(void *self, uint64_t flags, void **out_event)@NOTHROW@
{
    event_t *event = (event_t *)calloc(1, sizeof *event);
    (void)flags;
    if (event == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for an event");
    pthread_mutex_init(&event->lock, NULL);
    *out_event = event;
    return DTL_SUCCESS;
}

/* Destroys an event. Streams that wait for its last record still wait. */
static dtl_status_t event_destroy(void *self, void *argument)@NOTHROW@
{
    event_t *event = (event_t *)argument;
    (void)self;
    @ID@_fence_release(event->fence);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return DTL_SUCCESS;
}

static @ID@_fence_t *fence_of(void *argument)
{
    event_t *event = (event_t *)argument;
    pthread_mutex_lock(&event->lock);
    @ID@_fence_t *fence = @ID@_fence_keep(event->fence);
    pthread_mutex_unlock(&event->lock);
    return fence;
}

/* Records the event at the current end of the stream. It replaces an earlier record. */
static dtl_status_t event_record(void *self, void *argument, void *stream)@NOTHROW@
{
    event_t *event = (event_t *)argument;
    @ID@_fence_t *made = @ID@_fence_create((@ID@_queue_t *)stream);
    if (made == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a fence");
    pthread_mutex_lock(&event->lock);
    @ID@_fence_t *before = event->fence;
    event->fence = made;
    pthread_mutex_unlock(&event->lock);
    @ID@_fence_release(before);
    return DTL_SUCCESS;
}

/* Releases the fence of an event, and sets the text of a failure. */
static dtl_status_t reported(void *self, @ID@_fence_t *fence, dtl_status_t status)
{
    @ID@_fence_release(fence);
    return status == DTL_SUCCESS ? status : @ID@_fail(self, status, "work before the event failed");
}

/* Writes 1 if the work before the record is done or the event was never recorded, otherwise 0. If
 * that work failed, returns the failure, each time until the event is recorded again. */
static dtl_status_t event_query(void *self, void *event, int32_t *out_done)@NOTHROW@
{
    @ID@_fence_t *fence = fence_of(event);
    *out_done = fence == NULL || @ID@_fence_is_done(fence);
    return reported(self, fence, fence != NULL ? @ID@_fence_error(fence) : DTL_SUCCESS);
}

/* Optional. Waits for the event. NULL: the library polls event_query. */
static dtl_status_t event_sync(void *self, void *event)@NOTHROW@
{
    @ID@_fence_t *fence = fence_of(event);
    return reported(self, fence, fence != NULL ? @ID@_fence_wait(fence) : DTL_SUCCESS);
}

/* Optional. Writes the nanoseconds between two recorded, completed events.
 * NULL: DTL_ERROR_NOT_SUPPORTED. */
static dtl_status_t event_elapsed(void *self, void *start, void *stop, uint64_t *out_ns)@NOTHROW@
{
    @ID@_fence_t *from = fence_of(start), *to = fence_of(stop);
    const uint64_t begin = from != NULL ? @ID@_fence_time_ns(from) : 0;
    const uint64_t end = to != NULL ? @ID@_fence_time_ns(to) : 0;
    @ID@_fence_release(from);
    @ID@_fence_release(to);
    if (begin == 0 || end == 0) {
        return @ID@_fail(self, DTL_ERROR_INVALID_STATE, "an event is not recorded and complete");
    }
    if (end < begin) {
        return @ID@_fail(self, DTL_ERROR_INVALID_ARGUMENT, "`stop` was reached before `start`");
    }
    *out_ns = end - begin;
    return DTL_SUCCESS;
}

static int run_wait(void *argument)
{
    @ID@_fence_t *fence = (@ID@_fence_t *)argument;
    const int error = @ID@_fence_wait(fence); /* becomes a failure of the waiting stream, too */
    @ID@_fence_release(fence);
    return error;
}

/* Optional, of the streams. Makes work that is queued from now on wait for the event's last record.
 * NULL: the calling thread waits for the event. */
static dtl_status_t stream_wait_event(void *self, void *stream, void *event)@NOTHROW@
{
    @ID@_fence_t *fence = fence_of(event);
    if (fence == NULL) return DTL_SUCCESS;
    if (@ID@_queue_push((@ID@_queue_t *)stream, run_wait, fence) == 0) return DTL_SUCCESS;
    @ID@_fence_release(fence);
    return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a wait");
}

dtl_exec_vtable_t @ID@_exec_table(void)
{
    dtl_exec_vtable_t table = DTL_EXEC_VTABLE_INIT;
    table.stream_create = stream_create;
    table.stream_destroy = stream_destroy;
    table.stream_synchronize = stream_synchronize;
    table.stream_query = stream_query;
    table.stream_host_callback = stream_host_callback;
    table.event_create = event_create;
    table.event_destroy = event_destroy;
    table.event_record = event_record;
    table.event_query = event_query;
    table.event_sync = event_sync;
    table.event_elapsed = event_elapsed;
    table.stream_wait_event = stream_wait_event;
    @ID@_add_kernels(&table); /* without this line: DTL_ERROR_NOT_SUPPORTED for modules */
    /* Optional slots, and what happens while they are NULL:
     *
     *   launch (see dtl_exec_vtable_t in dtl_backend.h)
     *       Queues a kernel that the program made from a host function.
     *       NULL: the library runs it in a host callback of the stream.
     *   execute, parallel_for, max_parallelism: host execution, complete or absent; with them
     *   suggested_parallelism is optional.
     *       NULL: the library runs tasks and loops on its own threads. */
    return table;
}
