/* What a function of the program's passes on: the status of a dtl_ call that fails in it, and with it the text. The same
 * for every kind of function that returns a status. C11, and valid C++17. */
#ifndef SAID_CASES_H
#define SAID_CASES_H
#include "far.h"

/* What the function does, and whether the text of its call is to be heard. */
enum saying { PASSES_ON, SAYS_NOTHING, OTHER_STATUS, GOES_ON, OTHER_FAILURE, OWN_TEXT, TOLERATES, SAYINGS };
static enum saying saying;

static dtl_status_t say(void) {
    dtl_backend_t none = DTL_BACKEND_NULL, host;
    if (saying == SAYS_NOTHING) return DTL_ERROR_NOT_FOUND;
    CHECK_STATUS(dtl_backend_get("nobody", &none), DTL_ERROR_NOT_FOUND);
    if (saying == OTHER_STATUS) return DTL_ERROR_UNAVAILABLE;
    if (saying == GOES_ON) CHECK_OK(dtl_backend_get("host", &host));
    if (saying == OTHER_FAILURE) CHECK_STATUS(dtl_backend_get(NULL, NULL), DTL_ERROR_NULL_POINTER);
    if (saying == OWN_TEXT) CHECK_OK(dtl_backend_set_error("the author's words"));
    return saying == TOLERATES ? DTL_SUCCESS : DTL_ERROR_NOT_FOUND;
}

/* Calls, in the thread that the call is made in. */
static dtl_status_t said_alloc(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    const dtl_status_t status = say();
    return status != DTL_SUCCESS ? status : far_alloc(self, size, align, kind, out);
}
static int32_t said_predicate(const dtl_dispatch_query_t* query, void* user) {
    dtl_backend_t none;
    (void)query, (void)user;
    if (saying == SAYS_NOTHING) { /* the handler does; what was said here is not its */
        CHECK_STATUS(dtl_backend_get("nobody", &none), DTL_ERROR_NOT_FOUND);
        return 1;
    }
    return -(int32_t)say();
}
static dtl_status_t said_invoke(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    (void)query, (void)event, (void)user;
    return say();
}
static dtl_status_t said_environment(void* user, void* state) { return (void)user, (void)state, say(); }
static dtl_status_t said_select(void* self, dtl_task_key_t key, uint32_t* out) {
    return (void)self, (void)key, *out = 0, say();
}
static dtl_status_t said_task(const dtl_resource_t* on, void* arg, dtl_waitable_t* wait) {
    return (void)on, (void)arg, (void)wait, say();
}
static dtl_status_t said_range(uint64_t begin, uint64_t end, void* user) {
    return (void)begin, (void)end, (void)user, say();
}
static dtl_status_t said_fold(uint64_t begin, uint64_t end, void* acc, void* user) {
    return (void)begin, (void)end, (void)acc, (void)user, say();
}
static void said_combine(void* into, const void* from, void* user) { (void)into, (void)from, (void)user; }
static dtl_status_t said_work(void* user) { return (void)user, say(); }
static dtl_status_t said_kernel(const dtl_kernel_context_t* context, const void* const* args) {
    return (void)context, (void)args, say();
}
static dtl_status_t said_copy(dtl_comm_t of, int32_t key, void* user, void* value, void** out, int32_t* copy) {
    return (void)of, (void)key, (void)user, (void)value, *out = value, *copy = 1, say();
}

/* Everything that calls such a function. */
struct said {
    dtl_backend_t backend, host;
    dtl_dispatcher_t handled, asked;
    dtl_policy_t chosen, run;
    dtl_executor_t executor;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_comm_t comm;
};

static dtl_dispatcher_t said_dispatcher(int asks) {
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatch_key_t key;
    dtl_dispatcher_t out;
    dtl_registration_t registration;
    memset(&key, 0, sizeof key);
    key.operation = DTL_OPERATION_ALLOC;
    handler.name = "talks", handler.invoke = said_invoke, handler.predicate = asks ? said_predicate : NULL;
    CHECK_OK(dtl_dispatcher_create(0, &out));
    CHECK_OK(dtl_dispatch_register(out, &key, 1, &handler, &registration));
    return out;
}

static void said_open(struct said* said, struct far* far) {
    struct far_tables tables;
    const dtl_resource_t one = {0, NULL};
    dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_environment_desc_t environment = DTL_ENVIRONMENT_DESC_INIT;
    dtl_executor_desc_t pool = DTL_EXECUTOR_DESC_INIT;
    int32_t key;
    far_fill(&tables);
    tables.memory.alloc = said_alloc;
    CHECK_OK(dtl_backend_register("talks", &tables.main, far, 0, &said->backend));
    CHECK_OK(dtl_backend_get("host", &said->host));
    said->handled = said_dispatcher(0), said->asked = said_dispatcher(1);
    environment.name = "talks", environment.init = said_environment;
    CHECK_OK(dtl_environment_register(&environment));
    opts.kind = DTL_RESOURCES_INLINE, ops.select = said_select;
    CHECK_OK(dtl_policy_create_custom(&ops, NULL, &one, 1, &opts, &said->chosen));
    CHECK_OK(dtl_policy_create("fixed", &one, 1, &opts, &said->run));
    pool.kind = DTL_EXECUTOR_POOL, pool.threads = 2;
    CHECK_OK(dtl_executor_create(said->host, &pool, &said->executor));
    CHECK_OK(dtl_stream_create(said->host, 0, 0, &said->stream));
    CHECK_OK(dtl_kernel_from_function(said->host, said_kernel, NULL, &said->kernel));
    CHECK_OK(dtl_comm_dup(DTL_COMM_SELF, &said->comm));
    CHECK_OK(dtl_comm_key_create(said_copy, NULL, NULL, &key));
    CHECK_OK(dtl_comm_set_attr(said->comm, key, said));
}

