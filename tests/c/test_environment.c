/* Environments: order, counting, rollback, what is refused, versions, threads, nesting, state, finalize, fork, plugins, and
 * source that is compiled with them. Numbers are those of the rules of dtl_environment_require.
 * Usage: test_environment FOLDER OF PLUGINS [alone]; alone = without the forked child, which keeps its parent's objects for
 * ever and so has leaks in valgrind's eyes. C11, and valid C++17. */
#include "environment_cases.h"
#include "module_cases.h"
#include <sys/resource.h>
#include <sys/wait.h>

/* 1, 2: dependencies first, once, counted; the end in the reverse order. */
static void test_order(void) {
    struct thing a = THING("a"), b = THING("b"), c = THING("c"), d = THING("d");
    a.probed = 1;
    add(&a, NULL, "b", "c", "b"); /* registered before what it depends on; named twice */
    add(&b, NULL, "d", NULL, NULL);
    add(&c, NULL, "d", NULL, NULL);
    add(&d, NULL, NULL, NULL, NULL);
    CHECK(state_of("a") == DTL_ENVIRONMENT_IDLE);
    CHECK_OK(dtl_environment_require("a"));
    CALLS("+d +b +c ?a +a ");
    CHECK_OK(dtl_environment_require("a"));
    CHECK_OK(dtl_environment_require("d"));
    CALLS("");
    CHECK(state_of("a") == DTL_ENVIRONMENT_STARTED && info_of("a").uses == 2 && info_of("d").uses == 3);
    CHECK_OK(dtl_environment_release("a"));
    CALLS("");
    CHECK_OK(dtl_environment_release("a"));
    CALLS("-a -c -b "); /* d is still required */
    CHECK_OK(dtl_environment_release("d"));
    CALLS("-d ");
    CHECK_STATUS(dtl_environment_release("d"), DTL_ERROR_INVALID_STATE);
    CHECK_TEXT("environment d is not required");
    CHECK_OK(dtl_environment_require("c"));
    CHECK_OK(dtl_environment_require("a")); /* starts what is missing: d, c are there */
    CHECK_OK(dtl_environment_release("c"));
    CHECK_STATUS(dtl_environment_release("c"), DTL_ERROR_INVALID_STATE); /* a holds it; nobody can take that away */
    CHECK_TEXT("held by 1");
    CALLS("+d +c +b ?a +a ");
    CHECK_OK(dtl_environment_release("a"));
    CALLS("-a -b -c -d "); /* the reverse of how they started this time, not of the list */
    restart();
}

