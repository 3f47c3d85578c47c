/* Communication of device memory on a real device, next to the same work by the driver's and NCCL's own calls in the same
 * run. Prints a Markdown table.
 *
 *     dtlrun -n 2 comm messages  [most BYTES] [batches N]   half a round trip over kind "shm", next to the same by hand
 *                                                           (the driver's copies and a message of page-locked memory),
 *                                                           to both copies in one process, and to one on the device
 *     dtlrun -n N comm allreduce [most BYTES] [batches N]   kind "nccl" next to ncclAllReduce and the wait for its stream
 *
 * Rank r uses device r, or device 0 where there are fewer. A value is the 10th percentile of N batches (21); the sides take
 * turns, with as many calls in a batch on every rank. Where both ranks use one GPU, it changes between their contexts at each
 * message; both copies in one process show what that costs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../../benches/measure.h"

#define DRIVER(f)                                                                                                     \
    f(cuInit, (unsigned)) f(cuDeviceGet, (int*, int)) f(cuDevicePrimaryCtxRetain, (void**, int))                      \
    f(cuDevicePrimaryCtxRelease_v2, (int)) f(cuCtxPushCurrent_v2, (void*)) f(cuCtxPopCurrent_v2, (void**))            \
    f(cuStreamCreate, (void**, unsigned)) f(cuStreamSynchronize, (void*)) f(cuStreamDestroy_v2, (void*))              \
    f(cuMemcpyAsync, (address_t, address_t, size_t, void*))
#define POOLS(f)
#include "driver.h"

typedef struct id {
    char bytes[128];
} id_t_;

static struct {
    code_t (*ncclGetUniqueId)(id_t_*);
    code_t (*ncclCommInitRank)(void**, int, id_t_, int);
    code_t (*ncclAllReduce)(const void*, void*, size_t, int, int, void*, void*);
    code_t (*ncclCommDestroy)(void*);
} nccl;

#define NCCL(call)                                                                                   \
    do {                                                                                             \
        const code_t code_ = nccl.call;                                                              \
        if (code_ != 0) {                                                                            \
            fprintf(stderr, "%s: NCCL error %u\n", #call, code_);                                    \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

enum { MOST_BATCHES = 1000 };
static dtl_backend_t cuda;
static dtl_comm_t world, group;
static int32_t me, ranks, device;
static int batches = 21;
static uint64_t most = (uint64_t)16 << 20, size_now;
static void *here, *there, *host;
static void *context, *stream, *raw_group;

static address_t number(const void* at) { return (address_t)(uintptr_t)at; }

static void raw_copy(void* to, const void* from) {
    RAW(cuMemcpyAsync(number(to), number(from), size_now, stream));
    RAW(cuStreamSynchronize(stream));
}

/* ---- the sides, n times ---------------------------------------------------------------------------- */

static void dtl_messages(int n) {
    int i;
    for (i = 0; i < n; i++) {
        if (me == 0) OK(dtl_comm_send(world, here, size_now, DTL_DTYPE_UINT8, 1, 7));
        OK(dtl_comm_recv(world, there, size_now, DTL_DTYPE_UINT8, 1 - me, 7, NULL));
        if (me == 1) OK(dtl_comm_send(world, here, size_now, DTL_DTYPE_UINT8, 0, 7));
    }
}

/* What a program does that stages by itself. */
static void by_hand(int n) {
    int i;
    for (i = 0; i < n; i++) {
        if (me == 0) {
            raw_copy(host, here);
            OK(dtl_comm_send(world, host, size_now, DTL_DTYPE_UINT8, 1, 8));
        }
        OK(dtl_comm_recv(world, host, size_now, DTL_DTYPE_UINT8, 1 - me, 8, NULL));
        raw_copy(there, host);
        if (me == 1) {
            raw_copy(host, here);
            OK(dtl_comm_send(world, host, size_now, DTL_DTYPE_UINT8, 0, 8));
        }
    }
}

static void raw_two_copies(int n) {
    int i;
    for (i = 0; i < n && me == 0; i++) raw_copy(host, here), raw_copy(there, host);
}

