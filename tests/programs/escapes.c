// A program that tries to reach the terminal of whoever debugs it: each name that it has a say in has a
// sequence in it that clears the screen. The names of its file and its arguments are up to the test.

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#define CLEAR "\033[2J"

void evil(void);

// A function that only the symbol table knows: there its name may have anything in it.
__asm__(".text\n"
        ".globl evil\n"
        ".type \"evil" CLEAR "\", %function\n"
        "\"evil" CLEAR "\":\n"
        "evil:\n"
        "    sub $8, %rsp\n"
        "    call here\n"
        "    add $8, %rsp\n"
        "    ret\n"
        ".size \"evil" CLEAR "\", .-evil\n");

static volatile int stay = 1;
static char word[] = "word" CLEAR;

void here(void);
#line 1 "file\033[2J.c"
void here(void) {
    printf("out" CLEAR "\n");
    fflush(stdout);
}

static void *wait_with_a_name(void *unused) {
    prctl(PR_SET_NAME, "name" CLEAR);
    evil();
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_name(MPI_COMM_WORLD, "comm" CLEAR);
    pthread_create(&thread, NULL, wait_with_a_name, NULL);
    pthread_join(thread, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (stay && argc > 1) fprintf(stderr, "err%s\n", word);
    if (rank == 0) exit(3);
    MPI_Finalize();
    return 0;
}
