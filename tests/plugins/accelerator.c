/* A plugin with an accelerator: memory of a kind of its own, and the handlers that allocate it and copy to and from it. Not a
 * test by itself. FAILS: its load fails after it has registered everything. */
#include <dtl.h>
#include <stdlib.h>
#include <string.h>

static const dtl_host_api_t* host;
static dtl_enum_word_t kind;

/* For who looks them up. */
DTL_PLUGIN_EXPORT int32_t test_copies, test_destroyed, test_late;
int32_t test_copies = 0, test_destroyed = 0, test_late = 0;

static dtl_status_t give(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t asked, void** out)
{
    (void)self;
    if (asked != kind) return DTL_ERROR_NOT_SUPPORTED;
    if (posix_memalign(out, (size_t)(alignment < 16 ? 16 : alignment), (size_t)size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    return DTL_SUCCESS;
}

static dtl_status_t take(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t asked)
{
    (void)self, (void)size, (void)alignment, (void)asked;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t copy(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user)
{
    const dtl_dispatch_copy_t* args = (const dtl_dispatch_copy_t*)query->args;
    const dtl_dispatch_key_t key = {DTL_OPERATION_COPY, kind, DTL_MEMORY_PINNED, DTL_DISPATCH_ANY, {0, 0}};
    dtl_dispatch_handler_t late = DTL_DISPATCH_HANDLER_INIT;
    dtl_registration_t made;
    (void)event;
    late.name = "late", late.invoke = copy;
    test_late = host->dispatch_register(&key, 1, &late, &made); /* only in load */
    if (args->ndim > 0) return host->set_error("the card copies rows alone"), DTL_ERROR_NOT_SUPPORTED;
    memcpy(args->dst, args->src, (size_t)args->size_bytes);
    ++*(int32_t*)user;
    return DTL_SUCCESS;
}

static void destroy(void* user)
{
    (void)user;
    test_destroyed++;
}

static dtl_status_t load(const dtl_host_api_t* given)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_dispatch_handler_t allocates = DTL_DISPATCH_HANDLER_INIT, copies = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_key_t keys[3];
    dtl_registration_t made, again;
    dtl_status_t status = given->enum_register_value(DTL_ENUM_MEMORY, "PlugCard", 402, &kind);
    if (status == DTL_ERROR_ALREADY_EXISTS) status = given->enum_from_name(DTL_ENUM_MEMORY, "PlugCard", &kind);
    DTL_TRY(status);
    host = given;
    memory.alloc = give, memory.free = take, table.memory = &memory;
    DTL_TRY(given->backend_register("plugcard-too", &table, NULL, 0, &allocates.backend));
    DTL_TRY(given->backend_register("plugcard", &table, NULL, 0, &allocates.backend));
    memset(keys, 0, sizeof keys);
    keys[0].operation = DTL_OPERATION_ALLOC, keys[0].destination = kind;
    allocates.name = "plugcard's memory";
    DTL_TRY(given->dispatch_register(keys, 1, &allocates, &made));
    keys[0].operation = keys[1].operation = keys[2].operation = DTL_OPERATION_COPY;
    keys[0].source = kind, keys[0].destination = DTL_MEMORY_HOST;
    keys[1].source = DTL_MEMORY_HOST, keys[1].destination = kind;
    keys[2].source = keys[2].destination = kind;
    copies.name = "plugcard's copies", copies.invoke = copy, copies.destroy = destroy, copies.user = &test_copies;
    /* All keys or none: the last one is there already. */
    DTL_TRY(given->dispatch_register(&keys[2], 1, &copies, &made));
    if (given->dispatch_register(keys, 3, &copies, &again) != DTL_ERROR_ALREADY_EXISTS) return DTL_ERROR_INTERNAL;
    DTL_TRY(given->dispatch_unregister(made));
    DTL_TRY(given->dispatch_register(keys, 3, &copies, &made));
#ifdef FAILS
    return given->set_error("its card is broken"), DTL_ERROR_UNAVAILABLE;
#else
    return DTL_SUCCESS;
#endif
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t* given, dtl_plugin_t* out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)given;
    plugin.name = "accelerator";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
