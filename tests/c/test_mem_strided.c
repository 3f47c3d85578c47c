/* dtl_mem_copy_strided against a loop over all elements: random shapes and strides, host memory and memory that the host
 * cannot touch. Usage: test_mem_strided. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "far.h"

enum { ROOM = 4096, AXES = 8 };

static struct far far_self;
static dtl_backend_t far_backend;

static uint32_t state = 1;

static uint32_t below(uint32_t bound) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % bound;
}

/* A shape with strides of each side, both inside ROOM bytes; the first element lies at `dst` and `src`. */
struct shape {
    int32_t ndim;
    int64_t count[AXES];
    uint64_t element;
    int64_t to[AXES], from[AXES];
    uint64_t dst, src;
};

/* Strides, in elements, that step over what is inside them, axes in any order, some gaps, some turned round. Bytes that are reached. */
static uint64_t lay(const struct shape* shape, int64_t* strides, uint64_t* first, int may_repeat) {
    int32_t order[AXES], axis, i;
    uint64_t reach = 1;
    *first = 0;
    for (axis = 0; axis < shape->ndim; axis++) order[axis] = axis;
    for (axis = shape->ndim; axis > 1 && below(2); axis--) {
        const int32_t other = (int32_t)below((uint32_t)axis), kept = order[axis - 1];
        order[axis - 1] = order[other], order[other] = kept;
    }
    for (i = shape->ndim; i-- > 0;) {
        axis = order[i];
        strides[axis] = (int64_t)(reach + (below(3) ? 0 : below(9)));
        if (may_repeat && below(8) == 0) strides[axis] = 0;
        reach += (uint64_t)(strides[axis] * (shape->count[axis] - 1));
        if (below(6) == 0) {
            *first += (uint64_t)(strides[axis] * (shape->count[axis] - 1));
            strides[axis] = -strides[axis];
        }
    }
    *first *= shape->element;
    return reach * shape->element;
}

static int make(struct shape* shape) {
    int32_t axis;
    shape->ndim = (int32_t)below(AXES + 1), shape->element = 1 + below(9);
    for (axis = 0; axis < shape->ndim; axis++) shape->count[axis] = 1 + below(shape->ndim > 4 ? 3 : 6);
    return lay(shape, shape->to, &shape->dst, 0) <= ROOM && lay(shape, shape->from, &shape->src, 1) <= ROOM;
}

static void loop(const struct shape* shape, char* dst, const char* src) {
    int64_t at[AXES] = {0};
    const int64_t element = (int64_t)shape->element;
    int32_t axis;
    for (;;) {
        int64_t to = (int64_t)shape->dst, from = (int64_t)shape->src;
        for (axis = 0; axis < shape->ndim; axis++)
            to += at[axis] * shape->to[axis] * element, from += at[axis] * shape->from[axis] * element;
        memcpy(dst + to, src + from, shape->element);
        for (axis = shape->ndim; axis > 0 && ++at[axis - 1] == shape->count[axis - 1]; axis--) at[axis - 1] = 0;
        if (axis == 0) return;
    }
}

static dtl_status_t copy(const struct shape* shape, void* dst, const void* src) {
    return dtl_mem_copy_strided((char*)dst + shape->dst, shape->to, (const char*)src + shape->src, shape->from, shape->count,
                                shape->ndim, shape->element);
}

static void test_random(void) {
    static char in[ROOM], out[ROOM], expected[ROOM];
    void *far_in, *far_out;
    int round, way, done = 0, i;
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, ROOM, 0, &far_in));
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, ROOM, 0, &far_out));
    for (i = 0; i < ROOM; i++) in[i] = (char)below(256);
    CHECK_OK(dtl_mem_copy(far_in, in, ROOM));
    for (round = 0; round < 1500; round++) {
        struct shape shape;
        if (!make(&shape)) continue;
        memset(expected, 0x5A, ROOM);
        loop(&shape, expected, in);
        for (way = 0; way < 4; way++) { /* what lies between the elements stays as it is */
            void* to = way & 1 ? far_out : (void*)out;
            CHECK_OK(dtl_mem_fill(to, 0x5A, ROOM));
            CHECK_OK(copy(&shape, to, way & 2 ? far_in : (const void*)in));
            if (way & 1) CHECK_OK(dtl_mem_copy(out, far_out, ROOM));
            CHECK(memcmp(out, expected, ROOM) == 0);
        }
        done++;
    }
    CHECK(done > 500);
    CHECK_OK(dtl_mem_free(far_backend, far_in));
    CHECK_OK(dtl_mem_free(far_backend, far_out));
}

