/* The slots for windows of a comm table whose ranks are processes of one user on one node: the kernel copies between
 * their memories, and what accumulates does so under a lock of the target's. Tests lay them over communicators that
 * have none.
 *
 * An operation is over when its call returns: its word says how it ended. No room now and then, so that this is tested.
 * Where the kernel does not allow it (containers, Yama) vm_attach says so, and the library takes messages. */
#ifndef DTL_TESTS_VM_WINDOW_H
#define DTL_TESTS_VM_WINDOW_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dtl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

/// How a rank's memory is found.
typedef struct vm_key {
    int32_t pid;
    int32_t lock;
    uint64_t base;
    uint64_t size;
} vm_key;

/// One rank's side of a window.
typedef struct vm_win {
    int32_t ranks;
    int32_t own_lock; /* a file of no bytes */
    vm_key *keys;
    int *locks; /* the others', opened; -1 = not yet */
} vm_win;

#define VM_WORD (UINT64_C(1) << 63)

/// Calls without room, one of so many; 0 = none.
static unsigned vm_refuses = 7;
static unsigned vm_calls;
/// Changes nothing alone: a fault.
static int vm_unlocked;

/// The word of an operation that ended so; other words of a table have this bit not set.
static inline uint64_t vm_word(dtl_status_t status) { return VM_WORD | (uint32_t)status; }
static inline int vm_is_word(uint64_t word) { return (word & VM_WORD) != 0; }
static inline dtl_status_t vm_status(uint64_t word) { return (dtl_status_t)(uint32_t)(word & 0xFFFFFFFFu); }

static inline int vm_has_no_room(void) { return vm_refuses != 0 && ++vm_calls % vm_refuses == 0; }

static inline dtl_status_t vm_create(int32_t ranks, void *base, uint64_t size, void **out_win, void *key,
                                     uint32_t *out_key_bytes) {
    vm_win *win = (vm_win *)calloc(1, sizeof *win);
    vm_key own;
    int32_t i;
    if (win == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    win->ranks = ranks;
    win->keys = (vm_key *)calloc((size_t)ranks, sizeof *win->keys);
    win->locks = (int *)calloc((size_t)ranks, sizeof *win->locks);
    win->own_lock = memfd_create("dtl-test-window", MFD_CLOEXEC);
    if (win->keys == NULL || win->locks == NULL || win->own_lock < 0) {
        if (win->own_lock >= 0) close(win->own_lock);
        free(win->keys);
        free(win->locks);
        free(win);
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    for (i = 0; i < ranks; i++) win->locks[i] = -1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    own.pid = (int32_t)getpid();
    own.lock = win->own_lock;
    own.base = (uint64_t)(uintptr_t)base;
    own.size = size;
    memcpy(key, &own, sizeof own);
    *out_key_bytes = sizeof own;
    *out_win = win;
    return DTL_SUCCESS;
}

static inline dtl_status_t vm_destroy(void *handle) {
    vm_win *win = (vm_win *)handle;
    int32_t i;
    for (i = 0; i < win->ranks; i++) {
        if (win->locks[i] >= 0) close(win->locks[i]);
    }
    close(win->own_lock);
    free(win->keys);
    free(win->locks);
    free(win);
    return DTL_SUCCESS;
}

/// Copies between this process' memory and a target's.
static inline dtl_status_t vm_copy(const vm_win *win, int is_write, void *here, uint64_t size, int32_t target,
                                   uint64_t offset) {
    uint64_t done = 0;
    if (target < 0 || target >= win->ranks || win->keys[target].pid == 0) return DTL_ERROR_INVALID_RANK;
    if (size == 0 || offset > win->keys[target].size || size > win->keys[target].size - offset) {
        return DTL_ERROR_OUT_OF_BOUNDS; /* what the header promises does not happen */
    }
    while (done < size) {
        struct iovec local, remote;
        ssize_t moved;
        local.iov_base = (char *)here + done;
        remote.iov_base = (void *)(uintptr_t)(win->keys[target].base + offset + done);
        local.iov_len = remote.iov_len = (size_t)(size - done);
        moved = is_write ? process_vm_writev(win->keys[target].pid, &local, 1, &remote, 1, 0)
                         : process_vm_readv(win->keys[target].pid, &local, 1, &remote, 1, 0);
        if (moved <= 0) return moved < 0 && errno == ESRCH ? DTL_ERROR_RANK_FAILURE : DTL_ERROR_BACKEND;
        done += (uint64_t)moved;
    }
    return DTL_SUCCESS;
}

static inline dtl_status_t vm_attach(void *handle, int32_t rank, const void *key, uint32_t key_bytes) {
    vm_win *win = (vm_win *)handle;
    char path[64], byte;
    if (rank < 0 || rank >= win->ranks || key_bytes != sizeof(vm_key) || (uintptr_t)key % 8 != 0) {
        return DTL_ERROR_INVALID_ARGUMENT;
    }
    memcpy(&win->keys[rank], key, sizeof(vm_key));
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)win->keys[rank].pid, win->keys[rank].lock);
    win->locks[rank] = open(path, O_RDWR | O_CLOEXEC);
    if (win->locks[rank] < 0) return DTL_ERROR_NOT_SUPPORTED;
    if (win->keys[rank].size > 0 && vm_copy(win, 0, &byte, 1, rank, 0) != DTL_SUCCESS) return DTL_ERROR_NOT_SUPPORTED;
    return DTL_SUCCESS;
}

