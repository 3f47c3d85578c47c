/* Kernels from source on a real device: each of tests/kernels is compiled by NVRTC for the device and run there, and by the C
 * compiler into this program; both must give the same. No compiler is needed where this runs.
 *
 *     kernels FOLDER NAME    NAME of FOLDER/NAME.c: saxpy, reduce, matmul, histogram
 *     kernels FOLDER log     what a compilation says, and what was compiled before comes from the cache
 *     kernels FOLDER fault   a kernel that writes where it may not: the device is lost, everything can be given back
 *     kernels FOLDER NAME BACKEND    on another backend than "cuda", for example the simulated one */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../c/check.h"
#include "../kernels/histogram.c"
#include "../kernels/matmul.c"
#include "../kernels/reduce.c"
#include "../kernels/saxpy.c"
#include <dlfcn.h>
#include <string.h>

static const char* folder;
static dtl_backend_t cuda;
static dtl_stream_t stream;

static dtl_status_t compile(const char* text, dtl_module_t* module) {
    dtl_source_t source = DTL_SOURCE_INIT;
    source.text = text;
    source.name = "test.cu";
    return dtl_module_compile(cuda, 0, &source, module);
}

static dtl_kernel_t kernel_of(const char* text, const char* name) {
    dtl_module_t module;
    dtl_kernel_t kernel;
    CHECK_OK(compile(text, &module));
    CHECK_OK(dtl_kernel_get(module, name, NULL, &kernel));
    CHECK_OK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    return kernel;
}

static const char* file_text(const char* name) {
    static char text[1 << 16];
    char path[1024];
    FILE* file;
    size_t length;
    snprintf(path, sizeof path, "%s/%s.c", folder, name);
    file = fopen(path, "r");
    CHECK(file != NULL);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return text;
}

/* ---- both sides ------------------------------------------------------------------------------------ */

/* An argument: a value, or a block that both sides have a copy of. */
typedef struct argument {
    const void* value;
    void* block;
    uint64_t size;
} argument_t;

static argument_t value(const void* at, uint64_t size) {
    const argument_t argument = {at, NULL, size};
    return argument;
}

static argument_t block(void* at, uint64_t size) {
    const argument_t argument = {NULL, at, size};
    return argument;
}

/* Runs the kernel on the device with copies of the blocks, then here with the blocks themselves, and compares them. */
static void both(const char* name, const struct dtl_kernel_entry_* here, const uint32_t grid[2], const uint32_t threads[2],
                 const argument_t* arguments) {
    const dtl_kernel_t kernel = kernel_of(file_text(name), name);
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    struct dtl_context_ at = {sizeof at, 0, {grid[0], grid[1], 1}, {threads[0], threads[1], 1}, {0, 0, 0}, {0, 0, 0}, NULL, NULL};
    const void *args[16], *host_args[16];
    uint64_t sizes[16];
    void* device[16];
    unsigned i;
    launch.grid[0] = grid[0], launch.grid[1] = grid[1], launch.block[0] = threads[0], launch.block[1] = threads[1];
    for (i = 0; i < here->count; i++) {
        const argument_t* a = &arguments[i];
        args[i] = a->value != NULL ? a->value : (const void*)&device[i];
        host_args[i] = a->value != NULL ? a->value : (const void*)&a->block;
        sizes[i] = a->value != NULL ? a->size : sizeof device[i];
        if (a->value != NULL) continue;
        CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, a->size, 0, &device[i]));
        CHECK_OK(dtl_mem_copy(device[i], a->block, a->size));
    }
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, here->count));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_kernel_destroy(kernel));
    for (at.block_index[1] = 0; at.block_index[1] < grid[1]; at.block_index[1]++)
        for (at.block_index[0] = 0; at.block_index[0] < grid[0]; at.block_index[0]++) CHECK(here->run(&at, host_args) == 0);
    for (i = 0; i < here->count; i++) {
        const argument_t* a = &arguments[i];
        void* back;
        if (a->value != NULL) continue;
        back = malloc(a->size);
        CHECK(back != NULL);
        CHECK_OK(dtl_mem_copy(back, device[i], a->size));
        CHECK(memcmp(back, a->block, a->size) == 0);
        CHECK_OK(dtl_mem_free(cuda, device[i]));
        free(back);
    }
}

/* The values are small whole numbers, so that no sum is rounded whatever its order. */
static void fill(float* at, uint32_t count, uint32_t step) {
    uint32_t i;
    for (i = 0; i < count; i++) at[i] = (float)(i * step % 7);
}

static void test_saxpy(void) {
    enum { N = 1000003 };
    static float x[N + 8], y[N + 8];
    const float a = 2.0f;
    const uint32_t n = N, grid[2] = {(N + 255) / 256, 1}, threads[2] = {256, 1};
    const argument_t arguments[4] = {value(&a, 4), block(x, sizeof x), block(y, sizeof y), value(&n, 4)};
    fill(x, N + 8, 3), fill(y, N + 8, 5);
    both("saxpy", &dtl_kernel_1_saxpy, grid, threads, arguments);
    CHECK(y[N - 1] == 2.0f * x[N - 1] + (float)((N - 1) * 5u % 7) && y[N] == (float)(N * 5u % 7));
}

