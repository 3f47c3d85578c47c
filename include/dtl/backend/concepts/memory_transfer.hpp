// Concept MemoryTransfer, under the name of its header in DTL. All concepts are in dtl/concepts.hpp.
#ifndef DTL_BACKEND_CONCEPTS_MEMORY_TRANSFER_HPP
#define DTL_BACKEND_CONCEPTS_MEMORY_TRANSFER_HPP

#include "../../concepts.hpp"

#endif
