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

static dtl_status_t pool_alloc(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST) return DTL_ERROR_NOT_SUPPORTED;
    if (posix_memalign(out, (size_t)(alignment < 16 ? 16 : alignment), (size_t)size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    return DTL_SUCCESS;
}

static dtl_status_t pool_free(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t* host)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    memory.alloc = pool_alloc;
    memory.free = pool_free;
    table.memory = &memory;
    test_loads++;
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
