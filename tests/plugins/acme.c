/* A plugin for a vendor's compiler: its dialect of dtl_kernel.h, in front of the text that the library gives it. The compiler is
 * the machine's C compiler (ACME_CC), which a driver's options make that of "ACME C": other keywords, no barrier of its own, and
 * it pretends to be OpenCL and CUDA. The threads of a block are threads. ACME_WITHOUT=<macro> leaves one out of the dialect.
 * Not a test by itself. */
#define _GNU_SOURCE
#include <dtl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 256, MOST_ARGUMENTS = 16 };

static const dtl_host_api_t *host;

/* ---- the dialect ---------------------------------------------------------------------------- */

static const char *const dialect[][2] = {
    {"DTL_KERNEL_DIALECT", "1"},
    {"DTL_SIZE", "acme_size"},
    {"DTL_GLOBAL", "acme_global"},
    {"DTL_LOCAL", "acme_near"},
    {"DTL_RESTRICT", "acme_alone"},
    {"DTL_FUNCTION", "acme_function"},
    {"DTL_GLOBAL_ID(d)", "(acme_block(d) * acme_threads(d) + acme_thread(d))"},
    {"DTL_GLOBAL_SIZE(d)", "(acme_blocks(d) * acme_threads(d))"},
    {"DTL_LOCAL_ID(d)", "acme_thread(d)"},
    {"DTL_LOCAL_SIZE(d)", "acme_threads(d)"},
    {"DTL_GROUP_ID(d)", "acme_block(d)"},
    {"DTL_GROUP_COUNT(d)", "acme_blocks(d)"},
    {"DTL_ATOMIC_ADD(p, v)", "acme_add((p), (v))"},
    {"DTL_SHARED(type, name, count)", "acme_shared type name[count]"},
    {"DTL_DIALECT_BARRIER", "acme_meet()"},
    {"DTL_DIALECT_ENTRY", "acme_kernel void"},
};

/* What the driver gives the C compiler, so that it takes ACME C. */
static const char driver[] =
    " -std=gnu11 -O1 -fPIC -shared -fvisibility=hidden -D__OPENCL_VERSION__=300 -D__CUDACC__"
    " -Dacme_size='unsigned long' -Dacme_global= -Dacme_near= -Dacme_alone=__restrict__ -Dacme_shared=static"
    " '-Dacme_function=static inline __attribute__((unused))' '-Dacme_kernel=__attribute__((visibility(\"default\")))'"
    " '-Dacme_add(p, v)=__atomic_fetch_add(p, v, __ATOMIC_RELAXED)'"
    " '-Dacme_block(d)=acme_self.at[0][d]' '-Dacme_blocks(d)=acme_self.at[1][d]'"
    " '-Dacme_thread(d)=acme_self.at[2][d]' '-Dacme_threads(d)=acme_self.at[3][d]' '-Dacme_meet()=acme_self.meet()'"
    " -include acme.h";

/* Of a thread: its block, blocks, its place in the block, threads of a block. */
typedef struct {
    unsigned long at[4][3];
    void (*meet)(void);
} place;

static const char runtime[] =
    "typedef struct { unsigned long at[4][3]; void (*meet)(void); } acme_place;\n"
    "static __thread acme_place acme_self;\n"
    "__attribute__((visibility(\"default\"))) void acme_enter(const acme_place *place) { acme_self = *place; }\n";

/* ---- modules -------------------------------------------------------------------------------- */

static dtl_status_t fail(dtl_status_t status, const char *text)
{
    DTL_IGNORE(host->set_error(text));
    return status;
}

static void put(const char *folder, const char *name, const char *text, uint64_t size)
{
    char path[300];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    if (file == NULL) return; /* the compiler reports it */
    fwrite(text, 1, (size_t)size, file);
    fclose(file);
}

/* The header of the library behind the macros of the dialect. */
static void put_header(const char *folder)
{
    const char *without = getenv("ACME_WITHOUT"), *text = host->kernel_header();
    const size_t room = strlen(text) + 4096;
    char *all = malloc(room);
    size_t used = 0, i;
    if (all == NULL) return;
    for (i = 0; i < sizeof dialect / sizeof dialect[0]; i++) {
        const char *name = dialect[i][0];
        const size_t length = strcspn(name, "(");
        if (without != NULL && strlen(without) == length && strncmp(name, without, length) == 0) continue;
        used += (size_t)snprintf(all + used, room - used, "#define %s %s\n", name, dialect[i][1]);
    }
    used += (size_t)snprintf(all + used, room - used, "#line 1 \"dtl_kernel.h\"\n%s", text);
    put(folder, "dtl_kernel.h", all, used);
    free(all);
}

