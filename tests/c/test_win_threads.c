/* One-sided communication between ranks that are threads of one process: the cases of win_cases.h. */
#include "win_cases.h"
#include <pthread.h>

enum { MOST = 8 };

static void *run(void *argument) {
    side_t side;
    side.comm = *(dtl_comm_t *)argument;
    CHECK_OK(dtl_comm_rank(side.comm, &side.me));
    CHECK_OK(dtl_comm_size(side.comm, &side.ranks));
    all_cases(side);
    CHECK_OK(dtl_comm_destroy(side.comm));
    return NULL;
}

int main(void) {
    static const int sizes[] = {1, 2, 3, 4, 8};
    dtl_comm_t comms[MOST];
    pthread_t threads[MOST];
    int k, i;
    for (k = 0; k < 5; k++) {
        CHECK_OK(dtl_comm_threads(sizes[k], UINT64_C(60000000000), comms));
        for (i = 0; i < sizes[k]; i++) CHECK(pthread_create(&threads[i], NULL, run, &comms[i]) == 0);
        for (i = 0; i < sizes[k]; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_OK(dtl_init(NULL));
    CHECK_OK(dtl_finalize());
    return 0;
}
