// Requests and probed messages of the C++ interface. Part of dtl.hpp.
#ifndef DTL_REQUEST_HPP
#define DTL_REQUEST_HPP

#include "dtype.hpp"
#include "memory.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace dtl {

/// Elements of a received message: `count_of<double>(world.recv(data, 100))`.
template <class T> uint64_t count_of(const dtl_recv_info_t &info) noexcept
{
    return info.size_bytes / sizeof(T);
}

namespace detail {
/// Ends a request without its outcome, so that nothing touches its buffer afterwards. A collective
/// cannot be withdrawn: it is waited for.
inline void abandon(dtl_request_t request) noexcept
{
    if (request.id == 0) {
        return;
    }
    if (dtl_request_destroy(request) == DTL_ERROR_BUSY) {
        DTL_IGNORE(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, nullptr));
    }
}
} // namespace detail

/// An operation in flight. The destructor of an unfinished one withdraws it (a collective: waits for
/// it), so that nothing touches its buffer afterwards.
class request {
  public:
    request() noexcept = default;
    explicit request(dtl_request_t handle) noexcept : handle_(handle) {}
    /// @param is_send  It is known to be a send, so there is nothing to report of what it received.
    request(dtl_request_t handle, bool is_send) noexcept : handle_(handle), is_send_(is_send) {}
    request(request &&other) noexcept : handle_(other.release()), is_send_(other.is_send_) {}
    request &operator=(request &&other) noexcept
    {
        if (this != &other) {
            abandon();
            handle_ = other.release();
            is_send_ = other.is_send_;
        }
        return *this;
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request() { abandon(); }

    dtl_request_t get() const noexcept { return handle_; }
    dtl_request_t release() noexcept { return std::exchange(handle_, dtl_request_t{}); }
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /// Waits; what the receive got. All zero for a send.
    dtl_recv_info_t wait()
    {
        if (is_send_) {
            check(dtl_request_wait(release(), DTL_TIMEOUT_INFINITE, nullptr));
            return {};
        }
        dtl_recv_info_t info; // every field is written, or check throws
        check(dtl_request_wait(release(), DTL_TIMEOUT_INFINITE, &info));
        return info;
    }

    /// Asks for its end, if nothing has matched it yet; wait() then throws DTL_ERROR_CANCELED.
    void cancel() { check(dtl_request_cancel(handle_)); }

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
    void abandon() noexcept { detail::abandon(release()); }

    dtl_request_t handle_{};
    bool is_send_ = false;
};

/// A send or receive that is started again and again: `start`, `wait`, `start`, …
class persistent_request {
  public:
    persistent_request() noexcept = default;
    explicit persistent_request(dtl_request_t handle) noexcept : handle_(handle) {}

    dtl_request_t get() const noexcept { return handle_.get(); }
    dtl_request_t release() noexcept { return handle_.release(); }

    void start() { check(dtl_request_start(get())); }

    /// Waits; what the receive got. Not started: returns at once.
    dtl_recv_info_t wait()
    {
        dtl_recv_info_t info{};
        check(dtl_request_wait(get(), DTL_TIMEOUT_INFINITE, &info));
        return info;
    }

    /// Whether it is done, without waiting.
    bool test(dtl_recv_info_t *info = nullptr)
    {
        int32_t done = 0;
        check(dtl_request_test(get(), &done, info));
        return done != 0;
    }

  private:
    detail::owned<dtl_request_t, dtl_request_destroy> handle_;
};

/// Several requests that are waited for together; it owns them. One-off and persistent ones may be
/// mixed: a one-off request's place becomes empty when it is done, a persistent one's never.
class request_list {
  public:
    request_list() noexcept = default;
    request_list(request_list &&other) noexcept : handles_(std::exchange(other.handles_, {})) {}
    request_list &operator=(request_list &&other) noexcept
    {
        if (this != &other) {
            clear();
            handles_ = std::exchange(other.handles_, {});
        }
        return *this;
    }
    request_list(const request_list &) = delete;
    request_list &operator=(const request_list &) = delete;
    ~request_list() { clear(); }

    /// Takes a request over; its index.
    std::size_t add(request owned) { return push(owned); }
    std::size_t add(persistent_request owned) { return push(owned); }

