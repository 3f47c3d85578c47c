/* An exec and a comm component for tests of C backends: every test file that includes this has its
 * own counters. */
#ifndef NATIVE_PARTS_H
#define NATIVE_PARTS_H
#include "far.h"

/* An exec component whose work is done when somebody asks for the third time. */
struct work {
    int streams, events, syncs, queries, executes, loops;
    dtl_status_t failure;
};
struct work_stream { int left; };
struct work_event { struct work_stream* stream; int recorded; };
static struct work work;
static int work_create_null;

static dtl_status_t w_stream_create(void* self, int32_t device, uint64_t flags, void** out) {
    (void)self, (void)device, (void)flags;
    if (work_create_null) return *out = NULL, DTL_SUCCESS;
    far_add(&work.streams);
    *out = calloc(1, sizeof(struct work_stream));
    return DTL_SUCCESS;
}
static dtl_status_t w_stream_destroy(void* self, void* stream) {
    (void)self;
    __atomic_fetch_sub(&work.streams, 1, __ATOMIC_ACQ_REL);
    free(stream);
    return DTL_SUCCESS;
}
static dtl_status_t w_stream_synchronize(void* self, void* stream) {
    const dtl_status_t failure = work.failure;
    (void)self;
    ((struct work_stream*)stream)->left = 0;
    far_add(&work.syncs);
    work.failure = DTL_SUCCESS;
    return failure;
}
static dtl_status_t w_event_create(void* self, uint64_t flags, void** out) {
    (void)self, (void)flags;
    far_add(&work.events);
    *out = calloc(1, sizeof(struct work_event));
    return DTL_SUCCESS;
}
static dtl_status_t w_event_destroy(void* self, void* event) {
    (void)self;
    __atomic_fetch_sub(&work.events, 1, __ATOMIC_ACQ_REL);
    free(event);
    return DTL_SUCCESS;
}
static dtl_status_t w_event_record(void* self, void* event, void* stream) {
    (void)self;
    ((struct work_event*)event)->stream = (struct work_stream*)stream;
    ((struct work_event*)event)->recorded = 1;
    ((struct work_stream*)stream)->left = 2;
    return DTL_SUCCESS;
}
static dtl_status_t w_event_query(void* self, void* event, int32_t* done) {
    struct work_event* e = (struct work_event*)event;
    (void)self;
    far_add(&work.queries);
    *done = !e->recorded || e->stream->left-- <= 0;
    return DTL_SUCCESS;
}
static dtl_status_t w_execute(void* self, dtl_task_fn_t function, void* user) {
    (void)self;
    far_add(&work.executes);
    return function(user);
}
static dtl_status_t w_parallel_for(void* self, uint64_t begin, uint64_t end, uint64_t grain, dtl_range_fn_t body, void* user) {
    dtl_status_t first = DTL_SUCCESS;
    (void)self;
    far_add(&work.loops);
    while (begin < end) {
        const uint64_t stop = end - begin > grain ? begin + grain : end;
        const dtl_status_t status = body(begin, stop, user);
        if (first == DTL_SUCCESS) first = status;
        begin = stop;
    }
    return first;
}
static dtl_status_t w_max_parallelism(void* self, uint32_t* out) { return (void)self, *out = 6, DTL_SUCCESS; }

static void exec_fill(dtl_exec_vtable_t* exec, int streams, int events, int host) {
    const dtl_exec_vtable_t empty = DTL_EXEC_VTABLE_INIT;
    *exec = empty;
    if (streams) {
        exec->stream_create = w_stream_create, exec->stream_destroy = w_stream_destroy;
        exec->stream_synchronize = w_stream_synchronize;
    }
    if (events) {
        exec->event_create = w_event_create, exec->event_destroy = w_event_destroy;
        exec->event_record = w_event_record, exec->event_query = w_event_query;
    }
    if (host) exec->execute = w_execute, exec->parallel_for = w_parallel_for, exec->max_parallelism = w_max_parallelism;
    memset(&work, 0, sizeof work);
}

static int rank_answer, size_answer, closed;
static dtl_status_t c_open(void* self, const dtl_comm_open_t* args, void** out, int32_t* rank, int32_t* size) {
    (void)self, (void)args;
    return *out = &closed, *rank = rank_answer, *size = size_answer, DTL_SUCCESS;
}
static dtl_status_t c_close(void* self, void* comm) { return (void)self, (void)comm, closed++, DTL_SUCCESS; }
static dtl_status_t c_isend(void* s, void* c, const void* b, uint64_t n, int32_t d, uint64_t m, uint64_t* o) {
    return (void)s, (void)c, (void)b, (void)n, (void)d, (void)m, (void)o, DTL_ERROR_NOT_SUPPORTED;
}
static dtl_status_t c_irecv(void* s, void* c, void* b, uint64_t n, int32_t d, uint64_t m, uint64_t i, uint64_t* o) {
    return (void)s, (void)c, (void)b, (void)n, (void)d, (void)m, (void)i, (void)o, DTL_ERROR_NOT_SUPPORTED;
}
static dtl_status_t c_test(void* s, void* c, uint64_t op, int32_t* done, dtl_comm_done_t* result) {
    return (void)s, (void)c, (void)op, (void)done, (void)result, DTL_ERROR_NOT_SUPPORTED;
}

static void comm_fill(dtl_comm_vtable_t* comm) {
    const dtl_comm_vtable_t empty = DTL_COMM_VTABLE_INIT;
    *comm = empty;
    comm->open = c_open, comm->close = c_close, comm->isend = c_isend, comm->irecv = c_irecv, comm->test = c_test;
}

#endif
