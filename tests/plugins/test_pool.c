/* What is special about the example plugin "pool": the end of its block, large alignments, threads. The rest
 * is dtl-ctk's. Run with DTL_BACKEND_POOL_MIB=4. */
#include "../c/check.h"
#include <pthread.h>
#include <string.h>

enum { PIECES = 64, MIB = 1 << 20, ROUNDS = 3000 };
static dtl_backend_t pool;

static void *take(uint64_t size, uint64_t alignment) {
    void *memory = NULL;
    CHECK_OK(dtl_mem_alloc(pool, DTL_MEMORY_HOST, size, alignment, &memory));
    CHECK((uintptr_t)memory % alignment == 0);
    memset(memory, 0x5a, size);
    return memory;
}

/* All pieces have become one again. */
static void check_whole(void) { CHECK_OK(dtl_mem_free(pool, take(4 * MIB, 4 * MIB))); }

static void check_exhaustion(void) {
    void *pieces[PIECES], *none = NULL;
    int i;
    for (i = 0; i < PIECES; i++) pieces[i] = take(MIB / 16, 1);
    CHECK_STATUS(dtl_mem_alloc(pool, DTL_MEMORY_HOST, 1, 1, &none), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(dtl_last_error(), "DTL_BACKEND_POOL_MIB") != NULL);
    /* Every second one is free: half of the bytes, but no two beside each other. */
    for (i = 0; i < PIECES; i += 2) CHECK_OK(dtl_mem_free(pool, pieces[i]));
    CHECK_STATUS(dtl_mem_alloc(pool, DTL_MEMORY_HOST, MIB / 8, 1, &none), DTL_ERROR_OUT_OF_MEMORY);
    for (i = 1; i < PIECES; i += 2) CHECK_OK(dtl_mem_free(pool, pieces[i]));
    check_whole();
    CHECK_STATUS(dtl_mem_alloc(pool, DTL_MEMORY_HOST, 1, 8 * MIB, &none), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(dtl_mem_alloc(pool, DTL_MEMORY_HOST, UINT64_MAX / 4, 1, &none), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(dtl_mem_alloc(pool, DTL_MEMORY_DEVICE, 1, 1, &none), DTL_ERROR_NOT_SUPPORTED);
}

static void *take_and_give(void *seed) {
    uint32_t random = *(const uint32_t *)seed;
    unsigned char *held[8] = {NULL};
    uint64_t sizes[8];
    int round, slot;
    for (round = 0; round < ROUNDS; round++) {
        uint64_t i;
        random = random * 1664525u + 1013904223u;
        slot = (int)(random >> 29);
        if (held[slot] != NULL) {
            for (i = 0; i < sizes[slot]; i++) CHECK(held[slot][i] == (unsigned char)slot);
            CHECK_OK(dtl_mem_free(pool, held[slot]));
        }
        sizes[slot] = 1 + (random >> 8) % 9000;
        held[slot] = (unsigned char *)take(sizes[slot], UINT64_C(1) << (random >> 4) % 13);
        memset(held[slot], slot, sizes[slot]);
    }
    for (slot = 0; slot < 8; slot++) {
        if (held[slot] != NULL) CHECK_OK(dtl_mem_free(pool, held[slot]));
    }
    return NULL;
}

static void check_threads(void) {
    static const uint32_t seeds[4] = {1, 22, 333, 4444};
    pthread_t threads[4];
    int i;
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, take_and_give, (void *)(uintptr_t)&seeds[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    check_whole();
}

int main(void) {
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("pool", &pool));
    CHECK_OK(dtl_mem_kind_info(pool, DTL_MEMORY_HOST, &info));
    CHECK(info.alignment == 64 && (info.properties & DTL_MEMORY_THREAD_SAFE) != 0);
    check_exhaustion();
    check_threads();
    CHECK_OK(dtl_finalize());
    return 0;
}
