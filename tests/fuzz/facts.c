/* Calls every function of dtl.h with one argument replaced, once for each fact of the description
 * of the interface (dtl-api.json):
 * - each pointer and callback by NULL: DTL_ERROR_NULL_POINTER where it is not `opt`;
 * - each pointer by an odd address: DTL_ERROR_INVALID_ARGUMENT;
 * - each rank by one that the communicator does not have: DTL_ERROR_INVALID_RANK;
 * - each integer with `values` or `flags`, also in a struct, by another value, and each that
 *   is named flags or reserved and has no such fact by one that is not 0: any failure.
 * The text of a failure names the parameter, and the call writes nothing. The other arguments are
 * those of entries.h. The wrappers, cases.h, are generated from the header's sources. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Status that is expected, or: any failure; no failure by DTL_ERROR_NULL_POINTER; anything. */
enum { REFUSED = -1, ALLOWED = -2, ANYTHING = -3 };

struct fact_case {
    const char *function, *parameter, *value;
};

static const struct fact_case* now;
static int expected, passed;

/* True if this argument is the one to replace. */
static int replaces(const char* function, const char* parameter, const char* value, int status)
{
    if (now == NULL || strcmp(now->function, function) != 0) return 0;
    if (strcmp(now->parameter, parameter) != 0 || strcmp(now->value, value) != 0) return 0;
    expected = status, passed++;
    return 1;
}

/* An address after this one that no type with an alignment has. */
static void* odd(const void* pointer)
{
    /* gcc warns of an access to such an address if it sees it. */
    volatile uintptr_t address = (uintptr_t)pointer + 1;
    return (void*)address;
}

#include "cases.h"

#include "../c/entries.h"

/* Functions that entries.h has not, or only with arguments that are refused before others. */
static dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
static dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
static dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
static dtl_attr_t text, attr;
static dtl_enum_t enumeration;
static const void* const values[] = {&text};
static const uint64_t sizes[] = {sizeof text};

static dtl_status_t chosen(void* self, dtl_task_key_t key, uint32_t* out_index)
{
    (void)self, (void)key;
    return *out_index = 0, DTL_SUCCESS;
}

static void logged(int32_t level, const char* line, void* user)
{
    (void)level, (void)line, (void)user;
}

static dtl_status_t copied(void* self, void* dst, dtl_enum_word_t dst_kind, const void* src,
    dtl_enum_word_t src_kind, uint64_t size_bytes)
{
    (void)self, (void)dst, (void)dst_kind, (void)src, (void)src_kind, (void)size_bytes;
    return DTL_SUCCESS;
}

/* A policy that has no resources yet. */
static dtl_policy_t deferred(void)
{
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    opts.flags = DTL_POLICY_DEFER, opts.kind = DTL_RESOURCES_GENERIC;
    CHECK_OK(dtl_policy_create("fixed", NULL, 0, &opts, &policy));
    return policy;
}

/* The name that an enumeration, a member or a template has only once in a process. */
static const char* fresh(void)
{
    static char name[32];
    static int number;
    snprintf(name, sizeof name, "null_%d", number++);
    return name;
}

static const dtl_environment_desc_t* environment(void)
{
    static dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    desc.name = fresh();
    return &desc;
}

/* The name of an environment that is registered. */
static const char* registered(void)
{
    const dtl_environment_desc_t* desc = environment();
    CHECK_OK(dtl_environment_register(desc));
    return desc->name;
}

static dtl_status_t load(const dtl_host_api_t* host)
{
    dtl_backend_t backend;
    return host->backend_register(fresh(), &table, NULL, 0, &backend);
}

static dtl_status_t entry_of_plugin(const dtl_host_api_t* host, dtl_plugin_t* out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "null_plugin", plugin.version = "1", plugin.description = "one backend";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}

#define MORE(X) \
    X(NONE, dtl_init, (NULL)) \
    X(NONE, dtl_plugin_register, (entry_of_plugin, &o->handles.backend)) \
    X(NONE, dtl_log_set_callback, (logged, &table, 0)) \
    X(NONE, dtl_backend_register, ("null_test", &table, NULL, 0, &o->handles.backend)) \
    X(NONE, dtl_backend_set_error, ("text")) \
    X(NONE, dtl_error_set, (DTL_ERROR_BUSY, "text")) \
    X(NONE, dtl_policy_create_custom, (&ops, NULL, e_resources, 2, NULL, &o->handles.policy)) \
    X(NONE, dtl_environment_is_available, \
        (registered(), &o->number, o->text, sizeof o->text, &o->word)) \
    X(NONE, dtl_affinity, (&o->number, 1, &o->word)) \
    X(NONE, dtl_kernel_launch, (h->stream, h->kernel, &e_launch, values, sizes, 1)) \
    X(NONE, dtl_environment_register, (environment())) \
    X(NONE, dtl_policy_initialize, (deferred(), e_resources, 2, NULL)) \
    X(NONE, dtl_enum_create, (fresh(), 0, &enumeration)) \
    X(NONE, dtl_enum_find, ("Memory", &enumeration)) \
    X(NONE, dtl_enum_register, (DTL_ENUM_MEMORY, fresh(), &o->word)) \
    X(NONE, dtl_enum_register_value, (DTL_ENUM_MEMORY, "null_300", 300, &o->word)) \
    X(NONE, dtl_enum_register_template, (DTL_ENUM_MEMORY, fresh(), &text, 1, &o->word)) \
    X(NONE, dtl_enum_from_name, (DTL_ENUM_MEMORY, "Host", &o->word)) \
    X(NONE, dtl_enum_from_value, (DTL_ENUM_MEMORY, 1, &o->word)) \
    X(NONE, dtl_enum_count, (DTL_ENUM_MEMORY, &o->word)) \
    X(NONE, dtl_enum_at, (DTL_ENUM_MEMORY, 0, &o->word)) \
    X(NONE, dtl_enum_undefined, (DTL_ENUM_MEMORY, &o->word)) \
    X(NONE, dtl_ev_instance, (DTL_MEMORY_UNDEFINED, &text, 1, &o->word)) \
    X(NONE, dtl_ev_get, (DTL_MEMORY_HOST, "text", &attr)) \
    X(NONE, dtl_ev_name, (DTL_MEMORY_HOST, &o->name)) \
    X(NONE, dtl_ev_to_json, (DTL_MEMORY_HOST, o->text, sizeof o->text, &o->word)) \
    X(NONE, dtl_ev_from_json, (DTL_ENUM_MEMORY, "\"Host\"", 0, &o->word)) \
    X(NONE, dtl_schedule_set_defaults, \
        (DTL_SCHEDULE_MULTICORE, DTL_MEMORY_HOST, DTL_SCHEDULE_SEQUENTIAL)) \
    X(NONE, dtl_schedule_defaults, (DTL_SCHEDULE_MULTICORE, &o->word, &o->second))
