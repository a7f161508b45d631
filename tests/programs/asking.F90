! asks.c in Fortran: asks of crdebug all that it can, and says what it was answered.
module taking_part
  use, intrinsic :: iso_c_binding
  use crdebug_app
  implicit none
  integer, volatile :: inside = 0, busy = 0, taken = 0
  character(len=64) :: trace = ''

contains

  ! Registered last, so that it is called first before, and last after: nobody goes on meanwhile.
  integer(c_int) function outer(moment, data) bind(C)
    integer(c_int), value :: moment
    type(c_ptr), value :: data
    character, pointer :: names(:)
    call c_f_pointer(data, names, [3])
    trace = trim(trace)//names(moment + 1)
    if (moment == CRDEBUG_BEFORE_CHECKPOINT .and. inside /= 0) error stop 'in a quiet region'
    taken = merge(1, 0, moment == CRDEBUG_BEFORE_CHECKPOINT)
    outer = 0
  end function

  integer(c_int) function inner(moment, data) bind(C)
    integer(c_int), value :: moment
    type(c_ptr), value :: data
    character, pointer :: names(:)
    call c_f_pointer(data, names, [3])
    trace = trim(trace)//names(moment + 1)
    inner = 0
    if (moment == CRDEBUG_BEFORE_CHECKPOINT .and. busy /= 0) &
      inner = crdebug_refuse('the device is busy')
  end function
end module

program asking
  use mpi
  use taking_part
  implicit none
  interface
    subroutine usleep(microseconds) bind(C)
      import :: c_int
      integer(c_int), value :: microseconds
    end subroutine
  end interface
  character, target :: small(3) = ['b', 'c', 'r'], large(3) = ['B', 'C', 'R']
  integer :: rank, error, restarts, status

  call mpi_init(error)
  call mpi_comm_rank(MPI_COMM_WORLD, rank, error)
  status = crdebug_register(inner, c_loc(small))
  status = crdebug_register(outer, c_loc(large))

  restarts = ask('first')

  status = crdebug_quiet_start()
  status = crdebug_quiet_start()
  status = crdebug_quiet_end()
  status = ask('in a region')
  status = crdebug_quiet_end()

  if (rank == 1) then
    inside = 1
    status = crdebug_quiet_start()
  end if
  call mpi_barrier(MPI_COMM_WORLD, error)
  if (rank == 1) then
    call usleep(50000)
    inside = 0
    status = crdebug_quiet_end()
  end if
  status = ask('after a region')

  busy = rank
  status = ask('busy')
  busy = 0

  status = 0
  if (rank == 0) status = crdebug_restart(merge(1, 99, restarts == CRDEBUG_DONE))
  call say('back', status, 0)
  call say('end of no region', crdebug_quiet_end(), 0)
  call mpi_finalize(error)

contains

  subroutine say(what, status, number)
    character(len=*), intent(in) :: what
    integer, intent(in) :: status, number
    character(len=:), allocatable :: why
    do while (taken /= 0) ! until the callbacks have come to an end
      call usleep(1000)
    end do
    why = ''
    if (status < CRDEBUG_NOT_HERE) why = crdebug_reason()
    if (rank == 0) print '(a,": ",i0," ",i0," [",a,"] ",a)', what, status, number, trim(trace), why
    flush (6)
    trace = ''
  end subroutine

  integer function ask(what) result(status)
    character(len=*), intent(in) :: what
    integer :: number
    number = 0
    status = 0
    call mpi_barrier(MPI_COMM_WORLD, error)
    if (rank == 0) status = crdebug_checkpoint(what, number)
    call mpi_bcast(status, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call say(what, status, number)
  end function
end program
