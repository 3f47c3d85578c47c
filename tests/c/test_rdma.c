/* Kind rdma, where it is unlike other kinds: sleeping until the completion queue wakes, events of the device, what is registered
 * and how often, forks. Over the verbs provider that is none (tests/rdma/fake_verbs.c), whose counters and faults it uses.
 *
 *     program sleep | memory | locked | port | device | queue | gone | unwatched | fork (under dtlrun) */
#include "comm_kinds.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a rank has for each peer that it has talked to, registered: docs/how-to/use-rdma.md, "Memory". */
enum { SLOT = 8256, DEPTH = 16, PEER_REGISTERED = (DEPTH + DEPTH / 2) * SLOT + 128 + 512 };
enum { MIB = 1 << 20 };

static uint64_t (*counter)(const char *name);
static void (*fault)(const char *text);
static dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
static dtl_backend_t host;

static dtl_comm_t open_rdma(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    void *library;
    desc.kind = "rdma";
    desc.rdma = &config;
    desc.timeout_ns = MILLISECONDS(60000);
    CHECK_OK(dtl_comm_open(&desc, &comm));
    library = dlopen(getenv("DTL_RDMA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    *(void **)&counter = dlsym(library, "fake_verbs_counter");
    *(void **)&fault = dlsym(library, "fake_verbs_fault");
    CHECK(counter != NULL && fault != NULL);
    return comm;
}

static void pause_ms(int ms) { usleep((useconds_t)ms * 1000); }

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t cpu_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void send_to(dtl_comm_t comm, const void *bytes, uint64_t size, int to) {
    CHECK_OK(dtl_comm_send(comm, bytes, size, DTL_DTYPE_BYTE, to, 1));
}

static void recv_from(dtl_comm_t comm, void *bytes, uint64_t size, int from) {
    CHECK_OK(dtl_comm_recv(comm, bytes, size, DTL_DTYPE_BYTE, from, 1, NULL));
}

/* Rank 0 sends what is filled with a number, rank 1 receives and looks. */
static void move(dtl_comm_t comm, unsigned char *bytes, uint64_t size, int number) {
    if (me == 0) {
        fill(bytes, size, number);
        send_to(comm, bytes, size, 1);
    } else if (me == 1) {
        memset(bytes, 0, size);
        recv_from(comm, bytes, size, 0);
        CHECK(is_filled(bytes, size, number));
    }
}

static void *second(void *comm) {
    uint64_t sent;
    CHECK_OK(dtl_comm_recv(*(dtl_comm_t *)comm, &sent, sizeof sent, DTL_DTYPE_BYTE, 0, 2, NULL));
    return NULL;
}

/* Two threads of a rank: each is woken by its own message. */
static void sleep_both(dtl_comm_t comm) {
    pthread_t other;
    uint64_t sent;
    int i;
    if (me == 0) {
        for (i = 0; i < 2; i++) {
            pause_ms(50);
            sent = now_us();
            CHECK_OK(dtl_comm_send(comm, &sent, sizeof sent, DTL_DTYPE_BYTE, 1, 2 - i));
        }
        return;
    }
    CHECK(pthread_create(&other, NULL, second, &comm) == 0);
    recv_from(comm, &sent, sizeof sent, 0);
    CHECK(pthread_join(other, NULL) == 0);
}

/* Who waits sleeps, and is woken soon, small messages and large. */
static void sleeps(void) {
    unsigned char *large = (unsigned char *)malloc(MIB), is_enough = 0;
    uint64_t before, events, calls;
    dtl_comm_t comm;
    int i;
    config.completion = DTL_RDMA_EVENT;
    comm = open_rdma();
    CHECK(large != NULL && counter("channels") == 1);
    for (i = 0; i < 100; i++) move(comm, large, i % 10 ? 100 : MIB, i);
    events = counter("events");
    calls = counter("poll_cq");
    before = cpu_us();
    /* On a busy machine rank 1 may be late and find its message there: until it was woken twice. */
    for (i = 0; !is_enough; i++) {
        if (me == 0) {
            pause_ms(100);
            send_to(comm, large, 8, 1);
            recv_from(comm, &is_enough, 1, 1);
        } else {
            recv_from(comm, large, 8, 0);
            is_enough = counter("events") - events >= 4;
            send_to(comm, &is_enough, 1, 0);
        }
    }
    if (me == 1) {
        printf("waiting %d times for 100 ms: %d us of CPU, %d events, %d polls\n", i, (int)(cpu_us() - before),
               (int)(counter("events") - events), (int)(counter("poll_cq") - calls));
        CHECK(cpu_us() - before < 17000 * (uint64_t)i);
        CHECK(counter("poll_cq") - calls < 700 * (uint64_t)i); /* by the clock it is some thousands for each wait */
    }
    sleep_both(comm);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(counter("channels") == 0 && counter("cqs") == 0 && counter("contexts") == 0);
    /* Without a channel it is not opened, and says why. */
    fault("create_comp_channel:0:EMFILE");
    {
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        desc.kind = "rdma";
        desc.rdma = &config;
        desc.timeout_ns = MILLISECONDS(60000);
        CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_LIMIT);
        CHECK_TEXT("ibv_create_comp_channel");
        CHECK_TEXT("ulimit -n");
    }
    fault("");
    free(large);
}

/* What all ranks need alike: what differs is named, with both values; after that they meet again. */
static void differ(void) {
    static const struct {
        int32_t *field, values[2];
        const char *texts[2], *also;
    } cases[] = {{&config.depth, {16, 32}, {"depth 16", "32"}, "depth)"},
                 {&config.queues, {1, 4}, {"queues 1", "4"}, "DTL_RDMA_QUEUES"},
                 {&config.rails, {2, 1}, {"rails 2", "1"}, "(as many as there are active ports"},
                 {&config.rendezvous, {DTL_RDMA_READ, DTL_RDMA_WRITE}, {"rendezvous read", "write"}, "DTL_RDMA_RENDEZVOUS"}};
    const dtl_rdma_config_t fresh = DTL_RDMA_CONFIG_INIT;
    static unsigned char bytes[100000];
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    uint64_t size;
    size_t i;
    desc.kind = "rdma", desc.rdma = &config, desc.timeout_ns = MILLISECONDS(60000);
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        config = fresh;
        config.meeting = "shm";
        *cases[i].field = cases[i].values[me];
        CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT(me == 0 ? "rank 1 has" : "rank 0 has");
        if (me == 1) CHECK_TEXT(cases[i].texts[0]);
        CHECK_TEXT(cases[i].texts[1]);
        CHECK_TEXT(cases[i].also);
    }
    /* These may differ. */
    config = fresh;
    config.meeting = "shm", config.mtu = me ? 256 : 1024, config.timeout = 14 + me, config.retries = 6 + me, config.inline_bytes = 64 * me;
    config.completion = 1 + me, config.cache_bytes = me, config.reconnect_ms = 1000 * me, config.silence_ms = 1000 + 1000 * me;
    comm = open_rdma();
    for (size = 10; size <= sizeof bytes; size *= 10) move(comm, bytes, size, (int)(size % 7));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

static unsigned char *take(uint64_t size) {
    void *bytes;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 0, &bytes));
    return (unsigned char *)bytes;
}

