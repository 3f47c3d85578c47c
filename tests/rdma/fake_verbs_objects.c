/* Protection domains, memory, completion queues and their channels, events. */
#include "fake_verbs.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>

API struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
    int code = fault("alloc_pd");
    own_pd_t* pd = code ? NULL : calloc(1, sizeof *pd);
    if (!pd) {
        errno = code ? code : ENOMEM;
        return NULL;
    }
    pd->ibv.context = context;
    lock_fabric();
    pd->ibv.handle = own.fabric->next_pd++;
    ((own_context_t*)context)->pds++;
    unlock_fabric();
    grow(&counters.pds, NULL, 1);
    return &pd->ibv;
}

API int ibv_dealloc_pd(struct ibv_pd* ibv) {
    own_pd_t* pd = (own_pd_t*)ibv;
    int code = fault("dealloc_pd");
    if (code) return code;
    lock_fabric();
    if (pd->users) code = EBUSY;
    else ((own_context_t*)ibv->context)->pds--;
    unlock_fabric();
    if (code) return code;
    counters.pds--;
    free(pd);
    return 0;
}

/* As pinning: the pages must be there, and writable if they are to be written. */
static int pin(void* address, size_t length, unsigned access) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = (uintptr_t)address & ~(page - 1), end = ((uintptr_t)address + length + page - 1) & ~(page - 1);
    if (end < start || length == 0) return EINVAL;
#ifdef MADV_POPULATE_WRITE
    if (madvise((void*)start, end - start, access & IBV_ACCESS_LOCAL_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) return 0;
    if (errno != EINVAL) return EFAULT;
    /* EINVAL: read-only memory, or a kernel without this advice. */
    if (madvise((void*)start, end - start, MADV_POPULATE_READ) == 0) return EFAULT;
#endif
    unsigned char there[1024];
    for (uintptr_t at = start; at < end; at += sizeof there * page) {
        size_t left = end - at < sizeof there * page ? end - at : sizeof there * page;
        if (mincore((void*)at, left, there)) return EFAULT;
    }
    return 0;
}

static bool is_allowed(unsigned access) {
    unsigned known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                     IBV_ACCESS_MW_BIND | IBV_ACCESS_HUGETLB;
    if (access & ~known & ~IBV_ACCESS_OPTIONAL_RANGE) return false;
    return !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) || access & IBV_ACCESS_LOCAL_WRITE;
}

/* Places are taken in turn, so that a key is not soon used again. */
static int place_mr(own_mr_t* mr, const mr_t* value) {
    fabric_t* f = own.fabric;
    for (uint32_t tried = 0; tried < MOST_MRS; tried++) {
        uint32_t i = (uint32_t)(f->next_mr++ % MOST_MRS);
        mr_t* place = &f->mrs[i];
        if (place->is_used) continue;
        uint32_t generation = (place->generation + 1) & 0xff;
        *place = *value;
        place->generation = generation;
        atomic_signal_fence(memory_order_seq_cst);
        place->is_used = 1;
        mr->index = i;
        mr->ibv.handle = i;
        mr->ibv.lkey = i << 8 | generation;
        mr->ibv.rkey = mr->ibv.lkey | 0x80000000u;
        return 0;
    }
    return ENOMEM;
}

static struct ibv_mr* register_memory(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access, void* mapped) {
    own_mr_t* mr = calloc(1, sizeof *mr);
    int code = mr ? 0 : ENOMEM;
    if (!code && !is_allowed(access)) code = EINVAL;
    if (!code && settings.memlock && counters.bytes + length > settings.memlock) code = ENOMEM;
    if (!code) code = pin(address, length, access);
    if (!code) {
        mr->ibv.context = pd->context;
        mr->ibv.pd = pd;
        mr->ibv.addr = address;
        mr->ibv.length = length;
        mr->mapped = mapped;
        mr_t value = {.owner = own.me, .pd = pd->handle, .access = access, .address = (uintptr_t)address, .iova = iova, .length = length};
        lock_fabric();
        code = place_mr(mr, &value);
        if (!code) ((own_pd_t*)pd)->users++;
        unlock_fabric();
    }
    if (code) {
        free(mr);
        errno = code;
        return NULL;
    }
    counters.reg_mr++;
    grow(&counters.mrs, &counters.mrs_most, 1);
    grow(&counters.bytes, &counters.bytes_most, length);
    return &mr->ibv;
}

API struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) {
    int code = fault("reg_mr");
    if (code) {
        errno = code;
        return NULL;
    }
    return register_memory(pd, address, length, iova, access, NULL);
}

API struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned)access);
}

API struct ibv_mr* ibv_reg_mr_iova(struct ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
    return ibv_reg_mr_iova2(pd, address, length, iova, (unsigned)access);
}

API struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
    int code = fault("reg_dmabuf_mr");
    if (!code && !settings.has_dmabuf) code = EOPNOTSUPP;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), inside = offset & (page - 1);
    void* mapped = code ? MAP_FAILED : mmap(NULL, length + inside, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - inside));
    if (mapped == MAP_FAILED) {
        errno = code ? code : errno;
        return NULL;
    }
    struct ibv_mr* mr = register_memory(pd, (char*)mapped + inside, length, iova, (unsigned)access, mapped);
    if (!mr) {
        code = errno;
        munmap(mapped, length + inside);
        errno = code;
        return NULL;
    }
    mr->addr = (void*)(uintptr_t)offset;
    return mr;
}

API int ibv_dereg_mr(struct ibv_mr* ibv) {
    own_mr_t* mr = (own_mr_t*)ibv;
    int code = fault("dereg_mr");
    if (code) return code;
    lock_fabric();
    own.fabric->mrs[mr->index].is_used = 0;
    ((own_pd_t*)ibv->pd)->users--;
    unlock_fabric();
    if (mr->mapped) munmap(mr->mapped, ibv->length + ((uintptr_t)ibv->addr & ((uintptr_t)sysconf(_SC_PAGESIZE) - 1)));
    counters.dereg_mr++;
    counters.mrs--;
    counters.bytes -= ibv->length;
    free(mr);
    return 0;
}

