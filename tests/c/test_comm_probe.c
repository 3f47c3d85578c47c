/* Synchronous sends, probing, exchanges in one buffer, persistent requests, waiting for some of many. */
#include "comm_kinds.h"
#include <pthread.h>

static dtl_comm_t comm;
static int next, before;

static void test_ssend(void) {
    int32_t value = me, got = -1, done = -1;
    dtl_request_t request;
    dtl_recv_info_t info;
    /* Not done before its receive has begun, whatever is sent beside it. */
    CHECK_OK(dtl_comm_issend(comm, &value, 1, DTL_DTYPE_INT32, next, 3, &request));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_request_test(request, &done, NULL));
    CHECK(done == 0);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, before, 3, &info));
    CHECK(got == before && info.size_bytes == 4);
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    /* No bytes, and many. */
    CHECK_OK(dtl_comm_issend(comm, NULL, 0, DTL_DTYPE_INT32, next, 4, &request));
    got = -7;
    CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, before, 4, &info));
    CHECK(info.size_bytes == 0 && info.tag == 4 && got == -7);
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_comm_ssend(comm, &value, 1, DTL_DTYPE_INT32, DTL_PROC_NULL, 4));
    /* Standard and synchronous ones do not overtake each other. */
    if (ranks > 1) {
        int32_t i, values[8];
        dtl_request_t requests[8];
        for (i = 0; i < 8; i++) {
            values[i] = i;
            if (i % 2) CHECK_OK(dtl_comm_issend(comm, &values[i], 1, DTL_DTYPE_INT32, next, 5, &requests[i]));
            else CHECK_OK(dtl_comm_isend(comm, &values[i], 1, DTL_DTYPE_INT32, next, 5, &requests[i]));
        }
        for (i = 0; i < 8; i++) {
            CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, before, 5, NULL));
            CHECK(got == i);
        }
        CHECK_OK(dtl_request_wait_all(requests, 8, MILLISECONDS(60000), NULL));
    }
    /* One that nobody takes is withdrawn. */
    CHECK_OK(dtl_comm_issend(comm, &value, 1, DTL_DTYPE_INT32, next, 6, &request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(20), NULL), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_barrier(comm));
}

static void probe_here(int32_t level, const char *text, void *user) {
    int32_t found;
    CHECK_OK(dtl_comm_iprobe(comm, DTL_ANY_SOURCE, 45, &found, NULL));
    (void)level, (void)text, (void)user;
}

/* The log function may use the communicator whose transport logs (kind shm: how large messages are copied). */
static void test_log(void) {
    enum { LARGE = 70000, MANY = 64 };
    static unsigned char out[LARGE], in[LARGE];
    int i;
    CHECK_OK(dtl_log_set_callback(probe_here, NULL, DTL_LOG_DEBUG));
    for (i = 0; i < MANY; i++) {
        CHECK_OK(dtl_comm_sendrecv(comm, out, LARGE, next, 44, in, LARGE, before, 44, DTL_DTYPE_BYTE, NULL));
    }
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN));
    CHECK_OK(dtl_comm_barrier(comm));
}

