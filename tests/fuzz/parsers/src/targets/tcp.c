/* Plugin tcp for its target: bytes that other ranks, or strangers, send to it. Called from tcp.rs.
 *
 * The bootstrap is compiled into this file, for its static functions. It connects to nobody: fuzz_connect
 * replaces net_connect. No deadline lies in the future, so nothing waits. */
#define net_connect fuzz_connect
#include "../../../../../examples-plugins/tcp/meet.c"
#undef net_connect
#include "../../../../../examples-plugins/tcp/tcp.h"

#include <fcntl.h>
#include <sys/un.h>

enum { RANKS = 4, GUESTS = 6, RECEIVES = 7, JOB = 0x6a6f62 };

static const uint8_t *answers; /* what the next rank that is connected to sends */
static size_t answers_size;

dtl_status_t tcp_fail(dtl_status_t status, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return status;
}

static dtl_status_t failed(dtl_status_t status, const char *text)
{
    if (strlen(text) == 0) {
        abort();
    }
    return status;
}

/* A connection on which `size` bytes have arrived, and which has ended unless it stays open. */
static int arrived(const uint8_t *bytes, size_t size, int stays, int *out_other)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        abort();
    }
    if (size > 0 && write(pair[1], bytes, size) < 0) {
        abort();
    }
    if (!stays) {
        shutdown(pair[1], SHUT_WR);
    }
    *out_other = pair[1];
    return pair[0];
}

int fuzz_connect(const struct sockaddr *to, socklen_t size, uint64_t deadline, int *out_socket)
{
    int other;
    (void)deadline;
    (void)size;
    if (to->sa_data[0] & 1) {
        *out_socket = -1;
        return ECONNREFUSED;
    }
    *out_socket = arrived(answers, answers_size, 0, &other);
    close(other);
    return 0;
}

/* Listens for connections, on which the parts of the input have arrived: 1 byte of length, then the bytes. */
static int guests(const uint8_t *data, size_t size, int *out)
{
    static uint64_t number;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener;
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "dtl-parsers-%d-%llu", (int)getpid(), (unsigned long long)number++);
    if (net_listen((struct sockaddr *)&name, sizeof name, &listener) != 0) {
        abort();
    }
    for (int i = 0; i < GUESTS; i++) {
        out[i] = -1;
        if (size > 0) {
            const size_t length = data[0] < size - 1 ? data[0] : size - 1;
            out[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (connect(out[i], (struct sockaddr *)&name, sizeof name) != 0 || send(out[i], data + 1, length, 0) < 0) {
                abort();
            }
            shutdown(out[i], SHUT_WR);
            data += 1 + length;
            size -= 1 + length;
        }
    }
    return listener;
}

static void bootstrap(int32_t rank, const uint8_t *data, size_t size)
{
    int sockets[RANKS], others[GUESTS];
    struct sockaddr_storage listeners[RANKS] = {{0}};
    const meet_t comm = {"DTL_BACKEND_TCP_ROOT", "job", rank, RANKS, 0, sockets, failed};
    meeting_t meeting = {&comm, JOB, JOB + 1, net_now_ms(), 1, listeners};
    address_t at = {.text = "here"};
    dtl_status_t status = DTL_SUCCESS;
    int listener = -1;
    for (int i = 0; i < RANKS; i++) {
        sockets[i] = -1;
    }
    if (rank == 0) {
        listener = guests(data, size, others);
        status = receive_guests(&meeting, listener, &at);
    } else if (rank == 1) { /* what rank 0 answers */
        answer_t answer = {0};
        answers = data;
        answers_size = size;
        if (visit_root(&meeting, &at, &listener, &answer) == 0 && answer.status != DTL_SUCCESS) {
            status = fail(&comm, answer.status, "%.131s", answer.text);
        }
        for (int i = 0; i < GUESTS; i++) {
            others[i] = -1;
        }
    } else { /* the list of rank 0, and those above this rank */
        const size_t list = size < sizeof listeners ? size : sizeof listeners;
        memcpy(listeners, data, list);
        answers_size = 0;
        sockets[0] = arrived(data, 0, 0, &sockets[rank]);
        close(sockets[rank]);
        sockets[rank] = -1;
        listener = guests(data + list, size - list, others);
        status = join_the_others(&meeting, listener);
    }
    for (int i = 0; i < RANKS; i++) {
        if (i == rank && sockets[i] >= 0) {
            abort();
        }
        if (rank != 1 && status == DTL_SUCCESS && i != rank && sockets[i] < 0) {
            abort();
        }
        if (sockets[i] >= 0) {
            close(sockets[i]);
        }
    }
    for (int i = 0; i < GUESTS; i++) {
        if (others[i] >= 0) {
            close(others[i]);
        }
    }
    if (listener >= 0 && !(rank == 1 && sockets[0] < 0)) {
        close(listener);
    }
}

/* Messages of rank 1 to rank 0, whose receives the first bytes describe. */
static void messages(const uint8_t *data, size_t size)
{
    uint64_t ops[RECEIVES], rooms[RECEIVES];
    unsigned char *buffers[RECEIVES];
    tcp_comm_t *comm;
    int other, count = 0;
    if (size < RECEIVES + 1 || tcp_comm_new(0, 2, &comm) != DTL_SUCCESS) {
        return;
    }
    const int wanted = data[0] % (RECEIVES + 1), late = data[0] >> 4;
    comm->peers[1].socket = arrived(data + RECEIVES + 1, size - RECEIVES - 1, 0, &other);
    if (tcp_watch(comm, 1) != DTL_SUCCESS) {
        abort();
    }
    for (int i = 0; i < wanted; i++) {
        rooms[i] = (uint64_t)(data[1 + i] >> 2) << (data[1 + i] & 1 ? 11 : 0);
        buffers[i] = malloc(rooms[i]);
        if (i == late && count > 0) { /* some receives are posted after the messages have come */
            int32_t done;
            dtl_comm_done_t result;
            uint64_t op;
            if (tcp_irecv(NULL, comm, NULL, 0, 1, UINT64_MAX, 0, &op) == DTL_SUCCESS) {
                (void)tcp_test(NULL, comm, op, &done, &result);
                if (!done) {
                    (void)tcp_cancel(NULL, comm, op);
                    (void)tcp_test(NULL, comm, op, &done, &result);
                }
            }
        }
        if (tcp_irecv(NULL, comm, buffers[i], rooms[i], data[1 + i] & 2 ? DTL_ANY_SOURCE : 1, (uint64_t)i,
                      i & 1 ? UINT64_MAX : 0, &ops[i]) != DTL_SUCCESS) {
            abort();
        }
        count++;
    }
    for (int i = 0; i < count; i++) {
        int32_t done = 0;
        dtl_comm_done_t result;
        for (int turn = 0; turn < 20 && !done; turn++) {
            if (tcp_test(NULL, comm, ops[i], &done, &result) != DTL_SUCCESS) {
                abort();
            }
        }
        if (!done) {
            (void)tcp_cancel(NULL, comm, ops[i]);
            (void)tcp_test(NULL, comm, ops[i], &done, &result);
        }
        if (!done || (result.status == DTL_SUCCESS && result.size_bytes > rooms[i])) {
            abort();
        }
    }
    close(other);
    tcp_comm_free(comm);
    for (int i = 0; i < count; i++) {
        free(buffers[i]);
    }
}

void parser_tcp(const uint8_t *data, size_t size);

void parser_tcp(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return;
    }
    if (data[0] % 4 < 3) {
        bootstrap(data[0] % 4, data + 1, size - 1);
    } else {
        messages(data + 1, size - 1);
    }
}
