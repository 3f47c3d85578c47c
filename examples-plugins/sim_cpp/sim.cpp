// SPDX-License-Identifier: MIT OR Apache-2.0
//
// sim_cpp: the simulated accelerator of ../sim, with tables in C++. The driver is the same; slots are
// member functions that throw, and work in a stream is a lambda.
#include "work.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sim {

const dtl_host_api_t *host;

namespace {

thread_local int32_t current; // device of the calling thread

constexpr uint64_t on_both_sides =
    DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;

struct kind {
    dtl_enum_word_t word;
    uint64_t properties, alignment;
    const char *name;
};

const kind kinds[] = {
    {DTL_MEMORY_HOST, DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE | DTL_MEMORY_THREAD_SAFE,
     64, "host"},
    {DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE, CARD_ALIGNMENT,
     "the card's"},
    {DTL_MEMORY_PINNED, on_both_sides, 4096, "host, mapped by the card"},
    {DTL_MEMORY_MANAGED, on_both_sides | DTL_MEMORY_UNIFIED, 4096, "of both sides"},
    {DTL_MEMORY_SHARED, on_both_sides | DTL_MEMORY_EXPORTABLE, 4096, "of several processes"},
};

const kind &kind_of(dtl_enum_word_t word)
{
    for (const kind &one : kinds) {
        if (one.word == word) return one;
    }
    throw dtl::error(DTL_ERROR_NOT_SUPPORTED,
                  "it has memory of the kinds HOST, DEVICE, PINNED, MANAGED and SHARED");
}

void check_number(int32_t device)
{
    if (device < 0 || device >= CARD_DEVICES) {
        throw dtl::error(DTL_ERROR_OUT_OF_BOUNDS,
                         "device " + std::to_string(device) + ": use 0 to 1");
    }
}

stream &stream_of(void *pointer) { return *static_cast<stream *>(pointer); }
event &event_of(void *pointer) { return *static_cast<event *>(pointer); }

/// The backend: its member functions are the slots.
class backend {
  public:
    ~backend() { card_stop(); }

    void is_available(int32_t *out_yes, char *why, uint64_t cap)
    {
        *out_yes = card_start() == 0;
        if (!*out_yes) std::snprintf(why, cap,
                                     "there is no address space for the memory of the card");
    }

    // ---- devices ----

    void count(int32_t *out_count) { *out_count = CARD_DEVICES; }
    void get(int32_t *out_device) { *out_device = current; }
    void set(int32_t device)
    {
        check_number(device);
        current = device;
    }

    void info(int32_t device, dtl_device_info_t *out)
    {
        check_number(device);
        out->numa_node = -1;
        out->kind = DTL_DEVICE_ACCELERATOR;
        out->total_bytes = CARD_BYTES;
        out->compute_units = 1;
        out->max_block_threads = 1024;
        for (int axis = 0; axis < 3; axis++) out->max_block[axis] =
            1024, out->max_grid[axis] = 1u << 30;
        std::snprintf(out->name, sizeof out->name, "simulated accelerator, device %d",
                      static_cast<int>(device));
    }

    void device_memory(int32_t device, uint64_t *out_free, uint64_t *out_total)
    {
        check_number(device);
        *out_free = card_free_bytes(device);
        *out_total = CARD_BYTES;
    }

    // ---- memory ----

    void alloc(uint64_t size, uint64_t alignment, dtl_enum_word_t word, void **out)
    {
        *out = allocate(current, size, alignment, word);
    }

    void free(void *ptr, uint64_t, uint64_t, dtl_enum_word_t word) { release(ptr, word); }

    void kind_info(dtl_enum_word_t word, dtl_mem_kind_info_t *out)
    {
        const kind &found = kind_of(word);
        out->properties = found.properties;
        out->alignment = found.alignment;
        std::snprintf(out->name, sizeof out->name, "%s", found.name);
    }

