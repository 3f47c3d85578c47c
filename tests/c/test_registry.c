/* Registering, finding, choosing and describing backends. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* setenv */
#endif
#include "far.h"
#include <pthread.h>

static struct far plain;

static dtl_backend_t find(const char* name) {
    dtl_backend_t backend = DTL_BACKEND_NULL;
    CHECK_OK(dtl_backend_get(name, &backend));
    return backend;
}

static void test_names(void) {
    const char* const bad[] = {"", "auto", "cpu", "CPU", "GPU", "a b", "\xc3\xa9", "a/b", "a\n",
        "0123456789012345678901234567890123456789012345678901234567890123"};
    struct far_tables tables;
    dtl_backend_t backend = {77}, other;
    size_t i;
    far_fill(&tables);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(dtl_backend_register(bad[i], &tables.main, &plain, 0, &backend), DTL_ERROR_INVALID_ARGUMENT);
        CHECK(backend.id == 77);
    }
    CHECK_STATUS(dtl_backend_register("GPU", &tables.main, &plain, DTL_REGISTER_REPLACE, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("\"GPU\" is an alias of \"cuda\"");
    CHECK_STATUS(dtl_backend_register("x", &tables.main, &plain, 2, &backend), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_backend_register("host", &tables.main, &plain, 0, &backend), DTL_ERROR_ALREADY_EXISTS);
    CHECK(backend.id == 77 && plain.destroyed == 0);
    CHECK_OK(dtl_backend_register("012345678901234567890123456789012345678901234567890123456789012", &tables.main, &plain, 0, &backend));
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(plain.destroyed == 1);
    CHECK_OK(dtl_backend_register("Far-1.0_x", &tables.main, &plain, 0, &backend));
    CHECK(find("Far-1.0_x").id == backend.id && strcmp(dtl_backend_name(backend), "Far-1.0_x") == 0);
    CHECK_STATUS(dtl_backend_get("far-1.0_x", &other), DTL_ERROR_NOT_FOUND); /* case counts */
    CHECK_TEXT("Far-1.0_x");
    CHECK_TEXT("host");
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK_STATUS(dtl_backend_unregister(backend), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_backend_get("Far-1.0_x", &other), DTL_ERROR_NOT_FOUND);
    CHECK(dtl_backend_name(backend) == NULL);
    CHECK(plain.destroyed == 2);
    CHECK_OK(dtl_backend_unregister(DTL_BACKEND_NULL));
    CHECK_STATUS(dtl_backend_unregister(find("host")), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(find("CPU").id == find("host").id && find("cpu").id == find("host").id);
}

static void test_enumeration(void) {
    struct far far;
    dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
    dtl_backend_t backend, at = DTL_BACKEND_NULL;
    uint64_t before = 0, count = 0, i;
    int32_t yes = -1;
    int builtin = 0;
    memset(&far, 0, sizeof far);
    CHECK_OK(dtl_backend_count(&before));
    CHECK(before >= 2);
    backend = far_register("last", &far);
    CHECK_OK(dtl_backend_count(&count));
    CHECK(count == before + 1);
    for (i = 0; i < count; i++) {
        CHECK_OK(dtl_backend_at(i, &at));
        CHECK_OK(dtl_backend_info(at, &info));
        CHECK(strcmp(info.name, dtl_backend_name(at)) == 0 && find(info.name).id == at.id);
        builtin += info.is_builtin;
        CHECK(info.struct_size == sizeof info);
    }
    CHECK(at.id == backend.id && (uint64_t)builtin == before);
    CHECK_STATUS(dtl_backend_at(count, &at), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_backend_at(UINT64_MAX, &at), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK(at.id == backend.id);
    CHECK(info.components == (DTL_COMPONENT_DEVICE | DTL_COMPONENT_MEMORY | DTL_COMPONENT_TRANSFER));
    CHECK(info.is_builtin == 0 && info.auto_priority == INT32_MIN && info.flags == 0);
    CHECK_OK(dtl_backend_supports(backend, "memory", &yes));
    CHECK(yes == 1);
    CHECK_OK(dtl_backend_supports(backend, "comm", &yes));
    CHECK(yes == 0);
    CHECK_OK(dtl_backend_supports(backend, "teleport", &yes));
    CHECK(yes == 0);
    CHECK_OK(dtl_backend_unregister(backend));
    CHECK(far.destroyed == 1);
}

static int32_t can_run;

static dtl_status_t is_available(void* self, int32_t* yes, char* why, uint64_t cap) {
    (void)self;
    *yes = can_run;
    if (!can_run) snprintf(why, (size_t)cap, "the flux is \xc3\xa9teint");
    return DTL_SUCCESS;
}
static dtl_status_t broken_available(void* self, int32_t* yes, char* why, uint64_t cap) {
    (void)self, (void)yes, (void)why, (void)cap;
    return DTL_ERROR_INIT_FAILED;
}
static dtl_status_t supports(void* self, const char* feature, int32_t* yes) {
    (void)self;
    if (strcmp(feature, "broken") == 0) return DTL_ERROR_MEMORY;
    *yes = strcmp(feature, "warp") == 0 ? 1 : strcmp(feature, "odd") == 0 ? 5 : 0;
    return DTL_SUCCESS;
}

static void test_availability(void) {
    struct far far;
    struct far_tables tables;
    dtl_backend_t backend, broken;
    char why[64];
    void* memory = NULL;
    int32_t yes = -1, count = -1;
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    tables.main.is_available = is_available, tables.main.supports = supports;
    can_run = 0;
    CHECK_OK(dtl_backend_register("flux", &tables.main, &far, 0, &backend));
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strcmp(why, "the flux is \xc3\xa9teint") == 0);
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, 14, NULL)); /* would cut the letter in two */
    CHECK(strcmp(why, "the flux is ") == 0);
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, 1, NULL));
    CHECK(why[0] == 0);
    CHECK_OK(dtl_backend_is_available(backend, &yes, NULL, 0, NULL));
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, 0, NULL));
    CHECK_STATUS(dtl_backend_device_count(backend, &count), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("flux");
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, 8, 0, &memory), DTL_ERROR_UNAVAILABLE);
    CHECK(count == -1 && memory == NULL);
    can_run = 1;
    CHECK_OK(dtl_backend_device_count(backend, &count)); /* a no is asked again */
    why[0] = 'x';
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 1 && why[0] == 0);
    can_run = 0;
    CHECK_OK(dtl_backend_is_available(backend, &yes, NULL, 0, NULL)); /* asked afresh */
    CHECK(yes == 0);
    CHECK_OK(dtl_backend_supports(backend, "warp", &yes));
    CHECK(yes == 1);
    CHECK_OK(dtl_backend_supports(backend, "weft", &yes));
    CHECK(yes == 0);
    CHECK_STATUS(dtl_backend_supports(backend, "odd", &yes), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("supports wrote 5 into its boolean output");
    CHECK_STATUS(dtl_backend_supports(backend, "broken", &yes), DTL_ERROR_MEMORY);
    CHECK_OK(dtl_backend_unregister(backend));
    tables.main.is_available = broken_available;
    CHECK_OK(dtl_backend_register("broken", &tables.main, &far, 0, &broken));
    CHECK_OK(dtl_backend_is_available(broken, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && why[0] != 0);
    CHECK_OK(dtl_backend_unregister(broken));
    CHECK(far.destroyed == 2);
}

static void explain(char* text, uint64_t cap) {
    uint64_t len = 0, again = 0;
    CHECK_OK(dtl_explain(NULL, 0, &len));
    CHECK(len < cap);
    if (len > 0) {
        memset(text, '?', 4);
        CHECK_STATUS(dtl_explain(text, len, &again), DTL_ERROR_BUFFER_TOO_SMALL); /* no room for the NUL */
        CHECK(text[0] == '?' && again == len);
    }
    CHECK_OK(dtl_explain(text, len + 1, &again));
    CHECK(strlen(text) == len && again == len);
    CHECK_OK(dtl_explain(text, cap, NULL));
}

static void test_choice(void) {
    struct far far;
    struct far_tables tables;
    dtl_backend_t low, high, tie, never, gone;
    char text[4096];
    memset(&far, 0, sizeof far);
    far_fill(&tables);
    CHECK(find("auto").id == find("host").id);
    tables.main.auto_priority = 0; /* = 40, above the host */
    CHECK_OK(dtl_backend_register("b-low", &tables.main, &far, 0, &low));
    CHECK(find("auto").id == low.id && find(NULL).id == low.id);
    tables.main.auto_priority = INT32_MIN;
    CHECK_OK(dtl_backend_register("never", &tables.main, &far, 0, &never));
    tables.main.auto_priority = 41;
    CHECK_OK(dtl_backend_register("b-tie", &tables.main, &far, 0, &tie));
    CHECK_OK(dtl_backend_register("a-tie", &tables.main, &far, 0, &high));
    CHECK(find("auto").id == high.id && find(NULL).id == high.id); /* ties: by name */
    tables.main.auto_priority = INT32_MAX;
    tables.main.is_available = is_available;
    can_run = 0;
    CHECK_OK(dtl_backend_register("gone", &tables.main, &far, 0, &gone));
    CHECK(find("auto").id == high.id);
    explain(text, sizeof text);
    CHECK(strstr(text, "a-tie") != NULL && strstr(text, "gone: the flux") != NULL);
    tables.main.memory = NULL, tables.main.transfer = NULL;
    tables.main.is_available = NULL;
    CHECK_OK(dtl_backend_register("incomplete", &tables.main, &far, DTL_REGISTER_REPLACE, &gone));
    CHECK(find("auto").id == high.id);
    CHECK_OK(dtl_backend_unregister(high));
    CHECK(find("auto").id == tie.id && find(NULL).id == tie.id); /* its going away is noticed */
    CHECK_OK(dtl_finalize());
    CHECK(far.destroyed == 6);
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(dtl_backend_info(tie, NULL), DTL_ERROR_INVALID_HANDLE);
}

/* One table under several names, replaced under one of them while the old one is in use. */
static void test_replace(void) {
    struct far old_self, new_self;
    struct far_tables tables;
    dtl_backend_t old_one, other, new_one;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    dtl_stream_t stream;
    dtl_event_t event;
    dtl_executor_t executor;
    void *memory = NULL, *more = NULL;
    char text[8] = "1234567";
    memset(&old_self, 0, sizeof old_self), memset(&new_self, 0, sizeof new_self);
    far_fill(&tables);
    CHECK_OK(dtl_backend_register("one", &tables.main, &old_self, 0, &old_one));
    CHECK_OK(dtl_backend_register("two", &tables.main, &old_self, 0, &other));
    CHECK(old_one.id != other.id);
    CHECK_OK(dtl_mem_alloc(old_one, DTL_MEMORY_DEVICE, 8, 0, &memory));
    CHECK_STATUS(dtl_backend_register("one", &tables.main, &new_self, 0, &new_one), DTL_ERROR_ALREADY_EXISTS);
    CHECK_OK(dtl_backend_register("one", &tables.main, &new_self, DTL_REGISTER_REPLACE, &new_one));
    CHECK(find("one").id == new_one.id && new_one.id != old_one.id);
    CHECK(old_self.destroyed == 0);
    CHECK_OK(dtl_mem_copy(memory, text, 8)); /* the old handle goes on */
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.backend.id == old_one.id);
    CHECK_OK(dtl_mem_alloc(old_one, DTL_MEMORY_DEVICE, 8, 0, &more));
    CHECK_STATUS(dtl_mem_free(new_one, more), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_mem_free(old_one, more));
    CHECK(old_self.allocs == 2 && new_self.allocs == 0);

    CHECK_STATUS(dtl_backend_unregister(old_one), DTL_ERROR_BUSY); /* one allocation lives */
    CHECK_TEXT("1 live allocation");
    CHECK_OK(dtl_stream_create(old_one, 0, 0, &stream));
    CHECK_OK(dtl_mem_free(old_one, memory));
    CHECK_STATUS(dtl_backend_unregister(old_one), DTL_ERROR_BUSY);
    CHECK_OK(dtl_event_create(old_one, 0, &event));
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_STATUS(dtl_backend_unregister(old_one), DTL_ERROR_BUSY);
    CHECK_OK(dtl_executor_create(old_one, NULL, &executor));
    CHECK_OK(dtl_event_destroy(event));
    CHECK_STATUS(dtl_backend_unregister(old_one), DTL_ERROR_BUSY);
    CHECK_OK(dtl_stream_default(old_one, 0, &stream)); /* does not count */
    CHECK(old_self.destroyed == 0);
    CHECK_OK(dtl_executor_destroy(executor)); /* the last use */
    CHECK(old_self.destroyed == 1); /* "two" still uses it: one call for each registration */
    CHECK_STATUS(dtl_stream_wait(stream, DTL_TIMEOUT_INFINITE), DTL_ERROR_INVALID_HANDLE);
    CHECK_STATUS(dtl_backend_unregister(old_one), DTL_ERROR_INVALID_HANDLE);
    CHECK(find("one").id == new_one.id);
    /* One that nothing uses goes at once. */
    CHECK_OK(dtl_backend_register("two", &tables.main, &new_self, DTL_REGISTER_REPLACE, &old_one));
    CHECK(old_self.destroyed == 2);
    CHECK_STATUS(dtl_backend_unregister(other), DTL_ERROR_INVALID_HANDLE);
    CHECK_OK(dtl_backend_unregister(old_one));
    CHECK_OK(dtl_backend_unregister(new_one));
    CHECK(new_self.destroyed == 2);
    CHECK(old_self.allocs == old_self.frees);
    /* A built-in backend has its name again. */
    other = find("host");
    CHECK_OK(dtl_backend_register("host", &tables.main, &new_self, DTL_REGISTER_REPLACE, &old_one));
    CHECK_OK(dtl_backend_register("host", &tables.main, &new_self, DTL_REGISTER_REPLACE, &new_one));
    CHECK(find("host").id == new_one.id && find("cpu").id == new_one.id);
    CHECK_OK(dtl_backend_unregister(new_one));
    CHECK(find("host").id == other.id && find("auto").id == other.id);
}

