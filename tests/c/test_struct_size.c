/* struct_size: every struct that a caller passes, with every size from 0 to 64 bytes more than the library knows. Accepted are
 * the sizes that versions of the struct have had, and longer ones that keep its alignment and are 0 beyond the known fields. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    dtl_backend_t host;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_array_t array;
    dtl_executor_t executor;
    dtl_policy_t policy;
    dtl_dispatcher_t dispatcher;
    dtl_win_t win;
    void* block;
} good;

/* Ends at a page that cannot be accessed. */
static unsigned char* end_of_room;

static dtl_status_t kernel(const dtl_kernel_context_t* context, const void* const* args) {
    (void)context, (void)args;
    return DTL_SUCCESS;
}

static dtl_status_t init(void* it) { return dtl_init((dtl_config_t*)it); }

static dtl_status_t trace_callbacks(void* it) {
    const dtl_status_t status = dtl_trace_set_callbacks((dtl_trace_callbacks_t*)it);
    CHECK_OK(dtl_trace_set_callbacks(NULL));
    return status;
}

static dtl_status_t backend_info(void* it) { return dtl_backend_info(good.host, (dtl_backend_info_t*)it); }
static dtl_status_t device_info(void* it) { return dtl_device_info(good.host, 0, (dtl_device_info_t*)it); }
static dtl_status_t kind_info(void* it) {
    return dtl_mem_kind_info(good.host, DTL_MEMORY_HOST, (dtl_mem_kind_info_t*)it);
}
static dtl_status_t mem_stats(void* it) { return dtl_mem_stats(good.host, (dtl_mem_stats_t*)it); }
static dtl_status_t mem_info(void* it) { return dtl_mem_query(good.block, (dtl_mem_info_t*)it); }
static dtl_status_t array_info(void* it) { return dtl_array_info(good.array, (dtl_array_info_t*)it); }
static dtl_status_t executor_info(void* it) { return dtl_executor_info(good.executor, (dtl_executor_info_t*)it); }
static dtl_status_t policy_traits(void* it) { return dtl_policy_traits(good.policy, (dtl_policy_traits_t*)it); }
static dtl_status_t comm_info(void* it) { return dtl_comm_info(DTL_COMM_WORLD, (dtl_comm_info_t*)it); }
static dtl_status_t topology(void* it) { return dtl_topology((dtl_topology_t*)it); }
static dtl_status_t comm_topology(void* it) { return dtl_comm_topology(DTL_COMM_WORLD, (dtl_comm_topology_t*)it); }
static dtl_status_t win_info(void* it) { return dtl_win_info(good.win, 0, (dtl_win_info_t*)it); }
static dtl_status_t environment_info(void* it) {
    return dtl_environment_info("sizes", (dtl_environment_info_t*)it);
}
static dtl_status_t plugin_info(void* it) { return dtl_plugin_at(0, (dtl_plugin_info_t*)it); }

static dtl_status_t pool_desc(void* it) {
    dtl_pool_t pool = DTL_POOL_NULL;
    const dtl_status_t status = dtl_pool_create(good.host, DTL_MEMORY_HOST, (dtl_pool_desc_t*)it, &pool);
    CHECK_OK(dtl_pool_destroy(pool));
    return status;
}

static dtl_status_t executor_desc(void* it) {
    dtl_executor_t executor = DTL_EXECUTOR_NULL;
    dtl_executor_desc_t* desc = (dtl_executor_desc_t*)it;
    const dtl_status_t status = dtl_executor_create(good.host, desc, &executor);
    CHECK_OK(dtl_executor_destroy(executor));
    return status;
}

static dtl_status_t launch(void* it) {
    const dtl_launch_t* shape = (dtl_launch_t*)it;
    const dtl_status_t status = dtl_kernel_launch(good.stream, good.kernel, shape, NULL, NULL, 0);
    CHECK_OK(dtl_stream_wait(good.stream, DTL_TIMEOUT_INFINITE));
    return status;
}

static dtl_status_t source(void* it) {
    dtl_module_t module = DTL_MODULE_NULL;
    return dtl_module_compile(good.host, 0, (dtl_source_t*)it, &module); /* there is no text */
}

