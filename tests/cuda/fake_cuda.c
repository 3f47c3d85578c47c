/* Devices, contexts, memory; see fake_cuda.h. */
#define _GNU_SOURCE
#include "fake_cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_change = PTHREAD_COND_INITIALIZER;
int fake_count;

typedef struct rule {
    char function[48];
    int calls; /* until it strikes */
    code_t code;
} rule_t;

static struct {
    int begun, devices, rule_count, copies_to_fault;
    code_t fault;
    size_t bytes;
    rule_t rules[MAX_RULES];
    context_t primary[MAX_DEVICES];
    size_t used[MAX_DEVICES];
    range_t* ranges;
} driver;

static __thread struct {
    context_t* stack[MAX_DEPTH];
    int depth;
} thread;

/* ---- faults ------------------------------------------------------------------------------------ */

int fake_is_fault(code_t code) {
    return code == 214 || code == 700 || code == 702 || (code >= 714 && code <= 719);
}

static void read_rules(void) {
    const char* text = getenv("FAKE_CUDA_FAIL");
    const char* fault = getenv("FAKE_CUDA_FAULT");
    driver.rule_count = 0;
    while (text != NULL && *text != '\0' && driver.rule_count < MAX_RULES) {
        rule_t* rule = &driver.rules[driver.rule_count];
        if (sscanf(text, "%47[^:]:%d:%u", rule->function, &rule->calls, &rule->code) == 3) driver.rule_count++;
        text = strchr(text, ',');
        if (text != NULL) text++;
    }
    driver.copies_to_fault = 0;
    if (fault != NULL) sscanf(fault, "%d:%u", &driver.copies_to_fault, &driver.fault);
}

code_t fake_fault(void) {
    if (driver.copies_to_fault == 0) return SUCCESS;
    return --driver.copies_to_fault == 0 ? driver.fault : SUCCESS;
}

context_t* fake_current(void) {
    return thread.depth > 0 ? thread.stack[thread.depth - 1] : NULL;
}

void fake_drain(context_t* context) {
    context->draining++;
    while (!fake_is_idle(context) && context->lost == SUCCESS) pthread_cond_wait(&fake_change, &fake_lock);
    context->draining--;
    pthread_cond_broadcast(&fake_change);
}

void fake_enter(void) {
    context_t* context = fake_current();
    LOCK();
    while (context->draining > 0 && context->lost == SUCCESS) pthread_cond_wait(&fake_change, &fake_lock);
    UNLOCK();
}

code_t fake_begin(const char* function, int needs_context) {
    context_t* context = fake_current();
    code_t code = SUCCESS;
    int i;
    LOCK();
    if (!driver.begun) code = NOT_INITIALIZED;
    for (i = 0; i < driver.rule_count && code == SUCCESS; i++) {
        rule_t* rule = &driver.rules[i];
        if (rule->calls > 0 && strcmp(rule->function, function) == 0 && --rule->calls == 0) {
            code = rule->code;
            if (fake_is_fault(code) && context != NULL) context->lost = code;
        }
    }
    if (code == SUCCESS && needs_context) code = context == NULL ? INVALID_CONTEXT : context->lost;
    UNLOCK();
    return code;
}

/* ---- the driver and its devices -------------------------------------------------------------- */

static int number(const char* name, int standard) {
    const char* text = getenv(name);
    return text != NULL && *text != '\0' ? atoi(text) : standard;
}

API int fake_cuda_live(void);
API int fake_cuda_live(void) {
    int count;
    LOCK();
    count = fake_count;
    UNLOCK();
    return count;
}

/* For another fake that works on the devices' memory. */
API char* fake_cuda_bytes(const void* address, size_t size);
API char* fake_cuda_bytes(const void* address, size_t size) {
    char* at;
    LOCK();
    at = fake_bytes(address, size);
    UNLOCK();
    return at;
}

