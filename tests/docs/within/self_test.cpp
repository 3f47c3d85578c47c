// Function around the block of docs/how-to/register-a-backend.md that tests a backend.
#include <cstdio>
#include <dtl.h>

void self_test(dtl_backend_t card)
{
#include "block"
}
