/* Kind "mpi" in a program that is linked with MPI: whose MPI it is, in every order of beginnings and ends,
 * and which communicators are taken.
 *     adopt CASE [LEVEL]    see the table at the end; LEVEL as of init_mpi */
#include "mpi_check.h"

#include <pthread.h>

/* The standard's binary interface has MPI_Comm_toint alone. */
#if MPI_VERSION >= 5
#define TO_INT MPI_Comm_toint
#else
#define TO_INT MPI_Comm_c2f
#endif

static const char *level_name = "multiple";
static int rank, size;
static int32_t world_fint;

static dtl_status_t open_desc(const int32_t *mpi_comm, uint64_t flags, dtl_comm_t *out)
{
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    desc.kind = "mpi";
    desc.flags = flags;
    desc.mpi_comm = mpi_comm;
    return dtl_comm_open(&desc, out);
}

/* The world, also while MPI does not run: then MPI_Comm_c2f may not be called. */
static dtl_status_t adopt_world(dtl_comm_t *out) { return dtl_comm_from_mpi_fint(world_fint, out); }

static dtl_status_t adopt(MPI_Comm comm, dtl_comm_t *out)
{
    return dtl_comm_from_mpi_fint((int32_t)TO_INT(comm), out);
}

static void use(dtl_comm_t comm)
{
    int64_t one = 1, sum = -1;
    int32_t my_size = -1;
    CHECK_OK(dtl_comm_size(comm, &my_size));
    CHECK_OK(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_INT64, DTL_OP_SUM));
    CHECK(sum == my_size);
}

static int says(int (*function)(int *))
{
    int answer = -1;
    CHECK(function(&answer) == MPI_SUCCESS);
    return answer;
}

static void begin(int argc, char **argv)
{
    init_mpi(&argc, &argv, level_name);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    world_fint = (int32_t)TO_INT(MPI_COMM_WORLD);
}

/* ---- orders ---- */

