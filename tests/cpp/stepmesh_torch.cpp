// dtl/stepmesh.hpp with torch included before it: GetDevice answers at::Device. torch itself is large, so what the
// header uses of it stands here, with torch's names, numbers and rules.
#include "../c/check.h"

#include <cstdint>
#include <cstring>

#define C10_FORALL_BACKEND_DEVICE_TYPES(_, extra)
namespace c10 {
enum class DeviceType : int8_t { CPU = 0, CUDA = 1, MKLDNN = 2, OPENGL = 3, OPENCL = 4, IDEEP = 5, HIP = 6, Vulkan = 10,
                                 Metal = 11, XPU = 12 };
using DeviceIndex = int8_t;
class Device {
  public:
    Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index)
    {
        CHECK(index >= -1 && (type != DeviceType::CPU || index <= 0));
    }
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

#include <dtl/stepmesh.hpp>

namespace ps = dtl::stepmesh;
static_assert(std::is_same_v<ps::Device, at::Device>);

// Answers the device that it is told to.
class Card : public ps::Backend {
  public:
    int SetDevice(int) override { return ps::BACKEND_OK; }
    int GetDeviceId() override { return 0; }
    at::Device GetDevice() override { return device; }
    void *Alloc(uint64_t) override { return nullptr; }
    void Free(void *) override {}
    void *CreateEvent() override { return nullptr; }
    int FreeEvent(void *) override { return ps::BACKEND_OK; }
    int RecordEvent(void *, void *) override { return ps::BACKEND_OK; }
    int SyncEvent(void *) override { return ps::BACKEND_OK; }

    at::Device device{at::DeviceType::CPU};
};

int main(void)
{
    const dtl::library library;
    const at::Device host = ps::Face(dtl::backend_ref("host")).GetDevice();
    CHECK(host.type() == at::DeviceType::CPU && host.index() <= 0);

    Card card;
    CHECK(ps::Backend::Register("card", &card) == ps::BACKEND_OK);
    ps::Backend &face = *ps::Backend::Get("card");
    struct {
        at::DeviceType torch;
        int32_t dlpack;
    } const known[] = {{at::DeviceType::CUDA, 2},   {at::DeviceType::OPENCL, 4}, {at::DeviceType::Vulkan, 7},
                       {at::DeviceType::Metal, 8},  {at::DeviceType::HIP, 10},   {at::DeviceType::XPU, 14}};
    const dtl::backend_ref backend("card");
    for (const auto &[torch, dlpack] : known) {
        card.device = at::Device(torch, 3);
        int32_t type = 0, id = 0;
        CHECK_OK(dtl_backend_dlpack_device(backend.get(), 0, &type, &id));
        CHECK(type == dlpack && id == 3);
        const at::Device back = face.GetDevice();
        CHECK(back.type() == torch && back.index() == 3);
    }
    card.device = at::Device(at::DeviceType::CPU); // no index
    CHECK(face.GetDevice().type() == at::DeviceType::CPU);

    // No number of DLPack's, or no backend: an exception, as at::Device has no value for it.
    card.device = at::Device(at::DeviceType::IDEEP, 0);
    dtl_status_t status = DTL_SUCCESS;
    try {
        static_cast<void>(face.GetDevice());
    } catch (const dtl::error &failure) {
        status = failure.status();
        CHECK(std::strstr(failure.what(), "type 5") != nullptr);
    }
    CHECK(status == DTL_ERROR_NOT_SUPPORTED);
    return 0;
}
