/* Memory that the ranks of a communicator share by dtl_mem_export and dtl_mem_import: what holds over every kind, if all
 * ranks are on one node. The handles travel by the communicator itself. */
#ifndef DTL_TESTS_MEM_CASES_H
#define DTL_TESTS_MEM_CASES_H

#include "check.h"
#include <string.h>

enum { MEM_MOST = 8, MEM_WORDS = 1024, MEM_ROUNDS = 2000 };

static inline dtl_backend_t mem_host(void) {
    dtl_backend_t host;
    CHECK_OK(dtl_backend_get("host", &host));
    return host;
}

/* Everybody has everybody's block, and sees what others write; a block stays when its owner frees it. */
static inline void mem_all_to_all(dtl_comm_t comm, int me, int ranks) {
    const uint64_t size = MEM_WORDS * sizeof(int64_t);
    const dtl_backend_t host = mem_host();
    dtl_mem_handle_t handle, handles[MEM_MOST];
    int64_t *blocks[MEM_MOST], *own, sum = 0;
    void *memory = NULL;
    uint64_t got = 0;
    int i, k;
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_SHARED, size, 0, &memory));
    own = (int64_t *)memory;
    CHECK_OK(dtl_mem_export(own, &handle));
    CHECK_OK(dtl_comm_allgather(comm, &handle, sizeof handle, handles, DTL_DTYPE_BYTE));
    for (i = 0; i < ranks; i++) {
        CHECK_OK(dtl_mem_import(host, &handles[i], &memory, &got));
        CHECK(got == size && memory != own);
        blocks[i] = (int64_t *)memory;
        blocks[i][1 + me] = 1000 * i + me; /* a word for each rank */
    }
    for (k = 0; k < MEM_ROUNDS; k++) { /* and one for all */
        for (i = 0; i < ranks; i++) __atomic_fetch_add(blocks[i], 1, __ATOMIC_RELAXED);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK(own[0] == (int64_t)ranks * MEM_ROUNDS);
    for (i = 0; i < ranks; i++) {
        for (k = 0; k < ranks; k++) CHECK(own[1 + k] == 1000 * me + k && blocks[i][1 + k] == 1000 * i + k);
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_mem_free(host, own));
    CHECK_OK(dtl_comm_barrier(comm)); /* now all are freed where they were allocated */
    CHECK_STATUS(dtl_mem_import(host, &handles[(me + 1) % ranks], &memory, &got), DTL_ERROR_INVALID_HANDLE);
    for (i = 0; i < ranks; i++) sum += blocks[i][1 + me];
    CHECK(sum == (int64_t)1000 * ranks * (ranks - 1) / 2 + (int64_t)ranks * me);
    for (i = 0; i < ranks; i++) CHECK_OK(dtl_mem_free(host, blocks[i]));
}

/* One rank allocates; the others have it as the memory of messages, copies and a window. */
static inline void mem_as_any_other(dtl_comm_t comm, int me, int ranks) {
    const uint64_t size = (uint64_t)ranks * MEM_WORDS * sizeof(int64_t);
    const int next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
    const dtl_backend_t host = mem_host();
    dtl_mem_handle_t handle;
    int64_t *memory, *mine, there[2] = {0, 0};
    void *given = NULL;
    dtl_win_t win;
    int i;
    memset(&handle, 0, sizeof handle);
    if (me == 0) {
        CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_SHARED, size, 0, &given));
        CHECK_OK(dtl_mem_export(given, &handle));
    }
    CHECK_OK(dtl_comm_bcast(comm, &handle, sizeof handle, DTL_DTYPE_BYTE, 0));
    if (me != 0) CHECK_OK(dtl_mem_import(host, &handle, &given, NULL));
    memory = (int64_t *)given;
    mine = memory + me * MEM_WORDS;
    for (i = 0; i < MEM_WORDS / 2; i++) mine[i] = me * MEM_WORDS + i;
    /* From shared memory into shared memory: the second half is the first one of the rank before. */
    CHECK_OK(dtl_comm_sendrecv(comm, mine, MEM_WORDS / 2, next, 0, mine + MEM_WORDS / 2, MEM_WORDS / 2, before, 0,
                               DTL_DTYPE_INT64, NULL));
    CHECK_OK(dtl_comm_barrier(comm));
    for (i = 0; i < MEM_WORDS / 2; i++) CHECK(memory[next * MEM_WORDS + MEM_WORDS / 2 + i] == me * MEM_WORDS + i);
    CHECK_OK(dtl_mem_copy(there, memory + next * MEM_WORDS + 1, sizeof there));
    CHECK(there[0] == next * MEM_WORDS + 1 && there[1] == next * MEM_WORDS + 2);
    CHECK_OK(dtl_comm_barrier(comm));
    /* A window over each rank's part; what is put to one rank all see. */
    CHECK_OK(dtl_win_create(comm, mine, MEM_WORDS * sizeof(int64_t), sizeof(int64_t), &win));
    CHECK_OK(dtl_win_fence(win));
    there[0] = 70 + me;
    CHECK_OK(dtl_win_put(win, there, 1, DTL_DTYPE_INT64, next, 5));
    CHECK_OK(dtl_win_fence(win));
    for (i = 0; i < ranks; i++) CHECK(memory[i * MEM_WORDS + 5] == 70 + (i + ranks - 1) % ranks);
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_mem_free(host, memory));
}

static inline void mem_cases(dtl_comm_t comm, int me, int ranks) {
    int round;
    CHECK(ranks <= MEM_MOST);
    for (round = 0; round < 3; round++) {
        mem_all_to_all(comm, me, ranks);
        mem_as_any_other(comm, me, ranks);
    }
}

#endif
