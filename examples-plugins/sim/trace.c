/* Traces: each kernel and copy of a stream is a span on the track of the stream, in the group of
 * its device. Nothing is recorded while no trace is on. */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { NUMBERS = 64 }; /* tracks of a device; further streams share the last one */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned char in_use[CARD_DEVICES][NUMBERS];

/* The lowest free number, so that the streams of a program that creates many use few tracks. */
static int take_number(int32_t device)
{
    int number = 0;
    pthread_mutex_lock(&lock);
    while (number < NUMBERS - 1 && in_use[device][number]) number++;
    in_use[device][number] = 1;
    pthread_mutex_unlock(&lock);
    return number;
}

void sim_trace_stream(sim_stream_t *stream)
{
    char group[32], name[32];
    stream->number = take_number(stream->device);
    stream->track = 0;
    if (!DTL_HOST_HAS(sim_host, trace_span)) return; /* a library before traces of plugins */
    snprintf(group, sizeof group, "sim device %d", (int)stream->device);
    snprintf(name, sizeof name, "stream %d", stream->number);
    if (sim_host->trace_track(group, name, &stream->track) != DTL_SUCCESS) stream->track = 0;
}

void sim_trace_gone(const sim_stream_t *stream)
{
    pthread_mutex_lock(&lock);
    in_use[stream->device][stream->number] = 0;
    pthread_mutex_unlock(&lock);
}

uint64_t sim_trace_begin(const sim_stream_t *stream)
{
    return stream->track != 0 && sim_host->trace_is_on() ? sim_host->trace_now() : 0;
}

void sim_trace_end(const sim_job_t *job, uint64_t begin_ns)
{
    dtl_trace_span_t span = DTL_TRACE_SPAN_INIT;
    if (begin_ns == 0) return;
    span.track = job->stream->track;
    span.begin_ns = begin_ns;
    span.end_ns = sim_host->trace_now();
    span.bytes = job->bytes;
    span.category = strcmp(job->operation, "launch") == 0 ? "kernel" : job->operation;
    span.name = job->name;
    DTL_IGNORE(sim_host->trace_span(&span)); /* a trace that is full is not a failure of the work */
}
