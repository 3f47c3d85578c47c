// work_queue: ranks draw tasks from a counter that they share, until none is left.
//
// The tasks are rows of the Mandelbrot set, and some take a hundred times as long as others: equal shares would leave most
// ranks waiting for one. Here nobody hands tasks out. A counter in rank 0's memory says which row is next, and who is
// free takes the next few by one atomic addition (fetch_op), without a call of rank 0, which works as well.
//
// Build: find_package(dtl) and target_link_libraries(work_queue PRIVATE dtl::dtl), or
//        c++ -std=c++17 work_queue.cpp $(pkg-config --cflags --libs libdtl) -o work_queue
// Run:   dtlrun -n 4 ./work_queue [rows, default 256] [rows per draw, default 4]
// Prints, from rank 0, what each rank did; then it computes all rows alone, and compares.
#include <dtl.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <vector>

namespace {

constexpr int most_steps = 500;

// One task: the steps of all points of a row until they leave the circle.
int64_t do_row(int64_t row, int64_t rows)
{
    const double y = -1.25 + 2.5 * double(row) / double(rows);
    int64_t steps = 0;
    for (int64_t column = 0; column < rows; column++) {
        const double x = -2 + 2.5 * double(column) / double(rows);
        double re = 0, im = 0;
        for (int step = 0; step < most_steps && re * re + im * im < 4; step++, steps++) {
            const double next = re * re - im * im + x;
            im = 2 * re * im + y;
            re = next;
        }
    }
    return steps;
}

// Tasks 0 … tasks-1, which all ranks draw from. Making one and its end are collective.
class queue {
  public:
    // Rank 0 has the counter, the others have no memory in the window. It is allocated by the library: zeroed, so the
    // counter begins at task 0, and on one node within everybody's reach.
    queue(dtl::comm_ref comm, int64_t tasks, int64_t per_draw)
        : counter_(comm, comm.rank() == 0 ? 1 : 0), tasks_(tasks), per_draw_(per_draw)
    {
    }

    // Calls task(number) for tasks that this rank draws, until none is left; the number of draws.
    template <class F> int64_t run(F task) const
    {
        // An epoch for all the draws: it lets this rank reach the counter. The lock is a shared one, which does not
        // keep the others out; the additions are atomic without it. It ends with the scope, also by an exception.
        const auto lock = counter_->lock(0);
        int64_t draws = 0;
        // Reads the counter and adds to it in one step, so no two ranks get the same tasks.
        for (int64_t first; (first = counter_->fetch_op(per_draw_, 0, 0, DTL_OP_SUM)) < tasks_; draws++) {
            for (int64_t number = first; number < std::min(first + per_draw_, tasks_); number++) {
                task(number);
            }
        }
        return draws;
    }

  private:
    dtl::window<int64_t> counter_;
    int64_t tasks_, per_draw_;
};

int run(int64_t rows, int64_t per_draw)
{
    const dtl::library library;
    const dtl::comm_ref world;
    const std::vector<int64_t> none(size_t(rows), 0);
    auto times = none, found = none; // by row: how often it was done, its result
    int64_t draws = 0;
    {
        const queue all(world, rows, per_draw);
        draws = all.run([&](int64_t row) {
            found[size_t(row)] = do_row(row, rows);
            times[size_t(row)]++;
        });
    } // the window ends when all ranks are here: nobody needs the counter any more

    const auto steps = world.allgather(std::accumulate(found.begin(), found.end(), int64_t{0}));
    const auto done = world.allgather(std::accumulate(times.begin(), times.end(), int64_t{0}));
    const auto drawn = world.allgather(draws);
    world.allreduce(times, DTL_OP_SUM);
    world.allreduce(found, DTL_OP_SUM);
    if (world.rank() != 0) {
        return 0;
    }
    const int64_t total = std::accumulate(steps.begin(), steps.end(), int64_t{0});
    for (size_t rank = 0; rank < steps.size(); rank++) {
        std::printf("rank %zu: %lld rows in %lld draws, %.0f %% of the work\n", rank, static_cast<long long>(done[rank]),
                    static_cast<long long>(drawn[rank]), 100.0 * double(steps[rank]) / double(total));
    }
    bool good = true; // every row exactly once, and each with the result of doing it alone
    for (int64_t row = 0; row < rows; row++) {
        good = good && times[size_t(row)] == 1 && found[size_t(row)] == do_row(row, rows);
    }
    std::printf("%d ranks, %lld rows, each done once: %s\n", world.size(), static_cast<long long>(rows),
                good ? "correct" : "WRONG");
    return good ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    const long long rows = argc > 1 ? std::atoll(argv[1]) : 256, per_draw = argc > 2 ? std::atoll(argv[2]) : 4;
    if (argc > 3 || rows < 1 || rows > 100000 || per_draw < 1) {
        std::fprintf(stderr, "usage: work_queue [rows, 1 to 100000] [rows per draw, at least 1]\n");
        return 2;
    }
    try {
        return run(rows, per_draw);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "work_queue: %s\n", failure.what());
        return 1;
    }
}
