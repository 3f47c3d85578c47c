/* Operations whose instructions are counted: each row is a function that repeats one of them. Run by run.sh under
 * callgrind, which counts inside the functions row_… only; before, the same is done in warm_…, so that what happens
 * once is not counted. One thread drives both ends of a communicator: nobody waits, no spinning is counted. C11. */
#define _GNU_SOURCE
#include "../../benches/idle.h"
#include "../../benches/lists.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* run.sh reads this number. */
enum { ROUNDS = 200 };

#define ROW(name)                                                                                    \
    static inline __attribute__((always_inline)) void do_##name(void);                               \
    __attribute__((noinline)) static void warm_##name(void)                                          \
    {                                                                                                \
        do_##name();                                                                                 \
    }                                                                                                \
    __attribute__((noinline)) static void row_##name(void)                                           \
    {                                                                                                \
        __asm__ volatile("# counted"); /* or the compiler makes one function of both */              \
        do_##name();                                                                                 \
    }                                                                                                \
    static inline __attribute__((always_inline)) void do_##name(void)

static dtl_comm_t ends[2], shm[2], lists[2], mpi, others[2000];
static dtl_request_t complete[ROUNDS];
static dtl_backend_t host;
static dtl_pool_t pool;
static dtl_executor_t alone;
static dtl_stream_t stream;
static dtl_event_t event;
static dtl_win_t win;
static dtl_policy_t fixed, in_turn, least_of_4, least_of_16, tuned;

/* Rows of cpp.cpp: through dtl.hpp. */
void warm_cpp_message_info_8(const dtl_comm_t *), row_cpp_message_info_8(const dtl_comm_t *);
void warm_cpp_send_recv_info_8(const dtl_comm_t *), row_cpp_send_recv_info_8(const dtl_comm_t *);

static dtl_status_t nothing(uint64_t begin, uint64_t end, void *user)
{
    (void)begin, (void)end, (void)user;
    return DTL_SUCCESS;
}

/* A message of 8 bytes from one end to the other, into a receive that waits for it. */
static inline __attribute__((always_inline)) void expected(dtl_comm_t from, dtl_comm_t to, int32_t source, int32_t dest)
{
    uint64_t there = 7, here = 0;
    dtl_request_t requests[2];
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_irecv(to, &here, 1, DTL_DTYPE_UINT64, source, 3, &requests[1]));
        DTL_CHECK(dtl_comm_isend(from, &there, 1, DTL_DTYPE_UINT64, dest, 3, &requests[0]));
        DTL_CHECK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
        DTL_CHECK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, NULL));
    }
    if (here != there) abort();
}
ROW(message_8)
{
    expected(ends[0], ends[1], 0, 1);
}
/* The same, and what the receive got: what cpp.cpp does. */
ROW(message_info_8)
{
    uint64_t there = 7, here = 0;
    dtl_request_t requests[2];
    dtl_recv_info_t info = {0, 0, 0, 0, 0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_irecv(ends[1], &here, 1, DTL_DTYPE_UINT64, 0, 3, &requests[1]));
        DTL_CHECK(dtl_comm_isend(ends[0], &there, 1, DTL_DTYPE_UINT64, 1, 3, &requests[0]));
        DTL_CHECK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
        DTL_CHECK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, &info));
    }
    if (here != there || info.size_bytes != 8) abort();
}
ROW(shm_message_8)
{
    expected(shm[0], shm[1], 0, 1);
}
/* Over a registered transport. */
ROW(frames_message_8)
{
    expected(lists[0], lists[1], 0, 1);
}
/* From an MPI process to itself. run.sh counts libdtl.so only. */
ROW(mpi_message_8)
{
    expected(mpi, mpi, 0, 0);
}

