// A backend whose functions do nothing: what is left of a call of it is the library. For benches/call.c and
// tests/instructions; tools/dtl-bench/src/call.rs has it in Rust.
#include <dtl.h>

static dtl_status_t create_stream(void *self, int32_t device, uint64_t flags, void **out)
{
    (void)device, (void)flags;
    *out = self;
    return DTL_SUCCESS;
}
static dtl_status_t create_event(void *self, uint64_t flags, void **out)
{
    (void)flags;
    *out = self;
    return DTL_SUCCESS;
}
static dtl_status_t one(void *self, void *object)
{
    (void)self, (void)object;
    return DTL_SUCCESS;
}
static dtl_status_t record(void *self, void *event, void *stream)
{
    (void)self, (void)event, (void)stream;
    return DTL_SUCCESS;
}
static dtl_status_t query(void *self, void *event, int32_t *done)
{
    (void)self, (void)event;
    *done = 1;
    return DTL_SUCCESS;
}
static dtl_status_t count(void *self, int32_t *out)
{
    (void)self;
    *out = 1;
    return DTL_SUCCESS;
}
static dtl_status_t zero(void *self, int32_t *out)
{
    (void)self;
    *out = 0;
    return DTL_SUCCESS;
}
static dtl_status_t set(void *self, int32_t device)
{
    (void)self, (void)device;
    return DTL_SUCCESS;
}

static dtl_device_vtable_t idle_device(void)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    device.count = count, device.get = zero, device.set = set, device.synchronize = set;
    return device;
}

static dtl_exec_vtable_t idle_exec(void)
{
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    exec.stream_create = create_stream, exec.stream_destroy = one, exec.stream_synchronize = one;
    exec.stream_query = query;
    exec.event_create = create_event, exec.event_destroy = one, exec.event_record = record;
    exec.event_query = query;
    return exec;
}

// Registers it; its slots get the address of `self`.
static dtl_backend_t idle_backend(int *self)
{
    const dtl_device_vtable_t device = idle_device();
    const dtl_exec_vtable_t exec = idle_exec();
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t out;
    table.device = &device, table.exec = &exec;
    DTL_CHECK(dtl_backend_register("idle", &table, self, 0, &out));
    return out;
}
