/* A table of every function of dtl.h that a state of the library or a bad handle can refuse, each
 * with good arguments but for the handle in question. Not a test by itself: a new function of
 * dtl.h needs a line here (test_bad_input compares with tests/dtl.symbols). */
#ifndef DTL_TESTS_ENTRIES_H
#define DTL_TESTS_ENTRIES_H

#include "far.h"

/* Which handle of the call is in question. */
enum noun { NONE, BACKEND, STREAM, EVENT, EXECUTOR, KERNEL, COMM, REQUEST, MESSAGE, POOL, WIN, MODULE, ARRAY, POLICY, DISPATCHER, REGISTRATION };

struct handles {
    dtl_backend_t backend;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_executor_t executor;
    dtl_kernel_t kernel;
    dtl_comm_t comm;
    dtl_request_t request;
    dtl_message_t message;
    dtl_pool_t pool;
    dtl_win_t win;
    dtl_module_t module;
    dtl_array_t array;
    dtl_policy_t policy;
    dtl_dispatcher_t dispatcher;
    dtl_registration_t registration;
};

/* Everything that calls write to; compared bytewise after a failure. */
struct outputs {
    uint64_t word, second;
    int32_t number, other;
    void* pointer;
    const char* name;
    struct handles handles;
    char text[16], data[64];
    dtl_backend_info_t backend_info;
    dtl_plugin_info_t plugin_info;
    dtl_environment_info_t environment_info;
    dtl_device_info_t device_info;
    dtl_mem_kind_info_t kind_info;
    dtl_mem_stats_t stats;
    dtl_mem_info_t mem_info;
    dtl_mem_handle_t mem_handle;
    dtl_executor_info_t executor_info;
    dtl_comm_info_t comm_info;
    dtl_win_info_t win_info;
    dtl_array_info_t array_info;
    dtl_dlpack_tensor_t tensor;
    dtl_dlpack_versioned_t* versioned;
    dtl_dlpack_managed_t* managed;
    dtl_topology_t topology;
    dtl_comm_topology_t comm_topology;
    dtl_recv_info_t recv_info;
    dtl_request_t requests[1];
    dtl_resource_t resources[2];
    dtl_policy_stats_t policy_stats[2];
    dtl_policy_traits_t policy_traits;
    dtl_submission_t submission;
};

static inline void poison(struct outputs* outputs) {
    memset(outputs, 0x5A, sizeof *outputs);
    outputs->backend_info.struct_size = sizeof outputs->backend_info;
    outputs->plugin_info.struct_size = sizeof outputs->plugin_info;
    outputs->environment_info.struct_size = sizeof outputs->environment_info;
    outputs->device_info.struct_size = sizeof outputs->device_info;
    outputs->kind_info.struct_size = sizeof outputs->kind_info;
    outputs->stats.struct_size = sizeof outputs->stats;
    outputs->mem_info.struct_size = sizeof outputs->mem_info;
    outputs->executor_info.struct_size = sizeof outputs->executor_info;
    outputs->comm_info.struct_size = sizeof outputs->comm_info;
    outputs->win_info.struct_size = sizeof outputs->win_info;
    outputs->array_info.struct_size = sizeof outputs->array_info;
    outputs->topology.struct_size = sizeof outputs->topology;
    outputs->comm_topology.struct_size = sizeof outputs->comm_topology;
    outputs->policy_traits.struct_size = sizeof outputs->policy_traits;
}

static inline dtl_status_t e_task(void* user) { return (void)user, DTL_SUCCESS; }
static inline dtl_status_t e_range(uint64_t b, uint64_t e, void* user) { return (void)b, (void)e, (void)user, DTL_SUCCESS; }
static inline dtl_status_t e_fold(uint64_t b, uint64_t e, void* acc, void* user) {
    return (void)b, (void)e, (void)acc, (void)user, DTL_SUCCESS;
}
static inline void e_combine(void* into, const void* from, void* user) { (void)into, (void)from, (void)user; }
static inline dtl_status_t e_kernel(const dtl_kernel_context_t* c, const void* const* a) { return (void)c, (void)a, DTL_SUCCESS; }

static inline void e_op(const void* in, void* inout, uint64_t count, dtl_dtype_t dtype, void* user) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)user;
}

