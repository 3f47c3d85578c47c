// new_accelerator: hardware that this library has never heard of, used by a program that has never heard of it either.
//
// First part: what comes with the hardware, usually a plugin. It registers a kind of device, a kind of memory (of a value that is
// the same in every process), a schedule with attributes, an environment that opens and closes the card, a backend with the
// card's memory, and handlers: who allocates such memory, who copies to and from it, who runs a kernel by that schedule.
// The card is simulated: its memory is the host's, its engine copies multiples of 64 bytes only.
//
// Second part: the program. The kind of memory and the schedule are words that it is given as text, from its command line or a
// configuration file; nothing in it changes when the card comes.
//
// Build: find_package(dtl) and target_link_libraries(new_accelerator PRIVATE dtl::dtl), or
//        c++ -std=c++17 new_accelerator.cpp $(pkg-config --cflags --libs libdtl) -o new_accelerator
// Run:   ./new_accelerator [kind of memory] [schedule as JSON]
//        without arguments first on the host, then on the card
#include <dtl.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

// ---- what comes with the card ----

namespace card {

constexpr std::uint64_t engine_bytes = 64;
constexpr dtl::memory_kind memory{DTL_EV_WORD(DTL_ENUM_MEMORY, 301)}; // a constant: for `case`, files, messages

// The card. Its environment makes it when somebody requires it, and destroys it when nobody does any more.
struct device {
    std::atomic<int> allocations{0}, engine_copies{0}, other_copies{0}, launches{0};

    ~device()
    {
        if (allocations > 0) {
            std::printf("card: closed, %d allocations, %d copies by its engine, %d others, %d launches\n", allocations.load(),
                        engine_copies.load(), other_copies.load(), launches.load());
        }
    }
};

// The backend's slots: memory of the card, and copies of any size. `self` is the card.
device &of(void *self) noexcept { return *static_cast<device *>(self); }

dtl_status_t count(void *, int32_t *out) noexcept { return *out = 1, DTL_SUCCESS; }
dtl_status_t set(void *, int32_t) noexcept { return DTL_SUCCESS; }
dtl_status_t get(void *, int32_t *out) noexcept { return *out = 0, DTL_SUCCESS; }

dtl_status_t alloc(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out) noexcept
{
    if (kind != memory) return DTL_ERROR_NOT_SUPPORTED;
    *out = ::operator new (size, std::align_val_t{std::max(alignment, engine_bytes)}, std::nothrow);
    if (*out == nullptr) return DTL_ERROR_OUT_OF_MEMORY;
    return of(self).allocations++, DTL_SUCCESS;
}

dtl_status_t release(void *, void *ptr, uint64_t, uint64_t alignment, dtl_enum_word_t) noexcept
{
    return ::operator delete (ptr, std::align_val_t{std::max(alignment, engine_bytes)}), DTL_SUCCESS;
}

dtl_status_t kind_info(void *, dtl_enum_word_t kind, dtl_mem_kind_info_t *out) noexcept
{
    if (kind != memory) return DTL_ERROR_NOT_SUPPORTED;
    std::snprintf(out->name, sizeof out->name, "memory of My Accelerator");
    out->properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE, out->alignment = engine_bytes;
    return DTL_SUCCESS;
}

dtl_status_t copy(void *self, void *dst, dtl_enum_word_t, const void *src, dtl_enum_word_t, uint64_t size) noexcept
{
    std::memcpy(dst, src, size);
    return of(self).other_copies++, DTL_SUCCESS;
}

dtl::registered_backend make_backend(device &own)
{
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t slots = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    device.count = count, device.set = set, device.get = get;
    slots.alloc = alloc, slots.free = release, slots.kind_info = kind_info;
    transfer.copy = copy;
    table.auto_priority = INT32_MIN; // never taken by itself: it computes nothing
    table.device = &device, table.memory = &slots, table.transfer = &transfer;
    return dtl::registered_backend("my_accelerator", table, &own);
}

// All of it, as long as this lives.
class plugin {
  public:
    plugin() : environment_("my_accelerator>=1.0"), backend_(make_backend(environment_.state<device>()))
    {
        device &own = environment_.state<device>();
        dtl::device_kind::add("MyAccelerator");
        dtl::memory_kind::add("MyAccelerator_Shared", memory.value());
        const auto kernel =
            dtl::schedule::add("MyAccelerator_Kernel", {dtl::attr("block_size", 128), dtl::attr("smem_kb", 16)});

        const dtl::dispatcher_ref library; // the dispatcher that the library asks itself
        handlers_.push_back(library.add("memory of the card",
                                        {dtl::dispatch_key(DTL_OPERATION_ALLOC, DTL_DISPATCH_ANY, memory)},
                                        dtl::backend_ref(backend_.get())));
        handlers_.push_back(library.add_if(
            "the card's engine",
            {dtl::dispatch_key(DTL_OPERATION_COPY, DTL_DISPATCH_ANY, memory), dtl::dispatch_key(DTL_OPERATION_COPY, memory)},
            [](const dtl_dispatch_query_t &query) {
                const auto *wanted = static_cast<const dtl_dispatch_copy_t *>(query.args);
                return wanted != nullptr && wanted->ndim == 0 && wanted->size_bytes % engine_bytes == 0;
            },
            [&own](const dtl_dispatch_query_t &query) {
                const auto &wanted = *static_cast<const dtl_dispatch_copy_t *>(query.args);
                std::memcpy(wanted.dst, wanted.src, wanted.size_bytes);
                own.engine_copies++;
            }));
        handlers_.push_back(library.add(
            "the card", {dtl::dispatch_key(DTL_OPERATION_LAUNCH, DTL_DISPATCH_ANY, DTL_DISPATCH_ANY, kernel)},
            [&own](const dtl_dispatch_query_t &query) {
                const auto &wanted = *static_cast<const dtl_dispatch_launch_t *>(query.args);
                dtl_launch_t shape = *wanted.launch;
                // An attribute of the schedule that was asked for.
                const auto block = static_cast<uint32_t>(dtl::schedule(query.schedule).get<int64_t>("block_size"));
                shape.grid[0] = (shape.grid[0] * shape.block[0] + block - 1) / block;
                shape.block[0] = block;
                // A real card's driver would be called here; this one computes as the library does.
                shape.schedule = DTL_DISPATCH_ANY;
                own.launches++;
                return dtl_kernel_launch(wanted.stream, wanted.kernel, &shape, wanted.args, wanted.sizes, wanted.count);
            }));
    }

