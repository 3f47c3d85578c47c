/* How often each of 64 values is among n bytes: atomics in shared memory, then in global memory. 64 threads in x. */
#include "dtl_kernel.h"

DTL_BLOCK_KERNEL(histogram, (DTL_GLOBAL const unsigned char*, data), (unsigned, n), (DTL_GLOBAL unsigned*, bins))
{
    DTL_SHARED(unsigned, mine, 64);
    DTL_THREADS { mine[DTL_LOCAL_ID(0)] = 0; }
    DTL_THREADS {
        DTL_SIZE i;
        for (i = DTL_GLOBAL_ID(0); i < n; i += DTL_GLOBAL_SIZE(0)) DTL_ATOMIC_ADD(&mine[data[i] % 64u], 1u);
    }
    DTL_THREADS { DTL_ATOMIC_ADD(&bins[DTL_LOCAL_ID(0)], mine[DTL_LOCAL_ID(0)]); }
}
