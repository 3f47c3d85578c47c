/* One-sided communication: what must hold on every kind, for ranks that are processes (test_win_access) and ranks
 * that are threads (test_win_threads). Each case is collective over the ranks of a communicator. */
#ifndef DTL_TESTS_WIN_CASES_H
#define DTL_TESTS_WIN_CASES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "check.h"
#include <string.h>
#include <time.h>

typedef struct {
    dtl_comm_t comm;
    int32_t me, ranks;
} side_t;

typedef struct {
    double value;
    int32_t index;
} win_pair_t;

enum { CELLS = 64, BIG = 1 << 20 };

static inline int win_next(side_t s, int by) { return (s.me + by) % s.ranks; }

static inline unsigned char win_byte(int number, uint64_t i) {
    return (unsigned char)((uint64_t)number * 131 + i * 7 + (i >> 8));
}

static inline void win_nap(long milliseconds) {
    struct timespec time;
    time.tv_sec = milliseconds / 1000;
    time.tv_nsec = milliseconds % 1000 * 1000000;
    nanosleep(&time, NULL);
}

/* What is put between two fences is there, and what is got too; parts and units differ between ranks. */
static inline void case_fence(side_t s) {
    int64_t mine[CELLS], got[CELLS], value;
    dtl_win_t win;
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    const uint64_t cells = (uint64_t)(s.me % 3 + 2) * 8, unit = s.me % 2 ? 8 : 4;
    int target = win_next(s, 1), round, i;
    uint64_t steps = target % 2 ? 1 : 2, theirs = (uint64_t)(target % 3 + 2) * 8;
    memset(mine, 0, sizeof mine);
    CHECK_OK(dtl_win_create(s.comm, mine, cells * 8, unit, &win));
    CHECK_OK(dtl_win_info(win, target, &info));
    CHECK(info.size_bytes == theirs * 8 && info.disp_unit == (target % 2 ? 8u : 4u) && info.ranks == s.ranks);
    CHECK(info.rank == s.me && (target == s.me ? info.base == mine : info.base == NULL) && info.way[0] != 0);
    CHECK_OK(dtl_win_fence(win));
    for (round = 0; round < 5; round++) {
        value = 1000 * round + s.me;
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, target, 3 * steps));
        CHECK_OK(dtl_win_put(win, &value, 8, DTL_DTYPE_BYTE, target, (theirs - 1) * steps));
        CHECK_OK(dtl_win_fence(win));
        CHECK(mine[3] == 1000 * round + win_next(s, s.ranks - 1) && mine[cells - 1] == mine[3]);
        for (i = 0; i < CELLS; i++) CHECK(i == 3 || (uint64_t)i == cells - 1 || mine[i] == 0);
        CHECK_OK(dtl_win_fence(win));
        memset(got, 7, sizeof got);
        CHECK_OK(dtl_win_get(win, got, theirs, DTL_DTYPE_INT64, target, 0));
        CHECK_OK(dtl_win_fence(win));
        CHECK(got[3] == 1000 * round + s.me && got[theirs - 1] == got[3] && got[0] == 0);
    }
    CHECK_OK(dtl_win_destroy(win));
}

/* Every size, from nothing to more than any transport sends at once, both ways, requests among them; in memory of the
 * program's own or of the library's. */
