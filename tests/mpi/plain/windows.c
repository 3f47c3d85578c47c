/* One-sided communication of kind "mpi" in a program that is not linked with any MPI: the cases of win_cases.h.
 *     windows own | limit openmpi | mpich    with MPI's own messages, or (for a time limit) the library's */
#include "../../c/win_cases.h"

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    side_t side;
    CHECK(argc > 1);
    CHECK_OK(dtl_init(NULL));
    desc.kind = "mpi";
    if (strcmp(argv[1], "limit") == 0) desc.timeout_ns = UINT64_C(60000000000);
    CHECK_OK(dtl_comm_open(&desc, &side.comm));
    CHECK_OK(dtl_comm_rank(side.comm, &side.me));
    CHECK_OK(dtl_comm_size(side.comm, &side.ranks));
    all_cases(side);
    CHECK_OK(dtl_comm_barrier(side.comm));
    CHECK_OK(dtl_comm_destroy(side.comm));
    CHECK_OK(dtl_finalize());
    return 0;
}
