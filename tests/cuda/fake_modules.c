/* Modules and kernels; see fake_cuda.h. A cubin's kernels and their parameters are read from its own sections; of PTX the
 * names alone, as drivers before CUDA 12.4 tell of both. In PTX, "//fake error N" fails with a log of N lines, and
 * "//fake info" is logged.
 *
 * A launch is written down for fake_cuda_launch(). What it does is done by host code, in its stream's order: a kernel of
 * the same name that was compiled with dtl_kernel.h into the shared object that FAKE_CUDA_KERNELS names. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_BINARY = 209, INVALID_PTX = 218, UNSUPPORTED_PTX = 222, UNSUPPORTED = 801 };
enum { MAX_KERNELS = 32, MAX_PARAMETERS = 64, PARAMETER_INFO = 0x17, SHARED_BYTES = 48 << 10, BLOCK_THREADS = 1024 };

typedef struct kernel {
    char name[64];
    context_t* context;
    int from_cubin, count, registers, shared_bytes;
    size_t sizes[MAX_PARAMETERS], offsets[MAX_PARAMETERS];
} kernel_t;

typedef struct module {
    context_t* context;
    int count;
    kernel_t kernels[MAX_KERNELS];
} module_t;

/* As in dtl_kernel.h. */
typedef struct block {
    unsigned struct_size, shared_bytes, grid[3], block[3], block_index[3], thread_index[3];
    void *shared, *user;
} block_t;
typedef struct entry {
    unsigned version, count;
    int (*run)(const block_t* block, const void* const* args);
    unsigned long sizes[16];
} entry_t;

typedef struct launch {
    context_t* context;
    const entry_t* entry;
    block_t block;
    uint64_t words[MAX_PARAMETERS];
} launch_t;

static char last_launch[4096];

/* What the last launch was: "name gx,gy,gz bx,by,bz shared bytes-of-an-argument … registers". */
API const char* fake_cuda_launch(void);
API const char* fake_cuda_launch(void) { return last_launch; }

static kernel_t* add(module_t* module, const char* name, size_t length) {
    kernel_t* kernel = &module->kernels[module->count];
    if (module->count == MAX_KERNELS || length >= sizeof kernel->name) return NULL;
    memcpy(kernel->name, name, length);
    kernel->context = module->context;
    kernel->shared_bytes = SHARED_BYTES;
    module->count++;
    return kernel;
}

static kernel_t* find(module_t* module, const char* name) {
    int i;
    for (i = 0; i < module->count; i++)
        if (strcmp(module->kernels[i].name, name) == 0) return &module->kernels[i];
    return NULL;
}

/* ---- cubins ----------------------------------------------------------------------------------- */

static void read_parameters(kernel_t* kernel, const unsigned char* at, const unsigned char* end) {
    while (at + 4 <= end) {
        uint16_t size;
        uint32_t words[3];
        memcpy(&size, at + 2, sizeof size);
        if (at[0] == 4 && at[1] == PARAMETER_INFO) {
            const unsigned char* field = at + 4;
            int ordinal;
            memcpy(words, field, sizeof words);
            ordinal = (int)(words[1] & 0xFFFF);
            if (ordinal < MAX_PARAMETERS) {
                kernel->offsets[ordinal] = words[1] >> 16;
                kernel->sizes[ordinal] = words[2] >> 18;
                if (ordinal >= kernel->count) kernel->count = ordinal + 1;
            }
        }
        at += 4 + (at[0] == 4 ? size : 0);
    }
}

static code_t read_cubin(module_t* module, const unsigned char* image) {
    const Elf64_Ehdr* header = (const Elf64_Ehdr*)(const void*)image;
    const Elf64_Shdr* sections = (const Elf64_Shdr*)(const void*)(image + header->e_shoff);
    const char* names = (const char*)image + sections[header->e_shstrndx].sh_offset;
    int i;
    if (header->e_machine != EM_CUDA) return INVALID_IMAGE;
    if ((header->e_flags & 0xFF) != 90) return NO_BINARY;
    for (i = 0; i < header->e_shnum; i++) {
        const char* name = names + sections[i].sh_name;
        if (strncmp(name, ".text.", 6) == 0) add(module, name + 6, strlen(name + 6));
    }
    for (i = 0; i < header->e_shnum; i++) {
        const char* name = names + sections[i].sh_name;
        const unsigned char* begin = image + sections[i].sh_offset;
        kernel_t* kernel = strncmp(name, ".nv.info.", 9) == 0 ? find(module, name + 9) : NULL;
        if (kernel == NULL) continue;
        kernel->from_cubin = 1;
        read_parameters(kernel, begin, begin + sections[i].sh_size);
    }
    return SUCCESS;
}

