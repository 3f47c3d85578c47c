// dtl.hpp: the C++17 face of dtl.h. Owners that clean up, exceptions, templates; nothing else.
//
// Header only, on top of the C functions: everything here can be mixed with them (`get()` gives the C
// handle). What holds everywhere:
//
//  - A call that fails throws dtl::error (status and text). Destructors never throw.
//  - A class named …_ref is a view: a copyable handle that owns nothing. The class without _ref owns,
//    is move-only and destroys in its destructor.
//  - A callback may throw. Where the call waits for it, the original exception comes out of the call.
//    Where it runs later, it becomes a status: that of a dtl::error, DTL_ERROR_OUT_OF_MEMORY of a
//    std::bad_alloc, DTL_ERROR_CANCELED of anything else. A callback returns void or a dtl_status_t.
//
// These headers wrap every exported function (a test checks it). Ranks, tags, kinds and flags have
// types of their own, and plain numbers work as well (dtl/strong.hpp).
//
// Rules of the functions (threads, ownership, statuses) are in dtl.h.
#ifndef DTL_DTL_HPP
#define DTL_DTL_HPP

#include "dtl/error.hpp"

#include "dtl/array.hpp"
#include "dtl/attribute.hpp"
#include "dtl/backend.hpp"
#include "dtl/collectives.hpp"
#include "dtl/comm.hpp"
#include "dtl/copy.hpp"
#include "dtl/dispatch.hpp"
#include "dtl/dtype.hpp"
#include "dtl/enums.hpp"
#include "dtl/environment.hpp"
#include "dtl/exec.hpp"
#include "dtl/memory.hpp"
#include "dtl/module.hpp"
#include "dtl/policy.hpp"
#include "dtl/request.hpp"
#include "dtl/strong.hpp"
#include "dtl/topology.hpp"
#include "dtl/trace.hpp"
#include "dtl/window.hpp"

#endif
