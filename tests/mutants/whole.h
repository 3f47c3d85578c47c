/* whole: a backend with everything but a communicator, in host memory. What its files share.
 *
 * plugin.c is the entry and the main table, device.c the two devices, memory.c their arenas, exports.c memory for several
 * processes, ordered.c memory in streams' order and of the program, transfer.c copies and fills, streams.c streams and events
 * with a thread for each stream, launch.c grids, modules.c kernels from source, loops.c host execution.
 * Not a template for a backend: its use is to be broken, see fault.h. */
#ifndef WHOLE_H
#define WHOLE_H

#include "fault.h"

#include <stdint.h>

enum { DEVICES = 2 };

extern const dtl_host_api_t *library; /* set before any slot is called */

/* Notes a text for whoever asks why, and gives back the status. */
dtl_status_t failed(dtl_status_t status, const char *text);

/* The tables, each in its file. */
dtl_device_vtable_t device_table(void);
dtl_memory_vtable_t memory_table(void);
dtl_transfer_vtable_t transfer_table(void);
dtl_exec_vtable_t exec_table(void);
void add_prefetch(dtl_transfer_vtable_t *table);
void add_loops(dtl_exec_vtable_t *table);
void add_modules(dtl_exec_vtable_t *table);

/* device.c: the calling thread's current device. */
int32_t current_device(void);

/* memory.c */
#define DEVICE_BYTES (UINT64_C(160) << 20)
#define OWN_BYTES (UINT64_C(64) << 10) /* of each device, kept back by it */
dtl_status_t memory_start(void); /* may be called again */
void memory_stop(void);
uint64_t memory_free_bytes(int32_t device);
int is_ours(const void *address);

/* transfer.c: the copy itself, without faults of its own. */
void move_bytes(void *dst, const void *src, uint64_t size_bytes);

/* streams.c: a piece of work in a stream. `run` is called by the stream's thread, `drop` after it; NULL: free(). */
typedef struct work_t {
    struct work_t *next;
    dtl_status_t (*run)(struct work_t *work);
    void (*drop)(struct work_t *work);
    int hides_failure; /* the status of run does not count */
    struct fence_t *record; /* a record completes it; else NULL */
} work_t;

/* Queues it. It belongs to the stream from then on. */
dtl_status_t stream_push(void *stream, work_t *work);
/* A stream that nobody waits for, for work that goes astray. */
void *stream_of_nobody(void);
/* Waits for all work of a device's streams. */
dtl_status_t streams_wait(int32_t device);
void streams_stop(void);

/* launch.c */
dtl_status_t whole_launch(void *self, void *stream, const dtl_launch_t *launch, dtl_kernel_fn_t kernel, void *user,
                          const void *const *args, const uint64_t *sizes, uint64_t count);

#endif
