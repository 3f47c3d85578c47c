// Function around the C++ block of docs/how-to/extend-enumerations.md.
#include <cstdint>
#include <string>
#include <dtl.hpp>

void run(int64_t block_size, const std::string &json);

void add_schedules()
{
#include "block"
}
