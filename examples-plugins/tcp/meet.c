/* How the ranks find each other. Not here: messages.
 *
 * Rank 0 listens; the others connect and say who they are and where they listen themselves. When all are
 * there, rank 0 sends everyone the list of addresses, and each rank connects to those below it. The connection
 * to rank 0 stays. Everything has a time limit.
 *
 * Where rank 0 listens: a variable with host:port, the same on all ranks. Without it, at a port of this machine
 * that follows from the job's name. The port may be taken, even by another job, so there are several to try,
 * and rank 0 says whose it is. Nobody is authenticated: use it in a network that you trust. */
#define _GNU_SOURCE
#include "meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS = 16,               /* that a job without the variable may use */
    FIRST_PORT = 20000,       /* below those that the system gives away by itself */
    PORT_RANGE = 12000,
    STRANGER_MS = 1000        /* whoever connects has to say who it is within */
};
#define MAGIC UINT64_C(0x3170637474645401) /* of this protocol and byte order */
#define ANSWER (MAGIC + 1)                 /* a socket may connect to itself: its own hello is no answer */

typedef struct address_t {
    struct sockaddr_storage bytes;
    socklen_t size;
    char text[80];
} address_t;

typedef struct hello_t { /* to rank 0, and to a rank that listens (job is then the token) */
    uint64_t magic, job;
    int32_t rank, size;
    struct sockaddr_storage listener;
} hello_t;

typedef struct answer_t { /* of rank 0; the list of `size` addresses follows when all are there */
    uint64_t magic, job;
    dtl_status_t status;
    char text[132]; /* no gaps: all bytes travel */
} answer_t;
_Static_assert(sizeof(answer_t) == 16 + sizeof(dtl_status_t) + 132, "answer_t has a gap");

typedef struct meeting_t {
    const meet_t *comm;
    uint64_t job;   /* hash of its name, the user and the number of this communicator */
    uint64_t token; /* of rank 0's choice: who has it was at the meeting */
    uint64_t deadline;
    int is_derived; /* the address */
    struct sockaddr_storage *listeners; /* of all ranks */
} meeting_t;

static dtl_status_t fail(const meet_t *comm, dtl_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static dtl_status_t fail(const meet_t *comm, dtl_status_t status, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return comm->fail(status, text);
}

static uint64_t within(uint64_t deadline, uint64_t most_ms)
{
    const uint64_t limit = net_now_ms() + most_ms;
    return limit < deadline ? limit : deadline;
}

/* The next who connects and says hello for this meeting in time; others are sent away. */
static int next_guest(int listener, uint64_t job, uint64_t deadline, hello_t *out_hello, int *out_socket)
{
    for (;;) {
        const int error = net_ready(listener, POLLIN, deadline);
        if (error != 0) {
            return error;
        }
        const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            return errno;
        }
        if (net_get(fd, out_hello, sizeof *out_hello, within(deadline, STRANGER_MS)) == 0 && out_hello->magic == MAGIC) {
            if (out_hello->job == job) {
                *out_socket = fd;
                return 0;
            }
            const answer_t other = {ANSWER, job, DTL_ERROR_NOT_FOUND, "another job's"};
            (void)net_put(fd, &other, sizeof other, within(deadline, STRANGER_MS));
        }
        close(fd);
    }
}

/* The connection to a rank, from now on. */
static void keep(const meet_t *comm, int32_t rank, int fd)
{
    /* Ends an idle connection to a silent machine after 4 s. For connections that are not idle see net_is_silent. */
    const int on = 1, idle = 1, interval = 1, probes = NET_SILENCE_MS / 1000 - 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    comm->sockets[rank] = fd;
}

static const char *missing(const meet_t *comm, int32_t first, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t rank = first; rank < comm->size && used + 12 < size; rank++) {
        if (rank != comm->rank && comm->sockets[rank] < 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%d", used == 0 ? "" : ", ", (int)rank);
        }
    }
    return text;
}

