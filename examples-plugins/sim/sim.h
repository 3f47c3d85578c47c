/* The tables of the backend sim, and what its files share. */
#ifndef SIM_H
#define SIM_H

#include "card/card.h"

extern const dtl_host_api_t *sim_host; /* functions of the library, for plugins */

/* Sets the text (as printf) for the failing status that a slot is about to return. */
dtl_status_t sim_fail(dtl_status_t status, const char *format, ...) __attribute__((format(printf,
                                                                                          2, 3)));

/* device.c */
extern _Thread_local int32_t sim_current; /* device of the calling thread */
dtl_device_vtable_t sim_device_table(void);
dtl_status_t sim_lost(int32_t device); /* DTL_ERROR_DEVICE_LOST with a text */
/* Begins a command. sim_lost: the device is lost. DTL_ERROR_BACKEND: the operation has to fail. */
dtl_status_t sim_command(int32_t device, const char *operation);

/* A stream: a queue of a device. */
typedef struct sim_stream_t {
    vc_queue_t *queue;
    int32_t device, priority;
    int number;     /* of its track */
    uint64_t track; /* in traces; 0 = none */
} sim_stream_t;

/* A command in a stream. It is the first field of what a slot queues. */
typedef struct sim_job_t {
    dtl_status_t (*run)(struct sim_job_t *job);
    void (*drop)(struct sim_job_t *job); /* frees the job; also if it was never run */
    const char *operation;               /* for card_fails; NULL: not a command of the card */
    sim_stream_t *stream;
    const char *name; /* in traces; as long as the job */
    uint64_t bytes;   /* that it moves; 0 = none */
} sim_job_t;

/* trace.c: gives a stream its track, and takes it back. sim_trace_begin returns 0 if no trace is
 * on; sim_trace_end records a span from then on. */
void sim_trace_stream(sim_stream_t *stream);
void sim_trace_gone(const sim_stream_t *stream);
uint64_t sim_trace_begin(const sim_stream_t *stream);
void sim_trace_end(const sim_job_t *job, uint64_t begin_ns);

/* stream.c: queues a job that calloc returned. NULL is DTL_ERROR_OUT_OF_MEMORY. */
dtl_status_t sim_push(void *stream, void *job, const char *operation,
                      dtl_status_t (*run)(sim_job_t *job), void (*drop)(sim_job_t *job));
void sim_drop(sim_job_t *job); /* free() */

dtl_memory_vtable_t sim_memory_table(void);
dtl_transfer_vtable_t sim_transfer_table(void);
void sim_add_streams(dtl_exec_vtable_t *exec);
void sim_add_events(dtl_exec_vtable_t *exec);
void sim_add_kernels(dtl_exec_vtable_t *exec);
#endif
