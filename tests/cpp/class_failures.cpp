// What functions of classes behind dtl::register_backend throw is a status with its text, in each slot.
#include "../c/check.h"

#include <dtl.hpp>
#include <dtl/concepts.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// What the marked function throws now; 0: nothing.
static std::atomic<int> throws{0};

static void maybe_throw()
{
    switch (throws) {
    case 1: throw std::runtime_error("smoke");
    case 2: throw dtl::error(DTL_ERROR_LIMIT, "no more");
    case 3: throw std::bad_alloc();
    case 4: throw 4;
    case 5: throw dtl::error(DTL_SUCCESS, "confused");
    default: break;
    }
}

struct Space {
    using pointer = void *;
    using size_type = std::size_t;
    static inline int in = 0;

    void *allocate(std::size_t size) { return allocate(size, 64); }
    void *allocate(std::size_t size, std::size_t)
    {
        at(1);
        return ::operator new(size, std::align_val_t{64});
    }
    void deallocate(void *first, std::size_t)
    {
        at(2); // then the memory stays
        ::operator delete(first, std::align_val_t{64});
    }
    dtl::memory_space_properties properties() const
    {
        at(3);
        dtl::memory_space_properties has;
        has.host_accessible = false;
        has.alignment = 64;
        return has;
    }
    std::string name() const
    {
        at(4);
        return "space";
    }
    std::size_t available_memory() const
    {
        at(5);
        return 1;
    }
    static void at(int which)
    {
        if (which == in) {
            maybe_throw();
        }
    }
};

struct Copier {
    void copy(void *dst, const void *src, std::size_t size)
    {
        maybe_throw();
        std::memcpy(dst, src, size);
    }
    dtl::transfer_direction direction() const { return dtl::transfer_direction::unknown; }
};

struct Runner {
    static inline int in = 0;

    void execute(const std::function<void()> &function)
    {
        at(1);
        function();
    }
    void parallel_for(std::size_t count, const std::function<void(std::size_t)> &function)
    {
        at(2);
        for (std::size_t i = 0; i < count; i++) {
            function(i);
        }
    }
    std::size_t max_parallelism() const
    {
        at(3);
        return 1;
    }
    std::size_t suggested_parallelism() const
    {
        at(4);
        return 1;
    }
    const char *name() const { return "runner"; }
    static void at(int which)
    {
        if (which == in) {
            maybe_throw();
        }
    }
};

// One rank, and each open makes one. Its destructor may throw.
struct Line {
    using size_type = std::size_t;
    static inline int in = 0;
    static inline int live = 0;

    explicit Line(const dtl_comm_open_t &)
    {
        at(1);
        live++;
    }
    Line(const Line &) = delete;
    Line &operator=(const Line &) = delete;
    ~Line() noexcept(false)
    {
        live--;
        at(2);
    }
    int rank() const
    {
        at(3);
        return 0;
    }
    int size() const { return 2; } // of a peer that is not there
    void send(const void *, std::size_t, int, int) {}
    void recv(void *, std::size_t, int, int) {}
    int isend(const void *, std::size_t, int, int)
    {
        at(4);
        return 0;
    }
    int irecv(void *, std::size_t, int, int)
    {
        at(5);
        return 1;
    }
    bool test(int &wish)
    {
        at(6);
        return wish == 0;
    }
    void wait(int &) {}
    static void at(int which)
    {
        if (which == in) {
            maybe_throw();
        }
    }
};

struct outcome {
    dtl_status_t status;
    std::string text;
};

static outcome of(dtl_status_t status)
{
    return {status, dtl_last_error()};
}

// Sets which function throws, then what: status and text reach the caller.
template <class F> static void each(int &which, int function, F call)
{
    const outcome expected[] = {{DTL_ERROR_BACKEND, "smoke"},
                                {DTL_ERROR_LIMIT, "no more"},
                                {DTL_ERROR_OUT_OF_MEMORY, "bad_alloc"},
                                {DTL_ERROR_BACKEND, "no std::exception"},
                                {DTL_ERROR_BACKEND, "confused"}};
    which = function;
    for (int what = 1; what <= 5; what++) {
        const outcome &should = expected[what - 1];
        const outcome got = call([what] { throws = what; });
        throws = 0;
        if (got.status != should.status || got.text.find(should.text) == std::string::npos) {
            std::fprintf(stderr, "function %d, exception %d: %s: %s\n", function, what, dtl_status_name(got.status),
                         got.text.c_str());
            std::exit(1);
        }
    }
    which = 0;
}

