// Dynamic selection of the C++ interface: policies, and submissions of callables. Part of dtl.hpp.
#ifndef DTL_POLICY_HPP
#define DTL_POLICY_HPP

#include "custom_policy.hpp"
#include "exec.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

namespace dtl {

namespace detail {

inline constexpr uint64_t no_limit = DTL_TIMEOUT_INFINITE;

/// A task is a callable of (resource, left running), of (resource), or of nothing.
template <class F> dtl_status_t run_task(F &task, const dtl_resource_t &resource, dtl_waitable_t &left)
{
    if constexpr (std::is_invocable_v<F &, const dtl_resource_t &, dtl_waitable_t &>) {
        return invoke(task, resource, left);
    } else if constexpr (std::is_invocable_v<F &, const dtl_resource_t &>) {
        return invoke(task, resource);
    } else {
        return invoke(task);
    }
}

/// A task that is called before the submit returns: it stays where it is.
template <class F> struct task_here {
    F &task;
    std::exception_ptr exception{};

    static dtl_status_t run(const dtl_resource_t *resource, void *arg, dtl_waitable_t *left) noexcept
    {
        task_here &self = *static_cast<task_here *>(arg);
        try {
            return run_task(self.task, *resource, *left);
        } catch (...) {
            self.exception = std::current_exception();
            return current_status();
        }
    }
};

/// State of a task that may be called later: it keeps itself until it is called, or its submission
/// is complete without that.
struct later_state {
    std::exception_ptr exception{};
    std::shared_ptr<later_state> self{};
};

/// A task that a program's own table may call later, once.
template <class F> struct task_later : later_state {
    explicit task_later(F &&given) : task(std::move(given)) {}
    explicit task_later(const F &given) : task(given) {}

    F task;

    static dtl_status_t run(const dtl_resource_t *resource, void *arg, dtl_waitable_t *left) noexcept
    {
        task_later &self = *static_cast<task_later *>(arg);
        const std::shared_ptr<later_state> kept = std::move(self.self);
        try {
            return run_task(self.task, *resource, *left);
        } catch (...) {
            self.exception = std::current_exception();
            return current_status();
        }
    }
};

} // namespace detail

/// A task that was submitted. Nobody need wait for it: its destructor lets it go.
class submission {
  public:
    submission(submission &&other) noexcept
        : value_(std::exchange(other.value_, dtl_submission_t{})), exception_(std::move(other.exception_)),
          later_(std::move(other.later_))
    {
    }
    submission &operator=(submission &&other) noexcept
    {
        std::swap(value_, other.value_);
        std::swap(exception_, other.exception_);
        std::swap(later_, other.later_);
        return *this;
    }
    ~submission()
    {
        if (value_.ticket != 0) {
            DTL_IGNORE(dtl_submission_release(&value_));
        } else if (later_) {
            later_->self.reset(); // of a task that ended without being called
        }
    }

    /// The C value; `ticket` 0 = complete.
    const dtl_submission_t &get() const noexcept { return value_; }
    bool is_complete() const noexcept { return value_.ticket == 0; }
    uint32_t resource() const noexcept { return value_.resource; }

    /// Returns the element of the policy's list that was selected.
    dtl_resource_t selected() const
    {
        dtl_resource_t found{};
        check(dtl_submission_resource(&value_, &found));
        return found;
    }

    /// Waits; throws what the task threw, or its failure.
    void wait() { finish(dtl_submission_wait(&value_, DTL_TIMEOUT_INFINITE)); }

    /// Waits at most this long; false = it has not ended.
    bool wait_for(std::chrono::nanoseconds limit)
    {
        const dtl_status_t status = dtl_submission_wait(&value_, detail::nanoseconds(limit));
        if (value_.ticket != 0 && status == DTL_ERROR_TIMEOUT) {
            return false;
        }
        finish(status);
        return true;
    }

  private:
    friend class policy;
    submission() noexcept = default;

    void finish(dtl_status_t status) const
    {
        if (exception_) {
            std::rethrow_exception(exception_);
        }
        if (value_.ticket == 0 && later_) {
            later_->self.reset(); // of a task that ended without being called
            if (later_->exception) {
                std::rethrow_exception(later_->exception);
            }
        }
        check(status);
    }

    dtl_submission_t value_{};
    std::exception_ptr exception_;
    std::shared_ptr<detail::later_state> later_;
};

/// A policy. Copies are the same policy with the same state.
class policy {
  public:
    /// `resources` empty = the kind's defaults, or none yet with DTL_POLICY_DEFER; `options` as dtl_policy_opts_t.
    explicit policy(const char *name, const std::vector<dtl_resource_t> &resources = {},
                    const dtl_policy_opts_t *options = nullptr)
    {
        check(dtl_policy_create(name, resources.empty() ? nullptr : resources.data(), resources.size(), options,
                                &handle_));
        may_be_later_ = traits().kind == DTL_RESOURCES_CUSTOM;
    }

