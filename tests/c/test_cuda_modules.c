/* Kernels from source on backend cuda: NVIDIA's real NVRTC, over a driver that is none (tests/cuda/fake_modules.c), which
 * reads real cubins and does launches by host code. What NVRTC compiled is counted by a library in between
 * (tests/cuda/nvrtc/counting.c). C11, and valid C++17.
 * Argument: the top of the tree. DTL_CUDA_LIBRARY names the driver, beside which the others lie, DTL_TEST_NVRTC the real
 * NVRTC. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "module_cases.h"
#include <dlfcn.h>
#include <sys/wait.h>

static const char* top;
static char fakes[400];
static dtl_backend_t cuda;
static char big[1 << 20];

static char* path_of(const char* folder, const char* name) {
    static char paths[4][600];
    static int next;
    char* path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* A function of a library that is loaded already. */
static void* symbol(const char* file, const char* name) {
    void* library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    void* found = library != NULL ? dlsym(library, name) : NULL;
    CHECK(found != NULL);
    return found;
}

static int ask(const char* file, const char* name) {
    int (*function)(void);
    void* found = symbol(file, name);
    memcpy(&function, &found, sizeof function);
    return function();
}

static int compiled(void) { return ask(path_of(fakes, "counting.so"), "counted_compilations"); }

static const char* last_launch(void) {
    const char* (*function)(void);
    void* found = symbol(getenv("DTL_CUDA_LIBRARY"), "fake_cuda_launch");
    memcpy(&function, &found, sizeof function);
    return function();
}

static void begin(void) {
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("cuda", &cuda));
}

/* With another value of a variable; NULL = none. Nothing of the driver's is left behind. */
static void use(const char* name, const char* value) {
    CHECK_OK(dtl_finalize());
    CHECK(ask(getenv("DTL_CUDA_LIBRARY"), "fake_cuda_live") == 0);
    CHECK((value != NULL ? setenv(name, value, 1) : unsetenv(name)) == 0);
    begin();
}

static dtl_status_t try_source(dtl_source_t source, const char* const* options, uint32_t count, dtl_module_t* module) {
    source.name = source.name != NULL ? source.name : "test.cu";
    source.options = options, source.option_count = count;
    return dtl_module_compile(cuda, 0, &source, module);
}

static dtl_source_t text_of(const char* text, dtl_enum_word_t language) {
    dtl_source_t source = DTL_SOURCE_INIT;
    source.text = text;
    source.language = language;
    return source;
}

static void says(const char* words) {
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\"\n", words);
    CHECK(strstr(dtl_last_error(), words) != NULL);
}

static void refused(dtl_source_t source, const char* option, dtl_status_t status, const char* words) {
    dtl_module_t module = {77};
    CHECK_STATUS(try_source(source, &option, option != NULL, &module), status);
    CHECK(module.id == 77);
    says(words);
}

static dtl_module_t compile(const char* text, const char* option) {
    dtl_module_t module = DTL_MODULE_NULL;
    CHECK_OK(try_source(text_of(text, 0), &option, option != NULL, &module));
    return module;
}

/* Compiles; how many compilations that took. */
static int costs(const char* text, const char* option) {
    const int before = compiled();
    CHECK_OK(dtl_module_destroy(compile(text, option)));
    return compiled() - before;
}

static const char* log_of(dtl_module_t module) {
    uint64_t length;
    CHECK_OK(dtl_module_log(module, big, sizeof big, &length));
    CHECK(length == strlen(big));
    return big;
}

static void write_file(const char* path, const char* text) {
    FILE* file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static char* read_file(const char* path) {
    static char text[1 << 16];
    FILE* file = fopen(path, "r");
    size_t length;
    CHECK(file != NULL);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return text;
}

/* ---- the portable kernels ------------------------------------------------------------------------- */

static dtl_kernel_t kernel_of(const char* name, const char* signature) {
    static const char* const options[3] = {"-arch=compute_75", "-arch=sm_80", "--gpu-architecture=compute_121"};
    char file[64];
    dtl_module_t module;
    dtl_kernel_t kernel;
    int i;
    snprintf(file, sizeof file, "tests/kernels/%s.c", name);
    for (i = 0; i < 3; i++) {
        const dtl_source_t source = text_of(read_file(path_of(top, file)), DTL_LANGUAGE_CUDA);
        const int fits = i != 1; /* code for another device is the driver's to refuse */
        CHECK_STATUS(try_source(source, &options[i], 1, &module), fits ? DTL_SUCCESS : DTL_ERROR_COMPILE_FAILED);
        if (fits) CHECK_OK(dtl_module_destroy(module));
        else says("compute capability is 9.0");
    }
    module = compile(read_file(path_of(top, file)), NULL);
    CHECK(log_of(module)[0] == 0);
    kernel = m_kernel(module, name, signature);
    CHECK_OK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    return kernel;
}

static void* on_device(const void* from, uint64_t size) {
    void* at;
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, size, 0, &at));
    CHECK_OK(dtl_mem_copy(at, from, size));
    return at;
}

