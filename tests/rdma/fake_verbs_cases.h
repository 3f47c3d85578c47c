/* Cases of test_fake_verbs.c with faults, reordering, threads and other processes. */
#ifndef FAKE_VERBS_CASES_H
#define FAKE_VERBS_CASES_H

/* A fault of each function happens once; then all is well. */
static void faults(void) {
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    __be16 pkey;
    int count;
    open_both();
    work_t w = {.opcode = IBV_WR_SEND, .length = 8};
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    struct ibv_wc wc;
    fake_verbs_fault("get_device_list:1:EPERM,open_device:1:EMFILE,query_device:1,query_port:1,query_gid:1,query_gid_ex:1,"
                     "query_pkey:1");
    struct ibv_device** list = ibv_get_device_list(&count);
    CHECK(!list && errno == EPERM && (list = ibv_get_device_list(&count)));
    CHECK(!ibv_open_device(list[0]) && errno == EMFILE);
    ibv_free_device_list(list);
    CHECK(ibv_query_device(a.context, &device) == EIO && !ibv_query_device(a.context, &device));
    CHECK(ibv_query_port(a.context, 1, &port) == EIO && ibv_query_gid(a.context, 1, 1, &gid) == -1 && errno == EIO);
    CHECK(ibv_query_gid_ex(a.context, 1, 1, &entry, 0) == EIO && ibv_query_pkey(a.context, 1, 0, &pkey) == -1);
    fake_verbs_fault("alloc_pd:1:ENOMEM,reg_mr:1:ENOMEM,create_comp_channel:1:EMFILE,create_cq:1:12,create_qp:1:ENOMEM@0,"
                     "create_qp:1@rank1,modify_qp:1:ETIMEDOUT");
    CHECK(!ibv_alloc_pd(a.context) && errno == ENOMEM && !ibv_reg_mr(a.pd, a.bytes, 8, 0) && errno == ENOMEM);
    CHECK(!ibv_create_comp_channel(a.context) && errno == EMFILE && !ibv_create_cq(a.context, 8, NULL, NULL, 0) && errno == ENOMEM);
    CHECK(!ibv_create_qp(a.pd, &init) && errno == ENOMEM && ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == ETIMEDOUT);
    fake_verbs_fault("query_qp:1,post_send:2:ENOMEM,post_recv:1+:ENOMEM,req_notify_cq:1,poll_cq:1,dereg_mr:1,destroy_qp:1,"
                     "destroy_cq:1,dealloc_pd:1,close_device:1");
    CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == EIO && !post(&a, w) && post(&a, w) == ENOMEM);
    CHECK(post_recv(&b, 1, 0, 8) == ENOMEM && post_recv(&b, 1, 0, 8) == ENOMEM && ibv_req_notify_cq(a.cq, 0) == EIO);
    CHECK(ibv_poll_cq(a.cq, 1, &wc) == -1 && ibv_dereg_mr(a.mr) == EIO && ibv_destroy_qp(a.qp) == EIO && ibv_destroy_cq(a.cq) == EIO);
    CHECK(ibv_dealloc_pd(a.pd) == EIO && ibv_close_device(a.context) == -1 && errno == EIO);
    static const struct {
        const char* text;
        enum ibv_wr_opcode opcode;
        enum ibv_wc_status status, recv;
    } completions[] = {
        {"send:1:RETRY_EXC_ERR", IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR},
        {"write:1:IBV_WC_REM_OP_ERR", IBV_WR_RDMA_WRITE, IBV_WC_REM_OP_ERR, IBV_WC_WR_FLUSH_ERR},
        {"read:1", IBV_WR_RDMA_READ, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR},
        {"atomic:1:11", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_REM_OP_ERR, IBV_WC_WR_FLUSH_ERR},
        {"recv:1:LOC_ACCESS_ERR", IBV_WR_SEND, IBV_WC_REM_OP_ERR, IBV_WC_LOC_ACCESS_ERR},
        {"answer:1:RETRY_EXC_ERR", IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS}, /* it has arrived */
        {"send:1%", IBV_WR_SEND, IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR},
        {"send:2%", IBV_WR_SEND, IBV_WC_SUCCESS, IBV_WC_SUCCESS},
    };
    for (size_t i = 0; i < sizeof completions / sizeof *completions; i++) {
        fake_verbs_fault("");
        meet(&a, &b);
        fake_verbs_fault(completions[i].text);
        w.opcode = completions[i].opcode;
        CHECK(!post_recv(&b, 1, 0, 8) && ends(&a, w) == completions[i].status);
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        CHECK(!ibv_modify_qp(b.qp, &error, IBV_QP_STATE) && next(&b).status == completions[i].recv);
    }
    close_end(&a);
    close_end(&b);
}

