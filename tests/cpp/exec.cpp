// dtl.hpp: streams, events, executors, kernels, and exceptions on their way through the library.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

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

static void loops(const dtl::executor &pool)
{
    std::vector<int> hits(10000, 0);
    pool.parallel_for(0, hits.size(), 16, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = begin; i < end; i++) {
            hits[i]++;
        }
    });
    CHECK(hits == std::vector<int>(10000, 1));
    const auto throwing = [](uint64_t begin, uint64_t) {
        if (begin >= 500) {
            throw special{42};
        }
    };
    CHECK(special_from([&] { pool.parallel_for(0, 1000, 1, throwing); }) == 42);
    const auto failing = [](uint64_t, uint64_t) -> dtl_status_t { return DTL_ERROR_BUSY; };
    CHECK(thrown([&] { pool.parallel_for(0, 10, 1, failing); }) == DTL_ERROR_BUSY);
}

static void reductions(const dtl::executor &pool)
{
    const auto fold = [](uint64_t begin, uint64_t end, uint64_t &sum) {
        for (uint64_t i = begin; i < end; i++) {
            sum += i;
        }
    };
    const auto add = [](uint64_t &into, const uint64_t &from) { into += from; };
    CHECK(pool.parallel_reduce(0, 1001, 10, uint64_t{0}, fold, add) == 500500);
    const auto broken = [](uint64_t, uint64_t, uint64_t &) { throw special{7}; };
    CHECK(special_from([&] { pool.parallel_reduce(0, 10, 1, uint64_t{0}, broken, add); }) == 7);
}

static void runs(const dtl::executor &pool)
{
    int ran = 0;
    pool.run([&] { ran++; });
    CHECK(ran == 1);
    CHECK(special_from([&] { pool.run([] { throw special{3}; }); }) == 3);
    std::atomic<int> later{0};
    dtl::event done(dtl::backend_ref("host"));
    pool.run_async([&] { later++; }, done);
    done.sync();
    CHECK(later == 1);
    CHECK(pool.wait_for(std::chrono::seconds(20)));
    pool.run_async([] { throw std::bad_alloc(); });
    CHECK(thrown([&] { pool.synchronize(); }) == DTL_ERROR_OUT_OF_MEMORY);
}

static void streams(dtl::backend_ref host)
{
    dtl::stream stream(host);
    dtl::buffer<int> source(100, DTL_MEMORY_HOST, host), target(100, DTL_MEMORY_HOST, host);
    source.fill(1);
    dtl::event start(host), stop(host);
    stream->record(start);
    stream->copy(target.data(), source.data(), source.size_bytes());
    stream->record(stop);
    CHECK(stop.wait_for(std::chrono::seconds(20)));
    CHECK(target[99] == 0x01010101 && dtl::elapsed(start, stop).count() >= 0);

    int calls = 0;
    stream->host_callback([&calls] { calls++; });
    CHECK(stream->wait_for(std::chrono::seconds(20)));
    CHECK(calls == 1 && stream->is_idle());
    stream->host_callback([] { throw special{1}; });
    CHECK(thrown([&] { stream->synchronize(); }) == DTL_ERROR_CANCELED);
    stream->host_callback([] { throw dtl::error(DTL_ERROR_TYPE, "mine"); });
    CHECK(thrown([&] { stream->synchronize(); }) == DTL_ERROR_TYPE);
    stream->synchronize();

    dtl::stream moved = std::move(stream);
    CHECK(stream.get().id == 0 && moved.get().id != 0);
}

static void ordered_memory(dtl::backend_ref host)
{
    dtl::stream stream(host);
    std::vector<int> mine(100, 7), back(100);
    {
        const dtl::registered first(mine.data(), sizeof(int) * mine.size(), host);
        CHECK(thrown([&] { dtl::registered again(mine.data(), 4, host); }) == DTL_ERROR_ALREADY_EXISTS);
        void *memory = stream->allocate(DTL_MEMORY_DEVICE, 400, 64);
        stream->copy(memory, mine.data(), 400);
        stream->prefetch(memory, 400, DTL_PREFETCH_HOST);
        stream->copy(back.data(), memory, 400);
        stream->deallocate(memory);
        stream->synchronize();
    }
    CHECK(back == mine);
    dtl::registered first(mine.data(), 4, host), second(std::move(first));
    second = dtl::registered(back.data(), 4, host);
}

static void adopted_memory(dtl::backend_ref host)
{
    std::vector<int> mine(100, 7);
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    {
        dtl::adopted first(mine.data(), 400, DTL_MEMORY_HOST, host), second(std::move(first));
        CHECK(dtl_mem_query(&mine[99], &info) == DTL_SUCCESS && info.base == mine.data() && info.size_bytes == 400);
        CHECK(thrown([&] { dtl::adopted again(&mine[1], 4, DTL_MEMORY_HOST, host); }) == DTL_ERROR_ALREADY_EXISTS);
        CHECK(thrown([&] { dtl::adopted none(nullptr, 4, DTL_MEMORY_HOST, host); }) == DTL_ERROR_NULL_POINTER);
    }
    CHECK(dtl_mem_query(mine.data(), &info) == DTL_ERROR_NOT_FOUND);
}

