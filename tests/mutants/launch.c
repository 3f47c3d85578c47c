/* Launches: a kernel over its grid, by the stream's thread. */
#include "whole.h"

#include <stdlib.h>
#include <string.h>

typedef struct launch_t {
    work_t work;
    dtl_launch_t shape;
    dtl_kernel_fn_t kernel;
    void *user;
    unsigned char *shared; /* of a block; NULL = none */
    uint64_t count;
    const void *args[]; /* to the copies behind them */
} launch_t;

static dtl_status_t run_block(const launch_t *launch, dtl_kernel_context_t *context)
{
    const uint32_t *size = launch->shape.block;
    const uint64_t threads = (uint64_t)size[0] * size[1] * size[2];
    const uint64_t end = is_fault("exec.launch.block_short") && threads > 1 ? threads - 1 : threads;
    if (launch->shared != NULL && !is_fault("exec.launch.shared_not_zeroed")) {
        memset(launch->shared, 0, launch->shape.shared_bytes);
    }
    for (uint64_t i = 0; i < end; i++) {
        context->thread_index[0] = (uint32_t)(i % size[0]);
        context->thread_index[1] = (uint32_t)(i / size[0] % size[1]);
        context->thread_index[2] = (uint32_t)(i / size[0] / size[1]);
        if (launch->shared != NULL && is_fault("exec.launch.shared_of_a_thread")) {
            memset(launch->shared, 0, launch->shape.shared_bytes);
        }
        const dtl_status_t status = launch->kernel(context, launch->args);
        if (status != DTL_SUCCESS && !is_fault("exec.launch.hides_failure")) {
            return status;
        }
    }
    return DTL_SUCCESS;
}

static dtl_kernel_context_t context_of(const launch_t *launch)
{
    dtl_kernel_context_t context;
    memset(&context, 0, sizeof context);
    context.struct_size = sizeof context;
    context.shared_bytes = launch->shape.shared_bytes;
    context.shared = launch->shared;
    context.user = launch->user;
    for (int axis = 0; axis < 3; axis++) {
        context.grid[axis] = launch->shape.grid[axis];
        context.block[axis] = launch->shape.block[axis];
    }
    if (is_fault("exec.launch.context_without_launch")) {
        context.grid[0] = context.block[0] = 1;
    }
    if (is_fault("exec.launch.shared_never_null") && context.shared == NULL) {
        context.shared = &context;
    }
    return context;
}

static dtl_status_t run_launch(work_t *work)
{
    const launch_t *launch = (const launch_t *)work;
    const uint32_t *size = launch->shape.grid;
    uint64_t end = (uint64_t)size[0] * size[1] * size[2];
    dtl_kernel_context_t context = context_of(launch);
    dtl_status_t status = DTL_SUCCESS;
    if (is_fault("exec.launch.grid_short") && end > 1) {
        end -= 1;
    }
    if (is_fault("exec.launch.sixteen_bits") && end > 65535) {
        end = 65535;
    }
    const uint64_t times = is_fault("exec.launch.twice") ? 2 : 1;
    for (uint64_t i = 0; i < end * times && status == DTL_SUCCESS; i++) {
        const uint64_t block = i % end;
        context.block_index[0] = (uint32_t)(block % size[0]);
        context.block_index[1] = (uint32_t)(block / size[0] % size[1]);
        context.block_index[2] = (uint32_t)(block / size[0] / size[1]);
        if (is_fault("exec.launch.axes_swapped")) {
            const uint32_t first = context.block_index[0];
            context.block_index[0] = context.block_index[1];
            context.block_index[1] = first;
        }
        if (is_fault("exec.launch.counted_from_1")) {
            context.block_index[0] += 1;
        }
        status = run_block(launch, &context);
    }
    return is_fault("exec.launch.fails_as_backend") && status != DTL_SUCCESS ? DTL_ERROR_BACKEND : status;
}

static void drop_launch(work_t *work)
{
    free(((launch_t *)work)->shared);
    free(work);
}

/* With copies of the arguments, each at a multiple of 64 bytes. */
static launch_t *copy_launch(const dtl_launch_t *shape, const void *const *args, const uint64_t *sizes,
                             uint64_t count)
{
    uint64_t bytes = sizeof(launch_t) + count * sizeof *args + 64, at;
    for (uint32_t i = 0; i < count; i++) {
        bytes += (sizes[i] + 63) / 64 * 64;
    }
    launch_t *launch = calloc(1, bytes);
    if (launch == NULL) {
        return NULL;
    }
    launch->shape = *shape;
    launch->count = count;
    at = (sizeof *launch + count * sizeof *args + 63) / 64 * 64;
    for (uint32_t i = 0; i < count; i++) {
        void *copy = (unsigned char *)launch + at;
        memcpy(copy, args[i], is_fault("exec.launch.args_capped") && sizes[i] > 256 ? 256 : sizes[i]);
        launch->args[i] = is_fault("exec.launch.args_late") ? args[i] : copy;
        at += (sizes[i] + 63) / 64 * 64;
    }
    if (shape->shared_bytes > 0) {
        launch->shared = calloc(1, shape->shared_bytes);
    }
    return launch;
}

static void shift_args(launch_t *launch)
{
    const void *first = launch->args[0];
    for (uint32_t i = 0; i + 1 < launch->count; i++) {
        launch->args[i] = launch->args[i + 1];
    }
    launch->args[launch->count - 1] = first;
}

dtl_status_t whole_launch(void *self, void *stream, const dtl_launch_t *shape, dtl_kernel_fn_t kernel, void *user,
                          const void *const *args, const uint64_t *sizes, uint64_t count)
{
    static void *previous;
    (void)self;
    if (is_fault("exec.launch.few_args") && count > 16) {
        return failed(DTL_ERROR_LIMIT, "more than 16 arguments");
    }
    if (is_fault("exec.launch.small_blocks_only") && (uint64_t)shape->block[0] * shape->block[1] * shape->block[2] > 128) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "a block has up to 128 threads");
    }
    launch_t *launch = copy_launch(shape, args, sizes, count);
    if (launch == NULL || (shape->shared_bytes > 0 && launch->shared == NULL)) {
        free(launch);
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a launch");
    }
    launch->work.run = run_launch;
    launch->work.drop = drop_launch;
    launch->kernel = kernel;
    launch->user = is_fault("exec.launch.wrong_user") && previous != NULL ? previous : user;
    previous = user;
    if (is_fault("exec.launch.args_shifted") && count > 1) {
        shift_args(launch);
    }
    if (is_fault("exec.launch.ahead_of_order")) {
        const dtl_status_t status = run_launch(&launch->work);
        drop_launch(&launch->work);
        return status;
    }
    return stream_push(is_fault("exec.launch.wrong_stream") ? stream_of_nobody() : stream, &launch->work);
}
