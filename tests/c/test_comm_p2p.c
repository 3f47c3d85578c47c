/* Point to point and requests, over every kind of communicator (comm_kinds.h says how to run it). */
#include "comm_kinds.h"
#include <pthread.h>

static dtl_comm_t comm;
static int next, previous;

static void messages_to_oneself(void) {
    const uint64_t sizes[] = {0, 1, 4096, 8193, 1 << 20};
    unsigned char *out = (unsigned char *)malloc(1 << 20), *in = (unsigned char *)malloc(1 << 20);
    size_t i;
    CHECK(out != NULL && in != NULL);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        dtl_request_t requests[2];
        dtl_recv_info_t infos[2];
        fill(out, sizes[i], 3);
        memset(in, 0, 1 << 20);
        CHECK_OK(dtl_comm_isend(comm, out, sizes[i], DTL_DTYPE_BYTE, me, 4, &requests[0]));
        CHECK_OK(dtl_comm_irecv(comm, in, sizes[i], DTL_DTYPE_BYTE, me, 4, &requests[1]));
        CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, infos));
        CHECK(requests[0].id == 0 && requests[1].id == 0);
        CHECK(infos[1].source == me && infos[1].tag == 4 && infos[1].size_bytes == sizes[i]);
        CHECK(infos[1].status == DTL_SUCCESS && infos[1].reserved0 == 0 && infos[1].reserved1 == 0);
        CHECK(is_filled(in, sizes[i], 3));
        /* The receive first. */
        CHECK_OK(dtl_comm_irecv(comm, in, sizes[i], DTL_DTYPE_BYTE, DTL_ANY_SOURCE, DTL_ANY_TAG, &requests[1]));
        CHECK_OK(dtl_comm_send(comm, out, sizes[i], DTL_DTYPE_BYTE, me, 9));
        CHECK_OK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, &infos[0]));
        CHECK(infos[0].source == me && infos[0].tag == 9 && infos[0].size_bytes == sizes[i]);
        CHECK_STATUS(dtl_request_wait(requests[1], 0, NULL), DTL_ERROR_INVALID_HANDLE);
        CHECK_OK(dtl_comm_sendrecv(comm, out, sizes[i], me, 1, in, sizes[i], me, 1, DTL_DTYPE_BYTE, NULL));
    }
    free(out);
    free(in);
    CHECK_OK(dtl_comm_barrier(comm));
}

static void exchanges_round_the_ring(void) {
    const uint64_t sizes[] = {0, 1, 56, 57, 4096, 8191, 8192, 8193, 65537, 1 << 20, 16 << 20};
    unsigned char *out = (unsigned char *)malloc(16 << 20), *in = (unsigned char *)malloc((16 << 20) + 1);
    size_t i;
    CHECK(out != NULL && in != NULL);
    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t size = sizes[i];
        dtl_recv_info_t info;
        if (size > 1 << 20 && (ranks > 3 || is_mail())) continue;
        fill(out, size, me + 1);
        memset(in, 0xEE, (size_t)size + 1);
        CHECK_OK(dtl_comm_sendrecv(comm, out, size, next, 5, in, size, previous, 5, DTL_DTYPE_UINT8, &info));
        CHECK(info.source == previous && info.tag == 5 && info.size_bytes == size);
        CHECK(is_filled(in, size, previous + 1) && in[size] == 0xEE);
        /* The same by hand, the other way round, into a buffer that is larger than the message. */
        if (ranks > 1) {
            dtl_request_t request;
            CHECK_OK(dtl_comm_irecv(comm, in, size + 1, DTL_DTYPE_UINT8, next, DTL_TAG_MAX, &request));
            CHECK_OK(dtl_comm_send(comm, out, size, DTL_DTYPE_UINT8, previous, DTL_TAG_MAX));
            CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, &info));
            CHECK(info.source == next && info.tag == DTL_TAG_MAX && info.size_bytes == size);
            CHECK(is_filled(in, size, next + 1));
        }
    }
    free(out);
    free(in);
}

