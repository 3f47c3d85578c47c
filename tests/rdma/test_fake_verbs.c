/* The verbs provider that is none (fake_verbs.c) does what a real one does. Each case is a process of its own, as variables are
 * read once: "test_fake_verbs" runs all, "test_fake_verbs CASE" one. */
#include "verbs_end.h"

uint64_t fake_verbs_counter(const char* name);
void fake_verbs_fault(const char* text);

static end_t a, b;

static void open_both(void) {
    open_end(&a, 1);
    open_end(&b, 0);
    meet(&a, &b);
}

static void devices(void) {
    int count;
    struct ibv_device** list = ibv_get_device_list(&count);
    CHECK(list && count == 2 && !list[2] && !strcmp(ibv_get_device_name(list[0]), "fake0"));
    struct ibv_context* c = ibv_open_device(list[1]);
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    __be16 pkey;
    CHECK(c && !ibv_query_device(c, &device) && device.phys_port_cnt == 1 && device.atomic_cap == IBV_ATOMIC_HCA);
    CHECK(!ibv_query_port(c, 1, &port) && port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    CHECK(ibv_query_port(c, 2, &port) == EINVAL);
    CHECK(!ibv_query_gid(c, 1, 1, &gid) && gid.raw[10] == 0xff && gid.raw[15] == 2 && ibv_query_gid(c, 1, 9, &gid) == -1);
    CHECK(!ibv_query_gid_ex(c, 1, 0, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V1);
    CHECK(!ibv_query_gid_ex(c, 1, 2, &entry, 0) && entry.gid_type == IBV_GID_TYPE_ROCE_V2 && entry.gid.raw[0] == 0xfe);
    CHECK(ibv_query_gid_ex(c, 1, 3, &entry, 0) == ENODATA);
    CHECK(!ibv_query_pkey(c, 1, 0, &pkey) && pkey == 0xffff && ibv_query_pkey(c, 1, 1, &pkey) == -1);
    CHECK(!ibv_close_device(c));
    ibv_free_device_list(list);
}

static void no_devices(void) {
    int count = 7;
    errno = 0;
    CHECK(!ibv_get_device_list(&count) && errno == ENOSYS && count == 0);
}

static void empty_list(void) {
    int count = 7;
    struct ibv_device** list = ibv_get_device_list(&count);
    CHECK(list && count == 0 && !list[0]);
    ibv_free_device_list(list);
}

static void infiniband(void) {
    struct ibv_port_attr port;
    open_end(&a, 1);
    CHECK(!ibv_query_port(a.context, 1, &port) && port.link_layer == IBV_LINK_LAYER_INFINIBAND && port.lid && port.gid_tbl_len == 2);
    make_qp(&a); /* with itself, by its LID */
    a.peer = (address_t){.number = a.qp->qp_num, .rkey = a.mr->rkey, .psn = a.qp->qp_num & 0xff, .memory = (uintptr_t)a.bytes};
    struct ibv_qp_attr attr[3] = {init_attr(&a), rtr_attr(&a), rts_attr(&a)};
    attr[1].ah_attr = (struct ibv_ah_attr){.dlid = port.lid, .port_num = 1};
    CHECK(!ibv_modify_qp(a.qp, &attr[0], TO_INIT) && !ibv_modify_qp(a.qp, &attr[1], TO_RTR) && !ibv_modify_qp(a.qp, &attr[2], TO_RTS));
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .there = 8, .length = 8}) == IBV_WC_SUCCESS);
    close_end(&a);
}

static void port_down(void) {
    struct ibv_port_attr port;
    open_end(&a, 1);
    CHECK(!ibv_query_port(a.context, 1, &port) && port.state == IBV_PORT_DOWN);
    close_end(&a);
}

