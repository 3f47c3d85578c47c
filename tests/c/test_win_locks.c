/* Who may open and end which epochs when: locks of many ranks at once, of several threads of one rank, after calls that
 * were refused and after a fence that has failed. Each case with memory of the program's own (messages, between
 * processes) and with memory that ranks share. */
#include "comm_kinds.h"
#include <pthread.h>

enum { CELLS = 8, THREADS = 6 };

static int64_t own[CELLS];

/* How windows are made in this round. */
static int is_allocated;

static int64_t *make(dtl_comm_t comm, dtl_win_t *win) {
    void *base = own;
    memset(own, 0, sizeof own);
    if (is_allocated) {
        CHECK_OK(dtl_win_allocate(comm, sizeof own, 8, &base, win));
    } else {
        CHECK_OK(dtl_win_create(comm, own, sizeof own, 8, win));
    }
    return (int64_t *)base;
}

/* Some lock all, others one at a time alone; nobody has one lock while it asks for another. All get their turn. */
static void test_all_and_one(dtl_comm_t comm) {
    const int rounds = is_allocated || strcmp(kind, "shm") != 0 ? 200 : 3000;
    unsigned seed = (unsigned)me * 7919u + 1;
    dtl_win_t win;
    int i, target;
    make(comm, &win);
    CHECK_OK(dtl_comm_barrier(comm));
    for (i = 0; i < rounds; i++) {
        seed = seed * 1103515245u + 12345u;
        target = (int)(seed >> 16) % ranks;
        if (me % 2 == 0) {
            CHECK_OK(dtl_win_lock_all(win));
            CHECK_OK(dtl_win_unlock_all(win));
        } else {
            CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, target));
            CHECK_OK(dtl_win_unlock(win, target));
        }
    }
    CHECK_OK(dtl_win_destroy(win));
}

/* Locks of several threads of one rank. */
typedef struct {
    dtl_win_t win;
    int target, is_shared_target;
    long granted, refused;
} locker_t;

static int holders;

static void *lock_often(void *argument) {
    locker_t *self = (locker_t *)argument;
    dtl_status_t status;
    int i;
    for (i = 0; i < 300; i++) {
        status = dtl_win_lock(self->win, i % 2 ? DTL_LOCK_SHARED : DTL_LOCK_EXCLUSIVE, self->target);
        if (status != DTL_SUCCESS) {
            /* Another thread has it, as far as this rank goes. */
            CHECK_STATUS(status, DTL_ERROR_INVALID_STATE);
            CHECK(self->is_shared_target);
            CHECK_TEXT("already");
            self->refused++;
            continue;
        }
        if (self->is_shared_target) CHECK(__sync_add_and_fetch(&holders, 1) == 1);
        CHECK_STATUS(dtl_win_fence(self->win), DTL_ERROR_INVALID_STATE);
        CHECK_STATUS(dtl_win_lock_all(self->win), DTL_ERROR_INVALID_STATE);
        if (self->is_shared_target) __sync_sub_and_fetch(&holders, 1);
        CHECK_OK(dtl_win_unlock(self->win, self->target));
        self->granted++;
    }
    return NULL;
}

static void test_threads(dtl_comm_t comm, int is_shared_target) {
    locker_t lockers[THREADS];
    pthread_t threads[THREADS];
    dtl_win_t win;
    long granted = 0;
    int i, count = is_shared_target ? THREADS : ranks;
    make(comm, &win);
    CHECK(count <= THREADS);
    if (me == 0) {
        for (i = 0; i < count; i++) {
            const locker_t locker = {win, is_shared_target ? ranks - 1 : i, is_shared_target, 0, 0};
            lockers[i] = locker;
            CHECK(pthread_create(&threads[i], NULL, lock_often, &lockers[i]) == 0);
        }
        for (i = 0; i < count; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
            granted += lockers[i].granted;
        }
        CHECK(granted > 0 && (is_shared_target || granted == 300L * count));
    }
    /* Nothing is left locked. */
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, ranks - 1));
    CHECK_OK(dtl_win_unlock(win, ranks - 1));
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_destroy(win));
}

