// Headers for the MPI program of docs/how-to/from-mpi.md.
#include <cstdio>
#include <mpi.h>
#include "block"
