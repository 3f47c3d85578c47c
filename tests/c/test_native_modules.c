/* The modules slots of a registered exec table: what they are given, how their answers come through, groups that are not
 * whole, and what ends when. The backend computes nothing: its compiler reads a number. C11, and valid C++17. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "far.h"
#include <stddef.h>

static struct {
    int compiled, modules, kernels, launches;
    dtl_status_t failure;
    int gives_null;
    uint32_t count, files;
    uint64_t sizes[4];
} slots;

static int a_stream, a_module, a_kernel;

static dtl_status_t fail(const char *text) {
    DTL_IGNORE(dtl_backend_set_error(text));
    return slots.failure;
}

static dtl_status_t create(void *self, int32_t device, uint64_t flags, void **out) {
    (void)self, (void)device, (void)flags;
    *out = &a_stream;
    return DTL_SUCCESS;
}

static dtl_status_t two(void *self, int32_t *out) {
    CHECK(self == &slots);
    *out = 2;
    return DTL_SUCCESS;
}

static dtl_status_t one(void *self, void *stream) {
    CHECK(self == &slots && stream == &a_stream);
    return DTL_SUCCESS;
}

static dtl_status_t compile(void *self, int32_t device, const dtl_source_t *source, dtl_text_fn_t log, void *log_user, void **out) {
    CHECK(self == &slots && device == 0 && source->struct_size == sizeof *source && log != NULL);
    CHECK(source->size_bytes == 4 && memcmp(source->text, "text", 5) == 0);
    CHECK(source->language == DTL_LANGUAGE_PTX && strcmp(source->name, "the name") == 0);
    CHECK(source->option_count == 2 && strcmp(source->options[0], "one") == 0 && strcmp(source->options[1], "two") == 0);
    CHECK(source->file_count == slots.files && source->environment_count == 0);
    if (slots.files == 1) {
        const dtl_source_file_t *file = source->files;
        CHECK(strcmp(file->name, "x.h") == 0 && strcmp((const char *)file->text, "inside") == 0 && file->size_bytes == 6);
    }
    slots.compiled++;
    log(log_user, "first line\nmore", 11);
    log(log_user, "an error: second", 16);
    if (slots.failure != DTL_SUCCESS) return fail("said by the slot");
    slots.modules++;
    *out = slots.gives_null ? NULL : &a_module;
    return DTL_SUCCESS;
}

static dtl_status_t module_destroy(void *self, void *module) {
    CHECK(self == &slots && module == &a_module && slots.kernels == 0);
    slots.modules--;
    return DTL_SUCCESS;
}

static dtl_status_t kernel_get(void *self, void *module, const char *name, const char *signature, void **out) {
    CHECK(self == &slots && module == &a_module && strcmp(name, "k") == 0);
    CHECK(signature == NULL || strcmp(signature, "pf") == 0);
    if (slots.failure != DTL_SUCCESS) return fail("no k here");
    slots.kernels++;
    *out = slots.gives_null ? NULL : &a_kernel;
    return DTL_SUCCESS;
}

static dtl_status_t kernel_destroy(void *self, void *kernel) {
    CHECK(self == &slots && kernel == &a_kernel && slots.modules > 0);
    slots.kernels--;
    return DTL_SUCCESS;
}

static dtl_status_t kernel_launch(void *self, void *stream, void *kernel, const dtl_launch_t *launch, const void *const *args,
                                  const uint64_t *sizes, uint64_t count) {
    uint32_t i;
    CHECK(self == &slots && stream == &a_stream && kernel == &a_kernel && launch->grid[0] == 5 && launch->block[2] == 2);
    if (slots.failure != DTL_SUCCESS) return fail("no launch today");
    slots.launches++;
    slots.count = count;
    for (i = 0; i < count; i++) slots.sizes[i] = sizes[i];
    CHECK(count == 0 || *(const float *)args[count - 1] == 2.5f);
    return DTL_SUCCESS;
}

static dtl_exec_vtable_t whole(void) {
    dtl_exec_vtable_t exec = DTL_EXEC_VTABLE_INIT;
    exec.stream_create = create, exec.stream_destroy = one, exec.stream_synchronize = one;
    exec.module_compile = compile, exec.module_destroy = module_destroy;
    exec.kernel_get = kernel_get, exec.kernel_destroy = kernel_destroy, exec.kernel_launch = kernel_launch;
    return exec;
}

static dtl_status_t add(const char *name, const dtl_exec_vtable_t *exec, dtl_backend_t *out) {
    dtl_backend_vtable_t table = DTL_BACKEND_VTABLE_INIT;
    dtl_device_vtable_t device = DTL_DEVICE_VTABLE_INIT;
    device.count = two, device.set = far_set, device.get = far_get_device;
    table.auto_priority = INT32_MIN;
    table.device = &device, table.exec = exec;
    return dtl_backend_register(name, &table, &slots, 0, out);
}

static void not_added(const dtl_exec_vtable_t *exec, const char *words) {
    dtl_backend_t out = {77};
    CHECK_STATUS(add("half", exec, &out), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(words);
    CHECK(out.id == 77);
}

static void test_groups(void) {
    dtl_exec_vtable_t exec = whole();
    const char *const options[2] = {"one", "two"};
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_module_t module = {77};
    dtl_backend_t old;
    int32_t yes = 1;
    exec.module_compile = NULL;
    not_added(&exec, "exec.module_compile is NULL");
    exec = whole(), exec.kernel_launch = NULL;
    not_added(&exec, "exec.kernel_launch is NULL");
    exec = whole(), exec.kernel_get = NULL;
    not_added(&exec, "modules slots come all together");
    exec = whole(), exec.stream_create = NULL, exec.stream_destroy = NULL, exec.stream_synchronize = NULL;
    not_added(&exec, "exec.stream_create is NULL");
    /* A table of a header without these slots. */
    exec = whole(), exec.struct_size = (uint32_t)offsetof(dtl_exec_vtable_t, module_compile);
    CHECK_OK(add("old", &exec, &old));
    CHECK_OK(dtl_backend_supports(old, "modules", &yes));
    source.text = "text", source.options = options, source.option_count = 2;
    CHECK(yes == 0);
    CHECK_STATUS(dtl_module_compile(old, 0, &source, &module), DTL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT("old");
    CHECK(module.id == 77 && slots.compiled == 0);
    CHECK_OK(dtl_backend_unregister(old));
}

