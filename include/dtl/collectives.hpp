// The collectives of the C++ interface, as the base of dtl::comm_ref. Part of dtl.hpp.
#ifndef DTL_COLLECTIVES_HPP
#define DTL_COLLECTIVES_HPP

#include "request.hpp"
#include "views.hpp"

#include <string>

namespace dtl {

/// As the input of a collective: this rank's part lies where its result goes (DTL_IN_PLACE).
struct in_place_t {
    template <class T> operator T *() const noexcept { return static_cast<T *>(DTL_IN_PLACE); }
};
inline constexpr in_place_t in_place{};

namespace detail {

/// Parameters that do not take part in deduction, so that in_place fits.
template <class T> struct same { using type = T; };
template <class T> using in = const typename same<T>::type *;
template <class T> using out = typename same<T>::type *;

template <class T>
using scalar = std::enable_if_t<std::is_arithmetic_v<T> || std::is_same_v<T, std::complex<float>> ||
                                std::is_same_v<T, std::complex<double>> || is_element<T>>;

/// The element type of two containers that a call reads and writes: the same on both sides.
template <class In, class Out>
using moved = std::enable_if_t<std::is_same_v<std::remove_const_t<element<In>>, lasting<Out>>,
                               lasting<Out>>;

/// Throws unless a container has `wanted` elements.
inline void require_size(const char *name, uint64_t found, uint64_t wanted, const char *why)
{
    if (found != wanted) {
        throw error(DTL_ERROR_INVALID_ARGUMENT,
                    std::string(name) + " has " + std::to_string(found) +
                                                    " elements: it must have " +
                                                    std::to_string(wanted) + why);
    }
}

} // namespace detail

/// The collectives of a communicator; use them through dtl::comm_ref. Each also with an i in front: begun, and
/// ended by the request. `in_place` as the input (of a scatter: as the output) stands for DTL_IN_PLACE.
class collectives {
  public:
    dtl_comm_t get() const noexcept { return handle_; }

    /// Number of ranks.
    int size() const
    {
        int32_t size = 0;
        check(dtl_comm_size(handle_, &size));
        return size;
    }

    void barrier() const { check(dtl_comm_barrier(handle_)); }

    [[nodiscard]] request ibarrier() const
    {
        return begun([&](dtl_request_t *handle) { return dtl_comm_ibarrier(handle_, handle); });
    }

    template <class T> void bcast(T *data, uint64_t count, detail::rank_in root) const
    {
        check(dtl_comm_bcast(handle_, data, count, dtype<T>(), root));
    }

