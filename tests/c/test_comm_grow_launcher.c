/* dtl_comm_grow with a launcher that is none: a process of this test on the socket that DTL_LAUNCHER names. What the library
 * does if the launcher is silent, and what it passes on to the communicator that it opens. */
#include "two_ranks.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

static uint64_t flags_seen;
static int32_t size_seen;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Starts a launcher that replies to each request with this text, and then waits until the connection is closed. */
static pid_t launcher(const char *reply) {
    struct sockaddr_un address;
    char name[64], line[512];
    socklen_t length;
    pid_t child;
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(name, sizeof name, "dtl-test-%ld-%llu", (long)getpid(), (unsigned long long)now_ms());
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name, strlen(name)); /* abstract: the first byte is 0 */
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    CHECK(listener >= 0 && bind(listener, (const struct sockaddr *)&address, length) == 0 && listen(listener, 4) == 0);
    CHECK(setenv("DTL_LAUNCHER", name, 1) == 0);
    child = fork();
    CHECK(child >= 0);
    while (child == 0) {
        const int stream = accept(listener, NULL, NULL);
        if (stream < 0 || read(stream, line, sizeof line) <= 0) _exit(1);
        if (write(stream, reply, strlen(reply)) != (ssize_t)strlen(reply)) _exit(2);
        while (read(stream, line, sizeof line) > 0) {}
        close(stream);
    }
    close(listener);
    return child;
}

static void end(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static dtl_status_t open_recorded(void *self, const dtl_comm_open_t *args, void **out, int32_t *out_rank, int32_t *out_size) {
    flags_seen = args->flags, size_seen = args->size;
    if (args->size > 1) return DTL_ERROR_NATIVE_BACKEND; /* nobody else is there */
    return two_open(self, args, out, out_rank, out_size);
}

#define SECOND UINT64_C(1000000000)

/* The launcher replies, or is silent. The call fails on a communicator with this time limit, which still works. */
static void fails(const char *reply, uint64_t limit_ns, dtl_status_t expected, const char *text) {
    const pid_t child = launcher(reply);
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm, grown;
    desc.kind = "self";
    desc.timeout_ns = limit_ns;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_STATUS(dtl_comm_grow(comm, 2, 0, &grown), expected);
    CHECK_TEXT(text);
    /* Half the limit: the other ranks wait for the whole limit. */
    if (expected == DTL_ERROR_TIMEOUT) CHECK_TEXT("within 500 ms");
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    end(child);
}

/* The flags of a communicator are those of the grown one. */
static void flags_are_kept(uint64_t flags) {
    const pid_t child = launcher("started\njoined 1\n");
    const dtl_comm_t comm = two_opened("two", 0, 1, flags);
    dtl_comm_t dup, grown;
    CHECK(flags_seen == flags && size_seen == 1);
    CHECK_OK(dtl_comm_dup(comm, &dup));
    CHECK_STATUS(dtl_comm_grow(dup, 1, 0, &grown), DTL_ERROR_NATIVE_BACKEND);
    CHECK(flags_seen == flags && size_seen == 2);
    CHECK_OK(dtl_comm_destroy(dup));
    CHECK_OK(dtl_comm_destroy(comm));
    end(child);
}

/* The launcher reports while the ranks open that a new process has ended: the error names that reason. */
static void ends_while_opening(void) {
    const pid_t child = launcher("started\njoined 1\nended 1 was killed by signal 9\n");
    const dtl_comm_t comm = two_opened("two", 0, 1, 0);
    dtl_comm_t grown;
    CHECK_STATUS(dtl_comm_grow(comm, 1, 0, &grown), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("the process of new rank 1 was killed by signal 9");
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    end(child);
}

int main(void) {
    dtl_comm_vtable_t comm = two_table();
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    CHECK_OK(dtl_init(NULL));
    comm.open = open_recorded;
    comm.coll_supports = two_coll_supports, comm.coll_start = two_coll_start; /* which take no host memory */
    table.comm = &comm;
    CHECK_OK(dtl_backend_register("two", &table, NULL, 0, &backend));
    fails("", SECOND, DTL_ERROR_TIMEOUT, "no message from the launcher within 500 ms");
    fails("started\njoined 2\n", SECOND, DTL_ERROR_TIMEOUT,
          "new ranks [1] have not opened the communicator: no message from the launcher");
    fails("no room\n", 20 * SECOND, DTL_ERROR_UNAVAILABLE, "the launcher has started no processes: no room");
    fails("started\njoined 2\nended 1 exited with status 9\n", 20 * SECOND, DTL_ERROR_UNAVAILABLE,
          "the process of new rank 1 exited with status 9 before all new ranks opened the communicator");
    ends_while_opening();
    flags_are_kept(0);
    flags_are_kept(DTL_COMM_DETERMINISTIC);
    flags_are_kept(DTL_COMM_STAGE);
    flags_are_kept(DTL_COMM_STAGE | DTL_COMM_DETERMINISTIC);
    CHECK_OK(dtl_finalize());
    return 0;
}
