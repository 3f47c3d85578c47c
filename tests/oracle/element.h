/* Elements of every dtype of dtl, for oracle.c: the formula of inputs, their bytes, and what an operation
 * makes of two. The same formulas as in tools/dtl-ctk/src/data.rs and reference.rs, written once more. */
#ifndef ORACLE_ELEMENT_H
#define ORACLE_ELEMENT_H

#include <stdint.h>
#include <string.h>

/* The numbers of dtypes and reductions in the file: DTL's, and from 100 on the kit's own. */
enum {
    INT16 = 1, INT32 = 2, INT64 = 3, FLOAT32 = 8, FLOAT64 = 9, BYTE = 10, BOOL = 11, FLOAT16 = 12, BFLOAT16 = 13,
    COMPLEX64 = 14, COMPLEX128 = 15, FIRST_PAIR = 16, FLOAT64_INT64 = 21, INT64_INT64 = 22, USER_DTYPE = 100
};
enum {
    SUM, PROD, MIN, MAX, LAND, LOR, BAND, BOR, LXOR, BXOR, MINLOC, MAXLOC, REPLACE_OP, NO_OP,
    USER_SUM = 100, USER_MATRIX = 101, MOVED = -1 /* no reduction */
};

static int size_of(int dtype) {
    const int sizes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 1, 2, 2, 8, 16, 8, 16, 8, 16, 8, 16, 16};
    return dtype == USER_DTYPE ? 24 : sizes[dtype];
}

static int is_complex(int dtype) { return dtype == COMPLEX64 || dtype == COMPLEX128; }
static int is_pair(int dtype) { return dtype >= FIRST_PAIR && dtype <= INT64_INT64; }
static int is_float(int dtype) { return dtype == FLOAT32 || dtype == FLOAT64 || dtype == FLOAT16 || dtype == BFLOAT16; }

/* The dtypes of the two parts of an element; the second lies in its middle. */
static void parts_of(int dtype, int *first, int *second) {
    const int parts[][2] = {{FLOAT32, FLOAT32}, {FLOAT64, FLOAT64}, {FLOAT32, INT32}, {FLOAT64, INT32}, {INT32, INT32},
                            {INT64, INT32},     {INT16, INT32},     {FLOAT64, INT64}, {INT64, INT64}};
    *first = parts[dtype - COMPLEX64][0];
    *second = parts[dtype - COMPLEX64][1];
}

static int64_t join(int64_t first, int64_t second) { return (int64_t)((uint64_t)first << 32 | (uint32_t)second); }

/* A random word as an input. */
static int64_t value(uint64_t word, int dtype, int op, int ranks, int source) {
    const int is_signed = dtype < 4 || is_float(dtype);
    const int64_t high = (int64_t)(word >> 32);
    int64_t limit = 100 / ranks < 1 ? 1 : 100 / ranks > 7 ? 7 : 100 / ranks, result = 0;
    int i;
    if (is_pair(dtype)) return join((int64_t)(word % 5) - 2, high % 100);
    if (dtype == USER_DTYPE) {
        for (i = 0; i < 6; i++) result |= (int64_t)((word >> (8 * i) & 255) % 251) << (8 * i);
        return result;
    }
    if (is_complex(dtype) && op == PROD)
        return source > 1 ? join(1, 0) : join(1 - 2 * (int64_t)(word % 2), 1 - 2 * (high % 2));
    if (is_complex(dtype)) return join((int64_t)(word % 3) - 1, high % 3 - 1);
    if (op == SUM) return is_signed ? (int64_t)(word % (uint64_t)(2 * limit + 1)) - limit : (int64_t)(word % (uint64_t)(limit + 1));
    if (op == PROD) {
        result = source < 3 ? 1 + (int64_t)(word % 2) : 1;
        return is_signed && (word & 2) ? -result : result;
    }
    if (op == MIN || op == MAX) return (int64_t)(word % 101) - (is_signed ? 50 : 0);
    if ((op == LAND || op == LOR || op == LXOR) && dtype != BOOL) return (int64_t)(word % 3);
    if (dtype == BOOL) return (int64_t)(word % 2);
    if (is_float(dtype)) return (int64_t)(word % (size_of(dtype) == 2 ? 256 : 1 << 20));
    return (int64_t)word;
}

/* 16-bit floats hold small whole numbers here. */
static uint16_t to_16_bits(int dtype, int64_t x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (dtype == BFLOAT16 || x == 0) return (uint16_t)(bits >> 16);
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 13) - ((127 - 15) << 10)) & 0x7FFF));
}