  private:
    dtl::environment environment_;
    dtl::registered_backend backend_;
    std::vector<dtl::registration> handlers_;
};

} // namespace card

// ---- the program ----

static dtl_status_t square(const dtl_kernel_context_t *at, const void *const *args)
{
    double *data;
    uint64_t n;
    std::memcpy(&data, args[0], sizeof data);
    std::memcpy(&n, args[1], sizeof n);
    const uint64_t i = uint64_t{at->block_index[0]} * at->block[0] + at->thread_index[0];
    if (i < n) data[i] *= data[i];
    return DTL_SUCCESS;
}

// Squares the numbers 1 … n in some memory by some schedule; their sum.
static double sum_of_squares(const char *kind_name, const char *schedule_json)
{
    const auto kind = dtl::memory_kind::from_name(kind_name);
    const auto schedule = dtl::schedule::from_json(schedule_json);
    const dtl::backend_ref host("host");
    const dtl::stream stream(host);
    const dtl::kernel kernel(square, nullptr, host);
    std::vector<double> numbers(1000);
    std::iota(numbers.begin(), numbers.end(), 1.0);
    dtl::buffer<double> there(numbers.size(), kind, host);
    there.copy_from(numbers.data());
    const uint64_t n = numbers.size();
    stream->launch_by(schedule, kernel, dtl::grid{static_cast<uint32_t>(n)}, dtl::block{}, there.data(), n);
    stream->synchronize();
    double first = 0;
    dtl::check(dtl_mem_copy(&first, there.data(), sizeof first));
    there.copy_to(numbers.data());
    const double sum = std::accumulate(numbers.begin(), numbers.end(), 0.0);
    if (first != 1) throw dtl::error(DTL_ERROR_INTERNAL, "the first square is wrong");
    std::printf("%-21s %-62s sum %.0f\n", kind_name, schedule_json, sum);
    return sum;
}

static bool run(int argc, char **argv)
{
    const double right = 1000.0 * 1001 * 2001 / 6;
    const dtl::library library;
    dtl::register_environment<card::device>("my_accelerator", "1.2");
    const card::plugin plugin;
    if (argc > 2) return sum_of_squares(argv[1], argv[2]) == right;
    return sum_of_squares("Host", "\"Multicore\"") == right &&
           sum_of_squares("MyAccelerator_Shared", "{\"type\":\"Schedule.MyAccelerator_Kernel\",\"block_size\":64}") == right;
}

int main(int argc, char **argv)
{
    try {
        if (run(argc, argv)) return 0;
        std::fprintf(stderr, "new_accelerator: the sum is wrong\n");
    } catch (const std::exception &error) {
        std::fprintf(stderr, "new_accelerator: %s\n", error.what());
    }
    return 1;
}
