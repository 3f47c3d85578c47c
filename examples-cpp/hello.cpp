// hello: which libdtl this is, which backends it has, and one trip of data through a device.
//
// Build: find_package(dtl) and target_link_libraries(hello PRIVATE dtl::dtl), or
//        c++ -std=c++17 hello.cpp $(pkg-config --cflags --libs libdtl) -o hello
// Run:   ./hello                      (or DTL_BACKEND=null ./hello to choose another backend)
// Prints the version, a line for each backend, the device in use, what came back from it, "done".
// It creates no thread.
#include <dtl.hpp>

#include <cstdio>
#include <exception>
#include <string>

static void list_backends()
{
    for (const dtl::backend_ref backend : dtl::backend_ref::all()) {
        std::string why_not;
        const bool available = backend.is_available(&why_not);
        std::printf("  %-10s %s%s\n", backend.name().c_str(),
                    available ? "available" : "not available: ", why_not.c_str());
    }
}

// Sends a text through the memory of a device.
static std::string round_trip(dtl::backend_ref backend, const std::string &text)
{
    dtl::buffer<char> memory(text.size(), DTL_MEMORY_DEVICE, backend);
    std::string back(text.size(), ' ');
    memory.copy_from(text.data());
    memory.copy_to(back.data());
    return back; // the buffer frees itself
}

int main()
{
    try {
        std::printf("libdtl %s, backends:\n", dtl_version_string());
        const dtl::library library;
        list_backends();

        const dtl::backend_ref backend(nullptr); // the one that DTL_BACKEND names, else the best available
        const int device = backend.device();
        std::printf("using %s, device %d: %s\n", backend.name().c_str(), device,
                    backend.device_info(device).name);

        const std::string text = "hello, device", back = round_trip(backend, text);
        std::printf("back from the device: %s\n", back.c_str());
        if (back != text) {
            std::fprintf(stderr, "hello: the bytes that came back differ from those that went\n");
            return 1;
        }
        std::printf("done\n");
        return 0;
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "hello: %s\n", failure.what());
        return 1;
    }
}
