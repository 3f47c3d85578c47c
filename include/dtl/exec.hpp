// Streams, events, executors and kernels of the C++ interface. Part of dtl.hpp.
#ifndef DTL_EXEC_HPP
#define DTL_EXEC_HPP

#include "memory.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

namespace dtl {

/// View of an event.
class event_ref {
  public:
    event_ref() noexcept = default;
    event_ref(dtl_event_t handle) noexcept : handle_(handle) {}

    dtl_event_t get() const noexcept { return handle_; }

    /// Waits; throws the failure of the work before the record.
    void sync() const { check(dtl_event_wait(handle_, DTL_TIMEOUT_INFINITE)); }

    /// Waits at most this long; false = not yet done.
    bool wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::done_in_time(dtl_event_wait(handle_, detail::nanoseconds(limit)));
    }

    bool is_complete() const
    {
        int32_t done = 0;
        check(dtl_event_query(handle_, &done));
        return done != 0;
    }

  private:
    dtl_event_t handle_{};
};

/// An event of a backend's.
class event {
  public:
    explicit event(backend_ref backend = {},
                   detail::enum_or_plain<event_flags> flags = event_flags::none)
    {
        dtl_event_t handle;
        check(dtl_event_create(backend.get(), flags, &handle));
        handle_.reset(handle);
    }

    dtl_event_t get() const noexcept { return handle_.get(); }
    operator event_ref() const noexcept { return handle_.get(); }
    void sync() const { event_ref(get()).sync(); }
    bool wait_for(std::chrono::nanoseconds limit) const { return event_ref(get()).wait_for(limit); }
    bool is_complete() const { return event_ref(get()).is_complete(); }

  private:
    detail::owned<dtl_event_t, dtl_event_destroy> handle_;
};

/// Time between two recorded, completed events.
inline std::chrono::nanoseconds elapsed(event_ref start, event_ref stop)
{
    uint64_t nanoseconds = 0;
    check(dtl_event_elapsed_ns(start.get(), stop.get(), &nanoseconds));
    return std::chrono::nanoseconds(nanoseconds);
}

/// View of a function that a stream can launch.
class kernel_ref {
  public:
    kernel_ref(dtl_kernel_t handle) noexcept : handle_(handle) {}
    dtl_kernel_t get() const noexcept { return handle_; }

  private:
    dtl_kernel_t handle_;
};

/// A kernel: made from a C function, or taken from a dtl::kernel_module.
class kernel {
  public:
    /// Makes a kernel from a C function, which must not throw; `user` must live as long as its
    /// launches.
    explicit kernel(dtl_kernel_fn_t function, void *user = nullptr, backend_ref backend = {})
    {
        dtl_kernel_t handle;
        check(dtl_kernel_from_function(backend.get(), function, user, &handle));
        handle_.reset(handle);
    }

    /// Takes over a kernel that C functions made.
    explicit kernel(dtl_kernel_t handle) noexcept : handle_(handle) {}

    dtl_kernel_t get() const noexcept { return handle_.get(); }
    operator kernel_ref() const noexcept { return handle_.get(); }

  private:
    detail::owned<dtl_kernel_t, dtl_kernel_destroy> handle_;
};

/// Launch history of the process (dtl_launch_history_set_capacity): the last `capacity` kernel launches, kept until the
/// object is destroyed. Use one object at a time. A second one replaces the history of the first, and the history ends
/// when either of them is destroyed.
class launch_history {
  public:
    explicit launch_history(uint64_t capacity) { check(dtl_launch_history_set_capacity(capacity)); }
    launch_history(const launch_history &) = delete;
    launch_history &operator=(const launch_history &) = delete;
    ~launch_history()
    {
        const dtl_status_t status = dtl_launch_history_set_capacity(0);
        static_cast<void>(status); // it fails if the library is finalized, which has ended the history
    }

    /// Returns the last launches, at most `limit`, the oldest first. If `kernel` is not null, only the launches of
    /// kernels of that name.
    std::vector<dtl_launch_record_t> read(const char *kernel = nullptr, uint64_t limit = UINT64_MAX) const
    {
        uint64_t count = 0;
        dtl_launch_record_t *const none = nullptr;
        check(dtl_launch_history_read(kernel, none, 0, &count));
        std::vector<dtl_launch_record_t> records(static_cast<std::size_t>(std::min(count, limit)));
        check(dtl_launch_history_read(kernel, records.data(), records.size(), &count));
        records.resize(static_cast<std::size_t>(std::min<uint64_t>(count, records.size())));
        return records;
    }
};

/// Blocks and threads of a launch: `grid{4}` is 4 × 1 × 1.
struct grid {
    uint32_t blocks_x = 1, blocks_y = 1, blocks_z = 1;
};
struct block {
    uint32_t threads_x = 1, threads_y = 1, threads_z = 1;
};

