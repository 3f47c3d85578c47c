/* Backend opencl over a loader that fails as it is told (tests/opencl/fake.c): no memory, launches that fail at once and on the
 * device, codes that nobody knows, a device that is lost, programs that tell nothing, loaders that lack functions; two
 * platforms. Nothing is leaked, by the library's count and by the loader's. Argument: the folder of the loaders. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "module_cases.h"
#include "../opencl/fake.h"
#include <dlfcn.h>

#define BYTES 4096

static dtl_backend_t cl;
static struct fake_opencl *fake;

static void tell(const char *call, int code, int times) {
    fake->code = code, fake->times = times;
    fake->call = call;
}

#define CHECK_TEXT(words)                                                                         \
    do {                                                                                          \
        if (strstr(dtl_last_error(), words) == NULL) {                                            \
            fprintf(stderr, "%s:%d: \"%s\" is not in: %s\n", __FILE__, __LINE__, words, dtl_last_error()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* A call fails once, with a status and these words, and leaves no object behind. */
#define FAILS(name, code, call, status, words)                                                    \
    do {                                                                                          \
        const int live_ = fake->live;                                                             \
        tell(name, code, 1);                                                                      \
        CHECK_STATUS(call, status);                                                               \
        CHECK_TEXT(words);                                                                        \
        CHECK(fake->times == 0 && fake->live == live_);                                           \
        tell(NULL, 0, 0);                                                                         \
    } while (0)

static void *take(dtl_enum_word_t kind) {
    void *memory = NULL;
    CHECK_OK(dtl_mem_alloc(cl, kind, BYTES, 0, &memory));
    return memory;
}

static dtl_stream_t new_stream(int32_t device) {
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(cl, device, 0, &stream));
    return stream;
}

static dtl_module_t compiled(int32_t device, dtl_enum_word_t language) {
    dtl_source_t source = m_source("kernel void put(global int *to, int value) { to[get_global_id(0)] = value; }\n");
    dtl_module_t module;
    source.language = language;
    CHECK_OK(dtl_module_compile(cl, device, &source, &module));
    return module;
}

static dtl_status_t put(dtl_stream_t stream, dtl_kernel_t kernel, void *memory, int value) {
    const dtl_launch_t one = DTL_LAUNCH_INIT;
    const void *args[2] = {&memory, &value};
    const uint64_t sizes[2] = {8, 4};
    return dtl_kernel_launch(stream, kernel, &one, args, sizes, 2);
}

static void test_memory(void) {
    void *memory = &cl;
    dtl_stream_t stream = {7};
    dtl_mem_kind_info_t kind = DTL_MEM_KIND_INFO_INIT;
    /* The first use makes a context; one that failed is made again. */
    FAILS("clCreateContext", -6, dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, BYTES, 0, &memory), DTL_ERROR_OUT_OF_MEMORY,
          "CL_OUT_OF_HOST_MEMORY (-6)");
    CHECK_OK(dtl_mem_free(cl, take(DTL_MEMORY_DEVICE)));
    FAILS("clSVMAlloc", 0, dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, BYTES, 0, &memory), DTL_ERROR_OUT_OF_MEMORY, "clSVMAlloc");
    CHECK_OK(dtl_mem_free(cl, take(DTL_MEMORY_PINNED)));
    FAILS("clCreateBuffer", -4, dtl_mem_alloc(cl, DTL_MEMORY_PINNED, BYTES, 0, &memory), DTL_ERROR_OUT_OF_MEMORY,
          "CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)");
    FAILS("clEnqueueMapBuffer", -12, dtl_mem_alloc(cl, DTL_MEMORY_PINNED, BYTES, 0, &memory), DTL_ERROR_OPENCL, "CL_MAP_FAILURE (-12)");
    CHECK(memory == &cl);
    FAILS("clCreateCommandQueue", -5, dtl_stream_create(cl, 0, 0, &stream), DTL_ERROR_OPENCL, "CL_OUT_OF_RESOURCES (-5)");
    CHECK(stream.id == 7);
    CHECK_OK(dtl_mem_kind_info(cl, DTL_MEMORY_PINNED, &kind));
    CHECK(strstr(kind.name, "CL_MEM_ALLOC_HOST_PTR") != NULL && (kind.properties & DTL_MEMORY_HOST_ACCESSIBLE) != 0);
}

