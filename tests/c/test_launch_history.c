/* The launch history: what a record contains, which launches are kept and returned, what is refused, threads that launch
 * while another one reads, finalize and fork. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "module_cases.h"
#include <pthread.h>
#include <sys/wait.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static dtl_backend_t host;
static dtl_stream_t stream;
static dtl_kernel_t nothing;

static dtl_status_t do_nothing(const dtl_kernel_context_t *context, const void *const *args) {
    (void)context, (void)args;
    return DTL_SUCCESS;
}

static void launch(dtl_kernel_t kernel, uint32_t blocks, dtl_status_t expected) {
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    shape.grid[0] = blocks, shape.block[1] = 2, shape.shared_bytes = 16;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &shape, NULL, NULL, 0), expected);
}

static uint64_t read_all(dtl_launch_record_t *out, uint64_t cap) {
    uint64_t count = 77;
    CHECK_OK(dtl_launch_history_read(NULL, out, cap, &count));
    return count;
}

static uint64_t nanoseconds(void) { return (uint64_t)(dtl_comm_wtime() * 1e9); }

/* A record has what the launch had. */
static void test_record(void) {
    const dtl_launch_t shape = DTL_LAUNCH_INIT;
    const uint64_t before = nanoseconds();
    dtl_launch_record_t record;
    dtl_stream_t standard;
    char zero[sizeof record.name - sizeof "a function"] = {0};
    CHECK_OK(dtl_launch_history_set_capacity(8));
    CHECK(read_all(NULL, 0) == 0);
    launch(nothing, 3, DTL_SUCCESS);
    CHECK(read_all(&record, 1) == 1);
    CHECK(record.number == 1 && record.backend.id == host.id && record.device == 0);
    CHECK(record.stream.id == stream.id && record.kernel.id == nothing.id && record.status == DTL_SUCCESS);
    CHECK(record.grid[0] == 3 && record.grid[1] == 1 && record.grid[2] == 1 && record.shared_bytes == 16);
    CHECK(record.block[0] == 1 && record.block[1] == 2 && record.block[2] == 1);
    CHECK(strcmp(record.name, "a function") == 0 && record.reserved0 == 0 && record.reserved1[0] == 0);
    CHECK(memcmp(record.name + sizeof "a function", zero, sizeof zero) == 0 && record.reserved1[1] == 0);
    /* wtime has less than nanoseconds: a double. */
    CHECK(record.call_begin_ns + 1000 >= before && record.call_end_ns >= record.call_begin_ns && record.call_end_ns <= nanoseconds() + 1000);
    /* The default stream has a handle in the record. */
    CHECK_OK(dtl_kernel_launch(DTL_STREAM_NULL, nothing, &shape, NULL, NULL, 0));
    CHECK_OK(dtl_stream_default(host, 0, &standard));
    CHECK(read_all(&record, 1) == 2 && record.number == 2 && record.stream.id == standard.id && standard.id != 0);
    CHECK_OK(dtl_stream_wait(standard, DTL_TIMEOUT_INFINITE));
}

/* The last launches are kept, the last of them are returned, and the oldest comes first. */
static void test_order(void) {
    dtl_launch_record_t records[6];
    uint32_t i;
    CHECK_OK(dtl_launch_history_set_capacity(4));
    for (i = 1; i <= 3; i++) launch(nothing, i, DTL_SUCCESS);
    memset(records, 0x5a, sizeof records);
    CHECK(read_all(records, 6) == 3 && records[0].number == 1 && records[2].number == 3);
    CHECK(records[3].number == UINT64_C(0x5a5a5a5a5a5a5a5a)); /* nothing is written behind them */
    for (i = 4; i <= 10; i++) launch(nothing, i, DTL_SUCCESS);
    CHECK(read_all(records, 6) == 4);
    for (i = 0; i < 4; i++) CHECK(records[i].number == i + 7 && records[i].grid[0] == i + 7);
    CHECK(read_all(records, 2) == 4 && records[0].number == 9 && records[1].number == 10);
    CHECK_OK(dtl_launch_history_set_capacity(1)); /* empties it */
    CHECK(read_all(records, 6) == 0);
    for (i = 1; i <= 3; i++) launch(nothing, i, DTL_SUCCESS);
    CHECK(read_all(records, 6) == 1 && records[0].number == 3);
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
}

