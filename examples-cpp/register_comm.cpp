// register_comm: a communicator of the program's own from five functions: open, close, isend,
// irecv, test. The library makes send, recv and every collective out of them.
//
// The ranks are threads of this process; each has a mailbox with two lists, both in the order of
// arrival: messages that nobody has asked for yet, and receives that nothing has come for yet.
//
// Build: find_package(dtl), find_package(Threads) and
//        target_link_libraries(register_comm PRIVATE dtl::dtl Threads::Threads), or
//        c++ -std=c++17 register_comm.cpp $(pkg-config --cflags --libs libdtl) -pthread -o register_comm
// Run:   ./register_comm
// Prints a line for each operation that was checked on all ranks, then "correct".
#include <dtl.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr int32_t ranks = 4;

// ---- the transport ----

struct message {
    int32_t source;
    uint64_t match_word;
    std::vector<char> bytes;
};

struct operation { // its address is the operation's word
    void *buf = nullptr;
    uint64_t capacity = 0;
    int32_t source = 0;
    uint64_t match_word = 0, ignore = 0;
    bool done = false;
    dtl_comm_done_t result{};

    bool wants(int32_t from, uint64_t word) const noexcept
    {
        return (source == from || source == DTL_ANY_SOURCE) && ((match_word ^ word) & ~ignore) == 0;
    }

    void deliver(int32_t from, uint64_t word, const void *bytes, uint64_t size_bytes) noexcept
    {
        const uint64_t fits = std::min(size_bytes, capacity);
        if (fits > 0) {
            std::memcpy(buf, bytes, fits);
        }
        // The true size, also when it did not fit.
        result = {from, fits < size_bytes ? DTL_ERROR_TRUNCATED : DTL_SUCCESS, word, size_bytes};
        done = true;
    }
};

struct mailbox {
    std::mutex lock; // held only to look through the lists and copy one message
    int32_t rank = 0;
    std::list<message> messages;
    std::list<operation *> receives;
};

class job { // `self` of the slots
  public:
    job()
    {
        for (std::size_t rank = 0; rank < mailboxes_.size(); rank++) {
            mailboxes_[rank].rank = static_cast<int32_t>(rank);
        }
    }

    mailbox *open(int32_t rank) noexcept { return &mailboxes_[static_cast<std::size_t>(rank)]; }

    // Into the oldest receive that wants it, else into the mailbox. Either way the send is then done:
    // its buffer has been read.
    operation *send(const mailbox &from, const void *buf, uint64_t size_bytes, int32_t dest, uint64_t word)
    {
        mailbox &to = mailboxes_[static_cast<std::size_t>(dest)];
        auto sent = std::make_unique<operation>();
        sent->done = true; // result: all zero, DTL_SUCCESS
        const std::lock_guard<std::mutex> guard(to.lock);
        const auto found =
            std::find_if(to.receives.begin(), to.receives.end(),
                         [&](const operation *receive) { return receive->wants(from.rank, word); });
        if (found != to.receives.end()) {
            (*found)->deliver(from.rank, word, buf, size_bytes);
            to.receives.erase(found);
        } else {
            const char *bytes = static_cast<const char *>(buf);
            to.messages.push_back(
                {from.rank, word,
                 size_bytes > 0 ? std::vector<char>(bytes, bytes + size_bytes) : std::vector<char>()});
        }
        return sent.release();
    }

    // Takes the oldest message that it wants, else waits in the mailbox.
    static operation *receive(mailbox &me, std::unique_ptr<operation> wish)
    {
        const std::lock_guard<std::mutex> guard(me.lock);
        const auto found =
            std::find_if(me.messages.begin(), me.messages.end(), [&](const message &candidate) {
                return wish->wants(candidate.source, candidate.match_word);
            });
        if (found != me.messages.end()) {
            wish->deliver(found->source, found->match_word, found->bytes.data(), found->bytes.size());
            me.messages.erase(found);
        } else {
            me.receives.push_back(wish.get());
        }
        return wish.release();
    }

  private:
    std::array<mailbox, ranks> mailboxes_;
};

// The slots must not throw: the only exception here is that of a failed allocation.
template <class F> dtl_status_t guarded(F function) noexcept
{
    try {
        function();
        return DTL_SUCCESS;
    } catch (...) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
}

uint64_t word_of(operation *op) noexcept
{
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(op));
}

dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                       int32_t *out_size) noexcept
{
    if (args->size != ranks || args->rank < 0 || args->rank >= ranks) {
        DTL_IGNORE(dtl_backend_set_error("set rank and size of dtl_comm_desc_t: there are 4 ranks"));
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    *out_comm = static_cast<job *>(self)->open(args->rank);
    *out_rank = args->rank;
    *out_size = ranks;
    return DTL_SUCCESS;
}

dtl_status_t comm_close(void *, void *) noexcept
{ // the mailboxes go with the job: others may still send here
    return DTL_SUCCESS;
}

dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                        uint64_t match_word, uint64_t *out_op) noexcept
{
    return guarded([&] {
        *out_op = word_of(
            static_cast<job *>(self)->send(*static_cast<mailbox *>(comm), buf, size_bytes, dest, match_word));
    });
}

