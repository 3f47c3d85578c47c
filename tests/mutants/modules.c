/* Kernels from source. The compiler knows one sort of kernel: DTL_KERNEL(name, a pointer to ints, an int), which adds the int to
 * the one that the thread's number says. A text without DTL_KERNEL is an error. A binary is such
 * a text, too. */
#include "whole.h"

#include <stdlib.h>
#include <string.h>

typedef struct module_t {
    char text[4096];
} module_t;

typedef struct compiled_t {
    int references; /* the handle's, and that of each launch */
} compiled_t;

static void let_go(compiled_t *kernel)
{
    if (__atomic_sub_fetch(&kernel->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free(kernel);
    }
}

static dtl_status_t whole_compile(void *self, int32_t device, const dtl_source_t *source, dtl_text_fn_t log, void *log_user,
                                  void **out_module)
{
    static const char error[] = "line 1: error: there is no DTL_KERNEL";
    (void)self, (void)device;
    const int is_text = source->language == 0 && strcmp(fault_name(), "exec.modules.binaries_only") != 0;
    if ((!is_text && source->language != DTL_LANGUAGE_BINARY) || source->size_bytes >= sizeof(module_t)) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "it takes short texts of language 0 or DTL_LANGUAGE_BINARY");
    }
    if (strstr(source->text, "DTL_KERNEL") == NULL && !is_fault("exec.module_compile.takes_anything")) {
        if (!is_fault("exec.module_compile.no_log")) {
            log(log_user, error, sizeof error - 1);
        }
        return failed(is_fault("exec.module_compile.wrong_refusal") ? DTL_ERROR_BACKEND : DTL_ERROR_COMPILE_FAILED, error);
    }
    module_t *module = calloc(1, sizeof *module);
    if (module == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a module");
    }
    memcpy(module->text, source->text, source->size_bytes);
    *out_module = module;
    return DTL_SUCCESS;
}

static dtl_status_t whole_module_destroy(void *self, void *module)
{
    (void)self;
    free(module);
    return DTL_SUCCESS;
}

static dtl_status_t whole_kernel_get(void *self, void *pointer, const char *name, const char *signature, void **out_kernel)
{
    const module_t *module = pointer;
    const char *at = strstr(module->text, "DTL_KERNEL(");
    const size_t length = strlen(name);
    (void)self, (void)signature;
    while (at != NULL && (strncmp(at + 11, name, length) != 0 || at[11 + length] != ',')) {
        at = strstr(at + 1, "DTL_KERNEL(");
    }
    if (at == NULL && !is_fault("exec.kernel_get.takes_any_name")) {
        return failed(is_fault("exec.kernel_get.wrong_refusal") ? DTL_ERROR_COMPILE_FAILED : DTL_ERROR_NOT_FOUND,
                      "there is no kernel of this name");
    }
    compiled_t *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a kernel");
    }
    kernel->references = 1;
    *out_kernel = kernel;
    return DTL_SUCCESS;
}

static dtl_status_t whole_kernel_destroy(void *self, void *kernel)
{
    (void)self;
    let_go(kernel);
    return DTL_SUCCESS;
}

/* A launch in a stream. */
typedef struct adding_t {
    work_t work;
    compiled_t *kernel;
    int *to;
    int what;
    uint64_t threads;
} adding_t;

static dtl_status_t run_adding(work_t *work)
{
    const adding_t *adding = (const adding_t *)work;
    for (uint64_t i = 0; i < adding->threads; i++) {
        adding->to[i] += adding->what;
    }
    return DTL_SUCCESS;
}

static void drop_adding(work_t *work)
{
    let_go(((adding_t *)work)->kernel);
    free(work);
}

static dtl_status_t whole_kernel_launch(void *self, void *stream, void *kernel, const dtl_launch_t *shape,
                                        const void *const *args, const uint64_t *sizes, uint64_t count)
{
    (void)self;
    if (count != 2 || sizes[0] != sizeof(int *) || sizes[1] != sizeof(int)) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "a kernel takes a pointer and an int");
    }
    adding_t *adding = calloc(1, sizeof *adding);
    if (adding == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a launch");
    }
    adding->work.run = run_adding;
    adding->work.drop = drop_adding;
    adding->kernel = kernel;
    __atomic_add_fetch(&adding->kernel->references, 1, __ATOMIC_RELAXED);
    memcpy(&adding->to, args[0], sizeof adding->to);
    memcpy(&adding->what, args[1], sizeof adding->what);
    adding->threads = (uint64_t)shape->grid[0] * shape->block[0];
    if (is_fault("exec.kernel_launch.one_block")) {
        adding->threads = shape->block[0];
    }
    if (is_fault("exec.kernel_launch.one_thread_a_block")) {
        adding->threads = shape->grid[0];
    }
    if (is_fault("exec.kernel_launch.first_argument_only")) {
        adding->what = 1;
    }
    if (is_fault("exec.kernel_launch.ahead_of_order")) {
        const dtl_status_t status = run_adding(&adding->work);
        drop_adding(&adding->work);
        return status;
    }
    return stream_push(is_fault("exec.kernel_launch.wrong_stream") ? stream_of_nobody() : stream, &adding->work);
}

SLOT(exec, module_compile, whole_compile,
     (void *self, int32_t device, const dtl_source_t *source, dtl_text_fn_t log, void *log_user, void **out_module),
     (self, device, source, log, log_user, out_module))
SLOT(exec, module_destroy, whole_module_destroy, (void *self, void *module), (self, module))
SLOT(exec, kernel_get, whole_kernel_get,
     (void *self, void *module, const char *name, const char *signature, void **out_kernel),
     (self, module, name, signature, out_kernel))
SLOT(exec, kernel_destroy, whole_kernel_destroy, (void *self, void *kernel), (self, kernel))
SLOT(exec, kernel_launch, whole_kernel_launch,
     (void *self, void *stream, void *kernel, const dtl_launch_t *launch, const void *const *args, const uint64_t *sizes,
      uint64_t count),
     (self, stream, kernel, launch, args, sizes, count))

void add_modules(dtl_exec_vtable_t *table)
{
    table->module_compile = slot_module_compile;
    table->module_destroy = slot_module_destroy;
    table->kernel_get = slot_kernel_get;
    table->kernel_destroy = slot_kernel_destroy;
    table->kernel_launch = slot_kernel_launch;
}