/* A change of state wants each of its attributes, and no others. */
static void states(void) {
    open_end(&a, 1);
    open_end(&b, 0);
    make_qp(&a);
    make_qp(&b);
    a.peer = address_of(&b);
    struct ibv_qp_attr attr[3] = {init_attr(&a), rtr_attr(&a), rts_attr(&a)};
    static const int masks[3] = {TO_INIT, TO_RTR, TO_RTS};
    work_t send = {.opcode = IBV_WR_SEND, .length = 8};
    CHECK(post_recv(&a, 1, 0, 8) == EINVAL);
    for (int step = 0; step < 3; step++) {
        CHECK(post(&a, send) == EINVAL);
        for (int bit = 1; bit < 1 << 26; bit <<= 1) {
            if (bit & IBV_QP_STATE || !(masks[step] & bit)) continue;
            CHECK(ibv_modify_qp(a.qp, &attr[step], masks[step] & ~bit) == EINVAL);
        }
        CHECK(ibv_modify_qp(a.qp, &attr[step], masks[step] | IBV_QP_QKEY) == EINVAL);
        CHECK(step == 2 || ibv_modify_qp(a.qp, &attr[2], masks[2]) == EINVAL);
        CHECK(!ibv_modify_qp(a.qp, &attr[step], masks[step]));
        CHECK(!post_recv(&a, 1, 0, 8));
    }
    struct ibv_qp_attr now, to = {.qp_state = IBV_QPS_RESET};
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(a.qp, &now, IBV_QP_STATE, &init) && now.qp_state == IBV_QPS_RTS && now.timeout == 14 && init.cap.max_send_wr == DEPTH);
    to.qp_state = IBV_QPS_RESET;
    CHECK(!ibv_modify_qp(a.qp, &to, IBV_QP_STATE) && post(&a, send) == EINVAL && is_quiet(&a));
    CHECK(!ibv_modify_qp(a.qp, &attr[0], TO_INIT));
    attr[1].ah_attr.is_global = 0;
    CHECK(ibv_modify_qp(a.qp, &attr[1], TO_RTR) == EINVAL);
    attr[1].ah_attr.is_global = 1;
    attr[1].ah_attr.grh.sgid_index = 3;
    CHECK(ibv_modify_qp(a.qp, &attr[1], TO_RTR) == EINVAL);
    attr[1].ah_attr.grh.sgid_index = 1;
    attr[1].path_mtu = IBV_MTU_4096;
    CHECK(ibv_modify_qp(a.qp, &attr[1], TO_RTR) == EINVAL);
    to.qp_state = IBV_QPS_ERR;
    CHECK(!post_recv(&a, 5, 0, 8) && !ibv_modify_qp(a.qp, &to, IBV_QP_STATE));
    struct ibv_wc wc = next(&a);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
    close_end(&a);
    close_end(&b);
}

static void verbs(void) {
    open_both();
    for (size_t i = 0; i < BYTES; i++) a.bytes[i] = (char)(i * 7);
    work_t w = {.opcode = IBV_WR_SEND, .at = 3, .there = 4096, .length = 1000, .imm = 0x1234};
    for (int imm = 0; imm < 2; imm++) {
        w.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
        CHECK(!post_recv(&b, 9, 0, 1001) && ends(&a, w) == IBV_WC_SUCCESS);
        struct ibv_wc wc = next(&b);
        CHECK(wc.wr_id == 9 && wc.opcode == IBV_WC_RECV && wc.byte_len == 1000 && !memcmp(b.bytes, a.bytes + 3, 1000));
        CHECK(wc.qp_num == b.qp->qp_num && wc.src_qp == a.qp->qp_num && !!(wc.wc_flags & IBV_WC_WITH_IMM) == imm && (!imm || wc.imm_data == 0x1234));
    }
    w.opcode = IBV_WR_RDMA_WRITE;
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && !memcmp(b.bytes + 4096, a.bytes + 3, 1000) && is_quiet(&b));
    w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    w.there = 8192;
    CHECK(!post_recv(&b, 10, 0, 0) && ends(&a, w) == IBV_WC_SUCCESS);
    struct ibv_wc wc = next(&b);
    CHECK(wc.wr_id == 10 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 1000 && wc.imm_data == 0x1234);
    CHECK(!memcmp(b.bytes + 8192, a.bytes + 3, 1000));
    w = (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = BYTES}; /* in several pieces */
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && !memcmp(a.bytes, b.bytes, BYTES));
    memset(b.bytes, 5, BYTES);
    w.opcode = IBV_WR_RDMA_READ;
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && !memcmp(a.bytes, b.bytes, BYTES));
    w.length = 0;
    CHECK(ends(&a, w) == IBV_WC_SUCCESS);
    uint64_t *mine = (uint64_t*)a.bytes, *theirs = (uint64_t*)(b.bytes + 64);
    *theirs = 5;
    w = (work_t){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .there = 64, .length = 8, .compare_add = 10};
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && *mine == 5 && *theirs == 15);
    w = (work_t){.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .there = 64, .length = 8, .compare_add = 15, .swap = 99};
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && *mine == 15 && *theirs == 99);
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && *mine == 99 && *theirs == 99);
    w.there = 65;
    CHECK(post(&a, w) == EINVAL);
    memcpy(a.bytes, "inline", 7);
    w = (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 7, .flags = IBV_SEND_INLINE, .lkey = 1};
    CHECK(ends(&a, w) == IBV_WC_SUCCESS && !strcmp(b.bytes, "inline"));
    close_end(&a);
    close_end(&b);
}

