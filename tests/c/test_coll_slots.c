/* Collective slots of a comm table: what the library passes, no room, failures, wrong outputs, time limits. The
 * communicator has one rank, so nothing is sent. C11, and valid C++17. */
#include "check.h"
#include <string.h>

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))
#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

/* What the slots do, and what they have seen. */
static struct {
    int32_t supports, polls, no_room, cancels; /* polls until an operation is done; negative: never */
    int32_t left[16];
    dtl_status_t supports_status, start_status, end_status;
    int ends_on_cancel, is_cancelled, only_exact; /* only_exact: no sums of floats where the order counts */
    dtl_coll_args_t seen;
    dtl_coll_range_t send, recv;
    uint64_t order[16], started;
} fake;

static dtl_status_t open_one(void* self, const dtl_comm_open_t* args, void** out, int32_t* out_rank, int32_t* out_size) {
    (void)self, (void)args;
    *out = &fake, *out_rank = 0, *out_size = 1;
    return DTL_SUCCESS;
}
static dtl_status_t close_one(void* self, void* comm) { return (void)self, (void)comm, DTL_SUCCESS; }
static dtl_status_t isend(void* self, void* comm, const void* buf, uint64_t size, int32_t dest, uint64_t word, uint64_t* out) {
    return (void)self, (void)comm, (void)buf, (void)size, (void)dest, (void)word, (void)out, DTL_ERROR_NOT_SUPPORTED;
}
static dtl_status_t irecv(void* self, void* comm, void* buf, uint64_t size, int32_t source, uint64_t word, uint64_t ignore,
                          uint64_t* out) {
    return (void)self, (void)comm, (void)buf, (void)size, (void)source, (void)word, (void)ignore, (void)out, DTL_ERROR_NOT_SUPPORTED;
}

static dtl_status_t test(void* self, void* comm, uint64_t op, int32_t* out_done, dtl_comm_done_t* out_result) {
    (void)self, (void)comm;
    *out_done = fake.is_cancelled || (fake.left[op % 16] >= 0 && fake.left[op % 16]-- == 0);
    out_result->status = fake.is_cancelled ? DTL_ERROR_CANCELED : fake.end_status;
    if (*out_done && out_result->status == DTL_SUCCESS && fake.recv.size_bytes > 0 && fake.send.size_bytes > 0) {
        memcpy(fake.recv.ptr, fake.send.ptr, (size_t)fake.recv.size_bytes);
    }
    return DTL_SUCCESS;
}
static dtl_status_t cancel(void* self, void* comm, uint64_t op) {
    (void)self, (void)comm, (void)op;
    fake.cancels++;
    fake.is_cancelled = fake.ends_on_cancel;
    return DTL_SUCCESS;
}
static dtl_status_t coll_supports(void* self, void* comm, const dtl_coll_args_t* args, int32_t* out_yes) {
    (void)self, (void)comm;
    fake.seen = *args;
    *out_yes = fake.supports;
    if (fake.only_exact && (args->flags & DTL_COLL_DETERMINISTIC) && args->dtype == DTL_DTYPE_FLOAT64 &&
        args->op == DTL_OP_SUM) {
        *out_yes = 0;
    }
    return fake.supports_status;
}
static dtl_status_t coll_start(void* self, void* comm, const dtl_coll_args_t* args, uint64_t* out_op) {
    (void)self, (void)comm;
    if (fake.no_room-- > 0) return DTL_ERROR_BUSY;
    if (fake.start_status != DTL_SUCCESS) return fake.start_status;
    fake.seen = *args, fake.send = args->send[0], fake.recv = args->recv[0];
    fake.is_cancelled = 0, fake.left[fake.started % 16] = fake.polls;
    if (fake.started < 16) fake.order[fake.started] = args->count;
    *out_op = fake.started++;
    return DTL_SUCCESS;
}

static void reset(void) {
    memset(&fake, 0, sizeof fake);
    fake.supports = 1;
}