/* 4, 7: a failure takes back what this call has started, in reverse; others stay; it is not for ever. */
static void test_rollback(void) {
    struct thing a = THING("a"), b = THING("b"), c = THING("c"), d = THING("d");
    add(&a, NULL, "b", "c", "d");
    add(&b, NULL, NULL, NULL, NULL);
    add(&c, NULL, "b", NULL, NULL);
    add(&d, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_require("b"));
    a.inits = DTL_ERROR_CONNECTION_LOST;
    refused("a", DTL_ERROR_CONNECTION_LOST, "environment a: its init: ");
    CHECK_TEXT("no socket");
    CALLS("+b +c +d +a -d -c ");
    CHECK(state_of("a") == DTL_ENVIRONMENT_FAILED && info_of("a").status == DTL_ERROR_CONNECTION_LOST);
    CHECK(strstr(info_of("a").reason, "no socket") != NULL && info_of("b").uses == 1 && info_of("c").uses == 0);
    CHECK_STATUS(dtl_environment_release("a"), DTL_ERROR_INVALID_STATE);
    a.inits = DTL_SUCCESS, d.probes = DTL_ERROR_UNAVAILABLE;
    refused("a", DTL_ERROR_UNAVAILABLE, "environment d, required by a: it cannot be used here: its probe");
    CHECK(strstr(info_of("d").reason, "required by a") != NULL);
    CHECK_TEXT("d is out of order");
    CALLS("+c -c ");
    d.probes = 12345; /* no status */
    refused("d", DTL_ERROR_NATIVE_BACKEND, "12345");
    d.probes = DTL_SUCCESS;
    CHECK_OK(dtl_environment_require("a"));
    CHECK(info_of("a").status == DTL_SUCCESS && info_of("a").reason[0] == 0);
    CALLS("+c +d +a ");
    c.finalizes = DTL_ERROR_TIMEOUT; /* is told; the others end all the same */
    CHECK_STATUS(dtl_environment_release("a"), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("environment c: its finalize");
    CALLS("-a -d -c ");
    CHECK(state_of("c") == DTL_ENVIRONMENT_IDLE && state_of("b") == DTL_ENVIRONMENT_STARTED);
    restart();
}

/* 3: what is wrong is found before anything is called, and the members are named. */
static void test_refused(void) {
    struct thing a = THING("a"), b = THING("b"), c = THING("c"), ok = THING("ok");
    add(&a, "1.0", "ok", "b", NULL);
    add(&b, NULL, "c", NULL, NULL);
    add(&ok, "3.20", NULL, NULL, NULL);
    refused("a", DTL_ERROR_NOT_FOUND, "environment c is not registered (a -> b -> c)");
    CHECK_TEXT("registered: a, b, ok");
    refused("nobody", DTL_ERROR_NOT_FOUND, "environment nobody is not registered: ");
    add(&c, NULL, "a", NULL, NULL);
    refused("a", DTL_ERROR_INVALID_ARGUMENT, "a -> b -> c -> a");
    refused("c", DTL_ERROR_INVALID_ARGUMENT, "c -> a -> b -> c");
    refused("a b", DTL_ERROR_INVALID_ARGUMENT, "\"a b\"");
    refused(NULL, DTL_ERROR_NULL_POINTER, "name is NULL");
    CALLS("");
    CHECK_STATUS(dtl_environment_release("nobody"), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_environment_unregister("nobody"), DTL_ERROR_NOT_FOUND);
    CHECK_OK(dtl_environment_require("ok"));
    CHECK_STATUS(dtl_environment_unregister("ok"), DTL_ERROR_BUSY);
    CHECK_OK(dtl_environment_release("ok"));
    CHECK_OK(dtl_environment_unregister("ok"));
    refused("ok", DTL_ERROR_NOT_FOUND, "environment ok");
    CALLS("+ok -ok ");
    restart();
}

static void test_descriptions(void) {
    static const char *const list[3] = {"x", "y", NULL}, *const relative[1] = {"include"}, *const flag[1] = {"-lx"};
    struct thing a = THING("a"), b = THING("b");
    dtl_environment_desc_t desc = desc_of(&a), other;
    dtl_environment_info_t info = DTL_ENVIRONMENT_INFO_INIT;
    uint64_t before = 0, count = 0;
    CHECK_OK(dtl_environment_count(&before));
    desc.version = "1.2", desc.depends = list, desc.depends_count = 2;
    desc.packages = list, desc.packages_count = 2;
    CHECK_OK(dtl_environment_register(&desc));
    CHECK_OK(dtl_environment_register(&desc)); /* the very same */
#define DIFFERS(change, what)                                                                     \
    other = desc, change;                                                                         \
    CHECK_STATUS(dtl_environment_register(&other), DTL_ERROR_ALREADY_EXISTS);                     \
    CHECK_TEXT("environment a is registered with another description (different: " what ")")
    DIFFERS(other.version = "1.20", "version");
    DIFFERS(other.depends_count = 1, "depends");
    DIFFERS(other.packages_count = 1, "packages");
    DIFFERS((other.libraries = list, other.libraries_count = 1), "libraries");
    DIFFERS(other.state_size = 8, "state_size");
    DIFFERS(other.state_align = 64, "state_align");
    DIFFERS(other.init = NULL, "functions or user");
    DIFFERS(other.user = &b, "functions or user");
    CHECK_OK(dtl_environment_count(&count));
    CHECK(count == before + 1);
    CHECK_OK(dtl_environment_at(before, &info));
    CHECK(strcmp(info.name, "a") == 0 && strcmp(info.version, "1.2") == 0 && strcmp(info.depends, "x, y") == 0);
    CHECK(strcmp(info.packages, "x, y") == 0 && info.headers[0] == 0 && info.libraries[0] == 0 && info.uses == 0);
    CHECK_STATUS(dtl_environment_at(count, &info), DTL_ERROR_OUT_OF_BOUNDS);
    CHECK_STATUS(dtl_environment_info("nobody", &info), DTL_ERROR_NOT_FOUND);
#define BAD(change, status, words)                                                                \
    other = desc_of(&b), change;                                                                  \
    CHECK_STATUS(dtl_environment_register(&other), status);                                       \
    CHECK_TEXT(words)
    BAD(other.struct_size = 4, DTL_ERROR_INVALID_ARGUMENT, "struct_size");
    BAD(other.name = NULL, DTL_ERROR_NULL_POINTER, "dtl_environment_desc_t.name");
    BAD(other.name = "a/b", DTL_ERROR_INVALID_ARGUMENT, "a/b");
    BAD(other.version = "", DTL_ERROR_INVALID_ARGUMENT, "environment b, version \"\"");
    BAD(other.version = "new", DTL_ERROR_INVALID_ARGUMENT, "version \"new\"");
    BAD(other.depends_count = 1, DTL_ERROR_NULL_POINTER, "dtl_environment_desc_t.depends");
    BAD((other.depends = list, other.depends_count = 3), DTL_ERROR_NULL_POINTER, "dtl_environment_desc_t.depends[2]");
    BAD((other.depends = list, other.depends_count = 257), DTL_ERROR_LIMIT, "257");
    BAD((other.headers = relative, other.headers_count = 1), DTL_ERROR_INVALID_ARGUMENT, "\"include\": give a path");
    BAD((other.libraries = flag, other.libraries_count = 1), DTL_ERROR_INVALID_ARGUMENT, "\"-lx\"");
    BAD(other.state_align = 24, DTL_ERROR_INVALID_ARGUMENT, "state_align is 24");
    BAD(other.state_align = 8192, DTL_ERROR_INVALID_ARGUMENT, "state_align is 8192");
    BAD(other.state_size = UINT64_MAX, DTL_ERROR_LIMIT, "state_size");
    BAD(other.reserved = 1, DTL_ERROR_INVALID_ARGUMENT, "reserved");
    CHECK_STATUS(dtl_environment_register(NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_environment_count(&count));
    CHECK(count == before + 1);
    restart();
}

/* Versions are compared as versions. */
static void test_versions(void) {
    struct thing blas = THING("blas"), user = THING("user"), bare = THING("bare");
    char why[64] = "unchanged";
    int32_t yes = 7;
    add(&blas, "3.18.1", NULL, NULL, NULL);
    add(&user, NULL, "blas>=3.20", NULL, NULL);
    add(&bare, NULL, NULL, NULL, NULL);
    refused("user", DTL_ERROR_UNAVAILABLE, "environment blas has 3.18.1, and for user blas>=3.20 is wanted");
    refused("blas>=3.18.2", DTL_ERROR_UNAVAILABLE, "blas>=3.18.2");
    refused("bare>=1", DTL_ERROR_UNAVAILABLE, "environment bare has no version");
    refused("blas>=", DTL_ERROR_INVALID_ARGUMENT, "version \"\"");
    CHECK_OK(dtl_environment_is_available("user", &yes, why, 40, NULL));
    CHECK(yes == 0 && strlen(why) == 39 && strncmp(why, "environment blas has 3.18.1", 27) == 0); /* cut to fit */
    CHECK_OK(dtl_environment_is_available("user", &yes, NULL, 0, NULL));
    strcpy(why, "unchanged");
    CHECK_OK(dtl_environment_is_available("blas >= 3.9", &yes, why, sizeof why, NULL));
    CHECK(yes == 1 && why[0] == 0);
    CHECK_STATUS(dtl_environment_is_available("nobody", &yes, why, sizeof why, NULL), DTL_ERROR_NOT_FOUND);
    blas.probes = DTL_ERROR_UNAVAILABLE;
    CHECK_OK(dtl_environment_is_available("blas", &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strstr(why, "blas: it cannot be used here") != NULL);
    blas.probes = DTL_SUCCESS;
    CHECK_OK(dtl_environment_require("blas>=3.18"));
    CHECK_OK(dtl_environment_require("blas>=3.2"));
    CHECK_OK(dtl_environment_release("blas"));
    CHECK_OK(dtl_environment_release("blas"));
    CALLS("+blas -blas ");
    restart();
}

static void test_state(void) {
    struct thing a = THING("a"), none = THING("none");
    dtl_environment_desc_t desc = desc_of(&a);
    void *block = NULL, *again = NULL;
    desc.state_size = 100, desc.state_align = 4096;
    CHECK_OK(dtl_environment_register(&desc));
    add(&none, NULL, NULL, NULL, NULL);
    CHECK_STATUS(dtl_environment_state("a", &block), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_environment_state("nobody", &block), DTL_ERROR_NOT_FOUND);
    CHECK_STATUS(dtl_environment_state("a", NULL), DTL_ERROR_NULL_POINTER);
    CHECK(block == NULL);
    CHECK_OK(dtl_environment_require("a"));
    CHECK_OK(dtl_environment_require("none"));
    CHECK_OK(dtl_environment_state("a", &block));
    CHECK((uintptr_t)block % 4096 == 0 && ((unsigned char *)block)[0] == 1 && ((unsigned char *)block)[99] == 0);
    CHECK_OK(dtl_environment_state("a", &again));
    CHECK(again == block);
    CHECK_OK(dtl_environment_state("none", &again));
    CHECK(again == NULL);
    restart(); /* ends them both */
}

static void *require_one(void *name) { return (void *)(intptr_t)dtl_environment_require((const char *)name); }

/* 5: one init, and its result for all. */
static void test_threads(void) {
    struct thing slow = THING("slow"), bad = THING("bad");
    pthread_t threads[8];
    int i;
    slow.nap_ms = bad.nap_ms = 100, bad.inits = DTL_ERROR_OUT_OF_MEMORY;
    add(&slow, NULL, NULL, NULL, NULL);
    add(&bad, NULL, "slow", NULL, NULL);
    for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, require_one, (void *)(intptr_t) "slow") == 0);
    for (i = 0; i < 8; i++) {
        void *status = (void *)1;
        CHECK(pthread_join(threads[i], &status) == 0 && status == NULL);
    }
    CHECK(slow.init_calls == 1 && info_of("slow").uses == 8);
    for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, require_one, (void *)(intptr_t) "bad") == 0);
    for (i = 0; i < 8; i++) {
        void *status = NULL;
        CHECK(pthread_join(threads[i], &status) == 0 && (intptr_t)status == DTL_ERROR_OUT_OF_MEMORY);
    }
    CHECK(bad.init_calls < 8 && info_of("slow").uses == 8); /* who came after a failure tried again */
    restart();
}

