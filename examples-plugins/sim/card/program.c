/* Programs of the card. A program is one of: C with the macros of dtl_kernel.h, which the C
 * compiler of this machine turns into a shared object; such a shared object; the text
 * "sim:firmware", which names the kernels that the card has itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "card.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SIM_INCLUDE
#define SIM_INCLUDE "/usr/include" /* the folder of dtl_kernel.h */
#endif

extern char **environ;

struct card_program_t {
    int references;
    vc_binary_t *binary; /* NULL: the firmware */
};

/* ---- kernels of the firmware ---- */

static uint64_t index_of(const dtl_kernel_context_t *c)
{
    return (uint64_t)c->block_index[0] * c->block[0] + c->thread_index[0];
}

/* Adds the second argument to each element of the first. */
static dtl_status_t add(const dtl_kernel_context_t *context, const void *const *args)
{
    int32_t *const to = *(int32_t *const *)args[0];
    to[index_of(context)] += *(const int32_t *)args[1];
    return DTL_SUCCESS;
}

/* y[i] += a * x[i] for each i below n. */
static dtl_status_t saxpy(const dtl_kernel_context_t *context, const void *const *args)
{
    const float a = *(const float *)args[0];
    const float *const x = *(const float *const *)args[1];
    float *const y = *(float *const *)args[2];
    const uint64_t i = index_of(context);
    if (i < *(const uint32_t *)args[3]) y[i] += a * x[i];
    return DTL_SUCCESS;
}

static const char firmware_text[] = "sim:firmware";
static const struct {
    const char *name;
    dtl_kernel_fn_t run;
    uint32_t count;
    unsigned long sizes[4];
} firmware[] = {
    {"add", add, 2, {sizeof(void *), sizeof(int32_t)}},
    {"saxpy", saxpy, 4, {sizeof(float), sizeof(void *), sizeof(void *), sizeof(uint32_t)}},
};

/* ---- the compiler ---- */

/* Writes a file below a folder, with the folders of its name. */
static int write_file(const char *folder, const char *name, const void *first, uint64_t first_size,
                      const void *text, uint64_t size)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) return -1;
    for (char *slash = strchr(path + strlen(folder) + 1,
                              '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700); /* a failure shows when the file is opened */
        *slash = '/';
    }
    FILE *file = fopen(path, "wbe");
    if (file == NULL) return -1;
    int good = fwrite(first, 1, first_size, file) == first_size && fwrite(text, 1, size,
                                                                          file) == size;
    if (fclose(file) != 0) good = 0;
    return good ? 0 : -1;
}

static int write_sources(const char *folder, const dtl_source_t *source)
{
    char line[512];
    const char *name = source->name != NULL ? source->name : "source";
    if (strpbrk(name, "\"\\\n") != NULL || strlen(name) > 256) name = "source";
    const int length = snprintf(line, sizeof line, "#line 1 \"%s\"\n", name);
    int result = write_file(folder, "source.c", line, (uint64_t)length, source->text,
                            source->size_bytes);
    for (uint32_t i = 0; i < source->file_count && result == 0; i++) {
        const dtl_source_file_t *file = &source->files[i];
        const void *text = file->text != NULL ? file->text : "";
        const uint64_t size = file->size_bytes != 0 ? file->size_bytes : strlen(text);
        result = write_file(folder, file->name, "", 0, text, size);
    }
    return result;
}

/* Returns the contents of a file with a NUL behind; NULL: it is not there. */
static char *read_file(const char *path, uint64_t *out_size)
{
    struct stat told;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    char *bytes = file >= 0 && fstat(file, &told) == 0 ? malloc((size_t)told.st_size + 1) : NULL;
    if (bytes != NULL && read(file, bytes, (size_t)told.st_size) != told.st_size) {
        free(bytes);
        bytes = NULL;
    }
    if (bytes != NULL) bytes[*out_size = (uint64_t)told.st_size] = '\0';
    if (file >= 0) close(file);
    return bytes;
}

/* Runs the compiler in a process of its own. Returns its errno if it cannot be started. */
static int run_compiler(const char *folder, const dtl_source_t *source)
{
    const char *include = getenv("DTL_BACKEND_SIM_INCLUDE");
    const char *compiler = getenv("DTL_BACKEND_SIM_CC");
    char in[4096], out[4096], log[4096];
    uint32_t count = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    const char **words = calloc(source->option_count + 20, sizeof *words);
    if (words == NULL) return ENOMEM;
    snprintf(in, sizeof in, "%s/source.c", folder);
    snprintf(out, sizeof out, "%s/program.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    const char *const begin[] = {compiler != NULL && *compiler != '\0' ? compiler : "cc",
                                 "-x", "c", "-std=gnu11", "-O2", "-fPIC", "-shared",
                                 "-Wframe-larger-than=1048576", "-I", folder, "-I",
                                 include != NULL && *include != '\0' ? include : SIM_INCLUDE};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++) words[count++] = begin[i];
    for (uint32_t i = 0; i < source->option_count; i++) words[count++] = source->options[i];
    words[count++] = in, words[count++] = "-o", words[count++] = out;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int error = posix_spawnp(&child, words[0], &actions, NULL,
                                   (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    free(words);
    if (error != 0) return error;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    } /* whether it succeeded shows in its files */
    return 0;
}

static int remove_one(const char *path, const struct stat *told, int kind, struct FTW *where)
{
    (void)told, (void)kind, (void)where;
    return remove(path);
}

