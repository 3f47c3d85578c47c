! Uses the module `dtl` of an installed package: a sum in place, and the version.
program consumer
use dtl
use, intrinsic :: iso_c_binding
implicit none
real(c_double) :: x(3)
x = [1d0, 2d0, 3d0]
call dtl_init()
call dtl_comm_allreduce(DTL_COMM_WORLD, DTL_IN_PLACE, x, DTL_OP_SUM)
if (x(3) /= 3d0) error stop "allreduce"
print "(2a)", "libdtl ", dtl_version_string()
call dtl_finalize()
end program
