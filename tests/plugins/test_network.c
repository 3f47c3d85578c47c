/* What is special about the example plugins for networks, "tcp" and "libfabric": how their ranks find each other,
 * failures of opening, closing, deaths, and (libfabric) windows. Ranks are forked here. The rest is dtl-ctk's and
 * tests/c's.
 *     test_network PLUGIN                all scenarios of that plugin
 *     test_network PLUGIN now|late cut   run by between_nodes.sh: a network that falls silent */
#define _GNU_SOURCE
#include "../c/check.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))
enum { TCP = 1, LIBFABRIC = 2, BOTH = TCP | LIBFABRIC };
static const char *kind;
static char root_variable[64]; /* DTL_BACKEND_<kind>_ROOT */
static char job[64];
static int port; /* free, most likely; below those that the system gives away */

static void set_root(const char *host) {
    char root[64];
    snprintf(root, sizeof root, "%s:%d", host, port);
    CHECK(setenv(root_variable, root, 1) == 0);
}

static dtl_status_t open_as(int rank, int size, int limit_ms, dtl_comm_t *out) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = kind;
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

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int count_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    CHECK(dir != NULL);
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

/* ---- scenarios of the bootstrap: what each process does ---- */

static void no_root(int process) {
    opening_fails(process + 1, 2, 300, DTL_ERROR_TIMEOUT, "rank 1 found no rank 0 at 127.0.0.1:");
}

static void nobody_comes(int process) {
    opening_fails(process, 3, 300, DTL_ERROR_TIMEOUT, "waiting for rank(s) 1, 2 of 3");
}

static void one_is_missing(int process) {
    if (process == 0) opening_fails(0, 3, 1000, DTL_ERROR_TIMEOUT, "waiting for rank(s) 1 of 3");
    if (process == 1) opening_fails(2, 3, 20000, DTL_ERROR_RANK_FAILURE, "rank 0 has not got all of them");
}

static void sizes_differ(int process) {
    if (process == 0) opening_fails(0, 2, 1000, DTL_ERROR_TIMEOUT, "waiting for rank(s) 1 of 2");
    if (process == 1) opening_fails(1, 3, 5000, DTL_ERROR_INVALID_ARGUMENT, "another number of ranks");
}

static void twice_the_same(int process) {
    if (process == 0) opening_fails(0, 3, 1500, DTL_ERROR_TIMEOUT, "waiting for rank(s) 2 of 3");
    if (process == 1) opening_fails(1, 3, 9000, DTL_ERROR_RANK_FAILURE, "rank 0 has not got all of them");
    if (process == 2) {
        usleep(500000);
        opening_fails(1, 3, 9000, DTL_ERROR_ALREADY_EXISTS, "one with this rank already");
    }
}

static void bad_address(int process) {
    const char *bad[] = {"nonsense", ":77", "host.invalid:4000", "127.0.0.1:porttoolong"};
    CHECK(setenv(root_variable, bad[process], 1) == 0);
    opening_fails(process % 2, 2, 1000, process != 2 ? DTL_ERROR_INVALID_ARGUMENT : DTL_ERROR_UNAVAILABLE,
                  bad[process]);
}

static void unknown_provider(int process) {
    CHECK(setenv("DTL_BACKEND_LIBFABRIC_PROVIDER", "no_such_provider", 1) == 0);
    opening_fails(process, 2, 10000, DTL_ERROR_UNAVAILABLE, "named no_such_provider");
}

