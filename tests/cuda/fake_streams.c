/* Streams, events, copies; see fake_cuda.h. A stream is a thread that runs a list of work. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct event {
    context_t* context;
    unsigned flags;
    uint64_t recorded, reached; /* numbers of records */
    double time;                /* milliseconds */
    int users;                  /* the handle, and work that knows it */
} event_t;

typedef struct work {
    struct work* next;
    void (*run)(void*);
    void* argument;
} work_t;

typedef struct stream {
    struct stream* next; /* of the context's */
    context_t* context;
    work_t *first, *last;
    int busy, closing, counted, priority;
} stream_t;

/* ---- streams ------------------------------------------------------------------------------------ */

static void unlink_stream(stream_t* stream) {
    stream_t** link = &stream->context->streams;
    while (*link != stream) link = &(*link)->next;
    *link = stream->next;
}

/* Behind a fault nothing is copied any more; events are passed, and memory is given back. */
static void* serve(void* argument) {
    stream_t* stream = (stream_t*)argument;
    LOCK();
    for (;;) {
        work_t* work = stream->first;
        if (work != NULL) {
            stream->first = work->next;
            if (stream->first == NULL) stream->last = NULL;
            stream->busy = 1;
            UNLOCK();
            work->run(work->argument);
            free(work);
            LOCK();
            stream->busy = 0;
            pthread_cond_broadcast(&fake_change);
        } else if (stream->closing) {
            break;
        } else {
            pthread_cond_wait(&fake_change, &fake_lock);
        }
    }
    unlink_stream(stream);
    pthread_cond_broadcast(&fake_change);
    UNLOCK();
    free(stream);
    return NULL;
}

static stream_t* new_stream(context_t* context) {
    stream_t* stream = (stream_t*)calloc(1, sizeof *stream);
    pthread_t thread;
    stream->context = context;
    stream->next = context->streams;
    context->streams = stream;
    pthread_create(&thread, NULL, serve, stream);
    pthread_detach(thread);
    return stream;
}

/* With the lock: what a CUstream means; NULL, 1 and 2 are the current context's own. */
static stream_t* stream_of(void* handle) {
    const uintptr_t number = (uintptr_t)handle;
    context_t* context = fake_current();
    if (number > 2) return (stream_t*)handle;
    if (context == NULL) return NULL;
    /* NULL and CU_STREAM_LEGACY are one. */
    if (context->standard[number / 2] == NULL) context->standard[number / 2] = new_stream(context);
    return context->standard[number / 2];
}

int fake_is_idle(const context_t* context) {
    const stream_t* stream;
    for (stream = context->streams; stream != NULL; stream = stream->next)
        if (stream->busy || stream->first != NULL) return 0;
    return 1;
}

code_t fake_queue(void* handle, void (*run)(void*), void* argument) {
    stream_t* stream = stream_of(handle);
    work_t* work;
    if (stream == NULL) return INVALID_CONTEXT;
    work = (work_t*)calloc(1, sizeof *work);
    work->run = run;
    work->argument = argument;
    if (stream->last != NULL) stream->last->next = work;
    else stream->first = work;
    stream->last = work;
    pthread_cond_broadcast(&fake_change);
    return SUCCESS;
}

API code_t cuStreamCreate(stream_t** stream, unsigned flags) {
    BEGIN(cuStreamCreate);
    if (flags > 1) return INVALID_VALUE;
    LOCK();
    *stream = new_stream(fake_current());
    (*stream)->counted = 1;
    fake_count++;
    UNLOCK();
    return SUCCESS;
}

/* Like many cards: 0 is the lowest. The priority is only kept, for tests (cuStreamGetPriority, in any thread). */
API code_t cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    BEGIN(cuCtxGetStreamPriorityRange);
    *least = 0, *greatest = -5;
    return SUCCESS;
}

API code_t cuStreamCreateWithPriority(stream_t** stream, unsigned flags, int priority) {
    BEGIN(cuStreamCreateWithPriority);
    if (flags > 1 || priority > 0 || priority < -5) return INVALID_VALUE;
    LOCK();
    *stream = new_stream(fake_current());
    (*stream)->counted = 1, (*stream)->priority = priority;
    fake_count++;
    UNLOCK();
    return SUCCESS;
}

API code_t cuStreamGetPriority(stream_t* stream, int* priority) {
    *priority = stream->priority;
    return SUCCESS;
}

