/* The tests of communicators in inhospitable places: a tiny /dev/shm, another user whose processes may
 * not be read, limits on memory, files and descriptors, and under each MPI's launcher. They pass there,
 * or end with a status that says why; never with a signal. Runs the programs beside this one. */
#include "check.h"
#include <string.h>
#include <sys/wait.h>

static char folder[1024], variant[64];
static const char *dtlrun;

/* Runs a command line: {d} is dtlrun, {p}, {c} and {r} the tests. Gives its exit status; 0 and 1 are
 * the only ones that mean that nothing but a CHECK ended it. `output` gets what it said. */
static int run(const char *line, char *output, size_t room) {
    char command[8192], *to = command;
    size_t got;
    int status;
    FILE *pipe;
    for (; *line != '\0'; line++) {
        if (line[0] != '{') {
            *to++ = *line;
            continue;
        }
        if (line[1] == 'd') to += sprintf(to, "%s", dtlrun);
        if (line[1] == 'p') to += sprintf(to, "%s/test_comm_p2p%s", folder, variant);
        if (line[1] == 'c') to += sprintf(to, "%s/test_comm_collectives%s", folder, variant);
        if (line[1] == 'r') to += sprintf(to, "%s/test_comm_random%s", folder, variant);
        line += 2;
    }
    strcpy(to, " 2>&1");
    pipe = popen(command, "r");
    CHECK(pipe != NULL);
    got = fread(output, 1, room - 1, pipe);
    output[got] = '\0';
    while (fgetc(pipe) != EOF) {
    }
    status = pclose(pipe);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int can(const char *command) {
    char output[4096];
    return run(command, output, sizeof output) == 0;
}

/* It passes; `needs` is what the place needs to exist at all. */
static void passes(const char *place, const char *needs, const char *line) {
    char output[8192];
    if (!can(needs)) {
        printf("%s: left out: \"%s\" is not possible here\n", place, needs);
        return;
    }
    if (run(line, output, sizeof output) != 0) {
        fprintf(stderr, "%s: %s\n%s\n", place, line, output);
        exit(1);
    }
    printf("%s: passes\n", place);
    fflush(stdout);
}

/* It fails with this status, or passes. */
static void passes_or(const char *status, const char *place, const char *line) {
    char output[8192];
    const int code = run(line, output, sizeof output);
    if (code > 1 || strstr(output, "killed") != NULL || (code == 1 && strstr(output, status) == NULL)) {
        fprintf(stderr, "%s: %s: exit status %d\n%s\n", place, line, code, output);
        exit(1);
    }
    printf("%s: %s\n", place, code == 0 ? "passes" : status);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/'), *dot = strrchr(argv[0], '.');
    char line[512];
    int n;
    (void)argc;
    dtlrun = getenv("DTL_TEST_DTLRUN");
    if (dtlrun == NULL) SKIP("DTL_TEST_DTLRUN does not say where dtlrun is");
    CHECK(slash != NULL);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - argv[0]), argv[0]);
    if (dot != NULL && dot > slash) snprintf(variant, sizeof variant, "%s", dot);

    passes("/dev/shm of 64 KiB", "unshare -m mount -t tmpfs -o size=64k tmpfs /dev/shm",
           "unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && {d} -n 3 {p} shm && {d} -n 3 {r} shm'");
    passes("no /dev/shm", "unshare -m mount -t tmpfs -o ro tmpfs /dev/shm",
           "unshare -m sh -c 'mount -t tmpfs -o ro tmpfs /dev/shm && {d} -n 2 {r} shm'");
    passes("a user without rights", "setpriv --reuid=65534 --regid=65534 --clear-groups test -x {r}",
           "setpriv --reuid=65534 --regid=65534 --clear-groups {d} -n 3 {r} shm");
    passes("DTL_SHM_COPY=cells", "true", "DTL_SHM_COPY=cells {d} -n 4 {p} shm");
    passes("DTL_SHM_COPY=cells, random", "true", "DTL_SHM_COPY=cells {d} -n 4 {r} shm");
    passes("DTL_SHM_COPY=allow", "true", "DTL_SHM_COPY=allow {d} -n 2 {r} shm");
    passes_or("DTL_ERROR_INVALID_ARGUMENT", "DTL_SHM_COPY=wrong", "DTL_SHM_COPY=wrong {d} -n 2 {r} shm");
    passes_or("DTL_ERROR_LIMIT", "files up to 4 KiB", "sh -c 'ulimit -f 8; {d} -n 3 {r} shm'");
#ifndef __SANITIZE_ADDRESS__ /* which reserves terabytes of addresses */
    passes_or("DTL_ERROR_OUT_OF_MEMORY", "16 MiB of addresses", "sh -c 'ulimit -v 16000; {d} -n 8 {r} shm'");
#endif
    passes_or("DTL_ERROR", "8 descriptors", "{d} -n 3 sh -c 'ulimit -n 8; exec {r} shm'");
    for (n = 1; n <= 4; n++) {
        snprintf(line, sizeof line, "mpirun.openmpi --allow-run-as-root --oversubscribe -n %d {r} shm", n);
        passes("under Open MPI's mpirun", "command -v mpirun.openmpi", line);
        snprintf(line, sizeof line, "mpirun.mpich -n %d {%c} shm", n, n == 4 ? 'c' : 'r');
        passes("under MPICH's mpirun", "command -v mpirun.mpich", line);
    }
    return 0;
}
