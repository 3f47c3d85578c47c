/* What is special about the example plugin "sim" (argument: "sim_cpp", its C++ version): memory that the host cannot
 * access, copies between its devices, its programs, memory of two processes, faults on request. The rest is dtl-ctk's. */
#define _GNU_SOURCE
#include "../c/check.h"
#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, SIZE = COUNT * 4 };
extern char **environ;
static const char *name = "sim";
static dtl_backend_t sim;

static void begin(const char *faults) {
    CHECK(faults == NULL ? unsetenv("DTL_BACKEND_SIM_FAULT") == 0 : setenv("DTL_BACKEND_SIM_FAULT", faults, 1) == 0);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get(name, &sim));
}

static int32_t *take(int32_t device, dtl_enum_word_t kind) {
    void *memory = NULL;
    CHECK_OK(dtl_backend_set_device(sim, device));
    CHECK_OK(dtl_mem_alloc(sim, kind, SIZE, 0, &memory));
    CHECK_OK(dtl_backend_set_device(sim, 0));
    return (int32_t *)memory;
}

static dtl_kernel_t kernel_of(int32_t device, const char *text, dtl_enum_word_t language, const char *which,
                              const char *signature) {
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    source.text = text, source.language = language;
    CHECK_OK(dtl_module_compile(sim, device, &source, &module));
    CHECK_OK(dtl_kernel_get(module, which, signature, &kernel));
    CHECK_OK(dtl_module_destroy(module));
    return kernel;
}

static dtl_kernel_t adding(int32_t device) { return kernel_of(device, "sim:firmware", DTL_LANGUAGE_BINARY, "add", "pi"); }

static dtl_status_t add(dtl_stream_t stream, dtl_kernel_t kernel, int32_t *to, int32_t what) {
    const void *const args[] = {&to, &what};
    const uint64_t sizes[] = {sizeof to, sizeof what};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    shape.grid[0] = COUNT / 100, shape.block[0] = 100;
    return dtl_kernel_launch(stream, kernel, &shape, args, sizes, 2);
}

static void check_all(const int32_t *memory, int32_t expected) {
    int32_t values[COUNT];
    int i;
    CHECK_OK(dtl_mem_copy(values, memory, SIZE));
    for (i = 0; i < COUNT; i++) CHECK(values[i] == expected);
}

/* The system refuses to read what the host cannot access. */
static void check_private(void) {
    int32_t *const memory = take(0, DTL_MEMORY_DEVICE), *const shared = take(0, DTL_MEMORY_PINNED);
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], memory, SIZE) == -1 && errno == EFAULT);
    CHECK(write(ends[1], shared, SIZE) == SIZE);
    close(ends[0]), close(ends[1]);
    CHECK_OK(dtl_mem_free(sim, memory));
    CHECK_OK(dtl_mem_free(sim, shared));
}

/* From one device to the other, by all kinds of copies; each device counts its own memory. */
static void check_peers(void) {
    uint64_t before[2], after[2], total;
    int32_t *first, *second, rows[4] = {0}, i;
    dtl_stream_t stream;
    for (i = 0; i < 2; i++) CHECK_OK(dtl_device_memory_info(sim, i, &before[i], &total));
    first = take(0, DTL_MEMORY_DEVICE), second = take(1, DTL_MEMORY_DEVICE);
    for (i = 0; i < 2; i++) CHECK_OK(dtl_device_memory_info(sim, i, &after[i], &total));
    CHECK(before[0] - after[0] == SIZE && before[1] - after[1] == SIZE);
    CHECK_OK(dtl_mem_fill(first, 1, SIZE));
    CHECK_OK(dtl_mem_copy(second, first, SIZE));
    check_all(second, 0x01010101);
    CHECK_OK(dtl_mem_fill(first, 2, SIZE));
    CHECK_OK(dtl_stream_create(sim, 1, 0, &stream));
    CHECK_OK(dtl_mem_copy_async(stream, second, first, SIZE));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    check_all(second, 0x02020202);
    CHECK_OK(dtl_mem_fill(first, 3, SIZE));
    CHECK_OK(dtl_mem_copy_2d(second, 8, first, 12, 4, 2));
    CHECK_OK(dtl_mem_copy(rows, second, sizeof rows));
    CHECK(rows[0] == 0x03030303 && rows[1] == 0x02020202 && rows[2] == 0x03030303 && rows[3] == 0x02020202);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(sim, first));
    CHECK_OK(dtl_mem_free(sim, second));
}

