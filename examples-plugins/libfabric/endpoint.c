/* Choice of a provider, and the objects of libfabric that a communicator needs. */
#define _GNU_SOURCE
#include "libfabric.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define VERSION FI_VERSION(1, 11) /* of the interface: any newer libfabric provides it */

const char *lf_text(int error)
{
    return lf_api(NULL)->strerror(error < 0 ? -error : error);
}

dtl_status_t lf_code(int error)
{
    switch (error < 0 ? -error : error) {
    case FI_EAGAIN: return DTL_ERROR_BUSY;
    case FI_ENOMEM: return DTL_ERROR_OUT_OF_MEMORY;
    case FI_ENOSYS:
    case FI_EOPNOTSUPP: return DTL_ERROR_NOT_SUPPORTED;
    default: return DTL_ERROR_COMMUNICATION;
    }
}

/* Features that the plugin requires, and modes that it supports. */
static struct fi_info *requirements(uint64_t caps, const char *provider)
{
    struct fi_info *hints = lf_api(NULL)->dupinfo(NULL);
    if (hints == NULL) {
        return NULL;
    }
    hints->caps = caps | FI_DIRECTED_RECV;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->cq_data_size = sizeof(int32_t); /* for the rank of the sender */
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (provider != NULL) {
        hints->fabric_attr->prov_name = strdup(provider); /* freeinfo frees it */
    }
    return hints;
}

static int list(uint64_t caps, const char *provider, struct fi_info **out)
{
    struct fi_info *hints = requirements(caps, provider);
    int error = -FI_ENOMEM;
    *out = NULL;
    if (hints != NULL) {
        error = lf_api(NULL)->getinfo(VERSION, NULL, NULL, 0, hints, out);
        lf_api(NULL)->freeinfo(hints);
    }
    return error;
}

static int has_tag_bits(const struct fi_info *info)
{
    const uint64_t format = info->ep_attr->mem_tag_format; /* alternating fields, the highest bit is in the first */
    return format == 0 || format >> (LF_TAG_BITS - 2) != 0;
}

/* Whether a provider can be chosen without being named: one that reaches other nodes and is meant for use. */
static int is_for_networks(const char *provider)
{
    static const char *const others[] = {"shm", "sm2", "udp", "sockets", "net"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const size_t length = strlen(others[i]);
        if (strncmp(provider, others[i], length) == 0 && (provider[length] == '\0' || provider[length] == ';')) {
            return 0;
        }
    }
    return 1;
}

/* libfabric lists the fastest provider first. */
static const struct fi_info *best(const struct fi_info *infos, int must_reach_nodes)
{
    while (infos != NULL && (!has_tag_bits(infos) ||
                             (must_reach_nodes && !is_for_networks(infos->fabric_attr->prov_name)))) {
        infos = infos->next;
    }
    return infos;
}

dtl_status_t lf_choose(lf_choice_t *out)
{
    static const uint64_t wanted[] = {FI_TAGGED | FI_RMA | FI_ATOMIC, FI_TAGGED | FI_RMA, FI_TAGGED};
    const char *reason, *name = getenv("DTL_BACKEND_LIBFABRIC_PROVIDER");
    struct fi_info *infos;
    const int is_named = name != NULL && name[0] != '\0';
    if (lf_api(&reason) == NULL) {
        return lf_fail(DTL_ERROR_UNAVAILABLE, "%s", reason);
    }
    int error = list(FI_TAGGED, is_named ? name : NULL, &infos);
    const struct fi_info *info = error == 0 ? best(infos, !is_named) : NULL;
    if (info == NULL && error == 0 && !is_named) {
        info = best(infos, 0);
    }
    if (info == NULL) {
        lf_api(NULL)->freeinfo(infos);
        return lf_fail(DTL_ERROR_UNAVAILABLE, "no provider %s%s has reliable datagrams with tags, FI_DIRECTED_RECV and "
                       "remote CQ data (%s); fi_info -t FI_EP_RDM -c FI_TAGGED lists those that have, "
                       "DTL_BACKEND_LIBFABRIC_PROVIDER names one", is_named ? "named " : "here",
                       is_named ? name : "", lf_text(error == 0 ? FI_ENODATA : error));
    }
    snprintf(out->provider, sizeof out->provider, "%s", info->fabric_attr->prov_name);
    lf_api(NULL)->freeinfo(infos);
    out->caps = FI_TAGGED;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (list(wanted[i], out->provider, &infos) == 0) {
            lf_api(NULL)->freeinfo(infos);
            out->caps = wanted[i];
            break;
        }
    }
    return DTL_SUCCESS;
}

