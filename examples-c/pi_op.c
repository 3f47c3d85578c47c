/* pi_op: pi by numerical integration, summed with an operation of our own.
 *
 * A plain sum of twenty million small terms loses digits. Here a partial result is a pair (sum, what
 * was lost in rounding); a dtype of 16 bytes carries it and an operation adds two of them, exactly enough.
 *
 * Build: cc pi_op.c $(pkg-config --cflags --libs libdtl) -lm -o pi_op
 * Run:   dtlrun -n 4 ./pi_op
 * Prints, from rank 0, pi and the error with the plain sum and with our own.
 */
#include <dtl.h>

#include <math.h>
#include <stdio.h>

enum { STEPS = 20000000 };

typedef struct pair {
    double sum, lost;
} pair;

/* Neumaier's variant of Kahan's summation: adds b to a and keeps what rounding lost. */
static pair add(pair a, double b)
{
    const double sum = a.sum + b;
    a.lost += fabs(a.sum) >= fabs(b) ? (a.sum - sum) + b : (b - sum) + a.sum;
    a.sum = sum;
    return a;
}

/* inout[i] = in[i] + inout[i], as dtl_op_fn_t wants it. */
static void add_pairs(const void *in, void *inout, uint64_t count, dtl_dtype_t dtype, void *user)
{
    const pair *left = in;
    pair *right = inout;
    (void)dtype, (void)user;
    for (uint64_t i = 0; i < count; i++) {
        pair both = add(left[i], right[i].sum);
        both.lost += right[i].lost;
        right[i] = both;
    }
}

int main(void)
{
    const double pi = 3.14159265358979323846;
    int32_t rank = 0, size = 0;
    dtl_dtype_t pair_type;
    dtl_reduce_op_t pair_sum;
    DTL_CHECK(dtl_init(NULL));
    DTL_CHECK(dtl_comm_rank(DTL_COMM_WORLD, &rank));
    DTL_CHECK(dtl_comm_size(DTL_COMM_WORLD, &size));
    DTL_CHECK(dtl_dtype_create(sizeof(pair), "pair", &pair_type));
    /* Not DTL_OP_COMMUTES: what is lost is itself rounded, so a + b and b + a differ in the last bits. */
    DTL_CHECK(dtl_op_create(add_pairs, NULL, 0, "pair_sum", &pair_sum));

    /* The integral of 4 / (1 + x^2) from 0 to 1, by the midpoint rule. */
    const double step = 1.0 / STEPS;
    pair mine = {0, 0}, total = {0, 0};
    double plain = 0, plain_total = 0;
    for (int32_t i = rank; i < STEPS; i += size) {
        const double x = (i + 0.5) * step, term = 4 / (1 + x * x);
        mine = add(mine, term);
        plain += term;
    }
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &mine, &total, 1, pair_type, pair_sum));
    DTL_CHECK(dtl_comm_allreduce(DTL_COMM_WORLD, &plain, &plain_total, 1, DTL_DTYPE_FLOAT64, DTL_OP_SUM));

    const double ours = (total.sum + total.lost) * step;
    const int good = fabs(ours - pi) < 1e-14;
    if (rank == 0) {
        printf("%d ranks: pi is %.16f (error %.1e; with a plain sum %.1e): %s\n", (int)size, ours, ours - pi,
               plain_total * step - pi, good ? "correct" : "WRONG");
    }
    DTL_CHECK(dtl_op_destroy(pair_sum));
    DTL_CHECK(dtl_dtype_destroy(pair_type));
    DTL_CHECK(dtl_finalize());
    return good ? 0 : 1;
}
