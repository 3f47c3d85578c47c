// solver: the iteration and its dot products (see solver.hpp).
#include "solver.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace {

using vector = std::vector<double>;

double dot_range(const vector &a, const vector &b, std::size_t begin, std::size_t end)
{
    double sum = 0;
    for (std::size_t i = begin; i < end; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

class dots {
  public:
    dots(const matrix &a, int32_t block_rows) : a_(a), block_rows_(static_cast<std::size_t>(block_rows))
    {
        if (block_rows > 0) {
            blocks_ = static_cast<std::size_t>((a.global_rows() - 1) / block_rows + 1);
            first_block_ = static_cast<std::size_t>(a.first_row(a.rank()) / block_rows);
            mine_.resize(2 * blocks_);
            all_.resize(2 * blocks_);
        }
    }

    // Two dot products in one allreduce: a·b and c·b. Reproducible: a block's sum comes from one rank
    // and all others add 0 to it, which is exact, so the order in which ranks are added up does not
    // matter; the blocks are then added in their own order.
    std::array<double, 2> pair(const vector &a, const vector &b, const vector &c)
    {
        std::array<double, 2> out{};
        if (block_rows_ == 0) {
            const double mine[2] = {dot_range(a, b, 0, a_.rows()), dot_range(c, b, 0, a_.rows())};
            dtl::check(dtl_comm_allreduce(a_.comm(), mine, out.data(), 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
            return out;
        }
        std::fill(mine_.begin(), mine_.end(), 0.0);
        sum_blocks(a, b, 0);
        sum_blocks(c, b, blocks_);
        dtl::check(dtl_comm_allreduce(a_.comm(), mine_.data(), all_.data(), all_.size(), DTL_DTYPE_FLOAT64,
                                      DTL_OP_SUM));
        for (std::size_t block = 0; block < blocks_; block++) {
            out[0] += all_[block];
            out[1] += all_[blocks_ + block];
        }
        return out;
    }

  private:
    // Sums of the blocks that this rank holds, at their place among all blocks.
    void sum_blocks(const vector &a, const vector &b, std::size_t offset)
    {
        std::size_t block = offset + first_block_;
        for (std::size_t begin = 0; begin < a_.rows(); begin += block_rows_) {
            mine_[block++] = dot_range(a, b, begin, std::min(begin + block_rows_, a_.rows()));
        }
    }

    const matrix &a_;
    std::size_t block_rows_, blocks_ = 0, first_block_ = 0;
    vector mine_, all_; // two dot products of `blocks_` each
};

void precondition(const matrix &a, const vector &r, vector &z)
{
    for (std::size_t i = 0; i < a.rows(); i++) {
        z[i] = r[i] / a.diagonal()[i];
    }
}

} // namespace

cg_result cg_solve(matrix &a, const vector &b, vector &x, const cg_options &options)
{
    cg_result result;
    dots dot(a, options.block_rows);
    const std::size_t rows = a.rows();
    vector r = b, z(rows), q(rows); // residual, preconditioned residual, A p
    vector &p = a.x();              // search direction
    std::fill(x.begin(), x.end(), 0.0);
    precondition(a, r, z);
    std::copy(z.begin(), z.end(), p.begin());
    auto [zr, rr] = dot.pair(z, r, r);
    const double norm_b = std::sqrt(rr); // x = 0, so r = b
    result.residual = norm_b > 0 ? 1 : 0;
    result.converged = result.residual <= options.tolerance;
    while (!result.converged && result.iterations < options.max_iterations) {
        a.multiply(q);
        const double curvature = dot.pair(p, q, p)[0];
        if (!(curvature > 0) || !std::isfinite(curvature)) {
            result.indefinite = true;
            return result;
        }
        const double alpha = zr / curvature;
        for (std::size_t i = 0; i < rows; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        precondition(a, r, z);
        const double before = zr;
        const auto next = dot.pair(z, r, r);
        zr = next[0];
        rr = next[1];
        const double beta = zr / before;
        for (std::size_t i = 0; i < rows; i++) {
            p[i] = z[i] + beta * p[i];
        }
        result.iterations++;
        result.residual = std::sqrt(rr) / norm_b;
        result.converged = result.residual <= options.tolerance;
        if (options.progress) {
            options.progress(result.iterations, result.residual);
        }
    }
    return result;
}
