/* y = a x + y: threads that do not meet. Compiles on the host, as OpenCL C and as CUDA C++. */
#include "dtl_kernel.h"

DTL_KERNEL(saxpy, (float, a), (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, y), (unsigned, n))
{
    const DTL_SIZE i = DTL_GLOBAL_ID(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
