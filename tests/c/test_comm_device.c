/* Messages from and to memory that the host cannot touch (far.h: a direct access ends the test): every call, all sizes
 * around the parts, truncation, time limits, copies that fail at the first part, in the middle and at the end. */
#include "comm_kinds.h"
#include "far.h"

enum { PART = 1 << 20, ROOM = 4 * PART + 64, GUARD = 0x5A };
static dtl_backend_t far_away;
static dtl_comm_t comm;
static unsigned char *host, *check, *device[2];

static struct far far_self;

static void far_begin(void) {
    int i;
    far_away = far_register("far", &far_self);
    for (i = 0; i < 2; i++) CHECK_OK(dtl_mem_alloc(far_away, DTL_MEMORY_DEVICE, ROOM, 0, (void **)&device[i]));
    host = (unsigned char *)malloc(ROOM), check = (unsigned char *)malloc(ROOM);
    CHECK(host != NULL && check != NULL);
}

/* From here on so many copies go well, the others do not; -1: all do. */
static void good_copies(int count) {
    far_self.failure = count < 0 ? DTL_SUCCESS : DTL_ERROR_MEMORY;
    far_self.good_copies = count;
    far_self.text = "the bus is on fire";
}

/* Whether messages go in parts between ranks 0 and 1. */
static int in_parts(void) { return ranks > 1 && (strcmp(kind, "shm") == 0 || strcmp(kind, "hier") == 0); }

static void far_end(void) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    int i;
    for (i = 0; i < 2; i++) CHECK_OK(dtl_mem_free(far_away, device[i]));
    CHECK_OK(dtl_mem_stats(far_away, &stats));
    CHECK(stats.live_count == 0 && stats.live_bytes == 0);
    free(host), free(check);
    CHECK_OK(dtl_backend_unregister(far_away));
}

/* What the ranks send lies in device[0] or host, from the byte `shift` on; received is at device[1] or check. */
static unsigned char *out_at(int is_far, uint64_t size, int number, int shift) {
    fill(host + shift, size, number);
    if (is_far) CHECK_OK(dtl_mem_copy(device[0] + shift, host + shift, size));
    return (is_far ? device[0] : host) + shift;
}

static unsigned char *in_at(int is_far, int shift) {
    memset(check, GUARD, ROOM);
    if (is_far) CHECK_OK(dtl_mem_copy(device[1], check, ROOM));
    return (is_far ? device[1] : check) + shift;
}

static void check_in(int is_far, uint64_t size, int number, int shift) {
    if (is_far) CHECK_OK(dtl_mem_copy(check, device[1], ROOM));
    CHECK(is_all(check, (uint64_t)shift, GUARD));
    CHECK(is_filled(check + shift, size, number));
    CHECK(is_all(check + shift + size, ROOM - size - (uint64_t)shift, GUARD));
}

static int next(void) { return (me + 1) % ranks; }
static int before(void) { return (me + ranks - 1) % ranks; }

