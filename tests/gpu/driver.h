/* The CUDA driver's own functions, loaded at run time, for programs that measure next to them. Before it is included
 * DRIVER(f) and POOLS(f) list functions by name and parameters: those that are required, and those that may be absent. */
#pragma once
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned code_t;
typedef unsigned long long address_t;

#define MEMBER(name, parameters) code_t(*name) parameters;
static struct {
    DRIVER(MEMBER)
    POOLS(MEMBER)
} driver;

/* Calls a function of the driver; an error ends the program. */
#define RAW(call)                                                                                    \
    do {                                                                                             \
        const code_t code_ = driver.call;                                                            \
        if (code_ != 0) {                                                                            \
            fprintf(stderr, "%s: CUDA error %u\n", #call, code_);                                    \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#define FIND(name, parameters)                                                                       \
    {                                                                                                \
        void* at_ = dlsym(library, #name);                                                           \
        memcpy(&driver.name, &at_, sizeof at_);                                                      \
    }
#define NEED(name, parameters)                                                                       \
    if (driver.name == NULL) {                                                                       \
        fprintf(stderr, "the driver has no " #name "\n");                                            \
        return 0;                                                                                    \
    }

/* Loads the driver; 0, with the reason on stderr, where it or a required function is missing. */
static inline int load_driver(void) {
    const char* name = getenv("DTL_CUDA_LIBRARY");
    void* library = dlopen(name != NULL ? name : "libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 0;
    }
    DRIVER(FIND)
    POOLS(FIND)
    DRIVER(NEED)
    return 1;
}

static inline const char* size_text(uint64_t bytes) {
    static char text[40];
    int unit = 0;
    for (; bytes >= 1024 && bytes % 1024 == 0 && unit < 3; unit++) bytes /= 1024;
    snprintf(text, sizeof text, "%" PRIu64 " %s", bytes, unit == 0 ? "B" : unit == 1 ? "KiB" : unit == 2 ? "MiB" : "GiB");
    return text;
}
