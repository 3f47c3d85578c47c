/* dtl_kernel.h: one kernel source for the host (C), OpenCL C, CUDA C++ and the dialects of other compilers. Macros only;
 * `#include "dtl_kernel.h"` in what dtl_module_compile compiles finds it by itself. Not for programs: those include dtl.h.
 *
 *     #include "dtl_kernel.h"
 *     DTL_KERNEL(saxpy, (float, a), (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, y), (unsigned, n))
 *     {
 *         const DTL_SIZE i = DTL_GLOBAL_ID(0);
 *         if (i < n) y[i] = a * x[i] + y[i];
 *     }
 *
 * A kernel has one to 16 arguments, each written (type, name). char, short, int, long and their unsigned forms have 8, 16,
 * 32 and 64 bits everywhere. Pointers to memory of the device have DTL_GLOBAL. A name begins in no other kernel or function.
 * Types of OpenCL C and CUDA (half, uint, float4 ...) are no names for variables.
 *
 * Threads that meet. On the host the threads of a block run one after another, so nothing can wait in the middle of one.
 * A kernel whose threads meet is a DTL_BLOCK_KERNEL. Its body is code of the whole block, the same for all its threads;
 * what each thread does stands in phases, and the end of a phase is the barrier:
 *
 *     DTL_BLOCK_KERNEL(sums, (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, sum))
 *     {
 *         DTL_SHARED(float, part, 256);                     shared by the threads of the block; begins as anything
 *         unsigned width;
 *         DTL_THREADS { part[DTL_LOCAL_ID(0)] = x[DTL_GLOBAL_ID(0)]; }
 *         for (width = 128; width > 0; width /= 2) {
 *             DTL_THREADS {
 *                 if (DTL_LOCAL_ID(0) < width) part[DTL_LOCAL_ID(0)] += part[DTL_LOCAL_ID(0) + width];
 *             }
 *         }
 *         DTL_THREADS { if (DTL_LOCAL_ID(0) == 0) sum[DTL_GROUP_ID(0)] = part[0]; }
 *     }
 *
 *   - Outside of the phases everything is the same for all threads of the block: loops, conditions, variables. Nothing is
 *     written to global or shared memory there, and no thread's index is asked for.
 *   - A phase is left at its end or by `continue`; not by break, return or goto.
 *   - A variable that each thread keeps from one phase to the next is DTL_PRIVATE(type, name), used as DTL_MINE(name).
 *   - Within a phase threads do not see each other's writes in any order, but through DTL_ATOMIC_ADD.
 *
 * How much: DTL_SHARED and DTL_PRIVATE of a kernel that runs everywhere are some KiB. A device refuses what it has not
 * (dtl_module_compile, dtl_kernel_get or the launch). On the host a kernel has 1 MiB of a stack of 2 MiB for the variables of a
 * function, all its DTL_SHARED among them: with more it does not compile (the error names the frame and 1048576; gcc and clang.
 * The option -w silences that too, and then the kernel crashes). What functions that call each other have is not added up:
 * recursion is not seen. DTL_PRIVATE is allocated for each block: if there is no memory the launch fails with
 * DTL_ERROR_OUT_OF_MEMORY.
 * PoCL 5.0 does not report the DTL_SHARED of a kernel: a launch that needs more than the device has ends the process there.
 *
 * DTL_BARRIER there is none: it could not be kept everywhere, so source that uses it does not compile.
 *
 * Dialects of other compilers. A dialect is the set of macros from "Dialect" to "End of the dialect" below, as a compiler
 * needs them. If DTL_KERNEL_DIALECT is defined before this file, the other macros must be, too: by options of the compiler's
 * driver, or by text in front of this file. A missing one is an error that names it. DTL_KERNEL_DIALECT takes precedence over
 * the other branches, so the compiler may define the macros by which OpenCL or CUDA is recognised. Backends get this text from
 * dtl_kernel_header of dtl.h. docs/how-to/kernels-for-a-vendor-compiler.md has a complete dialect.
 */
#ifndef DTL_KERNEL_H
#define DTL_KERNEL_H