/* Lists of places, and completions of unsignaled work that fails. */
static void lists(void) {
    open_both();
    memcpy(a.bytes, "0123456789abcdef", 16);
    uintptr_t mine = (uintptr_t)a.bytes, theirs = (uintptr_t)b.bytes;
    uint32_t from_key = a.mr->lkey, into_key = b.mr->lkey;
    struct ibv_sge from[4] = {{mine, 3, from_key}, {0, 0, 0}, {mine + 8, 8, from_key}, {mine + 3, 2, from_key}};
    struct ibv_sge into[3] = {{theirs, 1, into_key}, {theirs + 100, 11, into_key}, {theirs + 200, 90, into_key}};
    struct ibv_recv_wr recv = {.sg_list = into, .num_sge = 3}, *bad_recv;
    struct ibv_send_wr second = {.sg_list = from, .num_sge = 9, .opcode = IBV_WR_SEND}, *bad;
    struct ibv_send_wr first = {.next = &second, .sg_list = from, .num_sge = 4, .opcode = IBV_WR_SEND};
    CHECK(!ibv_post_recv(b.qp, &recv, &bad_recv) && ibv_post_send(a.qp, &first, &bad) == EINVAL && bad == &second);
    struct ibv_wc wc = next(&b);
    CHECK(wc.byte_len == 13 && b.bytes[0] == '0' && !memcmp(b.bytes + 100, "1289abcdef3", 11) && b.bytes[200] == '4' && is_quiet(&a));
    work_t w = {.opcode = IBV_WR_RDMA_WRITE, .length = 8, .rkey = 77};
    CHECK(!post(&a, w));
    CHECK(next(&a).status == IBV_WC_REM_ACCESS_ERR);
    close_end(&a);
    close_end(&b);
}

/* What is wrong with the work, how it ends, and how the receive ends that it meets. */
static void errors(void) {
    open_both();
    struct ibv_mr* read_only = ibv_reg_mr(b.pd, b.bytes, 4096, 0);
    struct ibv_mr* gone = ibv_reg_mr(b.pd, b.bytes, 4096, ACCESS);
    struct ibv_mr* narrow = ibv_reg_mr(a.pd, a.bytes, 4096, 0);
    CHECK(read_only && gone && narrow && gone->rkey != gone->lkey);
    uint32_t gone_key = gone->rkey;
    CHECK(!ibv_dereg_mr(gone));
    const struct wrong {
        work_t work;
        enum ibv_wc_status status, recv;
        uint32_t recv_length;
    } table[] = {
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .lkey = a.mr->lkey ^ 0x55}, IBV_WC_LOC_PROT_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .lkey = a.mr->rkey}, IBV_WC_LOC_PROT_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .at = BYTES - 7}, IBV_WC_LOC_PROT_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_READ, .length = 8, .lkey = narrow->lkey}, IBV_WC_LOC_PROT_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .rkey = b.mr->rkey ^ 0x55}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .rkey = b.mr->lkey}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .rkey = gone_key}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .rkey = read_only->rkey}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_READ, .length = 8, .rkey = read_only->rkey}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .length = 8, .rkey = read_only->rkey}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_RDMA_WRITE, .length = 8, .there = BYTES - 7}, IBV_WC_REM_ACCESS_ERR, 0, 0},
        {{.opcode = IBV_WR_SEND, .length = 8}, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR, 7},
        {{.opcode = IBV_WR_SEND, .length = 8}, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR, BYTES + 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        meet(&a, &b);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        CHECK(!post_recv(&b, 1, 0, table[i].recv_length) && !post_recv(&b, 2, 0, 8));
        work_t w = table[i].work, behind = {.opcode = IBV_WR_RDMA_WRITE, .length = 8, .id = 5};
        enum ibv_wc_status status = ends(&a, w);
        if (status != table[i].status) printf("%zu: %s\n", i, ibv_wc_status_str(status));
        CHECK(status == table[i].status);
        CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) && attr.qp_state == IBV_QPS_ERR);
        CHECK(!post(&a, behind) && next(&a).status == IBV_WC_WR_FLUSH_ERR);
        if (status == IBV_WC_LOC_PROT_ERR) continue;
        struct ibv_wc first = next(&b), second = next(&b); /* the responder is in error too */
        CHECK(first.wr_id == 1 && first.status == (table[i].recv ? table[i].recv : IBV_WC_WR_FLUSH_ERR));
        CHECK(second.wr_id == 2 && second.status == IBV_WC_WR_FLUSH_ERR);
    }
    CHECK(!ibv_dereg_mr(read_only) && !ibv_dereg_mr(narrow));
    b.access = IBV_ACCESS_REMOTE_READ; /* of the queue pair */
    meet(&a, &b);
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8}) == IBV_WC_REM_INV_REQ_ERR);
    struct ibv_async_event event;
    bool seen = false;
    fcntl(b.context->async_fd, F_SETFL, O_NONBLOCK);
    while (!ibv_get_async_event(b.context, &event)) {
        seen = event.event_type == IBV_EVENT_QP_REQ_ERR && event.element.qp == b.qp;
        CHECK(!seen || ibv_destroy_qp(b.qp) == EBUSY); /* not acknowledged */
        ibv_ack_async_event(&event);
    }
    CHECK(seen);
    close_end(&a);
    close_end(&b);
}