#define X(noun, function, arguments) \
    static dtl_status_t more_##function(const struct handles* h, struct outputs* o) \
    { \
        (void)h, (void)o; \
        return function arguments; \
    }
MORE(X)
#undef X
#define X(noun, function, arguments) {noun, #function, more_##function},
static const struct entry more[] = {MORE(X)};
#undef X

static entry_fn find(const char* function)
{
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (strcmp(more[i].name, function) == 0) return more[i].call;
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (strcmp(entries[i].name, function) == 0) return entries[i].call;
    fprintf(stderr, "neither entries.h nor facts.c has a line for %s\n", function);
    exit(1);
}

static int failures;

static void complain(const struct fact_case* one, dtl_status_t status, const char* why)
{
    fprintf(stderr, "%s(%s = %s): %s: ", one->function, one->parameter, one->value, why);
    fprintf(stderr, "%s (%s)\n", dtl_status_name(status), dtl_last_error());
    failures++;
}

/* True if the text has the name as a whole word. */
static int names(const char* text, const char* name)
{
    const size_t length = strlen(name);
    const char* const letters = "abcdefghijklmnopqrstuvwxyz_0123456789";
    for (const char* at = text; (at = strstr(at, name)) != NULL; at++) {
        const int begins = at == text || strchr(letters, at[-1]) == NULL;
        if (begins && (at[length] == 0 || strchr(letters, at[length]) == NULL)) return 1;
    }
    return 0;
}

static int is_excused(const struct fact_case* one)
{
    static const struct fact_case excused[] = {
        /* Only the adapter of `opts` is used. */
        {"dtl_policy_initialize", "opts.kind", ""},
        /* It explains why a query finds nothing. */
        {"dtl_dispatch_explain", "query.operation", ""},
        /* Checked when they are written: when a request completes. That of entries.h does not. */
        {"dtl_request_wait", "out_info", ""},
        {"dtl_request_test", "out_info", ""},
        {"dtl_request_wait_all", "out_infos", ""},
        {"dtl_request_test_all", "out_infos", ""},
        {"dtl_request_wait_any", "out_info", ""},
        {"dtl_request_wait_some", "out_infos", ""},
    };
    for (size_t i = 0; i < sizeof excused / sizeof excused[0]; i++)
        if (strcmp(excused[i].function, one->function) == 0)
            if (strcmp(excused[i].parameter, one->parameter) == 0) return 1;
    return 0;
}

static void check(const struct fact_case* one, dtl_status_t status, int is_written)
{
    const char* field = strchr(one->parameter, '.');
    const char* name = field == NULL ? one->parameter : field + 1;
    if (passed == 0) complain(one, status, "the wrapper was not called");
    if (expected == ALLOWED && status == DTL_ERROR_NULL_POINTER)
        complain(one, status, "refused, but allowed");
    if (expected == ALLOWED || expected == ANYTHING || is_excused(one)) return;
    if (status == DTL_SUCCESS) complain(one, status, "not refused");
    else if (expected != REFUSED && status != expected) complain(one, status, "another status");
    else if (!names(dtl_last_error(), name)) complain(one, status, "the text does not name it");
    else if (is_written) complain(one, status, "an output was written");
}

int main(void)
{
    const size_t cases = sizeof fact_cases / sizeof fact_cases[0];
    ops.select = chosen;
    table.transfer = &transfer, transfer.copy = copied;
    for (size_t i = 0; i < cases; i++) {
        const entry_fn call = find(fact_cases[i].function);
        struct outputs outputs, before;
        struct handles handles;
        CHECK_OK(dtl_init(NULL));
        text = dtl_attr_str("text", "");
        make_handles(&handles);
        /* Its configuration counts only in the first call. */
        if (strcmp(fact_cases[i].function, "dtl_init") == 0) CHECK_OK(dtl_finalize());
        poison(&outputs);
        outputs.requests[0] = handles.request;
        memcpy(&before, &outputs, sizeof before);
        now = &fact_cases[i], passed = 0;
        const dtl_status_t status = call(&handles, &outputs);
        now = NULL;
        check(&fact_cases[i], status, memcmp(&before, &outputs, sizeof before) != 0);
        /* As often as dtl_init was called: a case may be a call of it. */
        while (dtl_finalize() == DTL_SUCCESS) continue;
    }
    printf("%d cases, %d findings\n", (int)cases, failures);
    return failures == 0 ? 0 : 1;
}