/* By blocking calls: the message comes before its receive. */
static inline __attribute__((always_inline)) void blocking(dtl_comm_t from, dtl_comm_t to, int32_t source, int32_t dest)
{
    uint64_t there = 11, here = 0;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_send(from, &there, 1, DTL_DTYPE_UINT64, dest, 3));
        DTL_CHECK(dtl_comm_recv(to, &here, 1, DTL_DTYPE_UINT64, source, 3, NULL));
    }
    if (here != there) abort();
}
/* The same, and what the receive got: what cpp.cpp does. */
ROW(send_recv_info_8)
{
    uint64_t there = 11, here = 0;
    dtl_recv_info_t info = {0, 0, 0, 0, 0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_send(ends[0], &there, 1, DTL_DTYPE_UINT64, 1, 3));
        DTL_CHECK(dtl_comm_recv(ends[1], &here, 1, DTL_DTYPE_UINT64, 0, 3, &info));
    }
    if (here != there || info.size_bytes != 8) abort();
}
ROW(send_recv_8)
{
    blocking(ends[0], ends[1], 0, 1);
}
ROW(self_send_recv_8)
{
    blocking(DTL_COMM_SELF, DTL_COMM_SELF, 0, 0);
}
ROW(shm_send_recv_8)
{
    blocking(shm[0], shm[1], 0, 1);
}
ROW(frames_send_recv_8)
{
    blocking(lists[0], lists[1], 0, 1);
}

/* Windows of messages: each side waits for all of its requests at once. */
static inline __attribute__((always_inline)) void window(dtl_comm_t from, dtl_comm_t to, int32_t source, int32_t dest)
{
    enum { WINDOW = 50 };
    uint64_t there[WINDOW], here[WINDOW];
    dtl_request_t sends[WINDOW], receives[WINDOW];
    for (int i = 0; i < ROUNDS; i += WINDOW) {
        for (int k = 0; k < WINDOW; k++) {
            DTL_CHECK(dtl_comm_irecv(to, &here[k], 1, DTL_DTYPE_UINT64, source, 3, &receives[k]));
        }
        for (int k = 0; k < WINDOW; k++) {
            there[k] = (uint64_t)(i + k);
            DTL_CHECK(dtl_comm_isend(from, &there[k], 1, DTL_DTYPE_UINT64, dest, 3, &sends[k]));
        }
        DTL_CHECK(dtl_request_wait_all(sends, WINDOW, DTL_TIMEOUT_INFINITE, NULL));
        DTL_CHECK(dtl_request_wait_all(receives, WINDOW, DTL_TIMEOUT_INFINITE, NULL));
        for (int k = 0; k < WINDOW; k++) {
            if (here[k] != there[k]) abort();
        }
    }
}

ROW(shm_window_8)
{
    window(shm[0], shm[1], 0, 1);
}
ROW(mpi_window_8)
{
    window(mpi, mpi, 0, 0);
}

/* A message for one of eight receives, and the wait for any of them. */
ROW(shm_wait_any_8)
{
    enum { LIST = 8 };
    uint64_t there = 5, here[LIST], index;
    dtl_request_t receives[LIST];
    for (int k = 0; k < LIST; k++) {
        DTL_CHECK(dtl_comm_irecv(shm[1], &here[k], 1, DTL_DTYPE_UINT64, 0, k, &receives[k]));
    }
    for (int i = 0; i < ROUNDS; i++) {
        int tag = i % LIST;
        DTL_CHECK(dtl_comm_send(shm[0], &there, 1, DTL_DTYPE_UINT64, 1, tag));
        DTL_CHECK(dtl_request_wait_any(receives, LIST, DTL_TIMEOUT_INFINITE, &index, NULL));
        if (index != (uint64_t)tag) abort();
        DTL_CHECK(dtl_comm_irecv(shm[1], &here[tag], 1, DTL_DTYPE_UINT64, 0, tag, &receives[tag]));
    }
    for (int k = 0; k < LIST; k++) {
        DTL_CHECK(dtl_request_destroy(receives[k]));
    }
}

/* The wait for a receive that is complete. prepare_wait starts the receives. */
static void prepare_wait(void)
{
    static uint64_t there, here[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_send(ends[0], &there, 1, DTL_DTYPE_UINT64, 1, 3));
        DTL_CHECK(dtl_comm_irecv(ends[1], &here[i], 1, DTL_DTYPE_UINT64, 0, 3, &complete[i]));
    }
}
ROW(wait)
{
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_request_wait(complete[i], DTL_TIMEOUT_INFINITE, NULL));
    }
}

/* As message_8, when the message comes first. */
ROW(unexpected_8)
{
    uint64_t there = 9, here = 0;
    dtl_request_t requests[2];
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_isend(ends[0], &there, 1, DTL_DTYPE_UINT64, 1, 3, &requests[0]));
        DTL_CHECK(dtl_comm_irecv(ends[1], &here, 1, DTL_DTYPE_UINT64, 0, 3, &requests[1]));
        DTL_CHECK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
        DTL_CHECK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, NULL));
    }
    if (here != there) abort();
}

