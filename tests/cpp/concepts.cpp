// dtl/concepts.hpp: what satisfies the concepts, the library's own classes through them, and classes as a backend.
#include "../c/check.h"

#include <dtl.hpp>
#include <dtl/concepts.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

static_assert(DTL_HAS_CONCEPTS);

static bool told(const char *text)
{
    return std::strstr(dtl_last_error(), text) != nullptr;
}

// ---- classes as DTL's guide has them ----

struct counts {
    std::atomic<int> objects{0}, live{0}, comms{0};
    std::atomic<std::size_t> alignment{0};
};
static counts counted;

// Counts its objects that were not moved from.
struct token {
    token() { counted.objects++; }
    token(token &&other) noexcept : alive(std::exchange(other.alive, false)) {}
    token &operator=(token &&) = delete;
    ~token() { counted.objects -= alive ? 1 : 0; }
    bool alive = true;
};

struct Space {
    using pointer = void *;
    using size_type = std::size_t;
    token counter;
    bool host = true;
    std::size_t shift = 0, promised = 64;

    void *allocate(size_type size) { return allocate(size, alignof(std::max_align_t)); }
    void *allocate(size_type size, size_type alignment)
    {
        if (size == 666) {
            throw std::runtime_error("the arena is on fire");
        }
        if (size > 1 << 20) {
            return nullptr;
        }
        counted.live++;
        counted.alignment = alignment;
        return static_cast<char *>(::operator new(size + shift, std::align_val_t{alignment < 64 ? 64 : alignment})) + shift;
    }
    void deallocate(void *first, size_type)
    {
        counted.live--;
        ::operator delete(static_cast<char *>(first) - shift, std::align_val_t{64});
    }
    dtl::memory_space_properties properties() const
    {
        dtl::memory_space_properties has;
        has.host_accessible = host, has.device_accessible = true, has.alignment = promised;
        return has;
    }
    const char *name() const { return "arena"; }
    std::size_t available_memory() const { return (1 << 20) - 64 * static_cast<std::size_t>(counted.live.load()); }
};

struct Runner { // no loops
    void execute(const std::function<void()> &function) { std::thread(function).detach(); } // later, elsewhere
    const char *name() const { return "runner"; }
};

struct Loops : Runner {
    token counter;
    std::size_t stop_after = SIZE_MAX, beyond = 0;

    template <class F> void parallel_for(std::size_t count, F &&function)
    {
        std::thread half([&] {
            for (std::size_t i = count / 2; i < std::min(count, stop_after); i++) {
                function(i);
            }
        });
        for (std::size_t i = 0; i < count / 2; i++) {
            function(i);
        }
        half.join();
        for (std::size_t i = count; i < count + beyond; i++) {
            function(i);
        }
        if (count == 13) {
            throw std::runtime_error("unlucky");
        }
    }
    std::size_t max_parallelism() const { return 2; }
    std::size_t suggested_parallelism() const { return 0; } // nonsense, taken as 1
};

struct Copier {
    std::atomic<int> *copies;
    void copy(void *dst, const void *src, std::size_t size)
    {
        ++*copies;
        std::memcpy(dst, src, size);
    }
    dtl::transfer_direction direction() const { return dtl::transfer_direction::unknown; }
};

// Ranks are threads. Messages of one source, destination and tag come in order, and into receives of exactly their size.
class Mail {
    using key = std::tuple<int, int, int>;
    static inline std::mutex lock;
    static inline std::map<key, std::deque<std::vector<char>>> boxes;

  public:
    using size_type = std::size_t;
    struct request {
        void *buf;
        std::size_t size;
        key from;
        bool done;
    };

    explicit Mail(const dtl_comm_open_t &args) : rank_(args.rank), size_(args.size)
    {
        if (rank_ < 0) {
            throw dtl::error(DTL_ERROR_INVALID_ARGUMENT, "give a rank");
        }
        counted.comms++;
    }
    Mail(const Mail &) = delete;
    Mail &operator=(const Mail &) = delete;
    ~Mail() { counted.comms--; }

