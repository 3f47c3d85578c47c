// Function around the block on policies of docs/how-to/write-cpp.md.
#include <dtl.hpp>
#include <memory>
#include <optional>
#include <vector>

struct worker {
    void run();
};
std::optional<uint32_t> find_free();
void run_on(worker &mine);

void selected(std::vector<worker> objects)
{
#include "block"
}
