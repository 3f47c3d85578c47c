/* @NAME@: declarations shared by its files, one for each component and @PLUGIN@. */
#ifndef @UPPER@_H
#define @UPPER@_H

#include <dtl.h>

#include <stdint.h>

/* State of the backend: `self` of every slot. load creates it, and destroy frees it. All threads
 * use it meanwhile, so protect fields that change. */
typedef struct @ID@_backend_t {
    const dtl_host_api_t *host; /* valid until the process ends */
} @ID@_backend_t;

/* Sets the text (as printf) for the failing status that a slot is about to return, and returns that
 * status. Name the cause and the remedy. dtl_last_error shows the text after
 * "backend @NAME@: <slot>: <status>: ". */
dtl_status_t @ID@_fail(const void *self, dtl_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Tables of the components. */
@DECLARATIONS@
#endif
