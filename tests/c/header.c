/* The header itself: macros, initial values, handles, versions, as a C and a C++ user sees them. */
#include "check.h"

#include <string.h>

static dtl_status_t fails_with(dtl_status_t status)
{
    DTL_TRY(DTL_SUCCESS);
    DTL_TRY(status);
    return DTL_ERROR_INTERNAL; /* DTL_TRY must have returned. */
}

static void initial_values(void)
{
    const dtl_config_t config = DTL_CONFIG_INIT;
    CHECK(config.struct_size == sizeof config && config.backend == NULL && config.strict == 0);
    const dtl_rdma_config_t rdma = DTL_RDMA_CONFIG_INIT; /* nothing is set */
    CHECK(rdma.struct_size == sizeof rdma && rdma.flags == 0 && rdma.devices == NULL && rdma.address == NULL);
    CHECK(rdma.rails == -1 && rdma.depth == -1 && rdma.completion == 0 && rdma.device_memory == 0);
    CHECK(rdma.silence_ms == -1 && rdma.cache_bytes == -1 && rdma.reconnect_ms == -1);
    const dtl_launch_t launch = DTL_LAUNCH_INIT;
    CHECK(launch.struct_size == sizeof launch);
    for (int i = 0; i < 3; i++) {
        CHECK(launch.grid[i] == 1 && launch.block[i] == 1);
    }
    const dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    CHECK(table.struct_size == sizeof table && table.abi_version == DTL_ABI_VERSION);
    CHECK(table.is_available == NULL && table.comm == NULL);
    const dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    CHECK(info.struct_size == sizeof info && info.name[0] == '\0' && info.pci[31] == '\0');
}

/* Every constant handle is a constant: it initialises what has static storage duration, without a warning. */
static dtl_backend_t static_backend = DTL_BACKEND_NULL;
static dtl_stream_t static_stream = DTL_STREAM_NULL;
static dtl_event_t static_event = DTL_EVENT_NULL;
static dtl_executor_t static_executor = DTL_EXECUTOR_NULL;
static dtl_kernel_t static_kernel = DTL_KERNEL_NULL;
static dtl_comm_t static_comms[] = {DTL_COMM_NULL, DTL_COMM_WORLD, DTL_COMM_SELF};
static const dtl_request_t static_requests[2] = {DTL_REQUEST_NULL, DTL_REQUEST_NULL};
static dtl_message_t static_message = DTL_MESSAGE_NULL;
static dtl_pool_t static_pool = DTL_POOL_NULL;
static dtl_win_t static_win = DTL_WIN_NULL;
static dtl_module_t static_module = DTL_MODULE_NULL;
static dtl_array_t static_array = DTL_ARRAY_NULL;
static dtl_policy_t static_policy = DTL_POLICY_NULL;
static dtl_dispatcher_t static_dispatcher = DTL_DISPATCHER_NULL;
static struct {
    int number;
    dtl_registration_t registration;
    dtl_comm_desc_t desc;
} static_struct = {7, DTL_REGISTRATION_NULL, DTL_COMM_DESC_INIT};

static int calls;
static dtl_comm_t next_comm(void) { return static_comms[calls++ % 3]; }

