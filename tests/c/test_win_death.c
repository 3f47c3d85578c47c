/* What the other ranks see of a window when a target is killed, or leaves: real processes, real SIGKILL.
 *
 * Without arguments: the driver, which starts the ranks with dtlrun (DTL_TEST_DTLRUN names it). With two: a rank, in a case
 * and with a window that is allocated or made of the program's memory, which the kernel copies or messages. Rank 1 is the victim. */
#include "comm_kinds.h"

enum { VICTIM = 1, CELLS = 4096 };

/* The memory of a window that is created, not allocated. */
static int64_t elsewhere[CELLS];

/* It holds a lock of rank 0 when it goes. */
static void be_the_victim(dtl_comm_t comm, dtl_win_t win) {
    char ready = 0;
    int i;
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    for (i = 0; i < ranks; i++)
        if (i != VICTIM) CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, i, 1));
    /* All have asked for something that only its death ends. */
    for (i = 0; i < ranks; i++)
        if (i != VICTIM) CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, i, 2, NULL));
    kill(getpid(), SIGKILL);
}

static void fails(dtl_status_t status) {
    CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
    CHECK(strchr(dtl_last_error(), '0' + VICTIM) != NULL);
}

/* The two that live, 0 and 2. */
static void meet_other(dtl_comm_t comm) {
    char ready = 0;
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 2 - me, 3));
    CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 2 - me, 3, NULL));
}

static void see_it_die(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    const int other = me == 0 ? 2 : 0;
    int64_t value = me, got[CELLS];
    dtl_request_t request;
    dtl_status_t status;
    char ready = 0;
    CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 1, NULL));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, VICTIM));
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 2));
    /* Fetches end, in the end with what the status says, and requests too. */
    do {
        status = dtl_win_get(win, got, CELLS, DTL_DTYPE_INT64, VICTIM, 0);
        if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    } while (status == DTL_SUCCESS);
    fails(status);
    status = dtl_win_rget(win, got, CELLS, DTL_DTYPE_INT64, VICTIM, 0, &request);
    if (status == DTL_SUCCESS) status = dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL);
    fails(status);
    status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0);
    if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    fails(status);
    status = dtl_win_unlock(win, VICTIM);
    if (status != DTL_SUCCESS) fails(status);
    fails(dtl_win_lock(win, DTL_LOCK_SHARED, VICTIM));
    fails(dtl_win_lock_all(win));
    /* The lock that the victim held is free, and the living reach each other. */
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    CHECK_OK(dtl_win_fetch_op(win, &value, got, DTL_DTYPE_INT64, 0, 7, DTL_OP_SUM));
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, other));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, other, (uint64_t)me));
    CHECK_OK(dtl_win_unlock(win, other));
    fails(dtl_win_fence(win));
    meet_other(comm);
    CHECK(base[other] == other);
    if (me == 0) CHECK(base[7] == 2); /* 0 + 2 */
    CHECK_OK(dtl_win_destroy(win)); /* without the dead */
    CHECK_STATUS(dtl_win_destroy(win), DTL_ERROR_INVALID_HANDLE);
    printf("rank %d is well\n", me);
}

static void test_killed(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    if (me == VICTIM) be_the_victim(comm, win);
    see_it_die(comm, win, base);
}

/* The end of the library is the end of a rank's locks. */
static void test_leaves(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    (void)base;
    if (me == VICTIM) {
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 2));
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_finalize());
        sleep(1); /* it lives on */
        exit(0);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0));
    CHECK_OK(dtl_win_unlock(win, 0));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 2));
    CHECK_OK(dtl_win_unlock(win, 2));
    meet_other(comm);
    printf("rank %d is well\n", me);
}

/* Nobody knows of the death before the window's end. */
static void test_at_end(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    (void)base;
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) kill(getpid(), SIGKILL);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_STATUS(dtl_win_destroy(win), DTL_ERROR_INVALID_HANDLE);
    printf("rank %d is well\n", me);
}