/* ---- PTX ------------------------------------------------------------------------------------------- */

typedef struct options {
    char *errors, *infos;
    size_t error_room, info_room;
    void **error_size, **info_size;
    int registers;
} options_t;

static options_t read_options(unsigned count, const int* names, void** values) {
    options_t options = {NULL, NULL, 0, 0, NULL, NULL, 0};
    unsigned i;
    for (i = 0; i < count; i++) {
        if (names[i] == 0) options.registers = (int)(uintptr_t)values[i];
        if (names[i] == 3) options.infos = (char*)values[i];
        if (names[i] == 4) options.info_room = (size_t)(uintptr_t)values[i], options.info_size = &values[i];
        if (names[i] == 5) options.errors = (char*)values[i];
        if (names[i] == 6) options.error_room = (size_t)(uintptr_t)values[i], options.error_size = &values[i];
    }
    return options;
}

static void say(char* log, size_t room, void** size, const char* line, int times) {
    size_t used = 0;
    while (log != NULL && times-- > 0 && used + 1 < room) used += (size_t)snprintf(log + used, room - used, "%s", line);
    if (size != NULL) *size = (void*)(uintptr_t)(used < room ? used : room);
}

static code_t read_ptx(module_t* module, const char* text, const options_t* options) {
    const char* error = strstr(text, "//fake error ");
    const char* at = text;
    int i;
    if (error != NULL) {
        say(options->errors, options->error_room, options->error_size,
            "ptxas application ptx input, line 7; error : a fake one\n", atoi(error + 13));
        return INVALID_PTX;
    }
    if (strstr(text, ".version 99") != NULL) return UNSUPPORTED_PTX;
    if (strstr(text, "//fake info") != NULL)
        say(options->infos, options->info_room, options->info_size, "info : all is fake\n", 1);
    while ((at = strstr(at, ".entry ")) != NULL) {
        const char* name = at + 7;
        add(module, name, strcspn(name, " \t\r\n({"));
        at = name;
    }
    for (i = 0; i < module->count; i++) module->kernels[i].registers = options->registers;
    return SUCCESS;
}

API code_t cuModuleLoadDataEx(module_t** out, const void* image, unsigned count, int* names, void** values) {
    const options_t options = read_options(count, names, values);
    module_t* module;
    code_t code = INVALID_IMAGE;
    BEGIN_LOCKED(cuModuleLoadDataEx);
    LOCK();
    fake_drain(fake_current()); /* as the real one */
    UNLOCK();
    module = (module_t*)calloc(1, sizeof *module);
    module->context = fake_current();
    if (options.error_size != NULL) *options.error_size = NULL;
    if (options.info_size != NULL) *options.info_size = NULL;
    if (memcmp(image, ELFMAG, SELFMAG) == 0) code = read_cubin(module, (const unsigned char*)image);
    else if (strstr((const char*)image, ".version") != NULL) code = read_ptx(module, (const char*)image, &options);
    if (code != SUCCESS) {
        free(module);
        return code;
    }
    LOCK();
    fake_count++;
    UNLOCK();
    *out = module;
    return SUCCESS;
}

/* Waits for the device, as the real one does. */
API code_t cuModuleUnload(module_t* module) {
    context_t* context = fake_current();
    code_t code;
    BEGIN_RELEASE(cuModuleUnload);
    if (module->context != context) return INVALID_HANDLE;
    LOCK();
    fake_drain(context);
    fake_count--;
    code = context->lost;
    UNLOCK();
    free(module);
    return code;
}

API code_t cuModuleGetFunction(kernel_t** function, module_t* module, const char* name) {
    BEGIN(cuModuleGetFunction);
    *function = find(module, name);
    return *function != NULL ? SUCCESS : NOT_FOUND;
}

API code_t cuFuncGetAttribute(int* value, int what, const kernel_t* kernel) {
    BEGIN(cuFuncGetAttribute);
    (void)kernel;
    if (what != 1) return INVALID_VALUE;
    *value = 0;
    return SUCCESS;
}

