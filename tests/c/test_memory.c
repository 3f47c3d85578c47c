/* Memory of the host as a C program sees it: allocate, ask, copy, fill, pin. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RLIMIT_MEMLOCK */
#endif
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static dtl_backend_t host;

static void test_alloc(void) {
    const dtl_enum_word_t kinds[4] = {DTL_MEMORY_HOST, DTL_MEMORY_DEVICE, DTL_MEMORY_PINNED, DTL_MEMORY_MANAGED};
    const uint64_t sizes[6] = {1, 7, 64, 4095, 4097, 3u << 20};
    uint64_t alignment, live = 0;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT, start = DTL_MEM_STATS_INIT;
    int kind, i;
    CHECK_OK(dtl_mem_stats(host, &start));
    CHECK(start.live_count == 0 && start.live_bytes == 0);
    for (kind = 0; kind < 4; kind++) {
        dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
        CHECK_OK(dtl_mem_kind_info(host, kinds[kind], &info));
        CHECK(info.alignment == 64 && info.name[0] != 0 && (info.properties & DTL_MEMORY_HOST_ACCESSIBLE));
        CHECK(((info.properties & DTL_MEMORY_PAGEABLE) == 0) == (kinds[kind] == DTL_MEMORY_PINNED));
        for (i = 0; i < 6; i++) {
            for (alignment = 0; alignment <= UINT64_C(1) << 21; alignment = alignment ? alignment * 2 : 1) {
                dtl_mem_info_t found = DTL_MEM_INFO_INIT;
                void* memory = NULL;
                CHECK_OK(dtl_mem_alloc(host, kinds[kind], sizes[i], alignment, &memory));
                CHECK((uintptr_t)memory % (alignment > 64 ? alignment : 64) == 0);
                memset(memory, 1, (size_t)sizes[i]);
                CHECK_OK(dtl_mem_query((char*)memory + sizes[i] - 1, &found));
                CHECK(found.base == memory && found.size_bytes == sizes[i] && found.kind == kinds[kind]);
                CHECK(found.backend.id == host.id && found.device == 0);
                CHECK_STATUS(dtl_mem_query((char*)memory + sizes[i], &found), DTL_ERROR_NOT_FOUND);
                CHECK_STATUS(dtl_mem_query((char*)memory - 1, &found), DTL_ERROR_NOT_FOUND);
                CHECK(found.base == memory);
                if (sizes[i] > 1) CHECK_STATUS(dtl_mem_free(host, (char*)memory + 1), DTL_ERROR_INVALID_ARGUMENT);
                CHECK_OK(dtl_mem_free(host, memory));
                CHECK_STATUS(dtl_mem_free(host, memory), DTL_ERROR_INVALID_ARGUMENT);
                CHECK_STATUS(dtl_mem_query(memory, &found), DTL_ERROR_NOT_FOUND);
                live++;
            }
        }
    }
    CHECK_OK(dtl_mem_stats(host, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0 && stats.total_count == start.total_count + live);
    CHECK(stats.peak_bytes == 3u << 20 && stats.reserved_bytes >= stats.live_bytes);
    {
        void *a = NULL, *b = NULL;
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 2u << 20, 0, &a));
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 2u << 20, 0, &b));
        CHECK_OK(dtl_mem_stats(host, &stats));
        CHECK(stats.live_count == 2 && stats.live_bytes == 4u << 20 && stats.peak_bytes == 4u << 20);
        CHECK_OK(dtl_mem_free(host, a));
        CHECK_OK(dtl_mem_free(host, b));
    }
}