    int rank() const { return rank_; }
    int size() const { return size_; }
    void send(const void *data, size_type size, int dest, int tag) { static_cast<void>(isend(data, size, dest, tag)); }
    void recv(void *data, size_type size, int source, int tag)
    {
        request operation = irecv(data, size, source, tag);
        wait(operation);
    }
    request isend(const void *data, size_type size, int dest, int tag)
    {
        CHECK(tag >= 0 && tag < 1 << 28 && size > 0 && dest != rank_);
        const auto *bytes = static_cast<const char *>(data);
        const std::lock_guard<std::mutex> guard(lock);
        boxes[{rank_, dest, tag}].emplace_back(bytes, bytes + size);
        return {nullptr, 0, {}, true};
    }
    request irecv(void *data, size_type size, int source, int tag)
    {
        CHECK(source >= 0 && source < size_ && source != rank_);
        return {data, size, {source, rank_, tag}, false};
    }
    bool test(request &operation)
    {
        const std::lock_guard<std::mutex> guard(lock);
        if (dead_ >= 0 && !operation.done && std::get<0>(operation.from) == dead_) {
            throw dtl::error(DTL_ERROR_RANK_FAILURE, "the cable of rank " + std::to_string(dead_) + " is out");
        }
        auto &box = boxes[operation.from];
        if (!operation.done && !box.empty()) {
            CHECK(box.front().size() == operation.size);
            std::memcpy(operation.buf, box.front().data(), operation.size);
            box.pop_front();
            operation.done = true;
        }
        return operation.done;
    }
    void wait(request &operation)
    {
        while (!test(operation)) {
            std::this_thread::yield();
        }
    }
    static inline thread_local int dead_ = -1;

  private:
    int rank_, size_;
};

// One rank alone, and one object.
struct Alone {
    using size_type = std::size_t;
    token counter;
    int rank_ = 0;
    int rank() const { return rank_; }
    int size() const { return 1; }
    void send(const void *, size_type, int, int) {}
    void recv(void *, size_type, int, int) {}
    int isend(const void *, size_type, int, int) { throw std::logic_error("to whom?"); }
    int irecv(void *, size_type, int, int) { throw std::logic_error("from whom?"); }
    void wait(int &) {}
    bool test(int &) { return true; }
};

static_assert(dtl::MemorySpace<Space> && !dtl::Executor<Space> && !dtl::MemorySpace<Loops>);
static_assert(dtl::Executor<Runner> && !dtl::ParallelExecutor<Runner> && dtl::ParallelExecutor<Loops>);
static_assert(dtl::Communicator<Mail> && dtl::Communicator<Alone> && !dtl::CollectiveCommunicator<Mail>);
static_assert(dtl::MemoryTransfer<Copier> && !dtl::BackendPart<token>);
static_assert(!dtl::Communicator<dtl::comm_ref> && !dtl::MemorySpace<std::vector<int>>);

// ---- the library's own ----

template <dtl::MemorySpace M> static void use_memory(M &&space)
{
    void *const first = space.allocate(100, 256);
    CHECK(first != nullptr && reinterpret_cast<uintptr_t>(first) % 256 == 0);
    CHECK(space.properties().host_accessible && std::string(space.name()) != "");
    space.deallocate(first, 100);
}

template <dtl::ParallelExecutor E> static void use_executor(E &&executor)
{
    bool ran = false;
    executor.execute([&] { ran = true; });
    CHECK(ran && executor.max_parallelism() >= 1 && executor.suggested_parallelism() >= 1);
    std::vector<std::atomic<int>> hits(1000);
    executor.parallel_for(hits.size(), [&](std::size_t i) { hits[i]++; });
    for (const auto &hit : hits) {
        CHECK(hit == 1);
    }
}

