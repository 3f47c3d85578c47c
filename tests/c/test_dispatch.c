/* Dispatchers: the numbered rules at dtl_dispatch_key_t, each by its number, what is refused, and what goes wrong in DaCe.
 * Usage: test_dispatch. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "dispatch_cases.h"
#include <pthread.h>

static dtl_dispatcher_t make(uint64_t flags) {
    dtl_dispatcher_t d;
    CHECK_OK(dtl_dispatcher_create(flags, &d));
    return d;
}

/* The eight forms of a key, most specific first. */
static dtl_dispatch_key_t form(int n) {
    return key_of(DO(0), n & 4 ? ANY : MEM(1), n & 2 ? ANY : MEM(2), n & 1 ? ANY : HOW(1));
}

/* Keys in the order of the rule: registered in two orders, then taken away one by one from the front. */
static void in_order(const dtl_dispatch_key_t* keys, int count, dtl_dispatch_query_t query) {
    int backwards, i;
    for (backwards = 0; backwards < 2; backwards++) {
        const dtl_dispatcher_t d = make(0);
        dtl_registration_t all[16];
        for (i = 0; i < count; i++) {
            const int at = backwards ? count - 1 - i : (i * 5) % count;
            all[at] = add(d, "in order", keys[at], NULL);
        }
        for (i = 0; i < count; i++) {
            CHECK(finds(d, query, all[i]));
            CHECK_OK(dtl_dispatch_unregister(d, all[i]));
        }
        CHECK_STATUS(fails(d, query), DTL_ERROR_NOT_FOUND);
        CHECK_OK(dtl_dispatcher_destroy(d));
    }
}

/* A template and an instance of it. */
static uint64_t template_of(dtl_enum_t enumeration, const char* name, uint64_t* instance) {
    const dtl_attr_t field = dtl_attr_i64("n", 0), seven = dtl_attr_i64("n", 7);
    dtl_enum_word_t word = 0;
    if (dtl_enum_from_name(enumeration, name, &word) != DTL_SUCCESS)
        CHECK_OK(dtl_enum_register_template(enumeration, name, &field, 1, &word));
    CHECK_OK(dtl_ev_instance(word, &seven, 1, instance));
    return word;
}

static void test_rule_1(void) {
    uint64_t ai, bi, hi;
    const uint64_t a = template_of(DTL_ENUM_MEMORY, "A", &ai), b = template_of(DTL_ENUM_MEMORY, "B", &bi);
    const uint64_t h = template_of(DTL_ENUM_SCHEDULE, "H", &hi);
    dtl_dispatch_key_t keys[11];
    int i;
    for (i = 0; i < 8; i++) keys[i] = form(i);
    in_order(keys, 8, query_of(DO(0), MEM(1), MEM(2), HOW(1)));
    /* An instance beats its template within a form, never across forms. */
    keys[0] = key_of(DO(0), ai, bi, hi), keys[1] = key_of(DO(0), ai, bi, h), keys[2] = key_of(DO(0), ai, b, hi);
    keys[3] = key_of(DO(0), a, bi, hi), keys[4] = key_of(DO(0), a, b, h), keys[5] = key_of(DO(0), ai, b, ANY);
    keys[6] = key_of(DO(0), a, bi, ANY), keys[7] = key_of(DO(0), ai, ANY, ANY), keys[8] = key_of(DO(0), a, ANY, ANY);
    keys[9] = key_of(DO(0), ANY, bi, ANY), keys[10] = key_of(DO(0), ANY, ANY, ANY);
    in_order(keys, 11, query_of(DO(0), ai, bi, hi));
    {
        const dtl_dispatcher_t d = make(0);
        const dtl_registration_t of_template = add(d, "template", key_of(DO(0), a, ANY, ANY), NULL);
        const dtl_registration_t of_instance = add(d, "instance", key_of(DO(0), ai, ANY, ANY), NULL);
        CHECK(finds(d, query_of(DO(0), a, b, h), of_template)); /* no instance's key fits the template itself */
        CHECK(finds(d, query_of(DO(0), a + 8, b, h), of_template));
        CHECK(finds(d, query_of(DO(0), ai, b, h), of_instance));
        CHECK(finds(d, query_of(DO(0) + 5, ai, b, h), of_instance)); /* operations have no instances in keys */
        CHECK_STATUS(fails(d, query_of(DO(0), b, b, h)), DTL_ERROR_NOT_FOUND);
        CHECK_STATUS(fails(d, query_of(DO(0), ANY, b, h)), DTL_ERROR_NOT_FOUND); /* a query's any is none */
        CHECK_STATUS(fails(d, query_of(DO(1), ai, b, h)), DTL_ERROR_NOT_FOUND);
        CHECK_OK(dtl_dispatcher_destroy(d));
    }
}

