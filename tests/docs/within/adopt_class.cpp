// Function around the C++ block of docs/how-to/any-mpi.md that adopts a communicator.
#include <dtl.hpp>
#include <mpi.h>

void adopt()
{
#include "block"
}
