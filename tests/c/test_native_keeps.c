/* A registered transport that does not give an operation back, never has room, or cannot receive: the time limits of calls
 * hold, and the text says so where the transport still has the buffer. Both ranks are this thread's. C11, and valid C++17. */
#include "check.h"
#include <string.h>

enum { OPS = 4096, LARGE = 50000 };

typedef struct message {
    struct message *next;
    int from, to;
    uint64_t word, size;
    char *bytes;
} message;

typedef struct operation {
    int is_used, is_receive, is_done, rank, source;
    uint64_t word, size, got, age;
    char *buf;
} operation;

static operation operations[OPS];
static message *messages;
static uint64_t age;
static dtl_comm_t ranks[2];
/* The rank whose `test` fails, by its status, by an invalid boolean (is_odd 1), or once it has a receive of a large message, by
 * a frame with another match word (2) or an invalid status (3); the rank whose large messages never find room. */
static int failing = -1, is_odd, refused = -1;
/* The rank that can post this many receives and no more; whether it cannot send either. */
static int unable = -1, can_post, is_mute;

static int rank_of(void *comm) { return comm == (void *)&ranks[1]; }

static operation *new_operation(int rank, uint64_t *word) {
    uint64_t i;
    for (i = 0; i < OPS && operations[i].is_used; i++) {
    }
    CHECK(i < OPS);
    memset(&operations[i], 0, sizeof operations[i]);
    operations[i].is_used = 1;
    operations[i].rank = rank;
    operations[i].age = ++age;
    *word = i;
    return &operations[i];
}

static operation *receive_of(const message *sent) {
    operation *oldest = NULL;
    int i;
    for (i = 0; i < OPS; i++) {
        operation *one = &operations[i];
        if (one->is_used && one->is_receive && !one->is_done && one->rank == sent->to && one->word == sent->word &&
            (one->source == DTL_ANY_SOURCE || one->source == sent->from) && (oldest == NULL || one->age < oldest->age)) {
            oldest = one;
        }
    }
    return oldest;
}

static void match(void) {
    message **at = &messages;
    while (*at != NULL) {
        message *sent = *at;
        operation *to = receive_of(sent);
        if (to == NULL) {
            at = &sent->next;
            continue;
        }
        *at = sent->next;
        to->got = sent->size < to->size ? sent->size : to->size;
        if (to->got > 0) memcpy(to->buf, sent->bytes, to->got);
        to->source = sent->from;
        to->is_done = 1;
        free(sent->bytes);
        free(sent);
    }
}

static dtl_status_t slot_open(void *self, const dtl_comm_open_t *args, void **out, int32_t *rank, int32_t *size) {
    (void)self;
    *out = &ranks[args->rank];
    *rank = args->rank;
    *size = 2;
    return DTL_SUCCESS;
}

static dtl_status_t slot_close(void *self, void *comm) {
    (void)self, (void)comm;
    return DTL_SUCCESS;
}

static dtl_status_t slot_isend(void *self, void *comm, const void *buf, uint64_t size, int32_t dest, uint64_t word,
                               uint64_t *out) {
    message **last = &messages, *sent;
    (void)self;
    if (rank_of(comm) == refused && word != 0) return DTL_ERROR_BUSY;
    if (rank_of(comm) == unable && is_mute) return DTL_ERROR_COMMUNICATION;
    sent = (message *)calloc(1, sizeof *sent);
    CHECK(sent != NULL);
    sent->bytes = (char *)malloc(size + 1);
    CHECK(sent->bytes != NULL);
    if (size > 0) memcpy(sent->bytes, buf, size);
    sent->from = rank_of(comm), sent->to = dest, sent->word = word, sent->size = size;
    while (*last != NULL) last = &(*last)->next;
    *last = sent;
    new_operation(sent->from, out)->is_done = 1;
    return DTL_SUCCESS;
}

static dtl_status_t slot_irecv(void *self, void *comm, void *buf, uint64_t size, int32_t source, uint64_t word,
                               uint64_t ignore, uint64_t *out) {
    operation *one;
    (void)self, (void)ignore;
    if (rank_of(comm) == unable && can_post-- <= 0) return DTL_ERROR_BACKEND;
    one = new_operation(rank_of(comm), out);
    one->is_receive = 1;
    one->source = source, one->word = word, one->size = size;
    one->buf = (char *)buf;
    return DTL_SUCCESS;
}

static int has_large_receive(int rank) {
    int i;
    for (i = 0; i < OPS; i++) {
        const operation *one = &operations[i];
        if (one->is_used && one->is_receive && !one->is_done && one->rank == rank && one->word != 0) return 1;
    }
    return 0;
}

