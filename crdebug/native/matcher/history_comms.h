/* Of a log: its communicators, and codes of ranks and tags (clock.h). */
#ifndef CRDEBUG_HISTORY_COMMS_H
#define CRDEBUG_HISTORY_COMMS_H

#include "history.h"

struct comm { /* what a number in this log means from a place on */
    uint64_t place;
    int64_t id;
    struct column ranks; /* int32_t: in the world, of those that it can name */
};

/* comms: of a log, by number. NULL for one that is not defined at that place. */
const struct comm *comm_at(const struct column *comms, uint64_t number, uint64_t place);
/* Ranks in the world, of a rank in a communicator or the code of one; NONE where it is nobody's. */
int32_t world_rank(const struct comm *comm, uint32_t rank);
int32_t coded(const struct comm *comm, uint32_t code);
int32_t tag_of(uint32_t code);

#endif
