/* Memory of other allocators: adopted by the program (dtl_mem_adopt), or described by its backend (slot
 * pointer_info). The host cannot access it: far.h shifts pointers out of the address space.
 *
 * Arguments: none, or DTL_CUDA_LIBRARY=PATH cuda, which adds memory that the fake driver knows. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "far.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

enum { SIZE = 1 << 16, THREADS = 4, ROUNDS = 200 };

static struct far far_self, other_self;
static dtl_backend_t far_away, other, plain;

/* Memory of the backend that the library did not allocate. */
static unsigned char* foreign(size_t size) {
    void* memory = NULL;
    CHECK(posix_memalign(&memory, 4096, size) == 0);
    return (unsigned char*)((uintptr_t)memory | FAR_SHIFT);
}

static void drop(unsigned char* memory) { free(far_real(memory)); }

static void used(unsigned char* memory, dtl_enum_word_t kind, dtl_backend_t backend) {
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    unsigned char *host = (unsigned char*)malloc(SIZE), *back = (unsigned char*)malloc(SIZE);
    dtl_request_t request;
    size_t i;
    CHECK(host != NULL && back != NULL);
    for (i = 0; i < SIZE; i++) host[i] = (unsigned char)(i * 13 + i / 256);
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_mem_query(memory + i * (SIZE - 1) / 2, &info));
        CHECK(info.backend.id == backend.id && info.kind == kind && info.device == 0);
        CHECK(info.base == memory && info.size_bytes == SIZE);
    }
    CHECK_STATUS(dtl_mem_query(memory + SIZE, &info), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_copy(memory, host, SIZE));
    CHECK_OK(dtl_mem_copy(back, memory + 1, SIZE - 1));
    CHECK(memcmp(back, host + 1, SIZE - 1) == 0);
    CHECK_STATUS(dtl_mem_copy(memory + SIZE - 4, host, 5), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_fill(memory + 1, 0, SIZE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_fill(memory, 0x42, 100));
    CHECK_OK(dtl_mem_copy(back, memory, 101));
    CHECK(back[0] == 0x42 && back[99] == 0x42 && back[100] == host[100]);
    CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, memory, SIZE, DTL_DTYPE_UINT8, 0, 1, &request));
    CHECK_OK(dtl_comm_send(DTL_COMM_SELF, host, SIZE, DTL_DTYPE_UINT8, 0, 1));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_SELF, memory, SIZE, 0, 2, back, SIZE, 0, 2, DTL_DTYPE_UINT8, NULL));
    CHECK(memcmp(back, host, SIZE) == 0);
    CHECK_OK(dtl_comm_allreduce(DTL_COMM_SELF, memory, back, SIZE, DTL_DTYPE_UINT8, DTL_OP_MAX));
    CHECK(memcmp(back, host, SIZE) == 0);
    free(host), free(back);
}

