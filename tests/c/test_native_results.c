/* What the slots of a registered table may leave out, and what the library says of results that
 * cannot be. C11, and valid C++17. */
#include "check.h"
#include <string.h>

/* ---- an exec table with the group "streams" alone ---- */

static int one, synchronized, device_synchronized;
static dtl_status_t stream_failure, query_failure;
static int32_t query_answer = 1;

static dtl_status_t stream_create(void* self, int32_t device, uint64_t flags, void** out) {
    (void)self, (void)device;
    if (flags != 0) return DTL_ERROR_INVALID_ARGUMENT;
    *out = &one;
    return DTL_SUCCESS;
}
static dtl_status_t stream_end(void* self, void* stream) {
    (void)self, (void)stream;
    return DTL_SUCCESS;
}
static dtl_status_t stream_synchronize(void* self, void* stream) {
    const dtl_status_t failure = stream_failure;
    (void)self, (void)stream;
    synchronized++;
    stream_failure = DTL_SUCCESS;
    return failure;
}
static dtl_status_t stream_query(void* self, void* stream, int32_t* out_done) {
    const dtl_status_t failure = query_failure;
    (void)self, (void)stream;
    query_failure = DTL_SUCCESS;
    *out_done = query_answer;
    return failure;
}
static dtl_status_t device_synchronize(void* self, int32_t device) {
    (void)self, (void)device;
    device_synchronized++;
    return DTL_SUCCESS;
}

static dtl_backend_t register_exec(const char* name, int with_query) {
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    exec.stream_create = stream_create;
    exec.stream_destroy = stream_end;
    exec.stream_synchronize = stream_synchronize;
    if (with_query) exec.stream_query = stream_query;
    table.exec = &exec;
    CHECK_OK(dtl_backend_register(name, &table, NULL, 0, &backend));
    return backend;
}

/* Queries and records agree: both wait for the stream. */
static void streams_without_events(void) {
    const dtl_backend_t backend = register_exec("streams_only", 0);
    dtl_stream_t stream;
    dtl_event_t event;
    int32_t done = -1;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 1 && synchronized == 1);
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK(synchronized == 2);
    CHECK_OK(dtl_event_query(event, &done));
    CHECK(done == 1);
    CHECK_OK(dtl_stream_wait(stream, 0)); /* the slot waits, once */
    CHECK(synchronized == 3);
    /* A failure that the query meets stays to be reported by synchronize, once. */
    stream_failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_stream_query(stream, &done));
    /* The stream's own work cannot wait for it: it is still running. */
    stream_failure = DTL_ERROR_INVALID_STATE;
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 0);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
}

static void said(const char* text) {
    if (strstr(dtl_last_error(), text) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, dtl_last_error());
        exit(1);
    }
}

static void booleans_are_zero_or_one(void) {
    const dtl_backend_t backend = register_exec("odd_query", 1);
    dtl_stream_t stream;
    int32_t done = -1;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 1);
    query_answer = 7;
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_NATIVE_BACKEND);
    said("backend odd_query: exec.stream_query wrote 7 into its boolean output");
    synchronized = 0;
    CHECK_STATUS(dtl_stream_wait(stream, 0), DTL_ERROR_NATIVE_BACKEND);
    said("exec.stream_query wrote 7");
    query_answer = 0;
    CHECK_STATUS(dtl_stream_wait(stream, 0), DTL_ERROR_TIMEOUT);
    query_answer = 1;
    CHECK_OK(dtl_stream_wait(stream, 0));
    CHECK(synchronized == 0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
}

/* ---- a comm table whose `test` completes operations wrongly ---- */

enum wrong { NOTHING, ODD_STATUS, ODD_BOOLEAN, NO_RANK, OTHER_WORD, TOO_EARLY, FAILED_NO_RANK };
static enum wrong wrong;

