/* Memory that crosses from process to process: handles that are good, stale, damaged and made up, exporters that are
 * killed, descriptors that run out, threads, forks. Other processes are forked here; test_mem_shared.c
 * has the ranks of communicators. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "far.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* What lies where in a handle: src/runtime/memory/ipc_handle.rs and src/backend/host/blocks.rs say so. */
enum { FORMAT, SUM, NODE, KIND, SIZE, ALIGN_AND_NAME, NAME, NAME_2, PID_AND_DESCRIPTOR, STARTED, NAMESPACE, NONCE, USER, REST };

static dtl_backend_t host;

static dtl_mem_stats_t stats(void) {
    dtl_mem_stats_t now = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(host, &now));
    return now;
}

static unsigned char *take(uint64_t size, uint64_t alignment) {
    void *memory = NULL;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_SHARED, size, alignment, &memory));
    return (unsigned char *)memory;
}

static dtl_mem_handle_t export_of(const void *memory) {
    dtl_mem_handle_t handle;
    CHECK_OK(dtl_mem_export(memory, &handle));
    return handle;
}

static unsigned char *import_of(const dtl_mem_handle_t *handle, uint64_t expected) {
    void *memory = NULL;
    uint64_t size = 0;
    CHECK_OK(dtl_mem_import(host, handle, &memory, &size));
    CHECK(size == expected);
    return (unsigned char *)memory;
}

static void release(void *memory) { CHECK_OK(dtl_mem_free(host, memory)); }

/* Not imported, nothing written, nothing counted. */
static void refused(dtl_backend_t backend, const dtl_mem_handle_t *handle, dtl_status_t status, const char *words) {
    const uint64_t before = stats().live_count;
    void *memory = &host;
    uint64_t size = 77;
    CHECK_STATUS(dtl_mem_import(backend, handle, &memory, &size), status);
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\"\n", words);
    CHECK_TEXT(words);
    CHECK(memory == &host && size == 77 && stats().live_count == before);
}

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

static void test_kind(void) {
    dtl_mem_kind_info_t info = DTL_MEM_KIND_INFO_INIT;
    const uint64_t wanted = DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_EXPORTABLE | DTL_MEMORY_THREAD_SAFE;
    CHECK(sizeof(dtl_mem_handle_t) == 128);
    CHECK_OK(dtl_mem_kind_info(host, DTL_MEMORY_SHARED, &info));
    CHECK((info.properties & wanted) == wanted && info.alignment >= 4096);
    CHECK_OK(dtl_mem_kind_info(host, DTL_MEMORY_HOST, &info));
    CHECK((info.properties & DTL_MEMORY_EXPORTABLE) == 0);
}

