/* dtl_backend_self_test: built-in backends pass; a backend whose copies do nothing, or whose loop leaves out
 * its last piece, does not, and the report says what is wrong. The whole conformance kit is dtl-ctk. */
#include "check.h"
#include <stdlib.h>
#include <string.h>

static char report[4096];

static void passes(const char *name)
{
    dtl_backend_t backend;
    uint64_t length = 0;
    CHECK_OK(dtl_backend_get(name, &backend));
    CHECK_OK(dtl_backend_self_test(backend, report, sizeof report, &length));
    CHECK(strlen(report) == length && strstr(report, "ok      memory.alloc: HOST"));
    CHECK(!strstr(report, "failed"));
    CHECK_OK(dtl_backend_self_test(backend, NULL, 0, NULL));
    CHECK_STATUS(dtl_backend_self_test(backend, report, 10, &length), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK(length > 10);
}

static dtl_status_t take(void *self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void **out)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE)
        return DTL_ERROR_NOT_SUPPORTED;
    *out = aligned_alloc(align < 16 ? 16 : align, (size + 4095) / 4096 * 4096);
    return *out ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t give_back(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)align, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src,
                         dtl_enum_word_t src_kind, uint64_t size)
{
    (void)dst_kind, (void)src_kind;
    if (self == NULL)
        memcpy(dst, src, size);
    return DTL_SUCCESS;
}

static dtl_status_t execute(void *self, dtl_task_fn_t function, void *user)
{
    (void)self;
    return function(user);
}

static dtl_status_t leaves_out(void *self, uint64_t begin, uint64_t end, uint64_t grain,
                               dtl_range_fn_t body, void *user)
{
    (void)self;
    for (; begin + grain < end; begin += grain) {
        const dtl_status_t status = body(begin, begin + grain, user);
        if (status != DTL_SUCCESS)
            return status;
    }
    return DTL_SUCCESS;
}

static dtl_status_t one_thread(void *self, uint32_t *threads)
{
    (void)self;
    *threads = 1;
    return DTL_SUCCESS;
}

/* The backend's self-test fails, and says so at this check only. */
static void fails(dtl_backend_t backend, const char *check)
{
    CHECK_STATUS(dtl_backend_self_test(backend, report, sizeof report, NULL), DTL_ERROR_BACKEND);
    CHECK(strstr(dtl_last_error(), check) && strstr(report, "failed") && strstr(report, check));
}

int main(void)
{
    static char something;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    passes("host");
    passes("null");
    memory.alloc = take;
    memory.free = give_back;
    transfer.copy = copy;
    table.memory = &memory;
    table.transfer = &transfer;
    CHECK_OK(dtl_backend_register("right", &table, NULL, 0, &backend));
    passes("right");
    CHECK_OK(dtl_backend_register("copies_nothing", &table, &something, 0, &backend));
    fails(backend, "memory.alloc: HOST memory keeps its contents");
    exec.execute = execute;
    exec.parallel_for = leaves_out;
    exec.max_parallelism = one_thread;
    table.exec = &exec;
    CHECK_OK(dtl_backend_register("leaves_out", &table, NULL, 0, &backend));
    fails(backend, "exec.parallel_for: every iteration runs once");
    CHECK_OK(dtl_backend_unregister(backend));
    return 0;
}
