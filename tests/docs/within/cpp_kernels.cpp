// Function around the block on kernels of docs/how-to/write-cpp.md.
#include <dtl.hpp>

void launched(dtl::backend_ref backend, const dtl::stream &stream, dtl::buffer<float> &memory)
{
#include "block"
}
