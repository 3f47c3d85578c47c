/* The folder of compiled kernels, and the compilers: that a second compilation starts none, what makes a kept result stale,
 * damage, folders that are not to be trusted or have no room, compilers that are missing, hang or lie, threads and ranks
 * at once, nothing left behind. C11, and valid C++17.
 * Argument: none, or "ranks" for what several ranks do. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "module_cases.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char count_file[512], compiler[512];

static void write_file(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
    CHECK(chmod(path, mode) == 0);
}

/* How often the compiler was started. */
static int starts(void) {
    struct stat about;
    return stat(count_file, &about) == 0 ? (int)about.st_size : 0;
}

/* Reads the environment anew. */
static void restart(void) {
    CHECK_OK(dtl_finalize());
    CHECK_OK(dtl_init(NULL));
}

static void use(const char *name, const char *value) {
    if (value == NULL) unsetenv(name);
    else CHECK(setenv(name, value, 1) == 0);
    restart();
}

/* Calls f for each folder or file of the kept results; `down` levels below. */
static int each(const char *folder, int down, void (*f)(const char *)) {
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int count = 0;
    CHECK(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        char path[1024];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (down > 0) {
            count += each(path, down - 1, f);
        } else {
            count++;
            if (f != NULL) f(path);
        }
    }
    closedir(dir);
    return count;
}

static void test_hits(void) {
    dtl_source_t source = m_source(GIVES("5"));
    const char *options[1] = {"-DX"};
    dtl_module_t module;
    int before = starts();
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 1);
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 1); /* the second starts no compiler */
    restart();
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 1);
    CHECK(m_result(GIVES("6")) == 6 && starts() == before + 2); /* another source does */
    source.name = "other.c";
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
    CHECK_OK(dtl_module_destroy(module));
    CHECK(starts() == before + 3); /* another name */
    source.options = options, source.option_count = 1;
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
    CHECK_OK(dtl_module_destroy(module));
    CHECK(starts() == before + 4); /* other options */
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 4);
    use("CPATH", "/no/such/folder");
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 5); /* what the compiler reads of the environment */
    use("CPATH", NULL);
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 5);
    {
        const struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
        CHECK(utimensat(AT_FDCWD, compiler, times, 0) == 0); /* another compiler under the same name */
    }
    CHECK(m_result(GIVES("5")) == 5 && starts() == before + 6);
    m_refused(m_source("not C"), DTL_ERROR_COMPILE_FAILED, "test.c:1");
    m_refused(m_source("not C"), DTL_ERROR_COMPILE_FAILED, "test.c:1");
    CHECK(starts() == before + 8); /* failures are not kept */
}

/* A file that the source includes is an input too. */
static void test_includes(void) {
    char path[600], option[700];
    const char *options[1];
    dtl_source_t source = m_source("#include <number.h>\n" GIVES("NUMBER"));
    dtl_module_t first, module;
    int before = starts(), i;
    snprintf(path, sizeof path, "%s/number.h", m_folder);
    snprintf(option, sizeof option, "-I%s", m_folder);
    options[0] = option, source.options = options, source.option_count = 1;
    write_file(path, "#define NUMBER 1\n", 0600);
    CHECK_OK(dtl_module_compile(m_host(), 0, &source, &first));
    CHECK(m_given(first) == 1);
    for (i = 0; i < 3; i++) {
        char text[64];
        const int number = i == 2 ? 1 : i + 1;
        snprintf(text, sizeof text, "#define NUMBER %d\n", number);
        write_file(path, text, 0600);
        CHECK_OK(dtl_module_compile(m_host(), 0, &source, &module));
        CHECK(m_given(module) == number);
        CHECK_OK(dtl_module_destroy(module));
    }
    CHECK(starts() == before + 3);
    CHECK(m_given(first) == 1); /* loaded code stays what it was */
    CHECK_OK(dtl_module_destroy(first));
    CHECK(unlink(path) == 0);
    m_refused(source, DTL_ERROR_COMPILE_FAILED, "number.h");
}