static enum ibv_event_type event_of(end_t* e) {
    struct pollfd fd = {.fd = e->context->async_fd, .events = POLLIN};
    struct ibv_async_event event;
    CHECK(poll(&fd, 1, -1) == 1 && !ibv_get_async_event(e->context, &event));
    ibv_ack_async_event(&event);
    return event.event_type;
}

/* The link, the port, the device and the queue pair. */
static void breaks(void) {
    struct ibv_port_attr port;
    open_both();
    work_t w = {.opcode = IBV_WR_RDMA_WRITE, .length = 8};
    fake_verbs_fault("cut:2");
    CHECK(ends(&a, w) == IBV_WC_SUCCESS);
    double start = seconds();
    CHECK(ends(&a, w) == IBV_WC_RETRY_EXC_ERR && seconds() - start > 0.015);
    CHECK(ends(&b, w) == IBV_WC_RETRY_EXC_ERR);
    fake_verbs_fault("cut:1:5"); /* shorter than it is tried */
    meet(&a, &b);
    CHECK(ends(&a, w) == IBV_WC_SUCCESS);
    fake_verbs_fault("port_down:1:5");
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && event_of(&a) == IBV_EVENT_PORT_ERR && event_of(&a) == IBV_EVENT_PORT_ACTIVE);
    fake_verbs_fault("port_down:1:300");
    CHECK(ends(&a, w) == IBV_WC_RETRY_EXC_ERR && event_of(&a) == IBV_EVENT_PORT_ERR);
    CHECK(!ibv_query_port(a.context, 1, &port) && port.state == IBV_PORT_DOWN);
    CHECK(!ibv_query_port(b.context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    CHECK(event_of(&a) == IBV_EVENT_PORT_ACTIVE && !ibv_query_port(a.context, 1, &port) && port.state == IBV_PORT_ACTIVE);
    meet(&a, &b);
    fake_verbs_fault("qp_fatal:2");
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && ends(&a, w) == IBV_WC_WR_FLUSH_ERR && event_of(&a) == IBV_EVENT_QP_FATAL);
    meet(&a, &b);
    fake_verbs_fault("device_fatal:1");
    CHECK(!post_recv(&a, 5, 0, 8) && !post(&a, w));
    struct ibv_wc first = next(&a), second = next(&a);
    CHECK(first.status == IBV_WC_WR_FLUSH_ERR && second.status == IBV_WC_WR_FLUSH_ERR && event_of(&a) == IBV_EVENT_DEVICE_FATAL);
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .cap = {8, 8, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    CHECK(!ibv_create_qp(a.pd, &init) && errno == EIO && ends(&b, w) == IBV_WC_RETRY_EXC_ERR);
    close_end(&a);
    close_end(&b);
}

static void memlock(void) {
    open_end(&a, 0);
    CHECK(!ibv_reg_mr(a.pd, a.bytes, 1, 0) && errno == ENOMEM && fake_verbs_counter("bytes_most") == BYTES);
    close_end(&a);
}

/* A write behind a read may be seen by it unless it is fenced; writes come before the send behind them; completions in order. */
static void order(void) {
    uint64_t overtaken = 0, *value = NULL;
    open_both();
    value = (uint64_t*)b.bytes;
    for (uint64_t round = 1; round < 1000; round++) {
        bool is_fenced = round % 2;
        *(uint64_t*)a.bytes = *value + 1;
        uint64_t before = *value;
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_RDMA_READ, .at = 64, .length = 8, .flags = IBV_SEND_SIGNALED, .id = 1}));
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8, .flags = IBV_SEND_SIGNALED | (is_fenced ? IBV_SEND_FENCE : 0), .id = 2}));
        CHECK(next(&a).wr_id == 1 && next(&a).wr_id == 2);
        uint64_t seen = *(uint64_t*)(a.bytes + 64);
        CHECK(seen == before || (seen == before + 1 && !is_fenced));
        overtaken += seen != before;
    }
    CHECK(getenv("DTL_FAKE_VERBS_SEED") ? overtaken > 10 : overtaken == 0);
    for (uint64_t round = 1; round < 1000; round++) {
        CHECK(!post_recv(&b, round, 4096, 8));
        for (size_t i = 0; i < 7; i++) {
            ((uint64_t*)a.bytes)[i] = round;
            CHECK(!post(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .at = 8 * i, .there = 8 * i, .length = 8, .flags = IBV_SEND_INLINE}));
        }
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_SEND, .length = 8, .flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED, .id = round}));
        CHECK(next(&b).wr_id == round && value[0] == round && value[6] == round && value[512] == round && next(&a).wr_id == round);
    }
    close_end(&a);
    close_end(&b);
}

