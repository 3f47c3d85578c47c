/* pool: memory from one block that is set aside once. Nothing else: no devices, no copies, no threads.
 *
 * It is a buddy allocator. The block is 2^n bytes and stands at a multiple of its size. A piece is 2^k bytes, its
 * offset is a multiple of that, so any alignment up to k bits holds by itself. A piece that is too large is halved; two
 * halves that are both free become one again. Each size has a list of its free pieces, kept in the pieces.
 *
 * DTL_BACKEND_POOL_MIB sets the size (a power of two, 64 if it is not set). The block is taken at the first
 * allocation, and the system backs it with memory page by page as it is touched. */
#define _GNU_SOURCE
#include <dtl.h>

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LEAST_BITS = 6, /* a piece has 64 bytes or more: a cache line, and room for the links */
    MOST_BITS = 40,
    DEFAULT_MIB = 64
};

typedef struct piece_t { /* what a free piece begins with */
    struct piece_t *next, *previous;
} piece_t;

typedef struct pool_t {
    pthread_mutex_t lock;
    int bits;             /* the block has 2^bits bytes */
    unsigned char *block; /* NULL: not taken yet */
    unsigned char *free_bits; /* per 64 bytes: k of the free piece that begins there, else 0 */
    piece_t *free[MOST_BITS + 1];
    uint64_t used_bytes, most_bytes, count; /* in pieces, halves rounded up: what is really gone */
} pool_t;

static const dtl_host_api_t *library;

static dtl_status_t fail(dtl_status_t status, const char *format, ...)
{
    char text[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    DTL_IGNORE(library->set_error(text));
    return status;
}

/* ---- pieces; the lock is held ---- */

static size_t index_of(const pool_t *pool, const void *piece)
{
    return (size_t)((const unsigned char *)piece - pool->block) >> LEAST_BITS;
}

static void add_free(pool_t *pool, void *at, int bits)
{
    piece_t *piece = at;
    piece->previous = NULL;
    piece->next = pool->free[bits];
    if (piece->next != NULL) {
        piece->next->previous = piece;
    }
    pool->free[bits] = piece;
    pool->free_bits[index_of(pool, at)] = (unsigned char)bits;
}

static void remove_free(pool_t *pool, piece_t *piece, int bits)
{
    if (piece->previous != NULL) {
        piece->previous->next = piece->next;
    } else {
        pool->free[bits] = piece->next;
    }
    if (piece->next != NULL) {
        piece->next->previous = piece->previous;
    }
    pool->free_bits[index_of(pool, piece)] = 0;
}

static void *take_piece(pool_t *pool, int bits)
{
    int from = bits;
    while (from <= pool->bits && pool->free[from] == NULL) {
        from++;
    }
    if (from > pool->bits) {
        return NULL;
    }
    piece_t *piece = pool->free[from];
    remove_free(pool, piece, from);
    while (from > bits) { /* gives back the upper half */
        from--;
        add_free(pool, (unsigned char *)piece + (UINT64_C(1) << from), from);
    }
    return piece;
}

static void give_piece(pool_t *pool, unsigned char *piece, int bits)
{
    for (; bits < pool->bits; bits++) {
        unsigned char *buddy = pool->block + ((uint64_t)(piece - pool->block) ^ (UINT64_C(1) << bits));
        if (pool->free_bits[index_of(pool, buddy)] != bits) {
            break;
        }
        remove_free(pool, (piece_t *)(void *)buddy, bits);
        piece = buddy < piece ? buddy : piece;
    }
    add_free(pool, piece, bits);
}

static dtl_status_t take_block(pool_t *pool)
{
    const uint64_t size = UINT64_C(1) << pool->bits;
    /* Twice as much address space as needed has an aligned half in it; the rest goes back. */
    unsigned char *all = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *bits = calloc(size >> LEAST_BITS, 1);
    if (all == MAP_FAILED || bits == NULL) {
        const int error = errno;
        if (all != MAP_FAILED) {
            munmap(all, 2 * size);
        }
        free(bits);
        return fail(DTL_ERROR_OUT_OF_MEMORY, "pool: a block of %llu MiB: %s; set DTL_BACKEND_POOL_MIB lower",
                    (unsigned long long)(size >> 20), strerror(error));
    }
    unsigned char *block = all + (size - ((uintptr_t)all & (size - 1)));
    munmap(all, (size_t)(block - all));
    munmap(block + size, (size_t)(all + size - block));
    pool->block = block;
    pool->free_bits = bits;
    add_free(pool, block, pool->bits);
    return DTL_SUCCESS;
}

/* Of the smallest piece that has this size and alignment. */
static int bits_for(uint64_t size_bytes, uint64_t alignment)
{
    const uint64_t least = size_bytes > alignment ? size_bytes : alignment;
    int bits = LEAST_BITS;
    while (bits < 63 && (UINT64_C(1) << bits) < least) {
        bits++;
    }
    return bits;
}

/* ---- the slots: from any thread, several at once ---- */

static dtl_status_t pool_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                               void **out_ptr)
{
    pool_t *pool = self;
    const int bits = bits_for(size_bytes, alignment);
    dtl_status_t status = DTL_SUCCESS;
    if (kind != DTL_MEMORY_HOST) {
        return fail(DTL_ERROR_NOT_SUPPORTED, "pool: it has memory of kind DTL_MEMORY_HOST only");
    }
    pthread_mutex_lock(&pool->lock);
    if (pool->block == NULL) {
        status = take_block(pool);
    }
    void *piece = status == DTL_SUCCESS && bits <= pool->bits ? take_piece(pool, bits) : NULL;
    if (piece != NULL) {
        pool->used_bytes += UINT64_C(1) << bits;
        pool->most_bytes = pool->used_bytes > pool->most_bytes ? pool->used_bytes : pool->most_bytes;
        pool->count++;
    } else if (status == DTL_SUCCESS) {
        status = fail(DTL_ERROR_OUT_OF_MEMORY, "pool: no piece for %llu bytes aligned to %llu: %llu of %llu are used; "
                      "set DTL_BACKEND_POOL_MIB higher", (unsigned long long)size_bytes, (unsigned long long)alignment,
                      (unsigned long long)pool->used_bytes, 1ull << pool->bits);
    }
    pthread_mutex_unlock(&pool->lock);
    *out_ptr = piece;
    return status;
}

