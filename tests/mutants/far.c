/* wire's memory, which the host cannot touch: its pointers are shifted out of the address space. The network accesses
 * it where it is registered (register.c). */
#include "wire.h"

#include <stdlib.h>
#include <string.h>

#define SHIFT ((uintptr_t)1 << 62)

int is_far(const void *pointer)
{
    return ((uintptr_t)pointer & SHIFT) != 0;
}

void *real_address(const void *pointer)
{
    return (void *)((uintptr_t)pointer & ~SHIFT);
}

static dtl_status_t far_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void **out)
{
    (void)self;
    if (kind != DTL_MEMORY_DEVICE) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "wire has DTL_MEMORY_DEVICE");
    }
    const uint64_t unit = alignment < 64 ? 64 : alignment;
    void *memory = aligned_alloc(unit, (size_bytes + unit - 1) / unit * unit);
    if (memory == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for an allocation");
    }
    *out = (void *)((uintptr_t)memory | SHIFT);
    return DTL_SUCCESS;
}

static dtl_status_t far_free(void *self, void *pointer, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size_bytes, (void)alignment, (void)kind;
    free(real_address(pointer));
    return DTL_SUCCESS;
}

static dtl_status_t far_kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info)
{
    (void)self;
    if (kind != DTL_MEMORY_DEVICE) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "wire has DTL_MEMORY_DEVICE");
    }
    out_info->properties = DTL_MEMORY_DEVICE_ACCESSIBLE;
    out_info->alignment = 64;
    memcpy(out_info->name, "far", 4);
    return DTL_SUCCESS;
}

static dtl_status_t far_copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src, dtl_enum_word_t src_kind,
                             uint64_t size_bytes)
{
    (void)self, (void)dst_kind, (void)src_kind;
    memmove(real_address(dst), real_address(src), size_bytes);
    return DTL_SUCCESS;
}

void add_far(dtl_memory_vtable_t *memory, dtl_transfer_vtable_t *transfer)
{
    memory->alloc = far_alloc;
    memory->free = far_free;
    memory->kind_info = far_kind_info;
    transfer->copy = far_copy;
}