/* From any rank, with any tag: tested, and its outcome wanted. */
ROW(any_source_8)
{
    uint64_t there = 13, here = 0;
    dtl_request_t requests[2];
    dtl_recv_info_t info;
    int32_t done = 0;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_comm_irecv(ends[1], &here, 1, DTL_DTYPE_UINT64, DTL_ANY_SOURCE, DTL_ANY_TAG, &requests[1]));
        DTL_CHECK(dtl_comm_isend(ends[0], &there, 1, DTL_DTYPE_UINT64, 1, 3, &requests[0]));
        DTL_CHECK(dtl_request_test(requests[0], &done, NULL));
        DTL_CHECK(dtl_request_test(requests[1], &done, &info));
    }
    if (!done || here != there || info.source != 0) abort();
}

/* Waits for a collective on both ends. */
static inline __attribute__((always_inline)) void both_complete(dtl_request_t *requests)
{
    /* The first rank's request may need a step of the second one. */
    for (int32_t done = 0; !done;) {
        DTL_CHECK(dtl_request_test_all(requests, 2, &done, NULL));
    }
}

/* A broadcast of 8 bytes to the other end, as a request. */
static inline __attribute__((always_inline)) void broadcast(const dtl_comm_t *comms)
{
    uint64_t numbers[2] = {5, 0};
    for (int i = 0; i < ROUNDS; i++) {
        dtl_request_t requests[2];
        for (int rank = 0; rank < 2; rank++) {
            DTL_CHECK(dtl_comm_ibcast(comms[rank], &numbers[rank], 1, DTL_DTYPE_UINT64, 0, &requests[rank]));
        }
        both_complete(requests);
    }
    if (numbers[1] != 5) abort();
}
ROW(bcast_8)
{
    broadcast(ends);
}
ROW(shm_bcast_8)
{
    broadcast(shm);
}
ROW(frames_bcast_8)
{
    broadcast(lists);
}

/* A sum of one number on both ends, as a request. */
ROW(allreduce_8)
{
    const int64_t mine[2] = {3, 4};
    int64_t sums[2] = {0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        dtl_request_t requests[2];
        for (int rank = 0; rank < 2; rank++) {
            DTL_CHECK(dtl_comm_iallreduce(ends[rank], &mine[rank], &sums[rank], 1, DTL_DTYPE_INT64, DTL_OP_SUM,
                                          &requests[rank]));
        }
        both_complete(requests);
    }
    if (sums[0] != 7 || sums[1] != 7) abort();
}

static inline void pairs(uint64_t size)
{
    for (int i = 0; i < ROUNDS; i++) {
        void *block = NULL;
        DTL_CHECK(dtl_mem_alloc(host, DTL_MEMORY_HOST, size, 0, &block));
        DTL_CHECK(dtl_mem_free(host, block));
    }
}
ROW(alloc_free_64)
{
    pairs(64);
}
ROW(alloc_free_64k)
{
    pairs(65536);
}

ROW(pool_64)
{
    for (int i = 0; i < ROUNDS; i++) {
        void *block = NULL;
        DTL_CHECK(dtl_pool_alloc(pool, 64, 0, &block));
        DTL_CHECK(dtl_pool_free(pool, block));
    }
}

/* A loop that does nothing on the one thread of its executor. */
ROW(parallel_for_1)
{
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_executor_parallel_for(alone, 0, 1, 1, nothing, NULL));
    }
}

/* A call that ends in a backend's function which does nothing. */
ROW(backend_call)
{
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_event_record(event, stream));
    }
}

/* A copy between two buffers of the program that the library has to look up. */
ROW(mem_copy_8)
{
    uint64_t from = 5, to = 0;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_mem_copy(&to, &from, sizeof to));
    }
    if (to != from) abort();
}

/* One-sided, where memory is reached by loads and stores: a counter, and a put. (dtl_win_flush looks at the clock.) */
ROW(win_counter)
{
    const int64_t one = 1;
    int64_t got;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_win_fetch_op(win, &one, &got, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
        DTL_CHECK(dtl_win_flush_local(win, 0));
    }
}

