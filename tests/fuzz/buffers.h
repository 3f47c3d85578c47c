/* Buffers exactly as long as a call's documentation says, each followed by an inaccessible page.
 * Outputs may lie on read-only pages: the fault of a write is recorded, and then the write is permitted.
 * Part of fuzz.c. */
#ifndef DTL_TESTS_FUZZ_BUFFERS_H
#define DTL_TESTS_FUZZ_BUFFERS_H

#include "model.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE UINT64_C(4096)
#define ROOM (16 * PAGE) /* of one buffer */
#define SLOTS MOST_PARAMETERS
#define LONGEST ROOM
#define LENT 64 /* buffers of operations that continue after their call */
#define MOST_THREADS 8

struct thread {
    uint8_t* slots;
    uint64_t lengths[SLOTS];
    uint8_t before[SLOTS][ROOM];
    _Atomic int read_only[SLOTS]; /* 1: protected, 2: written although protected */
    _Atomic(const struct call*) current;
    _Atomic uint64_t done;
    const union value* values;
    void* memory[16]; /* from dtl_mem_alloc and its relatives; never dereferenced here */
    dtl_submission_t submissions[8];
};

static struct thread threads[MOST_THREADS];
static _Thread_local struct thread* me;
static uint8_t* lent;

static uint8_t* guarded(uint64_t count) {
    uint8_t* start = mmap(NULL, count * (ROOM + PAGE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) abort();
    for (uint64_t i = 0; i < count; i++)
        if (mprotect(start + i * (ROOM + PAGE) + ROOM, PAGE, PROT_NONE) != 0) abort();
    return start;
}

static uint64_t rounded(uint64_t length) { return (length + PAGE - 1) / PAGE * PAGE; }

static void protect(int slot, int protection) {
    uint8_t* end = me->slots + (uint64_t)slot * (ROOM + PAGE) + ROOM;
    const uint64_t length = rounded(me->lengths[slot]);
    if (length > 0 && mprotect(end - length, length, protection) != 0) abort();
}

/* The last `length` bytes of a slot. */
static uint8_t* place(int slot, uint64_t length) {
    if (length > LONGEST) length = LONGEST;
    me->lengths[slot] = length;
    return me->slots + (uint64_t)slot * (ROOM + PAGE) + ROOM - length;
}

static uint8_t* place_lent(uint64_t length) {
    if (length > LONGEST) length = LONGEST;
    return lent + below(LENT) * (ROOM + PAGE) + ROOM - length;
}

static void report(const struct thread* thread, const char* what) {
    const struct call* call = thread->current;
    fprintf(stderr, "%s: %s(", what, call != NULL ? call->name : "no call");
    for (int i = 0; call != NULL && i < call->count; i++)
        fprintf(stderr, "%s%s=%#llx", i ? ", " : "", call->parameters[i].name, (unsigned long long)thread->values[i].word);
    fprintf(stderr, ")\n");
}

/* Records a fault on a protected output and permits the write; any other fault is a crash. */
static void faulted(int number, siginfo_t* info, void* context) {
    const uint8_t* at = info->si_addr;
    (void)context;
    for (int t = 0; t < MOST_THREADS; t++) {
        struct thread* thread = &threads[t];
        if (thread->slots == NULL || at < thread->slots || at >= thread->slots + SLOTS * (ROOM + PAGE)) continue;
        const uint64_t slot = (uint64_t)(at - thread->slots) / (ROOM + PAGE), offset = (uint64_t)(at - thread->slots) % (ROOM + PAGE);
        if (offset < ROOM && thread->read_only[slot] != 0) {
            thread->read_only[slot] = 2;
            uint8_t* start = thread->slots + slot * (ROOM + PAGE);
            if (mprotect(start, ROOM, PROT_READ | PROT_WRITE) == 0) return;
        }
        report(thread, offset < ROOM ? "crash on a buffer" : "access beyond a buffer");
    }
    fprintf(stderr, "signal %d at %p\n", number, info->si_addr);
    if (me != NULL) report(me, "crash");
    signal(number, SIG_DFL);
    raise(number);
}

static int libc_sigaction(int number, const struct sigaction* action, struct sigaction* before) {
    int (*function)(int, const struct sigaction*, struct sigaction*);
    *(void**)&function = dlsym(RTLD_NEXT, "sigaction");
    return function(number, action, before);
}

/* Replaces the C library's function in the whole process (symbol interposition). Otherwise an OpenCL driver (LLVM) or
 * an MPI (UCX) that a call loads would replace the handlers of this program. */
int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
    const int is_fault = number == SIGSEGV || number == SIGBUS;
    return libc_sigaction(number, is_fault ? NULL : action, before);
}

static void watch_faults(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    libc_sigaction(SIGSEGV, &action, NULL);
    libc_sigaction(SIGBUS, &action, NULL);
    libc_sigaction(SIGABRT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

/* ---- Structs. ---- */
static const struct shape* shape_of(const char* type) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(shapes[i].name, type) == 0) return &shapes[i];
    return NULL;
}

static void set_integer(uint8_t* field, uint64_t size, uint64_t word) {
    for (uint64_t i = 0; i < size; i += 8) memcpy(field + i, &word, size - i < 8 ? size - i : 8);
}

static void change_field(const struct field* field, uint8_t* start) {
    uint8_t* at = start + field->offset;
    const char* text;
    void (*function)(void);
    uint64_t word;
    switch (field->class) {
        case FIELD_STRING:
            text = some_string();
            memcpy(at, &text, sizeof text);
            break;
        case FIELD_FUNCTION:
            function = some_callback(field->base);
            memcpy(at, &function, sizeof function);
            break;
        case FIELD_HANDLE:
            word = some_handle(noun_of(field->base));
            memcpy(at, &word, sizeof word);
            break;
        case FIELD_INTEGER:
            if (field->choice_count > 0 && !once_in(4)) word = field->choices[below(field->choice_count)];
            else if (strcmp(field->base, "dtl_enum_word_t") == 0) word = some_word();
            else if (strcmp(field->name, "timeout_ns") == 0) word = below(2000000);
            else if (strcmp(field->name, "size") == 0) word = below(4);
            else if (strcmp(field->name, "threads") == 0) word = below(5);
            else word = once_in(2) ? below(4) : edge();
            set_integer(at, field->size, word);
            break;
        default: break; /* pointers stay NULL: other tests cover what they point to */
    }
}

/* Values of struct_size: correct, too small, larger (the buffer is as long), absurd. */
static uint32_t some_struct_size(uint64_t size) {
    switch (below(10)) {
        case 0: return (uint32_t)below(size + 1);
        case 1: return (uint32_t)(size + 8 * below(9));
        case 2: return (uint32_t)edge();
        default: return (uint32_t)size;
    }
}

static void* struct_in(const struct shape* shape, int slot, int output) {
    const uint32_t size = some_struct_size(shape->size);
    uint64_t length = size < 4 ? 4 : size > LONGEST ? shape->size : size;
    uint8_t* start = place(slot, length);
    uint8_t whole[1024];
    memset(whole, 0, sizeof whole);
    memcpy(whole, shape->initial, shape->size);
    for (uint64_t i = 1; !output && i < shape->count; i++)
        if (once_in(4)) change_field(&shape->fields[i], whole);
    memset(start, 0, length);
    memcpy(start, whole, length < shape->size ? length : shape->size);
    if (length > shape->size && once_in(4)) start[length - 1] = 1;
    memcpy(start, &size, 4);
    return start;
}

#endif
