/* Kernels for a vendor's compiler: a plugin ("acme", tests/plugins/acme.c) that compiles with the text of dtl_kernel.h that the
 * library gives it, in a dialect of its own. The portable kernels agree with the host's, every macro of the dialect is used, one
 * that is missing is named, errors have the lines of the source. Arguments: the folder of the plugin, the top of
 * the tree.
 * C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugins.h"
#include "portable_cases.h"

static dtl_backend_t acme;

static void refused(const char *text, dtl_status_t status, const char *in_log) {
    const dtl_source_t source = m_source(text);
    static char log[1 << 16];
    dtl_module_t module = {77};
    CHECK_STATUS(dtl_module_compile(acme, 0, &source, &module), status);
    CHECK(module.id == 77);
    CHECK_OK(dtl_module_log(DTL_MODULE_NULL, log, sizeof log, NULL));
    if (strstr(log, in_log) == NULL) fprintf(stderr, "wanted \"%s\" in:\n%s\n", in_log, log);
    CHECK(strstr(log, in_log) != NULL);
}

/* One macro less, and the compiler names it. */
static void test_missing(void) {
    static const char *const names[] = {"DTL_SIZE", "DTL_GLOBAL", "DTL_LOCAL", "DTL_RESTRICT", "DTL_FUNCTION", "DTL_GLOBAL_ID",
                                        "DTL_GLOBAL_SIZE", "DTL_LOCAL_ID", "DTL_LOCAL_SIZE", "DTL_GROUP_ID", "DTL_GROUP_COUNT",
                                        "DTL_ATOMIC_ADD", "DTL_SHARED", "DTL_DIALECT_ENTRY", "DTL_DIALECT_BARRIER"};
    const char *text;
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        char line[64];
        CHECK(setenv("ACME_WITHOUT", names[i], 1) == 0);
        snprintf(line, sizeof line, "DTL_KERNEL_DIALECT lacks %s\"", names[i]);
        refused(GIVES("1"), DTL_ERROR_COMPILE_FAILED, line);
        /* Every name of the list is documented, between the two marks. */
        text = strstr(dtl_kernel_header(), "/* Dialect. ");
        CHECK(text != NULL && strstr(text, names[i]) != NULL && strstr(text, names[i]) < strstr(text, "End of the dialect. */"));
    }
    CHECK(unsetenv("ACME_WITHOUT") == 0);
}

static void test_errors(void) {
    const dtl_source_t source = m_source(GIVES("1"));
    dtl_module_t module;
    dtl_kernel_t kernel = {77};
    refused("#include \"dtl_kernel.h\"\n\nint b = second_name;\n", DTL_ERROR_COMPILE_FAILED, ".acme:3");
    refused("#include \"dtl_kernel.h\"\nDTL_KERNEL(k) {}\n", DTL_ERROR_COMPILE_FAILED, "takes_1_to_16_arguments");
    refused("#include \"dtl_kernel.h\"\nDTL_KERNEL(k, (int, a)) { DTL_BARRIER; }\n", DTL_ERROR_COMPILE_FAILED, "DTL_BARRIER");
    CHECK_OK(dtl_module_compile(acme, 0, &source, &module));
    CHECK_STATUS(dtl_kernel_get(module, "give", NULL, &kernel), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("give the signature");
    CHECK_STATUS(dtl_kernel_get(module, "take", "p", &kernel), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_kernel_get(module, "give", "[24]", &kernel), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_kernel_get(module, "give", "x", &kernel), DTL_ERROR_INVALID_ARGUMENT); /* not passed to the slot */
    CHECK_TEXT("signature \"x\"");
    CHECK(kernel.id == 77);
    CHECK_OK(dtl_module_destroy(module));
}

/* The library's text, in every state, whatever header the program was compiled with. */
static void test_text(const char *top) {
    static char text[1 << 17], path[512];
    FILE *file;
    size_t size;
    snprintf(path, sizeof path, "%s/include/dtl_kernel.h", top);
    file = fopen(path, "r");
    CHECK(file != NULL);
    size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    CHECK(strcmp(dtl_kernel_header(), text) == 0);
    CHECK(dtl_kernel_header() == dtl_kernel_header());
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    test_text(argv[2]); /* before dtl_init */
    plugins_begin(argc, argv);
    m_make_folder();
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_load(in(plugins, "acme.so"), &acme));
    p_test_files(acme, argv[2]);
    p_test_places(acme);
    test_missing();
    test_errors();
    CHECK_OK(dtl_finalize());
    test_text(argv[2]);
    m_remove(m_folder);
    return 0;
}
