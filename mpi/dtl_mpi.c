/* dtl_mpi.c: the comm table of the backend "mpi-native", over the MPI that compiles this file.
 *
 * Not part of libdtl: it is installed as source and compiled in the user's project (see dtl_mpi.h,
 * which says what holds for users; the slots' contract is at dtl_comm_vtable_t in dtl.h). Works as
 * C11 and as C++17.
 *
 * Sends are MPI_Isend. Receives wait in a list of this file's own and take their message by
 * MPI_Improbe, because a receive posted in MPI could tell neither the true size of a message that
 * is too long nor, in every MPI, be withdrawn. What a list costs is order: see `match`.
 */
#ifdef __cplusplus
#define OMPI_SKIP_MPICXX 1 /* the C++ bindings, gone from the standard, are not wanted */
#define MPICH_SKIP_MPICXX 1
#endif
#include "dtl_mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Bits of a tag, and all of them: DTL_TAG_MAX. */
#define TAG_BITS 28u
#define TAG_MASK ((UINT64_C(1) << TAG_BITS) - 1)

/* Messages above this many bytes do not fit the `int` of MPI's older calls. Lower it to test. */
#ifndef DTL_MPI_LARGE
#define DTL_MPI_LARGE 0x7FFFFFFF
#endif

typedef enum state_t {
    POSTED, /* a receive without a message: in the list `posted` */
    MOVING, /* its request is MPI's */
    OVER    /* its result stands */
} state_t;

/* An operation; its address is the transport's word for it. */
typedef struct op_t {
    struct op_t *next; /* in `posted` or `spare` */
    state_t state;
    int is_send;
    MPI_Request request;
    void *buf;
    uint64_t capacity;
    void *own; /* room for a message that is longer than `buf` */
    int source, tag;
    dtl_comm_done_t result;
} op_t;

typedef struct transport_t {
    struct transport_t *next; /* in `closed_elsewhere` */
    MPI_Comm comm;
    int level; /* of threads */
    int32_t rank, size;
    op_t *posted;        /* receives in the order posted */
    op_t *spare;         /* for reuse */
} transport_t;

/* What dtl_comm_open_mpi hands to the slot `open`, and what comes back. */
typedef struct opening_t {
    MPI_Comm comm;
    transport_t *opened;
} opening_t;

/* ---- errors ---- */

static dtl_status_t refuse(dtl_status_t status, const char *text)
{
    DTL_IGNORE(dtl_backend_set_error(text));
    return status;
}

/* The status of an MPI error; its class and text become the error's. */
static dtl_status_t failed(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING + 128], said[MPI_MAX_ERROR_STRING] = "";
    int error_class = MPI_ERR_UNKNOWN, length = 0;
    MPI_Error_class(code, &error_class);
    MPI_Error_string(code, said, &length);
    snprintf(text, sizeof text, "%s: MPI error class %d: %s", call, error_class, said);
    if (error_class == MPI_ERR_NO_MEM) {
        return refuse(DTL_ERROR_OUT_OF_MEMORY, text);
    }
#ifdef MPIX_ERR_PROC_FAILED
    if (error_class == MPIX_ERR_PROC_FAILED) {
        return refuse(DTL_ERROR_RANK_FAILURE, text);
    }
#endif
    return refuse(DTL_ERROR_MPI, text);
}