static inline void case_sizes(side_t s, int is_own) {
    static const uint64_t sizes[] = {0, 1, 8, 56, 2048, 2049, 4095, 4096, 16384, 16385, 70000, BIG};
    unsigned char *bytes = (unsigned char *)malloc(BIG), *back = (unsigned char *)malloc(BIG), *base = NULL;
    dtl_request_t requests[2];
    dtl_win_t win;
    int target = win_next(s, s.ranks - 1), from = win_next(s, 1);
    uint64_t k, i;
    CHECK(bytes != NULL && back != NULL);
    if (is_own) {
        base = (unsigned char *)calloc(1, BIG + 16);
        CHECK(base != NULL);
        CHECK_OK(dtl_win_create(s.comm, base, BIG + 6, 1, &win));
    } else {
        CHECK_OK(dtl_win_allocate(s.comm, BIG + 16, 1, (void **)&base, &win));
        CHECK(((uintptr_t)base & 63) == 0);
    }
    for (i = 0; i < BIG + 16; i++) CHECK(base[i] == 0);
    CHECK_OK(dtl_win_fence(win));
    for (k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const uint64_t size = sizes[k];
        for (i = 0; i < size; i++) bytes[i] = win_byte(s.me + (int)k, i);
        CHECK_OK(dtl_win_put(win, bytes, size, DTL_DTYPE_BYTE, target, 5));
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < size; i++) CHECK(base[5 + i] == win_byte(from + (int)k, i));
        for (i = 0; i < 16; i++) CHECK(i < 5 ? base[i] == 0 : base[BIG + i] == 0);
        CHECK_OK(dtl_win_fence(win));
        memset(back, 0, BIG);
        CHECK_OK(dtl_win_get(win, back, size, DTL_DTYPE_UINT8, target, 5));
        CHECK_OK(dtl_win_fence(win));
        CHECK(memcmp(back, bytes, size) == 0);
    }
    CHECK_OK(dtl_comm_barrier(s.comm));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, target));
    memset(bytes, s.me + 1, BIG);
    CHECK_OK(dtl_win_rput(win, bytes, BIG, DTL_DTYPE_BYTE, target, 0, &requests[0]));
    if (target != s.me) {
        /* Refused, unless it is over already. */
        const dtl_status_t canceled = dtl_request_cancel(requests[0]);
        CHECK(canceled == DTL_ERROR_NOT_SUPPORTED || canceled == DTL_SUCCESS);
    }
    CHECK_OK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
    CHECK_STATUS(dtl_request_wait(requests[0], 0, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_win_flush(win, target));
    CHECK_OK(dtl_win_rget(win, back, BIG / 4, DTL_DTYPE_FLOAT32, target, 0, &requests[0]));
    CHECK_OK(dtl_win_rget(win, back, 4, DTL_DTYPE_FLOAT32, DTL_PROC_NULL, 0, &requests[1]));
    CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(requests[0].id == 0 && requests[1].id == 0);
    CHECK(memcmp(back, bytes, BIG) == 0);
    CHECK_OK(dtl_win_rget(win, back, 8, DTL_DTYPE_BYTE, target, 0, &requests[0]));
    CHECK_OK(dtl_win_unlock(win, target)); /* ends it as well */
    CHECK(back[7] == s.me + 1);
    CHECK_OK(dtl_request_wait(requests[0], 0, NULL));
    CHECK_OK(dtl_win_destroy(win));
    if (is_own) free(base);
    free(bytes);
    free(back);
}

/* Elements of 2 bytes that all ranks change, some in long runs, some one by one: nothing is lost. Fails if short
 * operations do without the lock of long ones. */
static inline void case_small_elements(side_t s) {
    enum { ELEMENTS = 20000, ROUNDS = 20, SINGLES = 1000, HOT = 9000 };
    uint16_t *base = NULL, *ones = (uint16_t *)malloc(ELEMENTS * sizeof *ones), got, next, swaps = 0;
    const int target = s.ranks - 1;
    dtl_win_t win;
    int round, i;
    CHECK(ones != NULL);
    for (i = 0; i < ELEMENTS; i++) ones[i] = 1;
    CHECK_OK(dtl_win_allocate(s.comm, ELEMENTS * sizeof *ones, sizeof *ones, (void **)&base, &win));
    CHECK_OK(dtl_win_lock_all(win));
    for (round = 0; round < ROUNDS; round++) {
        if ((s.me + round) % 2 == 0) {
            CHECK_OK(dtl_win_accumulate(win, ones, ELEMENTS, DTL_DTYPE_UINT16, target, 0, DTL_OP_SUM));
            continue;
        }
        for (i = 0; i < SINGLES; i++) {
            if (i % 10 == 0) {
                CHECK_OK(dtl_win_fetch_op(win, NULL, &got, DTL_DTYPE_UINT16, target, HOT, DTL_OP_NO_OP));
                CHECK_OK(dtl_win_flush(win, target));
                next = (uint16_t)(got + 1);
                CHECK_OK(dtl_win_compare_and_swap(win, &next, &got, ones, DTL_DTYPE_UINT16, target, HOT));
                CHECK_OK(dtl_win_flush(win, target));
                swaps = (uint16_t)(swaps + (ones[0] == got));
                ones[0] = 1;
            }
            CHECK_OK(dtl_win_accumulate(win, ones, 1, DTL_DTYPE_UINT16, target, HOT, DTL_OP_SUM));
        }
    }
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_comm_allreduce(s.comm, DTL_IN_PLACE, &swaps, 1, DTL_DTYPE_UINT16, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < ELEMENTS && s.me == target; i++) {
        /* Half of all rounds of all ranks; of one rank alone those of its parity. */
        const int runs = ROUNDS / 2 * s.ranks, singles = i == HOT ? runs * SINGLES + swaps : 0;
        CHECK(base[i] == (uint16_t)(runs + singles));
    }
    CHECK_OK(dtl_win_destroy(win));
    free(ones);
}

