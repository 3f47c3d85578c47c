// Communicators and requests of the C++ face. Part of dtl.hpp.
#ifndef DTL_COMM_HPP
#define DTL_COMM_HPP

#include "memory.hpp"

#include <chrono>
#include <complex>
#include <cstddef>

namespace dtl {

/// The dtype of an element type: dtype<double>() is DTL_DTYPE_FLOAT64.
template <class T> constexpr dtl_dtype_t dtype()
{
    constexpr bool complex64 = std::is_same_v<T, std::complex<float>>;
    constexpr bool complex128 = std::is_same_v<T, std::complex<double>>;
    static_assert(std::is_arithmetic_v<T> || std::is_same_v<T, std::byte> || complex64 || complex128,
                  "no dtype for this type: send it as bytes, or give count and dtype to the C function");
    static_assert(sizeof(T) <= 8 || complex128, "no dtype for this type");
    if constexpr (complex64 || complex128) {
        return complex64 ? DTL_DTYPE_COMPLEX64 : DTL_DTYPE_COMPLEX128;
    } else if constexpr (std::is_same_v<T, std::byte>) {
        return DTL_DTYPE_BYTE;
    } else if constexpr (std::is_same_v<T, bool>) {
        return DTL_DTYPE_BOOL;
    } else if constexpr (std::is_floating_point_v<T>) {
        return sizeof(T) == 4 ? DTL_DTYPE_FLOAT32 : DTL_DTYPE_FLOAT64;
    } else {
        // INT8, 16, 32, 64 are 0 … 3, their unsigned twins 4 … 7.
        constexpr dtl_dtype_t width = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
        return (std::is_signed_v<T> ? DTL_DTYPE_INT8 : DTL_DTYPE_UINT8) + width;
    }
}
template <class T> inline constexpr dtl_dtype_t dtype_of = dtype<T>();

/// An operation in flight. The destructor of an unfinished one cancels it and waits, so that nothing
/// touches its buffer afterwards.
class request {
  public:
    request() noexcept = default;
    explicit request(dtl_request_t handle) noexcept : handle_(handle) {}
    request(request &&other) noexcept : handle_(other.release()) {}
    request &operator=(request &&other) noexcept
    {
        if (this != &other) {
            abandon();
            handle_ = other.release();
        }
        return *this;
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request() { abandon(); }

    dtl_request_t get() const noexcept { return handle_; }
    dtl_request_t release() noexcept { return std::exchange(handle_, dtl_request_t{}); }
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /// Waits; what the receive got.
    dtl_recv_info_t wait()
    {
        dtl_recv_info_t info{};
        check(dtl_request_wait(release(), DTL_TIMEOUT_INFINITE, &info));
        return info;
    }

    /// Waits at most this long; false = still in flight.
    bool wait_for(std::chrono::nanoseconds limit, dtl_recv_info_t *info = nullptr)
    {
        const dtl_status_t status = dtl_request_wait(handle_, detail::nanoseconds(limit), info);
        if (status == DTL_ERROR_TIMEOUT) {
            return false;
        }
        handle_ = {};
        check(status);
        return true;
    }

    /// Whether it is done, without waiting; then it is over.
    bool test(dtl_recv_info_t *info = nullptr)
    {
        int32_t done = 0;
        const dtl_status_t status = dtl_request_test(handle_, &done, info);
        if (status != DTL_SUCCESS || done != 0) {
            handle_ = {};
        }
        check(status);
        return done != 0;
    }

  private:
    void abandon() noexcept
    {
        const dtl_request_t left = release();
        if (left.id != 0) {
            DTL_IGNORE(dtl_request_cancel(left));
            DTL_IGNORE(dtl_request_wait(left, DTL_TIMEOUT_INFINITE, nullptr));
        }
    }

    dtl_request_t handle_{};
};

class comm;

/// View of a communicator. Default: DTL_COMM_WORLD. Counts are in elements.
class comm_ref {
  public:
    comm_ref() noexcept : handle_(DTL_COMM_WORLD) {}
    comm_ref(dtl_comm_t handle) noexcept : handle_(handle) {}

    dtl_comm_t get() const noexcept { return handle_; }

    int rank() const
    {
        int32_t rank = 0;
        check(dtl_comm_rank(handle_, &rank));
        return rank;
    }

    int size() const
    {
        int32_t size = 0;
        check(dtl_comm_size(handle_, &size));
        return size;
    }

    dtl_comm_info_t info() const
    {
        dtl_comm_info_t info = DTL_COMM_INFO_INIT;
        check(dtl_comm_info(handle_, &info));
        return info;
    }

    template <class T> void send(const T *data, uint64_t count, int dest, int tag = 0) const
    {
        check(dtl_comm_send(handle_, data, count, dtype_of<T>, dest, tag));
    }

