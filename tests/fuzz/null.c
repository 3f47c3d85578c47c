/* Calls every function of dtl.h with each of its pointers NULL in turn. Where the description of the
 * interface (dtl-api.json) does not allow it, the call fails with DTL_ERROR_NULL_POINTER, and the text
 * names the parameter; elsewhere the call does not fail because of it. The other arguments are those
 * of entries.h. The wrappers, null_calls.h, are generated from the header's sources. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What NULL is for a parameter: an error, allowed, or an address of memory, for which anything goes. */
enum null_rule { NULL_BAD, NULL_GOOD, NULL_ANY };

struct null_case {
    const char *function, *parameter;
};

static const struct null_case* null_now;
static enum null_rule null_expected;
static int null_passed;

/* True if the parameter is the one to replace. */
static int null_is(const char* function, const char* parameter, enum null_rule rule)
{
    if (null_now == NULL || strcmp(null_now->function, function) != 0) return 0;
    if (strcmp(null_now->parameter, parameter) != 0) return 0;
    null_expected = rule, null_passed++;
    return 1;
}

#include "null_calls.h"

#include "../c/entries.h"

/* Functions that entries.h has not, or only with arguments that are refused before the pointer. */
static dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
static dtl_policy_ops_t ops = DTL_POLICY_OPS_INIT;
static dtl_attr_t text, attr;
static dtl_enum_t enumeration;

static dtl_status_t chosen(void* self, dtl_task_key_t key, uint32_t* out_index)
{
    (void)self, (void)key;
    return *out_index = 0, DTL_SUCCESS;
}

static void logged(int32_t level, const char* line, void* user)
{
    (void)level, (void)line, (void)user;
}

/* The name that an enumeration, a member or a template has only once in a process. */
static const char* fresh(void)
{
    static char name[32];
    static int number;
    snprintf(name, sizeof name, "null_%d", number++);
    return name;
}

#define MORE(X)                                                                                          \
    X(NONE, dtl_init, (NULL))                                                                            \
    X(NONE, dtl_log_set_callback, (logged, &table, 0))                                                   \
    X(NONE, dtl_backend_register, ("null_test", &table, NULL, 0, &o->handles.backend))                   \
    X(NONE, dtl_backend_set_error, ("text"))                                                             \
    X(NONE, dtl_policy_create_custom, (&ops, NULL, e_resources, 2, NULL, &o->handles.policy))            \
    X(NONE, dtl_enum_create, (fresh(), 0, &enumeration))                                              \
    X(NONE, dtl_enum_find, ("Memory", &enumeration))                                                  \
    X(NONE, dtl_enum_register, (DTL_ENUM_MEMORY, fresh(), &o->word))                                     \
    X(NONE, dtl_enum_register_value, (DTL_ENUM_MEMORY, "null_300", 300, &o->word))                       \
    X(NONE, dtl_enum_register_template, (DTL_ENUM_MEMORY, fresh(), &text, 1, &o->word))                 \
    X(NONE, dtl_enum_from_name, (DTL_ENUM_MEMORY, "Host", &o->word))                                     \
    X(NONE, dtl_enum_from_value, (DTL_ENUM_MEMORY, 1, &o->word))                                         \
    X(NONE, dtl_enum_count, (DTL_ENUM_MEMORY, &o->word))                                                 \
    X(NONE, dtl_enum_at, (DTL_ENUM_MEMORY, 0, &o->word))                                                 \
    X(NONE, dtl_enum_undefined, (DTL_ENUM_MEMORY, &o->word))                                             \
    X(NONE, dtl_ev_instance, (DTL_MEMORY_UNDEFINED, &text, 1, &o->word))                                 \
    X(NONE, dtl_ev_get, (DTL_MEMORY_HOST, "text", &attr))                                             \
    X(NONE, dtl_ev_name, (DTL_MEMORY_HOST, &o->name))                                                    \
    X(NONE, dtl_ev_to_json, (DTL_MEMORY_HOST, o->text, sizeof o->text, &o->word))                        \
    X(NONE, dtl_ev_from_json, (DTL_ENUM_MEMORY, "\"Host\"", 0, &o->word))                                   \
    X(NONE, dtl_schedule_defaults, (DTL_SCHEDULE_MULTICORE, &o->word, &o->second))
#define X(noun, function, arguments)                                                                     \
    static dtl_status_t more_##function(const struct handles* h, struct outputs* o)                      \
    {                                                                                                    \
        (void)h, (void)o;                                                                                \
        return function arguments;                                                                       \
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
    fprintf(stderr, "neither entries.h nor null.c has a line for %s\n", function);
    exit(1);
}

static int failures;

static void complain(const struct null_case* one, dtl_status_t status, const char* why)
{
    fprintf(stderr, "%s(%s = NULL): %s: %s (%s)\n", one->function, one->parameter, why, dtl_status_name(status), dtl_last_error());
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

static void check(const struct null_case* one, dtl_status_t status)
{
    if (null_passed == 0) complain(one, status, "the wrapper was not called");
    if (null_expected == NULL_GOOD && status == DTL_ERROR_NULL_POINTER) complain(one, status, "refused, but allowed");
    if (null_expected != NULL_BAD) return;
    if (status != DTL_ERROR_NULL_POINTER) complain(one, status, "not refused");
    else if (!names(dtl_last_error(), one->parameter)) complain(one, status, "the text does not name it");
}

int main(void)
{
    const size_t cases = sizeof null_cases / sizeof null_cases[0];
    ops.select = chosen;
    for (size_t i = 0; i < cases; i++) {
        const entry_fn call = find(null_cases[i].function);
        struct outputs outputs;
        struct handles handles;
        CHECK_OK(dtl_init(NULL));
        text = dtl_attr_str("text", "");
        make_handles(&handles);
        poison(&outputs);
        outputs.requests[0] = handles.request;
        null_now = &null_cases[i], null_passed = 0;
        const dtl_status_t status = call(&handles, &outputs);
        null_now = NULL;
        check(&null_cases[i], status);
        /* As often as dtl_init was called: a case may be a call of it. */
        while (dtl_finalize() == DTL_SUCCESS) continue;
    }
    printf("%d pointers\n", (int)cases);
    return failures == 0 ? 0 : 1;
}