static void test_probe(void) {
    enum { LARGE = 200000 };
    static unsigned char out[LARGE], in[LARGE];
    dtl_request_t request;
    dtl_recv_info_t info;
    int32_t found = -1;
    CHECK_OK(dtl_comm_iprobe(comm, DTL_ANY_SOURCE, 40, &found, &info));
    CHECK(found == 0);
    CHECK_OK(dtl_comm_iprobe(comm, DTL_PROC_NULL, 40, &found, &info));
    CHECK(found == 1 && info.source == DTL_PROC_NULL && info.size_bytes == 0);
    fill(out, LARGE, me);
    CHECK_OK(dtl_comm_isend(comm, out, LARGE, DTL_DTYPE_BYTE, next, 41, &request));
    CHECK_OK(dtl_comm_probe(comm, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
    CHECK(info.source == before && info.tag == 41 && info.size_bytes == LARGE);
    CHECK_OK(dtl_comm_probe(comm, before, 41, &info)); /* it is still there */
    CHECK_OK(dtl_comm_recv(comm, in, LARGE, DTL_DTYPE_BYTE, before, 41, &info));
    CHECK(is_filled(in, LARGE, before));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_STATUS(dtl_comm_probe(comm, ranks, 0, &info), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_iprobe(comm, 0, -2, &found, &info), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_iprobe(comm, 0, 0, NULL, &info), DTL_ERROR_NULL_POINTER);
    {
        dtl_comm_t hasty = open_hasty(comm);
        CHECK_STATUS(dtl_comm_probe(hasty, DTL_ANY_SOURCE, 1, &info), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_comm_destroy(hasty));
    }
}

static void test_mprobe(void) {
    static const uint64_t sizes[] = {0, 4, 5000, 150000};
    static unsigned char out[4][150000], in[150000];
    dtl_request_t requests[4], request;
    dtl_message_t messages[4], message;
    dtl_recv_info_t info;
    int32_t found = -1;
    int i;
    for (i = 0; i < 4; i++) {
        fill(out[i], sizes[i], i + me);
        CHECK_OK(dtl_comm_isend(comm, out[i], sizes[i], DTL_DTYPE_BYTE, next, 50, &requests[i]));
    }
    /* Taken in the order sent, received in another. */
    for (i = 0; i < 4; i++) {
        CHECK_OK(dtl_comm_mprobe(comm, before, 50, &messages[i], &info));
        CHECK(info.size_bytes == sizes[i] && info.source == before && info.tag == 50);
    }
    CHECK_OK(dtl_comm_improbe(comm, before, 50, &found, &message, NULL));
    CHECK(found == 0);
    for (i = 3; i >= 0; i--) {
        if (i % 2) {
            CHECK_OK(dtl_comm_imrecv(messages[i], in, sizeof in, DTL_DTYPE_BYTE, &request));
            CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), &info));
        } else {
            CHECK_OK(dtl_comm_mrecv(messages[i], in, sizeof in, DTL_DTYPE_BYTE, &info));
        }
        CHECK(info.size_bytes == sizes[i] && is_filled(in, sizes[i], i + before));
        CHECK_STATUS(dtl_comm_mrecv(messages[i], in, sizeof in, DTL_DTYPE_BYTE, NULL), DTL_ERROR_INVALID_HANDLE);
    }
    CHECK_OK(dtl_request_wait_all(requests, 4, MILLISECONDS(60000), NULL));
    /* Too short a buffer: cut, with the true size. */
    CHECK_OK(dtl_comm_isend(comm, out[2], 5000, DTL_DTYPE_BYTE, next, 51, &request));
    CHECK_OK(dtl_comm_mprobe(comm, DTL_ANY_SOURCE, 51, &message, NULL));
    CHECK_STATUS(dtl_comm_mrecv(message, in, 10, DTL_DTYPE_BYTE, &info), DTL_ERROR_TRUNCATED);
    CHECK(info.size_bytes == 5000 && is_filled(in, 10, 2 + before));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_comm_mprobe(comm, DTL_PROC_NULL, 1, &message, &info));
    CHECK_OK(dtl_comm_mrecv(message, in, 10, DTL_DTYPE_BYTE, &info));
    CHECK(info.source == DTL_PROC_NULL && info.size_bytes == 0 && info.tag == DTL_ANY_TAG);
}

static void test_replace(void) {
    enum { COUNT = 30000 };
    static int32_t buffer[COUNT];
    dtl_recv_info_t info;
    int i;
    for (i = 0; i < COUNT; i++) buffer[i] = me * COUNT + i;
    CHECK_OK(dtl_comm_sendrecv_replace(comm, buffer, COUNT, DTL_DTYPE_INT32, next, 7, before, 7, &info));
    for (i = 0; i < COUNT; i++) CHECK(buffer[i] == before * COUNT + i);
    CHECK(info.source == before && info.size_bytes == COUNT * 4);
    CHECK_OK(dtl_comm_sendrecv_replace(comm, buffer, 1, DTL_DTYPE_INT32, DTL_PROC_NULL, 7, DTL_PROC_NULL, 7, &info));
    CHECK(buffer[0] == before * COUNT && info.source == DTL_PROC_NULL);
}

