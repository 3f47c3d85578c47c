/* What memory.c hands to the files beside it, and they to it. */
#ifndef EXPORTS_H
#define EXPORTS_H

#include "whole.h"

/* memory.c */
dtl_status_t whole_alloc(void *self, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind, void **out_ptr);
dtl_status_t whole_free(void *self, void *ptr, uint64_t size_bytes, uint64_t alignment, dtl_enum_word_t kind);

/* exports.c: kind SHARED. shared_free: whether it was such. */
dtl_status_t shared_alloc(uint64_t size_bytes, uint64_t alignment, void **out_ptr);
int shared_free(void *ptr);
void add_exports(dtl_memory_vtable_t *table);

/* ordered.c */
void add_ordered(dtl_memory_vtable_t *table);

#endif
