// StepMesh's accelerator interface over libdtl: its eleven names and its conventions. Not part of dtl.hpp: include it
// by itself, after torch if the program uses that.
//
// Both directions:
//  - Backend::Get() is the backend that the environment names (or "auto"), as StepMesh's callers know it. Face is the
//    same over any dtl backend.
//  - A class that derives from Backend, written for StepMesh, becomes a dtl backend by Backend::Register: its functions
//    fill the tables of function pointers. What Get() gives then leads through the library to that class.
//
// `namespace ps = dtl::stepmesh;` lets code for StepMesh compile as it is. What is different on purpose:
//  - Register answers BACKEND_FAILED for a name that is taken; it does not replace it silently.
//  - The current device belongs to the calling thread.
//  - Get() answers nullptr where there is no such backend, and asks anew each time (after a dtl_finalize, say).
//  - Events that are freed twice, or that never were any, are BACKEND_FAILED. dtl_last_error() has the reason of every failure.
#ifndef DTL_STEPMESH_HPP
#define DTL_STEPMESH_HPP

#include "exec.hpp"
#include "stepmesh_slots.hpp"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace dtl::stepmesh {
inline namespace DTL_STEPMESH_SPACE {

/// StepMesh's functions over any dtl backend: `dtl::stepmesh::Face host(dtl::backend_ref("host"));`. It owns nothing,
/// and calls after the backend's end answer BACKEND_FAILED.
class Face final : public Backend {
  public:
    explicit Face(backend_ref backend) noexcept : handle_(backend.get().id) {}

    dtl_backend_t get() const noexcept { return {handle_.load(std::memory_order_relaxed)}; }

    int SetDevice(int dev) override { return answer(dtl_backend_set_device(get(), dev)); }

    /// BACKEND_FAILED, which is below 0, after a failure.
    int GetDeviceId() override
    {
        int32_t device = BACKEND_FAILED;
        return dtl_backend_get_device(get(), &device) == DTL_SUCCESS ? device : BACKEND_FAILED;
    }

    /// {0, -1} if the device has no number of DLPack's or there was a failure; as at::Device it throws dtl::error then.
    Device GetDevice() override
    {
        int32_t device = 0;
        DLPackDevice found{0, BACKEND_FAILED};
        dtl_status_t status = dtl_backend_get_device(get(), &device);
        if (status == DTL_SUCCESS) {
            status = dtl_backend_dlpack_device(get(), device, &found.device_type, &found.device_id);
        }
#ifdef DTL_STEPMESH_TORCH
        check(status);
#else
        static_cast<void>(status); // *found is written on success only
#endif
        return detail::to_device(found);
    }

    /// Of kind DTL_MEMORY_DEVICE; dtl_mem_query and dtl_mem_copy know it.
    void *Alloc(uint64_t size) override
    {
        void *memory = nullptr;
        return dtl_mem_alloc(get(), DTL_MEMORY_DEVICE, size, 0, &memory) == DTL_SUCCESS ? memory : nullptr;
    }

    void Free(void *m) override { DTL_IGNORE(dtl_mem_free(get(), m)); }

    /// A dtl_event_t in a pointer: EventOf gives it back.
    void *CreateEvent() override
    {
        dtl_event_t event;
        return dtl_event_create(get(), 0, &event) == DTL_SUCCESS ? pointer_of(event.id) : nullptr;
    }

    int FreeEvent(void *event) override
    {
        return event == nullptr ? BACKEND_FAILED : answer(dtl_event_destroy(EventOf(event)));
    }

    /// `stream`: the backend's own (a CUstream, say). Where streams are the library's (host), what StreamPointer gives.
    int RecordEvent(void *event, void *stream) override
    {
        if (stream == nullptr) {
            int32_t device = 0;
            dtl_stream_t current{};
            dtl_status_t status = dtl_backend_get_device(get(), &device);
            if (status == DTL_SUCCESS) {
                status = dtl_stream_default(get(), device, &current);
            }
            return answer(status == DTL_SUCCESS ? dtl_event_record(EventOf(event), current) : status);
        }
        dtl_stream_t wrapped{};
        const dtl_status_t status = dtl_stream_wrap(get(), stream, &wrapped);
        if (status == DTL_ERROR_NOT_SUPPORTED) {
            return answer(dtl_event_record(EventOf(event), dtl_stream_t{id_of(stream)}));
        }
        if (status != DTL_SUCCESS) {
            return BACKEND_FAILED;
        }
        const dtl_status_t recorded = dtl_event_record(EventOf(event), wrapped);
        const dtl_status_t ended = dtl_stream_destroy(wrapped); // the handle; the stream is the caller's
        return answer(recorded != DTL_SUCCESS ? recorded : ended);
    }

    int SyncEvent(void *event) override { return answer(dtl_event_wait(EventOf(event), DTL_TIMEOUT_INFINITE)); }

    int DeviceCount() override
    {
        int32_t count = 0;
        return dtl_backend_device_count(get(), &count) == DTL_SUCCESS ? count : BACKEND_FAILED;
    }

    int QueryEvent(void *event, bool *done) override
    {
        int32_t is_done = 0;
        const dtl_status_t status = dtl_event_query(EventOf(event), &is_done);
        if (status == DTL_SUCCESS) {
            *done = is_done != 0;
        }
        return answer(status);
    }

    /// Copies between any memory that the library or the host can access.
    int Copy(void *dst, const void *src, uint64_t size) override { return answer(dtl_mem_copy(dst, src, size)); }

    /// The event of CreateEvent, for dtl.h.
    static dtl_event_t EventOf(void *event) noexcept { return {id_of(event)}; }

    /// A stream of dtl.h for RecordEvent: the backend's own pointer, or where streams are the library's a pointer that
    /// only RecordEvent understands.
    static void *StreamPointer(stream_ref stream)
    {
        void *native = nullptr;
        const dtl_status_t status = dtl_stream_native(stream.get(), &native);
        if (status == DTL_ERROR_NOT_SUPPORTED) {
            return pointer_of(stream.get().id);
        }
        check(status);
        return native;
    }

  private:
    friend class Backend;

    static_assert(sizeof(void *) >= sizeof(uint64_t), "handles travel as pointers");
    static uint64_t id_of(void *pointer) noexcept { return reinterpret_cast<uintptr_t>(pointer); }
    static void *pointer_of(uint64_t id) noexcept { return reinterpret_cast<void *>(static_cast<uintptr_t>(id)); }
    static int answer(dtl_status_t status) noexcept { return status == DTL_SUCCESS ? BACKEND_OK : BACKEND_FAILED; }

    std::atomic<uint64_t> handle_;
};

inline Backend *Backend::Get(const char *name)
{
    dtl_backend_t backend;
    if (dtl_backend_get(name, &backend) != DTL_SUCCESS) {
        return nullptr;
    }
    // The last one asked for in this thread, so that a program may ask before each call.
    thread_local std::pair<uint64_t, Face *> last{0, nullptr};
    if (last.first == backend.id && last.second->get().id == backend.id) {
        return last.second;
    }
    try {
        // One face for each name, never freed: pointers stay good, also in what runs after main, and a backend that is
        // registered anew has the face of the one before.
        static auto &faces = *new std::pair<std::mutex, std::map<std::string, Face>>;
        const char *const known = dtl_backend_name(backend);
        if (known == nullptr) {
            return nullptr;
        }
        const std::lock_guard<std::mutex> guard(faces.first);
        Face &face = faces.second.try_emplace(known, backend).first->second;
        face.handle_.store(backend.id, std::memory_order_relaxed);
        last = {backend.id, &face};
        return &face;
    } catch (...) {
        return nullptr; // no memory
    }
}

} // namespace DTL_STEPMESH_SPACE
} // namespace dtl::stepmesh

#endif
