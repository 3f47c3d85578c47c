// A plugin that is a class of StepMesh's nine functions.
#include <dtl/plugin.hpp>
#include <dtl/stepmesh.hpp>

#include <atomic>
#include <new>

namespace ps = dtl::stepmesh;

namespace {

// Work is done at once, so an event is reached when it is recorded.
class HostCard : public ps::Backend {
  public:
    int SetDevice(int dev) override { return dev == 0 ? ps::BACKEND_OK : ps::BACKEND_FAILED; }
    int GetDeviceId() override { return 0; }
    ps::Device GetDevice() override { return {1, 0}; } // DLPack's number of the CPU

    void *Alloc(uint64_t size) override { return ::operator new(size, std::align_val_t{4096}, std::nothrow); }
    void Free(void *m) override { ::operator delete(m, std::align_val_t{4096}); }

    void *CreateEvent() override { return new (std::nothrow) int(0); }
    int FreeEvent(void *event) override
    {
        delete static_cast<int *>(event);
        return ps::BACKEND_OK;
    }
    int RecordEvent(void *, void *) override { return ps::BACKEND_OK; }
    int SyncEvent(void *) override { return ps::BACKEND_OK; }
};

} // namespace

DTL_PLUGIN_STEPMESH("stepmesh", nullptr, HostCard)
