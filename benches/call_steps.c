// Calls of a backend's slot with the checks of the library, as a C programmer writes them by hand.
// step_function only calls the slot; each function after it makes one check more. benches/call.c
// measures what each check costs. Built as a shared library of its own, so that calls of it go
// through the same linkage as calls of libdtl.so:
//
//     cc -O2 -fPIC -shared benches/call_steps.c -o libcall_steps.so
#include "call_steps.h"
#include <stdatomic.h>
#include <stdlib.h>

#define RARELY(condition) __builtin_expect(!!(condition), 0)
#define COLD __attribute__((cold, noinline))
enum { FUNCTION, EPOCH, OPEN, ONE_HANDLE, TWO_HANDLES, ALL };

// Record of a thread; `seq` is odd while the thread is inside the library.
struct record {
    _Atomic uint64_t seq;
    _Atomic uint32_t nested;
};
// Slot and table of handles: type 8, index 20, generation 36 bits.
struct entry {
    _Atomic uint64_t word;
    void *_Atomic object;
};
struct table {
    struct entry *_Atomic chunks[4096];
};
struct component {
    int32_t (*const *operations)(struct component *, void *, void *);
    void *self;
    int32_t (*record)(void *, void *, void *);
    int32_t (*query)(void *, void *, int32_t *);
};
struct object {
    struct component *exec;
    void *token;
    _Atomic uint64_t *deferred; // failures of work that has ended
    _Atomic char is_marked;
};

static _Thread_local struct record *mine __attribute__((tls_model("initial-exec")));
static struct table streams, events;
static _Atomic uint64_t *_Atomic gate; // not 0: the library is open
static _Atomic uint64_t errands, failures;
static struct component exec;

COLD static int32_t failed(int32_t status)
{
    return status;
}
COLD static struct record *adopt(void)
{
    return mine = calloc(1, sizeof *mine);
}
COLD static void nest(struct record *thread, uint32_t by)
{
    thread->nested += by;
}
COLD static void run_errands(void)
{
    errands = 0;
}

static inline struct record *enter(void)
{
    struct record *thread = mine;
    if (RARELY(!thread)) thread = adopt();
    const uint64_t seq = atomic_load_explicit(&thread->seq, memory_order_relaxed);
    if (RARELY(seq % 2)) {
        nest(thread, 1);
    } else {
        atomic_store_explicit(&thread->seq, seq + 1, memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
    }
    return thread;
}

static inline void leave(struct record *thread)
{
    if (RARELY(atomic_load_explicit(&thread->nested, memory_order_relaxed))) {
        nest(thread, -1U);
        return;
    }
    const uint64_t seq = atomic_load_explicit(&thread->seq, memory_order_relaxed);
    atomic_store_explicit(&thread->seq, seq + 1, memory_order_release);
    if (RARELY(atomic_load_explicit(&errands, memory_order_relaxed))) run_errands();
}

static inline struct object *find(struct table *table, uint64_t handle)
{
    struct entry *entry = table->chunks[handle >> 44 & 4095];
    if (RARELY(!entry)) return NULL;
    entry += handle >> 36 & 255;
    struct object *object = entry->object;
    const uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    return RARELY(word != handle) ? NULL : object;
}

static int32_t component_record(struct component *component, void *event, void *stream)
{
    if (RARELY(!component->record)) return failed(1);
    const uint64_t before = atomic_load_explicit(&failures, memory_order_relaxed);
    const int32_t status = component->record(component->self, event, stream);
    return RARELY(status) ? failed(status + (int32_t)before) : 0;
}
static int32_t component_query(struct component *component, void *event, void *out)
{
    if (RARELY(!component->query)) return failed(1);
    const uint64_t before = atomic_load_explicit(&failures, memory_order_relaxed);
    int32_t done;
    const int32_t status = component->query(component->self, event, &done);
    if (RARELY(status)) return failed(status + (int32_t)before);
    if (RARELY((uint32_t)done > 1)) return failed(2);
    *(int32_t *)out = done;
    return 0;
}
static int32_t (*const operations[])(struct component *, void *, void *) = {
    component_record, component_query};

static inline int32_t inside(int checks, uint64_t e, uint64_t s)
{
    struct object *stream = NULL, *event = NULL;
    if (checks >= OPEN && RARELY(!*gate)) return failed(3);
    if (checks >= ONE_HANDLE && RARELY(!(stream = find(&streams, s)))) return failed(4);
    if (checks >= TWO_HANDLES && RARELY(!(event = find(&events, e)))) return failed(5);
    if (checks < ALL) return exec.record(exec.self, event, stream);
    // One backend of both; the component's virtual call, which calls the slot; deferred failures.
    if (RARELY(stream->exec != event->exec)) return failed(6);
    struct component *component = stream->exec;
    const int32_t status = component->operations[0](component, event->token, stream->token);
    if (RARELY(status)) return status;
    if (RARELY(*stream->deferred || event->is_marked)) return failed(7);
    return 0;
}

#define STEP(name, checks)                                                                         \
    int32_t name(uint64_t event, uint64_t stream)                                                  \
    {                                                                                              \
        if ((checks) == FUNCTION) return exec.record(exec.self, NULL, NULL);                       \
        struct record *thread = enter();                                                           \
        const int32_t status = inside(checks, event, stream);                                      \
        leave(thread);                                                                             \
        return status;                                                                             \
    }
STEP(step_function, FUNCTION)
STEP(step_epoch, EPOCH)
STEP(step_open, OPEN)
STEP(step_one_handle, ONE_HANDLE)
STEP(step_two_handles, TWO_HANDLES)
STEP(step_record, ALL)

static inline int32_t inside_query(uint64_t handle, int32_t *out)
{
    struct object *event;
    if (RARELY(!*gate)) return failed(3);
    if (RARELY(!out || (uintptr_t)out % sizeof *out)) return failed(4);
    if (RARELY(!(event = find(&events, handle)))) return failed(5);
    const int32_t status = event->exec->operations[1](event->exec, event->token, out);
    return !status && RARELY(event->is_marked) ? failed(7) : status;
}

int32_t step_query(uint64_t handle, int32_t *out)
{
    struct record *thread = enter();
    const int32_t status = inside_query(handle, out);
    leave(thread);
    return status;
}

static uint64_t put(struct table *table, uint64_t type)
{
    static _Atomic uint64_t deferred;
    struct entry *chunk = calloc(256, sizeof *chunk);
    struct object *object = calloc(1, sizeof *object);
    object->exec = &exec, object->token = exec.self, object->deferred = &deferred;
    table->chunks[0] = chunk;
    chunk->object = object;
    return chunk->word = type << 56 | 1;
}

void steps_open(const dtl_exec_vtable_t *slots, void *self, uint64_t *event, uint64_t *stream)
{
    static _Atomic uint64_t is_open = 1;
    exec = (struct component){operations, self, slots->event_record, slots->event_query};
    gate = &is_open;
    *event = put(&events, 3), *stream = put(&streams, 2);
}
