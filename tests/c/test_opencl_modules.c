/* Kernels from source on backend opencl, on PoCL's CPU pretended to be two devices: the portable kernels agree with the host,
 * logs, options, signatures, memory of blocks, launches of many threads, binaries, what is alive at the end.
 * Argument: the top of the tree. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "portable_cases.h"
#include <dlfcn.h>
#include <pthread.h>

static dtl_backend_t cl, host;
static dtl_stream_t stream;

static dtl_status_t compile(dtl_source_t source, int32_t device, dtl_module_t *module) {
    return dtl_module_compile(cl, device, &source, module);
}

static dtl_module_t compiled(const char *text) {
    dtl_module_t module;
    CHECK_OK(compile(m_source(text), 0, &module));
    return module;
}

static void refused(dtl_source_t source, dtl_status_t status, const char *words) {
    dtl_module_t module = {77};
    CHECK_STATUS(compile(source, 0, &module), status);
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\"\n", words);
    CHECK(strstr(dtl_last_error(), words) != NULL && module.id == 77);
}

static int *numbers(uint64_t count) {
    void *memory;
    CHECK_OK(dtl_mem_alloc(cl, DTL_MEMORY_MANAGED, count * sizeof(int), 0, &memory));
    memset(memory, 0, count * sizeof(int));
    return (int *)memory;
}

static dtl_status_t launch(dtl_kernel_t kernel, uint32_t grid, uint32_t block, const void *const *args,
                           const uint64_t *sizes, uint64_t count) {
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    shape.grid[0] = grid, shape.block[0] = block;
    return dtl_kernel_launch(stream, kernel, &shape, args, sizes, count);
}

/* ---- what the compiler says ----------------------------------------------------------------- */

static void test_compiling(void) {
    const char *options[2] = {"-DNUMBER=41", "-Werror"};
    static char log[1 << 16];
    dtl_source_t source = m_source(GIVES("NUMBER + 1"));
    dtl_module_t module;
    dtl_kernel_t kernel;
    int *out = numbers(1);
    const void *args[1] = {&out};
    const uint64_t sizes[1] = {sizeof out};
    uint64_t length = 0;
    source.options = options, source.option_count = 1;
    source.language = DTL_LANGUAGE_OPENCL;
    CHECK_OK(compile(source, 0, &module));
    kernel = m_kernel(module, "give", "p");
    CHECK_OK(launch(kernel, 1, 1, args, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*out == 42);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    refused(m_source("#include \"dtl_kernel.h\"\nDTL_KERNEL(k) {}\n"), DTL_ERROR_COMPILE_FAILED, "takes_1_to_16_arguments");
    refused(m_source("int far(int);\nkernel void k(global int *x) { *x = far(1); }\n"), DTL_ERROR_COMPILE_FAILED, " far");
    options[0] = "-DA -DB";
    refused(source, DTL_ERROR_INVALID_ARGUMENT, "option 0 (\"-DA -DB\")");
    options[0] = "-no-such-option";
    refused(source, DTL_ERROR_COMPILE_FAILED, "CL_INVALID_BUILD_OPTIONS (-43)");
    refused(m_source("/* here */\n#include \"dtl_kernel.h\"\nkernel void a(global int *x) { x[0] = first_name; }\n\nint b = second_name;\n"),
            DTL_ERROR_COMPILE_FAILED, "test.c:3");
    CHECK(strstr(dtl_last_error(), "first_name") != NULL);
    CHECK_OK(dtl_module_log(DTL_MODULE_NULL, log, sizeof log, &length));
    CHECK(strlen(log) == length && strstr(log, "first_name") && strstr(log, "test.c:5") && strstr(log, "second_name"));
    source = m_source("#error \"no\"\n");
    source.name = "a \"quoted\\ name\".c";
    refused(source, DTL_ERROR_COMPILE_FAILED, "quoted");
    refused(m_source("#include \"dtl_kernel.h\"\nDTL_KERNEL(k, (int, a)) { DTL_BARRIER; }\n"), DTL_ERROR_COMPILE_FAILED, "DTL_BARRIER");
    source = m_source("x");
    source.language = DTL_LANGUAGE_CUDA;
    refused(source, DTL_ERROR_NOT_SUPPORTED, "DTL_LANGUAGE_OPENCL");
    source.language = DTL_LANGUAGE_SPIRV; /* PoCL 3.1 does not support it; "x" is no module */
    if (compile(source, 0, &module) != DTL_ERROR_NOT_SUPPORTED) refused(source, DTL_ERROR_INVALID_ARGUMENT, "SPIR-V");
    CHECK(strstr(dtl_last_error(), "SPIR-V") != NULL);
    source.language = DTL_LANGUAGE_BINARY;
    refused(source, DTL_ERROR_INVALID_ARGUMENT, "CL_INVALID_BINARY (-42)");
    CHECK_OK(dtl_mem_free(cl, out));
}

/* ---- arguments ------------------------------------------------------------------------------ */

static void no_kernel(dtl_module_t module, const char *name, const char *signature, dtl_status_t status, const char *words) {
    dtl_kernel_t kernel = {77};
    CHECK_STATUS(dtl_kernel_get(module, name, signature, &kernel), status);
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\": %s\n", words, dtl_last_error());
    CHECK(strstr(dtl_last_error(), words) != NULL && kernel.id == 77);
}

