/* Pools as a C program sees them: of the host's plain memory, of page-locked memory, of a registered
 * backend's. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "far.h"
#include <pthread.h>

#define MIB (UINT64_C(1) << 20)

static dtl_backend_t host;

static dtl_mem_stats_t stats(dtl_pool_t pool) {
    dtl_mem_stats_t now = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_pool_stats(pool, &now));
    CHECK(now.peak_bytes >= now.live_bytes && now.reserved_bytes >= now.live_bytes);
    return now;
}

static dtl_mem_stats_t backend_stats(dtl_backend_t backend) {
    dtl_mem_stats_t now = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(backend, &now));
    return now;
}

static void* take(dtl_pool_t pool, uint64_t size) {
    void* memory = NULL;
    CHECK_OK(dtl_pool_alloc(pool, size, 0, &memory));
    CHECK(memory != NULL && (uintptr_t)memory % 64 == 0);
    return memory;
}

/* What holds for every pool. */
static void test_rules(dtl_backend_t backend, dtl_enum_word_t kind) {
    const uint64_t sizes[5] = {1, 100, 5000, 70000, 3 * MIB};
    const uint64_t outside = backend_stats(backend).live_count;
    dtl_pool_t pool = DTL_POOL_NULL, other = DTL_POOL_NULL;
    void *blocks[5], *late;
    uint64_t sum = 0, alignment;
    int i;
    CHECK_OK(dtl_pool_create(backend, kind, NULL, &pool));
    CHECK_OK(dtl_pool_create(backend, kind, NULL, &other));
    CHECK(stats(pool).total_count == 0 && stats(pool).peak_bytes == 0);
    for (i = 0; i < 5; i++) {
        dtl_mem_info_t info = DTL_MEM_INFO_INIT;
        blocks[i] = take(pool, sizes[i]);
        sum += sizes[i];
        CHECK_OK(dtl_mem_fill(blocks[i], (uint8_t)i, sizes[i]));
        CHECK_OK(dtl_mem_query((char*)blocks[i] + sizes[i] - 1, &info));
        CHECK(info.base == blocks[i] && info.size_bytes == sizes[i] && info.kind == kind && info.backend.id == backend.id);
        CHECK_STATUS(dtl_mem_query((char*)blocks[i] + sizes[i], &info), DTL_ERROR_NOT_FOUND);
    }
    CHECK(stats(pool).live_bytes == sum && stats(pool).live_count == 5 && stats(pool).peak_bytes == sum);
    CHECK(stats(other).live_count == 0 && backend_stats(backend).live_count == outside);
    CHECK_STATUS(dtl_pool_destroy(pool), DTL_ERROR_BUSY);
    CHECK(strstr(dtl_last_error(), "5 live") != NULL);
    for (i = 0; i < 5; i++) {
        void* plain = NULL;
        CHECK_STATUS(dtl_pool_free(other, blocks[i]), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(dtl_mem_free(backend, blocks[i]), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(dtl_last_error(), "dtl_pool_free") != NULL);
        CHECK_STATUS(dtl_pool_free(pool, (char*)blocks[i] + 1), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(dtl_pool_free(pool, &plain), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_OK(dtl_mem_alloc(backend, kind, sizes[i], 0, &plain));
        CHECK_STATUS(dtl_pool_free(pool, plain), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(dtl_last_error(), "dtl_mem_free") != NULL);
        CHECK_OK(dtl_mem_free(backend, plain));
        CHECK_OK(dtl_pool_free(pool, blocks[i]));
        CHECK_STATUS(dtl_pool_free(pool, blocks[i]), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(dtl_mem_query(blocks[i], (dtl_mem_info_t*)NULL), DTL_ERROR_NULL_POINTER);
    }
    CHECK_OK(dtl_pool_free(pool, NULL));
    CHECK(stats(pool).live_bytes == 0 && stats(pool).live_count == 0 && stats(pool).total_count == 5);
    for (alignment = 1; alignment <= MIB; alignment *= 2) {
        void* memory = NULL;
        CHECK_OK(dtl_pool_alloc(pool, 100, alignment, &memory));
        CHECK((uintptr_t)memory % alignment == 0);
        CHECK_OK(dtl_pool_free(pool, memory));
    }
    CHECK_STATUS(dtl_pool_alloc(pool, 0, 0, &blocks[0]), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_pool_alloc(pool, 64, 48, &blocks[0]), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_pool_alloc(pool, 64, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_pool_trim(pool, 0));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK_STATUS(dtl_pool_destroy(pool), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_pool_destroy(other));
    /* A stale handle stays stale, also when another pool has its place. */
    CHECK_STATUS(dtl_pool_alloc(pool, 64, 0, &late), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_pool_create(backend, kind, NULL, &other));
    CHECK_OK(dtl_pool_alloc(other, 64, 0, &late));
    CHECK_STATUS(dtl_pool_alloc(pool, 64, 0, &blocks[0]), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_pool_free(pool, late), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_pool_free(other, late));
    CHECK_OK(dtl_pool_destroy(other));
}

/* A registered backend whose calls are counted, with memory for so many bytes. */
static int allocs, frees;
static uint64_t left;
static uint64_t asked_for; /* the last alignment */
static dtl_status_t count_alloc(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out) {
    (void)self, (void)kind;
    asked_for = alignment;
    if (size > left) return DTL_ERROR_OUT_OF_MEMORY;
    if (posix_memalign(out, alignment < 64 ? 64 : alignment, size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    left -= size;
    allocs++;
    return DTL_SUCCESS;
}
static dtl_status_t count_free(void* self, void* memory, uint64_t size, uint64_t alignment, dtl_enum_word_t kind) {
    (void)self, (void)kind, (void)alignment;
    left += size;
    frees++;
    free(memory);
    return DTL_SUCCESS;
}
static dtl_status_t count_copy(void* self, void* dst, dtl_enum_word_t dst_kind, const void* src, dtl_enum_word_t src_kind,
                               uint64_t size) {
    (void)self, (void)dst_kind, (void)src_kind;
    memcpy(dst, src, size);
    return DTL_SUCCESS;
}

static dtl_status_t count_kind_info(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    (void)self;
    if (kind != DTL_MEMORY_DEVICE) return DTL_ERROR_NOT_SUPPORTED;
    out->alignment = 256;
    return DTL_SUCCESS;
}

/* Alignment 0 asks for what the kind declares; another one is asked for as it is. */
static void test_alignment(void) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    const uint64_t alignments[3][2] = {{0, 256}, {8, 8}, {4096, 4096}};
    dtl_backend_t backend;
    dtl_stream_t stream;
    dtl_pool_t pool;
    void* block;
    int i;
    left = MIB;
    memory.alloc = count_alloc, memory.free = count_free, memory.kind_info = count_kind_info, transfer.copy = count_copy;
    table.abi_version = DTL_ABI_VERSION, table.memory = &memory, table.transfer = &transfer;
    CHECK_OK(dtl_backend_register("aligned", &table, NULL, 0, &backend));
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 100, alignments[i][0], &block));
        CHECK(asked_for == alignments[i][1]);
        CHECK_OK(dtl_mem_free(backend, block));
        CHECK_OK(dtl_mem_alloc_async(stream, DTL_MEMORY_DEVICE, 100, alignments[i][0], &block));
        CHECK(asked_for == alignments[i][1]);
        CHECK_OK(dtl_mem_free(backend, block));
    }
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_pool_create(backend, DTL_MEMORY_DEVICE, NULL, &pool));
    block = take(pool, 100);
    CHECK(asked_for == 256);
    CHECK_OK(dtl_pool_free(pool, block));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK_OK(dtl_backend_unregister(backend));
}

static void test_registered(void) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_pool_desc_t desc = DTL_POOL_DESC_INIT;
    dtl_backend_t backend;
    dtl_pool_t pool;
    void *a, *b, *c;
    left = 64 * MIB;
    memory.alloc = count_alloc, memory.free = count_free, transfer.copy = count_copy;
    table.abi_version = DTL_ABI_VERSION, table.memory = &memory, table.transfer = &transfer;
    CHECK_OK(dtl_backend_register("counted", &table, NULL, 0, &backend));
    test_rules(backend, DTL_MEMORY_DEVICE);
    CHECK(allocs == frees);
    desc.reserved = 1;
    CHECK_STATUS(dtl_pool_create(backend, DTL_MEMORY_DEVICE, &desc, &pool), DTL_ERROR_INVALID_ARGUMENT);
    desc.reserved = 0, desc.keep_bytes = 3 * MIB;
    allocs = frees = 0;
    CHECK_OK(dtl_pool_create(backend, DTL_MEMORY_DEVICE, &desc, &pool));
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);
    a = take(pool, 2 * MIB);
    CHECK_OK(dtl_pool_free(pool, a));
    b = take(pool, 2 * MIB - 5000); /* the same class: the same block */
    CHECK(a == b && allocs == 1 && frees == 0 && stats(pool).reserved_bytes == 2 * MIB);
    c = take(pool, 2 * MIB);
    CHECK_OK(dtl_pool_free(pool, b));
    CHECK_OK(dtl_pool_free(pool, c)); /* more than is to be kept */
    CHECK(allocs == 2 && frees == 1 && stats(pool).reserved_bytes == 2 * MIB);
    CHECK_OK(dtl_pool_trim(pool, 2 * MIB));
    CHECK(frees == 1);
    /* What is kept without use goes before there is no memory. */
    left = 0;
    {
        void* large = &left;
        CHECK_STATUS(dtl_pool_alloc(pool, 32 * MIB, 0, &large), DTL_ERROR_OUT_OF_MEMORY);
        CHECK(frees == 2 && large == &left && stats(pool).reserved_bytes == 0);
    }
    left = 64 * MIB;
    a = take(pool, MIB);
    CHECK_OK(dtl_pool_free(pool, a));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK(allocs == frees);
    CHECK_OK(dtl_backend_unregister(backend));
}