/* One memory under several addresses, each an allocation by itself. */
static void test_same_memory(uint64_t size, uint64_t alignment) {
    const dtl_mem_stats_t before = stats();
    const int files = open_files();
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    unsigned char *first = take(size, alignment), *second, *third;
    void *given = NULL;
    dtl_mem_handle_t handle = export_of(first), again = export_of(first);
    CHECK(memcmp(&handle, &again, sizeof handle) == 0);
    CHECK(open_files() == files + 1);
    second = import_of(&handle, size);
    CHECK_OK(dtl_mem_import(DTL_BACKEND_NULL, &handle, &given, NULL));
    third = (unsigned char *)given;
    CHECK(open_files() == files + 1); /* imports keep no descriptor */
    CHECK(first != second && second != third && first != third);
    if (alignment != 0) CHECK((uintptr_t)first % alignment == 0 && (uintptr_t)second % alignment == 0);
    CHECK((uintptr_t)third % 4096 == 0);
    CHECK(stats().live_bytes == before.live_bytes + 3 * size && stats().live_count == before.live_count + 3);
    CHECK(stats().total_count == before.total_count + 3 && stats().reserved_bytes >= stats().live_bytes);
    CHECK_OK(dtl_mem_query(second + size - 1, &info));
    CHECK(info.base == second && info.size_bytes == size && info.kind == DTL_MEMORY_SHARED && info.backend.id == host.id);
    CHECK(first[0] == 0 && second[size - 1] == 0);
    CHECK_OK(dtl_mem_fill(first, 7, size));
    CHECK(second[0] == 7 && third[size - 1] == 7);
    third[size / 2] = 9;
    CHECK(first[size / 2] == 9);
    CHECK_STATUS(dtl_mem_copy(second, first, size + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_free(host, second + 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_export(second, &again), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("pass on the handle");
    release(first);
    CHECK_STATUS(dtl_mem_free(host, first), DTL_ERROR_INVALID_ARGUMENT);
    refused(host, &handle, DTL_ERROR_INVALID_HANDLE, "has freed the memory");
    second[0] = 11; /* the memory stays for those who have it */
    CHECK(third[0] == 11 && (size == 1 || third[size / 2] == 9));
    release(second);
    CHECK_STATUS(dtl_mem_free(host, second), DTL_ERROR_INVALID_ARGUMENT);
    release(third);
    CHECK(stats().live_bytes == before.live_bytes && stats().live_count == before.live_count && open_files() == files);
}

static void test_not_exportable(void) {
    dtl_mem_handle_t handle, before;
    dtl_backend_t null;
    dtl_pool_t pool;
    void *memory = NULL;
    char own = 0;
    memset(&handle, 5, sizeof handle);
    before = handle;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 100, 0, &memory));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("DTL_MEMORY_SHARED");
    release(memory);
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 100, 0, &memory));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("DTL_MEMORY_SHARED");
    release(memory);
    memory = take(100, 0);
    CHECK_STATUS(dtl_mem_export((char *)memory + 8, &handle), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("8 bytes behind");
    CHECK_STATUS(dtl_mem_export(memory, NULL), DTL_ERROR_NULL_POINTER);
    release(memory);
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_export(&own, &handle), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_mem_export(NULL, &handle), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_pool_create(host, DTL_MEMORY_SHARED, NULL, &pool));
    CHECK_OK(dtl_pool_alloc(pool, 100, 0, &memory));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("pool");
    CHECK_OK(dtl_pool_free(pool, memory));
    CHECK_OK(dtl_pool_destroy(pool));
    CHECK_OK(dtl_backend_get("null", &null));
    CHECK_OK(dtl_mem_alloc(null, DTL_MEMORY_HOST, 100, 0, &memory));
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("backend null");
    CHECK_OK(dtl_mem_free(null, memory));
    CHECK(memcmp(&handle, &before, sizeof handle) == 0);
}

/* The program closes the descriptor that keeps a block: nobody could import, so nothing is exported. */
static void test_closed_descriptor(void) {
    unsigned char *memory = take(5000, 0);
    dtl_mem_handle_t handle = export_of(memory);
    const int number = (int)(handle.opaque[PID_AND_DESCRIPTOR] >> 32), kept = dup(number);
    CHECK(close(number) == 0);
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_INVALID_STATE);
    CHECK(dup2(STDERR_FILENO, number) == number);
    CHECK_STATUS(dtl_mem_export(memory, &handle), DTL_ERROR_INVALID_STATE);
    CHECK(strstr(dtl_last_error(), "has closed what it did not open") != NULL);
    CHECK(dup2(kept, number) == number);
    CHECK_OK(dtl_mem_export(memory, &handle));
    close(kept);
    release(memory);
}

