/* What fails in work that the library does in a backend's own stream (callbacks, kernels from functions, copies that the
 * backend cannot queue) is carried by events recorded behind it, to those who wait, to other streams and to sends. A part
 * of test_native.c. */
#ifndef CARRIED_CASES_H
#define CARRIED_CASES_H
#include "native_parts.h"
#include <pthread.h>

/* An exec component whose streams are threads. It knows nothing of what callbacks answer. */
struct lane_task { dtl_task_fn_t function; void* user; struct lane_stream* other; uint64_t target; };
struct lane_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct lane_task tasks[64];
    uint64_t queued, done;
    int closing;
};
struct lane_event { struct lane_stream* stream; uint64_t target; };

static void lane_reach(struct lane_stream* stream, uint64_t target) {
    pthread_mutex_lock(&stream->lock);
    while (stream->done < target) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}
static void* lane_work(void* argument) {
    struct lane_stream* stream = (struct lane_stream*)argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        struct lane_task task;
        while (stream->done == stream->queued && !stream->closing) pthread_cond_wait(&stream->changed, &stream->lock);
        if (stream->done == stream->queued) break;
        task = stream->tasks[stream->done % 64];
        pthread_mutex_unlock(&stream->lock);
        if (task.other != NULL) lane_reach(task.other, task.target);
        else (void)task.function(task.user);
        pthread_mutex_lock(&stream->lock);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}
static dtl_status_t lane_add(void* to, struct lane_task task) {
    struct lane_stream* stream = (struct lane_stream*)to;
    pthread_mutex_lock(&stream->lock);
    CHECK(stream->queued - stream->done < 64);
    stream->tasks[stream->queued++ % 64] = task;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return DTL_SUCCESS;
}
static dtl_status_t lane_create(void* self, int32_t device, uint64_t flags, void** out) {
    struct lane_stream* stream = (struct lane_stream*)calloc(1, sizeof *stream);
    (void)self, (void)device, (void)flags;
    CHECK(stream != NULL && pthread_mutex_init(&stream->lock, NULL) == 0 && pthread_cond_init(&stream->changed, NULL) == 0);
    CHECK(pthread_create(&stream->thread, NULL, lane_work, stream) == 0);
    return *out = stream, DTL_SUCCESS;
}
static dtl_status_t lane_destroy(void* self, void* pointer) {
    struct lane_stream* stream = (struct lane_stream*)pointer;
    (void)self;
    pthread_mutex_lock(&stream->lock);
    stream->closing = 1;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    CHECK(pthread_join(stream->thread, NULL) == 0);
    pthread_cond_destroy(&stream->changed), pthread_mutex_destroy(&stream->lock);
    return free(stream), DTL_SUCCESS;
}
static dtl_status_t lane_synchronize(void* self, void* stream) {
    return (void)self, lane_reach((struct lane_stream*)stream, ((struct lane_stream*)stream)->queued), DTL_SUCCESS;
}
static dtl_status_t lane_call(void* self, void* stream, dtl_task_fn_t function, void* user) {
    const struct lane_task task = {function, user, NULL, 0};
    return (void)self, lane_add(stream, task);
}
static dtl_status_t lane_event_create(void* self, uint64_t flags, void** out) {
    return (void)self, (void)flags, *out = calloc(1, sizeof(struct lane_event)), DTL_SUCCESS;
}
static dtl_status_t lane_event_destroy(void* self, void* event) { return (void)self, free(event), DTL_SUCCESS; }
static dtl_status_t lane_record(void* self, void* pointer, void* stream) {
    struct lane_event* event = (struct lane_event*)pointer;
    (void)self;
    event->stream = (struct lane_stream*)stream, event->target = event->stream->queued;
    return DTL_SUCCESS;
}
static dtl_status_t lane_query(void* self, void* pointer, int32_t* done) {
    struct lane_event* event = (struct lane_event*)pointer;
    (void)self;
    *done = 1;
    if (event->stream == NULL) return DTL_SUCCESS;
    pthread_mutex_lock(&event->stream->lock);
    *done = event->stream->done >= event->target;
    pthread_mutex_unlock(&event->stream->lock);
    return DTL_SUCCESS;
}
static dtl_status_t lane_wait(void* self, void* stream, void* pointer) {
    const struct lane_event* event = (const struct lane_event*)pointer;
    const struct lane_task task = {NULL, NULL, event->stream, event->target};
    return (void)self, event->stream == NULL ? DTL_SUCCESS : lane_add(stream, task);
}

