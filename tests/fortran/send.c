/* A send of 8 bytes in C, and the one in Fortran if it is linked, counted by instructions.sh. */
#include <dtl.h>

void row_c(void);
__attribute__((weak)) void row_fortran(void);

__attribute__((noinline)) void row_c(void)
{
    const double x = 1;
    for (int i = 0; i < 1000; i++) DTL_CHECK(dtl_comm_send(DTL_COMM_SELF, &x, 1, DTL_DTYPE_FLOAT64, DTL_PROC_NULL, 1));
}

int main(void)
{
    const double x = 1; /* what happens once is not counted */
    DTL_CHECK(dtl_comm_send(DTL_COMM_SELF, &x, 1, DTL_DTYPE_FLOAT64, DTL_PROC_NULL, 1));
    row_c();
    if (row_fortran) row_fortran();
    return 0;
}