/* Messages of one sender are received in the order sent, whatever their sizes. */
static void no_overtaking(void) {
    enum { COUNT = 100 };
    static unsigned char out[COUNT][20000], in[20000];
    dtl_request_t sends[COUNT];
    int i;
    for (i = 0; i < COUNT; i++) {
        const uint64_t size = i % 3 == 0 ? 12000u + (unsigned)i : (unsigned)i;
        fill(out[i], size, i);
        CHECK_OK(dtl_comm_isend(comm, out[i], size, DTL_DTYPE_BYTE, next, i % 5, &sends[i]));
    }
    for (i = 0; i < COUNT; i++) {
        const uint64_t size = i % 3 == 0 ? 12000u + (unsigned)i : (unsigned)i;
        dtl_recv_info_t info;
        CHECK_OK(dtl_comm_recv(comm, in, sizeof in, DTL_DTYPE_BYTE, i % 2 ? DTL_ANY_SOURCE : previous,
                               DTL_ANY_TAG, &info));
        CHECK(info.source == previous && info.tag == i % 5 && info.size_bytes == size);
        CHECK(is_filled(in, size, i));
    }
    CHECK_OK(dtl_request_wait_all(sends, COUNT, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_barrier(comm));
}

static void those_posted_first_come_first(void) {
    int32_t round;
    for (round = 0; round < 200; round++) {
        int32_t out[3], got[3] = {-1, -1, -1}, i;
        dtl_request_t first, sends[3];
        CHECK_OK(dtl_comm_irecv(comm, &got[0], 1, DTL_DTYPE_INT32, round % 2 ? DTL_ANY_SOURCE : previous, 7, &first));
        for (i = 0; i < 3; i++) {
            out[i] = round * 3 + i;
            CHECK_OK(dtl_comm_isend(comm, &out[i], 1, DTL_DTYPE_INT32, next, i < 2 ? 7 : 8, &sends[i]));
        }
        CHECK_OK(dtl_comm_recv(comm, &got[2], 1, DTL_DTYPE_INT32, previous, 8, NULL));
        CHECK_OK(dtl_comm_recv(comm, &got[1], 1, DTL_DTYPE_INT32, previous, 7, NULL));
        CHECK_OK(dtl_request_wait(first, DTL_TIMEOUT_INFINITE, NULL));
        CHECK_OK(dtl_request_wait_all(sends, 3, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(memcmp(out, got, sizeof out) == 0);
    }
}

static void tags_select(void) {
    int32_t values[3] = {10, 20, 30}, got;
    dtl_request_t sends[3];
    int i;
    for (i = 0; i < 3; i++) {
        CHECK_OK(dtl_comm_isend(comm, &values[i], 1, DTL_DTYPE_INT32, next, i, &sends[i]));
    }
    for (i = 2; i >= 0; i--) {
        CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, i, NULL));
        CHECK(got == values[i]);
    }
    CHECK_OK(dtl_request_wait_all(sends, 3, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_barrier(comm));
}

static void from_anybody(void) {
    enum { EACH = 4 };
    int i, from;
    if (me != 0) {
        for (i = 0; i < EACH; i++) {
            const int32_t value = me * 100 + i;
            CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, me));
        }
    } else {
        int seen[MAIL_RANKS + 1] = {0};
        for (i = 0; i < EACH * (ranks - 1); i++) {
            int32_t value;
            dtl_recv_info_t info;
            CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
            CHECK(info.source > 0 && info.source < ranks && info.tag == info.source);
            CHECK(value == info.source * 100 + seen[info.source]);
            seen[info.source] += 1;
        }
        for (from = 1; from < ranks; from++) CHECK(seen[from] == EACH);
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

static void nobody(void) {
    char byte = 'x';
    dtl_recv_info_t info;
    dtl_request_t requests[2];
    int done = 0;
    CHECK_OK(dtl_comm_send(comm, &byte, 1, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0));
    memset(&info, 0xFF, sizeof info);
    CHECK_OK(dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_BYTE, DTL_PROC_NULL, 7, &info));
    CHECK(byte == 'x' && info.source == DTL_PROC_NULL && info.tag == DTL_ANY_TAG && info.size_bytes == 0);
    CHECK(info.status == DTL_SUCCESS);
    CHECK_OK(dtl_comm_sendrecv(comm, &byte, 1, DTL_PROC_NULL, 0, NULL, 0, DTL_PROC_NULL, 0, DTL_DTYPE_BYTE, &info));
    CHECK_OK(dtl_comm_isend(comm, &byte, 1, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0, &requests[0]));
    CHECK_OK(dtl_comm_irecv(comm, &byte, 1, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0, &requests[1]));
    CHECK_OK(dtl_request_test(requests[0], &done, NULL));
    CHECK(done == 1);
    CHECK_OK(dtl_request_wait(requests[1], 0, &info));
    CHECK(info.source == DTL_PROC_NULL && info.size_bytes == 0);
    /* One half of an exchange. */
    CHECK_OK(dtl_comm_sendrecv(comm, &byte, 1, me == 0 ? DTL_PROC_NULL : me - 1, 3, &done, 1,
                               me == ranks - 1 ? DTL_PROC_NULL : me + 1, 3, DTL_DTYPE_BYTE, &info));
    CHECK(info.source == (me == ranks - 1 ? DTL_PROC_NULL : me + 1));
}

static void longer_than_the_buffer(void) {
    const uint64_t sizes[] = {100, 1 << 20};
    unsigned char *out = (unsigned char *)malloc(1 << 20), in[32];
    int i;
    CHECK(out != NULL);
    for (i = 0; i < 4; i++) {
        const uint64_t size = sizes[i % 2], room = i < 2 ? 10 : 0;
        dtl_request_t send;
        dtl_recv_info_t info;
        fill(out, size, 8);
        memset(in, 0xEE, sizeof in);
        CHECK_OK(dtl_comm_isend(comm, out, size, DTL_DTYPE_BYTE, next, 1, &send));
        CHECK_STATUS(dtl_comm_recv(comm, in, room, DTL_DTYPE_BYTE, previous, 1, &info), DTL_ERROR_TRUNCATED);
        CHECK_TEXT(size == 100 ? "100 bytes" : "1048576 bytes");
        CHECK(info.size_bytes == size && info.source == previous && info.tag == 1);
        CHECK(info.status == DTL_ERROR_TRUNCATED);
        CHECK(is_filled(in, room, 8) && is_all(in + room, sizeof in - room, 0xEE));
        CHECK_OK(dtl_request_wait(send, DTL_TIMEOUT_INFINITE, NULL));
    }
    free(out);
    CHECK_OK(dtl_comm_barrier(comm));
}

static void many_requests_at_once(void) {
    char out[10] = "abcdefghi", in[3][10];
    dtl_request_t requests[5];
    dtl_recv_info_t infos[5];
    int i;
    memset(infos, 0xFF, sizeof infos);
    requests[0] = DTL_REQUEST_NULL;
    for (i = 0; i < 3; i++) {
        const uint64_t room = i == 1 ? 4 : 10;
        CHECK_OK(dtl_comm_irecv(comm, in[i], room, DTL_DTYPE_BYTE, me, 20 + i, &requests[1 + i]));
    }
    requests[4] = requests[1]; /* the same one twice */
    for (i = 0; i < 3; i++) CHECK_OK(dtl_comm_send(comm, out, 10, DTL_DTYPE_BYTE, me, 20 + i));
    CHECK_STATUS(dtl_request_wait_all(requests, 5, DTL_TIMEOUT_INFINITE, infos), DTL_ERROR_TRUNCATED);
    CHECK_TEXT("requests[2]");
    for (i = 0; i < 5; i++) CHECK(requests[i].id == 0);
    CHECK(infos[0].status == -1); /* left alone */
    CHECK(infos[1].status == DTL_SUCCESS && infos[1].tag == 20);
    CHECK(infos[2].status == DTL_ERROR_TRUNCATED && infos[2].size_bytes == 10);
    CHECK(infos[3].status == DTL_SUCCESS && infos[3].tag == 22);
    CHECK(infos[4].status == DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_request_wait_all(requests, 5, 0, NULL));
    CHECK_OK(dtl_request_wait_all(NULL, 0, 0, NULL));
    /* Time is up: who is done becomes null, who is not stays. */
    CHECK_OK(dtl_comm_irecv(comm, in[0], 10, DTL_DTYPE_BYTE, me, 30, &requests[0]));
    CHECK_OK(dtl_comm_irecv(comm, in[1], 10, DTL_DTYPE_BYTE, me, 31, &requests[1]));
    CHECK_OK(dtl_comm_send(comm, out, 10, DTL_DTYPE_BYTE, me, 31));
    CHECK_STATUS(dtl_request_wait_all(requests, 2, MILLISECONDS(20), infos), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("requests[0]");
    CHECK(requests[0].id != 0 && requests[1].id == 0 && infos[1].tag == 31);
    CHECK_OK(dtl_comm_send(comm, out, 10, DTL_DTYPE_BYTE, me, 30));
    CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, infos));
    /* A handle that is none: nothing is waited for, the others stay. */
    CHECK_OK(dtl_comm_irecv(comm, in[0], 10, DTL_DTYPE_BYTE, me, 30, &requests[0]));
    requests[1].id = UINT64_C(0x0700000000000001) + 999;
    CHECK_STATUS(dtl_request_wait_all(requests, 2, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("requests[1]");
    CHECK_OK(dtl_comm_send(comm, out, 10, DTL_DTYPE_BYTE, me, 30));
    CHECK_OK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
}

/* A window of receives of two communicators, among them every other kind of entry. */
static void windows_of_requests(void) {
    enum { WINDOW = 80, RESTING = 3, LONG = 35, CANCELED = 50, EMPTY = 60, SENT = 61 };
    const int32_t one = 1;
    int32_t out[WINDOW], in[WINDOW], i, round;
    dtl_request_t requests[WINDOW], resting;
    dtl_recv_info_t infos[WINDOW];
    dtl_comm_t other;
    CHECK_OK(dtl_comm_dup(comm, &other));
    CHECK_OK(dtl_comm_recv_init(comm, &in[RESTING], 1, DTL_DTYPE_INT32, previous, 7, &resting));
    for (round = 0; round < 20; round++) {
        for (i = 0; i < WINDOW; i++) {
            const dtl_comm_t on = i % 7 < 4 ? comm : other;
            in[i] = -1, out[i] = round * WINDOW + i, requests[i] = DTL_REQUEST_NULL;
            if (i == EMPTY) continue;
            if (i == RESTING) {
                requests[i] = resting;
                if (round % 2) CHECK_OK(dtl_request_start(resting));
            } else if (i == SENT) {
                CHECK_OK(dtl_comm_isend(on, &one, 1, DTL_DTYPE_INT32, DTL_PROC_NULL, 0, &requests[i]));
            } else {
                const int32_t from = i % 11 == 10 ? DTL_ANY_SOURCE : previous, tag = i == CANCELED ? 9 : 8;
                CHECK_OK(dtl_comm_irecv(on, &in[i], i == LONG ? 0 : 1, DTL_DTYPE_INT32, from, tag, &requests[i]));
            }
        }
        CHECK_OK(dtl_request_cancel(requests[CANCELED]));
        for (i = 0; i < WINDOW; i++) {
            if (i == EMPTY || i == SENT || i == CANCELED || (i == RESTING && round % 2 == 0)) continue;
            CHECK_OK(dtl_comm_send(i % 7 < 4 ? comm : other, &out[i], 1, DTL_DTYPE_INT32, next, i == RESTING ? 7 : 8));
        }
        CHECK_STATUS(dtl_request_wait_all(requests, WINDOW, DTL_TIMEOUT_INFINITE, infos), DTL_ERROR_TRUNCATED);
        CHECK_TEXT("requests[35]");
        for (i = 0; i < WINDOW; i++) {
            CHECK((requests[i].id == 0) == (i != RESTING));
            if (i == EMPTY || i == SENT || (i == RESTING && round % 2 == 0)) continue;
            CHECK(infos[i].status == (i == LONG ? DTL_ERROR_TRUNCATED : i == CANCELED ? DTL_ERROR_CANCELED : DTL_SUCCESS));
            CHECK(in[i] == (i == LONG || i == CANCELED ? -1 : out[i]));
            if (i != CANCELED) CHECK(infos[i].source == previous && infos[i].size_bytes == sizeof one);
        }
    }
    CHECK_OK(dtl_request_destroy(resting));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(other));
}

static void waiting_and_asking(void) {
    int32_t value = 77, got = 0;
    dtl_request_t request;
    dtl_recv_info_t info;
    int done = 5;
    uint64_t began;
    CHECK_OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, me, 2, &request));
    CHECK_OK(dtl_request_test(request, &done, NULL));
    CHECK(done == 0);
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_TIMEOUT);
    began = now_ms();
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(30), &info), DTL_ERROR_TIMEOUT);
    CHECK(now_ms() - began >= 29);
    CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, me, 2));
    CHECK_OK(dtl_request_test(request, &done, &info));
    CHECK(done == 1 && got == 77 && info.size_bytes == 4 && info.source == me && info.tag == 2);
    CHECK_STATUS(dtl_request_test(request, &done, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_cancel(request), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_wait(DTL_REQUEST_NULL, 0, NULL), DTL_ERROR_INVALID_HANDLE);
}

