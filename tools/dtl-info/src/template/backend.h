/* @NAME@: what its files share. Each component has a file; @PLUGIN@ puts them together. */
#ifndef @UPPER@_H
#define @UPPER@_H

#include <dtl.h>

#include <stdint.h>

/* The backend's state: `self` of every slot. load makes it, destroy ends it; in between it belongs to all
 * threads, so guard what changes. */
typedef struct @ID@_backend_t {
    const dtl_host_api_t *host; /* what the library gives a plugin; lives as long as the process */
} @ID@_backend_t;

/* Notes a text (as printf) for the failing status that a slot is about to return, and gives the status back.
 * Name what is wrong and say what to do: dtl_last_error shows it behind "backend @NAME@: <slot>: <status>: ". */
dtl_status_t @ID@_fail(const void *self, dtl_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The components' tables. */
@DECLARATIONS@
#endif