dtl_status_t comm_irecv(void *, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                        uint64_t match_word, uint64_t ignore, uint64_t *out_op) noexcept
{
    return guarded([&] {
        auto wish = std::make_unique<operation>();
        wish->buf = buf;
        wish->capacity = size_bytes;
        wish->source = source;
        wish->match_word = match_word;
        wish->ignore = ignore;
        *out_op = word_of(job::receive(*static_cast<mailbox *>(comm), std::move(wish)));
    });
}

dtl_status_t comm_test(void *, void *comm, uint64_t op, int32_t *out_done,
                       dtl_comm_done_t *out_result) noexcept
{
    auto *tested = reinterpret_cast<operation *>(static_cast<uintptr_t>(op));
    { // a sender may be completing it
        const std::lock_guard<std::mutex> guard(static_cast<mailbox *>(comm)->lock);
        *out_done = tested->done;
    }
    if (*out_done != 0) {
        *out_result = tested->result;
        delete tested;
    }
    return DTL_SUCCESS;
}

dtl::registered_backend register_mailboxes(job &self)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    comm.open = comm_open;
    comm.close = comm_close;
    comm.isend = comm_isend;
    comm.irecv = comm_irecv;
    comm.test = comm_test;
    table.comm = &comm;
    return dtl::registered_backend("mailbox", table, &self);
}

// ---- what the library makes of it: each function runs on every rank and says whether it was right ----

using dtl::check;

bool check_send_recv(dtl_comm_t comm, int32_t rank)
{
    const int32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    double there = rank, back = -1;
    check(dtl_comm_sendrecv(comm, &there, 1, next, 7, &back, 1, previous, 7, DTL_DTYPE_FLOAT64, nullptr));
    return back == previous;
}

// Rank 0 receives from anybody, first one tag and then the other: sent the other way round.
bool check_any_source(dtl_comm_t comm, int32_t rank)
{
    if (rank != 0) {
        const int32_t early = 10 * rank, late = 100 * rank;
        check(dtl_comm_send(comm, &early, 1, DTL_DTYPE_INT32, 0, 1));
        check(dtl_comm_send(comm, &late, 1, DTL_DTYPE_INT32, 0, 2));
        return true;
    }
    bool good = true;
    for (int32_t tag = 2; tag >= 1; tag--) {
        for (int32_t i = 1; i < ranks; i++) {
            int32_t value = 0;
            dtl_recv_info_t info;
            check(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, tag, &info));
            good &= value == (tag == 2 ? 100 : 10) * info.source && info.tag == tag;
        }
    }
    return good;
}

// Messages of one sender under any tag come in the order sent; receives are served in the order posted.
bool check_order(dtl_comm_t comm, int32_t rank)
{
    constexpr std::size_t messages = 8;
    const int32_t other = ranks - 1 - rank;
    std::array<int32_t, messages> sent{}, got{};
    std::array<dtl_request_t, 2 * messages> requests{};
    std::array<dtl_recv_info_t, 2 * messages> infos{};
    for (std::size_t i = 0; i < messages; i++) {
        sent[i] = 1000 * rank + static_cast<int32_t>(i);
        check(dtl_comm_irecv(comm, &got[i], 1, DTL_DTYPE_INT32, other, DTL_ANY_TAG, &requests[i]));
    }
    for (std::size_t i = 0; i < messages; i++) {
        check(dtl_comm_isend(comm, &sent[i], 1, DTL_DTYPE_INT32, other, 50 + static_cast<int32_t>(i),
                             &requests[messages + i]));
    }
    check(dtl_request_wait_all(requests.data(), requests.size(), DTL_TIMEOUT_INFINITE, infos.data()));
    bool good = true;
    for (std::size_t i = 0; i < messages; i++) {
        const auto number = static_cast<int32_t>(i);
        good &= got[i] == 1000 * other + number && infos[i].tag == 50 + number;
    }
    return good;
}

bool check_truncation(dtl_comm_t comm, int32_t rank)
{
    const int32_t pair[2] = {rank, rank + 1};
    int32_t one = -1;
    dtl_recv_info_t info;
    dtl_request_t send;
    check(dtl_comm_isend(comm, pair, 2, DTL_DTYPE_INT32, rank, 3, &send));
    const dtl_status_t status = dtl_comm_recv(comm, &one, 1, DTL_DTYPE_INT32, rank, 3, &info);
    check(dtl_request_wait(send, DTL_TIMEOUT_INFINITE, nullptr));
    return status == DTL_ERROR_TRUNCATED && one == rank && info.size_bytes == sizeof pair;
}

