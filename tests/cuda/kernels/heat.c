/* The kernel of the example heat_gpu, for the driver that is none: it does launches by host code. */
#include "dtl_kernel.h"

DTL_KERNEL(heat, (DTL_GLOBAL const float*, now), (DTL_GLOBAL float*, next), (unsigned, width), (unsigned, first),
           (unsigned, stride), (unsigned, rows)) {
    const DTL_SIZE x = DTL_GLOBAL_ID(0) + 1, turn = DTL_GLOBAL_ID(1), at = (first + turn * stride) * width + x;
    if (x < width - 1 && turn < rows)
        next[at] = 0.25f * ((now[at - width] + now[at + width]) + (now[at - 1] + now[at + 1]));
}