/* Round the ring, each rank with other memory; `how`: 0 requests, 1 sendrecv, 2 persistent, twice, 3 a probed message. */
static void ring(uint64_t size, int out_far, int in_far, int how) {
    const int shift = out_far ? 3 : 16;
    unsigned char *out = out_at(out_far, size, me, shift), *in = in_at(in_far, shift);
    const uint64_t room = size + 5 > ROOM - 64 ? size : size + 5;
    dtl_recv_info_t info;
    dtl_request_t requests[2];
    dtl_message_t message;
    int turn;
    memset(&info, 0, sizeof info);
    if (how == 1) {
        CHECK_OK(dtl_comm_sendrecv(comm, out, size, next(), 7, in, room, before(), 7, DTL_DTYPE_BYTE, &info));
    } else if (how == 2) {
        CHECK_OK(dtl_comm_send_init(comm, out, size, DTL_DTYPE_BYTE, next(), 7, &requests[0]));
        CHECK_OK(dtl_comm_recv_init(comm, in, room, DTL_DTYPE_BYTE, before(), 7, &requests[1]));
        for (turn = 0; turn < 2; turn++) {
            CHECK_OK(dtl_request_start(requests[1]));
            CHECK_OK(dtl_request_start(requests[0]));
            CHECK_OK(dtl_request_wait(requests[1], MILLISECONDS(60000), &info));
            CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
        }
        CHECK_OK(dtl_request_destroy(requests[0]));
        CHECK_OK(dtl_request_destroy(requests[1]));
    } else if (how == 3) {
        CHECK_OK(dtl_comm_isend(comm, out, size, DTL_DTYPE_BYTE, next(), 7, &requests[0]));
        CHECK_OK(dtl_comm_mprobe(comm, DTL_ANY_SOURCE, DTL_ANY_TAG, &message, &info));
        CHECK(info.size_bytes == size && info.source == before() && info.tag == 7);
        if (me % 2) {
            CHECK_OK(dtl_comm_mrecv(message, in, room, DTL_DTYPE_BYTE, &info));
        } else {
            CHECK_OK(dtl_comm_imrecv(message, in, room, DTL_DTYPE_BYTE, &requests[1]));
            CHECK_OK(dtl_request_wait(requests[1], MILLISECONDS(60000), &info));
        }
        CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
    } else {
        CHECK_OK(dtl_comm_irecv(comm, in, room, DTL_DTYPE_BYTE, me % 2 ? DTL_ANY_SOURCE : before(), 7, &requests[1]));
        CHECK_OK(dtl_comm_issend(comm, out, size, DTL_DTYPE_BYTE, next(), 7, &requests[0]));
        CHECK_OK(dtl_request_wait(requests[1], MILLISECONDS(60000), &info));
        CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
    }
    CHECK(info.size_bytes == size && info.source == before() && info.tag == 7 && info.status == DTL_SUCCESS);
    check_in(in_far, size, before(), shift);
    CHECK_OK(dtl_comm_barrier(comm));
}