static void test_bounds(void) {
    static char outside[64]; /* far from the blocks, where a sanitizer's stack is not */
    char *memory = NULL, *other = NULL;
    void *one = NULL, *two = NULL;
    int i;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &one));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_DEVICE, 64, 0, &two));
    memory = (char*)one, other = (char*)two;
    for (i = 0; i < 64; i++) outside[i] = (char)i;
    CHECK_OK(dtl_mem_copy(memory, outside, 64));
    CHECK_STATUS(dtl_mem_copy(memory + 1, outside, 64), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy(memory + 63, outside, 2), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(strstr(dtl_last_error(), "offset 63") != NULL && strstr(dtl_last_error(), "64 bytes") != NULL);
    CHECK_STATUS(dtl_mem_copy(outside, memory + 32, 33), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy(memory, outside, UINT64_C(1) << 20), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_fill(memory + 60, 1, 5), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy_2d(memory, 16, outside, 16, 17, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_2d(memory + 1, 16, outside, 16, 16, 4), DTL_ERROR_OUT_OF_BOUNDS);
    {
        /* Columns beside each other in one array do not overlap, though the areas do. */
        unsigned char grid[4][8] = {{0}};
        int row;
        for (row = 0; row < 4; row++) memset(grid[row], row + 1, 4);
        CHECK_OK(dtl_mem_copy_2d(&grid[0][4], 8, &grid[0][0], 8, 4, 4));
        for (row = 0; row < 4; row++) CHECK(grid[row][4] == row + 1 && grid[row][7] == row + 1);
        CHECK_STATUS(dtl_mem_copy_2d(&grid[0][3], 8, &grid[0][0], 8, 4, 4), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(dtl_mem_copy_2d(&grid[0][4], 8, &grid[0][0], 8, 5, 3), DTL_ERROR_INVALID_ARGUMENT);
    }
    CHECK_STATUS(dtl_mem_to_host(host, two, outside, 65), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(memcmp(memory, outside, 64) == 0); /* nothing of this wrote */
    CHECK_STATUS(dtl_mem_copy(memory + 8, memory, 9), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy(memory, memory + 8, 9), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy(memory, memory, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy(outside, outside + 1, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_copy(memory + 8, memory, 8));
    CHECK(memcmp(memory + 8, outside, 8) == 0 && memory[16] == 16);
    CHECK_OK(dtl_mem_copy(other, memory, 64));
    CHECK(memcmp(other, memory, 64) == 0);
    CHECK_OK(dtl_mem_free(host, one));
    CHECK_OK(dtl_mem_free(host, two));
}

static void test_2d_and_fill(void) {
    unsigned char from[12 * 10], to[16 * 10];
    void* device = NULL;
    int row, column, i;
    for (i = 0; i < 120; i++) from[i] = (unsigned char)i;
    memset(to, 0xEE, sizeof to);
    CHECK_OK(dtl_mem_to_device(host, from, sizeof from, &device));
    CHECK_OK(dtl_mem_copy_2d(to, 16, device, 12, 7, 10));
    for (row = 0; row < 10; row++)
        for (column = 0; column < 16; column++)
            CHECK(to[row * 16 + column] == (column < 7 ? row * 12 + column : 0xEE));
    CHECK_OK(dtl_mem_copy_2d(to, 3, device, 12, 3, 10)); /* gathers a column */
    for (row = 0; row < 10; row++) CHECK(to[row * 3 + 1] == row * 12 + 1);
    CHECK_OK(dtl_mem_fill((char*)device + 3, 0x7F, 5));
    CHECK_OK(dtl_mem_to_host(host, device, from, sizeof from));
    for (i = 0; i < 120; i++) CHECK(from[i] == (i >= 3 && i < 8 ? 0x7F : i));
    CHECK_OK(dtl_mem_fill(to, 0, sizeof to)); /* plain memory of the program */
    for (i = 0; i < 160; i++) CHECK(to[i] == 0);
    CHECK_OK(dtl_mem_free(host, device));
}

static void has_explanation(int expected) {
    char text[4096];
    CHECK_OK(dtl_explain(text, sizeof text, NULL));
    CHECK((strstr(text, "pinned host memory") != NULL) == expected);
}

/* What cannot be page-locked is a degraded choice: told, or refused under DTL_STRICT. */
static void test_pinned(void) {
#ifdef __SANITIZE_ADDRESS__
    return; /* its mlock does nothing */
#endif
    const struct rlimit none = {0, 0};
    dtl_config_t config = DTL_CONFIG_INIT;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    void* memory = NULL;
    has_explanation(0); /* the allocations above fit */
    if (setrlimit(RLIMIT_MEMLOCK, &none) != 0) SKIP("RLIMIT_MEMLOCK cannot be lowered");
    if (geteuid() == 0) {
        /* Root's limit does not count: be somebody else from here on. */
        if (setresuid(65534, 65534, 65534) != 0) SKIP("cannot give up the right to lock memory");
    }
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 1 << 16, 0, &memory));
    memset(memory, 1, 1 << 16);
    has_explanation(1);
    CHECK_OK(dtl_mem_free(host, memory));
    CHECK_OK(dtl_finalize());
    config.strict = 1;
    CHECK_OK(dtl_init(&config));
    CHECK_OK(dtl_backend_get("host", &host));
    memory = &stats;
    CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 1 << 16, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK(memory == &stats && strstr(dtl_last_error(), "DTL_STRICT") != NULL);
    CHECK_OK(dtl_mem_stats(host, &stats));
    CHECK(stats.total_count == 0);
    CHECK_OK(dtl_finalize());
    setenv("DTL_STRICT", "1", 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 1 << 16, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_finalize());
    config.strict = -1; /* a call wins over the variable */
    CHECK_OK(dtl_init(&config));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 1 << 16, 0, &memory));
    CHECK_OK(dtl_mem_free(host, memory));
}

static void* use_memory(void* user) {
    uint64_t seed = *(const uint64_t*)user;
    void* held[16] = {NULL};
    int i;
    for (i = 0; i < 5000; i++) {
        void** slot = &held[(seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u) >> 60];
        if (*slot == NULL) {
            const uint64_t size = 1 + (seed >> 40) % 2000;
            CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 0, slot));
            CHECK_OK(dtl_mem_fill(*slot, (uint8_t)seed, size));
        } else {
            dtl_mem_info_t info = DTL_MEM_INFO_INIT;
            unsigned char* bytes = (unsigned char*)*slot;
            CHECK_OK(dtl_mem_query(bytes, &info));
            CHECK(info.base == bytes && bytes[0] == bytes[info.size_bytes - 1]);
            CHECK_OK(dtl_mem_free(host, bytes));
            *slot = NULL;
        }
    }
    for (i = 0; i < 16; i++) CHECK_OK(dtl_mem_free(host, held[i]));
    return NULL;
}

static void test_threads(void) {
    static uint64_t seeds[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    pthread_t threads[8];
    int i;
    for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, use_memory, &seeds[i]) == 0);
    for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_mem_stats(host, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
}

int main(void) {
    unsetenv("DTL_STRICT");
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    test_alloc();
    test_bounds();
    test_2d_and_fill();
    test_threads();
    test_pinned();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
