/* What one-sided calls refuse, and that nothing moves then: bounds, epochs, types, buffers, time limits, the end of the
 * library. Two ranks that are threads of one process, driven by one thread where nothing waits. */
#include "check.h"
#include <pthread.h>
#include <string.h>

#define TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)
enum { UNIT = 8, STEPS = 10 };

static dtl_comm_t comms[2];
static dtl_win_t wins[2];
static int64_t memory[2][STEPS];

static void *make(void *which) {
    const int rank = *(int *)which;
    /* Rank 1 has half as much, in smaller steps. */
    CHECK_OK(dtl_win_create(comms[rank], memory[rank], rank ? STEPS * UNIT / 2 : STEPS * UNIT, rank ? 4 : UNIT, &wins[rank]));
    return NULL;
}

static void *unmake(void *which) {
    CHECK_OK(dtl_win_destroy(wins[*(int *)which]));
    return NULL;
}

/* Both ranks at once. */
static void both(void *(*body)(void *)) {
    static int numbers[2] = {0, 1};
    pthread_t other;
    CHECK(pthread_create(&other, NULL, body, &numbers[1]) == 0);
    body(&numbers[0]);
    CHECK(pthread_join(other, NULL) == 0);
}

static void test_bounds(dtl_win_t win) {
    int64_t value[STEPS] = {0}, got[STEPS];
    dtl_request_t request = {42};
    memset(got, 7, sizeof got);
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_STATUS(dtl_win_put(win, value, 1, DTL_DTYPE_INT64, 0, STEPS), DTL_ERROR_OUT_OF_BOUNDS);
    TEXT("dtl_win_put: 8 bytes at displacement 10 of target 0");
    TEXT("has 80 bytes");
    CHECK_STATUS(dtl_win_put(win, value, 1, DTL_DTYPE_INT64, 1, 9), DTL_ERROR_OUT_OF_BOUNDS); /* the target's steps */
    CHECK_OK(dtl_win_put(win, value, 1, DTL_DTYPE_INT64, 1, 8));
    CHECK_STATUS(dtl_win_get(win, got, 6, DTL_DTYPE_INT64, 1, 0), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_put(win, value, 1, DTL_DTYPE_BYTE, 0, UINT64_MAX), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_put(win, value, 1, DTL_DTYPE_BYTE, 0, UINT64_MAX / UNIT), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_put(win, value, 0, DTL_DTYPE_BYTE, 0, STEPS + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_win_put(win, NULL, 0, DTL_DTYPE_BYTE, 0, STEPS));
    CHECK_STATUS(dtl_win_rput(win, value, 1, DTL_DTYPE_INT64, 0, STEPS, &request), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_rget(win, got, 1, DTL_DTYPE_INT64, 0, STEPS, &request), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(request.id == 42);
    CHECK_STATUS(dtl_win_accumulate(win, value, 1, DTL_DTYPE_INT64, 0, STEPS, DTL_OP_SUM), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_fetch_op(win, value, got, DTL_DTYPE_INT64, 0, STEPS, DTL_OP_SUM), DTL_ERROR_OUT_OF_BOUNDS);
    TEXT("dtl_win_fetch_op");
    CHECK_STATUS(dtl_win_get_accumulate(win, value, got, 2, DTL_DTYPE_INT64, 0, STEPS - 1, DTL_OP_SUM), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_compare_and_swap(win, value, value + 1, got, DTL_DTYPE_INT64, 0, STEPS), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_put(win, value, 1, DTL_DTYPE_INT64, 2, 0), DTL_ERROR_INVALID_RANK);
    TEXT("target 2");
    CHECK_STATUS(dtl_win_get(win, got, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 0), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_win_put(win, NULL, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_NULL_POINTER);
    TEXT("dtl_win_put: buf is NULL");
    CHECK_STATUS(dtl_win_put(win, DTL_IN_PLACE, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_win_put(win, value, UINT64_MAX, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_win_rget(win, got, 1, DTL_DTYPE_INT64, 0, 0, NULL), DTL_ERROR_NULL_POINTER);
    TEXT("dtl_win_rget: out ");
    CHECK_OK(dtl_win_put(win, value, 1, DTL_DTYPE_INT64, DTL_PROC_NULL, 99));
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK(got[0] == INT64_C(0x0707070707070707));
}

static void own_op(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)user;
}

static void test_types(dtl_win_t win) {
    int64_t value[2] = {1, 2}, got[2] = {3, 4};
    dtl_dtype_t three;
    dtl_reduce_op_t own;
    CHECK_OK(dtl_dtype_create(3, "three", &three));
    CHECK_OK(dtl_op_create(own_op, NULL, DTL_OP_COMMUTES, "own", &own));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 1));
    CHECK_STATUS(dtl_win_accumulate(win, value, 1, DTL_DTYPE_FLOAT64, 1, 0, DTL_OP_BAND), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_win_accumulate(win, value, 1, DTL_DTYPE_INT64, 1, 0, own), DTL_ERROR_TYPE);
    TEXT("own");
    CHECK_STATUS(dtl_win_accumulate(win, value, 1, three, 1, 0, DTL_OP_REPLACE), DTL_ERROR_TYPE);
    TEXT("three");
    CHECK_STATUS(dtl_win_accumulate(win, value, 1, DTL_DTYPE_INT64, 1, 0, 77), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_win_put(win, value, 1, 99, 1, 0), DTL_ERROR_INVALID_ARGUMENT);
    TEXT("dtl_win_put: ");
    CHECK_STATUS(dtl_win_compare_and_swap(win, value, value, got, DTL_DTYPE_FLOAT64, 1, 0), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_win_compare_and_swap(win, value, value, got, three, 1, 0), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_win_compare_and_swap(win, value, got, got, DTL_DTYPE_INT64, 1, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_win_get_accumulate(win, value, value, 2, DTL_DTYPE_INT64, 1, 0, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(got[0] == 3 && memory[1][0] == 0);
    CHECK_OK(dtl_win_put(win, "abc", 1, three, 1, 0));
    CHECK_OK(dtl_win_unlock(win, 1));
    CHECK(memcmp(memory[1], "abc", 4) == 0);
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 0));
    CHECK_STATUS(dtl_win_accumulate(win, memory[0], 2, DTL_DTYPE_INT64, 0, 1, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    TEXT("overlaps");
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_OK(dtl_dtype_destroy(three));
    CHECK_OK(dtl_op_destroy(own));
}

static void *fence(void *which) {
    CHECK_OK(dtl_win_fence(wins[*(int *)which]));
    return NULL;
}

static void test_epochs(dtl_win_t win) {
    int64_t value = 5;
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 1, 0), DTL_ERROR_INVALID_STATE);
    TEXT("no epoch is open for target 1");
    CHECK_STATUS(dtl_win_unlock(win, 1), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_unlock_all(win), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_flush(win, 1), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_flush_all(win), DTL_ERROR_INVALID_STATE);
    TEXT("dtl_win_flush_all: ");
    CHECK_STATUS(dtl_win_flush_local_all(win), DTL_ERROR_INVALID_STATE);
    TEXT("dtl_win_flush_local_all: ");
    CHECK_STATUS(dtl_win_lock(win, 0, 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_SHARED, 2), DTL_ERROR_INVALID_RANK);
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, DTL_PROC_NULL));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 1));
    CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 1), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_lock_all(win), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_INVALID_STATE);
    TEXT("target 1");
    CHECK_STATUS(dtl_win_destroy(win), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_flush_local(win, 0), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_flush_local(win, 1));
    CHECK_OK(dtl_win_unlock(win, 1));
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_SHARED, 0), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_unlock(win, 0), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_destroy(win), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_unlock_all(win));
    both(fence);
    CHECK_STATUS(dtl_win_flush_all(win), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 0)); /* nothing was done since the fence */
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 1, 0), DTL_ERROR_INVALID_STATE);
    both(fence);
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 1, 0));
    CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_SHARED, 0), DTL_ERROR_INVALID_STATE);
    TEXT("dtl_win_fence");
    CHECK_STATUS(dtl_win_destroy(win), DTL_ERROR_INVALID_STATE);
    both(fence);
    CHECK(memory[1][0] == 5);
}

