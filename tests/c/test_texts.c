/* Texts that the library returns: the last error's lifetime, and outputs of calls that fail. C11, and valid
 * C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>

/* A failed call writes no output: a NULL buffer with a capacity is NULL_POINTER, and the length stays. */
#define UNTOUCHED UINT64_C(4711)
#define CHECK_NULL_BUFFER(CALL)                               \
    do {                                                      \
        uint64_t length = UNTOUCHED;                          \
        CHECK_STATUS(CALL, DTL_ERROR_NULL_POINTER);           \
        CHECK(length == UNTOUCHED);                           \
        CHECK(strstr(dtl_last_error(), "NULL") != NULL);      \
    } while (0)

static void test_null_buffers(void) {
    dtl_dispatch_query_t query = DTL_DISPATCH_QUERY_INIT;
    dtl_backend_t host;
    char text[4];
    uint64_t wanted = 0;
    query.operation = DTL_OPERATION_ALLOC;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_NULL_BUFFER(dtl_explain(NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_ev_to_json(DTL_MEMORY_HOST, NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_module_log(DTL_MODULE_NULL, NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_dispatch_explain(dtl_dispatcher_default(), &query, NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_comm_dump(DTL_COMM_SELF, NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_backend_self_test(host, NULL, 10, &length));
    CHECK_NULL_BUFFER(dtl_affinity(NULL, 10, &length));
    /* Too small is the one failure that writes the length. */
    CHECK_STATUS(dtl_ev_to_json(DTL_MEMORY_HOST, text, 4, &wanted), DTL_ERROR_BUFFER_TOO_SMALL);
    CHECK(wanted > 4);
}

/* Causes a failure whose text has the number in it. */
static const char* fail_with(int number) {
    char name[32];
    dtl_backend_t none;
    snprintf(name, sizeof name, "nobody-%d", number);
    CHECK_STATUS(dtl_backend_get(name, &none), DTL_ERROR_NOT_FOUND);
    CHECK(strstr(dtl_last_error(), name) != NULL);
    return dtl_last_error();
}

static void fail_with_length(size_t length) {
    char* name = (char*)malloc(length + 1);
    dtl_backend_t none;
    memset(name, 'x', length);
    name[length] = 0;
    CHECK(dtl_backend_get(name, &none) != DTL_SUCCESS);
    free(name);
}

static void test_last_error(void) {
    const char *empty = dtl_last_error(), *first, *second, *long_text;
    char before[4000];
    int i;
    CHECK(empty[0] == 0);
    first = fail_with(1);
    CHECK(empty[0] == 0);
    snprintf(before, sizeof before, "%s", first);
    second = fail_with(2);
    CHECK(strcmp(first, before) == 0 && strstr(second, "nobody-2") != NULL);
    /* The next one takes the first buffer; the second stays. */
    snprintf(before, sizeof before, "%s", second);
    CHECK(strstr(fail_with(3), "nobody-3") != NULL && strcmp(second, before) == 0);
    /* Texts that grow: the memory behind every pointer stays valid, and the last but one keeps its text. */
    for (i = 0; i < 12; i++) {
        long_text = dtl_last_error();
        snprintf(before, sizeof before, "%s", long_text);
        fail_with_length((size_t)100 << i);
        CHECK(strncmp(long_text, before, strlen(before)) == 0);
    }
    CHECK(strlen(first) < 100000 && strlen(second) < 100000);
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN)); /* a success leaves the text alone */
    CHECK(dtl_last_error()[0] != 0);
}

static void* in_a_thread(void* user) {
    CHECK(dtl_last_error()[0] == 0);
    test_last_error();
    return user;
}

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

/* A text names what is wrong, and not something else. */
static void test_names(void) {
    dtl_environment_desc_t environment = DTL_ENVIRONMENT_DESC_INIT;
    char bytes[800];
    environment.name = "there";
    CHECK_OK(dtl_environment_register(&environment));
    CHECK_STATUS(dtl_environment_release("there>=1"), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("without a version");
    CHECK_TEXT("registered: there");
    CHECK_OK(dtl_environment_unregister("there"));
    CHECK_STATUS(dtl_mem_copy(bytes, bytes + 400, INT64_MAX), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("the ranges begin 400 bytes apart");
}

int main(void) {
    pthread_t thread;
    test_last_error();
    CHECK(pthread_create(&thread, NULL, in_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    test_null_buffers();
    test_names();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
