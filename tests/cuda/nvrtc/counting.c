/* NVRTC with its compilations counted: the table of a library that asks the real one, which DTL_TEST_NVRTC names.
 *     COUNTING_NVRTC_FAIL=code    the next compilations answer it
 * With -DNO_COMPILE it is one without nvrtcCompileProgram; with -DOLD one as old as CUDA 11.0, which knows no cubins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define FORWARD(name, parameters, arguments)                                \
    API int name parameters;                                                \
    API int name parameters {                                               \
        int(*function) parameters;                                          \
        void* found = real(#name);                                          \
        if (found == NULL) return 11;                                       \
        memcpy(&function, &found, sizeof function);                         \
        return function arguments;                                          \
    }

typedef void* program_t;

static int count;

static void* real(const char* name) {
    void* library = dlopen(getenv("DTL_TEST_NVRTC"), RTLD_NOW | RTLD_LOCAL);
    return library != NULL ? dlsym(library, name) : NULL;
}

API int counted_compilations(void);
API int counted_compilations(void) { return count; }

API const char* nvrtcGetErrorString(int code);
API const char* nvrtcGetErrorString(int code) {
    const char* (*function)(int);
    void* found = real("nvrtcGetErrorString");
    memcpy(&function, &found, sizeof function);
    return function(code);
}

FORWARD(nvrtcVersion, (int* major, int* minor), (major, minor))
FORWARD(nvrtcCreateProgram,
        (program_t * out, const char* text, const char* name, int headers, const char* const* texts, const char* const* names),
        (out, text, name, headers, texts, names))
FORWARD(nvrtcDestroyProgram, (program_t * program), (program))
FORWARD(nvrtcGetPTXSize, (program_t program, size_t* size), (program, size))
FORWARD(nvrtcGetPTX, (program_t program, char* out), (program, out))
FORWARD(nvrtcGetProgramLogSize, (program_t program, size_t* size), (program, size))
FORWARD(nvrtcGetProgramLog, (program_t program, char* out), (program, out))
#ifndef OLD
FORWARD(nvrtcGetNumSupportedArchs, (int* out), (out))
FORWARD(nvrtcGetSupportedArchs, (int* out), (out))
FORWARD(nvrtcGetCUBINSize, (program_t program, size_t* size), (program, size))
FORWARD(nvrtcGetCUBIN, (program_t program, char* out), (program, out))
FORWARD(nvrtcSetFlowCallback, (program_t program, int (*ask)(void*, void*), void* of), (program, ask, of))
#endif

#ifndef NO_COMPILE
API int nvrtcCompileProgram(program_t program, int options, const char* const* words);
API int nvrtcCompileProgram(program_t program, int options, const char* const* words) {
    const char* fail = getenv("COUNTING_NVRTC_FAIL");
    int (*function)(program_t, int, const char* const*);
    void* found = real("nvrtcCompileProgram");
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    if (fail != NULL) return atoi(fail);
    memcpy(&function, &found, sizeof function);
    return function(program, options, words);
}
#endif
