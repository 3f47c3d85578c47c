/* Reductions of integers of kind "mpi" by MPI's own collectives, in a program that is not linked with any MPI: sums that
 * go over the largest value wrap, and MIN and MAX of unsigned ones take the highest bit for what it is. (Open MPI's sums of 8
 * and 16 bits end at the largest value, MPICH 4.0 compares as if there were a sign.)
 *     integers openmpi | mpich */
#include "../../c/check.h"

enum { COUNT = 259 };

static uint64_t operand(int32_t rank, int i) {
    return (uint64_t)i * UINT64_C(0x0101010101010171) + (uint64_t)rank * UINT64_C(0x7070707070707070);
}

#define CASE(name, type, dtype)                                                                                \
    static void name(dtl_comm_t comm, int32_t me, int32_t ranks) {                                             \
        type mine[COUNT], sum[COUNT], least[COUNT], most[COUNT];                                               \
        int32_t rank;                                                                                          \
        int i;                                                                                                 \
        for (i = 0; i < COUNT; i++) mine[i] = (type)operand(me, i);                                            \
        CHECK_OK(dtl_comm_allreduce(comm, mine, sum, COUNT, dtype, DTL_OP_SUM));                               \
        CHECK_OK(dtl_comm_allreduce(comm, mine, least, COUNT, dtype, DTL_OP_MIN));                             \
        CHECK_OK(dtl_comm_allreduce(comm, mine, most, COUNT, dtype, DTL_OP_MAX));                              \
        for (i = 0; i < COUNT; i++) {                                                                          \
            uint64_t all = 0;                                                                                  \
            type low = (type)operand(0, i), high = low;                                                        \
            for (rank = 0; rank < ranks; rank++) {                                                             \
                const type one = (type)operand(rank, i);                                                       \
                all += operand(rank, i);                                                                       \
                if (one < low) low = one;                                                                      \
                if (one > high) high = one;                                                                    \
            }                                                                                                  \
            CHECK(sum[i] == (type)all && least[i] == low && most[i] == high);                                  \
        }                                                                                                      \
    }
CASE(int8, int8_t, DTL_DTYPE_INT8)
CASE(int16, int16_t, DTL_DTYPE_INT16)
CASE(int32, int32_t, DTL_DTYPE_INT32)
CASE(int64, int64_t, DTL_DTYPE_INT64)
CASE(uint8, uint8_t, DTL_DTYPE_UINT8)
CASE(uint16, uint16_t, DTL_DTYPE_UINT16)
CASE(uint32, uint32_t, DTL_DTYPE_UINT32)
CASE(uint64, uint64_t, DTL_DTYPE_UINT64)

int main(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    int32_t me, ranks;
    CHECK_OK(dtl_init(NULL));
    desc.kind = "mpi";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    int8(comm, me, ranks), int16(comm, me, ranks), int32(comm, me, ranks), int64(comm, me, ranks);
    uint8(comm, me, ranks), uint16(comm, me, ranks), uint32(comm, me, ranks), uint64(comm, me, ranks);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize());
    return 0;
}
