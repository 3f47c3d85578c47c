/* A plugin that calls a library of its own. */
#include <dtl.h>

int private_number(void);

static dtl_status_t take(void *self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void **out)
{
    (void)self, (void)size, (void)align, (void)kind, (void)out;
    return private_number() == 42 ? DTL_ERROR_OUT_OF_MEMORY : DTL_ERROR_BACKEND;
}

static dtl_status_t give(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind)
{
    (void)self, (void)ptr, (void)size, (void)align, (void)kind;
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    memory.alloc = take;
    memory.free = give;
    table.memory = &memory;
    return host->backend_register("private", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "private";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
