// The status of what a callable throws, for tests of failures. Included after dtl.hpp.
#ifndef DTL_TEST_THROWN_HPP
#define DTL_TEST_THROWN_HPP

#include "../c/check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

/// Returns the status of the dtl::error that `function` throws, DTL_SUCCESS if it throws none. The
/// error must have the name of its status, and `text`.
template <class F> static dtl_status_t thrown(F &&function, const char *text = "")
{
    try {
        function();
    } catch (const dtl::error &failure) {
        CHECK(std::strstr(failure.what(), dtl_status_name(failure.status())) != nullptr);
        if (std::strstr(failure.what(), text) == nullptr) {
            std::fprintf(stderr, "\"%s\" is not in \"%s\"\n", text, failure.what());
            std::exit(1);
        }
        return failure.status();
    }
    return DTL_SUCCESS;
}

#endif
