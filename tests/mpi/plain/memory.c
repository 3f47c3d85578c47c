/* Memory that ranks share by dtl_mem_export, over kind "mpi": the cases of mem_cases.h in a program that is not linked
 * with any MPI. */
#include "../../c/mem_cases.h"

int main(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    int32_t me = 0, ranks = 0;
    desc.kind = "mpi";
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    mem_cases(comm, me, ranks);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    return 0;
}