static inline dtl_status_t e_selected(const dtl_resource_t* r, void* arg, dtl_waitable_t* w) {
    return (void)r, (void)arg, (void)w, DTL_SUCCESS;
}
static const dtl_resource_t e_resources[2] = {{1, NULL}, {2, NULL}};
static const dtl_task_key_t e_key = {0, 0};
/* A submission and a selection that are in flight in a policy. */
static inline dtl_submission_t* e_submission(const struct handles* handles) {
    static dtl_submission_t submission;
    submission.policy = handles->policy, submission.ticket = 1;
    return &submission;
}
static inline const dtl_selection_t* e_selection(const struct handles* handles) {
    static dtl_selection_t selection;
    selection.policy = handles->policy, selection.ticket = 1;
    return &selection;
}

static const dtl_launch_t e_launch = DTL_LAUNCH_INIT;
static char e_source[64];
static const dtl_source_t e_text = {sizeof(dtl_source_t), 0, 0, "int e_nothing;", 0, NULL, NULL, NULL, NULL, 0, 0};
static const dtl_mem_handle_t e_handle = {{1}};
static int64_t e_shape[2] = {2, 3};
static double e_elements[6];
static dtl_dlpack_managed_t e_managed = {{e_elements, {1, 0}, 2, {2, 64, 1}, e_shape, NULL, 0}, NULL, NULL};
static dtl_dlpack_versioned_t e_versioned = {{1, 0}, NULL, NULL, 0, {e_elements, {1, 0}, 2, {2, 64, 1}, e_shape, NULL, 0}};
static int32_t e_dims[2];
static const int32_t e_grid[4] = {3, 2, 1, 1};

static inline dtl_status_t e_handler(const dtl_dispatch_query_t* q, dtl_event_t* e, void* u) { return (void)q, (void)e, (void)u, DTL_SUCCESS; }
static const dtl_dispatch_key_t e_keys[2] = {{DTL_OPERATION_COPY, 0, 0, 0, {0, 0}}, {DTL_OPERATION_ALLOC, 0, 0, 0, {0, 0}}};
static const dtl_dispatch_query_t e_query = {sizeof(dtl_dispatch_query_t), 0, DTL_OPERATION_LAUNCH, 0, 0, 0, NULL};
static const dtl_dispatch_handler_t e_made = {sizeof(dtl_dispatch_handler_t), 0, 0, "e", NULL, NULL, e_handler, NULL, NULL, {0}};

#include "entries_comm.h"

