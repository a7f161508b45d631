// Control flow of every kind, for reverse execution: walk.c is compiled with line information, and
// boundary.c without. `boundary` stands for an MPI call; it is called twice, and what is between is
// walked through.

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>

void boundary(int number);
int without_lines(int (*callback)(int), int value); void create(void);

volatile int sink, handled, changed, trips = 20, raised = SIGUSR1, creates, waits;
int numbers[6] = {5, 3, 9, 1, 7, 2};
static jmp_buf back;

static int leaf(int x) { return x * 2 + 1; }

static inline __attribute__((always_inline)) int expanded(int a)
{
    int r = a * 3;
    if (r & 1)
        r += leaf(a);
    return r + sink;
}

int __attribute__((noinline)) factorial(int n)
{
    if (n <= 1)
        return 1;
    return n * factorial(n - 1);
}

int __attribute__((noinline)) loops(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) sum += i;
    for (int i = 0; i < n; i++) {
        sum ^= expanded(i);
        for (int k = 0; k < 3; k++)
            sum += k * sink;
    }
    while (n-- > 0) if (n == 7) sink += leaf(n);
    return sum;
}

int __attribute__((noinline)) choose(int what)
{
    switch (what) {
    case 0:
        return 5;
    case 1:
        sink++;
        /* fall through */
    case 2:
        sink += 2;
        break;
    case 3: {
        int k = sink * 2;
        sink = k & 0xff;
        break;
    }
    default:
        return -1;
    }
    return sink;
}

int __attribute__((noinline)) early(int x)
{
    if (x > 3)
        return choose(x & 3);
    if (x == 2) {
        sink = 1;
        return 9;
    }
    return choose(x) + expanded(x);
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    if (x < y)
        return -1;
    return x > y;
}

static void __attribute__((noinline)) deep(int n)
{
    if (n == 0)
        longjmp(back, 7);
    deep(n - 1);
    sink++;
}

static int __attribute__((noinline)) jumps(void)
{
    int code = setjmp(back);
    if (code == 0) {
        deep(3);
        sink = 99;
    }
    sink += code;
    return code;
}

static void on_signal(int number)
{
    handled += number;
    sink ^= leaf(number);
}

static int called_back(int value)
{
    int r = value + 1;
    sink += r;
    return r;
}

int __attribute__((noinline)) last(int a)
{
    int r = a + sink;
    return r ^ 3;
}

int __attribute__((noinline)) work(int turns)
{
    int (*pointers[3])(int) = {factorial, choose, early};
    int total = 0;
    for (int i = 0; i < turns; i++) {
        total += pointers[i % 3](i);
        changed = total;
    }
    total += loops(trips);
    total += jumps();
    raise(raised);
    total += handled; if (creates) create();
    qsort(numbers, 6, sizeof *numbers, compare);
    total += without_lines(called_back, 4);
    char *room = malloc(40);
    room[3] = (char)total;
    total += room[3];
    free(room);
    return last(total);
}

// The first boundary is in functions that go on when it is over, and call others.
static __attribute__((noinline)) int inner_of_first(int x)
{
    int r = leaf(x);
    boundary(1);
    r += expanded(r);
    return r + factorial(2);
}

static inline __attribute__((always_inline)) int between_of_first(int x)
{
    int r = inner_of_first(x);
    r ^= x;
    return r;
}

static __attribute__((noinline)) int outer_of_first(int x)
{
    int r = 3;
    r += leaf(between_of_first(x));
    sink = r;
    return leaf(r);
}

int main(void)
{
    signal(raised, on_signal), signal(SIGRTMIN + 4, on_signal);
    free(malloc(40)); // a heap that comes into being later cannot be taken back
    int result = outer_of_first(5);
    result += work(7);
    result += factorial(4);
    boundary(2);
    sink = result;
    return 0;
}

// At the end: tests name lines above.
#include <pthread.h>

static void *nothing(void *unused) { return unused; }

// creates: 1: a thread, 2: a process
void create(void)
{
    pthread_t thread;
    if (creates == 2) {
        if (system("true") != 0) abort();
    } else if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        abort();
    }
}
