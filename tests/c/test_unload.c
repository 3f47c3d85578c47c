/* dlopen and dlclose of the library, again and again, with calls in between and without a finalize:
 * it stays mapped, so nothing that it has started is left without code. C11, and valid C++17. */
#include "check.h"
#include <dlfcn.h>
#include <string.h>

static void* symbol(void* library, const char* name) {
    void* found = dlsym(library, name);
    if (found == NULL) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return found;
}

static dtl_status_t count(void* user) { return __atomic_fetch_add((int*)user, 1, __ATOMIC_ACQ_REL), DTL_SUCCESS; }

int main(void) {
    const char* const dtlrun = getenv("DTL_TEST_DTLRUN"); /* bin/dtlrun of where lib/libdtl.so is */
    char path[4096];
    int round, calls = 0;
    if (dtlrun == NULL) SKIP("DTL_TEST_DTLRUN does not say where the library is");
    CHECK(strlen(dtlrun) < sizeof path - 32);
    strcpy(path, dtlrun);
    CHECK(strstr(path, "/bin/dtlrun") != NULL);
    strcpy(strstr(path, "/bin/dtlrun"), "/lib/libdtl.so");
    if (dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL) SKIP("linked with the shared library: dlclose has no effect");
    for (round = 0; round < 10; round++) {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        dtl_backend_t host;
        dtl_stream_t stream;
        __typeof__(&dtl_version_string) version;
        __typeof__(&dtl_backend_get) get;
        __typeof__(&dtl_stream_create) create;
        __typeof__(&dtl_stream_host_callback) callback;
        __typeof__(&dtl_stream_wait) wait;
        if (library == NULL) fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        *(void**)&version = symbol(library, "dtl_version_string");
        *(void**)&get = symbol(library, "dtl_backend_get");
        *(void**)&create = symbol(library, "dtl_stream_create");
        *(void**)&callback = symbol(library, "dtl_stream_host_callback");
        *(void**)&wait = symbol(library, "dtl_stream_wait");
        CHECK(strcmp(version(), DTL_VERSION_STRING) == 0);
        CHECK_OK(get("host", &host));
        CHECK_OK(create(host, 0, 0, &stream));
        CHECK_OK(callback(stream, count, &calls));
        if (round % 2 == 0) CHECK_OK(wait(stream, DTL_TIMEOUT_INFINITE)); /* else its thread is still at work */
        CHECK(dlclose(library) == 0);
        CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL); /* still mapped */
    }
    CHECK(__atomic_load_n(&calls, __ATOMIC_ACQUIRE) >= 5);
    printf("ok\n");
    return 0;
}
