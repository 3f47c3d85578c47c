/* The last dtl_finalize inside a function of the program's that the library calls: DTL_ERROR_BUSY, whichever function it
 * is, and nothing has changed. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>

static int calls;

/* What every function of this program does. */
static void inside(void) {
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
}

/* The functions since the last check ran, and the library goes on. */
static void was_called(const char* what) {
    int32_t ranks = 0;
    if (__atomic_exchange_n(&calls, 0, __ATOMIC_RELAXED) == 0) {
        fprintf(stderr, "%s was not called\n", what);
        exit(1);
    }
    CHECK_OK(dtl_comm_size(DTL_COMM_SELF, &ranks));
    CHECK(ranks == 1);
}

/* ---- policies ---- */

static const dtl_task_key_t no_key = {0, 0};
static const dtl_resource_t list[] = {{1, NULL}, {2, NULL}};

static dtl_status_t task(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    (void)resource, (void)left;
    inside();
    return arg == NULL ? DTL_SUCCESS : DTL_ERROR_TRUNCATED;
}
static dtl_status_t waiting(void* object, uint64_t timeout_ns) { return (void)object, (void)timeout_ns, inside(), DTL_SUCCESS; }
static dtl_status_t leaving(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    (void)resource, (void)arg;
    left->wait = waiting;
    return DTL_SUCCESS;
}
static dtl_status_t nested(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    (void)resource, (void)left;
    CHECK_OK(dtl_policy_submit_and_wait(*(dtl_policy_t*)arg, no_key, task, NULL, 0));
    inside(); /* the outer task still runs */
    return DTL_SUCCESS;
}
static dtl_status_t select_first(void* self, dtl_task_key_t key, uint32_t* out) {
    (void)self, (void)key;
    inside();
    *out = 0;
    return DTL_SUCCESS;
}
static void report(void* self, uint32_t index, dtl_task_key_t key, uint64_t info, int64_t value) {
    (void)self, (void)index, (void)key, (void)info, (void)value;
    inside();
}
static void destroy(void* self) { (void)self, inside(); }

static void policies(void) {
    static const char* const names[] = {"fixed", "round_robin", "dynamic_load", "auto_tune", "capacity"};
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
    dtl_policy_t policy;
    size_t i;
    int round;
    opts.kind = DTL_RESOURCES_INLINE;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_OK(dtl_policy_create(names[i], list, 2, &opts, &policy));
        for (round = 0; round < 10; round++) CHECK_OK(dtl_policy_submit(policy, no_key, task, NULL, 0, NULL));
        was_called(names[i]);
        CHECK_STATUS(dtl_policy_submit_and_wait(policy, no_key, task, &opts, 0), DTL_ERROR_TRUNCATED);
        was_called("a task that fails");
        CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, nested, &policy, 0));
        was_called("a task within a task");
        CHECK_OK(dtl_policy_submit_and_wait(policy, no_key, leaving, NULL, 0));
        was_called("the wait of a task");
        CHECK_OK(dtl_policy_release(policy));
    }
    ops.select = select_first, ops.report = report, ops.destroy = destroy;
    ops.needed_info = DTL_INFO_TASK_SUBMISSION | DTL_INFO_TASK_COMPLETION;
    CHECK_OK(dtl_policy_create_custom(&ops, NULL, list, 2, &opts, &policy));
    CHECK_OK(dtl_policy_submit(policy, no_key, task, NULL, 0, NULL));
    was_called("select");
    CHECK_OK(dtl_policy_release(policy));
    was_called("destroy of a policy");
}

/* One thread runs a task; another one is refused meanwhile. */
static int stage;
static dtl_status_t staying(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    (void)resource, (void)arg, (void)left;
    __atomic_store_n(&stage, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 2) sched_yield();
    return DTL_SUCCESS;
}
static void* submitting(void* policy) {
    CHECK_OK(dtl_policy_submit(*(dtl_policy_t*)policy, no_key, task, NULL, 0, NULL)); /* not its first call */
    CHECK_OK(dtl_policy_submit(*(dtl_policy_t*)policy, no_key, staying, NULL, 0, NULL));
    return NULL;
}

static void tasks_elsewhere(void) {
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    pthread_t thread;
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_OK(dtl_policy_create("fixed", list, 2, &opts, &policy));
    CHECK(pthread_create(&thread, NULL, submitting, &policy) == 0);
    while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 1) sched_yield();
    inside();
    __atomic_store_n(&stage, 2, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
    was_called("a task in another thread");
    CHECK_OK(dtl_policy_release(policy));
}

/* ---- executors, streams, kernels ---- */

static dtl_status_t plain_task(void* user) { return (void)user, inside(), DTL_SUCCESS; }
static dtl_status_t range(uint64_t begin, uint64_t end, void* user) { return (void)begin, (void)end, (void)user, inside(), DTL_SUCCESS; }
static dtl_status_t fold(uint64_t begin, uint64_t end, void* acc, void* user) {
    return (void)begin, (void)end, (void)acc, (void)user, inside(), DTL_SUCCESS;
}
static void combine(void* into, const void* from, void* user) { (void)into, (void)from, (void)user, inside(); }
static dtl_status_t kernel_body(const dtl_kernel_context_t* context, const void* const* args) {
    return (void)context, (void)args, inside(), DTL_SUCCESS;
}

