/* @NAME@, the exec component: host execution. Streams and events are two more groups of slots; see below. */
#include "@HEADER@"

/* (host execution) Runs function(user), anywhere, and returns when it has run; its status is the result. Several
 * threads at once. */
static dtl_status_t exec_execute(void *self, dtl_task_fn_t function, void *user)@NOTHROW@
{
    (void)function, (void)user;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "exec_execute is not written yet");
}

/* (host execution) Calls body(from, to, user) for pieces of at most `grain` (at least 1) iterations until begin …
 * end-1 are done, each once, and returns then. Several threads call it at once, and a body may call it again.
 * Errors: the first failing status of a piece; pieces not yet begun are then left out. */
static dtl_status_t exec_parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain,
                                      dtl_range_fn_t body, void *user)@NOTHROW@
{
    (void)begin, (void)end, (void)grain, (void)body, (void)user;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "exec_parallel_for is not written yet");
}

/* (host execution) The most pieces of a loop that ever run at the same time, at least 1. */
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
    /* Optional: suggested_parallelism (NULL: max_parallelism), and three groups, each whole or NULL. Their
     * signatures and rules are at dtl_exec_vtable_t in dtl.h.
     *
     *   streams: stream_create, stream_destroy, stream_synchronize; with them, if you like, stream_query,
     *            stream_wait_event, stream_host_callback, launch.
     *   events:  event_create, event_destroy, event_record, event_query; with them event_sync, event_elapsed.
     *            They need the streams.
     *   modules: module_compile, module_destroy, kernel_get, kernel_destroy, kernel_launch: kernels from source.
     *            They need the streams. NULL: DTL_ERROR_NOT_SUPPORTED.
     *
     * NULL: the library's own streams and events, on host threads. A backend with streams only may leave the host
     * execution NULL as well. */
    return table;
}
