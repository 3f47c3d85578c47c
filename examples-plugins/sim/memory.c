/* The memory component: five kinds. DEVICE is memory of the card; the others are memory of the host
 * that the card accesses, too. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ON_BOTH_SIDES \
    (DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE)

static const struct kind_t {
    dtl_enum_word_t word;
    uint64_t properties, alignment;
    const char *name;
} kinds[] = {
    {DTL_MEMORY_HOST, DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE | DTL_MEMORY_THREAD_SAFE,
     64, "host"},
    {DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE, CARD_ALIGNMENT,
     "the card's"},
    {DTL_MEMORY_PINNED, ON_BOTH_SIDES, 4096, "host, mapped by the card"},
    {DTL_MEMORY_MANAGED, ON_BOTH_SIDES | DTL_MEMORY_UNIFIED, 4096, "of both sides"},
    {DTL_MEMORY_SHARED, ON_BOTH_SIDES | DTL_MEMORY_EXPORTABLE, 4096, "of several processes"},
};

static const struct kind_t *find(dtl_enum_word_t word)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].word == word) return &kinds[i];
    }
    return NULL;
}

static dtl_status_t no_such_kind(void)
{
    return sim_fail(DTL_ERROR_NOT_SUPPORTED,
                    "sim has memory of the kinds HOST, DEVICE, PINNED, MANAGED and SHARED");
}

static dtl_status_t alloc_on(int32_t device, uint64_t size_bytes, uint64_t alignment,
                             dtl_enum_word_t word, void **out_ptr)
{
    const struct kind_t *kind = find(word);
    if (kind == NULL) return no_such_kind();
    if (alignment < kind->alignment) alignment = kind->alignment;
    if (card_fails("alloc")) {
        return sim_fail(DTL_ERROR_OUT_OF_MEMORY, "no memory, by DTL_BACKEND_SIM_FAULT");
    }
    if (word == DTL_MEMORY_DEVICE) {
        if (card_is_lost(device)) return sim_lost(device);
        *out_ptr = card_alloc(device, size_bytes, alignment);
    } else if (word == DTL_MEMORY_SHARED) {
        *out_ptr = card_share(size_bytes, alignment);
    } else {
        *out_ptr = card_alloc(CARD_HOST, size_bytes, alignment);
    }
    if (*out_ptr != NULL) return DTL_SUCCESS;
    return sim_fail(DTL_ERROR_OUT_OF_MEMORY, "no %llu bytes of memory \"%s\" for device %d",
                    (unsigned long long)size_bytes, kind->name, (int)device);
}

static void free_now(void *ptr, dtl_enum_word_t kind)
{
    if (kind == DTL_MEMORY_SHARED) card_unshare(ptr);
    else card_free(ptr);
}

static dtl_status_t alloc(void *self, uint64_t size_bytes, uint64_t alignment,
                          dtl_enum_word_t kind, void **out_ptr)
{
    (void)self;
    return alloc_on(sim_current, size_bytes, alignment, kind, out_ptr);
}

static dtl_status_t release(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                            dtl_enum_word_t kind)
{
    (void)self, (void)size_bytes, (void)alignment;
    free_now(ptr, kind);
    return DTL_SUCCESS;
}

static dtl_status_t kind_info(void *self, dtl_enum_word_t word, dtl_mem_kind_info_t *out_info)
{
    const struct kind_t *kind = find(word);
    (void)self;
    if (kind == NULL) return no_such_kind();
    out_info->properties = kind->properties;
    out_info->alignment = kind->alignment;
    snprintf(out_info->name, sizeof out_info->name, "%s", kind->name);
    return DTL_SUCCESS;
}

/* ---- memory of several processes ---- */

static dtl_status_t export_handle(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                                  dtl_enum_word_t kind, void *out_bytes)
{
    (void)self, (void)size_bytes, (void)alignment;
    if (kind != DTL_MEMORY_SHARED) return sim_fail(DTL_ERROR_NOT_SUPPORTED,
                                                   "only kind SHARED can be exported");
    if (card_share_export(ptr, out_bytes) == 0) return DTL_SUCCESS;
    return sim_fail(DTL_ERROR_NOT_SUPPORTED,
                    "an import cannot be exported again: export the allocation");
}

static dtl_status_t import_handle(void *self, const void *bytes, uint64_t size_bytes,
                                  uint64_t alignment, dtl_enum_word_t kind, void **out_ptr)
{
    (void)self, (void)kind;
    *out_ptr = card_share_import(bytes, size_bytes, alignment);
    if (*out_ptr != NULL) return DTL_SUCCESS;
    return sim_fail(DTL_ERROR_INVALID_HANDLE, "the exporter has freed the memory or ended");
}

static dtl_status_t export_dmabuf(void *self, void *ptr, uint64_t size_bytes, int32_t *out_fd,
                                  uint64_t *out_offset_bytes)
{
    (void)self, (void)size_bytes;
    *out_fd = card_share_file(ptr, out_offset_bytes);
    if (*out_fd >= 0) return DTL_SUCCESS;
    return sim_fail(DTL_ERROR_NOT_SUPPORTED, "only allocations of kind SHARED have a file");
}

/* ---- memory in the order of a stream, and memory of the program ---- */

typedef struct free_t {
    sim_job_t job;
    void *ptr;
    dtl_enum_word_t kind;
} free_t;

static dtl_status_t run_free(sim_job_t *job)
{
    const free_t *what = (const free_t *)job;
    free_now(what->ptr, what->kind);
    return DTL_SUCCESS;
}

static dtl_status_t alloc_async(void *self, void *stream, uint64_t size_bytes, uint64_t alignment,
                                dtl_enum_word_t kind, void **out_ptr)
{
    (void)self; /* immediately, which is early enough */
    return alloc_on(((sim_stream_t *)stream)->device, size_bytes, alignment, kind, out_ptr);
}

static dtl_status_t free_async(void *self, void *stream, void *ptr, uint64_t size_bytes,
                               uint64_t alignment, dtl_enum_word_t kind)
{
    free_t *what = calloc(1, sizeof *what);
    (void)self, (void)size_bytes, (void)alignment;
    if (what != NULL) what->ptr = ptr, what->kind = kind;
    return sim_push(stream, what, NULL, run_free, sim_drop);
}

static dtl_status_t register_host(void *self, void *ptr, uint64_t size_bytes)
{
    (void)self, (void)ptr, (void)size_bytes; /* the card reaches all memory of the process */
    return DTL_SUCCESS;
}

dtl_memory_vtable_t sim_memory_table(void)
{
    dtl_memory_vtable_t table = DTL_MEMORY_VTABLE_INIT;
    table.alloc = alloc;
    table.free = release;
    table.kind_info = kind_info;
    table.export_handle = export_handle;
    table.import_handle = import_handle;
    table.close_handle = release;
    table.export_dmabuf = export_dmabuf;
    table.alloc_async = alloc_async;
    table.free_async = free_async;
    table.register_host = register_host;
    table.unregister_host = register_host;
    return table;
}