/* A signature that differs from the source is refused, and names the argument. */
static void check_signatures(void) {
    static const char *const bad[] = {"p", "pd", "pip", "fi", "p[8]", ""};
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    size_t i;
    source.text = "#include \"dtl_kernel.h\"\nDTL_KERNEL(f, (DTL_GLOBAL int*, to), (int, n)) { *to = n; }";
    CHECK_OK(dtl_module_compile(sim, 0, &source, &module));
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(dtl_kernel_get(module, "f", bad[i], &kernel), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(dtl_last_error(), "argument") != NULL);
    }
    CHECK_OK(dtl_kernel_get(module, "f", "p[4]", &kernel));
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_module_destroy(module));
}

/* Programs: of the firmware, and several of the same size from source, which are different ones. */
static void check_programs(void) {
    static const char *const texts[] = {
        "#include \"dtl_kernel.h\"\nDTL_KERNEL(f, (DTL_GLOBAL int*, to), (int, n)) { to[DTL_GLOBAL_ID(0)] += 2 * n; }",
        "#include \"dtl_kernel.h\"\nDTL_KERNEL(f, (DTL_GLOBAL int*, to), (int, n)) { to[DTL_GLOBAL_ID(0)] += 3 * n; }"};
    const dtl_kernel_t both[] = {kernel_of(1, texts[0], 0, "f", "pi"), kernel_of(1, texts[1], 0, "f", "pi")};
    const dtl_kernel_t own = adding(1), elsewhere = adding(0);
    const float a = 2;
    const uint64_t sizes[] = {4, 8, 8, 4}, bad_sizes[] = {8, 8, 8, 4};
    const dtl_kernel_t saxpy = kernel_of(1, "sim:firmware", DTL_LANGUAGE_BINARY, "saxpy", "fppI");
    int32_t *const memory = take(1, DTL_MEMORY_DEVICE), *const x = take(0, DTL_MEMORY_DEVICE);
    const uint32_t n = 3;
    const float ones[] = {1, 1, 1, 1};
    float got[4];
    const void *const args[] = {&a, &x, &memory, &n};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create(sim, 1, 0, &stream));
    CHECK_OK(dtl_mem_fill_async(stream, memory, 0, SIZE));
    CHECK_STATUS(add(stream, elsewhere, memory, 7), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(add(stream, own, memory, 5));
    CHECK_OK(add(stream, both[0], memory, 10));
    CHECK_OK(add(stream, both[1], memory, 100));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    check_all(memory, 325);
    CHECK_OK(dtl_mem_copy(memory, ones, sizeof ones));
    CHECK_OK(dtl_mem_copy(x, ones, sizeof ones));
    shape.block[0] = 100;
    CHECK_OK(dtl_kernel_launch(stream, saxpy, &shape, args, sizes, 4));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_copy(got, memory, sizeof got));
    CHECK(got[0] == 3 && got[1] == 3 && got[2] == 3 && got[3] == 1);
    CHECK_STATUS(dtl_kernel_launch(stream, saxpy, &shape, args, bad_sizes, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_kernel_destroy(both[0]));
    CHECK_OK(dtl_kernel_destroy(both[1]));
    CHECK_OK(dtl_kernel_destroy(own));
    CHECK_OK(dtl_kernel_destroy(elsewhere));
    CHECK_OK(dtl_kernel_destroy(saxpy));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(sim, memory));
    CHECK_OK(dtl_mem_free(sim, x));
}