/* Counters that all ranks fetch from at once: every number is given once. Atomic sums from all ranks. */
static inline void case_counters(side_t s) {
    enum { EACH = 200 };
    const int32_t one = 1;
    const double half = 0.5;
    int32_t *seen = (int32_t *)calloc((size_t)s.ranks * EACH, 4), got, i;
    struct {
        int64_t unused;
        int32_t counter, lock;
        double sum;
    } mine = {0, 0, 0, 0};
    dtl_win_t win;
    CHECK(seen != NULL);
    CHECK_OK(dtl_win_create(s.comm, &mine, sizeof mine, 1, &win));
    CHECK_OK(dtl_win_lock_all(win));
    for (i = 0; i < EACH; i++) {
        CHECK_OK(dtl_win_fetch_op(win, &one, &got, DTL_DTYPE_INT32, s.ranks - 1, 8, DTL_OP_SUM));
        CHECK_OK(dtl_win_flush(win, s.ranks - 1));
        CHECK(got >= 0 && got < s.ranks * EACH && seen[got] == 0);
        seen[got] = 1;
        CHECK_OK(dtl_win_accumulate(win, &half, 1, DTL_DTYPE_FLOAT64, i % s.ranks, 16, DTL_OP_SUM));
    }
    CHECK_OK(dtl_win_fetch_op(win, NULL, &got, DTL_DTYPE_INT32, s.ranks - 1, 8, DTL_OP_NO_OP));
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK(got >= EACH && got <= s.ranks * EACH);
    CHECK_OK(dtl_comm_allreduce(s.comm, DTL_IN_PLACE, seen, (uint64_t)s.ranks * EACH, DTL_DTYPE_INT32, DTL_OP_SUM));
    for (i = 0; i < s.ranks * EACH; i++) CHECK(seen[i] == 1);
    CHECK_OK(dtl_win_fence(win));
    got = (EACH + s.ranks - 1 - s.me) / s.ranks; /* how many of i % ranks are this one */
    CHECK(mine.sum == 0.5 * got * s.ranks && mine.counter == (s.me == s.ranks - 1 ? s.ranks * EACH : 0));
    CHECK_OK(dtl_win_destroy(win));
    free(seen);
}

/* Exclusive locks exclude, compare_and_swap too: plain increments under each lose none. */
static inline void case_exclusion(side_t s) {
    enum { EACH = 40 };
    int64_t mine[3] = {0, 0, -1}, value, old, none = -1, self = s.me;
    dtl_win_t win;
    int i;
    CHECK_OK(dtl_win_create(s.comm, mine, sizeof mine, 8, &win));
    CHECK_OK(dtl_comm_barrier(s.comm));
    for (i = 0; i < EACH; i++) {
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
        CHECK_OK(dtl_win_get(win, &value, 1, DTL_DTYPE_INT64, 0, 0));
        CHECK_OK(dtl_win_flush_local(win, 0));
        value++;
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 0));
        CHECK_OK(dtl_win_unlock(win, 0));
    }
    CHECK_OK(dtl_win_lock_all(win));
    for (i = 0; i < EACH; i++) {
        do {
            CHECK_OK(dtl_win_compare_and_swap(win, &self, &none, &old, DTL_DTYPE_INT64, 0, 2));
            CHECK_OK(dtl_win_flush_all(win));
        } while (old != -1);
        CHECK_OK(dtl_win_get(win, &value, 1, DTL_DTYPE_INT64, 0, 1));
        CHECK_OK(dtl_win_flush_local_all(win));
        value++;
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 1));
        CHECK_OK(dtl_win_flush(win, 0));
        CHECK_OK(dtl_win_compare_and_swap(win, &none, &self, &old, DTL_DTYPE_INT64, 0, 2));
        CHECK_OK(dtl_win_flush(win, 0));
        CHECK(old == self);
    }
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_win_fence(win));
    if (s.me == 0) CHECK(mine[0] == EACH * s.ranks && mine[1] == EACH * s.ranks && mine[2] == -1);
    CHECK_OK(dtl_win_destroy(win));
}

