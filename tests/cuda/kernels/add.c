/* The kernel of dtl-ctk's tests of modules, for the driver that is none: it does launches by host code. */
#include "dtl_kernel.h"

DTL_KERNEL(add, (DTL_GLOBAL int*, to), (int, what)) { to[DTL_GLOBAL_ID(0)] += what; }
