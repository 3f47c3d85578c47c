/* The default dispatcher: what the library asks it, so that an accelerator is used by programs that know nothing of it.
 * Usage: test_dispatch_library. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dispatch_cases.h"
#include "far.h"
#include <pthread.h>

/* The accelerator: memory of a kind of its own, MEM(1), which is the host's in truth; its transfer counts. */
struct accel {
    int copies;
};

static dtl_status_t accel_alloc(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    (void)self;
    if (kind != MEM(1)) return DTL_ERROR_NOT_SUPPORTED;
    return posix_memalign(out, (size_t)(align < 16 ? 16 : align), (size_t)size) == 0 ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}
static dtl_status_t accel_free(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)self, (void)size, (void)align;
    CHECK(kind == MEM(1));
    free(ptr);
    return DTL_SUCCESS;
}
static dtl_status_t accel_copy(void* self, void* dst, dtl_enum_word_t to, const void* src, dtl_enum_word_t from, uint64_t size) {
    (void)to, (void)from;
    ((struct accel*)self)->copies++;
    memcpy(dst, src, (size_t)size);
    return DTL_SUCCESS;
}

static dtl_status_t accel_kind(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    (void)self;
    out->alignment = 16, out->properties = DTL_MEMORY_HOST_ACCESSIBLE;
    return kind == MEM(1) ? DTL_SUCCESS : DTL_ERROR_NOT_SUPPORTED;
}

static dtl_backend_t host, accel, far_backend;
static struct accel accel_self;
static struct far far_self;
static dtl_dispatcher_t all;

static void set_up(void) {
    static dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    static dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    memory.alloc = accel_alloc, memory.free = accel_free, memory.kind_info = accel_kind, transfer.copy = accel_copy;
    table.memory = &memory, table.transfer = &transfer;
    CHECK_OK(dtl_backend_register("accel", &table, &accel_self, 0, &accel));
    far_backend = far_register("far", &far_self);
    CHECK_OK(dtl_backend_get("host", &host));
    all = dtl_dispatcher_default();
}

static dtl_registration_t by_backend(uint64_t op, uint64_t source, uint64_t destination, dtl_backend_t backend) {
    dtl_dispatch_handler_t handler = handler_of("the accelerator's", NULL);
    const dtl_dispatch_key_t key = key_of(op, source, destination, ANY);
    dtl_registration_t out;
    handler.invoke = NULL, handler.backend = backend;
    CHECK_OK(dtl_dispatch_register(all, &key, 1, &handler, &out));
    return out;
}

static dtl_registration_t by_function(uint64_t op, uint64_t s, uint64_t d, uint64_t h, dtl_dispatch_fn_t invoke, void* user) {
    dtl_dispatch_handler_t handler = handler_of("a function", NULL);
    const dtl_dispatch_key_t key = key_of(op, s, d, h);
    dtl_registration_t out;
    handler.invoke = invoke, handler.user = user;
    CHECK_OK(dtl_dispatch_register(all, &key, 1, &handler, &out));
    return out;
}

/* A program that knows nothing: memory of a kind, filled, copied, freed. */
static void program(dtl_backend_t backend, dtl_enum_word_t kind, dtl_backend_t expected) {
    char in[96], out[96];
    void* memory = NULL;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    memset(in, 7, sizeof in), memset(out, 0, sizeof out);
    CHECK_OK(dtl_mem_alloc(backend, kind, sizeof in, 32, &memory));
    CHECK((uintptr_t)memory % 32 == 0);
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.backend.id == expected.id && info.base == memory && info.size_bytes == sizeof in);
    CHECK_OK(dtl_mem_copy(memory, in, sizeof in));
    CHECK_OK(dtl_mem_copy(out, memory, sizeof in));
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_STATUS(dtl_mem_free(backend, memory), DTL_ERROR_INVALID_ARGUMENT);
}