/* X(noun in question, function, arguments): `h` are the handles, `o` the outputs. */
#define ENTRIES(X)                                                                                \
    X(NONE, dtl_explain, (o->text, sizeof o->text, &o->word))                                     \
    X(NONE, dtl_trace_start, ("/no/such/folder/trace.json"))                                      \
    X(NONE, dtl_trace_stop, ())                                                                   \
    X(NONE, dtl_trace_set_callbacks, (NULL))                                                      \
    X(NONE, dtl_launch_history_set_capacity, (0))                                                       \
    X(NONE, dtl_launch_history_read, (NULL, NULL, 0, &o->word))                                   \
    X(NONE, dtl_backend_register, (NULL, NULL, NULL, 0, &o->handles.backend))                     \
    X(BACKEND, dtl_backend_unregister, (h->backend))                                              \
    X(NONE, dtl_backend_get, ("host", &o->handles.backend))                                       \
    X(NONE, dtl_backend_require, ("host", &o->handles.backend))                                   \
    X(NONE, dtl_backend_count, (&o->word))                                                        \
    X(NONE, dtl_backend_at, (0, &o->handles.backend))                                             \
    X(NONE, dtl_backend_load, ("/no/such/plugin.so", &o->handles.backend))                        \
    X(NONE, dtl_backend_load_dir, ("/no/such/folder", &o->word))                                  \
    X(NONE, dtl_plugin_register, (NULL, &o->handles.backend))                                     \
    X(NONE, dtl_plugin_count, (&o->word))                                                         \
    X(NONE, dtl_plugin_at, (0, &o->plugin_info))                                                  \
    X(NONE, dtl_environment_register, (NULL))                                                     \
    X(NONE, dtl_environment_unregister, ("none"))                                                 \
    X(NONE, dtl_environment_require, ("none"))                                                    \
    X(NONE, dtl_environment_release, ("none"))                                                    \
    X(NONE, dtl_environment_state, ("none", &o->pointer))                                         \
    X(NONE, dtl_environment_is_available, ("none", &o->number, o->text, sizeof o->text, NULL))    \
    X(NONE, dtl_environment_count, (&o->word))                                                    \
    X(NONE, dtl_environment_at, (0, &o->environment_info))                                        \
    X(NONE, dtl_environment_info, ("none", &o->environment_info))                                 \
    X(BACKEND, dtl_backend_info, (h->backend, &o->backend_info))                                  \
    X(BACKEND, dtl_backend_is_available, (h->backend, &o->number, o->text, sizeof o->text, NULL))       \
    X(BACKEND, dtl_backend_supports, (h->backend, "exec", &o->number))                            \
    X(BACKEND, dtl_backend_self_test, (h->backend, o->text, sizeof o->text, &o->word))            \
    X(BACKEND, dtl_backend_device_count, (h->backend, &o->number))                                \
    X(BACKEND, dtl_backend_set_device, (h->backend, 0))                                           \
    X(BACKEND, dtl_backend_get_device, (h->backend, &o->number))                                  \
    X(BACKEND, dtl_backend_dlpack_device, (h->backend, 0, &o->number, &o->other))                 \
    X(BACKEND, dtl_device_info, (h->backend, 0, &o->device_info))                                 \
    X(BACKEND, dtl_device_memory_info, (h->backend, 0, &o->word, &o->second))                     \
    X(BACKEND, dtl_device_wait, (h->backend, 0, DTL_TIMEOUT_INFINITE))                            \
    X(BACKEND, dtl_mem_alloc, (h->backend, DTL_MEMORY_HOST, 64, 0, &o->pointer))                  \
    X(BACKEND, dtl_mem_free, (h->backend, NULL))                                                  \
    X(BACKEND, dtl_mem_kind_info, (h->backend, DTL_MEMORY_HOST, &o->kind_info))                   \
    X(BACKEND, dtl_mem_stats, (h->backend, &o->stats))                                            \
    X(BACKEND, dtl_mem_trim, (h->backend))                                                        \
    X(BACKEND, dtl_pool_create, (h->backend, DTL_MEMORY_HOST, NULL, &o->handles.pool))            \
    X(POOL, dtl_pool_alloc, (h->pool, 64, 0, &o->pointer))                                        \
    X(POOL, dtl_pool_free, (h->pool, NULL))                                                       \
    X(POOL, dtl_pool_trim, (h->pool, 0))                                                          \
    X(POOL, dtl_pool_stats, (h->pool, &o->stats))                                                 \
    X(POOL, dtl_pool_destroy, (h->pool))                                                          \
    X(BACKEND, dtl_array_alloc, (h->backend, DTL_MEMORY_HOST, e_shape, 2, DTL_DTYPE_INT32, 0, &o->handles.array)) \
    X(ARRAY, dtl_array_info, (h->array, &o->array_info))                                          \
    X(ARRAY, dtl_array_view, (h->array, &o->tensor))                                              \
    X(ARRAY, dtl_array_export, (h->array, &o->versioned))                                         \
    X(ARRAY, dtl_array_export_unversioned, (h->array, &o->managed))                               \
    X(BACKEND, dtl_array_import, (h->backend, &e_versioned, &o->handles.array))                   \
    X(BACKEND, dtl_array_import_unversioned, (h->backend, &e_managed, &o->handles.array))         \
    X(ARRAY, dtl_array_copy, (h->array, h->backend, DTL_MEMORY_HOST, &o->handles.array))          \
    X(ARRAY, dtl_array_destroy, (h->array))                                                       \
    X(NONE, dtl_mem_query, (e_source, &o->mem_info))                                              \
    X(NONE, dtl_mem_export, (e_source, &o->mem_handle))                                           \
    X(BACKEND, dtl_mem_import, (h->backend, &e_handle, &o->pointer, &o->word))                    \
    X(NONE, dtl_mem_export_dmabuf, (e_source, 64, &o->number, &o->word))                          \
    X(BACKEND, dtl_mem_register_host, (h->backend, o->data, 64))                                  \
    X(BACKEND, dtl_mem_unregister_host, (h->backend, o->data))                                    \
    X(BACKEND, dtl_mem_adopt, (h->backend, 0, DTL_MEMORY_HOST, o->data, 64))                      \
    X(BACKEND, dtl_mem_release, (h->backend, o->data))                                            \
    X(NONE, dtl_mem_copy, (o->data, e_source, 64))                                                \
    X(NONE, dtl_mem_copy_2d, (o->data, 8, e_source, 8, 8, 8))                                     \
    X(NONE, dtl_mem_copy_strided, (o->data, NULL, e_source, NULL, e_shape, 2, 4))                 \
    X(NONE, dtl_mem_fill, (o->data, 1, 64))                                                       \
    X(BACKEND, dtl_mem_to_device, (h->backend, e_source, 64, &o->pointer))                        \
    X(BACKEND, dtl_mem_to_host, (h->backend, e_source, o->data, 64))                              \
    X(BACKEND, dtl_stream_create, (h->backend, 0, 0, &o->handles.stream))                         \
    X(BACKEND, dtl_stream_create_with_priority, (h->backend, 0, 0, 0, &o->handles.stream))        \
    X(BACKEND, dtl_stream_priority_range, (h->backend, 0, &o->number, &o->other))                 \
    X(STREAM, dtl_stream_destroy, (h->stream))                                                    \
    X(STREAM, dtl_stream_wait, (h->stream, DTL_TIMEOUT_INFINITE))                                 \
    X(STREAM, dtl_stream_query, (h->stream, &o->number))                                          \
    X(STREAM, dtl_stream_wait_event, (h->stream, h->event))                                       \
    X(EVENT, dtl_stream_wait_event, (h->stream, h->event))                                        \
    X(BACKEND, dtl_stream_default, (h->backend, 0, &o->handles.stream))                           \
    X(BACKEND, dtl_stream_wrap, (h->backend, e_source, &o->handles.stream))                       \
    X(STREAM, dtl_stream_native, (h->stream, &o->pointer))                                        \
    X(STREAM, dtl_stream_host_callback, (h->stream, e_task, NULL))                                \
    X(STREAM, dtl_mem_copy_async, (h->stream, o->data, e_source, 64))                             \
    X(STREAM, dtl_mem_fill_async, (h->stream, o->data, 1, 64))                                    \
    X(STREAM, dtl_mem_alloc_async, (h->stream, DTL_MEMORY_HOST, 64, 0, &o->pointer))              \
    X(STREAM, dtl_mem_free_async, (h->stream, NULL))                                              \
    X(STREAM, dtl_mem_prefetch, (h->stream, o->data, 64, 0))                                      \
    X(BACKEND, dtl_event_create, (h->backend, 0, &o->handles.event))                              \
    X(EVENT, dtl_event_destroy, (h->event))                                                       \
    X(EVENT, dtl_event_record, (h->event, h->stream))                                             \
    X(STREAM, dtl_event_record, (h->event, h->stream))                                            \
    X(EVENT, dtl_event_wait, (h->event, 0))                                                       \
    X(EVENT, dtl_event_query, (h->event, &o->number))                                             \
    X(EVENT, dtl_event_elapsed_ns, (h->event, h->event, &o->word))                                \
    X(BACKEND, dtl_executor_create, (h->backend, NULL, &o->handles.executor))                     \
    X(EXECUTOR, dtl_executor_destroy, (h->executor))                                              \
    X(EXECUTOR, dtl_executor_run, (h->executor, e_task, NULL))                                    \
    X(EXECUTOR, dtl_executor_run_async, (h->executor, e_task, NULL, h->event))                    \
    X(EVENT, dtl_executor_run_async, (h->executor, e_task, NULL, h->event))                       \
    X(EXECUTOR, dtl_executor_parallel_for, (h->executor, 0, 9, 1, e_range, NULL))                 \
    X(EXECUTOR, dtl_executor_parallel_reduce,                                                     \
        (h->executor, 0, 9, 1, 8, e_source, e_fold, e_combine, NULL, o->data))                    \
    X(EXECUTOR, dtl_executor_wait, (h->executor, DTL_TIMEOUT_INFINITE))                           \
    X(EXECUTOR, dtl_executor_info, (h->executor, &o->executor_info))                              \
    X(BACKEND, dtl_kernel_from_function, (h->backend, e_kernel, NULL, &o->handles.kernel))        \
    X(BACKEND, dtl_module_compile, (h->backend, 0, &e_text, &o->handles.module))                  \
    X(MODULE, dtl_module_log, (h->module, o->text, sizeof o->text, &o->word))                     \
    X(MODULE, dtl_module_destroy, (h->module))                                                    \
    X(MODULE, dtl_kernel_get, (h->module, "k", NULL, &o->handles.kernel))                         \
    X(NONE, dtl_policy_create, ("fixed", e_resources, 2, NULL, &o->handles.policy))               \
    X(NONE, dtl_policy_create_custom, (NULL, NULL, e_resources, 2, NULL, &o->handles.policy))     \
    X(POLICY, dtl_policy_initialize, (h->policy, e_resources, 2, NULL))                           \
    X(POLICY, dtl_policy_retain, (h->policy))                                                     \
    X(POLICY, dtl_policy_release, (h->policy))                                                    \
    X(POLICY, dtl_policy_resources, (h->policy, o->resources, 2, &o->word))                       \
    X(POLICY, dtl_policy_stats, (h->policy, o->policy_stats, 2, &o->word))                        \
    X(POLICY, dtl_policy_traits, (h->policy, &o->policy_traits))                                  \
    X(POLICY, dtl_policy_submit, (h->policy, e_key, e_selected, NULL, 0, &o->submission))         \
    X(POLICY, dtl_policy_try_submit, (h->policy, e_key, e_selected, NULL, &o->submission))        \
    X(POLICY, dtl_policy_submit_and_wait, (h->policy, e_key, e_selected, NULL, 0))                \
    X(POLICY, dtl_policy_wait_all, (h->policy, 0))                                                \
    X(POLICY, dtl_submission_wait, (e_submission(h), 0))                                          \
    X(POLICY, dtl_submission_release, (e_submission(h)))                                          \
    X(POLICY, dtl_submission_resource, (e_submission(h), o->resources))                           \
    X(POLICY, dtl_selection_end, (e_selection(h), DTL_SUCCESS, 0))                                \
    X(KERNEL, dtl_kernel_destroy, (h->kernel))                                                    \
    X(KERNEL, dtl_kernel_launch, (h->stream, h->kernel, &e_launch, NULL, NULL, 0))                \
    X(STREAM, dtl_kernel_launch, (h->stream, h->kernel, &e_launch, NULL, NULL, 0))                \
    X(NONE, dtl_dispatcher_create, (0, &o->handles.dispatcher))                                   \
    X(DISPATCHER, dtl_dispatcher_destroy, (h->dispatcher))                                        \
    X(DISPATCHER, dtl_dispatch_register, (h->dispatcher, &e_keys[1], 1, &e_made, &o->handles.registration)) \
    X(DISPATCHER, dtl_dispatch_unregister, (h->dispatcher, h->registration))                      \
    X(REGISTRATION, dtl_dispatch_unregister, (h->dispatcher, h->registration))                    \
    X(DISPATCHER, dtl_dispatch_find, (h->dispatcher, &e_query, &o->handles.registration))         \
    X(DISPATCHER, dtl_dispatch_invoke, (h->dispatcher, &e_query, &o->handles.event))              \
    X(DISPATCHER, dtl_dispatch_explain, (h->dispatcher, &e_query, o->text, sizeof o->text, &o->word)) \
    X(NONE, dtl_dtype_create, (8, "pair", &o->number))                                            \
    X(NONE, dtl_dtype_destroy, (4096))                                                            \
    X(NONE, dtl_dtype_size, (DTL_DTYPE_INT8, &o->word))                                           \
    X(NONE, dtl_dtype_name, (DTL_DTYPE_INT8, &o->name))                                           \
    X(NONE, dtl_op_create, (e_op, NULL, 0, "op", &o->number))                                     \
    X(NONE, dtl_op_destroy, (4096))                                                               \
    X(NONE, dtl_op_name, (DTL_OP_SUM, &o->name))                                                  \
    COMM_ENTRIES(X)                                                                               \
    X(NONE, dtl_topology, (&o->topology))                                                         \
    X(NONE, dtl_affinity, (NULL, 0, &o->word))                                                    \
    X(COMM, dtl_comm_topology, (h->comm, &o->comm_topology))                                      \
    X(COMM, dtl_comm_node_of, (h->comm, 0, &o->number))                                           \
    X(NONE, dtl_cart_dims, (6, e_dims, 2))                                                        \
    X(NONE, dtl_cart_rank, (e_grid, NULL, e_grid + 2, 2, &o->number))                             \
    X(NONE, dtl_cart_coords, (e_grid, 2, 1, &o->number))                                          \
    X(NONE, dtl_cart_shift, (e_grid, NULL, 2, 1, 0, 1, &o->number, &o->other))

