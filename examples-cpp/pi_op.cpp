// pi_op: pi by numerical integration, summed with an operation of our own.
//
// A plain sum of many small terms loses digits. Here a partial result is a pair (sum, what was lost in
// rounding). The struct is an element type of its own, and a lambda adds two of them, exactly enough.
//
// Build: c++ -std=c++17 pi_op.cpp $(pkg-config --cflags --libs libdtl) -o pi_op
// Run:   dtlrun -n 4 ./pi_op
// Prints, from rank 0, pi and the error with the plain sum and with our own.
#include <dtl.hpp>

#include <cmath>
#include <cstdio>
#include <exception>

namespace {

constexpr int32_t steps = 20'000'000;

struct pair {
    double sum = 0, lost = 0;

    // Neumaier's variant of Kahan's summation: keeps what rounding loses.
    void add(double b)
    {
        const double both = sum + b;
        lost += std::fabs(sum) >= std::fabs(b) ? (sum - both) + b : (b - both) + sum;
        sum = both;
    }
};

} // namespace

// A pair is an element of messages and reductions.
template <> inline constexpr bool dtl::is_element<pair> = true;

namespace {

int run()
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int rank = world.rank(), size = world.size();
    // Without op_flags::commutes: the loss is itself rounded, so a + b and b + a differ in the last bits.
    const auto add_pairs = [](const pair &lower, const pair &upper) {
        pair both = lower;
        both.add(upper.sum);
        both.lost += upper.lost;
        return both;
    };
    const dtl::user_op<pair> pair_sum(add_pairs, "pair_sum");

    // The integral of 4 / (1 + x^2) from 0 to 1, by the midpoint rule.
    const double pi = 3.14159265358979323846, step = 1.0 / steps;
    pair mine, total;
    double plain = 0;
    for (int32_t i = rank; i < steps; i += size) {
        const double x = (i + 0.5) * step, term = 4 / (1 + x * x);
        mine.add(term);
        plain += term;
    }
    world.allreduce(&mine, &total, 1, pair_sum);
    const double plain_total = world.allreduce(plain, dtl::ops::sum);

    const double ours = (total.sum + total.lost) * step;
    const bool good = std::fabs(ours - pi) < 1e-14;
    if (rank == 0) {
        std::printf("%d ranks: pi is %.16f (error %.1e; with a plain sum %.1e): %s\n", size, ours, ours - pi,
                    plain_total * step - pi, good ? "correct" : "WRONG");
    }
    return good ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "pi_op: %s\n", failure.what());
        return 1;
    }
}
