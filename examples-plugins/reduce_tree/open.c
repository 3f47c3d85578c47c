/* Opening: rank 0 makes the shared memory under a name that follows from the job, the others open it. */
#define _POSIX_C_SOURCE 200809L
#include "reduce_tree.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_ms(void)
{
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* Returns the number of communicators that this process has opened for a job so far, and counts one more. All ranks
 * of a job open in the same order, so the number is the same on all ranks. Each job has its own count, because a
 * process that joins later (dtl_comm_grow) has opened no communicator of the earlier jobs. */
static dtl_status_t next_number(uint64_t job, unsigned *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct count { struct count *next; uint64_t job; unsigned opened; } *counts;
    struct count *count;
    pthread_mutex_lock(&lock);
    for (count = counts; count != NULL && count->job != job; count = count->next) {}
    if (count == NULL && (count = calloc(1, sizeof *count)) != NULL) {
        count->job = job, count->next = counts;
        counts = count; /* never freed */
    }
    if (count != NULL) *out = count->opened++;
    pthread_mutex_unlock(&lock);
    return count != NULL ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t name_of(char *name, size_t cap, const char *job)
{
    uint64_t hash = 14695981039346656037u;
    unsigned number = 0;
    dtl_status_t status;
    for (; *job != 0; job++) hash = (hash ^ (unsigned char)*job) * 1099511628211u;
    status = next_number(hash, &number);
    snprintf(name, cap, "/reduce_tree-%u-%llx-%u", (unsigned)geteuid(), (unsigned long long)hash, number);
    return status;
}

static dtl_status_t failed(const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
    DTL_IGNORE(host->set_error(text));
    return DTL_ERROR_COMMUNICATION;
}

static dtl_status_t missing(int32_t rank)
{
    char text[64];
    snprintf(text, sizeof text, "rank %d is missing", (int)rank);
    DTL_IGNORE(host->set_error(text));
    return DTL_ERROR_TIMEOUT;
}

static dtl_status_t map(comm_t *c, const char *name, size_t bytes, uint64_t deadline)
{
    int file;
    if (c->rank == 0) {
        shm_unlink(name); /* of a job that was killed */
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0) return failed(name);
        errno = posix_fallocate(file, 0, (off_t)bytes);
        if (errno != 0) return close(file), shm_unlink(name), failed("shared memory");
    } else {
        while ((file = shm_open(name, O_RDWR, 0600)) < 0 || lseek(file, 0, SEEK_END) < (off_t)bytes) {
            if (file >= 0) close(file);
            if (now_ns() > deadline) return missing(0);
            pause_ms();
        }
    }
    c->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return c->shared != MAP_FAILED ? DTL_SUCCESS : failed("mmap");
}

static size_t bytes_of(int32_t size)
{
    return sizeof(shared_t) + (size_t)size * (size_t)size * sizeof(queue_t);
}

static dtl_status_t join(comm_t *c, const char *job, uint64_t timeout_ns)
{
    const uint64_t deadline = now_ns() + timeout_ns;
    char name[128];
    dtl_status_t status;
    status = name_of(name, sizeof name, job);
    if (status == DTL_SUCCESS) status = map(c, name, bytes_of(c->size), deadline);
    if (status != DTL_SUCCESS) return status;
    atomic_store(&c->shared->joined[c->rank], 1);
    for (int32_t rank = 0; rank < c->size && status == DTL_SUCCESS; rank++) {
        while (!atomic_load(&c->shared->joined[rank]) && now_ns() < deadline) pause_ms();
        if (!atomic_load(&c->shared->joined[rank])) status = missing(rank);
    }
    if (c->rank == 0) shm_unlink(name); /* all have opened it, or nobody is to open it any more */
    if (status != DTL_SUCCESS) munmap(c->shared, bytes_of(c->size));
    return status;
}

static dtl_status_t open_comm(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    comm_t *c = calloc(1, sizeof *c);
    dtl_status_t status = DTL_SUCCESS;
    (void)self;
    if (c == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    c->rank = args->rank < 0 ? 0 : args->rank;
    c->size = args->size < 0 ? 1 : args->size;
    if (c->size > MOST_RANKS) {
        DTL_IGNORE(host->set_error("reduce_tree has 8 ranks at most"));
        status = DTL_ERROR_LIMIT;
    } else if (c->size > 1 && args->job[0] == 0) {
        DTL_IGNORE(host->set_error("reduce_tree needs a job name: start it with dtlrun, or set desc.job"));
        status = DTL_ERROR_INVALID_ARGUMENT;
    } else if (c->size == 1) {
        c->shared = calloc(1, bytes_of(1));
        if (c->shared == NULL) status = DTL_ERROR_OUT_OF_MEMORY;
    } else {
        status = join(c, args->job, args->timeout_ns);
    }
    if (status != DTL_SUCCESS) return free(c), status;
    *out_comm = c, *out_rank = c->rank, *out_size = c->size;
    return DTL_SUCCESS;
}

static dtl_status_t close_comm(void *self, void *comm)
{
    comm_t *c = comm;
    (void)self;
    if (c->size == 1) free(c->shared);
    else munmap(c->shared, bytes_of(c->size));
    free(c);
    return DTL_SUCCESS;
}

void add_open(dtl_comm_vtable_t *table)
{
    table->open = open_comm;
    table->close = close_comm;
}
