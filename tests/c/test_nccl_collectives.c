/* The collectives of test_comm_collectives.c with the ranks' buffers on devices, over kind "nccl" (and an NCCL that is none,
 * tests/nccl): what that has goes there, the rest is staged. Each call's buffers are copied to the device and back. */
#include "comm_kinds.h"

enum { DEVICE_ROOM = 8 << 20 };
static unsigned char *devices_buffers[2];

/* Bytes of elements; 0 = not known, or too many. */
static uint64_t bytes_of(uint64_t count, dtl_dtype_t dtype) {
    static const int sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1};
    return dtype < 0 || dtype >= 12 || count > DEVICE_ROOM / 64 ? 0 : count * (uint64_t)sizes[dtype];
}

/* A buffer's stand-in, which begins as far from an aligned address. */
static void *stand_in(int which, const void *buffer, uint64_t size) {
    unsigned char *at;
    if (buffer == NULL) return NULL;
    if (devices_buffers[which] == NULL) {
        dtl_backend_t cuda;
        CHECK_OK(dtl_backend_get("cuda", &cuda));
        CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, DEVICE_ROOM, 0, (void **)&devices_buffers[which]));
    }
    at = devices_buffers[which] + (uintptr_t)buffer % 16;
    CHECK_OK(dtl_mem_copy(at, buffer, size));
    return at;
}

static int overlaps(const void *a, uint64_t a_size, const void *b, uint64_t b_size) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    return x < y + b_size && y < x + a_size;
}

/* Whether a call goes well as far as is seen here: those that do not are made as they are. */
static int is_sound(const void *s, uint64_t s_size, const void *r, uint64_t r_size) {
    return s_size > 0 && r_size > 0 && s_size < DEVICE_ROOM / 2 && r_size < DEVICE_ROOM / 2 && (s != NULL || r != NULL) &&
           !overlaps(s, s_size, r, r_size);
}

#define ON_DEVICE(name, s, s_size, r, r_size, as_it_is, on_device)                      \
    static dtl_status_t name {                                                          \
        const uint64_t size = bytes_of(count, dtype), s_bytes = s_size, r_bytes = r_size; \
        void *from, *into;                                                              \
        dtl_status_t status;                                                            \
        if (!is_sound(s, s_bytes, r, r_bytes)) return as_it_is;                         \
        from = stand_in(0, s, s_bytes), into = stand_in(1, r, r_bytes);                 \
        (void)size;                                                                     \
        status = on_device;                                                             \
        if (r != NULL) CHECK_OK(dtl_mem_copy(r, into, r_bytes));                        \
        return status;                                                                  \
    }
#define ALL (size * (uint64_t)ranks)

ON_DEVICE(device_allreduce(dtl_comm_t c, const void *s, void *r, uint64_t count, dtl_dtype_t dtype, dtl_reduce_op_t op), s, size,
          r, size, dtl_comm_allreduce(c, s, r, count, dtype, op), s == NULL || r == NULL
              ? dtl_comm_allreduce(c, s, r, count, dtype, op) : dtl_comm_allreduce(c, from, into, count, dtype, op))
ON_DEVICE(device_reduce(dtl_comm_t c, const void *s, void *r, uint64_t count, dtl_dtype_t dtype, dtl_reduce_op_t op, int32_t root),
          s, size, r, size, dtl_comm_reduce(c, s, r, count, dtype, op, root),
          dtl_comm_reduce(c, from, into, count, dtype, op, root))
ON_DEVICE(device_gather(dtl_comm_t c, const void *s, uint64_t count, void *r, dtl_dtype_t dtype, int32_t root), s, size, r, ALL,
          dtl_comm_gather(c, s, count, r, dtype, root), dtl_comm_gather(c, from, count, into, dtype, root))
ON_DEVICE(device_scatter(dtl_comm_t c, const void *s, uint64_t count, void *r, dtl_dtype_t dtype, int32_t root), s, ALL, r, size,
          dtl_comm_scatter(c, s, count, r, dtype, root), dtl_comm_scatter(c, from, count, into, dtype, root))
ON_DEVICE(device_allgather(dtl_comm_t c, const void *s, uint64_t count, void *r, dtl_dtype_t dtype), s, size, r, ALL,
          dtl_comm_allgather(c, s, count, r, dtype), dtl_comm_allgather(c, from, count, into, dtype))
ON_DEVICE(device_alltoall(dtl_comm_t c, const void *s, uint64_t count, void *r, dtl_dtype_t dtype), s, ALL, r, ALL,
          dtl_comm_alltoall(c, s, count, r, dtype), dtl_comm_alltoall(c, from, count, into, dtype))

static dtl_status_t device_bcast(dtl_comm_t c, void *buffer, uint64_t count, dtl_dtype_t dtype, int32_t root) {
    const uint64_t size = bytes_of(count, dtype);
    void *at = buffer == NULL || size == 0 ? NULL : stand_in(0, buffer, size);
    const dtl_status_t status = dtl_comm_bcast(c, at != NULL ? at : buffer, count, dtype, root);
    if (at != NULL) CHECK_OK(dtl_mem_copy(buffer, at, size));
    return status;
}

#define dtl_comm_allreduce device_allreduce
#define dtl_comm_reduce device_reduce
#define dtl_comm_gather device_gather
#define dtl_comm_scatter device_scatter
#define dtl_comm_allgather device_allgather
#define dtl_comm_alltoall device_alltoall
#define dtl_comm_bcast device_bcast
#include "test_comm_collectives.c"
