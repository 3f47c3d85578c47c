// heat: the temperature of a square plate, on a grid of ranks that exchange their borders.
//
// Each rank owns a tile. In each step it sends its outermost rows and columns to its four neighbours and
// gets theirs (neighbor_alltoallv), then every cell becomes the mean of its neighbours, until no cell
// changes any more (an allreduce tells all). One side is hot, the others are cold. No step depends on the
// number of ranks, so neither does any bit of the result: rank 0 solves the same alone, on DTL_COMM_SELF,
// and compares.
//
// Build: c++ -std=c++17 heat.cpp $(pkg-config --cflags --libs libdtl) -o heat
// Run:   dtlrun -n 4 ./heat [cells on a side, default 64]
#include <dtl.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

namespace {
int first_of(int count, int part, int parts) { return int(int64_t{count} * part / parts); }

// Cells with a frame of neighbours' cells round them.
struct tile {
    int rows, cols;
    std::vector<double> cells;

    tile(int rows_, int cols_) : rows(rows_), cols(cols_), cells(size_t(rows_ + 2) * (cols_ + 2)) {}
    double &at(int i, int j) { return cells[size_t(i + 1) * (cols + 2) + j + 1]; }

    // Of a side (up, down, left, right) cell k: the outermost own one (depth 0) or the frame's (1).
    double &border(int side, int k, int depth)
    {
        if (side < 2) return at(side == 0 ? -depth : rows - 1 + depth, k);
        return at(k, side == 2 ? -depth : cols - 1 + depth);
    }
    int length(int side) const { return side < 2 ? cols : rows; }
};

// Sends the borders to the neighbours and puts theirs into the frame.
void exchange(dtl::comm_ref comm, tile &now, const std::vector<int32_t> &neighbours)
{
    std::vector<double> out;
    std::array<uint64_t, 4> counts{};
    for (int side = 0; side < 4; side++) {
        for (int k = 0; k < now.length(side); k++) out.push_back(now.border(side, k, 0));
        counts[side] = uint64_t(now.length(side));
    }
    // No displacements: the blocks lie one after the other, those of DTL_PROC_NULL too.
    std::vector<double> into(out.size());
    comm.neighbor_alltoallv(neighbours, out.data(), counts.data(), nullptr, neighbours, into.data(),
                            counts.data(), nullptr);
    const double *next = into.data();
    for (int side = 0; side < 4; side++) {
        for (int k = 0; k < now.length(side); k++, next++) {
            if (neighbours[side] != DTL_PROC_NULL) now.border(side, k, 1) = *next;
        }
    }
}

double step(tile &now, tile &next)
{
    double change = 0;
    for (int i = 0; i < now.rows; i++) {
        for (int j = 0; j < now.cols; j++) {
            next.at(i, j) = 0.25 * (now.at(i - 1, j) + now.at(i + 1, j) + now.at(i, j - 1) + now.at(i, j + 1));
            change = std::max(change, std::fabs(next.at(i, j) - now.at(i, j)));
        }
    }
    return change;
}

struct result {
    std::array<int32_t, 2> dims{};
    int steps = 0;
    double change = 1, mean = 0; // the last step's largest change; of all cells
    uint64_t checksum = 0;       // of the cells' bits: integers add up to the same in any order
};

result solve(dtl::comm_ref comm, int cells)
{
    constexpr int check_every = 1600;
    constexpr double limit = 1e-7; // of a cell's change in one step
    result r;
    const int rank = comm.rank();
    const dtl::cart_grid grid = dtl::cart_grid::of(comm.size(), {0, 0});
    r.dims = {grid.dims()[0], grid.dims()[1]};
    const std::vector<int32_t> place = grid.coords(rank);
    const auto rows = grid.shift(rank, 0), columns = grid.shift(rank, 1);
    const std::vector<int32_t> neighbours{rows.source.get(), rows.dest.get(), columns.source.get(), columns.dest.get()};
    const int row0 = first_of(cells, place[0], r.dims[0]), col0 = first_of(cells, place[1], r.dims[1]);
    tile now(first_of(cells, place[0] + 1, r.dims[0]) - row0, first_of(cells, place[1] + 1, r.dims[1]) - col0);
    for (int j = 0; place[0] == 0 && j < now.cols; j++) now.at(-1, j) = 100; // the hot side
    tile next = now;

    while (r.change > limit) {
        exchange(comm, now, neighbours);
        const double mine = step(now, next);
        std::swap(now, next);
        if (++r.steps % check_every == 0) {
            r.change = comm.allreduce(mine, DTL_OP_MAX);
            if (rank == 0) std::fprintf(stderr, "%d rank(s), step %d: change %.1e\n", comm.size(), r.steps, r.change);
        }
    }
    for (int i = 0; i < now.rows; i++) {
        for (int j = 0; j < now.cols; j++) {
            uint64_t bits = 0;
            std::memcpy(&bits, &now.at(i, j), sizeof bits);
            r.checksum += bits * (uint64_t(row0 + i) * cells + col0 + j + 1);
            r.mean += now.at(i, j) / cells / cells;
        }
    }
    r.checksum = comm.allreduce(r.checksum, DTL_OP_SUM);
    r.mean = comm.allreduce(r.mean, DTL_OP_SUM);
    return r;
}
int run(int cells)
{
    const dtl::library library;
    const dtl::comm_ref world;
    if (cells < world.size()) throw std::invalid_argument("use at least as many cells on a side as ranks");
    const result all = solve(world, cells);
    int32_t good = 1;
    if (world.rank() == 0) {
        const result one = solve(DTL_COMM_SELF, cells);
        // Four plates, each with another hot side, add up to 100 everywhere: the mean is a quarter.
        good = all.checksum == one.checksum && all.steps == one.steps && all.change == one.change &&
               std::fabs(all.mean - 25) < 0.01;
        std::printf("%d x %d cells on %d x %d ranks: %d steps, change %.3e, mean %.5f, checksum %016llx: %s\n", cells,
                    cells, int(all.dims[0]), int(all.dims[1]), all.steps, all.change, all.mean,
                    static_cast<unsigned long long>(all.checksum), good ? "as on one rank, correct" : "WRONG");
    }
    world.bcast(&good, 1, 0);
    return good ? 0 : 1;
}
} // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc > 1 ? std::atoi(argv[1]) : 64);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "heat: %s\n", failure.what());
        return 1;
    }
}