/* In a container that still sees the /proc outside: its processes have other names there. */
static void test_proc_of_another_namespace(void) {
    const pid_t child = fork();
    int status;
    CHECK(child >= 0);
    if (child == 0) {
        dtl_mem_handle_t handle;
        pid_t inside;
        if (unshare(CLONE_NEWPID) != 0) {
            puts("not tested: unshare(CLONE_NEWPID) is not allowed here");
            fflush(stdout);
            _exit(0);
        }
        inside = fork();
        CHECK(inside >= 0);
        if (inside != 0) {
            CHECK(waitpid(inside, &status, 0) == inside);
            _exit(status != 0);
        }
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_backend_get("host", &host));
        CHECK_STATUS(dtl_mem_export(take(100, 0), &handle), DTL_ERROR_UNAVAILABLE);
        CHECK(strstr(dtl_last_error(), "PID namespace") != NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* ---- handles that are not what was exported ---- */

static uint64_t hash_of(const void *bytes, uint64_t size) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325), i;
    for (i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* As somebody would make it who knows how. */
static void seal(dtl_mem_handle_t *handle) {
    handle->opaque[SUM] = 0;
    handle->opaque[SUM] = hash_of(handle, sizeof *handle);
}

static void forged(const dtl_mem_handle_t *good, int word, uint64_t value, dtl_status_t status, const char *words) {
    dtl_mem_handle_t bad = *good;
    bad.opaque[word] = value;
    seal(&bad);
    refused(host, &bad, status, words);
}

static uint64_t place(pid_t pid, int descriptor) { return (uint64_t)pid | (uint64_t)descriptor << 32; }

/* Files of all sorts where the handle says that the memory is. */
static void test_other_files(const dtl_mem_handle_t *good) {
    char name[40], folder[] = "/tmp/dtl-export-XXXXXX", fifo[64];
    const char *gone = "has freed the memory";
    int pipes[2], made, end;
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), 1000000), DTL_ERROR_INVALID_HANDLE, gone);
    CHECK(pipe(pipes) == 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), pipes[0]), DTL_ERROR_INVALID_HANDLE, gone);
    made = open("/dev/zero", O_RDWR);
    CHECK(made >= 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), made), DTL_ERROR_INVALID_HANDLE, gone);
    close(made);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    CHECK(mkfifo(fifo, 0600) == 0);
    made = open(fifo, O_RDONLY | O_NONBLOCK); /* opening it to write would wait for ever, or wake somebody */
    CHECK(made >= 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), made), DTL_ERROR_INVALID_HANDLE, gone);
    close(made);
    CHECK(unlink(fifo) == 0);
    /* A file of the right name and size in a real folder. */
    snprintf(name, sizeof name, "dtl-%016llx", (unsigned long long)good->opaque[NONCE]);
    snprintf(fifo, sizeof fifo, "%s/%s", folder, name);
    made = open(fifo, O_RDWR | O_CREAT, 0600);
    CHECK(made >= 0 && ftruncate(made, 8192) == 0 && unlink(fifo) == 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), made), DTL_ERROR_INVALID_HANDLE, gone);
    close(made);
    CHECK(rmdir(folder) == 0);
    /* Memory of the right name and size that somebody could cut short: touching it then would be SIGBUS. */
    made = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(made >= 0 && ftruncate(made, 8192) == 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), made), DTL_ERROR_INVALID_ARGUMENT, "does not fit");
    CHECK(fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), made), DTL_ERROR_INVALID_ARGUMENT, "does not fit");
    close(made);
    made = open("/proc/self/exe", O_RDONLY);
    end = dup(made);
    forged(good, PID_AND_DESCRIPTOR, place(getpid(), end), DTL_ERROR_INVALID_HANDLE, gone);
    close(made), close(end), close(pipes[0]), close(pipes[1]);
}

