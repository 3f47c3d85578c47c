/* Priorities of streams: the range of a device, clamped as CUDA does, what the slots of a registered table are given, tables
 * without the slots, and what is refused. Argument: none, or "cuda" for that backend. C11, and valid C++17. */
#include "check.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static struct {
    int32_t least, greatest, device, priority;
    int plain, with_priority, ranges;
    dtl_status_t failure, created;
    int is_null;
} seen;

static int a_stream;

static dtl_status_t create(void *self, int32_t device, uint64_t flags, void **out) {
    CHECK(self == &seen && flags == 0);
    seen.device = device, seen.plain++, *out = &a_stream;
    return DTL_SUCCESS;
}

static dtl_status_t create_with(void *self, int32_t device, uint64_t flags, int32_t priority, void **out) {
    CHECK(self == &seen && flags == 0 && priority != 0);
    seen.device = device, seen.priority = priority, seen.with_priority++, *out = seen.is_null ? NULL : &a_stream;
    return seen.created;
}

static dtl_status_t range(void *self, int32_t device, int32_t *least, int32_t *greatest) {
    CHECK(self == &seen && device == 0);
    seen.ranges++, *least = seen.least, *greatest = seen.greatest;
    return seen.failure;
}

static dtl_status_t one(void *self, void *stream) {
    CHECK(self == &seen && stream == &a_stream);
    return DTL_SUCCESS;
}

static dtl_exec_vtable_t whole(void) {
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    exec.stream_create = create, exec.stream_destroy = one, exec.stream_synchronize = one;
    exec.stream_priorities = range, exec.stream_create_with_priority = create_with;
    return exec;
}

static dtl_status_t add(const char *name, const dtl_exec_vtable_t *exec, dtl_backend_t *out) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    table.auto_priority = INT32_MIN, table.exec = exec;
    return dtl_backend_register(name, &table, &seen, 0, out);
}

static void gets(dtl_backend_t backend, int32_t asked, int32_t given) {
    const int plain = seen.plain, with = seen.with_priority;
    dtl_stream_t stream;
    CHECK_OK(dtl_stream_create_with_priority(backend, 0, 0, asked, &stream));
    CHECK(seen.plain == plain + (given == 0) && seen.with_priority == with + (given != 0));
    CHECK(given == 0 || seen.priority == given);
    CHECK_OK(dtl_stream_destroy(stream));
}

