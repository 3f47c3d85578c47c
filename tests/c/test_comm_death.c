/* What the other ranks see when one is killed while it is inside a call: real processes, real SIGKILL.
 *
 * Without arguments: the driver, which starts each scenario with dtlrun (DTL_TEST_DTLRUN names it) and
 * checks what comes of it, for the kind that DTL_COMM names, else "shm". With arguments (scenario, mark):
 * a rank. Rank 1 is the victim. */
#include "comm_kinds.h"
#include "far.h"
#include <dirent.h>
#include <pthread.h>

enum { VICTIM = 1, LARGE = 4 << 20, HUGE_SIZE = 64 << 20 };
static dtl_comm_t comm;
static unsigned char *bytes;
static const char *scenario;

static int is(const char *name) { return strcmp(scenario, name) == 0; }

/* The same with memory that the host cannot touch at both ends. */
static unsigned char *device;
static unsigned char *streamed(void) { return is("device") ? device : bytes; }
static int is_stream(void) { return is("stream") || is("device"); }

/* Collectives begun and not waited for; the victim begins fewer. */
enum { MANY = 20, ITS = 5 };
static int64_t ones = 1, sums[MANY];
static dtl_request_t pending[MANY];

static dtl_request_t *begin_many(int count) {
    int i;
    for (i = 0; i < count; i++) {
        CHECK_OK(dtl_comm_iallreduce(comm, &ones, &sums[i], 1, DTL_DTYPE_INT64, DTL_OP_SUM, &pending[i]));
    }
    return pending;
}

static void wait_backwards(dtl_request_t *requests, int count) {
    while (count-- > 0) CHECK_OK(dtl_request_wait(requests[count], MILLISECONDS(60000), NULL));
}

/* Over shm the victim's part of its collectives is in shared memory when it has completed them. What a network
 * card has not sent yet dies with the process: there the others have to complete them before the death. */
static int outlives_its_sender(void) { return strcmp(kind, "shm") == 0; }

/* ---- the victim ---- */

static void *kill_soon(void *microseconds) {
    usleep(*(const useconds_t *)microseconds);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void be_the_victim(void) {
    static useconds_t microseconds = 40000;
    const int32_t pid = getpid();
    pthread_t killer;
    int i;
    if (is_stream()) microseconds = is("device") ? 60000 : 8000;
    if (is("send")) {
        for (i = 0; i < 3; i++) CHECK_OK(dtl_comm_send(comm, &i, 1, DTL_DTYPE_INT32, 0, i));
    }
    if (is("send") || is("barrier")) CHECK_OK(dtl_comm_send(comm, &pid, 1, DTL_DTYPE_INT32, is("send") ? 0 : 3, 99));
    if (is("pending")) {
        wait_backwards(begin_many(ITS), ITS);
        for (i = 1; !outlives_its_sender() && i < ranks; i++) {
            CHECK_OK(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 78, NULL));
        }
    }
    CHECK(pthread_create(&killer, NULL, kill_soon, &microseconds) == 0);
    if (is("pending")) CHECK_OK(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    if (is("barrier")) CHECK_OK(dtl_comm_barrier(comm));
    if (is("receive")) CHECK_OK(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, 0, 0, NULL));
    if (is("send")) CHECK_OK(dtl_comm_send(comm, bytes, LARGE, DTL_DTYPE_BYTE, 0, 3));
    while (is_stream()) CHECK_OK(dtl_comm_send(comm, streamed(), HUGE_SIZE, DTL_DTYPE_BYTE, 0, 3));
    while (is("allreduce")) {
        CHECK_OK(dtl_comm_allreduce(comm, bytes, bytes + HUGE_SIZE / 2, LARGE, DTL_DTYPE_UINT8, DTL_OP_BOR));
    }
    CHECK(!"it returned: nobody was there to let it");
}

/* ---- the others ---- */

/* The death ends the call, not the time limit: that would be DTL_ERROR_TIMEOUT. */
static void fails_for_the_dead(dtl_status_t status, const char *what) {
    if (status != DTL_ERROR_RANK_FAILURE) {
        fprintf(stderr, "%s, rank %d: %s gave %s: %s\n", scenario, me, what, dtl_status_name(status),
                dtl_last_error());
        exit(1);
    }
    CHECK(strchr(dtl_last_error(), '0' + VICTIM) != NULL);
}

/* Until the victim, which tells its process id, has died in its call. */
static void wait_for_the_end(void) {
    int32_t pid = 0;
    CHECK_OK(dtl_comm_recv(comm, &pid, 1, DTL_DTYPE_INT32, VICTIM, 99, NULL));
    while (kill(pid, 0) == 0) usleep(1000);
}