template <dtl::ReducingCommunicator C> static void use_communicator(C &&comm)
{
    const int rank = comm.rank(), size = comm.size(), next = (rank + 1) % size, previous = (rank + size - 1) % size;
    int there = rank, back = -1;
    auto receiving = comm.irecv(&back, sizeof back, previous, 5);
    auto sending = comm.isend(&there, sizeof there, next, 5);
    comm.wait(receiving);
    while (!comm.test(sending)) {
    }
    CHECK(back == previous);
    std::vector<int> all(static_cast<std::size_t>(size)), again(all.size());
    comm.allgather(&rank, all.data(), sizeof rank);
    comm.alltoall(all.data(), again.data(), sizeof rank);
    for (int i = 0; i < size; i++) {
        CHECK(all[static_cast<std::size_t>(i)] == i && again[static_cast<std::size_t>(i)] == rank);
    }
    comm.gather(&rank, again.data(), sizeof rank, 0);
    CHECK(rank != 0 || again == all);
    comm.scatter(all.data(), &back, sizeof back, 0);
    CHECK(back == rank);
    back = rank;
    comm.broadcast(&back, sizeof back, size - 1);
    CHECK(back == size - 1);
    const double mine = rank + 1;
    double sum = 0;
    comm.allreduce_sum(&mine, &sum, 1);
    CHECK(sum == size * (size + 1) / 2.0);
    comm.reduce_sum(&mine, &sum, 1, 0);
    comm.barrier();
}

static void own_classes()
{
    use_memory(dtl::memory_space());
    use_memory(dtl::memory_space(DTL_MEMORY_DEVICE, dtl::backend_ref("host")));
    use_executor(dtl::host_executor());
    use_executor(dtl::host_executor(DTL_EXECUTOR_SEQUENTIAL));
    CHECK(std::string(dtl::host_executor(DTL_EXECUTOR_INLINE).name()) == "inline");
    use_communicator(dtl::communicator());
    char from[] = "text", to[sizeof from];
    dtl::transfer().copy(to, from, sizeof from);
    CHECK(std::strcmp(from, to) == 0);
}

// ---- classes as a backend ----

