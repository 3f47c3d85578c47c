// Errors of the C++ interface: the exception, and the way of exceptions through C callbacks. Part of dtl.hpp.
#ifndef DTL_ERROR_HPP
#define DTL_ERROR_HPP

#include "../dtl.h"

#include <chrono>
#include <atomic>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace dtl {

#ifdef DTL_IN_PLUGIN // defined by dtl/plugin.hpp: the library is not linked
namespace detail {
/// Functions of the library, from the entry of the plugin.
__attribute__((visibility("hidden"))) inline const dtl_host_api_t *host_api = nullptr;

inline std::string described(dtl_status_t status, const std::string &text)
{
    return text.empty() ? "status " + std::to_string(status) : text;
}
inline const char *last_text() noexcept { return ""; }
inline dtl_status_t set_text(const char *text) noexcept { return host_api->set_error(text); }
} // namespace detail
#else
namespace detail {
inline std::string described(dtl_status_t status, const std::string &text)
{
    return std::string(dtl_status_name(status)) + ": " + (text.empty() ? dtl_status_message(status) : text);
}
inline const char *last_text() noexcept { return dtl_last_error(); }
inline dtl_status_t set_text(const char *text) noexcept { return dtl_backend_set_error(text); }
} // namespace detail
#endif

/// A call that failed: its status, and as what() the name and the text.
class error : public std::runtime_error {
  public:
    /// With the calling thread's last text (as set by the call that just failed).
    explicit error(dtl_status_t status) : error(status, detail::last_text()) {}

    error(dtl_status_t status, const std::string &text)
        : std::runtime_error(detail::described(status, text)), status_(status)
    {
    }

    dtl_status_t status() const noexcept { return status_; }

  private:
    dtl_status_t status_;
};

/// Throws dtl::error unless the status is success: `dtl::check(dtl_init(nullptr))`.
inline void check(dtl_status_t status)
{
    if (status != DTL_SUCCESS) {
        throw error(status);
    }
}

#ifndef DTL_IN_PLUGIN
/// Records a failure for callers in C, for example of a library over libdtl: dtl_last_error returns
/// `what` afterwards. `catch (const dtl::error &e) { return dtl::set_error(e.status(), e.what()); }`
///
/// @return `status`.
inline dtl_status_t set_error(dtl_status_t status, const char *what) noexcept
{
    return dtl_error_set(status, what);
}
#endif