static void test_reduce(void) {
    enum { N = 1000003, BLOCKS = (N + 255) / 256 };
    static float x[N], sums[BLOCKS];
    double total = 0;
    const uint32_t n = N, grid[2] = {BLOCKS, 1}, threads[2] = {256, 1};
    const argument_t arguments[3] = {block(x, sizeof x), block(sums, sizeof sums), value(&n, 4)};
    int i;
    fill(x, N, 1);
    both("reduce", &dtl_kernel_1_reduce, grid, threads, arguments);
    for (i = 0; i < BLOCKS; i++) total += sums[i];
    for (i = 0; i < N; i++) total -= i % 7;
    CHECK(total == 0);
}

static void test_matmul(void) {
    enum { N = 256 };
    static float a[N * N], b[N * N], c[N * N];
    float sum = 0;
    const uint32_t n = N, grid[2] = {N / 16, N / 16}, threads[2] = {16, 16};
    const argument_t arguments[4] = {block(a, sizeof a), block(b, sizeof b), block(c, sizeof c), value(&n, 4)};
    int k;
    fill(a, N * N, 1), fill(b, N * N, 2);
    both("matmul", &dtl_kernel_1_matmul, grid, threads, arguments);
    for (k = 0; k < N; k++) sum += a[100 * N + k] * b[k * N + 200];
    CHECK(c[100 * N + 200] == sum);
}

static void test_histogram(void) {
    enum { N = 1 << 20 };
    static unsigned char data[N];
    unsigned bins[64] = {0}, seen = 0;
    uint32_t random = 1, i;
    const uint32_t n = N, grid[2] = {37, 1}, threads[2] = {64, 1};
    const argument_t arguments[3] = {block(data, sizeof data), value(&n, 4), block(bins, sizeof bins)};
    for (i = 0; i < N; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (unsigned char)(random >> 24);
    }
    both("histogram", &dtl_kernel_1_histogram, grid, threads, arguments);
    for (i = 0; i < 64; i++) seen += bins[i];
    CHECK(seen == N);
}

/* ---- the compiler ---------------------------------------------------------------------------------- */

static void test_log(void) {
    static const char bad[] = "#include \"dtl_kernel.h\"\nDTL_KERNEL(k, (int, a)) { first_name = a; second_name = a; }\n";
    static const char warned[] = "#include \"dtl_kernel.h\"\nDTL_KERNEL(k, (DTL_GLOBAL int*, a), (float, b)) { int unused; *a = (int)b; }\n";
    char log[4096];
    dtl_module_t module = {77};
    dtl_kernel_t kernel = {77};
    int i;
    CHECK_STATUS(compile(bad, &module), DTL_ERROR_COMPILE_FAILED);
    CHECK(module.id == 77);
    CHECK_OK(dtl_module_log(DTL_MODULE_NULL, log, sizeof log, NULL));
    CHECK(strstr(log, "test.cu(2)") != NULL && strstr(log, "first_name") != NULL && strstr(log, "second_name") != NULL);
    for (i = 0; i < 2; i++) { /* compiled, then kept */
        CHECK_OK(compile(warned, &module));
        CHECK_OK(dtl_module_log(module, log, sizeof log, NULL));
        CHECK(strstr(log, "unused") != NULL);
        CHECK_STATUS(dtl_kernel_get(module, "missing", NULL, &kernel), DTL_ERROR_NOT_FOUND);
        CHECK_STATUS(dtl_kernel_get(module, "k", "pd", &kernel), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(kernel.id == 77 && strstr(dtl_last_error(), "argument 1") != NULL);
        CHECK_OK(dtl_module_destroy(module));
    }
}

static void test_fault(void) {
    static const char text[] = "#include \"dtl_kernel.h\"\nDTL_KERNEL(bad, (DTL_GLOBAL int*, a)) { *a = 1; }\n";
    const char* name = getenv("DTL_CUDA_LIBRARY");
    void *driver = dlopen(name != NULL ? name : "libcuda.so.1", RTLD_NOW), *nowhere = NULL, *memory;
    const void* args[1] = {&nowhere};
    const uint64_t sizes[1] = {sizeof nowhere};
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    dtl_kernel_t kernel;
    dtl_event_t event;
    if (driver == NULL || dlsym(driver, "fake_cuda_live") != NULL) SKIP("a driver that is none checks no addresses");
    kernel = kernel_of(text, "bad");
    CHECK_OK(dtl_event_create(cuda, 0, &event));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &memory));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 1));
    (void)!dtl_event_record(event, stream); /* may be told already */
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    CHECK(strstr(dtl_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)") != NULL);
    CHECK_STATUS(dtl_mem_fill(memory, 1, 64), DTL_ERROR_DEVICE_LOST);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_mem_free(cuda, memory));
    CHECK_OK(dtl_mem_stats(cuda, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
}

int main(int argc, char** argv) {
    const struct {
        const char* name;
        void (*run)(void);
    } tests[] = {{"saxpy", test_saxpy}, {"reduce", test_reduce}, {"matmul", test_matmul}, {"histogram", test_histogram},
                 {"log", test_log}, {"fault", test_fault}};
    size_t i = 0;
    CHECK(argc == 3 || argc == 4);
    folder = argv[1];
    while (i < sizeof tests / sizeof tests[0] && strcmp(tests[i].name, argv[2]) != 0) i++;
    CHECK(i < sizeof tests / sizeof tests[0]);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get(argc == 4 ? argv[3] : "cuda", &cuda));
    CHECK_OK(dtl_backend_set_device(cuda, 0));
    CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
    tests[i].run();
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_finalize());
    return 0;
}
