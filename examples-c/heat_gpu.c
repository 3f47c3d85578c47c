/* heat_gpu: the temperature of a square plate on devices, each rank with a slab of rows in its device's memory.
 *
 * The kernel is one source for every backend (dtl_kernel.h). In each step a rank computes its outermost rows first and
 * records an event; they go to the neighbours as soon as that is reached (dtl_comm_isend_on), while the device computes
 * the other rows. The pointers that are sent and received are the device's own: where the host cannot reach them the
 * library stages them, and `dtl_explain` says so. At the end rank 0 gets all rows (gatherv, from device memory) and
 * compares them with a plain loop of its own; devices round differently, so in the last digits the two may differ.
 *
 * Build: cc heat_gpu.c $(pkg-config --cflags --libs libdtl) -lm -o heat_gpu
 * Run:   dtlrun -n 4 ./heat_gpu [cells on a side, default 96] [steps, default 200]
 *        with DTL_BACKEND=host, opencl or cuda; without it the best one that is there
 */
#include <dtl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char source_text[] =
    "#include \"dtl_kernel.h\"\n"
    "DTL_KERNEL(heat, (DTL_GLOBAL const float*, now), (DTL_GLOBAL float*, next), (unsigned, width), (unsigned, first),\n"
    "           (unsigned, stride), (unsigned, rows))\n"
    "{\n"
    "    const DTL_SIZE x = DTL_GLOBAL_ID(0) + 1, turn = DTL_GLOBAL_ID(1), at = (first + turn * stride) * width + x;\n"
    "    if (x < width - 1 && turn < rows)\n"
    "        next[at] = 0.25f * ((now[at - width] + now[at + width]) + (now[at - 1] + now[at + 1]));\n"
    "}\n";

enum { BLOCK_X = 16, BLOCK_Y = 4, UP = 1, DOWN = 2 };

typedef struct slab {
    unsigned width, rows;   /* cells of a row, its two fixed ends included; rows of this rank, without the frame's two */
    float *now, *next;      /* (rows + 2) x width, in the device's memory */
    int above, below;       /* ranks, or DTL_PROC_NULL */
    dtl_stream_t stream;
    dtl_event_t borders;
    dtl_kernel_t kernel;
} slab;

static unsigned first_of(unsigned count, int part, int parts) { return (unsigned)((uint64_t)count * (uint64_t)part / (uint64_t)parts); }

/* Rows first, first + stride, …: `rows` of them. */
static void launch(const slab *s, unsigned first, unsigned stride, unsigned rows)
{
    const void *const args[] = {&s->now, &s->next, &s->width, &first, &stride, &rows};
    const uint64_t sizes[] = {sizeof s->now, sizeof s->next, 4, 4, 4, 4};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    if (rows == 0) return;
    shape.grid[0] = (s->width + BLOCK_X - 1) / BLOCK_X, shape.grid[1] = (rows + BLOCK_Y - 1) / BLOCK_Y;
    shape.block[0] = BLOCK_X, shape.block[1] = BLOCK_Y;
    DTL_CHECK(dtl_kernel_launch(s->stream, s->kernel, &shape, args, sizes, 6));
}

static void step(slab *s)
{
    const uint64_t count = s->width;
    float *const next = s->next, *const old = s->now;
    dtl_request_t receives[2], sends[2];
    launch(s, 1, s->rows > 1 ? s->rows - 1 : 1, s->rows > 1 ? 2 : 1);
    DTL_CHECK(dtl_event_record(s->borders, s->stream));
    launch(s, 2, 1, s->rows > 2 ? s->rows - 2 : 0);
    DTL_CHECK(dtl_comm_irecv(DTL_COMM_WORLD, next, count, DTL_DTYPE_FLOAT32, s->above, DOWN, &receives[0]));
    DTL_CHECK(dtl_comm_irecv(DTL_COMM_WORLD, next + (s->rows + 1) * count, count, DTL_DTYPE_FLOAT32, s->below, UP, &receives[1]));
    DTL_CHECK(dtl_comm_isend_on(DTL_COMM_WORLD, next + count, count, DTL_DTYPE_FLOAT32, s->above, UP, s->borders, &sends[0]));
    DTL_CHECK(dtl_comm_isend_on(DTL_COMM_WORLD, next + s->rows * count, count, DTL_DTYPE_FLOAT32, s->below, DOWN, s->borders, &sends[1]));
    /* The sends first: they fail if this device has failed. If the neighbours' devices have failed, too, nothing arrives. */
    DTL_CHECK(dtl_request_wait_all(sends, 2, DTL_TIMEOUT_INFINITE, NULL));
    DTL_CHECK(dtl_request_wait_all(receives, 2, DTL_TIMEOUT_INFINITE, NULL));
    DTL_CHECK(dtl_stream_wait(s->stream, DTL_TIMEOUT_INFINITE));
    s->now = next, s->next = old;
}

static dtl_kernel_t compile(dtl_backend_t backend)
{
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module;
    dtl_kernel_t kernel;
    source.text = source_text, source.name = "heat";
    DTL_CHECK(dtl_module_compile(backend, 0, &source, &module));
    DTL_CHECK(dtl_kernel_get(module, "heat", "ppIIII", &kernel));
    DTL_CHECK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    return kernel;
}