static dtl_status_t compile(void *self, int32_t device, const dtl_source_t *source, dtl_text_fn_t log, void *log_user, void **out)
{
    char folder[] = "/tmp/acme-XXXXXX", command[4096], line[512];
    const char *compiler = getenv("ACME_CC");
    int failed;
    size_t used;
    uint32_t i;
    FILE *child;
    (void)self, (void)device;
    if (source->language != 0) return fail(DTL_ERROR_NOT_SUPPORTED, "acme compiles language 0 alone");
    if (mkdtemp(folder) == NULL) return fail(DTL_ERROR_UNAVAILABLE, "no folder in /tmp");
    put_header(folder);
    put(folder, "acme.h", runtime, sizeof runtime - 1);
    put(folder, "kernels.acme", (const char *)source->text, source->size_bytes);
    for (i = 0; i < source->file_count; i++) {
        put(folder, source->files[i].name, (const char *)source->files[i].text, source->files[i].size_bytes);
    }
    used = (size_t)snprintf(command, sizeof command, "cd %s && %s%s -I .", folder, compiler != NULL ? compiler : "cc", driver);
    for (i = 0; i < source->option_count && used < sizeof command; i++) {
        used += (size_t)snprintf(command + used, sizeof command - used, " '%s'", source->options[i]);
    }
    if (used < sizeof command) {
        snprintf(command + used, sizeof command - used, " -x c kernels.acme -o kernels.so 2>&1");
    }
    child = popen(command, "r");
    while (child != NULL && fgets(line, sizeof line, child) != NULL) log(log_user, line, strlen(line));
    failed = child == NULL || pclose(child) != 0;
    snprintf(line, sizeof line, "%s/kernels.so", folder);
    *out = failed ? NULL : dlopen(line, RTLD_NOW | RTLD_LOCAL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0) return fail(DTL_ERROR_BACKEND, "the folder of the compiler stays");
    return *out != NULL ? DTL_SUCCESS : fail(DTL_ERROR_COMPILE_FAILED, "the compiler of ACME C refuses it");
}

static dtl_status_t module_destroy(void *self, void *module)
{
    (void)self, (void)module; /* its code stays loaded: a launch may run it */
    return DTL_SUCCESS;
}

typedef struct {
    void (*enter)(const place *);
    void *code;
    char signature[MOST_ARGUMENTS + 1];
} kernel;

/* The signature is well-formed. This device passes numbers and pointers, no structs. */
static dtl_status_t kernel_get(void *self, void *module, const char *name, const char *signature, void **out)
{
    kernel *made;
    (void)self;
    if (dlsym(module, name) == NULL) return fail(DTL_ERROR_NOT_FOUND, "no such kernel in the module");
    if (signature == NULL) return fail(DTL_ERROR_INVALID_ARGUMENT, "acme does not know the arguments: give the signature");
    if (strchr(signature, '[') != NULL || strchr(signature, 'e') != NULL || strlen(signature) > MOST_ARGUMENTS) {
        return fail(DTL_ERROR_NOT_SUPPORTED, "acme passes up to 16 numbers and pointers, no structs and no 16-bit floats");
    }
    made = calloc(1, sizeof *made);
    if (made == NULL) return DTL_ERROR_OUT_OF_MEMORY;
    made->code = dlsym(module, name);
    *(void **)&made->enter = dlsym(module, "acme_enter");
    strcpy(made->signature, signature);
    *out = made;
    return DTL_SUCCESS;
}

static dtl_status_t kernel_destroy(void *self, void *it)
{
    (void)self;
    free(it); /* launches have run when kernel_launch returns */
    return DTL_SUCCESS;
}

/* ---- launches ------------------------------------------------------------------------------- */

/* How both machines pass arguments: whole numbers and floats have registers of their own, in their order. */
typedef void (*code)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double, double, double, double, double, double, double,
                     double);

typedef struct {
    const kernel *of;
    const dtl_launch_t *shape;
    pthread_barrier_t *barrier;
    int64_t whole[6];
    double real[8];
    uint32_t number;
} thread;

static __thread pthread_barrier_t *barrier_here;

static void meet(void) { pthread_barrier_wait(barrier_here); }

