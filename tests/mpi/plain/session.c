/* Kind "mpi" in a program that is not linked with any MPI: the library finds, starts and ends one.
 * Started by mpirun of either family; the second argument is that family.
 *     session CASE openmpi | mpich [FILE]    see the table at the end */
#define _GNU_SOURCE
#include "../../c/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_SAID(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static int is_open_mpi;
static const char *extra;

static const char *own_library(void) { return is_open_mpi ? "libmpi.so.40" : "libmpich.so.12"; }
static const char *other_library(void) { return is_open_mpi ? "libmpich.so.12" : "libmpi.so.40"; }

static dtl_status_t open_mpi(dtl_comm_t *out)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    return dtl_comm_open(&desc, out);
}

static void use(dtl_comm_t comm)
{
    int32_t rank = -1, size = -1;
    int64_t mine, sum = -1;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_size(comm, &size));
    mine = rank;
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(sum == (int64_t)size * (size - 1) / 2);
    CHECK_OK(dtl_comm_sendrecv(comm, &mine, 1, (rank + 1) % size, 7, &sum, 1, (rank + size - 1) % size, 7,
                               DTL_DTYPE_INT64, NULL));
    CHECK(sum == (rank + size - 1) % size);
}

/* MPI's word on itself, through the loaded library. */
static int mpi_says(const char *function)
{
    int (*ask)(int *);
    int answer = -1;
    void *found = dlsym(RTLD_DEFAULT, function);
    CHECK(found != NULL);
    memcpy(&ask, &found, sizeof ask);
    CHECK(ask(&answer) == 0);
    return answer;
}

static void call_mpi(void *library, const char *function)
{
    int (*call)(void);
    void *found = dlsym(library, function);
    CHECK(found != NULL);
    memcpy(&call, &found, sizeof call);
    CHECK(call() == 0);
}

