/* Planted faults: which one is on, and the three that every slot has.
 *
 * MUTANT names one fault: component.slot.fault. It is read once, when the plugin is loaded; without it the
 * plugin is correct. The specific faults stand where they act, as is_fault("..."); mutants.txt lists them all. */
#ifndef FAULT_H
#define FAULT_H

#include <dtl.h>

#define ODD_STATUS 31337 /* no status of the library's */

void fault_read(void);
int is_fault(const char *name);
/* The variable's value: a fault, or the name of a variant without one; "" = nothing planted. */
const char *fault_name(void);

/* The slot component.slot around the function `work`: it fails, does nothing, or answers an unknown status.
 * `parameters` and `arguments` are lists in parentheses. */
#define SLOT(component, slot, work, parameters, arguments) \
    static dtl_status_t slot_##slot parameters \
    { \
        dtl_status_t status; \
        if (is_fault(#component "." #slot ".fails")) { \
            return DTL_ERROR_INTERNAL; \
        } \
        if (is_fault(#component "." #slot ".nothing")) { \
            return DTL_SUCCESS; \
        } \
        status = work arguments; \
        if (status == DTL_SUCCESS && is_fault(#component "." #slot ".odd_status")) { \
            return ODD_STATUS; \
        } \
        return status; \
    }

#endif
