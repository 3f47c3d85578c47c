/* libfabric, opened at run time, so that the plugin can be loaded where it is not installed. */
#define _GNU_SOURCE
#include "libfabric.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static lf_api_t api;
static char why[256]; /* reason why it is not available; empty = it is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL && why[0] == '\0') {
        snprintf(why, sizeof why, "libfabric.so.1 has no %s", name);
    }
    return found;
}

/* The library is never closed: its providers have threads and signal handlers. */
static void open_once(void)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, sizeof why, "%.200s; install libfabric (Debian: libfabric1)", dlerror());
        return;
    }
    *(void **)&api.getinfo = symbol(library, "fi_getinfo");
    *(void **)&api.freeinfo = symbol(library, "fi_freeinfo");
    *(void **)&api.dupinfo = symbol(library, "fi_dupinfo");
    *(void **)&api.fabric = symbol(library, "fi_fabric");
    *(void **)&api.strerror = symbol(library, "fi_strerror");
    *(void **)&api.version = symbol(library, "fi_version");
}

const lf_api_t *lf_api(const char **out_why)
{
    pthread_once(&once, open_once);
    if (out_why != NULL) {
        *out_why = why;
    }
    return why[0] == '\0' ? &api : NULL;
}