/* Started by the first open, ended by the last finalize, and not again. */
static void started_here(void)
{
    dtl_comm_t comm, other;
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_init(NULL));
    CHECK(dlsym(RTLD_DEFAULT, "MPI_Init") == NULL); /* not before somebody asks for it */
    CHECK_OK(open_mpi(&comm));
    CHECK_OK(open_mpi(&other));
    CHECK_OK(dtl_comm_info(comm, &info));
    CHECK(strcmp(info.kind, "mpi") == 0);
    use(comm);
    use(other);
    CHECK_OK(dtl_comm_destroy(other));
    CHECK_OK(dtl_finalize());
    CHECK(mpi_says("MPI_Initialized") && !mpi_says("MPI_Finalized"));
    use(comm);
    CHECK_OK(dtl_finalize()); /* and with it `comm` */
    CHECK(mpi_says("MPI_Finalized"));
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(open_mpi(&comm), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("cannot be started twice");
    CHECK_STATUS(dtl_comm_from_mpi_fint(0, &comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
}

/* The world communicator, because DTL_COMM says so; nobody destroys it. */
static void world(void)
{
    CHECK(setenv("DTL_COMM", "mpi", 1) == 0);
    use(DTL_COMM_WORLD);
    CHECK_OK(dtl_finalize());
    CHECK(mpi_says("MPI_Finalized"));
}

/* The program ends what the library has started. */
static void ended_by_the_program(void)
{
    dtl_comm_t comm;
    int64_t word = 0;
    CHECK_OK(open_mpi(&comm));
    use(comm);
    call_mpi(RTLD_DEFAULT, "MPI_Finalize");
    CHECK_STATUS(dtl_comm_send(comm, &word, 1, DTL_DTYPE_INT64, 0, 1), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is finalised");
    CHECK_STATUS(open_mpi(&comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
}

static void try_library(const char *name, const char *said)
{
    dtl_comm_t comm;
    CHECK(setenv("DTL_MPI_LIBRARY", name, 1) == 0);
    CHECK_OK(dtl_init(NULL));
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(open_mpi(&comm), DTL_ERROR_UNAVAILABLE);
        CHECK_SAID(said);
        CHECK_SAID(name);
    }
    CHECK_OK(dtl_finalize());
}

/* What is no MPI is refused by name, with the loader's reason, and the next try is not the worse for it. */
static void wrong_libraries(void)
{
    /* The beginning of a 32-bit library. */
    const unsigned char narrow[64] = {0x7F, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 3, 0, 1};
    char file[] = "/tmp/dtl-narrow-XXXXXX";
    dtl_comm_t comm;
    const int fd = mkstemp(file);
    CHECK(fd >= 0 && write(fd, narrow, sizeof narrow) == (ssize_t)sizeof narrow && close(fd) == 0);
    try_library(file, "ELFCLASS32");
    CHECK(unlink(file) == 0);
    try_library("/no/such/libmpi.so", "No such file");
    try_library("/bin/ls", "cannot dynamically load");
    try_library("/etc/passwd", "ELF");
    try_library("/tmp", "no regular file");
    try_library("libc.so.6", "no function MPI_Comm_rank");
    CHECK(extra != NULL);
    try_library(extra, "it has no function MPI_"); /* one that begins as an MPI does */
    CHECK(setenv("DTL_MPI_LIBRARY", own_library(), 1) == 0);
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(open_mpi(&comm));
    use(comm);
    CHECK_OK(dtl_finalize());
    /* It stays the one of this process. */
    try_library(other_library(), "second MPI");
}

/* An MPI that this launcher is not for. */
static void other_family(void)
{
    void *there = dlopen(other_library(), RTLD_NOW | RTLD_LOCAL);
    if (there == NULL) SKIP("the other family's MPI is not installed");
    dtl_comm_t comm;
    CHECK(setenv("DTL_MPI_LIBRARY", other_library(), 1) == 0);
    CHECK_STATUS(open_mpi(&comm), DTL_ERROR_UNAVAILABLE);
    CHECK_SAID("each rank would start alone");
    CHECK_SAID(is_open_mpi ? "libmpich" : "libmpi.so.40");
    CHECK_OK(dtl_finalize());
}

/* The launcher, or what is left over from another one, tells another size than MPI. */
static void other_size(void)
{
    dtl_comm_t comm;
    CHECK(setenv("DTL_RANK", "0", 1) == 0 && setenv("DTL_SIZE", "9", 1) == 0);
    CHECK_STATUS(open_mpi(&comm), DTL_ERROR_UNAVAILABLE);
    CHECK_SAID("9 ranks");
    CHECK(unsetenv("DTL_RANK") == 0 && unsetenv("DTL_SIZE") == 0);
    CHECK_OK(open_mpi(&comm));
    use(comm);
    CHECK_OK(dtl_finalize());
}

/* The program loads an MPI for itself alone, as Python does. */
static void loaded_for_itself(void)
{
    dtl_comm_t comm;
    int (*init)(void *, void *);
    int (*c2f)(void *);
    int32_t fint = 0x44000000; /* MPICH: the handle itself */
    void *library = dlopen(own_library(), RTLD_NOW | RTLD_LOCAL), *found;
    CHECK(library != NULL && dlsym(RTLD_DEFAULT, "MPI_Init") == NULL);
    CHECK_STATUS(dtl_comm_from_mpi_fint(fint, &comm), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("not initialised");
    found = dlsym(library, "MPI_Init");
    memcpy(&init, &found, sizeof init);
    CHECK(init(NULL, NULL) == 0);
    if (is_open_mpi) {
        found = dlsym(library, "MPI_Comm_c2f");
        memcpy(&c2f, &found, sizeof c2f);
        fint = c2f(dlsym(library, "ompi_mpi_comm_world"));
    }
    CHECK_OK(dtl_comm_from_mpi_fint(fint, &comm));
    use(comm);
    CHECK_OK(open_mpi(&comm));
    use(comm);
    CHECK_OK(dtl_finalize());
    try_library(other_library(), "second MPI");
    CHECK(!mpi_says("MPI_Finalized"));
    call_mpi(library, "MPI_Finalize");
}

static dtl_comm_t blocked_comm;
static int is_waiting;

static void *wait_for_nothing(void *unused)
{
    int64_t word;
    (void)unused;
    __atomic_store_n(&is_waiting, 1, __ATOMIC_SEQ_CST);
    const dtl_status_t status = dtl_comm_recv(blocked_comm, &word, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 99, NULL);
    CHECK(status == DTL_ERROR_CANCELED || status == DTL_ERROR_INVALID_STATE);
    return NULL;
}

/* MPI does not end while another thread waits in it. */
static void blocked(void)
{
    pthread_t thread;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    desc.timeout_ns = UINT64_C(60000000000); /* with a limit, a wait can be given up */
    CHECK_OK(dtl_comm_open(&desc, &blocked_comm));
    CHECK(pthread_create(&thread, NULL, wait_for_nothing, NULL) == 0);
    while (!__atomic_load_n(&is_waiting, __ATOMIC_SEQ_CST)) usleep(1000);
    usleep(50000);
    CHECK_STATUS(dtl_finalize(), DTL_ERROR_BUSY);
    CHECK(!mpi_says("MPI_Finalized"));
    CHECK_OK(dtl_comm_destroy(blocked_comm));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(dtl_finalize());
    CHECK(mpi_says("MPI_Finalized"));
}

/* A fork has no MPI, and does not end its parent's. */
static void forked(void)
{
    dtl_comm_t comm;
    int status = -1;
    CHECK_OK(open_mpi(&comm));
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_OK(dtl_init_after_fork());
        CHECK_STATUS(open_mpi(&comm), DTL_ERROR_INVALID_STATE);
        CHECK_SAID("fork");
        CHECK_OK(dtl_finalize());
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    use(comm);
    CHECK_OK(dtl_finalize());
    CHECK(mpi_says("MPI_Finalized"));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"started-here", started_here},
                 {"world", world},
                 {"ended-by-the-program", ended_by_the_program},
                 {"wrong-libraries", wrong_libraries},
                 {"other-family", other_family},
                 {"other-size", other_size},
                 {"loaded-for-itself", loaded_for_itself},
                 {"blocked", blocked},
                 {"forked", forked}};
    CHECK(argc >= 3);
    is_open_mpi = strcmp(argv[2], "openmpi") == 0;
    extra = argc > 3 ? argv[3] : NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run();
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 1;
}
