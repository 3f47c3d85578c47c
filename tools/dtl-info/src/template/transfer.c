/* @NAME@, the transfer component. At least one side of a copy is memory of this backend; the other is its own or
 * DTL_MEMORY_HOST. Copies to other backends' memory go through the host, which the library does. */
#include "@HEADER@"

/* (required) Copies size_bytes (at least 1) and returns when it is done. The ranges do not overlap. Several threads
 * at once. */
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
    /* Optional. A slot that stays NULL:
     *
     *   dtl_status_t copy_async(void *self, void *stream, void *dst, dtl_enum_word_t dst_kind, const void *src,
     *                           dtl_enum_word_t src_kind, uint64_t size_bytes)
     *       Queues a copy on a stream of the exec component.  NULL: the stream is waited for, then copy.
     *   copy_2d: rows, pitch apart (see dtl.h).               NULL: copy, row by row.
     *   dtl_status_t fill(void *self, void *dst, dtl_enum_word_t kind, uint8_t value, uint64_t size_bytes)
     *       Sets bytes.                                       NULL: copied from a filled host buffer. */
    return table;
}
