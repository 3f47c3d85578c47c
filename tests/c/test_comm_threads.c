/* Kind "threads": ranks that are threads of this process. Messages, every collective against what it
 * must give, ranks that leave, time limits, misuse, many ranks. Also run under valgrind (then with
 * the argument "few"). C11, and valid C++17. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

#define MILLISECONDS(count) ((uint64_t)(count) * UINT64_C(1000000))
#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)
enum { MANY = 256, LARGE = 300000 };

typedef struct {
    dtl_comm_t comm;
    int rank, size;
    void (*body)(dtl_comm_t comm, int rank, int size);
} rank_t;

static dtl_comm_t all[MANY];

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void sleep_ms(int ms) {
    struct timespec time;
    time.tv_sec = ms / 1000;
    time.tv_nsec = (long)(ms % 1000) * 1000000;
    nanosleep(&time, NULL);
}

static void* run_rank(void* argument) {
    const rank_t* self = (const rank_t*)argument;
    self->body(self->comm, self->rank, self->size);
    return NULL;
}

/* Opens `size` ranks with a time limit and runs `body` on a thread for each. Every rank destroys its own. */
static void on_ranks(int size, uint64_t timeout_ns, void (*body)(dtl_comm_t, int, int)) {
    static pthread_t threads[MANY];
    static rank_t ranks[MANY];
    pthread_attr_t attributes;
    int i;
    CHECK_OK(dtl_comm_threads(size, timeout_ns, all));
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 1 << 18) == 0);
    for (i = 0; i < size; i++) {
        ranks[i].comm = all[i], ranks[i].rank = i, ranks[i].size = size, ranks[i].body = body;
        CHECK(pthread_create(&threads[i], &attributes, run_rank, &ranks[i]) == 0);
    }
    for (i = 0; i < size; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static unsigned char byte_of(int number, uint64_t i) { return (unsigned char)(number * 31 + (int)(i % 251)); }

static void fill(unsigned char* bytes, uint64_t size, int number) {
    uint64_t i;
    for (i = 0; i < size; i++) bytes[i] = byte_of(number, i);
}

static int is_filled(const unsigned char* bytes, uint64_t size, int number) {
    uint64_t i;
    for (i = 0; i < size; i++)
        if (bytes[i] != byte_of(number, i)) return 0;
    return 1;
}

/* ---- messages ---- */

/* Round the ring in all sizes, each rank with its own buffers; then everybody to rank 0. */
static void messages(dtl_comm_t comm, int rank, int size) {
    static const uint64_t sizes[] = {0, 1, 8, 4096, 4097, LARGE};
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    unsigned char* in = (unsigned char*)malloc(LARGE);
    unsigned char* out = (unsigned char*)malloc(LARGE);
    dtl_recv_info_t info;
    dtl_request_t requests[2];
    size_t i;
    int told, seen[MANY] = {0};
    CHECK(in != NULL && out != NULL);
    CHECK_OK(dtl_comm_rank(comm, &told));
    CHECK(told == rank);
    CHECK_OK(dtl_comm_size(comm, &told));
    CHECK(told == size);
    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t bytes = sizes[i];
        fill(out, bytes, rank);
        CHECK_OK(dtl_comm_sendrecv(comm, out, bytes, next, 5, in, LARGE, before, 5, DTL_DTYPE_BYTE, &info));
        CHECK(info.size_bytes == bytes && info.source == before && is_filled(in, bytes, before));
        CHECK_OK(dtl_comm_isend(comm, out, bytes, DTL_DTYPE_BYTE, next, 6, &requests[0]));
        CHECK_OK(dtl_comm_irecv(comm, in, LARGE, DTL_DTYPE_BYTE, before, DTL_ANY_TAG, &requests[1]));
        CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL));
        CHECK(is_filled(in, bytes, before));
    }
    if (rank != 0) CHECK_OK(dtl_comm_send(comm, &rank, 1, DTL_DTYPE_INT32, 0, rank));
    for (told = 1; rank == 0 && told < size; told++) {
        int value;
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &info));
        CHECK(value == info.source && value == info.tag && !seen[value]);
        seen[value] = 1;
    }
    free(in);
    free(out);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Messages of one sender in the order sent, whatever their sizes. */
