/* Kernels from source. The compiler knows five kernels: "place", "group_place", "sums" and "fails" of dtl-ctk by their
 * names, and any other DTL_KERNEL(name, a pointer to ints, an int), which adds the int to the one that the thread's
 * number says. A text without DTL_KERNEL is an error. A binary is such a text, too. */
#include "whole.h"

#include <stdlib.h>
#include <string.h>

typedef struct module_t {
    char text[4096];
    int is_gone; /* for a fault */
} module_t;

typedef enum sort_t { ADD, PLACE, GROUP_PLACE, SUMS, FAILS, SORTS } sort_t;

typedef struct compiled_t {
    int references; /* the handle's, and that of each launch */
    sort_t sort;
    int *is_module_gone; /* for a fault, else NULL */
    int is_gone;         /* for a fault */
} compiled_t;

static sort_t sort_of(const char *name)
{
    static const char *const names[SORTS] = {"", "place", "group_place", "sums", "fails"};
    for (int sort = PLACE; sort < SORTS; sort++) {
        if (strcmp(name, names[sort]) == 0) {
            return (sort_t)sort;
        }
    }
    return ADD;
}

/* A pointer, and an int or another pointer. */
static int is_of_kernel(const char *signature, sort_t sort)
{
    return signature[0] == 'p' && signature[1] != '\0' && signature[2] == '\0' &&
           strchr(sort == SUMS ? "p" : "iI", signature[1]) != NULL;
}

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
    if (is_fault("exec.module_destroy.queued_launches_too")) {
        ((module_t *)module)->is_gone = 1; /* leaked, so that its launches can find that */
        return DTL_SUCCESS;
    }
    free(module);
    return DTL_SUCCESS;
}

static dtl_status_t whole_kernel_get(void *self, void *pointer, const char *name, const char *signature, void **out_kernel)
{
    module_t *module = pointer;
    const char *at = strstr(module->text, "_KERNEL("); /* of DTL_KERNEL or DTL_BLOCK_KERNEL */
    const size_t length = strlen(name);
    (void)self;
    while (at != NULL && (strncmp(at + 8, name, length) != 0 || at[8 + length] != ',')) {
        at = strstr(at + 1, "_KERNEL(");
    }
    if (at == NULL && !is_fault("exec.kernel_get.takes_any_name")) {
        return failed(is_fault("exec.kernel_get.wrong_refusal") ? DTL_ERROR_COMPILE_FAILED : DTL_ERROR_NOT_FOUND,
                      "there is no kernel of this name");
    }
    if (signature == NULL && is_fault("exec.kernel_get.no_signature_crashes")) {
        abort();
    }
    if (signature == NULL && is_fault("exec.kernel_get.no_signature_as_backend")) {
        return failed(DTL_ERROR_BACKEND, "there is no signature");
    }
    if (signature != NULL && !is_of_kernel(signature, sort_of(name)) && !is_fault("exec.kernel_get.any_signature") &&
        !(is_fault("exec.kernel_get.sizes_unchecked") && strlen(signature) == 2)) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "the kernel has other arguments");
    }
    compiled_t *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a kernel");
    }
    kernel->is_module_gone = is_fault("exec.module_destroy.queued_launches_too") ? &module->is_gone : NULL;
    kernel->references = 1;
    kernel->sort = sort_of(name);
    *out_kernel = kernel;
    return DTL_SUCCESS;
}

static dtl_status_t whole_kernel_destroy(void *self, void *kernel)
{
    (void)self;
    if (is_fault("exec.kernel_destroy.queued_launches_too")) {
        __atomic_store_n(&((compiled_t *)kernel)->is_gone, 1, __ATOMIC_RELEASE);
    }
    let_go(kernel);
    return DTL_SUCCESS;
}

/* A launch in a stream. */
typedef struct adding_t {
    work_t work;
    compiled_t *kernel;
    int *to;
    union {
        int what;
        int *more; /* of sums: where the results go */
    } second;
    dtl_launch_t shape;
    const void *late[2]; /* for a fault: the arguments as they were passed */
} adding_t;

/* The number of a thread or block in a space: x varies fastest. */
static uint64_t number(const uint32_t at[3], const uint32_t size[3])
{
    return ((uint64_t)at[2] * size[1] + at[1]) * size[0] + at[0];
}

/* The element of a thread, by its position in the grid or by that in its block. */
static uint64_t element(const adding_t *adding, const uint32_t block[3], const uint32_t thread[3])
{
    const uint32_t *grid = adding->shape.grid, *size = adding->shape.block;
    if (adding->kernel->sort == GROUP_PLACE) {
        const uint64_t threads = (uint64_t)size[0] * size[1] * size[2];
        const uint64_t first = is_fault("exec.kernel_launch.blocks_at_the_first") ? 0 : number(block, grid) * threads;
        return first + (is_fault("exec.kernel_launch.threads_of_a_plane") ? number(thread, size) % (size[0] * size[1])
                                                                          : number(thread, size));
    }
    uint32_t at[3], all[3];
    for (int axis = 0; axis < 3; axis++) {
        all[axis] = grid[axis] * size[axis];
        at[axis] = block[axis] * size[axis] + thread[axis];
    }
    if (is_fault("exec.kernel_launch.y_of_z")) {
        const uint32_t y = at[1];
        at[1] = at[2] % all[1];
        at[2] = y % all[2];
    }
    return number(at, all);
}

