/* The device component: two devices of the card. */
#include "sim.h"

#include <stdio.h>

_Thread_local int32_t sim_current;

dtl_status_t sim_lost(int32_t device)
{
    return sim_fail(DTL_ERROR_DEVICE_LOST, "device %d is lost, by DTL_BACKEND_SIM_FAULT",
                    (int)device);
}

dtl_status_t sim_command(int32_t device, const char *operation)
{
    if (card_loses(device)) return sim_lost(device);
    if (card_fails(operation)) {
        return sim_fail(DTL_ERROR_BACKEND,
                        "the card reports a failed %s, by DTL_BACKEND_SIM_FAULT", operation);
    }
    return DTL_SUCCESS;
}

static dtl_status_t count(void *self, int32_t *out_count)
{
    (void)self;
    *out_count = CARD_DEVICES;
    return DTL_SUCCESS;
}

static dtl_status_t check(int32_t device)
{
    if (device >= 0 && device < CARD_DEVICES) return DTL_SUCCESS;
    return sim_fail(DTL_ERROR_OUT_OF_BOUNDS, "device %d: use 0 to %d", (int)device,
                    CARD_DEVICES - 1);
}

static dtl_status_t set(void *self, int32_t device)
{
    (void)self;
    DTL_TRY(check(device));
    sim_current = device;
    return DTL_SUCCESS;
}

static dtl_status_t get(void *self, int32_t *out_device)
{
    (void)self;
    *out_device = sim_current;
    return DTL_SUCCESS;
}

static dtl_status_t info(void *self, int32_t device, dtl_device_info_t *out_info)
{
    (void)self;
    DTL_TRY(check(device));
    out_info->numa_node = -1;
    out_info->kind = DTL_DEVICE_ACCELERATOR;
    out_info->total_bytes = CARD_BYTES;
    out_info->compute_units = 1;
    out_info->max_block_threads = 1024;
    for (int axis = 0; axis < 3; axis++) out_info->max_block[axis] =
        1024, out_info->max_grid[axis] = 1u << 30;
    snprintf(out_info->name, sizeof out_info->name, "simulated accelerator, device %d",
             (int)device);
    snprintf(out_info->pci, sizeof out_info->pci, "0000:f%d:00.0", (int)device);
    return DTL_SUCCESS;
}

static dtl_status_t memory_info(void *self, int32_t device, uint64_t *out_free, uint64_t *out_total)
{
    (void)self;
    DTL_TRY(check(device));
    *out_free = card_free_bytes(device);
    *out_total = CARD_BYTES;
    return DTL_SUCCESS;
}

static dtl_status_t dlpack(void *self, int32_t device, int32_t *out_type, int32_t *out_id)
{
    (void)self;
    DTL_TRY(check(device));
    *out_type = 12; /* kDLExtDev: an accelerator that DLPack does not name */
    *out_id = device;
    return DTL_SUCCESS;
}

dtl_device_vtable_t sim_device_table(void)
{
    dtl_device_vtable_t table = DTL_DEVICE_VTABLE_INIT;
    table.count = count;
    table.set = set;
    table.get = get;
    table.info = info;
    table.memory_info = memory_info;
    table.dlpack = dlpack;
    return table; /* synchronize is NULL: the library waits for the streams of the device */
}