static dtl_status_t comm_open(void* self, const dtl_comm_open_t* args, void** out, int32_t* rank, int32_t* size) {
    (void)self, (void)args;
    *out = &one, *rank = 0, *size = 2;
    return DTL_SUCCESS;
}
static dtl_status_t comm_close(void* self, void* comm) {
    (void)self, (void)comm;
    return DTL_SUCCESS;
}
static dtl_status_t comm_isend(void* self, void* comm, const void* buf, uint64_t size, int32_t dest, uint64_t word,
                               uint64_t* out) {
    (void)self, (void)comm, (void)buf, (void)size, (void)dest, (void)word;
    *out = 1;
    return DTL_SUCCESS;
}
static dtl_status_t comm_irecv(void* self, void* comm, void* buf, uint64_t size, int32_t source, uint64_t word,
                               uint64_t ignore, uint64_t* out) {
    (void)self, (void)comm, (void)buf, (void)size, (void)source, (void)word, (void)ignore;
    *out = 2;
    return DTL_SUCCESS;
}
static dtl_status_t comm_test(void* self, void* comm, uint64_t op, int32_t* done, dtl_comm_done_t* result) {
    (void)self, (void)comm;
    if (op == 1) {
        if (wrong == ODD_STATUS) *done = 1, result->status = 31337;
        if (wrong == ODD_BOOLEAN) *done = 7;
        return DTL_SUCCESS;
    }
    if (wrong < NO_RANK) return DTL_SUCCESS;
    *done = 1;
    result->source = wrong == NO_RANK || wrong == FAILED_NO_RANK ? 99 : 1;
    result->match_word = wrong == OTHER_WORD ? 5 : 0;
    if (wrong == FAILED_NO_RANK) result->status = DTL_ERROR_RANK_FAILURE;
    return DTL_SUCCESS;
}

static void results_that_cannot_be(void) {
    static const struct {
        enum wrong wrong;
        dtl_status_t status;
        const char* text;
    } cases[] = {
        {ODD_STATUS, DTL_ERROR_NATIVE_BACKEND, "wrote status 31337 into its result, which is not a status"},
        {ODD_BOOLEAN, DTL_ERROR_NATIVE_BACKEND, "wrote 7 into its boolean output"},
        {NO_RANK, DTL_ERROR_NATIVE_BACKEND, "named rank 99 as the source of a message"},
        {OTHER_WORD, DTL_ERROR_NATIVE_BACKEND, "completed a receive of match word 0 with match word 5"},
        {TOO_EARLY, DTL_ERROR_COMMUNICATION, "complete before all of its bytes"},
        {FAILED_NO_RANK, DTL_ERROR_RANK_FAILURE, "and named rank 99"},
    };
    static char bytes[9000];
    dtl_comm_vtable_t comm_table = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    comm_table.open = comm_open, comm_table.close = comm_close;
    comm_table.isend = comm_isend, comm_table.irecv = comm_irecv, comm_table.test = comm_test;
    table.comm = &comm_table;
    CHECK_OK(dtl_backend_register("wrong", &table, NULL, 0, &backend));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        dtl_comm_t comm;
        dtl_status_t got;
        desc.kind = "wrong", desc.rank = 0, desc.size = 2, desc.job = "x", desc.timeout_ns = 1000000000;
        wrong = NOTHING;
        CHECK_OK(dtl_comm_open(&desc, &comm));
        wrong = cases[i].wrong;
        got = wrong < NO_RANK ? dtl_comm_send(comm, bytes, 9000, DTL_DTYPE_BYTE, 1, 0)
                              : dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, 1, 0, NULL);
        fprintf(stderr, "%d: %s: %s\n", (int)wrong, dtl_status_name(got), dtl_last_error());
        CHECK_STATUS(got, cases[i].status);
        said(cases[i].text);
        said("backend wrong: comm.test on rank 0 of 2");
        if (strstr(dtl_last_error(), "rank(s)  (") != NULL || strstr(dtl_last_error(), "gives no reason") != NULL) {
            fprintf(stderr, "nothing is named: %s\n", dtl_last_error());
            exit(1);
        }
        DTL_IGNORE(dtl_comm_destroy(comm));
    }
    CHECK_OK(dtl_backend_unregister(backend));
}

