/* ram, the memory component. alloc applies to the calling thread's current device. */
#define _POSIX_C_SOURCE 200809L
#include "ram.h"

#include <stdio.h>
#include <stdlib.h>

/* (required) Allocates size_bytes (at least 1), aligned to `alignment` (a power of two, at least
 * 1). Called by several threads at once.
 * Errors: DTL_ERROR_NOT_SUPPORTED for an unknown kind, DTL_ERROR_OUT_OF_MEMORY. */
static dtl_status_t memory_alloc(void *self, uint64_t size_bytes, uint64_t alignment,
                                 dtl_enum_word_t kind, void **out_ptr)
{
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE) {
        return ram_fail(self, DTL_ERROR_NOT_SUPPORTED, "it has memory of the kinds HOST and DEVICE");
    }
    const size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    if (posix_memalign(out_ptr, least, size_bytes) != 0) {
        return ram_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for %llu bytes", (unsigned long long)size_bytes);
    }
    return DTL_SUCCESS;
}

/* (required) Frees memory of memory_alloc. Size, alignment and kind are those of the allocation.
 * Any thread calls it, not only the one that allocated. The library has checked the pointer. */
static dtl_status_t memory_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                                dtl_enum_word_t kind)
{
    (void)self, (void)size_bytes, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t memory_kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info)
{
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE) {
        return ram_fail(self, DTL_ERROR_NOT_SUPPORTED, "it has memory of the kinds HOST and DEVICE");
    }
    out_info->properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
    if (kind == DTL_MEMORY_HOST) {
        out_info->properties |= DTL_MEMORY_HOST_ACCESSIBLE;
    }
    out_info->alignment = sizeof(void *);
    snprintf(out_info->name, sizeof out_info->name, "%s", kind == DTL_MEMORY_HOST ? "ram, shared" : "ram, the device's");
    return DTL_SUCCESS;
}

dtl_memory_vtable_t ram_memory_table(void)
{
    dtl_memory_vtable_t table = DTL_MEMORY_VTABLE_INIT;
    table.alloc = memory_alloc;
    table.free = memory_free;
    table.kind_info = memory_kind_info;
    return table;
}
