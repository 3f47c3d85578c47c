/* A backend that cannot run is refused at once, with its reason; and the copy of an array. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "check.h"
#include <stdlib.h>
#include <string.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static int is_plugged_in;

static dtl_status_t is_available(void *self, int32_t *out_yes, char *why, uint64_t cap) {
    (void)self;
    *out_yes = is_plugged_in;
    if (!is_plugged_in) snprintf(why, (size_t)cap, "the card is not plugged in");
    return DTL_SUCCESS;
}

static dtl_status_t take(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out) {
    (void)self, (void)alignment;
    if (kind != DTL_MEMORY_HOST) return DTL_ERROR_NOT_SUPPORTED;
    return posix_memalign(out, 256, (size_t)size) == 0 ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t give(void *self, void *ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind) {
    (void)self, (void)size, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_backend_t test_require(void) {
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t card, found = {77}, same;
    memory.alloc = take, memory.free = give;
    table.is_available = is_available, table.memory = &memory, table.auto_priority = INT32_MIN;
    CHECK_OK(dtl_backend_register("card", &table, NULL, 0, &card));
    CHECK_OK(dtl_backend_get("card", &same)); /* it is there, whether it can run or not */
    CHECK_STATUS(dtl_backend_require("card", &found), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("backend card cannot run here: the card is not plugged in");
    CHECK_STATUS(dtl_backend_require("cards", &found), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("cards");
    CHECK_STATUS(dtl_backend_require("card", NULL), DTL_ERROR_NULL_POINTER);
    CHECK(found.id == 77);
    is_plugged_in = 1; /* each call checks again */
    CHECK_OK(dtl_backend_require("card", &found));
    CHECK(found.id == card.id);
    CHECK_OK(dtl_backend_require("cpu", &found));
    CHECK_OK(dtl_backend_get("host", &same));
    CHECK(found.id == same.id);
    CHECK_OK(dtl_backend_require(NULL, &found));
    return card;
}

/* The elements, whatever the strides of the source; into any backend; nothing is left after a failure. */
static void test_copy(dtl_backend_t card) {
    enum { ROWS = 3, COLUMNS = 5 };
    const int64_t shape[2] = {ROWS, COLUMNS};
    int64_t turned[2] = {COLUMNS, ROWS}, strides[2] = {1, COLUMNS};
    dtl_array_t plain, other, copy = {77};
    dtl_array_info_t info = DTL_ARRAY_INFO_INIT, of = DTL_ARRAY_INFO_INIT;
    dtl_dlpack_versioned_t *tensor;
    dtl_backend_t host;
    dtl_mem_stats_t before = DTL_MEM_STATS_INIT, after = DTL_MEM_STATS_INIT;
    int32_t *in, *out;
    int i, j;
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_array_alloc(host, DTL_MEMORY_HOST, shape, 2, DTL_DTYPE_INT32, 0, &plain));
    CHECK_OK(dtl_array_info(plain, &info));
    in = (int32_t *)info.data;
    for (i = 0; i < ROWS * COLUMNS; i++) in[i] = i;
    CHECK_OK(dtl_array_copy(plain, card, DTL_MEMORY_HOST, &copy));
    CHECK_OK(dtl_array_info(copy, &of));
    CHECK(of.backend.id == card.id && of.ndim == 2 && of.shape[1] == COLUMNS && of.dtype == DTL_DTYPE_INT32 && of.data != info.data);
    CHECK(memcmp(of.data, in, sizeof(int32_t) * ROWS * COLUMNS) == 0);
    ((int32_t *)of.data)[0] = 99;
    CHECK(in[0] == 0); /* the copy is its own */
    CHECK_OK(dtl_array_destroy(copy));
    /* A transposed view of another library. */
    CHECK_OK(dtl_array_export(plain, &tensor));
    tensor->tensor.shape = turned, tensor->tensor.strides = strides;
    CHECK_OK(dtl_array_import(host, tensor, &other));
    CHECK_OK(dtl_array_copy(other, host, DTL_MEMORY_HOST, &copy));
    CHECK_OK(dtl_array_info(copy, &of));
    CHECK(of.shape[0] == COLUMNS && of.shape[1] == ROWS && (of.flags & DTL_ARRAY_CONTIGUOUS) != 0);
    out = (int32_t *)of.data;
    for (i = 0; i < COLUMNS; i++) {
        for (j = 0; j < ROWS; j++) CHECK(out[i * ROWS + j] == in[j * COLUMNS + i]);
    }
    CHECK_OK(dtl_array_destroy(copy));
    CHECK_OK(dtl_array_destroy(other));
    copy.id = 77;
    CHECK_OK(dtl_mem_stats(card, &before));
    CHECK_STATUS(dtl_array_copy(plain, card, DTL_MEMORY_DEVICE, &copy), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_array_copy(other, card, DTL_MEMORY_HOST, &copy), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_array_copy(plain, card, DTL_MEMORY_HOST, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_mem_stats(card, &after));
    CHECK(copy.id == 77 && after.live_bytes == before.live_bytes);
    CHECK_OK(dtl_array_destroy(plain));
}

int main(void) {
    CHECK_OK(dtl_init(NULL));
    test_copy(test_require());
    CHECK_OK(dtl_finalize());
    return 0;
}
