/* Copies and fills. All memory is the host's, so a copy is a memcpy. */
#include "whole.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void move_bytes(void *dst, const void *src, uint64_t size_bytes)
{
    memcpy(dst, src, size_bytes);
}

static uint64_t at_most(uint64_t size, uint64_t limit)
{
    return size < limit ? size : limit;
}

static dtl_status_t whole_copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src,
                               dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    uint64_t size = size_bytes;
    (void)self;
    (void)dst_kind;
    (void)src_kind;
    if (is_fault("transfer.copy.exits")) {
        exit(0);
    }
    if (is_fault("transfer.copy.reversed")) {
        for (uint64_t i = 0; i < size; i++) {
            to[i] = from[size - 1 - i];
        }
        return DTL_SUCCESS;
    }
    if (is_fault("transfer.copy.offset") && size > 1 && is_ours(dst)) {
        memcpy(to + 1, from, size - 1);
        return DTL_SUCCESS;
    }
    if (is_fault("transfer.copy.short")) {
        size -= 1;
    }
    if (is_fault("transfer.copy.whole_words")) {
        size = size / 8 * 8;
    }
    if (is_fault("transfer.copy.aligned_words")) {
        to -= is_ours(dst) ? (uintptr_t)to % 4 : 0;
    }
    if (is_fault("transfer.copy.capped_4k")) {
        size = at_most(size, 4096);
    }
    if (is_fault("transfer.copy.capped_1m")) {
        size = at_most(size, 1 << 20);
    }
    if (is_fault("transfer.copy.never_back") && !is_ours(dst)) {
        return DTL_SUCCESS;
    }
    if (is_fault("transfer.copy.never_between") && is_ours(dst) && is_ours(src)) {
        return DTL_SUCCESS;
    }
    if (is_fault("transfer.copy.by_one_buffer")) {
        static unsigned char stage[256]; /* of all threads */
        for (uint64_t done = 0; done < size; done += sizeof stage) {
            const uint64_t part = at_most(size - done, sizeof stage);
            memcpy(stage, from + done, part);
            if (done % (16 * sizeof stage) == 0) {
                nanosleep(&(struct timespec){0, 1000}, NULL);
            }
            memcpy(to + done, stage, part);
        }
        return DTL_SUCCESS;
    }
    memcpy(to, from, size);
    if (is_fault("transfer.copy.past") && is_ours(dst)) {
        to[size] = (unsigned char)~to[size];
    }
    if (is_fault("transfer.copy.before") && is_ours(dst)) {
        to[-1] = (unsigned char)~to[-1];
    }
    if (is_fault("transfer.copy.moves") && is_ours(src)) {
        memset((void *)(uintptr_t)src, 0, size); /* gone at the source */
    }
    return DTL_SUCCESS;
}

/* A copy in a stream. */
typedef struct copy_t {
    work_t work;
    void *dst;
    const void *src;
    uint64_t size_bytes;
} copy_t;

static void *finish_late(void *argument)
{
    copy_t *copy = argument; /* from a buffer of its own, to memory of the arenas */
    nanosleep(&(struct timespec){0, 5000000}, NULL);
    move_bytes(copy->dst, copy->src, copy->size_bytes);
    free((void *)(uintptr_t)copy->src);
    free(copy);
    return NULL;
}

/* The stream goes on while the bytes are still on their way. */
static void run_late(const copy_t *copy)
{
    copy_t *late = malloc(sizeof *late);
    void *bytes = malloc(copy->size_bytes);
    pthread_t thread;
    if (late == NULL || bytes == NULL) {
        abort();
    }
    memcpy(bytes, copy->src, copy->size_bytes);
    *late = *copy;
    late->src = bytes;
    if (pthread_create(&thread, NULL, finish_late, late) != 0) {
        abort();
    }
    pthread_detach(thread);
}

static dtl_status_t run_copy(work_t *work)
{
    const copy_t *copy = (const copy_t *)work;
    if (is_fault("transfer.copy_async.after_event") && is_ours(copy->dst)) {
        run_late(copy);
        return DTL_SUCCESS;
    }
    move_bytes(copy->dst, copy->src, copy->size_bytes);
    return DTL_SUCCESS;
}

static dtl_status_t whole_copy_async(void *self, void *stream, void *dst, dtl_enum_word_t dst_kind, const void *src,
                                     dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    (void)self;
    (void)dst_kind;
    (void)src_kind;
    if (is_fault("transfer.copy_async.lost")) {
        return DTL_SUCCESS;
    }
    if (is_fault("transfer.copy_async.ahead_of_order")) {
        move_bytes(dst, src, size_bytes);
        return DTL_SUCCESS;
    }
    copy_t *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a copy");
    }
    copy->work.run = run_copy;
    copy->dst = dst;
    copy->src = src;
    copy->size_bytes = size_bytes;
    if (is_fault("transfer.copy_async.short")) {
        copy->size_bytes -= 1;
    }
    if (is_fault("transfer.copy_async.capped_4m")) {
        copy->size_bytes = at_most(size_bytes, 4 << 20);
    }
    if (is_fault("transfer.copy_async.past") && is_ours(dst)) {
        copy->size_bytes += is_ours(src);
        ((unsigned char *)dst)[size_bytes] ^= 0xFF;
    }
    if (is_fault("transfer.copy_async.wrong_stream")) {
        return stream_push(stream_of_nobody(), &copy->work);
    }
    if (is_fault("transfer.copy_async.destination_first") && is_ours(src) && is_ours(dst)) {
        copy->dst = (void *)(uintptr_t)src;
        copy->src = dst;
    }
    return stream_push(stream, &copy->work);
}

