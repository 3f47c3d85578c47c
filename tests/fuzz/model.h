/* Types of the generated table of calls, and the values with which calls are made: handles, numbers,
 * strings, callbacks. Part of fuzz.c; buffers and structs are in buffers.h. */
#ifndef DTL_TESTS_FUZZ_MODEL_H
#define DTL_TESTS_FUZZ_MODEL_H

#include <dtl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

union value {
    uint64_t word;
    void* pointer;
    void (*function)(void);
};

/* Facts of dtl-api.json about a parameter. */
enum {
    FACT_OPAQUE = 1,     /* never dereferenced */
    FACT_ADDRESS = 2,    /* of memory that the library manages or compares */
    FACT_IN_PLACE = 4,   /* may be DTL_IN_PLACE */
    FACT_LATER = 8,      /* in use after the call returns */
    FACT_RANK = 16,      /* a rank, or ranks */
    FACT_FLAGS = 32,     /* the choices are ored */
    FACT_UNSTATED = 64,  /* no expression states its length */
    FACT_COUNT = 128,    /* number of elements of other parameters */
    FACT_SIZE = 256,     /* number of bytes of other parameters */
    FACT_ROOM = 512      /* number of bytes of a buffer for text */
};

struct parameter {
    const char* name;
    const char* base; /* type without const and pointers */
    int depth;        /* number of pointers */
    int is_input, is_output;
    uint64_t size; /* of one element */
    int facts;
    const uint64_t* choices; /* constants that it may be */
    uint64_t choice_count;
};

struct call {
    const char* name;
    dtl_status_t (*function)(const union value*);
    long double (*length)(const union value*, int); /* of a parameter; of void: bytes */
    int count;
    const struct parameter* parameters;
};

enum { FIELD_INTEGER, FIELD_HANDLE, FIELD_STRING, FIELD_POINTER, FIELD_FUNCTION };

struct field {
    const char* name;
    int class;
    const char* base;
    uint64_t offset, size;
    const uint64_t* choices;
    uint64_t choice_count;
};

/* A struct that begins with its size. */
struct shape {
    const char* name;
    uint64_t size;
    const void* initial;
    const struct field* fields;
    uint64_t count;
};

/* What the expressions of lengths name; in arguments.h. */
static long double size_of(int32_t dtype);
static long double size(dtl_comm_t comm);
static long double sum(int slot);
static long double own(dtl_comm_t comm, int slot);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "calls.h"
#pragma GCC diagnostic pop

#define CALLS (sizeof calls / sizeof calls[0])
#define NOUNS (sizeof nouns / sizeof nouns[0])
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* ---- Random numbers: one generator for each thread. ---- */
static _Thread_local uint64_t generator;