static dtl_status_t policy_ops(void* it) {
    dtl_policy_t policy = DTL_POLICY_NULL;
    return dtl_policy_create_custom((dtl_policy_ops_t*)it, NULL, NULL, 0, NULL, &policy); /* it has no functions */
}

static dtl_status_t resource_ops(void* it) {
    dtl_policy_t policy = DTL_POLICY_NULL;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    opts.kind = DTL_RESOURCES_CUSTOM, opts.ops = (dtl_resource_ops_t*)it; /* it has no functions */
    return dtl_policy_create("round_robin", NULL, 0, &opts, &policy);
}

static dtl_status_t policy_opts(void* it) {
    dtl_policy_t policy = DTL_POLICY_NULL;
    const dtl_status_t status = dtl_policy_create("round_robin", NULL, 0, (dtl_policy_opts_t*)it, &policy);
    CHECK_OK(dtl_policy_release(policy));
    return status;
}

static dtl_status_t query(void* it) {
    dtl_registration_t found;
    return dtl_dispatch_find(good.dispatcher, (dtl_dispatch_query_t*)it, &found);
}

static dtl_status_t handler(void* it) {
    dtl_dispatch_key_t key;
    dtl_registration_t added; /* it has no name */
    memset(&key, 0, sizeof key);
    key.operation = DTL_OPERATION_COPY, key.source = key.destination = key.schedule = DTL_DISPATCH_ANY;
    return dtl_dispatch_register(good.dispatcher, &key, 1, (dtl_dispatch_handler_t*)it, &added);
}

static dtl_status_t own(dtl_enum_word_t operation, void* it) {
    dtl_dispatch_query_t wanted = DTL_DISPATCH_QUERY_INIT;
    wanted.operation = operation, wanted.args = it;
    wanted.source = wanted.destination = wanted.schedule = DTL_DISPATCH_ANY;
    return dtl_dispatch_invoke(dtl_dispatcher_default(), &wanted, NULL);
}

static dtl_status_t dispatch_alloc(void* it) { return own(DTL_OPERATION_ALLOC, it); } /* of 0 bytes */
static dtl_status_t dispatch_copy(void* it) { return own(DTL_OPERATION_COPY, it); }
static dtl_status_t dispatch_launch(void* it) { return own(DTL_OPERATION_LAUNCH, it); }
static dtl_status_t dispatch_compile(void* it) { return own(DTL_OPERATION_COMPILE, it); }
static dtl_status_t dispatch_free(void* it) { return own(DTL_OPERATION_FREE, it); }
static dtl_status_t dispatch_instrument(void* it) { return own(DTL_OPERATION_INSTRUMENT, it); }

static dtl_status_t comm_desc(void* it) {
    dtl_comm_t comm;
    return dtl_comm_open((dtl_comm_desc_t*)it, &comm);
}

static dtl_status_t environment_desc(void* it) {
    return dtl_environment_register((dtl_environment_desc_t*)it); /* it has no name */
}

/* Main tables of all sizes; components within a main table. Each lacks a required slot. */
static dtl_status_t main_table(void* it) {
    dtl_backend_t backend;
    return dtl_backend_register("sizes", (dtl_backend_vtable_t*)it, NULL, 0, &backend);
}

#define COMPONENT(name)                                        \
    static dtl_status_t name##_table(void* it) {               \
        dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;  \
        table.name = (dtl_##name##_vtable_t*)it;               \
        return main_table(&table);                             \
    }
COMPONENT(device)
COMPONENT(memory)
COMPONENT(transfer)
COMPONENT(exec)
COMPONENT(comm)

struct one {
    const char* name;
    size_t size, align;
    /* The sizes of older versions; 0 = none. */
    size_t older[3];
    void (*start)(void* it);
    dtl_status_t (*use)(void* it);
};

#define START(NAME, name)                                  \
    static void start_##name(void* it) {                   \
        const dtl_##name##_t value = DTL_##NAME##_INIT;    \
        memcpy(it, &value, sizeof value);                  \
    }
