/* What a program may get wrong: handles, pointers, sizes, names. Every function answers a status
 * and writes nothing. Also run under valgrind, which tells whether anything leaked.
 * Usage: test_bad_input [tests/dtl.symbols]. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "entries.h"

static struct handles good;

/* The functions that no state and no handle refuses, and those without a status. */
static const char* const always[] = {"dtl_init", "dtl_finalize", "dtl_init_after_fork", "dtl_version_string",
    "dtl_version_major", "dtl_version_minor", "dtl_version_patch", "dtl_library_abi_version", "dtl_status_name",
    "dtl_status_message", "dtl_last_error", "dtl_error_set", "dtl_log_set_callback", "dtl_comm_wtime", "dtl_backend_set_error", "dtl_backend_name",
    "dtl_dispatcher_default", "dtl_kernel_header",
    "dtl_enum_create", "dtl_enum_find", "dtl_enum_register", "dtl_enum_register_value", "dtl_enum_register_template",
    "dtl_enum_from_name", "dtl_enum_from_value", "dtl_enum_count", "dtl_enum_at", "dtl_enum_undefined", "dtl_ev_instance",
    "dtl_ev_get", "dtl_ev_name", "dtl_ev_to_json", "dtl_ev_from_json", "dtl_schedule_set_defaults", "dtl_schedule_defaults"};

static int known(const char* name) {
    size_t i;
    for (i = 0; i < ENTRY_COUNT; i++)
        if (strcmp(entries[i].name, name) == 0) return 1;
    for (i = 0; i < sizeof always / sizeof always[0]; i++)
        if (strcmp(always[i], name) == 0) return 1;
    return 0;
}

/* The table names every function that the library exports. */
static void test_table(const char* path) {
    char line[128];
    int count = 0;
    FILE* file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, " \r\n")] = 0;
        if (strncmp(line, "dtl_", 4) != 0) continue;
        count++;
        if (!known(line)) {
            fprintf(stderr, "tests/c/entries.h has no line for %s\n", line);
            exit(1);
        }
    }
    fclose(file);
    CHECK(count > 50);
}

/* Puts a number in the place of the handle in question; false if this entry takes none. */
static int replace(struct handles* handles, enum noun noun, uint64_t id) {
    switch (noun) {
        case BACKEND: handles->backend.id = id; return 1;
        case STREAM: handles->stream.id = id; return 1;
        case EVENT: handles->event.id = id; return 1;
        case EXECUTOR: handles->executor.id = id; return 1;
        case KERNEL: handles->kernel.id = id; return 1;
        case COMM: handles->comm.id = id; return 1;
        case REQUEST: handles->request.id = id; return 1;
        case MESSAGE: handles->message.id = id; return 1;
        case POOL: handles->pool.id = id; return 1;
        case WIN: handles->win.id = id; return 1;
        case MODULE: handles->module.id = id; return 1;
        case ARRAY: handles->array.id = id; return 1;
        case POLICY: handles->policy.id = id; return 1;
        case DISPATCHER: handles->dispatcher.id = id; return 1;
        case REGISTRATION: handles->registration.id = id; return 1;
        default: return 0;
    }
}

static uint64_t id_of(const struct handles* handles, int noun) {
    const uint64_t ids[16] = {0, handles->backend.id, handles->stream.id, handles->event.id, handles->executor.id,
        handles->kernel.id, handles->comm.id, handles->request.id, handles->message.id, handles->pool.id, handles->win.id,
        handles->module.id, handles->array.id, handles->policy.id, handles->dispatcher.id, handles->registration.id};
    return ids[noun];
}

/* Every entry that takes such a handle refuses this one, and says why. */
static void refuse_all(int noun, uint64_t id, const char* why) {
    size_t i;
    for (i = 0; i < ENTRY_COUNT; i++) {
        struct handles handles = good;
        if ((int)entries[i].noun == noun && replace(&handles, entries[i].noun, id))
            must_fail(&entries[i], &handles, DTL_ERROR_INVALID_HANDLE);
        else
            continue;
        if (strstr(dtl_last_error(), why) == NULL) {
            fprintf(stderr, "%s: \"%s\" does not say \"%s\"\n", entries[i].name, dtl_last_error(), why);
            exit(1);
        }
    }
}

