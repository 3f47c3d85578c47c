/* Kernels from source on the host: results of the portable kernels, logs, names, signatures, refusals, who keeps what.
 * The folder of compiled kernels and the compilers are in test_module_cache.c. C11, and valid C++17.
 * Argument: the top of the tree. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "module_cases.h"
#include <dtl_kernel.h>
#include <stddef.h>

static dtl_backend_t host;
static dtl_stream_t stream;

#define SAME(a, b)                                                                                \
    CHECK(offsetof(struct dtl_context_, a) == offsetof(dtl_kernel_context_t, b) &&                \
          sizeof(((struct dtl_context_ *)NULL)->a) == sizeof(((dtl_kernel_context_t *)NULL)->b))

static void test_layout(void) {
    SAME(struct_size, struct_size);
    SAME(shared_bytes, shared_bytes);
    SAME(grid, grid);
    SAME(block, block);
    SAME(block_index, block_index);
    SAME(thread_index, thread_index);
    SAME(shared, shared);
    SAME(user, user);
    CHECK(DTL_OUT_OF_MEMORY_ == DTL_ERROR_OUT_OF_MEMORY);
}

/* A kernel of a file of tests/kernels. */
static dtl_kernel_t kernel_of(const char *top, const char *name, const char *signature) {
    static char text[1 << 16];
    char path[512];
    size_t length;
    FILE *file;
    dtl_module_t module;
    dtl_kernel_t kernel;
    snprintf(path, sizeof path, "%s/tests/kernels/%s.c", top, name);
    file = fopen(path, "r");
    CHECK(file != NULL);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    module = m_compile(text);
    kernel = m_kernel(module, name, signature);
    CHECK_OK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    return kernel;
}

static void run(dtl_kernel_t kernel, uint32_t gx, uint32_t gy, uint32_t bx, uint32_t by, const void *const *args,
                const uint64_t *sizes, uint64_t count) {
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    launch.grid[0] = gx, launch.grid[1] = gy;
    launch.block[0] = bx, launch.block[1] = by;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, count));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_kernel_destroy(kernel));
}

static void test_saxpy(const char *top) {
    enum { N = 100003 };
    static float x[N + 8], y[N + 8];
    const float *from = x;
    float *to = y, a = 2.0f;
    const uint32_t n = N;
    const void *args[4] = {&a, &from, &to, &n};
    const uint64_t sizes[4] = {4, 8, 8, 4};
    uint32_t i;
    for (i = 0; i < N + 8; i++) x[i] = (float)i, y[i] = 1.0f;
    run(kernel_of(top, "saxpy", "fppI"), (N + 255) / 256, 1, 256, 1, args, sizes, 4);
    for (i = 0; i < N; i++) CHECK(y[i] == 2.0f * (float)i + 1.0f);
    for (; i < N + 8; i++) CHECK(y[i] == 1.0f);
}

static void test_reduce(const char *top) {
    enum { N = 10000, BLOCKS = (N + 255) / 256 };
    static float x[N], sums[BLOCKS];
    const float *from = x;
    float *to = sums, all = 0;
    const uint32_t n = N;
    const void *args[3] = {&from, &to, &n};
    const uint64_t sizes[3] = {8, 8, 4};
    int i;
    for (i = 0; i < N; i++) x[i] = (float)(i % 7);
    run(kernel_of(top, "reduce", NULL), BLOCKS, 1, 256, 1, args, sizes, 3);
    for (i = 0; i < BLOCKS; i++) all += sums[i];
    for (i = 0; i < N; i++) all -= (float)(i % 7);
    CHECK(all == 0);
}

static void test_matmul(const char *top) {
    enum { N = 64 };
    static float a[N * N], b[N * N], c[N * N];
    const float *left = a, *right = b;
    float *to = c;
    const uint32_t n = N;
    const void *args[4] = {&left, &right, &to, &n};
    const uint64_t sizes[4] = {8, 8, 8, 4};
    int i, j, k;
    for (i = 0; i < N * N; i++) a[i] = (float)(i % 5), b[i] = (float)(i % 3);
    run(kernel_of(top, "matmul", "pppI"), N / 16, N / 16, 16, 16, args, sizes, 4);
    for (i = 0; i < N; i++) {
        for (j = 0; j < N; j++) {
            float sum = 0;
            for (k = 0; k < N; k++) sum += a[i * N + k] * b[k * N + j];
            CHECK(c[i * N + j] == sum);
        }
    }
}