#define TRY_MPI(name, arguments)                  \
    do {                                          \
        const int code_ = name arguments;         \
        if (code_ != MPI_SUCCESS) {               \
            return failed(#name, code_);          \
        }                                         \
    } while (0)

/* ---- whether, and from which thread, MPI may be called ---- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* for MPI_THREAD_SERIALIZED */

static int is_finalized(void)
{
    int yes = 0;
    MPI_Finalized(&yes);
    return yes;
}

static dtl_status_t check_running(void)
{
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (!initialized) {
        return refuse(DTL_ERROR_INVALID_STATE, "MPI is not initialised: call MPI_Init first");
    }
    if (is_finalized()) {
        return refuse(DTL_ERROR_INVALID_STATE,
                      "MPI is finalised: use communicators over MPI before MPI_Finalize");
    }
    return DTL_SUCCESS;
}

static dtl_status_t check_thread(int level)
{
    int is_main = 1;
    if (level >= MPI_THREAD_SERIALIZED) {
        return DTL_SUCCESS;
    }
    MPI_Is_thread_main(&is_main);
    if (is_main) {
        return DTL_SUCCESS;
    }
    return refuse(DTL_ERROR_NOT_SUPPORTED,
                  level == MPI_THREAD_SINGLE
                      ? "MPI gave MPI_THREAD_SINGLE, and this is not the thread that initialised it: call from "
                        "that one, or use MPI_Init_thread with MPI_THREAD_MULTIPLE"
                      : "MPI gave MPI_THREAD_FUNNELED, and this is not the thread that initialised it: call from "
                        "that one, or use MPI_Init_thread with MPI_THREAD_MULTIPLE");
}

/* Before and after everything that calls MPI. */
static dtl_status_t enter(int level)
{
    DTL_TRY(check_running());
    DTL_TRY(check_thread(level));
    if (level == MPI_THREAD_SERIALIZED) {
        pthread_mutex_lock(&turn);
    }
    return DTL_SUCCESS;
}

static dtl_status_t leave(int level, dtl_status_t status)
{
    if (level == MPI_THREAD_SERIALIZED) {
        pthread_mutex_unlock(&turn);
    }
    return status;
}

/* ---- operations ---- */

static op_t *new_op(transport_t *t)
{
    op_t *op = t->spare;
    if (op != NULL) {
        t->spare = op->next;
    } else {
        op = (op_t *)malloc(sizeof *op);
    }
    if (op != NULL) {
        memset(op, 0, sizeof *op);
        op->request = MPI_REQUEST_NULL;
    }
    return op;
}

static void drop_op(transport_t *t, op_t *op)
{
    free(op->own);
    op->own = NULL;
    op->next = t->spare;
    t->spare = op;
}

static uint64_t word_of(op_t *op)
{
    return (uint64_t)(uintptr_t)op;
}

static op_t *op_of(uint64_t word)
{
    return (op_t *)(uintptr_t)word;
}

static void append(op_t **list, op_t *op)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    op->next = NULL;
    *list = op;
}

static void unlink_op(op_t **list, op_t *op)
{
    while (*list != op) {
        list = &(*list)->next;
    }
    *list = op->next;
}

static void end_op(op_t *op, dtl_status_t status)
{
    op->state = OVER;
    op->result.status = status;
}

/* ---- messages of any size ---- */

#if MPI_VERSION < 4
/* A datatype of exactly `size` bytes: blocks of 1 MiB and the rest. Its signature is bytes, so it
 * matches whatever way the other side spells the same bytes. */
static int make_bytes(uint64_t size, MPI_Datatype *out)
{
    const int block = 1 << 20;
    int counts[2] = {(int)(size >> 20), (int)(size & (uint64_t)(block - 1))};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(size - (uint64_t)counts[1])};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int code = MPI_Type_contiguous(block, MPI_BYTE, &types[0]);
    if (code == MPI_SUCCESS) {
        code = MPI_Type_create_struct(2, counts, offsets, types, out);
        MPI_Type_free(&types[0]);
    }
    return code == MPI_SUCCESS ? MPI_Type_commit(out) : code;
}
#endif

static dtl_status_t start_send(transport_t *t, const void *data, uint64_t size, int dest, int tag,
                               MPI_Request *out)
{
    if (size <= DTL_MPI_LARGE) {
        TRY_MPI(MPI_Isend, (data, (int)size, MPI_BYTE, dest, tag, t->comm, out));
        return DTL_SUCCESS;
    }
#if MPI_VERSION >= 4
    TRY_MPI(MPI_Isend_c, (data, (MPI_Count)size, MPI_BYTE, dest, tag, t->comm, out));
    return DTL_SUCCESS;
#else
    MPI_Datatype bytes;
    TRY_MPI(make_bytes, (size, &bytes));
    const int code = MPI_Isend(data, 1, bytes, dest, tag, t->comm, out);
    MPI_Type_free(&bytes); /* in effect once the message is through */
    return code == MPI_SUCCESS ? DTL_SUCCESS : failed("MPI_Isend", code);
#endif
}

