// dtl.hpp: communicators made from communicators, requests of every form, collectives of every form.
// Runs alone and with several ranks.
#include "../c/check.h"

#include <dtl.hpp>

#include <array>
#include <numeric>
#include <thread>
#include <vector>

using std::vector;

// Every collective of a communicator, waiting (`now`) or as a request (`later`), gives the same.
static void collectives(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    const int64_t sum = int64_t{size} * (size - 1) / 2;
    const std::array<int64_t, 2> mine = {rank, 1};
    std::array<int64_t, 2> now{}, later{};

    comm.reduce(mine.data(), now.data(), 2, DTL_OP_SUM, 0);
    comm.ireduce(mine.data(), later.data(), 2, DTL_OP_SUM, 0).wait();
    CHECK(rank != 0 || (now == std::array<int64_t, 2>{sum, size} && later == now));
    comm.allreduce(mine.data(), now.data(), 2, DTL_OP_SUM);
    later = mine;
    comm.iallreduce(dtl::in_place, later.data(), 2, DTL_OP_SUM).wait();
    CHECK(now[0] == sum && later == now);
    later = mine;
    comm.allreduce(later, DTL_OP_SUM);
    CHECK(later == now);
    comm.scan(mine.data(), now.data(), 2, DTL_OP_SUM);
    comm.iscan(mine.data(), later.data(), 2, DTL_OP_SUM).wait();
    CHECK(now[0] == int64_t{rank} * (rank + 1) / 2 && now[1] == rank + 1 && later == now);
    now = later = {-1, -1};
    comm.exscan(mine.data(), now.data(), 2, DTL_OP_SUM);
    comm.iexscan(mine.data(), later.data(), 2, DTL_OP_SUM).wait();
    CHECK(now[1] == (rank == 0 ? -1 : rank) && later == now);
    now = rank == size - 1 ? std::array<int64_t, 2>{5, 6} : mine;
    comm.bcast(now, size - 1);
    later = rank == 0 ? std::array<int64_t, 2>{7, 8} : mine;
    comm.ibcast(later.data(), 2, 0).wait();
    CHECK(now[1] == 6 && later[0] == 7);
    comm.ibarrier().wait();
}

static void blocks(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    vector<int32_t> all(size), again(size), range(size), one(1);
    std::iota(range.begin(), range.end(), 0);
    CHECK(comm.allgather(int32_t{rank}) == range);
    comm.iallgather(&rank, 1, again.data()).wait();
    CHECK(again == range);
    comm.gather(&rank, 1, all.data(), 0);
    comm.scatter(all.data(), 1, one.data(), 0);
    CHECK(one[0] == rank);
    comm.igather(&rank, 1, all.data(), size - 1).wait();
    comm.iscatter(all.data(), 1, one.data(), size - 1).wait();
    CHECK(one[0] == rank);
    comm.alltoall(range.data(), 1, all.data());
    comm.ialltoall(range.data(), 1, again.data()).wait();
    CHECK(all == vector<int32_t>(size, rank) && again == all);
    const vector<int32_t> ones(size, 1);
    comm.reduce_scatter_block(ones.data(), one.data(), 1, DTL_OP_SUM);
    CHECK(one[0] == size);
    comm.ireduce_scatter_block(ones.data(), one.data(), 1, DTL_OP_MAX).wait();
    CHECK(one[0] == 1);
}

// Rank r has r + 1 elements.
static void uneven_blocks(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    vector<uint64_t> counts(size), mine(size, rank + 1);
    std::iota(counts.begin(), counts.end(), 1);
    const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    vector<double> own(rank + 1, rank + 0.5), all(total), again(total), part(rank + 1);
    const auto is_right = [&] {
        bool good = all == again;
        for (uint64_t r = 0, at = 0; r < counts.size(); r++) {
            for (uint64_t i = 0; i < counts[r]; i++) {
                good = good && all[at++] == double(r) + 0.5;
            }
        }
        return good;
    };
    comm.allgatherv(own.data(), own.size(), all.data(), counts.data(), nullptr);
    comm.iallgatherv(own.data(), own.size(), again.data(), counts.data(), nullptr).wait();
    CHECK(is_right());
    comm.gatherv(own.data(), own.size(), all.data(), counts.data(), nullptr, 0);
    comm.igatherv(own.data(), own.size(), again.data(), counts.data(), nullptr, 0).wait();
    CHECK(rank != 0 || is_right());
    comm.scatterv(all.data(), counts.data(), nullptr, part.data(), part.size(), 0);
    CHECK(part == own);
    comm.iscatterv(all.data(), counts.data(), nullptr, part.data(), part.size(), 0).wait();
    CHECK(part == own);
    vector<double> to_each(uint64_t(size) * (rank + 1), rank + 0.5);
    comm.alltoallv(to_each.data(), mine.data(), nullptr, all.data(), counts.data(), nullptr);
    comm.ialltoallv(to_each.data(), mine.data(), nullptr, again.data(), counts.data(), nullptr).wait();
    CHECK(is_right());
    const vector<double> ones(total, 1);
    comm.reduce_scatter(ones.data(), part.data(), counts.data(), DTL_OP_SUM);
    CHECK(part == vector<double>(rank + 1, size));
    comm.ireduce_scatter(ones.data(), part.data(), counts.data(), DTL_OP_MIN).wait();
    CHECK(part == vector<double>(rank + 1, 1));
    // A ring of neighbours: one block to the right, one from the left.
    const vector<int32_t> right{(rank + 1) % size}, left{(rank + size - 1) % size};
    const uint64_t sent = own.size(), received = uint64_t(left[0]) + 1;
    vector<double> first(received), second(received);
    comm.neighbor_alltoallv(right, own.data(), &sent, nullptr, left, first.data(), &received, nullptr);
    comm.ineighbor_alltoallv(right, own.data(), &sent, nullptr, left, second.data(), &received, nullptr).wait();
    CHECK(first == vector<double>(received, left[0] + 0.5) && second == first);
}

