/* ram, the device component: two devices that are pieces of this machine's memory. */
#include "ram.h"

enum { DEVICES = 2 };
static __thread int32_t current; /* each thread has its own */

/* (required) Writes the number of devices. 0 is valid. */
static dtl_status_t device_count(void *self, int32_t *out_count)
{
    (void)self;
    *out_count = DEVICES;
    return DTL_SUCCESS;
}

/* (required) Sets the current device of the calling thread, 0 to count-1. Corresponds to
 * cudaSetDevice. Each thread has its own. */
static dtl_status_t device_set(void *self, int32_t device)
{
    if (device < 0 || device >= DEVICES) {
        return ram_fail(self, DTL_ERROR_INVALID_ARGUMENT, "device %d: there are 0 to %d", (int)device, DEVICES - 1);
    }
    current = device;
    return DTL_SUCCESS;
}

/* (required) Writes the current device of the calling thread: the argument of its last device_set,
 * or, if there was none, 0 or the device that is current in the driver. The library calls it only
 * in threads that have not called dtl_backend_set_device for this backend. */
static dtl_status_t device_get(void *self, int32_t *out_device)
{
    (void)self;
    *out_device = current;
    return DTL_SUCCESS;
}

dtl_device_vtable_t ram_device_table(void)
{
    dtl_device_vtable_t table = DTL_DEVICE_VTABLE_INIT;
    table.count = device_count;
    table.set = device_set;
    table.get = device_get;
    return table;
}