static void no_job(int process) {
    job[0] = '\0';
    opening_fails(process, 2, 1000, DTL_ERROR_INVALID_ARGUMENT, root_variable);
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

static uint64_t mix(uint64_t hash, const void *bytes, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Somebody else has the job's port, and never answers. */
static void taken_port(int process) {
    const uid_t user = getuid();
    const uint32_t number = 0;
    uint64_t hash = mix(UINT64_C(0xcbf29ce484222325), job, strlen(job));
    hash = mix(hash, &user, sizeof user);
    hash = mix(hash, &number, sizeof number);
    hash = mix(hash, root_variable, strlen(root_variable));
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

/* ---- scenarios of open communicators ---- */

/* The second communicator is independent of the first; nothing is left when both are closed. */
static void leaves_nothing(int process) {
    dtl_comm_t first, second;
    int value = process, sum = 0, descriptors = 0, again;
    for (again = 0; again < 2; again++) { /* the first time libfabric opens what it keeps */
        descriptors = count_descriptors();
        CHECK_OK(open_as(process, 3, 20000, &first));
        CHECK_OK(open_as(process, 3, 20000, &second));
        CHECK_OK(dtl_comm_allreduce(second, &value, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
        CHECK(sum == 3);
        CHECK_OK(dtl_comm_destroy(first));
        CHECK_OK(dtl_comm_allreduce(second, &value, &sum, 1, DTL_DTYPE_INT32, DTL_OP_MAX));
        CHECK(sum == 2);
        CHECK_OK(dtl_comm_destroy(second));
    }
    CHECK(count_descriptors() == descriptors);
}

/* Rank 1 receives what rank 0 sent before it closed its communicator and ended. */
static void late_receiver(int process) {
    static unsigned char bytes[3][4000];
    dtl_comm_t comm;
    int i;
    CHECK_OK(open_as(process, 2, 20000, &comm));
    for (i = 0; i < 3; i++) {
        memset(bytes[i], process == 0 ? i + 1 : 0, sizeof bytes[i]);
        if (process == 0) CHECK_OK(dtl_comm_send(comm, bytes[i], sizeof bytes[i], DTL_DTYPE_BYTE, 1, i));
    }
    if (process == 1) {
        usleep(500000);
        for (i = 3; i-- > 0;) {
            CHECK_OK(dtl_comm_recv(comm, bytes[i], sizeof bytes[i], DTL_DTYPE_BYTE, 0, i, NULL));
            CHECK(bytes[i][0] == i + 1 && bytes[i][sizeof bytes[i] - 1] == i + 1);
        }
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* A rank that calls nothing for longer than a silence lasts, while more is sent to it than fits anywhere. */
static void busy_receiver(int process) {
    enum { BYTES = 64 << 20 };
    unsigned char *bytes = (unsigned char *)malloc(BYTES);
    dtl_comm_t comm;
    CHECK(bytes != NULL);
    CHECK_OK(open_as(process, 2, 20000, &comm));
    memset(bytes, process, BYTES);
    if (process == 0) CHECK_OK(dtl_comm_send(comm, bytes, BYTES, DTL_DTYPE_BYTE, 1, 0));
    if (process == 1) {
        usleep(6000000);
        CHECK_OK(dtl_comm_recv(comm, bytes, BYTES, DTL_DTYPE_BYTE, 0, 0, NULL));
        CHECK(bytes[0] == 0 && bytes[BYTES - 1] == 0);
    }
    CHECK_OK(dtl_comm_destroy(comm));
    free(bytes);
}

static double cpu_s(void) {
    struct rusage used;
    CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void waiting_is_idle(int process) {
    dtl_comm_t comm;
    int value = 7;
    CHECK_OK(open_as(process, 2, 20000, &comm));
    sum_is_right(comm, 2);
    if (process == 0) {
        double used = cpu_s();
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 1, 0, NULL));
        used = cpu_s() - used;
        printf("%.3f s of CPU time in a wait of 2 s\n", used);
        CHECK(used < 0.5);
    } else {
        usleep(2000000);
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 0));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* A window with the provider's transfers and atomics; more elements than the provider takes at once. */
static void window(int process) {
    enum { COUNT = 3000 };
    static int64_t memory[COUNT], mine[COUNT];
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    dtl_comm_t comm;
    dtl_win_t win;
    int i;
    CHECK_OK(open_as(process, 3, 20000, &comm));
    CHECK_OK(dtl_win_create(comm, memory, sizeof memory, sizeof *memory, &win));
    CHECK_OK(dtl_win_info(win, 0, &info));
    CHECK(strcmp(info.way, "the backend's own put, get and atomics, locks by messages") == 0);
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < COUNT; i++) mine[i] = i + process;
    CHECK_OK(dtl_win_put(win, mine, COUNT, DTL_DTYPE_INT64, (process + 1) % 3, 0));
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < COUNT; i++) CHECK(memory[i] == i + (process + 2) % 3);
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < 3; i++) CHECK_OK(dtl_win_accumulate(win, mine, COUNT, DTL_DTYPE_INT64, i, 0, DTL_OP_SUM));
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < COUNT; i++) CHECK(memory[i] == 4 * (int64_t)i + (process + 2) % 3 + 3);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* A rank that ends without closing its communicator. */
static void death(int process) {
    dtl_comm_t comm;
    int value = 0;
    CHECK_OK(open_as(process, 3, 20000, &comm));
    if (process == 2) {
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 0, NULL));
        _exit(0);
    }
    if (process == 0) CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 2, 0));
    CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 2, 0, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK(strstr(dtl_last_error(), "because of rank 2 ") != NULL);
    CHECK_OK(dtl_comm_destroy(comm));
}