static void order(dtl_comm_t comm, int rank, int size) {
    enum { COUNT = 60 };
    static unsigned char out[COUNT][6000], in[6000];
    dtl_request_t requests[COUNT];
    dtl_recv_info_t info;
    int i;
    (void)size;
    for (i = 0; i < COUNT && rank == 0; i++) {
        fill(out[i], 6000, i);
        CHECK_OK(dtl_comm_isend(comm, out[i], (uint64_t)(i % 3) * 3000, DTL_DTYPE_BYTE, 1, 9, &requests[i]));
    }
    for (i = 0; i < COUNT && rank == 1; i++) {
        CHECK_OK(dtl_comm_recv(comm, in, 6000, DTL_DTYPE_BYTE, i % 2 ? 0 : DTL_ANY_SOURCE, 9, &info));
        CHECK(info.size_bytes == (uint64_t)(i % 3) * 3000 && is_filled(in, info.size_bytes, i));
    }
    if (rank == 0) CHECK_OK(dtl_request_wait_all(requests, COUNT, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- collectives ---- */

enum { COUNT = 3000 };

static int32_t element(int rank, int block, int i) { return rank * 1000003 + block * 1009 + i % 977 - 400; }

static void check_all(const int32_t* got, int from, int block, int count) {
    int i;
    for (i = 0; i < count; i++) CHECK(got[i] == element(from, block, i));
}

static void reductions(dtl_comm_t comm, int rank, int size, int count, int32_t* in, int32_t* out) {
    static const int ops[] = {DTL_OP_SUM, DTL_OP_MIN, DTL_OP_MAX, DTL_OP_BXOR};
    int op, i, r;
    for (i = 0; i < count; i++) in[i] = element(rank, 0, i);
    for (op = 0; op < 4; op++) {
        const int root = op % size;
        int to_all;
        for (to_all = 0; to_all < 2; to_all++) {
            if (to_all) CHECK_OK(dtl_comm_allreduce(comm, in, out, (uint64_t)count, DTL_DTYPE_INT32, ops[op]));
            else CHECK_OK(dtl_comm_reduce(comm, in, out, (uint64_t)count, DTL_DTYPE_INT32, ops[op], root));
            for (i = 0; i < count && (to_all || rank == root); i++) {
                int32_t want = element(0, 0, i);
                for (r = 1; r < size; r++) {
                    const int32_t value = element(r, 0, i);
                    if (op == 0) want += value;
                    if (op == 1 && value < want) want = value;
                    if (op == 2 && value > want) want = value;
                    if (op == 3) want ^= value;
                }
                CHECK(out[i] == want);
            }
        }
    }
}

static void collectives(dtl_comm_t comm, int rank, int size) {
    static const int counts[] = {0, 1, 7, COUNT};
    const size_t room = (size_t)COUNT * (size_t)size * sizeof(int32_t);
    int32_t* in = (int32_t*)malloc(room);
    int32_t* out = (int32_t*)malloc(room);
    int n, i, r;
    CHECK(in != NULL && out != NULL);
    for (n = 0; n < 4; n++) {
        const int count = counts[n], root = (n + 1) % size;
        const uint64_t each = (uint64_t)count;
        CHECK_OK(dtl_comm_barrier(comm));
        for (i = 0; i < count; i++) out[i] = rank == root ? element(root, 9, i) : -1;
        CHECK_OK(dtl_comm_bcast(comm, out, each, DTL_DTYPE_INT32, root));
        check_all(out, root, 9, count);
        reductions(comm, rank, size, count, in, out);
        for (i = 0; i < count; i++) in[i] = element(rank, 1, i);
        CHECK_OK(dtl_comm_gather(comm, in, each, out, DTL_DTYPE_INT32, root));
        for (r = 0; r < size && rank == root; r++) check_all(out + r * count, r, 1, count);
        memset(out, 0, room);
        CHECK_OK(dtl_comm_allgather(comm, in, each, out, DTL_DTYPE_INT32));
        for (r = 0; r < size; r++) check_all(out + r * count, r, 1, count);
        for (r = 0; r < size; r++)
            for (i = 0; i < count; i++) in[r * count + i] = element(rank, r, i);
        CHECK_OK(dtl_comm_scatter(comm, in, each, out, DTL_DTYPE_INT32, root));
        check_all(out, root, rank, count);
        CHECK_OK(dtl_comm_alltoall(comm, in, each, out, DTL_DTYPE_INT32));
        for (r = 0; r < size; r++) check_all(out + r * count, r, rank, count);
    }
    free(in);
    free(out);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- many ranks on a few cores ---- */

static void many(dtl_comm_t comm, int rank, int size) {
    int32_t in[256], out[256];
    int i, k;
    for (i = 0; i < 100; i++) CHECK_OK(dtl_comm_barrier(comm));
    for (i = 0; i < 100; i++) {
        for (k = 0; k < 256; k++) in[k] = rank + i + k;
        CHECK_OK(dtl_comm_allreduce(comm, in, out, 256, DTL_DTYPE_INT32, DTL_OP_SUM));
        for (k = 0; k < 256; k++) CHECK(out[k] == size * (size - 1) / 2 + size * (i + k));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* All but one rank wait for four seconds: that must not keep the processors busy. */
static void idle(dtl_comm_t comm, int rank, int size) {
    (void)size;
    if (rank == 0) sleep_ms(4000);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void test_many(void) {
    static const int runs[] = {64, MANY};
    double cpu;
    int i;
    for (i = 0; i < 2; i++) {
        const uint64_t begin = now_ms();
        uint64_t ms;
        on_ranks(runs[i], MILLISECONDS(60000), many);
        ms = now_ms() - begin;
        printf("%d ranks, 100 barriers and 100 allreduces of 1 KiB: %llu ms\n", runs[i], (unsigned long long)ms);
    }
    cpu = cpu_seconds();
    on_ranks(MANY, MILLISECONDS(60000), idle);
    cpu = cpu_seconds() - cpu;
    printf("%d ranks that wait for four seconds use %.2f s of processor time\n", MANY, cpu);
#ifndef __SANITIZE_ADDRESS__ /* which makes the start of so many threads expensive */
    CHECK(cpu < 3.0); /* one that is busy takes 4, all of them all processors */
#endif
}

/* ---- ranks that leave ---- */

/* Rank 1 sends and leaves; the others find what it sent, and then that it is gone. */
static void leaving(dtl_comm_t comm, int rank, int size) {
    unsigned char bytes[5000];
    dtl_comm_info_t about = DTL_COMM_INFO_INIT;
    int value = 7;
    dtl_request_t request;
    if (rank == 1) {
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 1));
        sleep_ms(50);
        CHECK_OK(dtl_comm_destroy(comm));
        return;
    }
    if (rank == 0) {
        /* Posted before, large send before: both end. */
        CHECK_OK(dtl_comm_irecv(comm, &value, 1, DTL_DTYPE_INT32, 1, 2, &request));
        CHECK_STATUS(dtl_comm_send(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 1, 3), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT("because of rank 1 (");
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 1, 1, NULL));
        CHECK(value == 7);
        CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 1, 1, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_STATUS(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 1, 3), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_comm_info(comm, &about));
        CHECK(about.failed_count >= 1);
    }
    if (rank == 2) {
        /* Any source: rank 0's operations have needed the rank that left. */
        CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 4, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT("rank(s) "); /* 1, and 0 if it has left for that reason meanwhile */
    }
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_RANK_FAILURE);
    CHECK_TEXT("rank(s) "); /* 1, and whoever has left for that reason meanwhile */
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    (void)size;
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Rank 1 leaves, and nobody needs it any more: the others go on. */
static void left_unneeded(dtl_comm_t comm, int rank, int size) {
    int value = 7;
    (void)size;
    if (rank == 0) {
        sleep_ms(50);
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 2, 4));
    }
    if (rank == 2) CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, 4, NULL));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* All ranks but the last wait in a collective; the last leaves: it ends for each of them. */
