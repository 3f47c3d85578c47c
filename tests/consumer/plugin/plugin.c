/* A plugin that registers nothing useful; what counts is how it is built. */
#include <dtl.h>

int hidden_function(void);
int hidden_function(void)
{
    return DTL_BACKEND_PRIORITY;
}

__attribute__((visibility("default"))) int shown_function(void);
int shown_function(void)
{
    return hidden_function();
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    (void)host;
    return DTL_ERROR_UNAVAILABLE;
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "two.parts";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
