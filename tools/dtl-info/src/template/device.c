/* @NAME@, the device component: number of devices, current device of a thread. */
#include "@HEADER@"

/* (required) Writes the number of devices. 0 is valid. */
static dtl_status_t device_count(void *self, int32_t *out_count)@NOTHROW@
{
    (void)out_count;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "device_count is not written yet");
}

/* (required) Sets the current device of the calling thread, 0 to count-1. Corresponds to
 * cudaSetDevice. Each thread has its own. */
static dtl_status_t device_set(void *self, int32_t device)@NOTHROW@
{
    (void)device;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "device_set is not written yet");
}

/* (required) Writes the current device of the calling thread: the argument of its last device_set,
 * or, if there was none, 0 or the device that is current in the driver. The library calls it only
 * in threads that have not called dtl_backend_set_device for this backend. */
static dtl_status_t device_get(void *self, int32_t *out_device)@NOTHROW@
{
    (void)out_device;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "device_get is not written yet");
}

dtl_device_vtable_t @ID@_device_table(void)
{
    dtl_device_vtable_t table = DTL_DEVICE_VTABLE_INIT;
    table.count = device_count;
    table.set = device_set;
    table.get = device_get;
    /* Optional slots, and what happens while they are NULL:
     *
     *   dtl_status_t info(void *self, int32_t device, dtl_device_info_t *out_info)
     *       Describes a device. Set at least `kind` (DTL_DEVICE_GPU, DTL_DEVICE_ACCELERATOR, ...),
     *       `name` and `total_bytes`. Fields that stay 0 are unknown; numa_node is -1 = unknown
     *       until it is set.
     *       NULL: only name and count are known.
     *   dtl_status_t memory_info(void *self, int32_t device, uint64_t *out_free,
     *                            uint64_t *out_total)
     *       Writes free and total bytes; 0 = unknown.
     *       NULL: memory_info of the memory table is called.
     *   dtl_status_t synchronize(void *self, int32_t device)
     *       Waits for all work on a device.
     *       NULL: the library waits for the streams that were created through it.
     *   dtl_status_t dlpack(void *self, int32_t device, int32_t *out_type, int32_t *out_id)
     *       Writes the DLPack device type and id.
     *       NULL: DTL_ERROR_NOT_SUPPORTED. */
    return table;
}
