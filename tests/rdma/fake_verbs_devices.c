/* Devices, their one port, and its addresses. */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <fcntl.h>

static struct ibv_device devices[MOST_DEVICES];

API struct ibv_device** ibv_get_device_list(int* count) {
    pthread_mutex_lock(&own.lock);
    read_settings();
    int made = settings.devices > 0 ? settings.devices : 0;
    for (int d = 0; d < made; d++) {
        devices[d].node_type = IBV_NODE_CA;
        devices[d].transport_type = IBV_TRANSPORT_IB;
        snprintf(devices[d].name, sizeof devices[d].name, "fake%d", d);
        snprintf(devices[d].dev_name, sizeof devices[d].dev_name, "fakeverbs%d", d);
    }
    pthread_mutex_unlock(&own.lock);
    int code = fault("get_device_list");
    if (count) *count = 0;
    if (code || settings.devices == 0) {
        errno = code ? code : ENOSYS;
        return NULL;
    }
    struct ibv_device** list = calloc((size_t)made + 1, sizeof *list);
    for (int d = 0; list && d < made; d++) list[d] = &devices[d];
    if (count && list) *count = made;
    return list;
}

API void ibv_free_device_list(struct ibv_device** list) {
    free(list);
}

API const char* ibv_get_device_name(struct ibv_device* device) {
    return device->name;
}

API __be64 ibv_get_device_guid(struct ibv_device* device) {
    return htobe64(0x0002c90300fa4e00u + (uint64_t)(device - devices));
}

API int ibv_get_device_index(struct ibv_device* device) {
    return (int)(device - devices);
}

API int ibv_fork_init(void) {
    return 0;
}

API enum ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}

static own_context_t* fill_context(struct ibv_device* device, int ends[2]) {
    own_context_t* c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->ibv.device = device;
    c->ibv.ops.poll_cq = fake_poll_cq;
    c->ibv.ops.req_notify_cq = fake_req_notify_cq;
    c->ibv.ops.post_send = fake_post_send;
    c->ibv.ops.post_recv = fake_post_recv;
    c->ibv.cmd_fd = -1;
    c->ibv.async_fd = ends[0];
    c->ibv.num_comp_vectors = 2;
    pthread_mutex_init(&c->ibv.mutex, NULL);
    c->device = (uint32_t)(device - devices);
    c->write_fd = ends[1];
    return c;
}

/* Its place in the table of contexts. */
static int place_context(own_context_t* c) {
    lock_fabric();
    for (uint32_t i = 0; i < MOST_CONTEXTS; i++) {
        context_t* place = &own.fabric->contexts[i];
        if (place->is_used) continue;
        *place = (context_t){.is_used = 1, .owner = own.me, .device = c->device, .async_fd = c->write_fd};
        c->index = i;
        unlock_fabric();
        return 0;
    }
    unlock_fabric();
    return ENOMEM;
}