static void static_handles(void)
{
    CHECK(DTL_IS_NULL(static_backend) && DTL_IS_NULL(static_stream) && DTL_IS_NULL(static_event));
    CHECK(DTL_IS_NULL(static_executor) && DTL_IS_NULL(static_kernel) && DTL_IS_NULL(static_requests[1]));
    CHECK(DTL_IS_NULL(static_message) && DTL_IS_NULL(static_pool) && DTL_IS_NULL(static_win));
    CHECK(DTL_IS_NULL(static_module) && DTL_IS_NULL(static_array) && DTL_IS_NULL(static_policy));
    CHECK(DTL_IS_NULL(static_dispatcher) && DTL_IS_NULL(static_struct.registration));
    CHECK(static_struct.number == 7 && static_struct.desc.struct_size == sizeof(dtl_comm_desc_t));
    CHECK(DTL_IS_NULL(static_comms[0]) && !DTL_IS_NULL(static_comms[1]) && !DTL_IS_NULL(DTL_COMM_SELF));
    CHECK(DTL_EQUAL(static_comms[1], DTL_COMM_WORLD) && DTL_EQUAL(DTL_COMM_NULL, static_comms[0]));
    CHECK(!DTL_EQUAL(DTL_COMM_WORLD, DTL_COMM_SELF) && !DTL_EQUAL(static_comms[0], static_comms[2]));
    CHECK(!DTL_EQUAL(next_comm(), next_comm()) && calls == 2); /* arguments are evaluated once */
    CHECK(!DTL_IS_NULL(next_comm()) && calls == 3);
    dtl_comm_t local = DTL_COMM_NULL;
    CHECK(DTL_IS_NULL(local));
    local = DTL_COMM_WORLD;
    CHECK(DTL_EQUAL(local, DTL_COMM_WORLD));
#ifdef __cplusplus
    static_assert(DTL_COMM_WORLD == DTL_COMM_WORLD && DTL_COMM_WORLD != DTL_COMM_SELF, "");
    static_assert(DTL_IS_NULL(DTL_WIN_NULL) && DTL_EQUAL(DTL_WIN_NULL, DTL_WIN_NULL), "");
    CHECK(static_backend == DTL_BACKEND_NULL && !(static_backend != DTL_BACKEND_NULL));
    CHECK(static_comms[2] == DTL_COMM_SELF && static_pool == DTL_POOL_NULL && static_policy == DTL_POLICY_NULL);
    CHECK(static_requests[0] == DTL_REQUEST_NULL && static_struct.registration == DTL_REGISTRATION_NULL);
#endif
}

static void handles(void)
{
    static_handles();
    CHECK(DTL_BACKEND_NULL.id == 0 && DTL_COMM_NULL.id == 0 && DTL_REQUEST_NULL.id == 0);
    CHECK(DTL_COMM_WORLD.id == UINT64_C(0x0600000000000000));
    CHECK(DTL_COMM_SELF.id == UINT64_C(0x0600001000000000));
    CHECK(sizeof(dtl_stream_t) == 8 && sizeof(dtl_recv_info_t) == 32);
}

static void constants(void)
{
    CHECK(DTL_ANY_SOURCE - 1 == -3 && 1 - DTL_PROC_NULL == 4);
    CHECK(sizeof(DTL_MEMORY_HOST) == 8 && DTL_MEMORY_HOST >> 48 == 1);
    CHECK(DTL_TIMEOUT_INFINITE == UINT64_MAX);
}

static void versions(void)
{
    CHECK(dtl_version_major() == DTL_VERSION_MAJOR);
    CHECK(dtl_version_minor() == DTL_VERSION_MINOR);
    CHECK(dtl_version_patch() == DTL_VERSION_PATCH);
    CHECK(strcmp(dtl_version_string(), DTL_VERSION_STRING) == 0);
    CHECK(dtl_library_abi_version() == DTL_ABI_VERSION);
}

static void statuses(void)
{
    CHECK(strcmp(dtl_status_name(DTL_ERROR_TIMEOUT), "DTL_ERROR_TIMEOUT") == 0);
    CHECK_STATUS(fails_with(DTL_ERROR_BUSY), DTL_ERROR_BUSY);
    DTL_IGNORE(fails_with(DTL_ERROR_BUSY));
    dtl_backend_t backend = DTL_BACKEND_NULL;
    CHECK_STATUS(dtl_backend_get("no such backend", &backend), DTL_ERROR_NOT_FOUND);
    CHECK(strstr(dtl_last_error(), "no such backend") != NULL);
    CHECK(backend.id == 0);
}

int main(void)
{
    initial_values();
    handles();
    constants();
    versions();
    DTL_CHECK(dtl_init(NULL));
    statuses();
    DTL_CHECK(dtl_finalize());
    puts("header: all checks passed");
    return 0;
}
