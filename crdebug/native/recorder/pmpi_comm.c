/* Communicators: their numbers in this log, and their members, once each; types' sizes; epochs.
 *
 * What a communicator is called in the whole job follows from its members, in order, and from how
 * many of the same members there were before it: all members count the same, without a message. So it is
 * of windows, which are as communicators in the log, counted by themselves. */
#include <stdlib.h>

#include "pmpi.h"

#define BUCKETS 256

struct comm_entry *last_comm;
static struct comm_entry *buckets[BUCKETS];
static uint32_t numbers_used, *numbers_free, numbers_free_count;
static struct comm_entry no_comm;
/* Their numbers in every log, for when there is none: MPI_Init defines them. */
static struct comm_entry the_world = {.number = 1}, the_self = {.number = 2};

static struct comm_entry **bucket(MPI_Comm comm) {
    return &buckets[mix(1, (uint64_t)(uintptr_t)comm) % BUCKETS];
}

static uint32_t new_number(void) {
    if (numbers_free_count) return numbers_free[--numbers_free_count];
    if (numbers_used + 1 >= COMM_MOST) {
        refuse(CRDEBUG_COMMS);
        return 0;
    }
    return ++numbers_used;
}

static void free_number(uint32_t number) {
    uint32_t *more = realloc(numbers_free, (numbers_free_count + 1) * sizeof *more);
    if (more == NULL || number == 0) return;
    numbers_free = more;
    numbers_free[numbers_free_count++] = number;
}

/* The ranks in MPI_COMM_WORLD of a group, as pairs of a first one and how many follow it in steps of
 * one; UINT32_MAX is a process of another job. */
static uint32_t runs_of(MPI_Group group, MPI_Group world, uint32_t *words) {
    int size, count = 0;
    PMPI_Group_size(group, &size);
    int *ranks = malloc(2 * (size_t)(size ? size : 1) * sizeof *ranks);
    if (ranks == NULL) return 0;
    for (int i = 0; i < size; i++) ranks[i] = i;
    int *there = ranks + size;
    PMPI_Group_translate_ranks(group, size, ranks, world, there);
    for (int i = 0; i < size; i++) {
        uint32_t rank = there[i] == MPI_UNDEFINED ? UINT32_MAX : (uint32_t)there[i];
        if (i && rank != UINT32_MAX && rank == words[count - 2] + words[count - 1]) {
            words[count - 1]++;
        } else {
            words[count++] = rank;
            words[count++] = 1;
        }
    }
    free(ranks);
    return (uint32_t)count;
}

/* Words: number of the local runs' words, whether there is a remote group, the runs. window: it is one,
 * over the communicator. */
static void define(uint32_t number, MPI_Comm comm, int inter, bool window) {
    MPI_Group world, local, remote;
    int size, remote_size = 0;
    if (C.mode == CRDEBUG_COUNTS) return;
    PMPI_Comm_group(mpi.world, &world);
    PMPI_Comm_group(comm, &local);
    PMPI_Group_size(local, &size);
    if (inter) {
        PMPI_Comm_remote_group(comm, &remote);
        PMPI_Group_size(remote, &remote_size);
    }
    uint32_t *words = malloc((2 + 2 * ((size_t)size + (size_t)remote_size)) * sizeof *words);
    if (words == NULL) {
        refuse(CRDEBUG_MEMORY);
        return;
    }
    words[0] = runs_of(local, world, words + 2);
    words[1] = (uint32_t)inter;
    PMPI_Group_free(&local);
    struct note note = note_of(CALL_none, 0, number, 0, window, 2 + words[0]);
    if (inter) {
        note.head += (uint64_t)runs_of(remote, world, words + 2 + words[0]) << SIZE_SHIFT;
        PMPI_Group_free(&remote);
    }
    note.words = words;
    note.count = HEAD_SIZE(note.head);
    begin(&note);
    finish(&note, MPI_SUCCESS);
    free(words);
    PMPI_Group_free(&world);
}