/* ---- addresses ---- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t count) /* FNV-1a */
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* The try-th address where rank 0 may listen. */
static dtl_status_t root_address(meeting_t *meeting, int try, address_t *out)
{
    const meet_t *comm = meeting->comm;
    const char *given = getenv(comm->variable);
    char host[64] = "127.0.0.1", port[8];
    meeting->is_derived = given == NULL || given[0] == '\0';
    if (meeting->is_derived) {
        const unsigned base = (unsigned)(meeting->job % PORT_RANGE);
        snprintf(port, sizeof port, "%u", FIRST_PORT + (base + 997u * (unsigned)try) % PORT_RANGE);
    } else {
        const char *colon = strrchr(given, ':');
        if (colon == NULL || colon == given || (size_t)(colon - given) >= sizeof host || strlen(colon + 1) >= sizeof port) {
            return fail(comm, DTL_ERROR_INVALID_ARGUMENT, "%s=\"%s\": host:port expected", comm->variable, given);
        }
        snprintf(host, sizeof host, "%.*s", (int)(colon - given), given);
        snprintf(port, sizeof port, "%s", colon + 1);
    }
    snprintf(out->text, sizeof out->text, "%s:%s", host, port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        return fail(comm, DTL_ERROR_UNAVAILABLE, "address %s of rank 0: %s", out->text, gai_strerror(error));
    }
    memcpy(&out->bytes, found->ai_addr, found->ai_addrlen);
    out->size = found->ai_addrlen;
    freeaddrinfo(found);
    return DTL_SUCCESS;
}

/* ---- rank 0 ---- */

static dtl_status_t open_root(meeting_t *meeting, address_t *at, int *out_listener)
{
    const meet_t *comm = meeting->comm;
    const struct timespec moment = {0, 10000000};
    for (int try = 0;; try++) {
        const dtl_status_t status = root_address(meeting, try % PORTS, at);
        if (status != DTL_SUCCESS) {
            return status;
        }
        const int error = net_listen((struct sockaddr *)&at->bytes, at->size, out_listener);
        if (error == 0) {
            return DTL_SUCCESS;
        }
        /* Taken for good, or by the communicator that was opened before this one. */
        if (error != EADDRINUSE || net_now_ms() >= meeting->deadline) {
            return fail(comm, DTL_ERROR_UNAVAILABLE, "rank 0 cannot listen at %s: %s; set %s to host:port of a "
                        "free port of its machine", at->text, strerror(error), comm->variable);
        }
        if (!meeting->is_derived || try >= PORTS) {
            nanosleep(&moment, NULL);
        }
    }
}

/* Why this guest cannot take part; NULL = it can. */
static const char *objection(const meet_t *comm, const hello_t *hello)
{
    char byte;
    if (hello->size != comm->size) {
        return "rank 0 was told another number of ranks";
    }
    if (hello->rank < 1 || hello->rank >= comm->size) {
        return "there is no such rank";
    }
    const int before = comm->sockets[hello->rank];
    return before >= 0 && recv(before, &byte, 1, MSG_PEEK) != 0 ? "there is one with this rank already" : NULL;
}

static dtl_status_t receive_guests(meeting_t *meeting, int listener, const address_t *at)
{
    const meet_t *comm = meeting->comm;
    char text[128];
    for (int32_t there = 1; there < comm->size;) {
        hello_t hello;
        int fd;
        const int error = next_guest(listener, meeting->job, meeting->deadline, &hello, &fd);
        if (error != 0) {
            return fail(comm, DTL_ERROR_TIMEOUT, "rank 0 timed out at %s waiting for rank(s) %s of %d: %s", at->text,
                        missing(comm, 1, text, sizeof text), (int)comm->size, strerror(error));
        }
        answer_t answer = {ANSWER, meeting->token, DTL_SUCCESS, ""};
        const char *why = objection(comm, &hello);
        if (why != NULL) {
            answer.status = hello.size != comm->size ? DTL_ERROR_INVALID_ARGUMENT : DTL_ERROR_ALREADY_EXISTS;
            snprintf(answer.text, sizeof answer.text, "%s", why);
        }
        if (net_put(fd, &answer, sizeof answer, within(meeting->deadline, STRANGER_MS)) != 0 || why != NULL) {
            close(fd);
            continue;
        }
        if (comm->sockets[hello.rank] >= 0) { /* it had given up and comes again */
            close(comm->sockets[hello.rank]);
        } else {
            there++;
        }
        comm->sockets[hello.rank] = fd;
        meeting->listeners[hello.rank] = hello.listener;
    }
    return DTL_SUCCESS;
}