static void test_table(void) {
    dtl_exec_vtable_t exec = whole();
    dtl_backend_t card, old, half = {77};
    dtl_stream_t stream = {77};
    int32_t least = 77, greatest = 77;
    CHECK_OK(add("card", &exec, &card));
    seen.least = 2, seen.greatest = -3;
    CHECK_OK(dtl_stream_priority_range(card, 0, &least, &greatest));
    CHECK(least == 2 && greatest == -3);
    gets(card, -2, -2), gets(card, 2, 2), gets(card, 0, 0);
    gets(card, -4, -3), gets(card, INT32_MIN, -3), gets(card, INT32_MAX, 2);
    seen.least = 0, seen.greatest = 0;
    gets(card, -1, 0), gets(card, 1, 0);
    /* A plain stream does not ask. */
    seen.ranges = 0;
    CHECK_OK(dtl_stream_create(card, 0, 0, &stream));
    CHECK_OK(dtl_stream_destroy(stream));
    gets(card, 0, 0);
    CHECK(seen.ranges == 0);
    /* What the slot gets wrong, and its failure. */
    stream.id = 77;
    seen.least = -1, seen.greatest = -3;
    CHECK_STATUS(dtl_stream_priority_range(card, 0, &least, &greatest), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("exec.stream_priorities wrote -1 to -3");
    CHECK_STATUS(dtl_stream_create_with_priority(card, 0, 0, 1, &stream), DTL_ERROR_NATIVE_BACKEND);
    seen.least = 3, seen.greatest = 1;
    CHECK_STATUS(dtl_stream_priority_range(card, 0, &least, &greatest), DTL_ERROR_NATIVE_BACKEND);
    seen.failure = DTL_ERROR_UNAVAILABLE;
    CHECK_STATUS(dtl_stream_create_with_priority(card, 0, 0, 1, &stream), DTL_ERROR_UNAVAILABLE);
    seen.failure = DTL_SUCCESS, seen.least = 2, seen.greatest = -3;
    seen.created = DTL_ERROR_LIMIT;
    CHECK_STATUS(dtl_stream_create_with_priority(card, 0, 0, 1, &stream), DTL_ERROR_LIMIT);
    CHECK_TEXT("exec.stream_create_with_priority");
    seen.created = DTL_SUCCESS, seen.is_null = 1;
    CHECK_STATUS(dtl_stream_create_with_priority(card, 0, 0, 1, &stream), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("exec.stream_create_with_priority");
    seen.is_null = 0;
    CHECK(least == 2 && greatest == -3 && stream.id == 77);
    CHECK_OK(dtl_backend_unregister(card));
    /* Half of the group; the group without streams; a table from before it. */
    exec.stream_priorities = NULL;
    CHECK_STATUS(add("half", &exec, &half), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("exec.stream_priorities is NULL");
    exec = whole(), exec.stream_create = NULL, exec.stream_destroy = NULL, exec.stream_synchronize = NULL;
    CHECK_STATUS(add("half", &exec, &half), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("the priorities slots need the stream slots");
    exec = whole(), exec.struct_size = (uint32_t)offsetof(dtl_exec_vtable_t, stream_priorities);
    CHECK_OK(add("old", &exec, &old));
    CHECK_OK(dtl_stream_priority_range(old, 0, &least, &greatest));
    CHECK(least == 0 && greatest == 0 && half.id == 77);
    gets(old, -5, 0);
    CHECK_OK(dtl_backend_unregister(old));
}

static void test_host(void) {
    dtl_backend_t host;
    dtl_stream_t stream = {77};
    int32_t least = 77, greatest = 77;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_stream_priority_range(host, 0, &least, &greatest));
    CHECK(least == 0 && greatest == 0);
    CHECK_STATUS(dtl_stream_priority_range(host, 1, &least, &greatest), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_priority_range(host, 0, NULL, &greatest), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_stream_priority_range(host, 0, &least, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_stream_create_with_priority(host, 0, 1, -1, &stream), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("stream flags 0x1");
    CHECK_STATUS(dtl_stream_create_with_priority(host, 1, 0, -1, &stream), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_stream_create_with_priority(host, 0, 0, -1, NULL), DTL_ERROR_NULL_POINTER);
    CHECK(stream.id == 77);
    CHECK_OK(dtl_stream_create_with_priority(host, 0, 0, -1, &stream)); /* ignored */
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_stream_destroy(stream));
}

/* Over the driver that is none, which keeps the priority that a stream was created with. */
static void test_cuda(void) {
    static const int32_t asked[] = {-1, -1000000, 1000000, 0}, given[] = {-1, -5, 0, 0};
    void *driver = dlopen(getenv("DTL_CUDA_LIBRARY"), RTLD_NOW);
    int (*priority_of)(void *, int *);
    dtl_backend_t cuda;
    dtl_stream_t stream = {77};
    int32_t least = 77, greatest = 77, i;
    CHECK(driver != NULL);
    *(void **)&priority_of = dlsym(driver, "cuStreamGetPriority");
    CHECK_OK(dtl_backend_require("cuda", &cuda));
    CHECK_OK(dtl_stream_priority_range(cuda, 0, &least, &greatest));
    CHECK(least == 0 && greatest == -5);
    for (i = 0; i < 4; i++) {
        void *native;
        int priority = 77;
        CHECK_OK(dtl_stream_create_with_priority(cuda, 0, 0, asked[i], &stream));
        CHECK_OK(dtl_stream_native(stream, &native));
        CHECK(priority_of(native, &priority) == 0 && priority == given[i]);
        CHECK_OK(dtl_stream_destroy(stream));
    }
    stream.id = 77;
    CHECK_STATUS(dtl_stream_create_with_priority(cuda, 0, 2, -1, &stream), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_stream_create_with_priority(cuda, 99, 0, -1, &stream), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(stream.id == 77);
}

int main(int argc, char **argv) {
    CHECK_OK(dtl_init(NULL));
    if (argc == 2 && strcmp(argv[1], "cuda") == 0) {
        test_cuda();
    } else {
        test_table();
        test_host();
    }
    CHECK_OK(dtl_finalize());
    return 0;
}