static void execution(void) {
    dtl_backend_t host;
    dtl_executor_t executor;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    int zero = 0, result = 0;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_executor_create(host, NULL, &executor));
    CHECK_OK(dtl_executor_run(executor, plain_task, NULL));
    was_called("an executor's task");
    CHECK_OK(dtl_executor_parallel_for(executor, 0, 8, 1, range, NULL));
    was_called("a loop body");
    CHECK_OK(dtl_executor_parallel_reduce(executor, 0, 8, 1, sizeof zero, &zero, fold, combine, NULL, &result));
    was_called("a fold");
    CHECK_OK(dtl_executor_destroy(executor));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_stream_host_callback(stream, plain_task, NULL));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    was_called("a stream's callback");
    CHECK_OK(dtl_kernel_from_function(host, kernel_body, NULL, &kernel));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    was_called("a kernel");
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* ---- dispatchers, communicators, backends ---- */

static int32_t accepts(const dtl_dispatch_query_t* query, void* user) { return (void)query, (void)user, inside(), 1; }
static dtl_status_t handle(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    return (void)query, (void)event, (void)user, inside(), DTL_SUCCESS;
}

static void dispatching(void) {
    const dtl_dispatch_key_t key = {DTL_OPERATION_COPY, 0, 0, 0, {0, 0}};
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_dispatcher_t dispatcher;
    dtl_registration_t registration, found;
    handler.name = "inside", handler.predicate = accepts, handler.invoke = handle, handler.destroy = destroy;
    query.operation = DTL_OPERATION_COPY;
    CHECK_OK(dtl_dispatcher_create(0, &dispatcher));
    CHECK_OK(dtl_dispatch_register(dispatcher, &key, 1, &handler, &registration));
    CHECK_OK(dtl_dispatch_find(dispatcher, &query, &found));
    was_called("a predicate");
    CHECK_OK(dtl_dispatch_invoke(dispatcher, &query, NULL));
    was_called("a handler");
    CHECK_OK(dtl_dispatch_unregister(dispatcher, registration));
    was_called("destroy of a handler");
    CHECK_OK(dtl_dispatcher_destroy(dispatcher));
}

static dtl_status_t copy_attribute(dtl_comm_t comm, int32_t key, void* user, void* value, void** copy, int32_t* wanted) {
    (void)comm, (void)key, (void)user;
    inside();
    *copy = value, *wanted = 1;
    return DTL_SUCCESS;
}
static void end_attribute(dtl_comm_t comm, int32_t key, void* user, void* value) {
    (void)comm, (void)key, (void)user, (void)value;
    inside();
}

static void attributes(void) {
    dtl_comm_t one, other;
    int32_t key;
    CHECK_OK(dtl_comm_key_create(copy_attribute, end_attribute, NULL, &key));
    CHECK_OK(dtl_comm_dup(DTL_COMM_SELF, &one));
    CHECK_OK(dtl_comm_set_attr(one, key, &key));
    CHECK_OK(dtl_comm_dup(one, &other));
    was_called("copy of an attribute");
    CHECK_OK(dtl_comm_destroy(other));
    was_called("delete of an attribute");
    CHECK_OK(dtl_comm_destroy(one));
    CHECK_OK(dtl_comm_key_destroy(key));
    was_called("delete of the other attribute");
}

static dtl_status_t count_devices(void* self, int32_t* count) { return (void)self, inside(), *count = 1, DTL_SUCCESS; }
static dtl_status_t set_device(void* self, int32_t device) { return (void)self, (void)device, DTL_SUCCESS; }
static dtl_status_t get_device(void* self, int32_t* device) { return (void)self, *device = 0, DTL_SUCCESS; }

static void backends(void) {
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    int32_t count;
    device.count = count_devices, device.set = set_device, device.get = get_device;
    table.device = &device, table.destroy = destroy;
    CHECK_OK(dtl_backend_register("inside", &table, NULL, 0, &backend));
    CHECK_OK(dtl_backend_device_count(backend, &count));
    was_called("a slot");
    CHECK_OK(dtl_backend_unregister(backend));
    was_called("destroy of a backend");
}

/* ---- log and trace ---- */

static void log_line(int32_t level, const char* text, void* user) { (void)level, (void)text, (void)user, inside(); }
static void traced(const dtl_trace_event_t* event, void* user) { (void)event, (void)user, inside(); }

static void tracing(void) {
    dtl_trace_callbacks_t callbacks = DTL_TRACE_CALLBACKS_INIT;
    int32_t ranks;
    callbacks.begin = traced;
    CHECK_OK(dtl_trace_set_callbacks(&callbacks));
    CHECK_OK(dtl_comm_size(DTL_COMM_SELF, &ranks));
    CHECK_OK(dtl_trace_set_callbacks(NULL));
    was_called("begin of a trace");
    callbacks.begin = NULL, callbacks.end = traced;
    CHECK_OK(dtl_trace_set_callbacks(&callbacks));
    CHECK_OK(dtl_comm_size(DTL_COMM_SELF, &ranks));
    CHECK_OK(dtl_trace_set_callbacks(NULL));
    was_called("end of a trace");
}

int main(void) {
    CHECK(setenv("DTL_TIMEOUTT", "1s", 1) == 0); /* misspelt: a line of the log */
    CHECK_OK(dtl_log_set_callback(log_line, NULL, DTL_LOG_WARN));
    CHECK_OK(dtl_init(NULL));
    was_called("the log in dtl_init");
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN));
    policies();
    tasks_elsewhere();
    execution();
    dispatching();
    attributes();
    backends();
    tracing();
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
    printf("ok\n");
    return 0;
}
