/* Kind "nccl" over an NCCL and a CUDA driver that are none (tests/nccl, tests/cuda), named by DTL_NCCL_LIBRARY and
 * DTL_CUDA_LIBRARY. test_nccl_collectives.c has the results of the usual collectives. Arguments:
 *     nccl      what is refused and what is staged, places, requests, communicators made from others, ranks that do not come
 *     faults    calls that fail, communicators that fail, hang or are never opened; two ranks on one device; a lost device
 *     death     a rank is killed
 *     absent    no NCCL, no driver, and libraries that cannot be used: each says why
 *     real      NVIDIA's NCCL (DTL_TEST_NCCL), which finds no GPU
 *     device    what "nccl" does, over whatever driver and NCCL there are: for real devices (tests/gpu), one for each rank */
#include "comm_kinds.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, ROOM = 64 << 10 };
static dtl_backend_t cuda;
static dtl_comm_t comm;
static int32_t *device, *result, here[ROOM / 4];

/* Whether the NCCL is one that is none, and so the driver. */
static int is_fake(void) {
    const char *file = getenv("DTL_NCCL_LIBRARY");
    void *library = file != NULL ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    return library != NULL && dlsym(library, "fake_nccl_live") != NULL;
}

/* A real one takes its time to open. */
static uint64_t patience(void) { return is_fake() ? 1 : 20; }

static int live_objects(const char *variable, const char *function) {
    void *library = dlopen(getenv(variable), RTLD_NOW | RTLD_LOCAL), *at;
    int (*ask)(void);
    CHECK(library != NULL);
    at = dlsym(library, function);
    CHECK(at != NULL);
    memcpy(&ask, &at, sizeof ask);
    return ask();
}

static void nothing_is_left(void) {
    int i; /* memory may be freed behind what is queued */
    if (!is_fake()) return;
    for (i = 0; i < 1000 && live_objects("DTL_CUDA_LIBRARY", "fake_cuda_live") != 0; i++) usleep(1000);
    CHECK(live_objects("DTL_NCCL_LIBRARY", "fake_nccl_live") == 0);
    CHECK(live_objects("DTL_CUDA_LIBRARY", "fake_cuda_live") == 0);
}

static dtl_comm_t open_nccl(dtl_comm_t over, uint32_t flags, uint64_t timeout_ns) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t opened;
    desc.kind = "nccl", desc.over = over, desc.flags = flags, desc.timeout_ns = timeout_ns;
    CHECK_OK(dtl_comm_open(&desc, &opened));
    return opened;
}

/* Element i of rank r's data is r + i. */
static void give(int32_t *to, uint64_t count, int rank) {
    uint64_t i;
    for (i = 0; i < count; i++) here[i] = rank + (int32_t)i;
    CHECK_OK(dtl_mem_copy(to, here, 4 * count));
}

static int32_t sum_of(int size, uint64_t i) { return size * (size - 1) / 2 + size * (int32_t)i; }