/* The other process: adds 1 to each element of the memory whose handle standard input has. */
static int importer(void) {
    dtl_mem_handle_t handle;
    void *memory = NULL;
    uint64_t size = 0;
    int i;
    begin(NULL);
    CHECK(read(0, &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK_OK(dtl_mem_import(sim, &handle, &memory, &size));
    CHECK(size == SIZE);
    for (i = 0; i < COUNT; i++) ((int32_t *)memory)[i] += 1;
    CHECK_OK(dtl_mem_free(sim, memory));
    CHECK_OK(dtl_finalize());
    return 0;
}

static void check_processes(char *self) {
    int32_t *const memory = take(0, DTL_MEMORY_SHARED);
    char *const words[] = {self, (char *)(uintptr_t)name, (char *)(uintptr_t)"import", NULL};
    posix_spawn_file_actions_t actions;
    dtl_mem_handle_t handle;
    int ends[2], status = -1;
    pid_t child;
    CHECK_OK(dtl_mem_fill(memory, 0, SIZE));
    CHECK_OK(dtl_mem_export(memory, &handle));
    CHECK(pipe(ends) == 0 && write(ends[1], &handle, sizeof handle) == (ssize_t)sizeof handle);
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_adddup2(&actions, ends[0], 0) == 0);
    CHECK(posix_spawn(&child, self, &actions, NULL, words, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]), close(ends[1]);
    check_all(memory, 1);
    CHECK_OK(dtl_mem_free(sim, memory));
}

/* The second copy fails, the third does not; queued work fails in its stream and in later events, until it is reported. */
static void check_failures(void) {
    dtl_source_t source = DTL_SOURCE_INIT;
    void *none = NULL;
    int32_t *memory, values[COUNT] = {0};
    dtl_module_t module;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_event_t event;
    begin("alloc:2,copy:2,launch:1,compile:2,fill:1");
    memory = take(0, DTL_MEMORY_DEVICE);
    CHECK_STATUS(dtl_mem_alloc(sim, DTL_MEMORY_DEVICE, SIZE, 0, &none), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_OK(dtl_mem_copy(memory, values, SIZE));
    CHECK_STATUS(dtl_mem_copy(memory, values, SIZE), DTL_ERROR_BACKEND);
    CHECK(strstr(dtl_last_error(), "DTL_BACKEND_SIM_FAULT") != NULL);
    CHECK_OK(dtl_mem_copy(memory, values, SIZE));
    CHECK_STATUS(dtl_mem_fill(memory, 0, SIZE), DTL_ERROR_BACKEND);
    kernel = adding(0);
    source.text = "sim:firmware", source.language = DTL_LANGUAGE_BINARY;
    CHECK_STATUS(dtl_module_compile(sim, 0, &source, &module), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_stream_create(sim, 0, 0, &stream));
    CHECK_OK(dtl_event_create(sim, 0, &event));
    CHECK_OK(add(stream, kernel, memory, 1));
    CHECK_OK(add(stream, kernel, memory, 7));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK_STATUS(dtl_event_wait(event, DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    check_all(memory, 7);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(sim, memory));
    CHECK_OK(dtl_finalize());
}

/* The second command loses device 0, for good. Device 1 stays. */
static void check_lost(void) {
    int32_t *first, *second, values[COUNT] = {0};
    dtl_stream_t stream;
    void *none = NULL;
    begin("lost:2");
    first = take(0, DTL_MEMORY_DEVICE), second = take(1, DTL_MEMORY_DEVICE);
    CHECK_OK(dtl_stream_create(sim, 0, 0, &stream));
    CHECK_OK(dtl_mem_copy_async(stream, first, values, SIZE));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_mem_copy_async(stream, first, values, SIZE));
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_mem_copy(first, values, SIZE), DTL_ERROR_DEVICE_LOST);
    CHECK_STATUS(dtl_mem_alloc(sim, DTL_MEMORY_DEVICE, SIZE, 0, &none), DTL_ERROR_DEVICE_LOST);
    CHECK_OK(dtl_mem_fill(second, 1, SIZE));
    check_all(second, 0x01010101);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_mem_free(sim, first));
    CHECK_OK(dtl_mem_free(sim, second));
    CHECK_OK(dtl_finalize());
}

/* A text that is no fault is refused when the plugin is loaded. */
static void check_texts(void) {
    static const char *const bad[] = {"copy", "copy:0", "copy:x", "copies:1", "copy:1;fill:1", ":1"};
    size_t i;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(setenv("DTL_BACKEND_SIM_FAULT", bad[i], 1) == 0);
        CHECK_OK(dtl_init(NULL));
        CHECK_STATUS(dtl_backend_get(name, &sim), DTL_ERROR_NOT_FOUND);
        CHECK(strstr(dtl_last_error(), "expected operation:number") != NULL);
        CHECK_OK(dtl_finalize());
    }
}

