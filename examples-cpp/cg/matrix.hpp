// matrix: a sparse matrix whose rows are spread over the ranks of a communicator.
//
// Each rank holds a contiguous block of rows, and the entries of a vector that go with them. The
// vector to be multiplied has behind them the halo: the entries of other ranks that the rows touch.
// Part of the example cg; see cg.cpp.
#ifndef CG_MATRIX_HPP
#define CG_MATRIX_HPP

#include "mtx.hpp"

#include <dtl.hpp>

// Destroy it after dtl::library: when a call failed, messages may still be under way in its buffers
// until the communicator is closed.
class matrix {
  public:
    // Splits `whole` (read on rank 0 only) into blocks of rows with about the same number of
    // nonzeros; a block starts at a multiple of `alignment` rows. Collective, once.
    void distribute(dtl_comm_t comm, const mtx &whole, int32_t alignment);

    // y = A x, x being the first rows() entries of x(); the halo is fetched here. Collective. The
    // sum of a row runs over ascending columns, so it does not depend on the split.
    void multiply(std::vector<double> &y);

    dtl_comm_t comm() const { return comm_; }
    int32_t rank() const { return rank_; }
    int32_t size() const { return size_; }
    std::size_t rows() const { return diagonal_.size(); }
    int64_t nonzeros() const { return row_start_.back(); }
    int32_t global_rows() const { return first_row_.back(); }
    // Rank r holds the rows first_row(r) … first_row(r + 1) - 1.
    int32_t first_row(int32_t rank) const { return first_row_[static_cast<std::size_t>(rank)]; }
    const std::vector<double> &diagonal() const { return diagonal_; }
    std::vector<double> &x() { return x_; } // rows() and the halo

  private:
    // Entries that go to or come from one other rank, at `offset` of the buffer.
    struct peer {
        int32_t rank, count, offset;
    };

    void receive_rows(std::size_t rows);
    void copy_rows(const mtx &whole, std::size_t rows);
    void spread_rows(const mtx &whole, int32_t alignment);
    void list_halo();
    void renumber();
    void plan_exchange();
    void exchange_wishes();
    void fetch_halo();
    static std::vector<peer> list_peers(const std::vector<int32_t> &counts);
    void wait_all();

    dtl_comm_t comm_ = DTL_COMM_NULL;
    int32_t rank_ = 0, size_ = 0;
    std::vector<int32_t> first_row_;
    std::vector<int64_t> row_start_;
    std::vector<int32_t> column_; // below rows(): my entry; from rows() on: an entry of the halo
    std::vector<double> value_, diagonal_;
    std::vector<int32_t> halo_column_; // the global columns of the halo's entries
    std::vector<double> x_;
    std::vector<peer> sources_, targets_;
    std::vector<int32_t> send_index_; // which of my entries go to the targets, in their order
    std::vector<double> send_buffer_;
    std::vector<dtl_request_t> requests_;
};

#endif
