// dtl.hpp: std::span and types of the form of std::mdspan, copies between memories, arrays as
// views. C++20; with std::mdspan where the compiler has it.
#include "../c/check.h"

#include <dtl.hpp>

#include "thrown.hpp"

#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

// What the header uses of std::mdspan, which the oldest compilers do not have.
template <std::size_t... Sizes> class extents_of {
  public:
    using index_type = int64_t;
    static constexpr std::size_t rank() { return sizeof...(Sizes); }
    static constexpr std::size_t static_extent(std::size_t axis) { return std::array{Sizes...}[axis]; }
    explicit extents_of(std::array<int64_t, sizeof...(Sizes)> all) : sizes(all) {}
    std::array<int64_t, sizeof...(Sizes)> sizes;
};
template <class Extents> struct strided_mapping {
    strided_mapping(Extents of, std::array<int64_t, Extents::rank()> by) : extents(of), strides(by) {}
    Extents extents;
    std::array<int64_t, Extents::rank()> strides;
};
template <class T, class Extents> class strided_view {
  public:
    using element_type = T;
    using extents_type = Extents;
    using mapping_type = strided_mapping<Extents>;
    strided_view(T *first, mapping_type by) : first_(first), mapping_(by) {}
    T *data_handle() const { return first_; }
    int64_t extent(std::size_t axis) const { return mapping_.extents.sizes[axis]; }
    int64_t stride(std::size_t axis) const { return mapping_.strides[axis]; }

  private:
    T *first_;
    mapping_type mapping_;
};
constexpr std::size_t dynamic = std::dynamic_extent;
template <class T> using grid_view = strided_view<T, extents_of<dynamic, dynamic>>;
template <class T> static grid_view<T> view_of(T *first, std::array<int64_t, 2> sizes,
                                               std::array<int64_t, 2> strides)
{
    return grid_view<T>(first, {extents_of<dynamic, dynamic>(sizes), strides});
}

// Temporary spans go wherever a container goes; temporary containers do not where elements are used
// later.
static void spans(dtl::comm_ref world)
{
    using comm = const dtl::comm_ref &;
    constexpr auto isend = [](auto &&data) -> decltype(std::declval<comm>().isend(std::forward<decltype(data)>(data), 0)) { return {}; };
    static_assert(std::is_invocable_v<decltype(isend), std::span<const int>>);
    static_assert(std::is_invocable_v<decltype(isend), std::vector<int> &>);
    static_assert(!std::is_invocable_v<decltype(isend), std::vector<int>>);
    constexpr auto recv = [](auto &&data) -> decltype(std::declval<comm>().recv(std::forward<decltype(data)>(data))) { return {}; };
    static_assert(std::is_invocable_v<decltype(recv),
                  std::span<int>> && !std::is_invocable_v<decltype(recv), std::vector<int>>);

    const int rank = world.rank(), size = world.size();
    std::vector<int> numbers(10), got(10);
    std::iota(numbers.begin(), numbers.end(), rank * 100);
    dtl::request receive = world.irecv(std::span(got).first(4), (rank + size - 1) % size);
    world.isend(std::span<const int>(numbers).subspan(2, 4), (rank + 1) % size).wait();
    receive.wait();
    CHECK(got[0] == (rank + size - 1) % size * 100 + 2 && got[3] == got[0] + 3 && got[4] == 0);
    std::vector<int> sums(3, 1);
    world.allreduce(std::span(sums).last(2), dtl::ops::sum);
    CHECK(sums[0] == 1 && sums[1] == size && sums[2] == size);

    // Collectives of two containers check their lengths.
    const std::vector<int> mine{rank, 7}, twos(2 * static_cast<std::size_t>(size), rank);
    std::vector<int> all(2 * static_cast<std::size_t>(size)), two(2), none;
    world.allgather(mine, all);
    CHECK(all.back() == 7 && all[all.size() - 2] == size - 1);
    world.allreduce(mine, two, dtl::ops::sum);
    CHECK(two[0] == size * (size - 1) / 2 && two[1] == 7 * size);
    world.reduce(mine, rank == 0 ? two : none, dtl::ops::max, dtl::rank{0});
    CHECK(rank != 0 || two[0] == size - 1);
    world.scan(mine, std::span(two), dtl::ops::sum);
    CHECK(two[1] == 7 * (rank + 1));
    world.gather(std::span(mine), rank == 0 ? all : none, 0);
    world.scatter(rank == 0 ? all : none, two, 0);
    CHECK(two == mine);
    world.alltoall(twos, all);
    CHECK(all[0] == 0 && all.back() == size - 1);
    CHECK(thrown([&] { world.allgather(mine, std::span(all).first(1)); }, "out has 1 elements: it must have") ==
          DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { world.allreduce(mine, none, dtl::ops::sum); }, "out has 0 elements: it must have 2, as in") ==
          DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { world.scatter(none, two, rank); }, "in has 0 elements") == DTL_ERROR_INVALID_ARGUMENT);
    const std::vector<int> odd(2 * static_cast<std::size_t>(size) + 1);
    CHECK(size == 1 || thrown([&] { world.alltoall(odd, all); }, "as many for each rank") == DTL_ERROR_INVALID_ARGUMENT);

    int value = rank == 0 ? 9 : 0;
    world.bcast(std::span(&value, 1), dtl::rank{0});
    CHECK(value == 9);
    dtl::window<int> window(world, 4);
    window->fence();
    window->put(std::span<const int>(numbers).first(4), dtl::rank{(rank + 1) % size}, 0);
    window->fence();
    CHECK(std::span(window).back() == (rank + size - 1) % size * 100 + 3);
}

