/* A program as it was compiled against the header of ABI version 2, kept as a file (program) that every later
 * library has to run: dtlrun -n N program PLUGIN. Must not be changed: make.sh says how the file was made. */
#include <dtl.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                \
    do {                                                                                                \
        if (!(condition)) {                                                                             \
            fprintf(stderr, "frozen program, line %d: %s; last error: %s\n", __LINE__, #condition, dtl_last_error()); \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)
#define OK(call) CHECK((call) == DTL_SUCCESS)

static dtl_status_t add_one(uint64_t begin, uint64_t end, void *user)
{
    int32_t *numbers = user;
    for (; begin < end; begin++) numbers[begin]++;
    return DTL_SUCCESS;
}

static dtl_status_t task(void *user) { *(int *)user += 1; return DTL_SUCCESS; }

static dtl_status_t kernel(const dtl_kernel_context_t *context, const void *const *args)
{
    int32_t *numbers = *(int32_t *const *)args[0];
    numbers[context->block_index[0] * context->block[0] + context->thread_index[0]] += 2;
    return DTL_SUCCESS;
}

static void use_backend(const char *name)
{
    dtl_backend_t backend;
    dtl_backend_info_t about = DTL_BACKEND_INFO_INIT;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_executor_t executor;
    dtl_executor_desc_t desc = DTL_EXECUTOR_DESC_INIT;
    dtl_kernel_t function;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    int32_t host[64], back[64], devices = 0, yes = 0, i;
    int calls = 0;
    void *memory = NULL;
    OK(dtl_backend_get(name, &backend));
    OK(dtl_backend_info(backend, &about));
    CHECK(strcmp(about.name, name) == 0);
    OK(dtl_backend_is_available(backend, &yes, NULL, 0, NULL));
    CHECK(yes == 1);
    OK(dtl_backend_device_count(backend, &devices));
    CHECK(devices >= 1);
    OK(dtl_backend_set_device(backend, devices - 1));
    OK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, sizeof host, 64, &memory));
    CHECK((uintptr_t)memory % 64 == 0);
    for (i = 0; i < 64; i++) host[i] = i;
    OK(dtl_stream_create(backend, devices - 1, 0, &stream));
    OK(dtl_event_create(backend, 0, &event));
    OK(dtl_mem_copy_async(stream, memory, host, sizeof host));
    OK(dtl_kernel_from_function(backend, kernel, NULL, &function));
    launch.grid[0] = 8;
    launch.block[0] = 8;
    {
        const void *args[1] = {&memory};
        const uint64_t sizes[1] = {sizeof memory};
        OK(dtl_kernel_launch(stream, function, &launch, args, sizes, 1));
    }
    OK(dtl_event_record(event, stream));
    OK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE));
    OK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    OK(dtl_executor_create(backend, &desc, &executor));
    OK(dtl_executor_parallel_for(executor, 0, 64, 10, add_one, memory));
    OK(dtl_executor_run(executor, task, &calls));
    CHECK(calls == 1);
    OK(dtl_mem_copy(back, memory, sizeof back));
    for (i = 0; i < 64; i++) CHECK(back[i] == i + 3);
    OK(dtl_executor_destroy(executor));
    OK(dtl_kernel_destroy(function));
    OK(dtl_event_destroy(event));
    OK(dtl_stream_destroy(stream));
    CHECK(dtl_event_wait(event, DTL_TIMEOUT_INFINITE) == DTL_ERROR_INVALID_HANDLE);
    CHECK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, UINT64_C(1) << 62, 64, &memory) == DTL_ERROR_OUT_OF_MEMORY);
    OK(dtl_mem_free(backend, memory));
}

static void use_comm(dtl_comm_t comm)
{
    dtl_comm_t half, dup;
    dtl_request_t requests[2];
    dtl_recv_info_t infos[2], info;
    double mine[3] = {1, 2, 3}, sum[3];
    int32_t rank, size, got = -1, all[64], i, color;
    OK(dtl_comm_rank(comm, &rank));
    OK(dtl_comm_size(comm, &size));
    OK(dtl_comm_barrier(comm));
    OK(dtl_comm_allreduce(comm, mine, sum, 3, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    for (i = 0; i < 3; i++) CHECK(sum[i] == mine[i] * size);
    OK(dtl_comm_irecv(comm, &got, 1, DTL_DTYPE_INT32, DTL_ANY_SOURCE, DTL_ANY_TAG, &requests[0]));
    OK(dtl_comm_isend(comm, &rank, 1, DTL_DTYPE_INT32, (rank + 1) % size, 7, &requests[1]));
    OK(dtl_request_wait_all(requests, 2, UINT64_C(60000000000), infos));
    CHECK(got == (rank + size - 1) % size && infos[0].tag == 7 && infos[0].source == got);
    OK(dtl_comm_allgather(comm, &rank, 1, all, DTL_DTYPE_INT32));
    for (i = 0; i < size; i++) CHECK(all[i] == i);
    color = rank % 2;
    OK(dtl_comm_split(comm, color, -rank, &half));
    OK(dtl_comm_dup(half, &dup));
    OK(dtl_comm_bcast(dup, &color, 1, DTL_DTYPE_INT32, 0));
    CHECK(color == rank % 2);
    OK(dtl_comm_destroy(dup));
    OK(dtl_comm_destroy(half));
    CHECK(dtl_comm_sendrecv(comm, mine, 3, rank, 1, sum, 2, rank, 1, DTL_DTYPE_FLOAT64, &info) == DTL_ERROR_TRUNCATED);
    CHECK(info.size_bytes == sizeof mine);
    CHECK(dtl_comm_send(comm, mine, 3, DTL_DTYPE_FLOAT64, size, 1) == DTL_ERROR_INVALID_RANK);
}

int main(int argc, char **argv)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    dtl_backend_t plugin;
    CHECK(argc == 2 && dtl_library_abi_version() >= DTL_ABI_VERSION);
    OK(dtl_init(NULL));
    use_backend("host");
    OK(dtl_backend_load(argv[1], &plugin));
    use_backend("frozen");
    use_comm(DTL_COMM_WORLD);
    use_comm(DTL_COMM_SELF);
    desc.kind = "frozen";
    OK(dtl_comm_open(&desc, &comm));
    use_comm(comm);
    OK(dtl_comm_destroy(comm));
    OK(dtl_finalize());
    puts("ok");
    return 0;
}