static dtl_status_t slot_test(void *self, void *comm, uint64_t op, int32_t *done, dtl_comm_done_t *result) {
    operation *one = &operations[op];
    (void)self;
    match();
    if (rank_of(comm) == failing && !is_odd) return DTL_ERROR_COMMUNICATION;
    if (rank_of(comm) == failing && is_odd == 1) {
        *done = 2;
        return DTL_SUCCESS;
    }
    if (rank_of(comm) == failing && one->is_receive && one->word == 0 && has_large_receive(failing)) {
        *done = 1;
        if (is_odd == 2) result->match_word = 5;
        if (is_odd == 3) result->status = 31337;
        one->is_used = 0;
        return DTL_SUCCESS;
    }
    *done = one->is_done;
    if (!one->is_done) return DTL_SUCCESS;
    result->match_word = one->word;
    result->size_bytes = one->got;
    result->source = one->source;
    one->is_used = 0;
    return DTL_SUCCESS;
}

static dtl_status_t open_rank(int rank) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "keeps", desc.rank = rank, desc.size = 2, desc.job = "j", desc.timeout_ns = 300000000;
    return dtl_comm_open(&desc, &ranks[rank]);
}

static void reset(void) {
    failing = refused = unable = -1, is_odd = is_mute = 0;
    memset(operations, 0, sizeof operations);
    while (messages != NULL) {
        message *left = messages;
        messages = left->next;
        free(left->bytes);
        free(left);
    }
}

static void open_ranks(void) {
    reset();
    CHECK_OK(open_rank(0));
    CHECK_OK(open_rank(1));
}

static void close_ranks(void) {
    DTL_IGNORE(dtl_comm_destroy(ranks[0]));
    DTL_IGNORE(dtl_comm_destroy(ranks[1]));
}

/* A rank is closed whose transport has not ended its receives: a late message may still be written to them. */
static void buffers_stay_valid(int rank) {
    static char *taken[256];
    const size_t count = sizeof taken / sizeof taken[0];
    int i, posted = 0;
    size_t at;
    for (at = 0; at < count; at++) CHECK((taken[at] = (char *)malloc(LARGE)) != NULL);
    for (i = 0; i < OPS; i++) {
        const operation *one = &operations[i];
        if (!one->is_used || !one->is_receive || one->is_done || one->rank != rank) continue;
        posted++;
        for (at = 0; at < count; at++) {
            const uintptr_t begin = (uintptr_t)taken[at], buf = (uintptr_t)one->buf;
            CHECK(buf + one->size <= begin || buf >= begin + LARGE);
        }
        memset(one->buf, 1, (size_t)one->size);
    }
    CHECK(posted > 0);
    for (at = 0; at < count; at++) free(taken[at]);
}

/* Rank 0's receive has been matched: its buffer is with the transport when rank 1 fails. It lives as long as the process. */
static void a_receive_that_is_not_given_back(void) {
    static char out[LARGE], in[LARGE];
    dtl_request_t sending;
    open_ranks();
    CHECK_OK(dtl_comm_isend(ranks[1], out, LARGE, DTL_DTYPE_BYTE, 0, 1, &sending));
    failing = 1;
    CHECK_STATUS(dtl_comm_recv(ranks[0], in, LARGE, DTL_DTYPE_BYTE, 1, 1, NULL), DTL_ERROR_TIMEOUT);
    CHECK(strstr(dtl_last_error(), "has not given the buffer back") != NULL);
    /* Asking fails where the transport does: nobody says what has become of the buffer. */
    CHECK_STATUS(dtl_comm_recv(ranks[1], in, 4, DTL_DTYPE_BYTE, 0, 1, NULL), DTL_ERROR_COMMUNICATION);
    close_ranks();
    buffers_stay_valid(1);
}

/* An invalid boolean is a failed question, not the end of an operation: the library frees nothing. */
static void an_invalid_boolean_frees_nothing(void) {
    static char in[4];
    open_ranks();
    failing = 1, is_odd = 1;
    CHECK_STATUS(dtl_comm_recv(ranks[1], in, 4, DTL_DTYPE_BYTE, 0, 1, NULL), DTL_ERROR_NATIVE_BACKEND);
    CHECK(strstr(dtl_last_error(), "comm.test on rank 1 of 2 wrote 2 into its boolean output") != NULL);
    close_ranks();
    buffers_stay_valid(1);
}

/* An invalid output for one operation does not mean that the transport has given back the buffers of the others. */
static void an_invalid_frame_gives_nothing_back(int odd, const char *text) {
    static char out[LARGE], in[LARGE];
    dtl_request_t sending;
    open_ranks();
    refused = 1;
    CHECK_OK(dtl_comm_isend(ranks[1], out, LARGE, DTL_DTYPE_BYTE, 0, 1, &sending));
    failing = 0, is_odd = odd;
    CHECK_STATUS(dtl_comm_recv(ranks[0], in, LARGE, DTL_DTYPE_BYTE, 1, 1, NULL), DTL_ERROR_NATIVE_BACKEND);
    CHECK(strstr(dtl_last_error(), text) != NULL);
    CHECK(strstr(dtl_last_error(), "has not given the buffer back") != NULL);
    CHECK_STATUS(dtl_comm_send(ranks[0], out, 1, DTL_DTYPE_BYTE, 1, 1), DTL_ERROR_NATIVE_BACKEND);
    CHECK_OK(dtl_request_cancel(sending));
    refused = -1;
    close_ranks();
}