static void test_rule_2(void) {
    const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(1));
    struct spy specific = spy_of(0), general = spy_of(1), other = spy_of(1), low = spy_of(1), strict = spy_of(1);
    dtl_dispatcher_t d = make(0);
    dtl_registration_t last, second;
    add(d, "plain", form(0), NULL);
    add_asking(d, "specific", form(0), 9, &specific);
    last = add_asking(d, "general", form(7), 0, &general);
    CHECK(finds(d, query, last)); /* all false at one key hides nothing, and a plain key does not come first */
    CHECK(specific.asked == 1 && general.asked == 1);
    specific.answer = 1;
    CHECK(!finds(d, query, last) && general.asked == 1);
    /* At one key: the highest priority that is true. */
    second = add_asking(d, "other", form(0), 10, &other);
    add_asking(d, "low", form(0), -5, &low);
    CHECK(finds(d, query, second) && low.asked == 0);
    other.answer = 0;
    CHECK(!finds(d, query, second) && low.asked == 0);
    CHECK_OK(dtl_dispatch_unregister(d, second));
    other.answer = 1;
    second = add_asking(d, "other", form(0), 9, &other);
    CHECK_STATUS(fails(d, query), DTL_ERROR_AMBIGUOUS);
    CHECK_TEXT("\"specific\" and \"other\"");
    CHECK(explains(d, query, "\"other\": priority 9, its predicate is true"));
    CHECK(explains(d, query, "refused: DTL_ERROR_AMBIGUOUS"));
    specific.answer = 0;
    CHECK(finds(d, query, second));
    CHECK_OK(dtl_dispatcher_destroy(d));
    CHECK(specific.destroyed == 1 && general.destroyed == 1 && other.destroyed == 2 && low.destroyed == 1);
    /* As DaCe does it: the key hides the others. */
    d = make(DTL_DISPATCHER_STRICT_DACE);
    last = add(d, "plain", form(7), NULL);
    add_asking(d, "specific", form(0), 0, &specific);
    second = add_asking(d, "strict", form(1), 0, &strict);
    CHECK(finds(d, query, last) && strict.asked == 0);
    CHECK(finds(d, query_of(DO(0), MEM(1), MEM(2), HOW(2)), second));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static void test_rule_3(void) {
    const dtl_dispatcher_t d = make(0);
    struct spy no = spy_of(0);
    dtl_registration_t all[8];
    int i;
    add_asking(d, "no", form(0), 0, &no);
    for (i = 7; i >= 0; i--) {
        all[i] = add(d, "plain", form(i), NULL);
        CHECK(finds(d, query_of(DO(0), MEM(1), MEM(2), HOW(1)), all[i]));
    }
    CHECK(finds(d, query_of(DO(0), MEM(3), MEM(2), ANY), all[5]));
    CHECK(finds(d, query_of(DO(0), ANY, ANY, HOW(1)), all[6]));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static dtl_registration_t add_flagged(dtl_dispatcher_t d, const char* name, uint64_t flags, dtl_dispatch_key_t key, struct spy* spy) {
    dtl_dispatch_handler_t handler = handler_of(name, spy);
    dtl_registration_t out;
    handler.flags = flags;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &out));
    return out;
}