    /// `dtl::policy("dynamic_load", list, dtl::resource_kind::inlined)`: all other options are the
    /// defaults.
    template <class Kind, class = std::enable_if_t<std::is_same_v<Kind, resource_kind>>>
    policy(const char *name, const std::vector<dtl_resource_t> &resources, Kind kind)
        : policy(name, resources, &static_cast<const dtl_policy_opts_t &>(of_kind(kind)))
    {
    }

    /// A policy whose rule is an object of the program; see dtl::selector.
    explicit policy(std::unique_ptr<selector> rule,
                    const std::vector<dtl_resource_t> &resources = {},
                    const dtl_policy_opts_t *options = nullptr)
    {
        create(std::move(rule), nullptr, resources, options);
    }

    /// A policy of the library over a kind of resources of the program; see dtl::resource_host. Of
    /// `options` the kind and its table are set here.
    template <class Host, class = std::enable_if_t<std::is_base_of_v<resource_host, Host>>>
    policy(const char *name, std::unique_ptr<Host> host,
           const std::vector<dtl_resource_t> &resources = {},
           const dtl_policy_opts_t *options = nullptr)
    {
        create(name, std::move(host), resources, options);
    }

    /// A policy whose rule and kind of resources are objects of the program.
    policy(std::unique_ptr<selector> rule, std::unique_ptr<resource_host> host,
           const std::vector<dtl_resource_t> &resources = {},
           const dtl_policy_opts_t *options = nullptr)
    {
        create(std::move(rule), std::move(host), resources, options);
    }

    /// Takes over a share of a policy that C functions made.
    explicit policy(dtl_policy_t handle) : handle_(handle)
    {
        may_be_later_ = traits().kind == DTL_RESOURCES_CUSTOM;
    }

    policy(const policy &other) : handle_(other.handle_), may_be_later_(other.may_be_later_)
    {
        check(dtl_policy_retain(handle_));
    }
    policy(policy &&other) noexcept
        : handle_(std::exchange(other.handle_, dtl_policy_t{})), may_be_later_(other.may_be_later_)
    {
    }
    policy &operator=(policy other) noexcept
    {
        std::swap(handle_, other.handle_);
        std::swap(may_be_later_, other.may_be_later_);
        return *this;
    }
    ~policy() { DTL_IGNORE(dtl_policy_release(handle_)); }

    dtl_policy_t get() const noexcept { return handle_; }

    /// Gives a policy made with DTL_POLICY_DEFER its resources. Of `options` only the adapter is looked at; without one
    /// the constructor's is used.
    void initialize(const std::vector<dtl_resource_t> &resources = {},
                    const dtl_policy_opts_t *options = nullptr) const
    {
        check(dtl_policy_initialize(handle_, resources.empty() ? nullptr : resources.data(), resources.size(),
                                    options));
    }

    /// Submits a callable of (const dtl_resource_t &, dtl_waitable_t &), of (const dtl_resource_t &) or of nothing.
    /// It is called before this returns, and nothing is allocated; except with a program's own kind of resources, where
    /// a copy is kept until it is called. What it throws is thrown again by wait. It returns nothing, or a
    /// dtl_status_t. That is int, so an int of its own is taken as a status as well: any but 0 is the task's failure.
    /// Other results do not compile; a task with a result writes it elsewhere.
    /// Without a key each type of callable is a task of its own.
    template <class F>
    submission submit(F &&task, dtl_task_key_t key = {},
                      std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) const
    {
        submission made;
        const auto start = [&](dtl_policy_task_fn_t function, void *arg) {
            return dtl_policy_submit(handle_, key, function, arg, time(limit), &made.value_);
        };
        check(submit_by(start, made, std::forward<F>(task)));
        return made;
    }

    /// As submit, and waits for the end. The limit covers a resource and the end together. After
    /// DTL_ERROR_TIMEOUT a task that has begun goes on; wait_all then throws its failure.
    template <class F>
    void submit_and_wait(F &&task, dtl_task_key_t key = {},
                         std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) const
    {
        if (may_be_later_) {
            const auto begin = std::chrono::steady_clock::now();
            submission made = submit(std::forward<F>(task), key, limit);
            if (limit == std::chrono::nanoseconds::max()) {
                made.wait();
            } else if (!made.wait_for(limit - (std::chrono::steady_clock::now() - begin))) {
                throw error(DTL_ERROR_TIMEOUT, "the task has not ended in time; it goes on");
            }
            return;
        }
        using here = detail::task_here<std::remove_reference_t<F>>;
        here now{task};
        const dtl_status_t status = dtl_policy_submit_and_wait(handle_, key, here::run, &now,
                                                               time(limit));
        if (now.exception) {
            std::rethrow_exception(now.exception);
        }
        check(status);
    }

