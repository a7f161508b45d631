// As a Fortran program calls MPI: rank 0 receives from whoever comes, through the Fortran bindings.

#include "jitter.h"

void mpi_init_(MPI_Fint *rc);
void mpi_finalize_(MPI_Fint *rc);
void mpi_barrier_(MPI_Fint *comm, MPI_Fint *rc);
void mpi_comm_dup_(MPI_Fint *comm, MPI_Fint *dup, MPI_Fint *rc);
void mpi_send_(void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
void mpi_irecv_(void *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
                MPI_Fint *);
void mpi_test_(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);

int main(int argc, char **argv) {
    MPI_Fint rc = 0, world, comm, one = 1, type, any = MPI_ANY_SOURCE, tag = 5, zero = 0;
    parse_options(argc, argv, jitter_options);
    mpi_init_(&rc);
    MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank_count);
    world = MPI_Comm_c2f(MPI_COMM_WORLD);
    type = MPI_Type_c2f(MPI_INT);
    mpi_comm_dup_(&world, &comm, &rc);
    for (step = 0; step < rounds; step++) {
        int value = my_rank * 1000 + (int)step;
        for (int rank = 1; my_rank == 0 && rank < rank_count; rank++) {
            MPI_Fint request, flag = 0, status[8] = {0};
            long no = 0;
            mpi_irecv_(&value, &one, &type, &any, &tag, &comm, &request, &rc);
            for (; !flag; no++) {
                mpi_test_(&request, &flag, status, &rc);
            }
            CHECK(value == status[0] * 1000 + step, "%d from rank %d", value, status[0]);
            note(no);
            note(value);
        }
        if (my_rank) {
            jitter();
            mpi_send_(&value, &one, &type, &zero, &tag, &comm, &rc);
        }
        mpi_barrier_(&comm, &rc);
        CHECK(rc == MPI_SUCCESS, "error %d", rc);
    }
    report_seen();
    return 0;
}
