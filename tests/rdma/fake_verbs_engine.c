/* What the NICs do: which work is executed next, completions and events. Executing one piece is in fake_verbs_move.c.
 *
 * Of a queue pair, sends and writes are executed in their order, and reads and atomics in theirs; a send or write without a fence
 * may overtake the latter, never the other way round. Completions come in the order of posting. */
#include "fake_verbs.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <signal.h>
#include <sys/syscall.h>

send_work_t* send_at(uint32_t qp, uint64_t at) {
    return &own.fabric->sends[qp][at % own.fabric->qps[qp].cap.max_send_wr];
}

recv_work_t* recv_at(uint32_t qp, uint64_t at) {
    return &own.fabric->recvs[qp][at % own.fabric->qps[qp].cap.max_recv_wr];
}

/* Into a pipe of any process. Opened for reading too: a write into a pipe that nobody reads any more would be a signal. */
static void write_to(uint32_t process, int fd, const event_t* from) {
    char path[64];
    int to = fd;
    if (process != own.me) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", own.fabric->processes[process].pid, fd);
        to = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (to < 0) return; /* it is dead */
    }
    if (write(to, from, sizeof *from) < 0) fprintf(stderr, "fake_verbs: an event is lost: %s\n", strerror(errno));
    if (process != own.me) close(to);
}

void async_event(uint32_t context, enum ibv_event_type type, uint32_t index) {
    const fabric_t* f = own.fabric;
    const context_t* c = &f->contexts[context];
    bool is_of_port = type >= IBV_EVENT_DEVICE_FATAL;
    event_t event = {type, index, is_of_port ? 0 : type == IBV_EVENT_CQ_ERR ? f->cqs[index].user : f->qps[index].user};
    if (c->is_used) write_to(c->owner, c->async_fd, &event);
}

void device_event(uint32_t device, enum ibv_event_type type) {
    for (uint32_t i = 0; i < MOST_CONTEXTS; i++)
        if (own.fabric->contexts[i].is_used && own.fabric->contexts[i].device == device) async_event(i, type, 0);
}

void reveal(uint32_t index, uint64_t upto) {
    cq_t* cq = &own.fabric->cqs[index];
    while (cq->visible < upto) {
        const completion_t* c = &own.fabric->completions[index][cq->visible % cq->size];
        bool is_wanted = cq->armed == 2 || (cq->armed == 1 && (c->is_solicited || c->status != IBV_WC_SUCCESS));
        event_t event = {.index = index, .user = cq->user};
        if (is_wanted && !c->is_gone) { /* told first: who does this may be killed at any moment */
            if (cq->channel >= 0) write_to(cq->owner, cq->channel, &event);
            cq->armed = 0;
        }
        cq->visible++;
    }
}

static void push(uint32_t index, const completion_t* c) {
    cq_t* cq = &own.fabric->cqs[index];
    if (!cq->is_used) return;
    if (cq->pushed - cq->polled >= cq->size) {
        qp_t* q = &own.fabric->qps[c->qp];
        if (!cq->is_overrun) async_event(cq->context, IBV_EVENT_CQ_ERR, index);
        cq->is_overrun = 1;
        if (q->state != IBV_QPS_ERR) async_event(q->context, IBV_EVENT_QP_FATAL, c->qp);
        q->state = IBV_QPS_ERR;
        return;
    }
    own.fabric->completions[index][cq->pushed % cq->size] = *c;
    atomic_signal_fence(memory_order_seq_cst);
    cq->pushed++;
    if (!settings.seed || chance(4) == 0) reveal(index, cq->pushed);
    else wake_engine(cq->owner);
}

void forget_completions(uint32_t index, uint32_t qp) {
    cq_t* cq = &own.fabric->cqs[index];
    for (uint64_t at = cq->polled; at < cq->pushed; at++) {
        completion_t* c = &own.fabric->completions[index][at % cq->size];
        if (c->qp == qp) c->is_gone = true;
    }
}

