/* How kind "rdma" is opened: dtl_rdma_config_t and its variables, which ports are taken, and what is said where there is none. One
 * rank, over verbs that are none (tests/rdma), which DTL_RDMA_LIBRARY names. Each scene is a process: those verbs read their
 * variables once. */
#include "comm_kinds.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Null: ranks and job from the description. */
static dtl_comm_t meet_over;

static dtl_status_t open_one(const dtl_rdma_config_t* config, dtl_comm_t* out) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char job[64];
    snprintf(job, sizeof job, "rdma-config-%ld", (long)getpid());
    desc.kind = "rdma", desc.rdma = config, desc.over = meet_over;
    if (meet_over.id == 0) desc.size = 1, desc.job = job;
    desc.timeout_ns = MILLISECONDS(60000);
    return dtl_comm_open(&desc, out);
}

static void refused(const dtl_rdma_config_t* config, dtl_status_t status, const char* text) {
    dtl_comm_t comm = {77};
    CHECK_STATUS(open_one(config, &comm), status);
    if (strstr(dtl_last_error(), text) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, dtl_last_error());
        exit(1);
    }
    CHECK(comm.id == 77);
}

/* Opens with what is given, and looks for a text in what dtl_comm_info says of the way. */
static void opens(const dtl_rdma_config_t* config, const char* text) {
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_comm_t comm;
    int32_t sum = 5;
    CHECK_OK(open_one(config, &comm));
    CHECK_OK(dtl_comm_info(comm, &info));
    if (strcmp(info.kind, "rdma") != 0 || strstr(info.transport, text) == NULL) {
        fprintf(stderr, "\"%s\" is not in: %s\n", text, info.transport);
        exit(1);
    }
    CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, &sum, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
    CHECK(sum == 5);
    CHECK_OK(dtl_comm_destroy(comm));
}

static void restart_with(const char* name, const char* value) {
    CHECK_OK(dtl_finalize());
    setenv(name, value, 1);
    CHECK_OK(dtl_init(NULL));
}

static void restart_without(const char* name) {
    CHECK_OK(dtl_finalize());
    unsetenv(name);
    CHECK_OK(dtl_init(NULL));
}

#define BAD(field, value, text)                                               \
    do {                                                                      \
        dtl_rdma_config_t bad = DTL_RDMA_CONFIG_INIT;                         \
        bad.field = value;                                                    \
        refused(&bad, DTL_ERROR_INVALID_ARGUMENT, "dtl_rdma_config_t." text); \
    } while (0)

static void bad_fields(void) {
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    BAD(flags, 4, "flags is 0x4: no flag is known");
    BAD(struct_size, 16, "struct_size is 16 and ends before devices");
    BAD(reserved, 4, "reserved is 0x4");
    BAD(devices, "mlx5_0:0", "devices is mlx5_0:0: use names of devices");
    BAD(devices, "fake0,fake0:1", "devices is fake0,fake0:1: use names of devices, each once");
    BAD(devices, "fake0:1,fake1,fake0:1", "devices is fake0:1,fake1,fake0:1: use names of devices, each once");
    BAD(meeting, "udp:here:7", "meeting is udp:here:7: use auto, over, mpi, shm or the name of a registered kind, file:PATH or");
    BAD(meeting, "tcp:::1:1000", "meeting is tcp:::1:1000: use auto");
    BAD(address, "10.0.0.300:1", "address is 10.0.0.300:1: use an IP address or the name of a network interface");
    BAD(rails, 0, "rails is 0: use 1 to 4");
    BAD(queues, 5, "queues is 5: use 1 to 4");
    BAD(gid_index, 256, "gid_index is 256: use 0 to 255");
    BAD(service_level, 16, "service_level is 16: use 0 to 15");
    BAD(traffic_class, -2, "traffic_class is -2: use 0 to 255");
    BAD(timeout, 0, "timeout is 0: use 1 to 31");
    BAD(retries, 8, "retries is 8: use 0 to 7");
    BAD(receiver_retries, 8, "receiver_retries is 8: use 0 to 7");
    BAD(mtu, 1500, "mtu is 1500: use 256, 512, 1024, 2048 or 4096");
    BAD(pkey_index, 65536, "pkey_index is 65536: use 0 to 65535");
    BAD(depth, 3, "depth is 3: use 4 to 4096");
    BAD(inline_bytes, 1025, "inline_bytes is 1025: use 0 to 1024");
    BAD(completion, 3, "completion is 3: use DTL_RDMA_POLL (poll), DTL_RDMA_EVENT (event)");
    BAD(rendezvous, -1, "rendezvous is -1: use DTL_RDMA_WRITE (write), DTL_RDMA_READ (read)");
    BAD(device_memory, 9, "device_memory is 9: use DTL_RDMA_STAGED (staged)");
    BAD(silence_ms, 99, "silence_ms is 99: use 100 to 600000");
    BAD(reconnect_ms, 600001, "reconnect_ms is 600001: use 0 to 600000");
    BAD(cache_bytes, -2, "cache_bytes is -2: use bytes: 0, 4096, 512M, 2G");
    config.struct_size = offsetof(dtl_rdma_config_t, reconnect_ms); /* of a program that knows no such field */
    config.reconnect_ms = 600001;
    opens(&config, "fake0:1");
    {
        struct {
            dtl_rdma_config_t config;
            uint64_t newer;
        } longer = {DTL_RDMA_CONFIG_INIT, 1};
        longer.config.struct_size = sizeof longer;
        refused(&longer.config, DTL_ERROR_INCOMPATIBLE_ABI, "dtl_rdma_config_t");
        longer.newer = 0;
        opens(&longer.config, "fake0:1");
    }
}

