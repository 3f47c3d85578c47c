/* One-sided cases for oracle.c: the same windows, epochs and operations with MPI_Win_*. The same places and inputs as in
 * tools/dtl-ctk/src/window, written once more. What is refused there (misuse) is not tried here.
 *
 * MPI has no operations of the program's for windows: what it has no dtype for, and operations of two kinds on one
 * element at once, each rank does in turn with get and put, under an exclusive lock. */
#ifndef ORACLE_WINDOW_H
#define ORACLE_WINDOW_H

enum { MAX_PHASES = 4, MAX_ACTS = 8, MAX_REPEATS = 8, NOBODY = 1000 };
enum { FENCE, LOCK_ALL, EACH, NESTED };
enum { PUT, GET, ACCUMULATE, ORDERED, CLAIM, WATCH, LOCKED, MIXED };

typedef struct act {
    int kind, dtype, op;
    int64_t target, origin, count, repeats, form, gap, aligned, flush;
    int64_t elem, first; /* bytes of an element; where it begins in the target's part */
} act;

typedef struct phase {
    int sync, exclusive, act_count;
    act acts[MAX_ACTS];
} phase;

typedef struct story {
    int phase_count, allocated;
    int64_t units[MAX_RANKS], tails[MAX_RANKS], sizes[MAX_RANKS];
    phase phases[MAX_PHASES];
} story;

/* What a rank has in an epoch: results by act and repeat. */
typedef struct epoch {
    const view *v;
    const story *t;
    int number;
    MPI_Win win;
    unsigned char *input[MAX_ACTS][MAX_REPEATS], *result[MAX_ACTS][MAX_REPEATS];
    MPI_Request requests[MAX_ACTS * MAX_REPEATS];
    int request_count;
} epoch;

static void read_story(char **text, story *t) {
    int64_t ranks, i, k;
    t->phase_count = (int)number(text);
    if (t->phase_count == 0) return;
    t->allocated = (int)number(text);
    ranks = number(text);
    for (i = 0; i < ranks; i++) t->units[i] = number(text);
    for (i = 0; i < ranks; i++) t->tails[i] = number(text);
    for (i = 0; i < t->phase_count; i++) {
        phase *p = &t->phases[i];
        p->sync = (int)number(text);
        p->exclusive = (int)number(text);
        p->act_count = (int)number(text);
        for (k = 0; k < p->act_count; k++) {
            act *a = &p->acts[k];
            a->kind = (int)number(text);
            a->dtype = (int)number(text);
            a->op = (int)number(text);
            a->target = number(text);
            a->origin = number(text);
            a->count = number(text);
            a->repeats = number(text);
            a->form = number(text);
            a->gap = number(text);
            a->aligned = number(text);
            a->flush = number(text);
            a->elem = size_of(a->dtype);
        }
    }
}

/* One call for each element. */
static int is_single(const act *a) {
    return a->kind == CLAIM || a->kind == LOCKED || a->kind == MIXED || (a->kind != PUT && a->kind != GET && a->form == 2);
}

static void place_acts(const view *v, story *t) {
    int i, k;
    for (i = 0; i < v->size; i++) t->sizes[i] = t->tails[i];
    for (i = 0; i < t->phase_count; i++) {
        int64_t ends[MAX_RANKS] = {0};
        for (k = 0; k < t->phases[i].act_count; k++) {
            act *a = &t->phases[i].acts[k];
            a->target %= v->size;
            a->origin %= v->size;
            if (is_single(a) && a->elem % t->units[a->target] != 0 && a->count > 1) a->count = 1;
            a->first = ends[a->target] + a->gap;
            while (a->first % t->units[a->target] != 0 || (a->aligned && a->first % a->elem != 0)) a->first++;
            ends[a->target] = a->first + a->count * a->elem;
        }
        for (k = 0; k < v->size; k++)
            if (ends[k] + t->tails[k] > t->sizes[k]) t->sizes[k] = ends[k] + t->tails[k];
    }
}

static int folds(const act *a) { return a->kind == ACCUMULATE || a->kind == ORDERED; }

static int has_part(const view *v, const act *a) {
    return (a->kind != PUT && a->kind != ORDERED) || a->origin == v->rank;
}

/* Not by an operation of MPI's. */
static int is_emulated(const act *a) {
    const int has_op = a->op != REPLACE_OP && a->op != NO_OP;
    return a->kind == MIXED || (folds(a) && has_op && is_foreign(a->dtype, a->op));
}

static void fill_act(const view *v, const act *a, unsigned char *out, int source, int64_t block) {
    const uint64_t key = mix(v->key ^ (uint64_t)(source + 1) * GOLDEN);
    const int ranks = (int)(v->ranks * a->repeats + 1);
    int64_t i;
    for (i = 0; i < a->count; i++) {
        const uint64_t word = mix(key + (((uint64_t)block << 40) + (uint64_t)i) * GOLDEN);
        encode(out + i * a->elem, a->dtype, value(word, a->dtype, folds(a) ? a->op : MOVED, ranks, source));
    }
}