/* Nothing but calls on windows is there to notice it, and not many of those. */
static void test_quiet(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    const struct timespec moment = {0, 300000000};
    int64_t value = me;
    dtl_status_t status;
    char ready = 0;
    (void)base;
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) {
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 2, NULL));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 2, NULL));
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, VICTIM, 2));
    nanosleep(&moment, NULL);
    status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0);
    if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    fails(status);
    fails(dtl_win_flush(win, VICTIM));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 2 - me, 0));
    CHECK_OK(dtl_win_flush(win, 2 - me));
    fails(dtl_win_unlock_all(win));
    fails(dtl_win_lock(win, DTL_LOCK_SHARED, VICTIM));
    meet_other(comm); /* neither leaves before the other */
    CHECK_OK(dtl_win_destroy(win));
    printf("rank %d is well\n", me);
}

/* Amid an epoch to all: each flush that is about the dead one says so, again and again. */
static void test_flush(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    int64_t value = 1;
    dtl_status_t status;
    (void)base;
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) kill(getpid(), SIGKILL);
    do {
        status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0);
        if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
    } while (status == DTL_SUCCESS);
    fails(status);
    fails(dtl_win_flush(win, VICTIM));
    fails(dtl_win_flush_all(win));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, me, 0));
    CHECK_OK(dtl_win_flush(win, me));
    fails(dtl_win_unlock_all(win));
    CHECK_STATUS(dtl_win_unlock_all(win), DTL_ERROR_INVALID_STATE);
    meet_other(comm);
    CHECK_OK(dtl_win_destroy(win));
    printf("rank %d is well\n", me);
}

/* After a fence has failed there are locks. */
static void test_fence(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    const int other = 2 - me;
    int64_t value = 1;
    CHECK_OK(dtl_win_fence(win));
    if (me == VICTIM) kill(getpid(), SIGKILL);
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, other, 1));
    fails(dtl_win_fence(win));
    CHECK_STATUS(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, other, 2), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_win_fence(win), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, other));
    CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, other, 3));
    CHECK_OK(dtl_win_unlock(win, other));
    meet_other(comm);
    CHECK(base[2] == 0 && base[3] == 1);
    CHECK_OK(dtl_win_destroy(win));
    printf("rank %d is well\n", me);
}

/* Sends SIGSTOP and waits until the process has stopped. */
static void stop(pid_t pid) {
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    CHECK(kill(pid, SIGSTOP) == 0);
    while (strstr(line, ") T ") == NULL) { /* the state follows the name, which is in parentheses */
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        usleep(1000);
    }
}

/* A window whose target lives but says nothing, the lock of which cannot be given back: it can be given up. */
static void test_silent(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    static int64_t mine[8];
    int64_t victim = getpid(), value = 7;
    dtl_win_t own;
    dtl_comm_t quick = open_with(MILLISECONDS(500));
    (void)base;
    CHECK_OK(dtl_win_create(quick, mine, sizeof mine, 8, &own));
    CHECK_OK(dtl_comm_bcast(comm, &victim, 1, DTL_DTYPE_INT64, VICTIM));
    if (me == 0) {
        CHECK_OK(dtl_win_lock(own, DTL_LOCK_EXCLUSIVE, VICTIM));
        CHECK_STATUS(dtl_win_destroy(own), DTL_ERROR_INVALID_STATE);
        stop((pid_t)victim);
        CHECK_OK(dtl_win_accumulate(own, &value, 1, DTL_DTYPE_INT64, VICTIM, 0, DTL_OP_SUM));
        CHECK_STATUS(dtl_win_unlock(own, VICTIM), DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_win_unlock(own, VICTIM), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_win_destroy(own));
        CHECK_STATUS(dtl_win_unlock(own, VICTIM), DTL_ERROR_INVALID_HANDLE);
        CHECK(kill((pid_t)victim, SIGCONT) == 0);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    if (me != 0) {
        /* They hear that nobody comes, or wait for it once. */
        const dtl_status_t ended = dtl_win_destroy(own);
        if (ended != DTL_SUCCESS) CHECK_STATUS(ended, DTL_ERROR_TIMEOUT);
        CHECK_STATUS(dtl_win_destroy(own), ended == DTL_SUCCESS ? DTL_ERROR_INVALID_HANDLE : DTL_SUCCESS);
    }
    CHECK_OK(dtl_comm_destroy(quick));
    CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, VICTIM)); /* another window is not concerned */
    CHECK_OK(dtl_win_unlock(win, VICTIM));
    CHECK_OK(dtl_win_destroy(win));
    printf("rank %d is well\n", me);
}

