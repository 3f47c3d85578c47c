// Library, log, backends and devices of the C++ interface. Part of dtl.hpp.
#ifndef DTL_BACKEND_HPP
#define DTL_BACKEND_HPP

#include "error.hpp"
#include "strong.hpp"

#include <chrono>
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

    /// Makes the library usable in a child that was forked from a process that used it:
    /// `const dtl::library mine = dtl::library::after_fork();`. Objects of the parent are stale in
    /// the child; their destructors do no harm. Throws DTL_ERROR_INVALID_STATE if this is no such
    /// child, or another thread was inside the library at the fork.
    static library after_fork() { return library(forked{}); }

  private:
    struct forked {};
    explicit library(forked) { check(dtl_init_after_fork()); }
};

/// Version of the library that is loaded; DTL_VERSION_MAJOR and its fellows are those of the
/// header.
struct library_version {
    int major, minor, patch;
    /// DTL_ABI_VERSION of the library.
    uint32_t abi;
    /// "major.minor.patch". Valid until the process ends.
    std::string_view text;
};

/// Returns the version of the library that is loaded. Works in every state of the library.
inline library_version version() noexcept
{
    return {dtl_version_major(), dtl_version_minor(), dtl_version_patch(),
            dtl_library_abi_version(), dtl_version_string()};
}

/// Receives the log as long as it lives; afterwards lines go to standard error again. Exceptions of
/// the function are swallowed. Let it outlive the threads that use the library.
class log_sink {
  public:
    using function = std::function<void(int level, std::string_view text)>;

    explicit log_sink(function receiver, detail::enum_or_plain<log_level> level = log_level::info)
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

/// Memory of a device in bytes; 0 = the backend does not know.
struct device_memory {
    uint64_t free_bytes, total_bytes;
};

/// Priorities that a device has for streams: greatest <= 0 <= least. Lower numbers are higher
/// priorities. Both are 0 if it has only one.
struct stream_priorities {
    int32_t least, greatest;
};

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

    /// Registers the backends of a plugin that is linked into the program, and returns the first of
    /// them. If they are registered already, nothing changes. Any thread may call; one loads at a
    /// time.
    static backend_ref register_plugin(dtl_plugin_entry_fn_t entry)
    {
        dtl_backend_t backend;
        check(dtl_plugin_register(entry, &backend));
        return backend;
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

    /// Returns the free and total memory of a device.
    device_memory memory_of(int device) const
    {
        device_memory memory{};
        check(dtl_device_memory_info(handle_, device, &memory.free_bytes, &memory.total_bytes));
        return memory;
    }

    /// Blocks until all work on a device is complete; throws the first failure.
    void synchronize(int device = 0) const
    {
        check(dtl_device_wait(handle_, device, DTL_TIMEOUT_INFINITE));
    }

    /// Waits at most this long for the work on a device; false = it is not complete.
    bool wait_for(int device, std::chrono::nanoseconds limit) const
    {
        return detail::done_in_time(dtl_device_wait(handle_, device, detail::nanoseconds(limit)));
    }

    /// Returns the range of the priorities of streams on a device.
    stream_priorities priorities_of(int device) const
    {
        stream_priorities range{};
        check(dtl_stream_priority_range(handle_, device, &range.least, &range.greatest));
        return range;
    }

    /// Returns the number and size of the live allocations.
    dtl_mem_stats_t memory_stats() const
    {
        dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
        check(dtl_mem_stats(handle_, &stats));
        return stats;
    }

    /// Returns cached free memory to the system; see dtl_mem_trim for what is cached.
    void trim_memory() const { check(dtl_mem_trim(handle_)); }

    /// Runs the quick conformance tests in this process, which a broken backend may crash. Throws
    /// the status of the first check that failed; the text names the check.
    ///
    /// @param report  If not null, gets one line per check, "ok", "skipped" or "failed", also when
    ///                the call throws.
    void self_test(std::string *report = nullptr) const
    {
        std::string lines(65536, '\0'); // 4096 are enough for a backend without failures
        uint64_t length = 0;
        const dtl_status_t status = dtl_backend_self_test(handle_, &lines[0], lines.size(),
                                                          &length);
        if (report != nullptr) {
            lines.resize(length < lines.size() ? length : 0); // longer: nothing was written
            *report = std::move(lines);
        }
        check(status);
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
    registered_backend(const char *name, const dtl_backend_vtable_t &table, void *self,
                       detail::enum_or_plain<backend_flags> flags = backend_flags::none)
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
