/* Large messages of device memory over kind rdma, as they are: memory of a backend in C that lies in files of memory, which it gives
 * as dma-bufs, and that the host cannot touch at its pointers. Over the verbs provider that is none, whose registrations are
 * counted; the backend's copies are.
 *
 *     program direct | cuda | missing (under dtlrun, two ranks) */
#include "comm_kinds.h"
#include "far.h"
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, EAGER = 8160, BEFORE = 192, ROOM = MIB + 64, PLACES = 8, GUARD = 0x5A };

/* A place of its own for each allocation, so that the next one is where the last one was. */
static struct place {
    int fd;
    size_t bytes;
} places[PLACES];
static struct far far_self, blind_self;
static dtl_status_t no_export;
static int exports;
static dtl_backend_t away, blind, host;
static dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
static dtl_comm_t comm;
static uint64_t (*counter)(const char *name);
static void (*fault)(const char *text);

static char *place_at(int index) { return (char *)(UINT64_C(0x200000000000) + ((uint64_t)index << 24)); }

static dtl_status_t alloc(void *self, uint64_t size, uint64_t align, dtl_enum_word_t wanted, void **out) {
    int i = 0;
    (void)self, (void)align;
    if (wanted != DTL_MEMORY_DEVICE) return DTL_ERROR_NOT_SUPPORTED;
    while (i < PLACES && places[i].bytes != 0) i++;
    CHECK(i < PLACES);
    places[i].bytes = BEFORE + (size_t)size;
    places[i].fd = memfd_create("device", MFD_CLOEXEC);
    CHECK(places[i].fd >= 0 && ftruncate(places[i].fd, (off_t)places[i].bytes) == 0);
    CHECK(mmap(place_at(i), places[i].bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, places[i].fd, 0) == place_at(i));
    *out = (void *)((uintptr_t)(place_at(i) + BEFORE) | FAR_SHIFT);
    return DTL_SUCCESS;
}

static struct place *place_of(const void *pointer) {
    return &places[((uint64_t)(uintptr_t)far_real(pointer) - UINT64_C(0x200000000000)) >> 24];
}

static dtl_status_t give_back(void *self, void *ptr, uint64_t size, uint64_t align, dtl_enum_word_t wanted) {
    struct place *place = place_of(ptr);
    (void)self, (void)size, (void)align, (void)wanted;
    CHECK(munmap(far_real(ptr) - BEFORE, place->bytes) == 0 && close(place->fd) == 0);
    place->bytes = 0;
    return DTL_SUCCESS;
}

static dtl_status_t export_dmabuf(void *self, void *ptr, uint64_t size, int32_t *fd, uint64_t *offset) {
    struct place *place = place_of(ptr);
    (void)self;
    exports++;
    if (no_export != DTL_SUCCESS) {
        DTL_IGNORE(dtl_backend_set_error("the driver has no dma-bufs"));
        return no_export;
    }
    *offset = (uint64_t)(far_real(ptr) - place_at((int)(place - places)));
    CHECK(*offset + size <= place->bytes);
    *fd = dup(place->fd);
    return *fd < 0 ? DTL_ERROR_LIMIT : DTL_SUCCESS;
}

static unsigned char *device(dtl_backend_t backend, uint64_t size) {
    void *memory;
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, size, 0, &memory));
    return (unsigned char *)memory;
}

