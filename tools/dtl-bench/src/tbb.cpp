// A loop of oneTBB's, for `dtl-bench parallel_for --vs tbb`, which compiles it and calls it through C.
#include <cstdint>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

extern "C" void dtl_bench_tbb(uint64_t end, int threads, void (*body)(uint64_t, uint64_t, void *), void *user) {
    static tbb::task_arena arena(threads);
    arena.execute([=] {
        tbb::parallel_for(tbb::blocked_range<uint64_t>(0, end), [=](const tbb::blocked_range<uint64_t> &range) {
            body(range.begin(), range.end(), user);
        });
    });
}
