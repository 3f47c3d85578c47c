/* A backend with nothing but memory, as small as it gets. */
#include "dtl_backend_my_mem.h"

static dtl_status_t take(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                         void **out_ptr)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    const uint64_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
    *out_ptr = aligned_alloc(alignment < sizeof(void *) ? sizeof(void *) : alignment, rounded);
    return *out_ptr == NULL ? DTL_ERROR_OUT_OF_MEMORY : DTL_SUCCESS;
}

static dtl_status_t give(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                         dtl_enum_word_t kind)
{
    (void)self, (void)size_bytes, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

const dtl_backend_vtable_t *dtl_backend_my_mem_table(void **out_self)
{
    static dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    static dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    memory.alloc = take;
    memory.free = give;
    table.memory = &memory;
    *out_self = NULL;
    return &table;
}