static void test_rule_4(void) {
    const dtl_dispatcher_t d = make(0);
    const dtl_registration_t fallback = add_flagged(d, "default", DTL_DISPATCH_DEFAULT, form(7), NULL);
    dtl_registration_t general;
    CHECK(finds(d, query_of(DO(0), MEM(1), ANY, ANY), fallback));
    general = add(d, "general", form(7), NULL); /* the same key, without the flag: another rule, and an earlier one */
    CHECK(finds(d, query_of(DO(0), MEM(1), ANY, ANY), general));
    CHECK(explains(d, query_of(DO(0), MEM(1), ANY, ANY), "default: \"default\""));
    CHECK_STATUS(fails(d, query_of(DO(1), MEM(1), ANY, ANY)), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static void test_rule_5(void) {
    const dtl_dispatcher_t d = make(0);
    dtl_event_t event = {77};
    dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(3));
    add(d, "other", form(0), NULL);
    CHECK_STATUS(fails(d, query), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("source M1, destination M2, schedule M3");
    CHECK_STATUS(dtl_dispatch_invoke(d, &query, &event), DTL_ERROR_NOT_FOUND);
    CHECK(event.id == 77);
    CHECK(explains(d, query, "refused: DTL_ERROR_NOT_FOUND"));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static void test_rule_6(void) {
    const dtl_dispatcher_t d = make(0);
    const dtl_dispatch_key_t both[2] = {form(1), form(0)}, general = form(7);
    const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(1));
    struct spy spy = spy_of(0);
    dtl_dispatch_handler_t handler = handler_of("second", &spy);
    const dtl_registration_t first = add(d, "first", form(0), NULL);
    dtl_registration_t second = {77};
    CHECK_STATUS(dtl_dispatch_register(d, both, 2, &handler, &second), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("\"first\" is there for operation M0, (M1, M2, M1)");
    CHECK(second.id == 77 && spy.destroyed == 0);
    CHECK_STATUS(fails(d, query_of(DO(0), MEM(1), MEM(2), ANY)), DTL_ERROR_NOT_FOUND); /* nor under the other key */
    handler.flags = DTL_DISPATCH_REPLACE, handler.priority = -1;
    CHECK_OK(dtl_dispatch_register(d, both, 2, &handler, &second));
    CHECK(finds(d, query, second) && finds(d, query_of(DO(0), MEM(1), MEM(2), ANY), second));
    CHECK_OK(dtl_dispatch_unregister(d, second));
    CHECK(finds(d, query, first) && spy.destroyed == 1);
    add_flagged(d, "default", DTL_DISPATCH_DEFAULT, form(7), NULL);
    handler.flags = DTL_DISPATCH_DEFAULT;
    CHECK_STATUS(dtl_dispatch_register(d, &general, 1, &handler, &second), DTL_ERROR_ALREADY_EXISTS);
    second = add_flagged(d, "better", DTL_DISPATCH_DEFAULT | DTL_DISPATCH_REPLACE, form(7), NULL);
    CHECK(finds(d, query_of(DO(0), MEM(5), ANY, ANY), second));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static void test_rule_7(void) {
    const dtl_dispatcher_t d = make(0);
    dtl_dispatch_handler_t handler = handler_of("no way", NULL);
    dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), ANY);
    struct spy spy = spy_of(1);
    dtl_dispatch_key_t key = form(1);
    dtl_registration_t illegal;
    add(d, "general", form(7), &spy);
    handler.flags = DTL_DISPATCH_ILLEGAL, handler.invoke = NULL, handler.reason = "the wires are not there";
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &illegal));
    CHECK_STATUS(fails(d, query), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("the wires are not there (so says handler \"no way\")");
    CHECK_STATUS(dtl_dispatch_invoke(d, &query, NULL), DTL_ERROR_NOT_SUPPORTED);
    CHECK(spy.invoked == 0);
    CHECK(explains(d, query, "illegal: the wires are not there"));
    CHECK_OK(dtl_dispatch_unregister(d, illegal));
    handler.predicate = spy_asks, handler.user = &spy;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &illegal));
    CHECK_STATUS(fails(d, query), DTL_ERROR_NOT_SUPPORTED);
    spy.answer = 0;
    CHECK_OK(dtl_dispatch_invoke(d, &query, NULL));
    CHECK(spy.invoked == 1);
    CHECK_OK(dtl_dispatcher_destroy(d));
}