static void sums(dtl_comm_t over, int rank, int size) {
    int32_t i;
    give(device, COUNT, rank);
    CHECK_OK(dtl_comm_allreduce(over, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK_OK(dtl_mem_copy(here, result, 4 * COUNT));
    for (i = 0; i < COUNT; i++) CHECK(here[i] == sum_of(size, (uint64_t)i));
}

/* Device memory that the program allocated through the driver itself. */
static void test_foreign(void) {
    typedef unsigned (*driver_fn)(void *, ...);
    const char *names[] = {"cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuCtxPopCurrent_v2"};
    void *driver = dlopen(getenv("DTL_CUDA_LIBRARY"), RTLD_NOW), *context = NULL, *at;
    unsigned long long number = 0;
    driver_fn call[5];
    int32_t *own = device, where = 0;
    int i;
    for (i = 0; i < 5; i++) at = dlsym(driver, names[i]), memcpy(&call[i], &at, sizeof at);
    CHECK_OK(dtl_backend_get_device(cuda, &where));
    CHECK(call[0](&context, where) == 0 && call[1](context) == 0 && call[2](&number, sizeof here) == 0);
    device = (int32_t *)(uintptr_t)number;
    sums(comm, me, ranks);
    CHECK(call[3](device) == 0 && call[4](&context) == 0);
    device = own;
}

/* ---- what it is ------------------------------------------------------------------------------- */

static void test_described(void) {
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t none = DTL_COMM_NULL;
    char text[8];
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(strcmp(info.kind, "nccl") == 0 && info.rank == me && info.size == ranks);
    CHECK(strstr(info.transport, is_fake() ? "NCCL 2.26.2 for memory" : "NCCL 2.") != NULL);
    CHECK(strstr(info.transport, " for memory of cuda device") != NULL && strstr(info.transport, "else s") != NULL);
    /* Messages, and collectives of the host's memory, are those of the communicator below. */
    CHECK_OK(dtl_comm_sendrecv(comm, "hello", 6, (me + 1) % ranks, 9, text, 6, DTL_ANY_SOURCE, DTL_ANY_TAG, DTL_DTYPE_BYTE, NULL));
    CHECK(strcmp(text, "hello") == 0);
    give(device, 3, me);
    CHECK_OK(dtl_comm_sendrecv(comm, device, 3, (me + 1) % ranks, 9, result, 3, DTL_ANY_SOURCE, 9, DTL_DTYPE_INT32, NULL));
    CHECK_OK(dtl_mem_copy(here, result, 12));
    CHECK(here[2] == (me + ranks - 1) % ranks + 2);
    /* What cannot be meant is refused, and nothing is begun. */
    desc.kind = "nccl", desc.over = comm, desc.size = 2;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("over");
    desc.size = 0, desc.job = "other";
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    desc.job = NULL, desc.config = &desc;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    desc.config = NULL, desc.flags = DTL_COMM_NO_DUP;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    desc.kind = "self", desc.flags = 0;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("kind \"self\" is not opened over another communicator");
    desc.over = DTL_COMM_NULL, desc.flags = DTL_COMM_STAGE;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("DTL_COMM_STAGE is for kinds");
    desc.kind = "nccl", desc.over.id = 12345;
    CHECK_STATUS(dtl_comm_open(&desc, &none), DTL_ERROR_INVALID_HANDLE);
    CHECK(none.id == 0);
}

/* ---- what NCCL has not ------------------------------------------------------------------------- */

static void keep(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user) {
    (void)in, (void)inout, (void)count, (void)dtype, (void)user;
}

static void refused(dtl_status_t status, const char *why) {
    CHECK_STATUS(status, DTL_ERROR_NOT_SUPPORTED);
    if (strstr(dtl_last_error(), why) == NULL) fprintf(stderr, "\"%s\" is not in: %s\n", why, dtl_last_error());
    CHECK_TEXT(why);
    CHECK_TEXT("DTL_COMM_STAGE");
}

static void test_refused(void) {
    dtl_comm_t strict = open_nccl(comm, DTL_COMM_DETERMINISTIC, 0);
    dtl_comm_t plain = open_nccl(DTL_COMM_WORLD, 0, MILLISECONDS(60000));
    const uint64_t counts[8] = {1, 2, 2, 2, 2, 2, 2, 2}, places[8] = {0, 1, 3, 5, 7, 9, 11, 13};
    dtl_reduce_op_t own;
    dtl_request_t request;
    int32_t one[2] = {1, 2};
    CHECK_OK(dtl_op_create(keep, NULL, DTL_OP_COMMUTES, "keep", &own));
    refused(dtl_comm_allreduce(plain, device, result, 2, DTL_DTYPE_INT16, DTL_OP_SUM), "does not reduce DTL_DTYPE_INT16");
    refused(dtl_comm_allreduce(plain, device, result, 2, DTL_DTYPE_INT32, DTL_OP_BAND), "NCCL has no BAND");
    refused(dtl_comm_reduce(plain, device, result, 2, DTL_DTYPE_INT32, own, 0), "NCCL has no keep");
    refused(dtl_comm_scan(plain, device, result, 2, DTL_DTYPE_INT32, DTL_OP_SUM), "scan of device memory");
    refused(dtl_comm_alltoall(plain, DTL_IN_PLACE, 2, result, DTL_DTYPE_INT32), "in place");
    refused(dtl_comm_allgatherv(plain, device, counts[me], result, counts, places, DTL_DTYPE_INT32), "one size");
    refused(dtl_comm_iscan(plain, device, result, 2, DTL_DTYPE_INT32, DTL_OP_SUM, &request), "scan");
    if (ranks > 1) refused(dtl_comm_reduce_scatter(plain, device, result, counts, DTL_DTYPE_INT32, DTL_OP_SUM), "one size");
    refused(dtl_comm_allreduce(strict, device, result, 2, DTL_DTYPE_INT32, DTL_OP_SUM), "deterministic");
    CHECK_OK(dtl_comm_bcast(strict, device, 2, DTL_DTYPE_INT32, 0));
    CHECK_STATUS(dtl_comm_allreduce(plain, one, result, 2, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("of one sort");
    CHECK_STATUS(dtl_comm_bcast(plain, device, 2, DTL_DTYPE_INT32, ranks), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_allreduce(plain, device, device + 1, 2, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_bcast(plain, device, ROOM, DTL_DTYPE_INT32, 0), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_op_destroy(own));
    sums(plain, me, ranks); /* nothing of that puts the ranks out of step */
    CHECK_OK(dtl_comm_destroy(plain));
    CHECK_OK(dtl_comm_destroy(strict));
}

static void test_other_device(void) {
    int32_t *other, count;
    CHECK_OK(dtl_backend_device_count(cuda, &count));
    if (count == 1) return;
    CHECK_OK(dtl_backend_set_device(cuda, (me + 1) % count));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 64, 0, (void **)&other));
    CHECK_STATUS(dtl_comm_bcast(comm, other, 2, DTL_DTYPE_INT32, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("another device than the communicator's");
    CHECK_OK(dtl_mem_free(cuda, other));
    sums(comm, me, ranks); /* the thread's device is not asked any more */
    CHECK_OK(dtl_backend_set_device(cuda, me));
}

static void test_staged(void) {
    dtl_comm_t staging = open_nccl(DTL_COMM_WORLD, DTL_COMM_STAGE, MILLISECONDS(60000));
    char text[16384];
    uint64_t len;
    int32_t i;
    give(device, COUNT, me);
    CHECK_OK(dtl_comm_scan(staging, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK_OK(dtl_mem_copy(here, result, 4 * COUNT));
    for (i = 0; i < COUNT; i++) CHECK(here[i] == sum_of(me + 1, (uint64_t)i));
    CHECK_OK(dtl_explain(text, sizeof text, &len));
    CHECK(strstr(text, "collectives of device memory over nccl: staged where need be") != NULL);
    sums(staging, me, ranks);
    CHECK_OK(dtl_explain(text, sizeof text, &len));
    CHECK(strstr(text, "allreduce by nccl: executed by the backend itself") != NULL);
    CHECK_OK(dtl_comm_destroy(staging));
}

/* ---- what it has ------------------------------------------------------------------------------- */

/* Those in place: where the results lie is not for all as NCCL has it. */
static void test_places(void) {
    const int32_t block = 5, all = block * ranks;
    int32_t i;
    give(result, (uint64_t)all, me);
    CHECK_OK(dtl_comm_reduce_scatter_block(comm, DTL_IN_PLACE, result, (uint64_t)block, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK_OK(dtl_mem_copy(here, result, 4 * (uint64_t)block));
    for (i = 0; i < block; i++) CHECK(here[i] == sum_of(ranks, (uint64_t)(me * block + i)));
    give(device, (uint64_t)all, me);
    CHECK_OK(dtl_comm_reduce_scatter_block(comm, device, result, (uint64_t)block, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK_OK(dtl_mem_copy(here, result, 4 * (uint64_t)block));
    for (i = 0; i < block; i++) CHECK(here[i] == sum_of(ranks, (uint64_t)(me * block + i)));
    give(result, (uint64_t)all, me);
    CHECK_OK(dtl_comm_allgather(comm, DTL_IN_PLACE, (uint64_t)block, result, DTL_DTYPE_INT32));
    CHECK_OK(dtl_mem_copy(here, result, 4 * (uint64_t)all));
    for (i = 0; i < all; i++) CHECK(here[i] == i / block + i);
    give(result, (uint64_t)all, me);
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, result, (uint64_t)all, DTL_DTYPE_INT32, DTL_OP_MAX));
    CHECK_OK(dtl_comm_reduce(comm, me == 0 ? DTL_IN_PLACE : result, me == 0 ? result : NULL, (uint64_t)all, DTL_DTYPE_INT32,
                             DTL_OP_MIN, 0));
    CHECK_OK(dtl_mem_copy(here, result, 4 * (uint64_t)all));
    for (i = 0; i < all; i++) CHECK(here[i] == ranks - 1 + i);
    give(result, (uint64_t)all, me); /* the root's own block stays where it is */
    CHECK_OK(dtl_comm_gather(comm, me == 0 ? DTL_IN_PLACE : device, (uint64_t)block, me == 0 ? result : NULL, DTL_DTYPE_INT32, 0));
    CHECK_OK(dtl_comm_scatter(comm, me == 0 ? result : NULL, (uint64_t)block, me == 0 ? DTL_IN_PLACE : device, DTL_DTYPE_INT32, 0));
    CHECK_OK(dtl_mem_copy(here, me == 0 ? result : device, 4 * (uint64_t)block));
    for (i = 0; i < block; i++) CHECK(here[i] == me + i);
}

/* Each dtype, and what the other tests leave out. */
#define REDUCES(type, dtype)                                                                                \
    do {                                                                                                    \
        type *values = (type *)here;                                                                        \
        for (i = 0; i < COUNT; i++) values[i] = (type)(me + i % 7);                                         \
        CHECK_OK(dtl_mem_copy(device, here, COUNT * sizeof(type)));                                         \
        CHECK_OK(dtl_comm_allreduce(comm, device, result, COUNT, dtype, DTL_OP_SUM));                       \
        CHECK_OK(dtl_mem_copy(here, result, COUNT * sizeof(type)));                                         \
        for (i = 0; i < COUNT; i++) CHECK(values[i] == (type)sum_of(ranks, (uint64_t)(i % 7)));             \
        CHECK_OK(dtl_comm_allreduce(comm, device, result, COUNT, dtype, DTL_OP_MAX));                       \
        CHECK_OK(dtl_mem_copy(here, result, COUNT * sizeof(type)));                                         \
        for (i = 0; i < COUNT; i++) CHECK(values[i] == (type)(ranks - 1 + i % 7));                          \
    } while (0)

static void test_dtypes(void) {
    int32_t i;
    REDUCES(int8_t, DTL_DTYPE_INT8);
    REDUCES(uint8_t, DTL_DTYPE_UINT8);
    REDUCES(int32_t, DTL_DTYPE_INT32);
    REDUCES(uint32_t, DTL_DTYPE_UINT32);
    REDUCES(int64_t, DTL_DTYPE_INT64);
    REDUCES(uint64_t, DTL_DTYPE_UINT64);
    REDUCES(float, DTL_DTYPE_FLOAT32);
    REDUCES(double, DTL_DTYPE_FLOAT64);
    give(device, 3 * (uint64_t)ranks, 100 * me);
    CHECK_OK(dtl_comm_alltoall(comm, device, 3, result, DTL_DTYPE_INT32));
    CHECK_OK(dtl_mem_copy(here, result, 12 * (uint64_t)ranks));
    for (i = 0; i < 3 * ranks; i++) CHECK(here[i] == 100 * (i / 3) + 3 * me + i % 3);
    give(result, COUNT, me);
    CHECK_OK(dtl_comm_bcast(comm, result, COUNT, DTL_DTYPE_INT32, ranks - 1));
    CHECK_OK(dtl_mem_copy(here, result, 4 * COUNT));
    for (i = 0; i < COUNT; i++) CHECK(here[i] == ranks - 1 + i);
}

/* Many under way at once, waited for backwards; they run in the order of their calls. */
static void test_requests(void) {
    enum { MANY = 24 };
    dtl_request_t requests[MANY];
    int32_t i;
    give(device, COUNT, me);
    for (i = 0; i < MANY; i++)
        CHECK_OK(dtl_comm_iallreduce(comm, i == 0 ? device : DTL_IN_PLACE, result, COUNT, DTL_DTYPE_INT32,
                                     i == 0 ? DTL_OP_SUM : DTL_OP_MAX, &requests[i]));
    for (i = MANY - 1; i >= 0; i--) CHECK_OK(dtl_request_wait(requests[i], MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_mem_copy(here, result, 4 * COUNT));
    for (i = 0; i < COUNT; i++) CHECK(here[i] == sum_of(ranks, (uint64_t)i));
}

static void test_made_from_others(void) {
    dtl_comm_t twin, half;
    CHECK_OK(dtl_comm_dup(comm, &twin));
    sums(twin, me, ranks);
    CHECK_OK(dtl_comm_split(twin, me % 2, me, &half));
    sums(half, me / 2, (ranks + 1 - me % 2) / 2);
    CHECK_OK(dtl_comm_destroy(twin));
    sums(half, me / 2, (ranks + 1 - me % 2) / 2);
    CHECK_OK(dtl_comm_destroy(half));
}

/* ---- ranks that do not come --------------------------------------------------------------------- */

static void test_out_of_step(void) {
    dtl_comm_t hasty = open_nccl(comm, 0, MILLISECONDS(300) * patience()), again;
    dtl_request_t request;
    dtl_status_t status;
    /* Queued, and never done: it goes with its communicator. */
    dtl_comm_t left = open_nccl(comm, 0, 0);
    if (me == 0) CHECK_OK(dtl_comm_iallreduce(left, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM, &request));
    CHECK_OK(dtl_comm_destroy(left));
    CHECK_OK(dtl_comm_barrier(comm));
    if (ranks > 1) {
        if (me != 1) CHECK_STATUS(dtl_comm_allreduce(hasty, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_TIMEOUT);
        CHECK_OK(dtl_comm_barrier(comm));
        if (me != 1) CHECK_STATUS(dtl_comm_bcast(hasty, device, 1, DTL_DTYPE_INT32, 0), DTL_ERROR_INVALID_STATE);
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_comm_shrink(hasty, &again));
        sums(again, me, ranks);
        /* One rank with the host's memory: they wait for each other in two places. */
        if (me == 0) status = dtl_comm_allreduce(again, here, here + 8, 5, DTL_DTYPE_INT32, DTL_OP_SUM);
        else status = dtl_comm_allreduce(again, device, result, 5, DTL_DTYPE_INT32, DTL_OP_SUM);
        CHECK(status == DTL_ERROR_INVALID_ARGUMENT || status == DTL_ERROR_TIMEOUT);
        CHECK_TEXT("device memory");
        CHECK_OK(dtl_comm_barrier(comm));
        CHECK_OK(dtl_comm_destroy(again));
    }
    CHECK_OK(dtl_comm_destroy(hasty));
    CHECK_OK(dtl_comm_barrier(comm));
}

static void take_buffers(void) {
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, ROOM, 0, (void **)&device));
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, ROOM, 0, (void **)&result));
}

static dtl_comm_t stuck;

static void *registers(void *status) {
    *(dtl_status_t *)status = dtl_comm_register(stuck, device, ROOM);
    return NULL;
}

/* A registration that does not end. Other threads can start and test a collective meanwhile. Then the registration and
 * the collective fail with a timeout, and nothing hangs. */
static void test_stuck_registration(void) {
    dtl_status_t status = DTL_SUCCESS;
    dtl_request_t request;
    pthread_t thread;
    int32_t done = 1;
    CHECK_OK(dtl_comm_dup(comm, &stuck));
    setenv("FAKE_NCCL_STUCK", "1", 1);
    CHECK(pthread_create(&thread, NULL, registers, &status) == 0);
    usleep(200000);
    CHECK_OK(dtl_comm_iallreduce(stuck, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM, &request));
    CHECK_OK(dtl_request_test(request, &done, NULL));
    CHECK(!done);
    CHECK(pthread_join(thread, NULL) == 0 && status == DTL_ERROR_TIMEOUT);
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_TIMEOUT);
    CHECK(strstr(dtl_last_error(), "ncclCommRegister was still in progress") != NULL);
    CHECK_OK(dtl_comm_destroy(stuck));
    /* Destroying the communicator ends the registration. */
    CHECK_OK(dtl_comm_dup(comm, &stuck));
    CHECK(pthread_create(&thread, NULL, registers, &status) == 0);
    usleep(200000);
    CHECK_OK(dtl_comm_destroy(stuck));
    CHECK(pthread_join(thread, NULL) == 0 && status == DTL_ERROR_CANCELED);
    unsetenv("FAKE_NCCL_STUCK");
}

static int registered(void) { return live_objects("DTL_NCCL_LIBRARY", "fake_nccl_registered"); }

/* Buffers that are used again and again are registered with NCCL; those of the host's memory with what is below. */
static void test_buffers(void) {
    const int before = is_fake() ? registered() : 0;
    dtl_request_t request;
    dtl_comm_t copy;
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK_OK(dtl_comm_register(comm, device, ROOM));
    CHECK_OK(dtl_comm_register(comm, result, ROOM));
    CHECK_OK(dtl_comm_register(copy, device, ROOM));
    CHECK_OK(dtl_comm_register(comm, here, sizeof here));
    CHECK(!is_fake() || registered() == before + 3);
    CHECK_STATUS(dtl_comm_register(comm, device + 1, 4), DTL_ERROR_ALREADY_EXISTS);
    sums(comm, me, ranks);
    CHECK_OK(dtl_comm_iallreduce(comm, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM, &request));
    CHECK_STATUS(dtl_comm_deregister(comm, device), DTL_ERROR_BUSY);
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_comm_deregister(comm, device));
    CHECK_STATUS(dtl_comm_deregister(comm, device), DTL_ERROR_NOT_FOUND);
    CHECK(!is_fake() || registered() == before + 2);
    CHECK_OK(dtl_comm_deregister(comm, here));
    CHECK_OK(dtl_comm_destroy(copy)); /* deregisters what is left */
    CHECK(!is_fake() || registered() == before + 1);
    if (is_fake()) {
        setenv("FAKE_NCCL_FAIL", "ncclCommRegister:0:2", 1);
        CHECK_STATUS(dtl_comm_register(comm, device, ROOM), DTL_ERROR_NCCL);
        setenv("FAKE_NCCL_FAIL", "ncclCommDeregister:0:2", 1);
        CHECK_STATUS(dtl_comm_deregister(comm, result), DTL_ERROR_NCCL);
        unsetenv("FAKE_NCCL_FAIL");
        CHECK_STATUS(dtl_comm_deregister(comm, result), DTL_ERROR_NOT_FOUND);
        test_stuck_registration();
    }
    sums(comm, me, ranks);
}

static void suite(int argc, char **argv) {
    start(argc, argv);
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    take_buffers();
    comm = open_nccl(DTL_COMM_NULL, 0, MILLISECONDS(60000));
    test_described();
    if (is_fake()) test_foreign();
    test_refused();
    test_other_device();
    test_staged();
    test_places();
    test_dtypes();
    test_requests();
    test_made_from_others();
    test_buffers();
    test_out_of_step();
    sums(comm, me, ranks);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_mem_free(cuda, device));
    CHECK_OK(dtl_mem_free(cuda, result));
    finish();
    nothing_is_left();
}

/* ---- faults, with ranks that are threads ---------------------------------------------------------- */

struct rank {
    int number, device, opens;
    dtl_comm_t below;
    dtl_status_t status[2]; /* of the opening, of an allreduce */
    char text[2][1024];
};

static void note(struct rank *rank, int which, dtl_status_t status) {
    rank->status[which] = status;
    snprintf(rank->text[which], sizeof rank->text[which], "%s", status == DTL_SUCCESS ? "" : dtl_last_error());
}

static void *be_a_rank(void *argument) {
    struct rank *rank = (struct rank *)argument;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t opened = DTL_COMM_NULL;
    float *memory;
    CHECK_OK(dtl_backend_set_device(cuda, rank->device));
    desc.kind = "nccl", desc.over = rank->below, desc.timeout_ns = MILLISECONDS(400);
    note(rank, 0, dtl_comm_open(&desc, &opened));
    CHECK((rank->status[0] == DTL_SUCCESS) == (opened.id != 0));
    if (opened.id == 0) return NULL;
    CHECK_OK(dtl_mem_alloc(cuda, DTL_MEMORY_DEVICE, 4096, 0, (void **)&memory));
    note(rank, 1, dtl_comm_allreduce(opened, DTL_IN_PLACE, memory, 1024, DTL_DTYPE_FLOAT32, DTL_OP_SUM));
    DTL_IGNORE(dtl_mem_free(cuda, memory)); /* of a lost device, it is gone already */
    CHECK_OK(dtl_comm_destroy(opened));
    return NULL;
}

/* Two ranks, and what both say: in the opening (0) or in an allreduce (1). */
static void run_ranks(struct rank *each, int devices, int which, dtl_status_t first, dtl_status_t second, const char *text) {
    const dtl_status_t wanted[2] = {first, second};
    dtl_comm_t below[2];
    pthread_t threads[2];
    int i, is_told = 0;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK_OK(dtl_comm_threads(2, MILLISECONDS(60000), below));
    for (i = 0; i < 2; i++) {
        memset(&each[i], 0, sizeof each[i]);
        each[i].number = i, each[i].device = i % devices, each[i].below = below[i];
        CHECK(pthread_create(&threads[i], NULL, be_a_rank, &each[i]) == 0);
    }
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 2; i++) {
        /* Which of the two ranks a call of the process' fails for is chance. */
        const dtl_status_t status = each[i].status[which];
        const int fits = status == wanted[0] || status == wanted[1];
        is_told = is_told || strstr(each[i].text[which], text) != NULL;
        if (!fits) fprintf(stderr, "rank %d: %s: %s\n", i, dtl_status_name(status), each[i].text[which]);
        CHECK(fits && (which == 0 || each[i].status[0] == DTL_SUCCESS));
    }
    if (!is_told) fprintf(stderr, "\"%s\" is not in \"%s\", \"%s\"\n", text, each[0].text[which], each[1].text[which]);
    CHECK(is_told);
    for (i = 0; i < 2; i++) CHECK_OK(dtl_comm_destroy(below[i]));
    CHECK_OK(dtl_finalize());
    nothing_is_left();
}

static void with(const char *variable, const char *value, int which, dtl_status_t first, dtl_status_t second, const char *text) {
    struct rank each[2];
    fprintf(stderr, "%s=%s\n", variable, value); /* for who reads of a failure */
    setenv(variable, value, 1);
    run_ranks(each, 2, which, first, second, text);
    unsetenv(variable);
}

static void test_faults(void) {
    struct rank each[2];
    run_ranks(each, 2, 1, DTL_SUCCESS, DTL_SUCCESS, "");
    /* A rank may hear of the other's failure before its own. */
    run_ranks(each, 1, 0, DTL_ERROR_INVALID_ARGUMENT, DTL_ERROR_UNAVAILABLE, "Duplicate GPU detected");
    CHECK(strstr(each[0].text[0], "dtl_backend_set_device") != NULL || strstr(each[1].text[0], "dtl_backend_set_device") != NULL);
    with("FAKE_NCCL_FAIL", "ncclGetUniqueId:1:2", 0, DTL_ERROR_NCCL, DTL_ERROR_UNAVAILABLE,
         "ncclGetUniqueId: NCCL says ncclSystemError (2), unhandled system error");
    with("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:1:1", 0, DTL_ERROR_NCCL, DTL_ERROR_UNAVAILABLE, "ncclUnhandledCudaError (1)");
    with("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2:77", 0, DTL_ERROR_NCCL, DTL_ERROR_UNAVAILABLE, "a code without a name (77)");
    with("FAKE_NCCL_ALONE", "1", 0, DTL_ERROR_TIMEOUT, DTL_ERROR_UNAVAILABLE, "is not open after 400 ms");
    with("FAKE_NCCL_FAIL", "ncclAllReduce:1:4", 1, DTL_ERROR_NCCL, DTL_ERROR_NCCL, "ncclInvalidArgument (4)");
    with("FAKE_NCCL_FAIL", "ncclAllReduce:2:3", 1, DTL_ERROR_NCCL, DTL_ERROR_NCCL, "ncclAllReduce failed as told");
    with("FAKE_NCCL_FAIL", "ncclCommFinalize:1:3", 1, DTL_SUCCESS, DTL_SUCCESS, "");
    with("FAKE_NCCL_ASYNC", "1:6", 1, DTL_ERROR_CONNECTION_LOST, DTL_ERROR_CONNECTION_LOST, "the network is on fire");
    with("FAKE_NCCL_HANG", "1", 1, DTL_ERROR_TIMEOUT, DTL_ERROR_TIMEOUT, "allreduce #");
    with("FAKE_CUDA_FAIL", "cuStreamCreate:1:2", 0, DTL_ERROR_OUT_OF_MEMORY, DTL_ERROR_UNAVAILABLE, "cuStreamCreate");
    with("FAKE_CUDA_FAIL", "cuLaunchHostFunc:1:719", 1, DTL_ERROR_NCCL, DTL_ERROR_NCCL, "ncclUnhandledCudaError");
    /* What was queued before may be over for the other rank. */
    with("FAKE_CUDA_FAIL", "cuEventRecord:1:700", 1, DTL_ERROR_DEVICE_LOST, DTL_SUCCESS, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

/* ---- death --------------------------------------------------------------------------------------- */

static void be_a_process(int rank, const char *job) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t below, survivors;
    me = rank;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK_OK(dtl_backend_set_device(cuda, rank));
    take_buffers();
    desc.kind = "shm", desc.rank = rank, desc.size = 3, desc.job = job;
    CHECK_OK(dtl_comm_open(&desc, &below));
    comm = open_nccl(below, 0, 0); /* without a time limit */
    sums(comm, rank, 3);
    if (rank == 1) kill(getpid(), SIGKILL);
    CHECK_STATUS(dtl_comm_allreduce(comm, device, result, COUNT, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_RANK_FAILURE);
    /* Or the other one has seen it first. */
    CHECK(strstr(dtl_last_error(), "died") != NULL || strstr(dtl_last_error(), "begun to shrink") != NULL);
    CHECK_OK(dtl_comm_shrink(comm, &survivors));
    CHECK_OK(dtl_comm_size(survivors, &ranks));
    CHECK(ranks == 2);
    sums(survivors, rank / 2, 2);
    CHECK_OK(dtl_comm_destroy(survivors));
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_comm_destroy(below));
    CHECK_OK(dtl_mem_free(cuda, device));
    CHECK_OK(dtl_mem_free(cuda, result));
    CHECK_OK(dtl_finalize());
    nothing_is_left();
    exit(0);
}

static void test_death(void) {
    char job[40];
    pid_t children[3];
    int i, status;
    snprintf(job, sizeof job, "nccl-death-%ld", (long)getpid());
    for (i = 0; i < 3; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) be_a_process(i, job);
    }
    for (i = 0; i < 3; i++) {
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK(i == 1 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* ---- not there ------------------------------------------------------------------------------------ */

static void unavailable(const char *variable, const char *value, const char *reason) {
    const char *before = getenv(variable);
    char kept[4096], why[1000];
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_backend_t nccl;
    dtl_comm_t opened = DTL_COMM_NULL;
    int32_t yes = 7;
    snprintf(kept, sizeof kept, "%s", before != NULL ? before : "");
    setenv(variable, value, 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("nccl", &nccl));
    CHECK_OK(dtl_backend_is_available(nccl, &yes, why, sizeof why, NULL));
    if (strstr(why, reason) == NULL) fprintf(stderr, "\"%s\" is not in: %s\n", reason, why);
    CHECK(yes == 0 && strstr(why, reason) != NULL);
    desc.kind = "nccl";
    CHECK_STATUS(dtl_comm_open(&desc, &opened), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT(reason);
    desc.over = DTL_COMM_SELF;
    CHECK_STATUS(dtl_comm_open(&desc, &opened), DTL_ERROR_UNAVAILABLE);
    CHECK(opened.id == 0);
    /* A choice by itself has nothing to do with it. */
    CHECK_OK(dtl_comm_info(DTL_COMM_WORLD, &info));
    CHECK(strcmp(info.kind, "nccl") != 0);
    CHECK_OK(dtl_finalize());
    setenv("DTL_COMM", "nccl", 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_comm_info(DTL_COMM_WORLD, &info), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT(reason);
    CHECK_OK(dtl_finalize());
    unsetenv("DTL_COMM");
    if (before != NULL) setenv(variable, kept, 1);
    else unsetenv(variable);
}

static void test_absent(void) {
    char without[4200];
    snprintf(without, sizeof without, "%s.required", getenv("DTL_NCCL_LIBRARY"));
    unavailable("DTL_NCCL_LIBRARY", "/no/such/libnccl.so.2", "DTL_NCCL_LIBRARY=/no/such/libnccl.so.2");
    unavailable("DTL_NCCL_LIBRARY", "libc.so.6", "no function ncclGetVersion");
    unavailable("DTL_NCCL_LIBRARY", without, "no function ncclGroupEnd");
    unavailable("DTL_CUDA_LIBRARY", "/no/such/libcuda.so.1", "backend cuda: DTL_CUDA_LIBRARY=/no/such/libcuda.so.1");
    unavailable("FAKE_NCCL_VERSION", "21003", "it is NCCL 2.10.3");
    unavailable("FAKE_NCCL_VERSION", "30100", "up to, without, 3.0.0");
    unavailable("FAKE_NCCL_FAIL", "ncclGetVersion:0:3", "ncclGetVersion: NCCL says ncclInternalError (3), internal error");
}

/* ---- NVIDIA's own --------------------------------------------------------------------------------- */

static void test_real(void) {
    const char *file = getenv("DTL_TEST_NCCL");
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t opened = DTL_COMM_NULL;
    dtl_backend_t nccl;
    int32_t yes = 0;
    char why[1000];
    if (file == NULL || access(file, R_OK) != 0) SKIP("NVIDIA's NCCL is not there (tests/gpu_wheels.sh fetches it)");
    setenv("DTL_NCCL_LIBRARY", file, 1);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("nccl", &nccl));
    CHECK_OK(dtl_backend_is_available(nccl, &yes, why, sizeof why, NULL));
    if (!yes) fprintf(stderr, "%s\n", why);
    CHECK(yes); /* every function is there, and the version is one that can be used */
    desc.kind = "nccl", desc.over = DTL_COMM_SELF, desc.timeout_ns = MILLISECONDS(60000);
    CHECK_STATUS(dtl_comm_open(&desc, &opened), DTL_ERROR_NCCL);
    CHECK_TEXT("NCCL says nccl");
    CHECK(opened.id == 0);
    CHECK_OK(dtl_finalize());
    CHECK(live_objects("DTL_CUDA_LIBRARY", "fake_cuda_live") == 0);
}

/* ---- on devices of any sort ------------------------------------------------------------------------ */

static void on_devices(int argc, char **argv) {
    dtl_backend_t nccl;
    int32_t yes, count, size;
    char why[1000];
    CHECK_OK(dtl_backend_get("nccl", &nccl));
    CHECK_OK(dtl_backend_is_available(nccl, &yes, why, sizeof why, NULL));
    if (!yes) SKIP(why);
    CHECK_OK(dtl_backend_get("cuda", &cuda));
    CHECK_OK(dtl_backend_device_count(cuda, &count));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &size));
    snprintf(why, sizeof why, "there are %d devices for %d ranks", count, size);
    if (size > count) SKIP(why);
    argv[1] = (char *)(uintptr_t)"nccl"; /* the kind */
    suite(argc, argv);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "device") == 0) {
        on_devices(argc, argv);
        return 0;
    }
    if (getenv("DTL_CUDA_LIBRARY") == NULL) SKIP("it runs over the CUDA driver that is none (tests/cuda)");
    if (strcmp(what, "nccl") == 0) suite(argc, argv);
    else if (strcmp(what, "faults") == 0) test_faults();
    else if (strcmp(what, "death") == 0) test_death();
    else if (strcmp(what, "absent") == 0) test_absent();
    else if (strcmp(what, "real") == 0) test_real();
    else SKIP("it runs with arguments: nccl, faults, death, absent, real or device");
    return 0;
}
