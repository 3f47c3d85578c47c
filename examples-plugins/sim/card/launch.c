/* Launches: a kernel is called for each block or thread of a grid, by the thread of a queue. */
#include "card.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 64 }; /* alignment of the copies of arguments */

struct card_launch_t {
    card_kernel_t kernel;
    dtl_launch_t shape;
    unsigned char *shared; /* of a block; NULL = none */
    const void *args[];    /* to the copies behind them */
};

static uint64_t rounded(uint64_t size) { return (size + STEP - 1) / STEP * STEP; }

card_launch_t *card_launch_create(const card_kernel_t *kernel, const dtl_launch_t *shape,
                                  const void *const *args, const uint64_t *sizes, uint64_t count)
{
    uint64_t at = rounded(sizeof(card_launch_t) + count * sizeof *args), bytes = at;
    for (uint64_t i = 0; i < count; i++) bytes += rounded(sizes[i]);
    card_launch_t *launch = aligned_alloc(STEP, bytes);
    unsigned char *shared = shape->shared_bytes > 0 ? malloc(shape->shared_bytes) : NULL;
    if (launch == NULL || (shape->shared_bytes > 0 && shared == NULL)) {
        free(launch), free(shared);
        return NULL;
    }
    launch->kernel = *kernel;
    launch->shape = *shape;
    launch->shared = shared;
    card_program_keep(kernel->program);
    for (uint64_t i = 0; i < count; i++) {
        void *copy = (unsigned char *)launch + at;
        memcpy(copy, args[i], sizes[i]);
        if (sizes[i] == sizeof(void *)) { /* a pointer to memory of the card is translated */
            void *address;
            memcpy(&address, copy, sizeof address);
            address = card_translate(address);
            memcpy(copy, &address, sizeof address);
        }
        launch->args[i] = copy;
        at += rounded(sizes[i]);
    }
    return launch;
}

static dtl_status_t run_block(const card_launch_t *launch, dtl_kernel_context_t *context)
{
    const uint32_t *size = context->block;
    uint32_t *at = context->thread_index;
    if (launch->shared != NULL) memset(launch->shared, 0, launch->shape.shared_bytes);
    at[0] = at[1] = at[2] = 0;
    if (launch->kernel.is_of_block) return launch->kernel.run(context, launch->args);
    for (at[2] = 0; at[2] < size[2]; at[2]++) {
        for (at[1] = 0; at[1] < size[1]; at[1]++) {
            for (at[0] = 0; at[0] < size[0]; at[0]++) {
                const dtl_status_t status = launch->kernel.run(context, launch->args);
                if (status != DTL_SUCCESS) return status;
            }
        }
    }
    return DTL_SUCCESS;
}

enum { PRIORITIES = CARD_LEAST - CARD_GREATEST + 1 };

/* The engine of a device, which runs one kernel at a time. */
static struct engine_t {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int busy, waiting[PRIORITIES]; /* kernels of each priority, the highest first */
} engines[CARD_DEVICES] = {
    {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
    {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
};

static int is_next(const struct engine_t *engine, int32_t index)
{
    for (int32_t higher = 0; higher < index; higher++) {
        if (engine->waiting[higher] > 0) return 0;
    }
    return !engine->busy;
}

static void take_engine(struct engine_t *engine, int32_t priority)
{
    const int32_t index = priority - CARD_GREATEST;
    pthread_mutex_lock(&engine->lock);
    engine->waiting[index]++;
    while (!is_next(engine, index)) pthread_cond_wait(&engine->changed, &engine->lock);
    engine->waiting[index]--;
    engine->busy = 1;
    pthread_mutex_unlock(&engine->lock);
}

static void release_engine(struct engine_t *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->busy = 0;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static dtl_status_t run_grid(const card_launch_t *launch)
{
    dtl_kernel_context_t context;
    const uint32_t *size = launch->shape.grid;
    uint32_t *at = context.block_index;
    memset(&context, 0, sizeof context);
    context.struct_size = sizeof context;
    context.shared_bytes = launch->shape.shared_bytes;
    context.shared = launch->shared;
    context.user = launch->kernel.user;
    memcpy(context.grid, launch->shape.grid, sizeof context.grid);
    memcpy(context.block, launch->shape.block, sizeof context.block);
    for (at[2] = 0; at[2] < size[2]; at[2]++) {
        for (at[1] = 0; at[1] < size[1]; at[1]++) {
            for (at[0] = 0; at[0] < size[0]; at[0]++) {
                const dtl_status_t status = run_block(launch, &context);
                if (status != DTL_SUCCESS) return status;
            }
        }
    }
    return DTL_SUCCESS;
}

/* Functions of the host do not take the engine: they may wait for each other. */
dtl_status_t card_launch_run(card_launch_t *launch, int32_t device, int32_t priority)
{
    if (launch->kernel.program == NULL) return run_grid(launch);
    take_engine(&engines[device], priority);
    const dtl_status_t status = run_grid(launch);
    release_engine(&engines[device]);
    return status;
}

void card_launch_release(card_launch_t *launch)
{
    card_program_release(launch->kernel.program);
    free(launch->shared);
    free(launch);
}
