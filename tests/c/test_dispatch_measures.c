/* The default dispatcher: handlers that free memory, and providers of measurements that are chosen by the kind of measurement:
 * of a part of the program, and of data. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dispatch_cases.h"
#include <time.h>

static dtl_dispatcher_t all;
static dtl_backend_t host;

/* ---- freeing ------------------------------------------------------------------------------- */

static struct {
    int calls, keeps;
    void *kept;
    dtl_dispatch_free_t last;
    dtl_status_t status;
} frees;

static dtl_status_t frees_it(const dtl_dispatch_query_t *query, dtl_event_t *event, void *user) {
    const dtl_dispatch_free_t *args = (const dtl_dispatch_free_t *)query->args;
    (void)event, (void)user;
    CHECK(args->struct_size == sizeof *args && query->operation == DTL_OPERATION_FREE && query->source == args->kind);
    frees.calls++, frees.last = *args;
    if (frees.status != DTL_SUCCESS) return frees.status;
    if (frees.keeps) return frees.kept = args->ptr, DTL_SUCCESS;
    return dtl_mem_free(args->backend, args->ptr); /* by the library: the handler is not called again */
}

static void test_free(void) {
    dtl_dispatch_handler_t handler = handler_of("frees", NULL);
    dtl_dispatch_key_t key = key_of(DTL_OPERATION_FREE, DTL_MEMORY_PINNED, ANY, ANY);
    dtl_registration_t freeing;
    dtl_dispatch_query_t query = query_of(DTL_OPERATION_FREE, DTL_MEMORY_PINNED, ANY, ANY);
    dtl_dispatch_free_t args = DTL_DISPATCH_FREE_INIT;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_backend_t other;
    void *pinned, *plain;
    handler.invoke = frees_it;
    CHECK_OK(dtl_dispatch_register(all, &key, 1, &handler, &freeing));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 5000, 0, &pinned));
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 5000, 0, &plain));
    CHECK_OK(dtl_mem_free(host, plain)); /* without a query */
    CHECK_OK(dtl_backend_get("null", &other));
    CHECK_STATUS(dtl_mem_free(other, pinned), DTL_ERROR_INVALID_ARGUMENT); /* of another backend: not the handler's */
    CHECK(frees.calls == 0);
    CHECK_OK(dtl_mem_free(host, pinned));
    CHECK(frees.calls == 1 && frees.last.ptr == pinned && frees.last.backend.id == host.id);
    CHECK(frees.last.kind == DTL_MEMORY_PINNED && frees.last.size_bytes >= 5000);
    CHECK_STATUS(dtl_mem_free(host, pinned), DTL_ERROR_INVALID_ARGUMENT); /* freed twice: not the handler's */
    CHECK(frees.calls == 1);
    /* Kept: still allocated, and freed when the handler is gone. */
    frees.keeps = 1;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_PINNED, 5000, 0, &pinned));
    CHECK_OK(dtl_mem_free(host, pinned));
    CHECK(frees.kept == pinned);
    CHECK_OK(dtl_mem_query(pinned, &info));
    /* A failure is that of the call, and the memory stays. */
    frees.status = DTL_ERROR_BUSY;
    CHECK_STATUS(dtl_mem_free(host, pinned), DTL_ERROR_BUSY);
    CHECK_TEXT("frees");
    CHECK_OK(dtl_dispatch_unregister(all, freeing));
    CHECK_OK(dtl_mem_query(pinned, &info));
    CHECK(explains(all, query, "chosen: \"the library\""));
    args.backend = host, args.kind = DTL_MEMORY_PINNED, args.ptr = pinned, query.args = &args;
    CHECK_OK(dtl_dispatch_invoke(all, &query, NULL)); /* what the library does by itself */
    CHECK_STATUS(dtl_mem_query(pinned, &info), DTL_ERROR_NOT_FOUND);
    key.source = DTL_LANGUAGE_C;
    CHECK_STATUS(dtl_dispatch_register(all, &key, 1, &handler, &freeing), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("not of Memory");
}

/* ---- measurements -------------------------------------------------------------------------- */

static dtl_status_t measured(uint64_t operation, dtl_enum_word_t kind, uint32_t phase, dtl_dispatch_instrument_t *args) {
    dtl_dispatch_query_t query = query_of(operation, kind, ANY, ANY);
    args->phase = phase, query.args = args;
    return dtl_dispatch_invoke(all, &query, NULL);
}

/* A provider: it counts, and gives the number that it was registered with. */
static dtl_status_t provides(const dtl_dispatch_query_t *query, dtl_event_t *event, void *user) {
    dtl_dispatch_instrument_t *args = (dtl_dispatch_instrument_t *)query->args;
    (void)event;
    if (args->phase == DTL_INSTRUMENT_BEGIN) args->state = 1234;
    else CHECK(args->state == 1234 && strcmp(args->name, "stencil") == 0);
    args->elapsed_ns = args->phase == DTL_INSTRUMENT_END ? *(const uint64_t *)user : 0;
    if (args->data != NULL) memset(args->data, 7, (size_t)args->size_bytes);
    return DTL_SUCCESS;
}