static void test_random(void) {
    pthread_t threads[4];
    uintptr_t i;
    for (i = 0; i < 4; i++) {
        dtl_environment_desc_t desc = desc_of(&levels[i].thing);
        const char *depends[2] = {levels[i].below[0] < 0 ? NULL : levels[levels[i].below[0]].thing.name,
                                  levels[i].below[1] < 0 ? NULL : levels[levels[i].below[1]].thing.name};
        desc.init = level_up, desc.finalize = level_down, desc.user = &levels[i];
        desc.probe = NULL, desc.depends = depends;
        desc.depends_count = (uint32_t)((depends[0] != NULL) + (depends[1] != NULL));
        CHECK_OK(dtl_environment_register(&desc));
    }
    for (i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, climb, (void *)(i + 1)) == 0);
    for (i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 4; i++) CHECK(levels[i].up == 0 && info_of(levels[i].thing.name).uses == 0);
    restart();
}

/* How many there may be, how deep, how large. */
static void test_limits(int forks) {
    static char names[4097][8];
    struct thing large = THING("large");
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    uint64_t there = 0;
    uint32_t i;
    CHECK_OK(dtl_environment_count(&there));
    for (i = 0; i < 66; i++) {
        const char *below = i == 0 ? NULL : names[i - 1];
        snprintf(names[i], sizeof names[i], "n%u", i);
        desc.name = names[i], desc.depends = &below, desc.depends_count = i > 0;
        CHECK_OK(dtl_environment_register(&desc));
    }
    CHECK_OK(dtl_environment_require("n64"));
    CHECK_OK(dtl_environment_release("n64"));
    refused("n65", DTL_ERROR_LIMIT, "more than 64 dependencies below n65");
    desc.depends_count = 0;
    for (; i < 4096 - there; i++) {
        snprintf(names[i], sizeof names[i], "n%u", i);
        desc.name = names[i];
        CHECK_OK(dtl_environment_register(&desc));
    }
    desc.name = "n-more";
    CHECK_STATUS(dtl_environment_register(&desc), DTL_ERROR_LIMIT);
    CHECK_TEXT("4096");
    restart();
    desc = desc_of(&large), desc.state_size = UINT64_C(1) << 30;
    CHECK_OK(dtl_environment_register(&desc));
    if (forks) { /* valgrind has no such limit */
        struct rlimit before, now;
        CHECK(getrlimit(RLIMIT_AS, &before) == 0);
        now = before, now.rlim_cur = 1 << 20;
        CHECK(setrlimit(RLIMIT_AS, &now) == 0);
        refused("large", DTL_ERROR_OUT_OF_MEMORY, "environment large: no memory for its state of 1073741824 bytes");
        CHECK(setrlimit(RLIMIT_AS, &before) == 0);
        CALLS("");
    }
    restart();
}

