/* An OpenCL loader for tests: forwards to the machine's own and lets calls fail as it is told (fake.h). With -DOLD it has
 * nothing of OpenCL 2, with -DBROKEN it lacks a function that every loader has. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "fake.h"

struct fake_opencl fake = {NULL, 0, 0, 0, 1, 0, 0, 0, 0, 0};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { cl_event event; int code; } doomed[64];

static void *real(const char *name)
{
    static void *loader;
    if (loader == NULL) loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    return loader == NULL ? NULL : dlsym(loader, name);
}

#define REAL(name) ((__typeof__(&name))real(#name))

/* Whether a call is to fail; those on queues and events are `device`. */
static int hit(const char *name, int device, cl_int *code)
{
    int yes = 0;
    pthread_mutex_lock(&lock);
    if (fake.call != NULL && fake.times != 0 && (strcmp(fake.call, name) == 0 || (device && fake.call[0] == 0))) {
        if (fake.times > 0) fake.times--;
        if (code != NULL) *code = fake.code;
        yes = 1;
    }
    pthread_mutex_unlock(&lock);
    return yes;
}

static void count(int more) { __atomic_fetch_add(&fake.live, more, __ATOMIC_SEQ_CST); }

static void doom(cl_event event)
{
    size_t i;
    if (fake.ends_with == 0) return;
    pthread_mutex_lock(&lock);
    for (i = 0; i < 64 && doomed[i].event != NULL; i++) {}
    if (i < 64) doomed[i].event = event, doomed[i].code = fake.ends_with;
    pthread_mutex_unlock(&lock);
}