static struct comm_entry *add(MPI_Comm comm, uint32_t number, int inter) {
    struct comm_entry *entry = malloc(sizeof *entry), **place = bucket(comm);
    if (entry == NULL) {
        refuse(CRDEBUG_MEMORY);
        return &no_comm;
    }
    *entry = (struct comm_entry){comm, number, (uint32_t)inter, 0, *place, 0, 0};
    PMPI_Comm_rank(comm, &entry->rank);
    *place = entry;
    return entry;
}

struct comm_entry *comm_slow(MPI_Comm comm) {
    int inter;
    if (comm == mpi.comm_null || !comm) return &no_comm; /* the MPI itself will say so */
    for (struct comm_entry *entry = *bucket(comm); entry; entry = entry->next)
        if (entry->handle == comm) return last_comm = entry;
    if (C.mode == CRDEBUG_COUNTS) {
        if (comm == mpi.world) return &the_world;
        return comm == mpi.self ? &the_self : &no_comm;
    }
    ask();
    if (!answered(PMPI_Comm_test_inter(comm, &inter))) return &no_comm;
    uint32_t number = new_number();
    define(number, comm, inter, false);
    return last_comm = add(comm, number, inter);
}

void comm_made(MPI_Comm comm) {
    struct comm_entry *entry = comm_slow(comm);
    if (entry == &no_comm || comm == mpi.world || comm == mpi.self) return;
    entry->site = C.doing_site;
    entry->now = C.now;
}

uint32_t comm_promise(MPI_Comm parent) {
    if (C.mode == CRDEBUG_COUNTS) return 0;
    uint32_t number = new_number();
    define(number, parent, (int)comm_entry(parent)->inter, false);
    return number;
}

void comm_keep(uint32_t number, MPI_Comm comm, uint64_t site, uint64_t now) {
    int inter;
    if (number == 0) return;
    PMPI_Comm_test_inter(comm, &inter);
    struct comm_entry *entry = add(comm, number, inter);
    if (entry == &no_comm) return;
    entry->site = site;
    entry->now = now;
}

void comm_gone(MPI_Comm comm) {
    for (struct comm_entry **place = bucket(comm); *place; place = &(*place)->next)
        if ((*place)->handle == comm) {
            struct comm_entry *entry = *place;
            *place = entry->next;
            free_number(entry->number);
            free(entry);
            break;
        }
    last_comm = NULL;
}

/* ---- files -------------------------------------------------------------------------------------- */

static struct file {
    MPI_File handle;
    uint32_t used, comm;
} *files;
static uint32_t files_count;

void file_made(MPI_File file, uint32_t comm) {
    uint32_t at = 0;
    while (at < files_count && files[at].used) at++;
    if (at == files_count) {
        struct file *more = realloc(files, (files_count + 1) * sizeof *more);
        if (more == NULL) return; /* nobody will know which processes it has */
        files = more;
        files_count++;
    }
    files[at] = (struct file){file, 1, comm};
}

static struct file *file_of(MPI_File file) {
    for (uint32_t at = 0; at < files_count; at++)
        if (files[at].used && files[at].handle == file) return &files[at];
    return NULL;
}

uint32_t file_comm(MPI_File file) {
    const struct file *found = file_of(file);
    return found ? found->comm : 0;
}

void file_gone(MPI_File file) {
    struct file *found = file_of(file);
    if (found) found->used = 0;
}

/* ---- one-sided ---------------------------------------------------------------------------------- */

/* A fence opens an epoch only with the first access after it; what is in a start or against a post is
 * open until that ends; under a lock, what was accessed is open until it is flushed or unlocked, for
 * programs may hold a lock from their beginning to their end (Besta and Hoefler's Gsync and Locks
 * rules). targets: those of open accesses under locks, bit by bit. */
static struct window {
    MPI_Win handle;
    uint32_t used, fence, locks, start, post, number;
    uint64_t *targets;
    uint32_t words, accessed; /* of targets: how long, and how many bits are set */
    uint64_t site, now; /* where it was made, and when */
} *windows;
static uint32_t windows_count;

static uint32_t open_in(const struct window *window) {
    return window->fence + (window->accessed != 0) + window->start + window->post;
}