/* A target that is outside of the library for good: it looks at its memory until the others have done their part. */
static inline void case_passive(side_t s) {
    volatile int64_t *cell;
    const int64_t one = 1;
    int64_t *base = NULL, result = -1, rounds;
    unsigned char *bytes = (unsigned char *)malloc(BIG);
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    dtl_win_t win;
    CHECK(bytes != NULL);
    CHECK_OK(dtl_win_allocate(s.comm, BIG, 8, (void **)&base, &win));
    CHECK_OK(dtl_comm_barrier(s.comm));
    if (s.me == 0) {
        cell = base;
        for (rounds = 0; *cell != s.ranks - 1; rounds++) win_nap(1);
        CHECK(rounds < 60000);
    } else {
        memset(bytes, s.me, BIG);
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 0));
        CHECK_OK(dtl_win_put(win, bytes, BIG / 2, DTL_DTYPE_BYTE, 0, BIG / 16));
        CHECK_OK(dtl_win_get(win, bytes, 8, DTL_DTYPE_BYTE, 0, 8));
        CHECK_OK(dtl_win_flush(win, 0));
        CHECK(bytes[0] == 0 && bytes[8] == s.me);
        CHECK_OK(dtl_win_fetch_op(win, &one, &result, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
        CHECK_OK(dtl_win_info(win, 0, &info));
        if (strncmp(info.way, "loads", 5) == 0) CHECK(result >= 0); /* without a flush */
        CHECK_OK(dtl_win_unlock(win, 0));
        CHECK(result >= 0 && result < s.ranks - 1);
    }
    CHECK_OK(dtl_win_destroy(win));
    free(bytes);
}

/* A word for each rank that all see without a call of the library. */
static inline int32_t *win_flags(side_t s) {
    dtl_backend_t host;
    dtl_mem_handle_t handle;
    void *flags = NULL;
    CHECK_OK(dtl_backend_get("host", &host));
    if (s.me == 0) {
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_SHARED, sizeof(int32_t) * (uint64_t)s.ranks, 0, &flags));
        memset(flags, 0, sizeof(int32_t) * (size_t)s.ranks);
        CHECK_OK(dtl_mem_export(flags, &handle));
    }
    CHECK_OK(dtl_comm_bcast(s.comm, &handle, sizeof handle, DTL_DTYPE_BYTE, 0));
    if (s.me != 0) CHECK_OK(dtl_mem_import(host, &handle, &flags, NULL));
    CHECK_OK(dtl_comm_barrier(s.comm));
    return (int32_t *)flags;
}

static inline void win_flags_free(int32_t *flags) {
    dtl_backend_t host;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_free(host, flags));
}

/* Four large puts to the next rank and a flush; then the next rank is told by a word in memory, and looks at once. A message
 * would not do: it comes behind the puts, so a flush that waits for nothing would go unnoticed. */
