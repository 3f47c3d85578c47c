/* A kernel without membarrier (old ones, some emulators): every call then enters with a fence of its own. Messages,
 * memory, and communicators that are destroyed while other threads use them. C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 400 };

static uint64_t shared[THREADS];
static dtl_backend_t host;
static pthread_mutex_t one_dups = PTHREAD_MUTEX_INITIALIZER;

/* From here on the kernel answers membarrier with ENOSYS. */
static void take_membarrier_away(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program;
    program.len = sizeof code / sizeof *code;
    program.filter = code;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        SKIP("no seccomp filters here");
    }
    CHECK(syscall(SYS_membarrier, 0, 0, 0) == -1 && errno == ENOSYS);
}

/* A message of a communicator to itself. */
static dtl_status_t to_itself(dtl_comm_t comm, int tag) {
    int out = tag, in = -1;
    dtl_request_t receive, send;
    dtl_status_t status = dtl_comm_irecv(comm, &in, 1, DTL_DTYPE_INT32, 0, tag, &receive);
    if (status != DTL_SUCCESS) return status;
    CHECK_OK(dtl_comm_isend(comm, &out, 1, DTL_DTYPE_INT32, 0, tag, &send));
    CHECK_OK(dtl_request_wait(send, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_wait(receive, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(in == tag);
    return DTL_SUCCESS;
}

/* Makes, uses and destroys communicators, and uses those of the next thread, which may end at any time. */
static void* work(void* argument) {
    const int self = (int)(intptr_t)argument;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        dtl_comm_t own, other;
        dtl_status_t status;
        int32_t rank = -1;
        void* memory = NULL;
        CHECK(pthread_mutex_lock(&one_dups) == 0);
        CHECK_OK(dtl_comm_dup(DTL_COMM_SELF, &own));
        CHECK(pthread_mutex_unlock(&one_dups) == 0);
        __atomic_store_n(&shared[self], own.id, __ATOMIC_RELEASE);
        CHECK_OK(to_itself(own, round));
        other.id = __atomic_load_n(&shared[(self + 1) % THREADS], __ATOMIC_ACQUIRE);
        if (other.id != 0) {
            status = dtl_comm_rank(other, &rank);
            CHECK(status == DTL_SUCCESS ? rank == 0 : status == DTL_ERROR_INVALID_HANDLE);
        }
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64 + (uint64_t)round, 0, &memory));
        memset(memory, round, 64);
        CHECK_OK(dtl_mem_free(host, memory));
        __atomic_store_n(&shared[self], 0, __ATOMIC_RELEASE);
        CHECK_OK(dtl_comm_destroy(own));
        CHECK_STATUS(to_itself(own, round), DTL_ERROR_INVALID_HANDLE);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    int32_t rank;
    int i;
    take_membarrier_away();
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void*)(intptr_t)i) == 0);
    for (i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_comm_rank(DTL_COMM_SELF, &rank), DTL_ERROR_INVALID_STATE);
    puts("PASS test_without_membarrier");
    return 0;
}
