/* Binaries: shared objects in memory. C and C++. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "binary.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct vc_binary_t {
    void *library;
    int file; /* open as long as the library: dlopen finds a loaded library by its path */
    int references;
};

vc_binary_t *vc_binary_load(const void *bytes, uint64_t size, char *why, uint64_t cap)
{
    char path[64];
    vc_binary_t *binary = (vc_binary_t *)calloc(1, sizeof *binary);
    const int file = memfd_create("kernels", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (binary != NULL && file >= 0 && write(file, bytes, size) == (ssize_t)size) {
        binary->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        binary->file = file;
        binary->references = 1;
        if (binary->library != NULL) return binary;
        snprintf(why, cap, "not a binary of the card: %s", dlerror());
    } else {
        snprintf(why, cap, "no memory for a binary of %llu bytes", (unsigned long long)size);
    }
    if (file >= 0) close(file);
    free(binary);
    return NULL;
}

vc_binary_t *vc_binary_keep(vc_binary_t *binary)
{
    __atomic_add_fetch(&binary->references, 1, __ATOMIC_RELAXED);
    return binary;
}

void vc_binary_release(vc_binary_t *binary)
{
    if (__atomic_sub_fetch(&binary->references, 1, __ATOMIC_ACQ_REL) != 0) return;
    dlclose(binary->library);
    close(binary->file);
    free(binary);
}

vc_kernel_t vc_binary_find(vc_binary_t *binary, const char *name)
{
    vc_kernel_t kernel;
    *(void **)&kernel = dlsym(binary->library, name);
    return kernel;
}

void *vc_binary_symbol(vc_binary_t *binary, const char *name)
{
    return dlsym(binary->library, name);
}
