! Rank 0 receives from whoever comes, by each of the three Fortran bindings: -DBINDING=1 is mpif.h,
! 2 is `use mpi`, 3 is `use mpi_f08`. What MPI leaves open goes into `heard`, and is printed.
!
!   field ROUNDS [bounds|stop]     the word: how rank 1 fails after the last round

#if BINDING == 3
#define HANDLE(what) type(what)
#define STATUS(name) type(MPI_Status) :: name
#define STATUSES(name, n) type(MPI_Status) :: name(n)
#define SOURCE_OF(status) status%MPI_SOURCE
#define SOURCE_AT(statuses, i) statuses(i)%MPI_SOURCE
#else
#define HANDLE(what) integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define STATUSES(name, n) integer :: name(MPI_STATUS_SIZE, n)
#define SOURCE_OF(status) status(MPI_SOURCE)
#define SOURCE_AT(statuses, i) statuses(MPI_SOURCE, i)
#endif

program field
#if BINDING == 3
  use mpi_f08
#elif BINDING == 2
  use mpi
#endif
  implicit none
#if BINDING == 1
  include 'mpif.h'
#endif
  interface
    subroutine usleep(microseconds) bind(c)
      use iso_c_binding, only: c_int
      integer(c_int), value :: microseconds
    end subroutine
  end interface
  integer, parameter :: cells = 6, most = 16
  real(8) :: a(cells), total(cells), grid(2, 3), began
  integer :: rank, ranks, rounds, round, error, heard
  HANDLE(MPI_Comm) :: comm
  character(len=16) :: word

  call get_command_argument(1, word)
  read (word, *) rounds
  call get_command_argument(2, word)
  call mpi_init(error)
  call mpi_comm_dup(MPI_COMM_WORLD, comm, error)
  call mpi_comm_rank(comm, rank, error)
  call mpi_comm_size(comm, ranks, error)
  began = mpi_wtime()
  heard = 0
  grid = reshape([11d0, 21d0, 12d0, 22d0, 13d0, 23d0], [2, 3])
  do round = 1, rounds
    a = rank + [0.5d0, 1.5d0, 2.5d0, 3.5d0, 4.5d0, 5.5d0] * round
    if (rank == 0) then
      call gather_any(round)
      call gather_some(round)
    else
      call jitter()
      call mpi_send(a, cells, MPI_DOUBLE_PRECISION, 0, 1, comm, error)
      call jitter()
      call mpi_send(a, cells, MPI_DOUBLE_PRECISION, 0, 2, comm, error)
    end if
    call mpi_allreduce(a, total, cells, MPI_DOUBLE_PRECISION, MPI_SUM, comm, error)
  end do
  if (rank == 1 .and. word == 'bounds') a(cells + len_trim(word)) = 1
  if (rank == 1 .and. word == 'stop') error stop 'rank 1 gives up'
  if (rank == 0) print '(a,i0,a,f0.3,a,f0.9)', 'heard ', heard, ' total ', total(cells), ' after ', &
    mpi_wtime() - began
  call mpi_finalize(error)

contains

  subroutine jitter()
    real :: share
    call random_number(share)
    call usleep(int(share * 1500))
  end subroutine

  ! Each worker's first message, with Waitany.
  subroutine gather_any(number)
    integer, intent(in) :: number
    HANDLE(MPI_Request) :: requests(most)
    STATUS(status)
    real(8), asynchronous :: rows(cells, most)
    integer :: i, which, code
    rows = -1
    do i = 1, ranks - 1
      call mpi_irecv(rows(:, i), cells, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 1, comm, requests(i), code)
    end do
    do i = 1, ranks - 1
      call mpi_waitany(ranks - 1, requests, which, status, code)
      call hear(number, SOURCE_OF(status))
      call check(rows(1, :ranks - 1), number, SOURCE_OF(status))
    end do
  end subroutine

  ! Each worker's second message, with Testsome; then one that is received at once.
  subroutine gather_some(number)
    integer, intent(in) :: number
    HANDLE(MPI_Request) :: requests(most)
    STATUSES(statuses, most)
    STATUS(status)
    real(8), asynchronous :: rows(cells, most)
    real(8) :: row(cells)
    integer :: i, some, done, which(most), code
    rows = -1
    do i = 1, ranks - 2
      call mpi_irecv(rows(:, i), cells, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 2, comm, requests(i), code)
    end do
    done = 0
    do while (done < ranks - 2)
      call mpi_testsome(ranks - 2, requests, some, which, statuses, code)
      do i = 1, some
        call hear(number, SOURCE_AT(statuses, i))
        call check(rows(1, :ranks - 2), number, SOURCE_AT(statuses, i))
      end do
      if (some > 0) done = done + some
    end do
    call mpi_recv(row, cells, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, 2, comm, status, code)
    call hear(number, SOURCE_OF(status))
    call check(row(:1), number, SOURCE_OF(status))
  end subroutine

  subroutine hear(number, source)
    integer, intent(in) :: number, source
    heard = modulo(heard * 31 + number * 7 + source, 1000003)
  end subroutine

  ! Not by the index that MPI tells: MPICH 4.0's mpi_f08 counts it from zero in Waitany.
  subroutine check(firsts, number, source)
    real(8), intent(in) :: firsts(:)
    integer, intent(in) :: number, source
    if (all(firsts /= source + 0.5d0 * number)) error stop 'a message of another rank'
  end subroutine

end program