/* An entry that nobody has used for an hour. */
static void age(const char *path) {
    struct timespec times[2];
    CHECK(clock_gettime(CLOCK_REALTIME, &times[0]) == 0);
    times[0].tv_sec -= 3600, times[1] = times[0];
    CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
}

/* DTL_CACHE_BYTES: entries that were not used for long go, those in use stay; 0 reuses none. */
static void test_limit(void) {
    static const char *const others[] = {"photos", ".new-0123456789abcdef"};
    int before, i;
    char folder[600], other[700];
    snprintf(folder, sizeof folder, "%s/limited", m_folder);
    use("DTL_CACHE_DIR", folder);
    CHECK(m_result(GIVES("51")) == 51 && m_result(GIVES("52")) == 52 && m_result(GIVES("53")) == 53);
    CHECK(each(folder, 0, age) == 3);
    for (i = 0; i < 2; i++) { /* not entries: a folder of the user, and a compilation that takes longer than a minute */
        snprintf(other, sizeof other, "%s/%s", folder, others[i]);
        CHECK(mkdir(other, 0700) == 0);
        age(other);
    }
    use("DTL_CACHE_BYTES", "1"); /* less than an entry */
    before = starts();
    CHECK(m_result(GIVES("52")) == 52 && starts() == before); /* used: younger than a minute again */
    CHECK(m_result(GIVES("54")) == 54 && each(folder, 0, NULL) == 2 + 2);
    for (i = 0; i < 2; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, others[i]);
        CHECK(rmdir(other) == 0);
    }
    CHECK(m_result(GIVES("52")) == 52 && m_result(GIVES("54")) == 54 && starts() == before + 1);
    CHECK(m_result(GIVES("51")) == 51 && starts() == before + 2);
    use("DTL_CACHE_BYTES", "1G");
    CHECK(each(folder, 0, age) == 3);
    CHECK(m_result(GIVES("55")) == 55 && each(folder, 0, NULL) == 4); /* they fit */
    use("DTL_CACHE_BYTES", "0");
    before = starts();
    CHECK(m_result(GIVES("55")) == 55 && m_result(GIVES("55")) == 55 && starts() == before + 2);
    CHECK(setenv("DTL_CACHE_BYTES", "much", 1) == 0);
    CHECK_OK(dtl_finalize());
    CHECK_STATUS(dtl_init(NULL), DTL_ERROR_INVALID_ARGUMENT);
    unsetenv("DTL_CACHE_BYTES");
    CHECK(setenv("DTL_CACHE_DIR", m_folder, 1) == 0);
    CHECK_OK(dtl_init(NULL));
    m_remove(folder);
}

static void cut(const char *path) {
    struct stat about;
    CHECK(stat(path, &about) == 0 && truncate(path, about.st_size / 2) == 0);
}

static void spoil(const char *path) {
    const int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "\377\377\377\377", 4, 0) == 4);
    close(fd);
}

static void lose(const char *path) { CHECK(unlink(path) == 0); }

