/* Plugin files that work: loading, finding, listing, loading twice, again after unregister and after
 * dtl_finalize, from many threads, in a forked child, from DTL_PLUGIN_PATH. Bad ones: test_plugin_bad.c.
 * Usage: test_plugin FOLDER [alone]; alone = without the forked child, which keeps its parent's objects
 * for ever and so has leaks in valgrind's eyes. C11, and valid C++17. */
#include "plugins.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

static dtl_backend_t find(const char* name) {
    dtl_backend_t backend = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_get(name, &backend));
    return backend;
}

/* How often a plugin's load was called; -1 = the file is not in memory. */
static int loads_of(const char* path) {
    void* module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    const int32_t* loads;
    if (module == NULL) return -1;
    loads = (const int32_t*)dlsym(module, "test_loads");
    CHECK(loads != NULL && dlclose(module) == 0);
    return *loads;
}

static uint64_t plugin_count(void) {
    uint64_t count = 77;
    CHECK_OK(dtl_plugin_count(&count));
    return count;
}

static void unregister_both(const char* name) {
    char too[64];
    snprintf(too, sizeof too, "%s-too", name);
    CHECK_OK(dtl_backend_unregister(find(name)));
    CHECK_OK(dtl_backend_unregister(find(too)));
}

/* The kind of memory that the plugin registers: its backend has memory of it, and of its instances. It stays. */
static void own_kind(dtl_backend_t backend) {
    const dtl_attr_t bank = dtl_attr_i64("bank", 2);
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_enum_word_t kind = 0, instance = 0;
    void* memory = NULL;
    CHECK_OK(dtl_enum_from_name(DTL_ENUM_MEMORY, "good_Scratch", &kind));
    CHECK_OK(dtl_ev_instance(kind, &bank, 1, &instance));
    CHECK_OK(dtl_mem_alloc(backend, instance, 100, 64, &memory));
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.kind == instance && dtl_ev_match(info.kind, kind));
    CHECK_OK(dtl_mem_free(backend, memory));
}

/* How many were there before: some may be installed. */
static uint64_t first;

static void test_load(void) {
    dtl_backend_t backend = DTL_BACKEND_NULL;
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    dtl_backend_info_t about = DTL_BACKEND_INFO_INIT;
    void* memory = NULL;
    first = plugin_count();
    CHECK_STATUS(dtl_plugin_at(first, &info), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &backend));
    CHECK(backend.id == find("good").id && find("good-too").id != backend.id);
    CHECK_OK(dtl_backend_info(backend, &about));
    CHECK(about.is_builtin == 0 && about.components == DTL_COMPONENT_MEMORY && about.auto_priority == 40);
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 100, 64, &memory));
    CHECK((uintptr_t)memory % 64 == 0);
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK(plugin_count() == first + 1);
    CHECK_OK(dtl_plugin_at(first, &info));
    CHECK(info.state == DTL_PLUGIN_LOADED && info.status == DTL_SUCCESS && info.abi_version == DTL_ABI_VERSION);
    CHECK(strcmp(info.path, in(plugins, "good.so")) == 0 && info.reason[0] == 0);
    CHECK(strcmp(info.origin, "dtl_backend_load") == 0 && strcmp(info.name, "good") == 0);
    CHECK(strcmp(info.version, "1.2") == 0 && strcmp(info.description, "host memory, for tests") == 0);
    CHECK(strcmp(info.backends, "good, good-too") == 0);
    own_kind(backend);
}

/* The same file is the same plugin, whatever it is called. */
static void test_twice(void) {
    const dtl_backend_t good = find("good");
    dtl_backend_t again = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &again));
    CHECK(again.id == good.id);
    CHECK(symlink(in(plugins, "good.so"), in(own, "link.so")) == 0);
    again = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_load(in(own, "link.so"), &again));
    CHECK(again.id == good.id && plugin_count() == first + 1 && loads_of(in(plugins, "good.so")) == 1);
    CHECK(unlink(in(own, "link.so")) == 0);
}

static void test_two_of_one_name(void) {
    dtl_backend_t backend = {77};
    CHECK_STATUS(dtl_backend_load(in(plugins, "twin.so"), &backend), DTL_ERROR_ALREADY_EXISTS);
    CHECK(backend.id == 77);
    CHECK_TEXT("/twin.so");
    CHECK_TEXT("/good.so has registered good: remove one of the two files");
    CHECK_TEXT("a backend named good is registered already");
}

