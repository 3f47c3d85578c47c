// StepMesh's abstract class, and its devices in torch's and DLPack's numbers. Part of dtl/stepmesh.hpp.
#ifndef DTL_STEPMESH_BACKEND_HPP
#define DTL_STEPMESH_BACKEND_HPP

#include "error.hpp"

#include <string>

// c10/core/DeviceType.h defines the second one, so any header of torch that knows at::Device will do.
#if defined(TORCH_VERSION) || defined(C10_FORALL_BACKEND_DEVICE_TYPES)
#define DTL_STEPMESH_TORCH 1
#endif

// What the classes look like depends on torch, so their names do, too: files of both sorts can be linked together.
#ifdef DTL_STEPMESH_TORCH
#define DTL_STEPMESH_SPACE with_torch
#else
#define DTL_STEPMESH_SPACE without_torch
#endif

namespace dtl::stepmesh {
inline namespace DTL_STEPMESH_SPACE {

enum { BACKEND_OK = 0, BACKEND_FAILED = -1 };

namespace detail {
/// Returned by an optional function that the class does not override.
inline constexpr int not_written = -0x7fffffff;
} // namespace detail

/// A device in DLPack's numbers (its DLDevice): 1 = CPU, 2 = CUDA …
struct DLPackDevice {
    int32_t device_type; ///< DLPack's DLDeviceType; 0 = it has none, or there was a failure.
    int32_t device_id;
};

#ifdef DTL_STEPMESH_TORCH
/// What GetDevice answers.
using Device = at::Device;
#else
/// What GetDevice answers; at::Device if torch is included before this header.
using Device = DLPackDevice;
#endif

/// StepMesh's abstract class. All functions: any thread. Derive from it to write a backend: the tables call its
/// functions from any thread, with no locks held; they may block, and may throw (the text reaches the caller).
class Backend {
  public:
    Backend(const Backend &) = delete;
    Backend &operator=(const Backend &) = delete;
    virtual ~Backend() = default;

    /// Makes a device the calling thread's current one. BACKEND_OK or BACKEND_FAILED.
    virtual int SetDevice(int dev) = 0;

    /// The calling thread's current device; below 0 = none was set (or, of Face, a failure).
    virtual int GetDeviceId() = 0;

    /// The calling thread's current device, as other libraries know it.
    virtual Device GetDevice() = 0;

    /// Memory on the current device, `size` bytes; nullptr = failure.
    virtual void *Alloc(uint64_t size) = 0;

    /// Frees what Alloc gave. nullptr: nothing happens.
    virtual void Free(void *m) = 0;

    /// An event; nullptr = failure.
    virtual void *CreateEvent() = 0;

    /// BACKEND_OK or BACKEND_FAILED.
    virtual int FreeEvent(void *event) = 0;

    /// Marks the stream's present end. A null stream is the current device's default stream. BACKEND_OK or
    /// BACKEND_FAILED.
    virtual int RecordEvent(void *event, void *stream) = 0;

    /// Waits until the work before the record is done. BACKEND_OK or BACKEND_FAILED.
    virtual int SyncEvent(void *event) = 0;

    // What StepMesh lacks and a dtl backend has; write them or not.

    /// Devices are 0 … DeviceCount() - 1; at most 1024.
    virtual int DeviceCount() { return 1; }

    /// Reports whether the work before the record is done, without waiting. Optional. Without it a thread waits in
    /// SyncEvent for each event that is queried (also by dtl_comm_isend_on and waits with a time limit): see Register.
    virtual int QueryEvent(void *, bool *) { return detail::not_written; }

    /// Copies `size` bytes from or to memory of Alloc; the other side is memory of the host or of Alloc. Optional. The
    /// copy is complete when it returns. Without it the library copies only memory that the host can access, according
    /// to GetDevice. BACKEND_OK or BACKEND_FAILED.
    virtual int Copy(void *dst, const void *src, uint64_t size)
    {
        return static_cast<void>(dst), static_cast<void>(src), static_cast<void>(size), detail::not_written;
    }

    /// The backend that DTL_BACKEND, STEPMESH_BACKEND or "auto" leads to, as dtl_backend_get(NULL, …); nullptr = none.
    /// Lives as long as the process.
    static Backend *Get() { return Get(nullptr); }

    /// The one of a name ("host", "cuda", one that was registered …).
    static Backend *Get(const char *name);
    static Backend *Get(const std::string &name) { return Get(name.c_str()); }

    /// Makes a backend of this class a dtl backend. It stays the caller's and must live until dtl_backend_unregister or
    /// the last dtl_finalize. BACKEND_FAILED: the name is taken or not valid.
    ///
    /// If the class has no QueryEvent, the first query of a recorded event passes it to a thread of the backend that
    /// waits in SyncEvent; later queries return whether SyncEvent has returned. There is one thread for each event
    /// that is waited for at the same time. Threads are reused until the backend is unregistered.
    static int Register(const std::string &name, Backend *backend);

  protected:
    Backend() = default;
};

namespace detail {

#ifdef DTL_STEPMESH_TORCH

// The numbers are those of dlpack.h. torch for ROCm calls its devices CUDA.
#ifdef USE_ROCM
inline constexpr c10::DeviceType rocm = c10::DeviceType::CUDA;
#else
inline constexpr c10::DeviceType rocm = c10::DeviceType::HIP;
#endif
struct device_pair {
    int32_t dlpack;
    c10::DeviceType torch;
};
inline constexpr device_pair device_pairs[] = {
    {1, c10::DeviceType::CPU},    {2, c10::DeviceType::CUDA},  {4, c10::DeviceType::OPENCL},
    {7, c10::DeviceType::Vulkan}, {8, c10::DeviceType::Metal}, {10, rocm},
    {14, c10::DeviceType::XPU},   {3, c10::DeviceType::CPU},   {11, c10::DeviceType::CPU},
    {13, c10::DeviceType::CUDA},
};

inline Device to_device(DLPackDevice device)
{
    for (const device_pair &pair : device_pairs) {
        if (pair.dlpack == device.device_type) {
            return pair.torch == c10::DeviceType::CPU
                       ? Device(pair.torch)
                       : Device(pair.torch, static_cast<c10::DeviceIndex>(device.device_id));
        }
    }
    throw error(DTL_ERROR_NOT_SUPPORTED,
                "torch has no device of DLPack's type " + std::to_string(device.device_type));
}

inline DLPackDevice to_dlpack(const Device &device)
{
    for (const device_pair &pair : device_pairs) {
#ifdef USE_ROCM
        if (pair.dlpack == 2) {
            continue;
        }
#endif
        if (pair.torch == device.type()) {
            return {pair.dlpack, device.index() < 0 ? 0 : device.index()};
        }
    }
    throw error(DTL_ERROR_NOT_SUPPORTED, "DLPack has no number for torch's device of type " +
                                             std::to_string(static_cast<int>(device.type())));
}

#else

inline Device to_device(DLPackDevice device) { return device; }
inline DLPackDevice to_dlpack(Device device) { return device; }

#endif

} // namespace detail

} // namespace DTL_STEPMESH_SPACE
} // namespace dtl::stepmesh

#endif
