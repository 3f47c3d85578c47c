/* An NCCL that is none: libnccl.so.2 for tests without a GPU, over the CUDA driver that is none (tests/cuda). Bytes go from
 * process to process through a file in /dev/shm named by the unique id, as messages between pairs of ranks; collectives are
 * made of those, reductions fold in the order of ranks. Work is queued in streams and takes what the real one takes: every
 * rank at once, until it is aborted. It keeps the rules of communicators that do not block: a call goes on by itself for a
 * while, and another one meanwhile is ncclInvalidUsage.
 *
 * Its variables:
 *     FAKE_NCCL_VERSION=22602          what ncclGetVersion answers
 *     FAKE_NCCL_FAIL=function:n:code   the n-th call of a function answers the code; 0 = each
 *     FAKE_NCCL_ASYNC=n:code           the n-th collective since then is queued well; while it runs, the communicator fails
 *     FAKE_NCCL_HANG=n                 the n-th collective since then never ends, unless it is aborted
 *     FAKE_NCCL_ALONE=1                this process never meets the others
 *     FAKE_NCCL_STUCK=1                a registration goes on until its communicator is aborted
 * It is stricter than the real one in that a reduce has no place for a result but at the root.
 * A function is left out by compiling with -Dfunction=another_name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

typedef unsigned code_t;
enum { SUCCESS = 0, UNHANDLED_CUDA = 1, SYSTEM = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { RANKS = 8, CELL = 8192, MOST_OPS = 64 };

/* What the ranks share. */
typedef struct cell {
    uint32_t size; /* bytes + 1; 0 = empty */
    unsigned char bytes[CELL];
} cell_t;
typedef struct shared {
    uint32_t ranks, here, leaving, devices[RANKS];
    cell_t cells[RANKS][RANKS]; /* from, to */
} shared_t;

typedef struct id {
    char name[128];
} id_t_;
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config_t;

/* A message of a group; `fold`: of what comes from the ranks in their order. */
typedef struct op {
    const char* from; /* NULL: a receive */
    char* into;
    size_t size, done;
    int peer;
} op_t;

typedef struct comm {
    shared_t* shared;
    int rank, size, users, is_aborted, is_busy, is_leaving;
    void** stuck; /* where a registration that goes on writes its handle in the end */
    char name[128];
    code_t failed; /* what ncclCommGetAsyncError tells */
} comm_t;

/* One queued call: messages, and what is folded when they have come. */
typedef struct work {
    comm_t* comm;
    op_t ops[2 * RANKS + MOST_OPS];
    int count, hangs;
    code_t fails;
    char* gathered; /* everybody's part */
    char* result;
    size_t elements, each; /* of the result, in bytes */
    int kind, operation;
} work_t;

static int live, collectives;
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static char said[256];

static __thread struct {
    int depth;
    work_t* work;
    void* stream;
} group;

/* ---- the driver ---------------------------------------------------------------------------------- */