static char logged[8192];
static int lines, levels[8];

static void collect(int32_t level, const char* text, void* user) {
    CHECK(user == &lines && strchr(text, '\n') == NULL);
    strncat(logged, text, sizeof logged - strlen(logged) - 2);
    strncat(logged, "\n", 2);
    lines++, levels[level & 7]++;
}

static void restart(void) {
    logged[0] = 0, lines = 0;
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
}

static void test_environment(void) {
    dtl_backend_t backend = {5};
    dtl_config_t config = DTL_CONFIG_INIT;
    CHECK_OK(dtl_log_set_callback(collect, &lines, DTL_LOG_WARN));
    setenv("STEPMESH_BAKCEND", "CPU", 1);
    restart();
    CHECK(strstr(logged, "STEPMESH_BAKCEND") != NULL && strstr(logged, "DTL_BACKEND") != NULL);
    CHECK(find(NULL).id == find("host").id);
    setenv("STEPMESH_BACKEND", "null", 1);
    restart();
    CHECK(find(NULL).id == find("null").id);
    setenv("DTL_BACKEND", "host", 1);
    restart();
    CHECK(find(NULL).id == find("host").id);
    CHECK_OK(dtl_finalize());
    setenv("DTL_TIMEOUT", "\xff", 1);
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "DTL_TIMEOUT") != NULL);
    unsetenv("DTL_TIMEOUT");
    CHECK_OK(dtl_init(NULL));
    setenv("DTL_BACKEND", "GPU", 1);
    restart();
    {
        const dtl_status_t status = dtl_backend_get(NULL, &backend); /* no fallback from a name */
        CHECK(status == DTL_ERROR_NOT_FOUND || status == DTL_ERROR_UNAVAILABLE || status == DTL_SUCCESS);
        if (status != DTL_SUCCESS) {
            CHECK_TEXT("cuda");
            CHECK(backend.id == 5);
        } else {
            CHECK(strcmp(dtl_backend_name(backend), "cuda") == 0);
        }
    }
    setenv("DTL_BACKEND", "nonesuch", 1);
    restart();
    CHECK_STATUS(dtl_backend_get(NULL, &backend), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("nonesuch");
    CHECK_TEXT("DTL_BACKEND");
    CHECK_OK(dtl_finalize());
    config.backend = "null"; /* a call wins over the environment */
    CHECK_OK(dtl_init(&config));
    CHECK(find(NULL).id == find("null").id);
    setenv("DTL_BAKEND", "x", 1);
    restart();
    CHECK(strstr(logged, "DTL_BAKEND") != NULL && strstr(logged, "did you mean DTL_BACKEND") != NULL);
    unsetenv("DTL_BAKEND"), unsetenv("DTL_BACKEND"), unsetenv("STEPMESH_BACKEND"), unsetenv("STEPMESH_BAKCEND");
    setenv("DTL_STRICT", "perhaps", 1);
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("DTL_STRICT=perhaps");
    CHECK_STATUS(dtl_backend_get(NULL, &backend), DTL_ERROR_INVALID_STATE);
    unsetenv("DTL_STRICT");
    CHECK_OK(dtl_init(NULL));
}

