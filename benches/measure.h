// What the measurements of windows share: the clock, the order of times, and calls that must succeed.
#pragma once
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define OK(call)                                                                                     \
    do {                                                                                             \
        if ((call) != DTL_SUCCESS) {                                                                 \
            fprintf(stderr, "%s: %s\n", #call, dtl_last_error());                                    \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static inline int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
