/* A communicator made of the five required slots of dtl_comm_vtable_t, for tests: ranks are processes
 * forked before the library is used, messages go through byte rings in memory that they share.
 *
 * Deliberately plain: no cancel slot, no threads, everything is copied. "mail28" matches only the
 * lowest 28 bits of the match word. "mailwin" has the slots for windows besides, "mailput" those without atomics. */
#ifndef DTL_TESTS_MAIL_COMM_H
#define DTL_TESTS_MAIL_COMM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "check.h"
#include "vm_window.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAIL_RING = 1 << 16, MAIL_RANKS = 8, MAIL_CONTEXTS = 64 };

/// One direction between two ranks: bytes [tail, head) are on their way.
typedef struct mail_ring {
    uint64_t head;
    uint64_t tail;
    unsigned char bytes[MAIL_RING];
} mail_ring;

typedef struct mail_header {
    uint64_t word;
    uint64_t size;
} mail_header;

/// A message that has arrived, or is arriving.
typedef struct mail_message {
    struct mail_message *next;
    mail_header header;
    uint64_t have;
    int source;
    unsigned char *bytes;
} mail_message;

typedef struct mail_op {
    struct mail_op *next;
    unsigned char *buf;
    mail_header header;
    uint64_t sent; /* header and bytes */
    uint64_t ignore;
    int source;
    int done;
    dtl_comm_done_t result;
} mail_op;

typedef struct mail_comm {
    mail_ring *rings; /* [from][to] */
    mail_op *sends[MAIL_RANKS];
    mail_op *posted;
    mail_message *arrived;
    mail_message *arriving[MAIL_RANKS];
    mail_header heads[MAIL_RANKS];
    uint64_t mask;
} mail_comm;

static mail_ring *mail_area;
static int mail_rank, mail_size, mail_contexts, mail_children, mail_refuses_windows, mail_fails;

static inline void *mail_new(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    CHECK(memory != NULL);
    return memory;
}

static inline void mail_child_ended(int signal_number) {
    const int saved = errno;
    int status;
    (void)signal_number;
    while (waitpid(-1, &status, WNOHANG) > 0) {
        mail_children -= 1;
        if (status != 0) _exit(1); /* it has said why */
    }
    errno = saved;
}

/// Makes the ranks. Returns in each of them.
static inline void mail_start(int ranks) {
    const size_t size = sizeof(mail_ring) * MAIL_CONTEXTS * (size_t)ranks * (size_t)ranks;
    int rank;
    CHECK(ranks >= 1 && ranks <= MAIL_RANKS);
    mail_area = (mail_ring *)mmap(NULL, size, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(mail_area != (mail_ring *)MAP_FAILED);
    mail_size = ranks;
    mail_children = ranks - 1;
    signal(SIGCHLD, mail_child_ended);
    for (rank = 1; rank < ranks; rank++) {
        const pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            signal(SIGCHLD, SIG_DFL);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            mail_rank = rank;
            mail_children = 0;
            return;
        }
    }
}

/// In rank 0: waits for the others.
static inline void mail_finish(void) {
    while (*(volatile int *)&mail_children > 0) usleep(1000);
}

static inline mail_ring *mail_ring_of(mail_comm *c, int from, int to) {
    return &c->rings[from * mail_size + to];
}

/// Writes what fits of `size` bytes; how many did.
static inline uint64_t mail_write(mail_ring *ring, const void *bytes, uint64_t size) {
    const uint64_t head = ring->head;
    const uint64_t room = MAIL_RING - (head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE));
    const uint64_t count = size < room ? size : room;
    uint64_t i;
    for (i = 0; i < count; i++) ring->bytes[(head + i) % MAIL_RING] = ((const unsigned char *)bytes)[i];
    __atomic_store_n(&ring->head, head + count, __ATOMIC_RELEASE);
    return count;
}

static inline uint64_t mail_read(mail_ring *ring, void *bytes, uint64_t size) {
    const uint64_t tail = ring->tail;
    const uint64_t there = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) - tail;
    const uint64_t count = size < there ? size : there;
    uint64_t i;
    for (i = 0; i < count; i++) ((unsigned char *)bytes)[i] = ring->bytes[(tail + i) % MAIL_RING];
    __atomic_store_n(&ring->tail, tail + count, __ATOMIC_RELEASE);
    return count;
}

static inline void mail_push(mail_comm *c, int dest) {
    mail_ring *ring = mail_ring_of(c, mail_rank, dest);
    while (c->sends[dest] != NULL) {
        mail_op *op = c->sends[dest];
        if (op->sent == 0) {
            if (MAIL_RING - (ring->head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) < sizeof op->header) return;
            op->sent = mail_write(ring, &op->header, sizeof op->header);
        }
        op->sent += mail_write(ring, op->buf + (op->sent - sizeof op->header),
                               op->header.size - (op->sent - sizeof op->header));
        if (op->sent < sizeof op->header + op->header.size) return;
        c->sends[dest] = op->next;
        op->done = 1;
    }
}

