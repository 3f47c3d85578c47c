/* Communicators from communicators: their ranks, messages that stay apart, attributes. */
#include "comm_kinds.h"

static dtl_comm_t comm;

static int rank_of(dtl_comm_t of) {
    int32_t rank;
    CHECK_OK(dtl_comm_rank(of, &rank));
    return rank;
}

static int size_of(dtl_comm_t of) {
    int32_t size;
    CHECK_OK(dtl_comm_size(of, &size));
    return size;
}

/* Sums the ranks of the parent over a communicator. */
static int sum_of(dtl_comm_t of) {
    int32_t sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &me, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

static void test_dup(void) {
    dtl_comm_t copy;
    dtl_request_t request;
    dtl_recv_info_t info;
    int32_t to_copy = 1000 + me, to_comm = 2000 + me, got = 0;
    const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK(rank_of(copy) == me && size_of(copy) == ranks);
    /* The same tag and source on both: neither takes the other's message, not with wildcards either. */
    CHECK_OK(dtl_comm_isend(copy, &to_copy, 1, DTL_DTYPE_INT32, next, 5, &request));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_comm_isend(comm, &to_comm, 1, DTL_DTYPE_INT32, next, 5, &request));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
    CHECK(got == 2000 + before && info.source == before && info.tag == 5);
    CHECK_OK(dtl_comm_recv(copy, &got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
    CHECK(got == 1000 + before && info.source == before);
    CHECK_OK(dtl_comm_destroy(copy));
    CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_barrier(comm));
}

/* A duplicate outlives what it was made from. */
static void test_lives_on(void) {
    dtl_comm_t first, second, third;
    CHECK_OK(dtl_comm_dup(comm, &first));
    CHECK_OK(dtl_comm_dup(first, &second));
    CHECK_OK(dtl_comm_destroy(first));
    CHECK_OK(dtl_comm_dup(second, &third));
    CHECK_OK(dtl_comm_destroy(second));
    CHECK(sum_of(third) == ranks * (ranks - 1) / 2);
    CHECK_OK(dtl_comm_destroy(third));
}

static void test_split(void) {
    dtl_comm_t half, single, none;
    dtl_recv_info_t info;
    int32_t got = -1;
    int rank, expected = 0, size = 0;
    /* Odd and even ranks, in reverse order. */
    CHECK_OK(dtl_comm_split(comm, me % 2, -me, &half));
    for (rank = me % 2; rank < ranks; rank += 2) expected += rank, size++;
    CHECK(size_of(half) == size && rank_of(half) == size - 1 - me / 2);
    CHECK(sum_of(half) == expected);
    /* Ranks in messages are the half's own, also with DTL_ANY_SOURCE. */
    if (size > 1) {
        const int own = rank_of(half), next = (own + 1) % size, before = (own + size - 1) % size;
        CHECK_OK(dtl_comm_sendrecv(half, &own, 1, next, 9, &got, 1, DTL_ANY_SOURCE, DTL_ANY_TAG, DTL_DTYPE_INT32, &info));
        CHECK(got == before && info.source == before && info.tag == 9);
        CHECK_STATUS(dtl_comm_send(half, &own, 1, DTL_DTYPE_INT32, size, 0), DTL_ERROR_INVALID_RANK);
    }
    /* Splits of splits. */
    CHECK_OK(dtl_comm_split(half, rank_of(half), 0, &single));
    CHECK(size_of(single) == 1 && sum_of(single) == me);
    CHECK_OK(dtl_comm_destroy(single));
    CHECK_OK(dtl_comm_destroy(half));
    CHECK_OK(dtl_comm_split(comm, me == 0 ? DTL_UNDEFINED : 3, 0, &none));
    CHECK((none.id == 0) == (me == 0));
    if (me != 0) CHECK(size_of(none) == ranks - 1 && rank_of(none) == me - 1);
    CHECK_OK(dtl_comm_destroy(none));
    CHECK_OK(dtl_comm_split_node(comm, 0, &none));
    if (strcmp(kind, "hier") != 0) /* all ranks of these tests are on one node, but for pretended ones */
        CHECK(size_of(none) == ranks && rank_of(none) == me && sum_of(none) == ranks * (ranks - 1) / 2);
    CHECK_OK(dtl_comm_destroy(none));
    CHECK_STATUS(dtl_comm_split(comm, -17, 0, &none), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("DTL_UNDEFINED");
}

static void test_group(void) {
    int32_t list[64];
    dtl_comm_t group = {42};
    int i;
    for (i = 0; i < ranks; i++) list[i] = ranks - 1 - i; /* all, backwards */
    CHECK_OK(dtl_comm_group_create(comm, list, (uint64_t)ranks, &group));
    CHECK(rank_of(group) == ranks - 1 - me && sum_of(group) == ranks * (ranks - 1) / 2);
    CHECK_OK(dtl_comm_destroy(group));
    CHECK_OK(dtl_comm_group_create(comm, list, 1, &group)); /* the last rank alone */
    CHECK((group.id != 0) == (me == ranks - 1));
    CHECK_OK(dtl_comm_destroy(group));
    CHECK_STATUS(dtl_comm_group_create(comm, list, 0, &group), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_group_create(comm, NULL, 1, &group), DTL_ERROR_NULL_POINTER);
    list[0] = ranks;
    CHECK_STATUS(dtl_comm_group_create(comm, list, 1, &group), DTL_ERROR_INVALID_RANK);
    if (ranks > 1) {
        list[0] = list[1] = 0;
        CHECK_STATUS(dtl_comm_group_create(comm, list, 2, &group), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT("twice");
    }
}

/* Many come and go; the connection is one, so descriptors and memory do not grow with them. */
static void test_many(void) {
    dtl_comm_t kept[32];
    int round, i;
    for (round = 0; round < 10; round++) {
        for (i = 0; i < 32; i++) CHECK_OK(dtl_comm_dup(comm, &kept[i]));
        CHECK(sum_of(kept[31 - round]) == ranks * (ranks - 1) / 2);
        for (i = 0; i < 32; i++) CHECK_OK(dtl_comm_destroy(kept[i]));
    }
}

static int copies, ends;

static dtl_status_t copy_attribute(dtl_comm_t of, int32_t key, void *user, void *value, void **out, int32_t *copy) {
    (void)of, (void)key;
    CHECK(user == &copies);
    copies++;
    if (value == NULL) return DTL_ERROR_NOT_SUPPORTED;
    *out = (char *)value + 1;
    *copy = value != (void *)&ends;
    return DTL_SUCCESS;
}

static void end_attribute(dtl_comm_t of, int32_t key, void *user, void *value) {
    (void)of, (void)key, (void)user, (void)value;
    ends++;
}

static void test_attributes(void) {
    static char thing[4];
    dtl_comm_t parent, child = {0};
    void *value = &value;
    int32_t key, other, found = -1;
    CHECK_OK(dtl_comm_dup(comm, &parent));
    CHECK_OK(dtl_comm_key_create(copy_attribute, end_attribute, &copies, &key));
    CHECK_OK(dtl_comm_key_create(NULL, NULL, NULL, &other));
    CHECK_OK(dtl_comm_get_attr(parent, key, &value, &found));
    CHECK(found == 0 && value == NULL);
    CHECK_OK(dtl_comm_set_attr(parent, key, thing));
    CHECK_OK(dtl_comm_set_attr(parent, other, thing));
    CHECK_OK(dtl_comm_dup(parent, &child));
    CHECK_OK(dtl_comm_get_attr(child, key, &value, &found));
    CHECK(found == 1 && value == thing + 1 && copies == 1);
    CHECK_OK(dtl_comm_get_attr(child, other, &value, &found));
    CHECK(found == 0);
    CHECK_OK(dtl_comm_destroy(child));
    CHECK(ends == 1);
    CHECK_OK(dtl_comm_set_attr(parent, key, &ends)); /* the old one ends; this one is not copied */
    CHECK(ends == 2);
    CHECK_OK(dtl_comm_dup(parent, &child));
    CHECK_OK(dtl_comm_get_attr(child, key, &value, &found));
    CHECK(found == 0);
    CHECK_OK(dtl_comm_destroy(child));
    CHECK_OK(dtl_comm_set_attr(parent, key, NULL)); /* its copy function fails */
    CHECK_STATUS(dtl_comm_dup(parent, &child), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_comm_delete_attr(parent, key));
    CHECK(ends == 4);
    CHECK_STATUS(dtl_comm_delete_attr(parent, key), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_comm_set_attr(parent, key, thing));
    CHECK_OK(dtl_comm_key_destroy(key));
    CHECK_STATUS(dtl_comm_key_destroy(key), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_comm_set_attr(parent, key, thing), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_get_attr(parent, key, &value, &found)); /* what is there stays */
    CHECK(found == 1 && value == thing);
    CHECK_OK(dtl_comm_destroy(parent));
    CHECK(ends == 5);
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    test_dup();
    test_lives_on();
    test_split();
    test_group();
    test_many();
    test_attributes();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