static void run(dtl_kernel_t kernel, uint32_t blocks, uint32_t width, uint32_t height, const void* const* args,
                const uint64_t* sizes, uint64_t count) {
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_stream_t stream;
    launch.grid[0] = blocks, launch.grid[1] = height > 1 ? blocks : 1;
    launch.block[0] = width, launch.block[1] = height;
    CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, count));
    CHECK_OK(dtl_kernel_destroy(kernel)); /* queued work still runs */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_saxpy_and_reduce(void) {
    enum { N = 3000 };
    static float x[N], y[N];
    float a = 2.0f, total = 0.0f, sums[12];
    const uint32_t n = N;
    uint32_t i;
    void *from, *to;
    const void *args[4] = {&a, &from, &to, &n}, *more[3] = {&to, &from, &n};
    const uint64_t sizes[4] = {4, 8, 8, 4};
    for (i = 0; i < N; i++) x[i] = (float)(i % 100), y[i] = 1.0f;
    from = on_device(x, sizeof x), to = on_device(y, sizeof y);
    run(kernel_of("saxpy", "fppI"), 12, 256, 1, args, sizes, 4);
    CHECK_OK(dtl_mem_copy(y, to, sizeof y));
    for (i = 0; i < N; i++) CHECK(y[i] == 2.0f * x[i] + 1.0f);
    {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "saxpy 12,1,1 256,1,1 0 00000040 ");
        CHECK(strncmp(last_launch(), wanted, strlen(wanted)) == 0 && strstr(last_launch(), " b80b0000") != NULL);
    }
    run(kernel_of("reduce", "ppI"), 12, 256, 1, more, sizes + 1, 3);
    CHECK_OK(dtl_mem_copy(sums, from, sizeof sums));
    for (i = 0; i < N; i++) total += y[i];
    for (i = 0; i < 12; i++) total -= sums[i];
    CHECK(total == 0.0f);
    CHECK_OK(dtl_mem_free(cuda, from));
    CHECK_OK(dtl_mem_free(cuda, to));
}

static void test_matmul_and_histogram(void) {
    enum { N = 32 };
    static float a[N * N], c[N * N];
    unsigned bins[64] = {0}, seen = 0;
    const uint32_t n = N, bytes = sizeof a;
    void *left, *right, *to, *counts;
    const void *args[4] = {&left, &right, &to, &n}, *more[3] = {&left, &bytes, &counts};
    const uint64_t sizes[4] = {8, 8, 8, 4}, others[3] = {8, 4, 8};
    int i;
    for (i = 0; i < N * N; i++) a[i] = (float)(i % N == i / N); /* one times two is two */
    left = on_device(a, sizeof a);
    for (i = 0; i < N * N; i++) c[i] = (float)(i % 7);
    right = on_device(c, sizeof c), to = on_device(a, sizeof a), counts = on_device(bins, sizeof bins);
    run(kernel_of("matmul", "pppI"), N / 16, 16, 16, args, sizes, 4);
    CHECK_OK(dtl_mem_copy(a, to, sizeof a));
    CHECK(memcmp(a, c, sizeof a) == 0);
    run(kernel_of("histogram", "pIp"), 4, 64, 1, more, others, 3);
    CHECK_OK(dtl_mem_copy(bins, counts, sizeof bins));
    for (i = 0; i < 64; i++) seen += bins[i];
    CHECK(seen == sizeof a && bins[63] == N && bins[0] == sizeof a - N); /* 1.0f is 00 00 80 3F */
    CHECK_OK(dtl_mem_free(cuda, left));
    CHECK_OK(dtl_mem_free(cuda, right));
    CHECK_OK(dtl_mem_free(cuda, to));
    CHECK_OK(dtl_mem_free(cuda, counts));
}

