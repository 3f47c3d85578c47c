/* What ranks cost each other: a rank that is silent costs its entry in tables (16 bytes), one that was
 * talked to and is idle at most 4 KiB beyond its ring. Counted by the C library: what is allocated.
 * And what all processes of an idle job cost together, counted by the kernel. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes allocated in this process. */
static int64_t heap(void) {
    const struct mallinfo2 now = mallinfo2();
    return (int64_t)(now.uordblks + now.hblkhd);
}

/* ---- shm: of some ranks in two communicators ---- */

static dtl_comm_t open_as(const char *name, int32_t rank, int32_t size, int64_t *out_bytes) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    char job[64];
    const char *const pid = getenv("DTL_JOB");
    int64_t before;
    snprintf(job, sizeof job, "%.40s-%s", pid == NULL ? "alone" : pid, name);
    desc.kind = "shm";
    desc.rank = rank;
    desc.size = size;
    desc.job = job;
    desc.timeout_ns = UINT64_C(60000000000);
    before = heap();
    CHECK_OK(dtl_comm_open(&desc, &comm));
    *out_bytes = heap() - before;
    return comm;
}

/* Rank 0 exchanges a message with each other rank, all others with rank 0 only. */
static void talk(dtl_comm_t comm, int32_t rank, int32_t size) {
    int32_t other, value = rank;
    for (other = rank == 0 ? 1 : 0; other < (rank == 0 ? size : 1); other++) {
        CHECK_OK(dtl_comm_sendrecv(comm, &rank, 1, other, 5, &value, 1, other, 5, DTL_DTYPE_INT32, NULL));
        CHECK(value == other);
    }
}

static void test_shm(int32_t rank, int32_t size) {
    dtl_comm_t comm;
    int64_t two = 0, all = 0, talked;
    if (rank < 2) {
        /* The first one also makes what the process has once. */
        CHECK_OK(dtl_comm_destroy(open_as("first", rank, 2, &two)));
        CHECK_OK(dtl_comm_destroy(open_as("two", rank, 2, &two)));
    }
    comm = open_as("all", rank, size, &all);
    talked = heap();
    talk(comm, rank, size);
    talked = heap() - talked;
    if (rank == 0) {
        printf("shm: open with 2 ranks %lld bytes, with %d ranks %lld; %d idle connections %lld\n", (long long)two,
               (int)size, (long long)all, (int)size - 1, (long long)talked);
        CHECK(all - two <= 16 * (size - 2) + 256); /* malloc rounds up, and not each time by as much */
        CHECK(talked <= 4096 * (size - 1));
    }
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- all of a job ---- */

enum { MOST_OF_A_JOB = 14 << 20 };

/* Anonymous memory of this process in bytes. Neither the library's shared memory nor pages of files: how many
 * of those are mapped depends on what the page cache happens to hold. -1: this kernel does not report it. */
static int64_t own_bytes(void) {
    FILE *const file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long value;
    int64_t all = -1, shared = -1, files = -1;
    if (file == NULL) return -1;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Pss: %ld", &value) == 1) all = value;
        if (sscanf(line, "Pss_Shmem: %ld", &value) == 1) shared = value;
        if (sscanf(line, "Pss_File: %ld", &value) == 1) files = value;
    }
    fclose(file);
    return all < 0 || shared < 0 || files < 0 ? -1 : (all - shared - files) * 1024;
}

/* Bytes of the shared memory: every page that is there, whoever has touched it. */
static int64_t shared_bytes(void) {
    DIR *const folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int64_t bytes = 0;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        char path[300], target[64] = "";
        struct stat status;
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "/memfd:dtl", 10) == 0) {
            CHECK(stat(path, &status) == 0);
            bytes += (int64_t)status.st_blocks * 512;
        }
    }
    closedir(folder);
    return bytes;
}

static void check_job(dtl_comm_t comm, int32_t rank, int32_t size, const char *state) {
    int64_t mine = own_bytes(), sum = 0;
    const int64_t shared = shared_bytes();
    CHECK_OK(dtl_comm_barrier(comm)); /* nobody goes on before all have looked */
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_MIN));
    if (sum < 0) {
        if (rank == 0) puts("skipped: /proc/self/smaps_rollup does not say what a process uses");
        return;
    }
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    if (rank > 0) return;
    printf("%d ranks, %s: %lld bytes of their own, %lld shared\n", (int)size, state, (long long)sum, (long long)shared);
    CHECK(shared > 0);
