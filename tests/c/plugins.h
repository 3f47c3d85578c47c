/* What the tests of plugins share: files beside each other, the record of a file. Not a test by itself. */
#ifndef DTL_TESTS_PLUGINS_H
#define DTL_TESTS_PLUGINS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mkdtemp, realpath */
#endif
#include "check.h"
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

/* The folder of the plugin files (copies, so that owner and permissions are as they should be whatever
 * those of the build folder are), and another one of this process' own. */
static char plugins[64], own[64];

/* A path in one of the folders; the text stays for a few calls. */
static inline const char* in(const char* folder, const char* name) {
    static char paths[8][4096];
    static int next;
    char* path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline size_t read_file(const char* path, char* to, size_t most) {
    FILE* file = fopen(path, "rb");
    size_t size;
    CHECK(file != NULL);
    size = fread(to, 1, most, file);
    CHECK(size < most && fclose(file) == 0);
    return size;
}

static inline void write_file(const char* path, const void* bytes, size_t size) {
    FILE* file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    CHECK(chmod(path, 0755) == 0);
}

static void remove_folder(const char* path) {
    DIR* folder = opendir(path);
    struct dirent* entry;
    if (folder == NULL) return; /* a forked child was first */
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.') (void)unlink(in(path, entry->d_name));
    (void)closedir(folder);
    (void)rmdir(path);
}

static void plugins_end(void) {
    remove_folder(plugins);
    remove_folder(own);
}

static inline void copy_file(const char* from, const char* to) {
    static char bytes[1 << 20];
    write_file(to, bytes, read_file(from, bytes, sizeof bytes));
}

static inline void plugins_begin(int argc, char** argv) {
    DIR* folder;
    struct dirent* entry;
    CHECK(argc >= 2);
    strcpy(plugins, "/tmp/dtl-plugins-XXXXXX");
    strcpy(own, "/tmp/dtl-own-XXXXXX");
    CHECK(mkdtemp(plugins) != NULL && mkdtemp(own) != NULL && atexit(plugins_end) == 0);
    folder = opendir(argv[1]);
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.') copy_file(in(argv[1], entry->d_name), in(plugins, entry->d_name));
    CHECK(closedir(folder) == 0);
}

/* A copy of a plugin file under another name in our own folder. */
static inline const char* copy_of(const char* name, const char* as) {
    const char* path = in(own, as);
    copy_file(in(plugins, name), path);
    return path;
}

/* The record of the file with this ending of its path; false if there is none. */
static inline int record_of(const char* ending, dtl_plugin_info_t* out) {
    uint64_t count = 0, i;
    CHECK_OK(dtl_plugin_count(&count));
    for (i = 0; i < count; i++) {
        dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
        size_t length;
        CHECK_OK(dtl_plugin_at(i, &info));
        length = strlen(info.path);
        if (length >= strlen(ending) && strcmp(info.path + length - strlen(ending), ending) == 0) {
            *out = info;
            return 1;
        }
    }
    return 0;
}

#endif