/* In a process that has loaded nothing: what is loaded is not to be written to. */
static void in_child(const char *folder, int expected_starts) {
    const pid_t pid = fork();
    int status;
    if (pid == 0) {
        const int before = starts();
        CHECK_OK(dtl_init_after_fork());
        CHECK(setenv("DTL_CACHE_DIR", folder, 1) == 0);
        restart();
        CHECK(m_result(GIVES("71")) == 71 && starts() == before + expected_starts);
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* What would keep a reader waiting for ever. */
static void block(const char *path) { CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0); }

/* A file where a folder was. */
static void flatten(const char *path) {
    m_remove(path);
    write_file(path, "", 0600);
}

static void test_damage(void) {
    char folder[600];
    void (*const harm[4])(const char *) = {cut, spoil, lose, block};
    int i;
    snprintf(folder, sizeof folder, "%s/damaged", m_folder);
    in_child(folder, 1);
    in_child(folder, 0);
    for (i = 0; i < 5; i++) {
        CHECK(i == 4 ? each(folder, 0, flatten) == 1 : each(folder, 1, harm[i]) == 4);
        in_child(folder, 1);
        in_child(folder, 0);
        CHECK(each(folder, 0, NULL) == 1); /* the damaged one is gone */
    }
}

static void test_folders(void) {
    char folder[600], link[600];
    snprintf(folder, sizeof folder, "%s/folder", m_folder);
    snprintf(link, sizeof link, "%s/link", m_folder);
    use("DTL_CACHE_DIR", folder);
    CHECK(m_result(GIVES("8")) == 8);
    {
        struct stat about;
        CHECK(stat(folder, &about) == 0 && (about.st_mode & 07777) == 0700);
    }
    CHECK(chmod(folder, 0777) == 0);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "can be written by");
    CHECK(chmod(folder, 01777) == 0);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "others can write");
    CHECK(chmod(folder, 0720) == 0);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, folder);
    CHECK(chmod(folder, 0700) == 0);
    CHECK(symlink(folder, link) == 0);
    use("DTL_CACHE_DIR", link);
    CHECK(m_result(GIVES("8")) == 8);
    use("DTL_CACHE_DIR", "relative");
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "DTL_CACHE_DIR=relative");
    use("DTL_CACHE_DIR", "/proc/nowhere/dtl");
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "/proc/nowhere");
    use("DTL_CACHE_DIR", compiler);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "set DTL_CACHE_DIR");
    use("DTL_CACHE_DIR", NULL);
    CHECK(setenv("XDG_CACHE_HOME", m_folder, 1) == 0 && setenv("HOME", "/nowhere", 1) == 0);
    restart();
    CHECK(m_result(GIVES("8")) == 8);
    snprintf(folder, sizeof folder, "%s/dtl", m_folder);
    CHECK(access(folder, F_OK) == 0);
    CHECK(setenv("HOME", m_folder, 1) == 0);
    use("XDG_CACHE_HOME", NULL);
    CHECK(m_result(GIVES("8")) == 8);
    snprintf(folder, sizeof folder, "%s/.cache/dtl", m_folder);
    CHECK(access(folder, F_OK) == 0);
    use("HOME", "not/from/the/root");
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "(HOME is not set, or no path from /)");
    use("HOME", NULL);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "(HOME is not set, or no path from /)");
    use("DTL_CACHE_DIR", m_folder);
}

/* A link's owner chooses where the folder is, so another user's link is not followed, and nothing is made behind
 * it. */
static void test_links_of_others(void) {
    char link[600], there[600], below[700];
    if (getuid() != 0) {
        printf("not tested: links of other users, which only root can make\n");
        return;
    }
    snprintf(there, sizeof there, "%s/there", m_folder);
    snprintf(link, sizeof link, "%s/others", m_folder);
    snprintf(below, sizeof below, "%s/new/dtl", link);
    CHECK(mkdir(there, 0700) == 0 && symlink(there, link) == 0 && lchown(link, 4242, 4242) == 0);
    use("DTL_CACHE_DIR", link);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "belongs to user 4242");
    CHECK(strstr(dtl_last_error(), link) != NULL && strstr(dtl_last_error(), "DTL_CACHE_DIR") != NULL);
    use("DTL_CACHE_DIR", below);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "the symbolic link");
    CHECK(setenv("XDG_CACHE_HOME", link, 1) == 0);
    use("DTL_CACHE_DIR", NULL);
    m_refused(m_source(GIVES("8")), DTL_ERROR_UNAVAILABLE, "belongs to user 4242");
    CHECK(unsetenv("XDG_CACHE_HOME") == 0 && each(there, 0, NULL) == 0);
    CHECK(lchown(link, 0, 0) == 0);
    use("DTL_CACHE_DIR", below);
    CHECK(m_result(GIVES("8")) == 8 && each(there, 0, NULL) == 1);
    use("DTL_CACHE_DIR", m_folder);
}

/* Writes a compiler that does this, and uses it. */
static void become(const char *script) {
    char text[1024];
    snprintf(text, sizeof text, "#!/bin/sh\nprintf x >>'%s'\n%s\n", count_file, script);
    write_file(compiler, text, 0700);
}

