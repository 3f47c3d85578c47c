// register_backend: a backend of the program's own, made of three small tables.
//
// Memory, a device, and execution (streams, events, host loops). Each slot counts its calls. The
// tables leave out whatever the library can make itself: transfers (its memory is host memory),
// timing, callbacks.
//
// Build: find_package(dtl) and target_link_libraries(register_backend PRIVATE dtl::dtl), or
//        c++ -std=c++17 register_backend.cpp $(pkg-config --cflags --libs libdtl) -o register_backend
// Run:   ./register_backend                     uses the program's own backend, "counting"
//        DTL_BACKEND=host ./register_backend    the same program on another backend
// Prints which backend did the work, the counters, and "correct".
#include <dtl.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

namespace {

// What the library passes to every slot as `self`. Atomic: slots are called from any thread.
struct counting {
    std::atomic<unsigned long> sets{0}, allocs{0}, frees{0}, streams{0}, events{0}, records{0}, loops{0},
        pieces{0}, destroyed{0};

    static counting &from(void *self) noexcept { return *static_cast<counting *>(self); }
};

// ---- device (slots must not throw, hence noexcept) ----

dtl_status_t device_count(void *, int32_t *out_count) noexcept
{
    *out_count = 1;
    return DTL_SUCCESS;
}

dtl_status_t device_set(void *self, int32_t) noexcept
{ // the number was checked against the count
    counting::from(self).sets++;
    return DTL_SUCCESS;
}

dtl_status_t device_get(void *, int32_t *out_device) noexcept
{
    *out_device = 0;
    return DTL_SUCCESS;
}

// ---- memory ----

bool known(dtl_enum_word_t kind) noexcept
{
    return kind == DTL_MEMORY_HOST || kind == DTL_MEMORY_DEVICE;
}

dtl_status_t memory_kind_info(void *, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info) noexcept
{
    if (!known(kind)) {
        return DTL_ERROR_NOT_SUPPORTED;
    }
    // The host can reach it, so the library can copy by itself.
    out_info->properties = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
    out_info->alignment = 1;
    std::strcpy(out_info->name, "counted");
    return DTL_SUCCESS;
}

dtl_status_t memory_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                          void **out_ptr) noexcept
{
    if (!known(kind)) {
        DTL_IGNORE(dtl_backend_set_error("use DTL_MEMORY_HOST or DTL_MEMORY_DEVICE"));
        return DTL_ERROR_NOT_SUPPORTED;
    }
    void *memory = ::operator new (size_bytes, std::align_val_t{alignment}, std::nothrow);
    if (memory == nullptr) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    counting::from(self).allocs++;
    *out_ptr = memory;
    return DTL_SUCCESS;
}

dtl_status_t memory_free(void *self, void *ptr, uint64_t, uint64_t alignment, dtl_enum_word_t) noexcept
{
    counting::from(self).frees++;
    ::operator delete (ptr, std::align_val_t{alignment});
    return DTL_SUCCESS;
}

// ---- execution: work is done when it is queued, so streams and events have nothing to remember
// and any pointer but NULL will do for them ----

dtl_status_t stream_create(void *self, int32_t, uint64_t, void **out_stream) noexcept
{
    counting::from(self).streams++;
    *out_stream = self;
    return DTL_SUCCESS;
}

dtl_status_t stream_nothing(void *, void *) noexcept
{ // destroy, synchronize
    return DTL_SUCCESS;
}

dtl_status_t event_create(void *self, uint64_t, void **out_event) noexcept
{
    counting::from(self).events++;
    *out_event = self;
    return DTL_SUCCESS;
}

dtl_status_t event_destroy(void *, void *) noexcept
{
    return DTL_SUCCESS;
}

dtl_status_t event_record(void *self, void *, void *) noexcept
{
    counting::from(self).records++;
    return DTL_SUCCESS;
}

dtl_status_t event_query(void *, void *, int32_t *out_done) noexcept
{
    *out_done = 1;
    return DTL_SUCCESS;
}

dtl_status_t execute(void *, dtl_task_fn_t function, void *user) noexcept
{
    return function(user);
}

dtl_status_t parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain, dtl_range_fn_t body,
                          void *user) noexcept
{
    counting::from(self).loops++;
    while (begin < end) {
        const uint64_t piece = std::min(end - begin, grain);
        counting::from(self).pieces++;
        DTL_TRY(body(begin, begin + piece, user));
        begin += piece;
    }
    return DTL_SUCCESS;
}

dtl_status_t max_parallelism(void *, uint32_t *out_threads) noexcept
{
    *out_threads = 1;
    return DTL_SUCCESS;
}