    void export_handle(void *ptr, uint64_t, uint64_t, dtl_enum_word_t word, void *out)
    {
        if (word != DTL_MEMORY_SHARED || card_share_export(ptr,
                                                           static_cast<uint64_t *>(out)) != 0) {
            throw dtl::error(DTL_ERROR_NOT_SUPPORTED,
                          "only allocations of kind SHARED can be exported");
        }
    }

    void import_handle(const void *bytes, uint64_t size, uint64_t alignment, dtl_enum_word_t,
                       void **out)
    {
        *out = card_share_import(static_cast<const uint64_t *>(bytes), size, alignment);
        if (*out == nullptr) throw dtl::error(DTL_ERROR_INVALID_HANDLE,
                                           "the exporter has freed the memory or ended");
    }

    void alloc_async(void *on, uint64_t size, uint64_t alignment, dtl_enum_word_t word, void **out)
    {
        *out = allocate(stream_of(on).device(), size, alignment, word); // early enough
    }

    void free_async(void *on, void *ptr, uint64_t, uint64_t, dtl_enum_word_t word)
    {
        stream_of(on).push([=] { release(ptr, word); });
    }

    // ---- transfers ----

    void copy(void *dst, dtl_enum_word_t, const void *src, dtl_enum_word_t, uint64_t size)
    {
        command(device_of(dst, src), "copy");
        std::memcpy(card_translate(dst), card_translate(src), size);
    }

    void copy_async(void *on, void *dst, dtl_enum_word_t, const void *src, dtl_enum_word_t,
                    uint64_t size)
    {
        stream_of(on).push({"copy", direction(dst, src), size, [=] {
                                std::memcpy(card_translate(dst), card_translate(src), size);
                            }});
    }

    void copy_2d(void *dst, dtl_enum_word_t, uint64_t dst_pitch, const void *src, dtl_enum_word_t,
                 uint64_t src_pitch, uint64_t width, uint64_t height)
    {
        command(device_of(dst, src), "copy");
        auto *to = static_cast<unsigned char *>(card_translate(dst));
        const auto *from = static_cast<const unsigned char *>(card_translate(src));
        for (uint64_t row = 0; row < height; row++) std::memcpy(to + row * dst_pitch,
                                                                from + row * src_pitch, width);
    }

    void fill(void *dst, dtl_enum_word_t, uint8_t value, uint64_t size)
    {
        command(device_of(dst, dst), "fill");
        std::memset(card_translate(dst), value, size);
    }

    // ---- streams and events ----

    void stream_create(int32_t device, uint64_t, void **out) { *out = new stream(device, 0); }
    void stream_create_with_priority(int32_t device, uint64_t, int32_t priority, void **out)
    {
        *out = new stream(device, priority);
    }
    void stream_priorities(int32_t, int32_t *out_least, int32_t *out_greatest)
    {
        *out_least = CARD_LEAST;
        *out_greatest = CARD_GREATEST;
    }
    void stream_destroy(void *on) { delete &stream_of(on); } // waits: queued work is not lost
    void stream_synchronize(void *on)
    {
        static_cast<void>(stream_of(on).end().wait());
        stream_of(on).report(true);
    }

    void stream_query(void *on, int32_t *out_done)
    {
        *out_done = stream_of(on).is_idle();
        if (*out_done) stream_of(on).report(false);
    }

    void stream_wait_event(void *on, void *which)
    {
        const fence last = event_of(which).last();
        stream_of(on).push([last] { check(last.wait(), "work before the event failed"); });
    }

    void stream_host_callback(void *on, dtl_task_fn_t function, void *user)
    {
        stream_of(on).push([=] { DTL_IGNORE(function(user)); }); // the library records its status
    }

    void event_create(uint64_t, void **out) { *out = new event; }
    void event_destroy(void *which) { delete &event_of(which); }
    void event_record(void *which, void *on) { event_of(which).record(stream_of(on)); }
    void event_sync(void *which) { check(event_of(which).last().wait(),
                                         "work before the event failed"); }
    void event_query(void *which, int32_t *out_done)
    {
        const fence last = event_of(which).last();
        *out_done = last.is_done();
        check(last.error(), "work before the event failed");
    }

