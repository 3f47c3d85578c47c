/* Survivors go on: a rank is killed at several moments, the others shrink the communicator and work
 * with what is left. Without arguments: the driver (DTL_TEST_DTLRUN names dtlrun). With one: a rank. */
#include "comm_kinds.h"
#include <pthread.h>
#include <sys/wait.h>

enum { VICTIM = 1 };
static dtl_comm_t comm;

static int32_t sum_of(dtl_comm_t of) {
    int32_t one = 1, sum = -1;
    CHECK_OK(dtl_comm_allreduce(of, &one, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    return sum;
}

static void check_survivors(dtl_comm_t all, dtl_comm_t left, int lost) {
    int32_t rank, size, old_rank, value, got = -1, i;
    dtl_recv_info_t info;
    CHECK_OK(dtl_comm_rank(all, &old_rank));
    CHECK_OK(dtl_comm_rank(left, &rank));
    CHECK_OK(dtl_comm_size(left, &size));
    CHECK(size == ranks - lost && rank == old_rank - (old_rank > VICTIM));
    CHECK(sum_of(left) == size);
    /* Everything works, with DTL_ANY_SOURCE too, though a rank of the connection is dead. */
    value = rank;
    CHECK_OK(dtl_comm_sendrecv(left, &value, 1, (rank + 1) % size, 4, &got, 1, DTL_ANY_SOURCE, 4, DTL_DTYPE_INT32, &info));
    CHECK(got == (rank + size - 1) % size && info.source == got);
    for (i = 0; i < 20; i++) CHECK(sum_of(left) == size);
}

static void die_in(const char *scenario) {
    int32_t value = 0;
    usleep(200000); /* the others are through the first barrier */
    if (strcmp(scenario, "before") == 0) kill(getpid(), SIGKILL);
    if (strcmp(scenario, "leaves") == 0) exit(0); /* without a word: that is a death too */
    if (strcmp(scenario, "late") == 0) {
        CHECK_OK(dtl_comm_barrier(comm));
        kill(getpid(), SIGKILL);
    }
    if (strcmp(scenario, "waiting") == 0) {
        CHECK_OK(dtl_comm_send(comm, &value, 1, DTL_DTYPE_INT32, 0, 1));
        usleep(100000);
        kill(getpid(), SIGKILL);
    }
    CHECK(!"no such scenario");
}

static void survive(const char *scenario) {
    int32_t value;
    dtl_comm_t left, again;
    dtl_status_t status = DTL_SUCCESS;
    if (strcmp(scenario, "waiting") == 0) {
        /* Rank 0 sees the death and shrinks; the others wait for a rank that lives and are called. */
        if (me == 0) {
            CHECK_OK(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, VICTIM, 1, NULL));
            CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, VICTIM, 1, NULL), DTL_ERROR_RANK_FAILURE);
        } else {
            CHECK_STATUS(dtl_comm_recv(comm, &value, 1, DTL_DTYPE_INT32, 0, 2, NULL), DTL_ERROR_RANK_FAILURE);
            CHECK_TEXT("shrink");
        }
    } else {
        while (status == DTL_SUCCESS) status = dtl_comm_barrier(comm);
        CHECK(status == DTL_ERROR_RANK_FAILURE);
        status = dtl_comm_barrier(comm); /* out of step, unless another rank shrinks it already */
        CHECK(status == DTL_ERROR_INVALID_STATE || status == DTL_ERROR_RANK_FAILURE);
    }
    CHECK_OK(dtl_comm_shrink(comm, &left));
    CHECK_STATUS(dtl_comm_send(comm, &value, 0, DTL_DTYPE_INT32, 0, 1), DTL_ERROR_RANK_FAILURE); /* it is revoked */
    check_survivors(comm, left, 1);
    /* A healthy one can be shrunk as well, and derived ones are as good as others. */
    CHECK_OK(dtl_comm_dup(left, &again));
    CHECK(sum_of(again) == ranks - 1);
    CHECK_OK(dtl_comm_destroy(again));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_comm_barrier(left));
    CHECK_OK(dtl_comm_destroy(left));
}

static int drive(const char *program) {
    static const char *const scenarios[] = {"before", "leaves", "late", "waiting"};
    static const char *const sizes[] = {"2", "3", "5", "8"};
    const char *dtlrun = getenv("DTL_TEST_DTLRUN");
    size_t i, j;
    const char *name = getenv("DTL_COMM");
    char command[12000], nodes[16];
    if (dtlrun == NULL) SKIP("DTL_TEST_DTLRUN does not name dtlrun");
    for (i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        for (j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            snprintf(nodes, sizeof nodes, "1,%d", atoi(sizes[j]) - 1);
            if (name != NULL && strcmp(name, "hier") == 0) CHECK(setenv("DTL_FAKE_NODES", nodes, 1) == 0);
            snprintf(command, sizeof command, "timeout 60 '%s' --on-failure=continue -n %s '%s' %s >shrink.out 2>&1",
                dtlrun, sizes[j], program, scenarios[i]);
            (void)!system(command);
            snprintf(command, sizeof command, "test $(grep -c 'survived' shrink.out) -eq %d || { cat shrink.out; exit 1; }",
                atoi(sizes[j]) - 1);
            if (system(command) != 0) {
                fprintf(stderr, "%s with %s ranks\n", scenarios[i], sizes[j]);
                return 1;
            }
        }
    }
    return remove("shrink.out");
}

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char folder[] = "/tmp/shrink-XXXXXX";
    if (argc < 2) {
        char path[4096];
        int status;
        CHECK(realpath(argv[0], path) != NULL);
        CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
        status = drive(path);
        CHECK(rmdir(folder) == 0 || status != 0);
        return status;
    }
    desc.kind = getenv("DTL_COMM"); /* NULL = "auto", which is shm */
    desc.timeout_ns = MILLISECONDS(30000);
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_rank(comm, &me));
    CHECK_OK(dtl_comm_size(comm, &ranks));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) die_in(argv[1]);
    survive(argv[1]);
    printf("survived\n");
    return 0;
}