static void test_histogram(const char *top) {
    enum { N = 1 << 20 };
    static unsigned char data[N];
    uint32_t bins[64] = {0}, expected[64] = {0}, *to = bins, random = 1;
    const unsigned char *from = data;
    const uint32_t n = N;
    const void *args[3] = {&from, &n, &to};
    const uint64_t sizes[3] = {8, 4, 8};
    int i;
    for (i = 0; i < N; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (unsigned char)(random >> 24);
        expected[data[i] % 64]++;
    }
    run(kernel_of(top, "histogram", "pIp"), 37, 1, 64, 1, args, sizes, 3);
    CHECK(memcmp(bins, expected, sizeof bins) == 0);
}

/* Every thread of a launch of three dimensions, and what it is told. */
static void test_places(void) {
    enum { THREADS = 3 * 2 * 4 * 5 * 3 * 2 };
    dtl_module_t module = m_compile(
        "#include \"dtl_kernel.h\"\n"
        /* any name will do for an argument, the kernel's own too */
        "DTL_KERNEL(place, (DTL_GLOBAL unsigned long*, place), (unsigned long, at)) {\n"
        "    const DTL_SIZE x = DTL_GLOBAL_ID(0), y = DTL_GLOBAL_ID(1), z = DTL_GLOBAL_ID(2);\n"
        "    const DTL_SIZE i = (z * DTL_GLOBAL_SIZE(1) + y) * DTL_GLOBAL_SIZE(0) + x;\n"
        "    place[i] += at + 10 * (x == DTL_GROUP_ID(0) * DTL_LOCAL_SIZE(0) + DTL_LOCAL_ID(0))\n"
        "        + 100 * (DTL_GROUP_COUNT(0) * DTL_GROUP_COUNT(1) * DTL_GROUP_COUNT(2)) + 100000 * DTL_LOCAL_SIZE(2);\n"
        "}\n");
    static uint64_t seen[THREADS];
    uint64_t *to = seen, one = 1;
    const void *args[2] = {&to, &one};
    const uint64_t sizes[2] = {8, 8};
    dtl_kernel_t kernel = m_kernel(module, "place", "pL");
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    int i;
    launch.grid[0] = 3, launch.grid[1] = 2, launch.grid[2] = 4;
    launch.block[0] = 5, launch.block[1] = 3, launch.block[2] = 2;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 2));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    for (i = 0; i < THREADS; i++) CHECK(seen[i] == 1 + 10 + 2400 + 200000);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
}