    template <class T>
    dtl_recv_info_t recv(T *data, uint64_t count, int source = DTL_ANY_SOURCE, int tag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info{};
        check(dtl_comm_recv(handle_, data, count, dtype_of<T>, source, tag, &info));
        return info;
    }

    template <class T> [[nodiscard]] request isend(const T *data, uint64_t count, int dest, int tag = 0) const
    {
        dtl_request_t handle;
        check(dtl_comm_isend(handle_, data, count, dtype_of<T>, dest, tag, &handle));
        return request(handle);
    }

    template <class T>
    [[nodiscard]] request irecv(T *data, uint64_t count, int source = DTL_ANY_SOURCE,
                                int tag = DTL_ANY_TAG) const
    {
        dtl_request_t handle;
        check(dtl_comm_irecv(handle_, data, count, dtype_of<T>, source, tag, &handle));
        return request(handle);
    }

    /// As send, but returns when a receive has begun to take the message.
    template <class T> void ssend(const T *data, uint64_t count, int dest, int tag = 0) const
    {
        check(dtl_comm_ssend(handle_, data, count, dtype_of<T>, dest, tag));
    }

    /// Waits for a message that a recv with these arguments would take; size_bytes tells how long it is.
    dtl_recv_info_t probe(int source = DTL_ANY_SOURCE, int tag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info = {};
        check(dtl_comm_probe(handle_, source, tag, &info));
        return info;
    }

    /// The same ranks, with messages of their own.
    comm dup() const;
    /// One communicator for each color; an empty one for DTL_UNDEFINED.
    comm split(int color, int key = 0) const;
    /// After a failure: the ranks that are left.
    comm shrink() const;

    void barrier() const { check(dtl_comm_barrier(handle_)); }

    template <class T> void bcast(T *data, uint64_t count, int root) const
    {
        check(dtl_comm_bcast(handle_, data, count, dtype_of<T>, root));
    }

    template <class T>
    void reduce(const T *in, T *out, uint64_t count, dtl_reduce_op_t op, int root) const
    {
        check(dtl_comm_reduce(handle_, in, out, count, dtype_of<T>, op, root));
    }

    template <class T> void allreduce(const T *in, T *out, uint64_t count, dtl_reduce_op_t op) const
    {
        check(dtl_comm_allreduce(handle_, in, out, count, dtype_of<T>, op));
    }

    /// One value from each rank, reduced.
    template <class T> T allreduce(T value, dtl_reduce_op_t op) const
    {
        T result{};
        allreduce(&value, &result, 1, op);
        return result;
    }

    template <class T> void gather(const T *in, uint64_t count_per_rank, T *out, int root) const
    {
        check(dtl_comm_gather(handle_, in, count_per_rank, out, dtype_of<T>, root));
    }

    template <class T> void scatter(const T *in, uint64_t count_per_rank, T *out, int root) const
    {
        check(dtl_comm_scatter(handle_, in, count_per_rank, out, dtype_of<T>, root));
    }

    template <class T> void allgather(const T *in, uint64_t count_per_rank, T *out) const
    {
        check(dtl_comm_allgather(handle_, in, count_per_rank, out, dtype_of<T>));
    }

    template <class T> void alltoall(const T *in, uint64_t count_per_rank, T *out) const
    {
        check(dtl_comm_alltoall(handle_, in, count_per_rank, out, dtype_of<T>));
    }

  private:
    dtl_comm_t handle_;
};

/// A communicator of its own; the destructor closes it.
class comm {
  public:
    explicit comm(dtl_comm_t handle) noexcept : handle_(handle) {}

    /// Opens one as described: `dtl_comm_desc_t desc = DTL_COMM_DESC_INIT; desc.kind = "shm";`
    explicit comm(const dtl_comm_desc_t &desc)
    {
        dtl_comm_t handle;
        check(dtl_comm_open(&desc, &handle));
        handle_.reset(handle);
    }

    dtl_comm_t get() const noexcept { return handle_.get(); }
    comm_ref ref() const noexcept { return handle_.get(); }
    operator comm_ref() const noexcept { return ref(); }
    /// The view's functions: `comm->barrier()`.
    detail::arrow<comm_ref> operator->() const noexcept { return detail::arrow(ref()); }

  private:
    detail::owned<dtl_comm_t, dtl_comm_destroy> handle_;
};

inline comm comm_ref::dup() const
{
    dtl_comm_t out = {};
    check(dtl_comm_dup(handle_, &out));
    return comm(out);
}

inline comm comm_ref::split(int color, int key) const
{
    dtl_comm_t out = {};
    check(dtl_comm_split(handle_, color, key, &out));
    return comm(out);
}

inline comm comm_ref::shrink() const
{
    dtl_comm_t out = {};
    check(dtl_comm_shrink(handle_, &out));
    return comm(out);
}

} // namespace dtl

#endif