/* ---- logs and options ------------------------------------------------------------------------------ */

static void test_logs(void) {
    static char text[1 << 16];
    dtl_module_t module;
    int i;
    refused(text_of("\n\nnot source", 0), NULL, DTL_ERROR_COMPILE_FAILED, "test.cu(3): error");
    CHECK(strstr(dtl_last_error(), "NVRTC_ERROR_COMPILATION (6)") != NULL);
    strcpy(text, "extern \"C\" __global__ void k() {\n");
    for (i = 0; i < 90; i++) sprintf(text + strlen(text), "undeclared_%d = 1;\n", i);
    strcat(text, "}\n");
    refused(text_of(text, 0), NULL, DTL_ERROR_COMPILE_FAILED, "test.cu(2): error");
    CHECK(strstr(log_of(DTL_MODULE_NULL), "undeclared_0\"") != NULL && strstr(big, "undeclared_89\"") != NULL);
    for (i = 0; i < 2; i++) { /* compiled, then kept */
        module = compile("__global__ void k() { int unused; }", NULL);
        CHECK(strstr(log_of(module), "test.cu(1): warning") != NULL);
        CHECK_OK(dtl_module_destroy(module));
    }
    refused(text_of(GIVES("1"), 0), "--no-such-option", DTL_ERROR_COMPILE_FAILED, "unrecognized option");
    refused(text_of(GIVES("1"), 0), "-dlto", DTL_ERROR_COMPILE_FAILED, "neither PTX nor a cubin");
    refused(text_of(GIVES("NUMBER"), 0), "-DNUMBER=x", DTL_ERROR_COMPILE_FAILED, "\"x\" is undefined");
    CHECK_OK(dtl_module_destroy(compile(GIVES("NUMBER"), "-DNUMBER=4")));
    refused(text_of("int", DTL_LANGUAGE_OPENCL), NULL, DTL_ERROR_NOT_SUPPORTED, "DTL_LANGUAGE_PTX");
    {
        dtl_source_t source = text_of("__global__ void k() {}\0 more", 0);
        source.size_bytes = 28;
        refused(source, NULL, DTL_ERROR_INVALID_ARGUMENT, "NUL");
    }
}

/* ---- what was compiled is kept ----------------------------------------------------------------------- */

static void test_hits(void) {
    static const char plain[] = GIVES("41");
    const char* two[2] = {"-DA", "-DB"};
    dtl_source_t source = text_of(plain, 0);
    dtl_module_t module;
    int before;
    CHECK(costs(plain, NULL) == 1 && costs(plain, NULL) == 0);
    use("DTL_LOG", NULL); /* also by another library of the same process' life */
    CHECK(costs(plain, NULL) == 0);
    CHECK(costs(GIVES("42"), NULL) == 1 && costs(plain, "-DA") == 1 && costs(plain, "-arch=sm_90") == 1);
    before = compiled();
    CHECK_OK(try_source(source, two, 2, &module));
    CHECK_OK(dtl_module_destroy(module));
    source.name = "another.cu";
    CHECK_OK(try_source(source, NULL, 0, &module));
    CHECK_OK(dtl_module_destroy(module));
    CHECK(compiled() == before + 2 && costs(plain, NULL) == 0);
    refused(text_of("bad", 0), NULL, DTL_ERROR_COMPILE_FAILED, "test.cu");
    refused(text_of("bad", 0), NULL, DTL_ERROR_COMPILE_FAILED, "test.cu");
    CHECK(compiled() == before + 4); /* failures are not kept */
    /* What NVRTC reads besides. */
    CHECK(setenv("NVRTC_SOMETHING", "1", 1) == 0);
    CHECK(costs(plain, NULL) == 1 && costs(plain, NULL) == 0);
    CHECK(unsetenv("NVRTC_SOMETHING") == 0 && setenv("NVRTC_APPEND_FLAGS", "-DQ", 1) == 0);
    CHECK(costs(plain, NULL) == 1 && costs(plain, NULL) == 1);
    CHECK(unsetenv("NVRTC_APPEND_FLAGS") == 0);
    /* Another file of the same NVRTC. */
    use("DTL_NVRTC_LIBRARY", path_of(fakes, "counting_too.so"));
    CHECK_OK(dtl_module_destroy(compile(plain, NULL)));
    CHECK(ask(path_of(fakes, "counting_too.so"), "counted_compilations") == 1);
    use("DTL_NVRTC_LIBRARY", path_of(fakes, "counting.so"));
    CHECK(costs(plain, NULL) == 0);
}

