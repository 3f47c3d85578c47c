/* What the tests of enumerations share, and their cases of JSON. Not a test by itself: see test_enums.c. C11, and valid
 * C++17. */
#ifndef DTL_TESTS_ENUM_CASES_H
#define DTL_TESTS_ENUM_CASES_H

#include "far.h"
#include <math.h>

#define WORD(call)                                                                                \
    do {                                                                                          \
        word = 0;                                                                                 \
        CHECK_OK(call);                                                                           \
    } while (0)
/* Refused with this status, this in the text, nothing written. */
#define REFUSED(call, status, part)                                                               \
    do {                                                                                          \
        word = 4711;                                                                              \
        CHECK_STATUS(call, status);                                                               \
        CHECK_TEXT(part);                                                                         \
        CHECK(word == 4711);                                                                      \
    } while (0)

static dtl_enum_word_t word;

static dtl_enum_t made(const char* name, uint32_t flags) {
    dtl_enum_t number = 0;
    CHECK_OK(dtl_enum_create(name, flags, &number));
    return number;
}
static dtl_enum_word_t added(dtl_enum_t e, const char* name) {
    WORD(dtl_enum_register(e, name, &word));
    return word;
}
static uint64_t count_of(dtl_enum_t e) {
    uint64_t count = 0;
    CHECK_OK(dtl_enum_count(e, &count));
    return count;
}
static const char* name_of(dtl_enum_word_t of) {
    const char* name = NULL;
    CHECK_OK(dtl_ev_name(of, &name));
    return name;
}
static const char* json_of(dtl_enum_word_t of) {
    static char text[4096];
    uint64_t length = 0, again = 0;
    CHECK_OK(dtl_ev_to_json(of, NULL, 0, &length));
    CHECK_STATUS(dtl_ev_to_json(of, text, length, NULL), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK_OK(dtl_ev_to_json(of, text, sizeof text, &again));
    CHECK(strlen(text) == length && again == length);
    return text;
}
static dtl_enum_word_t read_back(dtl_enum_t e, const char* text) {
    WORD(dtl_ev_from_json(e, text, 0, &word));
    return word;
}

static dtl_enum_word_t instance(dtl_enum_word_t tmpl, const dtl_attr_t* attrs, uint64_t n) {
    WORD(dtl_ev_instance(tmpl, attrs, n, &word));
    return word;
}

/* Templates of DTL_ENUM_SCHEDULE with the same fields. */
static dtl_enum_word_t kernel, other;

static void json_round_trips(void) {
    dtl_attr_t a[6];
    dtl_enum_word_t one, two;
    CHECK(strcmp(json_of(DTL_SCHEDULE_SEQUENTIAL), "\"Sequential\"") == 0);
    CHECK(read_back(DTL_ENUM_SCHEDULE, "\"Sequential\"") == DTL_SCHEDULE_SEQUENTIAL);
    CHECK(read_back(DTL_ENUM_SCHEDULE, " {\"type\" : \"Schedule.Sequential\"} ") == DTL_SCHEDULE_SEQUENTIAL);
    CHECK(strcmp(json_of(kernel), "{\"type\":\"Schedule.MyAccelerator_Kernel\"}") == 0);
    CHECK(read_back(DTL_ENUM_SCHEDULE, json_of(kernel)) == kernel);
    a[0] = dtl_attr_u64("streams", UINT64_MAX);
    one = instance(kernel, a, 1);
    CHECK(strcmp(json_of(one), "{\"type\":\"Schedule.MyAccelerator_Kernel\",\"block_size\":128,\"streams\":18446744073709551615,"
                               "\"share\":0.5,\"fast\":true,\"mode\":\"plain\",\"memory\":\"Memory.Host\"}") == 0);
    CHECK(read_back(DTL_ENUM_SCHEDULE, json_of(one)) == one);
    CHECK(read_back(DTL_ENUM_SCHEDULE, "{\"streams\":18446744073709551615,\"type\":\"Schedule.MyAccelerator_Kernel\"}") == one);
    a[1] = dtl_attr_i64("block_size", INT64_MIN);
    a[2] = dtl_attr_f64("share", 0.1 + 0.2);
    a[3] = dtl_attr_str("mode", "\"quoted\", \\, \n, \xC3\xA4");
    a[4] = dtl_attr_enum("memory", one); /* a word of another enumeration, with attributes */
    a[5] = dtl_attr_bool("fast", 0);
    two = instance(kernel, a, 6);
    CHECK(strstr(json_of(two), "-9223372036854775808") != NULL && strstr(json_of(two), "\"memory\":{\"type\":\"Schedule.My") != NULL);
    CHECK(read_back(DTL_ENUM_SCHEDULE, json_of(two)) == two);
    for (a[2].real = INFINITY;;) {
        two = instance(kernel, a, 3);
        CHECK(read_back(DTL_ENUM_SCHEDULE, json_of(two)) == two);
        if (isnan(a[2].real)) break;
        a[2].real = a[2].real > 0 ? -INFINITY : NAN;
    }
    CHECK(strstr(json_of(two), "\"share\":\"NaN\"") != NULL);
}

static void bad_json(void) {
    static char nested[4000];
    const dtl_enum_t e = DTL_ENUM_SCHEDULE;
#define KERNEL "{\"type\":\"Schedule.MyAccelerator_Kernel\","
    REFUSED(dtl_ev_from_json(e, "", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "not JSON");
    REFUSED(dtl_ev_from_json(e, "Sequential", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "column 1");
    REFUSED(dtl_ev_from_json(e, "\"Sequential\" x", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "trailing");
    REFUSED(dtl_ev_from_json(e, "1", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "as \"Name\"");
    REFUSED(dtl_ev_from_json(e, "[\"Sequential\"]", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "Schedule");
    REFUSED(dtl_ev_from_json(e, "{}", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "\"type\" is not there");
    REFUSED(dtl_ev_from_json(e, "{\"type\":\"Memory.Host\"}", 1, &word), DTL_ERROR_INVALID_ARGUMENT, "\"Memory.Host\"");
    REFUSED(dtl_ev_from_json(e, "\"Host\"", 0, &word), DTL_ERROR_NOT_FOUND, "\"Host\"");
    REFUSED(dtl_ev_from_json(e, "{\"type\":\"Schedule.Gone\",\"x\":1}", 0, &word), DTL_ERROR_NOT_FOUND, "\"Gone\"");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":-1}", 0, &word), DTL_ERROR_TYPE, "U64, which -1 is not");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"fast\":1}", 0, &word), DTL_ERROR_TYPE, "BOOL");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"share\":\"half\"}", 0, &word), DTL_ERROR_TYPE, "F64");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"share\":1e400}", 0, &word), DTL_ERROR_TYPE, "F64, which 1e+400");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":18446744073709551616}", 0, &word), DTL_ERROR_TYPE, "U64, which 18446744073709551616");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"block_size\":1.5}", 0, &word), DTL_ERROR_TYPE, "I64");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"mode\":null}", 0, &word), DTL_ERROR_TYPE, "STR");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"mode\":\"\\u0000\"}", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "NUL");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"memory\":\"Host\"}", 0, &word), DTL_ERROR_TYPE, "Enumeration.Name");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"memory\":\"No.Host\"}", 0, &word), DTL_ERROR_NOT_FOUND, "\"No\"");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"streams\":1,\"size\":1}", 0, &word), DTL_ERROR_NOT_FOUND, "\"size\"");
    REFUSED(dtl_ev_from_json(e, KERNEL "\"fast\":true}", 0, &word), DTL_ERROR_INVALID_ARGUMENT, "\"streams\" has no default");
    REFUSED(dtl_ev_from_json(e, "{\"type\":\"Schedule.Device\",\"x\":1}", 0, &word), DTL_ERROR_NOT_FOUND, "plain member");
    REFUSED(dtl_ev_from_json(e, "\"Device\"", 2, &word), DTL_ERROR_INVALID_ARGUMENT, "DTL_EV_TOLERANT");
    memset(nested, '[', sizeof nested - 1);
    REFUSED(dtl_ev_from_json(e, nested, 1, &word), DTL_ERROR_INVALID_ARGUMENT, "recursion");
}