static inline int mail_matches(const mail_op *op, const mail_message *message) {
    return (op->source == DTL_ANY_SOURCE || op->source == message->source) &&
           ((op->header.word ^ message->header.word) & ~op->ignore) == 0;
}

static inline void mail_deliver(mail_op *op, mail_message *message) {
    const uint64_t size = message->header.size;
    const int fits = size <= op->header.size;
    if (size > 0 && op->header.size > 0) memcpy(op->buf, message->bytes, fits ? size : op->header.size);
    op->done = 1;
    op->result.source = message->source;
    op->result.status = fits ? DTL_SUCCESS : DTL_ERROR_TRUNCATED;
    op->result.match_word = message->header.word;
    op->result.size_bytes = size;
    free(message->bytes);
    free(message);
}

static inline void mail_arrived(mail_comm *c, mail_message *message) {
    mail_op **op = &c->posted;
    mail_message **last = &c->arrived;
    for (; *op != NULL; op = &(*op)->next) {
        if (mail_matches(*op, message)) {
            mail_op *found = *op;
            *op = found->next;
            mail_deliver(found, message);
            return;
        }
    }
    while (*last != NULL) last = &(*last)->next;
    *last = message;
}

/// Reads one message, or what there is of it; whether one came to its end.
static inline int mail_pull(mail_comm *c, int source) {
    mail_ring *ring = mail_ring_of(c, source, mail_rank);
    mail_message *message = c->arriving[source];
    if (message == NULL) {
        if (__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) - ring->tail < sizeof(mail_header)) return 0;
        message = (mail_message *)mail_new(sizeof *message);
        (void)mail_read(ring, &message->header, sizeof message->header);
        message->source = source;
        message->bytes = (unsigned char *)mail_new(message->header.size);
        c->arriving[source] = message;
    }
    message->have += mail_read(ring, message->bytes + message->have, message->header.size - message->have);
    if (message->have < message->header.size) return 0;
    c->arriving[source] = NULL;
    mail_arrived(c, message);
    return 1;
}

static inline mail_comm *mail_new_comm(uint64_t mask) {
    mail_comm *c = (mail_comm *)mail_new(sizeof *c);
    CHECK(mail_contexts < MAIL_CONTEXTS);
    c->rings = mail_area + (size_t)mail_contexts++ * (size_t)mail_size * (size_t)mail_size;
    c->mask = mask;
    return c;
}