/* The code that an event is to end with; forgets it if asked. */
static int doom_of(cl_event event, int forget)
{
    int code = 0;
    size_t i;
    pthread_mutex_lock(&lock);
    for (i = 0; i < 64; i++) {
        if (doomed[i].event != event || event == NULL) continue;
        code = doomed[i].code;
        if (forget) doomed[i].event = NULL;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* Calls that answer a code: plain ones, those that give something up, those that make an event. */
#define PLAIN(name, device, params, args)                                                                               \
    cl_int name params                                                                                                  \
    {                                                                                                                   \
        cl_int code = 0;                                                                                                \
        return hit(#name, device, &code) ? code : REAL(name) args;                                                      \
    }
#define GIVES_UP(name, type)                                                                                            \
    cl_int name(type object)                                                                                            \
    {                                                                                                                   \
        count(-1);                                                                                                      \
        return REAL(name)(object);                                                                                      \
    }
#define QUEUES(name, params, args)                                                                                      \
    cl_int name params                                                                                                  \
    {                                                                                                                   \
        cl_int code = 0;                                                                                                \
        if (hit(#name, 1, &code)) return code;                                                                          \
        code = REAL(name) args;                                                                                         \
        if (code == 0 && event != NULL) count(1), doom(*event);                                                         \
        return code;                                                                                                    \
    }
/* Calls that answer an object. */
#define MAKES(type, name, params, args)                                                                                 \
    type name params                                                                                                    \
    {                                                                                                                   \
        type made;                                                                                                      \
        if (hit(#name, 0, code)) return NULL;                                                                           \
        made = REAL(name) args;                                                                                         \
        if (made != NULL) count(1);                                                                                     \
        return made;                                                                                                    \
    }

cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *ids, cl_uint *number)
{
    cl_int code = 0, i;
    cl_platform_id first;
    if (hit("clGetPlatformIDs", 0, &code)) return code;
    code = REAL(clGetPlatformIDs)(1, &first, NULL);
    if (code != 0) return code;
    if (number != NULL) *number = (cl_uint)fake.platforms;
    for (i = 0; ids != NULL && i < fake.platforms && i < (cl_int)room; i++) ids[i] = first;
    return 0;
}

cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void *out, size_t *size)
{
    static const char il[] = "SPIR-V_1.2";
    cl_int code = 0;
    if (hit("clGetDeviceInfo", 0, &code)) return code;
    if (what == CL_DEVICE_EXTENSIONS && fake.has_priorities) {
        static const char extensions[] = "cl_khr_priority_hints_2 cl_khr_priority_hints cl_khr_fp64";
        if (size != NULL) *size = sizeof extensions;
        if (out != NULL && room >= sizeof extensions) memcpy(out, extensions, sizeof extensions);
        return 0;
    }
    if (what != CL_DEVICE_IL_VERSION || !fake.takes_il) return REAL(clGetDeviceInfo)(device, what, room, out, size);
    if (size != NULL) *size = sizeof il;
    if (out != NULL && room >= sizeof il) memcpy(out, il, sizeof il);
    return 0;
}

cl_int clGetEventInfo(cl_event event, cl_event_info what, size_t room, void *out, size_t *size)
{
    cl_int code = 0;
    if (hit("clGetEventInfo", 1, &code)) return code;
    code = REAL(clGetEventInfo)(event, what, room, out, size);
    if (code == 0 && what == CL_EVENT_COMMAND_EXECUTION_STATUS && *(cl_int *)out == CL_COMPLETE && doom_of(event, 0) != 0)
        *(cl_int *)out = doom_of(event, 0);
    return code;
}

cl_int clWaitForEvents(cl_uint number, const cl_event *events)
{
    cl_int code = 0;
    if (hit("clWaitForEvents", 1, &code)) return code;
    code = REAL(clWaitForEvents)(number, events);
    return code == 0 && doom_of(events[0], 0) != 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}

cl_int clReleaseEvent(cl_event event)
{
    (void)doom_of(event, 1);
    count(-1);
    return REAL(clReleaseEvent)(event);
}

cl_int clRetainCommandQueue(cl_command_queue queue)
{
    count(1);
    return REAL(clRetainCommandQueue)(queue);
}

PLAIN(clGetPlatformInfo, 0, (cl_platform_id a, cl_platform_info b, size_t c, void *d, size_t *e), (a, b, c, d, e))
PLAIN(clGetDeviceIDs, 0, (cl_platform_id a, cl_device_type b, cl_uint c, cl_device_id *d, cl_uint *e), (a, b, c, d, e))
PLAIN(clGetCommandQueueInfo, 0, (cl_command_queue a, cl_command_queue_info b, size_t c, void *d, size_t *e), (a, b, c, d, e))
PLAIN(clFlush, 1, (cl_command_queue a), (a))
#ifndef BROKEN
PLAIN(clFinish, 1, (cl_command_queue a), (a))
#endif
PLAIN(clGetEventProfilingInfo, 1, (cl_event a, cl_profiling_info b, size_t c, void *d, size_t *e), (a, b, c, d, e))
PLAIN(clSetUserEventStatus, 0, (cl_event a, cl_int b), (a, b))
PLAIN(clEnqueueUnmapMemObject, 1, (cl_command_queue a, cl_mem b, void *c, cl_uint d, const cl_event *e, cl_event *f), (a, b, c, d, e, f))
PLAIN(clBuildProgram, 0, (cl_program a, cl_uint b, const cl_device_id *c, const char *d, void (*e)(cl_program, void *), void *f), (a, b, c, d, e, f))
PLAIN(clGetProgramBuildInfo, 0, (cl_program a, cl_device_id b, cl_program_build_info c, size_t d, void *e, size_t *f), (a, b, c, d, e, f))
PLAIN(clGetKernelInfo, 0, (cl_kernel a, cl_kernel_info b, size_t c, void *d, size_t *e), (a, b, c, d, e))
PLAIN(clGetKernelArgInfo, 0, (cl_kernel a, cl_uint b, cl_kernel_arg_info c, size_t d, void *e, size_t *f), (a, b, c, d, e, f))
PLAIN(clSetKernelArg, 0, (cl_kernel a, cl_uint b, size_t c, const void *d), (a, b, c, d))

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info what, size_t size, void *out, size_t *length)
{
    cl_int code;
    if (hit(__func__, 0, &code)) return code;
    if (what == CL_KERNEL_LOCAL_MEM_SIZE && fake.local_bytes != 0 && size == sizeof(cl_ulong)) return *(cl_ulong *)out = (cl_ulong)fake.local_bytes, 0;
    return REAL(clGetKernelWorkGroupInfo)(kernel, device, what, size, out, length);
}

GIVES_UP(clReleaseContext, cl_context)
GIVES_UP(clReleaseCommandQueue, cl_command_queue)
GIVES_UP(clReleaseMemObject, cl_mem)
GIVES_UP(clReleaseProgram, cl_program)
GIVES_UP(clReleaseKernel, cl_kernel)

QUEUES(clEnqueueMarkerWithWaitList, (cl_command_queue a, cl_uint b, const cl_event *c, cl_event *event), (a, b, c, event))
QUEUES(clEnqueueBarrierWithWaitList, (cl_command_queue a, cl_uint b, const cl_event *c, cl_event *event), (a, b, c, event))
QUEUES(clEnqueueNDRangeKernel, (cl_command_queue a, cl_kernel b, cl_uint c, const size_t *d, const size_t *e, const size_t *f, cl_uint g, const cl_event *h, cl_event *event), (a, b, c, d, e, f, g, h, event))

MAKES(cl_context, clCreateContext, (const cl_context_properties *a, cl_uint b, const cl_device_id *c, void (*d)(const char *, const void *, size_t, void *), void *e, cl_int *code), (a, b, c, d, e, code))
MAKES(cl_command_queue, clCreateCommandQueue, (cl_context a, cl_device_id b, cl_command_queue_properties c, cl_int *code), (a, b, c, code))
MAKES(cl_event, clCreateUserEvent, (cl_context a, cl_int *code), (a, code))
MAKES(cl_mem, clCreateBuffer, (cl_context a, cl_mem_flags b, size_t c, void *d, cl_int *code), (a, b, c, d, code))
MAKES(cl_program, clCreateProgramWithSource, (cl_context a, cl_uint b, const char **c, const size_t *d, cl_int *code), (a, b, c, d, code))
MAKES(cl_program, clCreateProgramWithBinary, (cl_context a, cl_uint b, const cl_device_id *c, const size_t *d, const unsigned char **e, cl_int *f, cl_int *code), (a, b, c, d, e, f, code))
MAKES(cl_kernel, clCreateKernel, (cl_program a, const char *b, cl_int *code), (a, b, code))

void *clEnqueueMapBuffer(cl_command_queue a, cl_mem b, cl_bool c, cl_map_flags d, size_t e, size_t f, cl_uint g,
                         const cl_event *h, cl_event *i, cl_int *code)
{
    return hit("clEnqueueMapBuffer", 1, code) ? NULL : REAL(clEnqueueMapBuffer)(a, b, c, d, e, f, g, h, i, code);
}

#ifndef OLD
/* The machine's own driver may not have the extension, so it is not given the priority. */
cl_command_queue clCreateCommandQueueWithProperties(cl_context a, cl_device_id b, const cl_queue_properties *c, cl_int *code)
{
    cl_queue_properties others = 0;
    int priority = 0;
    for (; c != NULL && *c != 0; c += 2) {
        if (*c == CL_QUEUE_PRIORITY_KHR) priority = (int)c[1];
        if (*c == CL_QUEUE_PROPERTIES) others = c[1];
    }
    if (hit("clCreateCommandQueueWithProperties", 0, code)) return NULL;
    fake.priority = priority;
    return clCreateCommandQueue(a, b, others, code);
}

PLAIN(clSetKernelArgSVMPointer, 0, (cl_kernel a, cl_uint b, const void *c), (a, b, c))
QUEUES(clEnqueueSVMMemcpy, (cl_command_queue a, cl_bool b, void *c, const void *d, size_t e, cl_uint f, const cl_event *g, cl_event *event), (a, b, c, d, e, f, g, event))
QUEUES(clEnqueueSVMMemFill, (cl_command_queue a, void *b, const void *c, size_t d, size_t e, cl_uint f, const cl_event *g, cl_event *event), (a, b, c, d, e, f, g, event))

void *clSVMAlloc(cl_context a, cl_svm_mem_flags b, size_t c, cl_uint d)
{
    void *made = hit("clSVMAlloc", 0, NULL) ? NULL : REAL(clSVMAlloc)(a, b, c, d);
    if (made != NULL) count(1);
    return made;
}

void clSVMFree(cl_context a, void *b)
{
    count(-1);
    REAL(clSVMFree)(a, b);
}

cl_program clCreateProgramWithIL(cl_context a, const void *text, size_t size, cl_int *code)
{
    const char *first = (const char *)text;
    return hit("clCreateProgramWithIL", 0, code) ? NULL : clCreateProgramWithSource(a, 1, &first, &size, code);
}
#endif