/* A survivor destroys the window after the death; the other one is still in an epoch of it. */
static void destroyed_by_other(dtl_comm_t comm, dtl_win_t win, int is_fence) {
    int64_t value = 1;
    char ready = 0;
    dtl_status_t status;
    if (is_fence) CHECK_OK(dtl_win_fence(win));
    else if (me == 0) CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 2));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) kill(getpid(), SIGKILL);
    if (me == 0) {
        CHECK_OK(dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, 2, 0, DTL_OP_SUM));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 4, NULL));
        status = is_fence ? dtl_win_fence(win) : dtl_win_unlock(win, 2);
        /* Where ranks share memory, what was done is done: an unlock needs no answer. */
        if (is_fence || status != DTL_SUCCESS) CHECK_STATUS(status, DTL_ERROR_RANK_FAILURE);
        if (!is_fence) {
            /* The target is the reason, not the dead rank. */
            status = dtl_win_lock(win, DTL_LOCK_SHARED, 2);
            if (status == DTL_SUCCESS) CHECK_OK(dtl_win_unlock(win, 2));
            else CHECK(strstr(dtl_last_error(), " 2") != NULL && strstr(dtl_last_error(), "rank(s) 1") == NULL);
        }
        CHECK_OK(dtl_win_destroy(win));
    } else {
        if (is_fence) fails(dtl_win_fence(win));
        else while (dtl_comm_barrier(comm) == DTL_SUCCESS) continue; /* until it knows of the death */
        CHECK_OK(dtl_win_destroy(win));
        CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 4));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 5, NULL)); /* it lives on */
    }
    if (me == 0) CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 5));
    printf("rank %d is well\n", me);
}

static void test_fence_alone(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    (void)base;
    destroyed_by_other(comm, win, 1);
}

static void test_unlock_alone(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    (void)base;
    destroyed_by_other(comm, win, 0);
}

/* After the death a survivor destroys the window: nothing more is done to its part. */
static void test_destroyed(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    int64_t value = 1;
    char ready = 0;
    dtl_status_t unlocked;
    CHECK_OK(dtl_win_fence(win));
    if (me == VICTIM) kill(getpid(), SIGKILL);
    fails(dtl_win_fence(win));
    if (me == 2) {
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 3, NULL));
        CHECK_OK(dtl_win_destroy(win));
        CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 4));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 0, 5, NULL)); /* it lives on */
    } else {
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_SHARED, 2));
        CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 3));
        CHECK_OK(dtl_comm_recv(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 4, NULL));
        if (dtl_win_accumulate(win, &value, 1, DTL_DTYPE_INT64, 2, 0, DTL_OP_SUM) != DTL_SUCCESS) CHECK_TEXT("2");
        CHECK_STATUS(dtl_win_flush(win, 2), DTL_ERROR_RANK_FAILURE);
        unlocked = dtl_win_unlock(win, 2); /* by messages, the flush has told all that was not done */
        if (base != elsewhere || unlocked != DTL_SUCCESS) CHECK_STATUS(unlocked, DTL_ERROR_RANK_FAILURE);
        CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_SHARED, 2), DTL_ERROR_RANK_FAILURE);
        CHECK_TEXT("2");
        CHECK_STATUS(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 2), DTL_ERROR_RANK_FAILURE);
        CHECK_OK(dtl_win_lock(win, DTL_LOCK_EXCLUSIVE, 0)); /* this rank's own part is there */
        CHECK_OK(dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, 0, 1));
        CHECK_OK(dtl_win_unlock(win, 0));
        CHECK(base[1] == 1);
        CHECK_OK(dtl_win_destroy(win));
        CHECK_OK(dtl_comm_send(comm, &ready, 1, DTL_DTYPE_BYTE, 2, 5));
    }
    printf("rank %d is well\n", me);
}