static void complete_send(uint32_t index, uint64_t at, uint32_t status) {
    static const uint32_t opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,     IBV_WC_SEND,
                                       IBV_WC_RDMA_READ,  IBV_WC_COMP_SWAP,  IBV_WC_FETCH_ADD};
    qp_t* q = &own.fabric->qps[index];
    const send_work_t* w = send_at(index, at);
    if (status != IBV_WC_SUCCESS || q->sig_all || w->flags & IBV_SEND_SIGNALED) {
        completion_t c = {.wr_id = w->wr_id, .index = at, .status = status, .opcode = opcodes[w->opcode], .qp_num = q->number, .qp = index};
        if (w->opcode >= IBV_WR_RDMA_READ) c.byte_len = w->length;
        push(q->send_cq, &c);
    }
    q->retired = at + 1;
}

void complete_recv(uint32_t index, uint32_t status, const send_work_t* w, uint32_t from) {
    qp_t* q = &own.fabric->qps[index];
    const recv_work_t* r = recv_at(index, q->taken);
    completion_t c = {.wr_id = r->wr_id, .index = q->taken, .status = status, .qp_num = q->number, .qp = index, .is_recv = true};
    if (status == IBV_WC_SUCCESS) {
        bool is_write = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        c.opcode = is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        c.byte_len = w->length;
        c.src_qp = from;
        c.is_solicited = w->flags & IBV_SEND_SOLICITED;
        if (w->opcode != IBV_WR_SEND) {
            c.imm = w->imm;
            c.wc_flags = IBV_WC_WITH_IMM;
        }
    }
    push(q->recv_cq, &c);
    q->taken++;
}

