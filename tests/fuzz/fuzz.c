/* Calls the functions of dtl.h at random, from several threads at once, with arguments that are null,
 * stale, forged, of another type or out of range, and with buffers exactly as long as documented.
 * No call may crash or hang, a call that fails writes nothing, and finalize releases everything.
 *
 * Usage: fuzz [CALLS=100000] [THREADS=4] [SEED=1] [PART=""]
 * PART selects the functions whose name contains it; "-PART" selects all others.
 * The table of functions, calls.h, is generated from the header's sources. Linux; C11. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "arguments.h"
#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <time.h>

#define ROUND 20000    /* calls of each thread between two calls of dtl_finalize */
/* No call waits longer than a few ms; the rest of the time is margin for a busy machine. */
#define PATIENCE_SECONDS 20
#define HANG_SECONDS 120

static _Atomic uint64_t succeeded[CALLS], refused[CALLS], failures;
static _Atomic int running;
static const char* part = "";
static uint64_t seed = 1;

/* A function is called once in so many draws; 0: never. */
static uint64_t rarity(const char* name) {
    if (is(name, "dtl_comm_abort")) return 0; /* ends the process, as documented */
    if (is(name, "dtl_comm_from_mpi_fint")) return 0; /* starts a foreign MPI, which aborts for a wrong handle */
    if (is(name, "dtl_finalize")) return 2000;
    if (is(name, "dtl_init")) return 50;
    if (is(name, "dtl_module_compile") || has(name, "self_test") || is(name, "dtl_trace_start") || is(name, "dtl_executor_create")) return 200;
    if (is(name, "dtl_comm_threads") || is(name, "dtl_comm_open") || is(name, "dtl_backend_load_dir")) return 20;
    if (begins(name, "dtl_comm_") || begins(name, "dtl_win_")) return 3;
    return 1;
}

static void complain(const char* what, const struct call* call, const struct parameter* p, dtl_status_t status) {
    fprintf(stderr, "%s: %s of %s, status %s: %s\n", call->name, what, p != NULL ? p->name : "the call", dtl_status_name(status), dtl_last_error());
    report(me, "  arguments");
    if (++failures > 50) exit(1);
}

static void make_call(uint64_t index) {
    const struct call* call = &calls[index];
    union value v[MOST_PARAMETERS];
    const int protected = once_in(2);
    draw_arguments(call, v);
    me->values = v;
    for (int i = 0; i < call->count; i++) {
        const struct parameter* p = &call->parameters[i];
        me->read_only[i] = 0;
        if (!p->is_output || me->lengths[i] == 0) continue;
        memcpy(me->before[i], v[i].pointer, me->lengths[i]);
        if (protected && !(is(p->base, "void") && p->depth == 1)) {
            me->read_only[i] = 1;
            protect(i, PROT_READ);
        }
    }
    me->current = call;
    const dtl_status_t status = call->function(v);
    if (status == DTL_ERROR_INTERNAL) complain("a panic", call, NULL, status);
    ++*(status == DTL_SUCCESS ? &succeeded[index] : &refused[index]);
    for (int i = 0; i < call->count; i++) {
        const struct parameter* p = &call->parameters[i];
        const int state = me->read_only[i];
        if (state == 1) protect(i, PROT_READ | PROT_WRITE);
        me->read_only[i] = 0;
        if (me->lengths[i] == 0 || !must_be_untouched(call, p, status)) continue;
        if (state == 2) complain("a failed call writes to the page", call, p, status);
        else if (memcmp(me->before[i], v[i].pointer, me->lengths[i]) != 0) complain("a failed call changes the output", call, p, status);
    }
    if (status == DTL_SUCCESS) keep_results(call, v);
    me->current = NULL;
    me->done++;
}

static uint64_t some_call(void) {
    for (;;) {
        const uint64_t index = below(CALLS), rare = rarity(calls[index].name);
        const int chosen = part[0] == '-' ? !has(calls[index].name, part + 1) : has(calls[index].name, part);
        if (rare != 0 && chosen && once_in(rare)) return index;
    }
}

static void* work(void* number) {
    me = &threads[(uintptr_t)number & 0xFF];
    generator = seed * 1000003 + ((uintptr_t)number >> 8) * 64 + ((uintptr_t)number & 0xFF);
    for (int i = 0; i < ROUND; i++) make_call(some_call());
    running--;
    return NULL;
}

/* No call waits beyond its time limit. dtl_request_destroy has none: it waits for an operation that has been
 * matched. Destroying the communicators ends that wait. */
static void release_waits(uint64_t count) {
    for (uint64_t t = 0; t < count; t++) {
        const struct call* call = threads[t].current;
        if (call == NULL || is(call->name, "dtl_request_destroy")) continue;
        report(&threads[t], "waits beyond its time limit");
        failures++;
    }
    const int noun = noun_of("dtl_comm_t");
    for (int i = 0; i < KEPT; i++) {
        const dtl_comm_t comm = {kept[noun][i]};
        DTL_IGNORE(dtl_comm_destroy(comm));
    }
}