/* More memory of the block than there is: the driver would launch it and end the program. */
static void test_much(void) {
    const dtl_module_t module = compiled(
        "#include \"dtl_kernel.h\"\n"
        "DTL_BLOCK_KERNEL(much, (DTL_GLOBAL int*, out)) { DTL_SHARED(int, a, 1 << 26);\n"
        "    DTL_THREADS { a[out[0]] = out[1]; }\n    DTL_THREADS { out[0] = a[out[1]]; }\n}\n");
    dtl_kernel_t kernel = DTL_KERNEL_NULL;
    /* PoCL 5.0 says that each kernel has 0 bytes; the driver of test_opencl_faults counts them. */
    if (dtl_kernel_get(module, "much", NULL, &kernel) != DTL_SUCCESS)
        no_kernel(module, "much", NULL, DTL_ERROR_INVALID_ARGUMENT, "'much' has 268435456 bytes");
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
}

static void test_arguments(void) {
    dtl_module_t module = compiled(
        "typedef struct { double a; int b; } pair;\n"
        "typedef unsigned int word;\n"
        "typedef global int *place;\n"
        "kernel void many(char a, ushort b, pair c, float4 d, place out, word e, constant int *none, ulong f) {\n"
        "    *out = a + b + c.b + (int)c.a + (int)d.w + (int)e + (none == 0) + (int)f;\n"
        "}\n"
        "kernel void turn(global int *out, local int *part) {\n"
        "    const size_t i = get_local_id(0), n = get_local_size(0);\n"
        "    part[i] = (int)i;\n"
        "    barrier(CLK_LOCAL_MEM_FENCE);\n"
        "    out[get_global_id(0)] = part[n - 1 - i];\n"
        "}\n"
        "kernel __attribute__((reqd_work_group_size(8, 1, 1))) void eight(global int *out) { out[0] = 8; }\n");
    const struct { double a; int32_t b; } pair = {1000, 10000};
    const float four[4] = {0, 0, 0, 100000};
    const int8_t a = 1;
    const uint16_t b = 10;
    const uint32_t e = 1000000;
    const uint64_t f = 10000000;
    int *out = numbers(256), *none = NULL, i;
    const void *args[8] = {&a, &b, &pair, four, &out, &e, &none, &f}, *both[2] = {&out, &none};
    uint64_t sizes[8] = {1, 2, 16, 16, 8, 4, 8, 8};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    dtl_kernel_t many = m_kernel(module, "many", "bH[16][16]pIpL"), guessed = m_kernel(module, "many", NULL), turn, eight;
    no_kernel(module, "missing", NULL, DTL_ERROR_NOT_FOUND, "'missing'"), no_kernel(module, "", NULL, DTL_ERROR_NOT_FOUND, "test.c");
    no_kernel(module, "many", "bH[16]", DTL_ERROR_INVALID_ARGUMENT, "has 8");
    no_kernel(module, "many", "bH[16][16]pIpLL", DTL_ERROR_INVALID_ARGUMENT, "has 8");
    no_kernel(module, "many", "bI[16][16]pIpL", DTL_ERROR_INVALID_ARGUMENT, "4 bytes (I) for argument 1");
    no_kernel(module, "many", "bH[16][16]LIpL", DTL_ERROR_INVALID_ARGUMENT, "no pointer for argument 4");
    no_kernel(module, "many", "bH[16][16]pIpp", DTL_ERROR_INVALID_ARGUMENT, "a pointer (p) for argument 7");
    no_kernel(module, "many", "bHx", DTL_ERROR_INVALID_ARGUMENT, "at \"x\"");
    CHECK_OK(launch(many, 1, 1, args, sizes, 8));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*out == 1 + 10 + 1000 + 10000 + 100000 + 1000000 + 1 + 10000000);
    *out = 0;
    CHECK_OK(launch(guessed, 1, 1, args, sizes, 8));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*out == 11111012);
    sizes[2] = 8;
    CHECK_STATUS(launch(many, 1, 1, args, sizes, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "argument 2 of kernel 'many'") != NULL && strstr(dtl_last_error(), "16 bytes ([16])") != NULL);
    sizes[2] = 16, sizes[4] = 4;
    CHECK_STATUS(launch(guessed, 1, 1, args, sizes, 8), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "argument 4 of kernel 'many'") != NULL);
    CHECK_STATUS(launch(guessed, 1, 1, args, sizes, 7), DTL_ERROR_INVALID_ARGUMENT);
    /* Memory of the block. */
    turn = m_kernel(module, "turn", "pp");
    sizes[0] = sizes[1] = 8;
    shape.grid[0] = 4, shape.block[0] = 64;
    CHECK_STATUS(dtl_kernel_launch(stream, turn, &shape, both, sizes, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "shared_bytes") != NULL);
    shape.shared_bytes = 64 * sizeof(int);
    CHECK_OK(dtl_kernel_launch(stream, turn, &shape, both, sizes, 2));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < 256; i++) CHECK(out[i] == 63 - i % 64);
    shape.shared_bytes = 1u << 30; /* more than the device has: PoCL would end the program */
    CHECK_STATUS(dtl_kernel_launch(stream, turn, &shape, both, sizes, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "shared_bytes is 1073741824") != NULL && strstr(dtl_last_error(), "'turn'") != NULL);
    eight = m_kernel(module, "eight", "p");
    CHECK_STATUS(dtl_kernel_launch(stream, eight, &shape, both, sizes, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "__local") != NULL);
    CHECK_STATUS(launch(eight, 1, 4, both, sizes, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "[4, 1, 1]") != NULL && strstr(dtl_last_error(), "CL_INVALID_WORK_GROUP_SIZE (-54)") != NULL);
    CHECK_OK(launch(eight, 1, 8, both, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*out == 8);
    CHECK_OK(dtl_kernel_destroy(many));
    CHECK_OK(dtl_kernel_destroy(guessed));
    CHECK_OK(dtl_kernel_destroy(turn));
    CHECK_OK(dtl_kernel_destroy(eight));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_mem_free(cl, out));
}