/* Dialect. Position and size, d = 0, 1, 2 (x, y, z):
 *   DTL_GLOBAL_ID(d) DTL_GLOBAL_SIZE(d)   of the thread among all; number of all threads
 *   DTL_LOCAL_ID(d)  DTL_LOCAL_SIZE(d)    of the thread in its block; threads of a block
 *   DTL_GROUP_ID(d)  DTL_GROUP_COUNT(d)   of the block; number of blocks
 * They are for the body of a kernel; functions that it calls (DTL_FUNCTION) get what they need as arguments.
 *
 * DTL_GLOBAL DTL_LOCAL  of pointers: to the device's memory, to shared memory      DTL_RESTRICT  nothing else leads there
 * DTL_ATOMIC_ADD(p, v)  *p += v for int and unsigned, whole among all threads; gives the old value
 * DTL_FUNCTION          before a function that kernels call
 * DTL_SIZE              unsigned type of positions and sizes, 64 bits
 * DTL_SHARED(type, name, count)  declares an array that the threads of a block share
 *
 * For the dialect alone, not for kernels:
 * DTL_DIALECT_ENTRY     precedes the name of a kernel: its linkage, and its type (void)
 * DTL_DIALECT_BARRIER   expression: barrier of the block, after which all its threads see the writes of each of them to
 *                       shared and global memory
 * End of the dialect. */

#if defined(DTL_KERNEL_DIALECT)

#define DTL_ON_DIALECT 1

#elif defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)

#define DTL_ON_OPENCL 1
#define DTL_SIZE size_t
#define DTL_GLOBAL __global
#define DTL_LOCAL __local
#define DTL_RESTRICT restrict
#define DTL_FUNCTION static
#define DTL_GLOBAL_ID(d) get_global_id(d)
#define DTL_GLOBAL_SIZE(d) get_global_size(d)
#define DTL_LOCAL_ID(d) get_local_id(d)
#define DTL_LOCAL_SIZE(d) get_local_size(d)
#define DTL_GROUP_ID(d) get_group_id(d)
#define DTL_GROUP_COUNT(d) get_num_groups(d)
#define DTL_ATOMIC_ADD(p, v) atomic_add((p), (v))
#define DTL_SHARED(type, name, count) __local type name[count]
#define DTL_DIALECT_BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define DTL_DIALECT_ENTRY __kernel void

#elif defined(__CUDACC__) || defined(__CUDACC_RTC__) || defined(__HIPCC__)

#define DTL_ON_CUDA 1
#define DTL_SIZE unsigned long
#define DTL_GLOBAL
#define DTL_LOCAL
#define DTL_RESTRICT __restrict__
#define DTL_FUNCTION static __device__ inline
#define DTL_AXIS_(v, d) ((DTL_SIZE)((d) == 0 ? v.x : (d) == 1 ? v.y : v.z))
#define DTL_GLOBAL_ID(d) (DTL_AXIS_(blockIdx, d) * DTL_AXIS_(blockDim, d) + DTL_AXIS_(threadIdx, d))
#define DTL_GLOBAL_SIZE(d) (DTL_AXIS_(gridDim, d) * DTL_AXIS_(blockDim, d))
#define DTL_LOCAL_ID(d) DTL_AXIS_(threadIdx, d)
#define DTL_LOCAL_SIZE(d) DTL_AXIS_(blockDim, d)
#define DTL_GROUP_ID(d) DTL_AXIS_(blockIdx, d)
#define DTL_GROUP_COUNT(d) DTL_AXIS_(gridDim, d)
#define DTL_ATOMIC_ADD(p, v) atomicAdd((p), (v))
#define DTL_SHARED(type, name, count) __shared__ type name[count]
#define DTL_DIALECT_BARRIER __syncthreads()
#define DTL_DIALECT_ENTRY extern "C" __global__ void

#else

