// A class of StepMesh's functions, for the block of docs/how-to/port-from-stepmesh.md.
#include <dtl/plugin.hpp>
#include <dtl/stepmesh.hpp>

class MyCard : public dtl::stepmesh::Backend {
  public:
    int SetDevice(int dev) override;
    int GetDeviceId() override;
    dtl::stepmesh::Device GetDevice() override;
    void *Alloc(uint64_t size) override;
    void Free(void *m) override;
    void *CreateEvent() override;
    int FreeEvent(void *event) override;
    int RecordEvent(void *event, void *stream) override;
    int SyncEvent(void *event) override;
};

#include "block"
