/* The variables, faults, and counters (fake_verbs.c describes them). */
#include "fake_verbs.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>

settings_t settings;
counters_t counters;

enum { MOST_FAULTS = 32 };
typedef struct planned {
    char name[32];
    uint64_t at; /* 0: each */
    bool each;   /* from then on */
    bool every;  /* all those that it divides */
    bool has_value;
    long value; /* errno, status or milliseconds */
    _Atomic uint64_t count;
} planned_t;
static planned_t planned[MOST_FAULTS];
static _Atomic int plans;

static const struct name {
    const char* name;
    long value;
} names[] = {
    {"EPERM", EPERM}, {"ENOENT", ENOENT}, {"EIO", EIO}, {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM}, {"EACCES", EACCES}, {"EFAULT", EFAULT},
    {"EBUSY", EBUSY}, {"ENODEV", ENODEV}, {"EINVAL", EINVAL}, {"EMFILE", EMFILE}, {"ENOSPC", ENOSPC}, {"ENOSYS", ENOSYS},
    {"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT}, {"EINTR", EINTR}, {"EPROTO", EPROTO},
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR}, {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR}, {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},
    {"WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR}, {"BAD_RESP_ERR", IBV_WC_BAD_RESP_ERR}, {"LOC_ACCESS_ERR", IBV_WC_LOC_ACCESS_ERR},
    {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR}, {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR}, {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR}, {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR}, {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},
    {"FATAL_ERR", IBV_WC_FATAL_ERR}, {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR}, {"GENERAL_ERR", IBV_WC_GENERAL_ERR},
};

static void wrong(const char* text) {
    fprintf(stderr, "fake_verbs: DTL_FAKE_VERBS_FAULT: \"%s\" is none\n", text);
    _exit(65);
}

static long value_of(const char* text) {
    if (!strncmp(text, "IBV_WC_", 7)) text += 7;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, text)) return names[i].value;
    char* end;
    long value = strtol(text, &end, 0);
    if (end == text || *end) wrong(text);
    return value;
}

/* FUNCTION:n[+|%][:value][@R] */
static void plan(char* text) {
    char* rank = strchr(text, '@');
    const char* own_rank = getenv("DTL_RANK");
    if (rank) {
        *rank++ = 0;
        while (*rank && !isdigit((unsigned char)*rank)) rank++;
        if (atoi(rank) != (own_rank && *own_rank ? atoi(own_rank) : 0)) return;
    }
    char* at = strchr(text, ':');
    if (!at || plans == MOST_FAULTS) wrong(text);
    *at++ = 0;
    char* value = strchr(at, ':');
    if (value) *value++ = 0;
    char* end;
    planned_t* p = &planned[plans];
    memset(p, 0, sizeof *p);
    p->at = strtoull(at, &end, 10);
    p->each = p->at == 0 || *end == '+';
    p->every = p->at > 0 && *end == '%';
    if (end == at || (*end && strcmp(end, "+") && strcmp(end, "%"))) wrong(at);
    snprintf(p->name, sizeof p->name, "%s", !strcmp(text, "req_notify_cq") ? "req_notify" : text);
    p->has_value = value != NULL;
    p->value = value ? value_of(value) : 0;
    plans++;
}

static void read_faults(const char* text) {
    char copy[1024], *rest = copy;
    plans = 0;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char* one; (one = strsep(&rest, ",;"));)
        if (*one) plan(one);
}

static uint64_t number(const char* variable, uint64_t otherwise) {
    const char* text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void read_all(void) {
    const char* devices = getenv("DTL_FAKE_VERBS_DEVICES");
    const char* link = getenv("DTL_FAKE_VERBS_LINK");
    const char* port = getenv("DTL_FAKE_VERBS_PORT");
    uint64_t count = number("DTL_FAKE_VERBS_DEVICES", 2), bytes = number("DTL_FAKE_VERBS_INLINE", 64);
    settings.devices = devices && !strcmp(devices, "empty") ? -1 : (int)(count < MOST_DEVICES ? count : MOST_DEVICES);
    settings.inline_bytes = (uint32_t)(bytes < MOST_INLINE ? bytes : MOST_INLINE);
    settings.retry_ms = (uint32_t)number("DTL_FAKE_VERBS_RETRY_MS", 20);
    settings.memlock = number("DTL_FAKE_VERBS_MEMLOCK", 0);
    settings.most_wr = (uint32_t)number("DTL_FAKE_VERBS_WR", MOST_WR);
    settings.seed = number("DTL_FAKE_VERBS_SEED", 0);
    settings.has_dmabuf = number("DTL_FAKE_VERBS_DMABUF", 0);
    settings.has_no_atomics = number("DTL_FAKE_VERBS_ATOMICS", 1) == 0;
    settings.is_infiniband = link && !strcmp(link, "ib");
    settings.starts_down = port && !strcmp(port, "down");
    read_faults(getenv("DTL_FAKE_VERBS_FAULT"));
}

void read_settings(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_all);
}

static bool is_now(planned_t* p) {
    uint64_t count = ++p->count;
    return count == p->at || (p->each && count >= p->at) || (p->every && count % p->at == 0);
}

int fault(const char* function) {
    for (int i = 0; i < plans; i++)
        if (!strcmp(planned[i].name, function) && is_now(&planned[i])) return planned[i].has_value ? (int)planned[i].value : EIO;
    return 0;
}

