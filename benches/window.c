// Cost of one-sided operations on memory that two ranks share, next to what the machine does by itself: a word that goes
// to and fro between two processors by plain loads and stores, and a counter that both add to.
//
//     cc -O2 -pthread benches/window.c $(pkg-config --cflags --libs libdtl) -o window && ./window
//     dtlrun -n 2 ./window shm
//
// Without an argument two threads are the ranks, and the machine's own figures are measured in turns with the
// library's; with "shm" two processes are. Prints nanoseconds: the 10th percentile over many short batches.
#define _GNU_SOURCE
#include "measure.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { TRIPS = 200, BATCHES = 200, BIG = 4 << 20, RUN = 64 << 10, RUNS = 4 };

typedef struct {
    dtl_comm_t comm;
    dtl_win_t win;
    int32_t me, other;
    // This rank's memory of the window: lines 128 bytes apart.
    uint64_t *base;
    // Trips so far, by row: the other rank may be ahead with the first of a batch.
    uint64_t trips[3];
} side_t;

// Words of the machine's own measurements, each in two lines of its own.
static struct {
    _Alignas(128) _Atomic uint64_t word;
} bare[3];

static void wait_for(const uint64_t *at, uint64_t value)
{
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != value) {}
}

// A trip to the other rank and back, by whoever's stores; the time of one way.
static void trips_bare(side_t *s)
{
    _Atomic uint64_t *mine = &bare[s->me].word, *theirs = &bare[s->other].word;
    const uint64_t from = s->trips[0];
    s->trips[0] += TRIPS;
    for (uint64_t i = from + 1; i <= from + TRIPS; i++) {
        if (s->me == 0) atomic_store_explicit(theirs, i, memory_order_release);
        while (atomic_load_explicit(mine, memory_order_acquire) != i) {}
        if (s->me == 1) atomic_store_explicit(theirs, i, memory_order_release);
    }
}

static void trips_put(side_t *s)
{
    const uint64_t from = s->trips[1];
    s->trips[1] += TRIPS;
    for (uint64_t i = from + 1; i <= from + TRIPS; i++) {
        if (s->me == 0) {
            OK(dtl_win_put(s->win, &i, 1, DTL_DTYPE_UINT64, s->other, 0));
            OK(dtl_win_flush(s->win, s->other));
        }
        wait_for(&s->base[0], i);
        if (s->me == 1) {
            OK(dtl_win_put(s->win, &i, 1, DTL_DTYPE_UINT64, s->other, 0));
            OK(dtl_win_flush(s->win, s->other));
        }
    }
}

// Each stores to its own memory, and gets the other's until the value is there.
static void trips_get(side_t *s)
{
    const uint64_t from = s->trips[2];
    s->trips[2] += TRIPS;
    for (uint64_t i = from + 1; i <= from + TRIPS; i++) {
        uint64_t got = 0;
        if (s->me == 0) __atomic_store_n(&s->base[16], i, __ATOMIC_RELEASE);
        while (got != i) {
            OK(dtl_win_get(s->win, &got, 1, DTL_DTYPE_UINT64, s->other, 16));
            OK(dtl_win_flush_local(s->win, s->other));
        }
        if (s->me == 1) __atomic_store_n(&s->base[16], i, __ATOMIC_RELEASE);
    }
}

// Both add to one counter at the same time; the time of one addition.
static void counts_bare(side_t *s)
{
    (void)s;
    for (int i = 0; i < TRIPS; i++) atomic_fetch_add(&bare[2].word, 1);
}

// The same with some 12 ns of other work after each addition, which is what a call is to the counter's line: one who comes
// back finds it gone more often than one who only adds.
static void counts_paced(side_t *s)
{
    uint64_t work = (uint64_t)s->me;
    for (int i = 0; i < TRIPS; i++) {
        work += atomic_fetch_add(&bare[2].word, 1);
        for (int step = 0; step < 9; step++) work = work * 3 + 1;
        __asm__ volatile("" : "+r"(work));
    }
}

static void counts_fetch_op(side_t *s)
{
    const uint64_t one = 1;
    uint64_t was;
    for (int i = 0; i < TRIPS; i++) {
        OK(dtl_win_fetch_op(s->win, &one, &was, DTL_DTYPE_UINT64, 0, 32, DTL_OP_SUM));
        OK(dtl_win_flush_local(s->win, 0));
    }
}

// Fetched by loads and stores, a value is there when the call returns: one flush for all.
static void counts_flushed_once(side_t *s)
{
    const uint64_t one = 1;
    uint64_t was;
    for (int i = 0; i < TRIPS; i++) OK(dtl_win_fetch_op(s->win, &one, &was, DTL_DTYPE_UINT64, 0, 32, DTL_OP_SUM));
    OK(dtl_win_flush_local(s->win, 0));
}

static void counts_double(side_t *s)
{
    const double one = 1;
    double was;
    for (int i = 0; i < TRIPS; i++) {
        OK(dtl_win_fetch_op(s->win, &one, &was, DTL_DTYPE_FLOAT64, 0, 48, DTL_OP_SUM));
        OK(dtl_win_flush_local(s->win, 0));
    }
}

