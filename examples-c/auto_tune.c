/* auto_tune: which of host and OpenCL computes faster depends on the size. A policy finds out, for each size, while it works.
 *
 * The kernel sums the gravity potential of n bodies, n x n terms, from one source for both (dtl_kernel.h). A task copies the
 * bodies to a device, computes there and copies the result back, all queued on the stream that it is given; the policy
 * "auto_tune" gives it each stream a few times, measures, and then always the faster one. The columns of times are measured
 * beside it, without the policy: they show what there was to find.
 *
 * Build: cc auto_tune.c $(pkg-config --cflags --libs libdtl) -lm -o auto_tune
 * Run:   ./auto_tune [largest number of bodies, default 2048]
 */
#include <dtl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char source_text[] =
    "#include \"dtl_kernel.h\"\n"
    "#ifdef DTL_ON_OPENCL\n"
    "#define ROOT(x) sqrt(x)\n"
    "#else\n"
    "#include <math.h>\n"
    "#define ROOT(x) sqrtf(x)\n"
    "#endif\n"
    "DTL_KERNEL(potential, (DTL_GLOBAL const float*, at), (DTL_GLOBAL float*, sum), (unsigned, n))\n"
    "{\n"
    "    const DTL_SIZE i = DTL_GLOBAL_ID(0);\n"
    "    unsigned j;\n"
    "    float all = 0.0f;\n"
    "    if (i < n) {\n"
    "        for (j = 0; j < n; j++) {\n"
    "            const float x = at[2 * i] - at[2 * j], y = at[2 * i + 1] - at[2 * j + 1];\n"
    "            all += 1.0f / ROOT(x * x + y * y + 0.01f);\n"
    "        }\n"
    "        sum[i] = all;\n"
    "    }\n"
    "}\n";

enum { BLOCK = 64, TUNED = 10, TIMES = 5 };

/* A backend that computes, with memory for the largest size. */
struct place {
    const char *name;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    void *at, *sum; /* in its device's memory */
};

/* One piece of work, on the host's side. */
struct bodies {
    unsigned n;
    float *at, *sum;
};

/* The task: what it queues on the resource's stream. */
static dtl_status_t potentials(const dtl_resource_t *resource, void *arg, dtl_waitable_t *out_wait)
{
    struct place *const place = resource->user;
    const struct bodies *const bodies = arg;
    const void *const args[] = {&place->at, &place->sum, &bodies->n};
    const uint64_t sizes[] = {sizeof place->at, sizeof place->sum, sizeof bodies->n};
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    (void)out_wait; /* nothing beside the stream's work */
    shape.grid[0] = (bodies->n + BLOCK - 1) / BLOCK, shape.block[0] = BLOCK;
    DTL_TRY(dtl_mem_copy_async(place->stream, place->at, bodies->at, 2 * bodies->n * sizeof(float)));
    DTL_TRY(dtl_kernel_launch(place->stream, place->kernel, &shape, args, sizes, 3));
    return dtl_mem_copy_async(place->stream, bodies->sum, place->sum, bodies->n * sizeof(float));
}

/* Opens a backend, or says why not. */
static int open_place(struct place *place, const char *name, unsigned most)
{
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_backend_t backend;
    dtl_module_t module;
    char why[512] = "";
    int32_t yes = 0;
    place->name = name;
    DTL_CHECK(dtl_backend_get(name, &backend));
    DTL_CHECK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    if (!yes) {
        printf("no %s here: %s\n", name, why);
        return 0;
    }
    source.text = source_text, source.name = "potential";
    if (dtl_module_compile(backend, 0, &source, &module) != DTL_SUCCESS) {
        printf("no kernels on %s: %s\n", name, dtl_last_error());
        return 0;
    }
    DTL_CHECK(dtl_kernel_get(module, "potential", "ppI", &place->kernel));
    DTL_CHECK(dtl_module_destroy(module)); /* the kernel keeps what it needs */
    DTL_CHECK(dtl_stream_create(backend, 0, 0, &place->stream));
    DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 2 * most * sizeof(float), 0, &place->at));
    DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, most * sizeof(float), 0, &place->sum));
    return 1;
}

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The best of some runs without a policy, in milliseconds. */
static double measure(struct place *place, struct bodies *bodies)
{
    const dtl_resource_t resource = {place->stream.id, place};
    double best = 1e9;
    for (int i = 0; i < TIMES; i++) {
        dtl_waitable_t nothing = {0};
        const double begin = now();
        DTL_CHECK(potentials(&resource, bodies, &nothing));
        DTL_CHECK(dtl_stream_wait(place->stream, DTL_TIMEOUT_INFINITE));
        best = fmin(best, 1e3 * (now() - begin));
    }
    return best;
}