static void memory_of(dtl_comm_t comm, uint64_t setup) {
    enum { MESSAGES = 1000, SMALLER = 16 << 10, ROUNDS = 9, BUFFERS = 8, CACHE = 4 * MIB };
    unsigned char *bytes = take(MIB), *own = (unsigned char *)malloc(MIB), *all[BUFFERS];
    uint64_t before = counter("reg_mr"), writes = counter("write_imm"), gone;
    char text[8192];
    int i, round;
    CHECK(own != NULL);
    /* Registered once, whatever the number of messages; memory of the program's own not at all. */
    for (i = 0; i < MESSAGES; i++) {
        if (i % 250 == 0) move(comm, bytes, MIB, i);
        else if (me == 0) send_to(comm, bytes, MIB, 1);
        else recv_from(comm, bytes, MIB, 0);
    }
    if (me == 0) CHECK(counter("write_imm") - writes >= MESSAGES); /* by the device */
    CHECK(counter("reg_mr") - before <= 2);
    before = counter("reg_mr");
    for (i = 0; i < MESSAGES; i++) move(comm, own, i % 500 ? (int)SMALLER : (int)MIB, i);
    CHECK(counter("reg_mr") == before);
    /* Freed, given back to the system and allocated again: what the device had is given up. */
    CHECK_OK(dtl_mem_free(host, bytes));
    gone = counter("dereg_mr");
    for (round = 0; round < ROUNDS; round++) {
        const uint64_t size = (uint64_t)(1 + round % 3) * MIB / 2;
        bytes = take(size);
        move(comm, bytes, size, round);
        CHECK_OK(dtl_mem_free(host, bytes));
        CHECK_OK(dtl_mem_trim(host));
        CHECK(counter("bytes") <= setup + CACHE);
    }
    CHECK(counter("dereg_mr") - gone >= ROUNDS - 1); /* the last one's when the next is looked up */
    CHECK(counter("mrs") <= 6);
    /* More than may be registered (cache_bytes), in turn. */
    for (i = 0; i < BUFFERS; i++) all[i] = take(5 * MIB / 4);
    for (round = 0; round < 2 * BUFFERS; round++) {
        move(comm, all[round % BUFFERS], 5 * MIB / 4, round);
        CHECK(counter("bytes") <= setup + CACHE);
    }
    CHECK(counter("bytes_most") <= setup + CACHE);
    CHECK_OK(dtl_comm_dump(comm, text, sizeof text, NULL));
    CHECK(strstr(text, "bytes registered with fake") != NULL && strstr(text, "DTL_RDMA_CACHE_BYTES=4194304") != NULL);
    if (me == 0) printf("%s", strstr(text, "memory of rank"));
    for (i = 0; i < BUFFERS; i++) CHECK_OK(dtl_mem_free(host, all[i]));
    free(own);
}

