/* new_accelerator: hardware that this library has never heard of, used by a program that has never heard of it either.
 *
 * First part: what comes with the hardware, usually a plugin. It registers a kind of device, a kind of memory (of a value that is
 * the same in every process), a schedule with attributes, an environment that opens and closes the card, a backend with the
 * card's memory, and handlers: who allocates such memory, who copies to and from it, who runs a kernel by that schedule.
 * The card is simulated: its memory is the host's, its engine copies multiples of 64 bytes only.
 *
 * Second part: the program. The kind of memory and the schedule are words that it is given as text, from its command line or a
 * configuration file; nothing in it changes when the card comes.
 *
 * Build: cc new_accelerator.c $(pkg-config --cflags --libs libdtl) -o new_accelerator
 * Run:   ./new_accelerator [kind of memory] [schedule as JSON]
 *        without arguments first on the host, then on the card
 */
#include <dtl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what comes with the card ------------------------------------------------------------------ */

#define MEMORY_CARD DTL_EV_WORD(DTL_ENUM_MEMORY, 301) /* a constant: for `case`, files, messages */

enum { ENGINE_BYTES = 64 };

/* The card, which the environment opens. */
struct card {
    int allocations, engine_copies, other_copies, launches;
};

static dtl_enum_word_t device_kind, card_kernel;

static struct card *card(void)
{
    void *state = NULL;
    DTL_CHECK(dtl_environment_state("my_accelerator", &state));
    return state;
}

static dtl_status_t open_card(void *user, void *state)
{
    (void)user;
    memset(state, 0, sizeof(struct card)); /* here the vendor's library would be started */
    return DTL_SUCCESS;
}

static dtl_status_t close_card(void *user, void *state)
{
    const struct card *const closing = state;
    (void)user;
    if (closing->allocations > 0) printf("card: closed, %d allocations, %d copies by its engine, %d others, %d launches\n",
                                         closing->allocations, closing->engine_copies, closing->other_copies, closing->launches);
    return DTL_SUCCESS;
}

/* The backend: memory of the card, and copies of any size. */
static dtl_status_t is_available(void *self, int32_t *yes, char *why, uint64_t cap)
{
    (void)self, (void)why, (void)cap;
    return *yes = 1, DTL_SUCCESS;
}
static dtl_status_t count(void *self, int32_t *out) { return (void)self, *out = 1, DTL_SUCCESS; }
static dtl_status_t set(void *self, int32_t device) { return (void)self, (void)device, DTL_SUCCESS; }
static dtl_status_t get(void *self, int32_t *out) { return (void)self, *out = 0, DTL_SUCCESS; }
static dtl_status_t info(void *self, int32_t device, dtl_device_info_t *out)
{
    (void)self, (void)device;
    snprintf(out->name, sizeof out->name, "My Accelerator 1");
    return out->kind = device_kind, DTL_SUCCESS;
}
static dtl_status_t alloc(void *self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void **out)
{
    (void)self;
    if (kind != MEMORY_CARD) return DTL_ERROR_NOT_SUPPORTED;
    if (alignment < ENGINE_BYTES) alignment = ENGINE_BYTES;
    *out = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    return *out != NULL ? card()->allocations++, DTL_SUCCESS : DTL_ERROR_OUT_OF_MEMORY;
}
static dtl_status_t release(void *self, void *ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)alignment, (void)kind;
    return free(ptr), DTL_SUCCESS;
}
static dtl_status_t kind_info(void *self, dtl_enum_word_t kind, dtl_mem_kind_info_t *out)
{
    (void)self;
    if (kind != MEMORY_CARD) return DTL_ERROR_NOT_SUPPORTED;
    snprintf(out->name, sizeof out->name, "memory of My Accelerator");
    out->properties = DTL_MEMORY_DEVICE_ACCESSIBLE | DTL_MEMORY_THREAD_SAFE, out->alignment = ENGINE_BYTES;
    return DTL_SUCCESS;
}
static dtl_status_t copy(void *self, void *dst, dtl_enum_word_t dst_kind, const void *src, dtl_enum_word_t src_kind, uint64_t size)
{
    (void)self, (void)dst_kind, (void)src_kind;
    memcpy(dst, src, size);
    return card()->other_copies++, DTL_SUCCESS;
}

