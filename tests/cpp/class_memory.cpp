// The memory slots of a class behind dtl::register_backend: mem_supports, mem_register and mem_deregister. The class has
// memory that the host cannot touch, and a network that accesses what is registered.
constexpr int ranks = 2;

#include "thread_ranks.hpp"

#include <dtl/concepts.hpp>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

constexpr std::size_t bytes = 1 << 16;
constexpr uintptr_t shift = uintptr_t{1} << 62; // out of the address space: a direct access ends the test

static bool is_far(const void *pointer)
{
    return (reinterpret_cast<uintptr_t>(pointer) & shift) != 0;
}
static char *real(const void *pointer)
{
    return reinterpret_cast<char *>(reinterpret_cast<uintptr_t>(pointer) & ~shift);
}

struct Space {
    using pointer = void *;
    using size_type = std::size_t;

    void *allocate(std::size_t size) { return allocate(size, 64); }
    void *allocate(std::size_t size, std::size_t alignment)
    {
        void *const first = ::operator new(size, std::align_val_t(alignment < 64 ? 64 : alignment));
        const std::lock_guard<std::mutex> guard(lock);
        alignments[first] = alignment < 64 ? 64 : alignment;
        return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(first) | shift);
    }
    void deallocate(void *first, std::size_t)
    {
        const std::lock_guard<std::mutex> guard(lock);
        ::operator delete(real(first), std::align_val_t(alignments[real(first)]));
    }
    dtl::memory_space_properties properties() const { return {false, true, false, false, false, 64}; }
    const char *name() const { return "far away"; }

  private:
    static inline std::mutex lock;
    static inline std::map<void *, std::size_t> alignments;
};

struct Copies {
    void copy(void *dst, const void *src, std::size_t size)
    {
        count++;
        std::memcpy(real(dst), real(src), size);
    }
    dtl::transfer_direction direction() const { return dtl::transfer_direction::unknown; }
    static inline std::atomic<int> count{0};
};

// Ranks are threads. Device memory that is sent or received must lie in registered memory.
class Net {
    using key = std::tuple<int, int, int>; // source, destination, tag
    static inline std::mutex lock;
    static inline std::map<key, std::deque<std::vector<char>>> boxes;

  public:
    using size_type = std::size_t;
    struct request {
        void *buf = nullptr;
        std::size_t size = 0;
        key from;
        bool done = true;
    };

    explicit Net(const dtl_comm_open_t &args) : rank_(args.rank), size_(args.size) {}
    Net(const Net &) = delete;
    Net &operator=(const Net &) = delete;
    ~Net() { left += static_cast<int>(registered_.size()); }

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
        access(data, size);
        const std::lock_guard<std::mutex> guard(lock);
        boxes[{rank_, dest, tag}].emplace_back(real(data), real(data) + size);
        return {};
    }
    request irecv(void *data, std::size_t size, int source, int tag)
    {
        access(data, size);
        return {data, size, {source, rank_, tag}, false};
    }
    bool test(request &wish)
    {
        const std::lock_guard<std::mutex> guard(lock);
        auto &box = boxes[wish.from];
        if (!wish.done && !box.empty()) {
            CHECK(box.front().size() == wish.size);
            std::memcpy(real(wish.buf), box.front().data(), wish.size);
            box.pop_front();
            wish.done = true;
        }
        return wish.done;
    }
    void wait(request &wish)
    {
        while (!test(wish)) {
            std::this_thread::yield();
        }
    }

    int mem_supports(const dtl_mem_info_t &info) const
    {
        supports++;
        if (info.size_bytes == 13) {
            throw dtl::error(DTL_ERROR_DEVICE_LOST, "the card has left");
        }
        return use;
    }
    void *mem_register(const dtl_mem_info_t &info, int dmabuf, uint64_t offset)
    {
        CHECK(dmabuf == -1 && offset == 0 && !inside_);
        if (info.size_bytes == 17) {
            throw dtl::error(DTL_ERROR_LIMIT, "17 is one too many");
        }
        if (info.size_bytes == 19) {
            return nullptr;
        }
        registers++;
        const std::lock_guard<std::mutex> guard(lock);
        return *registered_.insert(new dtl_mem_info_t(info)).first;
    }
    void mem_deregister(void *registration)
    {
        CHECK(!inside_);
        const std::lock_guard<std::mutex> guard(lock);
        CHECK(registered_.erase(static_cast<dtl_mem_info_t *>(registration)) == 1);
        delete static_cast<dtl_mem_info_t *>(registration);
        deregisters++;
    }

    static inline std::atomic<int> supports{0}, registers{0}, deregisters{0}, far{0}, left{0};
    static inline std::atomic<int32_t> use{DTL_COMM_MEM_ADDRESS};

  protected:
    std::atomic<bool> inside_{false}; // a collective that blocks

  private:
    void access(const void *data, std::size_t size)
    {
        if (!is_far(data)) {
            return;
        }
        const std::lock_guard<std::mutex> guard(lock);
        bool is_registered = false;
        for (const dtl_mem_info_t *info : registered_) {
            const char *const first = static_cast<const char *>(info->base);
            const char *const here = static_cast<const char *>(data);
            is_registered |= here >= first && here + size <= first + info->size_bytes;
        }
        CHECK(is_registered);
        far++;
    }

    int rank_, size_;
    std::set<dtl_mem_info_t *> registered_;
};

