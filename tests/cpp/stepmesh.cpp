// dtl/stepmesh.hpp: StepMesh's functions over backends of the library, and a class for StepMesh as a backend.
#include "../c/check.h"

#include <dtl.hpp>
#include <dtl/stepmesh.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ps = dtl::stepmesh; // as code for StepMesh names it
using ps::BACKEND_FAILED;
using ps::BACKEND_OK;

static_assert(std::is_same_v<ps::Device, ps::DLPackDevice>, "torch is not included");

static bool told(const char *text)
{
    return std::strstr(dtl_last_error(), text) != nullptr;
}

// ---- over backends that are there ----

static void device_and_memory(ps::Backend &backend)
{
    CHECK(backend.SetDevice(0) == BACKEND_OK && backend.GetDeviceId() == 0);
    CHECK(backend.SetDevice(99) == BACKEND_FAILED && told("99"));
    CHECK(backend.SetDevice(-1) == BACKEND_FAILED && backend.GetDeviceId() == 0);
    auto *memory = static_cast<char *>(backend.Alloc(100));
    CHECK(memory != nullptr);
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    CHECK_OK(dtl_mem_query(memory + 99, &info));
    CHECK(info.kind == DTL_MEMORY_DEVICE && info.size_bytes == 100);
    char text[] = "there and back";
    CHECK(backend.Copy(memory, text, sizeof text) == BACKEND_OK && backend.Copy(text, memory, 5) == BACKEND_OK);
    CHECK(std::strcmp(text, "there and back") == 0 && backend.Copy(memory, text, 101) == BACKEND_FAILED);
    backend.Free(memory);
    CHECK_STATUS(dtl_mem_query(memory, &info), DTL_ERROR_NOT_FOUND);
    backend.Free(nullptr);
    CHECK(backend.Alloc(0) == nullptr && backend.Alloc(UINT64_MAX) == nullptr);
}

// A stream whose work waits until it is told to go on.
struct gate {
    std::atomic<bool> open{false};
    std::atomic<bool> passed{false};

    void close(dtl_stream_t stream)
    {
        const dtl_task_fn_t wait = [](void *user) -> dtl_status_t {
            auto &self = *static_cast<gate *>(user);
            while (!self.open) {
                std::this_thread::yield();
            }
            self.passed = true;
            return DTL_SUCCESS;
        };
        CHECK_OK(dtl_stream_host_callback(stream, wait, this));
    }
};

// The event is reached when the stream's work is, and not before.
static void event_behind(ps::Backend &backend, void *event, dtl_stream_t stream, void *as_stepmesh)
{
    gate held;
    held.close(stream);
    CHECK(backend.RecordEvent(event, as_stepmesh) == BACKEND_OK);
    bool done = true;
    CHECK(backend.QueryEvent(event, &done) == BACKEND_OK && !done);
    CHECK_STATUS(dtl_event_wait(ps::Face::EventOf(event), 1000000), DTL_ERROR_TIMEOUT);
    held.open = true;
    CHECK(backend.SyncEvent(event) == BACKEND_OK && held.passed);
    CHECK(backend.QueryEvent(event, &done) == BACKEND_OK && done);
}

static void events(ps::Backend &backend, dtl_backend_t handle)
{
    void *const event = backend.CreateEvent();
    CHECK(event != nullptr);
    CHECK(backend.SyncEvent(event) == BACKEND_OK); // never recorded
    dtl_stream_t by_default;
    CHECK_OK(dtl_stream_default(handle, 0, &by_default));
    event_behind(backend, event, by_default, nullptr);
    const dtl::stream own{handle};
    event_behind(backend, event, own.get(), ps::Face::StreamPointer(own));
    CHECK(backend.FreeEvent(event) == BACKEND_OK);
    CHECK(backend.FreeEvent(event) == BACKEND_FAILED);
    CHECK(backend.RecordEvent(event, nullptr) == BACKEND_FAILED && backend.SyncEvent(event) == BACKEND_FAILED);
    CHECK(backend.FreeEvent(nullptr) == BACKEND_FAILED);
    int nothing;
    void *const other = backend.CreateEvent();
    CHECK(backend.RecordEvent(other, &nothing) == BACKEND_FAILED); // no stream
    CHECK(backend.RecordEvent(&nothing, nullptr) == BACKEND_FAILED && backend.SyncEvent(&nothing) == BACKEND_FAILED);
    CHECK(backend.FreeEvent(other) == BACKEND_OK);
}