// Long runs of small elements, by one rank.
static void runs_of_bytes(side_t *s)
{
    static const int8_t ones[RUN];
    for (int i = 0; i < RUNS && s->me == 0; i++)
        OK(dtl_win_accumulate(s->win, ones, RUN, DTL_DTYPE_INT8, 1, 512, DTL_OP_SUM));
}

// Nobody else is at it: what the call itself costs.
static void counts_alone(side_t *s)
{
    const uint64_t one = 1;
    uint64_t was;
    for (int i = 0; i < TRIPS; i++) {
        OK(dtl_win_fetch_op(s->win, &one, &was, DTL_DTYPE_UINT64, s->me, 64, DTL_OP_SUM));
        OK(dtl_win_flush_local(s->win, s->me));
    }
}

typedef struct {
    const char *name;
    void (*run)(side_t *);
    // What a batch's time is divided by; whether it is of the machine.
    double of;
    int is_bare;
} row_t;

static const row_t ROWS[] = {
    {"line, one way (machine)", trips_bare, 2.0 * TRIPS, 1}, {"put 8 B, one way", trips_put, 2.0 * TRIPS, 0},
    {"get 8 B, one way", trips_get, 2.0 * TRIPS, 0},         {"contended add (machine)", counts_bare, TRIPS, 1},
    {"the same, as often as calls", counts_paced, TRIPS, 1},
    {"contended fetch_op, uint64", counts_fetch_op, TRIPS, 0}, {"the same, flushed at the end", counts_flushed_once, TRIPS, 0},
    {"contended fetch_op, float64", counts_double, TRIPS, 0},
    {"fetch_op on its own memory", counts_alone, TRIPS, 0},  {"accumulate 64 KiB of int8", runs_of_bytes, RUNS, 0},
};
enum { ROW_COUNT = sizeof ROWS / sizeof *ROWS };

// The machine's own words are this process' alone.
static int with_bare = 1;

static void measure(side_t *s)
{
    static double times[ROW_COUNT][BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int row = 0; row < ROW_COUNT; row++) {
            if (ROWS[row].is_bare && !with_bare) continue;
            OK(dtl_comm_barrier(s->comm));
            const double start = now_ns();
            ROWS[row].run(s);
            if (s->me == 0) times[row][batch] = (now_ns() - start) / ROWS[row].of;
        }
    }
    OK(dtl_comm_barrier(s->comm));
    for (int row = 0; row < ROW_COUNT && s->me == 0; row++) {
        if (ROWS[row].is_bare && !with_bare) continue;
        qsort(times[row], BATCHES, sizeof **times, ascending);
        printf("| %-28s | %7.1f |\n", ROWS[row].name, times[row][BATCHES / 10]);
    }
}

// MiB that go to the other rank in one piece, by put and by a message.
static void measure_big(side_t *s)
{
    unsigned char *data = malloc(BIG);
    double puts[50], sends[50];
    memset(data, 1, BIG);
    for (int i = 0; i < 50; i++) {
        OK(dtl_comm_barrier(s->comm));
        double start = now_ns();
        if (s->me == 0) {
            OK(dtl_win_put(s->win, data, BIG, DTL_DTYPE_BYTE, 1, 128));
            OK(dtl_win_flush(s->win, 1));
        }
        puts[i] = now_ns() - start;
        OK(dtl_comm_barrier(s->comm));
        start = now_ns();
        if (s->me == 0) OK(dtl_comm_send(s->comm, data, BIG, DTL_DTYPE_BYTE, 1, 1));
        else OK(dtl_comm_recv(s->comm, data, BIG, DTL_DTYPE_BYTE, 0, 1, NULL));
        sends[i] = now_ns() - start;
    }
    if (s->me == 0) {
        qsort(puts, 50, sizeof *puts, ascending);
        qsort(sends, 50, sizeof *sends, ascending);
        printf("| put of 4 MiB, GB/s           | %7.2f |\n| message of 4 MiB, GB/s       | %7.2f |\n", BIG / puts[25], BIG / sends[25]);
    }
    free(data);
}

static void *side(void *comm)
{
    side_t s = {.comm = *(dtl_comm_t *)comm};
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    OK(dtl_comm_rank(s.comm, &s.me));
    s.other = 1 - s.me;
    OK(dtl_win_allocate(s.comm, BIG + 4096, 8, (void **)&s.base, &s.win));
    OK(dtl_win_info(s.win, s.me, &info));
    if (s.me == 0) printf("%s\n", info.way);
    OK(dtl_win_lock_all(s.win));
    measure(&s);
    measure_big(&s);
    OK(dtl_win_unlock_all(s.win));
    OK(dtl_win_destroy(s.win));
    return NULL;
}

int main(int argc, char **argv)
{
    dtl_comm_t comms[2];
    if (argc > 1 && strcmp(argv[1], "shm") == 0) {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        with_bare = 0;
        desc.kind = "shm";
        OK(dtl_comm_open(&desc, &comms[0]));
        side(&comms[0]);
        OK(dtl_comm_destroy(comms[0]));
        return 0;
    }
    pthread_t threads[2];
    OK(dtl_comm_threads(2, 0, comms));
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, side, &comms[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