static void test_log(void) {
    CHECK_STATUS(dtl_log_set_callback(collect, &lines, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_log_set_callback(collect, &lines, 5), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_log_set_callback(collect, &lines, -2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_log_set_callback(collect, &lines, DTL_LOG_INFO));
    restart(); /* the level that a call has set outlives dtl_init */
    CHECK(find("auto").id == find("host").id);
    CHECK(strstr(logged, "host") != NULL && levels[DTL_LOG_INFO] > 0);
    CHECK_OK(dtl_log_set_callback(collect, &lines, DTL_LOG_OFF));
    setenv("DTL_NONSENSE", "1", 1);
    restart();
    CHECK(find("auto").id == find("host").id && lines == 0);
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    unsetenv("DTL_NONSENSE");
}

/* A configuration is checked whole before anything changes. */
static void test_config(void) {
    dtl_config_t config = DTL_CONFIG_INIT;
    dtl_backend_t backend;
    CHECK_OK(dtl_finalize());
    config.log_level = 9;
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INVALID_ARGUMENT);
    config.log_level = 0, config.strict = 2;
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INVALID_ARGUMENT);
    config.strict = 0, config.reserved = 1;
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INVALID_ARGUMENT);
    config.reserved = 0, config.struct_size = 0;
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INVALID_ARGUMENT);
    config.struct_size = 5000;
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INCOMPATIBLE_ABI);
    config.struct_size = sizeof config, config.backend = "\xff";
    CHECK_STATUS(dtl_init(&config), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_backend_get("host", &backend), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_INVALID_STATE);
    config.backend = NULL;
    CHECK_OK(dtl_init(&config));
    CHECK(find(NULL).id == find("host").id);
    /* Of the devices' choices only this thread's is left alone: see threads below. */
}

