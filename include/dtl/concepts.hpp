// The C++20 concepts of DTL's backends (memory space, executor, communicator, transfer), classes of the library that
// satisfy them, and register_backend: classes written so as a backend. Not part of dtl.hpp: include it by itself.
//
// DTL_HAS_CONCEPTS is 1 where the compiler has concepts; elsewhere (C++17) this header declares only dtl::size_type,
// dtl::rank_t and dtl::request_handle. The headers that DTL's guide names, dtl/core/ and dtl/backend/concepts/, include
// this one.
//
// The concepts accept classes that follow DTL's guide, and more: a function may return void or a status that is
// ignored, ranks and sizes may have any integer type, and buffers may be `void *` or templates. Memory that a
// communicator moves is counted in bytes.
#ifndef DTL_CONCEPTS_HPP
#define DTL_CONCEPTS_HPP

#if defined(__cpp_concepts) && __cpp_concepts >= 201907L && __has_include(<concepts>)
#define DTL_HAS_CONCEPTS 1
#else
#define DTL_HAS_CONCEPTS 0
#endif

#include "core/types.hpp"

#if DTL_HAS_CONCEPTS

#include "comm.hpp"
#include "exec.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace dtl {

/// What a memory space says of its memory.
struct memory_space_properties {
    bool host_accessible = true;
    bool device_accessible = false;
    bool unified = false; ///< one address on both sides
    bool supports_atomics = true;
    bool pageable = true;
    std::size_t alignment = alignof(std::max_align_t); ///< of every allocation at least, in bytes
};

/// Memory that is allocated and freed: `allocate(size)`, `allocate(size, alignment)`, `deallocate(first, size)`, all in
/// bytes; `properties()` and `name()`. Optional, `const`: `available_memory()` and `total_memory()` in bytes, which
/// dtl_device_memory_info of the backend then reports.
template <class T>
concept MemorySpace =
    requires(T &space, const T &same, std::size_t size, std::size_t alignment, void *first) {
        typename T::pointer;
        typename T::size_type;
        { space.allocate(size) } -> std::convertible_to<void *>;
        { space.allocate(size, alignment) } -> std::convertible_to<void *>;
        space.deallocate(first, size);
        { same.properties() } -> std::convertible_to<memory_space_properties>;
        { same.name() } -> std::convertible_to<std::string>;
    };

/// Runs functions: `execute(function)`; `name()`.
template <class T>
concept Executor = requires(T &executor, const T &same, std::function<void()> function) {
    executor.execute(function);
    { same.name() } -> std::convertible_to<std::string>;
};

/// Runs loops, too: `parallel_for(count, function)` calls function(i) for all i below count and returns when all have
/// returned; `max_parallelism()` and `suggested_parallelism()`.
template <class T>
concept ParallelExecutor =
    Executor<T> && requires(T &executor, const T &same, std::size_t count, std::function<void(std::size_t)> function) {
        executor.parallel_for(count, function);
        { same.max_parallelism() } -> std::convertible_to<std::size_t>;
        { same.suggested_parallelism() } -> std::convertible_to<std::size_t>;
    };

namespace detail {
/// Requests that their communicator ends: `comm.wait(request)`, `comm.test(request)`.
template <class C, class R>
concept ended_by = std::movable<R> && requires(C &comm, R &request) {
    comm.wait(request);
    { comm.test(request) } -> std::convertible_to<bool>;
};
template <class C> using request_of = decltype(std::declval<C &>().isend(std::declval<const std::byte *>(),
                                                                          std::size_t{}, 0, 0));
} // namespace detail

/// Moves bytes between ranks: `rank()`, `size()`; `send`, `recv`, `isend`, `irecv` of (buffer, count, rank, tag);
/// `wait(request)` and `test(request)`.
template <class T>
concept Communicator =
    requires(T &comm, const T &same, const std::byte *in, std::byte *out, std::size_t count, int rank, int tag) {
        typename T::size_type;
        { same.rank() } -> std::convertible_to<int>;
        { same.size() } -> std::convertible_to<int>;
        comm.send(in, count, rank, tag);
        comm.recv(out, count, rank, tag);
        { comm.isend(in, count, rank, tag) } -> std::movable;
        { comm.irecv(out, count, rank, tag) } -> std::same_as<detail::request_of<T>>;
        requires detail::ended_by<T, detail::request_of<T>>;
    };

