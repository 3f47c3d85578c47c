// Rows of the C++ interface: the operations of instructions.c through dtl.hpp. run.sh checks that
// each takes at most 10 instructions more than its row in C.
#include <dtl.hpp>

#include <cstdlib>

namespace {

constexpr int rounds = 200; // ROUNDS of instructions.c

[[gnu::always_inline]] inline void message(dtl::comm_ref from, dtl::comm_ref to)
{
    const uint64_t there = 7;
    uint64_t here = 0;
    dtl_recv_info_t info{};
    for (int i = 0; i < rounds; i++) {
        dtl::request receive = to.irecv(&here, 1, dtl::rank{0}, dtl::tag{3});
        dtl::request send = from.isend(&there, 1, dtl::rank{1}, dtl::tag{3});
        send.wait();
        info = receive.wait();
    }
    if (here != there || info.size_bytes != 8) {
        std::abort();
    }
}

[[gnu::always_inline]] inline void blocking(dtl::comm_ref from, dtl::comm_ref to)
{
    const uint64_t there = 11;
    uint64_t here = 0;
    dtl_recv_info_t info{};
    for (int i = 0; i < rounds; i++) {
        from.send(&there, 1, dtl::rank{1}, dtl::tag{3});
        info = to.recv(&here, 1, dtl::rank{0}, dtl::tag{3});
    }
    if (here != there || info.size_bytes != 8) {
        std::abort();
    }
}

} // namespace

extern "C" {
[[gnu::noinline]] void warm_cpp_message_info_8(const dtl_comm_t *ends)
{
    message(ends[0], ends[1]);
}
[[gnu::noinline]] void row_cpp_message_info_8(const dtl_comm_t *ends)
{
    __asm__ volatile("# counted"); // or the compiler makes one function of both
    message(ends[0], ends[1]);
}
[[gnu::noinline]] void warm_cpp_send_recv_info_8(const dtl_comm_t *ends)
{
    blocking(ends[0], ends[1]);
}
[[gnu::noinline]] void row_cpp_send_recv_info_8(const dtl_comm_t *ends)
{
    __asm__ volatile("# counted");
    blocking(ends[0], ends[1]);
}
}
