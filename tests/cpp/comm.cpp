// dtl.hpp: communicators by element type. Runs alone and with several ranks.
#include "../c/check.h"

#include <dtl.hpp>

#include <complex>
#include <cstdlib>
#include <string>
#include <vector>

static_assert(dtl::dtype_of<double> == DTL_DTYPE_FLOAT64 && dtl::dtype_of<float> == DTL_DTYPE_FLOAT32);
static_assert(dtl::dtype_of<int64_t> == DTL_DTYPE_INT64 && dtl::dtype_of<uint8_t> == DTL_DTYPE_UINT8);
static_assert(dtl::dtype_of<long long> == DTL_DTYPE_INT64 && dtl::dtype_of<bool> == DTL_DTYPE_BOOL);
static_assert(dtl::dtype_of<std::byte> == DTL_DTYPE_BYTE && dtl::dtype_of<int16_t> == DTL_DTYPE_INT16);

static_assert(dtl::dtype_of<std::complex<float>> == DTL_DTYPE_COMPLEX64);
static_assert(dtl::dtype_of<std::complex<double>> == DTL_DTYPE_COMPLEX128);

static void ring(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    const double mine[2] = {double(rank), 0.5};
    double got[3] = {};
    dtl::request receive = world.irecv(got, 3, left, 7);
    dtl::request send = world.isend(mine, 2, right, 7);
    const dtl_recv_info_t info = receive.wait();
    send.wait();
    CHECK(info.source == left && info.tag == 7 && info.size_bytes == 16);
    CHECK(got[0] == left && got[1] == 0.5 && !receive);
}

static void collectives(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    world.barrier();
    CHECK(world.allreduce(std::complex<double>(1, rank), DTL_OP_SUM) ==
          std::complex<double>(size, size * (size - 1) / 2));
    CHECK(world.allreduce(int64_t{rank}, DTL_OP_SUM) == int64_t{size} * (size - 1) / 2);
    CHECK(world.allreduce(float(rank), DTL_OP_MAX) == float(size - 1));
    int32_t value = rank == size - 1 ? 99 : 0;
    world.bcast(&value, 1, size - 1);
    CHECK(value == 99);
    std::vector<int32_t> all(size);
    world.allgather(&rank, 1, all.data());
    for (int i = 0; i < size; i++) {
        CHECK(all[i] == i);
    }
}

static void abandoned(dtl::comm_ref world)
{
    int32_t never = 0;
    {
        dtl::request waiting = world.irecv(&never, 1, world.rank(), 1);
        CHECK(!waiting.test());
    } // cancelled here, or this hangs
    CHECK(never == 0);
}

static void opened()
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "self";
    dtl_comm_t handle;
    dtl::check(dtl_comm_open(&desc, &handle));
    dtl::comm alone(handle);
    CHECK(alone->size() == 1);
    dtl::comm moved = std::move(alone);
    CHECK(alone.get().id == 0);
    moved->barrier();
}

// How it works over an MPI is shown by examples-cpp/mpi/adopt.cpp.
static void without_mpi()
{
    dtl_status_t status = DTL_SUCCESS;
    std::string text;
    try {
        dtl::comm::from_mpi_fint(0);
    } catch (const dtl::error &error) {
        status = error.status();
        text = error.what();
    }
    CHECK(status == DTL_ERROR_INVALID_STATE && text.find("no MPI is in this process") != std::string::npos);
}

static void derived(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    dtl::comm copy = world.dup();
    const dtl::comm half = copy->split(rank % 2);
    CHECK(half->size() == (size + 1 - rank % 2) / 2 && half->rank() == rank / 2);
    CHECK(half->allreduce(1, DTL_OP_SUM) == half->size());
    const dtl::comm none = copy->split(DTL_UNDEFINED);
    CHECK(none.get().id == 0);
    // A message whose length its receiver learns by probing.
    const std::vector<double> sent(static_cast<size_t>(rank) + 3, rank);
    dtl::request sending = copy->isend(sent.data(), sent.size(), (rank + 1) % size, 5);
    const int before = (rank + size - 1) % size;
    const dtl_recv_info_t found = copy->probe(before, 5);
    std::vector<double> got(found.size_bytes / sizeof(double));
    copy->register_buffer(got);
    CHECK(got.size() == static_cast<size_t>(before) + 3);
    copy->recv(got.data(), got.size(), before, 5);
    CHECK(got.front() == before && got.back() == before);
    copy->deregister_buffer(got);
    copy->register_buffer(got.data(), 1);
    copy->deregister_buffer(got.data());
    sending.wait();
    world.barrier(); // who shrinks ends what others still wait for on the communicator
    const dtl::comm left = copy->shrink(); // nobody failed: all are left
    CHECK(left->size() == size && left->rank() == rank);
    left->barrier();
    world.barrier(); // a revocation ends a barrier of `left` that some ranks have left already
    // One rank revokes it: calls of all ranks fail, until they make another.
    dtl_status_t status = DTL_SUCCESS;
    if (rank == size - 1) left->revoke();
    try {
        for (;;) left->barrier();
    } catch (const dtl::error &error) {
        status = error.status();
    }
    CHECK(status == DTL_ERROR_REVOKED);
    const dtl::comm again = left->shrink();
    CHECK(again->size() == size);
    again->barrier();
}

// With a driver and an NCCL that are none (runs.txt) a device for each rank; else it says what is missing.
static void beside_another(dtl::comm_ref world)
{
    dtl_status_t status = DTL_SUCCESS;
    try {
        (void)world.open_over("self");
    } catch (const dtl::error &error) {
        status = error.status();
    }
    CHECK(status == DTL_ERROR_INVALID_ARGUMENT);
    if (std::getenv("DTL_NCCL_LIBRARY") == nullptr) {
        return;
    }
    const dtl::backend_ref cuda("cuda");
    cuda.set_device(world.rank());
    const dtl::comm devices = world.open_over("nccl", DTL_COMM_STAGE, UINT64_C(30000000000));
    CHECK(devices->size() == world.size());
    const std::vector<int> ones(100, 1);
    std::vector<int> sums(100);
    dtl::buffer<int> memory(100, DTL_MEMORY_DEVICE, cuda);
    dtl::check(dtl_mem_copy(memory.data(), ones.data(), sizeof(int) * 100));
    devices->allreduce(dtl::in_place, memory.data(), 100, DTL_OP_SUM);
    dtl::check(dtl_mem_copy(sums.data(), memory.data(), sizeof(int) * 100));
    CHECK(sums.front() == world.size() && sums.back() == world.size());
}

// Where there is no RDMA device it says so; what there is is the business of other tests.
static void without_rdma()
{
    if (dtl::backend_ref("rdma").is_available()) {
        return;
    }
    const dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    std::string why;
    try {
        (void)dtl::comm::rdma(config);
    } catch (const dtl::error &error) {
        CHECK(error.status() == DTL_ERROR_UNAVAILABLE);
        why = error.what();
    }
    CHECK(why.find("rdma") != std::string::npos);
}

int main()
{
    dtl::library library;
    const dtl::comm_ref world;
    ring(world);
    collectives(world);
    abandoned(world);
    opened();
    without_mpi();
    without_rdma();
    derived(world);
    beside_another(world);
    if (world.rank() == 0) {
        std::printf("comm: all checks passed with %d ranks\n", world.size());
    }
}