/* 6, over threads: x's init requires y and y's requires x. Exactly one is refused, nobody hangs. */
static struct {
    pthread_barrier_t both;
    int32_t refused;
} cross;

static dtl_status_t crossing(void *user, void *state) {
    const char *other = (const char *)user;
    dtl_status_t status;
    (void)state;
    (void)pthread_barrier_wait(&cross.both);
    status = dtl_environment_require(other);
    /* The other one fails as its init does, with the same words in it. */
    if (status == DTL_ERROR_INVALID_STATE && strstr(dtl_last_error(), ", which requires ") != NULL &&
        strstr(dtl_last_error(), "its init") == NULL) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        cross.refused++;
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
    return status;
}

static void test_crossing(void) {
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    pthread_t threads[2];
    void *first = NULL, *second = NULL;
    CHECK(pthread_barrier_init(&cross.both, NULL, 2) == 0);
    desc.init = crossing;
    desc.name = "x", desc.user = (void *)(intptr_t) "y";
    CHECK_OK(dtl_environment_register(&desc));
    desc.name = "y", desc.user = (void *)(intptr_t) "x";
    CHECK_OK(dtl_environment_register(&desc));
    CHECK(pthread_create(&threads[0], NULL, require_one, (void *)(intptr_t) "x") == 0);
    CHECK(pthread_create(&threads[1], NULL, require_one, (void *)(intptr_t) "y") == 0);
    CHECK(pthread_join(threads[0], &first) == 0 && pthread_join(threads[1], &second) == 0);
    CHECK(cross.refused == 1 && (intptr_t)first == DTL_ERROR_INVALID_STATE && (intptr_t)second == DTL_ERROR_INVALID_STATE);
    CHECK(state_of("x") == DTL_ENVIRONMENT_FAILED && info_of("x").uses == 0 && info_of("y").uses == 0);
    restart();
}