/* The end of the last fence's epoch, by a lock. */
static void *open_by_lock(void *which) {
    const int rank = *(int *)which;
    CHECK_OK(dtl_win_lock(wins[rank], DTL_LOCK_SHARED, rank));
    CHECK_OK(dtl_win_unlock(wins[rank], rank));
    return NULL;
}

/* A lock that another rank keeps, with a time limit of half a second; then it is free. */
static void test_time_limit(void) {
    int64_t value = 9;
    both(open_by_lock);
    CHECK_OK(dtl_win_lock(wins[1], DTL_LOCK_EXCLUSIVE, 0));
    CHECK_STATUS(dtl_win_lock(wins[0], DTL_LOCK_SHARED, 0), DTL_ERROR_TIMEOUT);
    TEXT("target 0");
    TEXT("within 2000 ms");
    TEXT("another rank has it: 1");
    CHECK_STATUS(dtl_win_put(wins[0], &value, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_unlock(wins[1], 0));
    CHECK_OK(dtl_win_lock(wins[0], DTL_LOCK_EXCLUSIVE, 0)); /* what was given up is in nobody's way */
    CHECK_STATUS(dtl_win_lock_all(wins[1]), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_win_unlock(wins[0], 0));
    CHECK_OK(dtl_win_lock_all(wins[1]));
    CHECK_OK(dtl_win_unlock_all(wins[1]));
}

/* The library ends while windows and requests are there. */
static void test_finalize(void) {
    int64_t value = 1;
    dtl_request_t request;
    both(make);
    CHECK_OK(dtl_win_lock(wins[0], DTL_LOCK_SHARED, 1));
    CHECK_OK(dtl_win_rput(wins[0], &value, 1, DTL_DTYPE_INT64, 1, 0, &request));
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_win_unlock(wins[0], 1), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_win_unlock(wins[0], 1), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
}

int main(void) {
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_comm_threads(2, UINT64_C(2000000000), comms));
    both(make);
    test_bounds(wins[0]);
    test_types(wins[0]);
    test_epochs(wins[0]);
    test_time_limit();
    CHECK_STATUS(dtl_win_info(wins[0], 2, &info), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_win_info(wins[0], 0, NULL), DTL_ERROR_NULL_POINTER);
    TEXT("dtl_win_info: out_info");
    both(unmake);
    test_finalize();
    return 0;
}