static void withdrawing(void) {
    int32_t value = 1, got = 0;
    dtl_request_t request, other;
    unsigned char *large = (unsigned char *)calloc(1, 1 << 20);
    CHECK(large != NULL);
    CHECK_OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, me, 2, &request));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    /* It takes no message any more. */
    CHECK_OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, me, 2, &other));
    CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, me, 2));
    CHECK_OK(dtl_request_cancel(other)); /* too late */
    CHECK_OK(dtl_request_wait(other, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(got == 1);
    /* A large send that nobody has asked for, to oneself and to another. */
    CHECK_OK(dtl_comm_isend(comm, large, 1 << 20, DTL_DTYPE_BYTE, me, 50, &request));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_isend(comm, large, 1 << 20, DTL_DTYPE_BYTE, next, 50, &request));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_irecv(comm, large, 1 << 20, DTL_DTYPE_BYTE, previous, 50, &request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(10), NULL), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    free(large);
}

static void time_limits(void) {
    const dtl_comm_t hasty = open_hasty(comm);
    const uint64_t large = 1 << 20;
    unsigned char *out = (unsigned char *)calloc(1, large), *in = (unsigned char *)malloc(large);
    unsigned char small[64];
    uint64_t began = now_ms();
    dtl_request_t request;
    char text[64];
    CHECK(out != NULL && in != NULL);
    memset(small, 0xEE, sizeof small);
    CHECK_STATUS(dtl_comm_recv(hasty, small, sizeof small, DTL_DTYPE_BYTE, previous, 1, NULL), DTL_ERROR_TIMEOUT);
    snprintf(text, sizeof text, "from rank %d, tag 1): no match with rank %d", (int)previous, (int)previous);
    CHECK_TEXT(text);
    if (hasty_ms == 500) CHECK_TEXT("500 ms");
    CHECK(now_ms() - began >= hasty_ms - 1);
    CHECK_STATUS(dtl_comm_recv(hasty, small, sizeof small, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, DTL_ANY_TAG, NULL),
                 DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_comm_barrier(comm)); /* nobody sends before all have given up */
    /* The receives that timed out do not touch their buffer any more. */
    /* (This may have to connect first, which takes its time on a busy machine.) */
    CHECK_OK(dtl_comm_isend(hasty, out, sizeof small, DTL_DTYPE_BYTE, next, 1, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_barrier(comm));
    began = now_ms();
    while (now_ms() - began < 20) {
        int done;
        CHECK_OK(dtl_comm_irecv(hasty, in, 0, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0, &request));
        CHECK_OK(dtl_request_test(request, &done, NULL));
    }
    CHECK(is_all(small, sizeof small, 0xEE));
    CHECK_OK(dtl_comm_recv(hasty, small, sizeof small, DTL_DTYPE_BYTE, previous, 1, NULL));
    CHECK(is_all(small, sizeof small, 0));
    CHECK_STATUS(dtl_comm_send(hasty, out, large, DTL_DTYPE_BYTE, next, 2), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_comm_sendrecv(hasty, out, large, next, 3, in, large, previous, 4, DTL_DTYPE_BYTE, NULL),
                 DTL_ERROR_TIMEOUT);
    /* The messages were withdrawn: nobody gets them. */
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_STATUS(dtl_comm_recv(hasty, in, large, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, DTL_ANY_TAG, NULL),
                 DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_comm_sendrecv(hasty, out, 8, DTL_PROC_NULL, 3, small, 8, previous, 4, DTL_DTYPE_BYTE, NULL),
                 DTL_ERROR_TIMEOUT);
    snprintf(text, sizeof text, "tag 3): no match with rank %d", (int)previous);
    CHECK_TEXT(text);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(hasty));
    free(out);
    free(in);
}

