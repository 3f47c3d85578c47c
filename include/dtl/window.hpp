// Windows of the C++ interface: one-sided communication. Part of dtl.hpp.
#ifndef DTL_WINDOW_HPP
#define DTL_WINDOW_HPP

#include "comm.hpp"

#include <memory>

namespace dtl {

namespace detail {

/// Ends a window whatever its state, so that nothing touches its memory or a buffer afterwards.
inline dtl_status_t end_window(dtl_win_t window)
{
    dtl_status_t status = dtl_win_destroy(window);
    if (status == DTL_ERROR_INVALID_STATE) { // locks that nobody took back
        dtl_win_info_t info = DTL_WIN_INFO_INIT;
        DTL_IGNORE(dtl_win_info(window, 0, &info));
        while (dtl_win_unlock_all(window) == DTL_ERROR_TIMEOUT) {
        }
        for (int32_t target = 0; target < info.ranks; target++) {
            while (dtl_win_unlock(window, target) == DTL_ERROR_TIMEOUT) {
            }
        }
        status = dtl_win_destroy(window);
    }
    if (status == DTL_ERROR_INVALID_STATE) { // operations after a fence, and no fence after them
        DTL_IGNORE(dtl_win_fence(window));
        status = dtl_win_destroy(window);
    }
    // The others did not come, or are elsewhere: a second call does not wait for them.
    return status == DTL_SUCCESS ? status : dtl_win_destroy(window);
}

/// The elements of one operation that is waited for.
template <class T> struct cells {
    T value, expected, before;
};

/// Begins an operation on elements of this thread's own and waits for it; what was at the target before.
template <class T, class F> T fetched(dtl_win_t window, detail::rank_in target, T value, T expected,
                                      F begin)
{
    static thread_local std::unique_ptr<cells<T>> mine;
    if (!mine) {
        mine = std::make_unique<cells<T>>();
    }
    *mine = cells<T>{value, expected, T{}};
    check(begin(*mine));
    const dtl_status_t status = dtl_win_flush_local(window, target);
    if (status != DTL_SUCCESS) {
        // The operation may go on and write there later: these cells are given up, and the next call has others.
        static_cast<void>(mine.release());
        throw error(status);
    }
    return mine->before;
}

} // namespace detail

/// A lock of one target, or of all, from its making to unlock() or its destructor: operations on the target belong in
/// between. Of window_ref's lock() and lock_all().
///
/// The destructor unlocks as well and waits, whatever the time limit, until the operations are over, as their
/// buffers may end with the same scope. Their failure is dropped: call unlock() to be told.
class window_lock {
  public:
    /// None.
    window_lock() noexcept = default;

    /// Of one target; `type` is DTL_LOCK_SHARED or DTL_LOCK_EXCLUSIVE.
    window_lock(dtl_win_t window, detail::rank_in target,
                detail::enum_or_plain<lock_type> type) : target_(target)
    {
        check(dtl_win_lock(window, type, target));
        window_ = window;
    }

    /// Of all targets, shared.
    explicit window_lock(dtl_win_t window)
    {
        check(dtl_win_lock_all(window));
        window_ = window;
    }

    window_lock(window_lock &&other) noexcept
        : window_(std::exchange(other.window_, dtl_win_t{})), target_(other.target_)
    {
    }
    window_lock &operator=(window_lock &&other) noexcept
    {
        if (this != &other) {
            abandon();
            window_ = std::exchange(other.window_, dtl_win_t{});
            target_ = other.target_;
        }
        return *this;
    }
    window_lock(const window_lock &) = delete;
    window_lock &operator=(const window_lock &) = delete;
    ~window_lock() { abandon(); }

    explicit operator bool() const noexcept { return window_.id != 0; }

    /// Ends the epoch: all that was called in it is done, here and at the target. Throws the first failure; after
    /// DTL_ERROR_TIMEOUT the lock stays and the operations go on, after any other it is gone.
    void unlock()
    {
        const dtl_status_t status = end(window_);
        if (status != DTL_ERROR_TIMEOUT) {
            window_ = {};
        }
        check(status);
    }

  private:
    dtl_status_t end(dtl_win_t window) const noexcept
    {
        return target_ ? dtl_win_unlock(window, *target_) : dtl_win_unlock_all(window);
    }

    void abandon() noexcept
    {
        const dtl_win_t window = std::exchange(window_, dtl_win_t{});
        if (window.id != 0) {
            while (end(window) == DTL_ERROR_TIMEOUT) {
            }
        }
    }