/// Has collectives that move bytes, too; counts are those of one rank's part.
template <class T>
concept CollectiveCommunicator =
    Communicator<T> && requires(T &comm, const std::byte *in, std::byte *out, std::size_t count, int root) {
        comm.barrier();
        comm.broadcast(out, count, root);
        comm.scatter(in, out, count, root);
        comm.gather(in, out, count, root);
        comm.allgather(in, out, count);
        comm.alltoall(in, out, count);
    };

/// Has sums, too; counts are in elements.
template <class T>
concept ReducingCommunicator =
    CollectiveCommunicator<T> && requires(T &comm, const double *in, double *out, std::size_t count, int root) {
        comm.reduce_sum(in, out, count, root);
        comm.allreduce_sum(in, out, count);
    };

/// Executes collectives itself, without blocking: `collective_supported(args)` returns true if `collective_start(args)`
/// starts that collective. The rules are those of the slots coll_supports and coll_start (dtl_comm_vtable_t). The
/// returned request is passed to `test`, like that of `isend`.
template <class T>
concept NativeCollectives = Communicator<T> && requires(T &comm, const dtl_coll_args_t &args) {
    { comm.collective_supported(args) } -> std::convertible_to<bool>;
    { comm.collective_start(args) } -> std::same_as<detail::request_of<T>>;
};

/// Communicator that accesses device memory by its address, or that is faster with registered buffers.
/// `mem_supports(info)` is const and returns DTL_COMM_MEM_STAGED, DTL_COMM_MEM_ADDRESS or DTL_COMM_MEM_DMABUF.
/// `mem_register(info, dmabuf, dmabuf_offset)` returns a pointer that identifies the registration, not nullptr.
/// `dmabuf` is -1 if there is no dma-buf. `mem_deregister(pointer)` ends the registration. The rules are those of the
/// slots of the same names (dtl_comm_vtable_t). The library then also calls `isend`, `irecv` and `collective_start`
/// with addresses inside registered device memory.
template <class T>
concept MemoryRegistration = Communicator<T> && requires(T &comm, const T &same, const dtl_mem_info_t &info, int dmabuf,
                                                         std::uint64_t dmabuf_offset, void *registration) {
    { same.mem_supports(info) } -> std::convertible_to<std::int32_t>;
    { comm.mem_register(info, dmabuf, dmabuf_offset) } -> std::convertible_to<void *>;
    comm.mem_deregister(registration);
};

/// Between what a transfer copies.
enum class transfer_direction { host_to_host, host_to_device, device_to_host, device_to_device, unknown };

/// Copies between memory: `copy(dst, src, size)` in bytes, done when it returns; `direction()`.
template <class T>
concept MemoryTransfer = requires(T &transfer, const T &same, void *dst, const void *src, std::size_t size) {
    transfer.copy(dst, src, size);
    { same.direction() } -> std::convertible_to<transfer_direction>;
};

// ---- the library's own, as the concepts ask for it ----

/// A kind of memory of a backend's.
class memory_space {
  public:
    using pointer = void *;
    using size_type = std::size_t;

    /// Default: of the backend that is the calling thread's current one now.
    explicit memory_space(detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST, backend_ref backend = {})
        : kind_(kind), backend_(backend.name().c_str())
    {
        dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
        check(dtl_mem_kind_info(backend_.get(), kind, &info));
        name_ = info.name;
        const auto has = [&](uint64_t property) { return (info.properties & property) != 0; };
        properties_ = {has(DTL_MEMORY_HOST_ACCESSIBLE), has(DTL_MEMORY_DEVICE_ACCESSIBLE), has(DTL_MEMORY_UNIFIED),
                       has(DTL_MEMORY_ATOMICS),         has(DTL_MEMORY_PAGEABLE),          info.alignment};
    }

    /// @param alignment  a power of two; 0 = the kind's own.
    void *allocate(std::size_t size, std::size_t alignment = 0) const
    {
        void *first = nullptr;
        check(dtl_mem_alloc(backend_.get(), kind_, size, alignment, &first));
        return first;
    }
    void deallocate(void *first, std::size_t) const { check(dtl_mem_free(backend_.get(), first)); }

