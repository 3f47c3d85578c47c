/* The exec component, kernels: modules from source, from a binary or of the firmware, and kernels
 * that the program made from functions. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dtl_status_t module_compile(void *self, int32_t device, const dtl_source_t *source,
                                   dtl_text_fn_t log, void *log_user, void **out_module)
{
    char why[512] = "";
    card_program_t *program = NULL;
    (void)self;
    if (card_is_lost(device)) return sim_lost(device);
    if (card_fails("compile")) return sim_fail(DTL_ERROR_BACKEND,
                                               "the compiler failed, by DTL_BACKEND_SIM_FAULT");
    switch (card_compile(source, log, log_user, &program, why, sizeof why)) {
    case CARD_OK:
        *out_module = program;
        return DTL_SUCCESS;
    case CARD_NO_MEMORY:
        return sim_fail(DTL_ERROR_OUT_OF_MEMORY, "%s", why);
    case CARD_NO_COMPILER:
        return sim_fail(DTL_ERROR_UNAVAILABLE, "%s", why);
    case CARD_BAD_LANGUAGE:
        return sim_fail(DTL_ERROR_NOT_SUPPORTED,
                        "sim takes language 0 (C with dtl_kernel.h), DTL_LANGUAGE_C and "
                        "DTL_LANGUAGE_BINARY");
    default:
        return sim_fail(DTL_ERROR_COMPILE_FAILED, "%s", why);
    }
}

static dtl_status_t module_destroy(void *self, void *module)
{
    (void)self;
    card_program_release(module);
    return DTL_SUCCESS;
}

typedef struct kernel_t {
    card_kernel_t kernel;
    char name[];
} kernel_t;

static dtl_status_t kernel_destroy(void *self, void *kernel)
{
    (void)self;
    card_program_release(((kernel_t *)kernel)->kernel.program); /* a queued launch has its own */
    free(kernel);
    return DTL_SUCCESS;
}

static dtl_status_t kernel_get(void *self, void *module, const char *name, const char *signature,
                               void **out_kernel)
{
    const size_t size = strlen(name) + 1;
    kernel_t *kernel = malloc(sizeof *kernel + size);
    (void)self;
    if (kernel == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    memcpy(kernel->name, name, size);
    if (card_find(module, name, &kernel->kernel) != CARD_OK) {
        free(kernel);
        return sim_fail(DTL_ERROR_NOT_FOUND, "the module has no DTL_KERNEL(%s, ...)", name);
    }
    const int differs = card_differs(&kernel->kernel, signature);
    if (differs >= 0) {
        DTL_IGNORE(kernel_destroy(self, kernel));
        return sim_fail(DTL_ERROR_INVALID_ARGUMENT,
                        "signature \"%s\": argument %d of kernel \"%s\" is another one", signature,
                        differs, name);
    }
    *out_kernel = kernel;
    return DTL_SUCCESS;
}

typedef struct launch_t {
    sim_job_t job;
    card_launch_t *launch;
    char name[64]; /* in traces; cut. The kernel may be destroyed before it runs. */
} launch_t;

static dtl_status_t run_launch(sim_job_t *job)
{
    return card_launch_run(((launch_t *)job)->launch, job->stream->device, job->stream->priority);
}

static void drop_launch(sim_job_t *job)
{
    card_launch_release(((launch_t *)job)->launch);
    free(job);
}

static dtl_status_t push(void *stream, const card_kernel_t *kernel, const char *name,
                         const dtl_launch_t *shape,
                         const void *const *args, const uint64_t *sizes, uint64_t count)
{
    card_launch_t *launch = card_launch_create(kernel, shape, args, sizes, count);
    launch_t *job = launch != NULL ? calloc(1, sizeof *job) : NULL;
    if (job != NULL) {
        job->launch = launch;
        job->job.name = job->name;
        snprintf(job->name, sizeof job->name, "%s", name);
    } else if (launch != NULL) {
        card_launch_release(launch);
    }
    return sim_push(stream, job, "launch", run_launch, drop_launch);
}

static dtl_status_t kernel_launch(void *self, void *stream, void *argument,
                                  const dtl_launch_t *shape,
                                  const void *const *args, const uint64_t *sizes, uint64_t count)
{
    const kernel_t *named = argument;
    const card_kernel_t *kernel = &named->kernel;
    (void)self;
    if (count != kernel->count) {
        return sim_fail(DTL_ERROR_INVALID_ARGUMENT, "the kernel takes %u arguments, not %llu",
                        kernel->count, (unsigned long long)count);
    }
    for (uint64_t i = 0; i < count; i++) {
        if (sizes[i] == kernel->sizes[i]) continue;
        return sim_fail(DTL_ERROR_INVALID_ARGUMENT,
                        "argument %llu of the kernel has %lu bytes, not %llu",
                        (unsigned long long)i, kernel->sizes[i], (unsigned long long)sizes[i]);
    }
    return push(stream, kernel, named->name, shape, args, sizes, count);
}

static dtl_status_t launch(void *self, void *stream, const dtl_launch_t *shape,
                           dtl_kernel_fn_t function, void *user,
                           const void *const *args, const uint64_t *sizes, uint64_t count)
{
    const card_kernel_t kernel = {.run = function, .user = user};
    (void)self;
    return push(stream, &kernel, "function", shape, args, sizes, count);
}

void sim_add_kernels(dtl_exec_vtable_t *exec)
{
    exec->launch = launch;
    exec->module_compile = module_compile;
    exec->module_destroy = module_destroy;
    exec->kernel_get = kernel_get;
    exec->kernel_destroy = kernel_destroy;
    exec->kernel_launch = kernel_launch;
}
