// solver: conjugate gradients with the diagonal as preconditioner (Jacobi), on distributed rows.
//
// Part of the example cg; see cg.cpp.
#ifndef CG_SOLVER_HPP
#define CG_SOLVER_HPP

#include "matrix.hpp"

#include <functional>

struct cg_options {
    double tolerance;       // relative residual at which to stop
    int32_t max_iterations; // at most that many
    int32_t block_rows;     // dot products: rows of a block, 0 = one block for each rank (faster)
    std::function<void(int32_t iteration, double residual)> progress; // on every rank
};

struct cg_result {
    int32_t iterations = 0;
    double residual = 1; // |r| / |b|
    bool converged = false;
    bool indefinite = false; // gave up: the matrix is not positive definite
};

// Solves A x = b from x = 0. `b` and `x` have a.rows() entries. Collective; the result is the same on
// every rank. With block_rows set (and the rows split at multiples of it) iterations and x are bitwise
// the same for every number of ranks.
cg_result cg_solve(matrix &a, const std::vector<double> &b, std::vector<double> &x,
                   const cg_options &options);

#endif