static dtl_stream_t with_priority(int32_t priority, int hint) {
    dtl_stream_t stream;
    fake->priority = 0;
    CHECK_OK(dtl_stream_create_with_priority(cl, 0, 0, priority, &stream));
    CHECK(fake->priority == hint);
    return stream;
}

/* Priorities, as the extension names them: high 1, low 4, and no name for queues without one. */
static void test_priorities(void) {
    static const struct { int32_t wanted; int hint; } all[] = {{-1, 1}, {1, 4}, {0, 0}, {INT32_MIN, 1}, {INT32_MAX, 4}};
    int32_t least = 7, greatest = 7;
    uint64_t elapsed;
    dtl_stream_t stream = {7};
    dtl_event_t first, second;
    size_t i;
    CHECK_OK(dtl_stream_priority_range(cl, 1, &least, &greatest));
    CHECK(least == 1 && greatest == -1);
    for (i = 0; i < sizeof all / sizeof all[0]; i++) CHECK_OK(dtl_stream_destroy(with_priority(all[i].wanted, all[i].hint)));
    FAILS("clCreateCommandQueueWithProperties", -35, dtl_stream_create_with_priority(cl, 0, 0, -1, &stream), DTL_ERROR_OPENCL,
          "CL_INVALID_QUEUE_PROPERTIES (-35)");
    CHECK(stream.id == 7);
    /* Such a queue has what others have: its events have times. */
    stream = with_priority(-1, 1);
    CHECK_OK(dtl_event_create(cl, 0, &first));
    CHECK_OK(dtl_event_create(cl, 0, &second));
    CHECK_OK(dtl_event_record(first, stream));
    CHECK_OK(dtl_event_record(second, stream));
    CHECK_OK(dtl_event_wait(second, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_elapsed_ns(first, second, &elapsed));
    CHECK_OK(dtl_event_destroy(first));
    CHECK_OK(dtl_event_destroy(second));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A device without the extension, or a loader without the function: one priority. */
static void test_one_priority(void) {
    int32_t least = 7, greatest = 7;
    CHECK_OK(dtl_stream_priority_range(cl, 0, &least, &greatest));
    CHECK(least == 0 && greatest == 0);
    CHECK_OK(dtl_stream_destroy(with_priority(-1, 0)));
}

static void test_copies(void) {
    unsigned char here[BYTES] = {0};
    void *device = take(DTL_MEMORY_DEVICE);
    dtl_stream_t stream = new_stream(0);
    FAILS("clEnqueueSVMMemcpy", -5, dtl_mem_copy(device, here, BYTES), DTL_ERROR_OPENCL, "CL_OUT_OF_RESOURCES (-5)");
    FAILS("clEnqueueSVMMemcpy", -9999, dtl_mem_copy_2d(device, 8, here, 16, 8, 100), DTL_ERROR_OPENCL, "(-9999)");
    FAILS("clEnqueueSVMMemFill", -4, dtl_mem_fill(device, 1, BYTES), DTL_ERROR_OUT_OF_MEMORY, "(-4)");
    FAILS("clWaitForEvents", -36, dtl_mem_copy(device, here, BYTES), DTL_ERROR_OPENCL, "CL_INVALID_COMMAND_QUEUE (-36)");
    /* Queued, and it fails then. */
    fake->ends_with = -9999;
    CHECK_STATUS(dtl_mem_copy(device, here, BYTES), DTL_ERROR_OPENCL);
    CHECK_STATUS(dtl_mem_copy_2d(device, 8, here, 16, 8, 100), DTL_ERROR_OPENCL);
    CHECK_TEXT("a copy of rows: OpenCL says a code without a name here (-9999)");
    CHECK_OK(dtl_mem_copy_async(stream, device, here, BYTES));
    fake->ends_with = 0;
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_OPENCL);
    CHECK_TEXT("a queued copy");
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(cl, device));
}

