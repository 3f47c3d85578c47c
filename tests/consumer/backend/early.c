/* A backend without a device that is registered before main: all its memory is one static block. */
#include "dtl_backend_early.h"

static _Alignas(64) unsigned char block[4096];

static dtl_status_t take(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                         void **out_ptr)
{
    (void)self, (void)kind;
    if (size_bytes > sizeof block || alignment > 64) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    *out_ptr = block;
    return DTL_SUCCESS;
}

static dtl_status_t give(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                         dtl_enum_word_t kind)
{
    (void)self, (void)ptr, (void)size_bytes, (void)alignment, (void)kind;
    return DTL_SUCCESS;
}

const dtl_backend_vtable_t *dtl_backend_early_table(void **out_self)
{
    static dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    static dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    memory.alloc = take;
    memory.free = give;
    table.memory = &memory;
    *out_self = NULL;
    return &table;
}
