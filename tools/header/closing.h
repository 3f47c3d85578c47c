
#ifdef __cplusplus
} /* extern "C" */
#endif

/* -----------------------------------------------------------------------------------------------
 * What to do with a status.
 * -------------------------------------------------------------------------------------------- */

#include <stdio.h>
#include <stdlib.h>

/// Calls; if that fails, prints what, why and where to standard error and aborts the program.
#define DTL_CHECK(call)                                                                           \
    do {                                                                                          \
        const dtl_status_t dtl_check_status_ = (call);                                            \
        if (dtl_check_status_ != DTL_SUCCESS) {                                                   \
            fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call,                    \
                    dtl_last_error(), dtl_status_name(dtl_check_status_));                        \
            abort();                                                                              \
        }                                                                                         \
    } while (0)

/// Calls; if that fails, returns the status from the calling function.
#define DTL_TRY(call)                                                                             \
    do {                                                                                          \
        const dtl_status_t dtl_try_status_ = (call);                                              \
        if (dtl_try_status_ != DTL_SUCCESS) {                                                     \
            return dtl_try_status_;                                                               \
        }                                                                                         \
    } while (0)

/// Calls and drops the status on purpose (when cleaning up, say). A cast to void is not enough for gcc.
#define DTL_IGNORE(call)                                                                          \
    do {                                                                                          \
        const dtl_status_t dtl_ignored_status_ = (call);                                          \
        (void)dtl_ignored_status_;                                                                \
    } while (0)

#endif /* DTL_DTL_H */