/* Compiles in a folder that exists. */
static card_error_t compile_in(const char *folder, const dtl_source_t *source, dtl_text_fn_t log,
                               void *log_user, vc_binary_t **out, char *why, uint64_t cap)
{
    char path[4096];
    uint64_t size = 0;
    if (write_sources(folder, source) != 0) {
        snprintf(why, cap, "the source cannot be written to %s: %s", folder, strerror(errno));
        return CARD_NO_MEMORY;
    }
    const int error = run_compiler(folder, source);
    if (error != 0) {
        snprintf(why, cap,
                 "the C compiler cannot be started: %s; install cc, or set DTL_BACKEND_SIM_CC",
                 strerror(error));
        return CARD_NO_COMPILER;
    }
    snprintf(path, sizeof path, "%s/log", folder);
    char *text = read_file(path, &size);
    if (text != NULL && size > 0) log(log_user, text, size);
    snprintf(why, cap, "%.*s", text != NULL ? (int)strcspn(text, "\n") : 0,
             text != NULL ? text : "");
    free(text);
    snprintf(path, sizeof path, "%s/program.so", folder);
    char *bytes = read_file(path, &size);
    if (bytes == NULL) return CARD_BAD_PROGRAM;
    *out = vc_binary_load(bytes, size, why, cap);
    free(bytes);
    if (*out == NULL) log(log_user, why, strlen(why)); /* an undefined function, for example */
    return *out != NULL ? CARD_OK : CARD_BAD_PROGRAM;
}

static card_error_t compile(const dtl_source_t *source, dtl_text_fn_t log, void *log_user,
                            vc_binary_t **out, char *why, uint64_t cap)
{
    char folder[2048];
    const char *where = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/sim-XXXXXX", where != NULL &&
             *where != '\0' ? where : "/tmp");
    if (mkdtemp(folder) == NULL) {
        snprintf(why, cap, "no folder for the compiler, %s: %s; set TMPDIR", folder,
                 strerror(errno));
        return CARD_NO_COMPILER;
    }
    const card_error_t error = compile_in(folder, source, log, log_user, out, why, cap);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return error;
}

/* ---- programs ---- */

card_error_t card_compile(const dtl_source_t *source, dtl_text_fn_t log, void *log_user,
                          card_program_t **out, char *why, uint64_t cap)
{
    vc_binary_t *binary = NULL;
    if (source->language == 0 || source->language == DTL_LANGUAGE_C) {
        const card_error_t error = compile(source, log, log_user, &binary, why, cap);
        if (error != CARD_OK) return error;
    } else if (source->language != DTL_LANGUAGE_BINARY) {
        return CARD_BAD_LANGUAGE;
    } else if (strncmp(source->text, firmware_text, sizeof firmware_text - 1) != 0) {
        binary = vc_binary_load(source->text, source->size_bytes, why, cap);
        if (binary == NULL) {
            log(log_user, why, strlen(why));
            return CARD_BAD_PROGRAM;
        }
    }
    card_program_t *made = malloc(sizeof *made);
    if (made == NULL) {
        if (binary != NULL) vc_binary_release(binary);
        return CARD_NO_MEMORY;
    }
    *made = (card_program_t){1, binary};
    *out = made;
    return CARD_OK;
}

card_program_t *card_program_keep(card_program_t *program)
{
    if (program != NULL) __atomic_add_fetch(&program->references, 1, __ATOMIC_RELAXED);
    return program;
}

void card_program_release(card_program_t *program)
{
    if (program == NULL || __atomic_sub_fetch(&program->references, 1,
                                              __ATOMIC_ACQ_REL) != 0) return;
    if (program->binary != NULL) vc_binary_release(program->binary);
    free(program);
}

card_error_t card_find(card_program_t *program, const char *name, card_kernel_t *out)
{
    /* What DTL_KERNEL of dtl_kernel.h defines on the host. */
    const struct entry_t {
        unsigned version, count;
        dtl_kernel_fn_t run;
        unsigned long sizes[16];
    } *entry;
    char symbol[512];
    for (size_t i = 0; program->binary == NULL && i < sizeof firmware / sizeof *firmware; i++) {
        if (strcmp(firmware[i].name, name) != 0) continue;
        *out = (card_kernel_t){.run = firmware[i].run, .count = firmware[i].count,
                               .sizes = firmware[i].sizes};
        out->program = card_program_keep(program);
        return CARD_OK;
    }
    if (program->binary == NULL) return CARD_NO_KERNEL;
    if ((size_t)snprintf(symbol, sizeof symbol, "dtl_kernel_1_%s",
                         name) >= sizeof symbol) return CARD_NO_KERNEL;
    entry = vc_binary_symbol(program->binary, symbol);
    if (entry == NULL || entry->version != 1) return CARD_NO_KERNEL;
    *out = (card_kernel_t){.run = entry->run, .is_of_block = 1, .count = entry->count,
                           .sizes = entry->sizes};
    out->program = card_program_keep(program);
    return CARD_OK;
}

/* The size of the next argument of a signature. */
static unsigned long next_size(const char **at)
{
    char *end;
    unsigned long size;
    switch (*(*at)++) {
    case 'b': case 'B':
        return 1;
    case 'h': case 'H': case 'e':
        return 2;
    case 'i': case 'I': case 'f':
        return 4;
    case '[': /* [n] */
        size = strtoul(*at, &end, 10);
        *at = end + 1;
        return size;
    default:
        return 8;
    }
}

int card_differs(const card_kernel_t *kernel, const char *signature)
{
    uint32_t i = 0;
    if (signature == NULL) return -1;
    for (; *signature != '\0' && i < kernel->count; i++) {
        if (next_size(&signature) != kernel->sizes[i]) return (int)i;
    }
    return *signature == '\0' && i == kernel->count ? -1 : (int)i;
}
