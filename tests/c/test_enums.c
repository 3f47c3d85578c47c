/* Extensible enumerations: members, templates, instances, JSON, what goes with schedules. Each rule of the header has a
 * function here. Usage: test_enums [limits]; limits = reach each limit (apart, as what is used up stays so). C11, and
 * valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* posix_memalign */
#endif
#include "enum_cases.h"
#include <pthread.h>

/* Every constant of the header is a member, with its name, in order, Undefined last. */
static void built_in(void) {
    static const struct { dtl_enum_t e; const char* name; dtl_enum_word_t first, undefined; uint64_t count; } all[] = {
        {DTL_ENUM_MEMORY, "Memory", DTL_MEMORY_HOST, DTL_MEMORY_UNDEFINED, 6},
        {DTL_ENUM_DEVICE, "Device", DTL_DEVICE_CPU, DTL_DEVICE_UNDEFINED, 5},
        {DTL_ENUM_SCHEDULE, "Schedule", DTL_SCHEDULE_SEQUENTIAL, DTL_SCHEDULE_UNDEFINED, 4},
        {DTL_ENUM_LANGUAGE, "Language", DTL_LANGUAGE_C, DTL_LANGUAGE_UNDEFINED, 7},
        {DTL_ENUM_INSTRUMENTATION, "Instrumentation", DTL_INSTRUMENTATION_NONE, DTL_INSTRUMENTATION_UNDEFINED, 6},
        {DTL_ENUM_OPERATION, "Operation", DTL_OPERATION_ALLOC, DTL_OPERATION_UNDEFINED, 8},
        {DTL_ENUM_FEATURE, "Feature", DTL_FEATURE_DEVICE, DTL_FEATURE_UNDEFINED, 10},
        {DTL_ENUM_DATA_INSTRUMENTATION, "DataInstrumentation", DTL_DATA_INSTRUMENTATION_NONE, DTL_DATA_INSTRUMENTATION_UNDEFINED, 4}};
    size_t i;
    uint64_t at;
    dtl_backend_t host;
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        dtl_enum_t found = 0;
        CHECK_OK(dtl_enum_find(all[i].name, &found));
        CHECK(found == all[i].e && count_of(found) == all[i].count);
        for (at = 0; at < all[i].count; at++) {
            dtl_enum_word_t same = 0;
            WORD(dtl_enum_at(found, at, &word));
            CHECK(word == (at + 1 < all[i].count ? all[i].first + (at << 32) : all[i].undefined));
            CHECK(dtl_ev_enum(word) == found && dtl_ev_value(word) == (at + 1 < all[i].count ? at + 1 : 65535));
            CHECK_OK(dtl_enum_from_name(found, name_of(word), &same));
            CHECK(same == word);
            CHECK_OK(dtl_enum_from_value(found, dtl_ev_value(word), &same));
            CHECK(same == word);
        }
        REFUSED(dtl_enum_at(found, at, &word), DTL_ERROR_OUT_OF_BOUNDS, all[i].name);
        WORD(dtl_enum_undefined(found, &word));
        CHECK(word == all[i].undefined && strcmp(name_of(word), "Undefined") == 0);
    }
    CHECK(strcmp(name_of(DTL_MEMORY_SHARED), "Shared") == 0 && strcmp(name_of(DTL_DEVICE_NONE), "None") == 0);
    CHECK(strcmp(name_of(DTL_SCHEDULE_DEVICE), "Device") == 0 && strcmp(name_of(DTL_LANGUAGE_SPIRV), "SPIRV") == 0);
    CHECK(strcmp(name_of(DTL_OPERATION_COMPILE), "Compile") == 0 && strcmp(name_of(DTL_INSTRUMENTATION_SPANS), "Spans") == 0);
    /* The name of a feature is what dtl_backend_supports takes. */
    CHECK_OK(dtl_backend_get("host", &host));
    for (at = 0; at < 6; at++) {
        int32_t yes = -1;
        WORD(dtl_enum_at(DTL_ENUM_FEATURE, at, &word));
        CHECK_OK(dtl_backend_supports(host, name_of(word), &yes));
        CHECK(yes == 1 || (word != DTL_FEATURE_MEMORY && word != DTL_FEATURE_DEVICE));
    }
}

