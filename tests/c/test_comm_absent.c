/* Absent ranks: the call that makes a communicator fails on one rank alone. Collectives on the new
 * communicator end with DTL_ERROR_RANK_FAILURE on the others, and a shrink leaves the absent rank out.
 * Messages to and from the absent rank that wait end with it, too; those among the others work. */
#include "comm_kinds.h"

enum { ABSENT = 1, LARGE = 1 << 20 };
static dtl_comm_t comm;
static char bytes[LARGE];

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

/* Whoever has noticed it first: each rank's text names the absent rank. */
static void names_absent(dtl_status_t got) {
    CHECK_STATUS(got, DTL_ERROR_RANK_FAILURE);
    CHECK_TEXT("because rank 1 does not take part");
}

static int64_t from[LARGE / 8], into[LARGE / 8];

typedef enum { BARRIER, ALLREDUCE, IBARRIER, IALLREDUCE, DUP, SPLIT, WINDOW, COLLECTIVES } collective_t;

static dtl_status_t call(dtl_comm_t on, collective_t which) {
    dtl_request_t request;
    dtl_comm_t made;
    dtl_win_t window;
    void *memory;
    switch (which) {
    case BARRIER: return dtl_comm_barrier(on);
    case ALLREDUCE: return dtl_comm_allreduce(on, from, into, LARGE / 8, DTL_DTYPE_INT64, DTL_OP_SUM);
    case IBARRIER:
        CHECK_OK(dtl_comm_ibarrier(on, &request));
        return dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
    case IALLREDUCE:
        CHECK_OK(dtl_comm_iallreduce(on, from, into, LARGE / 8, DTL_DTYPE_INT64, DTL_OP_SUM, &request));
        return dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
    case DUP: return dtl_comm_dup(on, &made);
    case SPLIT: return dtl_comm_split(on, 0, 0, &made);
    default: return dtl_win_allocate(on, 64, 1, &memory, &window);
    }
}