static void memory_of_a_class()
{
    const auto backend = dtl::register_backend<Space>("arena");
    CHECK(counted.objects == 1);
    void *first = nullptr;
    for (const dtl_enum_word_t kind : {DTL_MEMORY_HOST, DTL_MEMORY_DEVICE}) {
        CHECK_OK(dtl_mem_alloc(backend.get(), kind, 100, 0, &first));
        CHECK_OK(dtl_mem_fill(first, 1, 100));
        CHECK(counted.live == 1 && counted.alignment == 64); // what its properties() promise
        uint64_t free_bytes = 1, total_bytes = 1;
        CHECK_OK(dtl_device_memory_info(backend.get(), 0, &free_bytes, &total_bytes));
        CHECK(free_bytes == (1 << 20) - 64 && total_bytes == 0); // the class does not say how much there is
        CHECK_OK(dtl_mem_free(backend.get(), first));
    }
    CHECK_STATUS(dtl_mem_alloc(backend.get(), DTL_MEMORY_PINNED, 100, 0, &first), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_mem_alloc(backend.get(), DTL_MEMORY_HOST, 2 << 20, 0, &first), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_STATUS(dtl_mem_alloc(backend.get(), DTL_MEMORY_HOST, 666, 0, &first), DTL_ERROR_BACKEND);
    CHECK(told("the arena is on fire") && counted.live == 0);
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    CHECK_OK(dtl_mem_kind_info(backend.get(), DTL_MEMORY_DEVICE, &info));
    CHECK(std::string(info.name) == "arena" && info.alignment == 64);
    CHECK(info.properties == (DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_ATOMICS |
                              DTL_MEMORY_PAGEABLE));
    {
        Space bent;
        bent.shift = 1;
        const auto odd = dtl::register_backend("odd", std::move(bent));
        CHECK_STATUS(dtl_mem_alloc(odd.get(), DTL_MEMORY_DEVICE, 100, 64, &first), DTL_ERROR_BACKEND);
        CHECK(told("not aligned to 64") && counted.live == 0);
    }
    {
        Space bent;
        bent.promised = 3;
        const auto odd = dtl::register_backend("odd", std::move(bent));
        for (const uint64_t alignment : {uint64_t{0}, uint64_t{64}}) {
            CHECK_STATUS(dtl_mem_alloc(odd.get(), DTL_MEMORY_DEVICE, 100, alignment, &first), DTL_ERROR_BACKEND);
            CHECK(told("alignment is 3") && counted.live == 0);
        }
        CHECK_STATUS(dtl_mem_kind_info(odd.get(), DTL_MEMORY_DEVICE, &info), DTL_ERROR_BACKEND);
        CHECK(told("alignment is 3"));
    }
    use_memory(dtl::memory_space(DTL_MEMORY_HOST, backend.ref())); // and back through the concept
    bool refused = false;
    try {
        static_cast<void>(dtl::register_backend<Space>("arena")); // the name is taken
    } catch (const dtl::error &failure) {
        refused = failure.status() == DTL_ERROR_ALREADY_EXISTS;
    }
    CHECK(refused && counted.objects == 1);
}

// Memory that the host cannot touch is copied by the transfer.
static void transfer_of_a_class()
{
    std::atomic<int> copies{0};
    const auto backend = dtl::register_backend("far", Copier{&copies}, Space{{}, false}); // any order
    dtl::buffer<int> buffer(4, DTL_MEMORY_DEVICE, backend.ref());
    const std::array<int, 4> there{1, 2, 3, 4};
    std::array<int, 4> back{};
    buffer.copy_from(there.data());
    buffer.copy_to(back.data());
    CHECK(copies == 2 && back == there);
    void *first = nullptr;
    CHECK_STATUS(dtl_mem_alloc(backend.get(), DTL_MEMORY_HOST, 8, 0, &first), DTL_ERROR_NOT_SUPPORTED);
}

static void loops_of_a_class()
{
    const auto backend = dtl::register_backend("loops", Loops());
    const dtl::executor executor(DTL_EXECUTOR_BACKEND, 0, backend.ref());
    CHECK(executor.info().max_parallelism == 2 && executor.info().suggested_parallelism == 1);
    use_executor(dtl::host_executor(DTL_EXECUTOR_BACKEND, 0, backend.ref()));
    std::vector<int> hits(1001);
    executor.parallel_for(1, hits.size(), 10, [&](uint64_t begin, uint64_t end) {
        CHECK(end - begin <= 10 && end <= hits.size());
        for (uint64_t i = begin; i < end; i++) {
            hits[i]++;
        }
    });
    CHECK(hits[0] == 0 && std::accumulate(hits.begin(), hits.end(), 0) == 1000);
    const dtl_range_fn_t fails = [](uint64_t begin, uint64_t, void *) -> dtl_status_t {
        return begin >= 50 ? DTL_ERROR_BUSY : DTL_SUCCESS;
    };
    CHECK_STATUS(dtl_executor_parallel_for(executor.get(), 0, 100, 1, fails, NULL), DTL_ERROR_BUSY);
    const dtl_range_fn_t nothing = [](uint64_t, uint64_t, void *) -> dtl_status_t { return DTL_SUCCESS; };
    CHECK_STATUS(dtl_executor_parallel_for(executor.get(), 0, 13, 1, nothing, NULL), DTL_ERROR_BACKEND);
    CHECK(told("unlucky"));
    const dtl_task_fn_t task = [](void *) -> dtl_status_t { return DTL_ERROR_LIMIT; };
    CHECK_STATUS(dtl_executor_run(executor.get(), task, NULL), DTL_ERROR_LIMIT);

    Loops wild;
    wild.beyond = 1;
    const auto third = dtl::register_backend("wild", std::move(wild));
    const dtl::executor excess(DTL_EXECUTOR_BACKEND, 0, third.ref());
    const dtl_range_fn_t within = [](uint64_t begin, uint64_t end, void *) -> dtl_status_t {
        return begin < end && end <= 10 ? DTL_SUCCESS : DTL_ERROR_OUT_OF_BOUNDS;
    };
    CHECK_STATUS(dtl_executor_parallel_for(excess.get(), 0, 10, 1, within, NULL), DTL_ERROR_BACKEND);
    CHECK(told("not below the 10"));
    Loops lazy;
    lazy.stop_after = 7;
    const auto other = dtl::register_backend("lazy", std::move(lazy));
    const dtl::executor incomplete(DTL_EXECUTOR_BACKEND, 0, other.ref());
    CHECK_STATUS(dtl_executor_parallel_for(incomplete.get(), 0, 10, 1, nothing, NULL), DTL_ERROR_BACKEND);
    CHECK(told("7 of 10"));

    const auto plain = dtl::register_backend<Runner>("runner");
    use_executor(dtl::host_executor(DTL_EXECUTOR_BACKEND, 0, plain.ref()));
}

constexpr int ranks = 3;

static dtl::comm opened(const char *kind, int rank, int size)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = kind;
    desc.rank = rank;
    desc.size = size;
    return dtl::comm(desc);
}