static void see_it_die(void) {
    dtl_request_t request;
    int i, got;
    if (is("barrier")) {
        dtl_status_t status;
        if (me == 3) wait_for_the_end(); /* nobody gets through before that */
        /* The victim did call this one, so those who need no more of it may pass; not the next. */
        status = dtl_comm_barrier(comm);
        if (status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
        fails_for_the_dead(status, "barrier");
    } else if (is("receive")) {
        if (me == 0) fails_for_the_dead(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 0, NULL), "recv");
        if (me == 2) {
            fails_for_the_dead(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 0, NULL), "recv any");
        }
        if (me == 3) {
            CHECK_OK(dtl_comm_irecv(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 0, &request));
            fails_for_the_dead(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), "wait");
        }
    } else if (is("send")) {
        if (me == 0) {
            wait_for_the_end();
            for (i = 0; i < 3; i++) { /* what was delivered stays */
                CHECK_OK(dtl_comm_recv(comm, &got, 1, DTL_DTYPE_INT32, VICTIM, i, NULL));
                CHECK(got == i);
            }
            fails_for_the_dead(dtl_comm_recv(comm, bytes, LARGE, DTL_DTYPE_BYTE, VICTIM, 3, NULL), "recv");
        } else {
            fails_for_the_dead(dtl_comm_send(comm, bytes, LARGE, DTL_DTYPE_BYTE, VICTIM, 0), "send");
        }
    } else if (is_stream()) {
        dtl_status_t status = DTL_SUCCESS;
        while (me == 0 && status == DTL_SUCCESS) {
            status = dtl_comm_recv(comm, streamed(), HUGE_SIZE, DTL_DTYPE_BYTE, VICTIM, 3, NULL);
            if (is("device")) continue;
            if (status == DTL_SUCCESS) CHECK(is_all(bytes, 1 << 16, 7) && is_all(bytes + HUGE_SIZE - 4096, 4096, 7));
        }
        if (me == 0) fails_for_the_dead(status, "recv");
        else fails_for_the_dead(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 4, NULL), "recv");
    } else if (is("pending")) {
        dtl_request_t *const requests = begin_many(MANY);
        if (!outlives_its_sender()) {
            wait_backwards(requests, ITS);
            CHECK_OK(dtl_comm_send(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 78));
        }
        for (i = MANY; i-- > ITS;) {
            fails_for_the_dead(dtl_request_wait(requests[i], MILLISECONDS(60000), NULL), "an earlier iallreduce");
            /* Whichever is asked after, the first that the victim did not begin is to blame. (#0 is the barrier.) */
            if (strcmp(kind, "shm") == 0) CHECK_TEXT("allreduce #6 ");
        }
        if (outlives_its_sender()) wait_backwards(requests, ITS);
    } else {
        dtl_status_t status = DTL_SUCCESS;
        while (status == DTL_SUCCESS) {
            status = dtl_comm_allreduce(comm, bytes, bytes + HUGE_SIZE / 2, LARGE, DTL_DTYPE_UINT8, DTL_OP_BOR);
        }
        fails_for_the_dead(status, "allreduce");
    }
}

/* What goes on, and what does not. */
static void go_on(void) {
    const int to = me == 0 ? 2 : me == 2 ? 3 : 0, from = me == 0 ? 3 : me == 2 ? 0 : 2;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    fails_for_the_dead(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 9, NULL), "a later recv");
    fails_for_the_dead(dtl_comm_send(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 9), "a later send");
    fails_for_the_dead(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 9, NULL), "a later recv any");
    if (is("barrier") || is("allreduce") || is("pending")) {
        CHECK_STATUS(dtl_comm_allreduce(comm, bytes, bytes + 8, 1, DTL_DTYPE_INT64, DTL_OP_SUM), DTL_ERROR_INVALID_STATE);
        CHECK_TEXT("rank");
    } else {
        fails_for_the_dead(dtl_comm_barrier(comm), "a later barrier");
        CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    }
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(info.failed_count == 1);
    fill(bytes, LARGE, me);
    CHECK_OK(dtl_comm_sendrecv(comm, bytes, LARGE, to, 5, bytes + LARGE, LARGE, from, 5, DTL_DTYPE_BYTE, NULL));
    CHECK(is_filled(bytes + LARGE, LARGE, from));
    CHECK_OK(dtl_comm_sendrecv(comm, &me, 1, to, 6, bytes, 1, from, 6, DTL_DTYPE_INT32, NULL));
    CHECK_OK(dtl_comm_destroy(comm));
    printf("rank %d is well\n", me);
}

