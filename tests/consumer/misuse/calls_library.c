/* A plugin that calls the library directly. */
#include <dtl.h>

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host, (void)out;
    return dtl_backend_set_error("not like this");
}
