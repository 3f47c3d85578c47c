/* Communicators over several nodes, pretended by DTL_FAKE_NODES: what "auto" makes of them, who is where,
 * and collectives that go by nodes. Its ranks come from dtlrun, four of them; the argument is the node of
 * each, as 0011. */
#include "check.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };
static int me;
static const char *nodes;

static int of(int rank) { return nodes[rank] - '0'; }

/* Ranks before `end` that share a node with `rank`; `ranks` are those of a communicator. */
static int on_node(const int *ranks, int end, int rank) {
    int i, count = 0;
    for (i = 0; i < end; i++) count += of(ranks[i]) == of(ranks[rank]);
    return count;
}

/* `ranks`: the world's rank of each. */
static void check_places(dtl_comm_t comm, const int *ranks) {
    dtl_comm_topology_t told = DTL_COMM_TOPOLOGY_INIT;
    int32_t rank, node, own;
    dtl_comm_t inside;
    int other;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    CHECK_OK(dtl_comm_topology(comm, &told));
    CHECK_OK(dtl_comm_node_of(comm, rank, &own));
    CHECK(told.nodes == 2 && told.node == own && own == (of(ranks[rank]) != of(ranks[0])));
    CHECK(told.local_rank == on_node(ranks, rank, rank) && told.local_size == on_node(ranks, RANKS, rank));
    for (other = 0; other < RANKS; other++) {
        CHECK_OK(dtl_comm_node_of(comm, other, &node));
        CHECK((node == own) == (of(ranks[other]) == of(ranks[rank])));
    }
    CHECK_STATUS(dtl_comm_node_of(comm, RANKS, &node), DTL_ERROR_INVALID_RANK);
    CHECK_OK(dtl_comm_split_node(comm, 0, &inside));
    CHECK_OK(dtl_comm_rank(inside, &rank));
    CHECK_OK(dtl_comm_size(inside, &node));
    CHECK(rank == told.local_rank && node == told.local_size);
    CHECK_OK(dtl_comm_topology(inside, &told));
    CHECK(told.nodes == 1 && told.local_size == node);
    CHECK_OK(dtl_comm_destroy(inside));
}

/* What goes by nodes, with each rank as root. */
static void check_collectives(dtl_comm_t comm) {
    int32_t rank, all[RANKS], got[RANKS], one, root, i;
    CHECK_OK(dtl_comm_rank(comm, &rank));
    for (root = 0; root < RANKS; root++) {
        CHECK_OK(dtl_comm_barrier(comm));
        one = rank == root ? 100 + root : 0;
        CHECK_OK(dtl_comm_bcast(comm, &one, 1, DTL_DTYPE_INT32, root));
        CHECK(one == 100 + root);
        one = rank + 1;
        memset(all, 0, sizeof all);
        CHECK_OK(dtl_comm_gather(comm, &one, 1, all, DTL_DTYPE_INT32, root));
        for (i = 0; i < RANKS && rank == root; i++) CHECK(all[i] == i + 1);
        CHECK_OK(dtl_comm_allgather(comm, &one, 1, all, DTL_DTYPE_INT32));
        for (i = 0; i < RANKS; i++) CHECK(all[i] == i + 1);
        for (i = 0; i < RANKS; i++) all[i] = 10 * root + i;
        CHECK_OK(dtl_comm_scatter(comm, all, 1, &one, DTL_DTYPE_INT32, root));
        CHECK(one == 10 * root + rank);
        /* In place: the root's own block lies where the others' go. */
        all[rank] = rank + 1;
        CHECK_OK(dtl_comm_allgather(comm, DTL_IN_PLACE, 1, all, DTL_DTYPE_INT32));
        for (i = 0; i < RANKS; i++) CHECK(all[i] == i + 1);
        one = 1 << rank;
        CHECK_OK(dtl_comm_reduce(comm, &one, got, 1, DTL_DTYPE_INT32, DTL_OP_SUM, root));
        if (rank == root) CHECK(got[0] == 15);
        CHECK_OK(dtl_comm_allreduce(comm, DTL_IN_PLACE, &one, 1, DTL_DTYPE_INT32, DTL_OP_SUM));
        CHECK(one == 15);
        /* It does not commute: the last rank's remains. */
        CHECK_OK(dtl_comm_allreduce(comm, &rank, &one, 1, DTL_DTYPE_INT32, DTL_OP_REPLACE));
        CHECK(one == RANKS - 1);
    }
}

static double sum_on(const char *kind, uint32_t flags) {
    /* Four numbers whose sum depends on how they are grouped. */
    const double mine = me == 0 ? 1e16 : me == 1 ? 1.0 : me == 2 ? -1e16 : 3.0;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    double sum = 0, first;
    desc.kind = kind;
    desc.flags = flags;
    CHECK_OK(dtl_comm_open(&desc, &comm));
    CHECK_OK(dtl_comm_allreduce(comm, &mine, &sum, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));
    first = sum;
    CHECK_OK(dtl_comm_bcast(comm, &first, 1, DTL_DTYPE_FLOAT64, 0));
    CHECK(memcmp(&first, &sum, sizeof sum) == 0);
    CHECK_OK(dtl_comm_destroy(comm));
    return sum;
}

int main(int argc, char **argv) {
    const int forward[RANKS] = {0, 1, 2, 3}, dealt[RANKS] = {0, 3, 1, 2};
    dtl_comm_info_t info = DTL_COMM_INFO_INIT;
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm;
    char job[64];
    int32_t size;
    double flat, same;
    if (argc < 2) {
        puts("skipped: its ranks come from dtlrun");
        return 77; /* what CTest calls skipped: alone it has no ranks, and the test that starts it with dtlrun runs */
    }
    nodes = argv[1];
    CHECK_OK(dtl_comm_rank(DTL_COMM_WORLD, &me));
    CHECK_OK(dtl_comm_size(DTL_COMM_WORLD, &size));
    CHECK(size == RANKS);
    CHECK_OK(dtl_comm_info(DTL_COMM_WORLD, &info));
    CHECK(strcmp(info.kind, "hier") == 0 && strncmp(info.transport, "2 nodes ", 8) == 0);
    check_places(DTL_COMM_WORLD, forward);
    check_collectives(DTL_COMM_WORLD);
    /* The same ranks in an order that goes from node to node. */
    CHECK_OK(dtl_comm_split(DTL_COMM_WORLD, 0, me == 0 ? 0 : me == 3 ? 1 : me + 1, &comm));
    check_places(comm, dealt);
    check_collectives(comm);
    CHECK_OK(dtl_comm_destroy(comm));
    flat = sum_on("shm", 0);
    same = sum_on("hier", DTL_COMM_DETERMINISTIC);
    CHECK(memcmp(&flat, &same, sizeof same) == 0);
    same = sum_on("hier", 0);
    /* Three and one are grouped in another way than two and two: the flag above is what made it equal. */
    CHECK((memcmp(&flat, &same, sizeof same) == 0) == (of(1) != of(2)));
    /* The nodes are of four ranks, this is one. */
    snprintf(job, sizeof job, "alone-%d-%d", me, (int)getpid());
    desc.kind = "hier";
    desc.size = 1;
    desc.job = job;
    CHECK_STATUS(dtl_comm_open(&desc, &comm), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(strstr(dtl_last_error(), "DTL_FAKE_NODES=") != NULL && strstr(dtl_last_error(), "1 ranks") != NULL);
    CHECK_OK(dtl_comm_barrier(DTL_COMM_WORLD));
    CHECK_OK(dtl_finalize());
    return 0;
}
