// The headers of the concepts without concepts: they declare the basic types, and harm nobody. Each can be the first.
#include <dtl/concepts_backend.hpp>
#include <dtl/concepts_coll.hpp>
#include <dtl/concepts_comm.hpp>

#include <dtl/backend/concepts/communicator.hpp>
#include <dtl/backend/concepts/executor.hpp>
#include <dtl/backend/concepts/memory_space.hpp>
#include <dtl/backend/concepts/memory_transfer.hpp>
#include <dtl/concepts.hpp>
#include <dtl/core/config.hpp>
#include <dtl/core/types.hpp>

#include <dtl.hpp>

#include <type_traits>

static_assert(DTL_HAS_CONCEPTS == 0 || __cplusplus > 201703L);
static_assert(std::is_same_v<dtl::size_type, std::size_t> && std::is_same_v<dtl::rank_t, int>);

int main()
{
    return dtl::request_handle().valid() ? 1 : 0;
}