/* Nobody calls anything: the bytes come, and what waits on a descriptor is woken. */
static void asleep(void) {
    open_both();
    for (unsigned char round = 1; round < 100; round++) {
        memset(a.bytes, round, BYTES);
        size_t length = round % 10 ? 100 : BYTES;
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = (uint32_t)length, .flags = IBV_SEND_SIGNALED}));
        while (*(volatile unsigned char*)&b.bytes[length - 1] != round) usleep(20);
        CHECK(next(&a).status == IBV_WC_SUCCESS);
    }
    unsigned acknowledged = 0;
    for (uint64_t round = 0; round < 200; round++) {
        CHECK(!post_recv(&b, round, 0, 64) && !ibv_req_notify_cq(b.cq, 0));
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_SEND, .length = 64, .flags = IBV_SEND_SIGNALED}));
        struct ibv_wc wc;
        while (ibv_poll_cq(b.cq, 1, &wc) == 0) { /* armed, then looked, then asleep */
            take_event(&b);
            acknowledged++;
            CHECK(!ibv_req_notify_cq(b.cq, 0));
        }
        CHECK(wc.wr_id == round && next(&a).status == IBV_WC_SUCCESS);
    }
    ibv_ack_cq_events(b.cq, acknowledged);
    close_end(&a);
    close_end(&b);
}

/* Sends and answers; the one end or the other. */
static void ping_pong(end_t* e, bool starts, int rounds) {
    for (uint64_t i = 0; i < 8; i++) CHECK(!post_recv(e, i, 64 * i, 64));
    if (!starts) usleep(1000);
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            bool is_mine = (turn == 0) == starts;
            if (is_mine) {
                *(int*)(e->bytes + 4096) = round;
                CHECK(!post(e, (work_t){.opcode = IBV_WR_SEND, .at = 4096, .length = 64, .flags = IBV_SEND_SIGNALED, .id = 1000}));
            }
            struct ibv_wc wc = next(e);
            if (is_mine) CHECK(wc.wr_id == 1000 && wc.status == IBV_WC_SUCCESS);
            if (is_mine) continue;
            CHECK(wc.wr_id < 8 && wc.byte_len == 64 && *(int*)(e->bytes + 64 * wc.wr_id) == round);
            CHECK(!post_recv(e, wc.wr_id, 64 * wc.wr_id, 64));
        }
    }
}

static void* second_half(void* e) {
    ping_pong((end_t*)e, false, 1000);
    return NULL;
}
static void* pair(void* unused) {
    end_t one, other;
    pthread_t thread;
    open_end(&one, 0);
    open_end(&other, 0);
    meet(&one, &other);
    CHECK(!pthread_create(&thread, NULL, second_half, &other));
    ping_pong(&one, true, 1000);
    pthread_join(thread, NULL);
    close_end(&one);
    close_end(&other);
    return unused;
}
static void threads(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, pair, NULL));
    pair(NULL);
    pthread_join(thread, NULL);
}

/* Another process: this program as "peer ROLE". It tells and hears addresses by its standard input and output. */
typedef struct other {
    pid_t pid;
    int to, from;
    end_t end;
} other_t;