struct registrar {
    int number, shared_wins, distinct;
    struct far far;
};

static int go;

static void* register_many(void* user) {
    struct registrar* mine = (struct registrar*)user;
    struct far_tables tables;
    dtl_backend_t backend;
    char name[32];
    int i;
    far_fill(&tables);
    while (!far_get(&go)) {}
    for (i = 0; i < 50; i++) {
        dtl_status_t status;
        snprintf(name, sizeof name, "shared-%d", i);
        status = dtl_backend_register(name, &tables.main, &mine->far, 0, &backend);
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_ALREADY_EXISTS);
        mine->shared_wins += status == DTL_SUCCESS;
        snprintf(name, sizeof name, "own-%d-%d", mine->number, i);
        CHECK_OK(dtl_backend_register(name, &tables.main, &mine->far, 0, &backend));
        mine->distinct++;
        CHECK(find(name).id == backend.id);
        CHECK(find(NULL).id != 0);
    }
    return NULL;
}

static void test_threads(void) {
    static struct registrar registrars[8];
    pthread_t threads[8];
    uint64_t before = 0, after = 0;
    int i, wins = 0;
    CHECK_OK(dtl_backend_count(&before));
    for (i = 0; i < 8; i++) {
        registrars[i].number = i;
        CHECK(pthread_create(&threads[i], NULL, register_many, &registrars[i]) == 0);
    }
    far_add(&go);
    for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 8; i++) wins += registrars[i].shared_wins;
    CHECK(wins == 50); /* each shared name went to one thread */
    CHECK_OK(dtl_backend_count(&after));
    CHECK(after == before + 50 + 8 * 50);
    CHECK_OK(dtl_finalize());
    for (i = 0; i < 8; i++) CHECK(registrars[i].far.destroyed == registrars[i].shared_wins + registrars[i].distinct);
    CHECK_OK(dtl_init(NULL));
}

