/* The transfer component: the copy engines of the card. Addresses of both devices are translated,
 * so copies between the devices need nothing else. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

typedef struct copy_t {
    sim_job_t job;
    void *dst;
    const void *src;
    uint64_t size_bytes;
} copy_t;

static dtl_status_t run_copy(sim_job_t *job)
{
    const copy_t *what = (const copy_t *)job;
    memcpy(card_translate(what->dst), card_translate(what->src), what->size_bytes);
    return DTL_SUCCESS;
}

/* Begins a command on the device of the memory; without any, on that of the calling thread. */
static dtl_status_t command(const void *dst, const void *src, const char *operation)
{
    int32_t device = card_device_of(dst);
    if (device < 0) device = card_device_of(src);
    return sim_command(device < 0 ? sim_current : device, operation);
}

static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src,
                         dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    copy_t what = {.dst = dst, .src = src, .size_bytes = size_bytes};
    (void)self, (void)dst_kind, (void)src_kind;
    DTL_TRY(command(dst, src, "copy"));
    return run_copy(&what.job);
}

/* The name of a copy in traces. */
static const char *direction(const void *dst, const void *src)
{
    const int32_t to = card_device_of(dst), from = card_device_of(src);
    if (to < 0) return from < 0 ? "copy on the host" : "copy to the host";
    if (from < 0) return "copy to the device";
    return to == from ? "copy on the device" : "copy between the devices";
}

static dtl_status_t copy_async(void *self, void *stream, void *dst, dtl_enum_word_t dst_kind,
                               const void *src, dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    copy_t *what = calloc(1, sizeof *what);
    (void)self, (void)dst_kind, (void)src_kind;
    if (what != NULL) {
        what->dst = dst, what->src = src, what->size_bytes = size_bytes;
        what->job.name = direction(dst, src), what->job.bytes = size_bytes;
    }
    return sim_push(stream, what, "copy", run_copy, sim_drop);
}

static dtl_status_t copy_2d(void *self, void *dst, dtl_enum_word_t dst_kind,
                            uint64_t dst_pitch_bytes,
                            const void *src, dtl_enum_word_t src_kind, uint64_t src_pitch_bytes,
                            uint64_t width_bytes, uint64_t height)
{
    unsigned char *to = card_translate(dst);
    const unsigned char *from = card_translate(src);
    (void)self, (void)dst_kind, (void)src_kind;
    DTL_TRY(command(dst, src, "copy"));
    for (uint64_t row = 0; row < height; row++) {
        memcpy(to + row * dst_pitch_bytes, from + row * src_pitch_bytes, width_bytes);
    }
    return DTL_SUCCESS;
}

static dtl_status_t fill(void *self, void *dst, dtl_enum_word_t kind, uint8_t value,
                         uint64_t size_bytes)
{
    (void)self, (void)kind;
    DTL_TRY(command(dst, dst, "fill"));
    memset(card_translate(dst), value, size_bytes);
    return DTL_SUCCESS;
}

static dtl_status_t run_nothing(sim_job_t *job)
{
    (void)job;
    return DTL_SUCCESS;
}

static dtl_status_t prefetch(void *self, void *stream, void *ptr, dtl_enum_word_t kind,
                             uint64_t size_bytes, int32_t device)
{
    (void)self, (void)ptr, (void)kind, (void)size_bytes, (void)device; /* the pages stay */
    return sim_push(stream, calloc(1, sizeof(sim_job_t)), NULL, run_nothing, sim_drop);
}

dtl_transfer_vtable_t sim_transfer_table(void)
{
    dtl_transfer_vtable_t table = DTL_TRANSFER_VTABLE_INIT;
    table.copy = copy;
    table.copy_async = copy_async;
    table.copy_2d = copy_2d;
    table.fill = fill;
    table.prefetch = prefetch;
    return table;
}
