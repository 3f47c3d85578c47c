/* Draws the arguments of one call and checks what the call did with its outputs. Part of fuzz.c. */
#ifndef DTL_TESTS_FUZZ_ARGUMENTS_H
#define DTL_TESTS_FUZZ_ARGUMENTS_H

#include "buffers.h"

#define MOST_RANKS 8

static int is(const char* a, const char* b) { return strcmp(a, b) == 0; }
static int has(const char* text, const char* part) { return strstr(text, part) != NULL; }
static int begins(const char* text, const char* part) { return strncmp(text, part, strlen(part)) == 0; }

static int ends(const char* text, const char* part) {
    const size_t a = strlen(text), b = strlen(part);
    return a >= b && is(text + a - b, part);
}

/* The value of the parameter of this name. */
static uint64_t named(const struct call* call, const union value* v, const char* name) {
    for (int i = 0; i < call->count; i++)
        if (is(call->parameters[i].name, name) && call->parameters[i].depth == 0) return v[i].word;
    return 0;
}

static uint64_t some_choice(const struct parameter* p) {
    uint64_t word = p->choices[below(p->choice_count)];
    if (p->facts & FACT_FLAGS) word = once_in(2) ? 0 : word | p->choices[below(p->choice_count)];
    return word;
}

/* The names are of sizes that no fact limits: larger ones take minutes, or too much memory. */
static uint64_t some_integer(const struct parameter* p) {
    const char *name = p->name, *base = p->base;
    if (p->choice_count > 0 && !once_in(4)) return some_choice(p);
    if (is(base, "dtl_enum_word_t")) return some_word();
    if (is(base, "dtl_dtype_t")) return (uint64_t)(int64_t)some_dtype();
    if (is(base, "dtl_reduce_op_t")) return once_in(8) ? edge() : once_in(6) ? types[below(32)] : below(14);
    if (is(base, "dtl_enum_t")) return once_in(6) ? edge() : below(12);
    if (p->facts & FACT_ROOM) return below(200);
    if (p->facts & FACT_COUNT && !is(base, "uint64_t")) return once_in(8) ? edge() : below(5);
    if (p->facts & FACT_COUNT) return some_count(64);
    if (is(name, "timeout_ns")) return once_in(2) ? 0 : below(1000000);
    if (is(name, "element_bytes")) return once_in(8) ? below(2) * UINT64_MAX : UINT64_C(1) << below(4);
    if (p->facts & FACT_SIZE || ends(name, "_bytes")) return some_count(4096);
    if (is(name, "end") || is(name, "begin") || is(name, "height")) return below(40);
    if (p->facts & FACT_RANK && !once_in(3)) return once_in(4) ? (uint64_t)DTL_PROC_NULL : 0;
    if (is(base, "int32_t")) return once_in(8) ? edge() : (uint64_t)(int64_t)(int32_t)(below(6) - 2);
    return once_in(2) ? below(4) : edge();
}

/* ---- Lengths. ---- */
/* Size of an element, 0 if there is no such type: every such call must be refused. */
static long double size_of(int32_t dtype) {
    uint64_t size = 0;
    return dtl_dtype_size(dtype, &size) == DTL_SUCCESS ? (long double)size : 0;
}

static long double size(dtl_comm_t comm) {
    int32_t ranks = 0;
    return dtl_comm_size(comm, &ranks) == DTL_SUCCESS ? ranks : MOST_RANKS;
}

/* The buffer of a slot as counts: 0 where it has none. */
static long double count_at(int slot, uint64_t index) {
    uint64_t count = 0;
    const uint8_t* end = me->slots + (uint64_t)slot * (ROOM + PAGE) + ROOM;
    if (index < me->lengths[slot] / 8) memcpy(&count, end - me->lengths[slot] + 8 * index, 8);
    return (long double)count;
}

static long double sum(int slot) {
    long double result = 0;
    for (uint64_t i = 0; i < me->lengths[slot] / 8; i++) result += count_at(slot, i);
    return result;
}

static long double own(dtl_comm_t comm, int slot) {
    int32_t rank = 0;
    return dtl_comm_rank(comm, &rank) == DTL_SUCCESS ? count_at(slot, (uint64_t)rank) : 0;
}