/* A file that the source includes, or would include if it were there. */
static void test_headers(void) {
    static const char text[] = "#include <n.h>\n" GIVES("NUMBER");
    char option[700], early[700];
    const char* options[2] = {early, option};
    const dtl_source_t source = text_of(text, 0);
    dtl_module_t module;
    int before;
    snprintf(early, sizeof early, "-I%s/early", m_folder);
    snprintf(option, sizeof option, "-I%s", m_folder);
    CHECK(mkdir(path_of(m_folder, "early"), 0700) == 0);
    write_file(path_of(m_folder, "n.h"), "#include \"m.h\"\n");
    write_file(path_of(m_folder, "m.h"), "#define NUMBER 1\n");
    CHECK(costs(text, option) == 1 && costs(text, option) == 0);
    write_file(path_of(m_folder, "m.h"), "#define NUMBER 2\n");
    CHECK(costs(text, option) == 1 && costs(text, option) == 0);
    write_file(path_of(m_folder, "m.h"), "#define NUMBER 1\n");
    CHECK(costs(text, option) == 0);
    before = compiled();
    CHECK_OK(try_source(source, options, 2, &module));
    CHECK_OK(dtl_module_destroy(module));
    write_file(path_of(m_folder, "early/n.h"), "#define NUMBER bad\n"); /* found first from now on */
    CHECK_STATUS(try_source(source, options, 2, &module), DTL_ERROR_COMPILE_FAILED);
    CHECK(unlink(path_of(m_folder, "early/n.h")) == 0);
    CHECK_OK(try_source(source, options, 2, &module));
    CHECK_OK(dtl_module_destroy(module));
    CHECK(compiled() == before + 2);
    /* What only the compiler can follow is compiled each time. */
    CHECK(costs("#define NAME <n.h>\n#include NAME\n" GIVES("NUMBER"), option) == 1);
    CHECK(costs("#define NAME <n.h>\n#include NAME\n" GIVES("NUMBER"), option) == 1);
    CHECK(unlink(path_of(m_folder, "m.h")) == 0);
    refused(text_of(text, 0), option, DTL_ERROR_COMPILE_FAILED, "m.h");
}

/* Files that come with the source: found, an input of what is kept, and no more than that. */
static void test_files(void) {
    dtl_source_file_t files[2] = {{"a/number.h", "#include \"a/more.h\"\n#define NUMBER (MORE + 1)\n", 0, 0},
                                  {"a/more.h", "#define MORE 4\n", 0, 0}};
    dtl_source_t source = text_of("#include \"a/number.h\"\nextern \"C\" __global__ void k(int* x) { *x = NUMBER; }", 0);
    dtl_module_t module;
    int before = compiled(), i;
    refused(source, NULL, DTL_ERROR_COMPILE_FAILED, "number.h");
    before++;
    source.files = files, source.file_count = 2;
    for (i = 0; i < 3; i++) {
        if (i == 2) files[1].text = "#define MORE 5\n";
        CHECK_OK(try_source(source, NULL, 0, &module));
        CHECK_OK(dtl_module_destroy(module));
        CHECK(compiled() == before + 1 + (i == 2));
    }
    source.language = DTL_LANGUAGE_PTX;
    refused(source, NULL, DTL_ERROR_INVALID_ARGUMENT, "PTX is compiled already");
    source.language = DTL_LANGUAGE_BINARY;
    refused(source, NULL, DTL_ERROR_INVALID_ARGUMENT, "a binary is compiled already");
}