static void *run(void *it)
{
    const thread *me = (const thread *)it;
    const uint32_t *grid = me->shape->grid, *block = me->shape->block;
    const int64_t *w = me->whole;
    const double *r = me->real;
    uint32_t i, d;
    place here;
    code function;
    memcpy(&function, &me->of->code, sizeof function);
    barrier_here = me->barrier, here.meet = meet;
    for (d = 0; d < 3; d++) here.at[1][d] = grid[d], here.at[3][d] = block[d];
    here.at[2][0] = me->number % block[0], here.at[2][1] = me->number / block[0] % block[1];
    here.at[2][2] = me->number / block[0] / block[1];
    for (i = 0; i < grid[0] * grid[1] * grid[2]; i++) {
        here.at[0][0] = i % grid[0], here.at[0][1] = i / grid[0] % grid[1], here.at[0][2] = i / grid[0] / grid[1];
        me->of->enter(&here);
        function(w[0], w[1], w[2], w[3], w[4], w[5], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]);
        meet(); /* blocks share their memory one after another */
    }
    return NULL;
}

/* One argument, as its letter says; 0 = there is no register left. */
static int pass(thread *to, char letter, const void *from, int *wholes, int *reals)
{
    const int is_real = letter == 'f' || letter == 'd';
    if (is_real ? *reals == 8 : *wholes == 6) return 0;
    switch (letter) {
    case 'b': to->whole[(*wholes)++] = *(const int8_t *)from; break;
    case 'B': to->whole[(*wholes)++] = *(const uint8_t *)from; break;
    case 'h': to->whole[(*wholes)++] = *(const int16_t *)from; break;
    case 'H': to->whole[(*wholes)++] = *(const uint16_t *)from; break;
    case 'i': to->whole[(*wholes)++] = *(const int32_t *)from; break;
    case 'I': to->whole[(*wholes)++] = *(const uint32_t *)from; break;
    case 'f': memcpy(&to->real[(*reals)++], from, 4); break;
    case 'd': memcpy(&to->real[(*reals)++], from, 8); break;
    default: memcpy(&to->whole[(*wholes)++], from, 8); break;
    }
    return 1;
}

static dtl_status_t kernel_launch(void *self, void *stream, void *it, const dtl_launch_t *launch, const void *const *args,
                                  const uint64_t *sizes, uint64_t count)
{
    static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER; /* DTL_SHARED is one for all launches */
    const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
    pthread_t ids[MOST_THREADS];
    thread all[MOST_THREADS];
    pthread_barrier_t barrier;
    thread first;
    int wholes = 0, reals = 0;
    uint64_t i;
    (void)self, (void)stream, (void)sizes;
    memset(&first, 0, sizeof first);
    if (threads > MOST_THREADS) return fail(DTL_ERROR_INVALID_ARGUMENT, "a block has up to 256 threads");
    first.of = (const kernel *)it, first.shape = launch, first.barrier = &barrier;
    for (i = 0; i < count; i++) {
        if (!pass(&first, first.of->signature[i], args[i], &wholes, &reals)) {
            return fail(DTL_ERROR_NOT_SUPPORTED, "acme passes up to 6 whole numbers and pointers, and 8 floats");
        }
    }
    pthread_mutex_lock(&device);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (i = 0; i < threads; i++) {
        all[i] = first, all[i].number = (uint32_t)i;
        if (pthread_create(&ids[i], NULL, run, &all[i]) != 0) abort();
    }
    for (i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&barrier);
    pthread_mutex_unlock(&device);
    return DTL_SUCCESS;
}

/* ---- the plugin ----------------------------------------------------------------------------- */

static dtl_status_t stream_create(void *self, int32_t device, uint64_t flags, void **out)
{
    (void)self, (void)device, (void)flags;
    *out = malloc(1);
    return *out != NULL ? DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}

static dtl_status_t stream_destroy(void *self, void *stream)
{
    (void)self;
    free(stream);
    return DTL_SUCCESS;
}

static dtl_status_t stream_synchronize(void *self, void *stream)
{
    (void)self, (void)stream; /* launches have run when kernel_launch returns */
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t *given)
{
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t made;
    host = given;
    if (host->struct_size < offsetof(dtl_host_api_t, kernel_header) + sizeof host->kernel_header) {
        return fail(DTL_ERROR_INCOMPATIBLE_ABI, "this library does not give the text of dtl_kernel.h");
    }
    exec.stream_create = stream_create, exec.stream_destroy = stream_destroy, exec.stream_synchronize = stream_synchronize;
    exec.module_compile = compile, exec.module_destroy = module_destroy;
    exec.kernel_get = kernel_get, exec.kernel_destroy = kernel_destroy, exec.kernel_launch = kernel_launch;
    table.exec = &exec;
    table.auto_priority = INT32_MIN;
    return host->backend_register("acme", &table, NULL, 0, &made);
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t *given, dtl_plugin_t *out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)given;
    plugin.name = "acme", plugin.version = "1", plugin.load = load;
    *out = plugin;
    return DTL_SUCCESS;
}