/* ---- device, memory and availability: outputs that cannot be ---- */

static int32_t available = 1, device_count = 1, device_now;
static dtl_status_t available_status;
static uint64_t alignment = 64;

static dtl_status_t is_available(void* self, int32_t* yes, char* why, uint64_t cap) {
    (void)self;
    if (available != 1) snprintf(why, (size_t)cap, "a reason");
    *yes = available;
    return available_status;
}
static dtl_status_t count_devices(void* self, int32_t* count) { return (void)self, *count = device_count, DTL_SUCCESS; }
static dtl_status_t set_device(void* self, int32_t device) { return (void)self, (void)device, DTL_SUCCESS; }
static dtl_status_t get_device(void* self, int32_t* device) { return (void)self, *device = device_now, DTL_SUCCESS; }
static dtl_status_t give(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    (void)self, (void)align, (void)kind;
    *out = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
    return *out == NULL ? DTL_ERROR_OUT_OF_MEMORY : DTL_SUCCESS;
}
static dtl_status_t take(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)self, (void)size, (void)align, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}
static dtl_status_t kind_info(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* info) {
    (void)self, (void)kind;
    info->alignment = alignment, info->properties = DTL_MEMORY_HOST_ACCESSIBLE;
    return DTL_SUCCESS;
}

static dtl_backend_t register_parts(void) {
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    device.count = count_devices, device.set = set_device, device.get = get_device;
    memory.alloc = give, memory.free = take, memory.kind_info = kind_info;
    table.device = &device, table.memory = &memory, table.is_available = is_available;
    CHECK_OK(dtl_backend_register("parts", &table, NULL, 0, &backend));
    return backend;
}

static void answers_about_availability(void) {
    const dtl_backend_t backend = register_parts();
    char why[128];
    int32_t yes = -1, count;
    available = 2;
    CHECK_STATUS(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL), DTL_ERROR_NATIVE_BACKEND);
    said("backend parts: is_available wrote 2 into its boolean output");
    CHECK_STATUS(dtl_backend_device_count(backend, &count), DTL_ERROR_NATIVE_BACKEND);
    available = 1, available_status = 31337;
    CHECK_STATUS(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL), DTL_ERROR_NATIVE_BACKEND);
    said("is_available answered 31337, which is no status");
    CHECK(yes == -1);
    available_status = DTL_ERROR_INTERNAL; /* the backend's failure, not the library's */
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strstr(why, "backend parts: is_available: it reports an error of its own") != NULL);
    available_status = DTL_SUCCESS;
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 1);
    CHECK_OK(dtl_backend_unregister(backend));
}

/* The device's own wait has no limit: it is not called while a stream of the device is not done. */
static void a_failure_does_not_end_the_limit(void) {
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    dtl_stream_t first, second;
    exec.stream_create = stream_create, exec.stream_destroy = stream_end;
    exec.stream_synchronize = stream_synchronize, exec.stream_query = stream_query;
    device.count = count_devices, device.set = set_device, device.get = get_device;
    device.synchronize = device_synchronize;
    table.exec = &exec, table.device = &device;
    CHECK_OK(dtl_backend_register("two_streams", &table, NULL, 0, &backend));
    CHECK_OK(dtl_stream_create(backend, 0, 0, &first));
    CHECK_OK(dtl_stream_create(backend, 0, 0, &second));
    query_answer = 0, query_failure = DTL_ERROR_BACKEND, device_synchronized = 0;
    CHECK_STATUS(dtl_device_wait(backend, 0, 1000000), DTL_ERROR_BACKEND);
    CHECK(device_synchronized == 0);
    CHECK_STATUS(dtl_device_wait(backend, 0, 1000000), DTL_ERROR_TIMEOUT);
    CHECK(device_synchronized == 0);
    query_answer = 1;
    CHECK_OK(dtl_device_wait(backend, 0, 1000000));
    CHECK(device_synchronized == 1);
    CHECK_OK(dtl_stream_destroy(first));
    CHECK_OK(dtl_stream_destroy(second));
    CHECK_OK(dtl_backend_unregister(backend));
}

