/* A plugin whose backend needs an environment that the plugin brings along, and one of the program's. Not a test by itself.
 * FAILS: its load fails after it has registered the environments. */
#include <dtl.h>
#include <stdlib.h>
#include <string.h>

static const dtl_host_api_t* host;

struct state {
    int32_t started;
};

static dtl_status_t start(void* user, void* block)
{
    struct state* state = (struct state*)block;
    (void)user;
    state->started = 41;
    return DTL_SUCCESS;
}

static dtl_status_t give(void* self, uint64_t size, uint64_t alignment, dtl_enum_word_t kind, void** out)
{
    void* block = NULL;
    struct state* state;
    (void)self;
    if (kind != DTL_MEMORY_HOST) return DTL_ERROR_NOT_SUPPORTED;
    /* It is there whenever a slot is called. */
    DTL_TRY(host->environment_state("plug", &block));
    state = (struct state*)block;
    if (++state->started < 42) return DTL_ERROR_INTERNAL;
    /* A slot may require more. */
    DTL_TRY(host->environment_require("plug.base"));
    DTL_TRY(host->environment_release("plug.base"));
    if (host->environment_require("plug.nothing") != DTL_ERROR_NOT_FOUND) return DTL_ERROR_INTERNAL;
    if (posix_memalign(out, (size_t)(alignment < 16 ? 16 : alignment), (size_t)size) != 0) return DTL_ERROR_OUT_OF_MEMORY;
    return DTL_SUCCESS;
}

static dtl_status_t take(void* self, void* ptr, uint64_t size, uint64_t alignment, dtl_enum_word_t kind)
{
    (void)self, (void)size, (void)alignment, (void)kind;
    free(ptr);
    return DTL_SUCCESS;
}

static dtl_status_t load(const dtl_host_api_t* given)
{
    static const char* const base[1] = {"plug.base"};
    dtl_environment_desc_t environment = DTL_ENVIRONMENT_DESC_INIT;
    dtl_memory_vtable_t memory = DTL_MEMORY_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    environment.name = "plug.base";
    DTL_TRY(given->environment_register(&environment));
    environment.name = "plug";
    environment.version = "2.10";
    environment.depends = base, environment.depends_count = 1;
    environment.state_size = sizeof(struct state);
    environment.init = start;
    DTL_TRY(given->environment_register(&environment));
    if (given->environment_require("plug") != DTL_ERROR_INVALID_STATE) return DTL_ERROR_INTERNAL;
    memory.alloc = give;
    memory.free = take;
    table.memory = &memory;
    DTL_TRY(given->backend_register("needy", &table, NULL, 0, &backend));
#ifdef FAILS
    (void)given->set_error("on purpose");
    return DTL_ERROR_UNAVAILABLE;
#else
    host = given;
    return DTL_SUCCESS;
#endif
}

DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t* given, dtl_plugin_t* out)
{
    static const char* const needed[2] = {"plug >= 2.9", "programs"};
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    (void)given;
    plugin.name = "needy";
    plugin.load = load;
    plugin.environments = needed, plugin.environment_count = 2;
    *out = plugin;
    return DTL_SUCCESS;
}
