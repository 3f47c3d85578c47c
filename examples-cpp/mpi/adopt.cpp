// adopt: an MPI program whose halo exchange has been ported to dtl; the rest of it still calls MPI.
//
// Build: mpicxx adopt.cpp $(pkg-config --cflags --libs libdtl) -o adopt    (any MPI; libdtl is linked to none)
// Run:   mpirun -n 4 ./adopt
// Heat spreads round a ring of cells. Rank 0 prints how much there is at the end (1 at the beginning, and none
// gets lost) and how much has come to the other ranks.
#include <dtl.hpp>
#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

// The integer that names a communicator in Fortran; the standard's binary interface of MPI 5 calls it so.
#if MPI_VERSION >= 5
static int fortran_handle(MPI_Comm comm) { return MPI_Comm_toint(comm); }
#else
static int fortran_handle(MPI_Comm comm) { return MPI_Comm_c2f(comm); }
#endif

static constexpr int cells = 32, steps = 500;

// Was: two MPI_Sendrecv. The first and the last cell are the neighbours'.
static void exchange(dtl::comm_ref comm, std::vector<double> &field, int left, int right)
{
    dtl::request first = comm.irecv(&field[0], 1, left, 0), last = comm.irecv(&field[cells + 1], 1, right, 1);
    comm.send(&field[cells], 1, right, 0);
    comm.send(&field[1], 1, left, 1);
    first.wait();
    last.wait();
}

static void step(std::vector<double> &field)
{
    const std::vector<double> old = field;
    for (int i = 1; i <= cells; i++) {
        field[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1]);
    }
}

// What this rank has in the end.
static double spread(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    std::vector<double> field(cells + 2);
    field[1] = rank == 0 ? 1 : 0;
    for (int i = 0; i < steps; i++) {
        exchange(comm, field, (rank + size - 1) % size, (rank + 1) % size);
        step(field);
    }
    return std::accumulate(field.begin() + 1, field.end() - 1, 0.0);
}

int main(int argc, char **argv)
{
    int level = MPI_THREAD_SINGLE, rank = 0, size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level); // less will do: see dtl_comm_from_mpi_fint
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double mine = 0, all = 0, far = 0;
    try {
        // The same ranks in the same order. Messages of dtl and of MPI never meet. It ends before MPI_Finalize.
        const dtl::comm comm = dtl::comm::from_mpi_fint(fortran_handle(MPI_COMM_WORLD));
        mine = spread(comm);
    } catch (const dtl::error &error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const double elsewhere = rank == 0 ? 0 : mine;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&elsewhere, &far, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        std::printf("adopt: %d ranks, %.12f of heat, %.3f on other ranks\n", size, all, far);
    }
    MPI_Finalize();
    return std::abs(all - 1) < 1e-12 && (size == 1 || far > 0.4) ? 0 : 1;
}
