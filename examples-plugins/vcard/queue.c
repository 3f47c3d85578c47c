/* Queues and fences, with a thread for each queue. C and C++. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static int reach(void *fence);

typedef struct item_t {
    struct item_t *next;
    vc_job_t job;
    void *argument;
} item_t;

struct vc_queue_t {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    item_t *first, **last;
    int pending; /* jobs that have not ended, without fences */
    int closing, error;
};

struct vc_fence_t {
    pthread_mutex_t lock;
    pthread_cond_t reached;
    vc_queue_t *queue; /* not used after it was reached: the queue may be destroyed then */
    int references, done, error;
    uint64_t time_ns;
};

static void *work(void *argument)
{
    vc_queue_t *queue = (vc_queue_t *)argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        item_t *now = queue->first;
        if (now == NULL && queue->closing) break;
        if (now == NULL) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        queue->first = now->next;
        if (queue->first == NULL) queue->last = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        const int error = now->job(now->argument);
        pthread_mutex_lock(&queue->lock);
        if (queue->error == 0) queue->error = error;
        if (now->job != reach) queue->pending--;
        free(now);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

vc_queue_t *vc_queue_create(void)
{
    vc_queue_t *queue = (vc_queue_t *)calloc(1, sizeof *queue);
    if (queue == NULL) return NULL;
    queue->last = &queue->first;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    if (pthread_create(&queue->thread, NULL, work, queue) == 0) return queue;
    free(queue);
    return NULL;
}

void vc_queue_destroy(vc_queue_t *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closing = 1;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

int vc_queue_is_idle(vc_queue_t *queue)
{
    pthread_mutex_lock(&queue->lock);
    const int idle = queue->pending == 0;
    pthread_mutex_unlock(&queue->lock);
    return idle;
}

int vc_queue_push(vc_queue_t *queue, vc_job_t job, void *argument)
{
    item_t *added = (item_t *)malloc(sizeof *added);
    if (added == NULL) return -1;
    added->next = NULL;
    added->job = job;
    added->argument = argument;
    pthread_mutex_lock(&queue->lock);
    *queue->last = added;
    queue->last = &added->next;
    if (job != reach) queue->pending++;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return 0;
}

int vc_queue_error(vc_queue_t *queue, int clear)
{
    pthread_mutex_lock(&queue->lock);
    const int error = queue->error;
    if (clear) queue->error = 0;
    pthread_mutex_unlock(&queue->lock);
    return error;
}

/* The job of a fence. */
static int reach(void *argument)
{
    vc_fence_t *fence = (vc_fence_t *)argument;
    const int error = vc_queue_error(fence->queue, 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&fence->lock);
    fence->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    fence->error = error;
    fence->done = 1;
    pthread_cond_broadcast(&fence->reached);
    pthread_mutex_unlock(&fence->lock);
    vc_fence_release(fence);
    return 0;
}

vc_fence_t *vc_fence_create(vc_queue_t *queue)
{
    vc_fence_t *fence = (vc_fence_t *)calloc(1, sizeof *fence);
    if (fence == NULL) return NULL;
    fence->references = 2; /* the caller's and the queue's */
    fence->queue = queue;
    pthread_mutex_init(&fence->lock, NULL);
    pthread_cond_init(&fence->reached, NULL);
    if (vc_queue_push(queue, reach, fence) == 0) return fence;
    free(fence);
    return NULL;
}

vc_fence_t *vc_fence_keep(vc_fence_t *fence)
{
    if (fence != NULL) __atomic_add_fetch(&fence->references, 1, __ATOMIC_RELAXED);
    return fence;
}

void vc_fence_release(vc_fence_t *fence)
{
    if (fence == NULL || __atomic_sub_fetch(&fence->references, 1, __ATOMIC_ACQ_REL) != 0) return;
    pthread_cond_destroy(&fence->reached);
    pthread_mutex_destroy(&fence->lock);
    free(fence);
}

int vc_fence_is_done(vc_fence_t *fence)
{
    pthread_mutex_lock(&fence->lock);
    const int done = fence->done;
    pthread_mutex_unlock(&fence->lock);
    return done;
}

int vc_fence_wait(vc_fence_t *fence)
{
    pthread_mutex_lock(&fence->lock);
    while (!fence->done) pthread_cond_wait(&fence->reached, &fence->lock);
    const int error = fence->error;
    pthread_mutex_unlock(&fence->lock);
    return error;
}

int vc_fence_error(vc_fence_t *fence)
{
    return vc_fence_is_done(fence) ? fence->error : 0;
}

uint64_t vc_fence_time_ns(vc_fence_t *fence)
{
    return vc_fence_is_done(fence) ? fence->time_ns : 0;
}
