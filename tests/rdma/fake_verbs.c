/* A verbs provider that is none: libibverbs.so.1 for tests without a NIC. Reliable connections between queue pairs of one process
 * or of several, which meet in a fabric: a file that each maps. The caller of a verb is the NIC: it moves bytes by
 * process_vm_writev. What is left over (a receiver that is not ready, a peer that is gone, much to move) is done by whoever of
 * the two ends polls next, and by an engine, a thread of each process that sleeps while there is none.
 *
 *     fake_verbs.c          the fabric: joining, leaving, the lock, and the death of others
 *     fake_verbs_devices.c  devices, ports, addresses
 *     fake_verbs_objects.c  protection domains, memory, completion queues and channels, events
 *     fake_verbs_qp.c       queue pairs: states, posting
 *     fake_verbs_engine.c   which work is executed next, completions, the thread
 *     fake_verbs_move.c     executing one piece of work: what is checked, moving the bytes
 *     fake_verbs_faults.c   the variables, faults, counters
 *
 * Its variables:
 *     DTL_FAKE_VERBS_FABRIC=path   the file; else dtl-fake-verbs-UID-JOB in $TMPDIR or /tmp. JOB is DTL_JOB, or for a
 *                                  process without one "none"
 *     DTL_FAKE_VERBS_DEVICES=n     fake0 … (2; at most 4). 0: no list, ENOSYS; "empty": a list of none
 *     DTL_FAKE_VERBS_WR=n          work requests that a queue of a queue pair takes at most (2048)
 *     DTL_FAKE_VERBS_INLINE=bytes  the inline size that is granted, however much is asked for (64; at most 256; 0 is legal)
 *     DTL_FAKE_VERBS_LINK=ib       InfiniBand: LIDs and one GID, rather than RoCE
 *     DTL_FAKE_VERBS_PORT=down     ports are down from the start
 *     DTL_FAKE_VERBS_MEMLOCK=bytes registering more at a time is ENOMEM (no limit)
 *     DTL_FAKE_VERBS_DMABUF=1      ibv_reg_dmabuf_mr takes what mmap takes; else EOPNOTSUPP
 *     DTL_FAKE_VERBS_ATOMICS=0     devices without atomics (IBV_ATOMIC_NONE)
 *     DTL_FAKE_VERBS_RETRY_MS=ms   how long a peer that does not answer is tried with retry_cnt 7; less for fewer (20).
 *                                  A timeout of 0 is for ever, as it really is
 *     DTL_FAKE_VERBS_SEED=n        reordering within the rules, by chance: work is executed later than posted, completions are
 *                                  seen later, polling gives some of what there is, writes overtake reads and atomics
 *     DTL_FAKE_VERBS_FAULT=fault,… what is to go wrong in this process, or with "@R" or "@rankR" behind it in the one with
 *                                  DTL_RANK R (0 without it). n counts from 1; 0: each; "n+": that and all later;
 *                                  "n%": every n-th
 *         FUNCTION:n[:errno]       the n-th call fails (EIO): reg_mr, create_qp, post_send, req_notify, poll_cq, …: the name
 *                                  without ibv_ (ibv_req_notify_cq is req_notify too)
 *         send|write|read|atomic|recv:n[:status]  the n-th of them, counted as they are executed, completes with it
 *                                  (GENERAL_ERR); a name with or without IBV_WC_, or a number
 *         answer:n[:status]       the n-th that is executed, of any kind, completes with it although it was executed
 *         cut:n[:ms]               when n work requests have been posted, nothing comes from or to this process, silently; for
 *                                  so long
 *         port_down:n[:ms]         the same, and the port of the device is down, with its event (PORT_ERR); back with
 *                                  PORT_ACTIVE after ms
 *         device_fatal:n           the device is gone for this process: DEVICE_FATAL, all its work is flushed
 *         qp_fatal:n               the queue pair of that work request goes into error with QP_FATAL
 *         stuck:n[:1]              the queue pair of that work request does nothing more until the next one is posted, as soft-RoCE
 *                                  at times; with 1 for ever
 *         death:n, death_locked:n  the process is killed at the n-th work request; holding the fabric's lock
 *     DTL_FAKE_VERBS_LEAKS=1       what lives when the process ends is said on stderr, and the exit status is 66
 *     DTL_FAKE_VERBS_REPORT=file   one line of counters at the end of each process, behind what the file has
 * For a test in the same process: fake_verbs_counter(name) and fake_verbs_fault(text), which replaces the faults.
 *
 * Stricter than some hardware, as the specification allows or says: memory is checked when it is registered and must still be
 * mapped when it is used; lkeys and rkeys differ; PSNs, MTUs, GIDs and queue pair numbers of the two ends must fit, or nothing ever
 * arrives; a place in a queue is free again when its completion, or a later one, was polled; fields of a failed completion that
 * mean nothing hold rubbish; numbers of queue pairs are unique in a device only; a device with anything left cannot be closed.
 * Not there: UC, UD, XRC, SRQ, memory windows, SQD, ibv_wr_*, extended CQs, tearing-free CPU atomics of the target: an 8-byte
 * store by process_vm_writev is whole on the processors we know, and atomics are so among themselves only (IBV_ATOMIC_HCA). */