static void two_communicators(void) {
    const dtl_comm_t other = open_comm();
    const int32_t values[2] = {1, 2};
    int32_t got[2];
    dtl_request_t requests[2];
    CHECK_OK(dtl_comm_irecv(other, &got[1], 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &requests[1]));
    CHECK_OK(dtl_comm_irecv(comm, &got[0], 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &requests[0]));
    CHECK_OK(dtl_comm_send(comm, &values[0], 1, DTL_DTYPE_INT32, next, 1));
    CHECK_OK(dtl_comm_barrier(other));
    CHECK_OK(dtl_comm_send(other, &values[1], 1, DTL_DTYPE_INT32, next, 1));
    CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(got[0] == 1 && got[1] == 2);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(other));
    CHECK_STATUS(dtl_comm_barrier(other), DTL_ERROR_INVALID_HANDLE);
}

/* A large message on one communicator gets on while its sender waits on another. */
static void waiting_on_one_moves_the_others(void) {
    enum { SIZE = 4 << 20 };
    unsigned char *bytes = (unsigned char *)malloc(SIZE), word = 0;
    dtl_comm_t a, b;
    dtl_request_t request = DTL_REQUEST_NULL;
    CHECK(bytes != NULL);
    setenv("DTL_SHM_COPY", "cells", 1); /* both sides have to work */
    a = open_with(MILLISECONDS(60000));
    b = open_with(MILLISECONDS(60000));
    unsetenv("DTL_SHM_COPY");
    if (me == 0 && ranks > 1) {
        fill(bytes, SIZE, 5);
        CHECK_OK(dtl_comm_isend(b, bytes, SIZE, DTL_DTYPE_BYTE, 1, 0, &request));
        CHECK_OK(dtl_comm_recv(a, &word, 1, DTL_DTYPE_BYTE, 1, 0, NULL));
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        /* … in a collective, and in a wait for a request. */
        CHECK_OK(dtl_comm_isend(b, bytes, SIZE, DTL_DTYPE_BYTE, 1, 0, &request));
    } else if (me == 1) {
        CHECK_OK(dtl_comm_recv(b, bytes, SIZE, DTL_DTYPE_BYTE, 0, 0, NULL));
        CHECK(is_filled(bytes, SIZE, 5));
        CHECK_OK(dtl_comm_send(a, &word, 1, DTL_DTYPE_BYTE, 0, 0));
        CHECK_OK(dtl_comm_recv(b, bytes, SIZE, DTL_DTYPE_BYTE, 0, 0, NULL));
    }
    CHECK_OK(dtl_comm_barrier(a));
    if (me == 0 && ranks > 1) {
        dtl_request_t small;
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        CHECK_OK(dtl_comm_isend(b, bytes, SIZE, DTL_DTYPE_BYTE, 1, 0, &request));
        CHECK_OK(dtl_comm_irecv(a, &word, 1, DTL_DTYPE_BYTE, 1, 0, &small));
        CHECK_OK(dtl_request_wait(small, MILLISECONDS(60000), NULL));
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    } else if (me == 1) {
        CHECK_OK(dtl_comm_recv(b, bytes, SIZE, DTL_DTYPE_BYTE, 0, 0, NULL));
        CHECK_OK(dtl_comm_send(a, &word, 1, DTL_DTYPE_BYTE, 0, 0));
    }
    CHECK_OK(dtl_comm_barrier(a));
    CHECK_OK(dtl_comm_destroy(a));
    CHECK_OK(dtl_comm_destroy(b));
    free(bytes);
}

