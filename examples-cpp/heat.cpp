// heat: the temperature of a square plate, on a grid of ranks that exchange their borders.
//
// Each rank owns a tile. In each step it sends its outermost rows and columns to its four neighbours and
// gets theirs, then every cell becomes the mean of its neighbours. One side is hot, the others are cold.
// The steps are the same on any number of ranks, so the result is too, bit by bit: rank 0 prints a checksum
// that does not depend on the ranks. (The C example does the same with persistent requests.)
//
// Build: c++ -std=c++17 heat.cpp $(pkg-config --cflags --libs libdtl) -o heat
// Run:   dtlrun -n 4 ./heat [cells on a side, default 96] [steps, default 2000]
#include <dtl.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
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
        switch (side) {
        case 0: return at(-depth, k);
        case 1: return at(rows - 1 + depth, k);
        case 2: return at(k, -depth);
        default: return at(k, cols - 1 + depth);
        }
    }
    int length(int side) const { return side < 2 ? cols : rows; }
};

// A message that leaves by one side arrives at the opposite one: tags are the sender's sides.
void exchange(dtl::comm_ref world, tile &now, const std::array<int32_t, 4> &neighbours)
{
    std::array<std::vector<double>, 4> out, into;
    std::vector<dtl::request> requests;
    for (int side = 0; side < 4; side++) {
        out[side].resize(now.length(side));
        into[side].resize(now.length(side));
        for (int k = 0; k < now.length(side); k++) out[side][k] = now.border(side, k, 0);
        requests.push_back(world.irecv(into[side].data(), into[side].size(), neighbours[side], side ^ 1));
        requests.push_back(world.isend(out[side].data(), out[side].size(), neighbours[side], side));
    }
    for (auto &request : requests) request.wait();
    for (int side = 0; side < 4; side++) {
        for (int k = 0; neighbours[side] != DTL_PROC_NULL && k < now.length(side); k++) {
            now.border(side, k, 1) = into[side][k];
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

int run(int cells, int steps)
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int rank = world.rank(), size = world.size();
    std::array<int32_t, 2> dims{}, place{};
    std::array<int32_t, 4> neighbours{};
    dtl::check(dtl_cart_dims(size, 2, dims.data()));
    dtl::check(dtl_cart_coords(2, dims.data(), rank, place.data()));
    dtl::check(dtl_cart_shift(2, dims.data(), nullptr, rank, 0, 1, &neighbours[0], &neighbours[1]));
    dtl::check(dtl_cart_shift(2, dims.data(), nullptr, rank, 1, 1, &neighbours[2], &neighbours[3]));
    if (cells < dims[0] || cells < dims[1] || steps < 1) {
        std::fprintf(stderr, "heat: use at least %d cells on a side and one step\n", size);
        return 2;
    }
    const int row0 = first_of(cells, place[0], dims[0]), col0 = first_of(cells, place[1], dims[1]);
    tile now(first_of(cells, place[0] + 1, dims[0]) - row0, first_of(cells, place[1] + 1, dims[1]) - col0);
    for (int j = 0; place[0] == 0 && j < now.cols; j++) now.at(-1, j) = 100; // the hot side
    tile next = now;

    double change = 0;
    for (int n = 1; n <= steps; n++) {
        exchange(world, now, neighbours);
        const double mine = step(now, next);
        std::swap(now, next);
        if (n % 500 == 0 || n == steps) {
            change = world.allreduce(mine, DTL_OP_MAX);
            if (rank == 0) std::fprintf(stderr, "step %d of %d: largest change %.3e\n", n, steps, change);
        }
    }

    // Integers add up to the same in any order: the checksum is of the cells' bits.
    uint64_t mine = 0;
    for (int i = 0; i < now.rows; i++) {
        for (int j = 0; j < now.cols; j++) {
            uint64_t bits = 0;
            std::memcpy(&bits, &now.at(i, j), sizeof bits);
            mine += bits * (uint64_t(row0 + i) * cells + col0 + j + 1);
        }
    }
    const uint64_t sum = world.allreduce(mine, DTL_OP_SUM);
    if (rank == 0) {
        std::printf("%d x %d cells on %d x %d ranks, %d steps: checksum %016llx\n", cells, cells, int(dims[0]),
                    int(dims[1]), steps, static_cast<unsigned long long>(sum));
    }
    return change < 1 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(argc > 1 ? std::atoi(argv[1]) : 96, argc > 2 ? std::atoi(argv[2]) : 2000);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "heat: %s\n", failure.what());
        return 1;
    }
}
