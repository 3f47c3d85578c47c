/* The comm table of mpi/dtl_mpi.c as a plugin file over MPI_COMM_WORLD, so that dtl-ctk can test it. Not a
 * test by itself: tests/mpi.cmake compiles it with each MPI's mpicc.
 *
 * A plugin links nothing of the library; dtl_mpi.c calls four functions of it. Two of them the host offers as
 * well; the others belong to calls that a plugin does not have. */
#include <dtl.h>

static const dtl_host_api_t *host;

#define dtl_backend_set_error(text) (host->set_error(text))
#define dtl_backend_register(name, table, self, flags, out) (host->backend_register(name, table, self, flags, out))
#define dtl_backend_get(name, out) (DTL_ERROR_NOT_FOUND)
#define dtl_comm_open(desc, out) ((void)(out), DTL_ERROR_NOT_SUPPORTED)
#include "../../../mpi/dtl_mpi.c"

/* Without this, mpirun takes a process that ends well for one that crashed. */
static void end_mpi(void)
{
    int over = 1;
    MPI_Finalized(&over);
    if (!over) MPI_Finalize();
}

static dtl_status_t open_world(void *self, const dtl_comm_open_t *args, void **out_comm, int32_t *out_rank,
                               int32_t *out_size)
{
    opening_t opening = {MPI_COMM_WORLD, NULL};
    dtl_comm_open_t with_world = *args;
    int runs = 0, level;
    MPI_Initialized(&runs);
    if (!runs) {
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return DTL_ERROR_INIT_FAILED;
        atexit(end_mpi);
    }
    with_world.config = &opening;
    return comm_open(self, &with_world, out_comm, out_rank, out_size);
}

static dtl_status_t load(const dtl_host_api_t *api)
{
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    host = api;
    comm.match_bits = TAG_BITS;
    comm.open = open_world;
    comm.close = comm_close;
    comm.isend = comm_isend;
    comm.irecv = comm_irecv;
    comm.test = comm_test;
    comm.cancel = comm_cancel;
    table.comm = &comm;
    table.auto_priority = INT32_MIN;
    return api->backend_register("mpi-shim", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *api, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)api;
    plugin.name = "mpi-shim";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
