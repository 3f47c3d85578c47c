/* register_backend: a backend of the program's own, made of three small tables.
 *
 * Memory, a device, and execution (streams, events, host loops). Each slot counts its calls. The
 * tables leave out whatever the library can make itself: transfers (its memory is host memory),
 * timing, callbacks.
 *
 * Build: cc register_backend.c $(pkg-config --cflags --libs libdtl) -o register_backend
 * Run:   ./register_backend                     uses the program's own backend, "counting"
 *        DTL_BACKEND=host ./register_backend    the same program on another backend
 * Prints which backend did the work, the counters, and "correct".
 */
#include <dtl.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the library passes to every slot as `self`. Atomic: slots are called from any thread. */
typedef struct counting_t {
    atomic_ulong sets, allocs, frees, streams, events, records, loops, pieces, destroyed;
} counting_t;

/* ---- device ---- */

static dtl_status_t device_count(void *self, int32_t *out_count)
{
    (void)self;
    *out_count = 1;
    return DTL_SUCCESS;
}

static dtl_status_t device_set(void *self, int32_t device)
{
    counting_t *me = self;
    (void)device; /* checked against the count before */
    atomic_fetch_add(&me->sets, 1);
    return DTL_SUCCESS;
}

static dtl_status_t device_get(void *self, int32_t *out_device)
{
    (void)self;
    *out_device = 0;
    return DTL_SUCCESS;
}

/* ---- memory ---- */

static dtl_status_t memory_kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    /* The host can reach it, so the library can copy by itself. */
    out_info->properties = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
    out_info->alignment = sizeof(void *);
    strcpy(out_info->name, "counted");
    return DTL_SUCCESS;
}

static dtl_status_t memory_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                                 void **out_ptr)
{
    counting_t *me = self;
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE) {
        DTL_IGNORE(dtl_backend_set_error("use DTL_MEMORY_HOST or DTL_MEMORY_DEVICE"));
        return DTL_ERROR_NOT_SUPPORTED;
    }
    const uint64_t step = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    if (size_bytes > UINT64_MAX - step) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    void *memory = aligned_alloc(step, (size_bytes + step - 1) / step * step);
    if (memory == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    atomic_fetch_add(&me->allocs, 1);
    *out_ptr = memory;
    return DTL_SUCCESS;
}

static dtl_status_t memory_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment,
                                dtl_enum_word_t kind)
{
    counting_t *me = self;
    (void)size_bytes, (void)alignment, (void)kind;
    atomic_fetch_add(&me->frees, 1);
    free(ptr);
    return DTL_SUCCESS;
}

/* ---- execution: work is done when it is queued, so streams and events have nothing to remember
 * and any pointer but NULL will do for them ---- */

static dtl_status_t stream_create(void *self, int32_t device, uint64_t flags, void **out_stream)
{
    counting_t *me = self;
    (void)device, (void)flags;
    atomic_fetch_add(&me->streams, 1);
    *out_stream = me;
    return DTL_SUCCESS;
}

static dtl_status_t stream_nothing(void *self, void *stream)
{ /* destroy, synchronize */
    (void)self, (void)stream;
    return DTL_SUCCESS;
}

static dtl_status_t event_create(void *self, uint64_t flags, void **out_event)
{
    counting_t *me = self;
    (void)flags;
    atomic_fetch_add(&me->events, 1);
    *out_event = me;
    return DTL_SUCCESS;
}

static dtl_status_t event_destroy(void *self, void *event)
{
    (void)self, (void)event;
    return DTL_SUCCESS;
}

static dtl_status_t event_record(void *self, void *event, void *stream)
{
    counting_t *me = self;
    (void)event, (void)stream;
    atomic_fetch_add(&me->records, 1);
    return DTL_SUCCESS;
}

static dtl_status_t event_query(void *self, void *event, int32_t *out_done)
{
    (void)self, (void)event;
    *out_done = 1;
    return DTL_SUCCESS;
}

static dtl_status_t execute(void *self, dtl_task_fn_t function, void *user)
{
    (void)self;
    return function(user);
}

static dtl_status_t parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain,
                                 dtl_range_fn_t body, void *user)
{
    counting_t *me = self;
    atomic_fetch_add(&me->loops, 1);
    while (begin < end) {
        const uint64_t piece = end - begin < grain ? end - begin : grain;
        atomic_fetch_add(&me->pieces, 1);
        DTL_TRY(body(begin, begin + piece, user));
        begin += piece;
    }
    return DTL_SUCCESS;
}

static dtl_status_t max_parallelism(void *self, uint32_t *out_threads)
{
    (void)self;
    *out_threads = 1;
    return DTL_SUCCESS;
}