static int children(void) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static int files(void) { return each("/proc/self/fd", 0, NULL); }

static void test_compilers(void) {
    static char log[1 << 20];
    uint64_t length = 0;
    int open_files;
    restart();
    open_files = files();
    become("echo only words; exit 0");
    m_refused(m_source(GIVES("9")), DTL_ERROR_COMPILE_FAILED, "no shared object");
    become("yes 'a long line of an endless log' | head -c 900000; echo; echo 'last words, an error' >&2; exit 3");
    m_refused(m_source(GIVES("9")), DTL_ERROR_COMPILE_FAILED, "ended with 3");
    CHECK(strstr(dtl_last_error(), "last words") != NULL);
    CHECK_OK(dtl_module_log(DTL_MODULE_NULL, log, sizeof log, &length));
    CHECK(length > 900000 && strcmp(log + length - 21, "last words, an error\n") == 0);
    become("kill -9 $$");
    m_refused(m_source(GIVES("9")), DTL_ERROR_COMPILE_FAILED, "killed by signal 9");
    write_file(compiler, "#!/no/such/shell\n", 0700);
    m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "cannot be run");
    become("echo junk >\"$TMPDIR/kernels.so\"; echo 'x: ' >\"$TMPDIR/needs.d\"; exit 0");
    m_refused(m_source(GIVES("9")), DTL_ERROR_COMPILE_FAILED, "no shared object");
    become("gone=$TMPDIR/gone.so; cc -shared -x c /dev/null -o $gone; cc \"$@\" -Wl,--no-as-needed $gone; rm $gone");
    m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "cannot be loaded");
    become("sleep 1000 & sleep 1000");
    use("DTL_COMPILE_TIMEOUT", "300ms");
    m_refused(m_source(GIVES("9")), DTL_ERROR_TIMEOUT, "DTL_COMPILE_TIMEOUT");
    use("DTL_COMPILE_TIMEOUT", NULL);
    CHECK(chmod(compiler, 0600) == 0);
    m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "DTL_CC=");
    CHECK(chmod(compiler, 0777) == 0);
    m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "chmod o-w");
    CHECK(chmod(compiler, 0700) == 0);
    use("DTL_CC", "no-such-compiler");
    m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "DTL_CC=no-such-compiler");
    use("DTL_CC", NULL);
    CHECK(m_result(GIVES("9")) == 9);
    {
        char *path = strdup(getenv("PATH"));
        use("PATH", "/nowhere::relative");
        m_refused(m_source(GIVES("9")), DTL_ERROR_UNAVAILABLE, "apt-get install gcc");
        use("PATH", path);
        free(path);
    }
    use("DTL_CC", compiler);
    CHECK(!children() && files() == open_files);
    become("exec cc \"$@\"");
    CHECK(m_result(GIVES("9")) == 9);
}

static void *take_children(void *stop) {
    while (!__atomic_load_n((int *)stop, __ATOMIC_ACQUIRE)) DTL_IGNORE(waitpid(-1, NULL, 0) > 0);
    return NULL;
}