static void copies(dtl::backend_ref host)
{
    std::array<int, 6> from{1, 2, 3, 4, 5, 6}, to{};
    dtl::copy(to.data(), from.data(), 6);
    CHECK(to == from);
    to = {};
    dtl::copy(std::span(to).first(2), std::span<const int>(from).last(2));
    CHECK(to[1] == 6 && to[2] == 0);
    CHECK(thrown([&] { dtl::copy(std::span(to), std::span(from).first(5)); },
                 "dst has 6 elements and src 5") ==
          DTL_ERROR_INVALID_ARGUMENT);

    // A column block of a matrix with padded rows, to device memory and back.
    std::vector<float> matrix(4 * 8), back(3 * 2);
    std::iota(matrix.begin(), matrix.end(), 0.0f);
    dtl::buffer<float> device(3 * 16, DTL_MEMORY_DEVICE, host);
    dtl::copy_2d<float>({device.data(), 64}, {matrix.data() + 8 + 1, 8 * sizeof(float)}, 2, 3);
    dtl::copy_2d<float>({back.data(), 2 * sizeof(float)}, {device.data(), 64}, 2, 3);
    CHECK((back == std::vector<float>{9, 10, 17, 18, 25, 26}));
    CHECK(thrown([&] { dtl::copy_2d<float>({back.data(), 4}, {matrix.data(), 32}, 2, 3); },
                 "pitch") ==
          DTL_ERROR_INVALID_ARGUMENT);

    std::vector<float> transposed(6);
    dtl::copy_strided<float>(transposed.data(), {1, 3}, back.data(), {}, {3, 2});
    CHECK((transposed == std::vector<float>{9, 17, 25, 10, 18, 26}));
    CHECK(thrown([&] { dtl::copy_strided<float>(transposed.data(), {1}, back.data(), {}, {3, 2}); },
                 "dst_strides has 1 elements and shape has 2: give one stride for each axis") ==
          DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { dtl::copy_strided<float>(transposed.data(), {}, back.data(), {1, 2, 3}, {3,
                                                2}); },
                 "src_strides has 3") == DTL_ERROR_INVALID_ARGUMENT);

    std::vector<float> again(6);
    dtl::copy(view_of(again.data(), {3, 2}, {2, 1}),
              view_of<const float>(transposed.data(), {3, 2}, {1, 3}));
    CHECK(again == back);
    CHECK(thrown([&] { dtl::copy(view_of(again.data(), {3, 2}, {2, 1}),
                                 view_of(back.data(), {2, 3}, {3, 1})); },
                 "dimension 0 of dst has 3 elements, that of src 2") == DTL_ERROR_INVALID_ARGUMENT);