API code_t cuDriverGetVersion(int* version) {
    *version = number("FAKE_CUDA_VERSION", 12090);
    return SUCCESS;
}

API code_t cuInit(unsigned flags) {
    const char* bytes = getenv("FAKE_CUDA_BYTES");
    if (flags != 0) return INVALID_VALUE;
    LOCK();
    driver.begun = 1;
    driver.devices = number("FAKE_CUDA_DEVICES", 2);
    if (driver.devices > MAX_DEVICES) driver.devices = MAX_DEVICES;
    driver.bytes = bytes != NULL ? strtoull(bytes, NULL, 10) : (size_t)1 << 30;
    read_rules();
    UNLOCK();
    BEGIN_ANYWHERE(cuInit);
    return driver.devices == 0 ? NO_DEVICE : SUCCESS;
}

static const struct {
    code_t code;
    const char *name, *text;
} codes[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

API code_t cuGetErrorName(code_t code, const char** text) {
    size_t i;
    *text = NULL;
    for (i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == code) *text = codes[i].name;
    return *text != NULL ? SUCCESS : INVALID_VALUE;
}

API code_t cuGetErrorString(code_t code, const char** text) {
    size_t i;
    *text = NULL;
    for (i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == code) *text = codes[i].text;
    return *text != NULL ? SUCCESS : INVALID_VALUE;
}

API code_t cuDeviceGetCount(int* count) {
    BEGIN_ANYWHERE(cuDeviceGetCount);
    *count = driver.devices;
    return SUCCESS;
}

API code_t cuDeviceGet(int* device, int ordinal) {
    BEGIN_ANYWHERE(cuDeviceGet);
    if (ordinal < 0 || ordinal >= driver.devices) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

API code_t cuDeviceGetName(char* name, int room, int device) {
    BEGIN_ANYWHERE(cuDeviceGetName);
    snprintf(name, (size_t)room, "Fake GPU %d", device);
    return SUCCESS;
}

API code_t cuDeviceGetPCIBusId(char* name, int room, int device) {
    BEGIN_ANYWHERE(cuDeviceGetPCIBusId);
    snprintf(name, (size_t)room, "FFFF:%02X:00.0", device);
    return SUCCESS;
}

API code_t cuDeviceTotalMem_v2(size_t* bytes, int device) {
    BEGIN_ANYWHERE(cuDeviceTotalMem_v2);
    (void)device;
    *bytes = driver.bytes;
    return SUCCESS;
}

API code_t cuDeviceGetAttribute(int* value, int what, int device) {
    static const int known[][2] = {{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535},
                                   {11, 2147483647}, {16, 4}, {41, 1}, {75, 9}, {76, 0}, {83, 1}, {86, 0}, {89, 1}, {97, 232448},
                                   {115, 1}};
    size_t i;
    BEGIN_ANYWHERE(cuDeviceGetAttribute);
    if (device < 0 || device >= driver.devices) return INVALID_DEVICE;
    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i][0] == what) {
            *value = known[i][1];
            return SUCCESS;
        }
    }
    return INVALID_VALUE;
}

/* ---- contexts ---------------------------------------------------------------------------------- */

API code_t cuDevicePrimaryCtxRetain(context_t** context, int device) {
    BEGIN_ANYWHERE(cuDevicePrimaryCtxRetain);
    if (device < 0 || device >= driver.devices) return INVALID_DEVICE;
    LOCK();
    *context = &driver.primary[device];
    if ((*context)->retained++ == 0) (*context)->lost = SUCCESS;
    (*context)->device = device;
    UNLOCK();
    return SUCCESS;
}

API code_t cuDevicePrimaryCtxRelease_v2(int device) {
    BEGIN_ANYWHERE(cuDevicePrimaryCtxRelease_v2);
    if (driver.primary[device].retained == 0) return INVALID_CONTEXT;
    LOCK();
    driver.primary[device].retained--;
    UNLOCK();
    return SUCCESS;
}