    template <class T> [[nodiscard]] request ibcast(T *data, uint64_t count,
                                                    detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ibcast(handle_, data, count, dtype<T>(), root, handle);
        });
    }

    template <class T> void reduce(detail::in<T> in, T *out, uint64_t count, detail::op<T> op,
                                   detail::rank_in root) const
    {
        check(dtl_comm_reduce(handle_, in, out, count, dtype<T>(), op, root));
    }

    template <class T> [[nodiscard]] request ireduce(detail::in<T> in, T *out, uint64_t count,
                                                     detail::op<T> op, detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ireduce(handle_, in, out, count, dtype<T>(), op, root, handle);
        });
    }

    template <class T> void allreduce(detail::in<T> in, T *out, uint64_t count,
                                      detail::op<T> op) const
    {
        check(dtl_comm_allreduce(handle_, in, out, count, dtype<T>(), op));
    }

    template <class T> [[nodiscard]] request iallreduce(detail::in<T> in, T *out, uint64_t count,
                                                        detail::op<T> op) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iallreduce(handle_, in, out, count, dtype<T>(), op, handle);
        });
    }

    template <class T> void reduce_scatter_block(detail::in<T> in, T *out, uint64_t count,
                                                 detail::op<T> op) const
    {
        check(dtl_comm_reduce_scatter_block(handle_, in, out, count, dtype<T>(), op));
    }

    template <class T> [[nodiscard]] request ireduce_scatter_block(detail::in<T> in, T *out, uint64_t count,
                                                                   detail::op<T> op) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ireduce_scatter_block(handle_, in, out, count, dtype<T>(), op, handle);
        });
    }

    template <class T> void reduce_scatter(detail::in<T> in, T *out, const uint64_t *counts,
                                           detail::op<T> op) const
    {
        check(dtl_comm_reduce_scatter(handle_, in, out, counts, dtype<T>(), op));
    }

    template <class T> [[nodiscard]] request ireduce_scatter(detail::in<T> in, T *out, const uint64_t *counts,
                                                             detail::op<T> op) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ireduce_scatter(handle_, in, out, counts, dtype<T>(), op, handle);
        });
    }

    template <class T> void scan(detail::in<T> in, T *out, uint64_t count, detail::op<T> op) const
    {
        check(dtl_comm_scan(handle_, in, out, count, dtype<T>(), op));
    }

    template <class T> [[nodiscard]] request iscan(detail::in<T> in, T *out, uint64_t count,
                                                   detail::op<T> op) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iscan(handle_, in, out, count, dtype<T>(), op, handle);
        });
    }

    template <class T> void exscan(detail::in<T> in, T *out, uint64_t count, detail::op<T> op) const
    {
        check(dtl_comm_exscan(handle_, in, out, count, dtype<T>(), op));
    }

    template <class T> [[nodiscard]] request iexscan(detail::in<T> in, T *out, uint64_t count,
                                                     detail::op<T> op) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iexscan(handle_, in, out, count, dtype<T>(), op, handle);
        });
    }

    template <class T> void gather(detail::in<T> in, uint64_t count_per_rank, T *out,
                                   detail::rank_in root) const
    {
        check(dtl_comm_gather(handle_, in, count_per_rank, out, dtype<T>(), root));
    }

    template <class T> [[nodiscard]] request igather(detail::in<T> in, uint64_t count_per_rank, T *out,
                                                     detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_igather(handle_, in, count_per_rank, out, dtype<T>(), root, handle);
        });
    }

    template <class T> void gatherv(detail::in<T> in, uint64_t count, T *out, const uint64_t *counts,
                                    const uint64_t *displs, detail::rank_in root) const
    {
        check(dtl_comm_gatherv(handle_, in, count, out, counts, displs, dtype<T>(), root));
    }

    template <class T> [[nodiscard]] request igatherv(detail::in<T> in, uint64_t count, T *out,
                                                      const uint64_t *counts, const uint64_t *displs,
                                                      detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_igatherv(handle_, in, count, out, counts, displs, dtype<T>(), root,
                                     handle);
        });
    }

    template <class T> void scatter(const T *in, uint64_t count_per_rank, detail::out<T> out,
                                    detail::rank_in root) const
    {
        check(dtl_comm_scatter(handle_, in, count_per_rank, out, dtype<T>(), root));
    }

    template <class T>
    [[nodiscard]] request iscatter(const T *in, uint64_t count_per_rank, detail::out<T> out,
                                   detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iscatter(handle_, in, count_per_rank, out, dtype<T>(), root, handle);
        });
    }

    template <class T> void scatterv(const T *in, const uint64_t *counts, const uint64_t *displs,
                                     detail::out<T> out, uint64_t count, detail::rank_in root) const
    {
        check(dtl_comm_scatterv(handle_, in, counts, displs, out, count, dtype<T>(), root));
    }

    template <class T> [[nodiscard]] request iscatterv(const T *in, const uint64_t *counts,
                                                       const uint64_t *displs, detail::out<T> out,
                                                       uint64_t count, detail::rank_in root) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iscatterv(handle_, in, counts, displs, out, count, dtype<T>(), root,
                                      handle);
        });
    }

    template <class T> void allgather(detail::in<T> in, uint64_t count_per_rank, T *out) const
    {
        check(dtl_comm_allgather(handle_, in, count_per_rank, out, dtype<T>()));
    }

    template <class T> [[nodiscard]] request iallgather(detail::in<T> in, uint64_t count_per_rank,
                                                        T *out) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iallgather(handle_, in, count_per_rank, out, dtype<T>(), handle);
        });
    }

    template <class T> void allgatherv(detail::in<T> in, uint64_t count, T *out, const uint64_t *counts,
                                       const uint64_t *displs) const
    {
        check(dtl_comm_allgatherv(handle_, in, count, out, counts, displs, dtype<T>()));
    }

    template <class T> [[nodiscard]] request iallgatherv(detail::in<T> in, uint64_t count, T *out,
                                                         const uint64_t *counts, const uint64_t *displs) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_iallgatherv(handle_, in, count, out, counts, displs, dtype<T>(),
                                        handle);
        });
    }

    template <class T> void alltoall(detail::in<T> in, uint64_t count_per_rank, T *out) const
    {
        check(dtl_comm_alltoall(handle_, in, count_per_rank, out, dtype<T>()));
    }

    template <class T> [[nodiscard]] request ialltoall(detail::in<T> in, uint64_t count_per_rank,
                                                       T *out) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ialltoall(handle_, in, count_per_rank, out, dtype<T>(), handle);
        });
    }

    template <class T> void alltoallv(detail::in<T> in, const uint64_t *scounts, const uint64_t *sdispls,
                                      T *out, const uint64_t *rcounts, const uint64_t *rdispls) const
    {
        check(dtl_comm_alltoallv(handle_, in, scounts, sdispls, out, rcounts, rdispls, dtype<T>()));
    }

    template <class T> [[nodiscard]] request ialltoallv(detail::in<T> in, const uint64_t *scounts,
                                                        const uint64_t *sdispls, T *out,
                                                        const uint64_t *rcounts,
                                                        const uint64_t *rdispls) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ialltoallv(handle_, in, scounts, sdispls, out, rcounts, rdispls,
                                       dtype<T>(),
                                       handle);
        });
    }
    /// A block to each of `dests` and one from each of `sources`; see dtl_comm_neighbor_alltoallv.
    template <class T>
    void neighbor_alltoallv(const std::vector<int32_t> &dests, detail::in<T> in, const uint64_t *scounts,
                            const uint64_t *sdispls, const std::vector<int32_t> &sources, T *out,
                            const uint64_t *rcounts, const uint64_t *rdispls) const
    {
        check(dtl_comm_neighbor_alltoallv(handle_, dests.data(), dests.size(), in, scounts, sdispls,
                                          sources.data(), sources.size(), out, rcounts, rdispls,
                                          dtype<T>()));
    }

    template <class T>
    [[nodiscard]] request ineighbor_alltoallv(const std::vector<int32_t> &dests, detail::in<T> in,
                                              const uint64_t *scounts, const uint64_t *sdispls,
                                              const std::vector<int32_t> &sources, T *out,
                                              const uint64_t *rcounts, const uint64_t *rdispls) const
    {
        return begun([&](dtl_request_t *handle) {
            return dtl_comm_ineighbor_alltoallv(handle_, dests.data(), dests.size(), in, scounts, sdispls,
                                                sources.data(), sources.size(), out, rcounts, rdispls,
                                                dtype<T>(), handle);
        });
    }

    template <class C, class = detail::lasting<C>> void bcast(C &&data, detail::rank_in root) const
    {
        bcast(std::data(data), std::size(data), root);
    }

    /// One value from each rank, reduced.
    template <class T, class = detail::scalar<T>> T allreduce(T value, detail::op<T> op) const
    {
        allreduce<T>(in_place, &value, 1, op);
        return value;
    }

    /// Each element of the container is replaced by the reduction of everybody's.
    template <class C, class T = detail::lasting<C>> void allreduce(C &&data,
                                                                    detail::op<T> op) const
    {
        allreduce(in_place, std::data(data), std::size(data), op);
    }

    // With one container for what is read and another for the result. Their lengths are checked
    // here and, as all errors of arguments, fail on this rank only.

    /// out[i] = the reduction of everybody's in[i], on the root; `out` may be empty elsewhere.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void reduce(const In &in, Out &&out, detail::op<T> op, detail::rank_in root) const
    {
        if (is_root(root)) {
            detail::require_size("out", std::size(out), std::size(in), ", as in");
        }
        reduce<T>(std::data(in), std::data(out), std::size(in), op, root);
    }

    /// out[i] = the reduction of everybody's in[i].
    template <class In, class Out, class T = detail::moved<In, Out>>
    void allreduce(const In &in, Out &&out, detail::op<T> op) const
    {
        detail::require_size("out", std::size(out), std::size(in), ", as in");
        allreduce<T>(std::data(in), std::data(out), std::size(in), op);
    }

    /// out[i] = the reduction of in[i] of the ranks up to this one.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void scan(const In &in, Out &&out, detail::op<T> op) const
    {
        detail::require_size("out", std::size(out), std::size(in), ", as in");
        scan<T>(std::data(in), std::data(out), std::size(in), op);
    }

    /// Block r of `out` = `in` of rank r, on the root; `out` may be empty elsewhere.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void gather(const In &in, Out &&out, detail::rank_in root) const
    {
        if (is_root(root)) {
            detail::require_size("out", std::size(out), std::size(in) * ranks(), per_rank);
        }
        gather<T>(std::data(in), std::size(in), std::data(out), root);
    }

    /// `out` = block r of the root's `in` on rank r; `in` may be empty elsewhere.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void scatter(const In &in, Out &&out, detail::rank_in root) const
    {
        if (is_root(root)) {
            detail::require_size("in", std::size(in), std::size(out) * ranks(),
                                 ", a block for each rank");
        }
        scatter<T>(std::data(in), std::size(out), std::data(out), root);
    }

    /// Block r of `out` = `in` of rank r.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void allgather(const In &in, Out &&out) const
    {
        detail::require_size("out", std::size(out), std::size(in) * ranks(), per_rank);
        allgather<T>(std::data(in), std::size(in), std::data(out));
    }

    /// Block r of `out` = this rank's block of `in` of rank r.
    template <class In, class Out, class T = detail::moved<In, Out>>
    void alltoall(const In &in, Out &&out) const
    {
        const uint64_t each = std::size(in) / ranks();
        detail::require_size("in", std::size(in), each * ranks(), ", as many for each rank");
        detail::require_size("out", std::size(out), std::size(in), ", as in");
        alltoall<T>(std::data(in), each, std::data(out));
    }

    /// One value from each rank, by rank.
    template <class T, class = detail::scalar<T>> std::vector<T> allgather(T value) const
    {
        std::vector<T> all(static_cast<std::size_t>(size()));
        allgather(&value, 1, all.data());
        return all;
    }

  private:
    static constexpr const char *per_rank = ", those of in for each rank";

    std::size_t ranks() const { return static_cast<std::size_t>(size()); }

    bool is_root(int32_t root) const
    {
        int32_t mine = 0;
        check(dtl_comm_rank(handle_, &mine));
        return mine == root;
    }

  protected:
    explicit collectives(dtl_comm_t handle) noexcept : handle_(handle) {}

    template <class F> static request begun(F start, bool is_send = false)
    {
        dtl_request_t handle;
        check(start(&handle));
        return request(handle, is_send);
    }

    dtl_comm_t handle_;
};

} // namespace dtl

#endif
