/* Plugins that go wrong, each in the one way that its macro says. Not a test by itself. */
#include <dtl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static dtl_status_t count(void* self, int32_t* out) { return (void)self, *out = 1, DTL_SUCCESS; }
static dtl_status_t set(void* self, int32_t device) { return (void)self, (void)device, DTL_SUCCESS; }
static dtl_status_t get(void* self, int32_t* out) { return (void)self, *out = 0, DTL_SUCCESS; }

#if defined(CRASH_IN_CONSTRUCTOR) || defined(CRASH_IN_ENTRY) || defined(CRASH_IN_LOAD) || defined(CRASH_WHEN_ASKED)
static void crash(void)
{
    *(volatile int*)(intptr_t)8 = 1;
}
#endif
#ifdef CRASH_IN_CONSTRUCTOR
__attribute__((constructor)) static void before(void) { crash(); }
#endif
#ifdef ABORT_AT_END
__attribute__((destructor)) static void after(void) { abort(); }
#endif
#ifdef CRASH_WHEN_ASKED
static dtl_status_t asked(void* self, int32_t* yes, char* why, uint64_t cap)
{
    (void)self, (void)yes, (void)why, (void)cap;
    crash();
    return DTL_SUCCESS;
}
#endif
#ifdef THROWS_IN_SLOT
static dtl_status_t throws(void* self, int32_t* out) { (void)self, (void)out; throw 1; }
#endif
#ifdef THROWS_IN_DESTROY
static void throws_at_the_end(void* self) { (void)self; throw 1; }
#endif
#ifdef MISSING_FUNCTION
int of_no_library(void);
#endif
#ifdef WRONG_LAYOUT
static dtl_layout_t rows[DTL_LAYOUT_COUNT];
#endif

#ifdef REGISTER_IN_THREAD
static void* in_thread(void* host)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    table.device = &device;
    return (void*)(intptr_t)((const dtl_host_api_t*)host)->backend_register("stray", &table, NULL, 0, &backend);
}
#endif

static dtl_status_t load(const dtl_host_api_t* host)
{
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_backend_t backend;
    device.count = count;
    device.set = set;
    device.get = get;
    table.device = &device;
#if defined(CRASH_IN_LOAD)
    crash();
#elif defined(CRASH_WHEN_ASKED)
    table.is_available = asked;
#elif defined(HANG_IN_LOAD)
    for (;;) sleep(1);
#elif defined(CLOSES_UP_TO)
    const int end = CLOSES_UP_TO;
    int fd;
    for (fd = 0; fd < end; fd++) (void)close(fd);
#elif defined(EXIT_IN_LOAD)
    _exit(0);
#elif defined(REGISTERS_NOTHING)
    return DTL_SUCCESS;
#elif defined(LOAD_FAILS)
    DTL_TRY(host->backend_register("half", &table, NULL, 0, &backend));
    DTL_IGNORE(host->set_error("the second half is missing"));
    return DTL_ERROR_INIT_FAILED;
#elif defined(REPLACES_AND_FAILS)
    DTL_TRY(host->backend_register("host", &table, NULL, DTL_REGISTER_REPLACE, &backend));
    DTL_TRY(host->backend_register("host", &table, NULL, DTL_REGISTER_REPLACE, &backend));
    DTL_IGNORE(host->set_error("a change of mind"));
    return DTL_ERROR_INIT_FAILED;
#elif defined(LOAD_ANSWERS_NONSENSE)
    return 4711;
#elif defined(TELLS_CORE_LIMIT)
    {
        struct rlimit limit = {77, 77};
        char text[80];
        if (getrlimit(RLIMIT_CORE, &limit) != 0) return DTL_ERROR_INTERNAL;
        snprintf(text, sizeof text, "cores of %llu bytes, at most %llu", (unsigned long long)limit.rlim_cur,
            (unsigned long long)limit.rlim_max);
        DTL_IGNORE(host->set_error(text));
        return DTL_ERROR_UNAVAILABLE;
    }
#elif defined(BAD_TABLE)
    device.count = NULL;
#elif defined(DROPS_STATUS)
    device.count = NULL;
    DTL_IGNORE(host->backend_register("bad", &table, NULL, 0, &backend));
    return DTL_SUCCESS;
#elif defined(DROPS_ONE_STATUS)
    DTL_TRY(host->backend_register("kept", &table, NULL, 0, &backend));
    DTL_IGNORE(host->backend_register("kept", &table, NULL, 0, &backend));
    return DTL_SUCCESS;
#elif defined(TAKEN_NAME)
    return host->backend_register("host", &table, NULL, 0, &backend);
#elif defined(MISSING_FUNCTION)
    return of_no_library();
#elif defined(NEWER)
    table.abi_version = DTL_ABI_VERSION + 1;
#elif defined(BAD_HOST_CALLS)
    if (host->set_error(NULL) != DTL_ERROR_NULL_POINTER || host->log(DTL_LOG_ERROR, NULL) != DTL_ERROR_NULL_POINTER ||
        host->log(DTL_LOG_OFF, "x") != DTL_ERROR_INVALID_ARGUMENT || host->log(9, "x") != DTL_ERROR_INVALID_ARGUMENT ||
        host->backend_register(NULL, &table, NULL, 0, &backend) != DTL_ERROR_NULL_POINTER ||
        host->backend_register("a b", &table, NULL, 0, &backend) != DTL_ERROR_INVALID_ARGUMENT ||
        host->backend_register("a", NULL, NULL, 0, &backend) != DTL_ERROR_NULL_POINTER ||
        host->backend_register("a", &table, NULL, 0, NULL) != DTL_ERROR_NULL_POINTER)
        return DTL_ERROR_INTERNAL;
    {
        /* The last one's text is the one of this load. */
        dtl_attr_t attr = dtl_attr_str("text", NULL);
        dtl_enum_word_t word;
        if (host->enum_create(NULL, 0, NULL) != DTL_ERROR_NULL_POINTER || host->enum_find("x", NULL) != DTL_ERROR_NULL_POINTER ||
            host->enum_register(0, "x", &word) != DTL_ERROR_INVALID_ARGUMENT ||
            host->enum_register_value(DTL_ENUM_MEMORY, "x", 1, &word) != DTL_ERROR_INVALID_ARGUMENT ||
            host->enum_register_template(DTL_ENUM_MEMORY, "x", &attr, 1, &word) != DTL_ERROR_NULL_POINTER ||
            host->enum_from_name(DTL_ENUM_MEMORY, "x", &word) != DTL_ERROR_NOT_FOUND ||
            host->ev_instance(DTL_MEMORY_HOST, NULL, 0, &word) != DTL_ERROR_TYPE ||
            host->ev_get(DTL_MEMORY_HOST, "x", &attr) != DTL_ERROR_NOT_FOUND)
            return DTL_ERROR_INTERNAL;
        return host->schedule_set_defaults(DTL_SCHEDULE_DEVICE, DTL_MEMORY_HOST, DTL_SCHEDULE_DEVICE);
    }
#elif defined(REGISTER_IN_THREAD)
    {
        pthread_t thread;
        void* status = NULL;
        if (pthread_create(&thread, NULL, in_thread, (void*)(intptr_t)host) != 0) return DTL_ERROR_INTERNAL;
        if (pthread_join(thread, &status) != 0) return DTL_ERROR_INTERNAL;
        DTL_IGNORE(host->set_error("registered in another thread"));
        return (dtl_status_t)(intptr_t)status;
    }
#elif defined(THROWS)
    throw 1;
#elif defined(THROWS_IN_SLOT)
    device.count = throws;
#elif defined(THROWS_IN_DESTROY)
    table.destroy = throws_at_the_end;
#endif
    return host->backend_register("bad", &table, NULL, 0, &backend);
}

