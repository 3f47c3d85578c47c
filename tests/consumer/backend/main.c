/* Both backends are there: one was registered before main, one is registered here. */
#include <dtl_backend_my_mem.h>

int main(void)
{
    dtl_backend_t backend;
    DTL_CHECK(dtl_backend_get("early", &backend));
    DTL_CHECK(dtl_register_backend_my_mem());
    DTL_CHECK(dtl_backend_get("my-mem", &backend));
    void *memory = NULL;
    DTL_CHECK(dtl_mem_alloc(backend, DTL_MEMORY_HOST, 100, 0, &memory));
    DTL_CHECK(dtl_mem_free(backend, memory));
    puts("consumer: both backends work");
    return 0;
}
