/* What the tests of modules share: a folder of their own for what is compiled, source, launches. Not a test by itself. */
#ifndef DTL_TESTS_MODULE_CASES_H
#define DTL_TESTS_MODULE_CASES_H

#include "check.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A kernel that gives the number that it was compiled with. */
#define GIVES(number)                                                                             \
    "#include \"dtl_kernel.h\"\n"                                                                 \
    "DTL_KERNEL(give, (DTL_GLOBAL int*, out)) { out[DTL_GLOBAL_ID(0)] = " number "; }\n"

static char m_folder[256];

/* An empty folder that only this user can write to. */
static inline void m_make_folder(void) {
    snprintf(m_folder, sizeof m_folder, "/tmp/dtl-module-XXXXXX");
    CHECK(mkdtemp(m_folder) != NULL);
    CHECK(setenv("DTL_CACHE_DIR", m_folder, 1) == 0);
}

static inline void m_remove(const char *folder) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

static inline dtl_source_t m_source(const char *text) {
    dtl_source_t source = DTL_SOURCE_INIT;
    source.text = text;
    source.name = "test.c";
    return source;
}

static inline dtl_backend_t m_host(void) {
    dtl_backend_t host = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_get("host", &host));
    return host;
}

static inline dtl_module_t m_compile(const char *text) {
    dtl_source_t source = m_source(text);
    dtl_module_t module = DTL_MODULE_NULL;
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
    return module;
}

static inline dtl_kernel_t m_kernel(dtl_module_t module, const char *name, const char *signature) {
    dtl_kernel_t kernel = DTL_KERNEL_NULL;
    CHECK_OK(dtl_kernel_get(module, name, signature, &kernel));
    return kernel;
}

/* What the kernel "give" of a module gives. */
static inline int m_given(dtl_module_t module) {
    dtl_kernel_t kernel = m_kernel(module, "give", "p");
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_stream_t stream;
    int out = -1, *to = &out;
    const void *args[1] = {&to};
    const uint64_t sizes[1] = {sizeof to};
    CHECK_OK(dtl_stream_create(m_host(), 0, 0, &stream));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_kernel_destroy(kernel));
    return out;
}

/* Compiles and destroys. */
static inline int m_result(const char *text) {
    dtl_module_t module = m_compile(text);
    const int given = m_given(module);
    CHECK_OK(dtl_module_destroy(module));
    return given;
}

/* Not compiled, nothing written, and the text has these words. */
static inline void m_refused(dtl_source_t source, dtl_status_t status, const char *words) {
    dtl_module_t module = {77};
    CHECK_STATUS(dtl_module_compile(m_host(), 0, &source, &module), status);
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\"\n", words);
    CHECK(strstr(dtl_last_error(), words) != NULL && module.id == 77);
}

#endif