/* As few copies as can be. */
static void test_pieces(void) {
    const int64_t shape[3] = {4, 5, 6}, padded[3] = {40, 8, 1}, in_rows[3] = {30, 6, 1};
    static char out[1000];
    void* memory;
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, 1000, 0, &memory));
    far_self.copies = 0;
    CHECK_OK(dtl_mem_copy_strided(out, NULL, memory, NULL, shape, 3, 4));
    CHECK(far_self.copies == 1);
    CHECK_OK(dtl_mem_copy_strided(out, in_rows, memory, padded, shape, 3, 4)); /* 20 rows of one pitch */
    CHECK(far_self.copies == 21);
    CHECK_OK(dtl_mem_free(far_backend, memory));
}

/* Two planes of one grid lie within each other's area and share nothing. */
static void test_planes(void) {
    static int32_t grid[4][5][6];
    const int64_t shape[2] = {4, 5}, strides[2] = {30, 6}, other[2] = {30, 1};
    int i, j;
    for (i = 0; i < 4; i++)
        for (j = 0; j < 5; j++) grid[i][j][0] = 10 * i + j;
    CHECK_OK(dtl_mem_copy_strided(&grid[0][0][5], strides, grid, strides, shape, 2, 4));
    for (i = 0; i < 4; i++)
        for (j = 0; j < 5; j++) CHECK(grid[i][j][5] == 10 * i + j && grid[i][j][1] == 0);
    CHECK_STATUS(dtl_mem_copy_strided(&grid[0][1][0], strides, grid, strides, shape, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("overlap");
    CHECK_STATUS(dtl_mem_copy_strided(&grid[0][0][1], other, grid, strides, shape, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_strided((char*)grid + 2, strides, grid, strides, shape, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
}

static void test_bad_input(void) {
    static char in[512], out[512];
    const int64_t shape[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2}, none[2] = {3, 0}, huge[2] = {INT64_MAX, 8};
    const int64_t same[2] = {1, 1}, repeat[2] = {0, 0}, far_away[1] = {INT64_MIN}, negative[2] = {2, -1};
    const int64_t farther[1] = {INT64_MAX}, farther_two[2] = {INT64_MAX, INT64_MAX}, one[1] = {1};
    void* memory;
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, shape, 9, 1), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("shape [2, 2, 2");
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, NULL, 1, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_copy_strided(NULL, NULL, in, NULL, shape, 1, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, NULL, NULL, shape, 1, 1), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, shape, 1, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_strided(out, same, in, NULL, shape, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, negative, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("shape[1] is -1");
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, shape, -1, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("ndim -1");
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, farther, shape, 1, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("src_strides");
    CHECK_STATUS(dtl_mem_copy_strided(out, repeat, in, NULL, shape, 1, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_strided(out, far_away, in, NULL, shape, 1, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, in, NULL, huge, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_copy_strided(out, repeat, in, repeat, none, 2, 4));
    CHECK_OK(dtl_mem_copy_strided(NULL, NULL, NULL, NULL, none, 2, 4));
    CHECK_OK(dtl_mem_copy_strided(NULL, NULL, NULL, NULL, none, 2, UINT64_MAX));
    CHECK_OK(dtl_mem_copy_strided(NULL, farther_two, NULL, farther_two, none, 2, 4)); /* strides without elements */
    in[0] = 8;
    CHECK_OK(dtl_mem_copy_strided(out, farther, in, far_away, one, 1, 4)); /* the stride of one element */
    CHECK(out[0] == 8);
    CHECK_STATUS(dtl_mem_copy_strided(out, same, in, NULL, shape, 2, 4), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dst_strides [1, 1] of shape [2, 2], elements of 4 bytes");
    in[0] = 9;
    CHECK_OK(dtl_mem_copy_strided(out, NULL, in, NULL, NULL, 0, 1)); /* one element */
    CHECK(out[0] == 9);
    CHECK_OK(dtl_mem_alloc(far_backend, DTL_MEMORY_DEVICE, 30, 0, &memory));
    CHECK_STATUS(dtl_mem_copy_strided(memory, NULL, in, NULL, shape, 5, 1), DTL_ERROR_OUT_OF_BOUNDS);
    far_self.failure = DTL_ERROR_MEMORY;
    CHECK_STATUS(dtl_mem_copy_strided(memory, NULL, in, NULL, shape, 3, 1), DTL_ERROR_MEMORY);
    CHECK_TEXT("copy of shape [2, 2, 2] from strides [4, 2, 1] to [4, 2, 1]");
    far_self.failure = DTL_SUCCESS;
    CHECK_OK(dtl_mem_free(far_backend, memory));
}

static char around[64];

static int is_untouched(const char* bytes, char value, int count) {
    while (count > 0 && bytes[count - 1] == value) count--;
    return count == 0;
}

/* Elements before the first one: they belong to its allocation, or to none. */
static void bounds(dtl_backend_t backend, dtl_enum_word_t kind) {
    const int64_t shape[1] = {4}, down[1] = {-1}, up[1] = {1};
    char* blocks[8];
    char back[64];
    int i;
    for (i = 0; i < 8; i++) {
        CHECK_OK(dtl_mem_alloc(backend, kind, 64, 0, (void**)&blocks[i]));
        CHECK_OK(dtl_mem_fill(blocks[i], 'o', 64));
    }
    memset(around, 'S', 64);
    for (i = 0; i < 8; i++) {
        CHECK_STATUS(dtl_mem_copy_strided(blocks[i], down, around, NULL, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_TEXT("destination");
        CHECK_TEXT("offset -24 to 8 of the allocation of 64 bytes");
        CHECK_STATUS(dtl_mem_copy_strided(blocks[i] + 23, down, around, NULL, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_STATUS(dtl_mem_copy_strided(blocks[i] + 40, up, around, NULL, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_STATUS(dtl_mem_copy_strided(around, NULL, blocks[i] + 16, down, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
        CHECK_TEXT("source");
    }
    for (i = 0; i < 8; i++) {
        CHECK_OK(dtl_mem_copy(back, blocks[i], 64));
        CHECK(is_untouched(back, 'o', 64));
    }
    CHECK(is_untouched(around, 'S', 64));
    CHECK_OK(dtl_mem_copy_strided(blocks[0] + 24, down, around, NULL, shape, 1, 8)); /* down to the first byte */
    CHECK_OK(dtl_mem_copy_strided(blocks[0] + 56, down, around, NULL, shape, 1, 8));
    CHECK_OK(dtl_mem_copy(back, blocks[0], 64));
    CHECK(is_untouched(back, 'S', 64));
    for (i = 0; i < 8; i++) CHECK_OK(dtl_mem_free(backend, blocks[i]));
}

static dtl_status_t gives_the_middle(void* self, uint64_t size, uint64_t align, dtl_enum_word_t kind, void** out) {
    (void)self, (void)size, (void)align, (void)kind;
    return *out = around + 24, DTL_SUCCESS;
}
static dtl_status_t takes_back(void* self, void* ptr, uint64_t size, uint64_t align, dtl_enum_word_t kind) {
    (void)self, (void)size, (void)align, (void)kind;
    CHECK(ptr == around + 24);
    return DTL_SUCCESS;
}

/* From memory that is no allocation into one, at either end or right over it. */
static void test_into_allocations(void) {
    struct far_tables tables;
    dtl_backend_t middle;
    static char in[64], out[64];
    const int64_t shape[1] = {8}, three[1] = {3}, down[1] = {-1}, up[1] = {1};
    void* inside;
    far_fill(&tables), tables.main.destroy = NULL;
    tables.memory.alloc = gives_the_middle, tables.memory.free = takes_back;
    CHECK_OK(dtl_backend_register("middle", &tables.main, &far_self, 0, &middle));
    CHECK_OK(dtl_mem_alloc(middle, DTL_MEMORY_DEVICE, 16, 0, &inside));
    CHECK(inside == around + 24);
    memset(around, 'o', 64), memset(in, 'S', 64);
    CHECK_STATUS(dtl_mem_copy_strided(around, up, in, NULL, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_TEXT("offset -24 to 40 of the allocation of 16 bytes");
    CHECK_STATUS(dtl_mem_copy_strided(around + 56, down, in, NULL, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy_strided(around + 8, up, in, NULL, three, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_mem_copy_strided(out, NULL, around + 56, down, shape, 1, 8), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(is_untouched(around, 'o', 64) && is_untouched(out, 0, 64));
    CHECK_OK(dtl_mem_free(middle, inside));
    CHECK_OK(dtl_backend_unregister(middle));
    CHECK_OK(dtl_mem_copy_strided(around + 56, down, in, NULL, shape, 1, 8));
    CHECK(is_untouched(around, 'S', 64));
}

int main(void) {
    dtl_backend_t host;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    far_backend = far_register("far", &far_self);
    test_random(), test_pieces(), test_planes(), test_bad_input();
    bounds(host, DTL_MEMORY_HOST), bounds(far_backend, DTL_MEMORY_DEVICE), test_into_allocations();
    CHECK_OK(dtl_backend_unregister(far_backend));
    CHECK_OK(dtl_finalize());
    return 0;
}
