/* @NAME@, the transfer component. At least one side of a copy is memory of this backend, passed
 * with its kind. The other side is also such memory, or any memory that the host can access, passed
 * as DTL_MEMORY_HOST. Either side may be on a device other than the calling thread's current one.
 * Copies to memory of other backends go through the host; the library does that. */
#include "@HEADER@"

/* (required) Copies size_bytes (at least 1), and returns when the copy is done. The ranges do not
 * overlap. Called by several threads at once. */
static dtl_status_t transfer_copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src,
                                  dtl_enum_word_t src_kind, uint64_t size_bytes)@NOTHROW@
{
    (void)dst, (void)dst_kind, (void)src, (void)src_kind, (void)size_bytes;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "transfer_copy is not written yet");
}

dtl_transfer_vtable_t @ID@_transfer_table(void)
{
    dtl_transfer_vtable_t table = DTL_TRANSFER_VTABLE_INIT;
    table.copy = transfer_copy;
    /* Optional slots, and what happens while they are NULL:
     *
     *   dtl_status_t copy_async(void *self, void *stream, void *dst, dtl_enum_word_t dst_kind,
     *                           const void *src, dtl_enum_word_t src_kind, uint64_t size_bytes)
     *       Queues a copy on a stream of the exec component.
     *       NULL: the library waits for the stream, then calls copy.
     *   copy_2d (see dtl_transfer_vtable_t in dtl_backend.h)
     *       Copies rows that are a pitch apart.
     *       NULL: copy is called for each row.
     *   dtl_status_t fill(void *self, void *dst, dtl_enum_word_t kind, uint8_t value,
     *                     uint64_t size_bytes)
     *       Sets bytes.
     *       NULL: the library copies a filled host buffer. */
    return table;
}
