// heat_gpu: the temperature of a square plate on devices, each rank with a slab of rows in its device's memory.
//
// The kernel is one source for every backend (dtl_kernel.h). In each step a rank computes its outermost rows first and
// records an event; they go to the neighbours as soon as that is reached (isend_on), while the device computes the other
// rows. The pointers that are sent and received are the device's own: where the host cannot reach them the library
// stages them. At the end rank 0 gets all rows (gatherv, from device memory) and compares them with a plain loop of its
// own; devices round differently, so in the last digits the two may differ.
//
// Build: c++ -std=c++17 heat_gpu.cpp $(pkg-config --cflags --libs libdtl) -o heat_gpu
// Run:   dtlrun -n 4 ./heat_gpu [cells on a side, default 96] [steps, default 200]
//        with DTL_BACKEND=host, opencl or cuda; without it the best one that is there
#include <dtl.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {
const char source_text[] = R"(
#include "dtl_kernel.h"
DTL_KERNEL(heat, (DTL_GLOBAL const float*, now), (DTL_GLOBAL float*, next), (unsigned, width), (unsigned, first),
           (unsigned, stride), (unsigned, rows))
{
    const DTL_SIZE x = DTL_GLOBAL_ID(0) + 1, turn = DTL_GLOBAL_ID(1), at = (first + turn * stride) * width + x;
    if (x < width - 1 && turn < rows)
        next[at] = 0.25f * ((now[at - width] + now[at + width]) + (now[at - 1] + now[at + 1]));
}
)";

unsigned first_of(unsigned count, int part, int parts) { return unsigned(uint64_t{count} * part / parts); }

// The kernel of the source, for the device that this thread uses.
dtl::kernel compiled(dtl::backend_ref backend)
{
    dtl::kernel_source source;
    source.text = source_text, source.name = "heat";
    return dtl::kernel_module(source, backend)
        .kernel_of<const float *, float *, unsigned, unsigned, unsigned, unsigned>("heat");
}

class slab {
  public:
    slab(dtl::backend_ref backend, unsigned side, int rank, int size)
        : width_(side + 2), rows_(first_of(side, rank + 1, size) - first_of(side, rank, size)),
          above_(rank > 0 ? rank - 1 : DTL_PROC_NULL), below_(rank + 1 < size ? rank + 1 : DTL_PROC_NULL),
          now_(cells(), DTL_MEMORY_DEVICE, backend), next_(cells(), DTL_MEMORY_DEVICE, backend), stream_(backend),
          borders_(backend, dtl::event_flags::no_timing), kernel_(compiled(backend))
    {
        std::vector<float> begin(cells());
        // The hot side is the frame above the first row.
        if (rank == 0) std::fill(begin.begin() + 1, begin.begin() + 1 + side, 100.0f);
        now_.copy_from(begin.data());
        next_.copy_from(begin.data());
    }

    void step(dtl::comm_ref comm)
    {
        const unsigned pair = rows_ > 1 ? 2 : 1, inner = rows_ > 2 ? rows_ - 2 : 0;
        float *const next = next_.data();
        launch(1, std::max(rows_ - 1, 1u), pair);
        stream_->record(borders_);
        launch(2, 1, inner);
        std::array<dtl::request, 2> receives{comm.irecv(next, width_, above_, 2),
                                             comm.irecv(row(next, rows_ + 1), width_, below_, 1)};
        std::array<dtl::request, 2> sends{comm.isend_on(borders_, row(next, 1), width_, above_, 1),
                                          comm.isend_on(borders_, row(next, rows_), width_, below_, 2)};
        // Wait for the sends first: they fail if this device has failed. If the neighbours' devices have failed too,
        // nothing arrives.
        for (dtl::request &request : sends) request.wait();
        for (dtl::request &request : receives) request.wait();
        stream_->synchronize();
        now_.swap(next_);
    }

    const float *first_row() const { return now_.data() + width_; }
    uint64_t own_cells() const { return uint64_t{rows_} * width_; }