/* The reading end is the channel's descriptor; others write through /proc. */
API struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context* context) {
    int ends[2], code = fault("create_comp_channel");
    own_channel_t* channel = code ? NULL : calloc(1, sizeof *channel);
    if (!code && (!channel || pipe2(ends, O_CLOEXEC))) code = channel ? errno : ENOMEM;
    if (code) {
        free(channel);
        errno = code;
        return NULL;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    channel->ibv.context = context;
    channel->ibv.fd = ends[0];
    channel->write_fd = ends[1];
    lock_fabric();
    ((own_context_t*)context)->channels++;
    unlock_fabric();
    grow(&counters.channels, NULL, 1);
    return &channel->ibv;
}

API int ibv_destroy_comp_channel(struct ibv_comp_channel* ibv) {
    own_channel_t* channel = (own_channel_t*)ibv;
    int code = fault("destroy_comp_channel");
    if (code) return code;
    lock_fabric();
    if (ibv->refcnt) code = EBUSY;
    else ((own_context_t*)ibv->context)->channels--;
    unlock_fabric();
    if (code) return code;
    close(ibv->fd);
    close(channel->write_fd);
    counters.channels--;
    free(channel);
    return 0;
}

static int place_cq(own_cq_t* cq, int size) {
    fabric_t* f = own.fabric;
    own_context_t* context = (own_context_t*)cq->ibv.context;
    if (f->contexts[context->index].is_fatal) return EIO;
    for (uint32_t i = 0; i < MOST_CQS; i++) {
        cq_t* place = &f->cqs[i];
        if (place->is_used) continue;
        *place = (cq_t){.owner = own.me, .context = context->index, .size = (uint32_t)size, .user = (uintptr_t)cq};
        place->channel = cq->ibv.channel ? ((own_channel_t*)cq->ibv.channel)->write_fd : -1;
        atomic_signal_fence(memory_order_seq_cst);
        place->is_used = 1;
        cq->index = cq->ibv.handle = i;
        if (cq->ibv.channel) cq->ibv.channel->refcnt++;
        context->cqs++;
        return 0;
    }
    return ENOMEM;
}

API struct ibv_cq* ibv_create_cq(struct ibv_context* context, int size, void* user, struct ibv_comp_channel* channel, int vector) {
    int code = fault("create_cq");
    if (!code && (size < 1 || size > MOST_CQE || vector < 0 || vector >= context->num_comp_vectors)) code = EINVAL;
    own_cq_t* cq = code ? NULL : calloc(1, sizeof *cq);
    if (!code && !cq) code = ENOMEM;
    if (!code) {
        cq->ibv.context = context;
        cq->ibv.channel = channel;
        cq->ibv.cq_context = user;
        cq->ibv.cqe = size;
        lock_fabric();
        code = place_cq(cq, size);
        unlock_fabric();
    }
    if (code) {
        free(cq);
        errno = code;
        return NULL;
    }
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    grow(&counters.cqs, NULL, 1);
    return &cq->ibv;
}

API int ibv_destroy_cq(struct ibv_cq* ibv) {
    own_cq_t* cq = (own_cq_t*)ibv;
    int code = fault("destroy_cq");
    if (code) return code;
    lock_fabric();
    if (cq->qps) {
        code = EBUSY;
    } else if (cq->events != ibv->comp_events_completed) {
        fprintf(stderr, "fake_verbs: destroy_cq: %u events are not acknowledged; the real one waits for ever\n",
                cq->events - ibv->comp_events_completed);
        code = EBUSY;
    } else {
        own_context_t* context = (own_context_t*)ibv->context;
        own.fabric->cqs[cq->index].is_used = 0;
        forget_events(context->ibv.async_fd, context->write_fd, (uintptr_t)cq);
        if (ibv->channel) forget_events(ibv->channel->fd, ((own_channel_t*)ibv->channel)->write_fd, (uintptr_t)cq);
        if (ibv->channel) ibv->channel->refcnt--;
        context->cqs--;
    }
    unlock_fabric();
    if (code) return code;
    counters.cqs--;
    free(cq);
    return 0;
}

static void fill(struct ibv_wc* wc, const completion_t* c) {
    memset(wc, 0, sizeof *wc);
    wc->wr_id = c->wr_id;
    wc->status = (enum ibv_wc_status)c->status;
    wc->qp_num = c->qp_num;
    if (c->status != IBV_WC_SUCCESS) { /* the others mean nothing */
        wc->opcode = (enum ibv_wc_opcode)0x5a;
        wc->vendor_err = 0xfa4e;
        wc->byte_len = wc->imm_data = wc->src_qp = 0xdeadbeef;
        return;
    }
    wc->opcode = (enum ibv_wc_opcode)c->opcode;
    wc->byte_len = c->byte_len;
    wc->imm_data = c->imm;
    wc->src_qp = c->src_qp;
    wc->wc_flags = c->wc_flags;
}

/* Its place in the queue, and those of the ones before that told nothing. */
static void give_back(const completion_t* c) {
    qp_t* q = &own.fabric->qps[c->qp];
    if (!q->is_used || q->number != c->qp_num) return;
    if (c->is_recv) q->recv_free = c->index + 1;
    else q->sent_free = c->index + 1;
}

int fake_poll_cq(struct ibv_cq* ibv, int count, struct ibv_wc* wc) {
    uint32_t index = ((own_cq_t*)ibv)->index;
    cq_t* cq = &own.fabric->cqs[index];
    counters.poll_cq++;
    if (fault("poll_cq")) return -1;
    uint64_t polled = atomic_load_explicit(&cq->polled, memory_order_relaxed);
    if (polled == atomic_load_explicit(&cq->pushed, memory_order_acquire) && !cq->is_overrun && !concerns_me()) return 0;
    int taken = 0;
    lock_fabric();
    if (own.has_left) {
        unlock_fabric();
        return 0;
    }
    progress();
    if (cq->visible < cq->pushed) reveal(index, settings.seed ? cq->visible + chance(1 + (uint32_t)(cq->pushed - cq->visible)) : cq->pushed);
    while (taken < count && cq->polled < cq->visible) {
        const completion_t* c = &own.fabric->completions[index][cq->polled % cq->size];
        if (!c->is_gone) {
            fill(&wc[taken++], c);
            give_back(c);
        }
        cq->polled++;
    }
    if (!taken && cq->is_overrun) taken = -1;
    unlock_fabric();
    if (taken > 0) counters.completions += (uint64_t)taken;
    return taken;
}

int fake_req_notify_cq(struct ibv_cq* ibv, int solicited_only) {
    int code = fault("req_notify");
    if (code) return code;
    counters.req_notify++;
    if (!ibv->channel) return EINVAL;
    cq_t* cq = &own.fabric->cqs[((own_cq_t*)ibv)->index];
    lock_fabric();
    uint32_t wanted = solicited_only ? 1 : 2;
    if (cq->armed < wanted) cq->armed = wanted;
    unlock_fabric();
    return 0;
}

/* As the kernel does when the object is destroyed: its events that nobody took are gone. */
void forget_events(int from, int to, uint64_t user) {
    event_t event;
    struct iovec into = {&event, sizeof event};
    int bytes = 0;
    ioctl(from, FIONREAD, &bytes);
    for (; bytes >= (int)sizeof event && preadv2(from, &into, 1, -1, RWF_NOWAIT) == sizeof event; bytes -= (int)sizeof event)
        if (event.user != user && write(to, &event, sizeof event) < 0) fprintf(stderr, "fake_verbs: an event is lost\n");
}

/* Events of what was destroyed meanwhile are none. */
API int ibv_get_cq_event(struct ibv_comp_channel* channel, struct ibv_cq** cq, void** user) {
    event_t event;
    bool is_there = false;
    int code = fault("get_cq_event");
    if (code) {
        errno = code;
        return -1;
    }
    while (!is_there) {
        if (read(channel->fd, &event, sizeof event) != sizeof event) return -1;
        lock_fabric();
        const cq_t* c = &own.fabric->cqs[event.index];
        is_there = c->is_used && c->user == event.user;
        if (is_there) ((own_cq_t*)(uintptr_t)event.user)->events++;
        unlock_fabric();
    }
    *cq = (struct ibv_cq*)(uintptr_t)event.user;
    *user = (*cq)->cq_context;
    counters.events++;
    return 0;
}

API void ibv_ack_cq_events(struct ibv_cq* cq, unsigned count) {
    lock_fabric();
    cq->comp_events_completed += count;
    unlock_fabric();
}

/* Fills in the object; false: it was destroyed meanwhile. */
static bool take_event(const event_t* from, struct ibv_async_event* event) {
    const qp_t* q = &own.fabric->qps[from->index];
    const cq_t* cq = &own.fabric->cqs[from->index];
    event->event_type = (enum ibv_event_type)from->type;
    if (event->event_type == IBV_EVENT_CQ_ERR) {
        event->element.cq = (struct ibv_cq*)(uintptr_t)from->user;
        return cq->is_used && cq->user == from->user;
    }
    if (event->event_type >= IBV_EVENT_DEVICE_FATAL) {
        event->element.port_num = 1;
        return true;
    }
    event->element.qp = (struct ibv_qp*)(uintptr_t)from->user;
    if (!q->is_used || q->user != from->user) return false;
    ((own_qp_t*)event->element.qp)->events++;
    return true;
}

API int ibv_get_async_event(struct ibv_context* context, struct ibv_async_event* event) {
    event_t from;
    bool is_there = false;
    int code = fault("get_async_event");
    if (code) {
        errno = code;
        return -1;
    }
    while (!is_there) {
        if (read(context->async_fd, &from, sizeof from) != sizeof from) return -1;
        lock_fabric();
        is_there = take_event(&from, event);
        unlock_fabric();
    }
    return 0;
}

API void ibv_ack_async_event(struct ibv_async_event* event) {
    if (event->event_type == IBV_EVENT_CQ_ERR || event->event_type >= IBV_EVENT_DEVICE_FATAL) return;
    lock_fabric();
    ((own_qp_t*)event->element.qp)->events--;
    unlock_fabric();
}

API const char* ibv_wc_status_str(enum ibv_wc_status status) {
    static const char* const names[] = {
        "success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
        "Work Request Flushed Error", "memory management operation error", "bad response error", "local access error",
        "remote invalid request error", "remote access error", "remote operation error", "transport retry counter exceeded",
        "RNR retry counter exceeded", "local RDD violation error", "remote invalid RD request", "aborted error",
        "invalid EE context number", "invalid EE context state", "fatal error", "response timeout error", "general error"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

API const char* ibv_event_type_str(enum ibv_event_type type) {
    static const char* const names[] = {
        "CQ error", "local work queue catastrophic error", "invalid request local work queue error", "local access violation work queue error",
        "communication established", "send queue drained", "path migrated", "path migration request error", "local catastrophic error",
        "port active", "port error", "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached",
        "last WQE reached", "client reregistration", "GID table change", "WQ fatal"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "unknown";
}