static dtl_comm_t open_rdma(uint32_t flags) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t out;
    void *library;
    desc.kind = "rdma", desc.rdma = &config, desc.flags = flags, desc.timeout_ns = MILLISECONDS(60000);
    CHECK_OK(dtl_comm_open(&desc, &out));
    library = dlopen(getenv("DTL_RDMA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    *(void **)&counter = dlsym(library, "fake_verbs_counter");
    *(void **)&fault = dlsym(library, "fake_verbs_fault");
    CHECK(counter != NULL && fault != NULL);
    return out;
}

static void begin(void) {
    struct far_tables tables;
    far_fill(&tables);
    tables.memory.alloc = alloc, tables.memory.free = give_back, tables.memory.export_dmabuf = export_dmabuf;
    CHECK_OK(dtl_backend_register("away", &tables.main, &far_self, 0, &away));
    blind = far_register("blind", &blind_self); /* without dma-bufs */
    CHECK_OK(dtl_backend_get("host", &host));
}

static int other(void) { return 1 - me; }

/* What a side's memory is. */
enum sort { DIRECT, OURS, PLAIN, BLIND, SORTS };
static unsigned char *outs[SORTS], *ins[SORTS], *scratch;

static void put(enum sort sort, unsigned char *to, const unsigned char *from, uint64_t size) {
    if (sort == DIRECT || sort == BLIND) CHECK_OK(dtl_mem_copy(to, from, size));
    else memcpy(to, from, size);
}

static void get(enum sort sort, unsigned char *to, const unsigned char *from, uint64_t size) {
    if (sort == DIRECT || sort == BLIND) CHECK_OK(dtl_mem_copy(to, from, size));
    else memcpy(to, from, size);
}

static void make_buffers(void) {
    void *memory[2];
    int i;
    for (i = 0; i < 2; i++) CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_HOST, ROOM, 0, &memory[i]));
    outs[DIRECT] = device(away, ROOM), ins[DIRECT] = device(away, ROOM);
    outs[OURS] = (unsigned char *)memory[0], ins[OURS] = (unsigned char *)memory[1];
    outs[PLAIN] = (unsigned char *)malloc(ROOM), ins[PLAIN] = (unsigned char *)malloc(ROOM);
    outs[BLIND] = device(blind, ROOM), ins[BLIND] = device(blind, ROOM);
    scratch = (unsigned char *)malloc(ROOM);
    CHECK(outs[PLAIN] != NULL && ins[PLAIN] != NULL && scratch != NULL);
}

static void drop_buffers(void) {
    CHECK_OK(dtl_mem_free(away, outs[DIRECT]));
    CHECK_OK(dtl_mem_free(away, ins[DIRECT]));
    CHECK_OK(dtl_mem_free(host, outs[OURS]));
    CHECK_OK(dtl_mem_free(host, ins[OURS]));
    CHECK_OK(dtl_mem_free(blind, outs[BLIND]));
    CHECK_OK(dtl_mem_free(blind, ins[BLIND]));
    free(outs[PLAIN]), free(ins[PLAIN]), free(scratch);
}

/* Both ranks send so many bytes of this sort and receive into that, at offsets; how the calls are made: `how`. */
static void exchange(uint64_t size, enum sort out, enum sort in, int shift, int how) {
    dtl_request_t requests[2];
    dtl_recv_info_t info;
    dtl_message_t message;
    unsigned char *from = outs[out] + shift, *into = ins[in] + 2 * shift;
    int turn;
    memset(&info, 0, sizeof info);
    fill(scratch, size, me + (int)size);
    put(out, from, scratch, size);
    memset(scratch, GUARD, ROOM);
    put(in, ins[in], scratch, ROOM);
    CHECK_OK(dtl_comm_barrier(comm));
    far_self.copies = 0;
    if (how == 1) {
        CHECK_OK(dtl_comm_sendrecv(comm, from, size, other(), 7, into, size + 5, other(), 7, DTL_DTYPE_BYTE, &info));
    } else if (how == 2) {
        CHECK_OK(dtl_comm_send_init(comm, from, size, DTL_DTYPE_BYTE, other(), 7, &requests[0]));
        CHECK_OK(dtl_comm_recv_init(comm, into, size + 5, DTL_DTYPE_BYTE, DTL_ANY_SOURCE, 7, &requests[1]));
        for (turn = 0; turn < 2; turn++) {
            CHECK_OK(dtl_request_start(requests[1]));
            CHECK_OK(dtl_request_start(requests[0]));
            CHECK_OK(dtl_request_wait(requests[1], MILLISECONDS(60000), &info));
            CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
        }
        CHECK_OK(dtl_request_destroy(requests[0]));
        CHECK_OK(dtl_request_destroy(requests[1]));
    } else if (how == 3) {
        CHECK_OK(dtl_comm_isend(comm, from, size, DTL_DTYPE_BYTE, other(), 7, &requests[0]));
        CHECK_OK(dtl_comm_mprobe(comm, DTL_ANY_SOURCE, DTL_ANY_TAG, &message, &info));
        CHECK_OK(dtl_comm_mrecv(message, into, size + 5, DTL_DTYPE_BYTE, &info));
        CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
    } else {
        CHECK_OK(dtl_comm_irecv(comm, into, size + 5, DTL_DTYPE_BYTE, other(), 7, &requests[1]));
        CHECK_OK(dtl_comm_issend(comm, from, size, DTL_DTYPE_BYTE, other(), 7, &requests[0]));
        CHECK_OK(dtl_request_wait(requests[1], MILLISECONDS(60000), &info));
        CHECK_OK(dtl_request_wait(requests[0], MILLISECONDS(60000), NULL));
    }
    CHECK(info.size_bytes == size && info.source == other() && info.status == DTL_SUCCESS);
    turn = far_self.copies;
    get(in, scratch, ins[in], ROOM);
    CHECK(is_all(scratch, 2 * (uint64_t)shift, GUARD));
    CHECK(is_filled(scratch + 2 * shift, size, other() + (int)size));
    CHECK(is_all(scratch + 2 * shift + size, ROOM - size - 2 * (uint64_t)shift, GUARD));
    far_self.copies = turn;
}