#ifndef __SANITIZE_ADDRESS__ /* which has megabytes of its own in each process */
    CHECK(sum + shared <= MOST_OF_A_JOB);
#endif
}

static void test_job(int32_t rank, int32_t size) {
    int64_t bytes;
    const dtl_comm_t comm = open_as("job", rank, size, &bytes);
    int32_t other;
    CHECK_OK(dtl_comm_barrier(comm));
    check_job(comm, rank, size, "open");
    for (other = 0; other < size; other++) { /* each of a pair gets the other's number */
        int32_t value = -1;
        CHECK_OK(dtl_comm_sendrecv(comm, &rank, 1, other, 6, &value, 1, other, 6, DTL_DTYPE_INT32, NULL));
        CHECK(value == other);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    check_job(comm, rank, size, "idle after each has talked to each");
    CHECK_OK(dtl_comm_destroy(comm));
}

/* ---- threads: all ranks in this process ---- */

enum { MANY = 512 };

/* Bytes of a communicator, and how much they grow when rank 0 talks to all. */
static int64_t of_threads(int32_t size, int64_t *out_talked) {
    static dtl_comm_t comms[MANY];
    dtl_request_t requests[2];
    int32_t rank, value[2] = {0, 0};
    int64_t before = heap(), bytes;
    CHECK_OK(dtl_comm_threads(size, UINT64_C(60000000000), comms));
    bytes = heap() - before;
    before = heap();
    for (rank = 1; rank < size; rank++) {
        CHECK_OK(dtl_comm_isend(comms[0], &rank, 1, DTL_DTYPE_INT32, rank, 1, &requests[0]));
        CHECK_OK(dtl_comm_recv(comms[rank], &value[0], 1, DTL_DTYPE_INT32, 0, 1, NULL));
        CHECK_OK(dtl_comm_isend(comms[rank], &rank, 1, DTL_DTYPE_INT32, 0, 1, &requests[1]));
        CHECK_OK(dtl_comm_recv(comms[0], &value[1], 1, DTL_DTYPE_INT32, rank, 1, NULL));
        CHECK(value[0] == rank && value[1] == rank);
        CHECK_OK(dtl_request_wait_all(requests, 2, DTL_TIMEOUT_INFINITE, NULL));
    }
    *out_talked = heap() - before;
    for (rank = 0; rank < size; rank++) CHECK_OK(dtl_comm_destroy(comms[rank]));
    return bytes;
}

static void test_threads(void) {
    const int64_t few = MANY / 2, many = MANY;
    int64_t talked, of_few, of_many;
    (void)of_threads(MANY, &talked); /* makes what the process has once */
    of_few = of_threads((int32_t)few, &talked);
    of_many = of_threads((int32_t)many, &talked);
    printf("threads: %d ranks %lld bytes, %d ranks %lld; %d idle connections %lld\n", (int)few, (long long)of_few,
           (int)many, (long long)of_many, (int)many - 1, (long long)talked);
    /* Without what each rank costs alone: twice as many ranks, four times as many pairs. */
    CHECK(of_many - 2 * of_few <= 16 * (many * many - 2 * few * few));
    CHECK(talked <= 2 * 4096 * (many - 1)); /* both ends are in this process */
}

/* Bytes of the process that are in memory. */
static int64_t resident(void) {
    FILE *const file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0) kib = atol(line + 6);
    fclose(file);
    CHECK(kib > 0);
    return kib * INT64_C(1024);
}

enum { MOST = 4096, DRIVEN = 512, MOST_OF_ONE = 64 << 10 };
static dtl_comm_t many[MOST], made[2][DRIVEN];
static pthread_barrier_t all_there;
static int64_t stages[4];

/* Bytes now, where all threads are between two collectives. */
static void stage(int rank, int number) {
    pthread_barrier_wait(&all_there);
    if (rank == 0) stages[number] = heap();
    pthread_barrier_wait(&all_there);
}

