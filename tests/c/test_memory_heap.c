/* The host's allocator as a C program sees it: threads that free each other's blocks, end and begin; fork;
 * what is kept and given back; bad frees; no memory. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fork, RLIMIT_AS */
#endif
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static dtl_backend_t host;

static void* take(uint64_t size) {
    void* memory = NULL;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 0, &memory));
    return memory;
}

static void give(void* memory) {
    CHECK_OK(dtl_mem_free(host, memory));
}

static dtl_mem_stats_t stats(void) {
    dtl_mem_stats_t now = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(host, &now));
    CHECK(now.reserved_bytes >= now.live_bytes && now.peak_bytes >= now.live_bytes);
    return now;
}

/* Every bad free is INVALID_ARGUMENT, in any thread, and frees nothing. */
static void* refuse(void* block) {
    static char own[256];
    char* memory = (char*)block;
    void* malloced = malloc(100);
    char inside[8];
    CHECK_STATUS(dtl_mem_free(host, inside), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, own), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, malloced), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, (void*)(uintptr_t)64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, (void*)UINTPTR_MAX), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, (void*)(UINTPTR_MAX / 2)), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, memory + 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, memory + 64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(host, memory - 64), DTL_ERROR_INVALID_ARGUMENT);
    free(malloced);
    return NULL;
}