static dtl_status_t start_receive(void *room, uint64_t size, MPI_Message *message, MPI_Request *out)
{
    if (size <= DTL_MPI_LARGE) {
        TRY_MPI(MPI_Imrecv, (room, (int)size, MPI_BYTE, message, out));
        return DTL_SUCCESS;
    }
#if MPI_VERSION >= 4
    TRY_MPI(MPI_Imrecv_c, (room, (MPI_Count)size, MPI_BYTE, message, out));
    return DTL_SUCCESS;
#else
    MPI_Datatype bytes;
    TRY_MPI(make_bytes, (size, &bytes));
    const int code = MPI_Imrecv(room, 1, bytes, message, out);
    MPI_Type_free(&bytes);
    return code == MPI_SUCCESS ? DTL_SUCCESS : failed("MPI_Imrecv", code);
#endif
}

/* ---- matching ---- */

/* The receive that MPI's rules give a message to: the first posted one that wants it. */
static op_t *taker(transport_t *t, const MPI_Status *message)
{
    op_t *op = t->posted;
    while (op != NULL && ((op->source != MPI_ANY_SOURCE && op->source != message->MPI_SOURCE) ||
                          (op->tag != MPI_ANY_TAG && op->tag != message->MPI_TAG))) {
        op = op->next;
    }
    return op;
}

/* Starts to receive the message that a probe has seen. */
static dtl_status_t take(transport_t *t, op_t *op, const MPI_Status *seen)
{
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    MPI_Count size = 0;
    TRY_MPI(MPI_Improbe, (seen->MPI_SOURCE, seen->MPI_TAG, t->comm, &found, &message, &status));
    if (!found) {
        return refuse(DTL_ERROR_MPI, "MPI_Improbe does not find the message that MPI_Iprobe has found");
    }
    TRY_MPI(MPI_Get_elements_x, (&status, MPI_BYTE, &size));
    unlink_op(&t->posted, op);
    op->result.source = status.MPI_SOURCE;
    op->result.match_word = (uint64_t)status.MPI_TAG;
    op->result.size_bytes = (uint64_t)size;
    op->result.status = DTL_SUCCESS;
    op->state = MOVING;
    void *room = op->buf;
    uint64_t capacity = (uint64_t)size;
    if ((uint64_t)size > op->capacity) {
        /* MPI leaves open what a truncated receive writes: take it whole, then copy what fits. */
        op->result.status = DTL_ERROR_TRUNCATED;
        room = op->own = malloc((size_t)size);
        if (room == NULL) {
            op->result.status = DTL_ERROR_OUT_OF_MEMORY;
            room = op->buf;
            capacity = op->capacity;
        }
    }
    const dtl_status_t started = start_receive(room, capacity, &message, &op->request);
    if (started != DTL_SUCCESS) {
        end_op(op, started);
    }
    return DTL_SUCCESS;
}

static dtl_status_t probe(transport_t *t, int source, int tag, int *out_found, MPI_Status *out_seen)
{
    TRY_MPI(MPI_Iprobe, (source, tag, t->comm, out_found, out_seen));
    return DTL_SUCCESS;
}

/* Looks for a message for each receive in turn. It may have come after an earlier receive was looked
 * after, and be that one's by right, or follow one that is: then that receive looks again. */
static dtl_status_t match_each(transport_t *t, int *out_found)
{
    MPI_Status seen;
    op_t *op = t->posted;
    *out_found = 0;
    while (op != NULL) {
        DTL_TRY(probe(t, op->source, op->tag, out_found, &seen));
        if (!*out_found) {
            op = op->next;
            continue;
        }
        op_t *first = taker(t, &seen);
        if (first == op) {
            return take(t, op, &seen);
        }
        op = first;
    }
    return DTL_SUCCESS;
}

/* Gives the messages that are here to the receives that want them, by MPI's rules: a message goes to
 * the first posted receive that wants it, and of two messages of one sender the older goes first.
 * A probe for anything gives the oldest message of its sender, so its taker may have it; only if
 * nobody wants that one must each receive look for itself. */
static dtl_status_t match(transport_t *t)
{
    int found = 1;
    while (found && t->posted != NULL) {
        MPI_Status seen;
        DTL_TRY(probe(t, MPI_ANY_SOURCE, MPI_ANY_TAG, &found, &seen));
        if (found) {
            op_t *op = taker(t, &seen);
            DTL_TRY(op != NULL ? take(t, op, &seen) : match_each(t, &found));
        }
    }
    return DTL_SUCCESS;
}

