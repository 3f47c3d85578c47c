/* An arena of host memory for each device, carved into blocks: first fit, in the order of addresses. */
#include "exports.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct block_t {
    struct block_t *next; /* the block behind it */
    uint64_t begin, size; /* in the arena */
    unsigned char *given; /* the address that the user has; NULL = free */
} block_t;

typedef struct arena_t {
    unsigned char *bytes;
    block_t *first;
    uint64_t used;
} arena_t;

typedef struct kind_t {
    dtl_enum_word_t word;
    uint64_t properties, alignment;
    const char *name;
} kind_t;

#define ON_BOTH_SIDES (DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE)

static const kind_t kinds[] = {
    {DTL_MEMORY_HOST, DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_PAGEABLE | DTL_MEMORY_THREAD_SAFE, 64, "host"},
    {DTL_MEMORY_PINNED, ON_BOTH_SIDES, 4096, "host (page-locked, so to say)"},
    {DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE, 256, "device"},
    {DTL_MEMORY_MANAGED, ON_BOTH_SIDES | DTL_MEMORY_UNIFIED, 4096, "managed"},
    {DTL_MEMORY_SHARED, ON_BOTH_SIDES | DTL_MEMORY_EXPORTABLE, 4096, "for several processes"},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static arena_t arenas[DEVICES];

static const kind_t *find_kind(dtl_enum_word_t word)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].word == word) {
            return &kinds[i];
        }
    }
    return NULL;
}

dtl_status_t memory_start(void)
{
    memory_stop();
    for (int32_t device = 0; device < DEVICES; device++) {
        arena_t *arena = &arenas[device];
        arena->bytes = malloc(DEVICE_BYTES);
        arena->first = calloc(1, sizeof *arena->first);
        if (arena->bytes == NULL || arena->first == NULL) {
            memory_stop();
            return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for the arenas");
        }
        arena->first->begin = arena->used = OWN_BYTES;
        arena->first->size = DEVICE_BYTES - OWN_BYTES;
    }
    return DTL_SUCCESS;
}

void memory_stop(void)
{
    for (int32_t device = 0; device < DEVICES; device++) {
        arena_t *arena = &arenas[device];
        while (arena->first != NULL) {
            block_t *block = arena->first;
            arena->first = block->next;
            free(block);
        }
        free(arena->bytes);
        *arena = (arena_t){NULL, NULL, 0};
    }
}

uint64_t memory_free_bytes(int32_t device)
{
    pthread_mutex_lock(&lock);
    const uint64_t free_bytes = DEVICE_BYTES - arenas[device].used;
    pthread_mutex_unlock(&lock);
    return free_bytes;
}

static arena_t *arena_of(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (int32_t device = 0; device < DEVICES; device++) {
        const uintptr_t begin = (uintptr_t)arenas[device].bytes;
        if (begin != 0 && at >= begin && at - begin < DEVICE_BYTES) {
            return &arenas[device];
        }
    }
    return NULL;
}

int is_ours(const void *address)
{
    return arena_of(address) != NULL;
}

/* How far behind a block's begin there is an aligned address. */
static uint64_t gap_of(const arena_t *arena, const block_t *block, uint64_t alignment)
{
    const uintptr_t at = (uintptr_t)arena->bytes + block->begin;
    return (alignment - at % alignment) % alignment;
}

/* Cuts a block in two; the second part begins `size` bytes later. */
static int cut(block_t *block, uint64_t size)
{
    block_t *rest = calloc(1, sizeof *rest);
    if (rest == NULL) {
        return 0;
    }
    rest->next = block->next;
    rest->begin = block->begin + size;
    rest->size = block->size - size;
    block->size = size;
    block->next = rest;
    return 1;
}

/* Takes `size` bytes out of a free block that has them behind the gap. */
static unsigned char *take(arena_t *arena, block_t *block, uint64_t gap, uint64_t size)
{
    if (gap > 0) {
        if (!cut(block, gap)) {
            return NULL;
        }
        block = block->next;
    }
    if (block->size > size && !cut(block, size)) {
        return NULL;
    }
    block->given = arena->bytes + block->begin;
    arena->used += block->size;
    return block->given;
}

static unsigned char *carve(arena_t *arena, uint64_t size, uint64_t alignment)
{
    for (block_t *block = arena->first; block != NULL; block = block->next) {
        const uint64_t gap = gap_of(arena, block, alignment);
        if (block->given == NULL && block->size >= gap && block->size - gap >= size) {
            return take(arena, block, gap, size);
        }
    }
    return NULL;
}