    void event_elapsed(void *start, void *stop, uint64_t *out_ns)
    {
        const uint64_t begin =
            event_of(start).last().time_ns(), end = event_of(stop).last().time_ns();
        if (begin == 0 || end == 0) throw dtl::error(DTL_ERROR_INVALID_STATE,
                                                  "an event is not recorded and complete");
        if (end < begin) throw dtl::error(DTL_ERROR_INVALID_ARGUMENT,
                                       "`stop` was reached before `start`");
        *out_ns = end - begin;
    }

    // ---- kernels ----

    void launch(void *on, const dtl_launch_t *shape, dtl_kernel_fn_t function, void *user,
                const void *const *args, const uint64_t *sizes, uint64_t count)
    {
        kernel(function, user).launch(stream_of(on), shape, args, sizes, count);
    }

    void module_compile(int32_t device, const dtl_source_t *source, dtl_text_fn_t log,
                        void *log_user, void **out)
    {
        char why[512] = "";
        card_program_t *program = nullptr;
        check_device(device, card_is_lost(device) != 0);
        if (card_fails("compile")) throw dtl::error(DTL_ERROR_BACKEND,
                                                 "the compiler failed, by DTL_BACKEND_SIM_FAULT");
        switch (card_compile(source, log, log_user, &program, why, sizeof why)) {
        case CARD_OK: *out = program; break;
        case CARD_NO_MEMORY: throw dtl::error(DTL_ERROR_OUT_OF_MEMORY, why);
        case CARD_NO_COMPILER: throw dtl::error(DTL_ERROR_UNAVAILABLE, why);
        case CARD_BAD_LANGUAGE:
            throw dtl::error(DTL_ERROR_NOT_SUPPORTED,
                          "it takes language 0, DTL_LANGUAGE_C and DTL_LANGUAGE_BINARY");
        default: throw dtl::error(DTL_ERROR_COMPILE_FAILED, why);
        }
    }

    void module_destroy(void *module)
    {
        card_program_release(static_cast<card_program_t *>(module));
    }

    void kernel_get(void *module, const char *name, const char *signature, void **out)
    {
        *out = new kernel(static_cast<card_program_t *>(module), name, signature);
    }

    void kernel_destroy(void *which) { delete static_cast<kernel *>(which); }
    void kernel_launch(void *on, void *which, const dtl_launch_t *shape, const void *const *args,
                       const uint64_t *sizes, uint64_t count)
    {
        static_cast<const kernel *>(which)->launch(stream_of(on), shape, args, sizes, count);
    }

  private:
    static void *allocate(int32_t device, uint64_t size, uint64_t alignment, dtl_enum_word_t word)
    {
        const kind &found = kind_of(word);
        void *made = nullptr;
        if (alignment < found.alignment) alignment = found.alignment;
        if (card_fails("alloc")) throw dtl::error(DTL_ERROR_OUT_OF_MEMORY,
                                               "no memory, by DTL_BACKEND_SIM_FAULT");
        if (word == DTL_MEMORY_DEVICE) {
            check_device(device, card_is_lost(device) != 0);
            made = card_alloc(device, size, alignment);
        } else if (word == DTL_MEMORY_SHARED) {
            made = card_share(size, alignment);
        } else {
            made = card_alloc(CARD_HOST, size, alignment);
        }
        if (made == nullptr) {
            throw dtl::error(DTL_ERROR_OUT_OF_MEMORY,
                          "no " + std::to_string(size) + " bytes of kind " + found.name +
                                                       " on device " + std::to_string(device));
        }
        return made;
    }

    static void release(void *ptr, dtl_enum_word_t word)
    {
        if (word == DTL_MEMORY_SHARED) card_unshare(ptr);
        else card_free(ptr);
    }

