// Function around the block on types of docs/how-to/write-cpp.md.
#include <dtl.hpp>
#include <vector>

void typed(dtl::comm_ref world, std::vector<int> &data, const dtl::window<int> &window)
{
#include "block"
}
