/* Checks for the C tests: a failed one prints where, what was expected and the library's text, and
 * ends the program with status 1. */
#ifndef DTL_TEST_CHECK_H
#define DTL_TEST_CHECK_H

#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>

/* A condition that must hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n  last error: %s\n", __FILE__, __LINE__, #condition, \
                    dtl_last_error());                                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A call that must answer this status. */
#define CHECK_STATUS(expected, call)                                                               \
    do {                                                                                           \
        dtl_status_t check_wanted = (expected), check_got = (call);                                \
        if (check_got != check_wanted) {                                                           \
            fprintf(stderr, "%s:%d: %s\n  gave %s (%d), expected %s\n  last error: %s\n", __FILE__, \
                    __LINE__, #call, dtl_status_name(check_got), (int)check_got,                   \
                    dtl_status_name(check_wanted), dtl_last_error());                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A call that must succeed. */
#define CHECK_OK(call) CHECK_STATUS(DTL_SUCCESS, call)

#endif