/* What is queued still runs. */
API code_t cuStreamDestroy_v2(stream_t* stream) {
    BEGIN_RELEASE(cuStreamDestroy_v2);
    if ((uintptr_t)stream <= 2 || stream->closing) return INVALID_HANDLE;
    LOCK();
    stream->closing = 1;
    fake_count--;
    pthread_cond_broadcast(&fake_change);
    UNLOCK();
    return fake_current()->lost;
}

static int is_done(const stream_t* stream) {
    return stream->context->lost != SUCCESS || (!stream->busy && stream->first == NULL);
}

API code_t cuStreamSynchronize(void* handle) {
    stream_t* stream;
    code_t code;
    BEGIN(cuStreamSynchronize);
    LOCK();
    stream = stream_of(handle);
    while (!is_done(stream)) pthread_cond_wait(&fake_change, &fake_lock);
    code = stream->context->lost;
    UNLOCK();
    return code;
}

API code_t cuStreamQuery(void* handle) {
    stream_t* stream;
    code_t code;
    BEGIN(cuStreamQuery);
    LOCK();
    stream = stream_of(handle);
    code = !is_done(stream) ? NOT_READY : stream->context->lost;
    UNLOCK();
    return code;
}

API code_t cuCtxSynchronize(void) {
    context_t* context;
    code_t code;
    BEGIN(cuCtxSynchronize);
    context = fake_current();
    LOCK();
    while (!fake_is_idle(context) && context->lost == SUCCESS) pthread_cond_wait(&fake_change, &fake_lock);
    code = context->lost;
    UNLOCK();
    return code;
}

API code_t cuStreamGetCtx(void* handle, context_t** context) {
    BEGIN_ANYWHERE(cuStreamGetCtx);
    LOCK();
    *context = stream_of(handle)->context;
    UNLOCK();
    return SUCCESS;
}

API code_t cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument) {
    code_t code;
    BEGIN_LOCKED(cuLaunchHostFunc);
    LOCK();
    code = fake_queue(stream, function, argument);
    UNLOCK();
    return code;
}

typedef struct callback {
    context_t* context;
    void *stream, *argument;
    void (*function)(void*, code_t, void*);
} callback_t;

static void run_callback(void* argument) {
    callback_t* callback = (callback_t*)argument;
    code_t lost;
    LOCK();
    lost = callback->context->lost;
    UNLOCK();
    callback->function(callback->stream, lost, callback->argument);
    free(callback);
}

/* Unlike cuLaunchHostFunc's, the function is called behind a fault, too. */
API code_t cuStreamAddCallback(void* stream, void (*function)(void*, code_t, void*), void* argument, unsigned flags) {
    callback_t* callback;
    code_t code;
    BEGIN_LOCKED(cuStreamAddCallback);
    if (flags != 0) return INVALID_VALUE;
    callback = (callback_t*)malloc(sizeof *callback);
    LOCK();
    *callback = (callback_t){stream_of(stream)->context, stream, argument, function};
    code = fake_queue(stream, run_callback, callback);
    UNLOCK();
    return code;
}

/* ---- events ------------------------------------------------------------------------------------- */

typedef struct point {
    event_t* event;
    uint64_t number;
} point_t;

static void drop_event(event_t* event) {
    if (--event->users == 0) free(event);
}

static point_t* point(event_t* event) {
    point_t* point = (point_t*)malloc(sizeof *point);
    point->event = event;
    point->number = event->recorded;
    event->users++;
    return point;
}

static void reach(void* argument) {
    point_t* point = (point_t*)argument;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    LOCK();
    point->event->reached = point->number;
    point->event->time = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
    drop_event(point->event);
    UNLOCK();
    free(point);
}

static void await(void* argument) {
    point_t* point = (point_t*)argument;
    event_t* event = point->event;
    LOCK();
    while (event->reached < point->number && event->context->lost == SUCCESS)
        pthread_cond_wait(&fake_change, &fake_lock);
    drop_event(event);
    UNLOCK();
    free(point);
}

API code_t cuEventCreate(event_t** event, unsigned flags) {
    BEGIN_LOCKED(cuEventCreate);
    *event = (event_t*)calloc(1, sizeof **event);
    (*event)->context = fake_current();
    (*event)->flags = flags;
    (*event)->users = 1;
    LOCK();
    fake_count++;
    UNLOCK();
    return SUCCESS;
}

API code_t cuEventDestroy_v2(event_t* event) {
    BEGIN_RELEASE(cuEventDestroy_v2);
    fake_enter();
    LOCK();
    drop_event(event);
    fake_count--;
    UNLOCK();
    return fake_current()->lost;
}