/* An unknown name becomes Undefined{text}, matches Undefined, and is written back. */
static void tolerant_parse(void) {
    const char* const texts[] = {"\"FPGA_Pipeline\"", "{\"type\":\"Schedule.Gone\",\"a\":[1,{\"b\":null}],\"c\":\"\xC3\xA4\"}",
                                 "{\"type\":\"Schedule.Gone\",\"a\":123456789012345678901234567890,\"b\":[-0.10,1e+400,2.50]}",
                                 "\"with \\\"quotes\\\" and\\n\"", "\"\""};
    const char* const made_of[] = {"{\"type\":\"Schedule.Gone\",\"a\":1}", "{\"type\":\"Schedule.Gone\", \"a\":1}",
                                   "{\"type\":\"Memory.Host\"}", "{\"x\":1}", "{\"type\":1}", "[1]", "{", "{\"type\":\"Schedule.\"", ""};
    dtl_attr_t text;
    dtl_enum_word_t one;
    size_t i;
    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        REFUSED(dtl_ev_from_json(DTL_ENUM_SCHEDULE, texts[i], 0, &word), DTL_ERROR_NOT_FOUND, "Schedule has no member");
        WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, texts[i], DTL_EV_TOLERANT, &word));
        one = word;
        CHECK(dtl_ev_match(one, DTL_SCHEDULE_UNDEFINED) && one != DTL_SCHEDULE_UNDEFINED);
        CHECK(strcmp(json_of(one), texts[i]) == 0);
        WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, json_of(one), DTL_EV_TOLERANT, &word));
        CHECK(word == one);
    }
    WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, texts[0], DTL_EV_TOLERANT, &word));
    CHECK_OK(dtl_ev_get(word, "text", &text));
    CHECK(strcmp(text.text, "FPGA_Pipeline") == 0);
    text = dtl_attr_str("text", "FPGA_Pipeline");
    one = word;
    CHECK(instance(DTL_SCHEDULE_UNDEFINED, &text, 1) == one);
    /* Made by hand of any text: what is no object of this enumeration, or not as such a one is kept, is a text. */
    for (i = 0; i < sizeof made_of / sizeof *made_of; i++) {
        text = dtl_attr_str("text", made_of[i]);
        one = instance(DTL_SCHEDULE_UNDEFINED, &text, 1);
        CHECK((json_of(one)[0] == '{') == (i == 0));
        WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, json_of(one), DTL_EV_TOLERANT, &word));
        CHECK(word == one);
    }
    /* Blanks go; of a key that is there twice the last one counts. */
    WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, " { \"type\" : \"Schedule.Gone\", \"a\" : 1, \"a\" : 2 } ", DTL_EV_TOLERANT, &word));
    CHECK(strcmp(json_of(word), "{\"type\":\"Schedule.Gone\",\"a\":2}") == 0);
    /* As an attribute, too; and what is known is what it is. */
    WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, KERNEL "\"streams\":1,\"memory\":\"Memory.Gone\"}", DTL_EV_TOLERANT, &word));
    one = word;
    CHECK(strstr(json_of(one), "\"memory\":\"Memory.Gone\"") != NULL);
    WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, json_of(one), DTL_EV_TOLERANT, &word));
    CHECK(word == one);
    WORD(dtl_ev_from_json(DTL_ENUM_SCHEDULE, "\"Device\"", DTL_EV_TOLERANT, &word));
    CHECK(word == DTL_SCHEDULE_DEVICE);
    REFUSED(dtl_ev_from_json(made("strict", 0), "\"x\"", DTL_EV_TOLERANT, &word), DTL_ERROR_NOT_FOUND, "no Undefined");
}

#endif
