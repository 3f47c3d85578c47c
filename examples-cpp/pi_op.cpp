// pi_op: pi by numerical integration, summed with an operation of our own.
//
// A plain sum of many small terms loses digits. Here a partial result is a pair (sum, what was lost in
// rounding); a dtype of 16 bytes carries it and an operation adds two of them, exactly enough.
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

// inout[i] = in[i] + inout[i], as dtl_op_fn_t wants it.
extern "C" {
static void add_pairs(const void *in, void *inout, uint64_t count, dtl_dtype_t, void *)
{
    const auto *left = static_cast<const pair *>(in);
    auto *right = static_cast<pair *>(inout);
    for (uint64_t i = 0; i < count; i++) {
        pair both = left[i];
        both.add(right[i].sum);
        both.lost += right[i].lost;
        right[i] = both;
    }
}
}

namespace {

int run()
{
    const dtl::library library;
    const dtl::comm_ref world;
    const int rank = world.rank(), size = world.size();
    dtl_dtype_t pair_type = 0;
    dtl_reduce_op_t pair_sum = 0;
    dtl::check(dtl_dtype_create(sizeof(pair), "pair", &pair_type));
    // Not DTL_OP_COMMUTES: what is lost is itself rounded, so a + b and b + a differ in the last bits.
    dtl::check(dtl_op_create(add_pairs, nullptr, 0, "pair_sum", &pair_sum));

    // The integral of 4 / (1 + x^2) from 0 to 1, by the midpoint rule.
    const double pi = 3.14159265358979323846, step = 1.0 / steps;
    pair mine, total;
    double plain = 0;
    for (int32_t i = rank; i < steps; i += size) {
        const double x = (i + 0.5) * step, term = 4 / (1 + x * x);
        mine.add(term);
        plain += term;
    }
    dtl::check(dtl_comm_allreduce(world.get(), &mine, &total, 1, pair_type, pair_sum));
    const double plain_total = world.allreduce(plain, DTL_OP_SUM);

    const double ours = (total.sum + total.lost) * step;
    const bool good = std::fabs(ours - pi) < 1e-14;
    if (rank == 0) {
        std::printf("%d ranks: pi is %.16f (error %.1e; with a plain sum %.1e): %s\n", size, ours, ours - pi,
                    plain_total * step - pi, good ? "correct" : "WRONG");
    }
    dtl::check(dtl_op_destroy(pair_sum));
    dtl::check(dtl_dtype_destroy(pair_type));
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