    dtl_win_t window_{};
    std::optional<int> target_; // none: all
};

/// View of a window of elements T. Counts and displacements are in elements; displacements count in the target's part.
///
/// Elements are T; another type that the program keeps there is named: `window->put<double>(data, …)`, with
/// displacements still in T. Put and get move any type as its bytes, the others take those that have a dtype.
/// Buffers: until a flush, unlock or fence, what is put must stay as it is, and what is got is not there yet.
template <class T> class window_ref {
  public:
    window_ref() noexcept = default;
    window_ref(dtl_win_t handle) noexcept : handle_(handle) {}

    dtl_win_t get() const noexcept { return handle_; }

    /// A rank's part.
    dtl_win_info_t info(detail::rank_in of) const
    {
        dtl_win_info_t info = DTL_WIN_INFO_INIT;
        check(dtl_win_info(handle_, of, &info));
        return info;
    }

    /// Ends the epoch of the fence before, on all ranks, and opens another. All ranks call.
    void fence() const { check(dtl_win_fence(handle_)); }

    /// Opens an epoch to one target: `const auto lock = window->lock(0);`.
    [[nodiscard]] window_lock lock(detail::rank_in target,
                                   detail::enum_or_plain<lock_type> type = lock_type::shared) const
    {
        return window_lock(handle_, target, type);
    }

    /// Opens an epoch to all targets.
    [[nodiscard]] window_lock lock_all() const { return window_lock(handle_); }

    /// Waits until operations on a target are done, here and there. All flushes need a lock.
    void flush(detail::rank_in target) const { check(dtl_win_flush(handle_, target)); }
    /// The same for all targets.
    void flush_all() const { check(dtl_win_flush_all(handle_)); }
    /// Waits until they are done here: buffers may be used again, what was fetched is there.
    void flush_local(detail::rank_in target) const { check(dtl_win_flush_local(handle_, target)); }
    /// The same for all targets.
    void flush_local_all() const { check(dtl_win_flush_local_all(handle_)); }

    template <class U = T> void put(detail::in<U> data, uint64_t count, detail::rank_in target,
                                    uint64_t disp) const
    {
        check(dtl_win_put(handle_, data, bytes<U>(count), DTL_DTYPE_BYTE, target, disp));
    }

    template <class U = T> void get(detail::out<U> data, uint64_t count, detail::rank_in target,
                                    uint64_t disp) const
    {
        check(dtl_win_get(handle_, data, bytes<U>(count), DTL_DTYPE_BYTE, target, disp));
    }

    /// The request is done when `data` may be used again.
    template <class U = T>
    [[nodiscard]] request rput(detail::in<U> data, uint64_t count, detail::rank_in target,
                               uint64_t disp) const
    {
        dtl_request_t handle;
        check(dtl_win_rput(handle_, data, bytes<U>(count), DTL_DTYPE_BYTE, target, disp, &handle));
        return request(handle);
    }

    /// The request is done when the elements are there.
    template <class U = T>
    [[nodiscard]] request rget(detail::out<U> data, uint64_t count, detail::rank_in target,
                               uint64_t disp) const
    {
        dtl_request_t handle;
        check(dtl_win_rget(handle_, data, bytes<U>(count), DTL_DTYPE_BYTE, target, disp, &handle));
        return request(handle);
    }

    /// there[i] = there[i] ∘ data[i], atomically for each element. DTL_OP_REPLACE is an atomic put.
    template <class U = T>
    void accumulate(detail::in<U> data, uint64_t count, detail::rank_in target, uint64_t disp,
                    detail::op<U> op) const
    {
        check(dtl_win_accumulate(handle_, data, count, dtype<U>(), target, disp, op));
    }

    /// The same, and `before` gets what was there. DTL_OP_NO_OP (and `data` null) is an atomic get.
    template <class U = T>
    void get_accumulate(detail::in<U> data, detail::out<U> before, uint64_t count,
                        detail::rank_in target, uint64_t disp,
                        detail::op<U> op) const
    {
        check(dtl_win_get_accumulate(handle_, data, before, count, dtype<U>(), target, disp, op));
    }

    /// The same for one element.
    template <class U = T>
    void fetch_op(detail::in<U> value, detail::out<U> before, detail::rank_in target, uint64_t disp,
                  detail::op<U> op) const
    {
        check(dtl_win_fetch_op(handle_, value, before, dtype<U>(), target, disp, op));
    }

    /// Stores `value` if `expected` is there, as one step; `before` gets what was there.
    template <class U = T>
    void compare_and_swap(detail::in<U> value, detail::in<U> expected, detail::out<U> before,
                          detail::rank_in target,
                          uint64_t disp) const
    {
        check(dtl_win_compare_and_swap(handle_, value, expected, before, dtype<U>(), target, disp));
    }

    // With values instead of pointers: begun and waited for (flush_local), so between lock and unlock only.

    /// What was there before: `const auto mine = counters->fetch_op(1, 0, 0, DTL_OP_SUM);`.
    template <class U = T>
    U fetch_op(typename detail::same<U>::type value, detail::rank_in target, uint64_t disp,
               detail::op<U> op) const
    {
        return detail::fetched<U>(handle_, target, value, U{}, [&](detail::cells<U> &cells) {
            return dtl_win_fetch_op(handle_, &cells.value, &cells.before, dtype<U>(), target, disp,
                                    op);
        });
    }

    /// What was there before; `value` was stored if that is `expected`.
    template <class U = T>
    U compare_and_swap(typename detail::same<U>::type value,
                       typename detail::same<U>::type expected, detail::rank_in target,
                       uint64_t disp) const
    {
        return detail::fetched<U>(handle_, target, value, expected, [&](detail::cells<U> &cells) {
            return dtl_win_compare_and_swap(handle_, &cells.value, &cells.expected, &cells.before,
                                            dtype<U>(),
                                            target, disp);
        });
    }

    // With a contiguous container of T instead of pointer and count.

    template <class C, class = detail::lasting<C>> void put(C &&data, detail::rank_in target,
                                                            uint64_t disp) const
    {
        put(elements_of(data), std::size(data), target, disp);
    }

    template <class C, class = detail::lasting<C>> void get(C &&data, detail::rank_in target,
                                                            uint64_t disp) const
    {
        get(elements_of(data), std::size(data), target, disp);
    }

    template <class C, class = detail::lasting<C>>
    [[nodiscard]] request rput(C &&data, detail::rank_in target, uint64_t disp) const
    {
        return rput(elements_of(data), std::size(data), target, disp);
    }

    template <class C, class = detail::lasting<C>>
    [[nodiscard]] request rget(C &&data, detail::rank_in target, uint64_t disp) const
    {
        return rget(elements_of(data), std::size(data), target, disp);
    }

    template <class C, class = detail::lasting<C>>
    void accumulate(C &&data, detail::rank_in target, uint64_t disp, detail::op<T> op) const
    {
        accumulate(elements_of(data), std::size(data), target, disp, op);
    }

  private:
    template <class U> static uint64_t bytes(uint64_t count) noexcept
    {
        static_assert(std::is_trivially_copyable_v<U>, "elements are moved as bytes");
        return detail::bytes_of<U>(count);
    }

    template <class C> static auto elements_of(C &container) noexcept
    {
        using found = std::remove_pointer_t<decltype(std::data(container))>;
        static_assert(std::is_same_v<std::remove_const_t<found>, T>,
                      "elements of another type than the window's: give type, pointer and count");
        return std::data(container);
    }

    dtl_win_t handle_{};
};

/// Memory of each rank, `size()` elements of this one, that the others read and change. Making and ending one is
/// collective: all ranks do it, each with memory of its own, also none. A displacement's step is one element.
///
/// The destructor (and an assignment to a window that is there) waits for the other ranks. It ends the window
/// whatever happened before: it gives back locks, calls the fence that is missing after operations, and when the other
/// ranks fail or do something else ends without them. So it may come with an exception; failures are dropped.
/// destroy() tells them.
template <class T> class window {
    static_assert(std::is_trivially_copyable_v<T>, "a window's elements are moved as bytes");

  public:
    /// None.
    window() noexcept = default;

    /// Over memory of the program's, which stays until the window's end (declare it before).
    window(comm_ref comm, T *data, uint64_t count)
    {
        dtl_win_t handle;
        check(dtl_win_create(comm.get(), data, detail::bytes_of<T>(count), sizeof(T), &handle));
        own(handle, data, count);
    }

    /// Over a contiguous container's elements; it must not move them meanwhile.
    template <class C, class = std::enable_if_t<std::is_same_v<detail::element<C>, T>>>
    window(comm_ref comm, C &data) : window(comm, std::data(data), std::size(data))
    {
    }

    /// Over memory that the library allocates, zeroed. Prefer it: on one node the others reach it by themselves.
    window(comm_ref comm, uint64_t count)
    {
        dtl_win_t handle;
        void *first = nullptr;
        check(dtl_win_allocate(comm.get(), detail::bytes_of<T>(count), sizeof(T), &first, &handle));
        own(handle, static_cast<T *>(first), count);
    }

    window(window &&other) noexcept { swap(other); }
    window &operator=(window &&other) noexcept
    {
        window moved(std::move(other));
        swap(moved);
        return *this;
    }
    window(const window &) = delete;
    window &operator=(const window &) = delete;
    ~window() = default;

    /// Ends the window; throws if an epoch is open, or the other ranks do not come: then it is there still, and the
    /// destructor ends it without them. None: nothing happens.
    void destroy()
    {
        check(dtl_win_destroy(get()));
        static_cast<void>(handle_.release());
        own({}, nullptr, 0);
    }

    dtl_win_t get() const noexcept { return handle_.get(); }
    window_ref<T> ref() const noexcept { return get(); }
    operator window_ref<T>() const noexcept { return ref(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /// The view's functions: `window->fence()`.
    detail::arrow<window_ref<T>> operator->() const noexcept { return detail::arrow(ref()); }

    // This rank's part. What others have put is seen after a fence, or their flush and a message that says so.

    T *data() const noexcept { return data_; }
    uint64_t size() const noexcept { return size_; }
    T *begin() const noexcept { return data_; }
    T *end() const noexcept { return data_ + size_; }
    T &operator[](uint64_t index) const noexcept { return data_[index]; }

    void swap(window &other) noexcept
    {
        std::swap(handle_, other.handle_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

  private:
    void own(dtl_win_t handle, T *data, uint64_t size) noexcept
    {
        handle_.reset(handle);
        data_ = data;
        size_ = size;
    }

    detail::owned<dtl_win_t, detail::end_window> handle_;
    T *data_ = nullptr;
    uint64_t size_ = 0;
};

template <class C> window(comm_ref, C &) -> window<detail::element<C>>;

} // namespace dtl

#endif