typedef dtl_status_t (*entry_fn)(const struct handles*, struct outputs*);

struct entry {
    enum noun noun;
    const char* name;
    entry_fn call;
};

#define X(noun, function, arguments)                                                              \
    static inline dtl_status_t noun##_##function(const struct handles* h, struct outputs* o) {    \
        (void)h, (void)o;                                                                         \
        return function arguments;                                                                \
    }
ENTRIES(X)
#undef X

#define X(noun, function, arguments) {noun, #function, noun##_##function},
static const struct entry entries[] = {ENTRIES(X)};
#undef X
#define ENTRY_COUNT (sizeof entries / sizeof entries[0])

/* Calls an entry that must fail with a status, say something, and write nothing. */
static inline void must_fail(const struct entry* entry, const struct handles* handles, dtl_status_t expected) {
    struct outputs outputs, before;
    dtl_status_t got;
    poison(&outputs);
    outputs.requests[0] = handles->request;
    memcpy(&before, &outputs, sizeof before);
    got = entry->call(handles, &outputs);
    if (got != expected || dtl_last_error()[0] == 0 || memcmp(&before, &outputs, sizeof before) != 0) {
        fprintf(stderr, "%s: %s instead of %s%s; last error: %s\n", entry->name, dtl_status_name(got),
                dtl_status_name(expected), memcmp(&before, &outputs, sizeof before) ? ", and outputs were written" : "",
                dtl_last_error());
        exit(1);
    }
}

