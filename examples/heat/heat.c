// Heat in a square plate: explicit finite differences in two dimensions, with halo exchange.
//
//   mpirun -n 4 heat [SIZE [STEPS [INTERVAL [FILE]]]]
//
// SIZE x SIZE points (256), STEPS time steps (1000), a line with the residual every INTERVAL steps
// (100), also written to FILE if given.
//
// The result does not depend on the number of ranks, to the last bit: a point's new value comes
// from the same numbers in the same order on whichever rank it lies, the residual is a maximum, and
// the sum at the end is taken by one rank over the gathered plate.

#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEFT, RIGHT, UP, DOWN, SIDES };

// This rank's part of the plate, with a rim one point wide for its neighbours' values.
struct grid {
    int rank;
    int size;                  // of the whole plate
    int row, column;           // of the first own point in the plate
    int rows, columns;         // own points, without the rim
    int neighbours[SIDES];     // MPI_PROC_NULL at the edge of the plate, which is kept cold
    double *now, *next;        // (rows + 2) x (columns + 2)
    MPI_Datatype column_type;  // one column of own points
    MPI_Comm comm;
};

// Where the computation is: globals, so that a debugger can print them in any frame of any rank.
int step;
double residual;  // the largest change of a point of this rank in the latest step

static size_t at(const struct grid *grid, int row, int column) {
    return (size_t)row * (size_t)(grid->columns + 2) + (size_t)column;
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "heat: not enough memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// Part `index` of `parts` nearly equal ones of `size` points: the first point, and how many.
static void part(int size, int parts, int index, int *first, int *count) {
    *first = (int)((int64_t)size * index / parts);
    *count = (int)((int64_t)size * (index + 1) / parts) - *first;
}

static void create_grid(struct grid *grid, int size) {
    int ranks, shape[2] = {0, 0}, periodic[2] = {0, 0}, place[2];
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, shape);
    MPI_Cart_create(MPI_COMM_WORLD, 2, shape, periodic, 0, &grid->comm);
    MPI_Comm_rank(grid->comm, &grid->rank);
    MPI_Cart_coords(grid->comm, grid->rank, 2, place);
    MPI_Cart_shift(grid->comm, 0, 1, &grid->neighbours[UP], &grid->neighbours[DOWN]);
    MPI_Cart_shift(grid->comm, 1, 1, &grid->neighbours[LEFT], &grid->neighbours[RIGHT]);
    grid->size = size;
    part(size, shape[0], place[0], &grid->row, &grid->rows);
    part(size, shape[1], place[1], &grid->column, &grid->columns);
    if (size < shape[0] || size < shape[1]) {
        fprintf(stderr, "heat: %d x %d points are too few for %d ranks\n", size, size, ranks);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    size_t points = (size_t)(grid->rows + 2) * (size_t)(grid->columns + 2);
    grid->now = allocate(points, sizeof(double));
    grid->next = allocate(points, sizeof(double));
    MPI_Type_vector(grid->rows, 1, grid->columns + 2, MPI_DOUBLE, &grid->column_type);
    MPI_Type_commit(&grid->column_type);

    // A warm plate, warmest towards one corner, so that every rank has something else to show.
    for (int i = 0; i < grid->rows; i++) {
        for (int j = 0; j < grid->columns; j++) {
            double y = (grid->row + i + 1) / (double)(size + 1);
            double x = (grid->column + j + 1) / (double)(size + 1);
            grid->now[at(grid, i + 1, j + 1)] = 100 * x * (1 - x) * y * (1 - y) * (1 + x + 3 * y);
        }
    }
}

static void destroy_grid(struct grid *grid) {
    free(grid->now);
    free(grid->next);
    MPI_Type_free(&grid->column_type);
    MPI_Comm_free(&grid->comm);
}

// Sends own border points to each side, and receives the opposite neighbour's into the rim.
static void exchange_halos(struct grid *grid) {
    double *now = grid->now;
    int rows = grid->rows, columns = grid->columns, *to = grid->neighbours;
    MPI_Sendrecv(&now[at(grid, 1, 1)], columns, MPI_DOUBLE, to[UP], 0,
                 &now[at(grid, rows + 1, 1)], columns, MPI_DOUBLE, to[DOWN], 0, grid->comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[at(grid, rows, 1)], columns, MPI_DOUBLE, to[DOWN], 1,
                 &now[at(grid, 0, 1)], columns, MPI_DOUBLE, to[UP], 1, grid->comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[at(grid, 1, 1)], 1, grid->column_type, to[LEFT], 2,
                 &now[at(grid, 1, columns + 1)], 1, grid->column_type, to[RIGHT], 2, grid->comm,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&now[at(grid, 1, columns)], 1, grid->column_type, to[RIGHT], 3,
                 &now[at(grid, 1, 0)], 1, grid->column_type, to[LEFT], 3, grid->comm,
                 MPI_STATUS_IGNORE);
}

// One time step of this rank's points. Returns the largest change of a point.
__attribute__((noinline)) static double relax(struct grid *grid) {
    const double *now = grid->now;
    double largest = 0;
    for (int i = 1; i <= grid->rows; i++) {
        for (int j = 1; j <= grid->columns; j++) {
            double around = now[at(grid, i - 1, j)] + now[at(grid, i + 1, j)] +
                            now[at(grid, i, j - 1)] + now[at(grid, i, j + 1)];
            double change = 0.2 * (around - 4 * now[at(grid, i, j)]);
            grid->next[at(grid, i, j)] = now[at(grid, i, j)] + change;
            largest = fmax(largest, fabs(change));
        }
    }
    double *old = grid->now;
    grid->now = grid->next;
    grid->next = old;
    return largest;
}

// Prints the largest residual of all ranks, on rank 0.
static void report(const struct grid *grid, FILE *file) {
    double largest;
    MPI_Reduce(&residual, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, grid->comm);
    if (grid->rank == 0) {
        printf("step %d residual %.17g\n", step, largest);
        fflush(stdout);
        if (file) {
            fprintf(file, "step %d residual %.17g\n", step, largest);
            fflush(file);
        }
    }
}

// Gathers the plate on rank 0, row by row, and prints its sum and a checksum (FNV-1a) of its bits.
static void print_result(const struct grid *grid, FILE *file) {
    int ranks, mine[4] = {grid->row, grid->column, grid->rows, grid->columns};
    size_t size = (size_t)grid->size, own = (size_t)grid->rows * (size_t)grid->columns;
    double *block = allocate(own, sizeof *block), *to = block;
    for (int i = 0; i < grid->rows; i++) {
        for (int j = 0; j < grid->columns; j++) {
            *to++ = grid->now[at(grid, i + 1, j + 1)];
        }
    }
    MPI_Comm_size(grid->comm, &ranks);
    if (grid->rank != 0) {
        MPI_Send(mine, 4, MPI_INT, 0, 4, grid->comm);
        MPI_Send(block, (int)own, MPI_DOUBLE, 0, 5, grid->comm);
        free(block);
        return;
    }
    double *plate = allocate(size * size, sizeof *plate);
    double *received = allocate(size * size, sizeof *received);
    for (int rank = 0; rank < ranks; rank++) {
        int theirs[4] = {mine[0], mine[1], mine[2], mine[3]};
        const double *from = block;
        if (rank != 0) {
            MPI_Recv(theirs, 4, MPI_INT, rank, 4, grid->comm, MPI_STATUS_IGNORE);
            MPI_Recv(received, theirs[2] * theirs[3], MPI_DOUBLE, rank, 5, grid->comm,
                     MPI_STATUS_IGNORE);
            from = received;
        }
        for (int i = 0; i < theirs[2]; i++) {
            for (int j = 0; j < theirs[3]; j++) {
                plate[(size_t)(theirs[0] + i) * size + (size_t)(theirs[1] + j)] = *from++;
            }
        }
    }

    double sum = 0;
    uint64_t checksum = UINT64_C(14695981039346656037);
    for (size_t point = 0; point < size * size; point++) {
        const unsigned char *bytes = (const unsigned char *)&plate[point];
        sum += plate[point];
        for (size_t i = 0; i < sizeof plate[point]; i++) {
            checksum = (checksum ^ bytes[i]) * UINT64_C(1099511628211);
        }
    }
    printf("sum %.17g checksum %016" PRIx64 "\n", sum, checksum);
    if (file) {
        fprintf(file, "sum %.17g checksum %016" PRIx64 "\n", sum, checksum);
    }
    free(plate);
    free(received);
    free(block);
}

// The number given as argument `index`, if it is there, else `fallback`. Ends the program if it is
// not a whole number from 1 to `most`.
static int number(int argc, char **argv, int index, int fallback, int most) {
    if (index >= argc) {
        return fallback;
    }
    char *end;
    long value = strtol(argv[index], &end, 10);
    if (end == argv[index] || *end || value < 1 || value > most) {
        fprintf(stderr, "usage: heat [SIZE [STEPS [INTERVAL [FILE]]]], not '%s'\n", argv[index]);
        exit(2);
    }
    return (int)value;
}

int main(int argc, char **argv) {
    int size = number(argc, argv, 1, 256, 16384);
    int steps = number(argc, argv, 2, 1000, 1000000000);
    int interval = number(argc, argv, 3, 100, 1000000000);
    MPI_Init(&argc, &argv);

    struct grid grid;
    create_grid(&grid, size);
    FILE *file = NULL;
    if (argc > 4 && grid.rank == 0) {
        file = fopen(argv[4], "w");
        if (!file) {
            perror(argv[4]);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }

    for (step = 1; step <= steps; step++) {
        exchange_halos(&grid);
        residual = relax(&grid);
        if (step % interval == 0) {
            report(&grid, file);
        }
    }
    print_result(&grid, file);

    if (file) {
        fclose(file);
    }
    destroy_grid(&grid);
    MPI_Finalize();
    return 0;
}
