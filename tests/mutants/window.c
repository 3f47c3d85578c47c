/* wire's slots for windows, correct over vm_window.h, with planted faults. */
#define _GNU_SOURCE
#include "wire.h"

#include "../c/vm_window.h"

#include <string.h>

/* A put that is over for the library and not yet there. */
typedef struct late_t {
    void *win;
    unsigned char *bytes;
    uint64_t size_bytes, offset;
    int32_t target;
} late_t;

enum { LATE = 4096, PATIENCE = 300 };

static late_t late[LATE];
static unsigned late_count, asked;
static unsigned put_count;
static vm_key first_key;

static const wire_head_t *head(const void *comm)
{
    return comm;
}

static void do_late(void)
{
    for (unsigned i = 0; i < late_count; i++) {
        DTL_IGNORE(vm_copy(late[i].win, 1, late[i].bytes, late[i].size_bytes, late[i].target, late[i].offset));
        free(late[i].bytes);
    }
    late_count = 0;
}

/* Keeps a put back; 0 = it cannot. */
static int is_late(void *win, const void *buf, uint64_t size_bytes, int32_t target, uint64_t offset)
{
    unsigned char *bytes = late_count < LATE ? malloc(size_bytes) : NULL;
    if (bytes == NULL) {
        return 0;
    }
    memcpy(bytes, buf, size_bytes);
    late[late_count++] = (late_t){win, bytes, size_bytes, offset, target};
    return 1;
}

int window_test(uint64_t word, int32_t *out_done, dtl_comm_done_t *out_result)
{
    if (late_count > 0 && ++asked % PATIENCE == 0) {
        do_late();
    }
    if (!vm_is_word(word)) {
        return 0;
    }
    *out_done = 1;
    out_result->status = vm_status(word);
    if (is_fault("comm.win_put.ends_badly") && ++put_count % 20 == 0) {
        out_result->status = DTL_ERROR_COMMUNICATION;
    }
    return 1;
}

static dtl_status_t wire_win_create(void *self, void *comm, void *base_memory, uint64_t size_bytes, void **out_win,
                                    void *key, uint32_t *out_key_bytes)
{
    (void)self;
    if (is_fault("comm.win_create.wrong_base") && size_bytes > 1) {
        base_memory = (char *)base_memory + 1;
    }
    const dtl_status_t status = vm_create(head(comm)->size, base_memory, size_bytes, out_win, key, out_key_bytes);
    if (status == DTL_SUCCESS && is_fault("comm.win_create.key_of_the_first")) {
        if (first_key.pid == 0) {
            memcpy(&first_key, key, sizeof first_key);
        }
        memcpy(key, &first_key, sizeof first_key);
    }
    return status;
}

static dtl_status_t wire_win_attach(void *self, void *comm, void *win, int32_t rank, const void *key,
                                    uint32_t key_bytes)
{
    (void)self;
    if (is_fault("comm.win_attach.next_rank")) {
        rank = (rank + 1) % head(comm)->size;
    }
    return vm_attach(win, rank, key, key_bytes);
}

static dtl_status_t wire_win_destroy(void *self, void *comm, void *win)
{
    (void)self, (void)comm;
    do_late();
    return vm_destroy(win);
}

static dtl_status_t wire_win_put(void *self, void *comm, void *win, const void *buf, uint64_t size_bytes,
                                 int32_t target, uint64_t offset, uint64_t *out_op)
{
    (void)self, (void)comm;
    put_count++;
    if (is_fault("comm.win_put.wrong_offset") && offset > 0) {
        offset -= 1;
    }
    if (is_fault("comm.win_put.one_short") && size_bytes > 1) {
        size_bytes -= 1;
    }
    if (is_fault("comm.win_put.words_only") && size_bytes > 8) {
        size_bytes -= size_bytes % 8;
    }
    if (is_fault("comm.win_put.capped_64k") && size_bytes > 65536) {
        size_bytes = 65536;
    }
    if (is_fault("comm.win_put.misrouted") && put_count % 3 == 0) {
        target = (target + 1) % head(comm)->size;
    }
    if (is_fault("comm.win_put.swapped")) {
        return vm_get(win, (void *)(uintptr_t)buf, size_bytes, target, offset, out_op);
    }
    if (is_fault("comm.win_put.lost") && put_count % 50 == 0) {
        *out_op = vm_word(DTL_SUCCESS);
        return DTL_SUCCESS;
    }
    const int is_kept_back = is_fault("comm.win_flush.done_early") ||
                             (is_fault("comm.win_flush.done_early_if_large") && size_bytes > 65536);
    if (is_kept_back && is_late(win, buf, size_bytes, target, offset)) {
        *out_op = vm_word(DTL_SUCCESS);
        return DTL_SUCCESS;
    }
    return is_fault("comm.win_put.always_busy") ? DTL_ERROR_BUSY
                                                : vm_put(win, buf, size_bytes, target, offset, out_op);
}

static dtl_status_t wire_win_get(void *self, void *comm, void *win, void *buf, uint64_t size_bytes, int32_t target,
                                 uint64_t offset, uint64_t *out_op)
{
    (void)self;
    if (is_fault("comm.win_get.into_the_base") && registered_base(comm, buf) != NULL) {
        buf = registered_base(comm, buf);
    }
    if (is_fault("comm.win_get.wrong_offset") && offset > 0) {
        offset -= 1;
    }
    if (is_fault("comm.win_get.last_byte_missing") && size_bytes > 1) {
        size_bytes -= 1;
    }
    if (is_fault("comm.win_get.from_itself")) {
        target = head(comm)->rank;
    }
    return is_fault("comm.win_get.swapped") ? vm_put(win, buf, size_bytes, target, offset, out_op)
                                            : vm_get(win, buf, size_bytes, target, offset, out_op);
}