/* What a text says of a handle that belongs to something else. */
static const char* confused(int is, int should_be) {
    static const char* const names[16] = {"", "a backend", "a stream", "an event", "an executor", "a kernel",
        "a communicator", "a request", "a message", "a pool", "a window", "a module", "an array", "a policy", "a dispatcher",
        "a registration"};
    static char text[64];
    snprintf(text, sizeof text, "is %s, not %s", names[is], names[should_be]);
    return text;
}

static void test_handles(void) {
    struct handles stale;
    uint64_t garbage = UINT64_C(0x9E3779B97F4A7C15);
    int noun, other, i;
    make_handles(&stale);
    destroy_handles(&stale);
    {
        struct far far;
        memset(&far, 0, sizeof far);
        stale.backend = far_register("stale", &far);
        CHECK_OK(dtl_backend_unregister(stale.backend));
    }
    for (noun = BACKEND; noun <= REGISTRATION; noun++) {
        const uint64_t id = id_of(&good, noun);
        refuse_all(noun, id_of(&stale, noun), "is stale");
        for (other = BACKEND; other <= REGISTRATION; other++) {
            if (other == noun) continue;
            refuse_all(noun, id_of(&good, other), confused(other, noun));
            refuse_all(noun, id_of(&stale, other), "no such handle");
            refuse_all(noun, id_of(&good, other) + 1, "no such handle"); /* never made */
        }
        refuse_all(noun, UINT64_MAX, "no such handle");
        refuse_all(noun, 1, "no such handle");
        refuse_all(noun, id + 1, "is stale");                          /* a generation to come */
        refuse_all(noun, id | UINT64_C(0x000FFFFF) << 36, "is stale"); /* an index far outside */
        if (noun != COMM && noun != DISPATCHER) refuse_all(noun, id & UINT64_C(0xFF) << 56, "is stale"); /* only a type; DTL_COMM_WORLD and the default dispatcher are that */
        refuse_all(noun, id & ~(UINT64_C(0xFF) << 56), "no such handle");          /* no type */
        for (i = 0; i < 200; i++) {
            garbage = garbage * UINT64_C(6364136223846793005) + 1442695040888963407u;
            refuse_all(noun, garbage | UINT64_C(1) << 63, "no such handle"); /* no type is that high */
        }
    }
}

/* Null: the default for backends and streams, success for destroys, else refused. */
static void test_null_handles(void) {
    size_t i;
    CHECK_OK(dtl_stream_destroy(DTL_STREAM_NULL));
    CHECK_OK(dtl_event_destroy(DTL_EVENT_NULL));
    CHECK_OK(dtl_executor_destroy(DTL_EXECUTOR_NULL));
    CHECK_OK(dtl_kernel_destroy(DTL_KERNEL_NULL));
    CHECK_OK(dtl_comm_destroy(DTL_COMM_NULL));
    CHECK_OK(dtl_request_destroy(DTL_REQUEST_NULL));
    CHECK_OK(dtl_pool_destroy(DTL_POOL_NULL));
    CHECK_OK(dtl_win_destroy(DTL_WIN_NULL));
    CHECK_OK(dtl_module_destroy(DTL_MODULE_NULL));
    CHECK_OK(dtl_array_destroy(DTL_ARRAY_NULL));
    CHECK_OK(dtl_policy_release(DTL_POLICY_NULL));
    CHECK_OK(dtl_backend_unregister(DTL_BACKEND_NULL));
    for (i = 0; i < ENTRY_COUNT; i++) {
        struct handles handles = good;
        const enum noun noun = entries[i].noun;
        if (noun <= STREAM || strstr(entries[i].name, "_destroy") != NULL) continue;
        /* These pass null ones over. */
        if (strncmp(entries[i].name, "dtl_request_wait_", 17) == 0) continue;
        if (strcmp(entries[i].name, "dtl_request_test_all") == 0) continue;
        if (strcmp(entries[i].name, "dtl_executor_run_async") == 0 && noun == EVENT) continue; /* no event */
        if (strcmp(entries[i].name, "dtl_policy_release") == 0) continue;
        if (strcmp(entries[i].name, "dtl_module_log") == 0) continue; /* the last that failed */
        replace(&handles, noun, 0);
        must_fail(&entries[i], &handles, DTL_ERROR_INVALID_HANDLE);
        CHECK_TEXT("null");
    }
}