    /// As submit, but never waits for a resource: none if no resource is free.
    template <class F> std::optional<submission> try_submit(F &&task, dtl_task_key_t key = {}) const
    {
        submission made;
        const auto start = [&](dtl_policy_task_fn_t function, void *arg) {
            return dtl_policy_try_submit(handle_, key, function, arg, &made.value_);
        };
        const dtl_status_t status = submit_by(start, made, std::forward<F>(task));
        if (status == DTL_ERROR_BUSY) {
            return std::nullopt;
        }
        check(status);
        return made;
    }

    /// Waits for everything submitted; throws the first failure that nobody has heard of.
    void wait_all() const { check(dtl_policy_wait_all(handle_, DTL_TIMEOUT_INFINITE)); }

    dtl_policy_traits_t traits() const
    {
        dtl_policy_traits_t traits = DTL_POLICY_TRAITS_INIT;
        check(dtl_policy_traits(handle_, &traits));
        return traits;
    }

    std::vector<dtl_resource_t> resources() const
    {
        std::vector<dtl_resource_t> list(traits().resource_count);
        check(dtl_policy_resources(handle_, list.data(), list.size(), nullptr));
        return list;
    }

    std::vector<dtl_policy_stats_t> stats() const
    {
        std::vector<dtl_policy_stats_t> list(traits().resource_count);
        check(dtl_policy_stats(handle_, list.data(), list.size(), nullptr));
        return list;
    }

  private:
    static dtl_policy_opts_t of_kind(resource_kind kind) noexcept
    {
        dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT;
        options.kind = static_cast<uint32_t>(kind);
        return options;
    }

    static uint64_t time(std::chrono::nanoseconds limit)
    {
        return limit == std::chrono::nanoseconds::max() ? detail::no_limit : detail::nanoseconds(limit);
    }

    /// Submits by start(function, arg), with the task here or, where it may run later, on the heap.
    template <class Start, class F> dtl_status_t submit_by(const Start &start, submission &made,
                                                           F &&task) const
    {
        using callable = std::decay_t<F>;
        if (may_be_later_) {
            using later = detail::task_later<callable>;
            auto kept = std::make_shared<later>(std::forward<F>(task));
            kept->self = kept;
            const dtl_status_t status = start(later::run, kept.get());
            if (status != DTL_SUCCESS) {
                kept->self.reset();
                return status;
            }
            made.later_ = std::move(kept);
            return status;
        }
        using here = detail::task_here<std::remove_reference_t<F>>;
        here now{task};
        const dtl_status_t status = start(here::run, &now);
        made.exception_ = std::move(now.exception);
        return status;
    }

    static dtl_policy_opts_t with_host(const std::unique_ptr<resource_host> &host,
                                       const dtl_policy_opts_t *options)
    {
        dtl_policy_opts_t mine = DTL_POLICY_OPTS_INIT;
        if (options != nullptr) {
            mine = *options;
        }
        if (host != nullptr) {
            mine.kind = DTL_RESOURCES_CUSTOM;
            mine.ops_self = host.get();
        }
        return mine;
    }

    void create(const char *name, std::unique_ptr<resource_host> host,
                const std::vector<dtl_resource_t> &resources, const dtl_policy_opts_t *options)
    {
        if (host == nullptr) {
            throw error(DTL_ERROR_NULL_POINTER,
                        "host is null: pass an object of a class derived from dtl::resource_host");
        }
        dtl_policy_opts_t mine = with_host(host, options);
        const dtl_resource_ops_t ops = detail::host_slots::table();
        mine.ops = &ops;
        check(dtl_policy_create(name, resources.empty() ? nullptr : resources.data(),
                                resources.size(), &mine, &handle_));
        host.release(); // the library's, which ends it by the table
        may_be_later_ = true;
    }

    void create(std::unique_ptr<selector> rule, std::unique_ptr<resource_host> host,
                const std::vector<dtl_resource_t> &resources, const dtl_policy_opts_t *options)
    {
        if (rule == nullptr) {
            throw error(DTL_ERROR_NULL_POINTER,
                        "rule is null: pass an object of a class derived from dtl::selector");
        }
        dtl_policy_opts_t mine = with_host(host, options);
        const dtl_resource_ops_t hosting = detail::host_slots::table();
        if (host != nullptr) {
            mine.ops = &hosting;
        }
        const dtl_policy_ops_t ruling = detail::selector_slots::table(*rule);
        check(dtl_policy_create_custom(&ruling, rule.get(),
                                       resources.empty() ? nullptr : resources.data(),
                                       resources.size(), &mine, &handle_));
        rule.release(); // both are the library's, which ends them by the tables
        host.release();
        may_be_later_ = traits().kind == DTL_RESOURCES_CUSTOM;
    }