  private:
    std::size_t cells() const { return (std::size_t{rows_} + 2) * width_; }
    float *row(float *cells, unsigned index) const { return cells + std::size_t{index} * width_; }

    // Rows first, first + stride, …: `rows` of them.
    void launch(unsigned first, unsigned stride, unsigned rows) const
    {
        if (rows == 0) return;
        const dtl::grid blocks{(width_ + 15) / 16, (rows + 3) / 4};
        const float *const now = now_.data();
        float *const next = const_cast<float *>(next_.data());
        stream_->launch(kernel_, blocks, dtl::block{16, 4}, now, next, width_, first, stride, rows);
    }

    unsigned width_, rows_; // cells of a row, its two fixed ends included; rows of this rank, without the frame's two
    int above_, below_;     // ranks, or DTL_PROC_NULL
    dtl::buffer<float> now_, next_;
    dtl::stream stream_;
    dtl::event borders_;
    dtl::kernel kernel_;
};

// The largest difference to the same by one loop.
double compare(const std::vector<float> &rows, unsigned side, int steps)
{
    const std::size_t width = side + 2;
    std::vector<float> now(width * width), next;
    std::fill(now.begin() + 1, now.begin() + 1 + side, 100.0f);
    next = now;
    for (int n = 0; n < steps; n++, std::swap(now, next)) {
        for (std::size_t at = width; at < width * (side + 1); at++) {
            if (at % width == 0 || at % width == width - 1) continue;
            next[at] = 0.25f * ((now[at - width] + now[at + width]) + (now[at - 1] + now[at + 1]));
        }
    }
    double worst = 0;
    for (std::size_t at = 0; at < rows.size(); at++) {
        worst = std::max(worst, std::fabs(double{rows[at]} - double{now[width + at]}));
    }
    return worst;
}

// Says why this backend cannot be used, if it cannot.
bool is_there(dtl::backend_ref backend)
{
    std::array<char, 512> why{};
    int32_t yes = 0, compiles = 0;
    dtl::check(dtl_backend_is_available(backend.get(), &yes, why.data(), why.size(), nullptr));
    if (yes != 0) dtl::check(dtl_backend_supports(backend.get(), "modules", &compiles));
    if (compiles == 0) {
        std::printf("skipped: backend %s: %s\n", dtl_backend_name(backend.get()), yes != 0 ? "compiles no kernels" : why.data());
    }
    return compiles != 0;
}

bool run(unsigned side, int steps)
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int rank = world.rank(), size = world.size();
    if (side < unsigned(size) || steps < 1) throw std::invalid_argument("use a cell on a side for each rank, and a step");
    const dtl::backend_ref backend = dtl::backend_ref(nullptr);
    if (!is_there(backend)) return true;
    slab mine(backend, side, rank, size);
    for (int n = 0; n < steps; n++) mine.step(world);

    std::vector<uint64_t> counts;
    for (int r = 0; r < size; r++) {
        counts.push_back(uint64_t{first_of(side, r + 1, size) - first_of(side, r, size)} * (side + 2));
    }
    std::vector<float> all(rank == 0 ? std::size_t{side} * (side + 2) : 0);
    world.gatherv(mine.first_row(), mine.own_cells(), all.data(), counts.data(), nullptr, 0);
    int32_t good = 1;
    if (rank == 0) {
        const double worst = compare(all, side, steps);
        good = worst <= 1e-3; // of 100 degrees: the last digits of a float
        std::printf("%u x %u cells on %d rank(s) of backend %s, %d steps: differs by %.1e from one loop: %s\n", side, side,
                    size, dtl_backend_name(backend.get()), steps, worst, good != 0 ? "correct" : "WRONG");
    }
    world.bcast(&good, 1, 0);
    return good != 0;
}
} // namespace

int main(int argc, char **argv)
{
    try {
        const unsigned side = argc > 1 ? unsigned(std::atoi(argv[1])) : 96;
        return run(side, argc > 2 ? std::atoi(argv[2]) : 200) ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "heat_gpu: %s\n", error.what());
        return 1;
    }
}
