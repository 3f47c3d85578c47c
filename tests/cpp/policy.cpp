// dtl.hpp: policies and submissions of callables, and what they throw.
#include "../c/check.h"

#include <dtl.hpp>

#include <cstdlib>
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

template <class F> static dtl_status_t thrown(F &&function)
{
    try {
        function();
    } catch (const dtl::error &failure) {
        return failure.status();
    }
    return DTL_SUCCESS;
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

int main()
{
    inline_tasks();
    copies_share();
    adapted_later();
    integer_results();
    later_tasks();
    dtl::check(dtl_finalize());
    std::puts("ok");
}