static void test_persistent(void) {
    int32_t out = 0, in = -1, done = -1, round;
    dtl_request_t pair[2], plain;
    dtl_recv_info_t infos[2];
    CHECK_OK(dtl_comm_send_init(comm, &out, 1, DTL_DTYPE_INT32, next, 60, &pair[0]));
    CHECK_OK(dtl_comm_recv_init(comm, &in, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 60, &pair[1]));
    CHECK_OK(dtl_request_wait(pair[0], 0, NULL)); /* at rest */
    CHECK_OK(dtl_request_test(pair[1], &done, NULL));
    CHECK(done == 1);
    for (round = 0; round < 50; round++) {
        const dtl_request_t kept = pair[1];
        out = me * 100 + round;
        CHECK_OK(dtl_request_start_all(pair, 2));
        if (round == 0) CHECK_STATUS(dtl_request_start(pair[1]), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_request_wait_all(pair, 2, MILLISECONDS(60000), infos));
        CHECK(in == before * 100 + round && infos[1].source == before && pair[1].id == kept.id);
    }
    /* An active receive that nothing matches is withdrawn with its request. */
    CHECK_OK(dtl_request_start(pair[1]));
    CHECK_OK(dtl_request_destroy(pair[1]));
    CHECK_OK(dtl_request_destroy(pair[0]));
    CHECK_STATUS(dtl_request_destroy(pair[0]), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_start(pair[0]), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_irecv(comm, &in, 1, DTL_DTYPE_INT32, before, 61, &plain));
    CHECK_STATUS(dtl_request_start(plain), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("persistent");
    CHECK_OK(dtl_request_destroy(plain));
    CHECK_STATUS(dtl_comm_send_init(comm, &out, 1, DTL_DTYPE_INT32, ranks, 60, &plain), DTL_ERROR_INVALID_RANK);
    CHECK_OK(dtl_comm_barrier(comm));
}

static void test_some_of_many(void) {
    int32_t in[6], out = me, done = -1, seen = 0, i;
    dtl_status_t status;
    dtl_request_t requests[6], nothing[2] = {DTL_REQUEST_NULL, DTL_REQUEST_NULL};
    dtl_recv_info_t infos[6], info;
    uint64_t index = 9, count = 9, indices[6];
    for (i = 0; i < 6; i++) CHECK_OK(dtl_comm_irecv(comm, &in[i], 1, DTL_DTYPE_INT32, before, 70 + i, &requests[i]));
    CHECK_STATUS(dtl_request_wait_any(requests, 6, MILLISECONDS(10), &index, NULL), DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_request_wait_some(requests, 6, 0, &count, indices, infos), DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_request_test_all(requests, 6, &done, infos));
    CHECK(done == 0 && index == 9 && count == 9);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, 73));
    CHECK_OK(dtl_request_wait_any(requests, 6, MILLISECONDS(60000), &index, &info));
    CHECK(index == 3 && in[3] == before && info.tag == 73 && requests[3].id == 0);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, 70));
    CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, 75));
    while (seen < 2) {
        CHECK_OK(dtl_request_wait_some(requests, 6, MILLISECONDS(60000), &count, indices, infos));
        CHECK(count >= 1 && count <= 2);
        for (i = 0; i < (int32_t)count; i++) {
            CHECK((indices[i] == 0 || indices[i] == 5) && infos[i].tag == 70 + (int32_t)indices[i]);
            CHECK(requests[indices[i]].id == 0);
        }
        seen += (int32_t)count;
    }
    CHECK_OK(dtl_comm_barrier(comm));
    for (i = 71; i < 75; i++)
        if (i != 73) CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, i));
    for (done = 0; !done;) CHECK_OK(dtl_request_test_all(requests, 6, &done, infos));
    for (i = 0; i < 6; i++) CHECK(requests[i].id == 0 && in[i] == before);
    CHECK_OK(dtl_request_wait_any(nothing, 2, 0, &index, NULL));
    CHECK(index == DTL_NO_INDEX);
    CHECK_OK(dtl_request_wait_some(nothing, 2, 0, &count, indices, NULL));
    CHECK(count == 0);
    CHECK_OK(dtl_request_wait_any(NULL, 0, 0, &index, NULL));
    CHECK_STATUS(dtl_request_wait_any(NULL, 1, 0, &index, NULL), DTL_ERROR_NULL_POINTER);
    /* One handle twice in a list: one outcome, one refusal, no crash. */
    CHECK_OK(dtl_comm_irecv(comm, &in[0], 1, DTL_DTYPE_INT32, before, 80, &requests[0]));
    requests[1] = requests[0];
    CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, 80));
    CHECK_STATUS(dtl_request_wait_all(requests, 2, MILLISECONDS(60000), infos), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("requests[1]");
    CHECK(infos[0].status == DTL_SUCCESS && in[0] == before && requests[0].id == 0 && requests[1].id == 0);
    CHECK_OK(dtl_comm_irecv(comm, &in[0], 1, DTL_DTYPE_INT32, before, 80, &requests[0]));
    requests[1] = requests[0];
    CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, 80));
    do {
        status = dtl_request_test_all(requests, 2, &done, infos);
    } while (status == DTL_SUCCESS && !done);
    CHECK(status == DTL_ERROR_INVALID_HANDLE && requests[0].id == 0 && requests[1].id == 0);
    CHECK_TEXT("requests[1]");
    CHECK(infos[0].status == DTL_SUCCESS && infos[1].status == DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_irecv(comm, &in[0], 1, DTL_DTYPE_INT32, before, 80, &requests[0]));
    requests[1] = requests[0];
    /* Once the second message is there, so is the first: the wait finds the request done at once. */
    for (i = 80; i <= 81; i++) CHECK_OK(dtl_comm_send(comm, &out, 1, DTL_DTYPE_INT32, next, i));
    CHECK_OK(dtl_comm_recv(comm, &in[1], 1, DTL_DTYPE_INT32, before, 81, NULL));
    CHECK_STATUS(dtl_request_wait_some(requests, 2, MILLISECONDS(60000), &count, indices, infos), DTL_ERROR_INVALID_HANDLE);
    CHECK_TEXT("requests[1]");
    CHECK(count == 2 && indices[0] == 0 && indices[1] == 1 && requests[0].id == 0 && requests[1].id == 0);
    CHECK(infos[0].status == DTL_SUCCESS && infos[1].status == DTL_ERROR_INVALID_HANDLE);
}

