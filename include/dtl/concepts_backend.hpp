// register_backend: classes that satisfy the concepts as a backend of the library. Part of dtl/concepts.hpp.
#ifndef DTL_CONCEPTS_BACKEND_HPP
#define DTL_CONCEPTS_BACKEND_HPP

#include "concepts.hpp"

#if DTL_HAS_CONCEPTS

#include "concepts_comm.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

namespace dtl {

/// What register_backend takes: a class that satisfies one of these (or several).
template <class T>
concept BackendPart = MemorySpace<T> || Executor<T> || Communicator<T> || MemoryTransfer<T>;

namespace detail {

/// Where the first true is; their number if none is.
constexpr std::size_t first_of(std::initializer_list<bool> which)
{
    return static_cast<std::size_t>(std::find(which.begin(), which.end(), true) - which.begin());
}
constexpr bool at_most_one(std::initializer_list<bool> which)
{
    return std::count(which.begin(), which.end(), true) <= 1;
}

/// Memory spaces that report how much is free, and how much there is, in bytes.
template <class T>
concept reports_available = requires(const T &space) {
    { space.available_memory() } -> std::convertible_to<std::size_t>;
};
template <class T>
concept reports_total = requires(const T &space) {
    { space.total_memory() } -> std::convertible_to<std::size_t>;
};

/// Stands for an object that is made by default.
template <class T> struct by_default {};

/// An object of a class that was given, or is made by default. Communicators that each open makes are not kept.
template <class T> struct part {
    explicit part(by_default<T>) {}
    explicit part(T &&given) : value(std::move(given)) {}
    T value{};
};
template <class T>
    requires Communicator<T> && opened_by_args<T>
struct part<T> {
    explicit part(by_default<T>) {}
};

/// A function that an executor runs, maybe later and elsewhere.
class awaited {
  public:
    void finish(dtl_status_t status)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        status_ = status;
        done_ = true;
        changed_.notify_all();
    }
    dtl_status_t wait()
    {
        std::unique_lock<std::mutex> guard(lock_);
        changed_.wait(guard, [this] { return done_; });
        return status_;
    }

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    bool done_ = false;
    dtl_status_t status_ = DTL_SUCCESS;
};

/// The pieces of a loop.
struct pieces {
    uint64_t begin, end, grain;
    dtl_range_fn_t body;
    void *user;
    std::atomic<uint64_t> ran{0};
    std::atomic<dtl_status_t> failure{DTL_SUCCESS};
    std::atomic<bool> is_beyond{false}; // called with an index that is none of its pieces

    uint64_t count() const noexcept { return (end - begin) / grain + ((end - begin) % grain != 0 ? 1 : 0); }

