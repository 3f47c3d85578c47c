/* A plugin that sees its environment and its priority. Never loaded. */
#include <dtl.h>
#if FAKE_BLAS != 1 || DTL_BACKEND_PRIORITY != 50
#error "the environment or the priority is missing"
#endif
int plug_helper(void); /* hidden, as everything that is not exported on purpose */
int plug_helper(void) { return 1; }

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host, (void)out;
    return plug_helper() ? DTL_ERROR_UNAVAILABLE : DTL_SUCCESS;
}