API struct ibv_context* ibv_open_device(struct ibv_device* device) {
    int ends[2], code = fault("open_device");
    if (!code) code = join_fabric();
    if (!code && pipe2(ends, O_CLOEXEC)) code = errno;
    if (code) {
        errno = code;
        return NULL;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    own_context_t* c = fill_context(device, ends);
    code = c ? place_context(c) : ENOMEM;
    if (code) {
        free(c);
        close(ends[0]);
        close(ends[1]);
        errno = code;
        return NULL;
    }
    grow(&counters.contexts, NULL, 1);
    start_engine();
    return &c->ibv;
}

API int ibv_close_device(struct ibv_context* context) {
    own_context_t* c = (own_context_t*)context;
    int code = fault("close_device");
    if (!code && (c->pds || c->cqs || c->channels)) {
        fprintf(stderr, "fake_verbs: close_device with %d PDs, %d CQs and %d channels\n", c->pds, c->cqs, c->channels);
        code = EBUSY;
    }
    if (code) {
        errno = code;
        return -1;
    }
    lock_fabric();
    own.fabric->contexts[c->index].is_used = 0;
    unlock_fabric();
    close(c->ibv.async_fd);
    close(c->write_fd);
    pthread_mutex_destroy(&c->ibv.mutex);
    free(c);
    counters.contexts--;
    stop_engine();
    return 0;
}

API int ibv_query_device(struct ibv_context* context, struct ibv_device_attr* attr) {
    int code = fault("query_device");
    if (code) return code;
    memset(attr, 0, sizeof *attr);
    strcpy(attr->fw_ver, "0.0.1");
    attr->node_guid = attr->sys_image_guid = ibv_get_device_guid(context->device);
    attr->max_mr_size = 1ull << 40;
    attr->page_size_cap = 0xfffff000;
    attr->vendor_id = 0xfa4e;
    attr->max_qp = MOST_QPS - 2;
    attr->max_qp_wr = (int)settings.most_wr;
    attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID;
    attr->max_sge = attr->max_sge_rd = MOST_SGE;
    attr->max_cq = MOST_CQS;
    attr->max_cqe = MOST_CQE;
    attr->max_mr = MOST_MRS;
    attr->max_pd = 1 << 16;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = MOST_READS;
    attr->max_res_rd_atom = MOST_READS * MOST_QPS;
    attr->atomic_cap = settings.has_no_atomics ? IBV_ATOMIC_NONE : IBV_ATOMIC_HCA;
    attr->max_pkeys = 1;
    attr->local_ca_ack_delay = 15;
    attr->phys_port_cnt = 1;
    return 0;
}

/* The caller's structure may be the older, shorter one: its last field is flags. */
API int ibv_query_port(struct ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* compat) {
    own_context_t* c = (own_context_t*)context;
    struct ibv_port_attr attr = {0};
    int code = fault("query_port");
    if (!code && port != 1) code = EINVAL;
    if (code) return code;
    lock_fabric();
    bool is_down = own.fabric->port_down[c->device];
    unlock_fabric();
    attr.state = is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr.phys_state = is_down ? 3 : 5;
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = settings.is_infiniband ? IBV_MTU_4096 : IBV_MTU_1024;
    attr.gid_tbl_len = gid_count() + 1; /* the last one is empty */
    attr.max_msg_sz = 1u << 30;
    attr.pkey_tbl_len = 1;
    attr.lid = settings.is_infiniband ? (uint16_t)(0x10 + c->device) : 0;
    attr.sm_lid = settings.is_infiniband ? 1 : 0;
    attr.max_vl_num = 1;
    attr.active_width = 2;
    attr.active_speed = 32;
    attr.link_layer = settings.is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    memcpy(compat, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
    return 0;
}

int gid_count(void) {
    return settings.is_infiniband ? 1 : GIDS;
}

/* RoCE: 0 and 2 are the link-local address, 1 the IPv4 one, as the kernel has them. */
void gid_of(uint32_t device, int index, union ibv_gid* gid) {
    memset(gid, 0, sizeof *gid);
    if (index >= gid_count()) return;
    if (index == 1) {
        gid->raw[10] = gid->raw[11] = 0xff;
        gid->raw[12] = 10;
        gid->raw[13] = 99;
        gid->raw[15] = (uint8_t)(device + 1);
        return;
    }
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    gid->raw[8] = 0x02;
    gid->raw[11] = 0xff;
    gid->raw[12] = 0xfe;
    gid->raw[15] = (uint8_t)(device + 1);
}

int device_of(const union ibv_gid* gid) {
    for (uint32_t d = 0; d < MOST_DEVICES; d++) {
        for (int i = 0; i < gid_count(); i++) {
            union ibv_gid one;
            gid_of(d, i, &one);
            if (!memcmp(&one, gid, sizeof one)) return (int)d;
        }
    }
    return -1;
}

uint32_t gid_type(int index) {
    return settings.is_infiniband ? IBV_GID_TYPE_IB : index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}

API int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
    int code = fault("query_gid");
    if (!code && (port != 1 || index < 0 || index > gid_count())) code = EINVAL;
    if (code) {
        errno = code;
        return -1;
    }
    gid_of(((own_context_t*)context)->device, index, gid);
    return 0;
}

API int _ibv_query_gid_ex(struct ibv_context* context, uint32_t port, uint32_t index, struct ibv_gid_entry* entry, uint32_t flags,
                          size_t size) {
    int code = fault("query_gid_ex");
    if (code) return code;
    if (port != 1 || flags || size < sizeof *entry || index > (uint32_t)gid_count()) return EINVAL;
    if (index == (uint32_t)gid_count()) return ENODATA;
    memset(entry, 0, size);
    gid_of(((own_context_t*)context)->device, (int)index, &entry->gid);
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = gid_type((int)index);
    return 0;
}

API ssize_t _ibv_query_gid_table(struct ibv_context* context, struct ibv_gid_entry* entries, size_t most, uint32_t flags,
                                 size_t size) {
    size_t count = (size_t)gid_count() < most ? (size_t)gid_count() : most;
    for (uint32_t i = 0; i < count; i++) {
        int code = _ibv_query_gid_ex(context, 1, i, &entries[i], flags, size);
        if (code) return -code;
    }
    return (ssize_t)count;
}

API int ibv_query_pkey(struct ibv_context* context, uint8_t port, int index, __be16* pkey) {
    (void)context;
    int code = fault("query_pkey");
    if (!code && (port != 1 || index != 0)) code = EINVAL;
    if (code) {
        errno = code;
        return -1;
    }
    *pkey = 0xffff;
    return 0;
}

API int ibv_get_pkey_index(struct ibv_context* context, uint8_t port, __be16 pkey) {
    (void)context;
    return port == 1 && pkey == 0xffff ? 0 : -1;
}

API const char* ibv_node_type_str(enum ibv_node_type type) {
    return type == IBV_NODE_CA ? "InfiniBand channel adapter" : "unknown";
}

API const char* ibv_port_state_str(enum ibv_port_state state) {
    return state == IBV_PORT_ACTIVE ? "active" : state == IBV_PORT_DOWN ? "down" : "other";
}