    void run(uint64_t index) noexcept
    {
        if (index >= count()) {
            is_beyond = true;
            return;
        }
        const uint64_t first = begin + index * grain;
        if (failure.load(std::memory_order_relaxed) == DTL_SUCCESS) {
            const dtl_status_t status = body(first, first + std::min(grain, end - first), user);
            dtl_status_t none = DTL_SUCCESS;
            failure.compare_exchange_strong(none, status); // the first one stays
        }
        ran.fetch_add(1);
    }
};

/// The classes of one backend, and its slots.
template <class... Parts> class assembled {
    static constexpr std::size_t memory_at = first_of({MemorySpace<Parts>...});
    static constexpr std::size_t exec_at = first_of({Executor<Parts>...});
    static constexpr std::size_t comm_at = first_of({Communicator<Parts>...});
    static constexpr std::size_t transfer_at = first_of({MemoryTransfer<Parts>...});
    static constexpr std::size_t none = sizeof...(Parts);
    static_assert((BackendPart<Parts> && ...), "a class satisfies none of the concepts");
    static_assert(at_most_one({MemorySpace<Parts>...}) && at_most_one({Executor<Parts>...}) &&
                      at_most_one({Communicator<Parts>...}) && at_most_one({MemoryTransfer<Parts>...}),
                  "two classes for one component");

    template <std::size_t At> using class_at = std::tuple_element_t<At, std::tuple<Parts...>>;
    template <std::size_t At> static auto &of(void *self) noexcept
    {
        return std::get<At>(static_cast<assembled *>(self)->parts_).value;
    }
  public:
    template <class... Made> explicit assembled(Made &&...made) : parts_(std::forward<Made>(made)...) {}
    assembled(const assembled &) = delete;
    assembled &operator=(const assembled &) = delete;
    ~assembled()
    {
        if constexpr (has_one_communicator()) {
            if (session_ != nullptr) {
                session(session_.get()).drop_requests();
            }
        }
    }

    /// Registers it; the table's `destroy` deletes it.
    static registered_backend enter(const char *name, std::unique_ptr<assembled> self)
    {
        tables filled;
        registered_backend registered(name, filled.main, self.get());
        static_cast<void>(self.release());
        return registered;
    }

    /// Registers it in the `load` of a plugin.
    static dtl_status_t enter(const dtl_host_api_t *host, const char *name, std::unique_ptr<assembled> self)
    {
        tables filled;
        dtl_backend_t backend;
        const dtl_status_t status = host->backend_register(name, &filled.main, self.get(), 0, &backend);
        if (status == DTL_SUCCESS) {
            static_cast<void>(self.release());
        }
        return status;
    }

  private:
    /// The tables of these classes.
    struct tables {
        tables()
        {
            main.destroy = destroy;
#ifdef DTL_BACKEND_PRIORITY // of dtl_add_backend
            main.auto_priority = DTL_BACKEND_PRIORITY;
#endif
            if constexpr (memory_at != none) {
                memory.alloc = alloc, memory.free = free, memory.kind_info = kind_info;
                if constexpr (reports_available<class_at<memory_at>>) {
                    memory.memory_info = memory_info;
                }
                main.memory = &memory;
            }
            if constexpr (transfer_at != none) {
                transfer.copy = copy;
                main.transfer = &transfer;
            }
            if constexpr (exec_at != none) {
                exec.execute = execute, exec.parallel_for = parallel_for;
                exec.max_parallelism = max_parallelism, exec.suggested_parallelism = suggested_parallelism;
                main.exec = &exec;
            }
            if constexpr (comm_at != none) {
                comm.open = open, comm.close = close;
                comm.isend = isend, comm.irecv = irecv, comm.test = test, comm.cancel = cancel;
                if constexpr (has_collectives<class_at<comm_at>>) {
                    comm.coll_supports = coll_supports, comm.coll_start = coll_start;
                }
                registration_slots<class_at<comm_at>>::fill(comm);
                main.comm = &comm;
            }
        }
        tables(const tables &) = delete;
        tables &operator=(const tables &) = delete;

        dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
        dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
        dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
        dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
        dtl_backend_vtable_t main = DTL_BACKEND_VTABLE_INIT;
    };

    static void destroy(void *self) noexcept
    {
        auto *const all = static_cast<assembled *>(self);
        try {
            if (all->stop()) { // else a function of the communicator may run until the process ends
                delete all;
            }
        } catch (...) {
            // A destructor threw, and there is no call that could report the failure.
        }
    }

    bool stop() noexcept
    {
        if constexpr (has_one_communicator()) {
            return session_ == nullptr || session(session_.get()).stop();
        } else {
            return true;
        }
    }

    // ---- memory: kind DEVICE, and HOST where the host can touch it ----

    static bool is_known(void *self, dtl_enum_word_t kind)
    {
        return kind == DTL_MEMORY_DEVICE ||
               (kind == DTL_MEMORY_HOST && memory_space_properties(of<memory_at>(self).properties()).host_accessible);
    }
    static dtl_status_t unknown_kind() noexcept
    {
        return slot_failure(DTL_ERROR_NOT_SUPPORTED,
                            "its memory space has DTL_MEMORY_DEVICE, and DTL_MEMORY_HOST if that is accessible to the host");
    }

    /// Fails unless the class promises an alignment that the library can use.
    static dtl_status_t check_alignment(std::size_t promised)
    {
        constexpr std::size_t most = std::size_t{1} << 30;
        const char *const fault = promised == 0 || (promised & (promised - 1)) != 0 ? ", no power of two"
                                  : promised > most                                 ? ", more than 2^30"
                                                                                    : nullptr;
        if (fault == nullptr) {
            return DTL_SUCCESS;
        }
        const std::string text = "properties().alignment is " + std::to_string(promised) + fault;
        return slot_failure(DTL_ERROR_BACKEND, text.c_str());
    }

    static dtl_status_t alloc(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out) noexcept
    {
        return slot([&] {
            if (!is_known(self, kind)) {
                return unknown_kind();
            }
            const memory_space_properties has = of<memory_at>(self).properties();
            const dtl_status_t checked = check_alignment(has.alignment);
            if (checked != DTL_SUCCESS) {
                return checked;
            }
            void *const first = of<memory_at>(self).allocate(size, alignment);
            if (first == nullptr) {
                return slot_failure(DTL_ERROR_OUT_OF_MEMORY, "allocate gave nullptr");
            }
            if (reinterpret_cast<uintptr_t>(first) % alignment != 0) {
                of<memory_at>(self).deallocate(first, size);
                const std::string text = "allocate gave memory that is not aligned to " + std::to_string(alignment) + " bytes";
                return slot_failure(DTL_ERROR_BACKEND, text.c_str());
            }
            *out = first;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t free(void *self, void *first, uint64_t size, uint64_t, dtl_enum_word_t) noexcept
    {
        return slot([&] { return of<memory_at>(self).deallocate(first, size), DTL_SUCCESS; });
    }

    static dtl_status_t kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out) noexcept
    {
        return slot([&] {
            if (!is_known(self, kind)) {
                return unknown_kind();
            }
            const auto &space = of<memory_at>(self);
            const memory_space_properties has = space.properties();
            const dtl_status_t checked = check_alignment(has.alignment);
            if (checked != DTL_SUCCESS) {
                return checked;
            }
            out->properties = (has.host_accessible ? DTL_MEMORY_HOST_ACCESSIBLE : 0) |
                              (has.device_accessible ? DTL_MEMORY_DEVICE_ACCESSIBLE : 0) |
                              (has.unified ? DTL_MEMORY_UNIFIED : 0) |
                              (has.supports_atomics ? DTL_MEMORY_ATOMICS : 0) |
                              (has.pageable ? DTL_MEMORY_PAGEABLE : 0);
            out->alignment = has.alignment;
            const std::string name = space.name();
            std::memcpy(out->name, name.data(), std::min(name.size(), sizeof out->name - 1)); // zeroed before
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t memory_info(void *self, uint64_t *out_free, uint64_t *out_total) noexcept
    {
        return slot([&] {
            const auto &space = of<memory_at>(self);
            *out_free = static_cast<uint64_t>(space.available_memory());
            *out_total = 0; // unknown
            if constexpr (reports_total<class_at<memory_at>>) {
                *out_total = static_cast<uint64_t>(space.total_memory());
            }
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t, const void *src, dtl_enum_word_t,
                             uint64_t size) noexcept
    {
        return slot([&] { return of<transfer_at>(self).copy(dst, src, size), DTL_SUCCESS; });
    }

    // ---- execution on the host ----

    static dtl_status_t execute(void *self, dtl_task_fn_t function, void *user) noexcept
    {
        return slot([&] {
            const auto run = std::make_shared<awaited>();
            const std::function<void()> task = [run, function, user] { run->finish(function(user)); };
            of<exec_at>(self).execute(task);
            return run->wait();
        });
    }

    static dtl_status_t parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain, dtl_range_fn_t body,
                                     void *user) noexcept
    {
        if (begin >= end) {
            return DTL_SUCCESS;
        }
        pieces loop{begin, end, grain, body, user};
        if constexpr (ParallelExecutor<class_at<exec_at>>) {
            const dtl_status_t status = slot([&] {
                const std::function<void(std::size_t)> piece = [&loop](std::size_t index) { loop.run(index); };
                of<exec_at>(self).parallel_for(loop.count(), piece);
                if (loop.is_beyond) {
                    const std::string text = "parallel_for called its function with an index that is not below the " +
                                             std::to_string(loop.count()) + " asked for";
                    return slot_failure(DTL_ERROR_BACKEND, text.c_str());
                }
                if (loop.ran == loop.count()) {
                    return DTL_SUCCESS;
                }
                const std::string text = "parallel_for returned after " + std::to_string(loop.ran) + " of " +
                                         std::to_string(loop.count()) + " calls";
                return slot_failure(DTL_ERROR_BACKEND, text.c_str());
            });
            return status != DTL_SUCCESS ? status : loop.failure.load();
        } else {
            const dtl_task_fn_t all = [](void *pointer) {
                auto &each = *static_cast<pieces *>(pointer);
                for (uint64_t index = 0; index < each.count(); index++) {
                    each.run(index);
                }
                return each.failure.load();
            };
            return execute(self, all, &loop);
        }
    }

    static uint32_t threads(std::size_t count) noexcept
    {
        return static_cast<uint32_t>(
            std::clamp<std::size_t>(count, 1, std::numeric_limits<uint32_t>::max()));
    }

    static dtl_status_t max_parallelism(void *self, uint32_t *out) noexcept
    {
        return slot([&] {
            *out = 1;
            if constexpr (ParallelExecutor<class_at<exec_at>>) {
                *out = threads(of<exec_at>(self).max_parallelism());
            }
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t suggested_parallelism(void *self, uint32_t *out) noexcept
    {
        return slot([&] {
            *out = 1;
            if constexpr (ParallelExecutor<class_at<exec_at>>) {
                *out = threads(of<exec_at>(self).suggested_parallelism());
            }
            return DTL_SUCCESS;
        });
    }

    // ---- communication ----

    static auto &session(void *comm) noexcept { return *static_cast<comm_session<class_at<comm_at>> *>(comm); }

    /// Whether there is one object, opened once. Else each open makes one.
    static constexpr bool has_one_communicator()
    {
        if constexpr (comm_at != none) {
            return !opened_by_args<class_at<comm_at>>;
        } else {
            return false;
        }
    }

    static dtl_status_t open(void *self, const dtl_comm_open_t *args, void **out, int32_t *rank, int32_t *size) noexcept
    {
        using communicator_class = class_at<comm_at>;
        using session_class = comm_session<communicator_class>;
        return slot([&] {
            std::unique_ptr<session_class> made;
            if constexpr (has_one_communicator()) {
                static_cast<void>(args);
                auto &own = *static_cast<assembled *>(self);
                const std::lock_guard<std::mutex> guard(own.opening_);
                if (own.session_ != nullptr) {
                    return slot_failure(DTL_ERROR_NOT_SUPPORTED,
                                        "there is one communicator, and it has been opened: use that, or dtl_comm_dup");
                }
                own.session_ = std::make_shared<session_class>(of<comm_at>(self));
                *out = own.session_.get();
            } else {
                made = std::make_unique<session_class>(std::make_unique<communicator_class>(*args));
                *out = made.get();
            }
            *rank = session(*out).rank();
            *size = session(*out).size();
            static_cast<void>(made.release()); // until close
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t close(void *, void *comm) noexcept
    {
        if constexpr (has_one_communicator()) {
            return static_cast<void>(comm), DTL_SUCCESS;
        } else {
            return slot([&] {
                if (session(comm).stop()) { // else a function of the class may run until the process ends
                    const std::unique_ptr<comm_session<class_at<comm_at>>> ended(&session(comm));
                    ended->end_class();
                }
                return DTL_SUCCESS;
            });
        }
    }

    /// Calls the class. If its thread is in a function of the class, returns `busy` instead.
    template <class F> static dtl_status_t entered(void *comm, dtl_status_t busy, F body) noexcept
    {
        const auto guard = session(comm).enter();
        return guard ? slot([&] { return body(session(comm)), DTL_SUCCESS; }) : busy;
    }

    static dtl_status_t isend(void *, void *comm, const void *buf, uint64_t size, int32_t dest, uint64_t word,
                              uint64_t *out) noexcept
    {
        return entered(comm, DTL_ERROR_BUSY, [&](auto &own) { *out = own.send(buf, size, dest, word); });
    }

    static dtl_status_t irecv(void *, void *comm, void *buf, uint64_t size, int32_t source, uint64_t word, uint64_t,
                              uint64_t *out) noexcept
    {
        return entered(comm, DTL_ERROR_BUSY, [&](auto &own) { *out = own.receive(buf, size, source, word); });
    }

    static dtl_status_t test(void *, void *comm, uint64_t word, int32_t *done, dtl_comm_done_t *result) noexcept
    {
        *done = 0;
        return entered(comm, DTL_SUCCESS, [&](auto &own) { *done = own.test(word, *result) ? 1 : 0; });
    }

    static dtl_status_t cancel(void *, void *comm, uint64_t word) noexcept
    {
        for (int tries = 0; tries < 100; tries++) {
            const dtl_status_t status = entered(comm, DTL_ERROR_BUSY, [&](auto &own) { own.cancel(word); });
            if (status != DTL_ERROR_BUSY) {
                return status;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(100)); // its thread makes progress, or is in the class
        }
        return DTL_SUCCESS; // the collective that runs ends, or a time limit of the library does
    }

    static dtl_status_t coll_supports(void *, void *comm, const dtl_coll_args_t *args, int32_t *out) noexcept
    {
        return slot([&] { return *out = session(comm).takes(*args) ? 1 : 0, DTL_SUCCESS; });
    }

    static dtl_status_t coll_start(void *, void *comm, const dtl_coll_args_t *args, uint64_t *out) noexcept
    {
        return entered(comm, DTL_ERROR_BUSY, [&](auto &own) { *out = own.collective(*args); });
    }

    std::mutex opening_;
    /// Of the one communicator, which may write to what its session posted until it ends: so that ends after it.
    std::shared_ptr<void> session_;
    std::tuple<part<Parts>...> parts_;
};

} // namespace detail

/// Registers classes that satisfy the concepts as a backend, as long as the result lives: at most one each for memory,
/// execution, communication and transfers, in any order. What a class throws becomes a status with its text.
///
///     auto backend = dtl::register_backend<my_space, my_executor, my_comm>("mine"); // made by default
///     auto other = dtl::register_backend("other", my_space(3), my_executor(pool));  // moved
///     auto both = dtl::register_backend<my_comm>("both", my_space(3));
///
/// The objects end when the backend has no users left. Their functions are called from any thread, several at a time,
/// but those of a communicator one at a time.
///
///  - A memory space is kind DTL_MEMORY_DEVICE, and DTL_MEMORY_HOST if the host can touch it. Without a MemoryTransfer
///    the library copies what the host can touch.
///  - An Executor that is no ParallelExecutor runs loops as one function.
///  - A communicator that can be made from a `const dtl_comm_open_t &` (rank, size, job …) is made by each dtl_comm_open
///    of kind `name` and ends with its close. Else there is one object, which can be opened once. Of its functions the
///    library uses rank, size, isend, irecv and test (tags 0 to 2^28; messages of one tag between two ranks stay in
///    order), and implements all operations with them. Sent messages must still arrive after the object is destroyed,
///    and no buffer may be accessed afterwards. All ranks of the job register it this way: on the wire each message is
///    two.
///  - Collectives of a CollectiveCommunicator are called by a thread of the communicator, once all ranks have started
///    the collective; sums of double of a ReducingCommunicator are, too. NativeCollectives are called as slots. All
///    other collectives are the library's. A function that waits for a rank that died must throw: it cannot be
///    interrupted, and until it returns no other function of the communicator is called.
///  - The functions of MemoryRegistration are called as slots. mem_supports is also called while another function of the
///    communicator runs.
template <class... Made, class... Given>
    requires(sizeof...(Made) + sizeof...(Given) > 0)
[[nodiscard]] registered_backend register_backend(const char *name, Given... given)
{
    using all = detail::assembled<Made..., Given...>;
    return all::enter(name, std::make_unique<all>(detail::by_default<Made>{}..., std::move(given)...));
}

} // namespace dtl

#endif
#endif
