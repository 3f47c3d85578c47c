// Uses the installed C++ header.
#include <dtl.hpp>

#include <cstdio>

int main()
{
    dtl::library library;
    dtl::buffer<int> numbers(10, DTL_MEMORY_HOST, dtl::backend_ref("host"));
    numbers.fill(0);
    try {
        dtl::backend_ref("no such backend");
    } catch (const dtl::error &failure) {
        std::printf("consumer: dtl %s, %zu numbers\n", dtl_version_string(), numbers.size());
        return failure.status() == DTL_ERROR_NOT_FOUND && numbers[9] == 0 ? 0 : 1;
    }
    return 1;
}