/* Registering: what the access flags and the pages allow; memory that went away. */
static void memory(void) {
    open_both();
    char* page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!ibv_reg_mr(a.pd, a.bytes, 8, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
    CHECK(!ibv_reg_mr(a.pd, page, 8192, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    struct ibv_mr* mr = ibv_reg_mr(a.pd, page, 8192, 0);
    CHECK(mr);
    munmap(page + 4096, 4096);
    CHECK(!ibv_reg_mr(a.pd, page, 8192, 0) && errno == EFAULT);
    char* own_page = a.bytes;
    a.bytes = page;
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8, .lkey = mr->lkey}) == IBV_WC_SUCCESS);
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8192, .lkey = mr->lkey}) == IBV_WC_LOC_PROT_ERR);
    meet(&a, &b);
    a.bytes = own_page;
    munmap(b.bytes, BYTES);
    CHECK(ends(&a, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8}) == IBV_WC_REM_OP_ERR);
    CHECK(ibv_dealloc_pd(a.pd) == EBUSY && ibv_destroy_cq(a.cq) == EBUSY && ibv_destroy_comp_channel(a.channel) == EBUSY);
    CHECK(ibv_close_device(a.context) == -1 && !ibv_dereg_mr(mr));
    mr = ibv_reg_mr_iova(a.pd, a.bytes, 4096, 0x1000, ACCESS);
    CHECK(mr && fake_verbs_counter("mrs") == 3 && fake_verbs_counter("bytes") == 2 * BYTES + 4096);
    meet(&b, &a);
    b.peer.memory = 0x1000;
    b.bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr* again = ibv_reg_mr(b.pd, b.bytes, BYTES, ACCESS);
    strcpy(b.bytes, "iova");
    CHECK(ends(&b, (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 5, .there = 16, .lkey = again->lkey, .rkey = mr->rkey}) == IBV_WC_SUCCESS);
    CHECK(!strcmp(a.bytes + 16, "iova") && !ibv_dereg_mr(mr) && !ibv_dereg_mr(again));
    errno = 0;
    CHECK(!ibv_reg_dmabuf_mr(a.pd, 0, 4096, 0, 0, ACCESS) && errno == EOPNOTSUPP);
    close_end(&a);
    close_end(&b);
}