static void messages(const dtl::comm &comm, int rank)
{
    use_communicator(dtl::communicator(comm));
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{8160}, std::size_t{8161}, std::size_t{300000}}) {
        std::vector<char> there(size, static_cast<char>(rank)), back(size + 1, 'x');
        const dtl_recv_info_t info = comm->sendrecv(there.data(), size, next, 1, back.data(), size, previous, 1);
        CHECK(info.source == previous && info.size_bytes == size && back[size] == 'x');
        CHECK(size == 0 || (back[0] == previous && back[size - 1] == previous));
    }
    if (rank == 0) { // from anybody, in each one's order
        std::array<int, ranks> seen{};
        for (int i = 0; i < 100 * (ranks - 1); i++) {
            int value = -1;
            const dtl_recv_info_t info = comm->recv(&value, 1);
            CHECK(value == seen[static_cast<std::size_t>(info.source)]++);
        }
    } else {
        for (int i = 0; i < 100; i++) {
            comm->send(&i, 1, 0, i);
        }
    }
    std::vector<double> part(20000, rank + 1.0), sum(part.size()), own(10);
    comm->allreduce(part.data(), sum.data(), sum.size(), DTL_OP_SUM);
    CHECK(sum[0] == 6 && sum.back() == 6);
    comm->sendrecv(part.data(), own.size(), rank, 2, own.data(), own.size(), rank, 2); // to itself
    CHECK(own[9] == rank + 1);
    comm->barrier();
}

static void ranks_of_a_class()
{
    const auto backend = dtl::register_backend<Mail>("mail", Space());
    dtl_comm_t none;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mail";
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(told("give a rank") && counted.comms == 0);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++) {
        threads.emplace_back([rank] {
            const dtl::comm comm = opened("mail", rank, ranks);
            messages(comm, rank);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(counted.comms == 0); // each ended with its communicator
}

// What the class throws of a rank reaches the receive.
static void death_in_a_class()
{
    const auto backend = dtl::register_backend<Mail>("mail");
    const dtl::comm comm = opened("mail", 0, 2);
    Mail::dead_ = 1;
    int value = 0;
    CHECK_STATUS(dtl_comm_recv(comm.get(), &value, 1, DTL_DTYPE_INT32, 1, 0, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK(told("rank 1"));
    Mail::dead_ = -1;
}

static void one_communicator()
{
    const auto backend = dtl::register_backend<Alone>("alone");
    {
        const dtl::comm comm = opened("alone", 0, 1);
        use_communicator(dtl::communicator(comm));
        dtl_comm_t second;
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        desc.kind = "alone";
        CHECK_STATUS(dtl_comm_open(&desc, &second), DTL_ERROR_NOT_SUPPORTED);
        CHECK(told("dtl_comm_dup"));
        use_communicator(dtl::communicator(comm->dup()));
    }
    Alone confused;
    confused.rank_ = 4;
    const auto other = dtl::register_backend("confused", std::move(confused));
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "confused";
    dtl_comm_t none;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_BACKEND);
    CHECK(told("rank 4 of 1"));
}

int main(void)
{
    {
        const dtl::library library;
        own_classes();
        memory_of_a_class();
        transfer_of_a_class();
        loops_of_a_class();
        if (dtl::comm_ref().size() == 1) { // else an open without rank and size has those of the launcher
            ranks_of_a_class();
            death_in_a_class();
            one_communicator();
        }
    }
    CHECK(counted.objects == 0 && counted.live == 0 && counted.comms == 0);
    return 0;
}
