/* A plugin that needs a function which nobody defines. */
#include <dtl.h>

int nowhere_defined(void);

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host, (void)out;
    return nowhere_defined();
}