static int looked, enough;

static void* look(void* user) {
    dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
    (void)user;
    while (!far_get(&enough)) {
        uint64_t count = 0, i;
        dtl_backend_t at;
        CHECK_OK(dtl_init(NULL)); /* looks for drivers that the program uses */
        CHECK_OK(dtl_backend_count(&count));
        for (i = 0; i < count; i++) {
            dtl_status_t status = dtl_backend_at(i, &at);
            CHECK(status == DTL_SUCCESS || status == DTL_ERROR_OUT_OF_BOUNDS);
            if (status != DTL_SUCCESS) break;
            status = dtl_backend_info(at, &info);
            CHECK(status == DTL_SUCCESS || status == DTL_ERROR_INVALID_HANDLE);
        }
        (void)find(NULL);
        if (dtl_backend_get("fleeting", &at) != DTL_SUCCESS) CHECK_TEXT("host"); /* the known ones */
        CHECK_OK(dtl_finalize());
        far_add(&looked);
    }
    return NULL;
}

/* Who only looks at a backend does not use it: another thread can unregister it. */
static void test_lookers(void) {
    static struct far far;
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, look, NULL) == 0);
    for (i = 0; i < 2000 || far_get(&looked) < 500; i++) CHECK_OK(dtl_backend_unregister(far_register("fleeting", &far)));
    far_add(&enough);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

