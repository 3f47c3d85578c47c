/* What the library costs on a real device, next to the CUDA driver's own calls in the same run: launches, events,
 * allocations, copies from 1 KiB to 1 GiB, and how much of the device's bandwidth saxpy reaches. Prints a Markdown table.
 *
 *     bench FOLDER [most BYTES] [seconds S]
 *
 * FOLDER has saxpy.c (tests/kernels). Batches of both sides take turns; a value is the 10th percentile of many short ones.
 * The driver's context is current in its own batches alone, as a program that uses only the library has none. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../benches/measure.h"
#include <inttypes.h>
#include <string.h>

/* The driver's functions, by cuda.h. */
#define DRIVER(f)                                                                                                     \
    f(cuInit, (unsigned)) f(cuDriverGetVersion, (int*)) f(cuDeviceGet, (int*, int))                                   \
    f(cuDevicePrimaryCtxRetain, (void**, int)) f(cuDevicePrimaryCtxRelease_v2, (int))                                 \
    f(cuCtxPushCurrent_v2, (void*)) f(cuCtxPopCurrent_v2, (void**))                                                   \
    f(cuStreamCreate, (void**, unsigned)) f(cuStreamSynchronize, (void*)) f(cuStreamDestroy_v2, (void*))              \
    f(cuEventCreate, (void**, unsigned)) f(cuEventRecord, (void*, void*)) f(cuEventSynchronize, (void*))              \
    f(cuEventDestroy_v2, (void*)) f(cuMemcpyAsync, (address_t, address_t, size_t, void*))                             \
    f(cuMemAlloc_v2, (address_t*, size_t)) f(cuMemFree_v2, (address_t))                                               \
    f(cuModuleLoadDataEx, (void**, const void*, unsigned, int*, void**)) f(cuModuleUnload, (void*))                   \
    f(cuModuleGetFunction, (void**, void*, const char*))                                                              \
    f(cuLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**))
/* Those of devices with pools. */
#define POOLS(f)                                                                                                      \
    f(cuMemPoolCreate, (void**, const unsigned*)) f(cuMemPoolSetAttribute, (void*, int, void*))                       \
    f(cuMemPoolDestroy, (void*)) f(cuMemAllocFromPoolAsync, (address_t*, size_t, void*, void*))                       \
    f(cuMemFreeAsync, (address_t, void*))
#include "driver.h"

static struct {
    dtl_backend_t cuda;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_kernel_t nothing, saxpy;
} dtl;

static struct {
    int device;
    void *context, *stream, *event, *module, *nothing, *pool;
} raw;

static uint64_t most = (uint64_t)1 << 30, size_now;
static double seconds = 0.5;
/* Two blocks of the device, one of the host's; `most` bytes each. */
static void *one, *other, *host;

static address_t number(const void* at) { return (address_t)(uintptr_t)at; }

/* ---- the two sides, n times ------------------------------------------------------------------------ */

static void launch_once(dtl_kernel_t kernel, uint32_t blocks, uint32_t threads, const void* const* args,
                        const uint64_t* sizes, uint64_t count) {
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    launch.grid[0] = blocks, launch.block[0] = threads;
    OK(dtl_kernel_launch(dtl.stream, kernel, &launch, args, sizes, count));
}

static void dtl_launches(int n) {
    while (n-- > 0) launch_once(dtl.nothing, 1, 1, NULL, NULL, 0);
    OK(dtl_stream_wait(dtl.stream, DTL_TIMEOUT_INFINITE));
}
static void raw_launches(int n) {
    while (n-- > 0) RAW(cuLaunchKernel(raw.nothing, 1, 1, 1, 1, 1, 1, 0, raw.stream, NULL, NULL));
    RAW(cuStreamSynchronize(raw.stream));
}

static void dtl_launch_wait(int n) {
    while (n-- > 0) dtl_launches(1);
}
static void raw_launch_wait(int n) {
    while (n-- > 0) raw_launches(1);
}

static void dtl_record(int n) {
    while (n-- > 0) {
        OK(dtl_event_record(dtl.event, dtl.stream));
        OK(dtl_event_wait(dtl.event, DTL_TIMEOUT_INFINITE));
    }
}
static void raw_record(int n) {
    while (n-- > 0) {
        RAW(cuEventRecord(raw.event, raw.stream));
        RAW(cuEventSynchronize(raw.event));
    }
}

