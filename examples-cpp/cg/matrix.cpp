// matrix: distribution, the pattern of the halo exchange, and the product (see matrix.hpp).
#include "matrix.hpp"

#include <algorithm>

namespace {

constexpr int32_t tag_rows = 1, tag_columns = 2, tag_values = 3, tag_wanted = 4, tag_halo = 5;

std::size_t index(int64_t value)
{
    return static_cast<std::size_t>(value);
}

// Chooses where each rank's block starts: as near as the alignment allows to its share.
std::vector<int32_t> partition(const mtx &whole, int32_t size, int32_t alignment)
{
    const int64_t nonzeros = whole.row_start.back();
    std::vector<int32_t> first_row(index(size) + 1, 0);
    int32_t row = 0;
    for (int32_t rank = 1; rank < size; rank++) {
        const int64_t share = nonzeros / size * rank + nonzeros % size * rank / size;
        int32_t next = row;
        while (whole.row_start[index(next)] < share) {
            row = next;
            next = whole.rows - row > alignment ? row + alignment : whole.rows;
        }
        if (share - whole.row_start[index(row)] > whole.row_start[index(next)] - share) {
            row = next;
        }
        first_row[index(rank)] = row;
    }
    first_row.back() = whole.rows;
    return first_row;
}

// Rank 0: sends a rank its rows; they are slices of the whole.
void send_rows(dtl_comm_t comm, const mtx &whole, int32_t first, int32_t end, int32_t to)
{
    const int64_t *start = &whole.row_start[index(first)];
    const auto rows = static_cast<uint64_t>(end - first);
    const auto nonzeros = static_cast<uint64_t>(start[rows] - start[0]);
    dtl::check(dtl_comm_send(comm, start, rows + 1, DTL_DTYPE_INT64, to, tag_rows));
    dtl::check(
        dtl_comm_send(comm, whole.column.data() + start[0], nonzeros, DTL_DTYPE_INT32, to, tag_columns));
    dtl::check(
        dtl_comm_send(comm, whole.value.data() + start[0], nonzeros, DTL_DTYPE_FLOAT64, to, tag_values));
}

} // namespace

void matrix::receive_rows(std::size_t rows)
{
    row_start_.resize(rows + 1);
    dtl::check(dtl_comm_recv(comm_, row_start_.data(), rows + 1, DTL_DTYPE_INT64, 0, tag_rows, nullptr));
    const int64_t first = row_start_.front();
    for (int64_t &start : row_start_) {
        start -= first;
    }
    column_.resize(index(nonzeros()));
    value_.resize(index(nonzeros()));
    dtl::check(
        dtl_comm_recv(comm_, column_.data(), column_.size(), DTL_DTYPE_INT32, 0, tag_columns, nullptr));
    dtl::check(dtl_comm_recv(comm_, value_.data(), value_.size(), DTL_DTYPE_FLOAT64, 0, tag_values, nullptr));
}

void matrix::copy_rows(const mtx &whole, std::size_t rows)
{
    const int64_t nonzeros = whole.row_start[rows];
    row_start_.assign(whole.row_start.begin(), whole.row_start.begin() + static_cast<int64_t>(rows) + 1);
    column_.assign(whole.column.begin(), whole.column.begin() + nonzeros);
    value_.assign(whole.value.begin(), whole.value.begin() + nonzeros);
}

void matrix::spread_rows(const mtx &whole, int32_t alignment)
{
    first_row_.resize(index(size_) + 1);
    if (rank_ == 0) {
        first_row_ = partition(whole, size_, alignment);
    }
    dtl::check(dtl_comm_bcast(comm_, first_row_.data(), first_row_.size(), DTL_DTYPE_INT32, 0));
    const auto rows = index(first_row(rank_ + 1) - first_row(rank_));
    diagonal_.resize(rows);
    if (rank_ != 0) {
        receive_rows(rows);
        return;
    }
    copy_rows(whole, rows);
    for (int32_t to = 1; to < size_; to++) {
        send_rows(comm_, whole, first_row(to), first_row(to + 1), to);
    }
}

// Lists the columns of other ranks that my rows touch, ascending, each once. The owners ascend with
// them, so the list is also sorted by owner.
void matrix::list_halo()
{
    const int32_t first = first_row(rank_), end = first_row(rank_ + 1);
    std::copy_if(column_.begin(), column_.end(), std::back_inserter(halo_column_),
                 [=](int32_t column) { return column < first || column >= end; });
    std::sort(halo_column_.begin(), halo_column_.end());
    halo_column_.erase(std::unique(halo_column_.begin(), halo_column_.end()), halo_column_.end());
}