static void test_texts(void) {
    int which;
    for (which = 0; which < COLLECTIVES; which++) {
        const dtl_comm_t copy = dup_in_part(comm);
        if (me != ABSENT) {
            names_absent(call(copy, (collective_t)which));
            CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_INVALID_STATE);
            CHECK_TEXT("because rank 1 does not take part");
            CHECK_OK(dtl_comm_destroy(copy));
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

/* Rank 0 has given the collective up, and has destroyed the communicator, before the others call it. */
static void test_texts_of_late_ranks(void) {
    int which;
    for (which = 0; which < COLLECTIVES; which++) {
        const dtl_comm_t copy = dup_in_part(comm);
        if (me == 0) {
            names_absent(call(copy, (collective_t)which));
            CHECK_OK(dtl_comm_destroy(copy));
        }
        CHECK_OK(dtl_comm_barrier(comm));
        if (me > ABSENT) {
            names_absent(call(copy, (collective_t)which));
            CHECK_OK(dtl_comm_destroy(copy));
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

/* A report says which rank is absent. */
static void test_report(void) {
    const dtl_comm_t copy = dup_in_part(comm);
    char text[8192];
    if (me == 0) {
        names_absent(dtl_comm_barrier(copy));
        CHECK_OK(dtl_comm_dump(copy, text, sizeof text, NULL));
        CHECK(strstr(text, "rank 1 is absent") != NULL);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me != ABSENT) CHECK_OK(dtl_comm_destroy(copy));
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

/* It failed because of the absent rank, and the text names no other. */
static void is_absent(dtl_status_t got) {
    CHECK_STATUS(got, DTL_ERROR_RANK_FAILURE);
    CHECK_TEXT("rank 1 does not take part");
    CHECK(strstr(dtl_last_error(), "rank 0") == NULL && strstr(dtl_last_error(), "rank 2") == NULL);
}

static void messages_that_block(dtl_comm_t copy) {
    dtl_message_t message;
    char in[4];
    is_absent(dtl_comm_recv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 0, NULL));
    is_absent(dtl_comm_recv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, DTL_ANY_TAG, NULL));
    is_absent(dtl_comm_ssend(copy, bytes, 4, DTL_DTYPE_BYTE, ABSENT, 0));
    is_absent(dtl_comm_send(copy, bytes, LARGE, DTL_DTYPE_BYTE, ABSENT, 0));
    is_absent(dtl_comm_sendrecv(copy, bytes, 4, DTL_PROC_NULL, 0, in, 4, ABSENT, 0, DTL_DTYPE_BYTE, NULL));
    is_absent(dtl_comm_probe(copy, ABSENT, 0, NULL));
    is_absent(dtl_comm_mprobe(copy, ABSENT, 0, &message, NULL));
}

static void messages_with_requests(dtl_comm_t copy) {
    dtl_request_t list[2];
    dtl_recv_info_t info;
    dtl_status_t got;
    uint64_t index = 9;
    int32_t done;
    char in[4];
    CHECK_OK(dtl_comm_irecv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 0, &list[0]));
    is_absent(dtl_request_wait(list[0], DTL_TIMEOUT_INFINITE, &info));
    CHECK(info.source == ABSENT);
    CHECK_OK(dtl_comm_issend(copy, bytes, 4, DTL_DTYPE_BYTE, ABSENT, 0, &list[0]));
    list[1] = DTL_REQUEST_NULL;
    is_absent(dtl_request_wait_any(list, 2, DTL_TIMEOUT_INFINITE, &index, NULL));
    CHECK(index == 0 && list[0].id == 0);
    CHECK_OK(dtl_comm_isend(copy, bytes, LARGE, DTL_DTYPE_BYTE, ABSENT, 0, &list[0]));
    CHECK_OK(dtl_comm_irecv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 3, &list[1]));
    is_absent(dtl_request_wait_all(list, 2, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(list[0].id == 0 && list[1].id == 0);
    CHECK_OK(dtl_comm_recv_init(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 0, &list[0]));
    CHECK_OK(dtl_request_start(list[0]));
    is_absent(dtl_request_wait(list[0], DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_destroy(list[0]));
    CHECK_OK(dtl_comm_irecv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 0, &list[0]));
    do got = dtl_request_test(list[0], &done, NULL);
    while (got == DTL_SUCCESS && !done);
    is_absent(got);
}

/* The others look again and again, without a call that waits. */
static void looks(dtl_comm_t copy, int how) {
    dtl_message_t message;
    dtl_request_t request = DTL_REQUEST_NULL;
    dtl_status_t got;
    int32_t done = 0;
    char in[4];
    if (how == 2) CHECK_OK(dtl_comm_irecv(copy, in, 4, DTL_DTYPE_BYTE, ABSENT, 0, &request));
    do {
        got = how == 0   ? dtl_comm_iprobe(copy, ABSENT, 0, &done, NULL)
              : how == 1 ? dtl_comm_improbe(copy, ABSENT, 0, &done, &message, NULL)
                         : dtl_request_test(request, &done, NULL);
    } while (got == DTL_SUCCESS && !done);
    is_absent(got);
}

static void test_messages(void) {
    const dtl_comm_t copy = dup_in_part(comm);
    int how;
    if (me != ABSENT) {
        if (me == 0) messages_that_block(copy);
        messages_with_requests(copy);
        if (me == 0) CHECK_OK(dtl_comm_ssend(copy, bytes, LARGE, DTL_DTYPE_BYTE, 2, 5));
        if (me == 2) CHECK_OK(dtl_comm_recv(copy, bytes, LARGE, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 5, NULL));
        CHECK_OK(dtl_comm_destroy(copy));
    }
    for (how = 0; how < 3; how++) {
        const dtl_comm_t other = dup_in_part(comm);
        if (me != ABSENT) {
            looks(other, how);
            CHECK_OK(dtl_comm_destroy(other));
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    CHECK(ranks >= 3 && ranks < 10);
    test_blocking();
    test_texts();
    test_texts_of_late_ranks();
    test_report();
    test_requests();
    test_parent_is_gone();
    test_not_a_member();
    test_messages();
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
