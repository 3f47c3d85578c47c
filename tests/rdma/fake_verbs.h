/* What the files of the verbs provider that is none share; fake_verbs.c tells what it does and its variables.
 *
 * Everything that ranks see of each other lies in the fabric, a file that each maps: tables of fixed places, so that nothing has
 * to be put right when a process dies in the middle of a call. Unless said otherwise a function wants the fabric's lock. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#define API __attribute__((visibility("default")))

enum {
    MOST_PROCESSES = 64,
    MOST_DEVICES = 4,
    MOST_CONTEXTS = 256,
    MOST_QPS = 512, /* of a device; a power of two */
    MOST_CQS = 256,
    MOST_MRS = 32768,
    MOST_WR = 2048, /* of a queue */
    MOST_CQE = 32768,
    MOST_SGE = 8,
    MOST_INLINE = 256,
    MOST_READS = 16,
    GIDS = 3,
    ALL_QPS = MOST_DEVICES * MOST_QPS,
    PENDING_WORDS = ALL_QPS / 64,
};
enum { AT_ONCE = 64 << 10 }; /* bytes that one call moves of one queue pair */

/* What can fail by DTL_FAKE_VERBS_FAULT as a completion. */
enum { FAULT_SEND, FAULT_WRITE, FAULT_READ, FAULT_ATOMIC, FAULT_RECV, FAULT_ANSWER, COMPLETION_FAULTS };
typedef struct completion_fault {
    uint64_t at, count; /* at: the how many-th; 0: none */
    bool each, every;   /* from then on; all those that it divides */
    uint32_t status;
} completion_fault_t;

typedef struct process {
    uint32_t is_used;
    int pid;
    uint64_t cut_at, heal_at; /* nanoseconds; 0: not */
    uint32_t wake, is_asleep; /* of its engine */
    completion_fault_t faults[COMPLETION_FAULTS];
} process_t;

typedef struct context {
    uint32_t is_used, owner, device;
    int async_fd;      /* that is written to, in the owner */
    uint32_t is_fatal; /* the device is gone */
} context_t;

typedef struct mr {
    uint32_t is_used, owner, pd, access;
    uint64_t address, iova, length;
    uint32_t generation;
} mr_t;

typedef struct sge {
    uint64_t address;
    uint32_t length, lkey;
} sge_t;

typedef struct send_work {
    uint64_t wr_id, remote, compare_add, swap;
    uint32_t opcode, flags, imm, rkey, length, done;
    uint16_t sges;
    bool is_inline, has_begun, is_executed;
    union {
        sge_t sge[MOST_SGE];
        unsigned char bytes[MOST_INLINE];
    };
} send_work_t;

typedef struct recv_work {
    uint64_t wr_id;
    uint32_t sges, length;
    sge_t sge[MOST_SGE];
} recv_work_t;

typedef struct completion {
    uint64_t wr_id, index; /* index: which place of the queue pair's ring becomes free */
    uint32_t status, opcode, byte_len, imm, qp_num, src_qp, wc_flags, qp; /* qp: its place in the table */
    bool is_recv, is_solicited, is_gone;
} completion_t;

typedef struct cq {
    uint32_t is_used, owner, context, size;
    _Atomic uint64_t polled, visible, pushed; /* entries, ever */
    uint32_t armed;                           /* 0, 1: solicited only, 2: any */
    uint32_t is_overrun;
    int channel; /* descriptor that is written to, in the owner; -1: none */
    uint64_t user;
} cq_t;

typedef enum stall { STALL_NONE, STALL_UNREACHABLE, STALL_RNR } stall_t;

typedef struct qp {
    uint32_t is_used, generation, number; /* generation survives */
    uint32_t owner, device, context, pd, send_cq, recv_cq, sig_all;
    uint32_t state; /* enum ibv_qp_state */
    int to_device;  /* of the peer; -1: no such address */
    struct ibv_qp_attr attr;
    struct ibv_qp_cap cap;
    uint64_t user;
    uint64_t sent, retired, sent_free; /* posted; completed; places given back by polling */
    uint64_t recvs, taken, recv_free;
    stall_t stall;
    uint64_t stuck; /* does nothing until more than so many were posted; 0: it works */
    uint64_t stalled_since, look_at; /* nanoseconds */
} qp_t;

typedef struct fabric {
    uint64_t magic;
    pthread_mutex_t lock;
    uint32_t next_pd;
    uint64_t next_mr;
    uint32_t port_down[MOST_DEVICES];
    uint64_t port_up_at[MOST_DEVICES];
    _Atomic uint64_t pending[PENDING_WORDS]; /* queue pairs with work that is not completed */
    process_t processes[MOST_PROCESSES];
    context_t contexts[MOST_CONTEXTS];
    cq_t cqs[MOST_CQS];
    qp_t qps[ALL_QPS];
    mr_t mrs[MOST_MRS];
    /* Only what is used of these ever becomes memory. */
    send_work_t sends[ALL_QPS][MOST_WR];
    recv_work_t recvs[ALL_QPS][MOST_WR];
    completion_t completions[MOST_CQS][MOST_CQE];
} fabric_t;

/* In the pipe of a context or channel. */
typedef struct event {
    uint32_t type, index;
    uint64_t user; /* of the object, as its place may be another's meanwhile */
} event_t;