static dtl_pool_t shared;
static void* use(void* user) {
    uint64_t seed = *(const uint64_t*)user;
    void* held[16] = {NULL};
    int i;
    for (i = 0; i < 3000; i++) {
        void** slot = &held[(seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407)) >> 60];
        if (*slot == NULL) {
            *slot = take(shared, 1 + (seed >> 40) % 3000);
            *(unsigned char*)*slot = (unsigned char)seed;
        } else {
            CHECK_OK(dtl_pool_free(shared, *slot));
            *slot = NULL;
        }
    }
    for (i = 0; i < 16; i++) CHECK_OK(dtl_pool_free(shared, held[i]));
    return NULL;
}

static void test_threads(dtl_enum_word_t kind) {
    static uint64_t seeds[4] = {1, 2, 3, 4};
    pthread_t threads[4];
    int i;
    CHECK_OK(dtl_pool_create(host, kind, NULL, &shared));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, use, &seeds[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(stats(shared).live_count == 0);
    CHECK_OK(dtl_pool_destroy(shared));
}

static void test_many(void) {
    static dtl_pool_t pools[62];
    int i, round;
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 61; i++) CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pools[i]));
        CHECK_STATUS(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pools[61]), DTL_ERROR_LIMIT);
        for (i = 0; i < 61; i++) {
            void* memory = take(pools[i], 1000);
            CHECK(stats(pools[i]).live_count == 1 && stats(pools[i]).total_count == 1);
            CHECK_OK(dtl_pool_free(pools[i], memory));
            CHECK_OK(dtl_pool_destroy(pools[i]));
        }
    }
}

