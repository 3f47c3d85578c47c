/* Reading a trace: every line is checked to be JSON, events are taken apart, and what has begun must have ended: calls and
 * spans nested within their thread, operations by their id. Work of devices and counters stand alone. */
#ifndef DTL_TESTS_TRACE_FILE_H
#define DTL_TESTS_TRACE_FILE_H

#include "check.h"
#include <stdlib.h>
#include <string.h>

typedef struct event {
    char phase;
    char category[272], name[64], id[32];
    double begin_us, end_us;
    int pid, tid, is_open;
    const char* first; /* its lines: with all arguments */
    const char* last;
} event;

typedef struct trace {
    char* text;
    event* events; /* calls, spans and operations, by their begins; work of devices, counters */
    const char** names; /* lines that name processes and threads */
    int count, name_count, has_end;
} trace;

/* What is behind a JSON value; NULL: it is none. */
static const char* json_skip(const char* at) {
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            if ((unsigned char)*at < 0x20) return NULL;
            if (*at == '\\' && strchr("\"\\/bfnrtu", *++at) == NULL) return NULL;
        }
        return at + 1;
    }
    if (*at == '{' || *at == '[') {
        const char close = *at == '{' ? '}' : ']';
        if (at[1] == close) return at + 2;
        do {
            at++;
            if (close == '}') {
                if (*at != '"' || (at = json_skip(at)) == NULL || *at++ != ':') return NULL;
            }
            if ((at = json_skip(at)) == NULL) return NULL;
        } while (*at == ',');
        return *at == close ? at + 1 : NULL;
    }
    {
        char* end;
        strtod(at, &end);
        return end == at ? NULL : end;
    }
}

/* The value of a key on a line, NULL if it is not there. */
static const char* field(const char* line, const char* key) {
    char wanted[64];
    const char* at;
    if (line == NULL) return NULL;
    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    at = strstr(line, wanted);
    return at == NULL ? NULL : at + strlen(wanted);
}

static inline void text_field(const char* line, const char* key, char* text, size_t cap) {
    const char* at = field(line, key);
    size_t len;
    text[0] = '\0';
    if (at == NULL || *at++ != '"') return;
    len = strcspn(at, "\"");
    CHECK(len < cap);
    memcpy(text, at, len);
    text[len] = '\0';
}

static inline double number_field(const char* line, const char* key) {
    const char* at = field(line, key);
    return at == NULL ? -1e18 : atof(at);
}

/* An argument of either end. */
static inline double argument(const event* of, const char* key) {
    return field(of->first, key) != NULL ? number_field(of->first, key) : number_field(of->last, key);
}

static inline int says(const event* of, const char* key, const char* text) {
    char found[64];
    text_field(of->first, key, found, sizeof found);
    if (found[0] == '\0' && of->last != NULL) text_field(of->last, key, found, sizeof found);
    return strcmp(found, text) == 0;
}

