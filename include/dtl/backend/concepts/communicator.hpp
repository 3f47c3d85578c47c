// Concept Communicator, under the name of its header in DTL. All concepts are in dtl/concepts.hpp.
#ifndef DTL_BACKEND_CONCEPTS_COMMUNICATOR_HPP
#define DTL_BACKEND_CONCEPTS_COMMUNICATOR_HPP

#include "../../concepts.hpp"

#endif