/// View of a stream. Default: the default stream of the calling thread's current device.
class stream_ref {
  public:
    stream_ref() noexcept = default;
    stream_ref(dtl_stream_t handle) noexcept : handle_(handle) {}

    dtl_stream_t get() const noexcept { return handle_; }

    /// Waits for all work queued so far; throws its first failure.
    void synchronize() const { check(dtl_stream_wait(handle_, DTL_TIMEOUT_INFINITE)); }

    /// Waits at most this long; false = not yet done.
    bool wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::done_in_time(dtl_stream_wait(handle_, detail::nanoseconds(limit)));
    }

    bool is_idle() const
    {
        int32_t done = 0;
        check(dtl_stream_query(handle_, &done));
        return done != 0;
    }

    void record(event_ref event) const { check(dtl_event_record(event.get(), handle_)); }
    void wait(event_ref event) const { check(dtl_stream_wait_event(handle_, event.get())); }

    /// Queues a copy of bytes; both sides must live until it is done.
    void copy(void *dst, const void *src, uint64_t size_bytes) const
    {
        check(dtl_mem_copy_async(handle_, dst, src, size_bytes));
    }

    void fill(void *dst, uint8_t byte, uint64_t size_bytes) const
    {
        check(dtl_mem_fill_async(handle_, dst, byte, size_bytes));
    }

    /// Memory for the work that is queued from now on; give it back with deallocate.
    void *allocate(detail::word_of<DTL_ENUM_MEMORY> kind, uint64_t size_bytes, uint64_t alignment = 0) const
    {
        void *first = nullptr;
        check(dtl_mem_alloc_async(handle_, kind, size_bytes, alignment, &first));
        return first;
    }

    /// Frees memory behind the work that is queued so far.
    void deallocate(void *first) const { check(dtl_mem_free_async(handle_, first)); }

    /// Moves MANAGED memory near a device, or the host (DTL_PREFETCH_HOST).
    void prefetch(const void *first, uint64_t size_bytes, int device) const
    {
        check(dtl_mem_prefetch(handle_, first, size_bytes, device));
    }

    /// Calls the function on a host thread after the work queued so far. An exception becomes a failure
    /// of the stream (see dtl.hpp). It must not wait for this stream.
    template <class F> void host_callback(F &&function) const
    {
        using task = detail::deferred<std::decay_t<F>>;
        auto owner = std::unique_ptr<task>(new task{std::forward<F>(function)});
        check(dtl_stream_host_callback(handle_, &task::run, owner.get()));
        owner.release(); // it deletes itself
    }

    /// Launches a kernel; the arguments are copied now.
    template <class... Args>
    void launch(kernel_ref kernel, grid blocks, block threads, const Args &...arguments) const
    {
        launch_by(DTL_DISPATCH_ANY, kernel, blocks, threads, arguments...);
    }

    /// The same by a schedule: DTL_SCHEDULE_…, or one for which a handler is registered (dtl_launch_t::schedule).
    template <class... Args>
    void launch_by(detail::word_of<DTL_ENUM_SCHEDULE> by, kernel_ref kernel, grid blocks, block threads,
                   const Args &...arguments) const
    {
        static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are copied as bytes");
        dtl_launch_t shape = DTL_LAUNCH_INIT;
        shape.grid[0] = blocks.blocks_x, shape.grid[1] = blocks.blocks_y, shape.grid[2] = blocks.blocks_z;
        shape.block[0] = threads.threads_x, shape.block[1] = threads.threads_y;
        shape.block[2] = threads.threads_z;
        shape.schedule = by;
        const std::array<const void *, sizeof...(Args)> values{static_cast<const void *>(&arguments)...};
        const std::array<uint64_t, sizeof...(Args)> sizes{uint64_t{sizeof(Args)}...};
        check(dtl_kernel_launch(handle_, kernel.get(), &shape, values.data(), sizes.data(),
                                static_cast<uint32_t>(sizeof...(Args))));
    }

    void *native() const
    {
        void *native = nullptr;
        check(dtl_stream_native(handle_, &native));
        return native;
    }

  private:
    dtl_stream_t handle_{};
};

/// A stream; its destructor waits for its work (and ignores an unreported failure).
class stream {
  public:
    explicit stream(backend_ref backend = {}, int device = 0)
    {
        dtl_stream_t handle;
        check(dtl_stream_create(backend.get(), device, 0, &handle));
        handle_.reset(handle);
    }
    /// Creates a stream with a priority: lower numbers are higher priorities, clamped to the range of the device.
    stream(backend_ref backend, int device, int priority)
    {
        dtl_stream_t handle;
        check(dtl_stream_create_with_priority(backend.get(), device, 0, priority, &handle));
        handle_.reset(handle);
    }

