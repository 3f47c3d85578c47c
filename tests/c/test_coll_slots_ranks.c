/* A table whose coll_supports has other answers on other ranks, which is an error of its author: the collective fails
 * on every rank, at the time limit or before, and the text shows which ranks have started it by the slot. Three ranks
 * are forked. C11, and valid C++17. */
#include "mail_comm.h"

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))
#define COLLECTIVE (UINT64_C(1) << 62) /* number of the only collective */

static int is_started, is_cancelled, all_take;

static dtl_status_t coll_supports(void* self, void* comm, const dtl_coll_args_t* args, int32_t* out_yes) {
    (void)self, (void)comm, (void)args;
    *out_yes = all_take || mail_rank == 0;
    return DTL_SUCCESS;
}
static dtl_status_t coll_start(void* self, void* comm, const dtl_coll_args_t* args, uint64_t* out_op) {
    (void)self, (void)comm, (void)args;
    is_started = 1;
    *out_op = COLLECTIVE;
    return DTL_SUCCESS;
}
static dtl_status_t test(void* self, void* comm, uint64_t op, int32_t* out_done, dtl_comm_done_t* out_result) {
    if (op != COLLECTIVE) return mail_test(self, comm, op, out_done, out_result);
    *out_done = is_cancelled;
    out_result->status = DTL_ERROR_CANCELED;
    if (all_take && mail_rank == 1) {
        *out_done = 1, out_result->status = DTL_ERROR_NATIVE_BACKEND;
        DTL_IGNORE(dtl_backend_set_error("the switch is hot"));
    }
    return DTL_SUCCESS;
}
static dtl_status_t cancel(void* self, void* comm, uint64_t op) {
    (void)self, (void)comm;
    if (op == COLLECTIVE) is_cancelled = 1;
    return DTL_SUCCESS;
}

static dtl_comm_t opened(uint64_t timeout_ns) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    desc.kind = "differs", desc.rank = mail_rank, desc.size = 3, desc.job = "three", desc.timeout_ns = timeout_ns;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    is_started = is_cancelled = 0;
    return comm;
}

/* Without a near time limit, ranks 1 and 2 have asked rank 0 what it does: the first of them to know gives up. */
static void fails(dtl_comm_t comm, int is_soon_over) {
    int64_t in = 1, out = 0;
    const dtl_status_t status = dtl_comm_allreduce(comm, &in, &out, 1, DTL_DTYPE_INT64, DTL_OP_SUM);
    const char* text = dtl_last_error();
    if (!is_soon_over || status != DTL_ERROR_TIMEOUT) CHECK_STATUS(status, DTL_ERROR_INVALID_ARGUMENT);
    if (mail_rank == 0 || (!is_soon_over && strstr(text, "gave up") == NULL)) {
        CHECK(strstr(text, "allreduce #0 (count 1, INT64, SUM, by the backend)") != NULL);
    }
    CHECK(out == 0 && is_started == (mail_rank == 0) && is_cancelled == is_started);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* The slot fails on rank 1, which destroys the communicator: the others have that status, also for later calls. */
static void fails_on_one(void) {
    dtl_comm_t comm = opened(MILLISECONDS(600000));
    int64_t in = 1, out = 0;
    all_take = 1;
    CHECK_STATUS(dtl_comm_allreduce(comm, &in, &out, 1, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_NATIVE_BACKEND);
    if (mail_rank == 1) CHECK(strstr(dtl_last_error(), "the switch is hot") != NULL);
    if (mail_rank != 1) {
        CHECK(strstr(dtl_last_error(), "absent (") == NULL);
        CHECK_STATUS(dtl_comm_recv(comm, &in, 1, DTL_DTYPE_INT64, 1, 1, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK(strstr(dtl_last_error(), "rank 1 failed (collective #0 ended there with DTL_ERROR_NATIVE_BACKEND)") != NULL);
    }
    CHECK_OK(dtl_comm_destroy(comm));
    all_take = 0;
}

int main(void) {
    static uint64_t mask = UINT64_MAX;
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    mail_start(3);
    CHECK_OK(dtl_init(NULL));
    comm.open = mail_open, comm.close = mail_close, comm.isend = mail_isend, comm.irecv = mail_irecv;
    comm.test = test, comm.cancel = cancel, comm.coll_supports = coll_supports, comm.coll_start = coll_start;
    table.comm = &comm;
    CHECK_OK(dtl_backend_register("differs", &table, &mask, 0, &backend));
    fails(opened(MILLISECONDS(500)), 1);
    fails(opened(MILLISECONDS(600000)), 0);
    fails_on_one();
    CHECK_OK(dtl_finalize());
    mail_finish();
    printf("ok\n");
    return 0;
}
