/* Which fault is on. */
#include "fault.h"

#include <stdlib.h>
#include <string.h>

static char planted[128]; /* "" = none; written before the first slot is called */

void fault_read(void)
{
    const char *name = getenv("MUTANT");
    planted[0] = '\0';
    if (name != NULL && strlen(name) < sizeof planted) {
        memcpy(planted, name, strlen(name) + 1);
    }
}

int is_fault(const char *name)
{
    return planted[0] != '\0' && strcmp(planted, name) == 0;
}

const char *fault_name(void)
{
    return planted;
}
