/* Collectives of wire: what collective.c and fold.c share. */
#ifndef COLLECTIVE_H
#define COLLECTIVE_H

#include "wire.h"

/* A message of the base's; HELD: not yet given to it. */
typedef struct message_t {
    enum { HELD, FLYING, ENDED } state;
    int is_receive, is_withdrawn;
    int32_t peer;
    void *buf;
    uint64_t bytes, op;
    dtl_status_t status;
} message_t;

typedef struct coll_t {
    struct coll_t *next; /* in the order of their start */
    dtl_coll_args_t args;
    int32_t rank, size;
    uint64_t unit;                 /* bytes of `count` elements */
    uint64_t number, word;         /* of the operation, and of its messages */
    struct turns_t *turns;         /* its context */
    dtl_coll_range_t *send, *recv; /* the library's, copied */
    message_t *messages;           /* to each rank, then from each rank */
    unsigned char **in, *own;      /* the block of each rank, and what this one sends */
    uint64_t *in_bytes;
    void *memory; /* of all these */
    int is_over, is_canceled;
    dtl_status_t status;
    int32_t failed; /* rank */
} coll_t;

/* fold.c: into = into op from. */
void fold(unsigned char *into, const unsigned char *from, uint64_t count, dtl_dtype_t dtype, dtl_reduce_op_t op);
/* Whether fold has it, and the program may have it in any order. */
int can_fold(const dtl_coll_args_t *args);

#endif
