/* Memory slots of a comm table, and buffers that a program registers: what is registered when, messages and collectives in
 * memory that the host cannot touch, failures of each slot. Both ranks are in this process. C11, and valid C++17. */
#include "two_ranks.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { BYTES = 1 << 16, SMALL = 4096 };

static struct far far_self;
static dtl_backend_t away, host;
static dtl_comm_t ranks[2];
static unsigned char pattern[BYTES], got[BYTES];
static dtl_status_t no_export;

static unsigned char* device(uint64_t size) {
    void* memory;
    CHECK_OK(dtl_mem_alloc(away, DTL_MEMORY_DEVICE, size, 0, &memory));
    return (unsigned char*)memory;
}

static void begin(uint64_t flags) {
    memset(&two, 0, sizeof two);
    two.use = DTL_COMM_MEM_ADDRESS, two.dmabuf = -2;
    ranks[0] = two_opened("two", 0, 2, flags), ranks[1] = two_opened("two", 1, 2, flags);
}

static void end(void) {
    CHECK_OK(dtl_comm_destroy(ranks[0]));
    CHECK_OK(dtl_comm_destroy(ranks[1]));
    CHECK(two.registers == two.deregisters);
}

/* Rank 0 sends `size` bytes from `out` to `in` of rank 1; how many copies of the backend that takes. */
static int moved(unsigned char* out, unsigned char* in, uint64_t size, uint64_t room) {
    static int count;
    dtl_request_t requests[2];
    dtl_recv_info_t info;
    int copies;
    uint64_t i;
    for (i = 0; i < BYTES; i++) pattern[i] = (unsigned char)(i * 7 + (uint64_t)count);
    count++;
    if (far_is(out)) CHECK_OK(dtl_mem_copy(out, pattern, size));
    else memcpy(out, pattern, (size_t)size);
    copies = far_self.copies;
    CHECK_OK(dtl_comm_irecv(ranks[1], in, room, DTL_DTYPE_BYTE, 0, 5, &requests[1]));
    CHECK_OK(dtl_comm_isend(ranks[0], out, size, DTL_DTYPE_BYTE, 1, 5, &requests[0]));
    if (room < size) CHECK_STATUS(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, &info), DTL_ERROR_TRUNCATED);
    else CHECK_OK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, &info));
    CHECK_OK(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL));
    copies = far_self.copies - copies;
    memset(got, 0, sizeof got);
    if (far_is(in)) CHECK_OK(dtl_mem_copy(got, in, room < size ? room : size));
    else memcpy(got, in, (size_t)(room < size ? room : size));
    CHECK(info.size_bytes == size && memcmp(got, pattern, (size_t)(room < size ? room : size)) == 0);
    return copies;
}

static void messages_are_direct(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES), *plain = (unsigned char*)malloc(BYTES);
    begin(0);
    CHECK(plain != NULL && moved(out, in, BYTES, BYTES) == 0);
    CHECK(two.registers == 2 && two.supports == 2 && two.far_ops == 2 && two.dmabuf == -1);
    CHECK(two.seen.backend.id == away.id && two.seen.kind == DTL_MEMORY_DEVICE && two.seen.base == out);
    CHECK(two.seen.size_bytes == BYTES && two.seen.device == 0);
    CHECK(moved(out + 64, in + 128, BYTES - 128, BYTES - 128) == 0);
    CHECK(moved(out, in, BYTES, BYTES / 2) == 0); /* truncated */
    CHECK(two.registers == 2 && two.supports == 2 && two.far_ops == 6);
    CHECK(moved(out, plain, BYTES, BYTES) == 0 && moved(plain, in, BYTES, BYTES) == 0);
    CHECK(two.far_ops == 8);
    CHECK(moved(out, in, SMALL, BYTES) == 2 && two.far_ops == 8); /* a frame */
    free(plain);
    end();
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

static void a_free_ends_the_registration(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES);
    int i;
    begin(0);
    for (i = 0; i < 3; i++) {
        const int frees = far_self.frees;
        CHECK(moved(out, in, BYTES, BYTES) == 0 && two.registers == 2 + i && two.deregisters == i);
        CHECK_OK(dtl_mem_free(away, out));
        CHECK(two.deregisters == i + 1 && two.frees_before == frees && far_self.frees == frees + 1);
        out = device(BYTES); /* at the same address, maybe */
    }
    end();
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

