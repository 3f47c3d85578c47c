/* What the tests of dispatchers share: handlers that count, keys, queries. Not a test by itself. */
#ifndef DTL_TESTS_DISPATCH_CASES_H
#define DTL_TESTS_DISPATCH_CASES_H

#include "check.h"
#include <string.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

/* A member of the test's own, registered with its first use. */
static inline dtl_enum_word_t member_of(dtl_enum_t enumeration, uint32_t number) {
    const dtl_enum_word_t word = (uint64_t)enumeration << 48 | (uint64_t)(1000 + number) << 32;
    const char* known = NULL;
    dtl_enum_word_t made = 0;
    char name[24];
    if (dtl_ev_name(word, &known) == DTL_SUCCESS) return word;
    snprintf(name, sizeof name, "M%u", number);
    CHECK_OK(dtl_enum_register_value(enumeration, name, 1000 + number, &made));
    CHECK(made == word);
    return word;
}

/* Memory, schedule, operation. */
#define MEM(n) member_of(DTL_ENUM_MEMORY, (uint32_t)(n))
#define HOW(n) member_of(DTL_ENUM_SCHEDULE, (uint32_t)(n))
#define DO(n) member_of(DTL_ENUM_OPERATION, (uint32_t)(n))
/* One that nobody was given. */
#define NEVER(enumeration) ((uint64_t)(enumeration) << 48 | UINT64_C(60000) << 32)
#define ANY DTL_DISPATCH_ANY

struct spy {
    int32_t answer;                  /* of the predicate */
    dtl_status_t status;             /* of the handler */
    int asked, invoked, destroyed;
    const dtl_dispatch_query_t* query; /* of the last call */
};

static inline struct spy spy_of(int32_t answer) {
    struct spy spy;
    memset(&spy, 0, sizeof spy);
    spy.answer = answer;
    return spy;
}

static inline int32_t spy_asks(const dtl_dispatch_query_t* query, void* user) {
    struct spy* spy = (struct spy*)user;
    spy->asked++, spy->query = query;
    return spy->answer;
}

static inline dtl_status_t spy_does(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    struct spy* spy = (struct spy*)user;
    (void)event;
    spy->invoked++, spy->query = query;
    return spy->status;
}

static inline void spy_ends(void* user) { ((struct spy*)user)->destroyed++; }

static inline dtl_dispatch_key_t key_of(uint64_t op, uint64_t source, uint64_t destination, uint64_t schedule) {
    dtl_dispatch_key_t key;
    memset(&key, 0, sizeof key);
    key.operation = op, key.source = source, key.destination = destination, key.schedule = schedule;
    return key;
}

static inline dtl_dispatch_query_t query_of(uint64_t op, uint64_t source, uint64_t destination, uint64_t schedule) {
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    query.operation = op, query.source = source, query.destination = destination, query.schedule = schedule;
    return query;
}

static inline dtl_dispatch_handler_t handler_of(const char* name, struct spy* spy) {
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    handler.name = name, handler.invoke = spy_does, handler.destroy = spy != NULL ? spy_ends : NULL, handler.user = spy;
    return handler;
}

/* A handler without a predicate. */
static inline dtl_registration_t add(dtl_dispatcher_t d, const char* name, dtl_dispatch_key_t key, struct spy* spy) {
    const dtl_dispatch_handler_t handler = handler_of(name, spy);
    dtl_registration_t out;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &out));
    return out;
}

/* One with a predicate. */
static inline dtl_registration_t add_asking(
    dtl_dispatcher_t d, const char* name, dtl_dispatch_key_t key, int32_t priority, struct spy* spy) {
    dtl_dispatch_handler_t handler = handler_of(name, spy);
    dtl_registration_t out;
    handler.predicate = spy_asks, handler.priority = priority;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &out));
    return out;
}

static inline int finds(dtl_dispatcher_t d, dtl_dispatch_query_t query, dtl_registration_t expected) {
    dtl_registration_t found = DTL_REGISTRATION_NULL;
    CHECK_OK(dtl_dispatch_find(d, &query, &found));
    return found.id == expected.id;
}

static inline dtl_status_t fails(dtl_dispatcher_t d, dtl_dispatch_query_t query) {
    dtl_registration_t found = {77};
    const dtl_status_t status = dtl_dispatch_find(d, &query, &found);
    CHECK(found.id == 77);
    return status;
}

static char told[16384];

/* Whether the explanation has this part; `told` is all of it. */
static inline int tells(dtl_dispatcher_t d, dtl_dispatch_query_t query, const char* part) {
    uint64_t length = 0;
    CHECK_OK(dtl_dispatch_explain(d, &query, told, sizeof told, &length));
    CHECK(strlen(told) == length);
    return strstr(told, part) != NULL;
}

static inline int explains(dtl_dispatcher_t d, dtl_dispatch_query_t query, const char* part) {
    const int does = tells(d, query, part);
    if (!does) fprintf(stderr, "%s\ndoes not contain %s\n", told, part);
    return does;
}

#endif
