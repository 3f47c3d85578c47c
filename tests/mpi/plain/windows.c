/* One-sided communication of kind "mpi" in a program that is not linked with any MPI: the cases of win_cases.h, and those
 * in which MPIs differ. Open MPI's windows are used from version 5 on.
 *     windows own | limit openmpi | mpich    over MPI's windows, or (for a time limit) the library's messages */
#include "../../c/win_cases.h"

/* The way of a new window, and that dtl_explain tells it, are those of this MPI. */
static void case_way(side_t s, int has_limit) {
    dtl_comm_info_t comm = DTL_COMM_INFO_INIT;
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    char text[8192];
    int64_t cells[8] = {0}, *base = NULL, got = 0;
    const int64_t value = s.me + 1;
    dtl_win_t win;
    /* Memory at an odd place is reached, whatever the way. */
    CHECK_OK(dtl_win_create(s.comm, cells + 1 - (uintptr_t)cells % 16 / 8, 48, 8, &win));
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, win_next(s, 1), 3));
    CHECK_OK(dtl_win_fence(win));
    CHECK(cells[4 - (uintptr_t)cells % 16 / 8] == win_next(s, s.ranks - 1) + 1);
    CHECK_OK(dtl_win_get(win, &got, 1, DTL_DTYPE_INT64, win_next(s, 1), 3));
    CHECK_OK(dtl_win_fence(win));
    CHECK(got == value);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_win_allocate(s.comm, 8, 8, (void **)&base, &win));
    CHECK_OK(dtl_win_info(win, s.me, &info));
    CHECK_OK(dtl_comm_info(s.comm, &comm));
    CHECK_OK(dtl_explain(text, sizeof text, NULL));
    CHECK(strstr(text, "window: ") != NULL && strstr(text, info.way) != NULL);
    if (has_limit || strstr(comm.transport, "Open MPI v4") != NULL || strstr(comm.transport, "Open MPI 4") != NULL) {
        CHECK(strncmp(info.way, "messages", 8) == 0);
        CHECK(strstr(text, has_limit ? "without a time limit" : "from Open MPI 5 on") != NULL);
    } else {
        CHECK(strncmp(info.way, "MPI's windows", 13) == 0);
    }
    CHECK_OK(dtl_win_destroy(win));
}

/* Every operation on integers of 4 and 8 bytes, one element and many; in some the highest bit is set. */
ORACLE(oracle_uint32, uint32_t)
ORACLE(oracle_uint64, uint64_t)

