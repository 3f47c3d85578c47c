/* A backend in C whose memory the host cannot touch: its pointers are shifted out of the address
 * space, so a direct access ends the test. It counts what is asked of it. Not a test by itself. */
#ifndef DTL_TESTS_FAR_H
#define DTL_TESTS_FAR_H

#include "check.h"
#include <string.h>

#define FAR_SHIFT ((uintptr_t)1 << 62)

struct far {
    int allocs, frees, copies, fills, copies_2d, destroyed;
    int devices;           /* 0 = one */
    dtl_status_t failure;  /* answered by alloc, free and copy; 0 = none */
    int good_copies;       /* copies that go well before it is answered */
    const char* text;      /* said with it */
    uintptr_t alloc_offset; /* added to what alloc answers */
    int alloc_null;        /* alloc answers NULL */
};

static inline void far_add(int* word) { __atomic_fetch_add(word, 1, __ATOMIC_ACQ_REL); }
static inline int far_get(int* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static inline int far_is(const void* pointer) { return ((uintptr_t)pointer & FAR_SHIFT) != 0; }

/* The address behind a pointer of either side. */
static inline char* far_real(const void* pointer) { return (char*)((uintptr_t)pointer & ~FAR_SHIFT); }

static inline dtl_status_t far_fail(struct far* far) {
    if (far->text != NULL) DTL_IGNORE(dtl_backend_set_error(far->text));
    return far->failure;
}

static inline dtl_status_t far_alloc(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    struct far* far = (struct far*)self;
    void* memory = NULL;
    if (far->failure != DTL_SUCCESS) return far_fail(far);
    if (kind != DTL_MEMORY_DEVICE) return DTL_ERROR_NOT_SUPPORTED;
    if (far->alloc_null) return *out = NULL, DTL_SUCCESS;
    /* More than asked for, so that alloc_offset always leads to a worse one. */
    if (posix_memalign(&memory, (size_t)(align < 64 ? 64 : align), (size_t)size + 64) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    far_add(&far->allocs);
    *out = (void*)(((uintptr_t)memory | FAR_SHIFT) + far->alloc_offset);
    return DTL_SUCCESS;
}

static inline dtl_status_t far_free(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    struct far* far = (struct far*)self;
    (void)size, (void)align, (void)kind;
    if (far->failure != DTL_SUCCESS) return far_fail(far);
    far_add(&far->frees);
    free(far_real(ptr) - far->alloc_offset);
    return DTL_SUCCESS;
}

static inline dtl_status_t far_copy(void* self, void* dst, dtl_enum_word_t dst_kind, const void* src, dtl_enum_word_t src_kind, uint64_t size) {
    struct far* far = (struct far*)self;
    if (far->failure != DTL_SUCCESS && far->good_copies-- <= 0) return far_fail(far);
    CHECK(far_is(dst) == (dst_kind == DTL_MEMORY_DEVICE) && far_is(src) == (src_kind == DTL_MEMORY_DEVICE));
    CHECK((far_is(dst) || far_is(src)) && size > 0);
    far_add(&far->copies);
    memcpy(far_real(dst), far_real(src), (size_t)size);
    return DTL_SUCCESS;
}

static inline dtl_status_t far_count(void* self, int32_t* out) {
    *out = ((struct far*)self)->devices ? ((struct far*)self)->devices : 1;
    return DTL_SUCCESS;
}
static inline dtl_status_t far_set(void* self, int32_t device) { return (void)self, (void)device, DTL_SUCCESS; }
static inline dtl_status_t far_get_device(void* self, int32_t* out) { return (void)self, *out = 0, DTL_SUCCESS; }
static inline void far_destroy(void* self) { far_add(&((struct far*)self)->destroyed); }

/* The required slots of device, memory and transfer, nothing else. */
struct far_tables {
    dtl_backend_vtable_t main;
    dtl_device_vtable_t device;
    dtl_memory_vtable_t memory;
    dtl_transfer_vtable_t transfer;
};

static inline void far_fill(struct far_tables* tables) {
    const dtl_backend_vtable_t main = DTL_BACKEND_VTABLE_INIT;
    const dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    const dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    const dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    tables->main = main, tables->device = device, tables->memory = memory, tables->transfer = transfer;
    tables->main.auto_priority = INT32_MIN;
    tables->main.destroy = far_destroy;
    tables->main.device = &tables->device;
    tables->main.memory = &tables->memory;
    tables->main.transfer = &tables->transfer;
    tables->device.count = far_count, tables->device.set = far_set, tables->device.get = far_get_device;
    tables->memory.alloc = far_alloc, tables->memory.free = far_free;
    tables->transfer.copy = far_copy;
}

static inline dtl_backend_t far_register(const char* name, struct far* far) {
    struct far_tables tables;
    dtl_backend_t backend = DTL_BACKEND_NULL;
    far_fill(&tables);
    CHECK_OK(dtl_backend_register(name, &tables.main, far, 0, &backend));
    return backend;
}

/* The last error holds the text. */
#ifndef CHECK_TEXT
#define CHECK_TEXT(text) CHECK(strstr(dtl_last_error(), text) != NULL)
#endif

#endif
