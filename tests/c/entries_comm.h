/* The communicators' part of the table in entries.h. */
#ifndef DTL_TESTS_ENTRIES_COMM_H
#define DTL_TESTS_ENTRIES_COMM_H

static const uint64_t e_eight[1] = {8};
static const int32_t e_zero[1] = {0};

#define COMM_ENTRIES(X) \
    X(NONE, dtl_comm_get_world, (&o->handles.comm)) \
    X(NONE, dtl_comm_threads, (1, 0, &o->handles.comm))                                           \
    X(NONE, dtl_comm_open, (NULL, &o->handles.comm)) \
    X(NONE, dtl_comm_from_mpi_fint, (0, &o->handles.comm)) \
    X(COMM, dtl_comm_destroy, (h->comm)) \
    X(COMM, dtl_comm_rank, (h->comm, &o->number)) \
    X(COMM, dtl_comm_size, (h->comm, &o->number)) \
    X(COMM, dtl_comm_info, (h->comm, &o->comm_info)) \
    X(COMM, dtl_comm_send, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0)) \
    X(COMM, dtl_comm_ssend, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0)) \
    X(COMM, dtl_comm_recv, (h->comm, o->data, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,                \
        &o->recv_info)) \
    X(COMM, dtl_comm_sendrecv, (h->comm, e_source, 8, DTL_PROC_NULL, 0, o->data, 8,               \
        DTL_PROC_NULL, 0, DTL_DTYPE_BYTE, &o->recv_info)) \
    X(COMM, dtl_comm_sendrecv_replace, (h->comm, o->data, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,    \
        DTL_PROC_NULL, 0, &o->recv_info)) \
    X(COMM, dtl_comm_probe, (h->comm, DTL_PROC_NULL, 0, &o->recv_info)) \
    X(COMM, dtl_comm_iprobe, (h->comm, DTL_PROC_NULL, 0, &o->number, &o->recv_info)) \
    X(COMM, dtl_comm_mprobe, (h->comm, DTL_PROC_NULL, 0, &o->handles.message, &o->recv_info)) \
    X(COMM, dtl_comm_improbe, (h->comm, DTL_PROC_NULL, 0, &o->number, &o->handles.message,        \
        &o->recv_info)) \
    X(MESSAGE, dtl_comm_mrecv, (h->message, o->data, 8, DTL_DTYPE_BYTE, &o->recv_info)) \
    X(MESSAGE, dtl_comm_imrecv, (h->message, o->data, 8, DTL_DTYPE_BYTE, &o->handles.request)) \
    X(COMM, dtl_comm_isend, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,              \
        &o->handles.request)) \
    X(COMM, dtl_comm_isend_on, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,           \
        h->event, &o->handles.request)) \
    X(EVENT, dtl_comm_isend_on, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,          \
        h->event, &o->handles.request)) \
    X(COMM, dtl_comm_issend, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,             \
        &o->handles.request)) \
    X(COMM, dtl_comm_irecv, (h->comm, o->data, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,               \
        &o->handles.request)) \
    X(COMM, dtl_comm_send_init, (h->comm, e_source, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,          \
        &o->handles.request)) \
    X(COMM, dtl_comm_recv_init, (h->comm, o->data, 8, DTL_DTYPE_BYTE, DTL_PROC_NULL, 0,           \
        &o->handles.request)) \
    X(REQUEST, dtl_request_wait, (h->request, 0, &o->recv_info)) \
    X(REQUEST, dtl_request_test, (h->request, &o->number, &o->recv_info)) \
    X(REQUEST, dtl_request_cancel, (h->request)) \
    X(REQUEST, dtl_request_start, (h->request)) \
    X(REQUEST, dtl_request_destroy, (h->request)) \
    X(REQUEST, dtl_request_wait_all, ((o->requests[0] = h->request, o->requests), 1, 0, NULL)) \
    X(REQUEST, dtl_request_start_all, ((o->requests[0] = h->request, o->requests), 1)) \
    X(REQUEST, dtl_request_test_all, ((o->requests[0] = h->request, o->requests), 1,              \
        &o->number, NULL)) \
    X(REQUEST, dtl_request_wait_any, ((o->requests[0] = h->request, o->requests), 1, 0,           \
        &o->word, &o->recv_info)) \
    X(REQUEST, dtl_request_wait_some, ((o->requests[0] = h->request, o->requests), 1, 0,          \
        &o->word, &o->second, &o->recv_info)) \
    X(COMM, dtl_comm_barrier, (h->comm)) \
    X(COMM, dtl_comm_bcast, (h->comm, o->data, 8, DTL_DTYPE_BYTE, 0)) \
    X(COMM, dtl_comm_reduce, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM, 0)) \
    X(COMM, dtl_comm_allreduce, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM)) \
    X(COMM, dtl_comm_reduce_scatter_block, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8,        \
        DTL_OP_SUM)) \
    X(COMM, dtl_comm_reduce_scatter, (h->comm, e_source, o->data, e_eight, DTL_DTYPE_INT8,        \
        DTL_OP_SUM)) \
    X(COMM, dtl_comm_scan, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM)) \
    X(COMM, dtl_comm_exscan, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM)) \
    X(COMM, dtl_comm_gather, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE, 0)) \
    X(COMM, dtl_comm_gatherv, (h->comm, e_source, 8, o->data, e_eight, NULL, DTL_DTYPE_BYTE, 0)) \
    X(COMM, dtl_comm_scatter, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE, 0)) \
    X(COMM, dtl_comm_scatterv, (h->comm, e_source, e_eight, NULL, o->data, 8, DTL_DTYPE_BYTE,     \
        0)) \
    X(COMM, dtl_comm_allgather, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE)) \
    X(COMM, dtl_comm_allgatherv, (h->comm, e_source, 8, o->data, e_eight, NULL, DTL_DTYPE_BYTE)) \
    X(COMM, dtl_comm_alltoall, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE)) \
    X(COMM, dtl_comm_alltoallv, (h->comm, e_source, e_eight, NULL, o->data, e_eight, NULL,        \
        DTL_DTYPE_BYTE)) \
    X(COMM, dtl_comm_neighbor_alltoallv, (h->comm, e_zero, 1, e_source, e_eight, NULL, \
        e_zero, 1, o->data, e_eight, NULL, DTL_DTYPE_BYTE)) \
    X(COMM, dtl_comm_ibarrier, (h->comm, &o->handles.request)) \
    X(COMM, dtl_comm_ibcast, (h->comm, o->data, 8, DTL_DTYPE_BYTE, 0, &o->handles.request)) \
    X(COMM, dtl_comm_ireduce, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM, 0,      \
        &o->handles.request)) \
    X(COMM, dtl_comm_iallreduce, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM,      \
        &o->handles.request)) \
    X(COMM, dtl_comm_ireduce_scatter_block, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8,       \
        DTL_OP_SUM, &o->handles.request)) \
    X(COMM, dtl_comm_ireduce_scatter, (h->comm, e_source, o->data, e_eight, DTL_DTYPE_INT8,       \
        DTL_OP_SUM, &o->handles.request)) \
    X(COMM, dtl_comm_iscan, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM,           \
        &o->handles.request)) \
    X(COMM, dtl_comm_iexscan, (h->comm, e_source, o->data, 8, DTL_DTYPE_INT8, DTL_OP_SUM,         \
        &o->handles.request)) \
    X(COMM, dtl_comm_igather, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE, 0,                  \
        &o->handles.request)) \
    X(COMM, dtl_comm_igatherv, (h->comm, e_source, 8, o->data, e_eight, NULL, DTL_DTYPE_BYTE,     \
        0, &o->handles.request)) \
    X(COMM, dtl_comm_iscatter, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE, 0,                 \
        &o->handles.request)) \
    X(COMM, dtl_comm_iscatterv, (h->comm, e_source, e_eight, NULL, o->data, 8, DTL_DTYPE_BYTE,    \
        0, &o->handles.request)) \
    X(COMM, dtl_comm_iallgather, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE,                  \
        &o->handles.request)) \
    X(COMM, dtl_comm_iallgatherv, (h->comm, e_source, 8, o->data, e_eight, NULL,                  \
        DTL_DTYPE_BYTE, &o->handles.request)) \
    X(COMM, dtl_comm_ialltoall, (h->comm, e_source, 8, o->data, DTL_DTYPE_BYTE,                   \
        &o->handles.request)) \
    X(COMM, dtl_comm_ialltoallv, (h->comm, e_source, e_eight, NULL, o->data, e_eight, NULL,       \
        DTL_DTYPE_BYTE, &o->handles.request)) \
    X(COMM, dtl_comm_ineighbor_alltoallv, (h->comm, e_zero, 1, e_source, e_eight, NULL, \
        e_zero, 1, o->data, e_eight, NULL, DTL_DTYPE_BYTE, &o->handles.request)) \
    X(COMM, dtl_comm_register, (h->comm, o->data, 64)) \
    X(COMM, dtl_comm_deregister, (h->comm, o->data)) \
    X(COMM, dtl_comm_dup, (h->comm, &o->handles.comm)) \
    X(COMM, dtl_comm_split, (h->comm, 0, 0, &o->handles.comm)) \
    X(COMM, dtl_comm_split_node, (h->comm, 0, &o->handles.comm))                                  \
    X(COMM, dtl_comm_group_create, (h->comm, e_zero, 1, &o->handles.comm)) \
    X(COMM, dtl_comm_shrink, (h->comm, &o->handles.comm)) \
    X(COMM, dtl_comm_revoke, (h->comm)) \
    X(COMM, dtl_comm_grow, (h->comm, 1, 0, &o->handles.comm)) \
    X(COMM, dtl_comm_abort, (h->comm, 1)) \
    X(COMM, dtl_comm_dump, (h->comm, o->text, sizeof o->text, &o->word)) \
    X(NONE, dtl_comm_key_create, (NULL, NULL, NULL, &o->number)) \
    X(NONE, dtl_comm_key_destroy, (12345)) \
    X(COMM, dtl_comm_set_attr, (h->comm, 12345, NULL)) \
    X(COMM, dtl_comm_get_attr, (h->comm, 12345, &o->pointer, &o->number)) \
    X(COMM, dtl_comm_delete_attr, (h->comm, 12345)) \
    X(COMM, dtl_win_create, (h->comm, o->data, 8, 1, &o->handles.win)) \
    X(COMM, dtl_win_allocate, (h->comm, 8, 1, &o->pointer, &o->handles.win)) \
    X(WIN, dtl_win_destroy, (h->win)) \
    X(WIN, dtl_win_info, (h->win, 0, &o->win_info)) \
    X(WIN, dtl_win_fence, (h->win)) \
    X(WIN, dtl_win_lock, (h->win, DTL_LOCK_SHARED, 0)) \
    X(WIN, dtl_win_unlock, (h->win, 0)) \
    X(WIN, dtl_win_lock_all, (h->win)) \
    X(WIN, dtl_win_unlock_all, (h->win)) \
    X(WIN, dtl_win_flush, (h->win, 0)) \
    X(WIN, dtl_win_flush_local, (h->win, 0)) \
    X(WIN, dtl_win_flush_all, (h->win)) \
    X(WIN, dtl_win_flush_local_all, (h->win)) \
    X(WIN, dtl_win_put, (h->win, e_source, 8, DTL_DTYPE_BYTE, 0, 0)) \
    X(WIN, dtl_win_get, (h->win, o->data, 8, DTL_DTYPE_BYTE, 0, 0)) \
    X(WIN, dtl_win_rput, (h->win, e_source, 8, DTL_DTYPE_BYTE, 0, 0, &o->handles.request)) \
    X(WIN, dtl_win_rget, (h->win, o->data, 8, DTL_DTYPE_BYTE, 0, 0, &o->handles.request)) \
    X(WIN, dtl_win_accumulate, (h->win, e_source, 8, DTL_DTYPE_INT8, 0, 0, DTL_OP_SUM)) \
    X(WIN, dtl_win_get_accumulate, (h->win, e_source, o->data, 8, DTL_DTYPE_INT8, 0, 0, DTL_OP_SUM)) \
    X(WIN, dtl_win_fetch_op, (h->win, e_source, o->data, DTL_DTYPE_INT8, 0, 0, DTL_OP_SUM)) \
    X(WIN, dtl_win_compare_and_swap, (h->win, e_source, e_source, o->data, DTL_DTYPE_INT8, 0, 0))

#endif