bool check_bcast(dtl_comm_t comm, int32_t rank)
{
    const std::array<int64_t, 3> expected{3, 1, 4};
    std::array<int64_t, 3> values{};
    if (rank == 2) {
        values = expected;
    }
    check(dtl_comm_barrier(comm));
    check(dtl_comm_bcast(comm, values.data(), values.size(), DTL_DTYPE_INT64, 2));
    return values == expected;
}

bool check_reduce(dtl_comm_t comm, int32_t rank)
{
    const double mine[2] = {double(rank), -double(rank)}, total = ranks * (ranks - 1) / 2.0;
    double sum[2] = {0, 0}, most[2] = {0, 0};
    check(dtl_comm_reduce(comm, mine, sum, 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM, 1));
    check(dtl_comm_allreduce(comm, mine, most, 2, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
    return (rank != 1 || (sum[0] == total && sum[1] == -total)) && most[0] == ranks - 1 && most[1] == 0;
}

bool check_gather_scatter(dtl_comm_t comm, int32_t rank)
{
    const std::array<int32_t, 2> mine{rank, rank * rank};
    std::array<int32_t, 2> back{-1, -1};
    std::array<int32_t, 2 * ranks> all{}, everywhere{}, expected{};
    for (int32_t i = 0; i < ranks; i++) {
        expected[static_cast<std::size_t>(2 * i)] = i;
        expected[static_cast<std::size_t>(2 * i + 1)] = i * i;
    }
    check(dtl_comm_gather(comm, mine.data(), 2, all.data(), DTL_DTYPE_INT32, 3));
    check(dtl_comm_scatter(comm, all.data(), 2, back.data(), DTL_DTYPE_INT32, 3));
    check(dtl_comm_allgather(comm, mine.data(), 2, everywhere.data(), DTL_DTYPE_INT32));
    return everywhere == expected && (rank != 3 || all == expected) && back == mine;
}

bool check_alltoall(dtl_comm_t comm, int32_t rank)
{
    std::array<int32_t, ranks> there{}, back{}, expected{};
    for (int32_t i = 0; i < ranks; i++) {
        there[static_cast<std::size_t>(i)] = 10 * rank + i;
        expected[static_cast<std::size_t>(i)] = 10 * i + rank;
    }
    check(dtl_comm_alltoall(comm, there.data(), 1, back.data(), DTL_DTYPE_INT32));
    return back == expected;
}

struct {
    const char *name;
    bool (*function)(dtl_comm_t comm, int32_t rank);
} const checks[] = {
    {"sendrecv", check_send_recv},
    {"recv from any source", check_any_source},
    {"isend, irecv, wait_all in order", check_order},
    {"truncation", check_truncation},
    {"barrier, bcast", check_bcast},
    {"reduce, allreduce", check_reduce},
    {"gather, scatter, allgather", check_gather_scatter},
    {"alltoall", check_alltoall},
};

// One rank, opened as long as this lives.
struct communicator {
    dtl_comm_t handle{};
    explicit communicator(int32_t rank)
    {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        desc.kind = "mailbox";
        desc.rank = rank;
        desc.size = ranks;
        check(dtl_comm_open(&desc, &handle));
    }
    communicator(const communicator &) = delete;
    communicator &operator=(const communicator &) = delete;
    ~communicator() { DTL_IGNORE(dtl_comm_destroy(handle)); }
};

// One thread. Says whether everything was right on all ranks.
bool rank_main(int32_t rank)
{
    const communicator comm(rank);
    bool all_good = true;
    for (const auto &[name, function] : checks) {
        const int32_t good = function(comm.handle, rank);
        int32_t together = 0;
        check(dtl_comm_allreduce(comm.handle, &good, &together, 1, DTL_DTYPE_INT32, DTL_OP_MIN));
        all_good &= together != 0;
        if (rank == 0) {
            std::printf("%-32s %s\n", name, together != 0 ? "right" : "WRONG");
        }
    }
    return all_good;
}

bool run()
{
    job self; // before the library, so destroyed after it
    const dtl::library library;
    const dtl::registered_backend backend = register_mailboxes(self);
    std::array<bool, ranks> good{};
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < ranks; rank++) {
        threads.emplace_back([rank, &good] {
            try {
                good[static_cast<std::size_t>(rank)] = rank_main(rank);
            } catch (const std::exception &failure) {
                // The others wait for this rank for ever, so the program ends here.
                std::fprintf(stderr, "register_comm: rank %d: %s\n", int{rank}, failure.what());
                std::_Exit(1);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return std::all_of(good.begin(), good.end(), [](bool one) { return one; });
}

} // namespace

int main()
{
    try {
        const bool good = run();
        if (good) {
            std::printf("correct\n");
        }
        return good ? 0 : 1;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "register_comm: %s\n", failure.what());
        return 1;
    }
}
