/* Queues and fences of the driver. Here each queue is a thread of this process. */
#ifndef QUEUE_H
#define QUEUE_H
#include <stdint.h>

typedef int (*vc_job_t)(void *argument); /* returns 0, or an error number */

typedef struct vc_queue_t vc_queue_t; /* runs its jobs one after another */
vc_queue_t *vc_queue_create(void);
void vc_queue_destroy(vc_queue_t *queue); /* waits for its jobs */
int vc_queue_is_idle(vc_queue_t *queue);
int vc_queue_push(vc_queue_t *queue, vc_job_t job, void *argument); /* 0, or -1: no memory */
int vc_queue_error(vc_queue_t *queue, int clear); /* of the first job that failed; 0 = none */

typedef struct vc_fence_t vc_fence_t; /* a place in a queue; counted references */
vc_fence_t *vc_fence_create(vc_queue_t *queue);
vc_fence_t *vc_fence_keep(vc_fence_t *fence); /* NULL stays NULL */
void vc_fence_release(vc_fence_t *fence);
int vc_fence_is_done(vc_fence_t *fence);
int vc_fence_wait(vc_fence_t *fence);  /* returns vc_fence_error */
int vc_fence_error(vc_fence_t *fence); /* the error of the queue when the fence was reached */
uint64_t vc_fence_time_ns(vc_fence_t *fence); /* when it was reached; 0 = not yet */
#endif