static void test_forged(void) {
    unsigned char *memory = take(5000, 0);
    const dtl_mem_handle_t good = export_of(memory);
    const uint64_t *word = good.opaque;
    dtl_mem_handle_t bad = good;
    dtl_backend_t far;
    size_t i;
    CHECK(hash_of("a", 1) == UINT64_C(0xAF63DC4C8601EC8C));
    seal(&bad);
    CHECK(memcmp(&bad, &good, sizeof good) == 0);
    refused(host, NULL, DTL_ERROR_NULL_POINTER, "handle");
    refused(host, (const dtl_mem_handle_t *)((const char *)&good + 1), DTL_ERROR_INVALID_ARGUMENT, "aligned");
    memset(&bad, 0, sizeof bad);
    refused(host, &bad, DTL_ERROR_INVALID_HANDLE, "null");
    memset(&bad, 0xA5, sizeof bad);
    refused(host, &bad, DTL_ERROR_INVALID_ARGUMENT, "did not write");
    for (i = 0; i < sizeof good; i++) { /* each byte changed, and all behind it lost */
        const uint64_t before = stats().live_count;
        void *out = NULL;
        bad = good;
        ((unsigned char *)&bad)[i] ^= 0x10;
        CHECK(dtl_mem_import(host, &bad, &out, NULL) != DTL_SUCCESS && out == NULL);
        bad = good;
        memset((unsigned char *)&bad + i, 0, sizeof bad - i);
        if (memcmp(&bad, &good, sizeof good) == 0) continue;
        CHECK(dtl_mem_import(host, &bad, &out, NULL) != DTL_SUCCESS && out == NULL && stats().live_count == before);
    }
    bad = good;
    bad.opaque[NONCE] ^= 1;
    refused(host, &bad, DTL_ERROR_INVALID_ARGUMENT, "128 bytes");
    forged(&good, FORMAT, word[FORMAT] + (UINT64_C(1) << 32), DTL_ERROR_INCOMPATIBLE_ABI, "format 2");
    forged(&good, NODE, word[NODE] + 1, DTL_ERROR_NOT_SUPPORTED, "another node");
    forged(&good, KIND, DTL_MEMORY_HOST, DTL_ERROR_INVALID_ARGUMENT, "memory kind");
    forged(&good, SIZE, 0, DTL_ERROR_INVALID_ARGUMENT, "size_bytes 0");
    forged(&good, SIZE, 9000, DTL_ERROR_INVALID_ARGUMENT, "does not fit");
    forged(&good, SIZE, 100, DTL_ERROR_INVALID_ARGUMENT, "does not fit");
    forged(&good, SIZE, UINT64_C(1) << 62, DTL_ERROR_INVALID_ARGUMENT, "does not fit");
    forged(&good, SIZE, UINT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "size_bytes");
    forged(&good, ALIGN_AND_NAME, word[ALIGN_AND_NAME] | 0x3F, DTL_ERROR_INVALID_ARGUMENT, "alignment");
    forged(&good, ALIGN_AND_NAME, word[ALIGN_AND_NAME] | 0xFF, DTL_ERROR_INVALID_ARGUMENT, "alignment");
    forged(&good, ALIGN_AND_NAME, word[ALIGN_AND_NAME] ^ 0x100, DTL_ERROR_INVALID_ARGUMENT, "backend");
    forged(&good, NAME, word[NAME] + 1, DTL_ERROR_INVALID_ARGUMENT, "not of host");
    forged(&good, NAME_2, 1, DTL_ERROR_INVALID_ARGUMENT, "not of host");
    forged(&good, PID_AND_DESCRIPTOR, place(1, (int)(word[PID_AND_DESCRIPTOR] >> 32)), DTL_ERROR_INVALID_HANDLE, "has ended");
    forged(&good, PID_AND_DESCRIPTOR, place(0x7FFFFFFF, 5), DTL_ERROR_INVALID_HANDLE, "has ended");
    forged(&good, PID_AND_DESCRIPTOR, 0, DTL_ERROR_INVALID_ARGUMENT, "names no process");
    forged(&good, PID_AND_DESCRIPTOR, UINT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "names no process");
    forged(&good, STARTED, word[STARTED] - 1, DTL_ERROR_INVALID_HANDLE, "its id is another's");
    forged(&good, NAMESPACE, word[NAMESPACE] + 1, DTL_ERROR_NOT_SUPPORTED, "PID namespace");
    forged(&good, NONCE, word[NONCE] + 1, DTL_ERROR_INVALID_HANDLE, "has freed the memory");
    forged(&good, USER, UINT64_MAX, DTL_ERROR_INVALID_ARGUMENT, "names no process");
    forged(&good, REST, 1, DTL_ERROR_INVALID_ARGUMENT, "names no process");
    test_other_files(&good);
    CHECK_OK(dtl_backend_get("null", &far));
    refused(far, &good, DTL_ERROR_NOT_SUPPORTED, "backend null");
    release(import_of(&good, 5000));
    release(memory);
}

/* ---- other processes ---- */

/* A process that has exported `size` bytes and waits until its end of the pipe is closed. It frees them first if
 * it is told a byte. */
struct exporter {
    pid_t pid;
    int tell, hear;
    dtl_mem_handle_t handle;
};