/* A predicate that asks the dispatcher, and changes it. */
static dtl_dispatcher_t asked_again;
static dtl_registration_t found_inside;

static int32_t asks_again(const dtl_dispatch_query_t* query, void* user) {
    struct spy* spy = (struct spy*)user;
    dtl_dispatch_query_t other = *query;
    if (spy->asked++ > 0) return 0;
    other.schedule = HOW(2);
    CHECK_OK(dtl_dispatch_find(asked_again, &other, &found_inside));
    CHECK_OK(dtl_dispatch_unregister(asked_again, add(asked_again, "inside", key_of(DO(3), ANY, ANY, ANY), NULL)));
    return 0;
}

static int32_t fails_with_text(const dtl_dispatch_query_t* query, void* user) {
    (void)query, (void)user;
    CHECK_OK(dtl_backend_set_error("the oracle sleeps"));
    return -DTL_ERROR_TIMEOUT;
}

static void test_rule_8(void) {
    const dtl_dispatcher_t d = make(0);
    const dtl_dispatch_key_t three[3] = {form(0), form(1), form(7)};
    const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(1));
    struct spy spy = spy_of(0), nested = spy_of(0);
    dtl_dispatch_handler_t handler = handler_of("three keys", &spy);
    dtl_registration_t plain, asking;
    handler.predicate = spy_asks;
    CHECK_OK(dtl_dispatch_register(d, three, 3, &handler, &asking));
    plain = add(d, "plain", form(7), NULL);
    CHECK(finds(d, query, plain) && spy.asked == 1);
    CHECK(spy.query != NULL && finds(d, query, plain) && spy.asked == 2);
    asked_again = d;
    handler = handler_of("asks again", &nested), handler.predicate = asks_again;
    CHECK_OK(dtl_dispatch_register(d, three, 3, &handler, &asking));
    CHECK(finds(d, query, plain));
    CHECK(found_inside.id == plain.id && nested.asked == 2); /* once outside, once inside */
    spy.answer = -DTL_ERROR_BUSY;
    CHECK_STATUS(fails(d, query), DTL_ERROR_BUSY);
    CHECK_TEXT("the predicate of handler \"three keys\"");
    spy.answer = -12345;
    CHECK_STATUS(fails(d, query), DTL_ERROR_NATIVE_BACKEND);
    spy.answer = INT32_MIN;
    CHECK_STATUS(fails(d, query), DTL_ERROR_NATIVE_BACKEND);
    CHECK(explains(d, query, "\"three keys\": priority 0, its predicate fails (DTL_ERROR_NATIVE_BACKEND"));
    spy.answer = 0;
    handler = handler_of("with text", NULL), handler.predicate = fails_with_text, handler.priority = 5;
    CHECK_OK(dtl_dispatch_register(d, three, 1, &handler, &asking));
    CHECK_STATUS(fails(d, query), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("the oracle sleeps");
    CHECK_OK(dtl_dispatcher_destroy(d));
}

/* Rule 9: a handler whose data die with it. */
struct canary {
    int alive, *destroyed;
    dtl_dispatcher_t d;
    dtl_registration_t own;
};

static int inside_handler, may_leave;

static int peek(const int* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void put(int* word, int value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

static void canary_ends(void* user) {
    struct canary* canary = (struct canary*)user;
    canary->alive = 0;
    __atomic_fetch_add(canary->destroyed, 1, __ATOMIC_ACQ_REL);
    free(canary);
}

static int32_t canary_asks(const dtl_dispatch_query_t* query, void* user) {
    (void)query;
    CHECK(((struct canary*)user)->alive == 0x5EED);
    return 1;
}

static dtl_status_t canary_does(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    const struct canary* canary = (const struct canary*)user;
    (void)event;
    CHECK(canary->alive == 0x5EED);
    if (query->args != NULL) { /* it unregisters itself and goes on */
        CHECK_OK(dtl_dispatch_unregister(canary->d, canary->own));
        CHECK(canary->alive == 0x5EED && peek(canary->destroyed) == 0);
    } else if (query->schedule != ANY) {
        put(&inside_handler, 1);
        while (!peek(&may_leave)) sched_yield();
        CHECK(canary->alive == 0x5EED);
    }
    return DTL_SUCCESS;
}

static struct canary* add_canary(dtl_dispatcher_t d, int* destroyed, int asks) {
    struct canary* canary = (struct canary*)calloc(1, sizeof *canary);
    const dtl_dispatch_key_t key = form(7);
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    CHECK(canary != NULL);
    canary->alive = 0x5EED, canary->destroyed = destroyed, canary->d = d;
    handler.name = "canary", handler.invoke = canary_does, handler.destroy = canary_ends, handler.user = canary;
    if (asks) handler.predicate = canary_asks;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &canary->own));
    return canary;
}

