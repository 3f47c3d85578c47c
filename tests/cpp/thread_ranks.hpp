// Ranks that are threads of the test. Define their number `ranks` before you include this file.
#ifndef DTL_TESTS_THREAD_RANKS_HPP
#define DTL_TESTS_THREAD_RANKS_HPP

#include "../c/check.h"

#include <dtl.hpp>

#include <cstring>
#include <thread>
#include <vector>

static bool told(const char *text)
{
    return std::strstr(dtl_last_error(), text) != nullptr;
}

// Opens the communicator on one rank.
static dtl::comm opened(const char *kind, int rank, uint64_t flags = 0, uint64_t timeout_ns = 0)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = kind;
    desc.rank = rank;
    desc.size = ranks;
    desc.flags |= flags;
    if (timeout_ns != 0) {
        desc.timeout_ns = timeout_ns;
    }
    return dtl::comm(desc);
}

// Calls `body` with each rank, in a thread of its own.
template <class F> static void on_ranks(F body)
{
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++) {
        threads.emplace_back([rank, &body] { body(rank); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

#endif