static void memory(void) {
    uint64_t setup, regs;
    dtl_comm_t comm;
    unsigned char byte = 1;
    int peer;
    config.cache_bytes = 4 * MIB;
    comm = open_rdma();
    CHECK_OK(dtl_backend_get("host", &host));
    /* A peer that nobody has talked to has nothing of the device's, and each other one the same. */
    CHECK(counter("bytes") == 0 && counter("qps") == 0 && counter("cqs") == 0);
    for (peer = 1; peer < ranks; peer++) {
        setup = counter("bytes");
        regs = counter("reg_mr");
        if (me == 0) {
            send_to(comm, &byte, 1, peer);
            recv_from(comm, &byte, 1, peer);
        } else if (me == peer) {
            recv_from(comm, &byte, 1, 0);
            send_to(comm, &byte, 1, 0);
        }
        if (me == 0 || me == peer) {
            CHECK(counter("bytes") - setup == PEER_REGISTERED);
            CHECK(counter("reg_mr") - regs == 1 && counter("qps") == (uint64_t)(me == 0 ? peer : 1) && counter("cqs") == 1);
        }
    }
    setup = counter("bytes");
    if (me < 2) memory_of(comm, setup);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(counter("mrs") == 0 && counter("bytes") == 0);
}

/* DTL_FAKE_VERBS_MEMLOCK: what cannot be registered goes through slots. */
static void locked(void) {
    unsigned char *bytes, *small;
    dtl_comm_t comm = open_rdma();
    int i;
    CHECK_OK(dtl_backend_get("host", &host));
    bytes = take(8 * MIB);
    small = take(100);
    for (i = 0; i < 5; i++) {
        move(comm, bytes, 8 * MIB, i);
        move(comm, small, 100, i);
    }
    CHECK(counter("bytes_most") <= 2 * MIB);
    CHECK_OK(dtl_mem_free(host, bytes));
    CHECK_OK(dtl_mem_free(host, small));
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

static int warnings;
static dtl_comm_t warned;

/* Uses the communicator that warns: no lock of it is held. */
static void count_warnings(int32_t level, const char *text, void *of) {
    int32_t found, out = 7, in = 0;
    (void)level;
    if (strstr(text, (const char *)of) == NULL) return;
    warnings++;
    CHECK_OK(dtl_comm_iprobe(warned, DTL_ANY_SOURCE, 77, &found, NULL));
    CHECK_OK(dtl_comm_sendrecv(warned, &out, 1, me, 77, &in, 1, me, 77, DTL_DTYPE_INT32, NULL));
    CHECK(in == 7);
}

/* A port that goes down and comes back: said once, nothing is lost. */
static void port(void) {
    unsigned char bytes[5000];
    dtl_comm_t comm;
    uint64_t start;
    int i;
    config.devices = "fake0"; /* of both ranks */
    warned = comm = open_rdma();
    CHECK_OK(dtl_log_set_callback(count_warnings, (void *)"is down", DTL_LOG_WARN));
    for (i = 0; i < 10; i++) move(comm, bytes, sizeof bytes, i);
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0) fault("port_down:3:100");
    start = now_us();
    for (i = 0; i < 20; i++) move(comm, bytes, sizeof bytes, i);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(now_us() - start > 50000);
    pause_ms(20);
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(warnings == 1);
    fault("");
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_WARN));
    CHECK_OK(dtl_comm_destroy(comm));
}