static void accessed(struct window *window, int target) {
    if (target < 0) return; /* MPI_PROC_NULL */
    uint32_t word = (uint32_t)target / 64, words = window->words;
    uint64_t bit = UINT64_C(1) << (unsigned)target % 64;
    if (word >= words) {
        uint64_t *more = realloc(window->targets, (word + 1) * sizeof *more);
        if (more == NULL) {
            refuse(CRDEBUG_MEMORY);
            return;
        }
        while (words <= word) more[words++] = 0;
        window->targets = more;
        window->words = words;
    }
    window->accessed += !(window->targets[word] & bit);
    window->targets[word] |= bit;
}

static void finished(struct window *window, int target) {
    if (target == EVERYBODY) {
        for (uint32_t word = 0; window->accessed && word < window->words; word++)
            window->targets[word] = 0;
        window->accessed = 0;
    } else if (target >= 0 && (uint32_t)target / 64 < window->words) {
        uint64_t *word = &window->targets[target / 64], bit = UINT64_C(1) << target % 64;
        window->accessed -= (*word & bit) != 0;
        *word &= ~bit;
    }
}

static struct window *window_of(MPI_Win win) {
    struct window *unused = NULL;
    for (uint32_t i = 0; i < windows_count; i++) {
        if (windows[i].used && windows[i].handle == win) return &windows[i];
        if (!windows[i].used) unused = &windows[i];
    }
    if (unused == NULL) {
        struct window *more = realloc(windows, (windows_count + 1) * sizeof *more);
        if (more == NULL) return NULL;
        windows = more;
        unused = &windows[windows_count++];
    }
    *unused = (struct window){.handle = win, .used = 1};
    return unused;
}

void window_made(MPI_Win win, MPI_Comm comm) {
    struct window *window = window_of(win);
    if (window == NULL || C.mode == CRDEBUG_COUNTS) return;
    window->number = new_number();
    window->site = C.doing_site;
    window->now = C.now;
    define(window->number, comm, 0, true);
}

uint32_t window_number(MPI_Win win) {
    struct window *window = window_of(win);
    return window ? window->number : 0;
}

uint32_t *note_group(struct note *note, MPI_Group group) {
    MPI_Group world;
    int size;
    if (C.mode == CRDEBUG_COUNTS) return NULL;
    ask();
    if (!answered(PMPI_Group_size(group, &size))) return NULL;
    uint32_t *words = malloc(2 * ((size_t)size + 1) * sizeof *words);
    if (words == NULL) {
        refuse(CRDEBUG_MEMORY);
        return NULL;
    }
    PMPI_Comm_group(mpi.world, &world);
    note->words = words;
    note->count = runs_of(group, world, words);
    note->head |= (uint64_t)note->count << SIZE_SHIFT;
    PMPI_Group_free(&world);
    return words;
}

void epoch(MPI_Win win, enum epoch_event event, int target) {
    struct window *window = window_of(win);
    if (window == NULL) return;
    uint32_t before = open_in(window);
    switch (event) {
    case E_ACCESS:
        if (window->locks) accessed(window, target);
        else window->fence |= !window->start;
        break;
    case E_FENCE: window->fence = 0; break;
    case E_LOCK: window->locks++; break;
    case E_FLUSH: finished(window, target); break;
    case E_UNLOCK:
        finished(window, target);
        window->locks -= window->locks > 0;
        break;
    case E_START: window->start = 1; break;
    case E_COMPLETE: window->start = 0; break;
    case E_POST: window->post = 1; break;
    case E_WAITED: window->post = 0; break;
    case E_FREE:
        free_number(window->number);
        free(window->targets);
        *window = (struct window){.used = 0};
        break;
    }
    C.open_epochs += open_in(window) - before;
}

/* ---- not freed ---------------------------------------------------------------------------------- */

void comms_tell_unfreed(void) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (const struct comm_entry *entry = buckets[i]; entry; entry = entry->next)
            if (entry->site) tell_unfreed("communicator", entry->site, entry->now);
    for (uint32_t i = 0; i < windows_count; i++)
        if (windows[i].used && windows[i].site)
            tell_unfreed("window", windows[i].site, windows[i].now);
}