static inline void win_large_round(side_t s, dtl_win_t win, unsigned char *from, unsigned char *base, int32_t *flags, int round) {
    const int next = win_next(s, 1);
    int piece, is_probed;
    memset(from, round, 2 * BIG);
    for (piece = 0; piece < 4; piece++) {
        const uint64_t at = (uint64_t)piece * (BIG / 2);
        CHECK_OK(dtl_win_put(win, from + at, BIG / 2, DTL_DTYPE_BYTE, next, at));
    }
    if (round % 2) {
        CHECK_OK(dtl_win_flush(win, next));
    } else {
        CHECK_OK(dtl_win_flush_all(win));
    }
    __atomic_store_n(&flags[next], round, __ATOMIC_RELEASE);
    /* Some kinds move on only in calls of the target. */
    while (__atomic_load_n(&flags[s.me], __ATOMIC_ACQUIRE) != round) {
        CHECK_OK(dtl_comm_iprobe(s.comm, DTL_ANY_SOURCE, 5, &is_probed, NULL));
    }
    for (piece = 2 * BIG - 1; piece >= 0; piece -= 61) CHECK(base[piece] == round);
    CHECK(base[0] == round);
    CHECK_OK(dtl_comm_barrier(s.comm)); /* it was looked at before the next round */
}

/* A flush waits for large puts, to one target and to all. */
static inline void case_large_flush(side_t s) {
    enum { ROUNDS = 12 };
    unsigned char *from = (unsigned char *)malloc(2 * BIG), *base = NULL;
    int32_t *flags = win_flags(s);
    int is_own, round;
    dtl_win_t win;
    CHECK(from != NULL);
    for (is_own = 0; is_own < 2; is_own++) {
        unsigned char *own = is_own ? (unsigned char *)malloc(2 * BIG) : NULL;
        if (is_own) {
            CHECK(own != NULL);
            base = own;
            CHECK_OK(dtl_win_create(s.comm, own, 2 * BIG, 1, &win));
        } else {
            CHECK_OK(dtl_win_allocate(s.comm, 2 * BIG, 1, (void **)&base, &win));
        }
        CHECK_OK(dtl_win_lock_all(win));
        for (round = 1; round <= ROUNDS; round++) win_large_round(s, win, from, base, flags, is_own * ROUNDS + round);
        CHECK_OK(dtl_win_unlock_all(win));
        CHECK_OK(dtl_win_destroy(win));
        free(own);
    }
    win_flags_free(flags);
    free(from);
}

/* Many operations without a flush, to all targets at once: nothing is lost, and nothing waits for ever. */
static inline void case_flood(side_t s) {
    enum { MANY = 1500 };
    int64_t *base = NULL, value[4], got[MANY];
    uint64_t of = (uint64_t)s.me * 4;
    dtl_win_t win;
    int i, k, target;
    CHECK_OK(dtl_win_allocate(s.comm, (uint64_t)s.ranks * 32 + 8 * MANY, 8, (void **)&base, &win));
    for (i = 0; i < MANY; i++) base[s.ranks * 4 + i] = i;
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < MANY; i++) {
        target = (s.me + i) % s.ranks;
        for (k = 0; k < 4; k++) value[k] = 1;
        CHECK_OK(dtl_win_accumulate(win, value, 4, DTL_DTYPE_INT64, target, of, DTL_OP_SUM));
        CHECK_OK(dtl_win_get(win, &got[i], 1, DTL_DTYPE_INT64, target, (uint64_t)(s.ranks * 4 + i)));
    }
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < MANY; i++) CHECK(got[i] == i);
    for (i = 0; i < s.ranks; i++) {
        int64_t count = 0;
        for (k = 0; k < MANY; k++) count += (i + k) % s.ranks == s.me;
        CHECK(base[4 * i] == count && base[4 * i + 3] == count);
    }
    CHECK_OK(dtl_win_destroy(win));
}

/* What an integer operation gives, in the type's own arithmetic. */
#define ORACLE(name, type)                                                                                      \
    static inline type name(type a, type b, dtl_reduce_op_t op) {                                               \
        switch (op) {                                                                                           \
            case DTL_OP_SUM: return (type)(a + b);                                                              \
            case DTL_OP_PROD: return (type)(a * b);                                                             \
            case DTL_OP_MIN: return a < b ? a : b;                                                              \
            case DTL_OP_MAX: return a > b ? a : b;                                                              \
            case DTL_OP_LAND: return (type)(a && b);                                                            \
            case DTL_OP_LOR: return (type)(a || b);                                                             \
            case DTL_OP_BAND: return (type)(a & b);                                                             \
            case DTL_OP_BOR: return (type)(a | b);                                                              \
            case DTL_OP_LXOR: return (type)(!a != !b);                                                          \
            case DTL_OP_BXOR: return (type)(a ^ b);                                                             \
            case DTL_OP_REPLACE: return b;                                                                      \
            default: return a;                                                                                  \
        }                                                                                                       \
    }