API code_t cuEventRecord(event_t* event, void* stream) {
    code_t code = INVALID_HANDLE;
    BEGIN_LOCKED(cuEventRecord);
    LOCK();
    if (stream_of(stream)->context == event->context) {
        event->recorded++;
        code = fake_queue(stream, reach, point(event));
    }
    UNLOCK();
    return code;
}

API code_t cuStreamWaitEvent(void* stream, event_t* event, unsigned flags) {
    code_t code;
    BEGIN(cuStreamWaitEvent);
    if (flags != 0) return INVALID_VALUE;
    LOCK();
    code = fake_queue(stream, await, point(event));
    UNLOCK();
    return code;
}

API code_t cuEventQuery(event_t* event) {
    code_t code;
    BEGIN_ANYWHERE(cuEventQuery);
    LOCK();
    code = event->context->lost;
    if (code == SUCCESS && event->reached < event->recorded) code = NOT_READY;
    UNLOCK();
    return code;
}

API code_t cuEventSynchronize(event_t* event) {
    uint64_t number;
    code_t code;
    BEGIN_ANYWHERE(cuEventSynchronize);
    LOCK();
    number = event->recorded;
    event->users++;
    while (event->reached < number && event->context->lost == SUCCESS) pthread_cond_wait(&fake_change, &fake_lock);
    code = event->context->lost;
    drop_event(event);
    UNLOCK();
    return code;
}

API code_t cuEventElapsedTime(float* milliseconds, event_t* start, event_t* stop) {
    code_t code = SUCCESS;
    BEGIN(cuEventElapsedTime);
    LOCK();
    if (((start->flags | stop->flags) & 2) != 0 || start->recorded == 0 || stop->recorded == 0) code = INVALID_HANDLE;
    else if (start->context != stop->context) code = INVALID_HANDLE;
    else if (start->reached < start->recorded || stop->reached < stop->recorded) code = NOT_READY;
    else *milliseconds = (float)(stop->time - start->time);
    UNLOCK();
    return code;
}

/* ---- a word that a stream waits for -------------------------------------------------------- */

typedef struct gate {
    context_t* context;
    const uint32_t* word;
    uint32_t value;
} gate_t;

static void await_word(void* argument) {
    gate_t* gate = (gate_t*)argument;
    const struct timespec pause = {0, 20000};
    while ((int32_t)(__atomic_load_n(gate->word, __ATOMIC_ACQUIRE) - gate->value) < 0) {
        code_t lost;
        LOCK();
        lost = gate->context->lost;
        UNLOCK();
        if (lost != SUCCESS) break;
        nanosleep(&pause, NULL);
    }
    free(gate);
}

API code_t cuStreamWaitValue32_v2(void* stream, ptr_t at, uint32_t value, unsigned flags) {
    range_t* range;
    code_t code = INVALID_VALUE;
    BEGIN(cuStreamWaitValue32_v2);
    LOCK();
    range = fake_range((void*)(uintptr_t)at);
    if (flags == 0 && range != NULL && range->kind == 'h') {
        gate_t* gate = (gate_t*)malloc(sizeof *gate);
        gate->context = stream_of(stream)->context;
        gate->word = (const uint32_t*)(uintptr_t)at;
        gate->value = value;
        code = fake_queue(stream, await_word, gate);
    }
    UNLOCK();
    return code;
}

/* ---- copies and fills -------------------------------------------------------------------------- */

typedef struct copy {
    context_t* context;
    char* to;
    const char* from; /* NULL: a fill */
    char* staged;     /* what was read from pageable memory when the copy was queued; NULL: nothing */
    size_t to_pitch, from_pitch, width, height;
    unsigned char value;
} copy_t;

static void run_copy(void* argument) {
    copy_t* copy = (copy_t*)argument;
    code_t lost;
    size_t row;
    LOCK();
    if (copy->context->lost == SUCCESS) copy->context->lost = fake_fault();
    lost = copy->context->lost;
    UNLOCK();
    for (row = 0; row < copy->height && lost == SUCCESS; row++) {
        char* to = copy->to + row * copy->to_pitch;
        if (copy->from == NULL) memset(to, copy->value, copy->width);
        else memcpy(to, copy->from + row * copy->from_pitch, copy->width);
    }
    free(copy->staged);
    free(copy);
}

/* What a pool gave is for its own device only. */
static int is_open(const context_t* context, const void* at) {
    const range_t* range = fake_range(at);
    return range == NULL || range->kind != 'p' || range->device == context->device;
}

