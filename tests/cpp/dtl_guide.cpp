// Classes with the includes and names of DTL's guide are a backend as they are.
#include "dtl_guide.hpp"

#include "../c/check.h"

#include <dtl.hpp>

#include <string>
#include <vector>

int main(void)
{
    const dtl::library library;
    using namespace dtl::guide;
    const auto backend = dtl::register_backend<guide_memory_space, guide_executor, guide_communicator>("guide");
    {
        dtl::buffer<double> memory(100, DTL_MEMORY_HOST, backend.ref());
        std::vector<double> there(100, 2.5), back(100);
        memory.copy_from(there.data());
        memory.copy_to(back.data());
        CHECK(back == there);
    }
    const dtl::executor executor(DTL_EXECUTOR_BACKEND, 0, backend.ref());
    std::vector<int> hits(100);
    executor.parallel_for(0, hits.size(), 1, [&](uint64_t begin, uint64_t) { hits[begin]++; });
    CHECK(hits == std::vector<int>(100, 1));

    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "guide";
    desc.rank = 0;
    desc.size = 1;
    const dtl::comm comm(desc);
    const double term = 1.5;
    double sum = 0;
    comm->barrier();
    comm->allreduce(&term, &sum, 1, DTL_OP_SUM);
    CHECK(sum == term);
    CHECK(guide_communicator::calls == 2);
    return 0;
}
