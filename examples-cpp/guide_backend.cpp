// guide_backend: a backend made of three classes, written as DTL's guide for backends has them: a memory space, an
// executor and a communicator. No table, no C.
//
// The memory space counts what it gives out, the executor has two threads, and the ranks of the communicator are threads
// of this process. The library makes everything else of them: copies, collectives, receives from any rank.
//
// Build: find_package(dtl), find_package(Threads) and
//        target_link_libraries(guide_backend PRIVATE dtl::dtl Threads::Threads), with CMAKE_CXX_STANDARD 20, or
//        c++ -std=c++20 guide_backend.cpp $(pkg-config --cflags --libs libdtl) -pthread -o guide_backend
// Run:   ./guide_backend
// Prints a line for each of the three parts, then "correct".
#include <dtl.hpp>
#include <dtl/concepts.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace {

// ---- memory ----

std::atomic<std::size_t> live_bytes{0};

class counted_space {
  public:
    using pointer = void *;
    using size_type = std::size_t;

    void *allocate(size_type size) { return allocate(size, alignof(std::max_align_t)); }
    void *allocate(size_type size, size_type alignment)
    {
        void *const first = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
        if (first == nullptr) {
            throw std::bad_alloc(); // reaches the caller as DTL_ERROR_OUT_OF_MEMORY
        }
        live_bytes += size;
        return first;
    }
    void deallocate(void *first, size_type size)
    {
        live_bytes -= size;
        std::free(first);
    }

    dtl::memory_space_properties properties() const { return {}; } // plain host memory
    const char *name() const { return "counted"; }
};

// ---- execution ----

class two_threads {
  public:
    template <class F> void execute(F &&function) { function(); }

    // Calls function(i) for all i below count, and returns when all have returned.
    template <class F> void parallel_for(std::size_t count, F &&function)
    {
        const auto part = [&](std::size_t begin, std::size_t end) {
            for (std::size_t i = begin; i < end; i++) {
                function(i);
            }
        };
        std::thread second(part, count / 2, count);
        part(0, count / 2);
        second.join();
    }

    std::size_t max_parallelism() const { return 2; }
    std::size_t suggested_parallelism() const { return 2; }
    const char *name() const { return "two threads"; }
};

// ---- communication ----

constexpr int ranks = 4;

class thread_comm {
  public:
    using size_type = std::size_t;
    struct request {
        void *buf;
        size_type size;
        int source, tag;
        bool done;
    };

    // The library makes one for each dtl_comm_open, and says which rank it is.
    explicit thread_comm(const dtl_comm_open_t &args) : rank_(args.rank)
    {
        if (args.size != ranks || rank_ < 0 || rank_ >= ranks) {
            throw dtl::error(DTL_ERROR_INVALID_ARGUMENT, "set rank and size of dtl_comm_desc_t: there are 4 ranks");
        }
    }

    int rank() const { return rank_; }
    int size() const { return ranks; }

    void send(const void *data, size_type size, int dest, int tag)
    {
        request operation = isend(data, size, dest, tag);
        wait(operation);
    }
    void recv(void *data, size_type size, int source, int tag)
    {
        request operation = irecv(data, size, source, tag);
        wait(operation);
    }

    // Copies the message into the mailbox of `dest`, so a send is over at once.
    request isend(const void *data, size_type size, int dest, int tag)
    {
        const auto *const bytes = static_cast<const char *>(data);
        mailbox &to = mailboxes[static_cast<std::size_t>(dest)];
        const std::lock_guard<std::mutex> guard(to.lock);
        to.messages.push_back({rank_, tag, std::vector<char>(bytes, bytes + size)});
        return {nullptr, 0, dest, tag, true};
    }
    request irecv(void *data, size_type size, int source, int tag) { return {data, size, source, tag, false}; }

    // Takes the oldest message that fits the request.
    bool test(request &operation)
    {
        if (operation.done) {
            return true;
        }
        mailbox &mine = mailboxes[static_cast<std::size_t>(rank_)];
        const std::lock_guard<std::mutex> guard(mine.lock);
        const auto found = std::find_if(mine.messages.begin(), mine.messages.end(), [&](const message &each) {
            return each.source == operation.source && each.tag == operation.tag;
        });
        if (found != mine.messages.end()) {
            std::memcpy(operation.buf, found->bytes.data(), std::min(operation.size, found->bytes.size()));
            mine.messages.erase(found);
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

  private:
    struct message {
        int source, tag;
        std::vector<char> bytes;
    };
    struct mailbox {
        std::mutex lock;
        std::deque<message> messages;
    };
    static inline std::array<mailbox, ranks> mailboxes;

    int rank_;
};

// The compiler says what is missing.
static_assert(dtl::MemorySpace<counted_space>);
static_assert(dtl::ParallelExecutor<two_threads>);
static_assert(dtl::Communicator<thread_comm>);

// ---- a program that uses them ----

bool use_memory(dtl::backend_ref backend)
{
    const std::vector<double> there{3, 1, 4, 1, 5};
    std::vector<double> back(there.size());
    {
        dtl::buffer<double> memory(there.size(), DTL_MEMORY_DEVICE, backend);
        memory.copy_from(there.data());
        memory.copy_to(back.data());
        std::printf("memory: %zu bytes live\n", live_bytes.load());
    }
    return back == there && live_bytes == 0;
}

bool use_execution(dtl::backend_ref backend)
{
    const dtl::executor executor(DTL_EXECUTOR_BACKEND, 0, backend);
    const uint64_t sum = executor.parallel_reduce(
        0, 1000, 10, uint64_t{0},
        [](uint64_t begin, uint64_t end, uint64_t &part) {
            for (uint64_t i = begin; i < end; i++) {
                part += i;
            }
        },
        [](uint64_t &into, const uint64_t &from) { into += from; });
    std::printf("execution: sum of 0 to 999 by at most %u threads: %llu\n", executor.info().max_parallelism,
                static_cast<unsigned long long>(sum));
    return sum == 499500;
}

// One rank. Collectives and a receive from any rank: the class knows neither.
bool rank_main(int rank)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "guide";
    desc.rank = rank;
    desc.size = ranks;
    const dtl::comm comm(desc);
    const int mine = rank + 1;
    int product = 0;
    comm->allreduce(&mine, &product, 1, DTL_OP_PROD);
    bool good = product == 24;
    if (rank == 0) {
        int sum = 0;
        for (int i = 1; i < ranks; i++) {
            int value = 0;
            comm->recv(&value, 1, DTL_ANY_SOURCE, 7);
            sum += value;
        }
        std::printf("communication: product %d, received %d from the others\n", product, sum);
        good &= sum == 2 + 3 + 4;
    } else {
        comm->send(&mine, 1, 0, 7);
    }
    comm->barrier();
    return good;
}

bool use_communication()
{
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++) {
        threads.emplace_back([rank, &good] {
            try {
                good += rank_main(rank) ? 1 : 0;
            } catch (const std::exception &failure) {
                // The others wait for this rank for ever, so the program ends here.
                std::fprintf(stderr, "guide_backend: rank %d: %s\n", rank, failure.what());
                std::_Exit(1);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return good == ranks;
}

} // namespace

int main()
{
    try {
        const dtl::library library;
        const auto backend = dtl::register_backend<counted_space, two_threads, thread_comm>("guide");
        const bool good = use_memory(backend.ref()) && use_execution(backend.ref()) && use_communication();
        if (good) {
            std::printf("correct\n");
        }
        return good ? 0 : 1;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "guide_backend: %s\n", failure.what());
        return 1;
    }
}