static void *talk(void *tag) {
    const int mine = *(const int *)tag;
    int i;
    for (i = 0; i < 200; i++) {
        int32_t out[2] = {me, i}, in[2];
        CHECK_OK(dtl_comm_sendrecv(comm, out, 2, next, mine, in, 2, previous, mine, DTL_DTYPE_INT32, NULL));
        CHECK(in[0] == previous && in[1] == i);
    }
    return NULL;
}

static void two_threads(void) {
    int tags[2] = {61, 62};
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, talk, &tags[i]) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

typedef struct waiting {
    dtl_comm_t comm;
    dtl_request_t request;
    dtl_status_t status;
    int began;
} waiting;

static void *wait_for_request(void *argument) {
    waiting *w = (waiting *)argument;
    __atomic_store_n(&w->began, 1, __ATOMIC_RELEASE);
    w->status = dtl_request_wait(w->request, DTL_TIMEOUT_INFINITE, NULL);
    return NULL;
}

static void *wait_for_message(void *argument) {
    waiting *w = (waiting *)argument;
    char byte;
    __atomic_store_n(&w->began, 1, __ATOMIC_RELEASE);
    w->status = dtl_comm_recv(w->comm, &byte, 1, DTL_DTYPE_BYTE, me, 1, NULL);
    return NULL;
}