/* ---- threads, devices, order ---------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 300 };

static dtl_kernel_t shared;

/* One kernel of all threads, other arguments in each launch; odd threads have streams of their own. */
static void *user_of_kernel(void *argument) {
    const int me = *(const int *)argument;
    int *out = numbers(ROUNDS), round;
    dtl_stream_t own = stream;
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    if (me % 2 == 1) CHECK_OK(dtl_stream_create(cl, 0, 0, &own));
    for (round = 0; round < ROUNDS; round++) {
        int *to = out + round;
        const int value = me * ROUNDS + round;
        const void *args[2] = {&to, &value};
        const uint64_t sizes[2] = {8, 4};
        CHECK_OK(dtl_kernel_launch(own, shared, &shape, args, sizes, 2));
    }
    CHECK_OK(dtl_stream_wait(own, DTL_TIMEOUT_INFINITE));
    for (round = 0; round < ROUNDS; round++) CHECK(out[round] == me * ROUNDS + round);
    if (me % 2 == 1) CHECK_OK(dtl_stream_destroy(own));
    CHECK_OK(dtl_mem_free(cl, out));
    return NULL;
}

static dtl_stream_t going;
static int launched;

/* Launches until the stream is gone. */
static void *use_going(void *memory) {
    const dtl_launch_t one = DTL_LAUNCH_INIT;
    const int value = 77;
    const void *args[2] = {&memory, &value};
    const uint64_t sizes[2] = {8, 4};
    dtl_status_t status = DTL_SUCCESS;
    while (status == DTL_SUCCESS) {
        status = dtl_kernel_launch(going, shared, &one, args, sizes, 2);
        if (status == DTL_SUCCESS) __atomic_store_n(&launched, 1, __ATOMIC_RELEASE);
    }
    CHECK(status == DTL_ERROR_INVALID_HANDLE);
    return NULL;
}

