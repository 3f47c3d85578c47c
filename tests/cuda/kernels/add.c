/* The kernels of dtl-ctk's tests of modules, for the driver that is none: it does launches by host code. */
#include "dtl_kernel.h"

DTL_KERNEL(add, (DTL_GLOBAL int*, to), (int, what)) { to[DTL_GLOBAL_ID(0)] += what; }

DTL_KERNEL(place, (DTL_GLOBAL unsigned*, to), (unsigned, what)) {
    const DTL_SIZE row = DTL_GLOBAL_ID(2) * DTL_GLOBAL_SIZE(1) + DTL_GLOBAL_ID(1);
    const DTL_SIZE at = row * DTL_GLOBAL_SIZE(0) + DTL_GLOBAL_ID(0);
    DTL_ATOMIC_ADD(&to[at], what + (unsigned)at);
}

DTL_KERNEL(group_place, (DTL_GLOBAL unsigned*, to), (unsigned, what)) {
    const DTL_SIZE plane = DTL_GROUP_ID(2) * DTL_GROUP_COUNT(1) + DTL_GROUP_ID(1);
    const DTL_SIZE block = plane * DTL_GROUP_COUNT(0) + DTL_GROUP_ID(0);
    const DTL_SIZE row = DTL_LOCAL_ID(2) * DTL_LOCAL_SIZE(1) + DTL_LOCAL_ID(1);
    const DTL_SIZE all = DTL_LOCAL_SIZE(0) * DTL_LOCAL_SIZE(1) * DTL_LOCAL_SIZE(2);
    const DTL_SIZE at = block * all + row * DTL_LOCAL_SIZE(0) + DTL_LOCAL_ID(0);
    DTL_ATOMIC_ADD(&to[at], what + (unsigned)at);
}

DTL_BLOCK_KERNEL(sums, (DTL_GLOBAL const int*, from), (DTL_GLOBAL int*, to)) {
    DTL_SHARED(int, part, 64);
    unsigned width;
    DTL_THREADS { part[DTL_LOCAL_ID(0)] = from[DTL_GLOBAL_ID(0)]; }
    for (width = 32; width > 0; width /= 2) {
        DTL_THREADS {
            if (DTL_LOCAL_ID(0) < width) part[DTL_LOCAL_ID(0)] += part[DTL_LOCAL_ID(0) + width];
        }
    }
    DTL_THREADS {
        if (DTL_LOCAL_ID(0) == 0) to[DTL_GROUP_ID(0)] = part[0];
    }
}