namespace detail {

/// A time limit for a C call; what has passed already is 0.
inline uint64_t nanoseconds(std::chrono::nanoseconds limit)
{
    return limit.count() > 0 ? static_cast<uint64_t>(limit.count()) : 0;
}

/// Returns false if a wait reached its limit; throws any other failure.
inline bool done_in_time(dtl_status_t status)
{
    if (status != DTL_ERROR_TIMEOUT) {
        check(status);
    }
    return status != DTL_ERROR_TIMEOUT;
}

/// Text of a function that writes to (buf, cap, out_len). The text may grow between two calls, hence the loop.
template <class F> std::string text_of(F &&call)
{
    std::string text(256, '\0');
    uint64_t length = 0;
    dtl_status_t status;
    while ((status = call(&text[0], text.size(), &length)) == DTL_ERROR_BUFFER_TOO_SMALL) {
        text.resize(length + 256);
    }
    check(status);
    text.resize(length);
    return text;
}

/// Calls a callback that returns void or a status.
template <class F, class... Args> dtl_status_t invoke(F &function, Args &&...args)
{
    using result = std::invoke_result_t<F &, Args &&...>;
    static_assert(std::is_void_v<result> || std::is_same_v<result, dtl_status_t>,
                  "a callback returns void or dtl_status_t");
    if constexpr (std::is_void_v<result>) {
        function(std::forward<Args>(args)...);
        return DTL_SUCCESS;
    } else {
        return function(std::forward<Args>(args)...);
    }
}

/// The status that stands for the exception being handled.
inline dtl_status_t current_status() noexcept
{
    try {
        throw;
    } catch (const error &failure) {
        return failure.status();
    } catch (const std::bad_alloc &) {
        return DTL_ERROR_OUT_OF_MEMORY;
    } catch (...) {
        return DTL_ERROR_CANCELED;
    }
}

/// A callback of a call that waits for it: keeps the first exception and throws it again afterwards.
template <class F> class waited {
  public:
    explicit waited(F &function) noexcept : function_(function) {}

    template <class... Args> dtl_status_t operator()(Args &&...args) noexcept
    {
        try {
            return invoke(function_, std::forward<Args>(args)...);
        } catch (...) {
            if (!caught_.test_and_set()) {
                exception_ = std::current_exception();
            }
            return current_status();
        }
    }

    /// Ends the call: the original exception if there was one, else as `check`.
    void finish(dtl_status_t status)
    {
        if (exception_) {
            std::rethrow_exception(exception_);
        }
        check(status);
    }

    /// `user` of the C call.
    void *user() noexcept { return this; }

    static waited &from(void *user) noexcept { return *static_cast<waited *>(user); }

  private:
    F &function_;
    std::exception_ptr exception_;
    std::atomic_flag caught_ = ATOMIC_FLAG_INIT;
};

/// A callback that runs later, once: lives on the heap until then.
template <class F> struct deferred {
    F function;

    static dtl_status_t run(void *user) noexcept
    {
        deferred *self = static_cast<deferred *>(user);
        dtl_status_t status;
        try {
            status = invoke(self->function);
        } catch (...) {
            status = current_status();
        }
        delete self;
        return status;
    }
};

/// Fails a slot of a backend's table: the text becomes part of the caller's dtl_last_error.
inline dtl_status_t slot_failure(dtl_status_t status, const char *text) noexcept
{
    DTL_IGNORE(set_text(text));
    return status;
}

/// Runs the body of a slot, which returns a status. An exception becomes a status, too, with its text: that of a
/// dtl::error, DTL_ERROR_OUT_OF_MEMORY of a std::bad_alloc, DTL_ERROR_BACKEND of anything else.
template <class F> dtl_status_t slot(F &&body) noexcept
{
    try {
        return body();
    } catch (const error &failure) {
        const bool failed = failure.status() != DTL_SUCCESS;
        return slot_failure(failed ? failure.status() : DTL_ERROR_BACKEND, failure.what());
    } catch (const std::bad_alloc &failure) {
        return slot_failure(DTL_ERROR_OUT_OF_MEMORY, failure.what());
    } catch (const std::exception &failure) {
        return slot_failure(DTL_ERROR_BACKEND, failure.what());
    } catch (...) {
        return slot_failure(DTL_ERROR_BACKEND, "an exception that is no std::exception");
    }
}

/// What `owner->` gives: the functions of its view.
template <class View> class arrow {
  public:
    explicit arrow(View view) noexcept : view_(view) {}
    const View *operator->() const noexcept { return &view_; }

  private:
    View view_;
};

/// A handle that is destroyed with its owner.
template <class Handle, dtl_status_t (*Destroy)(Handle)> class owned {
  public:
    owned() noexcept = default;
    explicit owned(Handle handle) noexcept : handle_(handle) {}
    owned(owned &&other) noexcept : handle_(other.release()) {}
    owned &operator=(owned &&other) noexcept
    {
        if (this != &other) {
            reset(other.release());
        }
        return *this;
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() { reset(); }

    Handle get() const noexcept { return handle_; }

    /// Gives the handle away; the caller destroys it.
    Handle release() noexcept { return std::exchange(handle_, Handle{}); }

    /// Destroys the handle and owns another one (or none).
    void reset(Handle handle = Handle{}) noexcept
    {
        const Handle old = std::exchange(handle_, handle);
        if (old.id != 0) {
            DTL_IGNORE(Destroy(old));
        }
    }

    explicit operator bool() const noexcept { return handle_.id != 0; }

  private:
    Handle handle_{};
};

} // namespace detail
} // namespace dtl

#endif
