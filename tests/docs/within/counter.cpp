// Function around the C++ block of docs/how-to/share-counters-and-tables.md.
#include <cstdint>
#include <dtl.hpp>

void draw(dtl::comm_ref world)
{
    int drawn = 0;
#include "block"
}