/* How many go into the queues, and when a place is free again. */
static void depths(void) {
    open_both();
    work_t w = {.opcode = IBV_WR_RDMA_WRITE, .length = 8};
    for (int i = 0; i < DEPTH; i++) CHECK(!post(&a, w));
    CHECK(post(&a, w) == ENOMEM && is_quiet(&a)); /* nothing tells that they are done */
    meet(&a, &b);
    for (int i = 0; i < DEPTH - 1; i++) CHECK(!post(&a, w));
    w.flags = IBV_SEND_SIGNALED;
    CHECK(!post(&a, w) && post(&a, w) == ENOMEM && next(&a).status == IBV_WC_SUCCESS);
    for (int i = 0; i < DEPTH; i++) CHECK(!post(&a, w));
    for (int i = 0; i < DEPTH; i++) CHECK(!post_recv(&b, 0, 0, 8));
    CHECK(post_recv(&b, 0, 0, 8) == ENOMEM);
    w = (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 65, .flags = IBV_SEND_INLINE};
    meet(&a, &b);
    CHECK(post(&a, w) == EINVAL);
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .cap = {4096, 4, 4, 4, 64}, .qp_type = IBV_QPT_RC};
    CHECK(!ibv_create_qp(a.pd, &init) && errno == EINVAL);
    w = (work_t){.opcode = IBV_WR_RDMA_WRITE, .length = 8, .flags = IBV_SEND_SIGNALED};
    struct ibv_cq *small = ibv_create_cq(a.context, 4, NULL, NULL, 0), *usual = a.cq;
    a.cq = small;
    CHECK(!ibv_destroy_qp(a.qp));
    a.qp = NULL;
    meet(&a, &b);
    for (int i = 0; i < 5; i++) CHECK(!post(&a, w));
    struct ibv_async_event event;
    CHECK(!ibv_get_async_event(a.context, &event) && event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
    for (int i = 0; i < 4; i++) CHECK(next(&a).status == IBV_WC_SUCCESS);
    struct ibv_wc wc;
    struct pollfd fd = {.fd = a.context->async_fd, .events = POLLIN};
    CHECK(ibv_poll_cq(small, 1, &wc) < 0 && poll(&fd, 1, 0) == 1);
    ibv_ack_async_event(&event);
    CHECK(!ibv_destroy_qp(a.qp) && poll(&fd, 1, 0) == 0); /* what was told of it is gone with it */
    CHECK(!ibv_destroy_cq(small));
    a.cq = usual;
    a.qp = NULL;
    close_end(&a);
    close_end(&b);
}

static void no_inline(void) {
    open_end(&a, 0);
    struct ibv_qp_init_attr init = {.send_cq = a.cq, .recv_cq = a.cq, .cap = {8, 8, 1, 1, 64}, .qp_type = IBV_QPT_RC};
    CHECK((a.qp = ibv_create_qp(a.pd, &init)) && init.cap.max_inline_data == 0);
    close_end(&a);
}

/* The receiver is not ready, or nobody is there. */
static void waits(void) {
    open_both();
    a.rnr_retry = 2;
    work_t w = {.opcode = IBV_WR_SEND, .length = 8};
    meet(&a, &b);
    CHECK(ends(&a, w) == IBV_WC_RNR_RETRY_EXC_ERR);
    a.rnr_retry = 7;
    meet(&a, &b);
    w.flags = IBV_SEND_SIGNALED;
    CHECK(!post(&a, w));
    usleep(60000);
    CHECK(is_quiet(&a) && !post_recv(&b, 3, 0, 8) && next(&a).status == IBV_WC_SUCCESS && next(&b).wr_id == 3);
    CHECK(!ibv_destroy_qp(b.qp));
    make_qp(&b);
    double start = seconds();
    CHECK(ends(&a, w) == IBV_WC_RETRY_EXC_ERR && seconds() - start > 0.015);
    meet(&a, &b); /* the numbers of packets do not fit */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE));
    connect_end(&a, address_of(&b));
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
    CHECK(!ibv_modify_qp(a.qp, &attr, IBV_QP_STATE));
    a.peer.psn++;
    connect_end(&a, a.peer);
    CHECK(ends(&b, w) == IBV_WC_RETRY_EXC_ERR);
    close_end(&a);
    close_end(&b);
}

