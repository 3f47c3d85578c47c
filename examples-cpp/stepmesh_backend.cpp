// stepmesh_backend: a class written for StepMesh's accelerator interface becomes a backend of the library, and a
// program written for that interface runs on it, on the host, or on whatever the environment names.
//
// The "accelerator" is an in-order queue with a thread of its own and memory that is the host's. A real one would call
// its vendor's functions in the same places.
//
// Build: find_package(dtl), find_package(Threads) and
//        target_link_libraries(stepmesh_backend PRIVATE dtl::dtl Threads::Threads), or
//        c++ -std=c++17 stepmesh_backend.cpp $(pkg-config --cflags --libs libdtl) -pthread -o stepmesh_backend
// Run:   ./stepmesh_backend                          on the class below
//        STEPMESH_BACKEND=CPU ./stepmesh_backend     the same program on the library's host backend
// Prints the backend and its device, what the events said, what came back, "correct".
#include <dtl.hpp>
#include <dtl/stepmesh.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace ps = dtl::stepmesh; // StepMesh's own namespace

namespace {

// ---- the accelerator: work runs one after the other, in a thread of its own ----

class queue {
  public:
    queue() : worker_([this] { run(); }) {}
    queue(const queue &) = delete;
    queue &operator=(const queue &) = delete;
    ~queue()
    {
        {
            const std::lock_guard<std::mutex> guard(lock_);
            ends_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }

    // The work's number: it is done when that many are.
    unsigned long push(std::function<void()> work)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        work_.push_back(std::move(work));
        changed_.notify_all();
        return ++pushed_;
    }

    unsigned long pushed() const
    {
        const std::lock_guard<std::mutex> guard(lock_);
        return pushed_;
    }

    bool is_done(unsigned long number) const
    {
        const std::lock_guard<std::mutex> guard(lock_);
        return done_ >= number;
    }

    void wait(unsigned long number)
    {
        std::unique_lock<std::mutex> guard(lock_);
        changed_.wait(guard, [&] { return done_ >= number; });
    }

  private:
    void run()
    {
        std::unique_lock<std::mutex> guard(lock_);
        for (;;) {
            changed_.wait(guard, [&] { return ends_ || !work_.empty(); });
            if (work_.empty()) {
                return;
            }
            const std::function<void()> work = std::move(work_.front());
            work_.pop_front();
            guard.unlock();
            work();
            guard.lock();
            done_++;
            changed_.notify_all();
        }
    }

    mutable std::mutex lock_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> work_;
    unsigned long pushed_ = 0, done_ = 0;
    bool ends_ = false;
    std::thread worker_; // last: it uses the others
};

// ---- the class, as one would write it for StepMesh ----

class QueueBackend : public ps::Backend {
  public:
    int SetDevice(int dev) override { return dev == 0 ? ps::BACKEND_OK : ps::BACKEND_FAILED; }
    int GetDeviceId() override { return 0; }
    ps::Device GetDevice() override { return {1, 0}; } // DLPack's number of the CPU: the host can touch the memory

    void *Alloc(uint64_t size) override
    {
        if (size > 1 << 20) {
            throw std::length_error("this accelerator has 1 MiB"); // becomes the text of the caller's failure
        }
        return ::operator new(size, std::nothrow);
    }
    void Free(void *m) override { ::operator delete(m); }

    void *CreateEvent() override { return new (std::nothrow) std::atomic<unsigned long>(0); }
    int FreeEvent(void *event) override
    {
        delete number(event);
        return ps::BACKEND_OK;
    }
    int RecordEvent(void *event, void *stream) override
    {
        *number(event) = of(stream).pushed();
        return ps::BACKEND_OK;
    }
    int SyncEvent(void *event) override
    {
        by_default.wait(*number(event));
        return ps::BACKEND_OK;
    }

    // More than StepMesh asks for: whether an event is reached, so that the library can wait for a limited time.
    int QueryEvent(void *event, bool *done) override
    {
        *done = by_default.is_done(*number(event));
        return ps::BACKEND_OK;
    }

    queue by_default;

  private:
    static std::atomic<unsigned long> *number(void *event) { return static_cast<std::atomic<unsigned long> *>(event); }

    queue &of(void *stream)
    {
        if (stream != nullptr && stream != &by_default) {
            throw std::invalid_argument("this accelerator has one queue: give no stream");
        }
        return by_default;
    }
};

// ---- the program: StepMesh's names only, but for the copies, which StepMesh does not have ----

bool work(ps::Backend &backend, const std::function<void(char *, std::size_t)> &compute)
{
    if (backend.SetDevice(0) != ps::BACKEND_OK) {
        std::fprintf(stderr, "stepmesh_backend: %s\n", dtl_last_error());
        return false;
    }
    const ps::Device device = backend.GetDevice();
    std::printf("device %d of type %d\n", device.device_id, device.device_type);
    const char text[] = "tensor";
    auto *memory = static_cast<char *>(backend.Alloc(sizeof text));
    void *const event = backend.CreateEvent();
    bool good = memory != nullptr && event != nullptr;
    if (good) {
        dtl::check(dtl_mem_copy(memory, text, sizeof text));
        compute(memory, std::strlen(text));
        good = backend.RecordEvent(event, nullptr) == ps::BACKEND_OK && backend.SyncEvent(event) == ps::BACKEND_OK;
        char back[sizeof text] = "";
        dtl::check(dtl_mem_copy(back, memory, sizeof back));
        std::printf("came back: %s\n", back);
        good &= std::strcmp(back, "TENSOR") == 0;
    }
    good &= event != nullptr && backend.FreeEvent(event) == ps::BACKEND_OK;
    backend.Free(memory);
    return good;
}

void to_upper(char *text, std::size_t length)
{
    for (std::size_t i = 0; i < length; i++) {
        text[i] = static_cast<char>(text[i] - 'a' + 'A');
    }
}

bool run()
{
    QueueBackend accelerator; // before the library, so destroyed after it
    const dtl::library library;
    if (ps::Backend::Register("queue", &accelerator) != ps::BACKEND_OK) {
        throw dtl::error(DTL_ERROR_BACKEND);
    }
    // What the environment names; without it this program prefers its own.
    const bool named = std::getenv("STEPMESH_BACKEND") != nullptr || std::getenv("DTL_BACKEND") != nullptr;
    ps::Backend *const backend = named ? ps::Backend::Get() : ps::Backend::Get("queue");
    if (backend == nullptr) {
        throw dtl::error(DTL_ERROR_NOT_FOUND);
    }
    const bool own = backend == ps::Backend::Get("queue");
    std::printf("backend %s\n", own ? "queue" : "of the environment");
    const bool good = work(*backend, [&](char *memory, std::size_t length) {
        if (own) {
            accelerator.by_default.push([=] { to_upper(memory, length); });
        } else {
            dtl::stream_ref().host_callback([=] { to_upper(memory, length); });
        }
    });
    if (own && backend->Alloc(1 << 21) == nullptr) {
        std::printf("too much memory: %s\n", dtl_last_error());
    }
    return good;
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
        std::fprintf(stderr, "stepmesh_backend: %s\n", failure.what());
        return 1;
    }
}