/* Says why this backend cannot be used, if it cannot. */
static int is_there(dtl_backend_t backend)
{
    char why[512];
    int32_t yes = 0, compiles = 0;
    DTL_CHECK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    if (yes) DTL_CHECK(dtl_backend_supports(backend, "modules", &compiles));
    if (!compiles) printf("skipped: backend %s: %s\n", dtl_backend_name(backend), yes ? "compiles no kernels" : why);
    return compiles;
}

static float *zeros(size_t count)
{
    float *got = calloc(count, sizeof *got);
    if (got == NULL) perror("heat_gpu"), exit(1);
    return got;
}

/* The largest difference to the same by one loop. All rows: (side + 2) x (side + 2), the frame's too. */
static double compare(const float *rows, unsigned side, int steps)
{
    const size_t width = side + 2;
    float *now = zeros(width * width), *next = zeros(width * width);
    double worst = 0;
    for (size_t x = 1; x <= side; x++) now[x] = next[x] = 100;
    for (int n = 0; n < steps; n++) {
        float *const old = now;
        for (size_t y = 1; y <= side; y++) {
            for (size_t x = 1; x <= side; x++) {
                const size_t at = y * width + x;
                next[at] = 0.25f * ((now[at - width] + now[at + width]) + (now[at - 1] + now[at + 1]));
            }
        }
        now = next, next = old;
    }
    for (size_t at = 0; at < side * width; at++) worst = fmax(worst, fabs((double)rows[at] - (double)now[width + at]));
    free(now), free(next);
    return worst;
}

static double solve(dtl_backend_t backend, unsigned side, int steps, int rank, int size)
{
    slab s = {.width = side + 2};
    const unsigned top = first_of(side, rank, size);
    uint64_t *const counts = calloc((size_t)size, sizeof *counts);
    if (counts == NULL) perror("heat_gpu"), exit(1);
    for (int r = 0; r < size; r++) counts[r] = (uint64_t)(first_of(side, r + 1, size) - first_of(side, r, size)) * s.width;
    s.rows = first_of(side, rank + 1, size) - top;
    s.above = rank > 0 ? rank - 1 : DTL_PROC_NULL, s.below = rank + 1 < size ? rank + 1 : DTL_PROC_NULL;
    s.kernel = compile(backend);
    DTL_CHECK(dtl_stream_create(backend, 0, 0, &s.stream));
    DTL_CHECK(dtl_event_create(backend, DTL_EVENT_NO_TIMING, &s.borders));
    const uint64_t cells = (uint64_t)(s.rows + 2) * s.width, bytes = cells * sizeof(float);
    void *memory[2];
    float *const begin = zeros(cells), *all = rank == 0 ? zeros((size_t)side * s.width) : NULL;
    for (unsigned x = 1; rank == 0 && x <= side; x++) begin[x] = 100; /* the hot side is the frame above the first row */
    for (int i = 0; i < 2; i++) {
        DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, bytes, 0, &memory[i]));
        DTL_CHECK(dtl_mem_copy(memory[i], begin, bytes));
    }
    s.now = memory[0], s.next = memory[1];
    for (int n = 0; n < steps; n++) step(&s);
    DTL_CHECK(dtl_comm_gatherv(DTL_COMM_WORLD, s.now + s.width, counts[rank], all, counts, NULL, DTL_DTYPE_FLOAT32, 0));
    const double worst = rank == 0 ? compare(all, side, steps) : 0;
    for (int i = 0; i < 2; i++) DTL_CHECK(dtl_mem_free(backend, memory[i]));
    DTL_CHECK(dtl_kernel_destroy(s.kernel));
    DTL_CHECK(dtl_event_destroy(s.borders));
    DTL_CHECK(dtl_stream_destroy(s.stream));
    free(begin), free(all), free(counts);
    return worst;
}

int main(int argc, char **argv)
{
    const int side = argc > 1 ? atoi(argv[1]) : 96, steps = argc > 2 ? atoi(argv[2]) : 200;
    int32_t rank = 0, size = 0, good = 1;
    dtl_backend_t backend;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    if (side < size || steps < 1) fprintf(stderr, "heat_gpu: use at least %d cells on a side and a step\n", (int)size), exit(2);
    DTL_CHECK(dtl_backend_get(NULL, &backend));
    if (!is_there(backend)) return dtl_finalize() == DTL_SUCCESS ? 0 : 1;
    const double worst = solve(backend, (unsigned)side, steps, rank, size);
    if (rank == 0) {
        char text[4096];
        uint64_t length;
        good = worst <= 1e-3; /* of 100 degrees: the last digits of a float */
        if (dtl_explain(text, sizeof text, &length) == DTL_SUCCESS) {
            for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
                if (strncmp(line, "messages of", 11) == 0) printf("%s\n", line);
            }
        }
        printf("%d x %d cells on %d rank(s) of backend %s, %d steps: differs by %.1e from one loop: %s\n", side, side,
               (int)size, dtl_backend_name(backend), steps, worst, good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_comm_bcast(DTL_COMM_WORLD, &good, 1, DTL_DTYPE_INT32, 0));
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