void install_faults(void) {
    static const char* const kinds[COMPLETION_FAULTS] = {"send", "write", "read", "atomic", "recv", "answer"};
    for (int kind = 0; kind < COMPLETION_FAULTS; kind++) {
        completion_fault_t* f = &own.fabric->processes[own.me].faults[kind];
        memset(f, 0, sizeof *f);
        for (int i = 0; i < plans; i++) {
            if (strcmp(planned[i].name, kinds[kind])) continue;
            *f = (completion_fault_t){.at = planned[i].at, .each = planned[i].each, .every = planned[i].every,
                                      .status = planned[i].has_value ? (uint32_t)planned[i].value : IBV_WC_GENERAL_ERR};
        }
    }
}

static void kill_device(uint32_t device) {
    fabric_t* f = own.fabric;
    for (uint32_t i = 0; i < MOST_CONTEXTS; i++) {
        context_t* c = &f->contexts[i];
        if (!c->is_used || c->owner != own.me || c->device != device) continue;
        c->is_fatal = 1;
        async_event(i, IBV_EVENT_DEVICE_FATAL, 0);
    }
    for (uint32_t i = 0; i < ALL_QPS; i++)
        if (f->qps[i].is_used && f->qps[i].owner == own.me && f->qps[i].device == device) to_error(i);
}

static void happen(const planned_t* p, uint32_t index) {
    fabric_t* f = own.fabric;
    qp_t* q = &f->qps[index];
    uint64_t now = nanoseconds(), until = p->has_value ? now + (uint64_t)p->value * 1000000 : 0;
    if (!strncmp(p->name, "death", 5)) {
        if (!strcmp(p->name, "death")) unlock_fabric();
        kill(getpid(), SIGKILL);
        for (;;) pause();
    } else if (!strcmp(p->name, "cut")) {
        f->processes[own.me].heal_at = until;
        f->processes[own.me].cut_at = now;
    } else if (!strcmp(p->name, "port_down")) {
        f->port_down[q->device] = 1;
        f->port_up_at[q->device] = until;
        device_event(q->device, IBV_EVENT_PORT_ERR);
        wake_engine(own.me);
    } else if (!strcmp(p->name, "stuck")) {
        q->stuck = p->has_value ? UINT64_MAX : q->sent + 1;
    } else if (!strcmp(p->name, "device_fatal")) {
        kill_device(q->device);
    } else {
        async_event(q->context, IBV_EVENT_QP_FATAL, index);
        to_error(index);
    }
}

void work_requested(uint32_t qp) {
    static const char* const kinds[] = {"death", "death_locked", "cut", "port_down", "device_fatal", "qp_fatal", "stuck"};
    for (int i = 0; i < plans; i++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            if (strcmp(planned[i].name, kinds[k]) || !is_now(&planned[i])) continue;
            lock_fabric();
            happen(&planned[i], qp);
            unlock_fabric();
        }
    }
}

void grow(_Atomic uint64_t* now, _Atomic uint64_t* most, uint64_t by) {
    uint64_t value = atomic_fetch_add(now, by) + by, seen = most ? *most : UINT64_MAX;
    while (most && seen < value && !atomic_compare_exchange_weak(most, &seen, value)) continue;
}

/* For a test in the same process, by dlsym. */
API uint64_t fake_verbs_counter(const char* name) {
#define AS_ANSWER(field)                                                                                                       \
    if (!strcmp(name, #field)) return counters.field;
    COUNTERS(AS_ANSWER)
    return UINT64_MAX;
}

API void fake_verbs_fault(const char* text) {
    if (join_fabric()) return;
    lock_fabric();
    read_faults(text);
    own.fabric->processes[own.me].cut_at = 0;
    install_faults();
    unlock_fabric();
}

static void report(void) {
    const char* path = getenv("DTL_FAKE_VERBS_REPORT");
    const char* rank = getenv("DTL_RANK");
    if (!path || !*path) return;
    char line[2048];
    int used = snprintf(line, sizeof line, "rank=%s pid=%d", rank && *rank ? rank : "0", getpid());
#define AS_TEXT(field) used += snprintf(line + used, sizeof line - (size_t)used, " " #field "=%llu", (unsigned long long)counters.field);
    COUNTERS(AS_TEXT)
    line[used++] = '\n';
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)used) != used) fprintf(stderr, "fake_verbs: %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
}

__attribute__((destructor)) static void at_end(void) {
    if (!own.fabric) return;
    uint64_t alive = counters.contexts + counters.pds + counters.mrs + counters.channels + counters.cqs + counters.qps;
    pthread_mutex_lock(&own.lock);
    end_engine();
    pthread_mutex_unlock(&own.lock);
    report();
    leave_fabric(alive > 0);
    if (!alive || !number("DTL_FAKE_VERBS_LEAKS", 0)) return;
    fprintf(stderr, "fake_verbs: left alive: %llu contexts, %llu PDs, %llu MRs (%llu bytes), %llu channels, %llu CQs, %llu QPs\n",
            (unsigned long long)counters.contexts, (unsigned long long)counters.pds, (unsigned long long)counters.mrs,
            (unsigned long long)counters.bytes, (unsigned long long)counters.channels, (unsigned long long)counters.cqs,
            (unsigned long long)counters.qps);
    fflush(NULL);
    _exit(66);
}