/* 6: an init that requires another; never itself. */
static void test_nesting(void) {
    struct thing a = THING("a"), b = THING("b"), c = THING("c");
    a.required = "b", c.required = "a";
    add(&a, NULL, NULL, NULL, NULL);
    add(&b, NULL, NULL, NULL, NULL);
    add(&c, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_require("c"));
    CALLS("+b +a +c ");
    CHECK(info_of("b").uses == 1);
    CHECK_STATUS(dtl_environment_release("b"), DTL_ERROR_INVALID_STATE); /* it belongs to a */
    CHECK_OK(dtl_environment_release("c"));
    CALLS("-c -a -b ");
    c.inits = DTL_ERROR_TIMEOUT; /* what its init required goes, too */
    refused("c", DTL_ERROR_TIMEOUT, "environment c");
    CALLS("+b +a +c -a -b ");
    c.inits = DTL_SUCCESS, c.gives_back = 1; /* only for a while */
    CHECK_OK(dtl_environment_require("c"));
    CALLS("+b +a -a -b +c ");
    CHECK_OK(dtl_environment_release("c"));
    CALLS("-c ");
    c.gives_back = 0, b.required = "c", b.expected = DTL_ERROR_INVALID_STATE;
    CHECK_OK(dtl_environment_require("c")); /* b's init finds the circle and goes on without */
    CHECK_TEXT("environment c is required inside its own start or end: the function of b requires c");
    CALLS("+b +a +c ");
    restart();
    b.required = "b", calls[0] = 0;
    add(&b, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_require("b"));
    CHECK_TEXT("environment b is required inside its own start or end");
    restart();
}