static void names(void) {
    const dtl_enum_t e = made("names", 0);
    const char* const bad[] = {"", "1st", ".x", "a b", "a-b", "x\n", "\xC3\xA4"};
    char longest[129];
    size_t i;
    dtl_enum_t number = 77;
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(dtl_enum_register(e, bad[i], &word), DTL_ERROR_INVALID_ARGUMENT, "letters");
        CHECK_STATUS(dtl_enum_create(bad[i], 0, &number), DTL_ERROR_INVALID_ARGUMENT);
    }
    memset(longest, 'x', sizeof longest);
    longest[128] = 0;
    REFUSED(dtl_enum_register(e, longest, &word), DTL_ERROR_INVALID_ARGUMENT, "128 bytes");
    longest[127] = 0;
    CHECK(strcmp(name_of(added(e, longest)), longest) == 0);
    CHECK(strcmp(name_of(added(e, "_.9a.B_")), "_.9a.B_") == 0);
    CHECK_STATUS(dtl_enum_create("with.dot", 0, &number), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("'.'");
    CHECK_STATUS(dtl_enum_create("flags", 2, &number), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_enum_create("names", 0, &number), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("dtl_enum_find");
    CHECK_STATUS(dtl_enum_create("Schedule", 0, &number), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_enum_find("schedule", &number), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("Schedule");
    CHECK(number == 77 && e >= 256);
    REFUSED(dtl_enum_undefined(e, &word), DTL_ERROR_NOT_FOUND, "DTL_ENUM_WITH_UNDEFINED");
    REFUSED(dtl_enum_register(0, "x", &word), DTL_ERROR_INVALID_ARGUMENT, "no enumeration");
    REFUSED(dtl_enum_register(200, "x", &word), DTL_ERROR_INVALID_ARGUMENT, "200");
    REFUSED(dtl_enum_from_name(UINT32_MAX, "x", &word), DTL_ERROR_INVALID_ARGUMENT, "no enumeration");
}

static void duplicates(void) {
    const dtl_enum_t e = made("duplicates", 0);
    const uint64_t before = count_of(DTL_ENUM_MEMORY);
    const dtl_enum_word_t first = added(e, "first");
    REFUSED(dtl_enum_register(e, "first", &word), DTL_ERROR_ALREADY_EXISTS, "duplicates.first");
    REFUSED(dtl_enum_register_value(e, "first", 9, &word), DTL_ERROR_ALREADY_EXISTS, "first");
    REFUSED(dtl_enum_register_value(e, "second", dtl_ev_value(first), &word), DTL_ERROR_ALREADY_EXISTS, "duplicates.first");
    REFUSED(dtl_enum_register(DTL_ENUM_MEMORY, "Host", &word), DTL_ERROR_ALREADY_EXISTS, "Memory.Host");
    REFUSED(dtl_enum_register(DTL_ENUM_MEMORY, "Undefined", &word), DTL_ERROR_ALREADY_EXISTS, "Undefined");
    REFUSED(dtl_enum_register_value(DTL_ENUM_MEMORY, "Mine", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "256 to 65534");
    REFUSED(dtl_enum_register_value(DTL_ENUM_MEMORY, "Mine", 255, &word), DTL_ERROR_INVALID_ARGUMENT, "value 255");
    REFUSED(dtl_enum_register_value(DTL_ENUM_MEMORY, "Mine", 65535, &word), DTL_ERROR_INVALID_ARGUMENT, "65535");
    REFUSED(dtl_enum_register_value(e, "zero", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "1 to 65534");
    REFUSED(dtl_enum_from_value(e, 2, &word), DTL_ERROR_NOT_FOUND, "value 2");
    REFUSED(dtl_enum_from_value(e, UINT32_MAX, &word), DTL_ERROR_NOT_FOUND, "duplicates");
    REFUSED(dtl_enum_from_name(e, "second", &word), DTL_ERROR_NOT_FOUND, "first");
    CHECK(count_of(e) == 1 && count_of(DTL_ENUM_MEMORY) == before);
}

/* The lowest unused one that is at least count + 1. DaCe takes count + 1 itself, which is taken in the second step. */
static void automatic_values(void) {
    const dtl_enum_t e = made("automatic", 0);
    CHECK(dtl_ev_value(added(e, "a")) == 1);
    WORD(dtl_enum_register_value(e, "b", 3, &word));
    CHECK(word == DTL_EV_WORD(e, 3));
    CHECK(dtl_ev_value(added(e, "c")) == 4);
    WORD(dtl_enum_register_value(e, "d", 2, &word));
    CHECK(dtl_ev_value(added(e, "f")) == 5);
    WORD(dtl_enum_register_value(e, "h", 7, &word));
    WORD(dtl_enum_register_value(e, "i", 8, &word));
    CHECK(dtl_ev_value(added(e, "j")) == 9);
    CHECK(count_of(e) == 8);
    CHECK(dtl_ev_value(added(DTL_ENUM_SCHEDULE, "MyAccelerator")) == 5 && count_of(DTL_ENUM_SCHEDULE) == 5);
    CHECK(dtl_ev_value(added(made("has_undefined", DTL_ENUM_WITH_UNDEFINED), "a")) == 2);
}

static void templates(void) {
    dtl_attr_t fields[17];
    const dtl_enum_t e = made("templates", 0);
    size_t i;
    fields[0] = dtl_attr_i64("block_size", 128);
    fields[1] = dtl_attr_required("streams", DTL_ATTR_U64);
    fields[2] = dtl_attr_f64("share", 0.5);
    fields[3] = dtl_attr_bool("fast", 1);
    fields[4] = dtl_attr_str("mode", "plain");
    fields[5] = dtl_attr_enum("memory", DTL_MEMORY_HOST);
    WORD(dtl_enum_register_template(DTL_ENUM_SCHEDULE, "MyAccelerator_Kernel", fields, 6, &word));
    kernel = word;
    WORD(dtl_enum_register_template(DTL_ENUM_SCHEDULE, "MyAccelerator_Other", fields, 6, &word));
    other = word;
    CHECK(dtl_ev_template(kernel) == kernel && strcmp(name_of(kernel), "MyAccelerator_Kernel") == 0);
    REFUSED(dtl_enum_register_template(e, "x", fields, 0, &word), DTL_ERROR_INVALID_ARGUMENT, "0 fields");
    REFUSED(dtl_enum_register_template(e, "x", NULL, 1, &word), DTL_ERROR_NULL_POINTER, "fields");
    REFUSED(dtl_enum_register_template(e, "x", fields, 17, &word), DTL_ERROR_LIMIT, "16");
    REFUSED(dtl_enum_register_template(e, "x", fields, UINT64_MAX, &word), DTL_ERROR_LIMIT, "16");
    REFUSED(dtl_enum_register_template(e, "9", fields, 1, &word), DTL_ERROR_INVALID_ARGUMENT, "\"9\"");
    fields[1] = dtl_attr_i64("block_size", 1);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "block_size");
    fields[1] = dtl_attr_i64("type", 1);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "type");
    fields[1] = dtl_attr_i64("a b", 1);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "a b");
    fields[1] = dtl_attr_i64("b", 1), fields[1].kind = 7;
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "kind 7");
    fields[1] = dtl_attr_i64("b", 1), fields[1].flags = 2;
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "flags");
    fields[1] = dtl_attr_i64("b", 1), fields[1].reserved = 2;
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "reserved");
    fields[1] = dtl_attr_enum("b", DTL_EV_WORD(DTL_ENUM_MEMORY, 40000));
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "b: 0x");
    fields[1] = dtl_attr_str("b", NULL);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_NULL_POINTER, "b is NULL");
    fields[1] = dtl_attr_str("b", "\xFF");
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "UTF-8");
    fields[1] = dtl_attr_i64("\xFF", 1);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "UTF-8");
    fields[1] = dtl_attr_i64(NULL, 1);
    REFUSED(dtl_enum_register_template(e, "x", fields, 2, &word), DTL_ERROR_NULL_POINTER, "name");
    CHECK(count_of(e) == 0);
    for (i = 0; i < 16; i++) {
        static char names[16][8];
        snprintf(names[i], sizeof names[i], "f%d", (int)i);
        fields[i] = dtl_attr_u64(names[i], i);
    }
    WORD(dtl_enum_register_template(e, "sixteen", fields, 16, &word));
    CHECK_OK(dtl_ev_instance(word, fields + 15, 1, &word));
    CHECK_OK(dtl_ev_get(word, "f15", &fields[0]));
    CHECK(fields[0].integer == 15 && fields[0].kind == DTL_ATTR_U64 && strcmp(fields[0].name, "f15") == 0);
}

