/* export_handle, import_handle and close_handle of a registered memory table: what the slots are given, how their answers
 * come through, and what the library refuses before they are asked. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "far.h"
#include <stddef.h>

/* What the slots saw, and what they answer. The "other process" is this one: an import is a copy. */
static struct {
    int exports, imports, closes, frees;
    dtl_status_t failure;
    const char *text;
    int gives_null, gives_odd;
    void *gives; /* the same address each time */
} slots;

static dtl_backend_t card;
static char memory_of_card[4096], imported[8][4096];

static dtl_status_t take(void *self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void **out) {
    (void)self, (void)align;
    CHECK(size == 1000);
    if (kind != DTL_MEMORY_DEVICE && kind != DTL_MEMORY_HOST) return DTL_ERROR_NOT_SUPPORTED;
    *out = memory_of_card + (256 - (uintptr_t)memory_of_card % 256) % 256 + (kind == DTL_MEMORY_HOST ? 2048 : 0);
    return DTL_SUCCESS;
}

static dtl_status_t give_back(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)self, (void)ptr, (void)align, (void)kind;
    CHECK(size == 1000);
    slots.frees++;
    return DTL_SUCCESS;
}

static dtl_status_t fail(void) {
    if (slots.text != NULL) DTL_IGNORE(dtl_backend_set_error(slots.text));
    return slots.failure;
}

static dtl_status_t export_handle(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind, void *out) {
    uint64_t *words = (uint64_t *)out;
    int i;
    CHECK(self == &slots && size == 1000 && align == 256 && (uintptr_t)out % 8 == 0);
    for (i = 0; i < 8; i++) CHECK(words[i] == 0);
    if (kind != DTL_MEMORY_DEVICE) return DTL_ERROR_NOT_SUPPORTED;
    if (slots.failure != DTL_SUCCESS) return fail();
    slots.exports++;
    words[0] = (uint64_t)(uintptr_t)ptr;
    for (i = 1; i < 8; i++) words[i] = 1000 + (uint64_t)i;
    return DTL_SUCCESS;
}

static dtl_status_t import_handle(void *self, const void *bytes, uint64_t size, uint64_t align, dtl_enum_word_t kind, void **out) {
    const uint64_t *words = (const uint64_t *)bytes;
    char *const place = imported[slots.imports % 8];
    int i;
    CHECK(self == &slots && size == 1000 && align == 256 && kind == DTL_MEMORY_DEVICE && (uintptr_t)bytes % 8 == 0);
    for (i = 1; i < 8; i++) CHECK(words[i] == 1000 + (uint64_t)i);
    if (slots.failure != DTL_SUCCESS) return fail();
    slots.imports++;
    *out = place + (256 - (uintptr_t)place % 256) % 256 + (slots.gives_odd ? 8 : 0);
    if (slots.gives != NULL) *out = slots.gives;
    if (slots.gives_null) *out = NULL;
    return DTL_SUCCESS;
}

static dtl_status_t close_handle(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    CHECK(self == &slots && ptr != NULL && size == 1000 && align == 256 && kind == DTL_MEMORY_DEVICE);
    if (slots.failure != DTL_SUCCESS) return fail();
    slots.closes++;
    return DTL_SUCCESS;
}

static dtl_status_t add(const char *name, dtl_memory_vtable_t *memory, dtl_backend_t *out) {
    struct far_tables tables;
    far_fill(&tables);
    tables.main.device = NULL;
    tables.main.transfer = NULL;
    tables.main.destroy = NULL;
    tables.main.memory = memory;
    return dtl_backend_register(name, &tables.main, &slots, 0, out);
}

static dtl_memory_vtable_t whole(void) {
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    memory.alloc = take;
    memory.free = give_back;
    memory.export_handle = export_handle;
    memory.import_handle = import_handle;
    memory.close_handle = close_handle;
    return memory;
}

static uint64_t live(void) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    CHECK_OK(dtl_mem_stats(card, &stats));
    CHECK(stats.live_bytes == 1000 * stats.live_count);
    return stats.live_count;
}

