/* Binaries with kernels, as the driver loads them. Here a binary is a shared object. */
#ifndef BINARY_H
#define BINARY_H
#include <stdint.h>

/* A kernel is called once for each thread of the launch, with its position. */
typedef void (*vc_kernel_t)(const uint64_t position[3], const void *const *args);

typedef struct vc_binary_t vc_binary_t; /* counted references */
vc_binary_t *vc_binary_load(const void *bytes, uint64_t size, char *why, uint64_t cap);
vc_binary_t *vc_binary_keep(vc_binary_t *binary);
void vc_binary_release(vc_binary_t *binary);
vc_kernel_t vc_binary_find(vc_binary_t *binary, const char *name); /* NULL: it has no such kernel */
void *vc_binary_symbol(vc_binary_t *binary, const char *name);     /* NULL: it has no such symbol */
#endif
