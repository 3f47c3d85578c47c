/* What the tests over MPI share: assertions that end all ranks, and MPI_Init with a named level. */
#ifndef DTL_TESTS_MPI_CHECK_H
#define DTL_TESTS_MPI_CHECK_H

#include <dtl_mpi.h>
#include <string.h>

/// The condition holds; else the whole job ends.
#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: failed: %s; last error: %s\n", __FILE__, __LINE__,            \
                    #condition, dtl_last_error());                                                \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

/// The call returns this status.
#define CHECK_STATUS(call, expected)                                                              \
    do {                                                                                          \
        const dtl_status_t got_ = (call);                                                         \
        if (got_ != (expected)) {                                                                 \
            fprintf(stderr, "%s:%d: %s\n  returned %s, not %s; last error: %s\n", __FILE__,       \
                    __LINE__, #call, dtl_status_name(got_), #expected, dtl_last_error());         \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, DTL_SUCCESS)

/// The last error's text has this in it.
#define CHECK_SAID(part) CHECK(strstr(dtl_last_error(), part) != NULL)

/// Initialises MPI with the level of this name. A higher one than asked for is fine with MPI, so the
/// level that is in force is the result.
static inline int init_mpi(int *argc, char ***argv, const char *name)
{
    int level = MPI_THREAD_SINGLE, got = 0;
    level = strcmp(name, "funneled") == 0 ? MPI_THREAD_FUNNELED : level;
    level = strcmp(name, "serialized") == 0 ? MPI_THREAD_SERIALIZED : level;
    level = strcmp(name, "multiple") == 0 ? MPI_THREAD_MULTIPLE : level;
    MPI_Init_thread(argc, argv, level, &got);
    return got;
}

#endif