static inline dtl_status_t mail_open(void *self, const dtl_comm_open_t *args, void **out, int32_t *rank,
                                     int32_t *size) {
    (void)args;
    *out = mail_new_comm(*(const uint64_t *)self);
    *rank = mail_rank;
    *size = mail_size;
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_close(void *self, void *comm) {
    mail_comm *c = (mail_comm *)comm;
    (void)self;
    while (c->arrived != NULL) {
        mail_message *message = c->arrived;
        c->arrived = message->next;
        free(message->bytes);
        free(message);
    }
    free(c);
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_isend(void *self, void *comm, const void *buf, uint64_t size, int32_t dest,
                                      uint64_t word, uint64_t *out) {
    mail_comm *c = (mail_comm *)comm;
    mail_op *op = (mail_op *)mail_new(sizeof *op), **last = &c->sends[dest];
    (void)self;
    op->buf = (unsigned char *)(uintptr_t)buf;
    op->header.word = word & c->mask;
    op->header.size = size;
    while (*last != NULL) last = &(*last)->next;
    *last = op;
    mail_push(c, dest);
    *out = (uint64_t)(uintptr_t)op;
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_irecv(void *self, void *comm, void *buf, uint64_t size, int32_t source,
                                      uint64_t word, uint64_t ignore, uint64_t *out) {
    mail_comm *c = (mail_comm *)comm;
    mail_op *op = (mail_op *)mail_new(sizeof *op), **last = &c->posted;
    mail_message **message = &c->arrived;
    (void)self;
    op->buf = (unsigned char *)buf;
    op->header.word = word & c->mask;
    op->header.size = size;
    op->ignore = ignore;
    op->source = source;
    *out = (uint64_t)(uintptr_t)op;
    for (; *message != NULL; message = &(*message)->next) {
        if (mail_matches(op, *message)) {
            mail_message *found = *message;
            *message = found->next;
            mail_deliver(op, found);
            return DTL_SUCCESS;
        }
    }
    while (*last != NULL) last = &(*last)->next;
    *last = op;
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_test(void *self, void *comm, uint64_t id, int32_t *done, dtl_comm_done_t *out) {
    mail_comm *c = (mail_comm *)comm;
    mail_op *op = (mail_op *)(uintptr_t)id;
    int rank;
    (void)self;
    if (mail_fails) return DTL_ERROR_BACKEND;
    if (vm_is_word(id)) {
        *done = 1;
        out->status = vm_status(id);
        return DTL_SUCCESS;
    }
    for (rank = 0; rank < mail_size; rank++) {
        mail_push(c, rank);
        while (mail_pull(c, rank)) {
        }
    }
    *done = op->done;
    if (op->done) {
        *out = op->result;
        free(op);
    }
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_win_create(void *self, void *comm, void *base, uint64_t size, void **out_win, void *key,
                                           uint32_t *out_key_bytes) {
    (void)self, (void)comm;
    if (mail_refuses_windows) return DTL_ERROR_NOT_SUPPORTED;
    return vm_create(mail_size, base, size, out_win, key, out_key_bytes);
}

static inline dtl_status_t mail_win_attach(void *self, void *comm, void *win, int32_t rank, const void *key,
                                           uint32_t key_bytes) {
    (void)self, (void)comm;
    return vm_attach(win, rank, key, key_bytes);
}

static inline dtl_status_t mail_win_destroy(void *self, void *comm, void *win) {
    (void)self, (void)comm;
    return vm_destroy(win);
}

static inline dtl_status_t mail_win_put(void *self, void *comm, void *win, const void *buf, uint64_t size,
                                        int32_t target, uint64_t offset, uint64_t *out_op) {
    (void)self, (void)comm;
    return vm_put(win, buf, size, target, offset, out_op);
}

static inline dtl_status_t mail_win_get(void *self, void *comm, void *win, void *buf, uint64_t size, int32_t target,
                                        uint64_t offset, uint64_t *out_op) {
    (void)self, (void)comm;
    return vm_get(win, buf, size, target, offset, out_op);
}

static inline dtl_status_t mail_win_flush(void *self, void *comm, void *win, int32_t target, uint64_t *out_op) {
    (void)self, (void)comm;
    return vm_flush(win, target, out_op);
}

static inline dtl_status_t mail_win_atomics(void *self, void *comm, void *win, dtl_dtype_t dtype, int32_t *out_yes) {
    (void)self, (void)comm, (void)win;
    *out_yes = vm_element(dtype) != 0;
    return DTL_SUCCESS;
}

static inline dtl_status_t mail_win_accumulate(void *self, void *comm, void *win, const void *buf, void *result,
                                               uint64_t count, dtl_dtype_t dtype, int32_t target, uint64_t offset,
                                               dtl_reduce_op_t op, uint64_t *out_op) {
    (void)self, (void)comm;
    return vm_accumulate(win, buf, result, count, dtype, op, target, offset, out_op);
}

static inline dtl_status_t mail_win_compare_and_swap(void *self, void *comm, void *win, const void *value,
                                                     const void *expected, void *result, dtl_dtype_t dtype,
                                                     int32_t target, uint64_t offset, uint64_t *out_op) {
    (void)self, (void)comm;
    return vm_compare_and_swap(win, value, expected, result, dtype, target, offset, out_op);
}

static inline void mail_add_transfers(dtl_comm_vtable_t *comm) {
    comm->win_create = mail_win_create;
    comm->win_attach = mail_win_attach;
    comm->win_destroy = mail_win_destroy;
    comm->win_put = mail_win_put;
    comm->win_get = mail_win_get;
    comm->win_flush = mail_win_flush;
}

static inline void mail_add_atomics(dtl_comm_vtable_t *comm) {
    comm->win_atomics = mail_win_atomics;
    comm->win_accumulate = mail_win_accumulate;
    comm->win_compare_and_swap = mail_win_compare_and_swap;
}

/// Registers them all.
static inline void mail_register(void) {
    static uint64_t masks[2] = {UINT64_MAX, DTL_TAG_MAX};
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    table.comm = &comm;
    comm.open = mail_open;
    comm.close = mail_close;
    comm.isend = mail_isend;
    comm.irecv = mail_irecv;
    comm.test = mail_test;
    CHECK_OK(dtl_backend_register("mail", &table, &masks[0], 0, &backend));
    comm.match_bits = 28;
    CHECK_OK(dtl_backend_register("mail28", &table, &masks[1], 0, &backend));
    comm.match_bits = 0;
    mail_add_transfers(&comm);
    CHECK_OK(dtl_backend_register("mailput", &table, &masks[0], 0, &backend));
    mail_add_atomics(&comm);
    CHECK_OK(dtl_backend_register("mailwin", &table, &masks[0], 0, &backend));
}

#endif