/* Pools that threads create and destroy when nearly all labels are taken. A create that waits for a destroyed
 * pool must not be what the pool waits for. */
#define LIVE 60
#define TURNS 5000
static int limits;
static void* create_and_destroy(void* user) {
    int i;
    (void)user;
    for (i = 0; i < TURNS; i++) {
        dtl_pool_t pool;
        const dtl_status_t status = dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool);
        if (status == DTL_ERROR_LIMIT) {
            far_add(&limits);
        } else {
            CHECK_OK(status);
            CHECK_OK(dtl_pool_destroy(pool));
        }
    }
    return NULL;
}

static dtl_pool_t few[LIVE + 1], late_pool;
static dtl_status_t late_status;
/* In a slot, so inside of another call: a destroyed pool lasts until that call returns. */
static dtl_status_t alloc_with_pools(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out) {
    CHECK_OK(dtl_pool_destroy(few[LIVE]));
    late_status = dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &late_pool);
    return count_alloc(self, size, alignment, kind, out);
}

static void test_labels(void) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_backend_t backend;
    pthread_t threads[2];
    void* block;
    int i;
    for (i = 0; i < LIVE; i++) CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &few[i]));
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, create_and_destroy, NULL) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(far_get(&limits) < 2 * TURNS);
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &few[LIVE]));
    left = MIB;
    memory.alloc = alloc_with_pools, memory.free = count_free, transfer.copy = count_copy;
    table.abi_version = DTL_ABI_VERSION, table.memory = &memory, table.transfer = &transfer;
    CHECK_OK(dtl_backend_register("pools-within", &table, NULL, 0, &backend));
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 64, 0, &block));
    CHECK(late_status == DTL_ERROR_LIMIT);
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &late_pool)); /* the call around it has returned */
    CHECK_OK(dtl_pool_destroy(late_pool));
    CHECK_OK(dtl_mem_free(backend, block));
    CHECK_OK(dtl_backend_unregister(backend));
    for (i = 0; i < LIVE; i++) CHECK_OK(dtl_pool_destroy(few[i]));
}

