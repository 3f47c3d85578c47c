/* ram, the device component: two devices that are pieces of this machine's memory. */
#include "ram.h"

enum { DEVICES = 2 };
static __thread int32_t current; /* each thread has its own */

/* (required) The number of devices. 0 is a number, not a failure. */
static dtl_status_t device_count(void *self, int32_t *out_count)
{
    (void)self;
    *out_count = DEVICES;
    return DTL_SUCCESS;
}

/* (required) Makes a device, 0 … count-1, the calling thread's current one (as cudaSetDevice). Each thread has
 * its own. */
static dtl_status_t device_set(void *self, int32_t device)
{
    if (device < 0 || device >= DEVICES) {
        return ram_fail(self, DTL_ERROR_INVALID_ARGUMENT, "device %d: there are 0 to %d", (int)device, DEVICES - 1);
    }
    current = device;
    return DTL_SUCCESS;
}

/* (required) The calling thread's current device: 0, or what the driver says, where device_set was never called.
 * Asked only in such threads: the library remembers what a thread has set. */
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
