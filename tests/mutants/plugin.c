/* The entry of whole, and its main table. */
#include "whole.h"

#include <stdio.h>
#include <string.h>

const dtl_host_api_t *library;

dtl_status_t failed(dtl_status_t status, const char *text)
{
    DTL_IGNORE(library->set_error(text));
    return status;
}

static dtl_status_t whole_is_available(void *self, int32_t *out_yes, char *why, uint64_t cap)
{
    (void)self;
    *out_yes = 1;
    if (is_fault("device.is_available.no_reason")) {
        *out_yes = 0;
    }
    if (is_fault("device.is_available.odd_boolean")) {
        *out_yes = 42;
    }
    if (is_fault("device.is_available.garbage")) {
        *out_yes = 0;
        memset(why, 0xFF, cap); /* no NUL, no UTF-8 */
    }
    if (is_fault("device.is_available.by_turns")) {
        static int calls;
        *out_yes = ++calls % 7 != 0;
        snprintf(why, cap, "it is not its turn");
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_supports(void *self, const char *feature, int32_t *out_yes)
{
    static const char *const components[] = {"device", "memory", "transfer", "exec"};
    (void)self;
    *out_yes = 0;
    for (size_t i = 0; i < sizeof components / sizeof *components; i++) {
        *out_yes |= strcmp(feature, components[i]) == 0;
    }
    if (is_fault("device.supports.everything")) {
        *out_yes = 1;
    }
    if (is_fault("device.supports.nothing_at_all")) {
        *out_yes = 0;
    }
    if (is_fault("device.supports.odd_boolean")) {
        *out_yes = -1;
    }
    if (is_fault("device.supports.any_prefix")) {
        *out_yes = feature[0] == 'd' || feature[0] == 'n' || *out_yes;
    }
    return DTL_SUCCESS;
}

SLOT(device, is_available, whole_is_available, (void *self, int32_t *out_yes, char *why, uint64_t cap),
     (self, out_yes, why, cap))
SLOT(device, supports, whole_supports, (void *self, const char *feature, int32_t *out_yes), (self, feature, out_yes))

static void whole_destroy(void *self)
{
    (void)self;
    streams_stop();
    memory_stop();
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    library = host;
    fault_read();
    dtl_status_t status = memory_start();
    if (status != DTL_SUCCESS) {
        return status;
    }
    const dtl_device_vtable_t device = device_table();
    const dtl_memory_vtable_t memory = memory_table();
    const dtl_transfer_vtable_t transfer = transfer_table();
    const dtl_exec_vtable_t exec = exec_table();
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    table.is_available = slot_is_available;
    table.supports = slot_supports;
    table.destroy = whole_destroy;
    table.device = is_fault("memory.memory_info.swapped_without_devices") ||
                           strcmp(fault_name(), "memory.without_devices") == 0
                       ? NULL
                       : &device;
    table.memory = &memory;
    if (strcmp(fault_name(), "memory.no_transfer") != 0) table.transfer = &transfer;
    table.exec = &exec;
    table.auto_priority = INT32_MIN; /* whoever wants it names it */
    status = host->backend_register("whole", &table, NULL, 0, &backend);
    if (status != DTL_SUCCESS) {
        memory_stop();
    }
    return status;
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    *out = (dtl_plugin_t)DTL_PLUGIN_INIT;
    out->name = "whole";
    out->version = "1.0";
    out->description = "two devices in host memory, with faults to order";
    out->load = load;
    return DTL_SUCCESS;
}
