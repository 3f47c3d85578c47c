/* c = a b for n x n matrices in tiles of 16 x 16, n a multiple of 16: a value that each thread keeps between phases. */
#include "dtl_kernel.h"

#define TILE 16

DTL_BLOCK_KERNEL(matmul, (DTL_GLOBAL const float*, a), (DTL_GLOBAL const float*, b), (DTL_GLOBAL float*, c), (unsigned, n))
{
    DTL_SHARED(float, left, TILE * TILE);
    DTL_SHARED(float, right, TILE * TILE);
    DTL_PRIVATE(float, sum);
    unsigned tile;
    DTL_THREADS { DTL_MINE(sum) = 0.0f; }
    for (tile = 0; tile < n; tile += TILE) {
        DTL_THREADS {
            const DTL_SIZE x = DTL_LOCAL_ID(0), y = DTL_LOCAL_ID(1);
            left[y * TILE + x] = a[DTL_GLOBAL_ID(1) * n + tile + x];
            right[y * TILE + x] = b[(tile + y) * n + DTL_GLOBAL_ID(0)];
        }
        DTL_THREADS {
            int k;
            float more = 0.0f;
            for (k = 0; k < TILE; k++)
                more += left[DTL_LOCAL_ID(1) * TILE + k] * right[k * TILE + DTL_LOCAL_ID(0)];
            DTL_MINE(sum) += more;
        }
    }
    DTL_THREADS { c[DTL_GLOBAL_ID(1) * n + DTL_GLOBAL_ID(0)] = DTL_MINE(sum); }
}