/* Handlers. */
static int32_t is_for_the_engine(const dtl_dispatch_query_t *query, void *user)
{
    const dtl_dispatch_copy_t *const wanted = query->args;
    (void)user;
    return wanted != NULL && wanted->ndim == 0 && wanted->size_bytes % ENGINE_BYTES == 0;
}
static dtl_status_t copy_by_engine(const dtl_dispatch_query_t *query, dtl_event_t *out_event, void *user)
{
    const dtl_dispatch_copy_t *const wanted = query->args;
    (void)out_event, (void)user;
    memcpy(wanted->dst, wanted->src, wanted->size_bytes);
    return card()->engine_copies++, DTL_SUCCESS;
}
static dtl_status_t launch_on_card(const dtl_dispatch_query_t *query, dtl_event_t *out_event, void *user)
{
    const dtl_dispatch_launch_t *const wanted = query->args;
    dtl_launch_t shape = *wanted->launch;
    dtl_attr_t block_size;
    (void)out_event, (void)user;
    DTL_TRY(dtl_ev_get(query->schedule, "block_size", &block_size)); /* an attribute of the schedule that was asked for */
    shape.grid[0] = (uint32_t)((shape.grid[0] * shape.block[0] + block_size.integer - 1) / block_size.integer);
    shape.block[0] = (uint32_t)block_size.integer;
    shape.schedule = DTL_DISPATCH_ANY; /* a real card's driver would be called here; this one computes as the library does */
    card()->launches++;
    return dtl_kernel_launch(wanted->stream, wanted->kernel, &shape, wanted->args, wanted->sizes, wanted->count);
}

static void handle(const dtl_dispatch_handler_t *handler, const dtl_dispatch_key_t *keys, uint64_t n)
{
    dtl_registration_t registration; /* kept by those who end it before dtl_finalize does */
    DTL_CHECK(dtl_dispatch_register(dtl_dispatcher_default(), keys, n, handler, &registration));
}

static void register_card(void)
{
    const dtl_attr_t fields[] = {dtl_attr_i64("block_size", 128), dtl_attr_i64("smem_kb", 16)};
    dtl_environment_desc_t environment = DTL_ENVIRONMENT_DESC_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_transfer_vtable_t transfer = DTL_TRANSFER_VTABLE_INIT;
    dtl_dispatch_handler_t allocates = DTL_DISPATCH_HANDLER_INIT, copies = allocates, launches = allocates;
    dtl_enum_word_t word;
    DTL_CHECK(dtl_enum_register(DTL_ENUM_DEVICE, "MyAccelerator", &device_kind));
    DTL_CHECK(dtl_enum_register_value(DTL_ENUM_MEMORY, "MyAccelerator_Shared", 301, &word));
    DTL_CHECK(dtl_enum_register_template(DTL_ENUM_SCHEDULE, "MyAccelerator_Kernel", fields, 2, &card_kernel));
    DTL_CHECK(dtl_schedule_set_defaults(card_kernel, word, DTL_SCHEDULE_SEQUENTIAL));

    environment.name = "my_accelerator", environment.version = "1.2";
    environment.state_size = sizeof(struct card), environment.init = open_card, environment.finalize = close_card;
    DTL_CHECK(dtl_environment_register(&environment));
    DTL_CHECK(dtl_environment_require("my_accelerator>=1.0"));

    device.count = count, device.set = set, device.get = get, device.info = info;
    memory.alloc = alloc, memory.free = release, memory.kind_info = kind_info;
    transfer.copy = copy;
    table.auto_priority = INT32_MIN; /* never taken by itself: it computes nothing */
    table.is_available = is_available, table.device = &device, table.memory = &memory, table.transfer = &transfer;
    DTL_CHECK(dtl_backend_register("my_accelerator", &table, NULL, 0, &allocates.backend));

    allocates.name = "memory of the card";
    handle(&allocates, &(dtl_dispatch_key_t){.operation = DTL_OPERATION_ALLOC, .destination = word}, 1);
    copies.name = "the card's engine", copies.predicate = is_for_the_engine, copies.invoke = copy_by_engine;
    handle(&copies, (dtl_dispatch_key_t[]){{.operation = DTL_OPERATION_COPY, .destination = word},
                                           {.operation = DTL_OPERATION_COPY, .source = word}}, 2);
    launches.name = "the card", launches.invoke = launch_on_card;
    handle(&launches, &(dtl_dispatch_key_t){.operation = DTL_OPERATION_LAUNCH, .schedule = card_kernel}, 1);
}