static dtl_status_t be_the_root(meeting_t *meeting)
{
    const meet_t *comm = meeting->comm;
    const size_t bytes = (size_t)comm->size * sizeof *meeting->listeners;
    address_t at;
    int listener;
    if (getrandom(&meeting->token, sizeof meeting->token, 0) != (ssize_t)sizeof meeting->token) {
        return fail(comm, DTL_ERROR_COMMUNICATION, "getrandom: %s", strerror(errno));
    }
    dtl_status_t status = open_root(meeting, &at, &listener);
    if (status != DTL_SUCCESS) {
        return status;
    }
    status = receive_guests(meeting, listener, &at);
    close(listener);
    for (int32_t rank = 1; status == DTL_SUCCESS && rank < comm->size; rank++) {
        const int fd = comm->sockets[rank];
        const int error = net_put(fd, meeting->listeners, bytes, meeting->deadline);
        if (error != 0) {
            status = fail(comm, DTL_ERROR_RANK_FAILURE, "rank %d: %s", (int)rank, strerror(error));
        } else {
            keep(comm, rank, fd);
        }
    }
    return status;
}

/* ---- the others ---- */

/* Listens at the address by which it reaches rank 0, so that the others can reach it too. */
static int open_own(int to_root, int *out_listener, struct sockaddr_storage *out_address)
{
    socklen_t size = sizeof *out_address;
    if (getsockname(to_root, (struct sockaddr *)out_address, &size) != 0) {
        return errno;
    }
    if (out_address->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)out_address)->sin6_port = 0;
    } else {
        ((struct sockaddr_in *)out_address)->sin_port = 0;
    }
    const int error = net_listen((struct sockaddr *)out_address, size, out_listener);
    if (error != 0) {
        return error;
    }
    return getsockname(*out_listener, (struct sockaddr *)out_address, &size) == 0 ? 0 : errno;
}

/* Tries once to reach rank 0 at an address. On success its socket is sockets[0], and *out_listener is open. */
static int visit_root(meeting_t *meeting, const address_t *at, int *out_listener, answer_t *answer)
{
    const meet_t *comm = meeting->comm;
    hello_t hello = {.magic = MAGIC, .job = meeting->job, .rank = comm->rank, .size = comm->size};
    const uint64_t limit = within(meeting->deadline, meeting->is_derived ? 2 * STRANGER_MS : UINT32_MAX);
    int fd;
    int error = net_connect((const struct sockaddr *)&at->bytes, at->size, limit, &fd);
    if (error != 0) {
        return error;
    }
    *out_listener = -1;
    error = open_own(fd, out_listener, &hello.listener);
    if (error == 0) {
        error = net_put(fd, &hello, sizeof hello, limit);
    }
    if (error == 0) {
        error = net_get(fd, answer, sizeof *answer, limit);
    }
    if (error == 0 && (answer->magic != ANSWER || answer->status == DTL_ERROR_NOT_FOUND)) {
        error = EADDRINUSE;
    }
    if (error != 0 || answer->status != DTL_SUCCESS) {
        close(fd);
        if (*out_listener >= 0) {
            close(*out_listener);
        }
        return error;
    }
    comm->sockets[0] = fd;
    return 0;
}

static dtl_status_t find_root(meeting_t *meeting, int *out_listener)
{
    const meet_t *comm = meeting->comm;
    const struct timespec moment = {0, 10000000};
    const int32_t rank = comm->rank;
    for (int try = 0;; try++) {
        address_t at;
        answer_t answer = {0};
        const dtl_status_t status = root_address(meeting, try % PORTS, &at);
        if (status != DTL_SUCCESS) {
            return status;
        }
        const int error = visit_root(meeting, &at, out_listener, &answer);
        if (error == 0 && answer.status != DTL_SUCCESS) {
            return fail(comm, answer.status, "rank 0 at %s refused rank %d of %d: %.131s", at.text, (int)rank,
                        (int)comm->size, answer.text);
        }
        if (error == 0) {
            meeting->token = answer.job;
            return DTL_SUCCESS;
        }
        if (net_now_ms() >= meeting->deadline) {
            return fail(comm, DTL_ERROR_TIMEOUT, "rank %d found no rank 0 at %s: %s; is it started, and does %s "
                        "name its address?", (int)rank, at.text, strerror(error), comm->variable);
        }
        if (!meeting->is_derived || try % PORTS == PORTS - 1) {
            nanosleep(&moment, NULL);
        }
    }
}