/* dtl_finalize ends what is required, in reverse; nothing is called in a forked child. */
static void test_end(int forks) {
    struct thing a = THING("a"), b = THING("b"), c = THING("c");
    uint64_t count = 77;
    pid_t child;
    int status = -1;
    add(&a, NULL, "b", NULL, NULL);
    add(&b, NULL, NULL, NULL, NULL);
    add(&c, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_require("b"));
    CHECK_OK(dtl_environment_require("c"));
    CHECK_OK(dtl_environment_require("a"));
    CHECK_OK(dtl_environment_require("a"));
    CALLS("+b +c +a ");
    child = forks ? fork() : -1;
    CHECK(child >= 0 || !forks);
    if (child == 0) {
        CHECK_STATUS(dtl_environment_require("a"), DTL_ERROR_FORKED);
        CHECK_OK(dtl_init_after_fork());
        CHECK_OK(dtl_environment_count(&count));
        CHECK(count == 0);
        add(&c, NULL, NULL, NULL, NULL);
        CHECK_OK(dtl_environment_require("c"));
        CHECK_OK(dtl_finalize());
        CALLS("+c -c "); /* its own, nothing of the parent's */
        _exit(0);
    }
    CHECK(!forks || (waitpid(child, &status, 0) == child && status == 0));
    CALLS("");
    CHECK_OK(dtl_finalize());
    CALLS("-a -c -b ");
    CHECK_STATUS(dtl_environment_require("a"), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_init(NULL));
    refused("a", DTL_ERROR_NOT_FOUND, "registered: none");
}

static dtl_status_t ends_the_library(void *user, void *state) {
    (void)user, (void)state;
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    return DTL_SUCCESS;
}

static void test_finalize_inside(void) {
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    desc.name = "ends", desc.init = ends_the_library;
    CHECK_OK(dtl_environment_register(&desc));
    CHECK_OK(dtl_environment_require("ends"));
    restart();
}