/* Memory of a block and of its threads: what does not fit is refused, by the compiler or by the launch. */
static void test_much(void) {
    static const char shared[] =
        "#include \"dtl_kernel.h\"\n"
        "DTL_BLOCK_KERNEL(most, (DTL_GLOBAL int*, out)) {\n"
        "    DTL_SHARED(int, a, COUNT);\n    DTL_SHARED(int, b, COUNT);\n"
        "    DTL_THREADS { int i; for (i = 0; i < COUNT; i++) a[i] = i, b[COUNT - 1 - i] = out[0]; }\n"
        "    DTL_THREADS { out[0] = a[b[out[0]]]; }\n}\n";
    static const char own[] =
        "#include \"dtl_kernel.h\"\n"
        "struct own { int words[1024]; };\nstruct huge { char bytes[1ul << 52]; };\n"
        "DTL_BLOCK_KERNEL(fits, (DTL_GLOBAL int*, out)) {\n"
        "    DTL_PRIVATE(struct own, mine);\n"
        "    DTL_THREADS { int i; for (i = 0; i < 1024; i++) DTL_MINE(mine).words[i] = i + (int)DTL_LOCAL_ID(0); }\n"
        "    DTL_THREADS { DTL_ATOMIC_ADD(out, DTL_MINE(mine).words[1000]); }\n}\n"
        "DTL_BLOCK_KERNEL(cannot, (DTL_GLOBAL int*, out)) {\n"
        "    DTL_PRIVATE(struct huge, mine);\n    DTL_THREADS { DTL_MINE(mine).bytes[out[1]] = 1; }\n"
        "    DTL_THREADS { out[0] = DTL_MINE(mine).bytes[out[1]]; }\n}\n";
    const char *fits[1] = {"-DCOUNT=130000"}, *more[1] = {"-DCOUNT=132000"};
    dtl_source_t source = m_source(shared);
    dtl_module_t module;
    dtl_kernel_t kernel;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    int out[2] = {7, 0}, *to = out;
    const void *args[1] = {&to};
    const uint64_t sizes[1] = {sizeof to};
    source.option_count = 1, source.options = more;
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "1048576");
    source.options = fits;
    CHECK_OK(dtl_module_compile(host, 0, &source, &module));
    run(m_kernel(module, "most", "p"), 1, 1, 1, 1, args, sizes, 1);
    CHECK(out[0] == 7);
    CHECK_OK(dtl_module_destroy(module));
    module = m_compile(own);
    out[0] = 0;
    run(m_kernel(module, "fits", "p"), 1, 1, 1024, 1, args, sizes, 1);
    CHECK(out[0] == 1000 * 1024 + 1023 * 512);
    kernel = m_kernel(module, "cannot", "p");
    launch.block[0] = 1024;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 1));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(out[0] == 1000 * 1024 + 1023 * 512);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
}

static void log_of(dtl_module_t module, char *text, uint64_t room) {
    uint64_t length = 0, again = 0;
    CHECK_OK(dtl_module_log(module, NULL, 0, &length));
    CHECK(length < room);
    if (length > 0) {
        CHECK_STATUS(dtl_module_log(module, text, length, &again), DTL_ERROR_BUFFER_TOO_SMALL);
        CHECK(again == length);
    }
    CHECK_OK(dtl_module_log(module, text, length + 1, NULL));
    CHECK(strlen(text) == length);
}

#define EIGHT "(int, a), (int, b), (int, c), (int, d), (int, e), (int, f), (int, g), (int, h)"

static void test_logs(void) {
    static char text[1 << 16];
    dtl_source_t source = m_source("#include \"dtl_kernel.h\"\n#warning \"be warned\"\n" GIVES("3"));
    dtl_module_t module;
    int i;
    log_of(DTL_MODULE_NULL, text, sizeof text);
    CHECK(text[0] == 0);
    for (i = 0; i < 2; i++) { /* the second time it comes from the folder */
        CHECK_OK(dtl_module_compile(host, 0, &source, &module));
        log_of(module, text, sizeof text);
        CHECK(strstr(text, "test.c:2") != NULL && strstr(text, "be warned") != NULL);
        CHECK(m_given(module) == 3);
        CHECK_OK(dtl_module_destroy(module));
    }
    m_refused(m_source("int fine;\nint bad = first_name;\nint worse = second_name;\n"), DTL_ERROR_COMPILE_FAILED, "test.c:2");
    CHECK(strstr(dtl_last_error(), "first_name") != NULL && strstr(dtl_last_error(), "dtl_module_log") != NULL);
    log_of(DTL_MODULE_NULL, text, sizeof text);
    CHECK(strstr(text, "first_name") != NULL && strstr(text, "test.c:3") != NULL && strstr(text, "second_name") != NULL);
    source = m_source("#error \"no\"\n");
    source.name = "a \"quoted\\ name\".c";
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "quoted");
    source.name = NULL;
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "source:1");
    m_refused(m_source("#include \"dtl_kernel.h\"\nDTL_KERNEL(k, (int, a)) { DTL_BARRIER; }\n"), DTL_ERROR_COMPILE_FAILED, "DTL_BARRIER");
    m_refused(m_source("#include \"dtl_kernel.h\"\nDTL_KERNEL(k) {}\n"), DTL_ERROR_COMPILE_FAILED, "takes_1_to_16_arguments");
    m_refused(m_source("#include \"dtl_kernel.h\"\nDTL_BLOCK_KERNEL(k, int a) {}\n"), DTL_ERROR_COMPILE_FAILED, "each_is_type_name");
    m_refused(m_source("#include \"dtl_kernel.h\"\nDTL_KERNEL(k, " EIGHT "," EIGHT ", (int, more)) {}\n"),
              DTL_ERROR_COMPILE_FAILED, "takes_1_to_16_arguments");
    m_refused(m_source("extern int nowhere; int *here = &nowhere; void f(void) { nowhere_at_all(); }\n"), DTL_ERROR_COMPILE_FAILED, "nowhere");
}