#ifdef __cplusplus
#define ALIGN_OF(type) alignof(type)
#else
#define ALIGN_OF(type) _Alignof(type)
#endif
#define END(name, first) offsetof(dtl_##name##_t, first)
/* X(name in macros, name of the type, its user, sizes of older versions) */
#define ALL(X)                                                                     \
    X(CONFIG, config, init, 0, 0)                                                  \
    X(TRACE_CALLBACKS, trace_callbacks, trace_callbacks, 0, 0)                     \
    X(BACKEND_INFO, backend_info, backend_info, 0, 0)                              \
    X(DEVICE_INFO, device_info, device_info, 0, 0)                                 \
    X(MEM_KIND_INFO, mem_kind_info, kind_info, 0, 0)                               \
    X(MEM_STATS, mem_stats, mem_stats, 0, 0)                                       \
    X(MEM_INFO, mem_info, mem_info, 0, 0)                                          \
    X(POOL_DESC, pool_desc, pool_desc, 0, 0)                                       \
    X(ARRAY_INFO, array_info, array_info, 0, 0)                                    \
    X(EXECUTOR_DESC, executor_desc, executor_desc, 0, 0)                           \
    X(EXECUTOR_INFO, executor_info, executor_info, 0, 0)                           \
    X(LAUNCH, launch, launch, END(launch, schedule), 0)                            \
    X(SOURCE, source, source, END(source, files), 0)                               \
    X(POLICY_OPS, policy_ops, policy_ops, 0, 0)                                    \
    X(RESOURCE_OPS, resource_ops, resource_ops, 0, 0)                              \
    X(POLICY_OPTS, policy_opts, policy_opts, 0, 0)                                 \
    X(POLICY_TRAITS, policy_traits, policy_traits, 0, 0)                           \
    X(DISPATCH_QUERY, dispatch_query, query, 0, 0)                                 \
    X(DISPATCH_HANDLER, dispatch_handler, handler, 0, 0)                           \
    X(DISPATCH_ALLOC, dispatch_alloc, dispatch_alloc, END(dispatch_alloc, stream), 0) \
    X(DISPATCH_COPY, dispatch_copy, dispatch_copy, 0, 0)                           \
    X(DISPATCH_LAUNCH, dispatch_launch, dispatch_launch, 0, 0)                     \
    X(DISPATCH_COMPILE, dispatch_compile, dispatch_compile, 0, 0)                  \
    X(DISPATCH_FREE, dispatch_free, dispatch_free, 0, 0)                           \
    X(DISPATCH_INSTRUMENT, dispatch_instrument, dispatch_instrument, 0, 0)         \
    X(COMM_DESC, comm_desc, comm_desc, 0, 0)                                       \
    X(COMM_INFO, comm_info, comm_info, 0, 0)                                       \
    X(TOPOLOGY, topology, topology, 0, 0)                                          \
    X(COMM_TOPOLOGY, comm_topology, comm_topology, 0, 0)                           \
    X(WIN_INFO, win_info, win_info, 0, 0)                                          \
    X(ENVIRONMENT_DESC, environment_desc, environment_desc, 0, 0)                  \
    X(ENVIRONMENT_INFO, environment_info, environment_info, 0, 0)                  \
    X(PLUGIN_INFO, plugin_info, plugin_info, 0, 0)                                 \
    X(BACKEND_VTABLE, backend_vtable, main_table, 0, 0)                            \
    X(DEVICE_VTABLE, device_vtable, device_table, 0, 0)                            \
    X(MEMORY_VTABLE, memory_vtable, memory_table, END(memory_vtable, export_handle), END(memory_vtable, alloc_async), \
      END(memory_vtable, pointer_info))                                            \
    X(TRANSFER_VTABLE, transfer_vtable, transfer_table, END(transfer_vtable, prefetch), 0)     \
    X(EXEC_VTABLE, exec_vtable, exec_table, END(exec_vtable, module_compile), END(exec_vtable, stream_priorities)) \
    X(COMM_VTABLE, comm_vtable, comm_table, END(comm_vtable, win_create), END(comm_vtable, coll_supports), \
      END(comm_vtable, mem_supports))

