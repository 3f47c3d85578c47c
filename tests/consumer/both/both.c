/* A backend with an entry alone: nothing in it depends on the form in which it is built. Its memory is never there, and the slot
 * sets the text for that by the host's function, as the `_fail` of the template does. */
#include <dtl.h>
#include <string.h>

#ifndef NAME
#define NAME "both-forms"
#endif

static const dtl_host_api_t *host;

static dtl_status_t alloc(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out)
{
    (void)self, (void)size, (void)alignment, (void)kind, (void)out;
    DTL_IGNORE(host->set_error("the memory of " NAME " is used up"));
    return DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t release(void *self, void *ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)ptr, (void)size, (void)alignment, (void)kind;
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t *given)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t registered;
    const char *taken = getenv("TEST_SECOND_NAME");
    host = given;
    memory.alloc = alloc, memory.free = release;
    table.memory = &memory, table.auto_priority = DTL_BACKEND_PRIORITY;
    DTL_TRY(host->backend_register(NAME, &table, NULL, 0, &registered));
    /* A failure of the second one takes the first one away again, in both forms. */
    return taken == NULL ? DTL_SUCCESS : host->backend_register(taken, &table, NULL, 0, &registered);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *given, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)given;
    plugin.name = NAME, plugin.version = "1.0", plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