static void start_peer(other_t* o, const char* role) {
    int to[2], from[2];
    CHECK(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
    o->pid = fork();
    if (!o->pid) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/proc/self/exe", "test_fake_verbs", "peer", role, NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    o->to = to[1];
    o->from = from[0];
    open_end(&o->end, 0);
    make_qp(&o->end);
    address_t mine = address_of(&o->end), theirs;
    char is_ready;
    CHECK(write(o->to, &mine, sizeof mine) == sizeof mine && read(o->from, &theirs, sizeof theirs) == sizeof theirs);
    connect_end(&o->end, theirs);
    CHECK(write(o->to, "r", 1) == 1 && read(o->from, &is_ready, 1) == 1);
}

static void end_peer(other_t* o, bool is_killed) {
    int status;
    close(o->to);
    close(o->from);
    CHECK(waitpid(o->pid, &status, 0) == o->pid && (is_killed ? WIFSIGNALED(status) : status == 0));
    close_end(&o->end);
}

static void* poll_on(void* unused) {
    struct ibv_wc wc;
    while (ibv_poll_cq(a.cq, 1, &wc) <= 0) post_recv(&a, 1, 0, 8);
    return unused;
}

/* Sends back what comes until the end of its standard input; "deaf": has no receives; "leak" and "busy": leaves something behind. */
static int peer(const char* role) {
    address_t mine, theirs;
    char is_ready;
    signal(SIGPIPE, SIG_IGN);
    open_end(&a, 1);
    if (!strcmp(role, "leak")) return 0;
    make_qp(&a);
    pthread_t thread;
    if (!strcmp(role, "busy")) return pthread_create(&thread, NULL, poll_on, NULL);
    mine = address_of(&a);
    CHECK(read(0, &theirs, sizeof theirs) == sizeof theirs && write(1, &mine, sizeof mine) == sizeof mine);
    connect_end(&a, theirs);
    for (uint64_t i = 0; i < 8 && strcmp(role, "deaf"); i++) CHECK(!post_recv(&a, i, 1024 * i, 1024));
    if (!strncmp(role, "death", 5)) fake_verbs_fault(role);
    CHECK(write(1, "r", 1) == 1 && read(0, &is_ready, 1) == 1);
    fcntl(0, F_SETFL, O_NONBLOCK);
    for (;;) {
        struct ibv_wc wc;
        int got = ibv_poll_cq(a.cq, 1, &wc);
        if (got == 0 && read(0, &is_ready, 1) == 0) break;
        if (got == 0) sched_yield();
        if (got == 0 || wc.opcode != IBV_WC_RECV) continue;
        CHECK(wc.status == IBV_WC_SUCCESS);
        CHECK(!post(&a, (work_t){.opcode = IBV_WR_SEND, .at = 1024 * wc.wr_id, .length = wc.byte_len, .flags = IBV_SEND_SIGNALED}));
        CHECK(!post_recv(&a, wc.wr_id, 1024 * wc.wr_id, 1024)); /* executed already, or the next one is written behind it */
    }
    close_end(&a);
    return 0;
}

/* One message there and back. How it failed, or success. */
static enum ibv_wc_status echo(end_t* e, uint64_t value) {
    *(uint64_t*)e->bytes = value;
    CHECK(!post_recv(e, 1, 8192, 1024) && !post(e, (work_t){.opcode = IBV_WR_SEND, .length = 8, .flags = IBV_SEND_SIGNALED, .id = 2}));
    bool is_sent = false, has_come = false;
    double start = seconds();
    int asked = 0;
    while (!is_sent || !has_come || asked) {
        struct ibv_wc wc;
        int got = ibv_poll_cq(e->cq, 1, &wc);
        CHECK(got >= 0);
        if (got && wc.status != IBV_WC_SUCCESS) return wc.status;
        if (got && wc.wr_id < 3) *(wc.wr_id == 1 ? &has_come : &is_sent) = true;
        else asked -= got;
        if (!got) sched_yield();
        if (seconds() - start > 0.01 && !has_come) { /* only something of one's own tells that the other is dead */
            start = seconds();
            CHECK(!post(e, (work_t){.opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED, .id = 3}));
            asked++;
        }
    }
    CHECK(*(uint64_t*)(e->bytes + 8192) == value);
    return IBV_WC_SUCCESS;
}

static void processes(void) {
    other_t o[2];
    start_peer(&o[0], "echo");
    start_peer(&o[1], "echo");
    for (uint64_t i = 0; i < 1000; i++) CHECK(echo(&o[i % 2].end, i) == IBV_WC_SUCCESS);
    for (int k = 0; k < 2; k++) {
        end_t* e = &o[k].end;
        memset(e->bytes, 7, BYTES / 2);
        work_t w = {.opcode = IBV_WR_RDMA_WRITE, .there = BYTES / 2, .length = BYTES / 2};
        CHECK(ends(e, w) == IBV_WC_SUCCESS);
        memset(e->bytes, 0, BYTES / 2);
        w.opcode = IBV_WR_RDMA_READ;
        CHECK(ends(e, w) == IBV_WC_SUCCESS && e->bytes[0] == 7 && !memcmp(e->bytes, e->bytes + 1, BYTES / 2 - 1));
        w = (work_t){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .there = BYTES / 2, .length = 8, .compare_add = 1};
        for (uint64_t i = 0; i < 10; i++) CHECK(ends(e, w) == IBV_WC_SUCCESS && *(uint64_t*)e->bytes == 0x0707070707070707u + i);
        for (uint64_t i = 0; i < 50; i++) { /* asleep until the answer is there */
            CHECK(!post_recv(e, 1, 8192, 1024) && !ibv_req_notify_cq(e->cq, 0));
            CHECK(!post(e, (work_t){.opcode = IBV_WR_SEND, .length = 8}));
            struct ibv_wc wc;
            while (ibv_poll_cq(e->cq, 1, &wc) == 0) {
                take_event(e);
                ibv_ack_cq_events(e->cq, 1);
                CHECK(!ibv_req_notify_cq(e->cq, 0));
            }
            CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
            while (has_event(e, 0)) {
                take_event(e);
                ibv_ack_cq_events(e->cq, 1);
            }
            CHECK(i % 16 || ends(e, (work_t){.opcode = IBV_WR_RDMA_WRITE, .there = BYTES - 8, .length = 8}) == IBV_WC_SUCCESS);
        }
        end_peer(&o[k], false);
    }
}

/* Many come and go at once, also as forks of one that is there. */
static void crowd(void) {
    pid_t children[12];
    open_both();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 12; i++) {
            if ((children[i] = fork())) continue;
            open_both();
            CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8}) == IBV_WC_SUCCESS);
            if (i == 0) kill(getpid(), SIGKILL);
            close_end(&a);
            close_end(&b);
            exit(0);
        }
        for (int i = 0; i < 12; i++) {
            int status;
            CHECK(waitpid(children[i], &status, 0) == children[i] && (i ? status == 0 : WIFSIGNALED(status)));
        }
        CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8}) == IBV_WC_SUCCESS);
    }
    close_end(&a);
    close_end(&b);
}

