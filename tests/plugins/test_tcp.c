/* What is special about the example plugin "tcp": how its ranks find each other, and what they are told when
 * they do not. Ranks are forked here and say themselves who they are. The rest is dtl-ctk's and tests/c's. */
#define _GNU_SOURCE
#include "../c/check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))
static char job[64];
static int port; /* free, most likely; below those that the system gives away */

static void set_root(const char *host) {
    char root[64];
    snprintf(root, sizeof root, "%s:%d", host, port);
    CHECK(setenv("DTL_BACKEND_TCP_ROOT", root, 1) == 0);
}

static dtl_status_t open_as(int rank, int size, int limit_ms, dtl_comm_t *out) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "tcp";
    desc.rank = rank;
    desc.size = size;
    desc.job = job;
    desc.timeout_ns = MILLISECONDS(limit_ms);
    return dtl_comm_open(&desc, out);
}

static void opening_fails(int rank, int size, int limit_ms, dtl_status_t status, const char *text) {
    dtl_comm_t comm;
    CHECK_STATUS(open_as(rank, size, limit_ms, &comm), status);
    CHECK(strstr(dtl_last_error(), text) != NULL);
}

static void sum_is_right(dtl_comm_t comm, int size) {
    int one = 1, sum = 0;
    CHECK_OK(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(sum == size);
}

static void opening_works(int rank, int size) {
    dtl_comm_t comm;
    CHECK_OK(open_as(rank, size, 20000, &comm));
    sum_is_right(comm, size);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- scenarios: what each process does ---- */

static void no_root(int process) {
    opening_fails(process + 1, 2, 300, DTL_ERROR_TIMEOUT, "rank 1 found no rank 0 at 127.0.0.1:");
}

static void nobody_comes(int process) {
    opening_fails(process, 3, 300, DTL_ERROR_TIMEOUT, "in vain for rank(s) 1, 2 of 3");
}

static void one_is_missing(int process) {
    if (process == 0) opening_fails(0, 3, 1000, DTL_ERROR_TIMEOUT, "in vain for rank(s) 1 of 3");
    if (process == 1) opening_fails(2, 3, 20000, DTL_ERROR_RANK_FAILURE, "rank 0 has not got all of them");
}

static void sizes_differ(int process) {
    if (process == 0) opening_fails(0, 2, 1000, DTL_ERROR_TIMEOUT, "in vain for rank(s) 1 of 2");
    if (process == 1) opening_fails(1, 3, 5000, DTL_ERROR_INVALID_ARGUMENT, "another number of ranks");
}

static void twice_the_same(int process) {
    if (process == 0) opening_fails(0, 3, 1500, DTL_ERROR_TIMEOUT, "in vain for rank(s) 2 of 3");
    if (process == 1) opening_fails(1, 3, 9000, DTL_ERROR_RANK_FAILURE, "rank 0 has not got all of them");
    if (process == 2) {
        usleep(500000);
        opening_fails(1, 3, 9000, DTL_ERROR_ALREADY_EXISTS, "one with this rank already");
    }
}

static void bad_address(int process) {
    const char *bad[] = {"nonsense", ":77", "host.invalid:4000", "127.0.0.1:porttoolong"};
    CHECK(setenv("DTL_BACKEND_TCP_ROOT", bad[process], 1) == 0);
    opening_fails(process % 2, 2, 1000, process != 2 ? DTL_ERROR_INVALID_ARGUMENT : DTL_ERROR_UNAVAILABLE, bad[process]);
}

/* One port, several communicators: the n-th of one rank meets the n-th of the others. */
static void fixed_port(int process) {
    int i;
    set_root("localhost");
    for (i = 0; i < 4; i++) opening_works(process, 4);
}

static int connect_to_root(void) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {0};
    at.sin_family = AF_INET;
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    while (connect(fd, (struct sockaddr *)&at, sizeof at) != 0) usleep(1000);
    return fd;
}

static void strangers(int process) {
    set_root("127.0.0.1");
    if (process == 2) { /* says something else, says nothing, hangs up at once */
        char garbage[4096];
        memset(garbage, 7, sizeof garbage);
        (void)!send(connect_to_root(), garbage, sizeof garbage, MSG_NOSIGNAL);
        (void)connect_to_root();
        close(connect_to_root());
        usleep(1500000);
        return;
    }
    if (process == 1) usleep(300000);
    opening_works(process, 2);
}

/* Somebody else has the job's port, and never answers. */
static void taken_port(int process) {
    const uid_t user = getuid();
    const uint32_t number = 0;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    size_t i;
    for (i = 0; i < strlen(job); i++) hash = (hash ^ (unsigned char)job[i]) * UINT64_C(0x100000001b3);
    for (i = 0; i < sizeof user; i++) hash = (hash ^ ((const unsigned char *)&user)[i]) * UINT64_C(0x100000001b3);
    for (i = 0; i < sizeof number; i++) hash = (hash ^ ((const unsigned char *)&number)[i]) * UINT64_C(0x100000001b3);
    if (process == 2) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {0};
        at.sin_family = AF_INET;
        at.sin_port = htons((uint16_t)(20000 + hash % 12000));
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 5) == 0);
        usleep(4000000);
        return;
    }
    usleep(300000);
    opening_works(process, 2);
}

static void waiting_is_idle(int process) {
    struct rusage before, after;
    dtl_comm_t comm;
    int value = 7;
    CHECK_OK(open_as(process, 2, 20000, &comm));
    sum_is_right(comm, 2);
    if (process == 0) {
        double used;
        CHECK(getrusage(RUSAGE_SELF, &before) == 0);
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 1, 0, NULL));
        CHECK(getrusage(RUSAGE_SELF, &after) == 0);
        used = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
               1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec);
        printf("%.3f s of CPU time in a wait of 2 s\n", used);
        CHECK(used < 0.5);
    } else {
        usleep(2000000);
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 0));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- */

static void run(const char *name, int processes, void (*scenario)(int process)) {
    pid_t pids[8];
    int i, status;
    snprintf(job, sizeof job, "%s-%ld", name, (long)getpid());
    for (i = 0; i < processes; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            alarm(40);
            scenario(i);
            exit(0);
        }
    }
    for (i = 0; i < processes; i++) {
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        if (status != 0) {
            fprintf(stderr, "%s: process %d: status %#x\n", name, i, (unsigned)status);
            exit(1);
        }
    }
    printf("%s: passed\n", name);
    fflush(stdout);
}

int main(void) {
    port = 10000 + (int)(getpid() % 9000);
    run("no_root", 1, no_root);
    run("nobody_comes", 1, nobody_comes);
    run("one_is_missing", 2, one_is_missing);
    run("sizes_differ", 2, sizes_differ);
    run("twice_the_same", 3, twice_the_same);
    run("bad_address", 4, bad_address);
    run("fixed_port", 4, fixed_port);
    run("strangers", 3, strangers);
    run("taken_port", 3, taken_port);
    run("waiting_is_idle", 2, waiting_is_idle);
    return 0;
}