    std::size_t size() const noexcept { return handles_.size(); }
    dtl_request_t operator[](std::size_t index) const noexcept { return handles_[index]; }

    /// Ends all without their outcomes.
    void clear() noexcept
    {
        for (const dtl_request_t handle : std::exchange(handles_, {})) {
            detail::abandon(handle);
        }
    }

    /// Starts all, which are persistent.
    void start_all() { check(dtl_request_start_all(handles_.data(), handles_.size())); }

    /// Waits for all; throws the first failure.
    void wait_all()
    {
        check(dtl_request_wait_all(handles_.data(), handles_.size(), DTL_TIMEOUT_INFINITE, nullptr));
    }

    /// The same, and what each receive got, by index.
    std::vector<dtl_recv_info_t> wait_all_infos()
    {
        std::vector<dtl_recv_info_t> infos(handles_.size());
        check(dtl_request_wait_all(handles_.data(), handles_.size(), DTL_TIMEOUT_INFINITE, infos.data()));
        return infos;
    }

    /// Waits for all, at most this long; false = some are still in flight.
    bool wait_all_for(std::chrono::nanoseconds limit)
    {
        const uint64_t limit_ns = detail::nanoseconds(limit);
        const dtl_status_t status = dtl_request_wait_all(handles_.data(), handles_.size(), limit_ns, nullptr);
        if (status == DTL_ERROR_TIMEOUT) {
            return false;
        }
        check(status);
        return true;
    }

    /// Whether all are done, without waiting.
    bool test_all()
    {
        int32_t done = 0;
        check(dtl_request_test_all(handles_.data(), handles_.size(), &done, nullptr));
        return done != 0;
    }

    /// Waits until one is done; its index, or none if none is active.
    std::optional<std::size_t> wait_any(dtl_recv_info_t *info = nullptr)
    {
        uint64_t index = DTL_NO_INDEX;
        check(dtl_request_wait_any(handles_.data(), handles_.size(), DTL_TIMEOUT_INFINITE, &index, info));
        return index == DTL_NO_INDEX ? std::nullopt : std::optional<std::size_t>(index);
    }

    /// Waits until some are done; their indices (none if none is active).
    std::vector<uint64_t> wait_some()
    {
        std::vector<uint64_t> indices(handles_.size());
        uint64_t count = 0;
        check(dtl_request_wait_some(handles_.data(), handles_.size(), DTL_TIMEOUT_INFINITE, &count,
                                    indices.data(), nullptr));
        indices.resize(count);
        return indices;
    }

  private:
    template <class Request> std::size_t push(Request &owned)
    {
        handles_.push_back(owned.get());
        owned.release(); // after push_back, which may throw
        return handles_.size() - 1;
    }

    std::vector<dtl_request_t> handles_;
};

/// A message that was probed and taken: only this object can receive it, once. One that is never
/// received goes with its communicator.
class message {
  public:
    message() noexcept = default;
    message(dtl_message_t handle, const dtl_recv_info_t &info) noexcept : handle_(handle), info_(info) {}
    message(message &&other) noexcept : handle_(other.release()), info_(other.info_) {}
    message &operator=(message &&other) noexcept
    {
        handle_ = other.release();
        info_ = other.info_;
        return *this;
    }
    message(const message &) = delete;
    message &operator=(const message &) = delete;
    ~message() = default;

    dtl_message_t get() const noexcept { return handle_; }
    dtl_message_t release() noexcept { return std::exchange(handle_, dtl_message_t{}); }
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /// Source, tag and size.
    const dtl_recv_info_t &info() const noexcept { return info_; }

    template <class T> dtl_recv_info_t recv(T *data, uint64_t count)
    {
        dtl_recv_info_t info{};
        check(dtl_comm_mrecv(release(), data, count, dtype<T>(), &info));
        return info;
    }

    /// All of it.
    template <class T> std::vector<T> recv()
    {
        std::vector<T> elements(count_of<T>(info_));
        recv(elements.data(), elements.size());
        return elements;
    }

    template <class T> [[nodiscard]] request irecv(T *data, uint64_t count)
    {
        dtl_request_t handle;
        check(dtl_comm_imrecv(release(), data, count, dtype<T>(), &handle));
        return request(handle);
    }

  private:
    dtl_message_t handle_{};
    dtl_recv_info_t info_{};
};

} // namespace dtl

#endif