static dtl_status_t pool_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                              dtl_enum_word_t kind)
{
    pool_t *pool = self;
    const int bits = bits_for(size_bytes, alignment); /* as at the allocation */
    (void)kind;
    pthread_mutex_lock(&pool->lock);
    give_piece(pool, ptr, bits);
    pool->used_bytes -= UINT64_C(1) << bits;
    pthread_mutex_unlock(&pool->lock);
    return DTL_SUCCESS;
}

static dtl_status_t pool_kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    out_info->properties = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE | DTL_MEMORY_THREAD_SAFE;
    out_info->alignment = 1u << LEAST_BITS;
    snprintf(out_info->name, sizeof out_info->name, "host (pool)");
    return DTL_SUCCESS;
}

static dtl_status_t pool_memory_info(void *self, uint64_t *out_free, uint64_t *out_total)
{
    pool_t *pool = self;
    pthread_mutex_lock(&pool->lock);
    *out_total = UINT64_C(1) << pool->bits;
    *out_free = *out_total - pool->used_bytes;
    pthread_mutex_unlock(&pool->lock);
    return DTL_SUCCESS;
}

/* After the last use: the statistics go to the log (DTL_LOG=debug shows them). */
static void pool_destroy(void *self)
{
    pool_t *pool = self;
    char text[160];
    snprintf(text, sizeof text, "pool: %llu allocations, at most %llu bytes at a time, %llu never freed",
             (unsigned long long)pool->count, (unsigned long long)pool->most_bytes,
             (unsigned long long)pool->used_bytes);
    DTL_IGNORE(library->log(DTL_LOG_DEBUG, text));
    if (pool->block != NULL) {
        munmap(pool->block, UINT64_C(1) << pool->bits);
    }
    free(pool->free_bits);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* ---- the plugin ---- */

static dtl_status_t size_from_environment(int *out_bits)
{
    const char *text = getenv("DTL_BACKEND_POOL_MIB");
    char *end = NULL;
    const unsigned long mib = text == NULL || text[0] == '\0' ? DEFAULT_MIB : strtoul(text, &end, 10);
    if (mib == 0 || (end != NULL && *end != '\0') || (mib & (mib - 1)) != 0 || mib > 1ul << (MOST_BITS - 20)) {
        return fail(DTL_ERROR_INVALID_ARGUMENT, "pool: DTL_BACKEND_POOL_MIB=\"%s\": a power of two expected, 1 to %lu",
                    text, 1ul << (MOST_BITS - 20));
    }
    *out_bits = bits_for((uint64_t)mib << 20, 1);
    return DTL_SUCCESS;
}

/* May be called again, after the backend of the first call was destroyed. */
static dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    int bits = 0;
    library = host;
    dtl_status_t status = size_from_environment(&bits);
    if (status != DTL_SUCCESS) {
        return status;
    }
    pool_t *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pool->bits = bits;
    memory.alloc = pool_alloc;
    memory.free = pool_free;
    memory.kind_info = pool_kind_info;
    memory.memory_info = pool_memory_info;
    table.memory = &memory;
    table.destroy = pool_destroy;
    table.auto_priority = INT32_MIN; /* whoever wants it names it */
    status = host->backend_register("pool", &table, pool, 0, &backend);
    if (status != DTL_SUCCESS) { /* destroy is not called then */
        pthread_mutex_destroy(&pool->lock);
        free(pool);
    }
    return status;
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "pool";
    plugin.version = "1.0";
    plugin.description = "memory from a block of fixed size";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