static void *drive(void *argument) {
    const int rank = (int)(intptr_t)argument;
    int64_t mine = rank, sum = 0;
    int i;
    stage(rank, 0);
    CHECK_OK(dtl_comm_dup(many[rank], &made[0][rank]));
    CHECK_OK(dtl_comm_split(many[rank], 0, DRIVEN - rank, &made[1][rank]));
    stage(rank, 1);
    for (i = 0; i < 2; i++) {
        CHECK_OK(dtl_comm_barrier(made[i][rank]));
        CHECK_OK(dtl_comm_allreduce(made[i][rank], &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
        CHECK(sum == (int64_t)DRIVEN * (DRIVEN - 1) / 2);
    }
    stage(rank, 2);
    for (i = 0; i < 2; i++) CHECK_OK(dtl_comm_destroy(made[i][rank]));
    CHECK_OK(dtl_comm_destroy(many[rank]));
    return NULL;
}

/* Opens as many ranks as there may be, and destroys them. */
static void open_most(void) {
    int64_t bytes = heap();
    int i;
    CHECK_OK(dtl_comm_threads(MOST, 0, many));
    bytes = heap() - bytes;
    printf("threads: %d ranks, %lld bytes each\n", MOST, (long long)bytes / MOST);
    CHECK(bytes <= (int64_t)MOST * MOST_OF_ONE);
    for (i = 0; i < MOST; i++) CHECK_OK(dtl_comm_destroy(many[i]));
}

/* What an idle communicator of many ranks takes: opened, made of another, used. */
static void open_and_derive(void) {
    static pthread_t threads[DRIVEN];
    pthread_attr_t attributes;
    dtl_backend_t host;
    int i;
    open_most();
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 1 << 18) == 0);
    CHECK(pthread_barrier_init(&all_there, NULL, DRIVEN) == 0);
    CHECK_OK(dtl_comm_threads(DRIVEN, UINT64_C(60000000000), many));
    for (i = 0; i < DRIVEN; i++) CHECK(pthread_create(&threads[i], &attributes, drive, (void *)(intptr_t)i) == 0);
    for (i = 0; i < DRIVEN; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0 && pthread_barrier_destroy(&all_there) == 0);
    printf("threads: 2 communicators made of one of %d ranks, %lld bytes each rank; used, %lld\n", DRIVEN,
           (long long)(stages[1] - stages[0]) / DRIVEN, (long long)(stages[2] - stages[0]) / DRIVEN);
    /* With 4096 ranks, the tables of all members are 24 KiB more. */
    CHECK(stages[2] - stages[0] <= (int64_t)DRIVEN * 2 * 40 << 10);
    CHECK_OK(dtl_backend_get("host", &host));
    CHECK_OK(dtl_mem_trim(host));
}

/* All of it comes back. The first time makes what the process has once: slots of handles, what threads leave to later ones. */
static void test_many_ranks(void) {
    int64_t first, last;
    open_and_derive();
    first = resident();
    open_and_derive();
    open_and_derive();
    last = resident();
    printf("threads: %lld bytes resident, %lld in the end\n", (long long)first, (long long)last);
    CHECK(KEEPS_FREED || last <= first + first / 10);
}

int main(int argc, char **argv) {
    int32_t rank = 0, size = 1;
    /* The C library counts what a thread keeps for its next malloc as allocated: not here. */
    if (getenv("GLIBC_TUNABLES") == NULL) {
        CHECK(setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1:glibc.pthread.stack_cache_size=0", 1) == 0);
        execv("/proc/self/exe", argv);
        CHECK(!"execv");
    }
    if (argc < 2) {
        test_threads();
        test_many_ranks();
        puts("ok");
        return 0;
    }
    rank = atoi(getenv("DTL_RANK") ? getenv("DTL_RANK") : "0");
    size = atoi(getenv("DTL_SIZE") ? getenv("DTL_SIZE") : "1");
    if (strcmp(argv[1], "job") == 0) {
        test_job(rank, size);
    } else {
        test_shm(rank, size);
    }
    if (rank == 0) puts("ok");
    return 0;
}
