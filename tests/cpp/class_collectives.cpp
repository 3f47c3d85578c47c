// Collectives of classes behind dtl::register_backend: functions that block, as concept CollectiveCommunicator has them,
// are called by a thread; collective_supported and collective_start are slots.
constexpr int ranks = 3;

#include "thread_ranks.hpp"

#include <dtl/concepts.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>


// Ranks are threads. Each function checks that no other function of its object runs.
class Post {
    using key = std::tuple<int, int, int, int>; // number of the communicator, source, destination, tag
    static inline std::mutex lock;
    static inline std::array<std::atomic<int>, ranks> opened{};
    static inline std::map<key, std::deque<std::vector<char>>> boxes;

  public:
    using size_type = std::size_t;
    struct request {
        void *buf = nullptr;
        std::size_t size = 0;
        key from;
        bool done = true;
    };

    explicit Post(const dtl_comm_open_t &args) : rank_(args.rank), size_(args.size), number_(opened[static_cast<std::size_t>(rank_)]++)
    {
    }
    Post(const Post &) = delete;
    Post &operator=(const Post &) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    void send(const void *data, std::size_t size, int dest, int tag) { static_cast<void>(isend(data, size, dest, tag)); }
    void recv(void *data, std::size_t size, int source, int tag)
    {
        request wish = irecv(data, size, source, tag);
        wait(wish);
    }
    request isend(const void *data, std::size_t size, int dest, int tag)
    {
        const turn alone(*this);
        put(data, size, dest, tag);
        return {};
    }
    request irecv(void *data, std::size_t size, int source, int tag)
    {
        const turn alone(*this);
        return {data, size, {number_, source, rank_, tag}, false};
    }
    bool test(request &wish)
    {
        const turn alone(*this);
        return take(wish);
    }
    void wait(request &wish)
    {
        while (!test(wish)) {
            std::this_thread::yield();
        }
    }

  protected:
    class turn {
      public:
        explicit turn(Post &post) : post_(post) { CHECK(!post_.busy_.exchange(true)); }
        turn(const turn &) = delete;
        turn &operator=(const turn &) = delete;
        ~turn() { post_.busy_ = false; }

      private:
        Post &post_;
    };

    void put(const void *data, std::size_t size, int dest, int tag)
    {
        const auto *bytes = static_cast<const char *>(data);
        const std::lock_guard<std::mutex> guard(lock);
        boxes[{number_, rank_, dest, tag}].emplace_back(bytes, bytes + size);
    }
    static bool take(request &wish)
    {
        const std::lock_guard<std::mutex> guard(lock);
        auto &box = boxes[wish.from];
        if (!wish.done && box.empty() && std::get<1>(wish.from) == dead) {
            throw dtl::error(DTL_ERROR_RANK_FAILURE, "the cable is cut");
        }
        if (!wish.done && !box.empty()) {
            CHECK(box.front().size() == wish.size);
            std::memcpy(wish.buf, box.front().data(), wish.size);
            box.pop_front();
            wish.done = true;
        }
        return wish.done;
    }

    int rank_, size_, number_;

  public:
    static inline std::atomic<int> dead{-1}; // the rank whose messages come no more

  private:
    std::atomic<bool> busy_{false};
};

// Collectives that block, of bytes and of double, with the signatures of DTL's guide.
class Meeting : public Post {
    static constexpr int own = 1 << 30; // tag of the collectives

  public:
    using Post::Post;

