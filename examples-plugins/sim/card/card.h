/* Driver of the simulated card: two devices with memory that the host cannot access, copy engines,
 * a compiler, kernels of its own, and faults on request. A vendor has this already. The queues and
 * binaries of the card are in ../../vcard. */
#ifndef CARD_H
#define CARD_H

#include "../../vcard/binary.h"
#include "../../vcard/queue.h"

#include <dtl.h>

enum { CARD_DEVICES = 2, CARD_HOST = CARD_DEVICES };
enum { CARD_LEAST = 1, CARD_GREATEST = -1 }; /* priorities; lower numbers first, as in CUDA */
#define CARD_BYTES (UINT64_C(256) << 20) /* of memory on each device, and of the host's */
#define CARD_ALIGNMENT 256u

/* memory.c: addresses of device memory cannot be dereferenced. The engines and kernels of the card
 * translate them. */
int card_start(void); /* 0, or -1: no address space; may be called again */
void card_stop(void);
/* CARD_HOST: memory of the host that the card accesses, too. NULL: no room. */
void *card_alloc(int32_t device, uint64_t size, uint64_t alignment);
void card_free(void *address);
uint64_t card_free_bytes(int32_t device);
int32_t card_device_of(const void *address); /* -1: not an address of device memory */
void *card_translate(const void *address); /* other addresses are returned unchanged */

/* share.c: memory that several processes map. */
void *card_share(uint64_t size, uint64_t alignment); /* NULL: no memory */
int card_share_export(void *address, uint64_t out[4]); /* 0, or -1 */
void *card_share_import(const uint64_t handle[4], uint64_t size, uint64_t alignment);
int card_share_file(void *address, uint64_t *out_offset); /* a new descriptor, or -1 */
void card_unshare(void *address); /* the allocation, or an import */

/* program.c: programs of the card, from source or from a binary. */
typedef struct card_program_t card_program_t; /* counted references */
typedef struct card_kernel_t {
    card_program_t *program; /* one reference */
    dtl_kernel_fn_t run;
    void *user;
    uint32_t is_of_block; /* run is called once for each block, otherwise once for each thread */
    uint32_t count;
    const unsigned long *sizes; /* of the arguments; NULL = any */
} card_kernel_t;

typedef enum card_error_t {
    CARD_OK,
    CARD_NO_MEMORY,
    CARD_NO_COMPILER,
    CARD_BAD_PROGRAM,
    CARD_BAD_LANGUAGE,
    CARD_NO_KERNEL
} card_error_t;

/* `log` receives the messages of the compiler, `why` the reason of a failure. */
card_error_t card_compile(const dtl_source_t *source, dtl_text_fn_t log, void *log_user,
                          card_program_t **out, char *why, uint64_t cap);
card_program_t *card_program_keep(card_program_t *program); /* NULL stays NULL */
void card_program_release(card_program_t *program);
card_error_t card_find(card_program_t *program, const char *name, card_kernel_t *out);
/* The first argument, from 0, that differs from a signature of dtl_kernel_get; -1: none. */
int card_differs(const card_kernel_t *kernel, const char *signature);

/* launch.c: a launch of a kernel, with copies of its arguments. */
typedef struct card_launch_t card_launch_t;
card_launch_t *card_launch_create(const card_kernel_t *kernel, const dtl_launch_t *shape,
                                  const void *const *args, const uint64_t *sizes, uint64_t count);
/* Returns the first failing status of a thread. A device runs one kernel of a program at a time; of
 * the waiting kernels, the one with the highest priority runs first. */
dtl_status_t card_launch_run(card_launch_t *launch, int32_t device, int32_t priority);
void card_launch_release(card_launch_t *launch);

/* fault.c: DTL_BACKEND_SIM_FAULT="copy:3,launch:2" makes the third copy and the second launch fail.
 * "lost:5" loses the device of the fifth command; then all of its commands fail. */
int card_faults_read(const char *text); /* 0, or -1: not such a text */
int card_fails(const char *operation);  /* counts a call; 1 if this one has to fail */
int card_is_lost(int32_t device);
int card_loses(int32_t device);         /* counts a command; 1 if the device is lost */
#endif