static void dtl_ends_first(int argc, char **argv)
{
    dtl_comm_t comm;
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(adopt_world(&comm), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is not initialised");
    CHECK(!says(MPI_Initialized));
    begin(argc, argv);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(adopt(MPI_COMM_WORLD, &comm));
        use(comm);
        CHECK_OK(open_desc(NULL, 0, &comm)); /* and the world without naming it */
        use(comm);
        if (size > 1 && getenv("DTL_TIMEOUT") == NULL) {
            /* MPI has run it: no algorithm of the library's is told to have been used. */
            char told[16384];
            CHECK_OK(dtl_explain(told, sizeof told, NULL));
            CHECK(strstr(told, "allreduce by mpi: executed by the backend itself") != NULL);
            CHECK(strstr(told, "collectives: mpi's own") != NULL && strstr(told, "first used") == NULL);
        }
        CHECK_OK(dtl_finalize());
        CHECK(!says(MPI_Finalized)); /* it is the program's */
        CHECK_OK(dtl_init(NULL));
    }
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

static void mpi_ends_first(int argc, char **argv)
{
    dtl_comm_t comm, other, third;
    dtl_comm_info_t before = DTL_COMM_INFO_INIT, after = DTL_COMM_INFO_INIT;
    dtl_request_t receive;
    int64_t word = 1;
    begin(argc, argv);
    CHECK_OK(adopt(MPI_COMM_WORLD, &comm));
    CHECK_OK(dtl_comm_info(comm, &before));
    CHECK(strstr(before.transport, "; MPI_THREAD_") != NULL); /* not cut */
    CHECK_OK(adopt(MPI_COMM_SELF, &other));
    CHECK_OK(dtl_comm_irecv(comm, &word, 1, DTL_DTYPE_INT64, DTL_ANY_SOURCE, 9, &receive));
    use(comm);
    use(other);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    CHECK_OK(dtl_comm_info(comm, &after));
    CHECK(strcmp(after.transport, before.transport) == 0);
    CHECK_STATUS(dtl_comm_send(comm, &word, 1, DTL_DTYPE_INT64, (rank + 1) % size, 1), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is finalised");
    CHECK_STATUS(dtl_comm_recv(comm, &word, 1, DTL_DTYPE_INT64, rank, 1, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(dtl_request_wait(receive, DTL_TIMEOUT_INFINITE, NULL), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(adopt_world(&third), DTL_ERROR_INVALID_STATE);
    CHECK_STATUS(open_desc(NULL, 0, &third), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_comm_destroy(comm));
    CHECK_OK(dtl_finalize()); /* closes `other` */
    CHECK_OK(dtl_init(NULL));
    CHECK_STATUS(open_desc(NULL, 0, &third), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
}

/* MPI has come and gone before the library hears of it. */
static void never_met(int argc, char **argv)
{
    dtl_comm_t comm;
    begin(argc, argv);
    MPI_Finalize();
    CHECK_STATUS(adopt_world(&comm), DTL_ERROR_INVALID_STATE);
    CHECK_SAID("MPI is finalised");
    CHECK_STATUS(open_desc(NULL, 0, &comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
}

/* The library starts and ends MPI; the program uses it in between. */
static void started_here(int argc, char **argv)
{
    dtl_comm_t comm;
    (void)argc, (void)argv;
    CHECK_OK(open_desc(NULL, 0, &comm));
    CHECK(says(MPI_Initialized));
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    use(comm);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(adopt(MPI_COMM_WORLD, &comm));
    use(comm);
    CHECK_OK(dtl_finalize());
    CHECK(says(MPI_Finalized));
}

/* The library starts MPI, the program ends it. */
static void ended_by_the_program(int argc, char **argv)
{
    dtl_comm_t comm;
    (void)argc, (void)argv;
    CHECK_OK(open_desc(NULL, 0, &comm));
    use(comm);
    MPI_Finalize();
    CHECK_STATUS(dtl_comm_barrier(comm), DTL_ERROR_INVALID_STATE);
    CHECK_OK(dtl_finalize());
}

/* ---- which communicators ---- */

static void communicators(int argc, char **argv)
{
    MPI_Comm split, inter;
    dtl_comm_t comm;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    int32_t number = -1, fint;
    begin(argc, argv);
    /* Another order of ranks, and freed while it is in use. */
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &split);
    CHECK_OK(adopt(split, &comm));
    MPI_Comm_free(&split);
    CHECK_OK(dtl_comm_rank(comm, &number));
    CHECK(number == size - 1 - rank);
    use(comm);
    CHECK_OK(dtl_comm_destroy(comm));
    /* Some of the ranks. */
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &split);
    CHECK_OK(adopt(split, &comm));
    use(comm);
    CHECK_OK(dtl_comm_destroy(comm));
    /* None, and two groups of them. */
    CHECK_STATUS(adopt(MPI_COMM_NULL, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_SAID("MPI_COMM_NULL");
    if (size > 1) {
        MPI_Intercomm_create(split, 0, MPI_COMM_WORLD, (rank + 1) % 2, 3, &inter);
        CHECK_STATUS(adopt(inter, &comm), DTL_ERROR_INVALID_ARGUMENT);
        CHECK_SAID("MPI_Intercomm_merge");
        MPI_Comm_free(&inter);
    }
    MPI_Comm_free(&split);
#if MPI_VERSION < 5
    /* Not a communicator's number. (The standard's interface does not let one find out without an abort.) */
    CHECK_STATUS(dtl_comm_from_mpi_fint(0x4c00010d, &comm), DTL_ERROR_INVALID_ARGUMENT);
#endif
    CHECK_STATUS(dtl_comm_from_mpi_fint(0, NULL), DTL_ERROR_NULL_POINTER);
    /* What the description says must be so. */
    fint = (int32_t)TO_INT(MPI_COMM_WORLD);
    desc.kind = "mpi";
    desc.mpi_comm = &fint;
    desc.rank = size;
    desc.size = size + 1;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_RANK);
    CHECK_SAID("MPI says");
    /* Kinds that do not read the number. */
    desc.size = 0;
    desc.kind = "hier";
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_SAID("desc.mpi_comm is set, and kind \"hier\" does not read it");
    desc.kind = "auto";
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    desc.kind = "self";
    desc.mpi_comm = NULL;
    desc.flags = DTL_COMM_NO_DUP;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_SAID("DTL_COMM_NO_DUP");
    desc.flags = 0x80;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

/* Messages of the library's and of MPI's own calls meet with DTL_COMM_NO_DUP, and only then. */
/* Creates communicators until MPI has no more, or MOST. A failed creation frees what it has allocated. Open MPI has
 * tens of thousands, and each takes longer than the one before. */
#ifdef OPEN_MPI
enum { MOST = 300 };
#else
enum { MOST = 1100 };
#endif
static void many(int argc, char **argv)
{
    static dtl_comm_t all[MOST], next;
    const size_t most = sizeof all / sizeof *all;
    size_t first = 0, count;
    begin(argc, argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* its own answer to a dup that fails is the end */
    for (int round = 0; round < 4; round++) {
        dtl_status_t status = DTL_SUCCESS;
        for (count = 0; count < most && status == DTL_SUCCESS; count += status == DTL_SUCCESS) {
            if (count == 0 || round % 2 == 0) status = adopt(MPI_COMM_WORLD, &all[count]);
            else status = dtl_comm_dup(all[0], &all[count]);
        }
        CHECK(status == DTL_SUCCESS || status == DTL_ERROR_MPI);
        /* One place is left, which is too little, or none; both ways to fail. */
        for (int again = 0; again < 3 && status != DTL_SUCCESS; again++) {
            CHECK_STATUS(adopt(MPI_COMM_WORLD, &next), DTL_ERROR_MPI);
        }
        if (round == 0) first = count;
        CHECK(count == first);
        use(all[count - 1]);
        while (count > 0) CHECK_OK(dtl_comm_destroy(all[--count]));
    }
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

/* MPI gives the numbers of its requests again: what was noted of one must not be taken for another's. */
static void withdrawn(int argc, char **argv)
{
    char large[1000] = {0};
    int64_t word = 0;
    dtl_comm_t comm;
    dtl_request_t request;
    dtl_message_t message;
    dtl_recv_info_t info;
    begin(argc, argv);
    CHECK_OK(adopt(MPI_COMM_WORLD, &comm));
    if (rank == 1) CHECK_OK(dtl_comm_send(comm, large, sizeof large, DTL_DTYPE_BYTE, 0, 9));
    if (rank == 0) {
        CHECK_OK(dtl_comm_mprobe(comm, 1, 9, &message, &info));
        CHECK_OK(dtl_comm_imrecv(message, &word, 1, DTL_DTYPE_INT64, &request));
        CHECK_OK(dtl_request_cancel(request)); /* too late */
        CHECK_STATUS(dtl_request_wait(request, DTL_TIMEOUT_INFINITE, &info), DTL_ERROR_TRUNCATED);
        CHECK(info.size_bytes == sizeof large);
        for (int i = 0; i < 100; i++) {
            CHECK_OK(dtl_comm_irecv(comm, &word, 1, DTL_DTYPE_INT64, 1, 10, &request));
            CHECK_OK(dtl_request_cancel(request));
            CHECK_STATUS(dtl_request_wait(request, UINT64_C(10000000000), NULL), DTL_ERROR_CANCELED);
        }
    }
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

static void without_dup(int argc, char **argv)
{
    dtl_comm_t on, beside;
    dtl_recv_info_t info;
    int32_t fint, flag = -1;
    int found = -1;
    int64_t word = 0, sent;
    MPI_Comm mine;
    begin(argc, argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    fint = (int32_t)TO_INT(mine);
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    CHECK_OK(open_desc(&fint, DTL_COMM_NO_DUP, &on));
    CHECK_OK(open_desc(&fint, 0, &beside));
    MPI_Request request;
    sent = 100 + rank;
    MPI_Isend(&sent, (int)sizeof sent, MPI_BYTE, next, 5, mine, &request);
    CHECK_OK(dtl_comm_recv(on, &word, 1, DTL_DTYPE_INT64, previous, 5, &info));
    CHECK(word == 100 + previous && info.size_bytes == sizeof word && info.tag == 5);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    dtl_request_t sending;
    sent = 200 + rank;
    CHECK_OK(dtl_comm_isend(on, &sent, 1, DTL_DTYPE_INT64, next, 6, &sending));
    MPI_Recv(&word, (int)sizeof word, MPI_BYTE, previous, 6, mine, MPI_STATUS_IGNORE);
    CHECK(word == 200 + previous);
    CHECK_OK(dtl_request_wait(sending, DTL_TIMEOUT_INFINITE, NULL));
    /* The duplicate's do not. */
    MPI_Isend(&sent, (int)sizeof sent, MPI_BYTE, next, 7, mine, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK_OK(dtl_comm_iprobe(beside, DTL_ANY_SOURCE, DTL_ANY_TAG, &flag, &info));
    CHECK(!flag);
    use(on);
    use(beside);
    MPI_Recv(&word, (int)sizeof word, MPI_BYTE, previous, 7, mine, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK_OK(dtl_comm_destroy(on));
    CHECK_OK(dtl_comm_destroy(beside));
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mine, &found, MPI_STATUS_IGNORE); /* still the program's */
    CHECK(!found);
    MPI_Comm_free(&mine);
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

/* ---- threads ---- */

enum { MESSAGES = 100 };

typedef struct job_t {
    dtl_comm_t comm;
    int32_t tag;
    int level;
} job_t;

static void exchange(const job_t *job)
{
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int64_t i = 0; i < MESSAGES; i++) {
        int64_t got = -1;
        CHECK_OK(dtl_comm_sendrecv(job->comm, &i, 1, next, job->tag, &got, 1, previous, job->tag,
                                   DTL_DTYPE_INT64, NULL));
        CHECK(got == i);
    }
}

static void *another_thread(void *argument)
{
    job_t *job = (job_t *)argument;
    dtl_comm_t refused;
    int64_t value = 0;
    if (job->level >= MPI_THREAD_SERIALIZED) {
        exchange(job);
        return NULL;
    }
    const char *name = job->level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED";
    CHECK_STATUS(dtl_comm_send(job->comm, &value, 1, DTL_DTYPE_INT64, (rank + 1) % size, 1), DTL_ERROR_NOT_SUPPORTED);
    CHECK_SAID(name);
    CHECK_STATUS(dtl_comm_recv(job->comm, &value, 1, DTL_DTYPE_INT64, rank, 1, NULL), DTL_ERROR_NOT_SUPPORTED);
    CHECK_SAID("MPI_THREAD_MULTIPLE");
    CHECK_STATUS(dtl_comm_barrier(job->comm), DTL_ERROR_NOT_SUPPORTED);
    CHECK_STATUS(open_desc(NULL, 0, &refused), DTL_ERROR_NOT_SUPPORTED);
    CHECK_OK(dtl_comm_destroy(job->comm)); /* its end is left to the thread that may */
    return NULL;
}

static void threads(int argc, char **argv)
{
    pthread_t running[2];
    job_t jobs[3];
    int level = MPI_THREAD_SINGLE;
    begin(argc, argv);
    MPI_Query_thread(&level);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(adopt(MPI_COMM_WORLD, &jobs[i].comm));
        jobs[i].tag = i;
        jobs[i].level = level;
    }
    if (level >= MPI_THREAD_SERIALIZED) { /* two on one communicator */
        CHECK_OK(dtl_comm_destroy(jobs[1].comm));
        jobs[1].comm = jobs[0].comm;
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&running[i], NULL, another_thread, &jobs[i]) == 0);
    }
    exchange(&jobs[2]);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(running[i], NULL) == 0);
    }
    CHECK_OK(dtl_comm_barrier(jobs[2].comm));
    CHECK_OK(dtl_comm_destroy(jobs[2].comm));
    CHECK_OK(dtl_finalize());
    MPI_Finalize();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(int argc, char **argv);
    } cases[] = {{"dtl-ends-first", dtl_ends_first},
                 {"mpi-ends-first", mpi_ends_first},
                 {"never-met", never_met},
                 {"started-here", started_here},
                 {"ended-by-the-program", ended_by_the_program},
                 {"communicators", communicators},
                 {"many", many},
                 {"withdrawn", withdrawn},
                 {"without-dup", without_dup},
                 {"threads", threads}};
    CHECK(argc >= 2);
    level_name = argc > 2 ? argv[2] : level_name;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) == 0) {
            cases[i].run(argc, argv);
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", argv[1]);
    return 1;
}
