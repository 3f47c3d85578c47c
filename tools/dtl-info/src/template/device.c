/* @NAME@, the device component: how many there are, and which one a thread works on. */
#include "@HEADER@"

/* (required) The number of devices. 0 is a number, not a failure. */
static dtl_status_t device_count(void *self, int32_t *out_count)@NOTHROW@
{
    (void)out_count;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "device_count is not written yet");
}

/* (required) Makes a device, 0 … count-1, the calling thread's current one (as cudaSetDevice). Each thread has
 * its own. */
static dtl_status_t device_set(void *self, int32_t device)@NOTHROW@
{
    (void)device;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "device_set is not written yet");
}

/* (required) The calling thread's current device: 0, or what the driver says, where device_set was never called.
 * Asked only in such threads: the library remembers what a thread has set. */
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
    /* Optional. A slot that stays NULL:
     *
     *   dtl_status_t info(void *self, int32_t device, dtl_device_info_t *out_info)
     *       Describes a device; *out_info is zeroed, set what you know.     NULL: name and count only.
     *   dtl_status_t memory_info(void *self, int32_t device, uint64_t *out_free, uint64_t *out_total)
     *       Bytes; 0 = unknown.                                             NULL: the memory table's.
     *   dtl_status_t synchronize(void *self, int32_t device)
     *       Waits for all work on it.                                       NULL: all its streams are waited for.
     *   dtl_status_t dlpack(void *self, int32_t device, int32_t *out_type, int32_t *out_id)
     *       DLPack's type and id.                                           NULL: DTL_ERROR_NOT_SUPPORTED. */
    return table;
}
