/* Stands for another minor version of the library, without symbol versions: the same names, another soname. */
#include <dtl.h>

dtl_status_t dtl_init(const dtl_config_t *config)
{
    (void)config;
    return DTL_ERROR_NOT_SUPPORTED;
}

const char *dtl_last_error(void)
{
    return "the other version";
}

const char *dtl_version_string(void)
{
    return "0.9.0";
}
