/* Memory of the devices. Each device has two mappings of one size: `window`, whose addresses the
 * program gets and cannot access, and `bytes`, which only the card uses. For memory of the host
 * they are the same. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "card.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct block_t { /* an allocation, in the order of addresses */
    struct block_t *next;
    uint64_t begin, end;
} block_t;

typedef struct device_t {
    unsigned char *window, *bytes;
    block_t *first;
    uint64_t used;
} device_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_t devices[CARD_DEVICES + 1]; /* and the host */

static unsigned char *map(int protection)
{
    void *at = mmap(NULL, CARD_BYTES, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                    0);
    return at == MAP_FAILED ? NULL : at;
}

int card_start(void)
{
    int result = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i <= CARD_HOST && result == 0; i++) {
        device_t *device = &devices[i];
        if (device->bytes == NULL) device->bytes = map(PROT_READ | PROT_WRITE);
        if (device->window == NULL) {
            device->window = i == CARD_HOST ? device->bytes : map(PROT_NONE);
        }
        if (device->window == NULL || device->bytes == NULL) result = -1;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void card_stop(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i <= CARD_HOST; i++) {
        device_t *device = &devices[i];
        for (block_t *block = device->first, *next; block != NULL; block = next) {
            next = block->next;
            free(block);
        }
        if (device->window != NULL && i != CARD_HOST) munmap(device->window, CARD_BYTES);
        if (device->bytes != NULL) munmap(device->bytes, CARD_BYTES);
        *device = (device_t){NULL, NULL, NULL, 0};
    }
    pthread_mutex_unlock(&lock);
}

void *card_alloc(int32_t number, uint64_t size, uint64_t alignment)
{
    device_t *device = &devices[number];
    void *address = NULL;
    if (size > CARD_BYTES || alignment > CARD_BYTES) return NULL;
    if (alignment < CARD_ALIGNMENT) alignment = CARD_ALIGNMENT;
    block_t *added = malloc(sizeof *added);
    if (added == NULL) return NULL;
    pthread_mutex_lock(&lock);
    /* The first gap that is large enough. */
    uint64_t after = 0;
    block_t **link = &device->first;
    for (;;) {
        const uint64_t limit = *link != NULL ? (*link)->begin : CARD_BYTES;
        const uint64_t rest = ((uintptr_t)device->window + after) % alignment;
        const uint64_t begin = after + (rest != 0 ? alignment - rest : 0);
        if (begin <= limit && limit - begin >= size) {
            *added = (block_t){*link, begin, begin + size};
            *link = added;
            device->used += size;
            address = device->window + begin;
            break;
        }
        if (*link == NULL) break;
        after = (*link)->end;
        link = &(*link)->next;
    }
    pthread_mutex_unlock(&lock);
    if (address == NULL) free(added);
    return address;
}

static int has(const device_t *device, const void *address)
{
    const uintptr_t begin = (uintptr_t)device->window;
    return begin != 0 && (uintptr_t)address - begin < CARD_BYTES;
}

int32_t card_device_of(const void *address)
{
    for (int32_t i = 0; i < CARD_DEVICES; i++) {
        if (has(&devices[i], address)) return i;
    }
    return -1;
}

void card_free(void *address)
{
    const int32_t number = card_device_of(address);
    device_t *device = &devices[number < 0 ? CARD_HOST : number];
    pthread_mutex_lock(&lock);
    if (has(device, address)) {
        const uint64_t begin = (uint64_t)((unsigned char *)address - device->window);
        block_t **link = &device->first;
        while (*link != NULL && (*link)->begin != begin) link = &(*link)->next;
        block_t *block = *link;
        if (block != NULL) {
            *link = block->next;
            device->used -= block->end - block->begin;
            free(block);
        }
    }
    pthread_mutex_unlock(&lock);
}

uint64_t card_free_bytes(int32_t device)
{
    pthread_mutex_lock(&lock);
    const uint64_t bytes = CARD_BYTES - devices[device].used;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void *card_translate(const void *address)
{
    const int32_t number = card_device_of(address);
    if (number < 0) return (void *)(uintptr_t)address;
    const device_t *device = &devices[number];
    return device->bytes + ((uintptr_t)address - (uintptr_t)device->window);
}