static void destroying(void) {
    dtl_comm_t doomed = open_with(DTL_TIMEOUT_INFINITE);
    static char buffer[64];
    dtl_request_t request;
    pthread_t threads[2];
    waiting waits[2];
    int i;
    CHECK_OK(dtl_comm_irecv(doomed, buffer, sizeof buffer, DTL_DTYPE_BYTE, me, 1, &request));
    CHECK_OK(dtl_comm_destroy(doomed));
    CHECK_STATUS(dtl_request_wait(request, 0, NULL), DTL_ERROR_INVALID_HANDLE);
    doomed = open_with(DTL_TIMEOUT_INFINITE);
    waits[0].comm = waits[1].comm = doomed;
    waits[0].began = waits[1].began = 0;
    CHECK_OK(dtl_comm_irecv(doomed, buffer, sizeof buffer, DTL_DTYPE_BYTE, me, 1, &waits[0].request));
    CHECK(pthread_create(&threads[0], NULL, wait_for_request, &waits[0]) == 0);
    CHECK(pthread_create(&threads[1], NULL, wait_for_message, &waits[1]) == 0);
    for (i = 0; i < 2; i++)
        while (!__atomic_load_n(&waits[i].began, __ATOMIC_ACQUIRE)) usleep(1000);
    usleep(100000);
    CHECK_OK(dtl_comm_destroy(doomed));
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
    if (waits[0].status != DTL_ERROR_CANCELED || waits[1].status != DTL_ERROR_CANCELED) {
        fprintf(stderr, "waiting threads got %s and %s\n", dtl_status_name(waits[0].status),
                dtl_status_name(waits[1].status));
        exit(1);
    }
    CHECK_STATUS(dtl_comm_destroy(doomed), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_destroy(DTL_COMM_NULL));
    CHECK_OK(dtl_comm_barrier(comm));
}

