/* A plugin with two backends that hand out host memory. Not a test by itself.
 * TEST_NAME: the plugin's name and its first backend's; the second one is called that with "-too". */
#include <dtl.h>
#include <stdlib.h>

#ifndef TEST_NAME
#define TEST_NAME "good"
#endif

/* How often load has been called, for who looks it up. */
DTL_PLUGIN_EXPORT int32_t test_loads;
int32_t test_loads = 0;

/* A kind of memory of the plugin's own. */
static dtl_enum_word_t scratch;

static dtl_status_t pool_alloc(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST && dtl_ev_template(kind) != scratch) return DTL_ERROR_NOT_SUPPORTED;
    if (posix_memalign(out, (size_t)(alignment < 16 ? 16 : alignment), (size_t)size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    return DTL_SUCCESS;
}

static dtl_status_t pool_free(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t pool_kind_info(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out_info)
{
    static const char name[] = "pool of " TEST_NAME;
    size_t i;
    (void)self;
    if (kind != DTL_MEMORY_HOST && dtl_ev_template(kind) != scratch) return DTL_ERROR_NOT_SUPPORTED;
    out_info->properties = DTL_MEMORY_HOST_ACCESSIBLE;
    out_info->alignment = 16;
    for (i = 0; i < sizeof name; i++) out_info->name[i] = name[i];
    return DTL_SUCCESS;
}

/* Members stay when the plugin's backends go, so a later load finds them. */
static dtl_status_t register_kind(const dtl_host_api_t* host)
{
    const dtl_attr_t bank = dtl_attr_i64("bank", 7);
    dtl_attr_t got;
    dtl_enum_word_t instance;
    dtl_status_t status = host->enum_register_template(DTL_ENUM_MEMORY, TEST_NAME "_Scratch", &bank, 1, &scratch);
    if (status == DTL_ERROR_ALREADY_EXISTS)
        status = host->enum_from_name(DTL_ENUM_MEMORY, TEST_NAME "_Scratch", &scratch);
    DTL_TRY(status);
    DTL_TRY(host->ev_instance(scratch, NULL, 0, &instance));
    DTL_TRY(host->ev_get(instance, "bank", &got));
    return got.integer == 7 ? DTL_SUCCESS : DTL_ERROR_INTERNAL;
}

static dtl_status_t load(const dtl_host_api_t* host)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    memory.alloc = pool_alloc;
    memory.free = pool_free;
    memory.kind_info = pool_kind_info;
    table.memory = &memory;
    test_loads++;
    DTL_TRY(register_kind(host));
    DTL_TRY(host->log(DTL_LOG_DEBUG, TEST_NAME " registers"));
    DTL_TRY(host->backend_register(TEST_NAME, &table, NULL, 0, &backend));
    return host->backend_register(TEST_NAME "-too", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t* host, dtl_plugin_t* out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = TEST_NAME;
    plugin.version = "1.2";
    plugin.description = "host memory, for tests";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
