// Basic types of DTL under their names there. Part of dtl/concepts.hpp.
#ifndef DTL_CORE_TYPES_HPP
#define DTL_CORE_TYPES_HPP

#include "config.hpp"

namespace dtl {

/// Rank of a process, as in MPI.
using rank_t = int;
/// Number of bytes or elements.
using size_type = std::size_t;

/// Request of a class that satisfies Communicator, if the class has no type of its own for it: a pointer of the class.
struct request_handle {
    void *handle = nullptr; ///< Read and written only by the class.

    /// Returns true if the class has set the pointer.
    [[nodiscard]] bool valid() const noexcept { return handle != nullptr; }
};

} // namespace dtl

#endif