/* A context of the program's own; made and destroyed by tests. */
API code_t cuCtxCreate_v2(context_t** context, unsigned flags, int device) {
    BEGIN_ANYWHERE(cuCtxCreate_v2);
    (void)flags;
    *context = (context_t*)calloc(1, sizeof **context);
    (*context)->device = device;
    (*context)->retained = 1;
    thread.stack[thread.depth++] = *context;
    return SUCCESS;
}

API code_t cuCtxDestroy_v2(context_t* context) {
    BEGIN_ANYWHERE(cuCtxDestroy_v2);
    if (fake_current() == context) thread.depth--;
    free(context);
    return SUCCESS;
}

API code_t cuCtxGetCurrent(context_t** context) {
    BEGIN_ANYWHERE(cuCtxGetCurrent);
    *context = fake_current();
    return SUCCESS;
}

API code_t cuCtxPushCurrent_v2(context_t* context) {
    BEGIN_ANYWHERE(cuCtxPushCurrent_v2);
    if (context == NULL || context->retained == 0) return INVALID_CONTEXT;
    if (thread.depth == MAX_DEPTH) return 208; /* leaves something behind at each call, then */
    thread.stack[thread.depth++] = context;
    return SUCCESS;
}

API code_t cuCtxPopCurrent_v2(context_t** context) {
    BEGIN_ANYWHERE(cuCtxPopCurrent_v2);
    if (thread.depth == 0) return INVALID_CONTEXT;
    *context = thread.stack[--thread.depth];
    return SUCCESS;
}

API code_t cuCtxSetCurrent(context_t* context) {
    BEGIN_ANYWHERE(cuCtxSetCurrent);
    if (context != NULL && context->retained == 0) return INVALID_CONTEXT;
    if (thread.depth == 0) thread.depth = 1;
    thread.stack[thread.depth - 1] = context;
    return SUCCESS;
}

API code_t cuCtxGetDevice(int* device) {
    BEGIN(cuCtxGetDevice);
    *device = fake_current()->device;
    return SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------ */

range_t* fake_range(const void* address) {
    range_t* range = driver.ranges;
    const char* at = (const char*)address;
    while (range != NULL && (at < range->begin || at >= range->begin + range->size)) range = range->next;
    return range;
}

char* fake_bytes(const void* address, size_t size) {
    range_t* range = fake_range(address);
    char* at = (char*)(uintptr_t)address;
    const range_t* last = range;
    if (range == NULL) return at;
    /* Adjacent mappings of one reservation have adjacent bytes. */
    while (last != NULL && last->kind == 'v' && at + size > last->begin + last->size)
        last = fake_range(last->begin + last->size);
    if (last == NULL || last->kind != range->kind || at + size > last->begin + last->size) return NULL;
    return range->memory + (at - range->begin);
}

/* With the lock. A pool's memory that was freed serves the next one of that pool alone. */
static code_t take(char kind, size_t size, pool_t* pool, char** out) {
    const int device = pool != NULL ? pool->device : fake_current()->device;
    const size_t kept = pool != NULL ? pool->kept : 0, fresh = size > kept ? size - kept : 0;
    range_t* range;
    char* memory;
    int fd = -1;
    if (size == 0) return INVALID_VALUE;
    if (size > driver.bytes) return OUT_OF_MEMORY;
    if (kind != 'h' && fresh > driver.bytes - driver.used[device]) return OUT_OF_MEMORY;
    if (kind == 'd') {
        fd = memfd_create("fake-gpu", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)size) != 0) return OUT_OF_MEMORY;
        memory = (char*)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == (char*)MAP_FAILED) return OUT_OF_MEMORY;
    } else {
        memory = (char*)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    }
    if (memory == NULL) return OUT_OF_MEMORY;
    memset(memory, 0xA5, size < 65536 ? size : 65536);
    if (kind != 'h') driver.used[device] += fresh;
    if (pool != NULL) pool->kept -= size - fresh;
    range = fake_list(kind, memory, size, device, fd);
    range->pool = pool;
    *out = range->begin;
    return SUCCESS;
}