static void test_folders(void) {
    char command[700];
    snprintf(command, sizeof command, "for f in '%s'/*/*.cuda; do truncate -s 99 $f; done", m_folder);
    CHECK(costs(GIVES("51"), NULL) == 1);
    CHECK(system(command) == 0);
    CHECK(costs(GIVES("51"), NULL) == 1 && costs(GIVES("51"), NULL) == 0); /* damaged: compiled anew */
    CHECK(chmod(m_folder, 0777) == 0);
    refused(text_of(GIVES("51"), 0), NULL, DTL_ERROR_UNAVAILABLE, "set DTL_CACHE_DIR");
    CHECK(chmod(m_folder, 0700) == 0);
    /* Without a folder it is compiled each time. */
    CHECK(unsetenv("HOME") == 0 && unsetenv("XDG_CACHE_HOME") == 0);
    use("DTL_CACHE_DIR", NULL);
    CHECK(costs(GIVES("51"), NULL) == 1 && costs(GIVES("51"), NULL) == 1);
    use("DTL_CACHE_DIR", m_folder);
}

/* ---- signatures and launches --------------------------------------------------------------------- */

#define MIXED "struct s { int a[5]; double d; };\nextern \"C\" __global__ void mixed(int *p, s v, char c, short h, bool b) { *p = v.a[0] + c + h + b; }\n"

static void no_kernel(dtl_module_t module, const char* name, const char* signature, dtl_status_t status, const char* words) {
    dtl_kernel_t kernel = {77};
    CHECK_STATUS(dtl_kernel_get(module, name, signature, &kernel), status);
    CHECK(kernel.id == 77);
    says(words);
}

static void test_signatures(void) {
    int i;
    for (i = 0; i < 2; i++) { /* a cubin, of which the driver tells; PTX, which is read */
        const dtl_module_t module = compile(MIXED, i == 0 ? NULL : "-arch=compute_90");
        dtl_kernel_t kernel = m_kernel(module, "mixed", "p[32]bhB");
        dtl_launch_t launch = DTL_LAUNCH_INIT;
        dtl_stream_t stream, other;
        int target = 0, *p = &target;
        unsigned char v[32] = {1};
        const void* args[5] = {&p, v, v, v, v};
        uint64_t sizes[5] = {8, 32, 1, 2, 1};
        CHECK_OK(dtl_kernel_destroy(kernel));
        no_kernel(module, "mixed", "p[32]bh", DTL_ERROR_INVALID_ARGUMENT, "has 5 in its source");
        no_kernel(module, "mixed", "p[24]bhB", DTL_ERROR_INVALID_ARGUMENT, "argument 1 of kernel 'mixed', which has 32 bytes");
        no_kernel(module, "mixture", NULL, DTL_ERROR_NOT_FOUND, "(it has mixed)");
        kernel = m_kernel(module, "mixed", NULL);
        CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
        CHECK_OK(dtl_stream_create(cuda, 1, 0, &other));
        sizes[1] = 24;
        CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_INVALID_ARGUMENT);
        says("argument 1 of kernel 'mixed'");
        sizes[1] = 32;
        CHECK_STATUS(dtl_kernel_launch(other, kernel, &launch, args, sizes, 5), DTL_ERROR_INVALID_ARGUMENT);
        says("compiled for device 0 and the stream is of device 1");
        launch.grid[2] = 3, launch.block[1] = 4, launch.shared_bytes = 100 << 10;
        CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5)); /* more than 48 KiB, which is allowed here */
        if (i == 0) {
            char wanted[200];
            snprintf(wanted, sizeof wanted, "mixed 1,1,3 1,4,1 102400 ");
            CHECK(strncmp(last_launch(), wanted, strlen(wanted)) == 0);
            CHECK(strstr(last_launch(), " 01000000000000000000000000000000000000000000000000000000000000") != NULL);
            CHECK(strcmp(last_launch() + strlen(last_launch()) - 11, " 01 0100 01") == 0);
        }
        launch.shared_bytes = 1 << 20;
        CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_CUDA);
        says("CUDA_ERROR_INVALID_VALUE");
        CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
        CHECK_OK(dtl_module_destroy(module));
        CHECK_OK(dtl_kernel_destroy(kernel));
        CHECK_OK(dtl_stream_destroy(stream));
        CHECK_OK(dtl_stream_destroy(other));
    }
}

/* ---- PTX and binaries ------------------------------------------------------------------------------- */

#define PTX ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .f32 b)\n{ ret; }\n"