static void test_life(void) {
    unsigned char* memory = foreign(SIZE);
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_adopt(far_away, 0, DTL_MEMORY_DEVICE, memory, SIZE));
    used(memory, DTL_MEMORY_DEVICE, far_away);
    /* Only dtl_mem_release with the same backend and first byte ends it. */
    CHECK_STATUS(dtl_mem_free(far_away, memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dtl_mem_release");
    CHECK_STATUS(dtl_mem_unregister_host(far_away, memory), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_release(far_away, memory + 1), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_release(other, memory), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_backend_unregister(far_away), DTL_ERROR_BUSY);
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK_OK(dtl_mem_release(far_away, memory));
    CHECK_OK(dtl_mem_release(far_away, NULL));
    CHECK_STATUS(dtl_mem_release(far_away, memory), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_adopt(far_away, 0, DTL_MEMORY_DEVICE, memory, SIZE));
    CHECK_OK(dtl_mem_release(far_away, memory));
    drop(memory);
}

static void test_refusals(void) {
    unsigned char* memory = foreign(3 * SIZE);
    void* ours = NULL;
    const dtl_enum_word_t kind = DTL_MEMORY_DEVICE;
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, NULL, SIZE), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, NULL, 0), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory, UINT64_MAX), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, (void*)(UINTPTR_MAX - 63), 128), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 1, kind, memory, SIZE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_adopt(far_away, -1, kind, memory, SIZE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, DTL_MEMORY_PINNED, memory, SIZE), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, UINT64_MAX, memory, SIZE), DTL_ERROR_NOT_SUPPORTED);
    /* Overlap with memory that the library knows. */
    CHECK_OK(dtl_mem_adopt(far_away, 0, kind, memory + SIZE, SIZE));
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory + SIZE, SIZE), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_mem_adopt(other, 0, kind, memory + SIZE, 1), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory + 1, SIZE), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory, 3 * SIZE), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, memory + 2 * SIZE - 1, 2), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("adopted with backend far: call dtl_mem_release first");
    CHECK_OK(dtl_mem_adopt(far_away, 0, kind, memory, SIZE)); /* adjacent */
    CHECK_OK(dtl_mem_adopt(other, 0, kind, memory + 2 * SIZE, SIZE));
    CHECK_OK(dtl_mem_release(far_away, memory));
    CHECK_OK(dtl_mem_release(far_away, memory + SIZE));
    CHECK_OK(dtl_mem_release(other, memory + 2 * SIZE));
    CHECK_OK(dtl_mem_alloc(far_away, kind, SIZE, 0, &ours));
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, ours, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, (char*)ours - 8, SIZE + 16), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, (char*)ours + SIZE - 1, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(far_away, ours));
    CHECK_OK(dtl_mem_alloc(plain, DTL_MEMORY_HOST, SIZE, 0, &ours));
    CHECK_STATUS(dtl_mem_adopt(plain, 0, DTL_MEMORY_HOST, ours, SIZE), DTL_ERROR_INVALID_ARGUMENT);
    /* It begins before the allocation, and ends in it or behind it. */
    CHECK_STATUS(dtl_mem_adopt(plain, 0, DTL_MEMORY_HOST, (char*)ours - 4096, 4097), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(plain, 0, DTL_MEMORY_HOST, (char*)ours - 4096, 8192 + SIZE), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(plain, 0, DTL_MEMORY_HOST, (char*)ours - ((size_t)1 << 36), (size_t)1 << 37), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(far_away, 0, kind, (char*)ours - 4096, 8192 + SIZE), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(plain, ours));
    drop(memory);
}

/* Host memory can be adopted, too. */
static void test_host(void) {
    unsigned char* memory = (unsigned char*)malloc(SIZE);
    CHECK(memory != NULL);
    CHECK_OK(dtl_mem_adopt(plain, 0, DTL_MEMORY_HOST, memory, SIZE));
    used(memory, DTL_MEMORY_HOST, plain);
    CHECK_STATUS(dtl_mem_release(far_away, memory), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_release(plain, memory));
    free(memory);
}

/* Release during a pending receive: the receive fails and writes nothing. */
static void test_released_in_flight(void) {
    unsigned char* memory = foreign(SIZE);
    char byte = 1;
    dtl_request_t request;
    dtl_status_t ended;
    CHECK_OK(dtl_mem_adopt(far_away, 0, DTL_MEMORY_DEVICE, memory, SIZE));
    CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, memory, 1, DTL_DTYPE_UINT8, 0, 1, &request));
    CHECK_OK(dtl_mem_release(far_away, memory));
    CHECK_OK(dtl_comm_send(DTL_COMM_SELF, &byte, 1, DTL_DTYPE_UINT8, 0, 1));
    ended = dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
    CHECK_STATUS(ended, DTL_ERROR_INVALID_STATE);
    drop(memory);
}