ROW(win_put_8)
{
    const int64_t one = 1;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_win_put(win, &one, 1, DTL_DTYPE_INT64, 0, 1));
        DTL_CHECK(dtl_win_flush_local(win, 0));
    }
}

ROW(win_get_8)
{
    int64_t got;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_win_get(win, &got, 1, DTL_DTYPE_INT64, 0, 1));
        DTL_CHECK(dtl_win_flush_local(win, 0));
    }
}

ROW(win_accumulate_8)
{
    const int64_t one = 1;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_win_accumulate(win, &one, 1, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
        DTL_CHECK(dtl_win_flush_local(win, 0));
    }
}

/* 256 elements, whose operation must be part of the loop. */
static void accumulate_256(dtl_dtype_t dtype, dtl_reduce_op_t op)
{
    static const int32_t from[256] = {1};
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_win_accumulate(win, from, 256, dtype, 0, 0, op));
        DTL_CHECK(dtl_win_flush_local(win, 0));
    }
}

ROW(win_accumulate_int32) { accumulate_256(DTL_DTYPE_INT32, DTL_OP_SUM); }
ROW(win_accumulate_half) { accumulate_256(DTL_DTYPE_FLOAT16, DTL_OP_SUM); }

static dtl_dispatcher_t handlers, asking;
static dtl_dispatch_query_t wanted = DTL_DISPATCH_QUERY_INIT;

static int32_t yes(const dtl_dispatch_query_t *asked, void *user)
{
    (void)asked, (void)user;
    return 1;
}

static dtl_status_t handle(const dtl_dispatch_query_t *asked, dtl_event_t *done, void *user)
{
    (void)asked, (void)done, (void)user;
    return DTL_SUCCESS;
}

/* The handler of a query: no predicate has to be asked, or one. */
static inline void find(dtl_dispatcher_t dispatcher)
{
    dtl_registration_t found;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_dispatch_find(dispatcher, &wanted, &found));
    }
}
ROW(dispatch_find)
{
    find(handlers);
}
ROW(dispatch_predicate)
{
    find(asking);
}

/* Found and called, without a lock. */
ROW(dispatch_invoke)
{
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_dispatch_invoke(handlers, &wanted, NULL));
    }
}

static dtl_dispatcher_t dispatcher_of(dtl_dispatch_predicate_fn_t predicate)
{
    static dtl_enum_word_t operation;
    if (operation == 0) DTL_CHECK(dtl_enum_register(DTL_ENUM_OPERATION, "Counted", &operation));
    const dtl_dispatch_key_t keys[5] = {{operation, DTL_MEMORY_HOST, DTL_MEMORY_DEVICE, 0, {0, 0}},
                                        {operation, DTL_MEMORY_DEVICE, DTL_MEMORY_HOST, 0, {0, 0}},
                                        {operation, DTL_MEMORY_DEVICE, 0, 0, {0, 0}},
                                        {operation, 0, DTL_MEMORY_DEVICE, 0, {0, 0}},
                                        {operation, 0, 0, 0, {0, 0}}};
    dtl_dispatch_handler_t handler = DTL_DISPATCH_HANDLER_INIT;
    dtl_dispatcher_t made;
    dtl_registration_t registration;
    handler.name = "counted", handler.invoke = handle, handler.predicate = predicate;
    DTL_CHECK(dtl_dispatcher_create(0, &made));
    DTL_CHECK(dtl_dispatch_register(made, keys, 5, &handler, &registration));
    wanted.operation = operation, wanted.source = DTL_MEMORY_HOST, wanted.destination = DTL_MEMORY_DEVICE;
    return made;
}

/* An instance of two attributes that is there already. */
static dtl_enum_word_t kernel;
ROW(ev_instance)
{
    const dtl_attr_t attrs[2] = {dtl_attr_i64("block_size", 128), dtl_attr_u64("streams", 4)};
    dtl_enum_word_t word = 0;
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_ev_instance(kernel, attrs, 2, &word));
    }
    if (dtl_ev_template(word) != kernel) abort();
}