static void lane_fill(dtl_exec_vtable_t* exec) {
    const dtl_exec_vtable_t empty = DTL_EXEC_VTABLE_INIT;
    *exec = empty;
    exec->stream_create = lane_create, exec->stream_destroy = lane_destroy, exec->stream_synchronize = lane_synchronize;
    exec->stream_host_callback = lane_call, exec->stream_wait_event = lane_wait;
    exec->event_create = lane_event_create, exec->event_destroy = lane_event_destroy;
    exec->event_record = lane_record, exec->event_query = lane_query;
}

static int carried_go;
#ifdef __cplusplus
extern "C" {
#endif
static dtl_status_t carried_fail(void* status) { return *(dtl_status_t*)status; }
static dtl_status_t carried_late(void* status) {
    while (!far_get(&carried_go)) sched_yield();
    return *(dtl_status_t*)status;
}
static dtl_status_t carried_kernel(const dtl_kernel_context_t* context, const void* const* args) {
    return (void)context, (void)args, DTL_ERROR_LIMIT;
}
struct carried_inside { dtl_event_t event; dtl_status_t sync, wait; };
static dtl_status_t carried_wait_inside(void* user) {
    struct carried_inside* inside = (struct carried_inside*)user;
    while (!far_get(&carried_go)) sched_yield();
    inside->sync = dtl_event_wait(inside->event, DTL_TIMEOUT_INFINITE);
    inside->wait = dtl_event_wait(inside->event, UINT64_C(60000000000));
    return DTL_SUCCESS;
}
#ifdef __cplusplus
}
#endif

static dtl_status_t carried_sent(dtl_event_t event) {
    dtl_request_t request = DTL_REQUEST_NULL;
    int32_t word = 7;
    CHECK_OK(dtl_comm_isend_on(DTL_COMM_SELF, &word, 1, DTL_DTYPE_INT32, 0, 11, event, &request));
    return dtl_request_wait(request, UINT64_C(60000000000), NULL);
}
static int carried_is_there(void) {
    int32_t found = 7;
    CHECK_OK(dtl_comm_iprobe(DTL_COMM_SELF, 0, 11, &found, NULL));
    return found;
}

