/* What the tests of environments share: environments that note what is called of them. Not a test by itself. */
#ifndef DTL_TESTS_ENVIRONMENT_CASES_H
#define DTL_TESTS_ENVIRONMENT_CASES_H

#include "plugins.h"
#include <pthread.h>

/* What was called, in order: "+a" init of a, "-a" finalize, "?a" probe. */
static char calls[4096];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct thing {
    const char *name;
    dtl_status_t probes, inits, finalizes; /* what they answer */
    const char *required;                  /* by its init */
    dtl_status_t expected;                 /* of that */
    int nap_ms, probed, gives_back;
    int32_t init_calls;
};

static inline void note(char what, const char *name) {
    size_t used;
    CHECK(pthread_mutex_lock(&lock) == 0);
    used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%c%s ", what, name);
    CHECK(pthread_mutex_unlock(&lock) == 0);
}

#define CALLS(text)                                                                               \
    do {                                                                                          \
        if (strcmp(calls, text) != 0) fprintf(stderr, "called: %s\n", calls);                     \
        CHECK(strcmp(calls, text) == 0);                                                          \
        calls[0] = 0;                                                                             \
    } while (0)

static inline dtl_status_t probe(void *user, char *why, uint64_t cap) {
    struct thing *thing = (struct thing *)user;
    CHECK(cap >= 256 && why[0] == 0);
    if (thing->probed) note('?', thing->name);
    if (thing->probes != DTL_SUCCESS) snprintf(why, (size_t)cap, "%s is out of order", thing->name);
    return thing->probes;
}

static inline dtl_status_t init(void *user, void *state) {
    struct thing *thing = (struct thing *)user;
    void *other = (void *)1;
    thing->init_calls++;
    CHECK(state == NULL || ((unsigned char *)state)[0] == 0);
    if (state != NULL) ((unsigned char *)state)[0] = 1;
    CHECK_STATUS(dtl_environment_state(thing->name, &other), DTL_ERROR_INVALID_STATE); /* not started yet */
    CHECK(other == (void *)1);
    if (thing->nap_ms) usleep((useconds_t)thing->nap_ms * 1000);
    if (thing->required != NULL) {
        CHECK_STATUS(dtl_environment_require(thing->required), thing->expected);
        if (thing->gives_back) CHECK_OK(dtl_environment_release(thing->required));
    }
    note('+', thing->name);
    if (thing->inits != DTL_SUCCESS) CHECK_OK(dtl_backend_set_error("no socket"));
    return thing->inits;
}

static inline dtl_status_t finalize(void *user, void *state) {
    struct thing *thing = (struct thing *)user;
    CHECK(state == NULL || ((unsigned char *)state)[0] == 1);
    note('-', thing->name);
    return thing->finalizes;
}

static inline dtl_environment_desc_t desc_of(struct thing *thing) {
    dtl_environment_desc_t desc = DTL_ENVIRONMENT_DESC_INIT;
    desc.name = thing->name;
    desc.probe = probe, desc.init = init, desc.finalize = finalize, desc.user = thing;
    return desc;
}

/* Registers; `depends` are up to three. */
static inline void add(struct thing *thing, const char *version, const char *a, const char *b, const char *c) {
    dtl_environment_desc_t desc = desc_of(thing);
    const char *depends[3];
    depends[0] = a, depends[1] = b, depends[2] = c;
    desc.version = version;
    desc.depends = depends;
    desc.depends_count = (uint32_t)((a != NULL) + (b != NULL) + (c != NULL));
    CHECK_OK(dtl_environment_register(&desc));
}

static inline void refused(const char *name, dtl_status_t status, const char *words) {
    CHECK_STATUS(dtl_environment_require(name), status);
    if (strstr(dtl_last_error(), words) == NULL) fprintf(stderr, "wanted \"%s\"\n", words);
    CHECK_TEXT(words);
}

static inline dtl_environment_info_t info_of(const char *name) {
    dtl_environment_info_t info = DTL_ENVIRONMENT_INFO_INIT;
    CHECK_OK(dtl_environment_info(name, &info));
    return info;
}

static inline int state_of(const char *name) { return info_of(name).state; }

/* Everything is forgotten, as if the program began anew. */
static inline void restart(void) {
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
    calls[0] = 0;
}

#define THING(name) {name, DTL_SUCCESS, DTL_SUCCESS, DTL_SUCCESS, NULL, DTL_SUCCESS, 0, 0, 0, 0}

/* Threads that require and release at random: what is started has what it depends on, and in the end all is over. */
static struct level {
    struct thing thing;
    int32_t below[2];
    int32_t up, starts;
} levels[4] = {{THING("l0"), {-1, -1}, 0, 0}, {THING("l1"), {0, -1}, 0, 0}, {THING("l2"), {0, 1}, 0, 0}, {THING("l3"), {1, 0}, 0, 0}};

static inline void check_below(const struct level *level) {
    int i;
    for (i = 0; i < 2; i++) CHECK(level->below[i] < 0 || __atomic_load_n(&levels[level->below[i]].up, __ATOMIC_SEQ_CST) == 1);
}

static inline dtl_status_t level_up(void *user, void *state) {
    struct level *level = (struct level *)user;
    (void)state;
    check_below(level);
    CHECK(__atomic_add_fetch(&level->up, 1, __ATOMIC_SEQ_CST) == 1);
    if (level == &levels[3] && ++level->starts % 3 == 0) { /* fails now and then */
        CHECK(__atomic_sub_fetch(&level->up, 1, __ATOMIC_SEQ_CST) == 0);
        return DTL_ERROR_TIMEOUT;
    }
    return DTL_SUCCESS;
}

static inline dtl_status_t level_down(void *user, void *state) {
    (void)state;
    check_below((struct level *)user);
    CHECK(__atomic_sub_fetch(&((struct level *)user)->up, 1, __ATOMIC_SEQ_CST) == 0);
    return DTL_SUCCESS;
}

static inline void *climb(void *seed) {
    uint32_t random = (uint32_t)(uintptr_t)seed;
    int i;
    for (i = 0; i < 400; i++) {
        struct level *level = &levels[(random = random * 1664525u + 1013904223u) >> 30];
        const dtl_status_t status = dtl_environment_require(level->thing.name);
        CHECK(status == DTL_SUCCESS || (status == DTL_ERROR_TIMEOUT && level == &levels[3]));
        if (status != DTL_SUCCESS) continue;
        CHECK(__atomic_load_n(&level->up, __ATOMIC_SEQ_CST) == 1);
        CHECK_OK(dtl_environment_release(level->thing.name));
    }
    return NULL;
}

#endif
