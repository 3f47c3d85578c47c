// Memory of the C++ interface: typed buffers and copies. Part of dtl.hpp.
#ifndef DTL_MEMORY_HPP
#define DTL_MEMORY_HPP

#include "backend.hpp"
#include "enums.hpp"
#include "views.hpp"

#include <cstddef>
#include <limits>
#include <unistd.h>
#include <vector>

namespace dtl {

/// Memory of a device as a dma-buf: a file descriptor through which drivers of other devices (RDMA
/// adapters, other GPUs) access it. The destructor closes the descriptor. The memory must not be
/// freed while something still uses it.
class dma_buf {
  public:
    /// Exports `size_bytes` bytes from `first` on, which is inside an allocation of a backend that
    /// exports dma-bufs. Others throw DTL_ERROR_NOT_SUPPORTED.
    dma_buf(const void *first, uint64_t size_bytes)
    {
        check(dtl_mem_export_dmabuf(first, size_bytes, &fd_, &offset_));
    }
    dma_buf(dma_buf &&other) noexcept : fd_(other.release()), offset_(other.offset_) {}
    dma_buf &operator=(dma_buf &&other) noexcept
    {
        std::swap(fd_, other.fd_);
        std::swap(offset_, other.offset_);
        return *this;
    }
    dma_buf(const dma_buf &) = delete;
    dma_buf &operator=(const dma_buf &) = delete;
    ~dma_buf()
    {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    /// Returns the descriptor; the object keeps it.
    int fd() const noexcept { return fd_; }
    /// Returns where the exported memory begins in the dma-buf, in bytes.
    uint64_t offset_bytes() const noexcept { return offset_; }
    /// Gives the descriptor away; the caller closes it.
    int release() noexcept { return std::exchange(fd_, -1); }

  private:
    int32_t fd_ = -1;
    uint64_t offset_ = 0;
};

/// Memory for `size()` elements on a backend's current device. Not initialised. Host code may touch
/// the elements only if the kind is accessible to the host (DTL_MEMORY_HOST and PINNED always are).
template <class T> class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "a buffer's elements are moved as bytes");

  public:
    buffer() noexcept = default;
    explicit buffer(std::size_t size, detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST, backend_ref backend = {})
        : size_(size)
    {
        if (size == 0) {
            return;
        }
        if (size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
            throw error(DTL_ERROR_OUT_OF_MEMORY, "buffer size overflows");
        }
        void *first = nullptr;
        check(dtl_mem_alloc(backend.get(), kind, size_bytes(), alignof(T), &first));
        own(first, backend);
    }

    /// The memory of a buffer in another process of the node, made there by export_handle: what one writes,
    /// the other reads. It stays until the last of them ends. Its elements are of the same type.
    explicit buffer(const dtl_mem_handle_t &handle, backend_ref backend = {})
    {
        void *first = nullptr;
        uint64_t bytes = 0;
        check(dtl_mem_import(backend.get(), &handle, &first, &bytes));
        own(first, backend);
        size_ = static_cast<std::size_t>(bytes / sizeof(T));
    }

    /// Allocates DTL_MEMORY_DEVICE memory and copies `size` elements of the host into it. Blocks
    /// until the copy is complete.
    static buffer to_device(const T *host, std::size_t size, backend_ref backend = {})
    {
        buffer made;
        if (size > 0) {
            void *first = nullptr;
            check(dtl_mem_to_device(backend.get(), host, detail::bytes_of<T>(size), &first));
            made.own(first, backend);
            made.size_ = size;
        }
        return made;
    }

    /// Copies all elements into a vector, whatever the buffer's kind. Blocks until the copy is
    /// complete.
    std::vector<T> to_host() const
    {
        static_assert(!std::is_same_v<T, bool>,
                      "a std::vector<bool> has no elements of its own: use copy_to");
        std::vector<T> host(size_);
        if (size_ > 0) {
            check(dtl_mem_to_host(backend_, data_, host.data(), size_bytes()));
        }
        return host;
    }

    /// Exports the memory to drivers of other devices; see dtl::dma_buf.
    [[nodiscard]] dma_buf export_dma_buf() const { return dma_buf(data_, size_bytes()); }

    /// What other processes of the node make a buffer of this memory from: plain data, to be sent as bytes. Of
    /// buffers whose kind can be exported (the host's: DTL_MEMORY_SHARED).
    dtl_mem_handle_t export_handle() const
    {
        dtl_mem_handle_t handle;
        check(dtl_mem_export(data_, &handle));
        return handle;
    }

