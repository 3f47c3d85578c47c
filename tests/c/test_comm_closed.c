/* A program whose standard streams are closed, as a daemon's are: nothing of the library takes their place, where what
 * somebody prints would be written into it.
 *
 *     program shm (under dtlrun) */
#include "comm_kinds.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { LARGE = 300000, KEPT = 100 };

/* None of the three is there, so printing changes nothing. */
static void expect_closed(const char *after) {
    static char line[4096];
    int fd;
    memset(line, 'x', sizeof line);
    for (fd = 0; fd < 3; fd++) {
        if (write(fd, line, sizeof line) != -1 || errno != EBADF || fcntl(fd, F_GETFD) != -1) {
            dprintf(KEPT, "descriptor %d is open after %s\n", fd, after);
            _exit(1);
        }
    }
}

/* CHECK prints to a stream that is closed here. */
static void works(int condition, const char *what) {
    if (!condition) {
        dprintf(KEPT, "%s: %s\n", what, dtl_last_error());
        _exit(1);
    }
    expect_closed(what);
}

static void talk(dtl_comm_t comm) {
    static unsigned char out[LARGE], in[LARGE];
    uint64_t sum = 0, one = 1;
    const int next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
    int i, wrong = 0;
    for (i = 0; i < LARGE; i++) out[i] = (unsigned char)(i * 7 + me);
    works(dtl_comm_allreduce(comm, &one, &sum, 1, DTL_DTYPE_UINT64, DTL_OP_SUM) == DTL_SUCCESS, "allreduce");
    works(sum == (uint64_t)ranks, "its sum");
    works(dtl_comm_sendrecv(comm, out, LARGE, next, 1, in, LARGE, previous, 1, DTL_DTYPE_BYTE, NULL) == DTL_SUCCESS,
          "sendrecv");
    for (i = 0; i < LARGE; i++) wrong += in[i] != (unsigned char)(i * 7 + previous);
    works(wrong == 0, "its bytes");
}

static void share(dtl_comm_t comm) {
    dtl_win_t window;
    void *bytes = NULL;
    works(dtl_win_allocate(comm, 4096, 1, &bytes, &window) == DTL_SUCCESS, "win_allocate");
    works(dtl_win_fence(window) == DTL_SUCCESS, "fence");
    works(dtl_win_put(window, &me, 1, DTL_DTYPE_INT32, (me + 1) % ranks, 0) == DTL_SUCCESS, "put");
    works(dtl_win_fence(window) == DTL_SUCCESS, "fence");
    works(*(int *)bytes == (me + ranks - 1) % ranks, "what was put");
    works(dtl_win_destroy(window) == DTL_SUCCESS, "win_destroy");
}

int main(int argc, char **argv) {
    dtl_comm_desc_t desc = DTL_COMM_DESC_INIT;
    dtl_comm_t comm, copy;
    int fd;
    CHECK(argc == 2);
    CHECK(dup2(2, KEPT) == KEPT);
    for (fd = 0; fd < 3; fd++) close(fd);
    desc.kind = argv[1];
    desc.timeout_ns = MILLISECONDS(60000);
    works(dtl_comm_open(&desc, &comm) == DTL_SUCCESS, "open");
    works(dtl_comm_rank(comm, &me) == DTL_SUCCESS && dtl_comm_size(comm, &ranks) == DTL_SUCCESS, "rank and size");
    talk(comm);
    works(dtl_comm_dup(comm, &copy) == DTL_SUCCESS, "dup");
    talk(copy);
    share(copy);
    works(dtl_comm_destroy(copy) == DTL_SUCCESS && dtl_comm_destroy(comm) == DTL_SUCCESS, "destroy");
    return 0;
}