static dtl_status_t add_one(const dtl_kernel_context_t *context, const void *const *arguments)
{
    int *data;
    int amount;
    std::memcpy(&data, arguments[0], sizeof data);
    std::memcpy(&amount, arguments[1], sizeof amount);
    data[context->block_index[0] * context->block[0] + context->thread_index[0]] += amount;
    return DTL_SUCCESS;
}

static void kernels(dtl::backend_ref host)
{
    dtl::stream stream(host);
    dtl::kernel kernel(add_one, nullptr, host);
    dtl::buffer<int> data(32, DTL_MEMORY_HOST, host);
    data.fill(0);
    const dtl::launch_history history(2);
    CHECK(history.read().empty());
    stream->launch(kernel, dtl::grid{4}, dtl::block{8}, data.data(), 5);
    stream->synchronize();
    for (int value : data) {
        CHECK(value == 5);
    }
    for (uint32_t blocks = 1; blocks <= 3; blocks++) {
        stream->launch(kernel, dtl::grid{blocks}, dtl::block{1}, data.data(), 0);
    }
    stream->synchronize();
    const std::vector<dtl_launch_record_t> last = history.read();
    CHECK(last.size() == 2 && last[0].grid[0] == 2 && last[1].grid[0] == 3 && last[1].number == 4);
    CHECK(last[1].kernel.id == kernel.get().id && last[1].stream.id == stream.get().id);
    CHECK(history.read("a function", 1).size() == 1 && history.read("a function", 1)[0].number == 4);
    CHECK(history.read("another").empty());
}

enum class length : int32_t {};

static void kernels_from_source(dtl::backend_ref host)
{
    dtl::kernel_source source;
    source.text = "#include <dtl_kernel.h>\n#include \"amount.h\"\n"
                  "DTL_KERNEL(scale, (DTL_GLOBAL float *, data), (float, by), (int, n))\n"
                  "{ for (int i = 0; i < n; i++) data[i] = data[i] * by + AMOUNT + MORE; }\n";
    source.files = {{"amount.h", "#define AMOUNT 1\n"}};
    source.options = {"-DMORE=2"};
    source.name = "scale.c";
    std::string why;
    try {
        const dtl::kernel scale = dtl::kernel_module(source, host).kernel_of<float *, float, length>("scale");
        dtl::stream stream(host);
        std::vector<float> data{1, 2, 3};
        stream->launch(scale, dtl::grid{1}, dtl::block{1}, data.data(), 10.0f, int32_t{3});
        stream->synchronize();
        CHECK((data == std::vector<float>{13, 23, 33}));
        CHECK(thrown([&] { stream->launch(scale, dtl::grid{1}, dtl::block{1}, data.data(), 10.0,
                                          int32_t{3}); }) ==
              DTL_ERROR_INVALID_ARGUMENT);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_UNAVAILABLE); // no compiler here
        std::puts(failure.what());
        return;
    }
    const dtl::kernel_module whole(source, host);
    CHECK(thrown([&] { (void)whole.kernel("none"); }) == DTL_ERROR_NOT_FOUND);
    CHECK(thrown([&] { (void)whole.kernel_of<double *,
                 int>("scale"); }) == DTL_ERROR_INVALID_ARGUMENT);
    (void)whole.kernel("scale"), (void)whole.log();
    source.text = "nonsense";
    CHECK(thrown([&] { dtl::kernel_module none(source, host); }) == DTL_ERROR_COMPILE_FAILED);
    CHECK(dtl::kernel_module::last_log().find("scale.c") != std::string::npos);
    source.language = dtl::languages::ptx;
    CHECK(thrown([&] { dtl::kernel_module none(source, host); }) == DTL_ERROR_NOT_SUPPORTED);
    static_assert(std::is_same_v<decltype(dtl::kernel_header()), std::string_view>);
    CHECK(dtl::kernel_header().find("DTL_KERNEL") != std::string_view::npos);
}

static void devices(dtl::backend_ref host)
{
    const dtl::device_memory memory = host.memory_of(0);
    CHECK(memory.total_bytes > 0 && memory.free_bytes <= memory.total_bytes);
    const dtl::stream_priorities range = host.priorities_of(0);
    CHECK(range.greatest <= 0 && range.least >= 0);
    dtl::stream stream(host);
    std::atomic<bool> ran{false};
    stream->host_callback([&] { ran = true; });
    host.synchronize();
    CHECK(ran && host.wait_for(0, std::chrono::seconds(20)));
    CHECK(thrown([&] { host.synchronize(99); }) == DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(thrown([&] { host.memory_of(99); }) == DTL_ERROR_OUT_OF_BOUNDS);
    std::string report;
    host.self_test(&report);
    CHECK(report.find("ok") != std::string::npos && report.back() != '\0');
}

static void history_ends()
{
    uint64_t count = 77;
    CHECK_STATUS(dtl_launch_history_read(nullptr, nullptr, 0, &count), DTL_ERROR_INVALID_STATE);
    CHECK(thrown([] { dtl::launch_history(UINT64_MAX); }) == DTL_ERROR_LIMIT);
}

int main()
{
    dtl::library library;
    const dtl::backend_ref host("host");
    const dtl::executor pool(DTL_EXECUTOR_POOL, 4, host);
    CHECK(pool.info().max_parallelism == 4);
    loops(pool);
    reductions(pool);
    runs(pool);
    streams(host);
    ordered_memory(host);
    adopted_memory(host);
    kernels(host);
    kernels_from_source(host);
    devices(host);
    history_ends();
    std::puts("exec: all checks passed");
}
