// dtl.hpp: policies and submissions of callables, and what they throw.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <set>

static uint64_t allocations;
void *operator new(std::size_t size)
{
    allocations++;
    void *memory = std::malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
__attribute__((noinline)) void operator delete(void *memory) noexcept { std::free(memory); } // else g++ warns of a mismatch
__attribute__((noinline)) void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

struct special {
    int number;
};

template <class F> static int special_from(F &&function)
{
    try {
        function();
    } catch (const special &caught) {
        return caught.number;
    }
    return 0;
}

static std::vector<dtl_resource_t> numbers(uint64_t count)
{
    std::vector<dtl_resource_t> list;
    for (uint64_t i = 0; i < count; i++) {
        list.push_back({i, nullptr});
    }
    return list;
}

static void inline_tasks()
{
    dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT;
    options.kind = DTL_RESOURCES_INLINE;
    const dtl::policy policy("dynamic_load", numbers(3), &options);
    std::set<uint64_t> seen;
    policy.submit_and_wait([&](const dtl_resource_t &outer) {
        seen.insert(outer.value);
        policy.submit([&](const dtl_resource_t &inner) { seen.insert(inner.value); }).wait();
    });
    CHECK(seen.size() == 2);
    dtl::submission failed = policy.submit([] { throw special{42}; });
    CHECK(failed.is_complete() && failed.get().status == DTL_ERROR_CANCELED);
    CHECK(special_from([&] { failed.wait(); }) == 42);
    CHECK(special_from([&] { failed.wait(); }) == 42); // as often as one likes
    CHECK(special_from([&] { policy.submit_and_wait([] { throw special{7}; }); }) == 7);
    CHECK(thrown([&] { policy.submit_and_wait([]() -> dtl_status_t { return DTL_ERROR_TYPE; }); }) == DTL_ERROR_TYPE);
    for (const dtl_policy_stats_t &stats : policy.stats()) {
        CHECK(stats.load == 0);
    }
    const dtl::policy typed("round_robin", numbers(2), dtl::resource_kind::inlined);
    CHECK(typed.traits().kind == DTL_RESOURCES_INLINE);
    const uint64_t before = allocations;
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++) {
        policy.submit([&](const dtl_resource_t &resource) { sum += resource.value + 1; }).wait();
    }
    CHECK(allocations == before && sum >= 100);
}

static void copies_share()
{
    dtl::policy policy("round_robin", numbers(2));
    {
        const dtl::policy copy = policy;
        copy.submit_and_wait([] {});
        CHECK(copy.get().id == policy.get().id);
    }
    policy.submit_and_wait([] {});
    const auto stats = policy.stats();
    CHECK(stats.size() == 2 && stats[0].submitted == 1 && stats[1].submitted == 1);
    dtl::policy other = std::move(policy);
    CHECK(other.resources().at(1).value == 1);
    policy = other;
    CHECK(thrown([] { dtl::policy("best", numbers(2)); }) == DTL_ERROR_NOT_FOUND);
}

// The list holds wrappers of streams, and comes later than the policy.
static void adapted_later()
{
    dtl_stream_t streams[2];
    std::vector<dtl_resource_t> wrappers;
    for (dtl_stream_t &stream : streams) {
        CHECK_OK(dtl_stream_create(DTL_BACKEND_NULL, 0, 0, &stream));
        wrappers.push_back({reinterpret_cast<uintptr_t>(&stream), nullptr});
    }
    dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT, adapting = DTL_POLICY_OPTS_INIT;
    adapting.adapter = [](void *, const dtl_resource_t *wrapper) -> uint64_t {
        return reinterpret_cast<const dtl_stream_t *>(static_cast<uintptr_t>(wrapper->value))->id;
    };
    options.kind = adapting.kind = DTL_RESOURCES_STREAMS;
    options.flags = adapting.flags = DTL_POLICY_DEFER;
    const dtl::policy kept("round_robin", {}, &adapting);
    kept.initialize(wrappers);
    CHECK(kept.resources().size() == 2);
    const dtl::policy given("round_robin", {}, &options);
    CHECK(thrown([&] { given.initialize(wrappers); }) == DTL_ERROR_INVALID_HANDLE);
    given.initialize(wrappers, &adapting);
    CHECK(given.resources().size() == 2);
}

// An int is a status.
static void integer_results()
{
    const dtl::policy policy("fixed", numbers(1));
    CHECK(thrown([&] { policy.submit_and_wait([] { return 412; }); }) == DTL_ERROR_INVALID_HANDLE);
    policy.submit_and_wait([] { return 0; });
}