#ifdef __cpp_lib_mdspan
    std::mdspan whole(again.data(), 3, 2);
    dtl::copy(whole, std::mdspan(std::as_const(transposed).data(),
                                 std::layout_left::mapping(std::dextents<int, 2>(3, 2))));
    CHECK(again == back);
#endif
}

static void buffers(dtl::backend_ref host)
{
    const std::vector<double> numbers{1, 2, 3};
    const uint64_t before = host.memory_stats().live_count;
    {
        const auto device = dtl::buffer<double>::to_device(numbers.data(), numbers.size(), host);
        CHECK(host.memory_stats().live_count == before + 1 && device.size() == 3);
        CHECK(device.to_host() == numbers);
        CHECK(thrown([&] { (void)device.export_dma_buf(); }) == DTL_ERROR_NOT_SUPPORTED);
        CHECK(dtl::buffer<double>::to_device(nullptr, 0, host).to_host().empty());
    }
    CHECK(host.memory_stats().live_count == before);
    host.trim_memory();
    int inside = 0;
    CHECK(thrown([&] { dtl::dma_buf none(&inside, 4); }) == DTL_ERROR_NOT_FOUND);
}

struct cell {
    float value;
    int32_t flags;
};
template <> inline constexpr bool dtl::is_element<cell> = true;

static void arrays()
{
    const dtl::array<int> grid({3, 4}, dtl::array_flags::zero);
    const auto view = grid.as<grid_view<int>>();
    CHECK(view.data_handle() == grid.data() && view.extent(0) == 3 && view.extent(1) == 4);
    CHECK(view.stride(0) == 4 && view.stride(1) == 1);
    const auto fixed = grid.as<strided_view<const int, extents_of<3, dynamic>>>();
    CHECK(fixed.extent(1) == 4);
    CHECK(thrown([&] { (void)grid.as<strided_view<int, extents_of<dynamic>>>(); },
                 "the array has 2 dimensions, the view 1") == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(thrown([&] { (void)grid.as<strided_view<int, extents_of<3, 5>>>(); },
                 "dimension 1 of the array has 4 elements, that of the view 5") == DTL_ERROR_INVALID_ARGUMENT);
#ifdef __cpp_lib_mdspan
    const auto matrix = grid.mdspan<2>();
    CHECK(matrix.extent(1) == 4 && matrix.stride(0) == 4 && matrix.data_handle() == grid.data());
#endif
    const dtl_dlpack_tensor_t tensor = grid.view();
    CHECK(tensor.ndim == 2 && tensor.shape[1] == 4 && tensor.dtype.bits == 32);

    // To a library that predates DLPack 1.0, and back.
    dtl::unversioned_tensor lent = grid.lend_unversioned();
    CHECK(thrown([&] { dtl::array<float> wrong(lent); },
                 "another type") == DTL_ERROR_TYPE && lent != nullptr);
    const dtl::array<int> same(std::move(lent), dtl::backend_ref("host"));
    CHECK(same.data() == grid.data() && (same.shape() == std::vector<int64_t>{3, 4}));

    // Structs have a dtype of their own, which DLPack has not.
    const dtl::array<cell> cells({8}, dtl::array_flags::zero);
    CHECK(cells.size() == 8 && cells.data()[7].flags == 0);
    CHECK(thrown([&] { (void)cells.lend(); }) == DTL_ERROR_NOT_SUPPORTED);
}

int main()
{
    dtl::library library;
    const dtl::backend_ref host("host");
    spans(dtl::comm_ref());
    copies(host);
    buffers(host);
    arrays();
    std::puts("views: all checks passed");
}
