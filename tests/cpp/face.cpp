// dtl.hpp: errors, owners, buffers, log, enumerations.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <cstring>
#include <numeric>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static void errors()
{
    dtl::check(DTL_SUCCESS);
    CHECK(dtl::set_error(DTL_ERROR_BUSY, "the mill is full") == DTL_ERROR_BUSY);
    CHECK(std::string(dtl_last_error()) == "the mill is full");
    CHECK(dtl::set_error(DTL_SUCCESS, "all is well") == DTL_ERROR_INVALID_ARGUMENT);
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

struct call_counter {
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
    call_counter tool;
    {
        dtl::trace_listener<call_counter> listener(tool);
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

/* Built-in members are constants: they switch, and count at compile time. */
static const char *where(dtl::schedule schedule)
{
    switch (schedule.tmpl()) {
    case dtl::schedules::sequential:
    case dtl::schedules::multicore:
        return "host";
    case dtl::schedules::device:
        return "device";
    case dtl::schedules::undefined:
        return "unknown";
    default:
        return "registered";
    }
}

static void enumerations()
{
    static_assert(dtl::memory_kinds::host == DTL_MEMORY_HOST && dtl::memory_kinds::shared.value() == 5);
    static_assert(dtl_ev_match(DTL_EV_WORD(3, 301) | 7, DTL_EV_WORD(3, 301)) == 1);
    static_assert(!dtl::memory_kinds::host.matches(dtl::memory_kinds::device) && dtl::memory_kind() == 0);

    const auto kernel = dtl::schedule::add("Face_Kernel", {dtl::attr("block_size", 128), dtl::attr("share", 0.5),
                                                           dtl::attr("mode", std::string("plain")), dtl::attr("fast", true),
                                                           dtl::attr("memory", dtl::memory_kinds::pinned),
                                                           dtl_attr_required("streams", DTL_ATTR_U64)});
    const auto one = kernel.instance({dtl::attr("streams", 4u)});
    CHECK(one == kernel.instance({dtl::attr("streams", uint64_t{4}), dtl::attr("mode", "plain")}) && one.matches(kernel));
    CHECK(one.get<int64_t>("block_size") == 128 && one.get<uint64_t>("streams") == 4 && one.get<double>("share") == 0.5);
    CHECK(one.get<bool>("fast") && one.get<std::string_view>("mode") == "plain" && one.name() == "Face_Kernel");
    CHECK(one.get<uint64_t>("memory") == dtl::memory_kinds::pinned);
    CHECK(thrown([&] { one.get<bool>("streams"); }) == DTL_ERROR_TYPE);
    CHECK(thrown([&] { kernel.instance({dtl::attr("streams", 4)}); }) == DTL_ERROR_TYPE);
    CHECK(thrown([&] { kernel.instance({}); }) == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(dtl::schedule::from_json(one.json().c_str()) == one && dtl::schedule::from_name("Face_Kernel") == kernel);

    CHECK(std::strcmp(where(dtl::schedules::multicore), "host") == 0 && std::strcmp(where(one), "registered") == 0);
    const auto unknown = dtl::schedule::from_json("\"Gone\"", true);
    CHECK(std::strcmp(where(unknown), "unknown") == 0 && unknown.json() == "\"Gone\"");
    CHECK(thrown([] { dtl::schedule::from_json("\"Gone\""); }) == DTL_ERROR_NOT_FOUND);

    dtl::set_defaults(kernel, dtl::memory_kinds::pinned, dtl::schedules::sequential);
    CHECK(dtl::defaults_of(one).memory == dtl::memory_kinds::pinned && dtl::defaults_of(one).inner == dtl::schedules::sequential);

    const auto kinds = dtl::enumeration::create("face");
    const auto first = kinds.add("first"), second = kinds.add("second", 301);
    CHECK(kinds.members() == (std::vector<dtl_enum_word_t>{kinds.undefined(), first, second}));
    CHECK(dtl::enumeration::find("face").from_value(301) == second && kinds.from_name("first") == first);
    CHECK(thrown([&] { kinds.add("first"); }) == DTL_ERROR_ALREADY_EXISTS);
    CHECK(dtl::memory_kind::of.from_json("\"Host\"") == dtl::memory_kinds::host);
}

struct counter {
    static int alive;
    static bool broken;
    alignas(128) int value = 7;
    counter()
    {
        if (broken) throw dtl::error(DTL_ERROR_TIMEOUT, "counter is broken");
        ++alive;
    }
    ~counter() { --alive; }
};
int counter::alive = 0;
bool counter::broken = false;

// Types keep apart what C has one integer type for.
static_assert(std::is_constructible_v<dtl::buffer<int>, std::size_t, dtl::memory_kind>);
static_assert(std::is_constructible_v<dtl::buffer<int>, std::size_t, dtl_enum_word_t>);
static_assert(!std::is_constructible_v<dtl::buffer<int>, std::size_t, dtl::schedule>);
static_assert(!std::is_constructible_v<dtl::buffer<int>, std::size_t, dtl::memory_property>);
static_assert(!std::is_constructible_v<dtl::pool, dtl::device_kind>);
static_assert(!std::is_constructible_v<dtl::memory_kind, dtl::device_kind>);
static_assert(std::is_convertible_v<dtl_reduce_op_t, dtl::reduce_op>);
static_assert(!std::is_constructible_v<dtl::reduce_op, dtl::element_type>);
static_assert(!std::is_convertible_v<dtl::reduce_op, dtl::element_type>);
static_assert(dtl::ops::sum == DTL_OP_SUM && dtl::ops::no_op == DTL_OP_NO_OP);

static void types()
{
    const dtl::buffer<int> typed(4, dtl::memory_kinds::host), untyped(4, DTL_MEMORY_HOST);
    CHECK(typed.size() == untyped.size());
    CHECK(thrown([] { dtl::buffer<int>(4, DTL_MEMORY_UNIFIED); }) == DTL_ERROR_NOT_SUPPORTED);
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    CHECK_OK(dtl_mem_kind_info(dtl::backend_ref("host").get(), dtl::memory_kinds::host, &info));
    CHECK(dtl::has(info, dtl::memory_property::host_accessible));
    CHECK(dtl::has(info, dtl::memory_property::unified) == ((info.properties & DTL_MEMORY_UNIFIED) != 0));
    const dtl::comm_ref world(DTL_COMM_WORLD);
    const int value = world.allreduce(3, dtl::ops::max);
    CHECK(value == world.allreduce(3, DTL_OP_MAX));
}

static void environments()
{
    dtl::register_environment<counter>("counter", "1.10");
    dtl::register_environment<int>("user", nullptr, {"counter>=1.9"});
    std::string why;
    CHECK(dtl::environment::is_available("user", &why) && why.empty());
    CHECK(!dtl::environment::is_available("counter>=2", &why) && why.find("1.10") != std::string::npos);
    {
        dtl::environment user("user"), counted("counter >= 1.2");
        CHECK(counter::alive == 1 && counted.state<counter>().value == 7 && user.state<int>() == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(&counted.state<counter>()) % 128 == 0);
        dtl::environment moved(std::move(user));
        user = std::move(moved);
        CHECK(user.info().state == DTL_ENVIRONMENT_STARTED && dtl::environment::all().size() >= 2);
    }
    CHECK(counter::alive == 0);
    counter::broken = true;
    try {
        dtl::environment user("user");
        CHECK(false);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_TIMEOUT && std::strstr(failure.what(), "counter is broken") != nullptr);
    }
    CHECK(counter::alive == 0);
    CHECK(thrown([] { dtl::unregister_environment("none"); }) == DTL_ERROR_NOT_FOUND);
    dtl::unregister_environment("user");
    CHECK(dtl::environment::all().size() >= 1 && thrown([] { dtl::environment user("user"); }) == DTL_ERROR_NOT_FOUND);
}

static void versions()
{
    const dtl::library_version version = dtl::version();
    CHECK(version.major == DTL_VERSION_MAJOR && version.minor == DTL_VERSION_MINOR && version.patch == DTL_VERSION_PATCH);
    CHECK(version.abi == DTL_ABI_VERSION);
    CHECK(version.text == std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
                              std::to_string(version.patch));
    CHECK(thrown([] { (void)dtl::library::after_fork(); }) == DTL_ERROR_INVALID_STATE);
}

// The library in a child of a process that used it.
static void forked()
{
    const pid_t child = fork();
    if (child == 0) {
        CHECK(thrown([] { dtl::buffer<int>(4); }) == DTL_ERROR_FORKED);
        {
            const dtl::library mine = dtl::library::after_fork();
            CHECK(dtl::buffer<int>(4).size() == 4);
        }
        _exit(7);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main()
{
    versions();
    enumerations();
    dtl::library library;
    errors();
    backends();
    registered();
    types();
    buffers();
    pools();
    environments();
    log();
    traces();
    CHECK(!dtl::explain().empty());
    forked();
    std::puts("face: all checks passed");
}
