/* adopt: an MPI program whose halo exchange has been ported to dtl; the rest of it still calls MPI.
 *
 * Build: mpicc adopt.c $(pkg-config --cflags --libs libdtl) -o adopt       (any MPI; libdtl is linked to none)
 * Run:   mpirun -n 4 ./adopt
 * Heat spreads round a ring of cells. Rank 0 prints how much there is at the end (1 at the beginning, and none
 * gets lost) and how much has come to the other ranks. Compiles as C and as C++.
 */
#include <dtl.h>
#include <mpi.h>

#include <math.h>
#include <string.h>

/* The integer that names a communicator in Fortran; the standard's binary interface of MPI 5 calls it so. */
#if MPI_VERSION >= 5
#define FORTRAN_HANDLE MPI_Comm_toint
#else
#define FORTRAN_HANDLE MPI_Comm_c2f
#endif

enum { CELLS = 32, STEPS = 500 };

/* Was: two MPI_Sendrecv. cells[0] and cells[CELLS + 1] are the neighbours'. */
static void exchange(dtl_comm_t comm, double *cells, int left, int right)
{
    DTL_CHECK(dtl_comm_sendrecv(comm, &cells[CELLS], 1, right, 0, &cells[0], 1, left, 0, DTL_DTYPE_FLOAT64, NULL));
    DTL_CHECK(dtl_comm_sendrecv(comm, &cells[1], 1, left, 1, &cells[CELLS + 1], 1, right, 1, DTL_DTYPE_FLOAT64, NULL));
}

static double step(double *cells)
{
    double next[CELLS + 2], sum = 0;
    for (int i = 1; i <= CELLS; i++) {
        next[i] = cells[i] + 0.25 * (cells[i - 1] - 2 * cells[i] + cells[i + 1]);
        sum += next[i];
    }
    memcpy(&cells[1], &next[1], CELLS * sizeof *cells);
    return sum;
}

int main(int argc, char **argv)
{
    int level = MPI_THREAD_SINGLE, rank = 0, size = 0;
    double cells[CELLS + 2] = {0}, mine = 0, elsewhere = 0, all = 0, far = 0;
    dtl_comm_t comm;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level); /* less will do: see dtl_comm_from_mpi_fint */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        cells[1] = 1;
    }

    /* The same ranks in the same order. Messages of dtl and of MPI never meet. */
    DTL_CHECK(dtl_comm_from_mpi_fint((int32_t)FORTRAN_HANDLE(MPI_COMM_WORLD), &comm));
    for (int i = 0; i < STEPS; i++) {
        exchange(comm, cells, (rank + size - 1) % size, (rank + 1) % size);
        mine = step(cells);
    }
    DTL_CHECK(dtl_comm_destroy(comm)); /* dtl ends before MPI_Finalize; MPI stays the program's */
    DTL_CHECK(dtl_finalize());

    elsewhere = rank == 0 ? 0 : mine;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&elsewhere, &far, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("adopt: %d ranks, %.12f of heat, %.3f on other ranks\n", size, all, far);
    }
    MPI_Finalize();
    return fabs(all - 1) < 1e-12 && (size == 1 || far > 0.4) ? 0 : 1;
}