/* Starts the requests of a list: every eighth is null, others are persistent, from any source or on the communicator
 * `other`. The barrier is not complete before all ranks have started it, and the message for SHORT does not fit. */
enum { MIXED = 40, BARRIER = 5, SHORT = 23, SENT = 38 };
static void start_mixed(dtl_comm_t other, int32_t *in, dtl_request_t *list) {
    static int32_t out[2];
    int32_t i, source;
    out[0] = out[1] = me;
    for (i = 0; i < MIXED; i++) {
        dtl_comm_t on = i % 8 == 3 ? other : comm;
        source = i % 8 == 2 ? DTL_ANY_SOURCE : before;
        in[i] = -1, list[i] = DTL_REQUEST_NULL;
        if (i == BARRIER) CHECK_OK(dtl_comm_ibarrier(comm, &list[i]));
        else if (i == SENT) CHECK_OK(dtl_comm_isend(comm, out, 1, DTL_DTYPE_INT32, next, 99, &list[i]));
        else if (i % 8 == 1) CHECK_OK(dtl_comm_recv_init(comm, &in[i], 1, DTL_DTYPE_INT32, source, 100 + i, &list[i]));
        else if (i % 8 != 0) CHECK_OK(dtl_comm_irecv(on, &in[i], 1, DTL_DTYPE_INT32, source, 100 + i, &list[i]));
        if (i % 8 == 1) CHECK_OK(dtl_request_start(list[i]));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    for (i = 0; i < MIXED; i++) {
        if (i == BARRIER || i == SENT || i % 8 == 0) continue;
        CHECK_OK(dtl_comm_send(i % 8 == 3 ? other : comm, out, i == SHORT ? 2 : 1, DTL_DTYPE_INT32, next, 100 + i));
    }
    CHECK_OK(dtl_comm_send(comm, out, 1, DTL_DTYPE_INT32, next, 98));
    /* Once the last message is there, so are all others. */
    for (i = 98; i <= 99; i++) CHECK_OK(dtl_comm_recv(comm, &source, 1, DTL_DTYPE_INT32, before, i, NULL));
}

static void end_mixed(const int32_t *in, dtl_request_t *list) {
    int32_t i;
    for (i = 0; i < MIXED; i++) {
        CHECK((i % 8 == 1) == (list[i].id != 0));
        if (i % 8 != 0 && i != BARRIER && i != SENT && i != SHORT) CHECK(in[i] == before);
        CHECK_OK(dtl_request_destroy(list[i]));
    }
}

/* Waits for lists of more requests than one call of the transport tests. */
static void test_mixed_lists(void) {
    int32_t in[MIXED], i, done = 0, last = -1, seen = 0, is_last;
    dtl_status_t status;
    dtl_request_t list[MIXED];
    dtl_recv_info_t infos[MIXED];
    uint64_t index, count, indices[MIXED];
    dtl_comm_t other;
    CHECK_OK(dtl_comm_dup(comm, &other));
    start_mixed(other, in, list);
    for (;;) {
        status = dtl_request_wait_any(list, MIXED, MILLISECONDS(60000), &index, &infos[0]);
        if (index == DTL_NO_INDEX) break;
        CHECK(status == (index == SHORT ? DTL_ERROR_TRUNCATED : DTL_SUCCESS) && index % 8 != 0);
        if (index != BARRIER) {
            CHECK((int32_t)index > last);
            last = (int32_t)index;
        }
        seen++;
    }
    CHECK(status == DTL_SUCCESS && seen == MIXED - MIXED / 8);
    end_mixed(in, list);
    start_mixed(other, in, list);
    for (seen = 0; seen < MIXED - MIXED / 8; seen += (int32_t)count) {
        status = dtl_request_wait_some(list, MIXED, MILLISECONDS(60000), &count, indices, infos);
        for (i = 0, is_last = 0; i < (int32_t)count; i++) {
            CHECK(i == 0 || indices[i] > indices[i - 1]);
            if (indices[i] == SHORT) is_last = 1;
            CHECK(infos[i].status == (indices[i] == SHORT ? DTL_ERROR_TRUNCATED : DTL_SUCCESS));
        }
        CHECK(seen > 0 || count >= MIXED - MIXED / 8 - 1);
        CHECK(status == (is_last ? DTL_ERROR_TRUNCATED : DTL_SUCCESS));
        if (is_last) CHECK_TEXT("requests[23]");
    }
    end_mixed(in, list);
    start_mixed(other, in, list);
    while (!done) status = dtl_request_test_all(list, MIXED, &done, infos);
    CHECK(status == DTL_ERROR_TRUNCATED);
    CHECK_TEXT("requests[23]");
    for (i = 0; i < MIXED; i++) {
        if (i % 8 != 0) CHECK(infos[i].status == (i == SHORT ? DTL_ERROR_TRUNCATED : DTL_SUCCESS));
    }
    end_mixed(in, list);
    start_mixed(other, in, list);
    CHECK_STATUS(dtl_request_wait_all(list, MIXED, MILLISECONDS(60000), infos), DTL_ERROR_TRUNCATED);
    CHECK_TEXT("requests[23]");
    end_mixed(in, list);
    CHECK_OK(dtl_comm_destroy(other));
}

static void *destroy_request(void *request) {
    CHECK_OK(dtl_request_destroy(*(dtl_request_t *)request));
    return NULL;
}

/* A probed message that nobody receives goes with its communicator, though a send of this very rank
 * waits for it. To destroy that send's request withdraws the message. */
static void test_not_received(void) {
    enum { LARGE = 1 << 20 };
    static int32_t out[LARGE], in[LARGE];
    dtl_comm_t copy, other;
    dtl_request_t sent;
    dtl_message_t message;
    pthread_t thread;
    int32_t done = 0;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK_OK(dtl_comm_isend(copy, out, LARGE, DTL_DTYPE_INT32, me, 5, &sent));
    CHECK_OK(dtl_comm_mprobe(copy, me, 5, &message, NULL));
    CHECK_OK(dtl_comm_destroy(copy));
    CHECK_STATUS(dtl_comm_mrecv(message, in, LARGE, DTL_DTYPE_INT32, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_request_test(sent, &done, NULL), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK_OK(dtl_comm_dup(comm, &other));
    CHECK_OK(dtl_comm_isend(copy, out, LARGE, DTL_DTYPE_INT32, me, 5, &sent));
    CHECK_OK(dtl_comm_mprobe(copy, me, 5, &message, NULL));
    CHECK(pthread_create(&thread, NULL, destroy_request, &sent) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_comm_destroy(other));
    CHECK_STATUS(dtl_comm_mrecv(message, in, LARGE, DTL_DTYPE_INT32, NULL), DTL_ERROR_CANCELED);
    CHECK_TEXT("sender cancelled");
    CHECK_OK(dtl_comm_destroy(copy));
}

struct blocked {
    dtl_comm_t comm;
    const int32_t *values;
    uint64_t count;
};

static void *send_until_limit(void *argument) {
    const struct blocked *send = (const struct blocked *)argument;
    CHECK_STATUS(dtl_comm_ssend(send->comm, send->values, send->count, DTL_DTYPE_INT32, next, 8), DTL_ERROR_TIMEOUT);
    return NULL;
}

/* The limit of a sender holds, and its request can be cancelled, also when the message was probed and
 * is not received: its receive then says so and writes nothing. Later messages are not disturbed. */
static void test_probed_and_withdrawn(void) {
    enum { LARGE = 100000 };
    static int32_t out[LARGE], in[LARGE];
    const uint64_t counts[] = {0, 1, 5000, LARGE};
    dtl_comm_t hasty = open_hasty(comm);
    size_t i;
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct blocked send = {hasty, out, 0};
        dtl_request_t request;
        dtl_message_t message;
        dtl_recv_info_t info;
        dtl_status_t status;
        pthread_t thread;
        send.count = counts[i];
        in[0] = -5;
        CHECK_OK(dtl_comm_issend(comm, out, counts[i], DTL_DTYPE_INT32, next, 8, &request));
        CHECK_OK(dtl_comm_mprobe(comm, before, 8, &message, &info));
        CHECK(info.size_bytes == 4 * counts[i]);
        CHECK_OK(dtl_comm_barrier(comm)); /* no message is withdrawn before it was probed */
        CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(5), NULL), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_request_cancel(request));
        CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_STATUS(dtl_comm_mrecv(message, in, LARGE, DTL_DTYPE_INT32, NULL), DTL_ERROR_CANCELED);
        CHECK_TEXT("sender cancelled");
        CHECK(in[0] == -5);
        CHECK(pthread_create(&thread, NULL, send_until_limit, &send) == 0);
        status = dtl_comm_mprobe(hasty, before, 8, &message, NULL);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_OK(dtl_comm_barrier(comm));
        if (status == DTL_SUCCESS)
            CHECK_STATUS(dtl_comm_mrecv(message, in, LARGE, DTL_DTYPE_INT32, NULL), DTL_ERROR_CANCELED);
        else
            CHECK_STATUS(status, DTL_ERROR_TIMEOUT); /* a busy machine: the limit passed before the probe */
        CHECK(in[0] == -5);
        /* The words that such an offer takes in the transport are not lost. */
        out[0] = me;
        CHECK_OK(dtl_comm_sendrecv(comm, out, LARGE, next, 8, in, LARGE, before, 8, DTL_DTYPE_INT32, NULL));
        CHECK(in[0] == before);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(hasty));
}

int main(int argc, char **argv) {
    start(argc, argv);
    comm = open_comm();
    next = (me + 1) % ranks;
    before = (me + ranks - 1) % ranks;
    test_ssend();
    test_probe();
    test_log();
    test_mprobe();
    test_replace();
    test_persistent();
    test_some_of_many();
    test_mixed_lists();
    test_not_received();
    test_probed_and_withdrawn();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    finish();
    return 0;
}