#define CASE_INTEGERS(name, type, dtype, top)                                                                   \
    static void name(side_t s, void *memory, dtl_win_t win) {                                                   \
        enum { COUNT = 300 };                                                                                   \
        type *base = (type *)memory, mine[COUNT], old[COUNT];                                                   \
        const int target = win_next(s, 1), from = win_next(s, s.ranks - 1);                                     \
        const type high = (type)(top);                                                                          \
        int32_t op;                                                                                             \
        int i;                                                                                                  \
        for (op = DTL_OP_SUM; op <= DTL_OP_NO_OP; op++) {                                                       \
            if (op == DTL_OP_MINLOC || op == DTL_OP_MAXLOC) continue;                                           \
            for (i = 0; i < COUNT; i++) {                                                                       \
                base[i] = i % 3 ? (type)(i % 37) : (type)(high + (type)i);                                      \
                mine[i] = i % 5 ? (type)((i * (s.me + 3)) % 41) : (type)(high + (type)s.me);                    \
            }                                                                                                   \
            CHECK_OK(dtl_win_fence(win));                                                                       \
            CHECK_OK(dtl_win_fetch_op(win, mine, old, dtype, target, 0, op));                                   \
            CHECK_OK(dtl_win_accumulate(win, mine + 1, 1, dtype, target, sizeof(type), op));                    \
            CHECK_OK(dtl_win_get_accumulate(win, mine + 2, old + 2, COUNT - 2, dtype, target, 2 * sizeof(type), op)); \
            CHECK_OK(dtl_win_fence(win));                                                                       \
            for (i = 0; i < COUNT; i++) {                                                                       \
                const type was = i % 3 ? (type)(i % 37) : (type)(high + (type)i);                               \
                const type with = i % 5 ? (type)((i * (from + 3)) % 41) : (type)(high + (type)from);            \
                CHECK(base[i] == oracle_##name(was, with, op) && (i == 1 || old[i] == was));                    \
            }                                                                                                   \
            CHECK_OK(dtl_win_fence(win));                                                                       \
        }                                                                                                       \
    }
CASE_INTEGERS(int32, int32_t, DTL_DTYPE_INT32, -5000)
CASE_INTEGERS(uint32, uint32_t, DTL_DTYPE_UINT32, UINT32_C(1) << 31)
CASE_INTEGERS(int64, int64_t, DTL_DTYPE_INT64, -5000)
CASE_INTEGERS(uint64, uint64_t, DTL_DTYPE_UINT64, UINT64_C(1) << 63)

/* Different operations on one element at once, by all ranks: MPI promises less, the library this. */
static void case_mixed(side_t s, int64_t *base, dtl_win_t win) {
    enum { EACH = 150 };
    const int64_t one = 1, all = -1, high = INT64_C(1) << (40 + s.me), none = 0;
    int64_t held, next, found, round, total = 0;
    if (s.me == 0) *base = 0;
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_lock_all(win));
    for (round = 0; round < EACH; round++) {
        switch ((round + s.me) % 5) {
            case 0:
                CHECK_OK(dtl_win_fetch_op(win, &one, &found, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
                break;
            case 1:
                CHECK_OK(dtl_win_fetch_op(win, NULL, &found, DTL_DTYPE_INT64, 0, 0, DTL_OP_NO_OP));
                do {
                    CHECK_OK(dtl_win_flush(win, 0));
                    held = found, next = held + 1;
                    CHECK_OK(dtl_win_compare_and_swap(win, &next, &held, &found, DTL_DTYPE_INT64, 0, 0));
                    CHECK_OK(dtl_win_flush(win, 0));
                } while (found != held);
                break;
            case 2: /* there and back */
                CHECK_OK(dtl_win_accumulate(win, &high, 1, DTL_DTYPE_INT64, 0, 0, DTL_OP_BXOR));
                CHECK_OK(dtl_win_fetch_op(win, &high, &found, DTL_DTYPE_INT64, 0, 0, DTL_OP_BXOR));
                CHECK_OK(dtl_win_flush(win, 0));
                CHECK((found & high) != 0);
                break;
            case 3:
                CHECK_OK(dtl_win_fetch_op(win, &all, &found, DTL_DTYPE_INT64, 0, 0, DTL_OP_BAND));
                CHECK_OK(dtl_win_accumulate(win, &none, 1, DTL_DTYPE_INT64, 0, 0, DTL_OP_MAX));
                break;
            default:
                CHECK_OK(dtl_win_accumulate(win, &one, 1, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
                break;
        }
        CHECK_OK(dtl_win_flush(win, 0));
        total += (round + s.me) % 5 < 2 || (round + s.me) % 5 == 4;
    }
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_comm_allreduce(s.comm, DTL_IN_PLACE, &total, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(win));
    CHECK(s.me != 0 || *base == total);
    CHECK_OK(dtl_win_fence(win));
}

/* In memory that MPI allocates, and in memory that the program has. */
static void case_integers(side_t s) {
    int64_t memory[300], *base = NULL;
    dtl_win_t win;
    CHECK_OK(dtl_win_allocate(s.comm, sizeof memory, 1, (void **)&base, &win));
    int32(s, base, win), uint32(s, base, win), int64(s, base, win), uint64(s, base, win);
    case_mixed(s, base, win);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_win_create(s.comm, memory, sizeof memory, 1, &win));
    int32(s, memory, win), uint32(s, memory, win), int64(s, memory, win), uint64(s, memory, win);
    case_mixed(s, memory, win);
    CHECK_OK(dtl_win_destroy(win));
}

/* Some ranks have memory and some want it; a part of nothing; a communicator of some ranks. */
static void case_making(side_t s) {
    int64_t memory = 0, *base = &memory, value = s.me + 1, sum = 0;
    side_t some = {s.comm, 0, 0};
    dtl_win_t win;
    if (s.me % 2 == 0) {
        CHECK_OK(dtl_win_allocate(s.comm, 8, 8, (void **)&base, &win));
    } else {
        CHECK_OK(dtl_win_create(s.comm, base, 8, 8, &win));
    }
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, win_next(s, 1), 0));
    CHECK_OK(dtl_win_fence(win));
    CHECK(*base == win_next(s, s.ranks - 1) + 1);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_win_allocate(s.comm, s.me == 0 ? 8 : 0, 1, (void **)&base, &win));
    CHECK(s.me == 0 ? base != NULL : base == NULL);
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_comm_barrier(s.comm));
    CHECK(s.me != 0 || *base == s.ranks * (s.ranks + 1) / 2);
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 0), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_fence(win));
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, s.ranks, 0), DTL_ERROR_INVALID_RANK);
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_comm_split(s.comm, s.me % 2, -s.me, &some.comm));
    CHECK_OK(dtl_comm_rank(some.comm, &some.me));
    CHECK_OK(dtl_comm_size(some.comm, &some.ranks));
    CHECK_OK(dtl_win_create(some.comm, &sum, 8, 8, &win));
    CHECK_OK(dtl_comm_destroy(some.comm)); /* the window lives on */
    CHECK_OK(dtl_win_fence(win));
    value = some.me;
    CHECK_OK(dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, some.ranks - 1, 0, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(win));
    CHECK(sum == (some.me == some.ranks - 1 ? some.ranks * (some.ranks - 1) / 2 : 0));
    CHECK_OK(dtl_win_destroy(win));
}

