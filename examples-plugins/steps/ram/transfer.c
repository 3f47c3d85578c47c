/* ram, the transfer component. At least one side of a copy is memory of this backend, passed
 * with its kind. The other side is also such memory, or any memory that the host can access, passed
 * as DTL_MEMORY_HOST. Either side may be on a device other than the calling thread's current one.
 * Copies to memory of other backends go through the host; the library does that. */
#include "ram.h"

#include <string.h>

/* (required) Copies size_bytes (at least 1), and returns when the copy is done. The ranges do not
 * overlap. Called by several threads at once. */
static dtl_status_t transfer_copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src,
                                  dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    (void)self, (void)dst_kind, (void)src_kind;
    memcpy(dst, src, size_bytes);
    return DTL_SUCCESS;
}

dtl_transfer_vtable_t ram_transfer_table(void)
{
    dtl_transfer_vtable_t table = DTL_TRANSFER_VTABLE_INIT;
    table.copy = transfer_copy;
    return table;
}