static void test_refusals(void) {
    const char *options[2] = {"-DNUMBER=41", NULL};
    dtl_source_t source = m_source(GIVES("NUMBER + 1"));
    dtl_module_t module = {77};
    dtl_backend_t null;
    source.options = options;
    source.option_count = 1;
    CHECK_OK(dtl_module_compile(host, 0, &source, &module));
    CHECK(m_given(module) == 42);
    CHECK_OK(dtl_module_destroy(module));
    CHECK_STATUS(dtl_module_destroy(module), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_module_destroy(DTL_MODULE_NULL));
    source.option_count = 2;
    m_refused(source, DTL_ERROR_NULL_POINTER, "options[1]");
    options[1] = "--no-such-option";
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "no-such-option");
    source.text = GIVES("1");
    options[0] = "-lno_such_library", options[1] = "-lnor_this"; /* what the linker says, not that it failed */
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "no_such_library");
    CHECK(strstr(dtl_last_error(), "nor_this") != NULL);
    source.option_count = 1;
    options[0] = "-c";
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "no shared object");
    options[0] = "-E";
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "such as -c or -E");
    source.options = NULL;
    m_refused(source, DTL_ERROR_NULL_POINTER, "options is NULL");
    source.options = options;
    source.option_count = 1u << 20;
    m_refused(source, DTL_ERROR_LIMIT, "options");
    source = m_source(NULL);
    m_refused(source, DTL_ERROR_NULL_POINTER, "text is NULL");
    m_refused(m_source(""), DTL_ERROR_INVALID_ARGUMENT, "empty");
    source = m_source("x");
    source.size_bytes = UINT64_MAX;
    m_refused(source, DTL_ERROR_LIMIT, "size_bytes");
    source = m_source("int a;not C");
    source.size_bytes = 6; /* the rest is not read */
    CHECK_OK(dtl_module_compile(host, 0, &source, &module));
    CHECK_OK(dtl_module_destroy(module));
    source.text = "int a;\0int b;", source.size_bytes = 13;
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "a NUL at 6 of its 13 size_bytes");
    source.size_bytes = 6;
    source.name = "two\nlines";
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "name");
    source = m_source("x");
    source.language = DTL_LANGUAGE_CUDA;
    m_refused(source, DTL_ERROR_NOT_SUPPORTED, "DTL_LANGUAGE_C");
    source.struct_size = 3;
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "struct_size");
    source = m_source(GIVES("1"));
    CHECK_STATUS(dtl_module_compile(host, 1, &source, &module), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_module_compile(host, 0, &source, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_module_compile(host, 0, NULL, &module), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_backend_get("null", &null));
    CHECK_STATUS(dtl_module_compile(null, 0, &source, &module), DTL_ERROR_NOT_SUPPORTED);
    CHECK(strstr(dtl_last_error(), "null") != NULL && strstr(dtl_last_error(), "modules") != NULL);
}

static void no_kernel(dtl_module_t module, const char *name, const char *signature, dtl_status_t status, const char *words) {
    dtl_kernel_t kernel = {77};
    CHECK_STATUS(dtl_kernel_get(module, name, signature, &kernel), status);
    CHECK(strstr(dtl_last_error(), words) != NULL && kernel.id == 77);
}