#define DTL_ON_HOST 1
#define DTL_SIZE unsigned long
#define DTL_GLOBAL
#define DTL_LOCAL
#define DTL_RESTRICT __restrict__
#define DTL_FUNCTION static inline __attribute__((unused))
#define DTL_GLOBAL_ID(d) (dtl_at_.block[d] * (DTL_SIZE)dtl_at_.threads[d] + dtl_at_.thread[d])
#define DTL_GLOBAL_SIZE(d) (dtl_at_.blocks[d] * (DTL_SIZE)dtl_at_.threads[d])
#define DTL_LOCAL_ID(d) ((DTL_SIZE)dtl_at_.thread[d])
#define DTL_LOCAL_SIZE(d) ((DTL_SIZE)dtl_at_.threads[d])
#define DTL_GROUP_ID(d) ((DTL_SIZE)dtl_at_.block[d])
#define DTL_GROUP_COUNT(d) ((DTL_SIZE)dtl_at_.blocks[d])
#define DTL_ATOMIC_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define DTL_SHARED(type, name, count) type name[count]

/* All of a kernel's DTL_SHARED is on the stack of the thread that runs the block: what does not fit there does not compile
 * (the size for clang is in the library's options). */
#ifdef __clang__
#pragma clang diagnostic error "-Wframe-larger-than"
#else
#pragma GCC diagnostic error "-Wframe-larger-than=1048576"
#endif

/* What the library hands over for each block: dtl_kernel_context_t of dtl.h. */
struct dtl_context_ {
    unsigned struct_size, shared_bytes, grid[3], block[3], block_index[3], thread_index[3];
    void *shared, *user;
};

/* What the library finds a kernel by. */
struct dtl_kernel_entry_ {
    unsigned version, count;
    int (*run)(const struct dtl_context_ *context, const void *const *args);
    unsigned long sizes[16];
};

/* Where a thread is. A value of its own for each block, so that compilers keep it in registers. */
struct dtl_at_ {
    unsigned block[3], blocks[3], threads[3], thread[3];
    int *status; /* of the block, where it ends early */
};

static inline __attribute__((unused)) struct dtl_at_ dtl_at_begin_(const struct dtl_context_ *c, int *status)
{
    struct dtl_at_ at = {{c->block_index[0], c->block_index[1], c->block_index[2]},
                         {c->grid[0], c->grid[1], c->grid[2]},
                         {c->block[0], c->block[1], c->block[2]},
                         {0, 0, 0},
                         status};
    return at;
}

#define DTL_OUT_OF_MEMORY_ 202
__attribute__((malloc)) void *dtl_alloc_(unsigned long align, unsigned long size) __asm__("aligned_alloc");
static inline __attribute__((unused)) void dtl_free_(void *of)
{
    void *memory;
    __builtin_memcpy(&memory, of, sizeof memory); /* of a pointer to another type */
    __builtin_free(memory);
}

#define DTL_EACH_(at)                                                                                                   \
    for ((at).thread[2] = 0; (at).thread[2] < (at).threads[2]; (at).thread[2]++)                                       \
        for ((at).thread[1] = 0; (at).thread[1] < (at).threads[1]; (at).thread[1]++)                                   \
            for ((at).thread[0] = 0; (at).thread[0] < (at).threads[0]; (at).thread[0]++)

#define DTL_INLINE_ static inline __attribute__((always_inline, unused))
#define DTL_NAME__(type, name) name
#define DTL_NAME_(i, argument) DTL_NAME__ argument
#define DTL_TYPE__(type, name) type
#define DTL_LOAD_(i, argument) *(DTL_TYPE__ argument const *)args[i]
#define DTL_SIZEOF_(i, argument) sizeof(DTL_TYPE__ argument)

#define DTL_ENTRY_(name, ...)                                                                                           \
    static int name##_dtl_run_(const struct dtl_context_ *context, const void *const *args)                           \
    {                                                                                                                  \
        int status = 0;                                                                                                \
        name##_dtl_block_(dtl_at_begin_(context, &status), DTL_MAP_(DTL_LOAD_, __VA_ARGS__));                          \
        return status;                                                                                                 \
    }                                                                                                                  \
    extern __attribute__((visibility("default"))) const struct dtl_kernel_entry_ dtl_kernel_1_##name;                 \
    const struct dtl_kernel_entry_ dtl_kernel_1_##name = {                                                             \
        1, DTL_COUNT_(__VA_ARGS__), name##_dtl_run_, {DTL_MAP_(DTL_SIZEOF_, __VA_ARGS__)}};