/* Whether a process is in one of these states of /proc. */
static int is_in_state(pid_t pid, const char *states) {
    char path[64], text[512];
    const char *after;
    size_t got;
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    CHECK(file != NULL);
    got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    after = strrchr(text, ')');
    return after != NULL && strchr(states, after[2]) != NULL;
}

static int goes_by(dtl_win_t win, const char *way) {
    dtl_win_info_t info = DTL_WIN_INFO_INIT;
    CHECK_OK(dtl_win_info(win, me, &info));
    return strstr(info.way, way) != NULL;
}

/* A target that can do nothing: puts, gets and flushes do without it, unless they go by messages. */
static void test_stopped(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    int64_t victim = getpid(), value[CELLS], got[CELLS];
    int i;
    base[5] = me;
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_comm_bcast(comm, &victim, 1, DTL_DTYPE_INT64, VICTIM));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0 && !goes_by(win, "messages, served")) {
        for (i = 0; i < CELLS; i++) value[i] = i;
        CHECK(kill((pid_t)victim, SIGSTOP) == 0);
        while (!is_in_state((pid_t)victim, "T")) usleep(1000);
        CHECK_OK(dtl_win_get(win, got, 1, DTL_DTYPE_INT64, VICTIM, 5));
        CHECK_OK(dtl_win_flush(win, VICTIM));
        CHECK(got[0] == VICTIM);
        CHECK_OK(dtl_win_put(win, value, CELLS, DTL_DTYPE_INT64, VICTIM, 0));
        CHECK_OK(dtl_win_flush(win, VICTIM));
        CHECK_OK(dtl_win_get(win, got, CELLS, DTL_DTYPE_INT64, VICTIM, 0));
        CHECK_OK(dtl_win_flush(win, VICTIM));
        CHECK(memcmp(value, got, sizeof got) == 0);
        CHECK(kill((pid_t)victim, SIGCONT) == 0);
    }
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_win_fence(win));
    if (me == VICTIM && !goes_by(win, "messages, served")) CHECK(base[5] == 5 && base[CELLS - 1] == CELLS - 1);
    CHECK_OK(dtl_win_destroy(win));
    printf("rank %d is well\n", me);
}

/* The victim's process runs another program, which must not be written to. It has the same number. */
static void test_exec(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    int64_t victim = getpid(), value = 1;
    dtl_status_t status;
    (void)base;
    CHECK_OK(dtl_comm_bcast(comm, &victim, 1, DTL_DTYPE_INT64, VICTIM));
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM) {
        execlp("sleep", "sleep", "1000", (char *)NULL);
        exit(1);
    }
    if (goes_by(win, "by the kernel")) {
        do {
            status = dtl_win_put(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0);
            if (status == DTL_SUCCESS) status = dtl_win_flush(win, VICTIM);
        } while (status == DTL_SUCCESS);
        fails(status);
        CHECK_TEXT("runs another program");
        CHECK(kill((pid_t)victim, 0) == 0 && !is_in_state((pid_t)victim, "Z"));
        fails(dtl_win_flush(win, VICTIM));
        fails(dtl_win_get(win, &value, 1, DTL_DTYPE_INT64, VICTIM, 0));
    }
    meet_other(comm);
    if (me == 0) CHECK(kill((pid_t)victim, SIGKILL) == 0);
    printf("rank %d is well\n", me);
    fflush(stdout);
    _exit(0);
}

