// Communicators of the C++ interface. Part of dtl.hpp.
#ifndef DTL_COMM_HPP
#define DTL_COMM_HPP

#include "collectives.hpp"
#include "exec.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace dtl {

class comm;

/// View of a communicator. Default: DTL_COMM_WORLD. Counts are in elements.
class comm_ref : public collectives {
  public:
    comm_ref() noexcept : collectives(DTL_COMM_WORLD) {}
    comm_ref(dtl_comm_t handle) noexcept : collectives(handle) {}

    /// Returns the job's communicator and opens it if this is its first use; all ranks call then.
    /// Throws DTL_ERROR_UNAVAILABLE if no kind is usable, DTL_ERROR_TIMEOUT if ranks are missing;
    /// the text names what is missing. Nothing is to be freed.
    static comm_ref world()
    {
        dtl_comm_t handle;
        check(dtl_comm_get_world(&handle));
        return handle;
    }

    int rank() const
    {
        int32_t rank = 0;
        check(dtl_comm_rank(handle_, &rank));
        return rank;
    }

    dtl_comm_info_t info() const
    {
        dtl_comm_info_t info = DTL_COMM_INFO_INIT;
        check(dtl_comm_info(handle_, &info));
        return info;
    }

    /// Returns how the ranks are placed on nodes, as seen from this rank. A local call. Throws
    /// DTL_ERROR_NOT_SUPPORTED if neither the kind nor the launcher provides it.
    dtl_comm_topology_t topology() const
    {
        dtl_comm_topology_t topology = DTL_COMM_TOPOLOGY_INIT;
        check(dtl_comm_topology(handle_, &topology));
        return topology;
    }

    /// Returns the node that a rank runs on, 0 to nodes-1. Ranks of one node share memory. A local
    /// call. Throws DTL_ERROR_NOT_SUPPORTED if the node is not known.
    int node_of(detail::rank_in of) const
    {
        int32_t node = 0;
        check(dtl_comm_node_of(handle_, of, &node));
        return node;
    }

    /// Exits this process at once with an exit code of 1 to 255; the launcher terminates the other
    /// ranks. No destructors run. Returns only by an exception, if the code is out of range.
    void abort(int code) const { check(dtl_comm_abort(handle_, code)); }

    /// The functions take pointers and counts, or a contiguous container (std::vector, std::array, dtl::buffer …).
    template <class T> void send(const T *data, uint64_t count, detail::rank_in dest,
                                 detail::tag_in stag = 0) const
    {
        check(dtl_comm_send(handle_, data, count, dtype<T>(), dest, stag));
    }

    template <class C, class = detail::element<C>> void send(const C &data, detail::rank_in dest,
                                                             detail::tag_in stag = 0) const
    {
        send(std::data(data), std::size(data), dest, stag);
    }

    template <class T> void ssend(const T *data, uint64_t count, detail::rank_in dest,
                                  detail::tag_in stag = 0) const
    {
        check(dtl_comm_ssend(handle_, data, count, dtype<T>(), dest, stag));
    }

    template <class C, class = detail::element<C>> void ssend(const C &data, detail::rank_in dest,
                                                              detail::tag_in stag = 0) const
    {
        ssend(std::data(data), std::size(data), dest, stag);
    }

    template <class T>
    dtl_recv_info_t recv(T *data, uint64_t count, detail::rank_in source = DTL_ANY_SOURCE,
                         detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info{};
        check(dtl_comm_recv(handle_, data, count, dtype<T>(), source, rtag, &info));
        return info;
    }

    /// At most as many elements as the container has; `count_of<T>` of the result returns the number.
    template <class C, class = detail::lasting<C>>
    dtl_recv_info_t recv(C &&data, detail::rank_in source = DTL_ANY_SOURCE,
                         detail::tag_in rtag = DTL_ANY_TAG) const
    {
        return recv(std::data(data), std::size(data), source, rtag);
    }

    /// Sends and receives at the same time.
    template <class T>
    dtl_recv_info_t sendrecv(const T *send, uint64_t scount, detail::rank_in dest,
                             detail::tag_in stag, T *recv, uint64_t rcount,
                             detail::rank_in source = DTL_ANY_SOURCE,
                             detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info{};
        check(dtl_comm_sendrecv(handle_, send, scount, dest, stag, recv, rcount, source, rtag,
                                dtype<T>(), &info));
        return info;
    }

    template <class T>
    dtl_recv_info_t sendrecv_replace(T *data, uint64_t count, detail::rank_in dest,
                                     detail::tag_in stag, detail::rank_in source = DTL_ANY_SOURCE,
                                     detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info{};
        check(dtl_comm_sendrecv_replace(handle_, data, count, dtype<T>(), dest, stag, source, rtag,
                                        &info));
        return info;
    }

    /// Waits for a message and leaves it.
    dtl_recv_info_t probe(detail::rank_in source = DTL_ANY_SOURCE,
                          detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_recv_info_t info{};
        check(dtl_comm_probe(handle_, source, rtag, &info));
        return info;
    }