    memory_space_properties properties() const noexcept { return properties_; }
    const char *name() const noexcept { return name_.c_str(); }

  private:
    dtl_enum_word_t kind_;
    backend_ref backend_;
    std::string name_;
    memory_space_properties properties_;
};

/// An executor of the library's. What a function throws comes out of the call.
class host_executor {
  public:
    /// As dtl::executor.
    explicit host_executor(uint32_t kind = 0, uint32_t threads = 0, backend_ref backend = {})
        : executor_(kind, threads, backend), info_(executor_.info())
    {
    }

    template <class F> void execute(F &&function) const { executor_.run(function); }

    template <class F> void parallel_for(std::size_t count, F &&function) const
    {
        executor_.parallel_for(0, count, 0, [&](uint64_t begin, uint64_t end) {
            for (uint64_t i = begin; i < end; i++) {
                function(static_cast<std::size_t>(i));
            }
        });
    }

    std::size_t max_parallelism() const noexcept { return info_.max_parallelism; }
    std::size_t suggested_parallelism() const noexcept { return info_.suggested_parallelism; }

    const char *name() const noexcept
    {
        switch (info_.kind) {
        case DTL_EXECUTOR_INLINE: return "inline";
        case DTL_EXECUTOR_SEQUENTIAL: return "sequential";
        case DTL_EXECUTOR_POOL: return "pool";
        default: return "backend";
        }
    }

  private:
    executor executor_;
    dtl_executor_info_t info_;
};

/// A communicator of the library's, which stays the caller's. Default: DTL_COMM_WORLD.
class communicator {
  public:
    using size_type = std::size_t;

    communicator() = default;
    communicator(comm_ref comm) noexcept : comm_(comm) {}

    int rank() const { return comm_.rank(); }
    int size() const { return comm_.size(); }

    void send(const void *data, std::size_t size, int dest, int tag) { comm_.send(bytes(data), size, dest, tag); }
    void recv(void *data, std::size_t size, int source, int tag)
    {
        static_cast<void>(comm_.recv(bytes(data), size, source, tag));
    }
    request isend(const void *data, std::size_t size, int dest, int tag)
    {
        return comm_.isend(bytes(data), size, dest, tag);
    }
    request irecv(void *data, std::size_t size, int source, int tag)
    {
        return comm_.irecv(bytes(data), size, source, tag);
    }
    void wait(request &pending) { static_cast<void>(pending.wait()); }
    bool test(request &pending) { return pending.test(); }

    void barrier() { comm_.barrier(); }
    void broadcast(void *data, std::size_t size, int root) { comm_.bcast(bytes(data), size, root); }
    void scatter(const void *in, void *out, std::size_t size, int root)
    {
        comm_.scatter(bytes(in), size, bytes(out), root);
    }
    void gather(const void *in, void *out, std::size_t size, int root)
    {
        comm_.gather(bytes(in), size, bytes(out), root);
    }
    void allgather(const void *in, void *out, std::size_t size) { comm_.allgather(bytes(in), size, bytes(out)); }
    void alltoall(const void *in, void *out, std::size_t size) { comm_.alltoall(bytes(in), size, bytes(out)); }

    template <class T> void reduce_sum(const T *in, T *out, std::size_t count, int root)
    {
        comm_.reduce(in, out, count, DTL_OP_SUM, root);
    }
    template <class T> void allreduce_sum(const T *in, T *out, std::size_t count)
    {
        comm_.allreduce(in, out, count, DTL_OP_SUM);
    }

  private:
    static const std::byte *bytes(const void *data) noexcept { return static_cast<const std::byte *>(data); }
    static std::byte *bytes(void *data) noexcept { return static_cast<std::byte *>(data); }

    comm_ref comm_;
};

/// Copies between any two kinds of memory; whose each side is, the library finds out.
struct transfer {
    void copy(void *dst, const void *src, std::size_t size) const { check(dtl_mem_copy(dst, src, size)); }
    transfer_direction direction() const noexcept { return transfer_direction::unknown; }
};

static_assert(MemorySpace<memory_space>);
static_assert(ParallelExecutor<host_executor>);
static_assert(ReducingCommunicator<communicator>);
static_assert(MemoryTransfer<transfer>);

} // namespace dtl

#include "concepts_backend.hpp"

#endif
#endif