// From global columns to places in a vector, and the diagonal on the way.
void matrix::renumber()
{
    const int32_t first = first_row(rank_), end = first_row(rank_ + 1);
    for (std::size_t row = 0; row < rows(); row++) {
        for (auto i = index(row_start_[row]); i < index(row_start_[row + 1]); i++) {
            int32_t &column = column_[i];
            if (column >= first && column < end) {
                column -= first;
            } else {
                const auto place = std::lower_bound(halo_column_.begin(), halo_column_.end(), column);
                column = end - first + static_cast<int32_t>(place - halo_column_.begin());
            }
            if (index(column) == row) {
                diagonal_[row] = value_[i];
            }
        }
    }
}

// The ranks with a count above 0, their offsets adding up.
std::vector<matrix::peer> matrix::list_peers(const std::vector<int32_t> &counts)
{
    std::vector<peer> peers;
    int32_t offset = 0;
    for (std::size_t rank = 0; rank < counts.size(); rank++) {
        if (counts[rank] > 0) {
            peers.push_back({static_cast<int32_t>(rank), counts[rank], offset});
            offset += counts[rank];
        }
    }
    return peers;
}

void matrix::wait_all()
{
    dtl::check(dtl_request_wait_all(requests_.data(), requests_.size(), DTL_TIMEOUT_INFINITE, nullptr));
}

// Tells each owner which of its entries this rank wants, and learns what the others want.
void matrix::exchange_wishes()
{
    auto request = requests_.begin();
    for (const peer &p : targets_) {
        dtl::check(dtl_comm_irecv(comm_, send_index_.data() + p.offset, static_cast<uint64_t>(p.count),
                                  DTL_DTYPE_INT32, p.rank, tag_wanted, &*request++));
    }
    for (const peer &p : sources_) {
        dtl::check(dtl_comm_isend(comm_, halo_column_.data() + p.offset, static_cast<uint64_t>(p.count),
                                  DTL_DTYPE_INT32, p.rank, tag_wanted, &*request++));
    }
    wait_all();
}

void matrix::plan_exchange()
{
    std::vector<int32_t> counts_in(index(size_), 0), counts_out(index(size_), 0);
    int32_t owner = 0;
    for (const int32_t column : halo_column_) {
        while (column >= first_row(owner + 1)) {
            owner++;
        }
        counts_in[index(owner)]++;
    }
    dtl::check(dtl_comm_alltoall(comm_, counts_in.data(), 1, counts_out.data(), DTL_DTYPE_INT32));
    sources_ = list_peers(counts_in);
    targets_ = list_peers(counts_out);
    requests_.resize(sources_.size() + targets_.size());
    send_index_.resize(targets_.empty() ? 0 : index(targets_.back().offset + targets_.back().count));
    send_buffer_.resize(send_index_.size());
    exchange_wishes();
    for (int32_t &entry : send_index_) {
        entry -= first_row(rank_);
    }
}

void matrix::distribute(dtl_comm_t comm, const mtx &whole, int32_t alignment)
{
    comm_ = comm;
    dtl::check(dtl_comm_rank(comm, &rank_));
    dtl::check(dtl_comm_size(comm, &size_));
    spread_rows(whole, alignment);
    list_halo();
    renumber();
    x_.resize(rows() + halo_column_.size());
    plan_exchange();
}

void matrix::fetch_halo()
{
    auto request = requests_.begin();
    for (const peer &p : sources_) {
        dtl::check(dtl_comm_irecv(comm_, x_.data() + rows() + p.offset, static_cast<uint64_t>(p.count),
                                  DTL_DTYPE_FLOAT64, p.rank, tag_halo, &*request++));
    }
    for (const peer &p : targets_) {
        for (auto k = index(p.offset); k < index(p.offset + p.count); k++) {
            send_buffer_[k] = x_[index(send_index_[k])];
        }
        dtl::check(dtl_comm_isend(comm_, send_buffer_.data() + p.offset, static_cast<uint64_t>(p.count),
                                  DTL_DTYPE_FLOAT64, p.rank, tag_halo, &*request++));
    }
    wait_all();
}

void matrix::multiply(std::vector<double> &y)
{
    fetch_halo();
    for (std::size_t row = 0; row < rows(); row++) {
        double sum = 0;
        for (auto i = index(row_start_[row]); i < index(row_start_[row + 1]); i++) {
            sum += value_[i] * x_[index(column_[i])];
        }
        y[row] = sum;
    }
}