ORACLE(oracle_int32, int32_t)
ORACLE(oracle_uint16, uint16_t)
ORACLE(oracle_int64, int64_t)

/* Every pair of dtype and operation is taken or refused as the table says, and what it gives is right. */
static inline void case_types(side_t s) {
    enum { COUNT = 3000 };
    static const unsigned char sizes[23] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1, 2, 2, 8, 16, 8, 16, 8, 16, 8, 16, 16};
    int32_t *base = NULL, mine[COUNT], old[COUNT], dtype, op, i;
    const int target = win_next(s, 1), from = win_next(s, s.ranks - 1);
    uint16_t *words;
    dtl_comm_t alone;
    dtl_win_t win;
    CHECK_OK(dtl_comm_threads(1, 0, &alone));
    CHECK_OK(dtl_win_allocate(s.comm, COUNT * 16, 1, (void **)&base, &win));
    words = (uint16_t *)base;
    for (op = DTL_OP_SUM; op <= DTL_OP_NO_OP; op++) {
        if (op == DTL_OP_MINLOC || op == DTL_OP_MAXLOC) continue;
        for (i = 0; i < COUNT; i++) base[i] = i % 37 - 18, mine[i] = (i * (s.me + 3)) % 41 - 20;
        CHECK_OK(dtl_win_fence(win));
        CHECK_OK(dtl_win_get_accumulate(win, mine, old, COUNT, DTL_DTYPE_INT32, target, 0, op));
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < COUNT; i++) {
            CHECK(old[i] == i % 37 - 18);
            CHECK(base[i] == oracle_int32(i % 37 - 18, (i * (from + 3)) % 41 - 20, op));
        }
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < COUNT; i++) words[i] = (uint16_t)i, ((uint16_t *)mine)[i] = (uint16_t)(i * 77 + s.me);
        CHECK_OK(dtl_win_fence(win));
        CHECK_OK(dtl_win_accumulate(win, mine, COUNT, DTL_DTYPE_UINT16, target, 0, op));
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < COUNT; i++) CHECK(words[i] == oracle_uint16((uint16_t)i, (uint16_t)(i * 77 + from), op));
        CHECK_OK(dtl_win_fence(win));
    }
    for (dtype = 0; dtype < 23; dtype++) {
        for (op = DTL_OP_SUM; op <= DTL_OP_NO_OP; op++) {
            unsigned char value[16], result[16];
            dtl_status_t expected;
            memset(value, 1, sizeof value);
            /* A reduction over one rank takes the same pairs. */
            expected = dtl_comm_allreduce(alone, value, result, 0, dtype, op);
            CHECK_STATUS(dtl_win_fetch_op(win, value, result, dtype, target, 48, op), expected);
            CHECK_STATUS(dtl_win_accumulate(win, value, 1, dtype, target, 48, op), expected);
            CHECK_OK(dtl_win_fence(win));
        }
        memset(base, 0x5A, 64);
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < 16; i++) ((unsigned char *)mine)[i] = win_byte(dtype + s.me, (uint64_t)i);
        CHECK_OK(dtl_win_fetch_op(win, mine, old, dtype, target, 16, DTL_OP_REPLACE));
        CHECK_OK(dtl_win_fence(win));
        for (i = 0; i < 64; i++) {
            const int hit = i >= 16 && i < 16 + sizes[dtype];
            CHECK(((unsigned char *)base)[i] == (hit ? win_byte(dtype + from, (uint64_t)i - 16) : 0x5A));
        }
        for (i = 0; i < sizes[dtype]; i++) CHECK(((unsigned char *)old)[i] == 0x5A);
        CHECK_OK(dtl_win_fence(win));
    }
    {
        const win_pair_t pair = {s.me + 0.5, s.me}, worst = {-1, -1};
        win_pair_t best;
        CHECK_OK(dtl_win_put(win, &worst, 1, DTL_DTYPE_FLOAT64_INT32, s.me, 32));
        CHECK_OK(dtl_win_fence(win));
        CHECK_OK(dtl_win_accumulate(win, &pair, 1, DTL_DTYPE_FLOAT64_INT32, 0, 32, DTL_OP_MAXLOC));
        CHECK_OK(dtl_win_fence(win));
        memcpy(&best, (unsigned char *)base + 32, sizeof best);
        if (s.me == 0) CHECK(best.value == s.ranks - 0.5 && best.index == s.ranks - 1);
    }
    CHECK_OK(dtl_comm_destroy(alone));
    CHECK_OK(dtl_win_destroy(win));
}

