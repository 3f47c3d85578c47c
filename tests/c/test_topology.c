/* Where ranks and threads run: the node against what the C library says of it, the affinity against
 * one that is set, communicators of each kind; and the clock. C11, and valid C++17.
 * A run of several ranks (dtlrun) looks at the world communicator. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "check.h"
#include "mail_comm.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static void test_node(void) {
    dtl_topology_t node = DTL_TOPOLOGY_INIT;
    char name[256];
    cpu_set_t allowed;
    CHECK_OK(dtl_topology(&node));
    CHECK(node.struct_size == sizeof node && node.reserved == 0);
    CHECK(node.cpus_online == sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    CHECK(node.cpus_allowed == CPU_COUNT(&allowed));
    CHECK(node.cores >= 0 && node.cores <= node.cpus_online);
    CHECK(node.sockets >= 0 && node.sockets <= node.cpus_online && node.numa_nodes >= 1);
    CHECK(node.threads_per_core >= 0 && node.threads_per_core <= node.cpus_online);
    CHECK(node.l1d_bytes <= 1 << 20 && (node.l2_bytes == 0 || node.l2_bytes >= node.l1d_bytes));
    CHECK(node.memory_bytes >= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2);
    CHECK(node.memory_limit_bytes < node.memory_bytes);
    CHECK(gethostname(name, sizeof name) == 0 && strcmp(node.hostname, name) == 0);
    CHECK_STATUS(dtl_topology(NULL), DTL_ERROR_NULL_POINTER);
    node.struct_size = 4;
    CHECK_STATUS(dtl_topology(&node), DTL_ERROR_INVALID_ARGUMENT);
}

/* On a thread of its own, which is bound to the first CPU that it may run on. */
static void* test_affinity(void* unused) {
    int32_t cpus[1024], bound = -1;
    uint64_t count = 99, again;
    cpu_set_t set;
    dtl_topology_t node = DTL_TOPOLOGY_INIT;
    CHECK_OK(dtl_affinity(NULL, 0, &count));
    CHECK(count >= 1 && count <= 1024);
    CHECK_OK(dtl_affinity(cpus, 1024, &again));
    CHECK(again == count);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (again = 0; again < count; again++) {
        CHECK(CPU_ISSET((size_t)cpus[again], &set) && (again == 0 || cpus[again] > cpus[again - 1]));
    }
    if (count > 1) {
        cpus[0] = -7;
        CHECK_STATUS(dtl_affinity(cpus, count - 1, &again), DTL_ERROR_BUFFER_TOO_SMALL);
        CHECK(again == count && cpus[0] == -7);
    }
    CHECK_STATUS(dtl_affinity(NULL, 3, &again), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_affinity(cpus, 3, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_OK(dtl_affinity(cpus, 1024, &again));
    CPU_ZERO(&set);
    CPU_SET((size_t)cpus[count - 1], &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
    CHECK_OK(dtl_affinity(&bound, 1, &again));
    CHECK(again == 1 && bound == cpus[count - 1]);
    CHECK_OK(dtl_topology(&node));
    CHECK(node.cpus_allowed == 1);
    return unused;
}

static void check_one_node(dtl_comm_t comm, int rank, int size) {
    dtl_comm_topology_t told = DTL_COMM_TOPOLOGY_INIT;
    int32_t node = -9;
    int other;
    CHECK_OK(dtl_comm_topology(comm, &told));
    CHECK(told.node == 0 && told.nodes == 1 && told.local_rank == rank && told.local_size == size);
    for (other = 0; other < size; other++) {
        CHECK_OK(dtl_comm_node_of(comm, other, &node));
        CHECK(node == 0);
    }
    node = -9;
    CHECK_STATUS(dtl_comm_node_of(comm, size, &node), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_node_of(comm, -1, &node), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_comm_node_of(comm, 0, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_comm_topology(comm, NULL), DTL_ERROR_NULL_POINTER);
    CHECK(node == -9);
}

/* What the launcher's environment says; the registered kind says nothing. */
static void set_launch(const char* rank, const char* size, const char* local_rank, const char* local_size) {
    CHECK(setenv("DTL_RANK", rank, 1) == 0 && setenv("DTL_SIZE", size, 1) == 0);
    CHECK(setenv("DTL_LOCAL_RANK", local_rank, 1) == 0 && setenv("DTL_LOCAL_SIZE", local_size, 1) == 0);
}

static void no_launch(void) {
    unsetenv("DTL_RANK"), unsetenv("DTL_SIZE"), unsetenv("DTL_LOCAL_RANK"), unsetenv("DTL_LOCAL_SIZE");
}

static void test_registered(void) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_topology_t told = DTL_COMM_TOPOLOGY_INIT;
    dtl_comm_t comm;
    int32_t node = -9;
    mail_start(2);
    mail_register();
    desc.kind = "mail";
    CHECK_OK(dtl_comm_open(&desc, &comm));
    no_launch();
    CHECK_STATUS(dtl_comm_topology(comm, &told), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("kind mail");
    CHECK_TEXT("no launcher");
    CHECK_STATUS(dtl_comm_node_of(comm, 0, &node), DTL_ERROR_NOT_SUPPORTED);
    set_launch("0", "3", "0", "3");
    CHECK_STATUS(dtl_comm_topology(comm, &told), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("rank 0 of 3");
    set_launch(mail_rank ? "1" : "0", "2", mail_rank ? "1" : "0", "2");
    check_one_node(comm, mail_rank, 2);
    /* Two nodes: the own place is known, the others' is not. */
    set_launch(mail_rank ? "1" : "0", "2", "0", "1");
    CHECK_OK(dtl_comm_topology(comm, &told));
    CHECK(told.node == -1 && told.nodes == -1 && told.local_rank == 0 && told.local_size == 1);
    CHECK_STATUS(dtl_comm_node_of(comm, 0, &node), DTL_ERROR_NOT_SUPPORTED);
    CHECK(node == -9);
    no_launch();
    CHECK_OK(dtl_comm_barrier(comm));
    CHECK_OK(dtl_comm_destroy(comm));
}

static void test_clock(void) {
    struct timespec time = {0, 50 * 1000 * 1000};
    const double begin = dtl_comm_wtime();
    double end, last = begin;
    int i;
    nanosleep(&time, NULL);
    end = dtl_comm_wtime();
    CHECK(begin >= 0 && end - begin >= 0.05 && end - begin < 30);
    for (i = 0; i < 1000; i++) {
        const double now = dtl_comm_wtime();
        CHECK(now >= last);
        last = now;
    }
    CHECK(last > end);
}

int main(int argc, char** argv) {
    dtl_comm_t threads[3];
    pthread_t thread;
    int i, rank, size;
    if (argc > 1 && strcmp(argv[1], "world") == 0) {
        CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
        CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &size));
        CHECK(size == 3);
        check_one_node(DTL_COMM_WORLD, rank, size);
        CHECK_OK(dtl_comm_barrier(DTL_COMM_WORLD));
        CHECK_OK(dtl_finalize());
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "mail") == 0) {
        test_registered();
        CHECK_OK(dtl_finalize());
        mail_finish();
        return 0;
    }
    test_clock(); /* works before the library is initialised */
    test_node();
    CHECK(pthread_create(&thread, NULL, test_affinity, NULL) == 0 && pthread_join(thread, NULL) == 0);
    check_one_node(DTL_COMM_SELF, 0, 1);
    CHECK_OK(dtl_comm_threads(3, 0, threads));
    for (i = 0; i < 3; i++) check_one_node(threads[i], i, 3);
    for (i = 0; i < 3; i++) CHECK_OK(dtl_comm_destroy(threads[i]));
    CHECK_OK(dtl_finalize());
    test_clock(); /* and after */
    return 0;
}