/* A task that does nothing, by each policy. (While auto_tune tunes it looks at the clock: not counted.) */
static dtl_status_t empty(const dtl_resource_t *resource, void *arg, dtl_waitable_t *left)
{
    (void)resource, (void)arg, (void)left;
    return DTL_SUCCESS;
}
static inline void submits(dtl_policy_t policy)
{
    const dtl_task_key_t own = {0, 0};
    for (int i = 0; i < ROUNDS; i++) {
        DTL_CHECK(dtl_policy_submit(policy, own, empty, NULL, 0, NULL));
    }
}
ROW(select_fixed)
{
    submits(fixed);
}
ROW(select_round_robin)
{
    submits(in_turn);
}
ROW(select_load_4)
{
    submits(least_of_4);
}
ROW(select_load_16)
{
    submits(least_of_16);
}
ROW(select_tuned)
{
    submits(tuned);
}

static dtl_policy_t policy_of(const char *name, uint64_t resources)
{
    static dtl_resource_t list[16];
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    opts.kind = DTL_RESOURCES_INLINE;
    DTL_CHECK(dtl_policy_create(name, list, resources, &opts, &policy));
    return policy;
}

/* A communicator is made and destroyed. */
ROW(comm_dup)
{
    for (int i = 0; i < ROUNDS; i++) {
        dtl_comm_t copy;
        DTL_CHECK(dtl_comm_dup(DTL_COMM_SELF, &copy));
        DTL_CHECK(dtl_comm_destroy(copy));
    }
}

/* The same where 2000 others are alive: as many instructions. */
ROW(comm_dup_of_many)
{
    __asm__ volatile("# many"); /* or the compiler makes one function of both */
    do_comm_dup();
}

/* Valgrind 3.19 has no pidfd_open, without which kind shm does not run: here it gives a descriptor that is never
 * readable, as that of a process that lives. */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long words[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_pidfd_open) return eventfd(0, EFD_CLOEXEC);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/* Opens both ends of shared memory: each in a thread, because opening waits for the other. */
static void *open_shm(void *end)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char job[32];
    snprintf(job, sizeof job, "instructions-%09ld", (long)getpid());
    desc.kind = "shm", desc.job = job, desc.size = 2, desc.rank = (int32_t)((dtl_comm_t *)end - shm);
    DTL_CHECK(dtl_comm_open(&desc, end));
    return NULL;
}

static void other_kinds(void)
{
    pthread_t other;
    warm_self_send_recv_8(), row_self_send_recv_8();
    if (pthread_create(&other, NULL, open_shm, &shm[1]) != 0) abort();
    open_shm(&shm[0]);
    pthread_join(other, NULL);
    warm_shm_message_8(), row_shm_message_8();
    warm_shm_send_recv_8(), row_shm_send_recv_8();
    warm_shm_bcast_8(), row_shm_bcast_8();
    warm_shm_window_8(), row_shm_window_8();
    warm_shm_wait_any_8(), row_shm_wait_any_8();
    for (int rank = 0; rank < 2; rank++) {
        DTL_CHECK(dtl_comm_destroy(shm[rank]));
    }
    open_lists(lists);
    warm_frames_message_8(), row_frames_message_8();
    warm_frames_send_recv_8(), row_frames_send_recv_8();
    warm_frames_bcast_8(), row_frames_bcast_8();
    for (int rank = 0; rank < 2; rank++) {
        DTL_CHECK(dtl_comm_destroy(lists[rank]));
    }
}

