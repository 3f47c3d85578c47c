/* Grids of ranks against the MPI's own: dimensions for 1 to 64 ranks (Open MPI's values), places and
 * shifts in a grid of this job's ranks. */
#include "mpi_check.h"

/* MPICH's choices are other ones in a few cases; those of Open MPI are the most even here. */
static void compare_dims(void) {
#ifdef OPEN_MPI
    int size, ndims, i;
    for (size = 1; size <= 64; size++) {
        for (ndims = 1; ndims <= 3; ndims++) {
            int theirs[3] = {0, 0, 0};
            int32_t ours[3] = {0, 0, 0};
            CHECK(MPI_Dims_create(size, ndims, theirs) == MPI_SUCCESS);
            CHECK_OK(dtl_cart_dims(size, ours, ndims));
            for (i = 0; i < ndims; i++) {
                if (theirs[i] != ours[i]) fprintf(stderr, "size %d, ndims %d, [%d]: %d, MPI %d\n", size, ndims, i, ours[i], theirs[i]);
                CHECK(theirs[i] == ours[i]);
            }
        }
    }
#endif
}

static int translated(int rank) { return rank == MPI_PROC_NULL ? DTL_PROC_NULL : rank; }

static void compare_grid(int d0, int d1, int d2, int periodic) {
    const int dims[3] = {d0, d1, d2}, periods[3] = {periodic & 1, periodic >> 1 & 1, periodic >> 2 & 1};
    MPI_Comm grid;
    int me, i, by, place[3], rank;
    int32_t ours[3], from, to;
    CHECK(MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &grid) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(grid, &me) == MPI_SUCCESS);
    CHECK(MPI_Cart_coords(grid, me, 3, place) == MPI_SUCCESS);
    CHECK_OK(dtl_cart_coords(dims, 3, me, ours));
    for (i = 0; i < 3; i++) CHECK(place[i] == ours[i]);
    for (i = 0; i < 3; i++) {
        if (periods[i]) place[i] += 5 * dims[i] - 7;
    }
    CHECK(MPI_Cart_rank(grid, place, &rank) == MPI_SUCCESS);
    CHECK_OK(dtl_cart_rank(dims, periods, place, 3, &from));
    CHECK(rank == from);
    for (i = 0; i < 3; i++) {
        for (by = -3; by <= 3; by++) {
            int source, dest;
            CHECK(MPI_Cart_shift(grid, i, by, &source, &dest) == MPI_SUCCESS);
            CHECK_OK(dtl_cart_shift(dims, periods, 3, me, i, by, &from, &to));
            CHECK(translated(source) == from && translated(dest) == to);
        }
    }
    CHECK(MPI_Comm_free(&grid) == MPI_SUCCESS);
}

int main(int argc, char **argv) {
    int size, periodic;
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS);
    CHECK(size == 6);
    compare_dims();
    for (periodic = 0; periodic < 8; periodic++) {
        compare_grid(3, 2, 1, periodic);
        compare_grid(1, 2, 3, periodic);
        compare_grid(6, 1, 1, periodic);
    }
    CHECK_OK(dtl_finalize());
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return 0;
}
