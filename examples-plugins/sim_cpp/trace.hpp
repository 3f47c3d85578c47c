// Traces: each kernel and copy of a stream is a span on the track of the stream, in the group of
// its device. Nothing is recorded while no trace is on.
#ifndef SIM_TRACE_HPP
#define SIM_TRACE_HPP

#include "slot.hpp"

extern "C" {
#include "../sim/card/card.h"
}

#include <bitset>
#include <mutex>
#include <string>

namespace sim {

/// Track of a stream. The numbers of destroyed streams are used again, since tracks stay.
class track {
  public:
    explicit track(int32_t device) : device_(device)
    {
        const std::lock_guard<std::mutex> hold(lock());
        while (number_ + 1 < numbers && taken(device)[number_]) number_++; // the last one is shared
        taken(device).set(number_);
        if (!DTL_HOST_HAS(host, trace_span)) return; // a library before traces of plugins
        const std::string group = "sim device " + std::to_string(device);
        const std::string name = "stream " + std::to_string(number_);
        if (host->trace_track(group.c_str(), name.c_str(), &id_) != DTL_SUCCESS) id_ = 0;
    }
    track(const track &) = delete;
    track &operator=(const track &) = delete;
    ~track()
    {
        const std::lock_guard<std::mutex> hold(lock());
        taken(device_).reset(number_);
    }

    /// Records what a function does, if it returns.
    template <class F>
    void record(const char *category, const std::string &name, uint64_t bytes, F &&function) const
    {
        if (id_ == 0 || host->trace_is_on() == 0) return function();
        dtl_trace_span_t span = DTL_TRACE_SPAN_INIT;
        span.track = id_;
        span.begin_ns = host->trace_now();
        function();
        span.end_ns = host->trace_now();
        span.bytes = bytes;
        span.category = category;
        span.name = name.c_str();
        DTL_IGNORE(host->trace_span(&span)); // a trace that is full is not a failure of the work
    }

  private:
    static constexpr std::size_t numbers = 64;
    static std::mutex &lock()
    {
        static std::mutex one;
        return one;
    }
    static std::bitset<numbers> &taken(int32_t device)
    {
        static std::bitset<numbers> all[CARD_DEVICES];
        return all[device];
    }

    int32_t device_;
    std::size_t number_ = 0;
    uint64_t id_ = 0;
};

} // namespace sim

#endif