/* Exit status of the installed dtl-info, where the world communicator is to be of this kind. */
static void dtl_info(int status) {
    const char *dtlrun = getenv("DTL_TEST_DTLRUN"), *end;
    char command[1024];
    int code;
#ifdef __SANITIZE_ADDRESS__
    return; /* that program has no sanitizer, so it cannot load a provider that has */
#endif
    if (dtlrun == NULL || (end = strrchr(dtlrun, '/')) == NULL) return;
    snprintf(command, sizeof command, "DTL_COMM=rdma '%.*s/dtl-info' >/dev/null 2>&1", (int)(end - dtlrun), dtlrun);
    code = system(command);
    CHECK(WIFEXITED(code) && WEXITSTATUS(code) == status);
}

/* What only the devices, the machine or other backends can tell, also where one rank meets nobody. */
static void bad_here(void) {
    static const struct {
        const char *variable, *value, *text;
    } bad[] = {
        {"DTL_RDMA_ADDRESS", "192.0.2.77", "address (DTL_RDMA_ADDRESS) is \"192.0.2.77\", which is no address or interface of this machine"},
        {"DTL_RDMA_GID_INDEX", "200", "fake0: gid_index (DTL_RDMA_GID_INDEX) is 200, where port 1 has no address (GID): it has some at 0"},
        {"DTL_RDMA_GID_INDEX", "3", "gid_index (DTL_RDMA_GID_INDEX) is 3"}, /* in the table, and empty */
        {"DTL_RDMA_PKEY_INDEX", "1", "fake0: pkey_index (DTL_RDMA_PKEY_INDEX) is 1: use 0 to 0, which is what port 1 has"},
        {"DTL_RDMA_DEPTH", "4096", "fake0: depth (DTL_RDMA_DEPTH) is 4096: use 4 to 2048, which is what this device's queue pairs have"},
        {"DTL_RDMA_MEETING", "foo", "no kind \"foo\" is there for the ranks to meet over (meeting, DTL_RDMA_MEETING): use auto"},
        {"DTL_RDMA_MEETING", "over", "over the communicator that \"over\" names (meeting, DTL_RDMA_MEETING), but it names none"},
        {"DTL_RDMA_RAILS", "9", "DTL_RDMA_RAILS=9: use 1 to 4"}};
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        restart_with(bad[i].variable, bad[i].value);
        refused(NULL, DTL_ERROR_INVALID_ARGUMENT, bad[i].text);
        if (strcmp(bad[i].variable, "DTL_RDMA_MEETING") == 0 || strcmp(bad[i].variable, "DTL_RDMA_RAILS") == 0) dtl_info(1);
        restart_without(bad[i].variable);
    }
    dtl_info(0);
    restart_with("DTL_RDMA_DEVICES", "nope");
    dtl_info(1);
    restart_without("DTL_RDMA_DEVICES");
    /* Fewer ports than rails: told, and refused where nothing less will do. */
    config.rails = 3;
    opens(&config, "fake0:1, fake1:1");
    restart_with("DTL_STRICT", "1");
    refused(&config, DTL_ERROR_NOT_SUPPORTED,
            "rails (DTL_RDMA_RAILS) is 3, and the active ports are no more than fake0:1, fake1:1 (refused because DTL_STRICT=1)");
    config.rails = 2;
    opens(&config, "fake0:1, fake1:1");
    restart_without("DTL_STRICT");
}

