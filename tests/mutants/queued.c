/* What is queued in streams and has no table of its own: waits for events and host callbacks. */
#include "streams.h"

#include <stdlib.h>

/* A wait of a stream for an event. */
typedef struct wait_t {
    work_t work;
    fence_t *fence;
} wait_t;

static dtl_status_t run_wait(work_t *work)
{
    const fence_t *fence = ((const wait_t *)work)->fence;
    pthread_mutex_lock(&exec_lock);
    while (!fence->is_done) {
        pthread_cond_wait(&exec_changed, &exec_lock);
    }
    const dtl_status_t status = fence->status;
    pthread_mutex_unlock(&exec_lock);
    return is_fault("exec.stream_wait_event.hides_failure") ? DTL_SUCCESS : status;
}

static void drop_wait(work_t *work)
{
    pthread_mutex_lock(&exec_lock);
    fence_unref(((wait_t *)work)->fence);
    pthread_mutex_unlock(&exec_lock);
    free(work);
}

dtl_status_t whole_stream_wait_event(void *self, void *stream, void *pointer)
{
    const event_t *event = pointer;
    static fence_t *previous;
    (void)self;
    if (is_fault("exec.stream_wait_event.ignored")) {
        return DTL_SUCCESS;
    }
    wait_t *wait = calloc(1, sizeof *wait);
    if (wait == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a wait");
    }
    pthread_mutex_lock(&exec_lock);
    fence_t *fence = event->fence;
    if (is_fault("exec.stream_wait_event.wrong_event")) {
        fence_t *latest = fence;
        fence = previous; /* that of the last call */
        previous = latest;
        if (latest != NULL) {
            latest->references++;
        }
    }
    if (fence == NULL) { /* never recorded: nothing to wait for */
        pthread_mutex_unlock(&exec_lock);
        free(wait);
        return DTL_SUCCESS;
    }
    fence->references++;
    pthread_mutex_unlock(&exec_lock);
    wait->work.run = run_wait;
    wait->work.drop = drop_wait;
    wait->fence = fence;
    if (is_fault("exec.stream_wait_event.caller_waits")) {
        const dtl_status_t status = run_wait(&wait->work);
        drop_wait(&wait->work);
        return status;
    }
    return stream_push(is_fault("exec.stream_wait_event.wrong_stream") ? stream_of_nobody() : stream, &wait->work);
}

/* A host callback. */
typedef struct call_t {
    work_t work;
    dtl_task_fn_t function;
    void *user;
} call_t;

static dtl_status_t run_call(work_t *work)
{
    const call_t *call = (const call_t *)work;
    dtl_status_t status = call->function(call->user);
    if (is_fault("exec.stream_host_callback.twice")) {
        status = call->function(call->user);
    }
    return status;
}

static void *call_apart(void *argument)
{
    work_t *work = argument;
    DTL_IGNORE(run_call(work));
    free(work);
    return NULL;
}

dtl_status_t whole_stream_host_callback(void *self, void *stream, dtl_task_fn_t function, void *user)
{
    static call_t *previous;
    static unsigned calls;
    (void)self;
    if (is_fault("exec.stream_host_callback.lost") && __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 50 == 0) {
        return DTL_SUCCESS;
    }
    call_t *call = calloc(1, sizeof *call);
    if (call == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a callback");
    }
    call->work.run = run_call;
    call->work.hides_failure = is_fault("exec.stream_host_callback.hides_failure");
    call->function = function;
    call->user = user;
    if (is_fault("exec.stream_host_callback.ahead_of_order")) {
        const dtl_status_t status = run_call(&call->work);
        free(call);
        return status;
    }
    if (is_fault("exec.stream_host_callback.own_thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, call_apart, call) == 0) {
            pthread_detach(thread);
            return DTL_SUCCESS;
        }
    }
    if (is_fault("exec.stream_host_callback.wrong_user")) { /* that of the call before */
        static void *last;
        void *own = call->user;
        call->user = last != NULL ? last : own;
        last = own;
    }
    if (is_fault("exec.stream_host_callback.swaps_neighbours")) {
        /* Every second one is kept back until the next; the streams' order is lost with it. */
        pthread_mutex_lock(&exec_lock);
        call_t *kept = previous;
        previous = kept == NULL ? call : NULL;
        pthread_mutex_unlock(&exec_lock);
        if (kept == NULL) {
            return DTL_SUCCESS;
        }
        const dtl_status_t status = stream_push(stream, &call->work);
        return status == DTL_SUCCESS ? stream_push(stream, &kept->work) : status;
    }
    return stream_push(stream, &call->work);
}
