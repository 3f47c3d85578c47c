// Declarations of torch that dtl/stepmesh.hpp uses, with torch's names and numbers.
#pragma once
#include <cstdint>

#define C10_FORALL_BACKEND_DEVICE_TYPES(_, extra)
namespace c10 {
enum class DeviceType : int8_t { CPU = 0, CUDA = 1, OPENCL = 4, HIP = 6, Vulkan = 10, Metal = 11, XPU = 12 };
using DeviceIndex = int8_t;
class Device {
  public:
    Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
    DeviceType type() const noexcept { return type_; }
    DeviceIndex index() const noexcept { return index_; }

  private:
    DeviceType type_;
    DeviceIndex index_;
};
} // namespace c10
namespace at {
using namespace c10;
}