static dtl_status_t has_no_native(void* self, const dtl_comm_open_t* args, void** comm, int32_t* rank, int32_t* size) {
    CHECK(args->config == NULL);
    ++*(int*)self;
    (void)comm, (void)rank, (void)size;
    return DTL_ERROR_COMMUNICATION;
}

static dtl_status_t no_close(void* self, void* comm) { return (void)self, (void)comm, DTL_SUCCESS; }

static dtl_status_t no_isend(void* self, void* comm, const void* data, uint64_t size, int32_t to, uint64_t word, uint64_t* op) {
    return (void)self, (void)comm, (void)data, (void)size, (void)to, (void)word, (void)op, DTL_ERROR_BUSY;
}

static dtl_status_t no_irecv(void* self, void* comm, void* data, uint64_t size, int32_t from, uint64_t word, uint64_t ignore,
                             uint64_t* op) {
    return (void)self, (void)comm, (void)data, (void)size, (void)from, (void)word, (void)ignore, (void)op, DTL_ERROR_BUSY;
}

static dtl_status_t no_test(void* self, void* comm, uint64_t op, int32_t* done, dtl_comm_done_t* result) {
    return (void)self, (void)comm, (void)op, (void)result, *done = 0, DTL_SUCCESS;
}

/* native is kind rdma's: the kind by which the ranks meet does not see it. */
static void over_a_kind(void) {
    dtl_comm_vtable_t slots = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t tables = DTL_BACKEND_VTABLE_INIT;
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_backend_t mine;
    dtl_comm_t comm;
    int opened = 0;
    slots.open = has_no_native, slots.close = no_close, slots.isend = no_isend, slots.irecv = no_irecv, slots.test = no_test;
    tables.comm = &slots;
    CHECK_OK(dtl_backend_register("mine", &tables, &opened, 0, &mine));
    config.meeting = "mine";
    desc.kind = "rdma", desc.rdma = &config, desc.size = 2;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_COMMUNICATION);
    CHECK(opened == 1);
}

/* A process that may write no files meets nobody in a folder, but lives, and leaves nothing there. */
static void no_file(void) {
    char folder[] = "/tmp/dtl-rdma-config-XXXXXX", meeting[64];
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    struct rlimit before, none;
    dtl_comm_t comm;
    opens(NULL, "fake0:1"); /* those verbs have their files */
    CHECK(mkdtemp(folder) != NULL);
    snprintf(meeting, sizeof meeting, "file:%s", folder);
    config.meeting = meeting;
    desc.kind = "rdma", desc.rdma = &config, desc.size = 2, desc.timeout_ns = MILLISECONDS(60000);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = before, none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_LIMIT);
    CHECK_TEXT("ulimit -f");
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(rmdir(folder) == 0);
    config.meeting = strcat(meeting, "/none"); /* one that is made on each node by itself would be no place to meet */
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("make it, where all ranks see it");
}

static void variables(void) {
    static const char* const bad[][3] = {
        {"DTL_RDMA_TIMEOUT", "soon", "DTL_RDMA_TIMEOUT=soon: use 1 to 31"},
        {"DTL_RDMA_MTU", "9000", "DTL_RDMA_MTU=9000: use 256"},
        {"DTL_RDMA_CACHE_BYTES", "-1", "DTL_RDMA_CACHE_BYTES=-1: use bytes"},
        {"DTL_RDMA_COMPLETION", "sleep", "DTL_RDMA_COMPLETION=sleep: use DTL_RDMA_POLL (poll)"},
        {"DTL_RDMA_MEETING", "tcp:here", "DTL_RDMA_MEETING=tcp:here: use auto"},
        {"DTL_RDMA_DEVICES", "a,,b", "DTL_RDMA_DEVICES=a,,b: use names"}};
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    size_t i;
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        restart_with(bad[i][0], bad[i][1]);
        refused(NULL, DTL_ERROR_INVALID_ARGUMENT, bad[i][2]);
        refused(&config, DTL_ERROR_INVALID_ARGUMENT, bad[i][2]);
        restart_without(bad[i][0]);
    }
    restart_with("DTL_RDMA_RENDEZVOUS", "read");
    opens(NULL, "by read");
    config.rendezvous = DTL_RDMA_WRITE; /* what the struct sets wins */
    opens(&config, "by write");
    restart_without("DTL_RDMA_RENDEZVOUS");
    /* Not asked for: it does no harm. */
    restart_with("DTL_RDMA_RAILS", "many");
    config.rails = 2;
    opens(&config, "fake0:1, fake1:1");
    restart_without("DTL_RDMA_RAILS");
}

