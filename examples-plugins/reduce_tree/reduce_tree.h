/* reduce_tree: a communicator of processes of one machine over shared memory, in which a simulated
 * switch executes barriers and small allreduces by itself. */
#ifndef REDUCE_TREE_H
#define REDUCE_TREE_H

#include <dtl.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { MOST_RANKS = 8, CELLS = 16, CELL_BYTES = 8192, BOARD_BYTES = 4096 };

/* A message, or a part of a long one, in a queue between two ranks. */
typedef struct cell_t {
    uint64_t word, size_bytes; /* of the whole message */
    uint32_t bytes, is_last;
    unsigned char data[CELL_BYTES];
} cell_t;

typedef struct queue_t {
    _Atomic uint64_t read, written; /* cells so far */
    cell_t cells[CELLS];
} queue_t;

/* What the ranks give the switch, and its result; two of each, used in turns. */
typedef struct board_t {
    _Atomic uint64_t complete; /* collectives so far */
    _Atomic int32_t arrived[2];
    unsigned char part[2][MOST_RANKS][BOARD_BYTES];
    unsigned char result[2][BOARD_BYTES];
} board_t;

typedef struct shared_t {
    _Atomic int32_t joined[MOST_RANKS];
    board_t board;
    queue_t queues[]; /* from rank a to rank b at a * size + b */
} shared_t;

/* An operation of this rank. Its address is its number. */
typedef struct op_t {
    struct op_t *next;
    enum { SEND, RECEIVE, COLLECTIVE } kind;
    bool is_done, is_bound, has_arrived;
    int32_t peer; /* of a receive maybe DTL_ANY_SOURCE */
    uint64_t word, size_bytes, moved;
    const unsigned char *from;
    unsigned char *into;
    dtl_coll_args_t args;
    dtl_comm_done_t result;
} op_t;

typedef struct comm_t {
    shared_t *shared;
    int32_t rank, size;
    op_t *sends, *receives, *collectives; /* in the order of their start */
    op_t *incoming[MOST_RANKS];           /* receive of the message that is arriving from a rank */
    uint64_t collective;                  /* number of the first one in the list */
} comm_t;

extern const dtl_host_api_t *host; /* functions of the library, for plugins */

/* comm.c */
void append(op_t **list, op_t *op);
void drop(op_t **list, op_t *op);
op_t *new_op(int kind);
/* switch.c */
void add_collectives(dtl_comm_vtable_t *table);
void move_collectives(comm_t *comm);
/* open.c */
void add_open(dtl_comm_vtable_t *table);

#endif
