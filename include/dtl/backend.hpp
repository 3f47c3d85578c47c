// Library, log, backends and devices of the C++ face. Part of dtl.hpp.
#ifndef DTL_BACKEND_HPP
#define DTL_BACKEND_HPP

#include "error.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtl {

/// dtl_init now, dtl_finalize at the end of the scope. Declare it before what uses the library.
class library {
  public:
    library() { check(dtl_init(nullptr)); }
    explicit library(const dtl_config_t &config) { check(dtl_init(&config)); }
    library(const library &) = delete;
    library &operator=(const library &) = delete;
    ~library() { DTL_IGNORE(dtl_finalize()); }
};

/// Receives the log as long as it lives; afterwards lines go to standard error again. Exceptions of
/// the function are swallowed. Let it outlive the threads that use the library.
class log_sink {
  public:
    using function = std::function<void(int level, std::string_view text)>;

    explicit log_sink(function receiver, int level = DTL_LOG_INFO)
        : receiver_(std::make_unique<function>(std::move(receiver)))
    {
        check(dtl_log_set_callback(&receive, receiver_.get(), level));
    }
    log_sink(const log_sink &) = delete;
    log_sink &operator=(const log_sink &) = delete;
    ~log_sink() { DTL_IGNORE(dtl_log_set_callback(nullptr, nullptr, DTL_LOG_WARN)); }

  private:
    static void receive(int32_t level, const char *text, void *user) noexcept
    {
        try {
            (*static_cast<function *>(user))(level, text);
        } catch (...) {
            // The line is lost; the call that logged it is not to blame.
        }
    }

    std::unique_ptr<function> receiver_;
};

/// Automatic choices so far and their reasons, a line each.
inline std::string explain()
{
    return detail::text_of(dtl_explain);
}

/// View of a backend. Default: the calling thread's current one.
class backend_ref {
  public:
    backend_ref() noexcept = default;
    backend_ref(dtl_backend_t handle) noexcept : handle_(handle) {}

    /// By name; "auto" chooses.
    explicit backend_ref(const char *name) { check(dtl_backend_get(name, &handle_)); }

    /// Returns a backend by name; throws DTL_ERROR_UNAVAILABLE with the reason if it cannot run on this machine.
    static backend_ref require(const char *name)
    {
        dtl_backend_t handle;
        check(dtl_backend_require(name, &handle));
        return handle;
    }

    /// Every registered backend.
    static std::vector<backend_ref> all()
    {
        uint64_t count = 0;
        check(dtl_backend_count(&count));
        std::vector<backend_ref> backends;
        for (uint64_t i = 0; i < count; i++) {
            dtl_backend_t backend;
            check(dtl_backend_at(i, &backend));
            backends.emplace_back(backend);
        }
        return backends;
    }

    /// Loads a plugin file, which stays until the process ends; the first of its backends.
    static backend_ref load(const char *path)
    {
        dtl_backend_t backend;
        check(dtl_backend_load(path, &backend));
        return backend;
    }

    /// Loads the plugin files (*.so) of a folder; how many of them are loaded now. Those that fail keep
    /// none of the others back, and are in plugins() with their reasons.
    static uint64_t load_dir(const char *folder)
    {
        uint64_t loaded = 0;
        check(dtl_backend_load_dir(folder, &loaded));
        return loaded;
    }

    dtl_backend_t get() const noexcept { return handle_; }

    std::string name() const
    {
        return info().name;
    }

    dtl_backend_info_t info() const
    {
        dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
        check(dtl_backend_info(handle_, &info));
        return info;
    }

    /// Whether it can run here; if not, `why` says why not.
    bool is_available(std::string *why = nullptr) const
    {
        int32_t yes = 0;
        char text[4096] = "";
        check(dtl_backend_is_available(handle_, &yes, text, sizeof text, nullptr));
        if (why != nullptr) {
            *why = text;
        }
        return yes != 0;
    }

    bool supports(const char *feature) const
    {
        int32_t yes = 0;
        check(dtl_backend_supports(handle_, feature, &yes));
        return yes != 0;
    }

    int device_count() const
    {
        int32_t count = 0;
        check(dtl_backend_device_count(handle_, &count));
        return count;
    }

    /// Makes a device the calling thread's current one.
    void set_device(int device) const { check(dtl_backend_set_device(handle_, device)); }

    int device() const
    {
        int32_t device = 0;
        check(dtl_backend_get_device(handle_, &device));
        return device;
    }

    dtl_device_info_t device_info(int device) const
    {
        dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
        check(dtl_device_info(handle_, device, &info));
        return info;
    }

  private:
    dtl_backend_t handle_{};
};

/// What became of every plugin file that was tried. The texts live as long as the process.
inline std::vector<dtl_plugin_info_t> plugins()
{
    uint64_t count = 0;
    check(dtl_plugin_count(&count));
    std::vector<dtl_plugin_info_t> all;
    for (uint64_t i = 0; i < count; i++) {
        dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
        check(dtl_plugin_at(i, &info));
        all.push_back(info);
    }
    return all;
}

/// A backend of the program's own, registered as long as this lives. Destroy its allocations, streams, events, executors
/// and communicators before: while one lives the backend stays (DTL_ERROR_BUSY, which a destructor cannot tell), and the
/// library still calls its slots.
class registered_backend {
  public:
    registered_backend(const char *name, const dtl_backend_vtable_t &table, void *self, uint64_t flags = 0)
    {
        dtl_backend_t backend;
        check(dtl_backend_register(name, &table, self, flags, &backend));
        handle_.reset(backend);
    }

    backend_ref ref() const noexcept { return handle_.get(); }
    dtl_backend_t get() const noexcept { return handle_.get(); }

  private:
    detail::owned<dtl_backend_t, dtl_backend_unregister> handle_;
};

} // namespace dtl

#endif
