! A failure without `status` stops the program with the error text.
program stops
use dtl
implicit none
call dtl_init()
call dtl_comm_send(DTL_COMM_WORLD, 1.0, 5, 0)
print "(a)", "not reached"
end program
