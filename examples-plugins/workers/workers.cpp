/* workers: loops and tasks on a team of threads. Host execution only: no devices, no streams, no memory.
 *
 * A loop is cut into pieces of `grain` iterations. The calling thread and idle threads of the team take pieces until
 * there are none left; then the caller waits for those that are still being run. So the caller never waits
 * for a loop that nobody works on, also when it is a thread of the team itself (a nested loop).
 *
 * Compiled with WORKERS_TBB it leaves the threads to oneTBB. DTL_BACKEND_WORKERS_THREADS sets their
 * number, the caller included; else the CPUs that this process may use count. No exception leaves a slot. */
#include <dtl.h>

#include <sched.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#ifdef WORKERS_TBB
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#else
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#endif

#include <atomic>

namespace {

const dtl_host_api_t *library; // set before any slot is called

/// Calls something that may throw, and makes a status of what it throws.
template <class Function> dtl_status_t guarded(Function function) noexcept
{
    try {
        return function();
    } catch (const std::bad_alloc &) {
        return DTL_ERROR_OUT_OF_MEMORY;
    } catch (const std::exception &error) {
        DTL_IGNORE(library->set_error(error.what()));
    } catch (...) {
        DTL_IGNORE(library->set_error("workers: something was thrown that is no std::exception"));
    }
    return DTL_ERROR_BACKEND;
}

/// A loop that is being run. The first failure stops it at the next piece.
class loop {
public:
    loop(std::uint64_t begin, std::uint64_t end, std::uint64_t grain, dtl_range_fn_t body, void *user)
        : begin_(begin), end_(end), grain_(grain), pieces_((end - begin - 1) / grain + 1), body_(body), user_(user)
    {
    }

    std::uint64_t pieces() const { return pieces_; }
    dtl_status_t result() const { return result_.load(); }

    /// Runs pieces until there are none left.
    void work()
    {
        for (;;) {
            const std::uint64_t piece = next_.fetch_add(1);
            if (piece >= pieces_ || !run(piece)) {
                return;
            }
        }
    }

    /// Runs one; false = the loop is over, because a piece has failed.
    bool run(std::uint64_t piece)
    {
        if (result_.load(std::memory_order_relaxed) != DTL_SUCCESS) {
            return false;
        }
        const std::uint64_t from = begin_ + piece * grain_;
        const std::uint64_t to = end_ - from < grain_ ? end_ : from + grain_;
        const dtl_status_t status = guarded([&] { return body_(from, to, user_); });
        dtl_status_t none = DTL_SUCCESS;
        return status == DTL_SUCCESS || (result_.compare_exchange_strong(none, status), false);
    }

    int helpers = 0; ///< threads of the team in work(); the team's lock guards it

private:
    const std::uint64_t begin_, end_, grain_, pieces_;
    const dtl_range_fn_t body_;
    void *const user_;
    std::atomic<std::uint64_t> next_{0};
    std::atomic<dtl_status_t> result_{DTL_SUCCESS};
};

#ifdef WORKERS_TBB

class team {
public:
    explicit team(unsigned threads) : arena_(static_cast<int>(threads)), threads_(threads) {}
    unsigned threads() const { return threads_; }

    void run(loop &what)
    {
        using range = oneapi::tbb::blocked_range<std::uint64_t>;
        const auto pieces = [&](const range &some) {
            for (std::uint64_t i = some.begin(); i < some.end() && what.run(i); i++) {
            }
        };
        arena_.execute([&] { oneapi::tbb::parallel_for(range(0, what.pieces()), pieces); });
    }

private:
    oneapi::tbb::task_arena arena_;
    const unsigned threads_;
};

#else

class team {
public:
    explicit team(unsigned threads) : threads_(threads) {}

    ~team()
    {
        {
            const std::lock_guard<std::mutex> hold(lock_);
            is_over_ = true;
        }
        work_.notify_all();
        for (std::thread &thread : helpers_) {
            thread.join();
        }
    }

    unsigned threads() const { return threads_; }