/* Lets the policy find out, and then work: which place it takes. */
static unsigned tune(dtl_policy_t policy, unsigned places, struct bodies *bodies)
{
    const dtl_task_key_t key = {1, bodies->n}; /* task 1; each size is learnt by itself */
    dtl_submission_t done;
    for (unsigned i = 0; i < 4 * places + TUNED; i++) { /* one warm-up and three timings of each place, then TUNED more */
        DTL_CHECK(dtl_policy_submit(policy, key, potentials, bodies, DTL_TIMEOUT_INFINITE, &done));
        DTL_CHECK(dtl_submission_wait(&done, DTL_TIMEOUT_INFINITE));
    }
    return done.resource;
}

/* How far the result is from one computed here. */
static double error_of(const struct bodies *bodies)
{
    double worst = 0;
    for (unsigned i = 0; i < bodies->n; i++) {
        double sum = 0;
        for (unsigned j = 0; j < bodies->n; j++) {
            const double x = bodies->at[2 * i] - bodies->at[2 * j], y = bodies->at[2 * i + 1] - bodies->at[2 * j + 1];
            sum += 1.0 / sqrt(x * x + y * y + 0.01);
        }
        worst = fmax(worst, fabs(bodies->sum[i] - sum) / sum);
    }
    return worst;
}

int main(int argc, char **argv)
{
    const unsigned most = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 2048;
    const char *const names[2] = {"host", "opencl"};
    struct place places[2];
    dtl_resource_t resources[2];
    dtl_policy_opts_t opts = DTL_POLICY_OPTS_INIT;
    dtl_policy_t policy;
    unsigned count = 0;
    struct bodies bodies = {0, malloc(2 * most * sizeof(float)), malloc(most * sizeof(float))};
    if (most < BLOCK || bodies.at == NULL || bodies.sum == NULL) return fprintf(stderr, "auto_tune: use %d bodies or more\n", BLOCK), 1;
    DTL_CHECK(dtl_init(NULL));
    for (unsigned i = 0; i < 2; i++) {
        if (!open_place(&places[count], names[i], most)) continue;
        resources[count].value = places[count].stream.id;
        resources[count].user = &places[count];
        count++;
    }
    opts.kind = DTL_RESOURCES_STREAMS;
    DTL_CHECK(dtl_policy_create("auto_tune", resources, count, &opts, &policy));
    for (unsigned i = 0; i < 2 * most; i++) bodies.at[i] = (float)((i * 7919u) % 1000) / 1000.0f;
    printf("%8s", "bodies");
    for (unsigned i = 0; i < count; i++) printf("  %7s ms", places[i].name);
    printf("  auto_tune takes\n");
    for (bodies.n = BLOCK; bodies.n <= most; bodies.n *= 4) {
        double times[2] = {0, 0};
        const unsigned taken = tune(policy, count, &bodies);
        const double error = error_of(&bodies);
        for (unsigned i = 0; i < count; i++) times[i] = measure(&places[i], &bodies);
        printf("%8u", bodies.n);
        for (unsigned i = 0; i < count; i++) printf("  %10.3f", times[i]);
        /* Other programs on the machine disturb the policy's few timings. */
        printf("  %s%s\n", places[taken].name, count == 2 && times[taken] > 2 * times[!taken] ? " (the slower one)" : "");
        if (error > 1e-4) return fprintf(stderr, "auto_tune: the result is off by %g\n", error), 1;
    }
    DTL_CHECK(dtl_policy_release(policy));
    for (unsigned i = 0; i < count; i++) {
        DTL_CHECK(dtl_kernel_destroy(places[i].kernel));
        DTL_CHECK(dtl_stream_destroy(places[i].stream));
    }
    DTL_CHECK(dtl_finalize()); /* frees the devices' memory */
    free(bodies.at), free(bodies.sum);
    return 0;
}