static dtl_status_t arrives(void *user) {
    __atomic_add_fetch((int *)user, 1, __ATOMIC_RELEASE);
    return DTL_SUCCESS;
}

static void put(dtl_stream_t stream, dtl_kernel_t kernel, int32_t *first, int32_t *second) {
    const dtl_launch_t one = DTL_LAUNCH_INIT;
    const void *const args[] = {&first, &second};
    const uint64_t sizes[] = {sizeof first, sizeof second};
    CHECK_OK(dtl_kernel_launch(stream, kernel, &one, args, sizes, 2));
}

/* A device runs one kernel of a program at a time. While one waits for the host, three streams queue a kernel each, the
 * lowest priority first; the one with the highest runs first. Returns whether it did: a busy machine can be late. */
static int is_by_priority(dtl_kernel_t hold, dtl_kernel_t count, int32_t device) {
    int32_t *const shared = take(device, DTL_MEMORY_PINNED), *const counter = shared + 2, *const places = shared + 3;
    int32_t i;
    int arrived = 0, ordered;
    dtl_stream_t streams[3], first;
    memset(shared, 0, SIZE);
    CHECK_OK(dtl_stream_create(sim, device, 0, &first));
    put(first, hold, &shared[0], &shared[1]);
    while (__atomic_load_n(&shared[1], __ATOMIC_ACQUIRE) == 0) usleep(100);
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_stream_create_with_priority(sim, device, 0, 1 - i, &streams[i]));
        CHECK_OK(dtl_stream_host_callback(streams[i], arrives, &arrived));
        put(streams[i], count, counter, &places[i]);
        while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < i + 1) usleep(100);
    }
    usleep(50000); /* the threads of the streams are on their way to the device */
    __atomic_store_n(&shared[0], 1, __ATOMIC_RELEASE);
    CHECK_OK(dtl_stream_wait(first, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(first));
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_stream_wait(streams[i], DTL_TIMEOUT_INFINITE));
        CHECK_OK(dtl_stream_destroy(streams[i]));
    }
    CHECK(*counter == 3 && places[0] + places[1] + places[2] == 6);
    ordered = places[2] == 1 && places[1] == 2;
    CHECK_OK(dtl_mem_free(sim, shared));
    return ordered;
}

static void check_priorities(void) {
    static const char text[] = "#include \"dtl_kernel.h\"\n"
                               "DTL_KERNEL(hold, (DTL_GLOBAL volatile int*, until), (DTL_GLOBAL volatile int*, runs)) {\n"
                               "    *runs = 1;\n"
                               "    while (*until == 0) {}\n"
                               "}\n"
                               "DTL_KERNEL(count, (DTL_GLOBAL int*, counter), (DTL_GLOBAL int*, place)) { *place = ++*counter; }\n";
    dtl_kernel_t hold[2], count[2];
    int32_t least = 77, greatest = 77, device, round, ordered = 0;
    for (device = 0; device < 2; device++) {
        CHECK_OK(dtl_stream_priority_range(sim, device, &least, &greatest));
        CHECK(least == 1 && greatest == -1);
        hold[device] = kernel_of(device, text, 0, "hold", "pp");
        count[device] = kernel_of(device, text, 0, "count", "pp");
    }
    for (round = 0; round < 6; round++) ordered += is_by_priority(hold[round % 2], count[round % 2], round % 2);
    CHECK(ordered >= 4);
    for (device = 0; device < 2; device++) {
        CHECK_OK(dtl_kernel_destroy(hold[device]));
        CHECK_OK(dtl_kernel_destroy(count[device]));
    }
}

int main(int argc, char **argv) {
    if (argc > 1) name = argv[1];
    if (argc > 2) return importer();
    begin(NULL);
    check_private();
    check_peers();
    check_programs();
    check_signatures();
    check_priorities();
    check_processes(argv[0]);
    CHECK_OK(dtl_finalize());
    check_failures();
    check_lost();
    check_texts();
    begin(NULL);
    check_programs();
    CHECK_OK(dtl_finalize());
    return 0;
}