static void dtl_alloc(int n) {
    void* memory;
    while (n-- > 0) {
        OK(dtl_mem_alloc(dtl.cuda, DTL_MEMORY_DEVICE, size_now, 0, &memory));
        OK(dtl_mem_free(dtl.cuda, memory));
    }
}
/* Memory that any stream may use at once, as the library's. */
static void raw_pool(int n) {
    address_t memory;
    while (n-- > 0) {
        RAW(cuMemAllocFromPoolAsync(&memory, size_now, raw.pool, raw.stream));
        RAW(cuStreamSynchronize(raw.stream));
        RAW(cuMemFreeAsync(memory, raw.stream));
    }
}
static void raw_alloc(int n) {
    address_t memory;
    while (n-- > 0) {
        RAW(cuMemAlloc_v2(&memory, size_now));
        RAW(cuMemFree_v2(memory));
    }
}

static const void* from;
static void* to;

static void dtl_copy(int n) {
    while (n-- > 0) {
        OK(dtl_mem_copy_async(dtl.stream, to, from, size_now));
        OK(dtl_stream_wait(dtl.stream, DTL_TIMEOUT_INFINITE));
    }
}
static void raw_copy(int n) {
    while (n-- > 0) {
        RAW(cuMemcpyAsync(number(to), number(from), size_now, raw.stream));
        RAW(cuStreamSynchronize(raw.stream));
    }
}

/* x and y are `size_now` bytes each. */
static void dtl_saxpy(int n) {
    const float a = 0.5f;
    const uint32_t count = (uint32_t)(size_now / sizeof a);
    const void* const args[4] = {&a, &one, &other, &count};
    const uint64_t sizes[4] = {sizeof a, sizeof one, sizeof other, sizeof count};
    while (n-- > 0) {
        launch_once(dtl.saxpy, (count + 255) / 256, 256, args, sizes, 4);
        OK(dtl_stream_wait(dtl.stream, DTL_TIMEOUT_INFINITE));
    }
}

/* ---- times -------------------------------------------------------------------------------------------- */

enum { MOST_BATCHES = 4000, LEAST_BATCHES = 5 };

typedef struct times {
    double dtl, raw; /* nanoseconds for one */
} times_t;

static double batch(void (*side)(int), int calls, int is_raw) {
    void* left;
    double start, time;
    if (is_raw) RAW(cuCtxPushCurrent_v2(raw.context));
    start = now_ns();
    side(calls);
    time = (now_ns() - start) / calls;
    if (is_raw) RAW(cuCtxPopCurrent_v2(&left));
    return time;
}

static times_t measure(void (*with_dtl)(int), void (*with_raw)(int)) {
    static double mine[MOST_BATCHES], theirs[MOST_BATCHES];
    const double end = now_ns() + seconds * 1e9;
    double estimate;
    times_t times;
    int count = 0, calls;
    batch(with_dtl, 1, 0);
    batch(with_raw, 1, 1);
    estimate = batch(with_raw, 2, 1);
    calls = estimate > 100e3 ? 1 : (int)(100e3 / (estimate + 1)) + 1;
    while (count < MOST_BATCHES && (count < LEAST_BATCHES || now_ns() < end)) {
        if (count % 2 == 0) mine[count] = batch(with_dtl, calls, 0);
        theirs[count] = batch(with_raw, calls, 1);
        if (count % 2 == 1) mine[count] = batch(with_dtl, calls, 0);
        count++;
    }
    qsort(mine, (size_t)count, sizeof *mine, ascending);
    qsort(theirs, (size_t)count, sizeof *theirs, ascending);
    times.dtl = mine[count / 10], times.raw = theirs[count / 10];
    return times;
}

static void time_row(const char* name, uint64_t bytes, void (*with_dtl)(int), void (*with_raw)(int)) {
    times_t t;
    size_now = bytes;
    t = measure(with_dtl, with_raw);
    printf("| %s | %s | us | %.2f | %.2f | %.2f | |\n", name, bytes > 0 ? size_text(bytes) : "", t.dtl / 1e3, t.raw / 1e3,
           t.dtl / t.raw);
    fflush(stdout);
}

