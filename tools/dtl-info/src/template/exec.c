/* @NAME@, the exec component: host execution. Streams, events and modules are further groups of
 * slots, see below. */
#include "@HEADER@"

/* (host execution) Runs function(user) on any thread and returns when it has run, with its status.
 * Called by several threads at once. */
static dtl_status_t exec_execute(void *self, dtl_task_fn_t function, void *user)@NOTHROW@
{
    (void)function, (void)user;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "exec_execute is not written yet");
}

/* (host execution) Runs the iterations begin to end-1, each once: calls body(from, to, user) for
 * chunks of at most `grain` (at least 1) iterations, and returns when all have run. Several threads
 * call it at once, and a body may call it again.
 * Errors: the first failing status of a chunk. Chunks that have not started are then skipped. */
static dtl_status_t exec_parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain,
                                      dtl_range_fn_t body, void *user)@NOTHROW@
{
    (void)begin, (void)end, (void)grain, (void)body, (void)user;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "exec_parallel_for is not written yet");
}

/* (host execution) Writes the maximum number of chunks that run at the same time, at least 1. */
static dtl_status_t exec_max_parallelism(void *self, uint32_t *out_threads)@NOTHROW@
{
    (void)out_threads;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "exec_max_parallelism is not written yet");
}

dtl_exec_vtable_t @ID@_exec_table(void)
{
    dtl_exec_vtable_t table = DTL_EXEC_VTABLE_INIT;
    table.execute = exec_execute;
    table.parallel_for = exec_parallel_for;
    table.max_parallelism = exec_max_parallelism;
    /* Optional: suggested_parallelism (NULL: max_parallelism), and three groups, each complete or
     * absent. Signatures and rules are at dtl_exec_vtable_t in dtl_backend.h.
     *
     *   streams: stream_create, stream_destroy, stream_synchronize; optional with them
     *            stream_query, stream_wait_event, stream_host_callback, launch.
     *   events:  event_create, event_destroy, event_record, event_query; optional with them
     *            event_sync, event_elapsed. They need the streams.
     *   modules: module_compile, module_destroy, kernel_get, kernel_destroy, kernel_launch: kernels
     *            from source. They need the streams. Absent: DTL_ERROR_NOT_SUPPORTED.
     *
     * Absent streams and events: the library implements them on host threads. A backend with
     * streams may leave the host execution absent as well. */
    return table;
}