/* Connections to those below; those above connect here. */
static dtl_status_t join_the_others(meeting_t *meeting, int listener)
{
    const meet_t *comm = meeting->comm;
    hello_t hello = {.magic = MAGIC, .job = meeting->token, .rank = comm->rank, .size = comm->size};
    dtl_status_t status = DTL_SUCCESS;
    keep(comm, 0, comm->sockets[0]);
    for (int32_t rank = 1; status == DTL_SUCCESS && rank < comm->rank; rank++) {
        char host[64] = "?", port[8] = "?";
        const struct sockaddr *to = (const struct sockaddr *)&meeting->listeners[rank];
        const socklen_t size = to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        int fd;
        int error = net_connect(to, size, meeting->deadline, &fd);
        if (error == 0 && (error = net_put(fd, &hello, sizeof hello, meeting->deadline)) != 0) {
            close(fd);
        }
        if (error == 0) {
            keep(comm, rank, fd);
            continue;
        }
        (void)getnameinfo(to, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
        status = fail(comm, DTL_ERROR_CONNECTION_LOST, "rank %d cannot reach rank %d at %s:%s: %s", (int)comm->rank,
                      (int)rank, host, port, strerror(error));
    }
    for (int32_t still = comm->size - 1 - comm->rank; status == DTL_SUCCESS && still > 0;) {
        char text[128];
        int fd;
        const int error = next_guest(listener, meeting->token, meeting->deadline, &hello, &fd);
        if (error != 0) {
            return fail(comm, DTL_ERROR_TIMEOUT, "rank %d timed out waiting for rank(s) %s to connect: %s", (int)comm->rank,
                        missing(comm, comm->rank + 1, text, sizeof text), strerror(error));
        }
        if (hello.rank <= comm->rank || hello.rank >= comm->size || comm->sockets[hello.rank] >= 0) {
            close(fd);
            continue;
        }
        keep(comm, hello.rank, fd);
        still--;
    }
    return status;
}

static dtl_status_t be_a_guest(meeting_t *meeting)
{
    const meet_t *comm = meeting->comm;
    const size_t bytes = (size_t)comm->size * sizeof *meeting->listeners;
    int listener = -1;
    dtl_status_t status = find_root(meeting, &listener);
    if (status != DTL_SUCCESS) {
        return status;
    }
    const int error = net_get(comm->sockets[0], meeting->listeners, bytes, meeting->deadline);
    status = error == 0 ? join_the_others(meeting, listener)
                        : fail(comm, error == ETIMEDOUT ? DTL_ERROR_TIMEOUT : DTL_ERROR_RANK_FAILURE,
                               "rank %d waited for the other ranks, but rank 0 has not got all of them: %s",
                               (int)comm->rank, strerror(error));
    close(listener);
    return status;
}

/* How many communicators of a job this process has opened: the n-th here meets the n-th there. They are counted by job, because a
 * process that joins later has opened none of the other jobs. */
static dtl_status_t next_number(uint64_t job, uint32_t *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct count { struct count *next; uint64_t job; uint32_t opened; } *counts;
    dtl_status_t status = DTL_SUCCESS;
    pthread_mutex_lock(&lock);
    struct count *count = counts;
    while (count != NULL && count->job != job) {
        count = count->next;
    }
    if (count == NULL && (count = calloc(1, sizeof *count)) != NULL) {
        count->job = job;
        count->next = counts;
        counts = count; /* for as long as the process runs */
    }
    if (count == NULL) {
        status = DTL_ERROR_OUT_OF_MEMORY;
    } else {
        *out = count->opened++;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

dtl_status_t meet(const meet_t *comm)
{
    uint32_t number;
    const uid_t user = getuid();
    meeting_t meeting = {.comm = comm, .deadline = net_now_ms() + comm->timeout_ns / 1000000 + 1};
    for (int32_t rank = 0; rank < comm->size; rank++) {
        comm->sockets[rank] = -1;
    }
    if (comm->size == 1) {
        return DTL_SUCCESS;
    }
    meeting.job = mix(UINT64_C(0xcbf29ce484222325), comm->job, strlen(comm->job));
    DTL_TRY(next_number(meeting.job, &number));
    meeting.job = mix(mix(meeting.job, &user, sizeof user), &number, sizeof number);
    meeting.job = mix(meeting.job, comm->variable, strlen(comm->variable)); /* jobs of other plugins are others */
    meeting.listeners = calloc((size_t)comm->size, sizeof *meeting.listeners);
    if (meeting.listeners == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    const dtl_status_t status = comm->rank == 0 ? be_the_root(&meeting) : be_a_guest(&meeting);
    free(meeting.listeners);
    for (int32_t rank = 0; status != DTL_SUCCESS && rank < comm->size; rank++) {
        if (comm->sockets[rank] >= 0) {
            close(comm->sockets[rank]);
            comm->sockets[rank] = -1;
        }
    }
    return status;
}