/* A stream is destroyed under the hands of a thread that launches on it: what it took has run, all else is refused. */
static void test_going(void) {
    pthread_t thread;
    int *out = numbers(1), round;
    for (round = 0; round < 5; round++) {
        *out = 0, launched = 0;
        CHECK_OK(dtl_stream_create(cl, 0, 0, &going));
        CHECK(pthread_create(&thread, NULL, use_going, out) == 0);
        while (!__atomic_load_n(&launched, __ATOMIC_ACQUIRE)) usleep(100);
        usleep(1000);
        CHECK_OK(dtl_stream_destroy(going));
        pthread_join(thread, NULL);
        CHECK_OK(dtl_device_wait(cl, 0, DTL_TIMEOUT_INFINITE));
        CHECK(*out == 77);
    }
    CHECK_OK(dtl_mem_free(cl, out));
}

static void test_threads(void) {
    dtl_module_t module = compiled("kernel void put(global int *to, int value) { *to = value; }\n");
    pthread_t threads[THREADS];
    int number[THREADS], i;
    shared = m_kernel(module, "put", "pi");
    for (i = 0; i < THREADS; i++) {
        number[i] = i;
        CHECK(pthread_create(&threads[i], NULL, user_of_kernel, &number[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    test_going();
    CHECK_OK(dtl_kernel_destroy(shared));
    CHECK_OK(dtl_module_destroy(module));
}

static dtl_status_t wait_a_little(void *user) {
    usleep(20000);
    *(int *)user = 5;
    return DTL_SUCCESS;
}

static void test_order(void) {
    dtl_source_t source = m_source("kernel void twice(global int *x) { *x *= 2; }\n");
    dtl_module_t module;
    dtl_kernel_t twice, second;
    dtl_stream_t other;
    dtl_event_t before, after;
    const dtl_launch_t one = DTL_LAUNCH_INIT;
    int *x = numbers(1);
    const void *args[1] = {&x};
    const uint64_t sizes[1] = {8};
    uint64_t ns = 0;
    CHECK_OK(compile(source, 0, &module));
    twice = m_kernel(module, "twice", "p");
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(compile(source, 1, &module));
    second = m_kernel(module, "twice", "p");
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_stream_create(cl, 1, 0, &other));
    CHECK_OK(dtl_event_create(cl, 0, &before));
    CHECK_OK(dtl_event_create(cl, 0, &after));
    CHECK_STATUS(dtl_kernel_launch(other, twice, &one, args, sizes, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "compiled for device 0") != NULL);
    CHECK_OK(dtl_event_record(before, stream));
    CHECK_OK(dtl_stream_host_callback(stream, wait_a_little, x));
    CHECK_OK(launch(twice, 1, 1, args, sizes, 1));
    CHECK_OK(dtl_event_record(after, stream));
    CHECK_OK(dtl_stream_wait_event(other, after));
    CHECK_OK(dtl_kernel_launch(other, second, &one, args, sizes, 1));
    CHECK_OK(dtl_kernel_destroy(second));
    CHECK_OK(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 20);
    CHECK_OK(dtl_event_elapsed_ns(before, after, &ns));
    CHECK(ns >= 15000000);
    CHECK_OK(dtl_event_destroy(before));
    CHECK_OK(dtl_event_destroy(after));
    CHECK_OK(dtl_stream_destroy(other));
    CHECK_OK(dtl_kernel_destroy(twice));
    CHECK_OK(dtl_mem_free(cl, x));
}

/* ---- beside OpenCL itself ------------------------------------------------------------------- */

/* The program's own queue, which keeps no times, in the context of the library's streams. */
static void test_own_queue(void *loader, void *context, void *device) {
    void *(*create)(void *, void *, uint64_t, int32_t *) = NULL, *queue;
    int32_t (*give_up)(void *) = NULL;
    dtl_stream_t wrapped;
    dtl_event_t events[2];
    uint64_t ns = 0;
    int i;
    *(void **)&create = dlsym(loader, "clCreateCommandQueue");
    *(void **)&give_up = dlsym(loader, "clReleaseCommandQueue");
    queue = create(context, device, 0, NULL);
    CHECK(queue != NULL);
    CHECK_OK(dtl_stream_wrap(cl, queue, &wrapped));
    for (i = 0; i < 2; i++) {
        CHECK_OK(dtl_event_create(cl, 0, &events[i]));
        CHECK_OK(dtl_event_record(events[i], wrapped));
        CHECK_OK(dtl_event_wait(events[i], DTL_TIMEOUT_INFINITE));
    }
    CHECK_STATUS(dtl_event_elapsed_ns(events[0], events[1], &ns), DTL_ERROR_OPENCL);
    CHECK(strstr(dtl_last_error(), "CL_PROFILING_INFO_NOT_AVAILABLE (-7); its command queue was made without") != NULL);
    for (i = 0; i < 2; i++) CHECK_OK(dtl_event_destroy(events[i]));
    CHECK_OK(dtl_stream_destroy(wrapped));
    CHECK(give_up(queue) == 0);
}

/* A program that OpenCL compiled, as a binary. */
static void test_binary(void) {
    static const char *text = "kernel void nine(global int *x) { *x = 9; }\n";
    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW), *queue = NULL, *context = NULL, *device = NULL, *program, *bytes;
    int32_t (*about)(void *, uint32_t, size_t, void *, size_t *) = NULL;
    void *(*create)(void *, uint32_t, const char **, const size_t *, int32_t *) = NULL;
    int32_t (*build)(void *, uint32_t, void **, const char *, void *, void *) = NULL, (*give_up)(void *) = NULL;
    size_t size = 0;
    dtl_source_t source = m_source(NULL);
    dtl_module_t module;
    dtl_kernel_t nine;
    int *x = numbers(1);
    const void *args[1] = {&x};
    const uint64_t sizes[1] = {8};
    CHECK(loader != NULL);
    *(void **)&about = dlsym(loader, "clGetCommandQueueInfo");
    *(void **)&create = dlsym(loader, "clCreateProgramWithSource");
    *(void **)&build = dlsym(loader, "clBuildProgram");
    *(void **)&give_up = dlsym(loader, "clReleaseProgram");
    CHECK_OK(dtl_stream_native(stream, &queue));
    CHECK(about(queue, 0x1090, sizeof context, &context, NULL) == 0 && about(queue, 0x1091, sizeof device, &device, NULL) == 0);
    test_own_queue(loader, context, device);
    program = create(context, 1, &text, NULL, NULL);
    CHECK(program != NULL && build(program, 1, &device, "-cl-kernel-arg-info", NULL, NULL) == 0);
    *(void **)&about = dlsym(loader, "clGetProgramInfo");
    {
        size_t lengths[2] = {0, 0};
        unsigned char *all[2] = {NULL, NULL};
        /* For each device of the context; it was built for the first. */
        CHECK(about(program, 0x1165, sizeof lengths, lengths, NULL) == 0 && lengths[0] > 0);
        size = lengths[0];
        all[0] = (unsigned char *)(bytes = malloc(lengths[0]));
        if (lengths[1] > 0) all[1] = (unsigned char *)malloc(lengths[1]);
        CHECK(about(program, 0x1166, sizeof all, all, NULL) == 0);
        free(all[1]);
    }
    CHECK(give_up(program) == 0);
    source.text = bytes, source.size_bytes = size;
    source.language = DTL_LANGUAGE_BINARY;
    CHECK_OK(compile(source, 0, &module));
    nine = m_kernel(module, "nine", "p");
    CHECK_OK(launch(nine, 1, 1, args, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*x == 9);
    CHECK_OK(dtl_kernel_destroy(nine));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_mem_free(cl, x));
    free(bytes);
}

/* Files that come with a source, and an environment's folder of headers. */
static void test_files(void) {
    char folder[] = "/tmp/dtl-include-XXXXXX", path[64];
    const char *headers[1] = {folder}, *const names[1] = {"numbers"};
    const dtl_source_file_t files[2] = {{"a/number.h", "#include \"more.h\"\n#define NUMBER (MORE + TOOL)\n", 0, 0},
                                        {"a/more.h", "#include <dtl_kernel.h>\n#define MORE 40\n", 0, 0}};
    dtl_source_t source = m_source("#include \"a/number.h\"\n#include <tool.h>\n" GIVES("NUMBER"));
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    int *out = numbers(1);
    const void *args[1] = {&out};
    const uint64_t sizes[1] = {sizeof out};
    FILE *file;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tool.h", folder);
    file = fopen(path, "w");
    CHECK(file != NULL && fputs("#define TOOL 2\n", file) >= 0 && fclose(file) == 0);
    desc.name = names[0], desc.headers = headers, desc.headers_count = 1;
    CHECK_OK(dtl_environment_register(&desc));
    source.files = files, source.file_count = 2;
    refused(source, DTL_ERROR_COMPILE_FAILED, "tool.h");
    source.environments = names, source.environment_count = 1;
    CHECK_OK(compile(source, 0, &module));
    CHECK_STATUS(dtl_environment_unregister("numbers"), DTL_ERROR_BUSY);
    kernel = m_kernel(module, "give", "p");
    CHECK_OK(launch(kernel, 1, 1, args, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(*out == 42);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_environment_unregister("numbers"));
    source.language = DTL_LANGUAGE_BINARY, source.environment_count = 0;
    refused(source, DTL_ERROR_INVALID_ARGUMENT, "a binary is compiled already");
    CHECK_OK(dtl_mem_free(cl, out));
    m_remove(folder);
}

int main(int argc, char **argv) {
    int32_t yes = 0, round;
    char why[1000];
    CHECK(argc == 2);
    setenv("POCL_DEVICES", "pthread pthread", 1);
    for (round = 0; round < 2; round++) {
        dtl_kernel_t left;
        int *x;
        const void *args[1] = {&x};
        const uint64_t sizes[1] = {8};
        CHECK_OK(dtl_init(NULL));
        CHECK_OK(dtl_backend_get("opencl", &cl));
        CHECK_OK(dtl_backend_get("host", &host));
        CHECK_OK(dtl_backend_is_available(cl, &yes, why, sizeof why, NULL));
        if (!yes) SKIP(why);
        CHECK_OK(dtl_backend_supports(cl, "modules", &yes));
        CHECK(yes == 1);
        CHECK_OK(dtl_stream_create(cl, 0, 0, &stream));
        if (round == 0) {
            p_test_files(cl, argv[1]);
            p_test_places(cl);
            test_compiling();
            test_much();
            test_arguments();
            test_threads();
            test_order();
            test_binary();
            test_files();
        }
        /* The end takes along what is left: a stream that is not done, a kernel, its module, memory. */
        left = m_kernel(compiled("kernel void put(global int *x) { *x = 1; }\n"), "put", NULL);
        x = numbers(1);
        CHECK_OK(dtl_stream_host_callback(stream, wait_a_little, x));
        CHECK_OK(launch(left, 1, 1, args, sizes, 1));
        CHECK_OK(dtl_finalize());
    }
    return 0;
}