static void test_kernels(void) {
    dtl_module_t module = m_compile(
        "#include \"dtl_kernel.h\"\n"
        "struct pair { double a; int b; };\n"
        "DTL_FUNCTION int twice(int x) { return 2 * x; }\n"
        "DTL_KERNEL(many, (char, a), (short, b), (struct pair, c), (float, d), (DTL_GLOBAL long*, out)) {\n"
        "    *out = a + b + (long)c.a + twice(c.b) + (long)d;\n"
        "}\n"
        "int plain(void) { return 1; }\nint dtl_kernel_1_fake[64];\n");
    const struct { double a; int32_t b; } pair = {100, 1000};
    const int8_t a = 1;
    const int16_t b = 10;
    const float d = 20000;
    int64_t out = 0, *to = &out;
    const void *args[5] = {&a, &b, &pair, &d, &to};
    uint64_t sizes[5] = {1, 2, 16, 4, 8};
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_kernel_t kernel, other;
    int32_t yes = 0;
    CHECK_OK(dtl_backend_supports(host, "modules", &yes));
    CHECK(yes == 1);
    no_kernel(module, "missing", NULL, DTL_ERROR_NOT_FOUND, "'missing'");
    no_kernel(module, "", NULL, DTL_ERROR_NOT_FOUND, "test.c");
    no_kernel(module, "plain", NULL, DTL_ERROR_NOT_FOUND, "DTL_KERNEL(plain");
    no_kernel(module, "fake", NULL, DTL_ERROR_NOT_FOUND, "fake");
    no_kernel(module, NULL, NULL, DTL_ERROR_NULL_POINTER, "name");
    no_kernel(module, "many", "bh[16]f", DTL_ERROR_INVALID_ARGUMENT, "has 5");
    no_kernel(module, "many", "bh[16]dp", DTL_ERROR_INVALID_ARGUMENT, "8 bytes (d) for argument 3");
    no_kernel(module, "many", "bh[16fp", DTL_ERROR_INVALID_ARGUMENT, "at \"[16fp\"");
    no_kernel(module, "many", "bhxfp", DTL_ERROR_INVALID_ARGUMENT, "at \"xfp\"");
    CHECK_STATUS(dtl_kernel_get(module, "many", NULL, NULL), DTL_ERROR_NULL_POINTER);
    kernel = m_kernel(module, "many", "bh[16]fp");
    other = m_kernel(module, "many", NULL);
    CHECK_OK(dtl_module_destroy(module));
    no_kernel(module, "many", NULL, DTL_ERROR_INVALID_HANDLE, "module");
    sizes[2] = 8;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "argument 2 of kernel 'many'") != NULL && strstr(dtl_last_error(), "16 bytes ([16])") != NULL);
    CHECK_STATUS(dtl_kernel_launch(stream, other, &launch, args, sizes, 5), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "argument 2 of kernel 'many'") != NULL);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "takes 5") != NULL);
    sizes[2] = 16;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5));
    CHECK_OK(dtl_kernel_destroy(kernel)); /* queued launches still run */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(out == 1 + 10 + 100 + 2000 + 20000);
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_INVALID_HANDLE);
    out = 0;
    CHECK_OK(dtl_kernel_launch(stream, other, &launch, args, sizes, 5));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(out != 0);
    CHECK_OK(dtl_kernel_destroy(other));
}

int main(int argc, char **argv) {
    dtl_module_t left;
    CHECK(argc == 2);
    m_make_folder();
    CHECK_OK(dtl_init(NULL));
    host = m_host();
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    test_layout();
    test_saxpy(argv[1]);
    test_reduce(argv[1]);
    test_matmul(argv[1]);
    test_histogram(argv[1]);
    test_places();
    test_logs();
    test_much();
    test_refusals();
    test_kernels();
    left = m_compile(GIVES("1")); /* the end takes it along */
    DTL_IGNORE(m_kernel(left, "give", NULL).id == 0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_finalize());
    m_remove(m_folder);
    return 0;
}