static int64_t block_of(int phase_number, int act_number, int64_t repeat) {
    return (phase_number * 64 + act_number) * 16 + repeat;
}

/* What this rank gives when it does an act for the `repeat`-th time. */
static unsigned char *act_input(const epoch *e, int k, int64_t repeat) {
    const act *a = &e->t->phases[e->number].acts[k];
    const int is_double = is_complex(a->dtype) || is_pair(a->dtype);
    unsigned char *bytes = need((size_t)(a->count * a->elem));
    int64_t i, constant = a->kind == CLAIM ? e->v->rank + 1 : a->kind == WATCH ? repeat + 1 : 1;
    if (a->kind == WATCH && is_double) constant = join(constant, constant);
    if (a->kind < CLAIM) fill_act(e->v, a, bytes, e->v->rank, block_of(e->number, k, repeat));
    else
        for (i = 0; i < a->count; i++) encode(bytes + i * a->elem, a->dtype, constant);
    return bytes;
}

static void before_epoch(const epoch *e, unsigned char *part) {
    const phase *p = &e->t->phases[e->number];
    int k;
    memset(part, FILLER, (size_t)e->t->sizes[e->v->rank]);
    for (k = 0; k < p->act_count; k++) {
        const act *a = &p->acts[k];
        if (a->target != e->v->rank || a->kind == PUT) continue;
        if (a->kind >= CLAIM) memset(part + a->first, 0, (size_t)(a->count * a->elem));
        else fill_act(e->v, a, part + a->first, NOBODY, block_of(e->number, k, 0));
    }
}

/* What MPI gets as dtype: bytes, unless it has the dtype. */
static MPI_Datatype win_type(const act *a, int *per_element) {
    const MPI_Datatype types[] = {
        MPI_INT8_T,          MPI_INT16_T,          MPI_INT32_T,   MPI_INT64_T,    MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T,
        MPI_UINT64_T,        MPI_FLOAT,            MPI_DOUBLE,    MPI_BYTE,       MPI_C_BOOL,  MPI_BYTE,     MPI_BYTE,
        MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_2INT,    MPI_LONG_INT, MPI_SHORT_INT};
    const int is_bytes = a->kind == PUT || a->kind == GET || is_foreign(a->dtype, SUM);
    *per_element = is_bytes ? (int)a->elem : 1;
    return is_bytes ? MPI_BYTE : types[a->dtype];
}

static MPI_Op win_op(int op) {
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX,    MPI_LAND,   MPI_LOR,     MPI_BAND,
                          MPI_BOR, MPI_LXOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP};
    return ops[op];
}

/* Forms: 0 accumulate, 1 get_accumulate, 2 fetch_and_op for each element. */
static void accumulate(epoch *e, int k, int64_t repeat, int op, int64_t form) {
    const act *a = &e->t->phases[e->number].acts[k];
    const int target = (int)a->target;
    const int64_t unit = e->t->units[target], disp = a->first / unit;
    unsigned char *in = e->input[k][repeat] = act_input(e, k, repeat), *out = need((size_t)(a->count * a->elem));
    int per, n;
    const MPI_Datatype type = win_type(a, &per);
    int64_t i;
    n = (int)a->count * per;
    e->result[k][repeat] = out;
    if (form == 0 && op == NO_OP) return; /* MPI has none of that */
    if (form == 0) {
        MPI_Accumulate(in, n, type, target, disp, n, type, win_op(op), e->win);
    } else if (form == 1 || per > 1) {
        MPI_Get_accumulate(in, n, type, out, n, type, target, disp, n, type, win_op(op), e->win);
    } else {
        for (i = 0; i < a->count; i++)
            MPI_Fetch_and_op(in + i * a->elem, out + i * a->elem, type, target, disp + i * a->elem / unit, win_op(op), e->win);
    }
}

static void put_once(epoch *e, int k, int64_t repeat, int is_fence) {
    const act *a = &e->t->phases[e->number].acts[k];
    const int n = (int)(a->count * a->elem), target = (int)a->target;
    const int64_t disp = a->first / e->t->units[target];
    unsigned char *in = e->input[k][repeat] = act_input(e, k, repeat);
    if (a->form == 0 || is_fence) MPI_Put(in, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win);
    else MPI_Rput(in, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win, &e->requests[e->request_count++]);
    if (a->repeats == 1 || is_fence) return;
    MPI_Win_flush(target, e->win);
}

