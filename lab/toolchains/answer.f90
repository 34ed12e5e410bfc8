! The stack of answer.c, in Fortran, without inline functions.
module steps
  use iso_c_binding
  implicit none
  integer(8), volatile :: sink = 0
  interface
    function usleep(us) bind(c)
      import :: c_int
      integer(c_int), value :: us
      integer(c_int) :: usleep
    end function
  end interface
contains
  subroutine leaf_spin()
    integer :: i
    do i = 1, 5000000
      sink = sink + 1
    end do
  end subroutine
  subroutine leaf_wait()
    integer :: failed
    failed = usleep(20000_c_int)
    sink = sink + 1
  end subroutine
  subroutine middle_step(n)
    integer(8), intent(in) :: n
    if (mod(n, 2_8) == 0) then
      call leaf_spin()
    else
      call leaf_wait()
    end if
    sink = sink + 1
  end subroutine
  subroutine outer_step(n)
    integer(8), intent(in) :: n
    call middle_step(n)
    sink = sink + 1
  end subroutine
end module

program answer
  use steps
  implicit none
  integer(8) :: n = 0
  print '(a)', 'ready'
  flush (6)
  do
    call outer_step(n)
    n = n + 1
  end do
end program