static void test_group(void) {
    dtl_memory_vtable_t memory = whole();
    dtl_backend_t out;
    memory.import_handle = NULL;
    CHECK_STATUS(add("half", &memory, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("memory.import_handle");
    memory = whole();
    memory.close_handle = NULL;
    CHECK_STATUS(add("half", &memory, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("memory.close_handle");
}

static void test_round_trip(void) {
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_mem_handle_t handle;
    dtl_backend_t host, other;
    void *first, *host_memory, *second;
    dtl_memory_vtable_t memory = whole();
    uint64_t size = 0;
    CHECK_OK(dtl_mem_alloc(card, DTL_MEMORY_DEVICE, 1000, 256, &first));
    CHECK_OK(dtl_mem_export(first, &handle));
    CHECK_OK(dtl_mem_import(card, &handle, &second, &size));
    CHECK(size == 1000 && second != first && slots.exports == 1 && slots.imports == 1 && live() == 2);
    CHECK_OK(dtl_mem_query((char *)second + 999, &info));
    CHECK(info.base == second && info.size_bytes == 1000 && info.kind == DTL_MEMORY_DEVICE && info.backend.id == card.id);
    CHECK_STATUS(dtl_mem_export(second, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_backend_unregister(card), DTL_ERROR_BUSY);
    CHECK_OK(dtl_mem_free(card, second));
    CHECK(slots.closes == 1 && slots.frees == 0 && live() == 1); /* by close_handle, not by free */
    CHECK_OK(dtl_mem_alloc(card, DTL_MEMORY_HOST, 1000, 256, &host_memory));
    CHECK_STATUS(dtl_mem_export(host_memory, &handle), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_mem_free(card, host_memory));
    /* Another backend's handle. */
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_STATUS(dtl_mem_import(host, &handle, &second, &size), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("backend \"a-card-with-a-lo\", not of host");
    CHECK_OK(add("a-card-with-a-long-name.2", &memory, &other));
    CHECK_STATUS(dtl_mem_import(other, &handle, &second, &size), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_backend_unregister(other));
    CHECK_OK(dtl_mem_free(card, first));
    CHECK(slots.frees == 2 && slots.closes == 1 && slots.imports == 1 && live() == 0);
}

static void test_failures(void) {
    dtl_mem_handle_t handle, kept;
    void *first, *second, *out = &slots;
    uint64_t size = 5;
    memset(&handle, 9, sizeof handle);
    kept = handle;
    memset(&slots, 0, sizeof slots);
    CHECK_OK(dtl_mem_alloc(card, DTL_MEMORY_DEVICE, 1000, 256, &first));
    slots.failure = DTL_ERROR_CUDA, slots.text = "driver error 17";
    CHECK_STATUS(dtl_mem_export(first, &handle), DTL_ERROR_CUDA);
    CHECK_TEXT("memory.export_handle");
    CHECK_TEXT("driver error 17");
    CHECK(memcmp(&handle, &kept, sizeof handle) == 0);
    slots.failure = DTL_SUCCESS;
    CHECK_OK(dtl_mem_export(first, &handle));
    slots.failure = DTL_ERROR_INVALID_HANDLE, slots.text = "gone";
    CHECK_STATUS(dtl_mem_import(card, &handle, &out, &size), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("memory.import_handle");
    slots.failure = 12345;
    CHECK_STATUS(dtl_mem_import(card, &handle, &out, &size), DTL_ERROR_NATIVE_BACKEND);
    slots.failure = DTL_SUCCESS, slots.gives_null = 1;
    CHECK_STATUS(dtl_mem_import(card, &handle, &out, &size), DTL_ERROR_NATIVE_BACKEND);
    slots.gives_null = 0, slots.gives_odd = 1;
    CHECK(slots.closes == 0);
    CHECK_STATUS(dtl_mem_import(card, &handle, &out, &size), DTL_ERROR_NATIVE_BACKEND);
    CHECK(slots.closes == 1 && out == &slots && size == 5 && live() == 1);
    slots.gives_odd = 0;
    CHECK_OK(dtl_mem_import(card, &handle, &second, NULL));
    slots.gives = second; /* as a driver that counts */
    CHECK_STATUS(dtl_mem_import(card, &handle, &out, &size), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("already");
    CHECK(slots.closes == 2 && live() == 2);
    slots.failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_mem_free(card, second), DTL_ERROR_BACKEND);
    CHECK_TEXT("memory.close_handle");
    slots.failure = DTL_SUCCESS;
    CHECK_OK(dtl_mem_free(card, second)); /* it was still there */
    CHECK_OK(dtl_mem_free(card, first));
    CHECK(live() == 0 && slots.closes == 3 && slots.frees == 1);
}

int main(void) {
    dtl_memory_vtable_t memory = whole();
    void *out;
    CHECK_OK(dtl_init(NULL));
    test_group();
    CHECK_OK(add("a-card-with-a-long-name.1", &memory, &card));
    test_round_trip();
    test_failures();
    /* A table from before these slots. */
    CHECK_OK(dtl_backend_unregister(card));
    memory.struct_size = (uint32_t)offsetof(dtl_memory_vtable_t, export_handle);
    CHECK_OK(add("old", &memory, &card));
    CHECK_OK(dtl_mem_alloc(card, DTL_MEMORY_DEVICE, 1000, 256, &out));
    {
        dtl_mem_handle_t handle;
        CHECK_STATUS(dtl_mem_export(out, &handle), DTL_ERROR_NOT_SUPPORTED);
        CHECK_TEXT("export_handle");
    }
    CHECK_OK(dtl_mem_free(card, out));
    CHECK_OK(dtl_finalize());
    return 0;
}