static void test_unregister_and_load_again(void) {
    const dtl_backend_t old = find("good");
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    dtl_backend_t again = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_unregister(old));
    CHECK(record_of("/good.so", &info) && strcmp(info.backends, "good-too") == 0);
    /* One of them is still there: the file is loaded. */
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &again));
    CHECK(again.id == find("good-too").id);
    CHECK_OK(dtl_backend_unregister(again));
    CHECK(record_of("/good.so", &info) && info.state == DTL_PLUGIN_IDLE && info.backends[0] == 0);
    CHECK_STATUS(dtl_backend_get("good", &again), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("/good.so had registered it, and it has been unregistered: dtl_backend_load");
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &again));
    CHECK(again.id == find("good").id && again.id != old.id && loads_of(in(plugins, "good.so")) == 2);
    /* Now the other one of that name may have it. */
    unregister_both("good");
    CHECK_OK(dtl_backend_load(in(plugins, "twin.so"), &again));
    CHECK(again.id == find("good").id);
    unregister_both("good");
}

static void test_finalize_and_again(void) {
    const char* path = in(plugins, "other.so");
    dtl_backend_t backend;
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    CHECK_OK(dtl_backend_load(path, &backend));
    CHECK(loads_of(path) == 1);
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_backend_load(path, &backend), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_backend_get("other", &backend), DTL_ERROR_NOT_FOUND);
    CHECK(record_of("/other.so", &info) && info.state == DTL_PLUGIN_IDLE);
    CHECK_OK(dtl_backend_load(path, &backend));
    CHECK(loads_of(path) == 2 && backend.id == find("other").id);
    unregister_both("other");
}

/* A number of a plugin's that is in memory. */
static int32_t number_of(const char* path, const char* name) {
    void* module = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    const int32_t* number;
    CHECK(module != NULL);
    number = (const int32_t*)dlsym(module, name);
    CHECK(number != NULL && dlclose(module) == 0);
    return *number;
}