    void run(loop &what)
    {
        if (threads_ == 1 || what.pieces() == 1) {
            return what.work();
        }
        std::unique_lock<std::mutex> hold(lock_);
        hire();
        loops_.push_back(&what);
        hold.unlock();
        work_.notify_all();
        what.work();
        hold.lock();
        withdraw(what);
        done_.wait(hold, [&] { return what.helpers == 0; });
    }

private:
    /// Starts the threads at the first loop. If the system gives fewer, there are fewer.
    void hire()
    {
        try {
            while (helpers_.size() + 1 < threads_ && !is_short_) {
                helpers_.emplace_back([this] { help(); });
            }
        } catch (const std::exception &) {
            is_short_ = true;
        }
    }

    void help()
    {
        std::unique_lock<std::mutex> hold(lock_);
        for (;;) {
            work_.wait(hold, [&] { return is_over_ || !loops_.empty(); });
            if (is_over_) {
                return;
            }
            loop &what = *loops_.back(); // the innermost of nested ones
            what.helpers++;
            hold.unlock();
            what.work();
            hold.lock();
            withdraw(what);
            if (--what.helpers == 0) {
                done_.notify_all();
            }
        }
    }

    /// It has no pieces left to take.
    void withdraw(const loop &what)
    {
        loops_.erase(std::remove(loops_.begin(), loops_.end(), &what), loops_.end());
    }

    const unsigned threads_;
    std::mutex lock_;
    std::condition_variable work_, done_;
    std::vector<std::thread> helpers_;
    std::vector<loop *> loops_; ///< that may have pieces left
    bool is_over_ = false, is_short_ = false;
};

#endif

// ---- the slots: any thread, several at once ----

extern "C" {

static dtl_status_t workers_execute(void *, dtl_task_fn_t function, void *user)
{
    return guarded([&] { return function(user); });
}

static dtl_status_t workers_parallel_for(void *self, std::uint64_t begin, std::uint64_t end, std::uint64_t grain,
                                         dtl_range_fn_t body, void *user)
{
    return guarded([&]() -> dtl_status_t {
        if (begin >= end) {
            return DTL_SUCCESS;
        }
        loop what(begin, end, grain, body, user);
        static_cast<team *>(self)->run(what);
        return what.result();
    });
}

static dtl_status_t workers_parallelism(void *self, std::uint32_t *out_threads)
{
    *out_threads = static_cast<const team *>(self)->threads();
    return DTL_SUCCESS;
}

static void workers_destroy(void *self) { delete static_cast<team *>(self); }

static dtl_status_t load(const dtl_host_api_t *host);

} // extern "C"

/// From the environment, else one for each CPU that this process may use.
dtl_status_t number_of_threads(unsigned &out)
{
    const char *text = std::getenv("DTL_BACKEND_WORKERS_THREADS");
    if (text != nullptr && *text != '\0') {
        char *end = nullptr;
        const unsigned long number = std::strtoul(text, &end, 10);
        if (*end != '\0' || number < 1 || number > 4096) {
            const std::string said = "workers: DTL_BACKEND_WORKERS_THREADS=\"" + std::string(text) + "\": 1 to 4096 expected";
            DTL_IGNORE(library->set_error(said.c_str()));
            return DTL_ERROR_INVALID_ARGUMENT;
        }
        out = static_cast<unsigned>(number);
        return DTL_SUCCESS;
    }
    cpu_set_t allowed;
    out = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? static_cast<unsigned>(CPU_COUNT(&allowed)) : 1u;
    return DTL_SUCCESS;
}

/// May be called again, after the backend of the first call was destroyed.
dtl_status_t load(const dtl_host_api_t *host)
{
    library = host;
    return guarded([&]() -> dtl_status_t {
        unsigned threads = 1;
        dtl_status_t status = number_of_threads(threads);
        if (status != DTL_SUCCESS) {
            return status;
        }
        dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
        dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
        dtl_backend_t backend;
        exec.execute = workers_execute;
        exec.parallel_for = workers_parallel_for;
        exec.max_parallelism = workers_parallelism;
        exec.suggested_parallelism = workers_parallelism;
        table.exec = &exec;
        table.destroy = workers_destroy;
        table.auto_priority = INT32_MIN; // whoever wants it names it
        auto *self = new team(threads);
        status = host->backend_register("workers", &table, self, 0, &backend);
        if (status != DTL_SUCCESS) {
            delete self; // destroy is not called then
        }
        return status;
    });
}

} // namespace

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "workers";
    plugin.version = "1.0";
    plugin.description = "loops and tasks on a team of threads";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