/* When the other has all, too: a connection that breaks at the very end is made anew by both. */
static void leave(void) {
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

static int is_reached(enum sort sort) { return sort == DIRECT || sort == OURS; }

/* Every memory to every other: nothing of a large message is copied where the devices reach both sides. */
static void combinations(void) {
    const uint64_t sizes[] = {EAGER - 1, EAGER, EAGER + 1, 64 << 10, MIB + 1};
    uint64_t made;
    int i, out, in, copies, is_large, is_offered; /* also what is short, of a synchronous send */
    exchange(MIB, DIRECT, DIRECT, 3, 0);
    exchange(MIB, OURS, OURS, 3, 0);
    made = counter("reg_mr");
    for (out = 0; out < SORTS; out++) {
        for (in = 0; in < SORTS; in++) {
            for (i = 0; i < 5; i++) {
                exchange(sizes[i], (enum sort)out, (enum sort)in, i, i % 2);
                is_large = sizes[i] > EAGER;
                is_offered = is_large || (out == OURS && i % 2 == 0);
                copies = (out == DIRECT && !(is_large && is_reached((enum sort)in))) +
                         (in == DIRECT && !(sizes[i] + 5 > EAGER && is_offered && is_reached((enum sort)out)));
                if (far_self.copies != copies)
                    fprintf(stderr, "%d to %d, %d bytes: %d copies\n", out, in, (int)sizes[i], far_self.copies);
                CHECK(far_self.copies == copies);
            }
        }
    }
    for (i = 0; i < 10; i++) {
        exchange(300000, DIRECT, DIRECT, 1, 2);
        CHECK(far_self.copies == 0);
    }
    exchange(300000, DIRECT, DIRECT, 1, 3); /* a probed message is received through the host's memory */
    CHECK(far_self.copies == 2);
    CHECK(counter("reg_mr") == made && exports == 2);
}

/* Memory of the program that it has registered: nothing is copied on the other side. */
static void registered(void) {
    const int rails = config.rails == 2 ? 2 : 1;
    const uint64_t before = counter("mrs");
    dtl_request_t request;
    dtl_comm_t copy;
    CHECK_OK(dtl_comm_register(comm, outs[PLAIN], ROOM));
    CHECK_OK(dtl_comm_register(comm, ins[PLAIN], ROOM));
    CHECK(counter("mrs") == before + (uint64_t)(2 * rails));
    exchange(MIB, PLAIN, DIRECT, 3, 0);
    CHECK(far_self.copies == 0);
    exchange(MIB, DIRECT, PLAIN, 3, 1);
    CHECK(far_self.copies == 0);
    CHECK_OK(dtl_comm_irecv(comm, ins[PLAIN] + 8, MIB, DTL_DTYPE_BYTE, other(), 3, &request));
    CHECK_STATUS(dtl_comm_deregister(comm, ins[PLAIN]), DTL_ERROR_BUSY);
    CHECK_OK(dtl_comm_deregister(comm, outs[PLAIN]));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_deregister(comm, ins[PLAIN]));
    CHECK(counter("mrs") == before);
    exchange(MIB, PLAIN, DIRECT, 3, 0);
    CHECK(far_self.copies == 1);
    CHECK_OK(dtl_comm_dup(comm, &copy));
    CHECK_OK(dtl_comm_register(copy, outs[PLAIN], ROOM));
    CHECK(counter("mrs") == before + (uint64_t)rails);
    CHECK_OK(dtl_comm_destroy(copy)); /* deregisters what is left */
    CHECK(counter("mrs") == before);
}

