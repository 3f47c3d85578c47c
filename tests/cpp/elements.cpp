// dtl.hpp: strong types, dtypes of structs, operations of lambdas, attributes, thread ranks, grids
// and placement. Runs alone and with several ranks.
#include "../c/check.h"

// Programs compile the header with these warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wshadow"
#pragma GCC diagnostic error "-Wconversion"
#pragma GCC diagnostic error "-Wsign-conversion"
#include <dtl.hpp>
#pragma GCC diagnostic pop

#include "thrown.hpp"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

struct point {
    double r;
    int32_t owner;
    char name[4];
};
template <> inline constexpr bool dtl::is_element<point> = true;

// True if Arguments may be passed to the function, which is a callable.
template <class F, class... Arguments> constexpr bool takes(F, Arguments...)
{
    return std::is_invocable_v<F, Arguments...>;
}

// A swapped rank and tag, count, root, kind or flag does not compile; plain numbers do.
static void strong_types()
{
    using world = const dtl::comm_ref &;
    constexpr auto send = [](auto... a) -> decltype(std::declval<world>().send((const int *)nullptr,
                                                                               a...)) {};
    constexpr auto recv = [](auto... a) -> decltype(std::declval<world>().recv((int *)nullptr, 1, a...)) { return {}; };
    constexpr auto bcast = [](auto... a) -> decltype(std::declval<world>().bcast((int *)nullptr,
                                                                                 a...)) {};
    using window = const dtl::window_ref<int> &;
    constexpr auto put = [](auto... a) -> decltype(std::declval<window>().put((const int *)nullptr,
                                                                              a...)) {};
    constexpr auto lock = [](auto... a) -> decltype(std::declval<window>().lock(a...)) { return {}; };
    constexpr dtl::rank one{1};
    constexpr dtl::tag seven{7};
    static_assert(takes(send, 8, one, seven) && takes(send, 8, 1, 7) && takes(send, 8, one, 7));
    static_assert(!takes(send, 8, seven, one) && !takes(send, 8, 1, one) && !takes(send, 8, seven));
    static_assert(!takes(send, one, 8, seven));
    static_assert(takes(recv, one, seven) && takes(recv, dtl::any_source, dtl::any_tag));
    static_assert(!takes(recv, seven, one) && !takes(recv, dtl::any_tag));
    static_assert(takes(bcast, 8, one) && takes(bcast, 8, 0) && !takes(bcast, one,
                                                                       8) && !takes(bcast, 8,
                                                                                    seven));
    static_assert(takes(put, 8, one, 0) && takes(put, 8, 1, 0) && !takes(put, 8, 0,
                                                                         one) && !takes(put, 8,
                                                                                        seven, 0));
    static_assert(takes(lock, one, dtl::lock_type::shared) && takes(lock, 1, DTL_LOCK_EXCLUSIVE));
    static_assert(!takes(lock, one, dtl::executor_kind::pool) && !takes(lock,
                                                                        dtl::lock_type::shared));
    static_assert(!std::is_convertible_v<dtl::rank, int> && !std::is_convertible_v<int, dtl::rank>);
    static_assert(std::is_constructible_v<dtl::executor, dtl::executor_kind> &&
                  std::is_constructible_v<dtl::executor, uint32_t> &&
                  !std::is_constructible_v<dtl::executor, dtl::lock_type>);
    static_assert(std::is_constructible_v<dtl::event, dtl::backend_ref, dtl::event_flags> &&
                  !std::is_constructible_v<dtl::event, dtl::backend_ref, dtl::array_flags>);
    static_assert((dtl::comm_flags::stage | dtl::comm_flags::deterministic) ==
                  static_cast<dtl::comm_flags>(DTL_COMM_STAGE | DTL_COMM_DETERMINISTIC));
    static_assert(one.get() == 1 && static_cast<int>(seven) == 7 && one == dtl::rank{1} && one != dtl::any_source);

    // An operation on one type does not compile with another.
    constexpr auto reduce = [](auto *data, const auto &op) -> decltype(std::declval<world>().allreduce(data, data, 1, op)) {};
    using reducing = decltype(reduce);
    static_assert(takes(reduce, (int *)nullptr, dtl::ops::sum) && takes(reduce, (double *)nullptr,
                                                                        DTL_OP_SUM));
    static_assert(std::is_invocable_v<reducing, int *, const dtl::user_op<int> &>);
    static_assert(!std::is_invocable_v<reducing, int *, const dtl::user_op<double> &>);
    static_assert(!std::is_invocable_v<reducing, int *, dtl::element_type>);
}