range_t* fake_list(char kind, char* memory, size_t size, int device, int fd) {
    range_t* range = (range_t*)calloc(1, sizeof *range);
    range->memory = memory;
    range->begin = memory;
    if (strchr("dpo", kind) != NULL) { /* an address that the host faults at */
        range->begin = (char*)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    range->size = size;
    range->kind = kind;
    range->device = device;
    range->fd = fd;
    range->next = driver.ranges;
    driver.ranges = range;
    fake_count++;
    return range;
}

/* With the lock, of a pool that was destroyed: it goes with its last memory, as frees of it may be queued still. */
static void end_pool(pool_t* pool) {
    const range_t* range;
    driver.used[pool->device] -= pool->kept;
    pool->kept = 0;
    for (range = driver.ranges; range != NULL; range = range->next)
        if (range->pool == pool) return;
    free(pool);
}

void fake_release(range_t* range) {
    range_t** link = &driver.ranges;
    while (*link != range) link = &(*link)->next;
    *link = range->next;
    if (range->begin != range->memory && range->kind != 'v') munmap(range->begin, range->size);
    if (range->pool != NULL) range->pool->kept += range->size;
    else if (strchr("dm", range->kind) != NULL) driver.used[range->device] -= range->size;
    if (range->pool != NULL && range->pool->destroyed) end_pool(range->pool);
    if (range->fd >= 0) munmap(range->memory, range->size), close(range->fd);
    else if (strchr("rv", range->kind) == NULL) free(range->memory);
    free(range);
    fake_count--;
}

static code_t take_number(char kind, size_t size, ptr_t* out) {
    char* at = NULL;
    code_t code;
    LOCK();
    code = take(kind, size, NULL, &at);
    UNLOCK();
    if (code == SUCCESS) *out = (ptr_t)(uintptr_t)at;
    return code;
}

API code_t cuMemAlloc_v2(ptr_t* out, size_t size) {
    BEGIN_LOCKED(cuMemAlloc_v2);
    return take_number('d', size, out);
}

API code_t cuMemAllocManaged(ptr_t* out, size_t size, unsigned flags) {
    BEGIN(cuMemAllocManaged);
    return flags == 1 ? take_number('m', size, out) : INVALID_VALUE;
}

API code_t cuMemHostAlloc(void** out, size_t size, unsigned flags) {
    ptr_t number = 0;
    code_t code;
    BEGIN_LOCKED(cuMemHostAlloc);
    (void)flags;
    code = take_number('h', size, &number);
    if (code == SUCCESS) *out = (void*)(uintptr_t)number;
    return code;
}

/* As the real ones, these wait for all work of the context, and hold its lock meanwhile. */
static code_t release(const void* at, const char* kinds) {
    context_t* context = fake_current();
    range_t* range;
    code_t code = INVALID_VALUE;
    LOCK();
    range = fake_range(at);
    if (range != NULL && range->begin == at && strchr(kinds, range->kind) != NULL) {
        fake_drain(context);
        fake_release(range);
        code = context->lost;
    }
    UNLOCK();
    return code;
}

API code_t cuMemFree_v2(ptr_t at) {
    BEGIN_RELEASE(cuMemFree_v2);
    return release((void*)(uintptr_t)at, "dm");
}

API code_t cuMemFreeHost(void* at) {
    BEGIN_RELEASE(cuMemFreeHost);
    return release(at, "h");
}

API code_t cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    BEGIN(cuMemGetInfo_v2);
    LOCK();
    *total = driver.bytes;
    *free_bytes = driver.bytes - driver.used[fake_current()->device];
    UNLOCK();
    return SUCCESS;
}

