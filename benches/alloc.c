// What memory costs: dtl_mem_alloc + dtl_mem_free of the host next to malloc + free, batch by batch in
// turn, so that what disturbs the machine disturbs both.
//
//     cc -O2 benches/alloc.c $(pkg-config --cflags --libs libdtl) -o alloc && ./alloc
//
// Another malloc takes the place of the C library's with LD_PRELOAD. Prints nanoseconds per pair, the
// 10th percentile of many short batches, and the ratio. "pair": allocate, write one byte, free.
// "touch": allocate, write a byte of each page, free. "64 at once": allocate 64, write a byte of each,
// free them in the order they came. "elsewhere": allocated here, freed by another thread.
// With arguments it makes so many pairs, to count instructions (two runs; the difference is the pairs'):
//     valgrind --tool=callgrind ./alloc SIZE PAIRS
#define _GNU_SOURCE
#include <dtl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096, MANY = 64, MOST_BATCHES = 2000 };

typedef void *take_fn(size_t size);
typedef void give_fn(void *memory);
// So that each side's calls are in the loops themselves, as in a program.
#define INLINE static inline __attribute__((always_inline))

static dtl_backend_t host;

INLINE void *take_dtl(size_t size)
{
    void *memory = NULL;
    if (dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 0, &memory) != DTL_SUCCESS) abort();
    return memory;
}
INLINE void give_dtl(void *memory)
{
    if (dtl_mem_free(host, memory) != DTL_SUCCESS) abort();
}
INLINE void *take_c(size_t size)
{
    void *memory = malloc(size);
    if (memory == NULL) abort();
    __asm__ volatile("" : "+r"(memory));
    return memory;
}
INLINE void give_c(void *memory) { free(memory); }

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double tenth_percentile(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 10];
}

typedef void batch_fn(size_t size, int pairs);

// Both sides of a kind of batch.
#define BATCH(name)                                                                                  \
    static void name##_c(size_t size, int pairs) { name(take_c, give_c, size, pairs); }              \
    static __attribute__((noinline)) void name##_dtl(size_t size, int pairs) { name(take_dtl, give_dtl, size, pairs); }

INLINE void pairs_of(take_fn *take, give_fn *give, size_t size, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        char *memory = take(size);
        *(volatile char *)memory = 1;
        give(memory);
    }
}

INLINE void touched(take_fn *take, give_fn *give, size_t size, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        char *memory = take(size);
        for (size_t at = 0; at < size; at += PAGE) ((volatile char *)memory)[at] = 1;
        give(memory);
    }
}

INLINE void many(take_fn *take, give_fn *give, size_t size, int pairs)
{
    char *memory[MANY];
    for (int i = 0; i < pairs; i += MANY) {
        for (int k = 0; k < MANY; k++) {
            memory[k] = take(size);
            *(volatile char *)memory[k] = 1;
        }
        for (int k = 0; k < MANY; k++) give(memory[k]);
    }
}

// The other thread frees what it finds in the slots.
static _Atomic(char *) slots[256];
static atomic_int stop;
static give_fn *volatile giver;

static void *give_all(void *unused)
{
    (void)unused;
    for (unsigned i = 0; !atomic_load_explicit(&stop, memory_order_relaxed); i = (i + 1) % 256) {
        char *memory;
        while ((memory = atomic_exchange_explicit(&slots[i], NULL, memory_order_acquire)) == NULL) {
            if (atomic_load_explicit(&stop, memory_order_relaxed)) return NULL;
        }
        giver(memory);
    }
    return NULL;
}

static void elsewhere(take_fn *take, give_fn *give, size_t size, int pairs)
{
    pthread_t thread;
    giver = give;
    atomic_store(&stop, 0);
    if (pthread_create(&thread, NULL, give_all, NULL) != 0) abort();
    for (int i = 0; i < pairs; i++) {
        char *memory = take(size), *none = NULL;
        *(volatile char *)memory = 1;
        while (!atomic_compare_exchange_weak_explicit(&slots[i % 256], &none, memory, memory_order_release,
                                                      memory_order_relaxed)) none = NULL;
    }
    for (int i = 0; i < 256; i++) {
        while (atomic_load_explicit(&slots[i], memory_order_relaxed) != NULL) { }
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
}

BATCH(pairs_of)
BATCH(touched)
BATCH(many)
BATCH(elsewhere)

static void row(const char *what, batch_fn *batch_c, batch_fn *batch_dtl, size_t size, int pairs, int batches)
{
    static double c[MOST_BATCHES], dtl[MOST_BATCHES];
    for (int i = -1; i < batches; i++) { // the first round warms up
        const int at = i < 0 ? 0 : i;
        double start = now_ns();
        batch_c(size, pairs);
        c[at] = (now_ns() - start) / pairs;
        start = now_ns();
        batch_dtl(size, pairs);
        dtl[at] = (now_ns() - start) / pairs;
    }
    const double a = tenth_percentile(c, batches), b = tenth_percentile(dtl, batches);
    printf("| %-10s | %9zu | %10.1f | %10.1f | %6.3f |\n", what, size, a, b, b / a);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_backend_get("host", &host));
    if (argc == 3) {
        pairs_of_dtl((size_t)atoll(argv[1]), atoi(argv[2]));
        DTL_CHECK(dtl_finalize());
        return 0;
    }
    static const size_t sizes[] = {64, 256, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    printf("| what       |     bytes |     malloc |        dtl |  ratio |\n|---|---|---|---|---|\n");
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) row("pair", pairs_of_c, pairs_of_dtl, sizes[i], 1000, MOST_BATCHES);
    for (unsigned i = 0; i < 6; i++) row("64 at once", many_c, many_dtl, sizes[i], 1024, 500);
    row("touch", touched_c, touched_dtl, 1 << 20, 10, 200);
    row("touch", touched_c, touched_dtl, 16 << 20, 2, 100);
    row("touch", touched_c, touched_dtl, 64 << 20, 1, 30);
    row("elsewhere", elsewhere_c, elsewhere_dtl, 64, 20000, 20);
    row("elsewhere", elsewhere_c, elsewhere_dtl, 65536, 5000, 20);
    DTL_CHECK(dtl_finalize());
    return 0;
}