/* On any backend with streams and events of its own; `late` where callbacks have a thread. */
static void carried_on(dtl_backend_t backend, int late) {
    static dtl_status_t memory = DTL_ERROR_MEMORY, bounds = DTL_ERROR_OUT_OF_BOUNDS;
    dtl_stream_t stream, other;
    dtl_event_t before, event, second, healthy;
    int32_t state = 7, done = 7, word = 0;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_create(backend, 0, 0, &other));
    CHECK_OK(dtl_event_create(backend, 0, &before));
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_create(backend, 0, &second));
    CHECK_OK(dtl_event_create(backend, 0, &healthy));
    __atomic_store_n(&carried_go, !late, __ATOMIC_RELEASE);
    CHECK_OK(dtl_event_record(before, stream));
    CHECK_OK(dtl_stream_host_callback(stream, carried_late, &memory));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_stream_host_callback(stream, carried_fail, &bounds));
    CHECK_OK(dtl_event_record(second, stream));
    if (late) {
        CHECK_OK(dtl_event_query(event, &state));
        CHECK(state == 0);
        CHECK_STATUS(dtl_event_wait(event, 1000000), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_stream_wait(stream, 1000000), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_device_wait(backend, 0, 1000000), DTL_ERROR_TIMEOUT);
    }
    CHECK_OK(dtl_stream_wait_event(other, event)); /* before it has failed, where that can be */
    far_add(&carried_go);
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_TEXT("host callback");
    CHECK_STATUS(dtl_event_wait(second, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY); /* the first of them */
    CHECK_STATUS(dtl_event_query(event, &state), DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_event_wait(event, UINT64_C(60000000000)), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_event_wait(before, DTL_TIMEOUT_INFINITE));
    CHECK_STATUS(carried_sent(event), DTL_ERROR_MEMORY);
    CHECK_TEXT("the event that it waits for");
    CHECK(!carried_is_there());
    /* The other stream has it now, and tells it once. */
    CHECK_OK(dtl_event_record(healthy, other));
    CHECK_STATUS(dtl_event_wait(healthy, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_wait_event(other, event)); /* after it has failed */
    CHECK_STATUS(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_stream_wait(other, DTL_TIMEOUT_INFINITE));
    do state = dtl_stream_query(stream, &done);
    while (state == DTL_SUCCESS && done == 0); /* "inline": asked until it is done */
    CHECK(state == DTL_ERROR_MEMORY);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    /* Told: what is recorded now carries nothing, what was recorded still does. */
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(carried_sent(event));
    CHECK(carried_is_there());
    CHECK_OK(dtl_comm_recv(DTL_COMM_SELF, &word, 1, DTL_DTYPE_INT32, 0, 11, NULL));
    CHECK(word == 7);
    CHECK_OK(dtl_event_destroy(before));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_event_destroy(second));
    CHECK_OK(dtl_event_destroy(healthy));
    CHECK_OK(dtl_stream_host_callback(stream, carried_fail, &bounds)); /* nobody asks: dropped */
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_stream_destroy(other));
}

/* Kernels from functions, copies and fills that the backend cannot queue. */
static void carried_work(dtl_backend_t backend, struct far* self) {
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_kernel_t kernel;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    void* memory;
    char text[8] = "1234567";
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_kernel_from_function(backend, carried_kernel, NULL, &kernel));
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &memory));
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, NULL, NULL, 0));
    CHECK_OK(dtl_mem_copy_async(stream, memory, text, 8)); /* runs behind a failure */
    CHECK(memcmp(far_real(memory), text, 8) == 0);
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_LIMIT);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_LIMIT);
    self->failure = DTL_ERROR_BACKEND;
    CHECK_OK(dtl_mem_copy_async(stream, memory, text, 8));
    CHECK_OK(dtl_mem_fill_async(stream, memory, 1, 8));
    self->failure = DTL_SUCCESS;
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* A wait for an event behind the waiting work itself is refused, not endless. */
static void carried_inside_of(dtl_backend_t backend) {
    struct carried_inside inside;
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_event_create(backend, 0, &inside.event));
    __atomic_store_n(&carried_go, 0, __ATOMIC_RELEASE);
    CHECK_OK(dtl_stream_host_callback(stream, carried_wait_inside, &inside));
    CHECK_OK(dtl_event_record(inside.event, stream));
    far_add(&carried_go);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK(inside.sync == DTL_ERROR_INVALID_STATE && inside.wait == DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_event_wait(inside.event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(inside.event));
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_carried(void) {
    static struct far self;
    struct far_tables tables;
    dtl_exec_vtable_t exec;
    dtl_backend_t backend;
    CHECK_OK(dtl_backend_get("null", &backend));
    carried_on(backend, 0);
    far_fill(&tables);
    tables.main.exec = &exec;
    exec_fill(&exec, 1, 1, 0); /* callbacks are the caller's */
    CHECK_OK(dtl_backend_register("inline", &tables.main, &self, 0, &backend));
    carried_on(backend, 0);
    carried_work(backend, &self);
    CHECK_OK(dtl_backend_unregister(backend));
    lane_fill(&exec);
    CHECK_OK(dtl_backend_register("lanes", &tables.main, &self, 0, &backend));
    carried_on(backend, 1);
    carried_work(backend, &self);
    carried_inside_of(backend);
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK_OK(dtl_backend_get("host", &backend));
    carried_on(backend, 1);
    carried_inside_of(backend);
}

#endif
