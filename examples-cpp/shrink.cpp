// shrink: a rank is killed in the middle of the work, and the others finish it.
//
// Adds up the integral of 4 / (1 + x^2) from 0 to 1 (that is pi) in steps: in each, every rank does its
// share of the points and an allreduce adds them. In step 5 rank 1 kills itself. The others get
// DTL_ERROR_RANK_FAILURE, make a communicator of those who are left, and go on with new shares.
//
// Build: find_package(dtl) and target_link_libraries(shrink PRIVATE dtl::dtl), or
//        c++ -std=c++17 shrink.cpp $(pkg-config --cflags --libs libdtl) -o shrink
// Run:   dtlrun -n 4 --on-failure=continue ./shrink      (mpirun would end the others as well)
// Prints, from the first rank that is left, what happened and pi. dtlrun itself exits with 137: a rank
// was killed by signal 9.
#include <dtl.hpp>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <exception>
#include <numeric>

#include <unistd.h>

namespace {

constexpr int steps = 20, points = 100000, victim = 1, fatal_step = 5;

class integral {
  public:
    // Does the next step; throws dtl::error if a rank is gone.
    void do_step()
    {
        const double part = share();
        if (comm().rank() == victim && step_ == fatal_step && !shrunk_) {
            kill(getpid(), SIGKILL); // power loss, out of memory, a bug: it says goodbye to nobody
        }
        sum_[std::size_t(step_)] = comm().allreduce(part, DTL_OP_SUM);
        step_++;
    }

    // After a failure: goes on among those who are left. Ranks are renumbered from 0.
    void recover()
    {
        shrunk_ = comm().shrink(); // the communicator before it is closed by the assignment
        // An allreduce that fails on one rank may have succeeded on another, which then failed in the
        // next. So all take up the work where the last of them stands. This is why sums are kept by step.
        step_ = comm().allreduce(step_, DTL_OP_MIN);
    }

    dtl::comm_ref comm() const { return shrunk_ ? shrunk_.ref() : dtl::comm_ref(); }
    int step() const { return step_; }
    double total() const { return std::accumulate(sum_.begin(), sum_.end(), 0.0); }

  private:
    // This rank's share of a step. It depends on how many ranks there are, so a step that was lost is
    // computed anew.
    double share() const
    {
        double sum = 0;
        for (int i = comm().rank(), size = comm().size(); i < points; i += size) {
            const double x = (step_ + (i + 0.5) / points) / steps;
            sum += 4 / (1 + x * x);
        }
        return sum / points / steps;
    }

    dtl::comm shrunk_; // none: the world's
    int step_ = 0;
    std::array<double, steps> sum_{}; // of each step that is done, the same on all ranks
};

int run()
{
    const dtl::library library;
    integral pi;
    const int rank = pi.comm().rank(), before = pi.comm().size();
    while (pi.step() < steps) {
        try {
            pi.do_step();
        } catch (const dtl::error &failure) {
            if (failure.status() != DTL_ERROR_RANK_FAILURE) {
                throw; // anything else is a bug
            }
            std::fprintf(stderr, "rank %d, step %d: %s\n", rank, pi.step(), failure.what());
            pi.recover();
        }
    }
    const int left = pi.comm().size(), expected_left = before > victim ? before - 1 : before;
    const bool good = std::fabs(pi.total() - 3.14159265358979323846) < 1e-10 && left == expected_left;
    if (pi.comm().rank() == 0) {
        std::printf("%d of %d ranks finished: pi is about %.10f: %s\n", left, before, pi.total(),
                    good ? "correct" : "WRONG");
    }
    return good ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "shrink: %s\n", failure.what());
        return 1;
    }
}
