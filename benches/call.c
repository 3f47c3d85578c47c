// Cost of the library between a C caller and a backend's slot: a registered table whose slots do
// nothing, called through dtl_ functions and through the bare function pointer, interleaved. Then the
// same for the checks of the library written in C, one after the other (benches/call_steps.c).
//
//     cc -O2 -fPIC -shared benches/call_steps.c $(pkg-config --cflags libdtl) -o libcall_steps.so
//     cc -O2 benches/call.c $PWD/libcall_steps.so $(pkg-config --cflags --libs libdtl) -o call && ./call
//
// Prints nanoseconds per call: the 10th percentile over many short batches, and the difference.
#define _GNU_SOURCE
#include "call_steps.h"
#include "idle.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 1000, BATCHES = 3000 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double tenth_percentile(double *values)
{
    qsort(values, BATCHES, sizeof *values, ascending);
    return values[BATCHES / 10];
}

static dtl_stream_t stream;
static dtl_event_t event;
static int self;
static int32_t out;

// One row: the bare call and the call through the library, batch by batch in turn.
#define ROW(name, bare, through)                                                                     \
    do {                                                                                             \
        static double direct[BATCHES], stack[BATCHES];                                               \
        for (int batch = 0; batch < BATCHES; batch++) {                                              \
            double start = now_ns();                                                                 \
            for (int i = 0; i < CALLS; i++) {                                                        \
                if ((bare) != DTL_SUCCESS) abort();                                                  \
            }                                                                                        \
            direct[batch] = (now_ns() - start) / CALLS;                                              \
            start = now_ns();                                                                        \
            for (int i = 0; i < CALLS; i++) {                                                        \
                if ((through) != DTL_SUCCESS) abort();                                               \
            }                                                                                        \
            stack[batch] = (now_ns() - start) / CALLS;                                               \
        }                                                                                            \
        const double d = tenth_percentile(direct), s = tenth_percentile(stack);                      \
        printf("| %-26s | %5.2f | %5.2f | %+5.2f | %4.1f |\n", name, d, s, s - d, s / d);            \
    } while (0)

// What being traced adds to a call: to a tool whose functions do nothing, and to a file. Short, as the file grows.
static void ignore(const dtl_trace_event_t *event, void *user)
{
    (void)event, (void)user;
}

static double of_query(int batches)
{
    static double values[BATCHES];
    for (int batch = 0; batch < batches; batch++) {
        const double start = now_ns();
        for (int i = 0; i < CALLS; i++) {
            if (dtl_event_query(event, &out) != DTL_SUCCESS) abort();
        }
        values[batch] = (now_ns() - start) / CALLS;
    }
    qsort(values, (size_t)batches, sizeof *values, ascending);
    return values[batches / 10];
}

static void traced(void)
{
    dtl_trace_callbacks_t table = DTL_TRACE_CALLBACKS_INIT;
    char path[64];
    const double idle = of_query(300);
    table.begin = table.end = ignore;
    DTL_CHECK(dtl_trace_set_callbacks(&table));
    const double told = of_query(300);
    DTL_CHECK(dtl_trace_set_callbacks(NULL));
    snprintf(path, sizeof path, "/tmp/dtl-call-%ld.json", (long)getpid());
    DTL_CHECK(dtl_trace_start(path));
    const double now_and_then = (usleep(150000), of_query(1));
    const double written = of_query(100);
    DTL_CHECK(dtl_trace_stop());
    remove(path);
    printf("\ndtl_event_query, not traced %.1f ns, told to a tool %.0f ns, written to a file %.0f ns (one call after the other %.0f ns)\n",
           idle, told, now_and_then, written);
}

int main(void)
{
    dtl_device_vtable_t device = idle_device();
    dtl_exec_vtable_t exec = idle_exec();
    const dtl_backend_t backend = idle_backend(&self);
    DTL_CHECK(dtl_stream_create(backend, 0, 0, &stream));
    DTL_CHECK(dtl_event_create(backend, 0, &event));

    dtl_exec_vtable_t *volatile slots = &exec; // volatile: the compiler must not see the function
    dtl_device_vtable_t *volatile devices = &device;
    printf("| call                       | bare  | dtl   | more  | ratio |\n|---|---|---|---|---|\n");
    ROW("dtl_event_record", slots->event_record(&self, &self, &self), dtl_event_record(event, stream));
    ROW("dtl_event_query", slots->event_query(&self, &self, &out), dtl_event_query(event, &out));
    ROW("dtl_stream_query", slots->stream_query(&self, &self, &out), dtl_stream_query(stream, &out));
    ROW("dtl_stream_wait", slots->stream_synchronize(&self, &self), dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    ROW("dtl_backend_device_count", devices->count(&self, &out), dtl_backend_device_count(backend, &out));

    uint64_t e, s;
    steps_open(&exec, &self, &e, &s);
    printf("\n| the checks in C            | bare  | checks | more  | ratio |\n|---|---|---|---|---|\n");
    ROW("function of a library", slots->event_record(&self, &self, &self), step_function(e, s));
    ROW("+ epoch", slots->event_record(&self, &self, &self), step_epoch(e, s));
    ROW("+ library open", slots->event_record(&self, &self, &self), step_open(e, s));
    ROW("+ first handle", slots->event_record(&self, &self, &self), step_one_handle(e, s));
    ROW("+ second handle", slots->event_record(&self, &self, &self), step_two_handles(e, s));
    ROW("+ component: event_record", slots->event_record(&self, &self, &self), step_record(e, s));
    ROW("all: event_query", slots->event_query(&self, &self, &out), step_query(e, &out));

    traced();
    DTL_CHECK(dtl_event_destroy(event));
    DTL_CHECK(dtl_stream_destroy(stream));
    DTL_CHECK(dtl_backend_unregister(backend));
    return 0;
}