/* Number of bytes of a buffer whose length no expression states. */
static long double unstated(const struct call* call, int slot, const union value* v) {
    if (is(call->name, "dtl_mem_copy_2d")) {
        const char* name = is(call->parameters[slot].name, "dst") ? "dst_pitch_bytes" : "src_pitch_bytes";
        const long double height = named(call, v, "height"), width = named(call, v, "width_bytes");
        return height * width == 0 ? 0 : (height - 1) * named(call, v, name) + width;
    }
    if (is(call->name, "dtl_mem_copy_strided")) return LONGEST;
    /* Blocks at displacements, see fill_list. */
    const long double ranks = size((dtl_comm_t){named(call, v, "comm")});
    return 8 * (ranks > 128 ? ranks : 128) * size_of((int32_t)named(call, v, "dtype"));
}

static uint64_t length_of(const struct call* call, int slot, const union value* v) {
    const int is_unstated = call->parameters[slot].facts & FACT_UNSTATED;
    const long double length = is_unstated ? unstated(call, slot, v) : call->length(v, slot);
    return length < 0 || length >= 0x1p64L ? UINT64_MAX : (uint64_t)length;
}

/* Fills an array that a call reads. Counts and displacements stay within what `unstated` gives. */
static void fill_list(const struct parameter* p, uint8_t* start, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint8_t* at = start + i * p->size;
        if (noun_of(p->base) >= 0) set_integer(at, 8, some_handle(noun_of(p->base)));
        else if (is(p->base, "dtl_attr_t")) {
            dtl_attr_t attr = {some_string(), (uint32_t)below(8), (uint32_t)below(3), once_in(2) ? some_word() : below(9), 1.5, some_string(), once_in(20)};
            memcpy(at, &attr, sizeof attr);
        } else if (is(p->base, "dtl_dispatch_key_t")) {
            dtl_dispatch_key_t key = {some_word(), some_word(), some_word(), some_word(), {once_in(20), 0}};
            memcpy(at, &key, sizeof key);
        } else if (is(p->base, "dtl_resource_t")) {
            dtl_resource_t resource = {once_in(2) ? some_handle(noun_of("dtl_stream_t")) : below(9), NULL};
            memcpy(at, &resource, sizeof resource);
        } else if (ends(p->name, "displs")) set_integer(at, p->size, once_in(100) ? UINT64_MAX : i * 8);
        else if (ends(p->name, "_strides")) set_integer(at, p->size, below(64)); /* not below 0 */
        else if (p->facts & FACT_RANK) set_integer(at, p->size, once_in(8) ? edge() : i);
        else if (p->size == 8) set_integer(at, p->size, once_in(100) ? UINT64_MAX : below(8));
        else if (p->size == 4) set_integer(at, p->size, once_in(50) ? edge() : below(8));
        else set_integer(at, p->size, draw());
    }
}

static void* some_memory(void) { return me->memory[below(16)]; }

static void* some_pointer(const struct call* call, int slot, const union value* v) {
    const struct parameter* p = &call->parameters[slot];
    uint64_t count, length;
    uint8_t* start;
    if (once_in(20) || p->facts & FACT_OPAQUE) return NULL;
    if (is(p->base, "char") && p->depth == 1 && !p->is_output) return (void*)some_string();
    if (has(p->base, "dlpack") && !p->is_output) return NULL; /* a tensor's pointers are wild */
    if (p->facts & FACT_ADDRESS) return once_in(3) ? place_lent(64) : some_memory();
    if (p->facts & FACT_IN_PLACE && once_in(12)) return DTL_IN_PLACE;
    if (is(p->base, "void") && p->depth == 1) {
        length = length_of(call, slot, v);
        /* No buffer is so long. Beyond INT64_MAX the size itself is wrong, whatever the pointer. */
        if (length > LONGEST && length <= INT64_MAX) return NULL;
        return p->facts & FACT_LATER ? place_lent(length) : place(slot, length);
    }
    if (shape_of(p->base) != NULL && p->depth == 1) return struct_in(shape_of(p->base), slot, p->is_output);
    count = length_of(call, slot, v);
    if (count > LONGEST / p->size) count = LONGEST / p->size; /* no array is so long: refused */
    start = place(slot, count * p->size);
    if (is(p->base, "dtl_submission_t")) memcpy(start, &me->submissions[below(8)], sizeof(dtl_submission_t));
    else if (is(p->base, "dtl_selection_t")) {
        dtl_selection_t selection = {{some_handle(noun_of("dtl_policy_t"))}, below(50), {0, NULL}, 0, 0, NULL, 0, 0};
        memcpy(start, &selection, sizeof selection);
    } else if (is(p->base, "void")) { /* arguments of a kernel */
        for (uint64_t i = 0; i < count; i++) ((const void**)(void*)start)[i] = once_in(30) ? NULL : place_lent(64);
    } else if (p->is_input) fill_list(p, start, count);
    else memset(start, 0x5A, count * p->size);
    return start;
}