/* Whether the endpoint would have the address by which the other ranks reach this one. */
static int is_at(const struct fi_info *info, const struct sockaddr_storage *address)
{
    const struct sockaddr *its = info->src_addr;
    if (its == NULL || (info->addr_format != FI_SOCKADDR_IN && info->addr_format != FI_SOCKADDR_IN6) ||
        its->sa_family != address->ss_family) {
        return 0;
    }
    if (its->sa_family == AF_INET) {
        return memcmp(&((const struct sockaddr_in *)its)->sin_addr, &((const struct sockaddr_in *)address)->sin_addr,
                      sizeof(struct in_addr)) == 0;
    }
    return memcmp(&((const struct sockaddr_in6 *)its)->sin6_addr, &((const struct sockaddr_in6 *)address)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

static dtl_status_t choose_interface(lf_comm_t *comm, const lf_choice_t *choice, int socket)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    struct fi_info *infos;
    const int error = list(choice->caps, choice->provider, &infos);
    const struct fi_info *info = error == 0 ? best(infos, 0) : NULL;
    if (info == NULL) {
        return lf_fail(DTL_ERROR_UNAVAILABLE, "provider %s: %s", choice->provider,
                       lf_text(error == 0 ? FI_ENODATA : error));
    }
    if (socket >= 0 && getsockname(socket, (struct sockaddr *)&address, &size) == 0) {
        for (const struct fi_info *other = info; other != NULL; other = other->next) {
            if (has_tag_bits(other) && is_at(other, &address)) {
                info = other;
                break;
            }
        }
    }
    comm->info = lf_api(NULL)->dupinfo(info);
    lf_api(NULL)->freeinfo(infos);
    return comm->info != NULL ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static int open_objects(lf_comm_t *comm, const char **step)
{
    struct fi_info *info = comm->info;
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = (size_t)comm->size};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .size = info->tx_attr->size + info->rx_attr->size};
    int error;
    *step = "fi_fabric";
    error = lf_api(NULL)->fabric(info->fabric_attr, &comm->fabric, NULL);
    if (error == 0) {
        *step = "fi_domain";
        error = fi_domain(comm->fabric, info, &comm->domain, NULL);
    }
    if (error == 0) {
        *step = "fi_av_open";
        error = fi_av_open(comm->domain, &av, &comm->av, NULL);
    }
    if (error == 0) {
        *step = "fi_cq_open";
        error = fi_cq_open(comm->domain, &cq, &comm->cq, NULL);
    }
    if (error == 0) {
        *step = "fi_endpoint";
        error = fi_endpoint(comm->domain, info, &comm->ep, NULL);
    }
    if (error == 0) {
        *step = "fi_ep_bind";
        error = fi_ep_bind(comm->ep, &comm->av->fid, 0);
    }
    if (error == 0) {
        error = fi_ep_bind(comm->ep, &comm->cq->fid, FI_TRANSMIT | FI_RECV);
    }
    if (error == 0) {
        *step = "fi_enable";
        error = fi_enable(comm->ep);
    }
    return error;
}

dtl_status_t lf_endpoint_open(lf_comm_t *comm, const lf_choice_t *choice, int socket, unsigned char *address,
                              size_t *address_bytes)
{
    const char *step = "fi_getname";
    dtl_status_t status = choose_interface(comm, choice, socket);
    if (status != DTL_SUCCESS) {
        return status;
    }
    int error = open_objects(comm, &step);
    if (error == 0) {
        step = "fi_getname";
        error = fi_getname(&comm->ep->fid, address, address_bytes);
    }
    if (error != 0) {
        return lf_fail(lf_code(error), "provider %s, domain %s: %s: %s", choice->provider,
                       comm->info->domain_attr->name, step, lf_text(error));
    }
    return DTL_SUCCESS;
}

/* Closing in the order of dependence; whatever was opened. */
void lf_endpoint_close(lf_comm_t *comm)
{
    struct fid *const fids[] = {comm->ep != NULL ? &comm->ep->fid : NULL, comm->cq != NULL ? &comm->cq->fid : NULL,
                                comm->av != NULL ? &comm->av->fid : NULL,
                                comm->domain != NULL ? &comm->domain->fid : NULL,
                                comm->fabric != NULL ? &comm->fabric->fid : NULL};
    for (size_t i = 0; i < sizeof fids / sizeof fids[0]; i++) {
        if (fids[i] != NULL) {
            (void)fi_close(fids[i]);
        }
    }
    if (comm->info != NULL) {
        lf_api(NULL)->freeinfo(comm->info);
    }
}

int lf_register(lf_comm_t *comm, const void *buf, size_t size, uint64_t access, struct fid_mr **out_mr)
{
    const int mode = comm->info->domain_attr->mr_mode;
    *out_mr = NULL;
    if (access == 0) {
        if ((mode & FI_MR_LOCAL) == 0 || size == 0) {
            return 0;
        }
        access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
    }
    int error = fi_mr_reg(comm->domain, buf, size, access, 0, ++comm->next_key, 0, out_mr, NULL);
    if (error == 0 && (mode & FI_MR_ENDPOINT) != 0) {
        error = fi_mr_bind(*out_mr, &comm->ep->fid, 0);
        if (error == 0) {
            error = fi_mr_enable(*out_mr);
        }
        if (error != 0) {
            (void)fi_close(&(*out_mr)->fid);
            *out_mr = NULL;
        }
    }
    return error;
}