static void test_bad_frees(void) {
    const uint64_t sizes[5] = {200, 5000, 100000, 3 * MIB, 100 * MIB};
    dtl_backend_t null_backend = DTL_BACKEND_NULL;
    int i;
    CHECK_OK(dtl_backend_get("null", &null_backend));
    for (i = 0; i < 5; i++) {
        pthread_t thread;
        void *memory = take(sizes[i]), *other = NULL;
        CHECK(pthread_create(&thread, NULL, refuse, memory) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        refuse(memory);
        CHECK_STATUS(dtl_mem_free(null_backend, memory), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(dtl_last_error(), "null") != NULL);
        CHECK_OK(dtl_mem_alloc(null_backend, DTL_MEMORY_HOST, sizes[i], 0, &other));
        CHECK_STATUS(dtl_mem_free(host, other), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_OK(dtl_mem_free(null_backend, other));
        CHECK(stats().live_count == 1 && stats().live_bytes == sizes[i]);
        give(memory);
        CHECK_STATUS(dtl_mem_free(host, memory), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(dtl_last_error(), "twice") != NULL || sizes[i] > MIB);
    }
    CHECK(stats().live_count == 0);
}

/* A ring of slots between threads: some put blocks in, others free them. */
enum { SLOTS = 64, ROUNDS = 20000, MAKERS = 3, TAKERS = 2 };
static void* slots[SLOTS];
static int makers_left;

static void* make(void* user) {
    uint64_t seed = *(const uint64_t*)user;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        uint64_t size;
        unsigned char* bytes;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size = 16 + (seed >> 33) % (i % 100 == 0 ? 2 * MIB : 4000);
        bytes = (unsigned char*)take(size);
        memcpy(bytes, &size, sizeof size);
        bytes[size - 1] = (unsigned char)size;
        bytes = (unsigned char*)__atomic_exchange_n(&slots[seed >> 58], (void*)bytes, __ATOMIC_ACQ_REL);
        if (bytes != NULL) give(bytes); /* another maker's, more often than not */
    }
    __atomic_fetch_sub(&makers_left, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

static void* drain(void* user) {
    unsigned i = (unsigned)*(const uint64_t*)user;
    for (;; i = (i + 1) % SLOTS) {
        const int over = __atomic_load_n(&makers_left, __ATOMIC_ACQUIRE) == 0;
        unsigned char* bytes = (unsigned char*)__atomic_exchange_n(&slots[i], (void*)NULL, __ATOMIC_ACQ_REL);
        if (bytes != NULL) {
            uint64_t size;
            memcpy(&size, bytes, sizeof size);
            CHECK(bytes[size - 1] == (unsigned char)size);
            give(bytes);
        } else if (over) {
            return NULL;
        }
    }
}

static void test_threads(void) {
    static uint64_t seeds[MAKERS + TAKERS] = {1, 2, 3, 4, 5};
    const uint64_t before = stats().total_count;
    pthread_t threads[MAKERS + TAKERS];
    int i;
    makers_left = MAKERS;
    for (i = 0; i < MAKERS + TAKERS; i++)
        CHECK(pthread_create(&threads[i], NULL, i < MAKERS ? make : drain, &seeds[i]) == 0);
    for (i = 0; i < MAKERS + TAKERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < SLOTS; i++) {
        CHECK_OK(dtl_mem_free(host, slots[i]));
        slots[i] = NULL;
    }
    CHECK(stats().live_count == 0 && stats().live_bytes == 0);
    CHECK(stats().total_count == before + MAKERS * (uint64_t)ROUNDS);
}

/* A thread's memory goes on after its end: in the blocks that others still have, and as memory for the
 * next threads, so that a thousand of them need no more than a few. */
static void* use_and_leave(void* user) {
    void** kept = (void**)user;
    void* other[20];
    int i;
    for (i = 0; i < 20; i++) memset(other[i] = take(40000), 1, 40000);
    *kept = memset(take(3000), 7, 3000);
    for (i = 0; i < 20; i++) give(other[i]);
    return NULL;
}

static void test_thread_ends(void) {
    static void* kept[1000];
    uint64_t reserved = 0;
    int i;
    for (i = 0; i < 1000; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_and_leave, &kept[i]) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        if (i == 100) reserved = stats().reserved_bytes;
    }
    CHECK(stats().reserved_bytes <= reserved + 900 * 3584 + 4 * MIB);
    for (i = 0; i < 1000; i++) {
        CHECK(((char*)kept[i])[2999] == 7);
        give(kept[i]);
    }
    CHECK(stats().live_count == 0);
}

/* Freed large blocks stay mapped within the budget, and are given back beyond it. */
static void test_kept(void) {
    const uint64_t before = stats().reserved_bytes;
    char* memory = (char*)take(64 * MIB);
    void* many[20];
    int i;
    memory[5] = 1;
    give(memory);
    CHECK(stats().reserved_bytes >= 64 * MIB); /* kept */
    CHECK((char*)take(64 * MIB) == memory); /* and used again */
    give(memory);
    for (i = 0; i < 20; i++) many[i] = take(64 * MIB);
    CHECK(stats().reserved_bytes >= 20 * 64 * MIB);
    for (i = 0; i < 20; i++) give(many[i]);
    CHECK(stats().reserved_bytes <= before + 256 * MIB + 64 * MIB);
    many[0] = take(2048 * MIB); /* larger than any class: never kept */
    give(many[0]);
    CHECK(stats().reserved_bytes <= before + 320 * MIB);
}

/* Sizes are rounded up to blocks: less than 64 bytes up to 256, at most a quarter above. */
static void test_waste(void) {
    enum { COUNT = 4000 };
    static void* blocks[COUNT];
    const uint64_t sizes[6] = {65, 257, 1025, 5121, 20481, 90000};
    int i, s;
    for (s = 0; s < 6; s++) {
        const uint64_t before = stats().reserved_bytes;
        uint64_t used;
        for (i = 0; i < COUNT; i++) blocks[i] = take(sizes[s]);
        /* Blocks and what is left over at the ends of slabs (an eighth at most), and one segment. */
        used = sizes[s] <= 256 ? sizes[s] + 63 : sizes[s] + sizes[s] / 4;
        CHECK(stats().reserved_bytes - before <= COUNT * used * 8 / 7 + 4 * MIB);
        for (i = 0; i < COUNT; i++) give(blocks[i]);
    }
}

/* A forked child knows nothing of the parent's blocks, whose bytes stay, and begins anew. */
static void test_fork(void) {
    char *kept = (char*)memset(take(5000), 9, 5000), *large = (char*)memset(take(2 * MIB), 8, 2 * MIB);
    pid_t child;
    int status = 0, i;
    give(take(5000));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        void* memory = kept;
        CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory), DTL_ERROR_FORKED);
        CHECK_STATUS(dtl_mem_free(host, kept), DTL_ERROR_FORKED);
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_backend_get("host", &host));
        CHECK(stats().live_count == 0 && stats().total_count == 0);
        CHECK_STATUS(dtl_mem_free(host, kept), DTL_ERROR_INVALID_ARGUMENT);
        for (i = 0; i < 1000; i++) {
            memory = take(5000);
            CHECK(memory != kept);
            memset(memory, 1, 5000);
            if (i % 2 == 0) give(memory);
        }
        CHECK(kept[0] == 9 && kept[4999] == 9 && large[2 * MIB - 1] == 8);
        CHECK(stats().live_count == 500);
        CHECK_OK(dtl_finalize());
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(stats().live_count == 2 && kept[0] == 9);
    give(kept);
    give(large);
}

