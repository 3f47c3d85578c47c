/* One-sided communication between processes: the cases of win_cases.h over one kind of communicator. */
#include "comm_kinds.h"
#include "win_cases.h"
#include <sys/prctl.h>

/* Whether the kernel lets no process of this user reach this one's memory (as Yama does): DTL_TEST_HIDDEN asks for it. */
static int is_hidden;

static void hide(void) {
    is_hidden = getenv("DTL_TEST_HIDDEN") != NULL;
    if (!is_hidden) return;
    if (geteuid() == 0) CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
}

/* Windows live on without the communicator that they were made of, and several at once do not meet. */
static void test_lives(dtl_comm_t of) {
    dtl_comm_t copy;
    dtl_win_t first, second;
    int32_t a = -1, b = -1, value = me;
    const int target = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    CHECK_OK(dtl_comm_dup(of, &copy));
    CHECK_OK(dtl_win_create(copy, &a, 4, 4, &first));
    CHECK_OK(dtl_win_create(copy, &b, 4, 4, &second));
    CHECK_OK(dtl_comm_destroy(copy));
    CHECK_OK(dtl_win_fence(second));
    CHECK_OK(dtl_win_fence(first));
    CHECK_OK(dtl_win_put(first, &value, 1, DTL_DTYPE_INT32, target, 0));
    CHECK_OK(dtl_win_fence(first));
    CHECK(a == from && b == -1);
    CHECK_OK(dtl_win_destroy(first));
    CHECK_OK(dtl_win_put(second, &value, 1, DTL_DTYPE_INT32, target, 0));
    CHECK_OK(dtl_win_fence(second));
    CHECK(b == from);
    CHECK_OK(dtl_win_destroy(second));
    CHECK_STATUS(dtl_win_destroy(second), DTL_ERROR_INVALID_HANDLE);
}

/* What one rank cannot do, no rank has. */
static void test_one_rank_fails(dtl_comm_t of) {
    dtl_win_t win = {42};
    char byte = 0;
    void *base = NULL;
    const int bad = ranks - 1;
    CHECK_STATUS(dtl_win_create(of, &byte, 1, me == bad ? 0 : 1, &win), DTL_ERROR_INVALID_ARGUMENT);
    if (me != bad) CHECK_TEXT("rank ");
    CHECK_STATUS(dtl_win_create(of, me == bad ? NULL : &byte, 1, 1, &win), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_win_create(of, &byte, 1, 1, me == bad ? NULL : &win), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_win_allocate(of, me == bad ? (uint64_t)1 << 60 : 8, 1, &base, &win), DTL_ERROR_OUT_OF_MEMORY);
    if (me != bad) CHECK_TEXT("rank ");
    CHECK(win.id == 42 && base == NULL);
}

/* dtl_explain tells the way of the newest window, and why it is that one. */
static void check_reason(dtl_win_t win, const char *why) {
    char text[8192], expected[512];
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    CHECK_OK(dtl_win_info(win, 0, &info));
    CHECK_OK(dtl_explain(text, sizeof text, NULL));
    snprintf(expected, sizeof expected, "window: %s (%s", info.way, why);
    if (strstr(text, expected) != NULL) return;
    fprintf(stderr, "\"%s\" is not in: %s\n", expected, text);
    exit(1);
}

static const char *reason_of_given(void) {
    if (strcmp(kind, "self") == 0) return "every rank reaches";
#define SHM_REASON "memory of the program's own is not shared between processes, as that of dtl_win_allocate is"
    const char *copy = getenv("DTL_SHM_COPY");
    const int is_off = copy != NULL && strcmp(copy, "cells") == 0;
    if (strcmp(kind, "shm") == 0 && ranks == 1) return SHM_REASON ")";
    if (strcmp(kind, "shm") == 0 && is_off) return SHM_REASON "; no copies by the kernel: DTL_SHM_COPY=cells)";
    if (strcmp(kind, "shm") == 0 && is_hidden) return SHM_REASON "; no copies by the kernel: memory of rank ";
    if (strcmp(kind, "shm") == 0) return SHM_REASON "; the kernel copies puts and gets within a node)";
    if (strcmp(kind, "hier") == 0)
        return "the ranks are on several nodes, or are to behave so; the kernel copies puts and gets within a node)";
    return "the backend's table has no slots for windows";
}

