/* What registration demands of a backend's tables, and how it says so. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#endif
#include "native_parts.h"
#include <stddef.h>

static struct far far;

static dtl_backend_t unset = {77};

static void refuse(const struct far_tables* tables, dtl_status_t status, const char* text) {
    uint64_t before = 0, after = 0;
    dtl_backend_t backend = unset;
    CHECK_OK(dtl_backend_count(&before));
    CHECK_STATUS(dtl_backend_register("refused", &tables->main, &far, 0, &backend), status);
    if (strstr(dtl_last_error(), text) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, dtl_last_error());
        exit(1);
    }
    CHECK(backend.id == unset.id && far.destroyed == 0);
    CHECK_OK(dtl_backend_count(&after));
    CHECK(before == after);
    CHECK_STATUS(dtl_backend_get("refused", &backend), DTL_ERROR_NOT_FOUND);
}

#define REFUSE_NULL(component, slot)                                                              \
    do {                                                                                          \
        far_fill(&tables);                                                                        \
        tables.component.slot = NULL;                                                             \
        refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, #component "." #slot);                        \
    } while (0)

#define REFUSE_COMM(slot)                                                                         \
    do {                                                                                          \
        comm_fill(&comm);                                                                         \
        comm.slot = NULL;                                                                         \
        refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "comm." #slot);                               \
    } while (0)

#define REFUSE_EXEC(slot)                                                                         \
    do {                                                                                          \
        exec_fill(&exec, 1, 1, 1);                                                                \
        exec.slot = NULL;                                                                         \
        refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "exec." #slot);                               \
    } while (0)

static void test_required_slots(void) {
    struct far_tables tables;
    dtl_comm_vtable_t comm;
    dtl_exec_vtable_t exec;
    memset(&far, 0, sizeof far);
    REFUSE_NULL(device, count);
    REFUSE_NULL(device, set);
    REFUSE_NULL(device, get);
    REFUSE_NULL(memory, alloc);
    REFUSE_NULL(memory, free);
    REFUSE_NULL(transfer, copy);
    far_fill(&tables);
    tables.main.comm = &comm;
    REFUSE_COMM(open);
    REFUSE_COMM(close);
    REFUSE_COMM(isend);
    REFUSE_COMM(irecv);
    REFUSE_COMM(test);
    comm_fill(&comm);
    comm.match_bits = 27;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "comm.match_bits");
    comm.match_bits = 65;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "comm.match_bits");
    comm.match_bits = 0, comm.flags = 2;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "comm.flags");
    tables.main.comm = NULL, tables.main.exec = &exec;
    REFUSE_EXEC(stream_create); /* half of a group */
    REFUSE_EXEC(stream_destroy);
    REFUSE_EXEC(stream_synchronize);
    REFUSE_EXEC(event_create);
    REFUSE_EXEC(event_destroy);
    REFUSE_EXEC(event_record);
    REFUSE_EXEC(event_query);
    REFUSE_EXEC(execute);
    REFUSE_EXEC(parallel_for);
    REFUSE_EXEC(max_parallelism);
    exec_fill(&exec, 0, 1, 0); /* events without streams */
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "exec.stream_create");
    exec_fill(&exec, 1, 0, 0);
    exec.reserved = 1;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "exec.reserved");
    far_fill(&tables);
    tables.device.reserved = 1;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "device.reserved");
    far_fill(&tables);
    tables.memory.reserved = 1;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "memory.reserved");
    far_fill(&tables);
    tables.transfer.reserved = 1;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "transfer.reserved");
    far_fill(&tables);
    tables.main.reserved = 1;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "reserved");
    far_fill(&tables);
    tables.main.flags = 6;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "flags");
    far_fill(&tables);
    tables.main.device = NULL, tables.main.memory = NULL, tables.main.transfer = NULL;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "at least one");
    far_fill(&tables);
    tables.main.abi_version = 0;
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "abi_version is 0");
    tables.main.abi_version = DTL_ABI_VERSION + 1;
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "abi_version is 3");
    tables.main.abi_version = 1; /* of 0.1 */
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "abi_version is 1");
}

/* Tables of other sizes: of older and newer callers. */
static void test_sizes(void) {
    struct {
        dtl_backend_vtable_t main;
        uint64_t tail[2];
    } longer;
    struct {
        dtl_memory_vtable_t memory;
        uint64_t tail[2];
    } longer_memory;
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
    char offset[32];
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    tables.main.struct_size = 0;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "struct_size is 0");
    tables.main.struct_size = 7;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "struct_size is 7");
    tables.main.struct_size = 5000;
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "struct_size is 5000");
    far_fill(&tables);
    tables.memory.struct_size = 0;
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "dtl_memory_vtable_t.struct_size");
    far_fill(&tables);
    tables.memory.struct_size = offsetof(dtl_memory_vtable_t, free);
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "dtl_memory_vtable_t.struct_size is 16 and ends before free");
    far_fill(&tables);
    tables.memory.struct_size = offsetof(dtl_memory_vtable_t, kind_info) + 5; /* a cut slot would be called */
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "dtl_memory_vtable_t.struct_size is 29 and ends inside kind_info");
    far_fill(&tables);
    tables.main.struct_size = offsetof(dtl_backend_vtable_t, memory);
    refuse(&tables, DTL_ERROR_INVALID_ARGUMENT, "dtl_backend_vtable_t.struct_size is 56 and ends before memory");

    far_fill(&tables); /* of an older version: what is not there counts as NULL, whatever the bytes say */
    tables.memory.struct_size = offsetof(dtl_memory_vtable_t, export_handle);
    memset(&tables.memory.export_handle, 0x55, sizeof tables.memory.export_handle);
    memset(&tables.memory.alloc_async, 0x55, sizeof tables.memory.alloc_async);
    tables.main.auto_priority = 0;
    CHECK_OK(dtl_backend_register("older", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_backend_info(backend, &info));
    CHECK(info.auto_priority == 40);
    {
        dtl_mem_handle_t handle;
        void* block = NULL;
        CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 64, 0, &block));
        CHECK_STATUS(dtl_mem_export(block, &handle), DTL_ERROR_NOT_SUPPORTED);
        CHECK_OK(dtl_mem_free(backend, block));
    }
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);

    far.destroyed = 0;
    far_fill(&tables);
    memset(&longer, 0, sizeof longer);
    longer.main = tables.main;
    longer.main.struct_size = sizeof longer;
    CHECK_OK(dtl_backend_register("long", &longer.main, &far, 0, &backend));
    CHECK_OK(dtl_backend_unregister(backend));
    far.destroyed = 0;
    longer.tail[1] = UINT64_C(1) << 24; /* the fourth byte of it, on a little-endian machine */
    backend = unset;
    CHECK_STATUS(dtl_backend_register("refused", &longer.main, &far, 0, &backend), DTL_ERROR_INCOMPATIBLE_ABI);
    snprintf(offset, sizeof offset, "offset %d", (int)sizeof tables.main + 8 + 3);
    CHECK_TEXT(offset);
    memset(&longer_memory, 0, sizeof longer_memory);
    longer_memory.memory = tables.memory;
    longer_memory.memory.struct_size = sizeof longer_memory;
    tables.main.memory = &longer_memory.memory;
    longer_memory.tail[0] = 1;
    refuse(&tables, DTL_ERROR_INCOMPATIBLE_ABI, "dtl_memory_vtable_t sets a field at offset");
    longer_memory.tail[0] = 0;
    CHECK_OK(dtl_backend_register("long", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);
}

int main(void) {
    test_required_slots();
    test_sizes();
    printf("ok\n");
    return 0;
}
