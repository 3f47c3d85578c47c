/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * sim: a simulated accelerator. The entry of the plugin and the table of its components. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const dtl_host_api_t *sim_host;

dtl_status_t sim_fail(dtl_status_t status, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    DTL_IGNORE(sim_host->set_error(text));
    return status;
}

/* Opens the card. A driver that is missing is a reason, not a failure. */
static dtl_status_t is_available(void *self, int32_t *out_yes, char *why, uint64_t cap)
{
    (void)self;
    *out_yes = card_start() == 0;
    if (!*out_yes) snprintf(why, cap,
                            "there is no address space for the memory of the card; see ulimit -v");
    return DTL_SUCCESS;
}

static void destroy(void *self)
{
    (void)self;
    card_stop();
}

/* May be called again, after the backend of the first call was destroyed. */
static dtl_status_t load(const dtl_host_api_t *host)
{
    const char *faults = getenv("DTL_BACKEND_SIM_FAULT");
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    const dtl_device_vtable_t device = sim_device_table();
    const dtl_memory_vtable_t memory = sim_memory_table();
    const dtl_transfer_vtable_t transfer = sim_transfer_table();
    dtl_backend_t backend;
    sim_host = host;
    if (card_faults_read(faults) != 0) {
        return sim_fail(DTL_ERROR_INVALID_ARGUMENT,
                        "DTL_BACKEND_SIM_FAULT=\"%s\": expected operation:number[,...] with an "
                        "operation of alloc, copy, fill, launch, compile, lost and a number from 1",
                        faults);
    }
    sim_add_streams(&exec);
    sim_add_events(&exec);
    sim_add_kernels(&exec);
    table.is_available = is_available;
    table.destroy = destroy;
    table.device = &device;
    table.memory = &memory;
    table.transfer = &transfer;
    table.exec = &exec;
    table.auto_priority = INT32_MIN; /* only by name: the host is faster */
    return host->backend_register("sim", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "sim";
    plugin.version = "1.0";
    plugin.description = "a simulated accelerator with memory of its own";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