/* Asks MPI after an operation that is moving. */
static void ask(op_t *op)
{
    int done = 0;
    const int code = MPI_Test(&op->request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        /* Without room for all of a long message the receive was cut by MPI, as intended. */
        const int expected = op->result.status == DTL_ERROR_OUT_OF_MEMORY;
        end_op(op, expected ? op->result.status : failed("MPI_Test", code));
    } else if (done) {
        if (!op->is_send && op->own != NULL && op->capacity > 0) {
            memcpy(op->buf, op->own, (size_t)op->capacity);
        }
        op->state = OVER;
    }
}

/* ---- the slots ---- */

static dtl_status_t comm_isend(void *self, void *comm, const void *buf, uint64_t size_bytes, int32_t dest,
                               uint64_t match_word, uint64_t *out_op)
{
    transport_t *t = (transport_t *)comm;
    (void)self;
    DTL_TRY(enter(t->level));
    op_t *op = new_op(t);
    if (op == NULL) {
        return leave(t->level, refuse(DTL_ERROR_OUT_OF_MEMORY, "no memory for an operation"));
    }
    op->is_send = 1;
    op->state = MOVING;
    const dtl_status_t status = start_send(t, buf, size_bytes, dest, (int)(match_word & TAG_MASK), &op->request);
    if (status != DTL_SUCCESS) {
        drop_op(t, op);
    } else {
        *out_op = word_of(op);
    }
    return leave(t->level, status);
}

static dtl_status_t comm_irecv(void *self, void *comm, void *buf, uint64_t size_bytes, int32_t source,
                               uint64_t match_word, uint64_t ignore, uint64_t *out_op)
{
    transport_t *t = (transport_t *)comm;
    (void)self;
    const uint64_t any = ignore & TAG_MASK;
    if (any != 0 && any != TAG_MASK) {
        return refuse(DTL_ERROR_NOT_SUPPORTED, "MPI matches a tag whole or not at all");
    }
    DTL_TRY(enter(t->level));
    op_t *op = new_op(t);
    if (op == NULL) {
        return leave(t->level, refuse(DTL_ERROR_OUT_OF_MEMORY, "no memory for an operation"));
    }
    op->state = POSTED;
    op->buf = buf;
    op->capacity = size_bytes;
    op->source = source == DTL_ANY_SOURCE ? MPI_ANY_SOURCE : source;
    op->tag = any != 0 ? MPI_ANY_TAG : (int)(match_word & TAG_MASK);
    append(&t->posted, op);
    *out_op = word_of(op);
    return leave(t->level, DTL_SUCCESS);
}

static dtl_status_t progress(transport_t *t, op_t *op)
{
    if (t->posted != NULL) {
        DTL_TRY(match(t));
    }
    if (op->state == MOVING) {
        ask(op);
    }
    return DTL_SUCCESS;
}

static dtl_status_t comm_test(void *self, void *comm, uint64_t word, int32_t *out_done,
                              dtl_comm_done_t *out_result)
{
    transport_t *t = (transport_t *)comm;
    op_t *op = op_of(word);
    (void)self;
    if (is_finalized()) {
        /* MPI_Finalize has ended everything: nothing touches the buffer any more. */
        if (op->state == POSTED) {
            unlink_op(&t->posted, op);
        }
        if (op->state != OVER) {
            DTL_IGNORE(check_running());
            end_op(op, DTL_ERROR_INVALID_STATE);
        }
    } else if (op->state != OVER) {
        DTL_TRY(enter(t->level));
        DTL_TRY(leave(t->level, progress(t, op)));
    }
    *out_done = op->state == OVER;
    if (*out_done) {
        *out_result = op->result;
        drop_op(t, op);
    }
    return DTL_SUCCESS;
}

static dtl_status_t comm_cancel(void *self, void *comm, uint64_t word)
{
    transport_t *t = (transport_t *)comm;
    op_t *op = op_of(word);
    (void)self;
    if (op->state == POSTED) { /* MPI has not heard of it */
        unlink_op(&t->posted, op);
        end_op(op, DTL_ERROR_CANCELED);
        return DTL_SUCCESS;
    }
    return DTL_SUCCESS; /* too late: it completes as usual */
}