static void* in_a_thread(void* unused) {
    unsigned char* memory = foreign(SIZE);
    uint64_t word, back;
    for (word = 1; word <= ROUNDS; word++) {
        CHECK_OK(dtl_mem_adopt(far_away, 0, DTL_MEMORY_DEVICE, memory, SIZE));
        CHECK_OK(dtl_mem_copy(memory + 8, &word, sizeof word));
        CHECK_OK(dtl_mem_copy(&back, memory + 8, sizeof back));
        CHECK(back == word);
        CHECK_OK(dtl_mem_release(far_away, memory));
    }
    drop(memory);
    return unused;
}

static void test_threads(void) {
    pthread_t threads[THREADS];
    int i;
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, in_a_thread, NULL) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- a backend with pointer_info ----------------------------------------------------------------- */

static unsigned char* described;
static int query_count;
static dtl_status_t describe_status;          /* the status of `describe` for its memory, and */
/* ---- a backend that another thread unregisters at that moment ---- */

static dtl_backend_t racing;
static int is_over;

/* What is adopted or registered can be released: its backend stays until then. */
static void* announce(void* is_adopted) {
    static unsigned char memory[64];
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        dtl_backend_t backend;
        backend.id = __atomic_load_n(&racing.id, __ATOMIC_ACQUIRE);
        if (is_adopted == NULL) {
            if (dtl_mem_register_host(backend, memory, sizeof memory) != DTL_SUCCESS) continue;
            CHECK_OK(dtl_mem_unregister_host(backend, memory));
        } else {
            if (dtl_mem_adopt(backend, 0, DTL_MEMORY_HOST, memory, sizeof memory) != DTL_SUCCESS) continue;
            CHECK_OK(dtl_mem_release(backend, memory));
        }
    }
    return NULL;
}

static dtl_status_t take_range(void* self, void* ptr, uint64_t size) {
    (void)self, (void)ptr, (void)size;
    return DTL_SUCCESS;
}

static dtl_status_t no_alloc(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    (void)self, (void)size, (void)align, (void)kind, (void)out;
    return DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t no_free(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)self, (void)ptr, (void)size, (void)align, (void)kind;
    return DTL_ERROR_INTERNAL;
}

static dtl_status_t any_kind(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    (void)self, (void)kind;
    out->properties = DTL_MEMORY_HOST_ACCESSIBLE;
    return DTL_SUCCESS;
}

