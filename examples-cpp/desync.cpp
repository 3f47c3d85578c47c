// desync: a program with the classic bug, and the report that names it.
//
// Rank 1 calls bcast where the others call allreduce. Most libraries hang here, or give wrong numbers.
//
// Build: c++ -std=c++17 desync.cpp $(pkg-config --cflags --libs libdtl) -o desync
// Run:   dtlrun -n 4 ./desync
// Prints, from each rank, what its failed call says; succeeds if it names the ranks and both calls.
#include <dtl.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace {

int run()
{
    const dtl::library library;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.timeout_ns = 1'000'000'000; // no call waits longer than a second
    const dtl::comm comm(desc);
    const int rank = comm->rank();
    if (comm->size() == 1) {
        std::puts("desync: one rank cannot disagree with itself; use dtlrun -n 4");
        return 0;
    }

    std::array<double, 64> mine{}, sum{};
    comm->barrier(); // so far all is well
    try {
        if (rank == 1) {
            comm->bcast(mine.data(), mine.size(), 0); // the bug
        } else {
            comm->allreduce(mine.data(), sum.data(), mine.size(), DTL_OP_SUM);
        }
    } catch (const dtl::error &failure) {
        const std::string text = failure.what();
        std::printf("rank %d: %s\n", rank, text.c_str());
        const auto names = [&](const char *what) { return text.find(what) != std::string::npos; };
        return names("bcast #1") && names("allreduce #1") && names("rank 1 is in bcast") ? 0 : 1;
    }
    return 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "desync: %s\n", failure.what());
        return 1;
    }
}