static void test_kernels(void) {
    dtl_source_t source = m_source("kernel void put(global int *to, int value) { *to = value; }\n");
    dtl_module_t module = {7};
    dtl_kernel_t kernel = {7};
    dtl_stream_t stream = new_stream(0), second = new_stream(1);
    dtl_event_t event;
    int *x = (int *)take(DTL_MEMORY_MANAGED);
    FAILS("clCreateProgramWithSource", -6, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_OUT_OF_MEMORY, "(-6)");
    FAILS("clBuildProgram", -3, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_UNAVAILABLE, "CL_COMPILER_NOT_AVAILABLE (-3)");
    FAILS("clBuildProgram", -11, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_COMPILE_FAILED, "CL_BUILD_PROGRAM_FAILURE (-11)");
    FAILS("clBuildProgram", -9999, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_OPENCL, "(-9999)");
    CHECK(module.id == 7);
    module = compiled(0, DTL_LANGUAGE_OPENCL);
    FAILS("clCreateKernel", -6, dtl_kernel_get(module, "put", "pi", &kernel), DTL_ERROR_OUT_OF_MEMORY, "kernel 'put'");
    FAILS("clGetKernelInfo", -5, dtl_kernel_get(module, "put", "pi", &kernel), DTL_ERROR_OPENCL, "clGetKernelInfo");
    /* A program that tells nothing of its arguments: the signature has to. */
    FAILS("clGetKernelArgInfo", -19, dtl_kernel_get(module, "put", NULL, &kernel), DTL_ERROR_INVALID_ARGUMENT, "signature");
    tell("clGetKernelArgInfo", -19, -1);
    CHECK_STATUS(dtl_kernel_get(module, "put", "pii", &kernel), DTL_ERROR_INVALID_ARGUMENT);
    /* More __local memory than a device has: a driver would launch it and end the program. */
    fake->local_bytes = 1 << 30;
    CHECK_STATUS(dtl_kernel_get(module, "put", "pi", &kernel), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("'put' has 1073741824 bytes of __local memory");
    CHECK_TEXT("device 0 has ");
    fake->local_bytes = 0;
    CHECK(kernel.id == 7);
    kernel = m_kernel(module, "put", "pi");
    tell(NULL, 0, 0);
    CHECK_OK(put(stream, kernel, x, 3));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 3);
    FAILS("clSetKernelArgSVMPointer", -50, put(stream, kernel, x, 4), DTL_ERROR_INVALID_ARGUMENT, "argument 0 of kernel 'put'");
    FAILS("clSetKernelArg", -51, put(stream, kernel, x, 4), DTL_ERROR_INVALID_ARGUMENT,
          "argument 1 of kernel 'put': OpenCL says CL_INVALID_ARG_SIZE (-51)");
    FAILS("clEnqueueNDRangeKernel", -5, put(stream, kernel, x, 4), DTL_ERROR_OPENCL, "kernel 'put' (clEnqueueNDRangeKernel)");
    FAILS("clEnqueueNDRangeKernel", -9999, put(stream, kernel, x, 4), DTL_ERROR_OPENCL, "(-9999)");
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 3);
    /* It fails on the device: the stream says so once, an event and who waits for it, too; later work runs. */
    CHECK_OK(dtl_event_create(cl, 0, &event));
    fake->ends_with = -9999;
    CHECK_OK(put(stream, kernel, x, 5));
    fake->ends_with = 0;
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_stream_wait_event(second, event));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_OPENCL);
    CHECK_TEXT("kernel 'put': OpenCL says a code without a name here (-9999)");
    CHECK_STATUS(dtl_stream_wait(second, DTL_TIMEOUT_INFINITE), DTL_ERROR_OPENCL);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_OPENCL);
    CHECK_OK(put(stream, kernel, x, 6));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 6);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    /* A device that takes SPIR-V. */
    fake->takes_il = 1;
    module = compiled(0, DTL_LANGUAGE_SPIRV);
    kernel = m_kernel(module, "put", "pi");
    CHECK_OK(put(stream, kernel, x, 7));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 7);
    source.language = DTL_LANGUAGE_SPIRV;
    FAILS("clCreateProgramWithIL", -42, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_INVALID_ARGUMENT, "CL_INVALID_BINARY (-42)");
    FAILS("clCreateProgramWithIL", -30, dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_INVALID_ARGUMENT, "no SPIR-V module");
    fake->takes_il = 0;
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(second));
    CHECK_OK(dtl_mem_free(cl, x));
}

