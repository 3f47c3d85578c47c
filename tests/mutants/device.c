/* Two devices that are one CPU. */
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int32_t current;
static int32_t current_of_all;

int32_t current_device(void)
{
    if (is_fault("device.set.process_wide")) {
        return current_of_all;
    }
    return current;
}

static dtl_status_t whole_count(void *self, int32_t *out_count)
{
    (void)self;
    *out_count = DEVICES;
    if (is_fault("device.count.crashes")) {
        abort();
    }
    if (is_fault("device.count.zero")) {
        *out_count = 0;
    }
    if (is_fault("device.count.negative")) {
        *out_count = -1;
    }
    if (is_fault("device.count.one_more")) {
        *out_count = DEVICES + 1;
    }
    if (is_fault("device.count.by_turns")) {
        static int calls;
        *out_count = 1 + __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) / 8 % 2;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_set(void *self, int32_t device)
{
    (void)self;
    if ((device < 0 || device >= DEVICES) && !is_fault("device.set.accepts_bad")) {
        return failed(DTL_ERROR_OUT_OF_BOUNDS, "no such device");
    }
    if (is_fault("device.set.last_refused") && device == DEVICES - 1) {
        return failed(DTL_ERROR_OUT_OF_BOUNDS, "no such device");
    }
    if (!is_fault("device.set.ignored")) {
        current = device;
        current_of_all = device;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_get(void *self, int32_t *out_device)
{
    (void)self;
    *out_device = current_device();
    if (is_fault("device.get.beyond_count")) {
        *out_device = DEVICES;
    }
    if (is_fault("device.get.of_the_last_set")) {
        *out_device = current_of_all;
    }
    return DTL_SUCCESS;
}

static void describe(int32_t device, dtl_device_info_t *info)
{
    info->numa_node = -1;
    info->kind = DTL_DEVICE_CPU;
    info->total_bytes = DEVICE_BYTES;
    info->compute_units = 1;
    info->max_block_threads = 1024;
    for (int axis = 0; axis < 3; axis++) {
        info->max_block[axis] = 1024;
        info->max_grid[axis] = 1u << 30;
    }
    if (strcmp(fault_name(), "device.flat_blocks") == 0) {
        info->max_block_threads = info->max_block[0] = 64;
        info->max_block[1] = info->max_block[2] = 1;
    }
    if (strcmp(fault_name(), "device.small_grids") == 0) {
        info->max_block_threads = 6;
        info->max_grid[0] = 16;
        info->max_grid[1] = info->max_grid[2] = 1;
    }
    snprintf(info->name, sizeof info->name, "whole, device %d", (int)device);
    snprintf(info->pci, sizeof info->pci, "0000:0%d:00.0", (int)device + 1);
}

static dtl_status_t whole_info(void *self, int32_t device, dtl_device_info_t *out_info)
{
    (void)self;
    if ((device < 0 || device >= DEVICES) && !is_fault("device.info.accepts_bad")) {
        return failed(DTL_ERROR_OUT_OF_BOUNDS, "no such device");
    }
    describe(is_fault("device.info.always_first") ? 0 : device, out_info);
    if (is_fault("device.info.empty_name")) {
        out_info->name[0] = '\0';
    }
    if (is_fault("device.info.no_terminator")) {
        memset(out_info->name, 'x', sizeof out_info->name);
    }
    if (is_fault("device.info.no_utf8")) {
        out_info->name[0] = (char)0xFF;
    }
    if (is_fault("device.info.wrong_pci")) {
        snprintf(out_info->pci, sizeof out_info->pci, "slot %d", (int)device);
    }
    if (is_fault("device.info.wrong_kind")) {
        out_info->kind = DTL_MEMORY_DEVICE;
    }
    if (is_fault("device.info.wrong_numa_node")) {
        out_info->numa_node = -1000;
    }
    if (is_fault("device.info.block_of_nothing")) {
        out_info->max_block[0] = 0;
    }
    if (is_fault("device.info.too_many_threads")) {
        out_info->max_block[1] = out_info->max_block[2] = 1;
        out_info->max_block_threads = 4096;
    }
    if (is_fault("device.info.writes_struct_size")) {
        out_info->struct_size = 8;
    }
    if (is_fault("device.info.unstable")) {
        static uint32_t calls;
        out_info->compute_units = ++calls;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_memory_info(void *self, int32_t device, uint64_t *out_free, uint64_t *out_total)
{
    const uint64_t free_bytes = memory_free_bytes(device), total = DEVICE_BYTES;
    (void)self;
    *out_free = free_bytes;
    *out_total = total;
    if (is_fault("device.memory_info.free_above_total")) {
        *out_free = total + 1;
    }
    if (is_fault("device.memory_info.constant")) {
        *out_free = total / 2;
    }
    if (is_fault("device.memory_info.swapped")) {
        *out_free = total;
        *out_total = free_bytes;
    }
    if (is_fault("device.memory_info.total_drifts")) {
        static uint64_t calls;
        *out_total = total + ++calls;
    }
    if (is_fault("device.memory_info.in_kib")) {
        *out_free = free_bytes >> 10;
        *out_total = total >> 10;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_synchronize(void *self, int32_t device)
{
    (void)self;
    if (is_fault("device.synchronize.early")) {
        return DTL_SUCCESS;
    }
    if (is_fault("device.synchronize.first_device_only")) {
        return streams_wait(0);
    }
    return streams_wait(device);
}

static dtl_status_t whole_dlpack(void *self, int32_t device, int32_t *out_type, int32_t *out_id)
{
    (void)self;
    *out_type = 1; /* kDLCPU */
    *out_id = device;
    if (is_fault("device.dlpack.wrong_id")) {
        *out_id = 0;
    }
    if (is_fault("device.dlpack.wrong_type")) {
        *out_type = 2; /* kDLCUDA */
    }
    if (is_fault("device.dlpack.no_type")) {
        *out_type = 99;
    }
    if (is_fault("device.dlpack.negative_id")) {
        *out_id = -1 - device;
    }
    return DTL_SUCCESS;
}

SLOT(device, count, whole_count, (void *self, int32_t *out_count), (self, out_count))
SLOT(device, set, whole_set, (void *self, int32_t device), (self, device))
SLOT(device, get, whole_get, (void *self, int32_t *out_device), (self, out_device))
SLOT(device, info, whole_info, (void *self, int32_t device, dtl_device_info_t *out_info), (self, device, out_info))
SLOT(device, memory_info, whole_memory_info,
     (void *self, int32_t device, uint64_t *out_free, uint64_t *out_total), (self, device, out_free, out_total))
SLOT(device, synchronize, whole_synchronize, (void *self, int32_t device), (self, device))
SLOT(device, dlpack, whole_dlpack, (void *self, int32_t device, int32_t *out_type, int32_t *out_id),
     (self, device, out_type, out_id))

dtl_device_vtable_t device_table(void)
{
    dtl_device_vtable_t table = DTL_DEVICE_VTABLE_INIT;
    table.count = slot_count;
    table.set = slot_set;
    table.get = slot_get;
    table.info = slot_info;
    table.memory_info = slot_memory_info;
    table.synchronize = slot_synchronize;
    table.dlpack = slot_dlpack;
    if (strncmp(fault_name(), "memory.memory_info", 18) == 0) {
        table.memory_info = NULL; /* so that the memory table's is asked */
    }
    return table;
}
