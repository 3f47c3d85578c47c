// Dynamic selection of the C++ face: policies, and submissions of callables. Part of dtl.hpp.
#ifndef DTL_POLICY_HPP
#define DTL_POLICY_HPP

#include "error.hpp"

#include <chrono>
#include <memory>
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

/// A task that a program's own table may call later, once: it keeps itself until then.
template <class F> struct task_later {
    F task;
    std::exception_ptr exception{};
    std::shared_ptr<task_later> self{};

    static dtl_status_t run(const dtl_resource_t *resource, void *arg, dtl_waitable_t *left) noexcept
    {
        const std::shared_ptr<task_later> self = std::move(static_cast<task_later *>(arg)->self);
        try {
            return run_task(self->task, *resource, *left);
        } catch (...) {
            self->exception = std::current_exception();
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
        }
    }

    /// The C value; `ticket` 0 = complete.
    const dtl_submission_t &get() const noexcept { return value_; }
    bool is_complete() const noexcept { return value_.ticket == 0; }
    uint32_t resource() const noexcept { return value_.resource; }

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
        if (value_.ticket == 0 && later_ && *later_) {
            std::rethrow_exception(*later_);
        }
        check(status);
    }

    dtl_submission_t value_{};
    std::exception_ptr exception_;
    std::shared_ptr<std::exception_ptr> later_;
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
        submit_into(made, std::forward<F>(task), key, time(limit));
        return made;
    }

    /// As submit, and waits for the end.
    template <class F>
    void submit_and_wait(F &&task, dtl_task_key_t key = {},
                         std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) const
    {
        submit(std::forward<F>(task), key, limit).wait();
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
    static uint64_t time(std::chrono::nanoseconds limit)
    {
        return limit == std::chrono::nanoseconds::max() ? detail::no_limit : detail::nanoseconds(limit);
    }

    template <class F> void submit_into(submission &made, F &&task, dtl_task_key_t key, uint64_t limit) const
    {
        using callable = std::decay_t<F>;
        if (may_be_later_) {
            using later = detail::task_later<callable>;
            auto kept = std::make_shared<later>(later{std::forward<F>(task)});
            kept->self = kept;
            const dtl_status_t status = dtl_policy_submit(handle_, key, later::run, kept.get(), limit, &made.value_);
            if (status != DTL_SUCCESS) {
                kept->self.reset();
            }
            check(status);
            made.later_ = std::shared_ptr<std::exception_ptr>(kept, &kept->exception);
            return;
        }
        using here = detail::task_here<std::remove_reference_t<F>>;
        here now{task};
        check(dtl_policy_submit(handle_, key, here::run, &now, limit, &made.value_));
        made.exception_ = std::move(now.exception);
    }

    dtl_policy_t handle_{};
    bool may_be_later_ = false;
};

} // namespace dtl

#endif