static void test_trim(void) {
    dtl_pool_t pool;
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool));
    CHECK_OK(dtl_pool_free(pool, take(pool, 100 * MIB)));
    CHECK(backend_stats(host).reserved_bytes >= 100 * MIB);
    CHECK_OK(dtl_pool_trim(pool, UINT64_MAX));
    CHECK(backend_stats(host).reserved_bytes >= 100 * MIB);
    CHECK_OK(dtl_pool_trim(pool, 0));
    CHECK(backend_stats(host).reserved_bytes < 100 * MIB);
    CHECK_OK(dtl_pool_free(pool, take(pool, 100 * MIB)));
    CHECK_OK(dtl_mem_trim(host));
    CHECK(backend_stats(host).reserved_bytes < 100 * MIB);
    CHECK_OK(dtl_pool_destroy(pool));
}

int main(void) {
    dtl_backend_t null_backend;
    dtl_pool_t pool = DTL_POOL_NULL;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_backend_get("null", &null_backend));
    CHECK_STATUS(dtl_pool_create(host, 12345, NULL, &pool), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, NULL), DTL_ERROR_NULL_POINTER);
    test_rules(host, DTL_MEMORY_HOST);
    test_rules(host, DTL_MEMORY_DEVICE);
    test_rules(host, DTL_MEMORY_PINNED);
    test_rules(null_backend, DTL_MEMORY_DEVICE);
    test_registered();
    test_alignment();
    test_threads(DTL_MEMORY_MANAGED);
    test_threads(DTL_MEMORY_PINNED);
    test_many();
    test_labels();
    test_trim();
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool)); /* left for finalize, with a block */
    take(pool, 100);
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_PINNED, NULL, &pool));
    take(pool, 100);
    CHECK_OK(dtl_pool_free(pool, take(pool, 100)));
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_pool_destroy(pool), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
