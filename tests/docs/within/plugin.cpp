// Function around the block for plugins of docs/how-to/extend-enumerations.md.
#include <dtl_backend.h>

dtl_status_t load(const dtl_host_api_t *host)
{
    dtl_enum_word_t kind;
#include "block"
    return status;
}
