/* Memory that several processes map: each allocation is a file in memory. Another process opens it
 * through /proc and checks that it is still the same file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "card.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct shared_t {
    struct shared_t *next;
    void *address;
    uint64_t size;
    int file; /* -1: an import */
} shared_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shared_t *all;

/* Maps a file at a multiple of the alignment. */
static void *map(int file, uint64_t size, uint64_t alignment)
{
    const uint64_t page =
        (uint64_t)sysconf(_SC_PAGESIZE), step = alignment < page ? page : alignment;
    if (size > UINT64_MAX / 2 - step) return NULL;
    unsigned char *room = mmap(NULL, size + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
                               MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return NULL;
    unsigned char *at = room + (step - (uintptr_t)room % step) % step;
    unsigned char *end =
        at + (size + page - 1) / page * page, *room_end =
            room + (size + step + page - 1) / page * page;
    if (at > room) munmap(room, (size_t)(at - room));
    if (room_end > end) munmap(end, (size_t)(room_end - end));
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file,
             0) == MAP_FAILED) {
        munmap(at, size);
        return NULL;
    }
    return at;
}

/* Maps a file and lists it; NULL = no memory. */
static void *add(int file, uint64_t size, uint64_t alignment, int keeps_file)
{
    shared_t *made = malloc(sizeof *made);
    void *address = made != NULL ? map(file, size, alignment) : NULL;
    if (address == NULL) {
        free(made);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    *made = (shared_t){all, address, size, keeps_file ? file : -1};
    all = made;
    pthread_mutex_unlock(&lock);
    return address;
}

void *card_share(uint64_t size, uint64_t alignment)
{
    const int file = memfd_create("sim", MFD_CLOEXEC);
    void *address = NULL;
    if (file >= 0 && size <= CARD_BYTES && ftruncate(file, (off_t)size) == 0) {
        address = add(file, size, alignment, 1);
    }
    if (address == NULL && file >= 0) close(file);
    return address;
}

/* The file of the allocation that has an address, and the offset of the address in it. */
static int file_of(const void *address, uint64_t *out_offset)
{
    int file = -1;
    pthread_mutex_lock(&lock);
    for (const shared_t *one = all; one != NULL; one = one->next) {
        const uint64_t offset = (uint64_t)((uintptr_t)address - (uintptr_t)one->address);
        if (offset < one->size) file = one->file, *out_offset = offset;
    }
    pthread_mutex_unlock(&lock);
    return file;
}

int card_share_export(void *address, uint64_t out[4])
{
    struct stat told;
    uint64_t offset;
    const int file = file_of(address, &offset);
    if (file < 0 || fstat(file, &told) != 0) return -1;
    out[0] = (uint64_t)getpid();
    out[1] = (uint64_t)file;
    out[2] = (uint64_t)told.st_dev;
    out[3] = (uint64_t)told.st_ino;
    return 0;
}

void *card_share_import(const uint64_t handle[4], uint64_t size, uint64_t alignment)
{
    char path[64];
    struct stat told;
    void *address = NULL;
    snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)handle[0],
             (unsigned long long)handle[1]);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    /* The number may be that of another file by now. */
    if (file >= 0 && fstat(file, &told) == 0 && (uint64_t)told.st_dev == handle[2] &&
        (uint64_t)told.st_ino == handle[3] && (uint64_t)told.st_size >= size) {
        address = add(file, size, alignment, 0);
    }
    if (file >= 0) close(file);
    return address;
}

int card_share_file(void *address, uint64_t *out_offset)
{
    const int file = file_of(address, out_offset);
    return file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 0);
}

void card_unshare(void *address)
{
    pthread_mutex_lock(&lock);
    shared_t **link = &all;
    while (*link != NULL && (*link)->address != address) link = &(*link)->next;
    shared_t *gone = *link;
    if (gone != NULL) *link = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone == NULL) return;
    munmap(gone->address, gone->size);
    if (gone->file >= 0) close(gone->file);
    free(gone);
}
