! What MPI-4 adds, from Fortran: each of its ends is checked, and nothing is left open.
program modern
  use mpi_f08
  implicit none
  integer :: rank, total, given, other, got, part(4), came(4)
  integer(kind=MPI_COUNT_KIND) :: each = 2
  logical :: flag
  type(MPI_Request) :: r, s, p, q
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  other = 1 - rank
  given = rank + 1
  call MPI_Isendrecv(given, 1, MPI_INTEGER, other, 1, got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, r)
  call MPI_Wait(r, MPI_STATUS_IGNORE)
  call MPI_Allreduce_init(given, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, s)
  call MPI_Start(s)
  call MPI_Wait(s, MPI_STATUS_IGNORE)
  part = rank
  call MPI_Psend_init(part, 2, each, MPI_INTEGER, other, 3, MPI_COMM_WORLD, MPI_INFO_NULL, p)
  call MPI_Precv_init(came, 2, each, MPI_INTEGER, other, 3, MPI_COMM_WORLD, MPI_INFO_NULL, q)
  call MPI_Start(q)
  call MPI_Start(p)
  call MPI_Pready(1, p)
  call MPI_Pready_range(0, 0, p)
  flag = .false.
  do while (.not. flag)
    call MPI_Parrived(q, 1, flag)
  end do
  call MPI_Wait(q, MPI_STATUS_IGNORE)
  call MPI_Wait(p, MPI_STATUS_IGNORE)
  if (got /= other + 1 .or. total /= 3 .or. any(came /= other)) error stop
  if (rank == 0) print *, "done", got, total
  call MPI_Finalize()
end program modern
