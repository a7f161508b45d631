/* Ordered pairs of ticks with a fast minimum over a range: what a cut is computed from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history.h"

#define BLOCK 1024

void *column_more(struct column *column, size_t size) {
    if (column->count == column->room) {
        column->room = column->room ? column->room + column->room / 2 : 8;
        column->data = realloc(column->data, column->room * size);
        if (column->data == NULL) {
            fputs("crdebug: no memory for the history of MPI calls\n", stderr);
            abort();
        }
    }
    return (char *)column->data + size * column->count++;
}

void column_free(struct column *column) {
    free(column->data);
    *column = (struct column){0};
}

uint64_t first_at(const struct column *column, int64_t value) {
    return first_by(column, sizeof(int64_t), value);
}

uint64_t needs_add(struct needs *needs, int64_t key, int64_t value) {
    uint64_t count = needs->keys.count, at = first_at(&needs->keys, key + 1), block = at / BLOCK;
    PUSH(needs->keys, int64_t, key);
    PUSH(needs->values, int64_t, value);
    int64_t *keys = needs->keys.data, *values = needs->values.data, *minima = needs->minima.data;
    if (at < count) {
        memmove(keys + at + 1, keys + at, (count - at) * sizeof *keys);
        memmove(values + at + 1, values + at, (count - at) * sizeof *values);
        keys[at] = key;
        values[at] = value;
        if (block < needs->minima.count) needs->minima.count = block;
    } else if (block < needs->minima.count && value < minima[block]) {
        minima[block] = value;
    }
    return at;
}

void needs_put(struct needs *needs, uint64_t at, int64_t value) {
    int64_t *values = needs->values.data, *minima = needs->minima.data, old = values[at];
    uint64_t block = at / BLOCK;
    values[at] = value;
    if (block >= needs->minima.count) return;
    if (value <= minima[block]) minima[block] = value;
    else if (old == minima[block]) needs->minima.count = block;
}

void needs_clear(struct needs *needs) {
    needs->keys.count = needs->values.count = needs->minima.count = 0;
}

static int64_t plain(const int64_t *values, uint64_t low, uint64_t high, int64_t above) {
    int64_t least = NEVER;
    for (; low < high; low++)
        if (values[low] < least && values[low] > above) least = values[low];
    return least;
}

static void summarise(struct needs *needs) {
    const int64_t *values = needs->values.data;
    for (uint64_t block = needs->minima.count; block < needs->values.count / BLOCK; block++)
        PUSH(needs->minima, int64_t, plain(values, block * BLOCK, (block + 1) * BLOCK, -1));
}

/* ---- for the cuts ------------------------------------------------------------------------------- */

EXPORTED struct needs *crdebug_needs_new(void) { return calloc(1, sizeof(struct needs)); }

EXPORTED void crdebug_needs_free(struct needs *needs) {
    column_free(&needs->keys);
    column_free(&needs->values);
    column_free(&needs->minima);
    free(needs);
}

EXPORTED uint64_t crdebug_needs_add(struct needs *needs, int64_t key, int64_t value) {
    return needs_add(needs, key, value);
}

EXPORTED void crdebug_needs_put(struct needs *needs, uint64_t at, int64_t value) {
    needs_put(needs, at, value);
}

/* The least value > above of the entries with first <= key <= last, or NEVER. */
EXPORTED int64_t crdebug_needs_least(struct needs *needs, int64_t first, int64_t last,
                                     int64_t above) {
    uint64_t low = first_at(&needs->keys, first), high = first_at(&needs->keys, last + 1);
    const int64_t *values = needs->values.data;
    uint64_t begin = (low + BLOCK - 1) / BLOCK, end = high / BLOCK;
    int64_t least = NEVER, next;
    if (low >= high) return NEVER;
    if (begin >= end) return plain(values, low, high, above);
    summarise(needs);
    const int64_t *minima = needs->minima.data;
    for (uint64_t block = begin; block < end; block++) {
        next = minima[block];
        /* rarely: only rules that the recorded run itself disproves have values below a floor */
        if (next <= above) next = plain(values, block * BLOCK, (block + 1) * BLOCK, above);
        if (next < least) least = next;
    }
    next = plain(values, low, begin * BLOCK, above);
    if (next < least) least = next;
    next = plain(values, end * BLOCK, high, above);
    return next < least ? next : least;
}

/* The greatest key of the entries with value <= tick, or 0: what `tick` and before need. */
EXPORTED int64_t crdebug_needs_needed_by(struct needs *needs, int64_t tick) {
    const int64_t *keys = needs->keys.data, *values = needs->values.data;
    summarise(needs);
    const int64_t *minima = needs->minima.data;
    uint64_t at = needs->values.count;
    while (at) {
        uint64_t block = (at - 1) / BLOCK;
        if (at % BLOCK == 0 && minima[block] > tick) {
            at = block * BLOCK;
            continue;
        }
        if (values[--at] <= tick) return keys[at];
    }
    return 0;
}

/* Indices of the entries whose key is not after `key`, and whose value is after `tick`. */
EXPORTED void crdebug_needs_open_at(struct needs *needs, int64_t key, int64_t tick,
                                    struct column *found) {
    const int64_t *values = needs->values.data;
    uint64_t high = first_at(&needs->keys, key + 1);
    found->count = 0;
    for (uint64_t at = 0; at < high; at++)
        if (values[at] > tick) PUSH(*found, int64_t, (int64_t)at);
}

EXPORTED uint64_t crdebug_first_at(const struct column *column, int64_t value) {
    return first_at(column, value);
}

EXPORTED void crdebug_column_free(struct column *column) { column_free(column); }