static void* invoke_once(void* user) {
    const dtl_dispatch_query_t query = query_of(DO(0), ANY, ANY, HOW(1));
    CHECK_OK(dtl_dispatch_invoke(*(dtl_dispatcher_t*)user, &query, NULL));
    return NULL;
}

static int done;

static void* invoke_always(void* user) {
    const dtl_dispatcher_t d = *(dtl_dispatcher_t*)user;
    const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(1), ANY);
    uintptr_t count = 0;
    dtl_registration_t found;
    while (!peek(&done)) {
        const dtl_status_t status = dtl_dispatch_invoke(d, &query, NULL);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_NOT_FOUND);
        count += status == DTL_SUCCESS;
        DTL_IGNORE(dtl_dispatch_find(d, &query, &found));
    }
    return (void*)count;
}

static void test_rule_9(void) {
    dtl_dispatcher_t d = make(0);
    dtl_dispatch_query_t query = query_of(DO(0), ANY, ANY, ANY);
    int destroyed = 0, round, i;
    pthread_t threads[2];
    void* counts[2];
    dtl_registration_t own;
    query.args = &query;
    add_canary(d, &destroyed, 0);
    CHECK_OK(dtl_dispatch_invoke(d, &query, NULL));
    CHECK(destroyed == 1);
    /* Unregistered while another thread is in it. */
    own = add_canary(d, &destroyed, 0)->own;
    CHECK(pthread_create(&threads[0], NULL, invoke_once, &d) == 0);
    while (!peek(&inside_handler)) sched_yield();
    CHECK_OK(dtl_dispatch_unregister(d, own));
    CHECK_STATUS(dtl_dispatch_unregister(d, own), DTL_ERROR_INVALID_HANDLE);
    CHECK(peek(&destroyed) == 1);
    put(&may_leave, 1);
    CHECK(pthread_join(threads[0], NULL) == 0);
    CHECK(peek(&destroyed) == 2);
    /* Handlers come and go, with predicates and without, while two threads use them. */
    destroyed = 0;
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, invoke_always, &d) == 0);
    for (round = 0; round < 3000; round++) {
        own = add_canary(d, &destroyed, round % 2)->own;
        if (round % 16 == 0) sched_yield();
        CHECK_OK(dtl_dispatch_unregister(d, own));
    }
    put(&done, 1);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], &counts[i]) == 0);
    CHECK(counts[0] != NULL || counts[1] != NULL);
    /* Who leaves last frees: a call after all have left finds what may still wait. */
    DTL_IGNORE(dtl_dispatch_invoke(d, &query, NULL));
    CHECK(peek(&destroyed) == 3000);
    CHECK_OK(dtl_dispatcher_destroy(d));
}