    /// Whether there is a message, without waiting.
    std::optional<dtl_recv_info_t> iprobe(detail::rank_in source = DTL_ANY_SOURCE,
                                          detail::tag_in rtag = DTL_ANY_TAG) const
    {
        int32_t found = 0;
        dtl_recv_info_t info{};
        check(dtl_comm_iprobe(handle_, source, rtag, &found, &info));
        return found != 0 ? std::optional(info) : std::nullopt;
    }

    /// Waits for a message and takes it: `world.mprobe().recv<double>()`.
    [[nodiscard]] message mprobe(detail::rank_in source = DTL_ANY_SOURCE,
                                 detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_message_t handle{};
        dtl_recv_info_t info{};
        check(dtl_comm_mprobe(handle_, source, rtag, &handle, &info));
        return message(handle, info);
    }

    /// Takes a message if there is one; else the result is false.
    [[nodiscard]] message improbe(detail::rank_in source = DTL_ANY_SOURCE,
                                  detail::tag_in rtag = DTL_ANY_TAG) const
    {
        int32_t found = 0;
        dtl_message_t handle{};
        dtl_recv_info_t info{};
        check(dtl_comm_improbe(handle_, source, rtag, &found, &handle, &info));
        return found != 0 ? message(handle, info) : message();
    }

    template <class T>
    [[nodiscard]] request isend(const T *data, uint64_t count, detail::rank_in dest,
                                detail::tag_in stag = 0) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_isend(handle_, data, count, dtype<T>(), dest, stag, handle);
        }, true);
    }

    /// A send that begins when the work before the event's record is done.
    template <class T>
    [[nodiscard]] request isend_on(event_ref event, const T *data, uint64_t count,
                                   detail::rank_in dest, detail::tag_in stag = 0) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_isend_on(handle_, data, count, dtype<T>(), dest, stag, event.get(),
                                     handle);
        }, true);
    }

    template <class T>
    [[nodiscard]] request issend(const T *data, uint64_t count, detail::rank_in dest,
                                 detail::tag_in stag = 0) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_issend(handle_, data, count, dtype<T>(), dest, stag, handle);
        }, true);
    }

    template <class T>
    [[nodiscard]] request irecv(T *data, uint64_t count, detail::rank_in source = DTL_ANY_SOURCE,
                                detail::tag_in rtag = DTL_ANY_TAG) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_irecv(handle_, data, count, dtype<T>(), source, rtag, handle);
        });
    }

    template <class C, class = detail::lasting<C>>
    [[nodiscard]] request isend(C &&data, detail::rank_in dest, detail::tag_in stag = 0) const
    {
        return isend(std::data(data), std::size(data), dest, stag);
    }

    template <class C, class = detail::lasting<C>>
    [[nodiscard]] request irecv(C &&data, detail::rank_in source = DTL_ANY_SOURCE,
                                detail::tag_in rtag = DTL_ANY_TAG) const
    {
        return irecv(std::data(data), std::size(data), source, rtag);
    }

    /// A send to be started again and again.
    template <class T>
    [[nodiscard]] persistent_request send_init(const T *data, uint64_t count, detail::rank_in dest,
                                               detail::tag_in stag = 0) const
    {
        dtl_request_t handle;
        check(dtl_comm_send_init(handle_, data, count, dtype<T>(), dest, stag, &handle));
        return persistent_request(handle);
    }

    /// A receive to be started again and again.
    template <class T>
    [[nodiscard]] persistent_request recv_init(T *data, uint64_t count,
                                               detail::rank_in source = DTL_ANY_SOURCE,
                                               detail::tag_in rtag = DTL_ANY_TAG) const
    {
        dtl_request_t handle;
        check(dtl_comm_recv_init(handle_, data, count, dtype<T>(), source, rtag, &handle));
        return persistent_request(handle);
    }

    /// Registers a buffer that is reused (dtl_comm_register), until deregister_buffer or the end of the communicator.
    template <class T> void register_buffer(T *data, uint64_t count) const
    {
        check(dtl_comm_register(handle_, data, detail::bytes_of<T>(count)));
    }

    template <class C, class = detail::lasting<C>> void register_buffer(C &&data) const
    {
        register_buffer(std::data(data), std::size(data));
    }

    template <class T> void deregister_buffer(T *data) const { check(dtl_comm_deregister(handle_, data)); }

    template <class C, class = detail::lasting<C>> void deregister_buffer(C &&data) const
    {
        deregister_buffer(std::data(data));
    }

    // Communicators from this one; see dtl.h for what each is. All ranks call.

    [[nodiscard]] comm dup() const;
    /// Null for ranks whose color is DTL_UNDEFINED.
    [[nodiscard]] comm split(int color, int key = 0) const;
    /// Of the ranks on this rank's node.
    [[nodiscard]] comm split_node(int key = 0) const;
    /// Of these ranks, in this order; null for the others.
    [[nodiscard]] comm group(const std::vector<int32_t> &ranks) const;
    /// Of the ranks that are left after a failure.
    [[nodiscard]] comm shrink() const;
    /// Creates a communicator of these ranks and of new ones, whose processes the launcher starts (dtl_comm_grow).
    [[nodiscard]] comm grow(int32_t new_ranks) const;
    /// Ends the operations on this communicator with DTL_ERROR_REVOKED on every rank. Not collective.
    void revoke() const { check(dtl_comm_revoke(handle_)); }
    /// One over this of a kind that stands beside another ("nccl": collectives of device memory); DTL_COMM_STAGE in `flags`.
    [[nodiscard]] comm open_over(const char *kind,
                                 detail::enum_or_plain<comm_flags> flags = comm_flags::none,
                                 uint64_t timeout_ns = 0) const;

    /// Where the ranks are, as a text for people: see dtl_comm_dump.
    std::string dump() const
    {
        return detail::text_of(
            [&](char *buf, uint64_t cap, uint64_t *length) { return dtl_comm_dump(handle_, buf, cap, length); });
    }

};

