/* golden: one program in five languages. The output is the same whatever language each rank is in.
 *
 * Every rank reduces, passes its number round a ring, copies through a device, compiles and runs a kernel,
 * counts in a window, selects by a policy, and makes a call that fails. Rank 0 prints what it found, and
 * compares it with the report of every other rank.
 */
#include <dtl.h>

#include <stdio.h>
#include <string.h>

enum { N = 1000, REPORT = 512 };

static char report[REPORT];

/* Appends a line to the report. */
static void add(const char *line)
{
    strncat(report, line, sizeof report - strlen(report) - 1);
}

static void device(void)
{
    double numbers[N], back[N] = {0}, sum = 0;
    char line[100];
    dtl_backend_t host;
    void *memory = NULL;
    for (int i = 0; i < N; i++) numbers[i] = i;
    DTL_CHECK(dtl_backend_get("host", &host));
    DTL_CHECK(dtl_mem_alloc(host, DTL_MEMORY_DEVICE, sizeof numbers, 0, &memory));
    DTL_CHECK(dtl_mem_copy(memory, numbers, sizeof numbers));
    DTL_CHECK(dtl_mem_copy(back, memory, sizeof back));
    DTL_CHECK(dtl_mem_free(host, memory));
    for (int i = 0; i < N; i++) sum += back[i];
    snprintf(line, sizeof line, "device: the sum of the copies is %.0f\n", sum);
    add(line);
}

static const char source_text[] = "#include \"dtl_kernel.h\"\n"
                                  "DTL_KERNEL(twice, (DTL_GLOBAL float*, x), (unsigned, n))\n"
                                  "{\n"
                                  "    const DTL_SIZE i = DTL_GLOBAL_ID(0);\n"
                                  "    if (i < n) x[i] = 2 * x[i] + 1;\n"
                                  "}\n";

static void kernel(void)
{
    float x[4] = {0, 1, 2, 3};
    char line[100];
    dtl_backend_t host;
    dtl_stream_t stream;
    dtl_module_t module;
    dtl_kernel_t twice;
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    float *const at = x;
    const uint32_t n = 4;
    const void *args[] = {&at, &n};
    const uint64_t sizes[] = {sizeof at, sizeof n};
    DTL_CHECK(dtl_backend_get("host", &host));
    DTL_CHECK(dtl_stream_create(host, 0, 0, &stream));
    source.text = source_text;
    DTL_CHECK(dtl_module_compile(host, 0, &source, &module));
    DTL_CHECK(dtl_kernel_get(module, "twice", "pI", &twice));
    launch.block[0] = n;
    DTL_CHECK(dtl_kernel_launch(stream, twice, &launch, args, sizes, 2));
    DTL_CHECK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    DTL_CHECK(dtl_kernel_destroy(twice));
    DTL_CHECK(dtl_module_destroy(module));
    DTL_CHECK(dtl_stream_destroy(stream));
    snprintf(line, sizeof line, "kernel: 2 x + 1 is %.0f %.0f %.0f %.0f\n", x[0], x[1], x[2], x[3]);
    add(line);
}

/* Task of the policy: appends the value of its resource. */
static dtl_status_t note(const dtl_resource_t *resource, void *line, dtl_waitable_t *out_wait)
{
    (void)out_wait;
    sprintf((char *)line + strlen(line), " %d", (int)resource->value);
    return DTL_SUCCESS;
}

static void policy(void)
{
    const dtl_resource_t resources[3] = {{10, NULL}, {20, NULL}, {30, NULL}};
    const dtl_task_key_t key = {0, 0};
    char line[100] = "policy:";
    dtl_policy_t round_robin;
    DTL_CHECK(dtl_policy_create("round_robin", resources, 3, NULL, &round_robin));
    for (int i = 0; i < 5; i++) {
        DTL_CHECK(dtl_policy_submit_and_wait(round_robin, key, note, line, DTL_TIMEOUT_INFINITE));
    }
    DTL_CHECK(dtl_policy_release(round_robin));
    add(line), add("\n");
}

static void error(void)
{
    const int32_t number = 1;
    const dtl_status_t status = dtl_comm_send(DTL_COMM_WORLD, &number, 1, DTL_DTYPE_INT32, 99, 0);
    add("error: "), add(dtl_status_name(status)), add(": "), add(dtl_last_error()), add("\n");
}

/* Numbers that every rank must have a part in. */
static void together(int32_t rank, int32_t size)
{
    const double square = (rank + 1.0) * (rank + 1.0);
    const int32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const int64_t one = rank + 1;
    int32_t received = -1, all[64];
    int64_t before = 0;
    double sum = 0;
    void *base = NULL;
    dtl_win_t counter;
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &square, &sum, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    DTL_CHECK(dtl_comm_sendrecv(DTL_COMM_WORLD, &rank, 1, next, 7, &received, 1, previous, 7, DTL_DTYPE_INT32, NULL));
    DTL_CHECK(dtl_comm_gather(DTL_COMM_WORLD, &received, 1, all, DTL_DTYPE_INT32, 0));
    DTL_CHECK(dtl_win_allocate(DTL_COMM_WORLD, rank == 0 ? 8 : 0, 8, &base, &counter));
    DTL_CHECK(dtl_win_lock(counter, DTL_LOCK_SHARED, 0));
    DTL_CHECK(dtl_win_fetch_op(counter, &one, &before, DTL_DTYPE_INT64, 0, 0, DTL_OP_SUM));
    DTL_CHECK(dtl_win_unlock(counter, 0));
    DTL_CHECK(dtl_comm_barrier(DTL_COMM_WORLD));
    if (rank == 0) {
        printf("ranks: %d\nallreduce: the sum of the squares is %.0f\nring:", (int)size, sum);
        for (int32_t i = 0; i < size; i++) printf(" %d", (int)all[i]);
        printf("\nwindow: the counter is %lld\n", (long long)*(int64_t *)base);
    }
    DTL_CHECK(dtl_win_destroy(counter));
}

int main(void)
{
    static char reports[64][REPORT];
    int32_t rank = 0, size = 0, good = 1;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    if (size > 64) return 2;
    together(rank, size);
    device();
    kernel();
    policy();
    error();
    DTL_CHECK(dtl_comm_gather(DTL_COMM_WORLD, report, REPORT, reports, DTL_DTYPE_BYTE, 0));
    if (rank == 0) {
        printf("%s", report);
        for (int32_t i = 0; i < size; i++) {
            if (strcmp(reports[i], report) == 0) continue;
            printf("rank %d reports:\n%s", (int)i, reports[i]);
            good = 0;
        }
        printf("%s\n", good ? "every rank reports the same" : "WRONG");
    }
    DTL_CHECK(dtl_comm_bcast(DTL_COMM_WORLD, &good, 1, DTL_DTYPE_INT32, 0));
    DTL_CHECK(dtl_finalize());
    if (rank == 0) printf("finalized\n");
    return good ? 0 : 1;
}
