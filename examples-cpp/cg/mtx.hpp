// mtx: reads a sparse symmetric matrix from a Matrix Market file and trusts nothing in it.
//
// Accepted: coordinate, real or integer, general or symmetric, square, every diagonal entry
// present and positive, equal on both sides of the diagonal. (Whether it is positive definite
// shows only while solving.) Part of the example cg; see cg.cpp.
#ifndef CG_MTX_HPP
#define CG_MTX_HPP

#include <cstdint>
#include <string>
#include <vector>

// Compressed rows; the columns of a row ascend. Both triangles are stored.
struct mtx {
    int32_t rows = 0;
    std::vector<int64_t> row_start; // rows + 1
    std::vector<int32_t> column;    // from 0
    std::vector<double> value;
};

// Throws std::runtime_error with one line "FILE:LINE: what is wrong".
mtx read_mtx(const std::string &path);

#endif
