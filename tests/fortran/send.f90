! A send of 8 bytes, counted by instructions.sh.
subroutine row_fortran() bind(c)
use dtl
use, intrinsic :: iso_c_binding
implicit none
integer :: i
real(c_double) :: x
x = 1
do i = 1, 1000
    call dtl_comm_send(DTL_COMM_SELF, x, DTL_PROC_NULL, 1)
end do
end subroutine
