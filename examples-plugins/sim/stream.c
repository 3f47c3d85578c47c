/* The exec component, streams: each is a queue of the card. */
#include "sim.h"

#include <stdlib.h>

static dtl_status_t stream_priorities(void *self, int32_t device, int32_t *out_least,
                                      int32_t *out_greatest)
{
    (void)self, (void)device;
    *out_least = CARD_LEAST, *out_greatest = CARD_GREATEST;
    return DTL_SUCCESS;
}

static dtl_status_t stream_create_with_priority(void *self, int32_t device, uint64_t flags,
                                                int32_t priority, void **out_stream)
{
    sim_stream_t *stream = calloc(1, sizeof *stream);
    (void)self, (void)flags;
    if (stream == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    stream->device = device, stream->priority = priority;
    stream->queue = vc_queue_create();
    if (stream->queue == NULL) {
        free(stream);
        return sim_fail(DTL_ERROR_OUT_OF_MEMORY, "no thread for another stream; see ulimit -u");
    }
    sim_trace_stream(stream);
    *out_stream = stream;
    return DTL_SUCCESS;
}

static dtl_status_t stream_create(void *self, int32_t device, uint64_t flags, void **out_stream)
{
    return stream_create_with_priority(self, device, flags, 0, out_stream);
}

static dtl_status_t stream_destroy(void *self, void *stream)
{
    (void)self;
    vc_queue_destroy(((sim_stream_t *)stream)->queue); /* waits: queued work is not lost */
    sim_trace_gone(stream);
    free(stream);
    return DTL_SUCCESS;
}

static dtl_status_t failure(vc_queue_t *queue, int clear)
{
    const dtl_status_t status = vc_queue_error(queue, clear);
    return status == DTL_SUCCESS ? status : sim_fail(status, "a command of the stream failed");
}

static dtl_status_t stream_synchronize(void *self, void *stream)
{
    vc_queue_t *queue = ((sim_stream_t *)stream)->queue;
    vc_fence_t *end = vc_fence_create(queue);
    (void)self;
    if (end == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    vc_fence_wait(end);
    vc_fence_release(end);
    return failure(queue, 1); /* reported once */
}

static dtl_status_t stream_query(void *self, void *stream, int32_t *out_done)
{
    vc_queue_t *queue = ((sim_stream_t *)stream)->queue;
    (void)self;
    *out_done = vc_queue_is_idle(queue);
    return *out_done ? failure(queue, 0) : DTL_SUCCESS;
}

void sim_drop(sim_job_t *job)
{
    free(job);
}

static int execute(void *argument)
{
    sim_job_t *job = argument;
    dtl_status_t status = DTL_SUCCESS;
    if (job->operation != NULL) status = sim_command(job->stream->device, job->operation);
    if (status == DTL_SUCCESS) {
        const uint64_t begin = job->operation != NULL ? sim_trace_begin(job->stream) : 0;
        status = job->run(job);
        sim_trace_end(job, begin);
    }
    job->drop(job);
    return status;
}

dtl_status_t sim_push(void *stream, void *argument, const char *operation,
                      dtl_status_t (*run)(sim_job_t *job), void (*drop)(sim_job_t *job))
{
    sim_job_t *job = argument;
    if (job == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    job->run = run, job->drop = drop, job->operation = operation, job->stream = stream;
    if (vc_queue_push(job->stream->queue, execute, job) == 0) return DTL_SUCCESS;
    drop(job);
    return DTL_ERROR_OUT_OF_MEMORY;
}

typedef struct call_t {
    sim_job_t job;
    dtl_task_fn_t function;
    void *user;
} call_t;

static dtl_status_t run_call(sim_job_t *job)
{
    const call_t *call = (const call_t *)job;
    DTL_IGNORE(call->function(call->user)); /* the library records its status itself */
    return DTL_SUCCESS;
}

static dtl_status_t stream_host_callback(void *self, void *stream, dtl_task_fn_t function,
                                         void *user)
{
    call_t *call = calloc(1, sizeof *call);
    (void)self;
    if (call != NULL) call->function = function, call->user = user;
    return sim_push(stream, call, NULL, run_call, sim_drop);
}

void sim_add_streams(dtl_exec_vtable_t *exec)
{
    exec->stream_create = stream_create;
    exec->stream_priorities = stream_priorities;
    exec->stream_create_with_priority = stream_create_with_priority;
    exec->stream_destroy = stream_destroy;
    exec->stream_synchronize = stream_synchronize;
    exec->stream_query = stream_query;
    exec->stream_host_callback = stream_host_callback;
}
