/* Assertions for the tests in C: they print what failed, where and why, and end the program. */
#ifndef DTL_TESTS_CHECK_H
#define DTL_TESTS_CHECK_H

#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>

/// The condition holds.
#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: failed: %s; last error: %s\n", __FILE__, __LINE__,            \
                    #condition, dtl_last_error());                                                \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/// The call returns this status.
#define CHECK_STATUS(call, expected)                                                              \
    do {                                                                                          \
        const dtl_status_t check_got_ = (call);                                                   \
        const dtl_status_t check_expected_ = (expected);                                          \
        if (check_got_ != check_expected_) {                                                      \
            fprintf(stderr, "%s:%d: %s\n  returned %s instead of %s; last error: %s\n", __FILE__, \
                    __LINE__, #call, dtl_status_name(check_got_), dtl_status_name(check_expected_),\
                    dtl_last_error());                                                            \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/// The call succeeds.
#define CHECK_OK(call) CHECK_STATUS(call, DTL_SUCCESS)

/// OWN_STACK: before a function whose locals lie on the thread's stack, where AddressSanitizer would put them elsewhere.
/// KEEPS_FREED: it keeps what was freed for a while, so what the process uses says nothing.
#ifdef __SANITIZE_ADDRESS__
#define OWN_STACK __attribute__((no_sanitize("address")))
#define KEEPS_FREED 1
#else
#define OWN_STACK
#define KEEPS_FREED 0
#endif

/// Ends the test as skipped: the test runners know the text and the exit status 77.
#define SKIP(reason)                                                                              \
    do {                                                                                          \
        printf("skipped: %s\n", reason);                                                          \
        exit(77);                                                                                 \
    } while (0)

#endif
