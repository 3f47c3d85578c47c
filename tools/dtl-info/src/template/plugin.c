/* @NAME@, the plugin: its entry, and the table of its components.
 *
 * Rules for all slots: they are called from any thread, with no lock of the library held. They
 * return a status; outputs are read only after DTL_SUCCESS. They must not call dtl_ functions on
 * this backend. No longjmp and no exception leaves them.@THROW_RULE@
 *
 * The plugin is not linked with the library. The functions that it may call are in
 * dtl_host_api_t. */
#include "@HEADER@"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

dtl_status_t @ID@_fail(const void *self, dtl_status_t status, const char *format, ...)
{
    const @ID@_backend_t *backend = (const @ID@_backend_t *)self;
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    DTL_IGNORE(backend->host->set_error(text));
    return status;
}

/* Checks whether the backend can run on this machine: hardware, driver, vendor library. Writes the
 * reason into `why` (cap bytes) if it cannot, with what to install. That is DTL_SUCCESS, not a
 * failure. Called once for each dtl_init. */
static dtl_status_t is_available(void *self, int32_t *out_yes, char *why, uint64_t cap)@NOTHROW@
{
@AVAILABLE@    return DTL_SUCCESS;
}

/* Called once, after the last use. */
static void destroy(void *self)@NOTHROW@
{
    free(self);
}

/* Registers the backend, when the plugin is loaded and again after dtl_finalize and dtl_init. It
 * must be quick and must not access hardware; is_available and the slots do. It may register
 * several names. */
static dtl_status_t load(const dtl_host_api_t *host)@NOTHROW@
{
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT; /* copied, with its components */
@TABLES@    dtl_backend_t handle;
    @ID@_backend_t *backend = (@ID@_backend_t *)calloc(1, sizeof *backend);
    if (backend == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    backend->host = host;
@FILLS@    table.is_available = is_available;
    table.destroy = destroy;
    table.auto_priority = DTL_BACKEND_PRIORITY; /* of dtl_add_backend; INT32_MIN: only by name */
    const dtl_status_t status = host->backend_register("@NAME@", &table, backend, 0, &handle);
    if (status != DTL_SUCCESS) {
        free(backend); /* destroy is not called then */
    }
    return status;
}

/* The only exported symbol. It describes the plugin and does nothing else. */
DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT; /* versions, sizes and layouts of the header's structs */
    (void)host;
    plugin.name = "@NAME@";
    plugin.version = "0.1";
    plugin.description = "one line for people";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