/* A program that ignores SIGCHLD, and one that takes every child: what the compiler ended with is still known. */
static void test_reaped(void) {
    pthread_t thread;
    int stop = 0;
    CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
    CHECK(m_result(GIVES("15")) == 15);
    m_refused(m_source("not C"), DTL_ERROR_COMPILE_FAILED, "ended with 1");
    CHECK(signal(SIGCHLD, SIG_DFL) != SIG_ERR);
    CHECK(pthread_create(&thread, NULL, take_children, &stop) == 0);
    CHECK(m_result(GIVES("16")) == 16);
    m_refused(m_source("not C"), DTL_ERROR_COMPILE_FAILED, "ended with 1");
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *compile_many(void *of) {
    int i;
    (void)of;
    for (i = 0; i < 3; i++) CHECK(m_result(i % 2 ? GIVES("100") : GIVES("200")) == (i % 2 ? 100 : 200));
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[8];
    char folder[600];
    int i;
    snprintf(folder, sizeof folder, "%s/threads", m_folder);
    use("DTL_CACHE_DIR", folder);
    for (i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, compile_many, NULL) == 0);
    for (i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(each(folder, 0, NULL) == 2); /* and nothing half made */
    use("DTL_CACHE_DIR", m_folder);
}

/* A disk of its own: too small, then read-only. */
static void test_disk(void) {
    char folder[600];
    int status;
    pid_t pid;
    snprintf(folder, sizeof folder, "%s/disk", m_folder);
    CHECK(mkdir(folder, 0700) == 0);
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", folder, "tmpfs", 0, "size=12k,mode=0700") != 0)
            exit(77);
        CHECK_OK(dtl_init_after_fork());
        use("DTL_CACHE_DIR", folder);
        m_refused(m_source(GIVES("12")), DTL_ERROR_LIMIT, "DTL_CACHE_DIR");
        CHECK(each(folder, 0, NULL) == 0);
        CHECK(mount("tmpfs", folder, "tmpfs", MS_REMOUNT, "size=4m,mode=0700") == 0);
        CHECK(m_result(GIVES("12")) == 12);
        CHECK(mount("tmpfs", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=4m,mode=0700") == 0);
        CHECK(m_result(GIVES("12")) == 12); /* what is there is used */
        m_refused(m_source(GIVES("13")), DTL_ERROR_UNAVAILABLE, "Read-only file system");
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (status == 77 << 8) printf("not tried: a full and a read-only disk (no right to mount one)\n");
    else CHECK(status == 0);
}

/* A limit on the size of files: of what the library writes, and of what the compiler does. */
static void test_file_size(void) {
    const struct rlimit limits[2] = {{100, 100}, {30000, 30000}};
    static char log[40000];
    char folder[600];
    int status, i;
    for (i = 0; i < 2; i++) {
        pid_t pid;
        snprintf(folder, sizeof folder, "%s/limit%d", m_folder, i);
        pid = fork();
        if (pid == 0) {
            CHECK_OK(dtl_init_after_fork());
            use("DTL_CACHE_DIR", folder);
            use("DTL_CC", NULL);
            CHECK(setrlimit(RLIMIT_FSIZE, &limits[i]) == 0);
            snprintf(log, sizeof log, "static char big[100000] = {1}; char *of(void) { return big; }\n%s", GIVES("14"));
            m_refused(m_source(log), DTL_ERROR_LIMIT, "ulimit -f");
            _exit(each(folder, 0, NULL) == 0 ? 0 : 1);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
}

/* All ranks compile the same into one folder at once. */
static int ranks(void) {
    char folder[256];
    dtl_comm_t world;
    int32_t rank;
    snprintf(folder, sizeof folder, "/tmp/dtl-ranks-%s", getenv("DTL_JOB"));
    CHECK(setenv("DTL_CACHE_DIR", folder, 1) == 0);
    world = DTL_COMM_WORLD;
    CHECK_OK(dtl_comm_rank(world, &rank));
    CHECK_OK(dtl_comm_barrier(world));
    CHECK(m_result(GIVES("31")) == 31 && m_result(GIVES("32")) == 32);
    CHECK_OK(dtl_comm_barrier(world));
    if (rank == 0) {
        CHECK(each(folder, 0, NULL) == 2);
        m_remove(folder);
    }
    return 0;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) return ranks();
    m_make_folder();
    snprintf(count_file, sizeof count_file, "%s/count", m_folder);
    snprintf(compiler, sizeof compiler, "%s/compiler", m_folder);
    CHECK(setenv("DTL_CC", compiler, 1) == 0);
    become("exec cc \"$@\"");
    CHECK_OK(dtl_init(NULL));
    test_hits();
    test_includes();
    test_limit();
    test_damage();
    test_folders();
    test_links_of_others();
    test_compilers();
    test_reaped();
    test_threads();
    test_disk();
    test_file_size();
    CHECK_OK(dtl_finalize());
    m_remove(m_folder);
    return 0;
}
