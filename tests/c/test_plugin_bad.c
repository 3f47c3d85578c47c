/* Plugin files that cannot be used: each gives a status, a text that names file and reason, and a
 * record; nothing is registered, and the good ones load afterwards. Crashes and hangs are for
 * `dtl-info --probe` (tools/dtl-info/tests/plugins.rs).
 * Usage: test_plugin_bad FOLDER. C11, and valid C++17. */
#include "plugins.h"

static void refuse(const char* path, dtl_status_t status, const char* reason) {
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    dtl_backend_t backend = {77};
    const char* name = strrchr(path, '/');
    uint64_t before = 0, after = 0;
    CHECK_OK(dtl_backend_count(&before));
    CHECK_STATUS(dtl_backend_load(path, &backend), status);
    CHECK_TEXT(reason);
    CHECK_TEXT(name);
    CHECK(backend.id == 77);
    CHECK_OK(dtl_backend_count(&after));
    CHECK(after == before);
    CHECK(record_of(name, &info));
    CHECK(info.state == DTL_PLUGIN_FAILED && info.status == status && strstr(info.reason, reason) != NULL);
    CHECK(strcmp(info.origin, "dtl_backend_load") == 0 && info.backends[0] == 0);
}

static void test_wrong_answers(void) {
    refuse(in(plugins, "no_entry.so"), DTL_ERROR_INVALID_ARGUMENT, "it exports no dtl_plugin_entry_v1");
    refuse(in(plugins, "entry_fails.so"), DTL_ERROR_UNAVAILABLE, "no licence file");
    refuse(in(plugins, "too_new.so"), DTL_ERROR_INCOMPATIBLE_ABI, "it speaks ABI versions 4 to 5, this library 2 to 2");
    refuse(in(plugins, "wrong_range.so"), DTL_ERROR_INVALID_ARGUMENT, "ABI versions 9 to 2");
    refuse(in(plugins, "no_load.so"), DTL_ERROR_INVALID_ARGUMENT, "dtl_plugin_t.load is NULL");
    refuse(in(plugins, "no_name.so"), DTL_ERROR_INVALID_ARGUMENT, "dtl_plugin_t.name is NULL");
    refuse(in(plugins, "not_filled_in.so"), DTL_ERROR_INVALID_ARGUMENT, "struct_size is 0");
    refuse(in(plugins, "no_layouts.so"), DTL_ERROR_INVALID_ARGUMENT, "layouts NULL");
    refuse(in(plugins, "long_tail.so"), DTL_ERROR_INCOMPATIBLE_ABI, "does not know");
    refuse(in(plugins, "wrong_layout.so"), DTL_ERROR_INCOMPATIBLE_ABI,
        "dtl_comm_vtable_t.isend lies at offset 36 (8 bytes) in the plugin and at 32 (8 bytes) in this library");
    refuse(in(plugins, "registers_nothing.so"), DTL_ERROR_INVALID_ARGUMENT, "registered no backend");
    refuse(in(plugins, "load_fails.so"), DTL_ERROR_INIT_FAILED, "the second half is missing");
    refuse(in(plugins, "load_answers_nonsense.so"), DTL_ERROR_NATIVE_BACKEND, "4711");
    refuse(in(plugins, "bad_table.so"), DTL_ERROR_INVALID_ARGUMENT, "device.count is NULL");
    refuse(in(plugins, "drops_status.so"), DTL_ERROR_INVALID_ARGUMENT,
        "registered no backend, because backend_register failed: device.count is NULL");
    refuse(in(plugins, "taken_name.so"), DTL_ERROR_ALREADY_EXISTS, "a backend named host is registered");
    refuse(in(plugins, "bad_host_calls.so"), DTL_ERROR_ALREADY_EXISTS, "Device has the defaults Device and Sequential");
    refuse(in(plugins, "register_in_thread.so"), DTL_ERROR_INVALID_STATE, "registered in another thread");
    refuse(in(plugins, "register_in_entry.so"), DTL_ERROR_INVALID_STATE, "backend_register outside of a plugin's load");
    refuse(in(plugins, "missing_function.so"), DTL_ERROR_UNAVAILABLE, "of_no_library");
}