/* Memory that is not taken is staged, each with the reason that the library has for it. */
static void the_rest_is_staged(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES);
    int turn;
    for (turn = 0; turn < 8; turn++) {
        begin(turn == 7 ? DTL_COMM_STAGE : 0);
        if (turn == 0) two.use = DTL_COMM_MEM_STAGED;
        if (turn == 1) two.supports_status = DTL_ERROR_BACKEND;
        if (turn == 2) two.use = 7;
        if (turn == 3) two.register_status = DTL_ERROR_NOT_SUPPORTED;
        if (turn == 4) two.register_status = DTL_ERROR_LIMIT; /* and nothing to deregister */
        if (turn == 5) two.is_null = 1;
        if (turn == 6) two.use = DTL_COMM_MEM_DMABUF, no_export = DTL_ERROR_NOT_SUPPORTED;
        CHECK(moved(out, in, BYTES, BYTES) == 2 && moved(out, in, BYTES, BYTES) == 2);
        CHECK(two.far_ops == 0 && two.registers == 0 && two.supports == (turn == 7 ? 0 : 2));
        no_export = DTL_SUCCESS;
        end();
    }
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

static void a_dmabuf_is_exported(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES);
    begin(0);
    two.use = DTL_COMM_MEM_DMABUF;
    CHECK(moved(out, in, BYTES, BYTES) == 0 && two.registers == 2);
    CHECK(two.dmabuf >= 0 && two.dmabuf_offset == 77 && fcntl(two.dmabuf, F_GETFD) == -1); /* closed again */
    end();
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

/* No room: the allocation that was used least recently is deregistered. */
static void no_room_evicts(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES), *other = device(BYTES);
    begin(0);
    two.most = 2;
    CHECK(moved(out, in, BYTES, BYTES) == 0 && two.registers == 2);
    CHECK(moved(other, in, BYTES, BYTES) == 0 && two.registers == 3 && two.deregisters == 1);
    CHECK(moved(out, in, BYTES, BYTES) == 0 && two.registers == 4 && two.deregisters == 2);
    two.deregister_status = DTL_ERROR_BACKEND; /* a warning */
    CHECK_OK(dtl_mem_free(away, out));
    CHECK(two.deregisters == 3);
    end();
    CHECK_OK(dtl_mem_free(away, in));
    CHECK_OK(dtl_mem_free(away, other));
}