static void typed_messages(dtl::comm_ref world)
{
    const int size = world.size();
    const dtl::rank right{(world.rank() + 1) % size}, left{(world.rank() + size - 1) % size};
    const point mine{world.rank() + 0.5, world.rank(), "abc"};
    point got{};
    dtl::request receive = world.irecv(&got, 1, left, dtl::tag{7});
    world.isend(&mine, 1, right, dtl::tag{7}).wait();
    const dtl_recv_info_t info = receive.wait();
    CHECK(dtl::count_of<point>(info) == 1 && got.owner == left.get() && got.r == left.get() + 0.5);
    CHECK(std::strcmp(got.name, "abc") == 0);
    dtl::comm_ref::world().barrier();

    std::vector<point> all(static_cast<std::size_t>(size));
    world.allgather(&mine, 1, all.data());
    CHECK(all.back().owner == size - 1 && all.back().r == size - 0.5);

    const dtl::element_type type = dtl::make_dtype<point>();
    CHECK(type.size_bytes() == sizeof(point) && type.name() == "point" && type == dtl::dtype<point>());
    CHECK(dtl::dtype_of<double>.name() == "FLOAT64" && dtl::dtype_of<double>.size_bytes() == 8);
    CHECK(dtl::ops::sum.name() == "SUM");
}

static void operations(dtl::comm_ref world)
{
    const int rank = world.rank(), size = world.size();
    const dtl::user_op<point> nearest([](const point &a,
                                         const point &b) { return a.r <= b.r ? a : b; }, "nearest",
                                      dtl::op_flags::commutes);
    CHECK(nearest.get().name() == "nearest");
    const point mine{static_cast<double>(size - rank), rank, ""};
    point best{};
    world.allreduce(&mine, &best, 1, nearest);
    CHECK(best.r == 1 && best.owner == size - 1 && world.allreduce(mine, nearest).owner == size - 1);

    // By blocks, with state, in the order of the ranks: composes the maps x -> real * x + imag.
    int calls = 0;
    const dtl::user_op<std::complex<double>> compose(
        [&calls](const std::complex<double> *in, std::complex<double> *inout, uint64_t count) {
            ++calls;
            for (uint64_t i = 0; i < count; i++) {
                inout[i] = {in[i].real() * inout[i].real(), in[i].imag() * inout[i].real() + inout[i].imag()};
            }
        },
        "compose");
    std::complex<double> maps[2] = {{10, rank + 1.0}, {10, 0}};
    world.allreduce(dtl::in_place, maps, 2, compose);
    double digits = 0; // of 1, 2, ..., size
    for (int i = 1; i <= size; i++) {
        digits = 10 * digits + i;
    }
    CHECK(maps[0].imag() == digits && maps[1].imag() == 0);
    CHECK(size == 1 || world.allreduce(calls, dtl::ops::max) > 0);

    CHECK(thrown([] { dtl::user_op<int>([](int a, int) { return a; }, ""); },
                 "name") == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([] { dtl::user_op<int>([](int a, int) { return a; }, "odd", uint64_t{64}); },
                 "flags") ==
          DTL_ERROR_INVALID_ARGUMENT);
    dtl_reduce_op_t number = 0;
    {
        dtl::user_op<int> first([](int a, int b) { return a ^ b; });
        number = first.get();
        const dtl::user_op<int> moved = std::move(first);
        CHECK(world.allreduce(5, moved) == (size % 2 == 0 ? 0 : 5));
        const dtl_reduce_op_t gone = first.get(); // no operation, not even a built-in one
        CHECK(thrown([&] { dtl::reduce_op(gone).name(); }) != DTL_SUCCESS);
        CHECK(thrown([&] { world.allreduce(5, first); }) != DTL_SUCCESS);
    }
    CHECK(thrown([&] { dtl::reduce_op(number).name(); }) == DTL_ERROR_INVALID_HANDLE);
}

static void sized_dtypes()
{
    dtl_dtype_t number = 0;
    {
        dtl::user_dtype first(24, "triple");
        const dtl::user_dtype triple(std::move(first));
        number = triple.get();
        CHECK(thrown([&] { first.get().size_bytes(); }) != DTL_SUCCESS);
        CHECK(triple.get().size_bytes() == 24 && triple.get().name() == "triple" && number >= 4096);
    }
    CHECK(thrown([&] { dtl::element_type(number).size_bytes(); }) == DTL_ERROR_INVALID_HANDLE);
    CHECK(thrown([] { dtl::user_dtype(0, "nothing"); },
                 "size_bytes") == DTL_ERROR_INVALID_ARGUMENT);
}

struct counted {
    static int alive;
    int value;
    explicit counted(int v) : value(v) { ++alive; }
    counted(const counted &other) : value(other.value)
    {
        if (value < 0) throw dtl::error(DTL_ERROR_TYPE, "this one is not copied");
        ++alive;
    }
    counted(counted &&other) noexcept : value(other.value) { ++alive; }
    ~counted() { --alive; }
};
int counted::alive = 0;

