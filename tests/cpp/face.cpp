// dtl.hpp: errors, owners, buffers, log.
#include "../c/check.h"

#include <dtl.hpp>

#include <cstring>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

template <class F> static dtl_status_t thrown(F &&function)
{
    try {
        function();
    } catch (const dtl::error &failure) {
        CHECK(std::strstr(failure.what(), dtl_status_name(failure.status())) != nullptr);
        return failure.status();
    }
    return DTL_SUCCESS;
}

static void errors()
{
    dtl::check(DTL_SUCCESS);
    CHECK(thrown([] { dtl::backend_ref("no such backend"); }) == DTL_ERROR_NOT_FOUND);
    try {
        dtl::backend_ref("no such backend");
    } catch (const std::exception &failure) {
        CHECK(std::strstr(failure.what(), "no such backend") != nullptr);
    }
}

static void backends()
{
    const dtl::backend_ref host("host");
    CHECK(host.name() == "host");
    CHECK(host.is_available() && host.device_count() >= 1);
    CHECK(dtl::backend_ref::all().size() >= 2);
    host.set_device(0);
    CHECK(host.device() == 0);
    CHECK(host.device_info(0).kind == DTL_DEVICE_CPU);
}

static void registered()
{
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    memory.alloc = [](void *, uint64_t, uint64_t, dtl_enum_word_t, void **) -> dtl_status_t {
        return DTL_ERROR_OUT_OF_MEMORY;
    };
    memory.free = [](void *, void *, uint64_t, uint64_t, dtl_enum_word_t) -> dtl_status_t {
        return DTL_SUCCESS;
    };
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    table.memory = &memory;
    {
        dtl::registered_backend mine("mine", table, nullptr);
        CHECK(dtl::backend_ref("mine").get().id == mine.get().id);
    }
    CHECK(thrown([] { dtl::backend_ref("mine"); }) == DTL_ERROR_NOT_FOUND);
}

static uint64_t live_count(dtl::backend_ref backend)
{
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    dtl::check(dtl_mem_stats(backend.get(), &stats));
    return stats.live_count;
}

static void buffers()
{
    const dtl::backend_ref host("host");
    const uint64_t before = live_count(host);
    {
        dtl::buffer<double> a(1000, DTL_MEMORY_HOST, host);
        CHECK(live_count(host) == before + 1);
        std::vector<double> source(1000), back(1000);
        std::iota(source.begin(), source.end(), 1.0);
        a.copy_from(source.data());
        CHECK(a[999] == 1000.0);
        dtl::buffer<double> b = std::move(a);
        CHECK(a.data() == nullptr && a.size() == 0 && b.size() == 1000);
        b.copy_to(back.data());
        CHECK(back == source);
        b.fill(0);
        CHECK(b[500] == 0.0);
        dtl::buffer<double> none(0);
        dtl::buffer<double> shared(1000, DTL_MEMORY_SHARED, host);
        const dtl_mem_handle_t handle = shared.export_handle();
        dtl::buffer<double> same(handle, host);
        CHECK(same.size() == 1000 && same.data() != shared.data());
        shared[999] = 2.5;
        shared = dtl::buffer<double>();
        CHECK(same[999] == 2.5);
        CHECK(thrown([&] { dtl::buffer<double> late(handle, host); }) == DTL_ERROR_INVALID_HANDLE);
        CHECK(thrown([&] { (void)same.export_handle(); }) == DTL_ERROR_NOT_SUPPORTED);
        none.fill(1);
        CHECK(none.begin() == none.end());
    }
    CHECK(live_count(host) == before);
    CHECK(thrown([] { dtl::buffer<double>(SIZE_MAX / 2); }) == DTL_ERROR_OUT_OF_MEMORY);
}

static void log()
{
    dtl::log_sink sink([](int, std::string_view) { throw 1; }, DTL_LOG_DEBUG);
    dtl::backend_ref("auto").info();
}

static void pools()
{
    dtl::pool pool;
    dtl::pool moved(std::move(pool));
    CHECK(pool.get().id == 0 && thrown([&] { pool.allocate(1); }) == DTL_ERROR_INVALID_HANDLE);
    void *first = moved.allocate(1000, 256), *second = moved.allocate(5);
    CHECK(reinterpret_cast<uintptr_t>(first) % 256 == 0 && moved.stats().live_bytes == 1005);
    moved.deallocate(first);
    CHECK(thrown([&] { moved.deallocate(first); }) == DTL_ERROR_INVALID_ARGUMENT);
    moved.deallocate(second);
    moved.trim();
    CHECK(moved.stats().live_count == 0 && moved.stats().total_count == 2);
    CHECK(thrown([] { dtl::pool none(12345); }) == DTL_ERROR_NOT_SUPPORTED);
}

struct counter {
    int begun = 0, ended = 0;
    uint64_t bytes = 0;
    void begin(const dtl_trace_event_t &) noexcept { ++begun; }
    void end(const dtl_trace_event_t &event) noexcept
    {
        ++ended;
        bytes += (event.has & DTL_TRACE_HAS_BYTES) != 0 ? event.bytes : 0;
    }
};

static void traces()
{
    const std::string path = "/tmp/dtl-face-" + std::to_string(getpid()) + ".json";
    counter tool;
    {
        dtl::trace_listener<counter> listener(tool);
        dtl::trace trace(path);
        CHECK(thrown([&] { dtl::trace other(path + "2"); }) == DTL_ERROR_INVALID_STATE);
        dtl::pool().allocate(1000);
        trace.stop();
        CHECK(thrown([&] { trace.stop(); }) == DTL_ERROR_INVALID_STATE);
        CHECK(thrown([&] { dtl::trace again(path); }) == DTL_ERROR_ALREADY_EXISTS);
    }
    CHECK(tool.begun >= 2 && tool.begun == tool.ended && tool.bytes == 1000);
    const int before = tool.begun;
    dtl::pool().trim();
    CHECK(tool.begun == before && std::remove(path.c_str()) == 0);
    {
        dtl::trace trace(path);
    }
    CHECK_STATUS(dtl_trace_stop(), DTL_ERROR_INVALID_STATE);
    CHECK(std::remove(path.c_str()) == 0);
}

int main()
{
    dtl::library library;
    errors();
    backends();
    registered();
    buffers();
    pools();
    log();
    traces();
    CHECK(!dtl::explain().empty());
    std::puts("face: all checks passed");
}
