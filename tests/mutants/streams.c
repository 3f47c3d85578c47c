/* Streams, with a thread each. */
#include "streams.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STREAMS = 512 }; /* alive at most, as devices have such limits */

typedef struct stream_t {
    int32_t device;
    pthread_t thread;
    pthread_cond_t more;
    work_t *first, **end;
    uint64_t queued, finished;
    dtl_status_t failure; /* the first that nobody was told of */
    int is_closing, users; /* threads that wait for it */
} stream_t;

pthread_mutex_t exec_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t exec_changed = PTHREAD_COND_INITIALIZER;
static stream_t *streams[STREAMS];
static stream_t *nobodys;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void fence_unref(fence_t *fence)
{
    if (fence != NULL && --fence->references == 0) {
        free(fence);
    }
}

static void complete(fence_t *fence, dtl_status_t status) /* with the lock */
{
    fence->is_done = 1;
    fence->status = status;
    fence->time_ns = now_ns();
    fence_unref(fence);
}

static void drop(work_t *work)
{
    if (work->drop != NULL) {
        work->drop(work);
    } else {
        free(work);
    }
}

/* Takes the next piece, or NULL at the end; with the lock. */
static work_t *next_work(stream_t *stream)
{
    while (stream->first == NULL && !stream->is_closing) {
        pthread_cond_wait(&stream->more, &exec_lock);
    }
    if (is_fault("exec.stream_destroy.drops_work") && stream->is_closing) {
        return NULL;
    }
    work_t *work = stream->first;
    if (work != NULL) {
        stream->first = work->next;
        if (stream->first == NULL) {
            stream->end = &stream->first;
        }
    }
    return work;
}

static void *serve(void *argument)
{
    stream_t *stream = argument;
    work_t *work;
    pthread_mutex_lock(&exec_lock);
    while ((work = next_work(stream)) != NULL) {
        dtl_status_t status = DTL_SUCCESS;
        if (work->run != NULL) {
            pthread_mutex_unlock(&exec_lock);
            status = work->run(work);
            pthread_mutex_lock(&exec_lock);
        }
        if (status != DTL_SUCCESS && stream->failure == DTL_SUCCESS && !work->hides_failure) {
            stream->failure = status;
        }
        if (work->record != NULL) {
            complete(work->record, stream->failure);
        }
        stream->finished++;
        pthread_cond_broadcast(&exec_changed);
        pthread_mutex_unlock(&exec_lock);
        drop(work);
        pthread_mutex_lock(&exec_lock);
    }
    pthread_mutex_unlock(&exec_lock);
    return NULL;
}

static int is_live(const stream_t *stream)
{
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] == stream && stream != NULL) {
            return 1;
        }
    }
    return 0;
}

static void append(stream_t *stream, work_t *work)
{
    work->next = NULL;
    *stream->end = work;
    stream->end = &work->next;
    stream->queued++;
    pthread_cond_signal(&stream->more);
}

dtl_status_t stream_push(void *stream, work_t *work)
{
    pthread_mutex_lock(&exec_lock);
    const int is_good = is_live(stream);
    if (is_good) {
        append(stream, work);
    } else if (work->record != NULL) {
        complete(work->record, DTL_ERROR_INVALID_ARGUMENT);
    }
    pthread_mutex_unlock(&exec_lock);
    if (!is_good) {
        drop(work);
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no live stream");
    }
    return DTL_SUCCESS;
}

dtl_status_t stream_push_record(void *stream, fence_t *fence)
{
    work_t *work = calloc(1, sizeof *work);
    if (work == NULL) {
        pthread_mutex_lock(&exec_lock);
        complete(fence, DTL_ERROR_OUT_OF_MEMORY);
        pthread_mutex_unlock(&exec_lock);
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a record");
    }
    work->record = fence;
    return stream_push(stream, work);
}