static void left_in_collective(dtl_comm_t comm, int rank, int size) {
    int in = rank, out;
    if (rank == size - 1) sleep_ms(50);
    else CHECK_STATUS(dtl_comm_allreduce(comm, &in, &out, 1, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_RANK_FAILURE);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Those who are done leave at once, while others are still in the last collective. */
static void leave_when_done(dtl_comm_t comm, int rank, int size) {
    int i;
    (void)rank, (void)size;
    for (i = 0; i < 3; i++) CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- time limits, withdrawal, truncation ---- */

static void limits(dtl_comm_t comm, int rank, int size) {
    static unsigned char large[LARGE], cut[10];
    unsigned char small[10];
    dtl_recv_info_t info;
    dtl_request_t request;
    static int has_ended;
    const uint64_t begin = now_ms();
    (void)size;
    if (rank == 0) {
        CHECK_STATUS(dtl_comm_recv(comm, small, 10, DTL_DTYPE_BYTE, 1, 77, NULL), DTL_ERROR_TIMEOUT);
        CHECK(now_ms() - begin >= 190);
        CHECK_STATUS(dtl_comm_send(comm, large, LARGE, DTL_DTYPE_BYTE, 1, 77), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_comm_irecv(comm, small, 10, DTL_DTYPE_BYTE, 1, 78, &request));
        CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(20), NULL), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_request_cancel(request));
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        CHECK_OK(dtl_comm_isend(comm, large, LARGE, DTL_DTYPE_BYTE, 1, 78, &request));
        CHECK_OK(dtl_request_cancel(request));
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
        fill(large, LARGE, 3);
        CHECK_OK(dtl_comm_isend(comm, large, LARGE, DTL_DTYPE_BYTE, 1, 79, &request));
        CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
        CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_TIMEOUT);
        __atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
    } else {
        dtl_request_t receive;
        /* The withdrawn messages are not there: the first with any tag is the one to be cut. */
        while (dtl_comm_probe(comm, DTL_ANY_SOURCE, 79, NULL) == DTL_ERROR_TIMEOUT) {
        }
        CHECK_OK(dtl_comm_irecv(comm, cut, 10, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, DTL_ANY_TAG, &receive));
        CHECK_STATUS(dtl_request_wait(receive, MILLISECONDS(60000), &info), DTL_ERROR_TRUNCATED);
        CHECK(info.size_bytes == LARGE && info.tag == 79 && is_filled(cut, 10, 3));
        while (!__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE)) sleep_ms(1); /* it does not leave before */
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- destroyed while another thread waits on the same rank ---- */

static void* waits(void* argument) {
    const dtl_comm_t comm = *(dtl_comm_t*)argument;
    static unsigned char byte[2];
    const dtl_status_t status = dtl_comm_recv(comm, byte, 1, DTL_DTYPE_BYTE, 1, 3, NULL);
    CHECK(status == DTL_ERROR_CANCELED || status == DTL_ERROR_INVALID_HANDLE);
    return NULL;
}

static void test_concurrent_destroy(int rounds) {
    dtl_comm_t comms[2];
    pthread_t threads[2];
    int i, round;
    for (round = 0; round < rounds; round++) {
        CHECK_OK(dtl_comm_threads(2, 0, comms));
        for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, waits, &comms[0]) == 0);
        if (round % 2) sleep_ms(10);
        CHECK_OK(dtl_comm_destroy(comms[0]));
        for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK_STATUS(dtl_comm_destroy(comms[0]), DTL_ERROR_INVALID_HANDLE);
        CHECK_OK(dtl_comm_destroy(comms[1]));
    }
}