static void over_the_host()
{
    const dtl::backend_ref host("host");
    ps::Face face(host);
    device_and_memory(face);
    events(face, host.get());
    const ps::DLPackDevice device = face.GetDevice();
    CHECK(device.device_type == 1 && device.device_id == 0);
    CHECK(face.DeviceCount() == host.device_count());

    // The default stream is this backend's, whichever the thread used last.
    dtl::backend_ref("null").set_device(0);
    events(face, host.get());
}

static void found()
{
    ps::Backend *const chosen = ps::Backend::Get();
    dtl_backend_t same;
    CHECK_OK(dtl_backend_get(NULL, &same));
    CHECK(chosen != nullptr && chosen == ps::Backend::Get(dtl_backend_name(same)));
    CHECK(ps::Backend::Get("host") == ps::Backend::Get(std::string("cpu")));
    CHECK(ps::Backend::Get("nobody") == nullptr && told("nobody"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([chosen] {
            for (int round = 0; round < 1000; round++) {
                CHECK(ps::Backend::Get() == chosen);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// ---- a class that was written for StepMesh ----

class Card : public ps::Backend {
  public:
    int SetDevice(int dev) override
    {
        sets++;
        if (dev == bad_device) {
            return BACKEND_FAILED;
        }
        current = dev;
        return BACKEND_OK;
    }
    int GetDeviceId() override { return current; }
    ps::Device GetDevice() override { return {dlpack_type, current < 0 ? 0 : current}; }

    void *Alloc(uint64_t size) override
    {
        if (on_alloc != nullptr) {
            on_alloc();
        }
        if (size > 1000000) {
            return nullptr;
        }
        live++;
        return static_cast<char *>(::operator new(size + 64, std::align_val_t{64})) + shift;
    }
    void Free(void *m) override
    {
        live--;
        ::operator delete(static_cast<char *>(m) - shift, std::align_val_t{64});
    }

    struct Event {
        void *stream;
        int device;
        int records;
    };
    void *CreateEvent() override
    {
        events++;
        return new Event{};
    }
    int FreeEvent(void *event) override
    {
        events--;
        delete static_cast<Event *>(event);
        return BACKEND_OK;
    }
    int RecordEvent(void *event, void *stream) override
    {
        *static_cast<Event *>(event) = {stream, current, static_cast<Event *>(event)->records + 1};
        last = *static_cast<Event *>(event);
        return on_record;
    }
    int SyncEvent(void *event) override
    {
        syncs++;
        CHECK(static_cast<Event *>(event)->records > 0); // the library does not ask after one that never was
        if (sync_throws) {
            throw std::runtime_error("ECC error in bank 7");
        }
        return BACKEND_OK;
    }
    int DeviceCount() override { return devices; }

    std::atomic<int> sets{0}, live{0}, events{0}, syncs{0};
    int devices = 4, bad_device = -1, dlpack_type = 12, on_record = BACKEND_OK;
    std::ptrdiff_t shift = 0;
    bool sync_throws = false;
    void (*on_alloc)() = nullptr;
    Event last{};
    static thread_local int current;
};
thread_local int Card::current = -1;

// The same, and it can be asked after events.
class AskedCard : public Card {
  public:
    int QueryEvent(void *, bool *done) override
    {
        *done = asked++ > 0;
        return BACKEND_OK;
    }
    int asked = 0;
};

static dtl_backend_t handle_of(const char *name)
{
    dtl_backend_t handle;
    CHECK_OK(dtl_backend_get(name, &handle));
    return handle;
}

static void registered_names(Card &card)
{
    CHECK(ps::Backend::Register("card", &card) == BACKEND_OK);
    CHECK(ps::Backend::Register("card", &card) == BACKEND_FAILED && told("card"));
    CHECK(ps::Backend::Register("a bad name", &card) == BACKEND_FAILED);
    CHECK(ps::Backend::Register("none", nullptr) == BACKEND_FAILED && told("vtable"));
}

static void card_devices(Card &card, ps::Backend &face)
{
    CHECK(face.DeviceCount() == 4 && face.GetDeviceId() == 0); // none was set
    CHECK(face.SetDevice(4) == BACKEND_FAILED);
    CHECK(face.SetDevice(2) == BACKEND_OK && Card::current == 2);
    std::thread([&] {
        CHECK(face.GetDeviceId() == 0 && face.SetDevice(1) == BACKEND_OK && Card::current == 1);
    }).join();
    CHECK(face.GetDeviceId() == 2 && Card::current == 2);
    card.bad_device = 3;
    CHECK(face.SetDevice(3) == BACKEND_FAILED && told("SetDevice answered -1") && face.GetDeviceId() == 2);
    card.bad_device = -1;
    const ps::DLPackDevice device = face.GetDevice();
    CHECK(device.device_type == 12 && device.device_id == 2);
    int32_t type, id;
    CHECK_OK(dtl_backend_dlpack_device(handle_of("card"), 3, &type, &id)); // another one than the current
    CHECK(id == 3 && Card::current == 2);
    card.dlpack_type = 0;
    CHECK(face.GetDevice().device_type == 0 && told("GetDevice"));
    card.dlpack_type = 12;
    card.devices = 2000;
    int32_t count;
    CHECK_STATUS(dtl_backend_device_count(handle_of("card"), &count), DTL_ERROR_BACKEND);
    CHECK(told("2000"));
    card.devices = 4;
}

static void card_memory(Card &card, ps::Backend &face)
{
    void *const memory = face.Alloc(1000);
    CHECK(memory != nullptr && card.live == 1);
    char bytes[1000];
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.backend.id == handle_of("card").id && info.device == 2);
    CHECK_STATUS(dtl_mem_copy(bytes, memory, sizeof bytes), DTL_ERROR_NOT_SUPPORTED); // StepMesh has no copies
    card.dlpack_type = 1; // a CPU's: the host can touch it
    CHECK_OK(dtl_mem_fill(memory, 7, 1000));
    CHECK_OK(dtl_mem_copy(bytes, memory, sizeof bytes));
    CHECK(bytes[0] == 7 && bytes[999] == 7);
    card.dlpack_type = 12;
    face.Free(memory);
    CHECK(card.live == 0);

    CHECK(face.Alloc(2000000) == nullptr && told("Alloc(2000000) returned nullptr"));
    void *other = nullptr;
    CHECK_STATUS(dtl_mem_alloc(handle_of("card"), DTL_MEMORY_HOST, 8, 0, &other), DTL_ERROR_NOT_SUPPORTED);
    card.shift = 8;
    CHECK_OK(dtl_mem_alloc(handle_of("card"), DTL_MEMORY_DEVICE, 8, 8, &other));
    CHECK_OK(dtl_mem_free(handle_of("card"), other));
    CHECK_OK(dtl_mem_alloc(handle_of("card"), DTL_MEMORY_DEVICE, 8, 4096, &other)); // a part of more
    CHECK(reinterpret_cast<uintptr_t>(other) % 4096 == 0 && card.live == 1);
    CHECK_OK(dtl_mem_free(handle_of("card"), other));
    CHECK_STATUS(dtl_mem_alloc(handle_of("card"), DTL_MEMORY_DEVICE, 999999, 4096, &other), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(told("Alloc(1004095) returned nullptr") && card.live == 0);
    card.shift = 0;
}

static void exceptions(Card &card, ps::Backend &face)
{
    void *memory = nullptr;
    const dtl_backend_t handle = handle_of("card");
    const auto expect = [&](void (*thrower)(), dtl_status_t status, const char *text) {
        card.on_alloc = thrower;
        CHECK_STATUS(dtl_mem_alloc(handle, DTL_MEMORY_DEVICE, 8, 0, &memory), status);
        CHECK(memory == nullptr && told(text) && face.Alloc(8) == nullptr && told(text));
        card.on_alloc = nullptr;
    };
    expect([] { throw std::runtime_error("the card fell off the bus"); }, DTL_ERROR_BACKEND,
           "the card fell off the bus");
    expect([] { throw dtl::error(DTL_ERROR_LIMIT, "no handles left"); }, DTL_ERROR_LIMIT, "no handles left");
    expect([] { throw dtl::error(DTL_SUCCESS, "confused"); }, DTL_ERROR_BACKEND, "confused");
    expect([] { throw std::bad_alloc(); }, DTL_ERROR_OUT_OF_MEMORY, "bad_alloc");
    expect([] { throw 42; }, DTL_ERROR_BACKEND, "no std::exception");
    CHECK(card.live == 0);
}

static void card_events(Card &card, ps::Backend &face)
{
    void *const event = face.CreateEvent();
    CHECK(event != nullptr && card.events == 1);
    CHECK(face.SyncEvent(event) == BACKEND_OK && card.syncs == 0); // never recorded: done, and not asked after
    CHECK(face.RecordEvent(event, nullptr) == BACKEND_OK);
    CHECK(card.last.stream == nullptr && card.last.device == 2);
    int native;
    CHECK(face.RecordEvent(event, &native) == BACKEND_OK && card.last.stream == &native && card.last.records == 2);
    CHECK(face.SyncEvent(event) == BACKEND_OK && card.syncs == 1);
    CHECK_OK(dtl_event_wait(ps::Face::EventOf(event), DTL_TIMEOUT_INFINITE));
    card.sync_throws = true;
    CHECK(face.SyncEvent(event) == BACKEND_FAILED && told("ECC error in bank 7"));
    card.sync_throws = false;
    card.on_record = BACKEND_FAILED;
    CHECK(face.RecordEvent(event, nullptr) == BACKEND_FAILED && told("RecordEvent answered -1"));
    card.on_record = BACKEND_OK;
    CHECK(face.FreeEvent(event) == BACKEND_OK && card.events == 0);
}

// Streams that the library makes are the default streams of their devices.
static void card_streams(Card &card)
{
    const dtl::backend_ref backend = handle_of("card");
    const dtl::stream stream(backend, 3);
    const dtl::event event(backend);
    stream->record(event);
    CHECK(card.last.stream == nullptr && card.last.device == 3 && Card::current == 2);
    event.sync();
    const int syncs = card.syncs;
    stream->synchronize();
    CHECK(card.syncs == syncs + 1 && card.last.device == 3 && Card::current == 2);
    card.on_record = BACKEND_FAILED;
    CHECK_STATUS(dtl_stream_wait(stream.get(), DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    card.on_record = BACKEND_OK;
    CHECK(card.events == 1); // nothing is left behind by the failure
    int ran = 0;
    stream->host_callback([&] { ran++; });
    stream->synchronize();
    CHECK(ran == 1);
}

static void asked_card()
{
    AskedCard card;
    CHECK(ps::Backend::Register("asked", &card) == BACKEND_OK);
    ps::Backend &face = *ps::Backend::Get("asked");
    void *const event = face.CreateEvent();
    bool done = false;
    CHECK(face.QueryEvent(event, &done) == BACKEND_OK && done && card.asked == 0); // never recorded
    CHECK(face.RecordEvent(event, nullptr) == BACKEND_OK);
    CHECK(face.QueryEvent(event, &done) == BACKEND_OK && !done);
    CHECK(face.QueryEvent(event, &done) == BACKEND_OK && done);
    CHECK(face.FreeEvent(event) == BACKEND_OK);
    CHECK_OK(dtl_backend_unregister(handle_of("asked")));
}

// ---- a class of StepMesh's nine functions: it cannot be asked after events ----

// Its memory is the host's, but the host may not touch it, and its one stream is a gate.
class Nine : public ps::Backend {
  public:
    int SetDevice(int dev) override { return dev == 0 ? BACKEND_OK : BACKEND_FAILED; }
    int GetDeviceId() override { return 0; }
    ps::Device GetDevice() override { return {12, 0}; }
    void *Alloc(uint64_t size) override { return ::operator new(size, std::align_val_t{64}); }
    void Free(void *m) override { ::operator delete(m, std::align_val_t{64}); }
    void *CreateEvent() override
    {
        events++;
        return new int(0);
    }
    int FreeEvent(void *event) override
    {
        events--;
        delete static_cast<int *>(event);
        return BACKEND_OK;
    }
    int RecordEvent(void *event, void *) override
    {
        *static_cast<int *>(event) = ++recorded;
        return BACKEND_OK;
    }
    int SyncEvent(void *event) override
    {
        waits++;
        const int number = *static_cast<int *>(event);
        while (reached < number) {
            std::this_thread::yield();
        }
        return broken ? BACKEND_FAILED : BACKEND_OK;
    }

    std::atomic<int> recorded{0}, reached{1 << 30}, events{0}, waits{0};
    std::atomic<bool> broken{false};
};

// The same with copies.
class Ten : public Nine {
  public:
    int Copy(void *dst, const void *src, uint64_t size) override
    {
        copies++;
        std::memcpy(dst, src, size);
        return size == 13 ? BACKEND_FAILED : BACKEND_OK;
    }
    std::atomic<int> copies{0};
};

static void until_done(dtl_event_t event, dtl_status_t expected)
{
    int32_t done = 0;
    dtl_status_t status;
    while ((status = dtl_event_query(event, &done)) == DTL_SUCCESS && done == 0) {
        std::this_thread::yield();
    }
    CHECK(status == expected);
}

static void queries(Nine &nine, dtl_backend_t handle)
{
    const dtl::backend_ref backend = handle;
    const dtl::stream stream(backend);
    dtl::event first(backend), second(backend);
    nine.reached = nine.recorded + 1;
    stream->record(second); // reached
    stream->record(first);
    int32_t done = 1;
    CHECK_OK(dtl_event_query(first.get(), &done));
    CHECK(done == 0);
    until_done(second.get(), DTL_SUCCESS); // it does not wait behind the first one
    CHECK_STATUS(dtl_event_wait(first.get(), 1000000), DTL_ERROR_TIMEOUT);
    const int waits = nine.waits;
    nine.reached = 1 << 30;
    until_done(first.get(), DTL_SUCCESS);
    CHECK_OK(dtl_event_query(first.get(), &done));
    CHECK(done == 1 && nine.waits == waits); // one wait for all queries of a record

    nine.broken = true;
    stream->record(first);
    until_done(first.get(), DTL_ERROR_BACKEND);
    CHECK(told("SyncEvent answered -1"));
    CHECK_STATUS(dtl_event_query(first.get(), &done), DTL_ERROR_BACKEND); // each query
    nine.broken = false;
    stream->record(first);
    until_done(first.get(), DTL_SUCCESS); // a new record counts anew

    nine.reached = nine.recorded.load();
    stream->record(first);
    CHECK_OK(dtl_event_query(first.get(), &done));
    const int live = nine.events;
    CHECK(done == 0);
    first = dtl::event(); // while it is waited for: freed later
    CHECK(nine.events == live);
    nine.reached = 1 << 30;
    while (nine.events != live - 1) {
        std::this_thread::yield();
    }
}

static void gated_send(Nine &nine, dtl_backend_t handle)
{
    const dtl::backend_ref backend = handle;
    const dtl::stream stream(backend);
    const dtl::event event(backend);
    nine.reached = nine.recorded.load();
    stream->record(event);
    int there = 5, back = 0;
    int32_t over = 1;
    dtl_request_t sending, receiving;
    CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, &back, 1, DTL_DTYPE_INT32, 0, 1, &receiving));
    CHECK_OK(dtl_comm_isend_on(DTL_COMM_SELF, &there, 1, DTL_DTYPE_INT32, 0, 1, event.get(), &sending));
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(dtl_request_test(sending, &over, NULL));
        CHECK(over == 0);
    }
    there = 7; // as the work before the record would
    nine.reached = 1 << 30;
    CHECK_OK(dtl_request_wait(sending, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_wait(receiving, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(back == 7);
}

// The same, but it can be asked after events.
class Eleven : public Nine {
  public:
    int QueryEvent(void *event, bool *done) override
    {
        *done = reached >= *static_cast<int *>(event);
        return BACKEND_OK;
    }
};

using ticks = std::chrono::steady_clock;

static double median_us(std::vector<ticks::duration> times)
{
    std::sort(times.begin(), times.end());
    return std::chrono::duration<double, std::micro>(times[times.size() / 2]).count();
}

// What a send costs that begins when an event is complete: docs/how-to/port-from-stepmesh.md has the numbers. The work
// before the event takes `length`.
static void cost_of_gates(const char *name, Nine &nine, int rounds, std::chrono::milliseconds length)
{
    const dtl::backend_ref backend = handle_of(name);
    const dtl::stream stream(backend);
    std::vector<ticks::duration> tests, ends;
    for (int round = 0; round < rounds; round++) {
        const dtl::event event(backend);
        nine.reached = nine.recorded.load();
        stream->record(event);
        int there = round, back = -1, over = 0;
        dtl_request_t sending, receiving;
        CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, &back, 1, DTL_DTYPE_INT32, 0, 1, &receiving));
        CHECK_OK(dtl_comm_isend_on(DTL_COMM_SELF, &there, 1, DTL_DTYPE_INT32, 0, 1, event.get(), &sending));
        ticks::time_point complete;
        std::thread work([&] {
            std::this_thread::sleep_for(length);
            complete = ticks::now();
            nine.reached = 1 << 30;
        });
        const ticks::time_point begin = ticks::now();
        CHECK_OK(dtl_request_test(sending, &over, NULL));
        tests.push_back(ticks::now() - begin);
        if (over == 0) {
            CHECK_OK(dtl_request_wait(sending, DTL_TIMEOUT_INFINITE, NULL));
        }
        CHECK_OK(dtl_request_wait(receiving, DTL_TIMEOUT_INFINITE, NULL));
        const ticks::time_point end = ticks::now();
        work.join();
        ends.push_back(end - complete);
        CHECK(back == round);
    }
    std::printf("%s, work of %d ms: first dtl_request_test %.0f us, message after the work %.0f us\n", name,
                static_cast<int>(length.count()), median_us(tests), median_us(ends));
}

static void costs()
{
    Nine nine;
    Eleven eleven;
    CHECK(ps::Backend::Register("nine", &nine) == BACKEND_OK && ps::Backend::Register("asked", &eleven) == BACKEND_OK);
    for (const int length : {1, 20}) {
        cost_of_gates("asked", eleven, 20, std::chrono::milliseconds(length));
        CHECK(eleven.waits == 0); // no thread waits
        cost_of_gates("nine", nine, 20, std::chrono::milliseconds(length));
    }
    CHECK(nine.waits == 40); // one for each event
    CHECK_OK(dtl_backend_unregister(handle_of("nine")));
    CHECK_OK(dtl_backend_unregister(handle_of("asked")));
}

static void self_test(dtl_backend_t handle)
{
    char report[4096];
    const dtl_status_t status = dtl_backend_self_test(handle, report, sizeof report, NULL);
    CHECK(status == DTL_SUCCESS || (std::printf("%s\n", report), false));
}

static void hidden_memory(Ten &ten, dtl_backend_t handle)
{
    void *memory = nullptr;
    std::vector<int> there(10000, 3), back(there.size());
    const uint64_t size = there.size() * sizeof(int);
    CHECK_OK(dtl_mem_alloc(handle, DTL_MEMORY_DEVICE, size, 0, &memory));
    CHECK_OK(dtl_mem_copy(memory, there.data(), size));
    CHECK(ten.copies > 0);
    dtl_request_t receiving;
    CHECK_OK(dtl_comm_irecv(DTL_COMM_SELF, back.data(), back.size(), DTL_DTYPE_INT32, 0, 1, &receiving));
    CHECK_OK(dtl_comm_send(DTL_COMM_SELF, memory, there.size(), DTL_DTYPE_INT32, 0, 1));
    CHECK_OK(dtl_request_wait(receiving, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(back == there);
    CHECK_OK(dtl_mem_fill(memory, 1, size));
    CHECK_OK(dtl_mem_copy(back.data(), memory, size));
    CHECK(back.back() == 0x01010101);
    CHECK_STATUS(dtl_mem_copy(memory, there.data(), 13), DTL_ERROR_BACKEND);
    CHECK(told("Copy answered -1"));
    CHECK_OK(dtl_mem_free(handle, memory));
}

static void nine_functions()
{
    Nine nine;
    Ten ten;
    CHECK(ps::Backend::Register("nine", &nine) == BACKEND_OK && ps::Backend::Register("ten", &ten) == BACKEND_OK);
    for (Nine *const each : {&nine, static_cast<Nine *>(&ten)}) {
        const dtl_backend_t handle = handle_of(each == &nine ? "nine" : "ten");
        queries(*each, handle);
        gated_send(*each, handle);
        self_test(handle);
    }
    hidden_memory(ten, handle_of("ten"));
    void *memory = nullptr;
    char byte = 0;
    CHECK_OK(dtl_mem_alloc(handle_of("nine"), DTL_MEMORY_DEVICE, 8, 0, &memory));
    CHECK_STATUS(dtl_mem_copy(memory, &byte, 1), DTL_ERROR_NOT_SUPPORTED);
    CHECK(told("write int Copy("));
    CHECK_OK(dtl_mem_free(handle_of("nine"), memory));
    CHECK_OK(dtl_backend_unregister(handle_of("nine")));
    CHECK_OK(dtl_backend_unregister(handle_of("ten")));
    CHECK(nine.events == 0 && ten.events == 0);
}

int main(void)
{
    Card card, after;
    ps::Backend *face = nullptr;
    {
        const dtl::library library;
        over_the_host();
        found();
        registered_names(card);
        face = ps::Backend::Get("card");
        CHECK(face != nullptr);
        card_devices(card, *face);
        card_memory(card, *face);
        exceptions(card, *face);
        card_events(card, *face);
        card_streams(card);
        asked_card();
        nine_functions();
        costs();
        CHECK_OK(dtl_backend_unregister(handle_of("card")));
        CHECK(face->SetDevice(0) == BACKEND_FAILED && face->GetDeviceId() < 0 && face->Alloc(1) == nullptr);
        CHECK(face->CreateEvent() == nullptr && face->GetDevice().device_type == 0);

        // Registered anew: what Get gave leads there.
        CHECK(ps::Backend::Register("card", &after) == BACKEND_OK && ps::Backend::Get("card") == face);
        CHECK(face->SetDevice(1) == BACKEND_OK && after.sets == 1);
    }
    CHECK(face->SetDevice(0) == BACKEND_FAILED && ps::Backend::Get() == nullptr); // finalized
    const dtl::library again;
    CHECK(ps::Backend::Get("host") != nullptr && ps::Backend::Get("host")->SetDevice(0) == BACKEND_OK);
    CHECK(ps::Backend::Get("card") == nullptr && card.live == 0 && card.events == 0);
    return 0;
}
