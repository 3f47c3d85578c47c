/* Ranks that exchange checked messages of many sizes for some seconds, while a script does something to the cable or a
 * rank dies. It tells what became of it; whether that is right is the script's to say (faults.sh, smoke.sh).
 *
 *     dtlrun -n 2 exchange KIND SECONDS [TIMEOUT_MS [DIE_IN_ROUND]]
 *
 * TIMEOUT_MS: of each wait (20000). DIE_IN_ROUND: the highest rank kills itself in the middle of that round.
 * Prints "rank R: begun" after the first round, and a last line, with the exit status:
 *     rank R: all right …         0   every byte of every message was right
 *     rank R: failure STATUS …    3   a wait ended with DTL_ERROR_RANK_FAILURE or _CONNECTION_LOST, all others ended, too,
 *                                     and the process goes on working
 *     rank R: timeout …           4   a wait did not end
 *     rank R: wrong data …        5
 *     rank R: error STATUS …      6   any other status, or a call after the failure that does not do what it should */
#define _GNU_SOURCE
#include <dtl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MESSAGES = 4, MOST = 1 << 20, MOST_RANKS = 8, FAILURE = 3, TIMEOUT = 4, WRONG = 5, ERROR = 6 };

/* Every way that a message may go: none, inline, one frame, several, a rendezvous, odd lengths. */
static const uint64_t sizes[] = {0, 1, 8, 63, 64, 100, 1000, 4095, 4096, 8000, 8193, 20000, 65536, 100001, 300000, MOST};

/// What each message begins with if there is room, so that all ranks end in the same round.
struct head {
    uint64_t round, last;
};

/// One message of a round in one direction: its buffer, and its size.
struct box {
    unsigned char *bytes;
    uint64_t size;
    dtl_request_t request;
};

static int me, ranks;
static uint64_t timeout_ns, rounds, moved;
static dtl_comm_t comm;
static struct box out[MOST_RANKS][MESSAGES], in[MOST_RANKS][MESSAGES];

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/// Prints the last line and ends the process. The text of the failed call is printed with it.
static _Noreturn void end(int code, const char *what, const char *detail)
{
    printf("rank %d: %s %s (round %llu, %llu MB)\n", me, what, detail, (unsigned long long)rounds, (unsigned long long)(moved >> 20));
    if (code != 0) printf("rank %d: last error: %s\n", me, dtl_last_error());
    fflush(stdout);
    _Exit(code);
}

static void check(dtl_status_t status, const char *call)
{
    char detail[200];
    if (status == DTL_SUCCESS) return;
    snprintf(detail, sizeof detail, "%s by %s", dtl_status_name(status), call);
    end(ERROR, "error", detail);
}
#define CHECK(call) check(call, #call)

static uint64_t size_of(uint64_t round, int from, int to, int message)
{
    const uint64_t count = sizeof sizes / sizeof *sizes;
    if (message == 0) return sizeof(struct head);
    return sizes[(round * (MESSAGES - 1) + (uint64_t)message + (uint64_t)from * 5 + (uint64_t)to * 3) % count];
}

static unsigned char pattern(uint64_t round, int from, int message, uint64_t index)
{
    return (unsigned char)(round * 131 + (uint64_t)from * 17 + (uint64_t)message * 59 + index * 7 + (index >> 8));
}

/// Half of the messages are in memory of the library's, half in memory that it does not know.
static unsigned char *buffer(int message)
{
    dtl_backend_t host;
    void *bytes = NULL;
    if (message % 2 != 0) bytes = malloc(MOST);
    else {
        CHECK(dtl_backend_get("host", &host));
        CHECK(dtl_mem_alloc(host, DTL_MEMORY_HOST, MOST, 0, &bytes));
    }
    if (bytes == NULL) end(ERROR, "error", "no memory");
    return bytes;
}

/// Starts what goes both ways between this rank and `peer`. A send or receive that cannot even start leaves a null request.
static dtl_status_t start(int peer, int last)
{
    dtl_status_t first = DTL_SUCCESS, status;
    for (int m = 0; m < MESSAGES; m++) {
        struct box *const to = &out[peer][m], *const from = &in[peer][m];
        to->size = size_of(rounds, me, peer, m);
        for (uint64_t i = 0; i < to->size; i++) to->bytes[i] = pattern(rounds, me, m, i);
        if (m == 0) memcpy(to->bytes, &(struct head){rounds, (uint64_t)last}, sizeof(struct head));
        from->size = size_of(rounds, peer, me, m);
        memset(from->bytes, 0x5a, from->size);
        status = dtl_comm_irecv(comm, from->bytes, MOST, DTL_DTYPE_BYTE, peer, m, &from->request);
        if (first == DTL_SUCCESS) first = status;
        status = dtl_comm_isend(comm, to->bytes, to->size, DTL_DTYPE_BYTE, peer, m, &to->request);
        if (first == DTL_SUCCESS) first = status;
    }
    return first;
}

