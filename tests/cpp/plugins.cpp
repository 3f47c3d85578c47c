// dtl.hpp: plugin files, one and by the folder, good and bad. Usage: plugins FOLDER.
#include "../c/check.h"

#include <dtl.hpp>

#include <filesystem>
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

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const dtl::library library;
    one_file(argv[1]);
    bad_file(argv[1]);
    folder(argv[1]);
    std::puts("plugins: all checks passed");
}