static void destroy(void *self)
{
    counting_t *me = self;
    atomic_fetch_add(&me->destroyed, 1);
}

static dtl_backend_t register_counting(counting_t *self)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    device.count = device_count;
    device.set = device_set;
    device.get = device_get;
    memory.alloc = memory_alloc;
    memory.free = memory_free;
    memory.kind_info = memory_kind_info;
    exec.stream_create = stream_create;
    exec.stream_destroy = stream_nothing;
    exec.stream_synchronize = stream_nothing;
    exec.event_create = event_create;
    exec.event_destroy = event_destroy;
    exec.event_record = event_record;
    exec.event_query = event_query;
    exec.execute = execute;
    exec.parallel_for = parallel_for;
    exec.max_parallelism = max_parallelism;
    table.destroy = destroy;
    table.device = &device;
    table.memory = &memory;
    table.exec = &exec;
    DTL_CHECK(dtl_backend_register("counting", &table, self, 0, &backend)); /* copies the tables */
    return backend;
}

/* ---- the program: it does not know which backend it runs on ---- */

enum { COUNT = 1000, GRAIN = 100 };

static dtl_status_t fill_squares(uint64_t begin, uint64_t end, void *user)
{
    double *values = user;
    for (uint64_t i = begin; i < end; i++) {
        values[i] = (double)(i * i);
    }
    return DTL_SUCCESS;
}

/* Computes squares on the executor, sends them through the device, says whether they came back. */
static int work(dtl_backend_t backend)
{
    double there[COUNT] = {0}, back[COUNT] = {0};
    dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
    dtl_executor_t executor;
    dtl_stream_t stream;
    dtl_event_t event;
    void *memory = NULL;

    DTL_CHECK(dtl_backend_info(backend, &info));
    DTL_CHECK(dtl_backend_set_device(backend, 0));
    DTL_CHECK(dtl_executor_create(backend, NULL, &executor));
    DTL_CHECK(dtl_executor_parallel_for(executor, 0, COUNT, GRAIN, fill_squares, there));
    DTL_CHECK(dtl_executor_destroy(executor));

    DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, sizeof there, 0, &memory));
    DTL_CHECK(dtl_stream_create(backend, 0, 0, &stream));
    DTL_CHECK(dtl_event_create(backend, 0, &event));
    DTL_CHECK(dtl_mem_copy_async(stream, memory, there, sizeof there));
    DTL_CHECK(dtl_mem_copy_async(stream, back, memory, sizeof back));
    DTL_CHECK(dtl_event_record(event, stream));
    DTL_CHECK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE)); /* both copies are done */
    DTL_CHECK(dtl_event_destroy(event));
    DTL_CHECK(dtl_stream_destroy(stream));
    DTL_CHECK(dtl_mem_free(backend, memory));

    for (uint64_t i = 0; i < COUNT; i++) {
        const double expected = (info.flags & DTL_BACKEND_NO_COMPUTE) != 0 ? 0 : (double)(i * i);
        if (back[i] != expected) {
            fprintf(stderr, "register_backend: value %d came back as %g, not %g\n", (int)i, back[i],
                    expected);
            return 0;
        }
    }
    return 1;
}

int main(void)
{
    static counting_t counting; /* all zero */
    dtl_backend_t own, chosen;
    DTL_CHECK(dtl_init(NULL));
    own = register_counting(&counting);

    /* NULL is what DTL_BACKEND names. Without it, this program prefers its own. */
    DTL_CHECK(dtl_backend_get(getenv("DTL_BACKEND") != NULL ? NULL : "counting", &chosen));
    printf("backend %s\n", dtl_backend_name(chosen));
    const int good = work(chosen);
    printf("device sets %lu, allocations %lu, frees %lu, streams %lu, events %lu, records %lu, loops %lu in "
           "%lu pieces\n",
           counting.sets, counting.allocs, counting.frees, counting.streams, counting.events,
           counting.records, counting.loops, counting.pieces);

    const unsigned long used = chosen.id == own.id; /* each counter moved once, or not at all */
    const int counted = counting.sets == used && counting.allocs == used && counting.frees == used &&
                        counting.streams == used && counting.events == used && counting.records == used &&
                        counting.loops == used && counting.pieces == used * (COUNT / GRAIN);
    DTL_CHECK(dtl_backend_unregister(own));
    DTL_CHECK(dtl_finalize());
    if (!good || !counted || counting.destroyed != 1) {
        fprintf(stderr, "register_backend: the data, a counter or destroy (called %lu times) is wrong\n",
                counting.destroyed);
        return 1;
    }
    printf("correct\n");
    return 0;
}