/* All sizes of one way, then their shares of the best. Returns the best. */
static double copy_rows(const char* name, void* target, const void* source, double sides) {
    times_t rows[32];
    uint64_t bytes;
    double peak = 0;
    int count = 0, i;
    to = target, from = source;
    for (bytes = 1024; bytes <= most; bytes *= 4) {
        times_t* t = &rows[count++];
        size_now = bytes;
        *t = measure(dtl_copy, raw_copy);
        t->dtl = sides * (double)bytes / t->dtl, t->raw = sides * (double)bytes / t->raw;
        if (t->raw > peak) peak = t->raw;
        if (t->dtl > peak) peak = t->dtl;
    }
    for (i = 0, bytes = 1024; i < count; i++, bytes *= 4)
        printf("| %s | %s | GB/s | %.2f | %.2f | %.2f | %.0f %% |\n", name, size_text(bytes), rows[i].dtl, rows[i].raw,
               rows[i].dtl / rows[i].raw, 100 * rows[i].dtl / peak);
    fflush(stdout);
    return peak;
}

static void saxpy_row(double peak) {
    times_t t;
    size_now = most < ((uint64_t)256 << 20) ? most : (uint64_t)256 << 20;
    to = other, from = one;
    t = measure(dtl_saxpy, raw_copy); /* reads x and y, writes y; the copy reads and writes */
    t.dtl = 3.0 * (double)size_now / t.dtl, t.raw = 2.0 * (double)size_now / t.raw;
    printf("| saxpy, next to a copy on the device | %s | GB/s | %.2f | %.2f | %.2f | %.0f %% |\n", size_text(size_now), t.dtl,
           t.raw, t.dtl / t.raw, 100 * t.dtl / (t.dtl > peak ? t.dtl : peak));
}

/* ---- what is needed ------------------------------------------------------------------------------------ */

#define NOTHING ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n"

static void begin_raw(void) {
    unsigned properties[64] = {1, 0, 1, 0}; /* CUmemPoolProps: pinned, of device 0 */
    uint64_t keep = UINT64_MAX;
    void* left;
    RAW(cuInit(0));
    RAW(cuDeviceGet(&raw.device, 0));
    RAW(cuDevicePrimaryCtxRetain(&raw.context, raw.device));
    RAW(cuCtxPushCurrent_v2(raw.context));
    RAW(cuStreamCreate(&raw.stream, 1));
    RAW(cuEventCreate(&raw.event, 0));
    RAW(cuModuleLoadDataEx(&raw.module, NOTHING, 0, NULL, NULL));
    RAW(cuModuleGetFunction(&raw.nothing, raw.module, "nothing"));
    properties[3] = (unsigned)raw.device;
    if (driver.cuMemPoolCreate != NULL && driver.cuMemPoolCreate(&raw.pool, properties) == 0)
        RAW(cuMemPoolSetAttribute(raw.pool, 4, &keep)); /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, as the library's */
    RAW(cuCtxPopCurrent_v2(&left));
}

static void end_raw(void) {
    void* left;
    RAW(cuCtxPushCurrent_v2(raw.context));
    if (raw.pool != NULL) RAW(cuMemPoolDestroy(raw.pool));
    RAW(cuModuleUnload(raw.module));
    RAW(cuEventDestroy_v2(raw.event));
    RAW(cuStreamDestroy_v2(raw.stream));
    RAW(cuCtxPopCurrent_v2(&left));
    RAW(cuDevicePrimaryCtxRelease_v2(raw.device));
}

/* A kernel of a text; the null kernel, with the reason in dtl_last_error, if it does not compile. */
static dtl_kernel_t kernel_of(const char* text, dtl_enum_word_t language, const char* name, const char* signature) {
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module = DTL_MODULE_NULL;
    dtl_kernel_t kernel = DTL_KERNEL_NULL;
    source.text = text, source.language = language, source.name = name;
    if (dtl_module_compile(dtl.cuda, 0, &source, &module) != DTL_SUCCESS) return kernel;
    OK(dtl_kernel_get(module, name, signature, &kernel));
    OK(dtl_module_destroy(module));
    return kernel;
}