/* What rank 2 loses, the others go on without. `one`: only its connection to rank 0. */
static void lose(const char *what, const char *says, int one) {
    unsigned char bytes[100], in[100];
    dtl_comm_t comm;
    dtl_status_t status;
    int i;
    config.reconnect_ms = 0; /* what breaks stays so */
    comm = open_rdma();
    for (i = 0; me < 3 && i < 3; i++) { /* these are connected, and rank 3 to nobody */
        CHECK_OK(dtl_comm_sendrecv(comm, bytes, 100, (me + 1) % 3, 1, in, 100, (me + 2) % 3, 1, DTL_DTYPE_BYTE, NULL));
    }
    pause_ms(20);
    if (me == 2) {
        fault(what);
        memset(bytes, 0, sizeof bytes);
        status = dtl_comm_send(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 0, 1);
        if (status == DTL_SUCCESS) status = dtl_comm_recv(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 0, 9, NULL);
        CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT(says);
        CHECK_TEXT("fake");
        if (!one) { /* no other connection is made, either */
            CHECK_STATUS(dtl_comm_send(comm, bytes, 1, DTL_DTYPE_BYTE, 3, 1), DTL_ERROR_DEVICE_LOST);
            CHECK_TEXT(says);
        }
        fault("");
    } else if (me < 2 && (me == 0 || !one)) {
        CHECK_STATUS(dtl_comm_recv(comm, bytes, sizeof bytes, DTL_DTYPE_BYTE, 2, 9, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT("2");
    }
    if (me < 2) for (i = 0; i < 10; i++) move(comm, bytes, sizeof bytes, i);
    if (one && (me == 1 || me == 2)) { /* these go on, too */
        if (me == 1) send_to(comm, bytes, 100, 2);
        else recv_from(comm, bytes, 100, 1);
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Ranks that are gone before anybody has talked to them: each failure says of its own rank why. */
static void gone(void) {
    static const char *const why[] = {"(died, left or cut off): rank 2: ", "(died, left or cut off): rank 3: "};
    dtl_comm_t comm = open_rdma();
    unsigned char byte = 1;
    int i;
    CHECK_OK(dtl_comm_barrier(DTL_COMM_WORLD));
    if (me == 2) _exit(0);
    if (me == 3) pause_ms(20);
    for (i = 0; i < 4 && me < 2; i++) {
        const int rank = 2 + i % 2;
        CHECK_STATUS(dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_BYTE, rank, 1, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT(why[i % 2]);
        CHECK_STATUS(dtl_comm_send(comm, &byte, 1, DTL_DTYPE_BYTE, rank, 1), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT(why[i % 2]);
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* A large message to a rank that is stopped is given up: the end does not wait for that rank. */
static void end_without(dtl_comm_t comm, int stopped) {
    unsigned char *bytes = (unsigned char *)calloc(1, 20000);
    dtl_status_t status = DTL_ERROR_TIMEOUT;
    dtl_request_t request;
    int i;
    CHECK(bytes != NULL);
    CHECK_OK(dtl_comm_isend(comm, bytes, 20000, DTL_DTYPE_BYTE, stopped, 5, &request));
    for (i = 0; i < 3 && status == DTL_ERROR_TIMEOUT; i++) status = dtl_request_wait(request, MILLISECONDS(1), NULL);
    CHECK_STATUS(status, DTL_ERROR_TIMEOUT);
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_destroy(comm)); /* the stopped rank goes on only after this */
    free(bytes);
}

/* T is stopped, Z is dead. */
static int is_in_state(pid_t process, char wanted) {
    char path[40], text[200], state = 'Z';
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    file = fopen(path, "r");
    if (file == NULL) return wanted == 'Z';
    if (fgets(text, sizeof text, file) != NULL && strrchr(text, ')') != NULL) state = strrchr(text, ')')[2];
    fclose(file);
    return state == wanted;
}

/* Rank 1 is gone, in one way and in another, before anybody has talked to it, and who watches it makes no call: who waits for it,
 * or for any, hears of it all the same. */
static void unwatched(int dies) {
    dtl_comm_t comm = open_rdma();
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    unsigned char byte = 1;
    pid_t stopped = getpid(), all[4];
    CHECK_OK(dtl_comm_allgather(DTL_COMM_WORLD, &stopped, 1, all, DTL_DTYPE_INT32));
    if (me == 3) send_to(comm, &byte, 1, 2);
    if (me == 2) recv_from(comm, &byte, 1, 3);
    if (me == 1) {
        while (!is_in_state(all[2], 'T')) pause_ms(1);
        if (dies) _exit(0);
        CHECK_OK(dtl_comm_destroy(comm));
        CHECK_OK(dtl_comm_send(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 3, 1));
        return;
    }
    if (me == 2) kill(stopped, SIGSTOP); /* until rank 0 has seen everything */
    if (me == 3 && !dies) CHECK_OK(dtl_comm_recv(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 1, 1, NULL));
    while (me == 3 && dies && !is_in_state(all[1], 'Z')) pause_ms(1);
    if (me != 2) {
        /* Rank 1 watches rank 0 and so has a connection with it; rank 3 has none before. */
        const int from = (me == 3) == dies ? DTL_ANY_SOURCE : 1;
        CHECK_STATUS(dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_BYTE, from, 1, NULL), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT(from == 1 ? "because of rank 1 (" : "rank(s) 1"); /* who says so first, rank 1's address or another rank, is chance */
        CHECK_OK(dtl_comm_info(comm, &info));
        CHECK(info.failed_count == 1);
    }
    if (me == 0) CHECK_OK(dtl_comm_send(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 3, 4));
    if (me == 3) { /* it leaves when rank 0 has seen that rank 1 has gone */
        CHECK_OK(dtl_comm_recv(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 0, 4, NULL));
        end_without(comm, 2);
        CHECK_OK(dtl_comm_send(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 0, 2 + dies));
        return;
    }
    if (me == 0) {
        CHECK_OK(dtl_comm_recv(DTL_COMM_WORLD, &byte, 1, DTL_DTYPE_BYTE, 3, 2 + dies, NULL));
        CHECK(kill(all[2], SIGCONT) == 0);
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

static void wait_for(pid_t child) {
    int how = -1;
    CHECK(child > 0 && waitpid(child, &how, 0) == child);
    if (how != 0) fprintf(stderr, "the child ended with %#x\n", (unsigned)how);
    CHECK(how == 0);
}

/* A rank whose child lives on has died for the others all the same. */
static void survived(void) {
    unsigned char byte = 1;
    dtl_comm_t comm = open_rdma();
    int32_t child = 0;
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 1) {
        fflush(NULL);
        child = fork();
        if (child == 0) {
            for (int fd = 0; fd < 3; fd++) close(fd);
            sleep(600);
            _exit(0);
        }
        CHECK_OK(dtl_comm_send(comm, &child, 1, DTL_DTYPE_INT32, 0, 1));
        _exit(0);
    }
    CHECK_OK(dtl_comm_recv(comm, &child, 1, DTL_DTYPE_INT32, 1, 1, NULL));
    CHECK_STATUS(dtl_comm_recv(comm, &byte, 1, DTL_DTYPE_BYTE, 1, 1, NULL), DTL_ERROR_RANK_FAILURE);
    CHECK(kill(child, SIGKILL) == 0); /* it lived until now */
    CHECK_OK(dtl_comm_destroy(comm));
}

/* Children end in each way that there is; the parent's connections do not notice. */
static void forked(void) {
    unsigned char *bytes;
    dtl_comm_t comm;
    int way, i;
    pid_t child;
    comm = open_rdma();
    CHECK_OK(dtl_backend_get("host", &host));
    bytes = take(MIB);
    move(comm, bytes, MIB, 7);
    CHECK_OK(dtl_comm_barrier(comm));
    for (way = 0; way < 3; way++) {
        fflush(NULL);
        child = fork();
        if (child == 0) {
            alarm(20);
            CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_FORKED);
            CHECK_STATUS(dtl_comm_send(comm, bytes, 100, DTL_DTYPE_BYTE, 1 - me, 1), DTL_ERROR_FORKED);
            CHECK_STATUS(dtl_comm_destroy(comm), DTL_ERROR_FORKED);
            if (way == 1) {
                CHECK_OK(dtl_init_after_fork());
                CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_HANDLE);
                CHECK_STATUS(dtl_comm_destroy(comm), DTL_ERROR_INVALID_HANDLE);
                CHECK_OK(dtl_comm_barrier(DTL_COMM_SELF));
                CHECK_OK(dtl_finalize());
            }
            if (way == 2) _exit(0);
            exit(0);
        }
        memset(bytes, 1, MIB); /* pages that the child has now, too */
        wait_for(child);
        for (i = 0; i < 20; i++) move(comm, bytes, i % 2 ? MIB : 1000, i);
        CHECK_OK(dtl_comm_barrier(comm));
    }
    CHECK_OK(dtl_mem_free(host, bytes));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(counter("qps") == 0 && counter("mrs") == 0 && counter("contexts") == 0);
    survived();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!*what || !getenv("DTL_RDMA_LIBRARY")) SKIP("it runs with an argument, under dtlrun and with DTL_RDMA_LIBRARY");
    CHECK_OK(dtl_init(NULL));
    me = atoi(getenv("DTL_RANK"));
    ranks = atoi(getenv("DTL_SIZE"));
    config.meeting = "shm";
    if (strcmp(what, "sleep") == 0) sleeps(), differ();
    else if (strcmp(what, "memory") == 0) memory();
    else if (strcmp(what, "locked") == 0) locked();
    else if (strcmp(what, "port") == 0) port();
    else if (strcmp(what, "device") == 0) lose("device_fatal:1", "device fake", 0);
    else if (strcmp(what, "queue") == 0) lose("qp_fatal:1", "queue pair", 1);
    else if (strcmp(what, "gone") == 0) gone();
    else if (strcmp(what, "unwatched") == 0) unwatched(0), unwatched(1);
    else if (strcmp(what, "fork") == 0) forked();
    else CHECK(!"known");
    CHECK_OK(dtl_finalize());
    return 0;
}
