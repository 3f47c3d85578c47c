// golden: one program in five languages, see golden.c.
#include <dtl.hpp>

#include <cstddef>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace {

constexpr std::size_t report_bytes = 512;

std::string with_numbers(std::string line, const std::vector<long long> &numbers)
{
    for (const long long number : numbers) line += ' ' + std::to_string(number);
    return line + '\n';
}

std::string device()
{
    std::vector<double> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 0.0);
    const dtl::backend_ref host("host");
    const auto there = dtl::buffer<double>::to_device(numbers.data(), numbers.size(), host);
    const std::vector<double> back = there.to_host();
    return with_numbers("device: the sum of the copies is",
                        {static_cast<long long>(std::accumulate(back.begin(), back.end(), 0.0))});
}

std::string kernel()
{
    float x[4] = {0, 1, 2, 3};
    const dtl::backend_ref host("host");
    const dtl::stream stream(host);
    dtl::kernel_source source;
    source.text = "#include \"dtl_kernel.h\"\n"
                  "DTL_KERNEL(twice, (DTL_GLOBAL float*, x), (unsigned, n))\n"
                  "{\n"
                  "    const DTL_SIZE i = DTL_GLOBAL_ID(0);\n"
                  "    if (i < n) x[i] = 2 * x[i] + 1;\n"
                  "}\n";
    const dtl::kernel_module module(source, host);
    const dtl::kernel twice = module.kernel_of<float *, unsigned>("twice");
    float *const at = x;
    stream->launch(twice, dtl::grid{1}, dtl::block{4}, at, 4u);
    stream->synchronize();
    return with_numbers("kernel: 2 x + 1 is", std::vector<long long>(x, x + 4));
}

std::string policy()
{
    std::vector<long long> values;
    const dtl::policy_over<int> round_robin("round_robin", {10, 20, 30});
    for (int i = 0; i < 5; i++) round_robin.submit_and_wait([&](int &value) { values.push_back(value); });
    return with_numbers("policy:", values);
}

std::string error(dtl::comm_ref world)
{
    const int number = 1;
    try {
        world.send(&number, 1, dtl::rank{99}, dtl::tag{0});
    } catch (const dtl::error &failure) {
        return std::string("error: ") + failure.what() + '\n';
    }
    return "error: none\n";
}

// Numbers that every rank has a part in.
void together(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    const double sum = world.allreduce((rank + 1.0) * (rank + 1.0), dtl::ops::sum);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int received = -1;
    std::vector<int> all(static_cast<std::size_t>(size));
    world.sendrecv(&rank, 1, next, 7, &received, 1, previous, 7);
    world.gather<int>(&received, 1, all.data(), 0);
    const dtl::window<int64_t> counter(world, rank == 0 ? 1 : 0);
    {
        auto lock = counter->lock(dtl::rank{0}, dtl::lock_type::shared);
        counter->fetch_op(rank + 1, 0, 0, dtl::ops::sum);
    }
    world.barrier();
    if (rank == 0) {
        std::printf("ranks: %d\nallreduce: the sum of the squares is %.0f\n", size, sum);
        std::printf("%s", with_numbers("ring:", {all.begin(), all.end()}).c_str());
        std::printf("window: the counter is %lld\n", static_cast<long long>(counter[0]));
    }
}

} // namespace

int main()
{
    int good = 1, rank = 0;
    {
        const dtl::library library;
        const dtl::comm_ref world;
        rank = world.rank();
        together(world);
        std::string report = device() + kernel() + policy() + error(world);
        report.resize(report_bytes); // the other languages end their text with NUL
        std::string reports(report_bytes * static_cast<std::size_t>(world.size()), '\0');
        world.gather<std::byte>(reinterpret_cast<const std::byte *>(report.data()), report_bytes,
                                reinterpret_cast<std::byte *>(&reports[0]), 0);
        if (rank == 0) {
            std::printf("%s", report.c_str());
            for (int i = 0; i < world.size(); i++) {
                const std::string other = reports.substr(report_bytes * static_cast<std::size_t>(i), report_bytes);
                if (other == report) continue;
                std::printf("rank %d reports:\n%s", i, other.c_str());
                good = 0;
            }
            std::printf("%s\n", good ? "every rank reports the same" : "WRONG");
        }
        world.bcast(&good, 1, 0);
    }
    if (rank == 0) std::printf("finalized\n");
    return good ? 0 : 1;
}