/* Nothing of a window's messages is left for the next communicator, which may get the same context from the MPI. */
static void case_nothing_left(side_t s) {
    int round, target;
    for (round = 0; round < 25; round++) {
        int64_t out[3], in[3] = {0, 0, 0};
        void *base;
        dtl_win_t win;
        dtl_comm_t next;
        dtl_request_t sent;
        out[0] = round, out[1] = s.me, out[2] = 77;
        CHECK_OK(dtl_win_allocate(s.comm, 8, 8, &base, &win));
        for (target = 0; target < s.ranks; target++) {
            CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, target));
            CHECK_OK(dtl_win_unlock(win, target));
        }
        CHECK_OK(dtl_win_destroy(win));
        CHECK_OK(dtl_comm_dup(s.comm, &next));
        CHECK_OK(dtl_comm_isend(next, out, 3, DTL_DTYPE_INT64, win_next(s, 1), 0, &sent));
        CHECK_OK(dtl_comm_recv(next, in, 3, DTL_DTYPE_INT64, win_next(s, s.ranks - 1), 0, NULL));
        CHECK_OK(dtl_request_wait(sent, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(in[0] == round && in[1] == win_next(s, s.ranks - 1) && in[2] == 77);
        CHECK_OK(dtl_comm_destroy(next));
    }
}

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    side_t side;
    int has_limit;
    CHECK(argc > 1);
    has_limit = strcmp(argv[1], "limit") == 0;
    CHECK_OK(dtl_init(NULL));
    desc.kind = "mpi";
    if (has_limit) desc.timeout_ns = UINT64_C(60000000000);
    CHECK_OK(dtl_comm_open(&desc, &side.comm));
    CHECK_OK(dtl_comm_rank(side.comm, &side.me));
    CHECK_OK(dtl_comm_size(side.comm, &side.ranks));
    case_way(side, has_limit);
    case_making(side);
    case_integers(side);
    all_cases(side);
    case_nothing_left(side);
    CHECK_OK(dtl_comm_barrier(side.comm));
    CHECK_OK(dtl_comm_destroy(side.comm));
    CHECK_OK(dtl_finalize());
    return 0;
}