    void barrier()
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_BARRIER]++;
        char nothing = 0;
        std::vector<char> all(static_cast<std::size_t>(size_));
        exchange(&nothing, all.data(), 1, true);
    }
    void broadcast(void *data, std::size_t size, int root)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_BCAST]++;
        for (int to = 0; rank_ == root && to < size_; to++) {
            if (to != root) {
                put(data, size, to, own);
            }
        }
        if (rank_ != root) {
            get(data, size, root);
        }
    }
    void scatter(const void *in, void *out, std::size_t size, int root)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_SCATTER]++;
        CHECK(rank_ != root || apart(in, times(size), out, size));
        for (int to = 0; rank_ == root && to < size_; to++) {
            put(part(in, to, size), size, to, own);
        }
        get(out, size, root);
    }
    void gather(const void *in, void *out, std::size_t size, int root)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_GATHER]++;
        collect(in, out, size, root);
    }
    void allgather(const void *in, void *out, std::size_t size)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_ALLGATHER]++;
        exchange(in, out, size, true);
    }
    void alltoall(const void *in, void *out, std::size_t size)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_ALLTOALL]++;
        exchange(in, out, size, false);
    }
    void reduce_sum(const void *in, void *out, std::size_t count, int root)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_REDUCE]++;
        add(in, out, count, root);
    }
    void allreduce_sum(const void *in, void *out, std::size_t count)
    {
        const turn alone(*this);
        calls[DTL_COLLECTIVE_ALLREDUCE]++;
        if (count == 13) {
            throw std::runtime_error("the adder overflows at 13");
        }
        if (count == 17) {
            throw 17;
        }
        for (int root = 0; root < size_; root++) {
            std::vector<double> unused(count);
            add(in, root == rank_ ? out : unused.data(), count, root);
        }
    }

    static inline std::array<std::atomic<int>, 16> calls{};

  private:
    static const char *part(const void *data, int which, std::size_t size)
    {
        return static_cast<const char *>(data) + static_cast<std::size_t>(which) * size;
    }
    static char *part(void *data, int which, std::size_t size)
    {
        return static_cast<char *>(data) + static_cast<std::size_t>(which) * size;
    }
    static bool apart(const void *in, std::size_t in_size, const void *out, std::size_t out_size)
    {
        const auto *const first = static_cast<const char *>(in), *const second = static_cast<const char *>(out);
        return first + in_size <= second || second + out_size <= first;
    }
    std::size_t times(std::size_t size) const { return static_cast<std::size_t>(size_) * size; }
    void get(void *data, std::size_t size, int source)
    {
        request wish{data, size, {number_, source, rank_, own}, false};
        while (!take(wish)) {
            std::this_thread::yield();
        }
    }
    void collect(const void *in, void *out, std::size_t size, int root)
    {
        put(in, size, root, own);
        for (int from = 0; rank_ == root && from < size_; from++) {
            CHECK(apart(in, size, out, times(size)));
            get(part(out, from, size), size, from);
        }
    }
    void exchange(const void *in, void *out, std::size_t size, bool same)
    {
        CHECK(apart(in, same ? size : times(size), out, times(size)));
        for (int to = 0; to < size_; to++) {
            put(same ? in : part(in, to, size), size, to, own);
        }
        for (int from = 0; from < size_; from++) {
            get(part(out, from, size), size, from);
        }
    }
    void add(const void *in, void *out, std::size_t count, int root)
    {
        std::vector<double> all(count * static_cast<std::size_t>(size_));
        collect(in, all.data(), count * sizeof(double), root);
        for (std::size_t i = 0; rank_ == root && i < count; i++) {
            double sum = 0;
            for (std::size_t j = i; j < all.size(); j += count) {
                sum += all[j];
            }
            static_cast<double *>(out)[i] = sum;
        }
    }
};

// Collectives that do not block: broadcasts of int, from rank 0 only.
class Beacon : public Post {
  public:
    using Post::Post;

    bool collective_supported(const dtl_coll_args_t &args) const
    {
        return args.collective == DTL_COLLECTIVE_BCAST && args.root == 0 && args.dtype == DTL_DTYPE_INT32;
    }
    request collective_start(const dtl_coll_args_t &args)
    {
        const turn alone(*this);
        calls++;
        const int tag = 1 << 30 | static_cast<int>(args.context);
        if (args.count == 13) {
            throw dtl::error(DTL_ERROR_LIMIT, "13 lamps");
        }
        for (int to = 1; rank_ == 0 && to < size_; to++) {
            put(args.recv[0].ptr, args.recv[0].size_bytes, to, tag);
        }
        return rank_ == 0 ? request{} : request{args.recv[0].ptr, args.recv[0].size_bytes, {number_, 0, rank_, tag}, false};
    }

    static inline std::atomic<int> calls{0};
};

