/* A plugin as it was compiled against the header of ABI version 2, kept as a file (plugin.so) that every later
 * library has to load. Memory, transfers, streams that run at once, and a five-function communicator of one
 * rank. Must not be changed: make.sh says how the file was made. */
#include <dtl.h>

#include <stdlib.h>
#include <string.h>

static const dtl_host_api_t *host_api;

/* ---- a device, memory and copies ---- */

static _Thread_local int32_t current;

static dtl_status_t count(void *self, int32_t *out) { (void)self; *out = 2; return DTL_SUCCESS; }
static dtl_status_t get(void *self, int32_t *out) { (void)self; *out = current; return DTL_SUCCESS; }
static dtl_status_t set(void *self, int32_t device) { (void)self; current = device; return DTL_SUCCESS; }

static dtl_status_t info(void *self, int32_t device, dtl_device_info_t *out)
{
    (void)self;
    strcpy(out->name, device == 0 ? "frozen zero" : "frozen one");
    out->total_bytes = 1000;
    return DTL_SUCCESS;
}

static dtl_status_t take(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out)
{
    (void)self;
    if (kind != DTL_MEMORY_HOST && kind != DTL_MEMORY_DEVICE) return DTL_ERROR_NOT_SUPPORTED;
    if (size > UINT64_C(1) << 40) {
        host_api->set_error("the frozen plugin has no such amounts");
        return DTL_ERROR_OUT_OF_MEMORY;
    }
    return posix_memalign(out, alignment < 16 ? 16 : alignment, size) == 0 ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t give(void *self, void *ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src, dtl_enum_word_t src_kind,
                         uint64_t size)
{
    (void)self, (void)dst_kind, (void)src_kind;
    memcpy(dst, src, size);
    return DTL_SUCCESS;
}

/* ---- streams whose work is done at once ---- */

static dtl_status_t make(void *self, int32_t device, uint64_t flags, void **out)
{
    (void)self, (void)device, (void)flags;
    *out = malloc(1);
    return *out != NULL ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t make_event(void *self, uint64_t flags, void **out) { return make(self, 0, flags, out); }
static dtl_status_t end(void *self, void *what) { (void)self; free(what); return DTL_SUCCESS; }
static dtl_status_t nothing(void *self, void *stream) { (void)self, (void)stream; return DTL_SUCCESS; }
static dtl_status_t record(void *self, void *event, void *stream) { (void)self, (void)event, (void)stream; return DTL_SUCCESS; }
static dtl_status_t query(void *self, void *event, int32_t *out) { (void)self, (void)event; *out = 1; return DTL_SUCCESS; }

static dtl_status_t loop(void *self, uint64_t begin, uint64_t end_, uint64_t grain, dtl_range_fn_t body, void *user)
{
    (void)self;
    for (; begin < end_; begin += grain) {
        const dtl_status_t status = body(begin, end_ - begin < grain ? end_ : begin + grain, user);
        if (status != DTL_SUCCESS) return status;
    }
    return DTL_SUCCESS;
}

static dtl_status_t call(void *self, dtl_task_fn_t function, void *user) { (void)self; return function(user); }
static dtl_status_t one(void *self, uint32_t *out) { (void)self; *out = 1; return DTL_SUCCESS; }

/* ---- a communicator of one rank: messages to oneself ---- */

typedef struct message {
    struct message *next;
    uint64_t word, size;
    const void *bytes;
    uint64_t op;
} message;

typedef struct {
    message *sent, *posted;
    struct { uint64_t op; dtl_comm_done_t done; } over[256];
    int over_count;
    uint64_t next;
} queue;

static dtl_status_t open_comm(void *self, const dtl_comm_open_t *args, void **out, int32_t *rank, int32_t *size)
{
    (void)self, (void)args;
    *rank = 0;
    *size = 1;
    *out = calloc(1, sizeof(queue));
    return *out != NULL ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t close_comm(void *self, void *comm) { (void)self; free(comm); return DTL_SUCCESS; }

static void finish(queue *q, uint64_t op, dtl_status_t status, uint64_t word, uint64_t size)
{
    dtl_comm_done_t done;
    memset(&done, 0, sizeof done);
    done.status = status;
    done.match_word = word;
    done.size_bytes = size;
    q->over[q->over_count].op = op;
    q->over[q->over_count++].done = done;
}

static message *find(message **list, uint64_t word)
{
    message *found;
    while (*list != NULL && (*list)->word != word) list = &(*list)->next;
    found = *list;
    if (found != NULL) *list = found->next;
    return found;
}

static void append(message **list, message *what)
{
    while (*list != NULL) list = &(*list)->next;
    what->next = NULL;
    *list = what;
}

static void deliver(queue *q, const message *from, const message *to)
{
    const uint64_t fits = from->size < to->size ? from->size : to->size;
    if (fits > 0) memcpy((void *)to->bytes, from->bytes, fits);
    finish(q, from->op, DTL_SUCCESS, from->word, from->size);
    finish(q, to->op, from->size > to->size ? DTL_ERROR_TRUNCATED : DTL_SUCCESS, from->word, from->size);
}

static dtl_status_t start(queue *q, int sends, const void *bytes, uint64_t size, uint64_t word, uint64_t *out_op)
{
    message *mine = malloc(sizeof *mine), *other;
    if (mine == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    mine->word = word, mine->size = size, mine->bytes = bytes, mine->op = *out_op = q->next++;
    other = find(sends ? &q->posted : &q->sent, word);
    if (other == NULL) {
        append(sends ? &q->sent : &q->posted, mine);
        return DTL_SUCCESS;
    }
    deliver(q, sends ? mine : other, sends ? other : mine);
    free(mine);
    free(other);
    return DTL_SUCCESS;
}

static dtl_status_t isend(void *self, void *comm, const void *buf, uint64_t size, int32_t dest, uint64_t word, uint64_t *op)
{
    (void)self, (void)dest;
    return start(comm, 1, buf, size, word, op);
}

static dtl_status_t irecv(void *self, void *comm, void *buf, uint64_t size, int32_t source, uint64_t word,
                          uint64_t ignore, uint64_t *op)
{
    (void)self, (void)source, (void)ignore;
    return start(comm, 0, buf, size, word, op);
}

static dtl_status_t test(void *self, void *comm, uint64_t op, int32_t *out_done, dtl_comm_done_t *out)
{
    queue *q = comm;
    int i;
    (void)self;
    *out_done = 0;
    for (i = 0; i < q->over_count; i++) {
        if (q->over[i].op != op) continue;
        *out_done = 1;
        *out = q->over[i].done;
        q->over[i] = q->over[--q->over_count];
        break;
    }
    return DTL_SUCCESS;
}

/* ---- */

static dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_comm_vtable_t comm = DTL_COMM_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    device.count = count, device.set = set, device.get = get, device.info = info;
    memory.alloc = take, memory.free = give;
    transfer.copy = copy;
    exec.stream_create = make, exec.stream_destroy = end, exec.stream_synchronize = nothing;
    exec.event_create = make_event, exec.event_destroy = end, exec.event_record = record, exec.event_query = query;
    exec.execute = call, exec.parallel_for = loop, exec.max_parallelism = one;
    comm.open = open_comm, comm.close = close_comm, comm.isend = isend, comm.irecv = irecv, comm.test = test;
    table.auto_priority = INT32_MIN;
    table.device = &device, table.memory = &memory, table.transfer = &transfer, table.exec = &exec, table.comm = &comm;
    host_api = host;
    host->log(DTL_LOG_DEBUG, "frozen registers");
    return host->backend_register("frozen", &table, NULL, 0, &backend);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *host, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)host;
    plugin.name = "frozen";
    plugin.version = "1";
    plugin.description = "compiled once, for ABI version 2";
    plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
