// Tracing in C++: a trace file, functions of another tool, and events of a plugin. Part of dtl.hpp.
#ifndef DTL_TRACE_HPP
#define DTL_TRACE_HPP

#include "error.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace dtl {

/// Writes a trace as long as it lives. One at a time: a second one throws DTL_ERROR_INVALID_STATE.
class trace {
  public:
    /// See dtl_trace_start for what %r and %p in the path stand for.
    explicit trace(const std::string &path) { check(dtl_trace_start(path.c_str())); }
    trace(const trace &) = delete;
    trace &operator=(const trace &) = delete;
    ~trace()
    {
        if (writes_) {
            const dtl_status_t status = dtl_trace_stop();
            static_cast<void>(status); // dtl_finalize has ended it, or the disk is full, of which there was a warning
        }
    }

    /// Ends the file now; throws if it is not whole.
    void stop()
    {
        writes_ = false;
        check(dtl_trace_stop());
    }

  private:
    bool writes_ = true;
};

/// Tells a tool of what is traced, as long as this lives: `tool.begin(event)` and `tool.end(event)`, which do not throw and
/// keep to what dtl_trace_fn_t says. Calls of other threads may be in them a moment longer than this lives.
template <class Tool> class trace_listener {
  public:
    explicit trace_listener(Tool &tool)
    {
        static_assert(noexcept(tool.begin(std::declval<const dtl_trace_event_t &>())) &&
                          noexcept(tool.end(std::declval<const dtl_trace_event_t &>())),
                      "begin and end of a tool are noexcept: C functions call them");
        const dtl_trace_callbacks_t table = {
            sizeof table, 0, &tool,
            [](const dtl_trace_event_t *event, void *user) { static_cast<Tool *>(user)->begin(*event); },
            [](const dtl_trace_event_t *event, void *user) { static_cast<Tool *>(user)->end(*event); }};
        check(dtl_trace_set_callbacks(&table));
    }
    trace_listener(const trace_listener &) = delete;
    trace_listener &operator=(const trace_listener &) = delete;
    ~trace_listener()
    {
        const dtl_status_t status = dtl_trace_set_callbacks(nullptr);
        static_cast<void>(status); // it fails if the library is finalized, after which no events occur
    }
};

/// Records events of a plugin in the traces of the library: spans of the calling thread, work of devices, counters
/// (dtl_host_api_t.trace_is_on and the functions after it). While nothing receives events, each function costs one
/// load and records nothing. With a library that is older than this header, nothing is recorded. Failures are not
/// reported.
class trace_recorder {
  public:
    trace_recorder() = default;
    explicit trace_recorder(const dtl_host_api_t *host) noexcept
        : host_(host != nullptr && DTL_HOST_HAS(host, trace_counter) ? host : nullptr)
    {
    }

    /// Whether something receives events. If not, skip work that only a trace needs.
    bool is_on() const noexcept { return host_ != nullptr && host_->trace_is_on() != 0; }

    /// Time of the trace in nanoseconds; convert times of a device to this clock. 0: the library is older.
    std::uint64_t now() const noexcept { return host_ != nullptr ? host_->trace_now() : 0; }

    /// Span of the calling thread, from the construction of the object to its destruction.
    class span {
      public:
        span(const trace_recorder &recorder, const char *category, const char *name,
             const char *what = nullptr) noexcept
            : host_(recorder.host_)
        {
            if (host_ != nullptr && host_->trace_begin(category, name, what, &number_) != DTL_SUCCESS) {
                number_ = 0;
            }
        }
        span(const span &) = delete;
        span &operator=(const span &) = delete;
        ~span()
        {
            if (number_ != 0) {
                static_cast<void>(host_->trace_end(number_));
            }
        }

      private:
        const dtl_host_api_t *host_;
        std::uint64_t number_ = 0;
    };

    /// Track of a stream in the group of its device, whether tracing is on or not; 0: there is none.
    std::uint64_t track(const char *group, const char *name) const noexcept
    {
        std::uint64_t number = 0;
        return host_ != nullptr && host_->trace_track(group, name, &number) == DTL_SUCCESS ? number : 0;
    }

    /// Records work of a device that has ended; start `work` from DTL_TRACE_SPAN_INIT.
    void record(const dtl_trace_span_t &work) const noexcept
    {
        if (host_ != nullptr) {
            static_cast<void>(host_->trace_span(&work));
        }
    }

    /// Records the value of a counter, now or at a time of now(), in the group of a track; 0: with the rank.
    void counter(std::uint64_t track, const char *name, double value, std::uint64_t time_ns = 0) const noexcept
    {
        if (host_ != nullptr) {
            static_cast<void>(host_->trace_counter(track, name, time_ns, value));
        }
    }

  private:
    const dtl_host_api_t *host_ = nullptr;
};

} // namespace dtl

#endif