void destroy(void *self) noexcept
{
    counting::from(self).destroyed++;
}

dtl::registered_backend register_counting(counting &self)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    device.count = device_count;
    device.set = device_set;
    device.get = device_get;
    memory.alloc = memory_alloc;
    memory.free = memory_free;
    memory.kind_info = memory_kind_info;
    exec.stream_create = stream_create;
    exec.stream_destroy = stream_nothing;
    exec.stream_synchronize = stream_nothing;
    exec.event_create = event_create;
    exec.event_destroy = event_destroy;
    exec.event_record = event_record;
    exec.event_query = event_query;
    exec.execute = execute;
    exec.parallel_for = parallel_for;
    exec.max_parallelism = max_parallelism;
    table.destroy = destroy;
    table.device = &device;
    table.memory = &memory;
    table.exec = &exec;
    return dtl::registered_backend("counting", table, &self); // copies the tables
}

// ---- the program: it does not know which backend it runs on ----

constexpr std::size_t count = 1000, grain = 100;

// Owns a handle of dtl.h.
template <class Handle, dtl_status_t (*Destroy)(Handle)> struct owner {
    Handle handle{};
    owner() = default;
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { DTL_IGNORE(Destroy(handle)); }
};

dtl_status_t fill_squares(uint64_t begin, uint64_t end, void *user) noexcept
{
    auto *values = static_cast<double *>(user);
    for (uint64_t i = begin; i < end; i++) {
        values[i] = static_cast<double>(i * i);
    }
    return DTL_SUCCESS;
}

// Computes squares on the executor, sends them through the device, says whether they came back.
bool work(dtl::backend_ref backend)
{
    std::vector<double> there(count), back(count);
    const uint64_t size_bytes = count * sizeof(double);
    backend.set_device(0);
    owner<dtl_executor_t, dtl_executor_destroy> executor;
    dtl::check(dtl_executor_create(backend.get(), nullptr, &executor.handle));
    dtl::check(dtl_executor_parallel_for(executor.handle, 0, count, grain, fill_squares, there.data()));

    dtl::buffer<double> memory(count, DTL_MEMORY_DEVICE, backend);
    owner<dtl_stream_t, dtl_stream_destroy> stream;
    owner<dtl_event_t, dtl_event_destroy> event;
    dtl::check(dtl_stream_create(backend.get(), 0, 0, &stream.handle));
    dtl::check(dtl_event_create(backend.get(), 0, &event.handle));
    dtl::check(dtl_mem_copy_async(stream.handle, memory.data(), there.data(), size_bytes));
    dtl::check(dtl_mem_copy_async(stream.handle, back.data(), memory.data(), size_bytes));
    dtl::check(dtl_event_record(event.handle, stream.handle));
    dtl::check(dtl_event_wait(event.handle, DTL_TIMEOUT_INFINITE)); // both copies are done

    const bool computes = (backend.info().flags & DTL_BACKEND_NO_COMPUTE) == 0;
    for (std::size_t i = 0; i < count; i++) {
        const double expected = computes ? static_cast<double>(i * i) : 0;
        if (back[i] != expected) {
            std::fprintf(stderr, "register_backend: value %zu came back as %g, not %g\n", i, back[i],
                         expected);
            return false;
        }
    }
    return true;
}

// Each counter moved once, or (another backend was chosen) not at all.
bool counted(const counting &c, unsigned long used)
{
    std::printf(
        "device sets %lu, allocations %lu, frees %lu, streams %lu, events %lu, records %lu, loops %lu in %lu "
        "pieces\n",
        c.sets.load(), c.allocs.load(), c.frees.load(), c.streams.load(), c.events.load(), c.records.load(),
        c.loops.load(), c.pieces.load());
    return c.sets == used && c.allocs == used && c.frees == used && c.streams == used && c.events == used &&
           c.records == used && c.loops == used && c.pieces == used * (count / grain);
}

int run()
{
    counting self;
    bool good = false;
    {
        const dtl::library library;
        const dtl::registered_backend own = register_counting(self);
        // NULL is what DTL_BACKEND names. Without it, this program prefers its own.
        const dtl::backend_ref chosen(std::getenv("DTL_BACKEND") != nullptr ? nullptr : "counting");
        std::printf("backend %s\n", chosen.name().c_str());
        good = work(chosen);
        good &= counted(self, chosen.get().id == own.get().id);
    }
    if (!good || self.destroyed != 1) {
        std::fprintf(stderr, "register_backend: the data, a counter or destroy (called %lu times) is wrong\n",
                     self.destroyed.load());
        return 1;
    }
    std::printf("correct\n");
    return 0;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "register_backend: %s\n", failure.what());
        return 1;
    }
}