/* No memory is a status, and what was allocated before can be used and freed. */
static void test_limit(void) {
#ifdef __SANITIZE_ADDRESS__
    return; /* it maps memory of its own, beyond any such limit */
#endif
    enum { MOST = 4096 };
    static void* blocks[MOST];
    struct rlimit limit, low;
    const uint64_t sizes[4] = {60000, 300000, 3 * MIB, 48 * MIB};
    long pages = 0;
    int s, i;
    FILE* file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    low = limit;
    low.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + 200 * MIB;
    if (limit.rlim_max != RLIM_INFINITY && low.rlim_cur > limit.rlim_max) SKIP("RLIMIT_AS is low already");
    CHECK(setrlimit(RLIMIT_AS, &low) == 0);
    for (s = 0; s < 4; s++) {
        dtl_status_t status = DTL_SUCCESS;
        int count = 0;
        while (count < MOST && status == DTL_SUCCESS) {
            void* memory = &count;
            status = dtl_mem_alloc(host, DTL_MEMORY_HOST, sizes[s], 0, &memory);
            if (status == DTL_SUCCESS)
                *(char*)(blocks[count++] = memory) = 1;
            else
                CHECK(memory == &count);
        }
        CHECK(status == DTL_ERROR_OUT_OF_MEMORY || count == MOST);
        if (s > 1) CHECK(status == DTL_ERROR_OUT_OF_MEMORY && strstr(dtl_last_error(), "free some") != NULL);
        /* What the others keep without use goes before a status is given: each size gets its turn. */
        CHECK(count > 1);
        for (i = 0; i < count; i++) give(blocks[i]);
    }
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(stats().live_count == 0);
}

/* DTL_MEMORY_KEEP=0: what is large goes back at once. A wrong value is a named status. */
static void test_settings(void) {
    void* memory;
    CHECK_OK(dtl_finalize());
    setenv("DTL_MEMORY_KEEP", "0", 1);
    setenv("DTL_HUGE_PAGES", "0", 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK(stats().reserved_bytes == 0 && stats().total_count == 0 && stats().peak_bytes == 0);
    memory = memset(take(40 * MIB), 1, 40 * MIB);
    CHECK(stats().reserved_bytes == 40 * MIB && stats().peak_bytes == 40 * MIB);
    give(memory);
    CHECK(stats().reserved_bytes == 0);
    CHECK_OK(dtl_finalize());
    setenv("DTL_MEMORY_KEEP", "12 apples", 1);
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "DTL_MEMORY_KEEP") != NULL);
    unsetenv("DTL_MEMORY_KEEP");
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    take(10 * MIB); /* left for finalize */
    take(100);
}

/* What has run out are mappings: the text says so, and advises no limit of memory. */
static void test_mappings(void) {
#ifdef __SANITIZE_ADDRESS__
    return; /* it ends the program when there is no mapping for it */
#endif
    const size_t page = 4096, pages = 300000;
    char* area = (char*)mmap(NULL, page * pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    dtl_status_t shared = DTL_SUCCESS, plain = DTL_SUCCESS;
    char texts[2][512] = {"", ""};
    void *block = NULL, *last[16];
    size_t i, more = 0;
    CHECK((void*)area != MAP_FAILED);
    for (i = 0; i < pages; i += 2)
        if (mprotect(area + i * page, page, PROT_READ) != 0) break;
    if (i < pages) {
        /* The few that are left; shared ones are never joined with their neighbours. */
        while (more < 16 && (last[more] = mmap(NULL, page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED) more++;
        shared = dtl_mem_alloc(host, DTL_MEMORY_SHARED, 4096, 0, &block);
        snprintf(texts[0], sizeof texts[0], "%s", dtl_last_error());
        plain = dtl_mem_alloc(host, DTL_MEMORY_HOST, 4096 * MIB, 0, &block);
        snprintf(texts[1], sizeof texts[1], "%s", dtl_last_error());
    }
    CHECK(munmap(area, page * pages) == 0); /* nothing else works before that */
    while (more > 0) CHECK(munmap(last[--more], page) == 0);
    if (i >= pages) return;                 /* vm.max_map_count is larger here */
    CHECK(shared == DTL_ERROR_OUT_OF_MEMORY && plain == DTL_ERROR_OUT_OF_MEMORY && block == NULL);
    for (i = 0; i < 2; i++) CHECK(strstr(texts[i], "vm.max_map_count") != NULL && strstr(texts[i], "ulimit") == NULL);
}

int main(void) {
    unsetenv("DTL_MEMORY_KEEP");
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    test_bad_frees();
    test_threads();
    test_thread_ends();
    test_kept();
    test_waste();
    test_fork();
    test_limit();
    test_settings();
    test_mappings();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