static int be_a_rank(void) {
    int i;
    kind = getenv("DTL_COMM") != NULL ? getenv("DTL_COMM") : "shm";
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &ranks));
    CHECK(ranks == 4);
    comm = open_with(MILLISECONDS(60000));
    if (is("leave")) {
        CHECK_OK(dtl_comm_barrier(comm));
        _exit(0); /* no goodbye */
    }
    bytes = (unsigned char *)malloc(HUGE_SIZE);
    CHECK(bytes != NULL);
    memset(bytes, 7, HUGE_SIZE);
    if (is("device") && me < 2) {
        static struct far far;
        void *memory;
        CHECK_OK(dtl_mem_alloc(far_register("far", &far), DTL_MEMORY_DEVICE, HUGE_SIZE, 0, &memory));
        device = (unsigned char *)memory;
        CHECK_OK(dtl_mem_copy(device, bytes, HUGE_SIZE));
    }
    CHECK_OK(dtl_comm_barrier(comm));
    /* The victim goes on when all are out of the barrier. */
    if (me != VICTIM) CHECK_OK(dtl_comm_send(comm, bytes, 1, DTL_DTYPE_BYTE, VICTIM, 77));
    for (i = 1; me == VICTIM && i < ranks; i++) {
        CHECK_OK(dtl_comm_recv(comm, bytes, 1, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 77, NULL));
    }
    if (me == VICTIM) be_the_victim();
    see_it_die();
    go_on();
    return 0;
}

/* ---- the driver ---- */

static int names_with(const char *folder, const char *part) {
    DIR *directory = opendir(folder);
    int count = 0;
    struct dirent *entry;
    if (directory == NULL) return 0;
    /* Not the files of the transports in tests/mutants, which other tests run at the same time. */
    while ((entry = readdir(directory)) != NULL)
        count += strstr(entry->d_name, part) != NULL && strstr(entry->d_name, "mutant") == NULL;
    closedir(directory);
    return count;
}

/* Processes that have the mark among their arguments, besides this one. */
static int processes_with(const char *mark) {
    DIR *directory = opendir("/proc");
    struct dirent *entry;
    int count = 0;
    CHECK(directory != NULL);
    while ((entry = readdir(directory)) != NULL) {
        char path[300], line[1024];
        FILE *file;
        size_t got, i;
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        if (atoi(entry->d_name) <= 0 || (file = fopen(path, "r")) == NULL) continue;
        got = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        for (i = 0; i < got; i++) {
            if (line[i] == '\0') line[i] = ' ';
        }
        line[got] = '\0';
        count += strstr(line, mark) != NULL;
    }
    closedir(directory);
    return count;
}

static void drive(const char *program, const char *name, const char *environment) {
    const char *dtlrun = getenv("DTL_TEST_DTLRUN");
    const uint64_t started = now_ms();
    const int in_shm = names_with("/dev/shm", "dtl");
    char command[2048], mark[40], output[8192], folder[] = "/tmp/death-XXXXXX";
    size_t got;
    int status, rank;
    FILE *pipe;
    snprintf(mark, sizeof mark, "mark-%ld-%s", (long)getpid(), name);
    CHECK(mkdtemp(folder) != NULL);
    snprintf(command, sizeof command, "%s TMPDIR=%s '%s' -n 4 --on-failure=continue '%s' %s %s 2>&1", environment,
             folder, dtlrun, program, name, mark);
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    status = pclose(pipe);
    CHECK(rmdir(folder) == 0); /* nothing was left there */
    printf("%s%s%s: %d ms\n", name, *environment ? " with " : "", environment, (int)(now_ms() - started));
    fflush(stdout);
    if (strcmp(name, "leave") == 0) {
        if (status != 0) fprintf(stderr, "%s\n", output);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        return;
    }
    for (rank = 0; rank < 4; rank++) {
        char well[40];
        snprintf(well, sizeof well, "rank %d is well\n", rank);
        if ((strstr(output, well) != NULL) == (rank != VICTIM)) continue;
        fprintf(stderr, "%s: rank %d:\n%s\n", name, rank, output);
        exit(1);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
    CHECK(strstr(output, "dtlrun: rank 1 was killed by signal 9 (SIGKILL)") != NULL);
    CHECK(names_with("/dev/shm", "dtl") <= in_shm);
    CHECK(processes_with(mark) == 0);
}

int main(int argc, char **argv) {
    const char *scenarios[] = {"barrier", "receive", "send", "stream", "device", "allreduce", "pending"};
    const char *environments[] = {"", "DTL_SHM_COPY=cells"};
    const int ways = getenv("DTL_COMM") == NULL ? 2 : 1; /* that shm can move data */
    int i, k;
    if (argc > 2) {
        scenario = argv[1];
        return be_a_rank();
    }
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not say where dtlrun is");
    for (i = 0; i < 7; i++) {
        for (k = 0; k < ways; k++) drive(argv[0], scenarios[i], environments[k]);
    }
    for (i = 0; i < 10; i++) drive(argv[0], "leave", "");
    return 0;
}