static void outputs_of_devices(void) {
    const dtl_backend_t backend = register_parts();
    const int32_t odd[] = {99, -3, 1};
    int32_t count = 77, device = 77;
    void* memory = NULL;
    char text[64];
    size_t i;
    device_count = -5;
    CHECK_STATUS(dtl_backend_device_count(backend, &count), DTL_ERROR_NATIVE_BACKEND);
    said("backend parts: device.count wrote -5");
    device_count = 1;
    for (i = 0; i < sizeof odd / sizeof *odd; i++) {
        device_now = odd[i];
        snprintf(text, sizeof text, "backend parts: device.get wrote device %d", odd[i]);
        CHECK_STATUS(dtl_backend_get_device(backend, &device), DTL_ERROR_NATIVE_BACKEND);
        said(text);
        CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
        said(text);
    }
    CHECK(count == 77 && device == 77 && memory == NULL);
    device_count = 2; /* one more by now */
    CHECK_OK(dtl_backend_get_device(backend, &device));
    CHECK(device == 1);
    device_count = 1, device_now = 0;
    CHECK_OK(dtl_backend_unregister(backend));
}

static void alignments_of_kinds(void) {
    const dtl_backend_t backend = register_parts();
    const uint64_t odd[] = {3, UINT64_C(1) << 63, UINT64_C(1) << 31};
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    void* memory = NULL;
    size_t i;
    for (i = 0; i < sizeof odd / sizeof *odd; i++) {
        alignment = odd[i];
        CHECK_STATUS(dtl_mem_kind_info(backend, DTL_MEMORY_HOST, &info), DTL_ERROR_NATIVE_BACKEND);
        said("backend parts: memory.kind_info declared alignment");
        CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    }
    alignment = 0; /* declares none */
    CHECK_OK(dtl_mem_kind_info(backend, DTL_MEMORY_HOST, &info));
    CHECK(info.alignment == 1 && memory == NULL);
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory));
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_OK(dtl_backend_unregister(backend));
}

/* ---- functions of the program's: numbers that are no status, events that are none ---- */

static dtl_status_t odd_status(void* user) { return (void)user, 31337; }
static dtl_status_t odd_range(uint64_t begin, uint64_t end, void* user) { return (void)begin, (void)end, (void)user, -1; }
static dtl_status_t odd_task(const dtl_resource_t* resource, void* arg, dtl_waitable_t* left) {
    (void)resource, (void)arg, (void)left;
    return 31337;
}
static dtl_status_t select_odd(void* self, dtl_task_key_t key, uint32_t* out) {
    (void)self, (void)key, (void)out;
    return 31337;
}
static dtl_status_t submit_odd(void* self, const dtl_selection_t* selection, dtl_policy_task_fn_t task, void* arg) {
    (void)self, (void)selection, (void)task, (void)arg;
    return 31337;
}
static dtl_status_t accept_odd(void* self, uint64_t core, uint64_t info, int32_t* yes, char* why, uint64_t cap) {
    (void)self, (void)core, (void)info, (void)why, (void)cap;
    *yes = 2;
    return DTL_SUCCESS;
}
static dtl_status_t no_event(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    (void)query, (void)user;
    if (event != NULL) event->id = 12345;
    return DTL_SUCCESS;
}