static dtl_comm_t opened(uint64_t timeout_ns, uint64_t flags) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    desc.kind = "slots", desc.rank = 0, desc.size = 1, desc.job = "one", desc.timeout_ns = timeout_ns, desc.flags = flags;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    return comm;
}

static void arguments_are_passed(void) {
    dtl_comm_t comm = opened(0, 0), again;
    int64_t in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
    reset();
    CHECK_OK(dtl_comm_allreduce(comm, in, out, 4, DTL_DTYPE_INT64, DTL_OP_MAX));
    CHECK(memcmp(in, out, sizeof in) == 0 && fake.started == 1);
    CHECK(fake.seen.struct_size == sizeof fake.seen && fake.seen.collective == DTL_COLLECTIVE_ALLREDUCE);
    CHECK(fake.seen.dtype == DTL_DTYPE_INT64 && fake.seen.op == DTL_OP_MAX && fake.seen.root == -1);
    CHECK(fake.seen.count == 4 && fake.seen.element_bytes == 8 && fake.seen.flags == 0 && fake.seen.context == 0);
    CHECK(fake.seen.send_count == 1 && fake.send.ptr == in && fake.send.size_bytes == 32 && fake.recv.ptr == out);
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, out, 4, DTL_DTYPE_INT64, DTL_OP_MAX));
    CHECK(fake.seen.flags == DTL_COLL_IN_PLACE && fake.send.ptr == out && fake.recv.ptr == out);
    CHECK_OK(dtl_comm_bcast(comm, out, 2, DTL_DTYPE_INT64, 0));
    CHECK(fake.seen.collective == DTL_COLLECTIVE_BCAST && fake.seen.root == 0 && fake.seen.op == -1);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(fake.seen.collective == DTL_COLLECTIVE_BARRIER && fake.seen.dtype == -1 && fake.seen.element_bytes == 0);
    CHECK_OK(dtl_comm_exscan(comm, in, out, 4, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(fake.seen.collective == DTL_COLLECTIVE_EXSCAN);
    CHECK_OK(dtl_comm_dup(comm, &again));
    CHECK_OK(dtl_comm_barrier(again));
    CHECK(fake.seen.context != 0);
    CHECK_OK(dtl_comm_destroy(again));
    CHECK_OK(dtl_comm_destroy(comm));
    comm = opened(0, DTL_COMM_DETERMINISTIC);
    CHECK_OK(dtl_comm_allreduce(comm, in, out, 4, DTL_DTYPE_INT64, DTL_OP_MAX));
    CHECK(fake.seen.flags == DTL_COLL_DETERMINISTIC);
    CHECK_OK(dtl_comm_destroy(comm));
}

static void what_is_not_supported_is_the_librarys(void) {
    dtl_comm_t comm = opened(0, 0);
    int32_t in = 5, out = 0;
    reset();
    fake.supports = 0;
    CHECK_OK(dtl_comm_allreduce(comm, &in, &out, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(out == 5 && fake.started == 0);
    CHECK_OK(dtl_comm_destroy(comm));
}

static uint64_t started_by_sum(dtl_comm_t comm, dtl_dtype_t dtype) {
    const uint64_t before = fake.started;
    double in = 0.25, out = 0;
    CHECK_OK(dtl_comm_allreduce(comm, &in, &out, 1, dtype, DTL_OP_SUM));
    CHECK(memcmp(&in, &out, sizeof in) == 0);
    return fake.started - before;
}

/* Of two communicators only one is deterministic: its sums of doubles are the library's, and those of its duplicate.
 * Integers are the backend's on both. */
static void determinism_is_of_the_communicator(void) {
    dtl_comm_t strict = opened(0, DTL_COMM_DETERMINISTIC), loose = opened(0, 0), again;
    int turn;
    reset();
    fake.only_exact = 1;
    CHECK_OK(dtl_comm_dup(strict, &again));
    for (turn = 0; turn < 3; turn++) {
        CHECK(started_by_sum(strict, DTL_DTYPE_FLOAT64) == 0);
        CHECK(started_by_sum(loose, DTL_DTYPE_FLOAT64) == 1);
        CHECK(started_by_sum(again, DTL_DTYPE_FLOAT64) == 0);
        CHECK(started_by_sum(strict, DTL_DTYPE_INT64) == 1);
        CHECK(fake.seen.flags == DTL_COLL_DETERMINISTIC);
        CHECK(started_by_sum(loose, DTL_DTYPE_INT64) == 1);
        CHECK(fake.seen.flags == 0);
    }
    CHECK_OK(dtl_comm_destroy(again));
    CHECK_OK(dtl_comm_destroy(strict));
    CHECK_OK(dtl_comm_destroy(loose));
}

/* No room: the call is repeated, and nothing overtakes it. */
static void no_room_keeps_the_order(void) {
    dtl_comm_t comm = opened(0, 0);
    int32_t in[3] = {1, 2, 3}, out[3];
    dtl_request_t requests[3];
    uint64_t i;
    reset();
    fake.no_room = 3;
    CHECK_OK(dtl_comm_iallreduce(comm, in, out, 1, DTL_DTYPE_INT32, DTL_OP_SUM, &requests[0]));
    CHECK_OK(dtl_comm_iallreduce(comm, in, out, 2, DTL_DTYPE_INT32, DTL_OP_SUM, &requests[1]));
    CHECK_OK(dtl_comm_iallreduce(comm, in, out, 3, DTL_DTYPE_INT32, DTL_OP_SUM, &requests[2]));
    for (i = 0; i < 3; i++) CHECK_OK(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, NULL));
    CHECK(fake.started == 3 && fake.order[0] == 1 && fake.order[1] == 2 && fake.order[2] == 3);
    CHECK_OK(dtl_comm_destroy(comm));
}

static void failures_are_returned(void) {
    int32_t in = 5, out = 0;
    dtl_comm_t comm = opened(0, 0);
    reset();
    fake.supports_status = DTL_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(dtl_comm_allreduce(comm, &in, &out, 1, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE); /* this rank is out of step */
    CHECK_OK(dtl_comm_destroy(comm));
    comm = opened(0, 0);
    reset();
    fake.supports = 7;
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("comm.coll_supports");
    CHECK_OK(dtl_comm_destroy(comm));
    comm = opened(0, 0);
    reset();
    fake.start_status = DTL_ERROR_LIMIT;
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_LIMIT);
    CHECK_OK(dtl_comm_destroy(comm));
    comm = opened(0, 0);
    reset();
    fake.end_status = DTL_ERROR_CONNECTION_LOST;
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_CONNECTION_LOST);
    CHECK_TEXT("barrier");
    CHECK_OK(dtl_comm_destroy(comm));
}

static void a_time_limit_cancels(void) {
    dtl_comm_t comm = opened(MILLISECONDS(50), 0);
    reset();
    fake.polls = -1, fake.ends_on_cancel = 1; /* never complete by itself */
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_TIMEOUT);
    CHECK(fake.cancels > 0 && strstr(dtl_last_error(), "has not given the buffer back") == NULL);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_comm_destroy(comm));
    comm = opened(MILLISECONDS(50), 0);
    reset();
    fake.polls = -1; /* nor when it is cancelled: the buffer stays in use */
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("has not given the buffer back");
    memset(fake.left, 0, sizeof fake.left);
    DTL_IGNORE(dtl_comm_destroy(comm));
}

int main(void) {
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    CHECK_OK(dtl_init(NULL));
    comm.open = open_one, comm.close = close_one, comm.isend = isend, comm.irecv = irecv, comm.test = test;
    comm.cancel = cancel, comm.coll_supports = coll_supports;
    table.comm = &comm;
    CHECK_STATUS(dtl_backend_register("slots", &table, NULL, 0, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("coll_start");
    comm.coll_start = coll_start;
    CHECK_OK(dtl_backend_register("slots", &table, NULL, 0, &backend));
    arguments_are_passed();
    what_is_not_supported_is_the_librarys();
    determinism_is_of_the_communicator();
    no_room_keeps_the_order();
    failures_are_returned();
    a_time_limit_cancels();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
