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

/* The value of the parameter of this name, or `other` if there is none. */
static uint64_t named(const struct call* call, const union value* v, const char* name, uint64_t other) {
    for (int i = 0; i < call->count; i++)
        if (is(call->parameters[i].name, name) && call->parameters[i].depth == 0) return v[i].word;
    return other;
}

/* True if the operation may still use the buffers after the call has returned. */
static int goes_on(const struct call* call) {
    const char* name = call->name;
    return begins(name, "dtl_win_") || ends(name, "_async") || ends(name, "_init") || has(name, "_host") || ends(name, "_prefetch") ||
           (begins(name, "dtl_comm_") && call->count > 0 && is(call->parameters[call->count - 1].base, "dtl_request_t"));
}

static uint64_t some_integer(const struct call* call, const struct parameter* p) {
    const char *name = p->name, *base = p->base;
    if (is(base, "dtl_enum_word_t")) return some_word();
    if (is(base, "dtl_dtype_t")) return (uint64_t)(int64_t)some_dtype();
    if (is(base, "dtl_reduce_op_t")) return once_in(8) ? edge() : once_in(6) ? types[below(32)] : below(14);
    if (is(base, "dtl_enum_t")) return once_in(6) ? edge() : below(12);
    if (is(name, "timeout_ns")) return once_in(2) ? 0 : below(1000000);
    if (ends(name, "_pitch_bytes") || is(name, "width_bytes")) return some_count(1024);
    if (has(name, "size_bytes")) return some_count(4096);
    if (is(name, "acc_size_bytes")) return some_count(64);
    if (is(name, "element_bytes")) return once_in(8) ? below(2) * UINT64_MAX : UINT64_C(1) << below(4);
    if (is(name, "disp_unit") || is(name, "alignment")) return once_in(4) ? edge() : UINT64_C(1) << below(8);
    if (is(name, "cap") || is(name, "capacity")) return below(200);
    if (is(name, "ndim") || is(name, "ndims")) return once_in(8) ? edge() : below(5);
    if (is(name, "end") || is(name, "begin") || is(name, "height")) return below(40);
    if (is(name, "size")) return once_in(8) ? edge() : below(MOST_RANKS + 1);
    if (is(base, "uint64_t") && (ends(name, "count") || is(name, "n") || is(name, "count_per_rank") || is(name, "disp")))
        return some_count(is(call->name, "dtl_comm_group_create") ? 8 : 64);
    if (is(base, "uint32_t") && is(name, "count")) return below(5);
    if (is(base, "int32_t")) return once_in(8) ? edge() : (uint64_t)(int64_t)(int32_t)(below(6) - 2);
    return once_in(2) ? below(4) : edge();
}

static uint64_t comm_size(const struct call* call, const union value* v) {
    int32_t size = 0;
    const dtl_comm_t comm = {named(call, v, "comm", 0)};
    return dtl_comm_size(comm, &size) == DTL_SUCCESS ? (uint64_t)size : MOST_RANKS;
}

/* Saturating product. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t result;
    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

/* Number of bytes that a `void *` of this call points to, as documented. */
static uint64_t data_length(const struct call* call, const struct parameter* p, const union value* v) {
    const char *name = p->name, *f = call->name;
    uint64_t count = named(call, v, "count", named(call, v, "count_per_rank", 1));
    if (begins(f, "dtl_comm_") || begins(f, "dtl_win_")) {
        if (is(name, "base")) return named(call, v, "size_bytes", 0);
        const uint64_t element = size_of((int32_t)named(call, v, "dtype", 0)), ranks = comm_size(call, v);
        const int many = ends(f, "v") && !ends(f, "recv") && !ends(f, "irecv");
        if (is(name, "sbuf")) {
            count = named(call, v, "scount", count);
            if (has(f, "scatter") || has(f, "alltoall") || many) count = times(count, ranks);
        } else if (is(name, "rbuf")) {
            count = named(call, v, "rcount", count);
            if (has(f, "gather") || has(f, "alltoall") || many) count = times(count, ranks);
        } else if (is(name, "value") || is(name, "expected") || ends(f, "_op") || ends(f, "_swap")) {
            count = 1;
        }
        if (has(f, "reduce_scatter_block")) count = times(named(call, v, "count", 0), ranks); /* of rbuf for DTL_IN_PLACE */
        if (many || ends(f, "reduce_scatter")) count = 8 * (ranks > 128 ? ranks : 128); /* see fill_list */
        return times(count, element);
    }
    if (is(f, "dtl_mem_copy_2d")) {
        const uint64_t height = named(call, v, "height", 0), width = named(call, v, "width_bytes", 0);
        const uint64_t pitch = named(call, v, is(name, "dst") ? "dst_pitch_bytes" : "src_pitch_bytes", 0);
        const uint64_t before_last = height == 0 ? 0 : times(pitch, height - 1);
        return before_last > UINT64_MAX - width ? UINT64_MAX : before_last + width;
    }
    if (is(f, "dtl_mem_copy_strided")) return LONGEST; /* see fill_list */
    if (is(name, "identity") || is(name, "out_result")) return named(call, v, "acc_size_bytes", 0);
    return named(call, v, "size_bytes", 64);
}