static void* driver(const char* name) {
    static void* library;
    void* found;
    if (library == NULL) library = dlopen(getenv("DTL_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) abort();
    return found;
}

static int current_device(void) {
    unsigned (*ask)(int*);
    void* at = driver("cuCtxGetDevice");
    int device = -1;
    memcpy(&ask, &at, sizeof ask);
    return ask(&device) == 0 ? device : -1;
}

static char* bytes_of(const void* address, size_t size) {
    char* (*ask)(const void*, size_t);
    void* at = driver("fake_cuda_bytes");
    memcpy(&ask, &at, sizeof ask);
    return ask(address, size);
}

static code_t queue(void* stream, void (*run)(void*), void* argument) {
    unsigned (*call)(void*, void (*)(void*), void*);
    void* at = driver("cuLaunchHostFunc");
    memcpy(&call, &at, sizeof call);
    return call(stream, run, argument) == 0 ? SUCCESS : UNHANDLED_CUDA;
}

/* ---- faults -------------------------------------------------------------------------------------- */

static int number(const char* name, int standard) {
    const char* text = getenv(name);
    return text != NULL && *text != '\0' ? atoi(text) : standard;
}

static code_t failure(const char* function) {
    static char counted[48];
    static int calls;
    const char* text = getenv("FAKE_NCCL_FAIL");
    char name[48];
    int nth, code, now;
    if (text == NULL || sscanf(text, "%47[^:]:%d:%d", name, &nth, &code) != 3 || strcmp(name, function) != 0) return SUCCESS;
    pthread_mutex_lock(&counting);
    if (strcmp(counted, text) != 0) calls = 0, snprintf(counted, sizeof counted, "%s", text);
    snprintf(said, sizeof said, "%s failed as told", function);
    now = ++calls;
    pthread_mutex_unlock(&counting);
    return now == nth || nth == 0 ? (code_t)code : SUCCESS;
}
#define BEGIN(name) \
    do { \
        code_t begun = failure(#name); \
        if (begun != SUCCESS) return begun; \
    } while (0)

/* ---- communicators ------------------------------------------------------------------------------- */

API int fake_nccl_live(void);
API int fake_nccl_live(void) { return __atomic_load_n(&live, __ATOMIC_ACQUIRE); }

API code_t ncclGetVersion(int* version) {
    BEGIN(ncclGetVersion);
    *version = number("FAKE_NCCL_VERSION", 22602);
    return SUCCESS;
}

API const char* ncclGetErrorString(code_t code) {
    static const char* const texts[] = {"no error", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                        "unhandled system error (run with NCCL_DEBUG=INFO for details)", "internal error",
                                        "invalid argument", "invalid usage", "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code < 8 ? texts[code] : "unknown result code";
}

API const char* ncclGetLastError(comm_t* comm) {
    (void)comm;
    return said;
}

API code_t ncclGetUniqueId(id_t_* id) {
    static int made;
    struct timespec now;
    BEGIN(ncclGetUniqueId);
    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "/dtl-fake-nccl-%d-%d-%ld", (int)getpid(), __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED),
             (long)now.tv_nsec);
    return SUCCESS;
}

static void release(comm_t* comm) {
    if (__atomic_sub_fetch(&comm->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    munmap(comm->shared, sizeof(shared_t));
    free(comm);
}

API code_t ncclCommInitRankConfig(comm_t** out, int size, id_t_ id, int rank, config_t* config) {
    comm_t* comm;
    shared_t* shared;
    int file, device;
    BEGIN(ncclCommInitRankConfig);
    *out = NULL;
    if (config->magic != 0xcafebeef || config->version < 21400 || config->size < 20 || config->blocking != 0) return INVALID_ARGUMENT;
    if (rank < 0 || rank >= size || size > RANKS) return INVALID_ARGUMENT;
    device = current_device();
    if (device < 0) return UNHANDLED_CUDA;
    file = shm_open(id.name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(shared_t)) != 0) return SYSTEM;
    shared = (shared_t*)mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED) return SYSTEM;
    comm = (comm_t*)calloc(1, sizeof *comm);
    comm->shared = shared, comm->rank = rank, comm->size = size, comm->users = 1, comm->is_busy = 1;
    __atomic_add_fetch(&live, 1, __ATOMIC_ACQ_REL);
    *out = comm;
    memcpy(comm->name, id.name, sizeof comm->name);
    __atomic_store_n(&shared->devices[rank], (uint32_t)device + 1, __ATOMIC_RELEASE);
    if (number("FAKE_NCCL_ALONE", 0)) return IN_PROGRESS;
    if (__atomic_add_fetch(&shared->here, 1, __ATOMIC_ACQ_REL) == (uint32_t)size) shm_unlink(id.name);
    return IN_PROGRESS;
}

/* Whether all are there, each on a device of its own. */
static void look(comm_t* comm) {
    int a, b;
    if (comm->stuck != NULL) return;
    if (comm->is_leaving) {
        if (__atomic_load_n(&comm->shared->leaving, __ATOMIC_ACQUIRE) == (uint32_t)comm->size) comm->is_busy = 0;
        return;
    }
    if (__atomic_load_n(&comm->shared->here, __ATOMIC_ACQUIRE) < (uint32_t)comm->size) return;
    comm->is_busy = 0;
    for (a = 0; a < comm->size; a++) {
        for (b = a + 1; b < comm->size; b++) {
            if (comm->shared->devices[a] != comm->shared->devices[b] || comm->failed != SUCCESS) continue;
            comm->failed = INVALID_USAGE;
            snprintf(said, sizeof said, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", b, a,
                     (int)comm->shared->devices[a] - 1);
        }
    }
}

API code_t ncclCommGetAsyncError(comm_t* comm, code_t* code) {
    BEGIN(ncclCommGetAsyncError);
    if (comm->is_busy) look(comm);
    *code = __atomic_load_n(&comm->failed, __ATOMIC_ACQUIRE);
    if (*code == SUCCESS && comm->is_busy) *code = IN_PROGRESS;
    return SUCCESS;
}

API code_t ncclCommFinalize(comm_t* comm) {
    BEGIN(ncclCommFinalize);
    if (comm->is_busy) return INVALID_USAGE;
    comm->is_busy = comm->is_leaving = 1;
    __atomic_add_fetch(&comm->shared->leaving, 1, __ATOMIC_ACQ_REL);
    return IN_PROGRESS;
}

API code_t ncclCommDestroy(comm_t* comm) {
    BEGIN(ncclCommDestroy);
    if (comm->is_busy) return INVALID_USAGE;
    __atomic_sub_fetch(&live, 1, __ATOMIC_ACQ_REL);
    release(comm);
    return SUCCESS;
}

/* Registered buffers; the first registration of a communicator takes its time. A buffer that is left ends with its communicator. */
typedef struct reg {
    comm_t* comm;
} reg_t;
static int registered;
API int fake_nccl_registered(void);
API int fake_nccl_registered(void) { return __atomic_load_n(&registered, __ATOMIC_ACQUIRE); }

API code_t ncclCommRegister(comm_t* comm, void* buffer, size_t size, void** handle) {
    reg_t* reg;
    BEGIN(ncclCommRegister);
    if (comm->is_busy) return INVALID_USAGE;
    if (bytes_of(buffer, size) == NULL || bytes_of(buffer, size) == (char*)buffer) return INVALID_ARGUMENT;
    reg = (reg_t*)calloc(1, sizeof *reg);
    reg->comm = comm, *handle = reg, comm->is_busy = 1;
    if (number("FAKE_NCCL_STUCK", 0)) comm->stuck = handle;
    __atomic_add_fetch(&registered, 1, __ATOMIC_ACQ_REL);
    return IN_PROGRESS;
}

API code_t ncclCommDeregister(comm_t* comm, void* handle) {
    BEGIN(ncclCommDeregister);
    if (comm->is_busy || handle == NULL || ((reg_t*)handle)->comm != comm) return INVALID_USAGE;
    free(handle);
    __atomic_sub_fetch(&registered, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}

API code_t ncclCommAbort(comm_t* comm) {
    if (comm->stuck != NULL) *comm->stuck = NULL;
    /* Those that are missing may come yet: the last one takes the name away. */
    if (__atomic_load_n(&comm->shared->here, __ATOMIC_ACQUIRE) < (uint32_t)comm->size) shm_unlink(comm->name);
    __atomic_store_n(&comm->is_aborted, 1, __ATOMIC_RELEASE);
    if (!comm->is_leaving) __atomic_add_fetch(&comm->shared->leaving, 1, __ATOMIC_ACQ_REL);
    __atomic_sub_fetch(&live, 1, __ATOMIC_ACQ_REL);
    release(comm);
    return SUCCESS;
}

/* ---- what runs in a stream -------------------------------------------------------------------------- */

/* As far as it goes now. */
static int advance(comm_t* comm, op_t* op) {
    cell_t* cell = op->from != NULL ? &comm->shared->cells[comm->rank][op->peer] : &comm->shared->cells[op->peer][comm->rank];
    const uint32_t there = __atomic_load_n(&cell->size, __ATOMIC_ACQUIRE);
    size_t part = op->size - op->done;
    if (op->done > op->size || (op->from != NULL) == (there != 0)) return 0;
    if (op->from != NULL) {
        if (part > CELL) part = CELL;
        memcpy(cell->bytes, op->from + op->done, part);
        __atomic_store_n(&cell->size, (uint32_t)part + 1, __ATOMIC_RELEASE);
    } else {
        if (part > CELL) part = CELL;
        if (there - 1 != part) return 0; /* the ranks pass other counts: they wait for ever */
        memcpy(op->into + op->done, cell->bytes, part);
        __atomic_store_n(&cell->size, 0, __ATOMIC_RELEASE);
    }
    op->done += part;
    if (op->done == op->size) op->done++; /* over, also if it is empty */
    return 1;
}

#define FOLD(type) \
    do { \
        type a, b; \
        memcpy(&a, into + i * sizeof a, sizeof a), memcpy(&b, from + i * sizeof b, sizeof b); \
        a = (type)(operation == 0 ? a + b : operation == 1 ? a * b : operation == 2 ? (a > b ? a : b) : (a < b ? a : b)); \
        memcpy(into + i * sizeof a, &a, sizeof a); \
    } while (0)

static void fold(char* into, const char* from, size_t count, int kind, int operation) {
    size_t i;
    for (i = 0; i < count; i++) {
        switch (kind) {
        case 0: FOLD(int8_t); break;
        case 1: FOLD(uint8_t); break;
        case 2: FOLD(int32_t); break;
        case 3: FOLD(uint32_t); break;
        case 4: FOLD(int64_t); break;
        case 5: FOLD(uint64_t); break;
        case 7: FOLD(float); break;
        default: FOLD(double); break;
        }
    }
}

/* It has no arithmetic of 16 bits. */
static int is_folded(int kind) { return kind != 6 && kind != 9; }

static size_t width(int kind) {
    static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return widths[kind];
}

static void run(void* argument) {
    work_t* work = (work_t*)argument;
    comm_t* comm = work->comm;
    const struct timespec pause = {0, 20000};
    int left = work->count, i, moved;
    if (work->fails != SUCCESS) {
        snprintf(said, sizeof said, "the network is on fire");
        __atomic_store_n(&comm->failed, work->fails, __ATOMIC_RELEASE);
    }
    while ((left > 0 || work->hangs || work->fails != SUCCESS) && !__atomic_load_n(&comm->is_aborted, __ATOMIC_ACQUIRE)) {
        moved = 0;
        for (i = 0; i < work->count && !work->hangs && work->fails == SUCCESS; i++) {
            if (work->ops[i].done > work->ops[i].size || !advance(comm, &work->ops[i])) continue;
            moved = 1;
            left -= work->ops[i].done > work->ops[i].size;
        }
        if (!moved) nanosleep(&pause, NULL);
    }
    if (left == 0 && work->result != NULL && !work->hangs && work->fails == SUCCESS) {
        for (i = 1; i < comm->size; i++)
            fold(work->gathered, work->gathered + (size_t)i * work->each, work->elements, work->kind, work->operation);
        memcpy(work->result, work->gathered, work->each);
    }
    free(work->gathered);
    free(work);
    release(comm);
}

/* ---- calls --------------------------------------------------------------------------------------- */

static work_t* begin(comm_t* comm) {
    work_t* work = (work_t*)calloc(1, sizeof *work);
    work->comm = comm;
    __atomic_add_fetch(&comm->users, 1, __ATOMIC_ACQ_REL);
    return work;
}

/* The communicator is busy with it until somebody asks: the real one is while it connects. */
static code_t submit(work_t* work, void* stream) {
    static char counted[48];
    const char *async = getenv("FAKE_NCCL_ASYNC"), *hang = getenv("FAKE_NCCL_HANG");
    const char* told = async != NULL ? async : hang != NULL ? hang : "";
    int nth, at = 0;
    unsigned code = 0;
    pthread_mutex_lock(&counting);
    if (strcmp(counted, told) != 0) collectives = 0, snprintf(counted, sizeof counted, "%s", told);
    nth = ++collectives;
    pthread_mutex_unlock(&counting);
    if (async != NULL && sscanf(async, "%d:%u", &at, &code) == 2 && at == nth) work->fails = code;
    work->hangs = number("FAKE_NCCL_HANG", 0) == nth;
    work->comm->is_busy = nth % 2;
    return queue(stream, run, work) == SUCCESS ? (nth % 2 ? IN_PROGRESS : SUCCESS) : UNHANDLED_CUDA;
}

static void add(work_t* work, const char* from, char* into, size_t size, int peer) {
    op_t op = {NULL, NULL, 0, 0, 0};
    op.from = from, op.into = into, op.size = size, op.peer = peer;
    work->ops[work->count++] = op;
}

#define READY(comm, name) \
    do { \
        BEGIN(name); \
        if ((comm)->is_busy) return snprintf(said, sizeof said, "the communicator is busy"), INVALID_USAGE; \
        if ((comm)->failed != SUCCESS) return (comm)->failed; \
    } while (0)
/* Device memory, of which so much is there. */
#define AT(name, address, size) \
    char* name = bytes_of(address, size); \
    if (name == NULL || (name == (const char*)(address) && (size) > 0)) return INVALID_ARGUMENT

API code_t ncclBroadcast(const void* from, void* to, size_t count, int kind, int root, comm_t* comm, void* stream) {
    const size_t size = count * width(kind);
    work_t* work;
    int i;
    READY(comm, ncclBroadcast);
    AT(source, from, size);
    AT(target, to, size);
    work = begin(comm);
    for (i = 0; i < comm->size && comm->rank == root; i++)
        if (i != root) add(work, source, NULL, size, i);
    if (comm->rank != root) add(work, NULL, target, size, root);
    return submit(work, stream);
}

/* Everybody's part to those that want it, folded there. */
static code_t reduce(comm_t* comm, char* source, char* result, size_t count, int kind, int operation, int root, void* stream) {
    const size_t size = count * width(kind);
    work_t* work;
    int i;
    if (!is_folded(kind)) return INVALID_ARGUMENT;
    work = begin(comm);
    for (i = 0; i < comm->size; i++)
        if (root < 0 || root == i) add(work, source, NULL, size, i);
    if (root < 0 || root == comm->rank) {
        work->gathered = (char*)malloc((size_t)comm->size * size + 1);
        work->result = result, work->each = size, work->elements = count, work->kind = kind, work->operation = operation;
        for (i = 0; i < comm->size; i++) add(work, NULL, work->gathered + (size_t)i * size, size, i);
    }
    return submit(work, stream);
}

API code_t ncclReduce(const void* from, void* to, size_t count, int kind, int operation, int root, comm_t* comm, void* stream) {
    READY(comm, ncclReduce);
    AT(source, from, count * width(kind));
    if (comm->rank != root) return to != NULL ? INVALID_ARGUMENT : reduce(comm, source, NULL, count, kind, operation, root, stream);
    AT(target, to, count * width(kind));
    return reduce(comm, source, target, count, kind, operation, root, stream);
}

API code_t ncclAllReduce(const void* from, void* to, size_t count, int kind, int operation, comm_t* comm, void* stream) {
    READY(comm, ncclAllReduce);
    AT(source, from, count * width(kind));
    AT(target, to, count * width(kind));
    return reduce(comm, source, target, count, kind, operation, -1, stream);
}

API code_t ncclReduceScatter(const void* from, void* to, size_t count, int kind, int operation, comm_t* comm, void* stream) {
    const size_t size = count * width(kind);
    work_t* work;
    int i;
    READY(comm, ncclReduceScatter);
    if (!is_folded(kind)) return INVALID_ARGUMENT;
    AT(source, from, size * (size_t)comm->size);
    AT(target, to, size);
    /* In place is at the rank's own block, and nowhere else in what is sent. */
    if (target >= source && target < source + size * (size_t)comm->size && target != source + size * (size_t)comm->rank)
        return INVALID_ARGUMENT;
    work = begin(comm);
    work->gathered = (char*)malloc((size_t)comm->size * size + 1);
    work->result = target, work->each = size, work->elements = count, work->kind = kind, work->operation = operation;
    for (i = 0; i < comm->size; i++) {
        add(work, source + (size_t)i * size, NULL, size, i);
        add(work, NULL, work->gathered + (size_t)i * size, size, i);
    }
    return submit(work, stream);
}

API code_t ncclAllGather(const void* from, void* to, size_t count, int kind, comm_t* comm, void* stream) {
    const size_t size = count * width(kind);
    work_t* work;
    int i;
    READY(comm, ncclAllGather);
    AT(source, from, size);
    AT(target, to, size * (size_t)comm->size);
    work = begin(comm);
    for (i = 0; i < comm->size; i++) {
        add(work, source, NULL, size, i);
        add(work, NULL, target + (size_t)i * size, size, i);
    }
    return submit(work, stream);
}

API code_t ncclGroupStart(void) {
    BEGIN(ncclGroupStart);
    group.depth++;
    return SUCCESS;
}

API code_t ncclGroupEnd(void) {
    work_t* work = group.work;
    BEGIN(ncclGroupEnd);
    if (group.depth == 0) return INVALID_USAGE;
    if (--group.depth > 0 || work == NULL) return SUCCESS;
    group.work = NULL;
    return submit(work, group.stream);
}

static code_t message(const void* from, void* into, size_t size, int peer, comm_t* comm, void* stream) {
    const void* address = from != NULL ? from : into;
    AT(memory, address, size);
    if (group.depth == 0) return INVALID_USAGE; /* the library groups all of them */
    if (group.work == NULL) group.work = begin(comm);
    group.stream = stream;
    add(group.work, from != NULL ? memory : NULL, from != NULL ? NULL : memory, size, peer);
    return SUCCESS;
}

API code_t ncclSend(const void* from, size_t count, int kind, int peer, comm_t* comm, void* stream) {
    READY(comm, ncclSend);
    return message(from, NULL, count * width(kind), peer, comm, stream);
}

API code_t ncclRecv(void* to, size_t count, int kind, int peer, comm_t* comm, void* stream) {
    READY(comm, ncclRecv);
    return message(NULL, to, count * width(kind), peer, comm, stream);
}