/* What a failed load had registered is gone. */
static void test_nothing_stays(void) {
    dtl_backend_t backend;
    CHECK_STATUS(dtl_backend_get("half", &backend), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("plugins that could not be loaded: ");
    CHECK_TEXT("no_entry.so: it is no plugin");
    CHECK_TEXT("more (dtl-info shows them)");
}

/* Names that a failed load had taken go back to those who had them. */
static void test_names_come_back(void) {
    dtl_backend_t before, first, after;
    CHECK_OK(dtl_backend_get("host", &before));
    refuse(in(plugins, "replaces_and_fails.so"), DTL_ERROR_INIT_FAILED, "a change of mind");
    CHECK_OK(dtl_backend_at(0, &first));
    CHECK_OK(dtl_backend_get("host", &after));
    CHECK(before.id == after.id && first.id == after.id);
}

static void unregister(const char* name) {
    dtl_backend_t backend;
    CHECK_OK(dtl_backend_get(name, &backend));
    CHECK_OK(dtl_backend_unregister(backend));
}

static void test_no_plugin_at_all(void) {
    static char bytes[1 << 20];
    const size_t size = read_file(in(plugins, "good.so"), bytes, sizeof bytes);
    const int16_t other_machine = (bytes[18] == 62 ? 183 : 62);
    char machine[sizeof other_machine];
    size_t cut;
    write_file(in(own, "empty.so"), "", 0);
    refuse(in(own, "empty.so"), DTL_ERROR_INVALID_ARGUMENT, "the file is empty");
    write_file(in(own, "text.so"), "GROUP ( libfoo.so.1 )\n", 22);
    refuse(in(own, "text.so"), DTL_ERROR_INVALID_ARGUMENT, "does not begin as an ELF file");
    for (cut = 4; cut < size; cut += size / 64 + 1) {
        write_file(in(own, "cut.so"), bytes, cut);
        /* Without the symbols at its end a file may still be all that is loaded. */
        if (dtl_backend_load(in(own, "cut.so"), NULL) == DTL_SUCCESS) {
            unregister("good");
            unregister("good-too");
            break;
        }
        CHECK_TEXT("cut.so: ");
    }
    CHECK(cut > 4);
    write_file(in(own, "half.so"), bytes, size / 2);
    refuse(in(own, "half.so"), DTL_ERROR_INVALID_ARGUMENT, "cut off");
    memcpy(machine, bytes + 18, sizeof machine);
    memcpy(bytes + 18, &other_machine, sizeof other_machine);
    write_file(in(own, "machine.so"), bytes, size);
    refuse(in(own, "machine.so"), DTL_ERROR_INCOMPATIBLE_ABI, "it was built for another machine");
    memcpy(bytes + 18, machine, sizeof machine);
    bytes[16] = 1;
    write_file(in(own, "object.so"), bytes, size);
    refuse(in(own, "object.so"), DTL_ERROR_INVALID_ARGUMENT, "ELF type 1");
    CHECK(mkfifo(in(own, "pipe.so"), 0700) == 0); /* opening it would wait for a writer */
    refuse(in(own, "pipe.so"), DTL_ERROR_UNAVAILABLE, "no regular file");
    CHECK(symlink("/no/such/file", in(own, "nowhere.so")) == 0);
    refuse(in(own, "nowhere.so"), DTL_ERROR_NOT_FOUND, "no such file");
    refuse("/no/such/file.so", DTL_ERROR_NOT_FOUND, "no such file");
    refuse(plugins, DTL_ERROR_UNAVAILABLE, "no regular file");
    CHECK_STATUS(dtl_backend_load("", NULL), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("path of a plugin is empty");
    CHECK_STATUS(dtl_backend_load(NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_backend_load_dir("/no/such/folder", NULL), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_backend_load_dir(in(plugins, "good.so"), NULL), DTL_ERROR_UNAVAILABLE);
}

static void test_writable_by_others(void) {
    const char* path = copy_of("other.so", "mine.so");
    CHECK(chmod(path, 0666) == 0);
    refuse(path, DTL_ERROR_UNAVAILABLE, "refused: the file can be written by its group and others (mode 0666)");
    CHECK(chmod(path, 0775) == 0);
    refuse(path, DTL_ERROR_UNAVAILABLE, "the file can be written by its group (mode 0775): chmod go-w");
    CHECK(chmod(path, 0755) == 0 && chmod(own, 0777) == 0);
    refuse(path, DTL_ERROR_UNAVAILABLE, "refused: the folder");
    CHECK_STATUS(dtl_backend_load_dir(own, NULL), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("can be written by its group and others (mode 0777)");
    CHECK(chmod(own, 0700) == 0);
    if (getuid() == 0) {
        CHECK(chown(path, 4242, 0) == 0);
        refuse(path, DTL_ERROR_UNAVAILABLE, "belongs to user 4242");
        CHECK(chown(path, 0, 0) == 0);
        CHECK(symlink(path, in(own, "others.so")) == 0 && lchown(in(own, "others.so"), 4242, 4242) == 0);
        refuse(in(own, "others.so"), DTL_ERROR_UNAVAILABLE, "the symbolic link");
        CHECK(unlink(in(own, "others.so")) == 0);
    }
    CHECK_OK(dtl_backend_load(path, NULL));
}

/* A newer header's plugin that can do with an old library. */
static void test_newer(void) {
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    dtl_backend_t backend;
    CHECK_OK(dtl_backend_load(in(plugins, "newer.so"), &backend));
    CHECK(record_of("/newer.so", &info) && info.abi_version == DTL_ABI_VERSION && info.state == DTL_PLUGIN_LOADED);
    CHECK_OK(dtl_backend_unregister(backend));
}

static void test_others_load(void) {
    dtl_backend_t backend;
    uint64_t loaded = 0;
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), NULL));
    unregister("good");
    unregister("good-too");
    /* Of the whole folder, those that can be had, drops_one_status.so, acme.so and traces.so among them (accelerator.so and environment.so are others); twin.so wants the names of good.so, other.so those of
     * the copy that is loaded. */
    CHECK_OK(dtl_backend_load_dir(plugins, &loaded));
    CHECK(loaded == 7);
    CHECK_OK(dtl_backend_get("good-too", &backend));
    CHECK_OK(dtl_backend_get("bad", &backend));
}

static int warnings;
static void heard(int32_t level, const char* text, void* user) {
    (void)user;
    if (level == DTL_LOG_WARN && strstr(text, "failed backend_register: a backend named kept") != NULL) warnings++;
}

/* A registration that fails is told, though the other one succeeds and `load` does not return its status. */
static void test_dropped_status(void) {
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    dtl_backend_t backend;
    CHECK_OK(dtl_log_set_callback(heard, NULL, DTL_LOG_WARN));
    CHECK_OK(dtl_backend_load(in(plugins, "drops_one_status.so"), &backend));
    DTL_IGNORE(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    CHECK(warnings == 1 && strcmp(dtl_backend_name(backend), "kept") == 0);
    CHECK(record_of("drops_one_status.so", &info));
    CHECK(info.state == DTL_PLUGIN_LOADED && info.status == DTL_SUCCESS);
    CHECK(strstr(info.reason, "failed backend_register: a backend named kept is registered already") != NULL);
    unregister("kept");
}

int main(int argc, char** argv) {
    plugins_begin(argc, argv);
    DTL_IGNORE(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    test_wrong_answers();
    test_dropped_status();
    test_nothing_stays();
    test_names_come_back();
    test_no_plugin_at_all();
    test_writable_by_others();
    test_newer();
    test_others_load();
    puts("test_plugin_bad: all checks passed");
    return 0;
}
