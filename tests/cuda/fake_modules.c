/* Modules and kernels; see fake_cuda.h. */
#include "fake_cuda.h"

API code_t cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
    BEGIN(cuModuleLoadDataEx);
    (void)module, (void)image, (void)count, (void)options, (void)values;
    return INVALID_IMAGE;
}

API code_t cuModuleUnload(void* module) {
    BEGIN(cuModuleUnload);
    return module != NULL ? SUCCESS : INVALID_HANDLE;
}

API code_t cuModuleGetFunction(void** function, void* module, const char* name) {
    BEGIN(cuModuleGetFunction);
    (void)function, (void)module, (void)name;
    return NOT_FOUND;
}

API code_t cuFuncGetAttribute(int* value, int what, void* function) {
    BEGIN(cuFuncGetAttribute);
    (void)value, (void)what, (void)function;
    return INVALID_HANDLE;
}

API code_t cuFuncSetAttribute(void* function, int what, int value) {
    BEGIN(cuFuncSetAttribute);
    (void)value, (void)what, (void)function;
    return INVALID_HANDLE;
}

API code_t cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* stream, void** parameters, void** extra) {
    BEGIN(cuLaunchKernel);
    (void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz;
    (void)shared, (void)stream, (void)parameters, (void)extra;
    return INVALID_HANDLE;
}