API code_t cuMemPoolCreate(pool_t** pool, const unsigned* properties) {
    BEGIN_ANYWHERE(cuMemPoolCreate);
    if (properties[0] != 1 || properties[2] != 1) return INVALID_VALUE;
    *pool = (pool_t*)calloc(1, sizeof **pool);
    (*pool)->device = (int)properties[3];
    LOCK();
    fake_count++;
    UNLOCK();
    return SUCCESS;
}

API code_t cuMemPoolSetAttribute(pool_t* pool, int what, void* value) {
    BEGIN_ANYWHERE(cuMemPoolSetAttribute);
    if (what != 4) return INVALID_VALUE;
    memcpy(&pool->threshold, value, sizeof pool->threshold);
    return SUCCESS;
}

API code_t cuMemPoolTrimTo(pool_t* pool, size_t keep) {
    BEGIN_ANYWHERE(cuMemPoolTrimTo);
    LOCK();
    if (pool->kept > keep) {
        driver.used[pool->device] -= pool->kept - keep;
        pool->kept = keep;
    }
    UNLOCK();
    return SUCCESS;
}

API code_t cuMemPoolDestroy(pool_t* pool) {
    BEGIN_ANYWHERE(cuMemPoolDestroy);
    LOCK();
    pool->destroyed = 1;
    end_pool(pool);
    fake_count--;
    UNLOCK();
    return SUCCESS;
}

API code_t cuMemAllocFromPoolAsync(ptr_t* out, size_t size, pool_t* pool, void* stream) {
    char* at = NULL;
    code_t code;
    BEGIN(cuMemAllocFromPoolAsync);
    (void)stream;
    LOCK();
    code = take('p', size, pool, &at);
    UNLOCK();
    if (code == SUCCESS) *out = (ptr_t)(uintptr_t)at;
    return code;
}

/* From the device's default pool, which is never destroyed. */
API code_t cuMemAllocAsync(ptr_t* out, size_t size, void* stream) {
    static pool_t standard[MAX_DEVICES];
    pool_t* pool;
    BEGIN(cuMemAllocAsync);
    pool = &standard[fake_current()->device];
    pool->device = fake_current()->device;
    return cuMemAllocFromPoolAsync(out, size, pool, stream);
}

static void release_later(void* range) {
    LOCK();
    fake_release((range_t*)range);
    UNLOCK();
}

API code_t cuMemFreeAsync(ptr_t at, void* stream) {
    range_t* range;
    code_t code = INVALID_VALUE;
    BEGIN_RELEASE(cuMemFreeAsync);
    LOCK();
    range = fake_range((void*)(uintptr_t)at);
    if (range != NULL && range->begin == (char*)(uintptr_t)at && range->kind == 'p')
        code = fake_queue(stream, release_later, range);
    UNLOCK();
    return code == SUCCESS ? fake_current()->lost : code;
}

/* For tests: number of pointer queries so far. */
static int queries;
API int fake_cuda_queries(void);
API int fake_cuda_queries(void) {
    return __atomic_load_n(&queries, __ATOMIC_RELAXED);
}

/* Like the real function: needs no current context; for an unknown address returns SUCCESS and zeroed attributes. */
API code_t cuPointerGetAttributes(unsigned count, const int* what, void** data, ptr_t at) {
    range_t* range;
    unsigned i;
    BEGIN_ANYWHERE(cuPointerGetAttributes);
    __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
    LOCK();
    range = fake_range((void*)(uintptr_t)at);
    for (i = 0; i < count; i++) {
        const int value = range == NULL ? 0 : what[i] == 9 ? range->device
                          : what[i] == 8 ? range->kind == 'm' : what[i] == 2 ? 1 + (strchr("hr", range->kind) == NULL) : 0;
        const size_t size = range == NULL ? 0 : what[i] == 11 ? (size_t)range->begin : range->size;
        if (what[i] == 11 || what[i] == 12) memcpy(data[i], &size, sizeof size);
        else memcpy(data[i], &value, sizeof value);
    }
    UNLOCK();
    return SUCCESS;
}