static void attributes(dtl::comm_ref world)
{
    const dtl::attribute<counted> plan;
    const dtl::attribute<counted, false> kept_here;
    {
        const dtl::comm first = world.dup();
        CHECK(plan.find(first) == nullptr && thrown([&] { plan.erase(first); }) == DTL_ERROR_NOT_FOUND);
        plan.set(first, counted(1)).value = 2;
        plan.set(first, counted(3)), kept_here.set(first, counted(4));
        CHECK(counted::alive == 2 && plan.find(first)->value == 3);
        const dtl::comm copy = first->dup();
        CHECK(counted::alive == 3 && plan.find(copy)->value == 3 && plan.find(copy) != plan.find(first));
        CHECK(kept_here.find(copy) == nullptr);
        plan.erase(copy);
        CHECK(counted::alive == 2 && plan.find(copy) == nullptr);
        plan.find(first)->value = -1;
        CHECK(thrown([&] { (void)first->dup(); }, "copy function") == DTL_ERROR_TYPE);
        world.barrier();
    }
    CHECK(counted::alive == 0);
}

static void thread_ranks()
{
    std::vector<dtl::comm> ranks = dtl::comm::threads(3, std::chrono::minutes(10));
    CHECK(ranks.size() == 3 && ranks[2]->rank() == 2);
    std::vector<std::thread> threads;
    for (dtl::comm &mine : ranks) {
        threads.emplace_back([&mine] {
            CHECK(mine->allreduce(mine->rank() + 1, dtl::ops::sum) == 6);
            CHECK(mine->node_of(dtl::rank{2}) == 0);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const dtl_comm_topology_t where = ranks[1]->topology();
    CHECK(where.node == 0 && where.nodes == 1 && where.local_rank == 1 && where.local_size == 3);
    CHECK(thrown([&] { (void)ranks[0]->node_of(3); }, "rank") == DTL_ERROR_INVALID_RANK);
    CHECK(thrown([] { (void)dtl::comm::threads(0); }, "size") == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([] { (void)dtl::comm::threads(5000); }) == DTL_ERROR_LIMIT);
    CHECK(thrown([] { (void)dtl::comm::threads(INT32_MAX); }, "size is 2147483647") == DTL_ERROR_LIMIT);
    CHECK(thrown([&] { ranks[0]->abort(0); }, "code") == DTL_ERROR_INVALID_ARGUMENT);
}

static void grids()
{
    const dtl::cart_grid grid = dtl::cart_grid::of(6, {0, 0}, {false, true});
    CHECK((grid.dims() == std::vector<int32_t>{3, 2}));
    CHECK(dtl::cart_grid({2, 3}).rank({1, 0}) == dtl::rank{3});
    CHECK(grid.rank({2, 1}) == dtl::rank{5} && grid.rank({2, -1}) == dtl::rank{5});
    CHECK((grid.coords(dtl::rank{3}) == std::vector<int32_t>{1, 1}));
    const auto [source, dest] = grid.shift(0, 0);
    CHECK(source == dtl::proc_null && dest == dtl::rank{2});
    CHECK(grid.shift(dtl::rank{0}, 1, 1).source == dtl::rank{1});
    CHECK(thrown([&] { (void)grid.rank({3, 0}); }) == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)grid.rank({1}); },
                 "coords has 1 elements and the grid 2 dimensions") ==
          DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([] { dtl::cart_grid({2, 2}, {true}); },
                 "periodic has 1") == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)grid.coords(6); }) == DTL_ERROR_INVALID_RANK);
    CHECK(thrown([] { dtl::cart_grid::of(6, {4, 0}); }) == DTL_ERROR_INVALID_ARGUMENT);

    CHECK(dtl::node_topology().cpus_allowed == static_cast<int32_t>(dtl::affinity().size()));
    const double before = dtl::wtime();
    CHECK(dtl::wtime() >= before);
}

int main()
{
    strong_types();
    {
        dtl::library library;
        const dtl::comm_ref world;
        typed_messages(world);
        operations(world);
        sized_dtypes();
        attributes(world);
        thread_ranks();
        grids();
        if (world.rank() == 0) {
            std::printf("elements: all checks passed with %d ranks\n", world.size());
        }
    }
    if (std::getenv("DTL_RANK") == nullptr) {
        // The library destroyed the dtype of `point`; another one is made.
        dtl::library again;
        const dtl::comm_ref self(DTL_COMM_SELF);
        const point mine{1, 2, ""};
        point got{};
        dtl::request receive = self.irecv(&got, 1, 0, 0);
        self.isend(&mine, 1, 0, 0).wait();
        receive.wait();
        CHECK(got.owner == 2);
    }
}