// Has collectives that block, too. Only the barrier is used.
class Slow : public Net {
  public:
    using Net::Net;

    void barrier()
    {
        inside_ = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        barriers++;
        inside_ = false;
    }
    void broadcast(void *, std::size_t, int) { throw std::logic_error("unused"); }
    void scatter(const void *, void *, std::size_t, int) { throw std::logic_error("unused"); }
    void gather(const void *, void *, std::size_t, int) { throw std::logic_error("unused"); }
    void allgather(const void *, void *, std::size_t) { throw std::logic_error("unused"); }
    void alltoall(const void *, void *, std::size_t) { throw std::logic_error("unused"); }

    static inline std::atomic<int> barriers{0};
};

struct Without { // what a communicator needs, and no more
    using size_type = std::size_t;
    using request = Net::request;
    explicit Without(const dtl_comm_open_t &args) : net(args) {}
    int rank() const { return net.rank(); }
    int size() const { return net.size(); }
    void send(const void *data, std::size_t size, int dest, int tag) { net.send(data, size, dest, tag); }
    void recv(void *data, std::size_t size, int source, int tag) { net.recv(data, size, source, tag); }
    request isend(const void *data, std::size_t size, int dest, int tag) { return net.isend(data, size, dest, tag); }
    request irecv(void *data, std::size_t size, int source, int tag) { return net.irecv(data, size, source, tag); }
    bool test(request &wish) { return net.test(wish); }
    void wait(request &wish) { net.wait(wish); }
    Net net;
};

static_assert(dtl::MemoryRegistration<Net> && dtl::MemoryRegistration<Slow> && !dtl::MemoryRegistration<Without>);

static char *device(const dtl::backend_ref &backend)
{
    void *first = nullptr;
    CHECK_OK(dtl_mem_alloc(backend.get(), DTL_MEMORY_DEVICE, bytes, 0, &first));
    return static_cast<char *>(first);
}

// Sends from the middle of one allocation to the other rank, and receives into the middle of another one.
static void swap(const dtl::comm &comm, int rank, char *out, char *in)
{
    constexpr std::size_t size = bytes - 1000;
    std::vector<char> sent(size), all(bytes);
    for (std::size_t i = 0; i < size; i++) {
        sent[i] = static_cast<char>(i * 7 + static_cast<std::size_t>(rank));
    }
    std::memset(real(in), 0x55, bytes);
    std::memcpy(real(out) + 300, sent.data(), size);
    CHECK_OK(dtl_comm_sendrecv(comm.get(), out + 300, size, 1 - rank, 3, in + 700, size, 1 - rank, 3, DTL_DTYPE_BYTE,
                               nullptr));
    std::memcpy(all.data(), real(in), bytes);
    for (std::size_t i = 0; i < bytes; i++) {
        const bool is_inside = i >= 700 && i < 700 + size;
        CHECK(all[i] == (is_inside ? static_cast<char>((i - 700) * 7 + static_cast<std::size_t>(1 - rank)) : 0x55));
    }
}

