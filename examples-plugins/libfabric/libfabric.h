/* libfabric: a communicator over libfabric, for one node or several. Declarations for all its files.
 *
 * In reading order: plugin.c (entry, table), api.c (libfabric itself, opened at run time), endpoint.c (provider,
 * endpoint), join.c (open and close: how ranks find each other), message.c (sends, receives, completions),
 * failure.c (ranks that are gone), window.c and atomic.c (one-sided operations).
 *
 * Each communicator has its own domain and endpoint, so FI_THREAD_DOMAIN is enough: the library calls the
 * slots of one communicator from one thread at a time. Nothing here has locks. */
#ifndef LIBFABRIC_H
#define LIBFABRIC_H

#include <dtl.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

/* Tags: the match word, and one bit for the plugin's own messages. The rank of the sender travels as remote CQ
 * data, and a receive from one rank names its address (FI_DIRECTED_RECV). It is not in the tag: provider shm of
 * libfabric 1.17 loses a message that arrives before a receive whose `ignore` bits are to match it. */
#define LF_TAG_BITS 29
#define LF_CONTROL (UINT64_C(1) << (LF_TAG_BITS - 1))
enum { LF_HELLO = 1, LF_BYE = 2 }; /* match words of the plugin's own messages */

typedef enum lf_kind_t { LF_SEND, LF_RECEIVE, LF_RMA, LF_ATOMIC, LF_FLUSH } lf_kind_t;

/* An operation. Its address is its number for the library, and its context for libfabric. */
typedef struct lf_op_t {
    struct fi_context2 context; /* first: it belongs to the provider while the operation is in flight */
    struct lf_op_t *next, **link; /* in the list of operations in flight, or of unused ones (next only) */
    lf_kind_t kind;
    int32_t peer;        /* the other rank, or DTL_ANY_SOURCE */
    uint64_t match_word;
    struct fid_mr *mr, *result_mr; /* registration of the buffers, if the provider requires one */
    struct lf_win_t *win;          /* of a one-sided operation */
    int is_own;       /* started by the plugin: recycled when complete */
    int in_flight;    /* started, and not completed by the provider */
    int done;         /* `result` is final */
    int is_orphan;    /* reported as failed while the provider still has it */
    int is_canceling; /* fi_cancel was called */
    int32_t lost;     /* rank whose death is reported by a cancelled receive from any source; -1 = none */
    dtl_comm_done_t result;
    struct lf_rest_t { /* of an atomic operation: what is not started yet */
        const unsigned char *buf;
        unsigned char *into;
        uint64_t count, most, element_bytes, address, key; /* most: elements that the provider takes at once */
        enum fi_datatype datatype;
        enum fi_op op;
        uint64_t operands[2]; /* of a compare-and-swap: value, expected */
    } rest;
} lf_op_t;

typedef struct lf_peer_t {
    fi_addr_t address;
    int socket;      /* control connection; -1: this rank itself, or gone */
    int silent_looks; /* for net_is_silent */
    int is_gone;
    int is_unreported; /* gone, and no receive from any source has reported it yet */
    int is_swept;    /* gone, and operations that the provider did not end have been failed */
    int has_left;    /* its last message is here: it is closing */
    int has_all;     /* it has confirmed this rank's last message */
    uint64_t lost_at_ms;
    char why[96];    /* reason why it is gone */
} lf_peer_t;

typedef struct lf_comm_t {
    int32_t rank, size;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    lf_peer_t *peers;
    int poll;              /* epoll descriptor of the control connections */
    lf_op_t *active, **active_end; /* operations, the oldest first */
    lf_op_t *unused;
    unsigned char scratch[4096]; /* previous values that are not requested */
    lf_op_t *atomic;       /* atomic operation in progress: one at a time, as not every provider orders them */
    int32_t unswept;       /* ranks that are gone and not swept */
    int32_t unreported;    /* ranks that are gone and not reported */
    uint32_t polls;
    uint64_t looked_at_ms; /* at the control connections */
    uint64_t looked_for_silence_ms;
    uint64_t next_key;     /* of a memory registration, unless the provider chooses them */
    int has_addresses;     /* those of all ranks are in the table */
} lf_comm_t;