static void is_right(int peer, int m, const dtl_recv_info_t *info)
{
    const struct box *const box = &in[peer][m];
    struct head head;
    char detail[100];
    uint64_t i = 0;
    if (m == 0) {
        memcpy(&head, box->bytes, sizeof head);
        i = head.round == rounds ? sizeof head : 0;
    }
    for (; i < box->size && box->bytes[i] == pattern(rounds, peer, m, i); i++) {}
    moved += box->size;
    if (i == box->size && info->size_bytes == box->size) return;
    snprintf(detail, sizeof detail, "of rank %d, message %d: byte %llu, size %llu instead of %llu", peer, m, (unsigned long long)i,
             (unsigned long long)info->size_bytes, (unsigned long long)box->size);
    end(WRONG, "wrong data", detail);
}

/// Waits for everything of a round. Each request must end; the first failure is what is returned.
static dtl_status_t finish(dtl_status_t first)
{
    for (int peer = 0; peer < ranks; peer++) {
        for (int m = 0; m < MESSAGES && peer != me; m++) {
            dtl_recv_info_t info;
            dtl_status_t sent = DTL_SUCCESS, received = DTL_SUCCESS;
            if (out[peer][m].request.id != 0) sent = dtl_request_wait(out[peer][m].request, timeout_ns, NULL);
            if (in[peer][m].request.id != 0) received = dtl_request_wait(in[peer][m].request, timeout_ns, &info);
            if (sent == DTL_ERROR_TIMEOUT || received == DTL_ERROR_TIMEOUT) end(TIMEOUT, "timeout", sent == DTL_ERROR_TIMEOUT ? "of a send" : "of a receive");
            if (in[peer][m].request.id != 0 && received == DTL_SUCCESS) is_right(peer, m, &info);
            if (first == DTL_SUCCESS) first = sent != DTL_SUCCESS ? sent : received;
            out[peer][m].request.id = in[peer][m].request.id = 0;
        }
    }
    return first;
}

/// After a failure: the peer is reported at once, another communicator works, and everything can be given back.
static void still_works(void)
{
    char byte = 0;
    const uint64_t begin = now_ms();
    const dtl_status_t status = dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_BYTE, me == 0 ? 1 : 0, 99, NULL);
    if (status != DTL_ERROR_RANK_FAILURE && status != DTL_ERROR_CONNECTION_LOST) CHECK(status == DTL_SUCCESS ? DTL_ERROR_INVALID_STATE : status);
    if (now_ms() - begin > 5000) end(TIMEOUT, "timeout", "of a receive after the failure");
    CHECK(dtl_comm_barrier(DTL_COMM_SELF));
    CHECK(dtl_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    if (argc < 3) return fprintf(stderr, "usage: exchange KIND SECONDS [TIMEOUT_MS [DIE_IN_ROUND]]\n"), 2;
    const uint64_t stop = now_ms() + (uint64_t)atoi(argv[2]) * 1000, die = argc > 4 ? strtoull(argv[4], NULL, 10) : UINT64_MAX;
    timeout_ns = (argc > 3 ? strtoull(argv[3], NULL, 10) : 20000) * 1000000;
    desc.kind = argv[1];
    desc.timeout_ns = timeout_ns;
    CHECK(dtl_comm_open(&desc, &comm));
    CHECK(dtl_comm_rank(comm, &me));
    CHECK(dtl_comm_size(comm, &ranks));
    if (ranks > MOST_RANKS) end(ERROR, "error", "too many ranks");
    for (int peer = 0; peer < ranks; peer++) {
        for (int m = 0; m < MESSAGES; m++) out[peer][m].bytes = buffer(m), in[peer][m].bytes = buffer(m + 1);
    }
    for (int last = 0; !last; rounds++) {
        dtl_status_t status = DTL_SUCCESS;
        const int stops = me == 0 && now_ms() >= stop;
        const uint64_t begin = now_ms();
        for (int peer = 0; peer < ranks && status == DTL_SUCCESS; peer++) {
            if (peer != me) status = start(peer, stops);
        }
        if (rounds == die && me == ranks - 1) raise(SIGKILL);
        status = finish(status);
        if (status != DTL_SUCCESS) {
            char detail[100];
            const int known = status == DTL_ERROR_RANK_FAILURE || status == DTL_ERROR_CONNECTION_LOST;
            snprintf(detail, sizeof detail, "%s after %llu ms", dtl_status_name(status), (unsigned long long)(now_ms() - begin));
            printf("rank %d: its text: %s\n", me, dtl_last_error());
            if (known) still_works();
            end(known ? FAILURE : ERROR, known ? "failure" : "error", detail);
        }
        last = stops;
        if (me != 0) memcpy(&last, in[0][0].bytes + sizeof(uint64_t), sizeof last);
        if (rounds == 0) printf("rank %d: begun\n", me), fflush(stdout);
    }
    CHECK(dtl_comm_destroy(comm));
    end(0, "all right", "");
}
