/* Kernels that run on every backend with modules: the files of tests/kernels, and one with all macros of dtl_kernel.h. Each runs on
 * a device and on the host, and the results agree. Not a test by itself. */
#ifndef DTL_TESTS_PORTABLE_CASES_H
#define DTL_TESTS_PORTABLE_CASES_H

#include "module_cases.h"
#include <stdlib.h>

typedef struct {
    const char *name, *signature;
    uint32_t grid[3], block[3];
    struct { void *data; uint64_t size; } arguments[4]; /* of more than 8 bytes: memory */
} portable;

/* Runs one over copies of its data, and leaves the results there. */
static void p_run(const portable *what, dtl_backend_t where, const char *text) {
    dtl_source_t source = m_source(text);
    dtl_module_t module;
    dtl_kernel_t kernel;
    dtl_stream_t queue;
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    void *memory[4] = {NULL, NULL, NULL, NULL};
    const void *args[4];
    uint64_t sizes[4];
    uint32_t count = (uint32_t)strlen(what->signature), i;
    int32_t is_far = 0;
    dtl_backend_t owner = m_host();
    CHECK_OK(dtl_backend_supports(where, "memory", &is_far)); /* without memory of its own: that of the host */
    if (where.id == owner.id) is_far = 0;
    if (is_far) owner = where;
    CHECK_OK(dtl_module_compile(where, 0, &source, &module));
    CHECK_OK(dtl_kernel_get(module, what->name, what->signature, &kernel));
    CHECK_OK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    CHECK_OK(dtl_stream_create(where, 0, 0, &queue));
    for (i = 0; i < count; i++) {
        args[i] = what->arguments[i].data, sizes[i] = what->arguments[i].size;
        if (sizes[i] <= 8) continue;
        CHECK_OK(dtl_mem_alloc(owner, is_far ? DTL_MEMORY_DEVICE : DTL_MEMORY_HOST, sizes[i], 0, &memory[i]));
        CHECK_OK(dtl_mem_copy_async(queue, memory[i], what->arguments[i].data, sizes[i]));
        args[i] = &memory[i], sizes[i] = sizeof memory[i];
    }
    for (i = 0; i < 3; i++) shape.grid[i] = what->grid[i], shape.block[i] = what->block[i];
    CHECK_OK(dtl_kernel_launch(queue, kernel, &shape, args, sizes, count));
    CHECK_OK(dtl_kernel_destroy(kernel)); /* the launch still runs */
    for (i = 0; i < count; i++) {
        if (memory[i] != NULL) CHECK_OK(dtl_mem_copy_async(queue, what->arguments[i].data, memory[i], what->arguments[i].size));
    }
    CHECK_OK(dtl_stream_destroy(queue));
    for (i = 0; i < count; i++) {
        if (memory[i] != NULL) CHECK_OK(dtl_mem_free(owner, memory[i]));
    }
}

/* On `device` and on the host: the same results. */
static void p_agree(dtl_backend_t device, const char *text, portable what) {
    portable copy = what;
    uint32_t i;
    for (i = 0; i < 4; i++) {
        if (what.arguments[i].size <= 8) continue;
        copy.arguments[i].data = malloc(what.arguments[i].size);
        memcpy(copy.arguments[i].data, what.arguments[i].data, what.arguments[i].size);
    }
    p_run(&what, device, text);
    p_run(&copy, m_host(), text);
    for (i = 0; i < 4; i++) {
        if (what.arguments[i].size <= 8) continue;
        if (memcmp(what.arguments[i].data, copy.arguments[i].data, what.arguments[i].size) != 0) {
            fprintf(stderr, "%s: argument %u differs from the host's\n", what.name, i);
            exit(1);
        }
        free(copy.arguments[i].data);
    }
}

