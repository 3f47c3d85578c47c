/* Windows over a registered backend's own slots: which way operations go on which communicator, what happens where a rank
 * cannot take part, and the death of a target. What windows do besides: test_win_access, over the same kinds. */
#include "comm_kinds.h"
#include <pthread.h>

enum { VICTIM = 1, SIZE = 4096 };

/* Whether the kind has slots for windows. */
static int has_atomics(void) { return strcmp(kind, "mailwin") == 0 || strcmp(kind, "rdma") == 0 || strcmp(kind, "libfabric") == 0; }
static int is_own(void) { return has_atomics() || strcmp(kind, "mailput") == 0; }

static const char *own_way(void) {
    static const char none[] = "the backend's own put and get, the rest by messages";
    if (getenv("DTL_FAKE_VERBS_ATOMICS") != NULL) return none; /* the network card has no atomics */
    if (has_atomics()) return "the backend's own put, get and atomics, locks by messages";
    if (strcmp(kind, "mailput") == 0) return none;
    return "messages, served by the target's calls and a thread";
}

static const char *way_of(dtl_win_t win) {
    static dtl_win_info_t info;
    const dtl_win_info_t none = DTL_WIN_INFO_INIT;
    info = none;
    CHECK_OK(dtl_win_info(win, 0, &info));
    return info.way;
}

/* Every rank changes something at every other, by each kind of operation. */
static void use(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    int32_t rank, size, target;
    int64_t value, old = -1, got = -1, sum;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    memset(base, 0, (size_t)(2 + size) * 8);
    CHECK_OK(dtl_win_fence(win));
    for (target = 0; target < size; target++) {
        value = 100 * target + rank;
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, target, (uint64_t)(2 + rank)));
        CHECK_OK(dtl_win_fence(win));
        value = rank + 1;
        CHECK_OK(dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, target, 0, DTL_OP_SUM));
        sum = 0;
        CHECK_OK(dtl_win_get(win, &got, 1, DTL_DTYPE_INT64, target, (uint64_t)(2 + rank)));
        CHECK_OK(dtl_win_compare_and_swap(win, &value, &sum, &old, DTL_DTYPE_INT64, target, 1));
        CHECK_OK(dtl_win_fence(win));
        CHECK(got == 100 * target + rank && old >= 0 && old <= size && old != value);
    }
    CHECK(base[0] == (int64_t)size * (size + 1) / 2 && base[1] >= 1 && base[1] <= size);
    for (target = 0; target < size; target++) CHECK(base[2 + target] == 100 * rank + target);
    CHECK_OK(dtl_win_fence(win));
}

/* A window on a communicator goes this way, in the program's memory and in the library's. */
static void goes(dtl_comm_t comm, const char *way) {
    int64_t mine[16], *base = NULL;
    dtl_win_t win;
    CHECK_OK(dtl_win_create(comm, mine, sizeof mine, 8, &win));
    CHECK(strcmp(way_of(win), way) == 0);
    use(comm, win, mine);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_win_allocate(comm, sizeof mine, 8, (void **)&base, &win));
    CHECK(strcmp(way_of(win), way) == 0);
    use(comm, win, base);
    CHECK_OK(dtl_win_destroy(win));
}

/* Communicators of all ranks in their order have the transport's windows, others messages. */
static void test_communicators(dtl_comm_t comm) {
    static const char messages[] = "messages, served by the target's calls and a thread";
    static char text[65536];
    dtl_comm_t made;
    goes(comm, own_way());
    CHECK_OK(dtl_explain(text, sizeof text, NULL));
    CHECK(strstr(text, is_own() ? "(the transport has windows of its own)" : "(the backend's table has no slots") != NULL);
    CHECK_OK(dtl_comm_dup(comm, &made));
    goes(made, own_way());
    CHECK_OK(dtl_comm_destroy(made));
    CHECK_OK(dtl_comm_split(comm, 0, me, &made));
    goes(made, own_way());
    CHECK_OK(dtl_comm_destroy(made));
    CHECK_OK(dtl_comm_split(comm, 0, -me, &made));
    goes(made, messages);
    CHECK_OK(dtl_explain(text, sizeof text, NULL));
    CHECK(strstr(text, "(windows of the transport's own are for all ranks in their order)") != NULL);
    CHECK_OK(dtl_comm_destroy(made));
    CHECK_OK(dtl_comm_split(comm, me == 0, 0, &made));
    if (me > 0) goes(made, messages);
    CHECK_OK(dtl_comm_destroy(made));
}

