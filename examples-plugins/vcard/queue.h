/* Second part of the driver: queues, fences and binaries. */
#ifndef QUEUE_H
#define QUEUE_H
#include <stdint.h>

typedef struct vc_queue_t vc_queue_t; /* runs its jobs one after another */
vc_queue_t *vc_queue_create(void);
void vc_queue_destroy(vc_queue_t *queue); /* waits for its jobs */
int vc_queue_is_idle(vc_queue_t *queue);
int vc_queue_push(vc_queue_t *queue, void (*job)(void *), void *argument); /* 0, or -1: no memory */

typedef struct vc_fence_t vc_fence_t; /* a place in a queue; counted references */
vc_fence_t *vc_fence_create(vc_queue_t *queue);
vc_fence_t *vc_fence_keep(vc_fence_t *fence); /* NULL stays NULL */
void vc_fence_release(vc_fence_t *fence);
int vc_fence_is_done(vc_fence_t *fence);
void vc_fence_wait(vc_fence_t *fence);
uint64_t vc_fence_time_ns(vc_fence_t *fence);
#endif