static void point_to_point(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    const vector<float> mine(3, float(rank));
    vector<float> got(5, -1);
    dtl::request receive = comm.irecv(got, left, 3);
    comm.send(mine, right, 3);
    CHECK(dtl::count_of<float>(receive.wait()) == 3 && got[2] == float(left) && got[3] == -1);
    dtl_recv_info_t info = comm.sendrecv(mine.data(), 2, right, 4, got.data(), 5, left, 4);
    CHECK(info.size_bytes == 8 && info.source == left);
    info = comm.sendrecv_replace(got.data(), 5, right, 4, left, 4);
    CHECK(info.size_bytes == 20 && got[0] == float((left + size - 1) % size));
}

// Messages whose length their receiver learns by probing.
static void probing(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    CHECK(!comm.iprobe(left, 99) && !comm.improbe(left, 99)); // nobody sends that
    const vector<int64_t> sent(rank + 2, rank);
    dtl::request first = comm.isend(sent, right, 8), second = comm.issend(sent.data(), sent.size(), right, 8);
    const dtl_recv_info_t info = comm.probe(DTL_ANY_SOURCE, 8);
    CHECK(info.source == left && dtl::count_of<int64_t>(info) == uint64_t(left) + 2);
    CHECK(comm.iprobe(left, 8)->size_bytes == info.size_bytes);
    dtl::message found = comm.mprobe(left, 8);
    CHECK(found && found.info().source == left);
    const vector<int64_t> expected(left + 2, left);
    CHECK(found.recv<int64_t>() == expected && !found);
    first.wait();
    dtl::message next = comm.mprobe();
    vector<int64_t> got(next.info().size_bytes / sizeof(int64_t));
    dtl::message moved = std::move(next);
    CHECK(!next);
    moved.irecv(got.data(), got.size()).wait();
    CHECK(got == expected);
    second.wait();
    if (rank == 0 && size > 1) {
        comm.ssend(sent, 1, 9);
    } else if (rank == 1) {
        vector<int64_t> two(2);
        comm.recv(two, 0, 9);
        CHECK(two == vector<int64_t>(2, 0));
    }
    comm.barrier();
}

static void persistent(dtl::comm_ref comm)
{
    const int rank = comm.rank(), size = comm.size();
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int32_t out = 0, in = -1;
    dtl::persistent_request send = comm.send_init(&out, 1, right, 5);
    dtl::persistent_request receive = comm.recv_init(&in, 1, left, 5);
    for (int32_t step = 0; step < 10; step++) {
        out = 100 * step + rank;
        receive.start();
        send.start();
        CHECK(receive.wait().source == left && in == 100 * step + left);
        send.wait();
        CHECK(send.test());
    }
    dtl::request_list both;
    both.add(std::move(receive));
    both.add(std::move(send));
    CHECK(receive.get().id == 0 && both.size() == 2);
    for (int32_t step = 0; step < 10; step++) {
        out = step + rank;
        both.start_all();
        both.wait_all();
        CHECK(in == step + left && both[0].id != 0);
    }
    CHECK(both.test_all() && !both.wait_any());
}