static struct exporter start_exporter(uint64_t size, uid_t user) {
    struct exporter other;
    int down[2], up[2];
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    other.pid = fork();
    CHECK(other.pid >= 0);
    if (other.pid == 0) {
        unsigned char *memory;
        char byte = 0;
        close(down[1]), close(up[0]);
        if (user != 0) CHECK(setuid(user) == 0);
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_backend_get("host", &host));
        memory = take(size, 0);
        memory[0] = 42;
        other.handle = export_of(memory);
        CHECK(write(up[1], &other.handle, sizeof other.handle) == (ssize_t)sizeof other.handle);
        if (read(down[0], &byte, 1) == 1) {
            release(memory);
            CHECK(write(up[1], &byte, 1) == 1);
            CHECK(read(down[0], &byte, 1) == 0);
        }
        _exit(0);
    }
    close(down[0]), close(up[1]);
    other.tell = down[1], other.hear = up[0];
    CHECK(read(other.hear, &other.handle, sizeof other.handle) == (ssize_t)sizeof other.handle);
    return other;
}

static void end_exporter(const struct exporter *other) {
    int code = 0;
    close(other->tell), close(other->hear);
    CHECK(waitpid(other->pid, &code, 0) == other->pid && WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static void test_killed_exporter(void) {
    struct exporter other = start_exporter(3 * MIB, 0);
    unsigned char *memory = import_of(&other.handle, 3 * MIB);
    siginfo_t info;
    CHECK(memory[0] == 42 && memory[3 * MIB - 1] == 0);
    CHECK(kill(other.pid, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)other.pid, &info, WEXITED | WNOWAIT) == 0);
    refused(host, &other.handle, DTL_ERROR_INVALID_HANDLE, "has ended"); /* nobody has waited for it yet */
    CHECK(waitpid(other.pid, NULL, 0) == other.pid);
    refused(host, &other.handle, DTL_ERROR_INVALID_HANDLE, "has ended");
    memset(memory, 1, 3 * MIB);
    CHECK(memory[0] == 1 && memory[3 * MIB - 1] == 1);
    release(memory);
    close(other.tell), close(other.hear);
}

static void test_freed_there(void) {
    struct exporter other = start_exporter(100, 0);
    unsigned char *memory = import_of(&other.handle, 100);
    char byte = 1;
    CHECK(write(other.tell, &byte, 1) == 1 && read(other.hear, &byte, 1) == 1);
    refused(host, &other.handle, DTL_ERROR_INVALID_HANDLE, "has freed the memory");
    CHECK(memory[0] == 42);
    release(memory);
    end_exporter(&other);
}

/* Who may look at whose memory is the kernel's to say. Root may look at all, so the child that looks is not. */
static void test_other_user(void) {
    const uid_t nobody = 65534;
    struct exporter roots, own;
    pid_t child;
    int code = 0;
    if (geteuid() != 0) {
        puts("other users: skipped, needs root");
        return;
    }
    roots = start_exporter(100, 0);
    own = start_exporter(100, nobody);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setuid(nobody) == 0);
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_backend_get("host", &host));
        refused(host, &roots.handle, DTL_ERROR_MEMORY, "user 0");
        /* Who has changed its user may not be looked at by others of that user either. */
        refused(host, &own.handle, DTL_ERROR_MEMORY, "same privileges");
        _exit(0);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 0);
    end_exporter(&own); /* it has the other one's pipe, too */
    end_exporter(&roots);
}

static void test_fork(void) {
    unsigned char *memory = take(4096, 0);
    const dtl_mem_handle_t handle = export_of(memory);
    const pid_t child = fork();
    int code = 0;
    CHECK(child >= 0);
    if (child == 0) {
        dtl_mem_handle_t own;
        unsigned char *again;
        void *out = NULL;
        CHECK_STATUS(dtl_mem_export(memory, &own), DTL_ERROR_FORKED);
        CHECK_STATUS(dtl_mem_import(host, &handle, &out, NULL), DTL_ERROR_FORKED);
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_backend_get("host", &host));
        CHECK_STATUS(dtl_mem_export(memory, &own), DTL_ERROR_NOT_FOUND);
        CHECK_STATUS(dtl_mem_free(host, memory), DTL_ERROR_INVALID_ARGUMENT);
        again = import_of(&handle, 4096);
        again[5] = 5;
        CHECK(memory[5] == 5);
        release(again);
        memory[6] = 6;
        CHECK_OK(dtl_finalize());
        _exit(0);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 0);
    CHECK(memory[5] == 5 && memory[6] == 6);
    release(memory);
}