/* What fits is there, and no more; a short buffer is the host's; to itself. */
static void cuts(void) {
    const uint64_t rooms[] = {5000, 300000};
    dtl_recv_info_t info;
    dtl_request_t request;
    dtl_event_t event;
    int i;
    memset(&info, 0, sizeof info);
    for (i = 0; i < 2; i++) {
        memset(scratch, GUARD, ROOM);
        put(DIRECT, ins[DIRECT], scratch, ROOM);
        fill(scratch, MIB, 9);
        put(DIRECT, outs[DIRECT], scratch, MIB);
        CHECK_OK(dtl_comm_isend(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, other(), 1, &request));
        CHECK_STATUS(dtl_comm_recv(comm, ins[DIRECT] + 8, rooms[i], DTL_DTYPE_BYTE, other(), 1, &info), DTL_ERROR_TRUNCATED);
        CHECK(info.size_bytes == MIB);
        CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
        get(DIRECT, scratch, ins[DIRECT], ROOM);
        CHECK(is_all(scratch, 8, GUARD) && is_filled(scratch + 8, rooms[i], 9));
        CHECK(is_all(scratch + 8 + rooms[i], ROOM - 8 - rooms[i], GUARD));
    }
    CHECK_OK(dtl_comm_isend(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, me, 2, &request));
    CHECK_OK(dtl_comm_recv(comm, ins[DIRECT], MIB, DTL_DTYPE_BYTE, me, 2, NULL));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    get(DIRECT, scratch, ins[DIRECT], MIB);
    CHECK(is_filled(scratch, MIB, 9));
    CHECK_OK(dtl_comm_irecv(comm, ins[DIRECT], MIB, DTL_DTYPE_BYTE, other(), 3, &request));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
    CHECK_OK(dtl_comm_isend(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, other(), 4, &request));
    CHECK_OK(dtl_request_cancel(request));
    CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_CANCELED);
    exchange(MIB, DIRECT, DIRECT, 0, 0); /* nothing is left of that */
    CHECK(far_self.copies == 0);
    CHECK_OK(dtl_event_create(away, 0, &event)); /* never recorded: it begins */
    CHECK_OK(dtl_comm_isend_on(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, other(), 5, event, &request));
    CHECK_OK(dtl_comm_recv(comm, ins[DIRECT], MIB, DTL_DTYPE_BYTE, other(), 5, NULL));
    CHECK_OK(dtl_request_wait(request, MILLISECONDS(60000), NULL));
    CHECK_OK(dtl_event_destroy(event));
    CHECK(far_self.copies == 0);
}

/* A copy that was not expected fails: of a send nothing has gone, and its receive gets the next one; of a receive it is its own. */
static void bad_copies(void) {
    dtl_request_t request;
    far_self.text = "the bus is on fire";
    CHECK_OK(dtl_comm_barrier(comm));
    if (me == 0) {
        far_self.failure = DTL_ERROR_MEMORY, far_self.good_copies = 0;
        CHECK_STATUS(dtl_comm_send(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, 1, 1), DTL_ERROR_MEMORY);
        CHECK_TEXT("the bus is on fire");
        CHECK_OK(dtl_comm_isend(comm, outs[DIRECT], MIB, DTL_DTYPE_BYTE, 1, 1, &request));
        CHECK_STATUS(dtl_request_wait(request, MILLISECONDS(60000), NULL), DTL_ERROR_MEMORY);
        far_self.failure = DTL_SUCCESS;
        fill(outs[PLAIN], MIB, 4);
        CHECK_OK(dtl_comm_send(comm, outs[PLAIN], MIB, DTL_DTYPE_BYTE, 1, 1));
    } else {
        CHECK_OK(dtl_comm_recv(comm, ins[PLAIN], MIB, DTL_DTYPE_BYTE, 0, 1, NULL));
        CHECK(is_filled(ins[PLAIN], MIB, 4));
    }
    if (me == 0) {
        CHECK_OK(dtl_comm_send(comm, outs[PLAIN], MIB, DTL_DTYPE_BYTE, 1, 1));
    } else {
        far_self.failure = DTL_ERROR_MEMORY, far_self.good_copies = 0;
        CHECK_STATUS(dtl_comm_recv(comm, ins[DIRECT], MIB, DTL_DTYPE_BYTE, 0, 1, NULL), DTL_ERROR_MEMORY);
        CHECK_TEXT("the bus is on fire");
        far_self.failure = DTL_SUCCESS;
    }
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    CHECK(far_self.copies == 0);
}