/* ---- the program ------------------------------------------------------------------------------- */

static dtl_status_t square(const dtl_kernel_context_t *at, const void *const *args)
{
    double *const data = *(double *const *)args[0];
    const uint64_t n = *(const uint64_t *)args[1], i = (uint64_t)at->block_index[0] * at->block[0] + at->thread_index[0];
    if (i < n) data[i] *= data[i];
    return DTL_SUCCESS;
}

/* Squares the numbers 1 … n in some memory by some schedule; their sum. */
static double sum_of_squares(const char *kind_name, const char *schedule_json)
{
    uint64_t n = 1000;
    double numbers[1000], first = 0, sum = 0;
    dtl_enum_word_t kind, schedule;
    dtl_backend_t host;
    dtl_stream_t stream;
    dtl_kernel_t kernel;
    dtl_launch_t shape = DTL_LAUNCH_INIT;
    void *memory;
    DTL_CHECK(dtl_enum_from_name(DTL_ENUM_MEMORY, kind_name, &kind));
    DTL_CHECK(dtl_ev_from_json(DTL_ENUM_SCHEDULE, schedule_json, 0, &schedule));
    DTL_CHECK(dtl_backend_get("host", &host));
    DTL_CHECK(dtl_stream_create(host, 0, 0, &stream));
    DTL_CHECK(dtl_kernel_from_function(host, square, NULL, &kernel));
    for (uint64_t i = 0; i < n; i++) numbers[i] = (double)(i + 1);
    DTL_CHECK(dtl_mem_alloc(host, kind, sizeof numbers, 0, &memory));
    DTL_CHECK(dtl_mem_copy(memory, numbers, sizeof numbers));
    const void *const args[] = {&memory, &n};
    const uint64_t sizes[] = {sizeof memory, sizeof n};
    shape.grid[0] = (uint32_t)n, shape.schedule = schedule;
    DTL_CHECK(dtl_kernel_launch(stream, kernel, &shape, args, sizes, 2));
    DTL_CHECK(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE));
    DTL_CHECK(dtl_mem_copy(&first, memory, sizeof first));
    DTL_CHECK(dtl_mem_copy(numbers, memory, sizeof numbers));
    DTL_CHECK(dtl_mem_free(host, memory));
    for (uint64_t i = 0; i < n; i++) sum += numbers[i];
    DTL_CHECK(dtl_kernel_destroy(kernel));
    DTL_CHECK(dtl_stream_destroy(stream));
    if (first != 1) fprintf(stderr, "new_accelerator: the first square is %g\n", first), exit(1);
    printf("%-21s %-62s sum %.0f\n", kind_name, schedule_json, sum);
    return sum;
}

int main(int argc, char **argv)
{
    const double right = 1000.0 * 1001 * 2001 / 6;
    double sum;
    DTL_CHECK(dtl_init(NULL));
    register_card();
    if (argc > 2) {
        sum = sum_of_squares(argv[1], argv[2]);
    } else {
        sum = sum_of_squares("Host", "\"Multicore\"");
        if (sum == right) sum = sum_of_squares("MyAccelerator_Shared", "{\"type\":\"Schedule.MyAccelerator_Kernel\",\"block_size\":64}");
    }
    if (sum != right) return fprintf(stderr, "new_accelerator: the sum is %g and should be %g\n", sum, right), 1;
    DTL_CHECK(dtl_finalize()); /* ends the environment: the card tells what it has done */
    return 0;
}