static void test_unregistered(uint64_t flags, int is_adopted) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_status_t status;
    pthread_t thread;
    int i;
    memory.alloc = no_alloc, memory.free = no_free, memory.kind_info = any_kind;
    memory.register_host = take_range, memory.unregister_host = take_range;
    table.memory = &memory;
    __atomic_store_n(&is_over, 0, __ATOMIC_RELEASE);
    CHECK(pthread_create(&thread, NULL, announce, is_adopted ? &is_over : NULL) == 0);
    for (i = 0; i < 10000; i++) {
        dtl_backend_t made;
        CHECK_OK(dtl_backend_register("racing", &table, NULL, flags, &made));
        __atomic_store_n(&racing.id, made.id, __ATOMIC_RELEASE);
        if (flags != 0 && i + 1 < 10000) continue;
        do status = dtl_backend_unregister(made);
        while (status == DTL_ERROR_BUSY);
        CHECK(status == DTL_SUCCESS);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void (*describe_change)(dtl_mem_info_t*); /* what it changes in the description */

static dtl_status_t describe(void* self, const void* ptr, dtl_mem_info_t* info) {
    const unsigned char* at = (const unsigned char*)ptr;
    (void)self;
    CHECK(info->struct_size == sizeof *info && info->size_bytes == 0);
    __atomic_add_fetch(&query_count, 1, __ATOMIC_RELAXED);
    if (described == NULL || at < described || at >= described + SIZE) return DTL_ERROR_NOT_FOUND;
    info->device = 0, info->kind = DTL_MEMORY_DEVICE, info->base = described, info->size_bytes = SIZE;
    if (describe_change != NULL) describe_change(info);
    return describe_status;
}

static void no_kind(dtl_mem_info_t* info) { info->kind = 0; }
static void other_kind(dtl_mem_info_t* info) { info->kind = DTL_DEVICE_CPU; }
static void no_device(dtl_mem_info_t* info) { info->device = -1; }
static void behind(dtl_mem_info_t* info) { info->base = (char*)info->base + 64, info->size_bytes -= 64; }
static void before_it(dtl_mem_info_t* info) { info->base = (char*)info->base - 64, info->size_bytes = 64; }
static void endless(dtl_mem_info_t* info) { info->size_bytes = UINT64_MAX; }

/* A failure of pointer_info says nothing of the pointer, which is not host memory then: nothing is copied. */
static void fails(dtl_backend_t describer, dtl_status_t wanted, const char* text) {
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    char local[64] = {0};
    int i;
    for (i = 0; i < 6; i++) {
        const dtl_status_t status =
            i == 0   ? dtl_mem_query(described + 8, &info)
            : i == 1 ? dtl_mem_copy(local, described + 8, 16)
            : i == 2 ? dtl_mem_copy(described + 8, local, 16)
            : i == 3 ? dtl_mem_fill(described + 8, 1, 16)
            : i == 4 ? dtl_mem_adopt(describer, 0, DTL_MEMORY_DEVICE, described + 8, 16)
                     : dtl_comm_sendrecv(DTL_COMM_SELF, described + 8, 4, 0, 1, local, 4, 0, 1, DTL_DTYPE_UINT8, NULL);
        CHECK_STATUS(status, wanted);
        CHECK_TEXT("backend describer: memory.pointer_info");
        CHECK_TEXT(text);
    }
    describe_status = DTL_SUCCESS, describe_change = NULL;
    CHECK_OK(dtl_mem_copy(local, described + 8, 16));
}

static void test_describe_fails(dtl_backend_t describer) {
    static const struct {
        void (*change)(dtl_mem_info_t*);
        const char* text;
    } wrong[] = {{no_kind, "kind is 0x0, which is not a memory kind"},
                 {other_kind, "which is not a memory kind"},
                 {no_device, "device -1"},
                 {behind, "do not contain it"},
                 {before_it, "do not contain it"},
                 {endless, "is not a range of addresses"}};
    const dtl_status_t odd[] = {999, -1};
    char text[64];
    int i;
    describe_status = DTL_ERROR_DEVICE_LOST;
    fails(describer, DTL_ERROR_DEVICE_LOST, "a device failed");
    for (i = 0; i < 2; i++) {
        describe_status = odd[i];
        snprintf(text, sizeof text, "%d, which is no status", odd[i]);
        fails(describer, DTL_ERROR_NATIVE_BACKEND, text);
    }
    for (i = 0; i < (int)(sizeof wrong / sizeof *wrong); i++) {
        describe_change = wrong[i].change;
        fails(describer, DTL_ERROR_NATIVE_BACKEND, wrong[i].text);
    }
}

OWN_STACK static void test_described(void) {
    static struct far self;
    struct far_tables tables;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_backend_t describer;
    char local[8] = {0};
    void* ours = NULL;
    int before;
    far_fill(&tables);
    tables.memory.pointer_info = describe;
    CHECK_OK(dtl_backend_register("describer", &tables.main, &self, 0, &describer));
    described = foreign(SIZE);
    CHECK_OK(dtl_mem_alloc(describer, DTL_MEMORY_DEVICE, 8, 0, &ours)); /* the first use: from now on it is queried */
    CHECK_OK(dtl_mem_free(describer, ours));
    used(described, DTL_MEMORY_DEVICE, describer);
    before = query_count;
    CHECK_OK(dtl_comm_sendrecv(DTL_COMM_SELF, local, 4, 0, 1, local + 4, 4, 0, 1, DTL_DTYPE_UINT8, NULL));
    CHECK(query_count == before); /* no query for the stack */
    /* Adopting checks the program's description against the backend's. */
    CHECK_STATUS(dtl_mem_adopt(describer, 0, DTL_MEMORY_DEVICE, described, SIZE + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_adopt(describer, 0, DTL_MEMORY_DEVICE, described - 1, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_adopt(describer, 0, DTL_MEMORY_DEVICE, described + 8, 8));
    CHECK_OK(dtl_mem_query(described + 8, &info));
    CHECK(info.base == described + 8 && info.size_bytes == 8);
    CHECK_OK(dtl_mem_release(describer, described + 8));
    CHECK_OK(dtl_mem_query(described + 8, &info));
    CHECK(info.base == described && info.size_bytes == SIZE);
    test_describe_fails(describer);
    CHECK_OK(dtl_backend_unregister(describer));
    before = query_count;
    CHECK_STATUS(dtl_mem_query(described, &info), DTL_ERROR_NOT_FOUND);
    CHECK(query_count == before);
    drop(described), described = NULL;
}

/* ---- adopted memory that the CUDA driver knows ---------------------------------------------------- */

static void test_cuda(void) {
    typedef unsigned (*driver_fn)(void*, ...);
    void *driver = dlopen(getenv("DTL_CUDA_LIBRARY"), RTLD_NOW), *context = NULL, *at, *bytes;
    unsigned long long number = 0;
    const char* names[5] = {"cuInit", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemAlloc_v2", "cuMemFree_v2"};
    driver_fn call[5];
    dtl_backend_t cuda;
    int i;
    CHECK(driver != NULL);
    for (i = 0; i < 5; i++) at = dlsym(driver, names[i]), memcpy(&call[i], &at, sizeof at);
    CHECK(call[0](NULL) == 0 && call[1](&context, 0) == 0 && call[2](context) == 0 && call[3](&number, (size_t)SIZE) == 0);
    at = (void*)(uintptr_t)number, bytes = malloc(SIZE);
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK_STATUS(dtl_mem_adopt(cuda, 0, DTL_MEMORY_DEVICE, bytes, SIZE), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(cuda, 1, DTL_MEMORY_DEVICE, at, SIZE), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("device 0");
    CHECK_STATUS(dtl_mem_adopt(cuda, 2, DTL_MEMORY_DEVICE, at, SIZE), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_adopt(cuda, 0, DTL_MEMORY_MANAGED, at, SIZE), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_adopt(cuda, 0, DTL_MEMORY_HOST, at, SIZE), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_adopt(cuda, 0, DTL_MEMORY_DEVICE, at, SIZE + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_adopt(cuda, 0, DTL_MEMORY_DEVICE, at, SIZE));
    used((unsigned char*)at, DTL_MEMORY_DEVICE, cuda);
    CHECK_OK(dtl_mem_release(cuda, at));
    used((unsigned char*)at, DTL_MEMORY_DEVICE, cuda); /* the driver still knows it */
    CHECK(call[4](at) == 0);
    free(bytes);
}

int main(int argc, char** argv) {
    unsigned char* left;
    int round;
    for (round = 0; round < 2; round++) { /* and once more after finalize */
        CHECK_OK(dtl_init(NULL));
        CHECK_OK(dtl_backend_get("host", &plain));
        far_away = far_register("far", &far_self), other = far_register("other", &other_self);
        test_life();
        test_refusals();
        test_host();
        test_released_in_flight();
        test_threads();
        test_described();
        test_unregistered(0, 0), test_unregistered(0, 1);
        test_unregistered(DTL_REGISTER_REPLACE, 0), test_unregistered(DTL_REGISTER_REPLACE, 1);
        if (argc > 1 && strcmp(argv[argc - 1], "cuda") == 0) test_cuda();
        left = foreign(SIZE);
        CHECK_OK(dtl_mem_adopt(far_away, 0, DTL_MEMORY_DEVICE, left, SIZE));
        CHECK_OK(dtl_finalize());
        drop(left);
    }
    return 0;
}