#define DTL_KERNEL(name, ...)                                                                                          \
    DTL_INLINE_ void name##_dtl_thread_(const struct dtl_at_ dtl_at_, DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__));          \
    DTL_INLINE_ void name##_dtl_block_(struct dtl_at_ dtl_at_, DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__))                  \
    {                                                                                                                  \
        DTL_EACH_(dtl_at_) name##_dtl_thread_(dtl_at_, DTL_MAP_(DTL_NAME_, __VA_ARGS__));                              \
    }                                                                                                                  \
    DTL_ENTRY_(name, __VA_ARGS__)                                                                                      \
    DTL_INLINE_ void name##_dtl_thread_(const struct dtl_at_ dtl_at_, DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__))

#define DTL_BLOCK_KERNEL(name, ...)                                                                                     \
    DTL_INLINE_ void name##_dtl_block_(struct dtl_at_ dtl_at_, DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__));                 \
    DTL_ENTRY_(name, __VA_ARGS__)                                                                                      \
    DTL_INLINE_ void name##_dtl_block_(struct dtl_at_ dtl_at_, DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__))

#define DTL_THREADS DTL_EACH_(dtl_at_)
/* For all threads of the block at once, given back where the name ends. */
#define DTL_PRIVATE(type, name)                                                                                        \
    __attribute__((cleanup(dtl_free_))) type *name = (type *)dtl_alloc_(                                               \
        __alignof__(type), sizeof(type) * dtl_at_.threads[0] * dtl_at_.threads[1] * dtl_at_.threads[2]);               \
    if (name == 0) {                                                                                                   \
        *dtl_at_.status = DTL_OUT_OF_MEMORY_;                                                                          \
        return;                                                                                                        \
    }                                                                                                                  \
    (void)name
#define DTL_MINE(name)                                                                                                  \
    name[(dtl_at_.thread[2] * (unsigned long)dtl_at_.threads[1] + dtl_at_.thread[1]) * dtl_at_.threads[0] +            \
         dtl_at_.thread[0]]

#endif

#ifdef DTL_ON_DIALECT
#ifndef DTL_SIZE
#error "DTL_KERNEL_DIALECT lacks DTL_SIZE"
#endif
#ifndef DTL_GLOBAL
#error "DTL_KERNEL_DIALECT lacks DTL_GLOBAL"
#endif
#ifndef DTL_LOCAL
#error "DTL_KERNEL_DIALECT lacks DTL_LOCAL"
#endif
#ifndef DTL_RESTRICT
#error "DTL_KERNEL_DIALECT lacks DTL_RESTRICT"
#endif
#ifndef DTL_FUNCTION
#error "DTL_KERNEL_DIALECT lacks DTL_FUNCTION"
#endif
#ifndef DTL_GLOBAL_ID
#error "DTL_KERNEL_DIALECT lacks DTL_GLOBAL_ID"
#endif
#ifndef DTL_GLOBAL_SIZE
#error "DTL_KERNEL_DIALECT lacks DTL_GLOBAL_SIZE"
#endif
#ifndef DTL_LOCAL_ID
#error "DTL_KERNEL_DIALECT lacks DTL_LOCAL_ID"
#endif
#ifndef DTL_LOCAL_SIZE
#error "DTL_KERNEL_DIALECT lacks DTL_LOCAL_SIZE"
#endif
#ifndef DTL_GROUP_ID
#error "DTL_KERNEL_DIALECT lacks DTL_GROUP_ID"
#endif
#ifndef DTL_GROUP_COUNT
#error "DTL_KERNEL_DIALECT lacks DTL_GROUP_COUNT"
#endif
#ifndef DTL_ATOMIC_ADD
#error "DTL_KERNEL_DIALECT lacks DTL_ATOMIC_ADD"
#endif
#ifndef DTL_SHARED
#error "DTL_KERNEL_DIALECT lacks DTL_SHARED"
#endif
#ifndef DTL_DIALECT_ENTRY
#error "DTL_KERNEL_DIALECT lacks DTL_DIALECT_ENTRY"
#endif
#ifndef DTL_DIALECT_BARRIER
#error "DTL_KERNEL_DIALECT lacks DTL_DIALECT_BARRIER"
#endif
#endif

