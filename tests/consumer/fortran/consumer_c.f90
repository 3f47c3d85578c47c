! The declarations of C by themselves.
program consumer_c
use dtl_c
use, intrinsic :: iso_c_binding
implicit none
real(c_double), target :: x(3) = [1d0, 2d0, 3d0], y(3) = 0
if (dtl_init() /= DTL_SUCCESS) error stop "dtl_init"
if (dtl_comm_allreduce(DTL_COMM_WORLD, c_loc(x), c_loc(y), size(x, kind=c_int64_t), DTL_DTYPE_FLOAT64, &
    DTL_OP_SUM) /= DTL_SUCCESS) error stop "dtl_comm_allreduce"
if (any(abs(x - y) > 0)) error stop "sum"
if (dtl_finalize() /= DTL_SUCCESS) error stop "dtl_finalize"
end program