/* An allocation that goes takes its registration with it, at once; the next one at its address has its own. */
static void same_address(void) {
    unsigned char *first = NULL, *kept = outs[DIRECT];
    const uint64_t mrs = counter("mrs"), made = counter("reg_mr");
    const int rails = config.rails == 2 ? 2 : 1;
    int i;
    for (i = 0; i < 3; i++) {
        outs[DIRECT] = device(away, ROOM - (uint64_t)i * 16);
        CHECK(first == NULL || first == outs[DIRECT]);
        first = outs[DIRECT];
        exchange(500000 + (uint64_t)i, DIRECT, DIRECT, 0, i);
        CHECK(far_self.copies == 0 && counter("mrs") == mrs + (uint64_t)rails && counter("reg_mr") == made + (uint64_t)(rails * (i + 1)));
        CHECK_OK(dtl_mem_free(away, outs[DIRECT]));
        CHECK(counter("mrs") == mrs);
    }
    outs[DIRECT] = kept;
    CHECK_OK(dtl_comm_barrier(comm));
}

/* More than may stay registered: what is in use does, and never more. */
static void bound(void) {
    unsigned char *many[4], *kept = outs[DIRECT];
    const uint64_t before = counter("bytes");
    int i;
    leave();
    config.cache_bytes = 3 * MIB;
    comm = open_rdma(0);
    for (i = 0; i < 4; i++) many[i] = device(away, ROOM);
    for (i = 0; i < 12; i++) {
        outs[DIRECT] = many[i % 4];
        exchange(MIB, DIRECT, DIRECT, 0, 0);
        CHECK(far_self.copies == 0);
    }
    CHECK(counter("bytes") <= before + 2 * (3 * MIB + 4 * MIB));
    for (i = 0; i < 4; i++) CHECK_OK(dtl_mem_free(away, many[i]));
    outs[DIRECT] = kept;
    leave();
    config.cache_bytes = 0;
    comm = open_rdma(0);
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    CHECK(far_self.copies == 2);
    config.cache_bytes = -1;
}

static int explained(const char *part) {
    static char text[16384];
    uint64_t len;
    CHECK_OK(dtl_explain(text, sizeof text, &len));
    return strstr(text, part) != NULL;
}

/* A kernel or device that refuses, and a backend that has nothing to give: said, and staged. */
static void refusals(void) {
    unsigned char *kept = outs[DIRECT];
    int before;
    leave();
    comm = open_rdma(0);
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    exchange(MIB, DIRECT, BLIND, 0, 0);
    CHECK(explained("messages of away memory \"device\" over rdma: direct: messages of more than 8160 bytes"));
    CHECK(explained("messages of blind memory \"device\" over rdma: staged through host memory where an allocation cannot be registered"));
    no_export = DTL_ERROR_NOT_SUPPORTED;
    outs[DIRECT] = device(away, ROOM);
    before = exports;
    exchange(MIB, DIRECT, OURS, 0, 0);
    exchange(MIB, DIRECT, OURS, 0, 1);
    CHECK(far_self.copies == 1 && exports == before + 1); /* asked once */
    CHECK_STATUS(dtl_comm_register(comm, outs[DIRECT], ROOM), DTL_ERROR_NOT_SUPPORTED); /* and again for this call */
    CHECK(exports == before + 2);
    no_export = DTL_SUCCESS;
    CHECK_OK(dtl_comm_register(comm, outs[DIRECT], ROOM));
    exchange(MIB, DIRECT, OURS, 0, 2);
    CHECK(far_self.copies == 0 && exports == before + 3);
    CHECK_OK(dtl_comm_deregister(comm, outs[DIRECT]));
    CHECK_OK(dtl_mem_free(away, outs[DIRECT]));
    outs[DIRECT] = kept;
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    CHECK(far_self.copies == 0);
    if (me == 0) fault("reg_dmabuf_mr:0:EOPNOTSUPP");
    outs[DIRECT] = device(away, ROOM);
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    CHECK(me != 0 || far_self.copies == 1);
    if (me == 0) {
        CHECK(explained("staged through host memory, each message as a whole: 1048640 bytes of away memory cannot be registered"));
        CHECK(explained("ibv_reg_dmabuf_mr: Operation not supported"));
        CHECK_STATUS(dtl_comm_register(comm, outs[DIRECT], ROOM), DTL_ERROR_NOT_SUPPORTED);
        CHECK_TEXT("cannot be registered");
    }
    exchange(MIB, DIRECT, DIRECT, 0, 1); /* no other is asked for, either */
    CHECK(me != 0 || far_self.copies == 2);
    fault("");
    CHECK_OK(dtl_mem_free(away, outs[DIRECT]));
    outs[DIRECT] = kept;
    leave();
    comm = open_rdma(DTL_COMM_STAGE);
    exchange(MIB, DIRECT, DIRECT, 0, 0);
    CHECK(far_self.copies == 2);
}