#include "fake_verbs.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

own_t own = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static const uint64_t MAGIC = 0x0fabe00000000000u + sizeof(fabric_t);
enum { JOINING = 1000 }; /* the byte of the file that who joins or leaves locks; byte p is locked by process p while it lives */

uint64_t nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t chance(uint32_t of) {
    static _Thread_local uint64_t state;
    if (!state) state = (settings.seed * 0x9e3779b97f4a7c15u) ^ ((uint64_t)getpid() << 20) ^ (uint64_t)(uintptr_t)&state;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % of;
}

/* Locks of a file belong to the process and end with it, however it ends; a fork does not have them. */
static int lock_byte(int fd, off_t byte, short type, int command) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int code;
    do code = fcntl(fd, command, &lock);
    while (code && errno == EINTR);
    return code ? -1 : command == F_GETLK ? lock.l_type : 0;
}

bool is_alive(uint32_t process) {
    return process == own.me || lock_byte(own.fd, process, F_WRLCK, F_GETLK) != F_UNLCK;
}

void reap(uint32_t process) {
    fabric_t* f = own.fabric;
    for (uint32_t i = 0; i < ALL_QPS; i++) {
        if (f->qps[i].is_used && f->qps[i].owner == process) {
            f->qps[i].is_used = 0;
            f->qps[i].state = IBV_QPS_RESET;
            f->pending[i / 64] &= ~(1ull << i % 64);
        }
    }
    for (uint32_t i = 0; i < MOST_CQS; i++)
        if (f->cqs[i].owner == process) f->cqs[i].is_used = 0;
    for (uint32_t i = 0; i < MOST_MRS && i < f->next_mr; i++)
        if (f->mrs[i].owner == process) f->mrs[i].is_used = 0;
    for (uint32_t i = 0; i < MOST_CONTEXTS; i++)
        if (f->contexts[i].owner == process) f->contexts[i].is_used = 0;
    f->processes[process].is_used = 0;
}

/* Whoever had the lock died in it. What it was doing concerned connections of its own only, which end with it. What may be half
 * done to another end: a completion that is there while its work is not marked as completed, and what becomes of an error. */
static void recover(void) {
    fabric_t* f = own.fabric;
    for (uint32_t p = 0; p < MOST_PROCESSES; p++)
        if (f->processes[p].is_used && !is_alive(p)) reap(p);
    for (uint32_t i = 0; i < MOST_CQS; i++) {
        const cq_t* cq = &f->cqs[i];
        if (!cq->is_used || !cq->pushed) continue;
        const completion_t* last = &f->completions[i][(cq->pushed - 1) % cq->size];
        qp_t* q = &f->qps[last->qp];
        if (!q->is_used || q->number != last->qp_num) continue;
        if (last->is_recv && q->taken == last->index) q->taken++;
        if (!last->is_recv && q->retired <= last->index && last->index < q->sent) q->retired = last->index + 1;
    }
    for (uint32_t i = 0; i < ALL_QPS; i++) {
        if (!f->qps[i].is_used) continue;
        if (f->qps[i].state == IBV_QPS_ERR) flush(i);
        else if (f->qps[i].retired < f->qps[i].sent) mark_pending(i);
    }
    pthread_mutex_consistent(&f->lock);
}

/* A waiter that was woken and is killed before it runs takes the wake-up with it when somebody else got the lock in between
 * (the robust lock has no mark of waiters then): nobody waits for long. */
void lock_fabric(void) {
    pthread_mutex_t* lock = &own.fabric->lock;
    int code = pthread_mutex_trylock(lock);
    while (code == EBUSY || code == ETIMEDOUT) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        code = pthread_mutex_timedlock(lock, &until);
    }
    if (code == EOWNERDEAD) {
        recover();
    } else if (code) {
        fprintf(stderr, "fake_verbs: the fabric's lock: %s\n", strerror(code));
        abort();
    }
}

void unlock_fabric(void) {
    pthread_mutex_unlock(&own.fabric->lock);
}

static void name_fabric(void) {
    const char* path = getenv("DTL_FAKE_VERBS_FABRIC");
    const char* folder = getenv("TMPDIR");
    const char* job = getenv("DTL_JOB");
    if (path && *path) {
        snprintf(own.path, sizeof own.path, "%s", path);
        return;
    }
    int start = snprintf(own.path, sizeof own.path, "%s/", folder && *folder ? folder : "/tmp");
    snprintf(own.path + start, sizeof own.path - (size_t)start, "dtl-fake-verbs-%u-%s", (unsigned)getuid(), job && *job ? job : "none");
    for (char* c = own.path + start; *c; c++)
        if (*c == '/') *c = '_';
}

