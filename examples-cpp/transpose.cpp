// transpose: a matrix whose rows are spread over the ranks, transposed by one alltoallv.
//
// Each rank owns some rows of A (neither side divisible by the ranks) and gets some rows of its transpose.
// The block that rank s has for rank r is packed column by column, so it arrives in place.
//
// Build: c++ -std=c++17 transpose.cpp $(pkg-config --cflags --libs libdtl) -o transpose
// Run:   dtlrun -n 4 ./transpose
// Prints, from rank 0, how much was moved and how fast; every element is checked.
#include <dtl.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr int all_rows = 1031, all_cols = 773, rounds = 10;

double value(int row, int col) { return row * 10000.0 + col; }

// The lines that a rank owns, when they are dealt out evenly.
struct share {
    int begin, end;
    share(int count, int rank, int size)
        : begin(int(int64_t{count} * rank / size)), end(int(int64_t{count} * (rank + 1) / size))
    {
    }
    int count() const { return end - begin; }
};

int run()
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int rank = world.rank(), size = world.size();
    const share rows(all_rows, rank, size), cols(all_cols, rank, size);
    std::vector<double> a(size_t(rows.count()) * all_cols), packed(a.size());
    std::vector<double> t(size_t(cols.count()) * all_rows), arrived(t.size());
    std::vector<uint64_t> scounts(size), rcounts(size);

    for (int i = 0; i < rows.count(); i++) {
        for (int j = 0; j < all_cols; j++) a[size_t(i) * all_cols + j] = value(rows.begin + i, j);
    }
    const double start = dtl::wtime();
    for (int round = 0; round < rounds; round++) {
        auto next = packed.begin();
        for (int r = 0; r < size; r++) {
            const share theirs(all_cols, r, size);
            for (int j = theirs.begin; j < theirs.end; j++) {
                for (int i = 0; i < rows.count(); i++) *next++ = a[size_t(i) * all_cols + j];
            }
            scounts[r] = uint64_t(theirs.count()) * rows.count();
            rcounts[r] = uint64_t(cols.count()) * share(all_rows, r, size).count();
        }
        // No places: the blocks lie one after the other.
        world.alltoallv(packed.data(), scounts.data(), nullptr, arrived.data(), rcounts.data(), nullptr);
        auto block = arrived.begin();
        for (int s = 0; s < size; s++) {
            const share theirs(all_rows, s, size);
            for (int j = 0; j < cols.count(); j++) {
                for (int i = theirs.begin; i < theirs.end; i++) t[size_t(j) * all_rows + i] = *block++;
            }
        }
    }
    const double seconds = dtl::wtime() - start;

    int32_t good = 1;
    for (int j = 0; j < cols.count(); j++) {
        for (int i = 0; i < all_rows; i++) {
            good = good && t[size_t(j) * all_rows + i] == value(i, cols.begin + j);
        }
    }
    const bool all_good = world.allreduce(good, DTL_OP_MIN) != 0;
    if (rank == 0) {
        const double bytes = double(all_rows) * all_cols * sizeof(double) * rounds;
        std::printf("%d x %d on %d ranks: %.2f ms a transpose, %.2f GB/s, %s\n", all_rows, all_cols, size,
                    1e3 * seconds / rounds, 1e-9 * bytes / seconds, all_good ? "correct" : "WRONG");
    }
    return all_good ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "transpose: %s\n", failure.what());
        return 1;
    }
}
