/* @NAME@, the exec component: modules and kernels. A module is a shared object in memory, or the
 * text "@NAME@:builtin", the kernels that are compiled into this file. A backend with a compiler
 * also takes source: language 0 is C with the macros of dtl_kernel.h.
 *
 * It works as it stands only if the host can access the memory of the backend: kernels run in this
 * process, with one call for each thread of the grid, without blocks and shared memory. For a card
 * with its own memory, replace run_launch and `add`, and pass shape->grid, shape->block,
 * shape->shared_bytes and the arguments to the card. Until then the test exec.module.computes
 * crashes. card/launch.c of the example sim (share/dtl/examples-plugins) runs blocks with shared
 * memory. */
#include "@HEADER@"
#include "exec_binary.h"
#include "exec_queue.h"

#include <stdlib.h>
#include <string.h>

/* ---- kernels by name: called once for each thread of a launch, with its position ---- */

/* Adds the second argument to each element of the first. */
static void add(const uint64_t position[3], const void *const *args)
{
    int32_t *const to = *(int32_t *const *)args[0];
    to[position[0]] += *(const int32_t *)args[1];
}

static const struct builtin_t {
    const char *name;
    @ID@_kernel_t function;
} builtin[] = {
    {"add", add},
};

/* ---- modules: these five slots, or none of them ---- */

typedef struct module_t {
    @ID@_binary_t *binary; /* NULL: the kernels of this file */
} module_t;

/* Also a part of each queued launch: the kernel may be destroyed before it runs. */
typedef struct kernel_t {
    @ID@_binary_t *binary; /* one reference; NULL: a kernel of this file */
    @ID@_kernel_t function;
} kernel_t;

static void release(kernel_t *kernel)
{
    if (kernel->binary != NULL) @ID@_binary_release(kernel->binary);
}

/* Compiles or loads source for a device. source->text has source->size_bytes bytes, and is valid
 * during the call. Passes the messages of a compiler to log(log_user, ...), even after a success.
 * Errors: DTL_ERROR_NOT_SUPPORTED for other languages, with a text that names those it takes;
 * DTL_ERROR_COMPILE_FAILED for an error in the source. */
static dtl_status_t module_compile(void *self, int32_t device, const dtl_source_t *source,
                                   dtl_text_fn_t log, void *log_user, void **out_module)@NOTHROW@
{
    static const char own[] = "@NAME@:builtin";
    char why[512];
    (void)device;
    if (source->language != DTL_LANGUAGE_BINARY) {
        return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED, "it takes binaries (DTL_LANGUAGE_BINARY)");
    }
    module_t *module = (module_t *)calloc(1, sizeof *module);
    if (module == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a module");
    if (strncmp((const char *)source->text, own, sizeof own - 1) != 0) {
        module->binary = @ID@_binary_load(source->text, source->size_bytes, why, sizeof why);
        if (module->binary == NULL) {
            free(module);
            log(log_user, why, strlen(why));
            return @ID@_fail(self, DTL_ERROR_COMPILE_FAILED, "%s", why);
        }
    }
    *out_module = module;
    return DTL_SUCCESS;
}

/* Destroys a module. All its kernels have been destroyed; their launches may still be queued. */
static dtl_status_t module_destroy(void *self, void *argument)@NOTHROW@
{
    module_t *module = (module_t *)argument;
    (void)self;
    if (module->binary != NULL) @ID@_binary_release(module->binary);
    free(module);
    return DTL_SUCCESS;
}

static @ID@_kernel_t find(const module_t *module, const char *name)
{
    if (module->binary != NULL) return @ID@_binary_find(module->binary, name);
    for (size_t i = 0; i < sizeof builtin / sizeof *builtin; i++) {
        if (strcmp(builtin[i].name, name) == 0) return builtin[i].function;
    }
    return NULL;
}

/* Finds a kernel. `signature` has a letter for each argument (dtl_kernel_get); the library checks
 * each launch against it. If your binaries describe the arguments, compare them with the signature,
 * and accept NULL. Errors: DTL_ERROR_NOT_FOUND; DTL_ERROR_INVALID_ARGUMENT without a signature,
 * because the arguments of a launch could not be checked. */