static void place_block(const adding_t *adding, const uint32_t block[3])
{
    const uint32_t *size = adding->shape.block;
    const uint32_t depth = is_fault("exec.kernel_launch.flat_blocks") ? 1 : size[2];
    for (uint32_t z = 0; z < depth; z++) {
        for (uint32_t y = 0; y < size[1]; y++) {
            for (uint32_t x = 0; x < size[0]; x++) {
                const uint32_t thread[3] = {x, y, z};
                const uint64_t at = element(adding, block, thread);
                adding->to[at] += adding->second.what + (int)at;
            }
        }
    }
}

/* A tree over 64 elements; without barriers each thread goes through all of its steps at once. */
static void sum_block(const adding_t *adding, const uint32_t block[3])
{
    static _Thread_local int part[64];
    const uint32_t first = block[0] * 64;
    if (is_fault("exec.kernel_launch.no_barrier")) {
        for (int i = 0; i < 64; i++) {
            part[i] = adding->to[first + (uint32_t)i];
            for (int width = 32; width > 0; width /= 2) {
                part[i] += i < width ? part[i + width] : 0;
            }
        }
    } else {
        if (!is_fault("exec.kernel_launch.shared_by_all_blocks") || block[0] == 0) {
            memcpy(part, adding->to + first, sizeof part);
        }
        for (int width = 32; width > 0; width /= 2) {
            for (int i = 0; i < width; i++) {
                part[i] += part[i + width];
            }
        }
    }
    adding->second.more[block[0]] = part[0];
}

static void run_blocks(const adding_t *adding)
{
    const uint32_t *grid = adding->shape.grid;
    const uint32_t depth = is_fault("exec.kernel_launch.flat_grids") ? 1 : grid[2];
    const uint32_t height = is_fault("exec.kernel_launch.one_row") ? 1 : grid[1];
    for (uint32_t z = 0; z < depth; z++) {
        for (uint32_t y = 0; y < height; y++) {
            for (uint32_t x = 0; x < grid[0]; x++) {
                const uint32_t block[3] = {x, y, z};
                if (adding->kernel->sort == SUMS) {
                    sum_block(adding, block);
                } else {
                    place_block(adding, block);
                }
            }
        }
    }
}

static dtl_status_t run_adding(work_t *work)
{
    adding_t *adding = (adding_t *)work;
    const compiled_t *kernel = adding->kernel;
    uint64_t threads = (uint64_t)adding->shape.grid[0] * adding->shape.block[0];
    if (__atomic_load_n(&kernel->is_gone, __ATOMIC_ACQUIRE) ||
        (kernel->is_module_gone != NULL && *kernel->is_module_gone)) {
        return DTL_SUCCESS;
    }
    if (kernel->sort == FAILS) {
        return is_fault("exec.kernel_launch.hides_failure") ? DTL_SUCCESS : DTL_ERROR_BACKEND;
    }
    if (is_fault("exec.kernel_launch.args_late")) {
        memcpy(&adding->to, adding->late[0], sizeof adding->to);
        memcpy(&adding->second, adding->late[1], kernel->sort == SUMS ? sizeof(int *) : sizeof(int));
    }
    if (kernel->sort != ADD) {
        run_blocks(adding);
        return DTL_SUCCESS;
    }
    if (is_fault("exec.kernel_launch.one_block")) {
        threads = adding->shape.block[0];
    }
    if (is_fault("exec.kernel_launch.one_thread_a_block")) {
        threads = adding->shape.grid[0];
    }
    for (uint64_t i = 0; i < threads; i++) {
        adding->to[i] += adding->second.what;
    }
    return DTL_SUCCESS;
}

static void drop_adding(work_t *work)
{
    let_go(((adding_t *)work)->kernel);
    free(work);
}

static int has_failed;

/* Refuses a launch, and leaves a failure with which each later launch fails. */
static dtl_status_t failed_for_good(void)
{
    has_failed = 1;
    return failed(DTL_ERROR_LIMIT, "a block has up to 128 threads");
}

static dtl_status_t whole_kernel_launch(void *self, void *stream, void *kernel, const dtl_launch_t *shape,
                                        const void *const *args, const uint64_t *sizes, uint64_t count)
{
    (void)self;
    const compiled_t *compiled = kernel;
    const uint64_t second = compiled->sort == SUMS ? sizeof(int *) : sizeof(int);
    const int is_count_only = is_fault("exec.kernel_launch.sizes_unchecked") && count == 2;
    if (count == 0 && is_fault("exec.kernel_launch.nothing_for_no_arguments")) {
        return DTL_SUCCESS;
    }
    if ((count != 2 || sizes[0] != sizeof(int *) || sizes[1] != second) && !is_count_only) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "a kernel takes a pointer, and an int or another pointer");
    }
    if (has_failed) {
        return failed(DTL_ERROR_BACKEND, "an earlier launch has failed");
    }
    if (is_fault("exec.kernel_launch.refusal_stays") &&
        (uint64_t)shape->block[0] * shape->block[1] * shape->block[2] > 128) {
        return failed_for_good();
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
    memcpy(&adding->second, args[1], second);
    adding->shape = *shape;
    memcpy(adding->late, args, sizeof adding->late);
    if (is_fault("exec.kernel_launch.first_argument_only")) {
        adding->second.what = 1;
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