/* Messages of all sizes in flight while both ends go: nothing may be touched afterwards. */
static void destroy_in_flight(dtl_comm_t comm, int rank, int size) {
    const size_t bytes = rank % 2 ? 100 : LARGE;
    unsigned char* data = (unsigned char*)calloc(2, bytes);
    dtl_request_t requests[2];
    CHECK(data != NULL);
    CHECK_OK(dtl_comm_isend(comm, data, bytes, DTL_DTYPE_BYTE, (rank + 1) % size, 1, &requests[0]));
    CHECK_OK(dtl_comm_irecv(comm, data + bytes, bytes, DTL_DTYPE_BYTE, (rank + 1) % size, 1, &requests[1]));
    CHECK_OK(dtl_comm_destroy(comm));
    free(data);
}

static void takes_its_time(dtl_comm_t comm, int32_t key, void* user, void* value) {
    const struct timespec moment = {0, 100000};
    (void)comm, (void)key, (void)user, (void)value;
    nanosleep(&moment, NULL);
}

/* Rank 0 asks for a collective over and over, which moves on what else there is in the process, while rank 1 opens and destroys
 * communicators of its own: the last share of one may be in the hands of who asks. An attribute keeps each in the air a little longer. */
static void destroyed_while_moved_on(dtl_comm_t comm, int rank, int size) {
    enum { OPENED = 3, LONG = 4 };
    const uint64_t end = now_ms() + 500;
    int32_t in[LONG] = {1}, out[2][LONG] = {{0}};
    dtl_request_t first, second;
    int32_t is_done = 0, key = 0;
    if (rank == 1) {
        CHECK_OK(dtl_comm_key_create(NULL, takes_its_time, NULL, &key));
        while (now_ms() < end) {
            dtl_comm_t own[OPENED];
            int i;
            for (i = 0; i < OPENED; i++) {
                CHECK_OK(dtl_comm_dup(DTL_COMM_SELF, &own[i]));
                CHECK_OK(dtl_comm_set_attr(own[i], key, own));
            }
            for (i = 0; i < OPENED; i++) CHECK_OK(dtl_comm_destroy(own[i]));
        }
        CHECK_OK(dtl_comm_key_destroy(key));
    }
    CHECK_OK(dtl_comm_iallreduce(comm, in, out[0], LONG, DTL_DTYPE_INT32, DTL_OP_SUM, &first));
    CHECK_OK(dtl_comm_iallreduce(comm, in, out[1], LONG, DTL_DTYPE_INT32, DTL_OP_SUM, &second));
    while (!is_done) CHECK_OK(dtl_request_test(second, &is_done, NULL)); /* it is not its turn */
    CHECK_OK(dtl_request_wait(first, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(out[0][0] == size && out[1][0] == size);
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- misuse ---- */

static void test_misuse(void) {
    dtl_comm_t comms[3], bad;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    int byte = 0;
    comms[0].id = 5;
    CHECK_STATUS(dtl_comm_threads(3, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_threads(0, 0, comms), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_threads(-4, 0, comms), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("size -4");
    CHECK_STATUS(dtl_comm_threads(4097, 0, comms), DTL_ERROR_LIMIT);
    CHECK_TEXT("size 4097");
    CHECK(comms[0].id == 5);
    desc.kind = "threads";
    CHECK_STATUS(dtl_comm_open(&desc, &bad), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("dtl_comm_threads");
    desc.kind = "no such kind";
    CHECK_STATUS(dtl_comm_open(&desc, &bad), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("threads");
    desc.over = DTL_COMM_SELF; /* the same with a communicator below, and a kind that takes none */
    CHECK_STATUS(dtl_comm_open(&desc, &bad), DTL_ERROR_NOT_FOUND);
    desc.kind = "self";
    CHECK_STATUS(dtl_comm_open(&desc, &bad), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("desc.over: kind \"self\" is not opened over another communicator");
    desc.kind = NULL;
    CHECK_STATUS(dtl_comm_open(&desc, &bad), DTL_ERROR_INVALID_ARGUMENT);
    desc.over = DTL_COMM_NULL;
    CHECK_OK(dtl_comm_threads(3, MILLISECONDS(200), comms));
    CHECK_OK(dtl_comm_info(comms[2], &info));
    CHECK(info.rank == 2 && info.size == 3 && strcmp(info.kind, "threads") == 0);
    CHECK(info.timeout_ns == MILLISECONDS(200) && info.failed_count == 0);
    CHECK_STATUS(dtl_comm_send(comms[0], &byte, 1, DTL_DTYPE_BYTE, 3, 0), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_recv(comms[0], &byte, 1, DTL_DTYPE_BYTE, -9, 0, NULL), DTL_ERROR_INVALID_RANK);
    /* One thread may use several ranks. */
    byte = 42;
    CHECK_OK(dtl_comm_send(comms[0], &byte, 1, DTL_DTYPE_INT32, 2, 0));
    byte = 0;
    CHECK_OK(dtl_comm_recv(comms[2], &byte, 1, DTL_DTYPE_INT32, 0, 0, NULL));
    CHECK(byte == 42);
    CHECK_OK(dtl_comm_destroy(comms[1]));
    CHECK_STATUS(dtl_comm_rank(comms[1], &byte), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_destroy(comms[0]));
    CHECK_OK(dtl_comm_destroy(comms[2]));
}

int main(int argc, char** argv) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8};
    const int few = argc > 1 && strcmp(argv[1], "few") == 0;
    int i;
    CHECK_OK(dtl_init(NULL));
    test_misuse();
    for (i = 0; i < 7; i++) {
        on_ranks(sizes[i], MILLISECONDS(60000), messages);
        on_ranks(sizes[i], MILLISECONDS(60000), collectives);
        on_ranks(sizes[i], MILLISECONDS(60000), leave_when_done);
        on_ranks(sizes[i], MILLISECONDS(60000), destroy_in_flight);
        if (sizes[i] > 1) on_ranks(sizes[i], MILLISECONDS(60000), left_in_collective);
    }
    on_ranks(2, MILLISECONDS(60000), order);
    on_ranks(3, MILLISECONDS(60000), leaving);
    on_ranks(3, MILLISECONDS(60000), left_unneeded);
    on_ranks(2, MILLISECONDS(200), limits);
    test_concurrent_destroy(few ? 4 : 40);
    if (!few) {
        for (i = 0; i < 20; i++) on_ranks(8, MILLISECONDS(60000), destroy_in_flight);
        on_ranks(MANY, MILLISECONDS(60000), leave_when_done);
        on_ranks(2, MILLISECONDS(60000), destroyed_while_moved_on);
        test_many();
    }
    CHECK_OK(dtl_finalize());
    return 0;
}