#define NULL_OUTPUT(call) CHECK_STATUS(call, DTL_ERROR_NULL_POINTER)

static void test_null_pointers(void) {
    const dtl_backend_t b = good.backend;
    int32_t number = 0;
    uint64_t word = 0;
    uint32_t two = 0;
    char data[64] = {0};
    dtl_attr_t attr = dtl_attr_str("text", "");
    dtl_backend_t out;
    void* sink = NULL;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    NULL_OUTPUT(dtl_enum_create("e", 0, NULL));
    NULL_OUTPUT(dtl_enum_create(NULL, 0, &two));
    NULL_OUTPUT(dtl_enum_find("Memory", NULL));
    NULL_OUTPUT(dtl_enum_find(NULL, &two));
    NULL_OUTPUT(dtl_enum_register(DTL_ENUM_MEMORY, "m", NULL));
    NULL_OUTPUT(dtl_enum_register(DTL_ENUM_MEMORY, NULL, &word));
    NULL_OUTPUT(dtl_enum_register_value(DTL_ENUM_MEMORY, "m", 300, NULL));
    NULL_OUTPUT(dtl_enum_register_value(DTL_ENUM_MEMORY, NULL, 300, &word));
    NULL_OUTPUT(dtl_enum_register_template(DTL_ENUM_MEMORY, "m", &attr, 1, NULL));
    NULL_OUTPUT(dtl_enum_register_template(DTL_ENUM_MEMORY, NULL, &attr, 1, &word));
    NULL_OUTPUT(dtl_enum_from_name(DTL_ENUM_MEMORY, "Host", NULL));
    NULL_OUTPUT(dtl_enum_from_name(DTL_ENUM_MEMORY, NULL, &word));
    NULL_OUTPUT(dtl_enum_from_value(DTL_ENUM_MEMORY, 1, NULL));
    NULL_OUTPUT(dtl_enum_count(DTL_ENUM_MEMORY, NULL));
    NULL_OUTPUT(dtl_enum_at(DTL_ENUM_MEMORY, 0, NULL));
    NULL_OUTPUT(dtl_enum_undefined(DTL_ENUM_MEMORY, NULL));
    NULL_OUTPUT(dtl_ev_instance(DTL_MEMORY_UNDEFINED, &attr, 1, NULL));
    NULL_OUTPUT(dtl_ev_get(DTL_MEMORY_HOST, "text", NULL));
    NULL_OUTPUT(dtl_ev_get(DTL_MEMORY_HOST, NULL, &attr));
    NULL_OUTPUT(dtl_ev_name(DTL_MEMORY_HOST, NULL));
    NULL_OUTPUT(dtl_ev_to_json(DTL_MEMORY_HOST, NULL, 5, NULL));
    NULL_OUTPUT(dtl_ev_from_json(DTL_ENUM_MEMORY, "\"Host\"", 0, NULL));
    NULL_OUTPUT(dtl_ev_from_json(DTL_ENUM_MEMORY, NULL, 0, &word));
    NULL_OUTPUT(dtl_schedule_defaults(DTL_SCHEDULE_DEVICE, NULL, &word));
    NULL_OUTPUT(dtl_schedule_defaults(DTL_SCHEDULE_DEVICE, &word, NULL));
    NULL_OUTPUT(dtl_explain(NULL, 5, NULL));
    NULL_OUTPUT(dtl_backend_register(NULL, &table, NULL, 0, &out));
    NULL_OUTPUT(dtl_backend_register("n", NULL, NULL, 0, &out));
    NULL_OUTPUT(dtl_backend_register("n", &table, NULL, 0, NULL));
    NULL_OUTPUT(dtl_backend_get("host", NULL));
    NULL_OUTPUT(dtl_backend_count(NULL));
    NULL_OUTPUT(dtl_backend_at(0, NULL));
    NULL_OUTPUT(dtl_backend_info(b, NULL));
    NULL_OUTPUT(dtl_backend_is_available(b, NULL, data, 64, NULL));
    NULL_OUTPUT(dtl_backend_self_test(b, NULL, 5, NULL));
    NULL_OUTPUT(dtl_backend_supports(b, NULL, &number));
    NULL_OUTPUT(dtl_backend_supports(b, "x", NULL));
    NULL_OUTPUT(dtl_backend_device_count(b, NULL));
    NULL_OUTPUT(dtl_backend_get_device(b, NULL));
    NULL_OUTPUT(dtl_backend_dlpack_device(b, 0, NULL, &number));
    NULL_OUTPUT(dtl_backend_dlpack_device(b, 0, &number, NULL));
    NULL_OUTPUT(dtl_device_info(b, 0, NULL));
    NULL_OUTPUT(dtl_device_memory_info(b, 0, NULL, &word));
    NULL_OUTPUT(dtl_device_memory_info(b, 0, &word, NULL));
    NULL_OUTPUT(dtl_mem_alloc(b, DTL_MEMORY_HOST, 8, 0, NULL));
    NULL_OUTPUT(dtl_mem_kind_info(b, DTL_MEMORY_HOST, NULL));
    NULL_OUTPUT(dtl_mem_stats(b, NULL));
    NULL_OUTPUT(dtl_mem_query(data, NULL));
    NULL_OUTPUT(dtl_mem_copy(NULL, data, 1));
    NULL_OUTPUT(dtl_mem_copy(data, NULL, 1));
    NULL_OUTPUT(dtl_mem_copy_2d(NULL, 1, data, 1, 1, 1));
    NULL_OUTPUT(dtl_mem_copy_2d(data, 1, NULL, 1, 1, 1));
    NULL_OUTPUT(dtl_mem_fill(NULL, 0, 1));
    NULL_OUTPUT(dtl_mem_to_device(b, NULL, 8, &sink));
    NULL_OUTPUT(dtl_mem_to_device(b, data, 8, NULL));
    NULL_OUTPUT(dtl_mem_to_host(b, NULL, data, 8));
    NULL_OUTPUT(dtl_mem_to_host(b, data, NULL, 8));
    NULL_OUTPUT(dtl_stream_create(b, 0, 0, NULL));
    NULL_OUTPUT(dtl_stream_query(good.stream, NULL));
    NULL_OUTPUT(dtl_stream_default(b, 0, NULL));
    NULL_OUTPUT(dtl_stream_wrap(b, data, NULL));
    NULL_OUTPUT(dtl_stream_native(good.stream, NULL));
    NULL_OUTPUT(dtl_stream_host_callback(good.stream, NULL, NULL));
    NULL_OUTPUT(dtl_mem_copy_async(good.stream, NULL, data, 8));
    NULL_OUTPUT(dtl_mem_copy_async(good.stream, data, NULL, 8));
    NULL_OUTPUT(dtl_mem_fill_async(good.stream, NULL, 0, 8));
    NULL_OUTPUT(dtl_mem_alloc_async(good.stream, DTL_MEMORY_HOST, 8, 0, NULL));
    NULL_OUTPUT(dtl_mem_prefetch(good.stream, NULL, 8, 0));
    NULL_OUTPUT(dtl_mem_register_host(b, NULL, 8));
    NULL_OUTPUT(dtl_mem_export_dmabuf(data, 8, NULL, &word));
    NULL_OUTPUT(dtl_mem_export_dmabuf(data, 8, &number, NULL));
    NULL_OUTPUT(dtl_event_create(b, 0, NULL));
    NULL_OUTPUT(dtl_event_query(good.event, NULL));
    NULL_OUTPUT(dtl_event_elapsed_ns(good.event, good.event, NULL));
    NULL_OUTPUT(dtl_executor_create(b, NULL, NULL));
    NULL_OUTPUT(dtl_executor_run(good.executor, NULL, NULL));
    NULL_OUTPUT(dtl_executor_run_async(good.executor, NULL, NULL, DTL_EVENT_NULL));
    NULL_OUTPUT(dtl_executor_parallel_for(good.executor, 0, 1, 1, NULL, NULL));
    NULL_OUTPUT(dtl_executor_info(good.executor, NULL));
    NULL_OUTPUT(dtl_kernel_from_function(b, NULL, NULL, &good.kernel));
    NULL_OUTPUT(dtl_kernel_from_function(b, e_kernel, NULL, NULL));
    NULL_OUTPUT(dtl_kernel_launch(good.stream, good.kernel, NULL, NULL, NULL, 0));
    NULL_OUTPUT(dtl_kernel_launch(good.stream, good.kernel, &e_launch, NULL, NULL, 1));
    NULL_OUTPUT(dtl_comm_get_world(NULL));
    NULL_OUTPUT(dtl_comm_open(NULL, NULL));
    NULL_OUTPUT(dtl_comm_rank(good.comm, NULL));
    NULL_OUTPUT(dtl_comm_size(good.comm, NULL));
    NULL_OUTPUT(dtl_comm_info(good.comm, NULL));
    NULL_OUTPUT(dtl_comm_send(good.comm, NULL, 1, DTL_DTYPE_BYTE, 0, 0));
    NULL_OUTPUT(dtl_comm_recv(good.comm, NULL, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    NULL_OUTPUT(dtl_comm_isend(good.comm, data, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    NULL_OUTPUT(dtl_comm_irecv(good.comm, data, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    NULL_OUTPUT(dtl_request_test(good.request, NULL, NULL));
    NULL_OUTPUT(dtl_request_wait_all(NULL, 1, 0, NULL));
    NULL_OUTPUT(dtl_comm_bcast(good.comm, NULL, 1, DTL_DTYPE_BYTE, 0));
    NULL_OUTPUT(dtl_comm_allreduce(good.comm, NULL, data, 1, DTL_DTYPE_INT8, DTL_OP_SUM));
    NULL_OUTPUT(dtl_comm_allreduce(good.comm, data, NULL, 1, DTL_DTYPE_INT8, DTL_OP_SUM));
    NULL_OUTPUT(dtl_backend_set_error(NULL));
    NULL_OUTPUT(dtl_error_set(DTL_ERROR_BUSY, NULL));
    CHECK(number == 0 && word == 0 && two == 0);
}

/* Each info struct with sizes that cannot be; test_struct_size has all of them. */
static void test_struct_sizes(void) {
    const uint32_t bad[5] = {0, 1, 7, 5000, UINT32_MAX};
    size_t i;
    struct outputs o;
    for (i = 0; i < 5; i++) {
        const dtl_status_t status = bad[i] < 8 ? DTL_ERROR_INVALID_ARGUMENT : DTL_ERROR_INCOMPATIBLE_ABI;
        dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
        dtl_comm_desc_t comm = DTL_COMM_DESC_INIT;
        dtl_launch_t launch = DTL_LAUNCH_INIT;
        poison(&o);
        o.backend_info.struct_size = o.device_info.struct_size = o.kind_info.struct_size = bad[i];
        o.stats.struct_size = o.mem_info.struct_size = o.executor_info.struct_size = bad[i];
        o.comm_info.struct_size = desc.struct_size = comm.struct_size = launch.struct_size = bad[i];
        CHECK_STATUS(dtl_backend_info(good.backend, &o.backend_info), status);
        CHECK_TEXT("dtl_backend_info_t");
        CHECK_STATUS(dtl_device_info(good.backend, 0, &o.device_info), status);
        CHECK_STATUS(dtl_mem_kind_info(good.backend, DTL_MEMORY_HOST, &o.kind_info), status);
        CHECK_STATUS(dtl_mem_stats(good.backend, &o.stats), status);
        CHECK_STATUS(dtl_mem_query(e_source, &o.mem_info), status);
        CHECK_STATUS(dtl_executor_info(good.executor, &o.executor_info), status);
        CHECK_STATUS(dtl_comm_info(good.comm, &o.comm_info), status);
        CHECK_STATUS(dtl_executor_create(good.backend, &desc, &o.handles.executor), status);
        CHECK_STATUS(dtl_comm_open(&comm, &o.handles.comm), status);
        CHECK_STATUS(dtl_kernel_launch(good.stream, good.kernel, &launch, NULL, NULL, 0), status);
        CHECK_TEXT("dtl_launch_t");
        CHECK(((unsigned char*)&o.stats)[8] == 0x5A);
    }
    poison(&o);
    CHECK_STATUS(dtl_mem_stats(good.backend, (dtl_mem_stats_t*)(void*)((char*)&o.stats + 1)), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("aligned");
}

/* A constant DTL_MEMORY_* is a memory kind or a property of memory kinds; the text names the property. */
static void test_properties_as_kinds(void) {
    const dtl_enum_word_t unified = DTL_MEMORY_UNIFIED;
    const int64_t shape[1] = {8};
    struct outputs o, before;
    poison(&o);
    memcpy(&before, &o, sizeof before);
#define NAMES_UNIFIED(call)                        \
    CHECK_STATUS(call, DTL_ERROR_NOT_SUPPORTED);   \
    CHECK_TEXT("kind is 0x4 (DTL_MEMORY_UNIFIED, a property of memory kinds), which is not a memory kind: use DTL_MEMORY_HOST")
    NAMES_UNIFIED(dtl_mem_alloc(good.backend, unified, 8, 0, &o.pointer));
    NAMES_UNIFIED(dtl_mem_alloc_async(good.stream, unified, 8, 0, &o.pointer));
    NAMES_UNIFIED(dtl_mem_kind_info(good.backend, unified, &o.kind_info));
    NAMES_UNIFIED(dtl_pool_create(good.backend, unified, NULL, &o.handles.pool));
    NAMES_UNIFIED(dtl_array_alloc(good.backend, unified, shape, 1, DTL_DTYPE_INT8, 0, &o.handles.array));
    CHECK_STATUS(dtl_mem_alloc(good.backend, DTL_MEMORY_PAGEABLE | DTL_MEMORY_ATOMICS, 8, 0, &o.pointer),
                 DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("kind is 0x18 (DTL_MEMORY_ATOMICS | DTL_MEMORY_PAGEABLE, a property of memory kinds)");
    CHECK(memcmp(&before, &o, sizeof o) == 0);
}

static void test_values(void) {
    const dtl_backend_t b = good.backend;
    struct outputs o, before;
    char data[64] = {0};
    static char long_name[5000];
    poison(&o);
    memcpy(&before, &o, sizeof before);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_MEMORY_HOST, 0, 0, &o.pointer), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_MEMORY_HOST, UINT64_MAX, 0, &o.pointer), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_MEMORY_HOST, INT64_MAX - 100, 0, &o.pointer), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_MEMORY_HOST, 8, 3, &o.pointer), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_MEMORY_HOST, 8, UINT64_C(1) << 63, &o.pointer), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc(b, 0, 8, 0, &o.pointer), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_alloc(b, DTL_DEVICE_CPU, 8, 0, &o.pointer), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("kind is Device.CPU, which is not a memory kind");
    test_properties_as_kinds();
    CHECK_STATUS(dtl_mem_kind_info(b, 99, &o.kind_info), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_free(b, data), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_query(data, &o.mem_info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_query(NULL, &o.mem_info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_copy(o.data, e_source, UINT64_MAX), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_fill(o.data, 1, UINT64_C(1) << 63), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_2d(o.data, 7, e_source, 8, 8, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_2d(o.data, 8, e_source, 7, 8, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_2d(o.data, UINT64_MAX, e_source, 8, 8, 3), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_2d(o.data, 8, e_source, UINT64_MAX / 2, 8, 3), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_device_info(b, 1, &o.device_info), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_device_info(b, INT32_MIN, &o.device_info), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_device_memory_info(b, 1, &o.word, &o.second), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_backend_dlpack_device(b, 1, &o.number, &o.other), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_backend_set_device(b, 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_device_wait(b, -1, DTL_TIMEOUT_INFINITE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(b, 1, 0, &o.handles.stream), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create(b, 0, 1, &o.handles.stream), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_stream_wrap(b, data, &o.handles.stream), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_stream_native(good.stream, &o.pointer), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_event_create(b, 2, &o.handles.event), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_event_elapsed_ns(good.event, good.event, &o.word), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_mem_to_device(b, e_source, 0, &o.pointer), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_to_host(b, e_source, o.data, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_to_device(b, e_source, INT64_MAX - 100, &o.pointer), DTL_ERROR_OUT_OF_MEMORY);
    memset(long_name, 'x', sizeof long_name - 1);
    CHECK_STATUS(dtl_backend_get(long_name, &o.handles.backend), DTL_ERROR_LIMIT);
    CHECK_STATUS(dtl_backend_get("\xc3(", &o.handles.backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_backend_get("", &o.handles.backend), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_backend_get("hots", &o.handles.backend), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("\"hots\"");
    CHECK_TEXT("host, ");
    {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        desc.kind = "carrier-pigeon";
        CHECK_STATUS(dtl_comm_open(&desc, &o.handles.comm), DTL_ERROR_NOT_FOUND);
        CHECK_TEXT("carrier-pigeon");
        CHECK_TEXT("self");
        desc.kind = "self", desc.flags = 0x80;
        CHECK_STATUS(dtl_comm_open(&desc, &o.handles.comm), DTL_ERROR_INVALID_ARGUMENT);
    }
    CHECK(memcmp(&o, &before, sizeof o) == 0);
    CHECK(strcmp(dtl_status_name(4711), "DTL_ERROR_UNKNOWN") == 0 && dtl_status_message(-1)[0] != 0);
    CHECK_OK(dtl_mem_copy(NULL, NULL, 0));
    CHECK_OK(dtl_mem_fill(NULL, 0, 0));
    CHECK_OK(dtl_mem_copy_2d(NULL, 0, NULL, 0, 0, 5));
    CHECK_OK(dtl_mem_copy_2d(NULL, 9, NULL, 9, 9, 0));
    CHECK_OK(dtl_mem_free(b, NULL));
}

/* What was refused has not cost anything: the objects still work. */
static void test_still_alive(void) {
    int32_t done = 0;
    CHECK_OK(dtl_stream_wait(good.stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_wait(good.event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_executor_run(good.executor, e_task, NULL));
    CHECK_OK(dtl_kernel_launch(good.stream, good.kernel, &e_launch, NULL, NULL, 0));
    CHECK_OK(dtl_request_test(good.request, &done, NULL));
    CHECK(done == 0);
}

int main(int argc, char** argv) {
    if (argc > 1) test_table(argv[1]);
    CHECK_OK(dtl_init(NULL));
    make_handles(&good);
    test_handles();
    test_null_handles();
    test_null_pointers();
    test_struct_sizes();
    test_values();
    test_still_alive();
    destroy_handles(&good);
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