static dtl_status_t whole_stream_create(void *self, int32_t device, uint64_t flags, void **out_stream)
{
    (void)self;
    (void)flags;
    if (is_fault("exec.stream_create.hangs")) {
        for (;;) {
            pause();
        }
    }
    if (is_fault("exec.stream_create.null")) {
        *out_stream = NULL;
        return DTL_SUCCESS;
    }
    if (is_fault("exec.stream_create.same_twice") && streams[0] != NULL) {
        *out_stream = streams[0];
        return DTL_SUCCESS;
    }
    stream_t *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a stream");
    }
    stream->device = is_fault("exec.stream_create.device_ignored") ? 0 : device;
    stream->end = &stream->first;
    pthread_cond_init(&stream->more, NULL);
    pthread_mutex_lock(&exec_lock);
    int place = 0;
    while (place < STREAMS && streams[place] != NULL) {
        place++;
    }
    const int is_made = place < STREAMS && pthread_create(&stream->thread, NULL, serve, stream) == 0;
    if (is_made) {
        streams[place] = stream;
    }
    pthread_mutex_unlock(&exec_lock);
    if (!is_made) {
        free(stream);
        return failed(DTL_ERROR_OUT_OF_MEMORY, "there are too many streams");
    }
    *out_stream = stream;
    return DTL_SUCCESS;
}

enum { LEAST = 2, GREATEST = -3 };

static dtl_status_t whole_stream_priorities(void *self, int32_t device, int32_t *out_least, int32_t *out_greatest)
{
    static int calls;
    (void)self;
    (void)device;
    *out_least = LEAST;
    *out_greatest = GREATEST;
    if (is_fault("exec.stream_priorities.swapped")) {
        *out_least = GREATEST;
        *out_greatest = LEAST;
    }
    if (is_fault("exec.stream_priorities.without_zero")) {
        *out_least = -1;
    }
    if (is_fault("exec.stream_priorities.changes")) {
        *out_greatest -= __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 2;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_stream_create_with_priority(void *self, int32_t device, uint64_t flags, int32_t priority,
                                                      void **out_stream)
{
    static void *last;
    if (is_fault("exec.stream_create_with_priority.null")) {
        *out_stream = NULL;
        return DTL_SUCCESS;
    }
    if (is_fault("exec.stream_create_with_priority.same_twice") && is_live(last)) {
        *out_stream = last;
        return DTL_SUCCESS;
    }
    if (priority < GREATEST || priority > LEAST || priority == 0 ||
        (is_fault("exec.stream_create_with_priority.least_refused") && priority == LEAST) ||
        (is_fault("exec.stream_create_with_priority.greatest_refused") && priority == GREATEST)) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "there is no such priority");
    }
    const dtl_status_t status = whole_stream_create(self, device, flags, out_stream);
    last = status == DTL_SUCCESS ? *out_stream : NULL;
    return status;
}

void *stream_of_nobody(void)
{
    void *stream = nobodys;
    if (stream == NULL && whole_stream_create(NULL, DEVICES, 0, &stream) == DTL_SUCCESS) {
        nobodys = stream;
    }
    return stream;
}

static dtl_status_t whole_stream_destroy(void *self, void *pointer)
{
    stream_t *stream = pointer;
    (void)self;
    if (is_fault("exec.stream_destroy.leak")) {
        return DTL_SUCCESS;
    }
    pthread_mutex_lock(&exec_lock);
    if (!is_live(stream)) {
        pthread_mutex_unlock(&exec_lock);
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no live stream");
    }
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] == stream) {
            streams[i] = NULL;
        }
    }
    stream->is_closing = 1;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&exec_lock);
    if (is_fault("exec.stream_destroy.not_joined")) {
        return DTL_SUCCESS; /* the thread ends later */
    }
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&exec_lock);
    while (stream->users > 0) {
        pthread_cond_wait(&exec_changed, &exec_lock);
    }
    pthread_mutex_unlock(&exec_lock);
    pthread_cond_destroy(&stream->more);
    free(stream);
    return DTL_SUCCESS;
}

void streams_stop(void)
{
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] != NULL) {
            DTL_IGNORE(whole_stream_destroy(NULL, streams[i]));
        }
    }
    nobodys = NULL;
}

/* Waits until all that is queued now is finished; with the lock. */
static void drain(stream_t *stream, uint64_t queued)
{
    stream->users++;
    while (stream->finished < queued) {
        pthread_cond_wait(&exec_changed, &exec_lock);
    }
    stream->users--;
    pthread_cond_broadcast(&exec_changed);
}

