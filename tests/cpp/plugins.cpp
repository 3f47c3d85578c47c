// dtl.hpp: plugin files, one and by the folder, good and bad. Usage: plugins FOLDER.
#include "../c/check.h"

#include <dtl.hpp>

#include <cstddef>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <string>

namespace fs = std::filesystem;

/// A folder that only this user can write to; gone at the end of the scope.
class own_folder {
  public:
    own_folder() { CHECK(mkdtemp(&path_[0]) != nullptr); }
    own_folder(const own_folder &) = delete;
    own_folder &operator=(const own_folder &) = delete;
    ~own_folder() { fs::remove_all(path_); }
    const std::string &path() const { return path_; }

  private:
    std::string path_ = (fs::temp_directory_path() / "dtl-cpp-XXXXXX").string();
};

static bool is_failed_because(const std::string &file, const std::string &reason)
{
    for (const dtl_plugin_info_t &info : dtl::plugins()) {
        if (fs::path(info.path).filename() == file) {
            return info.state == DTL_PLUGIN_FAILED && std::string(info.reason).find(reason) != std::string::npos;
        }
    }
    return false;
}

static void one_file(const std::string &plugins)
{
    const dtl::backend_ref good = dtl::backend_ref::load((plugins + "/good.so").c_str());
    CHECK(good.name() == "good" && good.get().id == dtl::backend_ref("good").get().id);
    dtl::buffer<int> memory(10, DTL_MEMORY_HOST, dtl::backend_ref("good-too"));
    memory.fill(0);
    CHECK(memory[9] == 0);
}

static void bad_file(const std::string &plugins)
{
    try {
        dtl::backend_ref::load((plugins + "/entry_fails.so").c_str());
        CHECK(!"loaded");
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_UNAVAILABLE);
        CHECK(std::string(failure.what()).find("no licence file") != std::string::npos);
    }
    CHECK(is_failed_because("entry_fails.so", "no licence file"));
}

static void folder(const std::string &plugins)
{
    const own_folder own;
    fs::copy(plugins + "/other.so", own.path() + "/a.so");
    fs::copy(plugins + "/no_load.so", own.path() + "/b.so");
    CHECK(dtl::backend_ref::load_dir(own.path().c_str()) == 1);
    CHECK(dtl::backend_ref("other-too").is_available());
    CHECK(is_failed_because("b.so", "dtl_plugin_t.load is NULL"));
    try {
        dtl::backend_ref::load_dir((own.path() + "/none").c_str());
        CHECK(!"loaded");
    } catch (const dtl::error &failure) {
        CHECK(failure.status() == DTL_ERROR_NOT_FOUND);
    }
}

static std::string text_of(const std::string &path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static std::size_t count_of(const std::string &text, const std::string &part)
{
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at++) count++;
    return count;
}

/// What a plugin of classes records, with this library, an older one and without one.
static void recorder(const std::string &plugins)
{
    const own_folder own;
    const std::string path = own.path() + "/trace.json";
    dtl::backend_ref::load((plugins + "/traces.so").c_str());
    void *module = dlopen((plugins + "/traces.so").c_str(), RTLD_NOW | RTLD_NOLOAD);
    CHECK(module != nullptr);
    const auto *found = static_cast<const dtl_host_api_t *const *>(dlsym(module, "test_host"));
    CHECK(found != nullptr && dlclose(module) == 0);
    dtl_host_api_t older = **found;
    older.struct_size = offsetof(dtl_host_api_t, trace_counter);
    const dtl::trace_recorder recorders[] = {dtl::trace_recorder(), dtl::trace_recorder(&older),
                                             dtl::trace_recorder(*found)};
    CHECK(!recorders[2].is_on() && recorders[2].now() != 0 && recorders[1].now() == 0);
    dtl::trace trace(path);
    for (const dtl::trace_recorder &one : recorders) {
        dtl_trace_span_t work = DTL_TRACE_SPAN_INIT;
        const dtl::trace_recorder::span outer(one, "class", "outer");
        const dtl::trace_recorder::span inner(one, "class", "inner", "seven");
        work.track = one.track("class: device", "stream");
        work.category = "copy";
        work.name = "upload";
        work.begin_ns = one.now();
        work.end_ns = one.now();
        one.record(work);
        one.counter(work.track, "queue", 3);
        CHECK(one.is_on() == (&one == &recorders[2]) && (work.track != 0) == one.is_on());
    }
    trace.stop();
    const std::string text = text_of(path);
    for (const char *part : {"\"name\":\"upload\"", "\"what\":\"seven\"", "\"name\":\"queue\"", "\"rank 0: class: device\""}) {
        CHECK(count_of(text, part) == 1);
    }
    CHECK(count_of(text, "\"name\":\"outer\"") == 2 && text.find("unfinished") == std::string::npos);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const dtl::library library;
    one_file(argv[1]);
    bad_file(argv[1]);
    folder(argv[1]);
    recorder(argv[1]);
    std::puts("plugins: all checks passed");
}