static void test_rings(void) {
    const uint64_t sizes[] = {0, 1, 300, 20000, PART, PART + 1, 2 * PART, 4 * PART - 7};
    int i, how;
    for (i = 0; i < 8; i++) {
        /* The ranks' buffers are not alike. */
        ring(sizes[i], me % 2, (me + i) % 2, i % 4);
    }
    for (how = 0; how < 4; how++) ring(3 * PART + 5, 1, 1, how);
    CHECK_OK(dtl_comm_sendrecv_replace(comm, out_at(1, 3000, me, 0), 3000, DTL_DTYPE_BYTE, next(), 1, before(), 1, NULL));
    CHECK_OK(dtl_mem_copy(check, device[0], 3000));
    CHECK(is_filled(check, 3000, before()));
    CHECK_OK(dtl_comm_send(comm, device[0], ROOM, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0));
    CHECK_STATUS(dtl_comm_send(comm, device[0] + 1, ROOM, DTL_DTYPE_BYTE, next(), 0), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_TEXT("the host cannot reach");
}

/* Rank 0 sends to rank 1, blocking. */
static void test_blocking(void) {
    dtl_recv_info_t info;
    int in_far;
    for (in_far = 0; in_far < 2 && ranks > 1; in_far++) {
        if (me == 0) {
            CHECK_OK(dtl_comm_send(comm, out_at(1, 3 * PART + 9, 1, 0), 3 * PART + 9, DTL_DTYPE_BYTE, 1, 3));
            CHECK_OK(dtl_comm_ssend(comm, out_at(1, 50, 2, 0), 50, DTL_DTYPE_BYTE, 1, 3));
            CHECK_OK(dtl_comm_send(comm, out_at(1, 2 * PART, 3, 0), 2 * PART, DTL_DTYPE_BYTE, 1, 3));
        }
        if (me == 1) {
            CHECK_OK(dtl_comm_recv(comm, in_at(in_far, 8), ROOM - 8, DTL_DTYPE_BYTE, 0, 3, NULL));
            check_in(in_far, 3 * PART + 9, 1, 8);
            CHECK_OK(dtl_comm_recv(comm, in_at(in_far, 8), ROOM - 8, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 3, NULL));
            check_in(in_far, 50, 2, 8);
            CHECK_STATUS(dtl_comm_recv(comm, in_at(in_far, 8), PART + 100, DTL_DTYPE_BYTE, 0, 3, &info), DTL_ERROR_TRUNCATED);
            CHECK(info.size_bytes == 2 * PART && info.status == DTL_ERROR_TRUNCATED);
            check_in(in_far, PART + 100, 3, 8);
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

/* A buffer that ends too early is refused before the message is taken. */
static void keeps_its_message(void) {
    dtl_message_t message;
    dtl_request_t send, receive;
    CHECK_OK(dtl_comm_isend(comm, out_at(1, 50, 5, 0), 50, DTL_DTYPE_BYTE, me, 4, &send));
    CHECK_OK(dtl_comm_mprobe(comm, me, 4, &message, NULL));
    CHECK_STATUS(dtl_comm_mrecv(message, device[1] + 8, ROOM, DTL_DTYPE_BYTE, NULL), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_comm_imrecv(message, device[1] + 8, ROOM, DTL_DTYPE_BYTE, &receive), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_comm_mrecv(message, in_at(1, 8), 50, DTL_DTYPE_BYTE, NULL));
    check_in(1, 50, 5, 8);
    CHECK_OK(dtl_request_wait(send, DTL_TIMEOUT_INFINITE, NULL));
}

/* A receive that nobody serves gives up, and what comes later is not its business; so does a send. */
static void test_limits(void) {
    dtl_comm_t hasty = open_hasty(comm);
    dtl_request_t request;
    if (me == 0) {
        CHECK_STATUS(dtl_comm_recv(hasty, in_at(1, 0), PART, DTL_DTYPE_BYTE, me, 1, NULL), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_comm_irecv(hasty, device[1], PART, DTL_DTYPE_BYTE, me, 1, &request));
        CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(5), NULL), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_request_cancel(request));
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        CHECK_OK(dtl_comm_irecv(hasty, device[1], PART, DTL_DTYPE_BYTE, me, 1, &request));
        CHECK_OK(dtl_request_destroy(request));
        check_in(1, 0, 0, 0);
        keeps_its_message();
        if (ranks > 1) {
            CHECK_STATUS(dtl_comm_send(hasty, device[0], 4 * PART, DTL_DTYPE_BYTE, 1, 2), DTL_ERROR_TIMEOUT);
            CHECK_OK(dtl_comm_isend(hasty, device[0], 4 * PART, DTL_DTYPE_BYTE, 1, 2, &request));
            CHECK_OK(dtl_request_cancel(request));
            CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
            CHECK_OK(dtl_comm_isend(hasty, NULL, 0, DTL_DTYPE_BYTE, 1, 9, &request)); /* arrives after the cancellation */
        }
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0 && ranks > 1) CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    if (me == 1) {
        int found = 1;
        CHECK_OK(dtl_comm_irecv(hasty, NULL, 0, DTL_DTYPE_BYTE, 0, 9, &request));
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        CHECK_OK(dtl_comm_iprobe(hasty, 0, 2, &found, NULL));
        CHECK(!found);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_irecv(hasty, device[1], PART, DTL_DTYPE_BYTE, me, 1, &request)); /* it goes with its communicator */
    CHECK_OK(dtl_comm_destroy(hasty));
    CHECK_OK(dtl_comm_barrier(comm));
}

/* The first copy of a send fails: nothing is sent. */
static void failing_send(void) {
    dtl_request_t request;
    if (me == 0) {
        good_copies(0);
        CHECK_STATUS(dtl_comm_send(comm, device[0], 4 * PART, DTL_DTYPE_BYTE, 1, 4), DTL_ERROR_MEMORY);
        CHECK_TEXT("the bus is on fire");
        CHECK_STATUS(dtl_comm_send(comm, device[0], 5, DTL_DTYPE_BYTE, 1, 4), DTL_ERROR_MEMORY);
        CHECK_STATUS(dtl_comm_isend(comm, device[0], 4 * PART, DTL_DTYPE_BYTE, 1, 4, &request), DTL_ERROR_MEMORY);
        good_copies(-1);
    }
    CHECK_OK(dtl_comm_barrier(comm));
}

/* A copy of a receive fails. How many there are says the time; that one failed, the receive says. */
static void failing_recv(int good) {
    dtl_recv_info_t info;
    dtl_request_t request;
    const uint64_t size = 3 * PART + 100;
    int turn;
    for (turn = 0; turn < 2; turn++) {
        if (me == 0) CHECK_OK(dtl_comm_send(comm, out_at(turn, size, 6, 0), size, DTL_DTYPE_BYTE, 1, 4));
        if (me == 1) {
            unsigned char *in = in_at(1, 0);
            dtl_status_t status;
            int has_failed;
            good_copies(good);
            if (turn == 0) {
                status = dtl_comm_recv(comm, in, size, DTL_DTYPE_BYTE, 0, 4, &info);
            } else {
                CHECK_OK(dtl_comm_irecv(comm, in, size, DTL_DTYPE_BYTE, 0, 4, &request));
                status = dtl_request_wait(request, MILLISECONDS(60000), &info);
                CHECK(info.status == status && info.source == 0 && info.size_bytes == size);
            }
            has_failed = far_self.good_copies < 0;
            good_copies(-1);
            CHECK_STATUS(status, has_failed ? DTL_ERROR_MEMORY : DTL_SUCCESS);
            if (has_failed) CHECK_TEXT("the bus is on fire");
            else check_in(1, size, 6, 0);
            CHECK(has_failed || good > 0);
        }
        CHECK_OK(dtl_comm_barrier(comm));
    }
}

/* The message is sent while its receive is there already, so that a failure in the middle meets both at work. */
static void failing_in_the_middle(void) {
    const uint64_t size = 4 * PART;
    dtl_request_t request;
    dtl_status_t status;
    int is_told = 0;
    if (me == 0) {
        (void)out_at(1, size, 5, 0);
        CHECK_OK(dtl_comm_recv(comm, NULL, 0, DTL_DTYPE_BYTE, 1, 8, NULL));
        good_copies(2);
        status = dtl_comm_send(comm, device[0], size, DTL_DTYPE_BYTE, 1, 4);
        good_copies(-1);
        is_told = status == DTL_ERROR_MEMORY;
        if (!is_told) CHECK_OK(status);
        CHECK_OK(dtl_comm_send(comm, &is_told, 1, DTL_DTYPE_INT32, 1, 9));
    }
    if (me == 1) {
        CHECK_OK(dtl_comm_irecv(comm, in_at(1, 0), size, DTL_DTYPE_BYTE, 0, 4, &request));
        CHECK_OK(dtl_comm_send(comm, NULL, 0, DTL_DTYPE_BYTE, 0, 8));
        status = dtl_request_wait(request, MILLISECONDS(60000), NULL);
        CHECK_OK(dtl_comm_recv(comm, &is_told, 1, DTL_DTYPE_INT32, 0, 9, NULL));
        CHECK(status == (is_told ? DTL_ERROR_MEMORY : DTL_SUCCESS));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me < 2) CHECK(is_told == in_parts());
}

static void test_failures(void) {
    if (ranks < 2) return;
    failing_send();
    failing_recv(0);
    failing_recv(1);
    failing_in_the_middle();
    test_blocking(); /* nothing is left of all that */
}

static void test_windows(void) {
    dtl_win_t win;
    char *base;
    CHECK_STATUS(dtl_win_create(comm, device[0], 64, 1, &win), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("device memory");
    CHECK_OK(dtl_win_allocate(comm, 64, 1, (void **)&base, &win));
    CHECK_OK(dtl_win_fence(win));
    CHECK_STATUS(dtl_win_put(win, device[0], 8, DTL_DTYPE_BYTE, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("dtl_win_put");
    CHECK_STATUS(dtl_win_get(win, device[0], 8, DTL_DTYPE_BYTE, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_win_accumulate(win, device[0], 1, DTL_DTYPE_INT32, DTL_OP_SUM, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(dtl_win_fetch_op(win, device[0], check, DTL_DTYPE_INT32, DTL_OP_SUM, 0, 0), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_win_fence(win));
    CHECK_OK(dtl_win_destroy(win));
}

static void test_explained(void) {
    char text[8192];
    uint64_t len;
    CHECK_OK(dtl_explain(text, sizeof text, &len));
    CHECK(strstr(text, "messages of far memory \"device\" over") != NULL);
    CHECK(strstr(text, "staged through host memory") != NULL);
    if (in_parts()) CHECK(strstr(text, "in parts") != NULL && strstr(text, "1024 KiB") != NULL);
}

int main(int argc, char **argv) {
    start(argc, argv);
    far_begin();
    comm = open_comm();
    test_rings();
    test_blocking();
    test_limits();
    test_failures();
    if (ranks > 1) looks_move_on(comm, device[0], check, 4 * PART);
    test_windows();
    test_explained();
    CHECK_OK(dtl_comm_destroy(comm));
    far_end();
    finish();
    return 0;
}