/* Equal attributes, one word: in any order, with defaults left out or given, doubles by one zero and one NaN. */
static void interning(void) {
    dtl_attr_t a[6], b[6], got;
    dtl_enum_word_t one, nan_word;
    a[0] = dtl_attr_u64("streams", 4);
    one = instance(kernel, a, 1);
    CHECK(one != kernel && dtl_ev_template(one) == kernel && one >> 32 == kernel >> 32 && (uint32_t)one != 0);
    CHECK(dtl_ev_match(one, kernel) && dtl_ev_match(kernel, one) && dtl_ev_match(one, one));
    CHECK(!dtl_ev_match(one, other) && !dtl_ev_match(DTL_SCHEDULE_SEQUENTIAL, one));
    CHECK(strcmp(name_of(one), "MyAccelerator_Kernel") == 0);
    b[0] = dtl_attr_str("mode", "plain");
    b[1] = dtl_attr_u64("streams", 4);
    b[2] = dtl_attr_bool("fast", 77);
    b[3] = dtl_attr_enum("memory", DTL_MEMORY_HOST);
    b[4] = dtl_attr_f64("share", 0.5);
    b[5] = dtl_attr_i64("block_size", 128);
    CHECK(instance(kernel, b, 6) == one);
    b[2].integer = UINT64_MAX;
    CHECK(instance(kernel, b, 6) == one);
    b[0] = dtl_attr_str("mode", "Plain");
    CHECK(instance(kernel, b, 6) != one && !dtl_ev_match(instance(kernel, b, 6), one));
    a[1] = dtl_attr_f64("share", 0.0);
    nan_word = instance(kernel, a, 2);
    a[1] = dtl_attr_f64("share", -0.0);
    CHECK(instance(kernel, a, 2) == nan_word && nan_word != one);
    CHECK_OK(dtl_ev_get(nan_word, "share", &got));
    CHECK(got.real == 0 && !signbit(got.real));
    a[1] = dtl_attr_f64("share", NAN);
    nan_word = instance(kernel, a, 2);
    a[1] = dtl_attr_f64("share", -NAN);
    CHECK(instance(kernel, a, 2) == nan_word);
    CHECK_OK(dtl_ev_get(nan_word, "share", &got));
    CHECK(isnan(got.real) && got.integer == 0 && got.text == NULL);
    a[1] = dtl_attr_i64("block_size", -1);
    CHECK_OK(dtl_ev_get(instance(kernel, a, 2), "block_size", &got));
    CHECK((int64_t)got.integer == -1 && got.kind == DTL_ATTR_I64 && got.flags == 0 && got.reserved == 0);
    CHECK_OK(dtl_ev_get(one, "mode", &got));
    CHECK(strcmp(got.text, "plain") == 0 && strcmp(got.name, "mode") == 0 && got.kind == DTL_ATTR_STR);
    CHECK_OK(dtl_ev_get(one, "memory", &got));
    CHECK(got.integer == DTL_MEMORY_HOST && got.kind == DTL_ATTR_ENUM);
}