/// A communicator of its own; the destructor closes it.
class comm {
  public:
    /// None.
    comm() noexcept = default;
    explicit comm(dtl_comm_t handle) noexcept : handle_(handle) {}

    /// Opens one as described: `dtl_comm_desc_t desc = DTL_COMM_DESC_INIT; desc.kind = "shm";`
    explicit comm(const dtl_comm_desc_t &desc)
    {
        dtl_comm_t handle;
        check(dtl_comm_open(&desc, &handle));
        handle_.reset(handle);
    }

    /// Opens a communicator of kind "threads", whose ranks are all in this process: element r of
    /// the result is rank r, meant for one thread. Not collective: one call opens all ranks.
    ///
    /// @param size  Number of ranks, 1 to 4096.
    /// @param limit  Time limit of each blocking call; none given: from DTL_TIMEOUT, else none.
    static std::vector<comm> threads(int size,
                                     std::chrono::nanoseconds limit = std::chrono::nanoseconds(0))
    {
        if (size > 1 << 16) { // far above the library's limit: no memory for so many
            throw error(DTL_ERROR_LIMIT, "size is " + std::to_string(size) +
                                             ": kind threads has at most 4096 ranks");
        }
        // Before the ranks are open: std::bad_alloc must not lose them.
        std::vector<comm> ranks(size > 0 ? static_cast<std::size_t>(size) : 0);
        std::vector<dtl_comm_t> handles(ranks.size() + 1);
        check(dtl_comm_threads(size, detail::nanoseconds(limit), handles.data()));
        for (std::size_t i = 0; i < ranks.size(); i++) {
            ranks[i] = comm(handles[i]);
        }
        return ranks;
    }

    /// Opens one over an MPI communicator of the program's, named by its Fortran handle: MPI_Comm_c2f(yours), or
    /// MPI_Comm_toint(yours) with the standard's binary interface. See dtl_comm_from_mpi_fint.
    static comm from_mpi_fint(int32_t yours)
    {
        dtl_comm_t handle;
        check(dtl_comm_from_mpi_fint(yours, &handle));
        return comm(handle);
    }

    /// Opens one of kind "rdma": `dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT; config.rails = 2;`. What `desc` says of ranks, job and
    /// time limit holds.
    static comm rdma(const dtl_rdma_config_t &config, dtl_comm_desc_t desc = DTL_COMM_DESC_INIT)
    {
        dtl_rdma_config_t mine = config;
        desc.kind = "rdma";
        desc.rdma = &mine;
        return comm(desc);
    }

    dtl_comm_t get() const noexcept { return handle_.get(); }
    comm_ref ref() const noexcept { return handle_.get(); }
    operator comm_ref() const noexcept { return ref(); }
    explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
    /// The view's functions: `comm->barrier()`.
    detail::arrow<comm_ref> operator->() const noexcept { return detail::arrow(ref()); }

  private:
    detail::owned<dtl_comm_t, dtl_comm_destroy> handle_;
};

inline comm comm_ref::dup() const
{
    dtl_comm_t handle;
    check(dtl_comm_dup(handle_, &handle));
    return comm(handle);
}

inline comm comm_ref::split(int color, int key) const
{
    dtl_comm_t handle;
    check(dtl_comm_split(handle_, color, key, &handle));
    return comm(handle);
}

inline comm comm_ref::split_node(int key) const
{
    dtl_comm_t handle;
    check(dtl_comm_split_node(handle_, key, &handle));
    return comm(handle);
}

inline comm comm_ref::group(const std::vector<int32_t> &ranks) const
{
    dtl_comm_t handle;
    check(dtl_comm_group_create(handle_, ranks.data(), ranks.size(), &handle));
    return comm(handle);
}

inline comm comm_ref::shrink() const
{
    dtl_comm_t handle;
    check(dtl_comm_shrink(handle_, &handle));
    return comm(handle);
}

inline comm comm_ref::grow(int32_t new_ranks) const
{
    dtl_comm_t handle;
    check(dtl_comm_grow(handle_, new_ranks, 0, &handle));
    return comm(handle);
}

inline comm comm_ref::open_over(const char *kind, detail::enum_or_plain<comm_flags> flags,
                                uint64_t timeout_ns) const
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = kind;
    desc.flags = flags;
    desc.timeout_ns = timeout_ns;
    desc.over = handle_;
    return comm(desc);
}

} // namespace dtl

#endif
