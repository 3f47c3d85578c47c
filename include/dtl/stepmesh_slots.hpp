// A class that derives from StepMesh's Backend as a backend of the library: the slots of the tables, filled with its
// functions. Part of dtl/stepmesh.hpp.
#ifndef DTL_STEPMESH_SLOTS_HPP
#define DTL_STEPMESH_SLOTS_HPP

#include "stepmesh_backend.hpp"

#include <atomic>
#include <memory>
#include <string>

namespace dtl::stepmesh {
inline namespace DTL_STEPMESH_SPACE {

namespace detail {

using dtl::detail::slot;
using dtl::detail::slot_failure;

/// What is behind a dtl event of a registered class: that class's event.
struct event_cell {
    void *event;
    std::atomic<bool> recorded;
};

/// Streams that the library makes of such a backend: all of a device's are its default stream, as StepMesh knows no
/// others. Addresses in here stand for them; any other pointer is a stream of the class's own.
inline constexpr int most_devices = 1024;
inline char default_streams[most_devices];

/// The device whose default stream that is, or -1.
inline int device_of_stream(const void *stream) noexcept
{
    const auto first = reinterpret_cast<uintptr_t>(&default_streams[0]);
    const auto address = reinterpret_cast<uintptr_t>(stream);
    return address >= first && address - first < most_devices ? static_cast<int>(address - first) : -1;
}

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
                // It was the current one a moment ago; nobody is left to be told.
            }
        }
    }

  private:
    Backend &backend_;
    int before_;
    bool back_ = false;
};

/// The slots of a registered class; `self` is its Backend.
struct slots {
    static Backend &of(void *self) noexcept { return *static_cast<Backend *>(self); }

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
            void *memory = of(self).Alloc(size_bytes);
            if (memory == nullptr) {
                const std::string text = "Alloc(" + std::to_string(size_bytes) + ") answered nullptr";
                return slot_failure(DTL_ERROR_OUT_OF_MEMORY, text.c_str());
            }
            if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
                of(self).Free(memory);
                const std::string text = "Alloc gave memory that is not aligned to " + std::to_string(alignment) +
                                         " bytes, and cannot be told to: ask for less";
                return slot_failure(DTL_ERROR_NOT_SUPPORTED, text.c_str());
            }
            *out_ptr = memory;
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t free(void *self, void *ptr, uint64_t, uint64_t, dtl_enum_word_t) noexcept
    {
        return slot([&] {
            of(self).Free(ptr);
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info) noexcept
    {
        return slot([&] {
            if (kind != DTL_MEMORY_DEVICE) {
                return unknown_kind();
            }
            const int32_t type = to_dlpack(of(self).GetDevice()).device_type;
            const bool host = type == 1 || type == 3 || type == 11 || type == 13; // CPU, pinned twice, managed
            out_info->properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE;
            if (host) {
                out_info->properties |= DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_UNIFIED;
            }
            out_info->alignment = 1; // nothing is promised
            std::char_traits<char>::copy(out_info->name, "StepMesh Alloc", sizeof "StepMesh Alloc");
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t stream_create(void *, int32_t device, uint64_t, void **out_stream) noexcept
    {
        *out_stream = &default_streams[device]; // checked against the count
        return DTL_SUCCESS;
    }

    static dtl_status_t stream_destroy(void *, void *) noexcept { return DTL_SUCCESS; }

    static int record(Backend &backend, void *event, void *stream)
    {
        const int device = device_of_stream(stream);
        if (device < 0) {
            return backend.RecordEvent(event, stream);
        }
        const on_device scope(backend, device);
        return backend.RecordEvent(event, nullptr);
    }

    static dtl_status_t stream_synchronize(void *self, void *stream) noexcept
    {
        return slot([&] {
            void *event = of(self).CreateEvent();
            if (event == nullptr) {
                return slot_failure(DTL_ERROR_BACKEND, "CreateEvent answered nullptr");
            }
            const dtl_status_t status = slot([&] {
                const dtl_status_t recorded = outcome(record(of(self), event, stream), "RecordEvent");
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
            auto cell = std::make_unique<event_cell>();
            cell->event = of(self).CreateEvent();
            if (cell->event == nullptr) {
                return slot_failure(DTL_ERROR_BACKEND, "CreateEvent answered nullptr");
            }
            *out_event = cell.release();
            return DTL_SUCCESS;
        });
    }

    static dtl_status_t event_destroy(void *self, void *event) noexcept
    {
        return slot([&] {
            const std::unique_ptr<event_cell> cell(static_cast<event_cell *>(event));
            return outcome(of(self).FreeEvent(cell->event), "FreeEvent");
        });
    }

    static dtl_status_t event_record(void *self, void *event, void *stream) noexcept
    {
        return slot([&] {
            auto &cell = *static_cast<event_cell *>(event);
            const dtl_status_t status = outcome(record(of(self), cell.event, stream), "RecordEvent");
            if (status == DTL_SUCCESS) {
                cell.recorded.store(true, std::memory_order_release);
            }
            return status;
        });
    }

    /// An event that was never recorded is done, whatever the class would say.
    static bool is_recorded(void *event) noexcept
    {
        return static_cast<event_cell *>(event)->recorded.load(std::memory_order_acquire);
    }

    static dtl_status_t event_query(void *self, void *event, int32_t *out_done) noexcept
    {
        return slot([&] {
            bool done = true;
            if (is_recorded(event)) {
                const int answer = of(self).QueryEvent(static_cast<event_cell *>(event)->event, &done);
                if (answer != BACKEND_OK) {
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
            if (!is_recorded(event)) {
                return DTL_SUCCESS;
            }
            return outcome(of(self).SyncEvent(static_cast<event_cell *>(event)->event), "SyncEvent");
        });
    }
};

} // namespace detail

inline int Backend::Register(const std::string &name, Backend *backend)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    device.count = detail::slots::count;
    device.set = detail::slots::set;
    device.get = detail::slots::get;
    device.dlpack = detail::slots::dlpack;
    memory.alloc = detail::slots::alloc;
    memory.free = detail::slots::free;
    memory.kind_info = detail::slots::kind_info;
    exec.stream_create = detail::slots::stream_create;
    exec.stream_destroy = detail::slots::stream_destroy;
    exec.stream_synchronize = detail::slots::stream_synchronize;
    exec.event_create = detail::slots::event_create;
    exec.event_destroy = detail::slots::event_destroy;
    exec.event_record = detail::slots::event_record;
    exec.event_query = detail::slots::event_query;
    exec.event_sync = detail::slots::event_sync;
    table.device = &device;
    table.memory = &memory;
    table.exec = &exec;
    dtl_backend_t registered;
    // No table for no backend: the library says so in its text.
    const dtl_status_t status =
        dtl_backend_register(name.c_str(), backend != nullptr ? &table : nullptr, backend, 0, &registered);
    return status == DTL_SUCCESS ? BACKEND_OK : BACKEND_FAILED;
}

} // namespace DTL_STEPMESH_SPACE
} // namespace dtl::stepmesh

#endif