// A table that runs tasks only when it is asked.
static dtl_selection_t waiting;
static dtl_policy_task_fn_t waiting_task;
static void *waiting_arg;
static dtl_status_t keep(void *, const dtl_selection_t *selection, dtl_policy_task_fn_t task, void *arg)
{
    waiting = *selection, waiting_task = task, waiting_arg = arg;
    return DTL_SUCCESS;
}
static dtl_status_t run_it(void *)
{
    if (waiting_task == nullptr) {
        return DTL_SUCCESS;
    }
    dtl_waitable_t left{};
    const dtl_policy_task_fn_t task = std::exchange(waiting_task, nullptr);
    return dtl_selection_end(&waiting, task(&waiting.resource, waiting_arg, &left), 0);
}

static void later_tasks()
{
    dtl_resource_ops_t ops = DTL_RESOURCE_OPS_INIT;
    dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT;
    ops.submit = keep;
    ops.lazy_report = run_it;
    options.ops = &ops;
    const dtl::policy policy("fixed", numbers(1), &options);
    int calls = 0;
    {
        const std::string copied(100, 'x');
        auto task = [copied, &calls] { calls += copied.size() == 100; };
        dtl::submission submission = policy.submit(task);
        CHECK(calls == 0 && !submission.is_complete());
        submission.wait();
        CHECK(calls == 1 && submission.is_complete());
    }
    dtl::submission failing = policy.submit([] { throw special{5}; });
    CHECK(special_from([&] { failing.wait(); }) == 5);
    { const dtl::submission let_go = policy.submit([&] { calls++; }); }
    policy.wait_all();
    CHECK(calls == 2);
}

// A rule of the program: the last resource, until a task on it failed; then none.
class last_one : public dtl::selector {
  public:
    explicit last_one(int &alive) : alive_(alive) { ++alive_; }
    ~last_one() override { --alive_; }

    void initialize(const std::vector<dtl_resource_t> &resources) override
    {
        count_ = static_cast<uint32_t>(resources.size());
    }
    std::optional<uint32_t> select(dtl_task_key_t key) override
    {
        if (key.task == 77) throw dtl::error(DTL_ERROR_NOT_SUPPORTED,
                                             "this rule has nothing for task 77");
        return failed_ ? std::nullopt : std::optional<uint32_t>(count_ - 1);
    }
    dtl::task_info needed_info() const override { return dtl::task_info::completion; }
    void report(uint32_t, dtl_task_key_t, dtl::task_info info, int64_t value) noexcept override
    {
        failed_ = failed_ || (info == dtl::task_info::completion && value != DTL_SUCCESS);
    }

  private:
    int &alive_;
    std::atomic<bool> failed_{false};
    uint32_t count_ = 0;
};

static void own_rules()
{
    int alive = 0;
    {
        dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT;
        options.kind = DTL_RESOURCES_INLINE;
        const dtl::policy policy(std::make_unique<last_one>(alive), numbers(3), &options);
        uint64_t seen = 99;
        dtl::submission done = policy.submit([&](const dtl_resource_t &resource) { seen = resource.value; });
        CHECK(seen == 2 && done.selected().value == 2 && done.resource() == 2);
        CHECK(thrown([&] { policy.submit([] {}, {77, 0}); }) == DTL_ERROR_NOT_SUPPORTED);
        CHECK(policy.try_submit([] {}).has_value());
        CHECK(special_from([&] { policy.submit_and_wait([] { throw special{6}; }); }) == 6);
        CHECK(!policy.try_submit([] {}).has_value());
        CHECK(thrown([&] { policy.submit_and_wait([] {}, {}, std::chrono::milliseconds(1)); }) == DTL_ERROR_TIMEOUT);
        CHECK(thrown([&] { dtl::policy none(std::make_unique<last_one>(alive),
                                            numbers(5000)); }) == DTL_ERROR_LIMIT);
        CHECK(alive == 1);
    }
    CHECK(alive == 0);
    try {
        dtl::policy(std::unique_ptr<dtl::selector>(), numbers(1));
        CHECK(false);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_NULL_POINTER && std::strstr(failure.what(),
                                                                        "rule is null") != nullptr);
    }
}

// A kind of resources of the program: tasks run when somebody polls, with 8 bytes of scratch memory
// each.
class when_polled : public dtl::resource_host {
  public:
    explicit when_polled(int &alive) : alive_(alive) { ++alive_; }
    ~when_polled() override { --alive_; }

    void submit(dtl::selected_task &&task) override
    {
        if (task.core() == 3) throw dtl::error(DTL_ERROR_LIMIT, "resource 3 takes no task");
        if (task.core() == 4) return; // forgotten: it ends as cancelled
        CHECK(task.scratch() != nullptr && task.resource().value == task.core());
        waiting_.push_back(std::move(task));
    }
    std::vector<dtl_resource_t> default_resources() override { return numbers(2); }
    std::string refusal(uint64_t core,
                        dtl::task_info) override { return core == 9 ? "nine is not used" : ""; }
    uint64_t scratch_bytes(dtl::task_info) noexcept override { return 8; }
    void wait(uint64_t) override { poll(); }
    void poll() override
    {
        for (dtl::selected_task &task : std::exchange(waiting_, {})) {
            task.run();
            task.run(); // does nothing
        }
    }