static void draw_arguments(const struct call* call, union value* v) {
    for (int i = 0; i < call->count; i++) {
        const struct parameter* p = &call->parameters[i];
        me->lengths[i] = 0;
        v[i].word = 0;
        if (p->depth > 0) continue;
        if (noun_of(p->base) >= 0) v[i].word = some_handle(noun_of(p->base));
        else if (ends(p->base, "_fn_t")) v[i].function = some_callback(p->base);
        else v[i].word = some_integer(p);
    }
    /* Lists first: the lengths of buffers are made of them. */
    for (int data = 0; data < 2; data++)
        for (int i = 0; i < call->count; i++) {
            const struct parameter* p = &call->parameters[i];
            if (p->depth > 0 && is(p->base, "void") == data) v[i].pointer = some_pointer(call, i, v);
        }
}

/* True if a call that fails with this status must not change this output. */
static int must_be_untouched(const struct call* call, const struct parameter* p, dtl_status_t status) {
    const int refused = status == DTL_ERROR_NULL_POINTER || status == DTL_ERROR_INVALID_ARGUMENT || status == DTL_ERROR_INVALID_STATE;
    if (!p->is_output || p->depth == 0 || status == DTL_SUCCESS || status == DTL_ERROR_TRUNCATED) return 0;
    if (status == DTL_ERROR_BUFFER_TOO_SMALL && (is(p->name, "out_len") || is(p->name, "out_count"))) return 0; /* the size that is needed */
    /* Buffers of communication, and outcomes of operations that failed. */
    if (begins(call->name, "dtl_comm_") || begins(call->name, "dtl_win_") || has(call->name, "request_")) {
        if (noun_of(p->base) >= 0 && begins(p->name, "out")) return 1;
        /* Another thread may destroy one of several requests after others have completed. */
        return status == DTL_ERROR_NULL_POINTER || (status == DTL_ERROR_INVALID_HANDLE && !has(call->name, "request_"));
    }
    if (is(p->base, "void") && p->depth == 1) return refused;
    /* The report of the self-test comes with the failure that it describes. */
    if (has(call->name, "submission_") || is(call->name, "dtl_backend_self_test")) return refused;
    return 1;
}

static void keep_results(const struct call* call, const union value* v) {
    for (int i = 0; i < call->count; i++) {
        const struct parameter* p = &call->parameters[i];
        uint64_t word = 0;
        if (!p->is_output || p->depth == 0 || v[i].pointer == NULL || v[i].pointer == DTL_IN_PLACE || me->lengths[i] == 0) continue;
        memcpy(&word, v[i].pointer, me->lengths[i] < 8 ? me->lengths[i] : 8);
        if (noun_of(p->base) >= 0 && p->depth == 1)
            for (uint64_t k = 0; k < me->lengths[i] / 8; k++) {
                memcpy(&word, (uint8_t*)v[i].pointer + 8 * k, 8);
                keep_handle(noun_of(p->base), word);
            }
        else if (is(p->base, "dtl_enum_word_t")) words[below(64)] = word;
        else if (is(p->base, "dtl_dtype_t") || is(p->base, "dtl_reduce_op_t")) types[below(32)] = word;
        else if (is(p->base, "dtl_submission_t")) memcpy(&me->submissions[below(8)], v[i].pointer, sizeof(dtl_submission_t));
        else if (is(p->name, "out_fd")) close((int)word);
        else if (is(p->base, "void") && p->depth == 2 && begins(call->name, "dtl_mem_")) memcpy(&me->memory[below(16)], &word, 8);
        else if (is(p->base, "dtl_dlpack_versioned_t") && p->depth == 2) {
            dtl_dlpack_versioned_t* tensor = *(dtl_dlpack_versioned_t**)v[i].pointer;
            tensor->deleter(tensor);
        } else if (is(p->base, "dtl_dlpack_managed_t") && p->depth == 2) {
            dtl_dlpack_managed_t* tensor = *(dtl_dlpack_managed_t**)v[i].pointer;
            tensor->deleter(tensor);
        }
    }
}

#endif