/* A program that knows a kind by its name alone. */
static dtl_status_t run_on(const char* name) {
    const dtl_backend_t host = find("host");
    char in[40] = "there and back", out[40] = "";
    void *memory = NULL, *other = NULL;
    dtl_enum_word_t kind;
    CHECK_OK(dtl_enum_from_name(DTL_ENUM_MEMORY, name, &kind));
    DTL_TRY(dtl_mem_alloc(host, kind, sizeof in, 0, &memory));
    CHECK_OK(dtl_mem_alloc(host, kind, sizeof in, 0, &other));
    CHECK_OK(dtl_mem_copy(memory, in, sizeof in));
    CHECK_OK(dtl_mem_copy(other, memory, sizeof in));
    CHECK_OK(dtl_mem_copy(out, other, sizeof in));
    CHECK(strcmp(in, out) == 0);
    CHECK_STATUS(dtl_mem_copy_2d(out, 20, memory, 20, 10, 2), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("the card copies rows alone");
    CHECK_OK(dtl_mem_free(host, memory));
    return dtl_mem_free(host, other);
}

/* An accelerator in a plugin: its handlers come and go with its backends. */
static void test_handlers(void) {
    const char *path = in(plugins, "accelerator.so"), *fails = in(plugins, "accelerator_fails.so");
    dtl_backend_t backend;
    void* memory;
    dtl_enum_word_t kind;
    CHECK_OK(dtl_backend_load(path, NULL));
    CHECK_OK(run_on("PlugCard"));
    CHECK(number_of(path, "test_copies") == 3 && number_of(path, "test_late") == DTL_ERROR_INVALID_STATE);
    CHECK(number_of(path, "test_destroyed") == 1); /* of what it has unregistered itself */
    /* A backend in use stays, with its handlers; the one that they name takes its own along, the last one all. */
    CHECK_OK(dtl_enum_from_name(DTL_ENUM_MEMORY, "PlugCard", &kind));
    CHECK_OK(dtl_mem_alloc(find("host"), kind, 64, 0, &memory));
    CHECK_STATUS(dtl_backend_unregister(find("plugcard")), DTL_ERROR_BUSY);
    CHECK_OK(run_on("PlugCard"));
    CHECK_OK(dtl_mem_free(find("plugcard"), memory));
    CHECK_OK(dtl_backend_unregister(find("plugcard")));
    CHECK_STATUS(run_on("PlugCard"), DTL_ERROR_NOT_SUPPORTED);
    CHECK(number_of(path, "test_destroyed") == 1);
    CHECK_OK(dtl_backend_unregister(find("plugcard-too")));
    CHECK(number_of(path, "test_destroyed") == 2);
    /* One whose load fails leaves nothing behind. */
    CHECK_STATUS(dtl_backend_load(fails, &backend), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("its card is broken");
    CHECK_STATUS(run_on("PlugCard"), DTL_ERROR_NOT_SUPPORTED);
    CHECK(number_of(fails, "test_destroyed") == 2);
    /* Again, and by the end of the library. */
    CHECK_OK(dtl_backend_load(path, NULL));
    CHECK_OK(run_on("PlugCard"));
    CHECK_OK(dtl_finalize());
    CHECK(number_of(path, "test_destroyed") == 4);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_load(path, NULL));
    CHECK_OK(run_on("PlugCard"));
    CHECK_OK(dtl_backend_unregister(find("plugcard-too")));
    CHECK_OK(run_on("PlugCard"));
    CHECK_OK(dtl_backend_unregister(find("plugcard")));
    CHECK(number_of(path, "test_destroyed") == 6);
}

static int entered, heard;

/* The entry of a plugin: the library may be called, but not told to load. */
static dtl_status_t inside(const dtl_host_api_t* host, dtl_plugin_t* out) {
    dtl_backend_t backend;
    uint64_t count;
    (void)host, (void)out;
    entered++;
    CHECK_STATUS(dtl_backend_get("nobody", &backend), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_backend_get("auto", &backend));
    CHECK_OK(dtl_plugin_count(&count));
    CHECK_STATUS(dtl_backend_load(in(plugins, "other.so"), &backend), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_backend_load_dir(plugins, &count), DTL_ERROR_BUSY);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    return DTL_ERROR_UNAVAILABLE;
}

/* The lines of a load come after it, so this may load. */
static void listen(int32_t level, const char* text, void* user) {
    (void)level, (void)user;
    if (strstr(text, "registers") == NULL) return;
    heard++;
    CHECK_OK(dtl_backend_load(in(plugins, "other.so"), NULL));
}

static void test_calls_from_inside(void) {
    CHECK_STATUS(dtl_plugin_register(inside, NULL), DTL_ERROR_UNAVAILABLE);
    CHECK(entered == 1);
    CHECK_OK(dtl_log_set_callback(listen, NULL, DTL_LOG_DEBUG));
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), NULL));
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    CHECK(heard == 2);
    unregister_both("good");
    unregister_both("other");
}

static const char* both[2];

static void* load_both(void* number) {
    const int begin = *(int*)number;
    int i;
    for (i = 0; i < 2; i++) {
        dtl_backend_t backend = DTL_BACKEND_NULL;
        uint64_t count;
        CHECK_OK(dtl_backend_load(both[(begin + i) % 2], &backend));
        CHECK(backend.id != 0);
        CHECK_OK(dtl_backend_count(&count));
        CHECK_OK(dtl_plugin_count(&count));
    }
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[8];
    int numbers[8], round, i;
    both[0] = in(plugins, "good.so");
    both[1] = in(plugins, "other.so");
    for (round = 0; round < 20; round++) {
        const int good = loads_of(both[0]), other = loads_of(both[1]);
        for (i = 0; i < 8; i++) {
            numbers[i] = i;
            CHECK(pthread_create(&threads[i], NULL, load_both, &numbers[i]) == 0);
        }
        for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(loads_of(both[0]) == good + 1 && loads_of(both[1]) == other + 1);
        unregister_both("good");
        unregister_both("other");
    }
}

static void test_fork(void) {
    int status = 0;
    pid_t child;
    dtl_backend_t backend;
    CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &backend));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_STATUS(dtl_backend_load(in(plugins, "good.so"), &backend), DTL_ERROR_FORKED);
        CHECK_OK(dtl_init_after_fork());
        CHECK_STATUS(dtl_backend_get("good", &backend), DTL_ERROR_NOT_FOUND);
        CHECK_OK(dtl_backend_load(in(plugins, "good.so"), &backend));
        CHECK(backend.id == find("good").id);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(backend.id == find("good").id);
    unregister_both("good");
}

