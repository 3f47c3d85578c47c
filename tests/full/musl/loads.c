/* What needs the dynamic loader says why it is not available. Prints a line for each text that does not. */
#include <dtl.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char *const names[] = {"cuda", "opencl", "mpi", "rdma", "nccl"};
    const char *const wanted = "this program is linked statically with musl, which cannot load libraries";
    int wrong = 0;
    dtl_backend_t backend;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t there;
        char why[1024];
        DTL_CHECK(dtl_backend_get(names[i], &backend));
        DTL_CHECK(dtl_backend_is_available(backend, &there, why, sizeof why, NULL));
        if (there || strstr(why, wanted) == NULL) {
            printf("%s: %s\n", names[i], why);
            wrong = 1;
        }
    }
    if (argc < 2 || dtl_backend_load(argv[1], &backend) != DTL_ERROR_UNAVAILABLE || strstr(dtl_last_error(), wanted) == NULL) {
        printf("plugin: %s\n", dtl_last_error());
        wrong = 1;
    }
    return wrong;
}