static dtl_status_t wire_win_flush(void *self, void *comm, void *win, int32_t target, uint64_t *out_op)
{
    (void)self, (void)comm;
    return vm_flush(win, target, out_op);
}

static dtl_status_t wire_win_atomics(void *self, void *comm, void *win, dtl_dtype_t dtype, int32_t *out_yes)
{
    (void)self, (void)comm, (void)win;
    *out_yes = vm_element(dtype) != 0 || is_fault("comm.win_atomics.yes_to_all");
    return DTL_SUCCESS;
}

static dtl_status_t wire_win_accumulate(void *self, void *comm, void *win, const void *buf, void *result,
                                        uint64_t count, dtl_dtype_t dtype, int32_t target, uint64_t offset,
                                        dtl_reduce_op_t op, uint64_t *out_op)
{
    (void)self, (void)comm;
    vm_unlocked = is_fault("comm.win_accumulate.not_atomic");
    if (is_fault("comm.win_accumulate.always_sums") && op != DTL_OP_NO_OP) {
        op = DTL_OP_SUM;
    }
    if (is_fault("comm.win_accumulate.unsigned") && dtype <= DTL_DTYPE_INT64) {
        dtype += DTL_DTYPE_UINT8 - DTL_DTYPE_INT8;
    }
    if (is_fault("comm.win_accumulate.first_only")) {
        count = 1;
    }
    if (is_fault("comm.win_accumulate.no_result")) {
        result = NULL;
    }
    return vm_accumulate(win, buf, result, count, dtype, op, target, offset, out_op);
}

static dtl_status_t wire_win_compare_and_swap(void *self, void *comm, void *win, const void *value,
                                              const void *expected, void *result, dtl_dtype_t dtype, int32_t target,
                                              uint64_t offset, uint64_t *out_op)
{
    (void)self, (void)comm;
    vm_unlocked = is_fault("comm.win_compare_and_swap.not_atomic");
    if (is_fault("comm.win_compare_and_swap.compares_a_byte")) {
        dtype = DTL_DTYPE_UINT8;
    }
    return is_fault("comm.win_compare_and_swap.always_stores")
               ? vm_accumulate(win, value, result, 1, dtype, DTL_OP_REPLACE, target, offset, out_op)
               : vm_compare_and_swap(win, value, expected, result, dtype, target, offset, out_op);
}

SLOT(comm, win_create, wire_win_create,
     (void *self, void *comm, void *base_memory, uint64_t size_bytes, void **out_win, void *key,
      uint32_t *out_key_bytes),
     (self, comm, base_memory, size_bytes, out_win, key, out_key_bytes))
SLOT(comm, win_attach, wire_win_attach,
     (void *self, void *comm, void *win, int32_t rank, const void *key, uint32_t key_bytes),
     (self, comm, win, rank, key, key_bytes))
SLOT(comm, win_destroy, wire_win_destroy, (void *self, void *comm, void *win), (self, comm, win))
SLOT(comm, win_put, wire_win_put,
     (void *self, void *comm, void *win, const void *buf, uint64_t size_bytes, int32_t target, uint64_t offset,
      uint64_t *out_op),
     (self, comm, win, buf, size_bytes, target, offset, out_op))
SLOT(comm, win_get, wire_win_get,
     (void *self, void *comm, void *win, void *buf, uint64_t size_bytes, int32_t target, uint64_t offset,
      uint64_t *out_op),
     (self, comm, win, buf, size_bytes, target, offset, out_op))
SLOT(comm, win_flush, wire_win_flush, (void *self, void *comm, void *win, int32_t target, uint64_t *out_op),
     (self, comm, win, target, out_op))
SLOT(comm, win_atomics, wire_win_atomics, (void *self, void *comm, void *win, dtl_dtype_t dtype, int32_t *out_yes),
     (self, comm, win, dtype, out_yes))
SLOT(comm, win_accumulate, wire_win_accumulate,
     (void *self, void *comm, void *win, const void *buf, void *result, uint64_t count, dtl_dtype_t dtype,
      int32_t target, uint64_t offset, dtl_reduce_op_t op, uint64_t *out_op),
     (self, comm, win, buf, result, count, dtype, target, offset, op, out_op))
SLOT(comm, win_compare_and_swap, wire_win_compare_and_swap,
     (void *self, void *comm, void *win, const void *value, const void *expected, void *result, dtl_dtype_t dtype,
      int32_t target, uint64_t offset, uint64_t *out_op),
     (self, comm, win, value, expected, result, dtype, target, offset, out_op))

void add_windows(dtl_comm_vtable_t *table)
{
    table->win_create = slot_win_create;
    table->win_attach = slot_win_attach;
    table->win_destroy = slot_win_destroy;
    table->win_put = slot_win_put;
    table->win_get = slot_win_get;
    table->win_flush = slot_win_flush;
    table->win_atomics = slot_win_atomics;
    table->win_accumulate = slot_win_accumulate;
    table->win_compare_and_swap = slot_win_compare_and_swap;
}