#define DEFINE(NAME, name, use, ...) START(NAME, name)
ALL(DEFINE)

#define ROW(NAME, name, use, ...) \
    {"dtl_" #name "_t", sizeof(dtl_##name##_t), ALIGN_OF(dtl_##name##_t), {__VA_ARGS__}, start_##name, use},
static const struct one all[] = {ALL(ROW)};

static int is_version(const struct one* one, size_t size) {
    if (size > one->size) return size % one->align == 0;
    return size == one->size || (size > 0 && (size == one->older[0] || size == one->older[1] || size == one->older[2]));
}

/* Values with which the call has no lasting effect. */
static void start(const struct one* one, void* it) {
    one->start(it);
    if (one->use == init) ((dtl_config_t*)it)->reserved = 1;
    if (one->use == query) ((dtl_dispatch_query_t*)it)->operation = DTL_OPERATION_COPY; /* without a handler */
    if (one->use == comm_desc) ((dtl_comm_desc_t*)it)->kind = "no such kind";
}

/* The call is refused by its size, or gets beyond it. */
static void try_size(const struct one* one, size_t size) {
    unsigned char initial[1024] = {0};
    char wanted[128];
    const uint32_t claimed = (uint32_t)size;
    const size_t room = size < 8 ? 8 : (size + 7) / 8 * 8;
    unsigned char* const at = end_of_room - room;
    dtl_status_t status;
    int named;
    start(one, initial);
    CHECK(room <= sizeof initial);
    memcpy(initial, &claimed, sizeof claimed);
    memcpy(at, initial, room);
    snprintf(wanted, sizeof wanted, "%s.struct_size is %u", one->name, (unsigned)size);
    CHECK(dtl_backend_set_error("") == DTL_SUCCESS);
    status = one->use(at);
    named = status != DTL_SUCCESS && strncmp(dtl_last_error(), wanted, strlen(wanted)) == 0;
    if (named != !is_version(one, size)) {
        fprintf(stderr, "%s with struct_size %u is %s: %s: %s\n", one->name, (unsigned)size,
                named ? "refused" : "accepted", dtl_status_name(status), dtl_last_error());
        exit(1);
    }
    CHECK(!named || status == DTL_ERROR_INVALID_ARGUMENT || status == DTL_ERROR_INCOMPATIBLE_ABI);
    CHECK(!named || size < 8 || strstr(dtl_last_error(), "no version has that"));
}

static void make(void) {
    const int64_t shape[1] = {4};
    void* shared;
    dtl_environment_desc_t environment = DTL_ENVIRONMENT_DESC_INIT;
    CHECK_OK(dtl_backend_get("host", &good.host));
    CHECK_OK(dtl_stream_create(good.host, 0, 0, &good.stream));
    CHECK_OK(dtl_kernel_from_function(good.host, kernel, NULL, &good.kernel));
    CHECK_OK(dtl_array_alloc(good.host, DTL_MEMORY_HOST, shape, 1, DTL_DTYPE_INT8, 0, &good.array));
    CHECK_OK(dtl_executor_create(good.host, NULL, &good.executor));
    CHECK_OK(dtl_policy_create("round_robin", NULL, 0, NULL, &good.policy));
    CHECK_OK(dtl_dispatcher_create(0, &good.dispatcher));
    CHECK_OK(dtl_mem_alloc(good.host, DTL_MEMORY_HOST, 64, 0, &good.block));
    CHECK_OK(dtl_win_allocate(DTL_COMM_WORLD, 64, 1, &shared, &good.win));
    environment.name = "sizes";
    CHECK_OK(dtl_environment_register(&environment));
}

int main(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t i, size;
    void* const room = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED && mprotect((char*)room + page, page, PROT_NONE) == 0);
    end_of_room = (unsigned char*)room + page;
    make();
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size = 0; size <= all[i].size + 64; size++) try_size(&all[i], size);
    }
    CHECK_OK(dtl_win_destroy(good.win));
    printf("ok\n");
    return 0;
}