static uint64_t draw(void) {
    uint64_t z = (generator += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t n) { return draw() % n; }
static int once_in(uint64_t n) { return below(n) == 0; }

/* ---- Handles: every thread adds the handles that it gets and uses those of all threads. ---- */
#define KEPT 48

static _Atomic uint64_t kept[NOUNS][KEPT];

static int noun_of(const char* type) {
    for (size_t i = 0; i < NOUNS; i++)
        if (strcmp(nouns[i], type) == 0) return (int)i;
    return -1;
}

static void keep_handle(int noun, uint64_t id) {
    if (id != 0) kept[noun][below(KEPT)] = id;
}

/* Live, destroyed, null, of another type or made up. */
static uint64_t some_handle(int noun) {
    const uint64_t id = kept[noun][below(KEPT)];
    switch (below(32)) {
        case 0: return 0;
        case 1: return kept[below(NOUNS)][below(KEPT)];
        case 2: return draw();
        case 3: return id + below(3);
        case 4: return id ^ (UINT64_C(1) << below(64));
        case 5: return UINT64_MAX;
        default: break;
    }
    if (strcmp(nouns[noun], "dtl_comm_t") == 0 && once_in(6)) return DTL_COMM_WORLD.id;
    return id;
}

/* ---- Numbers. ---- */
static _Atomic uint64_t words[64]; /* dtl_enum_word_t that calls returned */
static _Atomic uint64_t types[32]; /* dtl_dtype_t and dtl_reduce_op_t that calls returned */

static uint64_t edge(void) {
    static const uint64_t edges[] = {0, 1, 2, 3, 7, 8, 255, 256, 65535, 65536, INT32_MAX, UINT64_C(0x80000000), UINT32_MAX,
        UINT64_C(1) << 32, UINT64_C(1) << 47, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 1, UINT64_MAX};
    return edges[below(sizeof edges / sizeof edges[0])];
}

/* A number of elements or bytes for which a buffer can be allocated, or one that is too large for any buffer. */
static uint64_t some_count(uint64_t most) {
    static const uint64_t absurd[] = {UINT64_C(1) << 48, UINT64_C(1) << 56, UINT64_C(1) << 60, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX};
    if (once_in(24)) return absurd[below(sizeof absurd / sizeof absurd[0])];
    return once_in(3) ? below(most + 1) : below(9);
}

static const int32_t dtypes[] = {DTL_DTYPE_BYTE, DTL_DTYPE_INT8, DTL_DTYPE_INT16, DTL_DTYPE_INT32, DTL_DTYPE_INT64, DTL_DTYPE_FLOAT32,
    DTL_DTYPE_FLOAT64, DTL_DTYPE_UINT8, DTL_DTYPE_UINT64};

static int32_t some_dtype(void) {
    if (once_in(10)) return (int32_t)edge();
    if (once_in(6)) return (int32_t)types[below(32)];
    return dtypes[below(sizeof dtypes / sizeof dtypes[0])];
}

static uint64_t some_word(void) {
    static const uint64_t own[] = {DTL_MEMORY_HOST, DTL_MEMORY_DEVICE, DTL_MEMORY_MANAGED, DTL_MEMORY_PINNED, DTL_OPERATION_COPY,
        DTL_OPERATION_ALLOC, DTL_OPERATION_LAUNCH, DTL_LANGUAGE_C, 0};
    if (once_in(12)) return edge();
    if (once_in(12)) return draw();
    return once_in(3) ? words[below(64)] : own[below(sizeof own / sizeof own[0])];
}

/* ---- Strings. None names a kind that starts MPI in this process, whose faults are not the library's. ---- */
static const char* some_string(void) {
    static char longest[400];
    static const char* const texts[] = {"", "host", "null", "self", "shm", "auto", "threads", "nccl", "rdma", "fuzz", "fuzz1", "fuzz2",
        "Memory", "Schedule", "Host", "fixed", "round_robin", "dynamic_load", "auto_tune", "capacity", "a/b", "..", ".", "./trace.json",
        "./nothing.so", "./text", "name>=1.0", "name>=", "1.2.3", "\xff\xfe", "%s%n", "{\"type\":\"Host\"}", "{", "[1]", "memory",
        "pp", "p", "pu4", "void f(void) {}", "a b", "DTL_MEMORY_HOST", longest};
    if (once_in(16)) return NULL;
    if (longest[0] == 0) memset(longest, 'x', sizeof longest - 1);
    return texts[below(sizeof texts / sizeof texts[0])];
}

/* ---- Callbacks: they return random results and access nothing but their arguments. ---- */
static dtl_status_t some_status(void) { return once_in(3) ? (dtl_status_t)(int32_t)edge() : DTL_SUCCESS; }

static dtl_status_t task(void* user) { return (void)user, some_status(); }
static dtl_status_t range(uint64_t a, uint64_t b, void* user) { return (void)a, (void)b, (void)user, some_status(); }
static dtl_status_t fold(uint64_t a, uint64_t b, void* acc, void* user) { return (void)a, (void)b, (void)acc, (void)user, some_status(); }
static void combine(void* into, const void* from, void* user) { (void)into, (void)from, (void)user; }
static void logged(int32_t level, const char* text, void* user) { (void)level, (void)text, (void)user; }
static void traced(const dtl_trace_event_t* event, void* user) { (void)event, (void)user; }
static void operation(const void* in, void* inout, uint64_t count, dtl_dtype_t dtype, void* user) { (void)in, (void)inout, (void)count, (void)dtype, (void)user; }
static void attribute_deleted(dtl_comm_t comm, int32_t key, void* user, void* value) { (void)comm, (void)key, (void)user, (void)value; }
static void destroyed(void* user) { (void)user; }
static int32_t predicate(const dtl_dispatch_query_t* query, void* user) { return (void)query, (void)user, (int32_t)below(3); }
static dtl_status_t environment_started(void* user, void* state) { return (void)user, (void)state, some_status(); }
static uint64_t adapter(void* user, const dtl_resource_t* resource) { return (void)user, resource->value; }

static dtl_status_t kernel(const dtl_kernel_context_t* context, const void* const* args) { return (void)context, (void)args, some_status(); }
static dtl_status_t policy_task(const dtl_resource_t* resource, void* arg, dtl_waitable_t* out) { return (void)resource, (void)arg, (void)out, some_status(); }
static dtl_status_t invoked(const dtl_dispatch_query_t* query, dtl_event_t* out, void* user) { return (void)query, (void)out, (void)user, some_status(); }
static dtl_status_t environment_probed(void* user, char* why, uint64_t cap) { return (void)user, (void)why, (void)cap, some_status(); }
static dtl_status_t attribute_copied(dtl_comm_t comm, int32_t key, void* user, void* value, void** out, int32_t* out_copy) {
    (void)comm, (void)key, (void)user;
    *out = value, *out_copy = (int32_t)below(2);
    return some_status();
}

struct callback {
    const char* type;
    void (*function)(void);
};

#define CALLBACK(type, function) {type, (void (*)(void))function}
static const struct callback callbacks[] = {CALLBACK("dtl_task_fn_t", task), CALLBACK("dtl_range_fn_t", range),
    CALLBACK("dtl_fold_fn_t", fold), CALLBACK("dtl_combine_fn_t", combine), CALLBACK("dtl_log_fn_t", logged),
    CALLBACK("dtl_trace_fn_t", traced), CALLBACK("dtl_op_fn_t", operation),
    CALLBACK("dtl_attribute_delete_fn_t", attribute_deleted), CALLBACK("dtl_dispatch_destroy_fn_t", destroyed),
    CALLBACK("dtl_dispatch_predicate_fn_t", predicate), CALLBACK("dtl_environment_init_fn_t", environment_started),
    CALLBACK("dtl_environment_finalize_fn_t", environment_started), CALLBACK("dtl_resource_adapter_fn_t", adapter),
    CALLBACK("dtl_kernel_fn_t", kernel), CALLBACK("dtl_policy_task_fn_t", policy_task), CALLBACK("dtl_dispatch_fn_t", invoked),
    CALLBACK("dtl_environment_probe_fn_t", environment_probed), CALLBACK("dtl_attribute_copy_fn_t", attribute_copied)};

/* A callback of this type, or NULL. */
static void (*some_callback(const char* type))(void) {
    if (once_in(8)) return NULL;
    for (size_t i = 0; i < sizeof callbacks / sizeof callbacks[0]; i++)
        if (strcmp(callbacks[i].type, type) == 0) return callbacks[i].function;
    return NULL;
}

#endif