/* It changes elements of rank 0 under their lock nearly all the time, and dies there as like as not. The others go on. */
static void test_in_lock(dtl_comm_t comm, dtl_win_t win, int64_t *base) {
    enum { BYTES = CELLS * sizeof(int64_t) };
    static signed char ones[BYTES];
    int64_t victim = getpid();
    signed char got = 0;
    int i;
    (void)base;
    memset(ones, 1, sizeof ones);
    CHECK_OK(dtl_comm_bcast(comm, &victim, 1, DTL_DTYPE_INT64, VICTIM));
    CHECK_OK(dtl_win_lock_all(win));
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == VICTIM)
        for (;;) CHECK_OK(dtl_win_accumulate(win, ones, BYTES, DTL_DTYPE_INT8, 0, 0, DTL_OP_PROD));
    for (i = 0; i < 20; i++) CHECK_OK(dtl_win_fetch_op(win, ones, &got, DTL_DTYPE_INT8, 0, 0, DTL_OP_SUM));
    meet_other(comm);
    if (me == 0) CHECK(kill((pid_t)victim, SIGKILL) == 0);
    for (i = 0; i < 20; i++) {
        CHECK_OK(dtl_win_fetch_op(win, ones, &got, DTL_DTYPE_INT8, 0, 0, DTL_OP_SUM));
        CHECK_OK(dtl_win_accumulate(win, ones, BYTES, DTL_DTYPE_INT8, 0, 0, DTL_OP_BXOR));
    }
    meet_other(comm);
    printf("rank %d is well\n", me);
    fflush(stdout);
    _exit(0);
}

static const struct {
    const char *name;
    void (*run)(dtl_comm_t comm, dtl_win_t win, int64_t *base);
    int code; /* of the victim */
} cases[] = {{"killed", test_killed, 128 + SIGKILL},
             {"leaves", test_leaves, 0},
             {"at_end", test_at_end, 128 + SIGKILL},
             {"quiet", test_quiet, 128 + SIGKILL},
             {"flush", test_flush, 128 + SIGKILL},
             {"fence", test_fence, 128 + SIGKILL},
             {"fence_alone", test_fence_alone, 128 + SIGKILL},
             {"unlock_alone", test_unlock_alone, 128 + SIGKILL},
             {"destroyed", test_destroyed, 128 + SIGKILL},
             {"silent", test_silent, 0},
             {"stopped", test_stopped, 0},
             {"exec", test_exec, 128 + SIGKILL},
             {"in_lock", test_in_lock, 128 + SIGKILL}};

enum { CASES = sizeof cases / sizeof cases[0] };

static int be_a_rank(const char *name, const char *how) {
    void *base = elsewhere;
    dtl_comm_t comm;
    dtl_win_t win;
    int i;
    kind = "shm";
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &ranks));
    CHECK(ranks == 3);
    comm = open_with(MILLISECONDS(20000));
    if (strcmp(how, "allocate") != 0) {
        CHECK_OK(dtl_win_create(comm, elsewhere, sizeof elsewhere, 8, &win));
    } else {
        CHECK_OK(dtl_win_allocate(comm, sizeof elsewhere, 8, &base, &win));
    }
    for (i = 0; i < CASES; i++)
        if (strcmp(name, cases[i].name) == 0) cases[i].run(comm, win, (int64_t *)base);
    return 0;
}

static void run_case(const char *program, int number, const char *how) {
    char command[1024], output[8192];
    size_t got;
    FILE *pipe;
    int status;
    snprintf(command, sizeof command, "%s '%s' -n 3 --on-failure=continue '%s' %s %s 2>&1", strcmp(how, "messages") == 0 ? "DTL_SHM_COPY=cells" : "",
             getenv("DTL_TEST_DTLRUN"), program, cases[number].name, how);
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    got = fread(output, 1, sizeof output - 1, pipe);
    output[got] = '\0';
    status = pclose(pipe);
    if (strstr(output, "rank 0 is well") == NULL || strstr(output, "rank 2 is well") == NULL) {
        fprintf(stderr, "%s, %s: %s\n", cases[number].name, how, output);
        exit(1);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == cases[number].code);
}

int main(int argc, char **argv) {
    int i;
    if (argc > 2) return be_a_rank(argv[1], argv[2]);
    if (getenv("DTL_TEST_DTLRUN") == NULL) SKIP("DTL_TEST_DTLRUN does not say where dtlrun is");
    for (i = 0; i < CASES; i++) {
        run_case(argv[0], i, "allocate");
        run_case(argv[0], i, "create");
        run_case(argv[0], i, "messages");
    }
    return 0;
}