static void devices(void) {
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    config.devices = "fake1:1";
    opens(&config, "fake1:1");
    config.devices = "fake1,fake0", config.rails = 4; /* more than there are */
    opens(&config, "fake1:1, fake0:1");
    config.devices = "fake0,mlx5_9";
    refused(&config, DTL_ERROR_UNAVAILABLE, "no RDMA port mlx5_9, which devices (DTL_RDMA_DEVICES) names; there are fake0:1");
    config.devices = "fake0:7";
    refused(&config, DTL_ERROR_UNAVAILABLE, "no RDMA port fake0:7");
    config.devices = NULL;
    restart_with("DTL_RDMA_DEVICES", "fake1");
    opens(NULL, "fake1:1");
    config.devices = "", config.rails = 1; /* set, and the default */
    opens(&config, "fake0:1");
}

static void over_another(void) {
    dtl_rdma_config_t config = DTL_RDMA_CONFIG_INIT;
    meet_over = DTL_COMM_SELF;
    opens(NULL, "fake0:1");
    config.devices = "fake1", config.meeting = "over";
    opens(&config, "fake1:1");
    config.retries = 8;
    refused(&config, DTL_ERROR_INVALID_ARGUMENT, "dtl_rdma_config_t.retries is 8");
}

static void infiniband(void) { opens(NULL, "fake0:1"); }

static void unavailable(const char* reason) {
    dtl_backend_t rdma;
    int32_t yes = 7;
    char why[600];
    CHECK_OK(dtl_backend_get("rdma", &rdma));
    CHECK_OK(dtl_backend_is_available(rdma, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strstr(why, reason) != NULL);
    refused(NULL, DTL_ERROR_UNAVAILABLE, reason);
}

static void empty_list(void) { unavailable("no RDMA device: the kernel knows of none"); }
static void no_support(void) { unavailable("no RDMA device: the kernel has no RDMA support"); }

static void ports_down(void) { unavailable("no active RDMA port: fake0:1 is down; fake1:1 is down"); }

static const struct scene {
    const char *name, *variable, *value;
    void (*play)(void);
} scenes[] = {{"bad fields", "DTL_FAKE_VERBS_DEVICES", "2", bad_fields},
              {"bad here", "DTL_FAKE_VERBS_DEVICES", "2", bad_here},
              {"no file", "DTL_FAKE_VERBS_DEVICES", "2", no_file},
              {"over a kind", "DTL_FAKE_VERBS_DEVICES", "2", over_a_kind},
              {"variables", "DTL_FAKE_VERBS_DEVICES", "2", variables},
              {"devices", "DTL_FAKE_VERBS_DEVICES", "2", devices},
              {"over another", "DTL_FAKE_VERBS_DEVICES", "2", over_another},
              {"InfiniBand", "DTL_FAKE_VERBS_LINK", "ib", infiniband},
              {"ports down", "DTL_FAKE_VERBS_PORT", "down", ports_down},
              {"an empty list", "DTL_FAKE_VERBS_DEVICES", "empty", empty_list},
              {"no support", "DTL_FAKE_VERBS_DEVICES", "0", no_support}};

int main(void) {
    const char* library = getenv("DTL_RDMA_LIBRARY");
    size_t i;
    if (library == NULL || access(library, R_OK) != 0) SKIP("no verbs for tests in DTL_RDMA_LIBRARY");
    setenv("DTL_FAKE_VERBS_LEAKS", "1", 1);
    for (i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        const pid_t child = fork();
        int code = 0;
        CHECK(child >= 0);
        if (child == 0) {
            setenv(scenes[i].variable, scenes[i].value, 1);
            CHECK_OK(dtl_init(NULL));
            scenes[i].play();
            CHECK_OK(dtl_finalize());
            exit(0);
        }
        CHECK(waitpid(child, &code, 0) == child);
        if (code != 0) {
            fprintf(stderr, "%s: ended with %#x\n", scenes[i].name, (unsigned)code);
            return 1;
        }
    }
    puts("ok");
    return 0;
}
