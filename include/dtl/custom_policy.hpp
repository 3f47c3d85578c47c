// Policies and kinds of resources that are classes of the program, for dtl::policy. Part of
// dtl.hpp.
#ifndef DTL_CUSTOM_POLICY_HPP
#define DTL_CUSTOM_POLICY_HPP

#include "error.hpp"
#include "strong.hpp"

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtl {

namespace detail {
constexpr uint64_t bits(task_info info) noexcept
{
    return static_cast<uint64_t>(info);
}
constexpr bool has(uint64_t bits_of, task_info info) noexcept
{
    return (bits_of & bits(info)) != 0;
}
} // namespace detail

/// Rule of a policy of the program: derive from it and pass an object to the constructor of
/// dtl::policy, which owns it until the last user of the policy is gone.
///
/// The functions run in threads that submit or report, in several at once. They must not block.
/// What select and initialize throw becomes the failure of the submit, or of the constructor of the
/// policy.
class selector {
  public:
    virtual ~selector() = default;

    /// Receives the resources, in the order of the indices that select returns. Called once, before
    /// the first select.
    virtual void initialize(const std::vector<dtl_resource_t> &resources)
    {
        static_cast<void>(resources);
    }

    /// Returns the index of the resource for a task. None: no resource is free now; a submit then
    /// calls again until its time limit.
    virtual std::optional<uint32_t> select(dtl_task_key_t key) = 0;

    /// Returns the information that `report` needs. Called once, by the constructor of the policy.
    virtual task_info needed_info() const { return task_info::none; }

    /// Receives one piece of the needed information on a task: `submission` with value 0,
    /// `completion` with the task's status, `time` with nanoseconds (-1 if the task failed or was
    /// not accepted).
    virtual void report(uint32_t index, dtl_task_key_t key, task_info info, int64_t value) noexcept
    {
        static_cast<void>(index), static_cast<void>(key), static_cast<void>(info);
        static_cast<void>(value);
    }
};

/// Task that a policy passes to a dtl::resource_host, to be run once. Movable, also into another
/// thread. One that is destroyed without being run ends with DTL_ERROR_CANCELED.
class selected_task {
  public:
    /// Made by the library's call; see resource_host::submit.
    selected_task(const dtl_selection_t &selection, dtl_policy_task_fn_t task, void *arg) noexcept
        : selection_(selection), task_(task), arg_(arg)
    {
    }
    selected_task(selected_task &&other) noexcept
        : selection_(other.selection_), task_(std::exchange(other.task_, nullptr)), arg_(other.arg_)
    {
    }
    selected_task &operator=(selected_task &&other) noexcept
    {
        std::swap(selection_, other.selection_);
        std::swap(task_, other.task_);
        std::swap(arg_, other.arg_);
        return *this;
    }
    selected_task(const selected_task &) = delete;
    selected_task &operator=(const selected_task &) = delete;
    ~selected_task()
    {
        if (task_ != nullptr) {
            end(DTL_ERROR_CANCELED, 0);
        }
    }

    /// False after run or a move.
    explicit operator bool() const noexcept { return task_ != nullptr; }

    /// Returns the element of the list, which the task receives.
    const dtl_resource_t &resource() const noexcept { return selection_.resource; }
    /// Returns the adapter's result for the resource; without an adapter, the resource's value.
    uint64_t core() const noexcept { return selection_.core; }
    /// Returns the scratch memory of this task, resource_host::scratch_bytes bytes, aligned to 16;
    /// null if there is none. Valid until run returns.
    void *scratch() const noexcept { return selection_.scratch; }
    /// Returns the policy's own selection, for functions of dtl.h.
    const dtl_selection_t &get() const noexcept { return selection_; }

    /// Runs the task in this thread, waits for work that it left running, and reports its end and,
    /// if the policy needs it, its duration. A second call, or one after a move, does nothing.
    void run() noexcept
    {
        const dtl_policy_task_fn_t task = std::exchange(task_, nullptr);
        if (task == nullptr) {
            return;
        }
        const bool timed = detail::has(selection_.wanted_info, task_info::time);
        using clock = std::chrono::steady_clock;
        const clock::time_point begin = timed ? clock::now() : clock::time_point{};
        dtl_waitable_t left{};
        dtl_status_t status = task(&selection_.resource, arg_, &left);
        if (status == DTL_SUCCESS && left.wait != nullptr) {
            do {
                status = left.wait(left.object, 1'000'000'000);
            } while (status == DTL_ERROR_TIMEOUT);
        } else if (status == DTL_SUCCESS && left.event.id != 0) {
            status = dtl_event_wait(left.event, DTL_TIMEOUT_INFINITE);
        }
        const std::chrono::nanoseconds time = timed ? clock::now() - begin : clock::duration{};
        end(status, static_cast<uint64_t>(time.count()));
    }

    /// Gives the task up without reporting an end: for a submit that refuses it.
    void refuse() noexcept { task_ = nullptr; }

  private:
    void end(dtl_status_t status, uint64_t time_ns) noexcept
    {
        DTL_IGNORE(dtl_selection_end(&selection_, status, time_ns)); // fails if the policy is gone
    }

    dtl_selection_t selection_;
    dtl_policy_task_fn_t task_;
    void *arg_;
};

/// Kind of resources of the program, on which tasks run as the program decides: derive from it and
/// pass an object to the constructor of dtl::policy, which owns it until the last user of the
/// policy is gone.
///
/// The functions are called in several threads at once. They may call the library, but not wait for
/// the policy. What they throw becomes the failure of the call that made them run.
class resource_host {
  public:
    virtual ~resource_host() = default;

    /// Runs the task now or later, in this or another thread: move it there and call its run(). An
    /// exception that is thrown before the task is moved away refuses the task; it is the failure
    /// of the submit.
    virtual void submit(selected_task &&task) = 0;

    /// Returns the resources of a policy that is made without a list. By default there are none.
    virtual std::vector<dtl_resource_t> default_resources()
    {
        throw error(DTL_ERROR_INVALID_ARGUMENT,
                    "this kind of resources has no defaults: pass a list");
    }

    /// Returns why a resource cannot be used if `needed` is to be reported; empty = it can. The
    /// policy omits those that cannot. `core` as in selected_task.
    virtual std::string refusal(uint64_t core, task_info needed)
    {
        static_cast<void>(core), static_cast<void>(needed);
        return {};
    }

    /// Returns the bytes of scratch memory for each task in flight.
    virtual uint64_t scratch_bytes(task_info needed) noexcept
    {
        static_cast<void>(needed);
        return 0;
    }

    /// Waits for everything submitted to a resource; called by policy::wait_all.
    virtual void wait(uint64_t core) { static_cast<void>(core); }

    /// Polls for tasks that have ended and runs their ends. Called before selections that need
    /// reports, and repeatedly while a thread waits. Must not block.
    virtual void poll() {}
};

namespace detail {

/// Slots of the C tables, which call an object of the program.
struct selector_slots {
    static selector &from(void *self) noexcept { return *static_cast<selector *>(self); }

    static dtl_status_t initialize(void *self, const dtl_resource_t *resources,
                                   uint64_t count) noexcept
    {
        return slot([&] {
            from(self).initialize(std::vector<dtl_resource_t>(resources, resources + count));
            return dtl_status_t{DTL_SUCCESS};
        });
    }
    static dtl_status_t select(void *self, dtl_task_key_t key, uint32_t *out_index) noexcept
    {
        return slot([&] {
            const std::optional<uint32_t> index = from(self).select(key);
            *out_index = index.value_or(0);
            return dtl_status_t{index ? DTL_SUCCESS : DTL_ERROR_BUSY};
        });
    }
    static void report(void *self, uint32_t index, dtl_task_key_t key, uint64_t info,
                       int64_t value) noexcept
    {
        from(self).report(index, key, static_cast<task_info>(info), value);
    }
    static void destroy(void *self) noexcept { delete static_cast<selector *>(self); }

    static dtl_policy_ops_t table(const selector &rule)
    {
        dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
        ops.needed_info = bits(rule.needed_info());
        ops.initialize = initialize;
        ops.select = select;
        ops.report = report;
        ops.destroy = destroy;
        return ops;
    }
};

struct host_slots {
    static resource_host &from(void *self) noexcept { return *static_cast<resource_host *>(self); }

    static dtl_status_t default_resources(void *self, dtl_resource_t *out, uint64_t cap,
                                          uint64_t *out_n) noexcept
    {
        return slot([&] {
            const std::vector<dtl_resource_t> all = from(self).default_resources();
            *out_n = all.size();
            for (std::size_t i = 0; i < all.size() && i < cap; i++) {
                out[i] = all[i];
            }
            return dtl_status_t{DTL_SUCCESS};
        });
    }
    static dtl_status_t accept(void *self, uint64_t core, uint64_t needed, int32_t *out_yes,
                               char *why,
                               uint64_t cap) noexcept
    {
        return slot([&] {
            const std::string reason = from(self).refusal(core, static_cast<task_info>(needed));
            *out_yes = reason.empty();
            const std::size_t length =
                reason.size() < cap ? reason.size() : static_cast<std::size_t>(cap - 1);
            std::memcpy(why, reason.data(), length);
            why[length] = '\0';
            return dtl_status_t{DTL_SUCCESS};
        });
    }
    static uint64_t scratch_bytes(void *self, uint64_t needed) noexcept
    {
        return from(self).scratch_bytes(static_cast<task_info>(needed));
    }
    static dtl_status_t submit(void *self, const dtl_selection_t *selection,
                               dtl_policy_task_fn_t task,
                               void *arg) noexcept
    {
        selected_task mine(*selection, task, arg);
        const dtl_status_t status = slot([&] {
            from(self).submit(std::move(mine));
            return dtl_status_t{DTL_SUCCESS};
        });
        if (status != DTL_SUCCESS && mine) {
            mine.refuse();
            return status;
        }
        return DTL_SUCCESS; // the end of the task is, or will be, reported
    }
    static dtl_status_t wait_resource(void *self, uint64_t core) noexcept
    {
        return slot([&] {
            from(self).wait(core);
            return dtl_status_t{DTL_SUCCESS};
        });
    }
    static dtl_status_t lazy_report(void *self) noexcept
    {
        return slot([&] {
            from(self).poll();
            return dtl_status_t{DTL_SUCCESS};
        });
    }
    static void destroy(void *self) noexcept { delete static_cast<resource_host *>(self); }

    static dtl_resource_ops_t table() noexcept
    {
        dtl_resource_ops_t ops = DTL_RESOURCE_OPS_INIT;
        ops.supported_info = bits(task_info::completion | task_info::time);
        ops.default_resources = default_resources;
        ops.accept = accept;
        ops.scratch_bytes = scratch_bytes;
        ops.submit = submit;
        ops.wait_resource = wait_resource;
        ops.lazy_report = lazy_report;
        ops.destroy = destroy;
        return ops;
    }
};

} // namespace detail

} // namespace dtl

#endif