static dtl_status_t count(void *user) {
    ++*(int *)user;
    return DTL_SUCCESS;
}

/* From one moment on every call about the device fails: all of it is told, nothing hangs, everything can be destroyed. */
static void test_lost(void) {
    unsigned char here[BYTES] = {0};
    dtl_module_t module = compiled(0, 0);
    dtl_kernel_t kernel = m_kernel(module, "put", "pi");
    dtl_stream_t stream = new_stream(0);
    dtl_event_t event;
    void *device = take(DTL_MEMORY_DEVICE), *pinned = take(DTL_MEMORY_PINNED);
    int32_t state = 7;
    int runs = 0;
    CHECK_OK(dtl_event_create(cl, 0, &event));
    CHECK_OK(dtl_stream_host_callback(stream, count, &runs));
    CHECK_OK(put(stream, kernel, device, 1));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    tell("", -2, -1);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("CL_DEVICE_NOT_AVAILABLE (-2)");
    CHECK_STATUS(put(stream, kernel, device, 2), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_copy(here, device, BYTES), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_copy_2d(here, 8, device, 16, 8, 100), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_copy_async(stream, here, device, BYTES), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_fill(device, 0, BYTES), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_event_record(event, stream), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_event_query(event, &state), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_stream_host_callback(stream, count, &runs), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_wait(cl, 0, DTL_TIMEOUT_INFINITE), DTL_ERROR_UNAVAILABLE);
    CHECK(runs == 1);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(cl, device));
    CHECK_OK(dtl_mem_free(cl, pinned));
    tell(NULL, 0, 0);
}

/* Devices 0 and 1 are of one platform, 2 and 3 of the other, which knows nothing of the first one's objects. */
static void test_two_platforms(void) {
    unsigned char here[BYTES], back[BYTES];
    unsigned char *near_by, *far_off;
    int32_t number = 0, i;
    dtl_stream_t stream = new_stream(0), other = new_stream(2);
    dtl_module_t module = compiled(2, 0);
    dtl_kernel_t kernel = m_kernel(module, "put", "pi");
    dtl_event_t event;
    CHECK_OK(dtl_backend_device_count(cl, &number));
    CHECK(number == 4);
    for (i = 0; i < BYTES; i++) here[i] = (unsigned char)(i * 3 + i / 256);
    near_by = (unsigned char *)take(DTL_MEMORY_DEVICE);
    CHECK_OK(dtl_backend_set_device(cl, 2));
    far_off = (unsigned char *)take(DTL_MEMORY_DEVICE);
    CHECK_OK(dtl_backend_set_device(cl, 0));
    CHECK_OK(dtl_event_create(cl, 0, &event));
    CHECK_OK(dtl_mem_copy(near_by, here, BYTES));
    CHECK_OK(dtl_mem_copy(far_off, near_by, BYTES));
    CHECK_OK(dtl_mem_copy(back, far_off, BYTES));
    CHECK(memcmp(back, here, BYTES) == 0);
    CHECK_OK(dtl_mem_copy_2d(near_by, 64, far_off + 32, 128, 32, 32));
    CHECK_OK(dtl_mem_copy_async(stream, back, near_by, BYTES));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_stream_wait_event(other, event)); /* by a thread of the host's */
    CHECK_OK(put(other, kernel, far_off, 9));
    CHECK_OK(dtl_mem_copy_async(other, here, far_off, 4));
    CHECK_OK(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE));
    CHECK(here[0] == 9 && here[1] == 0);
    for (i = 0; i < 32; i++) CHECK(back[64 * i] == here[128 * i + 32] && back[64 * i + 31] == here[128 * i + 63]);
    CHECK_OK(dtl_mem_copy_async(stream, near_by, far_off, BYTES));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_copy(back, near_by, 4));
    CHECK(back[0] == 9);
    CHECK_STATUS(put(stream, kernel, near_by, 9), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(other));
    CHECK_OK(dtl_mem_free(cl, near_by));
    CHECK_OK(dtl_mem_free(cl, far_off));
}