    dtl_stream_t get() const noexcept { return handle_.get(); }
    stream_ref ref() const noexcept { return handle_.get(); }
    operator stream_ref() const noexcept { return ref(); }
    /// The view's functions: `stream->record(event)`.
    detail::arrow<stream_ref> operator->() const noexcept { return detail::arrow(ref()); }

  private:
    detail::owned<dtl_stream_t, dtl_stream_destroy> handle_;
};

/// Runs functions and loops on the host.
class executor {
  public:
    /// @param kind  An executor_kind, or DTL_EXECUTOR_…; 0 = the backend's own, else a pool.
    /// @param threads  of a pool; 0 = chosen.
    explicit executor(detail::enum_or_plain<executor_kind> kind = executor_kind::automatic,
                      uint32_t threads = 0,
                      backend_ref backend = {})
    {
        dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
        desc.kind = kind;
        desc.threads = threads;
        dtl_executor_t handle;
        check(dtl_executor_create(backend.get(), &desc, &handle));
        handle_.reset(handle);
    }

    dtl_executor_t get() const noexcept { return handle_.get(); }

    dtl_executor_info_t info() const
    {
        dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
        check(dtl_executor_info(get(), &info));
        return info;
    }

    /// Runs the function and waits for it.
    template <class F> void run(F &&function) const
    {
        using body = detail::waited<std::remove_reference_t<F>>;
        body state(function);
        const dtl_task_fn_t trampoline = [](void *user) { return body::from(user)(); };
        state.finish(dtl_executor_run(get(), trampoline, state.user()));
    }

    /// Starts the function; `done`, if given, completes with it. An exception becomes the failure of
    /// `done` and of synchronize().
    template <class F> void run_async(F &&function, event_ref done = {}) const
    {
        using task = detail::deferred<std::decay_t<F>>;
        auto owner = std::unique_ptr<task>(new task{std::forward<F>(function)});
        task *const started = owner.release(); // it deletes itself, maybe before the call returns
        const dtl_status_t status = dtl_executor_run_async(get(), &task::run, started, done.get());
        if (status != DTL_SUCCESS) {
            delete started;
            throw error(status);
        }
    }

    /// Calls body(begin, end) for pieces of at most `grain` iterations (0 = chosen), several at once.
    template <class F> void parallel_for(uint64_t begin, uint64_t end, uint64_t grain, F &&function) const
    {
        using body = detail::waited<std::remove_reference_t<F>>;
        body state(function);
        const dtl_range_fn_t trampoline = [](uint64_t first, uint64_t last, void *user) {
            return body::from(user)(first, last);
        };
        state.finish(dtl_executor_parallel_for(get(), begin, end, grain, trampoline, state.user()));
    }

    /// Folds pieces with fold(begin, end, T &acc) and joins them in order with combine(T &into, const T
    /// &from). The result does not depend on the number of threads. `combine` must not throw.
    template <class T, class Fold, class Combine>
    T parallel_reduce(uint64_t begin, uint64_t end, uint64_t grain, const T &identity, Fold &&fold,
                      Combine &&combine) const
    {
        static_assert(std::is_trivially_copyable_v<T>, "partial results are copied as bytes");
        static_assert(alignof(T) <= 64, "partial results are aligned to 64 bytes");
        using body = detail::waited<std::remove_reference_t<Fold>>;
        struct both {
            body fold;
            std::remove_reference_t<Combine> &combine;
        };
        both state{body(fold), combine};
        const dtl_fold_fn_t folding = [](uint64_t first, uint64_t last, void *acc, void *user) {
            return static_cast<both *>(user)->fold(first, last, *static_cast<T *>(acc));
        };
        const dtl_combine_fn_t combining = [](void *into, const void *from, void *user) {
            static_cast<both *>(user)->combine(*static_cast<T *>(into), *static_cast<const T *>(from));
        };
        T result = identity;
        state.fold.finish(dtl_executor_parallel_reduce(get(), begin, end, grain, sizeof(T), &identity,
                                                       folding, combining, &state, &result));
        return result;
    }

    /// Waits for what run_async started; throws its first failure.
    void synchronize() const { check(dtl_executor_wait(get(), DTL_TIMEOUT_INFINITE)); }

    /// Waits at most this long; false = not yet done.
    bool wait_for(std::chrono::nanoseconds limit) const
    {
        return detail::done_in_time(dtl_executor_wait(get(), detail::nanoseconds(limit)));
    }

  private:
    detail::owned<dtl_executor_t, dtl_executor_destroy> handle_;
};

} // namespace dtl

#endif