static void canceled_and_dead(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES);
    dtl_request_t requests[2];
    begin(0);
    CHECK_OK(dtl_comm_irecv(ranks[1], in, BYTES, DTL_DTYPE_BYTE, 0, 5, &requests[1]));
    CHECK_OK(dtl_request_cancel(requests[1]));
    CHECK_STATUS(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK(moved(out, in, BYTES, BYTES) == 0);
    /* A receive that has an offer, which its sender withdraws; then a frame comes. */
    CHECK_OK(dtl_comm_isend(ranks[0], out, BYTES, DTL_DTYPE_BYTE, 1, 5, &requests[0]));
    CHECK_OK(dtl_comm_irecv(ranks[1], in, BYTES, DTL_DTYPE_BYTE, 0, 5, &requests[1]));
    CHECK_OK(dtl_request_cancel(requests[0]));
    CHECK_STATUS(dtl_request_wait(requests[0], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_send(ranks[0], "short", 6, DTL_DTYPE_BYTE, 1, 5));
    CHECK_OK(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, NULL));
    CHECK_OK(dtl_mem_copy(got, in, 6));
    CHECK(memcmp(got, "short", 6) == 0);
    /* The other rank dies in the middle. */
    two.is_dead = 1;
    CHECK_OK(dtl_comm_irecv(ranks[1], in, BYTES, DTL_DTYPE_BYTE, 0, 5, &requests[1]));
    CHECK_OK(dtl_comm_isend(ranks[0], out, BYTES, DTL_DTYPE_BYTE, 1, 5, &requests[0]));
    CHECK_STATUS(dtl_request_wait(requests[1], DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_RANK_FAILURE);
    DTL_IGNORE(dtl_comm_destroy(ranks[0]));
    DTL_IGNORE(dtl_comm_destroy(ranks[1]));
    CHECK(two.registers == two.deregisters);
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

static void collectives_are_direct(void) {
    unsigned char *in = device(256), *out = device(256);
    const int32_t numbers[4] = {1, 2, 3, 4};
    int32_t results[4] = {0, 0, 0, 0};
    dtl_request_t request;
    dtl_comm_t alone;
    int copies;
    memset(&two, 0, sizeof two);
    two.use = DTL_COMM_MEM_ADDRESS, two.coll_yes = 1, two.coll_done = 3;
    alone = two_opened("coll", 0, 1, 0);
    CHECK_OK(dtl_mem_copy(in, numbers, sizeof numbers));
    copies = far_self.copies;
    CHECK_OK(dtl_comm_allreduce(alone, in, out, 4, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(far_self.copies == copies && two.coll_started == 1 && two.registers == 2);
    CHECK(two.coll_seen.memory_backend.id == away.id && two.coll_seen.memory_kind == DTL_MEMORY_DEVICE);
    CHECK(two.coll_seen.memory_device == 0 && two.coll_seen.reserved == 0 && two.coll_recv.ptr == out);
    CHECK_OK(dtl_mem_copy(results, out, sizeof results));
    CHECK(memcmp(results, numbers, sizeof numbers) == 0);
    CHECK_OK(dtl_comm_ibcast(alone, in, 4, DTL_DTYPE_INT32, 0, &request));
    CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
    CHECK(two.coll_started == 2 && two.coll_seen.memory_backend.id == away.id && two.registers == 2);
    CHECK_OK(dtl_comm_allreduce(alone, numbers, results, 4, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(two.coll_started == 3 && two.coll_seen.memory_backend.id == 0 && two.coll_seen.memory_kind == 0);
    /* Memory of both sides: staged, and a collective of host memory. */
    copies = far_self.copies;
    CHECK_OK(dtl_comm_allreduce(alone, numbers, out, 4, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(two.coll_started == 4 && two.coll_seen.memory_backend.id == 0 && far_self.copies == copies + 1);
    two.coll_yes = 0; /* not accepted of device memory */
    CHECK_OK(dtl_comm_allreduce(alone, in, out, 4, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(two.coll_started == 5 && two.coll_asked.memory_backend.id == 0 && far_self.copies == copies + 3);
    two.coll_yes = 1, two.register_status = DTL_ERROR_NOT_SUPPORTED; /* accepted, but not registered */
    CHECK_OK(dtl_mem_free(away, out));
    out = device(512);
    CHECK_OK(dtl_comm_allreduce(alone, in, out, 4, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(two.coll_started == 6 && two.coll_seen.memory_backend.id == 0);
    two.coll_status = DTL_ERROR_NATIVE_BACKEND; /* coll_supports fails: the call fails, and coll_start is not called */
    CHECK_STATUS(dtl_comm_allreduce(alone, in, in + 64, 4, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_NATIVE_BACKEND);
    CHECK(two.coll_started == 6);
    CHECK_OK(dtl_comm_destroy(alone));
    CHECK(two.registers == two.deregisters);
    CHECK_OK(dtl_mem_free(away, in));
    CHECK_OK(dtl_mem_free(away, out));
}

static unsigned char late[64];

static void* registers_late(void* comm) {
    const dtl_status_t status = dtl_comm_register(*(dtl_comm_t*)comm, late, sizeof late);
    CHECK(status == DTL_ERROR_CANCELED || status == DTL_SUCCESS); /* success: before a destroy */
    return NULL;
}

/* A communicator is destroyed while mem_register lasts: the buffer is deregistered, although the transport stays open. The
 * communicator has failed, because destroying one that works asks the transport, which waits for mem_register. */
static void destroyed_meanwhile(void) {
    unsigned char* memory = device(256);
    dtl_comm_t comm, kept;
    pthread_t thread;
    memset(&two, 0, sizeof two);
    two.use = DTL_COMM_MEM_ADDRESS;
    comm = two_opened("coll", 0, 1, 0);
    CHECK_OK(dtl_comm_dup(comm, &kept));
    two.coll_status = DTL_ERROR_NATIVE_BACKEND;
    CHECK_STATUS(dtl_comm_allreduce(comm, memory, memory + 64, 4, DTL_DTYPE_INT32, DTL_OP_SUM), DTL_ERROR_NATIVE_BACKEND);
    two.register_ms = 100, two.is_registering = 0;
    CHECK(pthread_create(&thread, NULL, registers_late, &comm) == 0);
    while (!__atomic_load_n(&two.is_registering, __ATOMIC_ACQUIRE)) usleep(1000);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(two.registers == 1 && two.deregisters == 1);
    CHECK_OK(dtl_comm_destroy(kept));
    CHECK_OK(dtl_mem_free(away, memory));
}

/* Device memory that cannot be registered is an error of dtl_comm_register, also after a message was staged; then it works. */
static void far_is_registered_or_an_error(void) {
    unsigned char *out = device(BYTES), *in = device(BYTES);
    int turn;
    begin(0);
    for (turn = 0; turn < 2; turn++) {
        two.register_status = DTL_ERROR_NOT_SUPPORTED;
        CHECK_STATUS(dtl_comm_register(ranks[0], out, BYTES), DTL_ERROR_NOT_SUPPORTED);
        CHECK_TEXT("the card does not like it");
        two.register_status = DTL_SUCCESS, two.supports_status = DTL_ERROR_BACKEND;
        CHECK_STATUS(dtl_comm_register(ranks[0], out, BYTES), DTL_ERROR_BACKEND);
        two.supports_status = DTL_SUCCESS, two.use = DTL_COMM_MEM_DMABUF, no_export = DTL_ERROR_NOT_SUPPORTED;
        CHECK_STATUS(dtl_comm_register(ranks[0], out, BYTES), DTL_ERROR_NOT_SUPPORTED);
        two.use = DTL_COMM_MEM_ADDRESS, no_export = DTL_SUCCESS;
        if (turn == 0) CHECK(moved(out, in, BYTES, BYTES) == 1 && two.registers == 1); /* `in` is registered */
    }
    CHECK_OK(dtl_comm_register(ranks[0], out, BYTES));
    CHECK(two.registers == 2 && moved(out, in, BYTES, BYTES) == 0);
    CHECK_OK(dtl_comm_deregister(ranks[0], out));
    end();
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
}

static void* registers_far(void* memory) {
    CHECK_OK(dtl_comm_register(ranks[0], memory, BYTES));
    return NULL;
}

/* A rank revokes a communicator while mem_register of another thread lasts: it does not wait for that, and the other rank gets the
 * notice afterwards. A destroy waits, so that the other rank gets it too. */
static void revoked_meanwhile(void) {
    unsigned char* memory = device(BYTES);
    int turn;
    for (turn = 0; turn < 3; turn++) {
        pthread_t thread;
        int32_t value = 0;
        begin(0);
        two.register_ms = 500;
        if (turn == 0) CHECK(pthread_create(&thread, NULL, registers_far, memory) == 0);
        else CHECK(pthread_create(&thread, NULL, registers_late, &ranks[0]) == 0);
        while (!__atomic_load_n(&two.is_registering, __ATOMIC_ACQUIRE)) usleep(1000);
        CHECK_OK(dtl_comm_revoke(ranks[0]));
        CHECK(__atomic_load_n(&two.is_registering, __ATOMIC_ACQUIRE));
        if (turn == 2) CHECK_OK(dtl_comm_destroy(ranks[0]));
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_STATUS(dtl_comm_recv(ranks[1], &value, 1, DTL_DTYPE_INT32, 0, 1, NULL), DTL_ERROR_REVOKED);
        if (turn != 2) CHECK_OK(dtl_comm_destroy(ranks[0]));
        CHECK_OK(dtl_comm_destroy(ranks[1]));
        CHECK(two.registers == two.deregisters);
    }
    CHECK_OK(dtl_mem_free(away, memory));
}

static void buffers_are_registered(void) {
    unsigned char *plain = (unsigned char*)malloc(BYTES), *far_memory = device(BYTES);
    void* own;
    dtl_request_t request;
    dtl_comm_t again;
    CHECK(plain != NULL);
    CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, SMALL, 0, &own));
    begin(0);
    CHECK_OK(dtl_comm_register(ranks[0], plain + 64, SMALL));
    CHECK(two.registers == 1 && two.seen.backend.id == host.id && two.seen.kind == DTL_MEMORY_HOST);
    CHECK(two.seen.base == plain + 64 && two.seen.size_bytes == SMALL);
    CHECK_STATUS(dtl_comm_register(ranks[0], plain + 64, SMALL), DTL_ERROR_ALREADY_EXISTS);
    CHECK_STATUS(dtl_comm_register(ranks[0], plain, 65), DTL_ERROR_ALREADY_EXISTS);
    CHECK_TEXT("dtl_comm_deregister");
    CHECK_OK(dtl_comm_register(ranks[0], plain, 64));
    CHECK_OK(dtl_comm_register(ranks[1], plain + 64, SMALL)); /* another communicator */
    CHECK_STATUS(dtl_comm_register(ranks[0], own, SMALL + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_comm_register(ranks[0], (char*)own + 96, SMALL), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_TEXT("buf is at offset 96 of an allocation of 4096 bytes");
    CHECK_TEXT("pass at most 4000");
    CHECK_STATUS(dtl_comm_register(ranks[0], own, UINT64_MAX), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("buf: its size of 18446744073709551615 bytes is more than memory can hold");
    CHECK_STATUS(dtl_comm_register(ranks[0], far_memory, BYTES + 1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_comm_register(ranks[0], own, SMALL));
    CHECK(two.registers == 4);
    CHECK_STATUS(dtl_comm_register(ranks[0], NULL, SMALL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_register(ranks[0], plain + SMALL * 2, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_comm_register(DTL_COMM_NULL, plain, 1), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_comm_deregister(ranks[0], plain + 65), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_comm_deregister(ranks[0], NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_deregister(DTL_COMM_NULL, plain), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_comm_irecv(ranks[0], plain + 100, 100, DTL_DTYPE_BYTE, 1, 1, &request));
    CHECK_STATUS(dtl_comm_deregister(ranks[0], plain + 64), DTL_ERROR_BUSY);
    CHECK_OK(dtl_comm_deregister(ranks[0], plain));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_deregister(ranks[0], plain + 64));
    CHECK_STATUS(dtl_comm_deregister(ranks[0], plain + 64), DTL_ERROR_NOT_FOUND);
    CHECK(two.deregisters == 2);
    /* A failure leaves nothing behind. */
    two.register_status = DTL_ERROR_OUT_OF_MEMORY;
    CHECK_STATUS(dtl_comm_register(ranks[0], plain, SMALL), DTL_ERROR_OUT_OF_MEMORY);
    CHECK_TEXT("the card does not like it");
    two.register_status = DTL_SUCCESS, two.supports_status = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_comm_register(ranks[0], plain, SMALL), DTL_ERROR_BACKEND);
    two.supports_status = DTL_SUCCESS, two.use = 9;
    CHECK_STATUS(dtl_comm_register(ranks[0], plain, SMALL), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("comm.mem_supports");
    two.use = DTL_COMM_MEM_STAGED; /* no effect, but the same checks */
    CHECK_OK(dtl_comm_register(ranks[0], plain, SMALL));
    CHECK_STATUS(dtl_comm_register(ranks[0], plain, SMALL), DTL_ERROR_ALREADY_EXISTS);
    CHECK(two.registers == 4);
    CHECK_OK(dtl_comm_deregister(ranks[0], plain));
    two.use = DTL_COMM_MEM_ADDRESS, two.deregister_status = DTL_ERROR_BACKEND;
    CHECK_OK(dtl_comm_register(ranks[0], plain, SMALL));
    CHECK_STATUS(dtl_comm_deregister(ranks[0], plain), DTL_ERROR_BACKEND);
    CHECK_STATUS(dtl_comm_deregister(ranks[0], plain), DTL_ERROR_NOT_FOUND);
    two.deregister_status = DTL_SUCCESS;
    /* A buffer in device memory: its allocation, and not evicted. */
    CHECK_OK(dtl_comm_register(ranks[1], far_memory + 100, 100));
    CHECK(two.registers == 6 && two.seen.base == far_memory && two.seen.size_bytes == BYTES);
    CHECK_OK(dtl_comm_deregister(ranks[1], far_memory + 100));
    CHECK(two.deregisters == 3);
    CHECK_OK(dtl_comm_register(ranks[1], far_memory, BYTES));
    CHECK(two.registers == 6);
    /* A duplicate has buffers of its own, and ends what is left. */
    CHECK_OK(dtl_comm_destroy(ranks[0]));
    CHECK(two.deregisters == 4);
    ranks[0] = two_opened("two", 0, 1, 0);
    CHECK_OK(dtl_comm_dup(ranks[0], &again));
    CHECK_OK(dtl_comm_register(ranks[0], plain, SMALL));
    CHECK_OK(dtl_comm_register(again, plain, SMALL));
    CHECK(two.registers == 8);
    CHECK_OK(dtl_comm_destroy(again));
    CHECK(two.deregisters == 5);
    end();
    CHECK_OK(dtl_comm_register(DTL_COMM_SELF, plain, SMALL)); /* a kind without registration */
    CHECK_STATUS(dtl_comm_register(DTL_COMM_SELF, plain, SMALL), DTL_ERROR_ALREADY_EXISTS);
    CHECK_OK(dtl_comm_register(DTL_COMM_SELF, far_memory, SMALL));
    CHECK_OK(dtl_comm_deregister(DTL_COMM_SELF, plain));
    CHECK_OK(dtl_mem_free(away, far_memory));
    CHECK_OK(dtl_mem_free(host, own));
    free(plain);
}

/* A buffer of a one-sided operation in flight is in use: of one that the transport has begun, and of one that waits. */
static void one_sided_operations_use_buffers(void) {
    static unsigned char memory[256], buffer[256], other[256];
    dtl_request_t request;
    dtl_comm_t alone;
    dtl_win_t win;
    int is_get;
    memset(&two, 0, sizeof two);
    two.use = DTL_COMM_MEM_ADDRESS;
    alone = two_opened("two", 0, 1, 0);
    CHECK_OK(dtl_win_create(alone, memory, sizeof memory, 1, &win));
    CHECK_OK(dtl_win_lock_all(win));
    for (is_get = 0; is_get < 2; is_get++) {
        CHECK_OK(dtl_comm_register(alone, buffer, sizeof buffer));
        CHECK_OK(dtl_comm_register(alone, other, sizeof other));
        two.win_waits = 1;
        if (is_get) CHECK_OK(dtl_win_rget(win, buffer + 10, 8, DTL_DTYPE_BYTE, 0, 0, &request));
        else CHECK_OK(dtl_win_rput(win, buffer + 10, 8, DTL_DTYPE_BYTE, 0, 0, &request));
        CHECK_STATUS(dtl_comm_deregister(alone, buffer), DTL_ERROR_BUSY);
        CHECK_OK(dtl_comm_deregister(alone, other));
        two.win_waits = 0;
        CHECK_OK(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, NULL));
        CHECK_OK(dtl_comm_deregister(alone, buffer));
    }
    /* No room: it waits in the library. */
    CHECK_OK(dtl_comm_register(alone, buffer, sizeof buffer));
    two.win_busy = 1;
    CHECK_OK(dtl_win_put(win, buffer, 8, DTL_DTYPE_BYTE, 0, 0));
    CHECK_STATUS(dtl_comm_deregister(alone, buffer), DTL_ERROR_BUSY);
    two.win_busy = 0;
    CHECK_OK(dtl_win_flush_local(win, 0));
    CHECK_OK(dtl_comm_deregister(alone, buffer));
    CHECK_OK(dtl_win_unlock_all(win));
    CHECK_OK(dtl_win_destroy(win));
    CHECK_OK(dtl_comm_destroy(alone));
    CHECK(two.registers == two.deregisters);
}

/* ---- memory through which messages are staged ------------------------------------------------------ */

enum { PINS = 8 };
static struct {
    char* base;
    uint64_t size;
} pins[PINS];
static int pinned, unpinned, pinned_copies;
static dtl_status_t no_pin, no_unpin;

static dtl_status_t pin(void* self, void* ptr, uint64_t size) {
    (void)self;
    if (no_pin != DTL_SUCCESS) return no_pin;
    CHECK(pinned < PINS);
    pins[pinned].base = (char*)ptr, pins[pinned].size = size, pinned++;
    return DTL_SUCCESS;
}

static dtl_status_t unpin(void* self, void* ptr, uint64_t size) {
    int i = 0;
    (void)self;
    if (no_unpin != DTL_SUCCESS) return no_unpin;
    while (i < pinned && (pins[i].base != ptr || pins[i].size != size)) i++;
    CHECK(i < pinned);
    pins[i].size = 0, unpinned++;
    return DTL_SUCCESS;
}

static dtl_status_t pin_copy(void* self, void* dst, dtl_enum_word_t dst_kind, const void* src, dtl_enum_word_t src_kind, uint64_t size) {
    const char* here = far_is(dst) ? (const char*)src : (const char*)dst;
    int i;
    for (i = 0; i < pinned; i++) pinned_copies += here >= pins[i].base && here + size <= pins[i].base + pins[i].size;
    return far_copy(self, dst, dst_kind, src, src_kind, size);
}

static void staging_memory_is_registered(void) {
    struct far_tables tables;
    const dtl_backend_t other = away;
    unsigned char *out, *in;
    far_fill(&tables);
    tables.memory.register_host = pin, tables.memory.unregister_host = unpin, tables.transfer.copy = pin_copy;
    CHECK_OK(dtl_backend_register("pinning", &tables.main, &far_self, 0, &away));
    out = device(BYTES), in = device(BYTES);
    begin(DTL_COMM_STAGE);
    CHECK(moved(out, in, BYTES, BYTES) == 2 && pinned == 2 && pinned_copies == 2);
    CHECK(moved(out, in, BYTES, BYTES) == 2 && pinned == 2 && pinned_copies == 4);
    no_unpin = DTL_ERROR_BACKEND; /* a warning; what stays registered is not freed, but used again */
    CHECK_OK(dtl_mem_trim(away));
    CHECK(moved(out, in, BYTES, BYTES) == 2 && pinned == 2 && pinned_copies == 6);
    no_unpin = DTL_SUCCESS;
    CHECK_OK(dtl_mem_trim(away));
    CHECK(unpinned == 2);
    no_pin = DTL_ERROR_LIMIT; /* plain memory then */
    CHECK(moved(out, in, BYTES, BYTES) == 2 && pinned == 2 && pinned_copies == 6);
    no_pin = DTL_SUCCESS;
    CHECK(moved(out, in, SMALL, SMALL) == 2 && pinned == 4 && pinned_copies == 8);
    end();
    CHECK_OK(dtl_mem_free(away, out));
    CHECK_OK(dtl_mem_free(away, in));
    CHECK_OK(dtl_backend_unregister(away));
    CHECK(unpinned == 4);
    away = other;
}

static dtl_status_t export_dmabuf(void* self, void* ptr, uint64_t size, int32_t* fd, uint64_t* offset) {
    (void)self, (void)ptr, (void)size;
    if (no_export != DTL_SUCCESS) return no_export;
    *fd = open("/dev/null", O_RDONLY | O_CLOEXEC), *offset = 77;
    return *fd < 0 ? DTL_ERROR_LIMIT : DTL_SUCCESS;
}

int main(void) {
    dtl_comm_vtable_t comm = two_table();
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    struct far_tables tables;
    dtl_backend_t backend;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_backend_get("host", &host));
    two_far = &far_self;
    far_fill(&tables);
    tables.memory.export_dmabuf = export_dmabuf;
    CHECK_OK(dtl_backend_register("away", &tables.main, &far_self, 0, &away));
    table.comm = &comm;
    comm.mem_deregister = NULL;
    CHECK_STATUS(dtl_backend_register("two", &table, NULL, 0, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("mem_deregister");
    comm.mem_deregister = two_deregister;
    CHECK_OK(dtl_backend_register("two", &table, NULL, 0, &backend));
    comm.coll_supports = two_coll_supports, comm.coll_start = two_coll_start;
    CHECK_OK(dtl_backend_register("coll", &table, NULL, 0, &backend));
    messages_are_direct();
    a_free_ends_the_registration();
    the_rest_is_staged();
    a_dmabuf_is_exported();
    no_room_evicts();
    canceled_and_dead();
    collectives_are_direct();
    destroyed_meanwhile();
    revoked_meanwhile();
    buffers_are_registered();
    far_is_registered_or_an_error();
    one_sided_operations_use_buffers();
    staging_memory_is_registered();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