#ifdef NO_ENTRY
#define dtl_plugin_entry_v1 some_other_function
#endif
DTL_PLUGIN_EXPORT dtl_status_t dtl_plugin_entry_v1(const dtl_host_api_t* host, dtl_plugin_t* out)
{
    dtl_plugin_t plugin = DTL_PLUGIN_INIT;
    plugin.name = "bad";
    plugin.load = load;
#if defined(CRASH_IN_ENTRY)
    crash();
#elif defined(HANG_IN_ENTRY)
    for (;;) sleep(1);
#elif defined(ENTRY_FAILS)
    DTL_IGNORE(host->set_error("no licence file"));
    return DTL_ERROR_UNAVAILABLE;
#elif defined(REGISTER_IN_ENTRY)
    return load(host);
#elif defined(TOO_NEW)
    plugin.abi_version = DTL_ABI_VERSION + 3;
    plugin.abi_version_min = DTL_ABI_VERSION + 2;
#elif defined(NEWER)
    plugin.abi_version = DTL_ABI_VERSION + 1;
#elif defined(WRONG_RANGE)
    plugin.abi_version_min = 9;
#elif defined(NO_LOAD)
    plugin.load = NULL;
#elif defined(NO_NAME)
    plugin.name = NULL;
#elif defined(ODD_TEXTS)
    plugin.version = "1\n2";
    plugin.description = "a bell \a\033[31m and more";
#elif defined(NOT_FILLED_IN)
    (void)plugin;
    return DTL_SUCCESS;
#elif defined(NO_LAYOUTS)
    plugin.layouts = NULL;
#elif defined(LONG_TAIL)
    memset(out + 1, 1, 64);
#elif defined(WRONG_LAYOUT)
    size_t i;
    memcpy(rows, plugin.layouts, sizeof rows);
    for (i = 0; i < DTL_LAYOUT_COUNT; i++)
        if (strcmp(rows[i].name, "dtl_comm_vtable_t") == 0 && rows[i].field != NULL && strcmp(rows[i].field, "isend") == 0)
            rows[i].offset += 4;
    plugin.layouts = rows;
#endif
    (void)host;
    *out = plugin;
    return DTL_SUCCESS;
}