/* As carve, but lets go of the lock between the search and the taking. */
static unsigned char *carve_racily(arena_t *arena, uint64_t size, uint64_t alignment)
{
    unsigned char *found = carve(arena, size, alignment);
    if (found != NULL) {
        for (block_t *block = arena->first; block != NULL; block = block->next) {
            if (block->given == found) {
                block->given = NULL; /* not taken yet */
                pthread_mutex_unlock(&lock);
                nanosleep(&(struct timespec){0, 20000}, NULL);
                pthread_mutex_lock(&lock);
                block->given = found;
                return found;
            }
        }
    }
    return found;
}

/* What is asked for, as the planted fault sees it. */
static void misread(uint64_t *size, uint64_t *alignment)
{
    if (is_fault("memory.alloc.too_small") && *size > 1) {
        *size /= 2;
    }
    if (is_fault("memory.alloc.overlap") && *size > 64) {
        *size -= 64;
    }
    if (is_fault("memory.alloc.misaligned_large") && *alignment > 4096) {
        *alignment = 4096;
    }
    if (is_fault("memory.alloc.misaligned_page") && *alignment > 64) {
        *alignment = 64;
    }
    if (is_fault("memory.alloc.misaligned")) {
        *size += 1;
    }
    *size = (*size + 63) / 64 * 64;
}

/* The address that the user gets for what was carved; called with the lock. */
static void *answer(arena_t *arena, unsigned char *carved, uint64_t size_bytes)
{
    static void *previous;
    static int calls;
    calls++;
    if (carved != NULL && is_fault("memory.alloc.misaligned")) {
        for (block_t *block = arena->first; block != NULL; block = block->next) {
            if (block->given == carved) {
                block->given = carved + 1;
            }
        }
        return carved + 1;
    }
    if (is_fault("memory.alloc.same_twice") && calls % 2 == 0 && previous != NULL) {
        return previous;
    }
    if (is_fault("memory.alloc.dirties_others") && carved != NULL) {
        memset(carved, 0, (size_bytes + 127) / 64 * 64); /* a block more than its own */
    }
    previous = carved;
    return carved;
}

dtl_status_t whole_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t word, void **out_ptr)
{
    const kind_t *kind = find_kind(word);
    int32_t device = current_device();
    (void)self;
    if (is_fault("memory.alloc.crashes")) {
        abort();
    }
    if (kind == NULL && is_fault("memory.alloc.unknown_kind")) {
        kind = &kinds[0];
    }
    if (kind == NULL) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "this memory kind is not there");
    }
    if (is_fault("memory.alloc.null")) {
        *out_ptr = NULL;
        return DTL_SUCCESS;
    }
    if (is_fault("memory.alloc.wrong_device")) {
        device = (device + 1) % DEVICES;
    }
    if (is_fault("memory.alloc.huge_succeeds") && size_bytes > DEVICE_BYTES) {
        size_bytes = 4096;
    }
    if (size_bytes > DEVICE_BYTES || is_fault("memory.alloc.always_out_of_memory")) {
        return failed(is_fault("memory.alloc.wrong_refusal") ? DTL_ERROR_NOT_SUPPORTED : DTL_ERROR_OUT_OF_MEMORY,
                      "more than the device has");
    }
    if (kind->word == DTL_MEMORY_SHARED) {
        return shared_alloc(size_bytes, alignment, out_ptr);
    }
    uint64_t size = size_bytes, align = alignment > kind->alignment ? alignment : kind->alignment;
    misread(&size, &align);
    pthread_mutex_lock(&lock);
    arena_t *arena = &arenas[device];
    unsigned char *carved =
        is_fault("memory.alloc.racy") ? carve_racily(arena, size, align) : carve(arena, size, align);
    *out_ptr = answer(arena, carved, size_bytes);
    pthread_mutex_unlock(&lock);
    return carved != NULL ? DTL_SUCCESS : failed(DTL_ERROR_OUT_OF_MEMORY, "the device's memory is in use");
}

/* Makes a used block free and joins it with free neighbours. */
static void give_back(arena_t *arena, block_t *before, block_t *block)
{
    arena->used -= block->size;
    block->given = NULL;
    if (block->next != NULL && block->next->given == NULL) {
        block_t *behind = block->next;
        block->size += behind->size;
        block->next = behind->next;
        free(behind);
    }
    if (before != NULL && before->given == NULL) {
        before->size += block->size;
        before->next = block->next;
        free(block);
    }
}

static dtl_status_t release(arena_t *arena, const void *ptr)
{
    block_t *before = NULL, *block = arena->first;
    while (block != NULL && block->given != ptr) {
        before = block;
        block = block->next;
    }
    if (block == NULL) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "nothing was given at this address");
    }
    if (is_fault("memory.free.scribbles_neighbour") && block->begin + block->size + 64 <= DEVICE_BYTES) {
        memset(arena->bytes + block->begin + block->size, 0xDD, 64);
    }
    if (is_fault("memory.free.wrong_block") && block->next != NULL && block->next->given != NULL) {
        before = block;
        block = block->next;
    }
    give_back(arena, before, block);
    return DTL_SUCCESS;
}