#ifndef DTL_ON_HOST
#define DTL_KERNEL(name, ...) DTL_DIALECT_ENTRY name(DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__))
#define DTL_BLOCK_KERNEL(name, ...) DTL_DIALECT_ENTRY name(DTL_MAP_(DTL_PARAMETER_, __VA_ARGS__))
#define DTL_THREADS for (int dtl_once_ = 1; dtl_once_; dtl_once_ = 0, DTL_DIALECT_BARRIER)
#define DTL_PRIVATE(type, name) type name
#define DTL_MINE(name) name
#endif

/* f(0, first), f(1, second), ... of up to 16 arguments. */
#define DTL_PARAMETER__(type, name) type name
/* What is not written (type, name) becomes two words that no compiler takes, and each shows. */
#define DTL_each_is_type_name(type, name) 1
#define DTL_KERNEL_takes_1_to_16_arguments_1
#define DTL_PARAMETER_(i, argument)                                                                                    \
    DTL_CAT_(DTL_KERNEL_takes_1_to_16_arguments_, DTL_each_is_type_name argument) DTL_PARAMETER__ argument
#define DTL_CAT__(a, b) a##b
#define DTL_CAT_(a, b) DTL_CAT__(a, b)
#define DTL_COUNT__(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P,     \
                    count, ...)                                                                                        \
    count
#define DTL_COUNT_(...)                                                                                                \
    DTL_COUNT__(__VA_ARGS__, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 16, 15, 14, 13, 12, 11, 10, \
                9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define DTL_MAP_(f, ...) DTL_CAT_(DTL_MAP_, DTL_COUNT_(__VA_ARGS__))(f, __VA_ARGS__)
#define DTL_MAP_17(...) DTL_KERNEL_takes_1_to_16_arguments_ DTL_not_more
#define DTL_MAP_1(f, a0) f(0, a0)
#define DTL_MAP_2(f, a0, a1) DTL_MAP_1(f, a0), f(1, a1)
#define DTL_MAP_3(f, a0, a1, a2) DTL_MAP_2(f, a0, a1), f(2, a2)
#define DTL_MAP_4(f, a0, a1, a2, a3) DTL_MAP_3(f, a0, a1, a2), f(3, a3)
#define DTL_MAP_5(f, a0, a1, a2, a3, a4) DTL_MAP_4(f, a0, a1, a2, a3), f(4, a4)
#define DTL_MAP_6(f, a0, a1, a2, a3, a4, a5) DTL_MAP_5(f, a0, a1, a2, a3, a4), f(5, a5)
#define DTL_MAP_7(f, a0, a1, a2, a3, a4, a5, a6) DTL_MAP_6(f, a0, a1, a2, a3, a4, a5), f(6, a6)
#define DTL_MAP_8(f, a0, a1, a2, a3, a4, a5, a6, a7) DTL_MAP_7(f, a0, a1, a2, a3, a4, a5, a6), f(7, a7)
#define DTL_MAP_9(f, a0, a1, a2, a3, a4, a5, a6, a7, a8) DTL_MAP_8(f, a0, a1, a2, a3, a4, a5, a6, a7), f(8, a8)
#define DTL_MAP_10(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9)                                                          \
    DTL_MAP_9(f, a0, a1, a2, a3, a4, a5, a6, a7, a8), f(9, a9)
#define DTL_MAP_11(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10)                                                     \
    DTL_MAP_10(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9), f(10, a10)
#define DTL_MAP_12(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11)                                                \
    DTL_MAP_11(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10), f(11, a11)
#define DTL_MAP_13(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12)                                           \
    DTL_MAP_12(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11), f(12, a12)
#define DTL_MAP_14(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13)                                      \
    DTL_MAP_13(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12), f(13, a13)
#define DTL_MAP_15(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14)                                 \
    DTL_MAP_14(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13), f(14, a14)
#define DTL_MAP_16(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15)                            \
    DTL_MAP_15(f, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14), f(15, a15)
#endif