/* The same in memory that the library allocates, which some kinds reach without messages: counters at even and odd
 * places, elements of 16 bytes, increments under a lock and by compare_and_swap. Nothing is lost. */
static inline void case_allocated(side_t s) {
    enum { EACH = 100, COUNTER = 8, COMPLEX = 16, ODD = 41, ODD_SUM = 67, LOCKED = 128, SWAPPED = 141 };
    const int target = s.ranks - 1, all = EACH * s.ranks;
    const int64_t one = 1;
    const double half = 0.5, complex[2] = {1, -2};
    char *seen = (char *)calloc((size_t)all, 2);
    unsigned char *base = NULL;
    int64_t got, value, i;
    int32_t held, next, found;
    double sums[2], sum;
    dtl_win_t win;
    CHECK(seen != NULL);
    CHECK_OK(dtl_win_allocate(s.comm, 160, 1, (void **)&base, &win));
    for (i = 0; i < EACH; i++) {
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, target));
        CHECK_OK(dtl_win_fetch_op(win, &one, &got, DTL_DTYPE_INT64, target, COUNTER, DTL_OP_SUM));
        CHECK_OK(dtl_win_fetch_op(win, &one, &value, DTL_DTYPE_UINT64, target, ODD, DTL_OP_SUM));
        CHECK_OK(dtl_win_accumulate(win, complex, 1, DTL_DTYPE_COMPLEX128, target, COMPLEX, DTL_OP_SUM));
        CHECK_OK(dtl_win_accumulate(win, &half, 1, DTL_DTYPE_FLOAT64, target, ODD_SUM, DTL_OP_SUM));
        CHECK_OK(dtl_win_flush_local(win, target));
        CHECK(got >= 0 && got < all && seen[got] == 0 && value >= 0 && value < all && seen[all + value] == 0);
        seen[got] = seen[all + value] = 1;
        for (held = 0;; held = found) {
            next = held + 1;
            CHECK_OK(dtl_win_compare_and_swap(win, &next, &held, &found, DTL_DTYPE_INT32, target, SWAPPED));
            CHECK_OK(dtl_win_flush(win, target));
            if (found == held) break;
        }
        CHECK_OK(dtl_win_unlock(win, target));
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, target));
        CHECK_OK(dtl_win_get(win, &value, 1, DTL_DTYPE_INT64, target, LOCKED));
        CHECK_OK(dtl_win_flush_local(win, target));
        value++;
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, target, LOCKED));
        CHECK_OK(dtl_win_unlock(win, target));
    }
    CHECK_OK(dtl_comm_allreduce(s.comm, DTL_IN_PLACE, seen, (uint64_t)all * 2, DTL_DTYPE_UINT8, DTL_OP_SUM));
    for (i = 0; i < all * 2; i++) CHECK(seen[i] == 1);
    CHECK_OK(dtl_win_fence(win));
    memcpy(sums, base + COMPLEX, sizeof sums);
    memcpy(&sum, base + ODD_SUM, sizeof sum);
    memcpy(&value, base + LOCKED, sizeof value);
    memcpy(&found, base + SWAPPED, sizeof found);
    i = s.me == target ? all : 0;
    CHECK(sums[0] == (double)i && sums[1] == -2.0 * (double)i && sum == 0.5 * (double)i && value == i && found == i);
    CHECK_OK(dtl_win_destroy(win));
    free(seen);
}

/* Elements of 8 bytes, which network cards change by themselves: more of them at once than those take, by every operation, on
 * all targets and this rank among them. */