static void direct(void) {
    dtl_mem_stats_t stats = DTL_MEM_STATS_INIT;
    const char *rails = getenv("DTL_RDMA_RAILS");
    if (rails != NULL) config.rails = atoi(rails);
    config.device_memory = DTL_RDMA_DMABUF;
    begin();
    make_buffers();
    comm = open_rdma(0);
    combinations();
    registered();
    cuts();
    bad_copies();
    looks_move_on(comm, outs[DIRECT], ins[PLAIN], MIB);
    same_address();
    bound();
    refusals();
    leave();
    CHECK(counter("mrs") == 0);
    drop_buffers();
    CHECK_OK(dtl_mem_stats(away, &stats));
    CHECK(stats.live_count == 0);
    CHECK_OK(dtl_backend_unregister(away));
    CHECK_OK(dtl_backend_unregister(blind));
}

/* CUDA's memory, of kind SHARED, by dma-bufs. By address no other backend's is registered. */
static void cuda(void) {
    unsigned char *kept;
    void *memory[2];
    uint64_t made;
    int i;
    begin();
    make_buffers();
    kept = ins[DIRECT];
    CHECK_OK(dtl_mem_free(away, outs[DIRECT]));
    CHECK_OK(dtl_backend_get("cuda", &host));
    for (i = 0; i < 2; i++) CHECK_OK(dtl_mem_alloc(host, DTL_MEMORY_SHARED, ROOM, 0, &memory[i]));
    outs[DIRECT] = (unsigned char *)memory[0], ins[DIRECT] = (unsigned char *)memory[1];
    config.device_memory = DTL_RDMA_DMABUF;
    comm = open_rdma(0);
    exchange(MIB, OURS, OURS, 1, 0);
    made = counter("reg_mr");
    for (i = 0; i < 4; i++) exchange(MIB + 1, DIRECT, DIRECT, 3, i % 3);
    CHECK(counter("reg_mr") == made + 2);
    CHECK(explained("messages of cuda memory") && explained(" over rdma: direct: messages of more than 8160 bytes"));
    leave();
    config.device_memory = DTL_RDMA_PEERMEM;
    comm = open_rdma(0);
    exchange(MIB, OURS, OURS, 1, 0);
    ins[DIRECT] = kept;
    made = counter("reg_mr"), exports = 0;
    exchange(MIB, BLIND, DIRECT, 0, 0);
    CHECK(counter("reg_mr") == made && exports == 0 && far_self.copies == 1);
    leave();
    for (i = 0; i < 2; i++) CHECK_OK(dtl_mem_free(host, memory[i]));
    CHECK_OK(dtl_backend_get("host", &host));
    outs[DIRECT] = device(away, ROOM);
    drop_buffers();
}

/* A library that is too old: refused when it is opened. */
static void missing(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    config.device_memory = DTL_RDMA_DMABUF;
    desc.kind = "rdma", desc.rdma = &config, desc.timeout_ns = MILLISECONDS(60000);
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("has no ibv_reg_dmabuf_mr: use rdma-core 34 or newer, or DTL_RDMA_STAGED");
    config.device_memory = DTL_RDMA_PEERMEM; /* needs nothing of the library */
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

int main(int argc, char **argv) {
    const char *library = getenv("DTL_RDMA_LIBRARY");
    if (library == NULL || access(library, R_OK) != 0) SKIP("no verbs for tests in DTL_RDMA_LIBRARY");
    start(argc, argv);
    setenv("DTL_FAKE_VERBS_DMABUF", "1", 1);
    if (strcmp(kind, "missing") == 0) missing();
    else if (strcmp(kind, "cuda") == 0) cuda();
    else direct();
    finish();
    return 0;
}