/* Launches that fail at the call are recorded with their status, those of bad handles are not. */
static void test_failures(void) {
    const dtl_kernel_t none = {77};
    dtl_launch_record_t records[3];
    uint64_t count;
    CHECK_OK(dtl_launch_history_set_capacity(8));
    launch(none, 1, DTL_ERROR_INVALID_HANDLE);
    launch(nothing, 0, DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("grid.x"); /* the text is that of the launch */
    CHECK(read_all(records, 3) == 1 && records[0].status == DTL_ERROR_INVALID_ARGUMENT && records[0].grid[0] == 0);
    /* What is refused changes nothing. */
    CHECK_STATUS(dtl_launch_history_set_capacity((1 << 20) + 1), DTL_ERROR_LIMIT);
    CHECK_TEXT("capacity is 1048577");
    CHECK_STATUS(dtl_launch_history_set_capacity(UINT64_MAX), DTL_ERROR_LIMIT);
    CHECK_STATUS(dtl_launch_history_read(NULL, NULL, 1, &count), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("out is NULL");
    CHECK_STATUS(dtl_launch_history_read(NULL, records, 3, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("out_len is NULL");
    CHECK_STATUS(dtl_launch_history_read("\xff", records, 3, &count), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("kernel");
    CHECK(read_all(NULL, 0) == 1);
    CHECK_OK(dtl_launch_history_set_capacity(0));
    launch(nothing, 1, DTL_SUCCESS);
    count = 77;
    CHECK_STATUS(dtl_launch_history_read(NULL, records, 3, &count), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("dtl_launch_history_set_capacity");
    CHECK(count == 77);
    CHECK_OK(dtl_launch_history_set_capacity(0));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
}

/* dtl_explain has the state of the history. */
static int explains(const char *part) {
    static char text[1 << 16];
    uint64_t length;
    CHECK_OK(dtl_explain(text, sizeof text, &length));
    return strstr(text, part) != NULL;
}

static void test_explain(void) {
    CHECK_OK(dtl_launch_history_set_capacity(3));
    CHECK(explains("launch history: the last 3 launches"));
    CHECK_OK(dtl_launch_history_set_capacity(0));
    CHECK(explains("launch history: off"));
}

/* The name of a kernel of a module, and a filter by it. */
static void test_names(void) {
    static const char longest[] = "a234567890123456789012345678901234567890123456789012345678901234567890";
    const char *text = "#include \"dtl_kernel.h\"\n"
                       "DTL_KERNEL(first, (DTL_GLOBAL int*, out)) { out[0] = 1; }\n"
                       "DTL_KERNEL(a234567890123456789012345678901234567890123456789012345678901234567890,"
                       " (DTL_GLOBAL int*, out)) { out[0] = 2; }\n";
    const dtl_launch_t shape = DTL_LAUNCH_INIT;
    static int result;
    int *at = &result;
    const void *args[1];
    const uint64_t sizes[1] = {sizeof at};
    dtl_launch_record_t records[3];
    dtl_module_t module;
    dtl_kernel_t first, second;
    uint64_t count;
    args[0] = &at;
    if (system("command -v \"${DTL_CC:-cc}\" >/dev/null") != 0) return;
    module = m_compile(text);
    first = m_kernel(module, "first", "p"), second = m_kernel(module, longest, "p");
    CHECK_OK(dtl_launch_history_set_capacity(8));
    CHECK_OK(dtl_kernel_launch(stream, first, &shape, args, sizes, 1));
    CHECK_OK(dtl_kernel_launch(stream, second, &shape, args, sizes, 1));
    launch(nothing, 1, DTL_SUCCESS);
    CHECK_OK(dtl_kernel_launch(stream, first, &shape, args, sizes, 1));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_kernel_destroy(first));
    CHECK_OK(dtl_kernel_destroy(second));
    CHECK_OK(dtl_module_destroy(module));
    CHECK_OK(dtl_launch_history_read("first", records, 3, &count));
    CHECK(count == 2 && records[0].number == 1 && records[1].number == 4 && strcmp(records[1].name, "first") == 0);
    CHECK(records[0].kernel.id == first.id);
    CHECK_OK(dtl_launch_history_read("first", records, 1, &count));
    CHECK(count == 2 && records[0].number == 4);
    CHECK_OK(dtl_launch_history_read(longest, records, 3, &count));
    CHECK(count == 1 && records[0].number == 2 && strlen(records[0].name) == 63);
    CHECK_OK(dtl_launch_history_read("a function", NULL, 0, &count));
    CHECK(count == 1);
    CHECK_OK(dtl_launch_history_read("firs", records, 3, &count));
    CHECK(count == 0);
}

/* A handler that launches again, as a schedule of the program does. */
static dtl_status_t runs(const dtl_dispatch_query_t *query, dtl_event_t *event, void *user) {
    const dtl_dispatch_launch_t *args = (const dtl_dispatch_launch_t *)query->args;
    dtl_launch_t shape = *args->launch;
    (void)event, (void)user;
    shape.schedule = 0;
    return dtl_kernel_launch(args->stream, args->kernel, &shape, args->args, args->sizes, args->count);
}

static void test_handlers(void) {
    const dtl_dispatcher_t all = dtl_dispatcher_default();
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_key_t key = {DTL_OPERATION_LAUNCH, DTL_DISPATCH_ANY, DTL_DISPATCH_ANY, 0, {0, 0}};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    dtl_registration_t added;
    CHECK_OK(dtl_enum_register(DTL_ENUM_SCHEDULE, "ThisProgram", &shape.schedule));
    handler.name = "runs", handler.invoke = runs, key.schedule = shape.schedule;
    CHECK_OK(dtl_dispatch_register(all, &key, 1, &handler, &added));
    CHECK_OK(dtl_launch_history_set_capacity(8));
    CHECK_OK(dtl_kernel_launch(stream, nothing, &shape, NULL, NULL, 0));
    launch(nothing, 1, DTL_SUCCESS); /* by the library, while there are handlers */
    CHECK(read_all(NULL, 0) == 2);
    CHECK_OK(dtl_dispatch_unregister(all, added));
    CHECK_OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
}

enum { THREADS = 4, LAUNCHES = 3000 };
static int running; /* threads that launch; __atomic */

/* Launches whose grid follows from the shared memory: a record of two launches would show it. */
static void *launches(void *argument) {
    const uint32_t number = *(const uint32_t *)argument;
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    uint32_t i;
    for (i = 0; i < LAUNCHES; i++) {
        shape.shared_bytes = i * THREADS + number;
        shape.grid[0] = 1, shape.block[2] = 1 + shape.shared_bytes % 5, shape.grid[2] = 1 + shape.shared_bytes % 7;
        CHECK_OK(dtl_kernel_launch(DTL_STREAM_NULL, nothing, &shape, NULL, NULL, 0));
    }
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void check_records(uint64_t capacity) {
    static dtl_launch_record_t records[64];
    uint64_t count = read_all(records, 64), i;
    CHECK(count <= capacity);
    for (i = 0; i < count; i++) {
        const dtl_launch_record_t *at = &records[i];
        CHECK(i == 0 || at->number > records[i - 1].number);
        CHECK(at->block[2] == 1 + at->shared_bytes % 5 && at->grid[2] == 1 + at->shared_bytes % 7);
        CHECK(at->kernel.id == nothing.id && at->call_end_ns >= at->call_begin_ns && strcmp(at->name, "a function") == 0);
    }
}

static void test_threads(uint64_t capacity, int changes) {
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS], i;
    dtl_stream_t standard;
    dtl_launch_record_t last;
    CHECK_OK(dtl_launch_history_set_capacity(capacity));
    running = THREADS;
    for (i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, launches, &numbers[i]) == 0);
    }
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0) {
        check_records(capacity);
        if (changes) CHECK_OK(dtl_launch_history_set_capacity(capacity));
    }
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_stream_default(host, 0, &standard));
    CHECK_OK(dtl_stream_wait(standard, DTL_TIMEOUT_INFINITE));
    check_records(capacity);
    if (!changes && capacity >= THREADS) {
        CHECK(read_all(&last, 1) > 0 && last.number <= THREADS * LAUNCHES);
        CHECK(last.number + 64 >= THREADS * LAUNCHES); /* a few may have been dropped while they were read */
    }
}

static void test_fork(void) {
    int state = 77;
    pid_t child;
    CHECK_OK(dtl_launch_history_set_capacity(4));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        uint64_t count;
        CHECK_OK(dtl_init_after_fork());
        CHECK_STATUS(dtl_launch_history_read(NULL, NULL, 0, &count), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_launch_history_set_capacity(2));
        CHECK_OK(dtl_launch_history_read(NULL, NULL, 0, &count));
        CHECK(count == 0);
        _exit(0);
    }
    CHECK(waitpid(child, &state, 0) == child && state == 0);
    CHECK(read_all(NULL, 0) == 0);
}

static void test_finalize(void) {
    uint64_t count = 77;
    CHECK_OK(dtl_launch_history_set_capacity(4));
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_launch_history_set_capacity(4), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_launch_history_read(NULL, NULL, 0, &count), DTL_ERROR_INVALID_STATE);
    CHECK(count == 77);
}

int main(void) {
    m_make_folder();
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_stream_create(host, 0, 0, &stream));
    CHECK_OK(dtl_kernel_from_function(host, do_nothing, NULL, &nothing));
    CHECK_OK(dtl_backend_set_device(host, 0));
    test_record();
    test_order();
    test_failures();
    test_explain();
    test_names();
    test_handlers();
    test_threads(64, 0);
    test_threads(1, 0);
    test_threads(16, 1);
    test_fork();
    test_finalize();
    CHECK_OK(dtl_finalize());
    m_remove(m_folder);
    return 0;
}