    buffer(buffer &&other) noexcept { swap(other); }
    buffer &operator=(buffer &&other) noexcept
    {
        buffer moved(std::move(other));
        swap(moved);
        return *this;
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer() { DTL_IGNORE(dtl_mem_free(backend_, data_)); }

    T *data() noexcept { return data_; }
    const T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    uint64_t size_bytes() const noexcept { return uint64_t{size_} * sizeof(T); }
    T *begin() noexcept { return data_; }
    T *end() noexcept { return data_ + size_; }
    const T *begin() const noexcept { return data_; }
    const T *end() const noexcept { return data_ + size_; }
    T &operator[](std::size_t index) noexcept { return data_[index]; }
    const T &operator[](std::size_t index) const noexcept { return data_[index]; }

    /// Copies `size()` elements from host memory, whatever the buffer's kind.
    void copy_from(const T *host) { check(dtl_mem_copy(data_, host, size_bytes())); }

    /// Copies `size()` elements to host memory, whatever the buffer's kind.
    void copy_to(T *host) const { check(dtl_mem_copy(host, data_, size_bytes())); }

    /// Sets every byte.
    void fill(uint8_t byte)
    {
        if (size_ > 0) {
            check(dtl_mem_fill(data_, byte, size_bytes()));
        }
    }

    void swap(buffer &other) noexcept
    {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(backend_, other.backend_);
    }

  private:
    void own(void *first, backend_ref backend) noexcept
    {
        data_ = static_cast<T *>(first);
        // The current backend may be another one when this is freed.
        dtl_mem_info_t info = DTL_MEM_INFO_INIT;
        const dtl_status_t status = dtl_mem_query(first, &info);
        backend_ = status == DTL_SUCCESS ? info.backend : backend.get();
    }

    T *data_ = nullptr;
    std::size_t size_ = 0;
    dtl_backend_t backend_{};
};

namespace detail {

/// Announcement of the program's memory for the lifetime of the object; `revert` ends it.
template <dtl_status_t (*revert)(dtl_backend_t, void *)> class announced {
  public:
    announced(announced &&other) noexcept : first_(other.first_), backend_(other.backend_) { other.first_ = nullptr; }
    announced &operator=(announced &&other) noexcept
    {
        std::swap(first_, other.first_);
        std::swap(backend_, other.backend_);
        return *this;
    }
    announced(const announced &) = delete;
    announced &operator=(const announced &) = delete;

  protected:
    /// To be constructed after the call that announces the memory.
    announced(void *first, backend_ref backend) noexcept : first_(first)
    {
        // The current backend may be another one when this ends.
        dtl_mem_info_t info = DTL_MEM_INFO_INIT;
        const dtl_status_t status = dtl_mem_query(first, &info);
        backend_ = status == DTL_SUCCESS ? info.backend : backend.get();
    }
    ~announced() { DTL_IGNORE(revert(backend_, first_)); }

  private:
    void *first_ = nullptr;
    dtl_backend_t backend_{};
};

} // namespace detail

/// Host memory that the program has, as PINNED memory of a backend while this object lives. The
/// memory must stay as long.
class registered : public detail::announced<dtl_mem_unregister_host> {
  public:
    registered(void *first, uint64_t size_bytes, backend_ref backend = {})
        : announced((check(dtl_mem_register_host(backend.get(), first, size_bytes)), first), backend)
    {
    }
};

/// Memory of another allocator (cudaMalloc, clSVMAlloc, Kokkos), used as memory of a backend,
/// device and kind for the lifetime of this object. The program keeps ownership. See dtl_mem_adopt.
class adopted : public detail::announced<dtl_mem_release> {
  public:
    adopted(void *first, uint64_t size_bytes, detail::word_of<DTL_ENUM_MEMORY> kind,
            backend_ref backend = {},
            int32_t device = 0)
        : announced((check(dtl_mem_adopt(backend.get(), device, kind, first, size_bytes)), first), backend)
    {
    }
};

/// Memory of a backend that is kept for later allocations. Its blocks are freed before it ends (else it
/// stays until dtl::finalize).
class pool {
  public:
    /// @param keep_bytes  most that is kept without use; 0 = 256 MiB. See dtl_pool_desc_t.
    explicit pool(detail::word_of<DTL_ENUM_MEMORY> kind = DTL_MEMORY_HOST, uint64_t keep_bytes = 0, backend_ref backend = {})
    {
        dtl_pool_desc_t desc = DTL_POOL_DESC_INIT;
        desc.keep_bytes = keep_bytes;
        dtl_pool_t handle;
        check(dtl_pool_create(backend.get(), kind, &desc, &handle));
        handle_.reset(handle);
    }

    dtl_pool_t get() const noexcept { return handle_.get(); }

    void *allocate(uint64_t size_bytes, uint64_t alignment = 0) const
    {
        void *first = nullptr;
        check(dtl_pool_alloc(get(), size_bytes, alignment, &first));
        return first;
    }
    void deallocate(void *first) const { check(dtl_pool_free(get(), first)); }

    /// Gives what is kept beyond `keep_bytes` back to the backend.
    void trim(uint64_t keep_bytes = 0) const { check(dtl_pool_trim(get(), keep_bytes)); }

    dtl_mem_stats_t stats() const
    {
        dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
        check(dtl_pool_stats(get(), &stats));
        return stats;
    }

  private:
    detail::owned<dtl_pool_t, dtl_pool_destroy> handle_;
};

} // namespace dtl

#endif