static void test_ptx(void) {
    const char* registers = "--maxrregcount=32";
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    dtl_stream_t stream;
    float b = 1.5f, *a = &b;
    const void* args[2] = {&a, &b};
    const uint64_t sizes[2] = {8, 4};
    CHECK_OK(try_source(text_of(PTX "//fake info", DTL_LANGUAGE_PTX), &registers, 1, &module));
    CHECK(strcmp(log_of(module), "info : all is fake\n") == 0);
    no_kernel(module, "k", "pd", DTL_ERROR_INVALID_ARGUMENT, "argument 1");
    kernel = m_kernel(module, "k", "pf");
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 2));
    CHECK(strstr(last_launch(), "32 registers") != NULL);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_stream_destroy(stream));
    refused(text_of(PTX "//fake error 1", DTL_LANGUAGE_PTX), NULL, DTL_ERROR_COMPILE_FAILED, "line 7; error");
    refused(text_of(PTX "//fake error 5000", DTL_LANGUAGE_PTX), NULL, DTL_ERROR_COMPILE_FAILED, "CUDA_ERROR_INVALID_PTX");
    CHECK(strlen(log_of(DTL_MODULE_NULL)) == 5000 * strlen("ptxas application ptx input, line 7; error : a fake one\n"));
    refused(text_of(".version 99.0\n", DTL_LANGUAGE_PTX), NULL, DTL_ERROR_COMPILE_FAILED, "newer than the driver's CUDA 12.9");
    refused(text_of("nonsense", DTL_LANGUAGE_PTX), NULL, DTL_ERROR_COMPILE_FAILED, "CUDA_ERROR_INVALID_IMAGE");
    refused(text_of(PTX, DTL_LANGUAGE_PTX), "-DX", DTL_ERROR_INVALID_ARGUMENT, "--maxrregcount=N");
}

static void test_binary(void) {
    dtl_source_t source = text_of("nonsense", DTL_LANGUAGE_BINARY);
    dtl_module_t module;
    char command[900];
    FILE* file;
    uint64_t size;
    refused(source, NULL, DTL_ERROR_INVALID_ARGUMENT, "neither a cubin nor a fatbin");
    /* The cubin of what was kept last: what comes behind the first line. */
    m_remove(path_of(m_folder, "cubin"));
    CHECK_OK(dtl_finalize());
    CHECK(setenv("DTL_CACHE_DIR", path_of(m_folder, "cubin"), 1) == 0);
    begin();
    CHECK(costs(MIXED, NULL) == 1);
    snprintf(command, sizeof command, "sed 1d '%s'/cubin/*/*.cuda >'%s'/cubin/k", m_folder, m_folder);
    CHECK(system(command) == 0);
    file = fopen(path_of(m_folder, "cubin/k"), "r");
    CHECK(file != NULL);
    size = fread(big, 1, sizeof big, file);
    fclose(file);
    CHECK(size > 1000);
    source.text = big, source.size_bytes = size;
    CHECK_OK(try_source(source, NULL, 0, &module));
    no_kernel(module, "mixed", "p", DTL_ERROR_INVALID_ARGUMENT, "has 5 in its source");
    CHECK_OK(dtl_kernel_destroy(m_kernel(module, "mixed", NULL)));
    CHECK_OK(dtl_module_destroy(module));
    refused(source, "-O3", DTL_ERROR_INVALID_ARGUMENT, "takes none");
    source.size_bytes = size - 1;
    refused(source, NULL, DTL_ERROR_INVALID_ARGUMENT, "cut off");
    /* A driver that tells nothing of parameters. */
    use("DTL_CUDA_LIBRARY", path_of(fakes, "libcuda.so.1.old"));
    source.size_bytes = size;
    CHECK_OK(try_source(source, NULL, 0, &module));
    no_kernel(module, "mixed", NULL, DTL_ERROR_INVALID_ARGUMENT, "pass the signature");
    CHECK_OK(dtl_kernel_destroy(m_kernel(module, "mixed", "p[32]bhB")));
    CHECK_OK(dtl_module_destroy(module));
    module = compile(MIXED, NULL); /* of source they are known all the same */
    no_kernel(module, "mixed", "p[24]bhB", DTL_ERROR_INVALID_ARGUMENT, "argument 1");
    CHECK_OK(dtl_module_destroy(module));
    use("DTL_CUDA_LIBRARY", path_of(fakes, "libcuda.so.1"));
}

/* ---- compilers that cannot be used, and failures ----------------------------------------------- */

static void failing(const char* code, dtl_status_t status, const char* words) {
    CHECK(setenv("COUNTING_NVRTC_FAIL", code, 1) == 0);
    refused(text_of(GIVES("61"), 0), NULL, status, words);
    CHECK(unsetenv("COUNTING_NVRTC_FAIL") == 0);
}