static inline void take(trace* all, const char* line) {
    event found;
    int i;
    memset(&found, 0, sizeof found);
    found.phase = field(line, "ph")[1];
    text_field(line, "cat", found.category, sizeof found.category);
    text_field(line, "name", found.name, sizeof found.name);
    text_field(line, "local", found.id, sizeof found.id);
    found.begin_us = number_field(line, "ts");
    found.pid = (int)number_field(line, "pid");
    found.tid = (int)number_field(line, "tid");
    found.first = line;
    found.is_open = 1;
    if (found.phase == 'X' || found.phase == 'C') {
        const double duration = number_field(line, "dur");
        CHECK((found.phase == 'C') == (duration < 0) && found.phase == (field(line, "value") == NULL ? 'X' : 'C'));
        found.end_us = found.begin_us + (found.phase == 'C' ? 0 : duration);
        found.is_open = 0;
    }
    if (strchr("BbXC", found.phase) != NULL) {
        if ((all->count & (all->count - 1)) == 0) /* a power of two, or none */
            all->events = (event*)realloc(all->events, ((size_t)all->count * 2 + 1) * sizeof *all->events);
        CHECK(all->events != NULL);
        all->events[all->count++] = found;
        return;
    }
    if (found.phase != 'E' && found.phase != 'e') {
        CHECK(found.phase == 'M' || found.phase == 'i');
        if (found.phase == 'i') return;
        all->names = (const char**)realloc(all->names, ((size_t)all->name_count + 1) * sizeof *all->names);
        CHECK(all->names != NULL);
        all->names[all->name_count++] = line;
        return;
    }
    /* The innermost that is open. */
    for (i = all->count - 1; i >= 0; i--) {
        event* of = &all->events[i];
        if (!of->is_open || (found.phase == 'e') != (of->phase == 'b')) continue;
        if (found.phase == 'E' ? of->tid != found.tid : strcmp(of->id, found.id) != 0) continue;
        CHECK(strcmp(of->name, found.name) == 0 && strcmp(of->category, found.category) == 0);
        CHECK(found.begin_us >= of->begin_us);
        of->end_us = found.begin_us;
        of->last = line;
        of->is_open = 0;
        return;
    }
    fprintf(stderr, "an end without a begin: %s\n", line);
    exit(1);
}

/* Reads a trace; whether everything in it has ended. */
static inline trace read_trace(const char* path) {
    trace all;
    FILE* file = fopen(path, "rb");
    long size;
    char* line;
    memset(&all, 0, sizeof all);
    CHECK(file != NULL);
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    all.text = (char*)malloc((size_t)size + 1);
    CHECK(all.text != NULL && fread(all.text, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    all.text[size] = '\0';
    line = strtok(all.text, "\n");
    CHECK(line != NULL && strcmp(line, "[") == 0);
    while ((line = strtok(NULL, "\n")) != NULL) {
        const char* rest;
        CHECK(!all.has_end);
        if (strcmp(line, "]") == 0) {
            all.has_end = 1;
            continue;
        }
        rest = json_skip(line);
        if (rest == NULL || (strcmp(rest, ",") != 0 && *rest != '\0')) {
            fprintf(stderr, "%s: no JSON: %s\n", path, line);
            exit(1);
        }
        take(&all, line);
    }
    return all;
}

static inline void check_whole(const trace* all) {
    int i;
    CHECK(all->has_end);
    for (i = 0; i < all->count; i++) CHECK(!all->events[i].is_open);
}

/* How many of a name there are. */
static inline int count_of(const trace* all, const char* name) {
    int i, count = 0;
    for (i = 0; i < all->count; i++) count += strcmp(all->events[i].name, name) == 0;
    return count;
}

/* The n-th of a name. */
static inline const event* nth(const trace* all, const char* name, int n) {
    int i;
    for (i = 0; i < all->count; i++) {
        if (strcmp(all->events[i].name, name) == 0 && n-- == 0) return &all->events[i];
    }
    fprintf(stderr, "no %s in the trace\n", name);
    exit(1);
}

/* How many names a process (tid 0) or a thread is given; the last one is copied. */
static inline int named(const trace* all, const char* kind, int pid, int tid, char* name, size_t cap) {
    int i, count = 0;
    for (i = 0; i < all->name_count; i++) {
        const char* line = all->names[i];
        char found[64];
        text_field(line, "name", found, sizeof found);
        if (strcmp(found, kind) != 0 || (int)number_field(line, "pid") != pid) continue;
        if (tid != 0 && (int)number_field(line, "tid") != tid) continue;
        text_field(field(line, "args"), "name", name, cap);
        count++;
    }
    return count;
}

static inline int is_within(const event* inner, const event* outer) {
    return inner->tid == outer->tid && inner->begin_us >= outer->begin_us && inner->end_us <= outer->end_us;
}

static inline void free_trace(trace* all) {
    free(all->events);
    free(all->names);
    free(all->text);
}

#endif
