// Tries every verb, every error path and a fault of the link between rxe0 and rxe1, in one process, and tells which behave as
// soft-RoCE is expected to. Not of the library: it shows that the virtual machine is what the tests take it for.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
struct end {
    struct ibv_context *c;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *b;
    union ibv_gid gid;
};
#define SZ (4 << 20)
#define CK(x)                                             \
    do {                                                  \
        if (!(x)) {                                       \
            printf("FAIL %s: %s\n", #x, strerror(errno)); \
            exit(1);                                      \
        }                                                 \
    } while (0)
static int ACC = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static void mk(struct end *e, const char *n)
{
    int k;
    struct ibv_device **l = ibv_get_device_list(&k);
    e->c = 0;
    for (int i = 0; i < k; i++)
        if (!strcmp(ibv_get_device_name(l[i]), n)) e->c = ibv_open_device(l[i]);
    CK(e->c);
    CK(e->pd = ibv_alloc_pd(e->c));
    CK(e->cq = ibv_create_cq(e->c, 256, 0, 0, 0));
    e->b = mmap(0, SZ, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CK(e->mr = ibv_reg_mr(e->pd, e->b, SZ, ACC));
    CK(!ibv_query_gid(e->c, 1, 1, &e->gid));
}
static void mkqp(struct end *e)
{
    struct ibv_qp_init_attr a = {.send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .cap = {128, 128, 4, 4, 64}};
    CK(e->qp = ibv_create_qp(e->pd, &a));
}
static void up(struct end *e, struct end *p, int retry, int timeout, int rnr)
{
    struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = 1, .qp_access_flags = ACC};
    CK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr r = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = p->qp->qp_num,
        .rq_psn = 7,
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = p->gid, .sgid_index = 1, .hop_limit = 64}}};
    CK(!ibv_modify_qp(e->qp, &r,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                          IBV_QP_MIN_RNR_TIMER));
    struct ibv_qp_attr s = {
        .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = retry, .rnr_retry = rnr, .sq_psn = 7, .max_rd_atomic = 4};
    CK(!ibv_modify_qp(e->qp, &s,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC));
}
static int wait1(struct end *e, struct ibv_wc *w, double t)
{
    double s = now();
    while (now() - s < t) {
        int n = ibv_poll_cq(e->cq, 1, w);
        if (n) return n;
        usleep(200);
    }
    return 0;
}
static struct end A, B;
static void conn(int retry, int to, int rnr)
{
    if (A.qp) {
        ibv_destroy_qp(A.qp);
        ibv_destroy_qp(B.qp);
    }
    struct ibv_wc w;
    while (ibv_poll_cq(A.cq, 1, &w) > 0)
        ;
    while (ibv_poll_cq(B.cq, 1, &w) > 0)
        ;
    mkqp(&A);
    mkqp(&B);
    up(&A, &B, retry, to, rnr);
    up(&B, &A, retry, to, rnr);
}
static int op(const char *name, struct ibv_send_wr *wr, int recv, int expect)
{
    struct ibv_wc w = {0};
    struct ibv_send_wr *bad;
    if (recv) {
        struct ibv_sge g = {(uintptr_t)B.b + 8192, 4096, B.mr->lkey};
        struct ibv_recv_wr r = {.wr_id = 9, .sg_list = &g, .num_sge = 1}, *br;
        CK(!ibv_post_recv(B.qp, &r, &br));
    }
    double s = now();
    int rc = ibv_post_send(A.qp, wr, &bad);
    if (rc) {
        printf("%-28s post_send: %s\n", name, strerror(rc));
        return -1;
    }
    int n = wait1(&A, &w, 20);
    double d = now() - s;
    printf("%-28s %s (%.2f ms)", name, n ? ibv_wc_status_str(w.status) : "NO COMPLETION", d * 1e3);
    if (recv) {
        struct ibv_wc v = {0};
        int m = wait1(&B, &v, 2);
        printf(" recv:%s opcode=%d imm=%s0x%x len=%u", m ? ibv_wc_status_str(v.status) : "none", v.opcode,
               v.wc_flags & IBV_WC_WITH_IMM ? "" : "-", v.imm_data, v.byte_len);
    }
    printf(" %s\n", n && (int)w.status == expect ? "[as expected]" : "[UNEXPECTED]");
    fflush(stdout);
    return n && (int)w.status == expect ? 0 : 1;
}
int main(void)
{
    int bad = 0;
    mk(&A, "rxe1");
    mk(&B, "rxe0");
    conn(7, 14, 7);
    strcpy(A.b, "hello");
    *(uint64_t *)(B.b + 64) = 5;
    struct ibv_sge g = {(uintptr_t)A.b, 4096, A.mr->lkey};
    struct ibv_send_wr w = {.wr_id = 1, .sg_list = &g, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    w.opcode = IBV_WR_SEND;
    bad |= op("SEND", &w, 1, 0);
    w.opcode = IBV_WR_SEND_WITH_IMM;
    w.imm_data = 0x1234;
    bad |= op("SEND_WITH_IMM", &w, 1, 0);
    w.opcode = IBV_WR_RDMA_WRITE;
    w.wr.rdma.remote_addr = (uintptr_t)B.b;
    w.wr.rdma.rkey = B.mr->rkey;
    bad |= op("RDMA_WRITE", &w, 0, 0);
    printf("   data %s\n", B.b);
    w.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    bad |= op("RDMA_WRITE_WITH_IMM", &w, 1, 0);
    w.opcode = IBV_WR_RDMA_READ;
    bad |= op("RDMA_READ", &w, 0, 0);
    *(uint64_t *)(B.b + 64) = 5;
    g.length = 8;
    w.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    w.wr.atomic.remote_addr = (uintptr_t)B.b + 64;
    w.wr.atomic.rkey = B.mr->rkey;
    w.wr.atomic.compare_add = 10;
    bad |= op("FETCH_AND_ADD", &w, 0, 0);
    printf("   old %lu new %lu\n", *(uint64_t *)A.b, *(uint64_t *)(B.b + 64));
    w.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    w.wr.atomic.compare_add = 15;
    w.wr.atomic.swap = 99;
    bad |= op("CMP_AND_SWP", &w, 0, 0);
    printf("   new %lu\n", *(uint64_t *)(B.b + 64));
    w.wr.atomic.remote_addr++;
    if (op("atomic misaligned (EINVAL)", &w, 0, 0) != -1) bad = 1;
    conn(7, 14, 7);
    g.length = 32;
    w.opcode = IBV_WR_RDMA_WRITE;
    w.send_flags |= IBV_SEND_INLINE;
    w.wr.rdma.remote_addr = (uintptr_t)B.b;
    w.wr.rdma.rkey = B.mr->rkey;
    bad |= op("WRITE inline", &w, 0, 0);
    w.send_flags &= ~IBV_SEND_INLINE;
    g.length = 1 << 20;
    bad |= op("WRITE 1 MiB", &w, 0, 0);
    w.opcode = IBV_WR_RDMA_READ;
    bad |= op("READ 1 MiB", &w, 0, 0);
    w.opcode = IBV_WR_RDMA_WRITE;
    w.wr.rdma.rkey ^= 0x55;
    bad |= op("WRITE bad rkey", &w, 0, IBV_WC_REM_ACCESS_ERR);
    struct ibv_qp_attr qa;
    struct ibv_qp_init_attr qi;
    ibv_query_qp(A.qp, &qa, IBV_QP_STATE, &qi);
    printf("   QP state after error %d (6=ERR)\n", qa.qp_state);
    w.wr.rdma.rkey = B.mr->rkey;
    bad |= op("WRITE on ERR QP", &w, 0, IBV_WC_WR_FLUSH_ERR);
    conn(7, 14, 1);
    g.length = 64;
    w.opcode = IBV_WR_SEND;
    bad |= op("SEND, no recv, rnr_retry 1", &w, 0, IBV_WC_RNR_RETRY_EXC_ERR);
    conn(7, 14, 7);
    w.opcode = IBV_WR_RDMA_WRITE;
    w.wr.rdma.remote_addr = (uintptr_t)B.b + SZ;
    bad |= op("WRITE out of range", &w, 0, IBV_WC_REM_ACCESS_ERR);
    w.wr.rdma.remote_addr = (uintptr_t)B.b;
    // memory window, odp, dmabuf, relaxed ordering, file mapping, hugepage
    struct ibv_mw *mw = ibv_alloc_mw(A.pd, IBV_MW_TYPE_2);
    printf("alloc_mw type2: %s\n", mw ? "ok" : strerror(errno));
    struct ibv_mr *m = ibv_reg_mr(A.pd, A.b, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    printf("ODP reg_mr: %s\n", m ? "ok" : strerror(errno));
    m = ibv_reg_mr(A.pd, A.b, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
    printf("relaxed-ordering reg_mr: %s\n", m ? "ok" : strerror(errno));
    errno = 0;
    m = ibv_reg_dmabuf_mr(A.pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE);
    printf("reg_dmabuf_mr: %s\n", m ? "ok" : strerror(errno));
    errno = 0;
    m = ibv_reg_mr_iova(A.pd, A.b, 4096, 0x1000, IBV_ACCESS_LOCAL_WRITE);
    printf("reg_mr_iova: %s\n", m ? "ok" : strerror(errno));
    errno = 0;
    struct ibv_context *x = A.c;
    struct ibv_device_attr_ex ax;
    int rc = ibv_query_device_ex(x, 0, &ax);
    printf("query_device_ex rc %d ts_mask %lx\n", rc, (long)ax.completion_timestamp_mask);
    struct ibv_cq_init_attr_ex cx = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
    errno = 0;
    struct ibv_cq_ex *ce = ibv_create_cq_ex(x, &cx);
    printf("create_cq_ex: %s\n", ce ? "ok" : strerror(errno));
    struct ibv_qp_init_attr_ex qx = {.send_cq = A.cq,
                                     .recv_cq = A.cq,
                                     .qp_type = IBV_QPT_RC,
                                     .cap = {16, 16, 2, 2, 0},
                                     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                     .pd = A.pd,
                                     .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND};
    errno = 0;
    struct ibv_qp *qe = ibv_create_qp_ex(x, &qx);
    printf("create_qp_ex(ibv_wr_*): %s\n", qe ? "ok" : strerror(errno));
    {
        double s = now();
        size_t n = 256u << 20;
        char *p = mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        errno = 0;
        m = ibv_reg_mr(A.pd, p, n, ACC);
        printf("reg 256 MiB: %s %.0f ms\n", m ? "ok" : strerror(errno), (now() - s) * 1e3);
        if (m) ibv_dereg_mr(m);
        munmap(p, n);
    }
    // link failure
    for (int k = 0; k < 2; k++) {
        conn(k ? 3 : 6, k ? 10 : 14, 7);
        g.length = 64;
        if (system("ip link set veth0 down")) return 3;
        usleep(100000);
        struct ibv_port_attr pa;
        ibv_query_port(A.c, 1, &pa);
        printf("veth0 down: rxe1 port state %d (1=DOWN 4=ACTIVE)\n", pa.state);
        ibv_query_port(B.c, 1, &pa);
        printf("            rxe0 port state %d\n", pa.state);
        w.opcode = IBV_WR_RDMA_WRITE;
        w.wr.rdma.rkey = B.mr->rkey;
        bad |= op(k ? "WRITE cut link r3 t10" : "WRITE cut link r6 t14", &w, 0, IBV_WC_RETRY_EXC_ERR);
        if (system("ip link set veth0 up")) return 3;
        usleep(300000);
        conn(7, 14, 7);
        bad |= op("WRITE after link up", &w, 0, 0);
    }
    // link flap shorter than the retry budget: must recover
    conn(7, 17, 7);
    if (system("(ip link set veth0 down; sleep 0.5; ip link set veth0 up) & sleep 0.2")) return 3;
    bad |= op("WRITE in a 0.5 s flap (t17 r7)", &w, 0, 0);
    printf("async events seen on rxe1:");
    {
        struct ibv_async_event ev;
        fcntl(A.c->async_fd, F_SETFL, O_NONBLOCK);
        while (!ibv_get_async_event(A.c, &ev)) {
            printf(" %s", ibv_event_type_str(ev.event_type));
            ibv_ack_async_event(&ev);
        }
        printf("\n");
    }
    conn(6, 10, 7);
    if (system("rdma-vm-link loss 100")) return 3;
    bad |= op("WRITE at 100% loss r6 t10", &w, 0, IBV_WC_RETRY_EXC_ERR);
    conn(6, 10, 7);
    if (system("rdma-vm-link loss 5")) return 3;
    g.length = 65536;
    for (int k = 0; k < 5; k++)
        bad |= op("WRITE 64 KiB at 5% loss", &w, 0, 0);
    if (system("rdma-vm-link clear")) return 3;
    g.length = 64;
    // peer QP gone
    conn(3, 10, 7);
    ibv_destroy_qp(B.qp);
    mkqp(&B);
    bad |= op("WRITE to a destroyed QP", &w, 0, IBV_WC_RETRY_EXC_ERR);
    printf("RESULT %s\n", bad ? "UNEXPECTED THINGS" : "ALL AS EXPECTED");
    return bad ? 1 : 0;
}