int main(void) {
    const dtl_exec_vtable_t exec = whole();
    const char *const options[2] = {"one", "two"};
    dtl_source_t source = DTL_SOURCE_INIT;
    dtl_launch_t launch = DTL_LAUNCH_INIT;
    dtl_module_t module = {77}, other;
    const dtl_source_file_t file = {"x.h", "inside", 0, 0};
    dtl_kernel_t kernel = {77}, plain;
    dtl_stream_t stream, far_stream;
    dtl_backend_t card;
    char log[64];
    void *pointer = log;
    const float number = 2.5f;
    const void *args[2] = {&pointer, &number};
    uint64_t sizes[2] = {8, 4}, length;
    int32_t yes = 0;
    test_groups();
    CHECK_OK(add("card", &exec, &card));
    CHECK_OK(dtl_backend_supports(card, "modules", &yes));
    CHECK(yes == 1);
    source.text = "text", source.size_bytes = 4, source.language = DTL_LANGUAGE_PTX, source.name = "the name";
    source.options = options, source.option_count = 2;

    slots.failure = DTL_ERROR_COMPILE_FAILED;
    CHECK_STATUS(dtl_module_compile(card, 0, &source, &module), DTL_ERROR_COMPILE_FAILED);
    CHECK_TEXT("card");
    CHECK_TEXT("said by the slot");
    CHECK_TEXT("an error: second");
    CHECK_OK(dtl_module_log(DTL_MODULE_NULL, log, sizeof log, &length));
    CHECK(length == 27 && strcmp(log, "first line\nan error: second") == 0);
    slots.failure = 12345;
    CHECK_STATUS(dtl_module_compile(card, 0, &source, &module), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("12345");
    slots.failure = DTL_SUCCESS;
    slots.gives_null = 1;
    CHECK_STATUS(dtl_module_compile(card, 0, &source, &module), DTL_ERROR_NATIVE_BACKEND);
    CHECK_TEXT("module_compile");
    slots.gives_null = 0, slots.modules = 0;
    CHECK(module.id == 77);
    CHECK_OK(dtl_module_compile(card, 0, &source, &module));
    source.files = &file, source.file_count = slots.files = 1; /* a file that comes with it */
    CHECK_OK(dtl_module_compile(card, 0, &source, &other));
    CHECK_OK(dtl_module_destroy(other));
    CHECK_OK(dtl_module_log(module, log, sizeof log, NULL));
    CHECK(strcmp(log, "first line\nan error: second") == 0);

    slots.failure = DTL_ERROR_NOT_FOUND;
    CHECK_STATUS(dtl_kernel_get(module, "k", NULL, &kernel), DTL_ERROR_NOT_FOUND);
    CHECK_TEXT("no k here");
    CHECK_TEXT("the name");
    slots.failure = DTL_SUCCESS;
    CHECK(kernel.id == 77);
    CHECK_OK(dtl_kernel_get(module, "k", "pf", &kernel));
    CHECK_OK(dtl_kernel_get(module, "k", NULL, &plain));
    CHECK(slots.kernels == 2);
    CHECK_STATUS(dtl_backend_unregister(card), DTL_ERROR_BUSY);
    CHECK_OK(dtl_module_destroy(module));
    CHECK(slots.modules == 1); /* its kernels keep it */

    CHECK_OK(dtl_stream_create(card, 0, 0, &stream));
    launch.grid[0] = 5, launch.block[2] = 2;
    CHECK_OK(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 2));
    CHECK(slots.launches == 1 && slots.count == 2 && slots.sizes[0] == 8 && slots.sizes[1] == 4);
    sizes[0] = 4;
    CHECK_STATUS(dtl_kernel_launch(stream, kernel, &launch, args, sizes, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("argument 0 of kernel 'k'");
    CHECK_OK(dtl_kernel_launch(stream, plain, &launch, args, sizes, 2)); /* nothing says what it takes */
    CHECK(slots.launches == 2 && slots.sizes[0] == 4);
    CHECK_OK(dtl_kernel_launch(stream, plain, &launch, NULL, NULL, 0));
    CHECK(slots.launches == 3 && slots.count == 0);
    slots.failure = DTL_ERROR_BACKEND;
    CHECK_STATUS(dtl_kernel_launch(stream, plain, &launch, NULL, NULL, 0), DTL_ERROR_BACKEND);
    CHECK_TEXT("no launch today");
    slots.failure = DTL_SUCCESS;
    launch.grid[1] = 0;
    CHECK_STATUS(dtl_kernel_launch(stream, plain, &launch, NULL, NULL, 0), DTL_ERROR_INVALID_ARGUMENT);

    launch.grid[1] = 1;
    CHECK_OK(dtl_stream_create(card, 1, 0, &far_stream));
    CHECK_STATUS(dtl_kernel_launch(far_stream, plain, &launch, args, sizes, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("kernel 'k' was compiled for device 0 and the stream is of device 1");
    CHECK(slots.launches == 3);
    CHECK_OK(dtl_stream_destroy(far_stream));

    CHECK_OK(dtl_kernel_destroy(plain));
    CHECK(slots.kernels == 1 && slots.modules == 1);
    CHECK_OK(dtl_kernel_destroy(kernel));
    CHECK(slots.kernels == 0 && slots.modules == 0);
    CHECK_OK(dtl_stream_destroy(stream));
    CHECK_OK(dtl_backend_unregister(card));
    return 0;
}
