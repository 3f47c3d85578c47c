/* hash_table: a table of counts whose slots lie in the memory of all ranks, and that all ranks fill at the same time.
 *
 * Each rank counts the keys of its own part of the data; many keys are in several parts. A key's hash says in which slot
 * of which rank it belongs. Who comes first claims the slot by compare_and_swap; if another key is there, the next slot is
 * tried (linear probing, round all ranks). Counts grow by atomic sums. No rank sends a message, none waits for one, and
 * the rank that a slot belongs to takes no part.
 *
 * Build: cc hash_table.c $(pkg-config --cflags --libs libdtl) -o hash_table
 * Run:   dtlrun -n 4 ./hash_table [keys per rank, default 2000] [different keys, default 500] [slots per rank]
 *        As a default there are twice as many slots as different keys. With fewer than keys the table becomes full.
 * Prints, from rank 0, what is in the table, and whether that is what one rank alone counts.
 */
#include <dtl.h>

#include <stdio.h>
#include <stdlib.h>

enum { EMPTY = 0 }; /* no key; what memory of dtl_win_allocate begins with */

typedef struct table {
    dtl_win_t win;
    const uint64_t *own; /* this rank's slots: key, count, key, count, … */
    uint64_t slots;      /* of each rank */
    int32_t ranks;
} table;

/* Where a slot is: displacements at its rank, in words of 8 bytes. */
typedef struct slot {
    int32_t rank;
    uint64_t key, count;
} slot;

/* Spreads numbers evenly (the end of splitmix64). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The slot for a key after so many others that were taken. */
static slot slot_of(const table *t, uint64_t key, uint64_t tried)
{
    const uint64_t all = t->slots * (uint64_t)t->ranks, index = (mix(key) % all + tried) % all, there = index % t->slots;
    return (slot){.rank = (int32_t)(index / t->slots), .key = 2 * there, .count = 2 * there + 1};
}

/* Adds to the count of a key. Returns 0 if there is no slot left for it.
 * `count` is read later, maybe: it must stay as it is until the next flush or unlock. */
static int add(const table *t, uint64_t key, const uint64_t *count)
{
    static const uint64_t empty = EMPTY;
    for (uint64_t tried = 0; tried < t->slots * (uint64_t)t->ranks; tried++) {
        const slot at = slot_of(t, key, tried);
        uint64_t before = 0;
        /* If the slot is empty it is ours, and nobody else can think so: looking and storing are one step. `before` is
         * there after a flush of this rank's operations; the local kind does not wait for anything but that. */
        DTL_CHECK(dtl_win_compare_and_swap(t->win, &key, &empty, &before, DTL_DTYPE_UINT64, at.rank, at.key));
        DTL_CHECK(dtl_win_flush_local(t->win, at.rank));
        if (before == EMPTY || before == key) {
            /* Not waited for. A sum, so that nobody's addition is lost. To set a value instead, DTL_OP_REPLACE: a
             * dtl_win_put is not atomic, and others may be at the same element. */
            DTL_CHECK(dtl_win_accumulate(t->win, count, 1, DTL_DTYPE_UINT64, at.rank, at.count, DTL_OP_SUM));
            return 1;
        }
    }
    return 0;
}

/* The count of a key, 0 if it is not there; also while others add to it. */
static uint64_t find(const table *t, uint64_t key)
{
    for (uint64_t tried = 0; tried < t->slots * (uint64_t)t->ranks; tried++) {
        const slot at = slot_of(t, key, tried);
        uint64_t got[2] = {EMPTY, 0}; /* key and count */
        /* NO_OP changes nothing, which makes this an atomic get. dtl_win_get would do if nobody could change the
         * table meanwhile; now it might get half of the old bytes and half of the new ones. */
        DTL_CHECK(dtl_win_get_accumulate(t->win, NULL, got, 2, DTL_DTYPE_UINT64, at.rank, at.key, DTL_OP_NO_OP));
        DTL_CHECK(dtl_win_flush_local(t->win, at.rank));
        if (got[0] == EMPTY) return 0; /* keys are never taken out, so it is in no later slot */
        if (got[0] == key) return got[1];
    }
    return 0;
}

/* The data: key number `i` of a rank's part. Low ones are more frequent than high ones. */
static uint64_t key_at(int32_t rank, uint64_t i, uint64_t different)
{
    const uint64_t one = mix(((uint64_t)rank << 32) + 2 * i + 1) % different;
    const uint64_t other = mix(((uint64_t)rank << 32) + 2 * i + 2) % different;
    return 1 + (one < other ? one : other);
}

