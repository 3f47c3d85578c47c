/* A library that uses dtl, and is linked with the other version. */
#include <dtl.h>
#include <stdio.h>

dtl_status_t use(void);
dtl_status_t use(void)
{
    const dtl_status_t status = dtl_init(NULL);
    printf("status %d: %s%s\n", (int)status, status == DTL_SUCCESS ? "version " : "",
        status == DTL_SUCCESS ? dtl_version_string() : dtl_last_error());
    return status;
}
