/* Sockets that do not block, with a time limit around them. */
#define _GNU_SOURCE
#include "meet.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

uint64_t net_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int net_ready(int socket, short what, uint64_t deadline)
{
    struct pollfd wanted = {socket, what, 0};
    for (;;) {
        const uint64_t now = net_now_ms();
        const int count = poll(&wanted, 1, now < deadline ? (int)(deadline - now) : 0);
        if (count > 0) {
            return 0;
        }
        if (count == 0 && now >= deadline) {
            return ETIMEDOUT;
        }
        if (count < 0 && errno != EINTR) {
            return errno;
        }
    }
}

static int move(int socket, void *bytes, size_t count, int is_send, uint64_t deadline)
{
    char *at = bytes;
    while (count > 0) {
        const ssize_t moved = is_send ? send(socket, at, count, MSG_NOSIGNAL) : recv(socket, at, count, 0);
        if (moved > 0) {
            at += moved;
            count -= (size_t)moved;
        } else if (moved == 0) {
            return ECONNRESET; /* the other side has gone away */
        } else if (errno == EAGAIN || errno == EINTR) {
            const int error = net_ready(socket, is_send ? POLLOUT : POLLIN, deadline);
            if (error != 0) {
                return error;
            }
        } else {
            return errno;
        }
    }
    return 0;
}

int net_put(int socket, const void *bytes, size_t count, uint64_t deadline)
{
    return move(socket, (void *)(uintptr_t)bytes, count, 1, deadline);
}

int net_get(int socket, void *bytes, size_t count, uint64_t deadline)
{
    return move(socket, bytes, count, 0, deadline);
}

int net_connect(const struct sockaddr *to, socklen_t size, uint64_t deadline, int *out_socket)
{
    const int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : 0;
    if (error == 0 && connect(fd, to, size) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            socklen_t length = sizeof error;
            const int late = net_ready(fd, POLLOUT, deadline);
            error = late != 0 ? late : getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ? errno : error;
        }
    }
    if (error != 0 && fd >= 0) {
        close(fd);
    }
    *out_socket = error == 0 ? fd : -1;
    return error;
}

int net_listen(const struct sockaddr *at, socklen_t size, int *out_socket)
{
    const int on = 1, fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *out_socket = fd;
    if (fd < 0) {
        return errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at, size) != 0 || listen(fd, SOMAXCONN) != 0) {
        const int error = errno;
        close(fd);
        *out_socket = -1;
        return error;
    }
    return 0;
}

/* Keepalive is active only while no bytes are unacknowledged; otherwise the kernel retransmits for 15 minutes.
 * TCP_USER_TIMEOUT would limit that, but would also end the connection to a rank that computes and does not read. The
 * kernel of such a rank acknowledges bytes until its receive buffer is full, and then each window probe. One call may
 * find a probe in flight, so the peer counts as silent when two calls in a row find no acknowledgement. */
int net_is_silent(int socket, int *looks)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    const int is_late = getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                        (info.tcpi_unacked > 0 || info.tcpi_probes > 0) && info.tcpi_last_ack_recv >= NET_SILENCE_MS;
    *looks = is_late ? *looks + 1 : 0;
    return *looks > 1;
}