/* Templates with equal fields have instances of their own (DaCe's share them), and none of them is listed. */
static void templates_do_not_share(void) {
    const uint64_t before = count_of(DTL_ENUM_SCHEDULE);
    dtl_attr_t streams = dtl_attr_u64("streams", 9);
    const dtl_enum_word_t mine = instance(kernel, &streams, 1), theirs = instance(other, &streams, 1);
    uint64_t i, templates_listed = 0;
    CHECK(mine != theirs && !dtl_ev_match(mine, theirs));
    CHECK(dtl_ev_template(mine) == kernel && dtl_ev_template(theirs) == other);
    CHECK(count_of(DTL_ENUM_SCHEDULE) == before);
    for (i = 0; i < before; i++) {
        WORD(dtl_enum_at(DTL_ENUM_SCHEDULE, i, &word));
        CHECK(word == dtl_ev_template(word));
        templates_listed += word == kernel || word == other;
    }
    CHECK(templates_listed == 2);
}

static void wrong_attributes(void) {
    dtl_attr_t a[3], got;
    dtl_enum_word_t one;
    const char* name = NULL;
    a[0] = dtl_attr_u64("streams", 4);
    one = instance(kernel, a, 1);
    REFUSED(dtl_ev_instance(kernel, NULL, 0, &word), DTL_ERROR_INVALID_ARGUMENT, "\"streams\" has no default");
    a[1] = dtl_attr_i64("streams", 4);
    REFUSED(dtl_ev_instance(kernel, a + 1, 1, &word), DTL_ERROR_TYPE, "\"streams\" is U64, not I64");
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_TYPE, "not I64");
    a[1] = dtl_attr_u64("steams", 4);
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_NOT_FOUND, "block_size, streams");
    a[1] = dtl_attr_u64("\xFFstreams", 4);
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_NOT_FOUND, "streams\"; it has");
    a[1] = a[0];
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "twice");
    a[1] = dtl_attr_required("mode", DTL_ATTR_STR);
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "flags");
    a[1] = dtl_attr_enum("memory", 0);
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "memory: the enumeration word is 0");
    a[1] = dtl_attr_enum("memory", one + 1000000);
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "given out");
    a[1] = dtl_attr_str("mode", "\xFF");
    REFUSED(dtl_ev_instance(kernel, a, 2, &word), DTL_ERROR_INVALID_ARGUMENT, "UTF-8");
    REFUSED(dtl_ev_instance(kernel, NULL, 1, &word), DTL_ERROR_NULL_POINTER, "attrs");
    REFUSED(dtl_ev_instance(kernel, a, 17, &word), DTL_ERROR_LIMIT, "16");
    REFUSED(dtl_ev_instance(one, a, 1, &word), DTL_ERROR_TYPE, "dtl_ev_template");
    REFUSED(dtl_ev_instance(DTL_SCHEDULE_DEVICE, NULL, 0, &word), DTL_ERROR_TYPE, "Device is no template");
    REFUSED(dtl_ev_instance(0, NULL, 0, &word), DTL_ERROR_INVALID_ARGUMENT, "is 0");
    REFUSED(dtl_ev_instance(DTL_EV_WORD(3, 40000), NULL, 0, &word), DTL_ERROR_INVALID_ARGUMENT, "0x");
    memset(&got, 0x5A, sizeof got);
    CHECK_STATUS(dtl_ev_get(one, "size", &got), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_ev_get(kernel, "streams", &got), DTL_ERROR_TYPE);
    CHECK_TEXT("template");
    CHECK_STATUS(dtl_ev_get(kernel, "steams", &got), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_ev_get(DTL_SCHEDULE_DEVICE, "streams", &got), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("plain member");
    CHECK_STATUS(dtl_ev_get(one + 1000000, "streams", &got), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(got.flags == UINT64_C(0x5A5A5A5A5A5A5A5A));
    CHECK_STATUS(dtl_ev_name(0, &name), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_ev_name(DTL_SCHEDULE_DEVICE + 1, &name), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_ev_to_json(one + 1000000, NULL, 0, NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(name == NULL);
}

enum { THREADS = 8, ROUNDS = 20000 };
static dtl_enum_word_t results[THREADS];

static void* creates(void* at) {
    dtl_attr_t attrs[2];
    dtl_enum_word_t first = 0, now = 0;
    int i;
    attrs[0] = dtl_attr_u64("streams", 1234567);
    attrs[1] = dtl_attr_str("mode", "raced for");
    for (i = 0; i < ROUNDS; i++) {
        CHECK_OK(dtl_ev_instance(kernel, attrs, 2, &now));
        if (i == 0) first = now;
        CHECK(now == first);
    }
    *(dtl_enum_word_t*)at = first;
    return NULL;
}

static void threads_agree(void) {
    pthread_t threads[THREADS];
    dtl_attr_t next = dtl_attr_u64("streams", 7654321);
    int i;
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, creates, &results[i]) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 1; i < THREADS; i++) CHECK(results[i] == results[0]);
    CHECK(instance(kernel, &next, 1) == results[0] + 1); /* and one was made, not several */
}

/* Threads that register: each name once, all values different. */
static dtl_enum_t raced;
static void* registers(void* at) {
    uint64_t* won = (uint64_t*)at;
    dtl_enum_word_t mine = 0;
    char name[16];
    int i;
    for (i = 0; i < 300; i++) {
        dtl_status_t status;
        snprintf(name, sizeof name, "member%d", i);
        status = dtl_enum_register(raced, name, &mine);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_ALREADY_EXISTS);
        *won += status == DTL_SUCCESS;
        CHECK_OK(dtl_enum_from_name(raced, name, &mine));
    }
    return NULL;
}