static void end_now(int signal) {
    (void)signal;
    _exit(0);
}

/* A rank that ends while it sends: its death is reported after the messages that it had sent. Not over provider shm:
 * its calls wait for ever if the process held a lock (README.md of the plugin). */
static void dying_sender(int process) {
    const char *provider = getenv("DTL_BACKEND_LIBFABRIC_PROVIDER");
    const struct itimerval soon = {{0, 0}, {0, 20000}};
    static unsigned char bytes[4000];
    dtl_status_t status = DTL_SUCCESS;
    dtl_comm_t comm;
    int messages = 0;
    if (provider != NULL && strcmp(provider, "shm") == 0) return;
    CHECK_OK(open_as(process, 2, 20000, &comm));
    if (process == 1) {
        CHECK(signal(SIGALRM, end_now) != SIG_ERR && setitimer(ITIMER_REAL, &soon, NULL) == 0);
        for (;;) CHECK_OK(dtl_comm_send(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 0, 0));
    }
    while (status == DTL_SUCCESS) {
        status = dtl_comm_recv(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 1, 0, NULL);
        messages++;
    }
    CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
    CHECK(messages > 1);
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
            alarm(60);
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

/* Run by between_nodes.sh, ranks 2 and 3 on the other node: a network that falls silent is a death. Now: the last
 * bytes of the opening may not be acknowledged yet. Late: the connections are idle, then each rank sends. */
static void cut(int is_late) {
    int32_t rank, other;
    int value = 0;
    double started;
    alarm(18);
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    other = 3 - rank;
    CHECK_OK(dtl_comm_barrier(DTL_COMM_WORLD));
    if (is_late) usleep(300000);
    if (rank == 0) puts("cut the cable");
    fflush(stdout);
    started = now_s();
    if (is_late) {
        usleep(300000);
        CHECK_OK(dtl_comm_send(DTL_COMM_WORLD, &value, 1, DTL_DTYPE_INT32, other, 1));
    }
    CHECK_STATUS(dtl_comm_recv(DTL_COMM_WORLD, &value, 1, DTL_DTYPE_INT32, other, 0, NULL), DTL_ERROR_RANK_FAILURE);
    printf("rank %d: silence detected after %.1f s\n", (int)rank, now_s() - started);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int processes;
        void (*scenario)(int process);
        int plugins;
    } all[] = {
        {"no_root", 1, no_root, TCP},
        {"nobody_comes", 1, nobody_comes, TCP},
        {"one_is_missing", 2, one_is_missing, BOTH},
        {"sizes_differ", 2, sizes_differ, TCP},
        {"twice_the_same", 3, twice_the_same, TCP},
        {"bad_address", 4, bad_address, BOTH},
        {"unknown_provider", 2, unknown_provider, LIBFABRIC},
        {"no_job", 1, no_job, LIBFABRIC},
        {"fixed_port", 4, fixed_port, BOTH},
        {"strangers", 3, strangers, TCP},
        {"taken_port", 3, taken_port, TCP},
        {"leaves_nothing", 3, leaves_nothing, BOTH},
        {"late_receiver", 2, late_receiver, BOTH},
        {"busy_receiver", 2, busy_receiver, BOTH},
        {"waiting_is_idle", 2, waiting_is_idle, TCP},
        {"window", 3, window, LIBFABRIC},
        {"death", 3, death, BOTH},
        {"dying_sender", 2, dying_sender, BOTH},
        {"dying_sender again", 2, dying_sender, BOTH},
    };
    size_t i;
    int plugin;
    CHECK(argc > 1);
    kind = argv[1];
    plugin = strcmp(kind, "tcp") == 0 ? TCP : LIBFABRIC;
    if (argc > 2) {
        cut(strcmp(argv[2], "late") == 0);
        return 0;
    }
    snprintf(root_variable, sizeof root_variable, "DTL_BACKEND_%s_ROOT", kind);
    for (i = 0; root_variable[i] != '\0'; i++) root_variable[i] = (char)toupper((unsigned char)root_variable[i]);
    port = 10000 + (int)(getpid() % 9000);
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].plugins & plugin) run(all[i].name, all[i].processes, all[i].scenario);
    }
    return 0;
}