/* Source is compiled with an environment's headers and libraries, with files, and anew when one of them changes. */
static void test_source(void) {
    struct thing tool = THING("tool"), below = THING("below"), late = THING("late");
    pthread_t thread;
    static const char *const names[1] = {"tool>=1"}, *const wrong[1] = {"nobody"};
    const char *libraries[1], *headers[1], *depends[1] = {"below"};
    char library[512], command[1600], folder[400], long_name[300] = "";
    dtl_source_file_t files[2] = {{"number.h", "#include \"deep/add.h\"\n#define NUMBER ADD(1)\n", 0, 0},
                                  {"deep/add.h", "#define ADD(x) ((x) + 1000)\n", 0, 0}};
    dtl_source_t source = m_source("#include <number.h>\n#include <tool.h>\nint tool(void);\n" GIVES("NUMBER + TOOL + tool()"));
    dtl_environment_desc_t desc = desc_of(&tool);
    dtl_module_t module = DTL_MODULE_NULL, again = DTL_MODULE_NULL;
    m_make_folder();
    restart();
    snprintf(folder, sizeof folder, "%s/inc", m_folder);
    snprintf(library, sizeof library, "%s/libtool_.so", m_folder);
    snprintf(command, sizeof command,
             "mkdir -p %s && echo '#define TOOL 20' > %s/tool.h && echo 'int tool(void) { return 300; }' | "
             "cc -shared -fPIC -x c - -o %s", folder, folder, library);
    if (system(command) != 0) SKIP("there is no C compiler for a library to link with");
    libraries[0] = library, headers[0] = folder;
    add(&below, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_unregister("below"));
    {
        dtl_environment_desc_t lower = desc_of(&below);
        lower.headers = headers, lower.headers_count = 1; /* those of what it depends on count */
        CHECK_OK(dtl_environment_register(&lower));
    }
    desc.version = "1.1", desc.depends = depends, desc.depends_count = 1;
    desc.libraries = libraries, desc.libraries_count = 1;
    CHECK_OK(dtl_environment_register(&desc));
    source.files = files, source.file_count = 2;
    source.environments = wrong, source.environment_count = 1;
    m_refused(source, DTL_ERROR_NOT_FOUND, "environment nobody is not registered");
    source.environments = names;
    tool.inits = DTL_ERROR_TIMEOUT;
    m_refused(source, DTL_ERROR_TIMEOUT, "environment tool");
    tool.inits = DTL_SUCCESS, calls[0] = 0;
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
    CALLS("+below +tool ");
    CHECK(m_given(module) == 1001 + 20 + 300);
    CHECK_STATUS(dtl_environment_unregister("tool"), DTL_ERROR_BUSY); /* the module has it */
    files[1].text = "#define ADD(x) ((x) + 2000)\n"; /* a file is an input of what is kept … */
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &again));
    CHECK(m_given(again) == 2001 + 20 + 300);
    CHECK_OK(dtl_module_destroy(again));
    snprintf(command, sizeof command, "echo '#define TOOL 50' > %s/tool.h", folder); /* … and so is a header … */
    CHECK(system(command) == 0);
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &again));
    CHECK(m_given(again) == 2001 + 50 + 300);
    CHECK_OK(dtl_module_destroy(again));
    files[1].text = "#error \"on purpose\"\n"; /* … and messages name it. */
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "deep/add.h:1");
    CALLS("");
    CHECK_OK(dtl_module_destroy(module));
    CALLS("-tool -below ");
    files[1].text = "#define ADD(x) ((x) + 1000)\n";
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
    CHECK(pthread_create(&thread, NULL, require_one, (void *)(intptr_t) "below") == 0 && pthread_join(thread, NULL) == 0);
    add(&late, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_environment_require("late"));
    calls[0] = 0;
    CHECK_OK(dtl_finalize()); /* destroys the module; the order is that of all environments */
    CALLS("-late -tool -below ");
    CHECK_OK(dtl_init(NULL));
    source.environment_count = 0;
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "");
    files[1].name = "number.h";
    m_refused(source, DTL_ERROR_ALREADY_EXISTS, "files[1]: there are two files \"number.h\"");
    files[1].name = "number.h/x.h"; /* a file and its folder */
    m_refused(source, DTL_ERROR_ALREADY_EXISTS, "files[1]: of \"number.h\" and \"number.h/x.h\" one is");
    files[1].name = long_name, memset(long_name, 'x', 256);
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "255 between two '/'");
    files[1].name = "../x.h";
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "files[1].name is \"../x.h\"");
    files[1].name = "/etc/x.h";
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "/etc/x.h");
    files[1].name = "dtl_kernel.h";
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "not dtl_kernel.h");
    files[1].name = NULL;
    m_refused(source, DTL_ERROR_NULL_POINTER, "files[1].name");
    files[1].name = "x.h", files[1].text = NULL, files[1].size_bytes = 3;
    m_refused(source, DTL_ERROR_NULL_POINTER, "files[1].text");
    files[1].text = "a\0b";
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "NUL");
    files[1].size_bytes = 0, files[1].reserved = 1;
    m_refused(source, DTL_ERROR_INVALID_ARGUMENT, "reserved");
    source.file_count = 1025;
    m_refused(source, DTL_ERROR_LIMIT, "1025 files");
    source.files = NULL, source.file_count = 1;
    m_refused(source, DTL_ERROR_NULL_POINTER, "dtl_source_t.files");
    restart();
    m_remove(m_folder);
}