static dtl_status_t kernel_get(void *self, void *argument, const char *name, const char *signature,
                               void **out_kernel)@NOTHROW@
{
    const module_t *module = (const module_t *)argument;
    const @ID@_kernel_t function = find(module, name);
    if (function == NULL) return @ID@_fail(self, DTL_ERROR_NOT_FOUND, "no kernel \"%s\"", name);
    if (signature == NULL) {
        return @ID@_fail(self, DTL_ERROR_INVALID_ARGUMENT,
                         "kernel \"%s\" needs a signature: the binary has no types", name);
    }
    kernel_t *kernel = (kernel_t *)malloc(sizeof *kernel);
    if (kernel == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a kernel");
    kernel->binary = module->binary != NULL ? @ID@_binary_keep(module->binary) : NULL;
    kernel->function = function;
    *out_kernel = kernel;
    return DTL_SUCCESS;
}

/* Destroys a kernel. Launches that are queued must still run. */
static dtl_status_t kernel_destroy(void *self, void *kernel)@NOTHROW@
{
    (void)self;
    release((kernel_t *)kernel);
    free(kernel);
    return DTL_SUCCESS;
}

/* A launch in a stream, with copies of the arguments. */
typedef struct launch_t {
    kernel_t kernel;
    uint64_t threads[3];
    const void **args;     /* to the copies in `values` */
    unsigned char *values;
} launch_t;

static void destroy_launch(launch_t *launch)
{
    free(launch->args);
    free(launch->values);
    free(launch);
}

/* Runs a launch in its stream. Returns DTL_ERROR_BACKEND if the kernel failed, or
 * DTL_ERROR_DEVICE_LOST if the card cannot be used any more, and stores the cause for
 * stream_synchronize. DTL_ERROR_NATIVE_BACKEND is not for backends: with it the library reports
 * invalid outputs of slots. */
static int run_launch(void *argument)
{
    launch_t *launch = (launch_t *)argument;
    uint64_t at[3];
    for (at[2] = 0; at[2] < launch->threads[2]; at[2]++) {
        for (at[1] = 0; at[1] < launch->threads[1]; at[1]++) {
            for (at[0] = 0; at[0] < launch->threads[0]; at[0]++) {
                launch->kernel.function(at, launch->args);
            }
        }
    }
    release(&launch->kernel);
    destroy_launch(launch);
    return DTL_SUCCESS; /* a failure of the kernel would be returned here */
}

/* Queues a kernel. args[i] points to sizes[i] bytes, which are valid during the call only.
 * The library has checked grid and block against dtl_device_info, the device of the module against
 * that of the stream, and the arguments against the signature. The slot checks shape->shared_bytes
 * against the limit of the device (DTL_ERROR_INVALID_ARGUMENT; DTL_ERROR_NOT_SUPPORTED if the
 * device has no shared memory). */
static dtl_status_t kernel_launch(void *self, void *stream, void *argument,
                                  const dtl_launch_t *shape, const void *const *args,
                                  const uint64_t *sizes, uint64_t count)@NOTHROW@
{
    uint64_t bytes = 1, used = 0;
    if (shape->shared_bytes > 0) {
        return @ID@_fail(self, DTL_ERROR_NOT_SUPPORTED,
                         "shared_bytes of the launch is %u; kernels have no shared memory",
                         shape->shared_bytes);
    }
    for (uint64_t i = 0; i < count; i++) bytes += (sizes[i] + 15) / 16 * 16;
    launch_t *launch = (launch_t *)calloc(1, sizeof *launch);
    if (launch == NULL) return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a launch");
    launch->args = (const void **)calloc(count + 1, sizeof *launch->args);
    launch->values = (unsigned char *)malloc(bytes);
    if (launch->args == NULL || launch->values == NULL) {
        destroy_launch(launch);
        return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for the arguments");
    }
    for (uint64_t i = 0; i < count; i++) {
        launch->args[i] = memcpy(launch->values + used, args[i], sizes[i]);
        used += (sizes[i] + 15) / 16 * 16;
    }
    for (int i = 0; i < 3; i++) launch->threads[i] = (uint64_t)shape->grid[i] * shape->block[i];
    launch->kernel = *(const kernel_t *)argument;
    if (launch->kernel.binary != NULL) @ID@_binary_keep(launch->kernel.binary);
    if (@ID@_queue_push((@ID@_queue_t *)stream, run_launch, launch) == 0) return DTL_SUCCESS;
    release(&launch->kernel);
    destroy_launch(launch);
    return @ID@_fail(self, DTL_ERROR_OUT_OF_MEMORY, "no memory for a launch");
}

void @ID@_add_kernels(dtl_exec_vtable_t *table)
{
    table->module_compile = module_compile;
    table->module_destroy = module_destroy;
    table->kernel_get = kernel_get;
    table->kernel_destroy = kernel_destroy;
    table->kernel_launch = kernel_launch;
}
