/* The plugin's entry, its table, and open and close. */
#include "meet.h"
#include "tcp.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const dtl_host_api_t *library; /* set before any slot is called */

dtl_status_t tcp_fail(dtl_status_t status, const char *format, ...)
{
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    DTL_IGNORE(library->set_error(text));
    return status;
}

static dtl_status_t meeting_failed(dtl_status_t status, const char *text)
{
    return tcp_fail(status, "tcp: %s", text);
}

/* Opens the connections of a communicator. */
static dtl_status_t connect_all(tcp_comm_t *comm, const dtl_comm_open_t *args)
{
    meet_t with = {"DTL_BACKEND_TCP_ROOT", args->job, comm->rank, comm->size, args->timeout_ns, NULL, meeting_failed};
    with.sockets = malloc((size_t)comm->size * sizeof *with.sockets);
    if (with.sockets == NULL) {
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    dtl_status_t status = meet(&with);
    for (int32_t rank = 0; rank < comm->size && status == DTL_SUCCESS; rank++) {
        comm->peers[rank].socket = with.sockets[rank];
    }
    for (int32_t rank = 0; rank < comm->size && status == DTL_SUCCESS; rank++) {
        if (rank != comm->rank) {
            status = tcp_watch(comm, rank);
        }
    }
    free(with.sockets);
    return status;
}

static dtl_status_t tcp_open(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                             int32_t *out_size)
{
    /* Nobody named ranks: this process is all there is. */
    const int32_t rank = args->size > 0 ? args->rank : 0, size = args->size > 0 ? args->size : 1;
    tcp_comm_t *comm = NULL;
    (void)self;
    dtl_status_t status = tcp_comm_new(rank, size, &comm);
    if (status != DTL_SUCCESS) {
        return status;
    }
    status = connect_all(comm, args);
    if (status != DTL_SUCCESS) {
        tcp_comm_free(comm);
        return status;
    }
    *out_comm = comm;
    *out_rank = rank;
    *out_size = size;
    return DTL_SUCCESS;
}

static dtl_status_t tcp_close(void *self, void *comm)
{
    (void)self;
    tcp_leave(comm);
    tcp_comm_free(comm);
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    library = host;
    comm.open = tcp_open;
    comm.close = tcp_close;
    comm.isend = tcp_isend;
    comm.irecv = tcp_irecv;
    comm.test = tcp_test;
    comm.cancel = tcp_cancel;
    table.comm = &comm;
    table.auto_priority = INT32_MIN; /* whoever wants it names it */
    return host->backend_register("tcp", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    (void)host;
    *out = (dtl_plugin_t)DTL_PLUGIN_INIT;
    out->name = "tcp";
    out->version = "1.0";
    out->description = "communicators over TCP sockets, on one machine or several";
    out->load = load;
    return DTL_SUCCESS;
}