/* The same of a file of tests/kernels. */
static void p_agree_on(dtl_backend_t device, const char *top, portable what) {
    static char text[1 << 16], path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/tests/kernels/%s.c", top, what.name);
    file = fopen(path, "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    p_agree(device, text, what);
}

/* Three dimensions, and what of dtl_kernel.h the files do not use. */
static void p_test_places(dtl_backend_t device) {
    static uint64_t seen[3 * 2 * 2 * 4 * 3 * 2];
    static int32_t sum[4];
    static int8_t one = 1;
    static double five = 2.5;
    portable place = {"place", "ppbd", {3, 2, 2}, {4, 3, 2}, {{seen, sizeof seen}, {sum, sizeof sum}, {&one, 1}, {&five, 8}}};
    uint32_t i;
    p_agree(device, "#include \"dtl_kernel.h\"\n"
          "DTL_FUNCTION double twice(DTL_LOCAL const double *DTL_RESTRICT x, int i) { return 2 * x[i]; }\n"
          "DTL_BLOCK_KERNEL(place, (DTL_GLOBAL unsigned long *DTL_RESTRICT, seen), (DTL_GLOBAL int*, sum), (char, c), (double, d)) {\n"
          "    DTL_SHARED(double, part, 24);\n"
          "    DTL_PRIVATE(DTL_SIZE, at);\n"
          "    DTL_THREADS {\n"
          "        const DTL_SIZE x = DTL_LOCAL_ID(0), y = DTL_LOCAL_ID(1), z = DTL_LOCAL_ID(2);\n"
          "        DTL_MINE(at) = (DTL_GLOBAL_ID(2) * DTL_GLOBAL_SIZE(1) + DTL_GLOBAL_ID(1)) * DTL_GLOBAL_SIZE(0) + DTL_GLOBAL_ID(0);\n"
          "        part[(z * DTL_LOCAL_SIZE(1) + y) * DTL_LOCAL_SIZE(0) + x] = d;\n"
          "    }\n"
          "    DTL_THREADS {\n"
          "        seen[DTL_MINE(at)] += c + 10 * (DTL_GLOBAL_ID(1) == DTL_GROUP_ID(1) * DTL_LOCAL_SIZE(1) + DTL_LOCAL_ID(1))\n"
          "            + 100 * (DTL_GROUP_COUNT(0) * DTL_GROUP_COUNT(1) * DTL_GROUP_COUNT(2)) + 10000 * (DTL_SIZE)twice(part, (int)DTL_LOCAL_ID(0));\n"
          "        DTL_ATOMIC_ADD(sum, 1);\n"
          "    }\n"
          "}\n", place);
    for (i = 0; i < 288; i++) CHECK(seen[i] == 51211);
    CHECK(sum[0] == 288);
}

/* Whole numbers, so that every order of additions gives the same. */
static void p_test_files(dtl_backend_t device, const char *top) {
    enum { N = 10007, SIDE = 64, BYTES = 1 << 18 };
    static float x[N + 8], y[N + 8], sums[40], a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    static unsigned char data[BYTES];
    static uint32_t bins[64];
    static uint32_t n = N, side = SIDE, bytes = BYTES;
    static float two = 2.0f;
    portable saxpy = {"saxpy", "fppI", {40, 1, 1}, {256, 1, 1}, {{&two, 4}, {x, sizeof x}, {y, sizeof y}, {&n, 4}}};
    portable reduce = {"reduce", "ppI", {40, 1, 1}, {256, 1, 1}, {{x, sizeof x}, {sums, sizeof sums}, {&n, 4}, {NULL, 0}}};
    portable matmul = {"matmul", "pppI", {4, 4, 1}, {16, 16, 1}, {{a, sizeof a}, {b, sizeof b}, {c, sizeof c}, {&side, 4}}};
    portable histogram = {"histogram", "pIp", {37, 1, 1}, {64, 1, 1}, {{data, BYTES}, {&bytes, 4}, {bins, sizeof bins}, {NULL, 0}}};
    float all = 0;
    uint32_t i, random = 1, total = 0;
    for (i = 0; i < N + 8; i++) x[i] = (float)(i % 17), y[i] = 1.0f;
    for (i = 0; i < SIDE * SIDE; i++) a[i] = (float)(i % 5), b[i] = (float)(i % 3);
    for (i = 0; i < BYTES; i++) random = random * 1664525u + 1013904223u, data[i] = (unsigned char)(random >> 24);
    p_agree_on(device, top, saxpy);
    CHECK(y[N - 1] == 2.0f * (float)((N - 1) % 17) + 1.0f && y[N] == 1.0f);
    p_agree_on(device, top, reduce);
    for (i = 0; i < 40; i++) all += sums[i];
    for (i = 0; i < N; i++) all -= x[i];
    CHECK(all == 0);
    p_agree_on(device, top, matmul);
    for (i = 0, all = 0; i < SIDE; i++) all += a[5 * SIDE + i] * b[i * SIDE + 7];
    CHECK(c[5 * SIDE + 7] == all);
    p_agree_on(device, top, histogram);
    for (i = 0; i < 64; i++) total += bins[i];
    CHECK(total == BYTES);
}

#endif