  private:
    int &alive_;
    std::vector<dtl::selected_task> waiting_;
};

static void own_resources()
{
    int alive = 0, calls = 0;
    {
        const dtl::policy policy("round_robin", std::make_unique<when_polled>(alive));
        CHECK(policy.resources().size() == 2 && policy.traits().kind == DTL_RESOURCES_CUSTOM);
        dtl::submission first = policy.submit([&] { calls++; });
        CHECK(calls == 0 && !first.is_complete());
        first.wait();
        CHECK(calls == 1);
        policy.submit([&] { calls++; });
        policy.wait_all();
        CHECK(calls == 2);
        CHECK(special_from([&] { policy.submit_and_wait([] { throw special{8}; }); }) == 8);
        policy.submit_and_wait([&] { calls++; }, {}, std::chrono::minutes(10));
        CHECK(calls == 3);
        dtl_event_t event;
        CHECK_OK(dtl_event_create(DTL_BACKEND_NULL, 0, &event));
        policy.submit_and_wait([&](const dtl_resource_t &,
                                   dtl_waitable_t &left) { left.event = event; });
        CHECK_OK(dtl_event_destroy(event));
        CHECK(thrown([&] { dtl::policy none("no such", std::make_unique<when_polled>(alive)); }) == DTL_ERROR_NOT_FOUND);
        CHECK(alive == 1);
        const dtl::policy both(std::make_unique<last_one>(alive),
                               std::make_unique<when_polled>(alive));
        both.submit_and_wait([&](const dtl_resource_t &resource) { calls += resource.value == 1; });
        CHECK(calls == 4 && alive == 3);
    }
    CHECK(alive == 0);
    const std::vector<dtl_resource_t> third{{3, nullptr}}, fourth{{4, nullptr}}, with_nine{{9, nullptr}, {1, nullptr}};
    const dtl::policy refusing("fixed", std::make_unique<when_polled>(alive), third);
    CHECK(thrown([&] { refusing.submit([] {}); }) == DTL_ERROR_LIMIT);
    const dtl::policy forgetting("fixed", std::make_unique<when_polled>(alive), fourth);
    CHECK(thrown([&] { forgetting.submit_and_wait([] {}); }) == DTL_ERROR_CANCELED);
    const dtl::policy omitting("round_robin", std::make_unique<when_polled>(alive), with_nine);
    CHECK(omitting.resources().size() == 1 && omitting.resources()[0].value == 1);
}

static void without_host()
{
    try {
        dtl::policy("fixed", std::unique_ptr<when_polled>(), numbers(1));
        CHECK(false);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_NULL_POINTER && std::strstr(failure.what(), "host is null") != nullptr);
    }
    CHECK(dtl::policy("fixed", {}).resources().size() >= 1); // no list: the defaults of the kind
}

// Resources that are objects of a type.
static void typed_resources()
{
    struct worker {
        int id, tasks = 0;
    };
    dtl::policy_over<worker> workers("round_robin", {{10}, {11}});
    workers.submit([](worker &mine) { mine.tasks++; }).wait();
    workers.submit_and_wait([](worker &mine) { mine.tasks++; });
    CHECK(workers[0].tasks == 1 && workers[1].tasks == 1 && workers.untyped().stats()[1].submitted == 1);
    const dtl::submission made = workers.submit([] {});
    CHECK(&workers.selected(made) == &workers[made.resource()] && workers.try_submit([](worker &) {}).has_value());
    CHECK(special_from([&] { workers.submit_and_wait([](worker &mine) { throw special{mine.id}; }); }) >= 10);
    int alive = 0;
    dtl::policy_over<worker> ruled(std::make_unique<last_one>(alive), {{1}, {2}, {3}});
    ruled.submit_and_wait([](worker &mine) { mine.tasks = mine.id; });
    CHECK(ruled[2].tasks == 3);

    std::vector<dtl::stream> streams;
    streams.emplace_back(), streams.emplace_back();
    const dtl::policy_over<dtl::stream> queues("round_robin", std::move(streams));
    CHECK(queues.untyped().traits().kind == DTL_RESOURCES_STREAMS);
    std::atomic<int> calls{0};
    for (int i = 0; i < 4; i++) {
        queues.submit([&](dtl::stream &on) { on->host_callback([&calls] { calls++; }); });
    }
    queues.wait_all();
    CHECK(calls == 4);
    try {
        dtl::policy_over<worker> none("fixed", {});
        CHECK(false);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_INVALID_ARGUMENT && std::strstr(failure.what(), "at least one") != nullptr);
    }
}

int main()
{
    own_rules();
    own_resources();
    without_host();
    typed_resources();
    inline_tasks();
    copies_share();
    adapted_later();
    integer_results();
    later_tasks();
    dtl::check(dtl_finalize());
    std::puts("ok");
}