static inline dtl_status_t vm_put(void *win, const void *buf, uint64_t size, int32_t target, uint64_t offset,
                                  uint64_t *out_op) {
    if (vm_has_no_room()) return DTL_ERROR_BUSY;
    *out_op = vm_word(vm_copy((vm_win *)win, 1, (void *)(uintptr_t)buf, size, target, offset));
    return DTL_SUCCESS;
}

static inline dtl_status_t vm_get(void *win, void *buf, uint64_t size, int32_t target, uint64_t offset,
                                  uint64_t *out_op) {
    if (vm_has_no_room()) return DTL_ERROR_BUSY;
    *out_op = vm_word(vm_copy((vm_win *)win, 0, buf, size, target, offset));
    return DTL_SUCCESS;
}

/// Everything is there; only whether the target lives is asked.
static inline dtl_status_t vm_flush(void *handle, int32_t target, uint64_t *out_op) {
    const vm_win *win = (vm_win *)handle;
    char byte;
    if (vm_has_no_room()) return DTL_ERROR_BUSY;
    if (target < 0 || target >= win->ranks || win->keys[target].pid == 0) return DTL_ERROR_INVALID_RANK;
    *out_op = vm_word(win->keys[target].size > 0 ? vm_copy(win, 0, &byte, 1, target, 0) : DTL_SUCCESS);
    return DTL_SUCCESS;
}

/// Bytes of an element; 0: not changed here.
static inline uint64_t vm_element(dtl_dtype_t dtype) {
    switch (dtype) {
        case DTL_DTYPE_INT8: case DTL_DTYPE_UINT8: case DTL_DTYPE_BYTE: case DTL_DTYPE_BOOL: return 1;
        case DTL_DTYPE_INT16: case DTL_DTYPE_UINT16: return 2;
        case DTL_DTYPE_INT32: case DTL_DTYPE_UINT32: return 4;
        case DTL_DTYPE_INT64: case DTL_DTYPE_UINT64: return 8;
        default: return 0;
    }
}

