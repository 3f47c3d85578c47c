// A plugin whose alloc throws, which no slot may: the kit names the slot.
#include <dtl.h>

static dtl_status_t take(void *, uint64_t, uint64_t, dtl_enum_word_t, void **)
{
    throw 1;
}

static dtl_status_t give(void *, void *, uint64_t, uint64_t, dtl_enum_word_t)
{
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
    return host->backend_register("throws", &table, nullptr, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "throws";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