static void said_close(const struct said* said) {
    CHECK_OK(dtl_comm_destroy(said->comm));
    CHECK_OK(dtl_kernel_destroy(said->kernel));
    CHECK_OK(dtl_stream_destroy(said->stream));
    CHECK_OK(dtl_executor_destroy(said->executor));
    CHECK_OK(dtl_policy_release(said->run));
    CHECK_OK(dtl_policy_release(said->chosen));
    CHECK_OK(dtl_dispatcher_destroy(said->asked));
    CHECK_OK(dtl_dispatcher_destroy(said->handled));
    CHECK_OK(dtl_environment_unregister("talks"));
    CHECK_OK(dtl_backend_unregister(said->backend));
}

/* The call whose function is one of them; `who` is in its text. NULL: there are no more. */
static const char* said_call(const struct said* said, int which, dtl_status_t* out) {
    const dtl_task_key_t key = {0, 0};
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_comm_t copy = DTL_COMM_NULL;
    double zero = 0, sum;
    void* memory = NULL;
    query.operation = DTL_OPERATION_ALLOC;
    switch (which) {
        case 0:
            *out = dtl_mem_alloc(said->backend, DTL_MEMORY_DEVICE, 8, 0, &memory);
            if (*out == DTL_SUCCESS) CHECK_OK(dtl_mem_free(said->backend, memory));
            return "memory.alloc";
        case 1: return *out = dtl_dispatch_invoke(said->handled, &query, NULL), "handler \"talks\"";
        case 2:
            *out = dtl_dispatch_invoke(said->asked, &query, NULL);
            return saying == SAYS_NOTHING ? "handler \"talks\"" : "the predicate of handler \"talks\"";
        case 3:
            *out = dtl_environment_require("talks");
            if (*out == DTL_SUCCESS) CHECK_OK(dtl_environment_release("talks"));
            return "its init";
        case 4: return *out = dtl_policy_submit(said->chosen, key, said_task, NULL, 0, NULL), "select";
        case 5: return *out = dtl_policy_submit_and_wait(said->run, key, said_task, NULL, 0), "a task";
        case 6:
            CHECK_OK(dtl_policy_submit(said->run, key, said_task, NULL, 0, NULL));
            return *out = dtl_policy_wait_all(said->run, DTL_TIMEOUT_INFINITE), "a task";
        case 7:
            return *out = dtl_executor_parallel_for(said->executor, 0, 1000, 1, said_range, NULL), "the loop body";
        case 8:
            *out = dtl_executor_parallel_reduce(
                said->executor, 0, 1000, 1, sizeof zero, &zero, said_fold, said_combine, NULL, &sum);
            return "the fold";
        case 9:
            CHECK_OK(dtl_stream_host_callback(said->stream, said_work, NULL));
            return *out = dtl_stream_wait(said->stream, DTL_TIMEOUT_INFINITE), "host callback";
        case 10:
            launch.grid[0] = 100;
            CHECK_OK(dtl_kernel_launch(said->stream, said->kernel, &launch, NULL, NULL, 0));
            return *out = dtl_stream_wait(said->stream, DTL_TIMEOUT_INFINITE), "a kernel";
        case 11: return *out = dtl_executor_run(said->executor, said_work, NULL), "task";
        case 12:
            *out = dtl_comm_dup(said->comm, &copy);
            if (*out == DTL_SUCCESS) CHECK_OK(dtl_comm_destroy(copy));
            return "copy function";
        default: return NULL;
    }
}

static void test_said(struct far* far) {
    struct said said;
    const char* who = "";
    dtl_status_t status = DTL_SUCCESS;
    int way, which;
    memset(far, 0, sizeof *far);
    saying = TOLERATES; /* setting up must not fail */
    said_open(&said, far);
    for (which = 0; who != NULL; which++) {
        for (way = 0; way < SAYINGS && who != NULL; way++) {
            saying = (enum saying)way;
            who = said_call(&said, which, &status);
            if (who == NULL) break;
            CHECK(status != DTL_SUCCESS || saying == TOLERATES);
            if (saying == TOLERATES) continue;
            CHECK_STATUS(status, saying == OTHER_STATUS ? DTL_ERROR_UNAVAILABLE : DTL_ERROR_NOT_FOUND);
            CHECK(strstr(dtl_last_error(), who) != NULL);
            if (saying == OWN_TEXT) { /* of a backend, a handler or an environment: instead of the call's */
                const int is_foreign = which <= 3;
                CHECK((strstr(dtl_last_error(), "the author's words") != NULL) == is_foreign);
                CHECK((strstr(dtl_last_error(), "nobody") != NULL) == !is_foreign);
                if (!is_foreign) DTL_IGNORE(dtl_backend_set_error("")); /* left for the next slot that fails */
            } else {
                CHECK((strstr(dtl_last_error(), "nobody") != NULL) == (saying == PASSES_ON || saying == GOES_ON));
            }
        }
    }
    CHECK(which == 14);
    said_close(&said);
}

#endif