static void lists(dtl::comm_ref comm)
{
    const int rank = comm.rank();
    int32_t in[4] = {-1, -1, -1, -1};
    const int32_t out[4] = {10, 11, 12, 13};
    dtl::request_list list;
    for (int tag = 0; tag < 4; tag++) {
        list.add(comm.irecv(&in[tag], 1, rank, tag));
    }
    CHECK(!list.test_all() && !list.wait_all_for(std::chrono::microseconds(10)));
    comm.isend(&out[2], 1, rank, 2).wait();
    dtl_recv_info_t info{};
    CHECK(list.wait_any(&info) == std::size_t{2} && info.tag == 2 && list[2].id == 0);
    comm.isend(&out[0], 1, rank, 0).wait();
    CHECK(list.wait_some() == vector<uint64_t>{0});
    comm.isend(&out[1], 1, rank, 1).wait();
    comm.isend(&out[3], 1, rank, 3).wait();
    const vector<dtl_recv_info_t> infos = list.wait_all_infos();
    CHECK(infos[1].tag == 1 && infos[3].tag == 3 && in[0] == 10 && in[3] == 13);
    CHECK(!list.wait_any() && list.wait_some().empty());
    int32_t never = 0;
    list.add(comm.irecv(&never, 1, rank, 9));
    list.clear(); // withdrawn, or this hangs
    dtl::request cancelled = comm.irecv(&never, 1, rank, 9);
    cancelled.cancel();
    try {
        cancelled.wait();
        CHECK(false);
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_CANCELED);
    }
    CHECK(comm.size() == 1 || never == 0);
}

// Failures are exceptions with the status; what is left unfinished ends with its owner.
static void failures(dtl::comm_ref comm)
{
    const int rank = comm.rank();
    const auto status_of = [](auto call) {
        try {
            call();
        } catch (const dtl::error &failure) {
            return failure.status();
        }
        return DTL_SUCCESS;
    };
    int64_t number = 5, small[1] = {};
    const vector<int64_t> three(3, rank);
    dtl::request_list list;
    list.add(comm.irecv(small, 1, rank, 6));
    comm.isend(three, rank, 6).wait();
    CHECK(status_of([&] { list.wait_all(); }) == DTL_ERROR_TRUNCATED && small[0] == rank && list[0].id == 0);
    CHECK(status_of([&] { comm.bcast(&number, 1, comm.size()); }) == DTL_ERROR_INVALID_RANK);
    CHECK(status_of([&] { comm.send(&number, 1, -7); }) == DTL_ERROR_INVALID_RANK);
    CHECK(status_of([&] { dtl::request().wait(); }) == DTL_ERROR_INVALID_HANDLE);
    CHECK(status_of([&] { dtl::message().recv(&number, 1); }) == DTL_ERROR_INVALID_HANDLE);
    {
        const dtl::request barrier = comm.ibarrier();
        dtl::request_list sums;
        sums.add(comm.iallreduce(dtl::in_place, &number, 1, DTL_OP_SUM));
    } // collectives cannot be withdrawn: waited for here
    CHECK(number == 5 * comm.size());
    comm.barrier();
}

static void families(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    dtl::comm twin = world.dup();
    CHECK(twin->size() == size && twin->rank() == rank);
    const dtl::comm parity = twin->split(rank % 2, -rank);
    CHECK(parity->size() == (size + 1 - rank % 2) / 2);
    CHECK(parity->allreduce(rank % 2, DTL_OP_MAX) == rank % 2);
    CHECK(parity->rank() == parity->size() - 1 - rank / 2); // keys are descending
    const dtl::comm nobody = world.split(rank == 0 ? 0 : DTL_UNDEFINED);
    CHECK(static_cast<bool>(nobody) == (rank == 0));
    const dtl::comm ends = world.group(size == 1 ? vector<int32_t>{0} : vector<int32_t>{size - 1, 0});
    CHECK(static_cast<bool>(ends) == (rank == 0 || rank == size - 1));
    if (ends && size > 1) {
        CHECK(ends->size() == 2 && ends->rank() == (rank == 0 ? 1 : 0));
    }
    const dtl::comm left = twin->shrink(); // nobody died: all are left
    CHECK(left->size() == size && left->allreduce(1, DTL_OP_SUM) == size);
    const dtl::comm node = world.split_node();
    CHECK(node->size() >= 1 && node->size() <= size);
    CHECK(world.dump().find("rank " + std::to_string(rank)) != std::string::npos);
    world.barrier();
}

static void everything(dtl::comm_ref comm)
{
    collectives(comm);
    blocks(comm);
    uneven_blocks(comm);
    point_to_point(comm);
    probing(comm);
    persistent(comm);
    lists(comm);
    failures(comm);
    families(comm);
    collectives(comm.dup());
}

// The same with ranks that are threads of this process.
static void with_threads(int32_t ranks)
{
    vector<dtl_comm_t> handles(ranks);
    vector<std::thread> threads;
    dtl::check(dtl_comm_threads(ranks, 0, handles.data()));
    for (const dtl_comm_t handle : handles) {
        threads.emplace_back([handle] {
            const dtl::comm own(handle);
            everything(own);
            own->barrier(); // nobody leaves while another is in a collective
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

int main()
{
    dtl::library library;
    const dtl::comm_ref world;
    everything(world);
    if (world.size() == 1) {
        with_threads(3);
    }
    if (world.rank() == 0) {
        std::printf("comm_forms: all checks passed with %d ranks\n", world.size());
    }
}