typedef struct totals {
    uint64_t counted, refused, used, wrong; /* additions in the table and not in it, slots, keys with wrong counts */
} totals;

/* Adds all keys of this rank's part. */
static void fill(const table *t, int32_t rank, uint64_t keys, uint64_t different, totals *sum)
{
    static const uint64_t one = 1;
    for (uint64_t i = 0; i < keys; i++) {
        const uint64_t key = key_at(rank, i, different);
        if (!add(t, key, &one)) {
            sum->refused++;
        } else if (i % 16 == 0 && find(t, key) == 0) {
            sum->wrong++; /* what a rank has added it finds at once: its operations on one element keep their order */
        }
    }
}

/* This rank's share of the keys against counting them alone, and its own slots. All additions are over. */
static void verify(const table *t, int32_t rank, uint64_t keys, uint64_t different, totals *sum)
{
    uint64_t *expected = calloc(different + 1, sizeof *expected);
    if (expected == NULL) perror("hash_table"), exit(1);
    for (int32_t other = 0; other < t->ranks; other++) {
        for (uint64_t i = 0; i < keys; i++) expected[key_at(other, i, different)]++;
    }
    for (uint64_t key = 1 + (uint64_t)rank; key <= different; key += (uint64_t)t->ranks) {
        const uint64_t count = find(t, key);
        sum->counted += count;
        /* All of a key's additions, or none: a full table does not become less full. */
        sum->wrong += count != expected[key] && count != 0;
    }
    for (uint64_t i = 0; i < t->slots; i++) sum->used += t->own[2 * i] != EMPTY;
    free(expected);
}

/* Makes a table, fills it, verifies it; what all ranks found. */
static totals count_keys(int32_t rank, int32_t size, uint64_t keys, uint64_t different, uint64_t slots)
{
    table t = {.slots = slots, .ranks = size};
    totals own = {0}, all = {0};
    void *base = NULL;
    /* The displacement's unit is a word. The memory is zeroed, so all slots are empty, on all ranks once the call
     * returns. On one node it is memory that the others reach by themselves. */
    DTL_CHECK(dtl_win_allocate(DTL_COMM_WORLD, slots * 2 * sizeof(uint64_t), sizeof(uint64_t), &base, &t.win));
    t.own = base;
    /* One epoch for everything: keys may go to any rank. The locks are shared ones: what ranks do to one element at
     * the same time is right because it is atomic, not because they take turns. */
    DTL_CHECK(dtl_win_lock_all(t.win));
    fill(&t, rank, keys, different, &own);
    DTL_CHECK(dtl_win_flush_all(t.win));           /* this rank's additions are at their targets, */
    DTL_CHECK(dtl_comm_barrier(DTL_COMM_WORLD));   /* and so are everybody's: own slots may be read as plain memory */
    verify(&t, rank, keys, different, &own);
    DTL_CHECK(dtl_win_unlock_all(t.win));
    DTL_CHECK(dtl_win_destroy(t.win)); /* waits for all, and frees the slots */
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &own, &all, sizeof all / sizeof(uint64_t), DTL_DTYPE_UINT64, DTL_OP_SUM));
    return all;
}

int main(int argc, char **argv)
{
    int32_t rank = 0, size = 0;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    const long long keys = argc > 1 ? atoll(argv[1]) : 2000, different = argc > 2 ? atoll(argv[2]) : 500;
    const long long slots = argc > 3 ? atoll(argv[3]) : 2 * different / size + 1, most = 100000000;
    if (argc > 4 || keys < 1 || different < 1 || slots < 1 || keys > most || different > most || slots > most) {
        fprintf(stderr, "usage: hash_table [keys per rank] [different keys] [slots per rank], each 1 to %lld\n", most);
        return 2;
    }

    const totals all = count_keys(rank, size, (uint64_t)keys, (uint64_t)different, (uint64_t)slots);
    const uint64_t added = (uint64_t)keys * (uint64_t)size, room = (uint64_t)slots * (uint64_t)size;
    /* Every addition is there or was refused, and that only by a full table. */
    const int good = all.wrong == 0 && all.counted + all.refused == added && (all.refused == 0 || all.used == room);
    if (rank == 0) {
        if (all.refused > 0) printf("the table is full: %llu keys refused\n", (unsigned long long)all.refused);
        printf("%d ranks, %llu of %llu keys counted, in %llu of %llu slots: %s\n", (int)size,
               (unsigned long long)all.counted, (unsigned long long)added, (unsigned long long)all.used,
               (unsigned long long)room, good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
