// Interface of benches/call_steps.c.
#include <dtl.h>

// Opens it: its functions call the slots of a table. Returns two handles for them.
void steps_open(const dtl_exec_vtable_t *slots, void *self, uint64_t *event, uint64_t *stream);

int32_t step_function(uint64_t event, uint64_t stream);
int32_t step_epoch(uint64_t event, uint64_t stream);
int32_t step_open(uint64_t event, uint64_t stream);
int32_t step_one_handle(uint64_t event, uint64_t stream);
int32_t step_two_handles(uint64_t event, uint64_t stream);
int32_t step_record(uint64_t event, uint64_t stream);
int32_t step_query(uint64_t event, int32_t *out);