/* The current device belongs to the thread, whatever the backend believes. */
static int device_turn, process_wide_device;
static dtl_backend_t many;

static dtl_status_t wide_set(void* self, int32_t device) {
    (void)self;
    __atomic_store_n(&process_wide_device, device, __ATOMIC_RELEASE);
    return DTL_SUCCESS;
}
static dtl_status_t wide_get(void* self, int32_t* out) {
    (void)self;
    *out = far_get(&process_wide_device);
    return DTL_SUCCESS;
}

static void* choose_device(void* user) {
    const int32_t mine = *(const int32_t*)user;
    int32_t device = -1;
    dtl_mem_info_t info = DTL_MEM_INFO_INIT;
    void* memory = NULL;
    CHECK_OK(dtl_backend_set_device(many, mine));
    far_add(&device_turn);
    while (far_get(&device_turn) < 4) {}
    CHECK_OK(dtl_backend_get_device(many, &device));
    CHECK(device == mine);
    CHECK_OK(dtl_backend_get_device(DTL_BACKEND_NULL, &device)); /* and its backend is current */
    CHECK(device == mine);
    CHECK_OK(dtl_mem_alloc(DTL_BACKEND_NULL, DTL_MEMORY_DEVICE, 4, 0, &memory));
    CHECK_OK(dtl_mem_query(memory, &info));
    CHECK(info.device == mine && info.backend.id == many.id);
    CHECK_OK(dtl_mem_free(DTL_BACKEND_NULL, memory));
    CHECK_STATUS(dtl_backend_set_device(many, 4), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_backend_set_device(many, -1), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_OK(dtl_backend_get_device(many, &device));
    CHECK(device == mine);
    return NULL;
}

static void test_devices(void) {
    static const int32_t numbers[4] = {0, 1, 2, 3};
    struct far far;
    struct far_tables tables;
    dtl_backend_info_t info = DTL_BACKEND_INFO_INIT;
    pthread_t threads[4];
    int i;
    memset(&far, 0, sizeof far);
    far.devices = 4;
    far_fill(&tables);
    tables.device.set = wide_set, tables.device.get = wide_get;
    CHECK_OK(dtl_backend_register("many", &tables.main, &far, 0, &many));
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, choose_device, (void*)&numbers[i]) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_OK(dtl_backend_info(DTL_BACKEND_NULL, &info)); /* this thread chose nothing */
    CHECK(strcmp(info.name, "host") == 0);
    CHECK_OK(dtl_backend_set_device(many, 2));
    CHECK_OK(dtl_backend_unregister(many)); /* a current backend may go: the default one is back */
    CHECK_OK(dtl_backend_info(DTL_BACKEND_NULL, &info));
    CHECK(strcmp(info.name, "host") == 0);
    CHECK(far.destroyed == 1);
}

