// A class that derives from StepMesh's Backend as a backend of the library: the slots of the tables, filled with its
// functions. Part of dtl/stepmesh.hpp.
#ifndef DTL_STEPMESH_SLOTS_HPP
#define DTL_STEPMESH_SLOTS_HPP

#include "stepmesh_backend.hpp"
#include "stepmesh_events.hpp"

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace dtl::stepmesh {
inline namespace DTL_STEPMESH_SPACE {

namespace detail {

using dtl::detail::slot;
using dtl::detail::slot_failure;

/// A registered class: `self` of the slots.
class registered_class {
  public:
    explicit registered_class(Backend &of) noexcept : backend(of) {}

    /// Creates a handle for the library: the address of a device number. All streams of a device are its default
    /// stream, because StepMesh has no others. Any other pointer is a stream of the class.
    void *make_stream(int device)
    {
        auto made = std::make_unique<int>(device);
        const std::lock_guard<std::mutex> guard(lock_);
        return streams_.insert(std::move(made)).first->get();
    }

    void end_stream(void *stream)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        streams_.erase(streams_.find(stream));
    }

    /// The device whose default stream that is, or -1.
    int device_of(const void *stream)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = streams_.find(stream);
        return found == streams_.end() ? -1 : **found;
    }

    /// Allocates aligned memory. If the result of Alloc is not aligned, a part of a larger allocation is used.
    void *allocate(uint64_t size, uint64_t alignment)
    {
        void *const memory = alloc(size);
        const auto beyond = reinterpret_cast<std::uintptr_t>(memory) % alignment;
        if (beyond == 0) {
            return memory;
        }
        backend.Free(memory);
        if (size > UINT64_MAX - alignment) {
            throw error(DTL_ERROR_OUT_OF_MEMORY, "size and alignment together exceed 64 bits");
        }
        auto *const larger = static_cast<char *>(alloc(size + alignment));
        char *const aligned = larger + (alignment - reinterpret_cast<std::uintptr_t>(larger) % alignment);
        try {
            const std::lock_guard<std::mutex> guard(lock_);
            starts_.emplace(aligned, larger);
        } catch (...) {
            backend.Free(larger);
            throw;
        }
        return aligned;
    }

    /// Returns the result of Alloc for memory of `allocate` that is freed, and forgets it.
    void *start_of(void *memory)
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = starts_.find(memory);
        if (found == starts_.end()) {
            return memory;
        }
        void *const start = found->second;
        starts_.erase(found);
        return start;
    }

    Backend &backend;
    blocking_threads threads; // if the class has no QueryEvent

  private:
    void *alloc(uint64_t size)
    {
        void *const memory = backend.Alloc(size);
        if (memory == nullptr) {
            throw error(DTL_ERROR_OUT_OF_MEMORY, "Alloc(" + std::to_string(size) + ") returned nullptr");
        }
        return memory;
    }

    struct by_address {
        using is_transparent = void;
        static std::uintptr_t of(const void *address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }
        static std::uintptr_t of(const std::unique_ptr<int> &stream) noexcept { return of(stream.get()); }
        template <class A, class B> bool operator()(const A &a, const B &b) const noexcept { return of(a) < of(b); }
    };

    std::mutex lock_;
    std::set<std::unique_ptr<int>, by_address> streams_;
    std::map<void *, void *> starts_; // of aligned memory: where Alloc's begins
};

inline constexpr int most_devices = 1024;

/// Text of a function that did not answer BACKEND_OK.
inline dtl_status_t outcome(int answer, const char *function)
{
    if (answer == BACKEND_OK) {
        return DTL_SUCCESS;
    }
    const std::string text = std::string(function) + " answered " + std::to_string(answer);
    return slot_failure(DTL_ERROR_BACKEND, text.c_str());
}

/// Another device is the calling thread's current one as long as this lives.
class on_device {
  public:
    on_device(Backend &backend, int device) : backend_(backend), before_(backend.GetDeviceId())
    {
        if (before_ == device) {
            return;
        }
        if (backend.SetDevice(device) != BACKEND_OK) {
            throw error(DTL_ERROR_BACKEND, "SetDevice(" + std::to_string(device) + ") failed");
        }
        back_ = before_ >= 0; // below 0: none was set, and none can be unset
    }
    on_device(const on_device &) = delete;
    on_device &operator=(const on_device &) = delete;
    ~on_device()
    {
        if (back_) {
            try {
                static_cast<void>(backend_.SetDevice(before_));
            } catch (...) {
                // It was the current one a moment ago, and there is no call that could report a failure.
            }
        }
    }

  private:
    Backend &backend_;
    int before_;
    bool back_ = false;
};

/// The slots of a registered class.
struct slots {
    static registered_class &whole(void *self) noexcept { return *static_cast<registered_class *>(self); }
    static Backend &of(void *self) noexcept { return whole(self).backend; }

    static void destroy(void *self) noexcept { delete &whole(self); }

