/* hello: which libdtl this is, which backends it has, and one trip of data through a device.
 *
 * Build: cc hello.c $(pkg-config --cflags --libs libdtl) -o hello
 * Run:   ./hello                      (or DTL_BACKEND=null ./hello to choose another backend)
 * Prints the version, a line for each backend, the device in use, what came back from it, "done".
 * It creates no thread.
 */
#include <dtl.h>

#include <stdio.h>
#include <string.h>

static void list_backends(void)
{
    uint64_t count = 0;
    DTL_CHECK(dtl_backend_count(&count));
    for (uint64_t i = 0; i < count; i++) {
        dtl_backend_t backend;
        int32_t available = 0;
        char why_not[256] = "";
        DTL_CHECK(dtl_backend_at(i, &backend));
        DTL_CHECK(dtl_backend_is_available(backend, &available, why_not, sizeof why_not, NULL));
        printf("  %-10s %s%s\n", dtl_backend_name(backend),
               available ? "available" : "not available: ", why_not);
    }
}

int main(void)
{
    const char text[] = "hello, device";
    char back[sizeof text] = "";
    dtl_backend_t backend;
    int32_t device = 0;
    dtl_device_info_t info = DTL_DEVICE_INFO_INIT;
    void *memory = NULL;

    printf("libdtl %s, backends:\n", dtl_version_string());
    DTL_CHECK(dtl_init(NULL));
    list_backends();

    /* NULL: the one that DTL_BACKEND names, else the best available. */
    DTL_CHECK(dtl_backend_get(NULL, &backend));
    DTL_CHECK(dtl_backend_get_device(backend, &device));
    DTL_CHECK(dtl_device_info(backend, device, &info));
    printf("using %s, device %d: %s\n", dtl_backend_name(backend), (int)device, info.name);

    DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_DEVICE, sizeof text, 0, &memory));
    DTL_CHECK(dtl_mem_copy(memory, text, sizeof text)); /* whose memory it is, is found out */
    DTL_CHECK(dtl_mem_copy(back, memory, sizeof back));
    DTL_CHECK(dtl_mem_free(backend, memory));
    DTL_CHECK(dtl_finalize());

    printf("back from the device: %s\n", back);
    if (strcmp(text, back) != 0) {
        fprintf(stderr, "hello: the bytes that came back differ from those that went\n");
        return 1;
    }
    printf("done\n");
    return 0;
}