static void raw_one_copy(int n) {
    int i;
    for (i = 0; i < n && me == 0; i++) raw_copy(there, here);
}

static void dtl_allreduces(int n) {
    int i;
    for (i = 0; i < n; i++) OK(dtl_comm_allreduce(group, here, there, size_now / 4, DTL_DTYPE_FLOAT32, DTL_OP_SUM));
}

static void raw_allreduces(int n) {
    int i;
    for (i = 0; i < n; i++) {
        NCCL(ncclAllReduce(here, there, size_now / 4, 7, 0, raw_group, stream)); /* ncclFloat32, ncclSum */
        RAW(cuStreamSynchronize(stream));
    }
}

/* ---- times ----------------------------------------------------------------------------------------- */

static double batch(void (*side)(int), int calls, int is_raw) {
    void* left;
    double start, time;
    OK(dtl_comm_barrier(world));
    if (is_raw) RAW(cuCtxPushCurrent_v2(context));
    start = now_ns();
    side(calls);
    time = (now_ns() - start) / calls;
    if (is_raw) RAW(cuCtxPopCurrent_v2(&left));
    return time;
}

/* Microseconds for one, of each side; a call of the first `trips` sides is a round trip. */
static void measure(int sides, void (*const side[])(int), int trips, double us[]) {
    static double times[4][MOST_BATCHES];
    const int calls = size_now <= 65536 ? 50 : size_now <= 4 << 20 ? 10 : 2;
    int i, s;
    for (s = 0; s < sides; s++) batch(side[s], calls, s > 0);
    for (i = 0; i < batches; i++)
        for (s = 0; s < sides; s++) times[s][i] = batch(side[s], calls, s > 0);
    for (s = 0; s < sides; s++) {
        qsort(times[s], (size_t)batches, sizeof times[s][0], ascending);
        us[s] = times[s][batches / 10] / (s < trips ? 2 : 1) / 1e3;
    }
}

static void messages(void) {
    void (*const side[])(int) = {dtl_messages, by_hand, raw_two_copies, raw_one_copy};
    double us[4];
    if (me == 0)
        printf("| message of device memory, one way | dtl p10 us | by hand: copy, message of page-locked memory, copy, us | "
               "dtl / by hand | both copies in one process, us | one copy on the device, us | dtl GB/s |\n"
               "|---|---|---|---|---|---|---|\n");
    for (size_now = 8; size_now <= most; size_now *= 8) {
        measure(4, side, 2, us);
        if (me == 0)
            printf("| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", size_text(size_now), us[0], us[1], us[0] / us[1],
                   us[2], us[3], (double)size_now / us[0] / 1e3);
        fflush(stdout);
    }
}

static void allreduces(void) {
    void (*const side[])(int) = {dtl_allreduces, raw_allreduces};
    double us[2];
    if (me == 0)
        printf("| allreduce of FLOAT32, %d %s | dtl p10 us | ncclAllReduce us | dtl / NCCL |\n|---|---|---|---|\n", ranks,
               ranks == 1 ? "rank" : "ranks");
    for (size_now = 8; size_now <= most; size_now *= 8) {
        measure(2, side, 0, us);
        if (me == 0) printf("| %s | %.2f | %.2f | %.2f |\n", size_text(size_now), us[0], us[1], us[0] / us[1]);
        fflush(stdout);
    }
}

/* ---- what is needed -------------------------------------------------------------------------------- */

