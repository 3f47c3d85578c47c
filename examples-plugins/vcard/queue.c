/* Queues and fences of the simulated card in docs/tutorial/backend-streams-and-kernels.md: a thread
 * for each queue. This is the driver; the page has the backend that uses it. */
#include "queue.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static void reach(void *fence);

typedef struct item {
    struct item *next;
    void (*job)(void *);
    void *argument;
} item;

struct vc_queue_t {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    item *first, **last;
    int pending, closing; /* jobs that have not ended, without fences */
};

struct vc_fence_t {
    pthread_mutex_t lock;
    pthread_cond_t reached;
    int references, done;
    uint64_t time_ns;
};

static void *work(void *argument)
{
    vc_queue_t *queue = argument;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        item *now = queue->first;
        if (now == NULL && queue->closing) break;
        if (now == NULL) {
            pthread_cond_wait(&queue->changed, &queue->lock);
            continue;
        }
        queue->first = now->next;
        if (queue->first == NULL) queue->last = &queue->first;
        pthread_mutex_unlock(&queue->lock);
        now->job(now->argument);
        pthread_mutex_lock(&queue->lock);
        if (now->job != reach) queue->pending--;
        free(now);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

vc_queue_t *vc_queue_create(void)
{
    vc_queue_t *queue = calloc(1, sizeof *queue);
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
    free(queue);
}

int vc_queue_is_idle(vc_queue_t *queue)
{
    pthread_mutex_lock(&queue->lock);
    const int idle = queue->pending == 0;
    pthread_mutex_unlock(&queue->lock);
    return idle;
}

int vc_queue_push(vc_queue_t *queue, void (*job)(void *), void *argument)
{
    item *added = malloc(sizeof *added);
    if (added == NULL) return -1;
    *added = (item){NULL, job, argument};
    pthread_mutex_lock(&queue->lock);
    *queue->last = added;
    queue->last = &added->next;
    if (job != reach) queue->pending++;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return 0;
}

static void reach(void *argument)
{
    vc_fence_t *fence = argument;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&fence->lock);
    fence->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    fence->done = 1;
    pthread_cond_broadcast(&fence->reached);
    pthread_mutex_unlock(&fence->lock);
    vc_fence_release(fence);
}

vc_fence_t *vc_fence_create(vc_queue_t *queue)
{
    vc_fence_t *fence = calloc(1, sizeof *fence);
    if (fence == NULL) return NULL;
    fence->references = 2; /* the caller's and the queue's */
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
    if (fence == NULL) return;
    if (__atomic_sub_fetch(&fence->references, 1, __ATOMIC_ACQ_REL) == 0) free(fence);
}

int vc_fence_is_done(vc_fence_t *fence)
{
    pthread_mutex_lock(&fence->lock);
    const int done = fence->done;
    pthread_mutex_unlock(&fence->lock);
    return done;
}

void vc_fence_wait(vc_fence_t *fence)
{
    pthread_mutex_lock(&fence->lock);
    while (!fence->done) pthread_cond_wait(&fence->reached, &fence->lock);
    pthread_mutex_unlock(&fence->lock);
}

uint64_t vc_fence_time_ns(vc_fence_t *fence)
{
    return vc_fence_is_done(fence) ? fence->time_ns : 0;
}