/* What the caller holds. */
typedef struct own_context {
    struct ibv_context ibv;
    uint32_t index, device;
    int write_fd;
    int pds, cqs, channels;
} own_context_t;
typedef struct own_pd {
    struct ibv_pd ibv;
    int users;
} own_pd_t;
typedef struct own_mr {
    struct ibv_mr ibv;
    uint32_t index;
    void* mapped; /* of a dmabuf */
} own_mr_t;
typedef struct own_channel {
    struct ibv_comp_channel ibv;
    int write_fd;
} own_channel_t;
typedef struct own_cq {
    struct ibv_cq ibv;
    uint32_t index, events; /* events: taken */
    int qps;
} own_cq_t;
typedef struct own_qp {
    struct ibv_qp ibv;
    uint32_t index, events;
} own_qp_t;

/* Of this process. */
typedef struct own {
    fabric_t* fabric; /* NULL: not there yet */
    uint32_t me;      /* place in the table of processes */
    int fd, contexts;
    char path[256];
    pthread_mutex_t lock; /* of joining and leaving */
    pthread_t engine;
    bool has_engine;
    bool has_left; /* the process ends, but a thread may still be calling */
    _Atomic bool is_stopping;
} own_t;
extern own_t own;

/* The variables. */
typedef struct settings {
    int devices; /* -1: an empty list */
    uint32_t inline_bytes, retry_ms, most_wr;
    uint64_t memlock; /* bytes; 0: no limit */
    uint64_t seed;
    bool is_infiniband, starts_down, has_dmabuf, has_no_atomics;
} settings_t;
extern settings_t settings;

/* Counters of this process: what DTL_FAKE_VERBS_REPORT writes. */
#define COUNTERS(of)                                                                                                           \
    of(reg_mr) of(dereg_mr) of(mrs) of(mrs_most) of(bytes) of(bytes_most) of(post_send) of(post_recv) of(send) of(send_imm)    \
        of(write) of(write_imm) of(read) of(atomic) of(inlined) of(unsignaled) of(sent_bytes) of(poll_cq) of(completions)      \
            of(req_notify) of(events) of(contexts) of(pds) of(channels) of(cqs) of(qps) of(qps_ever) of(qps_most)
typedef struct counters {
#define AS_FIELD(name) _Atomic uint64_t name;
    COUNTERS(AS_FIELD)
} counters_t;
extern counters_t counters;

/* fake_verbs.c: the fabric. None of these wants the lock but reap and is_alive. */
int join_fabric(void); /* 0 or an errno */
void leave_fabric(bool is_used);
void lock_fabric(void);
void unlock_fabric(void);
void reap(uint32_t process); /* a process that died: its objects */
bool is_alive(uint32_t process);
uint64_t nanoseconds(void);
uint32_t chance(uint32_t of); /* 0 … of - 1 */

/* fake_verbs_faults.c */
void read_settings(void);           /* the first time; without the lock */
int fault(const char* function);    /* errno of this call's fault, or 0; without the lock */
void work_requested(uint32_t qp);    /* faults after so many work requests; without the lock */
void install_faults(void);          /* those of completions, in the table of processes */
void grow(_Atomic uint64_t* now, _Atomic uint64_t* most, uint64_t by);

/* fake_verbs_engine.c: what the NICs do. */
void start_engine(void); /* for one context more; without the lock */
void stop_engine(void);  /* the same */
void end_engine(void);   /* however many there are; with own.lock */
void progress(void);     /* what concerns this process */
bool concerns_me(void);  /* whether progress may have anything to do; without the lock */
void run_qp(uint32_t qp);
void to_error(uint32_t qp);
void flush(uint32_t qp); /* of one in error */
void complete_recv(uint32_t qp, uint32_t status, const send_work_t* work, uint32_t from); /* its next receive */
send_work_t* send_at(uint32_t qp, uint64_t at);
recv_work_t* recv_at(uint32_t qp, uint64_t at);
void mark_pending(uint32_t qp);
void wake_engine(uint32_t process);
void reveal(uint32_t cq, uint64_t upto);
void async_event(uint32_t context, enum ibv_event_type type, uint32_t index); /* index: of the queue pair or completion queue */
void device_event(uint32_t device, enum ibv_event_type type); /* to each context of it */
void forget_completions(uint32_t cq, uint32_t qp);

/* fake_verbs_move.c */
enum { STALLED = -1 };
int execute(uint32_t qp, send_work_t* work, size_t* budget); /* 0: done; STALLED; or the status that it failed with */
bool would_work(uint32_t qp, const send_work_t* work);

/* fake_verbs_devices.c */
void gid_of(uint32_t device, int index, union ibv_gid* gid);
int device_of(const union ibv_gid* gid); /* -1: none */
uint32_t gid_type(int index);
int gid_count(void);

/* fake_verbs_objects.c */
void forget_events(int from, int to, uint64_t user); /* of an object that is destroyed, in the pipe of its context or channel */

/* Verbs that are fields of the context. */
int fake_poll_cq(struct ibv_cq* cq, int count, struct ibv_wc* wc);
int fake_req_notify_cq(struct ibv_cq* cq, int solicited_only);
int fake_post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad);
int fake_post_recv(struct ibv_qp* qp, struct ibv_recv_wr* wr, struct ibv_recv_wr** bad);

#endif
