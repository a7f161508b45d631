/* What the numbers in a log's records stand for: communicators, and the ranks in them. */
#include "history_comms.h"

enum { BIAS = 4 };

/* Of number 0, which is none: where a call does not say it, ranks are those of the world. */
static const struct comm nameless = {.id = C_NONE};

const struct comm *comm_at(const struct column *comms, uint64_t number, uint64_t place) {
    if (number == 0) return &nameless;
    if (number >= comms->count) return NULL;
    const struct column *meanings = &AT(*comms, struct column, number);
    uint64_t later = first_by(meanings, sizeof(struct comm), (int64_t)place + 1);
    return later ? &AT(*meanings, struct comm, later - 1) : NULL;
}

int32_t world_rank(const struct comm *comm, uint32_t rank) {
    if (comm == &nameless) return (int32_t)rank;
    return comm != NULL && rank < comm->ranks.count ? AT(comm->ranks, int32_t, rank) : NONE;
}

int32_t coded(const struct comm *comm, uint32_t code) {
    return code >= BIAS ? world_rank(comm, code - BIAS) : NONE;
}

int32_t tag_of(uint32_t code) { return code >= BIAS ? (int32_t)(code - BIAS) : NONE; }