    static dtl_status_t count(void *self, int32_t *out_count) noexcept
    {
        return slot([&] {
            const int found = of(self).DeviceCount();
            if (found < 0 || found > most_devices) {
                const std::string text = "DeviceCount answered " + std::to_string(found) + ", not 0 to 1024";
                return slot_failure(DTL_ERROR_BACKEND, text.c_str());
            }
            *out_count = found;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t set(void *self, int32_t device) noexcept
    {
        return slot([&] { return outcome(of(self).SetDevice(device), "SetDevice"); });
    }

    static dtl_status_t get(void *self, int32_t *out_device) noexcept
    {
        return slot([&] {
            const int device = of(self).GetDeviceId();
            *out_device = device < 0 ? 0 : device;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t dlpack(void *self, int32_t device, int32_t *out_type, int32_t *out_id) noexcept
    {
        return slot([&] {
            const on_device scope(of(self), device);
            const DLPackDevice found = to_dlpack(of(self).GetDevice());
            if (found.device_type <= 0) {
                return slot_failure(DTL_ERROR_NOT_SUPPORTED, "GetDevice answered no device of DLPack's");
            }
            *out_type = found.device_type;
            *out_id = found.device_id;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t unknown_kind() noexcept
    {
        return slot_failure(DTL_ERROR_NOT_SUPPORTED, "its Alloc makes DTL_MEMORY_DEVICE only: use that kind");
    }

    static dtl_status_t alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                              void **out_ptr) noexcept
    {
        return slot([&] {
            if (kind != DTL_MEMORY_DEVICE) {
                return unknown_kind();
            }
            *out_ptr = whole(self).allocate(size_bytes, alignment);
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t free(void *self, void *ptr, uint64_t, uint64_t, dtl_enum_word_t) noexcept
    {
        return slot([&] { return of(self).Free(whole(self).start_of(ptr)), DTL_SUCCESS; });
    }

    /// Whether the host can access its memory.
    static bool is_on_host(Backend &backend)
    {
        const int32_t type = to_dlpack(backend.GetDevice()).device_type;
        return type == 1 || type == 3 || type == 11 || type == 13; // CPU, pinned twice, managed
    }

    static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t, const void *src, dtl_enum_word_t,
                             uint64_t size_bytes) noexcept
    {
        return slot([&] {
            const int answer = of(self).Copy(dst, src, size_bytes);
            if (answer != not_written) {
                return outcome(answer, "Copy");
            }
            if (!is_on_host(of(self))) {
                return slot_failure(DTL_ERROR_NOT_SUPPORTED,
                                    "the host cannot access its memory, and StepMesh has no copies: write "
                                    "int Copy(void *dst, const void *src, uint64_t size)");
            }
            std::memmove(dst, src, size_bytes);
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info) noexcept
    {
        return slot([&] {
            if (kind != DTL_MEMORY_DEVICE) {
                return unknown_kind();
            }
            out_info->properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
            if (is_on_host(of(self))) {
                out_info->properties |= DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
            }
            out_info->alignment = 1; // nothing is promised
            std::char_traits<char>::copy(out_info->name, "StepMesh Alloc", sizeof "StepMesh Alloc");
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t stream_create(void *self, int32_t device, uint64_t, void **out_stream) noexcept
    {
        return slot([&] { return *out_stream = whole(self).make_stream(device), DTL_SUCCESS; });
    }

    static dtl_status_t stream_destroy(void *self, void *stream) noexcept
    {
        return slot([&] { return whole(self).end_stream(stream), DTL_SUCCESS; });
    }

    static int record(registered_class &self, void *event, void *stream)
    {
        const int device = self.device_of(stream);
        if (device < 0) {
            return self.backend.RecordEvent(event, stream);
        }
        const on_device scope(self.backend, device);
        return self.backend.RecordEvent(event, nullptr);
    }

    static dtl_status_t stream_synchronize(void *self, void *stream) noexcept
    {
        return slot([&] {
            void *event = of(self).CreateEvent();
            if (event == nullptr) {
                return slot_failure(DTL_ERROR_BACKEND, "CreateEvent returned nullptr");
            }
            const dtl_status_t status = slot([&] {
                const dtl_status_t recorded = outcome(record(whole(self), event, stream), "RecordEvent");
                return recorded != DTL_SUCCESS ? recorded : outcome(of(self).SyncEvent(event), "SyncEvent");
            });
            const dtl_status_t freed = status == DTL_SUCCESS
                                           ? outcome(of(self).FreeEvent(event), "FreeEvent")
                                           : slot([&] { return of(self).FreeEvent(event), DTL_SUCCESS; });
            return status != DTL_SUCCESS ? status : freed;
        });
    }

    static dtl_status_t event_create(void *self, uint64_t, void **out_event) noexcept
    {
        return slot([&] {
            void *const event = of(self).CreateEvent();
            if (event == nullptr) {
                return slot_failure(DTL_ERROR_BACKEND, "CreateEvent returned nullptr");
            }
            try {
                *out_event = new tracked_event(event);
            } catch (...) {
                static_cast<void>(of(self).FreeEvent(event));
                throw;
            }
            return DTL_SUCCESS;
        });
    }

    static tracked_event &tracked_of(void *event) noexcept { return *static_cast<tracked_event *>(event); }

    static dtl_status_t event_destroy(void *self, void *event) noexcept
    {
        return slot([&] { return outcome(tracked_of(event).destroy(of(self)), "FreeEvent"); });
    }

    static dtl_status_t event_record(void *self, void *event, void *stream) noexcept
    {
        return slot([&] {
            const dtl_status_t status = outcome(record(whole(self), tracked_of(event).event(), stream), "RecordEvent");
            if (status == DTL_SUCCESS) {
                tracked_of(event).recorded();
            }
            return status;
        });
    }

    static dtl_status_t event_query(void *self, void *event, int32_t *out_done) noexcept
    {
        return slot([&] {
            bool done = true;
            if (tracked_of(event).records() > 0) {
                const int answer = of(self).QueryEvent(tracked_of(event).event(), &done);
                if (answer == not_written) {
                    done = tracked_of(event).is_reached(of(self), whole(self).threads);
                } else if (answer != BACKEND_OK) {
                    return outcome(answer, "QueryEvent");
                }
            }
            *out_done = done ? 1 : 0;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t event_sync(void *self, void *event) noexcept
    {
        return slot([&] {
            const uint64_t record = tracked_of(event).records();
            if (record == 0) {
                return DTL_SUCCESS;
            }
            const dtl_status_t status = outcome(of(self).SyncEvent(tracked_of(event).event()), "SyncEvent");
            if (status == DTL_SUCCESS) {
                tracked_of(event).reached(record);
            }
            return status;
        });
    }

    /// Calls `registers` with the table of these slots.
    template <class F> static dtl_status_t with_table(F registers)
    {
        dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
        dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
        dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
        dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
        dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
        device.count = count, device.set = set, device.get = get, device.dlpack = dlpack;
        memory.alloc = alloc, memory.free = free, memory.kind_info = kind_info;
        transfer.copy = copy;
        exec.stream_create = stream_create, exec.stream_destroy = stream_destroy;
        exec.stream_synchronize = stream_synchronize;
        exec.event_create = event_create, exec.event_destroy = event_destroy, exec.event_record = event_record;
        exec.event_query = event_query, exec.event_sync = event_sync;
        table.device = &device, table.memory = &memory, table.transfer = &transfer, table.exec = &exec;
        table.destroy = destroy;
        return registers(table);
    }
};

#ifdef DTL_IN_PLUGIN
/// Registers a class in the `load` of a plugin. The object is constructed in the first load and lives until the process
/// ends.
template <class T> dtl_status_t load_class(const dtl_host_api_t *host, const char *name) noexcept
{
    return slot([&] {
        static T made;
        auto self = std::make_unique<registered_class>(made);
        const dtl_status_t status = slots::with_table([&](dtl_backend_vtable_t &table) {
#ifdef DTL_BACKEND_PRIORITY // of dtl_add_backend
            table.auto_priority = DTL_BACKEND_PRIORITY;
#endif
            dtl_backend_t backend;
            return host->backend_register(name, &table, self.get(), 0, &backend);
        });
        if (status == DTL_SUCCESS) {
            static_cast<void>(self.release()); // until `destroy`
        }
        return status;
    });
}
#endif

} // namespace detail

inline int Backend::Register(const std::string &name, Backend *backend)
{
    const auto enters = [&name](const dtl_backend_vtable_t *table, void *self) {
        dtl_backend_t registered;
        return dtl_backend_register(name.c_str(), table, self, 0, &registered);
    };
    const dtl_status_t status = detail::slot([&] {
        if (backend == nullptr) {
            return enters(nullptr, nullptr); // the library's text says so
        }
        auto self = std::make_unique<detail::registered_class>(*backend);
        const dtl_status_t entered =
            detail::slots::with_table([&](const dtl_backend_vtable_t &table) { return enters(&table, self.get()); });
        if (entered == DTL_SUCCESS) {
            static_cast<void>(self.release()); // until `destroy`
        }
        return entered;
    });
    return status == DTL_SUCCESS ? BACKEND_OK : BACKEND_FAILED;
}

} // namespace DTL_STEPMESH_SPACE
} // namespace dtl::stepmesh

#ifdef DTL_IN_PLUGIN
/// Defines the entry of a plugin whose backend is a class for StepMesh: DTL_PLUGIN_STEPMESH(name, version, class).
/// `name` is the name of the plugin and of the backend; `version` is a text or nullptr. The object is
/// default-constructed when the plugin is loaded first, so its constructor must be quick and must not access hardware.
#define DTL_PLUGIN_STEPMESH(name, version, class_name)                                                                 \
    DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)                  \
    {                                                                                                                  \
        return dtl::detail::describe_plugin(host, out, name, version, [](const dtl_host_api_t *by) -> dtl_status_t {   \
            return dtl::stepmesh::detail::load_class<class_name>(by, name);                                            \
        });                                                                                                            \
    }
#endif

#endif