static void get_once(epoch *e, int k, int64_t repeat, int is_fence) {
    const act *a = &e->t->phases[e->number].acts[k];
    const int n = (int)(a->count * a->elem), target = (int)a->target;
    const int64_t disp = a->first / e->t->units[target];
    unsigned char *out = e->result[k][repeat] = need((size_t)n);
    if (a->form == 2) MPI_Get_accumulate(NULL, 0, MPI_BYTE, out, n, MPI_BYTE, target, disp, n, MPI_BYTE, MPI_NO_OP, e->win);
    else if (a->form == 0 || is_fence) MPI_Get(out, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win);
    else MPI_Rget(out, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win, &e->requests[e->request_count++]);
}

static void claim_once(epoch *e, int k, int64_t repeat) {
    const act *a = &e->t->phases[e->number].acts[k];
    static const unsigned char zero[16];
    unsigned char *in = e->input[k][repeat] = act_input(e, k, repeat);
    unsigned char *out = e->result[k][repeat] = need((size_t)(a->count * a->elem));
    const int64_t unit = e->t->units[a->target];
    int per;
    const MPI_Datatype type = win_type(a, &per);
    int64_t i;
    for (i = 0; i < a->count; i++)
        MPI_Compare_and_swap(in + i * a->elem, zero, out + i * a->elem, type, (int)a->target,
                             (a->first + i * a->elem) / unit, e->win);
}

/* Every element becomes what `op` makes of it and of the input, by get and put under an exclusive lock. */
static void by_turns(epoch *e, int k, int64_t repeat, int op) {
    const act *a = &e->t->phases[e->number].acts[k];
    const int n = (int)(a->count * a->elem), target = (int)a->target;
    const int64_t disp = a->first / e->t->units[target];
    unsigned char *in = act_input(e, k, repeat), *was = e->result[k][repeat] = need((size_t)n);
    int64_t i;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, e->win);
    MPI_Get(was, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win);
    MPI_Win_flush(target, e->win);
    for (i = 0; i < a->count; i++) {
        const int64_t left = decode(was + i * a->elem, a->dtype), right = decode(in + i * a->elem, a->dtype);
        encode(in + i * a->elem, a->dtype, fold_values(a->dtype, op, left, right));
    }
    MPI_Put(in, n, MPI_BYTE, target, disp, n, MPI_BYTE, e->win);
    MPI_Win_unlock(target, e->win);
    e->input[k][repeat] = in;
}

static int ordered_op(const act *a, int64_t repeat) { return repeat % 2 ? NO_OP : a->op; }

static void flush_after(const epoch *e, const act *a) {
    if (a->flush == 1) MPI_Win_flush((int)a->target, e->win);
    else if (a->flush == 2) MPI_Win_flush_local((int)a->target, e->win);
    else if (a->flush == 3) MPI_Win_flush_all(e->win);
    else if (a->flush == 4) MPI_Win_flush_local_all(e->win);
}

static void perform(epoch *e, int k) {
    const phase *p = &e->t->phases[e->number];
    const act *a = &p->acts[k];
    const int is_fence = p->sync == FENCE;
    int64_t r;
    if (!has_part(e->v, a) || is_emulated(a)) return;
    for (r = 0; r < a->repeats; r++) {
        const int op = ordered_op(a, r);
        const int64_t results = a->form > 1 ? a->form : 1;
        switch (a->kind) {
            case PUT: put_once(e, k, r, is_fence); break;
            case GET: get_once(e, k, r, is_fence); break;
            case ACCUMULATE: accumulate(e, k, r, a->op, a->form); break;
            case ORDERED: accumulate(e, k, r, op, op == NO_OP ? results : a->form); break;
            case CLAIM: claim_once(e, k, r); break;
            case WATCH:
                if (a->origin == e->v->rank) accumulate(e, k, r, REPLACE_OP, a->form);
                else accumulate(e, k, r, NO_OP, results);
                break;
            default: by_turns(e, k, r, SUM);
        }
        if (!is_fence && a->kind != LOCKED) flush_after(e, a);
    }
}

static void complete(epoch *e) {
    while (e->request_count > 0) MPI_Wait(&e->requests[--e->request_count], MPI_STATUS_IGNORE);
}

static void with_locks(epoch *e) {
    const phase *p = &e->t->phases[e->number];
    const int how = p->exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED;
    int k, target, needed[MAX_RANKS] = {0};
    if (p->sync == EACH) {
        for (k = 0; k < p->act_count; k++) {
            const act *a = &p->acts[k];
            if (a->kind == LOCKED) perform(e, k);
            if (a->kind == LOCKED || !has_part(e->v, a)) continue;
            MPI_Win_lock(how, (int)a->target, 0, e->win);
            perform(e, k);
            complete(e);
            MPI_Win_unlock((int)a->target, e->win);
        }
        return;
    }
    for (k = 0; k < p->act_count; k++) needed[p->acts[k].target] |= has_part(e->v, &p->acts[k]);
    for (target = 0; target < e->v->size; target++)
        if (needed[target]) MPI_Win_lock(how, target, 0, e->win);
    for (k = 0; k < p->act_count; k++) perform(e, k);
    complete(e);
    for (target = 0; target < e->v->size; target++)
        if (needed[target]) MPI_Win_unlock(target, e->win);
}

