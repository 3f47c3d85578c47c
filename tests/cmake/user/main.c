/* The backend was linked and registered, though nothing here names a function of it; its flags stay its own. */
#include <dtl.h>
#ifdef FAKE_BLAS
#error "a definition of an environment has leaked"
#endif

int main(void)
{
    dtl_backend_t backend;
    DTL_CHECK(dtl_backend_get("keep", &backend));
    return 0;
}
