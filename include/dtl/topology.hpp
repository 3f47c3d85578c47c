// Placement and time in the C++ interface: the node, the CPUs of a thread, Cartesian grids of
// ranks, the monotonic clock. Part of dtl.hpp.
#ifndef DTL_TOPOLOGY_HPP
#define DTL_TOPOLOGY_HPP

#include "error.hpp"
#include "strong.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dtl {

/// Describes this node: CPUs, caches, memory, limits of the control groups, name. Reads system
/// files (about 100 us). A value that the system does not report is 0. cpus_allowed is that of the
/// calling thread.
inline dtl_topology_t node_topology()
{
    dtl_topology_t topology = DTL_TOPOLOGY_INIT;
    check(dtl_topology(&topology));
    return topology;
}

/// Returns the CPUs (hardware threads) that the calling thread may run on, in ascending order.
/// Throws DTL_ERROR_NOT_SUPPORTED if the kernel does not report them.
inline std::vector<int32_t> affinity()
{
    std::vector<int32_t> cpus(1024);
    uint64_t length = 0;
    for (;;) {
        const dtl_status_t status = dtl_affinity(cpus.data(), cpus.size(), &length);
        const bool fits = length <= cpus.size();
        cpus.resize(static_cast<std::size_t>(length));
        if (fits) {
            check(status);
            return cpus;
        }
    }
}

/// Returns the seconds since a fixed point in the past, by a monotonic clock of about 1 ns, as
/// MPI_Wtime. The point differs between processes. Works in every state of the library.
inline double wtime() noexcept
{
    return dtl_comm_wtime();
}

/// Ranks in a Cartesian grid, in row-major order: the last coordinate varies fastest. A value; its
/// functions are local arithmetic and need no communicator.
class cart_grid {
  public:
    /// @param dims  Size of each dimension, 1 to 16 of them.
    /// @param periodic  Which dimensions are periodic, one for each; empty: none is.
    explicit cart_grid(std::vector<int32_t> dims, const std::vector<bool> &periodic = {})
        : dims_(std::move(dims)), periods_(periodic.begin(), periodic.end())
    {
        if (periods_.empty()) {
            periods_.resize(dims_.size());
        }
        of_each_dimension(periods_.size(), "periodic");
    }

    /// Makes a grid of `ranks` ranks. Sizes that are 0 are chosen, as equal as possible:
    /// `dtl::cart_grid::of(world.size(), {0, 0})`. Throws DTL_ERROR_INVALID_ARGUMENT if the given
    /// sizes do not divide `ranks`.
    static cart_grid of(int ranks, std::vector<int32_t> dims,
                        const std::vector<bool> &periodic = {})
    {
        check(dtl_cart_dims(ranks, dims.data(), static_cast<int32_t>(dims.size())));
        return cart_grid(std::move(dims), periodic);
    }

    const std::vector<int32_t> &dims() const noexcept { return dims_; }

    /// Returns the rank at a position. Coordinates of periodic dimensions wrap round; others
    /// outside of the grid throw DTL_ERROR_INVALID_ARGUMENT.
    dtl::rank rank(const std::vector<int32_t> &coords) const
    {
        of_each_dimension(coords.size(), "coords");
        int32_t found = 0;
        check(dtl_cart_rank(dims_.data(), periods_.data(), coords.data(), ndim(), &found));
        return dtl::rank{found};
    }

    /// Returns the position of a rank. Throws DTL_ERROR_INVALID_RANK if it is not in the grid.
    std::vector<int32_t> coords(detail::rank_in of) const
    {
        std::vector<int32_t> found(dims_.size());
        check(dtl_cart_coords(dims_.data(), ndim(), of, found.data()));
        return found;
    }

    /// Neighbours of a rank along a dimension; DTL_PROC_NULL beyond an open border.
    struct neighbours {
        dtl::rank source; ///< Rank to receive from.
        dtl::rank dest;   ///< Rank to send to.
    };

    /// Returns the ranks to exchange with if every rank sends to the one that is `displacement`
    /// steps further along `dimension`, for comm_ref::sendrecv.
    neighbours shift(detail::rank_in of, int dimension, int displacement = 1) const
    {
        int32_t source = 0, dest = 0;
        check(dtl_cart_shift(dims_.data(), periods_.data(), ndim(), of, dimension, displacement,
                             &source, &dest));
        return {dtl::rank{source}, dtl::rank{dest}};
    }

  private:
    int32_t ndim() const noexcept { return static_cast<int32_t>(dims_.size()); }

    void of_each_dimension(std::size_t length, const char *name) const
    {
        if (length != dims_.size()) {
            throw error(DTL_ERROR_INVALID_ARGUMENT,
                        std::string(name) + " has " + std::to_string(length) +
                            " elements and the grid " + std::to_string(dims_.size()) +
                            " dimensions: give one for each");
        }
    }

    std::vector<int32_t> dims_, periods_;
};

} // namespace dtl

#endif