/* Until it fails: messages, or with `big` writes of some hundred thousand bytes. */
static enum ibv_wc_status talk(other_t* mortal, other_t* steady, uint64_t kill_at, bool is_big) {
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    for (uint64_t i = 0; status == IBV_WC_SUCCESS; i++) {
        if (i == kill_at && !is_big) kill(mortal->pid, SIGKILL);
        if (is_big) CHECK(!post(&mortal->end, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = BYTES - (uint32_t)i, .flags = IBV_SEND_SIGNALED}));
        if (i == kill_at && is_big) kill(mortal->pid, SIGKILL);
        status = is_big ? next(&mortal->end).status : echo(&mortal->end, i);
        CHECK(echo(&steady->end, i) == IBV_WC_SUCCESS);
    }
    return status;
}

/* Peers die in many ways; whoever talks to them learns it, the others go on. */
static void deaths(void) {
    char role[64];
    other_t steady, mortal;
    start_peer(&steady, "echo");
    for (int round = 0; round < 16; round++) {
        static const char* const roles[] = {"death:%d", "death_locked:%d", "echo", "deaf"};
        int kind = round % 4;
        snprintf(role, sizeof role, roles[kind], 1 + round);
        start_peer(&mortal, role);
        enum ibv_wc_status status;
        if (kind < 3) {
            status = talk(&mortal, &steady, kind == 2 ? (uint64_t)round * 5 : UINT64_MAX, kind == 2 && round % 8 == 2);
        } else { /* dies while it is waited for its receive */
            CHECK(!post(&mortal.end, (work_t){.opcode = IBV_WR_SEND, .length = 8, .flags = IBV_SEND_SIGNALED}));
            usleep(2000);
            CHECK(is_quiet(&mortal.end));
            kill(mortal.pid, SIGKILL);
            status = next(&mortal.end).status;
        }
        CHECK(status == IBV_WC_RETRY_EXC_ERR);
        end_peer(&mortal, true);
    }
    end_peer(&steady, false);
}

static void leaks(void) {
    char path[64] = "/tmp/fake_verbs_XXXXXX", line[2048] = "";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    for (int round = 0; round < 10; round++) {
        pid_t child = fork();
        int status;
        if (!child) {
            setenv("DTL_FAKE_VERBS_REPORT", path, 1);
            close(2); /* it says what it should not */
            execl("/proc/self/exe", "test_fake_verbs", "peer", round ? "busy" : "leak", NULL);
            _exit(127);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 66);
    }
    CHECK(read(fd, line, sizeof line - 1) > 0 && strstr(line, " reg_mr=1 ") && strstr(line, " bytes_most=1048576 ") && strstr(line, " cqs=1 "));
    close(fd);
    unlink(path);
}

static void dmabuf(void) {
    open_both();
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    CHECK(fd >= 0 && !ftruncate(fd, 16384));
    struct ibv_mr* mr = ibv_reg_dmabuf_mr(b.pd, 4096, 8192, 0x100000, fd, ACCESS);
    CHECK(mr);
    b.peer = a.peer;
    a.peer.memory = 0x100000;
    strcpy(a.bytes, "device");
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .there = 8, .length = 7, .rkey = mr->rkey}) == IBV_WC_SUCCESS);
    char text[7];
    CHECK(pread(fd, text, 7, 4096 + 8) == 7 && !strcmp(text, "device") && !ibv_dereg_mr(mr));
    close(fd);
    close_end(&a);
    close_end(&b);
}

#endif