/// left ∘ right of integers, as 64 bits with the dtype's sign.
static inline uint64_t vm_combine(uint64_t left, uint64_t right, uint64_t size, dtl_dtype_t dtype, dtl_reduce_op_t op) {
    const unsigned unused = (unsigned)(64 - 8 * size);
    const int is_signed = dtype >= DTL_DTYPE_INT8 && dtype <= DTL_DTYPE_INT64;
    const int64_t l = (int64_t)(left << unused) >> unused, r = (int64_t)(right << unused) >> unused;
    const int is_less = is_signed ? l < r : left < right;
    switch (op) {
        case DTL_OP_SUM: return left + right;
        case DTL_OP_PROD: return left * right;
        case DTL_OP_MIN: return is_less ? left : right;
        case DTL_OP_MAX: return is_less ? right : left;
        case DTL_OP_LAND: return left != 0 && right != 0;
        case DTL_OP_LOR: return left != 0 || right != 0;
        case DTL_OP_LXOR: return (left != 0) != (right != 0);
        case DTL_OP_BAND: return left & right;
        case DTL_OP_BOR: return left | right;
        case DTL_OP_BXOR: return left ^ right;
        case DTL_OP_REPLACE: return right;
        default: return left;
    }
}

static inline void vm_lock(const vm_win *win, int32_t target, int how) {
    while (!vm_unlocked && flock(win->locks[target], how) != 0 && errno == EINTR) {
    }
}

/// Changes elements under the target's lock.
static inline dtl_status_t vm_change(const vm_win *win, const void *buf, void *result, uint64_t count,
                                     dtl_dtype_t dtype, dtl_reduce_op_t op, int32_t target, uint64_t offset) {
    const uint64_t size = vm_element(dtype);
    dtl_status_t status = DTL_SUCCESS;
    uint64_t done, i;
    if (size == 0) return DTL_ERROR_TYPE;
    if (target < 0 || target >= win->ranks || win->keys[target].pid == 0) return DTL_ERROR_INVALID_RANK;
    vm_lock(win, target, LOCK_EX);
    for (done = 0; done < count && status == DTL_SUCCESS; done += 512) {
        unsigned char there[4096];
        const uint64_t now = count - done < 512 ? count - done : 512;
        status = vm_copy(win, 0, there, now * size, target, offset + done * size);
        if (status != DTL_SUCCESS) break;
        if (result != NULL) memcpy((char *)result + done * size, there, now * size);
        if (op == DTL_OP_NO_OP) continue;
        if (vm_unlocked) usleep(300);
        for (i = 0; i < now; i++) {
            uint64_t left = 0, right = 0;
            memcpy(&left, there + i * size, size);
            memcpy(&right, (const char *)buf + (done + i) * size, size);
            left = vm_combine(left, right, size, dtype, op);
            memcpy(there + i * size, &left, size); /* the low bytes come first */
        }
        status = vm_copy(win, 1, there, now * size, target, offset + done * size);
    }
    vm_lock(win, target, LOCK_UN);
    return status;
}

static inline dtl_status_t vm_accumulate(void *win, const void *buf, void *result, uint64_t count, dtl_dtype_t dtype,
                                         dtl_reduce_op_t op, int32_t target, uint64_t offset, uint64_t *out_op) {
    if (vm_has_no_room()) return DTL_ERROR_BUSY;
    *out_op = vm_word(vm_change((vm_win *)win, buf, result, count, dtype, op, target, offset));
    return DTL_SUCCESS;
}

static inline dtl_status_t vm_compare_and_swap(void *handle, const void *value, const void *expected, void *result,
                                               dtl_dtype_t dtype, int32_t target, uint64_t offset, uint64_t *out_op) {
    const vm_win *win = (vm_win *)handle;
    const uint64_t size = vm_element(dtype);
    dtl_status_t status;
    if (vm_has_no_room()) return DTL_ERROR_BUSY;
    if (size == 0) return DTL_ERROR_TYPE;
    if (target < 0 || target >= win->ranks || win->keys[target].pid == 0) return DTL_ERROR_INVALID_RANK;
    vm_lock(win, target, LOCK_EX);
    status = vm_copy(win, 0, result, size, target, offset);
    if (vm_unlocked) usleep(300);
    if (status == DTL_SUCCESS && memcmp(result, expected, size) == 0) {
        status = vm_copy(win, 1, (void *)(uintptr_t)value, size, target, offset);
    }
    vm_lock(win, target, LOCK_UN);
    *out_op = vm_word(status);
    return DTL_SUCCESS;
}

#endif
