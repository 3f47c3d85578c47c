// Streams, events and kernels of the card as classes, which own the objects of the driver.
#ifndef SIM_WORK_HPP
#define SIM_WORK_HPP

#include "trace.hpp"

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

namespace sim {

/// Fails if the device is lost.
inline void check_device(int32_t device, bool lost)
{
    if (lost) {
        throw dtl::error(DTL_ERROR_DEVICE_LOST, "device " + std::to_string(device) + " is lost");
    }
}

/// Begins a command of a device. It fails if the device is lost or the operation has to fail.
inline void command(int32_t device, const char *operation)
{
    check_device(device, card_loses(device) != 0);
    if (card_fails(operation)) {
        const std::string text = "the card reports a failed " + std::string(operation);
        throw dtl::error(DTL_ERROR_BACKEND, text + ", by DTL_BACKEND_SIM_FAULT");
    }
}

/// A place in the queue of a stream.
class fence {
  public:
    fence() = default; // of an event that was never recorded, which counts as complete
    explicit fence(vc_queue_t *queue) : fence_(vc_fence_create(queue), vc_fence_release)
    {
        if (fence_ == nullptr) throw std::bad_alloc();
    }

    bool is_done() const { return fence_ == nullptr || vc_fence_is_done(fence_.get()) != 0; }
    uint64_t time_ns() const { return fence_ == nullptr ? 0 : vc_fence_time_ns(fence_.get()); }
    dtl_status_t wait() const { return fence_ == nullptr ? 0 : vc_fence_wait(fence_.get()); }
    dtl_status_t error() const { return fence_ == nullptr ? 0 : vc_fence_error(fence_.get()); }

  private:
    std::shared_ptr<vc_fence_t> fence_;
};

/// Work that a stream queues. An operation can fail by itself; nullptr: this one does not.
struct job {
    const char *operation;
    std::string name; // in traces
    uint64_t bytes;   // that it moves; 0 = none
    std::function<void()> work; // may throw
};

/// A queue of a device.
class stream {
  public:
    stream(int32_t device, int32_t priority)
        : device_(device), priority_(priority), track_(device),
          queue_(vc_queue_create(), vc_queue_destroy)
    {
        if (queue_ == nullptr) throw dtl::error(DTL_ERROR_OUT_OF_MEMORY,
                                             "no thread for another stream");
    }

    int32_t device() const { return device_; }
    int32_t priority() const { return priority_; }
    fence end() const { return fence(queue_.get()); }

    void push(job what)
    {
        auto added = std::make_unique<queued>(queued{this, std::move(what)});
        if (vc_queue_push(queue_.get(), run, added.get()) != 0) throw std::bad_alloc();
        static_cast<void>(added.release());
    }

    /// Queues work that is not a command of the card.
    void push(std::function<void()> work) { push(job{nullptr, "", 0, std::move(work)}); }

    bool is_idle() const { return vc_queue_is_idle(queue_.get()) != 0; }
    void report(bool clear) const
    {
        check(vc_queue_error(queue_.get(), clear), "a command of the stream failed");
    }

  private:
    struct queued {
        const stream *on;
        job what;
    };

    static int run(void *argument)
    {
        const std::unique_ptr<queued> now(static_cast<queued *>(argument));
        const job &what = now->what;
        return guarded([&] {
            if (what.operation == nullptr) return what.work();
            command(now->on->device_, what.operation);
            const std::string_view operation = what.operation;
            const char *category = operation == "launch" ? "kernel" : what.operation;
            now->on->track_.record(category, what.name, what.bytes, what.work);
        });
    }

    int32_t device_, priority_;
    track track_;
    // The last member, so that it is destroyed first: that waits for the work.
    std::unique_ptr<vc_queue_t, void (*)(vc_queue_t *)> queue_;
};

/// Has the fence of its last record. A copy of it stays valid when the event is recorded again.
class event {
  public:
    void record(const stream &on)
    {
        fence made = on.end();
        const std::lock_guard<std::mutex> hold(lock_);
        std::swap(fence_, made);
    }

    fence last() const
    {
        const std::lock_guard<std::mutex> hold(lock_);
        return fence_;
    }

  private:
    mutable std::mutex lock_;
    fence fence_;
};

/// A kernel of a program, or one that the program made from a function.
class kernel {
  public:
    kernel(dtl_kernel_fn_t function, void *user) : name_("function")
    {
        kernel_.run = function, kernel_.user = user;
    }
    kernel(card_program_t *program, const char *name, const char *signature) : name_(name)
    {
        if (card_find(program, name, &kernel_) != CARD_OK) {
            throw dtl::error(DTL_ERROR_NOT_FOUND,
                          "the module has no DTL_KERNEL(" + std::string(name) + ", ...)");
        }
        program_.reset(kernel_.program, card_program_release);
        const int differs = card_differs(&kernel_, signature);
        if (differs >= 0) {
            throw dtl::error(DTL_ERROR_INVALID_ARGUMENT, "signature \"" + std::string(signature) +
                              "\": argument " + std::to_string(differs) + " is another one");
        }
    }

    void launch(stream &on, const dtl_launch_t *shape, const void *const *args,
                const uint64_t *sizes, uint64_t count) const
    {
        if (kernel_.sizes != nullptr && count != kernel_.count) {
            throw dtl::error(DTL_ERROR_INVALID_ARGUMENT,
                          "the kernel takes " + std::to_string(kernel_.count) + " arguments");
        }
        for (uint64_t i = 0; kernel_.sizes != nullptr && i < count; i++) {
            if (sizes[i] != kernel_.sizes[i]) {
                const std::string bytes = std::to_string(kernel_.sizes[i]);
                throw dtl::error(DTL_ERROR_INVALID_ARGUMENT,
                              "argument " + std::to_string(i) + " has " + bytes + " bytes");
            }
        }
        std::shared_ptr<card_launch_t> launch(
            card_launch_create(&kernel_, shape, args, sizes, count), release);
        if (launch == nullptr) throw std::bad_alloc();
        on.push({"launch", name_, 0, [launch, device = on.device(), priority = on.priority()] {
                     check(card_launch_run(launch.get(), device, priority), "the kernel failed");
                 }});
    }

  private:
    static void release(card_launch_t *launch)
    {
        if (launch != nullptr) card_launch_release(launch);
    }

    std::string name_;
    card_kernel_t kernel_{};
    std::shared_ptr<card_program_t> program_;
};

} // namespace sim

#endif