static void run_epoch(epoch *e, unsigned char *part) {
    const phase *p = &e->t->phases[e->number];
    int k, origin;
    int64_t r;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, e->v->rank, 0, e->win);
    before_epoch(e, part);
    MPI_Win_unlock(e->v->rank, e->win);
    MPI_Barrier(e->v->comm);
    if (p->sync == FENCE || p->sync == LOCK_ALL) {
        if (p->sync == FENCE) MPI_Win_fence(MPI_MODE_NOPRECEDE, e->win);
        else MPI_Win_lock_all(0, e->win);
        for (k = 0; k < p->act_count; k++) perform(e, k);
        complete(e);
        if (p->sync == FENCE) MPI_Win_fence(MPI_MODE_NOSUCCEED, e->win);
        else MPI_Win_unlock_all(e->win);
    } else {
        with_locks(e);
    }
    for (k = 0; k < p->act_count; k++) {
        const act *a = &p->acts[k];
        for (origin = 0; is_emulated(a) && origin < e->v->size; origin++) {
            if (origin == e->v->rank && has_part(e->v, a))
                for (r = 0; r < a->repeats; r++) by_turns(e, k, r, a->kind == ORDERED ? ordered_op(a, r) : a->op);
            MPI_Barrier(e->v->comm);
        }
    }
    MPI_Barrier(e->v->comm);
}

/* MPI leaves anything between the parts of a pair. */
static void settle_act(const act *a, unsigned char *bytes) {
    int64_t i;
    for (i = 0; is_pair(a->dtype) && i < a->count; i++)
        encode(bytes + i * a->elem, a->dtype, decode(bytes + i * a->elem, a->dtype));
}

/* What must be the same everywhere: this rank's part, then what was fetched without a race. */
static uint64_t judge(const epoch *e, const unsigned char *part, uint64_t h) {
    const phase *p = &e->t->phases[e->number];
    const size_t size = (size_t)e->t->sizes[e->v->rank];
    unsigned char *is = need(size);
    int k;
    int64_t r;
    memcpy(is, part, size);
    for (k = 0; k < p->act_count; k++) {
        const act *a = &p->acts[k];
        if (a->target != e->v->rank) continue;
        if (folds(a) || a->kind == WATCH) settle_act(a, is + a->first);
        if (a->kind == CLAIM) memset(is + a->first, 0, (size_t)(a->count * a->elem));
    }
    h = hash(h, is, (int64_t)size);
    for (k = 0; k < p->act_count; k++) {
        const act *a = &p->acts[k];
        for (r = 0; r < a->repeats && has_part(e->v, a); r++) {
            const int op = a->kind == ORDERED ? ordered_op(a, r) : a->op;
            const int looks = a->kind == ACCUMULATE && a->op == NO_OP && a->form > 0;
            if (a->kind != GET && !looks && !(a->kind == ORDERED && (a->form > 0 || op == NO_OP))) continue;
            settle_act(a, e->result[k][r]);
            h = hash(h, e->result[k][r], a->count * a->elem);
        }
    }
    free(is);
    return h;
}

static uint64_t window(const view *v, story *t, uint64_t before) {
    static epoch e;
    unsigned char *part = NULL, none = 0;
    uint64_t h = 0;
    int64_t size;
    int unit = (int)t->units[v->rank], k, r;
    place_acts(v, t);
    size = t->sizes[v->rank];
    /* MPICH 4.0 takes the other ranks' parts to begin somewhere else unless sizes are multiples of 8. */
    if (t->allocated) MPI_Win_allocate((size + 63) / 64 * 64, unit, MPI_INFO_NULL, v->comm, &part, &e.win);
    else MPI_Win_create(part = need((size_t)size + 16), size, unit, MPI_INFO_NULL, v->comm, &e.win);
    e.v = v;
    e.t = t;
    for (e.number = 0; e.number < t->phase_count; e.number++) {
        memset(e.input, 0, sizeof e.input);
        memset(e.result, 0, sizeof e.result);
        run_epoch(&e, size ? part : &none);
        h = judge(&e, size ? part : &none, h);
        for (k = 0; k < MAX_ACTS; k++)
            for (r = 0; r < MAX_REPEATS; r++) free(e.input[k][r]), free(e.result[k][r]);
        MPI_Barrier(v->comm);
    }
    MPI_Win_free(&e.win);
    if (!t->allocated) free(part);
    return mix(before ^ h);
}

#endif
