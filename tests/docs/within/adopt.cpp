// Program around the C block of docs/how-to/any-mpi.md that adopts a communicator.
#include <dtl.h>
#include <mpi.h>

int main(int argc, char **argv)
{
    int level;
#include "block"
}
