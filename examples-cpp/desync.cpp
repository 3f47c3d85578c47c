// desync: a program with the classic bug, and the report that names it.
//
// Rank 1 calls bcast where the others call allreduce. Most libraries hang here, or give wrong numbers.
//
// Build: c++ -std=c++17 desync.cpp $(pkg-config --cflags --libs libdtl) -o desync
// Run:   dtlrun -n 4 ./desync
// Prints, from each rank, what its failed call says, and from rank 0 the long report of dtl_comm_dump;
// succeeds if they name the ranks and both calls.
#include <dtl.hpp>

#include <array>
#include <cstdio>
#include <exception>
#include <string>

namespace {

// Nobody leaves before all have their reports: a rank that has left answers no questions. Collectives are
// refused after the failure, point to point is not.
void leave_together(dtl::comm_ref comm)
{
    std::byte word{};
    if (comm.rank() != 0) {
        comm.send(&word, 1, 0);
        comm.recv(&word, 1, 0);
        return;
    }
    for (int other = 1; other < comm.size(); other++) comm.recv(&word, 1, other);
    for (int other = 1; other < comm.size(); other++) comm.send(&word, 1, other);
}

// The text of the failure, or nothing if there was none.
std::string take_the_wrong_turn(dtl::comm_ref comm)
{
    std::array<double, 64> mine{}, sum{};
    try {
        if (comm.rank() == 1) {
            comm.bcast(mine, 0); // the bug
        } else {
            comm.allreduce(mine.data(), sum.data(), mine.size(), DTL_OP_SUM);
        }
    } catch (const dtl::error &failure) {
        return failure.what();
    }
    return {};
}

int run()
{
    const dtl::library library;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.timeout_ns = 1'000'000'000; // no call waits longer than a second
    const dtl::comm comm(desc);
    if (comm->size() == 1) {
        std::puts("desync: one rank cannot disagree with itself; use dtlrun -n 4");
        return 0;
    }

    comm->barrier(); // so far all is well
    const std::string text = take_the_wrong_turn(comm);
    std::printf("rank %d: %s\n", comm->rank(), text.c_str());
    const std::string report = comm->dump();
    if (comm->rank() == 0) std::printf("%s", report.c_str());
    leave_together(comm);

    // What a rank was in, the text says if that rank was still in it; else the report's last operations do.
    const auto names = [&](const char *what) { return (text + report).find(what) != std::string::npos; };
    return !text.empty() && names("bcast #1") && names("allreduce #1") && names("rank 1") ? 0 : 1;
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