typedef struct rows_t { /* of a copy_2d */
    unsigned char *to;
    const unsigned char *from;
    uint64_t to_pitch, from_pitch, width, height;
} rows_t;

static void transpose(const rows_t *rows)
{
    for (uint64_t row = 0; row < rows->height; row++) {
        for (uint64_t column = 0; column < rows->width; column++) {
            const uint64_t from = column % rows->height * rows->from_pitch + row % rows->width;
            rows->to[row * rows->to_pitch + column] = rows->from[from];
        }
    }
}

/* As the planted fault sees it. Source and destination stay inside of what was given. */
static void copy_rows(const rows_t *rows)
{
    uint64_t height = rows->height, width = rows->width;
    if (is_fault("transfer.copy_2d.row_less")) {
        height -= 1;
    }
    if (is_fault("transfer.copy_2d.column_less")) {
        width -= 1;
    }
    for (uint64_t row = 0; row < height; row++) {
        uint64_t to = row * rows->to_pitch, from = row * rows->from_pitch, bytes = width;
        if (is_fault("transfer.copy_2d.ignores_src_pitch")) {
            from = at_most(row * rows->to_pitch, (rows->height - 1) * rows->from_pitch);
        }
        if (is_fault("transfer.copy_2d.ignores_dst_pitch")) {
            to = at_most(row * rows->from_pitch, (rows->height - 1) * rows->to_pitch);
        }
        if (is_fault("transfer.copy_2d.packs_rows")) {
            to = row * width;
        }
        if (is_fault("transfer.copy_2d.width_is_pitch") && row + 1 < height) {
            bytes = at_most(rows->to_pitch, rows->from_pitch);
        }
        if (is_fault("transfer.copy_2d.upside_down")) {
            to = (height - 1 - row) * rows->to_pitch;
        }
        memcpy(rows->to + to, rows->from + from, bytes);
    }
    if (is_fault("transfer.copy_2d.row_more") && is_ours(rows->to)) {
        const uint64_t last = (height - 1) * rows->from_pitch;
        memcpy(rows->to + height * rows->to_pitch, rows->from + last, width);
    }
}

static dtl_status_t whole_copy_2d(void *self, void *dst, dtl_enum_word_t dst_kind, uint64_t dst_pitch_bytes,
                                  const void *src, dtl_enum_word_t src_kind, uint64_t src_pitch_bytes,
                                  uint64_t width_bytes, uint64_t height)
{
    const rows_t rows = {dst, src, dst_pitch_bytes, src_pitch_bytes, width_bytes, height};
    (void)self;
    (void)dst_kind;
    (void)src_kind;
    if (is_fault("transfer.copy_2d.transposed")) {
        transpose(&rows);
    } else {
        copy_rows(&rows);
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_fill(void *self, void *dst, dtl_enum_word_t kind, uint8_t value, uint64_t size_bytes)
{
    unsigned char *to = dst;
    uint64_t size = size_bytes;
    (void)self;
    (void)kind;
    if (is_fault("transfer.fill.short")) {
        size -= 1;
    }
    if (is_fault("transfer.fill.past")) {
        size += 1;
    }
    if (is_fault("transfer.fill.zero")) {
        value = 0;
    }
    if (is_fault("transfer.fill.seven_bits")) {
        value &= 0x7F;
    }
    if (is_fault("transfer.fill.offset")) {
        to += 1;
        size -= 1;
    }
    if (is_fault("transfer.fill.whole_words")) {
        size = size / 4 * 4;
    }
    if (is_fault("transfer.fill.capped_1m")) {
        size = at_most(size, 1 << 20);
    }
    memset(to, value, size);
    return DTL_SUCCESS;
}

SLOT(transfer, copy, whole_copy,
     (void *self, void *dst, dtl_enum_word_t dst_kind, const void *src, dtl_enum_word_t src_kind, uint64_t size_bytes),
     (self, dst, dst_kind, src, src_kind, size_bytes))
SLOT(transfer, copy_async, whole_copy_async,
     (void *self, void *stream, void *dst, dtl_enum_word_t dst_kind, const void *src, dtl_enum_word_t src_kind,
      uint64_t size_bytes),
     (self, stream, dst, dst_kind, src, src_kind, size_bytes))
SLOT(transfer, copy_2d, whole_copy_2d,
     (void *self, void *dst, dtl_enum_word_t dst_kind, uint64_t dst_pitch_bytes, const void *src,
      dtl_enum_word_t src_kind, uint64_t src_pitch_bytes, uint64_t width_bytes, uint64_t height),
     (self, dst, dst_kind, dst_pitch_bytes, src, src_kind, src_pitch_bytes, width_bytes, height))
SLOT(transfer, fill, whole_fill, (void *self, void *dst, dtl_enum_word_t kind, uint8_t value, uint64_t size_bytes),
     (self, dst, kind, value, size_bytes))

dtl_transfer_vtable_t transfer_table(void)
{
    dtl_transfer_vtable_t table = DTL_TRANSFER_VTABLE_INIT;
    table.copy = slot_copy;
    table.copy_async = slot_copy_async;
    table.copy_2d = slot_copy_2d;
    table.fill = slot_fill;
    add_prefetch(&table);
    return table;
}
