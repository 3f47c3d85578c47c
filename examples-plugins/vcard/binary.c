/* Binaries of the simulated card in docs/tutorial/backend-streams-and-kernels.md: shared objects in
 * memory. This is the driver; the page has the backend that uses it. */
#define _GNU_SOURCE
#include "binary.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct vc_binary_t {
    void *library;
    int references;
};

vc_binary_t *vc_binary_load(const void *bytes, uint64_t size, char *why, uint64_t cap)
{
    char path[64];
    vc_binary_t *binary = malloc(sizeof *binary);
    const int file = memfd_create("kernels", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (binary != NULL && file >= 0 && write(file, bytes, size) == (ssize_t)size) {
        *binary = (vc_binary_t){dlopen(path, RTLD_NOW | RTLD_LOCAL), 1};
        if (binary->library != NULL) {
            close(file);
            return binary;
        }
    }
    snprintf(why, cap, "not a binary of the card: %s", dlerror());
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
    free(binary);
}

vc_kernel_t vc_binary_find(vc_binary_t *binary, const char *name)
{
    vc_kernel_t kernel;
    *(void **)&kernel = dlsym(binary->library, name);
    return kernel;
}