/* ---- opening and closing ---- */

/* Transports whose close came in a thread that may not call MPI: freed by the next one that may. */
static pthread_mutex_t closed_lock = PTHREAD_MUTEX_INITIALIZER;
static transport_t *closed_elsewhere;

static void free_ops(op_t *op)
{
    while (op != NULL) {
        op_t *next = op->next;
        free(op);
        op = next;
    }
}

/* Receives and drops what has arrived: MPICH since 4.1 ends the process if MPI_Comm_free finds a message. */
static void receive_all(MPI_Comm comm)
{
    for (int empty = 0; empty < 2;) { /* the first probe may only take in what has arrived */
        int found = 0, count = 0;
        MPI_Message message;
        MPI_Status status;
        void *room;
        if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status) != MPI_SUCCESS) return;
        empty += !found;
        if (!found) continue;
        if (MPI_Get_count(&status, MPI_BYTE, &count) != MPI_SUCCESS || count == MPI_UNDEFINED) return;
        room = malloc(count > 0 ? (size_t)count : 1);
        if (room == NULL) return;
        MPI_Mrecv(room, count, MPI_BYTE, &message, &status);
        free(room);
    }
}

static dtl_status_t end_transport(transport_t *t, int may_call)
{
    int code = MPI_SUCCESS;
    if (may_call) {
        receive_all(t->comm);
        code = MPI_Comm_free(&t->comm);
    }
    free_ops(t->posted);
    free_ops(t->spare);
    free(t);
    return code == MPI_SUCCESS ? DTL_SUCCESS : failed("MPI_Comm_free", code);
}

static void end_closed_elsewhere(void)
{
    pthread_mutex_lock(&closed_lock);
    transport_t *t = closed_elsewhere;
    closed_elsewhere = NULL;
    pthread_mutex_unlock(&closed_lock);
    while (t != NULL) {
        transport_t *next = t->next;
        DTL_IGNORE(end_transport(t, 1));
        t = next;
    }
}

static dtl_status_t comm_close(void *self, void *comm)
{
    transport_t *t = (transport_t *)comm;
    const int level = t->level;
    (void)self;
    if (is_finalized()) {
        return end_transport(t, 0);
    }
    if (check_thread(level) != DTL_SUCCESS) {
        pthread_mutex_lock(&closed_lock);
        t->next = closed_elsewhere;
        closed_elsewhere = t;
        pthread_mutex_unlock(&closed_lock);
        return refuse(DTL_SUCCESS, ""); /* and takes the text of check_thread back */
    }
    DTL_TRY(enter(level));
    end_closed_elsewhere();
    return leave(level, end_transport(t, 1));
}

/* A duplicate of `comm` as a transport. */
static dtl_status_t duplicate(MPI_Comm comm, int level, transport_t **out)
{
    transport_t *t = (transport_t *)calloc(1, sizeof *t);
    if (t == NULL) {
        return refuse(DTL_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
    }
    t->level = level;
    int rank = 0, size = 0;
    int code = MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &t->comm);
    if (code != MPI_SUCCESS) {
        free(t);
        return failed("MPI_Comm_dup_with_info", code);
    }
    MPI_Comm_set_errhandler(t->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(t->comm, &rank);
    MPI_Comm_size(t->comm, &size);
    t->rank = rank;
    t->size = size;
    *out = t;
    return DTL_SUCCESS;
}

static dtl_status_t check_comm(MPI_Comm comm)
{
    int inter = 0, found = 0;
    void *highest = NULL;
    if (comm == MPI_COMM_NULL) {
        return refuse(DTL_ERROR_INVALID_ARGUMENT, "comm is MPI_COMM_NULL: this process is none of its ranks");
    }
    TRY_MPI(MPI_Comm_test_inter, (comm, &inter));
    if (inter) {
        return refuse(DTL_ERROR_INVALID_ARGUMENT,
                      "comm is an intercommunicator: merge it (MPI_Intercomm_merge) first");
    }
    TRY_MPI(MPI_Comm_get_attr, (MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found));
    if (!found || (uint64_t)*(const int *)highest < TAG_MASK) {
        return refuse(DTL_ERROR_NOT_SUPPORTED, "this MPI's tags (MPI_TAG_UB) end below DTL_TAG_MAX, 2^28-1");
    }
    return DTL_SUCCESS;
}

static dtl_status_t open_checked(opening_t *opening, int level)
{
    end_closed_elsewhere();
    DTL_TRY(check_comm(opening->comm));
    return duplicate(opening->comm, level, &opening->opened);
}

static dtl_status_t comm_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                              int32_t *out_size)
{
    opening_t *opening = (opening_t *)args->config;
    int level = MPI_THREAD_SINGLE;
    (void)self;
    if (opening == NULL) {
        return refuse(DTL_ERROR_INVALID_ARGUMENT,
                      "this kind needs an MPI_Comm: use dtl_comm_from_mpi or dtl_comm_open_mpi of dtl_mpi.h");
    }
    DTL_TRY(check_running());
    TRY_MPI(MPI_Query_thread, (&level));
    DTL_TRY(enter(level));
    DTL_TRY(leave(level, open_checked(opening, level)));
    *out_comm = opening->opened;
    *out_rank = opening->opened->rank;
    *out_size = opening->opened->size;
    return DTL_SUCCESS;
}

