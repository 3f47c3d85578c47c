#include <dtl.h>
#include <stdio.h>

int main(void)
{
    int32_t rank = 0, size = 0;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));

    const double mine = rank + 1.0;
    double sum = 0.0;
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &mine, &sum, 1, DTL_DTYPE_FLOAT64,
                                 DTL_OP_SUM));
    printf("rank %d of %d: the sum is %g\n", (int)rank, (int)size, sum);

    // A call that fails. DTL_CHECK would print the same text and abort.
    dtl_backend_t backend;
    const dtl_status_t status = dtl_backend_get("no such backend", &backend);
    if (status != DTL_SUCCESS) {
        printf("%s: %s\n", dtl_status_name(status), dtl_last_error());
    }
    DTL_CHECK(dtl_finalize());
    return 0;
}
