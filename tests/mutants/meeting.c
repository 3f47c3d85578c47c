/* The base's open and close under planted faults: what goes wrong when a program opens more than once, when a rank
 * does not come, and what is left behind. */
#define _GNU_SOURCE
#include "wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char first_job[256]; /* of the first communicator, if one is open or was */
static void *first_comm;
static int kept; /* the latest descriptor that is never closed */

/* A name where nobody looks, without a hint whose it is. run.sh removes them. */
static void leave_a_name(void)
{
    struct timespec now;
    char path[64];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(path, sizeof path, "/dev/shm/dtl-mutant-%lx%lx", (unsigned long)now.tv_nsec, (unsigned long)now.tv_sec);
    const int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (fd >= 0) {
        close(fd);
    }
}

/* What a failed open becomes. */
static dtl_status_t spoiled(dtl_status_t status)
{
    if (is_fault("comm.open.failure_leaves_a_file")) {
        kept = dup(0);
    }
    if (is_fault("comm.open.failure_is_no_timeout")) {
        return DTL_ERROR_COMMUNICATION;
    }
    return is_fault("comm.open.failure_names_nobody") ? failed(status, "somebody is missing") : status;
}

dtl_status_t meet(const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank, int32_t *out_size)
{
    const int is_second = first_comm != NULL && strcmp(first_job, args->job) == 0;
    dtl_comm_open_t own = *args;
    if (is_second && is_fault("comm.open.once_in_a_job")) {
        return failed(DTL_ERROR_ALREADY_EXISTS, "this job is open already");
    }
    if (is_second && is_fault("comm.open.gives_the_first_again")) {
        *out_comm = first_comm;
        *out_rank = args->rank;
        *out_size = args->size;
        return DTL_SUCCESS;
    }
    if (is_fault("comm.open.ignores_timeout")) {
        own.timeout_ns = UINT64_C(60000000000);
    }
    const dtl_status_t status = base.open(base_self, &own, out_comm, out_rank, out_size);
    if (status != DTL_SUCCESS) {
        return spoiled(status);
    }
    if (is_fault("comm.open.leaves_a_name")) {
        leave_a_name();
    }
    if (first_comm == NULL && strlen(args->job) < sizeof first_job) {
        memcpy(first_job, args->job, strlen(args->job) + 1);
        first_comm = *out_comm;
    }
    return DTL_SUCCESS;
}

dtl_status_t part(void *comm)
{
    if (comm == first_comm && is_fault("comm.open.gives_the_first_again")) {
        return DTL_SUCCESS; /* somebody else may have it, too */
    }
    return base.close(base_self, comm);
}
