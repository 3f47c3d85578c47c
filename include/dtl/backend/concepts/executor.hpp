// Concept Executor, under the name of its header in DTL. All concepts are in dtl/concepts.hpp.
#ifndef DTL_BACKEND_CONCEPTS_EXECUTOR_HPP
#define DTL_BACKEND_CONCEPTS_EXECUTOR_HPP

#include "../../concepts.hpp"

#endif