/* A plugin's environments: its own and the program's; the backend cannot be used without them. */
static void test_plugin(void) {
    struct thing programs = THING("programs");
    dtl_backend_t backend = DTL_BACKEND_NULL;
    char why[256] = "";
    int32_t yes = 7;
    void *memory = NULL;
    CHECK_STATUS(dtl_backend_load(in(plugins, "environment_fails.so"), NULL), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("on purpose");
    CHECK_STATUS(dtl_environment_require("plug"), DTL_ERROR_NOT_FOUND); /* taken back */
    CHECK_OK(dtl_backend_load(in(plugins, "environment.so"), &backend));
    CHECK(strcmp(info_of("plug").version, "2.10") == 0 && state_of("plug") == DTL_ENVIRONMENT_IDLE);
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 0 && strstr(why, "environment programs is not registered") != NULL);
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory), DTL_ERROR_UNAVAILABLE);
    CHECK_TEXT("environment programs is not registered");
    programs.inits = DTL_ERROR_TIMEOUT;
    add(&programs, NULL, NULL, NULL, NULL);
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 1 && state_of("plug") == DTL_ENVIRONMENT_IDLE); /* asking starts nothing */
    CHECK_STATUS(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory), DTL_ERROR_TIMEOUT);
    CHECK_TEXT("backend needy cannot run here: environment programs");
    CHECK(state_of("plug") == DTL_ENVIRONMENT_IDLE && memory == NULL);
    programs.inits = DTL_SUCCESS;
    CHECK_OK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 8, 0, &memory));
    CHECK(state_of("plug") == DTL_ENVIRONMENT_STARTED && state_of("plug.base") == DTL_ENVIRONMENT_STARTED);
    CHECK_OK(dtl_mem_free(backend, memory));
    CHECK_OK(dtl_backend_is_available(backend, &yes, why, sizeof why, NULL));
    CHECK(yes == 1);
    restart();
    CHECK_OK(dtl_backend_load(in(plugins, "environment.so"), &backend)); /* again: registers again */
    CHECK(state_of("plug") == DTL_ENVIRONMENT_IDLE);
    (void)copy_of("environment.so", "environment.so");
    CHECK(setenv("DTL_PLUGIN_PATH", own, 1) == 0);
    restart();
    CHECK_OK(dtl_environment_is_available("plug>=2.9", &yes, why, sizeof why, NULL)); /* it is searched for */
    CHECK_OK(dtl_environment_require("plug"));
    CHECK(yes == 1 && state_of("plug") == DTL_ENVIRONMENT_STARTED);
    CHECK(unsetenv("DTL_PLUGIN_PATH") == 0);
    restart();
}

/* An environment that is being asked whether it can be used does not go away. */
static dtl_status_t probe_that_unregisters(void *user, char *why, uint64_t cap) {
    (void)user, (void)why, (void)cap;
    CHECK_STATUS(dtl_environment_unregister("asked"), DTL_ERROR_BUSY);
    return DTL_SUCCESS;
}

static void test_probe(void) {
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    int32_t yes = 0;
    desc.name = "asked", desc.probe = probe_that_unregisters;
    CHECK_OK(dtl_environment_register(&desc));
    CHECK_OK(dtl_environment_is_available("asked", &yes, NULL, 0, NULL));
    CHECK_OK(dtl_environment_require("asked"));
    CHECK_OK(dtl_environment_release("asked"));
    CHECK_OK(dtl_environment_unregister("asked"));
    CHECK(yes == 1);
}

int main(int argc, char **argv) {
    plugins_begin(argc, argv);
    CHECK(unsetenv("DTL_PLUGIN_PATH") == 0);
    DTL_IGNORE(dtl_log_set_callback(NULL, NULL, DTL_LOG_ERROR));
    CHECK_OK(dtl_init(NULL));
    test_order();
    test_rollback();
    test_refused();
    test_descriptions();
    test_versions();
    test_state();
    test_threads();
    test_random();
    test_limits(argc == 2);
    test_crossing();
    test_nesting();
    test_end(argc == 2);
    test_finalize_inside();
    test_plugin();
    test_probe();
    test_source();
    CHECK_OK(dtl_finalize());
    return 0;
}