static void test_compilers(void) {
    dtl_module_t module;
    failing("1", DTL_ERROR_OUT_OF_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY");
    failing("7", DTL_ERROR_UNAVAILABLE, "libnvrtc-builtins");
    failing("4711", DTL_ERROR_COMPILE_FAILED, "(4711)");
    use("DTL_COMPILE_TIMEOUT", "1us");
    refused(text_of(GIVES("61"), 0), NULL, DTL_ERROR_TIMEOUT, "DTL_COMPILE_TIMEOUT");
    use("DTL_COMPILE_TIMEOUT", NULL);
    use("DTL_NVRTC_LIBRARY", "/nowhere/libnvrtc.so");
    refused(text_of(GIVES("61"), 0), NULL, DTL_ERROR_UNAVAILABLE, "DTL_NVRTC_LIBRARY=/nowhere/libnvrtc.so");
    CHECK_OK(try_source(text_of(PTX, DTL_LANGUAGE_PTX), NULL, 0, &module)); /* needs none */
    CHECK_OK(dtl_module_destroy(module));
    use("DTL_NVRTC_LIBRARY", path_of(fakes, "no_compile.so"));
    refused(text_of(GIVES("61"), 0), NULL, DTL_ERROR_UNAVAILABLE, "no function nvrtcCompileProgram");
    use("DTL_NVRTC_LIBRARY", path_of(fakes, "old.so")); /* knows no cubins: PTX, and the driver compiles that */
    module = compile(MIXED, NULL);
    no_kernel(module, "mixed", "p", DTL_ERROR_INVALID_ARGUMENT, "has 5 in its source");
    CHECK_OK(dtl_module_destroy(module));
    use("DTL_NVRTC_LIBRARY", path_of(fakes, "counting.so"));
}

static void test_faults(void) {
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_kernel_t kernel;
    dtl_module_t module = {77};
    dtl_stream_t stream;
    int target = 0, *p = &target;
    unsigned char v[32] = {0};
    const void* args[5] = {&p, v, v, v, v};
    const uint64_t sizes[5] = {8, 32, 1, 2, 1};
    use("FAKE_CUDA_FAIL", "cuModuleLoadDataEx:1:2,cuModuleGetFunction:1:999,cuLaunchKernel:1:701,cuLaunchKernel:1:700");
    CHECK_STATUS(try_source(text_of(MIXED, 0), NULL, 0, &module), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(module.id == 77);
    module = compile(MIXED, NULL);
    no_kernel(module, "mixed", NULL, DTL_ERROR_CUDA, "CUDA_ERROR_UNKNOWN (999)");
    kernel = m_kernel(module, "mixed", NULL);
    CHECK_OK(dtl_stream_create(cuda, 0, 0, &stream));
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_CUDA);
    says("(701)");
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 5), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    refused(text_of(MIXED, 0), NULL, DTL_ERROR_DEVICE_LOST, "CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_stream_destroy(stream));
    use("FAKE_CUDA_FAIL", NULL);
}

int main(int argc, char** argv) {
    CHECK(argc == 2 && getenv("DTL_CUDA_LIBRARY") != NULL);
    top = argv[1];
    snprintf(fakes, sizeof fakes, "%s", getenv("DTL_CUDA_LIBRARY"));
    *strrchr(fakes, '/') = 0;
    if (getenv("DTL_TEST_NVRTC") == NULL || access(getenv("DTL_TEST_NVRTC"), R_OK) != 0)
        SKIP("NVRTC is not there (tests/gpu_wheels.sh fetches it from PyPI)");
    m_make_folder();
    CHECK(setenv("DTL_NVRTC_LIBRARY", path_of(fakes, "counting.so"), 1) == 0);
    CHECK(setenv("FAKE_CUDA_KERNELS", path_of(fakes, "kernels.so"), 1) == 0);
    begin();
    test_saxpy_and_reduce();
    test_matmul_and_histogram();
    test_logs();
    test_hits();
    test_headers();
    test_files();
    test_folders();
    test_signatures();
    test_ptx();
    test_binary();
    test_compilers();
    test_faults();
    CHECK_OK(dtl_finalize());
    m_remove(m_folder);
    return 0;
}
