/* The sum of each block's part of x: phases over shared memory. 256 threads in x; n may be any number. */
#include "dtl_kernel.h"

DTL_BLOCK_KERNEL(reduce, (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, sums), (unsigned, n))
{
    DTL_SHARED(float, part, 256);
    unsigned width;
    DTL_THREADS { part[DTL_LOCAL_ID(0)] = DTL_GLOBAL_ID(0) < n ? x[DTL_GLOBAL_ID(0)] : 0.0f; }
    for (width = 128; width > 0; width /= 2) {
        DTL_THREADS {
            if (DTL_LOCAL_ID(0) >= width) continue;
            part[DTL_LOCAL_ID(0)] += part[DTL_LOCAL_ID(0) + width];
        }
    }
    DTL_THREADS { if (DTL_LOCAL_ID(0) == 0) sums[DTL_GROUP_ID(0)] = part[0]; }
}