/* A row of kind mpi alone: its instructions are counted by library. */
static int with_mpi(const char *row)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    DTL_CHECK(dtl_comm_open(&desc, &mpi));
    if (strcmp(row, "mpi_window_8") == 0) {
        warm_mpi_window_8(), row_mpi_window_8();
    } else {
        warm_mpi_message_8(), row_mpi_message_8();
    }
    DTL_CHECK(dtl_comm_destroy(mpi));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) return with_mpi(argv[1]);
    const dtl_attr_t fields[3] = {dtl_attr_i64("block_size", 64), dtl_attr_u64("streams", 1), dtl_attr_bool("fast", 1)};
    static int self;
    void *base;
    const dtl_backend_t idle = idle_backend(&self);
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    desc.kind = DTL_EXECUTOR_POOL, desc.threads = 1;
    DTL_CHECK(dtl_comm_threads(2, DTL_TIMEOUT_INFINITE, ends));
    DTL_CHECK(dtl_backend_get("host", &host));
    DTL_CHECK(dtl_executor_create(host, &desc, &alone));
    DTL_CHECK(dtl_pool_create(host, DTL_MEMORY_HOST, NULL, &pool));
    DTL_CHECK(dtl_stream_create(idle, 0, 0, &stream));
    DTL_CHECK(dtl_event_create(idle, 0, &event));

    DTL_CHECK(dtl_enum_register_template(DTL_ENUM_SCHEDULE, "Kernel", fields, 3, &kernel));

    warm_ev_instance(), row_ev_instance();
    warm_message_8(), row_message_8();
    warm_unexpected_8(), row_unexpected_8();
    warm_any_source_8(), row_any_source_8();
    warm_send_recv_8(), row_send_recv_8();
    warm_message_info_8(), row_message_info_8();
    warm_cpp_message_info_8(ends), row_cpp_message_info_8(ends);
    warm_send_recv_info_8(), row_send_recv_info_8();
    warm_cpp_send_recv_info_8(ends), row_cpp_send_recv_info_8(ends);
    warm_bcast_8(), row_bcast_8();
    warm_allreduce_8(), row_allreduce_8();
    warm_alloc_free_64(), row_alloc_free_64();
    warm_alloc_free_64k(), row_alloc_free_64k();
    warm_pool_64(), row_pool_64();
    warm_parallel_for_1(), row_parallel_for_1();
    warm_backend_call(), row_backend_call();
    warm_mem_copy_8(), row_mem_copy_8();
    handlers = dispatcher_of(NULL), asking = dispatcher_of(yes);
    warm_dispatch_find(), row_dispatch_find();
    warm_dispatch_predicate(), row_dispatch_predicate();
    warm_dispatch_invoke(), row_dispatch_invoke();
    warm_comm_dup(), row_comm_dup();
    for (int i = 0; i < 2000; i++) {
        DTL_CHECK(dtl_comm_dup(DTL_COMM_SELF, &others[i]));
    }
    warm_comm_dup_of_many(), row_comm_dup_of_many();
    for (int i = 0; i < 2000; i++) {
        DTL_CHECK(dtl_comm_destroy(others[i]));
    }
    DTL_CHECK(dtl_win_allocate(DTL_COMM_SELF, 1024, 8, &base, &win));
    DTL_CHECK(dtl_win_lock(win, DTL_LOCK_SHARED, 0));
    warm_win_counter(), row_win_counter();
    warm_win_put_8(), row_win_put_8();
    warm_win_get_8(), row_win_get_8();
    warm_win_accumulate_8(), row_win_accumulate_8();
    warm_win_accumulate_int32(), row_win_accumulate_int32();
    warm_win_accumulate_half(), row_win_accumulate_half();
    DTL_CHECK(dtl_win_unlock(win, 0));
    DTL_CHECK(dtl_win_destroy(win));

    fixed = policy_of("fixed", 4), in_turn = policy_of("round_robin", 4), tuned = policy_of("auto_tune", 4);
    least_of_4 = policy_of("dynamic_load", 4), least_of_16 = policy_of("dynamic_load", 16);
    warm_select_fixed(), row_select_fixed();
    warm_select_round_robin(), row_select_round_robin();
    warm_select_load_4(), row_select_load_4();
    warm_select_load_16(), row_select_load_16();
    warm_select_tuned(), row_select_tuned();
    DTL_CHECK(dtl_policy_release(fixed));
    DTL_CHECK(dtl_policy_release(in_turn));
    DTL_CHECK(dtl_policy_release(least_of_4));
    DTL_CHECK(dtl_policy_release(least_of_16));
    DTL_CHECK(dtl_policy_release(tuned));
    DTL_CHECK(dtl_dispatcher_destroy(handlers));
    DTL_CHECK(dtl_dispatcher_destroy(asking));
    DTL_CHECK(dtl_pool_destroy(pool));
    DTL_CHECK(dtl_event_destroy(event));
    DTL_CHECK(dtl_stream_destroy(stream));
    DTL_CHECK(dtl_executor_destroy(alone));
    /* Late: comm_dup looks through a table of requests, which this makes longer. */
    prepare_wait(), warm_wait();
    prepare_wait(), row_wait();
    for (int rank = 0; rank < 2; rank++) {
        DTL_CHECK(dtl_comm_destroy(ends[rank]));
    }
    other_kinds();
    DTL_CHECK(dtl_backend_unregister(idle));
    return 0;
}
