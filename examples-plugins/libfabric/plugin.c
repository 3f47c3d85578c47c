/* The plugin's entry and its table. */
#include "libfabric.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LF_PREFIX "libfabric: "

static const dtl_host_api_t *library; /* set before any slot is called */

static _Thread_local char last_text[640];

dtl_status_t lf_fail(dtl_status_t status, const char *format, ...)
{
    char text[sizeof last_text]; /* not in place: a value may be the last text */
    va_list values;
    const int used = snprintf(text, sizeof text, "%s", LF_PREFIX);
    va_start(values, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, values);
    va_end(values);
    memcpy(last_text, text, sizeof text);
    DTL_IGNORE(library->set_error(text));
    return status;
}

const char *lf_last_text(void)
{
    return last_text[0] != '\0' ? last_text + sizeof LF_PREFIX - 1 : "";
}

static dtl_status_t is_available(void *self, int32_t *out_yes, char *why, uint64_t cap)
{
    const char *reason;
    lf_choice_t choice;
    (void)self;
    *out_yes = 0;
    if (lf_api(&reason) == NULL) {
        snprintf(why, cap, "%s", reason);
    } else if (lf_choose(&choice) != DTL_SUCCESS) {
        snprintf(why, cap, "%s", lf_last_text());
    } else {
        *out_yes = 1;
    }
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    library = host;
    comm.match_bits = LF_TAG_BITS - 1;
    comm.open = lf_open;
    comm.close = lf_close;
    comm.isend = lf_isend;
    comm.irecv = lf_irecv;
    comm.test = lf_test;
    comm.cancel = lf_cancel;
    lf_add_windows(&comm);
    lf_add_atomics(&comm);
    table.is_available = is_available;
    table.comm = &comm;
    table.auto_priority = INT32_MIN; /* chosen by name only */
    return host->backend_register("libfabric", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    *out = (dtl_plugin_t)DTL_PLUGIN_INIT;
    out->name = "libfabric";
    out->version = "1.0";
    out->description = "communicators over libfabric: Slingshot, EFA, Omni-Path, Ethernet";
    out->load = load;
    return DTL_SUCCESS;
}