typedef struct lf_win_t {
    struct fid_mr *mr; /* NULL: this rank exposes no memory */
    struct lf_remote_t {
        uint64_t key, base; /* base: address of the first byte in the terms of the provider */
    } *remote;
    uint32_t *pending; /* operations in flight to each rank */
} lf_win_t;

/* plugin.c: notes a text for dtl_last_error, as printf, and returns the status. */
dtl_status_t lf_fail(dtl_status_t status, const char *format, ...) __attribute__((format(printf, 2, 3)));

const char *lf_last_text(void); /* that this thread has noted, without the prefix */

/* api.c: the functions that libfabric exports. Everything else in its headers is inline. */
typedef struct lf_api_t {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **out);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
} lf_api_t;
const lf_api_t *lf_api(const char **out_why); /* NULL: libfabric is not available; *out_why has the reason */

/* endpoint.c */
enum { LF_NAME_BYTES = 64, LF_ADDRESS_BYTES = 256 };
typedef struct lf_choice_t {
    char provider[LF_NAME_BYTES];
    uint64_t caps;
} lf_choice_t;
dtl_status_t lf_choose(lf_choice_t *out); /* a provider */
/* Opens an endpoint of that provider, at this rank's address of `socket` if the provider has such addresses. */
dtl_status_t lf_endpoint_open(lf_comm_t *comm, const lf_choice_t *choice, int socket, unsigned char *address,
                              size_t *address_bytes);
void lf_endpoint_close(lf_comm_t *comm);
dtl_status_t lf_code(int error);     /* status of a (positive or negative) libfabric error */
const char *lf_text(int error);
/* Registers memory; with requested remote access, or (0) as a local buffer if the provider requires that. */
int lf_register(lf_comm_t *comm, const void *buf, size_t size, uint64_t access, struct fid_mr **out_mr);

/* join.c: the slots open and close. */
dtl_status_t lf_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank, int32_t *out_size);
dtl_status_t lf_close(void *self, void *comm);

/* message.c */
lf_op_t *lf_new_op(lf_comm_t *comm, lf_kind_t kind, int32_t peer); /* NULL = no memory; in the list of active ones */
void lf_drop_op(lf_comm_t *comm, lf_op_t *op);                     /* makes it an unused one */
void lf_finish(lf_op_t *op, dtl_status_t status);
ssize_t lf_post_send(lf_comm_t *comm, lf_op_t *op, const void *buf, uint64_t size_bytes, uint64_t control);
ssize_t lf_post_receive(lf_comm_t *comm, lf_op_t *op, void *buf, uint64_t size_bytes, uint64_t control);
/* Handles completions; 1 = there were some, 0 = none. `*status` is set if the queue has failed. */
int lf_poll_queue(lf_comm_t *comm, dtl_status_t *status);
dtl_status_t lf_progress(lf_comm_t *comm); /* of everything */
dtl_status_t lf_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest, uint64_t match_word,
                      uint64_t *out_op);
dtl_status_t lf_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source, uint64_t match_word,
                      uint64_t ignore, uint64_t *out_op);
dtl_status_t lf_test(void *self, void *comm, uint64_t op, int32_t *out_done, dtl_comm_done_t *out_result);
dtl_status_t lf_cancel(void *self, void *comm, uint64_t op);

/* failure.c */
int lf_is_loss(int error); /* this error of libfabric means that the other rank cannot be reached */
void lf_lose(lf_comm_t *comm, int32_t rank, const char *why);
void lf_report_to_any_source(lf_comm_t *comm);
void lf_sweep(lf_comm_t *comm);
void lf_look_at_peers(lf_comm_t *comm, uint64_t now); /* reads the control connections; now: of net_now_ms */

/* window.c, atomic.c */
/* A slot could not start its operation: drops it, and returns the status for the library. */
dtl_status_t lf_not_started(lf_comm_t *comm, lf_op_t *op, int error, const char *what);
void lf_add_windows(dtl_comm_vtable_t *table);
void lf_add_atomics(dtl_comm_vtable_t *table);
void lf_rma_done(lf_comm_t *comm, lf_op_t *op);   /* after its result is set */
void lf_next_atomics(lf_comm_t *comm, lf_op_t *op); /* starts as much of the rest as the provider takes */

#endif
