// Function that runs the block of docs/how-to/from-pydotcompute.md on the launch history.
#include <dtl.h>

void last_launches()
{
#include "block"
}