static bool has_event(end_t* e, int ms) {
    struct pollfd fd = {.fd = e->channel->fd, .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

static void take_event(end_t* e) {
    struct ibv_cq* cq;
    void* user;
    CHECK(has_event(e, 5000) && !ibv_get_cq_event(e->channel, &cq, &user) && cq == e->cq && user == e);
}

static void events(void) {
    open_both();
    work_t w = {.opcode = IBV_WR_SEND, .length = 8};
    for (int i = 0; i < 6; i++) CHECK(!post_recv(&b, (uint64_t)i, 0, 8));
    CHECK(!post(&a, w) && next(&b).wr_id == 0 && !has_event(&b, 0));
    CHECK(!ibv_req_notify_cq(b.cq, 0) && !has_event(&b, 0) && !post(&a, w) && !post(&a, w));
    take_event(&b);
    CHECK(!has_event(&b, 0) && next(&b).wr_id == 1 && next(&b).wr_id == 2);
    CHECK(!ibv_req_notify_cq(b.cq, 1) && !post(&a, w) && !has_event(&b, 0));
    w.flags = IBV_SEND_SOLICITED;
    CHECK(!post(&a, w));
    take_event(&b);
    CHECK(!ibv_destroy_qp(b.qp) && ibv_destroy_cq(b.cq) == EBUSY); /* two are not acknowledged */
    ibv_ack_cq_events(b.cq, 2);
    b.qp = NULL;
    meet(&a, &b);
    /* Nobody polls: the sender sleeps until it is told that the peer is gone. */
    CHECK(!ibv_destroy_qp(b.qp) && !ibv_req_notify_cq(a.cq, 0) && !post(&a, w));
    b.qp = NULL;
    take_event(&a);
    CHECK(next(&a).status == IBV_WC_RETRY_EXC_ERR);
    ibv_ack_cq_events(a.cq, 1);
    close_end(&a);
    close_end(&b);
}

#include "fake_verbs_cases.h"

static const struct test_case {
    const char* name;
    void (*run)(void);
    const char* variable; /* NAME=value */
} cases[] = {
    {"devices", devices, NULL},
    {"no_devices", no_devices, "DTL_FAKE_VERBS_DEVICES=0"},
    {"empty", empty_list, "DTL_FAKE_VERBS_DEVICES=empty"},
    {"infiniband", infiniband, "DTL_FAKE_VERBS_LINK=ib"},
    {"port_down", port_down, "DTL_FAKE_VERBS_PORT=down"},
    {"states", states, NULL},
    {"verbs", verbs, NULL},
    {"verbs_seed", verbs, "DTL_FAKE_VERBS_SEED=3"},
    {"lists", lists, NULL},
    {"errors", errors, NULL},
    {"errors_seed", errors, "DTL_FAKE_VERBS_SEED=4"},
    {"memory", memory, NULL},
    {"depths", depths, NULL},
    {"no_inline", no_inline, "DTL_FAKE_VERBS_INLINE=0"},
    {"waits", waits, NULL},
    {"waits_seed", waits, "DTL_FAKE_VERBS_SEED=9"},
    {"events", events, NULL},
    {"faults", faults, NULL},
    {"breaks", breaks, NULL},
    {"breaks_seed", breaks, "DTL_FAKE_VERBS_SEED=2"},
    {"memlock", memlock, "DTL_FAKE_VERBS_MEMLOCK=1048576"},
    {"order", order, NULL},
    {"order_seed", order, "DTL_FAKE_VERBS_SEED=7"},
    {"asleep", asleep, NULL},
    {"asleep_seed", asleep, "DTL_FAKE_VERBS_SEED=5"},
    {"threads", threads, NULL},
    {"threads_seed", threads, "DTL_FAKE_VERBS_SEED=6"},
    {"processes", processes, NULL},
    {"processes_seed", processes, "DTL_FAKE_VERBS_SEED=8"},
    {"deaths", deaths, NULL},
    {"deaths_seed", deaths, "DTL_FAKE_VERBS_SEED=11"},
    {"crowd", crowd, NULL},
    {"leaks", leaks, NULL},
    {"dmabuf", dmabuf, "DTL_FAKE_VERBS_DMABUF=1"},
};

static int run_case(const struct test_case* c) {
    pid_t child = fork();
    if (!child) {
        if (c->variable) putenv((char*)(uintptr_t)c->variable);
        setenv("DTL_FAKE_VERBS_LEAKS", "1", 1);
        execl("/proc/self/exe", "test_fake_verbs", c->name, NULL);
        _exit(127);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) printf("%s: status %x\n", c->name, (unsigned)status);
    return status != 0;
}

int main(int count, char** arguments) {
    char job[64];
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1 && !strcmp(arguments[1], "peer")) return peer(arguments[2]);
    for (size_t i = 0; count > 1 && i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, arguments[1])) continue;
        cases[i].run();
        return 0;
    }
    if (count > 1) return 2;
    snprintf(job, sizeof job, "test-%d", getpid());
    setenv("DTL_JOB", job, 1); /* a fabric of its own */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double start = seconds();
        failed |= run_case(&cases[i]);
        if (getenv("DTL_TEST_TIMES")) printf("%-16s %.3f s\n", cases[i].name, seconds() - start);
    }
    return failed;
}