/* ---- what dtl_mpi.h declares ---- */

/* Below MPI_THREAD_MULTIPLE a thread of the library's would meet the program's own calls of MPI. What level there will be is
 * not known before MPI runs: then it is taken for less. */
static uint64_t flags_of_level(void)
{
    int initialized = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    if (initialized && !is_finalized()) {
        MPI_Query_thread(&level);
    }
    return level < MPI_THREAD_MULTIPLE ? DTL_COMM_ONLY_IN_CALLS : 0;
}

static dtl_status_t register_table(dtl_backend_t *out)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    comm.match_bits = TAG_BITS;
    comm.flags = flags_of_level();
    comm.open = comm_open;
    comm.close = comm_close;
    comm.isend = comm_isend;
    comm.irecv = comm_irecv;
    comm.test = comm_test;
    comm.cancel = comm_cancel;
    table.comm = &comm;
    return dtl_backend_register(DTL_MPI_KIND, &table, NULL, 0, out);
}

dtl_status_t dtl_mpi_register(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static dtl_backend_t registered; /* stale after dtl_finalize: then the name is free again */
    dtl_backend_t found;
    dtl_status_t status = DTL_SUCCESS;
    pthread_mutex_lock(&lock);
    if (registered.id == 0 || dtl_backend_get(DTL_MPI_KIND, &found) != DTL_SUCCESS ||
        found.id != registered.id) {
        status = register_table(&registered);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Rank and size as MPI says, so that the launcher's environment is not asked. */
static void name_ranks(MPI_Comm comm, dtl_comm_desc_t *desc)
{
    int level = MPI_THREAD_SINGLE, rank = 0, size = 0;
    if (comm == MPI_COMM_NULL || check_running() != DTL_SUCCESS || MPI_Query_thread(&level) != MPI_SUCCESS ||
        enter(level) != DTL_SUCCESS) {
        return; /* the slot `open` will say so */
    }
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    DTL_IGNORE(leave(level, DTL_SUCCESS));
    desc->rank = rank;
    desc->size = size;
}

dtl_status_t dtl_comm_open_mpi(MPI_Comm comm, const dtl_comm_desc_t *desc, dtl_comm_t *out)
{
    dtl_comm_desc_t own = DTL_COMM_DESC_INIT;
    opening_t opening;
    if (desc != NULL) {
        memcpy(&own, desc, desc->struct_size < sizeof own ? desc->struct_size : sizeof own);
        own.struct_size = sizeof own;
    }
    opening.comm = comm;
    opening.opened = NULL;
    own.kind = DTL_MPI_KIND;
    own.config = &opening;
    DTL_TRY(dtl_mpi_register());
    name_ranks(comm, &own);
    return dtl_comm_open(&own, out);
}

dtl_status_t dtl_comm_from_mpi(MPI_Comm comm, dtl_comm_t *out)
{
    return dtl_comm_open_mpi(comm, NULL, out);
}
