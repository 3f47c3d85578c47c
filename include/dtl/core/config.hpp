// Configuration header of DTL under its name there. Backends written after DTL's guide include it first; it defines
// nothing of its own. See dtl/concepts.hpp.
#ifndef DTL_CORE_CONFIG_HPP
#define DTL_CORE_CONFIG_HPP

#include "../../dtl.h"

#include <cstddef>
#include <cstdlib>
#include <utility>

#endif