    /// The name of a copy in traces.
    static const char *direction(const void *dst, const void *src)
    {
        const int32_t to = card_device_of(dst), from = card_device_of(src);
        if (to < 0) return from < 0 ? "copy on the host" : "copy to the host";
        if (from < 0) return "copy to the device";
        return to == from ? "copy on the device" : "copy between the devices";
    }

    /// The device of the memory; without any, that of the calling thread.
    static int32_t device_of(const void *dst, const void *src)
    {
        const int32_t first = card_device_of(dst), device = first < 0 ? card_device_of(src) : first;
        return device < 0 ? current : device;
    }
};

void destroy(void *self) { delete static_cast<backend *>(self); }

void load_tables()
{
    const char *faults = std::getenv("DTL_BACKEND_SIM_FAULT");
    if (card_faults_read(faults) != 0) {
        const std::string text = "DTL_BACKEND_SIM_FAULT=\"" + std::string(faults) + "\": ";
        throw dtl::error(DTL_ERROR_INVALID_ARGUMENT, text + "expected operation:number[,...]");
    }
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    device.count = slot<&backend::count>;
    device.set = slot<&backend::set>;
    device.get = slot<&backend::get>;
    device.info = slot<&backend::info>;
    device.memory_info = slot<&backend::device_memory>;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    memory.alloc = slot<&backend::alloc>;
    memory.free = slot<&backend::free>;
    memory.kind_info = slot<&backend::kind_info>;
    memory.export_handle = slot<&backend::export_handle>;
    memory.import_handle = slot<&backend::import_handle>;
    memory.close_handle = slot<&backend::free>;
    memory.alloc_async = slot<&backend::alloc_async>;
    memory.free_async = slot<&backend::free_async>;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    transfer.copy = slot<&backend::copy>;
    transfer.copy_async = slot<&backend::copy_async>;
    transfer.copy_2d = slot<&backend::copy_2d>;
    transfer.fill = slot<&backend::fill>;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    exec.stream_create = slot<&backend::stream_create>;
    exec.stream_priorities = slot<&backend::stream_priorities>;
    exec.stream_create_with_priority = slot<&backend::stream_create_with_priority>;
    exec.stream_destroy = slot<&backend::stream_destroy>;
    exec.stream_synchronize = slot<&backend::stream_synchronize>;
    exec.stream_query = slot<&backend::stream_query>;
    exec.stream_wait_event = slot<&backend::stream_wait_event>;
    exec.stream_host_callback = slot<&backend::stream_host_callback>;
    exec.event_create = slot<&backend::event_create>;
    exec.event_destroy = slot<&backend::event_destroy>;
    exec.event_record = slot<&backend::event_record>;
    exec.event_query = slot<&backend::event_query>;
    exec.event_sync = slot<&backend::event_sync>;
    exec.event_elapsed = slot<&backend::event_elapsed>;
    exec.launch = slot<&backend::launch>;
    exec.module_compile = slot<&backend::module_compile>;
    exec.module_destroy = slot<&backend::module_destroy>;
    exec.kernel_get = slot<&backend::kernel_get>;
    exec.kernel_destroy = slot<&backend::kernel_destroy>;
    exec.kernel_launch = slot<&backend::kernel_launch>;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    table.is_available = slot<&backend::is_available>;
    table.destroy = destroy;
    table.device = &device;
    table.memory = &memory;
    table.transfer = &transfer;
    table.exec = &exec;
    table.auto_priority = INT32_MIN; // only by name
    auto self = std::make_unique<backend>();
    dtl_backend_t made;
    check(host->backend_register("sim_cpp", &table, self.get(), 0, &made), "not registered");
    static_cast<void>(self.release()); // destroy deletes it
}

/// May be called again, after the backend of the first call was destroyed.
dtl_status_t load(const dtl_host_api_t *given)
{
    host = given;
    return guarded(load_tables);
}

} // namespace
} // namespace sim

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "sim_cpp";
    plugin.version = "1.0";
    plugin.description = "the simulated accelerator, in C++";
    plugin.load = sim::load;
    *out = plugin;
    return DTL_SUCCESS;
}
