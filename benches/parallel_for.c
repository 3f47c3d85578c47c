// Loops on a pool of the library's next to the same loops by libgomp with active waiting, in turn.
//
//     cc -O3 -march=native -fopenmp benches/parallel_for.c $(pkg-config --cflags --libs libdtl) -o parallel_for && ./parallel_for [threads [part of a row's name]]
//
// Prints microseconds per loop: the 10th percentile over many short batches, and the ratio of the two;
// last, how many of a loop's iterations another thread than the caller has done. libgomp's threads
// spin for ever, so they are ended while the library is measured (omp_pause_resource_all) and the first
// loops of each turn do not count. Thread t of both runs on processor t.
#define _GNU_SOURCE
#include <dtl.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 40, BATCHES = 60, WARM_UP = 60, MOST = 10000000, MOST_THREADS = 64 };

struct work {
    float a, *x, *y;
    double sum;
    int arrived, threads;
    long elsewhere;
    pthread_t caller;
};
typedef struct {
    const char *name;
    dtl_range_fn_t body; // NULL: the sum of x
    uint64_t iterations, grain;
    int loops; // in a batch
} row_t;

static int threads = 2;
static dtl_executor_t executor;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu % (int)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static dtl_status_t nothing(uint64_t begin, uint64_t end, void *user)
{
    (void)begin, (void)end, (void)user;
    return DTL_SUCCESS;
}

static dtl_status_t saxpy(uint64_t begin, uint64_t end, void *user)
{
    const struct work *work = user;
    const float a = work->a, *restrict x = work->x;
    float *restrict y = work->y;
    for (uint64_t i = begin; i < end; i++) y[i] += a * x[i];
    return DTL_SUCCESS;
}

// Iteration i costs i: half of the range holds three quarters of the work.
static dtl_status_t uneven(uint64_t begin, uint64_t end, void *user)
{
    const struct work *work = user;
    for (uint64_t i = begin; i < end; i++) {
        float sum = work->y[i];
        for (uint64_t j = 0; j < i; j++) sum += work->a * work->x[j];
        work->y[i] = sum;
    }
    return DTL_SUCCESS;
}

// Every piece waits for all others: no thread can do the work of another.
static dtl_status_t meet(uint64_t begin, uint64_t end, void *user)
{
    (void)begin, (void)end;
    struct work *work = user;
    const int goal = (__atomic_fetch_add(&work->arrived, 1, __ATOMIC_ACQ_REL) / work->threads + 1) * work->threads;
    while (__atomic_load_n(&work->arrived, __ATOMIC_ACQUIRE) < goal) __builtin_ia32_pause();
    return DTL_SUCCESS;
}

static dtl_status_t pin_each(uint64_t begin, uint64_t end, void *user)
{
    struct work *work = user;
    static int next = 1;
    if (!pthread_equal(work->caller, pthread_self())) pin(__atomic_fetch_add(&next, 1, __ATOMIC_RELAXED));
    return meet(begin, end, user);
}

static dtl_status_t count_elsewhere(uint64_t begin, uint64_t end, void *user)
{
    struct work *work = user;
    if (!pthread_equal(work->caller, pthread_self()))
        __atomic_fetch_add(&work->elsewhere, (long)(end - begin), __ATOMIC_RELAXED);
    return saxpy(begin, end, user);
}

static void loop_by_omp(const row_t *row, struct work *work)
{
    const uint64_t n = row->iterations, of = (uint64_t)threads;
#pragma omp parallel num_threads(threads)
    {
        const uint64_t t = (uint64_t)omp_get_thread_num();
        row->body(n * t / of, n * (t + 1) / of, work);
    }
}

static void loop_by_dtl(const row_t *row, struct work *work)
{
    DTL_CHECK(dtl_executor_parallel_for(executor, 0, row->iterations, row->grain, row->body, work));
}

static dtl_status_t add_up(uint64_t begin, uint64_t end, void *acc, void *user)
{
    const float *x = ((const struct work *)user)->x;
    double sum = *(double *)acc;
    for (uint64_t i = begin; i < end; i++) sum += x[i];
    *(double *)acc = sum;
    return DTL_SUCCESS;
}

static void join_sums(void *into, const void *from, void *user)
{
    (void)user;
    *(double *)into += *(const double *)from;
}

static void sum_by_omp(const row_t *row, struct work *work)
{
    const uint64_t n = row->iterations, of = (uint64_t)threads;
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        const uint64_t t = (uint64_t)omp_get_thread_num();
        (void)add_up(n * t / of, n * (t + 1) / of, &sum, work);
    }
    work->sum = sum;
}

static void sum_by_dtl(const row_t *row, struct work *work)
{
    const double zero = 0;
    DTL_CHECK(dtl_executor_parallel_reduce(executor, 0, row->iterations, row->grain, sizeof zero, &zero, add_up,
                                           join_sums, work, &work->sum));
}

static double batch(void (*run)(const row_t *, struct work *), const row_t *row, struct work *work)
{
    const double start = now_us();
    for (int i = 0; i < row->loops; i++) run(row, work);
    return (now_us() - start) / row->loops;
}