static void statuses_of_policies(void) {
    static const char no_status[] = "31337, which is not a status";
    const dtl_task_key_t key = {0, 0};
    const dtl_resource_t list[] = {{1, NULL}};
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
    dtl_resource_ops_t resources = DTL_RESOURCE_OPS_INIT;
    dtl_policy_t policy;
    dtl_submission_t submission;
    opts.kind = DTL_RESOURCES_INLINE;
    CHECK_OK(dtl_policy_create("round_robin", list, 1, &opts, &policy));
    CHECK_STATUS(dtl_policy_submit_and_wait(policy, key, odd_task, NULL, 0), DTL_ERROR_NATIVE_BACKEND);
    said("a task ended with"), said(no_status);
    CHECK_OK(dtl_policy_submit(policy, key, odd_task, NULL, 0, &submission));
    CHECK(submission.status == 31337);
    CHECK_STATUS(dtl_submission_wait(&submission, 0), DTL_ERROR_NATIVE_BACKEND);
    CHECK_OK(dtl_policy_submit(policy, key, odd_task, NULL, 0, NULL));
    CHECK_STATUS(dtl_policy_wait_all(policy, 0), DTL_ERROR_NATIVE_BACKEND);
    said(no_status);
    CHECK_OK(dtl_policy_release(policy));
    ops.select = select_odd;
    CHECK_OK(dtl_policy_create_custom(&ops, NULL, list, 1, &opts, &policy));
    CHECK_STATUS(dtl_policy_submit(policy, key, odd_task, NULL, 0, &submission), DTL_ERROR_NATIVE_BACKEND);
    said("select of the program's table returned"), said(no_status);
    CHECK_OK(dtl_policy_release(policy));
    resources.submit = submit_odd, opts.kind = 0, opts.ops = &resources;
    CHECK_OK(dtl_policy_create("round_robin", list, 1, &opts, &policy));
    CHECK_STATUS(dtl_policy_submit(policy, key, odd_task, NULL, 0, &submission), DTL_ERROR_NATIVE_BACKEND);
    said("submit of the program's table returned"), said(no_status);
    CHECK_OK(dtl_policy_release(policy));
    resources.accept = accept_odd;
    CHECK_STATUS(dtl_policy_create("round_robin", list, 1, &opts, &policy), DTL_ERROR_NATIVE_BACKEND);
    said("accept of the program's table wrote 2 into its boolean output");
}

static void statuses_of_tasks(void) {
    dtl_backend_t host;
    dtl_executor_t executor;
    dtl_stream_t stream;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_executor_create(host, NULL, &executor));
    CHECK_STATUS(dtl_executor_run(executor, odd_status, NULL), DTL_ERROR_NATIVE_BACKEND);
    said("an executor's task returned 31337, which is not a status");
    CHECK_STATUS(dtl_executor_parallel_for(executor, 0, 4, 0, odd_range, NULL), DTL_ERROR_NATIVE_BACKEND);
    said("returned -1, which is not a status");
    CHECK_OK(dtl_executor_destroy(executor));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_stream_host_callback(stream, odd_status, NULL));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_NATIVE_BACKEND);
    CHECK_OK(dtl_stream_destroy(stream));
}

static void events_of_handlers(void) {
    const dtl_dispatch_key_t key = {DTL_OPERATION_COPY, 0, 0, 0, {0, 0}};
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_dispatcher_t dispatcher;
    dtl_registration_t registration;
    dtl_event_t event = {77};
    handler.name = "eventful", handler.invoke = no_event;
    query.operation = DTL_OPERATION_COPY;
    CHECK_OK(dtl_dispatcher_create(0, &dispatcher));
    CHECK_OK(dtl_dispatch_register(dispatcher, &key, 1, &handler, &registration));
    CHECK_STATUS(dtl_dispatch_invoke(dispatcher, &query, &event), DTL_ERROR_NATIVE_BACKEND);
    said("handler \"eventful\" has succeeded and wrote 0x3039 to out_event");
    CHECK(event.id == 77);
    CHECK_OK(dtl_dispatch_invoke(dispatcher, &query, NULL));
    CHECK_OK(dtl_dispatcher_destroy(dispatcher));
}

int main(void) {
    streams_without_events();
    booleans_are_zero_or_one();
    a_failure_does_not_end_the_limit();
    results_that_cannot_be();
    answers_about_availability();
    outputs_of_devices();
    alignments_of_kinds();
    statuses_of_policies();
    statuses_of_tasks();
    events_of_handlers();
    return 0;
}
