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

constexpr int32_t tag_token = 1, tag_shift = 2;

struct ring {
    dtl_comm_t comm;
    int32_t rank, size, next, previous;
};

ring make_ring(dtl_comm_t comm)
{
    int32_t rank = 0, size = 0;
    dtl::check(dtl_comm_rank(comm, &rank));
    dtl::check(dtl_comm_size(comm, &size));
    return {comm, rank, size, (rank + 1) % size, (rank + size - 1) % size};
}

// One token visits every rank in turn, and each adds its number.
int64_t pass_token(const ring &r)
{
    int64_t token = 0;
    if (r.size == 1) {
        return token; // nobody to send to: a blocking send to oneself would wait for ever
    }
    if (r.rank != 0) {
        dtl::check(dtl_comm_recv(r.comm, &token, 1, DTL_DTYPE_INT64, r.previous, tag_token, nullptr));
        token += r.rank;
    }
    dtl::check(dtl_comm_send(r.comm, &token, 1, DTL_DTYPE_INT64, r.next, tag_token));
    if (r.rank == 0) {
        dtl::check(dtl_comm_recv(r.comm, &token, 1, DTL_DTYPE_INT64, r.previous, tag_token, nullptr));
    }
    return token;
}

// Everybody sends at the same time: after size-1 shifts each rank has seen every number.
int64_t shift_all(const ring &r)
{
    int64_t mine = r.rank, sum = r.rank;
    for (int32_t step = 1; step < r.size; step++) {
        int64_t received = -1;
        dtl_request_t requests[2];
        dtl_recv_info_t infos[2];
        dtl::check(
            dtl_comm_irecv(r.comm, &received, 1, DTL_DTYPE_INT64, r.previous, tag_shift, &requests[0]));
        dtl::check(dtl_comm_isend(r.comm, &mine, 1, DTL_DTYPE_INT64, r.next, tag_shift, &requests[1]));
        dtl::check(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, infos));
        if (infos[0].source != r.previous || infos[0].size_bytes != sizeof received) {
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
    const ring r = make_ring(DTL_COMM_WORLD);
    const int64_t expected = int64_t{r.size} * (r.size - 1) / 2;
    const int64_t token = pass_token(r);
    const int64_t sum = shift_all(r);
    const int32_t good = sum == expected && (r.rank != 0 || token == expected);
    int32_t all_good = 0;
    dtl::check(dtl_comm_allreduce(r.comm, &good, &all_good, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
    if (r.rank == 0) {
        std::printf("%d ranks: the token came back as %lld, every shift sum is %lld: %s\n", int{r.size},
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