static void memory()
{
    const auto backend = dtl::register_backend("memory", Space(), Copier());
    void *first = nullptr;
    const auto allocated = [&](dtl_enum_word_t kind) { return dtl_mem_alloc(backend.get(), kind, 8, 0, &first); };
    each(Space::in, 1, [&](auto mark) { return mark(), of(allocated(DTL_MEMORY_DEVICE)); });
    each(Space::in, 3, [&](auto mark) { return mark(), of(allocated(DTL_MEMORY_HOST)); });
    each(Space::in, 2, [&](auto mark) {
        CHECK_OK(allocated(DTL_MEMORY_DEVICE));
        mark();
        const outcome got = of(dtl_mem_free(backend.get(), first));
        throws = 0;
        CHECK_OK(dtl_mem_free(backend.get(), first));
        return got;
    });
    for (const int function : {3, 4}) {
        each(Space::in, function, [&](auto mark) {
            dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
            return mark(), of(dtl_mem_kind_info(backend.get(), DTL_MEMORY_DEVICE, &info));
        });
    }
    uint64_t free_bytes = 0, total_bytes = 0;
    each(Space::in, 5, [&](auto mark) {
        return mark(), of(dtl_device_memory_info(backend.get(), 0, &free_bytes, &total_bytes));
    });
    CHECK_OK(allocated(DTL_MEMORY_DEVICE));
    int unused = 0;
    char bytes[8] = "";
    each(unused, 1, [&](auto mark) { return mark(), of(dtl_mem_copy(first, bytes, 8)); });
    each(unused, 1, [&](auto mark) { return mark(), of(dtl_mem_copy(bytes, first, 8)); });
    CHECK_OK(dtl_mem_free(backend.get(), first));
}

static void execution()
{
    const auto backend = dtl::register_backend<Runner>("execution");
    const dtl::executor executor(DTL_EXECUTOR_BACKEND, 0, backend.ref());
    const dtl_task_fn_t task = [](void *) -> dtl_status_t { return DTL_SUCCESS; };
    const dtl_range_fn_t range = [](uint64_t, uint64_t, void *) -> dtl_status_t { return DTL_SUCCESS; };
    each(Runner::in, 1, [&](auto mark) { return mark(), of(dtl_executor_run(executor.get(), task, NULL)); });
    each(Runner::in, 2, [&](auto mark) {
        return mark(), of(dtl_executor_parallel_for(executor.get(), 0, 10, 1, range, NULL));
    });
    for (const int function : {3, 4}) {
        each(Runner::in, function, [&](auto mark) {
            dtl_executor_info_t info = DTL_EXECUTOR_INFO_INIT;
            return mark(), of(dtl_executor_info(executor.get(), &info));
        });
    }
}

static dtl_status_t opened(dtl_comm_t *comm)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "line";
    desc.rank = 0;
    desc.size = 2;
    return dtl_comm_open(&desc, comm);
}

static void communication()
{
    const auto backend = dtl::register_backend<Line>("line");
    dtl_comm_t comm;
    for (const int function : {1, 3}) {
        each(Line::in, function, [&](auto mark) { return mark(), of(opened(&comm)); });
        CHECK(Line::live == 0);
    }
    for (const int function : {4, 6}) {
        each(Line::in, function, [&](auto mark) {
            char byte = 0;
            CHECK_OK(opened(&comm));
            mark();
            const outcome got = of(function == 4 ? dtl_comm_send(comm, &byte, 1, DTL_DTYPE_INT8, 1, 1)
                                                 : dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_INT8, 1, 1, NULL));
            throws = 0;
            DTL_IGNORE(dtl_comm_destroy(comm));
            CHECK(Line::live == 0);
            return got;
        });
    }
    // A destructor: the communicator is gone, and the log has the text.
    std::string logged;
    const dtl::log_sink sink([&logged](int, std::string_view line) { logged += line; }, DTL_LOG_WARN);
    Line::in = 2;
    CHECK_OK(opened(&comm));
    throws = 1;
    CHECK_OK(dtl_comm_destroy(comm));
    throws = 0;
    CHECK(Line::live == 0 && logged.find("comm.close: backend failed: smoke") != std::string::npos);
    Line::in = 0;
}

// The objects end with the backend. What the destructor throws has no call to fail.
struct Ends : Space {
    Ends() = default;
    Ends(Ends &&other) noexcept : armed(std::exchange(other.armed, false)) {}
    Ends &operator=(Ends &&) = delete;
    ~Ends() noexcept(false)
    {
        if (armed) {
            ended++;
            throw std::runtime_error("at the end");
        }
    }
    bool armed = true;
    static inline int ended = 0;
};

static void the_end()
{
    static_cast<void>(dtl::register_backend<Ends>("ends"));
    CHECK(Ends::ended == 1);
    dtl_backend_t backend;
    CHECK_STATUS(dtl_backend_get("ends", &backend), DTL_ERROR_NOT_FOUND);
}

int main(void)
{
    const dtl::library library;
    memory();
    execution();
    communication();
    the_end();
    return 0;
}