    dtl_policy_t handle_{};
    bool may_be_later_ = false;
};

/// A policy over objects of type T, which it owns: tasks receive a T &.
///
///     const dtl::policy_over<dtl::stream> work("dynamic_load", std::move(streams));
///     work.submit_and_wait([&](dtl::stream &on) { on->launch(kernel, grid, block, data); });
///
/// If T converts to dtl::stream_ref, a task ends when the work does that it queued on its stream
/// (DTL_RESOURCES_STREAMS). Else it ends when its function returns (DTL_RESOURCES_INLINE). Call
/// wait_all before this ends: the objects end with it.
template <class T> class policy_over {
  public:
    /// @param name  Name of a policy of the library; see dtl_policy_create.
    /// @param objects  At least one.
    /// @param options  Start from DTL_POLICY_OPTS_INIT. Kind and adapter are set here.
    policy_over(const char *name, std::vector<T> objects,
                dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT)
        : objects_(std::move(objects)), policy_(name, as_list(objects_), typed(options))
    {
    }

    /// The same with a rule of the program; see dtl::selector.
    policy_over(std::unique_ptr<selector> rule, std::vector<T> objects,
                dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT)
        : objects_(std::move(objects)), policy_(std::move(rule), as_list(objects_), typed(options))
    {
    }
    policy_over(const policy_over &) = delete;
    policy_over &operator=(const policy_over &) = delete;

    /// The policy itself, for statistics and functions of dtl.h.
    const policy &untyped() const noexcept { return policy_; }
    dtl_policy_t get() const noexcept { return policy_.get(); }

    std::size_t size() const noexcept { return objects_.size(); }
    T &operator[](std::size_t index) noexcept { return objects_[index]; }

    /// Submits a callable of (T &), of (T &, dtl_waitable_t &) or of nothing; see policy::submit.
    template <class F>
    submission submit(F &&task, dtl_task_key_t key = {},
                      std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) const
    {
        return policy_.submit(adapted(task), key, limit);
    }
    /// As submit, and waits for the end; see policy::submit_and_wait.
    template <class F>
    void submit_and_wait(F &&task, dtl_task_key_t key = {},
                         std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) const
    {
        policy_.submit_and_wait(adapted(task), key, limit);
    }
    /// As submit, but never waits for a resource: none if no resource is free.
    template <class F> std::optional<submission> try_submit(F &&task, dtl_task_key_t key = {}) const
    {
        return policy_.try_submit(adapted(task), key);
    }

    /// Waits for everything submitted; throws the first failure that nobody has heard of.
    void wait_all() const { policy_.wait_all(); }

    /// Returns the object that was selected for a submission of this policy.
    T &selected(const submission &made) const { return object_of(made.selected()); }

  private:
    static T &object_of(const dtl_resource_t &resource) noexcept
    {
        return *reinterpret_cast<T *>(static_cast<uintptr_t>(resource.value));
    }

    static std::vector<dtl_resource_t> as_list(std::vector<T> &objects)
    {
        if (objects.empty()) {
            throw error(DTL_ERROR_INVALID_ARGUMENT,
                        "objects is empty: a policy selects from at least one");
        }
        std::vector<dtl_resource_t> list;
        for (T &object : objects) {
            list.push_back({static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&object)), nullptr});
        }
        return list;
    }

    /// The options, which live as long as the expression that calls this.
    static const dtl_policy_opts_t *typed(dtl_policy_opts_t &options)
    {
        if constexpr (std::is_convertible_v<T &, stream_ref>) {
            options.kind = DTL_RESOURCES_STREAMS;
            options.adapter = [](void *, const dtl_resource_t *wrapper) noexcept -> uint64_t {
                return stream_ref(object_of(*wrapper)).get().id;
            };
        } else {
            options.kind = DTL_RESOURCES_INLINE;
        }
        return &options;
    }

    /// The task as one of a resource; called before the submit returns, so it refers to the task.
    template <class F> static auto adapted(F &task) noexcept
    {
        return [&task](const dtl_resource_t &resource, dtl_waitable_t &left) {
            if constexpr (std::is_invocable_v<F &, T &, dtl_waitable_t &>) {
                return task(object_of(resource), left);
            } else if constexpr (std::is_invocable_v<F &, T &>) {
                static_cast<void>(left);
                return task(object_of(resource));
            } else {
                static_cast<void>(resource), static_cast<void>(left);
                return task();
            }
        };
    }

    std::vector<T> objects_; // before the policy, which refers to them
    policy policy_;
};

} // namespace dtl

#endif
