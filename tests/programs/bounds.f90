! One rank makes an error that Fortran's run-time library ends the program for.
program main
  use mpi
  implicit none
  integer :: rank, code, limit
  real, allocatable :: values(:)
  call mpi_init(code)
  call mpi_comm_rank(mpi_comm_world, rank, code)
  limit = 3
  allocate(values(limit))
  if (rank == 1) values(limit + 1) = 1.0
  call mpi_barrier(mpi_comm_world, code)
  call mpi_finalize(code)
end program