/* Opens the file and locks its byte of joining; what is open then is what the name stands for. */
static int open_locked(void) {
    for (;;) {
        struct stat by_name, by_fd;
        int fd = open(own.path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        if (lock_byte(fd, JOINING, F_WRLCK, F_SETLKW)) {
            close(fd);
            return -1;
        }
        if (!stat(own.path, &by_name) && !fstat(fd, &by_fd) && by_name.st_ino == by_fd.st_ino && by_name.st_dev == by_fd.st_dev)
            return fd;
        close(fd);
    }
}

static int members(int fd) {
    int count = 0;
    for (int p = 0; p < MOST_PROCESSES; p++) count += lock_byte(fd, p, F_WRLCK, F_GETLK) != F_UNLCK;
    return count;
}

/* Fabrics of jobs that were killed as a whole: files of the same name up to the job, of which nobody is a member. */
static void sweep(void) {
    char folder[sizeof own.path], path[2 * sizeof own.path], *name;
    snprintf(folder, sizeof folder, "%s", own.path);
    name = strrchr(folder, '/');
    char* job = name ? strstr(name, "dtl-fake-verbs-") : NULL;
    job = job ? strchr(job + strlen("dtl-fake-verbs-"), '-') : NULL;
    if (!job || getenv("DTL_FAKE_VERBS_FABRIC")) return;
    *name++ = 0;
    DIR* list = opendir(folder);
    for (struct dirent* entry; list && (entry = readdir(list));) {
        if (strncmp(entry->d_name, name, (size_t)(job + 1 - name)) || !strcmp(entry->d_name, name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) continue;
        /* Who opened it meanwhile sees, with that byte locked, that the name is gone. */
        if (!lock_byte(fd, JOINING, F_WRLCK, F_SETLK) && members(fd) == 0) unlink(path);
        close(fd);
    }
    if (list) closedir(list);
}

static int map_fabric(int fd) {
    bool is_first = members(fd) == 0; /* what earlier ones left is nobody's */
    if (is_first) sweep();
    if (is_first && (ftruncate(fd, 0) || ftruncate(fd, sizeof(fabric_t)))) return errno;
    fabric_t* f = mmap(NULL, sizeof(fabric_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (f == MAP_FAILED) return errno;
    if (is_first) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&f->lock, &attr);
        pthread_mutexattr_destroy(&attr);
        f->next_pd = 1;
        for (int d = 0; d < MOST_DEVICES; d++) f->port_down[d] = settings.starts_down;
        f->magic = MAGIC;
    }
    own.fabric = f;
    own.fd = fd;
    return f->magic == MAGIC ? 0 : EPROTO;
}

/* A fork has the mapping but is nobody in it. */
static void forget_in_child(void) {
    if (own.fabric) munmap(own.fabric, sizeof(fabric_t));
    if (own.fd >= 0) close(own.fd);
    own = (own_t){.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    memset(&counters, 0, sizeof counters);
}

static int enter(void) {
    fabric_t* f = own.fabric;
    for (uint32_t p = 0; p < MOST_PROCESSES; p++) {
        if (lock_byte(own.fd, p, F_WRLCK, F_SETLK)) continue;
        own.me = p;
        lock_fabric();
        if (f->processes[p].is_used) reap(p);
        f->processes[p] = (process_t){.is_used = 1, .pid = getpid()};
        install_faults();
        unlock_fabric();
        return 0;
    }
    return EMFILE;
}

int join_fabric(void) {
    static bool has_handler;
    read_settings();
    pthread_mutex_lock(&own.lock);
    int code = 0;
    if (!own.fabric) {
        name_fabric();
        int fd = open_locked();
        code = fd < 0 ? errno : map_fabric(fd);
        if (!code) code = enter();
        if (code) {
            fprintf(stderr, "fake_verbs: fabric %s: %s\n", own.path, strerror(code));
            if (own.fabric) munmap(own.fabric, sizeof(fabric_t));
            own.fabric = NULL;
            if (fd >= 0) close(fd);
        } else {
            lock_byte(fd, JOINING, F_UNLCK, F_SETLK);
            prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* or Yama forbids process_vm_writev */
            if (!has_handler) pthread_atfork(NULL, NULL, forget_in_child);
            has_handler = true;
        }
    }
    pthread_mutex_unlock(&own.lock);
    return code;
}

/* `is_used`: threads may go on to call verbs until the process is gone, so all stays, and the others find a dead process. */
void leave_fabric(bool is_used) {
    pthread_mutex_lock(&own.lock);
    if (own.fabric && !lock_byte(own.fd, JOINING, F_WRLCK, F_SETLKW)) {
        if (is_used) {
            if (members(own.fd) == 0) unlink(own.path);
            lock_byte(own.fd, JOINING, F_UNLCK, F_SETLK);
            pthread_mutex_unlock(&own.lock);
            return;
        }
        lock_fabric();
        reap(own.me);
        own.has_left = true;
        unlock_fabric();
        if (members(own.fd) == 0) unlink(own.path);
        /* With a context left, a thread may still be calling while the process ends. */
        if (own.contexts == 0) {
            munmap(own.fabric, sizeof(fabric_t));
            own.fabric = NULL;
            own.has_left = false;
        }
        close(own.fd); /* with the locks */
        own.fd = -1;
    }
    pthread_mutex_unlock(&own.lock);
}