/* NCCL's own communicator of the same ranks, and one of kind "nccl". 0, with the reason printed, where there is no NCCL. */
static int open_nccl(void) {
    const char* name = getenv("DTL_NCCL_LIBRARY");
    void* library = dlopen(name != NULL ? name : "libnccl.so.2", RTLD_NOW);
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    int32_t devices;
    id_t_ id;
    void* left;
    OK(dtl_backend_device_count(cuda, &devices));
    if (library == NULL || devices < ranks) {
        if (me == 0 && library == NULL) printf("skipped: %s\n", dlerror());
        else if (me == 0) printf("skipped: %d devices for %d ranks\n", (int)devices, ranks);
        return 0;
    }
#define FUNCTION(name)                                                                               \
    {                                                                                                \
        void* at_ = dlsym(library, #name);                                                           \
        if (at_ == NULL) {                                                                           \
            if (me == 0) printf("skipped: this NCCL has no " #name "\n");                            \
            return 0;                                                                                \
        }                                                                                            \
        memcpy(&nccl.name, &at_, sizeof at_);                                                        \
    }
    FUNCTION(ncclGetUniqueId) FUNCTION(ncclCommInitRank) FUNCTION(ncclAllReduce) FUNCTION(ncclCommDestroy)
    desc.kind = "nccl", desc.over = world;
    OK(dtl_comm_open(&desc, &group));
    memset(&id, 0, sizeof id);
    RAW(cuCtxPushCurrent_v2(context));
    if (me == 0) NCCL(ncclGetUniqueId(&id));
    OK(dtl_comm_bcast(world, &id, sizeof id, DTL_DTYPE_UINT8, 0));
    NCCL(ncclCommInitRank(&raw_group, ranks, id, me));
    RAW(cuCtxPopCurrent_v2(&left));
    return 1;
}

static void take(dtl_enum_word_t memory, void** at) {
    OK(dtl_mem_alloc(cuda, memory, most, 0, at));
    if (memory == DTL_MEMORY_DEVICE) OK(dtl_mem_fill(*at, 0, most));
}

static void begin(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    int32_t devices;
    int raw_device;
    void* left;
    OK(dtl_init(NULL));
    desc.kind = "shm", desc.timeout_ns = UINT64_C(60000000000);
    OK(dtl_comm_open(&desc, &world));
    OK(dtl_comm_rank(world, &me));
    OK(dtl_comm_size(world, &ranks));
    OK(dtl_backend_get("cuda", &cuda));
    OK(dtl_backend_device_count(cuda, &devices));
    device = me < devices ? me : 0;
    OK(dtl_backend_set_device(cuda, device));
    take(DTL_MEMORY_DEVICE, &here), take(DTL_MEMORY_DEVICE, &there), take(DTL_MEMORY_PINNED, &host);
    RAW(cuInit(0));
    RAW(cuDeviceGet(&raw_device, device));
    RAW(cuDevicePrimaryCtxRetain(&context, raw_device));
    RAW(cuCtxPushCurrent_v2(context));
    RAW(cuStreamCreate(&stream, 1));
    RAW(cuCtxPopCurrent_v2(&left));
}

static void end(void) {
    void* left;
    OK(dtl_comm_barrier(world));
    RAW(cuCtxPushCurrent_v2(context));
    if (raw_group != NULL) NCCL(ncclCommDestroy(raw_group));
    RAW(cuStreamDestroy_v2(stream));
    RAW(cuCtxPopCurrent_v2(&left));
    RAW(cuDevicePrimaryCtxRelease_v2(device));
    if (raw_group != NULL) OK(dtl_comm_destroy(group));
    OK(dtl_mem_free(cuda, here));
    OK(dtl_mem_free(cuda, there));
    OK(dtl_mem_free(cuda, host));
    OK(dtl_comm_destroy(world));
    OK(dtl_finalize());
}

int main(int argc, char** argv) {
    const int is_messages = argc > 1 && strcmp(argv[1], "messages") == 0;
    int i;
    for (i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "most") == 0) most = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "batches") == 0) batches = atoi(argv[i + 1]);
        else break;
    }
    if (argc < 2 || i != argc || most < 8 || batches < 1 || batches > MOST_BATCHES ||
        (!is_messages && strcmp(argv[1], "allreduce") != 0)) {
        fprintf(stderr, "usage: comm messages|allreduce [most BYTES] [batches N], N from 1 to %d\n", MOST_BATCHES);
        return 2;
    }
    if (!load_driver()) return 1;
    begin();
    if (!is_messages) {
        if (open_nccl()) allreduces();
    } else if (ranks == 2) messages();
    else fprintf(stderr, "comm messages: 2 ranks are needed, there are %d\n", ranks);
    end();
    return is_messages && ranks != 2 ? 2 : 0;
}