// All threads are there, and know the loop.
static void warm_up(void (*run)(const row_t *, struct work *), const row_t *row,
                    void (*loop)(const row_t *, struct work *), struct work *work)
{
    const row_t all = {"", meet, (uint64_t)threads, 1, 1};
    for (int i = 0; i < 5; i++) loop(&all, work);
    for (int i = 0; i < WARM_UP && i < 4 * row->loops; i++) run(row, work);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}


static void measure(const row_t *row, struct work *work)
{
    void (*const by_omp)(const row_t *, struct work *) = row->body != NULL ? loop_by_omp : sum_by_omp;
    void (*const by_dtl)(const row_t *, struct work *) = row->body != NULL ? loop_by_dtl : sum_by_dtl;
    static double omp[TURNS * BATCHES], dtl[TURNS * BATCHES];
    const int batches = row->iterations >= MOST ? 2 : row->iterations >= 100000 ? 20 : BATCHES;
    for (int i = 0; i < TURNS * BATCHES; i++) omp[i] = dtl[i] = 1e30;
    for (int turn = 0; turn < TURNS; turn++) {
        omp_set_num_threads(threads);
#pragma omp parallel num_threads(threads)
        pin(omp_get_thread_num());
        warm_up(by_omp, row, loop_by_omp, work);
        for (int i = 0; i < batches; i++) omp[turn * batches + i] = batch(by_omp, row, work);
        omp_pause_resource_all(omp_pause_soft);
        warm_up(by_dtl, row, loop_by_dtl, work);
        for (int i = 0; i < batches; i++) dtl[turn * batches + i] = batch(by_dtl, row, work);
    }
    qsort(omp, TURNS * BATCHES, sizeof *omp, ascending);
    qsort(dtl, TURNS * BATCHES, sizeof *dtl, ascending);
    const int p10 = TURNS * batches / 10, p50 = TURNS * batches / 2;
    printf("| %-31s | %9.3f | %9.3f | %5.2f | %9.3f | %9.3f | %5.2f |\n", row->name, omp[p10], dtl[p10],
           dtl[p10] / omp[p10], omp[p50], dtl[p50], dtl[p50] / omp[p50]);
    fflush(stdout);
}

// How much of a loop the caller does not do itself.
static void share(const char *name, uint64_t iterations, int loops, struct work *work)
{
    const row_t row = {name, count_elsewhere, iterations, 0, loops};
    warm_up(loop_by_dtl, &row, loop_by_dtl, work);
    work->elsewhere = 0;
    for (int i = 0; i < loops; i++) loop_by_dtl(&row, work);
    printf("%s: %.1f %% of the iterations ran in other threads than the caller\n", name,
           100.0 * (double)work->elsewhere / ((double)loops * (double)iterations));
}

int main(int argc, char **argv)
{
    if (getenv("OMP_WAIT_POLICY") == NULL) { // libgomp reads it before main
        setenv("OMP_WAIT_POLICY", "active", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    if (argc > 1) threads = atoi(argv[1]);
    if (threads < 1 || threads > MOST_THREADS) return 2;
    static struct work work = {.a = 1e-9f};
    work.x = calloc(MOST, sizeof *work.x), work.y = calloc(MOST, sizeof *work.y);
    if (work.x == NULL || work.y == NULL) return 1;
    work.threads = threads, work.caller = pthread_self();
    for (int i = 0; i < MOST; i++) work.x[i] = 1, work.y[i] = 2;

    dtl_backend_t host;
    DTL_CHECK(dtl_backend_get("host", &host));
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    desc.kind = DTL_EXECUTOR_POOL, desc.threads = (uint32_t)threads;
    DTL_CHECK(dtl_executor_create(host, &desc, &executor));
    DTL_CHECK(dtl_executor_parallel_for(executor, 0, (uint64_t)threads, 1, pin_each, &work));
    pin(0);

    const uint64_t t = (uint64_t)threads;
    const row_t rows[] = {
        {"empty, an iteration per thread", nothing, t, 1, 100},
        {"all threads meet", meet, t, 1, 100},
        {"saxpy of 1 K", saxpy, 1000, 0, 100},
        {"saxpy of 10 K", saxpy, 10000, 0, 20},
        {"saxpy of 100 K", saxpy, 100000, 0, 5},
        {"saxpy of 10 M", saxpy, MOST, 0, 1},
        {"uneven, 500 iterations", uneven, 500, 0, 10},
        {"sum of 1 K", NULL, 1000, 0, 100},
        {"sum of 100 K", NULL, 100000, 0, 5},
    };
    printf("| us per loop, %2d threads         |   libgomp |       dtl | ratio |  (median) |       dtl | ratio |\n"
           "|---|---|---|---|---|---|---|\n", threads);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (argc < 3 || strstr(rows[i].name, argv[2]) != NULL) measure(&rows[i], &work);
    }
    share("saxpy of 1 K", 1000, 10000, &work);
    share("saxpy of 10 K", 10000, 5000, &work);
    share("saxpy of 100 K", 100000, 1000, &work);
    DTL_CHECK(dtl_executor_destroy(executor));
    return 0;
}