API code_t cuFuncSetAttribute(kernel_t* kernel, int what, int value) {
    BEGIN(cuFuncSetAttribute);
    if (what != 8) return INVALID_VALUE;
    kernel->shared_bytes = value;
    return SUCCESS;
}

API code_t cuFuncGetParamInfo(const kernel_t* kernel, size_t index, size_t* offset, size_t* size) {
    BEGIN(cuFuncGetParamInfo);
    if (!kernel->from_cubin) return UNSUPPORTED;
    if (index >= (size_t)kernel->count) return INVALID_VALUE;
    *offset = kernel->offsets[index];
    *size = kernel->sizes[index];
    return SUCCESS;
}

/* ---- launches ------------------------------------------------------------------------------------ */

static const entry_t* host_kernel(const char* name) {
    const char* file = getenv("FAKE_CUDA_KERNELS");
    void* object = file != NULL ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    char symbol[96];
    snprintf(symbol, sizeof symbol, "dtl_kernel_1_%s", name);
    return object != NULL ? (const entry_t*)dlsym(object, symbol) : NULL;
}

static void run(void* argument) {
    launch_t* launch = (launch_t*)argument;
    block_t* block = &launch->block;
    const void* args[MAX_PARAMETERS];
    code_t lost;
    unsigned i;
    LOCK();
    if (launch->context->lost == SUCCESS) launch->context->lost = fake_fault();
    lost = launch->context->lost;
    UNLOCK();
    for (i = 0; launch->entry != NULL && i < launch->entry->count; i++) args[i] = &launch->words[i];
    if (launch->entry != NULL && lost == SUCCESS) {
        unsigned* at = block->block_index;
        for (at[2] = 0; at[2] < block->grid[2]; at[2]++)
            for (at[1] = 0; at[1] < block->grid[1]; at[1]++)
                for (at[0] = 0; at[0] < block->grid[0]; at[0]++) launch->entry->run(block, args);
    }
    free(launch);
}

/* Arguments that are addresses of the device become those of the bytes. */
static void take_arguments(launch_t* launch, void** parameters) {
    unsigned i;
    for (i = 0; launch->entry != NULL && i < launch->entry->count; i++) {
        char* bytes = NULL;
        memcpy(&launch->words[i], parameters[i], launch->entry->sizes[i]);
        if (launch->entry->sizes[i] == 8) bytes = fake_bytes((void*)(uintptr_t)launch->words[i], 1);
        if (bytes != NULL) launch->words[i] = (uint64_t)(uintptr_t)bytes;
    }
}

static void write_down(const kernel_t* kernel, const block_t* block, void** parameters) {
    const unsigned *grid = block->grid, *threads = block->block;
    size_t used, byte;
    int i;
    used = (size_t)snprintf(last_launch, sizeof last_launch, "%s %u,%u,%u %u,%u,%u %u", kernel->name, grid[0], grid[1],
                            grid[2], threads[0], threads[1], threads[2], block->shared_bytes);
    for (i = 0; i < kernel->count; i++) {
        used += (size_t)snprintf(last_launch + used, sizeof last_launch - used, " ");
        for (byte = 0; byte < kernel->sizes[i]; byte++)
            used += (size_t)snprintf(last_launch + used, sizeof last_launch - used, "%02x",
                                     ((unsigned char*)parameters[i])[byte]);
    }
    if (kernel->registers != 0)
        snprintf(last_launch + used, sizeof last_launch - used, " %d registers", kernel->registers);
}

API code_t cuLaunchKernel(kernel_t* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void* stream, void** parameters, void** extra) {
    launch_t* launch;
    code_t code;
    BEGIN_LOCKED(cuLaunchKernel);
    if (extra != NULL || gx * bx == 0 || bx * by * bz > BLOCK_THREADS || shared > (unsigned)kernel->shared_bytes)
        return INVALID_VALUE;
    if (kernel->context != fake_current()) return INVALID_HANDLE;
    launch = (launch_t*)calloc(1, sizeof *launch);
    launch->context = kernel->context;
    launch->entry = host_kernel(kernel->name);
    launch->block = (block_t){sizeof launch->block, shared, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, {0, 0, 0}, NULL, NULL};
    LOCK();
    take_arguments(launch, parameters);
    write_down(kernel, &launch->block, parameters);
    code = fake_queue(stream, run, launch);
    UNLOCK();
    return code;
}