/* Where one rank's memory lies at an odd address, no network card changes elements in any rank's; they add up all the same. */
static void test_misplaced(dtl_comm_t comm) {
    unsigned char memory[24] = {0};
    void *base = memory + (me == 1);
    const int64_t one = 1;
    int64_t sum;
    dtl_win_t win;
    int target;
    CHECK_OK(dtl_win_create(comm, base, 16, 8, &win));
    CHECK(strcmp(way_of(win), "the backend's own put and get, the rest by messages") == 0);
    CHECK_OK(dtl_win_fence(win));
    for (target = 0; target < ranks; target++) CHECK_OK(dtl_win_accumulate(win, &one, 1, DTL_DTYPE_INT64, target, 1, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(win));
    memcpy(&sum, (unsigned char *)base + 8, sizeof sum);
    CHECK(sum == ranks);
    CHECK_OK(dtl_win_destroy(win));
}

/* A rank whose slot refuses: messages on all of them, and the reason can be read. */
static void test_refusal(dtl_comm_t comm) {
    static char text[65536];
    mail_refuses_windows = me == ranks - 1;
    goes(comm, "messages, served by the target's calls and a thread");
    if (is_own()) {
        CHECK_OK(dtl_explain(text, sizeof text, NULL));
        CHECK(strstr(text, me == ranks - 1 ? "win_create" : "the transport's own windows failed on rank") != NULL);
    }
    mail_refuses_windows = 0;
    goes(comm, own_way());
}

/* The transport cannot be asked for a while: what has begun goes on, and only who asks gets the error. */
static void test_not_asked(dtl_comm_t comm) {
    int64_t base[8] = {0}, values[8];
    dtl_request_t requests[8];
    dtl_win_t win;
    int i;
    if (strncmp(kind, "mail", 4) != 0 || !is_own() || ranks < 2) return;
    CHECK_OK(dtl_win_create(comm, base, sizeof base, 8, &win));
    if (me == 0) {
        CHECK_OK(dtl_win_lock_all(win));
        mail_fails = 1;
        for (i = 0; i < 8; i++) {
            values[i] = i + 1;
            CHECK_OK(dtl_win_rput(win, &values[i], 1, DTL_DTYPE_INT64, 1, (uint64_t)i, &requests[i]));
        }
        CHECK_STATUS(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_BACKEND);
        CHECK(strstr(dtl_last_error(), "do not free or reuse their buffers") != NULL);
        mail_fails = 0;
        for (i = 1; i < 8; i++) CHECK_OK(dtl_request_wait(requests[i], DTL_TIMEOUT_INFINITE, NULL));
        CHECK_OK(dtl_win_unlock_all(win));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    for (i = 0; i < 8; i++) CHECK(base[i] == (me == 1 ? i + 1 : 0));
    CHECK_OK(dtl_win_destroy(win));
}

/* A target that goes away: operations on it fail, those on others go on. The rank that dies does so between two of them. */
static void test_death(dtl_comm_t comm) {
    unsigned char *base = NULL, bytes[SIZE];
    const int other = me == 0 ? 2 : 0;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_status_t status;
    dtl_win_t win;
    int round;
    char ready = 0;
    CHECK_OK(dtl_win_allocate(comm, SIZE, 1, (void **)&base, &win));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) {
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 1, NULL));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 1, NULL));
        _exit(0);
    }
    memset(bytes, me + 1, SIZE);
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_win_put(win, bytes, SIZE, DTL_DTYPE_BYTE, VICTIM, 0));
    CHECK_OK(dtl_win_flush(win, VICTIM));
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 1));
    for (round = 0, status = DTL_SUCCESS; status == DTL_SUCCESS; round++) {
        status = dtl_win_put(win, bytes, SIZE, DTL_DTYPE_BYTE, VICTIM, 0);
        if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
        usleep(1000);
        CHECK(round < 30000);
    }
    CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
    CHECK_TEXT("1");
    status = dtl_win_get(win, bytes, 8, DTL_DTYPE_BYTE, VICTIM, 0);
    if (status == DTL_SUCCESS) status = dtl_win_flush_local(win, VICTIM);
    CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_win_put(win, bytes + 8, SIZE - 8, DTL_DTYPE_BYTE, other, 8));
    CHECK_OK(dtl_win_flush(win, other));
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, other, 2));
    CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, other, 2, NULL));
    CHECK(base[0] == 0 && is_all(base + 8, SIZE - 8, other + 1));
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(info.failed_count == 1);
    status = dtl_win_unlock_all(win);
    CHECK(status == DTL_SUCCESS || status == DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_win_destroy(win)); /* waits for nobody */
}

