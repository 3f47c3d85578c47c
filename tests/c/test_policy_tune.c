/* Dynamic selection by what is learnt of tasks: load and time. No allocation for inline tasks. Spinning tasks take
 * microseconds, so that whole milliseconds would tell nothing. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <time.h>

/* This program's allocations and looks at the clock, counted. */
static uint64_t allocations, clock_reads;
#ifdef __cplusplus
extern "C" {
#endif
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern int __clock_gettime(clockid_t which, struct timespec* now);
void* malloc(size_t size) { return __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED), __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
    return __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED), __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
    return __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED), __libc_realloc(old, size);
}
#ifdef __cplusplus
}
#endif
