/* Bootstrap: a TCP connection from each rank of a job to each other one. meet.c over net.c.
 *
 * It depends on nothing of the plugin tcp, so that other plugins can use it; libfabric does. */
#ifndef MEET_H
#define MEET_H

#include <dtl.h>

#include <stdint.h>
#include <sys/socket.h>

typedef struct meet_t {
    const char *variable; /* environment variable with host:port of rank 0; one per plugin */
    const char *job;      /* name of the job; NULL is not allowed */
    int32_t rank, size;
    uint64_t timeout_ns;
    int *sockets; /* out, `size` of them: the connection to each rank; -1 for this rank, and after a failure */
    dtl_status_t (*fail)(dtl_status_t status, const char *text); /* stores the text and returns the status */
} meet_t;

/* Connects the ranks. Blocks up to the time limit; the text of a failure names the missing ranks. The n-th call
 * of a process meets the n-th of the others. The sockets do not block; the caller closes them. */
dtl_status_t meet(const meet_t *comm);

/* net.c: sockets that do not block, used with a time limit (of net_now_ms). 0 = done, else errno. */
uint64_t net_now_ms(void);
int net_ready(int socket, short what, uint64_t deadline);
int net_put(int socket, const void *bytes, size_t count, uint64_t deadline);
int net_get(int socket, void *bytes, size_t count, uint64_t deadline);
int net_connect(const struct sockaddr *to, socklen_t size, uint64_t deadline, int *out_socket);
int net_listen(const struct sockaddr *at, socklen_t size, int *out_socket);
enum { NET_SILENCE_MS = 4000, NET_LOOK_MS = 500 };
/* Returns 1 if the peer has sent no acknowledgement for NET_SILENCE_MS although one was due, else 0. Call it for each
 * connection every NET_LOOK_MS. *looks is the state between the calls; it is 0 at first. */
int net_is_silent(int socket, int *looks);

#endif
