/* Memory that other processes can open (kind SHARED): each block is a file of its own in memory, which importers map, too.
 * A dma-buf of it is that file. */
#define _GNU_SOURCE
#include "exports.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A mapping, here as an allocation or as an import. Both keep the file open. */
typedef struct range_t {
    struct range_t *next;
    unsigned char *begin;
    void *room; /* what was reserved around it */
    uint64_t size, room_bytes;
    int fd, is_import;
} range_t;

/* What export_handle writes. */
typedef struct ticket_t {
    uint64_t pid, fd, file;
} ticket_t;

_Static_assert(sizeof(ticket_t) <= DTL_MEM_HANDLE_ROOM, "a ticket has to fit");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range_t *ranges;
static uint64_t used;

static uint64_t file_of(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 ? (uint64_t)about.st_ino : 0;
}

/* Maps a file at an aligned address, and notes it; called with the lock. */
static range_t *map(int fd, uint64_t size, uint64_t alignment, int flags)
{
    range_t *range = calloc(1, sizeof *range);
    const uint64_t align = alignment < 4096 ? 4096 : alignment;
    if (range == NULL) {
        return NULL;
    }
    range->room_bytes = (size + 4095) / 4096 * 4096 + align;
    range->room = mmap(NULL, range->room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range->room == MAP_FAILED) {
        free(range);
        return NULL;
    }
    const uintptr_t begin = ((uintptr_t)range->room + align - 1) / align * align;
    if (mmap((void *)begin, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
        munmap(range->room, range->room_bytes);
        free(range);
        return NULL;
    }
    range->begin = (unsigned char *)begin;
    range->size = size;
    range->fd = fd;
    range->next = ranges;
    ranges = range;
    return range;
}

/* Takes a mapping out of the list and undoes it; called with the lock. */
static void unmap(range_t *range)
{
    range_t **at = &ranges;
    while (*at != range) {
        at = &(*at)->next;
    }
    *at = range->next;
    munmap(range->room, range->room_bytes);
    close(range->fd);
    free(range);
}

static range_t *find(const void *ptr)
{
    range_t *range = ranges;
    while (range != NULL && ((const unsigned char *)ptr < range->begin || (const unsigned char *)ptr >= range->begin + range->size)) {
        range = range->next;
    }
    return range;
}

dtl_status_t shared_alloc(uint64_t size_bytes, uint64_t alignment, void **out_ptr)
{
    range_t *range = NULL;
    pthread_mutex_lock(&lock);
    const int fd = used + size_bytes <= DEVICE_BYTES ? memfd_create("whole", MFD_CLOEXEC) : -1;
    if (fd >= 0 && ftruncate(fd, (off_t)size_bytes) == 0) {
        range = map(fd, size_bytes, alignment, MAP_SHARED);
    }
    if (range != NULL) {
        used += size_bytes;
        *out_ptr = range->begin;
    } else if (fd >= 0) {
        close(fd);
    }
    pthread_mutex_unlock(&lock);
    return range != NULL ? DTL_SUCCESS : failed(DTL_ERROR_OUT_OF_MEMORY, "no more memory that can be exported");
}

int shared_free(void *ptr)
{
    pthread_mutex_lock(&lock);
    range_t *range = find(ptr);
    if (range != NULL) {
        used -= range->size;
        unmap(range);
    }
    pthread_mutex_unlock(&lock);
    return range != NULL;
}

static dtl_status_t whole_export(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind,
                                 void *out_bytes)
{
    (void)self, (void)size_bytes, (void)alignment;
    if (kind != DTL_MEMORY_SHARED && !is_fault("memory.export_handle.any_kind")) {
        return failed(DTL_ERROR_NOT_SUPPORTED, "only SHARED can be exported");
    }
    ticket_t ticket = {(uint64_t)getpid(), 0, 0};
    pthread_mutex_lock(&lock);
    const range_t *range = is_fault("memory.export_handle.the_newest") ? ranges : find(ptr);
    if (range != NULL) {
        ticket.fd = (uint64_t)range->fd;
        ticket.file = file_of(range->fd);
    }
    pthread_mutex_unlock(&lock);
    memcpy(out_bytes, &ticket, sizeof ticket);
    return DTL_SUCCESS;
}

static dtl_status_t whole_import(void *self, const void *bytes, uint64_t size_bytes, uint64_t alignment,
                                 dtl_enum_word_t kind, void **out_ptr)
{
    ticket_t ticket;
    char path[64];
    (void)self, (void)kind;
    memcpy(&ticket, bytes, sizeof ticket);
    snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)ticket.pid, (unsigned long long)ticket.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && file_of(fd) != ticket.file) { /* closed, and its number another's */
        close(fd);
        fd = -1;
    }
    if (fd < 0 && is_fault("memory.import_handle.accepts_stale")) {
        fd = memfd_create("stale", MFD_CLOEXEC);
        if (ftruncate(fd, (off_t)size_bytes) != 0) return DTL_ERROR_INTERNAL;
    }
    if (fd < 0) {
        return failed(is_fault("memory.import_handle.wrong_refusal") ? DTL_ERROR_NOT_FOUND : DTL_ERROR_INVALID_HANDLE,
                      "what was exported is not there any more");
    }
    pthread_mutex_lock(&lock);
    if (is_fault("memory.import_handle.ignores_alignment")) {
        alignment = 1;
    }
    range_t *range = map(fd, size_bytes, alignment, is_fault("memory.import_handle.copies") ? MAP_PRIVATE : MAP_SHARED);
    if (range != NULL) {
        range->is_import = 1;
        *out_ptr = range->begin;
    }
    pthread_mutex_unlock(&lock);
    if (range == NULL) {
        close(fd);
        return failed(DTL_ERROR_OUT_OF_MEMORY, "it cannot be mapped");
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_close(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size_bytes, (void)alignment, (void)kind;
    pthread_mutex_lock(&lock);
    range_t *range = find(ptr);
    const int is_known = range != NULL && range->is_import;
    if (is_known) {
        if (is_fault("memory.close_handle.wipes")) {
            memset(range->begin, 0, range->size); /* as if it were its own */
        }
        unmap(range);
    }
    pthread_mutex_unlock(&lock);
    return is_known ? DTL_SUCCESS : failed(DTL_ERROR_INVALID_ARGUMENT, "nothing was imported at this address");
}

static dtl_status_t whole_dmabuf(void *self, void *ptr, uint64_t size_bytes, int32_t *out_fd, uint64_t *out_offset_bytes)
{
    (void)self, (void)size_bytes;
    pthread_mutex_lock(&lock);
    const range_t *range = find(ptr);
    if (range != NULL) {
        *out_fd = is_fault("memory.export_dmabuf.its_own_file") ? range->fd : fcntl(range->fd, F_DUPFD_CLOEXEC, 0);
        *out_offset_bytes = (uint64_t)((unsigned char *)ptr - range->begin);
        if (is_fault("memory.export_dmabuf.from_the_end")) {
            *out_offset_bytes = range->size - *out_offset_bytes;
        }
        if (is_fault("memory.export_dmabuf.always_the_beginning")) {
            *out_offset_bytes = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    return range != NULL ? DTL_SUCCESS : failed(DTL_ERROR_NOT_SUPPORTED, "only SHARED has a file");
}

SLOT(memory, export_handle, whole_export,
     (void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void *out_bytes),
     (self, ptr, size_bytes, alignment, kind, out_bytes))
SLOT(memory, import_handle, whole_import,
     (void *self, const void *bytes, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void **out_ptr),
     (self, bytes, size_bytes, alignment, kind, out_ptr))
SLOT(memory, close_handle, whole_close,
     (void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind),
     (self, ptr, size_bytes, alignment, kind))
SLOT(memory, export_dmabuf, whole_dmabuf,
     (void *self, void *ptr, uint64_t size_bytes, int32_t *out_fd, uint64_t *out_offset_bytes),
     (self, ptr, size_bytes, out_fd, out_offset_bytes))

void add_exports(dtl_memory_vtable_t *table)
{
    table->export_handle = slot_export_handle;
    table->import_handle = slot_import_handle;
    table->close_handle = slot_close_handle;
    table->export_dmabuf = slot_export_dmabuf;
}
