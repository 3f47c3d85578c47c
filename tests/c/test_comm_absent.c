/* Absent ranks: the call that makes a communicator fails on one rank alone. Collectives on the new
 * communicator end with DTL_ERROR_RANK_FAILURE on the others, and a shrink leaves the absent rank out. */
#include "comm_kinds.h"

enum { ABSENT = 1 };
static dtl_comm_t comm;

static dtl_status_t copy_unless_absent(dtl_comm_t of, int32_t key, void *user, void *value, void **out, int32_t *copied) {
    (void)of, (void)key, (void)user, (void)value;
    *out = NULL;
    *copied = 1;
    return me == ABSENT ? DTL_ERROR_NOT_SUPPORTED : DTL_SUCCESS;
}

/* A duplicate that all ranks but one have. */
static dtl_comm_t dup_in_part(dtl_comm_t parent) {
    dtl_comm_t copy = DTL_COMM_NULL;
    int32_t key;
    CHECK_OK(dtl_comm_key_create(copy_unless_absent, NULL, NULL, &key));
    CHECK_OK(dtl_comm_set_attr(parent, key, &key));
    CHECK_STATUS(dtl_comm_dup(parent, &copy), me == ABSENT ? DTL_ERROR_NOT_SUPPORTED : DTL_SUCCESS);
    CHECK_OK(dtl_comm_delete_attr(parent, key));
    CHECK_OK(dtl_comm_key_destroy(key));
    return copy;
}

static void shrink_and_use(dtl_comm_t copy) {
    int32_t one = 1, sum = 0, size;
    dtl_comm_t left;
    CHECK_OK(dtl_comm_shrink(copy, &left));
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == ranks - 1);
    CHECK_OK(dtl_comm_allreduce(left, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(sum == ranks - 1);
    CHECK_OK(dtl_comm_destroy(left));
}

/* The parent is in order: the absent rank goes on with it. */
static void test_blocking(void) {
    dtl_comm_t copy = dup_in_part(comm);
    if (me != ABSENT) {
        CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_RANK_FAILURE);
        shrink_and_use(copy);
        CHECK_OK(dtl_comm_destroy(copy));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

static void test_requests(void) {
    dtl_comm_t copy = dup_in_part(comm);
    int64_t one = 1, sum = 0;
    dtl_request_t request;
    if (me != ABSENT) {
        CHECK_OK(dtl_comm_iallreduce(copy, &one, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM, &request));
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_comm_destroy(copy));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

/* Nobody reads the notice on the parent's context before the parent is destroyed. */
static void test_parent_is_gone(void) {
    dtl_comm_t parent, copy;
    CHECK_OK(dtl_comm_dup(comm, &parent));
    copy = dup_in_part(parent);
    CHECK_OK(dtl_comm_destroy(parent));
    if (me != ABSENT) {
        CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_RANK_FAILURE);
        shrink_and_use(copy);
        CHECK_OK(dtl_comm_destroy(copy));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

/* A rank that is absent from the communicator, but no member of a part of it, harms nobody there. */
static void test_not_a_member(void) {
    dtl_comm_t copy = dup_in_part(comm), part;
    const int32_t others[2] = {0, 2};
    CHECK_OK(dtl_comm_group_create(comm, others, 2, &part));
    if (me != ABSENT) CHECK_OK(dtl_comm_destroy(copy));
    if (me == 0 || me == 2) {
        CHECK_OK(dtl_comm_barrier(part));
        CHECK_OK(dtl_comm_destroy(part));
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    CHECK(ranks >= 3 && ranks < 10);
    test_blocking();
    test_requests();
    test_parent_is_gone();
    test_not_a_member();
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
