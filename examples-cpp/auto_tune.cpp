// auto_tune: which of host and OpenCL computes faster depends on the size. A policy finds out, for each size, while it works.
//
// The kernel sums the gravity potential of n bodies, n x n terms, from one source for both (dtl_kernel.h). A task copies the
// bodies to a device, computes there and copies the result back, all queued on the stream that it is given; the policy
// "auto_tune" gives it each stream a few times, measures, and then always the faster one. The columns of times are measured
// beside it, without the policy: they show what there was to find.
//
// Build: find_package(dtl) and target_link_libraries(auto_tune PRIVATE dtl::dtl), or
//        c++ -std=c++17 auto_tune.cpp $(pkg-config --cflags --libs libdtl) -o auto_tune
// Run:   ./auto_tune [largest number of bodies, default 2048]
#include <dtl.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <vector>

static const char source_text[] = R"(#include "dtl_kernel.h"
#ifdef DTL_ON_OPENCL
#define ROOT(x) sqrt(x)
#else
#include <math.h>
#define ROOT(x) sqrtf(x)
#endif
DTL_KERNEL(potential, (DTL_GLOBAL const float*, at), (DTL_GLOBAL float*, sum), (unsigned, n))
{
    const DTL_SIZE i = DTL_GLOBAL_ID(0);
    unsigned j;
    float all = 0.0f;
    if (i < n) {
        for (j = 0; j < n; j++) {
            const float x = at[2 * i] - at[2 * j], y = at[2 * i + 1] - at[2 * j + 1];
            all += 1.0f / ROOT(x * x + y * y + 0.01f);
        }
        sum[i] = all;
    }
}
)";

// One piece of work, on the host's side.
struct bodies {
    unsigned n;
    std::vector<float> at, sum;
};

dtl::kernel compiled(dtl::backend_ref backend)
{
    dtl::kernel_source source;
    source.text = source_text, source.name = "potential";
    return dtl::kernel_module(source, backend).kernel_of<const float *, float *, unsigned>("potential");
}

// A backend that computes, with memory for the largest size.
class place {
  public:
    place(const char *name, unsigned most)
        : name_(name), backend_(name), stream_(backend_), at_(2 * std::size_t{most}, DTL_MEMORY_DEVICE, backend_),
          sum_(most, DTL_MEMORY_DEVICE, backend_), kernel_(compiled(backend_))
    {
    }
    place(const place &) = delete;

    const char *name() const { return name_; }
    dtl_resource_t resource() { return {stream_.get().id, this}; }

    // Queues all of a task's work.
    void queue(bodies &work)
    {
        const float *const at = at_.data();
        float *const sum = sum_.data();
        stream_->copy(at_.data(), work.at.data(), 2 * sizeof(float) * work.n);
        stream_->launch(kernel_, dtl::grid{(work.n + 63) / 64}, dtl::block{64}, at, sum, work.n);
        stream_->copy(work.sum.data(), sum, sizeof(float) * work.n);
    }

    // The best of some runs without a policy, in milliseconds.
    double measure(bodies &work)
    {
        using clock = std::chrono::steady_clock;
        double best = 1e9;
        for (int i = 0; i < 5; i++) {
            const auto begin = clock::now();
            queue(work);
            stream_->synchronize();
            best = std::min(best, std::chrono::duration<double, std::milli>(clock::now() - begin).count());
        }
        return best;
    }

  private:
    const char *name_;
    dtl::backend_ref backend_;
    dtl::stream stream_;
    dtl::buffer<float> at_, sum_;
    dtl::kernel kernel_;
};

// Lets the policy find out, and then work: which place it takes.
static uint32_t tune(const dtl::policy &policy, std::size_t places, bodies &work)
{
    const dtl_task_key_t key{1, work.n}; // task 1; each size is learnt by itself
    uint32_t taken = 0;
    for (std::size_t i = 0; i < 4 * places + 10; i++) { // one warm-up and three timings of each place, then ten more
        auto done = policy.submit([&work](const dtl_resource_t &where) { static_cast<place *>(where.user)->queue(work); }, key);
        done.wait();
        taken = done.resource();
    }
    return taken;
}

// How far the result is from one computed here.
static double error_of(const bodies &work)
{
    double worst = 0;
    for (unsigned i = 0; i < work.n; i++) {
        double sum = 0;
        for (unsigned j = 0; j < work.n; j++) {
            const double x = work.at[2 * i] - work.at[2 * j], y = work.at[2 * i + 1] - work.at[2 * j + 1];
            sum += 1.0 / std::sqrt(x * x + y * y + 0.01);
        }
        worst = std::max(worst, std::fabs(work.sum[i] - sum) / sum);
    }
    return worst;
}

static void run(unsigned most)
{
    const dtl::library library;
    std::list<place> places;
    for (const char *name : {"host", "opencl"}) {
        try {
            places.emplace_back(name, most);
        } catch (const dtl::error &error) {
            std::printf("no %s here: %s\n", name, error.what());
        }
    }
    std::vector<dtl_resource_t> resources;
    for (place &one : places) resources.push_back(one.resource());
    dtl_policy_opts_t options = DTL_POLICY_OPTS_INIT;
    options.kind = DTL_RESOURCES_STREAMS;
    const dtl::policy policy("auto_tune", resources, &options);

    bodies work{0, std::vector<float>(2 * std::size_t{most}), std::vector<float>(most)};
    for (std::size_t i = 0; i < work.at.size(); i++) work.at[i] = static_cast<float>(i * 7919 % 1000) / 1000.0f;
    std::printf("%8s", "bodies");
    for (const place &one : places) std::printf("  %7s ms", one.name());
    std::printf("  auto_tune takes\n");
    for (work.n = 64; work.n <= most; work.n *= 4) {
        const uint32_t taken = tune(policy, places.size(), work);
        const double error = error_of(work);
        std::vector<double> times;
        for (place &one : places) times.push_back(one.measure(work));
        std::printf("%8u", work.n);
        for (const double time : times) std::printf("  %10.3f", time);
        // Other programs on the machine disturb the policy's few timings.
        const bool is_slower = times.at(taken) > 2 * *std::min_element(times.begin(), times.end());
        std::printf("  %s%s\n", static_cast<place *>(resources.at(taken).user)->name(), is_slower ? " (the slower one)" : "");
        if (error > 1e-4) throw dtl::error(DTL_ERROR_INTERNAL, "the result is off");
    }
}

int main(int argc, char **argv)
{
    try {
        const unsigned most = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2048;
        run(most);
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "auto_tune: %s\n", error.what());
    }
    return 1;
}