/* Number of elements of an array parameter; 1 if the parameter is not an array. */
static uint64_t elements(const struct call* call, const struct parameter* p, const union value* v) {
    const char* name = p->name;
    if (is(name, "fields") || is(name, "attrs")) return named(call, v, "n", 0);
    if (is(name, "keys")) return named(call, v, "key_count", 0);
    if (is(name, "dests") || (has(call->name, "neighbor") && name[0] == 's' && name[1] != 'o' && !is(name, "sbuf"))) return named(call, v, "dest_count", 0);
    if (is(name, "sources") || (has(call->name, "neighbor") && name[0] == 'r' && !is(name, "rbuf"))) return named(call, v, "source_count", 0);
    if (ends(name, "counts") || ends(name, "displs")) return comm_size(call, v);
    if (is(name, "cpus")) return named(call, v, "capacity", 0);
    if (is(name, "dims") || is(name, "periods") || is(name, "coords") || is(name, "out_coords")) return (uint64_t)(int64_t)(int32_t)named(call, v, "ndims", 0);
    if (is(name, "shape") || ends(name, "_strides_bytes")) return (uint64_t)(int64_t)(int32_t)named(call, v, "ndim", 0);
    if (is(name, "out") && is(call->name, "dtl_comm_threads")) return (uint64_t)(int64_t)(int32_t)named(call, v, "size", 0);
    if (is(name, "out") || is(name, "buf") || is(name, "why")) return named(call, v, "cap", 1);
    if (is(name, "resources") || ends(name, "infos") || ends(name, "requests") || is(name, "indices") || is(name, "ranks") || is(name, "sizes") || is(name, "args"))
        return named(call, v, "count", 1);
    return 1;
}

/* Fills an array that a call reads. Counts and displacements stay within what data_length gives. */
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
        else if (ends(p->name, "_strides_bytes")) set_integer(at, p->size, below(64));
        else if (p->size == 8) set_integer(at, p->size, once_in(100) ? UINT64_MAX : below(is(p->name, "shape") ? 4 : 8));
        else if (p->size == 4) set_integer(at, p->size, once_in(50) ? edge() : below(8));
        else set_integer(at, p->size, draw());
    }
}

static void* some_memory(void) { return me->memory[below(16)]; }

static void* some_pointer(const struct call* call, int slot, const union value* v) {
    const struct parameter* p = &call->parameters[slot];
    const char *name = p->name, *f = call->name;
    const int output = !p->is_const;
    uint64_t count, length;
    uint8_t* start;
    me->lengths[slot] = 0;
    if (once_in(20)) return NULL;
    if (is(p->base, "char") && p->depth == 1 && p->is_const) return (void*)some_string();
    if (has(p->base, "dlpack") && !has(name, "out") && p->depth == 1) return NULL; /* a tensor's pointers are wild */
    if (is(name, "native") || is(name, "user") || is(name, "self") || is(name, "arg")) return NULL;
    if (is(name, "ptr") && (ends(f, "_free") || ends(f, "_query") || has(f, "export") || ends(f, "_free_async") || ends(f, "_prefetch")))
        return once_in(3) ? place_lent(64) : some_memory();
    if (is(p->base, "void") && p->depth == 1) {
        if (is(f, "dtl_comm_set_attr")) return (void*)(uintptr_t)below(9);
        if ((is(name, "sbuf") || is(name, "rbuf")) && once_in(12)) return DTL_IN_PLACE;
        length = data_length(call, p, v);
        /* No buffer is so long. Beyond INT64_MAX the size itself is wrong, whatever the pointer. */
        if (length > LONGEST && length <= INT64_MAX) return NULL;
        return goes_on(call) ? place_lent(length) : place(slot, length);
    }
    if (shape_of(p->base) != NULL && p->depth == 1) return struct_in(shape_of(p->base), slot, output);
    count = elements(call, p, v);
    if (count > LONGEST / p->size) count = LONGEST / p->size; /* no array is so long: refused */
    start = place(slot, count * p->size);
    if (is(p->base, "dtl_submission_t")) memcpy(start, &me->submissions[below(8)], sizeof(dtl_submission_t));
    else if (is(p->base, "dtl_selection_t")) {
        dtl_selection_t selection = {{some_handle(noun_of("dtl_policy_t"))}, below(50), {0, NULL}, 0, 0, NULL, 0, 0};
        memcpy(start, &selection, sizeof selection);
    } else if (is(p->base, "void")) { /* arguments of a kernel */
        for (uint64_t i = 0; i < count; i++) ((const void**)(void*)start)[i] = once_in(30) ? NULL : place_lent(64);
    } else if (!output || is(name, "requests") || is(name, "dims")) fill_list(p, start, count);
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
        else v[i].word = some_integer(call, p);
    }
    for (int i = 0; i < call->count; i++)
        if (call->parameters[i].depth > 0) v[i].pointer = some_pointer(call, i, v);
}

/* True if a call that fails with this status must not change this output. */
static int must_be_untouched(const struct call* call, const struct parameter* p, dtl_status_t status) {
    const int refused = status == DTL_ERROR_NULL_POINTER || status == DTL_ERROR_INVALID_ARGUMENT || status == DTL_ERROR_INVALID_STATE;
    if (p->is_const || p->depth == 0 || status == DTL_SUCCESS || status == DTL_ERROR_TRUNCATED) return 0;
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
        if (p->is_const || p->depth == 0 || v[i].pointer == NULL || v[i].pointer == DTL_IN_PLACE || me->lengths[i] == 0) continue;
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