/* A receive whose buffer the transport has: asking fails by an invalid boolean, once. The operation lives on. */
static void an_invalid_boolean_ends_nothing(void) {
    static char out[LARGE], in[LARGE];
    dtl_request_t sending, receiving;
    dtl_recv_info_t info;
    int32_t done = 0;
    open_ranks();
    is_odd = 1, refused = 1; /* the payload waits */
    CHECK_OK(dtl_comm_irecv(ranks[0], in, LARGE, DTL_DTYPE_BYTE, 1, 1, &receiving));
    CHECK_OK(dtl_comm_isend(ranks[1], out, LARGE, DTL_DTYPE_BYTE, 0, 1, &sending));
    CHECK_OK(dtl_request_test(receiving, &done, NULL));
    CHECK_OK(dtl_request_test(sending, &done, NULL));
    CHECK(done == 0);
    failing = 0;
    CHECK_STATUS(dtl_comm_iprobe(ranks[0], 1, 7, &done, NULL), DTL_ERROR_NATIVE_BACKEND);
    failing = refused = -1;
    out[LARGE - 1] = 5;
    CHECK_OK(dtl_request_wait(sending, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_request_wait(receiving, DTL_TIMEOUT_INFINITE, &info));
    CHECK(info.size_bytes == LARGE && in[LARGE - 1] == 5);
    close_ranks();
}

/* Rank 0's send has been matched, but there is no room for it: it is withdrawn, and rank 1's receive waits for the next. */
static void a_send_without_room(void) {
    static char out[LARGE], in[LARGE];
    dtl_request_t receiving;
    dtl_recv_info_t info;
    open_ranks();
    refused = 0;
    CHECK_OK(dtl_comm_irecv(ranks[1], in, LARGE, DTL_DTYPE_BYTE, 0, 1, &receiving));
    CHECK_STATUS(dtl_comm_send(ranks[0], out, LARGE, DTL_DTYPE_BYTE, 1, 1), DTL_ERROR_TIMEOUT);
    CHECK(strstr(dtl_last_error(), "has not given the buffer back") == NULL);
    refused = -1;
    CHECK_OK(dtl_comm_send(ranks[0], "new", 4, DTL_DTYPE_BYTE, 1, 1));
    CHECK_OK(dtl_request_wait(receiving, DTL_TIMEOUT_INFINITE, &info));
    CHECK(info.size_bytes == 4 && strcmp(in, "new") == 0);
    close_ranks();
}

/* Rank 1 cannot post its receives: its open fails, and rank 0 does not wait for it, whoever was first. */
static void a_rank_that_cannot_receive(int posts, int first, int mute) {
    int32_t got;
    reset();
    ranks[1].id = 0;
    unable = 1, can_post = posts, is_mute = mute;
    if (first == 0) CHECK_OK(open_rank(0));
    CHECK_STATUS(open_rank(1), DTL_ERROR_BACKEND);
    CHECK(strstr(dtl_last_error(), "backend keeps: comm.irecv") != NULL && ranks[1].id == 0);
    if (first == 1) CHECK_OK(open_rank(0));
    CHECK_STATUS(dtl_comm_recv(ranks[0], &got, 1, DTL_DTYPE_INT32, 1, 1, NULL),
                 mute ? DTL_ERROR_TIMEOUT : DTL_ERROR_RANK_FAILURE);
    CHECK(mute || strstr(dtl_last_error(), "dtl_comm_open failed on rank 1") != NULL);
    if (!mute) CHECK_STATUS(dtl_comm_barrier(ranks[0]), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_destroy(ranks[0]));
}

int main(void) {
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    comm.open = slot_open, comm.close = slot_close;
    comm.isend = slot_isend, comm.irecv = slot_irecv, comm.test = slot_test;
    table.comm = &comm;
    CHECK_OK(dtl_backend_register("keeps", &table, NULL, 0, &backend));
    a_send_without_room();
    a_rank_that_cannot_receive(0, 0, 0);
    a_rank_that_cannot_receive(3, 1, 0);
    a_rank_that_cannot_receive(0, 0, 1);
    an_invalid_frame_gives_nothing_back(2, "completed a receive of match word 0 with match word 5");
    an_invalid_frame_gives_nothing_back(3, "wrote status 31337 into its result");
    an_invalid_boolean_ends_nothing();
    an_invalid_boolean_frees_nothing();
    a_receive_that_is_not_given_back();
    return 0;
}