static void* find_too(void* unused) {
    dtl_backend_t backend;
    CHECK_OK(dtl_backend_get("good-too", &backend));
    return unused;
}

/* Who comes while another thread searches waits for the end of the search. */
static void test_first_use_in_threads(void) {
    const char* good = in(plugins, "good.so");
    pthread_t threads[8];
    int round, i;
    CHECK(setenv("DTL_PLUGIN_PATH", good, 1) == 0);
    for (round = 0; round < 20; round++) {
        const int before = loads_of(good);
        CHECK_OK(dtl_finalize());
        CHECK_OK(dtl_init(NULL));
        for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, find_too, NULL) == 0);
        for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(loads_of(good) == before + 1);
    }
    CHECK(unsetenv("DTL_PLUGIN_PATH") == 0);
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
}

/* Nothing is loaded for who names a built-in backend; the rest searches, once. */
static void test_path(void) {
    const char *good = copy_of("good.so", "b-good.so"), *other = copy_of("other.so", "a-other.so");
    dtl_backend_t backend;
    dtl_plugin_info_t info = DTL_PLUGIN_INFO_INIT;
    char path[256];
    write_file(in(own, "c-broken.so"), "nonsense", 8);
    write_file(in(own, "readme.txt"), "nonsense", 8);
    snprintf(path, sizeof path, ":/no/such/folder:%s:", own);
    CHECK(setenv("DTL_PLUGIN_PATH", path, 1) == 0);
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    CHECK(find("host").id != 0 && loads_of(good) == -1);
    CHECK(find("good").id != 0 && loads_of(good) == 1 && loads_of(other) == 1);
    CHECK(find("other-too").id != 0 && loads_of(other) == 1);
    CHECK(record_of("/b-good.so", &info) && info.state == DTL_PLUGIN_LOADED);
    CHECK(strcmp(info.origin, "DTL_PLUGIN_PATH") == 0);
    CHECK(record_of("/no/such/folder", &info) && info.state == DTL_PLUGIN_FAILED && info.status == DTL_ERROR_NOT_FOUND);
    CHECK(record_of("/c-broken.so", &info) && info.status == DTL_ERROR_INVALID_ARGUMENT);
    CHECK(!record_of("/readme.txt", &info));
    CHECK_STATUS(dtl_backend_get("nobody", &backend), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("/no/such/folder: there is no such file or folder");
    CHECK_TEXT("c-broken.so: it is no shared object");
    CHECK(loads_of(good) == 1);
    /* The next opening registers them again; the automatic choice and the kinds of communicators search too. */
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    CHECK(find("auto").id == find("host").id && loads_of(good) == 2);
    CHECK(setenv("DTL_PLUGIN_PATH", other, 1) == 0);
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        dtl_comm_t comm;
        desc.kind = "good";
        CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_NOT_FOUND);
    }
    CHECK(loads_of(good) == 2 && loads_of(other) == 3); /* a file by itself in the path */
    /* A plugin's backend as the default one. */
    CHECK(setenv("DTL_BACKEND", "other-too", 1) == 0);
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get(NULL, &backend));
    CHECK(strcmp(dtl_backend_name(backend), "other-too") == 0 && loads_of(other) == 4);
    CHECK(unsetenv("DTL_PLUGIN_PATH") == 0 && unsetenv("DTL_BACKEND") == 0);
}

int main(int argc, char** argv) {
    plugins_begin(argc, argv);
    CHECK(unsetenv("DTL_PLUGIN_PATH") == 0);
    DTL_IGNORE(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    CHECK_OK(dtl_init(NULL));
    test_load();
    test_twice();
    test_two_of_one_name();
    test_unregister_and_load_again();
    test_finalize_and_again();
    test_calls_from_inside();
    test_handlers();
    test_threads();
    if (argc == 2) test_fork();
    test_first_use_in_threads();
    test_path();
    CHECK_OK(dtl_finalize());
    puts("test_plugin: all checks passed");
    return 0;
}
