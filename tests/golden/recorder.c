/* Records the error texts of a program: preloaded, it stands before every function of libdtl that returns a
 * status. texts.py writes the wrappers (WRAPPERS) from dtl.h, runs the tests with it, and reads what it writes.
 *
 * Each text is written once per process, with numbers replaced by N, as "error: text" or "explain: line"
 * in the file $RECORDED_TEXTS. The file is open for one write at a time, so tests that count descriptors see none. C11. */
#define _GNU_SOURCE
#include <dtl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 4096, SEEN = 1 << 14 };

/* Hashes of what was written; open addressing. When it is full, texts are written again. */
static _Atomic uint64_t seen[SEEN];

static int is_new(const char *line)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *line; line++) hash = (hash ^ (unsigned char)*line) * 0x100000001b3u;
    hash |= 1; /* 0 is a free entry */
    for (unsigned step = 0; step < 64; step++) {
        uint64_t found = 0;
        if (atomic_compare_exchange_strong(&seen[(hash + step) % SEEN], &found, hash)) return 1;
        if (found == hash) return 0;
    }
    return 1;
}

static int is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Appends a text with its numbers as N and its line ends as spaces. */
static size_t append(char *line, size_t at, const char *text)
{
    while (*text && at < TEXT - 2) {
        if (text[0] == '0' && text[1] == 'x' && is_hex(text[2])) {
            for (text += 2; is_hex(*text); text++) {
            }
            line[at++] = 'N';
        } else if (*text >= '0' && *text <= '9') {
            while (*text >= '0' && *text <= '9') text++;
            line[at++] = 'N';
        } else {
            line[at++] = *text == '\n' ? ' ' : *text;
            text++;
        }
    }
    line[at] = 0;
    return at;
}

static void record(const char *what, const char *text)
{
    const int error = errno;
    char line[TEXT];
    size_t length = append(line, append(line, append(line, 0, what), ": "), text);
    const char *file = getenv("RECORDED_TEXTS");
    if (file && is_new(line)) {
        const int to = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        const struct timespec at_once = {0, 0};
        sigset_t limit, before;
        line[length++] = '\n';
        /* A test may have a limit for the size of files: then the text is missing, but the test goes on. */
        sigemptyset(&limit), sigaddset(&limit, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &limit, &before);
        if (to >= 0 && write(to, line, length) < 0) sigtimedwait(&limit, NULL, &at_once);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (to >= 0) close(to);
    }
    errno = error;
}

static void *next(const char *function)
{
    void *found = dlsym(RTLD_NEXT, function);
    if (found) return found;
    fprintf(stderr, "recorder: %s is not in the libraries after this one\n", function);
    abort();
}

static const char *last_error(void)
{
    static const char *(*_Atomic real)(void);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "dtl_last_error");
    return real ? real() : "";
}

/* The text of dtl_explain, line by line. */
static void record_explained(const char *text)
{
    char line[TEXT];
    while (*text) {
        const size_t length = strcspn(text, "\n"), kept = length < TEXT - 1 ? length : TEXT - 1;
        memcpy(line, text, kept);
        line[kept] = 0;
        record("explain", line);
        text += length + (text[length] != 0);
    }
}

static _Atomic int is_used;

/* Called by every wrapper with the status of the function. */
static dtl_status_t ended(dtl_status_t status)
{
    if (!is_used) is_used = 1;
    if (status != DTL_SUCCESS) record("error", last_error());
    return status;
}

/* What a program that never calls dtl_explain would see at its end. */
__attribute__((destructor)) static void at_exit(void)
{
    static char text[1 << 18];
    dtl_status_t (*real)(char *, uint64_t, uint64_t *);
    if (!is_used) return;
    *(void **)&real = dlsym(RTLD_NEXT, "dtl_explain");
    if (real && real(text, sizeof text, NULL) == DTL_SUCCESS) record_explained(text);
}

#include WRAPPERS
