/* Grids of ranks: known values, bad input, and that shifts fit together. tests/mpi/cart.c compares with
 * what an MPI gives. C11, and valid C++17. */
#include "check.h"
#include <limits.h>
#include <string.h>

#define CHECK_TEXT(part) CHECK(strstr(dtl_last_error(), part) != NULL)

static void expect_dims(int size, int ndim, int a, int b, int c) {
    int32_t dims[3] = {0, 0, 0};
    CHECK_OK(dtl_cart_dims(size, dims, ndim));
    CHECK(dims[0] == a && dims[1] == b && dims[2] == c);
}

static void test_dims(void) {
    int32_t dims[16] = {0}, grid[3] = {0, 3, 0};
    int i;
    /* The examples of the MPI standard. */
    expect_dims(6, 2, 3, 2, 0);
    expect_dims(7, 2, 7, 1, 0);
    CHECK_OK(dtl_cart_dims(6, grid, 3));
    CHECK(grid[0] == 2 && grid[1] == 3 && grid[2] == 1);
    grid[0] = grid[2] = 0;
    CHECK_STATUS(dtl_cart_dims(7, grid, 3), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("does not divide");
    CHECK(grid[0] == 0 && grid[1] == 3 && grid[2] == 0);
    expect_dims(1, 3, 1, 1, 1);
    expect_dims(60, 3, 5, 4, 3);
    expect_dims(INT_MAX, 2, INT_MAX, 1, 0); /* a prime */
    CHECK_OK(dtl_cart_dims(65536, dims, 16));
    for (i = 0; i < 16; i++) CHECK(dims[i] == 2);
    CHECK_OK(dtl_cart_dims(65536, dims, 16)); /* all given, and they fit */
    CHECK_STATUS(dtl_cart_dims(65535, dims, 16), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_cart_dims(0, grid, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_cart_dims(4, grid, 0), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_cart_dims(4, dims, 17), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("ndim 17");
    CHECK_STATUS(dtl_cart_dims(4, NULL, 2), DTL_ERROR_NULL_POINTER);
    grid[1] = -2;
    CHECK_STATUS(dtl_cart_dims(4, grid, 2), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dims[1] is -2");
    grid[0] = 65536, grid[1] = 65536;
    CHECK_STATUS(dtl_cart_dims(4, grid, 2), DTL_ERROR_INVALID_ARGUMENT);
}

static void test_ranks(void) {
    const int32_t dims[3] = {2, 3, 4}, periods[3] = {0, 1, 0}, huge[3] = {50000, 50000, 1}, empty[3] = {2, 0, 4};
    int32_t place[3], rank, a, b, c;
    for (a = 0; a < 2; a++)
        for (b = 0; b < 3; b++)
            for (c = 0; c < 4; c++) {
                place[0] = a, place[1] = b, place[2] = c;
                CHECK_OK(dtl_cart_rank(dims, NULL, place, 3, &rank));
                CHECK(rank == (a * 3 + b) * 4 + c);
                CHECK_OK(dtl_cart_coords(dims, 3, rank, place));
                CHECK(place[0] == a && place[1] == b && place[2] == c);
            }
    place[0] = 1, place[1] = -1, place[2] = 3;
    CHECK_OK(dtl_cart_rank(dims, periods, place, 3, &rank));
    CHECK(rank == (1 * 3 + 2) * 4 + 3);
    place[1] = INT_MIN;
    CHECK_OK(dtl_cart_rank(dims, periods, place, 3, &rank));
    CHECK(rank == (1 * 3 + 1) * 4 + 3); /* -2^31 = 1 mod 3 */
    rank = -9;
    CHECK_STATUS(dtl_cart_rank(dims, NULL, place, 3, &rank), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("coords[1]");
    place[1] = 0, place[2] = 4;
    CHECK_STATUS(dtl_cart_rank(dims, periods, place, 3, &rank), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("coords[2] is 4");
    CHECK_STATUS(dtl_cart_rank(huge, NULL, place, 3, &rank), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_cart_rank(empty, NULL, place, 3, &rank), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dims[1] is 0");
    CHECK_STATUS(dtl_cart_rank(NULL, NULL, place, 3, &rank), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_cart_rank(dims, NULL, NULL, 3, &rank), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_cart_rank(dims, NULL, place, 3, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_cart_rank(dims, NULL, place, -1, &rank), DTL_ERROR_INVALID_ARGUMENT);
    CHECK(rank == -9);
    CHECK_STATUS(dtl_cart_coords(dims, 3, 24, place), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_cart_coords(dims, 3, -1, place), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_cart_coords(dims, 3, 0, NULL), DTL_ERROR_NULL_POINTER);
}

static void expect_shift(int rank, int dimension, int by, int source, int dest) {
    const int32_t dims[2] = {3, 4}, periods[2] = {0, 7};
    int32_t from, to;
    CHECK_OK(dtl_cart_shift(dims, periods, 2, rank, dimension, by, &from, &to));
    CHECK(from == source && to == dest);
}

static void test_shifts(void) {
    const int32_t dims[2] = {3, 4};
    int32_t from = -9, to = -9, back, by, rank, dimension;
    /* 3 rows with open ends, 4 columns that wrap: rank 5 is in row 1, column 1. */
    expect_shift(5, 0, 1, 1, 9);
    expect_shift(5, 0, -1, 9, 1);
    expect_shift(5, 0, 2, DTL_PROC_NULL, DTL_PROC_NULL);
    expect_shift(1, 0, 2, DTL_PROC_NULL, 9);
    expect_shift(5, 1, 1, 4, 6);
    expect_shift(4, 1, 1, 7, 5);
    expect_shift(4, 1, 5, 7, 5);
    expect_shift(4, 1, 0, 4, 4);
    expect_shift(5, 0, INT_MIN, DTL_PROC_NULL, DTL_PROC_NULL);
    expect_shift(5, 1, INT_MIN, 5, 5); /* 2^31 is a multiple of 4 */
    expect_shift(5, 1, INT_MAX, 6, 4);
    /* Whom I send to receives from me. */
    for (rank = 0; rank < 12; rank++)
        for (dimension = 0; dimension < 2; dimension++)
            for (by = -5; by <= 5; by++) {
                CHECK_OK(dtl_cart_shift(dims, NULL, 2, rank, dimension, by, &from, &to));
                if (to == DTL_PROC_NULL) continue;
                CHECK_OK(dtl_cart_shift(dims, NULL, 2, to, dimension, by, &back, &from));
                CHECK(back == rank);
            }
    from = to = -9;
    CHECK_STATUS(dtl_cart_shift(dims, NULL, 2, 12, 0, 1, &from, &to), DTL_ERROR_INVALID_RANK);
    CHECK_STATUS(dtl_cart_shift(dims, NULL, 2, 0, 2, 1, &from, &to), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT("dimension 2");
    CHECK_STATUS(dtl_cart_shift(dims, NULL, 2, 0, -1, 1, &from, &to), DTL_ERROR_INVALID_ARGUMENT);
    CHECK_STATUS(dtl_cart_shift(dims, NULL, 2, 0, 0, 1, NULL, &to), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_cart_shift(dims, NULL, 2, 0, 0, 1, &from, NULL), DTL_ERROR_NULL_POINTER);
    CHECK_STATUS(dtl_cart_shift(NULL, NULL, 2, 0, 0, 1, &from, &to), DTL_ERROR_NULL_POINTER);
    CHECK(from == -9 && to == -9);
}

int main(void) {
    test_dims();
    test_ranks();
    test_shifts();
    CHECK_OK(dtl_finalize());
    return 0;
}