/* Three blocks, smaller where there is no room. */
static void take_memory(void) {
    for (;; most /= 4) {
        one = other = host = NULL;
        if (dtl_mem_alloc(dtl.cuda, DTL_MEMORY_DEVICE, most, 0, &one) == DTL_SUCCESS &&
            dtl_mem_alloc(dtl.cuda, DTL_MEMORY_DEVICE, most, 0, &other) == DTL_SUCCESS &&
            dtl_mem_alloc(dtl.cuda, DTL_MEMORY_PINNED, most, 0, &host) == DTL_SUCCESS)
            return;
        fprintf(stderr, "skipped: copies of %s: %s\n", size_text(most), dtl_last_error());
        if (most < 1 << 20) exit(1);
        OK(dtl_mem_free(dtl.cuda, one));
        OK(dtl_mem_free(dtl.cuda, other));
    }
}

static void begin_dtl(const char* folder) {
    static char text[1 << 16];
    char path[1024];
    FILE* file;
    OK(dtl_init(NULL));
    OK(dtl_backend_get("cuda", &dtl.cuda));
    OK(dtl_backend_set_device(dtl.cuda, 0));
    OK(dtl_stream_create(dtl.cuda, 0, 0, &dtl.stream));
    OK(dtl_event_create(dtl.cuda, 0, &dtl.event));
    dtl.nothing = kernel_of(NOTHING, DTL_LANGUAGE_PTX, "nothing", "");
    if (dtl.nothing.id == DTL_KERNEL_NULL.id) {
        fprintf(stderr, "%s\n", dtl_last_error());
        exit(1);
    }
    snprintf(path, sizeof path, "%s/saxpy.c", folder);
    file = fopen(path, "r");
    if (file == NULL || fread(text, 1, sizeof text - 1, file) == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    dtl.saxpy = kernel_of(text, 0, "saxpy", "fppI");
    if (dtl.saxpy.id == DTL_KERNEL_NULL.id) fprintf(stderr, "skipped: saxpy: %s\n", dtl_last_error());
}

static void end_dtl(void) {
    OK(dtl_mem_free(dtl.cuda, one));
    OK(dtl_mem_free(dtl.cuda, other));
    OK(dtl_mem_free(dtl.cuda, host));
    OK(dtl_kernel_destroy(dtl.nothing));
    OK(dtl_kernel_destroy(dtl.saxpy));
    OK(dtl_event_destroy(dtl.event));
    OK(dtl_stream_destroy(dtl.stream));
    OK(dtl_finalize());
}

static void header(void) {
    dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    int version = 0;
    OK(dtl_device_info(dtl.cuda, 0, &info));
    RAW(cuDriverGetVersion(&version));
    printf("%s, %.1f GiB, %d multiprocessors; the driver's CUDA %d.%d\n\n", info.name,
           (double)info.total_bytes / (double)((uint64_t)1 << 30), (int)info.compute_units, version / 1000,
           version % 1000 / 10);
    printf("| test | size | unit | dtl p10 | driver p10 | dtl / driver | share of the peak |\n|---|---|---|---|---|---|---|\n");
}

int main(int argc, char** argv) {
    double peak;
    int i;
    for (i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "most") == 0) most = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "seconds") == 0) seconds = strtod(argv[i + 1], NULL);
        else break;
    }
    if (argc < 2 || i != argc || most < 1024) {
        fprintf(stderr, "usage: bench FOLDER-OF-KERNELS [most BYTES] [seconds S]\n");
        return 2;
    }
    if (!load_driver()) return 1;
    begin_dtl(argv[1]);
    begin_raw();
    header();
    time_row("launch of nothing, many in a row", 0, dtl_launches, raw_launches);
    time_row("launch of nothing, and waiting for it", 0, dtl_launch_wait, raw_launch_wait);
    time_row("event: record and sync", 0, dtl_record, raw_record);
    if (raw.pool != NULL) {
        time_row("alloc and free, next to the same calls of a pool", 4096, dtl_alloc, raw_pool);
        time_row("alloc and free, next to the same calls of a pool", 1 << 20, dtl_alloc, raw_pool);
    }
    time_row("alloc and free, next to cuMemAlloc and cuMemFree", 1 << 20, dtl_alloc, raw_alloc);
    take_memory();
    OK(dtl_mem_fill(one, 0, most));
    memset(host, 0, most);
    copy_rows("host to device", one, host, 1);
    copy_rows("device to host", host, one, 1);
    peak = copy_rows("device to device (reads and writes count)", other, one, 2);
    if (dtl.saxpy.id != DTL_KERNEL_NULL.id) saxpy_row(peak);
    end_raw();
    end_dtl();
    return 0;
}
