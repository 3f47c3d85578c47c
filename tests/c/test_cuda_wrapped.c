/* A stream of the program's that dtl_stream_wrap has made known, in a driver that is none (tests/cuda/fake_cuda.c): when
 * dtl_stream_destroy has returned, the library uses the stream no more, whatever other threads do in the library. Its owner
 * may then destroy it. C11, and valid C++17. Without DTL_CUDA_LIBRARY it is skipped. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2000 };

static dtl_backend_t cuda;
static int is_over;

/* Calls that take no time, so that some call of this thread is nearly always under way. */
static void* keep_calling(void* unused) {
    (void)unused;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        int32_t count = 0;
        CHECK_OK(dtl_backend_device_count(cuda, &count));
    }
    return NULL;
}

int main(void) {
    const char* file = getenv("DTL_CUDA_LIBRARY");
    int (*create)(void**, unsigned) = NULL;
    int (*destroy)(void*) = NULL;
    int (*enter)(void**, unsigned, int) = NULL;
    void *library, *found, *context;
    pthread_t other;
    int i;
    if (file == NULL || *file == '\0') SKIP("DTL_CUDA_LIBRARY names no driver");
    CHECK_OK(dtl_backend_require("cuda", &cuda));
    CHECK_OK(dtl_backend_set_device(cuda, 0));
    library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    found = dlsym(library, "cuStreamCreate");
    memcpy(&create, &found, sizeof create);
    found = dlsym(library, "cuStreamDestroy_v2");
    memcpy(&destroy, &found, sizeof destroy);
    found = dlsym(library, "cuCtxCreate_v2");
    memcpy(&enter, &found, sizeof enter);
    CHECK(create != NULL && destroy != NULL && enter != NULL && enter(&context, 0, 0) == 0);
    CHECK(pthread_create(&other, NULL, keep_calling, NULL) == 0);
    for (i = 0; i < ROUNDS; i++) {
        void* own = NULL;
        dtl_stream_t wrapped;
        CHECK(create(&own, 1) == 0);
        CHECK_OK(dtl_stream_wrap(cuda, own, &wrapped));
        CHECK_OK(dtl_stream_destroy(wrapped));
        CHECK(destroy(own) == 0);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK_OK(dtl_finalize());
    puts("ok");
    return 0;
}