static void registrations_race(void) {
    pthread_t threads[4];
    uint64_t won[4] = {0, 0, 0, 0}, i;
    raced = made("raced", 0);
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, registers, &won[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(won[0] + won[1] + won[2] + won[3] == 300 && count_of(raced) == 300);
    for (i = 1; i <= 300; i++) CHECK_OK(dtl_enum_from_value(raced, (uint32_t)i, &word));
}

static void schedules(void) {
    dtl_attr_t streams = dtl_attr_u64("streams", 3);
    dtl_enum_word_t kind = 1, inner = 2;
    CHECK_OK(dtl_schedule_defaults(DTL_SCHEDULE_DEVICE, &kind, &inner));
    CHECK(kind == DTL_MEMORY_DEVICE && inner == DTL_SCHEDULE_SEQUENTIAL);
    CHECK_OK(dtl_schedule_defaults(DTL_SCHEDULE_MULTICORE, &kind, &inner));
    CHECK(kind == DTL_MEMORY_HOST && inner == DTL_SCHEDULE_SEQUENTIAL);
    kind = inner = 5;
    CHECK_STATUS(dtl_schedule_defaults(kernel, &kind, &inner), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("MyAccelerator_Kernel");
    CHECK_STATUS(dtl_schedule_defaults(DTL_MEMORY_HOST, &kind, &inner), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_schedule_defaults(0, &kind, &inner), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_schedule_set_defaults(kernel, DTL_SCHEDULE_DEVICE, kernel), DTL_ERROR_TYPE);
    CHECK_TEXT("no memory kind");
    CHECK_STATUS(dtl_schedule_set_defaults(kernel, DTL_MEMORY_HOST, DTL_MEMORY_HOST), DTL_ERROR_TYPE);
    CHECK_STATUS(dtl_schedule_set_defaults(kernel, DTL_MEMORY_HOST, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_schedule_set_defaults(instance(kernel, &streams, 1), DTL_MEMORY_HOST, kernel), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("instance");
    CHECK(kind == 5 && inner == 5);
    CHECK_OK(dtl_schedule_set_defaults(kernel, DTL_MEMORY_PINNED, DTL_SCHEDULE_MULTICORE));
    CHECK_OK(dtl_schedule_set_defaults(kernel, DTL_MEMORY_PINNED, DTL_SCHEDULE_MULTICORE));
    CHECK_STATUS(dtl_schedule_set_defaults(kernel, DTL_MEMORY_PINNED, kernel), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("Pinned and Multicore");
    CHECK_STATUS(dtl_schedule_set_defaults(DTL_SCHEDULE_DEVICE, DTL_MEMORY_HOST, kernel), DTL_ERROR_ALREADY_EXISTS);
    CHECK_OK(dtl_schedule_set_defaults(DTL_SCHEDULE_DEVICE, DTL_MEMORY_DEVICE, DTL_SCHEDULE_SEQUENTIAL));
    CHECK_OK(dtl_schedule_defaults(instance(kernel, &streams, 1), &kind, &inner));
    CHECK(kind == DTL_MEMORY_PINNED && inner == DTL_SCHEDULE_MULTICORE);
}

/* A backend in C with memory of a registered kind, and of instances of a template of kinds. */
static dtl_enum_word_t scratch, banked;

static dtl_status_t kinds_alloc(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    dtl_attr_t bank;
    if (kind != scratch && !dtl_ev_match(kind, banked)) return DTL_ERROR_NOT_SUPPORTED;
    if (kind != scratch) {
        CHECK_OK(dtl_ev_get(kind, "bank", &bank));
        ((int*)self)[1] = (int)bank.integer;
    }
    ((int*)self)[0]++;
    return posix_memalign(out, (size_t)(align < 16 ? 16 : align), (size_t)size) == 0 ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}
static dtl_status_t kinds_free(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)size, (void)align, (void)kind;
    ((int*)self)[0]--;
    free(ptr);
    return DTL_SUCCESS;
}
static dtl_status_t kinds_info(void* self, dtl_enum_word_t kind, dtl_mem_kind_info_t* out) {
    (void)self;
    if (kind != scratch) return DTL_ERROR_NOT_SUPPORTED;
    out->properties = DTL_MEMORY_HOST_ACCESSIBLE, out->alignment = 16;
    snprintf(out->name, sizeof out->name, "scratch pad");
    return DTL_SUCCESS;
}

static void memory_of_registered_kinds(void) {
    int live[2] = {0, 0};
    dtl_backend_t backend;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_mem_kind_info_t about = DTL_MEM_KIND_INFO_INIT;
    dtl_attr_t bank = dtl_attr_i64("bank", 3), field = dtl_attr_required("bank", DTL_ATTR_I64);
    void* block = NULL;
    void* second = NULL;
    WORD(dtl_enum_register_value(DTL_ENUM_MEMORY, "MyAccelerator_Shared", 301, &word));
    scratch = word;
    WORD(dtl_enum_register_template(DTL_ENUM_MEMORY, "MyAccelerator_Bank", &field, 1, &word));
    banked = word;
    CHECK(scratch == DTL_EV_WORD(DTL_ENUM_MEMORY, 301));
    memory.alloc = kinds_alloc, memory.free = kinds_free, memory.kind_info = kinds_info;
    table.memory = &memory;
    CHECK_OK(dtl_backend_register("kinds", &table, live, 0, &backend));
    CHECK_OK(dtl_mem_alloc(backend, scratch, 100, 64, &block));
    CHECK_OK(dtl_mem_query(block, &info));
    CHECK(live[0] == 1 && info.kind == scratch && strcmp(name_of(info.kind), "MyAccelerator_Shared") == 0);
    CHECK_OK(dtl_mem_kind_info(backend, scratch, &about));
    CHECK(strcmp(about.name, "scratch pad") == 0);
    CHECK_OK(dtl_mem_alloc(backend, instance(banked, &bank, 1), 100, 64, &second));
    CHECK_OK(dtl_mem_query(second, &info));
    CHECK(live[1] == 3 && dtl_ev_match(info.kind, banked));
    CHECK_OK(dtl_mem_free(backend, second));
    CHECK_OK(dtl_mem_free(backend, block));
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_MANAGED, 100, 0, &block), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("memory kind Managed");
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_EV_WORD(DTL_ENUM_MEMORY, 40000), 100, 0, &block), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("memory kind 0x19c4000000000");
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK_OK(dtl_backend_get("host", &backend));
    CHECK_STATUS(dtl_mem_alloc(backend, scratch, 100, 0, &block), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("no memory kind MyAccelerator_Shared");
    CHECK_STATUS(dtl_mem_kind_info(backend, instance(banked, &bank, 1), &about), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("{\"type\":\"Memory.MyAccelerator_Bank\",\"bank\":3}");
    CHECK(live[0] == 0);
}

/* Members and instances outlive the library's end, and are there before its beginning. */
static void any_state(void) {
    dtl_attr_t streams = dtl_attr_u64("streams", 4);
    const dtl_enum_word_t one = instance(kernel, &streams, 1);
    uint64_t count = 0;
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_backend_count(&count), DTL_ERROR_INVALID_STATE);
    CHECK(instance(kernel, &streams, 1) == one && strcmp(name_of(scratch), "MyAccelerator_Shared") == 0);
    CHECK(added(made("late", 0), "x") != 0);
    CHECK_OK(dtl_init(NULL));
    CHECK(read_back(DTL_ENUM_SCHEDULE, json_of(one)) == one);
    CHECK_OK(dtl_finalize());
}

static void limits(void) {
    static char text[4100], name[32];
    const dtl_enum_t e = made("limits", DTL_ENUM_WITH_UNDEFINED);
    dtl_attr_t fields[2];
    dtl_enum_word_t tmpl, deep, undefined;
    dtl_enum_t number = 77;
    uint64_t i;
    fields[0] = dtl_attr_u64("n", 0);
    fields[1] = dtl_attr_enum("inner", DTL_MEMORY_HOST);
    WORD(dtl_enum_register_template(e, "t", fields, 2, &word));
    deep = tmpl = word;
    CHECK_OK(dtl_enum_undefined(e, &undefined));
    /* Too long: the text and its escapes count. */
    memset(text, 'x', 4090);
    fields[0] = dtl_attr_str("text", text);
    REFUSED(dtl_ev_instance(undefined, fields, 1, &word), DTL_ERROR_LIMIT, "4000");
    memset(text, '\1', 1000), text[1000] = 0;
    REFUSED(dtl_ev_instance(undefined, fields, 1, &word), DTL_ERROR_LIMIT, "4000");
    memset(text, 'x', 3000), text[3000] = 0;
    deep = instance(undefined, fields, 1);
    WORD(dtl_ev_from_json(e, json_of(deep), DTL_EV_TOLERANT, &word));
    CHECK(word == deep);
    /* Too deep. */
    for (deep = tmpl, i = 0; i < 17; i++) {
        fields[1] = dtl_attr_enum("inner", deep);
        deep = instance(tmpl, fields + 1, 1);
        CHECK(read_back(e, json_of(deep)) == deep);
    }
    fields[1] = dtl_attr_enum("inner", deep);
    REFUSED(dtl_ev_instance(tmpl, fields + 1, 1, &word), DTL_ERROR_LIMIT, "deep");
    /* Too many instances: what is there stays and is found. */
    for (i = 0; i < 65536 - 18; i++) {
        fields[0] = dtl_attr_u64("n", i + 1);
        instance(tmpl, fields, 1);
    }
    fields[0] = dtl_attr_u64("n", i + 1);
    REFUSED(dtl_ev_instance(tmpl, fields, 1, &word), DTL_ERROR_LIMIT, "65536 instances");
    REFUSED(dtl_ev_from_json(e, "\"y\"", DTL_EV_TOLERANT, &word), DTL_ERROR_LIMIT, "limits.Undefined");
    fields[0] = dtl_attr_u64("n", 1);
    CHECK((uint32_t)instance(tmpl, fields, 1) == 19);
    CHECK_OK(dtl_ev_get(instance(tmpl, fields, 1), "n", &fields[0]));
    CHECK(fields[0].integer == 1);
    /* Too many members. */
    for (i = 0; i < 65532; i++) {
        snprintf(name, sizeof name, "m%u", (unsigned)i);
        CHECK_OK(dtl_enum_register(e, name, &word));
    }
    REFUSED(dtl_enum_register(e, "more", &word), DTL_ERROR_LIMIT, "65534");
    CHECK(count_of(e) == 65534);
    WORD(dtl_enum_register_value(e, "more", 1, &word)); /* that one was left free: count + 1 began at 2 */
    REFUSED(dtl_enum_register(e, "most", &word), DTL_ERROR_LIMIT, "65535 members");
    /* Too many enumerations. */
    for (i = 0; i < 255; i++) {
        snprintf(name, sizeof name, "e%u", (unsigned)i);
        made(name, 0);
    }
    CHECK_STATUS(dtl_enum_create("more", 0, &number), DTL_ERROR_LIMIT);
    CHECK_TEXT("256 enumerations");
    CHECK(number == 77);
    CHECK_OK(dtl_enum_find("e254", &number));
}

int main(int argc, char** argv) {
    if (argc > 1 && strcmp(argv[1], "limits") == 0) {
        limits();
        printf("ok\n");
        return 0;
    }
    names(); /* before dtl_init */
    duplicates();
    built_in();
    automatic_values();
    templates();
    interning();
    templates_do_not_share();
    wrong_attributes();
    threads_agree();
    registrations_race();
    json_round_trips();
    bad_json();
    tolerant_parse();
    schedules();
    CHECK_OK(dtl_init(NULL));
    memory_of_registered_kinds();
    any_state();
    printf("ok\n");
    return 0;
}