static dtl_registration_t provider(uint64_t operation, dtl_enum_word_t kind, uint64_t *number) {
    dtl_dispatch_handler_t handler = handler_of("provider", NULL);
    const dtl_dispatch_key_t key = key_of(operation, kind, ANY, ANY);
    dtl_registration_t made;
    handler.invoke = provides, handler.user = number;
    CHECK_OK(dtl_dispatch_register(all, &key, 1, &handler, &made));
    return made;
}

static uint64_t time_of(uint64_t operation, dtl_enum_word_t kind) {
    const struct timespec nap = {0, 2000000};
    dtl_dispatch_instrument_t args = DTL_DISPATCH_INSTRUMENT_INIT;
    args.name = "stencil";
    CHECK_OK(measured(operation, kind, DTL_INSTRUMENT_BEGIN, &args));
    nanosleep(&nap, NULL);
    CHECK_OK(measured(operation, kind, DTL_INSTRUMENT_END, &args));
    return args.elapsed_ns;
}

static void test_providers(void) {
    static uint64_t one = 1, two = 2, three = 3;
    const dtl_enum_word_t mine = member_of(DTL_ENUM_INSTRUMENTATION, 1);
    dtl_dispatch_instrument_t args = DTL_DISPATCH_INSTRUMENT_INIT;
    dtl_dispatch_key_t key = key_of(DTL_OPERATION_INSTRUMENT, DTL_DATA_INSTRUMENTATION_SAVE, ANY, ANY);
    const dtl_dispatch_handler_t handler = handler_of("wrong", NULL);
    dtl_registration_t of_events, of_mine, of_save, timer, wrong;
    unsigned char data[4] = {0, 0, 0, 0};
    /* The library's own. */
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER) >= 2000000);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_NONE) == 0);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT_DATA, DTL_DATA_INSTRUMENTATION_NONE) == 0);
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_COUNTERS, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("Counters: no provider");
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT, mine, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("M1");
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT_DATA, DTL_DATA_INSTRUMENTATION_SAVE, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER, 2, &args), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("phase is 2");
    /* A kind of another enumeration, or of none; a stream that does not exist. */
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT_DATA, DTL_INSTRUMENTATION_TIMER, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("source of operation");
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT, DTL_DATA_INSTRUMENTATION_NONE, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_INVALID_ARGUMENT);
    args.stream.id = 0xdead;
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_INVALID_HANDLE);
    args.stream.id = 0;
    /* Each kind has its provider, a registered one too; that of the timer can be another. */
    of_events = provider(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_EVENTS, &one);
    of_mine = provider(DTL_OPERATION_INSTRUMENT, mine, &two);
    of_save = provider(DTL_OPERATION_INSTRUMENT_DATA, DTL_DATA_INSTRUMENTATION_SAVE, &three);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_EVENTS) == 1);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, mine) == 2);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER) >= 2000000);
    timer = provider(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER, &three);
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER) == 3);
    CHECK_OK(dtl_dispatch_unregister(all, timer));
    CHECK(time_of(DTL_OPERATION_INSTRUMENT, DTL_INSTRUMENTATION_TIMER) >= 2000000);
    args.data = data, args.size_bytes = sizeof data;
    CHECK_OK(measured(DTL_OPERATION_INSTRUMENT_DATA, DTL_DATA_INSTRUMENTATION_SAVE, DTL_INSTRUMENT_BEGIN, &args));
    CHECK(data[0] == 7 && data[3] == 7);
    CHECK_STATUS(measured(DTL_OPERATION_INSTRUMENT_DATA, DTL_DATA_INSTRUMENTATION_RESTORE, DTL_INSTRUMENT_BEGIN, &args), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_dispatch_unregister(all, of_events));
    CHECK_OK(dtl_dispatch_unregister(all, of_mine));
    CHECK_OK(dtl_dispatch_unregister(all, of_save));
    /* A key of the wrong enumeration would never be found. */
    CHECK_STATUS(dtl_dispatch_register(all, &key, 1, &handler, &wrong), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("not of Instrumentation");
    key = key_of(DTL_OPERATION_INSTRUMENT_DATA, DTL_INSTRUMENTATION_TIMER, ANY, ANY);
    CHECK_STATUS(dtl_dispatch_register(all, &key, 1, &handler, &wrong), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("not of DataInstrumentation");
}

int main(void) {
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    all = dtl_dispatcher_default();
    test_free();
    test_providers();
    CHECK_OK(dtl_finalize());
    return 0;
}