/* ---- limits, threads, what is left over ---- */

static void test_descriptors(void) {
    const dtl_mem_stats_t before = stats();
    unsigned char *blocks[64], *first = take(100, 0);
    const dtl_mem_handle_t handle = export_of(first);
    struct rlimit limit, low;
    void *out = NULL;
    int count = 0;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = 40;
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    while (count < 64) {
        const dtl_status_t status = dtl_mem_alloc(host, DTL_MEMORY_SHARED, 100, 0, &out);
        if (status != DTL_SUCCESS) break;
        blocks[count++] = (unsigned char *)out;
    }
    CHECK(count > 5 && count < 40);
    CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_SHARED, 100, 0, &out), DTL_ERROR_LIMIT);
    CHECK_TEXT("ulimit -n");
    CHECK(stats().live_count == before.live_count + 1 + (uint64_t)count);
    refused(host, &handle, DTL_ERROR_LIMIT, "ulimit -n");
    release(blocks[--count]);
    refused(host, &handle, DTL_ERROR_LIMIT, "ulimit -n"); /* it looks with one, and opens with another */
    release(blocks[--count]);
    release(import_of(&handle, 100));
    while (count > 0) release(blocks[--count]);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    release(first);
    CHECK(stats().live_count == before.live_count && stats().live_bytes == before.live_bytes);
    CHECK_STATUS(dtl_mem_alloc(host, DTL_MEMORY_SHARED, UINT64_C(1) << 55, 0, &out), DTL_ERROR_OUT_OF_MEMORY);
    CHECK(stats().live_count == before.live_count);
}

static dtl_mem_handle_t shared_handle;

static void *import_often(void *user) {
    const int number = (int)(intptr_t)user;
    int round;
    for (round = 0; round < 100; round++) {
        unsigned char *memory = import_of(&shared_handle, 64 * 1024);
        memory[number * 4096 + round] = (unsigned char)(number + 1);
        release(memory);
    }
    return NULL;
}

static void test_threads(void) {
    const uint64_t before = stats().live_count;
    unsigned char *memory = take(64 * 1024, 0);
    pthread_t threads[8];
    int i, round;
    shared_handle = export_of(memory);
    for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, import_often, (void *)(intptr_t)i) == 0);
    for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 8; i++) {
        for (round = 0; round < 100; round++) CHECK(memory[i * 4096 + round] == i + 1);
    }
    release(memory);
    CHECK(stats().live_count == before);
}

/* What is not freed goes with dtl_finalize. */
static void test_left_over(int files) {
    unsigned char *memory = take(MIB, MIB);
    const dtl_mem_handle_t handle = export_of(memory);
    void *out = NULL;
    import_of(&handle, MIB);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_mem_export(memory, &shared_handle), DTL_ERROR_INVALID_STATE);
    CHECK(open_files() == files);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK(stats().live_count == 0 && stats().live_bytes == 0);
    CHECK_STATUS(dtl_mem_import(host, &handle, &out, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_finalize());
}

int main(int argc, char **argv) {
    const int files = open_files();
    const int is_alone = argc > 1 && strcmp(argv[1], "alone") == 0; /* no forks, for tools that judge them too */
    CHECK_OK(dtl_backend_get("host", &host));
    test_kind();
    test_same_memory(1, 0);
    test_same_memory(5000, 64);
    test_same_memory(3 * MIB + 1, 4096);
    test_same_memory(100, 2 * MIB);
    test_same_memory(MIB, 32 * MIB);
    test_not_exportable();
    test_closed_descriptor();
    test_forged();
    if (!is_alone) {
        test_proc_of_another_namespace();
        test_killed_exporter();
        test_freed_there();
        test_other_user();
        test_fork();
    }
    test_descriptors();
    test_threads();
    test_left_over(files);
    puts("mem_export: all checks passed");
    return 0;
}
