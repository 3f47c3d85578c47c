/* A plugin that records spans, for tests/c/test_trace_plugin.c, which also calls the host's functions by itself. Not a test.
 * Its memory records each allocation as a span; one of 13 bytes leaves it open, one of 26 leaves two open. */
#include <dtl.h>
#include <stdlib.h>

/* The host's functions, for the test. */
DTL_PLUGIN_EXPORT const dtl_host_api_t* test_host;
const dtl_host_api_t* test_host;

static dtl_status_t alloc_traced(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out)
{
    uint64_t outer = 77, inner = 0;
    (void)self;
    if (kind != DTL_MEMORY_HOST) return DTL_ERROR_NOT_SUPPORTED;
    DTL_TRY(test_host->trace_begin("traces", "reserve", "first fit", &outer));
    if (size == 26) DTL_TRY(test_host->trace_begin("traces", "inner", NULL, &inner));
    if (posix_memalign(out, (size_t)(alignment < 16 ? 16 : alignment), (size_t)size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    return size == 13 || size == 26 ? DTL_SUCCESS : test_host->trace_end(outer);
}

static dtl_status_t free_traced(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
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
    memory.alloc = alloc_traced;
    memory.free = free_traced;
    table.memory = &memory;
    test_host = host;
    if (!DTL_HOST_HAS(host, trace_counter)) return DTL_ERROR_NOT_SUPPORTED;
    return host->backend_register("traces", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t* host, dtl_plugin_t* out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "traces";
    plugin.version = "1.0";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
