/* Memory in a stream's order, host memory that is registered, prefetches, dma-bufs, and device memory of other processes.
 * Arguments:
 *     (none)  backend host, and backends in C: without those slots, with them, with half of them
 *     cuda    backend cuda over the driver that is none (DTL_CUDA_LIBRARY) */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* usleep, pread */
#endif
#include "far.h"
#include <dlfcn.h>
#include <stddef.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t live(dtl_backend_t backend) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(backend, &stats));
    return stats.live_count;
}

static dtl_stream_t new_stream(dtl_backend_t backend, int32_t device) {
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(backend, device, 0, &stream));
    return stream;
}

static void* take_async(dtl_stream_t stream, dtl_enum_word_t kind, uint64_t size, uint64_t align) {
    void* memory = NULL;
    CHECK_OK(dtl_mem_alloc_async(stream, kind, size, align, &memory));
    CHECK(memory != NULL && (align == 0 || (uintptr_t)memory % align == 0));
    return memory;
}

static volatile int word;

static dtl_status_t wait_for_word(void* user) {
    int i;
    (void)user;
    for (i = 0; i < 5000 && word == 0; i++) usleep(1000);
    return word ? DTL_SUCCESS : DTL_ERROR_TIMEOUT;
}

/* What every backend refuses, and what it leaves as it was. */
static void test_refusals(dtl_backend_t backend, dtl_stream_t stream, dtl_enum_word_t kind) {
    const uint64_t before = live(backend);
    void *memory = NULL, *mine = &memory;
    dtl_pool_t pool;
    CHECK_STATUS(dtl_mem_alloc_async(stream, kind, 0, 0, &memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc_async(stream, kind, 64, 3, &memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc_async(stream, kind, 64, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_alloc_async(stream, UINT64_C(0x00017ffe00000000), 64, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK(memory == NULL && live(backend) == before);
    CHECK_OK(dtl_mem_free_async(stream, NULL));
    CHECK_STATUS(dtl_mem_free_async(stream, mine), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("no live allocation");
    memory = take_async(stream, kind, 4096, 0);
    CHECK_STATUS(dtl_mem_free_async(stream, (char*)memory + 64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(live(backend) == before + 1);
    CHECK_OK(dtl_mem_free_async(stream, memory));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_free(backend, memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(live(backend) == before);
    CHECK_OK(dtl_pool_create(backend, kind, NULL, &pool));
    CHECK_OK(dtl_pool_alloc(pool, 64, 0, &memory));
    CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dtl_pool_free");
    CHECK_OK(dtl_pool_free(pool, memory));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK_STATUS(dtl_mem_prefetch(stream, mine, 4, 99), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_prefetch(stream, mine, 4, -2), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_prefetch(stream, NULL, 8, 0), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_mem_prefetch(stream, NULL, 0, 0));
    CHECK_OK(dtl_mem_prefetch(stream, mine, 4, DTL_PREFETCH_HOST));
}

/* Kilobytes of this process that are locked. */
static long locked(void) {
    char line[256];
    long kilobytes = -1;
    FILE* file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmLck:", 6) == 0) kilobytes = strtol(line + 6, NULL, 10);
    fclose(file);
    return kilobytes;
}

/* A page stays locked until the last range in it goes. */
static void test_pages(dtl_backend_t host, char* page) {
    const long before = locked();
    long both;
    CHECK_OK(dtl_mem_register_host(host, page, 100));
    CHECK_OK(dtl_mem_register_host(host, page + 200, 8000));
    both = locked();
    if (both == before) printf("no page can be locked here (RLIMIT_MEMLOCK)\n");
    CHECK_OK(dtl_mem_unregister_host(host, page));
    CHECK(locked() == both);
    CHECK_OK(dtl_mem_unregister_host(host, page + 200));
    CHECK(locked() == before);
}

/* On the library's own streams: freed behind the work, by the stream's thread. */
static void test_host(void) {
    dtl_backend_t host;
    dtl_stream_t stream;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_mem_handle_t handle;
    const dtl_enum_word_t kinds[2] = {DTL_MEMORY_HOST, DTL_MEMORY_PINNED};
    char *memory, *mine;
    int32_t fd = 77;
    uint64_t before, offset = 77;
    int i;
    CHECK_OK(dtl_backend_get("host", &host));
    stream = new_stream(host, 0);
    before = live(host);
    for (i = 0; i < 2; i++) {
        test_refusals(host, stream, kinds[i]);
        word = 0;
        CHECK_OK(dtl_stream_host_callback(stream, wait_for_word, NULL));
        memory = (char*)take_async(stream, kinds[i], 4096, 1024);
        CHECK_OK(dtl_mem_fill_async(stream, memory, 7, 4096));
        CHECK_OK(dtl_mem_free_async(stream, memory));
        CHECK(live(host) == before + 1); /* the work before is not done */
        /* But it is no allocation any more. */
        CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
        CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_STATUS(dtl_mem_free(host, memory), DTL_ERROR_INVALID_ARGUMENT);
        word = 1;
        CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
        CHECK(live(host) == before);
        memory = (char*)take_async(stream, kinds[i], 64, 0);
        CHECK_OK(dtl_mem_free(host, memory));
    }
    CHECK_STATUS(dtl_mem_register_host(host, (void*)4096, 4096), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("no memory at 0x1000");
    mine = (char*)aligned_alloc(4096, 12288);
    CHECK(mine != NULL);
    test_pages(host, mine);
    CHECK_OK(dtl_mem_register_host(host, mine + 1, 9000));
    CHECK_OK(dtl_mem_query(mine + 9000, &info));
    CHECK(info.kind == DTL_MEMORY_PINNED && info.base == mine + 1 && info.size_bytes == 9000 && info.backend.id == host.id);
    CHECK_STATUS(dtl_mem_register_host(host, mine + 9000, 1), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("dtl_mem_unregister_host");
    CHECK_STATUS(dtl_mem_register_host(host, mine, 2), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_mem_free(host, mine + 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("registered with backend host: dtl_mem_unregister_host");
    CHECK_STATUS(dtl_mem_free(host, mine + 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("registered with backend host");
    CHECK_STATUS(dtl_mem_free_async(stream, mine + 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("registered with backend host");
    CHECK_STATUS(dtl_mem_export(mine + 1, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("registered with backend host");
    CHECK_STATUS(dtl_mem_export(mine + 2, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("registered with backend host");
    CHECK_STATUS(dtl_mem_copy(mine + 8999, mine, 100), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_unregister_host(host, mine), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_unregister_host(host, mine + 1));
    CHECK_STATUS(dtl_mem_unregister_host(host, mine + 1), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_mem_unregister_host(host, NULL));
    CHECK_STATUS(dtl_mem_query(mine + 1, &info), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_register_host(host, NULL, 64), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_register_host(host, mine, 0), DTL_ERROR_INVALID_ARGUMENT);
    memory = (char*)take_async(stream, DTL_MEMORY_HOST, 64, 0);
    CHECK_STATUS(dtl_mem_register_host(host, memory, 64), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("DTL_MEMORY_PINNED");
    CHECK_STATUS(dtl_mem_export_dmabuf(memory, 64, &fd, &offset), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("export_dmabuf");
    CHECK_STATUS(dtl_mem_export_dmabuf(memory, 65, &fd, &offset), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_export_dmabuf(memory, 0, &fd, &offset), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_export_dmabuf(mine, 64, &fd, &offset), DTL_ERROR_NOT_FOUND);
    CHECK(fd == 77 && offset == 77);
    CHECK_OK(dtl_mem_free(host, memory));
    CHECK_OK(dtl_mem_register_host(host, mine, 64)); /* dtl_finalize takes it back */
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_finalize());
    free(mine);
    CHECK_OK(dtl_init(NULL));
}

/* ---- backends in C ------------------------------------------------------------------------------- */

struct ordered {
    struct far far; /* first: its slots are used, too */
    int streams, alloc_asyncs, free_asyncs, registered, prefetched, dmabufs;
    dtl_status_t failure;
};

static dtl_status_t o_create(void* self, int32_t device, uint64_t flags, void** out) {
    (void)device, (void)flags;
    ((struct ordered*)self)->streams++;
    return *out = self, DTL_SUCCESS;
}
static dtl_status_t o_destroy(void* self, void* stream) { return (void)stream, ((struct ordered*)self)->streams--, DTL_SUCCESS; }
static dtl_status_t o_sync(void* self, void* stream) { return stream == self ? ((struct ordered*)self)->failure : DTL_ERROR_INTERNAL; }
static dtl_status_t o_alloc(void* self, void* stream, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    struct ordered* own = (struct ordered*)self;
    CHECK(stream == self);
    own->alloc_asyncs += kind == DTL_MEMORY_DEVICE;
    return far_alloc(&own->far, size, align, kind, out);
}
static dtl_status_t o_free(void* self, void* stream, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    struct ordered* own = (struct ordered*)self;
    CHECK(stream == self);
    if (own->failure != DTL_SUCCESS) return own->failure;
    own->free_asyncs++;
    return far_free(&own->far, ptr, size, align, kind);
}
static dtl_status_t o_kind(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    (void)self;
    out->alignment = 16;
    out->properties = kind == DTL_MEMORY_PINNED ? DTL_MEMORY_HOST_ACCESSIBLE : DTL_MEMORY_DEVICE_ACCESSIBLE;
    return kind == DTL_MEMORY_PINNED || kind == DTL_MEMORY_DEVICE ? DTL_SUCCESS : DTL_ERROR_NOT_SUPPORTED;
}
static dtl_status_t o_register(void* self, void* ptr, uint64_t size) {
    CHECK(ptr != NULL && size == 64);
    return ((struct ordered*)self)->failure != DTL_SUCCESS ? DTL_ERROR_LIMIT : (((struct ordered*)self)->registered++, DTL_SUCCESS);
}
static dtl_status_t o_unregister(void* self, void* ptr, uint64_t size) {
    CHECK(ptr != NULL && size == 64);
    return ((struct ordered*)self)->registered--, DTL_SUCCESS;
}
static dtl_status_t o_dmabuf(void* self, void* ptr, uint64_t size, int32_t* fd, uint64_t* offset) {
    CHECK(far_is(ptr) && size == 32);
    ((struct ordered*)self)->dmabufs++;
    return *fd = 5, *offset = 96, DTL_SUCCESS;
}
static dtl_status_t o_prefetch(void* self, void* stream, void* ptr, dtl_enum_word_t kind, uint64_t size, int32_t device) {
    CHECK(stream == self && far_is(ptr) && kind == DTL_MEMORY_DEVICE && size == 32 && device == -1);
    return ((struct ordered*)self)->prefetched++, DTL_SUCCESS;
}

static void fill(struct far_tables* tables, dtl_exec_vtable_t* exec) {
    const dtl_exec_vtable_t none = DTL_EXEC_VTABLE_INIT;
    far_fill(tables);
    *exec = none;
    exec->stream_create = o_create, exec->stream_destroy = o_destroy, exec->stream_synchronize = o_sync;
    tables->main.exec = exec;
    tables->memory.kind_info = o_kind;
}

/* Without the slots: at once, and behind what the caller waits for. */
static void test_without(void) {
    struct ordered own;
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend;
    dtl_stream_t stream;
    int32_t fd;
    uint64_t offset;
    char* memory;
    memset(&own, 0, sizeof own);
    fill(&tables, &exec);
    CHECK_OK(dtl_backend_register("unordered", &tables.main, &own, 0, &backend));
    stream = new_stream(backend, 0);
    test_refusals(backend, stream, DTL_MEMORY_DEVICE);
    memory = (char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    own.far.failure = DTL_ERROR_BACKEND; /* a free that fails: the memory is there again */
    CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_BACKEND);
    own.far.failure = DTL_SUCCESS;
    CHECK(live(backend) == 1);
    own.failure = DTL_ERROR_TYPE; /* of the stream's work: told, and the memory is free all the same */
    CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_TYPE);
    CHECK(live(backend) == 0);
    own.failure = DTL_SUCCESS;
    memory = (char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    CHECK_OK(dtl_mem_free_async(stream, memory));
    CHECK(own.far.allocs == own.far.frees && live(backend) == 0);
    CHECK_STATUS(dtl_mem_register_host(backend, &own, 64), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("register_host");
    memory = (char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    CHECK_STATUS(dtl_mem_export_dmabuf(memory, 64, &fd, &offset), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_mem_prefetch(stream, memory, 64, 0));
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(own.streams == 0);
}

struct giver {
    dtl_stream_t asked, from;
    dtl_backend_t backend;
    int calls, is_short;
};

static dtl_status_t gives(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    struct giver* giver = (struct giver*)user;
    dtl_dispatch_alloc_t* args = (dtl_dispatch_alloc_t*)query->args;
    CHECK(event == NULL && args->stream.id == giver->asked.id && args->backend.id == giver->backend.id);
    giver->calls++;
    return dtl_mem_alloc_async(giver->from, DTL_MEMORY_DEVICE, args->size_bytes / (giver->is_short ? 2 : 1), args->alignment,
                               &args->ptr);
}

static dtl_registration_t handle_device(const dtl_dispatch_handler_t* handler) {
    const dtl_dispatch_key_t key = {DTL_OPERATION_ALLOC, DTL_DISPATCH_ANY, DTL_MEMORY_DEVICE, DTL_DISPATCH_ANY, {0, 0}};
    dtl_registration_t made;
    CHECK_OK(dtl_dispatch_register(dtl_dispatcher_default(), &key, 1, handler, &made));
    return made;
}

/* A kind that the dispatcher has a handler for is that one's in a stream's order, too. */
static void test_handlers(struct ordered* own, dtl_backend_t backend, dtl_stream_t stream) {
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_dispatch_alloc_t args = DTL_DISPATCH_ALLOC_INIT;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    struct giver giver;
    dtl_registration_t made;
    const int before = own->alloc_asyncs;
    void *memory, *again = &memory;
    memset(&giver, 0, sizeof giver);
    CHECK_OK(dtl_backend_get("host", &giver.backend));
    giver.asked = new_stream(giver.backend, 0), giver.from = stream;
    /* Of a backend that is named: in order on a stream of its own, else at once. */
    handler.name = "giver", handler.backend = backend;
    made = handle_device(&handler);
    memory = take_async(giver.asked, DTL_MEMORY_DEVICE, 64, 0);
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(far_is(memory) && info.backend.id == backend.id && own->alloc_asyncs == before);
    CHECK_OK(dtl_mem_free(giver.backend, memory));
    memory = take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    CHECK(own->alloc_asyncs == before + 1);
    CHECK_OK(dtl_mem_free_async(giver.asked, memory));
    CHECK_OK(dtl_stream_wait(giver.asked, DTL_TIMEOUT_INFINITE));
    CHECK(live(backend) == 0);
    CHECK_STATUS(dtl_mem_alloc_async(giver.asked, DTL_MEMORY_DEVICE, 64, 3, &again), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_dispatch_unregister(dtl_dispatcher_default(), made));
    /* Of a function, which sees the stream. What was freed by its own backend is nobody else's any more. */
    handler.backend.id = 0, handler.invoke = gives, handler.user = &giver;
    made = handle_device(&handler);
    memory = take_async(giver.asked, DTL_MEMORY_DEVICE, 64, 0);
    CHECK(far_is(memory) && giver.calls == 1 && own->alloc_asyncs == before + 2);
    CHECK_OK(dtl_mem_free_async(stream, memory));
    giver.is_short = 1, again = &giver;
    CHECK_STATUS(dtl_mem_alloc_async(giver.asked, DTL_MEMORY_DEVICE, 64, 0, &again), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("\"giver\"");
    CHECK_OK(dtl_stream_wait(giver.asked, DTL_TIMEOUT_INFINITE));
    CHECK(again == &giver && live(backend) == 0); /* it went back, behind the stream's work */
    CHECK_OK(dtl_dispatch_unregister(dtl_dispatcher_default(), made));
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 64, 0, &again));
    CHECK_STATUS(dtl_mem_free(giver.backend, again), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(backend, again));
    /* The library's own way, asked for by name. */
    query.operation = DTL_OPERATION_ALLOC, query.destination = args.kind = DTL_MEMORY_DEVICE, query.args = &args;
    args.stream = stream, args.size_bytes = 64;
    CHECK_OK(dtl_dispatch_invoke(dtl_dispatcher_default(), &query, NULL));
    CHECK(far_is(args.ptr) && own->alloc_asyncs == before + 4);
    CHECK_OK(dtl_mem_free_async(stream, args.ptr));
    args.stream.id = 5;
    CHECK_STATUS(dtl_dispatch_invoke(dtl_dispatcher_default(), &query, NULL), DTL_ERROR_INVALID_HANDLE);
    args.struct_size = (uint32_t)offsetof(dtl_dispatch_alloc_t, stream), args.backend = backend; /* of an older header */
    CHECK_OK(dtl_dispatch_invoke(dtl_dispatcher_default(), &query, NULL));
    CHECK_OK(dtl_mem_free(backend, args.ptr));
    CHECK_OK(dtl_stream_destroy(giver.asked));
}

static void test_with(void) {
    struct ordered own;
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_stream_t stream;
    int32_t fd = 0;
    uint64_t offset = 0;
    char *memory, mine[128];
    memset(&own, 0, sizeof own);
    fill(&tables, &exec);
    tables.memory.alloc_async = o_alloc;
    CHECK_STATUS(dtl_backend_register("ordered", &tables.main, &own, 0, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("free_async");
    tables.memory.free_async = o_free, tables.memory.register_host = o_register;
    CHECK_STATUS(dtl_backend_register("ordered", &tables.main, &own, 0, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("unregister_host");
    tables.memory.unregister_host = o_unregister, tables.memory.export_dmabuf = o_dmabuf, tables.transfer.prefetch = o_prefetch;
    CHECK_OK(dtl_backend_register("ordered", &tables.main, &own, 0, &backend));
    stream = new_stream(backend, 0);
    test_refusals(backend, stream, DTL_MEMORY_DEVICE);
    CHECK(own.alloc_asyncs == own.free_asyncs && own.alloc_asyncs > 0);
    test_handlers(&own, backend, stream);
    memory = (char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    own.failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_mem_free_async(stream, memory), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_mem_register_host(backend, mine, 64), DTL_ERROR_LIMIT);
    own.failure = DTL_SUCCESS;
    CHECK(live(backend) == 1);
    CHECK_OK(dtl_mem_prefetch(stream, memory + 32, 32, DTL_PREFETCH_HOST));
    CHECK_STATUS(dtl_mem_prefetch(stream, memory + 33, 32, 0), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_export_dmabuf(memory + 32, 32, &fd, &offset));
    CHECK(fd == 5 && offset == 96 && own.prefetched == 1 && own.dmabufs == 1);
    CHECK_OK(dtl_mem_free_async(stream, memory));
    CHECK_OK(dtl_mem_register_host(backend, mine, 64));
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_BUSY);
    CHECK_OK(dtl_mem_unregister_host(backend, mine));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(own.registered == 0 && own.far.allocs == own.far.frees && own.streams == 0);
}

/* ---- cuda ------------------------------------------------------------------------------------------ */

static int peer[2], back[2]; /* pipes to the other process and from it */

/* Another process: opens what it is sent, adds one to each byte. */
static int other_process(void) {
    dtl_mem_handle_t handle;
    dtl_backend_t cuda;
    unsigned char bytes[64];
    void *memory = NULL, *again = NULL;
    uint64_t size = 0;
    int i;
    CHECK(read(peer[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK_OK(dtl_mem_import(cuda, &handle, &memory, &size));
    CHECK(size == 64);
    CHECK_OK(dtl_mem_import(cuda, &handle, &again, NULL)); /* of this driver: another mapping */
    CHECK_OK(dtl_mem_free(cuda, again));
    CHECK_OK(dtl_mem_copy(bytes, memory, 64));
    for (i = 0; i < 64; i++) bytes[i]++;
    CHECK_OK(dtl_mem_copy(memory, bytes, 64));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK(live(cuda) == 0);
    CHECK(write(back[1], "d", 1) == 1);
    CHECK(read(peer[0], &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK_STATUS(dtl_mem_import(cuda, &handle, &memory, &size), DTL_ERROR_INVALID_HANDLE); /* freed meanwhile */
    CHECK_OK(dtl_finalize());
    return 0;
}

static void test_processes(dtl_backend_t cuda) {
    const uint64_t before = live(cuda);
    unsigned char bytes[64];
    dtl_mem_handle_t handle;
    dtl_mem_kind_info_t kind = DTL_MEM_KIND_INFO_INIT;
    void *memory, *device;
    uint64_t offset = 0;
    int32_t fd = -1;
    char done;
    CHECK_OK(dtl_mem_kind_info(cuda, DTL_MEMORY_SHARED, &kind));
    CHECK((kind.properties & DTL_MEMORY_EXPORTABLE) != 0 && (kind.properties & DTL_MEMORY_HOST_ACCESSIBLE) == 0);
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_SHARED, 64, 4096, &memory));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("256");
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_SHARED, 64, 0, &memory));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &device));
    CHECK_OK(dtl_mem_fill(memory, 40, 64));
    CHECK_STATUS(dtl_mem_export(device, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("DTL_MEMORY_SHARED");
    CHECK_OK(dtl_mem_export(memory, &handle));
    CHECK_STATUS(dtl_mem_import(cuda, &handle, &device, NULL), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("this very process");
    CHECK(write(peer[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK(read(back[0], &done, 1) == 1);
    CHECK_OK(dtl_mem_copy(bytes, memory, 64));
    CHECK(bytes[0] == 41 && bytes[63] == 41);
    CHECK_OK(dtl_mem_export_dmabuf((char*)memory + 16, 48, &fd, &offset));
    CHECK(offset == 16 && pread(fd, bytes, 1, (off_t)offset) == 1 && bytes[0] == 41);
    CHECK(close(fd) == 0);
    CHECK_STATUS(dtl_mem_export_dmabuf(device, 64, &fd, &offset), DTL_ERROR_NOT_SUPPORTED); /* of a pool */
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK(write(peer[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK_OK(dtl_mem_free(cuda, device));
    CHECK(live(cuda) == before);
}

static void test_cuda(void) {
    dtl_backend_t cuda;
    dtl_stream_t stream, second;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    unsigned char bytes[4096], *memory, *mine, *pinned;
    void* driver = dlopen(getenv("DTL_CUDA_LIBRARY"), RTLD_NOW);
    int (*prefetches)(int*);
    void* found = dlsym(driver, "fake_cuda_prefetches");
    int to = 7;
    CHECK(found != NULL);
    memcpy(&prefetches, &found, sizeof found);
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    stream = new_stream(cuda, 1), second = new_stream(cuda, 0);
    test_refusals(cuda, stream, DTL_MEMORY_DEVICE);
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_PINNED, 4096, 0, (void**)&pinned));
    /* Queued: the calls return while work before them still waits. */
    word = 0;
    CHECK_OK(dtl_stream_host_callback(stream, wait_for_word, NULL));
    memory = (unsigned char*)take_async(stream, DTL_MEMORY_DEVICE, 4096, 4096);
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.device == 1 && info.kind == DTL_MEMORY_DEVICE && info.base == memory);
    CHECK_OK(dtl_mem_fill_async(stream, memory, 9, 4096));
    CHECK_OK(dtl_mem_copy_async(stream, pinned, memory, 4096));
    CHECK_OK(dtl_mem_free_async(stream, memory));
    CHECK(live(cuda) == 1); /* the page-locked memory */
    word = 1;
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(pinned[0] == 9 && pinned[4095] == 9);
    CHECK_OK(dtl_mem_free(cuda, pinned));
    /* Freed on another device's stream, and by the other call. */
    memory = (unsigned char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_free_async(second, memory));
    memory = (unsigned char*)take_async(stream, DTL_MEMORY_PINNED, 64, 0); /* at once */
    memset(memory, 1, 64);
    CHECK_OK(dtl_mem_free_async(stream, memory));
    memory = (unsigned char*)take_async(stream, DTL_MEMORY_DEVICE, 64, 0);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK_STATUS(dtl_mem_alloc_async(stream, DTL_MEMORY_DEVICE, UINT64_C(1) << 40, 0, &found), DTL_ERROR_OUT_OF_MEMORY);
    /* Managed memory moves, other memory stays. */
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_MANAGED, 4096, 0, &found));
    CHECK_OK(dtl_mem_prefetch(stream, found, 4096, 0));
    CHECK(prefetches(&to) == 1 && to == 0);
    CHECK_OK(dtl_mem_prefetch(stream, (char*)found + 8, 4, DTL_PREFETCH_HOST));
    CHECK(prefetches(&to) == 2 && to == -1);
    CHECK_STATUS(dtl_mem_prefetch(stream, found, 4096, 2), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_mem_free(cuda, found));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &found));
    CHECK_OK(dtl_mem_prefetch(stream, found, 64, 1));
    CHECK(prefetches(&to) == 2);
    CHECK_OK(dtl_mem_free(cuda, found));
    /* Registered memory is the backend's PINNED memory. */
    mine = (unsigned char*)malloc(8192);
    memset(mine, 3, 8192);
    CHECK_OK(dtl_mem_register_host(cuda, mine, 4096));
    CHECK_OK(dtl_mem_query(mine + 4095, &info));
    CHECK(info.kind == DTL_MEMORY_PINNED && info.backend.id == cuda.id);
    memory = (unsigned char*)take_async(stream, DTL_MEMORY_DEVICE, 4096, 0);
    CHECK_OK(dtl_mem_copy_async(stream, memory, mine, 4096));
    CHECK_OK(dtl_mem_copy_async(stream, bytes, memory, 4096));
    CHECK_OK(dtl_mem_free_async(stream, memory));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(bytes[4095] == 3);
    CHECK_OK(dtl_mem_copy(bytes, mine + 1, 64)); /* neither side is a device's */
    CHECK_OK(dtl_mem_unregister_host(cuda, mine));
    CHECK_OK(dtl_mem_register_host(cuda, mine, 4096));
    CHECK_OK(dtl_mem_register_host(cuda, mine + 4096, 4096)); /* both left to dtl_finalize */
    test_processes(cuda);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(second));
    CHECK_OK(dtl_mem_stats(cuda, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
    CHECK_OK(dtl_finalize());
    free(mine);
}

int main(int argc, char** argv) {
    int status = 0;
    pid_t child;
    if (argc == 2 && strcmp(argv[1], "cuda") == 0) {
        CHECK(pipe(peer) == 0 && pipe(back) == 0);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) return other_process();
        test_cuda();
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return 0;
    }
    CHECK_OK(dtl_init(NULL));
    test_host();
    test_without();
    test_with();
    CHECK_OK(dtl_finalize());
    return 0;
}
