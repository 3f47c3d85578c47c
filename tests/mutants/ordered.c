/* Memory in a stream's order, host memory of the program's, and prefetches, which move nothing here. */
#include "exports.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static dtl_status_t whole_alloc_async(void *self, void *stream, uint64_t size_bytes, uint64_t alignment,
                                      dtl_enum_word_t kind, void **out_ptr)
{
    (void)stream; /* what is taken at once is there for all later work */
    if (is_fault("memory.alloc_async.any_kind")) {
        kind = DTL_MEMORY_HOST;
    }
    if (is_fault("memory.alloc_async.half") && size_bytes > 1) {
        size_bytes /= 2;
    }
    const dtl_status_t status = whole_alloc(self, size_bytes, alignment, kind, out_ptr);
    if (status == DTL_SUCCESS && is_fault("memory.alloc_async.misaligned")) {
        *out_ptr = (unsigned char *)*out_ptr + 1;
    }
    return status;
}

/* A free that waits for its turn. */
typedef struct free_t {
    work_t work;
    void *self, *ptr;
    uint64_t size_bytes, alignment;
    dtl_enum_word_t kind;
} free_t;

static dtl_status_t run_free(work_t *work)
{
    const free_t *later = (const free_t *)work;
    return whole_free(later->self, later->ptr, later->size_bytes, later->alignment, later->kind);
}

static dtl_status_t whole_free_async(void *self, void *stream, void *ptr, uint64_t size_bytes, uint64_t alignment,
                                     dtl_enum_word_t kind)
{
    free_t *later = calloc(1, sizeof *later);
    if (later == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a free");
    }
    *later = (free_t){{NULL, run_free, NULL, 0, NULL}, self, ptr, size_bytes, alignment, kind};
    if (is_fault("memory.free_async.at_once")) {
        const dtl_status_t status = run_free(&later->work);
        free(later);
        return status;
    }
    return stream_push(is_fault("memory.free_async.wrong_stream") ? stream_of_nobody() : stream, &later->work);
}

/* The ranges that are registered. */
enum { MOST = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { void *ptr; uint64_t size_bytes; } known[MOST];

/* Puts a range in the place of another; with NULL, in a free one. */
static int replace(void *old, uint64_t old_bytes, void *ptr, uint64_t size_bytes)
{
    int is_done = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST && !is_done; i++) {
        if (known[i].ptr == old && known[i].size_bytes == old_bytes) {
            known[i].ptr = ptr;
            known[i].size_bytes = size_bytes;
            is_done = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return is_done;
}

static dtl_status_t whole_register_host(void *self, void *ptr, uint64_t size_bytes)
{
    (void)self;
    if (is_fault("memory.register_host.whole_pages_only") && size_bytes % 4096 != 0) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no whole pages");
    }
    if (is_fault("memory.register_host.wipes")) {
        memset(ptr, 0, size_bytes);
    }
    /* There once: another time is refused. */
    if (replace(ptr, size_bytes, ptr, size_bytes)) {
        return failed(DTL_ERROR_ALREADY_EXISTS, "it is registered");
    }
    return replace(NULL, 0, ptr, size_bytes) ? DTL_SUCCESS : failed(DTL_ERROR_LIMIT, "too many ranges");
}

static dtl_status_t whole_unregister_host(void *self, void *ptr, uint64_t size_bytes)
{
    (void)self;
    return replace(ptr, size_bytes, NULL, 0) ? DTL_SUCCESS : failed(DTL_ERROR_NOT_FOUND, "it is not registered");
}

static dtl_status_t whole_prefetch(void *self, void *stream, void *ptr, dtl_enum_word_t kind, uint64_t size_bytes,
                                   int32_t device)
{
    (void)self, (void)stream, (void)kind;
    if (is_fault("transfer.prefetch.wipes")) {
        memset(ptr, 0, size_bytes);
    }
    if (is_fault("transfer.prefetch.devices_only") && device < 0) {
        return failed(DTL_ERROR_OUT_OF_BOUNDS, "no such device");
    }
    return DTL_SUCCESS;
}

SLOT(memory, alloc_async, whole_alloc_async,
     (void *self, void *stream, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void **out_ptr),
     (self, stream, size_bytes, alignment, kind, out_ptr))
SLOT(memory, free_async, whole_free_async,
     (void *self, void *stream, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind),
     (self, stream, ptr, size_bytes, alignment, kind))
SLOT(memory, register_host, whole_register_host, (void *self, void *ptr, uint64_t size_bytes), (self, ptr, size_bytes))
SLOT(memory, unregister_host, whole_unregister_host, (void *self, void *ptr, uint64_t size_bytes), (self, ptr, size_bytes))
SLOT(transfer, prefetch, whole_prefetch,
     (void *self, void *stream, void *ptr, dtl_enum_word_t kind, uint64_t size_bytes, int32_t device),
     (self, stream, ptr, kind, size_bytes, device))

void add_ordered(dtl_memory_vtable_t *table)
{
    table->alloc_async = slot_alloc_async;
    table->free_async = slot_free_async;
    table->register_host = slot_register_host;
    table->unregister_host = slot_unregister_host;
}

void add_prefetch(dtl_transfer_vtable_t *table)
{
    table->prefetch = slot_prefetch;
}
