/* What PyDotCompute's backends do, through the C header: is_available, device_count, allocate, copy_to_device, copy_to_host,
 * get_memory_info, compile_kernel, execute_kernel, synchronize. On the host, on OpenCL where it is, and "cuda", which is
 * CUDA or an error. The table is in docs/how-to/from-pydotcompute.md. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "module_cases.h"

#define N 256

static const char triple[] =
    "#include \"dtl_kernel.h\"\n"
    "DTL_KERNEL(triple, (DTL_GLOBAL int*, data), (int, n))\n"
    "{\n"
    "    const int i = (int)DTL_GLOBAL_ID(0);\n"
    "    if (i < n) data[i] = 3 * data[i];\n"
    "}\n";

static int supports(dtl_backend_t backend, const char* feature) {
    int32_t yes = -1;
    CHECK_OK(dtl_backend_supports(backend, feature, &yes));
    CHECK(yes == 0 || yes == 1);
    return yes;
}

/* compile_kernel, execute_kernel, synchronize. */
static void compute(dtl_backend_t backend, int* device, int* host) {
    dtl_source_t source = m_source(triple);
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    dtl_stream_t stream;
    const int n = N;
    const void* arguments[2] = {&device, &n};
    const uint64_t sizes[2] = {sizeof device, sizeof n};
    int i;
    CHECK_OK(dtl_module_compile(backend, 0, &source, &module));
    CHECK_OK(dtl_kernel_get(module, "triple", "pi", &kernel));
    CHECK_OK(dtl_stream_default(backend, 0, &stream));
    launch.grid[0] = N / 64, launch.block[0] = 64;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, arguments, sizes, 2));
    CHECK_OK(dtl_device_wait(backend, 0, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_to_host(backend, device, host, N * sizeof *host));
    for (i = 0; i < N; i++) CHECK(host[i] == 3 * i);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
}

static void walk(const char* name) {
    int data[N], back[N];
    uint64_t free_bytes = 0, total_bytes = 0;
    int32_t yes = 0, devices = 0;
    dtl_backend_t backend;
    void *block = NULL, *copy = NULL;
    int i;
    CHECK_OK(dtl_backend_get(name, &backend));
    CHECK(strcmp(dtl_backend_name(backend), strcmp(name, "cpu") == 0 ? "host" : name) == 0);
    CHECK_OK(dtl_backend_is_available(backend, &yes, NULL, 0, NULL));
    if (!yes) {
        printf("backend %s is not here\n", name);
        return;
    }
    CHECK(supports(backend, "async") && supports(backend, "streams") && supports(backend, "shared_memory"));
    CHECK(!supports(backend, "teleport"));
    CHECK_OK(dtl_backend_device_count(backend, &devices));
    CHECK(devices > 0);
    CHECK_OK(dtl_backend_set_device(backend, 0));
    CHECK_OK(dtl_device_memory_info(backend, 0, &free_bytes, &total_bytes));
    CHECK(total_bytes > 0 && free_bytes <= total_bytes);
    for (i = 0; i < N; i++) data[i] = i;
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, sizeof data, 0, &block));
    CHECK_OK(dtl_mem_to_device(backend, data, sizeof data, &copy));
    CHECK_OK(dtl_mem_copy(block, copy, sizeof data));
    CHECK_OK(dtl_mem_to_host(backend, block, back, sizeof back));
    CHECK(memcmp(data, back, sizeof data) == 0);
    if (supports(backend, "modules"))
        compute(backend, (int*)copy, back);
    else
        printf("backend %s compiles nothing\n", name);
    CHECK_OK(dtl_device_wait(backend, 0, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_free(backend, block));
    CHECK_OK(dtl_mem_free(backend, copy));
}

/* An explicit "cuda" is CUDA, or an error with the reason: never the CPU. */
static void test_cuda(void) {
    char why[512] = "";
    int32_t yes = 1;
    dtl_backend_t cuda = DTL_BACKEND_NULL;
    void* block = NULL;
    const dtl_status_t status = dtl_backend_get("cuda", &cuda);
    if (status != DTL_SUCCESS) {
        CHECK(status == DTL_ERROR_NOT_FOUND || status == DTL_ERROR_UNAVAILABLE);
        CHECK(cuda.id == 0 && strstr(dtl_last_error(), "cuda") != NULL);
        return;
    }
    CHECK(strcmp(dtl_backend_name(cuda), "cuda") == 0);
    CHECK_OK(dtl_backend_is_available(cuda, &yes, why, sizeof why, NULL));
    if (yes) return;
    CHECK(why[0] != 0);
    CHECK_STATUS(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, &block), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_mem_to_device(cuda, why, 64, &block), DTL_ERROR_UNAVAILABLE);
    CHECK_STATUS(dtl_device_wait(cuda, 0, DTL_TIMEOUT_INFINITE), DTL_ERROR_UNAVAILABLE);
    CHECK(block == NULL);
}

int main(void) {
    dtl_backend_t chosen, null;
    int32_t yes = 0;
    m_make_folder();
    CHECK_OK(dtl_init(NULL));
    walk("cpu");
    walk("host");
    walk("opencl");
    test_cuda();
    CHECK_OK(dtl_backend_get("auto", &chosen)); /* one that can run here */
    CHECK_OK(dtl_backend_is_available(chosen, &yes, NULL, 0, NULL));
    CHECK(yes && supports(chosen, "streams"));
    CHECK_OK(dtl_backend_get("null", &null)); /* it computes nothing, and says so */
    CHECK(supports(null, "async") && !supports(null, "shared_memory") && supports(null, "no_compute"));
    CHECK_OK(dtl_finalize());
    m_remove(m_folder);
    printf("ok\n");
    return 0;
}