static inline void case_words(side_t s) {
    enum { COUNT = 150 };
    int64_t *base = NULL, mine[COUNT], old[COUNT], none[COUNT];
    const uint64_t of = (uint64_t)s.me * COUNT; /* its own elements on each target */
    int32_t op, target, i;
    dtl_win_t win;
    CHECK_OK(dtl_win_allocate(s.comm, (uint64_t)s.ranks * COUNT * 8, 8, (void **)&base, &win));
    CHECK_OK(dtl_win_fence(win));
    for (op = DTL_OP_SUM; op <= DTL_OP_NO_OP; op++) {
        if (op == DTL_OP_MINLOC || op == DTL_OP_MAXLOC) continue;
        for (target = 0; target < s.ranks; target++) {
            for (i = 0; i < COUNT; i++) none[i] = i % 37 - 18, mine[i] = (i * (s.me + 3) + target) % 41 - 20;
            CHECK_OK(dtl_win_put(win, none, COUNT, DTL_DTYPE_INT64, target, of));
            CHECK_OK(dtl_win_fence(win));
            memset(old, 7, sizeof old);
            CHECK_OK(dtl_win_get_accumulate(win, mine, old, COUNT, DTL_DTYPE_INT64, target, of, op));
            CHECK_OK(dtl_win_accumulate(win, mine, COUNT, DTL_DTYPE_INT64, target, of, DTL_OP_SUM));
            CHECK_OK(dtl_win_fence(win));
            CHECK(memcmp(old, none, sizeof old) == 0);
            CHECK_OK(dtl_win_get(win, none, COUNT, DTL_DTYPE_INT64, target, of));
            CHECK_OK(dtl_win_fence(win));
            for (i = 0; i < COUNT; i++) CHECK(none[i] == oracle_int64(old[i], mine[i], op) + mine[i]);
        }
    }
    CHECK_OK(dtl_win_destroy(win));
}

/* Operations of one origin on one element happen in the order of its calls, whatever they are; other ranks change the next. */
static inline void case_order(side_t s) {
    enum { MANY = 60 };
    static const dtl_reduce_op_t ops[] = {DTL_OP_REPLACE, DTL_OP_SUM, DTL_OP_MAX, DTL_OP_SUM, DTL_OP_BXOR, DTL_OP_NO_OP, DTL_OP_PROD};
    int64_t *base = NULL, mine[MANY], old[MANY], expected[MANY], now, found, value;
    int32_t target, i;
    dtl_win_t win;
    CHECK_OK(dtl_win_allocate(s.comm, (uint64_t)(s.ranks + 1) * 8, 8, (void **)&base, &win));
    CHECK_OK(dtl_win_lock_all(win));
    for (target = 0; target < s.ranks; target++) {
        for (i = 0, now = 0; i < MANY; i++) {
            const dtl_reduce_op_t op = ops[(i + s.me) % 7];
            mine[i] = i + 2;
            expected[i] = now;
            now = oracle_int64(now, mine[i], op);
            CHECK_OK(dtl_win_fetch_op(win, &mine[i], &old[i], DTL_DTYPE_INT64, target, (uint64_t)s.me, op));
            CHECK_OK(dtl_win_accumulate(win, &mine[i], 1, DTL_DTYPE_INT64, target, (uint64_t)s.ranks, DTL_OP_MAX));
        }
        value = -5;
        CHECK_OK(dtl_win_compare_and_swap(win, &value, &now, &found, DTL_DTYPE_INT64, target, (uint64_t)s.me));
        CHECK_OK(dtl_win_flush(win, target));
        CHECK(found == now && memcmp(old, expected, sizeof old) == 0);
    }
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < s.ranks; i++) CHECK(base[i] == -5);
    CHECK(base[s.ranks] == MANY + 1);
    CHECK_OK(dtl_win_destroy(win));
}

static inline void all_cases(side_t s) {
    case_words(s);
    case_order(s);
    case_allocated(s);
    case_fence(s);
    case_sizes(s, 0);
    case_sizes(s, 1);
    case_small_elements(s);
    case_counters(s);
    case_exclusion(s);
    case_passive(s);
    case_large_flush(s);
    case_flood(s);
    case_types(s);
}

#endif
