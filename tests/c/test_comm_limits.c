/* Opening kind "shm" where a rank cannot have what it needs: descriptors, addresses, file size, /proc, one user for all.
 * Each rank hears at once what it is, whose it is, and what to do; nothing else is blamed.
 *
 * Ranks are forked here; what came of each is left in memory that all share. */
#include "comm_kinds.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, SKIPPED = -1 };

struct outcome {
    dtl_status_t status;
    char text[600];
};

static struct outcome *said;
static const char *test;

/* What a rank does before it opens; nonzero: that cannot be done here. */
typedef int (*prepare_t)(int rank, int amount);

static void be_rank(int rank, int size, int round, prepare_t prepare, int amount, uint64_t timeout_ns) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    char job[80];
    uint64_t one = 1, sum = 0;
    snprintf(job, sizeof job, "limits-%ld-%d", (long)getppid(), round);
    desc.kind = "shm";
    desc.rank = rank;
    desc.size = size;
    desc.job = job;
    desc.timeout_ns = timeout_ns;
    if (prepare(rank, amount) != 0) {
        said[rank].status = SKIPPED;
        _exit(0);
    }
    said[rank].status = dtl_comm_open(&desc, &comm);
    if (said[rank].status == DTL_SUCCESS) {
        CHECK_OK(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_UINT64, DTL_OP_SUM));
        CHECK(sum == (uint64_t)size);
        CHECK_OK(dtl_comm_destroy(comm));
    } else {
        snprintf(said[rank].text, sizeof said[rank].text, "%s", dtl_last_error());
    }
    _exit(0);
}

/* Runs so many ranks to their ends; 0: it cannot be tried here. */
static int run(const char *name, int size, prepare_t prepare, int amount, uint64_t timeout_ns) {
    static int round;
    int rank, code = 0;
    test = name;
    round++;
    memset(said, 0, RANKS * sizeof *said);
    for (rank = 0; rank < size; rank++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) be_rank(rank, size, round, prepare, amount, timeout_ns);
    }
    for (rank = 0; rank < size; rank++) {
        CHECK(wait(&code) > 0);
        CHECK(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    }
    for (rank = 0; rank < size; rank++) {
        if (said[rank].status == SKIPPED) {
            printf("%s: cannot be tried here\n", name);
            return 0;
        }
    }
    return 1;
}

static void expect(int rank, dtl_status_t status, const char *words) {
    const struct outcome *const got = &said[rank];
    if (got->status != status || strstr(got->text, words) == NULL) {
        fprintf(stderr, "%s: rank %d: %s instead of %s with \"%s\": %s\n", test, rank, dtl_status_name(got->status),
                dtl_status_name(status), words, got->text);
        exit(1);
    }
}

static int lower(int resource, rlim_t limit) {
    struct rlimit now;
    CHECK(getrlimit((__rlimit_resource_t)resource, &now) == 0);
    now.rlim_cur = limit;
    return setrlimit((__rlimit_resource_t)resource, &now);
}

/* ---- descriptors ---- */

static int victim;

static int few_descriptors(int rank, int amount) {
    const int next = dup(0);
    close(next);
    return rank == victim ? lower(RLIMIT_NOFILE, (rlim_t)(next + amount)) : 0;
}

static void test_descriptors(void) {
    char name[60], whose[20];
    int amount, rank, opened = 0;
    /* With one alone rank 0 can listen, but let nobody in. */
    const int least = victim == 0 ? 2 : 1;
    for (amount = least; amount < 12; amount++) {
        snprintf(name, sizeof name, "%d descriptors for rank %d", amount, victim);
        snprintf(whose, sizeof whose, "rank %d: ", victim);
        run(name, RANKS, few_descriptors, amount, MILLISECONDS(60000));
        if (said[victim].status == DTL_SUCCESS) {
            for (rank = 0; rank < RANKS; rank++) expect(rank, DTL_SUCCESS, "");
            opened++;
            continue;
        }
        CHECK(opened == 0);
        expect(victim, DTL_ERROR_LIMIT, "ulimit -n");
        for (rank = 0; rank < RANKS; rank++) {
            if (rank == victim) continue;
            expect(rank, DTL_ERROR_LIMIT, "ulimit -n");
            expect(rank, DTL_ERROR_LIMIT, whose);
        }
    }
    CHECK(opened > 0);
    /* With fewer it cannot tell. */
    run("no descriptor", RANKS, few_descriptors, least - 1, MILLISECONDS(5000));
    expect(victim, DTL_ERROR_LIMIT, "ulimit -n");
    for (rank = 0; rank < RANKS; rank++) {
        const int was_there = said[rank].status == DTL_ERROR_RANK_FAILURE;
        if (rank != victim) expect(rank, was_there ? DTL_ERROR_RANK_FAILURE : DTL_ERROR_TIMEOUT, "see its own output");
    }
}

/* ---- memory and file size ---- */

static int few_addresses(int rank, int amount) {
    unsigned long pages = 0;
    FILE *const file = fopen("/proc/self/statm", "r");
    if (rank != victim || file == NULL) return 0;
    if (fscanf(file, "%lu", &pages) != 1) pages = 0;
    fclose(file);
    return lower(RLIMIT_AS, (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (rlim_t)amount);
}

static int small_files(int rank, int amount) {
    return rank == victim ? lower(RLIMIT_FSIZE, (rlim_t)amount) : 0;
}

static void test_memory(void) {
    int rank;
    run("few addresses", RANKS, few_addresses, 2 << 20, MILLISECONDS(60000));
    for (rank = 0; rank < RANKS; rank++) expect(rank, DTL_ERROR_OUT_OF_MEMORY, "ulimit -v");
    victim = 0;
    run("small files", RANKS, small_files, 65536, MILLISECONDS(60000));
    for (rank = 0; rank < RANKS; rank++) expect(rank, DTL_ERROR_LIMIT, "ulimit -f");
}

/* ---- no /proc, two users ---- */

static int no_proc(int rank, int amount) {
    (void)amount;
    if (rank != victim) return 0;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 1;
    return umount2("/proc", MNT_DETACH);
}

static int another_user(int rank, int amount) {
    (void)amount;
    return rank == victim ? setuid(65534) : 0;
}

static void test_surroundings(void) {
    char whose[40];
    int rank;
    snprintf(whose, sizeof whose, "the PID namespace of rank %d is unknown", victim);
    if (run("no /proc", RANKS, no_proc, 0, MILLISECONDS(60000))) {
        for (rank = 0; rank < RANKS; rank++) {
            expect(rank, DTL_ERROR_UNAVAILABLE, "/proc is not mounted");
            expect(rank, DTL_ERROR_UNAVAILABLE, whose);
        }
    }
    if (run("two users", RANKS, another_user, 0, MILLISECONDS(5000))) {
        for (rank = 0; rank < RANKS; rank++) {
            if (rank != victim || victim == 0) expect(rank, DTL_ERROR_TIMEOUT, "has ranks under this job name");
        }
        expect(victim, DTL_ERROR_TIMEOUT, "user 0 has ranks under this job name");
    }
}

int main(void) {
    said = (struct outcome *)mmap(NULL, RANKS * sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(said != MAP_FAILED);
    for (victim = 0; victim < 3; victim += 2) test_descriptors();
    victim = 2;
    test_surroundings();
    test_memory();
    return 0;
}