void flush(uint32_t index) {
    qp_t* q = &own.fabric->qps[index];
    while (q->retired < q->sent) complete_send(index, q->retired, send_at(index, q->retired)->is_executed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    while (q->taken < q->recvs) complete_recv(index, IBV_WC_WR_FLUSH_ERR, NULL, 0);
    own.fabric->pending[index / 64] &= ~(1ull << index % 64);
}

void to_error(uint32_t index) {
    own.fabric->qps[index].state = IBV_QPS_ERR;
    flush(index);
}

void mark_pending(uint32_t index) {
    own.fabric->pending[index / 64] |= 1ull << index % 64;
}

void wake_engine(uint32_t process) {
    process_t* p = &own.fabric->processes[process];
    if (!p->is_asleep) return;
    __atomic_fetch_add(&p->wake, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &p->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    p->is_asleep = 0;
}

/* What comes before is completed, this one failed, and so does all behind it. */
static void fail(uint32_t index, uint64_t at, uint32_t status) {
    qp_t* q = &own.fabric->qps[index];
    q->state = IBV_QPS_ERR;
    while (q->retired < at) complete_send(index, q->retired, send_at(index, q->retired)->is_executed ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
    complete_send(index, at, status);
    flush(index);
}

static bool is_read(const send_work_t* w) {
    return w->opcode >= IBV_WR_RDMA_READ;
}

/* By chance a send or write behind the reads and atomics that begin at `at`. */
static uint64_t next_work(uint32_t index, uint64_t at) {
    const qp_t* q = &own.fabric->qps[index];
    if (!settings.seed || !is_read(send_at(index, at)) || chance(2)) return at;
    for (uint64_t other = at + 1; other < q->sent; other++) {
        const send_work_t* w = send_at(index, other);
        if (w->is_executed || is_read(w)) continue;
        return !(w->flags & IBV_SEND_FENCE) && would_work(index, w) ? other : at;
    }
    return at;
}

void run_qp(uint32_t index) {
    qp_t* q = &own.fabric->qps[index];
    size_t budget = AT_ONCE;
    if (q->stuck) {
        own.fabric->pending[index / 64] &= ~(1ull << index % 64);
        return;
    }
    while (q->state == IBV_QPS_RTS && q->retired < q->sent) {
        uint64_t at = q->retired;
        if (send_at(index, at)->is_executed) {
            complete_send(index, at, IBV_WC_SUCCESS);
            continue;
        }
        if (settings.seed && chance(3) == 0) break;
        at = next_work(index, at);
        int status = execute(index, send_at(index, at), &budget);
        if (status > 0) fail(index, at, (uint32_t)status);
        if (status != 0) break;
        q->stall = STALL_NONE;
        send_at(index, at)->is_executed = true;
    }
    if (q->state == IBV_QPS_RTS && q->retired < q->sent) wake_engine(q->owner);
    else own.fabric->pending[index / 64] &= ~(1ull << index % 64);
}

/* An end of it is here. */
static bool is_mine(const qp_t* q) {
    if (q->owner == own.me) return true;
    const qp_t* peer = q->to_device < 0 ? NULL : &own.fabric->qps[(uint32_t)q->to_device * MOST_QPS + q->attr.dest_qp_num % MOST_QPS];
    return peer && peer->owner == own.me;
}

bool concerns_me(void) {
    for (uint32_t word = 0; word < PENDING_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&own.fabric->pending[word], memory_order_relaxed);
        for (; bits; bits &= bits - 1)
            if (is_mine(&own.fabric->qps[word * 64 + (uint32_t)__builtin_ctzll(bits)])) return true;
    }
    return false;
}

void progress(void) {
    for (uint32_t word = 0; word < PENDING_WORDS; word++) {
        for (uint64_t bits = own.fabric->pending[word]; bits; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            if (own.fabric->qps[index].is_used && is_mine(&own.fabric->qps[index])) run_qp(index);
        }
    }
}

/* Ports that come back. */
static bool run_timers(void) {
    bool is_waiting = false;
    for (uint32_t d = 0; d < MOST_DEVICES; d++) {
        uint64_t* at = &own.fabric->port_up_at[d];
        if (!*at) continue;
        if (nanoseconds() < *at) {
            is_waiting = true;
        } else {
            *at = 0;
            own.fabric->port_down[d] = 0;
            device_event(d, IBV_EVENT_PORT_ACTIVE);
        }
    }
    return is_waiting;
}

/* What is left to this process, for how long to wait for it in microseconds; 0: nothing. */
static unsigned left_over(void) {
    unsigned wait = 0;
    for (uint32_t i = 0; i < MOST_CQS; i++) {
        cq_t* cq = &own.fabric->cqs[i];
        if (!cq->is_used || cq->owner != own.me || cq->visible == cq->pushed) continue;
        reveal(i, settings.seed ? cq->visible + chance(1 + (uint32_t)(cq->pushed - cq->visible)) : cq->pushed);
        wait = 200;
    }
    for (uint32_t word = 0; word < PENDING_WORDS; word++) {
        for (uint64_t bits = own.fabric->pending[word]; bits; bits &= bits - 1) {
            const qp_t* q = &own.fabric->qps[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            if (q->owner == own.me) {
                if (q->stall == STALL_NONE && !settings.seed) return 50;
                wait = 200;
            }
        }
    }
    return run_timers() ? 200 : wait;
}

static void* engine(void* unused) {
    (void)unused;
    process_t* p = &own.fabric->processes[own.me];
    while (!own.is_stopping) {
        lock_fabric();
        progress();
        unsigned wait = left_over();
        uint32_t seen = __atomic_load_n(&p->wake, __ATOMIC_ACQUIRE);
        p->is_asleep = wait == 0 && !own.is_stopping;
        unlock_fabric();
        /* Now and then it looks by itself: who was to wake it may have been killed. */
        static const struct timespec at_most = {.tv_nsec = 50000000};
        if (wait) usleep(wait);
        else if (!own.is_stopping) syscall(SYS_futex, &p->wake, FUTEX_WAIT, seen, &at_most, NULL, 0);
    }
    return NULL;
}

void start_engine(void) {
    pthread_mutex_lock(&own.lock);
    if (own.contexts++ == 0) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        own.is_stopping = false;
        own.has_engine = pthread_create(&own.engine, NULL, engine, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_mutex_unlock(&own.lock);
}

void end_engine(void) {
    if (!own.has_engine) return;
    process_t* p = &own.fabric->processes[own.me];
    own.is_stopping = true;
    __atomic_fetch_add(&p->wake, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &p->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    pthread_join(own.engine, NULL);
    own.has_engine = false;
}

void stop_engine(void) {
    pthread_mutex_lock(&own.lock);
    if (--own.contexts == 0) end_engine();
    pthread_mutex_unlock(&own.lock);
}
