// Tracing of the C++ face: a file, and functions of another tool. Part of dtl.hpp.
#ifndef DTL_TRACE_HPP
#define DTL_TRACE_HPP

#include "error.hpp"

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
        static_cast<void>(status); // it fails if the library is finalized, which tells nobody any more
    }
};

} // namespace dtl

#endif
