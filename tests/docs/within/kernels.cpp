// Function with the objects that the block of docs/how-to/from-pydotcompute.md uses.
#include <dtl.h>

void kernels(dtl_backend_t b, int32_t device, dtl_source_t source, const char *name,
             const char *signature, dtl_stream_t stream, dtl_launch_t launch, const void *const *args,
             const uint64_t *sizes, uint64_t n, dtl_executor_t executor, uint64_t begin, uint64_t end,
             uint64_t grain, dtl_range_fn_t func, void *user)
{
    dtl_module_t m;
    dtl_kernel_t k;
#include "block"
}
