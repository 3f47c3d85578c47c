// ring: messages round a ring of ranks, blocking and non-blocking.
//
// Build: find_package(dtl) and target_link_libraries(ring PRIVATE dtl::dtl), or
//        c++ -std=c++17 ring.cpp $(pkg-config --cflags --libs libdtl) -o ring
// Run:   dtlrun -n 4 ./ring           (or mpirun -n 4 ./ring, or ./ring alone)
// Prints, from rank 0, the token after its round and the sum that everybody got.
#include <dtl.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace {

// Types of their own: a rank in the place of a tag does not compile.
constexpr dtl::tag tag_token{1}, tag_shift{2};

struct ring {
    dtl::comm_ref comm;
    int rank, size;
    dtl::rank next, previous;
};

ring make_ring(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    return {comm, rank, size, dtl::rank{(rank + 1) % size}, dtl::rank{(rank + size - 1) % size}};
}

// One token visits every rank in turn, and each adds its number.
int64_t pass_token(const ring &r)
{
    int64_t token = 0;
    if (r.size == 1) {
        return token; // nobody to send to: a blocking send to oneself would wait for ever
    }
    if (r.rank != 0) {
        r.comm.recv(&token, 1, r.previous, tag_token);
        token += r.rank;
    }
    r.comm.send(&token, 1, r.next, tag_token);
    if (r.rank == 0) {
        r.comm.recv(&token, 1, r.previous, tag_token);
    }
    return token;
}

// Everybody sends at the same time: after size-1 shifts each rank has seen every number.
int64_t shift_all(const ring &r)
{
    int64_t mine = r.rank, sum = r.rank;
    for (int step = 1; step < r.size; step++) {
        int64_t received = -1;
        dtl::request receive = r.comm.irecv(&received, 1, r.previous, tag_shift);
        dtl::request send = r.comm.isend(&mine, 1, r.next, tag_shift);
        send.wait();
        const dtl_recv_info_t info = receive.wait();
        if (info.source != r.previous.get() || dtl::count_of<int64_t>(info) != 1) {
            throw std::runtime_error("a message of the wrong source or size");
        }
        mine = received;
        sum += received;
    }
    return sum;
}

int run()
{
    const dtl::library library;
    const ring r = make_ring(dtl::comm_ref());
    const int64_t expected = int64_t{r.size} * (r.size - 1) / 2;
    const int64_t token = pass_token(r);
    const int64_t sum = shift_all(r);
    const int good = sum == expected && (r.rank != 0 || token == expected);
    const bool all_good = r.comm.allreduce(good, dtl::ops::min) != 0;
    if (r.rank == 0) {
        std::printf("%d ranks: the token came back as %lld, every shift sum is %lld: %s\n", r.size,
                    static_cast<long long>(token), static_cast<long long>(sum),
                    all_good ? "correct" : "WRONG");
    }
    return all_good ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "ring: %s\n", failure.what());
        return 1;
    }
}