/* Reports a call that does not return, with its arguments. */
static void watch(uint64_t count) {
    uint64_t last[MOST_THREADS] = {0};
    for (int quiet = 0; running > 0; usleep(10000)) {
        int moved = 0;
        for (uint64_t t = 0; t < count; t++) {
            moved |= threads[t].done != last[t];
            last[t] = threads[t].done;
        }
        quiet = moved ? 0 : quiet + 1;
        if (quiet == PATIENCE_SECONDS * 100) release_waits(count);
        if (quiet < HANG_SECONDS * 100) continue;
        for (uint64_t t = 0; t < count; t++)
            if (threads[t].current != NULL) report(&threads[t], "hang");
        abort();
    }
}

static uint64_t entries(const char* folder) {
    DIR* open = opendir(folder);
    uint64_t count = 0;
    if (open == NULL) return 0;
    while (readdir(open) != NULL) count++;
    closedir(open);
    return count;
}

/* Counts the library's own threads; threads of vendor libraries may stay. */
static uint64_t library_threads(void) {
    DIR* open = opendir("/proc/self/task");
    struct dirent* entry;
    uint64_t count = 0;
    while (open != NULL && (entry = readdir(open)) != NULL) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE* file = fopen(path, "r");
        if (file == NULL) continue;
        if (fgets(name, sizeof name, file) != NULL && begins(name, "dtl-")) count++;
        fclose(file);
    }
    if (open != NULL) closedir(open);
    return count;
}

static uint64_t resident_kib(void) {
    unsigned long pages = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    if (file != NULL) fclose(file);
    return pages * (PAGE / 1024);
}

/* Finalizes the library and reports which resources it still has. */
static void end_library(uint64_t round, uint64_t made) {
    static uint64_t descriptors;
    int ends = 0;
    while (dtl_finalize() == DTL_SUCCESS) ends++;
    const uint64_t now = entries("/proc/self/fd");
    uint64_t left = library_threads();
    for (int tries = 0; left > 0 && tries < 1000; tries++) { /* a joined thread is still listed for a moment */
        usleep(1000);
        left = library_threads();
    }
    printf("%8llu calls: %llu descriptors, %llu threads, %llu KiB after finalize (%d inits)\n", (unsigned long long)made,
        (unsigned long long)now - 2, (unsigned long long)left, (unsigned long long)resident_kib(), ends);
    fflush(stdout);
    if (round == 0) descriptors = now;
    if (now > descriptors || left > 0) {
        fprintf(stderr, "finalize leaves descriptors (%llu, there were %llu) or threads (%llu)\n", (unsigned long long)now,
            (unsigned long long)descriptors, (unsigned long long)left);
        failures++;
    }
}

static int remove_one(const char* path, const struct stat* info, int type, struct FTW* level) {
    (void)info, (void)type, (void)level;
    return remove(path);
}

int main(int argc, char** argv) {
    const uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000, count = argc > 2 ? strtoull(argv[2], NULL, 0) : 4;
    uint64_t made = 0, round = 0;
    char folder[] = "/tmp/dtl-fuzz-XXXXXX";
    FILE* text;
    if (argc > 3) seed = strtoull(argv[3], NULL, 0);
    if (argc > 4) part = argv[4];
    if (count < 1 || count > MOST_THREADS) return fprintf(stderr, "THREADS is %llu; 1 to %d\n", (unsigned long long)count, MOST_THREADS), 2;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return perror(folder), 2;
    text = fopen("text", "w");
    if (text != NULL) fclose(text);
    setenv("DTL_TIMEOUT", "2ms", 0);
    setenv("DTL_LOG", "off", 0);
    setenv("DTL_CACHE_DIR", folder, 0);
    watch_faults();
    lent = guarded(LENT);
    for (uint64_t t = 0; t < count; t++) threads[t].slots = guarded(SLOTS);
    for (; made < wanted; made += count * ROUND, round++) {
        pthread_t handles[MOST_THREADS];
        dtl_status_t status = dtl_init(NULL);
        if (status != DTL_SUCCESS) return fprintf(stderr, "dtl_init: %s\n", dtl_last_error()), 1;
        running = (int)count;
        for (uint64_t t = 0; t < count; t++)
            if (pthread_create(&handles[t], NULL, work, (void*)(uintptr_t)(round << 8 | t)) != 0) abort();
        watch(count);
        for (uint64_t t = 0; t < count; t++) pthread_join(handles[t], NULL);
        end_library(round, made + count * ROUND);
    }
    if (chdir("/") != 0 || nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0) return perror(folder), 2;
    for (uint64_t i = 0; i < CALLS; i++)
        if (getenv("DTL_FUZZ_TABLE") != NULL)
            printf("%10llu succeeded, %10llu failed  %s\n", (unsigned long long)succeeded[i], (unsigned long long)refused[i], calls[i].name);
    printf("%llu calls, %llu findings\n", (unsigned long long)made, (unsigned long long)failures);
    return failures != 0;
}