static dtl_win_t raced;
static int is_begun, is_stopped;

static void *put_until_it_ends(void *unused) {
    static const int64_t value = 1; /* read until the next fence, when this thread may have ended */
    dtl_status_t status = DTL_SUCCESS;
    while (!__atomic_load_n(&is_begun, __ATOMIC_ACQUIRE)) {
    }
    while (status == DTL_SUCCESS && !__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE))
        status = dtl_win_put(raced, &value, 1, DTL_DTYPE_INT64, 0, 0);
    CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_HANDLE || status == DTL_ERROR_CANCELED);
    return unused;
}

/* A window that ends while another thread is in a call on it: the backend's slots meet no window that is gone. */
static void test_race(dtl_comm_t comm) {
    static int64_t cell;
    dtl_status_t status;
    pthread_t other;
    int round;
    for (round = 0; round < 300; round++) {
        is_begun = is_stopped = 0;
        CHECK_OK(dtl_win_create(comm, &cell, 8, 8, &raced));
        CHECK_OK(dtl_win_fence(raced));
        CHECK(pthread_create(&other, NULL, put_until_it_ends, NULL) == 0);
        __atomic_store_n(&is_begun, 1, __ATOMIC_RELEASE);
        if (round % 2) usleep(round % 7);
        status = dtl_win_destroy(raced);
        __atomic_store_n(&is_stopped, status != DTL_SUCCESS, __ATOMIC_RELEASE);
        CHECK(pthread_join(other, NULL) == 0);
        if (status == DTL_SUCCESS) continue;
        CHECK_STATUS(status, DTL_ERROR_INVALID_STATE); /* the other one was first */
        CHECK_OK(dtl_win_fence(raced));
        CHECK_OK(dtl_win_destroy(raced));
    }
}

int main(int argc, char **argv) {
    int64_t mine[4];
    dtl_comm_t comm;
    dtl_win_t win;
    const char *way;
    start(argc, argv);
    CHECK_OK(dtl_init(NULL));
    comm = open_comm();
    CHECK_OK(dtl_win_create(comm, mine, sizeof mine, 8, &win));
    way = way_of(win);
    if (is_own() && strncmp(way, "messages", 8) == 0) {
        CHECK_OK(dtl_win_destroy(win));
        CHECK_OK(dtl_comm_destroy(comm));
        if (me > 0) return 0;
        finish();
        SKIP("the kernel lets no process reach another one's memory");
    }
    CHECK_OK(dtl_win_destroy(win));
    if (ranks == 1) {
        test_race(comm);
    } else {
        test_communicators(comm);
        if (is_mail()) test_refusal(comm), test_not_asked(comm);
        if (strcmp(kind, "rdma") == 0) test_misplaced(comm);
    }
    if (is_own() && ranks == 3) test_death(comm);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    finish();
    return 0;
}