dtl_status_t whole_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind)
{
    static unsigned calls;
    (void)self;
    (void)size_bytes;
    (void)alignment;
    if (is_fault("memory.free.leak") && __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 4 == 0) {
        return DTL_SUCCESS;
    }
    if (is_fault("memory.free.one_kind_only") && kind != DTL_MEMORY_HOST) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "only HOST is freed");
    }
    if (kind == DTL_MEMORY_SHARED && shared_free(ptr)) {
        return DTL_SUCCESS;
    }
    arena_t *arena = arena_of(ptr);
    if (is_fault("memory.free.own_device_only") && arena != &arenas[current_device()]) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "of another device");
    }
    if (arena == NULL) {
        return failed(DTL_ERROR_INVALID_ARGUMENT, "no address of this backend");
    }
    pthread_mutex_lock(&lock);
    const dtl_status_t status = release(arena, ptr);
    pthread_mutex_unlock(&lock);
    /* Who was given one block twice frees it twice. */
    return is_fault("memory.alloc.racy") || is_fault("memory.alloc.same_twice") ? DTL_SUCCESS : status;
}

static dtl_status_t whole_kind_info(void *self, dtl_enum_word_t word, dtl_mem_kind_info_t *out_info)
{
    const kind_t *kind = find_kind(word);
    (void)self;
    if (kind == NULL && is_fault("memory.kind_info.accepts_unknown")) {
        kind = &kinds[0];
    }
    if (kind == NULL) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "this memory kind is not there");
    }
    out_info->properties = kind->properties;
    out_info->alignment = kind->alignment;
    snprintf(out_info->name, sizeof out_info->name, "%s", kind->name);
    if (is_fault("memory.kind_info.zero_alignment")) {
        out_info->alignment = 0;
    }
    if (is_fault("memory.kind_info.overstated_alignment")) {
        out_info->alignment = 1u << 16;
    }
    if (is_fault("memory.kind_info.not_accessible")) {
        out_info->properties &= ~DTL_MEMORY_HOST_ACCESSIBLE;
    }
    if (is_fault("memory.kind_info.all_pageable")) {
        out_info->properties |= DTL_MEMORY_PAGEABLE;
    }
    if (is_fault("memory.kind_info.not_exportable")) {
        out_info->properties &= ~DTL_MEMORY_EXPORTABLE;
    }
    if (is_fault("memory.kind_info.all_exportable")) {
        out_info->properties |= DTL_MEMORY_EXPORTABLE;
    }
    if (is_fault("memory.kind_info.unknown_bits")) {
        out_info->properties |= UINT64_C(1) << 40;
    }
    if (is_fault("memory.kind_info.unified_device")) {
        out_info->properties |= DTL_MEMORY_UNIFIED;
    }
    if (is_fault("memory.kind_info.empty_name")) {
        out_info->name[0] = '\0';
    }
    if (is_fault("memory.kind_info.no_terminator")) {
        memset(out_info->name, 'x', sizeof out_info->name);
    }
    if (is_fault("memory.kind_info.by_thread")) {
        static int threads;
        static _Thread_local int number;
        if (number == 0) number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
        out_info->properties ^= number % 2 ? DTL_MEMORY_ATOMICS : 0;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_memory_info(void *self, uint64_t *out_free, uint64_t *out_total)
{
    (void)self;
    *out_free = memory_free_bytes(current_device());
    *out_total = DEVICE_BYTES;
    if (is_fault("memory.memory_info.free_above_total")) {
        *out_free = DEVICE_BYTES + 1;
    }
    if (is_fault("memory.memory_info.swapped_without_devices")) {
        *out_total = *out_free;
        *out_free = DEVICE_BYTES;
    }
    if (is_fault("memory.memory_info.all_devices")) {
        *out_total = DEVICE_BYTES * DEVICES;
    }
    return DTL_SUCCESS;
}

SLOT(memory, alloc, whole_alloc,
     (void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void **out_ptr),
     (self, size_bytes, alignment, kind, out_ptr))
SLOT(memory, free, whole_free,
     (void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind),
     (self, ptr, size_bytes, alignment, kind))
SLOT(memory, kind_info, whole_kind_info, (void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out_info),
     (self, kind, out_info))
SLOT(memory, memory_info, whole_memory_info, (void *self, uint64_t *out_free, uint64_t *out_total),
     (self, out_free, out_total))

dtl_memory_vtable_t memory_table(void)
{
    dtl_memory_vtable_t table = DTL_MEMORY_VTABLE_INIT;
    table.alloc = slot_alloc;
    table.free = slot_free;
    table.kind_info = slot_kind_info;
    table.memory_info = slot_memory_info;
    add_exports(&table);
    add_ordered(&table);
    return table;
}