/* What is not destroyed: the end takes it along, with a launch that has not begun. */
static void leave_some(void) {
    static int runs;
    dtl_stream_t stream = new_stream(1);
    dtl_event_t event;
    dtl_kernel_t kernel = m_kernel(compiled(1, 0), "put", NULL);
    CHECK_OK(dtl_event_create(cl, 0, &event));
    CHECK_OK(dtl_stream_host_callback(stream, count, &runs));
    CHECK_OK(put(stream, kernel, take(DTL_MEMORY_MANAGED), 1));
    CHECK_OK(dtl_event_record(event, stream));
    DTL_IGNORE(take(DTL_MEMORY_PINNED) == NULL);
}

/* A loader of OpenCL 1.2: devices and pinned memory, and for the rest what is missing. */
static void test_old(void) {
    void *memory = &cl;
    dtl_source_t source = m_source("x");
    dtl_module_t module = {7};
    CHECK_STATUS(dtl_mem_alloc(cl, DTL_MEMORY_DEVICE, BYTES, 0, &memory), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("SVM");
    CHECK_OK(dtl_mem_free(cl, take(DTL_MEMORY_PINNED)));
    source.language = DTL_LANGUAGE_SPIRV;
    fake->takes_il = 1;
    CHECK_STATUS(dtl_module_compile(cl, 0, &source, &module), DTL_ERROR_NOT_SUPPORTED);
    fake->takes_il = 0;
    CHECK_OK(dtl_stream_destroy(new_stream(0)));
}

static void open_over(const char *folder, const char *name, int has_priorities) {
    char path[4096];
    void *library;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(setenv("DTL_OPENCL_LIBRARY", path, 1) == 0);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    fake = (struct fake_opencl *)dlsym(library, "fake");
    CHECK(fake != NULL);
    fake->platforms = 2, fake->has_priorities = has_priorities;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("opencl", &cl));
}

static void close_it(void) {
    CHECK_OK(dtl_finalize());
    if (fake->live != 0) fprintf(stderr, "%d objects are left\n", fake->live);
    CHECK(fake->live == 0);
}

int main(int argc, char **argv) {
    dtl_mem_stats_t before = DTL_MEM_STATS_INIT, after = DTL_MEM_STATS_INIT;
    int32_t yes = 0;
    char why[1000];
    CHECK(argc == 2);
    if (access(argv[1], R_OK) != 0) SKIP("CL/cl.h was not there to compile tests/opencl/fake.c with (Debian: opencl-c-headers)");
    setenv("POCL_DEVICES", "pthread pthread", 1);
    open_over(argv[1], "fake.so", 1);
    CHECK_OK(dtl_backend_is_available(cl, &yes, why, sizeof why, NULL));
    if (!yes) SKIP(why);
    CHECK_OK(dtl_backend_supports(cl, "shared_memory", &yes));
    CHECK(yes == 1);
    CHECK_OK(dtl_backend_supports(cl, "streams", &yes));
    CHECK(yes == 1);
    CHECK_OK(dtl_backend_supports(cl, "rockets", &yes));
    CHECK(yes == 0);
    CHECK_OK(dtl_mem_stats(cl, &before));
    test_memory();
    test_priorities();
    test_copies();
    test_kernels();
    test_lost();
    test_two_platforms();
    CHECK_OK(dtl_mem_stats(cl, &after));
    CHECK(after.live_count == before.live_count && after.live_bytes == before.live_bytes);
    leave_some();
    close_it();
    open_over(argv[1], "fake.so", 0);
    test_one_priority();
    close_it();
    open_over(argv[1], "old.so", 1);
    test_old();
    test_one_priority();
    close_it();
    open_over(argv[1], "broken.so", 0);
    CHECK_OK(dtl_backend_is_available(cl, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strstr(why, "clFinish") != NULL);
    close_it();
    return 0;
}
