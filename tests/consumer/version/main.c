/* Links this version, and loads a library that is linked with another one. */
#include <dlfcn.h>
#include <dtl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    dtl_status_t (*use)(void);
    void *user;
    DTL_CHECK(dtl_init(NULL));
    user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (user == NULL || (*(void **)&use = dlsym(user, "use")) == NULL) {
        return 1;
    }
    return use() == DTL_ERROR_INCOMPATIBLE_ABI ? 0 : 2;
}