static void test_alloc_by_backend(void) {
    const int64_t shape[2] = {3, 4};
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    dtl_registration_t handler;
    dtl_array_t array;
    void* memory = NULL;
    CHECK_STATUS(dtl_mem_alloc(host, MEM(1), 64, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    handler = by_backend(DTL_OPERATION_ALLOC, ANY, MEM(1), accel);
    program(host, MEM(1), accel);
    program(DTL_BACKEND_NULL, MEM(1), accel);
    program(accel, MEM(1), accel);
    program(host, DTL_MEMORY_HOST, host);
    CHECK_OK(dtl_array_alloc(host, MEM(1), shape, 2, DTL_DTYPE_INT32, 0, &array));
    CHECK_OK(dtl_array_destroy(array));
    /* Who else frees it. */
    CHECK_OK(dtl_mem_alloc(host, MEM(1), 64, 0, &memory));
    CHECK_STATUS(dtl_mem_free(far_backend, memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(accel, memory));
    CHECK_STATUS(dtl_mem_alloc(host, MEM(1), 64, 3, &memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_alloc(host, MEM(1), 0, 0, &memory), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_backend_unregister(accel), DTL_ERROR_BUSY);
    CHECK_TEXT("handler \"the accelerator's\"");
    CHECK_TEXT("dtl_dispatch_unregister");
    CHECK_OK(dtl_mem_alloc(host, MEM(1), 64, 0, &memory));
    CHECK_OK(dtl_mem_stats(accel, &stats));
    CHECK(stats.live_count == 1 && stats.live_bytes == 64);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    CHECK_OK(dtl_mem_free(host, memory)); /* also without the handler */
    CHECK_OK(dtl_mem_stats(accel, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
    CHECK_STATUS(dtl_mem_alloc(host, MEM(1), 64, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    /* Plain memory of the host is only the host's to give. */
    handler = by_backend(DTL_OPERATION_ALLOC, ANY, DTL_MEMORY_HOST, host);
    program(host, DTL_MEMORY_HOST, host);
    memory = &handler;
    CHECK_STATUS(dtl_mem_alloc(accel, DTL_MEMORY_HOST, 64, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("plain memory of the host");
    CHECK(memory == &handler);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
}

static int calls;
static void* wrong;

static dtl_status_t allocates(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    dtl_dispatch_alloc_t* args = (dtl_dispatch_alloc_t*)query->args;
    CHECK(event == NULL && query->operation == DTL_OPERATION_ALLOC && query->destination == args->kind && query->source == ANY);
    calls++;
    if (user != NULL) return args->ptr = *(void**)user, DTL_SUCCESS;
    /* The same again goes the library's own way. */
    if (args->kind == DTL_MEMORY_HOST) return dtl_mem_alloc(args->backend, args->kind, args->size_bytes, args->alignment, &args->ptr);
    return dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, args->size_bytes, args->alignment, &args->ptr);
}

static void test_alloc_by_function(void) {
    void *memory = NULL, *hosts = NULL;
    dtl_registration_t handler = by_function(DTL_OPERATION_ALLOC, ANY, MEM(2), ANY, allocates, NULL);
    program(accel, MEM(2), far_backend);
    program(far_backend, MEM(2), far_backend);
    CHECK(calls == 2);
    far_self.failure = DTL_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(dtl_mem_alloc(accel, MEM(2), 64, 0, &memory), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_TEXT("handler \"a function\"");
    far_self.failure = DTL_SUCCESS;
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    calls = 0;
    handler = by_function(DTL_OPERATION_ALLOC, ANY, DTL_MEMORY_HOST, ANY, allocates, NULL);
    program(host, DTL_MEMORY_HOST, host);
    CHECK(calls == 1);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    program(host, DTL_MEMORY_HOST, host);
    CHECK(calls == 1);
    /* Memory that is none. */
    wrong = &calls;
    handler = by_function(DTL_OPERATION_ALLOC, ANY, MEM(2), ANY, allocates, &wrong);
    CHECK_STATUS(dtl_mem_alloc(host, MEM(2), 64, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("\"a function\"");
    wrong = NULL;
    CHECK_STATUS(dtl_mem_alloc(host, MEM(2), 64, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, 32, 0, &wrong)); /* too little */
    CHECK_STATUS(dtl_mem_alloc(host, MEM(2), 64, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    CHECK_STATUS(dtl_mem_free(far_backend, wrong), DTL_ERROR_INVALID_ARGUMENT); /* is freed with the refusal */
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &hosts));
    wrong = (char*)hosts + 1;
    CHECK_STATUS(dtl_mem_alloc(host, MEM(2), 8, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    wrong = hosts;
    CHECK_STATUS(dtl_mem_alloc(accel, MEM(2), 64, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_free(host, hosts), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(memory == NULL);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
}

static uint64_t live(dtl_backend_t backend) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(backend, &stats));
    return stats.live_count;
}

/* What is asked for a bit off: half of it (1), a quarter of its alignment (2). */
static dtl_status_t allocates_off(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    dtl_dispatch_alloc_t* args = (dtl_dispatch_alloc_t*)query->args;
    const int mode = *(int*)user;
    const dtl_backend_t from = args->kind == MEM(2) ? far_backend : args->backend;
    const dtl_enum_word_t kind = args->kind == MEM(2) ? DTL_MEMORY_DEVICE : args->kind;
    (void)event;
    far_self.alloc_offset = mode == 2 ? 16 : 0;
    return dtl_mem_alloc(from, kind, mode == 1 ? args->size_bytes / 2 : args->size_bytes, mode == 2 ? 16 : args->alignment,
                         &args->ptr);
}

/* Handlers that pass an array's memory on, and what is refused of what they give. */
static void test_alloc_refused(void) {
    const uint64_t lives = live(host), fars = live(far_backend);
    const int64_t shape[1] = {100};
    dtl_array_info_t info = DTL_ARRAY_INFO_INIT;
    int i, mode = 0;
    dtl_array_t array;
    void* memory = NULL;
    dtl_registration_t handler = by_function(DTL_OPERATION_ALLOC, ANY, DTL_MEMORY_DEVICE, ANY, allocates_off, &mode);
    for (i = 0; i < 1000; i++) { /* plain memory of the host becomes an array's */
        CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_DEVICE, shape, 1, DTL_DTYPE_INT32, DTL_ARRAY_ZERO, &array));
        CHECK_OK(dtl_array_info(array, &info));
        CHECK((uintptr_t)info.data % 256 == 0 && live(host) == lives + 1);
        CHECK_STATUS(dtl_mem_free(host, info.data), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("dtl_array_destroy");
        CHECK_OK(dtl_array_destroy(array));
        CHECK(live(host) == lives);
    }
    mode = 1;
    CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_DEVICE, 64, 0, &memory), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("for 64 bytes aligned as their kind is");
    CHECK_STATUS(dtl_array_alloc(host, DTL_MEMORY_DEVICE, shape, 1, DTL_DTYPE_INT32, 0, &array), DTL_ERROR_NATIVE_BACKEND);
    CHECK(live(host) == lives);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    mode = 0;
    handler = by_function(DTL_OPERATION_ALLOC, ANY, MEM(2), ANY, allocates_off, &mode);
    CHECK_OK(dtl_array_alloc(host, MEM(2), shape, 1, DTL_DTYPE_INT32, 0, &array));
    CHECK_OK(dtl_array_destroy(array));
    for (mode = 1; mode < 3; mode++) {
        CHECK_STATUS(dtl_mem_alloc(host, MEM(2), 640, 64, &memory), DTL_ERROR_NATIVE_BACKEND);
        CHECK_TEXT("for 640 bytes aligned to 64");
        CHECK_STATUS(dtl_array_alloc(host, MEM(2), shape, 1, DTL_DTYPE_INT32, 0, &array), DTL_ERROR_NATIVE_BACKEND);
        CHECK(memory == NULL && live(far_backend) == fars);
    }
    far_self.alloc_offset = 0;
    CHECK(far_self.allocs == far_self.frees);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
}

static dtl_dispatch_copy_t last;
static int64_t last_shape[8], last_strides[2][8];

static dtl_status_t copies(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    int32_t axis;
    (void)user;
    last = *(const dtl_dispatch_copy_t*)query->args;
    CHECK(event == NULL && query->operation == DTL_OPERATION_COPY && last.struct_size == sizeof last);
    for (axis = 0; axis < last.ndim; axis++)
        last_shape[axis] = last.shape[axis], last_strides[0][axis] = last.dst_strides[axis],
        last_strides[1][axis] = last.src_strides[axis];
    calls++;
    if (last.ndim > 0)
        return dtl_mem_copy_strided(last.dst, last.dst_strides, last.src, last.src_strides, last.shape, last.ndim,
                                    last.element_bytes);
    return dtl_mem_copy(last.dst, last.src, last.size_bytes);
}

static int32_t is_in_a_row(const dtl_dispatch_query_t* query, void* user) {
    const dtl_dispatch_copy_t* args = (const dtl_dispatch_copy_t*)query->args;
    (void)user;
    return args != NULL && args->ndim == 0;
}

static void test_copies(void) {
    const dtl_dispatch_key_t both[2] = {key_of(DTL_OPERATION_COPY, DTL_MEMORY_HOST, DTL_MEMORY_DEVICE, ANY),
        key_of(DTL_OPERATION_COPY, DTL_MEMORY_DEVICE, DTL_MEMORY_HOST, ANY)};
    const int64_t shape[3] = {2, 3, 4}, turned[3] = {1, 2, 6};
    char in[96], out[96], byte;
    void* memory;
    dtl_stream_t stream;
    dtl_registration_t handler, illegal;
    dtl_dispatch_handler_t desc = handler_of("in rows", NULL);
    int i;
    for (i = 0; i < 96; i++) in[i] = (char)i;
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, 96, 0, &memory));
    desc.invoke = copies;
    CHECK_OK(dtl_dispatch_register(all, both, 2, &desc, &handler));
    calls = far_self.copies = 0;
    CHECK_OK(dtl_mem_copy(memory, in, 96));
    CHECK(calls == 1 && far_self.copies == 1 && last.dst == memory && last.src == in && last.size_bytes == 96);
    CHECK(last.dst_backend.id == far_backend.id && last.src_backend.id == 0 && last.ndim == 0);
    CHECK_OK(dtl_mem_copy_2d(out, 12, memory, 24, 10, 3));
    CHECK(calls == 2 && last.ndim == 2 && last_shape[0] == 3 && last_shape[1] == 10 && last_strides[0][0] == 12 &&
          last_strides[1][0] == 24 && last_strides[0][1] == 1 && last.size_bytes == 30 && memcmp(out + 12, in + 24, 10) == 0);
    CHECK_OK(dtl_mem_copy_strided(out, NULL, memory, turned, shape, 3, 4));
    CHECK(calls == 3 && last.ndim == 3 && last.element_bytes == 4 && memcmp(last_shape, shape, sizeof shape) == 0 &&
          last_strides[0][0] == 12 && last_strides[1][2] == 6 && memcmp(out + 4, in + 24, 4) == 0);
    CHECK_OK(dtl_stream_create(far_backend, 0, 0, &stream));
    CHECK_OK(dtl_mem_copy_async(stream, out, memory, 96));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(calls == 4 && memcmp(in, out, 96) == 0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    /* One that takes bytes in a row alone gets the rows. */
    desc.predicate = is_in_a_row;
    CHECK_OK(dtl_dispatch_register(all, both, 2, &desc, &handler));
    calls = 0;
    CHECK_OK(dtl_mem_copy_2d(out, 12, memory, 24, 10, 3));
    CHECK_OK(dtl_mem_copy(&byte, memory, 1));
    CHECK(far_self.copies_2d > 0 ? calls == 1 : calls == 4);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    /* A way that must not be taken, and a backend that does others' copies. */
    desc = handler_of("no", NULL), desc.invoke = NULL, desc.flags = DTL_DISPATCH_ILLEGAL, desc.reason = "the bus is closed";
    CHECK_OK(dtl_dispatch_register(all, &both[1], 1, &desc, &illegal));
    CHECK_STATUS(dtl_mem_copy(out, memory, 96), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("the bus is closed");
    CHECK_OK(dtl_mem_copy(memory, in, 96));
    CHECK_OK(dtl_dispatch_unregister(all, illegal));
    handler = by_backend(DTL_OPERATION_COPY, DTL_MEMORY_HOST, DTL_MEMORY_HOST, accel);
    accel_self.copies = 0, memset(out, 0, 96);
    CHECK_OK(dtl_mem_copy(out, in, 96));
    CHECK(accel_self.copies == 1 && memcmp(in, out, 96) == 0);
    CHECK_OK(dtl_mem_copy_2d(out, 12, in, 24, 10, 3));
    CHECK(accel_self.copies == 4);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    CHECK_OK(dtl_mem_copy(out, memory, 96));
    CHECK(accel_self.copies == 4);
    CHECK_OK(dtl_mem_free(far_backend, memory));
}

static dtl_status_t runs(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    const dtl_dispatch_launch_t* args = (const dtl_dispatch_launch_t*)query->args;
    dtl_launch_t launch = *args->launch;
    (void)user;
    CHECK(event == NULL && query->schedule == HOW(1) && launch.schedule == HOW(1));
    calls++;
    launch.schedule = 0;
    return dtl_kernel_launch(args->stream, args->kernel, &launch, args->args, args->sizes, args->count);
}

static int ran, other_threads, out_of_order;
static pthread_t first_thread;

/* Long enough that the host would wake other threads. */
static dtl_status_t block(const dtl_kernel_context_t* context, const void* const* args) {
    volatile int spin = 0;
    (void)args;
    if (ran == 0) first_thread = pthread_self();
    if (!pthread_equal(first_thread, pthread_self())) __atomic_fetch_add(&other_threads, 1, __ATOMIC_RELAXED);
    if ((int)context->block_index[0] != __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED)) out_of_order++;
    while (spin < 20000) spin = spin + 1;
    return DTL_SUCCESS;
}

/* What no handler sees: it is refused as without one. */
static void refuse_launches(dtl_stream_t stream, dtl_kernel_t kernel, dtl_launch_t launch) {
    const dtl_enum_word_t none[3] = {DTL_MEMORY_HOST, NEVER(DTL_ENUM_SCHEDULE), DTL_SCHEDULE_DEVICE + 1};
    const void* args[1] = {&launch};
    const uint64_t sizes[1] = {4};
    dtl_launch_t empty = launch, large = launch;
    dtl_kernel_t others, no_kernel = {3};
    dtl_stream_t no_stream = {3};
    int i;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, NULL, NULL, NULL, 0), DTL_ERROR_NULL_POINTER);
    empty.grid[1] = 0, large.block[0] = large.block[1] = 1u << 20;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &empty, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("grid.y");
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &large, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, NULL, sizes, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, NULL, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 4097), DTL_ERROR_LIMIT);
    CHECK_STATUS(dtl_kernel_launch(no_stream, kernel, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_kernel_launch(stream, no_kernel, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_kernel_from_function(far_backend, block, NULL, &others));
    CHECK_STATUS(dtl_kernel_launch(stream, others, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_kernel_destroy(others));
    for (i = 0; i < 3; i++) {
        launch.schedule = none[i];
        CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("dtl_launch_t.schedule");
    }
}

static void test_launches(void) {
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_registration_t handler;
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_kernel_from_function(host, block, NULL, &kernel));
    refuse_launches(stream, kernel, launch); /* nobody has a handler */
    launch.grid[0] = 40, launch.schedule = HOW(1);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("schedule M1");
    calls = 0;
    handler = by_function(DTL_OPERATION_LAUNCH, ANY, ANY, HOW(1), runs, NULL);
    refuse_launches(stream, kernel, launch);
    CHECK(calls == 0);
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(calls == 1 && ran == 40);
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    ran = other_threads = out_of_order = 0;
    launch.schedule = DTL_SCHEDULE_SEQUENTIAL;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(ran == 40 && other_threads == 0 && out_of_order == 0);
    launch.schedule = DTL_SCHEDULE_MULTICORE;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(ran == 80);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_stream_destroy(stream));
}

#define LANGUAGE member_of(DTL_ENUM_LANGUAGE, 1)

static dtl_status_t translates(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    dtl_dispatch_compile_t* args = (dtl_dispatch_compile_t*)query->args;
    dtl_source_t source = *args->source;
    (void)event;
    CHECK(query->source == LANGUAGE && strcmp((const char*)source.text, "twice") == 0);
    calls++;
    if (user != NULL) return args->module.id = 5, DTL_SUCCESS;
    source.language = DTL_LANGUAGE_C;
    source.text = "#include <dtl_kernel.h>\nDTL_KERNEL(twice, DTL_GLOBAL(float) x) { DTL_THREADS { x[0] *= 2; } }\n";
    return dtl_module_compile(args->backend, args->device, &source, &args->module);
}

static void test_compiles(void) {
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module = {77};
    dtl_status_t status;
    dtl_registration_t handler;
    source.language = LANGUAGE, source.text = "twice";
    CHECK_STATUS(dtl_module_compile(host, 0, &source, &module), DTL_ERROR_NOT_SUPPORTED);
    handler = by_function(DTL_OPERATION_COMPILE, LANGUAGE, ANY, ANY, translates, &calls);
    CHECK_STATUS(dtl_module_compile(host, 0, &source, &module), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("0x5, which is no module");
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    handler = by_function(DTL_OPERATION_COMPILE, LANGUAGE, ANY, ANY, translates, NULL);
    calls = 0;
    status = dtl_module_compile(far_backend, 0, &source, &module);
    CHECK(calls == 1 && status == DTL_ERROR_NOT_SUPPORTED && module.id == 77); /* "far" compiles nothing */
    CHECK_OK(dtl_dispatch_unregister(all, handler));
    handler = by_backend(DTL_OPERATION_COMPILE, LANGUAGE, ANY, host);
    CHECK_STATUS(dtl_module_compile(far_backend, 0, &source, &module), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("language"); /* it is the host that says so */
    CHECK_OK(dtl_dispatch_unregister(all, handler));
}

/* Every kind that a backend has, every schedule, every compiler; and what is elsewhere if a slot is left open. */
static void test_own_lines(void) {
    const dtl_dispatch_query_t copies_of_all = query_of(DTL_OPERATION_COPY, ANY, ANY, ANY);
    const dtl_dispatch_query_t from_host = query_of(DTL_OPERATION_COPY, DTL_MEMORY_HOST, MEM(1), ANY);
    struct spy spy = spy_of(0);
    dtl_registration_t plain, asking;
    CHECK(explains(all, from_host, "(Host, M1, any) memory of backend accel: by its transfer"));
    CHECK(!tells(all, from_host, "(M1, Host") && !tells(all, from_host, "Device"));
    CHECK(explains(all, copies_of_all, "(M1, M1, any) memory of backend accel: by its transfer"));
    CHECK(explains(all, copies_of_all, "(Pinned, Host, any) memory of backend host: by"));
    CHECK(explains(all, copies_of_all, "(Pinned, Shared, any) memory of backend host: by"));
    CHECK(explains(all, query_of(DTL_OPERATION_ALLOC, ANY, ANY, ANY), "(any, M1, any) memory of backend accel"));
    CHECK(explains(all, query_of(DTL_OPERATION_ALLOC, ANY, DTL_MEMORY_PINNED, ANY), "(any, Pinned, any) memory of backend host"));
    CHECK(explains(all, query_of(DTL_OPERATION_LAUNCH, ANY, ANY, ANY), "(any, any, Multicore) the same"));
    CHECK(explains(all, query_of(DTL_OPERATION_LAUNCH, ANY, ANY, DTL_SCHEDULE_SEQUENTIAL), "(any, any, Sequential) the same; the host"));
    CHECK(explains(all, query_of(DTL_OPERATION_COMPILE, DTL_LANGUAGE_C, ANY, ANY), "by backend host"));
    plain = add(all, "far away", key_of(DTL_OPERATION_COPY, MEM(3), MEM(4), ANY), &spy);
    asking = add_asking(all, "farther", key_of(DTL_OPERATION_COPY, ANY, MEM(4), HOW(2)), 0, &spy);
    CHECK(explains(all, copies_of_all, "elsewhere: (M3, M4, any) \"far away\""));
    CHECK(explains(all, copies_of_all, "elsewhere: (any, M4, M2) \"farther\""));
    CHECK(!tells(all, query_of(DTL_OPERATION_COPY, MEM(5), ANY, ANY), "far away"));
    CHECK(spy.asked == 0);
    CHECK_OK(dtl_dispatch_unregister(all, plain));
    CHECK_OK(dtl_dispatch_unregister(all, asking));
}

/* What the library does by itself is there as others are: found, explained, invoked, and it stays. */
static void test_own_ways(void) {
    const uint64_t operations[7] = {DTL_OPERATION_ALLOC, DTL_OPERATION_COPY, DTL_OPERATION_LAUNCH, DTL_OPERATION_COMPILE,
                                    DTL_OPERATION_FREE, DTL_OPERATION_INSTRUMENT, DTL_OPERATION_INSTRUMENT_DATA};
    const int64_t shape[2] = {2, 4};
    dtl_dispatch_query_t query = query_of(DTL_OPERATION_COPY, DTL_MEMORY_HOST, DTL_MEMORY_DEVICE, ANY);
    dtl_dispatch_copy_t copy = DTL_DISPATCH_COPY_INIT;
    dtl_dispatch_alloc_t alloc = DTL_DISPATCH_ALLOC_INIT;
    dtl_registration_t found;
    char in[8] = "abcdefg", out[16];
    int i;
    for (i = 0; i < 7; i++) {
        const dtl_dispatch_query_t asked = query_of(operations[i], ANY, ANY, ANY);
        CHECK_OK(dtl_dispatch_find(all, &asked, &found));
        CHECK_STATUS(dtl_dispatch_unregister(all, found), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(explains(all, asked, "chosen: \"the library\""));
        CHECK_STATUS(dtl_dispatch_invoke(all, &asked, NULL), DTL_ERROR_NULL_POINTER);
    }
    CHECK(explains(all, query, "(Host, Device, any) memory of backend far: by its transfer"));
    CHECK(explains(all, query_of(DTL_OPERATION_COPY, ANY, ANY, ANY), "memory of backend host: by"));
    CHECK(explains(all, query_of(DTL_OPERATION_COPY, DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE, ANY), "through the host, 4 MiB"));
    CHECK(explains(all, query_of(DTL_OPERATION_COPY, DTL_MEMORY_HOST, DTL_MEMORY_HOST, ANY), "any) by the host"));
    test_own_lines();
    copy.dst = out, copy.src = in, copy.size_bytes = sizeof in, query.args = &copy;
    CHECK_OK(dtl_dispatch_invoke(all, &query, NULL));
    CHECK(memcmp(in, out, 8) == 0);
    copy.ndim = -1;
    CHECK_STATUS(dtl_dispatch_invoke(all, &query, NULL), DTL_ERROR_INVALID_ARGUMENT);
    copy.ndim = 2, copy.shape = shape, copy.element_bytes = 1;
    memset(out, 0, sizeof out);
    CHECK_OK(dtl_dispatch_invoke(all, &query, NULL));
    CHECK(memcmp(in, out, 8) == 0);
    query = query_of(DTL_OPERATION_ALLOC, ANY, DTL_MEMORY_HOST, ANY), query.args = &alloc;
    alloc.backend = host, alloc.kind = DTL_MEMORY_HOST, alloc.size_bytes = 64;
    CHECK_OK(dtl_dispatch_invoke(all, &query, NULL));
    CHECK_OK(dtl_mem_free(host, alloc.ptr));
    alloc.struct_size = 16;
    CHECK_STATUS(dtl_dispatch_invoke(all, &query, NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_dispatcher_destroy(all)); /* nothing happens */
    CHECK_OK(dtl_dispatch_find(all, &query, &found));
}

/* Handlers of the default dispatcher end with the library; the next one begins without them. */
static void test_life(void) {
    struct spy spy = spy_of(0);
    dtl_dispatch_query_t query = query_of(DO(0), ANY, ANY, ANY);
    const dtl_registration_t old = add(all, "old", key_of(DO(0), ANY, ANY, ANY), &spy);
    CHECK(finds(all, query, old));
    CHECK_OK(dtl_finalize());
    CHECK(spy.destroyed == 1);
    CHECK_STATUS(fails(all, query), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(fails(all, query), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_dispatch_unregister(all, old), DTL_ERROR_INVALID_HANDLE);
    query = query_of(DTL_OPERATION_COPY, ANY, ANY, ANY);
    CHECK(explains(all, query, "chosen: \"the library\""));
    CHECK_OK(dtl_finalize());
}

int main(void) {
    CHECK_OK(dtl_init(NULL));
    set_up();
    test_alloc_by_backend(), test_alloc_by_function(), test_alloc_refused(), test_copies(), test_launches(), test_compiles(), test_own_ways();
    CHECK_OK(dtl_backend_unregister(accel));
    CHECK_OK(dtl_backend_unregister(far_backend));
    test_life();
    return 0;
}