/* For tests: copies so far from or to pageable memory. */
static int pageable;
API int fake_cuda_pageable(void);
API int fake_cuda_pageable(void) {
    return __atomic_load_n(&pageable, __ATOMIC_RELAXED);
}

/* As the real driver does, reads pageable memory at the call, and returns when pageable memory is written. */
static code_t queue_copy(void* stream, ptr_t to, ptr_t from, copy_t form, int between_devices) {
    const size_t to_size = form.to_pitch * (form.height - 1) + form.width;
    const size_t from_size = form.from_pitch * (form.height - 1) + form.width;
    const void *target = (void*)(uintptr_t)to, *source = (void*)(uintptr_t)from;
    code_t code = INVALID_VALUE;
    fake_enter();
    LOCK();
    form.context = stream_of(stream)->context;
    form.to = fake_bytes(target, to_size);
    form.from = source == NULL ? NULL : fake_bytes(source, from_size);
    if (form.to != NULL && (source == NULL || form.from != NULL) &&
        (between_devices || (is_open(form.context, target) && is_open(form.context, source)))) {
        copy_t* copy = (copy_t*)malloc(sizeof *copy);
        *copy = form;
        if (fake_range(target) == NULL || (source != NULL && fake_range(source) == NULL)) pageable++;
        if (source != NULL && fake_range(source) == NULL) {
            copy->staged = (char*)malloc(from_size);
            memcpy(copy->staged, form.from, from_size);
            copy->from = copy->staged;
        }
        code = fake_queue(stream, run_copy, copy);
        while (fake_range(target) == NULL && !is_done(stream_of(stream))) pthread_cond_wait(&fake_change, &fake_lock);
    }
    UNLOCK();
    return code;
}

static copy_t line(size_t size) {
    copy_t copy = {NULL, NULL, NULL, NULL, 0, 0, 0, 1, 0};
    copy.to_pitch = copy.from_pitch = copy.width = size;
    return copy;
}

API code_t cuMemcpyAsync(ptr_t to, ptr_t from, size_t size, void* stream) {
    BEGIN(cuMemcpyAsync);
    return queue_copy(stream, to, from, line(size), 0);
}

API code_t cuMemcpyHtoDAsync_v2(ptr_t to, const void* from, size_t size, void* stream) {
    BEGIN(cuMemcpyHtoDAsync_v2);
    return queue_copy(stream, to, (ptr_t)(uintptr_t)from, line(size), 0);
}

API code_t cuMemcpyDtoHAsync_v2(void* to, ptr_t from, size_t size, void* stream) {
    BEGIN(cuMemcpyDtoHAsync_v2);
    return queue_copy(stream, (ptr_t)(uintptr_t)to, from, line(size), 0);
}

API code_t cuMemcpyPeerAsync(ptr_t to, context_t* target, ptr_t from, context_t* source, size_t size, void* stream) {
    int fits;
    BEGIN(cuMemcpyPeerAsync);
    LOCK();
    fits = is_open(target, (void*)(uintptr_t)to) && is_open(source, (void*)(uintptr_t)from);
    UNLOCK();
    return fits ? queue_copy(stream, to, from, line(size), 1) : INVALID_VALUE;
}

API code_t cuMemsetD8Async(ptr_t to, unsigned char value, size_t size, void* stream) {
    copy_t fill = line(size);
    BEGIN(cuMemsetD8Async);
    fill.value = value;
    return queue_copy(stream, to, 0, fill, 0);
}

typedef struct rows {
    size_t source_x, source_y;
    unsigned source_type;
    const void* source_host;
    ptr_t source;
    void* source_array;
    size_t source_pitch, target_x, target_y;
    unsigned target_type;
    void* target_host;
    ptr_t target;
    void* target_array;
    size_t target_pitch, width, height;
} rows_t;

API code_t cuMemcpy2DAsync_v2(const rows_t* rows, void* stream) {
    copy_t copy = line(0);
    BEGIN(cuMemcpy2DAsync_v2);
    if (rows->source_type != 4 || rows->target_type != 4) return INVALID_VALUE;
    if (rows->source_pitch < rows->width || rows->target_pitch < rows->width) return INVALID_VALUE;
    copy.to_pitch = rows->target_pitch;
    copy.from_pitch = rows->source_pitch;
    copy.width = rows->width;
    copy.height = rows->height;
    return queue_copy(stream, rows->target, rows->source, copy, 0);
}
