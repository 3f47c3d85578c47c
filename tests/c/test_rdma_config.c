/* How kind "rdma" is opened: dtl_rdma_config_t and its variables, which ports are taken, and what is said where there is none. One
 * rank, over verbs that are none (tests/rdma), which DTL_RDMA_LIBRARY names. Each scene is a process: those verbs read their
 * variables once. */
#include "comm_kinds.h"
#include <sys/wait.h>
#include <unistd.h>

/* Null: ranks and job from the description. */
static dtl_comm_t meet_over;

static dtl_status_t open_one(const dtl_rdma_config_t* config, dtl_comm_t* out) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    char job[64];
    snprintf(job, sizeof job, "rdma-config-%ld", (long)getpid());
    desc.kind = "rdma", desc.native = (void*)config, desc.over = meet_over;
    if (meet_over.id == 0) desc.size = 1, desc.job = job;
    desc.timeout_ns = MILLISECONDS(10000);
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
    BAD(struct_size, 16, "struct_size is 16: start from DTL_RDMA_CONFIG_INIT");
    BAD(devices, "mlx5_0:0", "devices is mlx5_0:0: use names of devices");
    BAD(meeting, "udp:here:7", "meeting is udp:here:7: use auto, over, mpi, shm or the name of a registered kind, file:PATH or");
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
    config.device_memory = DTL_RDMA_PEERMEM;
    refused(&config, DTL_ERROR_NOT_SUPPORTED, "peermem");
    config.device_memory = 0;
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

static void ports_down(void) {
    refused(NULL, DTL_ERROR_UNAVAILABLE, "no active RDMA port: fake0:1 is down; fake1:1 is down");
}

static void unavailable(const char* reason) {
    dtl_backend_t rdma;
    int32_t yes = 7;
    char why[600];
    CHECK_OK(dtl_backend_get("rdma", &rdma));
    CHECK_OK(dtl_backend_is_available(rdma, &yes, why, sizeof why));
    CHECK(yes == 0 && strstr(why, reason) != NULL);
    refused(NULL, DTL_ERROR_UNAVAILABLE, reason);
}

static void empty_list(void) { unavailable("no RDMA device: the kernel knows of none"); }
static void no_support(void) { unavailable("no RDMA device: the kernel has no RDMA support"); }

static const struct scene {
    const char *name, *variable, *value;
    void (*play)(void);
} scenes[] = {{"bad fields", "DTL_FAKE_VERBS_DEVICES", "2", bad_fields},
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
