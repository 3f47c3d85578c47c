/* What the slots of a registered table may leave out, and what the library says of results that
 * cannot be. C11, and valid C++17. */
#include "check.h"
#include <string.h>

/* ---- an exec table with the group "streams" alone ---- */

static int one, synchronized;
static dtl_status_t stream_failure;
static int32_t query_answer = 1;

static dtl_status_t stream_create(void* self, int32_t device, uint64_t flags, void** out) {
    (void)self, (void)device;
    if (flags != 0) return DTL_ERROR_INVALID_ARGUMENT;
    *out = &one;
    return DTL_SUCCESS;
}
static dtl_status_t stream_end(void* self, void* stream) {
    (void)self, (void)stream;
    return DTL_SUCCESS;
}
static dtl_status_t stream_synchronize(void* self, void* stream) {
    const dtl_status_t failure = stream_failure;
    (void)self, (void)stream;
    synchronized++;
    stream_failure = DTL_SUCCESS;
    return failure;
}
static dtl_status_t stream_query(void* self, void* stream, int32_t* out_done) {
    (void)self, (void)stream;
    *out_done = query_answer;
    return DTL_SUCCESS;
}

static dtl_backend_t register_exec(const char* name, int with_query) {
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    exec.stream_create = stream_create;
    exec.stream_destroy = stream_end;
    exec.stream_synchronize = stream_synchronize;
    if (with_query) exec.stream_query = stream_query;
    table.exec = &exec;
    CHECK_OK(dtl_backend_register(name, &table, NULL, 0, &backend));
    return backend;
}

/* Queries and records agree: both wait for the stream. */
static void streams_without_events(void) {
    const dtl_backend_t backend = register_exec("streams_only", 0);
    dtl_stream_t stream;
    dtl_event_t event;
    int32_t done = -1;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 1 && synchronized == 1);
    CHECK_OK(dtl_event_create(backend, 0, &event));
    CHECK_OK(dtl_event_record(event, stream));
    CHECK(synchronized == 2);
    CHECK_OK(dtl_event_query(event, &done));
    CHECK(done == 1);
    /* A failure that the query meets stays to be reported by synchronize, once. */
    stream_failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_stream_synchronize(stream), DTL_ERROR_BACKEND);
    CHECK_OK(dtl_stream_query(stream, &done));
    /* The stream's own work cannot wait for it: it is still running. */
    stream_failure = DTL_ERROR_INVALID_STATE;
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 0);
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
}

static void said(const char* text) {
    if (strstr(dtl_last_error(), text) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, dtl_last_error());
        exit(1);
    }
}

static void booleans_are_zero_or_one(void) {
    const dtl_backend_t backend = register_exec("odd_query", 1);
    dtl_stream_t stream;
    int32_t done = -1;
    CHECK_OK(dtl_stream_create(backend, 0, 0, &stream));
    CHECK_OK(dtl_stream_query(stream, &done));
    CHECK(done == 1);
    query_answer = 7;
    CHECK_STATUS(dtl_stream_query(stream, &done), DTL_ERROR_NATIVE_BACKEND);
    said("backend odd_query: exec.stream_query wrote 7 into its boolean output");
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(backend));
}

/* ---- a comm table whose `test` completes operations wrongly ---- */

enum wrong { NOTHING, ODD_STATUS, ODD_BOOLEAN, NO_RANK, OTHER_WORD, TOO_EARLY, FAILED_NO_RANK };
static enum wrong wrong;