static dtl_status_t whole_stream_synchronize(void *self, void *pointer)
{
    stream_t *stream = pointer;
    dtl_status_t failure;
    (void)self;
    if (is_fault("exec.stream_synchronize.early")) {
        return DTL_SUCCESS;
    }
    pthread_mutex_lock(&exec_lock);
    if (!is_live(stream)) {
        pthread_mutex_unlock(&exec_lock);
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no live stream");
    }
    const int is_last_left_out = is_fault("exec.stream_synchronize.all_but_last") && stream->queued > 0;
    drain(stream, stream->queued - (uint64_t)is_last_left_out);
    if (is_fault("exec.stream_synchronize.waits_for_all")) {
        for (int i = 0; i < STREAMS; i++) {
            if (streams[i] != NULL) {
                drain(streams[i], streams[i]->queued);
            }
        }
    }
    failure = stream->failure;
    if (!is_fault("exec.stream_synchronize.failure_stays")) {
        stream->failure = DTL_SUCCESS;
    }
    pthread_mutex_unlock(&exec_lock);
    if (is_fault("exec.stream_synchronize.hides_failure")) {
        return DTL_SUCCESS;
    }
    return failure == DTL_SUCCESS ? failure : failed(failure, "work in the stream failed");
}

dtl_status_t streams_wait(int32_t device)
{
    pthread_mutex_lock(&exec_lock);
    for (int i = 0; i < STREAMS; i++) {
        if (streams[i] != NULL && streams[i]->device == device) {
            drain(streams[i], streams[i]->queued);
            if (is_fault("device.synchronize.one_stream_only")) {
                break;
            }
        }
    }
    pthread_mutex_unlock(&exec_lock);
    return DTL_SUCCESS;
}

static dtl_status_t whole_stream_query(void *self, void *pointer, int32_t *out_done)
{
    stream_t *stream = pointer;
    (void)self;
    pthread_mutex_lock(&exec_lock);
    if (is_fault("exec.stream_query.waits")) {
        drain(stream, stream->queued);
    }
    const int is_done = stream->finished == stream->queued;
    const dtl_status_t failure = stream->failure;
    pthread_mutex_unlock(&exec_lock);
    *out_done = is_done;
    if (is_fault("exec.stream_query.always_done")) {
        *out_done = 1;
    }
    if (is_fault("exec.stream_query.never_done")) {
        *out_done = 0;
    }
    if (is_fault("exec.stream_query.odd_boolean")) {
        *out_done *= 4;
    }
    if (is_done && failure != DTL_SUCCESS && !is_fault("exec.stream_query.hides_failure")) {
        return failed(failure, "work in the stream failed");
    }
    return DTL_SUCCESS;
}

SLOT(exec, stream_create, whole_stream_create, (void *self, int32_t device, uint64_t flags, void **out_stream),
     (self, device, flags, out_stream))
SLOT(exec, stream_priorities, whole_stream_priorities,
     (void *self, int32_t device, int32_t *out_least, int32_t *out_greatest), (self, device, out_least, out_greatest))
SLOT(exec, stream_create_with_priority, whole_stream_create_with_priority,
     (void *self, int32_t device, uint64_t flags, int32_t priority, void **out_stream),
     (self, device, flags, priority, out_stream))
SLOT(exec, stream_destroy, whole_stream_destroy, (void *self, void *stream), (self, stream))
SLOT(exec, stream_synchronize, whole_stream_synchronize, (void *self, void *stream), (self, stream))
SLOT(exec, stream_query, whole_stream_query, (void *self, void *stream, int32_t *out_done), (self, stream, out_done))
SLOT(exec, stream_wait_event, whole_stream_wait_event, (void *self, void *stream, void *event), (self, stream, event))
SLOT(exec, stream_host_callback, whole_stream_host_callback,
     (void *self, void *stream, dtl_task_fn_t function, void *user), (self, stream, function, user))
SLOT(exec, launch, whole_launch,
     (void *self, void *stream, const dtl_launch_t *launch, dtl_kernel_fn_t kernel, void *user,
      const void *const *args, const uint64_t *sizes, uint64_t count),
     (self, stream, launch, kernel, user, args, sizes, count))

dtl_exec_vtable_t exec_table(void)
{
    dtl_exec_vtable_t table = DTL_EXEC_VTABLE_INIT;
    table.stream_create = slot_stream_create;
    table.stream_destroy = slot_stream_destroy;
    table.stream_synchronize = slot_stream_synchronize;
    if (strcmp(fault_name(), "exec.streams_only") == 0) {
        return table; /* the library does the rest */
    }
    table.stream_priorities = slot_stream_priorities;
    table.stream_create_with_priority = slot_stream_create_with_priority;
    table.stream_query = slot_stream_query;
    table.stream_wait_event = slot_stream_wait_event;
    table.stream_host_callback = slot_stream_host_callback;
    table.launch = slot_launch;
    add_events(&table);
    add_loops(&table);
    add_modules(&table);
    return table;
}