/* Every function answers the status: the library is closed, or this is a forked child. */
static inline void all_must_fail(const struct handles* handles, dtl_status_t expected) {
    size_t i;
    for (i = 0; i < ENTRY_COUNT; i++) must_fail(&entries[i], handles, expected);
    CHECK(dtl_backend_name(handles->backend) == NULL);
}

/* One live object of each type; the request is one that stays in flight. */
static inline void make_handles(struct handles* handles) {
    static char buffer[8];
    dtl_comm_desc_t self = DTL_COMM_DESC_INIT;
    memset(handles, 0, sizeof *handles);
    self.kind = "self";
    CHECK_OK(dtl_backend_get("host", &handles->backend));
    CHECK_OK(dtl_stream_create(handles->backend, 0, 0, &handles->stream));
    CHECK_OK(dtl_event_create(handles->backend, 0, &handles->event));
    CHECK_OK(dtl_executor_create(handles->backend, NULL, &handles->executor));
    CHECK_OK(dtl_kernel_from_function(handles->backend, e_kernel, NULL, &handles->kernel));
    CHECK_OK(dtl_module_compile(handles->backend, 0, &e_text, &handles->module));
    CHECK_OK(dtl_pool_create(handles->backend, DTL_MEMORY_HOST, NULL, &handles->pool));
    CHECK_OK(dtl_array_alloc(handles->backend, DTL_MEMORY_HOST, e_shape, 2, DTL_DTYPE_INT32, 0, &handles->array));
    CHECK_OK(dtl_policy_create("round_robin", e_resources, 2, NULL, &handles->policy));
    CHECK_OK(dtl_dispatcher_create(0, &handles->dispatcher));
    CHECK_OK(dtl_dispatch_register(handles->dispatcher, e_keys, 1, &e_made, &handles->registration));
    CHECK_OK(dtl_comm_open(&self, &handles->comm));
    CHECK_OK(dtl_comm_irecv(handles->comm, buffer, 8, DTL_DTYPE_BYTE, 0, 1, &handles->request));
    CHECK_OK(dtl_comm_mprobe(handles->comm, DTL_PROC_NULL, 0, &handles->message, NULL));
    CHECK_OK(dtl_win_create(handles->comm, buffer, 8, 1, &handles->win));
}

/* Destroys them; the request and the message end with their communicator. */
static inline void destroy_handles(const struct handles* handles) {
    CHECK_OK(dtl_dispatcher_destroy(handles->dispatcher));
    CHECK_OK(dtl_win_destroy(handles->win));
    CHECK_OK(dtl_comm_destroy(handles->comm));
    CHECK_OK(dtl_policy_release(handles->policy));
    CHECK_OK(dtl_array_destroy(handles->array));
    CHECK_OK(dtl_pool_destroy(handles->pool));
    CHECK_OK(dtl_kernel_destroy(handles->kernel));
    CHECK_OK(dtl_module_destroy(handles->module));
    CHECK_OK(dtl_executor_destroy(handles->executor));
    CHECK_OK(dtl_event_destroy(handles->event));
    CHECK_OK(dtl_stream_destroy(handles->stream));
}

#endif