/* What was refused has neither used nor ended the epoch that is open. */
static void test_refused(dtl_comm_t comm, dtl_comm_t hasty) {
    const int target = (me + 1) % ranks;
    int64_t value = 5, *base;
    dtl_win_t win;
    base = make(hasty, &win);
    CHECK_OK(dtl_win_fence(win));
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, target, CELLS), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, target)); /* nothing was done since the fence */
    CHECK_OK(dtl_win_unlock(win, target));
    CHECK_OK(dtl_win_fence(win));
    /* A lock that is not granted leaves the fence's epoch open. */
    if (me == 0) CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    CHECK_OK(dtl_comm_barrier(hasty));
    if (me == 1) {
        CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_SHARED, 0), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 3));
    }
    CHECK_OK(dtl_comm_barrier(comm)); /* rank 0 holds the lock until rank 1 has given up */
    if (me == 0) CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_OK(dtl_win_fence(win));
    CHECK(base[3] == (me == 0 && ranks > 1 ? 5 : 0));
    CHECK_OK(dtl_win_destroy(win));
}

/* A barrier or fence that the others have given up: to who comes late its part may look as if it were over, but then the next
 * one fails. */
static void come_late(dtl_comm_t given_up, dtl_win_t win) {
    const int is_fence = given_up.id == 0;
    dtl_status_t status = is_fence ? dtl_win_fence(win) : dtl_comm_barrier(given_up);
    if (status == DTL_SUCCESS) status = is_fence ? dtl_win_fence(win) : dtl_comm_barrier(given_up);
    CHECK_STATUS(status, DTL_ERROR_TIMEOUT);
    CHECK_TEXT("gave up");
    CHECK_STATUS(is_fence ? dtl_win_fence(win) : dtl_comm_barrier(given_up), DTL_ERROR_INVALID_STATE);
}

static void test_failed_barrier(dtl_comm_t comm, dtl_comm_t hasty) {
    dtl_comm_t copy;
    CHECK_OK(dtl_comm_dup(hasty, &copy));
    if (me != 0) {
        CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_comm_barrier(copy), DTL_ERROR_INVALID_STATE);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0) come_late(copy, DTL_WIN_NULL);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(copy));
}

/* One rank is not in a fence that the others wait for. Locks go on. `has_more`: it has a fence after that. */
static void test_failed_fence(dtl_comm_t comm, dtl_comm_t hasty, int has_more) {
    const dtl_comm_t none = DTL_COMM_NULL;
    int64_t value = 7, *base;
    dtl_win_t win;
    base = make(hasty, &win);
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, me, 1));
    if (me != 0) {
        CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_STATE);
        CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_INVALID_STATE);
        CHECK_TEXT("dtl_win_fence");
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0 && has_more) come_late(none, win);
    if (me == 0 && !has_more) DTL_IGNORE(dtl_win_fence(win));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    CHECK_OK(dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, 0, 2, DTL_OP_SUM));
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0) CHECK(base[2] == 7 * ranks);
    /* Nobody waits for anybody, also not who has found the fence done. */
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_comm_barrier(comm)); /* `hasty` would not wait long for it */
}

int main(int argc, char **argv) {
    dtl_comm_t comm, hasty;
    start(argc, argv);
    comm = open_with(MILLISECONDS(60000));
    for (is_allocated = 0; is_allocated < 2; is_allocated++) {
        test_all_and_one(comm);
        test_threads(comm, 0);
        test_threads(comm, 1);
        hasty = open_hasty(comm);
        test_refused(comm, hasty);
        if (ranks > 1) {
            test_failed_barrier(comm, hasty);
            test_failed_fence(comm, hasty, 0);
            test_failed_fence(comm, hasty, 1);
        }
        CHECK_OK(dtl_comm_destroy(hasty));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