static void messages(const dtl::backend_ref &backend)
{
    on_ranks([&](int rank) {
        const dtl::comm comm = opened("net", rank);
        char *const out = device(backend), *const in = device(backend);
        for (int round = 0; round < 3; round++) {
            swap(comm, rank, out, in);
        }
        comm->barrier();
        CHECK(Net::supports == 2 * ranks && Net::registers == 2 * ranks && Net::far == 6 * ranks && Copies::count == 0);
        comm->barrier();
        CHECK_OK(dtl_mem_free(backend.get(), out));
        comm->barrier();
        CHECK(Net::deregisters == ranks); // before the memory is freed; `in` ends with the communicator
        comm->barrier();
        CHECK_OK(dtl_mem_free(backend.get(), in));
    });
    CHECK(Net::registers == Net::deregisters && Net::left == 0);
    Net::use = DTL_COMM_MEM_STAGED;
    on_ranks([&](int rank) {
        const dtl::comm comm = opened("net", rank);
        char *const out = device(backend), *const in = device(backend);
        swap(comm, rank, out, in);
        comm->barrier();
        CHECK(Net::far == 6 * ranks && Copies::count == 2 * ranks);
        comm->barrier();
        CHECK_OK(dtl_mem_free(backend.get(), out));
        CHECK_OK(dtl_mem_free(backend.get(), in));
    });
    Net::use = DTL_COMM_MEM_ADDRESS;
}

static void buffers()
{
    std::vector<char> plain(bytes), other(bytes);
    const dtl_comm_desc_t init = DTL_COMM_DESC_INIT;
    dtl_comm_desc_t desc = init;
    desc.kind = "net";
    desc.rank = 0;
    desc.size = 1;
    const int before = Net::registers, ended = Net::deregisters;
    {
        const dtl::comm comm(desc);
        CHECK_OK(dtl_comm_register(comm.get(), plain.data(), plain.size()));
        CHECK(Net::registers == before + 1);
        CHECK_OK(dtl_comm_deregister(comm.get(), plain.data()));
        CHECK(Net::deregisters == ended + 1);
        CHECK_STATUS(dtl_comm_register(comm.get(), plain.data(), 13), DTL_ERROR_DEVICE_LOST);
        CHECK(told("the card has left"));
        CHECK_STATUS(dtl_comm_register(comm.get(), plain.data(), 17), DTL_ERROR_LIMIT);
        CHECK(told("17 is one too many"));
        CHECK_STATUS(dtl_comm_register(comm.get(), plain.data(), 19), DTL_ERROR_NATIVE_BACKEND);
        CHECK(told("mem_register"));
        Net::use = 7;
        CHECK_STATUS(dtl_comm_register(comm.get(), plain.data(), 64), DTL_ERROR_NATIVE_BACKEND);
        Net::use = DTL_COMM_MEM_ADDRESS;
        CHECK(Net::registers == before + 1);
        CHECK_OK(dtl_comm_register(comm.get(), other.data(), other.size())); // until the communicator ends
    }
    CHECK(Net::registers == before + 2 && Net::deregisters == ended + 2 && Net::left == 0);
    desc.kind = "without";
    const dtl::comm comm(desc);
    CHECK_OK(dtl_comm_register(comm.get(), plain.data(), plain.size()));
    CHECK_OK(dtl_comm_deregister(comm.get(), plain.data()));
    CHECK(Net::registers == before + 2);
}

// No other function of the class runs while a collective that blocks does.
static void beside_a_collective()
{
    on_ranks([](int rank) {
        const dtl::comm comm = opened("slow", rank);
        std::array<char, 256> memory{};
        for (int round = 0; round < 5; round++) {
            dtl::request pending = comm->ibarrier();
            bool is_done = false;
            for (int turn = 0; turn < 10; turn++) {
                CHECK_OK(dtl_comm_register(comm.get(), memory.data(), memory.size()));
                is_done = is_done || pending.test();
                CHECK_OK(dtl_comm_deregister(comm.get(), memory.data()));
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            }
            if (!is_done) {
                static_cast<void>(pending.wait());
            }
        }
    });
    CHECK(Slow::barriers == 5 * ranks && Net::registers == Net::deregisters);
}

int main(void)
{
    const dtl::library library;
    {
        const auto net = dtl::register_backend<Space, Copies, Net>("net");
        const auto without = dtl::register_backend<Without>("without");
        messages(net.ref());
        buffers();
    }
    const auto slow = dtl::register_backend<Slow>("slow");
    beside_a_collective();
    return 0;
}
