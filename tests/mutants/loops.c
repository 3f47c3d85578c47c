/* Host execution: tasks in the caller's thread, loops on a few threads that each loop starts. */
#include "whole.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4 };

static void nap(long milliseconds)
{
    nanosleep(&(struct timespec){0, milliseconds * 1000000}, NULL);
}

typedef struct task_t {
    dtl_task_fn_t function;
    void *user;
} task_t;

static void *run_later(void *argument)
{
    task_t task = *(task_t *)argument;
    free(argument);
    nap(2);
    DTL_IGNORE(task.function(task.user));
    return NULL;
}

static dtl_status_t start_later(dtl_task_fn_t function, void *user)
{
    task_t *task = malloc(sizeof *task);
    pthread_t thread;
    if (task == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    *task = (task_t){function, user};
    if (pthread_create(&thread, NULL, run_later, task) != 0) {
        free(task);
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    pthread_detach(thread);
    return DTL_SUCCESS;
}

static dtl_status_t whole_execute(void *self, dtl_task_fn_t function, void *user)
{
    static void *previous;
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    (void)self;
    if (is_fault("exec.execute.after_return")) {
        return start_later(function, user);
    }
    if (is_fault("exec.execute.wrong_user")) {
        void *own = user;
        user = previous != NULL ? previous : own;
        previous = own;
    }
    if (is_fault("exec.execute.one_at_a_time")) {
        if (pthread_mutex_trylock(&one) != 0) {
            return failed(DTL_ERROR_BUSY, "another function runs");
        }
    }
    dtl_status_t status = function(user);
    if (is_fault("exec.execute.twice")) {
        status = function(user);
    }
    if (is_fault("exec.execute.one_at_a_time")) {
        pthread_mutex_unlock(&one);
    }
    if (is_fault("exec.execute.fails_as_backend") && status != DTL_SUCCESS) {
        return DTL_ERROR_BACKEND;
    }
    return is_fault("exec.execute.hides_failure") ? DTL_SUCCESS : status;
}

typedef struct loop_t {
    uint64_t begin, end, grain, pieces, next;
    dtl_range_fn_t body;
    void *user;
    dtl_status_t status;
    int references;
} loop_t;

static void run_piece(loop_t *loop, uint64_t piece)
{
    uint64_t from = loop->begin + piece * loop->grain;
    uint64_t to = loop->end - from < loop->grain ? loop->end : from + loop->grain;
    if (is_fault("exec.parallel_for.misses_first") && piece == 0 && ++from == to) {
        return;
    }
    if (is_fault("exec.parallel_for.misses_last") && piece + 1 == loop->pieces && --to == from) {
        return;
    }
    if (is_fault("exec.parallel_for.one_too_many") && piece + 1 == loop->pieces) {
        to += 1;
    }
    if (is_fault("exec.parallel_for.from_zero")) {
        to -= loop->begin;
        from -= loop->begin;
    }
    dtl_status_t status = loop->body(from, to, loop->user);
    if (is_fault("exec.parallel_for.piece_twice") && piece == loop->pieces / 2) {
        status = loop->body(from, to, loop->user);
    }
    if (is_fault("exec.parallel_for.empty_piece") && piece == 0) {
        status = loop->body(from, from, loop->user);
    }
    if (status != DTL_SUCCESS && !is_fault("exec.parallel_for.hides_failure")) {
        dtl_status_t none = DTL_SUCCESS;
        __atomic_compare_exchange_n(&loop->status, &none, status, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
}

static void work(loop_t *loop)
{
    while (__atomic_load_n(&loop->status, __ATOMIC_SEQ_CST) == DTL_SUCCESS) {
        uint64_t piece;
        if (is_fault("exec.parallel_for.racy_counter")) {
            volatile uint64_t *next = &loop->next;
            piece = *next;
            nanosleep(&(struct timespec){0, 1}, NULL);
            *next = piece + 1;
        } else {
            piece = __atomic_fetch_add(&loop->next, 1, __ATOMIC_SEQ_CST);
        }
        if (piece >= loop->pieces) {
            return;
        }
        run_piece(loop, piece);
    }
}

static void leave(loop_t *loop)
{
    if (__atomic_sub_fetch(&loop->references, 1, __ATOMIC_SEQ_CST) == 0) {
        free(loop);
    }
}

static void *help(void *argument)
{
    work(argument);
    leave(argument);
    return NULL;
}

static dtl_status_t run_loop(loop_t *loop)
{
    pthread_t threads[THREADS - 1];
    int started = 0;
    if (loop->pieces > 1) {
        while (started < THREADS - 1) {
            loop->references++;
            if (pthread_create(&threads[started], NULL, help, loop) != 0) {
                loop->references--;
                break;
            }
            started++;
        }
    }
    work(loop);
    for (int i = 0; i < started; i++) {
        if (is_fault("exec.parallel_for.early")) {
            pthread_detach(threads[i]);
        } else {
            pthread_join(threads[i], NULL);
        }
    }
    return __atomic_load_n(&loop->status, __ATOMIC_SEQ_CST);
}

static dtl_status_t whole_parallel_for(void *self, uint64_t begin, uint64_t end, uint64_t grain, dtl_range_fn_t body,
                                       void *user)
{
    static void *previous;
    static int has_failed;
    (void)self;
    loop_t *loop = calloc(1, sizeof *loop);
    if (loop == NULL) {
        return failed(DTL_ERROR_OUT_OF_MEMORY, "no memory for a loop");
    }
    loop->begin = begin;
    loop->end = end;
    loop->grain = grain;
    if (is_fault("exec.parallel_for.ignores_grain")) {
        loop->grain = end - begin;
    }
    if (is_fault("exec.parallel_for.signed_bounds") && (int64_t)begin < 0) {
        free(loop);
        return DTL_SUCCESS;
    }
    loop->pieces = (end - begin - 1) / loop->grain + 1;
    if (is_fault("exec.parallel_for.sum_overflows")) {
        loop->pieces = (end - begin + loop->grain - 1) / loop->grain;
    }
    loop->body = body;
    loop->user = is_fault("exec.parallel_for.wrong_user") && previous != NULL ? previous : user;
    previous = user;
    loop->references = 1;
    dtl_status_t status = run_loop(loop);
    leave(loop);
    if (is_fault("exec.parallel_for.failure_stays")) {
        has_failed |= status != DTL_SUCCESS;
        return has_failed ? DTL_ERROR_BACKEND : status;
    }
    return status;
}

static dtl_status_t whole_max_parallelism(void *self, uint32_t *out_threads)
{
    (void)self;
    *out_threads = THREADS;
    if (is_fault("exec.max_parallelism.zero")) {
        *out_threads = 0;
    }
    if (is_fault("exec.max_parallelism.one")) {
        *out_threads = 1;
    }
    if (is_fault("exec.max_parallelism.enormous")) {
        *out_threads = UINT32_MAX;
    }
    if (is_fault("exec.max_parallelism.by_turns")) {
        static uint32_t calls;
        *out_threads = THREADS + ++calls % 3;
    }
    return DTL_SUCCESS;
}

static dtl_status_t whole_suggested_parallelism(void *self, uint32_t *out_threads)
{
    (void)self;
    *out_threads = THREADS;
    if (is_fault("exec.suggested_parallelism.zero")) {
        *out_threads = 0;
    }
    if (is_fault("exec.suggested_parallelism.enormous")) {
        *out_threads = UINT32_MAX;
    }
    return DTL_SUCCESS;
}

SLOT(exec, execute, whole_execute, (void *self, dtl_task_fn_t function, void *user), (self, function, user))
SLOT(exec, parallel_for, whole_parallel_for,
     (void *self, uint64_t begin, uint64_t end, uint64_t grain, dtl_range_fn_t body, void *user),
     (self, begin, end, grain, body, user))
SLOT(exec, max_parallelism, whole_max_parallelism, (void *self, uint32_t *out_threads), (self, out_threads))
SLOT(exec, suggested_parallelism, whole_suggested_parallelism, (void *self, uint32_t *out_threads),
     (self, out_threads))

void add_loops(dtl_exec_vtable_t *table)
{
    table->execute = slot_execute;
    table->parallel_for = slot_parallel_for;
    table->max_parallelism = slot_max_parallelism;
    table->suggested_parallelism = slot_suggested_parallelism;
}
