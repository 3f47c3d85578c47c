/* Opening fails on one rank alone, which may not allocate shared memory: it fails on all ranks then. */
#include "comm_kinds.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { REFUSED = 1 };

/* From now on fallocate fails with ENOSPC in this process. */
static int refuse_memory(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program;
    program.len = sizeof steps / sizeof *steps;
    program.filter = steps;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(void) {
    dtl_comm_t comm;
    const char *rank = getenv("DTL_RANK");
    if (rank == NULL) SKIP("it runs under dtlrun");
    if (atoi(rank) == REFUSED && !refuse_memory()) _exit(77);
    CHECK_STATUS(dtl_comm_get_world(&comm), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_TEXT("memory for small collectives");
    if (atoi(rank) != REFUSED) CHECK_TEXT("rank 1");
    return 0;
}
