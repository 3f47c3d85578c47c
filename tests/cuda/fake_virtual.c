/* Virtual memory management (cuMemCreate, cuMemAddressReserve, cuMemMap). cuPointerGetAttributes reports each
 * mapping as a range of its own; copies may span adjacent mappings. See fake_cuda.h. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { MOST = 8 };

typedef struct {
    int device;
    size_t size;
} piece_t;

/* Reserved addresses, which the host cannot access, and the bytes behind them. */
static struct {
    char *begin, *memory;
    size_t size;
} reserved[MOST];

API code_t cuMemCreate(piece_t** out, size_t size, const unsigned* properties, unsigned long long flags) {
    BEGIN_ANYWHERE(cuMemCreate);
    if (properties[0] != 1 || flags != 0 || size == 0) return INVALID_VALUE;
    *out = (piece_t*)calloc(1, sizeof **out);
    (*out)->device = (int)properties[3], (*out)->size = size;
    return SUCCESS;
}

API code_t cuMemRelease(piece_t* piece) {
    BEGIN_ANYWHERE(cuMemRelease);
    free(piece);
    return SUCCESS;
}

API code_t cuMemAddressReserve(ptr_t* out, size_t size, size_t alignment, ptr_t address, unsigned long long flags) {
    int i = 0;
    BEGIN_ANYWHERE(cuMemAddressReserve);
    (void)alignment;
    LOCK();
    while (i < MOST && reserved[i].size != 0) i++;
    if (i == MOST || flags != 0) return UNLOCK(), INVALID_VALUE;
    reserved[i].size = size;
    reserved[i].begin = (char*)mmap((void*)(uintptr_t)address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    reserved[i].memory = (char*)calloc(1, size);
    *out = (ptr_t)(uintptr_t)reserved[i].begin;
    UNLOCK();
    return SUCCESS;
}

API code_t cuMemAddressFree(ptr_t at, size_t size) {
    code_t code = INVALID_VALUE;
    int i;
    BEGIN_ANYWHERE(cuMemAddressFree);
    LOCK();
    for (i = 0; i < MOST; i++) {
        if (reserved[i].size == 0 || reserved[i].size != size || reserved[i].begin != (char*)(uintptr_t)at) continue;
        munmap(reserved[i].begin, size), free(reserved[i].memory);
        reserved[i].size = 0;
        code = SUCCESS;
    }
    UNLOCK();
    return code;
}

API code_t cuMemMap(ptr_t at, size_t size, size_t offset, piece_t* piece, unsigned long long flags) {
    char* begin = (char*)(uintptr_t)at;
    code_t code = INVALID_VALUE;
    int i;
    BEGIN_ANYWHERE(cuMemMap);
    LOCK();
    for (i = 0; i < MOST && piece->size == size && offset == 0 && flags == 0; i++) {
        if (begin < reserved[i].begin || begin + size > reserved[i].begin + reserved[i].size) continue;
        fake_list('v', reserved[i].memory + (begin - reserved[i].begin), size, piece->device, -1)->begin = begin;
        code = SUCCESS;
    }
    UNLOCK();
    return code;
}

API code_t cuMemSetAccess(ptr_t at, size_t size, const void* whose, size_t count) {
    BEGIN_ANYWHERE(cuMemSetAccess);
    (void)at, (void)size, (void)whose, (void)count;
    return SUCCESS;
}

API code_t cuMemUnmap(ptr_t at, size_t size) {
    char *begin = (char*)(uintptr_t)at, *end = begin + size;
    code_t code = INVALID_VALUE;
    BEGIN_ANYWHERE(cuMemUnmap);
    LOCK();
    while (begin < end) {
        range_t* range = fake_range(begin);
        if (range == NULL || range->kind != 'v') break;
        begin += range->size;
        fake_release(range);
        code = SUCCESS;
    }
    UNLOCK();
    return code;
}