/* Use before the first dtl_init does not take the choice from it. */
static void test_late_init(void) {
    dtl_config_t config = DTL_CONFIG_INIT;
    CHECK(find(NULL).id == find("host").id);
    config.backend = "null";
    CHECK_OK(dtl_init(&config));
    CHECK(find(NULL).id == find("null").id);
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
}

/* Kind "rdma" where it cannot run: whoever asks hears why, nothing is opened, and "auto" does without it. */
static void test_no_rdma(void) {
    static const char* const cases[][2] = {
        {"/no/such/libibverbs.so.1", "DTL_RDMA_LIBRARY=/no/such/libibverbs.so.1: "},
        {"libc.so.6", "libc.so.6 is no RDMA verbs library (it has no function ibv_get_device_list)"},
        {"", "no RDMA "}}; /* no library, no kernel support or no device, as the machine is */
    size_t i;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char* reason = cases[i][1];
        dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
        dtl_rdma_config_t rdma = DTL_RDMA_CONFIG_INIT;
        dtl_comm_info_t info = DTL_COMM_INFO_INIT;
        dtl_comm_t comm = {77};
        int32_t is_there = 7;
        char why[1000];
        setenv("DTL_RDMA_LIBRARY", cases[i][0], 1);
        setenv("DTL_COMM", "rdma", 1);
        restart();
        CHECK_OK(dtl_backend_is_available(find("rdma"), &is_there, why, sizeof why, NULL));
        if (is_there) {
            CHECK(cases[i][0][0] == '\0');
            printf("an RDMA device is here: that there is none cannot be tried\n");
        } else {
            CHECK(strstr(why, reason) != NULL);
            CHECK_STATUS(dtl_comm_get_world(&comm), DTL_ERROR_UNAVAILABLE);
            CHECK_TEXT(reason);
            desc.kind = "rdma", desc.rank = 0, desc.size = 1, desc.rdma = &rdma;
            CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_UNAVAILABLE);
            CHECK_TEXT(reason);
            CHECK(comm.id == 77);
        }
        desc.kind = "auto", desc.rank = 0, desc.size = 1, desc.rdma = NULL;
        CHECK_OK(dtl_comm_open(&desc, &comm));
        CHECK_OK(dtl_comm_info(comm, &info));
        CHECK(strcmp(info.kind, "self") == 0);
        CHECK_OK(dtl_comm_destroy(comm));
    }
    unsetenv("DTL_RDMA_LIBRARY"), unsetenv("DTL_COMM");
    restart();
}

int main(void) {
    unsetenv("DTL_BACKEND"), unsetenv("STEPMESH_BACKEND"), unsetenv("STEPMESH_BAKCEND"), unsetenv("DTL_STRICT");
    CHECK_OK(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    test_late_init();
    test_names();
    test_enumeration();
    test_availability();
    test_choice();
    test_replace();
    test_environment();
    test_log();
    test_config();
    test_threads();
    test_lookers();
    test_devices();
    test_no_rdma();
    CHECK_OK(dtl_finalize());
    printf("ok\n");
    return 0;
}