static void test_rule_10(void) {
    const dtl_dispatcher_t d = make(0);
    const dtl_registration_t all = add(d, "all", form(7), NULL), into = add(d, "into", key_of(DO(0), ANY, MEM(2), ANY), NULL);
    CHECK(finds(d, query_of(DO(0), MEM(5000), MEM(2), HOW(5001)), into)); /* nobody has named these before */
    CHECK(finds(d, query_of(DO(0), MEM(5002) + 3, UINT64_C(0xFFFFFFFFFFFFFFFF), ANY), all));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

/* DaCe: a second handler of a key silently takes its place; one that fails in a list of keys leaves the first ones in; false
 * predicates hide later keys; who was registered first decides; "all" is what there was at the time. */
static void test_defects_of_dace(void) {
    test_rule_6(), test_rule_2(), test_rule_1(), test_rule_10();
}

static void refuse(dtl_dispatcher_t d, const dtl_dispatch_key_t* keys, uint64_t count, dtl_dispatch_handler_t handler,
                   dtl_status_t status, const char* text) {
    struct spy spy = spy_of(0);
    dtl_registration_t out = {77};
    handler.user = &spy, handler.destroy = spy_ends;
    CHECK_STATUS(dtl_dispatch_register(d, keys, count, &handler, &out), status);
    CHECK_TEXT(text);
    CHECK(out.id == 77 && spy.destroyed == 0);
}

static void refuse_key(dtl_dispatcher_t d, dtl_dispatch_key_t key, const char* text) {
    const dtl_dispatch_key_t keys[2] = {key_of(DO(7), ANY, ANY, ANY), key};
    refuse(d, keys, 2, handler_of("bad", NULL), DTL_ERROR_INVALID_ARGUMENT, text);
    CHECK_TEXT("keys[1]");
}

static void test_bad_input(void) {
    const dtl_dispatcher_t d = make(0), other = make(0);
    const dtl_dispatch_key_t good = form(0);
    const dtl_dispatch_handler_t fine = handler_of("fine", NULL);
    dtl_dispatch_handler_t handler;
    dtl_dispatch_key_t key, many[1025];
    dtl_dispatch_query_t query = query_of(DO(0), MEM(1), ANY, ANY);
    dtl_registration_t out;
    dtl_backend_t host;
    char name[200];
    uint64_t i;
    CHECK_OK(dtl_backend_get("host", &host));
    refuse(d, NULL, 1, fine, DTL_ERROR_NULL_POINTER, "keys");
    refuse(d, &good, 0, fine, DTL_ERROR_INVALID_ARGUMENT, "key_count");
    refuse(d, &good, 1025, fine, DTL_ERROR_LIMIT, "1025");
    refuse_key(d, key_of(0, ANY, ANY, ANY), "operation is 0");
    refuse_key(d, key_of(DO(0) + 1, ANY, ANY, ANY), "instance");
    refuse_key(d, key_of(5, ANY, ANY, ANY), "operation 0x5 is no member");
    refuse_key(d, key_of(DO(0), 1, ANY, ANY), "source");
    refuse_key(d, key_of(DO(0), ANY, UINT64_C(0x0001000000000000), ANY), "destination");
    refuse_key(d, key_of(DO(0), ANY, ANY, 9), "schedule");
    /* A word of another enumeration than the library's own operation has there would never be found. */
    refuse_key(d, key_of(DTL_OPERATION_COPY, DTL_SCHEDULE_DEVICE, ANY, ANY),
               "source of operation Copy: Device is of enumeration Schedule, not of Memory");
    refuse_key(d, key_of(DTL_OPERATION_COPY, ANY, DTL_LANGUAGE_C, ANY), "destination of operation Copy: C is of enumeration Language");
    refuse_key(d, key_of(DTL_OPERATION_ALLOC, ANY, DTL_OPERATION_ALLOC, ANY), "destination of operation Alloc");
    refuse_key(d, key_of(DTL_OPERATION_COMPILE, DTL_MEMORY_HOST, ANY, ANY), "not of Language");
    refuse_key(d, key_of(DTL_OPERATION_LAUNCH, ANY, ANY, DTL_MEMORY_HOST), "schedule of operation Launch: Host is of enumeration Memory");
    refuse_key(d, key_of(DTL_MEMORY_HOST, ANY, ANY, ANY), "operation: Host is of enumeration Memory, not of Operation");
    refuse_key(d, key_of(NEVER(DTL_ENUM_OPERATION), ANY, ANY, ANY), "operation: 0x0006ea60");
    refuse_key(d, key_of(DO(0), NEVER(DTL_ENUM_MEMORY), ANY, ANY), "source: 0x0001ea60");
    refuse_key(d, key_of(DO(0), ANY, MEM(1) + 1, ANY), "destination: 0x");
    refuse_key(d, key_of(DO(0), ANY, ANY, NEVER(77)), "schedule: 0x004dea60");
    refuse_key(d, key_of(DO(7), ANY, ANY, ANY), "the same as keys[0]");
    key = good, key.reserved[1] = 1;
    refuse_key(d, key, "reserved");
    handler = fine, handler.flags = 8, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "0x8");
    handler = fine, handler.name = NULL, refuse(d, &good, 1, handler, DTL_ERROR_NULL_POINTER, "name");
    handler = fine, handler.name = "", refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "name");
    memset(name, 'x', sizeof name), name[128] = 0;
    handler = fine, handler.name = name, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "127");
    handler = fine, handler.invoke = NULL, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "exactly one of");
    handler = fine, handler.backend = host, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "exactly one of");
    handler.invoke = NULL, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "needs invoke");
    handler.backend.id = 5, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_HANDLE, "backend");
    handler = fine, handler.flags = DTL_DISPATCH_ILLEGAL, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "reason");
    handler = fine, handler.reason = "why", refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "DTL_DISPATCH_ILLEGAL");
    handler = fine, handler.flags = DTL_DISPATCH_DEFAULT, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "default");
    handler = fine, handler.flags = DTL_DISPATCH_REPLACE, handler.predicate = spy_asks;
    refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "predicate");
    handler = fine, handler.struct_size = 4, refuse(d, &good, 1, handler, DTL_ERROR_INVALID_ARGUMENT, "struct_size");
    for (i = 0; i < 1025; i++) many[i] = key_of(DO(1), MEM(i), ANY, ANY);
    handler = fine, handler.name = "many";
    CHECK_OK(dtl_dispatch_register(d, many, 1024, &handler, &out));
    refuse(d, &many[1024], 1, fine, DTL_ERROR_LIMIT, "1025 keys");
    CHECK(finds(d, query_of(DO(1), MEM(1023), MEM(1), ANY), out) && finds(d, query_of(DO(1), MEM(500), MEM(1), ANY), out));
    CHECK_STATUS(dtl_dispatch_unregister(other, out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("\"many\" is another dispatcher's");
    CHECK_OK(dtl_dispatch_unregister(d, out));
    CHECK_STATUS(fails(d, query_of(0, ANY, ANY, ANY)), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(fails(d, query_of(DO(0), 3, ANY, ANY)), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(fails(d, query_of(DTL_MEMORY_HOST, ANY, ANY, ANY)), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("query: operation: Host is");
    CHECK_STATUS(fails(d, query_of(DO(0), ANY, ANY, NEVER(DTL_ENUM_SCHEDULE))), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("query: schedule: 0x0003ea60");
    query.reserved = 1;
    CHECK_STATUS(fails(d, query), DTL_ERROR_INVALID_ARGUMENT);
    out = add(d, "fine", key_of(DO(0), MEM(1), ANY, ANY), NULL);
    query.reserved = 0;
    CHECK(finds(d, query, out));
    CHECK_STATUS(dtl_dispatch_find(d, NULL, &out), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_dispatch_find(d, &query, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_dispatcher_create(2, &asked_again), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_dispatch_explain(d, &query, name, 4, &i), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK(i > 4);
    CHECK_OK(dtl_dispatcher_destroy(d));
    CHECK_STATUS(fails(d, query), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_dispatch_unregister(other, out), DTL_ERROR_INVALID_HANDLE); /* went with its dispatcher */
    CHECK_OK(dtl_dispatcher_destroy(other));
    CHECK_OK(dtl_dispatcher_destroy(DTL_DISPATCHER_NULL));
}

/* Work that goes on after the return. */
static dtl_status_t starts(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    dtl_backend_t host;
    (void)user;
    if (event == NULL || query->args == NULL) return DTL_SUCCESS;
    CHECK(event->id == 0);
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_event_create(host, 0, event));
    return *(dtl_status_t*)query->args;
}

static void test_events(void) {
    const dtl_dispatcher_t d = make(0);
    dtl_dispatch_handler_t handler = handler_of("starts", NULL);
    const dtl_dispatch_key_t key = form(7);
    dtl_dispatch_query_t query = query_of(DO(0), ANY, ANY, ANY);
    dtl_status_t status = DTL_SUCCESS;
    dtl_registration_t out;
    dtl_event_t event = {77};
    handler.invoke = starts;
    CHECK_OK(dtl_dispatch_register(d, &key, 1, &handler, &out));
    CHECK_OK(dtl_dispatch_invoke(d, &query, NULL));
    CHECK_OK(dtl_dispatch_invoke(d, &query, &event));
    CHECK(event.id == 0);
    query.args = &status;
    CHECK_OK(dtl_dispatch_invoke(d, &query, &event));
    CHECK_OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_OK(dtl_dispatcher_destroy(d));
}

/* A handler that asks again for what it does itself, `depth` times. */
struct nest {
    dtl_dispatcher_t dispatcher;
    int depth, deepest;
};

static dtl_status_t asks_for_itself(const dtl_dispatch_query_t* query, dtl_event_t* event, void* user) {
    struct nest* nest = (struct nest*)user;
    (void)event;
    nest->deepest++;
    if (nest->deepest == nest->depth) return DTL_SUCCESS;
    return dtl_dispatch_invoke(nest->dispatcher, query, NULL);
}

static void* nest_elsewhere(void* user) {
    struct nest* nest = (struct nest*)user;
    const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(3));
    nest->depth = 64, nest->deepest = 0;
    CHECK_OK(dtl_dispatch_invoke(nest->dispatcher, &query, NULL));
    return NULL;
}

static void test_nested(void) {
    int of_default;
    for (of_default = 0; of_default < 2; of_default++) {
        const dtl_dispatch_key_t key = key_of(DO(0), ANY, ANY, ANY);
        const dtl_dispatch_query_t query = query_of(DO(0), MEM(1), MEM(2), HOW(3));
        dtl_dispatch_handler_t handler = handler_of("asks for itself", NULL);
        dtl_registration_t registration;
        pthread_t thread;
        struct nest nest;
        int round;
        memset(&nest, 0, sizeof nest);
        nest.dispatcher = of_default ? dtl_dispatcher_default() : make(0);
        handler.invoke = asks_for_itself, handler.user = &nest;
        CHECK_OK(dtl_dispatch_register(nest.dispatcher, &key, 1, &handler, &registration));
        for (round = 0; round < 3; round++) { /* it counts back, also after a failure */
            nest.depth = 64, nest.deepest = 0;
            CHECK_OK(dtl_dispatch_invoke(nest.dispatcher, &query, NULL));
            CHECK(nest.deepest == 64);
            nest.depth = -1, nest.deepest = 0;
            CHECK_STATUS(dtl_dispatch_invoke(nest.dispatcher, &query, NULL), DTL_ERROR_LIMIT);
            CHECK(nest.deepest == 64);
            CHECK_TEXT("handler \"asks for itself\": a fixed limit is reached: operation M0, source M1, destination M2, schedule M3: ");
            CHECK_TEXT("handler \"asks for itself\" was not called, as 64 handlers run within each other on this thread");
            CHECK(strlen(dtl_last_error()) < 400);
        }
        CHECK(pthread_create(&thread, NULL, nest_elsewhere, &nest) == 0); /* each thread counts its own */
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_OK(dtl_dispatch_unregister(nest.dispatcher, registration));
        if (!of_default) CHECK_OK(dtl_dispatcher_destroy(nest.dispatcher));
    }
}

int main(void) {
    struct spy spy = spy_of(0);
    CHECK_OK(dtl_init(NULL));
    test_rule_1(), test_rule_2(), test_rule_3(), test_rule_4(), test_rule_5(), test_rule_6(), test_rule_7(), test_rule_8();
    test_rule_9(), test_rule_10(), test_defects_of_dace(), test_bad_input(), test_events(), test_nested();
    add(make(0), "left", form(0), &spy);
    CHECK_OK(dtl_finalize());
    CHECK(spy.destroyed == 1);
    return 0;
}
