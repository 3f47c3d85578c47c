// Event queries for a class without QueryEvent: a thread waits for each event that is queried. Part of
// dtl/stepmesh.hpp.
#ifndef DTL_STEPMESH_EVENTS_HPP
#define DTL_STEPMESH_EVENTS_HPP

#include "stepmesh_backend.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dtl::stepmesh {
inline namespace DTL_STEPMESH_SPACE {
namespace detail {

/// Threads that run blocking functions. A function never waits for another one: if no thread is idle, one is started.
/// The destructor waits until all functions have run.
class blocking_threads {
  public:
    blocking_threads() = default;
    blocking_threads(const blocking_threads &) = delete;
    blocking_threads &operator=(const blocking_threads &) = delete;
    ~blocking_threads()
    {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            ends_ = true;
        }
        changed_.notify_all();
        for (std::thread &thread : threads_) {
            thread.join();
        }
    }

    void run(std::function<void()> function)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (idle_ <= waiting_.size()) {
            threads_.emplace_back([this] { serve(); });
            idle_++;
        }
        waiting_.push_back(std::move(function));
        changed_.notify_one();
    }

  private:
    void serve()
    {
        std::unique_lock<std::mutex> guard(lock_);
        for (;;) {
            changed_.wait(guard, [this] { return ends_ || !waiting_.empty(); });
            if (waiting_.empty()) {
                return;
            }
            const std::function<void()> function = std::move(waiting_.front());
            waiting_.pop_front();
            idle_--;
            guard.unlock();
            function();
            guard.lock();
            idle_++;
        }
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    std::size_t idle_ = 0; // threads that take, or will take, a function
    bool ends_ = false;
    std::vector<std::thread> threads_;
};

/// Event of a registered class, with the state of the waits for it.
class tracked_event {
  public:
    explicit tracked_event(void *event) noexcept : event_(event) {}
    tracked_event(const tracked_event &) = delete;
    tracked_event &operator=(const tracked_event &) = delete;

    void *event() const noexcept { return event_; }

    void recorded()
    {
        const std::lock_guard<std::mutex> guard(lock_);
        records_++;
    }

    /// Number of records. An event that was never recorded is complete, whatever the class would return.
    uint64_t records()
    {
        const std::lock_guard<std::mutex> guard(lock_);
        return records_;
    }

    /// Notes that a wait for that record has returned.
    void reached(uint64_t record)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (!is_waited_for_ && record == records_) {
            waited_ = record;
            failure_ = nullptr;
        }
    }

    /// Whether a wait for the latest record has returned; rethrows its exception. The first query starts the wait and
    /// gives it 10 ms. That is enough for an event that is already complete, unless the machine is overloaded.
    bool is_reached(Backend &backend, blocking_threads &threads)
    {
        std::unique_lock<std::mutex> guard(lock_);
        if (!is_waited_for_ && waited_ != records_) {
            threads.run([this, &backend] { wait(backend); });
            is_waited_for_ = true;
            waited_ = records_;
            changed_.wait_for(guard, std::chrono::milliseconds(10), [this] { return !is_waited_for_; });
        }
        if (is_waited_for_ || waited_ != records_) {
            return false;
        }
        if (failure_) {
            std::rethrow_exception(failure_);
        }
        return true;
    }

    /// Destroys this object and the class's event: now, or when a wait for it has returned.
    int destroy(Backend &backend)
    {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            if (is_waited_for_) {
                is_destroyed_ = true;
                return BACKEND_OK;
            }
        }
        void *const event = event_;
        delete this;
        return backend.FreeEvent(event);
    }

  private:
    ~tracked_event() = default;

    void wait(Backend &backend) noexcept
    {
        std::exception_ptr failure;
        try {
            const int answer = backend.SyncEvent(event_);
            if (answer != BACKEND_OK) {
                throw error(DTL_ERROR_BACKEND, "SyncEvent answered " + std::to_string(answer));
            }
        } catch (...) {
            failure = std::current_exception();
        }
        {
            const std::lock_guard<std::mutex> guard(lock_);
            failure_ = failure;
            is_waited_for_ = false;
            changed_.notify_all();
            if (!is_destroyed_) {
                return;
            }
        }
        try {
            static_cast<void>(destroy(backend));
        } catch (...) {
            // The program has destroyed the event, so there is no call that could report the failure.
        }
    }

    void *event_;
    std::mutex lock_;
    std::condition_variable changed_;
    uint64_t records_ = 0, waited_ = 0; // how often it was recorded; up to which record it is waited for
    bool is_waited_for_ = false, is_destroyed_ = false;
    std::exception_ptr failure_; // of the last wait that returned
};

} // namespace detail
} // namespace DTL_STEPMESH_SPACE
} // namespace dtl::stepmesh

#endif
