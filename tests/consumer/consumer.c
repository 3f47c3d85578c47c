/* Uses the installed C header: versions agree, memory works. */
#include <dtl.h>
#include <string.h>

int main(void)
{
    DTL_CHECK(dtl_init(NULL));
    dtl_backend_t host;
    DTL_CHECK(dtl_backend_get("host", &host));
    void *memory = NULL;
    DTL_CHECK(dtl_mem_alloc(host, DTL_MEMORY_HOST, 64, 0, &memory));
    DTL_CHECK(dtl_mem_fill(memory, 7, 64));
    const int right = ((const unsigned char *)memory)[63] == 7;
    DTL_CHECK(dtl_mem_free(host, memory));
    DTL_CHECK(dtl_finalize());
    printf("consumer: dtl %s\n", dtl_version_string());
    return right && strcmp(dtl_version_string(), DTL_VERSION_STRING) == 0 ? 0 : 1;
}