static void wrong_arguments(void) {
    int32_t value = 0, other = 0;
    dtl_request_t request;
    dtl_recv_info_t info;
    int done;
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, ranks, 0), DTL_ERROR_INVALID_RANK);
    CHECK_TEXT("dest");
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 0), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, -4, 0), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, ranks, 0, &info), DTL_ERROR_INVALID_RANK);
    CHECK_TEXT("source");
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, me, -1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, me, DTL_TAG_MAX + 1), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("268435456");
    CHECK_STATUS(dtl_comm_irecv(comm, &value, 1, DTL_DTYPE_INT32, me, -2, &request), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_send(comm, &value, 1, 99, me, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("99");
    CHECK_STATUS(dtl_comm_isend(comm, &value, 1, -1, me, 0, &request), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_send(comm, NULL, 1, DTL_DTYPE_INT32, me, 0), DTL_ERROR_NULL_POINTER);
    CHECK_TEXT("buf");
    CHECK_STATUS(dtl_comm_recv(comm, NULL, 1, DTL_DTYPE_INT32, me, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_irecv(comm, &value, 1, DTL_DTYPE_INT32, me, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_send(comm, &value, UINT64_MAX / 2, DTL_DTYPE_INT32, me, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_sendrecv(comm, &value, 1, me, 0, &value, 1, me, 0, DTL_DTYPE_INT32, NULL),
                 DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("overlap");
    CHECK_STATUS(dtl_comm_sendrecv(comm, &value, 1, me, 0, &other, 1, ranks, 0, DTL_DTYPE_INT32, NULL),
                 DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_rank(DTL_COMM_NULL, &done), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_comm_rank(comm, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_size(comm, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_info(comm, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_open(NULL, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_request_test(DTL_REQUEST_NULL, &done, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_wait_all(NULL, 1, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_request_wait_all(&request, UINT64_MAX, 0, NULL), DTL_ERROR_LIMIT);
}

static void wrong_descriptions(void) {
    static const int32_t not_read = 0;
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t out = {77};
    desc.kind = "no such kind";
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("shm");
    desc.kind = "self";
    desc.size = 2;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    desc.rank = 2;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_RANK);
    desc.size = -1;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_RANK);
    desc.rank = 0;
    desc.size = 1;
    desc.flags = 2;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    desc.flags = 0;
    /* A pointer that the kind does not read. */
    desc.mpi_comm = &not_read;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "desc.mpi_comm is set, and kind \"self\" does not read it") != NULL);
    desc.kind = "auto";
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    desc.kind = NULL;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "desc.mpi_comm is set, and kind \"auto\"") != NULL);
    desc.rdma = &config;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("desc.mpi_comm and desc.rdma are set");
    desc.mpi_comm = NULL, desc.rdma = NULL, desc.config = &out;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("desc.config is set");
    desc.config = NULL, desc.rdma = &config;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("desc.rdma is set");
    desc.rdma = NULL, desc.reserved = 1;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("desc.reserved");
    desc.reserved = 0;
    desc.struct_size = 3;
    CHECK_STATUS(dtl_comm_open(&desc, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("struct_size");
    CHECK(out.id == 77);
}

static void what_it_tells(void) {
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    int rank = -1, size = -1;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(rank == me && size == ranks && info.rank == me && info.size == ranks && info.failed_count == 0);
    CHECK(strcmp(info.kind, kind) == 0 && info.transport[0] != '\0');
    CHECK(info.timeout_ns == MILLISECONDS(60000));
}

static void predefined_ones(void) {
    dtl_comm_t world = DTL_COMM_NULL;
    int round, rank, size, value, got;
    if (is_mail()) return;
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_init(NULL));
    for (round = 0; round < 3; round++) {
        CHECK_OK(dtl_comm_get_world(&world));
        CHECK(world.id == DTL_COMM_WORLD.id);
        CHECK_OK(dtl_comm_rank(world, &rank));
        CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &size));
        if (strcmp(kind, "shm") == 0) CHECK(rank == me && size == ranks);
        value = rank;
        CHECK_OK(dtl_comm_allreduce(world, &value, &got, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
        CHECK(got == size * (size - 1) / 2);
        CHECK_OK(dtl_comm_size(DTL_COMM_SELF, &size));
        CHECK(size == 1);
        CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF));
        CHECK_OK(dtl_comm_destroy(DTL_COMM_SELF));
        CHECK_OK(dtl_comm_destroy(DTL_COMM_WORLD));
        CHECK_OK(dtl_comm_barrier(DTL_COMM_WORLD));
        CHECK_OK(dtl_finalize());
        CHECK_STATUS(dtl_comm_barrier(DTL_COMM_WORLD), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_init(NULL));
    }
    CHECK_OK(dtl_finalize());
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    next = (me + 1) % ranks;
    previous = (me + ranks - 1) % ranks;
    what_it_tells();
    wrong_arguments();
    wrong_descriptions();
    messages_to_oneself();
    exchanges_round_the_ring();
    no_overtaking();
    those_posted_first_come_first();
    tags_select();
    from_anybody();
    nobody();
    longer_than_the_buffer();
    many_requests_at_once();
    windows_of_requests();
    waiting_and_asking();
    withdrawing();
    time_limits();
    two_communicators();
    waiting_on_one_moves_the_others();
    two_threads();
    destroying();
    predefined_ones();
    finish();
    return 0;
}