static_assert(dtl::ReducingCommunicator<Meeting> && !dtl::NativeCollectives<Meeting>);
static_assert(dtl::NativeCollectives<Beacon> && !dtl::CollectiveCommunicator<Beacon>);

// What the class has is called, once on each rank; the rest is the library's.
static void results(const dtl::comm &comm, int rank)
{
    const auto calls = [&comm](int which) {
        comm->barrier(); // all have called it
        const int count = Meeting::calls[static_cast<std::size_t>(which)];
        comm->barrier(); // none calls it again
        return count;
    };
    const auto mine = static_cast<int16_t>(rank + 1);
    for (const bool in_place : {false, true}) {
        const int before = calls(DTL_COLLECTIVE_ALLGATHER);
        const int gathers = calls(DTL_COLLECTIVE_GATHER), scatters = calls(DTL_COLLECTIVE_SCATTER);
        const int all_to_all = calls(DTL_COLLECTIVE_ALLTOALL);
        const int reductions = calls(DTL_COLLECTIVE_ALLREDUCE), to_root = calls(DTL_COLLECTIVE_REDUCE);
        std::array<int16_t, ranks> all{};
        all[static_cast<std::size_t>(rank)] = mine;
        const void *in = in_place ? DTL_IN_PLACE : static_cast<const void *>(&mine);
        CHECK_OK(dtl_comm_allgather(comm.get(), in, 1, all.data(), DTL_DTYPE_INT16));
        CHECK((all == std::array<int16_t, ranks>{1, 2, 3}) && calls(DTL_COLLECTIVE_ALLGATHER) == before + ranks);
        all = {};
        all[static_cast<std::size_t>(rank)] = mine;
        in = in_place && rank == 1 ? DTL_IN_PLACE : static_cast<const void *>(&mine);
        CHECK_OK(dtl_comm_gather(comm.get(), in, 1, all.data(), DTL_DTYPE_INT16, 1));
        CHECK((rank != 1 || all == std::array<int16_t, ranks>{1, 2, 3}) && calls(DTL_COLLECTIVE_GATHER) == gathers + ranks);
        int16_t part = 0;
        void *const out = in_place && rank == 1 ? DTL_IN_PLACE : static_cast<void *>(&part);
        CHECK_OK(dtl_comm_scatter(comm.get(), all.data(), 1, out, DTL_DTYPE_INT16, 1));
        CHECK((part == mine || out == DTL_IN_PLACE) && calls(DTL_COLLECTIVE_SCATTER) == scatters + ranks);
        std::array<int16_t, ranks> there{}, back{};
        std::iota(there.begin(), there.end(), static_cast<int16_t>(10 * rank));
        back = there;
        in = in_place ? DTL_IN_PLACE : static_cast<const void *>(there.data());
        CHECK_OK(dtl_comm_alltoall(comm.get(), in, 1, back.data(), DTL_DTYPE_INT16));
        CHECK(back[0] == rank && back[1] == 10 + rank && back[2] == 20 + rank);
        CHECK(calls(DTL_COLLECTIVE_ALLTOALL) == all_to_all + ranks);
        const std::array<double, 2> terms{rank + 1.0, 0.5};
        std::array<double, 2> sums = terms;
        in = in_place ? DTL_IN_PLACE : static_cast<const void *>(terms.data());
        CHECK_OK(dtl_comm_allreduce(comm.get(), in, sums.data(), 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
        CHECK(sums[0] == 6 && sums[1] == 1.5 && calls(DTL_COLLECTIVE_ALLREDUCE) == reductions + ranks);
        sums = terms;
        in = in_place && rank == 2 ? DTL_IN_PLACE : static_cast<const void *>(terms.data());
        CHECK_OK(dtl_comm_reduce(comm.get(), in, sums.data(), 2, DTL_DTYPE_FLOAT64, DTL_OP_SUM, 2));
        CHECK((rank != 2 || sums[0] == 6) && calls(DTL_COLLECTIVE_REDUCE) == to_root + ranks);
    }
    const int reductions = calls(DTL_COLLECTIVE_ALLREDUCE), broadcasts = calls(DTL_COLLECTIVE_BCAST);
    double most = rank;
    int64_t sum = rank;
    CHECK_OK(dtl_comm_allreduce(comm.get(), DTL_IN_PLACE, &most, 1, DTL_DTYPE_FLOAT64, DTL_OP_MAX));
    CHECK_OK(dtl_comm_allreduce(comm.get(), DTL_IN_PLACE, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(most == 2 && sum == 3 && calls(DTL_COLLECTIVE_ALLREDUCE) == reductions);
    std::vector<int> data(50000, rank);
    comm->bcast(data.data(), data.size(), 2);
    comm->bcast(data.data(), 0, 2);
    CHECK(data.front() == 2 && data.back() == 2 && calls(DTL_COLLECTIVE_BCAST) == broadcasts + ranks);
    const dtl::comm half = comm->split(rank == 1 ? 1 : 0, rank); // some of the ranks
    double term = 1;
    CHECK_OK(dtl_comm_allreduce(half.get(), DTL_IN_PLACE, &term, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    CHECK(term == (rank == 1 ? 1 : 2) && calls(DTL_COLLECTIVE_ALLREDUCE) == reductions);
}

// While one rank is in a collective, another needs it for a message first.
static void messages_beside(const dtl::comm &comm, int rank)
{
    std::vector<double> large(100000, rank), into(large.size());
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int round = 0; round < 20; round++) {
        dtl::request sending = comm->isend(large.data(), large.size(), next, round);
        if (rank == 0) {
            comm->barrier();
            comm->recv(into.data(), into.size(), previous, round);
        } else {
            comm->recv(into.data(), into.size(), previous, round);
            comm->barrier();
        }
        static_cast<void>(sending.wait());
        CHECK(into.back() == previous);
    }
}

// Of two communicators, in different orders.
static void orders(const dtl::comm &comm, int rank)
{
    const dtl::comm other = comm->dup();
    for (int round = 0; round < 50; round++) {
        const std::array<double, 2> terms{1.0 * rank, 2.0 * rank};
        std::array<double, 2> sums{};
        std::array<dtl::request, 2> pending;
        for (const int which : {(rank + round) % 2, (rank + round + 1) % 2}) {
            const auto at = static_cast<std::size_t>(which);
            pending[at] = (which == 0 ? comm : other)->iallreduce(&terms[at], &sums[at], 1, DTL_OP_SUM);
        }
        static_cast<void>(pending[1].wait());
        static_cast<void>(pending[0].wait());
        CHECK(sums[0] == 3 && sums[1] == 6);
    }
}

// A test does not block, and a rank that makes no call holds up nobody.
static void not_blocking(const dtl::comm &comm, int rank, std::atomic<int> &stage)
{
    const double term = 1;
    double sum = 0;
    if (rank == 1) {
        while (stage != 2) { // the others have started theirs and tested them
            std::this_thread::yield();
        }
    }
    dtl::request pending = comm->iallreduce(&term, &sum, 1, DTL_OP_SUM);
    if (rank != 1) {
        CHECK(!pending.test());
        stage++;
        static_cast<void>(pending.wait());
        stage++;
    } else {
        while (stage != 4) { // no call of the library
            std::this_thread::yield();
        }
        static_cast<void>(pending.wait());
    }
    CHECK(sum == ranks);
    comm->barrier();
}

static void failures(const dtl::comm &comm)
{
    std::array<double, 17> terms{}, sums{};
    for (const auto &[count, text] : {std::pair{13, "the adder overflows at 13"}, std::pair{17, "no std::exception"}}) {
        const dtl::comm own = comm->dup(); // after a failure no collective follows on it
        CHECK_STATUS(dtl_comm_allreduce(own.get(), terms.data(), sums.data(), static_cast<uint64_t>(count),
                                        DTL_DTYPE_FLOAT64, DTL_OP_SUM),
                     DTL_ERROR_BACKEND);
        CHECK(told(text) || told("gave up allreduce")); // of this rank's function, or of another's
    }
}

// Rank 0 gives up, and its buffers are its own again, though the others come later and the class's function then runs.
static void given_up(int rank, std::atomic<int> &stage)
{
    const dtl::comm limited = opened("meeting", rank, 0, 3000000000);
    double sum = 1;
    if (rank == 0) {
        auto mine = std::make_unique<double>(1);
        CHECK_STATUS(dtl_comm_allreduce(limited.get(), DTL_IN_PLACE, mine.get(), 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM),
                     DTL_ERROR_TIMEOUT);
        CHECK(told("allreduce") && *mine == 1);
        mine.reset();
        stage++;
    } else {
        while (stage == 0) {
            std::this_thread::yield();
        }
        const dtl_status_t status =
            dtl_comm_allreduce(limited.get(), DTL_IN_PLACE, &sum, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM);
        CHECK(status != DTL_SUCCESS || sum == ranks);
        stage++;
    }
    while (stage != ranks) {
        std::this_thread::yield();
    }
}

// A rank dies before a collective, which then ends on all others. Rank 0 expects its note, rank 1 that of rank 0.
static void death(int rank, std::atomic<int> &stage)
{
    const dtl::comm comm = opened("meeting", rank);
    comm->barrier();
    stage++;
    while (stage < ranks) {
        std::this_thread::yield();
    }
    double sum = 1;
    if (rank == 2) {
        Post::dead = 2;
    } else {
        CHECK_STATUS(dtl_comm_allreduce(comm.get(), DTL_IN_PLACE, &sum, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM),
                     DTL_ERROR_RANK_FAILURE);
        CHECK(told("the cable is cut"));
    }
    stage++;
    while (stage < 2 * ranks) {
        std::this_thread::yield();
    }
}

static void meetings()
{
    const auto backend = dtl::register_backend<Meeting>("meeting");
    std::atomic<int> stage{0}, last{0};
    on_ranks([&](int rank) {
        const dtl::comm comm = opened("meeting", rank);
        results(comm, rank);
        CHECK(dtl::explain().find("alltoall by meeting: executed by the backend itself") != std::string::npos);
        messages_beside(comm, rank);
        orders(comm, rank);
        not_blocking(comm, rank, stage);
        failures(comm);
        given_up(rank, last);
        comm->barrier();
    });
    const int reductions = Meeting::calls[DTL_COLLECTIVE_ALLREDUCE];
    on_ranks([&](int rank) {
        const dtl::comm exact = opened("meeting", rank, DTL_COMM_DETERMINISTIC);
        double term = 1;
        CHECK_OK(dtl_comm_allreduce(exact.get(), DTL_IN_PLACE, &term, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
        CHECK(term == ranks);
    });
    CHECK(Meeting::calls[DTL_COLLECTIVE_ALLREDUCE] == reductions);
    stage = 0;
    on_ranks([&](int rank) { death(rank, stage); });
    Post::dead = -1;
}

static void beacons()
{
    const auto backend = dtl::register_backend<Beacon>("beacon");
    on_ranks([](int rank) {
        const dtl::comm comm = opened("beacon", rank);
        const dtl::comm other = comm->dup();
        for (const int count : {1, 100, 10000}) {
            std::vector<int> data(static_cast<std::size_t>(count), rank);
            (count == 100 ? other : comm)->bcast(data.data(), data.size(), 0);
            CHECK(data.back() == 0);
        }
        comm->barrier();
        CHECK(Beacon::calls == 3 * ranks && dtl::explain().find("bcast by beacon") != std::string::npos);
        double far = rank; // not a class's: another type, another root
        int near = rank;
        comm->bcast(&far, 1, 0);
        comm->bcast(&near, 1, 1);
        comm->barrier();
        CHECK(far == 0 && near == 1 && Beacon::calls == 3 * ranks);
        comm->barrier();
        std::array<int, 13> lamps{};
        CHECK_STATUS(dtl_comm_bcast(other.get(), lamps.data(), 13, DTL_DTYPE_INT32, 0), DTL_ERROR_LIMIT);
        CHECK(told("13 lamps"));
        comm->barrier();
    });
}

int main(void)
{
    const dtl::library library;
    beacons();
    meetings();
    return 0;
}