/* Memory that ranks share is used as such, and it is said so. */
static void test_way(dtl_comm_t of) {
    void *base = NULL;
    dtl_win_t win;
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    const int is_own = strcmp(kind, "mailwin") == 0 || strcmp(kind, "mailput") == 0 || strcmp(kind, "rdma") == 0 ||
                       strcmp(kind, "libfabric") == 0;
    const int is_shared = strcmp(kind, "shm") == 0 || strcmp(kind, "self") == 0;
    CHECK_OK(dtl_win_allocate(of, 8, 1, &base, &win));
    CHECK_OK(dtl_win_info(win, 0, &info));
    CHECK((strstr(info.way, "loads, stores") != NULL) == is_shared);
    if (is_shared) check_reason(win, "every rank reaches");
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_win_create(of, NULL, 0, 1, &win));
    /* Or the kernel lets no process reach another one's memory. */
    if (!is_own) check_reason(win, reason_of_given());
    CHECK_OK(dtl_win_destroy(win));
}

/* One rank brings memory of its own, the others let the library make it. */
static void test_mixed(dtl_comm_t of) {
    dtl_win_t win;
    int64_t own[2] = {0, 0}, value = me, got = -1;
    void *base = NULL;
    const int target = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    if (me == 0)
        CHECK_OK(dtl_win_create(of, own, sizeof own, 8, &win));
    else
        CHECK_OK(dtl_win_allocate(of, sizeof own, 8, &base, &win));
    if (me == 0) base = own;
    ((volatile int64_t *)base)[1] = -7; /* it is there and ours */
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, target, 0));
    CHECK_OK(dtl_win_get(win, &got, 1, DTL_DTYPE_INT64, target, 1));
    CHECK_OK(dtl_win_fence(win));
    CHECK(*(volatile int64_t *)base == from && got == -7);
    CHECK_OK(dtl_win_destroy(win));
}

/* Puts of others reach the memory of the process that made the window, not that of its forks. */
static void test_fork_of_target(dtl_comm_t of) {
    enum { BYTES = 100000 };
    static unsigned char memory[BYTES], theirs[BYTES];
    dtl_win_t win;
    int ends[2], status = -1, i;
    char byte = 0;
    pid_t child;
    memset(memory, 1, BYTES);
    memset(theirs, 2, BYTES);
    CHECK_OK(dtl_win_create(of, memory, BYTES, 1, &win));
    CHECK(pipe(ends) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        if (read(ends[0], &byte, 1) != 1) _exit(1);
        for (i = 0; i < BYTES; i++)
            if (memory[i] != 1) _exit(2);
        _exit(0);
    }
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, theirs, BYTES, DTL_DTYPE_BYTE, (me + 1) % ranks, 0));
    CHECK_OK(dtl_win_fence(win));
    CHECK(write(ends[1], &byte, 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (i = 0; i < BYTES; i++) CHECK(memory[i] == 2);
    close(ends[0]);
    close(ends[1]);
    CHECK_OK(dtl_win_destroy(win));
}

/* A fork while a window lives, and with it the thread that serves it: the child has neither, the parent both.
 * Where the fork found that thread at work, the child cannot use the library, and the parent forks again. */
static void test_fork(dtl_comm_t of) {
    enum { AT_WORK = 77 };
    dtl_win_t win;
    int64_t cell = 0, one = 1, got = -1;
    int status = -1, forks = 0;
    CHECK_OK(dtl_win_create(of, &cell, 8, 8, &win));
    do {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            dtl_status_t again;
            CHECK_STATUS(dtl_win_lock_all(win), DTL_ERROR_FORKED);
            again = dtl_init_after_fork();
            if (again == DTL_ERROR_INVALID_STATE) _exit(AT_WORK);
            CHECK_OK(again);
            CHECK_STATUS(dtl_win_lock_all(win), DTL_ERROR_INVALID_HANDLE);
            CHECK_OK(dtl_finalize());
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    } while (WEXITSTATUS(status) == AT_WORK && ++forks < 100);
    CHECK(WEXITSTATUS(status) == 0);
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_win_fetch_op(win, &one, &got, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_win_fence(win));
    CHECK(got >= 0 && got < ranks && (me != 0 || cell == ranks));
    CHECK_OK(dtl_win_destroy(win));
}

int main(int argc, char **argv) {
    side_t side;
    hide();
    start(argc, argv);
    side.comm = open_comm();
    side.me = me, side.ranks = ranks;
    if (is_hidden) { /* some cases look at each other's memory themselves */
        case_fence(side);
        case_sizes(side, 1);
        case_exclusion(side);
    } else {
        all_cases(side);
    }
    test_lives(side.comm);
    test_one_rank_fails(side.comm);
    test_way(side.comm);
    test_mixed(side.comm);
    if (strcmp(kind, "shm") == 0 || strcmp(kind, "self") == 0) test_fork(side.comm);
    if (strcmp(kind, "shm") == 0) test_fork_of_target(side.comm);
    CHECK_OK(dtl_comm_barrier(side.comm));
    CHECK_OK(dtl_comm_destroy(side.comm));
    finish();
    return 0;
}
