// A memory space, an executor and a communicator with the includes, names and signatures that DTL's guide "Implementing a
// Backend" prints. Included by dtl_guide.cpp and by the plugin tests/plugins/classes.cpp.
#pragma once

#include <dtl/core/config.hpp>
#include <dtl/core/types.hpp>
#include <dtl/backend/concepts/memory_space.hpp>

namespace dtl {
namespace guide {

class guide_memory_space {
public:
    using pointer = void*;
    using size_type = dtl::size_type;

    guide_memory_space() = default;
    guide_memory_space(const guide_memory_space&) = delete;
    guide_memory_space& operator=(const guide_memory_space&) = delete;
    guide_memory_space(guide_memory_space&&) = default;
    guide_memory_space& operator=(guide_memory_space&&) = default;

    [[nodiscard]] static constexpr const char* name() noexcept { return "guide"; }

    [[nodiscard]] memory_space_properties properties() const noexcept {
        return memory_space_properties{
            .host_accessible = true,
            .device_accessible = false,
            .unified = false,
            .supports_atomics = true,
            .pageable = true,
            .alignment = 64
        };
    }

    [[nodiscard]] void* allocate(size_type size) { return std::malloc(size); }
    [[nodiscard]] void* allocate(size_type size, size_type alignment) { return std::aligned_alloc(alignment, size); }
    void deallocate(void* ptr, size_type size) noexcept {
        (void)size;
        std::free(ptr);
    }
};

static_assert(MemorySpace<guide_memory_space>, "guide_memory_space must satisfy MemorySpace concept");

}  // namespace guide
}  // namespace dtl

#include <dtl/backend/concepts/executor.hpp>

#include <functional>

namespace dtl {
namespace guide {

class guide_executor {
public:
    guide_executor() = default;

    template <typename F>
    void execute(F&& f) {
        std::forward<F>(f)();
    }

    [[nodiscard]] static constexpr const char* name() noexcept { return "guide_executor"; }

    template <typename F>
    void parallel_for(size_type count, F&& f) {
        for (size_type i = 0; i < count; ++i) {
            f(i);
        }
    }

    [[nodiscard]] size_type max_parallelism() const noexcept { return 1; }
    [[nodiscard]] size_type suggested_parallelism() const noexcept { return max_parallelism(); }
};

static_assert(Executor<guide_executor>, "guide_executor must satisfy Executor concept");
static_assert(ParallelExecutor<guide_executor>);

}  // namespace guide
}  // namespace dtl

#include <dtl/backend/concepts/communicator.hpp>

#include <cstring>

namespace dtl {
namespace guide {

class guide_communicator {
public:
    using size_type = dtl::size_type;

    guide_communicator() : rank_(0), size_(1) {}

    [[nodiscard]] rank_t rank() const noexcept { return rank_; }
    [[nodiscard]] rank_t size() const noexcept { return size_; }

    void send(const void* buf, size_type count, rank_t dest, int tag) { (void)buf, (void)count, (void)dest, (void)tag; }
    void recv(void* buf, size_type count, rank_t source, int tag) { (void)buf, (void)count, (void)source, (void)tag; }

    [[nodiscard]] request_handle isend(const void* buf, size_type count, rank_t dest, int tag) {
        send(buf, count, dest, tag);
        return request_handle{this};
    }
    [[nodiscard]] request_handle irecv(void* buf, size_type count, rank_t source, int tag) {
        recv(buf, count, source, tag);
        return request_handle{this};
    }

    void wait(request_handle& req) { req.handle = nullptr; }
    bool test(request_handle& req) {
        req = {};
        return !req.valid();
    }

    void barrier() { ++calls; }
    void broadcast(void* buf, size_type count, rank_t root) { (void)buf, (void)count, (void)root, ++calls; }
    void scatter(const void* sendbuf, void* recvbuf, size_type count, rank_t root) { (void)root, copy(recvbuf, sendbuf, count); }
    void gather(const void* sendbuf, void* recvbuf, size_type count, rank_t root) { (void)root, copy(recvbuf, sendbuf, count); }
    void allgather(const void* sendbuf, void* recvbuf, size_type count) { copy(recvbuf, sendbuf, count); }
    void alltoall(const void* sendbuf, void* recvbuf, size_type count) { copy(recvbuf, sendbuf, count); }

    void reduce_sum(const void* sendbuf, void* recvbuf, size_type count, rank_t root) { (void)root, copy(recvbuf, sendbuf, 8 * count); }
    void allreduce_sum(const void* sendbuf, void* recvbuf, size_type count) { copy(recvbuf, sendbuf, 8 * count); }

    static inline int calls = 0;

private:
    static void copy(void* to, const void* from, size_type bytes) {
        std::memcpy(to, from, bytes);
        ++calls;
    }

    rank_t rank_;
    rank_t size_;
};

static_assert(Communicator<guide_communicator>, "guide_communicator must satisfy Communicator concept");
static_assert(CollectiveCommunicator<guide_communicator>);
static_assert(ReducingCommunicator<guide_communicator>);

}  // namespace guide
}  // namespace dtl