static int64_t from_16_bits(int dtype, uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float f;
    if (dtype == FLOAT16 && (half & 0x7FFF) != 0)
        bits = (uint32_t)(half & 0x8000) << 16 | (((uint32_t)(half & 0x7FFF) + ((127 - 15) << 10)) << 13);
    memcpy(&f, &bits, 4);
    return (int64_t)f;
}

static void encode(unsigned char *out, int dtype, int64_t x) {
    const float f = (float)x;
    const double d = (double)x;
    const uint16_t half = to_16_bits(dtype, x);
    int first, second, i;
    if (is_complex(dtype) || is_pair(dtype)) {
        parts_of(dtype, &first, &second);
        memset(out, 0, (size_t)size_of(dtype));
        encode(out, first, x >> 32);
        encode(out + size_of(dtype) / 2, second, (int32_t)x);
    } else if (dtype == USER_DTYPE) {
        for (i = 0; i < 6; i++) {
            const uint32_t number = (uint32_t)(x >> (8 * i)) & 255;
            memcpy(out + 4 * i, &number, 4);
        }
    } else if (dtype == FLOAT16 || dtype == BFLOAT16) {
        memcpy(out, &half, 2);
    } else if (dtype == FLOAT32) {
        memcpy(out, &f, 4);
    } else if (dtype == FLOAT64) {
        memcpy(out, &d, 8);
    } else {
        memcpy(out, &x, (size_t)size_of(dtype));
    }
}

static int64_t decode(const unsigned char *in, int dtype) {
    const int size = size_of(dtype);
    uint64_t raw = 0;
    float f;
    double d;
    int first, second, i;
    if (is_complex(dtype) || is_pair(dtype)) {
        parts_of(dtype, &first, &second);
        return join(decode(in, first), decode(in + size / 2, second));
    }
    if (dtype == USER_DTYPE) {
        for (i = 0; i < 6; i++) raw |= (uint64_t)in[4 * i] << (8 * i);
        return (int64_t)raw;
    }
    memcpy(&raw, in, (size_t)size);
    memcpy(&f, in, sizeof f <= (size_t)size ? sizeof f : 0);
    memcpy(&d, in, sizeof d <= (size_t)size ? sizeof d : 0);
    if (dtype == FLOAT16 || dtype == BFLOAT16) return from_16_bits(dtype, (uint16_t)raw);
    if (dtype == FLOAT32) return (int64_t)f;
    if (dtype == FLOAT64) return (int64_t)d;
    return dtype < 4 ? (int64_t)(raw << (64 - 8 * size)) >> (64 - 8 * size) : (int64_t)raw;
}

static int64_t fold_user(int op, int64_t left, int64_t right) {
    uint32_t l[6], r[6], result[6];
    int64_t joined = 0;
    int i;
    for (i = 0; i < 6; i++) l[i] = (uint32_t)(left >> (8 * i)) & 255, r[i] = (uint32_t)(right >> (8 * i)) & 255;
    for (i = 0; i < 6; i++) result[i] = l[i] + r[i];
    if (op == USER_MATRIX) {
        for (i = 0; i < 4; i++) result[i] = l[i / 2 * 2] * r[i % 2] + l[i / 2 * 2 + 1] * r[i % 2 + 2];
        result[5] = r[5];
    }
    for (i = 0; i < 6; i++) joined |= (int64_t)(result[i] % 251) << (8 * i);
    return joined;
}

/* Only what MPI has no operation for. */
static int64_t fold_values(int dtype, int op, int64_t left, int64_t right) {
    const int64_t a = left >> 32, c = right >> 32, b = (int32_t)left, d = (int32_t)right;
    switch (op) {
        case REPLACE_OP: return right;
        case NO_OP: return left;
        case MINLOC: return a < c || (a == c && b <= d) ? left : right;
        case MAXLOC: return a > c || (a == c && b <= d) ? left : right;
        case SUM: return left + right;
        case PROD: return left * right;
        case MIN: return left < right ? left : right;
        case MAX: return left > right ? left : right;
        default: return dtype == USER_DTYPE ? fold_user(op, left, right) : 0;
    }
}

/* Whether MPI has neither the dtype's operation nor the operation itself. */
static int is_foreign(int dtype, int op) {
    return dtype == FLOAT16 || dtype == BFLOAT16 || dtype == FLOAT64_INT64 || dtype == INT64_INT64 ||
           dtype == USER_DTYPE || op == REPLACE_OP || op == NO_OP;
}

#endif
