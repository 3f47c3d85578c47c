/* A static backend that can do nothing, and needs its environment. */
#include "dtl_backend_keep.h"
#if FAKE_BLAS != 1
#error "the environment is missing"
#endif

static dtl_status_t give(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out)
{
    (void)self, (void)size, (void)alignment, (void)kind, (void)out;
    return DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t take(void *self, void *ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)ptr, (void)size, (void)alignment, (void)kind;
    return DTL_SUCCESS;
}

const dtl_backend_vtable_t *dtl_backend_keep_table(void **out_self)
{
    static dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    static dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    memory.alloc = give;
    memory.free = take;
    table.memory = &memory;
    *out_self = NULL;
    return &table;
}
