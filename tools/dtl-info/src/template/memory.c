/* @NAME@, the memory component. alloc applies to the calling thread's current device. */
#include "@HEADER@"

/* (required) Allocates size_bytes (at least 1), aligned to `alignment` (a power of two, at least
 * 1). Called by several threads at once.
 * Errors: DTL_ERROR_NOT_SUPPORTED for an unknown kind, DTL_ERROR_OUT_OF_MEMORY. */
static dtl_status_t memory_alloc(void *self, uint64_t size_bytes, uint64_t alignment,
                                 dtl_enum_word_t kind, void **out_ptr)@NOTHROW@
{
    (void)size_bytes, (void)alignment, (void)kind, (void)out_ptr;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "memory_alloc is not written yet");
}

/* (required) Frees memory of memory_alloc. Size, alignment and kind are those of the allocation.
 * Any thread calls it, not only the one that allocated. The library has checked the pointer. */
static dtl_status_t memory_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                                dtl_enum_word_t kind)@NOTHROW@
{
    (void)ptr, (void)size_bytes, (void)alignment, (void)kind;
    return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "memory_free is not written yet");
}

dtl_memory_vtable_t @ID@_memory_table(void)
{
    dtl_memory_vtable_t table = DTL_MEMORY_VTABLE_INIT;
    table.alloc = memory_alloc;
    table.free = memory_free;
    /* Optional slots, and what happens while they are NULL:
     *
     *   dtl_status_t kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info)
     *       Describes a kind: `properties`, `alignment` that every allocation has, `name`. The
     *       properties are DTL_MEMORY_HOST_ACCESSIBLE, DTL_MEMORY_DEVICE_ACCESSIBLE,
     *       DTL_MEMORY_UNIFIED, DTL_MEMORY_ATOMICS, DTL_MEMORY_PAGEABLE, DTL_MEMORY_EXPORTABLE and
     *       DTL_MEMORY_THREAD_SAFE. Set the last one if several threads may call alloc and free at
     *       once; without it the test threads_at_once of the kind is skipped.
     *       DTL_ERROR_NOT_SUPPORTED for an unknown kind.
     *       NULL: DTL_MEMORY_HOST is treated as host memory, and DTL_MEMORY_DEVICE as memory that
     *       only this backend can access.
     *   dtl_status_t memory_info(void *self, uint64_t *out_free, uint64_t *out_total)
     *       Writes free and total bytes; 0 = unknown.
     *       NULL: DTL_ERROR_NOT_SUPPORTED.
     *
     * The next three are all present or all NULL (then dtl_mem_export is DTL_ERROR_NOT_SUPPORTED).
     * They are for kinds with the property DTL_MEMORY_EXPORTABLE:
     *
     *   dtl_status_t export_handle(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
     *                              dtl_enum_word_t kind, void *out_bytes)
     *       Writes the data with which another process on this node imports the allocation:
     *       DTL_MEM_HANDLE_ROOM bytes, aligned to 8.
     *   dtl_status_t import_handle(void *self, const void *bytes, uint64_t size_bytes,
     *                              uint64_t alignment, dtl_enum_word_t kind, void **out_ptr)
     *       Maps the allocation into this process; each call writes a different address.
     *       DTL_ERROR_INVALID_HANDLE if the exporter has freed the memory or ended.
     *   dtl_status_t close_handle(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
     *                             dtl_enum_word_t kind)
     *       Unmaps memory of import_handle; it stays allocated for its other users.
     *
     * Both of these, or none (then alloc at once, and free when the work in the stream is done):
     *   dtl_status_t alloc_async(void *self, void *stream, uint64_t size_bytes, uint64_t alignment,
     *                            dtl_enum_word_t kind, void **out_ptr)
     *       Allocates in the order of the stream and on its device. Later work of the stream may use the memory.
     *   dtl_status_t free_async(void *self, void *stream, void *ptr, uint64_t size_bytes, uint64_t alignment,
     *                           dtl_enum_word_t kind)
     *       Frees memory of alloc or alloc_async after the work that is in the stream.
     *
     * Both of these, or none (then dtl_mem_register_host: DTL_ERROR_NOT_SUPPORTED):
     *   dtl_status_t register_host(void *self, void *ptr, uint64_t size_bytes)
     *       Makes host memory of the program memory of kind DTL_MEMORY_PINNED. Ranges do not overlap.
     *   dtl_status_t unregister_host(void *self, void *ptr, uint64_t size_bytes)
     *       Undoes register_host, with the same range.
     *
     *   dtl_status_t export_dmabuf(void *self, void *ptr, uint64_t size_bytes, int32_t *out_fd,
     *                              uint64_t *out_offset_bytes)
     *       Writes a new file descriptor, which the caller owns, and the offset of the range in its dma-buf.
     *                                                                       NULL: DTL_ERROR_NOT_SUPPORTED.
     *   dtl_status_t pointer_info(void *self, const void *ptr, dtl_mem_info_t *out_info)
     *       Describes memory that the program allocated through the driver: device, kind, base, size_bytes.
     *       DTL_ERROR_NOT_FOUND: the driver does not recognize the address. It is called for every buffer that the
     *       library does not recognize, so it must be fast. It must not read the memory.
     *                                   NULL: only memory passed to dtl_mem_adopt is recognized. */
    return table;
}