static dtl_status_t comm_open(void* self, const dtl_comm_open_t* args, void** out, int32_t* rank, int32_t* size) {
    (void)self, (void)args;
    *out = &one, *rank = 0, *size = 2;
    return DTL_SUCCESS;
}
static dtl_status_t comm_close(void* self, void* comm) {
    (void)self, (void)comm;
    return DTL_SUCCESS;
}
static dtl_status_t comm_isend(void* self, void* comm, const void* buf, uint64_t size, int32_t dest, uint64_t word,
                               uint64_t* out) {
    (void)self, (void)comm, (void)buf, (void)size, (void)dest, (void)word;
    *out = 1;
    return DTL_SUCCESS;
}
static dtl_status_t comm_irecv(void* self, void* comm, void* buf, uint64_t size, int32_t source, uint64_t word,
                               uint64_t ignore, uint64_t* out) {
    (void)self, (void)comm, (void)buf, (void)size, (void)source, (void)word, (void)ignore;
    *out = 2;
    return DTL_SUCCESS;
}
static dtl_status_t comm_test(void* self, void* comm, uint64_t op, int32_t* done, dtl_comm_done_t* result) {
    (void)self, (void)comm;
    if (op == 1) {
        if (wrong == ODD_STATUS) *done = 1, result->status = 31337;
        if (wrong == ODD_BOOLEAN) *done = 7;
        return DTL_SUCCESS;
    }
    if (wrong < NO_RANK) return DTL_SUCCESS;
    *done = 1;
    result->source = wrong == NO_RANK || wrong == FAILED_NO_RANK ? 99 : 1;
    result->match_word = wrong == OTHER_WORD ? 5 : 0;
    if (wrong == FAILED_NO_RANK) result->status = DTL_ERROR_RANK_FAILURE;
    return DTL_SUCCESS;
}

static void results_that_cannot_be(void) {
    static const struct {
        enum wrong wrong;
        dtl_status_t status;
        const char* text;
    } cases[] = {
        {ODD_STATUS, DTL_ERROR_NATIVE_BACKEND, "wrote status 31337 into its result, which is not a status"},
        {ODD_BOOLEAN, DTL_ERROR_NATIVE_BACKEND, "wrote 7 into its boolean output"},
        {NO_RANK, DTL_ERROR_NATIVE_BACKEND, "named rank 99 as the source of a message"},
        {OTHER_WORD, DTL_ERROR_NATIVE_BACKEND, "completed a receive of match word 0 with match word 5"},
        {TOO_EARLY, DTL_ERROR_COMMUNICATION, "complete before all of its bytes"},
        {FAILED_NO_RANK, DTL_ERROR_RANK_FAILURE, "and named rank 99"},
    };
    static char bytes[9000];
    dtl_comm_vtable_t comm_table = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    comm_table.open = comm_open, comm_table.close = comm_close;
    comm_table.isend = comm_isend, comm_table.irecv = comm_irecv, comm_table.test = comm_test;
    table.comm = &comm_table;
    CHECK_OK(dtl_backend_register("wrong", &table, NULL, 0, &backend));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        dtl_comm_t comm;
        dtl_status_t got;
        desc.kind = "wrong", desc.rank = 0, desc.size = 2, desc.job = "x", desc.timeout_ns = 1000000000;
        wrong = NOTHING;
        CHECK_OK(dtl_comm_open(&desc, &comm));
        wrong = cases[i].wrong;
        got = wrong < NO_RANK ? dtl_comm_send(comm, bytes, 9000, DTL_DTYPE_BYTE, 1, 0)
                              : dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, 1, 0, NULL);
        fprintf(stderr, "%d: %s: %s\n", (int)wrong, dtl_status_name(got), dtl_last_error());
        CHECK_STATUS(got, cases[i].status);
        said(cases[i].text);
        said("backend wrong: comm.test on rank 0 of 2");
        if (strstr(dtl_last_error(), "rank(s)  (") != NULL || strstr(dtl_last_error(), "gives no reason") != NULL) {
            fprintf(stderr, "nothing is named: %s\n", dtl_last_error());
            exit(1);
        }
        DTL_IGNORE(dtl_comm_destroy(comm));
    }
    CHECK_OK(dtl_backend_unregister(backend));
}

int main(void) {
    streams_without_events();
    booleans_are_zero_or_one();
    results_that_cannot_be();
    return 0;
}
