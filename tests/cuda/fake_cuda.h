/* A CUDA driver that is none: libcuda.so.1 for tests on machines without a GPU. Memory of its devices is the host's, kept
 * where the host cannot read it by the address that the driver gives; streams are threads.
 *
 * Its variables are read by cuInit:
 *     FAKE_CUDA_DEVICES=2        how many devices there are
 *     FAKE_CUDA_VERSION=12090    what cuDriverGetVersion answers
 *     FAKE_CUDA_BYTES=n          memory of each device (1 GiB)
 *     FAKE_CUDA_FAIL=f:n:code,…  the n-th call of function f answers the code; one that means a fault loses the device
 *     FAKE_CUDA_FAULT=n:code     the n-th copy is queued well and faults when it is run
 * A function is left out by compiling with -Dfunction=another_name.
 *
 * Where next: fake_cuda.c devices, contexts, memory; fake_streams.c streams, events, copies; fake_modules.c kernels;
 * fake_sharing.c what crosses to other processes and drivers; fake_virtual.c memory that is mapped piece by piece. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef unsigned code_t;
typedef unsigned long long ptr_t;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600
};
enum { MAX_DEVICES = 8, MAX_DEPTH = 32, MAX_RULES = 16 };

/* A context; every device has its primary one, programs can make more. */
typedef struct context {
    int device;
    int retained;
    code_t lost; /* the fault that every call answers from now on */
    int draining; /* calls that hold the context's lock until its streams are idle */
    struct stream* streams;
    struct stream* standard[3]; /* behind NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
} context_t;

/* An allocation. */
typedef struct range {
    struct range* next;
    char* begin;  /* the address that was given */
    char* memory; /* where the bytes are */
    size_t size;
    int device;
    char kind; /* 'd'evice, 'p'ool, 'm'anaged, 'h'ost, 'o'pened from another process, 'r'egistered memory of the program's,
                  'v'irtual: mapped by cuMemMap */
    int fd;    /* the file that its bytes are in, of 'd' and 'o'; -1 = none */
    struct pool* pool;
} range_t;

typedef struct pool {
    int device;
    size_t kept; /* freed, and not given back yet */
    uint64_t threshold;
    int destroyed;
} pool_t;

/* Guards everything here; the condition is everybody's. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_change;
/* Live objects: allocations, streams, events, pools, modules. */
extern int fake_count;

/* The calling thread's context; NULL = none. */
context_t* fake_current(void);
/* What a call answers before it does anything: an injected failure, a lost context, no context. */
code_t fake_begin(const char* function, int needs_context);
/* With the lock: the range that an address lies in; NULL = the host's own memory. */
range_t* fake_range(const void* address);
/* With the lock: where the bytes of an address are, if `size` of them are there. */
char* fake_bytes(const void* address, size_t size);
/* With the lock: lists a range of memory that is there, which fake_release frees; the host faults at what is hidden. */
range_t* fake_list(char kind, char* memory, size_t size, int device, int fd);
/* With the lock: frees a range. */
void fake_release(range_t* range);
/* With the lock: the fault that is due now, if one is. */
code_t fake_fault(void);
/* With the lock: whether no stream of a context has work left. */
int fake_is_idle(const context_t* context);
/* With the lock: waits until the streams of a context are idle. As in the real driver (seen with 580.159), most other
 * calls that enter the context block meanwhile: those that begin with fake_enter. */
void fake_drain(context_t* context);
/* Waits while another thread drains the current context. */
void fake_enter(void);
/* With the lock: runs code in a stream's order. */
code_t fake_queue(void* stream, void (*work)(void*), void* argument);
int fake_is_fault(code_t code);

#define BEGIN(name) \
    do { \
        code_t begun = fake_begin(#name, 1); \
        if (begun != SUCCESS) return begun; \
    } while (0)
#define BEGIN_ANYWHERE(name) \
    do { \
        code_t begun = fake_begin(#name, 0); \
        if (begun != SUCCESS) return begun; \
    } while (0)
/* What needs the context's lock. */
#define BEGIN_LOCKED(name) \
    do { \
        BEGIN(name); \
        fake_enter(); \
    } while (0)
/* What gives something back does so in a lost context, too, and answers its fault all the same. */
#define BEGIN_RELEASE(name) \
    do { \
        code_t begun = fake_begin(#name, 0); \
        if (begun == SUCCESS && fake_current() == NULL) begun = INVALID_CONTEXT; \
        if (begun != SUCCESS) return begun; \
    } while (0)
#define LOCK() pthread_mutex_lock(&fake_lock)
#define UNLOCK() pthread_mutex_unlock(&fake_lock)

#endif
