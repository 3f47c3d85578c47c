// dtl/concepts.hpp without concepts: it declares nothing, and harms nobody.
#include <dtl/concepts.hpp>
#include <dtl.hpp>

static_assert(DTL_HAS_CONCEPTS == 0 || __cplusplus > 201703L);

int main()
{
    return 0;
}
